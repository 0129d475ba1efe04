//! Which segments the journal consists of, in a small file beside them. Segments alone cannot tell that the oldest or
//! the newest of them is gone: what is left looks like a journal that was trimmed, or that ended earlier.
//!
//! What must always hold: the file names no segment that may be missing. It learns of a new segment after that has its
//! name, and that a segment goes before it goes; so there may be more segments than it says, and never fewer. It has two
//! notes, written in turn: one that was torn leaves the one before, which is still true. Layout: docs/format/journal.md.

use super::names;
use super::reserve::{is_full, lacks_handles};
use crate::disk::{Disk, DiskFile, read_full, write_all};
use crate::error::{Error, Flaw};
use crate::limits::FORMAT_VERSION;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"otobus-e";
const BYTES: usize = 48;
const CRC_AT: usize = BYTES - 4;
/// Each note has a sector of its own.
const NOTE_AT: [u64; 2] = [0, 512];

#[derive(Debug)]
pub(super) struct ExtentFile {
    disk: Arc<dyn Disk>,
    partition: u32,
    file: Option<Arc<dyn DiskFile>>,
    /// What it says; `None` when there is none, or when nobody knows.
    noted: Option<RangeInclusive<u64>>,
    /// The number of the newest note. It also says where that one is.
    turn: u64,
}

impl ExtentFile {
    /// Reads what an earlier life has noted. There is none in a new journal, nor in one of an earlier program.
    pub(super) fn open(disk: Arc<dyn Disk>, partition: u32, listed: &[String]) -> Result<ExtentFile, Error> {
        let mut extent = ExtentFile { disk, partition, file: None, noted: None, turn: 0 };
        if listed.iter().any(|name| name == names::EXTENT) {
            let path = extent.path();
            let file = extent.disk.open(names::EXTENT).map_err(|error| Error::io("open", &path, error))?;
            for at in NOTE_AT {
                let mut block = [0; BYTES];
                read_full(&*file, at, &mut block).map_err(|error| Error::io("read", &path, error))?;
                if let Some((turn, noted)) = decode(&block, partition, &path)?
                    && turn >= extent.turn
                {
                    (extent.turn, extent.noted) = (turn, Some(noted));
                }
            }
            if extent.noted.is_none() {
                let what = "the list of segments does not match its checksum; if it cannot be restored, remove \
                            it when all segments are known to be there";
                return Err(Error::corrupt(&path, 0, Flaw::ListChecksum, what));
            }
            extent.file = Some(file);
        }
        Ok(extent)
    }

    fn path(&self) -> String {
        self.disk.path(names::EXTENT)
    }

    /// The first segment that is missing at either end, if any is. `ordinals` are those that are there, in order.
    pub(super) fn missing(&self, ordinals: &[u64]) -> Option<Error> {
        let noted = self.noted.as_ref()?;
        let (first, last) = (ordinals.first().copied(), ordinals.last().copied());
        let missing = match (first, last) {
            (Some(first), _) if first > *noted.start() => *noted.start(),
            (_, Some(last)) if last < *noted.end() => last + 1,
            (None, _) => *noted.start(),
            _ => return None,
        };
        let what = format!(
            "the file is missing; the journal consists of segments {} to {}",
            noted.start(),
            noted.end()
        );
        Some(Error::corrupt(&self.disk.path(&names::segment(missing)), 0, Flaw::SegmentMissing, what))
    }

    /// Notes that there are these segments and no others. Without room the note stays as it is, which is true for as long
    /// as no segment goes.
    pub(super) fn note(&mut self, segments: RangeInclusive<u64>) -> Result<(), Error> {
        match self.write(segments) {
            Err(error) if !is_full(&error) && !lacks_handles(&error) => {
                Err(Error::io("write", &self.path(), error))
            }
            _ => Ok(()),
        }
    }

    /// Notes that segments are about to go. Without room the note itself goes: a full disk must be able to give space
    /// back, and a journal without a note is whole.
    pub(super) fn note_before_trim(&mut self, left: RangeInclusive<u64>) -> Result<(), Error> {
        let written = match self.write(left) {
            Err(error) if is_full(&error) || lacks_handles(&error) => {
                self.file = None;
                let is_there = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
                self.disk
                    .remove(names::EXTENT)
                    .or_else(|error| if is_there(&error) { Err(error) } else { Ok(()) })
                    .and_then(|()| self.disk.sync_dir())
            }
            other => other,
        };
        written.map_err(|error| Error::io("write", &self.path(), error))
    }

    fn write(&mut self, segments: RangeInclusive<u64>) -> io::Result<()> {
        if self.noted.as_ref() == Some(&segments) {
            return Ok(());
        }
        // Until it is written nobody knows which of the two is there.
        self.noted = None;
        // The next one, should this one be torn, goes to the same place.
        let turn = self.turn + 1;
        let block = encode(turn, &segments, self.partition);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.disk.create(names::EXTENT_UNFINISHED)?,
        };
        write_all(&*file, NOTE_AT[turn as usize % NOTE_AT.len()], &block)?;
        file.sync_data()?;
        if self.file.is_none() {
            self.disk.rename(names::EXTENT_UNFINISHED, names::EXTENT)?;
            self.disk.sync_dir()?;
            self.file = Some(file);
        }
        (self.turn, self.noted) = (turn, Some(segments));
        Ok(())
    }
}

fn encode(turn: u64, segments: &RangeInclusive<u64>, partition: u32) -> [u8; BYTES] {
    let mut block = [0; BYTES];
    block[..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&partition.to_le_bytes());
    block[16..24].copy_from_slice(&segments.start().to_le_bytes());
    block[24..32].copy_from_slice(&segments.end().to_le_bytes());
    block[32..40].copy_from_slice(&turn.to_le_bytes());
    let crc = crc32c::crc32c(&block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// A note and its turn; `None` if there is none, or one that was torn. Magic, version and checksum are looked at in the
/// order in which a segment's are.
fn decode(
    block: &[u8; BYTES],
    partition: u32,
    path: &str,
) -> Result<Option<(u64, RangeInclusive<u64>)>, Error> {
    let word = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().expect("within the block"));
    let long = |at: usize| u64::from_le_bytes(*block[at..].first_chunk().expect("within the block"));
    if block[..8] != MAGIC || word(CRC_AT) != crc32c::crc32c(&block[..CRC_AT]) {
        return Ok(None);
    }
    if word(8) > FORMAT_VERSION {
        return Err(Error::NewerFormat { file: path.to_owned(), found: word(8), known: FORMAT_VERSION });
    }
    if word(12) != partition {
        return Err(Error::WrongPartition { file: path.to_owned(), found: word(12), expected: partition });
    }
    Ok(Some((long(32), long(16)..=long(24))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fault, Faulty, Memory};

    fn open(disk: &Memory) -> Result<ExtentFile, Error> {
        ExtentFile::open(Arc::new(disk.clone()), 3, &disk.list().unwrap())
    }

    #[test]
    fn what_is_missing_at_either_end_is_named() {
        let disk = Memory::new();
        let mut extent = open(&disk).unwrap();
        assert!(extent.missing(&[7]).is_none(), "nothing was noted");
        extent.note(1..=1).unwrap();
        extent.note(4..=6).unwrap();
        let extent = open(&disk.crash_image(0)).unwrap();
        let missing = |ordinals: &[u64]| extent.missing(ordinals).map(|error| error.to_string());
        for whole in [&[4, 5, 6][..], &[3, 4, 5, 6], &[4, 5, 6, 7]] {
            assert_eq!(missing(whole), None);
        }
        for (left, name) in [(&[5, 6][..], 4), (&[4, 5], 6), (&[4], 5), (&[], 4), (&[7], 4)] {
            assert!(missing(left).is_some_and(|text| text.contains(&names::segment(name))), "{left:?}");
        }
    }

    #[test]
    fn a_torn_note_leaves_the_one_before_and_two_are_damage() {
        let disk = Memory::new();
        let mut extent = open(&disk).unwrap();
        (4..=6).for_each(|last| extent.note(4..=last).unwrap());
        let flip = |bit: usize, at: u64| {
            disk.damage(names::EXTENT, |bytes| bytes[at as usize + bit / 8] ^= 1 << (bit % 8));
        };
        assert_eq!(open(&disk).unwrap().noted, Some(4..=6));
        for bit in 0..CRC_AT * 8 {
            // The third note is in the second place.
            flip(bit, NOTE_AT[1]);
            let mut torn = open(&disk).unwrap();
            assert_eq!(torn.noted, Some(4..=5), "bit {bit}");
            flip(bit, NOTE_AT[0]);
            assert!(matches!(open(&disk), Err(Error::Corrupt { .. })), "bit {bit}");
            flip(bit, NOTE_AT[0]);
            // The next note takes the place of the torn one, not of the good one.
            torn.note(4..=6).unwrap();
            assert_eq!(open(&disk).unwrap().noted, Some(4..=6), "bit {bit}");
        }
        disk.damage(names::EXTENT, |bytes| bytes.truncate(BYTES - 1));
        assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn without_room_a_segment_may_still_come_and_go() {
        // What is on the disk afterwards never names a segment that is gone.
        for call in 1..8 {
            let memory = Memory::new();
            open(&memory).unwrap().note(4..=6).unwrap();
            let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::Enospc, u64::MAX));
            let mut extent = ExtentFile::open(disk.clone(), 3, &memory.list().unwrap()).unwrap();
            disk.fail_in(call);
            extent.note(4..=7).unwrap();
            extent.note_before_trim(5..=7).unwrap();
            assert!(open(&memory.crash_image(call)).unwrap().missing(&[5, 6, 7]).is_none(), "call {call}");
            extent.note(5..=8).unwrap();
            extent.note(5..=8).unwrap();
            assert!(open(&memory.crash_image(0)).unwrap().missing(&[5, 6, 7]).is_some(), "call {call}");
        }
    }
}
