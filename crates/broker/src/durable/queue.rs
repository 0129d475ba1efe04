//! What holds the messages of a queue, a topic or a subscription.

use crate::effect::{Extra, StoredOverlay};
use crate::extras::Extras;
use crate::ids::{BodyId, EntityId, NamespaceId, Number, Sequence, SubQueue};
use crate::limits::{BODY_PART_BYTES, READ_MESSAGE_COST};
use crate::queue::history::History;
use crate::queue::index::{Index, Reason, Slot, State};
use crate::session::register::{Membership, SessionState, Sessions};
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span};
use message::overlay::Overlay;
use std::hash::Hash;
use std::sync::Arc;

/// What holds messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Queue,
    /// Holds only what is scheduled (S-180).
    Topic,
    Subscription {
        topic: EntityId,
    },
}

impl Kind {
    /// The topic that a subscription belongs to.
    pub(crate) fn topic(self) -> Option<EntityId> {
        match self {
            Kind::Subscription { topic } => Some(topic),
            Kind::Queue | Kind::Topic => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Queue => "Queue",
            Kind::Topic => "Topic",
            Kind::Subscription { .. } => "Subscription",
        }
    }
}

/// A queue, or the messages of a topic or of a subscription, which live by the same rules.
#[derive(Debug, Clone)]
pub struct Queue {
    pub kind: Kind,
    pub namespace: NamespaceId,
    pub path: Box<str>,
    /// Its settings; for a topic or a subscription, what its own settings mean for its messages.
    pub settings: QueueSettings,
    pub created: LocalTime,
    pub updated: LocalTime,
    /// The id in the top bits of its numbers, if it is partitioned (S-221).
    pub partition: u16,
    /// The number that the next message will take.
    pub next: Sequence,
    /// What is received, deferred or scheduled.
    pub index: Index,
    /// The dead-letter queue. Numbers are those of `index`, and a message is in one part of the queue alone.
    pub dead: Index,
    /// The transfer dead-letter queue, while there is anything in it: few queues ever have one (S-114).
    pub transfer_dead: Option<Box<Index>>,
    pub extras: Extras,
    /// What it looks for duplicates in (S-160).
    pub history: History,
    pub counts: Counts,
    /// Bytes of messages and of states of sessions; what changed properties take is counted by `extras`.
    pub bytes: u64,
    /// The sessions of its messages, where anybody may ask for them.
    pub sessions: Option<Box<Sessions>>,
    /// The bytes that the subscriptions of a topic hold (S-235).
    pub below: u64,
    /// In a subscription, what most of its messages had for a number at the topic is so much more than the one that they
    /// have here (S-36). What differs says so in its extra.
    pub number_offset: u64,
}

/// How many messages an entity holds, by what has become of them (S-233).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Ready for delivery, or delivered and locked.
    pub active: u64,
    pub deferred: u64,
    pub scheduled: u64,
    pub dead_letter: u64,
    pub transfer_dead_letter: u64,
}

/// A partitioned entity lives in one of sixteen partitions, all of which are here (S-221).
pub const PARTITIONS: u16 = 16;

/// The partition that an entity lives in, should it be partitioned.
fn partition_of(entity: EntityId) -> u16 {
    (entity.0 % u32::from(PARTITIONS)) as u16
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.active + self.deferred + self.scheduled + self.dead_letter + self.transfer_dead_letter
    }

    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Active => &mut self.active,
            State::Deferred => &mut self.deferred,
            State::Scheduled => &mut self.scheduled,
            State::Gone => unreachable!("what is gone is not counted"),
        }
    }
}

impl Queue {
    pub(crate) fn empty(
        kind: Kind,
        entity: EntityId,
        namespace: NamespaceId,
        path: Box<str>,
        settings: QueueSettings,
        time: LocalTime,
    ) -> Queue {
        Queue {
            kind,
            namespace,
            path,
            settings,
            created: time,
            updated: time,
            // The numbers of a subscription are those of the partition of its topic.
            partition: partition_of(if let Kind::Subscription { topic } = kind { topic } else { entity }),
            next: Sequence(1),
            index: Index::default(),
            dead: Index::default(),
            transfer_dead: None,
            extras: Extras::default(),
            history: History::default(),
            counts: Counts::default(),
            bytes: 0,
            below: 0,
            number_offset: 0,
            sessions: None,
        }
    }

    /// Everything that counts for its quota (S-235).
    pub fn held_bytes(&self) -> u64 {
        self.own_bytes() + self.below
    }

    /// The same without what the subscriptions of a topic hold.
    pub fn own_bytes(&self) -> u64 {
        self.bytes + self.extras.stored_bytes()
    }

    /// The number that a message had where it was sent, if that was another entity (S-36).
    pub fn first_number(&self, sequence: Sequence) -> Option<Number> {
        let forwarded = self.extras.get(&sequence).and_then(|extra| extra.forwarded);
        let is_copy = matches!(self.kind, Kind::Subscription { .. });
        let copied = || is_copy.then(|| self.number(Sequence(sequence.0.wrapping_add(self.number_offset))));
        forwarded.map(|forwarded| forwarded.number).or_else(copied)
    }

    /// The body that a message begins with.
    pub(crate) fn first_body(&self, sequence: Sequence, slot: &Slot) -> BodyId {
        let parts = self.extras.get(&sequence).map(|extra| &extra.parts[..]).unwrap_or_default();
        parts.first().copied().unwrap_or(slot.body)
    }

    /// Every body of a message: those that it is made of, in their order, and that of its changed properties.
    pub(crate) fn bodies(&self, sequence: Sequence, slot: &Slot) -> impl Iterator<Item = BodyId> {
        let extra = self.extras.get(&sequence);
        let parts = extra.map(|extra| &extra.parts[..]).unwrap_or_default();
        let overlay = extra.and_then(|extra| extra.stored_overlay).map(|stored| stored.body);
        parts.iter().copied().chain([slot.body]).chain(overlay)
    }

    /// What must be read of a message to see its properties: the body that it begins with, and that of what was changed.
    pub(crate) fn wanted_bodies(&self, sequence: Sequence, slot: &Slot) -> Vec<BodyId> {
        let overlay = self.stored_overlay(sequence).map(|stored| stored.body);
        [self.first_body(sequence, slot)].into_iter().chain(overlay).collect()
    }

    pub(crate) fn stored_overlay(&self, sequence: Sequence) -> Option<StoredOverlay> {
        self.extras.get(&sequence)?.stored_overlay
    }

    /// Bytes of the changed properties of a message, if they are stored.
    pub(crate) fn overlay_bytes(&self, sequence: Sequence) -> u64 {
        self.stored_overlay(sequence).map_or(0, |stored| stored.length.into())
    }

    /// What [`Queue::wanted_bodies`] of a message take in memory.
    pub(crate) fn wanted_bytes(&self, sequence: Sequence, slot: &Slot) -> u64 {
        let has_parts = self.extras.get(&sequence).is_some_and(|extra| !extra.parts.is_empty());
        let first = if has_parts { slot.length.min(BODY_PART_BYTES) } else { slot.length };
        u64::from(first) + self.overlay_bytes(sequence) + READ_MESSAGE_COST
    }

    /// The messages of a part of the queue, if it has any.
    pub fn index_of(&self, sub: SubQueue) -> Option<&Index> {
        match sub {
            SubQueue::Main => Some(&self.index),
            SubQueue::DeadLetter => Some(&self.dead),
            SubQueue::TransferDeadLetter => self.transfer_dead.as_deref(),
        }
    }

    /// The number by which clients know a message.
    pub fn number(&self, sequence: Sequence) -> Number {
        if self.settings.partitioning {
            Number(u64::from(self.partition) << Number::PARTITION_SHIFT | sequence.0 & Number::COUNTER)
        } else {
            Number(sequence.0)
        }
    }

    /// The newest message that may have this number.
    pub fn sequence(&self, number: Number) -> Option<Sequence> {
        if !self.settings.partitioning {
            return Some(Sequence(number.0));
        }
        if number.0 >> Number::PARTITION_SHIFT != u64::from(self.partition) {
            return None;
        }
        let newest = self.next.0 & !Number::COUNTER | number.0 & Number::COUNTER;
        if newest < self.next.0 {
            Some(Sequence(newest))
        } else {
            newest.checked_sub(Number::COUNTER + 1).map(Sequence)
        }
    }

    /// The next number is used, by a message or by none (S-48).
    pub(crate) fn use_up(&mut self, sequence: Sequence) {
        assert_eq!(sequence, self.next, "numbers have no gaps");
        self.next = sequence.next();
    }

    pub(crate) fn push(&mut self, sequence: Sequence, slot: Slot) {
        self.use_up(sequence);
        self.index.push(sequence, slot);
        *self.counts.of(slot.state()) += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Adds a message that waits for its time, under the next number or one that was kept for it (`Skipped`).
    pub(crate) fn put_scheduled(&mut self, sequence: Sequence, slot: Slot) {
        if sequence >= self.next {
            return self.push(sequence, slot);
        }
        self.index.insert(sequence, slot);
        self.counts.scheduled += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Takes a message out of wherever it is.
    pub(crate) fn remove(&mut self, sequence: Sequence) -> Slot {
        let slot = match self.index.remove(sequence) {
            Some(slot) => {
                *self.counts.of(slot.state()) -= 1;
                slot
            }
            None => {
                let slot = self.unbury(sequence);
                slot.expect("only a message that is there is recorded as removed")
            }
        };
        self.bytes -= u64::from(slot.length);
        if let Some(sessions) = &mut self.sessions {
            sessions.leave(sequence);
        }
        slot
    }

    /// Takes a message out of whichever dead-letter queue has it.
    fn unbury(&mut self, sequence: Sequence) -> Option<Slot> {
        if let Some(slot) = self.dead.remove(sequence) {
            self.counts.dead_letter -= 1;
            return Some(slot);
        }
        let slot = self.transfer_dead.as_mut()?.remove(sequence)?;
        self.counts.transfer_dead_letter -= 1;
        if self.counts.transfer_dead_letter == 0 {
            self.transfer_dead = None;
        }
        Some(slot)
    }

    /// Whichever dead-letter queue has a message.
    fn grave_of(&mut self, sequence: Sequence) -> &mut Index {
        match &mut self.transfer_dead {
            Some(transfer_dead) if transfer_dead.get(sequence).is_some() => transfer_dead,
            _ => &mut self.dead,
        }
    }

    /// A message, wherever in the queue it is.
    pub fn get(&self, sequence: Sequence) -> Option<&Slot> {
        let transfer_dead = || self.transfer_dead.as_ref()?.get(sequence);
        self.index.get(sequence).or_else(|| self.dead.get(sequence)).or_else(transfer_dead)
    }

    /// All messages: those that are received, then dead letters, then those of the transfer dead-letter queue.
    pub fn indexes(&self) -> impl Iterator<Item = &Index> {
        [&self.index, &self.dead].into_iter().chain(self.transfer_dead.as_deref())
    }

    /// A delivery has failed. In a dead-letter queue the count stands still (S-115).
    pub(crate) fn raise_count(&mut self, sequence: Sequence) {
        match self.index.get_mut(sequence) {
            Some(slot) => slot.raise_count(),
            None => assert!(self.get(sequence).is_some(), "only a message that is there returns"),
        }
    }

    pub(crate) fn defer(&mut self, sequence: Sequence) {
        match self.index.get(sequence) {
            Some(slot) => {
                *self.counts.of(slot.state()) -= 1;
                self.counts.deferred += 1;
                self.index.set_state(sequence, State::Deferred);
                if let Some(sessions) = &mut self.sessions {
                    sessions.set_aside(sequence);
                }
            }
            None => self.grave_of(sequence).set_state(sequence, State::Deferred),
        }
    }

    pub(crate) fn dead_letter(&mut self, sequence: Sequence, reason: Reason) {
        let slot = self.index.remove(sequence).expect("only a message that is there is dead-lettered");
        *self.counts.of(slot.state()) -= 1;
        self.counts.dead_letter += 1;
        self.dead.insert(sequence, slot.dead(reason));
        if let Some(sessions) = &mut self.sessions {
            sessions.mark_dead(sequence);
        }
    }

    /// A message begins in the transfer dead-letter queue.
    pub(crate) fn transfer_dead_letter(&mut self, sequence: Sequence, slot: Slot) {
        self.use_up(sequence);
        self.transfer_dead.get_or_insert_default().push(sequence, slot);
        self.counts.transfer_dead_letter += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Whether it remembers the sessions of its messages: it, or whatever it forwards to, may ask for them.
    pub fn keeps_sessions(&self) -> bool {
        let QueueSettings { requires_session, forward_to, forward_dead_letters_to, .. } = &self.settings;
        // A topic holds what is scheduled, and its copies may need the session.
        let is_asked = self.kind == Kind::Topic || *requires_session;
        is_asked || forward_to.is_some() || forward_dead_letters_to.is_some()
    }

    /// The session of a message, if it is remembered.
    pub fn session_of(&self, sequence: Sequence) -> Option<&Arc<str>> {
        self.sessions.as_ref()?.of(sequence)
    }

    /// A message that is there belongs to a session.
    pub(crate) fn join(&mut self, sequence: Sequence, session: &Arc<str>) {
        let membership = match self.index.get(sequence).map(Slot::state) {
            Some(State::Active) => Membership::Active,
            Some(_) => Membership::Aside,
            None => Membership::Dead,
        };
        self.sessions.get_or_insert_default().join(sequence, session, membership);
    }

    pub(crate) fn set_session_state(&mut self, session: &Arc<str>, state: Option<SessionState>) {
        self.bytes += state.map_or(0, |state| u64::from(state.length));
        let before = self.sessions.get_or_insert_default().set_state(session, state);
        self.bytes -= before.map_or(0, |state| u64::from(state.length));
    }

    /// Properties of a message were changed. Over changes that are stored, a record has all that there are.
    pub(crate) fn merge(&mut self, sequence: Sequence, overlay: Option<&Overlay>) {
        if let Some(overlay) = overlay {
            self.extras.edit(sequence, |extra| {
                extra.stored_overlay = None;
                let merged = extra.overlay.get_or_insert_default().merge(overlay);
                merged.expect("the change was checked before");
            });
        }
    }

    pub(crate) fn add_extra(&mut self, sequence: Sequence, parts: Option<&[BodyId]>, time_to_live: Span) {
        let time_to_live = (!time_to_live.is_max()).then_some(time_to_live);
        if parts.is_some() || time_to_live.is_some() {
            let parts = parts.map(<[BodyId]>::to_vec).unwrap_or_default();
            self.extras.insert(sequence, Arc::new(Extra { parts, time_to_live, ..Extra::default() }));
        }
    }
}
