//! The partition on a store that has no room, or fails, turned by hand without threads.

use super::*;
use crate::store::{Layered, Memory as MemoryStore, MemoryDisk};
use engine::commit::{AfterTurn, Inbox, Shared};
use items::{ContainerPath, ItemWrite, PartitionKey, Precondition};
use journal::disk::Memory;
use journal::{Filling, Local, Options};
use std::sync::{Mutex, PoisonError};

/// One item of [`body`] is worth a checkpoint, and a few are more than the store lets wait.
const TABLE_BYTES: u64 = 2_048;

/// Far above what any test needs: a partition that is not done by then never is.
const MOST_TURNS: usize = 200;

type Answers = Arc<Mutex<Vec<ReplyOrRefusal>>>;

#[derive(Debug)]
struct Client(Answers);

impl Asker for Client {
    fn answer(self, answer: ReplyOrRefusal) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }
}

#[derive(Debug, Clone, Default)]
struct TestClocks(Arc<Mutex<u64>>);

impl TestClocks {
    fn micros(&self) -> u64 {
        *self.0.lock().unwrap()
    }
}

impl Clocks for TestClocks {
    fn owner(&mut self) -> Time {
        Time(1_000_000 + (self.micros() / 1_000) as i64)
    }

    fn moment(&mut self) -> Moment {
        Moment(self.micros())
    }
}

/// The checkpoint that is to be made durable.
#[derive(Debug, Clone, Default)]
struct Slot(Arc<Mutex<Option<FlushJob>>>);

impl Flusher for Slot {
    fn start(&mut self, job: FlushJob) {
        assert!(self.0.lock().unwrap().replace(job).is_none(), "one checkpoint at a time");
    }
}

/// How far a partition goes when nobody asks it anything.
#[derive(Debug, PartialEq, Eq)]
enum Went {
    ToRest,
    ToItsEnd,
    /// It stopped for a fault.
    Wrong,
    /// It tried something again and again.
    On,
}

struct Tester {
    items: Shared<Partition<Client>>,
    store: Arc<dyn Store>,
    disk: MemoryDisk,
    /// What every write of the store fails with.
    failure: Option<Failure>,
    clocks: TestClocks,
    flush: Slot,
    answers: Answers,
    flushes: usize,
}

impl Tester {
    fn new() -> Tester {
        let (disk, clocks, flush) = (MemoryDisk::default(), TestClocks::default(), Slot::default());
        let options = Options { filling: Filling::Never, ..Options::new(7) };
        let journal = Local::open(Arc::new(Memory::new()), options).unwrap();
        let store: Arc<dyn Store> = Arc::new(Layered::over(MemoryStore::open(&disk), 1 << 20).unwrap());
        let recovered =
            Partition::<Client>::open(Box::new(journal), Arc::clone(&store), TABLE_BYTES, 1).unwrap();
        let tail = recovered.journal.tail();
        let partition = Partition::new(recovered, Box::new(clocks.clone()), Box::new(flush.clone()));
        let items = Shared::new(partition, tail, Arc::new(Inbox::default()));
        let answers = Answers::default();
        let tester = Tester { items, store, disk, failure: None, clocks, flush, answers, flushes: 0 };
        tester.prepared()
    }

    fn prepared(mut self) -> Tester {
        self.ask(Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None });
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        self.ask(Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None });
        assert_eq!((self.run(), self.answered()), (Went::ToRest, 2));
        self
    }

    fn ask(&self, command: Command) {
        self.items.hand_over(Work::Ask { command, asker: Client(Arc::clone(&self.answers)) });
    }

    fn upsert(&self, id: u32) {
        let body = format!(r#"{{"id":"{id}","pk":"p","s":"{}"}}"#, "x".repeat(3_000));
        self.ask(Command::UpsertItem(ItemWrite {
            container: ContainerPath::new("d", "c"),
            partition_key: Some(PartitionKey::of_string("p")),
            body: body.into(),
            condition: Precondition::default(),
        }));
    }

    fn answered(&self) -> usize {
        let answers = self.answers.lock().unwrap();
        answers.iter().for_each(|answer| assert!(answer.is_ok(), "{answer:?}"));
        answers.len()
    }

    fn undecided(&self) -> usize {
        self.items.look(|partition, _| partition.undecided()).unwrap()
    }

    fn fail(&self) {
        self.failure.clone().into_iter().for_each(|failure| self.disk.fail_next(failure));
    }

    /// What the store's threads do.
    fn write_store(&mut self) {
        let Some(job) = self.flush.0.lock().unwrap().take() else { return };
        self.fail();
        self.flushes += 1;
        self.items.inbox().put(Work::Flushed(job.run()));
    }

    fn run(&mut self) -> Went {
        let mut answered = None;
        for _ in 0..MOST_TURNS {
            self.write_store();
            match self.items.turn(answered.take()) {
                AfterTurn::Sync(append) => answered = Some(append.wait()),
                AfterTurn::Sleep { until: Some(until), .. } => {
                    let mut micros = self.clocks.0.lock().unwrap();
                    *micros = until.0.max(*micros);
                }
                AfterTurn::Sleep { until: None, .. } if self.flush.0.lock().unwrap().is_some() => {}
                AfterTurn::Sleep { until: None, .. } => return Went::ToRest,
                AfterTurn::Ended => return Went::ToItsEnd,
                AfterTurn::Stopped(_) => return Went::Wrong,
            }
        }
        Went::On
    }

    fn stop(&mut self) -> Went {
        self.items.inbox().put(Work::Stop);
        self.run()
    }
}

fn full() -> Option<Failure> {
    Some(Failure::Full("no space left".into()))
}

#[test]
fn a_checkpoint_that_finds_no_room_is_tried_until_it_does() {
    let mut tester = Tester::new();
    tester.failure = full();
    tester.upsert(1);
    assert_eq!(tester.run(), Went::On);
    assert_eq!((tester.answered(), tester.store.durable()), (3, Position(0)));
    assert!(tester.flushes > 1);
    tester.failure = None;
    assert_eq!(tester.run(), Went::ToRest);
    assert!(tester.store.durable() > Position(0));
    assert_eq!(tester.stop(), Went::ToItsEnd);
}

#[test]
fn a_checkpoint_that_fails_stops_the_partition() {
    let mut tester = Tester::new();
    tester.failure = Some(Failure::Failed("a bad sector".into()));
    tester.upsert(1);
    assert_eq!(tester.run(), Went::Wrong);
    assert_eq!(tester.store.durable(), Position(0));
}

#[test]
fn files_that_are_not_merged_for_want_of_room_keep_nobody_waiting() {
    let mut tester = Tester::new();
    tester.disk.fail_next(full().unwrap());
    tester.items.inbox().put(Work::Merged(tester.store.tidy().map(drop)));
    tester.upsert(1);
    assert_eq!((tester.run(), tester.answered()), (Went::ToRest, 3));
    assert_eq!(tester.stop(), Went::ToItsEnd);
}

#[test]
fn a_stop_does_not_wait_for_a_checkpoint_that_finds_no_room() {
    let mut tester = Tester::new();
    tester.failure = full();
    tester.upsert(1);
    assert_eq!(tester.stop(), Went::ToItsEnd);
    assert_eq!((tester.answered(), tester.flushes), (3, 1));
}

#[test]
fn a_stop_does_not_wait_for_room_for_what_nobody_was_told_of() {
    let mut tester = Tester::new();
    tester.failure = full();
    for id in 0..8 {
        tester.upsert(id);
        tester.run();
    }
    let (answered, undecided) = (tester.answered(), tester.undecided());
    assert!(undecided > 0, "the store must catch up first");
    assert_eq!(answered + undecided, 10);
    assert_eq!(tester.stop(), Went::ToItsEnd);
    assert_eq!(tester.answered(), answered);
}

#[test]
fn a_stop_waits_for_a_checkpoint_that_finds_room() {
    let mut tester = Tester::new();
    tester.upsert(1);
    assert_eq!(tester.stop(), Went::ToItsEnd);
    assert_eq!(tester.flushes, 1);
    assert!(tester.store.durable() > Position(0));
}
