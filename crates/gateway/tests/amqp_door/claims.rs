//! Claims on `$cbs`: where answers go, what they say, and what a claim is good for.

use crate::client::{Client, Frame, list, map, part, performatives, receiver, sender};
use crate::rights::pass_review;
use crate::server::{KEY, QUEUE, READER, ROOT, TestServer, policies};
use amqp::performative::{Flow, Performative, Transfer};
use amqp::{AnyTarget, Attach, Source, State, Target};
use broker::AccessRule;
use broker::access::Key;
use message::Value;
use message::sections::section;
use otobus_gateway::auth::{Development, Guard, Issuer, UnixSeconds, sas};
use std::sync::Arc;

/// How a client's pair of links looks.
pub struct Pair {
    channel: u16,
    requests: u32,
    replies: u32,
    name: &'static str,
    target: Option<&'static str>,
}

impl Pair {
    fn requests(&self) -> Attach {
        let name = format!("{}-requests", self.name);
        Attach { name, ..sender(self.requests, "$cbs") }
    }

    fn replies(&self) -> Attach {
        let target = Target { address: self.target.map(Into::into), ..Target::default() };
        Attach {
            name: self.name.into(),
            target: Some(AnyTarget::Target(target)),
            ..receiver(self.replies, "$cbs")
        }
    }

    /// Attaches both links; the one for replies gets `credit`.
    pub async fn attach(&self, client: &mut Client, credit: u32) {
        let mut bytes = Vec::new();
        for attach in [self.requests(), self.replies()] {
            Performative::Attach(Box::new(attach)).write(&mut bytes, self.channel, &[]);
        }
        let flow = Flow {
            next_incoming_id: Some(1),
            incoming_window: 5_000,
            handle: Some(self.replies),
            delivery_count: Some(0),
            link_credit: Some(credit),
            ..Flow::default()
        };
        Performative::Flow(flow).write(&mut bytes, self.channel, &[]);
        client.raw(&bytes).await;
        let written = client.write().await;
        let [Performative::Attach(_), Performative::Flow(flow), Performative::Attach(_)] =
            &performatives(&written)[..]
        else {
            panic!("{written:?}")
        };
        assert!(flow.link_credit > Some(0), "A-11.30: credit comes with the attach");
    }
}

pub const PYTHON: Pair = Pair { channel: 0, requests: 0, replies: 1, name: "py", target: Some("$cbs") };

/// A put-token as it goes over the wire.
#[derive(Clone)]
pub struct Put {
    message_id: Value,
    reply_to: Option<&'static str>,
    kind: &'static str,
    audience: String,
    token: String,
    expiration: Value,
}

pub fn token(resource: &str, policy: &str, expires: u64) -> String {
    sas::sign(resource, policy, KEY, UnixSeconds(expires))
}

pub fn soon() -> u64 {
    UnixSeconds::now().0 + 3_600
}

pub fn put(audience: &str) -> Put {
    Put {
        message_id: Value::Uuid([3; 16]),
        reply_to: None,
        kind: "servicebus.windows.net:sastoken",
        audience: audience.into(),
        token: token("sb%3a%2f%2fbus.example", ROOT, soon()),
        expiration: Value::Null,
    }
}

impl Put {
    /// The same request with another token.
    pub fn with(self, token: String) -> Put {
        Put { token, ..self }
    }

    fn encode(&self) -> Vec<u8> {
        let reply_to = self.reply_to.map_or(Value::Null, Value::from);
        let properties = vec![self.message_id.clone(), Value::Null, Value::Null, Value::Null, reply_to];
        let application = vec![
            ("operation".into(), "put-token".into()),
            ("type".into(), self.kind.into()),
            ("name".into(), self.audience.as_str().into()),
            ("expiration".into(), self.expiration.clone()),
        ];
        let mut out = part(section::PROPERTIES, Value::List(properties));
        out.extend(part(section::APPLICATION_PROPERTIES, Value::Map(application)));
        out.extend(part(section::VALUE, self.token.as_str().into()));
        out
    }

    pub async fn send(&self, client: &mut Client, pair: &Pair, settled: bool) {
        let transfer = Transfer {
            handle: pair.requests,
            delivery_id: Some(0),
            delivery_tag: Some(b"t"),
            settled: Some(settled),
            ..Transfer::default()
        };
        let mut bytes = Vec::new();
        Performative::Transfer(transfer).write(&mut bytes, pair.channel, &self.encode());
        client.raw(&bytes).await;
    }
}

/// An answer: channel and handle it came on, correlation id, status and text.
pub struct Reply {
    at: (u16, u32),
    correlation: Value,
    pub status: Value,
    text: String,
}

pub fn reply(frame: &Frame) -> Reply {
    let Performative::Transfer(transfer) = &frame.performative else { panic!("{frame:?}") };
    let application = map(frame.payload, |sections| sections.application_properties);
    Reply {
        at: (frame.channel, transfer.handle),
        correlation: list(frame.payload, |sections| sections.properties)[5].clone(),
        status: application.get("status-code").unwrap().clone(),
        text: application.get("status-description").and_then(Value::as_str).unwrap().into(),
    }
}

/// The handle of a link that the server ends, and why.
pub fn ended(frame: &Frame) -> (u32, String) {
    let Performative::Detach(detach) = &frame.performative else { panic!("{frame:?}") };
    (detach.handle, detach.error.as_ref().unwrap().condition.to_string())
}

/// Puts one token as a client that has done nothing before.
async fn answer_to(server: &TestServer, put: Put) -> (Client, Reply) {
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    put.send(&mut client, &PYTHON, true).await;
    let reply = reply(&client.next().await);
    (client, reply)
}

#[tokio::test]
async fn an_answer_finds_its_link_by_target_by_name_or_by_session() {
    //
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    client.begin(1, 5_000).await;
    let java = Pair { channel: 0, requests: 0, replies: 1, name: "j", target: Some("cbs-client-reply-to") };
    let javascript = Pair { channel: 0, requests: 2, replies: 3, name: "cbs-77", target: None };
    let python = Pair { channel: 1, ..PYTHON };
    for pair in [&java, &javascript, &python] {
        pair.attach(&mut client, 10).await;
    }
    let cases = [
        (&java, Some("cbs-client-reply-to")),
        (&javascript, Some("cbs-77")),
        (&python, None),
        (&python, Some("nobody")),
    ];
    for (pair, reply_to) in cases {
        let put = Put { reply_to, ..put(&format!("sb://bus.example/{QUEUE}")) };
        // All ask on one session, so that an answer on another one was found by what the request says.
        put.send(&mut client, &python, true).await;
        let reply = reply(&client.next().await);
        assert_eq!((reply.at, reply.status), ((pair.channel, pair.replies), Value::Int(202)));
    }
}

#[tokio::test]
async fn an_unsettled_request_is_accepted_before_its_answer_and_a_settled_one_is_only_answered() {
    // Go waits for the disposition; .NET and Java send settled.
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    let put = put("sb://bus.example/");
    put.send(&mut client, &PYTHON, false).await;
    assert_eq!(client.outcome(0).await, State::Accepted);
    assert_eq!(reply(&client.next().await).status, Value::Int(202));
    put.send(&mut client, &PYTHON, true).await;
    assert_eq!(reply(&client.next().await).status, Value::Int(202), "no disposition before it");
}

#[tokio::test]
async fn an_answer_waits_for_credit_and_each_credit_brings_one() {
    // Java grants one at a time, and late.
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 0).await;
    for id in 1..=3 {
        let put = Put { message_id: Value::Ulong(id), ..put("sb://bus.example/") };
        put.send(&mut client, &PYTHON, true).await;
    }
    assert_eq!(client.said_before_echo().await, [], "no credit, no answer");
    for id in 1..=3 {
        client.credit(PYTHON.replies, id as u32 - 1, 1).await;
        assert_eq!(reply(&client.next().await).correlation, Value::Ulong(id));
        assert_eq!(client.said_before_echo().await, [], "one credit, one answer");
    }
}

#[tokio::test]
async fn the_pair_may_be_opened_and_closed_for_every_token() {
    // Go does.
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    for _ in 0..20 {
        PYTHON.attach(&mut client, 1).await;
        put(&format!("sb://bus.example/{QUEUE}")).send(&mut client, &PYTHON, true).await;
        assert_eq!(reply(&client.next().await).status, Value::Int(202));
        client.detach(PYTHON.requests).await;
        client.detach(PYTHON.replies).await;
    }
}

#[tokio::test]
async fn an_accepted_claim_is_202_with_the_request_s_id_in_its_own_type() {
    //
    let server = TestServer::new().await;
    for id in [Value::Uuid([9; 16]), "text".into(), Value::Ulong(4)] {
        let put = Put { message_id: id.clone(), ..put(&format!("amqps://bus.example:5671/{QUEUE}/")) };
        let (_, reply) = answer_to(&server, put).await;
        assert_eq!((reply.status, reply.correlation), (Value::Int(202), id));
        assert_eq!(reply.text, "Accepted");
    }
}

#[tokio::test]
async fn whatever_is_wrong_with_a_token_is_401() {
    // never 403, which clients take for a full quota. A stranger is not told whether a queue exists.
    let server = TestServer::new().await;
    let audience = format!("sb://bus.example/{QUEUE}");
    let wrong = |token: String| Put { token, ..put(&audience) };
    let other_queue = token("sb%3a%2f%2fbus.example%2fother", ROOT, soon());
    let puts = [
        wrong("nonsense".into()),
        wrong(token("sb%3a%2f%2fbus.example", "nobody", soon())),
        wrong(sas::sign("sb%3a%2f%2fbus.example", ROOT, "another key", UnixSeconds(soon()))),
        wrong(other_queue.clone()),
        Put { token: other_queue, ..put("sb://bus.example/nowhere") },
    ];
    for put in puts {
        let (mut client, reply) = answer_to(&server, put).await;
        assert_eq!(reply.status, Value::Int(401), "{}", reply.text);
        assert!(reply.text.contains(" TrackingId:"), "S-11: {}", reply.text);
        let refused = client.refused(receiver(5, QUEUE)).await;
        assert_eq!(refused.condition, "amqp:unauthorized-access");
    }
}

#[tokio::test]
async fn the_expiry_that_counts_is_the_token_s_own() {
    //
    let server = TestServer::new().await;
    let now = UnixSeconds::now().0;
    let audience = format!("sb://bus.example/{QUEUE}");
    for (expires, said, status) in [(now - 3_600, now + 3_600, 401), (now + 3_600, now - 3_600, 202)] {
        let token = token("sb%3a%2f%2fbus.example", ROOT, expires);
        let expiration = Value::Timestamp(said as i64 * 1_000);
        let (_, reply) = answer_to(&server, Put { token, expiration, ..put(&audience) }).await;
        assert_eq!(reply.status, Value::Int(status), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_claim_for_what_is_not_there_is_404_with_the_words_that_clients_match() {
    //
    let server = TestServer::new().await;
    for audience in ["sb://bus.example/nowhere", "sb://bus.example/nowhere/$management"] {
        let (_, reply) = answer_to(&server, put(audience)).await;
        assert_eq!(reply.status, Value::Int(404));
        let expected = "The messaging entity 'sb://bus.example/nowhere' could not be found.";
        assert!(reply.text.starts_with(expected), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_claim_for_the_namespace_is_never_404() {
    //
    let server = TestServer::new().await;
    for audience in ["sb://bus.example", "sb://bus.example/"] {
        assert_eq!(answer_to(&server, put(audience)).await.1.status, Value::Int(202));
    }
}

#[tokio::test]
async fn audiences_are_known_in_every_spelling() {
    //
    let server = TestServer::new().await;
    let spellings = [
        "amqp://BUS.example/ORDERS",
        "amqps://bus.example:5671/%6Frders",
        "sb://bus.example/orders/",
        "sb://bus.example/orders/$management",
        "sb://bus.example/orders/$DeadLetterQueue",
    ];
    for audience in spellings {
        let (mut client, reply) = answer_to(&server, put(audience)).await;
        assert_eq!(reply.status, Value::Int(202), "{audience}");
        client.receiver(5, QUEUE).await;
    }
}

#[tokio::test]
async fn a_claim_allows_what_its_policy_does_and_no_more() {
    //
    let server = TestServer::new().await;
    server.queue("orders2", broker::QueueSettings::default()).await;
    let token = token("sb%3a%2f%2fbus.example%2forders", READER, soon());
    let (mut client, _) = answer_to(&server, Put { token, ..put("sb://bus.example/orders") }).await;
    client.receiver(5, QUEUE).await;
    for attach in [sender(6, QUEUE), receiver(7, "orders2")] {
        assert_eq!(client.refused(attach).await.condition, "amqp:unauthorized-access");
    }
}

#[tokio::test]
async fn without_a_claim_a_link_is_refused_and_the_connection_lives_on() {
    //
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    for attach in [sender(0, QUEUE), receiver(1, QUEUE), sender(2, "nowhere")] {
        assert_eq!(client.refused(attach).await.condition, "amqp:unauthorized-access");
    }
    assert_eq!(client.said_before_echo().await, []);
}

#[tokio::test]
async fn a_newer_claim_for_the_same_path_replaces_the_older() {
    //
    let server = TestServer::new().await;
    let audience = format!("sb://bus.example/{QUEUE}");
    let resource = "sb%3a%2f%2fbus.example%2forders";
    let (mut client, _) =
        answer_to(&server, Put { token: token(resource, ROOT, soon()), ..put(&audience) }).await;
    client.sender(5, QUEUE).await;
    Put { token: token(resource, READER, soon()), ..put(&audience) }.send(&mut client, &PYTHON, true).await;
    assert_eq!(ended(&client.next().await), (5, "amqp:unauthorized-access".into()));
    assert_eq!(reply(&client.next().await).status, Value::Int(202));
    assert_eq!(client.refused(sender(6, QUEUE)).await.condition, "amqp:unauthorized-access");
}

#[tokio::test]
async fn a_link_ends_when_the_policy_behind_its_claim_goes() {
    //
    let server = TestServer::new().await;
    let (mut client, _) = answer_to(&server, put(&format!("sb://bus.example/{QUEUE}"))).await;
    client.sender(5, QUEUE).await;
    server.set_policies(Vec::new());
    pass_review().await;
    assert_eq!(ended(&client.next().await), (5, "amqp:unauthorized-access".into()));
}

/// Gives the queue a rule `own` of its own, by which one may listen, with a key.
async fn set_own_rule(server: &TestServer, key: &str) {
    let rule = AccessRule {
        name: "own".into(),
        primary: Key::chosen(key),
        secondary: Key::chosen("unused"),
        listen: true,
        send: false,
        manage: false,
        created: broker::LocalTime(0),
        modified: broker::LocalTime(0),
    };
    let (path, settings, access) = (QUEUE.into(), broker::QueueSettings::default(), vec![rule]);
    let task = Box::new(broker::Task::UpdateQueue { path, settings, access });
    server.ask(|request| broker::Command::Manage { request, namespace: broker::NamespaceId(0), task }).await;
}

fn own_token(key: &str) -> String {
    sas::sign("sb%3a%2f%2fbus.example%2forders", "own", key, UnixSeconds(soon()))
}

#[tokio::test]
async fn a_signature_behind_the_word_bearer_is_judged_as_one_also_by_a_rule_of_the_queue() {
    // H-102, H-103
    let server = TestServer::new().await;
    set_own_rule(&server, "first").await;
    let audience = format!("sb://bus.example/{QUEUE}");
    let of_the_namespace = token("sb%3a%2f%2fbus.example", ROOT, soon());
    for (token, status) in [(own_token("first"), 202), (of_the_namespace, 202), (own_token("another"), 401)] {
        let token = format!("Bearer {token}");
        let (mut client, said) = answer_to(&server, Put { token, ..put(&audience) }).await;
        assert_eq!(said.status, Value::Int(status), "{}", said.text);
        if status == 202 {
            client.receiver(5, QUEUE).await;
        }
    }
}

#[tokio::test]
async fn a_rule_of_the_queue_lets_in_until_its_key_is_changed() {
    // H-102
    let server = TestServer::new().await;
    set_own_rule(&server, "first").await;
    let audience = format!("sb://bus.example/{QUEUE}");
    let token = own_token("first");
    let (mut client, said) = answer_to(&server, Put { token: token.clone(), ..put(&audience) }).await;
    assert_eq!(said.status, Value::Int(202));
    client.receiver(5, QUEUE).await;
    assert_eq!(client.refused(sender(6, QUEUE)).await.condition, "amqp:unauthorized-access");
    set_own_rule(&server, "second").await;
    pass_review().await;
    assert_eq!(ended(&client.next().await), (5, "amqp:unauthorized-access".into()));
    let (_, said) = answer_to(&server, Put { token, ..put(&audience) }).await;
    assert_eq!(said.status, Value::Int(401));
}

/// The development issuer, whose tokens are good for everything, and one of its tokens.
fn issuer_and_token() -> (Arc<Issuer>, String) {
    let development = Development::new().unwrap();
    let answer = development.answer("https://servicebus.azure.net", UnixSeconds::now()).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    (Arc::new(development.issuer()), answer["access_token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_token_of_an_issuer_lets_in_for_as_long_as_the_issuer_is_named() {
    // H-103
    let server = TestServer::new().await;
    let (issuer, token) = issuer_and_token();
    let trust = |issuers| server.set_guard(Guard::new(policies(), false).with_issuers(issuers));
    trust(vec![Arc::clone(&issuer)]);
    let bearer = Put { kind: "jwt", token, ..put(&format!("sb://bus.example/{QUEUE}")) };
    let (mut client, said) = answer_to(&server, bearer.clone()).await;
    assert_eq!(said.status, Value::Int(202), "{}", said.text);
    client.receiver(5, QUEUE).await;
    client.sender(6, QUEUE).await;
    trust(vec![issuer]);
    pass_review().await;
    assert_eq!(client.send(6, &part(section::DATA, Value::Binary(vec![1]))).await, State::Accepted);
    trust(Vec::new());
    pass_review().await;
    let mut gone = [ended(&client.next().await), ended(&client.next().await)];
    gone.sort();
    let why = String::from("amqp:unauthorized-access");
    assert_eq!(gone, [(5, why.clone()), (6, why)]);
    let (_, said) = answer_to(&server, bearer).await;
    assert_eq!(said.status, Value::Int(401));
}

#[tokio::test]
async fn a_claim_is_renewed_beside_links_that_work_and_links_that_wait() {
    //
    let server = TestServer::new().await;
    let audience = format!("sb://bus.example/{QUEUE}");
    let (mut client, _) = answer_to(&server, put(&audience)).await;
    client.receiver(5, QUEUE).await;
    client.credit(5, 0, 10).await;
    assert_eq!(client.said_so_far().await, [], "it waits for a message");
    put(&audience).send(&mut client, &PYTHON, true).await;
    assert_eq!(reply(&client.next().await).status, Value::Int(202));
    client.sender(6, QUEUE).await;
    client.transfer(Transfer { handle: 6, settled: Some(true), ..Transfer::default() }, b"").await;
    assert_eq!(client.delivery().await.handle, 5, "the link that waited is still there");
}

#[tokio::test]
async fn an_address_of_a_source_is_needed_for_nothing_on_cbs() {
    // .NET, Java and JavaScript give their request link no source address.
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    let attach = Attach { source: Some(Source::default()), ..PYTHON.requests() };
    client.attached(attach).await;
}

// a claim in two frames, after one of which only the beginning came.
#[tokio::test]
async fn an_aborted_claim_leaves_nothing_for_the_next_one() {
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    let whole = put(&format!("sb://bus.example/{QUEUE}")).encode();
    let (beginning, end) = whole.split_at(20);
    let frame = |id, more, aborted| Transfer {
        handle: PYTHON.requests,
        delivery_id: Some(id),
        delivery_tag: Some(b"t"),
        settled: Some(true),
        more,
        aborted,
        ..Transfer::default()
    };
    let mut bytes = Vec::new();
    Performative::Transfer(frame(0, true, false)).write(&mut bytes, PYTHON.channel, beginning);
    Performative::Transfer(frame(0, false, true)).write(&mut bytes, PYTHON.channel, &[]);
    Performative::Transfer(frame(1, true, false)).write(&mut bytes, PYTHON.channel, beginning);
    Performative::Transfer(frame(1, false, false)).write(&mut bytes, PYTHON.channel, end);
    client.raw(&bytes).await;
    assert_eq!(reply(&client.next().await).status, Value::Int(202));
}
