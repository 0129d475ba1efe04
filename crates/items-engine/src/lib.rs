//! Items made durable: the journal is the truth, an ordered store holds what it says up to a synced position.
//!
//! A door holds a [`Handle`] and asks. Writes are decided on one thread, appended, synced, and answered when they are durable;
//! reads and queries run on the side of whoever asks, on what is committed.

mod handle;

pub use handle::Handle;
