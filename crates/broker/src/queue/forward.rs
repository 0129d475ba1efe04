//! Auto-forwarding: what arrives in a queue that forwards is in its destination with the same decision (S-170). A message
//! moves in one record, so it is never in both queues and never in none, and it keeps its body, its properties and its
//! first number (S-36, S-177).
//!
//! What was in the queue before it forwarded, what comes back from a lock, and dead letters (S-112) are forwarded as they
//! become free, in slices, as if the destination were a receiver.

use super::dead_letter::with_reason;
use crate::Broker;
use crate::decision::{Context, Decision};
use crate::durable::Kind;
use crate::effect::Extra;
use crate::ids::{EntityId, Sequence, Source, SubQueue};
use crate::limits::{DEAD_LETTER_HOPS, FORWARD_RETRY, TRANSFER_HOPS};
use crate::manage::forward_path;
use crate::planted::{Bug, is_planted};
use crate::queue::index::Reason;
use crate::record::Record;
use crate::timers::Chore;
use crate::topic::read::Known;
use crate::topic::subject::Front;
use crate::volatile::Touch;
use message::overlay::Overlay;

/// What may become of a message that is to be forwarded.
enum Way {
    To(EntityId),
    /// A topic, whose rules decide.
    Topic(EntityId),
    /// The destination cannot take it (S-174).
    Closed,
    /// It has come too far (S-173).
    TooFar,
    /// The destination requires a session, and nobody knows of one.
    NoSession(EntityId),
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
enum Moved {
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
        context: Context,
        decision: &mut Decision,
    ) -> bool {
        let source = Source::main(entity);
        // What goes to a topic may become many, which may be forwarded in turn: it waits for a slice of its own.
        self.forwards(source)
            && (self.queue_of(source).counts.active == 1 || is_planted(Bug::Overtaking))
            && !matches!(self.way(source, sequence), Way::Topic(_))
            && self.forward(source, sequence, context, decision) == Moved::Gone
    }

    /// Forwards what is free, `most` messages at the most, and says how many it were (at least one).
    pub(super) fn forward_free(
        &mut self,
        source: Source,
        most: usize,
        context: Context,
        decision: &mut Decision,
    ) -> usize {
        let (mut left, mut is_over) = (most, false);
        while !is_over && let Some(sequence) = self.next_free(source, &mut left, context, decision) {
            match self.forward(source, sequence, context, decision) {
                Moved::Gone => self.volatile.apply(Touch::Taken { source, sequence }),
                Moved::Copied(copies) => {
                    self.volatile.apply(Touch::Taken { source, sequence });
                    left = left.saturating_sub(copies).max(1);
                }
                Moved::Unread => {
                    self.doubt_next(source, left, true, decision);
                    return (most - left).max(1);
                }
                Moved::Withheld => {}
                Moved::Rests => self.volatile.apply(Touch::Rested { source, sequence }),
                Moved::Waits => {
                    let (entity, at) = (source.entity, context.now.after(FORWARD_RETRY));
                    self.volatile.apply(Touch::Armed { entity, chore: Chore::Forward, at });
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
        self.volatile.apply(Touch::Armed { entity, chore: Chore::Forward, at: crate::Time::NEVER });
        self.volatile.stir(Source::main(entity));
        self.volatile.stir(Source::dead_letter(entity));
        1
    }

    fn forward(
        &mut self,
        source: Source,
        sequence: Sequence,
        context: Context,
        decision: &mut Decision,
    ) -> Moved {
        match (self.way(source, sequence), source.sub) {
            (Way::To(target), _) => {
                self.transfer(source, sequence, target, context, decision);
                Moved::Gone
            }
            (Way::Topic(topic), _) => self.forward_to_topic(topic, source, sequence, context, decision),
            (Way::Closed, SubQueue::DeadLetter) => Moved::Waits,
            (Way::NoSession(target), _) => {
                self.forward_to_session(target, source, sequence, context, decision)
            }
            (Way::TooFar, SubQueue::DeadLetter) => Moved::Rests,
            (way, _) => {
                let reason = match way {
                    Way::TooFar => Reason::MaxTransferHops,
                    _ => Reason::NotForwarded,
                };
                self.dead_letter(source.entity, sequence, reason, false, None, context, decision);
                Moved::Gone
            }
        }
    }

    fn way(&self, source: Source, sequence: Sequence) -> Way {
        let queue = self.queue_of(source);
        let hops = queue.extras.get(&sequence).and_then(|extra| extra.forwarded).map_or(0, |from| from.hops);
        let most = if source.sub == SubQueue::Main { TRANSFER_HOPS } else { DEAD_LETTER_HOPS };
        let most = most + u8::from(is_planted(Bug::Hops));
        if hops >= most {
            return Way::TooFar;
        }
        let target = self.forward_target(source).map(forward_path).unwrap_or_default();
        match self.durable.find(queue.namespace, target) {
            None => Way::Closed,
            Some(entity) => match self.durable.queue(entity) {
                None => Way::Closed,
                Some(target) if !target.settings.status.may_send() => Way::Closed,
                Some(target)
                    if target.held_bytes()
                        >= self.tier_of(target.namespace).queue_bytes(&target.settings) =>
                {
                    Way::Closed
                }
                Some(target) if target.kind == Kind::Topic => Way::Topic(entity),
                Some(target) if target.settings.requires_session && queue.session_of(sequence).is_none() => {
                    Way::NoSession(entity)
                }
                Some(_) => Way::To(entity),
            },
        }
    }

    fn transfer(
        &mut self,
        source: Source,
        sequence: Sequence,
        target: EntityId,
        context: Context,
        decision: &mut Decision,
    ) {
        let (own, overlay) = self.taken_along(source, sequence);
        let expires = self.expiry(target, crate::Span::MAX, context.now).min(own);
        let number = self.durable.queue(target).expect("it was found").next;
        let record = Record::Forwarded { source, sequence, target, number, expires, overlay };
        self.write(record, context, decision);
        self.volatile.apply(Touch::Accessed { entity: target, time: context.now });
        self.arrive(target, number, context, decision);
    }
}

impl Broker {
    /// When a message that is forwarded expires at the latest, and what changes with it. What expires in the source expires
    /// in the destination, which may be stricter; dead letters begin anew (S-64).
    fn taken_along(&self, source: Source, sequence: Sequence) -> (crate::Time, Option<Box<Overlay>>) {
        let queue = self.queue_of(source);
        let slot = queue.part(source.sub).and_then(|part| part.get(sequence)).expect("it is free");
        match source.sub {
            SubQueue::Main => (slot.expires, None),
            _ => {
                let extra = with_reason(slot, queue.extras.get(&sequence));
                (crate::Time::NEVER, dead_letter_overlay(&queue.path, extra.as_deref()))
            }
        }
    }

    /// Forwards a message whose session is not remembered: it came before its queue forwarded, or it has none. Its
    /// properties say which.
    fn forward_to_session(
        &mut self,
        target: EntityId,
        source: Source,
        sequence: Sequence,
        context: Context,
        decision: &mut Decision,
    ) -> Moved {
        let entity = source.entity;
        let front = match self.volatile.take_front(source, sequence) {
            None => return Moved::Unread,
            Some(Some(front)) => front,
            Some(None) => {
                self.withhold(source, sequence, context);
                return Moved::Withheld;
            }
        };
        let extra = self.queue_of(source).extras.get(&sequence);
        let overlay = extra.and_then(|extra| extra.overlay.as_ref());
        match Front::of(&front).and_then(|front| front.session(overlay)) {
            Some(session) => {
                self.write(Record::InSession { entity, sequence, session }, context, decision);
                self.transfer(source, sequence, target, context, decision);
                Moved::Gone
            }
            None if source.sub == SubQueue::DeadLetter => Moved::Rests,
            None => {
                let reason = Reason::SessionMissing;
                self.dead_letter(entity, sequence, reason, false, None, context, decision);
                Moved::Gone
            }
        }
    }

    fn forward_to_topic(
        &mut self,
        topic: EntityId,
        source: Source,
        sequence: Sequence,
        context: Context,
        decision: &mut Decision,
    ) -> Moved {
        let front = match self.front_of(topic, source, sequence) {
            Known::NotNeeded => None,
            Known::Read(front) => Some(front),
            Known::Unread => return Moved::Unread,
            // It comes up again when that lock ends, like any delivery that failed.
            Known::Damaged => {
                self.withhold(source, sequence, context);
                return Moved::Withheld;
            }
        };
        let along = self.taken_along(source, sequence);
        let at = (source, sequence);
        let copies = self.publish_forwarded(topic, at, along, front.as_deref(), context, decision);
        self.volatile.apply(Touch::Accessed { entity: topic, time: context.now });
        Moved::Copied(copies)
    }
}

/// What a dead letter takes along: why it is one, in words, and where it became one (S-112).
fn dead_letter_overlay(path: &str, extra: Option<&Extra>) -> Option<Box<Overlay>> {
    let mut overlay = extra.and_then(|extra| extra.overlay.clone()).unwrap_or_default();
    // A path is far below the limit; where the clients' own changes leave no room for it, they win.
    let _ = overlay.set_dead_letter_source(path);
    Some(Box::new(overlay))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Outcome};
    use crate::effect::{Delivery, Effect};
    use crate::ids::Number;
    use crate::refusal::Refusal;
    use crate::settings::{QueueSettings, Status};
    use crate::testing::{World, message};
    use crate::time::Span;
    use message::overlay::Change;
    use message::system::SystemProperty;

    fn to(target: &str) -> QueueSettings {
        QueueSettings { forward_to: Some(target.into()), ..QueueSettings::default() }
    }

    fn letters_to(target: &str) -> QueueSettings {
        QueueSettings { forward_dead_letters_to: Some(target.into()), ..QueueSettings::default() }
    }

    /// `a` forwards to `b`.
    fn chained() -> World {
        let mut world = World::with_queue("b");
        world.create("a", to("sb://host/B"));
        world
    }

    fn counts(world: &World, path: &str) -> (u64, u64) {
        let counts = world.queue(path).counts;
        (counts.active, counts.dead_letter)
    }

    fn property(delivery: &Delivery, name: &str) -> Option<String> {
        match delivery.extra.as_ref()?.overlay.as_ref()?.application(name)? {
            Change::Set(value) => message::Value::decode(value).unwrap().as_str().map(str::to_owned),
            Change::Removed => None,
        }
    }

    fn source_of(delivery: &Delivery) -> Option<String> {
        match delivery.extra.as_ref()?.overlay.as_ref()?.system(SystemProperty::DeadLetterSource)? {
            Change::Set(value) => message::Value::decode(value).unwrap().as_str().map(str::to_owned),
            Change::Removed => None,
        }
    }

    #[test]
    fn what_is_sent_to_a_queue_that_forwards_is_in_its_destination_with_one_decision() {
        // S-36, S-170, S-175, S-177
        let mut world = chained();
        world.send_committed("b", 2);
        let link = world.sender("a");
        assert_eq!(world.send(link, 0, &[message(1), message(2)]), [Effect::Accepted { link, delivery: 0 }]);
        assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (4, 0)));
        assert_eq!((world.queue("a").bytes, world.queue("b").bytes), (0, 23));
        assert_eq!(world.receive("b", PeekLock, 2).len(), 2, "what is not committed is not handed out");
        world.commit();
        let taken = world.receive("b", PeekLock, 5);
        let seen: Vec<_> = taken
            .iter()
            .map(|each| (each.number.0, each.length, each.extra.as_ref().unwrap().forwarded.unwrap()))
            .collect();
        let from = |number| crate::Forwarded { number: Number(number), hops: 1 };
        assert_eq!(seen, [(3, 1, from(1)), (4, 2, from(2))]);
    }

    #[test]
    fn a_crash_finds_a_forwarded_message_once() {
        // S-170
        let mut world = chained();
        world.send_committed("a", 3);
        for count in 0..=world.records.len() {
            let durable = world.replayed(count);
            let total: u64 = durable.queues().map(|(_, queue)| queue.counts.total()).sum();
            let sent = world.records[..count].iter().filter(|r| matches!(r, Record::Enqueued { .. })).count();
            assert_eq!(total, sent as u64);
        }
        world.restart();
        assert_eq!(counts(&world, "b"), (3, 0));
    }

    #[test]
    fn nobody_receives_from_a_queue_that_forwards() {
        // S-172
        let mut world = chained();
        world.create("c", letters_to("b"));
        for path in ["a", "c/$DeadLetterQueue"] {
            let link = world.link();
            let refused = world.attach_receiver(link, path, PeekLock);
            assert!(
                matches!(refused[..], [Effect::Detached { refusal: Refusal::NotAllowed(_), .. }]),
                "{refused:?}"
            );
        }
        let link = world.link();
        assert!(matches!(world.attach_receiver(link, "c", PeekLock)[..], [Effect::Attached { .. }]));
        world.update("c", to("b")).unwrap();
        let is_sent_away = |effect: &Effect| matches!(effect, Effect::Detached { link: l, .. } if *l == link);
        assert!(world.take_effects().iter().any(is_sent_away));
    }

    #[test]
    fn a_message_takes_four_hops_and_then_it_is_a_dead_letter() {
        // S-109, S-173
        let mut world = World::with_queue("q6");
        (1..6).rev().for_each(|n| world.create(&format!("q{n}"), to(&format!("q{}", n + 1))));
        world.send_committed("q2", 1);
        assert_eq!(counts(&world, "q6"), (1, 0), "four hops");
        world.send_committed("q1", 1);
        assert_eq!((counts(&world, "q6"), counts(&world, "q5")), ((1, 0), (0, 1)));
        let dead = world.receive("q5/$deadletterqueue", PeekLock, 1);
        assert_eq!(property(&dead[0], "DeadLetterReason").unwrap(), "MaxTransferHopCountExceeded");
        assert_eq!(
            property(&dead[0], "DeadLetterErrorDescription").unwrap(),
            "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to 4."
        );
    }

    #[test]
    fn two_queues_that_forward_to_each_other_come_to_an_end() {
        // S-173
        let mut world = World::with_queue("a");
        world.create("b", QueueSettings { forward_dead_letters_to: Some("a".into()), ..to("a") });
        world.update("a", QueueSettings { forward_dead_letters_to: Some("b".into()), ..to("b") }).unwrap();
        world.send_committed("a", 1);
        for _ in 0..50 {
            world.commit();
            if world.is_due() {
                world.tick();
            }
        }
        let (a, b) = (counts(&world, "a"), counts(&world, "b"));
        assert_eq!((a.0 + b.0, a.1 + b.1), (0, 1), "it rests as a dead letter");
        assert!(!world.is_due());
        let path = if a.1 == 1 { "a" } else { "b" };
        world.update(path, QueueSettings::default()).unwrap();
        assert_eq!(world.receive(&format!("{path}/$deadletterqueue"), PeekLock, 1).len(), 1);
    }

    #[test]
    fn what_the_destination_cannot_take_is_a_dead_letter_of_the_source() {
        // S-174
        let disabled = QueueSettings { status: Status::SendDisabled, ..QueueSettings::default() };
        let full = QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() };
        for settings in [disabled, full] {
            let mut world = World::new();
            world.create("b", QueueSettings { status: Status::Active, ..settings.clone() });
            world.create("a", to("b"));
            let link = world.sender("b");
            world.send(link, 0, &[message(1_048_576)]);
            world.update("b", settings).unwrap();
            world.send_committed("a", 1);
            assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 1), (1, 0)));
            let dead = world.receive("a/$DeadLetterQueue", PeekLock, 1);
            assert_eq!(property(&dead[0], "DeadLetterReason").unwrap(), "ForwardingFailed");
        }
        let mut world = chained();
        world.delete("b");
        world.send_committed("a", 1);
        assert_eq!(counts(&world, "a"), (0, 1));
    }

    #[test]
    fn dead_letters_are_forwarded_with_their_reason_and_where_they_became_such() {
        // S-112
        let mut world = World::with_queue("graves");
        world.create("q", QueueSettings { max_delivery_count: 1, ..letters_to("graves") });
        world.send_committed("q", 1);
        let token = world.receive("q", PeekLock, 1)[0].token;
        world.settle_tokens("q", &[token], Outcome::Abandon(None)).unwrap();
        world.commit();
        assert_eq!((counts(&world, "q"), counts(&world, "graves")), ((0, 0), (1, 0)));
        world.commit();
        let taken = world.receive("graves", PeekLock, 1);
        assert_eq!(property(&taken[0], "DeadLetterReason").unwrap(), "MaxDeliveryCountExceeded");
        assert_eq!(source_of(&taken[0]).unwrap(), "q");
        assert_eq!((taken[0].number, taken[0].count), (Number(1), 0));
    }

    #[test]
    fn dead_letters_with_long_words_are_forwarded_in_slices_that_an_append_holds() {
        // S-112
        let mut world = World::with_queue("graves");
        world.create("q", QueueSettings::default());
        world.send_committed("q", 3_000);
        let (entity, mut overlay) = (EntityId(1), Overlay::default());
        overlay.set_dead_letter(Some("Failed"), Some(&"at line 1 ".repeat(400))).unwrap();
        for sequence in (1..=3_000).map(Sequence) {
            let (reason, overlay) = (Reason::Client, Some(Box::new(overlay.clone())));
            let record = Record::DeadLettered { entity, sequence, reason, is_failure: false, overlay };
            world.found(record);
        }
        world.restart();
        // What a decision may take is looked at with each.
        world.update("q", letters_to("graves")).unwrap();
        assert!(counts(&world, "q").1 > 0, "not all at once");
        while world.is_due() {
            world.tick();
        }
        assert_eq!((counts(&world, "q"), counts(&world, "graves")), ((0, 0), (3_000, 0)));
    }

    #[test]
    fn dead_letters_wait_for_a_destination_that_is_closed() {
        let mut world = World::with_queue("graves");
        world.create("q", letters_to("graves"));
        let disabled = QueueSettings { status: Status::Disabled, ..QueueSettings::default() };
        world.update("graves", disabled).unwrap();
        world.send_committed("q", 2);
        let tokens: Vec<_> = world.receive("q", PeekLock, 2).iter().map(|each| each.token).collect();
        world.settle_tokens("q", &tokens, Outcome::DeadLetter(None)).unwrap();
        world.commit();
        assert_eq!(counts(&world, "q"), (0, 2));
        world.update("graves", QueueSettings::default()).unwrap();
        assert!(!world.is_due());
        world.pass(FORWARD_RETRY);
        assert!(world.is_due());
        world.tick();
        assert_eq!((counts(&world, "q"), counts(&world, "graves")), ((0, 0), (2, 0)));
    }

    #[test]
    fn what_was_there_before_is_forwarded_in_slices_and_what_is_locked_when_it_is_free() {
        // S-170
        let mut world = World::with_queue("b");
        world.create("a", QueueSettings::default());
        (0..2).for_each(|_| world.send_committed("a", 3_000));
        let token = world.receive("a", PeekLock, 1)[0].token;
        world.update("a", to("b")).unwrap();
        let moved = counts(&world, "b").0;
        assert!(0 < moved && moved < 5_999, "{moved} in one go");
        while world.is_due() {
            world.tick();
        }
        assert_eq!((counts(&world, "a"), counts(&world, "b")), ((1, 0), (5_999, 0)));
        world.settle_tokens("a", &[token], Outcome::Abandon(None)).unwrap();
        world.commit();
        assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (6_000, 0)));
    }

    #[test]
    fn what_arrives_does_not_overtake_what_was_sent_before_the_queue_forwarded() {
        // S-175
        let mut world = World::with_queue("b");
        world.create("a", QueueSettings::default());
        let link = world.sender("a");
        world.send(link, 0, &[message(1), message(2)]);
        world.update("a", to("b")).unwrap();
        world.send(link, 1, &[message(3)]);
        world.commit();
        let arrived: Vec<_> = world.queue("b").index.iter().map(|(_, slot)| slot.length).collect();
        assert_eq!(arrived, [1, 2, 3]);
    }

    #[test]
    fn a_start_goes_on_with_what_was_left() {
        // S-170
        let mut world = World::with_queue("b");
        world.create("a", QueueSettings::default());
        world.send_committed("a", 4_500);
        world.send_committed("a", 4_500);
        world.update("a", to("b")).unwrap();
        assert!(counts(&world, "a").0 > 0);
        world.restart();
        while world.is_due() {
            world.tick();
        }
        assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (9_000, 0)));
    }

    #[test]
    fn a_scheduled_message_is_forwarded_when_its_time_comes() {
        // S-44, S-170
        let mut world = chained();
        let later = Incoming { scheduled: world.now.after(Span::seconds(60)), ..message(1) };
        world.schedule("a", &[later]).unwrap();
        assert_eq!(world.queue("a").counts.scheduled, 1);
        world.pass(Span::seconds(60));
        world.tick();
        assert_eq!((world.queue("a").counts.total(), counts(&world, "b")), (0, (1, 0)));
    }

    #[test]
    fn the_stricter_time_to_live_of_both_queues_holds() {
        let mut world = World::new();
        let mortal =
            |seconds, settings| QueueSettings { default_time_to_live: Span::seconds(seconds), ..settings };
        world.create("b", mortal(20, QueueSettings::default()));
        world.create("a", mortal(10, to("b")));
        world.create("c", mortal(30, to("b")));
        world.send_committed("a", 1);
        world.send_committed("c", 1);
        let lives: Vec<_> =
            world.queue("b").index.iter().map(|(_, slot)| slot.expires.0 - slot.enqueued.0).collect();
        assert_eq!(lives, [10_000, 20_000]);
    }
}
