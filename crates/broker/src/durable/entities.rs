//! Entities, namespaces and relocated bodies in the durable state: how they come, change and go.

use super::{Applying, Kind, Namespace, Queue, fold};
use crate::ids::{BodyId, EntityId, NamespaceId};
use crate::settings::QueueSettings;
use std::sync::Arc;

impl Applying<'_> {
    pub(super) fn queue_created(
        &mut self,
        entity: EntityId,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
    ) {
        assert_eq!(entity, self.next_entity(), "entity ids are handed out in order");
        self.name_entity(entity, namespace, path);
        let queue = Queue::empty(Kind::Queue, entity, namespace, path.into(), settings.clone(), self.time);
        self.put_entity(entity, queue);
    }

    pub(super) fn queue_updated(&mut self, entity: EntityId, settings: &QueueSettings) {
        let time = self.time;
        let queue = self.queue_mut(entity);
        (queue.settings, queue.updated) = (settings.clone(), time);
    }

    /// An entity goes with everything below it.
    pub(super) fn entity_deleted(&mut self, entity: EntityId) {
        let durable = &mut *self.durable;
        durable.access.remove(&entity);
        let Some(queue) = durable.entities[entity.0 as usize].take() else { return };
        match queue.kind {
            Kind::Queue => drop(durable.names.remove(&(queue.namespace, fold(&queue.path)))),
            Kind::Topic => {
                durable.names.remove(&(queue.namespace, fold(&queue.path)));
                let topic = durable.topics.remove(entity);
                for subscription in topic.iter().flat_map(|topic| topic.subscriptions.values()) {
                    durable.entities[subscription.0 as usize] = None;
                }
            }
            Kind::Subscription { topic } => {
                durable.topics.remove(entity);
                self.queue_mut(topic).below -= queue.own_bytes();
            }
        }
    }

    /// A path leads to an entity from now on.
    pub(crate) fn name_entity(&mut self, entity: EntityId, namespace: NamespaceId, path: &str) {
        let taken = self.durable.names.insert((namespace, fold(path)), entity);
        assert!(taken.is_none(), "'{path}' was created twice");
    }

    /// Gives an entity its place, which is behind all others or was left for it.
    pub(crate) fn put_entity(&mut self, entity: EntityId, queue: Queue) {
        let at = entity.0 as usize;
        if self.durable.entities.len() <= at {
            self.durable.entities.resize(at + 1, None);
        }
        self.durable.entities[at] = Some(Arc::new(queue));
    }

    pub(super) fn namespace_named(&mut self, namespace: NamespaceId, name: &str) {
        if namespace == NamespaceId(0) {
            self.durable.namespaces[0].created = Some(self.time);
        } else {
            assert_eq!(namespace, self.next_namespace(), "namespaces are numbered in order");
            self.durable.namespaces.push(Namespace { name: name.into(), created: Some(self.time) });
        }
    }

    pub(super) fn relocated(&mut self, body: BodyId, copy: BodyId) {
        self.take_body(copy);
        Arc::make_mut(&mut self.durable.relocated).insert(body, copy);
    }
}
