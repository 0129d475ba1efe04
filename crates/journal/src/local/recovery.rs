//! Finding the tail of the last segment: the one place where frames may be cut off.
//!
//! One append is in flight at most, so a power failure can tear only the last frame. An unreadable frame is
//! therefore a torn tail only when nothing intact follows it; damage before a seal, a fence or any other intact
//! frame is corruption and refused. A segment written without syncing can have holes, but only behind its last seal or
//! fence, which are synced in any case: it is cut at the first hole behind them. Whatever is cut is told.

use super::scan::Scan;
use super::segment::{Edge, Entry, Segment};
use crate::draft::{BODY_PREFIX_BYTES, split_prefix};
use crate::error::{Error, Flaw};
use crate::frame::Kind;
use crate::limits::SEGMENT_HEADER_BYTES;
use std::fmt;

/// Where writing goes on.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) offset: u64,
    pub(crate) edge: Edge,
    pub(crate) entries: Vec<Entry>,
    /// Whether a seal or a fence is the last frame.
    pub(crate) is_sealed: bool,
    /// There may be intact frames behind the tail, so nothing may be written into this segment any more.
    pub(crate) must_roll: bool,
    pub(crate) cut: Option<Cut>,
    /// From here on nobody knows whether the last sync of the life before succeeded.
    pub(crate) unsure_from: u64,
}

/// What was written and is not part of the journal: nobody was told that it was durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    pub file: String,
    pub offset: u64,
    /// Up to the end of the last frame that can be made out.
    pub bytes: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes } = self;
        write!(f, "`{file}` was cut at byte {offset}: {bytes} bytes there were not written to their end")
    }
}

/// A batch that recovery may have to cut off again.
struct Candidate {
    offset: u64,
    before: Edge,
    /// Range of its entries.
    first_entry: usize,
    end_entry: usize,
}

/// What the intact frames of a segment say, one after another from its front.
#[derive(Default)]
struct Scanned {
    entries: Vec<Entry>,
    batches: Vec<Candidate>,
    /// Behind the last seal or fence.
    sealed_to: u64,
    is_sealed: bool,
}

pub(crate) fn find_tail(segment: &Segment) -> Result<Tail, Error> {
    let is_relaxed = segment.header.is_relaxed;
    let mut scan = Scan::new(segment);
    let Scanned { entries, batches, sealed_to, is_sealed } = scan_frames(&mut scan, is_relaxed)?;
    let (written_to, must_roll) = look_behind(&mut scan, segment)?;
    // The last batch and what was written behind it; without syncing, everything.
    let unsure_from = match batches.last() {
        Some(last) if !is_relaxed => last.offset,
        _ => SEGMENT_HEADER_BYTES as u64,
    };
    let (offset, edge, cut) = (scan.offset, scan.edge, None);
    let mut tail = Tail { offset, edge, entries, is_sealed, must_roll, cut, unsure_from };
    cut_at_damage(&mut tail, segment, &batches, sealed_to)?;
    tail.unsure_from = tail.unsure_from.min(tail.offset);
    let bytes = written_to - tail.offset;
    tail.cut = (bytes > 0).then(|| Cut { file: segment.path.clone(), offset: tail.offset, bytes });
    Ok(tail)
}

/// Goes through the frames as long as they are intact.
fn scan_frames(scan: &mut Scan<'_>, is_relaxed: bool) -> Result<Scanned, Error> {
    let mut scanned = Scanned::default();
    loop {
        let (offset, before, first_entry) = (scan.offset, scan.edge, scanned.entries.len());
        let Some(frame) = scan.next()? else { return Ok(scanned) };
        scanned.is_sealed = frame.fixed.kind != Kind::Batch;
        if !scanned.is_sealed {
            frame.list_bodies(&mut scanned.entries);
            // Only a segment written without syncing needs more than its last batch verified.
            if !is_relaxed {
                scanned.batches.clear();
            }
            let end_entry = scanned.entries.len();
            scanned.batches.push(Candidate { offset, before, first_entry, end_entry });
        } else {
            scanned.sealed_to = scan.offset;
        }
    }
}

/// Looks at what follows the last intact frame: damage, if it may not be there. Says how far something was written that can be made out,
/// and whether there are frames among it.
fn look_behind(scan: &mut Scan<'_>, segment: &Segment) -> Result<(u64, bool), Error> {
    let mut written_to = scan.offset + scan.begun_bytes()?;
    let mut behind = scan.find_successor()?;
    let must_roll = behind.is_some();
    while let Some(successor) = behind {
        let (kind, end) = scan.frame_at(successor)?;
        if !segment.header.is_relaxed || kind != Kind::Batch {
            let what = format!("no intact frame, though one follows at byte {successor}");
            return Err(Error::corrupt(&segment.path, scan.offset, Flaw::FrameChecksum, what));
        }
        written_to = end;
        behind = scan.find_frame_from(end)?;
    }
    Ok((written_to, must_roll))
}

/// Takes the first batch with a damaged body off the tail, and all behind it, unless a seal says that they were whole.
fn cut_at_damage(
    tail: &mut Tail,
    segment: &Segment,
    batches: &[Candidate],
    sealed_to: u64,
) -> Result<(), Error> {
    for batch in batches {
        let bodies = &tail.entries[batch.first_entry..batch.end_entry];
        let Some(damaged_at) = first_damage(segment, bodies)? else { continue };
        if batch.offset < sealed_to {
            let what = "a stored body does not match its checksum, though a seal follows";
            return Err(Error::corrupt(&segment.path, damaged_at, Flaw::SealedBody, what));
        }
        tail.offset = batch.offset;
        tail.edge = batch.before;
        tail.entries.truncate(batch.first_entry);
        tail.is_sealed = false;
        tail.must_roll = segment.header.is_relaxed;
        break;
    }
    Ok(())
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
