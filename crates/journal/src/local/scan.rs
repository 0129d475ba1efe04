//! Reading frame heads one after another, and checking that each belongs where it is.
//!
//! A scan reads heads and skips bodies. "No intact frame here" is an answer; an intact frame that does not continue
//! the one before it is damage.

use super::segment::{Edge, Entry, Segment, list_bodies};
use crate::disk::read_full;
use crate::error::{Error, Flaw};
use crate::frame::{self, FIXED_BYTES, Fixed, Kind};
use crate::journal::{Batch, BodyId, BodyLengths, Epoch, Position};
use crate::limits::{BULK_READ_BYTES, FRAME_ALIGNMENT, ORDINAL_LIMIT, SCAN_READ_BYTES, SEGMENT_HEADER_BYTES};

/// A position in a segment, between two frames.
#[derive(Debug)]
pub(crate) struct Scan<'s> {
    segment: &'s Segment,
    /// Where the next frame begins.
    pub(crate) offset: u64,
    /// What is known there.
    pub(crate) edge: Edge,
    buffer: Vec<u8>,
    buffer_at: u64,
    read: fn(&Segment, u64, &mut [u8]) -> Result<(), Error>,
}

/// An intact frame in its right place.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) fixed: Fixed,
    /// Where the bodies begin.
    pub(crate) bodies_at: u64,
    records: &'a [u8],
    table: &'a [[u8; 8]],
}

impl<'a> Frame<'a> {
    pub(crate) fn list_bodies(&self, entries: &mut Vec<Entry>) {
        list_bodies(self.bodies_at, self.table, entries);
    }

    pub(crate) fn batch(&self) -> Option<Batch<'a>> {
        (self.fixed.kind == Kind::Batch).then_some(Batch {
            position: self.fixed.position,
            epoch: self.fixed.epoch,
            time: self.fixed.time,
            record_count: self.fixed.record_count,
            records: self.records,
            first_body: self.fixed.first_body,
            body_lengths: BodyLengths { table: self.table },
        })
    }
}

impl<'s> Scan<'s> {
    pub(crate) fn new(segment: &'s Segment) -> Scan<'s> {
        let (edge, offset) = (segment.header.first, SEGMENT_HEADER_BYTES as u64);
        Scan { segment, offset, edge, buffer: Vec::new(), buffer_at: 0, read: Segment::read_exact }
    }

    /// Reads what is on the disk, whatever is on its way there.
    pub(crate) fn on_disk(segment: &'s Segment) -> Scan<'s> {
        Scan { read: Segment::read_disk, ..Scan::new(segment) }
    }

    /// The frame at the current offset, and moves behind it; `None` when there is no intact one.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, Error> {
        let at = self.offset;
        let Some(fixed) = self.intact_head()? else { return Ok(None) };
        let head_bytes = fixed.head_bytes();
        let head = self.buffered(at, head_bytes as usize);
        let chain = frame::chain_of(head);
        let edge = self
            .follow(&fixed, chain)
            .map_err(|(flaw, what)| Error::corrupt(&self.segment.path, at, flaw, what))?;
        self.edge = edge;
        self.offset = at + fixed.frame_bytes().expect("an intact head fits its segment");
        let Some((records, table)) = frame::split(&fixed, self.buffered(at, head_bytes as usize)) else {
            return Err(Error::corrupt(
                &self.segment.path,
                at,
                Flaw::FrameTable,
                "the frame's table contradicts its length",
            ));
        };
        Ok(Some(Frame { fixed, bodies_at: at + head_bytes, records, table }))
    }

    /// Goes on at an intact frame behind damage, taking its word for what was before it.
    pub(crate) fn resume_at(&mut self, offset: u64) -> Result<(), Error> {
        self.offset = offset;
        let Some(fixed) = self.intact_head()? else {
            return Err(Error::corrupt(&self.segment.path, offset, Flaw::FrameChecksum, "the frame is gone"));
        };
        let (before, opened) = match fixed.kind {
            Kind::Batch => (1, 0),
            Kind::Seal => (0, 0),
            Kind::Fence => (0, 1),
        };
        self.edge = Edge {
            position: Position(fixed.position.0.saturating_sub(before)),
            epoch: Epoch(fixed.epoch.0.saturating_sub(opened)),
            body: fixed.first_body,
            chain: fixed.chain_before,
        };
        Ok(())
    }

    /// Whether an intact frame begins here; leaves its head in the buffer.
    fn intact_head(&mut self) -> Result<Option<Fixed>, Error> {
        let at = self.offset;
        let incarnation = self.segment.header.incarnation;
        let room = u64::from(self.segment.header.bytes).saturating_sub(at);
        if room < FIXED_BYTES as u64 {
            return Ok(None);
        }
        self.load(at, FIXED_BYTES)?;
        let bytes = self.buffered(at, FIXED_BYTES).first_chunk().expect("just loaded");
        let Some(fixed) = Fixed::decode(bytes, incarnation) else { return Ok(None) };
        if fixed.frame_bytes().is_none_or(|claimed| claimed > room) {
            return Ok(None);
        }
        let head_bytes = fixed.head_bytes() as usize;
        self.load(at, head_bytes)?;
        Ok(frame::is_intact(self.buffered(at, head_bytes), incarnation, at).then_some(fixed))
    }

    /// What is known behind the frame, or how it contradicts what is known before it.
    fn follow(&self, fixed: &Fixed, chain: u64) -> Result<Edge, (Flaw, String)> {
        let before = self.edge;
        if fixed.chain_before != before.chain {
            return Err((
                Flaw::FrameChain,
                "the chain is broken: the frame continues another one".to_owned(),
            ));
        }
        if fixed.first_body != before.body {
            let what = format!("body {} follows where {} should", fixed.first_body.0, before.body.0);
            return Err((Flaw::FrameBodies, what));
        }
        let (position, epoch) = (fixed.position, fixed.epoch);
        if fixed.kind != Kind::Batch && fixed.body_count > 0 || epoch.0 > ORDINAL_LIMIT {
            return Err((Flaw::FrameFields, "the frame's fields contradict each other".to_owned()));
        }
        let (expected_position, fits_epoch) = match fixed.kind {
            Kind::Batch => (before.position.next(), epoch == before.epoch),
            Kind::Seal => (before.position, epoch == before.epoch),
            Kind::Fence => (before.position, epoch > before.epoch),
        };
        if position != expected_position {
            let what = format!("batch {} follows where {} should", position.0, expected_position.0);
            return Err((Flaw::FramePosition, what));
        }
        if !fits_epoch {
            return Err((Flaw::FrameEpoch, format!("epoch {} follows epoch {}", epoch.0, before.epoch.0)));
        }
        Ok(match fixed.kind {
            Kind::Batch => {
                Edge { position, epoch, body: BodyId(before.body.0 + u64::from(fixed.body_count)), chain }
            }
            Kind::Seal | Kind::Fence => Edge { epoch, ..before },
        })
    }

    /// Makes the buffer hold `count` bytes from `at` on. The caller has checked that they are inside the segment.
    fn load(&mut self, at: u64, count: usize) -> Result<(), Error> {
        if at >= self.buffer_at && at + count as u64 <= self.buffer_at + self.buffer.len() as u64 {
            return Ok(());
        }
        let room = u64::from(self.segment.header.bytes) - at;
        let wanted = count.max(SCAN_READ_BYTES).min(room as usize);
        self.buffer.clear();
        self.buffer.resize(wanted, 0);
        self.buffer_at = at;
        (self.read)(self.segment, at, &mut self.buffer)
    }

    fn buffered(&self, at: u64, count: usize) -> &[u8] {
        let start = (at - self.buffer_at) as usize;
        &self.buffer[start..start + count]
    }

    /// How much of a frame that is not intact was begun at the current offset, as far as it can be made out: its incarnation
    /// is there, or it continues what is before it.
    pub(crate) fn begun_bytes(&mut self) -> Result<u64, Error> {
        let (at, incarnation) = (self.offset, self.segment.header.incarnation);
        let room = u64::from(self.segment.header.bytes).saturating_sub(at);
        if room < FIXED_BYTES as u64 {
            return Ok(0);
        }
        self.load(at, FIXED_BYTES)?;
        let mut bytes = [0; FIXED_BYTES];
        bytes.copy_from_slice(self.buffered(at, FIXED_BYTES));
        let is_of_this_life = bytes[..8] == incarnation.to_le_bytes();
        bytes[..8].copy_from_slice(&incarnation.to_le_bytes());
        let claimed = Fixed::decode(&bytes, incarnation);
        let continues = |fixed: &Fixed| {
            fixed.chain_before == self.edge.chain && fixed.position == self.edge.position.next()
        };
        if !is_of_this_life && !claimed.as_ref().is_some_and(continues) {
            return Ok(0);
        }
        let whole = claimed.and_then(|fixed| fixed.frame_bytes()).filter(|claimed| *claimed <= room);
        Ok(whole.unwrap_or(FIXED_BYTES as u64))
    }

    /// The kind of an intact frame, and where it ends.
    pub(crate) fn frame_at(&self, offset: u64) -> Result<(Kind, u64), Error> {
        let mut there = Scan::new(self.segment);
        there.offset = offset;
        let gone = || Error::corrupt(&self.segment.path, offset, Flaw::FrameChecksum, "the frame is gone");
        let fixed = there.intact_head()?.ok_or_else(gone)?;
        Ok((fixed.kind, offset + fixed.frame_bytes().expect("an intact head fits its segment")))
    }

    /// Looks for an intact frame behind the current offset, wherever it may begin.
    pub(crate) fn find_successor(&self) -> Result<Option<u64>, Error> {
        self.find_frame_from(self.offset + 1)
    }

    /// Looks for an intact frame from `offset` on.
    pub(crate) fn find_frame_from(&self, offset: u64) -> Result<Option<u64>, Error> {
        let segment = self.segment;
        let incarnation = segment.header.incarnation.to_le_bytes();
        let end = u64::from(segment.header.bytes);
        let mut at = offset.next_multiple_of(FRAME_ALIGNMENT);
        let mut block = vec![0; BULK_READ_BYTES];
        while at < end {
            let count = read_full(&*segment.file()?, at, &mut block)
                .map_err(|error| Error::io("read", &segment.path, error))?
                .min((end - at) as usize);
            let (words, _) = block[..count].as_chunks::<8>();
            if words.is_empty() {
                break;
            }
            for n in words.iter().enumerate().filter(|(_, word)| **word == incarnation).map(|(n, _)| n) {
                let mut candidate = Scan::new(segment);
                candidate.offset = at + n as u64 * FRAME_ALIGNMENT;
                if candidate.intact_head()?.is_some() {
                    return Ok(Some(candidate.offset));
                }
            }
            at += words.len() as u64 * FRAME_ALIGNMENT;
        }
        Ok(None)
    }
}
