//! Publishing (S-180 to S-187): every subscription whose rules take a message has its copy, or one for each rule that
//! changes it, under the next number of that subscription, and nobody else has any. All copies come with one record, or
//! with none if nobody wants the message; then it has only used up a number of the topic.

use super::commit::{Stored, longest_life};
use super::forward::Travelled;
use super::ledger::{Kind, Present, is_large};
use super::{Gone, Message, Oracle, Unfit};
use crate::rules::{TraitSet, Traits, Verdict};
use broker::queue::index::Reason;
use broker::topic::published::{Origin, Published};
use broker::{EntityId, LocalTime, Number, Sequence, Span, State, SubQueue};
use message::Overlay;

/// A message about to be copied.
struct Original {
    message: usize,
    traits: Traits,
    overlay: Overlay,
    has_session: bool,
    /// It comes from another entity, which may not have kept what session it is in. Its bytes tell, where anybody asks.
    is_forwarded: bool,
    /// A dead letter takes along why it is one.
    is_dead: bool,
    /// That was stored before.
    is_restated: bool,
    length: u32,
    /// Until when the topic lets it live.
    expires: LocalTime,
    travelled: Travelled,
}

/// What a subscription must get.
struct Copy {
    subscription: EntityId,
    expires: LocalTime,
    /// What its record says, and what it has then.
    told: Option<Overlay>,
    overlay: Overlay,
    /// An action has made it.
    is_acted: bool,
    traits: Traits,
    /// It belongs into the dead-letter queue, if it does.
    unfit: Option<Unfit>,
}

impl Oracle {
    /// A message at a topic becomes copies. Gives its number, if it was just sent.
    pub(super) fn published(&mut self, published: &Published, time: LocalTime) -> Option<(usize, EntityId)> {
        let Published { topic, sequence, origin, copies } = published;
        let Some(queue) = self.ledger.queues.get(topic).filter(|queue| matches!(queue.kind, Kind::Topic(_)))
        else {
            self.fail("a message was published at what is no topic");
            return None;
        };
        let wrong = [
            (queue.next == *sequence, "I4: its number leaves a gap or is taken"),
            (queue.last_enqueued <= time, "its enqueued time runs backwards"),
        ];
        let first = queue.number(*sequence);
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("{sequence:?} of {topic:?}: {what}"));
        }
        let original = self.original(*topic, *sequence, origin, time)?;
        if let Some(queue) = self.ledger.queues.get_mut(topic) {
            (queue.next, queue.last_enqueued) = (sequence.next(), time);
            (queue.used, queue.is_touched) = (time, true);
        }
        let expected = self.copies_of(*topic, &original, time);
        let must_restate = original.is_dead && is_large(&original.overlay) && !expected.is_empty();
        if must_restate && !original.is_restated {
            self.fail(format!("I3: message {} takes along what was not stored", original.message));
        }
        let is_right = expected.len() == copies.len()
            && expected.iter().zip(copies).all(|(expected, copy)| {
                (expected.subscription, expected.expires) == (copy.subscription, copy.expires)
                    && expected.told.as_ref() == copy.overlay.as_deref()
            });
        if !is_right {
            let expected: Vec<_> = expected.iter().map(|copy| (copy.subscription, copy.expires)).collect();
            self.fail(format!(
                "S-180: message {} was published as {published:?}, not {expected:?}",
                original.message
            ));
        }
        let number = self.messages[original.message].root;
        expected.into_iter().for_each(|copy| self.store_copy(copy, &original, first, time));
        matches!(origin, Origin::Sent { .. }).then_some((number, *topic))
    }

    /// Takes the message out of where it was.
    fn original(
        &mut self,
        topic: EntityId,
        sequence: Sequence,
        origin: &Origin,
        time: LocalTime,
    ) -> Option<Original> {
        let life = longest_life(self.tier, &self.ledger.queues.get(&topic)?.settings);
        match origin {
            Origin::Sent { body, length, parts } => {
                let parts = parts.as_deref().unwrap_or_default();
                let stored = Stored { entity: topic, sequence, body: *body, parts, length: *length };
                let number = self.arrived(&stored)?;
                let message = &mut self.messages[number];
                let is_due = message.scheduled <= time;
                message.is_published = true;
                message.first = Some((topic, sequence));
                let expires = time.after(message.time_to_live.min(life));
                if !is_due {
                    self.fail(format!("I8: message {number} was published early"));
                }
                if let Some(what) = self.take_noted(topic, number, time) {
                    self.fail(format!("message {number}: {what}"));
                }
                Some(Original {
                    message: number,
                    traits: Traits::of(number),
                    overlay: Overlay::default(),
                    has_session: self.messages[number].session.is_some(),
                    is_forwarded: false,
                    is_dead: false,
                    is_restated: false,
                    length: *length,
                    expires,
                    travelled: Travelled::default(),
                })
            }
            Origin::Scheduled(waiting) => {
                let queue = self.ledger.queues.get_mut(&topic)?;
                let Some(present) = queue.remove(*waiting) else {
                    self.fail(format!("{waiting:?} was published and is not there"));
                    return None;
                };
                if present.state != State::Scheduled || present.expires > time {
                    self.fail(format!("I8: {waiting:?} was published before its time"));
                }
                let message = &mut self.messages[present.message];
                (message.is_published, message.place) = (true, None);
                let expires = time.after(message.time_to_live.min(life));
                let has_session = message.session.is_some();
                Some(Original::of(*present, expires, has_session, false))
            }
            Origin::Forwarded { source, sequence } => {
                let (present, own, is_restated) = self.forwarded_out(*source, *sequence, topic, time)?;
                let path = self.ledger.queues.get(&topic)?.path.to_lowercase().into();
                let message = &mut self.messages[present.message];
                (message.is_published, message.place, message.path) = (true, None, path);
                message.gone = Some(Gone::Published);
                let (expires, number) = (time.after(life).min(own), present.message);
                let has_session = message.session.is_some();
                let is_dead = source.sub != SubQueue::Main;
                if let Some(what) = self.take_noted_forwarded(topic, number, time) {
                    self.fail(format!("{sequence:?} of {source:?} forwarded to {topic:?}: {what}"));
                }
                let original = Original::of(present, expires, has_session, is_dead);
                Some(Original { is_forwarded: true, is_restated, ..original })
            }
        }
    }

    /// What the subscriptions of a topic must get, in their order.
    fn copies_of(&self, topic: EntityId, original: &Original, time: LocalTime) -> Vec<Copy> {
        let mut copies = Vec::new();
        let Some(Kind::Topic(model)) = self.ledger.queues.get(&topic).map(|queue| &queue.kind) else {
            return copies;
        };
        // What is large was stored before, for all of them.
        let taken_along = || {
            let overlay = Some(&original.overlay).filter(|overlay| original.is_dead && !is_large(overlay));
            overlay.cloned()
        };
        for entity in model.subscriptions.values() {
            let Some(queue) = self.ledger.queues.get(entity) else { continue };
            let Kind::Subscription(below) = &queue.kind else { continue };
            let lacks_session = queue.settings.requires_session && !original.has_session;
            let lacks = lacks_session.then_some(Unfit::NoSession);
            let plain = |unfit| Copy {
                subscription: *entity,
                // S-58
                expires: original.expires.min(time.after(longest_life(self.tier, &queue.settings))),
                told: taken_along(),
                overlay: original.overlay.clone(),
                is_acted: false,
                traits: original.traits,
                unfit,
            };
            let before = copies.len();
            let mut has_plain = false;
            for (rule, meaning) in below.rules.values() {
                match (meaning.choice.judge(original.traits), meaning.deed) {
                    (Verdict::No, _) => {}
                    // Together they make one copy (S-182).
                    (Verdict::Yes, None) if has_plain => {}
                    (Verdict::Yes, None) => {
                        has_plain = true;
                        copies.push(plain(lacks));
                    }
                    (Verdict::Yes, Some(deed)) => {
                        let (traits, overlay) = deed.done(&rule.name, original.traits, &original.overlay);
                        copies.push(Copy {
                            told: Some(overlay.clone()).filter(|told| !is_large(told)),
                            overlay,
                            is_acted: true,
                            traits,
                            ..plain(lacks)
                        });
                    }
                    (Verdict::Fails, _) => {
                        copies.truncate(before);
                        if below.settings.dead_letter_on_filter_exceptions {
                            copies.push(plain(Some(Unfit::Rule)));
                        }
                        break;
                    }
                }
            }
        }
        copies
    }

    fn store_copy(&mut self, copy: Copy, original: &Original, first: Number, time: LocalTime) {
        let (turn, position) = (self.turn, self.ledger.position + 1);
        let is_large = copy.is_acted && is_large(&copy.overlay);
        let Some(queue) = self.ledger.queues.get_mut(&copy.subscription) else { return };
        let sequence = queue.next;
        let (keeps_sessions, requires_session) = (queue.keeps_sessions(), queue.settings.requires_session);
        (queue.next, queue.last_enqueued) = (sequence.next(), time);
        let travelled = Travelled { first: original.travelled.first.or(Some(first)), ..original.travelled };
        let number = self.messages.len();
        queue.insert(
            sequence,
            Present {
                message: number,
                length: original.length,
                count: 0,
                stored: turn,
                position,
                enqueued: time,
                expires: copy.expires,
                state: State::Active,
                sub: SubQueue::Main,
                reason: Reason::Client,
                overlay: copy.overlay,
                session: None,
                travelled,
                traits: copy.traits,
            },
        );
        let root = self.messages[original.message].root;
        let copied = Message::copied(
            &self.messages[root],
            queue.path.to_lowercase().into(),
            (copy.subscription, sequence),
        );
        self.messages.push(copied);
        self.messages[root].copies.push(number);
        if requires_session {
            let has_session = original.has_session;
            self.coverage.variant(if has_session { "copy in a session" } else { "copy without its session" });
        }
        let is_kept = requires_session || keeps_sessions && !original.is_forwarded;
        if original.has_session && is_kept {
            self.joining.insert((copy.subscription, sequence));
        }
        if is_large {
            self.loaded.insert((copy.subscription, sequence));
        }
        if let Some(why) = copy.unfit {
            self.unfit.insert((copy.subscription, sequence), why);
        }
    }

    /// A number of a topic was used up for a message that nobody wanted. Which one it was nobody says.
    pub(super) fn unwanted(&mut self, topic: EntityId) {
        let wanted_by_none = |traits| {
            let original = Original::bare(traits);
            self.copies_of(topic, &original, self.here(topic)).is_empty()
        };
        let set = TraitSet::of(wanted_by_none);
        if let Some(Kind::Topic(model)) = self.ledger.queues.get_mut(&topic).map(|queue| &mut queue.kind) {
            model.unwanted.push(set);
        }
    }

    /// Whether a message that is nowhere may have been sent to a topic and been wanted by nobody, in this turn.
    pub(super) fn may_be_unwanted(&self, number: usize) -> bool {
        let path = &self.messages[number].path;
        let has = |kind: &Kind| match kind {
            Kind::Topic(topic) => topic.unwanted.iter().any(|set| set.has(number)),
            _ => false,
        };
        let there = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        there.is_some_and(|queue| has(&queue.kind)) || self.gone_in_turn(path).any(|queue| has(&queue.kind))
    }

    /// A message was accepted that is nowhere, because nobody wanted it. There are not more of them than numbers that were
    /// used up.
    pub(super) fn count_unwanted(&mut self, number: usize) {
        let path = self.messages[number].path.clone();
        self.messages[number].is_published = true;
        if self.went(&path) {
            return;
        }
        let entity = self.ledger.find(&path);
        let queue = entity.and_then(|entity| self.ledger.queues.get_mut(&entity));
        if let Some(Kind::Topic(topic)) = queue.map(|queue| &mut queue.kind) {
            topic.missing += 1;
            if topic.missing > topic.unwanted.len() {
                self.fail(format!("S-180: message {number} was accepted at {path} and published to nobody"));
            }
        }
    }
}

impl Original {
    fn of(present: Present, expires: LocalTime, has_session: bool, is_dead: bool) -> Original {
        Original {
            message: present.message,
            traits: present.traits,
            overlay: present.overlay,
            has_session,
            is_forwarded: false,
            is_dead,
            is_restated: false,
            length: present.length,
            expires,
            travelled: present.travelled,
        }
    }

    /// One of which only the traits matter.
    fn bare(traits: Traits) -> Original {
        Original {
            message: 0,
            traits,
            overlay: Overlay::default(),
            has_session: false,
            is_forwarded: false,
            is_dead: false,
            is_restated: false,
            length: 0,
            expires: LocalTime(0).after(Span::MAX),
            travelled: Travelled::default(),
        }
    }
}
