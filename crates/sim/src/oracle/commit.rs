//! What becomes durable. Every record must be justified by what a client asked or by the clock, exactly once.

use super::forward::{Move, Way};
use super::ledger::{Kind, Present, Queue, is_large};
use super::reply::is_granted;
use super::watched::Appended;
use super::{Gone, Lock, Oracle, Question, Unfit};
use broker::queue::index::Reason;
use broker::{
    BodyId, EntityId, KeptLock, LocalTime, Outcome, QueueSettings, Record, Sequence, Span, State, SubQueue,
    Tier, Time,
};
use message::Overlay;
use message::overlay::Change;
use std::collections::BTreeMap;

/// A message about to be in a queue, as its record tells.
pub(super) struct Stored<'a> {
    pub(super) entity: EntityId,
    pub(super) sequence: Sequence,
    pub(super) body: BodyId,
    pub(super) parts: &'a [BodyId],
    pub(super) length: u32,
}

impl Stored<'_> {
    /// What a record stores, if it is one that stores a message as it was sent.
    fn of(record: &Record) -> Option<Stored<'_>> {
        match record {
            Record::Enqueued { entity, sequence, body, length, parts, .. }
            | Record::Scheduled { entity, sequence, body, length, parts, .. }
            | Record::TransferDeadLettered { entity, sequence, body, length, parts, .. } => {
                let parts = parts.as_deref().unwrap_or_default();
                Some(Stored { entity: *entity, sequence: *sequence, body: *body, parts, length: *length })
            }
            _ => None,
        }
    }
}

/// What a record says that ends a delivery.
struct Ending<'a> {
    entity: EntityId,
    sequence: Sequence,
    overlay: Option<&'a Overlay>,
    time: LocalTime,
}

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

    /// Nobody knows what was written.
    pub fn append_failed(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.has_failed = true;
        }
    }

    pub fn committed(&mut self, position: u64) {
        let Some(appended) = self.pending.take().filter(|pending| pending.position == position) else {
            return self.fail(format!("batch {position} was committed without being written"));
        };
        let time = Time(appended.time);
        for ((hash, number), id) in appended.bodies.iter().zip(appended.first_body..) {
            self.ledger.bodies.insert(id, *hash);
            if let Some(number) = number {
                self.ledger.numbers.insert(BodyId(id), *number);
            }
        }
        self.ledger.overlays.extend(appended.overlays.iter().cloned());
        let mut stored: BTreeMap<_, (usize, EntityId, LocalTime)> = BTreeMap::new();
        for record in &appended.records {
            self.coverage.record(record);
            self.tell(|| format!("batch {position}: {record:?}"));
            self.ledger.replayed.apply(record, time);
            self.ledger.kept.clear();
            let stores = matches!(
                record,
                Record::Enqueued { .. }
                    | Record::Scheduled { .. }
                    | Record::Published(_)
                    | Record::Skipped { .. }
                    | Record::Forwarded { .. }
                    | Record::OverlayStored { .. }
            );
            if self.noted.is_some() && !stores {
                self.fail("I9: an id was noted without its message");
            }
            // It was stored before, by a transaction that is committed now.
            if matches!(record, Record::OverlayStored { body, .. } if body.0 < appended.first_body) {
                self.coverage.variant("stored changes in a transaction");
            }
            let dated = self.dated(record, time);
            self.note_visit(record, dated);
            if let Some((number, entity)) = self.justify(record, dated, time) {
                let message = &self.messages[number];
                stored.entry((message.link, message.delivery)).or_insert((0, entity, dated)).0 += 1;
            }
        }
        if self.noted.take().is_some() {
            self.fail("I9: an id was noted without its message");
        }
        if let Some(((entity, sequence), why)) = self.unfit.pop_first() {
            self.fail(format!("S-20, S-200: {sequence:?} of {entity:?} is there in spite of {why:?}"));
        }
        if let Some((entity, sequence)) = self.joining.pop_first() {
            self.fail(format!("S-145: {sequence:?} of {entity:?} is not in its session"));
        }
        if let Some((entity, sequence)) =
            self.restated.pop_first().map(|(at, _)| at).or(self.loaded.pop_first())
        {
            self.fail(format!("I3: {sequence:?} of {entity:?} has changes that nobody made, or lacks some"));
        }
        self.check_committed();
        self.ledger.position = position;
        for ((link, delivery), (count, entity, dated)) in stored {
            self.check_siblings(link, delivery, count, entity, dated);
        }
        self.trace.add(&[position, appended.hash]);
    }

    /// Takes a record into the model, that was made at `time` of its namespace and `owner` of the owner. Returns the message
    /// that it stored, and where.
    fn justify(&mut self, record: &Record, time: LocalTime, owner: Time) -> Option<(usize, EntityId)> {
        match record {
            Record::QueueCreated { entity, namespace, path, settings } => {
                if !self.creations.contains(&path.to_lowercase()) {
                    self.fail(format!("queue {path} was created and nobody asked"));
                }
                self.check_targets(path, settings, None);
                self.waiting.clear();
                self.changes += 1;
                self.ledger.names.insert(path.to_lowercase(), *entity);
                let queue = Queue::new(*namespace, path, settings, *entity, self.turn, time);
                self.ledger.queues.insert(*entity, queue);
            }
            Record::Managed(change) => self.changed(change, time, owner),
            Record::EntityDeleted { entity } => self.delete(*entity, time),
            Record::PartStored { .. } => {}
            Record::Enqueued { entity, expires, .. } => {
                let stored = Stored::of(record)?;
                return self.enqueue(&stored, None, *expires, time).map(|number| (number, *entity));
            }
            Record::Scheduled { entity, due, time_to_live, .. } => {
                let number = self.enqueue(&Stored::of(record)?, Some(*time_to_live), *due, time);
                return number.map(|number| (number, *entity));
            }
            Record::Activated { entity, scheduled, sequence, expires } => {
                self.activate(*entity, *scheduled, *sequence, *expires, time);
            }
            Record::Removed { entity, first, count } => {
                let last = first.0 + u64::from(*count);
                (first.0..last).for_each(|number| {
                    // What was abandoned and has expired takes its changes along.
                    self.restated.remove(&(*entity, Sequence(number)));
                    self.remove(*entity, Sequence(number), time);
                });
            }
            Record::Returned { entity, sequence, overlay } => {
                let restated = self.take_restated(*entity, *sequence, overlay.as_deref());
                let overlay = restated.as_ref().or(overlay.as_deref());
                self.give_back(&Ending { entity: *entity, sequence: *sequence, overlay, time });
            }
            Record::Deferred { entity, sequence, overlay } => {
                let restated = self.take_restated(*entity, *sequence, overlay.as_deref());
                let overlay = restated.as_ref().or(overlay.as_deref());
                self.defer(&Ending { entity: *entity, sequence: *sequence, overlay, time });
            }
            Record::DeadLettered { entity, sequence, reason, is_failure, overlay } => {
                let restated = self.take_restated(*entity, *sequence, overlay.as_deref());
                let overlay = restated.as_ref().or(overlay.as_deref());
                let ending = Ending { entity: *entity, sequence: *sequence, overlay, time };
                self.dead_letter(&ending, *reason, *is_failure);
            }
            Record::InSession { entity, sequence, session } => self.join(*entity, *sequence, session),
            Record::SessionStateSet { entity, session, state } => self.set_state(*entity, session, *state),
            Record::OverlayStored { entity, sequence, body, length } => {
                self.overlay_stored(*entity, *sequence, *body, *length);
            }
            Record::LocksKept { locks } => self.keep_locks(locks),
            Record::Noted { entity, id } => self.note(*entity, *id),
            Record::Skipped { entity, sequence } => self.skip(*entity, *sequence, time),
            Record::Forwarded { due: Some(_), .. } => {
                self.fail(format!("{record:?} was recorded and no rule says so"));
            }
            Record::Forwarded { source, sequence, target, number, expires, due: None, overlay } => {
                let (overlay, expires) = (overlay.as_deref(), *expires);
                let (source, sequence, target, number) = (*source, *sequence, *target, *number);
                self.forwarded(&Move { source, sequence, target, number, expires, overlay }, time);
            }
            Record::Published(published) => return self.published(published, time),
            Record::TransferDeadLettered { entity, reason, .. } => {
                let stored = Stored::of(record)?;
                return self.transfer_dead_letter(&stored, *reason, time).map(|number| (number, *entity));
            }
            Record::Relocated { body, copy } => {
                if self.ledger.bodies.get(&body.0) != self.ledger.bodies.get(&copy.0) {
                    self.fail(format!("I3: the copy of {body:?} is another body"));
                }
            }
        }
        None
    }

    /// Locks are kept at a clean stop: those that somebody has.
    fn keep_locks(&mut self, locks: &[KeptLock]) {
        for kept in locks {
            let lock = self.locks.get(&(kept.source.entity, kept.token.sequence()));
            let is_known = lock.is_some_and(|lock| {
                lock.token == kept.token && (lock.until == kept.until || lock.renewals > 0)
            });
            // What could not be read a moment ago is locked for nobody.
            if !is_known && !self.is_ghostly(kept.source.entity) && !self.may_not_read {
                self.fail(format!("the lock {:?} was kept and nobody has it", kept.token));
            }
        }
        self.ledger.kept = locks.to_vec();
    }

    pub(super) fn update(&mut self, entity: EntityId, settings: &QueueSettings, time: LocalTime) {
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a queue was updated that does not exist");
        };
        queue.history.update(queue.settings.duplicate_window, settings.duplicate_window, time);
        let before = std::mem::replace(&mut queue.settings, settings.clone());
        queue.durations.push(settings.lock_duration);
        (queue.used, queue.is_touched) = (time, true);
        let path = queue.path.to_lowercase();
        self.end_sessions(entity);
        let is_it = |question: &Question| match question {
            Question::Update(of, asked) => *of == path && is_granted(asked, settings),
            _ => false,
        };
        if !self.asked.iter().any(is_it) {
            self.fail(format!("queue {path} was updated and nobody asked"));
        }
        self.check_targets(&path, settings, Some(&before));
        self.waiting.clear();
    }

    fn delete(&mut self, entity: EntityId, time: LocalTime) {
        let Some(queue) = self.ledger.queues.get(&entity) else {
            return self.fail("a queue was deleted that does not exist");
        };
        let path = queue.path.to_lowercase();
        let is_asked = self.asked.iter().any(|question| match question {
            Question::Delete(of) | Question::Unsubscribe(of) => *of == path,
            _ => false,
        });
        let is_used = self.not_idle(queue, time);
        if let Some(what) = is_used.filter(|_| !is_asked) {
            let (used, idle) = (queue.used, queue.settings.auto_delete_on_idle);
            self.fail(format!("{path} was deleted and nobody asked: {what} at {used:?}, {idle:?} before"));
        }
        if !is_asked {
            self.coverage.fault("idle deletion");
        }
        self.waiting.clear();
        self.changes += 1;
        // One that was idle may have gone by itself before it was asked to, and that is no use of its topic.
        let topic = match self.ledger.queues.get(&entity).map(|queue| &queue.kind) {
            Some(Kind::Subscription(below)) if is_asked && is_used.is_some() => Some(below.topic),
            _ => None,
        };
        if let Some(topic) = topic.and_then(|topic| self.ledger.queues.get_mut(&topic)) {
            (topic.used, topic.is_touched) = (time, true);
        }
        self.take_away(entity);
    }

    /// An entity goes, with its messages and everything below it (H-16).
    fn take_away(&mut self, entity: EntityId) {
        let Some(queue) = self.ledger.queues.remove(&entity) else { return };
        self.ledger.names.remove(&queue.path.to_lowercase());
        match &queue.kind {
            Kind::Queue => {}
            Kind::Topic(topic) => topic.subscriptions.values().for_each(|below| self.take_away(*below)),
            Kind::Subscription(below) => {
                let above = self.ledger.queues.get_mut(&below.topic);
                if let Some(above) = above
                    && let Kind::Topic(topic) = &mut above.kind
                {
                    // Its uses were uses of the topic.
                    above.touched = above.touched.max(queue.touched);
                    above.is_touched |= queue.is_touched;
                    topic.subscriptions.remove(&below.name.to_lowercase());
                }
            }
        }
        for present in queue.present.values() {
            self.messages[present.message].gone = Some(Gone::Deleted);
        }
        self.locks.retain(|(of, _), _| *of != entity);
        self.ledger.last_deletion = self.turn;
        self.ledger.deleted.insert(entity, (self.turn, queue));
    }

    /// Why a queue must not be deleted by itself (S-70, S-71, S-74). Who uses a subscription uses its topic (S-72).
    fn not_idle(&self, queue: &Queue, time: LocalTime) -> Option<&'static str> {
        let used = self.ledger.family(queue).map(|each| each.used).max().unwrap_or(queue.used);
        if queue.settings.auto_delete_on_idle.is_max() || queue.settings.forward_to.is_some() {
            Some("it never does so by itself")
        } else if queue.counts.scheduled > 0 {
            Some("messages are scheduled")
        } else if used.after(queue.settings.auto_delete_on_idle) > time {
            Some("it was used")
        } else if !self.is_blurred
            && self.ledger.family(queue).any(|each| self.is_awaited(&each.path.to_lowercase()))
        {
            // On a disk that does not answer it may have been decided before they came.
            Some("somebody waits for messages")
        } else {
            None
        }
    }

    fn enqueue(
        &mut self,
        stored: &Stored<'_>,
        scheduled: Option<Span>,
        expires: LocalTime,
        time: LocalTime,
    ) -> Option<usize> {
        let Stored { entity, sequence, length, .. } = *stored;
        let number = self.arrived(stored)?;
        let has_waited = scheduled.is_some() && self.messages[number].scheduled > time;
        // What was scheduled within a transaction has had its number since then.
        let is_reserved = has_waited && self.is_reserved(number);
        let is_numbered = !is_reserved || self.take_reserved(number, entity, sequence);
        let message = &mut self.messages[number];
        message.place = Some((entity, sequence));
        message.first = message.place;
        message.has_waited = has_waited;
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            self.fail("a message was stored in a queue that does not exist");
            return None;
        };
        let lives = message.time_to_live.min(longest_life(self.tier, &queue.settings));
        // What a topic publishes in a slice of its own waits there as if it had been scheduled.
        let is_put_off = matches!(queue.kind, Kind::Topic(_)) && message.scheduled <= time;
        let is_timed = match scheduled {
            Some(own) if is_put_off => expires == LocalTime::AT_ONCE && own == message.time_to_live,
            Some(own) => expires == message.scheduled && time < expires && own == message.time_to_live,
            None => expires == time.after(lives) && message.scheduled <= time,
        };
        let wrong = [
            (is_reserved || queue.next == sequence, "I4: its number leaves a gap or is taken"),
            (is_numbered, "S-48: it has another number than its sender was told"),
            (queue.last_enqueued <= time, "its enqueued time runs backwards"),
            (is_timed, "I8: its times are not what its sender and its queue say"),
        ];
        if !is_reserved {
            queue.next = sequence.next();
        }
        queue.last_enqueued = time;
        (queue.used, queue.is_touched) = (time, true);
        let state = if scheduled.is_some() { State::Scheduled } else { State::Active };
        if message.session.is_some() && queue.keeps_sessions() {
            self.joining.insert((entity, sequence));
        }
        let arrived = Present::arrived(number, length, self.turn, self.ledger.position + 1, time);
        queue.insert(sequence, Present { expires, state, ..arrived });
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("message {number} as {sequence:?}: {what}"));
        }
        if let Some(what) = self.take_noted(entity, number, time) {
            self.fail(format!("message {number} as {sequence:?}: {what}"));
        }
        Some(number)
    }

    /// Finds the message that a record says has come: it is whole, comes for the first time, and to where it was sent,
    /// which takes messages.
    pub(super) fn arrived(&mut self, stored: &Stored<'_>) -> Option<usize> {
        let number = self.sent(stored)?;
        let message = &self.messages[number];
        let queue = self.ledger.queues.get(&stored.entity);
        let wrong = [
            (
                queue.is_some_and(|queue| queue.path.eq_ignore_ascii_case(&message.path)),
                "it was stored in another queue",
            ),
            (queue.is_none_or(|queue| queue.settings.status.may_send()), "S-230: its queue is disabled"),
        ];
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("message {number} as {:?}: {what}", stored.sequence));
        }
        Some(number)
    }

    /// Finds a message that somebody sent: it is whole, and nowhere yet.
    pub(super) fn sent(&mut self, stored: &Stored<'_>) -> Option<usize> {
        let Stored { sequence, body, parts, length, .. } = *stored;
        // The front of a message, where its number stands, is its first part.
        let front = parts.first().copied().unwrap_or(body);
        let Some(number) = self.ledger.numbers.get(&front).copied().filter(|n| *n < self.messages.len())
        else {
            self.fail(format!("I3: message {sequence:?} was stored and nobody sent it"));
            return None;
        };
        let mut found = parts.iter().chain([&body]).map(|part| self.ledger.bodies.get(&part.0).copied());
        let message = &self.messages[number];
        let is_whole = message.parts.iter().all(|part| found.next() == Some(Some(*part)))
            && found.next().is_none()
            && message.length == length;
        if !is_whole {
            self.fail(format!(
                "message {number} as {sequence:?}: I3: its parts are not those that were sent"
            ));
        } else if message.place.is_some() || message.is_published {
            self.fail(format!("message {number} as {sequence:?}: it was stored twice"));
        } else if let Some(what) = self.stored_within(number) {
            self.fail(format!("message {number} as {sequence:?}: {what}"));
        }
        Some(number)
    }

    /// A scheduled message is enqueued: never early, once, under a new number (S-44).
    fn activate(
        &mut self,
        entity: EntityId,
        scheduled: Sequence,
        sequence: Sequence,
        expires: LocalTime,
        time: LocalTime,
    ) {
        let (turn, position) = (self.turn, self.ledger.position + 1);
        let queue = self.ledger.queues.get_mut(&entity);
        let Some((queue, present)) = queue.and_then(|queue| {
            let present = queue.remove(scheduled)?;
            Some((queue, present))
        }) else {
            return self.fail(format!("{scheduled:?} was activated and is not there"));
        };
        let message = &mut self.messages[present.message];
        let lives = message.time_to_live.min(longest_life(self.tier, &queue.settings));
        let wrong = [
            (present.state == State::Scheduled, "I8: it does not wait for its time"),
            (present.expires <= time, "I8: it is early"),
            (queue.next == sequence, "I4: its number leaves a gap or is taken"),
            (expires == time.after(lives), "I8: its time to live does not count from its activation"),
        ];
        message.place = Some((entity, sequence));
        queue.next = sequence.next();
        queue.last_enqueued = time;
        (queue.used, queue.is_touched) = (time, true);
        queue.insert(
            sequence,
            Present { stored: turn, position, enqueued: time, expires, state: State::Active, ..*present },
        );
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("{scheduled:?} activated as {sequence:?}: {what}"));
        }
    }

    /// A message leaves for good, for one of the reasons for which it may.
    fn remove(&mut self, entity: EntityId, sequence: Sequence, time: LocalTime) {
        let queue = self.ledger.queues.get_mut(&entity);
        let Some((queue, present)) = queue.and_then(|queue| {
            let present = queue.remove(sequence)?;
            Some((queue, present))
        }) else {
            return self.fail(format!("{sequence:?} was removed and is not there"));
        };
        queue.removed_in_turn += 1;
        let drops = !queue.settings.dead_letter_on_expiration;
        let number = queue.number(sequence);
        let lock = self.locks.remove(&(entity, sequence));
        let is_free = lock.as_ref().is_none_or(|lock| lock.may_be_free(time));
        let is_completed = lock.is_some_and(|lock| lock.was_asked(&Outcome::Complete, time));
        let is_past = present.expires <= time && present.is_main();
        let wants = |what: &dyn Fn(&Question) -> bool| self.asked.iter().any(what);
        let named = |question: &Question| question.names(entity, present.sub, number, &self.ledger);
        let gone = match present.state {
            _ if is_completed => Some(Gone::Completed),
            State::Scheduled if wants(&|q| matches!(q, Question::Cancel(..)) && named(q)) => {
                Some(Gone::Cancelled)
            }
            State::Deferred if is_free && wants(&|q| matches!(q, Question::Deferred(..)) && named(q)) => {
                match is_past {
                    true if drops => Some(Gone::Expired),
                    true => None,
                    false => Some(Gone::Taken),
                }
            }
            State::Active if is_free && is_past => drops.then_some(Gone::Expired),
            State::Active if is_free => {
                let is_deleted =
                    |q: &Question| q.deletes(entity, present.sub, present.enqueued, &self.ledger);
                let queue = self.ledger.queues.get(&entity);
                let way = queue.map(|queue| self.way(queue, present.sub, present.travelled.hops));
                let is_known = |target| self.may_drop_forwarded(target, present.message, time);
                if matches!(way, Some(Way::To(target)) if is_known(target)) {
                    Some(Gone::Duplicate)
                } else if self.has_taker(entity, present.sub) {
                    Some(Gone::Taken)
                } else {
                    wants(&is_deleted).then_some(Gone::Purged)
                }
            }
            _ => None,
        };
        self.messages[present.message].gone = gone;
        if gone.is_none() {
            self.fail(format!("I1: {sequence:?} was removed and nobody asked: {present:?}"));
        }
        self.ledger.removed.insert((entity, sequence), present);
    }

    /// Whether locks may exist that nobody was told about.
    pub(super) fn is_ghostly(&self, entity: EntityId) -> bool {
        self.is_blurred || self.has_unread || self.untold_locks.contains_key(&entity)
    }

    /// All that was changed of a message is in a body: of a copy that was just published, or of a message of which the next
    /// record says what became of it.
    fn overlay_stored(&mut self, entity: EntityId, sequence: Sequence, body: BodyId, length: u32) {
        let overlay = self.ledger.overlays.get(&body.0).cloned();
        let Some(overlay) = overlay.filter(|overlay| overlay.encoded_bytes() == length as usize) else {
            return self.fail(format!("I3: {body:?} has not what was changed of {sequence:?}"));
        };
        let queue = self.ledger.queues.get(&entity);
        let Some(present) = queue.and_then(|queue| queue.present.get(&sequence)) else {
            return self.fail(format!("{sequence:?} of {entity:?} was changed and is not there"));
        };
        if is_large(&present.overlay) {
            self.coverage.variant("stored changes changed again");
        }
        if !self.loaded.remove(&(entity, sequence)) {
            self.restated.insert((entity, sequence), overlay);
        } else if present.overlay != overlay {
            self.fail(format!("S-182: the copy {sequence:?} of {entity:?} has other changes"));
        } else {
            self.coverage.variant("stored changes of a copy");
        }
    }

    /// What was stored of changes for the record of what becomes of a message, which has `recorded` itself.
    fn take_restated(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        recorded: Option<&Overlay>,
    ) -> Option<Overlay> {
        let restated = self.restated.remove(&(entity, sequence));
        if recorded.is_some_and(|recorded| restated.is_some() || is_large(recorded)) {
            self.fail(format!("P7: what was changed of {sequence:?} is held in memory"));
        }
        restated
    }

    /// Whether a record says that a message was changed as somebody asked.
    fn is_change(&self, ending: &Ending<'_>) -> impl Fn(Option<&Overlay>) -> bool + use<> {
        let before = self.ledger.queues.get(&ending.entity).and_then(|queue| {
            let present = queue.present.get(&ending.sequence)?;
            ending.overlay.map(|_| present.overlay.clone())
        });
        let merged = move |change: &Overlay| {
            let mut merged = before.clone().unwrap_or_default();
            merged.merge(change).map(|()| merged)
        };
        let recorded = ending.overlay.map(|recorded| (recorded.clone(), merged(recorded)));
        move |asked| match (asked, &recorded) {
            (None, None) => true,
            (Some(asked), Some((recorded, all))) => asked == recorded || merged(asked) == *all,
            _ => false,
        }
    }

    /// A delivery failed: because its receiver said so with `said`, or because its lock ended. Forgets the lock.
    fn end_delivery(&mut self, ending: &Ending<'_>, said: impl Fn(&Outcome) -> bool) -> Result<(), String> {
        let Ending { entity, sequence, overlay, time } = *ending;
        let is_ghostly = overlay.is_none() && self.is_ghostly(entity);
        let turn = self.turn;
        let Some(lock) = self.locks.get_mut(&(entity, sequence)) else {
            return match is_ghostly {
                true => Ok(()),
                false => Err(format!("I7: a delivery of {sequence:?} failed that never was")),
            };
        };
        let is_asked = time < lock.latest() && lock.asked.iter().any(said);
        // A client that asked for more time and never heard may have got less: an update may have made it so.
        let is_over = overlay.is_none() && (lock.until <= time || lock.renewals > 0);
        let was_returned = lock.returned.replace(turn).is_some();
        // A link that left a session holds nothing of it, and what the next one cannot read is locked for nobody.
        if is_ghostly && (was_returned || lock.is_hazy || lock.asked.contains(&Outcome::Release)) {
            self.locks.remove(&(entity, sequence));
            Ok(())
        } else if was_returned {
            Err(format!("I7: one delivery of {sequence:?} counts twice"))
        } else if !is_asked && !is_over {
            Err(format!(
                "I7: the delivery of {sequence:?} counts as failed without having failed at {time:?}: {lock:?}"
            ))
        } else {
            Ok(())
        }
    }

    /// A message is back from a receiver.
    fn give_back(&mut self, ending: &Ending<'_>) {
        let Ending { entity, sequence, time, .. } = *ending;
        let is_change = self.is_change(ending);
        let abandoned =
            |outcome: &Outcome| matches!(outcome, Outcome::Abandon(changes) if is_change(changes.as_deref()));
        let ended = self.end_delivery(ending, abandoned);
        let Some((queue, present)) = self.there(ending) else { return };
        let is_past = present.is_mortal() && present.expires <= time;
        if present.is_main() {
            present.count += 1;
        }
        let is_beyond = present.is_main() && present.count >= queue.max_delivery_count;
        if let Err(what) = ended {
            self.fail(what);
        } else if is_past {
            self.fail(format!("I8: {sequence:?} of {entity:?} is back though it has expired"));
        } else if is_beyond {
            self.fail(format!("I7: {sequence:?} is back though it was delivered as often as it may be"));
        }
    }

    /// The message that a delivery ended for, its changes merged, and its queue's settings.
    fn there(&mut self, ending: &Ending<'_>) -> Option<(&QueueSettings, &mut Present)> {
        let Ending { entity, sequence, overlay, .. } = *ending;
        let mut merged = None;
        if let Some(queue) = self.ledger.queues.get_mut(&entity) {
            queue.change(sequence, |present| {
                merged = Some(overlay.map_or(Ok(()), |overlay| present.overlay.merge(overlay)));
            });
        }
        match merged {
            None => self.fail(format!("a delivery of {sequence:?} ended and it is not there")),
            Some(Err(_)) => self.fail(format!("the changes of {sequence:?} do not fit together")),
            Some(Ok(())) => {}
        }
        let queue = self.ledger.queues.get_mut(&entity)?;
        Some((&queue.settings, queue.present.get_mut(&sequence)?))
    }

    /// A message is set aside (S-120), which counts as a delivery (S-86).
    fn defer(&mut self, ending: &Ending<'_>) {
        let Ending { entity, sequence, .. } = *ending;
        let is_change = self.is_change(ending);
        let deferred =
            |outcome: &Outcome| matches!(outcome, Outcome::Defer(changes) if is_change(changes.as_deref()));
        let is_said = self.locks.get(&(entity, sequence)).is_some_and(|lock| lock.asked.iter().any(deferred));
        let ended = self.end_delivery(ending, deferred);
        let Some((settings, present)) = self.there(ending) else { return };
        if present.is_main() {
            present.count += 1;
        }
        let is_beyond = present.is_main() && present.count >= settings.max_delivery_count;
        if let Some(queue) = self.ledger.queues.get_mut(&entity) {
            queue.change(sequence, |present| present.state = State::Deferred);
        }
        if let Err(what) = ended {
            self.fail(what);
        } else if !is_said {
            self.fail(format!("{sequence:?} was set aside and nobody asked"));
        } else if is_beyond {
            self.fail(format!("I7: {sequence:?} is set aside though it was delivered as often as it may be"));
        }
    }

    /// A message moves to the dead-letter queue: once, and for a reason (S-61, S-87, S-90).
    fn dead_letter(&mut self, ending: &Ending<'_>, reason: Reason, is_failure: bool) {
        let Ending { entity, sequence, overlay, time } = *ending;
        let is_change = self.is_change(ending);
        let fails = |outcome: &Outcome| match outcome {
            Outcome::Abandon(changes) | Outcome::Defer(changes) => is_change(changes.as_deref()),
            _ => false,
        };
        let unfit = self.unfit.remove(&(entity, sequence));
        let lock = self.locks.get(&(entity, sequence));
        let is_free = lock.is_none_or(|lock| lock.may_be_free(time));
        let is_said = lock.is_some_and(|lock| {
            time < lock.latest()
                && lock.asked.iter().any(
                    |asked| matches!(asked, Outcome::DeadLetter(changes) if is_change(changes.as_deref())),
                )
        });
        let ended = if is_failure { self.end_delivery(ending, fails) } else { Ok(()) };
        self.locks.remove(&(entity, sequence));
        let turn = self.turn;
        let number = self.ledger.queues.get(&entity).map(|queue| queue.number(sequence));
        let is_named = number.is_some_and(|number| {
            let ledger = &self.ledger;
            let is_it = |q: &Question| {
                matches!(q, Question::Deferred(..)) && q.names(entity, SubQueue::Main, number, ledger)
            };
            self.asked.iter().any(is_it)
        });
        let way = self.ledger.queues.get(&entity).and_then(|queue| {
            let hops = queue.present.get(&sequence)?.travelled.hops;
            Some(self.way(queue, SubQueue::Main, hops))
        });
        let Some((settings, present)) = self.there(ending) else { return };
        let was_dead = !present.is_main();
        present.count += u32::from(is_failure);
        let is_right = match reason {
            Reason::Client if unfit == Some(Unfit::Rule) => {
                let words = overlay.and_then(|overlay| overlay.application("DeadLetterReason"));
                !is_failure && matches!(words, Some(Change::Set(word)) if word.ends_with(b"FilterException"))
            }
            Reason::Client => is_said && !is_failure,
            Reason::MaxDeliveryCount => is_failure && present.count >= settings.max_delivery_count,
            Reason::Expired => {
                present.expires <= time
                    && settings.dead_letter_on_expiration
                    && match present.state {
                        State::Active => is_failure || is_free,
                        State::Deferred => is_free && is_named,
                        _ => false,
                    }
            }
            Reason::MaxTransferHops | Reason::NotForwarded => {
                let expected = if reason == Reason::NotForwarded { Way::Closed } else { Way::TooFar };
                way == Some(expected) && is_free && !is_failure && present.state == State::Active
            }
            Reason::SessionMissing => unfit == Some(Unfit::NoSession) && !is_failure,
            // Nothing falls out of a queue on its way.
            Reason::DestinationDisabled => false,
        };
        if let Some(queue) = self.ledger.queues.get_mut(&entity) {
            queue.change(sequence, |present| {
                (present.sub, present.state) = (SubQueue::DeadLetter, State::Active);
                (present.reason, present.stored) = (reason, turn);
            });
        }
        if was_dead {
            self.fail(format!("{sequence:?} was dead-lettered twice"));
        } else if let Err(what) = ended {
            self.fail(what);
        } else if !is_right {
            self.fail(format!("{sequence:?} was dead-lettered for no reason: {reason:?}"));
        }
    }
}

/// How long a message may live (S-56, S-57).
pub(super) fn longest_life(tier: Tier, settings: &QueueSettings) -> Span {
    let basic = Span::minutes(14 * 24 * 60);
    if tier == Tier::Basic { settings.default_time_to_live.min(basic) } else { settings.default_time_to_live }
}

impl Lock {
    /// Until when it may last, as far as anybody can know.
    pub(super) fn latest(&self) -> LocalTime {
        if self.renewals > 0 { LocalTime::NEVER } else { self.until }
    }

    /// Whether its message may be free by now.
    pub(super) fn may_be_free(&self, time: LocalTime) -> bool {
        let gives_back =
            |outcome: &Outcome| matches!(outcome, Outcome::Release | Outcome::Abandon(_) | Outcome::Defer(_));
        self.returned.is_some()
            || self.is_hazy
            || self.until <= time
            || self.renewals > 0
            || self.asked.iter().any(gives_back)
    }

    fn was_asked(&self, outcome: &Outcome, time: LocalTime) -> bool {
        time < self.latest() && self.asked.contains(outcome)
    }
}
