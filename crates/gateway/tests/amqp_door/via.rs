//! Sending to one entity by way of another: what the reply says, who may do it, and where messages end.

use crate::claims::{PYTHON, ended, put, reply, soon, token};
use crate::client::{body, map, message, part, sender, symbol, via};
use crate::server::{QUEUE, ROOT, SENDER, TestServer, policies};
use amqp::State;
use broker::{Answer, Command, NamespaceId, QueueSettings, Status, Task};
use message::Value;
use message::sections::section;
use otobus_gateway::limits::CLAIM_REVIEW;

const DESTINATION: &str = "elsewhere";
const LOST: &str = "orders/$Transfer/$DeadLetterQueue";

async fn server() -> TestServer {
    let server = TestServer::new().await;
    server.queue(DESTINATION, QueueSettings::default()).await;
    server
}

async fn set_status(server: &TestServer, status: Status) {
    let settings = QueueSettings { status, ..QueueSettings::default() };
    let task = Task::UpdateQueue { path: DESTINATION.into(), settings, access: Vec::new() };
    server.ask(|request| Command::Manage { request, namespace: NamespaceId(0), task: Box::new(task) }).await;
}

async fn lost(server: &TestServer) -> u64 {
    let (path, namespace) = (QUEUE.into(), NamespaceId(0));
    let described = |request| Command::DescribeEntity { request, namespace, path };
    match server.state.engine.ask(described).await.unwrap().unwrap() {
        Answer::Queue(queue) => queue.counts.transfer_dead_letter,
        other => panic!("{other:?}"),
    }
}

// S-114, A-4.4.16
#[tokio::test]
async fn the_destination_comes_back_in_the_reply_and_has_the_message_with_its_annotations() {
    let server = server().await;
    let mut client = server.admitted().await;
    for (handle, address) in (0..).zip([DESTINATION, "sb://bus.example/ElseWhere"]) {
        let answer = client.attached(via(handle, QUEUE, address)).await;
        let told = answer.properties.get("com.microsoft:transfer-destination-address");
        assert_eq!(told, Some(&address.into()));
        let key = (symbol("x-opt-via-partition-key"), "k".into());
        let mut sent = part(section::MESSAGE_ANNOTATIONS, Value::Map(vec![key]));
        sent.extend(message(b"x"));
        assert_eq!(client.send(handle, &sent).await, State::Accepted);
    }
    client.receiver(5, DESTINATION).await;
    client.credit(5, 0, 2).await;
    for _ in 0..2 {
        let received = client.delivery().await.message;
        let annotations = map(&received, |sections| sections.message_annotations);
        assert_eq!(annotations.get("x-opt-via-partition-key"), Some(&"k".into()));
        assert_eq!(body(&received), b"x");
    }
}

// S-114, A-4.4.16
#[tokio::test]
async fn a_destination_that_is_missing_or_no_text_is_refused() {
    let server = server().await;
    let mut client = server.admitted().await;
    for (handle, path, destination) in [(0, QUEUE, "nowhere"), (1, "nowhere", DESTINATION)] {
        assert_eq!(client.refused(via(handle, path, destination)).await.condition, "amqp:not-found");
    }
    let property = (symbol("com.microsoft:transfer-destination-address"), Value::Uint(1));
    let odd = amqp::Attach { properties: Value::Map(vec![property]), ..sender(2, QUEUE) };
    assert_eq!(client.refused(odd).await.condition, "com.microsoft:argument-error");
    client.attached(via(3, QUEUE, DESTINATION)).await;
    let (path, namespace) = (DESTINATION.into(), NamespaceId(0));
    server.ask(|request| Command::DeleteEntity { request, namespace, path }).await;
    let State::Rejected(Some(error)) = client.send(3, &message(b"x")).await else { panic!() };
    assert_eq!(error.condition, "amqp:not-found");
}

// S-114, A-4.4.16: one claim for each end, and the link ends with either.
#[tokio::test]
async fn a_claim_for_one_end_is_not_enough() {
    let server = server().await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    for (handle, path, other) in [(5, QUEUE, DESTINATION), (6, DESTINATION, QUEUE)] {
        let scope = format!("sb%3a%2f%2fbus.example%2f{path}");
        let token = token(&scope, SENDER, soon());
        put(&format!("sb://bus.example/{path}")).with(token).send(&mut client, &PYTHON, true).await;
        assert_eq!(reply(&client.next().await).status, Value::Int(202));
        if handle == 5 {
            for attach in [via(5, path, other), via(6, other, path)] {
                assert_eq!(client.refused(attach).await.condition, "amqp:unauthorized-access");
            }
        }
    }
    client.attached(via(7, QUEUE, DESTINATION)).await;
    assert_eq!(client.send(7, &message(b"x")).await, State::Accepted);
    server.set_policies(Vec::new());
    tokio::time::pause();
    tokio::time::advance(CLAIM_REVIEW).await;
    tokio::time::resume();
    assert_eq!(ended(&client.next().await), (7, "amqp:unauthorized-access".into()));
}

// S-114, A-4.4.16: each end has its claim, and the link ends with either.
#[tokio::test]
async fn the_loss_of_the_claim_for_either_end_ends_the_link() {
    for gone in [SENDER, ROOT] {
        let server = server().await;
        let mut client = server.stranger().await;
        PYTHON.attach(&mut client, 10).await;
        for (path, policy) in [(QUEUE, SENDER), (DESTINATION, ROOT)] {
            let token = token(&format!("sb%3a%2f%2fbus.example%2f{path}"), policy, soon());
            put(&format!("sb://bus.example/{path}")).with(token).send(&mut client, &PYTHON, true).await;
            assert_eq!(reply(&client.next().await).status, Value::Int(202));
        }
        client.attached(via(7, QUEUE, DESTINATION)).await;
        server.set_policies(policies().into_iter().filter(|policy| &*policy.name != gone).collect());
        tokio::time::pause();
        tokio::time::advance(CLAIM_REVIEW).await;
        tokio::time::resume();
        assert_eq!(ended(&client.next().await), (7, "amqp:unauthorized-access".into()), "{gone}");
    }
}

// S-114, S-115
#[tokio::test]
async fn what_a_disabled_destination_does_not_take_is_received_from_the_transfer_dead_letter_queue() {
    let server = server().await;
    let mut client = server.admitted().await;
    client.attached(via(0, QUEUE, DESTINATION)).await;
    set_status(&server, Status::SendDisabled).await;
    assert_eq!(client.send(0, &message(b"lost")).await, State::Accepted);
    assert_eq!(lost(&server).await, 1);
    client.receiver(1, LOST).await;
    client.credit(1, 0, 2).await;
    let first = client.delivery().await;
    assert_eq!(body(&first.message), b"lost");
    let properties = map(&first.message, |sections| sections.application_properties);
    assert_eq!(properties.get("DeadLetterReason"), Some(&"DestinationDisabled".into()));
    assert!(properties.get("DeadLetterErrorDescription").is_some());
    let abandoned = State::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: Value::Null,
    };
    client.settle(first.id, abandoned).await;
    let again = client.delivery().await;
    assert_eq!(client.settle(again.id, State::Accepted).await, State::Accepted);
    assert_eq!(lost(&server).await, 0);
    set_status(&server, Status::Active).await;
    assert_eq!(client.send(0, &message(b"x")).await, State::Accepted);
}
