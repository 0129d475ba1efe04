//! Attach, accept, refuse and detach.

use crate::peer::{Peer, error, receiver, sender};
use message::Value;
use otobus_amqp::performative::{Attach, Detach, Performative};
use otobus_amqp::{
    AnyTarget, AttachReply, Coordinator, Event, ReceiverSettleMode, Role, SenderSettleMode, Source,
};

fn attach_reply(peer: &mut Peer) -> Attach {
    match peer.performatives().remove(0) {
        Performative::Attach(attach) => *attach,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_accepted_attach_is_an_echo_with_our_role() {
    // , 23, 26 and 41
    for snd in [None, Some(SenderSettleMode::Unsettled), Some(SenderSettleMode::Settled)] {
        for rcv in [None, Some(ReceiverSettleMode::First), Some(ReceiverSettleMode::Second)] {
            let address = Some("amqps://host:5672/q1".into());
            let source = Some(Source { address, timeout: Some(3), ..Source::default() });
            let mut peer = Peer::ready();
            let asked = Attach { source, snd_settle_mode: snd, rcv_settle_mode: rcv, ..receiver(5) };
            let link = peer.attach(asked.clone());
            let properties = Value::Map(vec![(Value::Symbol("k".into()), Value::Long(1))]);
            peer.server
                .accept(link, AttachReply { properties: properties.clone(), ..AttachReply::default() });
            let expected =
                Attach { role: Role::Sender, initial_delivery_count: Some(0), properties, ..asked };
            assert_eq!(attach_reply(&mut peer), expected);
        }
    }
}

// AMQP 1.0 part 2, 2.7.3: who sends names the delivery-count that it starts from; the other leaves it out.
#[test]
fn an_answer_repeats_the_modes_and_names_a_count_only_where_we_send() {
    for (asked, role, count) in [(receiver(1), Role::Sender, Some(0)), (sender(1), Role::Receiver, None)] {
        let snd_settle_mode = Some(SenderSettleMode::Settled);
        let rcv_settle_mode = Some(ReceiverSettleMode::Second);
        let asked = Attach { snd_settle_mode, rcv_settle_mode, ..asked };
        let expected = Attach { role, initial_delivery_count: count, ..asked.clone() };
        let mut peer = Peer::ready();
        let link = peer.attach(asked.clone());
        peer.server.accept(link, AttachReply::default());
        assert_eq!(attach_reply(&mut peer), expected);
        let mut peer = Peer::ready();
        let link = peer.attach(asked);
        peer.server.refuse(link, &error("amqp:not-found"));
        assert_eq!(attach_reply(&mut peer), Attach { source: None, target: None, ..expected });
    }
}

#[test]
fn credit_is_granted_only_on_an_attached_link_that_the_client_sends_on() {
    let mut peer = Peer::ready();
    let receiving = peer.receiver(1, 5);
    let detaching = peer.sender(2, 3, 1000);
    peer.server.detach(detaching, None);
    let undecided = peer.attach(sender(0));
    peer.server.output().clear();
    for (link, left) in [(receiving, 5), (detaching, 3), (undecided, 0)] {
        peer.server.grant(link, 10);
        assert_eq!(peer.server.credit_left(link), left);
    }
    assert_eq!(peer.performatives(), []);
}

#[test]
fn the_first_credit_follows_the_attach_in_the_same_output() {
    //
    let mut peer = Peer::ready();
    let link = peer.attach(sender(2));
    peer.server.accept(link, AttachReply { max_message_size: Some(262_144), ..AttachReply::default() });
    peer.server.grant(link, 1000);
    let written = peer.performatives();
    let [Performative::Attach(attach), Performative::Flow(flow)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!((attach.role, attach.max_message_size), (Role::Receiver, Some(262_144)));
    assert_eq!((flow.handle, flow.link_credit, flow.delivery_count), (Some(2), Some(1000), Some(0)));
    assert!(flow.next_incoming_id.is_some() && flow.incoming_window > 0, "A-11.33");
    assert_eq!((flow.next_outgoing_id, flow.outgoing_window), (1, otobus_amqp::limits::OUTGOING_WINDOW));
    assert_eq!(peer.server.credit_left(link), 1000);
}

#[test]
fn a_session_filter_is_answered_in_place() {
    //
    let mut peer = Peer::ready();
    let key = Value::Symbol("com.microsoft:session-filter".into());
    let filter = Value::Map(vec![(key.clone(), Value::Null)]);
    let source = Some(Source { address: Some("q".into()), filter, ..Source::default() });
    let link = peer.attach(Attach { source, ..receiver(0) });
    let chosen = Value::Map(vec![(key, "s1".into())]);
    peer.server.accept(link, AttachReply { filter: Some(chosen.clone()), ..AttachReply::default() });
    let source = attach_reply(&mut peer).source.unwrap();
    assert_eq!((source.address.as_deref(), source.filter), (Some("q"), chosen));
}

#[test]
fn a_coordinator_is_echoed_as_one() {
    //
    let mut peer = Peer::ready();
    let target = Some(AnyTarget::Coordinator(Coordinator::default()));
    let link = peer.attach(Attach { target: target.clone(), ..sender(0) });
    peer.server.accept(link, AttachReply::default());
    assert_eq!(attach_reply(&mut peer).target, target);
}

#[test]
fn a_refusal_is_an_attach_without_ends_and_a_detach_in_the_same_output() {
    //
    let mut peer = Peer::ready();
    let link = peer.attach(receiver(1));
    peer.server.refuse(link, &error("amqp:not-found"));
    let written = peer.performatives();
    let [Performative::Attach(attach), Performative::Detach(detach)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!((&attach.source, &attach.target, attach.role), (&None, &None, Role::Sender));
    assert_eq!(attach.initial_delivery_count, Some(0));
    assert_eq!((detach.handle, detach.closed), (1, true));
    assert_eq!(detach.error, Some(error("amqp:not-found")));

    peer.credit(1, 10);
    peer.detach(1);
    assert_eq!(peer.events(), [], "what crosses the refusal is taken in silence");
    assert_eq!(peer.performatives(), []);
    peer.attach(receiver(1));
}

#[test]
fn transfers_to_a_refused_link_are_dropped() {
    let mut peer = Peer::ready();
    let link = peer.attach(sender(1));
    peer.server.refuse(link, &error("amqp:unauthorized-access"));
    peer.server.output().clear();
    let transfer = otobus_amqp::performative::Transfer {
        handle: 1,
        delivery_id: Some(0),
        ..otobus_amqp::performative::Transfer::default()
    };
    peer.transfer(transfer, b"early");
    assert_eq!(peer.events(), []);
    assert!(!peer.server.is_closed());
}

#[test]
fn an_attach_can_wait_and_keeps_the_credit_that_came_meanwhile() {
    //
    let mut peer = Peer::ready();
    let link = peer.attach(receiver(0));
    peer.credit(0, 20);
    assert!(matches!(peer.event(), Event::Flow { credit: 20, .. }));
    assert_eq!(peer.performatives(), [], "nothing is said before the decision");
    assert!(!peer.server.can_send(link));
    peer.server.accept(link, AttachReply::default());
    assert!(peer.server.can_send(link));
    assert_eq!(peer.server.credit_left(link), 20);
}

#[test]
fn a_client_that_gives_up_waiting_is_answered_by_attach_and_detach() {
    //
    let mut peer = Peer::ready();
    let link = peer.attach(receiver(0));
    peer.detach(0);
    assert_eq!(peer.event(), Event::Detach { link, closed: true, error: None });
    let written = peer.performatives();
    assert!(matches!(&written[..], [Performative::Attach(_), Performative::Detach(_)]), "{written:?}");
    peer.server.accept(link, AttachReply::default());
    peer.server.refuse(link, &error("com.microsoft:timeout"));
    assert_eq!(peer.performatives(), [], "a late answer goes nowhere");
}

#[test]
fn a_detach_is_answered_once_and_frees_name_and_handle() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(0, 5);
    peer.give(0, Performative::Detach(Detach { handle: 0, closed: false, error: None }));
    assert_eq!(peer.event(), Event::Detach { link, closed: false, error: None });
    let answer = Performative::Detach(Detach { handle: 0, closed: true, error: None });
    assert_eq!(peer.performatives(), [answer]);
    let again = peer.attach(receiver(0));
    assert_ne!(link, again);
}

#[test]
fn the_same_name_may_be_attached_twice() {
    // Java names its links after session ids.
    let mut peer = Peer::ready();
    let first = peer.attach(receiver(0));
    let second = peer.attach(receiver(1));
    assert_ne!(first, second);
}

#[test]
fn our_detach_names_its_reason_and_the_clients_answer_is_no_news() {
    //
    let mut peer = Peer::ready();
    let link = peer.receiver(3, 5);
    peer.server.detach(link, Some(&error("com.microsoft:session-lock-lost")));
    peer.server.detach(link, None);
    let written = peer.performatives();
    let [Performative::Detach(detach)] = &written[..] else { panic!("{written:?}") };
    assert_eq!((detach.handle, detach.closed), (3, true));
    assert_eq!(detach.error, Some(error("com.microsoft:session-lock-lost")));
    assert!(!peer.server.can_send(link));
    peer.detach(3);
    assert_eq!((peer.events(), peer.performatives()), (vec![], vec![]));
}
