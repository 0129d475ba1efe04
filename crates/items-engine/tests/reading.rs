//! What readers are told while something is decided and not committed.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use broker::Time;
use items::{Answer, Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Precondition, Throughput};
use journal::{Draft, Position};
use otobus_items_engine::{Deciding, Layered, Memory, MemoryDisk, ReadOutcome};
use std::sync::Arc;

const STEPS: u64 = 1_000;

/// The least that there is: the removal can be brought to a stop.
const THROUGHPUT: Option<Throughput> = Some(Throughput::Fixed(400));

/// Deciding, and batches that are written and made durable by hand.
struct Bench {
    deciding: Deciding,
    draft: Draft,
    position: Position,
}

impl Bench {
    fn new() -> Bench {
        let store = Layered::over(Memory::open(&MemoryDisk::default()), 1 << 20).unwrap();
        let deciding = Deciding::open(Arc::new(store), 1 << 20).unwrap();
        Bench { deciding, draft: Draft::default(), position: Position(0) }
    }

    fn decide(&mut self, command: &Command, at: i64) {
        self.deciding.decide(command, Time(at), &mut self.draft).unwrap().unwrap();
    }

    fn commit(&mut self) {
        self.deciding.finish_draft(&mut self.draft);
        self.position = self.position.next();
        self.deciding.written(self.position, self.draft.records.len()).publish();
        self.draft.clear();
    }

    fn define(&mut self, members: &str, at: i64) {
        let body =
            format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{members}}}"#);
        let command = match at {
            0 => Command::CreateContainer { database: "d".into(), body: body.into(), throughput: THROUGHPUT },
            _ => Command::ReplaceContainer { container: container(), body: body.into(), if_match: None },
        };
        self.decide(&command, at);
    }

    fn read(&self, at: i64) -> ReadOutcome {
        self.read_of("i", at)
    }

    fn read_of(&self, id: &str, at: i64) -> ReadOutcome {
        self.deciding.readers().newest().read(&point_read(id), Time(at), STEPS)
    }

    fn upsert(&mut self, id: &str, at: i64) {
        let write = ItemWrite {
            container: container(),
            partition_key: None,
            body: format!(r#"{{"id":"{id}","pk":"p"}}"#).into(),
            condition: Precondition::default(),
        };
        self.decide(&Command::UpsertItem(write), at);
    }

    fn read_noted(&self) -> bool {
        match self.deciding.readers().newest().read_noted(&point_read("i"), STEPS) {
            Ok(reply) => matches!(reply.answer, Answer::Found(_)),
            Err(refusal) => {
                assert_eq!(refusal.status().0, 404);
                false
            }
        }
    }
}

fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

fn point_read(id: &str) -> Command {
    let item =
        ItemPath { container: container(), partition_key: PartitionKey::of_string("p"), id: id.to_owned() };
    Command::ReadItem { item, if_none_match: None, session: None }
}

/// A container whose items live for a second, and an item that was written at 100 ms, all of it committed.
fn desk_with_item() -> Bench {
    let mut bench = Bench::new();
    bench.decide(&Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None }, 0);
    bench.define(r#","defaultTtl":1"#, 0);
    bench.upsert("i", 100);
    bench.commit();
    bench
}

// C-41, C-42
#[test]
fn nobody_is_told_that_an_item_has_expired_while_a_decision_that_keeps_it_is_not_committed() {
    let mut bench = desk_with_item();
    assert!(matches!(bench.read(1_000), ReadOutcome::Done(Ok(_))));
    // Decided before the item ends, and durable after it.
    bench.define("", 500);
    assert!(matches!(bench.read(1_200), ReadOutcome::After));
    bench.deciding.note(Time(1_200), &mut bench.draft);
    bench.commit();
    assert!(bench.read_noted(), "it came back");
}

// C-42
#[test]
fn that_an_item_has_expired_is_told_when_the_journal_holds_the_time() {
    let mut bench = desk_with_item();
    assert!(matches!(bench.read(1_200), ReadOutcome::After));
    bench.deciding.note(Time(1_200), &mut bench.draft);
    bench.commit();
    assert!(!bench.read_noted());
    // And from then on at once.
    assert!(matches!(bench.read(1_200), ReadOutcome::Done(Err(_))));
    // A change of the setting does not bring it back.
    bench.define("", 1_200);
    bench.commit();
    assert!(!bench.read_noted());
}

// C-14, C-42
#[test]
fn a_removal_that_waits_for_request_units_does_not_say_that_nothing_has_expired() {
    let mut bench = desk_with_item();
    bench.upsert("j", 300);
    bench.commit();
    // Somebody has spent the request units of this second and of the next ones.
    let account = bench.deciding.account().clone();
    bench.deciding.throttle().lock().unwrap().spend(
        &account,
        &point_read("i"),
        1_000_000,
        items::Time(1_200),
    );
    assert!(!bench.deciding.purge(Time(1_200), 16, &mut bench.draft).unwrap());
    bench.deciding.note(Time(1_200), &mut bench.draft);
    bench.commit();
    assert!(matches!(bench.read_of("j", 1_250), ReadOutcome::Done(Ok(_))));
    assert!(matches!(bench.read_of("j", 1_400), ReadOutcome::After));
}

#[test]
fn on_a_full_disk_writes_are_refused_with_507_and_deletes_and_reads_go_on() {
    let mut bench = desk_with_item();
    bench.deciding.set_short(true);
    let write = ItemWrite {
        container: container(),
        partition_key: None,
        body: r#"{"id":"j","pk":"p"}"#.into(),
        condition: Precondition::default(),
    };
    let mut decide = |command: &Command| bench.deciding.decide(command, Time(200), &mut bench.draft).unwrap();
    assert_eq!(decide(&Command::UpsertItem(write.clone())).unwrap_err().status().0, 507);
    assert_eq!(decide(&Command::Advance { by_ms: 1 }).unwrap_err().status().0, 507);
    let Command::ReadItem { item, .. } = point_read("i") else { panic!("it reads") };
    assert!(decide(&Command::DeleteItem { item, condition: Precondition::default() }).is_ok());
    assert!(matches!(bench.read(300), ReadOutcome::Done(Ok(_))), "it is not committed yet");
    bench.commit();
    assert!(matches!(bench.read(300), ReadOutcome::Done(Err(_))));
    bench.deciding.set_short(false);
    assert!(bench.deciding.decide(&Command::UpsertItem(write), Time(300), &mut bench.draft).unwrap().is_ok());
}
