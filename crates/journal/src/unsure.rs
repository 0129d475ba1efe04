//! A journal whose answers get lost, as a distributed one's do: the writer must cope with `Unknown`.
//!
//! Wraps any journal. Until the writer has resolved or repeated the append, the wrapper shows the tail that the
//! writer can know.

use crate::draft::Draft;
use crate::error::Error;
use crate::journal::{
    Batch, BodyId, Description, Epoch, Journal, Position, Resolution, Snapshots, Space, Stretch,
};
use crate::local::Scrub;
use crate::place::Place;
use crate::ticket::{Outcome, Ticket};
use std::fmt;
use std::sync::Arc;

/// What happens to an append on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives, and so does the answer.
    Pass,
    /// It never arrives; the outcome is `Unknown`.
    LoseRequest,
    /// It is committed; the outcome is `Unknown`.
    LoseAnswer,
}

/// A journal over an unreliable connection.
pub struct Unsure {
    inner: Box<dyn Journal>,
    judge: Box<dyn FnMut(Position) -> Verdict + Send>,
    doubt: Option<Doubt>,
}

/// An append of which the writer does not know what became.
struct Doubt {
    at: Position,
    first_body: BodyId,
    draft: Draft,
}

impl fmt::Debug for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsure").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Unsure {
    /// `judge` decides about each append that is not a repetition.
    pub fn new(inner: Box<dyn Journal>, judge: impl FnMut(Position) -> Verdict + Send + 'static) -> Unsure {
        Unsure { inner, judge: Box::new(judge), doubt: None }
    }
}

impl Journal for Unsure {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error> {
        self.doubt = None;
        self.inner.fence(owner, epoch)
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn tail(&self) -> Position {
        self.doubt.as_ref().map_or(self.inner.tail(), |doubt| Position(doubt.at.0 - 1))
    }

    fn first(&self) -> Position {
        self.inner.first()
    }

    fn next_body(&self) -> BodyId {
        self.doubt.as_ref().map_or(self.inner.next_body(), |doubt| doubt.first_body)
    }

    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        if let Some(doubt) = self.doubt.take() {
            let is_same = doubt.at == at
                && (doubt.draft.time, doubt.draft.record_count) == (draft.time, draft.record_count)
                && doubt.draft.records == draft.records
                && doubt.draft.pieces.concat() == draft.pieces.concat();
            assert!(is_same, "after an unknown outcome only the identical append may follow");
            if self.inner.tail() == at {
                return Ok(Ticket::new(|| Outcome::Committed));
            }
            return self.inner.append(draft, at);
        }
        let (bytes, limit) = (self.inner.batch_bytes(draft), self.inner.describe().max_batch_bytes);
        if bytes > limit {
            return Err(Error::TooLarge { bytes, limit });
        }
        let verdict = (self.judge)(at);
        if verdict == Verdict::Pass {
            return self.inner.append(draft, at);
        }
        self.doubt = Some(Doubt { at, first_body: self.inner.next_body(), draft: draft.clone() });
        if verdict == Verdict::LoseAnswer {
            match self.inner.append(draft, at)?.wait() {
                Outcome::Committed => {}
                other => return Ok(Ticket::new(|| other)),
            }
        }
        Ok(Ticket::new(|| Outcome::Unknown))
    }

    fn resolve(&mut self, at: Position) -> Result<Resolution, Error> {
        self.doubt = None;
        self.inner.resolve(at)
    }

    fn read(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.inner.read(from, each)
    }

    fn place(&self, body: BodyId) -> Option<Place> {
        self.inner.place(body)
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.inner.seal()
    }

    fn trim(&mut self, before: Position) -> Result<(), Error> {
        self.inner.trim(before)
    }

    fn stretches(&self) -> Vec<Stretch> {
        self.inner.stretches()
    }

    fn scrub(&self, after: Position) -> Option<Scrub> {
        self.inner.scrub(after)
    }

    fn has_reserve(&self) -> bool {
        self.inner.has_reserve()
    }

    fn refill_reserve(&mut self) -> Result<bool, Error> {
        self.inner.refill_reserve()
    }

    fn lacking_bytes(&self) -> u64 {
        self.inner.lacking_bytes()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.inner.snapshots()
    }

    fn space(&self) -> Result<Space, Error> {
        self.inner.space()
    }
}
