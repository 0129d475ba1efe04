//! Settlements within a transaction, and the locks they rest on.

use super::*;

#[test]
fn rolling_back_leaves_messages_locked_and_uncounted() {
    // S-215
    for outcome in
        [Outcome::Complete, Outcome::Abandon(None), Outcome::Defer(None), Outcome::DeadLetter(None)]
    {
        let mut bench = Bench::new();
        let token = bench.lock();
        let txn = bench.declare();
        bench.settle(txn, token, outcome).unwrap();
        bench.discharge(txn, true).unwrap();
        assert_eq!(bench.world.receive("q", PeekLock, 1), [], "it is locked");
        assert_eq!(bench.count(1), 0);
        bench.world.pass(Span::seconds(59));
        bench.world.tick();
        assert_eq!(bench.world.settle_tokens("q", &[token], Outcome::Complete), Ok(Answer::Settled));
    }
}

#[test]
fn every_settlement_happens_with_the_commit() {
    // S-210
    let cases = [
        (Outcome::Complete, (0, 0, 0), 0),
        (Outcome::Abandon(None), (1, 0, 0), 1),
        (Outcome::Defer(None), (0, 1, 0), 1),
        (Outcome::DeadLetter(None), (0, 0, 1), 0),
        (Outcome::Release, (1, 0, 0), 0),
    ];
    for (outcome, counts, count) in cases {
        let mut bench = Bench::new();
        let token = bench.lock();
        let txn = bench.declare();
        bench.settle(txn, token, outcome.clone()).unwrap();
        assert_eq!(bench.active(), 1, "not before");
        assert_eq!(bench.world.receive("q", PeekLock, 1), [], "it stays locked");
        bench.commit(txn).unwrap();
        let found = bench.world.queue("q").counts;
        assert_eq!((found.active, found.deferred, found.dead_letter), counts, "{outcome:?}");
        if counts.2 == 0 && counts != (0, 0, 0) {
            assert_eq!(bench.count(1), count, "{outcome:?}");
        }
    }
}

#[test]
fn a_settlement_on_its_link_is_answered_in_its_own_terms() {
    // S-210
    let mut bench = Bench::new();
    bench.world.send_committed("q", 1);
    let link = bench.world.receiver("q", PeekLock, 1);
    let token = bench.world.token(1);
    let transaction = bench.declare();
    let settle =
        || Command::Settle { link, delivery: 4, token, outcome: Outcome::Defer(None), wants_answer: true };
    let staged =
        Effect::Notice(Notice::Staged { link, delivery: 4, transaction, outcome: Some(Settled::Deferred) });
    assert_eq!(bench.within(transaction, settle(), &[]), [staged]);
    // Once is enough.
    let refusal = Refusal::LockLost(Sequence(1));
    let refused = Effect::Notice(Notice::NotSettled { link, delivery: 4, refusal });
    assert_eq!(bench.within(transaction, settle(), &[]), [refused]);
    bench.commit(transaction).unwrap();
    assert_eq!(bench.world.queue("q").counts.deferred, 1);
}

#[test]
fn a_settlement_that_fails_is_told_at_once_and_spoils_nothing() {
    // S-218
    let mut bench = Bench::new();
    let token = bench.lock();
    let (one, two) = (bench.declare(), bench.declare());
    let lost = Err(Refusal::LockLost(Sequence(1)));
    bench.settle(one, token, Outcome::Complete).unwrap();
    assert_eq!(bench.settle(two, token, Outcome::Complete), lost, "another transaction has it");
    assert_eq!(bench.world.settle_tokens("q", &[token], Outcome::Complete).map(drop), lost);
    bench.send(two, &[message(1)]).unwrap();
    bench.commit(two).unwrap();
    bench.discharge(one, true).unwrap();
    let three = bench.declare();
    bench.settle(three, token, Outcome::Complete).unwrap();
    bench.commit(three).unwrap();
    assert_eq!(bench.active(), 1, "what the second has sent");
}

#[test]
fn a_lock_that_ends_before_the_commit_refuses_it_and_nothing_is_done() {
    // S-218, S-211
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    bench.send(txn, &[message(1)]).unwrap();
    bench.world.pass(Span::seconds(60));
    let ended = bench.commit(txn);
    assert!(rolled_back(&ended, "lock"), "{ended:?}");
    bench.world.tick();
    assert_eq!((bench.active(), bench.count(1)), (1, 1), "the lock has ended, and that counts");
}

#[test]
fn a_settlement_in_an_entity_that_is_gone_refuses_the_commit() {
    // S-211
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.settle(txn, token, Outcome::Complete).unwrap();
    bench.world.delete("q");
    assert!(rolled_back(&bench.commit(txn), "gone"));
}

#[test]
fn sessions_are_those_of_the_commit() {
    // S-146, S-211
    let mut bench = Bench::in_world(World::new(), "nowhere");
    bench.world.create("q", QueueSettings { requires_session: true, ..QueueSettings::default() });
    bench.sender = bench.world.sender("q");
    bench.world.send_sessions("q", &["s", "s"]);
    let holder = bench.world.holder("q", "s", 2);
    let tokens = bench.world.take_tokens();
    let (txn, lost) = (bench.declare(), bench.declare());
    bench.settle(txn, tokens[0], Outcome::Complete).unwrap();
    bench.settle(lost, tokens[1], Outcome::Complete).unwrap();
    bench.commit(txn).unwrap();
    assert_eq!(bench.active(), 1);
    bench.world.detach(holder);
    assert!(rolled_back(&bench.commit(lost), "session lock"));
    // A message without a session is a failed send.
    let txn = bench.declare();
    assert!(matches!(bench.send(txn, &[message(1)]), Err(Refusal::NotAllowed(_))));
    assert!(rolled_back(&bench.commit(txn), "SessionId"));
}

fn changed() -> Outcome {
    let mut overlay = Overlay::default();
    overlay.set("tries", &message::Value::Int(1)).unwrap();
    Outcome::Abandon(Some(Box::new(overlay)))
}

/// Decides a settlement that changes properties, as far as it can be without the message.
fn begin(bench: &mut Bench, transaction: TransactionId, token: LockToken) -> (Command, Vec<Need>) {
    let (request, namespace, path) = (bench.request(), NamespaceId(0), "q".into());
    let settle =
        Command::SettleTokens { request, namespace, path, tokens: [token].into(), outcome: changed() };
    let command = Command::Within { transaction, command: Box::new(settle) };
    let context = Context { now: bench.world.now, position: bench.world.position() };
    let mut decision = Decision::default();
    let decided =
        bench.world.broker.decide(&command, Arrivals::default(), Material::NONE, context, &mut decision);
    let Decided::Needs(Needs(needs)) = decided else { panic!("{decided:?}") };
    (command, needs)
}

#[test]
fn a_commit_waits_for_what_is_still_being_read() {
    // S-211
    let mut bench = Bench::new();
    bench.world.is_checked = false;
    let token = bench.lock();
    let txn = bench.declare();
    let (command, needs) = begin(&mut bench, txn, token);
    let (link, delivery) = (bench.coordinator, 3);
    let discharge = || Command::Discharge { link, delivery, transaction: txn, is_failed: false };
    assert_eq!(bench.world.command(discharge(), &[]), [], "not yet");
    let unknown = Effect::Notice(Notice::Rejected { link, delivery, refusal: UNKNOWN });
    assert_eq!(bench.world.command(discharge(), &[]), [unknown], "it is discharged already");
    assert_eq!(bench.send(txn, &[message(1)]), Err(UNKNOWN));
    let material: Material = needs.iter().map(|need| need.found(&[])).collect();
    let context = Context { now: bench.world.now, position: bench.world.position() };
    let mut decision = Decision::default();
    let decided = bench.world.broker.decide(&command, Arrivals::default(), &material, context, &mut decision);
    assert_eq!(decided, Decided::Done);
    let told: Vec<_> = decision.effects.into_iter().map(|release| release.effect).collect();
    let answer = Effect::Answered { request: bench.request(), answer: Ok(Answer::Settled) };
    assert_eq!(told, [answer, Effect::Accepted { link, delivery }]);
    assert_eq!(bench.count(1), 1);
}

#[test]
fn a_commit_that_waits_for_what_cannot_be_read_is_refused() {
    // S-211
    let mut bench = Bench::new();
    let token = bench.lock();
    let txn = bench.declare();
    bench.send(txn, &[message(1)]).unwrap();
    let (command, _) = begin(&mut bench, txn, token);
    let (link, delivery) = (bench.coordinator, 3);
    bench.world.command(Command::Discharge { link, delivery, transaction: txn, is_failed: false }, &[]);
    let mut decision = Decision::default();
    bench.world.broker.refuse_unreadable(&command, &mut decision);
    let told: Vec<_> = decision.effects.into_iter().map(|release| release.effect).collect();
    assert!(matches!(
        &told[..],
        [
            Effect::Answered { answer: Err(Refusal::Unreadable), .. },
            Effect::Notice(Notice::Rejected { delivery: 3, refusal: Refusal::RolledBack(_), .. })
        ]
    ));
    assert_eq!((bench.active(), bench.charge()), (1, Charge::default()));
}

#[test]
fn a_commit_that_waits_for_a_settlement_whose_link_is_gone_is_refused() {
    // S-211
    let mut bench = Bench::new();
    bench.world.is_checked = false;
    bench.world.send_committed("q", 1);
    let receiver = bench.world.receiver("q", PeekLock, 1);
    let (token, transaction) = (bench.world.token(1), bench.declare());
    bench.send(transaction, &[message(1)]).unwrap();
    let settle =
        Command::Settle { link: receiver, delivery: 0, token, outcome: changed(), wants_answer: true };
    let command = Command::Within { transaction, command: Box::new(settle) };
    let context = Context { now: bench.world.now, position: bench.world.position() };
    let mut decision = Decision::default();
    let decided =
        bench.world.broker.decide(&command, Arrivals::default(), Material::NONE, context, &mut decision);
    let Decided::Needs(Needs(needs)) = decided else { panic!("{decided:?}") };
    bench.world.detach(receiver);
    let (link, delivery) = (bench.coordinator, 3);
    let discharge = Command::Discharge { link, delivery, transaction, is_failed: false };
    assert_eq!(bench.world.command(discharge, &[]), []);
    let material: Material = needs.iter().map(|need| need.found(&[])).collect();
    let decided = bench.world.broker.decide(&command, Arrivals::default(), &material, context, &mut decision);
    assert_eq!(decided, Decided::Done);
    let told: Vec<_> = decision.effects.into_iter().map(|release| release.effect).collect();
    assert!(matches!(
        &told[..],
        [Effect::Notice(Notice::Rejected { delivery: 3, refusal: Refusal::RolledBack(_), .. })]
    ));
    assert_eq!(bench.active(), 1);
}

#[test]
fn a_settlement_that_fails_and_wants_no_answer_refuses_the_commit() {
    // S-218
    let mut bench = Bench::new();
    bench.lock();
    let link = bench.world.receiver("q", PeekLock, 1);
    let transaction = bench.declare();
    assert_eq!(bench.send(transaction, &[message(1)]), Ok(()));
    let (delivery, token) = (3, LockToken(9));
    let settle =
        || Command::Settle { link, delivery, token, outcome: Outcome::Complete, wants_answer: false };
    assert_eq!(bench.within(transaction, settle(), &[]), []);
    let ended = bench.commit(transaction);
    assert!(rolled_back(&ended, "The lock supplied is invalid."), "{ended:?}");
    assert_eq!(bench.active(), 1, "nothing of it was done");
    // Of a transaction that is over it says nothing.
    assert_eq!(bench.within(transaction, settle(), &[]), []);
    let other = bench.declare();
    assert_eq!(bench.commit(other), Ok(()));
}

#[test]
fn large_changes_are_stored_ahead_of_the_commit_and_are_garbage_without_it() {
    // S-210, S-213
    for is_failed in [false, true] {
        let mut bench = Bench::new();
        let token = bench.lock();
        let txn = bench.declare();
        let mut words = Overlay::default();
        words.set_dead_letter(Some("failed"), Some(&"why ".repeat(1_000))).unwrap();
        bench.settle(txn, token, Outcome::DeadLetter(Some(Box::new(words.clone())))).unwrap();
        let staged = bench.world.broker.staged();
        assert_eq!(staged.stored_bytes, words.encoded_bytes() as u64);
        assert!(staged.held_bytes < 1_000, "{staged:?}");
        let alive = |bench: &Bench| stored_bodies(&bench.world.broker.snapshot(bench.world.now)).len();
        assert_eq!(alive(&bench), 2, "the message, and what waits for the commit");
        bench.discharge(txn, is_failed).unwrap();
        assert_eq!(alive(&bench), if is_failed { 1 } else { 2 });
        bench.world.commit();
        let dead = bench.world.receive("q/$DeadLetterQueue", PeekLock, 1);
        let shown: Vec<_> = dead.iter().map(|delivery| bench.world.changes(delivery)).collect();
        assert_eq!(shown, if is_failed { vec![] } else { vec![words] });
    }
}
