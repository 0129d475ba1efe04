//! What happens while an append is with the disk: connections decide, and what they decided is written next.

use super::*;

#[test]
fn whoever_has_work_while_the_disk_is_busy_decides_it_and_it_is_written_next() {
    let mut bench = Bench::with_queue();
    let second = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    assert_eq!(told(&second), ["attached"]);
    let first = bench.leave_in_flight();
    bench.send(link(1), 0, 10);
    assert_eq!(bench.look(|partition| partition.drafting.draft.record_count), 1, "it is decided");
    assert_eq!(bench.finish_sync(), Pause::InFlight, "the next one is with the disk");
    assert_eq!((told(&first), told(&second)), (vec!["accepted 0 to 0".to_owned()], vec![]));
    bench.finish_sync();
    assert_eq!(told(&second), ["accepted 0 to 0"]);
    bench.assert_accounts_are_zero();
}

#[test]
fn nothing_overtakes_what_waits_for_the_append_in_flight_or_for_the_next() {
    let mut bench = Bench::with_queue();
    let sender = bench.leave_in_flight();
    bench.accept(Work::Batch(sending_too_much(link(90))));
    bench.turn();
    assert_eq!(told(&sender), Vec::<String>::new(), "a refusal, but of what came later");
    bench.send(link(90), 1, 10);
    bench.finish_sync();
    assert_eq!(told(&sender), ["accepted 0 to 0"], "the refusal is part of what was decided since");
    bench.accept(Work::Batch(sending_too_much(link(90))));
    bench.turn();
    bench.finish_sync();
    assert_eq!(told(&sender), ["rejected", "accepted 1 to 1", "rejected"]);
}

/// The free effect is flushed where it was decided: whatever thread writes afterwards finds it gone.
#[test]
fn a_free_effect_leaves_before_a_later_one_that_waits_for_the_disk() {
    let mut bench = Bench::with_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.send(link(1), 0, 10);
    let both = bench.connect(2);
    let sender = LinkId { link: 2, ..link(2) };
    bench.give(vec![attach_receiver(link(2)), attach_sender(sender)]);
    assert_eq!(told(&both), ["attached", "attached"]);
    bench.leave_in_flight();
    // On a connection's thread: a delivery, which rests on what is durable, and a send, which does not.
    let mut batch = sending(sender, 7, 10);
    batch.commands.insert(0, credit(link(2), 1));
    bench.accept(Work::Batch(batch));
    bench.turn();
    assert_eq!(told(&both), ["message 1"]);
    bench.finish_sync();
    bench.finish_sync();
    assert_eq!(told(&both), ["accepted 7 to 7"]);
    // The same with nothing in flight, and the end of the append at once.
    bench.is_held = false;
    let mut batch = sending(sender, 8, 10);
    batch.commands.insert(0, credit(link(2), 2));
    bench.accept(Work::Batch(batch));
    bench.partition.decide_here();
    assert_eq!(told(&both), ["message 2"], "it has left, and nothing is written yet");
    bench.turn();
    assert_eq!(told(&both), ["accepted 8 to 8"]);
}

#[test]
fn a_connections_thread_decides_for_a_few_others_and_calls_for_the_rest() {
    let mut bench = Bench::with_queue();
    bench.leave_in_flight();
    let most = crate::commit::limits::MOST_FOR_OTHERS as u32;
    for delivery in 1..=most + 1 {
        bench.accept(Work::Batch(sending(link(90), delivery, 10)));
    }
    bench.turn();
    assert_eq!(bench.look(|partition| partition.backlog.len()), 1);
    let now = bench.look(|partition| partition.clock.moment());
    assert!(!bench.inbox.try_sleep(None, now), "the partition's thread was called");
}

#[test]
fn a_settlement_that_nobody_wants_confirmed_rides_along_with_the_next_append() {
    let mut bench = Bench::with_queue();
    let sender = bench.connect(1);
    let receiver = bench.connect(2);
    bench.give(vec![attach_sender(link(1)), attach_receiver(link(2)), credit(link(2), 9)]);
    bench.send(link(1), 0, 10);
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
    let before = bench.counters.appends.load(Ordering::Relaxed);
    let appends = |bench: &Bench| bench.counters.appends.load(Ordering::Relaxed) - before;
    bench.accept(Work::Batch(Batch { commands: vec![complete(false)], ..Batch::default() }));
    bench.partition.decide_here();
    assert!(matches!(bench.partition.turn(None), crate::commit::AfterTurn::Sleep { .. }));
    assert_eq!((appends(&bench), bench.look(|partition| partition.drafting.is_empty())), (0, false));
    bench.is_held = true;
    assert_eq!(bench.send(link(1), 1, 10), Pause::InFlight, "somebody waits for this one");
    bench.is_held = false;
    bench.finish_sync();
    assert_eq!((appends(&bench), told(&sender)), (1, vec!["accepted 1 to 1".to_owned()]));
    // Alone it is written a little later.
    let token = taken(&receiver)
        .iter()
        .find_map(|each| match each {
            Outgoing::Deliver(sent) => Some(sent.delivery.token),
            _ => None,
        })
        .unwrap();
    let outcome = Outcome::Complete;
    bench.give(vec![Command::Settle { link: link(2), delivery: 1, token, outcome, wants_answer: false }]);
    assert_eq!(appends(&bench), 2);
    bench.assert_accounts_are_zero();
}

#[test]
fn what_is_stored_is_counted_by_messages() {
    let mut bench = Bench::with_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    let mut batch = Batch::default();
    for delivery in 0..5 {
        let first = batch.messages.len();
        batch.message(Span::MAX, |out| out.push(1));
        batch.send(link(1), delivery, false, first);
    }
    bench.accept(Work::Batch(batch));
    bench.turn();
    assert_eq!(bench.counters.stored_messages.load(Ordering::Relaxed), 5, "neighbours are in one run");
}

#[test]
fn a_stop_that_comes_during_a_sync_is_looked_at_when_it_is_over() {
    let mut bench = Bench::with_queue();
    let sender = bench.leave_in_flight();
    bench.accept(Work::Stop);
    assert_eq!(bench.turn(), Pause::InFlight);
    bench.send(link(90), 1, 10);
    bench.is_held = false;
    assert_eq!(bench.finish_sync(), Pause::Ended);
    assert_eq!(told(&sender), ["accepted 0 to 0", "accepted 1 to 1"], "all of it is written first");
    assert_eq!(bench.look(|partition| partition.sealed), Sealed::Yes);
}

#[test]
fn after_a_silence_the_journal_is_sealed_once() {
    let mut bench = Bench::with_queue();
    let mut pauses = 0;
    while let Pause::Asleep(Some(until)) = bench.turn() {
        bench.clock.pass_until(until);
        pauses += 1;
        assert!(pauses < 5, "it sleeps until somebody comes");
    }
    assert_eq!(bench.look(|partition| partition.sealed), Sealed::Yes);
}

#[test]
fn what_rests_on_durable_things_waits_behind_what_is_in_flight_for_the_same_connection() {
    let mut ports = Ports::default();
    let outbox = Arc::new(Outbox::default());
    ports.open(ConnectionId(1), outbox.clone());
    let taken = |length| Outgoing::Notice(Notice::PartTaken { link: link(1), length });
    ports.list(ConnectionId(1), false).unwrap().push(taken(1));
    let waiting = ports.take_waiting(0, Arc::default(), |_| {});
    ports.list(ConnectionId(1), true).unwrap().push(taken(2));
    ports.flush_free();
    assert!(super::taken(&outbox).is_empty() && ports.has_gated());
    crate::commit::Releasable::release(waiting);
    ports.committed();
    ports.flush_gated(|_| {});
    let lengths: Vec<_> = super::taken(&outbox)
        .iter()
        .map(|each| if let Outgoing::Notice(Notice::PartTaken { length, .. }) = each { *length } else { 0 })
        .collect();
    assert_eq!(lengths, [1, 2]);
    // With nothing in flight it leaves at once.
    ports.list(ConnectionId(1), true).unwrap().push(taken(3));
    ports.flush_free();
    assert_eq!(super::taken(&outbox).len(), 1);
}

#[test]
fn a_call_by_a_moment_wakes_whoever_would_sleep_longer() {
    let inbox = Inbox::<Work>::default();
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
