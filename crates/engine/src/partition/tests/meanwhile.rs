//! What happens while an append is with the disk: connections decide, and what they decided is written next.

use super::*;

#[test]
fn whoever_has_work_while_the_disk_is_busy_decides_it_and_it_is_written_next() {
    let mut desk = Desk::with_queue();
    let second = desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    assert_eq!(told(&second), ["attached"]);
    let first = desk.leave_in_flight();
    desk.send(link(1), 0, 10);
    assert_eq!(desk.look(|partition| partition.drafting.draft.record_count), 1, "it is decided");
    assert_eq!(desk.finish_sync(), Pause::InFlight, "the next one is with the disk");
    assert_eq!((told(&first), told(&second)), (vec!["accepted 0 to 0".to_owned()], vec![]));
    desk.finish_sync();
    assert_eq!(told(&second), ["accepted 0 to 0"]);
    desk.assert_accounts_are_zero();
}

#[test]
fn nothing_overtakes_what_waits_for_the_append_in_flight_or_for_the_next() {
    let mut desk = Desk::with_queue();
    let sender = desk.leave_in_flight();
    desk.accept(Item::Batch(sending_too_much(link(90))));
    desk.turn();
    assert_eq!(told(&sender), Vec::<String>::new(), "a refusal, but of what came later");
    desk.send(link(90), 1, 10);
    desk.finish_sync();
    assert_eq!(told(&sender), ["accepted 0 to 0"], "the refusal is part of what was decided since");
    desk.accept(Item::Batch(sending_too_much(link(90))));
    desk.turn();
    desk.finish_sync();
    assert_eq!(told(&sender), ["rejected", "accepted 1 to 1", "rejected"]);
}

/// The free effect is flushed where it was decided: whatever thread writes afterwards finds it gone.
#[test]
fn a_free_effect_leaves_before_a_later_one_that_waits_for_the_disk() {
    let mut desk = Desk::with_queue();
    desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    desk.send(link(1), 0, 10);
    let both = desk.connect(2);
    let sender = LinkId { link: 2, ..link(2) };
    desk.give(vec![attach_receiver(link(2)), attach_sender(sender)]);
    assert_eq!(told(&both), ["attached", "attached"]);
    desk.leave_in_flight();
    // On a connection's thread: a delivery, which rests on what is durable, and a send, which does not.
    let mut batch = sending(sender, 7, 10);
    batch.commands.insert(0, credit(link(2), 1));
    desk.accept(Item::Batch(batch));
    desk.turn();
    assert_eq!(told(&both), ["message 1"]);
    desk.finish_sync();
    desk.finish_sync();
    assert_eq!(told(&both), ["accepted 7 to 7"]);
    // The same with nothing in flight, and the end of the append at once.
    desk.is_held = false;
    let mut batch = sending(sender, 8, 10);
    batch.commands.insert(0, credit(link(2), 2));
    desk.accept(Item::Batch(batch));
    desk.partition.decide_here();
    assert_eq!(told(&both), ["message 2"], "it has left, and nothing is written yet");
    desk.turn();
    assert_eq!(told(&both), ["accepted 8 to 8"]);
}

#[test]
fn a_connections_thread_decides_for_a_few_others_and_calls_for_the_rest() {
    let mut desk = Desk::with_queue();
    desk.leave_in_flight();
    let most = crate::commit::MOST_FOR_OTHERS as u32;
    for delivery in 1..=most + 1 {
        desk.accept(Item::Batch(sending(link(90), delivery, 10)));
    }
    desk.turn();
    assert_eq!(desk.look(|partition| partition.backlog.len()), 1);
    let now = desk.look(|partition| partition.clock.moment());
    assert!(!desk.inbox.try_sleep(None, now), "the partition's thread was called");
}

#[test]
fn a_settlement_that_nobody_wants_confirmed_rides_along_with_the_next_append() {
    let mut desk = Desk::with_queue();
    let sender = desk.connect(1);
    let receiver = desk.connect(2);
    desk.give(vec![attach_sender(link(1)), attach_receiver(link(2)), credit(link(2), 9)]);
    desk.send(link(1), 0, 10);
    let token = taken(&receiver)
        .iter()
        .find_map(|each| match each {
            Outgoing::Deliver(sent) => Some(sent.delivery.token),
            _ => None,
        })
        .unwrap();
    told(&sender);
    let complete = |wants_answer| {
        let outcome = Outcome::Complete;
        Command::Settle { link: link(2), delivery: 0, token, outcome, wants_answer }
    };
    let before = desk.counters.appends.load(Ordering::Relaxed);
    let appends = |desk: &Desk| desk.counters.appends.load(Ordering::Relaxed) - before;
    desk.accept(Item::Batch(Batch { commands: vec![complete(false)], ..Batch::default() }));
    desk.partition.decide_here();
    assert!(matches!(desk.partition.turn(None), crate::commit::Step::Sleep { .. }));
    assert_eq!((appends(&desk), desk.look(|partition| partition.drafting.is_empty())), (0, false));
    desk.is_held = true;
    assert_eq!(desk.send(link(1), 1, 10), Pause::InFlight, "somebody waits for this one");
    desk.is_held = false;
    desk.finish_sync();
    assert_eq!((appends(&desk), told(&sender)), (1, vec!["accepted 1 to 1".to_owned()]));
    // Alone it is written a little later.
    let token = taken(&receiver)
        .iter()
        .find_map(|each| match each {
            Outgoing::Deliver(sent) => Some(sent.delivery.token),
            _ => None,
        })
        .unwrap();
    let outcome = Outcome::Complete;
    desk.give(vec![Command::Settle { link: link(2), delivery: 1, token, outcome, wants_answer: false }]);
    assert_eq!(appends(&desk), 2);
    desk.assert_accounts_are_zero();
}

#[test]
fn what_is_stored_is_counted_by_messages() {
    let mut desk = Desk::with_queue();
    desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    let mut batch = Batch::default();
    for delivery in 0..5 {
        let first = batch.messages.len();
        batch.message(Span::MAX, |out| out.push(1));
        batch.send(link(1), delivery, false, first);
    }
    desk.accept(Item::Batch(batch));
    desk.turn();
    assert_eq!(desk.counters.stored_messages.load(Ordering::Relaxed), 5, "neighbours lie in one run");
}

#[test]
fn a_stop_that_comes_during_a_sync_is_looked_at_when_it_is_over() {
    let mut desk = Desk::with_queue();
    let sender = desk.leave_in_flight();
    desk.accept(Item::Stop);
    assert_eq!(desk.turn(), Pause::InFlight);
    desk.send(link(90), 1, 10);
    desk.is_held = false;
    assert_eq!(desk.finish_sync(), Pause::Ended);
    assert_eq!(told(&sender), ["accepted 0 to 0", "accepted 1 to 1"], "all of it is written first");
    assert_eq!(desk.look(|partition| partition.sealed), Sealed::Yes);
}

#[test]
fn after_a_silence_the_journal_is_sealed_once() {
    let mut desk = Desk::with_queue();
    let mut pauses = 0;
    while let Pause::Asleep(Some(until)) = desk.turn() {
        desk.clock.pass_until(until);
        pauses += 1;
        assert!(pauses < 5, "it sleeps until somebody comes");
    }
    assert_eq!(desk.look(|partition| partition.sealed), Sealed::Yes);
}

#[test]
fn what_rests_on_durable_things_waits_behind_what_is_in_flight_for_the_same_connection() {
    let mut ports = Ports::default();
    let outbox = Arc::new(Outbox::default());
    ports.open(ConnectionId(1), outbox.clone());
    let taken = |length| Outgoing::PartTaken { link: link(1), length };
    ports.list(ConnectionId(1), false).unwrap().push(taken(1));
    let waiting = ports.take_waiting(0, Arc::default(), |_| {});
    ports.list(ConnectionId(1), true).unwrap().push(taken(2));
    ports.flush_free();
    assert!(super::taken(&outbox).is_empty() && ports.has_gated());
    crate::commit::Release::release(waiting);
    ports.committed();
    ports.flush_gated(|_| {});
    let lengths: Vec<_> = super::taken(&outbox)
        .iter()
        .map(|each| if let Outgoing::PartTaken { length, .. } = each { *length } else { 0 })
        .collect();
    assert_eq!(lengths, [1, 2]);
    // With nothing in flight it leaves at once.
    ports.list(ConnectionId(1), true).unwrap().push(taken(3));
    ports.flush_free();
    assert_eq!(super::taken(&outbox).len(), 1);
}

#[test]
fn a_call_by_a_moment_wakes_whoever_would_sleep_longer() {
    let inbox = Inbox::<Item>::default();
    let now = Moment(0);
    for until in [None, Some(Moment(9))] {
        assert!(inbox.try_sleep(until, now));
        inbox.call_by(Moment(5));
        assert!(inbox.is_awake(now), "{until:?}");
    }
    inbox.call_by(Moment(5));
    assert!(!inbox.try_sleep(None, now), "it was awake, and looks once more");
    assert!(inbox.try_sleep(Some(Moment(3)), now));
    inbox.call_by(Moment(5));
    assert!(!inbox.is_awake(now) && inbox.is_awake(Moment(3)));
}
