//! What becomes durable. Every record must be justified by what a client asked or by the clock, exactly once.

use super::ledger::{Present, Queue};
use super::watched::Appended;
use super::{Gone, LinkState, Oracle, Role};
use crate::hash::hash_bytes;
use crate::workload::message_number;
use broker::{BodyId, EntityId, Outcome, ReceiveMode, Record, Sequence, Time};
use message::Overlay;
use std::collections::BTreeMap;

impl Oracle {
    pub fn appended(&mut self, appended: Result<Appended, String>) {
        match appended {
            Ok(_) if self.pending.is_some() => self.fail("two appends are in flight"),
            Ok(appended) if appended.position != self.ledger.position + 1 => {
                self.fail(format!("append at {} behind {}", appended.position, self.ledger.position));
            }
            Ok(appended) => self.pending = Some(appended),
            Err(why) => self.fail(why),
        }
    }

    /// The disk had no room for it; nothing was written.
    pub fn withdrawn(&mut self) {
        self.pending = None;
    }

    pub fn committed(&mut self, position: u64) {
        let Some(appended) = self.pending.take().filter(|pending| pending.position == position) else {
            return self.fail(format!("batch {position} was committed without being written"));
        };
        let time = Time(appended.time);
        let mut numbers = BTreeMap::new();
        for (body, id) in appended.bodies.iter().zip(appended.first_body..) {
            self.ledger.bodies.insert(id, hash_bytes(body));
            numbers.extend(message_number(body).map(|number| (BodyId(id), number)));
        }
        self.ledger.numbers.append(&mut numbers);
        let mut stored: BTreeMap<_, usize> = BTreeMap::new();
        for record in &appended.records {
            self.coverage.record(record);
            self.tell(|| format!("batch {position}: {record:?}"));
            self.ledger.replayed.apply(record, time);
            if let Some(number) = self.justify(record, time) {
                let message = &self.messages[number];
                *stored.entry((message.link, message.delivery)).or_default() += 1;
            }
        }
        self.ledger.position = position;
        for ((link, delivery), count) in stored {
            let siblings = self.of_delivery(link, delivery).len();
            if count != siblings {
                self.fail(format!("{count} of {siblings} messages of one delivery were stored"));
            }
        }
        self.trace.add(&[position, self.ledger.replayed.fingerprint()]);
    }

    /// Takes a record into the model. Returns the message that it stored.
    fn justify(&mut self, record: &Record, time: Time) -> Option<usize> {
        match record {
            Record::QueueCreated { entity, path, settings, .. } => {
                if !self.creations.contains(&path.to_lowercase()) {
                    self.fail(format!("queue {path} was created and nobody asked"));
                }
                self.ledger.queues.insert(
                    *entity,
                    Queue {
                        path: path.to_string(),
                        settings: (**settings).clone(),
                        next: Sequence(1),
                        last_enqueued: time,
                        present: BTreeMap::new(),
                        newest_in_turn: Sequence(0),
                    },
                );
            }
            Record::EntityDeleted { entity } => self.delete(*entity),
            // The workload manages nothing but queues so far.
            Record::Managed(change) => self.fail(format!("{change:?} was recorded and nobody asked")),
            Record::PartStored { .. } => {}
            Record::Enqueued { entity, sequence, body, length, parts, expires } => {
                let parts = parts.as_deref().unwrap_or_default();
                let stored = self.enqueue(*entity, *sequence, *body, parts, *length, time);
                let queue = self.ledger.queues.get_mut(entity);
                if let Some(present) = queue.and_then(|queue| queue.present.get_mut(sequence)) {
                    present.expires = *expires;
                }
                return stored;
            }
            Record::Removed { entity, first, count } => {
                let last = first.0 + u64::from(*count);
                (first.0..last).for_each(|number| self.remove(*entity, Sequence(number), time));
            }
            Record::Returned { entity, sequence, overlay } => {
                self.give_back(*entity, *sequence, overlay.as_deref(), time);
            }
            Record::Scheduled { .. }
            | Record::Activated { .. }
            | Record::Deferred { .. }
            | Record::DeadLettered { .. }
            | Record::Noted { .. }
            | Record::Skipped { .. }
            | Record::Forwarded { .. }
            | Record::LocksKept { .. } => self.fail(format!("{record:?} was recorded and nobody asked")),
            Record::Relocated { body, copy } => {
                if self.ledger.bodies.get(&body.0) != self.ledger.bodies.get(&copy.0) {
                    self.fail(format!("I3: the copy of {body:?} is another body"));
                }
            }
        }
        None
    }

    fn delete(&mut self, entity: EntityId) {
        let Some(queue) = self.ledger.queues.remove(&entity) else {
            return self.fail("a queue was deleted that does not exist");
        };
        if !self.deletions.contains(&queue.path.to_lowercase()) {
            self.fail(format!("queue {} was deleted and nobody asked", queue.path));
        }
        for present in queue.present.values() {
            self.messages[present.message].gone = Some(Gone::Deleted);
        }
        self.locks.retain(|(of, _), _| *of != entity);
        self.ledger.deleted.insert(entity, (self.turn, queue));
    }

    fn enqueue(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        body: BodyId,
        parts: &[BodyId],
        length: u32,
        time: Time,
    ) -> Option<usize> {
        // The front of a message, where its number stands, is its first piece.
        let front = parts.first().copied().unwrap_or(body);
        let Some(number) = self.ledger.numbers.get(&front).copied().filter(|n| *n < self.messages.len())
        else {
            self.fail(format!("I3: message {sequence:?} was stored and nobody sent it"));
            return None;
        };
        let pieces: Vec<Option<u64>> =
            parts.iter().chain([&body]).map(|piece| self.ledger.bodies.get(&piece.0).copied()).collect();
        let message = &mut self.messages[number];
        let sent: Vec<Option<u64>> = message.pieces.iter().copied().map(Some).collect();
        let is_whole = pieces == sent && message.length == length;
        let was_stored = message.place.replace((entity, sequence)).is_some();
        let path = message.path.clone();
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            self.fail("a message was stored in a queue that does not exist");
            return None;
        };
        let is_here = queue.path.to_lowercase() == path;
        let is_next = queue.next == sequence;
        let is_later = queue.last_enqueued <= time;
        queue.next = sequence.next();
        queue.last_enqueued = time;
        queue.present.insert(
            sequence,
            Present {
                message: number,
                length,
                count: 0,
                stored: self.turn,
                enqueued: time,
                expires: Time::NEVER,
                overlay: Overlay::default(),
            },
        );
        let wrong = [
            (is_whole, "I3: its pieces are not those that were sent"),
            (!was_stored, "it was stored twice"),
            (is_here, "it was stored in another queue"),
            (is_next, "I4: its number leaves a gap or is taken"),
            (is_later, "its enqueued time runs backwards"),
        ];
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("message {number} as {sequence:?}: {what}"));
        }
        Some(number)
    }

    /// A message leaves for good: because it was completed, because somebody takes without locks, or because it has
    /// expired and no lock protects it.
    fn remove(&mut self, entity: EntityId, sequence: Sequence, time: Time) {
        let present = self.ledger.queues.get_mut(&entity).and_then(|queue| queue.present.remove(&sequence));
        let Some(present) = present else {
            return self.fail(format!("{sequence:?} was removed and is not there"));
        };
        let lock = self.locks.remove(&(entity, sequence));
        let is_completed =
            lock.as_ref().is_some_and(|lock| lock.asked.contains(&Outcome::Complete) && time < lock.until);
        let is_free = lock
            .as_ref()
            .is_none_or(|lock| lock.returned.is_some() || lock.asked.contains(&Outcome::Release));
        let is_over = lock.as_ref().is_some_and(|lock| {
            lock.until <= time || lock.asked.iter().any(|outcome| matches!(outcome, Outcome::Abandon(_)))
        });
        let is_expired = present.expires <= time && (is_free || is_over);
        self.messages[present.message].gone = Some(match (is_completed, is_expired) {
            (true, _) => Gone::Completed,
            (false, true) => Gone::Expired,
            (false, false) => Gone::Taken,
        });
        let is_taken = is_free && self.has_taker(entity);
        if !is_completed && !is_expired && !is_taken {
            self.fail(format!("I1: {sequence:?} was removed and nobody asked"));
        }
        self.ledger.removed.insert((entity, sequence), present);
    }

    /// Whether somebody receives without locks from this queue, or did in this turn.
    fn has_taker(&self, entity: EntityId) -> bool {
        let Some(queue) = self.ledger.queues.get(&entity) else { return false };
        let path = queue.path.to_lowercase();
        self.links.values().any(|link| {
            link.role == Role::Receiver(ReceiveMode::ReceiveAndDelete)
                && link.path == path
                && match link.state {
                    LinkState::Gone(turn) => turn >= self.turn,
                    LinkState::Attaching | LinkState::Attached => true,
                }
        })
    }

    /// A delivery failed: because its receiver said so, or because its lock ended.
    fn give_back(&mut self, entity: EntityId, sequence: Sequence, overlay: Option<&Overlay>, time: Time) {
        let queue = self.ledger.queues.get_mut(&entity);
        let Some(present) = queue.and_then(|queue| queue.present.get_mut(&sequence)) else {
            return self.fail(format!("{sequence:?} returned and is not there"));
        };
        present.count += 1;
        if let Some(overlay) = overlay
            && present.overlay.merge(overlay).is_err()
        {
            return self.fail(format!("the changes of {sequence:?} do not fit together"));
        }
        let Some(lock) = self.locks.get_mut(&(entity, sequence)) else {
            return self.fail(format!("I7: {sequence:?} returned and was not delivered"));
        };
        let is_asked = time < lock.until
            && lock.asked.iter().any(|outcome| match outcome {
                Outcome::Abandon(changes) => changes.as_deref() == overlay,
                _ => false,
            });
        let is_over = overlay.is_none() && lock.until <= time;
        if lock.returned.replace(self.turn).is_some() {
            self.fail(format!("I7: one delivery of {sequence:?} counts twice"));
        } else if !is_asked && !is_over {
            self.fail(format!("I7: the delivery of {sequence:?} counts as failed without having failed"));
        }
    }
}
