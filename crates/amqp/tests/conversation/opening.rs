//! SASL, open, begin, heartbeats, end and close.

use crate::peer::{Peer, error, receiver};
use message::Value;
use otobus_amqp::frame::{self, AMQP_HEADER, EMPTY, SASL_HEADER};
use otobus_amqp::performative::{Begin, Close, End, Open, Performative};
use otobus_amqp::sasl::Sasl;
use otobus_amqp::{Config, Event, SaslCode};

#[test]
fn mechanisms_include_the_one_that_dotnet_knows() {
    //
    let mut peer = Peer::silent();
    peer.raw(&SASL_HEADER);
    assert_eq!(peer.events(), []);
    let out = peer.server.output().clone();
    let mut rest = out.strip_prefix(&SASL_HEADER).unwrap();
    let frame = frame::split(&mut rest, 512).unwrap().unwrap();
    let Ok(Sasl::Mechanisms(names)) = Sasl::decode(frame.body, &mut 99) else { panic!("{frame:?}") };
    assert!(names.contains(&"MSSBCBS".to_owned()) && names.contains(&"ANONYMOUS".to_owned()));
}

#[test]
fn everything_may_be_pipelined_before_the_sasl_outcome() {
    // Python does not wait, and its channels start at 1.
    let mut peer = Peer::silent();
    peer.raw(&SASL_HEADER);
    peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: Some(b""), hostname: Some("h") });
    peer.raw(&AMQP_HEADER);
    peer.give(0, Performative::Open(Box::new(Open { container_id: "py".into(), ..Open::default() })));
    peer.begin(1, 65_536);
    let expected =
        Event::SaslInit { mechanism: "ANONYMOUS", initial_response: Some(b""), hostname: Some("h") };
    assert_eq!(peer.events(), [expected], "the rest waits for the decision");
    peer.server.output().clear();
    peer.server.sasl_outcome(SaslCode::Ok);
    assert!(matches!(&peer.events()[..], [Event::Open { container_id, .. }] if container_id == "py"));

    let out = std::mem::take(peer.server.output());
    let mut rest = &out[..];
    let outcome = frame::split(&mut rest, 512).unwrap().unwrap();
    assert_eq!(
        Sasl::decode(outcome.body, &mut 9),
        Ok(Sasl::Outcome { code: SaslCode::Ok, additional_data: None })
    );
    *peer.server.output() = rest.strip_prefix(&AMQP_HEADER).unwrap().to_vec();
    let written = peer.written();
    let Performative::Open(open) = &written[0].performative else { panic!("{written:?}") };
    assert_eq!((open.max_frame_size, open.idle_time_out), (65_536, Some(240_000)));
    assert_eq!(open.channel_max, otobus_amqp::limits::SESSIONS - 1, "what is told is what is allowed");
    let Performative::Begin(begin) = &written[1].performative else { panic!("{written:?}") };
    assert_eq!((written[1].channel, begin.remote_channel, begin.handle_max), (1, Some(1), 255));
    assert!(begin.incoming_window >= 2048);
    assert_eq!(begin.next_outgoing_id, 1, "zero is taken for nothing");
    assert_eq!(begin.outgoing_window, otobus_amqp::limits::OUTGOING_WINDOW);
}

#[test]
fn somebody_may_open_without_a_sasl_layer() {
    // K-5: the JavaScript client does, for a connection string that holds a signature.
    let mut peer = Peer::silent();
    peer.raw(&AMQP_HEADER[..5]);
    assert_eq!(peer.events(), [], "it may become either header");
    peer.raw(&AMQP_HEADER[5..]);
    peer.give(0, Performative::Open(Box::new(Open { container_id: "js".into(), ..Open::default() })));
    assert!(matches!(&peer.events()[..], [Event::Open { container_id, .. }] if container_id == "js"));
    let out = std::mem::take(peer.server.output());
    *peer.server.output() = out.strip_prefix(&AMQP_HEADER).unwrap().to_vec();
    assert!(matches!(peer.written()[0].performative, Performative::Open(_)));
}

#[test]
fn input_may_come_byte_by_byte() {
    let mut peer = Peer::silent();
    let mut script = SASL_HEADER.to_vec();
    Sasl::Init { mechanism: "MSSBCBS", initial_response: None, hostname: None }.write(&mut script);
    let mut seen = 0;
    for byte in script {
        peer.raw(&[byte]);
        seen += peer.events().len();
    }
    assert_eq!(seen, 1);
}

#[test]
fn a_refused_login_ends_the_connection() {
    let mut peer = Peer::silent();
    peer.raw(&SASL_HEADER);
    peer.sasl(&Sasl::Init { mechanism: "PLAIN", initial_response: None, hostname: None });
    peer.event();
    peer.server.sasl_outcome(SaslCode::Auth);
    assert!(peer.server.is_closed());
    peer.raw(&AMQP_HEADER);
    assert_eq!(peer.events(), []);
}

#[test]
fn close_is_answered_once() {
    //
    let mut peer = Peer::ready();
    peer.give(0, Performative::Close(Close { error: None }));
    assert_eq!(peer.event(), Event::Close { error: None });
    assert_eq!(peer.performatives(), [Performative::Close(Close { error: None })]);
    assert!(peer.server.is_closed());
}

#[test]
fn our_close_waits_for_the_clients() {
    let mut peer = Peer::ready();
    peer.server.close(Some(&error("amqp:connection:forced")));
    peer.server.close(None);
    assert_eq!(peer.performatives().len(), 1, "once");
    peer.begin(3, 1);
    assert_eq!(peer.events(), [], "what crosses our close is ignored");
    assert!(!peer.server.is_closed());
    peer.give(0, Performative::Close(Close { error: None }));
    assert_eq!(peer.event(), Event::Close { error: None });
    assert_eq!(peer.performatives(), []);
    assert!(peer.server.is_closed());
}

#[test]
fn a_client_that_does_not_answer_our_close_is_given_up() {
    let mut peer = Peer::ready();
    peer.now = 500;
    peer.events();
    peer.server.close(None);
    peer.server.output().clear();
    let deadline = 500 + otobus_amqp::limits::CLOSING_MS;
    assert_eq!(peer.server.next_deadline(), Some(deadline));
    peer.server.heartbeat(deadline);
    assert!(peer.server.is_closed());
    assert!(matches!(peer.event(), Event::Closed { .. }));
    assert_eq!(peer.performatives(), [], "closed once");
}

#[test]
fn what_is_said_of_a_session_after_its_end_is_ignored() {
    //
    let mut peer = Peer::ready();
    peer.receiver(0, 10);
    peer.give(0, Performative::End(End { error: None }));
    peer.detach(0);
    peer.credit(0, 10);
    assert_eq!(peer.events().len(), 1);
    assert_eq!(peer.performatives().len(), 1);
    peer.give(0, Performative::Attach(Box::new(receiver(0))));
    peer.assert_closed("amqp:not-allowed");
}

#[test]
fn an_end_takes_its_links_with_it_and_is_answered() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    let detached = peer.receiver(1, 10);
    peer.server.detach(detached, None);
    peer.server.output().clear();
    peer.give(0, Performative::End(End { error: None }));
    let Event::End { links, .. } = peer.event() else { panic!() };
    assert_eq!(links, [link], "without the one that was gone already");
    assert_eq!(peer.performatives(), [Performative::End(End { error: None })]);
    assert!(!peer.server.can_send(link));
    peer.begin(0, 10);
    assert_eq!(peer.events(), []);
    let link_again = peer.attach(receiver(0));
    assert_ne!(link, link_again, "keys are never used twice");
}

#[test]
fn our_end_silences_the_session_until_the_client_ends_it() {
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    let session = peer.server.session_of(link).unwrap();
    peer.server.end(session, Some(&error("amqp:internal-error")));
    peer.server.end(session, None);
    assert!(matches!(&peer.performatives()[..], [Performative::End(End { error: Some(_) })]));
    peer.credit(0, 50);
    peer.give(0, Performative::End(End { error: None }));
    assert_eq!(peer.events(), []);
    peer.begin(0, 10);
    peer.events();
    assert!(matches!(&peer.performatives()[..], [Performative::Begin(_)]));
}

#[test]
fn a_heartbeat_is_written_after_half_the_peers_time_out() {
    //
    let open = Open { container_id: "net".into(), idle_time_out: Some(60_000), ..Open::default() };
    let mut peer = Peer::begun(open, 10);
    assert_eq!(peer.server.next_deadline(), Some(30_000));
    peer.server.heartbeat(29_999);
    assert_eq!(peer.server.output().len(), 0);
    peer.server.heartbeat(30_000);
    assert_eq!(std::mem::take(peer.server.output()), EMPTY);
    assert_eq!(peer.server.next_deadline(), Some(60_000));
    peer.now = 45_000;
    peer.begin(1, 1);
    peer.events();
    assert_eq!(peer.server.next_deadline(), Some(75_000), "any frame counts");
}

#[test]
fn a_peer_is_given_up_after_two_silent_periods() {
    //
    let mut peer = Peer::ready();
    peer.now = 1000;
    peer.raw(&EMPTY);
    assert_eq!(peer.events(), []);
    let deadline = 1000 + 2 * 240_000;
    assert_eq!(peer.server.next_deadline(), Some(deadline), "Python asks for no heartbeats");
    peer.server.heartbeat(deadline - 1);
    assert!(!peer.server.is_closed());
    peer.server.heartbeat(deadline);
    peer.assert_closed("amqp:connection:forced");
    assert_eq!(peer.server.next_deadline(), None);
}

#[test]
fn without_a_time_out_of_ours_nobody_is_given_up() {
    let mut peer = Peer::of(Config { idle_time_out: 0, ..Config::default() });
    assert_eq!(peer.server.next_deadline(), None);
    peer.server.heartbeat(u64::MAX / 2);
    assert!(!peer.server.is_closed());
    assert_eq!(peer.events(), []);
}

#[test]
fn our_open_says_what_is_configured() {
    let properties = Value::Map(vec![(Value::Symbol("product".into()), "a product".into())]);
    for (idle_time_out, told) in [(0, None), (7_000, Some(7_000))] {
        let config = Config {
            container_id: "somebody".into(),
            properties: properties.clone(),
            idle_time_out,
            ..Config::default()
        };
        let mut peer = Peer::of(config);
        peer.raw(&AMQP_HEADER);
        peer.give(0, Performative::Open(Box::new(Open { container_id: "c".into(), ..Open::default() })));
        peer.events();
        let out = std::mem::take(peer.server.output());
        *peer.server.output() = out.strip_prefix(&AMQP_HEADER).unwrap().to_vec();
        let Performative::Open(open) = peer.performatives().remove(0) else { panic!() };
        assert_eq!((open.container_id.as_str(), open.idle_time_out), ("somebody", told));
        assert_eq!(open.properties, properties);
    }
}

#[test]
fn a_time_out_of_a_millisecond_is_not_obeyed_to_the_letter() {
    let open = Open { container_id: "c".into(), idle_time_out: Some(1), ..Open::default() };
    assert_eq!(Peer::begun(open, 1).server.next_deadline(), Some(500));
    let none = Open { container_id: "c".into(), idle_time_out: Some(0), ..Open::default() };
    assert_eq!(Peer::begun(none, 1).server.next_deadline(), Some(480_000));
}

#[test]
fn each_link_may_have_its_own_session() {
    // .NET, Java, JavaScript and Go do.
    let mut peer = Peer::ready();
    for channel in 1..500 {
        peer.begin(channel, 5000);
    }
    assert_eq!(peer.events(), []);
    let channels: Vec<u16> = peer.written().iter().map(|written| written.channel).collect();
    assert_eq!(channels, (1..500).collect::<Vec<u16>>());
}

#[test]
fn a_configured_maximum_below_the_protocols_is_raised_to_it() {
    // P6
    let mut peer = Peer::of(Config { max_frame_size: 0, ..Config::default() });
    peer.raw(&SASL_HEADER);
    peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None });
    peer.event();
    peer.server.sasl_outcome(SaslCode::Ok);
    peer.raw(&AMQP_HEADER);
    peer.events();
    peer.server.output().clear();
    peer.give(0, Performative::Open(Box::new(Open { container_id: "c".into(), ..Open::default() })));
    peer.give(0, Performative::Begin(Box::<Begin>::default()));
    peer.events();
    let Performative::Open(open) = peer.performatives().remove(0) else { panic!() };
    assert_eq!(open.max_frame_size, 512);
}
