//! The record of a message that was published: where it came from, the number it took at the topic, and the copies that
//! subscriptions have of it. One record, so that a message is with all of them or with none.
//!
//! What must always hold: the copies share the body. A body is alive as long as any of them names it, which is what a
//! snapshot counts; nobody counts references.

use crate::durable::Durable;
use crate::effect::{Extra, Forwarded};
use crate::ids::{BodyId, EntityId, Sequence, Source};
use crate::queue::index::Slot;
use crate::record::{Fields, Unreadable, put_difference, put_number, put_u32, put_u64};
use crate::time::LocalTime;
use message::overlay::Overlay;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub topic: EntityId,
    /// The number that it took at the topic (S-36).
    pub sequence: Sequence,
    pub origin: Origin,
    pub copies: Box<[Copied]>,
}

/// Where a published message comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was just sent. `parts` come before `body`, `length` is that of all.
    Sent { body: BodyId, length: u32, parts: Option<Box<[BodyId]>> },
    /// It has waited at the topic, under this number.
    Scheduled(Sequence),
    /// It was forwarded from another entity.
    Forwarded { source: Source, sequence: Sequence },
}

/// What one subscription has of it, under the next number of that subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    pub subscription: EntityId,
    pub expires: LocalTime,
    /// What the action of a rule has changed (S-182).
    pub overlay: Option<Box<Overlay>>,
}

const SENT: u8 = 0;
const SCHEDULED: u8 = 1;
const FORWARDED: u8 = 2;

impl Published {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.topic.0);
        put_u64(out, self.sequence.0);
        match &self.origin {
            Origin::Sent { body, length, parts } => {
                out.push(SENT);
                put_u64(out, body.0);
                put_u32(out, *length);
                put_u32(out, parts.as_ref().map_or(0, |parts| parts.len() as u32));
                parts.iter().flatten().for_each(|part| put_u64(out, part.0));
            }
            Origin::Scheduled(sequence) => {
                out.push(SCHEDULED);
                put_u64(out, sequence.0);
            }
            Origin::Forwarded { source, sequence } => {
                out.push(FORWARDED);
                put_u32(out, source.entity.0);
                out.push(source.sub as u8);
                put_u64(out, sequence.0);
            }
        }
        put_u32(out, self.copies.len() as u32);
        // Most copies follow each other closely and live equally long, so that each takes three bytes.
        let mut before = (0, LocalTime(0));
        for copy in &self.copies {
            put_difference(out, i64::from(copy.subscription.0) - before.0);
            put_difference(out, copy.expires.0.wrapping_sub(before.1.0));
            put_number(out, copy.overlay.as_ref().map_or(0, |overlay| overlay.encoded_bytes() as u64));
            copy.overlay.iter().for_each(|overlay| overlay.encode(out));
            before = (copy.subscription.0.into(), copy.expires);
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Published, Unreadable> {
        let topic = EntityId(fields.u32()?);
        let sequence = Sequence(fields.u64()?);
        let origin = match fields.u8()? {
            SENT => {
                let (body, length) = (BodyId(fields.u64()?), fields.u32()?);
                let parts =
                    (0..fields.u32()?).map(|_| fields.u64().map(BodyId)).collect::<Result<Vec<_>, _>>()?;
                Origin::Sent { body, length, parts: (!parts.is_empty()).then(|| parts.into()) }
            }
            SCHEDULED => Origin::Scheduled(Sequence(fields.u64()?)),
            FORWARDED => {
                let source = Source { entity: EntityId(fields.u32()?), sub: fields.sub_queue()? };
                Origin::Forwarded { source, sequence: Sequence(fields.u64()?) }
            }
            _ => return Err(Unreadable::BadField("where a published message comes from")),
        };
        let count = fields.u32()?;
        let mut before = (0i64, LocalTime(0));
        let copy = |_| {
            let subscription = before.0.wrapping_add(fields.difference()?);
            let subscription =
                u32::try_from(subscription).map_err(|_| Unreadable::BadField("a subscription"))?;
            let expires = LocalTime(before.1.0.wrapping_add(fields.difference()?));
            before = (subscription.into(), expires);
            let length = usize::try_from(fields.number()?).map_err(|_| Unreadable::Truncated)?;
            let overlay = fields.sized_overlay(length)?;
            Ok(Copied { subscription: EntityId(subscription), expires, overlay })
        };
        let copies = (0..count).map(copy).collect::<Result<_, _>>()?;
        Ok(Published { topic, sequence, origin, copies })
    }
}

impl Durable {
    /// Takes a message that was published: out of where it was, and into the subscriptions.
    pub(crate) fn publish(&mut self, published: &Published, time: LocalTime) {
        let Published { topic, sequence, origin, copies } = published;
        let (body, length, base) = match origin {
            Origin::Sent { body, length, parts } => {
                self.name_body(*body);
                let parts = parts.as_deref().map(<[BodyId]>::to_vec).unwrap_or_default();
                (*body, *length, Arc::new(Extra { parts, ..Extra::default() }))
            }
            Origin::Scheduled(waiting) => {
                let queue = self.queue_mut(*topic);
                let slot = queue.remove(*waiting);
                let mut extra = queue.extras.remove(waiting).unwrap_or_default();
                Arc::make_mut(&mut extra).time_to_live = None;
                (slot.body, slot.length, extra)
            }
            Origin::Forwarded { source, sequence } => {
                let (slot, extra) = self.take_out(*source, *sequence);
                (slot.body, slot.length, extra)
            }
        };
        let queue = self.queue_mut(*topic);
        assert_eq!(*sequence, queue.next, "numbers have no gaps");
        queue.next = sequence.next();
        queue.below += u64::from(length) * copies.len() as u64;
        // Most copies have their number at the topic by what the subscription is behind; the others share this.
        let first = Forwarded { number: queue.number(*sequence), hops: 0 };
        let (is_plain, is_first) = (*base == Extra::default(), base.forwarded.is_none());
        let numbered = Arc::new(Extra { forwarded: base.forwarded.or(Some(first)), ..(*base).clone() });
        for copy in copies {
            let queue = self.queue_mut(copy.subscription);
            let number = queue.next;
            let number_offset = sequence.0.wrapping_sub(number.0);
            if queue.counts.total() == 0 {
                queue.number_offset = number_offset;
            }
            let is_behind = is_first && number_offset == queue.number_offset;
            queue.push(number, Slot::active(body, length, time, copy.expires));
            if !(is_behind && is_plain) {
                let extra = if is_behind { &base } else { &numbered };
                queue.extras.insert(number, Arc::clone(extra));
            }
            queue.merge(number, copy.overlay.as_deref());
        }
    }
}
