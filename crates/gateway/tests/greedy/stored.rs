//! What is read of the disk for a decision: of each message as much is held as the decision asks for, and what waits for the disk
//! is counted until it is decided (P7).

use crate::server::*;
use crate::{MEBIBYTE, MEMORY, Measured};
use amqp::performative::{Disposition, Performative};
use amqp::{Role, State};
use broker::{Command, LockToken, NamespaceId, ReceiveMode, Span};
use engine::{Batch, Connection, Outgoing};
use journal::disk::{Call, Memory, Watched};
use message::{Overlay, Value};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// For all connections of a server.
const ALL_BYTES: usize = 16 * MEBIBYTE;

/// What else moves in the process meanwhile: a segment that is laid ready, and one that is written.
const BESIDE_BYTES: usize = 12 * MEBIBYTE;

fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// Sends messages without a door between.
fn send(connection: &Connection, count: usize, bytes: usize) {
    let link = connection.link(1);
    let (namespace, path) = (NamespaceId(0), QUEUE.into());
    let attach = Command::AttachSender { link, namespace, path };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    for delivery in 0..count as u32 {
        let mut batch = Batch::default();
        batch.message(Span::MAX, |out| out.extend_from_slice(&message(bytes)));
        batch.send(link, delivery, true, 0);
        connection.submit(batch);
    }
}

/// Takes so many messages on a link of a connection, after so many. Returns their locks.
async fn take(connection: &Connection, before: usize, count: usize) -> Vec<LockToken> {
    let link = connection.link(2);
    let (namespace, path, mode) = (NamespaceId(0), QUEUE.into(), ReceiveMode::PeekLock);
    let attach = Command::AttachReceiver { link, namespace, path, mode };
    let credit = Command::Credit { link, limit: (before + count) as u64, drain: false };
    let commands = if before == 0 { vec![attach, credit] } else { vec![credit] };
    connection.submit(Batch { commands, ..Batch::default() });
    let (mut tokens, mut outgoing) = (Vec::new(), Vec::new());
    while tokens.len() < count {
        connection.outbox().arrived().await;
        connection.outbox().take(&mut outgoing);
        tokens.extend(outgoing.drain(..).filter_map(|each| match each {
            Outgoing::Deliver(sent) => Some(sent.delivery.token),
            _ => None,
        }));
    }
    tokens
}

/// The form of a token in a request.
fn uuid(token: LockToken) -> Value {
    let mut bytes = token.0.to_be_bytes();
    [0..4, 4..6, 6..8].into_iter().for_each(|field| bytes[field].reverse());
    Value::Uuid(bytes)
}

// W-35: this took as much as all of the messages have.
#[tokio::test]
async fn a_request_that_settles_large_messages_holds_none_of_them() {
    const MESSAGES: usize = 300;
    const MESSAGE_BYTES: usize = 200_000;
    let mut measured = Measured::start().await;
    let server = TestServer::new(ALL_BYTES).await;
    let connection = server.state.engine.connect();
    send(&connection, MESSAGES, MESSAGE_BYTES);
    let tokens = take(&connection, 0, MESSAGES).await;
    server.settle().await;
    let mut peer = server.admitted("reader").await;
    peer.say_frames(&[(0, sender(0, "orders/$management")), (0, receiver(1, "orders/$management"))]).await;
    peer.answered().await;
    let body = Value::Map(vec![
        (text("disposition-status"), text("abandoned")),
        (text("lock-tokens"), Value::List(tokens.into_iter().map(uuid).collect())),
        (text("properties-to-modify"), Value::Map(vec![(text("attempt"), Value::Int(1))])),
    ]);
    let update = [("operation", "com.microsoft:update-disposition")];
    let request = request(text("id"), 1, &update, &body);
    measured.start_again();
    peer.transfer(0, 0, &request, false).await;
    // All of them were abandoned, so all of them come again.
    assert_eq!(take(&connection, MESSAGES, MESSAGES).await.len(), MESSAGES);
    let peak = measured.peak();
    println!("{MESSAGES} messages of {MESSAGE_BYTES} bytes: {peak}");
    assert!(peak <= BESIDE_BYTES, "{peak} bytes for one request");
}

/// A disk that gives nothing while it is shut.
#[derive(Debug, Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).unwrap());
    }
}

/// Opens it, also for the end of a test that fails.
struct Opening(Arc<Gate>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.shut(false);
    }
}

/// A settlement of so many deliveries that changes properties.
fn changing(first: u32, count: u32, changes: &Value) -> Performative<'static> {
    let (delivery_failed, undeliverable_here) = (false, false);
    let message_annotations = changes.clone();
    let state = State::Modified { delivery_failed, undeliverable_here, message_annotations };
    let range = Disposition::new(Role::Receiver, first, first + count - 1);
    Performative::Disposition(Disposition { settled: false, state: Some(state), ..range })
}

// W-35: there was no limit to this but that of the messages that somebody may have locked.
#[tokio::test]
async fn settlements_that_wait_for_the_disk_are_held_to_what_is_not_durable() {
    const PEERS: usize = 6;
    const EACH: u32 = 600;
    const AT_ONCE: u32 = 60;
    /// What one may hand over beyond, for what it has handed over is counted before more of it is looked at.
    const BEYOND_BYTES: usize = 2 * otobus_gateway::limits::DISPOSITION_CHANGE_BYTES;
    let mut measured = Measured::start().await;
    let gate = Arc::new(Gate::default());
    let own = gate.clone();
    let watch = move |call: Call<'_>| {
        if let Call::Read { .. } = call {
            own.pass();
        }
        Ok(())
    };
    let disk = Watched::new(Arc::new(Memory::new()), Arc::new(watch));
    let server = TestServer::on(Arc::new(disk), 0, ALL_BYTES).await;
    // The server's end waits for what it reads.
    let _opening = Opening(gate.clone());
    let connection = server.state.engine.connect();
    send(&connection, PEERS * EACH as usize, 100);
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let mut peer = server.admitted("reader").await;
        peer.say_frames(&[(0, receiver(0, QUEUE)), (0, credit(0, EACH))]).await;
        peer.answered().await;
        peers.push(peer);
    }
    gate.shut(true);
    let half = |name: &str| (Value::Symbol(name.into()), Value::Binary(vec![7; 30_000]));
    let changes = Value::Map(vec![half("a"), half("b")]);
    measured.start_again();
    for first in (0..EACH).step_by(AT_ONCE as usize) {
        for peer in &mut peers {
            peer.say_frames(&[(0, changing(first, AT_ONCE, &changes))]).await;
        }
    }
    server.settle().await;
    let peak = measured.peak();
    println!("{PEERS} peers, {EACH} settlements each with 60,000 bytes: {peak}");
    let most = engine::limits::UNDURABLE_BYTES + PEERS * BEYOND_BYTES + BESIDE_BYTES;
    assert!(peak <= most, "{peak} of {most}");
    assert!(peak >= engine::limits::UNDURABLE_BYTES / 2, "nothing waited: {peak}");
    gate.shut(false);
    // All of it is decided, and somebody else is served.
    let mut tries = 0;
    let mut good = server.admitted("sender").await;
    while good.is_refused || good.read_bytes.load(std::sync::atomic::Ordering::Relaxed) == 0 {
        tries += 1;
        assert!(tries < 100, "nobody is served any more");
        tokio::time::sleep(Duration::from_millis(100)).await;
        good = server.admitted("sender").await;
        good.answered().await;
    }
}

#[tokio::test]
async fn changed_properties_are_counted_for_what_they_take() {
    // P7, W-28: small ones take many times their bytes.
    let mut measured = Measured::start().await;
    for (count, bytes) in [(5_000, 0), (500, 100), (2, 30_000)] {
        let mut changes = Overlay::default();
        for nth in 0..count {
            changes.set(&format!("{nth:x}"), &Value::Binary(vec![7; bytes])).unwrap();
        }
        let counted = changes.held_bytes();
        // What it was made with is gone, and a copy has no room to grow.
        measured.start_again();
        let copy = changes.clone();
        let takes = measured.held();
        println!(
            "{count} of {bytes} bytes: counted {counted}, takes {takes}, stored {}",
            copy.encoded_bytes()
        );
        assert!(counted >= takes && counted <= 3 * takes, "counted {counted}, takes {takes}");
        drop(copy);
    }
    assert!(MEMORY.current_usage() > 0);
}
