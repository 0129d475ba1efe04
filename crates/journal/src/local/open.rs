//! Opening: take the lock, check every segment's header, find the tail, make it durable. Where there is a journal nothing
//! is changed before it is fenced: a process that opens it may find that it cannot be used, and must leave it as it was.
//!
//! Only the last segment is read; heads of older ones are read when replay or a body asks for them.

use super::extent::ExtentFile;
use super::fill::Spare;
use super::handles::Handles;
use super::reserve::Reserve;
use super::segment::{Edge, Segment};
use super::shared::Shared;
use super::snapshot::SnapshotFiles;
use super::tail_pages::TailPages;
use super::{Local, Options, names, recovery};
use crate::disk::{Disk, Guard, Lock};
use crate::error::{Error, Flaw};
use crate::limits::{MAX_SEGMENT_BYTES, RESERVE_MARGIN_SHARE, SEGMENT_HEADER_BYTES};
use std::sync::Arc;

impl Local {
    /// Opens the journal in `disk`, or begins one where there is none.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Local, Error> {
        let largest = options.segment_bytes.max(options.first_segment_bytes);
        assert!(largest <= MAX_SEGMENT_BYTES, "segments of {largest} bytes are above the limit");
        let lock = take_lock(&*disk)?;
        let listed = disk.list().map_err(|error| Error::io("list", &disk.path(""), error))?;
        let handles = Handles::new(disk.clone());
        let extent = ExtentFile::open(disk.clone(), options.partition, &listed)?;
        let segments = open_segments(&*disk, &handles, &options, &listed)?;
        let ordinals: Vec<u64> = segments.iter().map(|segment| segment.header.ordinal).collect();
        if let Some(missing) = extent.missing(&ordinals) {
            return Err(missing);
        }
        let shared = Arc::new(Shared::new(Default::default()));
        let is_there = |wanted: &str| listed.iter().any(|name| name == wanted);
        let margin_bytes = u64::from(options.segment_bytes / RESERVE_MARGIN_SHARE);
        let reserve_bytes = u64::from(options.reserve_segments) * u64::from(options.segment_bytes);
        let is_reserved = is_there(names::RESERVE);
        let reserve = Arc::new(Reserve::open(disk.clone(), reserve_bytes, margin_bytes, is_reserved)?);
        let snapshots =
            SnapshotFiles::open(disk.clone(), options.partition, shared.clone(), reserve.clone(), &listed);
        let snapshots = Arc::new(snapshots);
        let spare = Spare::new(disk.clone(), shared.clone(), &options, &listed);
        let mut journal = Local {
            offset: 0,
            edge: Edge::START,
            edge_before_last: Edge::START,
            fenced_at: None,
            is_sealed: false,
            must_roll: false,
            unsure_from: SEGMENT_HEADER_BYTES as u64,
            cut: None,
            head: Vec::new(),
            tail_pages: TailPages::new(),
            shared,
            snapshots,
            spare,
            reserve,
            segments,
            handles,
            extent,
            disk,
            options,
            lock: lock.into(),
        };
        journal.check_against_snapshots()?;
        if journal.segments.is_empty() {
            journal.begin()?
        } else {
            journal.recover()?
        }
        Ok(journal)
    }

    /// A new journal: its first segment, small, so that a first start is quick.
    fn begin(&mut self) -> Result<(), Error> {
        self.add_segment(self.options.first_segment_bytes.max(SEGMENT_HEADER_BYTES as u32))
    }

    /// Puts the directory in order, now that this journal is going to be written.
    pub(super) fn move_in(&mut self) -> Result<(), Error> {
        let listed = self.disk.list().map_err(|error| Error::io("list", &self.disk.path(""), error))?;
        remove_unfinished(&*self.disk, &listed)?;
        self.reserve.move_in(listed.iter().any(|name| name == names::RESERVE))
    }

    fn recover(&mut self) -> Result<(), Error> {
        let active = self.active().clone();
        active.hold()?;
        let tail = recovery::find_tail(&active)?;
        // What a killed process wrote may be only in the system's memory. A process that reads it from now on may tell
        // others, so it has to be durable first.
        active.file()?.sync_data().map_err(|error| Error::io("sync", &active.path, error))?;
        self.disk.sync_dir().map_err(|error| Error::io("sync", &self.disk.path(""), error))?;
        active.set_table(tail.entries);
        self.offset = tail.offset;
        self.tail_pages.read(&active, tail.offset)?;
        self.edge = tail.edge;
        self.is_sealed = tail.is_sealed;
        self.cut = tail.cut;
        self.unsure_from = tail.unsure_from;
        self.must_roll = tail.must_roll || active.header.is_relaxed != self.is_relaxed();
        self.shared.set_committed(self.edge.position);
        self.share_unsynced();
        self.check_tail_against_snapshots()
    }

    /// Everything that no snapshot contains must be there.
    fn check_against_snapshots(&self) -> Result<(), Error> {
        let newest = self.snapshots.newest().unwrap_or_default();
        let first = self.segments.first().map(|segment| segment.header.first.position);
        let missing = match first {
            Some(before) => before > newest,
            None => newest.0 > 0,
        };
        if missing {
            let name = self.disk.path(&names::segment(
                self.segments.first().map_or(1, |s| s.header.ordinal.saturating_sub(1)),
            ));
            let what = format!("the file is missing, and no snapshot contains batch {}", newest.0 + 1);
            return Err(Error::corrupt(&name, 0, Flaw::SegmentNeeded, what));
        }
        Ok(())
    }

    /// A snapshot is made only of committed batches, so the journal cannot end before it.
    fn check_tail_against_snapshots(&self) -> Result<(), Error> {
        match self.snapshots.newest() {
            Some(newest) if newest > self.edge.position => {
                let what =
                    format!("the journal ends at batch {}, a snapshot at {}", self.edge.position.0, newest.0);
                Err(Error::corrupt(&self.active().path, self.offset, Flaw::SnapshotAhead, what))
            }
            _ => Ok(()),
        }
    }
}

/// One process at a time.
pub(super) fn take_lock(disk: &dyn Disk) -> Result<Box<dyn Guard>, Error> {
    let holder = format!("process {}", std::process::id());
    match disk.lock(names::LOCK, &holder) {
        Ok(Lock::Held(guard)) => Ok(guard),
        Ok(Lock::Busy(holder)) => {
            let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
            Err(Error::Locked { path: disk.path(""), holder })
        }
        Err(error) => Err(Error::io("lock", &disk.path(names::LOCK), error)),
    }
}

fn remove_unfinished(disk: &dyn Disk, listed: &[String]) -> Result<(), Error> {
    let unfinished = [
        names::SPARE_UNFINISHED,
        names::SEGMENT_UNFINISHED,
        names::SNAPSHOT_UNFINISHED,
        names::RESERVE_UNFINISHED,
        names::EXTENT_UNFINISHED,
    ];
    for name in listed.iter().filter(|name| unfinished.contains(&name.as_str())) {
        disk.remove(name).map_err(|error| Error::io("remove", &disk.path(name), error))?;
    }
    Ok(())
}

/// Opens all segments and checks that each begins where the one before ends.
fn open_segments(
    disk: &dyn Disk,
    handles: &Arc<Handles>,
    options: &Options,
    listed: &[String],
) -> Result<Vec<Arc<Segment>>, Error> {
    let mut ordinals: Vec<u64> = listed.iter().filter_map(|name| names::parse_segment(name)).collect();
    ordinals.sort_unstable();
    let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(ordinals.len());
    for ordinal in ordinals {
        let name = names::segment(ordinal);
        let path = disk.path(&name);
        let segment = Segment::open(path.clone(), handles.closed(name))?;
        let header = &segment.header;
        if header.partition != options.partition {
            let (found, expected) = (header.partition, options.partition);
            return Err(Error::WrongPartition { file: path, found, expected });
        }
        if header.ordinal != ordinal {
            let what = format!("this is segment {}; the file was renamed", header.ordinal);
            return Err(Error::corrupt(&path, 16, Flaw::SegmentRenamed, what));
        }
        if let Some(before) = segments.last() {
            if before.header.ordinal + 1 != ordinal {
                let missing = disk.path(&names::segment(ordinal - 1));
                return Err(Error::corrupt(
                    &missing,
                    0,
                    Flaw::SegmentGap,
                    "the file is missing between two segments",
                ));
            }
            before.close(header.first);
        }
        segments.push(Arc::new(segment));
    }
    Ok(segments)
}
