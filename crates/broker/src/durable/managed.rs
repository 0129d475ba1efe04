//! Changes by administrators: taken, and given again for a snapshot.

use super::{Durable, Kind, Namespace, Queue, fold};
use crate::ids::{EntityId, NamespaceId};
use crate::time::{LocalTime, Time};
use crate::topic::change::Change;
use crate::topic::{SUBSCRIPTIONS, Subscription, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Durable {
    pub(super) fn apply_change(&mut self, change: &Change, time: LocalTime) {
        // Ids are handed out in order, whatever they are for.
        if let Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } = change {
            assert_eq!(*entity, self.next_entity(), "entity ids are handed out in order");
        }
        self.put_change(change, time);
    }

    /// Gives an entity its place, which is behind all others or was left for it.
    pub(crate) fn put_entity(&mut self, entity: EntityId, queue: Queue) {
        let at = entity.0 as usize;
        if self.entities.len() <= at {
            self.entities.resize(at + 1, None);
        }
        self.entities[at] = Some(Arc::new(queue));
    }

    /// Takes a change, in any order of entities.
    fn put_change(&mut self, change: &Change, time: LocalTime) {
        match change {
            Change::QueueUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = ((**settings).clone(), time);
            }
            Change::TopicCreated { entity, namespace, path, settings } => {
                let taken = self.names.insert((*namespace, fold(path)), *entity);
                assert!(taken.is_none(), "topic '{path}' was created twice");
                let topic = Topic {
                    namespace: *namespace,
                    path: path.clone(),
                    settings: (**settings).clone(),
                    created: time,
                    updated: time,
                    subscriptions: BTreeMap::new(),
                };
                let settings = settings.of_messages();
                let queue = Queue::empty(Kind::Topic, *entity, *namespace, path.clone(), settings, time);
                self.topics.add_topic(*entity, topic);
                self.put_entity(*entity, queue);
            }
            Change::SubscriptionCreated { entity, topic, name, settings } => {
                let subscription = Subscription {
                    topic: *topic,
                    name: name.clone(),
                    settings: (**settings).clone(),
                    created: time,
                    updated: time,
                    rules: BTreeMap::new(),
                };
                let above = self.queue(*topic).expect("a subscription has its topic");
                let path = format!("{}/{SUBSCRIPTIONS}/{name}", above.path).into();
                let kind = Kind::Subscription { topic: *topic };
                let settings = settings.of_messages(&above.settings);
                let queue = Queue::empty(kind, *entity, above.namespace, path, settings, time);
                self.topics.add_subscription(*entity, subscription);
                self.put_entity(*entity, queue);
            }
            Change::AccessChanged { entity, rules } => {
                self.access.insert(*entity, rules.clone());
            }
            Change::NamespaceNamed { namespace, name } => {
                if *namespace == NamespaceId(0) {
                    self.namespaces[0].created = Some(time);
                } else {
                    assert_eq!(*namespace, self.next_namespace(), "namespaces are numbered in order");
                    self.namespaces.push(Namespace { name: name.clone(), created: Some(time) });
                }
            }
            Change::ClockMoved { .. } => unreachable!("only `move_clock` moves a clock"),
            Change::TopicUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = (settings.of_messages(), time);
                self.topics.apply(change, time);
            }
            Change::SubscriptionUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = (settings.of_messages(&queue.settings), time);
                self.topics.apply(change, time);
            }
            Change::RulePut { .. } | Change::RuleRemoved { .. } => self.topics.apply(change, time),
        }
    }

    /// Everything that was managed besides queues, as the changes that make it again.
    pub(crate) fn managed(&self) -> Vec<(LocalTime, Change)> {
        let named = self.namespaces.iter().enumerate().filter_map(|(number, known)| {
            let namespace = NamespaceId(number as u32);
            Some((known.created?, Change::NamespaceNamed { namespace, name: known.name.clone() }))
        });
        let access = self.access.iter().map(|(entity, rules)| {
            (LocalTime(0), Change::AccessChanged { entity: *entity, rules: rules.clone() })
        });
        // Where the clocks were when the owner's time began.
        let moved = self.clock_offsets.iter().map(|(namespace, offset)| {
            (LocalTime(0), Change::ClockMoved { namespace: *namespace, to: Time(0).local(*offset) })
        });
        named.chain(moved).chain(self.topics.changes()).chain(access).collect()
    }

    /// Takes back a change that [`Durable::managed`] gave. False when it contradicts what is there.
    pub(crate) fn restore(&mut self, change: &Change, time: LocalTime) -> bool {
        let is_new = |entity: &EntityId| self.queue(*entity).is_none();
        let fits = match change {
            Change::TopicCreated { entity, namespace, path, .. } => {
                is_new(entity) && self.find(*namespace, path).is_none()
            }
            Change::SubscriptionCreated { entity, .. } => is_new(entity) && self.topics.fits(change),
            Change::NamespaceNamed { namespace, .. } => {
                *namespace == NamespaceId(0) || *namespace == self.next_namespace()
            }
            Change::AccessChanged { .. } => true,
            Change::ClockMoved { namespace, .. } => *namespace < self.next_namespace(),
            Change::QueueUpdated { .. } => false,
            other => self.topics.fits(other),
        };
        match change {
            Change::ClockMoved { namespace, to } if fits => self.move_clock(*namespace, *to, Time(0)),
            _ if fits => self.put_change(change, time),
            _ => {}
        }
        fits
    }
}
