//! Forwarding as those see it who send, receive and administrate.

use super::*;
use crate::command::ReceiveMode::PeekLock;
use crate::command::{Incoming, Outcome};
use crate::effect::{Delivery, Effect, Notice};
use crate::ids::{MessageKey, Number};
use crate::manage::Task;
use crate::refusal::Refusal;
use crate::settings::{QueueSettings, Status};
use crate::testing::{World, message};
use crate::topic::fan_out::tests::{counts as topic_counts, subscribe, topic};
use crate::topic::rule::{Filter, Kind, Rule, Sql, Typed};
use crate::topic::settings::{SubscriptionSettings, TopicSettings};
use crate::topic::subject::tests::encoded;
use message::facts::MessageId;

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
            matches!(refused[..], [Effect::Notice(Notice::Detached { refusal: Refusal::NotAllowed(_), .. })]),
            "{refused:?}"
        );
    }
    let link = world.link();
    assert!(matches!(
        world.attach_receiver(link, "c", PeekLock)[..],
        [Effect::Notice(Notice::Attached { .. })]
    ));
    world.update("c", to("b")).unwrap();
    let is_sent_away =
        |effect: &Effect| matches!(effect, Effect::Notice(Notice::Detached { link: l, .. }) if *l == link);
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
    let mut world = World::with_queue("failed");
    world.create("q", QueueSettings { max_delivery_count: 1, ..letters_to("failed") });
    world.send_committed("q", 1);
    let token = world.receive("q", PeekLock, 1)[0].token;
    world.settle_tokens("q", &[token], Outcome::Abandon(None)).unwrap();
    world.commit();
    assert_eq!((counts(&world, "q"), counts(&world, "failed")), ((0, 0), (1, 0)));
    world.commit();
    let taken = world.receive("failed", PeekLock, 1);
    assert_eq!(property(&taken[0], "DeadLetterReason").unwrap(), "MaxDeliveryCountExceeded");
    assert_eq!(source_of(&taken[0]).unwrap(), "q");
    assert_eq!((taken[0].number, taken[0].count), (Number(1), 0));
}

#[test]
fn dead_letters_with_long_words_are_forwarded_in_slices_that_an_append_holds() {
    // S-112
    let mut world = World::with_queue("failed");
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
    world.update("q", letters_to("failed")).unwrap();
    assert!(counts(&world, "q").1 > 0, "not all at once");
    while world.is_due() {
        world.tick();
    }
    assert_eq!((counts(&world, "q"), counts(&world, "failed")), ((0, 0), (3_000, 0)));
}

#[test]
fn dead_letters_wait_for_a_destination_that_is_closed() {
    let mut world = World::with_queue("failed");
    world.create("q", letters_to("failed"));
    let disabled = QueueSettings { status: Status::Disabled, ..QueueSettings::default() };
    world.update("failed", disabled).unwrap();
    world.send_committed("q", 2);
    let tokens: Vec<_> = world.receive("q", PeekLock, 2).iter().map(|each| each.token).collect();
    world.settle_tokens("q", &tokens, Outcome::DeadLetter(None)).unwrap();
    world.commit();
    assert_eq!(counts(&world, "q"), (0, 2));
    world.update("failed", QueueSettings::default()).unwrap();
    assert!(!world.is_due());
    world.pass(FORWARD_RETRY);
    assert!(world.is_due());
    world.tick();
    assert_eq!((counts(&world, "q"), counts(&world, "failed")), ((0, 0), (2, 0)));
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
    let later = Incoming { scheduled: world.local().after(Span::seconds(60)), ..message(1) };
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

/// A message of this id, as its sender wrote it.
fn known(id: &str) -> Vec<u8> {
    encoded(&[("MessageId", id)], &[])
}

fn send_known(world: &mut World, path: &str, id: &str) {
    let link = world.sender(path);
    let facts = Incoming { id: MessageKey::of(Some(MessageId::String(id))), ..message(0) };
    world.send_bytes(link, &[&known(id)], facts);
    (0..3).for_each(|_| drop(world.commit()));
}

fn detecting() -> QueueSettings {
    QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() }
}

#[test]
fn a_destination_looks_for_duplicates_in_what_is_forwarded_to_it() {
    // S-160, S-164, S-177
    let mut world = World::new();
    world.create("b", detecting());
    world.create("a", to("b"));
    send_known(&mut world, "a", "m");
    assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (1, 0)));
    for path in ["a", "b"] {
        send_known(&mut world, path, "m");
        assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (1, 0)), "sent to {path} again");
    }
    send_known(&mut world, "b", "n");
    world.restart();
    send_known(&mut world, "a", "n");
    send_known(&mut world, "a", "o");
    assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (3, 0)));
    assert_eq!(world.queue("b").next, Sequence(4), "what is dropped takes no number");
    world.pass(QueueSettings::default().duplicate_window);
    send_known(&mut world, "a", "m");
    assert_eq!(counts(&world, "b"), (4, 0));
}

#[test]
fn a_topic_looks_for_duplicates_in_what_is_forwarded_to_it() {
    // S-160, S-163, S-177
    let mut world = World::new();
    topic(&mut world, TopicSettings { requires_duplicate_detection: true, ..TopicSettings::default() });
    subscribe(&mut world, "s", SubscriptionSettings::default(), None);
    world.create("a", to("t"));
    for id in ["m", "m", "n"] {
        send_known(&mut world, "a", id);
    }
    assert_eq!((topic_counts(&mut world, "s"), counts(&world, "a")), ((2, 0), (0, 0)));
}

#[test]
fn a_ring_ends_where_a_queue_that_looks_for_duplicates_has_seen_the_message() {
    // S-160, S-173: a message that comes back is one that has come before.
    let mut world = World::new();
    world.create("b", QueueSettings::default());
    world.create("a", QueueSettings { forward_to: Some("b".into()), ..detecting() });
    world.update("b", to("a")).unwrap();
    send_known(&mut world, "a", "m");
    assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (0, 0)));
    // Without a look for duplicates the hops end the journey, and the message is kept.
    let mut world = World::with_queue("b");
    world.create("a", to("b"));
    world.update("b", to("a")).unwrap();
    send_known(&mut world, "a", "m");
    assert_eq!((counts(&world, "a").1, counts(&world, "b").1), (1, 0));
}

#[test]
fn a_dead_letter_that_its_destination_has_seen_is_dropped() {
    // S-112, S-160
    let mut world = World::new();
    world.create("failed", detecting());
    world.create("q", QueueSettings { max_delivery_count: 1, ..letters_to("failed") });
    for _ in 0..2 {
        send_known(&mut world, "q", "m");
        let token = world.receive("q", PeekLock, 1)[0].token;
        world.settle_tokens("q", &[token], Outcome::Abandon(None)).unwrap();
        (0..3).for_each(|_| drop(world.commit()));
    }
    assert_eq!((counts(&world, "q"), counts(&world, "failed")), ((0, 0), (1, 0)));
}

#[test]
fn a_message_that_cannot_be_read_is_not_forwarded_past_those_who_look_for_duplicates() {
    let mut world = World::new();
    world.create("b", detecting());
    world.create("a", to("b"));
    world.unreadable.insert(Sequence(1));
    send_known(&mut world, "a", "m");
    send_known(&mut world, "a", "n");
    assert_eq!((counts(&world, "a"), counts(&world, "b")), ((1, 0), (1, 0)));
    world.unreadable.clear();
    world.pass(Span::minutes(1));
    world.tick();
    (0..3).for_each(|_| drop(world.commit()));
    assert_eq!((counts(&world, "a"), counts(&world, "b")), ((0, 0), (2, 0)));
}

/// A topic `t` with a subscription `s` that changes what it gets and forwards it.
fn changing(world: &mut World, action: &str, target: &str) {
    topic(world, TopicSettings::default());
    let when = Typed { kind: Kind::DateTime, text: "1970-01-01T01:00:00Z".into() };
    let action = Some(Sql { expression: action.into(), parameters: vec![("when".into(), when)] });
    let rule = Rule { name: "r".into(), filter: Filter::True, action };
    let settings =
        SubscriptionSettings { forward_to: Some(target.into()), ..SubscriptionSettings::default() };
    let (topic, name) = ("t".into(), "s".into());
    world.manage(Task::CreateSubscription { topic, name, settings, rule: Some(rule) }).unwrap();
}

/// One o'clock.
const WHEN: LocalTime = LocalTime(3_600_000);

#[test]
fn an_id_that_an_action_has_set_counts_in_the_destination() {
    // S-163, S-177, S-186
    let mut world = World::new();
    world.create("b", detecting());
    changing(&mut world, "SET sys.MessageId = 'same'", "b");
    for id in ["one", "two"] {
        send_known(&mut world, "t", id);
    }
    send_known(&mut world, "b", "one");
    assert_eq!((topic_counts(&mut world, "s"), counts(&world, "b")), ((0, 0), (2, 0)));
}

#[test]
fn a_time_that_an_action_has_set_counts_in_the_destination() {
    // S-44, S-49, S-177, S-186
    let mut world = World::new();
    world.create("b", QueueSettings::default());
    changing(&mut world, "SET sys.ScheduledEnqueueTimeUtc = @when", "b");
    let link = world.sender("t");
    let facts = Incoming { time_to_live: Span::seconds(90), ..message(0) };
    world.send_bytes(link, &[&known("m")], facts);
    (0..3).for_each(|_| drop(world.commit()));
    assert_eq!((topic_counts(&mut world, "s"), world.queue("b").counts.scheduled), ((0, 0), 1));
    world.restart();
    assert!(world.local() < WHEN && world.receive("b", PeekLock, 1).is_empty());
    world.pass(Span((WHEN.0 - world.local().0) as u64));
    world.tick();
    world.commit();
    let taken = world.receive("b", PeekLock, 9);
    let [only] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((only.number, only.first, only.enqueued), (Number(2), Some(Number(1)), WHEN));
    assert_eq!(only.expires, WHEN.after(Span::seconds(90)), "its life begins then");
}

#[test]
fn a_time_that_an_action_has_set_counts_in_a_topic_whose_rules_are_asked_then() {
    // S-49, S-177
    let mut world = World::new();
    let (path, settings, access) = ("later".into(), TopicSettings::default(), Vec::new());
    world.manage(Task::CreateTopic { path, settings, access }).unwrap();
    changing(&mut world, "SET sys.ScheduledEnqueueTimeUtc = @when; SET color = 'red'", "later");
    send_known(&mut world, "t", "m");
    let filter = Filter::Sql(Sql { expression: "color = 'red'".into(), parameters: Vec::new() });
    let rule = Some(Rule { name: "r".into(), filter, action: None });
    let (topic, name, settings) = ("later".into(), "red".into(), SubscriptionSettings::default());
    world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
    assert_eq!(world.queue("later").counts.scheduled, 1);
    world.pass(Span((WHEN.0 - world.local().0) as u64));
    (0..3).for_each(|_| drop(world.tick()));
    world.commit();
    let taken = world.receive("later/Subscriptions/red", PeekLock, 9);
    let [only] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!(property(only, "color").as_deref(), Some("red"));
    assert_eq!(only.extra.as_ref().unwrap().forwarded.unwrap().hops, 1);
}

#[test]
fn a_session_that_an_action_has_set_counts_in_the_destination() {
    // S-177, S-186
    let mut world = World::new();
    world.create("b", QueueSettings { requires_session: true, ..QueueSettings::default() });
    changing(&mut world, "SET sys.SessionId = 'of the action'", "b");
    send_known(&mut world, "t", "m");
    let queue = world.queue("b");
    assert_eq!(queue.session_of(Sequence(1)).map(|session| &**session), Some("of the action"));
}

#[test]
fn what_forwards_to_itself_ends_its_journey_as_a_dead_letter() {
    // K-24
    let detecting = QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() };
    for settings in [QueueSettings::default(), detecting] {
        let mut world = World::new();
        world.create("q", settings.clone());
        world.send_committed("q", 2);
        world.update("q", QueueSettings { forward_to: Some("Q".into()), ..settings }).unwrap();
        let link = world.sender("q");
        let named = Incoming { id: MessageKey([1, 7]), ..message(10) };
        assert_eq!(world.send(link, 0, &[named]), [Effect::Accepted { link, delivery: 0 }]);
        for _ in 0..50 {
            world.commit();
            if world.is_due() {
                world.tick();
            }
        }
        assert_eq!(counts(&world, "q"), (0, 3), "none is lost and none is there twice");
        let letters = world.receive("q/$DeadLetterQueue", PeekLock, 5);
        assert_eq!(letters.len(), 3);
        for letter in letters {
            let extra = letter.extra.as_ref().unwrap();
            assert_eq!(extra.forwarded.unwrap().hops, TRANSFER_HOPS);
        }
        world.check_whole_replay();
    }
}
