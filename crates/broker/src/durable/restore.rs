//! A durable state that is being read from a snapshot, which is believed in nothing.

use super::{Durable, Kind, Queue, fold};
use crate::ids::{BodyId, EntityId, IdMap};
use crate::record::KeptLock;
use crate::time::LocalTime;
use crate::topic::change::Change;
use std::collections::HashSet;
use std::sync::Arc;

/// What is wrong with a snapshot.
type Contradiction = &'static str;

#[derive(Debug)]
pub(crate) struct Restoring {
    durable: Durable,
    /// Entities that there ever were.
    entities: u32,
}

impl Restoring {
    pub(crate) fn new(entities: u32, next_body: BodyId) -> Restoring {
        Restoring { durable: Durable { next_body, ..Durable::new() }, entities }
    }

    /// The messages of a topic or a subscription that was read before, which has none yet.
    pub(crate) fn held(&self, entity: EntityId) -> Result<Queue, Contradiction> {
        let held = self.durable.queue(entity).filter(|queue| queue.kind != Kind::Queue);
        let queue = held.cloned().ok_or("messages belong to no topic or subscription")?;
        if queue.indexes().any(|index| index.iter().next().is_some()) {
            return Err("the messages of a topic or a subscription come twice");
        }
        Ok(queue)
    }

    pub(crate) fn put(&mut self, entity: EntityId, queue: Queue) -> Result<(), Contradiction> {
        let durable = &mut self.durable;
        if queue.kind != Kind::Queue {
            durable.entities[entity.0 as usize] = Some(Arc::new(queue));
            return Ok(());
        }
        if entity.0 >= self.entities || (entity.0 as usize) < durable.entities.len() {
            return Err("queues are not in order");
        }
        let taken = durable.names.insert((queue.namespace, fold(&queue.path)), entity);
        if taken.is_some() {
            return Err("a name is taken twice");
        }
        durable.entities.resize(entity.0 as usize, None);
        durable.entities.push(Some(Arc::new(queue)));
        Ok(())
    }

    pub(crate) fn change(&mut self, change: &Change, time: LocalTime) -> Result<(), Contradiction> {
        let is_counted = match change {
            Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } => {
                entity.0 < self.entities
            }
            _ => true,
        };
        if is_counted && self.durable.restore(change, time) {
            Ok(())
        } else {
            Err("a topic or what belongs to it makes no sense")
        }
    }

    pub(crate) fn finish(
        mut self,
        relocated: IdMap<BodyId, BodyId>,
        kept_locks: Vec<KeptLock>,
    ) -> Result<Durable, Contradiction> {
        let durable = &mut self.durable;
        durable.entities.resize(self.entities as usize, None);
        let held: Vec<_> =
            durable.queues().map(|(_, queue)| (queue.kind.topic(), queue.own_bytes())).collect();
        for (topic, bytes) in held {
            if let Some(topic) = topic {
                let below = &mut durable.queue_mut(topic).below;
                *below = below.checked_add(bytes).ok_or("messages are larger than any disk")?;
            }
        }
        // A message is locked once, where it is.
        let mut known = HashSet::new();
        for KeptLock { source, token, .. } in &kept_locks {
            if durable.queue(source.entity).is_none() || !known.insert((*source, token.sequence())) {
                return Err("a lock is of no message, or comes twice");
            }
        }
        durable.relocated = Arc::new(relocated);
        durable.kept_locks = kept_locks.into();
        Ok(self.durable)
    }
}
