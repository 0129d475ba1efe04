//! What a topic does with a message, told by those who send and receive.

use super::super::rule::{Filter, Rule};
use super::super::settings::{SubscriptionSettings, TopicSettings};
use super::*;
use crate::command::Outcome;
use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
use crate::effect::{Answer, Delivery, Effect, Notice};
use crate::ids::{BodyId, LinkId, MessageKey, NamespaceId, Number, Source};
use crate::manage::Task;
use crate::queue::index::State;
use crate::refusal::Refusal;
use crate::settings::{QueueSettings, Status};
use crate::snapshot::stored_bodies;
use crate::testing::{World, message};

pub(crate) const A: &str = "t/Subscriptions/a";
const B: &str = "t/subscriptions/b";

pub(crate) fn topic(world: &mut World, settings: TopicSettings) {
    world.manage(Task::CreateTopic { path: "t".into(), settings, access: Vec::new() }).unwrap();
}

pub(crate) fn subscribe(
    world: &mut World,
    name: &str,
    settings: SubscriptionSettings,
    filter: Option<Filter>,
) {
    let rule = filter.map(|filter| Rule { name: "r".into(), filter, action: None });
    let (topic, name) = ("t".into(), name.into());
    world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
}

/// A topic `t` with subscriptions `a` and `b`, which get everything.
pub(crate) fn pair() -> World {
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    subscribe(&mut world, "b", SubscriptionSettings::default(), None);
    world
}

pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|each| each.number.0).collect()
}

pub(crate) fn counts(world: &mut World, name: &str) -> (u64, u64) {
    let task = Task::DescribeSubscription { topic: "t".into(), name: name.into() };
    match world.manage(task) {
        Ok(Answer::Subscription(found)) => (found.counts.active, found.counts.dead_letter),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn described(world: &mut World) -> super::super::TopicDescription {
    match world.describe("t") {
        Ok(Answer::Topic(topic)) => *topic,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_copied_to_every_subscription_with_a_number_of_its_own() {
    // S-36, S-180, S-181, S-184
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    world.send_committed("t", 2);
    subscribe(&mut world, "b", SubscriptionSettings::default(), Some(Filter::True));
    subscribe(&mut world, "none", SubscriptionSettings::default(), Some(Filter::False));
    world.send_committed("t", 1);
    let (first, second) = (world.receive(A, PeekLock, 9), world.receive(B, PeekLock, 9));
    assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2, 3], vec![1]));
    assert_eq!(first[2].body, second[0].body, "the copies share what is stored");
    let at_the_topic = |all: &[Delivery]| all.iter().map(|each| each.first).collect::<Vec<_>>();
    assert_eq!(at_the_topic(&first), [1, 2, 3].map(|number| Some(Number(number))));
    assert_eq!(at_the_topic(&second), [Some(Number(3))]);
    assert_eq!(world.receive("t/Subscriptions/none", PeekLock, 9), []);
}

#[test]
fn a_message_that_nobody_wants_is_accepted_and_stored_nowhere() {
    // S-180, S-181: a subscription without rules gets nothing.
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    let (topic, subscription, name) = ("t".into(), "a".into(), "$Default".into());
    world.manage(Task::DeleteRule { topic, subscription, name }).unwrap();
    let link = world.sender("t");
    assert_eq!(world.send(link, 4, &[message(10)]), [Effect::Accepted { link, delivery: 4 }]);
    assert_eq!(world.broker.durable.next_body(), BodyId(1));
    assert_eq!((world.queue("t").next, described(&mut world).bytes), (Sequence(2), 0));
}

#[test]
fn the_body_is_alive_until_the_last_copy_is_gone() {
    let mut world = pair();
    world.send_committed("t", 1);
    let alive = |world: &World| stored_bodies(&world.broker.snapshot(world.now)).len();
    assert_eq!((alive(&world), described(&mut world).bytes), (1, 20));
    assert_eq!(world.receive(A, ReceiveAndDelete, 1).len(), 1);
    assert_eq!((alive(&world), described(&mut world).bytes), (1, 10));
    world.relocate(&[(BodyId(1), crate::Intake { offset: 0, length: 10 })]);
    let left = world.receive(B, ReceiveAndDelete, 1);
    assert_eq!(world.broker.durable.stored_as(left[0].body), BodyId(2));
    assert_eq!((alive(&world), described(&mut world).bytes), (0, 0));
}

#[test]
fn each_copy_has_a_life_of_its_own() {
    // S-81, S-87, S-88, S-90, S-100, S-120, S-130
    let mut world = pair();
    world.send_committed("t", 4);
    let (link, taken) = receiver(&mut world, A, 4);
    world.settle(link, 0, taken[0].token, Outcome::Complete);
    world.settle(link, 0, taken[1].token, Outcome::Abandon(None));
    world.settle(link, 0, taken[2].token, Outcome::DeadLetter(None));
    world.settle(link, 0, taken[3].token, Outcome::Defer(None));
    world.commit();
    assert_eq!((counts(&mut world, "a"), counts(&mut world, "b")), ((1, 1), (4, 0)));
    let dead = world.receive("t/Subscriptions/a/$DeadLetterQueue", PeekLock, 9);
    assert_eq!((numbers(&dead), dead[0].first), (vec![3], Some(Number(3))));
    let Ok(Answer::Messages(seen)) = world.browse(A, 0, 9) else { panic!() };
    let states: Vec<_> = seen.iter().map(|each| (each.number.0, each.state, each.count)).collect();
    assert_eq!(states, [(2, State::Active, 1), (4, State::Deferred, 1)]);
    assert!(world.receive_deferred(A, &[4], PeekLock).is_ok());
    assert!(world.receive(B, PeekLock, 9).iter().all(|each| each.count == 0));
}

fn receiver(world: &mut World, path: &str, credit: u32) -> (LinkId, Vec<Delivery>) {
    let link = world.link();
    world.attach_receiver(link, path, PeekLock);
    let delivery = |effect| match effect {
        Effect::Deliver { delivery, .. } => Some(delivery),
        _ => None,
    };
    let taken = world.credit(link, credit, false).into_iter().filter_map(delivery).collect();
    (link, taken)
}

#[test]
fn a_crash_finds_every_copy_again() {
    // P2: and a snapshot does; the world checks both at its end.
    let mut world = pair();
    world.send_committed("t", 3);
    world.receive(A, ReceiveAndDelete, 2);
    world.restart();
    assert_eq!((counts(&mut world, "a"), counts(&mut world, "b")), ((1, 0), (3, 0)));
    let (first, second) = (world.receive(A, PeekLock, 9), world.receive(B, PeekLock, 9));
    assert_eq!((numbers(&first), numbers(&second)), (vec![3], vec![1, 2, 3]));
    assert_eq!(first[0].first, Some(Number(3)));
}

#[test]
fn the_number_at_the_topic_is_told_whatever_was_between() {
    // S-36: the true one, also where the subscription is not evenly behind.
    let mut world = pair();
    let later = Incoming { scheduled: world.local().after(Span::minutes(1)), ..message(1) };
    world.send_committed("t", 1);
    world.schedule("t", &[later]).unwrap();
    world.send_committed("t", 1);
    world.pass(Span::minutes(1));
    world.tick();
    world.commit();
    let received = world.receive(A, PeekLock, 9);
    let told: Vec<_> = received.iter().map(|each| (each.number.0, each.first.unwrap().0)).collect();
    assert_eq!(told, [(1, 1), (2, 3), (3, 4)]);
}

#[test]
fn a_scheduled_message_waits_at_the_topic() {
    // S-41, S-42, S-43, S-44, S-234
    let mut world = pair();
    let later = Incoming { scheduled: world.local().after(Span::minutes(1)), ..message(10) };
    assert_eq!(world.schedule("t", &[later, later]), Ok(Answer::Scheduled(vec![Number(1), Number(2)])));
    assert_eq!(world.cancel("t", &[1]), Ok(Answer::Cancelled));
    assert_eq!(world.cancel("t", &[1]), Err(Refusal::MessageNotFound(Number(1))));
    let topic = described(&mut world);
    assert_eq!((topic.counts.scheduled, topic.counts.active, topic.subscriptions), (1, 0, 2));
    assert_eq!(world.browse(A, 0, 9), Ok(Answer::Messages(Vec::new())));
    subscribe(&mut world, "late", SubscriptionSettings::default(), None);
    world.pass(Span::minutes(1));
    world.tick();
    world.commit();
    assert_eq!(described(&mut world).counts.scheduled, 0);
    for path in [A, B, "t/Subscriptions/late"] {
        let received = world.receive(path, PeekLock, 9);
        assert_eq!((received[0].number, received[0].first), (Number(1), Some(Number(3))), "{path}");
        assert_eq!(received[0].enqueued, world.local());
    }
}

#[test]
fn the_smallest_time_to_live_of_message_topic_and_subscription_counts() {
    // S-58
    let mut world = World::new();
    let default_time_to_live = Span::minutes(10);
    topic(&mut world, TopicSettings { default_time_to_live, ..TopicSettings::default() });
    for (name, minutes) in [("a", 5), ("b", 20)] {
        let default_time_to_live = Span::minutes(minutes);
        let settings = SubscriptionSettings { default_time_to_live, ..SubscriptionSettings::default() };
        subscribe(&mut world, name, settings, None);
    }
    let link = world.sender("t");
    world.send(link, 0, &[message(1), Incoming { time_to_live: Span::minutes(1), ..message(1) }]);
    world.commit();
    let lives = |world: &mut World, path: &str| {
        let received = world.receive(path, PeekLock, 9);
        received.iter().map(|each| (each.expires.0 - each.enqueued.0) / 60_000).collect::<Vec<_>>()
    };
    assert_eq!((lives(&mut world, A), lives(&mut world, B)), (vec![5, 1], vec![10, 1]));
}

#[test]
fn a_disabled_subscription_collects_and_a_disabled_topic_takes_nothing() {
    // S-230, S-231
    let mut world = pair();
    let disabled = SubscriptionSettings { status: Status::Disabled, ..SubscriptionSettings::default() };
    let update = |settings| Task::UpdateSubscription { topic: "t".into(), name: "a".into(), settings };
    world.manage(update(disabled)).unwrap();
    world.send_committed("t", 1);
    let link = world.link();
    let refused = Effect::Notice(Notice::Detached {
        link,
        refusal: Refusal::EntityDisabled("t/Subscriptions/a".into()),
    });
    assert_eq!(world.attach_receiver(link, A, PeekLock), [refused]);
    world.manage(update(SubscriptionSettings::default())).unwrap();
    assert_eq!(numbers(&world.receive(A, PeekLock, 9)), [1]);
    let sender = world.sender("t");
    let settings = TopicSettings { status: Status::SendDisabled, ..TopicSettings::default() };
    world.manage(Task::UpdateTopic { path: "t".into(), settings, access: Vec::new() }).unwrap();
    let effects = world.send(sender, 0, &[message(1)]);
    let refusal = Refusal::EntityDisabled("t".into());
    assert_eq!(effects, [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal })]);
}

#[test]
fn duplicates_are_looked_for_at_the_topic() {
    // S-163
    let mut world = World::new();
    topic(&mut world, TopicSettings { requires_duplicate_detection: true, ..TopicSettings::default() });
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    let link = world.sender("t");
    let named = Incoming { id: MessageKey([1, 7]), ..message(1) };
    (0..2).for_each(|delivery| drop(world.send(link, delivery, &[named])));
    assert_eq!(counts(&mut world, "a"), (1, 0));
}

#[test]
fn a_full_topic_is_full_of_what_its_subscriptions_hold() {
    // S-19, S-235
    let mut world = World::with_tier(crate::Tier::Premium);
    topic(&mut world, TopicSettings::default());
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    subscribe(&mut world, "b", SubscriptionSettings::default(), None);
    let link = world.sender("t");
    let large = Incoming { ..message(1_048_576) };
    for delivery in 0..512 {
        assert!(matches!(world.send(link, delivery, &[large])[..], [Effect::Accepted { .. }]));
    }
    let effects = world.send(link, 512, &[message(1)]);
    let [Effect::Notice(Notice::Rejected { refusal, .. })] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        refusal.to_string(),
        "The maximum entity size has been reached or exceeded for Topic: 't'. Size of entity in bytes:1073741824, Max entity size in bytes:1073741824."
    );
    world.commit();
    world.receive(A, ReceiveAndDelete, 1);
    assert!(matches!(world.send(link, 513, &[message(1)])[..], [Effect::Accepted { .. }]));
}

#[test]
fn nobody_sends_to_a_subscription_or_receives_from_a_topic() {
    // A-3.4
    let mut world = pair();
    let link = world.link();
    for effects in [world.attach_sender(link, A), world.attach_receiver(link, "t", PeekLock)] {
        assert!(matches!(
            effects[..],
            [Effect::Notice(Notice::Detached { refusal: Refusal::NotAllowed(_), .. })]
        ));
    }
    assert!(matches!(world.browse("t", 0, 9), Err(Refusal::NotAllowed(_))));
}

#[test]
fn what_is_deleted_takes_messages_and_links_along() {
    // H-16
    let mut world = pair();
    world.send_committed("t", 2);
    let (receiver, _) = receiver(&mut world, A, 1);
    world.take_effects();
    world.manage(Task::DeleteSubscription { topic: "t".into(), name: "a".into() }).unwrap();
    let gone = |link, path: &str| {
        Effect::Notice(Notice::Detached { link, refusal: Refusal::EntityNotFound(path.into()) })
    };
    assert_eq!(world.take_effects()[0], gone(receiver, "t/Subscriptions/a"));
    assert_eq!(described(&mut world).bytes, 20);
    let sender = world.sender("t");
    let other = world.receiver(B, PeekLock, 1);
    assert_eq!(world.delete("t")[..2], [gone(other, "t"), gone(sender, "t")]);
    assert_eq!(world.broker.durable.queues().count(), 0);
    world.now = crate::Time(i64::MAX - 1);
    assert_eq!(world.tick(), []);
}

#[test]
fn numbers_of_a_partitioned_topic_have_its_partition() {
    // S-32, S-36
    let mut world = World::with_queue("q");
    topic(&mut world, TopicSettings { partitioning: true, ..TopicSettings::default() });
    subscribe(&mut world, "a", SubscriptionSettings::default(), None);
    world.send_committed("t", 1);
    let received = world.receive(A, PeekLock, 1);
    assert_eq!((received[0].number, received[0].first), (Number(1 << 48 | 1), Some(Number(1 << 48 | 1))));
}

#[test]
fn names_and_listings_are_those_of_before() {
    // S-250: what holds the messages of a topic is no queue that anybody sees.
    let mut world = pair();
    match world.broker.list_queues(NamespaceId(0), 0, 9) {
        Answer::Queues(queues) => assert_eq!(queues, []),
        other => panic!("{other:?}"),
    }
    assert!(world.update("t", QueueSettings::default()).is_err());
    let source = Source::main(crate::EntityId(1));
    assert_eq!(world.broker.resolve(NamespaceId(0), "T/subscriptions/A"), Ok(source));
}

const IDLE: Span = Span::minutes(5);

/// What exists, after everything that is due.
fn exists(world: &mut World) -> (bool, bool) {
    (0..3).for_each(|_| drop(world.tick()));
    let found = |path: &str| world.broker.resolve(NamespaceId(0), path).is_ok();
    (found("t"), found(A))
}

/// An idle topic, or an idle subscription, used by `use_it` in its last moment.
fn lives_on_after(is_topic: bool, use_it: impl FnOnce(&mut World)) -> bool {
    let mut world = World::new();
    let idle = |is_it: bool| if is_it { IDLE } else { Span::MAX };
    topic(&mut world, TopicSettings { auto_delete_on_idle: idle(is_topic), ..TopicSettings::default() });
    let settings =
        SubscriptionSettings { auto_delete_on_idle: idle(!is_topic), ..SubscriptionSettings::default() };
    subscribe(&mut world, "a", settings, None);
    world.send_committed("t", 1);
    world.pass(Span(IDLE.0 - 1));
    use_it(&mut world);
    world.pass(Span(IDLE.0 - 1));
    let (topic, subscription) = exists(&mut world);
    let is_there = if is_topic { topic } else { subscription };
    world.pass(Span(1));
    let (topic, subscription) = exists(&mut world);
    assert!(!(if is_topic { topic } else { subscription }), "it was idle since");
    is_there
}

#[test]
fn a_topic_is_idle_without_sends_updates_and_work_at_its_subscriptions() {
    // S-72
    let settings = || TopicSettings { auto_delete_on_idle: IDLE, ..TopicSettings::default() };
    let update = |world: &mut World| {
        let (path, access) = ("t".into(), Vec::new());
        world.manage(Task::UpdateTopic { path, settings: settings(), access }).unwrap();
    };
    assert!(lives_on_after(true, |world| world.send_committed("t", 1)));
    assert!(lives_on_after(true, update));
    assert!(lives_on_after(true, |world| drop(world.browse(A, 0, 1))));
    assert!(lives_on_after(true, |world| drop(world.receive(A, PeekLock, 1))));
    assert!(!lives_on_after(true, |world| drop(world.describe("t"))));
    let mut world = pair();
    update(&mut world);
    let scheduled = world.local().after(Span(3 * IDLE.0));
    world.schedule("t", &[Incoming { scheduled, ..message(1) }]).unwrap();
    world.pass(Span(2 * IDLE.0));
    assert_eq!(exists(&mut world), (true, true), "something is scheduled");
    world.pass(Span(2 * IDLE.0));
    assert_eq!(exists(&mut world), (true, true), "it was sent on just now");
    world.pass(IDLE);
    assert_eq!(exists(&mut world), (false, false));
}

#[test]
fn a_subscription_is_idle_whatever_it_is_sent_until_somebody_works_with_it() {
    // S-73
    let rule = || Rule { name: "more".into(), filter: Filter::True, action: None };
    assert!(!lives_on_after(false, |world| world.send_committed("t", 1)));
    assert!(lives_on_after(false, |world| drop(world.browse(A, 0, 1))));
    assert!(lives_on_after(false, |world| drop(world.receive(A, PeekLock, 1))));
    assert!(lives_on_after(false, |world| {
        let (topic, subscription) = ("t".into(), "a".into());
        world.manage(Task::CreateRule { topic, subscription, rule: rule() }).unwrap();
    }));
    assert!(lives_on_after(false, |world| {
        let settings = SubscriptionSettings { auto_delete_on_idle: IDLE, ..SubscriptionSettings::default() };
        let (topic, name) = ("t".into(), "a".into());
        world.manage(Task::UpdateSubscription { topic, name, settings }).unwrap();
    }));
}
