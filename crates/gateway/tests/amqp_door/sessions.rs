//! Message sessions at the door: what an attach asks for and is told, how long it waits, and what the management node does
//! for the holder of a session.

use crate::client::{Client, body, list, part, performatives, receiver, session_receiver, symbol};
use crate::managing::{self, ask, ask_for, condition, longs, messages, peek};
use crate::server::{QUEUE, TestServer};
use amqp::performative::{Detach, Performative};
use amqp::{Attach, State};
use broker::{Command, NamespaceId, QueueSettings};
use message::Value;
use message::sections::section;
use message::value::Array;
use otobus_gateway::limits::SESSION_WAIT;
use std::time::Duration;

const SESSIONS: &str = "sessions";
const NODE: &str = "sessions/$management";

async fn server() -> TestServer {
    let server = TestServer::new().await;
    server.queue(SESSIONS, QueueSettings { requires_session: true, ..QueueSettings::default() }).await;
    server
}

fn message_of(session: &str, body: &[u8]) -> Vec<u8> {
    let mut properties = vec![Value::Null; 10];
    properties.push(session.into());
    [part(section::PROPERTIES, Value::List(properties)), crate::client::message(body)].concat()
}

/// Sends a message to each of these sessions, on handle 9.
async fn fill(client: &mut Client, sessions: &[&str]) {
    client.sender(9, SESSIONS).await;
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(client.send(9, &message_of(session, &[number as u8])).await, State::Accepted);
    }
}

#[tokio::test]
async fn a_session_of_a_link_that_leaves_is_free_for_the_next_of_its_name() {
    //
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a"]).await;
    client.attached(session_receiver(0, SESSIONS, "a".into())).await;
    client.credit(0, 0, 1).await;
    client.delivery().await;
    let leave = Performative::Detach(Detach { handle: 0, closed: false, error: None });
    let again = Performative::Attach(Box::new(session_receiver(0, SESSIONS, "a".into())));
    client.give(&[leave, again]).await;
    assert!(matches!(client.next().await.performative, Performative::Detach(Detach { handle: 0, .. })));
    assert!(client.next().await.accepts());
}

fn filter_of(attach: &Attach) -> Value {
    attach.source.as_ref().unwrap().filter.clone()
}

fn filter(value: Value) -> Value {
    Value::Map(vec![(symbol("com.microsoft:session-filter"), value)])
}

fn with_timeout(attach: Attach, milliseconds: u32) -> Attach {
    let properties = Value::Map(vec![(symbol("com.microsoft:timeout"), Value::Uint(milliseconds))]);
    Attach { properties, ..attach }
}

fn described(value: Value) -> Value {
    Value::Described(Box::new((Value::Ulong(0x13_7000_000c), value)))
}

#[tokio::test]
async fn the_attach_reply_names_the_session_in_the_shape_that_was_asked_and_its_lock_in_ticks() {
    //
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a", "b", "c"]).await;
    let asked = [
        (0, "a".into(), "a".into()),
        (1, Value::Null, "b".into()),
        (2, described(Value::Null), described("c".into())),
        (3, described("d".into()), described("d".into())),
        (4, "".into(), "".into()),
    ];
    for (handle, asked, told) in asked {
        let reply = client.attached(session_receiver(handle, SESSIONS, asked)).await;
        assert_eq!(filter_of(&reply), filter(told));
        assert_eq!(reply.initial_delivery_count, Some(0));
        let Some(Value::Long(ticks)) = reply.properties.get("com.microsoft:locked-until-utc") else {
            panic!("{reply:?}")
        };
        let until = (ticks - 621_355_968_000_000_000) / 10_000;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        assert!((30_000..=90_000).contains(&(until - now as i64)), "the default lock lasts a minute");
    }
}

#[tokio::test]
async fn whoever_asks_for_any_session_is_answered_when_there_is_one_and_has_its_credit_then() {
    //
    let server = server().await;
    let (mut waiting, mut other) = (server.admitted().await, server.admitted().await);
    let attach = session_receiver(0, SESSIONS, Value::Null);
    waiting.give(&[Performative::Attach(Box::new(attach))]).await;
    waiting.credit(0, 0, 5).await;
    assert_eq!(waiting.said_before_echo().await, []);
    fill(&mut other, &["late", "late"]).await;
    let frame = waiting.next().await;
    let Performative::Attach(reply) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(filter_of(&reply), filter("late".into()));
    assert_eq!(
        [body(&waiting.delivery().await.message), body(&waiting.delivery().await.message)],
        [[0], [1]]
    );
}

#[tokio::test]
async fn whoever_waited_for_long_enough_is_refused_in_one_write() {
    // S-144, A-6.2.2, A-6.2.3, A-11.35
    let server = server().await;
    for (attach, wait) in [
        (with_timeout(session_receiver(0, SESSIONS, Value::Null), 5_000), Duration::from_secs(5)),
        (session_receiver(0, SESSIONS, described(Value::Null)), SESSION_WAIT),
    ] {
        let mut client = server.admitted().await;
        client.give(&[Performative::Attach(Box::new(attach))]).await;
        assert_eq!(client.said_before_echo().await, []);
        tokio::time::pause();
        tokio::time::advance(wait).await;
        tokio::time::resume();
        let written = client.write().await;
        let [Performative::Attach(attach), Performative::Detach(detach)] = &performatives(&written)[..]
        else {
            panic!("{written:?}")
        };
        assert_eq!((&attach.source, &attach.target), (&None, &None));
        assert_eq!(detach.error.as_ref().unwrap().condition, "com.microsoft:timeout");
        // It waits no more: the session is somebody else's.
        let mut other = server.admitted().await;
        fill(&mut other, &["x"]).await;
        other.attached(session_receiver(1, SESSIONS, "x".into())).await;
        let id = {
            other.credit(1, 0, 1).await;
            other.delivery().await.id
        };
        assert_eq!(other.settle(id, State::Accepted).await, State::Accepted);
    }
}

#[tokio::test]
async fn whoever_has_got_a_session_waits_no_more_and_keeps_it() {
    // S-144, A-6.2.2
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a"]).await;
    client.attached(with_timeout(session_receiver(0, SESSIONS, Value::Null), 5_000)).await;
    managing::attach(&mut client, NODE, 10).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    assert_eq!(client.said_before_echo().await, []);
    let state = ask(&mut client, "get-session-state", vec![("session-id", "a".into())]).await;
    assert_eq!(state.status, Value::Int(200), "{state:?}");
}

#[tokio::test]
async fn whoever_gives_up_or_goes_away_waits_for_nothing_more() {
    // S-284
    let server = server().await;
    let (mut gone, mut detached) = (server.admitted().await, server.admitted().await);
    for client in [&mut gone, &mut detached] {
        let attach = session_receiver(0, SESSIONS, Value::Null);
        client.give(&[Performative::Attach(Box::new(attach))]).await;
        assert_eq!(client.said_before_echo().await, []);
    }
    drop(gone);
    let detach = Detach { handle: 0, closed: true, error: None };
    detached.give(&[Performative::Detach(detach)]).await;
    // What was never answered is answered and ended at once.
    let answer = performatives(&detached.write().await);
    assert!(matches!(&answer[..], [Performative::Attach(_), Performative::Detach(_)]), "{answer:?}");
    let mut client = server.admitted().await;
    fill(&mut client, &["a"]).await;
    let reply = client.attached(session_receiver(0, SESSIONS, Value::Null)).await;
    assert_eq!(filter_of(&reply), filter("a".into()));
}

#[tokio::test]
async fn a_held_session_is_refused_until_its_link_or_its_connection_ends() {
    // S-142, S-143, S-147, A-5.6.17, A-6.2.4, A-6.3.2
    let server = server().await;
    let (mut holder, mut other) = (server.admitted().await, server.admitted().await);
    let mut handle = 0;
    for ends_by_detach in [true, false] {
        let reply = holder.attached(session_receiver(0, SESSIONS, "empty".into())).await;
        assert_eq!(filter_of(&reply), filter("empty".into()));
        handle += 1;
        let refused = other.refused(session_receiver(handle, SESSIONS, "empty".into())).await;
        assert_eq!(refused.condition, "com.microsoft:session-cannot-be-locked");
        if ends_by_detach {
            holder.detach(0).await;
        } else {
            holder = server.admitted().await;
        }
        // The connection is gone; the broker hears of it a moment later.
        loop {
            handle += 1;
            if other.attach(session_receiver(handle, SESSIONS, "empty".into())).await[0].accepts() {
                other.detach(handle).await;
                break;
            }
        }
    }
}

#[tokio::test]
async fn receivers_and_entities_must_agree_on_sessions() {
    // S-140, A-6.2.6
    let server = server().await;
    let mut client = server.admitted().await;
    let plain = client.refused(receiver(0, SESSIONS)).await;
    let session = client.refused(session_receiver(1, QUEUE, "a".into())).await;
    assert_eq!((&*plain.condition, &*session.condition), ("amqp:not-allowed", "amqp:not-allowed"));
    let words = "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.";
    assert!(plain.description.unwrap().starts_with(words));
    let words = "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.";
    assert!(session.description.unwrap().starts_with(words));
    client.attached(receiver(2, "sessions/$DeadLetterQueue")).await;
}

#[tokio::test]
async fn a_session_that_is_not_exclusive_is_not_implemented() {
    //
    let server = server().await;
    let mut client = server.admitted().await;
    let mut attach = receiver(0, SESSIONS);
    let key = symbol("com.microsoft:non-exclusive-session-filter:list");
    attach.source.as_mut().unwrap().filter = Value::Map(vec![(key, Value::List(vec![]))]);
    assert_eq!(client.refused(attach).await.condition, "amqp:not-implemented");
    let error = client.refused(session_receiver(1, SESSIONS, Value::Int(7))).await;
    assert_eq!(error.condition, "com.microsoft:argument-error");
}

#[tokio::test]
async fn the_holder_keeps_a_state_and_renews_its_lock_and_nobody_else_does() {
    // S-149, A-7.6.1, A-7.6.2, A-7.6.3, A-7.6.5, A-1.6.1
    let server = server().await;
    let (mut client, mut other) = (server.admitted().await, server.admitted().await);
    client.attached(session_receiver(0, SESSIONS, "a".into())).await;
    managing::attach(&mut client, NODE, 100).await;
    managing::attach(&mut other, NODE, 100).await;
    let session = || ("session-id", Value::from("a"));
    let got = ask(&mut client, "get-session-state", vec![session()]).await;
    assert_eq!((&got.status, got.body.get("session-state")), (&Value::Int(200), Some(&Value::Null)));
    for state in [b"one".to_vec(), vec![7; 50_000]] {
        let given = ("session-state", Value::Binary(state.clone()));
        let set = ask(&mut client, "set-session-state", vec![session(), given]).await;
        assert_eq!((set.status, set.body), (Value::Int(200), Value::Map(vec![])));
        let got = ask(&mut client, "get-session-state", vec![session()]).await;
        assert_eq!(got.body.get("session-state"), Some(&Value::Binary(state)));
    }
    let set = ask(&mut client, "set-session-state", vec![session(), ("session-state", Value::Null)]).await;
    assert_eq!(set.status, Value::Int(200));
    let got = ask(&mut client, "get-session-state", vec![session()]).await;
    assert_eq!(got.body.get("session-state"), Some(&Value::Null));
    let renewed = ask(&mut client, "renew-session-lock", vec![session()]).await;
    assert!(matches!(renewed.body.get("expiration"), Some(Value::Timestamp(_))), "{renewed:?}");
    for operation in ["get-session-state", "set-session-state", "renew-session-lock"] {
        let refused = ask(&mut other, operation, vec![session()]).await;
        assert_eq!(refused.status, Value::Int(410), "{operation}");
        assert_eq!(refused.condition, condition("com.microsoft:session-lock-lost"));
        let refused = ask(&mut other, operation, vec![]).await;
        assert_eq!(refused.status, Value::Int(400), "{operation} names no session");
    }
}

#[tokio::test]
async fn sessions_are_listed_as_an_array_of_strings_and_none_are_204() {
    // S-150, A-7.6.4, A-9.3.2
    let server = server().await;
    let mut client = server.admitted().await;
    managing::attach(&mut client, NODE, 100).await;
    let page = |skip: i32| {
        let since = Value::Timestamp(253_402_300_800_000);
        vec![("last-updated-time", since), ("skip", Value::Int(skip)), ("top", Value::Int(2))]
    };
    let nothing = ask(&mut client, "get-message-sessions", page(0)).await;
    assert_eq!(nothing.status, Value::Int(204));
    assert_eq!(nothing.condition, condition("com.microsoft:session-not-found"));
    fill(&mut client, &["a", "b", "a", "c"]).await;
    let (mut all, mut skip) = (Vec::new(), 0);
    loop {
        let listed = ask(&mut client, "get-message-sessions", page(skip)).await;
        let Some(Value::Array(Array { elements, .. })) = listed.body.get("sessions-ids") else { break };
        skip += elements.len() as i32;
        assert_eq!(listed.body.get("skip"), Some(&Value::Int(skip)));
        all.extend(elements.iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    all.sort();
    assert_eq!(all, ["a", "b", "c"]);
}

#[tokio::test]
async fn peek_and_deferred_receive_know_the_session_by_its_id_or_by_the_link_of_its_holder() {
    // S-125, S-134, A-7.1.5, A-7.3.2, A-11.58
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a", "b", "a"]).await;
    let attach = session_receiver(0, SESSIONS, "a".into());
    let name = attach.name.clone();
    client.attached(attach).await;
    client.credit(0, 0, 1).await;
    let first = client.delivery().await;
    let defer = |undeliverable_here| State::Modified {
        delivery_failed: false,
        undeliverable_here,
        message_annotations: Value::Null,
    };
    assert_eq!(client.settle(first.id, defer(true)).await, defer(true));
    managing::attach(&mut client, NODE, 100).await;
    let bodies =
        |reply: &managing::Reply| messages(reply).iter().map(|each| body(each)[0]).collect::<Vec<_>>();
    let all = ask(&mut client, "peek-message", peek(1, 9)).await;
    assert_eq!(bodies(&all), [0, 1, 2]);
    let mut named = peek(1, 9);
    named.push(("session-id", "b".into()));
    assert_eq!(bodies(&ask(&mut client, "peek-message", named).await), [1], "S-134: nobody holds it");
    assert_eq!(bodies(&ask_for(&mut client, &name, "peek-message", peek(1, 9)).await), [0, 2]);
    let numbers = || vec![("sequence-numbers", longs(&[1])), ("receiver-settle-mode", Value::Uint(1))];
    let refused = ask(&mut client, "receive-by-sequence-number", numbers()).await;
    assert_eq!((refused.status, refused.condition), (Value::Int(400), condition("amqp:not-allowed")));
    let mut other = numbers();
    other.push(("session-id", "b".into()));
    let refused = ask(&mut client, "receive-by-sequence-number", other).await;
    assert_eq!(refused.condition, condition("com.microsoft:session-lock-lost"));
    let received = ask_for(&mut client, &name, "receive-by-sequence-number", numbers()).await;
    assert_eq!(bodies(&received), [0]);
    let Some(Value::List(entries)) = received.body.get("messages") else { panic!("{received:?}") };
    let token = entries[0].get("lock-token").unwrap().clone();
    let tokens = || ("lock-tokens", Value::Array(Array::of(&Value::Uuid([0; 16]), vec![token.clone()])));
    let status = || ("disposition-status", Value::from("completed"));
    let settled = ask(&mut client, "update-disposition", vec![status(), tokens()]).await;
    assert_eq!(settled.status, Value::Int(200));
    //
    let again = ask(&mut client, "update-disposition", vec![status(), tokens()]).await;
    assert_eq!(
        (again.status, again.condition),
        (Value::Int(410), condition("com.microsoft:session-lock-lost"))
    );
}

#[tokio::test]
async fn a_holder_is_known_by_its_link_on_the_entity_that_is_asked_and_on_no_other() {
    // a link's name says nothing of the entity, and clients may give it twice.
    let server = server().await;
    server.queue("other", QueueSettings { requires_session: true, ..QueueSettings::default() }).await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a", "b"]).await;
    managing::attach(&mut client, NODE, 100).await;
    let attach = |handle, entity, session: &str| Attach {
        name: "twice".into(),
        ..session_receiver(handle, entity, session.into())
    };
    client.attached(attach(0, "other", "b")).await;
    let renewed = ask_for(&mut client, "twice", "renew-session-lock", vec![]).await;
    assert_eq!(
        renewed.status,
        Value::Int(400),
        "of the other entity a session is held, and none of this one"
    );
    let all = ask_for(&mut client, "twice", "peek-message", peek(1, 9)).await;
    assert_eq!(messages(&all).len(), 2, "nobody's session is meant");
    client.attached(attach(1, SESSIONS, "a")).await;
    let own = ask_for(&mut client, "twice", "peek-message", peek(1, 9)).await;
    assert_eq!(messages(&own).iter().map(|each| body(each)[0]).collect::<Vec<_>>(), [0]);
}

#[tokio::test]
async fn messages_of_a_session_show_the_end_of_its_lock_and_their_group() {
    //
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a"]).await;
    let reply = client.attached(session_receiver(0, SESSIONS, "a".into())).await;
    client.credit(0, 0, 1).await;
    let delivery = client.delivery().await;
    assert_eq!(list(&delivery.message, |sections| sections.properties)[10], "a".into());
    let annotations = crate::client::map(&delivery.message, |sections| sections.message_annotations);
    let Some(Value::Timestamp(until)) = annotations.get("x-opt-locked-until") else { panic!() };
    let ticks = Value::Long(until * 10_000 + 621_355_968_000_000_000);
    assert_eq!(reply.properties.get("com.microsoft:locked-until-utc"), Some(&ticks));
}

#[tokio::test]
async fn a_message_without_a_session_or_with_another_partition_key_is_refused() {
    // S-7, S-20, A-4.4.7
    let server = server().await;
    let mut client = server.admitted().await;
    client.sender(0, SESSIONS).await;
    let key = |key: &str| {
        part(section::MESSAGE_ANNOTATIONS, Value::Map(vec![(symbol("x-opt-partition-key"), key.into())]))
    };
    let differing = [key("b"), message_of("a", b"x")].concat();
    for message in [crate::client::message(b"x"), differing] {
        let State::Rejected(Some(error)) = client.send(0, &message).await else { panic!() };
        assert_eq!(error.condition, "amqp:not-allowed");
    }
    assert_eq!(client.send(0, &[key("a"), message_of("a", b"x")].concat()).await, State::Accepted);
}

#[tokio::test]
async fn a_lock_that_runs_out_detaches_its_link_and_counts_and_a_renewed_one_does_not() {
    // S-92, S-148, A-5.6.10, A-6.3.1, A-6.3.2, A-6.3.3, A-7.6.1
    let server = server().await;
    let mut client = server.admitted().await;
    fill(&mut client, &["a", "b"]).await;
    managing::attach(&mut client, NODE, 100).await;
    client.attached(session_receiver(0, SESSIONS, "a".into())).await;
    client.attached(session_receiver(1, SESSIONS, "b".into())).await;
    client.credit(0, 0, 1).await;
    let tag = client.delivery().await.tag;
    let pass = |seconds| {
        let by = broker::Span::seconds(seconds);
        server.ask(move |request| Command::Advance { request, namespace: NamespaceId(0), by })
    };
    pass(40).await;
    let renewed = ask(&mut client, "renew-session-lock", vec![("session-id", "b".into())]).await;
    assert_eq!(renewed.status, Value::Int(200));
    pass(40).await;
    let frame = client.next().await;
    let Performative::Detach(Detach { handle: 0, closed: true, error: Some(error) }) = frame.performative
    else {
        panic!("{frame:?}")
    };
    assert_eq!(error.condition, "com.microsoft:session-lock-lost");
    let mut token: [u8; 16] = tag.try_into().unwrap();
    token[..4].reverse();
    token[4..6].reverse();
    token[6..8].reverse();
    let tokens = Value::Array(Array::of(&Value::Uuid([0; 16]), vec![Value::Uuid(token)]));
    let late = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens)];
    let late = ask(&mut client, "update-disposition", late).await;
    assert_eq!(
        (late.status, late.condition),
        (Value::Int(410), condition("com.microsoft:session-lock-lost"))
    );
    let lost = ask(&mut client, "renew-session-lock", vec![("session-id", "a".into())]).await;
    assert_eq!(lost.status, Value::Int(410));
    client.attached(session_receiver(2, SESSIONS, "a".into())).await;
    client.credit(2, 0, 1).await;
    let again = client.delivery().await;
    assert_eq!(list(&again.message, |sections| sections.header)[4], Value::Uint(1));
    client.credit(1, 0, 1).await;
    let other = client.delivery().await;
    assert_eq!((other.handle, client.settle(other.id, State::Accepted).await), (1, State::Accepted));
}

#[tokio::test]
async fn the_empty_session_is_a_session_like_any_other() {
    // K-4
    let server = server().await;
    let mut client = server.admitted().await;
    client.sender(9, SESSIONS).await;
    let key = (symbol("x-opt-partition-key"), "another".into());
    let annotations = part(section::MESSAGE_ANNOTATIONS, Value::Map(vec![key]));
    for text in [b"0", b"1"] {
        let sent = [annotations.clone(), message_of("", text)].concat();
        assert_eq!(client.send(9, &sent).await, State::Accepted, "its key is not compared");
    }
    for (handle, asked, text) in [(1, "".into(), b"0"), (2, Value::Null, b"1")] {
        let attached = client.attached(session_receiver(handle, SESSIONS, asked)).await;
        assert_eq!(filter_of(&attached), filter("".into()));
        client.credit(handle, 0, 1).await;
        let delivery = client.delivery().await;
        assert_eq!(body(&delivery.message), text);
        assert_eq!(list(&delivery.message, |sections| sections.properties)[10], "".into());
        assert_eq!(client.settle(delivery.id, State::Accepted).await, State::Accepted);
        client.detach(handle).await;
    }
}
