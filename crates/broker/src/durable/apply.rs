//! Taking records into memory: live, and again in replay. What a record does is told beside its verb; here is which verb that
//! is, and in whose time it is told.
//!
//! What must always hold: nothing durable changes in another way. Decisions have a `&Durable`; a `&mut` of anything in it
//! is had through [`Applying`] alone, which is made here, for one record.

use super::{Durable, Queue};
use crate::effect::StoredOverlay;
use crate::ids::{BodyId, EntityId, NamespaceId};
use crate::queue::index::Slot;
use crate::record::Record;
use crate::time::{LocalTime, Time};
use crate::topic::Topics;
use crate::topic::change::Change;
use std::ops::Deref;
use std::sync::Arc;

/// The durable state while a record is taken into it.
#[derive(Debug)]
pub(crate) struct Applying<'a> {
    pub(super) durable: &'a mut Durable,
    /// That of the namespace that the record speaks of.
    pub(crate) time: LocalTime,
}

impl Deref for Applying<'_> {
    type Target = Durable;

    fn deref(&self) -> &Durable {
        self.durable
    }
}

impl Durable {
    /// Takes a record into memory, whose batch has the owner's time `time`.
    pub fn apply(&mut self, record: &Record, time: Time) {
        if let Record::Managed(change) = record
            && let Change::ClockMoved { namespace, to } = **change
        {
            return self.move_clock(namespace, to, time);
        }
        let dated = if self.clock_offsets.is_empty() { None } else { self.namespace_of_record(record) };
        let offset =
            dated.and_then(|namespace| self.clock_offsets.get(&namespace)).copied().unwrap_or_default();
        self.apply_local(record, time.local(offset));
    }

    /// Somebody moved the time of a namespace to `to`, when the owner's was `owner`.
    pub(super) fn move_clock(&mut self, namespace: NamespaceId, to: LocalTime, owner: Time) {
        self.kept_locks = Arc::default();
        self.clock_offsets.insert(namespace, to.offset_from(owner));
    }

    /// Takes a record into memory. `time` is that of the namespace that it speaks of.
    pub(crate) fn apply_local(&mut self, record: &Record, time: LocalTime) {
        if !self.kept_locks.is_empty() {
            self.kept_locks = Arc::default();
        }
        Applying { durable: self, time }.record(record);
    }

    /// Whose time a record is told in; of those that are told in none, nobody's.
    pub(crate) fn namespace_of_record(&self, record: &Record) -> Option<NamespaceId> {
        match record {
            Record::QueueCreated { namespace, .. } => Some(*namespace),
            Record::Enqueued { entity, .. }
            | Record::Scheduled { entity, .. }
            | Record::TransferDeadLettered { entity, .. }
            | Record::Activated { entity, .. }
            | Record::SessionStateSet { entity, .. }
            | Record::Noted { entity, .. } => self.namespace_of(*entity),
            Record::Forwarded { source, .. } => self.namespace_of(source.entity),
            Record::Published(published) => self.namespace_of(published.topic),
            Record::Managed(change) => match &**change {
                Change::TopicCreated { namespace, .. } => Some(*namespace),
                Change::SubscriptionCreated { topic: entity, .. }
                | Change::QueueUpdated { entity, .. }
                | Change::TopicUpdated { entity, .. }
                | Change::SubscriptionUpdated { entity, .. }
                | Change::RulePut { subscription: entity, .. }
                | Change::RuleRemoved { subscription: entity, .. } => self.namespace_of(*entity),
                // Namespaces are named in the time of the first of them.
                Change::NamespaceNamed { .. } => Some(NamespaceId(0)),
                // The rules are dated by themselves, and an advance says where it leads to.
                Change::AccessChanged { .. } | Change::ClockMoved { .. } => None,
            },
            Record::EntityDeleted { .. }
            | Record::PartStored { .. }
            | Record::Skipped { .. }
            | Record::InSession { .. }
            | Record::OverlayStored { .. }
            | Record::Removed { .. }
            | Record::Returned { .. }
            | Record::Deferred { .. }
            | Record::DeadLettered { .. }
            | Record::LocksKept { .. }
            | Record::Relocated { .. } => None,
        }
    }
}

impl Applying<'_> {
    fn record(&mut self, record: &Record) {
        match record {
            Record::QueueCreated { entity, namespace, path, settings } => {
                self.queue_created(*entity, *namespace, path, settings);
            }
            Record::EntityDeleted { entity } => self.entity_deleted(*entity),
            Record::Managed(change) => self.managed(change),
            Record::PartStored { body } => self.take_body(*body),
            Record::Relocated { body, copy } => self.relocated(*body, *copy),
            Record::Enqueued { entity, sequence, body, length, expires, parts } => {
                let slot = Slot::active(*body, *length, self.time, *expires);
                self.enqueued(*entity, *sequence, slot, parts.as_deref());
            }
            Record::Scheduled { entity, sequence, body, length, due, time_to_live, parts } => {
                let slot = Slot::scheduled(*body, *length, self.time, *due);
                self.scheduled(*entity, *sequence, slot, *time_to_live, parts.as_deref());
            }
            Record::Activated { entity, scheduled, sequence, expires } => {
                self.activated(*entity, *scheduled, *sequence, *expires);
            }
            Record::Removed { entity, first, count } => self.removed(*entity, *first, *count),
            Record::Returned { entity, sequence, overlay } => {
                self.returned(*entity, *sequence, overlay.as_deref());
            }
            Record::Deferred { entity, sequence, overlay } => {
                self.deferred(*entity, *sequence, overlay.as_deref());
            }
            Record::DeadLettered { entity, sequence, reason, is_failure, overlay } => {
                self.dead_lettered(*entity, *sequence, *reason, *is_failure, overlay.as_deref());
            }
            Record::TransferDeadLettered { entity, sequence, body, length, reason, parts } => {
                // It lives until somebody receives it.
                let slot = Slot::active(*body, *length, self.time, LocalTime::NEVER).dead(*reason);
                self.transfer_dead_lettered(*entity, *sequence, slot, parts.as_deref());
            }
            Record::Noted { entity, id } => self.noted(*entity, *id),
            Record::Skipped { entity, sequence } => self.queue_mut(*entity).use_up(*sequence),
            Record::Forwarded { source, sequence, target, number, expires, due, overlay } => {
                let message = self.take_out(*source, *sequence);
                self.forwarded(message, *target, *number, *expires, *due, overlay.as_deref());
            }
            Record::InSession { entity, sequence, session } => {
                self.queue_mut(*entity).join(*sequence, session);
            }
            Record::SessionStateSet { entity, session, state } => {
                self.session_state_set(*entity, session, *state);
            }
            Record::OverlayStored { entity, sequence, body, length } => {
                self.overlay_stored(*entity, *sequence, StoredOverlay { body: *body, length: *length });
            }
            Record::Published(published) => self.published(published),
            Record::LocksKept { locks } => self.durable.kept_locks = locks.iter().copied().collect(),
        }
    }

    fn managed(&mut self, change: &Change) {
        // Ids are handed out in order, whatever they are for.
        if let Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } = change {
            assert_eq!(*entity, self.next_entity(), "entity ids are handed out in order");
        }
        self.change(change);
    }

    /// Takes a change, in any order of entities.
    pub(super) fn change(&mut self, change: &Change) {
        match change {
            Change::QueueUpdated { entity, settings } => self.queue_updated(*entity, settings),
            Change::TopicCreated { entity, namespace, path, settings } => {
                self.topic_created(*entity, *namespace, path, settings);
            }
            Change::TopicUpdated { entity, settings } => self.topic_updated(*entity, settings),
            Change::SubscriptionCreated { entity, topic, name, settings } => {
                self.subscription_created(*entity, *topic, name, settings);
            }
            Change::SubscriptionUpdated { entity, settings } => self.subscription_updated(*entity, settings),
            Change::RulePut { subscription, rule } => self.rule_put(*subscription, rule),
            Change::RuleRemoved { subscription, name } => self.rule_removed(*subscription, name),
            Change::AccessChanged { entity, rules } => {
                self.durable.access.insert(*entity, rules.clone());
            }
            Change::NamespaceNamed { namespace, name } => self.namespace_named(*namespace, name),
            Change::ClockMoved { .. } => unreachable!("`Durable::apply` moves clocks"),
        }
    }

    pub(crate) fn queue_mut(&mut self, entity: EntityId) -> &mut Queue {
        self.durable.queue_mut(entity)
    }

    pub(crate) fn topics_mut(&mut self) -> &mut Topics {
        &mut self.durable.topics
    }

    /// A body took the next id.
    pub(crate) fn take_body(&mut self, body: BodyId) {
        assert_eq!(body, self.next_body, "body ids are handed out in order");
        self.durable.next_body = BodyId(body.0 + 1);
    }

    /// A record names a body: the next one, which it brings, or one that was stored before, by `PartStored`.
    pub(crate) fn name_body(&mut self, body: BodyId) {
        if body >= self.next_body {
            self.take_body(body);
        }
    }

    /// The bytes that a subscription holds have changed; its topic counts them too.
    pub(crate) fn tell_topic(&mut self, subscription: EntityId, before: u64) {
        let Some(queue) = self.queue(subscription) else { return };
        let after = queue.own_bytes();
        if let Some(topic) = queue.kind.topic() {
            let above = self.queue_mut(topic);
            above.below = above.below + after - before;
        }
    }
}
