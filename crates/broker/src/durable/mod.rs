//! What survives: everything that records have said. Rebuilt by replaying them, so [`Durable::apply`] must accept
//! whatever was ever recorded and may rely on nothing but itself and the time of the batch.

mod apply;
mod entities;
mod fingerprint;
mod managed;
mod queue;
mod restore;

use crate::access::AccessRule;
use crate::ids::{BodyId, EntityId, IdMap, NamespaceId};
use crate::record::KeptLock;
use crate::time::{ClockOffset, LocalTime};
use crate::topic::Topics;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

pub(crate) use apply::Applying;
pub use queue::{Counts, Kind, PARTITIONS, Queue};
pub(crate) use restore::Restoring;

#[derive(Debug, Clone, Default)]
pub struct Durable {
    /// Entities by namespace and case-folded path (S-250).
    names: BTreeMap<(NamespaceId, Box<str>), EntityId>,
    /// By entity id. Ids are never reused, so the place of a deleted entity stays empty.
    /// Shared with a snapshot that is being written; the first change after it copies the queue, not its messages.
    entities: Vec<Option<Arc<Queue>>>,
    next_body: BodyId,
    /// The locks that a planned stop has left. Any record after them makes them void.
    kept_locks: Arc<[KeptLock]>,
    topics: Topics,
    /// Authorization rules of the entities that have any.
    access: BTreeMap<EntityId, Vec<AccessRule>>,
    /// By number; the first is called `default`. Compared without regard to case.
    namespaces: Vec<Namespace>,
    /// How far the time of a namespace is ahead of the owner's, where it was ever moved.
    clock_offsets: BTreeMap<NamespaceId, ClockOffset>,
    /// Where bodies are stored that were copied forward: the id that messages know, and the one of the newest copy.
    relocated: Arc<IdMap<BodyId, BodyId>>,
}

/// A namespace, and since when there is one; of `default`, since it was first asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    pub name: Box<str>,
    pub created: Option<LocalTime>,
}

/// What of the durable state is shared with a snapshot that is being written.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) entities: Vec<Option<Arc<Queue>>>,
    pub(crate) relocated: Arc<IdMap<BodyId, BodyId>>,
    pub(crate) kept_locks: Arc<[KeptLock]>,
}

impl Durable {
    pub fn new() -> Durable {
        let default = Namespace { name: "default".into(), created: None };
        Durable { next_body: BodyId(1), namespaces: vec![default], ..Durable::default() }
    }

    /// What holds the messages of an entity: of a queue, a topic or a subscription.
    pub fn queue(&self, entity: EntityId) -> Option<&Queue> {
        self.entities.get(entity.0 as usize)?.as_deref()
    }

    /// A queue that is not part of a topic.
    pub(crate) fn plain_queue(&self, entity: EntityId) -> Option<&Queue> {
        self.queue(entity).filter(|queue| queue.kind == Kind::Queue)
    }

    pub fn access(&self, entity: EntityId) -> &[AccessRule] {
        self.access.get(&entity).map_or(&[], Vec::as_slice)
    }

    pub fn namespace_named(&self, name: &str) -> Option<NamespaceId> {
        let at = self.namespaces.iter().position(|known| known.name.eq_ignore_ascii_case(name))?;
        Some(NamespaceId(at as u32))
    }

    pub fn namespace(&self, namespace: NamespaceId) -> Option<&Namespace> {
        self.namespaces.get(namespace.0 as usize)
    }

    pub fn namespace_names(&self) -> Vec<Box<str>> {
        self.namespaces.iter().map(|known| known.name.clone()).collect()
    }

    pub fn next_namespace(&self) -> NamespaceId {
        NamespaceId(self.namespaces.len() as u32)
    }

    /// For [`Applying`] and for reading a snapshot.
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

    /// The locks of a planned stop, if nothing was recorded since.
    pub fn kept_locks(&self) -> &[KeptLock] {
        &self.kept_locks
    }

    pub(crate) fn shared(&self) -> Shared {
        Shared {
            entities: self.entities.clone(),
            relocated: Arc::clone(&self.relocated),
            kept_locks: Arc::clone(&self.kept_locks),
        }
    }

    /// Where the bytes of a body are stored: under its own id, or under that of the newest copy.
    pub fn stored_as(&self, body: BodyId) -> BodyId {
        if self.relocated.is_empty() { body } else { self.relocated.get(&body).copied().unwrap_or(body) }
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

    pub fn namespace_of(&self, entity: EntityId) -> Option<NamespaceId> {
        self.queue(entity).map(|queue| queue.namespace)
    }

    /// The namespaces whose time was moved, and how far it is ahead of the owner's.
    pub fn clock_offsets(&self) -> impl Iterator<Item = (NamespaceId, ClockOffset)> {
        self.clock_offsets.iter().map(|(namespace, offset)| (*namespace, *offset))
    }

    pub(crate) fn topics(&self) -> &Topics {
        &self.topics
    }

    /// The queues and topics of a namespace, by name.
    pub(crate) fn entities_of(&self, namespace: NamespaceId) -> impl Iterator<Item = EntityId> + '_ {
        let from = (namespace, Box::from(""));
        let names = self.names.range(from..);
        names.take_while(move |((of, _), _)| *of == namespace).map(|(_, entity)| *entity)
    }

    /// Forgets where bodies are stored that no snapshot names any more. No record says so, and none has to: nothing asks for such a
    /// body, and a start from that snapshot does not know of it either.
    pub(crate) fn forget_relocated(&mut self, bodies: &[BodyId]) {
        if !bodies.is_empty() {
            let relocated = Arc::make_mut(&mut self.relocated);
            for body in bodies {
                relocated.remove(body);
            }
        }
    }
}

/// Paths are compared without regard to case (S-250).
pub(crate) fn fold(path: &str) -> Box<str> {
    path.to_lowercase().into()
}

#[cfg(test)]
mod tests;
