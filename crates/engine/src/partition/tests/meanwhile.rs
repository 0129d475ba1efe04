//! What happens while an append is with the disk: others decide, the next one is prepared, and it follows.

use super::*;

#[test]
fn what_was_decided_during_a_sync_is_written_before_its_news_are_heard() {
    let mut desk = Desk::with_sync_by_hand();
    let second = desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    assert_eq!(told(&second), ["attached"]);
    let first = desk.leave_in_flight();
    desk.send(link(1), 0, 10);
    desk.finish_sync_and_follow();
    assert_eq!((told(&first), told(&second)), (vec!["accepted 0 to 0".to_owned()], vec![]));
    assert!(desk.sync.as_ref().unwrap().is_waiting(), "the next one is with the disk");
    desk.come_again();
    assert_eq!(told(&second), Vec::<String>::new(), "the news were of the first");
    desk.finish_sync_and_follow();
    desk.come_again();
    assert_eq!(told(&second), ["accepted 0 to 0"]);
    assert!(desk.partition.in_flight.is_empty() && !desk.sync.as_ref().unwrap().is_waiting());
}

#[test]
fn nothing_overtakes_what_waits_for_the_second_of_two_appends() {
    let mut desk = Desk::with_sync_by_hand();
    let sender = desk.leave_in_flight();
    desk.send(link(90), 1, 10);
    desk.finish_sync_and_follow();
    desk.come_again();
    assert_eq!(told(&sender), ["accepted 0 to 0"]);
    desk.accept(Item::Batch(sending_too_much(link(90))));
    desk.turn();
    assert_eq!(told(&sender), Vec::<String>::new(), "a refusal, but of what came later");
    desk.finish_sync();
    assert_eq!(told(&sender), ["accepted 1 to 1", "rejected"]);
}

#[test]
fn the_partition_is_woken_for_news_if_somebody_waits_for_them_or_nothing_follows() {
    for is_received in [false, true] {
        let mut desk = Desk::with_sync_by_hand();
        desk.connect(2);
        if is_received {
            desk.give(vec![attach_receiver(link(2)), credit(link(2), 9)]);
        }
        desk.leave_in_flight();
        desk.send(link(90), 1, 10);
        desk.inbox.pretend_sleep();
        desk.finish_sync_and_follow();
        assert_eq!(desk.inbox.is_asleep(), !is_received, "the next one is on its way to the disk");
        desk.come_again();
        desk.inbox.pretend_sleep();
        desk.finish_sync_and_follow();
        assert!(!desk.inbox.is_asleep(), "nothing else would wake it");
    }
}

#[test]
fn the_partition_is_woken_for_what_was_left_to_whoever_stood_at_the_door() {
    let mut desk = Desk::with_sync_by_hand();
    desk.leave_in_flight();
    desk.send(link(90), 1, 10);
    desk.inbox.pretend_sleep();
    assert!(desk.inbox.leave(Item::Batch(sending(link(90), 2, 10))));
    desk.finish_sync_and_follow();
    assert!(!desk.inbox.is_asleep(), "nobody else would decide it before the next is durable");
}

#[test]
fn whoever_has_work_while_the_disk_is_busy_decides_it_and_the_disk_goes_on_with_it() {
    let mut desk = Desk::with_sync_by_hand();
    let second = desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    desk.accept(Item::Batch(sending(link(1), 0, 10)));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now, "nothing is in flight");
    assert_eq!((desk.partition.backlog.len(), desk.partition.draft.record_count), (1, 0));
    desk.turn();
    assert_eq!(told(&second), ["attached", "accepted 0 to 0"]);
    let first = desk.leave_in_flight();
    desk.accept(Item::Batch(sending(link(1), 1, 10)));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::OnArrival);
    assert_eq!(told(&second), Vec::<String>::new());
    desk.finish_sync_and_follow();
    assert_eq!(told(&first), ["accepted 0 to 0"]);
    assert!(desk.sync.as_ref().unwrap().is_waiting(), "the next one is with the disk");
    desk.finish_sync();
    assert_eq!(told(&second), ["accepted 1 to 1"]);
}

#[test]
fn after_a_short_silence_whoever_has_work_sends_it_to_the_disk_himself() {
    for is_direct in [true, false] {
        let mut desk = if is_direct { Desk::with_direct_sync_by_hand() } else { Desk::with_sync_by_hand() };
        let sender = desk.leave_in_flight();
        desk.send(link(90), 1, 10);
        desk.finish_sync_and_follow();
        desk.finish_sync_and_follow();
        assert!(!desk.sync.as_ref().unwrap().is_waiting(), "nothing came during the last sync");
        desk.accept(Item::Batch(sending(link(90), 2, 10)));
        let expected = if is_direct { Turn::OnArrival } else { Turn::Now };
        assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), expected);
        assert_eq!(desk.sync.as_ref().unwrap().is_waiting(), is_direct, "no file is touched on his thread");
        if !is_direct {
            continue;
        }
        desk.accept(Item::Batch(sending(link(90), 3, 10)));
        assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::OnArrival);
        desk.finish_sync_and_follow();
        assert_eq!(told(&sender), ["accepted 0 to 0", "accepted 1 to 1", "accepted 2 to 2"]);
        // Twice nothing came: the partition syncs for itself again.
        desk.finish_sync_and_follow();
        desk.accept(Item::Batch(sending(link(90), 4, 10)));
        desk.partition.decide_meanwhile(NOW).unwrap();
        desk.finish_sync_and_follow();
        desk.accept(Item::Batch(sending(link(90), 5, 10)));
        assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now);
        assert!(!desk.sync.as_ref().unwrap().is_waiting());
        desk.turn();
        assert_eq!(told(&sender).last().map(String::as_str), Some("accepted 5 to 5"));
    }
}

#[test]
fn after_a_silence_only_what_can_be_written_is_decided_for_the_partition() {
    let mut desk = Desk::with_direct_sync_by_hand();
    desk.leave_in_flight();
    desk.send(link(90), 1, 10);
    desk.finish_sync_and_follow();
    desk.finish_sync_and_follow();
    desk.take_inbox();
    assert!(desk.partition.is_in_rush());
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now, "there is nothing to write");
    desk.partition.is_stuck = true;
    assert!(!desk.partition.is_in_rush(), "there is no room");
    desk.partition.is_stuck = false;
    let send = |delivery| Item::Batch(sending(link(90), delivery, 10));
    let every = std::mem::take(&mut desk.partition.upkeep.pace.snapshot_every_bytes);
    desk.accept(send(2));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now, "a snapshot begins with it");
    assert!(desk.partition.is_in_rush() && desk.partition.draft.record_count > 0);
    desk.partition.upkeep.pace.snapshot_every_bytes = every;
    // By itself, for nothing waits: then the rush is over.
    (desk.partition.is_busy, desk.partition.was_busy) = (false, true);
    desk.turn();
    assert!(!desk.sync.as_ref().unwrap().is_waiting() && !desk.partition.is_in_rush());
    desk.partition.is_busy = true;
    desk.partition.workers.sync = None;
    assert!(!desk.partition.is_in_rush(), "nobody would write");
}

#[test]
fn the_next_append_is_prepared_when_those_who_were_let_go_have_come_again() {
    let is_prepared = |desk: &Desk| !desk.partition.foresight.is_likely_last(usize::MAX);
    let mut desk = Desk::with_direct_sync_by_hand();
    let second = desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    let first = desk.leave_in_flight();
    desk.send(link(90), 1, 10);
    desk.send(link(1), 0, 10);
    assert!(is_prepared(&desk), "the partition does it too");
    desk.finish_sync_and_follow();
    // For one it was written, for two is what the disk has now.
    desk.accept(Item::Batch(sending(link(90), 2, 10)));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::OnArrival);
    assert!(is_prepared(&desk));
    desk.finish_sync_and_follow();
    desk.accept(Item::Batch(sending(link(1), 1, 10)));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::OnArrival);
    assert!(!is_prepared(&desk), "two were let go, and one has come");
    desk.accept(Item::Batch(sending(link(90), 3, 10)));
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::OnArrival);
    assert!(is_prepared(&desk));
    desk.finish_sync_and_follow();
    desk.finish_sync();
    assert_eq!(told(&second).last().map(String::as_str), Some("accepted 1 to 1"));
    assert_eq!(told(&first).last().map(String::as_str), Some("accepted 3 to 3"));
}

#[test]
fn whoever_decides_for_others_does_so_for_a_few_of_them() {
    let mut desk = Desk::with_sync_by_hand();
    desk.leave_in_flight();
    desk.partition.backlog.clear();
    for delivery in 1..=MEANWHILE_ITEMS as u32 + 1 {
        desk.partition.backlog.push_back(Item::Batch(sending(link(90), delivery, 10)));
    }
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now, "the rest is for the partition");
    assert_eq!(desk.partition.backlog.len(), 1);
}

#[test]
fn what_is_due_while_the_disk_is_busy_is_left_to_the_partition() {
    let mut desk = Desk::with_sync_by_hand();
    desk.connect(1);
    desk.give(vec![attach_sender(link(1))]);
    desk.accept(mortal(link(1)));
    desk.turn();
    desk.leave_in_flight();
    let due = Time(NOW.0 + 60_000);
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::At(due));
    assert_eq!(desk.partition.decide_meanwhile(due).unwrap(), Turn::Now);
    desk.partition.upkeep.may_trim = true;
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now, "the journal is to be trimmed");
    desk.partition.upkeep.may_trim = false;
    desk.accept(Item::Stop);
    assert_eq!(desk.partition.decide_meanwhile(NOW).unwrap(), Turn::Now);
}

#[test]
fn news_are_awaited_where_somebody_waits_for_a_message() {
    let mut desk = Desk::with_sync_by_hand();
    desk.leave_in_flight();
    let position = desk.partition.in_flight[0].position;
    assert!(!desk.partition.broker.is_awaited(position), "nobody receives");
    desk.connect(2);
    desk.give(vec![attach_receiver(link(2))]);
    assert!(!desk.partition.broker.is_awaited(position), "nobody has credit");
    desk.give(vec![credit(link(2), 1)]);
    assert!(desk.partition.broker.is_awaited(position));
    assert!(!desk.partition.broker.is_awaited(Position(position.0 - 1)), "nothing was stored before");
}

#[test]
fn the_disk_does_not_run_away_from_a_partition_that_hears_nothing() {
    let mut desk = Desk::with_sync_by_hand();
    desk.leave_in_flight();
    for delivery in 1..=UNHEARD_APPENDS as u32 {
        desk.partition.backlog.push_back(Item::Batch(sending(link(90), delivery, 10)));
        desk.turn();
        desk.finish_sync_and_follow();
    }
    assert_eq!(desk.partition.in_flight.len(), UNHEARD_APPENDS);
    assert!(!desk.partition.is_in_rush(), "nobody else may write either");
    assert!(!desk.sync.as_ref().unwrap().is_waiting());
    desk.come_again();
    assert_eq!(desk.partition.in_flight.len(), 1, "it has heard of all, and the last one is written");
    desk.finish_sync();
    assert!(desk.partition.in_flight.is_empty());
}
