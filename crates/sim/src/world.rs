//! The machine: one partition on a disk in memory, with clocks of its own. It is turned by hand, without threads, and
//! ends and begins again as the faults want it.

use crate::faults::{DiskPlan, WorldClock, draw_image};
use crate::oracle::Shared;
use crate::oracle::watched::Watched;
use crate::random::Random;
use broker::Broker;
use engine::{Inbox, Item, Pace, Partition, Turn, recover};
use journal::disk::{Fault, Faulty, Memory};
use journal::{Filling, Local, Options};
use std::sync::Arc;
use std::time::Duration;

/// Small, so that a run fills several segments.
const SEGMENT_BYTES: u32 = 64 * 1_024;

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
pub struct World {
    pub clock: WorldClock,
    pub crashes: u64,
    pub shared: Arc<Shared>,
    random: Random,
    memory: Memory,
    disk: Arc<Faulty>,
    plan: DiskPlan,
    inbox: Arc<Inbox>,
    partition: Option<Partition>,
}

/// Whether the process is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Alive {
    Yes,
    No,
}

impl World {
    pub fn new(random: Random, shared: Arc<Shared>) -> World {
        let memory = Memory::new();
        let plan = DiskPlan::HEALTHY;
        World {
            clock: WorldClock::default(),
            crashes: 0,
            shared,
            random,
            disk: faulty(&memory, plan),
            memory,
            plan,
            inbox: Arc::default(),
            partition: None,
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
            self.plan = plan;
            self.shared.lock().may_lack_room = plan.fault == Fault::Enospc;
            self.disk = faulty(&self.memory, plan);
            match self.open() {
                Ok(partition) => return self.partition = Some(partition),
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

    fn open(&mut self) -> Result<Partition, String> {
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
        let broker = Broker::new(recovered.durable, self.random.number());
        self.inbox = Arc::default();
        let journal = Watched { inner, shared: self.shared.clone() };
        let partition = Partition::alone(broker, Box::new(journal), self.inbox.clone());
        Ok(partition.tended(PACE, &recovered.snapshots, recovered.last_time))
    }

    /// Hands work over and turns the partition until it wants to wait.
    pub fn run(&mut self, items: Vec<Item>) -> Alive {
        items.into_iter().for_each(|item| self.inbox.put(item));
        for _ in 0..MOST_TURNS {
            let now = self.clock.now();
            self.shared.lock().begin_turn(now);
            let mut taken = Vec::new();
            self.inbox.take(&mut taken, Some(Duration::ZERO));
            let Some(partition) = &mut self.partition else { return Alive::No };
            let turned = partition.accept(&mut taken, now).and_then(|()| partition.turn(now));
            match turned {
                Ok(Turn::Stopped) => {
                    self.shared.lock().end_turn(partition.broker().durable());
                    return Alive::No;
                }
                Ok(turn) => {
                    self.shared.lock().end_turn(partition.broker().durable());
                    let is_due = matches!(turn, Turn::At(due) if due <= now);
                    if turn != Turn::Now && !is_due && self.inbox.is_empty() {
                        let held = self.inbox.undurable_bytes();
                        if held != 0 {
                            self.shared.lock().fail(format!("{held} bytes count as undurable at rest"));
                        }
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

    /// Nothing has happened for a while.
    pub fn rest(&mut self) -> Alive {
        let Some(partition) = &mut self.partition else { return Alive::No };
        match partition.seal() {
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
        self.crashes += 1;
        self.partition = None;
        if self.has_struck() {
            self.shared.lock().coverage.fault(self.plan.name());
        }
        self.shared.lock().died();
        self.memory = self.memory.crash_image(image);
    }
}

fn faulty(memory: &Memory, plan: DiskPlan) -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(memory.clone()), plan.fault, plan.at))
}
