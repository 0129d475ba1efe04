//! Dead letters, deferred and forwarded messages: what clients see of them on the wire.

use crate::client::{Client, Delivery, list, map, message, part, symbol};
use crate::managing::{ask, attach, condition, longs, messages};
use crate::server::{QUEUE, TestServer};
use amqp::{Error, State};
use broker::QueueSettings;
use message::Value;
use message::sections::section;
use message::value::Array;

const LETTERS: &str = "orders/$deadletterqueue";

/// Receives one message of a queue on a link of that handle.
async fn received(client: &mut Client, handle: u32, path: &str) -> Delivery {
    client.receiver(handle, path).await;
    client.credit(handle, 0, 10).await;
    client.delivery().await
}

/// A client that holds the only message of a queue, received on handle 1.
async fn holder(server: &TestServer) -> (Client, Delivery) {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    assert_eq!(client.send(0, &message(b"m")).await, State::Accepted);
    let delivery = received(&mut client, 1, QUEUE).await;
    (client, delivery)
}

fn annotation(message: &[u8], name: &str) -> Option<Value> {
    map(message, |sections| sections.message_annotations).get(name).cloned()
}

fn property(message: &[u8], name: &str) -> Option<Value> {
    map(message, |sections| sections.application_properties).get(name).cloned()
}

fn count(message: &[u8]) -> Value {
    list(message, |sections| sections.header)[4].clone()
}

fn dead_letter(entries: &[(&str, Value)]) -> State {
    let info = Value::Map(entries.iter().map(|(name, value)| (symbol(name), value.clone())).collect());
    let mut error = Error::new("com.microsoft:dead-letter", "words".to_owned());
    error.info = info;
    State::rejected(error)
}

fn deferred() -> State {
    State::Modified { delivery_failed: false, undeliverable_here: true, message_annotations: Value::Null }
}

fn abandoned() -> State {
    State::Modified { delivery_failed: false, undeliverable_here: false, message_annotations: Value::Null }
}

/// The lock token of a delivery, in the byte order of requests.
fn token(delivery: &Delivery) -> Value {
    let mut tag = <[u8; 16]>::try_from(&delivery.tag[..]).unwrap();
    tag[..4].reverse();
    tag[4..6].reverse();
    tag[6..8].reverse();
    Value::Uuid(tag)
}

fn tokens(token: Value) -> Value {
    Value::Array(Array::of(&Value::Uuid([0; 16]), vec![token]))
}

#[tokio::test]
async fn rejected_dead_letters_with_words_and_properties_and_is_answered_without_an_error() {
    //
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let number = annotation(&delivery.message, "x-opt-sequence-number");
    let words = [
        ("DeadLetterReason", "why".into()),
        ("DeadLetterErrorDescription", Value::Null),
        ("more", Value::Int(7)),
    ];
    assert_eq!(client.settle(delivery.id, dead_letter(&words)).await, State::Rejected(None));
    let letter = received(&mut client, 2, LETTERS).await;
    assert_eq!(property(&letter.message, "DeadLetterReason"), Some("why".into()));
    assert_eq!(property(&letter.message, "DeadLetterErrorDescription"), None, "null is not given");
    assert_eq!(property(&letter.message, "more"), Some(Value::Int(7)));
    assert_eq!(annotation(&letter.message, "x-opt-sequence-number"), number);
    assert_eq!(count(&letter.message), Value::Uint(0), "a dead letter counts nothing");
}

#[tokio::test]
async fn rejected_in_a_dead_letter_queue_is_refused_and_the_message_stays() {
    //
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    client.settle(delivery.id, State::Rejected(None)).await;
    let letter = received(&mut client, 2, LETTERS).await;
    match client.settle(letter.id, dead_letter(&[])).await {
        State::Rejected(Some(error)) => assert_eq!(error.condition, "amqp:not-allowed"),
        other => panic!("{other:?}"),
    }
    // Giving it back counts nothing there.
    let mut other = server.admitted().await;
    other.receiver(0, LETTERS).await;
    assert!(other.drain(0, 0, 1).await.0.is_empty(), "its lock is as it was");
}

#[tokio::test]
async fn a_message_that_was_given_back_too_often_is_dead_lettered_with_the_known_words() {
    //
    let server = TestServer::new().await;
    server.queue("few", QueueSettings { max_delivery_count: 2, ..QueueSettings::default() }).await;
    let mut client = server.admitted().await;
    client.sender(0, "few").await;
    client.send(0, &message(b"m")).await;
    let first = received(&mut client, 1, "few").await;
    client.settle(first.id, abandoned()).await;
    let second = client.delivery().await;
    assert_eq!(count(&second.message), Value::Uint(1));
    client.settle(second.id, abandoned()).await;
    let letter = received(&mut client, 2, "few/$DeadLetterQueue").await;
    assert_eq!(property(&letter.message, "DeadLetterReason"), Some("MaxDeliveryCountExceeded".into()));
    assert_eq!(count(&letter.message), Value::Uint(2), "it stands still at the maximum");
    client.settle(letter.id, abandoned()).await;
    let again = client.delivery().await;
    assert_eq!(count(&again.message), Value::Uint(2));
}

#[tokio::test]
async fn undeliverable_here_defers_and_counts_and_the_number_brings_it_back_with_its_token() {
    //
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    assert_eq!(client.settle(delivery.id, deferred()).await, deferred());
    attach(&mut client, "orders/$management", 100).await;
    let by_number = || vec![("sequence-numbers", longs(&[1])), ("receiver-settle-mode", Value::Uint(1))];
    let answer = ask(&mut client, "receive-by-sequence-number", by_number()).await;
    assert_eq!(answer.status, Value::Int(200));
    let Some(Value::List(entries)) = answer.body.get("messages") else { panic!("{answer:?}") };
    let told = entries[0].get("lock-token").cloned().unwrap();
    assert!(matches!(told, Value::Uuid(_)));
    let message = &messages(&answer)[0];
    let own = map(message, |sections| sections.delivery_annotations);
    assert_eq!(own.get("x-opt-lock-token"), Some(&told), "Go reads no other");
    assert!(matches!(annotation(message, "x-opt-locked-until"), Some(Value::Timestamp(_))));
    assert_eq!(annotation(message, "x-opt-message-state"), Some(Value::Int(1)));
    assert_eq!(count(message), Value::Uint(1));

    // Every word of update-disposition, by the token alone.
    let mut told = told;
    let words = [("released", 1), ("abandoned", 2), ("defered", 3)];
    for (word, counted) in words {
        let update = vec![("disposition-status", word.into()), ("lock-tokens", tokens(told))];
        let answer = ask(&mut client, "update-disposition", update).await;
        assert_eq!(answer.status, Value::Int(200), "{word}");
        let answer = ask(&mut client, "receive-by-sequence-number", by_number()).await;
        let Some(Value::List(entries)) = answer.body.get("messages") else { panic!("{word}: {answer:?}") };
        told = entries[0].get("lock-token").cloned().unwrap();
        assert_eq!(count(&messages(&answer)[0]), Value::Uint(counted), "{word}");
    }
    let suspended = vec![
        ("disposition-status", "suspended".into()),
        ("lock-tokens", tokens(told)),
        ("deadletter-reason", "why".into()),
        ("deadletter-description", "".into()),
    ];
    assert_eq!(ask(&mut client, "update-disposition", suspended).await.status, Value::Int(200));
    let letter = received(&mut client, 2, LETTERS).await;
    assert_eq!(property(&letter.message, "DeadLetterReason"), Some("why".into()));
    attach_other(&mut client, LETTERS).await;
    let completed = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(token(&letter)))];
    assert_eq!(ask(&mut client, "update-disposition", completed.clone()).await.status, Value::Int(200));
    let lost = ask(&mut client, "update-disposition", completed).await;
    assert_eq!(
        (lost.status, lost.condition),
        (Value::Int(410), condition("com.microsoft:message-lock-lost"))
    );
}

/// Goes on to the node of another entity.
async fn attach_other(client: &mut Client, path: &str) {
    client.detach(crate::managing::REQUESTS).await;
    client.detach(crate::managing::REQUESTS + 1).await;
    attach(client, &format!("{path}/$management"), 100).await;
}

#[tokio::test]
async fn where_a_message_was_before_is_told_only_if_it_was_elsewhere() {
    //
    let server = TestServer::new().await;
    let forwarding = QueueSettings { forward_to: Some(QUEUE.into()), ..QueueSettings::default() };
    server.queue("first", forwarding).await;
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    client.send(0, &message(b"plain")).await;
    let plain = received(&mut client, 1, QUEUE).await;
    for absent in [
        "x-opt-enqueue-sequence-number",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
        "x-opt-message-state",
    ] {
        assert_eq!(annotation(&plain.message, absent), None, "{absent}");
    }
    client.sender(2, "first").await;
    client.send(2, &message(b"forwarded")).await;
    let forwarded = client.delivery().await;
    assert_eq!(annotation(&forwarded.message, "x-opt-sequence-number"), Some(Value::Long(2)));
    assert_eq!(annotation(&forwarded.message, "x-opt-enqueue-sequence-number"), Some(Value::Long(1)));

    let letters = QueueSettings { forward_dead_letters_to: Some(QUEUE.into()), ..QueueSettings::default() };
    server.queue("failed", letters).await;
    client.sender(5, "failed").await;
    client.send(5, &message(b"dead")).await;
    let dead = received(&mut client, 6, "failed").await;
    client.settle(dead.id, State::Rejected(None)).await;
    let letter = client.delivery().await;
    assert_eq!(annotation(&letter.message, "x-opt-deadletter-source"), Some("failed".into()));
}

#[tokio::test]
async fn a_duplicate_is_accepted_and_is_not_there() {
    //
    let server = TestServer::new().await;
    let detecting = QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() };
    server.queue("once", detecting).await;
    let mut client = server.admitted().await;
    client.sender(0, "once").await;
    let named = [part(section::PROPERTIES, Value::List(vec!["id".into()])), message(b"m")].concat();
    for _ in 0..2 {
        assert_eq!(client.send(0, &named).await, State::Accepted);
    }
    client.receiver(1, "once").await;
    assert_eq!(client.drain(1, 0, 10).await.0.len(), 1);
}
