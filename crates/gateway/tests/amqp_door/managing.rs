//! The management node of a queue: what it answers, to whom, in which types, and to nobody who may not ask.

use crate::client::{Client, Frame, body, list, map, message, part, receiver, sender};
use crate::server::{KEY, QUEUE, READER, TestServer};
use amqp::performative::{Flow, Performative, Transfer};
use amqp::{AnyTarget, Attach, State, Target};
use broker::QueueSettings;
use message::Value;
use message::sections::section;
use message::value::Array;
use otobus_gateway::limits::{LARGE_REPLIES_BYTES, LARGE_REPLY_BYTES, REPLIES_WAITING_BYTES};

pub const NODE: &str = "orders/$management";
pub const REQUESTS: u32 = 20;
const REPLIES: u32 = 21;

/// A reply as a client takes it apart.
#[derive(Debug)]
pub struct Reply {
    correlation: Value,
    pub status: Value,
    pub condition: Option<Value>,
    pub text: Value,
    pub body: Value,
}

/// Attaches both links of the node, the one for replies with some credit.
pub async fn attach(client: &mut Client, node: &str, credit: u32) {
    client.attached(sender(REQUESTS, node)).await;
    let target = Target { address: Some("my-replies".into()), ..Target::default() };
    let replies = Attach { target: Some(AnyTarget::Target(target)), ..receiver(REPLIES, node) };
    client.attached(replies).await;
    client.credit(REPLIES, 0, credit).await;
}

fn request(id: Value, operation: &str, arguments: Vec<(&str, Value)>) -> Vec<u8> {
    request_for(None, id, operation, arguments)
}

fn request_for(link: Option<&str>, id: Value, operation: &str, arguments: Vec<(&str, Value)>) -> Vec<u8> {
    let properties = vec![id, Value::Null, Value::Null, Value::Null, "my-replies".into()];
    let arguments = arguments.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let operation = ("operation".into(), format!("com.microsoft:{operation}").as_str().into());
    let mut out = part(section::PROPERTIES, Value::List(properties));
    let link = link.map(|name| ("associated-link-name".into(), name.into()));
    let told = [operation].into_iter().chain(link).collect();
    out.extend(part(section::APPLICATION_PROPERTIES, Value::Map(told)));
    out.extend(part(section::VALUE, Value::Map(arguments)));
    out
}

pub async fn ask(client: &mut Client, operation: &str, arguments: Vec<(&str, Value)>) -> Reply {
    let settled = Transfer { handle: REQUESTS, settled: Some(true), ..Transfer::default() };
    client.transfer(settled, &request("id".into(), operation, arguments)).await;
    reply(client).await
}

/// Asks with a transfer that has a state.
pub async fn ask_as(
    client: &mut Client,
    state: Option<State>,
    operation: &str,
    arguments: Vec<(&str, Value)>,
) -> Reply {
    let settled = Transfer { handle: REQUESTS, settled: Some(true), state, ..Transfer::default() };
    client.transfer(settled, &request("id".into(), operation, arguments)).await;
    reply(client).await
}

/// How a message is scheduled for a far day.
pub fn schedule(text: &[u8]) -> (&'static str, Vec<(&'static str, Value)>) {
    let time = (Value::Symbol("x-opt-scheduled-enqueue-time".into()), Value::Timestamp(4_000_000_000_000));
    let mut scheduled = part(section::MESSAGE_ANNOTATIONS, Value::Map(vec![time]));
    scheduled.extend(message(text));
    let entry = vec![("message-id".into(), "1".into()), ("message".into(), Value::Binary(scheduled))];
    ("schedule-message", vec![("messages", Value::List(vec![Value::Map(entry)]))])
}

/// Asks as the receiver on a link of that name.
pub async fn ask_for(
    client: &mut Client,
    link: &str,
    operation: &str,
    arguments: Vec<(&str, Value)>,
) -> Reply {
    let settled = Transfer { handle: REQUESTS, settled: Some(true), ..Transfer::default() };
    client.transfer(settled, &request_for(Some(link), "id".into(), operation, arguments)).await;
    reply(client).await
}

async fn reply(client: &mut Client) -> Reply {
    let delivery = client.delivery().await;
    assert_eq!((delivery.handle, delivery.is_settled), (REPLIES, true));
    let told = map(&delivery.message, |sections| sections.application_properties);
    Reply {
        correlation: list(&delivery.message, |sections| sections.properties)[5].clone(),
        status: told.get("statusCode").unwrap().clone(),
        condition: told.get("errorCondition").cloned(),
        text: told.get("statusDescription").unwrap().clone(),
        body: map(&delivery.message, |sections| sections.body),
    }
}

pub fn peek(from: i64, count: i32) -> Vec<(&'static str, Value)> {
    vec![("from-sequence-number", Value::Long(from)), ("message-count", Value::Int(count))]
}

pub fn longs(numbers: &[i64]) -> Value {
    let elements = numbers.iter().copied().map(Value::Long).collect();
    Value::Array(Array::of(&Value::Long(0), elements))
}

pub fn condition(text: &str) -> Option<Value> {
    Some(Value::Symbol(text.into()))
}

/// The encoded messages of a reply.
pub fn messages(reply: &Reply) -> Vec<Vec<u8>> {
    let Some(Value::List(entries)) = reply.body.get("messages") else { panic!("{reply:?}") };
    entries
        .iter()
        .map(|entry| match entry.get("message") {
            Some(Value::Binary(message)) => message.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A client with so many messages in the queue, and the node attached.
async fn with_messages(server: &TestServer, count: u8) -> Client {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    for number in 0..count {
        assert_eq!(client.send(0, &message(&[number])).await, State::Accepted);
    }
    attach(&mut client, NODE, 100).await;
    client
}

#[tokio::test]
async fn peek_answers_with_whole_messages_and_204_when_there_are_none() {
    // S-8, S-133, A-7.3.1
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 3).await;
    let found = ask(&mut client, "peek-message", peek(2, 9)).await;
    assert_eq!((&found.status, &found.condition), (&Value::Int(200), &None));
    let found = messages(&found);
    assert_eq!(found.iter().map(|each| body(each)).collect::<Vec<_>>(), [[1], [2]]);
    let annotations = map(&found[0], |sections| sections.message_annotations);
    assert_eq!(annotations.get("x-opt-sequence-number"), Some(&Value::Long(2)));
    assert_eq!(annotations.get("x-opt-message-state"), Some(&Value::Int(0)));
    assert_eq!(annotations.get("x-opt-locked-until"), None);
    let nothing = ask(&mut client, "peek-message", peek(4, 9)).await;
    assert_eq!(nothing.status, Value::Int(204));
    assert_eq!(nothing.condition, condition("com.microsoft:message-not-found"));
    assert_eq!(nothing.body, Value::Map(vec![]));
}

#[tokio::test]
async fn a_message_is_peeked_without_its_body_if_asked_so() {
    // an option of JavaScript.
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 1).await;
    let mut arguments = peek(1, 1);
    arguments.push(("omit-message-body", Value::Boolean(true)));
    let [found] = &messages(&ask(&mut client, "peek-message", arguments).await)[..] else { panic!() };
    let sections = message::Sections::scan(found).unwrap();
    assert!(!sections.body.is_present() && sections.message_annotations.is_present());
}

#[tokio::test]
async fn what_is_unknown_or_wrong_is_answered_at_once() {
    //
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 1).await;
    let unknown = ask(&mut client, "open-sesame", vec![]).await;
    assert_eq!(unknown.status, Value::Int(501));
    assert_eq!(unknown.condition, condition("amqp:not-implemented"));
    let argument = condition("com.microsoft:argument-error");
    for (operation, arguments) in [
        ("peek-message", vec![("message-count", Value::Int(1))]),
        ("renew-lock", vec![("lock-tokens", "one".into())]),
        ("cancel-scheduled-message", vec![]),
        ("schedule-message", vec![("messages", Value::List(vec![Value::Null]))]),
        ("update-disposition", vec![("disposition-status", "completed".into())]),
        ("batch-delete-messages", vec![("message-count", Value::Int(1))]),
    ] {
        let wrong = ask(&mut client, operation, arguments).await;
        assert_eq!((wrong.status, &wrong.condition), (Value::Int(400), &argument), "{operation}");
        assert!(
            matches!(&wrong.text, Value::String(text) if text.contains("TrackingId:")),
            "{:?}",
            wrong.text
        );
    }
    let range = ask(&mut client, "peek-message", peek(1, 0)).await;
    assert_eq!(range.condition, condition("com.microsoft:argument-out-of-range"));
    let session = [peek(1, 1), vec![("session-id", "s".into())]].concat();
    assert_eq!(ask(&mut client, "peek-message", session).await.status, Value::Int(204));
    let number = ask(&mut client, "cancel-scheduled-message", vec![("sequence-numbers", longs(&[1]))]).await;
    assert_eq!(number.status, Value::Int(404));
    assert_eq!(number.condition, condition("com.microsoft:message-not-found"));
}

#[tokio::test]
async fn each_reply_repeats_the_id_of_its_request_in_its_own_type() {
    //
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 0).await;
    for id in [Value::Uuid([9; 16]), "text".into(), Value::Ulong(4)] {
        let request = request(id.clone(), "peek-message", peek(1, 1));
        let unsettled = Transfer { handle: REQUESTS, ..Transfer::default() };
        assert_eq!(client.send_as(unsettled, &request).await, State::Accepted);
        assert_eq!(reply(&mut client).await.correlation, id);
    }
}

#[tokio::test]
async fn a_reply_waits_for_credit_and_each_credit_brings_one() {
    // Java grants one at a time, and late.
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    client.send(0, &message(b"m")).await;
    attach(&mut client, NODE, 0).await;
    for id in 1..=3 {
        let settled = Transfer { handle: REQUESTS, settled: Some(true), ..Transfer::default() };
        client.transfer(settled, &request(Value::Ulong(id), "peek-message", peek(1, 1))).await;
    }
    assert_eq!(client.said_so_far().await, [], "no credit, no answer");
    for id in 1..=3 {
        client.credit(REPLIES, id as u32 - 1, 1).await;
        assert_eq!(reply(&mut client).await.correlation, Value::Ulong(id));
        assert_eq!(client.said_so_far().await, [], "one credit, one answer");
    }
}

#[tokio::test]
async fn answers_that_nobody_took_cost_no_other_link_once_theirs_is_gone() {
    // P7: what a link held is given back with it, however often one comes and goes.
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    let long = "x".repeat(60_000);
    for _ in 0..=REPLIES_WAITING_BYTES / long.len() {
        attach(&mut client, NODE, 0).await;
        let request = request(Value::Null, &long, vec![]);
        let unsettled = Transfer { handle: REQUESTS, ..Transfer::default() };
        assert_eq!(client.send_as(unsettled, &request).await, State::Accepted);
        for handle in [REQUESTS, REPLIES] {
            assert_eq!(client.detach(handle).await.error, None);
        }
    }
    attach(&mut client, NODE, 0).await;
    for id in 1..=2 {
        let unsettled = Transfer { handle: REQUESTS, ..Transfer::default() };
        let request = request(Value::Ulong(id), "peek-message", peek(1, 1));
        assert_eq!(client.send_as(unsettled, &request).await, State::Accepted);
    }
    client.credit(REPLIES, 0, 2).await;
    for id in 1..=2 {
        assert_eq!(reply(&mut client).await.correlation, Value::Ulong(id));
    }
}

#[tokio::test]
async fn a_scheduled_message_is_peeked_with_the_life_that_it_will_have() {
    // S-44, S-68: its life begins when it is due, which is no part of it.
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 0).await;
    for ttl in [Value::Uint(90_000), Value::Null] {
        let header = part(section::HEADER, Value::List(vec![Value::Null, Value::Null, ttl.clone()]));
        let (operation, arguments) = schedule(b"later");
        let Value::List(entries) = &arguments[0].1 else { unreachable!("a list of messages") };
        let Some(Value::Binary(message)) = entries[0].get("message") else { unreachable!("as bytes") };
        let message = Value::Binary([header, message.clone()].concat());
        let entry = Value::Map(vec![("message-id".into(), "1".into()), ("message".into(), message)]);
        let scheduled = ask(&mut client, operation, vec![("messages", Value::List(vec![entry]))]).await;
        let Some(Value::Array(numbers)) = scheduled.body.get("sequence-numbers") else {
            panic!("{scheduled:?}")
        };
        let number = numbers.elements[0].as_integer().unwrap();
        let found = &messages(&ask(&mut client, "peek-message", peek(number, 1)).await)[0];
        assert_eq!(list(found, |sections| sections.header)[2], ttl);
    }
}

#[tokio::test]
async fn who_may_only_listen_peeks_and_does_not_schedule() {
    // S-178 and: schedule and cancel need Send, the others Listen.
    let server = TestServer::new().await;
    let mut client = server.silent();
    client.log_in("PLAIN", Some(format!("\0{READER}\0{KEY}").as_bytes())).await;
    client.open_with_defaults().await;
    client.begin(0, 5_000).await;
    attach(&mut client, NODE, 100).await;
    assert_eq!(ask(&mut client, "peek-message", peek(1, 1)).await.status, Value::Int(204));
    let entry = Value::Map(vec![("message".into(), Value::Binary(message(b"m")))]);
    for (operation, arguments) in [
        ("schedule-message", vec![("messages", Value::List(vec![entry]))]),
        ("cancel-scheduled-message", vec![("sequence-numbers", longs(&[1]))]),
    ] {
        let denied = ask(&mut client, operation, arguments).await;
        assert_eq!(denied.status, Value::Int(401), "{operation}");
        assert_eq!(denied.condition, condition("amqp:unauthorized-access"));
    }
}

#[tokio::test]
async fn a_stranger_gets_no_node() {
    //
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    let refused = client.refused(sender(REQUESTS, NODE)).await;
    assert_eq!(refused.condition, "amqp:unauthorized-access");
}

#[tokio::test]
async fn scheduled_numbers_and_renewed_locks_come_as_arrays() {
    // Java ignores lists, Go refuses them.
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 1).await;
    let due = Value::Timestamp(i64::MAX / 4);
    let annotations = Value::Map(vec![(Value::Symbol("x-opt-scheduled-enqueue-time".into()), due)]);
    let scheduled = [part(section::MESSAGE_ANNOTATIONS, annotations), message(b"later")].concat();
    let entry = Value::Map(vec![("message".into(), Value::Binary(scheduled))]);
    let entries = Value::List(vec![entry.clone(), entry]);
    let answer = ask(&mut client, "schedule-message", vec![("messages", entries)]).await;
    assert_eq!(answer.status, Value::Int(200));
    assert_eq!(answer.body.get("sequence-numbers"), Some(&longs(&[2, 3])));

    client.receiver(1, QUEUE).await;
    client.credit(1, 0, 1).await;
    let mut tag = <[u8; 16]>::try_from(client.delivery().await.tag).unwrap();
    // The token in the byte order of requests.
    tag[..4].reverse();
    tag[4..6].reverse();
    tag[6..8].reverse();
    let tokens = Value::Array(Array::of(&Value::Uuid([0; 16]), vec![Value::Uuid(tag)]));
    let answer = ask(&mut client, "renew-lock", vec![("lock-tokens", tokens.clone())]).await;
    let Some(Value::Array(expirations)) = answer.body.get("expirations") else { panic!("{answer:?}") };
    assert!(matches!(expirations.elements[..], [Value::Timestamp(_)]));

    let complete = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens.clone())];
    assert_eq!(ask(&mut client, "update-disposition", complete.clone()).await.status, Value::Int(200));
    for (operation, arguments) in
        [("update-disposition", complete), ("renew-lock", vec![("lock-tokens", tokens)])]
    {
        let lost = ask(&mut client, operation, arguments).await;
        assert_eq!(lost.status, Value::Int(410));
        assert_eq!(lost.condition, condition("com.microsoft:message-lock-lost"));
    }
}

#[tokio::test]
async fn messages_are_deleted_without_being_received() {
    // S-240, A-7.10.1
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 3).await;
    let delete = |count| {
        vec![("message-count", Value::Int(count)), ("enqueued-time-utc", Value::Timestamp(i64::MAX / 4))]
    };
    let deleted = ask(&mut client, "batch-delete-messages", delete(2)).await;
    assert_eq!(deleted.body.get("message-count"), Some(&Value::Int(2)));
    assert_eq!(messages(&ask(&mut client, "peek-message", peek(1, 9)).await).len(), 1);
    assert_eq!(ask(&mut client, "batch-delete-messages", delete(9)).await.status, Value::Int(200));
    let nothing = ask(&mut client, "batch-delete-messages", delete(9)).await;
    assert_eq!(nothing.status, Value::Int(204));
    assert_eq!(nothing.condition, condition("com.microsoft:message-not-found"));
}

#[tokio::test]
async fn a_large_message_is_peeked_whole() {
    // In parts on disk, and in no cache.
    let server = TestServer::new().await;
    let mut client = with_a_large_message(&server, QUEUE, 900_000).await;
    let settled = Transfer {
        handle: REQUESTS,
        delivery_id: Some(1),
        delivery_tag: Some(b"u"),
        settled: Some(true),
        ..Transfer::default()
    };
    let mut bytes = Vec::new();
    Performative::Transfer(settled).write(&mut bytes, 0, &request("id".into(), "peek-message", peek(1, 9)));
    client.raw(&bytes).await;
    let [found] = &messages(&reply(&mut client).await)[..] else { panic!() };
    assert_eq!(body(found), [7; 900_000]);
}

#[tokio::test]
async fn a_large_message_is_peeked_without_its_body_if_asked_so() {
    //
    let server = TestServer::new().await;
    let mut client = with_a_large_message(&server, QUEUE, 900_000).await;
    client.next_delivery = 1;
    let mut arguments = peek(1, 1);
    arguments.push(("omit-message-body", Value::Boolean(true)));
    let [found] = &messages(&ask(&mut client, "peek-message", arguments).await)[..] else { panic!() };
    let sections = message::Sections::scan(found).unwrap();
    assert!(!sections.body.is_present() && sections.message_annotations.is_present());
}

/// A client that has sent one message in many frames, as its first delivery, and has the node of the queue attached.
async fn with_a_large_message(server: &TestServer, queue: &str, size: usize) -> Client {
    let mut client = server.admitted().await;
    client.sender(0, queue).await;
    let large = message(&vec![7; size]);
    let mut pieces = large.chunks(60_000).peekable();
    while let Some(piece) = pieces.next() {
        let more = pieces.peek().is_some();
        let transfer =
            Transfer { delivery_id: Some(0), delivery_tag: Some(b"t"), more, ..Transfer::default() };
        let mut bytes = Vec::new();
        Performative::Transfer(transfer).write(&mut bytes, 0, piece);
        client.raw(&bytes).await;
    }
    assert_eq!(client.outcome(0).await, State::Accepted);
    attach(&mut client, &format!("{queue}/$management"), 100).await;
    client
}

#[tokio::test]
async fn a_large_answer_is_503_while_others_take_all_the_room_and_comes_when_there_is_some() {
    //
    let server = TestServer::new().await;
    let settings = QueueSettings { max_message_kilobytes: Some(4_096), ..QueueSettings::default() };
    server.queue("large", settings).await;
    let size = LARGE_REPLY_BYTES + 1;
    let mut client = with_a_large_message(&server, "large", size).await;
    let others = server.state.large_replies.reserve(LARGE_REPLIES_BYTES).expect("the first finds room");
    let refused = ask(&mut client, "peek-message", peek(1, 1)).await;
    assert_eq!(refused.status, Value::Int(503), "{:?}", refused.text);
    assert_eq!(refused.condition, condition("com.microsoft:server-busy"));
    drop(others);
    let found = ask(&mut client, "peek-message", peek(1, 1)).await;
    assert_eq!(found.status, Value::Int(200), "{:?}", found.text);
    assert_eq!(body(&messages(&found)[0]).len(), size);
}

#[tokio::test]
async fn the_room_of_a_large_answer_is_taken_until_its_client_has_taken_the_answer() {
    // P7, A-7.1.18
    let server = TestServer::new().await;
    let settings = QueueSettings { max_message_kilobytes: Some(4_096), ..QueueSettings::default() };
    server.queue("large", settings).await;
    let mut client = with_a_large_message(&server, "large", LARGE_REPLY_BYTES + 1_000_000).await;
    let narrow = |incoming_window| Flow { incoming_window, ..Flow::default() };
    client.flow(narrow(2)).await;
    client.next_delivery = 1;
    let settled = Transfer { handle: REQUESTS, settled: Some(true), ..Transfer::default() };
    client.transfer(settled, &request("id".into(), "peek-message", peek(1, 1))).await;
    let is_transfer = |frame: &Frame| matches!(frame.performative, Performative::Transfer(_));
    for _ in 0..2 {
        assert!(is_transfer(&client.next().await));
    }
    // One more, so that the server looks again at what is yet to be sent.
    client.flow(narrow(1)).await;
    assert!(is_transfer(&client.next().await));
    let has_room = || server.state.large_replies.reserve(LARGE_REPLIES_BYTES).is_some();
    assert!(!has_room());
    client.flow(narrow(5_000)).await;
    while let Performative::Transfer(Transfer { more: true, .. }) = client.next().await.performative {}
    assert!(client.said_before_echo().await.is_empty());
    assert!(has_room());
}

#[tokio::test]
async fn a_time_out_of_either_name_and_type_is_passed_over() {
    // Go calls it otherwise and gives it another type. However short it is, the answer is the same.
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 1).await;
    let names = ["com.microsoft:server-timeout", "server-timeout"];
    for (name, time) in names.into_iter().flat_map(|name| [(name, Value::Uint(0)), (name, Value::Ulong(1))]) {
        let mut asked = part(section::PROPERTIES, Value::List(vec!["id".into()]));
        let told = [("operation", "com.microsoft:peek-message".into()), (name, time.clone())];
        let told = told.into_iter().map(|(name, value)| (name.into(), value)).collect();
        asked.extend(part(section::APPLICATION_PROPERTIES, Value::Map(told)));
        let arguments = peek(1, 1).into_iter().map(|(name, value)| (name.into(), value)).collect();
        asked.extend(part(section::VALUE, Value::Map(arguments)));
        let settled = Transfer { handle: REQUESTS, settled: Some(true), ..Transfer::default() };
        client.transfer(settled, &asked).await;
        let found = reply(&mut client).await;
        assert_eq!(found.status, Value::Int(200), "{name} as {time:?}: {:?}", found.text);
        assert_eq!(messages(&found).len(), 1);
    }
}

// a request in two frames, after one of which only the beginning came.
#[tokio::test]
async fn an_aborted_request_leaves_nothing_for_the_next_one() {
    let server = TestServer::new().await;
    let mut client = with_messages(&server, 1).await;
    let whole = request("id".into(), "peek-message", peek(0, 1));
    let (beginning, end) = whole.split_at(20);
    let begun = Transfer { handle: REQUESTS, settled: Some(true), more: true, ..Transfer::default() };
    let id = client.transfer(begun.clone(), beginning).await;
    let abort = Transfer { delivery_id: Some(id), aborted: true, ..begun.clone() };
    client.give(&[Performative::Transfer(abort)]).await;
    client.transfer(begun, beginning).await;
    let mut bytes = Vec::new();
    let last = Transfer { handle: REQUESTS, ..Transfer::default() };
    Performative::Transfer(last).write(&mut bytes, 0, end);
    client.raw(&bytes).await;
    let reply = reply(&mut client).await;
    assert_eq!((&reply.status, messages(&reply).len()), (&Value::Int(200), 1));
}

// what two nodes answer under one address comes on the link of the node that was asked.
#[tokio::test]
async fn two_nodes_with_one_reply_address_answer_each_on_its_own_link() {
    let server = TestServer::new().await;
    server.queue("others", QueueSettings::default()).await;
    let mut client = server.admitted().await;
    let pairs = [(30, 31, NODE), (32, 33, "others/$management"), (34, 35, NODE)];
    for (requests, replies, node) in pairs {
        client.attached(sender(requests, node)).await;
        let target = Target { address: Some("my-replies".into()), ..Target::default() };
        let attach = Attach { target: Some(AnyTarget::Target(target)), ..receiver(replies, node) };
        client.attached(attach).await;
        client.credit(replies, 0, 5).await;
    }
    for (requests, replies, node) in [pairs[1], pairs[0], pairs[1], pairs[2]] {
        let transfer = Transfer { handle: requests, settled: Some(true), ..Transfer::default() };
        client.transfer(transfer, &request("id".into(), "peek-message", peek(0, 1))).await;
        let answered = client.delivery().await.handle;
        let ours = pairs.iter().filter(|pair| pair.2 == node).map(|pair| pair.1);
        assert!(ours.clone().any(|handle| handle == answered), "{node}: {answered}, not {replies}");
    }
}
