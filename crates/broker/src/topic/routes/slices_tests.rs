//! Publishing what takes long: a delivery is accepted whole and at once, and what of it would hold up everybody is published in
//! slices, behind one another.

use super::super::fan_out::tests::{counts, described, subscribe, topic};
use super::super::settings::{SubscriptionSettings, TopicSettings};
use super::super::subject::tests::encoded;
use super::tests::{add, publish, rule, sql, world_of};
use crate::command::ReceiveMode::PeekLock;
use crate::effect::{Answer, Effect};
use crate::ids::{LinkId, NamespaceId, RequestId, TransactionId};
use crate::limits::{MESSAGE_STEPS, RESULT_STEPS, SLICE_STEPS};
use crate::testing::World;
use crate::time::{LocalTime, Span};
use crate::{Command, Incoming, Intake};
use message::Value;

/// Commits and ticks until everything is published, and says how many slices it took.
fn settle_down(world: &mut World) -> usize {
    for slices in 0..20_000 {
        world.commit();
        world.pass(Span(1));
        if !world.is_due() && described(world).counts.scheduled == 0 {
            return slices;
        }
        world.tick();
    }
    panic!("{} messages are never published", described(world).counts.scheduled);
}

/// The ids of what a subscription has, in its order.
fn ids(world: &mut World, name: &str) -> Vec<u64> {
    let deliveries = world.receive(&format!("t/Subscriptions/{name}"), PeekLock, 5_000);
    deliveries.iter().map(|delivery| u64::from(delivery.length)).collect()
}

/// A message that is known by its length.
fn known(length: usize) -> Vec<u8> {
    let padded =
        |bytes: usize| encoded(&[], &[("n", Value::Int(7)), ("pad", "x".repeat(bytes).as_str().into())]);
    // A longer text has a longer head.
    let surplus = padded(length).len() - length;
    let message = padded(length - surplus);
    assert_eq!(message.len(), length);
    message
}

#[test]
fn a_batch_of_465_messages_to_1500_rules_is_accepted_and_nobody_waits_for_it() {
    // S-16, W-29
    let mut world = World::unchecked(crate::Tier::Unlimited);
    topic(&mut world, TopicSettings::default());
    for nth in 0..1_500 {
        let filter =
            sql(&format!("n > {nth} AND pad LIKE '%x_x%' AND n + {nth} <> 3 OR n IN (900001, 900002)"));
        add(&mut world, &format!("s{nth}"), SubscriptionSettings::default(), vec![rule("r", filter, None)]);
    }
    let bodies: Vec<Vec<u8>> = (0..465).map(|nth| known(1_000 + nth)).collect();
    let bodies: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
    let link = world.sender("t");
    world.longest_slice = 0;
    let effects = world.send_bytes(link, &bodies, Incoming::new(Intake::default()));
    assert!(matches!(effects[..], [Effect::Accepted { .. }]), "{effects:?}");
    assert!(described(&mut world).counts.scheduled > 400, "most of it waits");
    let slices = settle_down(&mut world);
    assert!(slices > 10, "{slices}");
    let longest = world.longest_slice;
    assert!(longest <= 3 * MESSAGE_STEPS, "{longest} steps in one slice");
    // 0 to 6 are below 7.
    let all: Vec<u64> = (1_000..1_465).collect();
    assert_eq!((ids(&mut world, "s0"), ids(&mut world, "s6")), (all.clone(), all));
    assert_eq!(counts(&mut world, "s7"), (0, 0));
}

#[test]
fn a_delivery_that_becomes_more_copies_than_an_append_holds_is_accepted_whole() {
    // S-16, S-180
    let mut world = World::unchecked(crate::Tier::Unlimited);
    topic(&mut world, TopicSettings::default());
    let count = 400;
    for nth in 0..count {
        subscribe(&mut world, &format!("s{nth}"), SubscriptionSettings::default(), None);
    }
    let bytes = encoded(&[], &[]);
    let link = world.sender("t");
    let effects = world.send_bytes(link, &vec![&bytes[..]; 1_000], Incoming::new(Intake::default()));
    assert!(matches!(effects[..], [Effect::Accepted { .. }]));
    settle_down(&mut world);
    assert!(world.longest_slice <= SLICE_STEPS, "{}", world.longest_slice);
    for nth in [0, count - 1] {
        assert_eq!(counts(&mut world, &format!("s{nth}")), (1_000, 0));
    }
}

/// A topic with a rule that takes long, and one that takes all, whose broker puts off what follows the first message.
fn slow() -> (World, LinkId) {
    let mut world = world_of(vec![("all", vec![]), ("some", vec![rule("r", sql("n = 7 OR n = 8"), None)])]);
    world.broker.publish_steps = 1;
    let link = world.sender("t");
    (world, link)
}

#[test]
fn what_is_sent_behind_what_waits_does_not_overtake_it() {
    // S-30
    let (mut world, link) = slow();
    let now = Incoming::new(Intake::default());
    let bodies = [known(100), known(101), known(102)];
    world.send_bytes(link, &[&bodies[0], &bodies[1], &bodies[2]], now);
    assert_eq!(described(&mut world).counts.scheduled, 2);
    world.send_bytes(link, &[&known(103)], now);
    assert_eq!(described(&mut world).counts.scheduled, 3, "one message waits if others do");
    world.commit();
    world.send_bytes(link, &[&known(104)], now);
    settle_down(&mut world);
    world.send_bytes(link, &[&known(105)], now);
    assert_eq!(described(&mut world).counts.scheduled, 0, "and no longer");
    world.commit();
    for name in ["all", "some"] {
        assert_eq!(ids(&mut world, name), (100..106).collect::<Vec<_>>());
    }
    assert_eq!(world.queue("t").counts.total(), 0);
}

#[test]
fn what_waits_comes_before_what_was_scheduled_and_outlives_a_crash() {
    // P2, S-49
    let (mut world, link) = slow();
    let later = Incoming { scheduled: world.local().after(Span(5)), ..Incoming::new(Intake::default()) };
    world.send_bytes(link, &[&known(200)], later);
    let bodies = [known(100), known(101), known(102)];
    world.send_bytes(link, &[&bodies[0], &bodies[1], &bodies[2]], Incoming::new(Intake::default()));
    world.commit();
    world.check_whole_replay();
    world.restart();
    world.broker.publish_steps = 1;
    assert_eq!(described(&mut world).counts.scheduled, 3);
    world.pass(Span(5));
    settle_down(&mut world);
    for name in ["all", "some"] {
        assert_eq!(ids(&mut world, name), [100, 101, 102, 200]);
    }
}

#[test]
fn sessions_times_to_live_and_numbers_are_those_of_a_message_that_was_sent() {
    // S-50, S-148; P5
    let (mut world, link) = slow();
    let settings = SubscriptionSettings { requires_session: true, ..SubscriptionSettings::default() };
    add(&mut world, "in", settings, vec![]);
    let body = encoded(&[("SessionId", "s")], &[("n", Value::Int(7))]);
    let mortal = Incoming { time_to_live: Span::minutes(1), ..Incoming::new(Intake::default()) };
    world.send_bytes(link, &[&body, &body, &body], mortal);
    settle_down(&mut world);
    let holder = world.holder("t/Subscriptions/in", "s", 9);
    assert_eq!(world.take_tokens().len(), 3, "{holder:?}");
    let deliveries = world.receive("t/Subscriptions/all", PeekLock, 9);
    assert!(deliveries.iter().all(|each| each.expires == each.enqueued.after(Span::minutes(1))));
    let numbers: Vec<u64> = deliveries.iter().map(|each| each.number.0).collect();
    assert_eq!(numbers, [1, 2, 3], "of a subscription they have no gaps");
    assert!(deliveries.iter().all(|each| !each.was_scheduled));
}

#[test]
fn a_schedule_for_now_tells_numbers_and_a_transaction_is_whole() {
    // S-46, S-210
    let (mut world, link) = slow();
    let (request, namespace) = (RequestId::default(), NamespaceId(0));
    let bodies = [known(100), known(101), known(102)];
    let all = [&bodies[0][..], &bodies[1], &bodies[2]];
    let past = Incoming { scheduled: LocalTime(0), ..Incoming::new(Intake::default()) };
    let effects = world.put_bytes(&all, past, |messages, sessions| Command::Schedule {
        request,
        namespace,
        path: "t".into(),
        messages,
        sessions,
    });
    let [Effect::Answered { answer: Ok(Answer::Scheduled(numbers)), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(numbers.iter().map(|number| number.0).collect::<Vec<_>>(), [1, 2, 3]);
    settle_down(&mut world);
    let coordinator = world.link();
    world.command(Command::AttachCoordinator { link: coordinator, namespace }, &[]);
    world.command(Command::Declare { link: coordinator, delivery: 0 }, &[]);
    let transaction = TransactionId(1);
    world.put_bytes(&all, Incoming::new(Intake::default()), |messages, sessions| Command::Within {
        transaction,
        command: Box::new(Command::Send { link, delivery: 0, is_settled: false, messages, sessions }),
    });
    assert_eq!(described(&mut world).counts.scheduled, 0);
    let is_failed = false;
    world.command(Command::Discharge { link: coordinator, delivery: 1, transaction, is_failed }, &[]);
    assert_eq!(described(&mut world).counts.scheduled, 2);
    settle_down(&mut world);
    assert_eq!(ids(&mut world, "some"), [100, 101, 102, 100, 101, 102]);
}

#[test]
fn a_message_is_published_at_once_however_long_it_takes() {
    let rules = (0..400).map(|nth| rule(&format!("r{nth}"), sql("p LIKE q AND x = 1"), None)).collect();
    let mut world = world_of(vec![("s", rules)]);
    let pattern = format!("%{}b%", "a".repeat(900));
    let body = encoded(&[], &[("p", "a".repeat(20_000).as_str().into()), ("q", pattern.as_str().into())]);
    world.longest_slice = 0;
    publish(&mut world, &[&body]);
    assert!((MESSAGE_STEPS / 2..SLICE_STEPS).contains(&world.longest_slice), "{}", world.longest_slice);
    publish(&mut world, &[&body[..]; 40]);
    assert_eq!(described(&mut world).counts.scheduled, 39);
    settle_down(&mut world);
    assert!(world.longest_slice <= 3 * MESSAGE_STEPS, "{}", world.longest_slice);
}

#[test]
fn a_list_counts_for_what_it_looks_at() {
    // W-34
    let mut world = World::with_queue("q");
    world.send_committed("q", 500);
    world.longest_slice = 0;
    world.browse("q", 0, 400).unwrap();
    assert!(
        (400 * RESULT_STEPS..500 * RESULT_STEPS).contains(&world.longest_slice),
        "{}",
        world.longest_slice
    );
}
