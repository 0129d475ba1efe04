//! Messages over HTTP as a client sees them: the real door before a real engine on a disk in memory.

use crate::State;
use crate::auth::{Guard, Policy, Right, Rights, Secret, UnixSeconds, sas};
use crate::http::tests::engine_in_memory;
use crate::limits::*;
use crate::listen::{Doors, Peer};
use crate::namespaces::Namespaces;
use broker::{Command, NamespaceId, Notice, Outcome, QueueSettings, ReceiveMode};
use bytes::BytesMut;
use engine::{Batch, Engine, Outgoing};
use message::Value;
use message::codec::write_descriptor;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

struct TestServer {
    state: Arc<State>,
    engine: Option<Engine>,
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// As they came.
    head: String,
    /// By name in lower case.
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn read(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        let headers: HashMap<_, _> = head.lines().skip(1).map(header).collect();
        let mut body = bytes[end + 4..].to_vec();
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            body = unchunked(&body);
        }
        Answer { status, head: head.to_owned(), headers, body }
    }

    fn properties(&self) -> Json {
        serde_json::from_str(&self.headers["brokerproperties"]).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The path of the message that was locked.
    fn location(&self) -> String {
        self.headers["location"].strip_prefix("http://host").unwrap().to_owned()
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return out;
        }
        out.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
}

impl TestServer {
    async fn new() -> TestServer {
        let engine = engine_in_memory();
        let policy = |name: &str, rights| Policy {
            name: name.into(),
            primary: Secret::new("key"),
            secondary: None,
            rights,
        };
        let listen = [Right::Listen].into_iter().collect();
        let policies = vec![policy("root", Rights::ALL), policy("reader", listen)];
        let namespaces = Namespaces::single(Guard::new(policies, false));
        let state = Arc::new(State::new(engine.handle().clone(), namespaces));
        let server = TestServer { state, engine: Some(engine) };
        server.queue("q", QueueSettings::default()).await;
        server
    }

    async fn queue(&self, path: &str, settings: QueueSettings) {
        let (path, settings, namespace) = (path.into(), Box::new(settings), NamespaceId(0));
        let created = self
            .state
            .engine
            .ask(|request| Command::CreateQueue { request, namespace, path, settings })
            .await;
        created.unwrap().unwrap();
    }

    /// A connection, and what serves it.
    fn connect(&self) -> (DuplexStream, JoinHandle<()>) {
        let (far, near) = tokio::io::duplex(64 * 1_024);
        let peer = Peer::new(([192, 0, 2, 1], 4_000).into());
        (far, tokio::spawn(Arc::clone(&self.state).http(near, BytesMut::new(), peer)))
    }

    fn head(method: &str, address: &str, headers: &str) -> String {
        let token = sas::sign("https%3a%2f%2fhost", "root", "key", UnixSeconds::NEVER);
        format!(
            "{method} {address} HTTP/1.1\r\nHost: host\r\nAuthorization: {token}\r\nConnection: close\r\n{headers}\r\n"
        )
    }

    /// Sends these bytes and reads all that comes back.
    async fn exchange(&self, request: Vec<u8>) -> Answer {
        let (far, _) = self.connect();
        let (mut answers, mut input) = tokio::io::split(far);
        // The server does not read the rest of a request that it refuses.
        let sending = tokio::spawn(async move {
            let _ = input.write_all(&request).await;
            input
        });
        let mut answer = Vec::new();
        answers.read_to_end(&mut answer).await.unwrap();
        drop(sending);
        Answer::read(&answer)
    }

    async fn request(&self, method: &str, address: &str, headers: &str, body: &[u8]) -> Answer {
        let headers = format!("{headers}Content-Length: {}\r\n", body.len());
        let head = TestServer::head(method, address, &headers);
        self.exchange([head.as_bytes(), body].concat()).await
    }

    async fn send(&self, headers: &str, body: &[u8]) {
        let answer = self.request("POST", "/q/messages", headers, body).await;
        assert_eq!((answer.status, answer.text()), (201, ""), "{answer:?}");
    }

    async fn peek_lock(&self) -> Answer {
        self.request("POST", "/q/messages/head?timeout=0", "", b"").await
    }

    async fn take(&self) -> Answer {
        self.request("DELETE", "/q/messages/head?timeout=0", "", b"").await
    }

    /// Sends a message as the AMQP door would.
    async fn send_amqp(&self, bytes: &[u8]) {
        let connection = self.state.engine.connect();
        let link = connection.link(0);
        let mut batch = Batch::default();
        batch.commands.push(Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() });
        crate::amqp::add_message(&mut batch, bytes, true).unwrap();
        batch.send(link, 0, false, 0);
        connection.submit(batch);
        let mut outgoing = Vec::new();
        while !outgoing.iter().any(|each| matches!(each, Outgoing::Accepted { .. })) {
            connection.outbox().arrived().await;
            connection.outbox().take(&mut outgoing);
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let stopped = engine.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
    }
}

// HX-2.1, HX-2.3, H-92, H-93, H-94, H-95, S-4
#[tokio::test]
async fn what_was_sent_is_received_with_everything_in_its_place() {
    let server = TestServer::new().await;
    let properties =
        r#"{"MessageId":"m-1","Label":"L","CorrelationId":"c","To":"t","ReplyTo":"r","SessionId":"s",
        "PartitionKey":"s","ReplyToSessionId":"rs","TimeToLive":90,"State":"Active"}"#
            .replace('\n', "");
    let headers = format!(
        "Content-Type: text/plain\r\nBrokerProperties: {properties}\r\nPriority: \"High\"\r\nordersTotal: 12\r\n\
         Share: 0.5\r\nIs-New: true\r\nx-ms-retrypolicy: NoRetry\r\nPlain: words\r\n"
    );
    server.send(&headers, "grüße".as_bytes()).await;
    let answer = server.peek_lock().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.text(), "grüße");
    assert_eq!(answer.headers["content-type"], "text/plain");
    let told = answer.properties();
    for (key, value) in [
        ("MessageId", json!("m-1")),
        ("Label", json!("L")),
        ("CorrelationId", json!("c")),
        ("To", json!("t")),
        ("ReplyTo", json!("r")),
        ("SessionId", json!("s")),
        ("PartitionKey", json!("s")),
        ("ReplyToSessionId", json!("rs")),
        ("TimeToLive", json!(90)),
        ("SequenceNumber", json!(1)),
        ("DeliveryCount", json!(1)),
        ("EnqueuedSequenceNumber", json!(0)),
        ("State", json!("Active")),
    ] {
        assert_eq!(told[key], value, "{key}");
    }
    assert_eq!(told["EnqueuedTimeUtc"], json!(answer.headers["date"]));
    let token = told["LockToken"].as_str().unwrap();
    assert_eq!(answer.location(), format!("/q/messages/1/{token}"));
    for (name, value) in [
        ("priority", "\"High\""),
        ("orderstotal", "12"),
        ("share", "0.5"),
        ("is-new", "true"),
        ("plain", "\"words\""),
    ] {
        assert_eq!(answer.headers[name], value, "{name}");
    }
    assert!(!answer.headers.contains_key("x-ms-retrypolicy"), "H-97");
}

// HX-2.3, HX-2.4, H-94
#[tokio::test]
async fn without_a_message_there_is_nothing_and_what_is_taken_is_gone() {
    let server = TestServer::new().await;
    assert_eq!(server.peek_lock().await.status, 204);
    assert_eq!(server.take().await.status, 204);
    server.send("", b"").await;
    let answer = server.take().await;
    assert_eq!((answer.status, &*answer.body), (200, &b""[..]));
    assert_eq!(answer.headers["content-type"], "application/atom+xml;type=entry;charset=utf-8");
    assert!(!answer.headers.contains_key("location"));
    assert!(answer.properties().get("LockToken").is_none());
    assert_eq!(server.peek_lock().await.status, 204);
}

// HX-2.3
#[tokio::test(start_paused = true)]
async fn a_receiver_waits_as_long_as_it_says_and_no_longer() {
    let server = TestServer::new().await;
    let start = Instant::now();
    assert_eq!(server.request("POST", "/q/messages/head?timeout=7", "", b"").await.status, 204);
    assert_eq!(start.elapsed().as_secs(), 7);
    assert_eq!(server.request("DELETE", "/q/messages/head", "", b"").await.status, 204);
    assert_eq!(start.elapsed().as_secs(), 67);
}

// HX-2.3
#[tokio::test]
async fn who_waits_gets_what_comes() {
    let server = TestServer::new().await;
    for method in ["POST", "DELETE"] {
        let (mut far, _) = server.connect();
        far.write_all(TestServer::head(method, "/q/messages/head?timeout=300", "").as_bytes()).await.unwrap();
        server.send("", b"late").await;
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        assert_eq!(Answer::read(&answer).text(), "late");
        assert_eq!(server.take().await.status, 204);
    }
}

// S-80, S-94: nothing is taken for a client that is gone.
#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_takes_nothing_along() {
    let server = TestServer::new().await;
    for method in ["POST", "DELETE"] {
        let (mut far, serving) = server.connect();
        far.write_all(TestServer::head(method, "/q/messages/head?timeout=300", "").as_bytes()).await.unwrap();
        // Whether it has asked for a message already or is about to.
        tokio::task::yield_now().await;
        drop(far);
        serving.await.unwrap();
        server.send("", b"kept").await;
        assert_eq!(server.take().await.text(), "kept", "{method}");
    }
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_who_waits() {
    let server = TestServer::new().await;
    let (mut far, serving) = server.connect();
    far.write_all(TestServer::head("POST", "/q/messages/head?timeout=300", "").as_bytes()).await.unwrap();
    tokio::task::yield_now().await;
    server.state.stop();
    serving.await.unwrap();
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).await.unwrap();
    // It may have been stopped before it had asked for anything.
    assert!(answer.is_empty() || Answer::read(&answer).status == 204);
}

// HX-2.5, HX-2.6, HX-2.7
#[tokio::test]
async fn a_locked_message_is_renewed_unlocked_and_completed() {
    let server = TestServer::new().await;
    server.send("BrokerProperties: {\"MessageId\":\"a/b c\"}\r\n", b"x").await;
    let first = server.peek_lock().await;
    assert_eq!(server.take().await.status, 204, "it is locked");
    assert_eq!(server.request("POST", &first.location(), "", b"").await.status, 200);
    assert_eq!(server.request("PUT", &first.location(), "", b"").await.status, 200);
    let second = server.peek_lock().await;
    assert_eq!(second.properties()["DeliveryCount"], 2);
    for method in ["POST", "PUT", "DELETE"] {
        let answer = server.request(method, &first.location(), "", b"").await;
        assert_eq!(answer.status, 404, "the lock is lost");
        assert!(
            answer.text().contains("SubCode=40400. Not Found. The lock supplied is invalid."),
            "{answer:?}"
        );
    }
    // By its id, which is compared.
    let token = second.properties()["LockToken"].as_str().unwrap().to_owned();
    let by = |name: &str| format!("/q/messages/{name}/{token}");
    for wrong in ["2", "other", "a/b%20c"] {
        assert_eq!(server.request("DELETE", &by(wrong), "", b"").await.status, 404, "{wrong}");
    }
    assert_eq!(server.request("POST", &by("a%2Fb%20c"), "", b"").await.status, 200);
    assert_eq!(server.request("DELETE", &by("a%2Fb%20c"), "", b"").await.status, 200);
    assert_eq!(server.request("DELETE", &by("1"), "", b"").await.status, 404);
    assert_eq!(server.request("DELETE", "/q/messages/1/no-token", "", b"").await.status, 404);
    assert_eq!(server.request("PATCH", &by("1"), "", b"").await.status, 405);
}

#[tokio::test]
async fn in_a_partitioned_queue_a_message_is_found_by_its_id_and_its_number() {
    let server = TestServer::new().await;
    // The partition of an entity follows from its id, so that one of three has another than the first.
    for name in ["p1", "p2", "p3"] {
        server.queue(name, QueueSettings { partitioning: true, ..QueueSettings::default() }).await;
        for (at, id) in ["one", "two", "three"].iter().enumerate() {
            let headers = format!("BrokerProperties: {{\"MessageId\":\"{id}\"}}\r\n");
            server.request("POST", &format!("/{name}/messages"), &headers, b"").await;
            let head = format!("/{name}/messages/head?timeout=0");
            let locked = server.request("POST", &head, "", b"").await;
            let token = locked.properties()["LockToken"].as_str().unwrap().to_owned();
            if at == 1 {
                let wrong = format!("/{name}/messages/one/{token}");
                assert_eq!(server.request("DELETE", &wrong, "", b"").await.status, 404);
                let by_id = format!("/{name}/messages/{id}/{token}");
                assert_eq!(server.request("DELETE", &by_id, "", b"").await.status, 200);
            } else if at == 2 {
                assert_eq!(server.request("DELETE", &locked.location(), "", b"").await.status, 200);
            }
        }
    }
}

// H-96, S-16
#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let server = TestServer::new().await;
    let batch = "Content-Type: application/vnd.microsoft.servicebus.json\r\nIgnored: 1\r\n";
    let bad = r#"[{"Body":"one"},{"Body":"two","BrokerProperties":{"SessionId":"a","PartitionKey":"b"}}]"#;
    let answer = server.request("POST", "/q/messages", batch, bad.as_bytes()).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(server.request("POST", "/q/messages", batch, b"[{]").await.status, 400);
    assert_eq!(server.take().await.status, 204);
    let good = r#"[{"Body":"one","BrokerProperties":{"Label":"M1"}},{"Body":"two","UserProperties":{"Priority":"Low"}}]"#;
    server.send(batch, good.as_bytes()).await;
    let (one, two) = (server.take().await, server.take().await);
    assert_eq!((one.text(), &one.properties()["Label"]), ("one", &json!("M1")));
    assert_eq!((two.text(), &*two.headers["priority"]), ("two", "\"Low\""));
    assert!(!one.headers.contains_key("ignored"));
    let long = format!("[{{\"Body\":\"{}\"}}]", "x".repeat(BATCH_BYTES));
    assert_eq!(server.request("POST", "/q/messages", batch, long.as_bytes()).await.status, 413);
}

// The tables of the runtime API
#[tokio::test]
async fn what_is_not_there_is_gone_and_what_may_not_be_is_refused() {
    let server = TestServer::new().await;
    let token = "00000000-0000-0000-0000-000000000001";
    for (method, address) in [
        ("POST", "/none/messages".to_owned()),
        ("POST", "/none/messages/head?timeout=0".to_owned()),
        ("DELETE", "/none/$DeadLetterQueue/messages/head?timeout=0".to_owned()),
        ("DELETE", format!("/none/messages/1/{token}")),
        ("PUT", format!("/none/messages/id/{token}")),
    ] {
        let answer = server.request(method, &address, "", b"").await;
        assert_eq!(answer.status, 410, "{method} {address}: {answer:?}");
        assert!(answer.text().contains("SubCode=41000. Gone. The messaging entity 'none"), "{answer:?}");
    }
    // S-101
    assert_eq!(server.request("POST", "/q/$DeadLetterQueue/messages", "", b"").await.status, 403);
    assert_eq!(server.request("PUT", "/q/messages/head", "", b"").await.status, 405);
    for bad in [
        "BrokerProperties: {\r\n",
        "BrokerProperties: {\"TimeToLive\":\"soon\"}\r\n",
        "BrokerProperties: {\"Label\":[]}\r\n",
    ] {
        assert_eq!(server.request("POST", "/q/messages", bad, b"").await.status, 400, "{bad}");
    }
    let long = format!("BrokerProperties: {{\"MessageId\":\"{}\"}}\r\n", "x".repeat(129));
    let answer = server.request("POST", "/q/messages", &long, b"").await;
    assert!(answer.status == 400 && answer.text().contains("at most 128"), "{answer:?}");
    assert_eq!(server.take().await.status, 204);
}

// H-91, S-20
#[tokio::test]
async fn into_a_session_one_sends_and_from_it_one_does_not_receive() {
    let server = TestServer::new().await;
    server.queue("s", QueueSettings { requires_session: true, ..QueueSettings::default() }).await;
    let session = "BrokerProperties: {\"SessionId\":\"one\"}\r\n";
    assert_eq!(server.request("POST", "/s/messages", session, b"x").await.status, 201);
    assert_eq!(server.request("POST", "/s/messages", "", b"x").await.status, 403);
    let batch = "Content-Type: application/vnd.microsoft.servicebus.json\r\n";
    let body = br#"[{"BrokerProperties":{"SessionId":"one"}},{"BrokerProperties":{"SessionId":"two"}}]"#;
    assert_eq!(server.request("POST", "/s/messages", batch, body).await.status, 201);
    for method in ["POST", "DELETE"] {
        let answer = server.request(method, "/s/messages/head?timeout=0", "", b"").await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
}

// H-90, H-95
#[tokio::test]
async fn a_dead_letter_is_received_with_its_reason() {
    let server = TestServer::new().await;
    server.send("", b"dead").await;
    let locked = server.peek_lock().await;
    let guid = uuid::Uuid::parse_str(locked.properties()["LockToken"].as_str().unwrap()).unwrap();
    let tokens = [crate::amqp::token_of_uuid(guid.as_bytes())].into();
    let mut why = message::Overlay::default();
    why.set_dead_letter(Some("bad"), Some("very")).unwrap();
    let (path, outcome, namespace) = ("q".into(), Outcome::DeadLetter(Some(Box::new(why))), NamespaceId(0));
    let asked = server
        .state
        .engine
        .ask(|request| Command::SettleTokens { request, namespace, path, tokens, outcome })
        .await;
    asked.unwrap().unwrap();
    assert_eq!(server.peek_lock().await.status, 204);
    let dead = server.request("POST", "/q/$DeadLetterQueue/messages/head?timeout=0", "", b"").await;
    assert_eq!((dead.status, dead.text()), (201, "dead"));
    assert_eq!(dead.headers["deadletterreason"], "\"bad\"");
    assert_eq!(dead.headers["deadlettererrordescription"], "\"very\"");
    assert!(dead.location().starts_with("/q/$DeadLetterQueue/messages/1/"));
    assert_eq!(server.request("DELETE", &dead.location(), "", b"").await.status, 200);
}

// H-98, S-4
#[tokio::test]
async fn every_body_of_amqp_can_be_received() {
    let server = TestServer::new().await;
    let section = |code: u64, value: &Value| {
        let mut out = Vec::new();
        write_descriptor(&mut out, code);
        value.encode(&mut out);
        out
    };
    let encoded = |value: &Value| section(0x77, value)[3..].to_vec();
    let (text, list) = (Value::from("text"), Value::List(vec![Value::Int(1)]));
    let data = |bytes: &[u8]| section(0x75, &Value::Binary(bytes.to_vec()));
    let uuid = section(0x73, &Value::List(vec![Value::Uuid([7; 16])]));
    for (sent, body) in [
        ([data(b"one"), data(b" two")].concat(), b"one two".to_vec()),
        (section(0x77, &text), encoded(&text)),
        ([section(0x76, &list), section(0x76, &list)].concat(), encoded(&list).repeat(2)),
        (uuid, vec![]),
    ] {
        server.send_amqp(&sent).await;
        let answer = server.take().await;
        assert_eq!((answer.status, answer.body), (200, body));
    }
}

// S-17, H-98: above a part it is stored and given in parts.
#[tokio::test]
async fn a_large_message_goes_in_and_out_in_parts() {
    let server = TestServer::new().await;
    let settings = QueueSettings { max_message_kilobytes: Some(10 * 1_024), ..QueueSettings::default() };
    server.queue("large", settings).await;
    let body: Vec<u8> = (0..3 << 20).map(|n: u32| (n % 251) as u8).collect();
    let answer = server.request("POST", "/large/messages", "Priority: 1\r\n", &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let locked = server.request("POST", "/large/messages/head?timeout=0", "", b"").await;
    assert_eq!((locked.status, &*locked.headers["priority"]), (201, "1"));
    assert!(locked.body == body);
    assert_eq!(server.request("PUT", &locked.location(), "", b"").await.status, 200);
    let taken = server.request("DELETE", "/large/messages/head?timeout=0", "", b"").await;
    assert!(taken.status == 200 && taken.body == body);
    let unannounced = |length: usize| {
        let chunk = format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length));
        let head = TestServer::head("POST", "/large/messages", "Transfer-Encoding: chunked\r\n");
        [head.as_bytes(), chunk.as_bytes()].concat()
    };
    assert_eq!(server.exchange(unannounced(UNMEASURED_BYTES)).await.status, 201);
    assert_eq!(server.exchange(unannounced(UNMEASURED_BYTES + 1)).await.status, 411);
    let taken = server.request("DELETE", "/large/messages/head?timeout=0", "", b"").await;
    assert_eq!(taken.body.len(), UNMEASURED_BYTES);
}

// S-17
#[tokio::test]
async fn a_message_above_the_limit_is_refused_before_it_is_read() {
    let server = TestServer::new().await;
    // 1 MiB with what stands in front of it.
    let head = TestServer::head("POST", "/q/messages", "Content-Length: 1048576\r\nExpect: 100-continue\r\n");
    let answer = server.exchange(head.into_bytes()).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("SubCode=40300"), "{answer:?}");
    server.send("", &vec![7; 1_048_576 - 200]).await;
    assert_eq!(server.take().await.body.len(), 1_048_576 - 200);
}

// S-17: a client that reads nothing until it has sent everything.
#[tokio::test]
async fn whoever_is_refused_hears_why() {
    let server = TestServer::new().await;
    let (mut far, _) = server.connect();
    let body = vec![7; REFUSED_MESSAGE_BYTES];
    let headers = format!("Content-Length: {}\r\n", body.len());
    far.write_all(TestServer::head("POST", "/q/messages", &headers).as_bytes()).await.unwrap();
    far.write_all(&body).await.unwrap();
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Answer::read(&answer).status, 403);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stalls_is_refused_and_one_that_is_slow_is_not() {
    let server = TestServer::new().await;
    let (far, _) = server.connect();
    let (mut answers, mut input) = tokio::io::split(far);
    let length = 40 * MESSAGE_BYTES_PER_SECOND as usize / 4;
    let headers = format!("Content-Length: {length}\r\nExpect: 100-continue\r\n");
    input.write_all(TestServer::head("POST", "/q/messages", &headers).as_bytes()).await.unwrap();
    // From here on the server waits for the body and for nothing else.
    let mut go_on = [0; 25];
    answers.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        input.write_all(&vec![7; MESSAGE_BYTES_PER_SECOND as usize / 4]).await.unwrap();
    }
    let start = Instant::now();
    let mut answer = Vec::new();
    answers.read_to_end(&mut answer).await.unwrap();
    // Twenty seconds of waiting, of which a quarter was earned back, but for fractions of milliseconds.
    let waited = start.elapsed().as_millis();
    assert!(Answer::read(&answer).status == 408 && (14_900..=15_100).contains(&waited), "{waited}");
    drop(input);
    assert_eq!(server.take().await.status, 204);
}

// H-99
#[tokio::test]
async fn a_token_for_the_address_of_messages_is_enough() {
    let server = TestServer::new().await;
    let token = sas::sign("https%3a%2f%2fhost%2fq%2fmessages", "root", "key", UnixSeconds::NEVER);
    let ask = |method: &str, address: &str| {
        format!(
            "{method} {address} HTTP/1.1\r\nHost: host\r\nAuthorization: {token}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .into_bytes()
    };
    assert_eq!(server.exchange(ask("POST", "/q/messages")).await.status, 201);
    assert_eq!(server.exchange(ask("DELETE", "/q/messages/head?timeout=0")).await.status, 200);
    assert_eq!(server.exchange(ask("POST", "/other/messages")).await.status, 401);
    assert_eq!(server.exchange(ask("GET", "/q")).await.status, 401);
}

// H-95: several requests of one connection, each with its own spelling.
#[tokio::test]
async fn names_of_properties_keep_their_spelling() {
    let server = TestServer::new().await;
    let (far, _) = server.connect();
    let (mut answers, mut input) = tokio::io::split(far);
    let connection = server.state.engine.connect();
    let link = connection.link(0);
    for name in ["OrderId", "orderId", "ORDERID"] {
        let head = TestServer::head("POST", "/q/messages", &format!("{name}: 1\r\nContent-Length: 2\r\n"));
        input.write_all(head.replace("Connection: close\r\n", "").as_bytes()).await.unwrap();
        input.write_all(b"hi").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(answers.read_u8().await.unwrap());
        }
        assert_eq!(Answer::read(&answer).status, 201);
    }
    let mode = ReceiveMode::ReceiveAndDelete;
    let batch = Batch {
        commands: vec![
            Command::AttachReceiver { link, namespace: NamespaceId(0), path: "q".into(), mode },
            Command::Credit { link, limit: 3, drain: true },
        ],
        ..Batch::default()
    };
    connection.submit(batch);
    let mut outgoing = Vec::new();
    while !outgoing.iter().any(|each| matches!(each, Outgoing::Notice(Notice::Drained { .. }))) {
        connection.outbox().arrived().await;
        connection.outbox().take(&mut outgoing);
    }
    let mut names = Vec::new();
    for each in &outgoing {
        let Outgoing::Deliver(sent) = each else { continue };
        let body = super::receive::first_part(&server.state.engine, sent).await.unwrap().body;
        let sections = message::sections::Sections::scan(&body).unwrap();
        let view = message::View { stored: &body, sections: &sections, overlay: None };
        names.extend(view.applications().unwrap().map(|property| property.unwrap().0.to_owned()));
    }
    assert_eq!(names, ["OrderId", "orderId", "ORDERID"]);
}

// K-30
#[tokio::test]
async fn a_received_message_has_its_properties_as_they_were_sent_and_no_length_among_them() {
    let server = TestServer::new().await;
    for body in ["hi", ""] {
        let headers =
            "orderId: 7\r\nSource-HOST: \"x\"\r\nPRIORITY: \"High\"\r\nContent-Type: text/plain\r\n";
        server.send(headers, body.as_bytes()).await;
        let answer = server.peek_lock().await;
        assert_eq!((answer.status, answer.text()), (201, body));
        for line in ["orderId: 7", "Source-HOST: \"x\"", "PRIORITY: \"High\"", "Content-Type: text/plain"] {
            assert!(answer.head.lines().any(|found| found == line), "{line} of {}", answer.head);
        }
        for name in ["BrokerProperties: ", "Location: ", "Date: ", "Transfer-Encoding: chunked"] {
            assert!(answer.head.lines().any(|found| found.starts_with(name)), "{name} of {}", answer.head);
        }
        assert!(!answer.headers.contains_key("content-length"), "{}", answer.head);
        assert_eq!(server.request("DELETE", &answer.location(), "", b"").await.status, 200);
    }
}
