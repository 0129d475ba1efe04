//! Everything that may become durable: events, what happened, named by ids that are never reused.
//!
//! The bytes are drawn in docs/format/records.md. A record is a kind, a length and its fields; a reader that knows
//! fewer fields than were written refuses, a reader that knows more takes the missing ones as their defaults. Old data
//! therefore opens with new code, and new data says plainly that it is new. The times in a record are those of its namespace;
//! only its batch has the owner's.

use crate::ids::{BodyId, EntityId, LockToken, MessageKey, NamespaceId, Sequence, Source, SubQueue};
use crate::limits::{COPY_BYTES, RECORD_BYTES};
use crate::queue::index::Reason;
use crate::settings::{QueueSettings, Status};
use crate::time::{LocalTime, Span};
use crate::topic::change::Change;
use crate::topic::published::Published;
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
        /// Of the whole message.
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
    /// A message that was sent by way of an entity took a number there, for its destination does not take it: it lies in
    /// the transfer dead-letter queue (S-114). `parts` come before `body`.
    TransferDeadLettered {
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        /// Of the whole message.
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
    /// A message was sent, activated or forwarded at a topic, and subscriptions have copies of it.
    Published(Box<Published>),
    /// Something was created, changed or named by an administrator.
    Managed(Box<Change>),
    /// A body was copied forward, so that the space around the original can be given back. Messages go on knowing it
    /// as `body`; its bytes lie under `copy`.
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

mod kind {
    pub(super) const QUEUE_CREATED: u8 = 1;
    pub(super) const ENTITY_DELETED: u8 = 2;
    pub(super) const PART_STORED: u8 = 3;
    pub(super) const ENQUEUED: u8 = 4;
    pub(super) const REMOVED: u8 = 5;
    pub(super) const RETURNED: u8 = 6;
    pub(super) const SCHEDULED: u8 = 7;
    pub(super) const ACTIVATED: u8 = 8;
    pub(super) const DEFERRED: u8 = 9;
    pub(super) const DEAD_LETTERED: u8 = 10;
    pub(super) const LOCKS_KEPT: u8 = 11;
    pub(super) const NOTED: u8 = 12;
    pub(super) const SKIPPED: u8 = 13;
    pub(super) const FORWARDED: u8 = 14;
    pub(super) const IN_SESSION: u8 = 15;
    pub(super) const SESSION_STATE_SET: u8 = 16;
    pub(super) const TRANSFER_DEAD_LETTERED: u8 = 17;
    /// A `Forwarded` that is due later.
    pub(super) const FORWARDED_FOR_LATER: u8 = 18;
    pub(super) const PUBLISHED: u8 = 20;
    /// Far from the others, which count upwards with what brokers do.
    pub(super) const RELOCATED: u8 = 200;
}

impl Record {
    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        let changed =
            |overlay: &Option<Box<Overlay>>| overlay.as_ref().map_or(0, |each| each.encoded_bytes());
        let more = match self {
            Record::Returned { overlay, .. }
            | Record::Deferred { overlay, .. }
            | Record::DeadLettered { overlay, .. }
            | Record::Forwarded { overlay, .. } => changed(overlay),
            Record::InSession { session, .. } | Record::SessionStateSet { session, .. } => session.len(),
            Record::Published(published) => {
                published.copies.iter().map(|copy| COPY_BYTES + changed(&copy.overlay)).sum()
            }
            _ => 0,
        };
        RECORD_BYTES + more
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::QueueCreated { entity, namespace, path, settings } => {
                framed(out, kind::QUEUE_CREATED, |out| {
                    put_u32(out, entity.0);
                    put_u32(out, namespace.0);
                    put_text(out, path);
                    put_settings(out, settings);
                })
            }
            Record::Managed(change) => change.encode(out),
            Record::Published(published) => framed(out, kind::PUBLISHED, |out| published.encode(out)),
            Record::EntityDeleted { entity } => {
                framed(out, kind::ENTITY_DELETED, |out| put_u32(out, entity.0));
            }
            Record::PartStored { body } => framed(out, kind::PART_STORED, |out| put_u64(out, body.0)),
            Record::Enqueued { entity, sequence, body, length, expires, parts } => {
                framed(out, kind::ENQUEUED, |out| {
                    put_u32(out, entity.0);
                    put_u64(out, sequence.0);
                    put_u64(out, body.0);
                    put_u32(out, *length);
                    put_time(out, *expires);
                    put_parts(out, parts.as_deref());
                });
            }
            Record::Scheduled { entity, sequence, body, length, due, time_to_live, parts } => {
                framed(out, kind::SCHEDULED, |out| {
                    put_u32(out, entity.0);
                    put_u64(out, sequence.0);
                    put_u64(out, body.0);
                    put_u32(out, *length);
                    put_time(out, *due);
                    put_u64(out, time_to_live.0);
                    put_parts(out, parts.as_deref());
                });
            }
            Record::Activated { entity, scheduled, sequence, expires } => {
                framed(out, kind::ACTIVATED, |out| {
                    put_u32(out, entity.0);
                    put_u64(out, scheduled.0);
                    put_u64(out, sequence.0);
                    put_time(out, *expires);
                });
            }
            Record::Removed { entity, first, count } => framed(out, kind::REMOVED, |out| {
                put_u32(out, entity.0);
                put_u64(out, first.0);
                put_u32(out, *count);
            }),
            Record::Returned { entity, sequence, overlay } => framed(out, kind::RETURNED, |out| {
                put_u32(out, entity.0);
                put_u64(out, sequence.0);
                put_overlay(out, overlay.as_deref());
            }),
            Record::Deferred { entity, sequence, overlay } => framed(out, kind::DEFERRED, |out| {
                put_u32(out, entity.0);
                put_u64(out, sequence.0);
                put_overlay(out, overlay.as_deref());
            }),
            Record::DeadLettered { entity, sequence, reason, is_failure, overlay } => {
                framed(out, kind::DEAD_LETTERED, |out| {
                    put_u32(out, entity.0);
                    put_u64(out, sequence.0);
                    out.push(*reason as u8);
                    out.push(u8::from(*is_failure));
                    put_overlay(out, overlay.as_deref());
                });
            }
            Record::TransferDeadLettered { entity, sequence, body, length, reason, parts } => {
                framed(out, kind::TRANSFER_DEAD_LETTERED, |out| {
                    put_u32(out, entity.0);
                    put_u64(out, sequence.0);
                    put_u64(out, body.0);
                    put_u32(out, *length);
                    out.push(*reason as u8);
                    put_parts(out, parts.as_deref());
                });
            }
            Record::LocksKept { locks } => framed(out, kind::LOCKS_KEPT, |out| {
                put_locks(out, locks);
            }),
            Record::Noted { entity, id } => framed(out, kind::NOTED, |out| {
                put_u32(out, entity.0);
                id.0.iter().for_each(|half| put_u64(out, *half));
            }),
            Record::Skipped { entity, sequence } => framed(out, kind::SKIPPED, |out| {
                put_u32(out, entity.0);
                put_u64(out, sequence.0);
            }),
            Record::Forwarded { source, sequence, target, number, expires, due, overlay } => {
                let kind = if due.is_some() { kind::FORWARDED_FOR_LATER } else { kind::FORWARDED };
                framed(out, kind, |out| {
                    put_u32(out, source.entity.0);
                    out.push(source.sub as u8);
                    put_u64(out, sequence.0);
                    put_u32(out, target.0);
                    put_u64(out, number.0);
                    put_time(out, *expires);
                    due.iter().for_each(|due| put_time(out, *due));
                    put_overlay(out, overlay.as_deref());
                });
            }
            Record::InSession { entity, sequence, session } => framed(out, kind::IN_SESSION, |out| {
                put_u32(out, entity.0);
                put_u64(out, sequence.0);
                put_text(out, session);
            }),
            Record::SessionStateSet { entity, session, state } => {
                framed(out, kind::SESSION_STATE_SET, |out| {
                    put_u32(out, entity.0);
                    put_text(out, session);
                    out.push(u8::from(state.is_some()));
                    if let Some((body, length)) = state {
                        put_u64(out, body.0);
                        put_u32(out, *length);
                    }
                });
            }
            Record::Relocated { body, copy } => framed(out, kind::RELOCATED, |out| {
                put_u64(out, body.0);
                put_u64(out, copy.0);
            }),
        }
    }

    /// Reads the record at the front of `bytes` and moves past it.
    pub fn decode(bytes: &mut &[u8]) -> Result<Record, Unreadable> {
        let (&kind, rest) = bytes.split_first().ok_or(Unreadable::Truncated)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(Unreadable::Truncated)?;
        let length = u32::from_le_bytes(*length) as usize;
        let fields = rest.get(..length).ok_or(Unreadable::Truncated)?;
        *bytes = &rest[length..];
        let mut fields = Fields { kind, rest: fields };
        let record = match kind {
            kind::QUEUE_CREATED => Record::QueueCreated {
                entity: EntityId(fields.u32()?),
                namespace: NamespaceId(fields.u32()?),
                path: fields.text()?,
                settings: Box::new(fields.settings()?),
            },
            kind::ENTITY_DELETED => Record::EntityDeleted { entity: EntityId(fields.u32()?) },
            kind::PART_STORED => Record::PartStored { body: BodyId(fields.u64()?) },
            kind::ENQUEUED => Record::Enqueued {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                body: BodyId(fields.u64()?),
                length: fields.u32()?,
                expires: fields.time()?,
                parts: fields.parts()?,
            },
            kind::SCHEDULED => Record::Scheduled {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                body: BodyId(fields.u64()?),
                length: fields.u32()?,
                due: fields.time()?,
                time_to_live: Span(fields.u64()?),
                parts: fields.parts()?,
            },
            kind::ACTIVATED => Record::Activated {
                entity: EntityId(fields.u32()?),
                scheduled: Sequence(fields.u64()?),
                sequence: Sequence(fields.u64()?),
                expires: fields.time()?,
            },
            kind::REMOVED => Record::Removed {
                entity: EntityId(fields.u32()?),
                first: Sequence(fields.u64()?),
                count: fields.u32()?,
            },
            kind::RETURNED => Record::Returned {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                overlay: fields.overlay()?,
            },
            kind::DEFERRED => Record::Deferred {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                overlay: fields.overlay()?,
            },
            kind::DEAD_LETTERED => Record::DeadLettered {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                reason: fields.reason()?,
                is_failure: fields.truth()?,
                overlay: fields.overlay()?,
            },
            kind::TRANSFER_DEAD_LETTERED => Record::TransferDeadLettered {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                body: BodyId(fields.u64()?),
                length: fields.u32()?,
                reason: fields.reason()?,
                parts: fields.parts()?,
            },
            kind::LOCKS_KEPT => Record::LocksKept { locks: fields.locks()? },
            kind::NOTED => Record::Noted {
                entity: EntityId(fields.u32()?),
                id: MessageKey([fields.u64()?, fields.u64()?]),
            },
            kind::SKIPPED => {
                Record::Skipped { entity: EntityId(fields.u32()?), sequence: Sequence(fields.u64()?) }
            }
            kind::FORWARDED | kind::FORWARDED_FOR_LATER => Record::Forwarded {
                source: Source { entity: EntityId(fields.u32()?), sub: fields.sub_queue()? },
                sequence: Sequence(fields.u64()?),
                target: EntityId(fields.u32()?),
                number: Sequence(fields.u64()?),
                expires: fields.time()?,
                due: (kind == kind::FORWARDED_FOR_LATER).then(|| fields.time()).transpose()?,
                overlay: fields.overlay()?,
            },
            kind::IN_SESSION => Record::InSession {
                entity: EntityId(fields.u32()?),
                sequence: Sequence(fields.u64()?),
                session: fields.text()?.into(),
            },
            kind::SESSION_STATE_SET => Record::SessionStateSet {
                entity: EntityId(fields.u32()?),
                session: fields.text()?.into(),
                state: match fields.truth()? {
                    true => Some((BodyId(fields.u64()?), fields.u32()?)),
                    false => None,
                },
            },
            kind::PUBLISHED => Record::Published(Box::new(Published::decode(&mut fields)?)),
            kind::RELOCATED => Record::Relocated { body: BodyId(fields.u64()?), copy: BodyId(fields.u64()?) },
            other => match Change::decode(other, &mut fields) {
                Some(change) => Record::Managed(Box::new(change?)),
                None => return Err(Unreadable::UnknownKind(other)),
            },
        };
        fields.finish()?;
        Ok(record)
    }
}

pub(crate) fn framed(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fields(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Seven bits in each byte, the low ones first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small whether above or below zero.
pub(crate) fn put_difference(out: &mut Vec<u8>, difference: i64) {
    put_number(out, (difference << 1 ^ difference >> 63) as u64);
}

pub(crate) fn put_time(out: &mut Vec<u8>, time: LocalTime) {
    put_u64(out, time.0 as u64);
}

fn put_parts(out: &mut Vec<u8>, parts: Option<&[BodyId]>) {
    parts.iter().copied().flatten().for_each(|part| put_u64(out, part.0));
}

fn put_overlay(out: &mut Vec<u8>, overlay: Option<&Overlay>) {
    if let Some(overlay) = overlay {
        overlay.encode(out);
    }
}

pub(crate) fn put_locks(out: &mut Vec<u8>, locks: &[KeptLock]) {
    for lock in locks {
        put_u32(out, lock.source.entity.0);
        out.push(lock.source.sub as u8);
        out.extend_from_slice(&lock.token.0.to_le_bytes());
        put_time(out, lock.until);
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u32(out, text.len() as u32);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_optional_text(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_text(out, text);
    }
}

pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &QueueSettings) {
    put_u64(out, settings.lock_duration.0);
    put_u64(out, settings.max_size_megabytes);
    put_u64(out, settings.duplicate_window.0);
    put_u64(out, settings.default_time_to_live.0);
    put_u64(out, settings.auto_delete_on_idle.0);
    put_u64(out, settings.max_message_kilobytes.unwrap_or(0));
    put_u32(out, settings.max_delivery_count);
    put_status(out, settings.status);
    let flags = [
        settings.requires_duplicate_detection,
        settings.requires_session,
        settings.dead_letter_on_expiration,
        settings.batched_operations,
        settings.partitioning,
        settings.express,
    ];
    out.push(flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum());
    put_optional_text(out, settings.forward_to.as_deref());
    put_optional_text(out, settings.forward_dead_letters_to.as_deref());
    put_optional_text(out, settings.user_metadata.as_deref());
}

pub(crate) fn put_status(out: &mut Vec<u8>, status: Status) {
    out.push(match status {
        Status::Active => 0,
        Status::Disabled => 1,
        Status::SendDisabled => 2,
        Status::ReceiveDisabled => 3,
    });
}

#[derive(Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) kind: u8,
    pub(crate) rest: &'a [u8],
}

impl Fields<'_> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>().ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(*fixed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Unreadable> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Unreadable> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Unreadable> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable::BadField("a number is too long"))
    }

    pub(crate) fn difference(&mut self) -> Result<i64, Unreadable> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn time(&mut self) -> Result<LocalTime, Unreadable> {
        self.u64().map(|time| LocalTime(time as i64))
    }

    fn truth(&mut self) -> Result<bool, Unreadable> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable::BadField("a truth is neither yes nor no")),
        }
    }

    fn reason(&mut self) -> Result<Reason, Unreadable> {
        match self.u8()? {
            0 => Ok(Reason::Client),
            1 => Ok(Reason::Expired),
            2 => Ok(Reason::MaxDeliveryCount),
            3 => Ok(Reason::MaxTransferHops),
            4 => Ok(Reason::NotForwarded),
            5 => Ok(Reason::SessionMissing),
            6 => Ok(Reason::DestinationDisabled),
            _ => Err(Unreadable::BadField("reason")),
        }
    }

    pub(crate) fn sub_queue(&mut self) -> Result<SubQueue, Unreadable> {
        match self.u8()? {
            0 => Ok(SubQueue::Main),
            1 => Ok(SubQueue::DeadLetter),
            2 => Ok(SubQueue::TransferDeadLetter),
            _ => Err(Unreadable::BadField("sub-queue")),
        }
    }

    pub(crate) fn locks(&mut self) -> Result<Box<[KeptLock]>, Unreadable> {
        let mut locks = Vec::new();
        while !self.rest.is_empty() {
            let entity = EntityId(self.u32()?);
            let sub = self.sub_queue()?;
            let token = LockToken(u128::from_le_bytes(self.fixed()?));
            locks.push(KeptLock { source: Source { entity, sub }, token, until: self.time()? });
        }
        Ok(locks.into())
    }

    pub(crate) fn text(&mut self) -> Result<Box<str>, Unreadable> {
        let length = self.u32()? as usize;
        let bytes = self.rest.get(..length).ok_or(Unreadable::Truncated)?;
        self.rest = &self.rest[length..];
        std::str::from_utf8(bytes).map(Box::from).map_err(|_| Unreadable::BadField("text is not UTF-8"))
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<Box<str>>, Unreadable> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.text().map(Some),
            _ => Err(Unreadable::BadField("a text is neither there nor not")),
        }
    }

    fn parts(&mut self) -> Result<Option<Box<[BodyId]>>, Unreadable> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if !self.rest.len().is_multiple_of(8) {
            return Err(Unreadable::Truncated);
        }
        let mut parts = Vec::with_capacity(self.rest.len() / 8);
        while !self.rest.is_empty() {
            parts.push(BodyId(self.u64()?));
        }
        Ok(Some(parts.into()))
    }

    /// An overlay of so many bytes; none is none.
    pub(crate) fn sized_overlay(&mut self, length: usize) -> Result<Option<Box<Overlay>>, Unreadable> {
        let (overlay, rest) = self.rest.split_at_checked(length).ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Fields { kind: self.kind, rest: overlay }.overlay()
    }

    pub(crate) fn overlay(&mut self) -> Result<Option<Box<Overlay>>, Unreadable> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let overlay = Overlay::decode(self.rest).map_err(|_| Unreadable::BadField("overlay"))?;
        self.rest = &[];
        Ok(Some(Box::new(overlay)))
    }

    pub(crate) fn status(&mut self) -> Result<Status, Unreadable> {
        Ok(match self.u8()? {
            0 => Status::Active,
            1 => Status::Disabled,
            2 => Status::SendDisabled,
            3 => Status::ReceiveDisabled,
            _ => return Err(Unreadable::BadField("status")),
        })
    }

    pub(crate) fn settings(&mut self) -> Result<QueueSettings, Unreadable> {
        let lock_duration = Span(self.u64()?);
        let max_size_megabytes = self.u64()?;
        let duplicate_window = Span(self.u64()?);
        let default_time_to_live = Span(self.u64()?);
        let auto_delete_on_idle = Span(self.u64()?);
        let max_message_kilobytes = Some(self.u64()?).filter(|kilobytes| *kilobytes != 0);
        let max_delivery_count = self.u32()?;
        let status = self.status()?;
        let flags = self.u8()?;
        let flag = |bit: u8| flags & (1 << bit) != 0;
        Ok(QueueSettings {
            lock_duration,
            max_size_megabytes,
            duplicate_window,
            default_time_to_live,
            auto_delete_on_idle,
            max_message_kilobytes,
            max_delivery_count,
            status,
            requires_duplicate_detection: flag(0),
            requires_session: flag(1),
            dead_letter_on_expiration: flag(2),
            batched_operations: flag(3),
            partitioning: flag(4),
            express: flag(5),
            forward_to: self.optional_text()?,
            forward_dead_letters_to: self.optional_text()?,
            user_metadata: self.optional_text()?,
        })
    }

    pub(crate) fn finish(&self) -> Result<(), Unreadable> {
        if self.rest.is_empty() { Ok(()) } else { Err(Unreadable::UnknownFields(self.kind)) }
    }
}

#[cfg(test)]
mod tests;
