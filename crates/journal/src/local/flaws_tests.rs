//! For each check of a file there is a damage that only this check can notice: every checksum is right, and whatever is read
//! before is as it was. The fields of a batch are in the conformance suite, for every journal has those.

use super::*;
use crate::disk::Memory;
use crate::error::Flaw;
use crate::frame::{self, FIXED_BYTES};
use crate::ticket::Outcome;

const FIRST: &str = "0000000000000001.segment";
const FIRST_BATCH: usize = limits::SEGMENT_HEADER_BYTES + 88;

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (10 * 1024, 8 * 1024);
    Options {
        filling: Filling::Never,
        segment_bytes,
        first_segment_bytes,
        reserve_segments: 0,
        ..Options::new(5)
    }
}

fn open(disk: &Memory) -> Result<Local, Error> {
    Local::open(Arc::new(disk.clone()), options())
}

/// Three segments, two snapshots, and a fence as the last frame.
fn healthy() -> Memory {
    let disk = Memory::new();
    let mut journal = open(&disk).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    while journal.segments.len() < 3 {
        let at = journal.tail().next();
        let mut draft = Draft { record_count: 1, records: vec![at.0 as u8; 40], ..Draft::default() };
        draft.push_body(&[at.0 as u8; 900]);
        assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
    }
    for at in [1, 2] {
        journal.put_snapshot(Position(at), &mut |out| out.write_all(&[at as u8; 50])).unwrap();
    }
    drop(journal);
    open(&disk).unwrap().fence(2, Epoch(2)).unwrap();
    disk
}

/// The check that finds the damage, by opening and reading everything.
fn flaw_of(disk: &Memory) -> Option<Flaw> {
    let read = open(disk).and_then(|journal| {
        journal.read(Position(1), &mut |_| Ok(()))?;
        (1..journal.next_body().0).try_for_each(|body| journal.place(BodyId(body)).unwrap().read().map(drop))
    });
    match read {
        Err(error @ Error::Corrupt { .. }) => error.flaw(),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

/// The checks that verifying names.
fn verified(disk: &Memory) -> Vec<Flaw> {
    struct Noted(Vec<Flaw>);
    impl Inspector for Noted {
        fn batch(&mut self, _: Batch<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn snapshot(&mut self, _: Position, _: &mut dyn std::io::Read) -> Result<(), Error> {
            Ok(())
        }
        fn damage(&mut self, error: Error) {
            self.0.extend(error.flaw());
        }
    }
    let mut noted = Noted(Vec::new());
    Local::verify(Arc::new(disk.clone()), 0, &mut noted).unwrap();
    noted.0
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Changes a file's header and makes its checksum right.
fn change_header(disk: &Memory, name: &str, crc_at: usize, change: impl FnOnce(&mut [u8])) {
    disk.damage(name, |bytes| {
        change(bytes);
        let crc = crc32c::crc32c(&bytes[..crc_at]);
        put(bytes, crc_at, &crc.to_le_bytes());
    });
}

/// Changes the head of a frame and makes its checksum right.
fn change_frame(disk: &Memory, name: &str, at: usize, head: usize, change: impl FnOnce(&mut [u8])) {
    disk.damage(name, |bytes| {
        let incarnation = u64::from_le_bytes(*bytes[24..].first_chunk().unwrap());
        change(&mut bytes[at..at + head]);
        frame::stamp(&mut bytes[at..at + head], incarnation, at as u64);
    });
}

#[test]
fn what_is_healthy_has_no_flaw() {
    let disk = healthy();
    assert_eq!((flaw_of(&disk), verified(&disk)), (None, vec![]));
}

#[test]
fn each_field_of_a_segment_header_has_its_check() {
    let crc_at = limits::SEGMENT_HEADER_BYTES - 4;
    let damages: [(&str, Flaw, usize, &[u8]); 8] = [
        ("magic", Flaw::SegmentBeginning, 0, b"otobus-k"),
        ("version", Flaw::SegmentVersion, 8, &[0; 4]),
        ("flags", Flaw::SegmentVersion, 36, &[2]),
        ("ordinal", Flaw::SegmentRenamed, 16, &[9]),
        ("zeroth", Flaw::SegmentNumbers, 16, &[0; 8]),
        ("length", Flaw::SegmentNumbers, 32, &4095u32.to_le_bytes()),
        ("longer", Flaw::FileEnd, 32, &(8 * 1024 + 1u32).to_le_bytes()),
        ("position", Flaw::SegmentNumbers, 40, &[0xff; 8]),
    ];
    for (field, flaw, at, value) in damages {
        let disk = healthy();
        change_header(&disk, FIRST, crc_at, |bytes| put(bytes, at, value));
        assert_eq!(flaw_of(&disk), Some(flaw), "{field}");
        assert!(verified(&disk).contains(&flaw), "{field}: {:?}", verified(&disk));
    }
    let disk = healthy();
    disk.damage(FIRST, |bytes| bytes[1000] ^= 1);
    assert_eq!(flaw_of(&disk), Some(Flaw::SegmentChecksum), "nothing else looks there");
}

#[test]
fn where_a_segment_begins_is_compared_with_where_the_one_before_ends() {
    let crc_at = limits::SEGMENT_HEADER_BYTES - 4;
    // Position, epoch, body and chain of the second segment's beginning. Where its own frames contradict it they say so, but
    // reading stops at the segment before.
    for (at, flaw) in
        [(40, Flaw::FrameChecksum), (48, Flaw::FrameChain), (56, Flaw::FrameChain), (64, Flaw::FrameChain)]
    {
        let disk = healthy();
        change_header(&disk, "0000000000000002.segment", crc_at, |bytes| bytes[at] ^= 0x20);
        assert_eq!(flaw_of(&disk), Some(flaw), "at {at}");
    }
}

#[test]
fn files_that_are_gone_are_missed_by_whoever_knows_of_them() {
    let gone = |names: &[&str]| {
        let disk = healthy();
        names.iter().for_each(|name| disk.remove(name).unwrap());
        (flaw_of(&disk).unwrap(), verified(&disk))
    };
    let (first, second, third) = (FIRST, "0000000000000002.segment", "0000000000000003.segment");
    for (names, flaw) in [
        (&[second][..], Flaw::SegmentGap),
        (&[first], Flaw::SegmentMissing),
        (&[third], Flaw::SegmentMissing),
        (&["extent", first], Flaw::SegmentNeeded),
        (&["extent", first, second, third], Flaw::SegmentNeeded),
    ] {
        let (found, verified) = gone(names);
        assert_eq!(found, flaw, "{names:?}");
        assert!(verified.contains(&flaw), "{names:?}: {verified:?}");
    }
}

#[test]
fn a_snapshot_of_what_is_not_there_is_noticed_without_a_list_of_segments() {
    let disk = healthy();
    let tail = {
        let mut journal = open(&disk).unwrap();
        journal.fence(3, Epoch(3)).unwrap();
        let tail = journal.tail();
        journal.put_snapshot(tail, &mut |_| Ok(())).unwrap();
        tail
    };
    assert!(tail.0 > 4);
    disk.remove("extent").unwrap();
    disk.remove("0000000000000003.segment").unwrap();
    assert_eq!(flaw_of(&disk), Some(Flaw::SnapshotAhead));
    assert!(verified(&disk).contains(&Flaw::SnapshotAhead));
}

#[test]
fn the_list_of_segments_is_under_a_checksum() {
    let disk = healthy();
    for at in [0, 512] {
        disk.damage("extent", |bytes| bytes[at + 20] ^= 1);
    }
    assert_eq!(flaw_of(&disk), Some(Flaw::ListChecksum));
    assert_eq!(verified(&disk), [Flaw::ListChecksum]);
}

#[test]
fn a_fence_of_an_epoch_that_never_was_is_noticed_by_its_fields_alone() {
    let disk = healthy();
    let name = "0000000000000003.segment";
    // The last frame: 80 bytes and the owner.
    let bytes = disk.content(name).unwrap();
    let at = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 8 * 8 - FIXED_BYTES;
    assert_eq!(bytes[at + 12], frame::Kind::Fence as u8, "the test knows where the fence is");
    change_frame(&disk, name, at, FIXED_BYTES + 8, |head| put(head, 24, &[0xff; 8]));
    assert_eq!(flaw_of(&disk), Some(Flaw::FrameFields));
    assert!(verified(&disk).contains(&Flaw::FrameFields));
}

#[test]
fn a_frame_from_another_place_or_life_is_no_frame() {
    let moved = |change: &dyn Fn(&mut Vec<u8>)| {
        let disk = healthy();
        disk.damage(FIRST, change);
        (flaw_of(&disk), verified(&disk))
    };
    // The second frame where the first one was, and the incarnation of another life in one of them.
    let second = {
        let bytes = healthy().content(FIRST).unwrap();
        let incarnation = bytes[24..32].to_vec();
        (FIRST_BATCH + 8..).step_by(8).find(|at| bytes[*at..].starts_with(&incarnation)).unwrap()
    };
    for (what, change) in [
        (
            "moved",
            &(|bytes: &mut Vec<u8>| bytes.copy_within(second..second + 500, FIRST_BATCH))
                as &dyn Fn(&mut Vec<u8>),
        ),
        ("incarnation", &|bytes| bytes[FIRST_BATCH] ^= 1),
        ("kind", &|bytes| bytes[FIRST_BATCH + 12] ^= 1),
    ] {
        let (found, verified) = moved(change);
        assert_eq!(found, Some(Flaw::FrameChecksum), "{what}");
        assert!(verified.contains(&Flaw::FrameChecksum), "{what}: {verified:?}");
    }
}

#[test]
fn each_part_of_a_snapshot_has_its_check() {
    let name = "00000000000000000002.snapshot";
    let read = |disk: &Memory| {
        let journal = open(disk).unwrap();
        journal.read_snapshot(Position(2), &mut |_| Ok(())).err().and_then(|error| error.flaw())
    };
    let header: [(Flaw, usize); 3] =
        [(Flaw::SnapshotHeader, 0), (Flaw::SnapshotPlace, 12), (Flaw::SnapshotPlace, 16)];
    for (flaw, at) in header {
        let disk = healthy();
        change_header(&disk, name, 28, |bytes| bytes[at] ^= 1);
        assert_eq!(read(&disk), Some(flaw), "at {at}");
        assert_eq!(verified(&disk), [flaw], "at {at}");
    }
    let disk = healthy();
    disk.damage(name, |bytes| bytes[25] ^= 1);
    assert_eq!(read(&disk), Some(Flaw::SnapshotHeader), "nothing else looks there");
    // Content, its length, its checksum, and the checksum of these.
    let length = healthy().content(name).unwrap().len();
    for at in [40, length - 16, length - 8, length - 1] {
        let disk = healthy();
        disk.damage(name, |bytes| bytes[at] ^= 1);
        assert_eq!(read(&disk), Some(Flaw::SnapshotChecksum), "at {at}");
    }
    for change in
        [&(|bytes: &mut Vec<u8>| bytes.truncate(60)) as &dyn Fn(&mut Vec<u8>), &|bytes| bytes.push(0)]
    {
        let disk = healthy();
        disk.damage(name, change);
        assert_eq!(read(&disk), Some(Flaw::SnapshotChecksum), "another length");
    }
}
