//! A journal in memory that several may open and only the newest owner may write: what a distributed log would be, without
//! the distance. For tests, and as the proof that nothing above the trait needs files.
//!
//! A batch is kept as a frame, so damage to it is found by the same checksums and the same chain as on disk.

use crate::distant::{Arrival, RequestId};
use crate::draft::{BODY_PREFIX_BYTES, Draft, split_prefix};
use crate::error::{Error, Flaw};
use crate::frame::{self, FIXED_BYTES, Fixed, Kind};
use crate::journal::{
    Batch, BodyId, BodyLengths, Description, Durability, Epoch, Journal, Position, ReadSnapshot, Resolution,
    SnapshotInfo, Snapshots, Space, Stretch, WriteSnapshot,
};
use crate::limits::{BATCH_BYTES, SNAPSHOTS_KEPT};
use crate::local::Scrub;
use crate::place::{Bodies, Place};
use crate::ticket::{Outcome, Ticket};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// There is only one life of this medium.
const INCARNATION: u64 = 1;

/// The medium, which outlives the journals that write it. Clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// What is left, oldest first.
    batches: Vec<Arc<Stored>>,
    /// The last batch that was given up, its chain and the body behind it.
    trimmed: Link,
    epoch: Epoch,
    /// Up to here nothing may be torn.
    sealed: Position,
    /// Of this epoch no request up to this one is taken any more; see [`crate::Distant`].
    barred: (Epoch, RequestId),
    snapshots: BTreeMap<Position, Content>,
    /// Damaged, and kept for a person to look at.
    aside: Vec<Content>,
}

/// What is known behind a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) position: Position,
    pub(crate) body: BodyId,
    epoch: Epoch,
    chain: u64,
}

impl Default for Link {
    fn default() -> Link {
        Link { position: Position(0), body: BodyId(1), epoch: Epoch(0), chain: 0 }
    }
}

/// A frame: head, then bodies with their prefixes.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    position: Position,
    first_body: BodyId,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Content {
    bytes: Vec<u8>,
    crc: u32,
}

impl Log {
    pub fn new() -> Log {
        Log::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the log. A batch that was not written whole is cut off if it is the last one and nothing was sealed behind it.
    pub fn open(&self) -> Result<InMemory, Error> {
        let mut state = self.lock();
        if let Some(last) = state.batches.last()
            && last.position > state.sealed
            && last.is_torn()
        {
            state.batches.pop();
        }
        let mut link = state.trimmed;
        for stored in &state.batches {
            link = stored.check(link, |_| Ok(()))?;
        }
        let epoch = state.epoch;
        drop(state);
        let (fence, is_in_flight) = (None, Arc::default());
        Ok(InMemory { log: self.clone(), link, epoch, fence, is_in_flight })
    }

    /// Takes a batch behind the tail, once, from the owner and nobody else.
    pub(crate) fn accept(&self, epoch: Epoch, request: RequestId, stored: &Arc<Stored>) -> Arrival {
        let mut state = self.lock();
        if epoch < state.epoch {
            return Arrival::Fenced;
        }
        let tail = state.batches.last().map_or(state.trimmed.position, |last| last.position);
        if stored.position <= tail {
            let there = state.batches.iter().find(|there| there.position == stored.position);
            let is_same = there.is_some_and(|there| there.bytes == stored.bytes);
            return if is_same { Arrival::Committed } else { Arrival::Barred };
        }
        let (barred_epoch, barred) = state.barred;
        if stored.position != tail.next() || epoch == barred_epoch && request <= barred {
            return Arrival::Barred;
        }
        state.batches.push(stored.clone());
        Arrival::Committed
    }

    /// Takes none of the requests up to this one any more.
    pub(crate) fn bar(&self, epoch: Epoch, last: RequestId) {
        let mut state = self.lock();
        state.barred = state.barred.max((epoch, last));
    }

    /// Changes the frame of a batch, as a failing medium would.
    pub(crate) fn damage(&self, at: Position, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        let stored = state.batches.iter_mut().find(|stored| stored.position == at);
        change(&mut Arc::make_mut(stored.expect("the damaged batch is there")).bytes);
    }

    /// Changes the content of a snapshot, as a failing medium would.
    pub(crate) fn damage_snapshot(&self, at: Position) {
        let mut state = self.lock();
        let content = state.snapshots.get_mut(&at).expect("the damaged snapshot is there");
        content.bytes[0] ^= 1;
    }
}

impl Stored {
    fn path(&self) -> String {
        format!("memory/{:020}.batch", self.position.0)
    }

    fn damaged(&self, flaw: Flaw, what: impl Into<String>) -> Error {
        Error::corrupt(&self.path(), 0, flaw, what)
    }

    fn fixed(&self) -> Option<Fixed> {
        Fixed::decode(self.bytes.first_chunk::<FIXED_BYTES>()?, INCARNATION)
    }

    /// The head, if it is what was written.
    fn head(&self) -> Option<(Fixed, &[u8])> {
        let fixed = self.fixed()?;
        let head = self.bytes.get(..usize::try_from(fixed.head_bytes()).ok()?)?;
        frame::is_intact(head, INCARNATION, self.position.0).then_some((fixed, head))
    }

    /// Whether a write can have ended in the middle of it.
    fn is_torn(&self) -> bool {
        let whole = self.head().map(|(fixed, _)| fixed.head_bytes() + fixed.bodies_bytes);
        whole != Some(self.bytes.len() as u64)
    }

    /// Checks that the batch is whole and continues `before`; returns what is known behind it.
    pub(crate) fn check(
        &self,
        before: Link,
        visit: impl FnOnce(Batch<'_>) -> Result<(), Error>,
    ) -> Result<Link, Error> {
        let (fixed, head) = self
            .head()
            .ok_or_else(|| self.damaged(Flaw::FrameChecksum, "the batch does not match its checksum"))?;
        let flaw = match () {
            () if fixed.chain_before != before.chain => Some(Flaw::FrameChain),
            () if fixed.first_body != before.body => Some(Flaw::FrameBodies),
            () if fixed.position != before.position.next() => Some(Flaw::FramePosition),
            () if fixed.epoch < before.epoch => Some(Flaw::FrameEpoch),
            () => None,
        };
        if let Some(flaw) = flaw {
            return Err(self.damaged(flaw, "the batch continues another one"));
        }
        let (records, table) = frame::split(&fixed, head)
            .ok_or_else(|| self.damaged(Flaw::FrameTable, "the table contradicts its length"))?;
        visit(Batch {
            position: fixed.position,
            epoch: fixed.epoch,
            time: fixed.time,
            record_count: fixed.record_count,
            records,
            first_body: fixed.first_body,
            body_lengths: BodyLengths { table },
        })?;
        let body = BodyId(fixed.first_body.0 + u64::from(fixed.body_count));
        Ok(Link { position: fixed.position, body, epoch: fixed.epoch, chain: frame::chain_of(head) })
    }
}

impl Bodies for Stored {
    fn read(&self, body: BodyId) -> Result<Vec<u8>, Error> {
        let (fixed, head) = self
            .head()
            .ok_or_else(|| self.damaged(Flaw::FrameChecksum, "the batch does not match its checksum"))?;
        let (_, table) = frame::split(&fixed, head)
            .ok_or_else(|| self.damaged(Flaw::FrameTable, "the table contradicts its length"))?;
        let mut at = head.len();
        for (n, entry) in table.iter().enumerate() {
            let (length, crc) = split_prefix(*entry);
            at += BODY_PREFIX_BYTES;
            if self.first_body.0 + n as u64 == body.0 {
                let bytes = self.bytes.get(at..at + length as usize);
                let whole = bytes.filter(|bytes| crc32c::crc32c(bytes) == crc);
                let what = format!("body {} does not match its checksum", body.0);
                let damaged = || Error::corrupt(&self.path(), at as u64, Flaw::BodyChecksum, what);
                return whole.map(<[u8]>::to_vec).ok_or_else(damaged);
            }
            at += length as usize;
        }
        unreachable!("the journal hands out places only of bodies that it has")
    }
}

/// One who has opened the log.
#[derive(Debug)]
pub struct InMemory {
    pub(crate) log: Log,
    /// The tail as far as this one knows it.
    pub(crate) link: Link,
    pub(crate) epoch: Epoch,
    /// The epoch that this writer has opened, and the tail at that time.
    fence: Option<(Epoch, Position)>,
    is_in_flight: Arc<AtomicBool>,
}

impl InMemory {
    /// Refuses a process that is no longer the owner.
    fn owned(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.log.lock();
        match self.fence {
            Some((epoch, _)) if epoch < state.epoch => Err(Error::Fenced { asked: epoch, seen: state.epoch }),
            _ => Ok(state),
        }
    }

    /// The batch as it is going to be stored behind `before`, and what is known behind it.
    pub(crate) fn encode(&self, draft: &Draft, at: Position, before: Link) -> Result<(Stored, Link), Error> {
        let (epoch, _) = self.fence.expect("the journal was not fenced");
        assert_eq!(at, before.position.next(), "an append goes behind the tail");
        let bytes = frame::frame_bytes(draft);
        if bytes > BATCH_BYTES {
            return Err(Error::TooLarge { bytes, limit: BATCH_BYTES });
        }
        let small = |count: usize| u32::try_from(count).expect("a batch is below 4 GiB");
        let fixed = Fixed {
            kind: Kind::Batch,
            position: at,
            epoch,
            time: draft.time,
            chain_before: before.chain,
            first_body: before.body,
            record_count: draft.record_count,
            records_bytes: small(draft.records.len()),
            body_count: small(draft.body_lengths.len()),
            bodies_bytes: draft.body_bytes() as u64,
        };
        let mut bytes = Vec::new();
        let chain = frame::encode(&mut bytes, &fixed, draft);
        frame::stamp(&mut bytes, INCARNATION, at.0);
        draft.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        let body = BodyId(before.body.0 + u64::from(fixed.body_count));
        let stored = Stored { position: at, first_body: before.body, bytes };
        Ok((stored, Link { position: at, body, epoch, chain }))
    }

    /// Hands out what the log has from `from` to `last`; returns what is known behind it.
    pub(crate) fn read_up_to(
        &self,
        last: Position,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<Link, Error> {
        let (batches, mut link) = {
            let state = self.log.lock();
            (state.batches.clone(), state.trimmed)
        };
        if from.max(Position(1)) <= link.position {
            return Err(Error::Trimmed { asked: from, first: link.position.next() });
        }
        for stored in batches.iter().filter(|stored| stored.position <= last) {
            link = stored.check(link, |batch| if batch.position >= from { each(batch) } else { Ok(()) })?;
        }
        Ok(link)
    }

    /// The place of a body that is stored before `next`.
    pub(crate) fn place_before(&self, next: BodyId, body: BodyId) -> Option<Place> {
        let state = self.log.lock();
        if body >= next || body < state.trimmed.body {
            return None;
        }
        let behind = state.batches.partition_point(|stored| stored.first_body <= body);
        Some(Place::new(state.batches[..behind].last()?.clone(), body))
    }

    /// What the log consists of, up to `link`.
    pub(crate) fn stretches_to(&self, link: Link) -> Vec<Stretch> {
        let state = self.log.lock();
        let describe = |stored: &Arc<Stored>| Stretch {
            first: stored.position,
            first_body: stored.first_body,
            bytes: stored.bytes.len() as u64,
        };
        let next = Stretch { first: link.position.next(), first_body: link.body, bytes: 0 };
        let there = state.batches.iter().filter(|stored| stored.position <= link.position);
        there.map(describe).chain([next]).collect()
    }
}

impl Journal for InMemory {
    fn describe(&self) -> Description {
        // It outlives its writer and nothing else.
        Description { max_batch_bytes: BATCH_BYTES, durability: Durability::Os, is_shared: true }
    }

    fn fence(&mut self, _owner: u64, epoch: Epoch) -> Result<Position, Error> {
        let mut state = self.log.lock();
        if epoch <= state.epoch {
            return Err(Error::Fenced { asked: epoch, seen: state.epoch });
        }
        state.epoch = epoch;
        // Somebody may have written since this one opened the log.
        let mut link = self.link;
        for stored in state.batches.iter().filter(|stored| stored.position > self.link.position) {
            link = stored.check(link, |_| Ok(()))?;
        }
        (self.link, self.epoch) = (link, epoch);
        self.fence = Some((epoch, link.position));
        Ok(link.position)
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn tail(&self) -> Position {
        self.link.position
    }

    fn first(&self) -> Position {
        self.log.lock().trimmed.position.next()
    }

    fn next_body(&self) -> BodyId {
        self.link.body
    }

    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        let (stored, behind) = self.encode(draft, at, self.link)?;
        let was_in_flight = self.is_in_flight.swap(true, Ordering::AcqRel);
        assert!(!was_in_flight, "an append is in flight: wait for its ticket first");
        if self.log.accept(self.epoch, RequestId(u64::MAX), &Arc::new(stored)) != Arrival::Committed {
            self.is_in_flight.store(false, Ordering::Release);
            return Ok(Ticket::new(|| Outcome::Fenced));
        }
        self.link = behind;
        let is_in_flight = self.is_in_flight.clone();
        Ok(Ticket::new(move || {
            is_in_flight.store(false, Ordering::Release);
            Outcome::Committed
        }))
    }

    fn resolve(&mut self, at: Position) -> Result<Resolution, Error> {
        let (epoch, _) = self.fence.expect("only the fenced writer resolves");
        let state = self.log.lock();
        let found =
            state.batches.iter().find(|stored| stored.position == at).and_then(|stored| stored.fixed());
        Ok(match found {
            Some(fixed) if fixed.epoch == epoch => Resolution::Committed,
            Some(_) => Resolution::Foreign,
            None if at <= state.trimmed.position => Resolution::Foreign,
            None => Resolution::Absent,
        })
    }

    fn read(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.read_up_to(self.link.position, from, each).map(drop)
    }

    fn place(&self, body: BodyId) -> Option<Place> {
        self.place_before(self.link.body, body)
    }

    fn seal(&mut self) -> Result<(), Error> {
        assert!(
            !self.is_in_flight.load(Ordering::Acquire),
            "an append is in flight: wait for its ticket first"
        );
        self.owned()?.sealed = self.link.position;
        Ok(())
    }

    fn trim(&mut self, before: Position) -> Result<(), Error> {
        let mut state = self.owned()?;
        let Some(fallback) = state.snapshots.keys().nth_back(SNAPSHOTS_KEPT - 1) else { return Ok(()) };
        let before = before.min(fallback.next());
        let count = state.batches.partition_point(|stored| stored.position < before);
        for stored in state.batches.drain(..count).collect::<Vec<_>>() {
            state.trimmed = stored.check(state.trimmed, |_| Ok(()))?;
        }
        Ok(())
    }

    fn stretches(&self) -> Vec<Stretch> {
        self.stretches_to(self.link)
    }

    fn scrub(&self, _after: Position) -> Option<Scrub> {
        None
    }

    fn has_reserve(&self) -> bool {
        true
    }

    fn refill_reserve(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(self.log.clone())
    }

    fn space(&self) -> Result<Space, Error> {
        let state = self.log.lock();
        let batches: usize = state.batches.iter().map(|stored| stored.bytes.len()).sum();
        let snapshots: usize = state.snapshots.values().map(|content| content.bytes.len()).sum();
        Ok(Space { used_bytes: (batches + snapshots) as u64, free_bytes: u64::MAX })
    }
}

impl Snapshots for Log {
    fn put(&self, at: Position, write: WriteSnapshot<'_>) -> Result<(), Error> {
        let mut bytes = Vec::new();
        write(&mut bytes).map_err(|error| Error::io("write", "memory", error))?;
        let content = Content { crc: crc32c::crc32c(&bytes), bytes };
        let mut state = self.lock();
        state.snapshots.insert(at, content);
        while state.snapshots.len() > SNAPSHOTS_KEPT {
            state.snapshots.pop_first();
        }
        Ok(())
    }

    fn latest(&self) -> Result<Vec<SnapshotInfo>, Error> {
        let state = self.lock();
        let describe = |(position, content): (&Position, &Content)| SnapshotInfo {
            position: *position,
            bytes: content.bytes.len() as u64,
        };
        Ok(state.snapshots.iter().rev().map(describe).collect())
    }

    fn read(&self, at: Position, read: ReadSnapshot<'_>) -> Result<(), Error> {
        let content = self.lock().snapshots.get(&at).cloned().ok_or(Error::NoSnapshot(at))?;
        if crc32c::crc32c(&content.bytes) != content.crc {
            let path = format!("memory/{:020}.snapshot", at.0);
            return Err(Error::corrupt(
                &path,
                0,
                Flaw::SnapshotChecksum,
                "the snapshot does not match its checksum",
            ));
        }
        read(&mut &content.bytes[..]).map_err(|error| Error::Reader(Box::new(error)))
    }

    fn remove(&self, at: Position) -> Result<(), Error> {
        self.lock().snapshots.remove(&at).map(drop).ok_or(Error::NoSnapshot(at))
    }

    fn set_aside(&self, at: Position) -> Result<(), Error> {
        let mut state = self.lock();
        let content = state.snapshots.remove(&at).ok_or(Error::NoSnapshot(at))?;
        state.aside.push(content);
        Ok(())
    }
}
