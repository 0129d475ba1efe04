//! What was managed besides queues, as the changes that make it again: this is how a snapshot has it.

use super::{Applying, Durable};
use crate::ids::{EntityId, NamespaceId};
use crate::time::{LocalTime, Time};
use crate::topic::change::Change;

impl Durable {
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
        named.chain(moved).chain(self.topic_changes()).chain(access).collect()
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
            _ if fits => Applying { durable: self, time }.change(change),
            _ => {}
        }
        fits
    }

    /// The changes that make topics, subscriptions and rules again, each with its time.
    fn topic_changes(&self) -> Vec<(LocalTime, Change)> {
        let mut changes = Vec::new();
        for (entity, topic) in self.topics.topics() {
            let queue = self.queue(entity).expect("a topic holds what is scheduled");
            let (namespace, path) = (queue.namespace, queue.path.clone());
            let settings = Box::new(topic.settings.clone());
            let created = Change::TopicCreated { entity, namespace, path, settings: settings.clone() };
            changes.push((queue.created, created));
            changes.push((queue.updated, Change::TopicUpdated { entity, settings }));
        }
        for (entity, subscription) in self.topics.subscriptions() {
            let queue = self.queue(entity).expect("a subscription holds messages");
            let (topic, name) = (subscription.topic, subscription.name.clone());
            let settings = Box::new(subscription.settings.clone());
            let created = Change::SubscriptionCreated { entity, topic, name, settings: settings.clone() };
            changes.push((queue.created, created));
            changes.push((queue.updated, Change::SubscriptionUpdated { entity, settings }));
            changes.extend(subscription.rules.values().map(|stored| {
                let rule = Box::new(stored.rule.clone());
                (stored.created, Change::RulePut { subscription: entity, rule })
            }));
        }
        changes
    }
}
