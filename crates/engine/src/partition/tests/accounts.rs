//! Whatever was counted is given back, however it ended: in two appends, in a refusal, on a full disk, after request.

use super::*;
use crate::runner::{ReadWork, Worker};
use journal::{Log, Unsure, Verdict};

/// Ten settlements that change more than one append holds.
#[test]
fn a_batch_that_is_split_is_counted_once() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    let mut changes = Overlay::default();
    for name in ["a", "b"] {
        changes.set(name, &Value::Binary(vec![7; 30_000])).unwrap();
    }
    let many = (4 * crate::limits::APPEND_BYTES / changes.encoded_bytes()) as u32;
    (0..many).for_each(|delivery| drop(bench.send(link(1), delivery, 10)));
    let receiver = LinkId { link: 2, ..link(1) };
    taken(&outbox);
    bench.give(vec![attach_receiver(receiver), credit(receiver, many.into())]);
    let settle = |outgoing: &Outgoing| match outgoing {
        Outgoing::Deliver(sent) => {
            let (token, outcome) = (sent.delivery.token, Outcome::Abandon(Some(Box::new(changes.clone()))));
            Some(Command::Settle { link: receiver, delivery: 0, token, outcome, wants_answer: true })
        }
        _ => None,
    };
    let commands: Vec<_> = taken(&outbox).iter().filter_map(settle).collect();
    assert_eq!(commands.len(), many as usize);
    let before = bench.counters.appends.load(Ordering::Relaxed);
    bench.is_held = true;
    let batch = Batch { commands, ..Batch::default() };
    let held = batch.held_bytes();
    bench.accept(Work::Batch(batch));
    bench.turn();
    let mut last = held;
    while bench.is_in_flight() {
        assert!(bench.budget.held_bytes() <= last, "never more than was handed over");
        last = bench.budget.held_bytes();
        bench.finish_sync();
    }
    assert!(bench.counters.appends.load(Ordering::Relaxed) > before + 2, "it became several");
    bench.assert_accounts_are_zero();
}

#[test]
fn what_waits_for_the_disk_is_counted_until_it_is_decided() {
    // P7, W-35
    let (memory, count) = (Memory::new(), 20_u32);
    let mut bench = Bench::alone(Arc::new(memory.clone()));
    bench.create_queue();
    bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    (0..count).for_each(|delivery| drop(bench.send(link(1), delivery, 10)));
    drop(bench);
    // A new partition has nothing in its cache, and what it reads comes when the test lets it.
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let mut bench = Bench::reading(Box::new(journal(Arc::new(memory))), |inbox| {
        let read = move |work: ReadWork| {
            let _ = gate.recv();
            inbox.put(work.run());
        };
        Workers { read: Some(Worker::spawn("reader", read).unwrap()), snapshot: None }
    });
    // The reader ends with the partition: it must not wait for the gate then, if this test fails.
    let let_go = let_go;
    let outbox = bench.connect(2);
    outbox.handed_over(2);
    bench.give(vec![attach_receiver(link(2)), credit(link(2), count.into())]);
    assert_eq!(outbox.undecided(), 0);
    let mut changes = Overlay::default();
    changes.set("a", &Value::Binary(vec![7; 30_000])).unwrap();
    let settle = |outgoing: &Outgoing| match outgoing {
        Outgoing::Deliver(sent) => {
            let (token, outcome) = (sent.delivery.token, Outcome::Abandon(Some(Box::new(changes.clone()))));
            Some(Command::Settle { link: link(2), delivery: 0, token, outcome, wants_answer: true })
        }
        _ => None,
    };
    let commands: Vec<_> = taken(&outbox).iter().filter_map(settle).collect();
    assert_eq!(commands.len(), count as usize);
    outbox.handed_over(commands.len());
    bench.give(commands);
    let wants = count as usize * (size_of::<Command>() + changes.held_bytes());
    assert!(bench.budget.held_bytes() >= wants, "{} of {wants}", bench.budget.held_bytes());
    assert_eq!(outbox.undecided(), count as usize);
    for left in (0..count as usize).rev() {
        let_go.send(()).unwrap();
        while bench.inbox.is_empty() {
            std::thread::yield_now();
        }
        bench.turn();
        assert_eq!(outbox.undecided(), left);
    }
    bench.assert_accounts_are_zero();
}

#[test]
fn a_refusal_gives_back_what_was_held() {
    let mut bench = Bench::with_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    bench.accept(Work::Batch(sending_too_much(link(1))));
    bench.turn();
    assert_eq!(told(&outbox), ["attached", "rejected"]);
    bench.assert_accounts_are_zero();
}

#[test]
fn what_finds_no_room_waits_for_it_and_is_told_nobody_before() {
    let memory = Memory::new();
    let disk = Arc::new(Faulty::lasting(Arc::new(memory), Fault::Enospc, u64::MAX, 3));
    let mut bench = Bench::alone(disk.clone());
    bench.create_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    told(&outbox);
    disk.fail_in(1);
    let Pause::Asleep(Some(retry)) = bench.send(link(1), 0, 10) else { panic!("the disk is full") };
    assert!(bench.partition.look(|_, commit| commit.is_full()).unwrap());
    assert_eq!(told(&outbox), Vec::<String>::new());
    assert!(bench.budget.held_bytes() > 0);
    // What comes meanwhile waits with it, and a new message is refused.
    let now = bench.look(|partition| partition.clock.moment());
    assert!(retry > now);
    let mut turns = 0;
    while bench.partition.look(|_, commit| commit.is_full()).unwrap() {
        bench.pass(crate::commit::FULL_RETRY);
        bench.turn();
        turns += 1;
        assert!(turns < 10, "it is asked again until there is room");
    }
    assert_eq!(told(&outbox), ["accepted 0 to 0"]);
    bench.assert_accounts_are_zero();
}

#[test]
fn a_stop_does_not_wait_for_room() {
    let disk = Arc::new(Faulty::lasting(Arc::new(Memory::new()), Fault::Enospc, u64::MAX, u64::MAX));
    let mut bench = Bench::alone(disk.clone());
    bench.create_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    told(&outbox);
    disk.fail_in(1);
    bench.send(link(1), 0, 10);
    bench.accept(Work::Stop);
    assert_eq!(bench.turn(), Pause::Ended);
    assert_eq!(told(&outbox), Vec::<String>::new(), "what found no room was told to nobody");
}

#[test]
fn an_append_in_doubt_is_told_once_it_is_known_to_be_there() {
    let log = Log::default();
    let mut appends = 0;
    let judge = move |_| {
        appends += 1;
        match appends % 3 {
            0 => Verdict::LoseRequest,
            1 => Verdict::LoseAnswer,
            _ => Verdict::Pass,
        }
    };
    let mut bench = Bench::on(Box::new(Unsure::new(Box::new(log.open().unwrap()), judge)));
    bench.create_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    told(&outbox);
    for delivery in 0..9 {
        bench.send(link(1), delivery, 10);
        assert_eq!(told(&outbox), [format!("accepted {delivery} to {delivery}")]);
    }
    bench.assert_accounts_are_zero();
    let mut again = log.open().unwrap();
    let durable = recover(&mut again, 2).unwrap().durable;
    assert_eq!(durable.queue(broker::EntityId(0)).unwrap().counts.active, 9, "each is there once");
}

#[test]
fn an_owner_that_was_fenced_off_stops_and_tells_nobody() {
    let log = Log::default();
    let mut bench = Bench::on(Box::new(log.open().unwrap()));
    bench.create_queue();
    let outbox = bench.connect(1);
    bench.give(vec![attach_sender(link(1))]);
    told(&outbox);
    recover(&mut log.open().unwrap(), 2).unwrap();
    assert_eq!(bench.send(link(1), 0, 10), Pause::Stopped(Stop::Fenced));
    assert_eq!(told(&outbox), Vec::<String>::new());
}
