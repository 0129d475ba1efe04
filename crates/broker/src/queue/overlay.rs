//! Changed properties: in memory with their message while they are small, and beyond that in a body of their own, of which memory
//! has the id. Such a body is written once, like every other, and is read when somebody sees the message or changes it again.
//!
//! What must always hold: what was changed of a message is in one place, all of it. So who changes something of what is stored has
//! read it before, and records all of it anew.

use crate::Broker;
use crate::decision::{LocalDecision, Material};
use crate::durable::Applying;
use crate::effect::StoredOverlay;
use crate::ids::{EntityId, Sequence, Source};
use crate::limits::{CHANGED_SIZE_TIMES, SMALL_OVERLAY_BYTES};
use crate::planted::{Bug, is_planted};
use crate::record::Record;
use crate::refusal::Refusal;
use message::overlay::Overlay;

/// Changed properties on their way into the durable state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In the record of what becomes of the message: what is new, or over what is stored all of it.
    InRecord(Box<Overlay>),
    /// All of it, in a body.
    Stored(Box<Overlay>),
}

impl Kept {
    /// All that was changed of a message.
    pub(crate) fn whole(overlay: Overlay) -> Kept {
        let overlay = Box::new(overlay);
        if is_small(overlay.encoded_bytes()) { Kept::InRecord(overlay) } else { Kept::Stored(overlay) }
    }

    /// A change that fits together with those before it, which are stored or not.
    pub(crate) fn change(before: Option<&Overlay>, is_stored: bool, change: &Overlay) -> Kept {
        let before_bytes = before.map_or(0, Overlay::encoded_bytes);
        if !is_stored && is_small(before_bytes + change.encoded_bytes()) {
            return Kept::InRecord(Box::new(change.clone()));
        }
        let mut whole = before.cloned().unwrap_or_default();
        whole.merge(change).expect("the change was checked before");
        Kept::whole(whole)
    }
}

pub(crate) fn is_small(bytes: usize) -> bool {
    bytes <= SMALL_OVERLAY_BYTES
}

impl Broker {
    /// How changes of a message are kept, that were checked. `material` has what is stored of those before.
    pub(crate) fn keep_change(
        &self,
        source: Source,
        sequence: Sequence,
        change: &Overlay,
        material: &Material,
    ) -> Kept {
        let Some(extra) = self.queue_of(source).extras.get(&sequence) else {
            return Kept::change(None, false, change);
        };
        let body = extra.stored_overlay.map(|stored| stored.body);
        let before = extra.changes(body.and_then(|body| material.content(body)).unwrap_or_default());
        let before = before.expect("what is stored was read, and was looked at when the change was checked");
        let before = before.filter(|_| body.is_none() || !is_planted(Bug::ChangesForgotten));
        Kept::change(before.as_deref(), body.is_some(), change)
    }

    /// Stores what is not small. Returns what the record of what becomes of the message takes.
    pub(crate) fn write_kept(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        kept: Kept,
        decision: &mut LocalDecision<'_>,
    ) -> Option<Box<Overlay>> {
        match kept {
            Kept::InRecord(overlay) => Some(overlay),
            Kept::Stored(overlay) => {
                self.store_overlay(entity, sequence, &overlay, decision);
                None
            }
        }
    }

    /// Stores all that was changed of a message.
    pub(crate) fn store_overlay(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        overlay: &Overlay,
        decision: &mut LocalDecision<'_>,
    ) {
        let body = self.durable.next_body();
        let length = decision.make_body(|out| overlay.encode(out));
        self.write(Record::OverlayStored { entity, sequence, body, length }, decision);
    }

    /// Whether there is room for changes that are not small: they take of the disk what a message takes. A full entity refuses
    /// what is sent to it, not what is settled (S-19), so changes have room beyond.
    pub(crate) fn check_room_for_changes(&self, entity: EntityId) -> Result<(), Refusal> {
        if self.volatile.is_short() {
            return Err(Refusal::NoSpace);
        }
        let topic = self.durable.queue(entity).and_then(|queue| queue.kind.topic());
        self.check_held_size(topic.unwrap_or(entity), CHANGED_SIZE_TIMES)
    }
}

impl Applying<'_> {
    /// All that was changed of a message is in a body from now on.
    pub(crate) fn overlay_stored(&mut self, entity: EntityId, sequence: Sequence, stored: StoredOverlay) {
        self.name_body(stored.body);
        let queue = self.queue_mut(entity);
        let before = queue.own_bytes();
        queue.extras.edit(sequence, |extra| {
            extra.overlay = None;
            extra.stored_overlay = Some(stored);
        });
        self.tell_topic(entity, before);
    }

    /// Properties of a message were changed, as a record says.
    pub(crate) fn change_properties(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        overlay: Option<&Overlay>,
    ) {
        if overlay.is_some() {
            let queue = self.queue_mut(entity);
            let before = queue.own_bytes();
            queue.merge(sequence, overlay);
            self.tell_topic(entity, before);
        }
    }
}

#[cfg(test)]
mod tests;
