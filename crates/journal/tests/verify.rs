//! Verifying finds every damage, with its file, and changes nothing.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{put_snapshot, write_up_to};
use otobus_journal::disk::{Disk, Memory};
use otobus_journal::{
    Batch, Counts, Durability, Epoch, Error, Filling, Inspector, Journal, Local, Options, Position,
};
use std::io;
use std::sync::Arc;

#[derive(Default)]
struct Noted {
    damage: Vec<Error>,
    batches: u64,
}

impl Inspector for Noted {
    fn batch(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        self.batches += 1;
        assert!(batch.position.0 > 0);
        Ok(())
    }

    fn snapshot(&mut self, _: Position, _: &mut dyn io::Read) -> Result<(), Error> {
        Ok(())
    }

    fn damage(&mut self, error: Error) {
        self.damage.push(error);
    }
}

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (10 * 1024, 8 * 1024);
    Options { filling: Filling::Never, segment_bytes, first_segment_bytes, ..Options::new(5) }
}

/// A trimmed journal of several segments with two snapshots, sealed.
fn healthy() -> Memory {
    let disk = Memory::new();
    let mut journal = Local::open(Arc::new(disk.clone()), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(20));
    put_snapshot(&mut journal, Position(8));
    put_snapshot(&mut journal, Position(12));
    journal.trim(Position(9)).unwrap();
    journal.seal().unwrap();
    disk
}

fn verify(disk: &Memory) -> (Counts, Noted) {
    let mut noted = Noted::default();
    let counts = Local::verify(Arc::new(disk.clone()), 0, &mut noted).unwrap();
    (counts, noted)
}

fn contents(disk: &Memory) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.content(&name).unwrap())).collect()
}

fn names(error: &Error) -> &str {
    match error {
        Error::Corrupt { file, .. }
        | Error::NewerFormat { file, .. }
        | Error::WrongPartition { file, .. } => file,
        other => panic!("{other}"),
    }
}

#[test]
fn a_healthy_directory_is_found_healthy_and_left_alone() {
    let disk = healthy();
    let before = contents(&disk);
    let (counts, noted) = verify(&disk);
    assert!(noted.damage.is_empty(), "{:?}", noted.damage);
    assert!(counts.segments >= 2 && counts.snapshots == 2 && counts.bodies > 10, "{counts:?}");
    assert_eq!(counts.batches, noted.batches);
    assert_eq!(contents(&disk), before);
}

#[test]
fn a_directory_in_use_is_refused() {
    let disk = healthy();
    let _holder = Local::open(Arc::new(disk.clone()), options()).unwrap();
    let refused = Local::verify(Arc::new(disk), 0, &mut Noted::default());
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
}

#[test]
fn a_segment_that_is_gone_from_either_end_is_told() {
    let disk = healthy();
    let names_of = |disk: &Memory| -> Vec<String> {
        disk.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).collect()
    };
    let segments = names_of(&disk);
    for name in [segments.first().unwrap(), segments.last().unwrap()] {
        let image = disk.crash_image(1);
        image.remove(name).unwrap();
        let (_, noted) = verify(&image);
        assert!(noted.damage.iter().any(|error| names(error).ends_with(name)), "{name}: {:?}", noted.damage);
    }
    segments.iter().for_each(|name| disk.remove(name).unwrap());
    assert!(!verify(&disk).1.damage.is_empty(), "nothing is left");
}

#[test]
fn damage_before_a_seal_is_told_also_of_what_was_not_synced_at_once() {
    let relaxed = Options {
        durability: Durability::Os,
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        ..options()
    };
    let disk = Memory::new();
    let mut journal = Local::open(Arc::new(disk.clone()), relaxed).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(20));
    journal.seal().unwrap();
    drop(journal);
    let name = "0000000000000001.segment";
    // The time in the head of the first batch, which follows the fence of 88 bytes.
    disk.damage(name, |bytes| bytes[4096 + 88 + 32] ^= 1);
    let (_, noted) = verify(&disk);
    assert!(noted.damage.iter().any(|error| names(error).ends_with(name)), "{:?}", noted.damage);
}

/// Gives a segment another ordinal, in its name and its header.
fn renumber(disk: &Memory, name: &str, ordinal: u64) {
    let other = format!("{ordinal:016}.segment");
    disk.rename(name, &other).unwrap();
    disk.damage(&other, |bytes| {
        bytes[16..24].copy_from_slice(&ordinal.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    });
}

#[test]
fn a_gap_of_any_size_is_told_at_once() {
    let disk = healthy();
    let last = disk.list().unwrap().into_iter().rfind(|name| name.ends_with(".segment")).unwrap();
    renumber(&disk, &last, 1 << 50);
    let (_, noted) = verify(&disk);
    let gaps: Vec<String> = noted.damage.iter().map(ToString::to_string).collect();
    assert!(gaps.iter().any(|gap| gap.contains("files from this one on are missing")), "{gaps:?}");
    assert!(gaps.len() < 10, "{gaps:?}");
}

#[test]
fn a_segment_that_claims_to_be_the_zeroth_is_damage() {
    let disk = healthy();
    let first = disk.list().unwrap().into_iter().find(|name| name.ends_with(".segment")).unwrap();
    renumber(&disk, &first, 0);
    disk.remove("extent").unwrap();
    let (_, noted) = verify(&disk);
    assert!(noted.damage.iter().any(|error| names(error).contains("0000000000000000")), "{:?}", noted.damage);
    assert!(matches!(Local::open(Arc::new(disk), options()), Err(Error::Corrupt { .. })));
}

#[test]
fn damage_in_two_places_is_told_twice() {
    let disk = healthy();
    let segments: Vec<String> =
        disk.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).collect();
    for name in &segments[..2] {
        disk.damage(name, |bytes| bytes[5000] ^= 1);
    }
    let (_, noted) = verify(&disk);
    for name in &segments[..2] {
        assert!(noted.damage.iter().any(|error| names(error).ends_with(name)), "{name}: {:?}", noted.damage);
    }
}

#[test]
fn a_flipped_byte_anywhere_in_what_is_used_is_found() {
    let disk = healthy();
    let (mut found, mut unused) = (0, 0);
    for (name, content) in contents(&disk) {
        if !name.ends_with(".segment") && !name.ends_with(".snapshot") {
            continue;
        }
        for at in (0..content.len()).step_by(5) {
            let image = disk.crash_image(1);
            image.damage(&name, |bytes| bytes[at] ^= 1 << (at % 8));
            let (_, noted) = verify(&image);
            match noted.damage.first() {
                Some(error) => {
                    assert!(names(error).ends_with(&name), "byte {at} of {name}: {error}");
                    found += 1;
                }
                None => unused += 1,
            }
        }
    }
    assert!(found > 3_000, "{found} found, {unused} unused");
}
