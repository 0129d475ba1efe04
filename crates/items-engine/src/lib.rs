//! Items made durable: the journal is the truth, an ordered store holds what it says up to a synced position.
//!
//! A door holds a [`Handle`] and asks. Writes are decided on one thread at a time, appended, synced, and answered when they are
//! durable, by the engine's commit machine; reads and queries run on the thread that asks, on what is committed.
//! A start opens the store, which a crash takes back to its newest checkpoint, and applies what the journal has behind it.

mod activity;
mod asking;
mod committed;
mod condition;
mod deciding;
mod engine;
mod handle;
pub mod limits;
mod partition;
pub mod planted;
mod remembering;
mod skips;
mod store;

pub use self::engine::{Engine, Options, PARTITION, STORE};
pub use activity::Activity;
pub use committed::{Committed, Published, ReadOutcome};
pub use condition::{Condition, Problem};
pub use deciding::{Deciding, ReplayError, inspect};
pub use handle::{Handle, Pending};
pub use partition::{
    Asker, Clocks, FlushJob, Flusher, MARK, OpenError, Partition, Recovered, ReplyOrRefusal, Unreleased, Work,
};
pub use store::{Base, Failure, Frozen, Layered, Lsm, Memory, MemoryDisk, Run, Store};
