//! The door as a client sees it: requests over a connection in memory, a broker of one map behind it.

use super::*;
use crate::auth::{Policy, Rights, Secret};
use broker::limits::LIST_PAGE;
use broker::{QueueDescription, Refusal, RequestId};
use engine::Stopped;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers as the broker does, from a map.
#[derive(Debug, Default)]
struct Fake {
    queues: Mutex<BTreeMap<String, QueueDescription>>,
    is_sick: AtomicBool,
}

impl Ask for Fake {
    async fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        if self.is_sick.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        let mut queues = self.queues.lock().unwrap();
        Ok(match make(RequestId::default()) {
            Command::CreateQueue { path, settings, .. } => match settings.check() {
                Err(refusal) => Err(refusal),
                Ok(()) if queues.contains_key(&path.to_lowercase()) => Err(Refusal::EntityExists(path)),
                Ok(()) => {
                    let queue = QueueDescription {
                        path: path.clone(),
                        settings: *settings,
                        created: Time(0),
                        updated: Time(0),
                        accessed: None,
                        counts: broker::Counts::default(),
                        bytes: 0,
                    };
                    queues.insert(path.to_lowercase(), queue.clone());
                    Ok(Answer::Queue(Box::new(queue)))
                }
            },
            Command::DescribeEntity { path, .. } => queues
                .get(&path.to_lowercase())
                .map(|queue| Answer::Queue(Box::new(queue.clone())))
                .ok_or(Refusal::EntityNotFound(path)),
            Command::DeleteEntity { path, .. } => queues
                .remove(&path.to_lowercase())
                .map(|_| Answer::Deleted)
                .ok_or(Refusal::EntityNotFound(path)),
            Command::ListQueues { skip, top, .. } => {
                Ok(Answer::Queues(queues.values().skip(skip).take(top.min(LIST_PAGE)).cloned().collect()))
            }
            other => panic!("the door asked {other:?}"),
        })
    }

    fn is_healthy(&self) -> bool {
        !self.is_sick.load(Ordering::Relaxed)
    }

    fn work(&self) -> metrics::Work {
        metrics::Work { syncs: 42, ..metrics::Work::default() }
    }
}

/// Who signs a request of a test.
#[derive(Clone, Copy)]
enum As {
    Manager,
    Reader,
    Nobody,
}

#[derive(Debug, Default)]
struct House {
    fake: Fake,
    /// Where requests come from; this machine unless said otherwise.
    from: Option<std::net::SocketAddr>,
}

impl House {
    /// Sends one request's bytes and returns everything that comes back.
    async fn exchange(&self, request: &[u8]) -> String {
        let policy = |name: &str, rights| Policy {
            name: name.into(),
            primary: Secret::new("key"),
            secondary: None,
            rights,
        };
        let reader = [Right::Listen].into_iter().collect();
        let guard = Guard::new(vec![policy("manager", Rights::ALL), policy("reader", reader)], false);
        let meters = Meters::default();
        let door = Door { ask: &self.fake, guard: &guard, meters: &meters };
        let (mut far, near) = tokio::io::duplex(4 << 20);
        far.write_all(request).await.unwrap();
        let peer = Peer::new(self.from.unwrap_or(([127, 0, 0, 1], 1).into()));
        serve(near, BytesMut::new(), peer, door, std::future::pending()).await;
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn request(
        &self,
        who: As,
        method: &str,
        address: &str,
        extra_headers: &str,
        body: &str,
    ) -> (u16, String) {
        let signed = |name| sas::sign("https%3a%2f%2fhost", name, "key", UnixSeconds::NEVER);
        let authorization = match who {
            As::Manager => format!("Authorization: {}\r\n", signed("manager")),
            As::Reader => format!("Authorization: Bearer {}\r\n", signed("reader")),
            As::Nobody => String::new(),
        };
        let length = body.len();
        let request = format!(
            "{method} {address} HTTP/1.1\r\nHost: mine.example:5300\r\n{authorization}{extra_headers}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let answer = self.exchange(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, body.to_owned())
    }

    async fn get(&self, address: &str) -> (u16, String) {
        self.request(As::Manager, "GET", address, "", "").await
    }

    async fn create(&self, address: &str, body: &str) -> (u16, String) {
        self.request(As::Manager, "PUT", address, "Content-Type: application/atom+xml\r\n", body).await
    }
}

/// What Python's client sends: prefixes for everything.
const PYTHON_QUEUE: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns:ns1="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ns0:content type="application/xml"><ns1:QueueDescription><ns1:LockDuration>PT30S</ns1:LockDuration><ns1:MaxDeliveryCount>3</ns1:MaxDeliveryCount></ns1:QueueDescription></ns0:content></ns0:entry>"#;

/// What JavaScript's client sends: default namespaces, a date, other cases.
const JAVASCRIPT_QUEUE: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><updated>2026-01-01T00:00:00.000Z</updated><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT30S</LockDuration></QueueDescription></content></entry>"#;

const TOPIC: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><TopicDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>"#;

// H-10, H-11, H-15
#[tokio::test]
async fn a_queue_is_created_shown_and_deleted() {
    let house = House::default();
    let (status, body) = house.create("/Orders?api-version=2024-05", PYTHON_QUEUE).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<title type=\"text\">Orders</title>"));
    assert!(body.contains("<id>http://mine.example:5300/Orders?api-version=2024-05</id>"));
    assert!(body.contains("<LockDuration>PT30S</LockDuration>"));
    let (status, shown) = house.get("/orders?enrich=false&api-version=2024-05").await;
    assert_eq!((status, &shown), (200, &body));
    let (status, body) = house.request(As::Manager, "DELETE", "/orders", "", "").await;
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(house.get("/orders").await.0, 404);
    assert_eq!(house.request(As::Manager, "DELETE", "/orders", "", "").await.0, 404);
}

// H-12, H-13 and the error table
#[tokio::test]
async fn failures_have_the_status_and_sub_code_of_the_service() {
    let house = House::default();
    assert_eq!(house.create("/q", JAVASCRIPT_QUEUE).await.0, 201);
    let (status, body) = house.create("/Q", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 409);
    assert!(body.starts_with("<Error><Code>409</Code><Detail>SubCode=40900. Conflict. "), "{body}");
    assert!(
        body.contains(" TrackingId:") && body.contains("_G0, SystemTracker:mine.example:5300:Q, Timestamp:")
    );
    let (status, body) = house.get("/missing").await;
    assert_eq!(status, 404);
    assert!(body.starts_with("<Error><Code>404</Code><Detail>SubCode=40400. Not Found. "), "{body}");
    let (status, body) = house.create("/r", &JAVASCRIPT_QUEUE.replace("PT30S", "PT1H")).await;
    assert_eq!(status, 400);
    assert!(body.contains("SubCode=40000. Bad Request. ") && body.contains("LockDuration"), "{body}");
    assert_eq!(house.create("/r", "<entry").await.0, 400);
    assert_eq!(house.get("/%ff").await.0, 400);
    assert_eq!(house.get("/$nothing").await.0, 404);
    assert_eq!(house.request(As::Manager, "PATCH", "/q", "", "").await.0, 405);
}

#[tokio::test]
async fn what_is_not_built_yet_says_so() {
    let house = House::default();
    for (method, address, header, body) in [
        ("PUT", "/q", "If-Match: *\r\n", JAVASCRIPT_QUEUE),
        ("PUT", "/t", "", TOPIC),
        ("GET", "/$Resources/topics", "", ""),
        ("GET", "/$namespaceinfo", "", ""),
        ("GET", "/t/Subscriptions/", "", ""),
        ("PUT", "/t/subscriptions/s", "", ""),
        ("POST", "/q/messages", "", "hello"),
        ("DELETE", "/q/messages/head", "", ""),
        ("GET", "/$servicebus/websocket", "Upgrade: websocket\r\n", ""),
    ] {
        let (status, body) = house.request(As::Manager, method, address, header, body).await;
        assert_eq!(status, 501, "{method} {address}");
        assert!(body.contains("not available in this version"), "{body}");
    }
    assert!(house.fake.queues.lock().unwrap().is_empty());
}

// H-27
#[tokio::test]
async fn a_list_comes_in_pages_with_a_link_to_the_next() {
    let house = House::default();
    for name in ["c", "a", "b"] {
        house.create(&format!("/{name}"), JAVASCRIPT_QUEUE).await;
    }
    let titles = |body: &str| -> Vec<String> {
        body.split("<title type=\"text\">")
            .skip(2)
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect()
    };
    let (status, body) = house.get("/$Resources/Queues?$skip=0&$top=2").await;
    assert_eq!((status, titles(&body)), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert!(body.contains("rel=\"next\""));
    let (_, body) = house.get("/$Resources/queues?%24skip=2&%24top=2").await;
    assert_eq!(titles(&body), ["c"]);
    assert!(!body.contains("rel=\"next\""));
    let (status, body) = house.get("/$Resources/queues?$skip=100").await;
    assert_eq!((status, titles(&body).len()), (200, 0));
    assert!(body.starts_with("<feed "));
}

// H-27
#[tokio::test]
async fn a_full_page_links_to_the_next_only_if_there_is_one() {
    let house = House::default();
    for number in 0..FEED_ENTRIES {
        house.create(&format!("/q{number:03}"), JAVASCRIPT_QUEUE).await;
    }
    assert!(!house.get("/$Resources/queues").await.1.contains("rel=\"next\""));
    house.create("/q999", JAVASCRIPT_QUEUE).await;
    let (_, body) = house.get("/$Resources/queues").await;
    assert!(body.contains("rel=\"next\"") && body.contains("$skip=100&amp;$top=100"));
    assert!(!body.contains("q999"));
}

// H-70, H-103
#[tokio::test]
async fn only_who_may_manage_may_change_and_only_who_may_listen_may_look() {
    let house = House::default();
    let (status, body) = house.request(As::Reader, "PUT", "/q", "", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40100. ") && body.contains("Manage"), "{body}");
    assert_eq!(house.request(As::Reader, "DELETE", "/q", "", "").await.0, 401);
    assert_eq!(house.request(As::Reader, "GET", "/$Resources/queues", "", "").await.0, 200);
    for (method, address) in
        [("PUT", "/q"), ("GET", "/q"), ("DELETE", "/q"), ("GET", "/$Resources/queues"), ("GET", "/")]
    {
        let (status, body) = house.request(As::Nobody, method, address, "", "").await;
        assert_eq!(status, 401, "{method} {address}");
        assert!(body.contains("SubCode=40102. Unauthorized. MissingToken: "), "{body}");
    }
    let stranger = "Authorization: Bearer eyJ.a.b\r\n";
    assert_eq!(house.request(As::Nobody, "GET", "/q", stranger, "").await.0, 401);
}

// H-102
#[tokio::test]
async fn a_token_for_one_queue_is_worth_nothing_for_another() {
    let house = House::default();
    house.create("/q", JAVASCRIPT_QUEUE).await;
    let token =
        sas::sign("https%3a%2f%2fhost%2fq%3fapi-version%3d2021-05", "manager", "key", UnixSeconds::NEVER);
    let header = format!("Authorization: {token}\r\n");
    assert_eq!(house.request(As::Nobody, "GET", "/Q", &header, "").await.0, 200);
    let (status, body) = house.request(As::Nobody, "GET", "/q2", &header, "").await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40104. "), "{body}");
}

// H-122
#[tokio::test]
async fn health_needs_no_token_and_tells_the_truth() {
    let house = House::default();
    let (status, body) = house.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!((status, &*body), (200, r#"{"status":"healthy","message":"Service is healthy."}"#));
    house.fake.is_sick.store(true, Ordering::Relaxed);
    let (status, body) = house.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!(status, 503);
    assert_eq!(
        body,
        r#"{"status":"unhealthy","message":"Service not available. Please try after some time."}"#
    );
    let (status, body) = house.get("/q").await;
    assert_eq!(status, 503);
    assert!(body.contains("SubCode=50004. "), "{body}");
}

#[tokio::test]
async fn metrics_are_for_this_machine() {
    let mut house = House::default();
    let (status, body) = house.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 200);
    assert!(body.contains("\notobus_journal_syncs_total 42\n"), "{body}");
    house.from = Some("192.0.2.1:1".parse().unwrap());
    let (status, body) = house.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 401);
    assert!(!body.contains("otobus_"), "{body}");
}

#[tokio::test]
async fn a_body_at_its_limit_is_read_and_one_past_it_is_not() {
    let house = House::default();
    let padded = |length: usize| format!("{JAVASCRIPT_QUEUE}{}", " ".repeat(length - JAVASCRIPT_QUEUE.len()));
    assert_eq!(house.create("/q", &padded(HTTP_BODY_BYTES)).await.0, 201);
    assert_eq!(house.create("/r", &padded(HTTP_BODY_BYTES + 1)).await.0, 413);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let house = House::default();
    let long = format!("X: {}\r\n", "x".repeat(2 * HTTP_HEAD_BYTES));
    let (status, _) = house.request(As::Manager, "GET", "/q", &long, "").await;
    assert_eq!(status, 431);
    let many = "X: x\r\n".repeat(HTTP_HEADERS);
    assert_eq!(house.request(As::Manager, "GET", "/q", &many, "").await.0, 431);
}

#[tokio::test]
async fn two_lengths_are_not_believed() {
    let house = House::default();
    let smuggled = "Content-Length: 5\r\n";
    let (status, _) = house.request(As::Manager, "PUT", "/q", smuggled, JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 400);
}

// An answer repeats the host that the client named only if it is one.
#[tokio::test]
async fn a_host_that_is_none_is_not_repeated() {
    let house = House::default();
    let request = b"GET /q HTTP/1.1\r\nHost: <script>\r\nConnection: close\r\n\r\n";
    let answer = house.exchange(request).await;
    assert!(answer.contains("SystemTracker:localhost:q") && !answer.contains("script"), "{answer}");
}
