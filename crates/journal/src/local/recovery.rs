//! Finding the tail of the last segment: the one place where a frame may be cut off.
//!
//! One append is in flight at most, so a power failure can tear only the last frame. An unreadable frame is
//! therefore a torn tail only when nothing intact follows it; damage before a seal, a fence or any other intact
//! frame is corruption and refused. A segment written without syncing can have holes anywhere, and is cut at the
//! first one.

use super::scan::Scan;
use super::segment::{Edge, Entry, Segment};
use crate::draft::{BODY_PREFIX_BYTES, split_prefix};
use crate::error::Error;
use crate::frame::Kind;

/// Where writing goes on.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) offset: u64,
    pub(crate) edge: Edge,
    pub(crate) entries: Vec<Entry>,
    /// Whether a seal or a fence is the last frame.
    pub(crate) is_sealed: bool,
    /// Intact frames may lie behind the tail, so nothing may be written into this segment any more.
    pub(crate) must_roll: bool,
}

/// A batch that recovery may have to cut off again.
struct Candidate {
    offset: u64,
    before: Edge,
    /// Range of its entries.
    first_entry: usize,
    end_entry: usize,
}

pub(crate) fn find_tail(segment: &Segment) -> Result<Tail, Error> {
    let mut scan = Scan::new(segment);
    let mut entries = Vec::new();
    let mut batches: Vec<Candidate> = Vec::new();
    let mut is_sealed = false;
    loop {
        let (offset, before, first_entry) = (scan.offset, scan.edge, entries.len());
        let Some(frame) = scan.next()? else { break };
        is_sealed = frame.fixed.kind != Kind::Batch;
        if !is_sealed {
            frame.list_bodies(&mut entries);
            // Only a segment written without syncing needs more than its last batch verified.
            if !segment.header.is_relaxed {
                batches.clear();
            }
            batches.push(Candidate { offset, before, first_entry, end_entry: entries.len() });
        }
    }
    let successor = scan.find_successor()?;
    let mut tail = Tail { offset: scan.offset, edge: scan.edge, entries, is_sealed, must_roll: false };
    if let Some(successor) = successor {
        if !segment.header.is_relaxed {
            let what = format!("no intact frame, though one follows at byte {successor}");
            return Err(Error::corrupt(&segment.path, tail.offset, what));
        }
        tail.must_roll = true;
    }
    for batch in batches {
        let Some(damaged_at) = first_damage(segment, &tail.entries[batch.first_entry..batch.end_entry])?
        else {
            continue;
        };
        if tail.is_sealed && !segment.header.is_relaxed {
            let what = "a body of the last batch does not match its checksum, though a seal follows";
            return Err(Error::corrupt(&segment.path, damaged_at, what));
        }
        tail.offset = batch.offset;
        tail.edge = batch.before;
        tail.entries.truncate(batch.first_entry);
        tail.is_sealed = false;
        tail.must_roll = segment.header.is_relaxed;
        break;
    }
    Ok(tail)
}

/// Offset of the first body that is not what its frame says.
fn first_damage(segment: &Segment, bodies: &[Entry]) -> Result<Option<u64>, Error> {
    let mut stored = Vec::new();
    for entry in bodies {
        stored.clear();
        stored.resize(BODY_PREFIX_BYTES + entry.length as usize, 0);
        segment.read_exact(u64::from(entry.offset), &mut stored)?;
        let prefix = stored.first_chunk().expect("at least the prefix was read");
        let is_intact = split_prefix(*prefix) == (entry.length, entry.crc)
            && crc32c::crc32c(&stored[BODY_PREFIX_BYTES..]) == entry.crc;
        if !is_intact {
            return Ok(Some(u64::from(entry.offset)));
        }
    }
    Ok(None)
}
