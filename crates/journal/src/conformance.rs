//! What every journal must do, as checks that any implementation can run.
//!
//! Each check begins with a journal of its own. What a batch contains follows from its position alone
//! ([`sample`]), so a reader can judge every byte without being told what was written.

use crate::draft::Draft;
use crate::error::Error;
use crate::hash::mix;
use crate::journal::{BodyId, Epoch, Journal, Position, Resolution};
use crate::ticket::Outcome;
use crate::unsure::{Unsure, Verdict};

/// One journal that can be opened again and again.
pub trait Harness {
    /// Opens it as another process would; a first time, or after the one before was dropped without farewell.
    fn open(&self) -> Result<Box<dyn Journal>, Error>;
}

type Check = fn(&dyn Harness);

/// Runs every check, each on a journal that `make` provides.
pub fn check_all(make: &dyn Fn() -> Box<dyn Harness>) {
    let checks: [(&str, Check); 10] = [
        ("batches come back in order and whole", batches_come_back),
        ("an append without its wait is whole or absent", unfinished_append),
        ("reading starts where it is told", reading_from),
        ("a lower or equal epoch is refused", lower_epoch),
        ("a second writer is kept out or takes over", second_writer),
        ("a seal takes no position", seals),
        ("a batch above the limit is refused and nothing else", too_large),
        ("snapshots come back and two are kept", snapshots),
        ("trimming keeps what a snapshot needs", trimming),
        ("an unknown outcome can be resolved or repeated", unknown_outcome),
    ];
    for (name, check) in checks {
        let harness = make();
        // Names the check in the output of a test that fails.
        println!("conformance: {name}");
        check(&*harness);
    }
}

/// The batch that belongs at a position: none to four bodies of none to 1,500 bytes.
pub fn sample(at: Position) -> Draft {
    let draw = |n: u64, limit: u64| mix(&[at.0, n]) % limit;
    let mut draft = Draft {
        time: at.0 as i64 * 10,
        record_count: draw(0, 9) as u32,
        records: (0..draw(1, 300)).map(|n| draw(n, 256) as u8).collect(),
        ..Draft::default()
    };
    for body in 0..draw(2, 5) {
        let length = draw(100 + body, 1500) as usize;
        draft.push_body(&vec![draw(200 + body, 256) as u8; length]);
    }
    draft
}

/// Opens and takes over.
pub fn open(harness: &dyn Harness) -> Box<dyn Journal> {
    let mut journal = harness.open().expect("the journal opens");
    let epoch = journal.epoch().next();
    journal.fence(1, epoch).expect("a higher epoch may fence");
    journal
}

/// Appends samples up to and including `last`.
pub fn write_up_to(journal: &mut dyn Journal, last: Position) {
    while journal.tail() < last {
        let at = journal.tail().next();
        let ticket = journal.append(&sample(at), at).expect("an append is taken");
        assert!(matches!(ticket.wait(), Outcome::Committed), "append {at:?}");
    }
}

/// Reads everything and compares it, bodies too, with what belongs there. Returns the error of the first part that
/// cannot be read; what can be read and is wrong is a panic.
pub fn verify(journal: &dyn Journal, from: Position) -> Result<(), Error> {
    let mut expected = from.max(Position(1));
    let mut bodies: Vec<(BodyId, Vec<u8>)> = Vec::new();
    journal.read(from, &mut |batch| {
        let draft = sample(expected);
        assert_eq!(batch.position, expected);
        assert_eq!((batch.time, batch.record_count), (draft.time, draft.record_count), "batch {expected:?}");
        assert_eq!(batch.records, draft.records, "batch {expected:?}");
        assert_eq!(batch.body_lengths.iter().collect::<Vec<_>>(), draft.body_lengths, "batch {expected:?}");
        let ids = (batch.first_body.0..).map(BodyId);
        bodies.extend(ids.zip(draft.pieces.iter().map(|piece| piece[crate::BODY_PREFIX_BYTES..].to_vec())));
        expected = expected.next();
        Ok(())
    })?;
    assert_eq!(expected, journal.tail().next(), "reading ends at the tail");
    for (id, content) in bodies {
        let place = journal.place(id).expect("a body of a readable batch has a place");
        assert_eq!(place.read()?, content, "body {id:?}");
    }
    Ok(())
}

fn must_verify(journal: &dyn Journal, from: Position) {
    verify(journal, from).expect("what was committed can be read");
}

fn batches_come_back(harness: &dyn Harness) {
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

fn unfinished_append(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(3));
    let ticket = journal.append(&sample(Position(4)), Position(4)).expect("an append is taken");
    drop(ticket);
    drop(journal);
    let journal = open(harness);
    assert!((Position(3)..=Position(4)).contains(&journal.tail()));
    must_verify(&*journal, Position(1));
}

fn reading_from(harness: &dyn Harness) {
    let mut journal = open(harness);
    write_up_to(&mut *journal, Position(30));
    for from in 0..=31 {
        must_verify(&*journal, Position(from));
    }
    let refused = journal.read(Position(1), &mut |_| Err(Error::Reader("enough".into())));
    assert!(matches!(refused, Err(Error::Reader(_))), "the reader's own error comes back");
}

fn lower_epoch(harness: &dyn Harness) {
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

fn second_writer(harness: &dyn Harness) {
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
}

fn seals(harness: &dyn Harness) {
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

fn too_large(harness: &dyn Harness) {
    let mut journal = open(harness);
    let limit = journal.describe().max_batch_bytes;
    let mut draft = Draft::default();
    draft.records.resize(limit, 7);
    let excess = journal.batch_bytes(&draft) - limit;
    draft.records.truncate(limit - excess + 1);
    let refused = journal.append(&draft, Position(1));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "one byte above the limit");
    draft.records.pop();
    let ticket = journal.append(&draft, Position(1)).expect("a batch at the limit is taken");
    assert!(matches!(ticket.wait(), Outcome::Committed));
    let mut read = 0;
    let each = &mut |batch: crate::Batch<'_>| {
        read = batch.records.len();
        Ok(())
    };
    journal.read(Position(1), each).expect("a batch at the limit can be read");
    assert_eq!(read, draft.records.len());
}

/// Puts a snapshot whose content follows from its position.
pub fn put_snapshot(journal: &mut dyn Journal, at: Position) {
    write_snapshot(journal, at).expect("a snapshot is taken");
}

/// As [`put_snapshot`], for disks that fail.
pub fn write_snapshot(journal: &mut dyn Journal, at: Position) -> Result<(), Error> {
    let content = sample(at).records;
    let mut write = |to: &mut dyn std::io::Write| {
        // In uneven pieces, as a serialiser would.
        content.chunks(7).try_for_each(|piece| to.write_all(piece))
    };
    journal.put_snapshot(at, &mut write)
}

/// Compares a snapshot with what belongs there.
pub fn verify_snapshot(journal: &dyn Journal, at: Position) {
    let mut content = Vec::new();
    let mut read = |from: &mut dyn std::io::Read| from.read_to_end(&mut content).map(drop);
    journal.read_snapshot(at, &mut read).expect("a snapshot can be read");
    assert_eq!(content, sample(at).records);
}

fn snapshots(harness: &dyn Harness) {
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

fn trimming(harness: &dyn Harness) {
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

fn unknown_outcome(harness: &dyn Harness) {
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
            let ticket = journal.append(&sample(at), at).expect("the identical append may be repeated");
            assert!(matches!(ticket.wait(), Outcome::Committed));
        } else {
            let was_lost = verdict_at(at) == Verdict::LoseRequest;
            let expected = if was_lost { Resolution::Absent } else { Resolution::Committed };
            assert_eq!(journal.resolve(at).expect("the outcome can be asked for"), expected);
        }
    }
    must_verify(&journal, Position(1));
}
