//! The border: what a journal promises, whatever it is made of.
//!
//! Positions count batches, never bytes, and are ours: how an implementation maps them to files or to the
//! sequence of a distributed log stays below this line. Nothing here is async and everything works as `dyn`.

use crate::draft::Draft;
use crate::error::Error;
use crate::local::Scrub;
use crate::place::Place;
use crate::ticket::Ticket;
use std::io;
use std::sync::Arc;

/// Ordinal of a batch in its partition. The first is 1; 0 means "nothing yet".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// Partition-wide ordinal of a body, never reused. The first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BodyId(pub u64);

/// Generation of the partition's owner. Each new owner takes a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Position {
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

impl Epoch {
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// What a committed batch survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The end of the process, not of the machine: the operating system has it.
    Os,
    /// Power failure: one disk has synced it.
    LocalSync,
    /// Loss of a machine, not power failure of all.
    Quorum,
    /// Loss of a machine and power failure of all.
    QuorumSync,
}

/// Limits and promises of an implementation. The owner refuses to serve on less than was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Largest batch, see [`Journal::batch_bytes`].
    pub max_batch_bytes: usize,
    pub durability: Durability,
    /// Whether another node can open the same journal.
    pub is_shared: bool,
}

/// What a journal knows about the append at a position, after an outcome that was not clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Our batch is there.
    Committed,
    /// Nothing is there, and the lost append cannot arrive any more.
    Absent,
    /// Somebody else's batch is there.
    Foreign,
}

/// Bytes on disk and bytes that could still be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    pub used_bytes: u64,
    pub free_bytes: u64,
}

/// The unit in which [`Journal::trim`] gives space back: batches, and the bodies that came with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first batch; it need not exist yet in the last stretch.
    pub first: Position,
    /// The first body that is stored here, if any is.
    pub first_body: BodyId,
    /// What giving it up would free.
    pub bytes: u64,
}

/// One batch as it was read back. Bodies are not part of it: see [`Journal::place`].
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub position: Position,
    pub epoch: Epoch,
    /// Owner time in milliseconds UTC.
    pub time: i64,
    pub record_count: u32,
    pub records: &'a [u8],
    /// Id of the first body; the others follow without gaps.
    pub first_body: BodyId,
    pub body_lengths: BodyLengths<'a>,
}

/// Lengths of a batch's bodies, in order.
#[derive(Debug, Clone, Copy)]
pub struct BodyLengths<'a> {
    pub(crate) table: &'a [[u8; 8]],
}

impl<'a> BodyLengths<'a> {
    /// From the prefixes of the bodies, as [`crate::body_prefix`] makes them.
    pub fn new(prefixes: &'a [[u8; 8]]) -> BodyLengths<'a> {
        BodyLengths { table: prefixes }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.table.iter().map(|&entry| crate::draft::split_prefix(entry).0)
    }
}

/// A published snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The last batch that the snapshot contains.
    pub position: Position,
    /// Bytes of the content.
    pub bytes: u64,
}

/// Snapshots beside a journal, as a handle of its own so that a thread can write one while the partition goes on.
pub trait Snapshots: Send + Sync + std::fmt::Debug {
    /// Publishes a snapshot that contains every batch up to `at`: whole and synced, or not at all. Older ones
    /// beyond the two newest are dropped.
    fn put(&self, at: Position, write: WriteSnapshot<'_>) -> Result<(), Error>;

    /// Newest first. Being listed does not mean being undamaged: [`Snapshots::read`] finds out.
    fn latest(&self) -> Result<Vec<SnapshotInfo>, Error>;

    /// Checks the snapshot whole, then hands out its content.
    fn read(&self, at: Position, read: ReadSnapshot<'_>) -> Result<(), Error>;

    fn remove(&self, at: Position) -> Result<(), Error>;

    /// Takes a damaged snapshot out of the count, so that it neither passes for the one to fall back on nor pushes a
    /// good one out. Its bytes are kept, under another name.
    fn set_aside(&self, at: Position) -> Result<(), Error>;
}

/// Writes a snapshot's content.
pub type WriteSnapshot<'a> = &'a mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>;
/// Takes a snapshot's content.
pub type ReadSnapshot<'a> = &'a mut dyn FnMut(&mut dyn io::Read) -> io::Result<()>;

/// The journal of one partition, in the hands of its one writer.
///
/// At most one append is in flight: the next one is called after the ticket of the one before has said
/// `Committed`. Everything else here would be wrong with two: fencing, the torn-tail rule, the repeat.
pub trait Journal: Send + std::fmt::Debug {
    fn describe(&self) -> Description;

    /// Takes the journal over for `owner`: afterwards no append of a lower epoch can become part of it. Refuses an
    /// epoch that is not above all that the journal has seen. Returns the tail.
    fn fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error>;

    /// The highest epoch seen.
    fn epoch(&self) -> Epoch;

    /// Position of the last batch, whether or not its ticket was waited for.
    fn tail(&self) -> Position;

    /// Position of the oldest batch that can still be read; one past the tail when there is none.
    fn first(&self) -> Position;

    /// The id that the first body of the next batch will get.
    fn next_body(&self) -> BodyId;

    /// Bytes that the draft takes in the journal; compared with [`Description::max_batch_bytes`].
    fn batch_bytes(&self, draft: &Draft) -> usize {
        crate::frame::frame_bytes(draft)
    }

    /// Writes the draft at `at`, which is the position after the tail. Whole or nothing.
    ///
    /// Panics when `at` is another position, when an append is in flight, or when the journal was not fenced: these
    /// are bugs of the caller. After [`Error::Full`] and [`Error::TooLarge`] nothing was written and the journal
    /// goes on; every other error is final.
    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error>;

    /// Asks what became of the append at `at` after [`crate::Outcome::Unknown`]. The writer may only ask this or
    /// repeat the identical append until it knows.
    fn resolve(&mut self, at: Position) -> Result<Resolution, Error>;

    /// Hands out every batch from `from` to the tail, in order. A gap, an epoch that goes backwards or a broken
    /// chain is an error, never skipped.
    fn read(&self, from: Position, each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>)
    -> Result<(), Error>;

    /// Where a body is stored; no I/O. `None` when it was trimmed or never written.
    fn place(&self, body: BodyId) -> Option<Place>;

    /// Marks everything so far as complete, so that later damage to it cannot pass for a torn tail. For idle
    /// moments and the clean stop; costs a sync, and nothing when already sealed.
    fn seal(&mut self) -> Result<(), Error>;

    /// Gives up batches before `before`, and their bodies, as far as whole segments hold nothing else: afterwards
    /// [`Journal::first`] is at most `before`. Keeps everything behind the older of the two newest snapshots,
    /// whatever is asked, and everything while there are not two.
    fn trim(&mut self, before: Position) -> Result<(), Error>;

    /// What the journal consists of, oldest first; the last one is being written.
    fn stretches(&self) -> Vec<Stretch>;

    /// The oldest stretch that begins behind `after`, to be read again; of the last one, what is written so far. `None` when
    /// there is none here, or when that is somebody else's affair.
    fn scrub(&self, after: Position) -> Option<Scrub>;

    /// Whether the room is held that keeps settling, relocating and snapshots possible on a full disk. Without it nothing
    /// may be stored that could as well be refused.
    fn has_reserve(&self) -> bool;

    /// Takes the reserve back if there is room for it and for more. Returns whether it is held.
    fn refill_reserve(&mut self) -> Result<bool, Error>;

    /// How much more must be free before the reserve can be taken back; for the one that is to make room.
    fn lacking_bytes(&self) -> u64 {
        0
    }

    fn snapshots(&self) -> Arc<dyn Snapshots>;

    fn put_snapshot(&mut self, at: Position, write: WriteSnapshot<'_>) -> Result<(), Error> {
        self.snapshots().put(at, write)
    }

    fn latest_snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        self.snapshots().latest()
    }

    fn read_snapshot(&self, at: Position, read: ReadSnapshot<'_>) -> Result<(), Error> {
        self.snapshots().read(at, read)
    }

    fn drop_snapshot(&mut self, at: Position) -> Result<(), Error> {
        self.snapshots().remove(at)
    }

    fn space(&self) -> Result<Space, Error>;
}
