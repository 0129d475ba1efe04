//! Duplicate detection (I9): which ids each queue has taken, and since when. Within the window a second message of an id
//! is accepted and dropped, and never stored; outside of it, it is stored (S-160, S-164). An id is known from the append
//! that stores its message, so it is known after a crash if and only if the message is.
//!
//! Ids are compared as their senders chose them. Under what name the broker notes them is its own business, as long as
//! one id keeps one name.

use super::ledger::{Kind, Queue};
use super::{Message, Oracle, Question};
use crate::workload::digest;
use broker::{EntityId, LinkId, LocalTime, MessageKey, Number, QueueSettings, Sequence, Span};
use std::collections::BTreeMap;

/// A message's id, with its partition key where that counts (S-162).
type Key = (u64, u64);

/// Sequence numbers without the partition above them (S-32).
const SEQUENCE: u64 = (1 << 48) - 1;

pub(super) fn sequence_of(number: Number) -> Sequence {
    Sequence(number.0 & SEQUENCE)
}

#[derive(Debug)]
struct Known {
    since: LocalTime,
    name: MessageKey,
    /// An earlier window has passed over it, so that it may be forgotten although a longer one holds by now.
    is_hazy: bool,
}

/// The ids that a queue has taken.
#[derive(Debug, Default)]
pub struct History {
    known: BTreeMap<Key, Known>,
    /// The longest window that held in this turn.
    longest: Span,
    /// Numbers that were used up for messages that were dropped, and whether somebody was told.
    skipped: BTreeMap<Sequence, bool>,
}

impl History {
    pub fn new(settings: &QueueSettings) -> History {
        History { longest: settings.duplicate_window, ..History::default() }
    }

    /// Takes the id of a message that is stored. `name` is what was noted just before.
    fn store(
        &mut self,
        key: Option<Key>,
        name: Option<MessageKey>,
        window: Span,
        time: LocalTime,
    ) -> Option<&'static str> {
        let (key, name) = match (key, name) {
            (None, None) => return None,
            (None, Some(_)) => return Some("I9: an id was noted that nobody looks for"),
            (Some(_), None) => return Some("I9: its id was not noted with it"),
            (Some(key), Some(name)) => (key, name),
        };
        let before = self.known.insert(key, Known { since: time, name, is_hazy: false })?;
        if before.name != name {
            Some("I9: its id has two names")
        } else if !before.is_hazy && time < before.since.after(window) {
            Some("I9: it was stored though its id was taken")
        } else {
            None
        }
    }

    /// Another window holds.
    pub fn update(&mut self, before: Span, window: Span, time: LocalTime) {
        self.longest = self.longest.max(window);
        for known in self.known.values_mut() {
            known.is_hazy |= known.since.after(before) <= time;
        }
    }

    pub fn end_turn(&mut self, window: Span) {
        self.longest = window;
    }

    /// Whether a message that was decided about at `began` or later may have been dropped.
    fn may_drop(&self, key: Option<Key>, began: LocalTime) -> bool {
        let known = key.and_then(|key| self.known.get(&key));
        known.is_some_and(|known| began < known.since.after(self.longest))
    }

    /// A number that was kept for a message is used by it.
    pub fn unskip(&mut self, sequence: Sequence) -> bool {
        self.skipped.remove(&sequence).is_some()
    }

    /// Somebody is told a number that was used up. Says whether that is so, and nobody else was told.
    pub fn tell_skipped(&mut self, sequence: Sequence) -> bool {
        let told = self.skipped.get_mut(&sequence);
        told.is_some_and(|told| !std::mem::replace(told, true))
    }

    /// Whether a number was used up for nothing.
    pub fn is_skipped(&self, number: Number) -> bool {
        self.skipped.contains_key(&sequence_of(number))
    }
}

/// What a queue knows a message by, if it looks for duplicates and the message has an id.
fn key_of(settings: &QueueSettings, message: &Message) -> Option<Key> {
    let has_key = settings.requires_duplicate_detection && message.id != 0;
    has_key.then_some((message.id, if settings.partitioning { message.partition } else { 0 }))
}

/// The same of a message that comes from another queue: its bytes tell its session, and know of no other partition key.
fn forwarded_key(settings: &QueueSettings, message: &Message) -> Option<Key> {
    let key = key_of(settings, message);
    key.map(|(id, partition)| (id, if message.session.is_some() { partition } else { 0 }))
}

/// The name under which an id is noted, where it is the only trace of a message.
fn name_of((id, partition): Key, settings: &QueueSettings) -> MessageKey {
    let name = digest(id);
    if settings.partitioning { name.within(partition) } else { name }
}

impl Oracle {
    /// An id is noted; its message must be the next record.
    pub(super) fn note(&mut self, entity: EntityId, name: MessageKey) {
        self.noted = Some((entity, name));
    }

    /// A message is stored with what was noted before it. Says what is wrong with that.
    pub(super) fn take_noted(
        &mut self,
        entity: EntityId,
        number: usize,
        time: LocalTime,
    ) -> Option<&'static str> {
        self.take_noted_as(key_of, entity, number, time)
    }

    /// The same for a message that comes from another queue (S-177).
    pub(super) fn take_noted_forwarded(
        &mut self,
        entity: EntityId,
        number: usize,
        time: LocalTime,
    ) -> Option<&'static str> {
        self.take_noted_as(forwarded_key, entity, number, time)
    }

    fn take_noted_as(
        &mut self,
        key: impl Fn(&QueueSettings, &Message) -> Option<Key>,
        entity: EntityId,
        number: usize,
        time: LocalTime,
    ) -> Option<&'static str> {
        let noted = self.noted.take();
        if noted.is_some_and(|(of, _)| of != entity) {
            return Some("I9: its id was noted at another queue");
        }
        let queue = self.ledger.queues.get_mut(&entity)?;
        let key = key(&queue.settings, &self.messages[number]);
        queue.history.store(key, noted.map(|(_, name)| name), queue.settings.duplicate_window, time)
    }

    /// Whether a message that is forwarded to a queue was there before, so that it is dropped (S-160, S-177).
    pub(super) fn may_drop_forwarded(&self, target: EntityId, number: usize, time: LocalTime) -> bool {
        self.ledger.queues.get(&target).is_some_and(|queue| {
            let key = forwarded_key(&queue.settings, &self.messages[number]);
            queue.history.may_drop(key, time)
        })
    }

    /// A number is used up for a message that was scheduled and dropped (S-48).
    pub(super) fn skip(&mut self, entity: EntityId, sequence: Sequence, time: LocalTime) {
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a number was used up in a queue that does not exist");
        };
        let is_next = queue.next == sequence;
        queue.next = sequence.next();
        (queue.used, queue.is_touched) = (time, true);
        queue.history.skipped.insert(sequence, false);
        if matches!(queue.kind, Kind::Topic(_)) {
            if !is_next {
                self.fail(format!("I4: {sequence:?}, which is used up, leaves a gap or is taken"));
            }
            self.note_unwanted(entity, time);
            return self.unwanted(entity);
        }
        let (path, settings, history) = (queue.path.to_lowercase(), &queue.settings, &queue.history);
        let is_dropped = |question: &Question| match question {
            // The number is kept for the message until its transaction is committed.
            Question::ScheduleWithin(of, ..) => *of == path,
            Question::Schedule(of, link, delivery) if *of == path => {
                let messages = self.deliveries.get(&(*link, *delivery)).cloned().unwrap_or_default();
                self.messages[messages].iter().any(|each| history.may_drop(key_of(settings, each), time))
            }
            _ => false,
        };
        if !is_next {
            self.fail(format!("I4: {sequence:?}, which is used up, leaves a gap or is taken"));
        } else if !self.asked.iter().any(is_dropped) {
            self.fail(format!("I4: {sequence:?} was used up for nothing"));
        }
    }

    /// A message that nobody at a topic wants leaves its id all the same. Which message it was only that id tells.
    fn note_unwanted(&mut self, topic: EntityId, time: LocalTime) {
        let Some((of, name)) = self.noted.take() else { return };
        let Some(queue) = self.ledger.queues.get_mut(&topic).filter(|_| of == topic) else {
            return self.fail("I9: an id was noted at another topic than its message was sent to");
        };
        let (path, settings) = (queue.path.to_lowercase(), &queue.settings);
        let key = self.messages.iter().rev().find_map(|message| {
            let is_nowhere = message.place.is_none() && !message.is_published && *message.path == *path;
            key_of(settings, message).filter(|key| is_nowhere && name_of(*key, settings) == name)
        });
        let Some(key) = key else {
            return self.fail(format!("I9: an id was noted at {path} for a message that nobody sent"));
        };
        if let Some(what) = queue.history.store(Some(key), Some(name), queue.settings.duplicate_window, time)
        {
            self.fail(format!("a message that nobody wants at {path}: {what}"));
        }
    }

    /// All messages of a delivery of which one was stored are stored too, or dropped (S-16).
    pub(super) fn check_siblings(
        &mut self,
        link: LinkId,
        delivery: u32,
        count: usize,
        entity: EntityId,
        time: LocalTime,
    ) {
        let siblings = self.of_delivery(link, delivery);
        let queues = &self.ledger.queues;
        let Some(queue) = queues.get(&entity).or(self.ledger.deleted.get(&entity).map(|(_, queue)| queue))
        else {
            return;
        };
        let is_dropped = |message: &&Message| {
            message.place.is_none()
                && !message.is_published
                && (queue.history.may_drop(key_of(&queue.settings, message), time)
                    || self.may_be_unwanted(message.root))
        };
        let dropped = siblings.iter().filter(is_dropped).count();
        if count + dropped != siblings.len() {
            let all = siblings.len();
            self.fail(format!("{count} of {all} messages of one delivery were stored, {dropped} dropped"));
        }
    }

    /// The queues that a path means, or meant in this turn.
    fn meant<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Queue> {
        let there = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        there.into_iter().chain(self.gone_in_turn(path))
    }

    /// The queues of that path that went in this turn.
    pub(super) fn gone_in_turn<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Queue> {
        let has_gone = self.ledger.last_deletion == self.turn;
        let gone = has_gone.then(|| self.ledger.deleted.values()).into_iter().flatten();
        let gone = gone.filter(|(turn, _)| *turn == self.turn);
        gone.map(|(_, queue)| queue).filter(move |queue| queue.path.eq_ignore_ascii_case(path))
    }

    /// Whether a message that is not stored may have been dropped as a duplicate in this turn.
    pub(super) fn may_be_dropped(&self, number: usize) -> bool {
        let message = &self.messages[number];
        self.meant(&message.path).any(|queue| {
            let began = self.clocks.earliest(queue.namespace, self.began);
            queue.history.may_drop(key_of(&queue.settings, message), began)
        })
    }

    /// Whether a message was sent to a topic.
    pub(super) fn is_at_topic(&self, number: usize) -> bool {
        self.meant(&self.messages[number].path).any(|queue| matches!(queue.kind, Kind::Topic(_)))
    }

    /// The scheduler of a message that was dropped is told a number that no message has (S-48).
    pub(super) fn told_skipped(&mut self, path: &str, message: usize, number: Number) {
        if self.may_be_unwanted(message) {
            self.count_unwanted(message);
        } else if !self.may_be_dropped(message) {
            return self.fail(format!("message {message} was scheduled before it was durable"));
        }
        self.messages[message].is_dropped = true;
        if self.went(path) {
            return;
        }
        let queue = self.ledger.find(path).and_then(|entity| self.ledger.queues.get_mut(&entity));
        if !queue.is_some_and(|queue| queue.history.tell_skipped(sequence_of(number))) {
            self.fail(format!("message {message} was dropped as {number:?}, which is not its own"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Span = Span(1_000);

    fn history() -> History {
        let mut history = History::new(&QueueSettings { duplicate_window: WINDOW, ..Default::default() });
        assert_eq!(store(&mut history, 1, 0), None);
        history
    }

    fn store(history: &mut History, id: u64, time: i64) -> Option<&'static str> {
        history.store(Some((id, 0)), Some(MessageKey([id, id])), WINDOW, LocalTime(time))
    }

    #[test]
    fn an_id_is_stored_once_in_its_window_and_again_after_it() {
        assert!(store(&mut history(), 1, 999).is_some());
        assert_eq!(store(&mut history(), 1, 1_000), None);
        assert_eq!(store(&mut history(), 2, 1), None);
    }

    #[test]
    fn only_what_is_known_may_be_dropped_and_only_for_its_window() {
        let history = history();
        assert!(history.may_drop(Some((1, 0)), LocalTime(999)));
        for (key, began) in [(Some((1, 0)), 1_000), (Some((2, 0)), 1), (Some((1, 7)), 1), (None, 1)] {
            assert!(!history.may_drop(key, LocalTime(began)), "{key:?} at {began}");
        }
    }

    #[test]
    fn what_an_earlier_window_has_passed_over_may_be_forgotten() {
        let mut history = history();
        history.update(WINDOW, Span(9_000), LocalTime(1_000));
        assert!(history.may_drop(Some((1, 0)), LocalTime(5_000)));
        let again = history.store(Some((1, 0)), Some(MessageKey([1, 1])), Span(9_000), LocalTime(5_000));
        assert_eq!(again, None);
    }

    #[test]
    fn an_id_is_noted_with_its_message_and_under_one_name() {
        let mut history = history();
        assert!(history.store(Some((2, 0)), None, WINDOW, LocalTime(0)).is_some());
        assert!(history.store(None, Some(MessageKey([2, 2])), WINDOW, LocalTime(0)).is_some());
        assert!(history.store(Some((1, 0)), Some(MessageKey([3, 3])), WINDOW, LocalTime(5_000)).is_some());
    }
}
