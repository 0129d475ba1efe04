//! A partition without threads, for tests: the test says what time it is and when it runs, and the disk answers at once.

use crate::clock::Clock;
use crate::commit::{AfterTurn, Inbox, Moment, Stop};
use crate::limits::SEAL_AFTER;
use crate::partition::{Environment, Partition};
use crate::runner::SharedPartition;
use crate::upkeep::UpkeepSettings;
use crate::work::Work;
use crate::{Budget, Recovered};
use broker::{Broker, Time};
use journal::Journal;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Turns that one input may cause. Far above what any needs: a partition that always wants another turn hangs.
const MOST_TURNS: usize = 100_000;

/// Both kinds of time, as somebody sets them.
#[derive(Debug, Clone, Default)]
pub struct HandClock {
    time: Arc<AtomicI64>,
    moment: Arc<AtomicU64>,
}

impl Clock for HandClock {
    fn now(&mut self) -> Time {
        Time(self.time.load(Ordering::Relaxed))
    }

    fn moment(&mut self) -> Moment {
        Moment(self.moment.load(Ordering::Relaxed))
    }
}

impl HandClock {
    /// It is so late now. What has elapsed since it was last set has passed for the disk too, and a few microseconds more.
    pub fn set(&self, time: Time) -> Moment {
        let before = self.time.swap(time.0, Ordering::Relaxed);
        let passed = u64::try_from(time.0.saturating_sub(before)).unwrap_or(0).min(1 << 40) * 1_000 + 3;
        Moment(self.moment.fetch_add(passed, Ordering::Relaxed) + passed)
    }

    pub fn pass(&self, time: Duration) {
        self.moment.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn pass_until(&self, moment: Moment) {
        self.moment.fetch_max(moment.0, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct ByHand {
    partition: SharedPartition,
    inbox: Arc<Inbox<Work>>,
    budget: Arc<Budget>,
    clock: HandClock,
}

impl ByHand {
    /// Goes on where recovery has ended.
    pub fn new(recovered: Recovered, journal: Box<dyn Journal>, settings: UpkeepSettings) -> ByHand {
        let (environment, clock) = (Environment::default(), HandClock::default());
        let (inbox, budget) = (environment.inbox.clone(), environment.budget.clone());
        let tail = journal.tail();
        let broker = Broker::new(recovered.durable, 7);
        let partition = Partition::new(broker, journal, Box::new(clock.clone()), environment).tended(
            settings,
            &recovered.snapshots,
            recovered.last_time,
        );
        ByHand { partition: SharedPartition::new(partition, tail, inbox.clone()), inbox, budget, clock }
    }

    pub fn put(&self, work: Work) {
        if let Work::Batch(batch) = &work {
            self.budget.hold(batch.held_bytes());
        }
        self.inbox.put(work);
    }

    /// Runs until nothing is left to do at this time. Says whether it has ended.
    pub fn run(&mut self, now: Time) -> Result<bool, Stop> {
        self.clock.set(now);
        let mut answered = None;
        for _ in 0..MOST_TURNS {
            match self.partition.turn(answered.take()) {
                AfterTurn::Sync(append) => answered = Some(append.wait()),
                AfterTurn::Sleep { until, now } => match self.partition.gathers_until() {
                    Some(moment) => self.clock.pass_until(moment),
                    None if self.inbox.is_empty() && until.is_none_or(|until| until > now) => {
                        return Ok(false);
                    }
                    None => {}
                },
                AfterTurn::Ended => return Ok(true),
                AfterTurn::Stopped(why) => return Err(why),
            }
        }
        panic!("the partition never rests");
    }

    /// The same after a silence in which the journal is sealed.
    pub fn rest(&mut self, now: Time) -> Result<bool, Stop> {
        self.clock.pass(SEAL_AFTER);
        self.run(now)
    }

    pub fn look<R>(&self, look: impl FnOnce(&Partition) -> R) -> R {
        self.partition.look(|partition, _| look(partition)).expect("nobody has given it up")
    }
}
