//! What clients say of messages they hold: every answer repeats the outcome that was asked for, and means it.

use crate::client::{Client, Delivery, list, map, message, performatives, symbol};
use crate::server::{QUEUE, TestServer};
use amqp::performative::{Disposition, Performative};
use amqp::{Role, State};
use message::Value;
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
    //
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    assert_eq!(client.settle(delivery.id, State::Accepted).await, State::Accepted);
    drop(client);
    assert!(left(&server).await.is_empty());
}

#[tokio::test]
async fn modified_gives_the_message_back_and_counts_whatever_it_says_of_failure() {
    //
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
    //
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    assert_eq!(client.settle(delivery.id, State::Released).await, State::Released);
    assert_eq!(count(&client.delivery().await), Value::Uint(0));
}

#[tokio::test]
async fn annotations_of_modified_become_application_properties() {
    //
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
async fn a_range_is_settled_whole_and_answered_in_one_frame() {
    //
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
async fn a_settled_disposition_is_obeyed_and_neither_it_nor_its_repetition_is_answered() {
    //
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
    // the second request reaches the broker before the first is answered.
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

#[tokio::test]
async fn what_a_lost_link_or_connection_held_stays_locked() {
    //
    let server = TestServer::new().await;
    let (mut client, _) = holder(&server).await;
    client.detach(1).await;
    assert!(left(&server).await.is_empty(), "the link is gone, the lock is not");
    drop(client);
    assert!(left(&server).await.is_empty(), "nor with the connection");
}
