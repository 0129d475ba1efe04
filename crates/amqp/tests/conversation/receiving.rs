//! The client receives: our transfers, its dispositions, drain and windows.

use crate::peer::{Peer, Written, error, receiver};
use otobus_amqp::limits::{LINK_COST, SESSION_COST, UNDECIDED_WEIGHT, UNSETTLED_COST};
use otobus_amqp::performative::{Attach, Disposition, End, Flow, Open, Performative};
use otobus_amqp::{AttachReply, Event, LinkKey, Role, Sent, SessionKey, State};

fn outstanding(peer: &mut Peer, session: SessionKey, first: u32, last: u32, forget: bool) -> Vec<u32> {
    let mut ids = Vec::new();
    peer.server.outstanding(session, first, last, forget, |_, id, _| ids.push(id));
    ids
}

fn transfers(written: &[Written]) -> Vec<(Option<u32>, bool, usize)> {
    written
        .iter()
        .map(|written| match &written.performative {
            Performative::Transfer(transfer) => (transfer.delivery_id, transfer.more, written.payload.len()),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_delivery_has_id_tag_and_format() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(4, 1);
    let tag = *b"0123456789abcdef";
    let sent = peer.server.send(link, &tag, true, 0, |out| out.extend_from_slice(b"message"));
    assert_eq!(sent, Sent::Delivery(1));
    let written = peer.written();
    let [Written { performative: Performative::Transfer(transfer), payload: b"message", .. }] = &written[..]
    else {
        panic!("{written:?}")
    };
    assert_eq!((transfer.handle, transfer.delivery_id), (4, Some(1)));
    assert_eq!(transfer.delivery_tag, Some(&tag[..]));
    assert_eq!((transfer.message_format, transfer.settled, transfer.more), (Some(0), Some(true), false));
}

#[test]
fn never_more_is_sent_than_the_credit() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 2);
    assert_eq!(peer.deliver(link, b"a"), Sent::Delivery(1));
    assert_eq!(peer.deliver(link, b"b"), Sent::Delivery(2));
    assert!(!peer.server.can_send(link));
    let refused = peer.server.send(link, &[], true, 0, |_| panic!("written without credit"));
    assert_eq!(refused, Sent::NoCredit);
    // The client has seen one and allows three from there: one is in flight.
    let flow = Flow { handle: Some(0), delivery_count: Some(1), link_credit: Some(3), ..Flow::default() };
    peer.flow(flow);
    assert_eq!(peer.event(), Event::Flow { link, credit: 2, drain: false, properties: None });
}

#[test]
fn delivery_ids_are_contiguous_over_the_links_of_a_session() {
    // JavaScript throws on a gap.
    let mut peer = Peer::ready();
    let links = [peer.receiver(0, 10), peer.receiver(1, 10)];
    for id in 1..=6 {
        let link = links[id as usize % 2];
        let sent = peer.server.send(link, &[1; 16], id % 3 == 0, 0, |out| out.push(0));
        assert_eq!(sent, Sent::Delivery(id));
    }
    let ids: Vec<_> = transfers(&peer.written()).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, (1..=6).map(Some).collect::<Vec<_>>());
}

#[test]
fn an_unsettled_disposition_is_answered_with_its_outcome() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    for _ in 0..3 {
        assert!(matches!(peer.deliver(link, b"m"), Sent::Delivery(_)));
    }
    peer.server.output().clear();
    let state = Some(State::Released);
    peer.disposition(Disposition { settled: false, state, ..Disposition::new(Role::Receiver, 1, 2) });
    let Event::Disposition { session, first, last, settled, state } = peer.event() else { panic!() };
    assert_eq!((first, last, settled, state), (1, 2, false, Some(State::Released)));
    let mut found = Vec::new();
    peer.server.outstanding(session, first, last, false, |link, id, tag| found.push((link, id, *tag)));
    assert_eq!(found, [(link, 1, [7; 16]), (link, 2, [7; 16])]);

    peer.server.settle_outgoing(link, 1, 2, &State::Released);
    let answer = Disposition { state: Some(State::Released), ..Disposition::new(Role::Sender, 1, 2) };
    assert_eq!(peer.performatives(), [Performative::Disposition(answer)]);
    assert_eq!(outstanding(&mut peer, session, 0, 100, false), [3], "settled ones are forgotten");
}

#[test]
fn a_transient_refusal_keeps_the_delivery_known() {
    // : Java repeats the disposition.
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    assert_eq!(peer.deliver(link, b"m"), Sent::Delivery(1));
    let session = peer.server.session_of(link).unwrap();
    peer.server.settle_outgoing(link, 1, 1, &State::rejected(error("com.microsoft:server-busy")));
    assert_eq!(outstanding(&mut peer, session, 1, 1, false), [1]);
    peer.server.settle_outgoing(link, 1, 1, &State::rejected(error("com.microsoft:message-lock-lost")));
    assert_eq!(outstanding(&mut peer, session, 1, 1, false), []);
}

#[test]
fn dispositions_for_what_is_settled_or_unknown_find_nothing() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    assert_eq!(peer.server.send(link, &[], true, 0, |_| {}), Sent::Delivery(1));
    let state = Some(State::Accepted);
    peer.disposition(Disposition { state, last: None, ..Disposition::new(Role::Receiver, 1, 1) });
    let Event::Disposition { session, first: 1, last: 1, settled: true, .. } = peer.event() else { panic!() };
    assert_eq!(outstanding(&mut peer, session, 1, 1, true), []);
}

#[test]
fn a_disposition_for_everything_costs_what_is_outstanding() {
    // P6: half of the numbers, then all of them, which is the same as an inverted range.
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 10);
    assert_eq!(peer.deliver(link, b"m"), Sent::Delivery(1));
    let session = peer.server.session_of(link).unwrap();
    for (first, last, found) in [(0, i32::MAX as u32, vec![1]), (0, u32::MAX, vec![]), (5, 1, vec![])] {
        peer.disposition(Disposition::new(Role::Receiver, first, last));
        peer.events();
        assert_eq!(outstanding(&mut peer, session, first, last, false), found);
    }
    assert!(!peer.server.is_closed());
}

#[test]
fn replies_on_an_untracked_link_leave_no_trace() {
    // : Python never settles them.
    let mut peer = Peer::ready();
    let link = peer.attach(receiver(0));
    peer.server.accept(link, AttachReply { untracked: true, ..AttachReply::default() });
    peer.credit(0, 10_000);
    peer.events();
    for _ in 0..1000 {
        assert!(matches!(peer.deliver(link, b"reply"), Sent::Delivery(_)));
    }
    let session = peer.server.session_of(link).unwrap();
    assert_eq!(outstanding(&mut peer, session, 0, 2000, false), []);
}

#[test]
fn replies_need_no_credit_after_the_ten_thousandth() {
    // Python grants ten thousand once. Other links never send without credit.
    for (untracked, most) in [(true, 10_002), (false, 10_000)] {
        let mut peer = Peer::ready();
        let link = peer.attach(receiver(0));
        peer.server.accept(link, AttachReply { untracked, ..AttachReply::default() });
        let credit = Flow {
            next_incoming_id: Some(1),
            incoming_window: 20_000,
            handle: Some(0),
            delivery_count: Some(0),
            link_credit: Some(10_000),
            ..Flow::default()
        };
        peer.give(0, Performative::Flow(credit));
        peer.events();
        let mut sent = 0;
        while sent < 10_002 && matches!(peer.server.send(link, b"t", true, 0, |_| {}), Sent::Delivery(_)) {
            sent += 1;
            peer.server.output().clear();
        }
        assert_eq!(sent, most);
    }
}

#[test]
fn drain_is_answered_with_the_credit_given_back() {
    //
    for credit in [8, 0] {
        let mut peer = Peer::ready();
        let link = peer.receiver(2, 10);
        assert!(matches!(peer.deliver(link, b"m"), Sent::Delivery(_)));
        peer.server.output().clear();
        let flow = Flow {
            handle: Some(2),
            delivery_count: Some(1),
            link_credit: Some(credit),
            drain: true,
            echo: true,
            ..Flow::default()
        };
        peer.flow(flow);
        assert_eq!(peer.event(), Event::Flow { link, credit, drain: true, properties: None });
        peer.server.drained(link);
        let flows = peer.performatives();
        let [Performative::Flow(answer)] = &flows[..] else { panic!("one answer, not {flows:?}") };
        assert_eq!((answer.link_credit, answer.drain, answer.echo), (Some(0), true, false));
        assert_eq!((answer.delivery_count, answer.available), (Some(1 + credit), Some(0)));
        assert!(answer.next_incoming_id.is_some() && answer.next_outgoing_id == 2);
        assert_eq!(peer.deliver(link, b"late"), Sent::NoCredit);
    }
}

#[test]
fn sending_stops_at_the_clients_window_and_goes_on_when_it_opens() {
    //
    let mut peer = Peer::with_window(2);
    let link = peer.attach(receiver(0));
    peer.server.accept(link, AttachReply::default());
    let flow = |seen, incoming_window| Flow {
        next_incoming_id: Some(seen),
        incoming_window,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(100),
        ..Flow::default()
    };
    peer.give(0, Performative::Flow(flow(1, 2)));
    peer.events();
    assert_eq!(peer.deliver(link, b"a"), Sent::Delivery(1));
    assert_eq!(peer.deliver(link, b"b"), Sent::Delivery(2));
    assert_eq!(peer.deliver(link, b"c"), Sent::NoWindow);
    assert!(!peer.server.can_send(link));
    // A window of two from the second frame on leaves room for one.
    peer.give(0, Performative::Flow(flow(2, 2)));
    let session = peer.server.session_of(link).unwrap();
    let events = peer.events();
    assert!(matches!(events[0], Event::Flow { credit: 98, .. }), "{events:?}");
    assert_eq!(events[1], Event::Window { session });
    assert_eq!(peer.deliver(link, b"c"), Sent::Delivery(3));
    assert_eq!(peer.deliver(link, b"d"), Sent::NoWindow);
}

#[test]
fn a_message_is_cut_to_the_clients_frame_size() {
    // Java takes 4 KiB over WebSocket.
    for length in [0, 400, 456, 457, 458, 459, 460, 461, 462, 463, 464, 465, 470, 1000, 5000, 100_000] {
        let open = Open { container_id: "java".into(), max_frame_size: 512, ..Open::default() };
        let mut peer = Peer::begun(open, 5000);
        let link = peer.receiver(0, 10);
        let message: Vec<u8> = (0..length).map(|n| n as u8).collect();
        assert_eq!(peer.deliver(link, &message), Sent::Delivery(1));
        assert_eq!(peer.deliver(link, b"after"), Sent::Delivery(2));

        let out = peer.server.output().clone();
        let sizes = frame_sizes(&out);
        assert!(sizes.iter().all(|size| *size <= 512), "{sizes:?}");
        let mut written = peer.written();
        let after = written.pop().unwrap();
        assert_eq!(after.payload, b"after");
        let parts = transfers(&written);
        let (last, others) = parts.split_last().unwrap();
        assert!(!last.1 && others.iter().all(|(_, more, _)| *more));
        assert!(parts[1..].iter().all(|(id, ..)| id.is_none()), "only the first frame has the id");
        assert_eq!(parts[0].0, Some(1));
        let joined: Vec<u8> = written.iter().flat_map(|written| written.payload).copied().collect();
        assert_eq!(joined, message);
        peer.flow(Flow { echo: true, ..Flow::default() });
        peer.events();
        let Performative::Flow(flow) = peer.performatives().remove(0) else { panic!() };
        assert_eq!(flow.next_outgoing_id as usize, 1 + sizes.len(), "transfer ids count frames");
    }
}

fn frame_sizes(mut bytes: &[u8]) -> Vec<u32> {
    let mut sizes = Vec::new();
    while let Some((size, _)) = bytes.split_first_chunk::<4>() {
        let size = u32::from_be_bytes(*size);
        sizes.push(size);
        bytes = &bytes[size as usize..];
    }
    sizes
}

#[test]
fn the_rest_of_a_cut_message_waits_for_the_window_and_nothing_overtakes_it() {
    let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
    let mut peer = Peer::begun(open, 2);
    let link = peer.attach(receiver(0));
    peer.server.accept(link, AttachReply::default());
    let flow = |seen, incoming_window| Flow {
        next_incoming_id: Some(seen),
        incoming_window,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(10),
        ..Flow::default()
    };
    peer.give(0, Performative::Flow(flow(1, 2)));
    peer.events();
    peer.server.output().clear();
    let message: Vec<u8> = (0..2000).map(|n| n as u8).collect();
    assert_eq!(peer.deliver(link, &message), Sent::Delivery(1));
    let mut payload: Vec<u8> = Vec::new();
    let mut frames = 0;
    for seen in 1.. {
        let written = peer.written();
        frames += written.len();
        payload.extend(written.iter().flat_map(|written| written.payload));
        if payload.len() == message.len() {
            break;
        }
        assert_eq!(peer.deliver(link, b"overtaking"), Sent::NoWindow);
        peer.give(0, Performative::Flow(flow(seen + 1, 2)));
        peer.events();
    }
    assert_eq!((payload, frames), (message, 5));
}

#[test]
fn a_drain_is_answered_after_the_last_held_frame() {
    let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
    let mut peer = Peer::begun(open, 1);
    let link = peer.attach(receiver(0));
    peer.server.accept(link, AttachReply::default());
    peer.give(0, Performative::Flow(Flow { drain: true, ..window_flow(0, 1) }));
    peer.events();
    assert_eq!(peer.deliver(link, &[1; 700]), Sent::Delivery(1));
    peer.server.output().clear();
    peer.server.drained(link);
    assert_eq!(peer.performatives(), [], "the message is not out yet");
    peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(2), drain: true, ..window_flow(0, 1) }));
    peer.events();
    let written = peer.performatives();
    let [Performative::Transfer(_), Performative::Flow(flow)] = &written[..] else { panic!("{written:?}") };
    assert_eq!((flow.drain, flow.delivery_count, flow.link_credit), (true, Some(10), Some(0)));
}

#[test]
fn a_link_that_goes_takes_its_held_frames_and_deliveries_with_it() {
    let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
    let mut peer = Peer::begun(open, 1);
    let held = peer.attach(receiver(0));
    let other = peer.attach(receiver(1));
    for link in [held, other] {
        peer.server.accept(link, AttachReply::default());
    }
    peer.give(0, Performative::Flow(window_flow(0, 1)));
    peer.give(0, Performative::Flow(window_flow(1, 1)));
    peer.events();
    assert_eq!(peer.deliver(held, &[1; 2000]), Sent::Delivery(1));
    peer.server.output().clear();
    peer.detach(0);
    assert!(matches!(peer.event(), Event::Detach { link, .. } if link == held));
    peer.server.output().clear();
    peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(2), ..window_flow(1, 5) }));
    peer.events();
    assert_eq!(peer.performatives(), [], "no frames for a link that is gone");
    assert_eq!(peer.deliver(other, b"m"), Sent::Delivery(2));
    let session = peer.server.session_of(other).unwrap();
    assert_eq!(outstanding(&mut peer, session, 0, 9, false), [2]);
}

#[test]
fn a_link_that_goes_leaves_the_held_frames_of_another_link_where_they_are() {
    // AMQP 1.0 part 2, 2.6.14: a delivery that has begun ends with a frame that says so.
    for is_ended_by_us in [false, true] {
        let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
        let mut peer = Peer::begun(open, 1);
        let (held, other) = (peer.receiver(0, 10), peer.receiver(1, 10));
        peer.give(0, Performative::Flow(window_flow(0, 1)));
        peer.events();
        assert_eq!(peer.deliver(held, &[1; 2000]), Sent::Delivery(1));
        let begun: usize = peer.written().iter().map(|written| written.payload.len()).sum();
        let before = peer.server.held_frames_bytes();
        match is_ended_by_us {
            true => peer.server.detach(other, None),
            false => peer.detach(1),
        }
        peer.events();
        assert_eq!(peer.server.held_frames_bytes(), before);
        peer.server.output().clear();
        peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(2), ..window_flow(0, 9) }));
        peer.events();
        let rest: usize = peer.written().iter().map(|written| written.payload.len()).sum();
        assert_eq!(begun + rest, 2000, "ended by us: {is_ended_by_us}");
    }
}

#[test]
fn a_drain_of_one_link_does_not_wait_for_the_held_frames_of_another() {
    let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
    let mut peer = Peer::begun(open, 1);
    let (held, other) = (peer.receiver(0, 10), peer.receiver(1, 10));
    peer.give(0, Performative::Flow(window_flow(0, 1)));
    peer.events();
    assert_eq!(peer.deliver(held, &[1; 700]), Sent::Delivery(1));
    peer.server.output().clear();
    peer.server.drained(other);
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Flow(flow)] if flow.drain && flow.handle == Some(1)));
    peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(2), ..window_flow(0, 9) }));
    peer.events();
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Transfer(_)]), "and nobody drained that one: {written:?}");
}

fn window_flow(handle: u32, incoming_window: u32) -> Flow<'static> {
    Flow {
        next_incoming_id: Some(1),
        incoming_window,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(10),
        ..Flow::default()
    }
}

#[test]
fn a_consumer_that_never_settles_is_stopped_at_the_limit() {
    let mut peer = Peer::with_window(u32::MAX);
    let link = peer.receiver(0, u32::MAX);
    peer.give(0, Performative::Flow(Flow { link_credit: Some(u32::MAX), ..window_flow(0, u32::MAX) }));
    peer.events();
    for _ in 0..otobus_amqp::limits::UNSETTLED_PER_SESSION {
        assert!(matches!(peer.deliver(link, b""), Sent::Delivery(_)));
        peer.server.output().clear();
    }
    assert_eq!(peer.deliver(link, b""), Sent::NoWindow);
    assert!(matches!(peer.server.send(link, &[], true, 0, |_| {}), Sent::Delivery(_)), "settled ones pass");
    peer.server.settle_outgoing(link, 5, 5, &State::Accepted);
    assert!(matches!(peer.deliver(link, b""), Sent::Delivery(_)));
}

/// What the server holds, without the room of its output.
fn held_bytes(peer: &mut Peer) -> usize {
    *peer.server.output() = Vec::new();
    peer.server.held_bytes()
}

/// Ends a link, or the session in which it is.
type EndIt = fn(&mut Peer, LinkKey);

// P7
#[test]
fn every_end_of_a_link_or_its_session_gives_back_what_it_was_counted_for() {
    let ends: [(&str, EndIt); 4] = [
        ("a detach", |peer, _| peer.detach(0)),
        ("our detach", |peer, link| {
            peer.server.detach(link, None);
            peer.detach(0);
        }),
        ("an end", |peer, _| peer.give(0, Performative::End(End { error: None }))),
        ("our end", |peer, link| {
            peer.server.end(peer.server.session_of(link).unwrap(), None);
            peer.give(0, Performative::End(End { error: None }));
        }),
    ];
    for (what, end) in ends {
        for is_accepted in [false, true] {
            let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
            let mut peer = Peer::begun(open, 1);
            let before = held_bytes(&mut peer);
            let link = peer.attach(receiver(0));
            if is_accepted {
                peer.server.accept(link, AttachReply::default());
                peer.give(0, Performative::Flow(window_flow(0, 1)));
                peer.events();
                assert_eq!(peer.deliver(link, &[1; 2_000]), Sent::Delivery(1));
            }
            assert!(held_bytes(&mut peer) > before + LINK_COST, "{what}: it is counted");
            end(&mut peer, link);
            peer.events();
            if what.ends_with("end") {
                peer.begin(0, 1);
                peer.events();
            }
            assert_eq!(held_bytes(&mut peer), before, "{what} of a link that is accepted: {is_accepted}");
        }
    }
}

// P7
#[test]
fn what_is_held_is_counted_by_its_kind() {
    let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
    let mut peer = Peer::begun(open, 1);
    let empty = held_bytes(&mut peer);
    peer.begin(1, 1);
    peer.events();
    assert_eq!(held_bytes(&mut peer), empty + SESSION_COST);

    // An attach counts as it was understood until it is answered, and as its names from then on.
    let (mut costs, mut links) = (Vec::new(), Vec::new());
    for (handle, name) in [(1, "n".to_owned()), (2, "n".repeat(101))] {
        let before = held_bytes(&mut peer);
        let link = peer.attach(Attach { name, ..receiver(handle) });
        let undecided = held_bytes(&mut peer) - before - LINK_COST;
        peer.server.accept(link, AttachReply::default());
        let decided = held_bytes(&mut peer) - before - LINK_COST;
        assert_eq!(undecided, UNDECIDED_WEIGHT * decided);
        costs.push(decided);
        links.push(link);
    }
    assert_eq!(costs[1] - costs[0], 100);

    let first = links[0];
    peer.give(0, Performative::Flow(window_flow(1, 1)));
    peer.events();
    let before = held_bytes(&mut peer);
    assert_eq!(peer.deliver(first, b"small"), Sent::Delivery(1));
    assert_eq!(held_bytes(&mut peer), before + UNSETTLED_COST);
    assert_eq!(peer.server.held_frames_bytes(), 0);
    peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(2), ..window_flow(1, 1) }));
    peer.events();
    assert_eq!(peer.deliver(first, &[1; 2_000]), Sent::Delivery(2));
    let waiting = peer.server.held_frames_bytes();
    assert!((1_500..4_000).contains(&waiting), "all but one frame of 512 bytes: {waiting}");
    assert_eq!(held_bytes(&mut peer), before + 2 * UNSETTLED_COST + waiting);
    peer.give(0, Performative::Flow(Flow { next_incoming_id: Some(3), ..window_flow(1, 100) }));
    peer.events();
    assert_eq!(peer.server.held_frames_bytes(), 0);
    assert_eq!(held_bytes(&mut peer), before + 2 * UNSETTLED_COST);
}

#[test]
fn every_frame_of_a_message_names_its_session_and_its_link() {
    for settled in [false, true] {
        let open = Open { container_id: "c".into(), max_frame_size: 512, ..Open::default() };
        let mut peer = Peer::begun(open, 5000);
        peer.begin(3, 5000);
        peer.events();
        peer.give(3, Performative::Attach(Box::new(receiver(2))));
        let Event::Attach { link, .. } = peer.event() else { panic!() };
        peer.server.accept(link, AttachReply::default());
        peer.give(3, Performative::Flow(window_flow(2, 5000)));
        peer.events();
        peer.server.output().clear();
        let _ = peer.server.send(link, b"tag", settled, 0, |out| out.extend_from_slice(&[1; 2_000]));
        let _ = peer.server.begin_stream(link, b"tag", settled, 0);
        let _ = peer.server.stream(link, &[1; 2_000], true);
        let written = peer.written();
        assert_eq!(written.len(), 10);
        for frame in written {
            let Performative::Transfer(transfer) = frame.performative else { panic!("{frame:?}") };
            assert_eq!((frame.channel, transfer.handle, transfer.settled), (3, 2, Some(settled)));
        }
    }
}

#[test]
fn unknown_links_are_answered_with_nothing() {
    let mut peer = Peer::ready();
    let ghost = LinkKey(77);
    assert_eq!(peer.deliver(ghost, b"m"), Sent::NotAttached);
    peer.server.grant(ghost, 1);
    peer.server.drained(ghost);
    peer.server.detach(ghost, None);
    peer.server.settle_incoming(ghost, 0, 0, &State::Accepted);
    peer.server.settle_outgoing(ghost, 0, 0, &State::Accepted);
    assert_eq!((peer.performatives(), peer.server.credit_left(ghost)), (vec![], 0));
}
