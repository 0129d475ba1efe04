use crate::command::Outcome;
use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
use crate::effect::{Answer, Effect, Notice, Settled};
use crate::ids::{LinkId, Number, Sequence};
use crate::manage::Task;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::testing::{World, deliveries, message};
use crate::time::Span;
use crate::topic::rule::{Filter, Rule, Sql};
use crate::topic::settings::{SubscriptionSettings, TopicSettings};
use crate::topic::subject::tests::encoded;
use crate::{Command, Incoming, MessageKey, SessionIds};

fn sessions() -> QueueSettings {
    QueueSettings { requires_session: true, max_delivery_count: 3, ..QueueSettings::default() }
}

fn with_sessions(sent: &[&str]) -> World {
    let mut world = World::new();
    world.create("q", sessions());
    world.send_sessions("q", sent);
    world
}

fn settled(effects: &[Effect]) -> Option<Settled> {
    effects.iter().find_map(|effect| match effect {
        Effect::Settled { outcome, .. } => Some(*outcome),
        _ => None,
    })
}

fn settle(world: &mut World, link: LinkId, sequence: u64, outcome: Outcome) -> Option<Settled> {
    let token = world.token(sequence);
    settled(&world.settle(link, 0, token, outcome))
}

#[test]
fn an_abandoned_message_is_served_next_and_nothing_before_it() {
    // S-86, S-145
    let mut world = with_sessions(&["a"; 4]);
    let link = world.holder("q", "a", 2);
    assert_eq!(settle(&mut world, link, 1, Outcome::Abandon(None)), Some(Settled::Abandoned));
    assert_eq!(deliveries(&world.credit(link, 9, false)), [], "it is on its way back");
    let effects = world.commit();
    assert_eq!(deliveries(&effects), [(link, 1), (link, 3), (link, 4)]);
    assert!(matches!(&effects[0], Effect::Deliver { delivery, .. } if delivery.count == 1));
}

#[test]
fn a_released_message_is_served_next_and_counts_nothing() {
    // S-86, S-145
    let mut world = with_sessions(&["a"; 3]);
    let link = world.holder("q", "a", 2);
    world.credit(link, 9, false);
    let token = world.token(2);
    let effects = world.settle(link, 0, token, Outcome::Release);
    assert_eq!(deliveries(&effects), [(link, 2)]);
    assert_eq!(world.queue("q").index.get(Sequence(2)).unwrap().count(), 0);
}

#[test]
fn the_last_delivery_ends_in_a_dead_letter_queue_that_knows_no_sessions() {
    // S-87, S-103
    let mut world = with_sessions(&["a", "a"]);
    let link = world.holder("q", "a", 9);
    for _ in 0..3 {
        settle(&mut world, link, 1, Outcome::Abandon(None));
        world.commit();
    }
    assert_eq!(settle(&mut world, link, 2, Outcome::DeadLetter(None)), Some(Settled::DeadLettered));
    world.commit();
    let dead = world.receive("q/$DeadLetterQueue", PeekLock, 9);
    assert_eq!(dead.iter().map(|each| (each.number.0, each.count)).collect::<Vec<_>>(), [(1, 3), (2, 0)]);
}

#[test]
fn a_message_that_expires_unlocked_is_not_delivered_and_a_locked_one_is_settled() {
    // S-51, S-52, S-54
    let mut world = World::new();
    let (default_time_to_live, dead_letter_on_expiration) = (Span::seconds(10), true);
    world.create("q", QueueSettings { default_time_to_live, dead_letter_on_expiration, ..sessions() });
    world.send_sessions("q", &["a", "a", "b"]);
    let link = world.holder("q", "a", 1);
    world.pass(Span::seconds(10));
    world.tick();
    world.commit();
    assert_eq!(world.queue("q").counts.dead_letter, 2);
    assert_eq!(deliveries(&world.credit(link, 9, false)), []);
    assert_eq!(settle(&mut world, link, 1, Outcome::Complete), Some(Settled::Completed));
    assert_eq!(world.queue("q").counts.dead_letter, 2);
}

#[test]
fn a_message_that_expired_under_its_lock_goes_when_its_holder_leaves() {
    // S-53, S-62
    let mut world = World::new();
    let (default_time_to_live, dead_letter_on_expiration) = (Span::seconds(10), true);
    world.create("q", QueueSettings { default_time_to_live, dead_letter_on_expiration, ..sessions() });
    world.send_sessions("q", &["a", "a"]);
    let link = world.holder("q", "a", 2);
    world.pass(Span::seconds(10));
    world.tick();
    assert_eq!(world.queue("q").counts.active, 2);
    world.detach(link);
    let counts = world.queue("q").counts;
    assert_eq!((counts.active, counts.dead_letter), (0, 2));
}

#[test]
fn a_deferred_message_is_received_by_the_holder_of_its_session_alone() {
    // S-125
    let mut world = with_sessions(&["a", "b"]);
    let link = world.holder("q", "a", 9);
    settle(&mut world, link, 1, Outcome::Defer(None));
    world.commit();
    let ask = |world: &mut World, session: Option<&str>| {
        let (numbers, mode, session) = ([Number(1)].into(), PeekLock, session.map(Into::into));
        world.ask_held(|request, namespace| Command::ReceiveDeferred {
            request,
            namespace,
            path: "q".into(),
            numbers,
            mode,
            session,
        })
    };
    assert!(matches!(ask(&mut world, None), Err(Refusal::NotAllowed(_))));
    assert_eq!(ask(&mut world, Some("b")), Err(Refusal::SessionLockLost), "nobody holds it");
    let other = world.holder("q", "b", 1);
    assert_eq!(ask(&mut world, Some("b")), Err(Refusal::MessageNotFound(Number(1))));
    world.detach(other);
    let Ok(Answer::Messages(messages)) = ask(&mut world, Some("a")) else { panic!() };
    assert_eq!((messages[0].number, messages[0].count), (Number(1), 1));
    assert_eq!(messages[0].locked_until, Some(world.local().after(Span::minutes(1))));
    assert_eq!(settle(&mut world, link, 1, Outcome::Complete), Some(Settled::Completed));
    assert_eq!(world.queue("q").counts.total(), 1);
}

#[test]
fn a_deferred_message_of_a_session_that_is_taken_for_good_is_not_locked() {
    // S-81, S-125
    let mut world = with_sessions(&["a"]);
    let link = world.holder("q", "a", 9);
    settle(&mut world, link, 1, Outcome::Defer(None));
    world.commit();
    let answer = world.ask_held(|request, namespace| Command::ReceiveDeferred {
        request,
        namespace,
        path: "q".into(),
        numbers: [Number(1)].into(),
        mode: ReceiveAndDelete,
        session: Some("a".into()),
    });
    let Ok(Answer::Messages(messages)) = answer else { panic!("{answer:?}") };
    assert_eq!((messages[0].number, messages[0].locked_until), (Number(1), None));
    assert_eq!(world.queue("q").counts.total(), 0);
}

#[test]
fn a_deferred_message_stays_deferred_when_its_holder_leaves() {
    // S-120, S-147
    let mut world = with_sessions(&["a", "a"]);
    let link = world.holder("q", "a", 1);
    settle(&mut world, link, 1, Outcome::Defer(None));
    world.commit();
    world.detach(link);
    let link = world.holder("q", "a", 9);
    assert_eq!(deliveries(&world.take_effects()).last(), Some(&(link, 2)));
    assert_eq!(world.queue("q").counts.deferred, 1);
}

#[test]
fn receive_and_delete_takes_the_messages_of_one_session_in_order() {
    // S-80, S-145
    let mut world = with_sessions(&["a", "b", "a", "b"]);
    for (session, numbers) in [("b", [2, 4]), ("a", [1, 3])] {
        let link = world.link();
        world.accept_for(link, "q", ReceiveAndDelete, Some(session));
        let records = world.records.len();
        let effects = world.credit(link, 9, true);
        assert_eq!(deliveries(&effects), numbers.map(|number| (link, number)));
        assert_eq!(effects.last(), Some(&Effect::Notice(Notice::Drained { link })));
        let removed = |record: &Record| matches!(record, Record::Removed { .. });
        assert!(world.records[records..].iter().all(removed));
    }
    assert_eq!(world.queue("q").counts.total(), 0);
    assert_eq!(world.queue("q").sessions.as_ref().unwrap().iter().count(), 0);
}

#[test]
fn what_cannot_be_read_stays_and_what_follows_it_goes() {
    let mut world = with_sessions(&["a"; 3]);
    world.unreadable.insert(Sequence(2));
    let link = world.link();
    world.accept_for(link, "q", ReceiveAndDelete, Some("a"));
    assert_eq!(deliveries(&world.credit(link, 9, false)), [(link, 1), (link, 3)]);
    world.unreadable.clear();
    world.pass(Span::seconds(30));
    let session = "a".into();
    world
        .ask_held(|request, namespace| Command::RenewSession {
            request,
            namespace,
            path: "q".into(),
            session,
        })
        .unwrap();
    world.pass(Span::seconds(30));
    world.tick();
    assert_eq!(deliveries(&world.commit()), [(link, 2)]);
}

#[test]
fn a_scheduled_message_joins_its_session_when_its_time_comes() {
    // S-41, S-44
    let mut world = with_sessions(&["a"]);
    let link = world.holder("q", "a", 9);
    let later = Incoming { scheduled: world.local().after(Span::seconds(30)), ..message(1) };
    let sender = world.sender("q");
    world.send_in(sender, 0, &[later, message(1)], &["a", "a"]);
    assert_eq!(deliveries(&world.commit()), [(link, 3)]);
    world.pass(Span::seconds(30));
    world.tick();
    assert_eq!(deliveries(&world.commit()), [(link, 4)]);
    let without = world.schedule("q", &[later]);
    assert!(matches!(without, Err(Refusal::NotAllowed(_))), "S-20");
}

#[test]
fn a_duplicate_is_dropped_in_a_session_too() {
    // S-160, S-162
    let mut world = World::new();
    world.create("q", QueueSettings { requires_duplicate_detection: true, ..sessions() });
    let (sender, once) = (world.sender("q"), Incoming { id: MessageKey([1, 2]), ..message(1) });
    world.send_in(sender, 0, &[once], &["a"]);
    world.send_in(sender, 1, &[once], &["b"]);
    world.commit();
    assert_eq!(world.queue("q").counts.active, 1);
    assert!(world.queue("q").sessions.as_ref().unwrap().get("b").is_none());
}

#[test]
fn a_forwarded_message_takes_its_session_along() {
    // S-177
    let mut world = with_sessions(&[]);
    let forward =
        |target: &str| QueueSettings { forward_to: Some(target.into()), ..QueueSettings::default() };
    world.create("middle", forward("q"));
    world.create("first", forward("middle"));
    world.send_sessions("first", &["a", "b", "a"]);
    let sender = world.sender("first");
    world.send_bytes(sender, &[&encoded(&[], &[])], message(0));
    (0..2).for_each(|_| drop(world.commit()));
    assert_eq!(world.queue("q").counts.active, 3);
    assert_eq!(world.queue("middle").counts.dead_letter, 1, "what has no session is not taken");
    let link = world.holder("q", "a", 9);
    assert_eq!(deliveries(&world.take_effects()), [(link, 1), (link, 3)]);
    let dead = world.receive("middle/$DeadLetterQueue", PeekLock, 1);
    let overlay = dead[0].extra.as_ref().unwrap().overlay.as_ref().unwrap();
    assert!(overlay.application("DeadLetterReason").is_some());
}

#[test]
fn a_message_that_came_before_its_queue_forwarded_takes_its_session_along() {
    // S-170, S-177
    let mut world = with_sessions(&[]);
    world.create("first", QueueSettings::default());
    let sender = world.sender("first");
    let of = |session| encoded(&[("SessionId", session)], &[]);
    world.send_bytes(sender, &[&of("a"), &of("b"), &encoded(&[], &[])], message(0));
    world.commit();
    assert!(world.queue("first").sessions.is_none());
    let forward_to = Some("q".into());
    world.update("first", QueueSettings { forward_to, ..QueueSettings::default() }).unwrap();
    while world.is_due() {
        world.tick();
    }
    world.commit();
    let session = |world: &World, number| world.queue("q").session_of(Sequence(number)).cloned();
    assert_eq!(session(&world, 1).as_deref(), Some("a"));
    assert_eq!(session(&world, 2).as_deref(), Some("b"));
    assert_eq!(world.queue("first").counts.dead_letter, 1);
}

#[test]
fn a_subscription_with_sessions_gives_them_out_like_a_queue() {
    // S-108, S-142, S-145, S-149, S-186, S-235
    let mut world = World::new();
    let (path, access) = ("t".into(), Vec::new());
    world.manage(Task::CreateTopic { path, settings: TopicSettings::default(), access }).unwrap();
    let settings = SubscriptionSettings { requires_session: true, ..SubscriptionSettings::default() };
    let rule = |action: Option<&str>| Rule {
        name: "r".into(),
        filter: Filter::True,
        action: action.map(|text| Sql { expression: text.into(), parameters: Vec::new() }),
    };
    for (name, action) in [("s", None), ("set", Some("SET sys.SessionId = 'x'"))] {
        let (topic, name, settings) = ("t".into(), name.into(), settings.clone());
        let rule = Some(rule(action));
        world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
    }
    let sender = world.sender("t");
    let of = |session| encoded(&[("SessionId", session)], &[]);
    let later = Incoming { scheduled: world.local().after(Span::seconds(30)), ..message(0) };
    world.send_bytes(sender, &[&of("a"), &of("b"), &of("a")], message(0));
    world.send_bytes(sender, &[&of("a")], later);
    world.commit();
    world.pass(Span::seconds(30));
    while world.is_due() {
        world.tick();
    }
    world.commit();
    let link = world.link();
    world.accept(link, "t/subscriptions/s", Some("a"));
    assert_eq!(deliveries(&world.credit(link, 9, false)), [(link, 1), (link, 3), (link, 4)]);
    let state = Some(message(7).body);
    let (path, session) = ("t/Subscriptions/s".into(), "a".into());
    world
        .ask_held(|request, namespace| Command::SetSessionState { request, namespace, path, session, state })
        .unwrap();
    let other = world.link();
    world.accept(other, "t/subscriptions/set", None);
    assert_eq!(deliveries(&world.credit(other, 9, false)).len(), 4, "all are in the session of the action");
    world.restart();
    let link = world.link();
    world.accept(link, "t/subscriptions/s", None);
    assert_eq!(deliveries(&world.credit(link, 9, false)).len(), 3);
}

#[test]
fn a_dead_letter_that_is_forwarded_takes_its_session_along() {
    // S-112
    let mut world = World::new();
    world.create("failed", sessions());
    world.create("q", QueueSettings { forward_dead_letters_to: Some("failed".into()), ..sessions() });
    world.send_sessions("q", &["a"]);
    let link = world.link();
    world.accept(link, "q", Some("a"));
    let effects = world.credit(link, 1, false);
    let Effect::Deliver { delivery, .. } = &effects[0] else { panic!("{effects:?}") };
    let token = delivery.token;
    world.settle(link, 0, token, Outcome::DeadLetter(None));
    world.commit();
    world.commit();
    let session = world.queue("failed").session_of(Sequence(1)).cloned();
    assert_eq!(session.as_deref(), Some("a"));
}

#[test]
fn many_messages_of_a_session_are_handed_out_in_slices() {
    let mut world = with_sessions(&[]);
    let sender = world.sender("q");
    for _ in 0..3 {
        let messages = vec![message(1); 3_000];
        let ids = (0..3_000).map(|at| (at, "a".into()));
        let sessions = SessionIds::new(3_000, ids);
        let command =
            Command::Send { link: sender, delivery: 0, is_settled: true, messages: 0..3_000, sessions };
        world.command(command, &messages);
        world.commit();
    }
    let link = world.link();
    world.accept(link, "q", Some("a"));
    let mut numbers: Vec<_> = deliveries(&world.credit(link, 9_000, false));
    assert!(numbers.len() <= crate::limits::DISPATCH_SLICE);
    while world.is_due() {
        numbers.extend(deliveries(&world.tick()));
    }
    assert!(numbers.iter().map(|(_, number)| *number).eq(1..=9_000));
}

#[test]
fn whoever_browses_one_session_sees_its_messages_whoever_holds_it() {
    // S-131, S-134
    let mut world = with_sessions(&["a", "b", "a", "a"]);
    let link = world.holder("q", "a", 2);
    settle(&mut world, link, 1, Outcome::Defer(None));
    let later = Incoming { scheduled: world.local().after(Span::seconds(30)), ..message(1) };
    let sender = world.sender("q");
    world.send_in(sender, 0, &[later], &["a"]);
    world.commit();
    let mut seen = |session: Option<&str>, from: u64, most: u32| {
        let session = session.map(Into::into);
        let answer = world.ask_held(|request, namespace| Command::Browse {
            request,
            namespace,
            path: "q".into(),
            from: Number(from),
            most,
            session,
        });
        match answer {
            Ok(Answer::Messages(messages)) => messages.iter().map(|each| each.number.0).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seen(Some("a"), 0, 9), [1, 3, 4, 5]);
    assert_eq!(seen(Some("a"), 2, 2), [3, 4]);
    assert_eq!(seen(Some("c"), 0, 9), [0; 0]);
    assert_eq!(seen(None, 0, 9), [1, 2, 3, 4, 5]);
}

#[test]
fn messages_of_a_session_are_deleted_for_its_holder_and_those_that_are_locked_stay() {
    // S-240
    let mut world = with_sessions(&["a", "b", "a", "a"]);
    let _link = world.holder("q", "a", 1);
    let mut delete = |session: Option<&str>| {
        let session = session.map(Into::into);
        let answer = world.ask_held(|request, namespace| Command::DeleteMessages {
            request,
            namespace,
            path: "q".into(),
            most: 9,
            before: crate::LocalTime::NEVER,
            session,
        });
        match answer {
            Ok(Answer::MessagesDeleted(count)) => count,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(Some("a")), 2);
    assert_eq!(delete(Some("c")), 0);
    assert_eq!(delete(None), 1);
    assert_eq!(delete(None), 0);
}
