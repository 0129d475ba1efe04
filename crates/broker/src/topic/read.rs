//! Messages that are read before they are published: scheduled ones whose time has come (S-49), and forwarded ones. Rules
//! look at properties, and those are on disk.
//!
//! The broker asks for them as it asks for messages that are to be removed, a slice at a time, and goes on when they were read
//! ([`Broker::contents_read`]). What must always hold: nothing is published by rules that were not held against the message, and
//! what cannot be read stays where it is.

use crate::Broker;
use crate::decision::{Context, Decision, LocalContext, LocalDecision};
use crate::ids::{EntityId, Sequence, Source};
use crate::limits::{CHECK_BYTES, CHECK_MESSAGES, FORWARD_RETRY};
use crate::queue::read_request::{Fronts, Read, ReadRequest};
use crate::time::{LocalTime, Span};
use crate::timers::EntityTimer;

/// What is known of the front of a message.
pub(crate) enum Known {
    /// No rule asks for it.
    NotNeeded,
    Read(Read),
    Damaged,
    /// It has to be read first.
    Unread,
}

impl Broker {
    /// What a message of `source` has in front of its body, before it is published at `topic`.
    pub(crate) fn front_of(&mut self, topic: EntityId, source: Source, sequence: Sequence) -> Known {
        if !self.wants_front(topic) {
            return Known::NotNeeded;
        }
        match self.volatile.take_front(source, sequence) {
            Some(Some(front)) => Known::Read(front),
            Some(None) => Known::Damaged,
            None => Known::Unread,
        }
    }

    /// Asks for the messages that are due at a topic, in its turn, unless some are being read already. Those that are not on disk
    /// yet are asked for a moment later.
    pub(crate) fn ask_for_due(&mut self, topic: EntityId, decision: &mut LocalDecision<'_>) {
        let source = Source::main(topic);
        let is_checking = self.volatile.ready(source).is_checking;
        // Nobody else goes on while time is moved, so an advance waits for nobody.
        if !is_checking && !self.is_advancing() && !self.volatile.may_read(source) {
            return self.volatile.arm(topic, EntityTimer::Activate, LocalTime::NEVER);
        }
        let (queue, ready) = (self.queue_of(source), self.volatile.ready(source));
        let (mut again, mut is_uncommitted) = (LocalTime::NEVER, false);
        let (mut messages, mut bytes, mut held_bytes) = (Vec::new(), 0, 0);
        for (due, sequence) in &self.volatile.presence(topic).schedule {
            let slot = queue.index.get(*sequence).expect("what is scheduled is there");
            let is_enough = messages.len() >= CHECK_MESSAGES || bytes >= CHECK_BYTES;
            if *due > decision.now || is_enough || is_checking {
                break;
            }
            if *sequence > ready.committed || ready.unwritten.contains(sequence) {
                (again, is_uncommitted) = (decision.now.after(Span(1)), true);
                break;
            }
            messages.push((*sequence, queue.wanted_bodies(*sequence, slot)));
            bytes += u64::from(slot.length) + queue.overlay_bytes(*sequence);
            held_bytes += queue.wanted_bytes(*sequence, slot);
        }
        if !messages.is_empty() {
            (again, is_uncommitted) = (LocalTime::NEVER, false);
            decision.read_requests.push(ReadRequest { source, messages, wants_content: true });
            self.volatile.begin_read(source, held_bytes);
            self.wait_for_read(source);
        } else if is_checking {
            // Time does not pass over those that were asked for before it was moved.
            self.wait_for_read(source);
        } else {
            self.volatile.leave_reading(source);
        }
        // Time that is moved stands still meanwhile: each is published at its own.
        if is_uncommitted && self.wait_for_commit() {
            again = decision.now;
        }
        self.volatile.arm(topic, EntityTimer::Activate, again);
    }

    /// The messages of a [`ReadRequest`] that wants content were read; those that could not be have none.
    pub fn contents_read(
        &mut self,
        source: Source,
        fronts: Fronts,
        context: Context,
        decision: &mut Decision,
    ) {
        self.end_wait(source);
        if self.durable.queue(source.entity).is_none() {
            self.volatile.drop_read(source);
        } else if self.is_topic(source.entity) {
            self.volatile.end_read(source, fronts);
            self.arm_schedule(source.entity);
        } else {
            self.volatile.end_read(source, fronts);
            if !self.forwards(source) {
                self.volatile.leave_reading(source);
            }
            self.volatile.stir(source);
        }
        self.dispatch(context, decision);
    }

    /// What is scheduled and cannot be read is tried again later; after a start at once.
    pub(crate) fn postpone(&mut self, topic: EntityId, sequence: Sequence, context: LocalContext) {
        let due = context.now.after(FORWARD_RETRY);
        self.volatile.schedule(topic, due, sequence);
        self.volatile.arm(topic, EntityTimer::Activate, due);
    }
}

#[cfg(test)]
mod many_tests;

#[cfg(test)]
mod tests {
    use super::super::fan_out::tests::{A, counts, described, numbers, pair, topic};
    use super::super::routes::tests::{sql, world_of};
    use super::super::rule::Rule;
    use super::super::settings::{SubscriptionSettings, TopicSettings};
    use super::super::subject::tests::encoded;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Command, Incoming, Outcome};
    use crate::effect::{Answer, Effect, Notice};
    use crate::ids::{NamespaceId, Number, RequestId, Sequence};
    use crate::limits::FORWARD_RETRY;
    use crate::manage::Task;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;

    pub(super) fn only_red() -> World {
        let rule = Rule { name: "r".into(), filter: sql("color = 'red'"), action: None };
        world_of(vec![("red", vec![rule]), ("all", vec![])])
    }

    fn colored(color: &str) -> Vec<u8> {
        encoded(&[], &[("color", color.into())])
    }

    fn schedule(world: &mut World, bodies: &[&[u8]], later: Span) {
        let facts = Incoming { scheduled: world.local().after(later), ..message(0) };
        let (request, namespace, path) = (RequestId::default(), NamespaceId(0), "t".into());
        world.put_bytes(bodies, facts, |messages, sessions| Command::Schedule {
            request,
            namespace,
            path,
            messages,
            sessions,
        });
    }

    #[test]
    fn rules_are_held_against_a_scheduled_message_when_its_time_comes() {
        // S-49
        let mut world = only_red();
        schedule(&mut world, &[&colored("red"), &colored("blue")], Span::minutes(1));
        world.commit();
        let late = Rule { name: "r".into(), filter: sql("color = 'blue'"), action: None };
        let (topic, name, settings) = ("t".into(), "late".into(), SubscriptionSettings::default());
        world.manage(Task::CreateSubscription { topic, name, settings, rule: Some(late) }).unwrap();
        world.pass(Span::minutes(1));
        world.tick();
        world.tick();
        world.commit();
        assert_eq!((counts(&mut world, "red"), counts(&mut world, "all")), ((1, 0), (2, 0)));
        assert_eq!(counts(&mut world, "late"), (1, 0));
        assert_eq!(described(&mut world).counts.scheduled, 0);
    }

    #[test]
    fn a_copy_knows_whether_its_message_has_waited_for_its_time() {
        // K-8
        let mut world = only_red();
        schedule(&mut world, &[&colored("red")], Span::minutes(1));
        world.commit();
        world.pass(Span::minutes(1));
        world.tick();
        world.tick();
        let link = world.sender("t");
        world.send_bytes(link, &[&colored("red")], message(0));
        world.commit();
        let received = world.receive("t/Subscriptions/red", PeekLock, 9);
        let waited: Vec<bool> = received.iter().map(|delivery| delivery.was_scheduled).collect();
        assert_eq!(waited, [true, false]);
    }

    #[test]
    fn a_scheduled_message_that_cannot_be_read_waits_and_holds_nobody_up() {
        let mut world = only_red();
        schedule(&mut world, &[&colored("red"), &colored("red")], Span::minutes(1));
        world.commit();
        world.unreadable.insert(Sequence(1));
        world.pass(Span::minutes(1));
        (0..3).for_each(|_| drop(world.tick()));
        assert_eq!((counts(&mut world, "red"), described(&mut world).counts.scheduled), ((1, 0), 1));
        world.unreadable.clear();
        world.pass(FORWARD_RETRY);
        (0..3).for_each(|_| drop(world.tick()));
        assert_eq!((counts(&mut world, "red"), described(&mut world).counts.scheduled), ((2, 0), 0));
    }

    #[test]
    fn a_scheduled_message_that_cannot_be_read_can_be_cancelled() {
        // S-42
        let mut world = only_red();
        schedule(&mut world, &[&colored("red")], Span::minutes(1));
        world.commit();
        world.unreadable.insert(Sequence(1));
        world.pass(Span::minutes(1));
        (0..3).for_each(|_| drop(world.tick()));
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let (path, numbers) = ("t".into(), [Number(1)].into());
        let effects = world.command(Command::CancelScheduled { request, namespace, path, numbers }, &[]);
        assert!(matches!(effects[..], [Effect::Answered { answer: Ok(Answer::Cancelled), .. }]));
        world.unreadable.clear();
        world.pass(FORWARD_RETRY);
        (0..3).for_each(|_| drop(world.tick()));
        assert_eq!((counts(&mut world, "red"), described(&mut world).counts.scheduled), ((0, 0), 0));
    }

    #[test]
    fn what_is_due_before_it_is_on_disk_waits_for_the_disk() {
        let mut world = only_red();
        schedule(&mut world, &[&colored("red")], Span(5));
        world.pass(Span(5));
        world.tick();
        assert_eq!(counts(&mut world, "red"), (0, 0));
        world.commit();
        world.pass(Span(1));
        (0..2).for_each(|_| drop(world.tick()));
        assert_eq!(counts(&mut world, "red"), (1, 0));
    }

    #[test]
    fn a_moved_clock_publishes_each_message_at_its_own_time() {
        // S-49, with the test clock
        let mut world = only_red();
        let start = world.local();
        schedule(&mut world, &[&colored("red")], Span::minutes(1));
        schedule(&mut world, &[&colored("red")], Span::minutes(2));
        world.commit();
        let advanced = world.advance(0, Span::minutes(10), Span(1)).unwrap();
        assert_eq!(advanced.events.len(), 2);
        let times: Vec<_> =
            world.receive("t/Subscriptions/red", PeekLock, 9).iter().map(|each| each.enqueued).collect();
        assert_eq!(times, [start.after(Span::minutes(1)), start.after(Span::minutes(2))]);
    }

    #[test]
    fn a_copy_that_is_dead_lettered_for_its_rule_is_not_told_as_expired_at_the_topic() {
        // S-200, with the test clock
        let mut world = only_red();
        let bad = Rule { name: "bad".into(), filter: sql("1 / 0 = 1"), action: None };
        let (topic, name, settings) = ("t".into(), "bad".into(), SubscriptionSettings::default());
        world.manage(Task::CreateSubscription { topic, name, settings, rule: Some(bad) }).unwrap();
        schedule(&mut world, &[&colored("red")], Span::minutes(1));
        world.commit();
        let advanced = world.advance(0, Span::minutes(10), Span(1)).unwrap();
        assert_eq!(counts(&mut world, "bad"), (0, 1), "it is dead-lettered");
        let (scheduled, number) = (Number(1), Number(2));
        let told: Vec<_> = advanced.events.iter().map(|event| event.what).collect();
        assert_eq!(told, [crate::clock::Happening::MessageActivated { scheduled, number }]);
    }

    #[test]
    fn a_moved_clock_waits_for_messages_that_are_not_on_disk_yet() {
        // S-49: each is published at its own time, however long the disk takes.
        let mut world = only_red();
        let start = world.local();
        schedule(&mut world, &[&colored("red")], Span::minutes(1));
        let (request, namespace, by) = (RequestId::default(), NamespaceId(0), Span::minutes(10));
        world.command(Command::Advance { request, namespace, by }, &[]);
        for _ in 0..3 {
            assert_eq!(world.tick(), []);
            assert!(world.broker.is_waiting() && world.broker.is_awaited(world.position()));
        }
        world.commit();
        while world.broker.is_advancing() {
            world.tick();
        }
        world.commit();
        let taken = world.receive("t/Subscriptions/red", PeekLock, 9);
        assert_eq!(taken[0].enqueued, start.after(Span::minutes(1)));
    }

    pub(super) fn forwarding_to(world: &mut World, path: &str, target: &str) {
        let settings = QueueSettings { forward_to: Some(target.into()), ..QueueSettings::default() };
        world.create(path, settings);
    }

    #[test]
    fn a_queue_forwards_to_a_topic_whose_rules_decide() {
        // S-36, S-170, S-177
        let mut world = only_red();
        forwarding_to(&mut world, "in", "t");
        let link = world.sender("in");
        let bodies = [colored("red"), colored("blue")];
        world.send_bytes(link, &[&bodies[0], &bodies[1]], message(0));
        (0..3).for_each(|_| drop(world.commit()));
        assert_eq!((counts(&mut world, "red"), counts(&mut world, "all")), ((1, 0), (2, 0)));
        let all = world.receive("t/Subscriptions/all", PeekLock, 9);
        let told: Vec<_> = all.iter().map(|each| (each.number.0, each.first.unwrap().0)).collect();
        assert_eq!(told, [(1, 1), (2, 2)]);
        assert_eq!(all[0].extra.as_ref().unwrap().forwarded.unwrap().hops, 1);
        assert_eq!(world.queue("in").counts.total(), 0);
    }

    #[test]
    fn a_subscription_forwards_to_a_queue_and_the_first_number_is_that_of_the_topic() {
        // S-36, S-170, S-172, S-177
        let mut world = World::with_queue("out");
        topic(&mut world, TopicSettings::default());
        world.send_committed("t", 2);
        let settings =
            SubscriptionSettings { forward_to: Some("out".into()), ..SubscriptionSettings::default() };
        let (topic, name, rule) = ("t".into(), "a".into(), None);
        world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
        let link = world.sender("t");
        world.send(link, 0, &[message(1)]);
        assert_eq!(world.queue("out").counts.active, 1, "with the same decision");
        world.commit();
        let received = world.receive("out", PeekLock, 9);
        assert_eq!((received[0].number, received[0].first), (Number(1), Some(Number(3))));
        assert_eq!(described(&mut world).bytes, 0);
        let link = world.link();
        let refused = world.attach_receiver(link, A, PeekLock);
        assert!(matches!(refused[..], [Effect::Notice(Notice::Detached { .. })]));
    }

    #[test]
    fn what_goes_in_circles_ends_after_four_hops() {
        // S-109, S-173: each hop doubles what goes on.
        let mut world = pair();
        for name in ["a", "b"] {
            let settings =
                SubscriptionSettings { forward_to: Some("back".into()), ..SubscriptionSettings::default() };
            if name == "a" {
                forwarding_to(&mut world, "back", "t");
            }
            let (topic, name) = ("t".into(), name.into());
            world.manage(Task::UpdateSubscription { topic, name, settings }).unwrap();
        }
        let link = world.sender("t");
        world.send(link, 0, &[message(1)]);
        (0..9).for_each(|_| drop(world.commit()));
        let dead = (counts(&mut world, "a"), counts(&mut world, "b"));
        assert_eq!(dead, ((0, 4), (0, 4)));
        assert_eq!(world.queue("back").counts.total(), 0);
    }

    #[test]
    fn dead_letters_of_a_subscription_go_to_a_topic_with_their_reason() {
        // S-112
        let mut world = pair();
        topic_named(&mut world, "failed");
        let to = Some("failed".into());
        let settings =
            SubscriptionSettings { forward_dead_letters_to: to, ..SubscriptionSettings::default() };
        let (topic, name) = ("t".into(), "a".into());
        world.manage(Task::UpdateSubscription { topic, name, settings }).unwrap();
        world.send_committed("t", 1);
        let taken = world.receive(A, PeekLock, 1);
        world.settle_tokens(A, &[taken[0].token], Outcome::DeadLetter(None)).unwrap();
        (0..3).for_each(|_| drop(world.commit()));
        let dead = world.receive("failed/Subscriptions/s", PeekLock, 9);
        assert_eq!(dead.len(), 1);
        let overlay = dead[0].extra.as_ref().unwrap().overlay.as_ref().unwrap();
        let source = overlay.system(message::SystemProperty::DeadLetterSource);
        assert!(matches!(source, Some(message::Change::Set(_))));
    }

    fn topic_named(world: &mut World, path: &str) {
        let settings = TopicSettings::default();
        world.manage(Task::CreateTopic { path: path.into(), settings, access: Vec::new() }).unwrap();
        let (topic, name, settings) = (path.into(), "s".into(), SubscriptionSettings::default());
        world.manage(Task::CreateSubscription { topic, name, settings, rule: None }).unwrap();
    }

    #[test]
    fn a_topic_that_is_full_or_gone_sends_the_message_to_the_dead_letters_of_its_source() {
        // S-174
        let disabled = TopicSettings { status: crate::Status::Disabled, ..TopicSettings::default() };
        let close: [&dyn Fn(&mut World); 3] = [
            &|world| drop(world.delete("t")),
            &|world| {
                let (path, settings, access) = ("t".into(), disabled.clone(), Vec::new());
                world.manage(Task::UpdateTopic { path, settings, access }).unwrap();
            },
            &|world| {
                let full = 1_024 * 1_024 * 1_024;
                let link = world.sender("t");
                (world.is_checked, world.broker.tier) = (false, crate::Tier::Premium);
                while described(world).bytes < full {
                    world.send(link, 0, &[message(1_000_000); 1]);
                }
            },
        ];
        for close in close {
            let mut world = pair();
            forwarding_to(&mut world, "in", "t");
            close(&mut world);
            world.send_committed("in", 1);
            (0..2).for_each(|_| drop(world.commit()));
            let dead = world.receive("in/$DeadLetterQueue", PeekLock, 1);
            assert_eq!((dead.len(), world.queue("in").counts.active), (1, 0));
        }
    }

    #[test]
    fn a_message_that_cannot_be_read_is_withheld_and_the_others_go_on() {
        let mut world = only_red();
        forwarding_to(&mut world, "in", "t");
        world.unreadable.insert(Sequence(1));
        let link = world.sender("in");
        let red = colored("red");
        world.send_bytes(link, &[&red, &red], message(0));
        (0..3).for_each(|_| drop(world.commit()));
        assert_eq!((counts(&mut world, "red"), world.queue("in").counts.active), ((1, 0), 1));
        world.unreadable.clear();
        world.pass(Span::minutes(1));
        world.tick();
        (0..3).for_each(|_| drop(world.commit()));
        assert_eq!((counts(&mut world, "red"), world.queue("in").counts.active), ((2, 0), 0));
    }

    #[test]
    fn a_message_without_room_for_the_words_of_a_failure_is_a_dead_letter_without_them() {
        // S-200: its properties were changed up to their limit.
        let rule = Rule { name: "r".into(), filter: sql("1 / 0 = 1"), action: None };
        let mut world = world_of(vec![("a", vec![rule])]);
        world.create("in", QueueSettings::default());
        let (entity, link) = (world.broker.durable.find(NamespaceId(0), "in").unwrap(), world.sender("in"));
        world.send_bytes(link, &[&colored("red")], message(0));
        let mut overlay = message::overlay::Overlay::default();
        for (name, length) in [("a", 32_000), ("b", 32_000), ("c", 1_480)] {
            overlay.set(name, &message::Value::Binary(vec![7; length])).unwrap();
        }
        world.found(crate::Record::Returned { entity, sequence: Sequence(1), overlay: Some(overlay.into()) });
        world.restart();
        world
            .update("in", QueueSettings { forward_to: Some("t".into()), ..QueueSettings::default() })
            .unwrap();
        (0..3).for_each(|_| drop(world.commit()));
        assert_eq!(counts(&mut world, "a"), (0, 1));
    }

    #[test]
    fn what_is_in_a_queue_when_it_begins_to_forward_goes_too() {
        // S-170
        let mut world = pair();
        world.create("in", QueueSettings::default());
        world.send_committed("in", 3);
        world
            .update("in", QueueSettings { forward_to: Some("t".into()), ..QueueSettings::default() })
            .unwrap();
        (0..3).for_each(|_| drop(world.commit()));
        assert_eq!(numbers(&world.receive(A, PeekLock, 9)), [1, 2, 3]);
        assert!(matches!(world.describe("in"), Ok(Answer::Queue(queue)) if queue.counts.total() == 0));
    }
}
