//! Messages to a client: what is added to them, and how credit, windows, frames and drains are kept.

use crate::client::{
    Client, Delivery, body, list, map, message, part, performatives, receiver, symbol, taker,
};
use crate::server::{KEY, QUEUE, ROOT, TestServer};
use amqp::performative::{Disposition, Flow, Open, Performative, Transfer};
use amqp::{Role, State};
use broker::QueueSettings;
use message::Value;
use message::sections::{Sections, section};
use otobus_gateway::account::Account;
use otobus_gateway::limits::{CONNECTION_FREE_BYTES, CONNECTIONS_BYTES, LOW_MEMORY_DELIVERIES_AHEAD};
use std::sync::Arc;

/// Puts messages into the queue.
async fn fill(server: &TestServer, bodies: impl IntoIterator<Item = Vec<u8>>) {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    for body in bodies {
        assert_eq!(send(&mut client, &message(&body)).await, State::Accepted);
    }
}

async fn send(client: &mut Client, message: &[u8]) -> State {
    let id = client.transfer(Transfer::default(), message).await;
    loop {
        let frame = client.next().await;
        if let Performative::Disposition(Disposition { first, state: Some(state), .. }) = frame.performative {
            assert_eq!(first, id);
            return state;
        }
    }
}

/// A client with a window of its own choice and a link on handle 0.
async fn client_with(server: &TestServer, max_frame_size: u32, window: u32, is_taker: bool) -> Client {
    let mut client = server.silent();
    client.log_in("PLAIN", Some(format!("\0{ROOT}\0{KEY}").as_bytes())).await;
    client.open(Open { container_id: "c".into(), max_frame_size, ..Open::default() }).await;
    client.begin(0, window).await;
    client.attached(if is_taker { taker(0, QUEUE) } else { receiver(0, QUEUE) }).await;
    client
}

fn numbers(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| number.to_be_bytes().to_vec()).collect()
}

#[tokio::test]
async fn a_locked_delivery_has_header_annotations_tag_and_the_message_as_it_was_sent() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    let span = Value::Described(Box::new((symbol("com.microsoft:timespan"), Value::Long(600_000_000))));
    let values = [("price", Value::Decimal128([7; 16])), ("letter", Value::Char(0x41)), ("span", span)];
    let values = values.map(|(name, value)| (name.into(), value)).to_vec();
    let bare = [
        part(section::PROPERTIES, Value::List(vec![Value::Uuid([1; 16]), Value::Binary(b"user".to_vec())])),
        part(section::APPLICATION_PROPERTIES, Value::Map(values)),
        message(b"one"),
        message(b"two"),
    ]
    .concat();
    assert_eq!(client.send(0, &bare).await, State::Accepted);
    client.receiver(1, QUEUE).await;
    client.credit(1, 0, 1).await;
    let Delivery { tag, is_settled, message, .. } = client.delivery().await;
    assert_eq!((tag.len(), is_settled), (16, false));
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(message[sections.properties.start as usize..], bare);
    let header = list(&message, |sections| sections.header);
    assert_eq!(header, [Value::Null, Value::Null, Value::Null, Value::Null, Value::Uint(0)]);
    let Value::Map(annotations) = map(&message, |sections| sections.message_annotations) else { panic!() };
    let names: Vec<_> = annotations.iter().map(|(name, _)| name.as_str().unwrap()).collect();
    assert_eq!(names, ["x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-locked-until"]);
    assert!(annotations.iter().all(|(name, _)| matches!(name, Value::Symbol(_))));
    let values: Vec<_> = annotations.iter().map(|(_, value)| value).collect();
    let [Value::Timestamp(enqueued), Value::Long(1), Value::Timestamp(until)] = values[..] else {
        panic!("{values:?}")
    };
    assert!((59_000..=120_000).contains(&(until - enqueued)), "the default lock lasts a minute");
}

#[tokio::test]
async fn a_time_to_live_is_told_as_it_is_kept_whatever_the_sender_s_clock_says() {
    //
    let server = TestServer::new().await;
    let default_time_to_live = broker::Span::seconds(50);
    server.queue("brief", QueueSettings { default_time_to_live, ..QueueSettings::default() }).await;
    let mut client = server.admitted().await;
    let header = [Value::Boolean(false), Value::Ubyte(20), Value::Uint(60_000), Value::Boolean(false)];
    let set = [
        (symbol("x-opt-partition-key"), "p".into()),
        (symbol("x-opt-scheduled-enqueue-time"), Value::Timestamp(7)),
    ];
    // This sender's clock stands at the start of 1970.
    let mut properties = vec![Value::Null; 8];
    properties.extend([Value::Timestamp(60_005), Value::Timestamp(5)]);
    let plain = [
        part(section::HEADER, Value::List(header.to_vec())),
        part(section::PROPERTIES, Value::List(properties)),
        message(b"m"),
    ];
    for (handle, path, ttl) in [(0, QUEUE, 60_000), (2, "brief", 50_000)] {
        client.sender(handle, path).await;
        let transfer = Transfer { handle, settled: Some(true), ..Transfer::default() };
        client.transfer(transfer, &plain.concat()).await;
        client.receiver(handle + 1, path).await;
        client.credit(handle + 1, 0, 1).await;
        let received = client.delivery().await.message;
        let [durable, priority, first_acquirer] = [0, 1, 3].map(|index| header[index].clone());
        let expected = [durable, priority, Value::Uint(ttl), first_acquirer, Value::Uint(0)];
        assert_eq!(list(&received, |sections| sections.header), expected);
        let annotations = map(&received, |sections| sections.message_annotations);
        let Some(Value::Timestamp(enqueued)) = annotations.get("x-opt-enqueued-time") else { panic!() };
        let times = list(&received, |sections| sections.properties)[8..].to_vec();
        let created = if ttl == 60_000 { 5 } else { *enqueued };
        assert_eq!(times, [Value::Timestamp(created + i64::from(ttl)), Value::Timestamp(created)]);
    }
    let annotated = [part(section::MESSAGE_ANNOTATIONS, Value::Map(set.to_vec())), message(b"m")].concat();
    client.transfer(Transfer { settled: Some(true), ..Transfer::default() }, &annotated).await;
    client.credit(1, 1, 1).await;
    let annotations = map(&client.delivery().await.message, |sections| sections.message_annotations);
    for (name, value) in set {
        assert_eq!(annotations.get(name.as_str().unwrap()), Some(&value));
    }
}

#[tokio::test]
async fn a_receiver_that_deletes_gets_settled_deliveries_without_a_lock() {
    // what .NET and Java say of them is passed over. K-2: a tag, which is no token.
    let server = TestServer::new().await;
    fill(&server, numbers(2)).await;
    let mut client = client_with(&server, 65_536, 5_000, true).await;
    client.credit(0, 0, 2).await;
    for _ in 0..2 {
        let delivery = client.delivery().await;
        assert_eq!((delivery.is_settled, &delivery.tag[..]), (true, &b""[..]));
        let annotations = map(&delivery.message, |sections| sections.message_annotations);
        assert_eq!(annotations.get("x-opt-locked-until"), None);
        for settled in [true, false] {
            let state = Some(State::Accepted);
            let disposition =
                Disposition { settled, state, ..Disposition::new(Role::Receiver, delivery.id, delivery.id) };
            client.give(&[Performative::Disposition(disposition)]).await;
        }
    }
    assert_eq!(client.said_so_far().await, []);
    let (left, _) = client.drain(0, 2, 10).await;
    assert!(left.is_empty(), "gone");
}

#[tokio::test]
async fn no_more_comes_than_the_credit_and_the_rest_when_there_is_more() {
    //
    let server = TestServer::new().await;
    fill(&server, numbers(10)).await;
    let mut client = client_with(&server, 65_536, 5_000, false).await;
    client.credit(0, 0, 0).await;
    assert_eq!(client.said_so_far().await, [], "Python asks for nothing first");
    client.credit(0, 0, 3).await;
    for _ in 0..3 {
        client.delivery().await;
    }
    // The same total said again, and one more than that.
    client.credit(0, 0, 3).await;
    client.credit(0, 2, 2).await;
    assert_eq!(body(&client.delivery().await.message), 3_u32.to_be_bytes());
    assert_eq!(client.said_so_far().await, []);
}

#[tokio::test]
async fn a_credit_without_bounds_brings_everything_in_order() {
    // more than may be on its way at once.
    let server = TestServer::new().await;
    let mut sender = server.admitted().await;
    sender.sender(0, QUEUE).await;
    let mut bytes = Vec::new();
    for (id, body) in (0..).zip(numbers(5_000)) {
        let transfer = Transfer {
            delivery_id: Some(id),
            delivery_tag: Some(&[1]),
            settled: Some(true),
            ..Transfer::default()
        };
        Performative::Transfer(transfer).write(&mut bytes, 0, &message(&body));
    }
    sender.raw(&bytes).await;
    let mut client = client_with(&server, 65_536, u32::MAX, true).await;
    client
        .flow(Flow {
            handle: Some(0),
            delivery_count: Some(0),
            link_credit: Some(u32::MAX),
            incoming_window: u32::MAX,
            ..Flow::default()
        })
        .await;
    for expected in numbers(5_000) {
        assert_eq!(body(&client.delivery().await.message), expected);
    }
}

#[tokio::test]
async fn a_drain_brings_what_there_is_and_then_gives_the_credit_back() {
    //
    let server = TestServer::new().await;
    fill(&server, numbers(2)).await;
    let mut client = client_with(&server, 65_536, 5_000, false).await;
    let (deliveries, flow) = client.drain(0, 0, 10).await;
    assert_eq!(deliveries.len(), 2);
    assert_eq!((flow.handle, flow.delivery_count), (Some(0), Some(10)));
    assert_eq!((flow.link_credit, flow.drain, flow.echo), (Some(0), true, false));
    assert!(flow.next_incoming_id.is_some(), "A-11.33");
    let (deliveries, flow) = client.drain(0, 10, 0).await;
    assert_eq!((deliveries.len(), flow.delivery_count), (0, Some(10)), "also without credit");
    assert_eq!((flow.link_credit, flow.drain), (Some(0), true));
    client.flow(Flow { handle: Some(0), delivery_count: Some(10), echo: true, ..Flow::default() }).await;
    let echoed = client.next().await;
    assert!(matches!(echoed.performative, Performative::Flow(Flow { handle: Some(0), drain: false, .. })));
}

#[tokio::test]
async fn what_the_window_does_not_admit_waits_for_it() {
    //
    let server = TestServer::new().await;
    fill(&server, numbers(9)).await;
    let mut client = client_with(&server, 65_536, 4, false).await;
    client.flow(window(4, 0, 100)).await;
    let mut seen = 0;
    for expected in [4, 4, 1] {
        for _ in 0..expected {
            assert_eq!(body(&client.delivery().await.message), u32::to_be_bytes(seen));
            seen += 1;
        }
        client.give(&[Performative::Flow(Flow { echo: true, ..closed(seen) })]).await;
        let said = client.write().await;
        assert!(matches!(performatives(&said)[..], [Performative::Flow(_)]), "nothing beyond it: {said:?}");
        client.flow(window(4, seen, 100 - seen)).await;
    }
}

/// A flow for handle 0 that opens the window to `frames`.
fn window(frames: u32, seen: u32, credit: u32) -> Flow<'static> {
    Flow {
        incoming_window: frames,
        handle: Some(0),
        delivery_count: Some(seen),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

/// A flow of the session that says the window is as full as it was.
fn closed(seen: u32) -> Flow<'static> {
    Flow { next_incoming_id: Some(seen + 1), incoming_window: 0, ..Flow::default() }
}

#[tokio::test]
async fn a_window_that_opens_wide_lets_out_all_that_waited() {
    // far more than goes out in one write, and nothing else happens that could set it going again.
    let server = TestServer::new().await;
    fill(&server, (0..200).map(|number| vec![number; 4_000])).await;
    let mut client = client_with(&server, 65_536, 1, true).await;
    client.flow(window(1, 0, 200)).await;
    assert_eq!(body(&client.delivery().await.message)[0], 0);
    client.flow(window(5_000, 1, 199)).await;
    for expected in 1..200 {
        assert_eq!(body(&client.delivery().await.message)[0], expected);
    }
}

#[tokio::test]
async fn a_drain_is_answered_after_what_the_window_held_back() {
    //
    let server = TestServer::new().await;
    fill(&server, numbers(3)).await;
    let mut client = client_with(&server, 65_536, 1, false).await;
    client.flow(Flow { drain: true, ..window(1, 0, 10) }).await;
    client.delivery().await;
    client.flow(Flow { drain: true, ..window(5, 1, 9) }).await;
    client.delivery().await;
    client.delivery().await;
    let frame = client.next().await;
    let Performative::Flow(flow) = frame.performative else { panic!("{frame:?}") };
    assert_eq!((flow.drain, flow.link_credit, flow.delivery_count), (true, Some(0), Some(10)));
}

#[tokio::test]
async fn a_message_is_cut_to_the_frames_that_the_client_takes() {
    //
    let server = TestServer::new().await;
    let long: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let mut sender = server.admitted().await;
    sender.sender(0, QUEUE).await;
    let whole = message(&long);
    let mut chunks = whole.chunks(60_000).peekable();
    sender.transfer(Transfer { more: true, ..Transfer::default() }, chunks.next().unwrap()).await;
    while let Some(chunk) = chunks.next() {
        let mut bytes = Vec::new();
        let later = Transfer { more: chunks.peek().is_some(), ..Transfer::default() };
        Performative::Transfer(later).write(&mut bytes, 0, chunk);
        sender.raw(&bytes).await;
    }
    assert_eq!(sender.outcome(0).await, State::Accepted);
    for (size, least) in [(512, 400), (4_096, 48), (65_536, 4)] {
        let mut client = client_with(&server, size, 5_000, false).await;
        client.credit(0, 0, 1).await;
        let delivery = client.delivery().await;
        assert!(delivery.frames >= least && client.largest_frame <= size as usize, "{}", delivery.frames);
        assert_eq!(body(&delivery.message), long);
        assert_eq!(client.settle(delivery.id, State::Released).await, State::Released);
    }
}

#[tokio::test]
async fn while_memory_is_short_one_of_many_receivers_still_gets_message_after_message() {
    // P7
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    // So many that each may have a single message on its way, and that their links are beyond what every connection has.
    let receivers = u32::try_from(LOW_MEMORY_DELIVERIES_AHEAD).unwrap() * 2;
    for handle in 0..receivers {
        client.receiver(handle, QUEUE).await;
    }
    fill(&server, numbers(3)).await;
    let mut others = Account::new(Arc::clone(&server.state.accounts));
    others.hold(CONNECTIONS_BYTES + CONNECTION_FREE_BYTES);
    client.credit(receivers - 1, 0, 3).await;
    for number in numbers(3) {
        assert_eq!(body(&client.delivery().await.message), number);
    }
}
