//! Writing frames, rolling to the next segment, and reading them back in order.

use super::Local;
use super::names;
use super::reserve::{is_full, lacks_handles};
use super::segment::{Header, Segment};
use super::shared::Pending;
use super::tail_pages::{Layout, Overflow};
use crate::disk::{DiskFile, write_all};
use crate::draft::Draft;
use crate::error::Error;
use crate::frame::{self, FIXED_BYTES, Fixed, Kind};
use crate::hash::mix;
use crate::journal::{Batch, Epoch, Position};
use crate::limits::{BATCH_BYTES, BULK_READ_BYTES, MAX_SEGMENT_BYTES, ORDINAL_LIMIT, SEGMENT_HEADER_BYTES};
use crate::ticket::Ticket;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// A frame whose head is encoded.
struct EncodedFrame<'a> {
    bytes: u64,
    pieces: &'a [Bytes],
}

/// A frame that is to be synced.
struct Written {
    file: Arc<dyn DiskFile>,
    /// The frame's pages, if they are left to whoever waits for the sync.
    unwritten: Option<Arc<Layout>>,
}

impl Local {
    pub(super) fn write_batch(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        assert!(self.fenced_at.is_some(), "the journal was not fenced");
        assert_eq!(at, self.edge.position.next(), "an append goes behind the tail");
        let bytes = frame::frame_bytes(draft);
        if bytes > BATCH_BYTES {
            return Err(Error::TooLarge { bytes, limit: BATCH_BYTES });
        }
        self.shared.begin();
        if let Err(error) = self.make_room(bytes as u64) {
            self.shared.abandon();
            return Err(error);
        }
        let fixed = self.fixed(Kind::Batch, at, self.edge.epoch, draft);
        let chain = frame::encode(&mut self.head, &fixed, draft);
        let bodies_at = self.offset + self.head.len() as u64;
        let frame = EncodedFrame { bytes: bytes as u64, pieces: &draft.pieces };
        let Written { file, unwritten } =
            self.write_frame(&frame, true).inspect_err(|_| self.shared.abandon())?;
        let (_, table) = frame::split(&fixed, &self.head).expect("the head was just made from the draft");
        self.active().extend_table(bodies_at, table);
        self.edge_before_last = self.edge;
        self.edge.position = at;
        self.edge.chain = chain;
        self.edge.body.0 += u64::from(fixed.body_count);
        self.is_sealed = false;
        if self.reserve.is_held() {
            let bytes = self.active().header.bytes;
            self.spare.prepare(self.offset, bytes);
        }
        self.active().set_unwritten(unwritten.clone());
        Ok(Ticket::local(Pending {
            file,
            unwritten,
            segment: self.active().clone(),
            shared: self.shared.clone(),
            reserve: self.reserve.clone(),
            _lock: self.lock.clone(),
            position: at,
            is_relaxed: self.is_relaxed(),
        }))
    }

    /// Opens an epoch. Synced at once: this writer may not act in it before.
    pub(super) fn write_fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error> {
        self.shared.assert_idle();
        if epoch <= self.edge.epoch || epoch.0 > ORDINAL_LIMIT {
            return Err(Error::Fenced { asked: epoch, seen: self.edge.epoch });
        }
        self.move_in()?;
        self.rewrite_unsure()?;
        self.note_extent()?;
        let draft = Draft { records: owner.to_le_bytes().to_vec(), ..Draft::default() };
        self.write_unnumbered(Kind::Fence, epoch, &draft)?;
        self.edge.epoch = epoch;
        self.fenced_at = Some(self.edge.position);
        Ok(self.edge.position)
    }

    /// Writes again what the life before wrote last, and syncs it. If its sync failed, the system may hold those bytes in
    /// memory and think that the disk has them: then no sync would ever write them, and they would be lost in the next
    /// power failure, after somebody was told about them.
    fn rewrite_unsure(&mut self) -> Result<(), Error> {
        let active = self.active();
        let file = active.file()?;
        let mut block = vec![0; BULK_READ_BYTES];
        let mut at = self.unsure_from;
        let failed = |error| self.shared.stop(Error::io("write", &active.path, error));
        while at < self.offset {
            let count = block.len().min((self.offset - at) as usize);
            active.read_exact(at, &mut block[..count])?;
            write_all(&*file, at, &block[..count]).map_err(failed)?;
            at += count as u64;
        }
        file.sync_data().map_err(|error| self.shared.stop(Error::io("sync", &active.path, error)))
    }

    /// Seals what was written. Synced at once: were the seal and the next batch both in flight, a power failure
    /// could keep the later one alone and make a healthy journal look damaged.
    pub(super) fn write_seal(&mut self) -> Result<(), Error> {
        self.shared.assert_idle();
        if self.is_sealed || self.edge.position == Position(0) {
            return Ok(());
        }
        self.write_unnumbered(Kind::Seal, self.edge.epoch, &Draft::default())
    }

    /// Writes and syncs a frame that takes no position.
    fn write_unnumbered(&mut self, kind: Kind, epoch: Epoch, draft: &Draft) -> Result<(), Error> {
        let bytes = frame::frame_bytes(draft) as u64;
        self.make_room(bytes)?;
        // It says that everything before it is durable, so that has to be so before it is.
        self.sync_if_relaxed()?;
        let fixed = self.fixed(kind, self.edge.position, epoch, draft);
        frame::encode(&mut self.head, &fixed, draft);
        let frame = EncodedFrame { bytes, pieces: &[] };
        let Written { file, .. } = self.write_frame(&frame, false)?;
        self.is_sealed = true;
        let active = self.active();
        file.sync_data().map_err(|error| self.shared.stop(Error::io("sync", &active.path, error)))
    }

    /// Makes durable what was committed without syncing.
    pub(super) fn sync_if_relaxed(&self) -> Result<(), Error> {
        if !self.is_relaxed() {
            return Ok(());
        }
        let active = self.active();
        let synced = active.file()?.sync_data();
        synced.map_err(|error| self.shared.stop(Error::io("sync", &active.path, error)))
    }

    pub(super) fn fixed(&self, kind: Kind, position: Position, epoch: Epoch, draft: &Draft) -> Fixed {
        let small = |count: usize| u32::try_from(count).expect("a batch is below 4 GiB");
        Fixed {
            kind,
            position,
            epoch,
            time: draft.time,
            chain_before: self.edge.chain,
            first_body: self.edge.body,
            record_count: draft.record_count,
            records_bytes: small(draft.records.len()),
            body_count: small(draft.body_lengths.len()),
            bodies_bytes: draft.body_bytes() as u64,
        }
    }

    /// Writes the encoded head and the bodies at the tail, in one call to the system where it can. With `may_wait` they are
    /// returned instead, where writing takes its time. Returns also the file that is to be synced.
    fn write_frame(&mut self, frame: &EncodedFrame<'_>, may_wait: bool) -> Result<Written, Error> {
        let active = self.active().clone();
        assert!(self.offset + frame.bytes <= u64::from(active.header.bytes));
        let file = active.file()?;
        let is_left = may_wait && self.can_leave(&*file);
        let write = |local: &mut Local| {
            let written = Overflow::Written { file: &*file, is_cached: local.is_relaxed() };
            local.lay_out(frame, if is_left { Overflow::Left } else { written })?;
            if is_left { Ok(()) } else { local.tail_pages.write(&*file, local.is_relaxed()) }
        };
        let mut written = write(self);
        if written.as_ref().is_err_and(is_full) && self.reserve.release() {
            written = write(self);
        }
        // Where room cannot be reserved a full disk shows here, or takes the reserve. A part of a frame is none: the next one
        // takes its place.
        written.map_err(|error| match is_full(&error) {
            true => Error::Full { file: active.path.clone(), cause: error },
            false => self.shared.stop(Error::io("write", &active.path, error)),
        })?;
        self.offset += frame.bytes;
        self.tail_pages.keep(self.offset);
        let unwritten = is_left.then(|| Arc::new(self.tail_pages.hand_over()));
        Ok(Written { file, unwritten })
    }

    /// Whether what is laid out may be left to the thread that waits for the sync. With the reserve gone the disk may be full, which
    /// must show where nothing is lost by it.
    fn can_leave(&self, file: &dyn DiskFile) -> bool {
        !self.is_relaxed() && file.is_direct() && self.reserve.is_held()
    }

    /// Lays the encoded head and the bodies out for the place behind the tail.
    fn lay_out(&mut self, frame: &EncodedFrame<'_>, overflow: Overflow<'_>) -> io::Result<()> {
        assert!(self.head.len() >= FIXED_BYTES);
        let header = &self.active().header;
        let (incarnation, file_bytes) = (header.incarnation, u64::from(header.bytes));
        frame::stamp(&mut self.head, incarnation, self.offset);
        if self.tail_pages.lacks_pages()
            && let Some(pages) = self.shared.take_pages()
        {
            self.tail_pages.take_back(pages);
        }
        let place = (self.offset, frame.bytes, file_bytes);
        self.tail_pages.lay_out(place, &self.head, frame.pieces, overflow)
    }

    /// Whether the last segment takes a frame of `bytes`.
    fn has_place(&self, bytes: u64) -> bool {
        self.offset + bytes <= u64::from(self.active().header.bytes) && !self.must_roll
    }

    /// Makes the last segment one that takes a frame of `bytes`.
    fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        if self.has_place(bytes) {
            return Ok(());
        }
        // Then a power failure can tear only the last segment, as with syncing.
        self.sync_if_relaxed()?;
        let needed = SEGMENT_HEADER_BYTES as u64 + bytes;
        let segment_bytes = u64::from(self.options.segment_bytes).max(needed);
        assert!(segment_bytes <= u64::from(MAX_SEGMENT_BYTES), "a batch fits the largest segment");
        self.add_segment(segment_bytes as u32)
    }

    /// Adds a segment behind the tail. Its header and its name are durable before anything is written into it, so a
    /// segment file is never half made, and its existence says that the one before is complete.
    pub(super) fn add_segment(&mut self, bytes: u32) -> Result<(), Error> {
        let ordinal = self.segments.last().map_or(1, |segment| segment.header.ordinal + 1);
        let before = self.segments.last().map_or(0, |segment| segment.header.incarnation);
        let header = Header {
            partition: self.options.partition,
            ordinal,
            // Never 0, which is what unwritten space looks like.
            incarnation: mix(&[self.options.seed, before, ordinal, self.edge.epoch.0]) | 1,
            bytes,
            is_relaxed: self.is_relaxed(),
            first: self.edge,
        };
        let name = names::segment(ordinal);
        let path = self.disk.path(&name);
        let mut made = self.spare.make(&header);
        if made.as_ref().is_err_and(lacks_handles) {
            self.handles.close_all();
            made = self.spare.make(&header);
        }
        if made.as_ref().is_err_and(is_full) && self.reserve.release() {
            made = self.spare.make(&header);
        }
        let (file, from) = made.map_err(|error| self.classify(&path, error))?;
        self.disk
            .rename(from, &name)
            .and_then(|()| self.disk.sync_dir())
            .map_err(|error| self.shared.stop(Error::io("name", &path, error)))?;
        if let Some(last) = self.segments.last() {
            last.close(self.edge);
        }
        // The newest closed segment may still have readers close behind the tail; the one before it hardly.
        if let [.., stale, _] = &self.segments[..]
            && let Ok(file) = stale.file()
        {
            self.spare.let_go(file);
        }
        let handle = self.handles.held(name, file);
        self.segments.push(Arc::new(Segment::fresh(path, handle, header)));
        self.share_unsynced();
        self.offset = SEGMENT_HEADER_BYTES as u64;
        self.tail_pages.clear();
        self.must_roll = false;
        self.note_extent()
    }

    /// A caller that relies on what is committed has to sync it first where that was not done.
    pub(super) fn share_unsynced(&self) {
        if self.is_relaxed() {
            self.snapshots.set_unsynced(self.active().clone());
        }
    }

    /// Notes which segments there are, so that none of them can be missing unnoticed.
    fn note_extent(&mut self) -> Result<(), Error> {
        let (oldest, newest) = (self.segments[0].header.ordinal, self.active().header.ordinal);
        self.extent.note(oldest..=newest).map_err(|error| self.shared.stop(error))
    }

    /// A disk without room for another segment, or a process without handles, has lost nothing yet; any other failure is
    /// final.
    fn classify(&self, path: &str, error: io::Error) -> Error {
        match is_full(&error) || lacks_handles(&error) {
            true => Error::Full { file: path.to_owned(), cause: error },
            false => self.shared.stop(Error::io("make", path, error)),
        }
    }

    pub(super) fn read_batches(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let from = from.max(Position(1));
        let first = self.segments[0].header.first.position.next();
        if from < first {
            return Err(Error::Trimmed { asked: from, first });
        }
        let behind = self.segments.partition_point(|segment| segment.header.first.position < from);
        let start = behind.saturating_sub(1);
        for segment in &self.segments[start..] {
            let end = segment.end.get().copied().unwrap_or(self.edge);
            let entries = segment.walk(end, &mut |frame| match frame.batch() {
                Some(batch) if batch.position >= from => each(batch),
                _ => Ok(()),
            })?;
            segment.set_table(entries);
        }
        Ok(())
    }
}
