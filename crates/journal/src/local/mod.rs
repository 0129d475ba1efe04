//! The journal on local segment files.
//!
//! One process writes: it holds the lock of the directory. `append` lays a frame out; the ticket writes what is
//! left of it and syncs it, so the caller chooses the thread that waits. After the first failed write or sync every call refuses, for nobody knows
//! what the disk kept.

mod append;
mod check;
mod extent;
mod fill;
#[cfg(test)]
mod flaws_tests;
mod handles;
#[cfg(test)]
mod interleaved_tests;
mod names;
mod open;
mod recovery;
mod reserve;
mod scan;
mod segment;
mod shared;
mod snapshot;
mod tail_pages;
#[cfg(test)]
mod tests;
mod trim;
mod verify;

pub use check::{Counts, Scrub};
pub use recovery::Cut;
pub(crate) use segment::{Entry, Segment};
pub(crate) use shared::Pending;
pub use verify::Inspector;

use crate::disk::{Disk, Guard};
use crate::draft::Draft;
use crate::error::Error;
use crate::journal::{
    Batch, BodyId, Description, Durability, Epoch, Journal, Position, Resolution, Snapshots, Space, Stretch,
};
use crate::limits;
use crate::place::Place;
use crate::ticket::Ticket;
use extent::ExtentFile;
use fill::Spare;
use handles::Handles;
use reserve::Reserve;
use segment::Edge;
use shared::Shared;
use snapshot::SnapshotFiles;
use std::sync::Arc;
use tail_pages::TailPages;

/// How segments get their zeros. A segment whose blocks were written before syncs in about half the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    /// One spare ahead, by a thread of its own.
    Background,
    /// When a segment is made, while the writer waits.
    Inline,
    /// Not at all: room is reserved, and the first write of each block pays. No threads, for simulation.
    Never,
}

/// How to open a local journal.
#[derive(Debug, Clone)]
pub struct Options {
    pub partition: u32,
    /// [`Durability::LocalSync`], or [`Durability::Os`] to skip the sync and survive only the end of the process.
    pub durability: Durability,
    pub filling: Filling,
    pub segment_bytes: u32,
    pub first_segment_bytes: u32,
    /// Room held for a full disk, in segments; 0 to hold none.
    pub reserve_segments: u32,
    /// Random, and another one each time: no stranger may guess what a frame looks like.
    pub seed: u64,
}

impl Options {
    pub fn new(seed: u64) -> Options {
        Options {
            partition: 0,
            durability: Durability::LocalSync,
            filling: Filling::Background,
            segment_bytes: limits::SEGMENT_BYTES,
            first_segment_bytes: limits::FIRST_SEGMENT_BYTES,
            reserve_segments: limits::RESERVE_SEGMENTS,
            seed,
        }
    }
}

/// A journal in a directory.
#[derive(Debug)]
pub struct Local {
    disk: Arc<dyn Disk>,
    options: Options,
    /// Oldest first; the last one is being written.
    segments: Vec<Arc<Segment>>,
    handles: Arc<Handles>,
    extent: ExtentFile,
    /// Where the next frame goes in the last segment, and what is known there.
    offset: u64,
    edge: Edge,
    /// What is known before the last batch: it may be in flight.
    edge_before_last: Edge,
    /// The tail when this writer took over; `None` before that.
    fenced_at: Option<Position>,
    is_sealed: bool,
    must_roll: bool,
    /// The bytes between here and the tail may be in memory only: see [`Local::rewrite_unsure`].
    unsure_from: u64,
    /// What opening has cut off.
    cut: Option<Cut>,
    /// Reused for every head.
    head: Vec<u8>,
    tail_pages: TailPages,
    shared: Arc<Shared>,
    snapshots: Arc<SnapshotFiles>,
    spare: Spare,
    reserve: Arc<Reserve>,
    /// Last, so that the directory is free only when the filling thread has ended.
    lock: Arc<dyn Guard>,
}

impl Local {
    fn active(&self) -> &Arc<Segment> {
        self.segments.last().expect("a journal has at least one segment")
    }

    /// What was found at the tail when the journal was opened and is not part of it.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    fn is_relaxed(&self) -> bool {
        self.options.durability == Durability::Os
    }
}

impl Journal for Local {
    fn describe(&self) -> Description {
        Description {
            max_batch_bytes: limits::BATCH_BYTES,
            durability: self.options.durability,
            is_shared: false,
        }
    }

    fn fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error> {
        self.shared.check()?;
        self.write_fence(owner, epoch)
    }

    fn epoch(&self) -> Epoch {
        self.edge.epoch
    }

    fn tail(&self) -> Position {
        self.edge.position
    }

    fn first(&self) -> Position {
        self.segments[0].header.first.position.next()
    }

    fn next_body(&self) -> BodyId {
        self.edge.body
    }

    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        self.shared.check()?;
        self.write_batch(draft, at)
    }

    fn resolve(&mut self, at: Position) -> Result<Resolution, Error> {
        self.shared.check()?;
        // Nobody else can write while the directory is locked, so what is there since the fence is ours.
        let fenced_at = self.fenced_at.expect("only the fenced writer resolves");
        Ok(match at {
            at if at > self.edge.position => Resolution::Absent,
            at if at > fenced_at => Resolution::Committed,
            _ => Resolution::Foreign,
        })
    }

    fn read(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.shared.check()?;
        self.read_batches(from, each)
    }

    fn place(&self, body: BodyId) -> Option<Place> {
        if body >= self.edge.body {
            return None;
        }
        let behind = self.segments.partition_point(|segment| segment.header.first.body <= body);
        let segment = self.segments[..behind].last()?.clone();
        Some(Place::in_segment(segment, body))
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.shared.check()?;
        self.write_seal()
    }

    fn trim(&mut self, before: Position) -> Result<(), Error> {
        self.shared.check()?;
        self.drop_segments(before)
    }

    fn stretches(&self) -> Vec<Stretch> {
        let describe = |segment: &Arc<Segment>| Stretch {
            first: segment.header.first.position.next(),
            first_body: segment.header.first.body,
            bytes: u64::from(segment.header.bytes),
        };
        self.segments.iter().map(describe).collect()
    }

    fn scrub(&self, after: Position) -> Option<Scrub> {
        let behind = self.segments.partition_point(|segment| segment.header.first.position.next() <= after);
        let segment = self.segments.get(behind)?;
        // The last one is read up to what is committed: what is in flight is not on the disk, or not all of it, and its turn
        // comes with the next round.
        let committed = if self.shared.is_in_flight() { self.edge_before_last } else { self.edge };
        let end = segment.end.get().copied().unwrap_or(committed);
        Some(Scrub { segment: segment.clone(), end })
    }

    fn has_reserve(&self) -> bool {
        self.reserve.is_held()
    }

    fn refill_reserve(&mut self) -> Result<bool, Error> {
        self.shared.check()?;
        // Messages can be taken without a spare, and not without the reserve.
        Ok(self.reserve.refill()? || self.spare.give_up() && self.reserve.refill()?)
    }

    fn lacking_bytes(&self) -> u64 {
        let lacking = self.reserve.lacking_bytes().unwrap_or_default();
        lacking.saturating_sub(self.spare.held_bytes())
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.snapshots.clone()
    }

    fn space(&self) -> Result<Space, Error> {
        let segments: u64 = self.segments.iter().map(|segment| u64::from(segment.header.bytes)).sum();
        let snapshots: u64 = self.snapshots.latest()?.iter().map(|snapshot| snapshot.bytes).sum();
        let free_bytes =
            self.disk.free_bytes().map_err(|error| Error::io("ask", &self.disk.path(""), error))?;
        let held = self.spare.held_bytes() + self.reserve.held_bytes();
        Ok(Space { used_bytes: segments + held + snapshots, free_bytes })
    }
}
