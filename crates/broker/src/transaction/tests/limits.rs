//! When a transaction ends by itself, whose it is, and how much it may hold.

use super::*;

#[test]
fn a_transaction_ends_two_minutes_after_its_first_operation() {
    // S-213, A-8.7
    let mut bench = Bench::new();
    let (idle, late, in_time) = (bench.declare(), bench.declare(), bench.declare());
    bench.world.pass(Span::minutes(5));
    let token = bench.lock();
    bench.send(late, &[message(1)]).unwrap();
    bench.settle(late, token, Outcome::Complete).unwrap();
    bench.world.pass(Span(1));
    bench.send(in_time, &[message(1)]).unwrap();
    bench.world.renew("q", &[token]).unwrap();
    bench.world.pass(Span::seconds(59));
    bench.world.renew("q", &[token]).unwrap();
    bench.world.pass(Span(60_999));
    assert!(bench.world.is_due());
    bench.world.tick();
    assert!(!bench.world.is_due());
    assert_eq!(bench.charge().stored, 1, "only the other one");
    assert!(rolled_back(&bench.send(late, &[message(1)]), "two minutes"));
    assert!(rolled_back(&bench.commit(late), "two minutes"));
    bench.commit(in_time).unwrap();
    bench.commit(idle).unwrap();
    assert_eq!(bench.active(), 2, "what was locked is still there");
    assert_eq!(bench.commit(late), Err(UNKNOWN));
}

#[test]
fn whoever_comes_too_late_is_told_so_even_if_nobody_has_looked_meanwhile() {
    // S-213
    for is_used in [false, true] {
        let mut bench = Bench::new();
        let txn = bench.declare();
        bench.send(txn, &[message(1)]).unwrap();
        bench.world.pass(Span::minutes(2));
        if is_used {
            assert!(rolled_back(&bench.send(txn, &[message(1)]), "two minutes"));
        }
        assert!(rolled_back(&bench.commit(txn), "two minutes"));
        assert_eq!(bench.active(), 0);
    }
}

#[test]
fn the_two_minutes_are_those_of_the_namespace() {
    // S-213
    let mut bench = Bench::new();
    let txn = bench.declare();
    bench.send(txn, &[message(1)]).unwrap();
    bench.world.advance(0, Span::minutes(2), Span(0)).unwrap();
    assert!(bench.world.is_due());
    bench.world.tick();
    assert_eq!(bench.charge(), Charge::default());
    assert!(rolled_back(&bench.commit(txn), "two minutes"));
}

#[test]
fn a_hundred_messages_are_taken_and_one_more_is_not() {
    // S-214
    let mut bench = Bench::new();
    let txn = bench.declare();
    bench.send(txn, &[message(1); TRANSACTION_MESSAGES - 1]).unwrap();
    bench.schedule(txn, &[message(1)]).unwrap();
    let full = Refusal::TransactionFull(100);
    assert_eq!(bench.send(txn, &[message(1)]), Err(full.clone()));
    assert_eq!(full.to_string(), "Cannot send more than 100 messages in a single transaction.");
    assert!(rolled_back(&bench.commit(txn), "more than 100 messages"));
    assert_eq!(bench.active(), 0);
    let txn = bench.declare();
    bench.send(txn, &[message(1); TRANSACTION_MESSAGES]).unwrap();
    bench.commit(txn).unwrap();
    assert_eq!(bench.active(), 100);
}

#[test]
fn settlements_have_a_limit_too() {
    let mut bench = Bench::new();
    let count = TRANSACTION_SETTLEMENTS as u32 + 1;
    let txn = bench.declare();
    bench.world.send_committed("q", count);
    bench.world.receiver("q", PeekLock, count);
    // What one slice leaves, the next hands out.
    bench.world.tick();
    let tokens: Vec<_> = (1..=u64::from(count)).map(|number| bench.world.token(number)).collect();
    let (request, namespace) = (bench.request(), NamespaceId(0));
    let settle = |tokens: &[LockToken]| {
        let (path, tokens, outcome) = ("q".into(), tokens.into(), Outcome::Complete);
        Command::SettleTokens { request, namespace, path, tokens, outcome }
    };
    bench.ask(txn, settle(&tokens[1..]), &[]).unwrap();
    let refused = bench.ask(txn, settle(&tokens[..1]), &[]);
    assert!(matches!(refused, Err(Refusal::TooMany { limit: TRANSACTION_SETTLEMENTS, .. })), "{refused:?}");
    bench.commit(txn).unwrap();
    assert_eq!(bench.active(), 1);
}

#[test]
fn a_transaction_is_worth_nothing_to_another_connection() {
    //
    let mut bench = Bench::new();
    let txn = bench.declare();
    bench.send(txn, &[message(1)]).unwrap();
    let stranger = LinkId { connection: ConnectionId(2), link: 1 };
    attach(&mut bench.world, stranger);
    let (link, delivery, transaction) = (stranger, 0, txn);
    for is_failed in [false, true] {
        let discharge = Command::Discharge { link, delivery, transaction, is_failed };
        let refused = Effect::Notice(Notice::Rejected { link, delivery, refusal: UNKNOWN });
        assert_eq!(bench.world.command(discharge, &[]), [refused]);
    }
    bench.world.command(Command::Spoil { link, transaction }, &[]);
    let (namespace, path) = (NamespaceId(0), "q".into());
    bench.world.command(Command::AttachSender { link: LinkId { link: 2, ..link }, namespace, path }, &[]);
    let own = std::mem::replace(&mut bench.sender, LinkId { link: 2, ..link });
    assert_eq!(bench.send(txn, &[message(1)]), Err(UNKNOWN));
    bench.sender = own;
    bench.commit(txn).unwrap();
    assert_eq!(bench.active(), 1);
}

#[test]
fn a_transaction_that_never_was_is_unknown_and_takes_nothing() {
    //
    let mut bench = Bench::new();
    let token = bench.lock();
    for txn in [TransactionId(0), TransactionId(5)] {
        assert_eq!(bench.commit(txn), Err(UNKNOWN));
        assert_eq!(bench.discharge(txn, true), Err(UNKNOWN));
        assert_eq!(bench.send(txn, &[message(1)]), Err(UNKNOWN));
        assert_eq!(bench.settle(txn, token, Outcome::Complete), Err(UNKNOWN));
        assert_eq!(bench.schedule(txn, &[message(1)]), Err(UNKNOWN));
    }
    assert_eq!(bench.world.queue("q").next, Sequence(2));
}

#[test]
fn the_basic_tier_has_no_transactions() {
    // S-217
    let mut world = World::with_tier(Tier::Basic);
    let link = world.link();
    let refusal = Refusal::NotInTier { property: "Transactions", tier: "Basic" };
    assert_eq!(attach(&mut world, link), [Effect::Notice(Notice::Detached { link, refusal })]);
    assert_eq!(world.command(Command::Declare { link, delivery: 0 }, &[]), []);
}

#[test]
fn a_connection_has_so_many_transactions_and_no_more() {
    let mut bench = Bench::new();
    let first = bench.declare();
    for _ in 1..CONNECTION_TRANSACTIONS {
        bench.declare();
    }
    let (link, delivery) = (bench.coordinator, 0);
    let refusal = Refusal::TooManyTransactions(CONNECTION_TRANSACTIONS);
    let refused = Effect::Notice(Notice::Rejected { link, delivery, refusal });
    assert_eq!(bench.world.command(Command::Declare { link, delivery }, &[]), [refused]);
    bench.discharge(first, true).unwrap();
    bench.declare();
}

#[test]
fn what_is_staged_is_charged_to_its_connection_until_it_is_discharged() {
    let settings = QueueSettings { max_message_kilobytes: Some(102_400), ..QueueSettings::default() };
    let mut bench = Bench::in_world(World::new(), "nowhere");
    bench.world.create("q", settings);
    bench.sender = bench.world.sender("q");
    let large = 64 * 1_024 * 1_024;
    let txns: Vec<_> = (0..4).map(|_| bench.declare()).collect();
    for txn in &txns {
        bench.send(*txn, &[message(large)]).unwrap();
    }
    assert_eq!(bench.charge(), Charge { stored: STAGED_BYTES, held: 4 * STAGED_MESSAGE_COST });
    let more = bench.declare();
    let refusal = Refusal::TransactionsTooLarge { size: STAGED_BYTES + 1, limit: STAGED_BYTES };
    assert_eq!(bench.send(more, &[message(1)]), Err(refusal));
    bench.commit(txns[0]).unwrap();
    bench.discharge(txns[1], true).unwrap();
    assert_eq!(bench.charge().stored, STAGED_BYTES / 2);
    let again = bench.declare();
    bench.send(again, &[message(1)]).unwrap();
    bench.world.detach(bench.coordinator);
    assert!(bench.world.broker.volatile.transactions.charges.is_empty());
}

#[test]
fn what_all_transactions_hold_has_a_total() {
    let mut bench = Bench::new();
    let held = STAGED_HELD_TOTAL - STAGED_MESSAGE_COST;
    // Those of other connections.
    bench.world.broker.volatile.transactions.held = held;
    let (first, second) = (bench.declare(), bench.declare());
    bench.send(first, &[message(1)]).unwrap();
    let (size, limit) = (STAGED_HELD_TOTAL + STAGED_MESSAGE_COST, STAGED_HELD_TOTAL);
    assert_eq!(bench.send(second, &[message(1)]), Err(Refusal::TransactionsTooLarge { size, limit }));
    bench.discharge(first, true).unwrap();
    assert_eq!(bench.world.broker.volatile.transactions.held, held);
    let third = bench.declare();
    bench.send(third, &[message(1)]).unwrap();
}

#[test]
fn on_a_partitioned_entity_all_messages_of_a_transaction_have_one_key() {
    // S-216
    let settings = |detects| QueueSettings {
        partitioning: true,
        requires_duplicate_detection: detects,
        ..QueueSettings::default()
    };
    let keyed = |partition| Incoming { partition, ..message(1) };
    let named = |id| Incoming { id: MessageKey([id, 2]), ..message(1) };
    let refused = |ended: Result<(), Refusal>| matches!(ended, Err(Refusal::NotAllowed(_)));
    let bench = |detects| {
        let mut bench = Bench::in_world(World::new(), "nowhere");
        bench.world.create("q", settings(detects));
        bench.sender = bench.world.sender("q");
        bench
    };
    let mut one = bench(false);
    let txn = one.declare();
    one.send(txn, &[keyed(7), keyed(7)]).unwrap();
    assert!(refused(one.send(txn, &[keyed(8)])));
    let txn = one.declare();
    assert!(refused(one.send(txn, &[message(1)])), "none is none");
    let txn = one.declare();
    assert!(refused(one.send(txn, &[named(1)])), "an id is a key only where duplicates are looked for");
    let mut two = bench(true);
    let txn = two.declare();
    two.send(txn, &[named(1 << 4)]).unwrap();
    assert!(refused(two.send(txn, &[named(2 << 4)])));
    let txn = two.declare();
    two.send(txn, &[Incoming { partition: 5, ..named(9) }]).unwrap();
    two.commit(txn).unwrap();
    assert_eq!(two.active(), 1);
}
