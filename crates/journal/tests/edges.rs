//! Edges that a bug could hide behind: what a cut, a change of settings or a stop leaves in memory.

#![allow(clippy::unwrap_used)]
use otobus_journal::conformance::{put_snapshot, sample, write_up_to};
use otobus_journal::disk::{Disk, Fault, Faulty, Memory};
use otobus_journal::{BODY_PREFIX_BYTES, BodyId, Filling, Journal, Local, Options, Outcome, Position};
use std::sync::Arc;

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (10 * 1024, 8 * 1024);
    Options { filling: Filling::Never, segment_bytes, first_segment_bytes, ..Options::new(5) }
}
fn open(disk: &Memory, options: &Options) -> Local {
    Local::open(Arc::new(disk.clone()), options.clone()).unwrap()
}
fn fence(journal: &mut Local) {
    let epoch = journal.epoch().next();
    journal.fence(1, epoch).unwrap();
}

#[test]
fn bodies_written_behind_a_cut_are_found_before_anything_is_replayed() {
    let options = Options { first_segment_bytes: 256 * 1024, ..options() };
    let mut torn = 0;
    for last in 5..15 {
        let disk = Memory::new();
        let mut journal = open(&disk, &options);
        fence(&mut journal);
        write_up_to(&mut journal, Position(last));
        drop(journal);
        let name = disk.list().unwrap().into_iter().find(|name| name.ends_with(".segment")).unwrap();
        disk.damage(&name, |bytes| {
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes[used] ^= 1;
        });
        let mut journal = open(&disk, &options);
        if journal.tail() == Position(last) || sample(Position(last)).pieces.is_empty() {
            continue;
        }
        torn += 1;
        fence(&mut journal);
        let next = journal.next_body();
        let mut draft = sample(Position(last + 1));
        draft.push_body(b"another");
        let at = journal.tail().next();
        assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
        for (n, piece) in draft.pieces.iter().enumerate() {
            let place = journal.place(BodyId(next.0 + n as u64)).unwrap();
            assert_eq!(place.read().unwrap(), &piece[BODY_PREFIX_BYTES..], "last {last}, body {n}");
        }
    }
    assert!(torn > 3, "{torn}");
}

#[test]
fn a_spare_of_another_size_is_not_used() {
    for segment_bytes in [40 * 1024, 6 * 1024] {
        let disk = Memory::new();
        let mut journal = open(&disk, &options());
        fence(&mut journal);
        write_up_to(&mut journal, Position(40));
        put_snapshot(&mut journal, Position(39));
        put_snapshot(&mut journal, Position(40));
        journal.trim(Position(40)).unwrap();
        drop(journal);
        let before = disk.list().unwrap();
        assert!(before.iter().any(|name| name.starts_with("spare")), "{before:?}");
        let other = Options { segment_bytes, ..options() };
        let mut journal = open(&disk, &other);
        fence(&mut journal);
        let last = Position(journal.tail().0 + 60);
        write_up_to(&mut journal, last);
        let is_new = |name: &String| name.ends_with(".segment") && !before.contains(name);
        let made: Vec<_> = disk.list().unwrap().into_iter().filter(is_new).collect();
        assert!(!made.is_empty());
        for name in made {
            let length = disk.open(&name).unwrap().length().unwrap();
            assert_ne!(length, u64::from(options().segment_bytes), "{name} was the spare");
        }
    }
}

#[test]
fn a_batch_in_flight_is_not_committed_once_the_journal_has_stopped() {
    let memory = Memory::new();
    let disk = Arc::new(Faulty::new(Arc::new(memory), Fault::Eio, u64::MAX));
    let mut journal = Local::open(disk.clone(), options()).unwrap();
    fence(&mut journal);
    write_up_to(&mut journal, Position(2));
    let snapshots = journal.snapshots();
    let ticket = journal.append(&sample(Position(3)), Position(3)).unwrap();
    disk.fail_in(2);
    assert!(snapshots.put(Position(2), &mut |out| out.write_all(b"content")).is_err());
    assert!(matches!(ticket.wait(), Outcome::Failed(_)));
}
