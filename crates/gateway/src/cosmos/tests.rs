//! The door as a client sees it: requests over a connection in memory, and something small behind it that notes what it is asked.

use super::*;
use crate::auth::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use items::{ContainerFacts, Document, Page};
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

/// Answers everything alike and remembers it.
#[derive(Debug, Clone, Default)]
struct Fake {
    asked: Arc<Mutex<Vec<Command>>>,
    is_sick: bool,
}

impl Ask for Fake {
    async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        let document = Document { body: Bytes::from_static(b"{\"id\":\"1\"}"), etag: "\"e\"".into() };
        let answer = match &command {
            Command::ReadItem { item, .. } if item.id == "missing" => return Err(Refusal::NotFound),
            Command::Query(query) if query.text == "SELECT * FROM long" => {
                let values = vec![Bytes::from(vec![b' '; 4 * 1_024 * 1_024])];
                Answer::Page(Page { values, ..Page::default() })
            }
            Command::Query(_) | Command::List { .. } | Command::ReadFeed { .. } => {
                Answer::Page(Page::default())
            }
            Command::Explain(_) => Answer::Explanation(Bytes::from_static(b"{\"a\":\"\xC3\xA9\"}")),
            Command::Advance { by_ms } => Answer::Advanced { now_ms: 1_577_836_800_000 + *by_ms as i64 },
            Command::CreateItem(_) | Command::CreateDatabase { .. } => Answer::Created(document),
            _ => Answer::Found(document),
        };
        self.asked.lock().unwrap().push(command);
        let place = ContainerFacts {
            database: "d".into(),
            container: "c".into(),
            container_rid: "Jic9ANWdO-E=".into(),
            lsn: 5,
            item_lsn: None,
            item_count: 0,
            item_bytes: 0,
        };
        Ok(Reply { answer, charge: 100, place: Some(place) })
    }

    fn problems(&self) -> Vec<String> {
        self.is_sick.then(|| "the disk is full".to_owned()).into_iter().collect()
    }
}

const THEN: u64 = 1_493_254_272;
const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";

struct TestServer {
    door: Arc<Door<Fake>>,
    fake: Fake,
    peer: &'static str,
    host: &'static str,
}

impl Default for TestServer {
    fn default() -> TestServer {
        TestServer::new(Fake::default(), Settings { has_test_clock: true, ..Settings::default() })
    }
}

/// Who asks.
enum As {
    Owner,
    Reader,
    Emulator,
    Stranger,
    Nobody,
}

impl TestServer {
    fn new(fake: Fake, settings: Settings) -> TestServer {
        let [owner, reader] = ["owner", "reader"].map(|name| Secret::new(STANDARD.encode(name)));
        let keys = Keys::new(&[owner], &[reader], true).unwrap();
        let door =
            Door { wall: || UnixSeconds(THEN), ..Door::new(fake.clone(), keys, Names::default(), settings) };
        TestServer { door: Arc::new(door), fake, peer: "127.0.0.1:9", host: "localhost:8081" }
    }

    fn request(
        &self,
        who: As,
        method: &str,
        path: &str,
        pairs: &[(&str, &str)],
        body: &str,
    ) -> Request<Full<Bytes>> {
        let address = Address::read(path).unwrap();
        let (kind, link) = address.signed();
        let date = DATE.to_lowercase();
        let text = format!("{}\n{kind}\n{link}\n{date}\n\n", method.to_lowercase());
        let key = match who {
            As::Owner | As::Nobody => STANDARD.encode("owner"),
            As::Reader => STANDARD.encode("reader"),
            As::Emulator => WELL_KNOWN_KEY.to_owned(),
            As::Stranger => STANDARD.encode("stranger"),
        };
        let token = format!("type=master&ver=1.0&sig={}", sign(&key, &text).unwrap());
        let mut request = Request::builder().method(method).uri(path).header("host", self.host);
        if !matches!(who, As::Nobody) {
            request = request.header("authorization", token).header("x-ms-date", DATE);
        }
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (u16, HeaderMap, String) {
        let peer = Peer::new(self.peer.parse().unwrap());
        let (head, body) = self.door.answer(request, &peer, false).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn ask(
        &self,
        who: As,
        method: &str,
        path: &str,
        pairs: &[(&str, &str)],
    ) -> (u16, HeaderMap, String) {
        self.send(self.request(who, method, path, pairs, "{}")).await
    }

    fn asked(&self) -> Vec<Command> {
        std::mem::take(&mut self.fake.asked.lock().unwrap())
    }
}

const ITEM: &str = "/dbs/d/colls/c/docs/i";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"x\"]");

// Section 17
#[tokio::test]
async fn an_answer_says_where_it_comes_from() {
    let server = TestServer { host: "db.example:18081", ..TestServer::default() };
    for path in ["/", "/dbs/d%20%C3%A9/colls/c/docs/i"] {
        let (_, headers, _) = server.ask(As::Owner, "GET", path, &[KEY]).await;
        assert_eq!(headers["content-location"], format!("http://db.example:18081{path}"));
    }
    let (status, headers, _) = server.ask(As::Stranger, "GET", "/", &[]).await;
    assert_eq!((status, headers.get("content-location")), (401, None));
}

// P-8, P-12 and decisions 3 and 4
#[tokio::test]
async fn the_account_leads_back_to_where_it_was_asked() {
    let server = TestServer { host: "db.example:18081", ..TestServer::default() };
    let (status, headers, body) = server.ask(As::Owner, "GET", "/", &[]).await;
    let account: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200, "{body}");
    assert_eq!(account["writableLocations"][0]["databaseAccountEndpoint"], "http://db.example:18081/");
    assert_ne!(account["id"], "localhost");
    assert!(!headers.contains_key("etag"));
    let endpoint = Some("https://given:1/".to_owned());
    let server = TestServer::new(Fake::default(), Settings { endpoint, ..Settings::default() });
    let (_, _, body) = server.ask(As::Owner, "GET", "/", &[]).await;
    assert!(body.contains("https://given:1/"), "{body}");
}

// P-14, P-19, P-20, P-21
#[tokio::test]
async fn only_whoever_has_a_key_is_let_in() {
    let server = TestServer::default();
    assert_eq!(server.ask(As::Owner, "GET", ITEM, &[KEY]).await.0, 200);
    assert_eq!(server.ask(As::Emulator, "GET", ITEM, &[KEY]).await.0, 200);
    assert_eq!(server.ask(As::Reader, "GET", ITEM, &[KEY]).await.0, 200);
    let (status, headers, body) = server.ask(As::Reader, "DELETE", ITEM, &[KEY]).await;
    assert_eq!((status, headers["x-ms-substatus"].to_str().unwrap()), (403, "0"), "{body}");
    let query = [("x-ms-documentdb-isquery", "true")];
    let request =
        server.request(As::Reader, "POST", "/dbs/d/colls/c/docs", &query, r#"{"query":"SELECT 1"}"#);
    assert_eq!(server.send(request).await.0, 200);
    let (status, _, body) = server.ask(As::Stranger, "GET", ITEM, &[KEY]).await;
    assert_eq!(status, 401);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(body["message"].as_str().unwrap().contains("docs\\\\ndbs/d/colls/c/docs/i\\\\nthu"), "{body}");
    assert_eq!(server.ask(As::Nobody, "GET", ITEM, &[KEY]).await.0, 401);
    server.asked();
    assert_eq!(server.ask(As::Nobody, "POST", "/dbs", &[]).await.0, 401);
    assert_eq!(server.asked(), [], "nothing is asked for strangers");
}

// P-21
#[tokio::test]
async fn the_well_known_key_is_nothing_for_others_and_for_pages() {
    let far = TestServer { peer: "10.0.0.1:9", ..TestServer::default() };
    assert_eq!(far.ask(As::Emulator, "GET", ITEM, &[KEY]).await.0, 401);
    assert_eq!(far.ask(As::Owner, "GET", ITEM, &[KEY]).await.0, 200);
    let page = TestServer::default();
    assert_eq!(page.ask(As::Emulator, "GET", ITEM, &[KEY, ("origin", "http://evil")]).await.0, 401);
    let rebound = TestServer { host: "evil.example", ..TestServer::default() };
    assert_eq!(rebound.ask(As::Emulator, "GET", ITEM, &[KEY]).await.0, 401);
}

// P-19
#[tokio::test]
async fn a_signature_of_long_ago_is_forbidden() {
    let server = TestServer::default();
    let late = Door { wall: || UnixSeconds(THEN + 901), ..Arc::into_inner(server.door).unwrap() };
    let server = TestServer { door: Arc::new(late), ..TestServer::default() };
    let (status, _, body) = server.ask(As::Owner, "GET", "/dbs", &[]).await;
    assert_eq!(status, 403);
    assert!(body.contains("is not valid at the current time"), "{body}");
}

// P-44
#[tokio::test]
async fn ranges_that_are_known_are_not_told_again() {
    let server = TestServer::default();
    let ranges = "/dbs/d/colls/c/pkranges";
    let (status, headers, body) = server.ask(As::Owner, "GET", ranges, &[("a-im", "Incremental Feed")]).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &headers["etag"], &body["_count"]),
        (200, &HeaderValue::from_static("\"e\""), &json!(1))
    );
    assert_eq!((&body["_rid"], &body["PartitionKeyRanges"][0]["id"]), (&json!("Jic9ANWdO-E="), &json!("1")));
    let known = [("a-im", "Incremental Feed"), ("if-none-match", "\"e\"")];
    let (status, headers, body) = server.ask(As::Owner, "GET", ranges, &known).await;
    assert_eq!((status, body.as_str(), &headers["etag"]), (304, "", &HeaderValue::from_static("\"e\"")));
}

// 12.2
#[tokio::test]
async fn index_metrics_come_in_the_form_that_was_asked_for() {
    let server = TestServer::default();
    for (name, expected) in [
        ("x-ms-cosmos-populateindexmetrics", STANDARD.encode("{\"a\":\"é\"}")),
        ("x-ms-cosmos-populateindexmetrics-v2", "%7B%22a%22%3A%22%C3%A9%22%7D".to_owned()),
    ] {
        let pairs = [("x-ms-documentdb-isquery", "true"), (name, "True")];
        let request =
            server.request(As::Owner, "POST", "/dbs/d/colls/c/docs", &pairs, r#"{"query":"SELECT 1"}"#);
        let (status, headers, _) = server.send(request).await;
        assert_eq!((status, headers["x-ms-cosmos-index-utilization"].to_str().unwrap()), (200, &*expected));
    }
}

#[tokio::test]
async fn health_is_told_to_everybody() {
    let server = TestServer::default();
    for path in ["/health", "/ready"] {
        assert_eq!(server.ask(As::Nobody, "GET", path, &[]).await.0, 200);
    }
    let sick = TestServer::new(Fake { is_sick: true, ..Fake::default() }, Settings::default());
    let (status, _, body) = sick.ask(As::Nobody, "GET", "/ready", &[]).await;
    assert!(status == 503 && body.contains("the disk is full"), "{body}");
}

#[tokio::test]
async fn time_is_moved_where_it_may_be() {
    let server = TestServer::default();
    let clock = "/$otobus/clock";
    let request = server.request(As::Owner, "POST", clock, &[], r#"{"advance":"PT1H"}"#);
    let (status, _, body) = server.send(request).await;
    assert_eq!((status, body.as_str()), (200, r#"{"now":"2020-01-01T01:00:00.000Z"}"#));
    assert_eq!(server.ask(As::Owner, "POST", clock, &[]).await.0, 400);
    assert_eq!(server.ask(As::Reader, "POST", clock, &[]).await.0, 403);
    assert_eq!(server.ask(As::Owner, "GET", clock, &[]).await.0, 200);
    let without = TestServer::new(Fake::default(), Settings::default());
    assert_eq!(without.ask(As::Owner, "POST", clock, &[]).await.0, 404);
}

// Section 18
#[tokio::test]
async fn what_is_missing_is_told_with_code_and_sub_status() {
    let server = TestServer::default();
    let (status, headers, body) = server.ask(As::Owner, "GET", "/dbs/d/colls/c/docs/missing", &[KEY]).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["code"]), (404, &json!("NotFound")));
    assert_eq!(headers["x-ms-substatus"], "0");
    for name in ["x-ms-activity-id", "x-ms-request-charge", "x-ms-request-duration-ms", "content-type"] {
        assert!(headers.contains_key(name), "{name}");
    }
    assert_eq!(server.ask(As::Owner, "GET", "/other", &[]).await.0, 404);
    assert_eq!(server.ask(As::Owner, "PUT", "/dbs", &[]).await.0, 405);
}

// K-40, P-1: the same door by HTTP/1.1 and by HTTP/2 with prior knowledge.
#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let server = TestServer::default();
    let connect = || {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let peer = Peer::new(server.peer.parse().unwrap());
        let acceptor = crate::listen::tests::acceptor();
        tokio::spawn(crate::listen::serve(far, peer, acceptor, server.door.clone()));
        TokioIo::new(near)
    };
    let (mut one, driver) = hyper::client::conn::http1::handshake(connect()).await.unwrap();
    tokio::spawn(driver);
    let response = one.send_request(server.request(As::Owner, "GET", ITEM, &[KEY], "")).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_11));
    let (mut two, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), connect()).await.unwrap();
    tokio::spawn(driver);
    for _ in 0..3 {
        let response = two.send_request(server.request(As::Owner, "GET", ITEM, &[KEY], "")).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
    }
    server.door.stop();
    server.door.idle().await;
}

/// The server's end of a connection, which notes how many were asked when it is written to.
struct Noting {
    stream: tokio::io::DuplexStream,
    asked: Arc<Mutex<Vec<Command>>>,
    at_writes: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let asked = self.asked.lock().unwrap().len();
        self.at_writes.lock().unwrap().push(asked);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn reads_that_are_there_together_are_all_asked_before_the_first_is_answered() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = TestServer::default();
    let request = server.request(As::Owner, "GET", ITEM, &[KEY], "");
    let lines =
        request.headers().iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    let text = format!("GET {ITEM} HTTP/1.1\r\n{}\r\n", lines.collect::<String>());
    let at_writes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (stream, mut client) = tokio::io::duplex(64 * 1024);
        client.write_all(text.as_bytes()).await.unwrap();
        let (asked, at_writes) = (Arc::clone(&server.fake.asked), Arc::clone(&at_writes));
        let (stopping, peer) = (server.door.stopping.subscribe(), Peer::new(server.peer.parse().unwrap()));
        let stream = Noting { stream, asked, at_writes };
        tokio::spawn(connection::serve(stream, BytesMut::new(), peer, Arc::clone(&server.door), stopping));
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.read_u8().await.unwrap(), b'H');
    }
    assert_eq!(*at_writes.lock().unwrap(), [3; 3]);
}

// W-42
#[tokio::test]
async fn answers_that_nobody_takes_have_a_total_and_the_next_is_told_to_come_back() {
    let server = TestServer::default();
    let query = [("x-ms-documentdb-isquery", "true")];
    let ask = |who: As, text: &str| {
        let body = format!(r#"{{"query":"{text}"}}"#);
        let request = server.request(who, "POST", "/dbs/d/colls/c/docs", &query, &body);
        let door = Arc::clone(&server.door);
        async move { door.answer(request, &Peer::new("127.0.0.1:9".parse().unwrap()), false).await }
    };
    let mut waiting = Vec::new();
    let refused = loop {
        let answer = ask(As::Reader, "SELECT * FROM long").await;
        if answer.status() != 200 {
            break answer;
        }
        waiting.push(answer);
        assert!(waiting.len() < 100, "no end");
    };
    assert!(waiting.len() * 4 * 1_024 * 1_024 <= CONNECTIONS_BYTES / 2);
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["x-ms-retry-after-ms"], "1000");
    assert_eq!(ask(As::Reader, "SELECT 1").await.status(), 200, "a little is there for everybody");
    assert_eq!(ask(As::Owner, "SELECT * FROM long").await.status(), 200, "readers leave the other half");
    let whole = waiting.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(whole.len() > 4 * 1_024 * 1_024);
    waiting.clear();
    assert_eq!(ask(As::Reader, "SELECT * FROM long").await.status(), 200);
}

// W-42
#[tokio::test]
async fn a_body_counts_until_it_is_answered() {
    let server = TestServer::default();
    let body = format!(r#"{{"id":"1","x":"{}"}}"#, "x".repeat(1_900_000));
    let mut held = Vec::new();
    while server.door.accounts.pooled_bytes() + 4 * body.len() < CONNECTIONS_BYTES / 2 {
        let mut one = Holding::new(&server.door.accounts, Access::All);
        one.take(2 * body.len()).unwrap();
        held.push(one);
    }
    let create = || server.request(As::Owner, "POST", "/dbs/d/colls/c/docs", &[KEY], &body);
    while held.len() < 100 && server.send(create()).await.0 != 429 {
        let mut one = Holding::new(&server.door.accounts, Access::All);
        match one.take(2 * body.len()) {
            Ok(()) => held.push(one),
            Err(_) => break,
        }
    }
    server.asked();
    assert_eq!(server.send(create()).await.0, 429);
    assert!(server.asked().is_empty(), "it is refused before it is asked");
    held.clear();
    assert_eq!(server.send(create()).await.0, 201);
}
