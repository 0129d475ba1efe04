//! Everything that may become durable: events, what happened, named by ids that are never reused.
//!
//! The bytes are drawn in docs/format/records.md. A record is a kind, a length and its fields; a reader that knows
//! fewer fields than were written refuses, a reader that knows more takes the missing ones as their defaults. Old data
//! therefore opens with new code, and new data says plainly that it is new. The times in a record are those of its namespace;
//! only its batch has the owner's.

pub(crate) mod field;
pub(crate) mod layout;

use crate::ids::{BodyId, EntityId, LockToken, MessageKey, NamespaceId, Sequence, Source};
use crate::limits::RECORD_BYTES;
use crate::queue::index::Reason;
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span};
use crate::topic::change::Change;
use crate::topic::published::Published;
pub(crate) use field::{Field, Fields, or_zero, put_difference, put_number, put_text};
pub(crate) use layout::{codes, records, structure};
use message::overlay::Overlay;
use std::sync::Arc;

/// The version of all records in this build; part of the journal's own header.
pub const FORMAT: u16 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    QueueCreated {
        entity: EntityId,
        namespace: NamespaceId,
        path: Box<str>,
        settings: Box<QueueSettings>,
    },
    /// The entity is gone with all its messages.
    EntityDeleted {
        entity: EntityId,
    },
    /// A part of a large body was stored. It is garbage until an `Enqueued` names it.
    PartStored {
        body: BodyId,
    },
    /// A message took its number. It was enqueued at the time of the batch. `parts` come before `body`.
    Enqueued {
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        /// Bytes of the whole message.
        length: u32,
        expires: LocalTime,
        parts: Option<Box<[BodyId]>>,
    },
    /// A message took a number for as long as it waits (S-44). `time_to_live` is the sender's own.
    Scheduled {
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        length: u32,
        due: LocalTime,
        time_to_live: Span,
        parts: Option<Box<[BodyId]>>,
    },
    /// A scheduled message was enqueued at the time of the batch, under a number of its own (S-44).
    Activated {
        entity: EntityId,
        scheduled: Sequence,
        sequence: Sequence,
        expires: LocalTime,
    },
    /// `count` messages from `first` on left the entity for good.
    Removed {
        entity: EntityId,
        first: Sequence,
        count: u32,
    },
    /// A delivery failed; the message is back, its count one higher, its properties perhaps changed.
    Returned {
        entity: EntityId,
        sequence: Sequence,
        overlay: Option<Box<Overlay>>,
    },
    /// A message was set aside; that delivery counts as failed (S-86).
    Deferred {
        entity: EntityId,
        sequence: Sequence,
        overlay: Option<Box<Overlay>>,
    },
    /// A message moved to the dead-letter queue of its entity, in one step: never in both, never in none (S-61).
    DeadLettered {
        entity: EntityId,
        sequence: Sequence,
        reason: Reason,
        /// A delivery failed with it, so the count is one higher.
        is_failure: bool,
        overlay: Option<Box<Overlay>>,
    },
    /// A message that was sent by way of an entity took a number there, for its destination does not take it: it is in
    /// the transfer dead-letter queue (S-114). `parts` come before `body`.
    TransferDeadLettered {
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        /// Bytes of the whole message.
        length: u32,
        reason: Reason,
        parts: Option<Box<[BodyId]>>,
    },
    /// The locks held when the server was stopped on purpose. Valid only while it is the last record of the journal.
    LocksKept {
        locks: Box<[KeptLock]>,
    },
    /// The queue has taken a message of this id, and looks for duplicates of it (S-160).
    Noted {
        entity: EntityId,
        id: MessageKey,
    },
    /// A number that no message has (S-48).
    Skipped {
        entity: EntityId,
        sequence: Sequence,
    },
    /// A message left one entity for another, where it has another number (S-177); in one step, so that it is never in
    /// both. `overlay` is what changes with it. If it is `due` later it waits there, and `expires` is when it expires if it is
    /// enqueued then.
    Forwarded {
        source: Source,
        sequence: Sequence,
        target: EntityId,
        number: Sequence,
        expires: LocalTime,
        due: Option<LocalTime>,
        overlay: Option<Box<Overlay>>,
    },
    /// A message that has just come belongs to a session (S-142).
    InSession {
        entity: EntityId,
        sequence: Sequence,
        session: Arc<str>,
    },
    /// The state of a session was set, to a body of that length, or cleared (S-149).
    SessionStateSet {
        entity: EntityId,
        session: Arc<str>,
        state: Option<(BodyId, u32)>,
    },
    /// All that was changed of a message's properties is in a body, and nothing of it elsewhere. What becomes of the message follows.
    OverlayStored {
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        length: u32,
    },
    /// A message was sent, activated or forwarded at a topic, and subscriptions have copies of it.
    Published(Box<Published>),
    /// Something was created, changed or named by an administrator.
    Managed(Box<Change>),
    /// A body was copied forward, so that the space around the original can be given back. Messages go on knowing it
    /// as `body`; its bytes are stored under `copy`.
    Relocated {
        body: BodyId,
        copy: BodyId,
    },
}

/// A lock that outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeptLock {
    pub source: Source,
    pub token: LockToken,
    pub until: LocalTime,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("record ends before its last field")]
    Truncated,
    #[error("record kind {0} is not known: the data was written by a newer version")]
    UnknownKind(u8),
    #[error("record kind {0} has fields that are not known: the data was written by a newer version")]
    UnknownFields(u8),
    #[error("field has an impossible value: {0}")]
    BadField(&'static str),
}

records! { Record {
    1 QueueCreated { entity, namespace, path, settings }
    2 EntityDeleted { entity }
    3 PartStored { body }
    4 Enqueued { entity, sequence, body, length, expires, parts }
    5 Removed { entity, first, count }
    6 Returned { entity, sequence, overlay }
    7 Scheduled { entity, sequence, body, length, due, time_to_live, parts }
    8 Activated { entity, scheduled, sequence, expires }
    9 Deferred { entity, sequence, overlay }
    10 DeadLettered { entity, sequence, reason, is_failure, overlay }
    11 LocksKept { locks }
    12 Noted { entity, id }
    13 Skipped { entity, sequence }
    14 Forwarded { source, sequence, target, number, expires, overlay; without due }
    15 InSession { entity, sequence, session }
    16 SessionStateSet { entity, session, state }
    17 TransferDeadLettered { entity, sequence, body, length, reason, parts }
    18 Forwarded { source, sequence, target, number, expires, due: Some, overlay }
    21 OverlayStored { entity, sequence, body, length }
    200 Relocated { body, copy }
    whole 20 Published
    other Managed(Change)
} }

impl Record {
    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        RECORD_BYTES + self.more_bytes()
    }

    /// Reads the record at the front of `bytes` and moves past it.
    pub fn decode(bytes: &mut &[u8]) -> Result<Record, Unreadable> {
        let (&kind, rest) = bytes.split_first().ok_or(Unreadable::Truncated)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(Unreadable::Truncated)?;
        let length = u32::from_le_bytes(*length) as usize;
        let fields = rest.get(..length).ok_or(Unreadable::Truncated)?;
        *bytes = &rest[length..];
        let mut fields = Fields { kind, rest: fields };
        let record = Record::read(kind, &mut fields)?.ok_or(Unreadable::UnknownKind(kind))?;
        fields.finish()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests;
