//! Who may do what at the AMQP door: every command against every kind of claim, put on `$cbs` or shown at login.
//!
//! The list of commands is matched without a rest, so a command that is added does not build here until it has its row.

use crate::claims::{PYTHON, ended, put, reply, soon, token};
use crate::client::{Client, message as text, part, receiver, sender, session_receiver, via};
use crate::managing::{self, NODE, REQUESTS};
use crate::server::{KEY, QUEUE, READER, ROOT, SENDER, TestServer, policies, policy};
use crate::transactions;
use amqp::performative::Transfer;
use amqp::{SaslCode, State};
use broker::{Answer, Command, NamespaceId};
use message::Value;
use message::sections::section;
use message::value::Array;
use otobus_gateway::auth::{Guard, ROOT_POLICY, Right, Rights, UnixSeconds, sas};
use otobus_gateway::limits::{CLAIM_REVIEW, CLOCK_SKEW_SECONDS};
use std::sync::atomic::{AtomicU64, Ordering};

/// A queue that requires sessions, below the one for which claims are put.
const SESSIONS: &str = "orders/sessions";
const SESSIONS_NODE: &str = "orders/sessions/$management";

/// How a command comes in at this door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By attaching a link that sends or that receives.
    AttachSender,
    /// By attaching a link that sends to one entity by way of another.
    AttachVia,
    AttachReceiver,
    /// On such a link.
    Sending,
    Receiving,
    /// By the management node of an entity, as a sender or as a receiver.
    AskingSender,
    AskingReceiver,
    /// On the link of a coordinator, which anybody may attach: what is done within a transaction has its own row.
    Coordinating,
    /// Not by AMQP.
    Elsewhere,
}

macro_rules! rows {
    ($($variant:ident => $way:ident,)*) => {
        const ROWS: &[(&str, Way)] = &[$((stringify!($variant), Way::$way)),*];

        fn has_row(command: &Command) {
            match command { $(Command::$variant { .. } => {})* }
        }
    };
}

rows! {
    AttachSender => AttachSender,
    AttachVia => AttachVia,
    AttachReceiver => AttachReceiver,
    AcceptSession => AttachReceiver,
    RenewSession => AskingReceiver,
    GetSessionState => AskingReceiver,
    SetSessionState => AskingReceiver,
    ListSessions => AskingReceiver,
    Detach => Receiving,
    Send => Sending,
    Part => Sending,
    DropParts => Sending,
    Credit => Receiving,
    Settle => Receiving,
    SettleTokens => AskingReceiver,
    RenewLocks => AskingReceiver,
    Schedule => AskingSender,
    CancelScheduled => AskingSender,
    ReceiveDeferred => AskingReceiver,
    Browse => AskingReceiver,
    DeleteMessages => AskingReceiver,
    AttachCoordinator => Coordinating,
    Declare => Coordinating,
    Discharge => Coordinating,
    Spoil => Coordinating,
    Within => Coordinating,
    CreateQueue => Elsewhere,
    DeleteEntity => Elsewhere,
    // Asked by the door for a claim that covers the entity.
    DescribeEntity => Elsewhere,
    Manage => Elsewhere,
    ListQueues => Elsewhere,
    Advance => Elsewhere,
}

/// What a client shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Manage,
    Send,
    Listen,
    Nothing,
    Expired,
    WrongScope,
    /// For another namespace that has the same policy with the same key.
    WrongNamespace,
    WrongKey,
    /// A policy that is taken away after it was proved.
    RemovedPolicy,
    /// The same with the key of a policy.
    RotatedKey,
}

const CLAIMS: [Claim; 10] = [
    Claim::Manage,
    Claim::Send,
    Claim::Listen,
    Claim::Nothing,
    Claim::Expired,
    Claim::WrongScope,
    Claim::WrongNamespace,
    Claim::WrongKey,
    Claim::RemovedPolicy,
    Claim::RotatedKey,
];

impl Claim {
    fn gives(self, right: Right) -> bool {
        match self {
            Claim::Manage => true,
            Claim::Send => right == Right::Send,
            Claim::Listen => right == Right::Listen,
            Claim::Nothing
            | Claim::Expired
            | Claim::WrongScope
            | Claim::WrongNamespace
            | Claim::WrongKey
            | Claim::RemovedPolicy
            | Claim::RotatedKey => false,
        }
    }

    fn policy(self) -> &'static str {
        match self {
            Claim::Send => SENDER,
            Claim::Listen => READER,
            Claim::RemovedPolicy | Claim::RotatedKey => "late",
            Claim::Manage
            | Claim::Nothing
            | Claim::Expired
            | Claim::WrongScope
            | Claim::WrongNamespace
            | Claim::WrongKey => ROOT,
        }
    }

    fn token(self) -> Option<String> {
        let all = "sb%3a%2f%2fbus.example";
        let expired = UnixSeconds::now().0 - CLOCK_SKEW_SECONDS - 1;
        Some(match self {
            Claim::Nothing => return None,
            Claim::Expired => token(all, self.policy(), expired),
            // A longer name that begins in the same way covers nothing (H-102).
            Claim::WrongScope => token("sb%3a%2f%2fbus.example%2forder", self.policy(), soon()),
            Claim::WrongNamespace => token("sb%3a%2f%2fshop.example", self.policy(), soon()),
            Claim::WrongKey => sas::sign(all, self.policy(), "another key", UnixSeconds(soon())),
            _ => token(all, self.policy(), soon()),
        })
    }

    /// Takes away what was proved and lets the connections notice.
    async fn end(self, server: &TestServer) {
        match self {
            Claim::RemovedPolicy => server.set_policies(policies()),
            Claim::RotatedKey => {
                let rotated = policy("late", "a new key", Rights::ALL);
                server.set_policies(policies().into_iter().chain([rotated]).collect());
            }
            _ => return,
        }
        pass_review().await;
    }
}

pub async fn pass_review() {
    tokio::time::pause();
    tokio::time::advance(CLAIM_REVIEW).await;
    tokio::time::resume();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Cbs,
    Plain,
}

async fn server() -> TestServer {
    let server = TestServer::new().await;
    server.queue("order", broker::QueueSettings::default()).await;
    let requires_session = true;
    server.queue(SESSIONS, broker::QueueSettings { requires_session, ..Default::default() }).await;
    let late = policy("late", KEY, Rights::ALL);
    server.set_policies(policies().into_iter().chain([late]).collect());
    server
}

/// A client that has shown its claim. `None` where that claim cannot be shown so, or ends the connection at once.
async fn shown(server: &TestServer, login: Login, claim: Claim) -> Option<Client> {
    let mut client = match (login, claim) {
        (Login::Cbs, _) | (_, Claim::Nothing) => server.stranger().await,
        // A name and a key have neither time nor scope.
        (Login::Plain, Claim::Expired | Claim::WrongScope | Claim::WrongNamespace) => return None,
        (Login::Plain, Claim::WrongKey) => {
            let mut client = server.silent();
            let (_, code) = client.sasl("PLAIN", Some(format!("\0{ROOT}\0{KEY}!").as_bytes())).await;
            assert_eq!((code, client.bytes().await), (SaslCode::Auth, None));
            return None;
        }
        (Login::Plain, _) => {
            let mut client = server.silent();
            client.log_in("PLAIN", Some(format!("\0{}\0{KEY}", claim.policy()).as_bytes())).await;
            client.open_with_defaults().await;
            client.begin(0, 5_000).await;
            return Some(client);
        }
    };
    if let (Login::Cbs, Some(token)) = (login, claim.token()) {
        PYTHON.attach(&mut client, 10).await;
        put(&format!("sb://bus.example/{QUEUE}")).with(token).send(&mut client, &PYTHON, true).await;
        let refused =
            [Claim::Expired, Claim::WrongScope, Claim::WrongNamespace, Claim::WrongKey].contains(&claim);
        let status = reply(&client.next().await).status;
        assert_eq!(status, message::Value::Int(if refused { 401 } else { 202 }), "{claim:?}");
    }
    Some(client)
}

async fn messages_in(server: &TestServer) -> u64 {
    let path = QUEUE.into();
    let namespace = NamespaceId(0);
    let described = |request| Command::DescribeEntity { request, namespace, path };
    match server.state.engine.ask(described).await.unwrap().unwrap() {
        Answer::Queue(queue) => queue.counts.active,
        other => panic!("{other:?}"),
    }
}

/// How a command is asked for at the management node.
fn request(command: &str) -> (&'static str, Vec<(&'static str, Value)>) {
    let tokens = Value::Array(Array::of(&Value::Uuid([0; 16]), vec![Value::Uuid([7; 16])]));
    let count = ("message-count", Value::Int(1));
    match command {
        "RenewSession" => ("renew-session-lock", vec![("session-id", "s".into())]),
        "GetSessionState" => ("get-session-state", vec![("session-id", "s".into())]),
        "SetSessionState" => ("set-session-state", vec![("session-id", "s".into())]),
        "ListSessions" => ("get-message-sessions", vec![("skip", Value::Int(0)), ("top", Value::Int(9))]),
        "Browse" => ("peek-message", managing::peek(1, 1)),
        "RenewLocks" => ("renew-lock", vec![("lock-tokens", tokens)]),
        "SettleTokens" => {
            let status = ("disposition-status", "completed".into());
            ("update-disposition", vec![status, ("lock-tokens", tokens)])
        }
        "Schedule" => {
            let mut message = part(
                section::MESSAGE_ANNOTATIONS,
                Value::Map(vec![(
                    Value::Symbol("x-opt-scheduled-enqueue-time".into()),
                    Value::Timestamp(4_000_000_000_000),
                )]),
            );
            message.extend(text(b"later"));
            let entry = vec![("message-id".into(), "1".into()), ("message".into(), Value::Binary(message))];
            ("schedule-message", vec![("messages", Value::List(vec![Value::Map(entry)]))])
        }
        "CancelScheduled" => ("cancel-scheduled-message", vec![("sequence-numbers", managing::longs(&[9]))]),
        "ReceiveDeferred" => {
            let mode = ("receiver-settle-mode", Value::Uint(1));
            ("receive-by-sequence-number", vec![("sequence-numbers", managing::longs(&[9])), mode])
        }
        "DeleteMessages" => {
            let before = ("enqueued-time-utc", Value::Timestamp(4_000_000_000_000));
            ("batch-delete-messages", vec![count, before])
        }
        other => panic!("{other} has no request"),
    }
}

/// Does by `way` what it is for, and says whether it was done.
async fn is_done(
    server: &TestServer,
    client: &mut Client,
    (command, way): (&str, Way),
    claim: Claim,
) -> bool {
    let refusal = |error: amqp::Error| error.condition.to_string();
    match way {
        Way::AttachSender | Way::AttachVia | Way::AttachReceiver => {
            claim.end(server).await;
            let is_sender = way != Way::AttachReceiver;
            let attach = match (is_sender, command) {
                (true, "AttachVia") => via(5, QUEUE, SESSIONS),
                (true, _) => sender(5, QUEUE),
                (false, "AcceptSession") => session_receiver(5, SESSIONS, "s".into()),
                (false, _) => receiver(5, QUEUE),
            };
            if claim.gives(if is_sender { Right::Send } else { Right::Listen }) {
                client.attached(attach).await;
                return true;
            }
            assert_eq!(refusal(client.refused(attach).await), "amqp:unauthorized-access");
            false
        }
        Way::Sending | Way::Receiving => {
            // Where the link cannot be had there is nothing to try on it: that is the row of its attach.
            let is_late = matches!(claim, Claim::RemovedPolicy | Claim::RotatedKey);
            let right = if way == Way::Sending { Right::Send } else { Right::Listen };
            if !is_late && !claim.gives(right) {
                return false;
            }
            let before = messages_in(server).await;
            if way == Way::Sending {
                client.sender(5, QUEUE).await;
            } else {
                client.receiver(5, QUEUE).await;
            }
            if is_late {
                claim.end(server).await;
                assert_eq!(ended(&client.next().await), (5, "amqp:unauthorized-access".into()));
            }
            match (way, is_late) {
                (Way::Sending, false) => assert_eq!(client.send(5, &text(b"x")).await, State::Accepted),
                (Way::Sending, true) => {
                    client.transfer(Transfer { handle: 5, ..Transfer::default() }, &text(b"x")).await;
                }
                (_, false) => {
                    client.credit(5, 0, 1).await;
                    let delivery = client.delivery().await;
                    assert_eq!(client.settle(delivery.id, State::Accepted).await, State::Accepted);
                    client.detach(5).await;
                }
                (_, true) => client.credit(5, 0, 1).await,
            }
            if is_late {
                // The peer has yet to answer the detach; what it says on the link until then goes nowhere.
                assert_eq!(client.said_before_echo().await, []);
                assert_eq!(messages_in(server).await, before);
                return false;
            }
            let done = if way == Way::Sending { before + 1 } else { before - 1 };
            assert_eq!(messages_in(server).await, done);
            true
        }
        Way::AskingSender | Way::AskingReceiver => {
            // Any right opens the node; each request is looked at by itself.
            let is_late = matches!(claim, Claim::RemovedPolicy | Claim::RotatedKey);
            let node = if command.contains("Session") { SESSIONS_NODE } else { NODE };
            if !is_late && !claim.gives(Right::Send) && !claim.gives(Right::Listen) {
                let error = client.refused(sender(REQUESTS, node)).await;
                assert_eq!(refusal(error), "amqp:unauthorized-access");
                return false;
            }
            managing::attach(client, node, 1).await;
            claim.end(server).await;
            let (operation, arguments) = request(command);
            match managing::ask(client, operation, arguments).await.status {
                Value::Int(401) => false,
                // Done, or there was no such message: the question was let in.
                Value::Int(200 | 204 | 404 | 410) => true,
                other => panic!("{command}: {other:?}"),
            }
        }
        Way::Coordinating => {
            client.attached(transactions::coordinator(5)).await;
            true
        }
        Way::Elsewhere => false,
    }
}

fn allows(claim: Claim, way: Way) -> bool {
    match way {
        Way::AttachSender | Way::AttachVia | Way::Sending | Way::AskingSender => claim.gives(Right::Send),
        Way::AttachReceiver | Way::Receiving | Way::AskingReceiver => claim.gives(Right::Listen),
        Way::Coordinating => true,
        Way::Elsewhere => false,
    }
}

/// Every row against every claim that can be shown at a login.
async fn go_through(login: Login) {
    let _: fn(&Command) = has_row;
    for (command, way) in ROWS {
        for claim in CLAIMS {
            let server = server().await;
            if *way == Way::Receiving {
                let mut filler = server.admitted().await;
                filler.sender(0, QUEUE).await;
                filler.send(0, &text(b"x")).await;
            }
            let Some(mut client) = shown(&server, login, claim).await else { continue };
            let is_done = is_done(&server, &mut client, (command, *way), claim).await;
            assert_eq!(is_done, allows(claim, *way), "{command} with {claim:?} by {login:?}");
        }
    }
}

// H-99, H-102, H-103, A-2.4.4, A-2.4.6, A-2.4.8
#[tokio::test]
async fn every_command_takes_its_right_of_a_claim_on_cbs() {
    go_through(Login::Cbs).await;
}

//
#[tokio::test]
async fn every_command_takes_its_right_of_a_name_and_key_at_login() {
    go_through(Login::Plain).await;
}

// H-103, A-2.4.8
#[tokio::test]
async fn a_token_that_runs_out_ends_the_links_that_it_opened() {
    static NOW: AtomicU64 = AtomicU64::new(1_700_000_000);
    let now = || UnixSeconds(NOW.load(Ordering::Relaxed));
    let server = TestServer::at(now).await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    let token = token("sb%3a%2f%2fbus.example", ROOT, now().0 + 60);
    put(&format!("sb://bus.example/{QUEUE}")).with(token).send(&mut client, &PYTHON, true).await;
    assert_eq!(reply(&client.next().await).status, message::Value::Int(202));
    client.sender(5, QUEUE).await;
    client.receiver(6, QUEUE).await;
    NOW.fetch_add(60 + CLOCK_SKEW_SECONDS - 1, Ordering::Relaxed);
    pass_review().await;
    assert_eq!(client.send(5, &text(b"in time")).await, State::Accepted);
    NOW.fetch_add(1, Ordering::Relaxed);
    pass_review().await;
    let mut gone = [ended(&client.next().await), ended(&client.next().await)];
    gone.sort();
    let why = String::from("amqp:unauthorized-access");
    assert_eq!(gone, [(5, why.clone()), (6, why)]);
    assert_eq!(client.refused(sender(7, QUEUE)).await.condition, "amqp:unauthorized-access");
}

// two keys, so that one can be changed while the other works.
#[tokio::test]
async fn the_second_key_goes_on_working_while_the_first_is_changed() {
    let server = TestServer::new().await;
    let both = |primary: &str| {
        let second = otobus_gateway::auth::Secret::new("second");
        vec![otobus_gateway::auth::Policy { secondary: Some(second), ..policy("two", primary, Rights::ALL) }]
    };
    server.set_policies(both("first"));
    let mut clients = Vec::new();
    for key in ["first", "second"] {
        let mut client = server.silent();
        client.log_in("PLAIN", Some(format!("\0two\0{key}").as_bytes())).await;
        client.open_with_defaults().await;
        client.begin(0, 5_000).await;
        client.sender(5, QUEUE).await;
        clients.push(client);
    }
    server.set_policies(both("third"));
    pass_review().await;
    assert_eq!(ended(&clients[0].next().await), (5, "amqp:unauthorized-access".into()));
    assert_eq!(clients[1].send(5, &text(b"x")).await, State::Accepted);
}

#[tokio::test]
async fn a_connection_that_is_older_than_a_key_s_change_takes_only_the_new_key() {
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    PYTHON.attach(&mut client, 10).await;
    server.set_policies(vec![policy(ROOT, "new", Rights::ALL)]);
    for (key, status) in [(KEY, 401), ("new", 202)] {
        let token = sas::sign("sb%3a%2f%2fbus.example", ROOT, key, UnixSeconds(soon()));
        put("sb://bus.example/").with(token).send(&mut client, &PYTHON, true).await;
        assert_eq!(reply(&client.next().await).status, message::Value::Int(status));
    }
}

// H-121
#[tokio::test]
async fn the_well_known_key_is_good_at_both_logins_from_this_machine_alone() {
    const WELL_KNOWN: &str = "SAS_KEY_VALUE";
    let server = TestServer::new().await;
    let cases = [
        ("127.0.0.1", true, true),
        ("::1", true, true),
        ("192.0.2.1", true, false),
        ("127.0.0.1", false, false),
    ];
    for (address, is_loopback_only, may) in cases {
        server.set_guard(Guard::new(policies(), is_loopback_only));
        let response = format!("\0{ROOT_POLICY}\0{WELL_KNOWN}");
        let (_, code) = server.silent_from(address).sasl("PLAIN", Some(response.as_bytes())).await;
        assert_eq!(code == SaslCode::Ok, may, "PLAIN from {address}");
        let mut client = server.silent_from(address);
        client.log_in("ANONYMOUS", None).await;
        client.open_with_defaults().await;
        client.begin(0, 5_000).await;
        PYTHON.attach(&mut client, 10).await;
        let token = sas::sign("sb%3a%2f%2fbus.example", ROOT_POLICY, WELL_KNOWN, UnixSeconds(soon()));
        put("sb://bus.example/").with(token).send(&mut client, &PYTHON, true).await;
        let status = reply(&client.next().await).status;
        assert_eq!(status, message::Value::Int(if may { 202 } else { 401 }), "CBS from {address}");
    }
}

/// One frame of a client, as WebSocket wants it: whole, binary, masked.
fn framed(payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= 125);
    let mask = [7, 7, 7, 7];
    let head = [0x82, 0x80 | payload.len() as u8];
    head.into_iter().chain(mask).chain(payload.iter().map(|byte| byte ^ 7)).collect()
}

// the way to AMQP is longer, the claims are the same.
#[tokio::test]
async fn a_login_inside_a_websocket_takes_the_same_key() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = TestServer::new().await;
    for (key, code) in [(KEY, 0), ("another key", 1)] {
        let (mut far, near) = tokio::io::duplex(64 * 1_024);
        let peer = otobus_gateway::listen::Peer::new("192.0.2.1:4000".parse().unwrap());
        let state = std::sync::Arc::clone(&server.state);
        tokio::spawn(otobus_gateway::listen::Doors::http(state, near, bytes::BytesMut::new(), peer));
        let upgrade = "GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        far.write_all(upgrade.as_bytes()).await.unwrap();
        let mut init = amqp::frame::SASL_HEADER.to_vec();
        let response = format!("\0{ROOT}\0{key}");
        let initial_response = Some(response.as_bytes());
        amqp::sasl::Sasl::Init { mechanism: "PLAIN", initial_response, hostname: None }.write(&mut init);
        far.write_all(&framed(&init)).await.unwrap();
        // The descriptor of an outcome, a list of one, and its code.
        let outcome = |bytes: &[u8]| {
            let at = bytes.windows(3).position(|bytes| bytes == [0x00, 0x53, 0x44])?;
            let code = bytes[at..].windows(2).find(|bytes| bytes[0] == 0x50)?;
            Some(code[1])
        };
        let mut said = Vec::new();
        while outcome(&said).is_none() {
            assert_ne!(far.read_buf(&mut said).await.unwrap(), 0, "{said:?}");
        }
        assert_eq!(outcome(&said), Some(code));
    }
}
