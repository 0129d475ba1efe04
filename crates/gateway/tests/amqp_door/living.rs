//! A connection's life: login, open, silence, and each way it ends.

use crate::client::{performatives, receiver};
use crate::server::{KEY, QUEUE, READER, ROOT, TestServer, policies};
use amqp::SaslCode;
use amqp::frame::{AMQP_HEADER, EMPTY, SASL_HEADER};
use amqp::performative::{Begin, Close, End, Open, Performative};
use amqp::sasl::Sasl;
use otobus_gateway::limits::{FAILURE_DELAY_MOST, FREE_FAILURES};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn every_client_finds_its_mechanism() {
    //
    let server = TestServer::new().await;
    for (mechanism, response) in [
        ("MSSBCBS", None),
        ("ANONYMOUS", None),
        ("ANONYMOUS", Some(&b""[..])),
        ("ANONYMOUS", Some(b"\0root")),
    ] {
        let offered = server.silent().log_in(mechanism, response).await;
        assert!(offered.iter().any(|each| each == mechanism));
    }
}

#[tokio::test]
async fn a_name_and_its_key_give_that_policy_s_rights_to_the_whole_connection() {
    //
    let server = TestServer::new().await;
    let mut client = server.silent();
    client.log_in("PLAIN", Some(format!("\0{READER}\0{KEY}").as_bytes())).await;
    client.open_with_defaults().await;
    client.begin(0, 100).await;
    client.receiver(0, QUEUE).await;
    let refused = client.refused(crate::client::sender(1, QUEUE)).await;
    assert_eq!(refused.condition, "amqp:unauthorized-access");
}

#[tokio::test]
async fn the_host_of_login_and_open_leads_to_its_namespace_and_what_was_proved_counts_there_alone() {
    //
    let server = TestServer::new().await;
    server.set_policies(policies());
    let response = format!("\0{ROOT}\0{KEY}");
    let open = |host: &str| {
        let hostname = Some(host.into());
        Open { container_id: "c".into(), hostname, ..Open::default() }
    };
    let mut shop = server.silent();
    let (_, code) = shop.sasl_at(Some("SHOP.example"), "PLAIN", Some(response.as_bytes())).await;
    assert_eq!(code, SaslCode::Ok);
    shop.raw(&AMQP_HEADER).await;
    assert_eq!(shop.bytes().await.unwrap(), AMQP_HEADER);
    shop.open(open("shop.example:5671")).await;
    shop.begin(0, 100).await;
    let missing = shop.refused(receiver(0, QUEUE)).await;
    assert_eq!(missing.condition, "amqp:not-found", "the queue is in the other namespace");

    let mut turncoat = server.silent();
    turncoat.log_in("PLAIN", Some(response.as_bytes())).await;
    turncoat.open(open("shop.example")).await;
    let frame = turncoat.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
}

#[tokio::test]
async fn a_wrong_key_and_an_unknown_mechanism_fail_the_login_and_end_the_connection() {
    //
    let server = TestServer::new().await;
    for (mechanism, response) in
        [("PLAIN", format!("\0{ROOT}\0wrong")), ("PLAIN", String::new()), ("SCRAM-SHA-256", String::new())]
    {
        let mut client = server.silent();
        let (_, code) = client.sasl(mechanism, Some(response.as_bytes())).await;
        assert_eq!((code, client.bytes().await), (SaslCode::Auth, None), "{mechanism}");
    }
}

#[tokio::test]
async fn wrong_keys_wait_for_their_answer_and_the_right_one_does_not() {
    let server = TestServer::new().await;
    tokio::time::pause();
    let tried = async |key: &str| {
        let start = tokio::time::Instant::now();
        let (_, code) = server.silent().sasl("PLAIN", Some(format!("\0{ROOT}\0{key}").as_bytes())).await;
        (code, start.elapsed().as_secs())
    };
    for _ in 0..FREE_FAILURES {
        assert_eq!(tried("wrong").await, (SaslCode::Auth, 0));
    }
    for _ in 0..20 {
        tried("wrong").await;
    }
    assert_eq!(tried("wrong").await, (SaslCode::Auth, FAILURE_DELAY_MOST.as_secs()));
    assert_eq!(tried(KEY).await, (SaslCode::Ok, 0), "from the very same address");
}

#[tokio::test]
async fn everything_up_to_begin_may_come_in_one_write() {
    // Python does, and starts at channel 1.
    let server = TestServer::new().await;
    let mut client = server.silent();
    let mut bytes = SASL_HEADER.to_vec();
    Sasl::Init { mechanism: "ANONYMOUS", initial_response: Some(b""), hostname: None }.write(&mut bytes);
    bytes.extend_from_slice(&AMQP_HEADER);
    let open = Open { container_id: "py".into(), ..Open::default() };
    Performative::Open(Box::new(open)).write(&mut bytes, 0, &[]);
    Performative::Begin(Box::new(Begin { incoming_window: 65_536, ..Begin::default() })).write(
        &mut bytes,
        1,
        &[],
    );
    client.raw(&bytes).await;
    let mut answer = Vec::new();
    // A frame on channel 1 whose performative has a small descriptor: our begin.
    while !answer.windows(6).any(|bytes| bytes == [0, 0, 1, 0x00, 0x53, 0x11]) {
        answer.extend(client.bytes().await.unwrap());
    }
    assert!(answer.starts_with(&SASL_HEADER));
    assert!(answer.windows(8).any(|bytes| bytes == AMQP_HEADER));
}

#[tokio::test]
async fn our_open_says_what_clients_need() {
    //
    let server = TestServer::new().await;
    let mut client = server.silent();
    client.log_in("ANONYMOUS", None).await;
    let open = client.open(Open { container_id: "c".into(), ..Open::default() }).await;
    assert!(!open.container_id.is_empty());
    assert_eq!((open.max_frame_size, open.idle_time_out), (65_536, Some(240_000)));
    assert!(open.channel_max >= 4_000, "a session for each link");
    client.give(&[Performative::Begin(Box::<Begin>::default())]).await;
    let frame = client.next().await;
    let Performative::Begin(begin) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(begin.remote_channel, Some(0));
    assert!(begin.incoming_window >= 2_048 && begin.outgoing_window > 5_000);
    assert!(begin.handle_max < u32::MAX, "named and not left out");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_puts_no_claim_is_closed_after_twenty_seconds() {
    //
    let server = TestServer::new().await;
    let mut client = server.stranger().await;
    let started = tokio::time::Instant::now();
    client.patience = HOUR;
    let frame = client.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
    assert_eq!(started.elapsed().as_secs(), 20);
    // A peer that does not answer is disconnected, and costs nothing until then: time goes on only when all are at rest.
    assert_eq!(client.bytes().await, None);
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_empty_frame_is_written_at_half_the_peer_s_time_out() {
    //
    let server = TestServer::new().await;
    let mut client = server.silent();
    client.patience = HOUR;
    client.log_in("PLAIN", Some(format!("\0{ROOT}\0{KEY}").as_bytes())).await;
    let started = tokio::time::Instant::now();
    client.open(Open { container_id: "net".into(), idle_time_out: Some(60_000), ..Open::default() }).await;
    for beats in 1..=3 {
        assert_eq!(client.bytes().await.unwrap(), EMPTY);
        assert_eq!(started.elapsed().as_secs(), 30 * beats);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up_after_two_periods_and_any_frame_counts_as_a_sound() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.patience = HOUR;
    tokio::time::advance(Duration::from_secs(400)).await;
    client.raw(&EMPTY).await;
    assert_eq!(client.said_before_echo().await, []);
    let started = tokio::time::Instant::now();
    let frame = client.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
    assert_eq!(started.elapsed().as_secs(), 480);
}

#[tokio::test]
async fn a_link_may_be_idle_for_as_long_as_its_connection_lives() {
    // S-95: it may be detached after ten minutes; here it is not.
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.patience = HOUR;
    client.sender(0, crate::server::QUEUE).await;
    for _ in 0..20 {
        // Time stands still only here: while it does, it jumps whenever all wait for the engine's thread.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
        client.raw(&EMPTY).await;
        assert_eq!(client.said_before_echo().await, []);
    }
    assert_eq!(client.send(0, &crate::client::message(b"m")).await, amqp::State::Accepted);
}

#[tokio::test]
async fn ends_and_closes_are_answered_once_and_the_connection_ends() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.receiver(0, QUEUE).await;
    client.give(&[Performative::End(End { error: None }), Performative::Close(Close { error: None })]).await;
    let written = client.write().await;
    let expected = [Performative::End(End { error: None }), Performative::Close(Close { error: None })];
    assert_eq!(performatives(&written), expected);
    assert_eq!(client.bytes().await, None);
}

#[tokio::test]
async fn a_client_that_hangs_up_without_a_word_leaves_nothing_behind() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    client.receiver(0, QUEUE).await;
    client.credit(0, 0, 10).await;
    drop(client);
    tokio::time::timeout(HOUR, server.state.idle()).await.expect("the door notices");
    let mut next = server.admitted().await;
    next.sender(0, QUEUE).await;
    assert_eq!(next.send(0, &crate::client::message(b"m")).await, amqp::State::Accepted);
    next.attached(receiver(1, QUEUE)).await;
    next.credit(1, 0, 1).await;
    assert_eq!(next.delivery().await.handle, 1, "the message did not go to the one who left");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_says_so_and_waits_for_the_answer() {
    //
    let server = TestServer::new().await;
    let mut client = server.admitted().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    server.state.stop();
    let frame = client.next().await;
    let Performative::Close(Close { error: Some(error) }) = frame.performative else { panic!("{frame:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
    client.give(&[Performative::Close(Close { error: None })]).await;
    assert_eq!(client.bytes().await, None);
    server.state.idle().await;
}
