//! The durable state as bytes: written beside the partition, read at the next start. Drawn in docs/format/snapshot.md.
//!
//! A snapshot is taken by sharing, so it costs the partition next to nothing; queues and chunks of messages are copied
//! when they change while it is being written. It is a run of frames, each a kind, a length and fields: a reader that
//! knows more fields takes missing ones as their defaults, a reader that knows fewer refuses.
//!
//! What must always hold: a body is alive exactly as long as a snapshot would name it. Everything that can lead to a
//! body is therefore written through `body` below, by which the count of what is still needed on disk hears of it.

mod read;
mod write;

use crate::Broker;
use crate::durable::{Durable, Queue, Shared};
use crate::ids::{BodyId, IdMap};
use crate::record::{self, KeptLock};
use crate::time::{LocalTime, Time};
use crate::topic::change::Change;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// The version of the layout. Newer ones are refused.
pub const FORMAT: u32 = 1;

pub(crate) mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const QUEUE: u8 = 2;
    /// Settings of the queue before it; the next ones are that queue's too, but for `MANAGED`.
    pub(crate) const SETTINGS: u8 = 3;
    pub(crate) const SLOTS: u8 = 4;
    pub(crate) const EXTRA: u8 = 5;
    /// A topic, a subscription, a rule, a policy or the name of a namespace: a time and the record of a change.
    pub(crate) const MANAGED: u8 = 6;
    /// Slots of its dead-letter queue.
    pub(crate) const DEAD_SLOTS: u8 = 7;
    /// Message ids that it has taken, in order.
    pub(crate) const HISTORY: u8 = 8;
    /// Where the message of the extra before it was forwarded from.
    pub(crate) const FORWARDED: u8 = 9;
    /// Messages of the queue and the sessions that they are in.
    pub(crate) const MEMBERS: u8 = 10;
    /// The state of a session.
    pub(crate) const SESSION_STATE: u8 = 11;
    /// Slots of its transfer dead-letter queue.
    pub(crate) const TRANSFER_DEAD_SLOTS: u8 = 12;
    /// The body of changed properties, of the extra before it.
    pub(crate) const STORED_OVERLAY: u8 = 13;
    /// The messages of a topic or a subscription that came before, as those of a queue; the next ones belong to it.
    pub(crate) const HELD: u8 = 20;
    pub(crate) const LOCKS: u8 = 99;
    pub(crate) const RELOCATED: u8 = 100;
    pub(crate) const END: u8 = 255;
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the snapshot has format {0}, this program knows {FORMAT}; use a newer program")]
    Newer(u32),
    #[error("frame of kind {0} is not known: the snapshot was written by a newer version")]
    UnknownKind(u8),
    #[error(transparent)]
    Field(#[from] record::Unreadable),
    #[error("the snapshot contradicts itself: {0}")]
    Wrong(&'static str),
}

/// A body that something still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The id that messages know.
    pub body: BodyId,
    /// The id under which the bytes are stored.
    pub stored: BodyId,
    /// About how many bytes: a message in parts is taken to have equal ones.
    pub bytes: u64,
}

/// The durable state at one position, shared with the broker that goes on.
#[derive(Debug)]
pub struct Snapshot {
    entities: Vec<Option<Arc<Queue>>>,
    managed: Vec<(LocalTime, Change)>,
    next_body: BodyId,
    relocated: Arc<IdMap<BodyId, BodyId>>,
    kept_locks: Arc<[KeptLock]>,
    /// Parts that no record names yet. Not written, but needed as long as their message may still be completed.
    pinned: Vec<BodyId>,
    /// The owner's time of the last batch that it contains.
    time: Time,
}

/// What is read back.
#[derive(Debug)]
pub struct Restored {
    pub durable: Durable,
    pub time: Time,
}

impl Broker {
    /// The state as it is now, whose newest batch has the time `time`.
    pub fn snapshot(&self, time: Time) -> Snapshot {
        let Shared { entities, relocated, kept_locks } = self.durable.shared();
        Snapshot {
            entities,
            managed: self.durable.managed(),
            next_body: self.durable.next_body(),
            relocated,
            kept_locks,
            pinned: self.volatile.pinned_bodies(),
            time,
        }
    }
}

/// What a snapshot names, each body once, by the id under which it is stored.
pub fn stored_bodies(snapshot: &Snapshot) -> HashSet<BodyId> {
    let mut stored = HashSet::new();
    let written = snapshot.write(&mut io::sink(), &mut |named| {
        stored.insert(named.stored);
    });
    written.expect("a sink takes everything");
    stored
}

#[cfg(test)]
mod tests;
