//! What is committed, as the oracle keeps it: a plain model of each queue beside a replayed [`Durable`], so that the
//! broker's own state can be held against both.

use broker::{BodyId, Durable, EntityId, QueueSettings, Sequence, Time};
use message::Overlay;
use std::collections::BTreeMap;

/// A message in a queue.
#[derive(Debug)]
pub struct Present {
    /// Index into the oracle's messages.
    pub message: usize,
    pub length: u32,
    pub count: u32,
    /// The turn in which it was stored.
    pub stored: u64,
    pub enqueued: Time,
    pub overlay: Overlay,
}

#[derive(Debug)]
pub struct Queue {
    pub path: String,
    pub settings: QueueSettings,
    pub next: Sequence,
    pub last_enqueued: Time,
    pub present: BTreeMap<Sequence, Present>,
    pub bytes: u64,
    /// The newest message that was handed out in this turn.
    pub newest_in_turn: Sequence,
}

impl Queue {
    pub fn remove(&mut self, sequence: Sequence) -> Option<Present> {
        let present = self.present.remove(&sequence)?;
        self.bytes -= u64::from(present.length);
        Some(present)
    }

    /// Whether anybody can receive from it.
    pub fn may_receive(&self) -> bool {
        self.settings.status.may_receive() && !self.settings.requires_session
    }
}

#[derive(Debug)]
pub struct Ledger {
    pub position: u64,
    pub replayed: Durable,
    pub queues: BTreeMap<EntityId, Queue>,
    /// Queues by their folded path.
    pub names: BTreeMap<String, EntityId>,
    /// Queues that are gone: how their messages were locked, and the turn in which they went.
    pub deleted: BTreeMap<EntityId, (u64, Queue)>,
    /// The hash of each stored body.
    pub bodies: BTreeMap<u64, u64>,
    /// The number of the message that begins with a body.
    pub numbers: BTreeMap<BodyId, usize>,
    /// Messages that were removed.
    pub removed: BTreeMap<(EntityId, Sequence), Present>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            position: 0,
            replayed: Durable::new(),
            queues: BTreeMap::new(),
            names: BTreeMap::new(),
            deleted: BTreeMap::new(),
            bodies: BTreeMap::new(),
            numbers: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }
}

impl Ledger {
    pub fn find(&self, path: &str) -> Option<EntityId> {
        match self.names.get(path) {
            Some(entity) => Some(*entity),
            None => self.names.get(&path.to_lowercase()).copied(),
        }
    }

    pub fn end_turn(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.newest_in_turn = Sequence(0));
    }

    /// Holds a broker's counters against the model.
    pub fn compare(&self, live: &Durable) -> Result<(), String> {
        if live.queues().count() != self.queues.len() {
            return Err(format!("{} queues, {} expected", live.queues().count(), self.queues.len()));
        }
        for (entity, queue) in live.queues() {
            let Some(model) = self.queues.get(&entity) else {
                return Err(format!("queue {} should not exist", queue.path));
            };
            let expected = (model.present.len() as u64, model.bytes, model.next);
            if (queue.active, queue.bytes, queue.next) != expected {
                return Err(format!(
                    "queue {} counts (active, bytes, next) {:?}, {expected:?} expected",
                    queue.path,
                    (queue.active, queue.bytes, queue.next)
                ));
            }
        }
        Ok(())
    }
}
