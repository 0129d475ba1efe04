//! What strangers and ill-meaning managers cost, counted by the allocator: each case of the hundred stays under a bound
//! while it is served, and nothing of it is left behind. One test alone, for the allocator counts the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod cases;

use amqp::frame::{AMQP_HEADER, SASL_HEADER};
use amqp::performative::{Begin, Open, Performative, Transfer};
use amqp::sasl::Sasl;
use amqp::{AnyTarget, Attach, Role, Target};
use bytes::BytesMut;
use engine::Engine;
use message::Value;
use otobus_gateway::State;
use otobus_gateway::auth::{Guard, Policy, Rights, Secret, UnixSeconds, sas};
use otobus_gateway::limits::HTTP_BODY_BYTES;
use otobus_gateway::listen::{Doors, Peer};
use otobus_gateway::namespaces::Namespaces;
use peak_alloc::PeakAlloc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What a connection may cost before a claim is accepted (P6).
const STRANGER_BYTES: usize = 128 * 1_024;

/// What a manager's request may cost: its body as it came, joined, and as elements.
const MANAGER_BYTES: usize = 4 * HTTP_BODY_BYTES;

/// What all cases together may leave behind: tables that have grown and keep their size.
const LEFT_BYTES: usize = 64 * 1_024;

/// A pipe as small as a socket's buffer may be, so that the case itself is not in the server's memory.
const PIPE_BYTES: usize = 4 * 1_024;

/// Strangers that speak AMQP, each as much as it may say before it has proved anything, and more.
fn amqp_strangers() -> Vec<Vec<u8>> {
    let greeting = || {
        let mut bytes = SASL_HEADER.to_vec();
        Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.write(&mut bytes);
        bytes.extend_from_slice(&AMQP_HEADER);
        bytes
    };
    let open = |properties| {
        let open = Open { container_id: "c".repeat(1_000), properties, ..Open::default() };
        Performative::Open(Box::new(open))
    };
    let said = |performatives: &[(u16, Performative<'_>)], payload: &[u8]| {
        let mut bytes = greeting();
        for (channel, performative) in performatives {
            let is_transfer = matches!(performative, Performative::Transfer(_));
            performative.write(&mut bytes, *channel, if is_transfer { payload } else { &[] });
        }
        bytes
    };
    let begin = || Performative::Begin(Box::new(Begin { incoming_window: 100, ..Begin::default() }));
    let attach = |handle: u32| {
        let target = Some(AnyTarget::Target(Target { address: Some("$cbs".into()), ..Target::default() }));
        let name = format!("{handle}{}", "n".repeat(1_000));
        Performative::Attach(Box::new(Attach {
            target,
            initial_delivery_count: Some(0),
            ..Attach::new(&name, handle, Role::Sender)
        }))
    };
    let part = |handle: u32| {
        let transfer = Transfer {
            handle,
            delivery_id: Some(handle),
            delivery_tag: Some(b"t"),
            more: true,
            ..Transfer::default()
        };
        Performative::Transfer(transfer)
    };
    let many = Value::List(vec![Value::Null; 3_000]);
    let mut links = vec![(0, open(Value::Null)), (0, begin())];
    links.extend((0..100).map(|handle| (0, attach(handle))));
    let mut parts = vec![(0, open(Value::Null)), (0, begin())];
    parts.extend((0..8).map(|handle| (0, attach(handle))));
    parts.extend((0..64).map(|turn| (0, part(turn % 8))));
    let mut sessions = vec![(0, open(Value::Null))];
    sessions.extend((0..200).map(|channel| (channel, begin())));
    let mut frame = greeting();
    frame.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0]);
    frame.resize(1 << 20, 0);
    vec![
        said(&links, &[]),
        said(&parts, &[0; 4_000]),
        said(&sessions, &[]),
        said(&[(0, open(Value::Map(vec![(Value::Symbol("p".into()), many)])))], &[]),
        frame,
        [&SASL_HEADER[..], &[0; 1 << 20]].concat(),
        greeting().repeat(1_000),
    ]
}

/// Serves one connection that sends `request` and says how many bytes more than before were held at the worst moment.
async fn cost(state: &Arc<State>, request: &[u8]) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let (far, near) = tokio::io::duplex(PIPE_BYTES);
    let (mut answers, mut far) = tokio::io::split(far);
    let peer = Peer::new("192.0.2.1:4000".parse().unwrap());
    let is_amqp = request.starts_with(b"AMQP");
    let door = async {
        let state = Arc::clone(state);
        match is_amqp {
            true => state.amqp(near, BytesMut::new(), peer).await,
            false => state.http(near, BytesMut::new(), peer).await,
        }
    };
    let client = async {
        let mut room = [0; 1_024];
        let mut written = 0;
        // Reads while it writes: a refusal may come before the end of the request.
        loop {
            tokio::select! {
                sent = far.write(&request[written..]), if written < request.len() => match sent {
                    Ok(count) => written += count,
                    Err(_) => written = request.len(),
                },
                read = answers.read(&mut room) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                },
            }
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(door, client) } => {}
        // A request that is not whole waits for its rest; its cost is known by then.
        () = tokio::time::sleep(std::time::Duration::from_secs(300)) => {}
    }
    // The broker answers in order, a round at a time: after the second answer the round is over and forgotten in which
    // it was asked what the request wanted.
    for _ in 0..2 {
        let (namespace, path) = (broker::NamespaceId(0), "nothing".into());
        let last = |request| broker::Command::DescribeEntity { request, namespace, path };
        assert!(state.engine.ask(last).await.unwrap().is_err());
    }
    MEMORY.peak_usage().saturating_sub(before)
}

#[tokio::test]
async fn a_hundred_hostile_requests_cost_little_and_leave_nothing_behind() {
    let disk = Arc::new(journal::disk::Memory::new());
    let options =
        journal::Options { segment_bytes: 1 << 20, first_segment_bytes: 1 << 20, ..journal::Options::new(7) };
    let journal = journal::Local::open(disk, options).unwrap();
    let options = engine::Options { tail_cache_bytes: 1 << 20, ..engine::Options::new(2) };
    let engine = Engine::open(Box::new(journal), options, |why| panic!("{why}")).unwrap();
    let root =
        Policy { name: "root".into(), primary: Secret::new("key"), secondary: None, rights: Rights::ALL };
    let namespaces = Namespaces::single(Guard::new(vec![root], false));
    let state = Arc::new(State::new(engine.handle().clone(), namespaces));
    let token = sas::sign("https%3a%2f%2fhost", "root", "key", UnixSeconds::NEVER);
    let by_manager = |body: String| {
        let head = format!(
            "PUT /q HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (head + &body).into_bytes()
    };
    let managers: Vec<Vec<u8>> = cases::bodies().into_iter().map(by_manager).collect();
    let strangers = [cases::requests(), amqp_strangers()].concat();
    tokio::time::pause();

    // The first of each kind makes what is made once.
    for case in managers.iter().take(3).chain(strangers.iter().take(3)) {
        cost(&state, case).await;
    }
    let at_start = MEMORY.current_usage();
    let cases = strangers.iter().map(|case| (case, STRANGER_BYTES));
    let cases = cases.chain(managers.iter().map(|case| (case, MANAGER_BYTES)));
    let mut count = 0;
    for (case, bound) in cases {
        let cost = cost(&state, case).await;
        let shown = String::from_utf8_lossy(&case[..case.len().min(300)]);
        assert!(cost <= bound, "{cost} bytes for {shown}");
        let left = MEMORY.current_usage().saturating_sub(at_start);
        assert!(left <= LEFT_BYTES, "{left} bytes are left after {shown}");
        count += 1;
    }
    assert!(count >= 100);
    tokio::time::resume();
    engine.stop().unwrap();
}
