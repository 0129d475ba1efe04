//! The record of a message that was published: where it came from, the number it took at the topic, and the copies that
//! subscriptions have of it. One record, so that a message is with all of them or with none.
//!
//! What must always hold: the copies share the body. A body is alive as long as any of them names it, which is what a
//! snapshot counts; nobody counts references.

use crate::durable::Applying;
use crate::effect::{Extra, Forwarded};
use crate::extras::stored_bytes;
use crate::ids::{BodyId, EntityId, Sequence, Source};
use crate::limits::COPY_BYTES;
use crate::queue::forward::TakenOut;
use crate::queue::index::Slot;
use crate::record::{Field, Fields, Unreadable, put_difference, put_number};
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

impl Field for Published {
    fn put(&self, out: &mut Vec<u8>) {
        let Published { topic, sequence, origin, copies } = self;
        topic.put(out);
        sequence.put(out);
        origin.put(out);
        (copies.len() as u32).put(out);
        // Most copies follow each other closely and live equally long, so that each takes three bytes.
        let mut before = (0, LocalTime(0));
        for copy in copies {
            put_difference(out, i64::from(copy.subscription.0) - before.0);
            put_difference(out, copy.expires.0.wrapping_sub(before.1.0));
            put_number(out, copy.overlay.more_bytes() as u64);
            copy.overlay.put(out);
            before = (copy.subscription.0.into(), copy.expires);
        }
    }

    fn get(fields: &mut Fields<'_>) -> Result<Published, Unreadable> {
        let (topic, sequence, origin) = (Field::get(fields)?, Field::get(fields)?, Field::get(fields)?);
        let count = u32::get(fields)?;
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

    fn more_bytes(&self) -> usize {
        self.copies.iter().map(|copy| COPY_BYTES + copy.overlay.more_bytes()).sum()
    }
}

const SENT: u8 = 0;
const SCHEDULED: u8 = 1;
const FORWARDED: u8 = 2;

impl Field for Origin {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Origin::Sent { body, length, parts } => {
                out.push(SENT);
                body.put(out);
                length.put(out);
                (parts.as_ref().map_or(0, |parts| parts.len() as u32)).put(out);
                parts.put(out);
            }
            Origin::Scheduled(sequence) => {
                out.push(SCHEDULED);
                sequence.put(out);
            }
            Origin::Forwarded { source, sequence } => {
                out.push(FORWARDED);
                source.put(out);
                sequence.put(out);
            }
        }
    }

    fn get(fields: &mut Fields<'_>) -> Result<Origin, Unreadable> {
        Ok(match u8::get(fields)? {
            SENT => {
                let (body, length) = (Field::get(fields)?, Field::get(fields)?);
                let parts = <Vec<BodyId>>::get(fields)?;
                Origin::Sent { body, length, parts: (!parts.is_empty()).then(|| parts.into()) }
            }
            SCHEDULED => Origin::Scheduled(Field::get(fields)?),
            FORWARDED => Origin::Forwarded { source: Field::get(fields)?, sequence: Field::get(fields)? },
            _ => return Err(Unreadable::BadField("where a published message comes from")),
        })
    }
}

impl Applying<'_> {
    /// Takes a message that was published: out of where it was, and into the subscriptions.
    pub(crate) fn published(&mut self, published: &Published) {
        let time = self.time;
        let Published { topic, sequence, origin, copies } = published;
        let (body, length, was_scheduled, base) = match origin {
            Origin::Sent { body, length, parts } => {
                self.name_body(*body);
                let parts = parts.as_deref().map(<[BodyId]>::to_vec).unwrap_or_default();
                (*body, *length, false, Arc::new(Extra { parts, ..Extra::default() }))
            }
            Origin::Scheduled(waiting) => {
                let queue = self.queue_mut(*topic);
                let slot = queue.remove(*waiting);
                let mut extra = queue.extras.remove(waiting).unwrap_or_default();
                Arc::make_mut(&mut extra).time_to_live = None;
                // What only waited for its turn had no time to wait for.
                (slot.body, slot.length, slot.expires != LocalTime::AT_ONCE, extra)
            }
            Origin::Forwarded { source, sequence } => {
                let TakenOut { slot, extra, .. } = self.take_out(*source, *sequence);
                (slot.body, slot.length, slot.was_scheduled(), extra)
            }
        };
        let queue = self.queue_mut(*topic);
        queue.use_up(*sequence);
        let stored = |copy: &Copied| if copy.overlay.is_none() { stored_bytes(&base) } else { 0 };
        queue.below += copies.iter().map(|copy| u64::from(length) + stored(copy)).sum::<u64>();
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
            let slot = Slot::active(body, length, time, copy.expires);
            queue.push(number, slot.after_schedule(was_scheduled));
            if !(is_behind && is_plain) {
                let extra = if is_behind { &base } else { &numbered };
                queue.extras.insert(number, Arc::clone(extra));
            }
            queue.merge(number, copy.overlay.as_deref());
        }
    }
}
