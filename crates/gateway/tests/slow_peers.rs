//! Peers that take their time: whatever they have begun, they are closed at the limit that has a name, and not before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use broker::access::Key;
use broker::{AccessRule, Command, NamespaceId, QueueSettings, Task};
use engine::Engine;
use otobus_gateway::State;
use otobus_gateway::auth::{Development, Guard, Policy, Rights, Secret, UnixSeconds, sas};
use otobus_gateway::limits::*;
use otobus_gateway::listen::{Peer, serve};
use otobus_gateway::namespaces::{Namespace, Namespaces};
use otobus_gateway::tls;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

struct TestServer {
    state: Arc<State>,
    tls: TlsAcceptor,
    engine: Option<Engine>,
    folder: PathBuf,
}

impl TestServer {
    fn new() -> TestServer {
        let options = journal::Options {
            segment_bytes: 1 << 20,
            first_segment_bytes: 1 << 20,
            ..journal::Options::new(7)
        };
        let journal = journal::Local::open(Arc::new(journal::disk::Memory::new()), options).unwrap();
        let options = engine::Options { tail_cache_bytes: 1 << 20, ..engine::Options::new(2) };
        let engine = Engine::open(Box::new(journal), options, |why| panic!("{why}")).unwrap();
        let (name, primary) = ("root".into(), Secret::new("key"));
        let root = Policy { name, primary, secondary: None, rights: Rights::ALL };
        let namespaces = Namespaces::single(Guard::new(vec![root], false));
        let folder = std::env::temp_dir().join(format!("otobus-slow-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = tls::Files::open_or_make(&folder, &[]).unwrap();
        let certificate = tls::Certificate::load(&files).unwrap();
        let tls = TlsAcceptor::from(tls::server_config(&certificate).unwrap());
        let state = Arc::new(State::new(engine.handle().clone(), namespaces));
        TestServer { state, tls, engine: Some(engine), folder }
    }

    /// A queue, with rules of its own.
    async fn queue(&self, access: Vec<AccessRule>) {
        let (path, settings) = ("orders".into(), QueueSettings::default());
        self.manage(Task::CreateQueue { path, settings, access }).await;
    }

    async fn set_rules(&self, access: Vec<AccessRule>) {
        let (path, settings) = ("orders".into(), QueueSettings::default());
        self.manage(Task::UpdateQueue { path, settings, access }).await;
    }

    async fn manage(&self, task: Task) {
        let (namespace, task) = (NamespaceId(0), Box::new(task));
        let command = |request| Command::Manage { request, namespace, task };
        self.state.engine.ask(command).await.unwrap().unwrap();
    }

    fn set_guard(&self, guard: Guard) {
        let default = self.state.namespaces.of_host("", None);
        let (id, name, created, tier) = (default.id, default.name.clone(), default.created, default.tier);
        self.state.namespaces.replace(Namespace { id, name, guard, created, tier }, Vec::new());
    }

    /// Connects, writes `first` at once and then `drop_by_drop`, a byte each second, for ever. Says after how long the
    /// server hung up, and what it said before.
    async fn patience_with(&self, first: &[u8], drop_by_drop: &[u8]) -> (Duration, Vec<u8>) {
        let (far, near) = tokio::io::duplex(64 * 1_024);
        let peer = Peer::new("192.0.2.1:4000".parse().unwrap());
        tokio::spawn(serve(near, peer, self.tls.clone(), Arc::clone(&self.state)));
        let start = Instant::now();
        let (mut answers, mut input) = tokio::io::split(far);
        input.write_all(first).await.unwrap();
        let drops = drop_by_drop.to_vec();
        let dripping = tokio::spawn(async move {
            for byte in drops.iter().cycle() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if input.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
            // Without drops: holds the connection open.
            std::future::pending::<()>().await;
        });
        let mut said = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(3_600), answers.read_to_end(&mut said)).await;
        dripping.abort();
        assert!(read.is_ok(), "it was never closed");
        (start.elapsed(), said)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let stopped = engine.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A rule of an entity, which lets receive.
fn own_rule(key: &str) -> AccessRule {
    AccessRule {
        name: "own".into(),
        primary: Key::chosen(key),
        secondary: Key::chosen("unused"),
        listen: true,
        send: false,
        manage: false,
        created: broker::LocalTime(0),
        modified: broker::LocalTime(0),
    }
}

/// Timers of a runtime whose clock stands still are right to the millisecond.
fn is_at(waited: Duration, limit: Duration) -> bool {
    waited >= limit && waited <= limit + Duration::from_millis(10)
}

#[tokio::test(start_paused = true)]
async fn whoever_is_slow_before_it_has_proved_anything_is_closed_at_its_limit() {
    let server = TestServer::new();
    // A greeting in TLS that says it has 512 bytes.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let upgrade = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n";
    let in_websocket = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // A SASL frame that says it has 500 bytes.
    let sasl = b"AMQP\x03\x01\x00\x00\x00\x00\x01\xf4\x02\x01\x00\x00";
    let cases: [(&str, &[u8], &[u8], Duration); 12] = [
        ("nothing", b"", b"", FIRST_BYTES_TIMEOUT),
        ("half a protocol's name", b"AMQ", b"", FIRST_BYTES_TIMEOUT),
        ("half a method", b"DEL", b"", FIRST_BYTES_TIMEOUT),
        ("a TLS handshake that stalls", &hello, b"", TLS_HANDSHAKE_TIMEOUT),
        ("a TLS handshake in drops", &hello, b"\0", TLS_HANDSHAKE_TIMEOUT),
        ("a head that stalls", b"GET /q HTTP/1.1\r\n", b"", HTTP_HEAD_TIMEOUT),
        ("a head in drops", b"GET /q HTTP/1.1\r\nX: ", b"x", HTTP_HEAD_TIMEOUT),
        ("an upgrade that stalls", upgrade, b"", FIRST_BYTES_TIMEOUT),
        ("an upgrade in drops", upgrade, b"X", FIRST_BYTES_TIMEOUT),
        ("silence inside a WebSocket", in_websocket, b"", CLAIM_TIMEOUT),
        ("SASL that stalls", b"AMQP\x03\x01\x00\x00", b"", CLAIM_TIMEOUT),
        ("SASL in drops", sasl, b"\0", CLAIM_TIMEOUT),
    ];
    for (what, first, drops, limit) in cases {
        let (waited, said) = server.patience_with(first, drops).await;
        let shown = String::from_utf8_lossy(&said);
        assert!(is_at(waited, limit), "{what}: {waited:?} and not {limit:?}, {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_what_it_is_told_last_is_waited_for_no_longer_than_the_limit() {
    let server = TestServer::new();
    // Room for the answer's protocol header and not for what follows.
    let (mut far, near) = tokio::io::duplex(16);
    let peer = Peer::new("192.0.2.1:4000".parse().unwrap());
    let start = Instant::now();
    let serving = tokio::spawn(serve(near, peer, server.tls.clone(), Arc::clone(&server.state)));
    far.write_all(b"AMQP\x03\x01\x00\x00").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(3_600), serving).await;
    assert!(ended.is_ok(), "it is served for ever");
    assert!(is_at(start.elapsed(), CLAIM_TIMEOUT + LAST_OUTPUT_TIMEOUT), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_in_drops_is_refused_at_its_limit_even_from_a_manager() {
    let server = TestServer::new();
    let token = sas::sign("https%3a%2f%2fhost", "root", "key", UnixSeconds::NEVER);
    let head =
        format!("PUT /q HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nContent-Length: 100000\r\n\r\n<");
    for drops in [&b""[..], b" "] {
        let (waited, said) = server.patience_with(head.as_bytes(), drops).await;
        assert!(is_at(waited, HTTP_BODY_TIMEOUT), "{waited:?}");
        assert!(said.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&said));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_that_asks_nothing_more_is_closed() {
    let server = TestServer::new();
    let request = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    let (waited, said) = server.patience_with(request, b"").await;
    assert!(is_at(waited, HTTP_HEAD_TIMEOUT), "{waited:?}");
    assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
}

/// A receive over HTTP that waits for a minute, and what becomes of it when `change` is made to the server meanwhile.
async fn waiting_receive(
    server: &TestServer,
    token: &str,
    change: impl Future<Output = ()>,
) -> (Duration, Vec<u8>) {
    let head = format!(
        "DELETE /orders/messages/head?timeout=60 HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let waiting = server.patience_with(head.as_bytes(), b"");
    // Nothing tells when the receive has begun to wait; if it had not by then it would be refused at once.
    let changing = async {
        tokio::time::sleep(CLAIM_REVIEW / 4).await;
        change.await;
    };
    let (waited, ()) = tokio::join!(waiting, changing);
    waited
}

/// It was still allowed while it began to wait, and is refused at the first review that finds it is not.
fn assert_was_refused((waited, said): (Duration, Vec<u8>)) {
    assert!(waited >= CLAIM_REVIEW / 2 && waited <= 10 * CLAIM_REVIEW, "{waited:?}");
    assert!(said.starts_with(b"HTTP/1.1 401 "), "{}", String::from_utf8_lossy(&said));
}

/// In real time: the engine answers on threads of its own, for which a clock that stands still does not wait.
#[tokio::test]
async fn a_receive_that_waits_ends_when_its_policy_goes() {
    let server = TestServer::new();
    let forever = sas::sign("https%3a%2f%2fhost", "root", "key", UnixSeconds::NEVER);
    server.queue(Vec::new()).await;
    let change = async { server.set_guard(Guard::new(Vec::new(), false)) };
    assert_was_refused(waiting_receive(&server, &forever, change).await);
}

#[tokio::test]
async fn a_receive_that_waits_ends_when_the_rule_of_its_entity_goes() {
    let server = TestServer::new();
    let token = sas::sign("https%3a%2f%2fhost%2forders", "own", "first", UnixSeconds::NEVER);
    server.queue(vec![own_rule("first")]).await;
    let change = server.set_rules(Vec::new());
    assert_was_refused(waiting_receive(&server, &token, change).await);
    // Its key is another: the same.
    server.set_rules(vec![own_rule("first")]).await;
    let change = server.set_rules(vec![own_rule("second")]);
    assert_was_refused(waiting_receive(&server, &token, change).await);
}

#[tokio::test]
async fn a_receive_that_waits_ends_when_its_issuer_goes() {
    let server = TestServer::new();
    server.queue(Vec::new()).await;
    let development = Development::new().unwrap();
    let answer = development.answer("https://servicebus.azure.net", UnixSeconds::now()).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let token = format!("Bearer {}", answer["access_token"].as_str().unwrap());
    let trust = |issuers| server.set_guard(Guard::new(Vec::new(), false).with_issuers(issuers));
    trust(vec![Arc::new(development.issuer())]);
    let change = async { trust(Vec::new()) };
    assert_was_refused(waiting_receive(&server, &token, change).await);
}

/// In real time, as above. A token counts a little longer than it says, so this one says less.
#[tokio::test]
async fn a_receive_that_waits_ends_when_its_token_runs_out() {
    let server = TestServer::new();
    let expires = UnixSeconds(UnixSeconds::now().0 + 3 - CLOCK_SKEW_SECONDS);
    let token = sas::sign("https%3a%2f%2fhost", "root", "key", expires);
    server.queue(Vec::new()).await;
    let (waited, said) = waiting_receive(&server, &token, async {}).await;
    assert!(waited <= 10 * CLAIM_REVIEW, "{waited:?}");
    assert!(said.starts_with(b"HTTP/1.1 401 "), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test(start_paused = true)]
async fn a_head_whose_lines_end_without_a_carriage_return_is_refused() {
    let server = TestServer::new();
    let (_, said) = server.patience_with(b"GET /health HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", b"").await;
    assert!(said.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&said));
    // Behind others too, whose answers it may not spoil.
    let good = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    for bad in ["GET /health HTTP/1.1\nHost: h\r\n\r\n", "GET /health HTTP/1.1\r\nHost: h\r\n\n"] {
        let (_, said) = server.patience_with(format!("{good}{bad}").as_bytes(), b"").await;
        let said = String::from_utf8_lossy(&said);
        let statuses: Vec<&str> = said.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
        assert_eq!(statuses, ["200", "400"], "{said}");
    }
}
