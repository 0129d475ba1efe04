//! The door as a client sees it: requests over a connection in memory, a broker behind it.

mod access;
mod entity;
mod feed;
mod hostile;
mod namespace;
mod request;
mod rights;
mod sent_back;
mod server;

use super::*;
use crate::auth::{Guard, Issuer, Policy, Right, Secret};
use crate::namespaces::tests::namespace;
use broker::{Broker, Context, Decision, Durable, Effect, Material, Position, Refusal, RequestId};
use engine::{Engine, Problem, Stopped};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A broker with the engine's part played by hand: every decision is durable at once.
#[derive(Debug)]
struct Fake {
    broker: Mutex<Broker>,
    /// Made when somebody wants to send or receive. It has no entities: messages have tests of their own.
    engine: OnceLock<Engine>,
    is_sick: AtomicBool,
    failures: Failures,
    namespaces: Namespaces,
}

fn policy(name: &str, rights: &[Right]) -> Policy {
    let rights = rights.iter().copied().collect();
    Policy { name: name.into(), primary: Secret::new("key"), secondary: None, rights }
}

/// The policies that stay, and those that may be taken away.
fn guard(more: &[Policy]) -> Guard {
    let manager = policy("manager", &[Right::Manage]);
    let policies = [manager, policy("reader", &[Right::Listen]), policy("sender", &[Right::Send])];
    Guard::new(policies.into_iter().chain(more.iter().cloned()).collect(), false)
}

/// One whose manager has the same key as that of the default namespace.
fn shop() -> Namespace {
    namespace(1, "shop", Guard::new(vec![policy("manager", &[Right::Manage])], false))
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            broker: Mutex::new(Broker::new(Durable::new(), 1)),
            engine: OnceLock::new(),
            is_sick: AtomicBool::new(false),
            failures: Failures::default(),
            namespaces: Namespaces::new(
                namespace(0, "default", guard(&[policy("leaving", &[Right::Manage])])),
                vec![shop()],
                &["old".into()],
            ),
        }
    }
}

impl Ask for Fake {
    async fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        if self.is_sick.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        let mut decision = Decision::default();
        let context = Context { now: broker::Time(1_577_836_800_000), position: Position(1) };
        let command = make(RequestId::default());
        let mut broker = self.broker.lock().unwrap();
        let decided =
            broker.decide(&command, broker::Arrivals::default(), Material::NONE, context, &mut decision);
        assert_eq!(decided, broker::Decided::Done);
        while broker.is_advancing() {
            broker.tick(context, &mut decision);
        }
        match decision.effects.pop().map(|release| release.effect) {
            Some(Effect::Answered { answer, .. }) => Ok(answer),
            other => panic!("{command:?} was answered by {other:?}"),
        }
    }

    fn engine(&self) -> &engine::Handle {
        self.engine.get_or_init(engine_in_memory).handle()
    }

    fn problems(&self) -> Vec<Problem> {
        self.is_sick.load(Ordering::Relaxed).then_some(Problem::SyncPending(7)).into_iter().collect()
    }

    fn large_gap_ms(&self) -> Option<i64> {
        self.is_sick.load(Ordering::Relaxed).then_some(90_000)
    }

    fn totals(&self) -> metrics::Totals {
        metrics::Totals { syncs: 42, ..metrics::Totals::default() }
    }
}

pub(crate) fn engine_in_memory() -> Engine {
    let sizes =
        journal::Options { segment_bytes: 4 << 20, first_segment_bytes: 1 << 20, ..journal::Options::new(7) };
    let journal = journal::Local::open(Arc::new(journal::disk::Memory::new()), sizes).unwrap();
    let options = engine::Options { tail_cache_bytes: 1 << 20, ..engine::Options::new(2) };
    Engine::open(Box::new(journal), options, |why| panic!("{why}")).unwrap()
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let stopped = engine.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
    }
}

/// Who signs a request of a test.
#[derive(Clone, Copy)]
pub(super) enum As {
    Manager,
    Reader,
    Nobody,
}

#[derive(Debug, Default)]
pub(super) struct TestServer {
    fake: Fake,
    /// Where requests come from; this machine unless said otherwise.
    from: Option<std::net::SocketAddr>,
    has_no_test_clock: bool,
}

impl TestServer {
    pub(super) fn without_test_clock() -> TestServer {
        TestServer { has_no_test_clock: true, ..TestServer::default() }
    }

    /// Takes bearer tokens of this issuer too.
    pub(super) fn trust(&self, issuer: Issuer) {
        let guard = guard(&[]).with_issuers(vec![Arc::new(issuer)]);
        self.fake.namespaces.replace(namespace(0, "default", guard), vec![shop()]);
    }

    /// Takes the policy `leaving` away.
    pub(super) fn remove_policy(&self) {
        self.fake.namespaces.replace(namespace(0, "default", guard(&[])), vec![shop()]);
    }

    /// Sends one request's bytes and returns everything that comes back.
    pub(super) async fn exchange(&self, request: &[u8]) -> String {
        let meters = Meters::default();
        let door = Door {
            ask: &self.fake,
            items: None,
            namespaces: &self.fake.namespaces,
            names: &Names::new(&["mine.example".to_owned()]),
            meters: &meters,
            failures: &self.fake.failures,
            unfinished: &Arc::default(),
            accounts: &Arc::default(),
            node: "n1",
            has_test_clock: !self.has_no_test_clock,
            development: None,
        };
        let (mut far, near) = tokio::io::duplex(4 << 20);
        far.write_all(request).await.unwrap();
        let peer = Peer::new(self.from.unwrap_or(([127, 0, 0, 1], 1).into()));
        serve(near, BytesMut::new(), peer, door, std::future::pending()).await;
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    pub(super) async fn request(
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

    /// A request that calls the server by this name.
    pub(super) async fn ask_as(
        &self,
        host: &str,
        method: &str,
        address: &str,
        headers: &str,
    ) -> (u16, String) {
        let request =
            format!("{method} {address} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
        let answer = self.exchange(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, body.to_owned())
    }

    /// A request with these headers and no body.
    pub(super) async fn raw(&self, method: &str, address: &str, headers: &str) -> (u16, String) {
        self.request(As::Nobody, method, address, headers, "").await
    }

    pub(super) async fn get(&self, address: &str) -> (u16, String) {
        self.request(As::Manager, "GET", address, "", "").await
    }

    async fn update(&self, address: &str, body: &str) -> (u16, String) {
        self.request(As::Manager, "PUT", address, "If-Match: *\r\n", body).await
    }

    pub(super) async fn create(&self, address: &str, body: &str) -> (u16, String) {
        self.request(As::Manager, "PUT", address, "Content-Type: application/atom+xml\r\n", body).await
    }
}

/// What JavaScript's client sends: default namespaces, a date, other cases.
const JAVASCRIPT_QUEUE: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><updated>2026-01-01T00:00:00.000Z</updated><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT30S</LockDuration></QueueDescription></content></entry>"#;

const TOPIC: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><TopicDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>"#;

fn described(kind: &str, properties: &str) -> String {
    let bus = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
    format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><{kind}Description \
         xmlns=\"{bus}\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{properties}</{kind}Description></content></entry>"
    )
}

const SUBSCRIPTION: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><SubscriptionDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><MaxDeliveryCount>7</MaxDeliveryCount></SubscriptionDescription></content></entry>"#;

const RULE: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><RuleDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><Filter xmlns:p4="http://www.w3.org/2001/XMLSchema-instance" p4:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter><Name>other</Name></RuleDescription></content></entry>"#;
