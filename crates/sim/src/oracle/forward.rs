//! Forwarding (S-170 to S-177, S-112): what reaches a queue that forwards ends in its destination, exactly once, under a
//! number of that queue, or in the dead-letter queue for a reason that holds. Nothing is overtaken, nothing stays.

use super::commit::longest_life;
use super::ledger::{Kind, Present, Queue, SUB_QUEUES, is_large};
use super::{Lock, Oracle};
use broker::limits::FORWARD_RETRY;
use broker::queue::index::Reason;
use broker::{EntityId, LocalTime, Number, QueueSettings, Sequence, Source, State, SubQueue};
use message::Overlay;

/// How often a message is forwarded (S-173), and how often as a dead letter, which must end too.
const HOPS: u8 = 4;
const DEAD_LETTER_HOPS: u8 = 16;

/// Bytes of a queue that was made small.
const SMALL_BYTES: u64 = 1 << 20;

/// The way of a message that was forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Travelled {
    pub hops: u8,
    /// The number that it had where it was sent (S-36).
    pub first: Option<Number>,
}

/// What a record says of a message that moves to another queue.
pub(super) struct Move<'a> {
    pub(super) source: Source,
    pub(super) sequence: Sequence,
    pub(super) target: EntityId,
    pub(super) number: Sequence,
    pub(super) expires: LocalTime,
    pub(super) overlay: Option<&'a Overlay>,
}

/// Where a message of a queue goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It stays.
    Nowhere,
    To(EntityId),
    /// The destination is full, disabled or gone (S-174).
    Closed,
    TooFar,
}

/// The folded path in a forward target, which may be an address (S-179).
fn target_path(target: &str) -> String {
    let path = match target.find("://") {
        Some(at) => target[at + 3..].split_once('/').map_or("", |(_, path)| path),
        None => target,
    };
    path.to_lowercase()
}

/// Where the messages of a queue, or its dead letters, are forwarded to.
fn target_of(settings: &QueueSettings, sub: SubQueue) -> Option<String> {
    let target = match sub {
        SubQueue::Main => &settings.forward_to,
        SubQueue::DeadLetter => &settings.forward_dead_letters_to,
        SubQueue::TransferDeadLetter => &None,
    };
    target.as_deref().map(target_path)
}

/// Whether a sub-queue forwards, so that nobody receives from it (S-172).
pub fn forwards(settings: &QueueSettings, sub: SubQueue) -> bool {
    match sub {
        SubQueue::Main => settings.forward_to.is_some(),
        SubQueue::DeadLetter => settings.forward_dead_letters_to.is_some(),
        SubQueue::TransferDeadLetter => false,
    }
}

impl Oracle {
    pub(super) fn way(&self, queue: &Queue, sub: SubQueue, hops: u8) -> Way {
        let Some(path) = target_of(&queue.settings, sub) else { return Way::Nowhere };
        if hops >= if sub == SubQueue::Main { HOPS } else { DEAD_LETTER_HOPS } {
            return Way::TooFar;
        }
        let found =
            self.ledger.names.get(&path).and_then(|entity| Some((*entity, self.ledger.queues.get(entity)?)));
        match found {
            Some((entity, target)) if target.settings.status.may_send() && !is_full(target) => {
                Way::To(entity)
            }
            _ => Way::Closed,
        }
    }

    /// Only what exists is forwarded to (S-171), and what was there when it was said first (K-21). Nothing is created that
    /// forwards to itself (K-24).
    pub(super) fn check_targets(
        &mut self,
        path: &str,
        settings: &QueueSettings,
        before: Option<&QueueSettings>,
    ) {
        for sub in SUB_QUEUES {
            let Some(target) = target_of(settings, sub) else { continue };
            if before.is_some_and(|before| target_of(before, sub).as_ref() == Some(&target)) {
                continue;
            }
            if !self.ledger.names.contains_key(&target) {
                self.fail(format!("{path} forwards to {target}, which does not exist"));
            } else if target == path.to_lowercase() && before.is_none() {
                self.fail(format!("{path} forwards to itself"));
            }
        }
    }

    /// Whether somebody may rightly have been told that a target does not exist.
    pub(super) fn may_lack_target(&self, target: &str) -> bool {
        let target = target_path(target);
        let found = self.ledger.names.get(&target).and_then(|entity| self.ledger.queues.get(entity));
        found.is_none_or(|queue| queue.made == self.turn) || self.went(&target)
    }

    /// A message leaves for another entity: once, and in its turn. Gives what it has there, and when it expires at the
    /// latest.
    pub(super) fn forwarded_out(
        &mut self,
        source: Source,
        sequence: Sequence,
        target: EntityId,
        time: LocalTime,
    ) -> Option<(Present, LocalTime, bool)> {
        let (sub, is_dead) = (source.sub, source.sub != SubQueue::Main);
        let Some(queue) = self.ledger.queues.get(&source.entity) else {
            self.fail("a message was forwarded out of a queue that does not exist");
            return None;
        };
        let Some(present) = queue.present.get(&sequence) else {
            self.fail(format!("{sequence:?} was forwarded and is not there"));
            return None;
        };
        let way = self.way(queue, sub, present.travelled.hops);
        let overtaken = self.overtaken(source.entity, queue, sequence, sub);
        let lock = self.locks.remove(&(source.entity, sequence));
        let from = self.ledger.queues.get_mut(&source.entity)?;
        let mut present = from.remove(sequence)?;
        let first = present.travelled.first.unwrap_or(from.number(sequence));
        let own = if is_dead { LocalTime::NEVER } else { present.expires };
        if is_dead {
            present.overlay = dead_letter_overlay(&from.path, &present);
        }
        let restated = self.restated.remove(&(source.entity, sequence));
        let is_restated = restated.is_some();
        let wrong = [
            (way == Way::To(target), "it was forwarded to where it does not go"),
            (present.sub == sub, "it was forwarded from another sub-queue"),
            (present.state == State::Active, "it was forwarded though it waits"),
            (lock.is_none_or(|lock| lock.may_be_free(time)), "I5: it was forwarded though it is locked"),
            (is_dead || time < present.expires, "I8: it was forwarded though it has expired"),
            (
                restated.is_none_or(|restated| is_dead && is_large(&restated) && restated == present.overlay),
                "I3: it takes along what nobody set",
            ),
        ];
        let root = self.messages[present.message].root;
        self.ledger.moved.insert((source.entity, sequence), root);
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("{sequence:?} of {source:?} on its way: {what}"));
        }
        if let Some(older) = overtaken {
            let what = format!("{older:?} of {source:?} was overtaken by {sequence:?} on its way (S-175)");
            // What goes to a topic, or to where duplicates are looked for, is read before, and so are changes that are stored. One that cannot be read stays, and
            // that is known a moment later.
            let is_stored =
                |queue: &Queue| queue.present.get(&older).is_some_and(|present| is_large(&present.overlay));
            let is_read = self.ledger.queues.get(&target).is_some_and(|to| {
                matches!(to.kind, Kind::Topic(_)) || to.settings.requires_duplicate_detection
            }) || self.ledger.queues.get(&source.entity).is_some_and(is_stored);
            match is_read && self.may_not_read {
                true => drop(self.suspicion.get_or_insert(what)),
                false => self.fail(what),
            }
        }
        present.travelled = Travelled { hops: present.travelled.hops + 1, first: Some(first) };
        if is_large(&present.overlay) {
            self.coverage.variant("stored changes forwarded");
        }
        Some((*present, own, is_restated))
    }

    /// A message moves to another queue, under a new number.
    pub(super) fn forwarded(&mut self, moved: &Move<'_>, time: LocalTime) {
        let Move { source, sequence, target, number, expires, overlay } = *moved;
        let is_dead = source.sub != SubQueue::Main;
        let Some((present, own, is_restated)) = self.forwarded_out(source, sequence, target, time) else {
            return;
        };
        let (tier, turn, position) = (self.tier, self.turn, self.ledger.position + 1);
        let queue = self.ledger.queues.get_mut(&target).filter(|queue| matches!(queue.kind, Kind::Queue));
        let Some(queue) = queue else {
            return self.fail(format!("{sequence:?} was forwarded to a queue that does not exist"));
        };
        let wrong = [
            (queue.next == number, "I4: its number leaves a gap or is taken"),
            (queue.last_enqueued <= time, "its enqueued time runs backwards"),
            (
                expires == own.min(time.after(longest_life(tier, &queue.settings))),
                "I8: it lives for another time",
            ),
            (
                overlay == Some(&present.overlay).filter(|overlay| is_dead && !is_large(overlay)),
                "I3: it takes along what nobody set",
            ),
            (
                is_restated == (is_dead && is_large(&present.overlay)),
                "I3: it does not take along what was changed",
            ),
        ];
        queue.next = number.next();
        queue.last_enqueued = time;
        (queue.used, queue.is_touched) = (time, true);
        let message = &mut self.messages[present.message];
        message.place = Some((target, number));
        message.path = queue.path.to_lowercase().into();
        queue.insert(
            number,
            Present {
                count: 0,
                stored: turn,
                position,
                enqueued: time,
                expires,
                sub: SubQueue::Main,
                reason: Reason::Client,
                ..present
            },
        );
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("{sequence:?} of {source:?} forwarded as {number:?}: {what}"));
        }
        // What goes round in one queue is no duplicate of itself (K-24).
        let is_itself = target == source.entity;
        if let Some(what) =
            (!is_itself).then(|| self.take_noted_forwarded(target, present.message, time)).flatten()
        {
            self.fail(format!("{sequence:?} of {source:?} forwarded as {number:?}: {what}"));
        }
    }

    /// An older message that was free and should have gone before.
    fn overtaken(
        &self,
        entity: EntityId,
        queue: &Queue,
        sequence: Sequence,
        sub: SubQueue,
    ) -> Option<Sequence> {
        // While a queue forwards nobody is given its messages, so what has no lock is free.
        let is_dead = sub != SubQueue::Main;
        let is_clear = queue.did_forward[sub as usize] && !self.is_ghostly(entity);
        let is_free = |sequence: &Sequence, present: &Present| {
            let is_here = present.state == State::Active && present.sub == sub;
            // What came with the same append is locked by nobody.
            let is_new = !is_dead && present.position == self.ledger.position + 1;
            let was_free = match self.locks.get(&(entity, *sequence)) {
                Some(lock) => lock.returned.is_some_and(|turn| turn < self.turn),
                None => present.stored < self.turn,
            };
            is_here
                && (is_new || is_clear && was_free)
                && !(is_dead && present.travelled.hops >= DEAD_LETTER_HOPS)
        };
        let mut older = queue.present.range(..sequence);
        older.find(|(older, present)| is_free(older, present)).map(|(older, _)| *older)
    }

    /// The partition rests: nothing is left in a queue that forwards except what is locked or waits for its time, and
    /// dead letters whose destination was closed a moment ago.
    pub(super) fn check_forwarded(&mut self) {
        let mut stuck = None;
        let mut waiting = Vec::new();
        for (entity, queue) in &self.ledger.queues {
            if queue.settings.forward_to.is_none() && queue.settings.forward_dead_letters_to.is_none() {
                continue;
            }
            for sub in SUB_QUEUES {
                let is_empty = match sub {
                    SubQueue::Main => queue.counts.active == 0,
                    _ => queue.counts.dead_letter == 0,
                };
                if is_empty || !forwards(&queue.settings, sub) || self.is_ghostly(*entity) {
                    continue;
                }
                let is_free = |lock: Option<&Lock>| lock.is_none_or(|lock| lock.returned.is_some());
                let mut left = queue.present.iter().filter(|(sequence, present)| {
                    present.state == State::Active
                        && present.sub == sub
                        && is_free(self.locks.get(&(*entity, **sequence)))
                });
                if sub != SubQueue::Main {
                    let goes = |present: &Present| {
                        match self.way(queue, sub, present.travelled.hops) {
                            // A small one may have been full when it was last tried.
                            Way::To(target) => self.ledger.queues[&target].settings.max_size_megabytes > 1,
                            _ => false,
                        }
                    };
                    if left.any(|(_, present)| goes(present)) {
                        waiting.push(*entity);
                    }
                } else if let Some((sequence, _)) = left.next() {
                    stuck = Some(format!("I1: {sequence:?} of {} stays and is to be forwarded", queue.path));
                }
            }
        }
        self.waiting.retain(|entity, _| waiting.contains(entity));
        for entity in waiting {
            let now = self.here(entity);
            let since = *self.waiting.entry(entity).or_insert(now);
            if since.after(FORWARD_RETRY) < now {
                let path = self.ledger.queues.get(&entity).map(|queue| &queue.path);
                stuck = Some(format!(
                    "I1: dead letters of {path:?} wait since {since:?} for an open destination"
                ));
            }
        }
        if let Some(stuck) = stuck {
            self.fail(stuck);
        }
    }
}

fn is_full(queue: &Queue) -> bool {
    queue.settings.max_size_megabytes == 1 && queue.bytes >= SMALL_BYTES
}

/// What a dead letter takes along: why it is one, and where it became one (S-112).
fn dead_letter_overlay(path: &str, present: &Present) -> Overlay {
    let mut overlay = present.shown();
    // Where the clients' own changes leave no room for the path, they win.
    let _ = overlay.set_dead_letter_source(path);
    overlay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_or_an_address() {
        assert_eq!(target_path("Orders"), "orders");
        assert_eq!(target_path("sb://host:5671/Invoices/EU"), "invoices/eu");
    }
}
