//! The smallest state machine that the commit machine can run: a counter that everybody adds to. Each addition is a record,
//! and each adder hears the sum when that is durable. A state machine of its own begins as a copy of this file.

use crate::commit::{Commit, Decider, DraftSize, Due, Moment, Releasable};
use crate::sync::{Condvar, Mutex};
use journal::{Draft, Error, Journal, Position, Resolution, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Adds to the counter, or ends it.
#[derive(Debug)]
pub enum Work {
    Add {
        number: u32,
        reply: Arc<Reply>,
    },
    /// The same, but nobody is kept waiting for it.
    Note {
        number: u32,
        reply: Arc<Reply>,
    },
    Stop,
}

/// Where somebody waits for the sums of his additions.
#[derive(Debug, Default)]
pub struct Reply {
    sums: Mutex<Vec<u32>>,
    told: Condvar,
}

impl Reply {
    /// Waits until so many sums were told, and returns all.
    pub fn wait(&self, count: usize) -> Vec<u32> {
        let sums = self.sums.lock().unwrap();
        self.told.wait_while(sums, |sums| sums.len() < count).unwrap().clone()
    }
}

/// Sums that are told when the append is durable.
#[derive(Debug, Default)]
pub struct Unreleased(Vec<(Arc<Reply>, u32)>);

impl Releasable for Unreleased {
    fn release(self) {
        for (reply, sum) in self.0 {
            reply.sums.lock().unwrap().push(sum);
            reply.told.notify_all();
        }
    }
}

#[derive(Debug)]
pub struct Counter {
    pub journal: Box<dyn Journal>,
    pub sum: u32,
    accepted: VecDeque<Work>,
    /// What was decided, and what waits for it.
    draft: Draft,
    waiting: Unreleased,
    is_awaited: bool,
    /// What was written last, for as long as it may have to be written again.
    written: Draft,
    is_stopping: bool,
    now: Moment,
    /// How fast the clock goes: a step each time that somebody looks at it.
    step: Duration,
}

impl Counter {
    pub fn new(journal: Box<dyn Journal>, step: Duration) -> Counter {
        Counter {
            journal,
            sum: 0,
            accepted: VecDeque::new(),
            draft: Draft::default(),
            waiting: Unreleased::default(),
            is_awaited: false,
            written: Draft::default(),
            is_stopping: false,
            now: Moment(0),
            step,
        }
    }
}

impl Decider for Counter {
    type Work = Work;
    type Unreleased = Unreleased;

    fn moment(&mut self) -> Moment {
        self.now = self.now + self.step;
        self.now
    }

    fn accept(&mut self, work: Work) {
        self.accepted.push_back(work);
    }

    fn decide(&mut self, most: usize, _: &Commit) {
        for _ in 0..most {
            match self.accepted.pop_front() {
                Some(work @ (Work::Add { .. } | Work::Note { .. })) => {
                    self.is_awaited |= matches!(work, Work::Add { .. });
                    let (Work::Add { number, reply } | Work::Note { number, reply }) = work else { return };
                    self.draft.records.extend_from_slice(&number.to_le_bytes());
                    self.draft.record_count += 1;
                    self.sum += number;
                    self.waiting.0.push((reply, self.sum));
                }
                Some(Work::Stop) => self.is_stopping = true,
                None => return,
            }
        }
    }

    fn drafted(&self) -> Option<DraftSize> {
        let records = self.draft.record_count;
        (records > 0).then_some(DraftSize { records, is_awaited: self.is_awaited, is_full: false })
    }

    fn append(&mut self, at: Position) -> Result<(Ticket, Unreleased), Error> {
        let ticket = self.journal.append(&self.draft, at)?;
        std::mem::swap(&mut self.draft, &mut self.written);
        self.draft.clear();
        self.is_awaited = false;
        Ok((ticket, std::mem::take(&mut self.waiting)))
    }

    fn resolve(&mut self, at: Position, _: &mut Unreleased) -> Result<Resolution, Error> {
        self.journal.resolve(at)
    }

    fn repeat(&mut self, at: Position, _: &mut Unreleased) -> Result<Ticket, Error> {
        self.journal.append(&self.written, at)
    }

    fn committed(&mut self, _: Position) {}

    fn due(&mut self, _: &Commit) -> Due {
        if self.accepted.is_empty() && !self.is_stopping { Due::Never } else { Due::Now }
    }

    fn tend(&mut self, _: &Commit) -> Result<(), Error> {
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.is_stopping && self.accepted.is_empty() && self.draft.record_count == 0
    }
}
