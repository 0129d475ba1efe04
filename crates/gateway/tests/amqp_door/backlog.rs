//! Messages that are no longer in the cache, and messages that are too large for it. The server keeps one megabyte.

use crate::client::{Client, Delivery, body, message, taker};
use crate::server::{KEY, QUEUE, ROOT, TestServer};
use amqp::State;
use amqp::performative::{Flow, Open, Performative, Transfer};
use journal::disk::Disk;

/// A body that no other message has: small mostly, now and then large or in parts.
fn distinct(number: u32) -> Vec<u8> {
    let length = match number {
        n if n % 100 == 50 => 140_000 + n as usize,
        n if n % 300 == 299 => 700_000 + n as usize,
        n => 500 + (n as usize * 37) % 3_000,
    };
    (0..length).map(|at| (at as u32 ^ number.wrapping_mul(0x9e37)) as u8).collect()
}

/// Writes frames of one delivery on handle 0; the last of them ends it if `is_whole`.
async fn write(client: &mut Client, frames: &[&[u8]], is_whole: bool) -> u32 {
    let more = |nth: usize| !is_whole || nth + 1 < frames.len();
    let id = client.transfer(Transfer { more: more(0), ..Transfer::default() }, frames[0]).await;
    for (nth, frame) in frames.iter().enumerate().skip(1) {
        let mut bytes = Vec::new();
        let transfer = Transfer { more: more(nth), ..Transfer::default() };
        Performative::Transfer(transfer).write(&mut bytes, 0, frame);
        client.raw(&bytes).await;
    }
    id
}

/// Sends a message and waits until it is accepted.
async fn send(client: &mut Client, message: &[u8]) {
    let frames: Vec<&[u8]> = message.chunks(60_000).collect();
    let id = write(client, &frames, true).await;
    loop {
        if let Performative::Disposition(disposition) = client.next().await.performative {
            assert_eq!((disposition.first, disposition.state), (id, Some(State::Accepted)));
            return;
        }
    }
}

async fn fill(server: &TestServer, count: u32) {
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    for number in 0..count {
        send(&mut client, &message(&distinct(number))).await;
    }
}

#[tokio::test]
async fn a_backlog_behind_the_cache_comes_in_order_and_byte_for_byte() {
    // S-3, S-30
    let server = TestServer::new().await;
    fill(&server, 600).await;
    let mut client = server.admitted().await;
    client.receiver(0, QUEUE).await;
    client.credit(0, 0, 1_000).await;
    for number in 0..600 {
        let Delivery { message, .. } = client.delivery().await;
        assert!(body(&message) == distinct(number), "message {number}");
    }
}

#[tokio::test]
async fn two_links_share_a_backlog_and_each_gets_its_part_in_order() {
    // S-81
    let server = TestServer::new().await;
    fill(&server, 400).await;
    let mut client = server.admitted().await;
    client.receiver(0, QUEUE).await;
    client.receiver(1, QUEUE).await;
    client.credit(0, 0, 200).await;
    client.credit(1, 0, 200).await;
    let mut seen = Vec::new();
    for _ in 0..400 {
        let Delivery { message, .. } = client.delivery().await;
        let found = (0..400).find(|number| body(&message) == distinct(*number)).expect("one that was sent");
        seen.push(found);
    }
    let (first, second): (Vec<u32>, Vec<u32>) = seen.iter().partition(|number| **number < 200);
    assert!(first.is_sorted() && second.is_sorted(), "{seen:?}");
    assert_eq!((first.len(), second.len()), (200, 200));
}

#[tokio::test]
async fn a_large_message_goes_on_where_the_window_stopped_it() {
    //
    let server = TestServer::new().await;
    let large: Vec<u8> = (0..900_000u32).map(|at| (at ^ (at >> 8)) as u8).collect();
    let mut sender = server.admitted().await;
    sender.sender(0, QUEUE).await;
    send(&mut sender, &message(&large)).await;
    let mut client = server.silent();
    client.log_in("PLAIN", Some(format!("\0{ROOT}\0{KEY}").as_bytes())).await;
    client.open(Open { container_id: "c".into(), max_frame_size: 4_096, ..Open::default() }).await;
    client.begin(0, 7).await;
    client.receiver(0, QUEUE).await;
    let window = |seen: u32| Flow {
        next_incoming_id: Some(1 + seen),
        incoming_window: 7,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(1),
        ..Flow::default()
    };
    client.give(&[Performative::Flow(window(0))]).await;
    let (mut whole, mut frames, mut is_over) = (Vec::new(), 0, false);
    while !is_over {
        let frame = client.next().await;
        let Performative::Transfer(transfer) = frame.performative else { continue };
        whole.extend_from_slice(frame.payload);
        frames += 1;
        is_over = !transfer.more;
        if frames % 7 == 0 {
            client.give(&[Performative::Flow(window(frames))]).await;
        }
    }
    assert!(frames > 200, "{frames}");
    assert!(body(&whole) == large);
}

#[tokio::test]
async fn a_large_message_that_is_taken_for_good_has_no_token_either() {
    // K-2
    let server = TestServer::new().await;
    let mut sender = server.admitted().await;
    sender.sender(0, QUEUE).await;
    send(&mut sender, &message(&vec![7; 900_000])).await;
    let mut client = server.admitted().await;
    client.attached(taker(0, QUEUE)).await;
    client.credit(0, 0, 1).await;
    let delivery = client.delivery().await;
    assert_eq!((delivery.is_settled, &delivery.tag[..]), (true, &b""[..]));
}

#[tokio::test]
async fn a_large_message_that_is_broken_off_leaves_nothing() {
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.sender(0, QUEUE).await;
    let large = message(&vec![7; 900_000]);
    let frames: Vec<&[u8]> = large.chunks(60_000).take(12).collect();
    write(&mut client, &frames, false).await;
    let mut bytes = Vec::new();
    Performative::Transfer(Transfer { aborted: true, ..Transfer::default() }).write(&mut bytes, 0, b"");
    client.raw(&bytes).await;
    send(&mut client, &message(b"whole")).await;
    client.receiver(1, QUEUE).await;
    client.credit(1, 0, 10).await;
    let Delivery { message, .. } = client.delivery().await;
    assert_eq!(body(&message), b"whole");
    assert!(client.said_so_far().await.is_empty());
}

/// Flips a bit of what is stored where these bytes are.
fn damage(server: &TestServer, found: &[u8]) {
    for name in server.disk.list().unwrap() {
        let content = server.disk.content(&name).unwrap();
        if let Some(at) = content.windows(found.len()).position(|bytes| bytes == found) {
            return server.disk.damage(&name, |bytes| bytes[at] ^= 0x40);
        }
    }
    panic!("these bytes are nowhere");
}

#[tokio::test]
async fn a_large_message_that_cannot_be_read_is_passed_over_and_one_that_has_begun_ends_its_link() {
    // P4: two parts of different messages.
    for (damaged_at, has_begun) in [(1_000, false), (600_000, true)] {
        let server = TestServer::new().await;
        let mut client = server.admitted().await;
        client.sender(0, QUEUE).await;
        let large: Vec<u8> = (0..225_000_u32).flat_map(u32::to_be_bytes).collect();
        send(&mut client, &message(&large)).await;
        send(&mut client, &message(b"behind it")).await;
        damage(&server, &large[damaged_at..damaged_at + 16]);
        client.receiver(1, QUEUE).await;
        client.credit(1, 0, 10).await;
        if !has_begun {
            assert_eq!(body(&client.delivery().await.message), b"behind it");
            continue;
        }
        let error = loop {
            match client.next().await.performative {
                Performative::Transfer(transfer) => assert!(transfer.more, "it never ends"),
                Performative::Detach(detach) => break detach.error.unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(error.condition, "amqp:internal-error");
    }
}
