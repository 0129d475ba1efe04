//! Reading a segment from end to end: every frame, every body. Nothing is changed, and one damaged place does not hide
//! the next.

use super::scan::Scan;
use super::segment::{Edge, Entry, Segment};
use crate::draft::{BODY_PREFIX_BYTES, split_prefix};
use crate::error::{Error, Flaw};
use crate::frame::Kind;
use crate::journal::{Batch, Position};
use std::sync::Arc;

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub segments: u64,
    pub batches: u64,
    pub bodies: u64,
    pub body_bytes: u64,
    pub snapshots: u64,
}

/// What to do on the way.
pub(super) struct Check<'a> {
    pub(super) counts: &'a mut Counts,
    pub(super) batch: &'a mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    pub(super) damage: &'a mut dyn FnMut(Error),
    /// Called after each frame with the bytes that it took.
    pub(super) pause: &'a mut dyn FnMut(u64),
}

impl Check<'_> {
    /// Checks one segment. `end` is where its successor begins; without one it is the last. Returns what is known at its
    /// end. Faults of the disk itself are errors, and so is what `batch` refuses.
    pub(super) fn segment(&mut self, segment: &Segment, end: Option<Edge>) -> Result<Edge, Error> {
        self.counts.segments += 1;
        let mut scan = Scan::on_disk(segment);
        let mut entries: Vec<Entry> = Vec::new();
        // The bodies of a last batch that nothing follows may be torn: then it is cut at the next start.
        let mut torn: Option<Error> = None;
        while Some(scan.edge) != end {
            let at = scan.offset;
            let mut is_batch = false;
            let step = scan.next().and_then(|frame| {
                let Some(frame) = frame else { return Ok(false) };
                is_batch = frame.fixed.kind == Kind::Batch;
                entries.clear();
                frame.list_bodies(&mut entries);
                frame.batch().map_or(Ok(()), |batch| (self.batch)(batch))?;
                Ok(true)
            });
            let problem = match step {
                Ok(true) => {
                    torn.take().into_iter().for_each(|error| (self.damage)(error));
                    self.counts.batches += u64::from(is_batch);
                    torn = self.bodies(segment, &entries)?;
                    (self.pause)(scan.offset - at);
                    continue;
                }
                Ok(false) => None,
                Err(error @ Error::Corrupt { .. }) => Some(error),
                Err(error) => return Err(error),
            };
            let successor = scan.find_successor()?;
            if problem.is_none() && end.is_none() {
                let is_torn = match successor {
                    Some(at) => segment.header.is_relaxed && !is_sealed_behind(&scan, at)?,
                    None => true,
                };
                if is_torn {
                    break;
                }
            }
            torn.take().into_iter().for_each(|error| (self.damage)(error));
            let edge = scan.edge;
            (self.damage)(problem.unwrap_or_else(|| segment.no_frame(at, edge, end)));
            match successor {
                Some(successor) => scan.resume_at(successor)?,
                None => return Ok(end.unwrap_or(scan.edge)),
            }
        }
        if end.is_some() {
            torn.take().into_iter().for_each(|error| (self.damage)(error));
        }
        Ok(scan.edge)
    }

    /// Checks the bodies of one frame. The first that is damaged is returned, for the caller to judge; the others are
    /// told at once.
    fn bodies(&mut self, segment: &Segment, entries: &[Entry]) -> Result<Option<Error>, Error> {
        let mut first = None;
        let mut stored = Vec::new();
        for entry in entries {
            stored.clear();
            stored.resize(BODY_PREFIX_BYTES + entry.length as usize, 0);
            segment.read_disk(u64::from(entry.offset), &mut stored)?;
            let prefix = stored.first_chunk().expect("at least the prefix was read");
            let is_intact = split_prefix(*prefix) == (entry.length, entry.crc)
                && crc32c::crc32c(&stored[BODY_PREFIX_BYTES..]) == entry.crc;
            self.counts.bodies += 1;
            self.counts.body_bytes += u64::from(entry.length);
            if !is_intact {
                let what = "a stored body does not match its checksum";
                let error = Error::corrupt(&segment.path, entry.offset.into(), Flaw::BodyChecksum, what);
                match &first {
                    None => first = Some(error),
                    Some(_) => (self.damage)(error),
                }
            }
        }
        Ok(first)
    }
}

/// Whether a seal or a fence is among the intact frames from `at` on: then everything before it was durable.
fn is_sealed_behind(scan: &Scan<'_>, at: u64) -> Result<bool, Error> {
    let mut next = Some(at);
    while let Some(at) = next {
        let (kind, end) = scan.frame_at(at)?;
        if kind != Kind::Batch {
            return Ok(true);
        }
        next = scan.find_frame_from(end)?;
    }
    Ok(false)
}

/// A segment, to be read again now and then: disks forget silently. Holding it keeps the file from being used for another
/// segment.
#[derive(Debug)]
pub struct Scrub {
    pub(super) segment: Arc<Segment>,
    pub(super) end: Edge,
}

impl Scrub {
    /// Its first batch; the next one to scrub is the one behind it.
    pub fn first(&self) -> Position {
        self.segment.header.first.position.next()
    }

    /// Reads everything. `pause` is called with bytes that were read and may take its time; damage goes to `damage`.
    pub fn run(&self, pause: &mut dyn FnMut(u64), damage: &mut dyn FnMut(Error)) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let batch = &mut |_: Batch<'_>| Ok(());
        Check { counts: &mut counts, batch, damage, pause }.segment(&self.segment, Some(self.end))?;
        Ok(counts)
    }
}
