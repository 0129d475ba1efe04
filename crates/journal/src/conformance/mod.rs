//! What every journal must do, as checks that any implementation can run.
//!
//! Each check begins with a journal of its own. What a batch contains follows from its position alone
//! ([`sample`]), so a reader can judge every byte without being told what was written. An implementation brings a
//! [`Harness`]: how to open it, how it is killed, and how its medium is damaged ([`Damage`]).

mod damage;
mod late;
mod medium;
mod order;
mod owner;

pub use medium::{damage_log, damage_segments};

use crate::distant::Wire;
use crate::draft::Draft;
use crate::error::Error;
use crate::hash::mix;
use crate::journal::{BodyId, Journal, Position, Resolution};
use crate::ticket::Outcome;

/// One journal that can be opened again and again.
pub trait Harness {
    /// Opens it as another process would; a first time, or after the one before is gone.
    fn open(&self) -> Result<Box<dyn Journal>, Error>;

    /// Ends the process, and the machine if the journal promises to survive that, without farewell.
    fn kill(&self, journal: Box<dyn Journal>) {
        drop(journal);
    }

    /// What appends and their answers travel over, if they do and the harness can hold them up.
    fn wire(&self) -> Option<Wire> {
        None
    }

    /// Damages what is stored, while nobody has it open.
    fn damage(&self, damage: Damage);

    /// Lets the medium fail at its `nth` call from now on, once. Returns whether it can.
    fn fail(&self, nth: u64) -> bool {
        let _ = nth;
        false
    }
}

/// What can happen to a medium. All but [`Damage::Torn`] undo themselves when done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The batch was written in part.
    Torn(Position),
    /// A bit of the batch itself is another one.
    Flip(Position),
    /// A bit of its first body is another one.
    FlipBody(Position),
    /// It is whole, with all checksums right, and continues another batch than the one before it.
    Rechain(Position),
    /// It is whole, with all checksums right, and has another position.
    Reposition(Position),
    /// It is whole, with all checksums right, and of an epoch that was over.
    Reepoch(Position),
    /// It is whole, with all checksums right, and its bodies have other ids.
    Rebody(Position),
    /// It is whole, with all checksums right, and its table of bodies contradicts their length.
    Retable(Position),
    /// A bit of a snapshot's content is another one.
    FlipSnapshot(Position),
}

type Check = fn(&dyn Harness);

/// Runs every check, each on a journal that `make` provides.
pub fn check_all(make: &dyn Fn() -> Box<dyn Harness>) {
    let checks: [(&str, Check); 24] = [
        ("batches come back in order and whole", order::batches_come_back),
        ("an append without its wait is whole or absent", order::unfinished_append),
        ("what was committed survives a kill", order::killed_and_opened_again),
        ("reading starts where it is told", order::reading_from),
        ("a seal takes no position", order::seals),
        ("a batch above the limit is refused and nothing else", order::too_large),
        ("snapshots come back and two are kept", order::snapshots),
        ("trimming keeps what a snapshot needs", order::trimming),
        ("a lower or equal epoch is refused", owner::lower_epoch),
        ("a second writer is kept out or takes over", owner::second_writer),
        ("an unknown outcome can be resolved or repeated", owner::unknown_outcome),
        ("an answer may come late", late::late_answer),
        ("a request that was resolved as absent never arrives", late::late_request),
        ("an append that arrives twice is there once", late::repeated_request),
        ("an append that is overtaken by its own repetition is there once", late::overtaken_request),
        ("a request of an owner that is over is refused whenever it arrives", late::fenced_request),
        ("a failure is final until the next start", owner::failure_is_final),
        ("a torn last batch is cut and the journal goes on", damage::torn_tail),
        ("a torn batch before a seal is damage", damage::torn_before_a_seal),
        ("damage in the middle is refused and nothing is lost by it", damage::corrupted_middle),
        ("a damaged body is refused and its neighbours are not", damage::corrupted_body),
        ("a batch that continues another one breaks the chain", damage::broken_chain),
        ("a last batch with a wrong field is refused by the check for it", damage::wrong_field),
        ("a damaged snapshot is refused and the older one serves", damage::corrupted_snapshot),
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
        let draft = sample(journal.tail().next());
        append_surely(journal, &draft);
    }
}

/// Appends one batch, as an owner does whose answers may get lost: what is not known is asked for, and what is not there is
/// written again.
pub fn append_surely(journal: &mut dyn Journal, draft: &Draft) {
    let at = journal.tail().next();
    loop {
        match journal.append(draft, at).expect("an append is taken").wait() {
            Outcome::Committed => return,
            Outcome::Unknown => {}
            other => panic!("append {at:?}: {other:?}"),
        }
        match journal.resolve(at).expect("the outcome can be asked for") {
            Resolution::Committed => return,
            Resolution::Absent => {}
            Resolution::Foreign => panic!("somebody else wrote {at:?}"),
        }
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
