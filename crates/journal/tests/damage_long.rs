//! A segment of 1 MiB cut at every byte, and single bits flipped anywhere in it. The disk is changed in passing, as it is
//! read, so that a hundred thousand damages take no copies. `OTOBUS_TESTS=long` runs them all.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{verify, write_up_to};
use otobus_journal::disk::{Call, Disk, Memory, Watch, Watched};
use otobus_journal::{Epoch, Error, Filling, Flaw, Journal, Local, Options, Position};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEGMENT_BYTES: u32 = 1024 * 1024;
const NAME: &str = "0000000000000001.segment";
const WORKERS: u64 = 2;

fn is_long() -> bool {
    std::env::var_os("OTOBUS_TESTS").is_some_and(|tests| tests == "long")
}

fn options() -> Options {
    Options {
        filling: Filling::Never,
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        reserve_segments: 0,
        ..Options::new(5)
    }
}

/// What is wrong with the segment; `u64::MAX` where nothing is.
#[derive(Debug)]
struct Damage {
    end: AtomicU64,
    bit: AtomicU64,
}

impl Damage {
    /// The disk, seen through the damage.
    fn on(memory: &Memory) -> (Arc<dyn Disk>, Arc<Damage>) {
        let none = || AtomicU64::new(u64::MAX);
        let damage = Arc::new(Damage { end: none(), bit: none() });
        (Arc::new(Watched::new(Arc::new(memory.clone()), damage.clone())), damage)
    }
}

impl Watch for Damage {
    fn before(&self, call: Call<'_>) -> io::Result<()> {
        match call {
            Call::Write { name: NAME, .. } => Err(io::Error::other("opening and reading write nothing")),
            _ => Ok(()),
        }
    }

    fn change_read(&self, name: &str, offset: u64, found: &mut [u8]) -> usize {
        if name != NAME {
            return found.len();
        }
        let count = found.len().min(self.end.load(Ordering::Relaxed).saturating_sub(offset) as usize);
        let bit = self.bit.load(Ordering::Relaxed);
        if let Some(byte) = (bit / 8).checked_sub(offset).and_then(|at| found[..count].get_mut(at as usize)) {
            *byte ^= 1 << (bit % 8);
        }
        count
    }

    fn change_length(&self, name: &str, length: u64) -> u64 {
        if name == NAME { length.min(self.end.load(Ordering::Relaxed)) } else { length }
    }
}

/// A journal in one segment, which is nearly full. Returns its last batch.
fn healthy(is_sealed: bool) -> (Memory, Position) {
    let memory = Memory::new();
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    while memory.list().unwrap().iter().filter(|name| name.ends_with(".segment")).count() == 1 {
        let last = journal.tail().next();
        write_up_to(&mut journal, last);
    }
    // One batch too many, which is in a segment of its own: made again without it.
    let last = Position(journal.tail().0 - 1);
    let memory = Memory::new();
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(last.0 - 1));
    journal.seal().unwrap();
    write_up_to(&mut journal, last);
    if is_sealed {
        journal.seal().unwrap();
    }
    (memory, last)
}

/// Opens and reads everything; the tail that was found, or the error.
fn tail_of(disk: &Arc<dyn Disk>) -> Result<Position, Error> {
    let journal = Local::open(disk.clone(), options())?;
    verify(&journal, Position(1))?;
    Ok(journal.tail())
}

#[test]
fn a_segment_cut_at_any_byte_is_refused_at_that_byte() {
    // R7
    let (memory, last) = healthy(true);
    let (disk, damage) = Damage::on(&memory);
    assert_eq!(tail_of(&disk).unwrap(), last);
    let stride = if is_long() { 1 } else { 53 };
    let mut cuts = 0;
    for end in (0..u64::from(SEGMENT_BYTES)).step_by(stride) {
        damage.end.store(end, Ordering::Relaxed);
        let error = tail_of(&disk).unwrap_err();
        let Error::Corrupt { file, offset, .. } = &error else { panic!("cut at {end}: {error}") };
        assert!(file.ends_with(NAME) && *offset == end, "cut at {end}: {error}");
        assert_eq!(error.flaw(), Some(Flaw::FileEnd), "cut at {end}: {error}");
        cuts += 1;
    }
    println!("{cuts} cuts of a segment of {SEGMENT_BYTES} bytes, each refused at its byte");
}

/// Where frames begin in a healthy segment: at each multiple of eight where its incarnation stands.
fn frame_starts(content: &[u8]) -> Vec<u64> {
    let is_frame = |at: &usize| content[*at..].starts_with(&content[24..32]);
    (4096..content.len() - 8).step_by(8).filter(is_frame).map(|at| at as u64).collect()
}

/// Whether an error names a segment, and a place in the damaged frame that is not behind the damaged byte.
fn names_the_byte(error: &Error, name: &str, starts: &[u64], at: u64) -> bool {
    let Error::Corrupt { file, offset, .. } = error else { return false };
    let frame = starts.iter().copied().rfind(|start| *start <= at).unwrap_or(0);
    file.ends_with(name) && (frame..=at).contains(offset)
}

/// What came of flips.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    harmless: u64,
    cut: u64,
}

fn flip(seed: u64, count: u64, is_sealed: bool) -> Tally {
    let (memory, last) = healthy(is_sealed);
    let starts = frame_starts(&memory.content(NAME).unwrap());
    let (disk, damage) = Damage::on(&memory);
    let mut tally = Tally::default();
    let mut state = seed;
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bit = (state >> 20) % (u64::from(SEGMENT_BYTES) * 8);
        damage.bit.store(bit, Ordering::Relaxed);
        match tail_of(&disk) {
            Err(error) if names_the_byte(&error, NAME, &starts, bit / 8) => tally.refused += 1,
            Err(other) => panic!("bit {bit}: {other}"),
            // `verify` compares every byte of every record and body with what was written.
            Ok(tail) if tail == last => tally.harmless += 1,
            Ok(tail) => {
                assert!(!is_sealed && tail.0 == last.0 - 1, "bit {bit} cut to {tail:?}");
                tally.cut += 1;
            }
        }
    }
    tally
}

#[test]
fn a_flipped_bit_is_refused_or_harmless_or_cuts_the_unsealed_last_batch() {
    // R8
    let each = if is_long() { 100_000 } else { 400 } / (2 * WORKERS);
    let mut all = Tally::default();
    for is_sealed in [true, false] {
        let tallies: Vec<Tally> = std::thread::scope(|scope| {
            let run = |worker| scope.spawn(move || flip(worker * 77 + u64::from(is_sealed), each, is_sealed));
            let workers: Vec<_> = (1..=WORKERS).map(run).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for Tally { refused, harmless, cut } in tallies {
            all.refused += refused;
            all.harmless += harmless;
            all.cut += cut;
        }
    }
    let Tally { refused, harmless, cut } = all;
    println!(
        "{} flips: {refused} refused, {harmless} in bytes that mean nothing, {cut} cut the last batch",
        refused + harmless + cut
    );
    assert!(refused > harmless, "most bytes mean something");
}
