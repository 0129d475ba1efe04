//! Damage: refused where it is, naming it, again and again; nothing is skipped and nothing is deleted, so that a medium
//! that is mended is whole. Only a last batch that nothing seals may be cut, for nobody was told about it.

use super::Damage::{Flip, FlipBody, FlipSnapshot, Rebody, Rechain, Reepoch, Reposition, Retable, Torn};
use super::{Harness, must_verify, open, put_snapshot, sample, verify, verify_snapshot, write_up_to};
use crate::error::{Error, Flaw};
use crate::journal::{BodyId, Position};

const LAST: Position = Position(24);

/// A batch in the middle that has a body with something in it.
fn middle() -> Position {
    let has_body = |at: &u64| sample(Position(*at)).body_lengths.first().is_some_and(|length| *length > 0);
    Position((8..LAST.0 - 4).find(has_body).expect("some sample has a body"))
}

/// Opens and reads everything; what is damaged must be named, and found by the check for it.
fn must_refuse(harness: &dyn Harness, flaws: &[Flaw], damage: super::Damage) {
    let error = harness.open().and_then(|journal| verify(&*journal, Position(1))).err();
    let error = error.unwrap_or_else(|| panic!("{damage:?} is not noticed"));
    let Error::Corrupt { file, what, flaw, .. } = &error else { panic!("damage is refused as {error}") };
    assert!(!file.is_empty() && !what.is_empty(), "{error}");
    assert!(flaws.contains(flaw), "{damage:?} is noticed as {flaw:?}, not as {flaws:?}: {error}");
}

/// A journal up to [`LAST`] that was left without farewell.
fn written(harness: &dyn Harness, is_sealed: bool) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, LAST);
    if is_sealed {
        journal.seal().expect("a journal can be sealed");
    }
    drop(journal);
}

pub(super) fn torn_tail(harness: &dyn Harness) {
    written(harness, false);
    harness.damage(Torn(LAST));
    let mut journal = open(harness);
    assert_eq!(journal.tail().0, LAST.0 - 1, "the torn batch is cut and nothing else");
    must_verify(&*journal, Position(1));
    write_up_to(&mut *journal, Position(LAST.0 + 5));
    drop(journal);
    let journal = open(harness);
    assert_eq!(journal.tail().0, LAST.0 + 5);
    must_verify(&*journal, Position(1));
}

pub(super) fn torn_before_a_seal(harness: &dyn Harness) {
    written(harness, true);
    harness.damage(Torn(LAST));
    for attempt in 1..=2 {
        println!("conformance: attempt {attempt}");
        must_refuse(harness, &[Flaw::FrameChecksum, Flaw::SealedBody, Flaw::BodyChecksum], Torn(LAST));
    }
}

pub(super) fn corrupted_middle(harness: &dyn Harness) {
    written(harness, false);
    refused_until_mended(harness, Flip(middle()), Flaw::FrameChecksum);
}

pub(super) fn broken_chain(harness: &dyn Harness) {
    written(harness, false);
    refused_until_mended(harness, Rechain(middle()), Flaw::FrameChain);
}

/// Nothing follows the damaged batch, so no other check can notice by its successor.
pub(super) fn wrong_field(harness: &dyn Harness) {
    let last =
        Position((LAST.0..).find(|at| !sample(Position(*at)).body_lengths.is_empty()).expect("a body"));
    let mut journal = open(harness);
    write_up_to(&mut *journal, last);
    drop(journal);
    for (damage, flaw) in [
        (Rechain(last), Flaw::FrameChain),
        (Reposition(last), Flaw::FramePosition),
        (Reepoch(last), Flaw::FrameEpoch),
        (Rebody(last), Flaw::FrameBodies),
        (Retable(last), Flaw::FrameTable),
    ] {
        harness.damage(damage);
        must_refuse(harness, &[flaw], damage);
        harness.damage(damage);
    }
    let journal = open(harness);
    assert_eq!(journal.tail(), last, "what was damaged and mended is all there");
    must_verify(&*journal, Position(1));
}

fn refused_until_mended(harness: &dyn Harness, damage: super::Damage, flaw: Flaw) {
    harness.damage(damage);
    for _ in 1..=2 {
        must_refuse(harness, &[flaw], damage);
    }
    harness.damage(damage);
    let journal = open(harness);
    assert_eq!(journal.tail(), LAST, "what was damaged and mended is all there");
    must_verify(&*journal, Position(1));
}

pub(super) fn corrupted_body(harness: &dyn Harness) {
    written(harness, true);
    let first_body =
        (1..middle().0).map(|at| sample(Position(at)).body_lengths.len() as u64).sum::<u64>() + 1;
    let damaged = BodyId(first_body);
    harness.damage(FlipBody(middle()));
    must_refuse(harness, &[Flaw::BodyChecksum, Flaw::SealedBody], FlipBody(middle()));
    if let Ok(journal) = harness.open() {
        for body in (1..journal.next_body().0).map(BodyId) {
            let read = journal.place(body).expect("every body has a place").read();
            let is_refused = matches!(&read, Err(Error::Corrupt { .. }));
            assert!(is_refused == (body == damaged) && (is_refused || read.is_ok()), "{body:?}: {read:?}");
        }
    }
    harness.damage(FlipBody(middle()));
    must_verify(&*open(harness), Position(1));
}

pub(super) fn corrupted_snapshot(harness: &dyn Harness) {
    let has_content = |at: &u64| !sample(Position(*at)).records.is_empty();
    let mut positions = (1..=LAST.0).filter(has_content).map(Position);
    let (older, newer) = (positions.next().expect("one"), positions.next().expect("another"));
    let mut journal = open(harness);
    write_up_to(&mut *journal, LAST);
    put_snapshot(&mut *journal, older);
    put_snapshot(&mut *journal, newer);
    drop(journal);
    harness.damage(FlipSnapshot(newer));
    let journal = open(harness);
    let read = journal.read_snapshot(newer, &mut |_| panic!("damaged content is handed out"));
    let flaw = read.as_ref().err().and_then(Error::flaw);
    assert_eq!(flaw, Some(Flaw::SnapshotChecksum), "{read:?}");
    verify_snapshot(&*journal, older);
    journal.snapshots().set_aside(newer).expect("a damaged snapshot can be set aside");
    let left: Vec<_> = journal.latest_snapshots().expect("snapshots can be listed");
    assert_eq!(left.iter().map(|info| info.position).collect::<Vec<_>>(), [older]);
}
