//! The ordered store: what the journal says, in the form in which it is read.
//!
//! Recent changes are in tables in memory, everything older in a [`Base`]. A view shows the store as it was when the view was
//! made, whatever is written later: so deciding sees everything, readers see what is committed, and neither waits for the
//! other. A checkpoint moves a table into the base, durable, with the batch of the journal up to which it holds everything; a
//! crash takes the store back to the newest checkpoint, and to nothing in between.

mod key;
mod layered;
mod lsm;
mod memory;
mod merge;
mod rows;
mod table;

pub use layered::Layered;
pub use lsm::Lsm;
pub use memory::{Memory, MemoryDisk};

use bytes::Bytes;
use items::{Changes, Direction, Unreadable, View};
use journal::Position;
use std::fmt::Debug;
use std::sync::Arc;

/// Why the store could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing is lost; it may work later.
    #[error("there is no room for the store of the items: {0}")]
    Full(String),
    #[error("the store of the items cannot be written: {0}")]
    Failed(String),
}

/// The store as it was at some moment.
pub trait Frozen: View + Send + Sync + Debug {}

/// As a view it shows everything that was written so far.
pub trait Store: View + Send + Sync + Debug {
    /// The batch up to which the store is durable.
    fn durable(&self) -> Position;

    /// Takes the entries of the changes. One thread writes.
    fn write(&self, changes: &mut Changes);

    /// Everything that was written so far, and nothing that is written from now on, for as long as it is held.
    fn freeze(&self) -> Arc<dyn Frozen>;

    /// Ends what the next checkpoint holds: everything that was written so far, which is what the journal says up to `position`.
    /// Called by the thread that writes, and not again before [`Store::flush`] has succeeded.
    fn close_table(&self, position: Position);

    /// Makes what was closed durable, on any thread, after the journal has made it durable.
    fn flush(&self) -> Result<(), Failure>;

    /// One step of tidying up, on any thread. Says whether there was something to do.
    fn tidy(&self) -> Result<bool, Failure>;

    /// Bytes in memory that were written and not closed.
    fn open_bytes(&self) -> u64;

    /// The same, and what was closed and is not flushed.
    fn recent_bytes(&self) -> u64;

    /// Files in which a read has to look, because they may overlap.
    fn overlapping_files(&self) -> usize;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;
}

/// Entries in order, those that are removed among them.
pub type Run<'a> = Box<dyn Iterator<Item = Result<(Bytes, Option<Bytes>), Unreadable>> + 'a>;

/// Where checkpoints go.
pub trait Base: Send + Sync + Debug + 'static {
    /// The base as it was at some moment, for as long as it is held.
    type Pin: Send + Sync + Debug;

    fn pin(&self) -> Self::Pin;

    fn get(&self, pin: &Self::Pin, key: &[u8]) -> Result<Option<Bytes>, Unreadable>;

    /// Entries with `from <= key < to`.
    fn scan<'a>(&'a self, pin: &Self::Pin, from: &[u8], to: &[u8], direction: Direction) -> Run<'a>;

    /// Takes changes in the order of their keys: all of them, durable, or nothing.
    fn take(&self, changes: &mut dyn Iterator<Item = (Bytes, Option<Bytes>)>) -> Result<(), Failure>;

    fn tidy(&self) -> Result<bool, Failure>;

    fn overlapping_files(&self) -> usize;

    fn disk_bytes(&self) -> u64;
}

/// Keys of the engine itself; those of the items begin with higher bytes.
pub(crate) mod keys {
    /// The batch up to which the store holds what the journal says, 8 bytes big-endian.
    pub(crate) const POSITION: &[u8] = &[0x00, b'p'];
    /// The owner's time and how far the items are ahead of it, in milliseconds, 8 bytes big-endian each.
    pub(crate) const TIME: &[u8] = &[0x00, b't'];
}

#[cfg(test)]
mod tests;
