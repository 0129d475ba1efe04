//! One partition on a disk in memory, with a clock of its own. It is turned by hand, without threads, and ends and begins
//! again as the faults want it.

use crate::faults::{DiskPlan, WorldClock, draw_image};
use crate::oracle::Shared;
use crate::oracle::topic::LIMITS;
use crate::oracle::watched::Watched;
use crate::random::Random;
use broker::{Broker, Tier};
use engine::{Batch, HandSync, Inbox, Item, Pace, Partition, Turn, recover};
use journal::disk::{Fault, Faulty, Memory};
use journal::{Filling, Local, Options};
use std::sync::Arc;
use std::time::Duration;

/// Small, so that a run fills several segments.
const SEGMENT_BYTES: u32 = 64 * 1_024;

/// Small, so that a stalled disk soon means that nobody is listened to.
const BUDGET_BYTES: usize = 32 * 1_024;

/// Small too, so that a run takes snapshots, gives space back and copies what is in its way.
const PACE: Pace = Pace {
    snapshot_every_bytes: 24 * 1_024,
    reclaim_bytes: 64 * 1_024,
    sparse_percent: 50,
    slice_bytes: 4 * 1_024,
    pause_ms: 10,
};

/// Turns that one input may cause. Far above what any needs: a partition that always wants another turn hangs.
const MOST_TURNS: u32 = 1_000;

#[derive(Debug)]
pub struct Machine {
    pub clock: WorldClock,
    pub shared: Arc<Shared>,
    /// For how many more runs the disk does not answer.
    pub stalled: u64,
    tier: Tier,
    random: Random,
    memory: Memory,
    disk: Arc<Faulty>,
    plan: DiskPlan,
    inbox: Arc<Inbox>,
    /// In a box, since it is taken out for every run and put back.
    alive: Option<Box<(Partition, HandSync)>>,
}

/// Whether the process is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Alive {
    Yes,
    No,
}

impl Machine {
    pub fn new(random: Random, tier: Tier, shared: Arc<Shared>) -> Machine {
        // Without a draw of its own, so that what a seed stands for stays what it was.
        let is_direct = random.clone().number().is_multiple_of(2);
        let memory = if is_direct { Memory::direct() } else { Memory::new() };
        let plan = DiskPlan::HEALTHY;
        Machine {
            clock: WorldClock::default(),
            shared,
            stalled: 0,
            tier,
            random,
            disk: faulty(&memory, plan),
            memory,
            plan,
            inbox: Arc::default(),
            alive: None,
        }
    }

    /// Whether the planned fault has struck, so that things may fail.
    pub fn has_struck(&self) -> bool {
        self.disk.calls() >= self.plan.at
    }

    /// Begins a life, and another one if the disk fails meanwhile.
    pub fn start(&mut self, plan: DiskPlan) {
        let mut plan = plan;
        loop {
            let is_late = plan.fault == Fault::Rot;
            self.plan = DiskPlan { at: if is_late { u64::MAX } else { plan.at }, ..plan };
            self.shared.lock().begin_life(plan.fault == Fault::Enospc, plan.may_not_read());
            self.disk = faulty(&self.memory, self.plan);
            match self.open() {
                Ok(()) if is_late => {
                    self.plan.at = self.disk.calls() + plan.at;
                    return self.disk.fail_in(plan.at);
                }
                Ok(()) => return,
                Err(error) if !self.has_struck() || plan.fault == Fault::Short => {
                    return self.shared.lock().fail(format!("a healthy disk cannot be opened: {error}"));
                }
                Err(_) => {
                    self.shared.lock().coverage.fault("fault while opening");
                    self.shared.lock().coverage.fault(plan.name());
                    self.memory = self.memory.crash_image(draw_image(&mut self.random));
                    plan = DiskPlan::HEALTHY;
                }
            }
        }
    }

    fn open(&mut self) -> Result<(), String> {
        let options = Options {
            filling: Filling::Never,
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            ..Options::new(self.random.number())
        };
        let mut inner = Local::open(self.disk.clone(), options).map_err(|error| error.to_string())?;
        let recovered = recover(&mut inner, 1).map_err(|error| error.to_string())?;
        let tail = journal::Journal::tail(&inner).0;
        self.shared.lock().recovered(tail, &recovered.durable);
        if !recovered.snapshots.is_empty() {
            self.shared.lock().coverage.fault("started from a snapshot");
        }
        self.clock.resume(recovered.last_time);
        let broker = Broker::new(recovered.durable, self.random.number().into()).with_tier(self.tier);
        let broker = broker.with_topic_limits(LIMITS);
        self.inbox = Arc::new(Inbox::with_budget(BUDGET_BYTES));
        let journal = Watched { inner, shared: self.shared.clone() };
        let (partition, sync) = Partition::by_hand(broker, Box::new(journal), self.inbox.clone());
        let partition = partition.tended(PACE, &recovered.snapshots, recovered.last_time);
        self.alive = Some(Box::new((partition, sync)));
        Ok(())
    }

    /// Whether the server still reads from its sockets.
    pub fn has_room(&self) -> bool {
        self.inbox.has_room()
    }

    pub fn put(&self, item: Item) {
        self.inbox.put(item);
    }

    /// The disk answers a little later, or is one run nearer to doing so.
    pub fn wake(&mut self) {
        self.stalled = self.stalled.saturating_sub(1);
    }

    /// Turns the partition until it wants to wait: for work, or for a disk that does not answer. With `is_busy` it
    /// finds more work waiting, and so hands its first sync over. `is_all` says that nobody has more to say.
    pub fn run(&mut self, is_busy: bool, is_all: bool) -> Alive {
        if self.is_idle() {
            return Alive::Yes;
        }
        let Some(mut living) = self.alive.take() else { return Alive::No };
        let (partition, sync) = &mut *living;
        let alive = self.turn_until_quiet(partition, sync, is_busy, is_all);
        self.alive = Some(living);
        alive
    }

    /// Whether nothing has happened since it last rested, not even time.
    fn is_idle(&self) -> bool {
        let is_waiting = self.alive.as_ref().is_none_or(|living| living.1.is_waiting());
        let is_still = self.clock.is_still() && self.inbox.is_empty();
        !is_waiting && is_still && self.shared.lock().has_rested()
    }

    fn turn_until_quiet(
        &mut self,
        partition: &mut Partition,
        sync: &HandSync,
        is_busy: bool,
        is_all: bool,
    ) -> Alive {
        let mut items = Vec::new();
        let mut hands_over = is_busy;
        for _ in 0..MOST_TURNS {
            let now = self.clock.now();
            self.shared.lock().begin_turn(now);
            if sync.is_waiting() && self.stalled == 0 {
                // Whether the disk or the partition is first to know of the other is a matter of microseconds.
                if now.0 % 2 == 1 {
                    sync.finish(&self.inbox);
                } else if sync.finish_and_follow(&self.inbox, partition, now) {
                    self.shared.lock().coverage.fault("append before the news");
                }
            }
            self.inbox.take(&mut items, Some(Duration::ZERO));
            if hands_over || self.stalled > 0 {
                self.inbox.put(Item::Batch(Batch::default()));
                hands_over = false;
            }
            match partition.accept(&mut items, now).and_then(|()| partition.turn(now)) {
                Ok(Turn::Stopped) => {
                    if !self.is_stuck(partition) {
                        let mut oracle = self.shared.lock();
                        oracle.has_unread |= partition.condition().damage().is_some();
                        oracle.end_last_turn(partition.broker().durable());
                        oracle.check_kept();
                    }
                    return Alive::No;
                }
                Ok(turn) => {
                    self.inbox.take(&mut items, Some(Duration::ZERO));
                    items.retain(|item| !matches!(item, Item::Batch(batch) if batch.is_empty()));
                    let is_due = matches!(turn, Turn::At(due) if due <= now);
                    if turn == Turn::Now || is_due || !items.is_empty() {
                        continue;
                    }
                    if !sync.is_waiting() {
                        if is_all && !self.is_stuck(partition) {
                            self.be_quiet(partition);
                        }
                        return Alive::Yes;
                    } else if self.stalled > 0 {
                        self.shared.lock().coverage.fault("stalled sync");
                        return Alive::Yes;
                    }
                }
                Err(why) => {
                    if !self.has_struck() || self.plan.fault == Fault::Short {
                        self.shared.lock().fail(format!("the partition stopped on a healthy disk: {why}"));
                    }
                    return Alive::No;
                }
            }
        }
        self.shared.lock().fail("the partition never rests");
        Alive::No
    }

    /// Whether something waits for room on a full disk.
    fn is_stuck(&self, partition: &Partition) -> bool {
        partition.is_stuck() && self.shared.lock().may_lack_room
    }

    /// Everything is decided and durable.
    fn be_quiet(&self, partition: &Partition) {
        let mut oracle = self.shared.lock();
        oracle.has_unread |= partition.condition().damage().is_some();
        oracle.end_turn(partition.broker().durable());
        let held = self.inbox.undurable_bytes();
        if held != 0 {
            oracle.fail(format!("I13: {held} bytes count as undurable at rest"));
        }
        let effects = partition.held_effects();
        if effects != 0 {
            oracle.fail(format!("I13: {effects} effects are held back at rest"));
        }
    }

    /// Nothing has happened for a while.
    pub fn rest(&mut self) -> Alive {
        let Some(living) = &mut self.alive else { return Alive::No };
        match living.0.seal() {
            Ok(()) => Alive::Yes,
            Err(why) => {
                if !self.has_struck() {
                    self.shared.lock().fail(format!("the journal was not sealed: {why}"));
                }
                Alive::No
            }
        }
    }

    /// The process is gone, and the disk has kept what it has kept.
    pub fn end(&mut self, image: u64) {
        let mut oracle = self.shared.lock();
        if let Some(living) = self.alive.take() {
            let (partition, sync) = &*living;
            if sync.is_waiting() {
                oracle.coverage.fault("crash with a sync on its way");
            }
            let (records, time) = partition.unwritten();
            oracle.died(partition.broker().durable(), records, time);
        }
        if self.has_struck() {
            oracle.coverage.fault(self.plan.name());
        }
        self.stalled = 0;
        self.memory = self.memory.crash_image(image);
    }
}

fn faulty(memory: &Memory, plan: DiskPlan) -> Arc<Faulty> {
    Arc::new(Faulty::lasting(Arc::new(memory.clone()), plan.fault, plan.at, plan.lasting))
}
