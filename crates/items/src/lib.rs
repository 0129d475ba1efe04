//! What a Cosmos DB account decides: databases, containers, items, and their time to live. Pure, as the broker is.
//!
//! A door asks with a [`Command`] and is answered with a [`Reply`] or a [`Refusal`]. Deciding reads an ordered view of
//! what is stored and makes records; applying records is the only way in which anything changes, live and in replay.
//! No I/O, no clock, no randomness, no threads: the time comes in as an argument.
//!
//! What must always hold: an expired item is never seen, by any command, from the first instant (C-16, C-29); an item that had
//! expired never comes back (C-41); indexes agree with items.

mod account;
pub mod answer;
pub mod binary_json;
mod charge;
pub mod check;
pub mod command;
mod decide;
mod definition;
pub mod effective_key;
mod in_memory;
mod index;
mod item;
pub mod json;
pub mod key_path;
pub mod keys;
pub mod limits;
pub mod order;
pub mod partition_key;
mod purge;
pub mod query;
mod read;
pub mod record;
pub mod refusal;
pub mod rid;
pub mod throttle;
mod time;
mod view;
pub mod wire;

pub use account::{Account, Budget, Decided, Purge};
pub use answer::{Answer, ContainerFacts, Document, OperationResult, Page, Reply};
pub use command::{
    BatchOperation, ChangeFeedMode, ChangeFeedStart, Command, ContainerPath, ItemPath, ItemWrite, KeyRange,
    Listing, OperationKind, PatchOperation, PatchVerb, Precondition, Query, QueryScope, Scope, ScriptKind,
    Throughput,
};
pub use definition::offer::of_header as autoscale_of_header;
pub use in_memory::InMemory;
pub use partition_key::{KeyPart, PartitionKey};
pub use read::NEEDS_LEAVE;
pub use record::{Event, Record};
pub use refusal::Refusal;
pub use time::Time;
pub use view::{ChangedView, Changes, Direction, Entries, Entry, Memory, Unreadable, View};
