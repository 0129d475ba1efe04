//! What a state machine must offer to be run by [`super::Shared`].

use super::machine::{Commit, DraftSize};
use super::moment::Moment;
use journal::{Error, Position, Resolution, Ticket};
use std::fmt::Debug;

/// When somebody wants to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    Now,
    At(Moment),
    /// When something arrives.
    Never,
}

impl Due {
    pub fn or(self, other: Due) -> Due {
        self.min(other)
    }
}

/// What waits for an append: answers, bytes that are counted until it is durable.
pub trait Releasable: Send + Debug {
    /// The append is durable: everything may leave.
    fn release(self);
}

/// A state machine with its journal, in the hands of one thread at a time.
///
/// What must hold: work is decided in the order in which it is accepted; what was decided is applied at once, so that the
/// next decision sees it; nothing that rests on a decision leaves before its append is durable. That last thing needs no
/// care: what waits is given away as [`Decider::Unreleased`] when the append is written, and comes out of it when it is durable.
pub trait Decider: Send + Debug {
    /// One piece of work.
    type Work: Send + Debug;
    /// What waits for an append.
    type Unreleased: Releasable;

    /// A clock that only ever rises.
    fn moment(&mut self) -> Moment;

    /// Takes a piece of work. It need not be decided at once.
    fn accept(&mut self, work: Self::Work);

    /// Decides at most so many pieces of what was accepted, as far as one append has room for it, and releases what waits for
    /// nothing. On the thread of a connection, perhaps: no file is touched.
    fn decide(&mut self, most: usize, commit: &Commit);

    /// What was decided and is not written, if there is something.
    fn drafted(&self) -> Option<DraftSize>;

    /// Writes what was decided at `at`. After [`Error::Full`] nothing is changed.
    fn append(&mut self, at: Position) -> Result<(Ticket, Self::Unreleased), Error>;

    /// Asks what became of the append at `at`, of which the journal could not say whether it was kept.
    fn resolve(&mut self, at: Position, waiting: &mut Self::Unreleased) -> Result<Resolution, Error>;

    /// Writes the append before once more, unchanged: it is known not to be there.
    fn repeat(&mut self, at: Position, waiting: &mut Self::Unreleased) -> Result<Ticket, Error>;

    /// The append at `at` is durable, and what waited for it has left. What follows from that is decided now.
    fn committed(&mut self, at: Position);

    /// When its thread is to look at it though nothing arrives: at once, if something was accepted that could be decided.
    fn due(&mut self, commit: &Commit) -> Due;

    /// What is due by time, and a step of whatever else there is to do. On the partition's thread, which may touch files.
    fn tend(&mut self, commit: &Commit) -> Result<(), Error>;

    /// Whether it was told to end, and has.
    fn has_ended(&self) -> bool;
}
