//! All or nothing: what a commit does, what spoils it, and what a roll-back leaves.

use super::*;

#[test]
fn messages_are_visible_and_numbered_when_they_are_committed() {
    // S-211
    let mut bench = Bench::new();
    let receiver = bench.world.receiver("q", PeekLock, 10);
    let (one, two) = (bench.declare(), bench.declare());
    bench.send(one, &[message(10), message(20)]).unwrap();
    bench.send(two, &[message(30)]).unwrap();
    let sender = bench.sender;
    bench.world.send(sender, 0, &[message(40)]);
    assert_eq!(bench.world.queue("q").next, Sequence(2), "the one beside them has the first number");
    bench.commit(two).unwrap();
    bench.commit(one).unwrap();
    let lengths: Vec<_> = bench.world.queue("q").index.iter().map(|(_, slot)| slot.length).collect();
    assert_eq!(lengths, [40, 30, 10, 20]);
    bench.world.take_effects();
    let given = bench.world.commit();
    assert_eq!(deliveries(&given), [(receiver, 1), (receiver, 2), (receiver, 3), (receiver, 4)]);
}

#[test]
fn a_commit_is_decided_whole_and_answered_when_it_is_durable() {
    // S-211, S-10
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.send(txn, &[message(10)]).unwrap();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    let before = bench.world.records.len();
    bench.commit(txn).unwrap();
    assert!(!bench.world.last_release_is_free, "it waits for its records");
    let steps: Vec<_> = bench.world.records[before..].iter().map(Record::weight).collect();
    assert_eq!(steps.len(), 2, "one decision has them all");
}

#[test]
fn what_is_rolled_back_leaves_nothing_behind() {
    // S-211, S-215
    let mut bench = Bench::new();
    let token = bench.lock();
    let alive = stored_bodies(&bench.world.broker.snapshot(bench.world.now));
    let txn = bench.declare();
    bench.send(txn, &[message(10), message(20)]).unwrap();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    assert_ne!(stored_bodies(&bench.world.broker.snapshot(bench.world.now)), alive, "kept for the commit");
    bench.discharge(txn, true).unwrap();
    assert_eq!((bench.active(), bench.world.queue("q").next), (1, Sequence(2)));
    assert_eq!(stored_bodies(&bench.world.broker.snapshot(bench.world.now)), alive);
    assert_eq!(bench.charge(), Charge::default());
    assert_eq!(bench.commit(txn), Err(UNKNOWN));
}

#[test]
fn renewing_counts_at_once_and_keeps_what_was_settled() {
    // S-210, S-83
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    bench.world.pass(Span::seconds(40));
    let (request, namespace, path) = (bench.request(), NamespaceId(0), "q".into());
    let renew = Command::RenewLocks { request, namespace, path, tokens: [token].into() };
    let until = bench.world.local().after(Span::minutes(1));
    assert_eq!(bench.ask(txn, renew.clone(), &[]), Ok(Answer::Renewed(vec![until])));
    assert_eq!(bench.ask(TransactionId(77), renew, &[]), Err(UNKNOWN));
    bench.world.pass(Span::seconds(40));
    bench.world.tick();
    bench.commit(txn).unwrap();
    assert_eq!(bench.active(), 0);
}

#[test]
fn a_send_that_fails_spoils_the_commit() {
    // S-218, A-8.4
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.send(txn, &[message(1)]).unwrap();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    let refusal = Refusal::MessageTooLarge { size: 1_048_577, limit: 1_048_576 };
    assert_eq!(bench.send(txn, &[message(1_048_577)]), Err(refusal));
    assert_eq!(bench.charge(), Charge::default(), "nothing of it is kept any longer");
    assert!(rolled_back(&bench.send(txn, &[message(1)]), "1048577"));
    assert!(rolled_back(&bench.settle(txn, token, Outcome::Complete), "1048577"));
    assert!(rolled_back(&bench.commit(txn), "1048577"));
    assert_eq!(bench.active(), 1);
    assert_eq!(bench.world.settle_tokens("q", &[token], Outcome::Complete), Ok(Answer::Settled));
}

#[test]
fn a_settled_send_that_fails_spoils_it_too_and_so_does_what_a_door_refuses() {
    // S-218, S-14
    for is_door in [false, true] {
        let mut bench = Bench::new();
        let txn = bench.declare();
        bench.send(txn, &[message(1)]).unwrap();
        if is_door {
            let link = bench.sender;
            bench.world.command(Command::Spoil { link, transaction: txn }, &[]);
        } else {
            let (link, sessions) = (bench.sender, SessionIds::default());
            let send = Command::Send { link, delivery: 7, is_settled: true, messages: 0..1, sessions };
            assert_eq!(bench.within(txn, send, &[message(1_048_577)]), []);
        }
        assert!(rolled_back(&bench.commit(txn), ""));
        assert_eq!(bench.active(), 0);
    }
}

#[test]
fn what_has_become_impossible_since_refuses_the_commit() {
    // S-211, S-218
    let full = QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() };
    let mut bench = Bench::in_world(World::new(), "nowhere");
    bench.world.create("q", full.clone());
    bench.sender = bench.world.sender("q");
    let txns = [bench.declare(), bench.declare(), bench.declare()];
    for txn in txns {
        bench.send(txn, &[message(1)]).unwrap();
    }
    let sender = bench.sender;
    bench.world.send(sender, 0, &[message(1_048_576)]);
    assert!(rolled_back(&bench.commit(txns[0]), "maximum entity size"));
    bench.world.update("q", QueueSettings { status: Status::SendDisabled, ..full }).unwrap();
    assert!(rolled_back(&bench.commit(txns[1]), "disabled"));
    bench.world.delete("q");
    assert!(rolled_back(&bench.commit(txns[2]), "gone"));
}

#[test]
fn several_entities_take_part_and_a_failure_at_one_undoes_all() {
    // S-212, A-8.8
    for is_disabled in [false, true] {
        let mut bench = Bench::new();
        bench.world.create("other", QueueSettings::default());
        let token = bench.lock();
        let txn = bench.declare();
        bench.settle(txn, token, Outcome::Complete).unwrap();
        bench.send(txn, &[message(1)]).unwrap();
        bench.sender = bench.world.sender("other");
        bench.send(txn, &[message(2)]).unwrap();
        if is_disabled {
            let settings = QueueSettings { status: Status::Disabled, ..QueueSettings::default() };
            bench.world.update("other", settings).unwrap();
        }
        assert_eq!(bench.commit(txn).is_ok(), !is_disabled);
        let other = bench.world.queue("other").counts.active;
        assert_eq!((bench.active(), other), if is_disabled { (1, 0) } else { (1, 1) });
        assert_eq!(bench.world.queue("q").index.get(Sequence(1)).is_some(), is_disabled);
    }
}

#[test]
fn a_message_goes_by_way_of_another_entity_with_the_commit() {
    // S-212, S-114
    for status in [Status::Active, Status::SendDisabled] {
        let mut bench = Bench::new();
        bench.world.create("d", QueueSettings::default());
        let (link, namespace) = (bench.world.link(), NamespaceId(0));
        let (path, destination) = ("q".into(), "d".into());
        bench.world.command(Command::AttachVia { link, namespace, path, destination }, &[]);
        bench.sender = link;
        let txn = bench.declare();
        bench.world.part(link, 500);
        bench.send(txn, &[message(10)]).unwrap();
        bench.world.update("d", QueueSettings { status, ..QueueSettings::default() }).unwrap();
        assert_eq!(bench.world.queue("d").counts.total(), 0);
        bench.commit(txn).unwrap();
        let transfer_dead = bench.world.queue("q").counts.transfer_dead_letter;
        let is_open = status == Status::Active;
        assert_eq!(
            (bench.world.queue("d").counts.active, transfer_dead),
            if is_open { (1, 0) } else { (0, 1) }
        );
        let bytes = if is_open { bench.world.queue("d").bytes } else { bench.world.queue("q").bytes };
        assert_eq!(bytes, 510);
    }
}

#[test]
fn losing_the_coordinator_rolls_back_what_it_has_not_discharged() {
    // S-213, A-8.6
    let mut bench = Bench::new();
    let other = bench.world.link();
    attach(&mut bench.world, other);
    let token = bench.lock();
    let (kept, lost) = {
        let first = bench.declare();
        let coordinator = std::mem::replace(&mut bench.coordinator, other);
        let second = bench.declare();
        bench.coordinator = coordinator;
        (second, first)
    };
    bench.send(lost, &[message(1)]).unwrap();
    bench.settle(lost, token, Outcome::Complete).unwrap();
    bench.send(kept, &[message(1)]).unwrap();
    bench.world.detach(bench.coordinator);
    bench.coordinator = other;
    assert_eq!(bench.commit(lost), Err(UNKNOWN));
    assert_eq!((bench.active(), bench.count(1)), (1, 0));
    bench.settle(kept, token, Outcome::Complete).unwrap();
    bench.commit(kept).unwrap();
    assert_eq!(bench.active(), 1);
    assert_eq!(bench.charge(), Charge::default());
}

#[test]
fn a_start_knows_nothing_of_what_was_not_committed() {
    // S-211
    let mut bench = Bench::new();
    let token = bench.lock();
    let (done, open) = (bench.declare(), bench.declare());
    bench.send(done, &[message(10)]).unwrap();
    bench.send(open, &[message(20)]).unwrap();
    bench.settle(open, token, Outcome::Complete).unwrap();
    bench.commit(done).unwrap();
    bench.world.commit();
    bench.world.restart();
    let lengths: Vec<_> = bench.world.receive("q", ReceiveAndDelete, 9).iter().map(|m| m.length).collect();
    assert_eq!(lengths, [10, 10]);
}
