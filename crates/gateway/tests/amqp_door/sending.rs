//! Messages from a client: what is accepted, what is refused and how, and how frames and batches are taken apart.

use crate::client::{Client, body, list, map, message, part, taker};
use crate::server::{QUEUE, TestServer};
use amqp::performative::{Close, Flow, Performative, Transfer};
use amqp::{Error, State};
use message::Value;
use message::sections::section;

/// The format of a batch.
const BATCH: Option<u32> = Some(0x8001_3700);

/// The largest message of a queue that does not say.
const MESSAGE_BYTES: usize = 1_024 * 1_024;

async fn client_of(server: &TestServer) -> Client {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    client
}

fn batch_of(messages: &[Vec<u8>]) -> Vec<u8> {
    let envelope = part(section::PROPERTIES, Value::List(vec!["the envelope's".into()]));
    let inner = messages.iter().flat_map(|inner| part(section::DATA, Value::Binary(inner.clone())));
    envelope.into_iter().chain(inner).collect()
}

/// Everything in the queue: sequence numbers and bodies.
async fn stored(server: &TestServer) -> Vec<(i64, Vec<u8>)> {
    let mut client = server.admitted().await;
    client.attached(taker(0, QUEUE)).await;
    let (deliveries, _) = client.drain(0, 0, 1_000).await;
    let number = |message: &[u8]| {
        let annotations = map(message, |sections| sections.message_annotations);
        annotations.get("x-opt-sequence-number").and_then(Value::as_integer).unwrap()
    };
    deliveries.iter().map(|each| (number(&each.message), body(&each.message))).collect()
}

fn rejection(state: State) -> Error {
    match state {
        State::Rejected(Some(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// Sends a delivery in frames of at most 60,000 bytes.
async fn send_in_frames(client: &mut Client, transfer: Transfer<'_>, payload: &[u8]) -> State {
    let mut chunks = payload.chunks(60_000).peekable();
    let first = chunks.next().unwrap();
    let more = chunks.peek().is_some();
    let id = client.transfer(Transfer { more, ..transfer.clone() }, first).await;
    while let Some(chunk) = chunks.next() {
        let later =
            Transfer { handle: transfer.handle, more: chunks.peek().is_some(), ..Transfer::default() };
        let mut bytes = Vec::new();
        Performative::Transfer(later).write(&mut bytes, 0, chunk);
        client.raw(&bytes).await;
    }
    client.outcome(id).await
}

#[tokio::test]
async fn a_send_is_settled_in_one_step_whatever_mode_was_asked_for() {
    // the link is in mode second, as Python's are.
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    assert_eq!(client.send(0, &message(b"one")).await, State::Accepted);
    assert_eq!(client.said_so_far().await, []);
    assert_eq!(stored(&server).await, [(1, b"one".to_vec())]);
}

#[tokio::test]
async fn a_settled_send_is_stored_and_gets_no_answer_good_or_bad() {
    // S-14
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let settled = Transfer { settled: Some(true), ..Transfer::default() };
    client.transfer(settled.clone(), &message(b"quiet")).await;
    client.transfer(settled, b"no message").await;
    assert_eq!(client.send(0, &message(b"loud")).await, State::Accepted, "the first answer of all");
    assert_eq!(stored(&server).await, [(1, b"quiet".to_vec()), (2, b"loud".to_vec())]);
}

#[tokio::test]
async fn delivery_tags_may_be_anything() {
    // counters of four and eight bytes, hex and decimal text, and the same one twice.
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    for (id, tag) in (0..).zip([&b""[..], b"\0\0\0\x01", b"12", b"12", &[0xff; 32]]) {
        let transfer = Transfer { delivery_id: Some(id), delivery_tag: Some(tag), ..Transfer::default() };
        let mut bytes = Vec::new();
        Performative::Transfer(transfer).write(&mut bytes, 0, &message(b"m"));
        client.raw(&bytes).await;
        assert_eq!(client.outcome(id).await, State::Accepted);
    }
}

#[tokio::test]
async fn a_delivery_tag_of_more_than_32_bytes_ends_the_connection() {
    // AMQP 1.0 part 2, 2.8.7
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let transfer = Transfer { delivery_id: Some(0), delivery_tag: Some(&[7; 33]), ..Transfer::default() };
    let mut bytes = Vec::new();
    Performative::Transfer(transfer).write(&mut bytes, 0, &message(b"m"));
    client.raw(&bytes).await;
    let frame = client.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:invalid-field");
    assert_eq!(stored(&server).await, []);
}

#[tokio::test]
async fn a_body_that_nests_too_deep_is_rejected_and_the_link_lives_on() {
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let nested = |depth: usize| {
        let mut value = Value::Null;
        for _ in 0..depth {
            value = Value::List(vec![value]);
        }
        part(section::VALUE, value)
    };
    let error = rejection(client.send(0, &nested(message::limits::VALUE_DEPTH as usize + 1)).await);
    assert_eq!(error.condition, "amqp:decode-error", "{error:?}");
    assert_eq!(client.send(0, &nested(10)).await, State::Accepted);
}

#[tokio::test]
async fn a_batch_is_stored_as_its_messages_in_order_without_its_envelope() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let format = |message_format| Transfer { message_format, ..Transfer::default() };
    let batch = batch_of(&[message(b"a"), message(b"b"), message(b"c")]);
    assert_eq!(client.send_as(format(BATCH), &batch).await, State::Accepted);
    assert_eq!(client.send_as(format(BATCH), &batch_of(&[message(b"d")])).await, State::Accepted);
    assert_eq!(client.send_as(format(Some(0)), &message(b"e")).await, State::Accepted);
    let expected: Vec<_> = (1..).zip([b"a", b"b", b"c", b"d", b"e"]).map(|(n, b)| (n, b.to_vec())).collect();
    assert_eq!(stored(&server).await, expected);
}

#[tokio::test]
async fn one_bad_message_refuses_the_whole_batch() {
    // S-16
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let transfer = Transfer { message_format: BATCH, ..Transfer::default() };
    let batch = batch_of(&[message(b"good"), b"bad".to_vec()]);
    let error = rejection(client.send_as(transfer, &batch).await);
    assert_eq!(error.condition, "amqp:decode-error");
    assert_eq!(client.send(0, &message(b"next")).await, State::Accepted);
    assert_eq!(stored(&server).await, [(1, b"next".to_vec())], "nothing of it, and no number used up");
}

#[tokio::test]
async fn frames_are_joined_and_an_aborted_delivery_is_dropped() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let long: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let state = send_in_frames(&mut client, Transfer::default(), &message(&long)).await;
    assert_eq!(state, State::Accepted);
    let whole = message(b"given up");
    let id = client.transfer(Transfer { more: true, ..Transfer::default() }, &whole[..4]).await;
    let abort = Transfer { delivery_id: Some(id), aborted: true, ..Transfer::default() };
    client.give(&[Performative::Transfer(abort)]).await;
    assert_eq!(client.send(0, &message(b"after")).await, State::Accepted);
    assert_eq!(stored(&server).await, [(1, long), (2, b"after".to_vec())]);
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_rejected_and_the_link_lives_on() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let around = message(&[0; 300]).len() - 300;
    let beyond = message(&vec![1; MESSAGE_BYTES - around + 1]);
    assert_eq!(beyond.len(), MESSAGE_BYTES + 1);
    let error = rejection(send_in_frames(&mut client, Transfer::default(), &beyond).await);
    assert_eq!(error.condition, "amqp:link:message-size-exceeded");
    assert!(error.description.unwrap().contains("TrackingId:"), "S-11");
    assert_eq!(client.send(0, &message(b"small")).await, State::Accepted);
    assert_eq!(stored(&server).await, [(1, b"small".to_vec())]);
}

#[tokio::test]
async fn a_delivery_that_fills_its_link_to_the_last_byte_is_taken_though_its_messages_have_no_ids() {
    // S-17, A-4.3.9: the JavaScript client sets no ids and fills a batch to the last byte.
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let around = message(&[0; 300]).len() - 300;
    let full = message(&vec![1; MESSAGE_BYTES - around]);
    assert_eq!(full.len(), MESSAGE_BYTES);
    assert_eq!(send_in_frames(&mut client, Transfer::default(), &full).await, State::Accepted);
    let quarter = MESSAGE_BYTES / 4 - 100;
    let first = batch_of(&vec![message(&vec![1; quarter]); 4]).len();
    let mut messages = vec![message(&vec![1; quarter]); 4];
    messages[3] = message(&vec![1; quarter + MESSAGE_BYTES - first]);
    let batch = batch_of(&messages);
    assert_eq!(batch.len(), MESSAGE_BYTES);
    let transfer = Transfer { message_format: BATCH, ..Transfer::default() };
    assert_eq!(send_in_frames(&mut client, transfer.clone(), &batch).await, State::Accepted);
    messages[3] = message(&vec![1; quarter + MESSAGE_BYTES - first + 1]);
    let state = send_in_frames(&mut client, transfer, &batch_of(&messages)).await;
    assert_eq!(rejection(state).condition, "amqp:link:message-size-exceeded");
}

#[tokio::test]
async fn a_batch_counts_with_its_envelope() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let half = message(&vec![1; MESSAGE_BYTES / 2]);
    let transfer = Transfer { message_format: BATCH, ..Transfer::default() };
    let state = send_in_frames(&mut client, transfer, &batch_of(&[half.clone(), half])).await;
    assert_eq!(rejection(state).condition, "amqp:link:message-size-exceeded");
}

#[tokio::test]
async fn what_is_wrong_with_a_message_is_said_in_the_known_conditions() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let with_id = |id: Value| part(section::PROPERTIES, Value::List(vec![id]));
    let cases = [
        (with_id("i".repeat(129).as_str().into()), "com.microsoft:argument-out-of-range"),
        (with_id(Value::Boolean(true)), "com.microsoft:argument-error"),
        (b"no message".to_vec(), "amqp:decode-error"),
        (message(b"cut short")[..8].to_vec(), "amqp:decode-error"),
    ];
    for (bad, condition) in cases {
        assert_eq!(rejection(client.send(0, &bad).await).condition, condition);
    }
    assert_eq!(client.send(0, &with_id("i".repeat(128).as_str().into())).await, State::Accepted);
}

#[tokio::test]
async fn credit_is_topped_up_at_half() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let mut credit = 1_000;
    for sent in 1..=2_500_u32 {
        client.transfer(Transfer { settled: Some(true), ..Transfer::default() }, &message(b"m")).await;
        credit -= 1;
        if sent % 100 == 0 {
            for frame in client.said_so_far().await {
                let Performative::Flow(flow) = frame.performative else { panic!("{frame:?}") };
                let left = flow.delivery_count.unwrap() + flow.link_credit.unwrap() - sent;
                assert!(left > credit);
                credit = left;
            }
        }
        assert!(credit >= 400, "{credit} left after {sent}");
    }
}

#[tokio::test]
async fn a_sender_that_overruns_its_credit_and_claims_its_own_is_served() {
    // Python does both.
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    client.credit(0, 0, 10_000).await;
    let mut bytes = Vec::new();
    for id in 0..1_500_u32 {
        let tag = id.to_be_bytes();
        let transfer = Transfer {
            delivery_id: Some(id),
            delivery_tag: Some(&tag),
            settled: Some(true),
            ..Transfer::default()
        };
        Performative::Transfer(transfer).write(&mut bytes, 0, &message(b"m"));
    }
    client.raw(&bytes).await;
    let said = client.said_so_far().await;
    assert!(
        said.iter().all(|frame| matches!(frame.performative, Performative::Flow(Flow { .. }))),
        "{said:?}"
    );
    let mut other = server.admitted().await;
    other.attached(taker(0, QUEUE)).await;
    other.credit(0, 0, 1_500).await;
    for _ in 0..1_500 {
        other.delivery().await;
    }
}

#[tokio::test]
async fn a_message_without_an_id_gets_one_and_others_keep_theirs() {
    //
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let ids = [Value::Null, "mine".into(), Value::Ulong(7), Value::Uuid([5; 16])];
    for id in &ids {
        let properties =
            part(section::PROPERTIES, Value::List(vec![id.clone(), Value::Binary(b"u".to_vec())]));
        assert_eq!(client.send(0, &[properties, message(b"m")].concat()).await, State::Accepted);
    }
    assert_eq!(client.send(0, &message(b"bare")).await, State::Accepted);
    let mut reader = server.admitted().await;
    reader.attached(taker(0, QUEUE)).await;
    let (deliveries, _) = reader.drain(0, 0, 10).await;
    let found: Vec<Value> = deliveries
        .iter()
        .map(|each| list(&each.message, |sections| sections.properties)[0].clone())
        .collect();
    assert_eq!(found[1..4], ids[1..]);
    for given in [&found[0], &found[4]] {
        let text = given.as_str().unwrap();
        assert!(text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
    }
    assert_ne!(found[0], found[4]);
}

#[tokio::test]
async fn many_sends_are_open_at_once_and_each_has_its_own_outcome() {
    // S-13: what the door refuses need not wait for what the broker is still storing.
    let server = TestServer::new().await;
    let mut client = client_of(&server).await;
    let mut expected = std::collections::BTreeMap::new();
    for number in 0..400_u32 {
        let is_bad = number % 7 == 3;
        let payload = if is_bad { b"not a message".to_vec() } else { message(&number.to_be_bytes()) };
        expected.insert(client.transfer(Transfer::default(), &payload).await, is_bad);
    }
    while !expected.is_empty() {
        let frame = client.next().await;
        let Performative::Disposition(outcome) = frame.performative else { continue };
        for id in outcome.first..=outcome.last.unwrap() {
            let is_bad = expected.remove(&id).expect("one outcome for each");
            assert_eq!(is_bad, matches!(outcome.state, Some(State::Rejected(Some(_)))), "{id}");
        }
    }
    assert_eq!(stored(&server).await.len(), 400 - 57);
}

#[tokio::test]
async fn a_link_of_a_lost_connection_is_not_resumed_and_its_sender_sends_again() {
    // S-15: with duplicate detection the second one is dropped, without it there are two.
    let server = TestServer::new().await;
    let detecting =
        broker::QueueSettings { requires_duplicate_detection: true, ..broker::QueueSettings::default() };
    server.queue("once", detecting).await;
    let known = [part(section::PROPERTIES, Value::List(vec!["id".into()])), message(b"m")].concat();
    for (path, most) in [(QUEUE, 2), ("once", 1)] {
        let mut first = server.admitted().await;
        first.sender(0, path).await;
        let id = first.transfer(Transfer::default(), &known).await;
        assert_eq!(first.outcome(id).await, State::Accepted);
        drop(first);
        let mut client = server.admitted().await;
        let tag = Value::Binary(id.to_be_bytes().to_vec());
        let unsettled = Value::Map(vec![(tag, Value::Null)]);
        let attach = amqp::Attach { unsettled, ..crate::client::sender(0, path) };
        assert_eq!(client.attached(attach).await.unsettled, Value::Null, "nothing is left to be resumed");
        assert_eq!(client.send(0, &known).await, State::Accepted);
        client.attached(taker(1, path)).await;
        assert_eq!(client.drain(1, 0, 9).await.0.len(), most, "{path}");
    }
}
