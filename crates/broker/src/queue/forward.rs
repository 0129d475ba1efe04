//! Auto-forwarding: what arrives in a queue that forwards is in its destination with the same decision (S-170). A message
//! moves in one record, so it is never in both queues and never in none, and it keeps its body, its properties and its
//! first number (S-36, S-177).
//!
//! What was in the queue before it forwarded, what comes back from a lock, and dead letters (S-112) are forwarded as they
//! become free, in slices, as if the destination were a receiver.

use super::dead_letter::words_of;
use super::overlay::Kept;
use crate::Broker;
use crate::decision::{LocalContext, LocalDecision};
use crate::durable::{Applying, Kind};
use crate::effect::{Extra, Forwarded, over};
use crate::ids::{EntityId, Sequence, Source, SubQueue};
use crate::limits::{DEAD_LETTER_HOPS, FORWARD_RETRY, TRANSFER_HOPS};
use crate::manage::forward_path;
use crate::planted::{Bug, is_planted};
use crate::queue::index::{Reason, Slot};
use crate::record::Record;
use crate::time::{LocalTime, Span};
use crate::timers::EntityTimer;
use crate::topic::subject::Front;
use message::Value;
use message::overlay::{Change, Overlay};
use message::system::SystemProperty;
use std::sync::Arc;

/// What may become of a message that is to be forwarded.
enum Destination {
    To(EntityId),
    /// A topic, whose rules decide.
    Topic(EntityId),
    /// The destination cannot take it (S-174).
    Closed,
    /// It has come too far (S-173).
    TooFar,
}

/// What a destination wants of a message that comes to it.
struct Wanted {
    /// Its id, to find duplicates.
    looks: bool,
    /// A session id, which the message was not known to have where it was.
    lacks_session: bool,
    /// It is a topic, whose rules look at the message now.
    is_published: bool,
    /// So its front has to be read.
    is_read: bool,
}

/// What became of a message that was to be forwarded.
#[derive(Debug, PartialEq, Eq)]
enum Forwarding {
    /// It is elsewhere, or in the dead-letter queue.
    Gone,
    /// It stays where it is, for good: only in a dead-letter queue.
    Rests,
    /// It became copies of a topic, so many.
    Copied(usize),
    /// It cannot be read, and stays, locked for nobody.
    Withheld,
    /// It stays until it was read: the rules of a topic ask for it.
    Unread,
    /// It stays until its destination is open again.
    Waits,
}

impl Broker {
    fn forward_target(&self, source: Source) -> Option<&str> {
        let settings = &self.durable.queue(source.entity)?.settings;
        match source.sub {
            SubQueue::Main => settings.forward_to.as_deref(),
            SubQueue::DeadLetter => settings.forward_dead_letters_to.as_deref(),
            SubQueue::TransferDeadLetter => None,
        }
    }

    /// Whether messages of this part of a queue go on to another entity.
    pub(crate) fn forwards(&self, source: Source) -> bool {
        self.forward_target(source).is_some()
    }

    /// Forwards a message that has just arrived. False: it stays, and is to be treated like any other, which it also is
    /// when others are there: some of them may be free soon, and none is to be overtaken (S-175).
    pub(super) fn forward_arrival(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        decision: &mut LocalDecision<'_>,
    ) -> bool {
        let source = Source::main(entity);
        // What goes to a topic may become many, which may be forwarded in turn: it waits for a slice of its own.
        self.forwards(source)
            && (self.queue_of(source).counts.active == 1 || is_planted(Bug::Overtaking))
            && !matches!(self.destination(source, sequence), Destination::Topic(_))
            && self.forward(source, sequence, decision) == Forwarding::Gone
    }

    /// Forwards what is free, `most` messages at the most, and says how many there were (at least one).
    pub(super) fn forward_free(
        &mut self,
        source: Source,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let count = self.forward_slice(source, most, decision);
        // Who does not go on by itself would hold what was read for nothing.
        if !self.volatile.is_stirred(source) {
            self.volatile.leave_reading(source);
        }
        count
    }

    fn forward_slice(&mut self, source: Source, most: usize, decision: &mut LocalDecision<'_>) -> usize {
        let (mut left, mut is_over) = (most, false);
        while !is_over && let Some(sequence) = self.next_free(source, &mut left, decision) {
            match self.forward(source, sequence, decision) {
                Forwarding::Gone => self.volatile.take(source, sequence),
                Forwarding::Copied(copies) => {
                    self.volatile.take(source, sequence);
                    left = left.saturating_sub(copies).max(1);
                }
                Forwarding::Unread => {
                    self.ask_to_read(source, left, true, decision);
                    return (most - left).max(1);
                }
                Forwarding::Withheld => {}
                Forwarding::Rests => self.volatile.rest(source, sequence),
                Forwarding::Waits => {
                    let (entity, at) = (source.entity, decision.now.after(FORWARD_RETRY));
                    self.volatile.arm(entity, EntityTimer::Forward, at);
                    return (most - left).max(1);
                }
            }
            left -= 1;
            is_over = decision.is_long();
        }
        if left == 0 || is_over {
            self.volatile.stir(source);
        }
        (most - left).max(1)
    }

    /// The destination may be open again.
    pub(crate) fn retry_forward(&mut self, entity: EntityId) -> usize {
        self.volatile.arm(entity, EntityTimer::Forward, LocalTime::NEVER);
        self.volatile.stir(Source::main(entity));
        self.volatile.stir(Source::dead_letter(entity));
        1
    }

    fn forward(
        &mut self,
        source: Source,
        sequence: Sequence,
        decision: &mut LocalDecision<'_>,
    ) -> Forwarding {
        match (self.destination(source, sequence), source.sub) {
            // Its copies take memory for each subscription.
            (Destination::Topic(_), _) if self.check_state().is_err() => Forwarding::Waits,
            (Destination::To(target) | Destination::Topic(target), _) => {
                self.hand_over(target, source, sequence, decision)
            }
            (Destination::Closed, SubQueue::DeadLetter) => Forwarding::Waits,
            (Destination::TooFar, SubQueue::DeadLetter) => Forwarding::Rests,
            (destination, _) => {
                let reason = match destination {
                    Destination::TooFar => Reason::MaxTransferHops,
                    _ => Reason::NotForwarded,
                };
                self.dead_letter(source.entity, sequence, reason, false, None, decision);
                Forwarding::Gone
            }
        }
    }

    fn destination(&self, source: Source, sequence: Sequence) -> Destination {
        let queue = self.queue_of(source);
        let hops = queue.extras.get(&sequence).and_then(|extra| extra.forwarded).map_or(0, |from| from.hops);
        let most = if source.sub == SubQueue::Main { TRANSFER_HOPS } else { DEAD_LETTER_HOPS };
        let most = most + u8::from(is_planted(Bug::Hops));
        if hops >= most {
            return Destination::TooFar;
        }
        let target = self.forward_target(source).map(forward_path).unwrap_or_default();
        match self.durable.find(queue.namespace, target) {
            None => Destination::Closed,
            Some(entity) => match self.durable.queue(entity) {
                None => Destination::Closed,
                Some(target) if !target.settings.status.may_send() => Destination::Closed,
                Some(target)
                    if target.held_bytes()
                        >= self.tier_of(target.namespace).queue_bytes(&target.settings) =>
                {
                    Destination::Closed
                }
                Some(target) if target.kind == Kind::Topic => Destination::Topic(entity),
                Some(_) => Destination::To(entity),
            },
        }
    }

    /// Hands a message to its destination, which looks at it as at one that is sent there (S-177): whether it is a duplicate,
    /// whether it has the session that is required, whether its time has come.
    fn hand_over(
        &mut self,
        target: EntityId,
        source: Source,
        sequence: Sequence,
        decision: &mut LocalDecision<'_>,
    ) -> Forwarding {
        let context = decision.context();
        // What was read, if it was, and if it could be.
        let taken = self.volatile.take_front(source, sequence);
        let read = taken.as_ref().and_then(Option::as_ref);
        let extra = self.queue_of(source).extras.get(&sequence).cloned();
        let is_stored = extra.as_ref().is_some_and(|extra| extra.stored_overlay.is_some());
        // What is stored of its changes is read in any case: they may say when the message is due.
        if is_stored && read.is_none() {
            return self.unread(taken.is_some(), source, sequence, context);
        }
        let stored = read.map_or(&[][..], |read| &read.overlay);
        let Ok(changes) = extra.as_deref().map_or(Ok(None), |extra| extra.changes(stored)) else {
            return self.unread(true, source, sequence, context);
        };
        let changed = changes.as_deref();
        let due = changed.and_then(due_of).filter(|due| *due > context.now);
        let Wanted { looks, lacks_session, is_published, is_read } =
            self.wanted_by(target, source, sequence, due.is_some());
        if is_read && read.is_none() {
            return self.unread(taken.is_some(), source, sequence, context);
        }
        let stored = read.filter(|_| is_read).map(|read| &*read.front);
        let front = stored.and_then(Front::of);
        let known_by = front.as_ref().filter(|_| looks).map(|front| front.known_by(changed));
        let session = front.as_ref().filter(|_| lacks_session).and_then(|front| front.session(changed));
        let entity = source.entity;
        if lacks_session && session.is_none() {
            if source.sub == SubQueue::DeadLetter {
                return Forwarding::Rests;
            }
            self.dead_letter(entity, sequence, Reason::SessionMissing, false, None, decision);
            return Forwarding::Gone;
        }
        self.volatile.set_accessed(target, context.now);
        if known_by.is_some_and(|known_by| !self.admits(target, known_by, decision)) {
            // A duplicate is taken and dropped, as if it had been sent (S-160).
            self.write(Record::Removed { entity, first: sequence, count: 1 }, decision);
            return Forwarding::Gone;
        }
        if let Some(session) = session {
            self.write(Record::InSession { entity, sequence, session }, decision);
        }
        let along = self.taken_along(source, sequence, changed);
        if is_published {
            let at = (source, sequence);
            let copies = self.publish_forwarded(target, at, along, changed, stored, decision);
            return Forwarding::Copied(copies);
        }
        // So that taking the message out does not copy them.
        drop(changes);
        drop(extra);
        self.transfer(source, sequence, target, due, along, decision);
        Forwarding::Gone
    }

    /// What a destination wants of a message, which comes to it later if `is_later`.
    fn wanted_by(&mut self, target: EntityId, source: Source, sequence: Sequence, is_later: bool) -> Wanted {
        let queue = self.durable.queue(target).expect("it was found");
        // What goes round in one queue is no duplicate of itself (K-24).
        let looks = queue.settings.requires_duplicate_detection && target != source.entity;
        let lacks_session =
            queue.settings.requires_session && self.queue_of(source).session_of(sequence).is_none();
        let is_published = queue.kind == Kind::Topic && !is_later;
        let is_read = looks || lacks_session || is_published && self.wants_front(target);
        Wanted { looks, lacks_session, is_published, is_read }
    }

    /// What becomes of a message of which nothing is known that has to be: it is read, or, if that was tried, it cannot be.
    fn unread(
        &mut self,
        was_tried: bool,
        source: Source,
        sequence: Sequence,
        context: LocalContext,
    ) -> Forwarding {
        if !was_tried {
            return Forwarding::Unread;
        }
        // It comes up again when that lock ends, like any delivery that failed.
        self.withhold(source, sequence, context);
        Forwarding::Withheld
    }

    fn transfer(
        &mut self,
        source: Source,
        sequence: Sequence,
        target: EntityId,
        due: Option<LocalTime>,
        (own, overlay): (LocalTime, Option<Overlay>),
        decision: &mut LocalDecision<'_>,
    ) {
        let context = decision.context();
        let kept = overlay.map(Kept::whole);
        let overlay = kept.and_then(|kept| self.write_kept(source.entity, sequence, kept, decision));
        let number = self.durable.queue(target).expect("it was found").next;
        let expires = match due {
            None => self.expiry(target, Span::MAX, context.now).min(own),
            // Its life is counted from the time on which it is due (S-44).
            Some(_) if own.is_never() => own,
            Some(due) => due.after(Span((own.0 - context.now.0).max(0) as u64)),
        };
        let record = Record::Forwarded { source, sequence, target, number, expires, due, overlay };
        self.write(record, decision);
        match due {
            None => self.arrive(target, number, decision),
            Some(due) => self.await_activation(target, number, due, context),
        }
    }
}

impl Broker {
    /// When a message that is forwarded expires at the latest, and all that is changed of it if that changes on the way. What
    /// expires in the source expires in the destination, which may be stricter; dead letters begin anew (S-64).
    fn taken_along(
        &self,
        source: Source,
        sequence: Sequence,
        changed: Option<&Overlay>,
    ) -> (LocalTime, Option<Overlay>) {
        let queue = self.queue_of(source);
        let slot = queue.index_of(source.sub).and_then(|index| index.get(sequence)).expect("it is free");
        match source.sub {
            SubQueue::Main => (slot.expires, None),
            _ => (LocalTime::NEVER, Some(dead_letter_overlay(&queue.path, words_of(slot), changed))),
        }
    }
}

/// The time for which the action of a rule has scheduled a message. What its sender wished has come true before.
fn due_of(changed: &Overlay) -> Option<LocalTime> {
    match changed.system(SystemProperty::ScheduledEnqueueTimeUtc)? {
        Change::Set(value) => match Value::decode(value) {
            Ok(Value::Timestamp(due)) => Some(LocalTime(due)),
            _ => None,
        },
        Change::Removed => None,
    }
}

/// What a dead letter takes along: why it is one, in words, and where it became one (S-112).
fn dead_letter_overlay(path: &str, words: Option<Overlay>, changed: Option<&Overlay>) -> Overlay {
    let words = words.unwrap_or_default();
    let mut overlay = match changed {
        Some(changed) => over(words, changed),
        None => words,
    };
    // A path is far below the limit; where the clients' own changes leave no room for it, they win.
    let _ = overlay.set_dead_letter_source(path);
    overlay
}

/// A message that was taken out of one entity, on its way into another.
pub(crate) struct TakenOut {
    pub(crate) slot: Slot,
    /// With where it came from (S-36) and how far (S-173).
    pub(crate) extra: Arc<Extra>,
    session: Option<Arc<str>>,
}

impl Applying<'_> {
    /// Takes out a message that goes on to another entity, with what it has besides its slot.
    pub(crate) fn take_out(&mut self, source: Source, sequence: Sequence) -> TakenOut {
        let from = self.queue_mut(source.entity);
        let before = from.own_bytes();
        let session = from.session_of(sequence).cloned();
        let number = from.first_number(sequence).unwrap_or_else(|| from.number(sequence));
        let left = from.index.get(sequence).copied().filter(|_| is_planted(Bug::ForwardedTwice));
        let slot = left.unwrap_or_else(|| from.remove(sequence));
        let mut extra = from.extras.remove(&sequence).unwrap_or_default();
        let forwarded = Arc::make_mut(&mut extra).forwarded.get_or_insert(Forwarded { number, hops: 0 });
        forwarded.hops += 1;
        self.tell_topic(source.entity, before);
        TakenOut { slot, extra, session }
    }

    pub(crate) fn forwarded(
        &mut self,
        message: TakenOut,
        target: EntityId,
        number: Sequence,
        expires: LocalTime,
        due: Option<LocalTime>,
        overlay: Option<&Overlay>,
    ) {
        let TakenOut { slot, mut extra, session } = message;
        let time = self.time;
        let queue = self.queue_mut(target);
        match due {
            None => {
                let was_scheduled = slot.was_scheduled();
                let slot = Slot::active(slot.body, slot.length, time, expires);
                queue.push(number, slot.after_schedule(was_scheduled));
            }
            Some(due) => {
                queue.push(number, Slot::scheduled(slot.body, slot.length, time, due));
                let life = (!expires.is_never()).then(|| Span((expires.0 - due.0).max(0) as u64));
                Arc::make_mut(&mut extra).time_to_live = life;
            }
        }
        queue.extras.insert(number, extra);
        queue.merge(number, overlay);
        if let Some(session) = session.filter(|_| queue.keeps_sessions()) {
            queue.join(number, &session);
        }
    }
}

#[cfg(test)]
mod tests;
