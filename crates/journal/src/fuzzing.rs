//! Bodies of the fuzz targets, and what tests of this crate share. Not part of the border.
//!
//! A healthy journal is patched as the input says, then opened and read. Nothing may panic, and whatever is read
//! without an error must be what was written. Patched heads can be stamped again, so that the checks behind the
//! checksum are reached too; what is read then is only as good as the stamp.

use crate::conformance::{self, Damage, Harness};
use crate::disk::Memory;
use crate::error::Error;
use crate::frame::{self, FIXED_BYTES, Fixed};
use crate::journal::{Journal, Position};
use crate::limits::SEGMENT_HEADER_BYTES;
use crate::local::{Filling, Local, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FILES: [&str; 3] =
    ["0000000000000001.segment", "0000000000000002.segment", "00000000000000000004.snapshot"];

/// Stamps every head that can be followed, and the headers, before opening.
const STAMP: u8 = 1;
/// The input replaces the frames of the last segment instead of patching.
const REPLACE: u8 = 2;

struct Small {
    disk: Memory,
}

impl Harness for Small {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        let (segment_bytes, first_segment_bytes) = (20 * 1024, 12 * 1024);
        let options = Options {
            filling: Filling::Never,
            segment_bytes,
            first_segment_bytes,
            reserve_segments: 0,
            ..Options::new(2)
        };
        Ok(Box::new(Local::open(Arc::new(self.disk.clone()), options)?))
    }

    fn damage(&self, damage: Damage) {
        conformance::damage_segments(&self.disk, damage).expect("what is to be damaged is there");
    }
}

fn healthy() -> &'static Memory {
    static HEALTHY: OnceLock<Memory> = OnceLock::new();
    HEALTHY.get_or_init(|| {
        let small = Small { disk: Memory::new() };
        let mut journal = conformance::open(&small);
        conformance::write_up_to(&mut *journal, Position(4));
        conformance::put_snapshot(&mut *journal, Position(4));
        journal.seal().expect("a healthy journal can be sealed");
        conformance::write_up_to(&mut *journal, Position(6));
        drop(journal);
        small.disk
    })
}

/// The reader over patched files: the first byte chooses how, then come patches of four bytes (file, offset, mask).
pub fn journal(data: &[u8]) {
    let Some((&flags, script)) = data.split_first() else { return };
    let small = Small { disk: healthy().crash_image(1) };
    if flags & REPLACE == 0 {
        for patch in script.as_chunks::<4>().0 {
            let offset = usize::from(u16::from_le_bytes([patch[1], patch[2]]));
            small.disk.damage(FILES[usize::from(patch[0]) % FILES.len()], |bytes| {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte ^= patch[3];
                }
            });
        }
    } else {
        small.disk.damage(FILES[1], |bytes| {
            let frames = &mut bytes[SEGMENT_HEADER_BYTES..];
            let count = script.len().min(frames.len());
            frames[..count].copy_from_slice(&script[..count]);
        });
    }
    let is_stamped = flags & STAMP != 0;
    if is_stamped {
        small.disk.damage(FILES[0], |bytes| stamp_again(bytes));
        small.disk.damage(FILES[1], |bytes| stamp_again(bytes));
    }
    read_all(&small, is_stamped);
}

fn read_all(small: &Small, is_stamped: bool) {
    let Ok(journal) = small.open() else { return };
    if !is_stamped {
        // Errors are fine, wrong content panics.
        let _ = conformance::verify(&*journal, Position(1));
    }
    let mut bodies = Vec::new();
    let _ = journal.read(journal.first(), &mut |batch| {
        bodies.extend((batch.first_body.0..).take(batch.body_lengths.len()).map(crate::BodyId));
        Ok(())
    });
    for place in bodies.into_iter().filter_map(|body| journal.place(body)) {
        let _ = place.read();
    }
    let mut content = Vec::new();
    let read = journal.read_snapshot(Position(4), &mut |from| from.read_to_end(&mut content).map(drop));
    assert!(read.is_err() || content == conformance::sample(Position(4)).records);
}

/// Makes the checksums of a segment agree with its content, as far as its heads can be followed.
fn stamp_again(bytes: &mut [u8]) {
    let crc_at = SEGMENT_HEADER_BYTES - 4;
    let crc = crc32c::crc32c(&bytes[..crc_at]);
    bytes[crc_at..SEGMENT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    let incarnation = u64::from_le_bytes(*bytes[24..].first_chunk().expect("the header is whole"));
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some(fixed) = bytes[offset..].first_chunk::<FIXED_BYTES>() {
        let mut fixed = *fixed;
        fixed[..8].copy_from_slice(&incarnation.to_le_bytes());
        let Some(fixed) = Fixed::decode(&fixed, incarnation) else { return };
        let room = bytes.len() - offset;
        let Some(frame_bytes) = fixed.frame_bytes().filter(|claimed| *claimed <= room as u64) else { return };
        frame::stamp(&mut bytes[offset..offset + fixed.head_bytes() as usize], incarnation, offset as u64);
        offset += frame_bytes as usize;
    }
}

/// A directory of its own for one test, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(purpose: &str) -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("otobus-{purpose}-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Scratch { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    #[test]
    fn the_journal_to_be_patched_is_healthy_and_stamping_changes_nothing() {
        let small = Small { disk: healthy().crash_image(1) };
        let mut names = [&FILES[..], &["extent"]].concat();
        names.sort_unstable();
        assert_eq!(small.disk.list().unwrap(), names);
        let before = FILES.map(|name| small.disk.content(name).unwrap());
        small.disk.damage(FILES[0], |bytes| stamp_again(bytes));
        small.disk.damage(FILES[1], |bytes| stamp_again(bytes));
        assert_eq!(FILES.map(|name| small.disk.content(name).unwrap()), before);
        let journal = small.open().unwrap();
        conformance::verify(&*journal, Position(1)).unwrap();
        assert_eq!(journal.tail(), Position(6));
    }
}
