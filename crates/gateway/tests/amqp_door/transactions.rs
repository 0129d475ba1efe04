//! Transactions as clients write them: a coordinator's link, and the state of transfers and dispositions that are part of
//! one. The frames are those of .NET and Java, which are the clients that have transactions.

use crate::client::{Client, Delivery, body, list, message, part, sender, symbol, via};
use crate::managing;
use crate::server::{KEY, QUEUE, SENDER, TestServer};
use amqp::performative::{Disposition, Performative, Transfer};
use amqp::terminus::Coordinator;
use amqp::transaction::Request;
use amqp::{AnyTarget, Attach, Role, Source, State};
use broker::{Command, NamespaceId, QueueSettings, Task, Tier};
use message::Value;
use message::sections::section;
use message::value::Array;

const COORDINATOR: u32 = 9;

/// As .NET attaches it: the name of the link is also the address of its source.
pub fn coordinator(handle: u32) -> Attach {
    let name = format!("6a1f7d1e-0000-0000-0000-00000000000{handle}");
    let source =
        Source { address: Some(name.clone()), distribution_mode: Some("move".into()), ..Source::default() };
    Attach {
        source: Some(source),
        target: Some(AnyTarget::Coordinator(Coordinator { capabilities: Value::Null })),
        initial_delivery_count: Some(0),
        ..Attach::new(&name, handle, Role::Sender)
    }
}

/// As Java does.
fn java_coordinator(handle: u32) -> Attach {
    let capabilities = symbol("amqp:local-transactions");
    Attach {
        source: Some(Source::default()),
        target: Some(AnyTarget::Coordinator(Coordinator { capabilities })),
        initial_delivery_count: Some(0),
        ..Attach::new("coordinator", handle, Role::Sender)
    }
}

async fn tell(client: &mut Client, request: Request<'_>) -> State {
    let mut payload = Vec::new();
    request.encode(&mut payload);
    client.send_as(Transfer { handle: COORDINATOR, ..Transfer::default() }, &payload).await
}

async fn declare(client: &mut Client) -> Vec<u8> {
    match tell(client, Request::Declare).await {
        State::Declared { txn_id } => txn_id,
        other => panic!("{other:?}"),
    }
}

async fn discharge(client: &mut Client, txn_id: &[u8], fail: bool) -> State {
    tell(client, Request::Discharge { txn_id, fail }).await
}

fn within(txn_id: &[u8], outcome: Option<State>) -> State {
    State::Transactional { txn_id: txn_id.to_vec(), outcome: outcome.map(Box::new) }
}

async fn send(client: &mut Client, handle: u32, txn_id: &[u8], body: &[u8]) -> State {
    let transfer = Transfer { handle, state: Some(within(txn_id, None)), ..Transfer::default() };
    client.send_as(transfer, &message(body)).await
}

/// The token of a delivery in the byte order of requests.
pub fn tokens(delivery: &Delivery) -> Value {
    let mut token = <[u8; 16]>::try_from(&delivery.tag[..]).unwrap();
    token[..4].reverse();
    token[4..6].reverse();
    token[6..8].reverse();
    Value::Array(Array::of(&Value::Uuid(token), vec![Value::Uuid(token)]))
}

fn condition(state: &State) -> &str {
    match state {
        State::Rejected(Some(error)) => &error.condition,
        other => panic!("{other:?}"),
    }
}

/// What a receiver that comes now gets of a queue, and how often it was delivered in vain.
async fn left(server: &TestServer, path: &str) -> Vec<(Vec<u8>, Value)> {
    let mut client = server.admitted().await;
    client.receiver(0, path).await;
    let (found, _) = client.drain(0, 0, 10).await;
    for delivery in &found {
        client.settle(delivery.id, State::Released).await;
    }
    let count = |each: &Delivery| list(&each.message, |sections| sections.header)[4].clone();
    found.iter().map(|each| (body(&each.message), count(each))).collect()
}

async fn bodies(server: &TestServer, path: &str) -> Vec<Vec<u8>> {
    left(server, path).await.into_iter().map(|(body, _)| body).collect()
}

/// A client with a coordinator and a sender on handle 0.
async fn with_sender(server: &TestServer) -> Client {
    let mut client = server.admitted().await;
    client.attached(coordinator(COORDINATOR)).await;
    client.sender(0, QUEUE).await;
    client
}

/// The same, which also holds the only message of the queue, received on handle 1.
async fn holder(server: &TestServer) -> (Client, Delivery) {
    let mut client = with_sender(server).await;
    assert_eq!(client.send(0, &message(b"old")).await, State::Accepted);
    client.receiver(1, QUEUE).await;
    client.credit(1, 0, 1).await;
    let delivery = client.delivery().await;
    (client, delivery)
}

#[tokio::test]
async fn a_coordinator_needs_no_claim_and_gets_credit_with_its_attach() {
    //
    let server = TestServer::new().await;
    for attach in [coordinator(COORDINATOR), java_coordinator(COORDINATOR)] {
        let mut client = server.stranger().await;
        let target = attach.target.clone();
        let written = client.attach(attach).await;
        let [Performative::Attach(attach), Performative::Flow(flow)] =
            &crate::client::performatives(&written)[..]
        else {
            panic!("{written:?}")
        };
        assert_eq!(attach.target, target, "the target comes back as it was");
        assert!(flow.link_credit.is_some_and(|credit| credit > 0));
        assert!((1..=32).contains(&declare(&mut client).await.len()), "A-8.2");
    }
}

#[tokio::test]
async fn a_stranger_declares_only_a_few() {
    //
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    client.attached(coordinator(COORDINATOR)).await;
    for _ in 0..otobus_gateway::limits::STRANGER_TRANSACTIONS {
        declare(&mut client).await;
    }
    assert_eq!(condition(&tell(&mut client, Request::Declare).await), "amqp:unauthorized-access");
}

#[tokio::test]
async fn what_was_sent_is_there_when_it_is_committed_and_not_before() {
    // S-211, A-8.2, A-8.3, A-8.4, A-4.3.5
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let txn = declare(&mut client).await;
    for body in [b"a", b"b"] {
        let answer = send(&mut client, 0, &txn, body).await;
        assert_eq!(answer, within(&txn, Some(State::Accepted)));
    }
    assert!(bodies(&server, QUEUE).await.is_empty());
    assert_eq!(client.send(0, &message(b"beside")).await, State::Accepted);
    assert_eq!(discharge(&mut client, &txn, false).await, State::Accepted);
    assert_eq!(bodies(&server, QUEUE).await, [&b"beside"[..], b"a", b"b"]);
    assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:unknown-id");
}

#[tokio::test]
async fn what_was_sent_and_rolled_back_was_never_there() {
    // S-211, A-8.3
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let txn = declare(&mut client).await;
    send(&mut client, 0, &txn, b"a").await;
    assert_eq!(discharge(&mut client, &txn, true).await, State::Accepted);
    assert!(bodies(&server, QUEUE).await.is_empty());
}

#[tokio::test]
async fn a_settlement_is_answered_in_the_state_of_its_transaction_and_happens_with_the_commit() {
    // S-210, A-8.5, A-5.6.11
    let modified = |undeliverable_here| State::Modified {
        delivery_failed: false,
        undeliverable_here,
        message_annotations: Value::Null,
    };
    let outcomes =
        [(State::Accepted, 0), (modified(false), 1), (modified(true), 0), (State::Rejected(None), 0)];
    for (outcome, stays) in outcomes {
        let server = TestServer::new().await;
        let (mut client, delivery) = holder(&server).await;
        let txn = declare(&mut client).await;
        let answer = client.settle(delivery.id, within(&txn, Some(outcome.clone()))).await;
        assert_eq!(answer, within(&txn, Some(outcome.clone())));
        assert!(bodies(&server, QUEUE).await.is_empty(), "it is still locked");
        assert_eq!(discharge(&mut client, &txn, false).await, State::Accepted);
        assert_eq!(bodies(&server, QUEUE).await.len(), stays, "{outcome:?}");
        let dead = matches!(outcome, State::Rejected(_));
        assert_eq!(bodies(&server, "orders/$DeadLetterQueue").await.len(), usize::from(dead));
    }
}

#[tokio::test]
async fn a_settlement_that_is_rolled_back_leaves_the_message_locked_and_uncounted() {
    // S-215
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let txn = declare(&mut client).await;
    client.settle(delivery.id, within(&txn, Some(State::Accepted))).await;
    assert_eq!(discharge(&mut client, &txn, true).await, State::Accepted);
    assert!(left(&server, QUEUE).await.is_empty(), "it is still locked");
    managing::attach(&mut client, managing::NODE, 10).await;
    let tokens = tokens(&delivery);
    let arguments = vec![("disposition-status", "abandoned".into()), ("lock-tokens", tokens)];
    let reply = managing::ask(&mut client, "update-disposition", arguments).await;
    assert_eq!(reply.status, Value::Int(200), "{reply:?}");
    assert_eq!(left(&server, QUEUE).await, [(b"old".to_vec(), Value::Uint(1))]);
}

#[tokio::test]
async fn a_settlement_that_fails_is_a_plain_rejection() {
    // S-218, A-8.5
    let server = TestServer::new().await;
    let (mut client, delivery) = holder(&server).await;
    let unknown = client.settle(delivery.id, within(b"nothing", Some(State::Accepted))).await;
    assert_eq!(condition(&unknown), "amqp:transaction:unknown-id");
    let (mut other, txn) = (server.admitted().await, declare(&mut client).await);
    managing::attach(&mut other, managing::NODE, 10).await;
    let arguments = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(&delivery))];
    assert_eq!(managing::ask(&mut other, "update-disposition", arguments).await.status, Value::Int(200));
    send(&mut client, 0, &txn, b"new").await;
    managing::attach(&mut client, managing::NODE, 10).await;
    let arguments = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(&delivery))];
    let state = Some(within(&txn, None));
    let lost = managing::ask_as(&mut client, state, "update-disposition", arguments).await;
    assert_eq!(lost.status, Value::Int(410));
    assert_eq!(discharge(&mut client, &txn, false).await, State::Accepted, "that spoils nothing");
    assert_eq!(bodies(&server, QUEUE).await, [b"new"]);
}

#[tokio::test]
async fn a_settlement_that_fails_and_wants_no_answer_spoils_its_transaction() {
    // S-218: with a lock that is lost, and with what the door itself refuses.
    let unnamed = Value::Map(vec![(Value::Int(1), Value::Int(1))]);
    let wrong =
        State::Modified { delivery_failed: false, undeliverable_here: false, message_annotations: unnamed };
    for (outcome, is_lost) in [(Some(State::Accepted), true), (Some(wrong), false), (None, false)] {
        let server = TestServer::new().await;
        let (mut client, delivery) = holder(&server).await;
        let txn = declare(&mut client).await;
        send(&mut client, 0, &txn, b"new").await;
        if is_lost {
            let mut other = server.admitted().await;
            managing::attach(&mut other, managing::NODE, 10).await;
            let arguments =
                vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(&delivery))];
            let settled = managing::ask(&mut other, "update-disposition", arguments).await;
            assert_eq!(settled.status, Value::Int(200));
        }
        let settled = Disposition {
            role: Role::Receiver,
            first: delivery.id,
            last: None,
            settled: true,
            state: Some(within(&txn, outcome)),
            batchable: false,
        };
        client.give(&[Performative::Disposition(settled)]).await;
        assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:rollback");
        assert!(bodies(&server, QUEUE).await.is_empty());
    }
}

#[tokio::test]
async fn a_message_that_the_door_refuses_spoils_its_transaction() {
    // S-218, A-8.4
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let txn = declare(&mut client).await;
    send(&mut client, 0, &txn, b"good").await;
    let transfer = Transfer { handle: 0, state: Some(within(&txn, None)), ..Transfer::default() };
    assert_eq!(condition(&client.send_as(transfer, b"no message").await), "amqp:decode-error");
    assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:rollback");
    assert!(bodies(&server, QUEUE).await.is_empty());
}

#[tokio::test]
async fn a_message_on_a_link_that_was_refused_or_lost_spoils_its_transaction() {
    // S-218: the client hears of the link, and of the message by the commit.
    for is_refused in [true, false] {
        let server = TestServer::new().await;
        let mut client = with_sender(&server).await;
        let txn = declare(&mut client).await;
        send(&mut client, 0, &txn, b"good").await;
        if is_refused {
            client.refused(sender(3, "nowhere")).await;
        } else {
            server.queue("short", QueueSettings::default()).await;
            client.sender(3, "short").await;
            let delete =
                |request| Command::DeleteEntity { request, namespace: NamespaceId(0), path: "short".into() };
            server.ask(delete).await;
            let frame = client.next().await;
            assert!(matches!(frame.performative, Performative::Detach(_)), "{frame:?}");
        }
        let transfer = Transfer { handle: 3, state: Some(within(&txn, None)), ..Transfer::default() };
        client.transfer(transfer, &message(b"lost")).await;
        assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:rollback");
        assert!(bodies(&server, QUEUE).await.is_empty());
    }
}

#[tokio::test]
async fn a_request_that_is_aborted_leaves_no_transaction_to_the_next() {
    // S-210
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    managing::attach(&mut client, managing::NODE, 10).await;
    let txn = declare(&mut client).await;
    let state = Some(within(&txn, None));
    let begun = Transfer { handle: managing::REQUESTS, more: true, state, ..Transfer::default() };
    client.transfer(begun, b"the beginning").await;
    let mut bytes = Vec::new();
    let aborted = Transfer { handle: managing::REQUESTS, aborted: true, ..Transfer::default() };
    Performative::Transfer(aborted).write(&mut bytes, 0, &[]);
    client.raw(&bytes).await;
    let (operation, arguments) = managing::schedule(b"later");
    assert_eq!(managing::ask(&mut client, operation, arguments).await.status, Value::Int(200));
    assert_eq!(discharge(&mut client, &txn, true).await, State::Accepted);
    let peeked = managing::ask(&mut client, "peek-message", managing::peek(1, 10)).await;
    let Some(Value::List(seen)) = peeked.body.get("messages") else { panic!("{peeked:?}") };
    assert_eq!(seen.len(), 1, "what was answered stays");
}

#[tokio::test]
async fn a_send_that_is_aborted_leaves_no_transaction_to_the_next() {
    // S-210
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let txn = declare(&mut client).await;
    let begun = Transfer { more: true, state: Some(within(&txn, None)), ..Transfer::default() };
    client.transfer(begun, b"the beginning").await;
    client.give(&[Performative::Transfer(Transfer { aborted: true, ..Transfer::default() })]).await;
    assert_eq!(client.send(0, &message(b"on its own")).await, State::Accepted);
    assert_eq!(discharge(&mut client, &txn, true).await, State::Accepted);
    assert_eq!(bodies(&server, QUEUE).await, [b"on its own"]);
}

#[tokio::test]
async fn a_partitioned_queue_takes_messages_with_one_key() {
    // S-216
    let server = TestServer::new().await;
    server.queue("parts", QueueSettings { partitioning: true, ..QueueSettings::default() }).await;
    let mut client = server.admitted().await;
    client.attached(coordinator(COORDINATOR)).await;
    client.sender(0, "parts").await;
    let keyed = |key: &str, text: &[u8]| {
        let annotations = Value::Map(vec![(symbol("x-opt-partition-key"), key.into())]);
        [part(section::MESSAGE_ANNOTATIONS, annotations), message(text)].concat()
    };
    let mut txn = declare(&mut client).await;
    for (key, text, is_taken) in [("k", "a", true), ("k", "b", true), ("l", "c", false)] {
        let transfer = Transfer { handle: 0, state: Some(within(&txn, None)), ..Transfer::default() };
        let state = client.send_as(transfer, &keyed(key, text.as_bytes())).await;
        if is_taken {
            assert_eq!(state, within(&txn, Some(State::Accepted)), "{text}");
            continue;
        }
        assert_eq!(condition(&state), "amqp:not-allowed");
    }
    assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:rollback");
    txn = declare(&mut client).await;
    let transfer = Transfer { handle: 0, state: Some(within(&txn, None)), ..Transfer::default() };
    client.send_as(transfer, &keyed("k", b"a")).await;
    assert_eq!(discharge(&mut client, &txn, false).await, State::Accepted);
    assert_eq!(bodies(&server, "parts").await, [b"a".to_vec()]);
}

#[tokio::test]
async fn a_large_message_takes_part_whole() {
    // S-211
    let server = TestServer::new().await;
    let settings = QueueSettings { max_message_kilobytes: Some(4_096), ..QueueSettings::default() };
    server.queue("large", settings).await;
    let mut client = server.admitted().await;
    client.attached(coordinator(COORDINATOR)).await;
    client.sender(0, "large").await;
    let txn = declare(&mut client).await;
    let text: Vec<u8> = (0..2_000_000).map(|at| at as u8).collect();
    let whole = message(&text);
    let frames: Vec<_> = whole.chunks(60_000).collect();
    let id = client.next_delivery;
    client.next_delivery += 1;
    for (nth, frame) in frames.iter().enumerate() {
        let first = nth == 0;
        let transfer = Transfer {
            handle: 0,
            delivery_id: first.then_some(id),
            delivery_tag: first.then_some(b"t"),
            state: first.then(|| within(&txn, None)),
            more: nth + 1 < frames.len(),
            ..Transfer::default()
        };
        let mut bytes = Vec::new();
        Performative::Transfer(transfer).write(&mut bytes, 0, frame);
        client.raw(&bytes).await;
    }
    let staged = loop {
        let frame = client.next().await;
        if let Performative::Disposition(disposition) = frame.performative {
            break disposition.state.unwrap();
        }
    };
    assert_eq!(staged, within(&txn, Some(State::Accepted)));
    assert_eq!(discharge(&mut client, &txn, false).await, State::Accepted);
    client.receiver(1, "large").await;
    client.credit(1, 0, 1).await;
    assert_eq!(body(&client.delivery().await.message), text);
}

#[tokio::test]
async fn any_session_takes_part_and_losing_the_coordinator_rolls_back() {
    // S-213, A-8.6
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let txn = declare(&mut client).await;
    client.begin(1, 5_000).await;
    let mut bytes = Vec::new();
    Performative::Attach(Box::new(sender(0, QUEUE))).write(&mut bytes, 1, &[]);
    let state = Some(within(&txn, None));
    let transfer =
        Transfer { handle: 0, delivery_id: Some(0), delivery_tag: Some(b"t"), state, ..Transfer::default() };
    Performative::Transfer(transfer).write(&mut bytes, 1, &message(b"a"));
    client.raw(&bytes).await;
    let answer = loop {
        let frame = client.next().await;
        if let Performative::Disposition(disposition) = frame.performative {
            break (frame.channel, disposition.state.unwrap());
        }
    };
    assert_eq!(answer, (1, within(&txn, Some(State::Accepted))));
    client.detach(COORDINATOR).await;
    client.attached(coordinator(COORDINATOR)).await;
    assert_eq!(condition(&discharge(&mut client, &txn, false).await), "amqp:transaction:unknown-id");
    assert!(bodies(&server, QUEUE).await.is_empty());
}

#[tokio::test]
async fn a_schedule_a_settlement_and_a_send_by_way_of_another_entity_take_part_together() {
    // S-210, S-212, A-8.8
    let server = TestServer::new().await;
    server.queue("bills", QueueSettings::default()).await;
    for fail in [true, false] {
        let (mut client, delivery) = holder(&server).await;
        client.attached(via(5, QUEUE, "bills")).await;
        managing::attach(&mut client, managing::NODE, 10).await;
        let txn = declare(&mut client).await;
        let state = || Some(within(&txn, None));
        assert_eq!(send(&mut client, 5, &txn, b"bill").await, within(&txn, Some(State::Accepted)));
        let (operation, arguments) = managing::schedule(b"later");
        let told = managing::ask_as(&mut client, state(), operation, arguments).await;
        assert_eq!(told.status, Value::Int(200), "{told:?}");
        let renew = vec![("lock-tokens", tokens(&delivery))];
        let renewed = managing::ask_as(&mut client, state(), "renew-lock", renew).await;
        assert_eq!(renewed.status, Value::Int(200));
        let complete = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(&delivery))];
        let completed = managing::ask_as(&mut client, state(), "update-disposition", complete).await;
        assert_eq!(completed.status, Value::Int(200));
        let cancel = vec![("sequence-numbers", managing::longs(&[9]))];
        assert!(bodies(&server, "bills").await.is_empty());
        assert_eq!(discharge(&mut client, &txn, fail).await, State::Accepted);
        let after = bodies(&server, "bills").await;
        assert_eq!(after, if fail { vec![] } else { vec![b"bill".to_vec()] });
        let peeked = managing::ask(&mut client, "peek-message", managing::peek(1, 10)).await;
        let Some(Value::List(seen)) = peeked.body.get("messages") else { panic!("{peeked:?}") };
        // The message that is locked still, and later what is scheduled beside it.
        assert_eq!(seen.len(), if fail { 1 } else { 2 });
        let txn = declare(&mut client).await;
        let refused =
            managing::ask_as(&mut client, Some(within(&txn, None)), "cancel-scheduled-message", cancel).await;
        assert_eq!(refused.condition, Some(symbol("amqp:not-allowed")));
    }
}

#[tokio::test]
async fn what_is_done_within_a_transaction_takes_the_same_rights() {
    //
    let server = TestServer::new().await;
    let (_holder, delivery) = holder(&server).await;
    let mut client = server.silent();
    client.log_in("PLAIN", Some(format!("\0{SENDER}\0{KEY}").as_bytes())).await;
    client.open_with_defaults().await;
    client.begin(0, 5_000).await;
    client.attached(coordinator(COORDINATOR)).await;
    managing::attach(&mut client, managing::NODE, 10).await;
    let txn = declare(&mut client).await;
    let complete = vec![("disposition-status", "completed".into()), ("lock-tokens", tokens(&delivery))];
    let state = Some(within(&txn, None));
    let denied = managing::ask_as(&mut client, state, "update-disposition", complete).await;
    assert_eq!(denied.status, Value::Int(401));
}

#[tokio::test]
async fn a_coordinator_is_told_nothing_else_and_the_basic_tier_has_none() {
    // S-217, A-8.3
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.attached(coordinator(COORDINATOR)).await;
    let transfer = Transfer { handle: COORDINATOR, ..Transfer::default() };
    assert_eq!(condition(&client.send_as(transfer, &message(b"hello")).await), "amqp:decode-error");
    let task = Box::new(Task::SetTier { tier: Tier::Basic });
    let namespace = NamespaceId(0);
    server.ask(|request| Command::Manage { request, namespace, task }).await;
    assert_eq!(client.refused(coordinator(5)).await.condition, "amqp:not-allowed");
}

// a declaration in two frames, after one of which only the beginning came.
#[tokio::test]
async fn an_aborted_declaration_leaves_nothing_for_the_next_one() {
    let server = TestServer::new().await;
    let mut client = with_sender(&server).await;
    let mut whole = Vec::new();
    Request::Declare.encode(&mut whole);
    let (beginning, end) = whole.split_at(whole.len() / 2);
    let begun = Transfer { handle: COORDINATOR, more: true, ..Transfer::default() };
    let id = client.transfer(begun.clone(), beginning).await;
    let abort = Transfer { handle: COORDINATOR, delivery_id: Some(id), aborted: true, ..Transfer::default() };
    client.give(&[Performative::Transfer(abort)]).await;
    let id = client.transfer(begun, beginning).await;
    let mut bytes = Vec::new();
    let last = Transfer { handle: COORDINATOR, ..Transfer::default() };
    Performative::Transfer(last).write(&mut bytes, 0, end);
    client.raw(&bytes).await;
    assert!(matches!(client.outcome(id).await, State::Declared { .. }));
}
