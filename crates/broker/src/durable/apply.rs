//! Taking records into memory: live, and again in replay.

use super::{Durable, Kind, Queue, fold};
use crate::effect::{Extra, Forwarded};
use crate::ids::{EntityId, NamespaceId, Sequence, Source};
use crate::planted::{Bug, is_planted};
use crate::queue::index::Slot;
use crate::record::Record;
use crate::session::register::SessionState;
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span, Time};
use crate::topic::change::Change;
use std::sync::Arc;

impl Durable {
    /// Takes a record back into memory, whose batch has the owner's time `time`.
    pub fn apply(&mut self, record: &Record, time: Time) {
        if let Some((namespace, to)) = moved_clock(record) {
            return self.move_clock(namespace, to, time);
        }
        let dated = if self.clock_offsets.is_empty() { None } else { self.namespace_of_record(record) };
        let offset =
            dated.and_then(|namespace| self.clock_offsets.get(&namespace)).copied().unwrap_or_default();
        self.apply_local(record, time.local(offset));
    }

    /// Somebody moved the time of a namespace to `to`, when the owner's was `owner`.
    pub(crate) fn move_clock(&mut self, namespace: NamespaceId, to: LocalTime, owner: Time) {
        self.kept_locks = Arc::default();
        self.clock_offsets.insert(namespace, to.offset_from(owner));
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
                // Whoever names namespaces asks in the first of them.
                Change::NamespaceNamed { .. } => Some(NamespaceId(0)),
                // The rules are dated by themselves, and a move says where it leads to.
                Change::AccessChanged { .. } | Change::ClockMoved { .. } => None,
            },
            Record::EntityDeleted { .. }
            | Record::PartStored { .. }
            | Record::Skipped { .. }
            | Record::InSession { .. }
            | Record::Removed { .. }
            | Record::Returned { .. }
            | Record::Deferred { .. }
            | Record::DeadLettered { .. }
            | Record::LocksKept { .. }
            | Record::Relocated { .. } => None,
        }
    }

    /// Takes a record into memory. `time` is that of the namespace that it speaks of.
    pub(crate) fn apply_local(&mut self, record: &Record, time: LocalTime) {
        if !self.kept_locks.is_empty() {
            self.kept_locks = Arc::default();
        }
        match record {
            Record::QueueCreated { entity, namespace, path, settings } => {
                self.create(*entity, *namespace, path, settings, time);
            }
            Record::EntityDeleted { entity } => {
                self.access.remove(entity);
                self.delete(*entity);
            }
            Record::Managed(change) => self.apply_change(change, time),
            Record::PartStored { body } => self.take_body(*body),
            Record::Relocated { body, copy } => {
                self.take_body(*copy);
                Arc::make_mut(&mut self.moved).insert(*body, *copy);
            }
            Record::Enqueued { entity, sequence, body, length, expires, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                queue.push(*sequence, Slot::active(*body, *length, time, *expires));
                if let Some(parts) = parts {
                    queue.add_extra(*sequence, Some(parts), Span::MAX);
                }
            }
            Record::Scheduled { entity, sequence, body, length, due, time_to_live, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                queue.put_scheduled(*sequence, Slot::scheduled(*body, *length, time, *due));
                queue.add_extra(*sequence, parts.as_deref(), *time_to_live);
            }
            Record::Activated { entity, scheduled, sequence, expires } => {
                let queue = self.queue_mut(*entity);
                let session = queue.session_of(*scheduled).cloned();
                let slot = queue.remove(*scheduled);
                queue.push(*sequence, Slot::active(slot.body, slot.length, time, *expires));
                if let Some(session) = session {
                    queue.join(*sequence, &session);
                }
                if let Some(mut extra) = queue.extras.remove(scheduled) {
                    Arc::make_mut(&mut extra).time_to_live = None;
                    if *extra != Extra::default() {
                        queue.extras.insert(*sequence, extra);
                    }
                }
            }
            Record::Removed { entity, first, count } => {
                let queue = self.queue_mut(*entity);
                let before = queue.bytes;
                for number in first.0..first.0 + u64::from(*count) {
                    queue.remove(Sequence(number));
                    queue.extras.remove(&Sequence(number));
                }
                let (kind, gone) = (queue.kind, before - queue.bytes);
                if is_planted(Bug::Numbering) && queue.counts.total() == 0 {
                    queue.next = *first;
                }
                self.take_from_topic(kind, gone);
            }
            Record::Returned { entity, sequence, overlay } => {
                let queue = self.queue_mut(*entity);
                queue.raise_count(*sequence);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::Deferred { entity, sequence, overlay } => {
                let queue = self.queue_mut(*entity);
                queue.raise_count(*sequence);
                queue.defer(*sequence);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::DeadLettered { entity, sequence, reason, is_failure, overlay } => {
                let queue = self.queue_mut(*entity);
                if *is_failure {
                    queue.raise_count(*sequence);
                }
                queue.dead_letter(*sequence, *reason);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::TransferDeadLettered { entity, sequence, body, length, reason, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                // It lives until somebody receives it.
                queue.transfer_dead_letter(
                    *sequence,
                    Slot::active(*body, *length, time, LocalTime::NEVER).dead(*reason),
                );
                queue.add_extra(*sequence, parts.as_deref(), Span::MAX);
            }
            Record::Noted { entity, id } => {
                let queue = self.queue_mut(*entity);
                queue.history.note(*id, time, queue.settings.duplicate_window);
            }
            Record::Skipped { entity, sequence } => {
                let queue = self.queue_mut(*entity);
                assert_eq!(*sequence, queue.next, "numbers have no gaps");
                queue.next = sequence.next();
            }
            Record::Forwarded { source, sequence, target, number, expires, due, overlay } => {
                let session = self.queue_mut(source.entity).session_of(*sequence).cloned();
                let (slot, mut extra) = self.take_out(*source, *sequence);
                let queue = self.queue_mut(*target);
                match due {
                    None => queue.push(*number, Slot::active(slot.body, slot.length, time, *expires)),
                    Some(due) => {
                        queue.push(*number, Slot::scheduled(slot.body, slot.length, time, *due));
                        let life = (!expires.is_never()).then(|| Span((expires.0 - due.0).max(0) as u64));
                        Arc::make_mut(&mut extra).time_to_live = life;
                    }
                }
                queue.extras.insert(*number, extra);
                queue.merge(*number, overlay.as_deref());
                if let Some(session) = session.filter(|_| queue.keeps_sessions()) {
                    queue.join(*number, &session);
                }
            }
            Record::InSession { entity, sequence, session } => {
                self.queue_mut(*entity).join(*sequence, session);
            }
            Record::SessionStateSet { entity, session, state } => {
                if let Some((body, _)) = state {
                    self.take_body(*body);
                }
                let state = state.map(|(body, length)| SessionState { body, length, changed: time });
                let queue = self.queue_mut(*entity);
                let (before, kind) = (queue.bytes, queue.kind);
                queue.set_session_state(session, state);
                let after = queue.bytes;
                if let Kind::Subscription { topic } = kind {
                    let topic = self.queue_mut(topic);
                    topic.below = topic.below + after - before;
                }
            }
            Record::Published(published) => self.publish(published, time),
            Record::LocksKept { locks } => self.kept_locks = locks.iter().copied().collect(),
        }
    }

    fn create(
        &mut self,
        entity: EntityId,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        time: LocalTime,
    ) {
        assert_eq!(entity, self.next_entity(), "entity ids are handed out in order");
        let taken = self.names.insert((namespace, fold(path)), entity);
        assert!(taken.is_none(), "queue '{path}' was created twice");
        let queue = Queue::empty(Kind::Queue, entity, namespace, path.into(), settings.clone(), time);
        self.entities.push(Some(Arc::new(queue)));
    }

    /// An entity goes with everything below it.
    fn delete(&mut self, entity: EntityId) {
        let Some(queue) = self.entities[entity.0 as usize].take() else { return };
        match queue.kind {
            Kind::Queue => drop(self.names.remove(&(queue.namespace, fold(&queue.path)))),
            Kind::Topic => {
                self.names.remove(&(queue.namespace, fold(&queue.path)));
                let topic = self.topics.remove(entity);
                for subscription in topic.iter().flat_map(|topic| topic.subscriptions.values()) {
                    self.entities[subscription.0 as usize] = None;
                }
            }
            Kind::Subscription { .. } => {
                self.topics.remove(entity);
                self.take_from_topic(queue.kind, queue.bytes);
            }
        }
    }

    /// Bytes that a subscription held are gone from its topic too.
    pub(crate) fn take_from_topic(&mut self, kind: Kind, bytes: u64) {
        if let Kind::Subscription { topic } = kind {
            self.queue_mut(topic).below -= bytes;
        }
    }

    /// Takes out a message that goes on to another entity, with what it has besides its slot. It remembers where it came
    /// from (S-36) and how far (S-173).
    pub(crate) fn take_out(&mut self, source: Source, sequence: Sequence) -> (Slot, Arc<Extra>) {
        let from = self.queue_mut(source.entity);
        let number = from.first_number(sequence).unwrap_or_else(|| from.number(sequence));
        let left = from.index.get(sequence).copied().filter(|_| is_planted(Bug::ForwardedTwice));
        let slot = left.unwrap_or_else(|| from.remove(sequence));
        let kind = from.kind;
        let mut extra = from.extras.remove(&sequence).unwrap_or_default();
        let forwarded = Arc::make_mut(&mut extra).forwarded.get_or_insert(Forwarded { number, hops: 0 });
        forwarded.hops += 1;
        self.take_from_topic(kind, slot.length.into());
        (slot, extra)
    }
}

/// Whose time a record moves, and to where, if it does.
fn moved_clock(record: &Record) -> Option<(NamespaceId, LocalTime)> {
    match record {
        Record::Managed(change) => match &**change {
            Change::ClockMoved { namespace, to } => Some((*namespace, *to)),
            _ => None,
        },
        _ => None,
    }
}
