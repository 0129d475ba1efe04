//! Links to entities: how their addresses are read, what the reply says, and how one is refused or lost.

use crate::client::{message, performatives, receiver, sender, symbol, taker};
use crate::managing::NODE;
use crate::server::{QUEUE, TestServer};
use amqp::performative::{Close, Performative, Transfer};
use amqp::{AnyTarget, Attach, ReceiverSettleMode, Role, SenderSettleMode, Source, State, Target};
use broker::{Command, NamespaceId, QueueSettings, Status};
use message::Value;
use otobus_gateway::account::Account;
use otobus_gateway::limits::{CONNECTION_FREE_BYTES, CONNECTIONS_BYTES, GREEDY_LINKS};
use std::sync::Arc;

/// What a link is told that has the server hold more than it may.
const TOO_MUCH: &str = "amqp:resource-limit-exceeded";

/// Every way in which a client writes the address of the queue.
const SPELLINGS: [&str; 6] = [
    "orders",
    "/orders",
    "amqps://bus.example:5672/orders",
    "sb://bus.example/orders/",
    "ORDERS",
    "/%6Frders",
];

#[tokio::test]
async fn a_sender_s_attach_is_repeated_with_limits_and_credit_in_the_same_write() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    for (handle, address) in (0..).zip(SPELLINGS) {
        let asked = sender(handle, address);
        let written = client.attach(asked.clone()).await;
        let [Performative::Attach(reply), Performative::Flow(flow)] = &performatives(&written)[..] else {
            panic!("{written:?}")
        };
        let most = Some(1_024 * 1_024);
        let batch = vec![(symbol("com.microsoft:max-message-batch-size"), Value::Ulong(1_024 * 1_024))];
        let expected = Attach {
            role: Role::Receiver,
            max_message_size: most,
            properties: Value::Map(batch),
            initial_delivery_count: None,
            ..asked
        };
        assert_eq!(**reply, expected);
        assert_eq!((flow.handle, flow.delivery_count), (Some(handle), Some(0)));
        assert_eq!(flow.link_credit, Some(1_000));
        assert!(flow.next_incoming_id.is_some(), "A-1.6.5");
    }
}

#[tokio::test]
async fn a_receiver_s_attach_is_repeated_with_a_count_and_without_a_limit() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    for (handle, address) in (0..).zip(SPELLINGS) {
        for asked in [receiver(handle, address), taker(handle + 100, address)] {
            let reply = client.attached(asked.clone()).await;
            let expected = Attach { role: Role::Sender, initial_delivery_count: Some(0), ..asked };
            assert_eq!(reply, expected);
        }
    }
}

#[tokio::test]
async fn settle_modes_come_back_as_they_were_asked_for() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    let sending = [None, Some(SenderSettleMode::Unsettled), Some(SenderSettleMode::Mixed)];
    let receiving = [None, Some(ReceiverSettleMode::First), Some(ReceiverSettleMode::Second)];
    let mut handle = 0;
    for snd_settle_mode in sending {
        for rcv_settle_mode in receiving {
            for asked in [sender(handle, QUEUE), receiver(handle + 1, QUEUE)] {
                let reply = client.attached(Attach { snd_settle_mode, rcv_settle_mode, ..asked }).await;
                assert_eq!(
                    (reply.snd_settle_mode, reply.rcv_settle_mode),
                    (snd_settle_mode, rcv_settle_mode)
                );
            }
            handle += 2;
        }
    }
}

#[tokio::test]
async fn what_a_client_says_beyond_its_needs_is_passed_over() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    let properties = Value::Map(vec![
        (symbol("com.microsoft:epoch"), Value::Long(7)),
        (symbol("com.microsoft:timeout"), Value::Uint(60_000)),
        (symbol("com.microsoft:receiver-name"), "me".into()),
    ]);
    let capabilities = Value::List(vec![symbol("queue")]);
    let source = Source {
        address: Some(QUEUE.into()),
        distribution_mode: Some("move".into()),
        capabilities: capabilities.clone(),
        ..Source::default()
    };
    let asked =
        Attach { source: Some(source), properties, desired_capabilities: capabilities, ..receiver(0, QUEUE) };
    client.attached(asked).await;
    let without_source = Attach { source: Some(Source::default()), ..sender(1, QUEUE) };
    client.attached(Attach { name: "n".repeat(200), ..without_source }).await;
    let target = Some(AnyTarget::Target(Target::default()));
    client.attached(Attach { target, ..receiver(2, QUEUE) }).await;
}

#[tokio::test]
async fn a_link_to_nothing_is_refused_in_one_write_with_the_known_words() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    for attach in [sender(0, "nowhere"), receiver(1, "nowhere")] {
        let error = client.refused(attach).await;
        assert_eq!(error.condition, "amqp:not-found");
        let text = error.description.unwrap();
        let (sentence, tracking) = text.split_once(" TrackingId:").unwrap();
        assert_eq!(sentence, "The messaging entity 'sb://bus.example/nowhere' could not be found.");
        assert!(tracking.contains(", SystemTracker:bus.example:nowhere, Timestamp:"), "{tracking}");
    }
    client.sender(2, QUEUE).await;
}

#[tokio::test]
async fn a_disabled_queue_says_so() {
    //
    let server = TestServer::new().await;
    let settings = QueueSettings { status: Status::SendDisabled, ..QueueSettings::default() };
    server.queue("closed", settings).await;
    let mut client = server.admitted().await;
    let error = client.refused(sender(0, "closed")).await;
    assert_eq!(error.condition, "com.microsoft:entity-disabled");
    client.receiver(1, "closed").await;
}

#[tokio::test]
async fn a_session_receiver_is_refused_where_there_are_no_sessions() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    let filter = Value::Map(vec![(symbol("com.microsoft:session-filter"), Value::Null)]);
    let source = Source { address: Some(QUEUE.into()), filter, ..Source::default() };
    let error = client.refused(Attach { source: Some(source), ..receiver(0, QUEUE) }).await;
    assert_eq!(error.condition, "amqp:not-allowed");
}

#[tokio::test]
async fn links_of_a_deleted_queue_are_detached_and_the_session_stays() {
    //
    let server = TestServer::new().await;
    server.queue("short-lived", QueueSettings::default()).await;
    let mut client = server.admitted().await;
    client.sender(0, "short-lived").await;
    client.receiver(1, "short-lived").await;
    let (namespace, path) = (NamespaceId(0), "short-lived".into());
    server.ask(|request| Command::DeleteEntity { request, namespace, path }).await;
    for _ in 0..2 {
        let frame = client.next().await;
        let Performative::Detach(detach) = frame.performative else { panic!("{frame:?}") };
        assert!(detach.closed);
        assert_eq!(detach.error.unwrap().condition, "amqp:not-found");
    }
    client.sender(2, QUEUE).await;
}

#[tokio::test]
async fn a_detached_link_s_name_and_handle_are_free_at_once() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    for _ in 0..3 {
        client.receiver(0, QUEUE).await;
        let detach = client.detach(0).await;
        assert_eq!((detach.handle, detach.closed, detach.error), (0, true, None));
        assert_eq!(client.said_so_far().await, [], "once");
    }
}

#[tokio::test]
async fn one_name_may_be_attached_twice_and_from_another_connection() {
    //
    let server = TestServer::new().await;
    let mut first = server.admitted().await;
    let mut second = server.admitted().await;
    for (client, handle) in [(&mut first, 0), (&mut second, 0)] {
        client.attached(Attach { name: "same".into(), ..receiver(handle, QUEUE) }).await;
        client.attached(Attach { name: "same".into(), ..receiver(handle + 1, QUEUE) }).await;
    }
    assert_eq!(first.said_so_far().await, []);
}

#[tokio::test]
async fn a_link_that_ends_because_too_much_is_held_leaves_the_others_until_there_are_too_many_such() {
    // P7
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    let greedy = 1..=GREEDY_LINKS as u32 + 1;
    for handle in greedy.clone() {
        client.sender(handle, NODE).await;
    }
    let mut others = Account::new(Arc::clone(&server.state.accounts));
    others.hold(CONNECTIONS_BYTES + CONNECTION_FREE_BYTES);
    for handle in greedy.clone() {
        // A request of which the end does not come.
        client.transfer(Transfer { handle, more: true, ..Transfer::default() }, &[0; 60_000]).await;
        let frame = client.next().await;
        let Performative::Detach(detach) = frame.performative else { panic!("{frame:?}") };
        assert_eq!((detach.handle, detach.error.unwrap().condition.as_ref()), (handle, TOO_MUCH));
        if handle < *greedy.end() {
            assert_eq!(client.send(0, &message(b"m")).await, State::Accepted);
        }
    }
    let frame = client.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
}
