//! The loop that joins broker and journal: inbox, decide, group commit, release effects.
//!
//! A connection hands over one [`Batch`] for each read of its socket. The partition decides the commands one by one,
//! writes what they recorded as one append, and lets effects leave when that append is durable. Everything that waits
//! is counted in bytes and bounded: see [`limits`].

mod batch;
mod cache;
mod clock;
pub mod commit;
mod condition;
mod foresight;
mod handle;
mod inbox;
pub mod limits;
mod mailbox;
mod partition;
mod read;
mod recovery;
mod runner;
mod scrub;
mod snapshots;
mod survey;
mod sync;
mod tend;
mod upkeep;

pub use batch::Batch;
pub use cache::{Cache, Front};
pub use clock::{Clock, OwnerClock, Slew};
pub use condition::{Ailment, Condition};
pub use handle::{Connection, Handle, Stopped};
pub use inbox::{Inbox, Item};
pub use mailbox::{Mailbox, Outbox, Outgoing, Sent};
pub use partition::{Counters, Partition, Turn};
pub use read::{Bodies, Reading};
pub use recovery::{Error, Recovered, recover};
pub use runner::{Engine, HandSync, OpenError, Options};
pub use snapshots::Snapshotted;
pub use upkeep::Pace;
