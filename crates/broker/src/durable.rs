//! What survives: everything that records have said. Rebuilt by replaying them, so [`Durable::apply`] must accept
//! whatever was ever recorded and may rely on nothing but itself and the time of the batch.

use crate::access::AccessRule;
use crate::effect::Extra;
use crate::ids::{BodyId, EntityId, IdMap, NamespaceId, Sequence};
use crate::queue::index::{Index, Slot};
use crate::record::Record;
use crate::settings::QueueSettings;
use crate::time::Time;
use crate::topic::change::Change;
use crate::topic::{Subscription, Topic, Topics};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Durable {
    /// Entities by namespace and case-folded path (S-250).
    pub(crate) names: BTreeMap<(NamespaceId, Box<str>), EntityId>,
    /// By entity id. Ids are never reused, so the place of a deleted entity stays empty.
    /// Shared with a snapshot that is being written; the first change after it copies the queue, not its messages.
    pub(crate) entities: Vec<Option<Arc<Queue>>>,
    pub(crate) next_body: BodyId,
    pub(crate) topics: Topics,
    /// Authorization rules of the entities that have any.
    pub(crate) access: BTreeMap<EntityId, Vec<AccessRule>>,
    /// By number; the first is called `default`. Compared without regard to case.
    pub(crate) namespaces: Vec<Box<str>>,
    /// Where bodies lie that were copied forward: the id that messages know, and the one of the newest copy.
    pub(crate) moved: Arc<IdMap<BodyId, BodyId>>,
}

#[derive(Debug, Clone)]
pub struct Queue {
    pub namespace: NamespaceId,
    pub path: Box<str>,
    pub settings: QueueSettings,
    pub created: Time,
    pub updated: Time,
    /// The number that the next message will take.
    pub next: Sequence,
    pub index: Index,
    pub extras: IdMap<Sequence, Arc<Extra>>,
    pub active: u64,
    pub bytes: u64,
}

impl Queue {
    fn remove(&mut self, sequence: Sequence) {
        let slot = self.index.remove(sequence).expect("only a message that is there is recorded as removed");
        self.extras.remove(&sequence);
        self.active -= 1;
        self.bytes -= u64::from(slot.length);
    }
}

impl Durable {
    pub fn new() -> Durable {
        Durable { next_body: BodyId(1), namespaces: vec!["default".into()], ..Durable::default() }
    }

    pub fn queue(&self, entity: EntityId) -> Option<&Queue> {
        self.entities.get(entity.0 as usize)?.as_deref()
    }

    pub fn access(&self, entity: EntityId) -> &[AccessRule] {
        self.access.get(&entity).map_or(&[], Vec::as_slice)
    }

    pub fn namespace_named(&self, name: &str) -> Option<NamespaceId> {
        let at = self.namespaces.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(NamespaceId(at as u32))
    }

    pub fn next_namespace(&self) -> NamespaceId {
        NamespaceId(self.namespaces.len() as u32)
    }

    fn queue_mut(&mut self, entity: EntityId) -> &mut Queue {
        self.entities
            .get_mut(entity.0 as usize)
            .and_then(Option::as_mut)
            .map(Arc::make_mut)
            .expect("a record names only entities that exist at its place in the journal")
    }

    pub fn next_entity(&self) -> EntityId {
        EntityId(self.entities.len() as u32)
    }

    pub fn next_body(&self) -> BodyId {
        self.next_body
    }

    /// Where the bytes of a body lie: under its own id, or under that of the newest copy.
    pub fn stored_as(&self, body: BodyId) -> BodyId {
        if self.moved.is_empty() { body } else { self.moved.get(&body).copied().unwrap_or(body) }
    }

    pub fn find(&self, namespace: NamespaceId, path: &str) -> Option<EntityId> {
        self.names.get(&(namespace, fold(path))).copied()
    }

    /// Every entity, for rebuilding what is not stored.
    pub fn queues(&self) -> impl Iterator<Item = (EntityId, &Queue)> {
        self.entities
            .iter()
            .enumerate()
            .filter_map(|(id, queue)| Some((EntityId(id as u32), queue.as_deref()?)))
    }

    /// Takes a record into memory, live and in replay. `time` is the time of its batch.
    pub fn apply(&mut self, record: &Record, time: Time) {
        match record {
            Record::QueueCreated { entity, namespace, path, settings } => {
                assert_eq!(*entity, self.next_entity(), "entity ids are handed out in order");
                let taken = self.names.insert((*namespace, fold(path)), *entity);
                assert!(taken.is_none(), "queue '{path}' was created twice");
                self.entities.push(Some(Arc::new(Queue {
                    namespace: *namespace,
                    path: path.clone(),
                    settings: (**settings).clone(),
                    created: time,
                    updated: time,
                    next: Sequence(1),
                    index: Index::default(),
                    extras: IdMap::default(),
                    active: 0,
                    bytes: 0,
                })));
            }
            Record::EntityDeleted { entity } => {
                self.access.remove(entity);
                if let Some(queue) = self.entities[entity.0 as usize].take() {
                    self.names.remove(&(queue.namespace, fold(&queue.path)));
                } else if let Some(topic) = self.topics.remove(*entity) {
                    self.names.remove(&(topic.namespace, fold(&topic.path)));
                }
            }
            Record::Managed(change) => self.apply_change(change, time),
            Record::PartStored { body } => self.take_body(*body),
            Record::Relocated { body, copy } => {
                self.take_body(*copy);
                Arc::make_mut(&mut self.moved).insert(*body, *copy);
            }
            Record::Enqueued { entity, sequence, body, length, expires, parts } => {
                self.take_body(*body);
                let queue = self.queue_mut(*entity);
                assert_eq!(*sequence, queue.next, "numbers have no gaps");
                queue.next = sequence.next();
                queue.index.push(*sequence, Slot::active(*body, *length, time, *expires));
                queue.active += 1;
                queue.bytes += u64::from(*length);
                if let Some(parts) = parts {
                    let extra = Extra { parts: parts.to_vec(), overlay: None };
                    queue.extras.insert(*sequence, Arc::new(extra));
                }
            }
            Record::Removed { entity, first, count } => {
                let queue = self.queue_mut(*entity);
                (first.0..first.0 + u64::from(*count)).for_each(|number| queue.remove(Sequence(number)));
            }
            Record::Returned { entity, sequence, overlay } => {
                let queue = self.queue_mut(*entity);
                queue.index.get_mut(*sequence).expect("only a message that is there returns").raise_count();
                if let Some(overlay) = overlay {
                    let extra = queue.extras.entry(*sequence).or_default();
                    let extra = Arc::make_mut(extra);
                    extra
                        .overlay
                        .get_or_insert_default()
                        .merge(overlay)
                        .expect("the change was checked before");
                }
            }
        }
    }

    fn apply_change(&mut self, change: &Change, time: Time) {
        // Ids are handed out in order, whatever they are for; what is not a queue leaves its place among them empty.
        if let Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } = change {
            assert_eq!(*entity, self.next_entity(), "entity ids are handed out in order");
            self.entities.push(None);
        }
        self.put_change(change, time);
    }

    /// Takes a change whose entity has its place.
    fn put_change(&mut self, change: &Change, time: Time) {
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
                self.topics.add_topic(*entity, topic);
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
                self.topics.add_subscription(*entity, subscription);
            }
            Change::AccessChanged { entity, rules } => {
                self.access.insert(*entity, rules.clone());
            }
            Change::NamespaceNamed { namespace, name } => {
                assert_eq!(*namespace, self.next_namespace(), "namespaces are numbered in order");
                self.namespaces.push(name.clone());
            }
            Change::TopicUpdated { .. }
            | Change::SubscriptionUpdated { .. }
            | Change::RulePut { .. }
            | Change::RuleRemoved { .. } => self.topics.apply(change, time),
        }
    }

    /// Everything that was managed besides queues, as the changes that make it again.
    pub(crate) fn managed(&self) -> Vec<(Time, Change)> {
        let named = self.namespaces.iter().enumerate().skip(1).map(|(number, name)| {
            let namespace = NamespaceId(number as u32);
            (Time(0), Change::NamespaceNamed { namespace, name: name.clone() })
        });
        let access = self.access.iter().map(|(entity, rules)| {
            (Time(0), Change::AccessChanged { entity: *entity, rules: rules.clone() })
        });
        named.chain(self.topics.changes()).chain(access).collect()
    }

    /// Takes back a change that [`Durable::managed`] gave. False when it contradicts what is there.
    pub(crate) fn restore(&mut self, change: &Change, time: Time) -> bool {
        let fits = match change {
            Change::TopicCreated { namespace, path, .. } => self.find(*namespace, path).is_none(),
            Change::NamespaceNamed { namespace, .. } => *namespace == self.next_namespace(),
            Change::AccessChanged { .. } => true,
            Change::QueueUpdated { .. } => false,
            other => self.topics.fits(other),
        };
        if fits {
            self.put_change(change, time);
        }
        fits
    }

    fn take_body(&mut self, body: BodyId) {
        assert_eq!(body, self.next_body, "body ids are handed out in order");
        self.next_body = BodyId(body.0 + 1);
    }

    /// A number that two equal states share and two different ones hardly ever do. Compares a replayed state with
    /// the one that wrote the journal.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.next_body, self.next_entity()).hash(&mut hasher);
        self.names.hash(&mut hasher);
        (&self.topics, &self.access, &self.namespaces).hash(&mut hasher);
        for (id, queue) in self.queues() {
            (id, &queue.path, &queue.settings, queue.created, queue.updated).hash(&mut hasher);
            (queue.next, queue.active, queue.bytes).hash(&mut hasher);
            for (sequence, slot) in queue.index.iter() {
                let extra = queue.extras.get(&sequence);
                (sequence, slot, extra, self.stored_as(slot.body)).hash(&mut hasher);
                let parts = extra.iter().flat_map(|extra| &extra.parts);
                parts.for_each(|part| self.stored_as(*part).hash(&mut hasher));
            }
        }
        hasher.finish()
    }
}

/// Paths are compared without regard to case (S-250).
pub(crate) fn fold(path: &str) -> Box<str> {
    path.to_lowercase().into()
}
