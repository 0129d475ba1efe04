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
use futures::StreamExt as _;
use otobus_sdk_rust::cut::{Cut, Proxy};
use otobus_sdk_rust::{BUS_KEY, Otobus, POLICY};
use std::fmt::Debug;
use std::time::Duration;

const ENTITIES: &str = "[[queue]]\nname = \"orders\"\n\n[[queue]]\nname = \"shipped\"\n\n\
                        [[queue]]\nname = \"parcels\"\nrequires_session = true\n";
/// Long enough for a message that is there, paid in full where a test proves that none is.
const WAIT: Duration = Duration::from_secs(2);
/// For a whole transaction, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// For a client to notice that its server has gone: at some frames `fe2o3-amqp` waits for ever.
const GRACE: Duration = Duration::from_millis(500);

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

fn lost<E: Debug>(error: E) -> String {
    format!("{error:?}")
}

/// The whole transaction through a port, as far as the server lives.
async fn commit(port: u16) -> Result<(), String> {
    let url = format!("amqp://{POLICY}:{BUS_KEY}@localhost:{port}");
    let mut connection = Connection::open("plain", url.as_str()).await.map_err(lost)?;
    let mut session = Session::begin(&mut connection).await.map_err(lost)?;
    let mut orders = Receiver::attach(&mut session, "from orders", "orders").await.map_err(lost)?;
    let mut shipped = Sender::attach(&mut session, "to shipped", "shipped").await.map_err(lost)?;
    let delivery = orders.recv::<String>().await.map_err(lost)?;
    let controller = Controller::attach(&mut session, "controller").await.map_err(lost)?;
    let mut transaction = Transaction::declare(&controller, None).await.map_err(lost)?;
    transaction.set_rollback_on_drop_trials(0);
    for body in ["first", "second"] {
        transaction.post(&mut shipped, body).await.map_err(lost)?;
    }
    transaction.accept(&mut orders, &delivery).await.map_err(lost)?;
    transaction.commit().await.map_err(lost)
}

/// Runs the transaction with a server that dies, and returns how many frames the client has sent.
async fn is_whole_when_cut(cut: Cut) -> usize {
    let mut server = Otobus::start_with(ENTITIES);
    connect(&server).await.sender("orders").await.send("order").await.expect("an outcome");
    let proxy = Proxy::before(server.bus_port, server.process(), cut).await;
    let mut client = tokio::spawn(commit(proxy.port));
    let said = tokio::time::timeout(PATIENCE, proxy.said()).await.expect("a client that goes on");
    let ended = match tokio::time::timeout(GRACE, &mut client).await {
        Ok(ended) => ended.expect("a client that does not panic"),
        Err(_) => Err("the client waits for a server that has gone".to_owned()),
    };
    client.abort();
    server.restart();
    let (orders, shipped) = tokio::join!(taken(&server, "orders"), taken(&server, "shipped"));
    let is_done = orders.is_empty() && shipped == ["first", "second"];
    let is_undone = orders == ["order"] && shipped.is_empty();
    let is_right = match (&ended, said.is_discharged) {
        (Ok(()), is_discharged) => is_discharged && is_done,
        (Err(_), false) => is_undone,
        (Err(_), true) => is_done || is_undone,
    };
    assert!(is_right, "{cut:?}, {said:?}, {ended:?}: {orders:?} {shipped:?}");
    assert!(cut != Cut::Never || ended.is_ok(), "{ended:?}");
    said.frames
}

// S-211, A-8
#[tokio::test]
async fn a_transaction_is_whole_when_the_server_is_killed_between_any_two_frames() {
    let frames = is_whole_when_cut(Cut::Never).await;
    assert!(frames > 15, "{frames} frames are not the whole conversation");
    let cuts = (1..=frames).flat_map(|frame| [Cut::After(frame), Cut::Instead(frame)]);
    futures::stream::iter(cuts).map(is_whole_when_cut).buffer_unordered(16).collect::<Vec<_>>().await;
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
    // A renewal in the millisecond of the delivery gives the same end.
    for _ in 0..1_000 {
        receiver.renew_message_lock(&mut messages[0]).await.expect("a renewed lock");
        if messages[0].locked_until() > before {
            break;
        }
    }
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
