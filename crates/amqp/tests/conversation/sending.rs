//! The client sends: transfers, credit and our dispositions.

use crate::peer::{Peer, error, sender};
use otobus_amqp::performative::{Disposition, End, Flow, Performative, Transfer};
use otobus_amqp::{AttachReply, Event, Role, State};

fn transfer(id: u32) -> Transfer<'static> {
    Transfer { handle: 0, delivery_id: Some(id), delivery_tag: Some(b"t"), ..Transfer::default() }
}

#[test]
fn a_message_comes_whole_and_is_settled_in_one_step() {
    // also when Python asked for two steps.
    let mut peer = Peer::ready();
    let link = peer.sender(0, 100, 1000);
    peer.transfer(Transfer { message_format: Some(0x8001_3700), ..transfer(7) }, b"message");
    let expected = Event::Transfer {
        link,
        delivery_id: 7,
        tag: b"t",
        format: 0x8001_3700,
        settled: false,
        state: None,
        payload: b"message",
        first: true,
        more: false,
        aborted: false,
    };
    assert_eq!(peer.event(), expected);
    assert_eq!(peer.server.credit_left(link), 99);
    peer.server.settle_incoming(link, 7, 9, &State::Accepted);
    let disposition = Disposition { state: Some(State::Accepted), ..Disposition::new(Role::Receiver, 7, 9) };
    assert_eq!(peer.performatives(), [Performative::Disposition(disposition)]);
}

#[test]
fn later_frames_may_repeat_or_omit_the_delivery_id() {
    // Python repeats it.
    let mut peer = Peer::ready();
    peer.sender(0, 100, 1000);
    peer.transfer(Transfer { more: true, message_format: Some(5), ..transfer(3) }, b"one");
    peer.transfer(Transfer { more: true, ..transfer(3) }, b"two");
    peer.transfer(Transfer { settled: Some(true), ..Transfer::default() }, b"three");
    let common = |event: &Event<'_>| match *event {
        Event::Transfer { delivery_id, format, .. } => (delivery_id, format),
        _ => panic!("{event:?}"),
    };
    let part = |event: &Event<'static>| match *event {
        Event::Transfer { payload, settled, first, more, .. } => (payload, settled, first, more),
        _ => panic!("{event:?}"),
    };
    let events = peer.events();
    assert!(events.iter().all(|event| common(event) == (3, 5)));
    let parts: Vec<_> = events.iter().map(part).collect();
    assert_eq!(parts[0], (&b"one"[..], false, true, true));
    assert_eq!(parts[1], (&b"two"[..], false, false, true));
    assert_eq!(parts[2], (&b"three"[..], true, false, false));
}

#[test]
fn an_aborted_delivery_ends_and_the_next_may_begin() {
    //
    let mut peer = Peer::ready();
    let link = peer.sender(0, 100, 1000);
    peer.transfer(Transfer { more: true, ..transfer(3) }, b"one");
    peer.transfer(Transfer { aborted: true, more: true, ..transfer(3) }, b"rest");
    peer.transfer(transfer(4), b"next");
    let events = peer.events();
    assert!(
        matches!(events[1], Event::Transfer { delivery_id: 3, aborted: true, more: false, payload: b"", .. }),
        "{events:?}"
    );
    assert!(matches!(events[2], Event::Transfer { delivery_id: 4, first: true, .. }));
    assert_eq!(peer.server.credit_left(link), 98);
}

#[test]
fn transfers_before_the_decision_are_given_in_order() {
    let mut peer = Peer::ready();
    let link = peer.attach(sender(0));
    peer.transfer(transfer(0), b"early");
    assert!(matches!(peer.event(), Event::Transfer { payload: b"early", .. }));
    peer.server.accept(link, AttachReply::default());
    peer.server.settle_incoming(link, 0, 0, &State::Accepted);
    assert_eq!(peer.performatives().len(), 2);
}

#[test]
fn a_client_that_ignores_its_credit_is_served() {
    // Python claims credit by a flow from its sending end.
    let mut peer = Peer::ready();
    let link = peer.sender(0, 2, 1000);
    peer.flow(Flow {
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(10_000),
        ..Flow::default()
    });
    for id in 0..5 {
        peer.transfer(transfer(id), b"m");
    }
    assert_eq!(peer.events().len(), 5, "five transfers and no flow");
    assert_eq!(peer.server.credit_left(link), 0);
    peer.server.grant(link, 100);
    let Performative::Flow(flow) = peer.performatives().remove(0) else { panic!() };
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(5), Some(100)));
}

#[test]
fn a_client_may_give_back_all_of_its_credit_and_no_more_than_that() {
    // AMQP 1.0 part 2, 2.6.7: who gives credit back advances delivery-count by it.
    let mut peer = Peer::ready();
    let link = peer.sender(0, 10, 1000);
    for (delivery_count, left) in [(0, 10), (11, 10), (4, 6), (10, 0), (11, 0)] {
        peer.flow(Flow { handle: Some(0), delivery_count: Some(delivery_count), ..Flow::default() });
        peer.events();
        assert_eq!(peer.server.credit_left(link), left, "at {delivery_count}");
    }
}

#[test]
fn the_session_window_is_renewed_before_it_runs_out() {
    //
    let mut peer = Peer::ready();
    peer.sender(0, u32::MAX, 1000);
    let mut window = i64::from(otobus_amqp::limits::INCOMING_WINDOW);
    for id in 0..40_000 {
        peer.transfer(Transfer { settled: Some(true), ..transfer(id) }, b"m");
        window -= 1;
        peer.events();
        for performative in peer.performatives() {
            let Performative::Flow(flow) = performative else { panic!("{performative:?}") };
            assert_eq!(flow.next_incoming_id, Some(id + 1));
            window = flow.incoming_window.into();
        }
        assert!(window > 0);
    }
}

#[test]
fn a_message_at_the_maximum_passes_and_one_byte_more_is_reported() {
    // P6
    let mut peer = Peer::ready();
    let link = peer.sender(0, 100, 10);
    peer.transfer(transfer(0), &[1; 10]);
    assert!(matches!(peer.event(), Event::Transfer { .. }));
    peer.transfer(transfer(1), &[1; 11]);
    assert_eq!(peer.event(), Event::TooLarge { link, delivery_id: 1, settled: false, state: None });
    peer.server.settle_incoming(link, 1, 1, &State::rejected(error("amqp:link:message-size-exceeded")));
    peer.transfer(transfer(2), &[1; 10]);
    assert!(matches!(peer.event(), Event::Transfer { .. }), "the link lives on");
}

// AMQP 1.0 part 2, 2.7.3: zero is no maximum; what is taken then is what is taken from a link of which nothing is known.
#[test]
fn a_maximum_of_zero_is_none() {
    for max_message_size in [None, Some(0)] {
        let mut peer = Peer::ready();
        let link = peer.attach(sender(0));
        peer.server.accept(link, AttachReply { max_message_size, ..AttachReply::default() });
        peer.transfer(transfer(0), &[1; 1_000]);
        assert!(matches!(peer.event(), Event::Transfer { payload, .. } if payload.len() == 1_000));
    }
}

#[test]
fn a_message_that_grows_too_large_is_dropped_at_once_and_reported_at_its_end() {
    // P6. Go hears a disposition only after its last frame was written.
    let mut peer = Peer::ready();
    let link = peer.sender(0, 100, 10);
    let state = Some(State::Transactional { txn_id: vec![1], outcome: None });
    peer.transfer(Transfer { more: true, state: state.clone(), ..transfer(0) }, &[1; 6]);
    assert!(matches!(peer.event(), Event::Transfer { aborted: false, .. }));
    peer.transfer(Transfer { more: true, ..transfer(0) }, &[1; 6]);
    assert!(matches!(peer.event(), Event::Transfer { aborted: true, payload: b"", .. }));
    peer.transfer(Transfer { more: true, ..transfer(0) }, &[1; 6]);
    assert_eq!(peer.events(), []);
    peer.transfer(transfer(0), &[1; 6]);
    assert_eq!(peer.event(), Event::TooLarge { link, delivery_id: 0, settled: false, state });
}

#[test]
fn a_state_comes_with_its_transfer() {
    //
    let mut peer = Peer::ready();
    peer.sender(0, 100, 10);
    let txn = State::Transactional { txn_id: b"t1".to_vec(), outcome: None };
    peer.transfer(Transfer { state: Some(txn.clone()), ..transfer(0) }, b"m");
    assert!(matches!(peer.event(), Event::Transfer { state: Some(state), .. } if state == txn));
}

#[test]
fn what_a_client_says_of_its_own_sends_is_ignored() {
    let mut peer = Peer::ready();
    peer.sender(0, 100, 10);
    peer.disposition(Disposition::new(Role::Sender, 0, 0));
    assert_eq!(peer.events(), []);
}

#[test]
fn an_echo_is_answered() {
    //
    let mut peer = Peer::ready();
    peer.sender(0, 100, 10);
    peer.flow(Flow { handle: Some(0), delivery_count: Some(0), echo: true, drain: true, ..Flow::default() });
    peer.flow(Flow { echo: true, ..Flow::default() });
    assert_eq!(peer.events(), []);
    let flows = peer.performatives();
    let [Performative::Flow(link), Performative::Flow(session)] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((link.handle, link.link_credit, link.echo), (Some(0), Some(100), false));
    assert_eq!((session.handle, session.echo), (None, false));
}

// P7
#[test]
fn what_the_door_has_passed_on_is_held_no_longer() {
    let mut peer = Peer::ready();
    let (one, two) = (peer.sender(0, 100, 10_000), peer.sender(1, 100, 10_000));
    let before = peer.server.held_bytes();
    let more = |peer: &mut Peer, handle, bytes: usize, expected| {
        peer.transfer(Transfer { handle, more: true, ..transfer(handle) }, &vec![1; bytes]);
        peer.events();
        assert_eq!(peer.server.arriving_bytes(), expected);
        assert_eq!(peer.server.held_bytes() - before, 2 * expected as usize, "vectors grow by doubling");
    };
    more(&mut peer, 0, 500, 500);
    more(&mut peer, 1, 300, 800);
    for (link, passed_on, left) in [(one, 200, 600), (one, 200, 600), (one, 500, 300), (two, 100, 200)] {
        peer.server.passed_on(link, passed_on);
        assert_eq!(peer.server.arriving_bytes(), left);
    }
    more(&mut peer, 0, 70, 270);
    peer.transfer(Transfer { more: false, ..transfer(0) }, b"end");
    peer.events();
    assert_eq!(peer.server.arriving_bytes(), 200, "what the other link holds");
    peer.server.passed_on(one, 600);
    assert_eq!(peer.server.arriving_bytes(), 200, "nothing arrives on the first");
    peer.detach(1);
    peer.events();
    assert_eq!(peer.server.arriving_bytes(), 0);
}

// P7: what is held for a delivery that has not ended is given back by whatever ends it.
#[test]
fn every_end_of_an_unfinished_delivery_gives_its_bytes_back() {
    type Ending = fn(&mut Peer);
    let ends: [(&str, Ending); 6] = [
        ("its last frame", |peer| peer.transfer(transfer(3), b"end")),
        ("an abort", |peer| peer.transfer(Transfer { aborted: true, ..transfer(3) }, b"")),
        ("an abort with more", |peer| {
            peer.transfer(Transfer { aborted: true, more: true, ..transfer(3) }, b"x");
        }),
        ("too many bytes", |peer| {
            peer.transfer(Transfer { more: true, ..transfer(3) }, &[1; 600]);
            peer.transfer(transfer(3), b"end");
        }),
        ("a detach", |peer| peer.detach(0)),
        ("the end of its session", |peer| peer.give(0, Performative::End(End { error: None }))),
    ];
    for (what, end) in ends {
        let mut peer = Peer::ready();
        peer.sender(0, 100, 1_000);
        peer.events();
        peer.written();
        let unfinished = |peer: &mut Peer| {
            peer.transfer(Transfer { more: true, ..transfer(3) }, &[1; 500]);
            peer.events();
            peer.written();
        };
        unfinished(&mut peer);
        assert_eq!(peer.server.arriving_bytes(), 500, "{what}");
        end(&mut peer);
        peer.events();
        assert_eq!(peer.server.arriving_bytes(), 0, "{what}");
    }
}
