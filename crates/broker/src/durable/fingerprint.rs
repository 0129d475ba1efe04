//! A number for a whole state.

use super::Durable;
use crate::ids::IdHasher;
use crate::session::register::Session;
use std::hash::{Hash, Hasher};

impl Durable {
    /// A number that two equal states share and two different ones hardly ever do. Compares a replayed state with
    /// the one that wrote the journal.
    pub fn fingerprint(&self) -> u64 {
        // It guards against mistakes and not against anybody, and is taken of whole states: quick is enough.
        let mut hasher = IdHasher::default();
        hasher.write_u64(1);
        (self.next_body, self.next_entity(), &self.kept_locks).hash(&mut hasher);
        self.names.hash(&mut hasher);
        (&self.topics, &self.access, &self.namespaces, &self.clock_offsets).hash(&mut hasher);
        for (id, queue) in self.queues() {
            (id, &queue.path, &queue.settings, queue.created, queue.updated).hash(&mut hasher);
            (queue.partition, queue.next, queue.counts, queue.bytes).hash(&mut hasher);
            (queue.kind, queue.below, queue.number_offset).hash(&mut hasher);
            queue.history.hash(&mut hasher);
            if let Some(sessions) = &queue.sessions {
                sessions.hash(&mut hasher);
                let state =
                    |(_, session): (_, &Session)| session.state.map(|state| self.stored_as(state.body));
                sessions.iter().filter_map(state).for_each(|stored| stored.hash(&mut hasher));
            }
            for index in queue.indexes() {
                for (sequence, slot) in index.iter() {
                    let extra = queue.extras.get(&sequence);
                    (sequence, slot, extra, self.stored_as(slot.body)).hash(&mut hasher);
                    let parts = extra.iter().flat_map(|extra| &extra.parts);
                    parts.for_each(|part| self.stored_as(*part).hash(&mut hasher));
                    let overlay = extra.and_then(|extra| extra.stored_overlay);
                    overlay.map(|stored| self.stored_as(stored.body)).hash(&mut hasher);
                }
                u64::MAX.hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}
