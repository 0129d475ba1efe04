//! Peers that break the rules: each is answered with the condition that the specification names, and none can make
//! the server panic, hang or hold more than its limits.

use crate::peer::{Peer, error, receiver, sender};
use message::Value;
use otobus_amqp::frame::{AMQP_HEADER, SASL_HEADER};
use otobus_amqp::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Error, Flow, Open, Performative, Transfer,
};
use otobus_amqp::sasl::Sasl;
use otobus_amqp::{Event, Role, SaslCode, Sent, State, limits};

fn open(container_id: &str) -> Open {
    Open { container_id: container_id.into(), ..Open::default() }
}

fn first_transfer() -> Transfer<'static> {
    Transfer { handle: 0, delivery_id: Some(0), ..Transfer::default() }
}

#[test]
fn frames_on_a_channel_that_was_not_begun_close_the_connection() {
    // P6
    let frames = [
        Performative::Attach(Box::new(sender(0))),
        Performative::Flow(Flow::default()),
        Performative::Transfer(first_transfer()),
        Performative::Detach(Detach { handle: 0, closed: true, error: None }),
        Performative::End(End { error: None }),
    ];
    for frame in frames {
        let mut peer = Peer::ready();
        peer.give(9, frame);
        peer.assert_closed("amqp:not-allowed");
    }
}

#[test]
fn transfers_and_detaches_without_an_attach_close_the_connection() {
    // P6
    let mut peer = Peer::ready();
    peer.transfer(first_transfer(), b"m");
    peer.assert_closed("amqp:session:unattached-handle");
    let mut peer = Peer::ready();
    peer.detach(3);
    peer.assert_closed("amqp:session:unattached-handle");
}

#[test]
fn things_done_twice_close_the_connection() {
    // P6
    let mut peer = Peer::ready();
    peer.give(0, Performative::Open(Box::new(open("again"))));
    peer.assert_closed("amqp:illegal-state");
    let mut peer = Peer::ready();
    peer.begin(0, 1);
    peer.assert_closed("amqp:not-allowed");
    let mut peer = Peer::ready();
    peer.attach(sender(0));
    peer.give(0, Performative::Attach(Box::new(receiver(0))));
    peer.assert_closed("amqp:session:handle-in-use");
}

#[test]
fn numbers_above_what_was_agreed_close_the_connection() {
    let mut peer = Peer::ready();
    peer.give(5000, Performative::Begin(Box::<Begin>::default()));
    peer.assert_closed("amqp:connection:framing-error");
    let mut peer = Peer::ready();
    peer.give(0, Performative::Attach(Box::new(sender(256))));
    peer.assert_closed("amqp:connection:framing-error");
    let mut peer = Peer::ready();
    peer.raw(&[0, 1, 0, 1, 2, 0, 0, 0]);
    peer.assert_closed("amqp:connection:framing-error");
}

// the words of a dead letter may make one. Nothing of it is understood, so there is nobody else to tell.
#[test]
fn a_disposition_longer_than_the_frame_agreed_is_told_both_sizes() {
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    assert_eq!(peer.deliver(link, b"m"), Sent::Delivery(1));
    let info = Value::Map(vec![("DeadLetterErrorDescription".into(), "d".repeat(70_000).as_str().into())]);
    let error = Error { info, ..error("com.microsoft:dead-letter") };
    let state = Some(State::rejected(error));
    peer.disposition(Disposition { settled: false, state, ..Disposition::new(Role::Receiver, 1, 1) });
    let Some(Event::Closed { reason }) = peer.events().pop() else { panic!("it goes on") };
    assert_eq!(reason.condition, "amqp:connection:framing-error");
    let told = reason.description.unwrap();
    assert!(told.contains("exceeds the 65536 that were agreed") && told.contains("a frame of 70"), "{told}");
}

#[test]
fn sasl_frames_after_login_close_the_connection() {
    // P6
    let mut peer = Peer::ready();
    peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None });
    peer.assert_closed("amqp:connection:framing-error");
}

#[test]
fn a_frame_before_open_is_answered_by_open_and_close() {
    // P6
    let mut peer = Peer::silent();
    peer.raw(&SASL_HEADER);
    peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None });
    peer.event();
    peer.server.sasl_outcome(SaslCode::Ok);
    peer.raw(&AMQP_HEADER);
    peer.events();
    peer.server.output().clear();
    peer.begin(0, 1);
    assert!(matches!(peer.event(), Event::Closed { .. }));
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Open(_), Performative::Close(Close { error: Some(_) })]));
}

#[test]
fn an_illegal_sasl_sequence_ends_in_silence() {
    // P6
    let wrong = [
        Sasl::Response(b"what"),
        Sasl::Outcome { code: SaslCode::Ok, additional_data: None },
        Sasl::Mechanisms(vec!["PLAIN".into()]),
    ];
    for sasl in wrong {
        let mut peer = Peer::silent();
        peer.raw(&SASL_HEADER);
        peer.events();
        peer.server.output().clear();
        peer.sasl(&sasl);
        assert!(matches!(peer.event(), Event::Closed { .. }));
        assert_eq!((peer.server.is_closed(), peer.server.output().len()), (true, 0));
    }
}

#[test]
fn a_stranger_who_speaks_another_protocol_is_told_ours() {
    for hello in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03", b"AMQP\x03\x01\x00\x01"] {
        let mut peer = Peer::silent();
        peer.raw(hello);
        assert!(matches!(peer.event(), Event::Closed { .. }));
        assert_eq!(*peer.server.output(), SASL_HEADER);
    }
}

#[test]
fn a_sasl_frame_above_512_bytes_is_refused_by_its_header() {
    let mut peer = Peer::silent();
    peer.raw(&SASL_HEADER);
    peer.raw(&[0, 0, 2, 1, 2, 1, 0, 0]);
    assert!(matches!(peer.event(), Event::Closed { .. }));
}

#[test]
fn a_frame_size_below_the_minimum_is_refused() {
    // P6: zero must not come to mean unlimited.
    for max_frame_size in [0, 1, 511] {
        let mut peer = Peer::silent();
        peer.raw(&SASL_HEADER);
        peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None });
        peer.event();
        peer.server.sasl_outcome(SaslCode::Ok);
        peer.raw(&AMQP_HEADER);
        peer.events();
        peer.server.output().clear();
        peer.give(0, Performative::Open(Box::new(Open { max_frame_size, ..open("c") })));
        peer.assert_closed("amqp:invalid-field");
    }
}

#[test]
fn bodies_that_are_not_amqp_close_the_connection() {
    // P6
    let bodies: [&[u8]; 4] = [
        &[0x00, 0x53, 0x11, 0xd0, 0, 0, 0, 4, 0x3f, 0xff, 0xff, 0xff],
        &[0x00, 0x00, 0x53, 0x11, 0x45],
        &[0x00, 0x53, 0x12, 0xc0, 6, 1, 0xb1, 0x7f, 0xff, 0xff, 0xfe],
        &[0xff],
    ];
    for body in bodies {
        let mut peer = Peer::ready();
        peer.raw(&(8 + body.len() as u32).to_be_bytes());
        peer.raw(&[2, 0, 0, 0]);
        peer.raw(body);
        peer.assert_closed("amqp:decode-error");
    }
}

#[test]
fn a_deep_value_in_an_attach_closes_the_connection() {
    // P6
    let deep = (0..40).fold(Value::Null, |inner, _| Value::List(vec![inner]));
    let mut peer = Peer::ready();
    peer.give(0, Performative::Attach(Box::new(Attach { properties: deep, ..sender(0) })));
    peer.assert_closed("amqp:decode-error");
}

#[test]
fn a_frame_of_many_small_values_is_refused_before_and_after_login() {
    // P6
    for (is_known, nodes) in [(false, limits::FRAME_NODES_BEFORE_CLAIM), (true, limits::FRAME_NODES)] {
        let properties = Value::List(vec![Value::Null; nodes as usize]);
        let mut peer = Peer::stranger(open("c"));
        if is_known {
            peer.server.authenticated();
        }
        peer.begin(0, 1);
        peer.events();
        peer.give(0, Performative::Attach(Box::new(Attach { properties, ..sender(0) })));
        let Some(Event::Closed { reason }) = peer.events().pop() else { panic!() };
        let expected = ["amqp:decode-error", "amqp:resource-limit-exceeded"];
        assert!(expected.contains(&&*reason.condition), "{reason:?}");
    }
}

#[test]
fn a_large_attach_is_refused_by_its_size() {
    let attach = |length| Attach { properties: Value::Binary(vec![0; length]), ..sender(0) };
    let mut peer = Peer::ready();
    peer.give(0, Performative::Attach(Box::new(attach(limits::COLD_FRAME_BYTES))));
    peer.assert_closed("amqp:resource-limit-exceeded");
    let mut peer = Peer::stranger(open("c"));
    peer.begin(0, 1);
    peer.give(0, Performative::Attach(Box::new(attach(limits::COLD_FRAME_BYTES_BEFORE_CLAIM))));
    peer.assert_closed("amqp:resource-limit-exceeded");
}

#[test]
fn an_answer_that_the_client_could_not_take_closes_the_connection() {
    let mut peer = Peer::begun(Open { max_frame_size: 512, ..open("c") }, 10);
    let link = peer.attach(Attach { name: "n".repeat(600), ..sender(0) });
    peer.server.accept(link, otobus_amqp::AttachReply::default());
    peer.assert_closed("amqp:frame-size-too-small");
}

#[test]
fn an_answer_may_fill_the_clients_frame_to_its_last_byte() {
    let mut longest = 0;
    for length in 256..600 {
        let mut peer = Peer::begun(Open { max_frame_size: 512, ..open("c") }, 10);
        let link = peer.attach(Attach { name: "n".repeat(length), ..sender(0) });
        peer.server.accept(link, otobus_amqp::AttachReply::default());
        if peer.server.output().is_empty() {
            break;
        }
        longest = peer.server.output().len();
    }
    assert_eq!(longest, 512);
}

#[test]
fn strangers_have_few_sessions_and_links_and_a_claim_lifts_that() {
    let sessions = limits::SESSIONS_BEFORE_CLAIM;
    let mut peer = Peer::stranger(open("c"));
    (0..sessions).for_each(|channel| peer.begin(channel, 1));
    assert_eq!(peer.events(), []);
    peer.begin(sessions, 1);
    peer.assert_closed("amqp:resource-limit-exceeded");

    let links = limits::LINKS_BEFORE_CLAIM as u32;
    let mut peer = Peer::stranger(open("c"));
    peer.begin(0, 1);
    peer.events();
    for handle in 0..links {
        peer.attach(sender(handle));
    }
    peer.server.authenticated();
    peer.attach(sender(links));

    let mut peer = Peer::stranger(open("c"));
    peer.begin(0, 1);
    (0..=links).for_each(|handle| peer.give(0, Performative::Attach(Box::new(sender(handle)))));
    peer.assert_closed("amqp:resource-limit-exceeded");
}

#[test]
fn sessions_and_links_are_limited_for_friends_too() {
    let mut peer = Peer::ready();
    (1..limits::SESSIONS).for_each(|channel| peer.begin(channel, 1));
    assert_eq!(peer.events(), []);
    for index in 0..limits::LINKS as u32 {
        let attach = Performative::Attach(Box::new(sender(index % 256)));
        peer.give((index / 256) as u16, attach);
    }
    assert_eq!(peer.events().len(), limits::LINKS);
    peer.give(100, Performative::Attach(Box::new(sender(0))));
    peer.assert_closed("amqp:resource-limit-exceeded");

    let mut peer = Peer::ready();
    peer.begin(limits::SESSIONS, 1);
    peer.assert_closed("amqp:connection:framing-error");
}

#[test]
fn a_second_delivery_before_the_first_ended_closes_the_connection() {
    let mut peer = Peer::ready();
    peer.sender(0, 10, 1000);
    peer.transfer(Transfer { more: true, ..first_transfer() }, b"a");
    peer.transfer(Transfer { delivery_id: Some(1), ..first_transfer() }, b"b");
    peer.assert_closed("amqp:not-allowed");
}

#[test]
fn a_delivery_without_an_id_or_on_the_wrong_link_closes_the_connection() {
    let mut peer = Peer::ready();
    peer.sender(0, 10, 1000);
    peer.transfer(Transfer { delivery_id: None, ..first_transfer() }, b"a");
    peer.assert_closed("amqp:invalid-field");
    let mut peer = Peer::ready();
    peer.receiver(0, 10);
    peer.transfer(first_transfer(), b"a");
    peer.assert_closed("amqp:not-allowed");
}

// AMQP 1.0 part 2, 2.8.7
#[test]
fn a_delivery_tag_of_32_bytes_is_taken_and_of_33_closes_the_connection() {
    for (length, is_taken) in [(0, true), (31, true), (32, true), (33, false), (64, false)] {
        let mut peer = Peer::ready();
        peer.sender(0, 10, 1000);
        peer.transfer(Transfer { delivery_tag: Some(&[7; 64][..length]), ..first_transfer() }, b"a");
        match is_taken {
            true => assert!(matches!(peer.event(), Event::Transfer { tag, .. } if tag.len() == length)),
            false => peer.assert_closed("amqp:invalid-field"),
        }
    }
}

#[test]
fn unfinished_bytes_are_taken_to_the_limit_and_no_further() {
    for (is_friend, limit) in
        [(false, limits::UNFINISHED_BYTES_BEFORE_CLAIM), (true, limits::UNFINISHED_BYTES)]
    {
        let mut peer = Peer::stranger(open("c"));
        peer.begin(0, 1);
        peer.events();
        if is_friend {
            peer.server.authenticated();
        }
        let link = peer.sender(0, 10, u64::MAX);
        let part = limit / 2048;
        for _ in 0..limit / part {
            peer.transfer(Transfer { more: true, ..first_transfer() }, &vec![0; part as usize]);
            assert!(matches!(peer.event(), Event::Transfer { .. }));
        }
        peer.transfer(Transfer { more: true, ..first_transfer() }, &vec![0; (limit % part) as usize]);
        assert!(matches!(peer.event(), Event::Transfer { .. }), "of a friend: {is_friend}");
        assert_eq!(peer.server.arriving_bytes(), limit);
        peer.transfer(Transfer { more: true, ..first_transfer() }, b"x");
        assert!(matches!(peer.event(), Event::Detach { link: gone, .. } if gone == link));
    }
}

#[test]
fn a_strangers_message_that_never_ends_costs_its_link() {
    // P6: with a maximum that would let it grow, the budget for strangers still holds.
    let mut peer = Peer::stranger(open("c"));
    peer.begin(0, 1);
    peer.events();
    let link = peer.sender(0, 10, 100 * 1024 * 1024);
    let chunk = vec![0; 2 * 1024];
    let mut given = 0;
    let detached = loop {
        peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk);
        match peer.event() {
            Event::Transfer { payload, .. } => given += payload.len() as u64,
            other => break other,
        }
    };
    let Event::Detach { link: gone, closed: true, error: Some(reason) } = detached else { panic!() };
    assert_eq!((gone, &*reason.condition), (link, "amqp:resource-limit-exceeded"));
    assert!(given <= limits::UNFINISHED_BYTES_BEFORE_CLAIM);
    peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk);
    peer.detach(0);
    assert_eq!(peer.events(), [], "the rest is dropped, the connection lives");
    peer.sender(0, 10, 1000);
    peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk[..900]);
    assert!(matches!(peer.event(), Event::Transfer { .. }), "the budget was given back");
}

#[test]
fn a_strangers_frame_and_what_it_has_not_finished_have_one_limit() {
    let mut peer = Peer::stranger(open("c"));
    peer.begin(0, 1);
    peer.events();
    peer.sender(0, 10, 100 * 1024 * 1024);
    let chunk = vec![0; 8 * 1024];
    for _ in 0..2 {
        peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk);
        assert!(matches!(peer.event(), Event::Transfer { .. }));
    }
    peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk);
    peer.assert_closed("amqp:connection:framing-error");
}

#[test]
fn a_message_far_beyond_its_maximum_costs_its_link() {
    // P6
    let mut peer = Peer::ready();
    let link = peer.sender(0, 10, 10);
    let chunk = vec![0; 60 * 1024];
    let mut discarded = 0;
    let detached = loop {
        peer.transfer(Transfer { more: true, ..first_transfer() }, &chunk);
        discarded += chunk.len() as u64;
        if let Some(event) = peer.events().pop() {
            break event;
        }
        assert!(discarded <= limits::DISCARDED_BYTES + 10);
    };
    assert!(matches!(
        detached,
        Event::Detach { link: gone, error: Some(reason), .. }
            if gone == link && reason.condition == "amqp:link:message-size-exceeded"
    ));
}

#[test]
fn what_is_discarded_of_a_message_has_a_limit_that_may_be_reached() {
    let maximum = 10;
    for (beyond, is_too_much) in [(0, false), (1, true)] {
        let mut peer = Peer::ready();
        let link = peer.sender(0, 10, maximum);
        let mut left = maximum + limits::DISCARDED_BYTES + beyond;
        let chunk = vec![0; 60 * 1024];
        let mut last = None;
        while left > 0 {
            let count = left.min(chunk.len() as u64);
            left -= count;
            peer.transfer(Transfer { more: left > 0, ..first_transfer() }, &chunk[..count as usize]);
            last = peer.events().pop();
        }
        match is_too_much {
            true => {
                assert!(matches!(last, Some(Event::Detach { link: gone, .. }) if gone == link), "{last:?}")
            }
            false => {
                assert!(matches!(last, Some(Event::TooLarge { link: of, .. }) if of == link), "{last:?}")
            }
        }
    }
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_no_longer_listened_to() {
    // S2: echoes cost the peer a few bytes each, and would cost us as many
    let flow = Flow { echo: true, incoming_window: 9, outgoing_window: 9, ..Flow::default() };
    for (mut peer, most) in [
        (Peer::stranger(open("c")), limits::UNREAD_OUTPUT_BYTES_BEFORE_CLAIM),
        (Peer::ready(), limits::UNREAD_OUTPUT_BYTES),
    ] {
        peer.begin(7, 9);
        peer.events();
        peer.server.output().clear();
        let mut flood = Vec::new();
        while flood.len() < 2 * most {
            Performative::Flow(flow).write(&mut flood, 7, &[]);
        }
        let mut input = &flood[..];
        assert_eq!(peer.server.next(&mut input, 0), None);
        assert!(peer.server.is_choked() && !input.is_empty());
        assert!(peer.server.output().len() < most + 1_024);
        peer.server.output().clear();
        let left = input.len();
        assert_eq!(peer.server.next(&mut input, 0), None);
        assert!(input.len() < left);
    }
}
