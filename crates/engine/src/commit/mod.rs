//! Group commit: work is decided as it comes, what was decided becomes one append, and what waits for an append leaves
//! when it is durable.
//!
//! - [`Commit`] is the machine: one enum for what is known about the disk, and one question, [`Commit::next`].
//! - [`Gather`] holds the policy of how long to wait for more, in one function.
//! - [`Shared`] is the shell: a thread that owns the partition, and the threads of connections that decide on the spot.
//! - [`OwnerThread`] is the thread that owns it, as a value to wait for.
//! - [`Inbox`] is where work waits and the owner sleeps.
//! - [`Pauses`] is where the threads of connections pause while nothing is gained by reading what clients send.
//! - [`Decider`] is what a state machine must offer to be run by them. None of them knows what is decided.
//!
//! To run a state machine: implement [`Decider`], put it into a [`Shared`], let a thread call [`Shared::run`], bring work
//! with [`Shared::hand_over`]. `tests/counter/mod.rs` of this crate is one of fifty lines; it is explored with every
//! interleaving of its threads that a random scheduler finds.

mod decider;
mod gather;
mod inbox;
pub mod limits;
mod machine;
mod moment;
mod pause;
mod shared;
mod thread;

pub use decider::{Decider, Due, Releasable};
pub use gather::Gather;
pub use inbox::Inbox;
pub use limits::FULL_RETRY;
pub use machine::{Commit, DiskState, DraftSize, Next, Stop};
pub use moment::Moment;
pub use pause::Pauses;
pub use shared::{AfterTurn, Append, AppendOutcome, Shared};
pub use thread::OwnerThread;
