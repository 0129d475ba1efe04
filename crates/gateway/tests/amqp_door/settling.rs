//! What clients say of messages they hold: every answer repeats the outcome that was asked for, and means it.

use crate::client::{Client, Delivery, body, list, map, message, performatives, receiver, symbol};
use crate::managing;
use crate::server::{QUEUE, TestServer};
use crate::transactions::tokens;
use amqp::performative::{Detach, Disposition, Performative, Transfer};
use amqp::{Attach, Role, State};
use message::Value;
use otobus_gateway::limits::DISPOSITION_CHANGE_BYTES;
use std::sync::atomic::Ordering;

/// A client that holds the only message of the queue, received on handle 1.
async fn holder(server: &TestServer) -> (Client, Delivery) {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    assert_eq!(client.send(0, &message(b"m")).await, State::Accepted);
    client.receiver(1, QUEUE).await;
    client.credit(1, 0, 100).await;
    let delivery = client.delivery().await;
    (client, delivery)
}

fn modified(delivery_failed: bool, changes: Value) -> State {
    State::Modified { delivery_failed, undeliverable_here: false, message_annotations: changes }
}

fn count(delivery: &Delivery) -> Value {
    list(&delivery.message, |sections| sections.header)[4].clone()
}

/// What a receiver that comes now gets.
async fn left(server: &TestServer) -> Vec<Delivery> {
    let mut client = server.admitted().await;
    client.receiver(0, QUEUE).await;
    client.drain(0, 0, 10).await.0
}

#[tokio::test]
async fn accepted_removes_the_message_and_is_answered_with_accepted() {
    // A-0.5, A-5.6.1, A-5.6.9, A-11.7, A-11.25
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    assert_eq!(client.settle(delivery.id, State::Accepted).await, State::Accepted);
    drop(client);
    assert!(left(&server).await.is_empty());
}

#[tokio::test]
async fn modified_gives_the_message_back_and_counts_whatever_it_says_of_failure() {
    // A-5.6.2, A-5.6.9, A-5.2.3, A-5.4.3
    let server = TestServer::new().await;
    let (mut client, mut delivery) = holder(&server).await;
    assert_eq!(count(&delivery), Value::Uint(0));
    let mut tags = vec![delivery.tag.clone()];
    for (delivery_failed, failures) in [(false, 1), (true, 2), (false, 3)] {
        let answer = client.settle(delivery.id, modified(delivery_failed, Value::Null)).await;
        assert_eq!(answer, modified(false, Value::Null));
        delivery = client.delivery().await;
        assert_eq!(count(&delivery), Value::Uint(failures));
        assert!(!tags.contains(&delivery.tag), "a fresh token for each delivery");
        tags.push(delivery.tag.clone());
    }
}

#[tokio::test]
async fn released_gives_the_message_back_uncounted() {
    // A-5.6.8, A-5.6.9
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    assert_eq!(client.settle(delivery.id, State::Released).await, State::Released);
    assert_eq!(count(&client.delivery().await), Value::Uint(0));
}

#[tokio::test]
async fn annotations_of_modified_become_application_properties() {
    // A-5.6.3
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let changes = |value: Value| Value::Map(vec![(symbol("tries"), value)]);
    client.settle(delivery.id, modified(false, changes(Value::Long(3)))).await;
    let changed = client.delivery().await;
    let properties = map(&changed.message, |sections| sections.application_properties);
    assert_eq!(properties, Value::Map(vec![("tries".into(), Value::Long(3))]));
    client.settle(changed.id, modified(false, changes(Value::Null))).await;
    let removed = client.delivery().await;
    let sections = message::Sections::scan(&removed.message).unwrap();
    let properties = sections.application_properties.value(&removed.message).map(Value::decode);
    assert!(matches!(properties, None | Some(Ok(Value::Map(_)))), "{properties:?}");
    assert_eq!(properties.and_then(|map| map.ok()?.get("tries").cloned()), None);
}

#[tokio::test]
async fn a_dead_letter_reason_that_is_too_long_is_refused_by_its_own_size_and_leaves_the_lock() {
    // S-18, S-90, A-5.6.6
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let too_long = "r".repeat(40_000);
    let words =
        "the property 'DeadLetterReason' has 40021 bytes with its name; the limit of one property is 32768";
    let info = Value::Map(vec![(symbol("DeadLetterReason"), too_long.as_str().into())]);
    let asked = amqp::Error { info, ..amqp::Error::new("com.microsoft:dead-letter", "") };
    let answer = client.settle(delivery.id, State::rejected(asked)).await;
    let State::Rejected(Some(error)) = answer else { panic!("{answer:?}") };
    assert_eq!(error.condition, "com.microsoft:argument-out-of-range");
    assert!(error.description.as_ref().unwrap().starts_with(words), "{error:?}");

    managing::attach(&mut client, managing::NODE, 10).await;
    let suspend = |reason: &str| {
        let status = ("disposition-status", "suspended".into());
        vec![status, ("lock-tokens", tokens(&delivery)), ("deadletter-reason", reason.into())]
    };
    let refused = managing::ask(&mut client, "update-disposition", suspend(&too_long)).await;
    assert_eq!(refused.status, Value::Int(400));
    assert_eq!(refused.condition, managing::condition("com.microsoft:argument-out-of-range"));
    assert!(refused.text.as_str().unwrap().starts_with(words), "{refused:?}");
    let taken = managing::ask(&mut client, "update-disposition", suspend("r")).await;
    assert_eq!(taken.status, Value::Int(200), "{taken:?}");
}

#[tokio::test]
async fn a_range_is_settled_whole_and_answered_in_one_frame() {
    // A-5.6.12, A-5.6.15, A-11.54
    let server = TestServer::new().await;
    let (mut client, first) = holder(&server).await;
    for _ in 0..4 {
        client
            .transfer(
                amqp::performative::Transfer { settled: Some(true), ..Default::default() },
                &message(b"m"),
            )
            .await;
    }
    for _ in 0..4 {
        client.delivery().await;
    }
    let appends = || server.state.engine.counters().appends.load(Ordering::Relaxed);
    let before = appends();
    client.dispose(first.id, Some(first.id + 4), State::Accepted).await;
    let frame = client.next().await;
    let Performative::Disposition(answer) = frame.performative else { panic!("{frame:?}") };
    assert_eq!((answer.role, answer.settled, answer.state), (Role::Sender, true, Some(State::Accepted)));
    assert_eq!((answer.first, answer.last), (first.id, Some(first.id + 4)));
    assert_eq!(appends() - before, 1, "the answer waits for one append, whatever the range");
    drop(client);
    assert!(left(&server).await.is_empty());
}

#[tokio::test]
async fn what_one_disposition_changes_has_a_limit_over_all_messages_that_it_settles() {
    // P7
    let server = TestServer::new().await;
    let (mut client, first) = holder(&server).await;
    let change_bytes = 30_000;
    let count = DISPOSITION_CHANGE_BYTES / change_bytes + 1;
    for _ in 1..count {
        let settled = amqp::performative::Transfer { settled: Some(true), ..Default::default() };
        client.transfer(settled, &message(b"m")).await;
    }
    client.credit(1, 1, count as u32).await;
    for _ in 1..count {
        client.delivery().await;
    }
    let change = Value::Map(vec![(symbol("n"), "v".repeat(change_bytes).as_str().into())]);
    client.dispose(first.id, Some(first.id + count as u32 - 1), modified(false, change)).await;
    let mut refused = 0;
    while refused < count {
        let frame = client.next().await;
        let Performative::Disposition(answer) = frame.performative else { panic!("{frame:?}") };
        let Some(State::Rejected(Some(error))) = answer.state else { panic!("{answer:?}") };
        assert_eq!(error.condition, "com.microsoft:argument-out-of-range");
        refused += (answer.last.unwrap_or(answer.first) - answer.first) as usize + 1;
    }
    assert!(left(&server).await.is_empty(), "all are still locked");
}

#[tokio::test]
async fn a_settled_disposition_is_obeyed_and_neither_it_nor_its_repetition_is_answered() {
    // A-5.6.14, A-11.24
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let settled = Disposition {
        state: Some(State::Accepted),
        ..Disposition::new(Role::Receiver, delivery.id, delivery.id)
    };
    let unknown = Disposition { settled: false, first: 900, last: Some(901), ..settled.clone() };
    client.give(&[settled.clone(), settled, unknown].map(Performative::Disposition)).await;
    assert_eq!(performatives(&client.said_so_far().await), []);
    drop(client);
    assert!(left(&server).await.is_empty());
}

#[tokio::test]
async fn a_message_settled_a_second_time_is_lost() {
    // A-5.6.10, A-5.7.2: the second request reaches the broker before the first is answered.
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let disposition = Disposition {
        settled: false,
        state: Some(State::Accepted),
        ..Disposition::new(Role::Receiver, delivery.id, delivery.id)
    };
    client.give(&[disposition.clone(), disposition].map(Performative::Disposition)).await;
    let states = [client.next().await, client.next().await].map(|frame| match frame.performative {
        Performative::Disposition(Disposition { settled: true, state: Some(state), .. }) => state,
        other => panic!("{other:?}"),
    });
    let [State::Accepted, State::Rejected(Some(error))] = states else { panic!("{states:?}") };
    assert_eq!(error.condition, "com.microsoft:message-lock-lost");
    assert!(error.description.unwrap().contains("TrackingId:"));
}

const LEAVE: Performative<'static> = Performative::Detach(Detach { handle: 1, closed: false, error: None });
const LEFT: Performative<'static> = Performative::Detach(Detach { handle: 1, closed: true, error: None });

#[tokio::test]
async fn what_is_settled_behind_a_detach_that_does_not_close_is_answered_before_the_detach() {
    // A-1.6.7, A-11.25: Python waits for the answer, and for ever.
    for (is_one_write, settled) in [(true, false), (false, false), (true, true)] {
        let server = TestServer::new().await;
        let (mut client, delivery) = holder(&server).await;
        let accepted = Performative::Disposition(Disposition {
            settled,
            state: Some(State::Accepted),
            ..Disposition::new(Role::Receiver, delivery.id, delivery.id)
        });
        if is_one_write {
            client.give(&[LEAVE, accepted]).await;
        } else {
            client.give(&[LEAVE]).await;
            assert_eq!(client.said_before_echo().await, []);
            client.give(&[accepted]).await;
        }
        if !settled {
            let answer = client.next().await.performative;
            let Performative::Disposition(answer) = answer else { panic!("{answer:?}") };
            assert_eq!(
                (answer.first, answer.settled, answer.state),
                (delivery.id, true, Some(State::Accepted))
            );
        }
        assert_eq!(client.next().await.performative, LEFT);
        assert_eq!(client.said_so_far().await, [], "once");
        assert!(left(&server).await.is_empty());
    }
}

#[tokio::test]
async fn a_detach_behind_which_nothing_is_settled_is_answered_soon_and_brings_nothing_more() {
    // A-1.6.7, A-5.6.16
    let server = TestServer::new().await;
    let (mut client, _) = holder(&server).await;
    client.give(&[LEAVE]).await;
    client.transfer(Transfer { settled: Some(true), ..Transfer::default() }, &message(b"later")).await;
    assert_eq!(client.next().await.performative, LEFT);
    let left: Vec<_> = left(&server).await.iter().map(|delivery| body(&delivery.message)).collect();
    assert_eq!(left, [b"later"], "the first one stays locked");
}

#[tokio::test]
async fn a_link_that_leaves_gives_way_to_one_of_its_name_or_on_its_handle() {
    // A-11.18
    let server = TestServer::new().await;
    for again in [
        receiver(1, QUEUE),
        Attach { handle: 2, ..receiver(1, QUEUE) },
        Attach { handle: 1, ..receiver(2, QUEUE) },
    ] {
        let (mut client, _) = holder(&server).await;
        client.give(&[LEAVE, Performative::Attach(Box::new(again))]).await;
        assert_eq!(client.next().await.performative, LEFT);
        assert!(client.next().await.accepts());
        assert_eq!(client.said_so_far().await, []);
    }
}

#[tokio::test]
async fn what_a_lost_link_or_connection_held_stays_locked() {
    // A-5.6.16
    let server = TestServer::new().await;
    let (mut client, _) = holder(&server).await;
    client.detach(1).await;
    assert!(left(&server).await.is_empty(), "the link is gone, the lock is not");
    drop(client);
    assert!(left(&server).await.is_empty(), "nor with the connection");
}
