//! Topics, schedules and duplicates within a transaction.

use super::*;

#[test]
fn duplicates_are_looked_for_when_they_are_committed() {
    // S-160, S-211
    let mut bench = Bench::in_world(World::new(), "nowhere");
    let detects = QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() };
    bench.world.create("q", detects);
    bench.sender = bench.world.sender("q");
    let named = |id| Incoming { id: MessageKey([id, 1]), ..message(1) };
    let (txn, failed) = (bench.declare(), bench.declare());
    bench.send(failed, &[named(3)]).unwrap();
    bench.discharge(failed, true).unwrap();
    bench.send(txn, &[named(1), named(1), named(2), named(3)]).unwrap();
    let sender = bench.sender;
    bench.world.send(sender, 0, &[named(2)]);
    bench.commit(txn).unwrap();
    assert_eq!((bench.active(), bench.world.queue("q").next), (3, Sequence(4)));
}

#[test]
fn scheduled_messages_have_the_numbers_that_were_told_and_wait_from_the_commit_on() {
    // S-210, S-40, S-48
    let mut bench = Bench::new();
    let later = Incoming { scheduled: bench.world.local().after(Span::minutes(1)), ..message(5) };
    let txn = bench.declare();
    assert_eq!(bench.schedule(txn, &[later, later]), Ok(vec![1, 2]));
    bench.world.send_committed("q", 1);
    assert_eq!(bench.world.queue("q").counts.scheduled, 0);
    assert_eq!(bench.world.cancel("q", &[1]), Err(Refusal::MessageNotFound(Number(1))));
    bench.commit(txn).unwrap();
    assert_eq!(bench.world.queue("q").counts.scheduled, 2);
    bench.world.commit();
    bench.world.check_whole_replay();
    bench.world.cancel("q", &[1]).unwrap();
    bench.world.pass(Span::minutes(1));
    bench.world.tick();
    bench.world.commit();
    let counts = bench.world.queue("q").counts;
    assert_eq!((counts.scheduled, counts.active), (0, 2));
    let sequences: Vec<_> = bench.world.queue("q").index.iter().map(|(sequence, _)| sequence.0).collect();
    assert_eq!(sequences, [3, 4]);
    // What is rolled back has used its numbers up, and what is late by the time of the commit gets another.
    let (gone, late) = (bench.declare(), bench.declare());
    assert_eq!(bench.schedule(gone, &[later]), Ok(vec![5]));
    bench.discharge(gone, true).unwrap();
    assert_eq!(bench.schedule(late, &[later]), Ok(vec![6]));
    bench.commit(late).unwrap();
    assert_eq!(bench.world.queue("q").index.get(Sequence(7)).map(|slot| slot.state()), Some(State::Active));
}

#[test]
fn scheduling_where_nothing_is_spoils_the_transaction() {
    // S-218
    let mut bench = Bench::new();
    let txn = bench.declare();
    bench.send(txn, &[message(1)]).unwrap();
    bench.world.delete("q");
    assert_eq!(bench.schedule(txn, &[message(1)]), Err(Refusal::EntityNotFound("q".into())));
    assert!(rolled_back(&bench.commit(txn), "could not be found"));
}

fn red() -> World {
    let rule = Rule { name: "r".into(), filter: sql("color = 'red'"), action: None };
    world_of(vec![("red", vec![rule]), ("all", vec![])])
}

fn count_of(world: &World, path: &str) -> u64 {
    let source = world.broker.resolve(NamespaceId(0), path).unwrap();
    world.broker.queue_of(source).counts.active
}

#[test]
fn the_rules_of_a_topic_look_at_what_is_committed() {
    // S-180, S-211
    let mut bench = Bench::in_world(red(), "t");
    let transaction = bench.declare();
    let (sender, colored) = (bench.sender, |color: &str| encoded(&[], &[("color", color.into())]));
    let (one, two) = (colored("red"), colored("blue"));
    let send = |messages, sessions| Command::Within {
        transaction,
        command: Box::new(Command::Send { link: sender, delivery: 0, is_settled: false, messages, sessions }),
    };
    let staged = bench.world.put_bytes(&[&one, &two], message(0), send);
    assert!(matches!(staged[..], [Effect::Notice(Notice::Staged { .. })]), "{staged:?}");
    assert!(bench.charge().held > 0);
    assert_eq!(count_of(&bench.world, "t/Subscriptions/all"), 0);
    bench.commit(transaction).unwrap();
    assert_eq!(count_of(&bench.world, "t/Subscriptions/all"), 2);
    assert_eq!(count_of(&bench.world, "t/Subscriptions/red"), 1);
    assert_eq!(bench.charge(), Charge::default());
}

#[test]
fn a_message_that_a_topic_has_scheduled_is_read_only_when_it_is_on_disk() {
    // S-49, S-210
    let mut bench = Bench::in_world(red(), "t");
    let sender = bench.sender;
    bench.world.send(sender, 0, &[message(1)]);
    bench.world.commit();
    let transaction = bench.declare();
    let body = encoded(&[], &[("color", "red".into())]);
    let facts = Incoming { scheduled: bench.world.local().after(Span(1)), ..message(0) };
    let (request, namespace) = (bench.request(), NamespaceId(0));
    let schedule = |messages, sessions| Command::Within {
        transaction,
        command: Box::new(Command::Schedule { request, namespace, path: "t".into(), messages, sessions }),
    };
    bench.world.put_bytes(&[&body], facts, schedule);
    bench.world.send(sender, 0, &[message(1)]);
    bench.world.commit();
    bench.commit(transaction).unwrap();
    bench.world.pass(Span(1));
    bench.world.tick();
    assert_eq!(count_of(&bench.world, "t/Subscriptions/red"), 0, "its record is not on disk");
    bench.world.commit();
    bench.world.pass(Span(1));
    bench.world.tick();
    bench.world.tick();
    assert_eq!(count_of(&bench.world, "t/Subscriptions/red"), 1);
}

#[test]
fn a_commit_that_forks_into_more_than_an_append_holds_is_published_in_slices() {
    // S-180, S-211
    let names: Vec<String> = (0..1_000).map(|number| format!("s{number}")).collect();
    let action = format!("SET note = '{}'", "x".repeat(900));
    let action = Sql { expression: action.into(), parameters: Vec::new() };
    let rule = || Rule { name: "r".into(), filter: Filter::True, action: Some(action.clone()) };
    let subscriptions = names.iter().map(|name| (&**name, vec![rule()])).collect();
    let mut bench = Bench::in_world(world_of(subscriptions), "t");
    let (first, second) = (bench.declare(), bench.declare());
    let body = encoded(&[], &[]);
    let link = bench.sender;
    for (transaction, count) in [(first, 6), (second, 3)] {
        for _ in 0..count {
            let staged = bench.world.put_bytes(&[&body], message(0), |messages, sessions| {
                let send = Command::Send { link, delivery: 0, is_settled: false, messages, sessions };
                Command::Within { transaction, command: Box::new(send) }
            });
            assert!(matches!(staged[..], [Effect::Notice(Notice::Staged { .. })]), "{staged:?}");
        }
    }
    bench.commit(first).unwrap();
    bench.commit(second).unwrap();
    assert!(count_of(&bench.world, "t/Subscriptions/s0") < 6, "the rest waits");
    for _ in 0..40 {
        bench.world.commit();
        bench.world.pass(Span(1));
        bench.world.tick();
    }
    assert_eq!(count_of(&bench.world, "t/Subscriptions/s0"), 9);
    assert!(bench.world.longest_slice <= crate::limits::SLICE_STEPS, "{}", bench.world.longest_slice);
}
