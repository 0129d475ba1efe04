//! The commit machine: what is known about the disk, and what is to happen next. Pure: it is told what has happened and
//! asked what to do, and touches nothing.
//!
//! | state | means | leaves by |
//! |---|---|---|
//! | `Idle` | nothing is on its way: the next append may be written | `written`, `full`, `stop` |
//! | `InFlight` | one append was handed to the journal and its outcome is not known | `synced`, `unknown`, `stop` |
//! | `Unknown` | the journal cannot say whether it kept that append | `repeated`, `synced`, `stop` |
//! | `Full` | what was decided found no room and is tried again later | `written`, `full`, `stop` |
//! | `Stopped` | nothing is written any more | |

use super::gather::Gather;
use super::limits::FULL_RETRY;
use super::moment::Moment;
use broker::planted::{Bug, is_planted};
use journal::Position;

/// What is known about the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskState {
    Idle,
    InFlight { position: Position, since: Moment },
    Unknown { position: Position },
    Full { retry: Moment },
    Stopped(Stop),
}

/// Why nothing is written any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("{0}")]
    Failed(String),
    #[error("another process has taken the journal over")]
    Fenced,
    #[error("the partition has ended")]
    Ended,
}

/// What was decided and is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DraftSize {
    /// None, if an append is wanted for its own sake.
    pub records: u32,
    /// Somebody gets something when it is durable.
    pub is_awaited: bool,
    /// It holds as much as one append should.
    pub is_full: bool,
}

/// What is to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// What was decided is to be written now.
    Write,
    /// Nothing until then, unless something arrives: more is gathered, or the disk is full.
    Wait(Moment),
    /// Nothing, until something arrives or the append in flight is done.
    Rest,
    Stop,
}

/// One append after the other, and never two at once.
#[derive(Debug)]
pub struct Commit {
    disk: DiskState,
    /// The position of the next append.
    next_position: Position,
    /// The position of the last durable append.
    durable: Position,
    /// What was decided and is not written, and since when.
    drafted: Option<(DraftSize, Moment)>,
    /// When something last became durable.
    synced_at: Moment,
    gather: Gather,
}

impl Commit {
    /// Goes on behind the tail of a journal.
    pub fn new(tail: Position) -> Commit {
        Commit {
            disk: DiskState::Idle,
            next_position: tail.next(),
            durable: tail,
            drafted: None,
            synced_at: Moment::default(),
            gather: Gather::default(),
        }
    }

    pub fn disk(&self) -> &DiskState {
        &self.disk
    }

    /// The position of what is being decided.
    pub fn next_position(&self) -> Position {
        self.next_position
    }

    /// The position of the last append that is durable.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Whether an append was written whose outcome is not known.
    pub fn is_in_flight(&self) -> bool {
        matches!(self.disk, DiskState::InFlight { .. } | DiskState::Unknown { .. })
    }

    /// Whether nothing is written any more. Then nothing is decided either: it could rest on what was lost.
    pub fn is_stopped(&self) -> bool {
        matches!(self.disk, DiskState::Stopped(_))
    }

    /// Whether what was decided waits for room.
    pub fn is_full(&self) -> bool {
        matches!(self.disk, DiskState::Full { .. })
    }

    /// Whether everything that was decided is durable.
    pub fn is_at_rest(&self) -> bool {
        self.drafted.is_none() && !self.is_in_flight()
    }

    /// When something last became durable.
    pub fn last_synced(&self) -> Moment {
        self.synced_at
    }

    /// When the owner looks for what others have decided though nobody has called it.
    pub fn look_at(&self, now: Moment) -> Option<Moment> {
        self.gather.look_at(now)
    }

    /// A thread of connections has decided all that it has read. Until when it may pause before it reads more, if it may;
    /// and perhaps this was what the next append has waited for: see [`Commit::next`].
    pub fn may_pause_until(&mut self, now: Moment) -> Option<Moment> {
        let drafted = self.drafted.map(|(drafted, _)| drafted);
        match self.disk {
            DiskState::Idle => self.gather.may_pause_until(drafted, None, now),
            DiskState::InFlight { since, .. } => self.gather.may_pause_until(drafted, Some(since), now),
            DiskState::Unknown { .. } | DiskState::Full { .. } | DiskState::Stopped(_) => None,
        }
    }

    /// A thread of connections has nothing left to decide.
    pub fn rested(&mut self) {
        self.gather.rested();
    }

    /// Something was decided: so much is not written now.
    pub fn decided(&mut self, drafted: Option<DraftSize>, now: Moment) {
        let before = self.drafted.take();
        let Some(drafted) = drafted else { return };
        let is_more = before.is_none_or(|(before, _)| before.records < drafted.records);
        if is_more && drafted.is_awaited {
            self.gather.arrived(self.is_in_flight());
        }
        let since = match before {
            Some((before, since)) if before.is_awaited || !drafted.is_awaited => since,
            // It is new, or nobody has waited for it until now.
            _ => now,
        };
        self.drafted = Some((drafted, since));
    }

    /// The one question: what is to happen now.
    pub fn next(&self, now: Moment) -> Next {
        match (&self.disk, &self.drafted) {
            (DiskState::Stopped(_), _) => Next::Stop,
            (DiskState::InFlight { .. } | DiskState::Unknown { .. }, _)
            | (DiskState::Idle | DiskState::Full { .. }, None) => Next::Rest,
            (DiskState::Full { retry }, Some(_)) => at(*retry, now),
            (DiskState::Idle, Some((drafted, since))) => at(self.gather.write_at(*drafted, *since), now),
        }
    }

    /// What was decided was written at this position; its outcome is not known.
    pub fn written(&mut self, now: Moment) -> Position {
        assert!(
            matches!(self.disk, DiskState::Idle | DiskState::Full { .. }),
            "one append at a time: {:?}",
            self.disk
        );
        let position = self.next_position;
        self.drafted = None;
        self.gather.written();
        self.disk = DiskState::InFlight { position, since: now };
        self.next_position = position.next();
        position
    }

    /// There is no room for what was decided. Nothing was written and nobody was told: it is tried again later.
    pub fn full(&mut self, now: Moment) {
        assert!(
            matches!(self.disk, DiskState::Idle | DiskState::Full { .. }),
            "nothing was to be written: {:?}",
            self.disk
        );
        let retry = if is_planted(Bug::FullDiskForgotten) { Moment(u64::MAX) } else { now + FULL_RETRY };
        self.disk = DiskState::Full { retry };
    }

    /// The append in flight is durable.
    pub fn synced(&mut self, now: Moment) -> Position {
        let position = self.in_flight().expect("an append is in flight");
        if let DiskState::InFlight { since, .. } = self.disk {
            self.gather.synced(since, now);
        }
        self.disk = DiskState::Idle;
        self.synced_at = now;
        self.durable = position;
        position
    }

    /// Nobody can say whether the append in flight was kept. Nothing but its repetition may be written until somebody can.
    pub fn unknown(&mut self) -> Position {
        let position = self.in_flight().expect("an append is in flight");
        self.disk = DiskState::Unknown { position };
        position
    }

    /// It was not kept, and was written again.
    pub fn repeated(&mut self, now: Moment) {
        let DiskState::Unknown { position } = self.disk else {
            panic!("nothing is unknown: {:?}", self.disk)
        };
        self.disk = DiskState::InFlight { position, since: now };
    }

    /// Nothing is written any more. The first reason stays: later ones follow from it.
    pub fn stop(&mut self, why: Stop) {
        if !matches!(self.disk, DiskState::Stopped(_)) {
            self.disk = DiskState::Stopped(why);
        }
    }

    fn in_flight(&self) -> Option<Position> {
        match self.disk {
            DiskState::InFlight { position, .. } | DiskState::Unknown { position } => Some(position),
            DiskState::Idle | DiskState::Full { .. } | DiskState::Stopped(_) => None,
        }
    }
}

fn at(moment: Moment, now: Moment) -> Next {
    if moment <= now { Next::Write } else { Next::Wait(moment) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const AWAITED: Option<DraftSize> = Some(DraftSize { records: 1, is_awaited: true, is_full: false });
    const START: Moment = Moment(1_000_000);

    /// A machine with something to write.
    fn drafted() -> Commit {
        let mut commit = Commit::new(Position(7));
        assert_eq!(commit.next(START), Next::Rest);
        commit.decided(AWAITED, START);
        commit
    }

    #[test]
    fn one_append_after_the_other() {
        let mut commit = drafted();
        assert_eq!(commit.next(START), Next::Write);
        assert_eq!((commit.written(START), commit.next_position()), (Position(8), Position(9)));
        commit.decided(AWAITED, START);
        assert_eq!((commit.next(START), commit.durable()), (Next::Rest, Position(7)), "one is in flight");
        assert_eq!(commit.synced(START), Position(8));
        assert_eq!(commit.durable(), Position(8));
        assert_eq!(commit.next(START + Duration::from_secs(1)), Next::Write);
    }

    #[test]
    #[should_panic(expected = "one append at a time")]
    fn a_second_append_in_flight_is_a_bug() {
        let mut commit = drafted();
        commit.written(START);
        commit.decided(AWAITED, START);
        commit.written(START);
    }

    #[test]
    fn what_finds_no_room_is_tried_again_later_and_not_before() {
        let mut commit = drafted();
        commit.full(START);
        assert_eq!(commit.next(START), Next::Wait(START + FULL_RETRY));
        commit.decided(AWAITED, START + Duration::from_millis(1));
        assert!(commit.is_full() && !commit.is_in_flight());
        let later = START + FULL_RETRY;
        assert_eq!(commit.next(later), Next::Write);
        commit.full(later);
        assert_eq!(commit.next(later), Next::Wait(later + FULL_RETRY));
        assert_eq!(commit.written(later + FULL_RETRY), Position(8));
        commit.synced(later + FULL_RETRY);
        assert_eq!(commit.disk(), &DiskState::Idle);
    }

    #[test]
    fn while_an_outcome_is_unknown_nothing_is_written_but_the_same_again() {
        let mut commit = drafted();
        commit.written(START);
        commit.decided(AWAITED, START);
        assert_eq!(commit.unknown(), Position(8));
        assert_eq!((commit.next(START), commit.durable()), (Next::Rest, Position(7)));
        commit.repeated(START);
        assert_eq!(commit.unknown(), Position(8));
        assert_eq!((commit.synced(START), commit.next_position()), (Position(8), Position(9)));
    }

    #[test]
    fn a_stopped_machine_writes_nothing_and_keeps_its_reason() {
        let mut commit = drafted();
        commit.stop(Stop::Fenced);
        commit.stop(Stop::Ended);
        assert_eq!((commit.next(START), commit.disk()), (Next::Stop, &DiskState::Stopped(Stop::Fenced)));
    }
}
