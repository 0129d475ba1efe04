//! One owner at a time, and what it may believe: a zombie writes nothing, an unknown outcome can be cleared up, and a
//! failure is final.

use super::{Harness, must_verify, open, sample, write_up_to};
use crate::error::Error;
use crate::journal::{Epoch, Journal, Position, Resolution};
use crate::ticket::Outcome;
use crate::unsure::{Unsure, Verdict};

pub(super) fn lower_epoch(harness: &dyn Harness) {
    let mut journal = harness.open().expect("the journal opens");
    journal.fence(1, Epoch(5)).expect("any epoch may be the first");
    write_up_to(&mut *journal, Position(2));
    for epoch in [Epoch(0), Epoch(4), Epoch(5)] {
        assert!(matches!(journal.fence(2, epoch), Err(Error::Fenced { .. })), "{epoch:?}");
    }
    drop(journal);
    let mut journal = harness.open().expect("the journal opens");
    assert_eq!(journal.epoch(), Epoch(5));
    assert!(matches!(journal.fence(2, Epoch(5)), Err(Error::Fenced { .. })));
    assert_eq!(journal.fence(2, Epoch(9)).expect("a higher epoch may fence"), Position(2));
}

pub(super) fn second_writer(harness: &dyn Harness) {
    let mut zombie = open(harness);
    write_up_to(&mut *zombie, Position(2));
    if !zombie.describe().is_shared {
        assert!(matches!(harness.open(), Err(Error::Locked { .. })), "one process at a time");
        return;
    }
    let mut successor = open(harness);
    match zombie.append(&sample(Position(3)), Position(3)) {
        Ok(ticket) => assert!(matches!(ticket.wait(), Outcome::Fenced)),
        Err(error) => assert!(matches!(error, Error::Fenced { .. })),
    }
    write_up_to(&mut *successor, Position(4));
    must_verify(&*successor, Position(1));
    // Whatever it tries: what the successor has written is what there is.
    assert_eq!(zombie.resolve(Position(3)).expect("the outcome can be asked for"), Resolution::Foreign);
    assert!(matches!(zombie.seal(), Err(Error::Fenced { .. })));
    assert!(matches!(zombie.trim(Position(2)), Err(Error::Fenced { .. })));
    let late = zombie.epoch();
    assert!(matches!(zombie.fence(1, late), Err(Error::Fenced { .. })));
    drop(zombie);
    write_up_to(&mut *successor, Position(6));
    drop(successor);
    let again = open(harness);
    assert_eq!(again.tail(), Position(6));
    must_verify(&*again, Position(1));
}

pub(super) fn unknown_outcome(harness: &dyn Harness) {
    let verdict_at = |at: Position| match at.0 % 3 {
        0 => Verdict::LoseRequest,
        1 => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    };
    // Only the first try of each position is in danger.
    let mut judged = Position(0);
    let judge = move |at: Position| {
        let is_first = at > judged;
        judged = at;
        if is_first { verdict_at(at) } else { Verdict::Pass }
    };
    let mut journal = Unsure::new(open(harness), judge);
    while journal.tail() < Position(24) {
        let at = journal.tail().next();
        let first_body = journal.next_body();
        match journal.append(&sample(at), at).expect("an append is taken").wait() {
            Outcome::Committed => continue,
            Outcome::Unknown => assert_eq!((journal.tail().next(), journal.next_body()), (at, first_body)),
            other => panic!("{other:?}"),
        }
        if at.0.is_multiple_of(2) {
            // The identical append may be repeated, and its answer may get lost as well.
            let repeated = journal.append(&sample(at), at).expect("the append may be repeated").wait();
            assert!(matches!(repeated, Outcome::Committed | Outcome::Unknown), "{repeated:?}");
            continue;
        }
        let resolved = journal.resolve(at).expect("the outcome can be asked for");
        let known = if resolved == Resolution::Committed { at } else { Position(at.0 - 1) };
        assert_eq!(journal.tail(), known, "{resolved:?}");
        assert!(resolved != Resolution::Foreign);
        assert!(verdict_at(at) != Verdict::LoseRequest || resolved == Resolution::Absent, "{at:?}");
    }
    must_verify(&journal, Position(1));
}

pub(super) fn failure_is_final(harness: &dyn Harness) {
    for nth in 1..=4 {
        let mut journal = open(harness);
        let before = Position(journal.tail().0 + 3);
        write_up_to(&mut *journal, before);
        if !harness.fail(nth) {
            println!("conformance: this medium does not fail");
            return;
        }
        // One of the next appends meets the failure.
        let mut last = before;
        let failed = loop {
            let at = last.next();
            assert!(at.0 < before.0 + 6, "call {nth} did not fail");
            match journal.append(&sample(at), at).map(|ticket| ticket.wait()) {
                Ok(Outcome::Committed) => last = at,
                Ok(Outcome::Failed(error)) | Err(error) => break error,
                Ok(other) => panic!("{other:?}"),
            }
        };
        assert!(matches!(failed, Error::Io { .. }), "{failed}");
        let (at, epoch) = (journal.tail().next(), journal.epoch().next());
        let stopped = |error: Option<Error>| matches!(error, Some(Error::Stopped { .. }));
        assert!(stopped(journal.append(&sample(at), at).err()), "an append after the failure");
        assert!(stopped(journal.seal().err()) && stopped(journal.trim(Position(1)).err()));
        assert!(stopped(journal.fence(9, epoch).err()));
        drop(journal);
        // The last one may be there or not, whole; everything before it is.
        let journal = open(harness);
        assert!((last..=last.next()).contains(&journal.tail()), "{last:?} became {:?}", journal.tail());
        must_verify(&*journal, Position(1));
    }
}
