//! How the media of this crate are damaged: segment files on any disk, and the log in memory.

use super::Damage;
use crate::disk::{Disk, DiskFile, read_full, write_all};
use crate::frame::{self, FIXED_BYTES, Fixed, Kind};
use crate::journal::Position;
use crate::limits::SEGMENT_HEADER_BYTES;
use crate::memory::Log;
use std::io;
use std::ops::Range;

/// Bytes of a head that every batch has: its place in the order, its time, and the chain of the batch before.
const POSITION_AT: usize = 16;
const EPOCH_AT: usize = 24;
const TIME_AT: usize = 32;
const CHAIN_AT: usize = 40;
const FIRST_BODY_AT: usize = 48;
/// Another position than any of a conformance journal.
const REPOSITION_BITS: u8 = 0x80;
/// Where the content of a snapshot file begins.
const CONTENT_AT: usize = 32;

/// Damages the files of a [`crate::Local`] that nobody has open.
pub fn damage_segments(disk: &dyn Disk, damage: Damage) -> io::Result<()> {
    let at = match damage {
        Damage::FlipSnapshot(at) => {
            let file = disk.open(&format!("{:020}.snapshot", at.0))?;
            return change(&*file, |bytes| bytes[CONTENT_AT] ^= 1);
        }
        damage => batch_of(damage),
    };
    let mut names = disk.list()?;
    names.retain(|name| name.ends_with(".segment"));
    for name in names {
        let file = disk.open(&name)?;
        let mut is_found = false;
        change(&*file, |bytes| {
            let incarnation = u64::from_le_bytes(*bytes[24..].first_chunk().expect("the header is whole"));
            if let Some((fixed, frame)) = find(bytes, incarnation, at) {
                let offset = frame.start as u64;
                apply(&mut bytes[frame], &fixed, incarnation, offset, damage);
                is_found = true;
            }
        })?;
        if is_found {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no batch {}", at.0)))
}

fn batch_of(damage: Damage) -> Position {
    match damage {
        Damage::Torn(at) | Damage::Flip(at) | Damage::FlipBody(at) | Damage::FlipSnapshot(at) => at,
        Damage::Rechain(at) | Damage::Reposition(at) | Damage::Reepoch(at) => at,
        Damage::Rebody(at) | Damage::Retable(at) => at,
    }
}

/// Damages a [`Log`].
pub fn damage_log(log: &Log, damage: Damage) {
    let at = match damage {
        Damage::FlipSnapshot(at) => return log.damage_snapshot(at),
        damage => batch_of(damage),
    };
    log.damage(at, |bytes| {
        let incarnation = u64::from_le_bytes(*bytes.first_chunk().expect("the head is whole"));
        let head = bytes.first_chunk::<FIXED_BYTES>().expect("the head is whole");
        let fixed = Fixed::decode(head, incarnation).expect("the head is intact");
        match damage {
            Damage::Torn(_) => bytes.truncate(bytes.len() / 2),
            _ => apply(bytes, &fixed, incarnation, at.0, damage),
        }
    });
}

/// Finds the frame of a batch.
fn find(bytes: &[u8], incarnation: u64, at: Position) -> Option<(Fixed, Range<usize>)> {
    let mut offset = SEGMENT_HEADER_BYTES;
    loop {
        let fixed = Fixed::decode(bytes.get(offset..)?.first_chunk::<FIXED_BYTES>()?, incarnation)?;
        let end = offset + fixed.frame_bytes()? as usize;
        let repositioned = Position(at.0 ^ u64::from(REPOSITION_BITS));
        if fixed.kind == Kind::Batch && [at, repositioned].contains(&fixed.position) {
            return Some((fixed, offset..end));
        }
        offset = end;
    }
}

fn apply(bytes: &mut [u8], fixed: &Fixed, incarnation: u64, offset: u64, damage: Damage) {
    let head = fixed.head_bytes() as usize;
    let restamped = |bytes: &mut [u8], at: usize, bits: u8| {
        bytes[at] ^= bits;
        frame::stamp(&mut bytes[..head], incarnation, offset);
    };
    match damage {
        // The sectors of its second half were never written.
        Damage::Torn(_) => {
            let half = bytes.len() / 2;
            assert!(bytes[half..].iter().any(|byte| *byte != 0), "there is something to tear");
            bytes[half..].fill(0);
        }
        Damage::Flip(_) => bytes[TIME_AT] ^= 0x10,
        Damage::FlipBody(_) => bytes[head + crate::BODY_PREFIX_BYTES] ^= 1,
        Damage::Rechain(_) => restamped(bytes, CHAIN_AT, 0xff),
        Damage::Reposition(_) => restamped(bytes, POSITION_AT, REPOSITION_BITS),
        Damage::Reepoch(_) => restamped(bytes, EPOCH_AT, 1),
        Damage::Rebody(_) => restamped(bytes, FIRST_BODY_AT + 1, 0x40),
        Damage::Retable(_) => {
            assert!(fixed.body_count > 0, "there is a table");
            restamped(bytes, FIXED_BYTES + fixed.records_bytes as usize, 1);
        }
        Damage::FlipSnapshot(_) => unreachable!("a snapshot is no frame"),
    }
}

/// Changes a file in place and durably.
fn change(file: &dyn DiskFile, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let mut bytes = vec![0; file.length()? as usize];
    read_full(file, 0, &mut bytes)?;
    change(&mut bytes);
    write_all(file, 0, &bytes)?;
    file.sync_data()
}
