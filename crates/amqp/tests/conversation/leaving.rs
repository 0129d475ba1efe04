//! The client detaches a link without closing it while it has unsettled deliveries of it.

use crate::peer::{Peer, error, receiver};
use otobus_amqp::limits::{LINKS, LINKS_PER_SESSION};
use otobus_amqp::performative::{Attach, Detach, Disposition, End, Flow, Performative};
use otobus_amqp::{AttachReply, Event, LinkKey, Role, Sent, State};

/// A client that has two unsettled deliveries of the link on handle 0.
fn holder() -> (Peer, LinkKey) {
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 5);
    for id in 1..=2 {
        assert_eq!(peer.deliver(link, b"m"), Sent::Delivery(id));
    }
    peer.server.output().clear();
    (peer, link)
}

fn detach(handle: u32) -> Performative<'static> {
    Performative::Detach(Detach { handle, closed: false, error: None })
}

fn answer(handle: u32) -> Performative<'static> {
    Performative::Detach(Detach { handle, closed: true, error: None })
}

fn accept(first: u32, last: u32) -> Disposition {
    Disposition { state: Some(State::Accepted), ..Disposition::new(Role::Receiver, first, last) }
}

/// Accepts what the client accepts.
fn settle(peer: &mut Peer, events: &[Event<'_>]) {
    for event in events {
        let Event::Disposition { session, first, last, settled, .. } = event else { continue };
        let mut found = Vec::new();
        peer.server.outstanding(*session, *first, *last, *settled, |link, id, _| found.push((link, id)));
        for (link, id) in found.into_iter().filter(|_| !settled) {
            peer.server.settle_outgoing(link, id, id, &State::Accepted);
        }
    }
}

#[test]
fn what_is_settled_behind_a_detach_that_does_not_close_is_answered_before_the_detach() {
    // AMQP 1.0 part 2, 2.7.6
    for (in_one_read, settled) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut peer, link) = holder();
        let mut events = Vec::new();
        peer.give(0, detach(0));
        if !in_one_read {
            events.extend(peer.events());
            assert_eq!(peer.performatives(), [], "its answer waits");
        }
        peer.disposition(Disposition { settled, ..accept(1, 2) });
        events.extend(peer.events());
        assert_eq!(events[0], Event::Leaving { link });
        assert!(!peer.server.has_settled(link));
        settle(&mut peer, &events);
        assert!(peer.server.has_settled(link));
        peer.server.end_leaving(link);
        let written = peer.performatives();
        let (last, dispositions) = written.split_last().unwrap();
        assert_eq!((last, dispositions.len()), (&answer(0), if settled { 0 } else { 2 }));
        peer.server.end_leaving(link);
        assert_eq!(peer.performatives(), [], "once");
    }
}

#[test]
fn a_link_that_leaves_with_nothing_unsettled_with_an_error_or_for_good_is_gone_at_once() {
    //
    let gone = |peer: &mut Peer, link, detach: Detach| {
        peer.give(0, Performative::Detach(detach.clone()));
        assert_eq!(peer.event(), Event::Detach { link, closed: detach.closed, error: detach.error });
        assert_eq!(peer.performatives(), [answer(0)]);
    };
    let (mut peer, link) = holder();
    gone(&mut peer, link, Detach { handle: 0, closed: true, error: None });
    let (mut peer, link) = holder();
    gone(&mut peer, link, Detach { handle: 0, closed: false, error: Some(error("amqp:internal-error")) });
    let (mut peer, link) = holder();
    peer.server.settle_outgoing(link, 1, 2, &State::Accepted);
    peer.server.output().clear();
    gone(&mut peer, link, Detach { handle: 0, closed: false, error: None });
    let (mut peer, link) = holder();
    peer.give(0, detach(0));
    assert_eq!(peer.event(), Event::Leaving { link });
    gone(&mut peer, link, Detach { handle: 0, closed: true, error: None });
}

#[test]
fn nothing_is_sent_on_a_link_that_leaves_whatever_credit_comes() {
    //
    let (mut peer, link) = holder();
    let other = peer.receiver(1, 5);
    peer.give(0, detach(0));
    assert_eq!(peer.event(), Event::Leaving { link });
    peer.flow(Flow { handle: Some(0), link_credit: Some(9), echo: true, ..Flow::default() });
    assert_eq!(peer.events(), []);
    let [Performative::Flow(flow)] = &peer.performatives()[..] else { panic!("one echo") };
    assert_eq!(flow.handle, None, "of the session alone");
    assert!(!peer.server.can_send(link) && peer.server.credit_left(link) == 0);
    assert_eq!(peer.deliver(link, b"m"), Sent::NotAttached);
    peer.server.drained(link);
    assert_eq!(peer.performatives(), []);
    assert_eq!(peer.deliver(other, b"m"), Sent::Delivery(3));
}

#[test]
fn an_attach_takes_the_handle_of_a_link_that_leaves() {
    //
    let (mut peer, old) = holder();
    peer.give(0, detach(0));
    peer.give(0, Performative::Attach(Box::new(receiver(0))));
    let events = peer.events();
    let [Event::Leaving { link }, Event::Attach { link: new, replaced, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*link, *replaced), (old, Some(old)));
    assert_eq!(peer.performatives(), [answer(0)], "before the answer to the attach");
    peer.server.accept(*new, AttachReply::default());
    peer.server.end_leaving(old);
    assert!(matches!(peer.performatives()[..], [Performative::Attach(_)]));
    peer.disposition(accept(1, 2));
    let [Event::Disposition { session, .. }] = peer.events()[..] else { panic!("no disposition") };
    peer.server.outstanding(session, 1, 2, false, |_, id, _| panic!("{id} is of a link that is gone"));
}

#[test]
fn links_that_leave_take_no_place_of_others() {
    // P6
    let (mut peer, old) = holder();
    peer.give(0, detach(0));
    assert_eq!(peer.event(), Event::Leaving { link: old });
    let all = (0..).flat_map(|channel| (0..LINKS_PER_SESSION).map(move |handle| (channel, handle)));
    for (channel, handle) in all.skip(1).take(LINKS) {
        if handle == 0 {
            peer.begin(channel, 5_000);
        }
        peer.give(channel, Performative::Attach(Box::new(Attach { handle, ..receiver(handle) })));
    }
    let events = peer.events();
    assert_eq!(events.len(), LINKS);
    let (last, others) = events.split_last().unwrap();
    assert!(others.iter().all(|event| matches!(event, Event::Attach { replaced: None, .. })));
    assert!(matches!(last, Event::Attach { replaced, .. } if *replaced == Some(old)), "{last:?}");
}

#[test]
fn a_link_that_leaves_ends_with_its_session_and_leaves_nothing() {
    // P6
    let mut peer = Peer::ready();
    *peer.server.output() = Vec::new();
    let before = peer.server.held_bytes();
    peer.begin(1, 5_000);
    let attached = |peer: &mut Peer| {
        peer.give(1, Performative::Attach(Box::new(receiver(0))));
        let Event::Attach { link, .. } = peer.event() else { panic!("no attach") };
        peer.server.accept(link, AttachReply::default());
        peer.give(
            1,
            Performative::Flow(Flow {
                handle: Some(0),
                link_credit: Some(5),
                incoming_window: 5_000,
                next_incoming_id: Some(1),
                ..Flow::default()
            }),
        );
        peer.events();
        assert!(matches!(peer.deliver(link, b"m"), Sent::Delivery(_)));
        peer.give(1, detach(0));
        assert_eq!(peer.event(), Event::Leaving { link });
        *peer.server.output() = Vec::new();
        link
    };
    let link = attached(&mut peer);
    peer.server.detach(link, Some(&error("amqp:not-found")));
    let [Performative::Detach(detach)] = &peer.performatives()[..] else { panic!("no detach") };
    assert_eq!((detach.handle, &detach.error), (0, &Some(error("amqp:not-found"))));
    let link = attached(&mut peer);
    peer.give(1, Performative::End(End { error: None }));
    let Event::End { links, .. } = peer.event() else { panic!("no end") };
    assert_eq!(links, [link]);
    assert!(matches!(peer.performatives()[..], [Performative::End(_)]));
    *peer.server.output() = Vec::new();
    assert_eq!(peer.server.held_bytes(), before);
}
