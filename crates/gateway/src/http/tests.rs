//! The door as a client sees it: requests over a connection in memory, a broker behind it.

use super::*;
use crate::auth::{Guard, Policy, Right, Secret};
use crate::namespaces::tests::namespace;
use broker::{Broker, Context, Decision, Durable, Effect, Position, Refusal, RequestId};
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
        let decided = broker.decide(&command, broker::Arrivals::default(), &[], context, &mut decision);
        assert_eq!(decided, broker::Decided::Done);
        while broker.is_moving() {
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

    fn work(&self) -> metrics::Work {
        metrics::Work { syncs: 42, ..metrics::Work::default() }
    }
}

pub(super) fn engine_in_memory() -> Engine {
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
            memory: &Arc::default(),
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

/// What Python's client sends: prefixes for everything.
const PYTHON_QUEUE: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns:ns1="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ns0:content type="application/xml"><ns1:QueueDescription><ns1:LockDuration>PT30S</ns1:LockDuration><ns1:MaxDeliveryCount>3</ns1:MaxDeliveryCount></ns1:QueueDescription></ns0:content></ns0:entry>"#;

/// What JavaScript's client sends: default namespaces, a date, other cases.
const JAVASCRIPT_QUEUE: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><updated>2026-01-01T00:00:00.000Z</updated><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT30S</LockDuration></QueueDescription></content></entry>"#;

const TOPIC: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><TopicDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>"#;

// H-10, H-11, H-15
#[tokio::test]
async fn a_queue_is_created_shown_and_deleted() {
    let server = TestServer::default();
    let (status, body) = server.create("/Orders?api-version=2024-05", PYTHON_QUEUE).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<title type=\"text\">Orders</title>"));
    assert!(body.contains("<id>http://mine.example:5300/Orders?api-version=2024-05</id>"));
    assert!(body.contains("<LockDuration>PT30S</LockDuration>"));
    let (status, shown) = server.get("/orders?enrich=false&api-version=2024-05").await;
    // K-29: the id is what was asked for, the rest is the same.
    let created =
        body.replace("/Orders?api-version=2024-05</id>", "/orders?enrich=false&amp;api-version=2024-05</id>");
    assert_eq!((status, &shown), (200, &created));
    let (status, body) = server.request(As::Manager, "DELETE", "/orders", "", "").await;
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(server.get("/orders").await.0, 404);
    assert_eq!(server.request(As::Manager, "DELETE", "/orders", "", "").await.0, 404);
}

// H-12, H-13 and the error table
#[tokio::test]
async fn failures_have_the_status_and_sub_code_of_the_service() {
    let server = TestServer::default();
    assert_eq!(server.create("/q", JAVASCRIPT_QUEUE).await.0, 201);
    let (status, body) = server.create("/Q", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 409);
    assert!(body.starts_with("<Error><Code>409</Code><Detail>SubCode=40900. Conflict. "), "{body}");
    assert!(
        body.contains(" TrackingId:") && body.contains("_n1, SystemTracker:mine.example:5300:Q, Timestamp:")
    );
    let (status, body) = server.get("/missing").await;
    assert_eq!(status, 404);
    assert!(body.starts_with("<Error><Code>404</Code><Detail>SubCode=40400. Not Found. "), "{body}");
    let (status, body) = server.create("/r", &JAVASCRIPT_QUEUE.replace("PT30S", "PT1H")).await;
    assert_eq!(status, 400);
    assert!(body.contains("SubCode=40000. ") && body.contains("LockDuration"), "{body}");
    assert_eq!(server.create("/r", "<entry").await.0, 400);
    assert_eq!(server.get("/%ff").await.0, 400);
    assert_eq!(server.get("/$nothing").await.0, 404);
    assert_eq!(server.request(As::Manager, "PATCH", "/q", "", "").await.0, 405);
}

// HX-1.2.2, H-12, S-260
#[tokio::test]
async fn a_queue_is_updated_by_who_says_that_it_is_there() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let (status, body) = server.update("/Q", &JAVASCRIPT_QUEUE.replace("PT30S", "PT45S")).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("<LockDuration>PT45S</LockDuration>") && body.contains(">q</title>"), "{body}");
    assert_eq!(server.update("/missing", JAVASCRIPT_QUEUE).await.0, 404);
    let session =
        JAVASCRIPT_QUEUE.replace("</LockDuration>", "</LockDuration><RequiresSession>true</RequiresSession>");
    let (status, body) = server.update("/q", &session).await;
    assert_eq!(status, 400);
    let text =
        "SubCode=40000. The value for the 'RequiresSession' property of an existing Queue can't be changed.";
    assert!(body.contains(text), "{body}");
    // What is not said goes back to its default.
    let (_, body) =
        server.update("/q", &JAVASCRIPT_QUEUE.replace("<LockDuration>PT30S</LockDuration>", "")).await;
    assert!(body.contains("<LockDuration>PT1M</LockDuration>"), "{body}");
}

const SUBSCRIPTION: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><SubscriptionDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><MaxDeliveryCount>7</MaxDeliveryCount></SubscriptionDescription></content></entry>"#;

const RULE: &str = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><RuleDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><Filter xmlns:p4="http://www.w3.org/2001/XMLSchema-instance" p4:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter><Name>other</Name></RuleDescription></content></entry>"#;

// HX-1.2.1 to HX-1.2.7, H-16, H-20, H-21
#[tokio::test]
async fn a_topic_with_subscriptions_and_rules_is_managed_whole() {
    let server = TestServer::default();
    let (status, body) = server.create("/News/Local", TOPIC).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<TopicDescription ") && body.contains("<author><name>default</name></author>"));
    let (status, body) = server.create("/news/local/subscriptions/Mine", SUBSCRIPTION).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("href=\"http://mine.example:5300/News/Local/Subscriptions/Mine\""), "{body}");
    assert!(body.contains(">Mine</title>") && !body.contains("<author>"), "{body}");
    assert_eq!(server.create("/news/local/subscriptions/mine", SUBSCRIPTION).await.0, 409);
    let (status, body) = server.create("/News/Local/Subscriptions/Mine/Rules/R1", RULE).await;
    assert_eq!(status, 201, "{body}");
    let id = "<id>http://mine.example:5300/News/Local/Subscriptions/Mine/Rules/R1</id>";
    assert!(body.contains(id) && body.contains("<Name>R1</Name>"), "{body}");
    let (status, body) =
        server.update("/News/Local/Subscriptions/Mine/Rules/r1", &RULE.replace("a = 1", "b = 2")).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("<SqlExpression>b = 2</SqlExpression>") && body.contains("<Name>R1</Name>"));
    let (_, body) = server.get("/news/local/subscriptions/mine/rules").await;
    assert_eq!(body.matches("<RuleDescription").count(), 2);
    let (_, body) = server.get("/news/local?api-version=2024-05").await;
    assert!(body.contains("<SubscriptionCount>1</SubscriptionCount><SqlFilterCount>2</SqlFilterCount>"));
    let changed = SUBSCRIPTION.replace(">7<", ">8<");
    assert!(
        server.update("/news/local/subscriptions/mine", &changed).await.1.contains(">8</MaxDeliveryCount>")
    );
    assert_eq!(server.get("/News/Local/Subscriptions/").await.1.matches("<entry").count(), 1);
    assert_eq!(server.get("/$Resources/topics").await.1.matches("<entry").count(), 1);
    assert_eq!(server.get("/$Resources/queues").await.1.matches("<entry").count(), 0);
    let rule = "/news/local/subscriptions/mine/rules/$default";
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await, (200, String::new()));
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await.0, 404);
    assert_eq!(server.request(As::Manager, "DELETE", "/news/local", "", "").await, (200, String::new()));
    assert_eq!(server.get("/news/local/subscriptions/mine").await.0, 404);
    // Whatever a subscription is called, its rules are found.
    server.create("/t", TOPIC).await;
    assert_eq!(server.create("/t/subscriptions/messages", SUBSCRIPTION).await.0, 201);
    assert_eq!(server.create("/t/subscriptions/messages/rules/r", RULE).await.0, 201);
    let rule = "/t/subscriptions/messages/rules/r";
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await.0, 200);
    assert_eq!(server.create("/news/local/subscriptions/mine", SUBSCRIPTION).await.0, 404);
}

fn described(kind: &str, properties: &str) -> String {
    let bus = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
    format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><{kind}Description \
         xmlns=\"{bus}\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{properties}</{kind}Description></content></entry>"
    )
}

/// An entity of each kind, in the order in which they can be made: some with everything that only some tiers have.
fn entities(has_more: bool) -> Vec<(&'static str, String)> {
    let more = |text: &'static str| if has_more { text } else { "" };
    let queue = |name, properties: String| (name, described("Queue", &properties));
    let rule = |name, filter: &str, action: &str| (name, described("Rule", &format!("{filter}{action}")));
    let value = |kind: &str, text: &str| {
        format!(
            "<KeyValueOfstringanyType><Key>k-{kind}</Key><Value xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\" \
             i:type=\"d6p1:{kind}\">{text}</Value></KeyValueOfstringanyType>"
        )
    };
    let values = [
        value("string", " a &lt;b&gt; "),
        value("int", "-5"),
        value("long", "9223372036854775807"),
        value("boolean", "true"),
        value("double", "1.5E3"),
        value("dateTime", "2026-01-31T12:00:00Z"),
        value("duration", "PT1H"),
    ]
    .concat();
    vec![
        queue("/usual", String::new()),
        queue("/partitioned", "<EnablePartitioning>true</EnablePartitioning>".into()),
        queue(
            "/keyed",
            "<AuthorizationRules><AuthorizationRule i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType>\
             <ClaimValue>None</ClaimValue><Rights><AccessRights>Listen</AccessRights></Rights><KeyName>reader</KeyName>\
             </AuthorizationRule></AuthorizationRules><Status>ReceiveDisabled</Status><UserMetadata>a &lt; b</UserMetadata>"
                .into(),
        ),
        queue(
            "/rich",
            format!(
                "<LockDuration>PT5S</LockDuration><MaxSizeInMegabytes>5120</MaxSizeInMegabytes><MaxDeliveryCount>1</MaxDeliveryCount>\
                 <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration><EnableBatchedOperations>false\
                 </EnableBatchedOperations><ForwardDeadLetteredMessagesTo>SB://Host/usual</ForwardDeadLetteredMessagesTo>{}",
                more(
                    "<RequiresSession>true</RequiresSession><RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
                     <DuplicateDetectionHistoryTimeWindow>PT20S</DuplicateDetectionHistoryTimeWindow><DefaultMessageTimeToLive>\
                     PT1S</DefaultMessageTimeToLive><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><ForwardTo>usual</ForwardTo>"
                )
            ),
        ),
        ("/news", described("Topic", "<EnablePartitioning>true</EnablePartitioning><SupportOrdering>true</SupportOrdering>")),
        ("/small", described("Topic", "<MaxSizeInMegabytes>2048</MaxSizeInMegabytes><Status>SendDisabled</Status>")),
        (
            "/news/subscriptions/all",
            described(
                "Subscription",
                "<LockDuration>PT5M</LockDuration><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><Status>ReceiveDisabled</Status>\
                 <ForwardTo>HTTPS://Host:1/usual</ForwardTo><DeadLetteringOnFilterEvaluationExceptions>false\
                 </DeadLetteringOnFilterEvaluationExceptions><UserMetadata>words</UserMetadata>",
            ),
        ),
        rule(
            "/news/subscriptions/all/rules/sql",
            &format!(
                "<Filter i:type=\"SqlFilter\"><SqlExpression>a &lt; 1 OR b = @k-int</SqlExpression><Parameters>{values}</Parameters></Filter>"
            ).replace("@k-int", "1"),
            "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 'x'</SqlExpression></Action>",
        ),
        rule("/news/subscriptions/all/rules/none", "<Filter i:type=\"FalseFilter\"/>", ""),
        rule(
            "/news/subscriptions/all/rules/same",
            &format!("<Filter i:type=\"CorrelationFilter\"><CorrelationId></CorrelationId><Label> L </Label><Properties>{values}</Properties></Filter>"),
            "",
        ),
    ]
}

/// Without what tells the time of the update.
fn timeless(entry: &str) -> String {
    let mut text = entry.to_owned();
    for (start, end) in
        [("<updated>", "</updated>"), ("<UpdatedAt>", "</UpdatedAt>"), ("<ModifiedTime>", "</ModifiedTime>")]
    {
        while let Some(at) = text.find(start) {
            let length = text[at..].find(end).unwrap() + end.len();
            text.replace_range(at..at + length, "");
        }
    }
    text
}

impl TestServer {
    async fn set_tier(&self, tier: broker::Tier) {
        let task = Box::new(Task::SetTier { tier });
        let namespace = broker::NamespaceId(0);
        self.fake.ask(|request| Command::Manage { request, namespace, task }).await.unwrap().unwrap();
    }

    /// Reads each of these and sends back what it has read.
    async fn send_back(&self, entities: &[(&str, String)], tier: broker::Tier) {
        for version in ["2013-10", "2017-04", "2021-05", "2024-05"] {
            for (path, _) in entities {
                let address = format!("{path}?api-version={version}");
                let (status, read) = self.get(&address).await;
                assert_eq!(status, 200, "{path} in {tier:?}: {read}");
                let (status, answer) = self.update(&address, &read).await;
                assert_eq!(status, 200, "{path} of {version} in {tier:?}: {answer}");
                let again = self.get(&address).await.1;
                // A time to live that the tier does not have becomes its own.
                let own = |text: &str| {
                    let of = "<DefaultMessageTimeToLive>";
                    match tier {
                        broker::Tier::Basic => timeless(text)
                            .replace(&format!("{of}PT1S"), &format!("{of}P14D"))
                            .replace(&format!("{of}P10675199DT2H48M5.4775807S"), &format!("{of}P14D")),
                        _ => timeless(text),
                    }
                };
                assert_eq!(own(&again), own(&read), "{path} of {version} in {tier:?}");
            }
        }
    }
}

// K-21
#[tokio::test]
async fn whatever_is_read_can_be_sent_back_in_every_tier() {
    use broker::Tier;
    for tier in [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited] {
        let server = TestServer::default();
        server.set_tier(tier).await;
        let entities = entities(tier != Tier::Basic);
        for (path, body) in &entities {
            let (status, answer) = server.create(path, body).await;
            assert_eq!(status, 201, "{path} in {tier:?}: {answer}");
        }
        server.send_back(&entities, tier).await;
    }
}

// K-21: also of entities that were made in another tier, with targets that are gone.
#[tokio::test]
async fn what_another_tier_has_left_can_be_sent_back() {
    use broker::Tier;
    for tier in [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited] {
        let server = TestServer::default();
        let mut entities = entities(true);
        let large = "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>";
        entities.push(("/large", described("Queue", large)));
        entities.push(("/wide", described("Topic", large)));
        for (path, body) in &entities {
            assert_eq!(server.create(path, body).await.0, 201, "{path}");
        }
        assert_eq!(server.request(As::Manager, "DELETE", "/usual", "", "").await.0, 200);
        entities.retain(|(path, _)| *path != "/usual");
        server.set_tier(tier).await;
        server.send_back(&entities, tier).await;
    }
}

// K-21
#[tokio::test]
async fn the_size_of_messages_is_told_by_a_tier_that_lets_nobody_choose_it() {
    use broker::Tier;
    for (tier, told) in
        [(Tier::Basic, 256), (Tier::Standard, 256), (Tier::Premium, 1_024), (Tier::Unlimited, 1_024)]
    {
        let server = TestServer::default();
        server.set_tier(tier).await;
        for kind in ["Queue", "Topic"] {
            let path = format!("/{kind}");
            let sized = |kilobytes: u32| {
                described(
                    kind,
                    &format!("<MaxMessageSizeInKilobytes>{kilobytes}</MaxMessageSizeInKilobytes>"),
                )
            };
            let (status, body) = server.create(&path, &described(kind, "")).await;
            assert_eq!(status, 201, "{body}");
            assert!(body.contains(&format!("<MaxMessageSizeInKilobytes>{told}<")), "{body}");
            let may_choose = told != 256;
            assert_eq!(server.create(&format!("/other{kind}"), &sized(told)).await.0 == 201, may_choose);
            assert_eq!(server.update(&path, &sized(2_048)).await.0 == 200, may_choose);
        }
    }
}

// K-26
#[tokio::test]
async fn a_value_out_of_its_range_is_told_with_the_range() {
    let server = TestServer::default();
    let text = |range: &str| format!("<Detail>SubCode=40000. The value for {range}.");
    for (property, value, range) in [
        (
            "MaxMessageSizeInKilobytes",
            "102401",
            "'MaxMessageSizeInKilobytes' must be between 1024 and 102400",
        ),
        ("MaxMessageSizeInKilobytes", "0", "'MaxMessageSizeInKilobytes' must be between 1024 and 102400"),
        ("MaxDeliveryCount", "0", "'MaxDeliveryCount' must be between 1 and 2147483647"),
        ("LockDuration", "PT1S", "'LockDuration' must be between PT5S and PT5M"),
        (
            "AutoDeleteOnIdle",
            "PT1M",
            "'AutoDeleteOnIdle' must be between PT5M and P10675199DT2H48M5.4775807S",
        ),
        (
            "DuplicateDetectionHistoryTimeWindow",
            "P8D",
            "'DuplicateDetectionHistoryTimeWindow' must be between PT20S and P7D",
        ),
        (
            "DefaultMessageTimeToLive",
            "PT0.5S",
            "'DefaultMessageTimeToLive' must be between PT1S and P10675199DT2H48M5.4775807S",
        ),
    ] {
        let body = described("Queue", &format!("<{property}>{value}</{property}>"));
        let (status, answer) = server.create("/q", &body).await;
        assert_eq!(status, 400);
        assert!(answer.contains(&text(range)), "{answer}");
    }
    // H-71
    let (_, answer) = server.create("/q", &described("Queue", "<LockDuration>PT6M</LockDuration>")).await;
    assert!(
        answer.contains("The supplied lock time exceeds the allowed maximum of '5' minutes."),
        "{answer}"
    );
    assert!(answer.contains("The value for 'LockDuration' must be between PT5S and PT5M."), "{answer}");
}

// H-4, H-14
#[tokio::test]
async fn any_content_type_is_taken_and_each_answer_has_its_own() {
    let server = TestServer::default();
    let types = [
        "application/atom+xml",
        "application/atom+xml;type=entry;charset=utf-8",
        "application/xml",
        "text/plain",
        "x",
    ];
    for (nth, content_type) in types.into_iter().enumerate() {
        let header = format!("Content-Type: {content_type}\r\nAccept: nothing/at-all\r\n");
        let address = format!("/q{nth}");
        let (status, _) = server.request(As::Manager, "PUT", &address, &header, JAVASCRIPT_QUEUE).await;
        assert_eq!(status, 201, "{content_type}");
    }
    server.create("/t", TOPIC).await;
    let signed = sas::sign("https%3a%2f%2fhost", "manager", "key", UnixSeconds::NEVER);
    let head = format!("Host: mine.example\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n");
    for (address, expected, inside) in [
        ("/q0", "application/atom+xml;type=entry;charset=utf-8", "<QueueDescription "),
        ("/t", "application/atom+xml;type=entry;charset=utf-8", "<TopicDescription "),
        ("/$Resources/queues", "application/atom+xml;type=feed;charset=utf-8", "<feed "),
        ("/missing", "application/xml; charset=utf-8", "<Error>"),
    ] {
        let answer = server.exchange(format!("GET {address} HTTP/1.1\r\n{head}").as_bytes()).await;
        assert!(answer.contains(&format!("content-type: {expected}\r\n")), "{answer}");
        assert!(answer.contains(inside), "{answer}");
    }
}

// S-281, K-25, S-179
#[tokio::test]
async fn a_forward_address_is_read_back_as_it_was_given() {
    let server = TestServer::default();
    server.create("/next", JAVASCRIPT_QUEUE).await;
    for (given, read) in [
        ("http://mine.example:5300/next", "http://mine.example:5300/next"),
        ("SB://Mine.Example/Next", "sb://mine.example/Next"),
        ("next", "next"),
    ] {
        let properties = format!(
            "<LockDuration>PT5S</LockDuration><ForwardTo>{given}</ForwardTo><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"
        );
        let (status, body) = server.create("/first", &described("Queue", &properties)).await;
        assert_eq!(status, 201, "{body}");
        let (_, body) = server.get("/first").await;
        assert!(body.contains(&format!("<ForwardTo>{read}</ForwardTo>")), "{body}");
        // K-23
        assert!(body.contains("<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"), "{body}");
        server.request(As::Manager, "DELETE", "/first", "", "").await;
    }
}

// K-20
#[tokio::test]
async fn the_namespace_tells_its_tier() {
    use broker::Tier;
    let premium = "<MessagingSKU>Premium</MessagingSKU><MessagingUnits>1</MessagingUnits><ModifiedTime>";
    for (tier, told) in [
        (Tier::Basic, "<MessagingSKU>Basic</MessagingSKU><ModifiedTime>"),
        (Tier::Standard, "<MessagingSKU>Standard</MessagingSKU><ModifiedTime>"),
        (Tier::Premium, premium),
        (Tier::Unlimited, premium),
    ] {
        let server = TestServer::default();
        let own = Namespace { tier, ..namespace(0, "default", guard(&[])) };
        server.fake.namespaces.replace(own, vec![]);
        let (status, body) = server.get("/$namespaceinfo").await;
        assert!(status == 200 && body.contains(told), "{body}");
    }
}

// HX-1.8.1
#[tokio::test]
async fn the_namespace_tells_of_itself() {
    let server = TestServer::default();
    let (status, body) = server.get("/$namespaceinfo").await;
    assert_eq!(status, 200);
    for part in ["<Name>default</Name>", "<MessagingSKU>Premium</MessagingSKU>", "<NamespaceType>Messaging<"]
    {
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn each_namespace_has_its_own_entities() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let signed = sas::sign("https%3a%2f%2fshop.example", "manager", "key", UnixSeconds::NEVER);
    let ask = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n"
        )
    };
    assert!(server.exchange(ask("/q").as_bytes()).await.starts_with("HTTP/1.1 404 "));
    assert!(server.exchange(ask("/$namespaceinfo").as_bytes()).await.contains("<Name>shop</Name>"));
}

// H-102
#[tokio::test]
async fn a_token_for_one_namespace_is_worth_nothing_in_another() {
    let server = TestServer::default();
    let ask = |host: &str, signed: &str| {
        let signed = sas::sign(&format!("https%3a%2f%2f{signed}"), "manager", "key", UnixSeconds::NEVER);
        format!(
            "GET /$namespaceinfo HTTP/1.1\r\nHost: {host}\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n"
        )
    };
    // Both namespaces have this policy with this key.
    for (host, signed, is_taken) in [
        ("shop.example", "shop.example", true),
        ("mine.example", "other.example", true),
        ("mine.example", "shop.example", false),
        ("shop.example", "mine.example", false),
        ("shop.example", "default", false),
        ("old.example", "old.example", false),
        ("old.example", "mine.example", false),
        ("mine.example", "old.example", false),
    ] {
        let answer = server.exchange(ask(host, signed).as_bytes()).await;
        match is_taken {
            true => assert!(answer.starts_with("HTTP/1.1 200 "), "{signed} at {host}: {answer}"),
            false => assert!(answer.contains("SubCode=40104. "), "{signed} at {host}: {answer}"),
        }
    }
}

/// A queue with one rule of its own.
fn guarded(rule: &str) -> String {
    let inner = format!(
        "</LockDuration><AuthorizationRules><AuthorizationRule>{rule}</AuthorizationRule></AuthorizationRules>"
    );
    JAVASCRIPT_QUEUE.replace("</LockDuration>", &inner)
}

const OWNER: &str = "<Rights><AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights><KeyName>owner</KeyName>";

// H-102, HX-1.8.2, HX-1.8.3
#[tokio::test]
async fn a_rule_of_a_queue_opens_that_queue_alone() {
    let server = TestServer::default();
    let own = format!("{OWNER}<PrimaryKey>first</PrimaryKey><SecondaryKey>second</SecondaryKey>");
    let (status, body) = server.create("/q", &guarded(&own)).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<KeyName>owner</KeyName><PrimaryKey>first</PrimaryKey>"), "{body}");
    server.create("/q2", JAVASCRIPT_QUEUE).await;
    let with = |key: &str| {
        let token = sas::sign("https%3a%2f%2fhost", "owner", key, UnixSeconds::NEVER);
        format!("Authorization: {token}\r\n")
    };
    for key in ["first", "second"] {
        assert_eq!(server.request(As::Nobody, "GET", "/q", &with(key), "").await.0, 200);
        assert_eq!(server.request(As::Nobody, "GET", "/q2", &with(key), "").await.0, 401);
        assert_eq!(server.request(As::Nobody, "GET", "/$Resources/queues", &with(key), "").await.0, 401);
    }
    // Rotated: the first key is another, the second is kept because it is not given.
    let rotated = format!("{OWNER}<PrimaryKey>third</PrimaryKey>");
    assert_eq!(server.update("/q", &guarded(&rotated)).await.0, 200);
    for (key, status) in [("first", 401), ("second", 200), ("third", 200)] {
        assert_eq!(server.request(As::Nobody, "GET", "/q", &with(key), "").await.0, status, "{key}");
    }
    assert_eq!(server.update("/q", JAVASCRIPT_QUEUE).await.0, 200);
    assert_eq!(server.request(As::Nobody, "GET", "/q", &with("third"), "").await.0, 401);
    assert_eq!(server.update("/q", &guarded("<KeyName>x</KeyName>")).await.0, 400);
}

// H-102
#[tokio::test]
async fn a_rule_of_the_entity_around_opens_what_lies_below() {
    let server = TestServer::default();
    let rule = |key: &str| {
        guarded(&format!("{OWNER}<PrimaryKey>{key}</PrimaryKey><SecondaryKey>{key}</SecondaryKey>"))
    };
    server.create("/a", &rule("outer")).await;
    server.create("/a/b", &rule("inner")).await;
    let with = |key: &str| {
        let token = sas::sign("https%3a%2f%2fhost", "owner", key, UnixSeconds::NEVER);
        format!("Authorization: {token}\r\n")
    };
    for (key, address, status) in
        [("outer", "/a", 200), ("outer", "/a/b", 200), ("inner", "/a/b", 200), ("inner", "/a", 401)]
    {
        assert_eq!(server.raw("GET", address, &with(key)).await.0, status, "{key} at {address}");
    }
}

// H-80, S-171, S-178
#[tokio::test]
async fn who_forwards_must_manage_the_target() {
    let server = TestServer::default();
    server.create("/target", JAVASCRIPT_QUEUE).await;
    let own = format!("{OWNER}<PrimaryKey>first</PrimaryKey>");
    server.create("/q", &guarded(&own)).await;
    let forward =
        |body: &str| body.replace("</LockDuration>", "</LockDuration><ForwardTo>sb://h/target</ForwardTo>");
    let body = forward(&guarded(&own));
    let owner = sas::sign("https%3a%2f%2fhost%2fq", "owner", "first", UnixSeconds::NEVER);
    let manager = sas::sign("host%3a1", "manager", "key", UnixSeconds::NEVER);
    let headers = format!("If-Match: *\r\nAuthorization: {owner}\r\n");
    let (status, text) = server.request(As::Nobody, "PUT", "/q", &headers, &body).await;
    assert_eq!(status, 401, "{text}");
    let both = format!("{headers}ServiceBusSupplementaryAuthorization: {manager}\r\n");
    let (status, text) = server.request(As::Nobody, "PUT", "/q", &both, &body).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("<ForwardTo>sb://h/target</ForwardTo>"));
    let (status, text) =
        server.create("/r", &forward(JAVASCRIPT_QUEUE).replace("h/target", "h/nowhere")).await;
    assert_eq!(status, 400);
    assert!(text.contains("SubCode=40400. The auto forwarding destination entity does not exist"));
}

// H-27
#[tokio::test]
async fn a_list_comes_in_pages_with_a_link_to_the_next() {
    let server = TestServer::default();
    for name in ["c", "a", "b"] {
        server.create(&format!("/{name}"), JAVASCRIPT_QUEUE).await;
    }
    let titles = |body: &str| -> Vec<String> {
        body.split("<title type=\"text\">")
            .skip(2)
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect()
    };
    let (status, body) = server.get("/$Resources/Queues?$skip=0&$top=2").await;
    assert_eq!((status, titles(&body)), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert!(body.contains("rel=\"next\""));
    let (_, body) = server.get("/$Resources/queues?%24skip=2&%24top=2").await;
    assert_eq!(titles(&body), ["c"]);
    assert!(!body.contains("rel=\"next\""));
    let (status, body) = server.get("/$Resources/queues?$skip=100").await;
    assert_eq!((status, titles(&body).len()), (200, 0));
    let (status, body) = server.get("/$Resources/queues?$top=0").await;
    assert_eq!((status, titles(&body).len()), (200, 0));
    assert!(!body.contains("rel=\"next\""), "whoever follows it would follow it for ever");
    assert!(body.starts_with("<feed "));
}

// H-27
#[tokio::test]
async fn a_full_page_links_to_the_next_only_if_there_is_one() {
    let server = TestServer::default();
    for number in 0..FEED_ENTRIES {
        server.create(&format!("/q{number:03}"), JAVASCRIPT_QUEUE).await;
    }
    assert!(!server.get("/$Resources/queues").await.1.contains("rel=\"next\""));
    server.create("/q999", JAVASCRIPT_QUEUE).await;
    let (_, body) = server.get("/$Resources/queues").await;
    assert!(body.contains("rel=\"next\"") && body.contains("$skip=100&amp;$top=100"));
    assert!(!body.contains("q999"));
}

// H-27: every feed is read in pages, by the links that it gives.
#[tokio::test]
async fn each_feed_leads_through_all_its_pages() {
    let server = TestServer::default();
    let rule = |name: &str| RULE.replace("<Name>other</Name>", &format!("<Name>{name}</Name>"));
    for name in ["a", "b", "c"] {
        assert_eq!(server.create(&format!("/{name}"), JAVASCRIPT_QUEUE).await.0, 201);
        assert_eq!(server.create(&format!("/t{name}"), &described("Topic", "")).await.0, 201);
        assert_eq!(server.create(&format!("/ta/subscriptions/{name}"), SUBSCRIPTION).await.0, 201);
        let address = format!("/ta/subscriptions/a/rules/{name}");
        assert_eq!(server.create(&address, &rule(name)).await.0, 201);
    }
    let feeds = [
        ("/$Resources/queues", 3),
        ("/$Resources/topics", 3),
        ("/ta/subscriptions", 3),
        // With the one that every subscription begins with.
        ("/ta/subscriptions/a/rules", 4),
    ];
    for (feed, count) in feeds {
        let mut entries = Vec::new();
        let mut next = Some(format!("{feed}?$skip=0&$top=1"));
        while let Some(address) = next {
            let (status, body) = server.get(&address).await;
            assert_eq!(status, 200, "{address}");
            let titles = body.split("<title type=\"text\">").skip(2);
            let before = entries.len();
            entries.extend(titles.map(|rest| rest.split('<').next().unwrap().to_owned()));
            assert_eq!(entries.len(), before + 1, "{address}: {body}");
            next = body.split("rel=\"next\" href=\"").nth(1).map(|rest| {
                let address = rest.split('"').next().unwrap().replace("&amp;", "&");
                let path = address.split_once("://").unwrap().1.split_once('/').unwrap().1;
                format!("/{path}")
            });
        }
        assert_eq!(entries.len(), count, "{feed}: {entries:?}");
        entries.dedup();
        assert_eq!(entries.len(), count, "{feed}: {entries:?}");
    }
}

// H-70, H-103
#[tokio::test]
async fn only_who_may_manage_may_change_and_look() {
    let server = TestServer::default();
    let (status, body) = server.request(As::Reader, "PUT", "/q", "", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40100. ") && body.contains("Manage"), "{body}");
    assert_eq!(server.request(As::Reader, "DELETE", "/q", "", "").await.0, 401);
    assert_eq!(server.request(As::Reader, "GET", "/$Resources/queues", "", "").await.0, 401);
    for (method, address) in
        [("PUT", "/q"), ("GET", "/q"), ("DELETE", "/q"), ("GET", "/$Resources/queues"), ("PUT", "/")]
    {
        let (status, body) = server.request(As::Nobody, method, address, "", "").await;
        assert_eq!(status, 401, "{method} {address}");
        assert!(body.contains("SubCode=40102. Unauthorized. MissingToken: "), "{body}");
    }
    let stranger = "Authorization: Bearer eyJ.a.b\r\n";
    assert_eq!(server.request(As::Nobody, "GET", "/q", stranger, "").await.0, 401);
}

// H-102
#[tokio::test]
async fn a_token_for_one_queue_is_worth_nothing_for_another() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let token =
        sas::sign("https%3a%2f%2fhost%2fq%3fapi-version%3d2021-05", "manager", "key", UnixSeconds::NEVER);
    let header = format!("Authorization: {token}\r\n");
    assert_eq!(server.request(As::Nobody, "GET", "/Q", &header, "").await.0, 200);
    let (status, body) = server.request(As::Nobody, "GET", "/q2", &header, "").await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40104. "), "{body}");
}

// H-122
#[tokio::test]
async fn health_needs_no_token_and_tells_the_truth() {
    let server = TestServer::default();
    let (status, body) = server.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!((status, &*body), (200, r#"{"message":"Service is healthy.","status":"healthy"}"#));
    assert_eq!(server.request(As::Nobody, "GET", "/health?api-version=1", "", "").await.0, 200);
    assert_eq!(server.request(As::Nobody, "HEAD", "/health", "", "").await, (200, String::new()));
    server.fake.is_sick.store(true, Ordering::Relaxed);
    assert_eq!(server.request(As::Nobody, "HEAD", "/health", "", "").await, (503, String::new()));
    let (status, body) = server.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!(status, 503);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "unhealthy");
    assert_eq!(body["reasons"], serde_json::json!(["the disk has not confirmed a write for 7 seconds"]));
    assert_eq!(body["clockAheadMilliseconds"], 90_000);
    let (status, body) = server.get("/q").await;
    assert_eq!(status, 503);
    assert!(body.contains("SubCode=50004. "), "{body}");
}

#[tokio::test]
async fn metrics_are_for_this_machine() {
    let mut server = TestServer::default();
    let (status, body) = server.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 200);
    assert!(body.contains("\notobus_journal_syncs_total 42\n"), "{body}");
    // A page that has its name lead here, in a browser that says nothing else of it.
    let (status, body) = server.ask_as("evil.example:5300", "GET", "/metrics", "").await;
    assert_eq!(status, 401);
    assert!(!body.contains("otobus_"), "{body}");
    assert_eq!(server.ask_as("localhost:5300", "GET", "/metrics", "").await.0, 200);
    for page in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        let (status, body) = server.request(As::Nobody, "GET", "/metrics", page, "").await;
        assert_eq!(status, 401, "{page}");
        assert!(!body.contains("otobus_"), "{body}");
    }
    server.from = Some("192.0.2.1:1".parse().unwrap());
    let (status, body) = server.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 401);
    assert!(!body.contains("otobus_"), "{body}");
}

#[tokio::test]
async fn a_body_at_its_limit_is_read_and_one_past_it_is_not() {
    let server = TestServer::default();
    let padded = |length: usize| format!("{JAVASCRIPT_QUEUE}{}", " ".repeat(length - JAVASCRIPT_QUEUE.len()));
    assert_eq!(server.create("/q", &padded(HTTP_BODY_BYTES)).await.0, 201);
    assert_eq!(server.create("/r", &padded(HTTP_BODY_BYTES + 1)).await.0, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_announced_too_long_is_not_waited_for() {
    let server = TestServer::default();
    let token = sas::sign("https%3a%2f%2fhost", "manager", "key", UnixSeconds::NEVER);
    for (length, status) in [(HTTP_BODY_BYTES + 1, "413"), (HTTP_BODY_BYTES, "408")] {
        let request = format!(
            "PUT /q HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let answer = server.exchange(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    }
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let server = TestServer::default();
    for (head, status) in [
        ("GET /health HTTP/1.1\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
        ("GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n", 400),
        ("GET /health HTTP/1.0\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: a\r\n", 200),
    ] {
        let answer = server.exchange(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.split(' ').nth(1), Some(&*status.to_string()), "{head}: {answer}");
    }
}

// H-12
#[tokio::test]
async fn only_the_star_matches_what_is_there() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let changed = JAVASCRIPT_QUEUE.replace("PT30S", "PT45S");
    for (tag, status) in
        [("\"1\"", 412), ("W/\"x\"", 412), ("*, \"1\"", 412), ("", 412), ("\"*\"", 200), ("*", 200)]
    {
        let headers = format!("If-Match: {tag}\r\n");
        let (got, body) = server.request(As::Manager, "PUT", "/q", &headers, &changed).await;
        assert_eq!(got, status, "{tag}: {body}");
    }
    assert_eq!(server.request(As::Manager, "DELETE", "/q", "If-Match: \"1\"\r\n", "").await.0, 412);
    assert_eq!(server.request(As::Manager, "DELETE", "/q", "If-Match: *\r\n", "").await.0, 200);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = TestServer::default();
    let long = format!("X: {}\r\n", "x".repeat(2 * HTTP_HEAD_BYTES));
    let (status, _) = server.request(As::Manager, "GET", "/q", &long, "").await;
    assert_eq!(status, 431);
    let many = "X: x\r\n".repeat(HTTP_HEADERS);
    assert_eq!(server.request(As::Manager, "GET", "/q", &many, "").await.0, 431);
}

#[tokio::test]
async fn two_lengths_are_not_believed() {
    let server = TestServer::default();
    let smuggled = "Content-Length: 5\r\n";
    let (status, _) = server.request(As::Manager, "PUT", "/q", smuggled, JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 400);
}

// An answer repeats the host that the client named only if it is one.
#[tokio::test]
async fn a_host_that_is_none_is_not_repeated() {
    let server = TestServer::default();
    let request = b"GET /q HTTP/1.1\r\nHost: <script>\r\nConnection: close\r\n\r\n";
    let answer = server.exchange(request).await;
    assert!(answer.contains("SystemTracker:localhost:q") && !answer.contains("script"), "{answer}");
}

// A door that is knocked on for long opens late to wrong keys, and at once to the right one.
#[tokio::test(start_paused = true)]
async fn wrong_keys_wait_and_the_right_one_does_not() {
    let mut server = TestServer::default();
    let wrong = sas::sign("https%3a%2f%2fhost", "manager", "yek", UnixSeconds::NEVER);
    let wrong = format!("Authorization: {wrong}\r\n");
    for _ in 0..FREE_FAILURES {
        let start = Instant::now();
        assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
        assert_eq!(start.elapsed(), std::time::Duration::ZERO);
    }
    for _ in 0..20 {
        server.raw("GET", "/q", &wrong).await;
    }
    let start = Instant::now();
    assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
    assert_eq!(start.elapsed().as_secs(), FAILURE_DELAY_MOST.as_secs());
    let start = Instant::now();
    assert_eq!(server.get("/$Resources/queues").await.0, 200);
    server.from = Some("192.0.2.1:1".parse().unwrap());
    assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
    assert_eq!(start.elapsed(), std::time::Duration::ZERO, "the right key, and another address");
}
