//! Durable order: batches of opaque records and the bodies they name, one after another, on disk.
//!
//! This crate knows bytes and positions, never messages. [`Journal`] is the border that every implementation,
//! local or distributed, must satisfy (see [`conformance`]); [`Local`] is the one on segment files, over
//! [`disk::Memory`] also for tests; [`InMemory`] is a log that several may open and only one may write, as a distributed
//! one would be; [`Distant`] writes to it over a [`Wire`] whose requests and answers arrive when told; [`Unsure`] loses the
//! answers of another. The bytes are drawn in docs/format/journal.md.
//!
//! What must always hold: a batch is there whole or not at all; it stays at exactly the position it was written
//! for, behind everything before it; and damage is reported with file and offset, never skipped.

pub mod conformance;
pub mod disk;
mod distant;
mod draft;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod journal;
pub mod limits;
mod local;
mod memory;
mod place;
mod planted;
mod ticket;
mod unsure;

pub use distant::{Arrival, Distant, RequestId, Wire};
pub use draft::{BODY_PREFIX_BYTES, Draft, body_prefix};
pub use error::{Error, Flaw};
pub use journal::{
    Batch, BodyId, BodyLengths, Description, Durability, Epoch, Journal, Position, ReadSnapshot, Resolution,
    SnapshotInfo, Snapshots, Space, Stretch, WriteSnapshot,
};
pub use local::{Counts, Cut, Filling, Inspector, Local, Options, Scrub};
pub use memory::{InMemory, Log};
pub use place::{Bodies, Place, read_run};
pub use ticket::{Answer, Outcome, Ticket};
pub use unsure::{Unsure, Verdict};
