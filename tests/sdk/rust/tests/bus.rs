//! Two clients of the bus that are written in Rust: `fe2o3-amqp`, a plain AMQP 1.0 client with transactions, and
//! `azservicebus`, which follows the .NET SDK.

use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::client::service_bus_client::WithCustomRetryPolicy;
use azservicebus::core::BasicRetryPolicy;
use azservicebus::{ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge as _, TransactionPosting as _, TransactionRetirement as _,
};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use otobus_sdk_rust::{BUS_KEY, Otobus, POLICY};
use std::time::Duration;

const ENTITIES: &str = "[[queue]]\nname = \"orders\"\n\n[[queue]]\nname = \"shipped\"\n\n\
                        [[queue]]\nname = \"parcels\"\nrequires_session = true\n";
/// Long enough for a message that is there, paid in full where a test proves that none is.
const WAIT: Duration = Duration::from_secs(2);

struct Client {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

async fn connect(server: &Otobus) -> Client {
    let url = format!("amqp://{POLICY}:{BUS_KEY}@localhost:{}", server.bus_port);
    let mut connection = Connection::open("plain", url.as_str()).await.expect("a connection");
    let session = Session::begin(&mut connection).await.expect("a session");
    Client { connection, session }
}

impl Client {
    async fn sender(&mut self, queue: &str) -> Sender {
        Sender::attach(&mut self.session, format!("to {queue}"), queue).await.expect("a sender")
    }

    async fn receiver(&mut self, queue: &str) -> Receiver {
        Receiver::attach(&mut self.session, format!("from {queue}"), queue).await.expect("a receiver")
    }

    async fn close(mut self) {
        self.session.end().await.expect("a session that ends");
        self.connection.close().await.expect("a connection that closes");
    }
}

async fn next(receiver: &mut Receiver) -> Option<Delivery<String>> {
    tokio::time::timeout(WAIT, receiver.recv::<String>()).await.ok().map(|came| came.expect("a delivery"))
}

/// Everything that a queue hands out, taken.
async fn taken(server: &Otobus, queue: &str) -> Vec<String> {
    let mut client = connect(server).await;
    let mut receiver = client.receiver(queue).await;
    let mut bodies = Vec::new();
    while let Some(delivery) = next(&mut receiver).await {
        receiver.accept(&delivery).await.expect("an answer");
        bodies.push(delivery.body().clone());
    }
    receiver.close().await.expect("a receiver that closes");
    client.close().await;
    bodies
}

#[tokio::test]
async fn a_plain_client_sends_accepts_releases_and_rejects() {
    let server = Otobus::start_with(ENTITIES);
    let mut client = connect(&server).await;
    let mut sender = client.sender("orders").await;
    for body in ["a", "b"] {
        let outcome = sender.send(body).await.expect("an outcome");
        assert!(outcome.is_accepted(), "{outcome:?}");
    }
    let mut receiver = client.receiver("orders").await;
    let first = next(&mut receiver).await.expect("a message");
    receiver.release(&first).await.expect("an answer");
    let mut rejected = Vec::new();
    for _ in 0..2 {
        let delivery = next(&mut receiver).await.expect("a message");
        receiver.reject(&delivery, None).await.expect("an answer");
        rejected.push(delivery.body().clone());
    }
    rejected.sort();
    assert_eq!(rejected, ["a", "b"]);
    client.close().await;
    assert_eq!(taken(&server, "orders/$DeadLetterQueue").await.len(), 2);
}

/// The steps of a transaction that moves a message from one queue to another and sends one more.
const STEPS: usize = 5;

async fn begun(server: &Otobus, steps: usize, commit: bool) {
    let mut client = connect(server).await;
    let mut orders = client.receiver("orders").await;
    let mut shipped = client.sender("shipped").await;
    let delivery = next(&mut orders).await.expect("a message");
    let controller = Controller::attach(&mut client.session, "controller").await.expect("a coordinator");
    if steps == 0 {
        return;
    }
    let mut transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    // The server is to be killed, not told.
    transaction.set_rollback_on_drop_trials(0);
    if steps > 1 {
        let outcome = transaction.post(&mut shipped, "first").await.expect("an outcome");
        assert!(outcome.is_accepted(), "{outcome:?}");
    }
    if steps > 2 {
        transaction.post(&mut shipped, "second").await.expect("an outcome");
    }
    if steps > 3 {
        transaction.accept(&mut orders, &delivery).await.expect("an outcome");
    }
    match (steps > 4, commit) {
        (true, true) => transaction.commit().await.expect("a commit"),
        (true, false) => transaction.rollback().await.expect("a roll-back"),
        (false, _) => {}
    }
}

// S-210, S-213, A-8
#[tokio::test]
async fn a_transaction_happens_whole_or_not_at_all_wherever_the_server_is_killed() {
    futures::future::join_all((0..=STEPS).map(is_whole_when_killed_after)).await;
}

async fn is_whole_when_killed_after(steps: usize) {
    let mut server = Otobus::start_with(ENTITIES);
    connect(&server).await.sender("orders").await.send("order").await.expect("an outcome");
    begun(&server, steps, true).await;
    server.restart();
    let (orders, shipped): (&[&str], &[&str]) =
        if steps == STEPS { (&[], &["first", "second"]) } else { (&["order"], &[]) };
    assert_eq!(taken(&server, "orders").await, orders, "killed after step {steps}");
    assert_eq!(taken(&server, "shipped").await, shipped, "killed after step {steps}");
}

// S-216
#[tokio::test]
async fn a_transaction_that_is_rolled_back_leaves_everything_as_it_was() {
    let server = Otobus::start_with(ENTITIES);
    connect(&server).await.sender("orders").await.send("order").await.expect("an outcome");
    begun(&server, STEPS, false).await;
    assert_eq!(taken(&server, "shipped").await, [""; 0]);
}

async fn service_bus(server: &Otobus) -> ServiceBusClient<BasicRetryPolicy> {
    WithCustomRetryPolicy::<BasicRetryPolicy>::unsecured()
        // It drops the port of a connection string's endpoint.
        .new_from_named_key_credential(
            format!("localhost:{}", server.bus_port),
            AzureNamedKeyCredential::new(POLICY, BUS_KEY),
            ServiceBusClientOptions::default(),
        )
        .await
        .expect("a client")
}

// K-2, K-11: this client takes the lock token from the delivery annotations, or takes the tag the wrong way round
#[tokio::test]
async fn azservicebus_sends_batches_receives_renews_and_settles() {
    let server = Otobus::start_with(ENTITIES);
    let mut client = service_bus(&server).await;
    let mut sender = client.create_sender("orders", Default::default()).await.expect("a sender");
    let mut batch = sender.create_message_batch(Default::default()).expect("a batch");
    for number in 0..3 {
        batch.try_add_message(ServiceBusMessage::new(format!("message {number}"))).expect("room");
    }
    sender.send_message_batch(batch).await.expect("an answer");
    let mut receiver =
        client.create_receiver_for_queue("orders", Default::default()).await.expect("a receiver");
    let mut messages = Vec::new();
    while messages.len() < 3 {
        messages.extend(receiver.receive_messages(3).await.expect("messages"));
    }
    let before = messages[0].locked_until();
    receiver.renew_message_lock(&mut messages[0]).await.expect("a renewed lock");
    assert!(messages[0].locked_until() > before);
    receiver.complete_message(&messages[0]).await.expect("an answer");
    receiver.abandon_message(&messages[1], None).await.expect("an answer");
    receiver.dead_letter_message(&messages[2], Default::default()).await.expect("an answer");
    let again = receiver.receive_message().await.expect("the message that was abandoned");
    assert_eq!(again.body().expect("a body"), b"message 1");
    receiver.complete_message(&again).await.expect("an answer");
    let dead = client.create_receiver_for_queue("orders/$DeadLetterQueue", Default::default()).await;
    let dead = dead.expect("a receiver").receive_message().await.expect("a dead letter");
    assert_eq!(dead.body().expect("a body"), b"message 2");
}

#[tokio::test]
async fn azservicebus_accepts_a_session_and_schedules() {
    let server = Otobus::start_with(ENTITIES);
    let mut client = service_bus(&server).await;
    let mut sender = client.create_sender("parcels", Default::default()).await.expect("a sender");
    for number in 0..3 {
        let mut message = ServiceBusMessage::new(format!("parcel {number}"));
        message.set_session_id("anna".to_owned()).expect("a session id");
        sender.send_message(message).await.expect("an answer");
    }
    let accepted = client.accept_session_for_queue("parcels", "anna", Default::default()).await;
    let mut session = accepted.expect("a session");
    for number in 0..3 {
        let message = session.receive_message().await.expect("a message");
        assert_eq!(message.body().expect("a body"), format!("parcel {number}").as_bytes());
        session.complete_message(&message).await.expect("an answer");
    }
    session.set_session_state(b"done".to_vec()).await.expect("an answer");
    assert_eq!(session.session_state().await.expect("a state"), b"done");
}
