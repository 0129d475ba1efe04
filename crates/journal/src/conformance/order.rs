//! Order and atomicity: what was committed is there, whole, once, in its place, also after a kill, and what was given up
//! is gone.

use super::{Harness, append_surely, must_verify, open, put_snapshot, sample, verify_snapshot, write_up_to};
use crate::draft::Draft;
use crate::error::Error;
use crate::journal::{BodyId, Position};

pub(super) fn batches_come_back(harness: &dyn Harness) {
    let mut journal = open(harness);
    assert_eq!((journal.tail(), journal.next_body()), (Position(0), BodyId(1)));
    write_up_to(&mut *journal, Position(40));
    must_verify(&*journal, Position(1));
    let next_body = journal.next_body();
    drop(journal);
    let mut journal = open(harness);
    assert_eq!((journal.tail(), journal.next_body()), (Position(40), next_body));
    must_verify(&*journal, Position(1));
    write_up_to(&mut *journal, Position(60));
    drop(journal);
    must_verify(&*open(harness), Position(1));
}

pub(super) fn unfinished_append(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(3));
    let ticket = journal.append(&sample(Position(4)), Position(4)).expect("an append is taken");
    drop(ticket);
    harness.kill(journal);
    let journal = open(harness);
    assert!((Position(3)..=Position(4)).contains(&journal.tail()));
    must_verify(&*journal, Position(1));
}

pub(super) fn reading_from(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(30));
    for from in 0..=31 {
        must_verify(&*journal, Position(from));
    }
    let refused = journal.read(Position(1), &mut |_| Err(Error::Reader("enough".into())));
    assert!(matches!(refused, Err(Error::Reader(_))), "the reader's own error comes back");
}

pub(super) fn seals(harness: &dyn Harness) {
    let mut journal = open(harness);
    journal.seal().expect("an empty journal can be sealed");
    write_up_to(&mut *journal, Position(2));
    journal.seal().expect("a journal can be sealed");
    journal.seal().expect("a sealed journal can be sealed");
    assert_eq!(journal.tail(), Position(2));
    write_up_to(&mut *journal, Position(3));
    journal.seal().expect("a journal can be sealed");
    drop(journal);
    let journal = open(harness);
    assert_eq!(journal.tail(), Position(3));
    must_verify(&*journal, Position(1));
}

pub(super) fn too_large(harness: &dyn Harness) {
    let mut journal = open(harness);
    let limit = journal.describe().max_batch_bytes;
    let mut draft = Draft::default();
    draft.records.resize(limit, 7);
    let excess = journal.batch_bytes(&draft) - limit;
    draft.records.truncate(limit - excess + 1);
    let refused = journal.append(&draft, Position(1));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "one byte above the limit");
    draft.records.pop();
    append_surely(&mut *journal, &draft);
    let mut read = 0;
    let each = &mut |batch: crate::Batch<'_>| {
        read = batch.records.len();
        Ok(())
    };
    journal.read(Position(1), each).expect("a batch at the limit can be read");
    assert_eq!(read, draft.records.len());
}

pub(super) fn killed_and_opened_again(harness: &dyn Harness) {
    let mut journal = open(harness);
    for life in 1..=12 {
        let last = Position(journal.tail().0 + life % 4);
        write_up_to(&mut *journal, last);
        if life % 3 == 0 {
            journal.seal().expect("a journal can be sealed");
        }
        if life % 5 == 0 {
            put_snapshot(&mut *journal, last);
        }
        let next_body = journal.next_body();
        harness.kill(journal);
        journal = open(harness);
        assert_eq!((journal.tail(), journal.next_body()), (last, next_body), "life {life}");
        must_verify(&*journal, Position(1));
    }
}

pub(super) fn snapshots(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(5));
    for at in [1, 2, 5] {
        put_snapshot(&mut *journal, Position(at));
    }
    drop(journal);
    let mut journal = open(harness);
    let latest = journal.latest_snapshots().expect("snapshots can be listed");
    assert_eq!(latest.iter().map(|info| info.position.0).collect::<Vec<_>>(), [5, 2]);
    assert_eq!(latest[0].bytes, sample(Position(5)).records.len() as u64);
    verify_snapshot(&*journal, Position(5));
    verify_snapshot(&*journal, Position(2));
    journal.drop_snapshot(Position(5)).expect("a snapshot can be dropped");
    let refused = journal.read_snapshot(Position(5), &mut |_| Ok(()));
    assert!(matches!(refused, Err(Error::NoSnapshot(Position(5)))));
}

pub(super) fn trimming(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(50));
    journal.trim(Position(50)).expect("trimming can be asked for");
    assert_eq!(journal.first(), Position(1), "nothing goes before there are two snapshots");
    put_snapshot(&mut *journal, Position(30));
    put_snapshot(&mut *journal, Position(45));
    journal.trim(Position(50)).expect("trimming can be asked for");
    let first = journal.first();
    assert!(first <= Position(31), "the older snapshot needs batch 31");
    must_verify(&*journal, first);
    if first > Position(1) {
        assert!(matches!(journal.read(Position(1), &mut |_| Ok(())), Err(Error::Trimmed { .. })));
        assert!(journal.place(BodyId(1)).is_none());
    }
    drop(journal);
    let mut journal = open(harness);
    must_verify(&*journal, first);
    write_up_to(&mut *journal, Position(80));
    must_verify(&*journal, first);
}
