//! One partition on a disk in memory, with a clock of its own. It is turned by hand, without threads, and ends and begins
//! again as the faults want it.
//!
//! The machine plays everybody around the partition: its own thread, which has a turn only while it is awake;
//! the threads of connections, which decide what they bring; and the disk, which answers when it likes.

use crate::faults::{DiskPlan, LogPlan, WorldClock, draw_image};
use crate::oracle::Shared;
use crate::oracle::topic::LIMITS;
use crate::oracle::watched::Watched;
use crate::random::Random;
use broker::{Broker, Tier, Time};
use engine::commit::{AfterTurn, Append, Commit, FULL_RETRY, Inbox, Stop};
use engine::{
    Budget, Environment, HandClock, Partition, SharedPartition, Unreleased, UpkeepSettings, Work, recover,
};
use journal::disk::{Fault, Faulty, Memory};
use journal::{Filling, Local, Options};
use std::sync::Arc;

/// Small, so that a run fills several segments.
const SEGMENT_BYTES: u32 = 64 * 1_024;

/// Small, so that a stalled disk soon means that nobody is listened to.
const BUDGET_BYTES: usize = 32 * 1_024;

/// Small too, so that a run takes snapshots, gives space back and copies what is in its way.
const UPKEEP: UpkeepSettings = UpkeepSettings {
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
    inbox: Arc<Inbox<Work>>,
    budget: Arc<Budget>,
    watch: HandClock,
    /// In a box, since it is taken out for every run and put back.
    alive: Option<Box<Living>>,
    /// So that the orders of who decides take turns.
    runs: u64,
    /// Since when the disk has no room, and how often it was called until then.
    full_since: Option<(u64, Time)>,
}

/// A partition, and the append that its thread waits for.
#[derive(Debug)]
struct Living {
    partition: SharedPartition,
    in_flight: Option<Append<Unreleased>>,
}

/// Whether the process is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Alive {
    Yes,
    No,
}

/// Two copies or so.
const FEW_STEPS: usize = 2 * broker::limits::RESULT_STEPS;

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
            budget: Arc::default(),
            watch: HandClock::default(),
            alive: None,
            runs: 0,
            full_since: None,
        }
    }

    /// Whether the planned fault has struck, so that things may fail.
    pub fn has_struck(&self) -> bool {
        self.disk.calls() >= self.plan.at
    }

    /// Begins a life, and another one if the disk fails meanwhile.
    pub fn start(&mut self, plan: DiskPlan) {
        let log = LogPlan::draw(&mut self.random);
        self.start_with(plan, log);
    }

    /// Begins the last life, in which nothing fails any more.
    pub fn start_last(&mut self) {
        self.start_with(DiskPlan::HEALTHY, LogPlan::HEALTHY);
    }

    fn start_with(&mut self, plan: DiskPlan, log: LogPlan) {
        let mut plan = plan;
        loop {
            let is_late = plan.fault == Fault::Rot;
            self.plan = DiskPlan { at: if is_late { u64::MAX } else { plan.at }, ..plan };
            self.shared.lock().begin_life(plan.fault == Fault::Enospc, plan.may_not_read());
            self.disk = faulty(&self.memory, self.plan);
            match self.open(log) {
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

    fn open(&mut self, log: LogPlan) -> Result<(), String> {
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
        // In some lives a batch is more than a topic publishes at once.
        let broker = if tail % 3 == 1 { broker.with_publish_steps(FEW_STEPS) } else { broker };
        // In others one source at a time has its messages read before they are published.
        let broker = if tail % 3 == 2 { broker.with_read_bytes(0) } else { broker };
        self.inbox = Arc::default();
        self.budget = Arc::new(Budget::new(BUDGET_BYTES));
        let journal = Watched::new(inner, self.shared.clone(), log);
        let environment = Environment::new(self.inbox.clone(), self.budget.clone());
        let partition = Partition::new(broker, Box::new(journal), Box::new(self.watch.clone()), environment);
        let partition = partition.tended(UPKEEP, &recovered.snapshots, recovered.last_time);
        let partition = SharedPartition::new(partition, journal::Position(tail), self.inbox.clone());
        self.alive = Some(Box::new(Living { partition, in_flight: None }));
        Ok(())
    }

    /// Whether the server still reads from its sockets.
    pub fn has_room(&self) -> bool {
        self.budget.has_room()
    }

    /// Somebody leaves work in the inbox.
    pub fn put(&self, work: Work) {
        match work {
            Work::Batch(batch) => {
                self.budget.hold(batch.held_bytes());
                self.inbox.leave(Work::Batch(batch));
            }
            Work::Stop => self.inbox.put(work),
            work => self.inbox.leave(work),
        }
    }

    /// The disk answers a little later, or is one run nearer to doing so.
    pub fn wake(&mut self) {
        self.stalled = self.stalled.saturating_sub(1);
    }

    /// Runs the partition until it wants to wait: for work, or for a disk that does not answer. With `is_busy` the disk answers
    /// only when something else has happened. `is_all` says that nobody has more to say.
    pub fn run(&mut self, is_busy: bool, is_all: bool) -> Alive {
        if self.is_idle() {
            return Alive::Yes;
        }
        let Some(mut living) = self.alive.take() else { return Alive::No };
        self.runs += 1;
        let alive = self.run_until_quiet(&mut living, is_busy, is_all);
        self.alive = Some(living);
        alive
    }

    /// Whether nothing has happened since it last rested, not even time.
    fn is_idle(&self) -> bool {
        let is_waiting = self.alive.as_ref().is_none_or(|living| living.in_flight.is_some());
        let is_still = self.clock.is_still() && self.inbox.is_empty();
        !is_waiting && is_still && self.shared.lock().has_rested()
    }

    /// What was put into the inbox is decided by the connection that put it there, or by the partition's thread, which is called for it.
    fn bring(&mut self, living: &Living) {
        if self.inbox.is_empty() {
            return;
        }
        let is_in_flight = living.in_flight.is_some();
        if is_in_flight || self.runs.is_multiple_of(2) {
            living.partition.decide_here();
            let what = if is_in_flight { "decided during a sync" } else { "decided by a connection" };
            self.shared.lock().coverage.fault(what);
        } else {
            self.inbox.call();
        }
        // A connection's thread that has nothing left to decide asks whether to pause, which may be what the next append waits for.
        if self.runs.is_multiple_of(4) {
            living.partition.may_pause();
        }
    }

    /// Sometimes those who bring something come just when the partition's thread has looked and is about to sleep.
    fn hold_back(&self, living: &Living) -> Vec<Work> {
        let mut late = Vec::new();
        if living.in_flight.is_none() && self.runs.is_multiple_of(3) && !self.inbox.is_empty() {
            self.inbox.take(&mut late);
            self.inbox.call();
        }
        late
    }

    fn bring_late(&self, living: &Living, late: &mut Vec<Work>) {
        if !late.is_empty() {
            late.drain(..).for_each(|work| self.inbox.leave(work));
            living.partition.decide_here();
            self.shared.lock().coverage.fault("decided before a sleep");
        }
    }

    fn run_until_quiet(&mut self, living: &mut Living, is_busy: bool, is_all: bool) -> Alive {
        let mut late = self.hold_back(living);
        // Time that has passed is noticed by a thread that sleeps until then.
        for turn in 0..MOST_TURNS {
            let now = self.clock.now();
            let moment = self.watch.set(now);
            self.shared.lock().begin_turn(now);
            self.bring(living);
            let step = match living.in_flight.take() {
                Some(append) if self.stalled > 0 || (is_busy && turn > 0) => {
                    living.in_flight = Some(append);
                    let what = if self.stalled > 0 { "stalled sync" } else { "answered later" };
                    self.shared.lock().coverage.fault(what);
                    return Alive::Yes;
                }
                Some(append) => living.partition.turn(Some(append.wait())),
                None if self.inbox.is_awake(moment) => living.partition.turn(None),
                // What nobody waits for is written when the partition's thread looks, if nobody calls it before.
                None => match living.partition.gathers_until() {
                    Some(moment) => {
                        self.watch.pass_until(moment);
                        self.shared.lock().coverage.fault("gathered");
                        continue;
                    }
                    None => return self.rest_at_door(living, is_all),
                },
            };
            match step {
                AfterTurn::Sync(append) => {
                    living.in_flight = Some(append);
                    self.bring_late(living, &mut late);
                }
                AfterTurn::Sleep { until, now } => {
                    self.bring_late(living, &mut late);
                    if self.inbox.try_sleep(until, now)
                        && let Some(moment) = living.partition.gathers_until()
                    {
                        // Somebody may come before, and then decides while it gathers.
                        self.bring(living);
                        self.watch.pass_until(moment);
                        self.shared.lock().coverage.fault("gathered");
                    }
                }
                AfterTurn::Ended => {
                    self.look_at_end(living);
                    return Alive::No;
                }
                AfterTurn::Stopped(why) => return self.stopped(why),
            }
        }
        self.shared.lock().fail("the partition never rests");
        Alive::No
    }

    /// The partition's thread sleeps, and nothing wakes it soon.
    fn rest_at_door(&mut self, living: &Living, is_all: bool) -> Alive {
        if self.is_full(living) {
            self.look_at_full();
        } else if is_all {
            self.full_since = None;
            self.be_quiet(living);
        }
        Alive::Yes
    }

    /// A disk without room is asked again and again.
    fn look_at_full(&mut self) {
        let (calls, now) = (self.disk.calls(), self.clock.now());
        let (asked, since) = *self.full_since.get_or_insert((calls, now));
        if asked != calls {
            self.full_since = Some((calls, now));
        } else if now.0 - since.0 > 2 * FULL_RETRY.as_millis() as i64 {
            self.shared.lock().fail("what found no room was not tried again");
        }
    }

    fn look_at_end(&self, living: &Living) {
        if !self.is_full(living) {
            look(living, |partition| {
                let mut oracle = self.shared.lock();
                oracle.has_unread |= partition.health().damage().is_some();
                oracle.end_last_turn(partition.broker().durable());
                oracle.check_kept();
            });
        }
    }

    fn stopped(&self, why: Stop) -> Alive {
        let mut oracle = self.shared.lock();
        let is_expected = match why {
            Stop::Fenced => oracle.is_fenced,
            _ => self.has_struck() && self.plan.fault != Fault::Short,
        };
        if !is_expected {
            oracle.fail(format!("the partition stopped on a healthy disk: {why}"));
        }
        Alive::No
    }

    /// Whether something waits for room on a full disk.
    fn is_full(&self, living: &Living) -> bool {
        // After the end something is left only if it found no room.
        let is_left = |commit: &Commit| commit.is_full() || (commit.is_stopped() && !commit.is_at_rest());
        let is_full = living.partition.look(|_, commit| is_left(commit)).unwrap_or(false);
        is_full && self.shared.lock().may_lack_room
    }

    /// Everything is decided and durable.
    fn be_quiet(&self, living: &Living) {
        look(living, |partition| {
            let mut oracle = self.shared.lock();
            oracle.has_unread |= partition.health().damage().is_some();
            oracle.end_turn(partition.broker().durable());
            let staged = partition.broker().staged();
            oracle.check_staged(staged.transactions, staged.stored_bytes, staged.held_bytes);
            let (held, effects) = (self.budget.held_bytes(), partition.held_effects());
            if held != 0 {
                oracle.fail(format!("I13: {held} bytes count as undurable at rest"));
            }
            if effects != 0 {
                oracle.fail(format!("I13: {effects} effects are held back at rest"));
            }
        });
    }

    /// Nothing happens for long enough that the journal is sealed.
    pub fn rest(&mut self) -> Alive {
        self.clock.pass(engine::limits::SEAL_AFTER.as_millis() as i64);
        self.run(false, false)
    }

    /// The process is gone, and the disk has kept what it has kept.
    pub fn end(&mut self, image: u64) {
        let mut oracle = self.shared.lock();
        if let Some(living) = self.alive.take() {
            if living.in_flight.is_some() {
                oracle.coverage.fault("crash with a sync on its way");
            }
            look(&living, |partition| {
                let (records, time) = partition.unwritten();
                oracle.died(partition.broker().durable(), records, time);
            });
        }
        if self.has_struck() {
            oracle.coverage.fault(self.plan.name());
        }
        self.stalled = 0;
        self.full_since = None;
        self.memory = self.memory.crash_image(image);
    }
}

fn look<R>(living: &Living, look: impl FnOnce(&mut Partition) -> R) -> R {
    living.partition.look(|partition, _| look(partition)).expect("it is given up with its machine")
}

fn faulty(memory: &Memory, plan: DiskPlan) -> Arc<Faulty> {
    Arc::new(Faulty::lasting(Arc::new(memory.clone()), plan.fault, plan.at, plan.lasting))
}
