//! A partition without threads.

mod accounts;
mod bench;
mod meanwhile;

use super::*;
use crate::batch::Batch;
use crate::commit::Stop;
use crate::mailbox::{Outbox, Outgoing};
use crate::recovery::recover;
use bench::{Bench, NOW, Pause, journal};
use broker::{
    Answer, Command, ConnectionId, Durable, LinkId, NamespaceId, Notice, Outcome, QueueSettings, ReceiveMode,
    Refusal, RequestId, Span,
};
use journal::disk::{Disk, Fault, Faulty, Memory};
use journal::{Draft, Filling, Local, Options};
use message::{Overlay, Value};

fn link(connection: u32) -> LinkId {
    LinkId { connection: ConnectionId(connection), link: 1 }
}

fn attach_sender(link: LinkId) -> Command {
    Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() }
}

fn attach_receiver(link: LinkId) -> Command {
    let mode = ReceiveMode::PeekLock;
    Command::AttachReceiver { link, namespace: NamespaceId(0), path: "q".into(), mode }
}

fn credit(link: LinkId, limit: u64) -> Command {
    Command::Credit { link, limit, drain: false }
}

fn sending(link: LinkId, delivery: u32, bytes: usize) -> Batch {
    let mut batch = Batch::default();
    batch.message(Span::MAX, |out| out.resize(out.len() + bytes, delivery as u8));
    batch.send(link, delivery, false, 0);
    batch
}

/// More than any message may have; refused before anybody looks at the bytes.
fn sending_too_much(link: LinkId) -> Batch {
    let body = broker::Intake { offset: 0, length: 2_000_000 };
    let messages = vec![broker::Incoming::new(body)];
    let commands = vec![Command::Send {
        link,
        delivery: 9,
        is_settled: false,
        messages: 0..1,
        sessions: Default::default(),
    }];
    Batch { commands, messages, ..Batch::default() }
}

fn taken(outbox: &Outbox) -> Vec<Outgoing> {
    let mut out = Vec::new();
    outbox.take(&mut out);
    out
}

/// What a connection was told, in few words.
fn told(outbox: &Outbox) -> Vec<String> {
    let words = |outgoing: &Outgoing| match outgoing {
        Outgoing::Accepted { first, last, .. } => format!("accepted {first} to {last}"),
        Outgoing::Notice(Notice::Rejected { .. }) => "rejected".to_owned(),
        Outgoing::Settled { .. } => "settled".to_owned(),
        Outgoing::Notice(Notice::NotSettled { .. }) => "not settled".to_owned(),
        Outgoing::Deliver(sent) => format!("message {}", sent.delivery.sequence.0),
        Outgoing::Notice(Notice::PartTaken { .. }) => "part taken".to_owned(),
        Outgoing::Notice(Notice::Declared { .. }) => "declared".to_owned(),
        Outgoing::Notice(Notice::Staged { .. }) => "staged".to_owned(),
        Outgoing::Notice(Notice::Drained { .. }) => "drained".to_owned(),
        Outgoing::Notice(Notice::Attached { .. }) => "attached".to_owned(),
        Outgoing::Notice(Notice::Detached { .. }) => "detached".to_owned(),
        Outgoing::Answered { answer: Ok(Answer::Queue(_)), .. } => "created".to_owned(),
        Outgoing::Answered { answer, .. } => format!("{answer:?}"),
    };
    taken(outbox).iter().map(words).collect()
}

#[test]
fn a_refusal_waits_for_the_records_that_were_decided_before_it() {
    let mut bench = Bench::with_queue();
    let refused = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    assert_eq!(told(&refused), ["attached"]);
    let accepted = bench.leave_in_flight();
    bench.accept(Work::Batch(sending_too_much(link(1))));
    bench.turn();
    assert_eq!(told(&refused), Vec::<String>::new());
    bench.finish_sync();
    assert_eq!(told(&accepted), ["accepted 0 to 0"]);
    assert_eq!(told(&refused), ["rejected"]);
}

#[test]
fn a_delivery_never_overtakes_what_was_decided_before_it() {
    let mut bench = Bench::with_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.send(link(1), 0, 10);
    bench.leave_in_flight();
    let receiver = bench.connect(2);
    bench.give(vec![attach_receiver(link(2)), credit(link(2), 1)]);
    assert_eq!(told(&receiver), Vec::<String>::new());
    bench.finish_sync();
    assert_eq!(told(&receiver), ["attached", "message 1"]);
}

#[test]
fn what_rests_on_committed_facts_leaves_while_the_disk_is_busy() {
    let mut bench = Bench::with_queue();
    bench.connect(1);
    let receiver = bench.connect(2);
    bench.give(vec![attach_sender(link(1)), attach_receiver(link(2))]);
    bench.send(link(1), 0, 10);
    bench.leave_in_flight();
    bench.give(vec![credit(link(2), 5)]);
    assert_eq!(told(&receiver), ["attached", "message 1"]);
    bench.finish_sync();
    assert_eq!(told(&receiver), ["message 2"], "the one that was in flight");
}

#[test]
fn with_a_full_draft_the_rest_waits_for_the_disk() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.leave_in_flight();
    (0..10).for_each(|delivery| bench.accept(Work::Batch(sending(link(1), delivery, 512 * 1_024))));
    bench.turn();
    assert_eq!(bench.look(|partition| partition.backlog.len()), 2, "eight fill a draft");
    while bench.is_in_flight() {
        bench.finish_sync();
    }
    assert_eq!(told(&outbox).last().map(String::as_str), Some("accepted 8 to 9"));
    bench.assert_accounts_are_zero();
}

#[test]
fn more_than_one_append_holds_becomes_several() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    let many = journal::limits::BATCH_BYTES / (512 * 1_024) + 8;
    (0..many as u32).for_each(|delivery| bench.accept(Work::Batch(sending(link(1), delivery, 512 * 1_024))));
    bench.turn();
    let accepted: u32 = taken(&outbox)
        .iter()
        .map(|outgoing| match outgoing {
            Outgoing::Accepted { first, last, .. } => last - first + 1,
            _ => 0,
        })
        .sum();
    assert_eq!(accepted as usize, many);
}

#[test]
fn settlements_that_change_more_than_one_append_holds_become_several() {
    // S-18
    let mut bench = Bench::with_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    let mut changes = Overlay::default();
    for name in ["a", "b"] {
        changes.set(name, &Value::Binary(vec![7; 30_000])).unwrap();
    }
    let many = (journal::limits::BATCH_BYTES / changes.encoded_bytes() + 8) as u32;
    for delivery in 0..many {
        bench.send(link(1), delivery, 10);
    }
    let outbox = bench.connect(2);
    bench.give(vec![attach_receiver(link(2)), credit(link(2), many.into())]);
    let settle = |outgoing: &Outgoing| match outgoing {
        Outgoing::Deliver(sent) => {
            let (token, outcome) = (sent.delivery.token, Outcome::Abandon(Some(Box::new(changes.clone()))));
            Some(Command::Settle { link: link(2), delivery: 0, token, outcome, wants_answer: true })
        }
        _ => None,
    };
    let commands: Vec<_> = taken(&outbox).iter().filter_map(settle).collect();
    assert_eq!(commands.len(), many as usize);
    bench.give(commands);
    bench.turn();
    let changed = |partition: &mut Partition| {
        partition.broker.durable().queue(broker::EntityId(0)).unwrap().extras.len()
    };
    assert_eq!(bench.look(changed), many as usize);
    bench.assert_accounts_are_zero();
}

#[test]
fn changed_properties_are_checked_against_the_message_in_the_cache_or_on_disk() {
    // S-18
    let memory = Memory::new();
    let mut bench = with_one_message(&memory);
    abandon_with_changes(&mut bench);
    drop(bench);
    // A new partition has nothing in its cache.
    let mut bench = Bench::alone(Arc::new(memory));
    abandon_with_changes(&mut bench);
    let active = |partition: &mut Partition| {
        partition.broker.durable().queue(broker::EntityId(0)).unwrap().counts.active
    };
    assert_eq!(bench.look(active), 1);
}

#[test]
fn a_stop_waits_for_what_is_being_read() {
    let memory = Memory::new();
    drop(with_one_message(&memory));
    // A new partition has nothing in its cache: what is to be removed before it leaves is looked at on the disk first.
    let mut bench = Bench::alone(Arc::new(memory));
    let outbox = bench.connect(2);
    let mode = ReceiveMode::ReceiveAndDelete;
    let attach = Command::AttachReceiver { link: link(2), namespace: NamespaceId(0), path: "q".into(), mode };
    bench.accept(Work::Batch(Batch { commands: vec![attach, credit(link(2), 1)], ..Batch::default() }));
    bench.accept(Work::Stop);
    assert_eq!(bench.turn(), Pause::Ended);
    assert_eq!(told(&outbox), ["attached", "message 1"]);
    bench.assert_accounts_are_zero();
}

/// A partition on this disk whose queue has one message.
fn with_one_message(memory: &Memory) -> Bench {
    let mut bench = Bench::alone(Arc::new(memory.clone()));
    bench.create_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.send(link(1), 0, 10);
    bench
}

/// Receives message 1 and abandons it with changes.
fn abandon_with_changes(bench: &mut Bench) {
    let outbox = bench.connect(2);
    bench.give(vec![attach_receiver(link(2)), credit(link(2), 1)]);
    let token = taken(&outbox)
        .iter()
        .find_map(|outgoing| match outgoing {
            Outgoing::Deliver(sent) => Some(sent.delivery.token),
            _ => None,
        })
        .unwrap();
    let mut changes = Overlay::default();
    changes.set("attempt", &Value::Int(1)).unwrap();
    let outcome = Outcome::Abandon(Some(Box::new(changes)));
    bench.give(vec![Command::Settle { link: link(2), delivery: 0, token, outcome, wants_answer: true }]);
    assert_eq!(told(&outbox), ["settled"]);
}

#[test]
fn a_message_in_parts_is_delivered_whole() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    for part in [&b"one "[..], b"message "] {
        let mut batch = Batch::default();
        let body = batch.body(|out| out.extend_from_slice(part));
        batch.commands.push(Command::Part { link: link(1), body });
        bench.accept(Work::Batch(batch));
    }
    let mut batch = Batch::default();
    batch.message(Span::MAX, |out| out.extend_from_slice(b"in parts"));
    batch.send(link(1), 0, false, 0);
    bench.accept(Work::Batch(batch));
    let receiver = LinkId { link: 2, ..link(1) };
    bench.give(vec![attach_receiver(receiver), credit(receiver, 1)]);
    let outgoing = taken(&outbox);
    let taken =
        outgoing.iter().filter(|each| matches!(each, Outgoing::Notice(Notice::PartTaken { .. }))).count();
    assert_eq!(taken, 2, "the connection may hand over more");
    let Some(Outgoing::Deliver(sent)) = outgoing.last() else { panic!("{outgoing:?}") };
    let mut whole = Vec::new();
    sent.parts.iter().chain([&sent.place]).for_each(|place| place.read_into(&mut whole).unwrap());
    assert_eq!(whole, b"one message in parts");
    assert_eq!(sent.delivery.length as usize, whole.len());
}

#[test]
fn a_message_whose_copy_is_not_written_yet_is_found_where_it_was() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    for delivery in 0..2 {
        bench.send(link(1), delivery, 10);
    }
    bench.leave_in_flight();
    // Both are copied twice while the disk is busy; the copies are in the draft.
    for _ in 0..2 {
        let copies = (1..=2).map(|body| (BodyId(body), vec![body as u8 - 1; 10])).collect();
        bench.accept(Work::Copied { copies, unread: Vec::new(), failure: None });
        bench.turn();
    }
    let receiver = LinkId { connection: ConnectionId(1), link: 2 };
    taken(&outbox);
    bench.give(vec![attach_receiver(receiver), credit(receiver, 2)]);
    bench.finish_sync();
    while bench.is_in_flight() {
        bench.finish_sync();
    }
    let bodies: Vec<_> = taken(&outbox)
        .into_iter()
        .filter_map(|each| match each {
            Outgoing::Deliver(sent) => Some(sent.place.read().unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies, [vec![0; 10], vec![1; 10]]);
}

#[test]
fn a_lost_connection_takes_its_links_along() {
    let mut bench = Bench::with_queue();
    bench.connect(1);
    bench.connect(2);
    let other = bench.connect(3);
    bench.give(vec![attach_sender(link(1)), attach_receiver(link(2)), credit(link(2), 10)]);
    bench.accept(Work::Disconnect { connection: ConnectionId(2) });
    bench.give(vec![attach_receiver(link(3)), credit(link(3), 1)]);
    bench.send(link(1), 0, 10);
    assert_eq!(told(&other), ["attached", "message 1"]);
}

#[test]
fn a_link_that_was_refused_or_taken_away_is_not_remembered() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    let nowhere = Command::AttachSender { link: link(1), namespace: NamespaceId(0), path: "nowhere".into() };
    bench.give(vec![nowhere]);
    assert_eq!(told(&outbox), ["detached"]);
    let second = LinkId { link: 2, ..link(1) };
    let request = RequestId { connection: ConnectionId(1), request: 1 };
    let delete = Command::DeleteEntity { request, namespace: NamespaceId(0), path: "q".into() };
    bench.give(vec![attach_sender(second), delete]);
    assert_eq!(told(&outbox)[..2], ["attached", "detached"]);
    assert_eq!(bench.look(|partition| partition.ports.close(ConnectionId(1))), []);
}

#[test]
fn what_was_handed_over_counts_until_it_is_durable() {
    let mut bench = Bench::with_queue();
    let bodies = vec![0; crate::limits::UNDURABLE_BYTES];
    bench.accept(Work::Batch(Batch { bodies, ..Batch::default() }));
    assert!(!bench.budget.has_room());
    bench.turn();
    assert!(bench.budget.has_room());
    bench.assert_accounts_are_zero();
}

#[test]
fn a_stopped_partition_has_written_everything_and_sealed_it() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.accept(Work::Batch(sending(link(1), 0, 10)));
    bench.accept(Work::Stop);
    assert_eq!(bench.turn(), Pause::Ended);
    assert_eq!(told(&outbox), ["attached", "accepted 0 to 0"]);
    assert_eq!(bench.look(|partition| partition.sealed), Sealed::Yes);
    bench.assert_accounts_are_zero();
}

#[test]
fn a_planned_stop_keeps_locks_and_a_crash_does_not() {
    // S-93
    let mut memory = Memory::new();
    let lock = |bench: &mut Bench, connection: u32| {
        let outbox = bench.connect(connection);
        bench.give(vec![attach_receiver(link(connection)), credit(link(connection), 1)]);
        let told = told(&outbox);
        bench.accept(Work::Disconnect { connection: ConnectionId(connection) });
        bench.turn();
        told
    };
    let next_life = |memory: &mut Memory| {
        *memory = memory.crash_image(1);
        Bench::alone(Arc::new(memory.clone()))
    };
    let mut bench = next_life(&mut memory);
    bench.create_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    for delivery in 0..3 {
        bench.send(link(1), delivery, 10);
    }
    assert_eq!(lock(&mut bench, 2), ["attached", "message 1"]);
    for (connection, expected) in [(3, "message 2"), (4, "message 3")] {
        bench.accept(Work::Stop);
        assert_eq!(bench.turn(), Pause::Ended);
        // Nothing is recorded in the next life, but one more lock is given out.
        bench = next_life(&mut memory);
        assert_eq!(lock(&mut bench, connection), ["attached", expected]);
    }
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.send(link(1), 9, 10);
    let mut bench = next_life(&mut memory);
    assert_eq!(lock(&mut bench, 5), ["attached", "message 1"]);
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_told() {
    // Calls are counted from the opening of the disk; the last ones are the write and the sync of the send.
    let other = LinkId { link: 2, ..link(1) };
    let send = |at: u64| {
        let disk = Arc::new(Faulty::new(Arc::new(Memory::new()), Fault::Eio, at));
        let mut bench = Bench::alone(disk.clone());
        bench.create_queue();
        let outbox = bench.connect(1);
        bench.give(vec![attach_sender(link(1))]);
        assert_eq!(told(&outbox), ["attached"]);
        bench.accept(Work::Batch(sending(link(1), 0, 10)));
        let is_ok = !matches!(bench.turn(), Pause::Stopped(Stop::Failed(_)));
        let answers = told(&outbox).len();
        // Not later either: what comes now would rest on what was lost.
        bench.accept(Work::Batch(Batch { commands: vec![attach_sender(other)], ..Batch::default() }));
        bench.partition.decide_here();
        assert_eq!(told(&outbox).len(), usize::from(is_ok));
        (is_ok, answers, disk.calls())
    };
    let (is_ok, answers, calls) = send(u64::MAX);
    assert!(is_ok && answers == 1);
    for at in [calls - 1, calls] {
        let (is_ok, answers, _) = send(at);
        assert!(!is_ok && answers == 0, "call {at} of {calls}");
    }
}

#[test]
fn a_send_to_a_full_queue_is_told_why() {
    // S-19
    let mut bench = Bench::alone(Arc::new(Memory::new()));
    let outbox = bench.connect(1);
    let settings = Box::new(QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() });
    let request = RequestId { connection: ConnectionId(1), request: 1 };
    let create = Command::CreateQueue { request, namespace: NamespaceId(0), path: "q".into(), settings };
    bench.give(vec![create, attach_sender(link(1))]);
    for delivery in 0..3 {
        bench.send(link(1), delivery, 600_000);
    }
    let last = taken(&outbox).pop();
    assert!(matches!(
        last,
        Some(Outgoing::Notice(Notice::Rejected { delivery: 2, refusal: Refusal::QueueFull { .. }, .. }))
    ));
}

#[test]
fn a_journal_with_records_that_cannot_be_read_is_refused() {
    use crate::recovery::Error;
    let reopened = |draft: Draft| {
        let memory = Memory::new();
        let mut first = journal(Arc::new(memory.clone()));
        recover(&mut first, 1).unwrap();
        let outcome = first.append(&draft, journal::Position(1)).unwrap().wait();
        assert!(matches!(outcome, journal::Outcome::Committed));
        drop(first);
        recover(&mut journal(Arc::new(memory)), 2).map(|recovered: crate::Recovered| recovered.durable)
    };
    let is = |found: Result<Durable, Error>, expected: fn(&Error) -> bool| match found {
        Err(error) => assert!(expected(&error), "{error}"),
        Ok(_) => panic!("was not refused"),
    };
    let of_the_future = Draft { record_count: 1, records: vec![200, 0, 0, 0, 0], ..Draft::default() };
    is(reopened(of_the_future), |error| matches!(error, Error::Record { position: 1, .. }));
    let missing = Draft { record_count: 1, ..Draft::default() };
    is(reopened(missing), |error| matches!(error, Error::RecordCount { announced: 1, found: 0, .. }));
    let mut body = Draft::default();
    body.push_body(b"nobody speaks of");
    is(reopened(body), |error| matches!(error, Error::BodyCount { records: 0, journal: 1 }));
}

#[test]
fn what_is_due_is_worked_off_a_slice_a_turn_and_a_command_waits_for_none_of_the_others() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    const COUNT: usize = 3 * broker::limits::TIMER_SLICE;
    for part in 0..3 {
        let mut batch = Batch::default();
        (0..COUNT / 3).for_each(|_| batch.message(Span(1_000), |out| out.push(0)));
        batch.send(link(1), part, false, 0);
        bench.accept(Work::Batch(batch));
        bench.turn();
    }
    told(&outbox);
    bench.pass(Duration::from_secs(1));
    bench.is_held = true;
    let mut left = Vec::new();
    for delivery in 10..13 {
        bench.accept(Work::Batch(sending(link(1), delivery, 10)));
        bench.turn();
        left.push(
            bench.look(|partition| partition.broker.durable().queues().next().unwrap().1.counts.active),
        );
    }
    let slice = broker::limits::TIMER_SLICE as u64;
    assert_eq!(left, [2 * slice + 1, slice + 2, 3]);
}

fn advance(connection: u32, by: Span) -> Work {
    let request = RequestId { connection: ConnectionId(connection), request: 9 };
    let command = Command::Advance { request, namespace: NamespaceId(0), by };
    Work::Batch(Batch { commands: vec![command], ..Batch::default() })
}

fn tell_time(connection: u32) -> Work {
    let request = RequestId { connection: ConnectionId(connection), request: 10 };
    let task = Box::new(broker::Task::TellTime);
    let command = Command::Manage { request, namespace: NamespaceId(0), task };
    Work::Batch(Batch { commands: vec![command], ..Batch::default() })
}

/// A message that lives a minute.
fn mortal(link: LinkId) -> Work {
    let mut batch = Batch::default();
    batch.message(Span::minutes(1), |out| out.extend_from_slice(&[0x55; 10]));
    batch.send(link, 0, false, 0);
    Work::Batch(batch)
}

#[test]
fn a_move_of_time_is_told_when_all_that_it_did_is_durable() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.accept(mortal(link(1)));
    bench.turn();
    assert_eq!(told(&outbox), ["attached", "accepted 0 to 0"]);
    bench.leave_in_flight();
    bench.accept(advance(1, Span::minutes(60)));
    bench.turn();
    assert!(!bench.look(|partition| partition.broker.is_advancing()));
    bench.finish_sync();
    assert_eq!(told(&outbox), Vec::<String>::new(), "what it did is with the disk");
    bench.finish_sync();
    let answer = told(&outbox).concat();
    assert!(answer.contains("MessageExpired { number: Number(1), fate: Dropped }"), "{answer}");
    assert!(answer.contains(&format!("at: LocalTime({})", NOW.0 + 60_000)), "{answer}");
}

#[test]
fn what_comes_while_time_is_moved_is_decided_when_it_has_arrived() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    // More than one tick has to do.
    for _ in 0..=broker::limits::TIMER_SLICE {
        bench.accept(mortal(link(1)));
    }
    bench.turn();
    taken(&outbox);
    bench.accept(advance(1, Span::minutes(60)));
    bench.accept(tell_time(1));
    bench.is_held = true;
    bench.turn();
    assert!(bench.look(|partition| partition.broker.is_advancing()));
    assert_eq!(told(&outbox).len(), 0);
    while bench.is_in_flight() {
        bench.finish_sync();
    }
    let answers = told(&outbox);
    assert!(answers[0].contains("Advanced") && answers[0].contains("more: 1 "), "{}", answers[0]);
    assert_eq!(answers[1..], [format!("Ok(Time(LocalTime({})))", NOW.0 + 3_600_000)]);
}

#[test]
fn a_sync_that_does_not_end_is_seen_from_outside() {
    let mut bench = Bench::with_queue();
    let later = std::time::Instant::now() + Duration::from_secs(3_600);
    assert_eq!(bench.look(|partition| partition.health.problems(later)), []);
    bench.leave_in_flight();
    let problems = bench.look(|partition| partition.health.problems(later));
    assert!(matches!(problems[..], [crate::Problem::SyncPending(_)]), "{problems:?}");
    bench.finish_sync();
    assert_eq!(bench.look(|partition| partition.health.problems(later)), []);
}

/// A topic with so many subscriptions that a small batch is more than one turn.
fn bench_with_topic() -> Bench {
    let mut bench = Bench::with_queue();
    bench.connect(9);
    let manage = |task| {
        let (request, namespace) = (RequestId { connection: ConnectionId(9), request: 0 }, NamespaceId(0));
        Command::Manage { request, namespace, task: Box::new(task) }
    };
    let (path, settings) = (Box::<str>::from("t"), broker::topic::settings::TopicSettings::default());
    let mut tasks = vec![manage(broker::Task::CreateTopic { path, settings, access: Vec::new() })];
    for nth in 0..600 {
        let (topic, name) = ("t".into(), format!("s{nth}").into());
        let settings = broker::topic::settings::SubscriptionSettings::default();
        tasks.push(manage(broker::Task::CreateSubscription { topic, name, settings, rule: None }));
    }
    bench.give(tasks);
    bench
}

#[test]
fn connections_take_turns_and_what_one_of_them_asks_stays_in_its_order() {
    // W-29
    let mut bench = bench_with_topic();
    let (greedy, modest) = (bench.connect(1), bench.connect(2));
    let topic = Command::AttachSender { link: link(1), namespace: NamespaceId(0), path: "t".into() };
    greedy.handed_over(1);
    bench.give(vec![topic]);
    modest.handed_over(1);
    bench.give(vec![attach_sender(link(2))]);
    let many = |first: u32| {
        let mut batch = Batch::default();
        for delivery in first..first + 200 {
            let at = batch.messages.len();
            batch.message(Span::MAX, |out| out.extend_from_slice(&[0x00, 0x53, 0x77, 0x41]));
            batch.send(link(1), delivery, false, at);
        }
        batch
    };
    told(&greedy);
    told(&modest);
    let batches = [many(0), many(200), sending(link(2), 0, 10)];
    batches.iter().for_each(|batch| bench.budget.hold(batch.held_bytes()));
    greedy.handed_over(400);
    modest.handed_over(batches[2].commands.len());
    // One call for each of them is enough for the one who wants little.
    let has_decided = |partition: &mut Partition, connection: u32| {
        let is_its = |work: &Work| match work {
            Work::Batch(batch) => batch.commands[0].connection() == ConnectionId(connection),
            _ => false,
        };
        !partition.backlog.iter().any(is_its)
    };
    bench.look(|partition| {
        batches.into_iter().for_each(|batch| partition.accept(Work::Batch(batch)));
        let mut calls = 0;
        while !has_decided(partition, 2) {
            partition.decide_waiting(usize::MAX, NOW);
            calls += 1;
        }
        assert!(calls <= 2, "{calls} calls");
        assert!(!has_decided(partition, 1), "the other one is not done");
    });
    bench.turn();
    assert_eq!(told(&modest), ["accepted 0 to 0"]);
    let mut next = 0;
    for outgoing in taken(&greedy) {
        let Outgoing::Accepted { first, last, .. } = outgoing else { panic!("{outgoing:?}") };
        assert_eq!(first, next);
        next = last + 1;
    }
    assert_eq!(next, 400);
    assert_eq!((greedy.undecided(), modest.undecided()), (0, 0), "all that was handed over is decided");
    bench.assert_accounts_are_zero();
}
