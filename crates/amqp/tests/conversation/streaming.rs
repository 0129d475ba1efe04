//! The client receives a message that the server never has whole.

use crate::peer::{Peer, Written, error, receiver};
use otobus_amqp::performative::{Flow, Open, Performative};
use otobus_amqp::{AttachReply, Event, LinkKey, Sent};

const TAG: [u8; 16] = [7; 16];

fn small_frames(window: u32) -> Peer {
    Peer::begun(Open { container_id: "test".into(), max_frame_size: 512, ..Open::default() }, window)
}

fn begin(peer: &mut Peer, link: LinkKey) -> Sent {
    peer.server.begin_stream(link, &TAG, false, 0)
}

/// Id, `more` and payload of each transfer.
fn transfers(written: Vec<Written>) -> Vec<(Option<u32>, bool, &'static [u8])> {
    written
        .into_iter()
        .filter_map(|Written { performative, payload, .. }| match performative {
            Performative::Transfer(transfer) => Some((transfer.delivery_id, transfer.more, payload)),
            _ => None,
        })
        .collect()
}

fn open_window(peer: &mut Peer, seen: u32, window: u32) -> Vec<Event<'static>> {
    let flow = Flow { next_incoming_id: Some(1 + seen), incoming_window: window, ..Flow::default() };
    peer.give(0, Performative::Flow(flow));
    peer.events()
}

#[test]
fn pieces_become_one_delivery() {
    // AMQP 1.0 part 2, 2.6.14: several transfers, `more` on all but the last.
    let mut peer = small_frames(5000);
    let link = peer.receiver(0, 2);
    let message: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
    assert_eq!(begin(&mut peer, link), Sent::Delivery(1));
    assert_eq!(peer.server.credit_left(link), 1);
    for piece in [0..700, 700..701, 701..2500] {
        assert_eq!(peer.server.stream(link, &message[piece.clone()], false), Some(piece.len()));
    }
    assert_eq!(peer.server.stream(link, &message[2500..], true), Some(500));
    assert!(peer.server.output().len() > message.len());
    let written = transfers(peer.written());
    assert_eq!(written[0].0, Some(1));
    assert!(written[1..].iter().all(|(id, _, _)| id.is_none()));
    let ends: Vec<usize> = (0..written.len()).filter(|n| !written[*n].1).collect();
    assert_eq!(ends, [written.len() - 1]);
    assert_eq!(written.iter().flat_map(|(_, _, payload)| *payload).copied().collect::<Vec<u8>>(), message);
    assert_eq!(peer.server.stream(link, b"more", true), None, "it has ended");
    assert_eq!(peer.deliver(link, b"next"), Sent::Delivery(2));
}

//
#[test]
fn a_stream_is_remembered_unless_it_is_settled_or_its_link_is_untracked() {
    for (settled, untracked) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut peer = Peer::ready();
        let link = peer.attach(receiver(0));
        peer.server.accept(link, AttachReply { untracked, ..AttachReply::default() });
        peer.credit(0, 5);
        peer.events();
        let session = peer.server.session_of(link).unwrap();
        assert_eq!(peer.server.begin_stream(link, &TAG, settled, 0), Sent::Delivery(1));
        assert_eq!(peer.server.stream(link, b"message", true), Some(7));
        let mut known = Vec::new();
        peer.server.outstanding(session, 0, 100, false, |_, id, tag| known.push((id, *tag)));
        let expected = if settled || untracked { vec![] } else { vec![(1, TAG)] };
        assert_eq!(known, expected, "settled: {settled}, untracked: {untracked}");
    }
}

#[test]
fn what_the_window_does_not_take_stays_with_the_caller() {
    let mut peer = small_frames(2);
    let link = peer.receiver(0, 1);
    open_window(&mut peer, 0, 2);
    let message = [9; 2000];
    let _ = begin(&mut peer, link);
    let taken = peer.server.stream(link, &message, true).unwrap();
    assert!(taken > 800 && taken < 1000, "{taken}");
    assert!(!peer.server.can_stream(link));
    assert_eq!(peer.server.stream(link, &message[taken..], true), Some(0));
    assert!(transfers(peer.written()).iter().all(|(_, more, _)| *more));
    assert!(matches!(open_window(&mut peer, 2, 100)[..], [Event::Window { .. }]));
    assert!(peer.server.can_stream(link));
    assert_eq!(peer.server.stream(link, &message[taken..], true), Some(2000 - taken));
    let written = transfers(peer.written());
    assert!(!written.last().unwrap().1);
    assert_eq!(written.iter().map(|(_, _, payload)| payload.len()).sum::<usize>(), 2000 - taken);
}

#[test]
fn a_session_carries_one_delivery_at_a_time_and_another_session_its_own() {
    // JavaScript cannot tell interleaved deliveries of one session apart.
    let mut peer = Peer::ready();
    let (one, two) = (peer.receiver(0, 5), peer.receiver(1, 5));
    let _ = begin(&mut peer, one);
    assert_eq!(peer.server.stream(one, b"begun", false), Some(5));
    assert_eq!(peer.deliver(two, b"other"), Sent::NoWindow);
    assert_eq!(peer.deliver(one, b"other"), Sent::NoWindow);
    assert_eq!(begin(&mut peer, two), Sent::NoWindow);
    assert_eq!(peer.server.stream(two, b"other", true), None);
    assert_eq!(peer.server.stream(one, b"", true), Some(0));
    assert_eq!(peer.deliver(two, b"other"), Sent::Delivery(2));
}

#[test]
fn a_drain_is_answered_after_the_last_piece() {
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 5);
    let _ = begin(&mut peer, link);
    let _ = peer.server.stream(link, b"begun", false);
    peer.server.drained(link);
    let _ = peer.server.stream(link, b" and ended", true);
    let written = peer.performatives();
    assert!(
        matches!(
            &written[..],
            [Performative::Transfer(_), Performative::Transfer(last), Performative::Flow(flow)]
                if !last.more && flow.drain && flow.link_credit == Some(0)
        ),
        "{written:?}"
    );
}

#[test]
fn a_link_that_goes_ends_its_stream_and_frees_the_session() {
    let mut peer = Peer::ready();
    let (one, two) = (peer.receiver(0, 5), peer.receiver(1, 5));
    let _ = begin(&mut peer, one);
    let _ = peer.server.stream(one, b"begun", false);
    peer.server.detach(one, Some(&error("amqp:internal-error")));
    assert_eq!(peer.server.stream(one, b"rest", true), None);
    assert!(!peer.server.can_stream(one));
    assert_eq!(peer.deliver(two, b"next"), Sent::Delivery(2));
}

#[test]
fn a_link_that_goes_leaves_the_stream_of_another_link_where_it_is() {
    for is_ended_by_us in [false, true] {
        let mut peer = Peer::ready();
        let (one, two) = (peer.receiver(0, 5), peer.receiver(1, 5));
        let _ = begin(&mut peer, one);
        let _ = peer.server.stream(one, b"begun, ", false);
        match is_ended_by_us {
            true => peer.server.detach(two, None),
            false => peer.detach(1),
        }
        peer.events();
        assert!(peer.server.can_stream(one), "ended by us: {is_ended_by_us}");
        assert_eq!(peer.server.stream(one, b"ended", true), Some(5));
        let written: Vec<_> = transfers(peer.written()).into_iter().map(|(_, _, payload)| payload).collect();
        assert_eq!(written.concat(), b"begun, ended");
    }
}

#[test]
fn a_drain_of_one_link_does_not_wait_for_the_stream_of_another() {
    let mut peer = Peer::ready();
    let (one, two) = (peer.receiver(0, 5), peer.receiver(1, 5));
    let _ = begin(&mut peer, one);
    let _ = peer.server.stream(one, b"begun", false);
    peer.server.output().clear();
    peer.server.drained(two);
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Flow(flow)] if flow.drain && flow.handle == Some(1)));
    let _ = peer.server.stream(one, b" and ended", true);
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Transfer(_)]), "and nobody drained that one: {written:?}");
}
