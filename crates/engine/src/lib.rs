//! The loop that joins broker and journal: inbox, decide, group commit, release effects.
//!
//! A connection hands over one [`Batch`] for each read of its socket. The partition decides the commands one by one,
//! writes what they recorded as one append, and lets effects leave when that append is durable. Everything that waits
//! is counted in bytes and bounded: see [`limits`].

mod batch;
mod budget;
mod by_hand;
mod cache;
mod clock;
pub mod commit;
mod handle;
mod health;
mod ids;
pub mod limits;
mod mailbox;
mod partition;
mod read;
mod recovery;
pub mod reserve;
mod runner;
mod scrub;
mod snapshots;
mod survey;
mod sync;
mod tend;
mod upkeep;
mod work;

pub use batch::Batch;
pub use budget::Budget;
pub use by_hand::{ByHand, HandClock};
pub use cache::{Cache, Front, StoredMessage};
pub use clock::{Clock, OwnerClock, Slew};
pub use handle::{Connection, Handle, Stopped};
pub use health::{Health, PendingSync, Problem};
pub use mailbox::{Mailbox, Outbox, Outgoing, Sent};
pub use partition::{Counters, Environment, Partition, Unreleased};
pub use read::{Bodies, BodyRead};
pub use recovery::{Error, Recovered, recover};
pub use runner::{Engine, OpenError, Options, SharedPartition};
pub use snapshots::Snapshotted;
pub use upkeep::UpkeepSettings;
pub use work::Work;
