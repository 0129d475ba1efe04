//! Damage of every kind at every place: noticed with file and offset, or harmless, or an unsealed last batch cut.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{put_snapshot, sample, verify, write_up_to};
use otobus_journal::disk::{Disk, Fault, Faulty, Memory};
use otobus_journal::{
    BodyId, Draft, Durability, Epoch, Error, Filling, Flaw, Journal, Local, Options, Outcome, Position,
};
use std::collections::HashSet;
use std::sync::Arc;

const LAST: Position = Position(13);

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (10 * 1024, 8 * 1024);
    Options { filling: Filling::Never, segment_bytes, first_segment_bytes, ..Options::new(5) }
}

fn reopen(disk: &Memory) -> Result<Local, Error> {
    Local::open(Arc::new(disk.clone()), options())
}

/// A healthy journal of several segments, with a seal in the middle and, if asked for, at the end.
fn healthy(is_sealed: bool) -> Memory {
    let disk = Memory::new();
    let mut journal = reopen(&disk).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(LAST.0 - 1));
    journal.seal().unwrap();
    write_up_to(&mut journal, LAST);
    if is_sealed {
        journal.seal().unwrap();
    }
    drop(journal);
    disk
}

fn segments(disk: &Memory) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".segment"));
    names
}

/// Opens and reads everything; the tail that was found, or the error.
fn tail_of(disk: &Memory) -> Result<Position, Error> {
    let journal = reopen(disk)?;
    verify(&journal, Position(1))?;
    Ok(journal.tail())
}

fn names_the_place(error: &Error, name: &str) -> bool {
    match error {
        Error::Corrupt { file, .. } | Error::NewerFormat { file, .. } => file.ends_with(name),
        _ => false,
    }
}

/// Whether an error names the check that must find this.
fn is(error: &Error, flaw: Flaw) -> bool {
    error.flaw() == Some(flaw)
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

/// The bytes that frames occupy in the last segment, found by comparing with the segment's unwritten space.
fn used_bytes(disk: &Memory, name: &str) -> usize {
    let content = disk.content(name).unwrap();
    content.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[test]
fn a_flipped_byte_anywhere_is_refused_or_harmless_or_cuts_the_unsealed_last_batch() {
    let (mut refused, mut cut) = (0, 0);
    let mut flaws = HashSet::new();
    for is_sealed in [true, false] {
        let disk = healthy(is_sealed);
        let names = segments(&disk);
        assert!(names.len() >= 2);
        for name in &names {
            let used = used_bytes(&disk, name);
            let starts = frame_starts(&disk.content(name).unwrap());
            assert!(!starts.is_empty());
            for at in (0..used).step_by(3) {
                let image = disk.crash_image(1);
                image.damage(name, |bytes| bytes[at] ^= 1 << (at % 8));
                match tail_of(&image) {
                    Err(error) => {
                        let is_named = names_the_byte(&error, name, &starts, at as u64);
                        assert!(is_named, "byte {at} of {name}: {error}");
                        flaws.extend(error.flaw());
                        refused += 1;
                    }
                    Ok(LAST) => {}
                    Ok(tail) => {
                        let is_last = !is_sealed && Some(name) == names.last();
                        assert!(is_last && tail.0 == LAST.0 - 1, "byte {at} of {name} cut to {tail:?}");
                        cut += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && cut > 100, "refused {refused}, cut {cut}");
    // Every byte is under a checksum: whatever else is checked is never reached.
    let checksums = [
        Flaw::SegmentBeginning,
        Flaw::SegmentChecksum,
        Flaw::FrameChecksum,
        Flaw::BodyChecksum,
        Flaw::SealedBody,
    ];
    assert_eq!(flaws, HashSet::from(checksums));
}

#[test]
fn a_torn_last_batch_is_cut_at_every_byte_and_the_journal_goes_on() {
    let disk = healthy(false);
    let name = segments(&disk).pop().unwrap();
    let used = used_bytes(&disk, &name);
    let before = {
        // The same journal without its last batch tells where that batch begins.
        let shorter = Memory::new();
        let mut journal = reopen(&shorter).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        write_up_to(&mut journal, Position(LAST.0 - 1));
        journal.seal().unwrap();
        used_bytes(&shorter, &name)
    };
    assert!(used - before > 500, "the last batch is worth tearing");
    for end in before..used {
        let image = disk.crash_image(1);
        image.damage(&name, |bytes| bytes[end..used].fill(0));
        let mut journal = reopen(&image).unwrap();
        if journal.tail() == LAST {
            // Its last bytes were zeros anyway.
            verify(&journal, Position(1)).unwrap();
            continue;
        }
        assert_eq!(journal.tail().0, LAST.0 - 1, "torn at byte {end}");
        let epoch = journal.epoch().next();
        journal.fence(2, epoch).unwrap();
        write_up_to(&mut journal, Position(LAST.0 + 1));
        drop(journal);
        assert_eq!(tail_of(&image).unwrap().0, LAST.0 + 1, "torn at byte {end}");
    }
}

#[test]
fn a_file_that_was_cut_short_anywhere_is_refused_at_its_end() {
    for is_sealed in [true, false] {
        let disk = healthy(is_sealed);
        for name in segments(&disk) {
            let length = disk.content(&name).unwrap().len();
            for end in (0..length).step_by(7) {
                let image = disk.crash_image(1);
                image.damage(&name, |bytes| bytes.truncate(end));
                let error = tail_of(&image).unwrap_err();
                let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
                assert!(file.ends_with(&name) && *offset == end as u64, "cut at {end}: {error}");
                assert!(is(&error, Flaw::FileEnd), "cut at {end}: {error}");
            }
        }
    }
}

#[test]
fn a_missing_segment_is_refused_by_name() {
    let disk = healthy(true);
    let names = segments(&disk);
    assert!(names.len() > 2);
    for name in &names {
        let image = disk.crash_image(1);
        image.remove(name).unwrap();
        let error = tail_of(&image).unwrap_err();
        let is_inner = Some(name) != names.first() && Some(name) != names.last();
        let flaw = if is_inner { Flaw::SegmentGap } else { Flaw::SegmentMissing };
        assert!(names_the_place(&error, name) && is(&error, flaw), "{error}");
    }
}

#[test]
fn a_missing_oldest_segment_is_refused_though_snapshots_contain_its_records() {
    let disk = healthy(true);
    let mut journal = reopen(&disk).unwrap();
    journal.fence(2, Epoch(2)).unwrap();
    put_snapshot(&mut journal, Position(LAST.0 - 1));
    put_snapshot(&mut journal, LAST);
    write_up_to(&mut journal, Position(30));
    journal.trim(Position(2)).unwrap();
    drop(journal);
    let oldest = segments(&disk).remove(0);
    disk.remove(&oldest).unwrap();
    for _ in 0..2 {
        let error = reopen(&disk).unwrap_err();
        assert!(names_the_place(&error, &oldest) && is(&error, Flaw::SegmentMissing), "{error}");
    }
}

#[test]
fn an_emptied_directory_is_refused_while_it_remembers_its_segments() {
    let disk = healthy(true);
    let names = segments(&disk);
    names.iter().for_each(|name| disk.remove(name).unwrap());
    let error = reopen(&disk).unwrap_err();
    assert!(names_the_place(&error, &names[0]) && is(&error, Flaw::SegmentMissing), "{error}");
}

#[test]
fn a_journal_of_a_program_that_kept_no_list_of_segments_opens_and_gets_one() {
    let disk = healthy(true);
    disk.remove("extent").unwrap();
    assert_eq!(tail_of(&disk).unwrap(), LAST);
    assert!(disk.content("extent").is_none(), "opening changes nothing");
    reopen(&disk).unwrap().fence(2, Epoch(2)).unwrap();
    disk.remove(&segments(&disk).pop().unwrap()).unwrap();
    assert!(reopen(&disk).is_err());
}

#[test]
fn a_missing_last_segment_is_noticed_when_a_snapshot_knows_better() {
    let disk = healthy(true);
    let mut journal = reopen(&disk).unwrap();
    put_snapshot(&mut journal, LAST);
    drop(journal);
    let last = segments(&disk).pop().unwrap();
    disk.remove(&last).unwrap();
    assert!(is(&tail_of(&disk).unwrap_err(), Flaw::SegmentMissing));
    // Without the list of segments only the snapshot knows.
    disk.remove("extent").unwrap();
    assert!(is(&tail_of(&disk).unwrap_err(), Flaw::SnapshotAhead));
}

#[test]
fn a_damaged_snapshot_is_refused_and_the_older_one_serves() {
    let disk = healthy(true);
    let mut journal = reopen(&disk).unwrap();
    put_snapshot(&mut journal, Position(3));
    put_snapshot(&mut journal, Position(4));
    let newest = "00000000000000000004.snapshot";
    let whole = disk.content(newest).unwrap();
    for at in 0..whole.len() {
        disk.damage(newest, |bytes| bytes[at] ^= 4);
        let error = journal.read_snapshot(Position(4), &mut |_| Ok(())).unwrap_err();
        let flaw = if at < 32 { Flaw::SnapshotHeader } else { Flaw::SnapshotChecksum };
        assert!(names_the_place(&error, newest) && is(&error, flaw), "byte {at}: {error}");
        disk.damage(newest, |bytes| bytes.truncate(at));
        assert!(journal.read_snapshot(Position(4), &mut |_| Ok(())).is_err(), "cut at {at}");
        disk.damage(newest, |bytes| bytes.clone_from(&whole));
    }
    journal.read_snapshot(Position(4), &mut |_| Ok(())).unwrap();
    journal.read_snapshot(Position(3), &mut |_| Ok(())).unwrap();
}

#[test]
fn data_of_a_newer_format_is_refused_plainly() {
    let disk = healthy(true);
    disk.damage(&segments(&disk)[0], |bytes| {
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    });
    let error = tail_of(&disk).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_journal_of_another_partition_is_refused() {
    let disk = healthy(true);
    let other = Options { partition: 9, ..options() };
    let error = Local::open(Arc::new(disk.clone()), other).unwrap_err();
    assert!(matches!(error, Error::WrongPartition { found: 0, expected: 9, .. }), "{error}");
}

#[test]
fn a_frame_from_another_history_breaks_the_chain() {
    // Two journals that differ in one early batch; the later segment of one is put behind the other.
    let (disk, other) = (healthy(true), Memory::new());
    let mut journal = reopen(&other).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    let mut draft = sample(Position(1));
    draft.time += 1;
    assert!(matches!(journal.append(&draft, Position(1)).unwrap().wait(), Outcome::Committed));
    write_up_to(&mut journal, LAST);
    drop(journal);
    let name = segments(&disk).pop().unwrap();
    let foreign = other.content(&name).unwrap();
    disk.damage(&name, |bytes| *bytes = foreign);
    let error = tail_of(&disk).unwrap_err();
    assert!(is(&error, Flaw::FrameChain), "{error}");
}

#[test]
fn a_recycled_segment_shows_nothing_of_its_former_life() {
    let disk = Memory::new();
    let mut journal = reopen(&disk).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    for n in 1..30 {
        write_up_to(&mut journal, Position(n * 10));
        put_snapshot(&mut journal, Position(n * 10 - 5));
        journal.trim(Position(n * 10)).unwrap();
        // A kill at this instant: what is behind the tail is the file's former life.
        let image = disk.crash_image(n + 1);
        let reopened = reopen(&image).unwrap();
        assert_eq!(reopened.tail(), Position(n * 10));
        verify(&reopened, reopened.first()).unwrap();
    }
    assert!(segments(&disk).len() < 12, "space comes back");
    assert!(disk.content("spare").is_some() || segments(&disk).len() > 1);
}

#[test]
fn a_place_stays_readable_while_its_segment_is_trimmed() {
    let disk = Memory::new();
    let same = Options { first_segment_bytes: options().segment_bytes, ..options() };
    let mut journal = Local::open(Arc::new(disk), same).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(30));
    let place = journal.place(BodyId(1)).unwrap();
    let content = place.read().unwrap();
    put_snapshot(&mut journal, Position(29));
    put_snapshot(&mut journal, Position(30));
    journal.trim(Position(30)).unwrap();
    assert!(journal.place(BodyId(1)).is_none());
    write_up_to(&mut journal, Position(60));
    assert_eq!(place.read().unwrap(), content, "its file was recycled");
}

#[test]
fn a_body_of_a_former_life_does_not_pass_for_the_one_that_was_lost() {
    let disk = Memory::new();
    let mut journal = reopen(&disk).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    let mut draft = Draft::default();
    draft.push_body(b"the body that was written");
    assert!(matches!(journal.append(&draft, Position(1)).unwrap().wait(), Outcome::Committed));
    // A lost write leaves what was there before: another body with a checksum of its own.
    let mut former = Draft::default();
    former.push_body(b"a body of another segment");
    let name = &segments(&disk)[0];
    let used = used_bytes(&disk, name);
    disk.damage(name, |bytes| bytes[used - former.pieces[0].len()..used].copy_from_slice(&former.pieces[0]));
    let error = journal.place(BodyId(1)).unwrap().read().unwrap_err();
    assert!(names_the_place(&error, name) && is(&error, Flaw::BodyChecksum), "{error}");
}

fn relaxed() -> Options {
    let (segment_bytes, first_segment_bytes) = (1 << 16, 1 << 16);
    Options { durability: Durability::Os, segment_bytes, first_segment_bytes, ..options() }
}

#[test]
fn what_was_sealed_is_never_cut_though_it_was_not_synced_at_once() {
    let disk = Memory::new();
    let mut journal = Local::open(Arc::new(disk.clone()), relaxed()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(20));
    let name = segments(&disk).pop().unwrap();
    let sealed = used_bytes(&disk, &name);
    journal.seal().unwrap();
    write_up_to(&mut journal, Position(30));
    drop(journal);
    let used = used_bytes(&disk, &name);
    let (mut refused, mut cut) = (0, 0);
    for at in (4096..used).step_by(11) {
        let image = disk.crash_image(1);
        image.damage(&name, |bytes| bytes[at] ^= 1 << (at % 8));
        match Local::open(Arc::new(image), relaxed()) {
            Err(error) => {
                let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
                assert!(file.ends_with(&name) && *offset <= at as u64, "byte {at}: {error}");
                assert!(at < sealed, "byte {at}: {error}");
                refused += 1;
            }
            Ok(journal) if journal.tail() == Position(30) => assert!(journal.cut().is_none(), "byte {at}"),
            Ok(journal) => {
                // The seal itself, or behind it.
                assert!(at >= sealed && journal.tail() >= Position(20), "byte {at} cut {:?}", journal.cut());
                // What is cut is told: where it begins, and that it goes on to the last frame.
                let told = journal.cut().unwrap_or_else(|| panic!("byte {at} was cut silently"));
                let end = (told.offset + told.bytes) as usize;
                assert!(told.file.ends_with(&name) && told.offset <= at as u64, "byte {at}: {told}");
                assert!((used..used + 8).contains(&end) || at > used - 2_000, "byte {at}: {told}");
                cut += 1;
            }
        }
    }
    assert!(refused > 1_000 && cut > 300, "refused {refused}, cut {cut}");
}

#[test]
fn a_power_cut_while_a_seal_is_written_is_no_damage_without_syncing() {
    // The seal is on the disk only when everything before it is.
    for length in (0..512).step_by(32) {
        let disk = Memory::new();
        let watched = Arc::new(Faulty::new(Arc::new(disk.clone()), Fault::PowerCut, u64::MAX));
        let mut journal = Local::open(watched.clone(), relaxed()).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        let mut draft = sample(Position(1));
        draft.records.resize(length, 1);
        assert!(matches!(journal.append(&draft, Position(1)).unwrap().wait(), Outcome::Committed));
        write_up_to(&mut journal, Position(6));
        // The first sync succeeds, the one of the seal does not.
        watched.fail_in(3);
        assert!(journal.seal().is_err());
        for seed in 2..12 {
            Local::open(Arc::new(disk.crash_image(seed)), relaxed()).unwrap();
        }
    }
}

#[test]
fn a_torn_last_batch_is_told() {
    let disk = healthy(false);
    let name = segments(&disk).pop().unwrap();
    let used = used_bytes(&disk, &name);
    disk.damage(&name, |bytes| bytes[used - 1] ^= 1);
    let journal = reopen(&disk).unwrap();
    assert_eq!(journal.tail().0, LAST.0 - 1);
    let told = journal.cut().unwrap();
    let end = (told.offset + told.bytes) as usize;
    assert!(told.file.ends_with(&name) && (used..used + 8).contains(&end), "{told}");
}

#[test]
fn a_journal_without_syncing_is_cut_at_its_first_hole() {
    let relaxed = relaxed();
    for seed in 2..60 {
        let disk = Memory::new();
        let mut journal = Local::open(Arc::new(disk.clone()), relaxed.clone()).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        write_up_to(&mut journal, Position(20));
        let image = disk.crash_image(seed);
        for durability in [Durability::Os, Durability::LocalSync] {
            let options = Options { durability, ..relaxed.clone() };
            let mut journal = Local::open(Arc::new(image.clone()), options).unwrap();
            verify(&journal, Position(1)).unwrap();
            let epoch = journal.epoch().next();
            journal.fence(2, epoch).unwrap();
            let last = Position(journal.tail().0 + 3);
            write_up_to(&mut journal, last);
        }
        verify(&Local::open(Arc::new(image), relaxed.clone()).unwrap(), Position(1)).unwrap();
    }
}
