//! Space: what is dead is given back, what is alive among it is copied, and a full disk refuses sends and nothing else.

use crate::judge::judge;
use crate::owner::{SEGMENT_BYTES, Shared, TestPartition, options};
use broker::{Refusal, Time};
use journal::disk::{Disk, Memory};
use journal::{Draft, Journal, Local, Options, Outcome};
use message::Overlay;
use otobus_engine::recover;
use std::sync::Arc;

const NOW: Time = Time(1_000_000);

fn segments(memory: &Memory) -> usize {
    memory.list().unwrap().iter().filter(|name| name.ends_with(".segment")).count()
}

fn open(memory: &Memory, told: &Shared) -> TestPartition {
    TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap()
}

fn drain(partition: &mut TestPartition, keeps: impl Fn(u32) -> bool) {
    partition.receive(10_000).unwrap();
    for number in partition.held().into_iter().filter(|number| !keeps(*number)) {
        partition.now.0 += 1;
        partition.complete(number).unwrap();
    }
}

#[test]
fn after_a_drain_the_directory_is_as_small_as_ever_and_a_start_reads_next_to_nothing() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=600).for_each(|number| partition.send(number).unwrap());
    assert!(segments(&memory) > 15, "a backlog takes space");
    drain(&mut partition, |_| false);
    partition.rest(60).unwrap();
    assert!(segments(&memory) <= 2, "{} segments are left", segments(&memory));
    judge(&memory.crash_image(0), &told.lock(), "drained");
    drop(partition);
    let mut again = open(&memory, &told);
    again.send(601).unwrap();
    assert!(told.lock().accepted.contains(&601));
}

#[test]
fn what_is_alive_among_the_dead_is_copied_and_found_again() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=600).for_each(|number| partition.send(number).unwrap());
    let again = opened_with_one_in((&memory, &told), partition, 20);
    assert_eq!(again.held(), (1..=30).map(|n| n * 20).collect::<Vec<_>>());
    give_all_back(&memory, again);
}

#[test]
fn changes_that_are_stored_are_copied_like_bodies_found_again_and_given_back() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    let change = |number: u32| {
        let mut overlay = Overlay::default();
        overlay.set("trace", &message::Value::Binary(vec![number as u8; 2_000])).unwrap();
        overlay
    };
    (1..=600).for_each(|number| partition.send(number).unwrap());
    partition.receive(600).unwrap();
    for number in 1..=600 {
        partition.now.0 += 1;
        partition.abandon_with(number, change(number)).unwrap();
    }
    assert_eq!(partition.refusals(), []);
    // What stays has changes that lie among those of others.
    let again = opened_with_one_in((&memory, &told), partition, 50);
    let kept = (1..=12).map(|nth| (nth * 50, change(nth * 50)));
    assert_eq!(again.changes, kept.collect());
    give_all_back(&memory, again);
}

/// One message in so many stays, in every segment; the partition is opened anew on what is left, and has received it.
fn opened_with_one_in(
    (memory, told): (&Memory, &Shared),
    mut partition: TestPartition,
    many: u32,
) -> TestPartition {
    let before = segments(memory);
    drain(&mut partition, |number| number % many == 0);
    partition.rest(300).unwrap();
    let after = segments(memory);
    assert!(after * 3 < before, "{before} segments became {after}");
    judge(&memory.crash_image(0), &told.lock(), "cleaned");
    drop(partition);
    let mut again = open(memory, told);
    again.receive(100).unwrap();
    again
}

fn give_all_back(memory: &Memory, mut partition: TestPartition) {
    drain(&mut partition, |_| false);
    partition.rest(300).unwrap();
    assert!(segments(memory) <= 2, "{} segments are left", segments(memory));
}

#[test]
fn a_body_that_is_copied_again_and_again_stays_the_same() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    let mut number = 0;
    for _ in 0..12 {
        (0..150).for_each(|_| {
            number += 1;
            partition.send(number).unwrap();
        });
        // The first two stay for ever; each round they come before everything else.
        drain(&mut partition, |number| number <= 2);
        partition.rest(60).unwrap();
        assert!(segments(&memory) < 6, "{} segments", segments(&memory));
    }
    judge(&memory.crash_image(0), &told.lock(), "copied often");
    drop(partition);
    let mut again = open(&memory, &told);
    again.receive(10).unwrap();
    assert_eq!(again.held(), [1, 2]);
}

#[test]
fn a_full_disk_refuses_sends_and_nothing_else_and_goes_on_by_itself() {
    // R9
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=100).for_each(|number| partition.send(number).unwrap());
    let mut number = 100;
    for cycle in 0..20 {
        (0..60).for_each(|_| {
            number += 1;
            partition.send(number).unwrap();
        });
        partition.rest(60).unwrap();
        let used: usize = memory
            .list()
            .unwrap()
            .iter()
            .map(|name| memory.content(name).map_or(0, |bytes| bytes.len()))
            .sum();
        memory.set_room(Some(used as u64));
        while !partition.is_short() {
            number += 1;
            partition.send(number).unwrap();
        }
        number += 1;
        partition.send(number).unwrap();
        assert_eq!(partition.refusals().pop(), Some(Refusal::NoSpace), "cycle {cycle}");
        partition.receive(40).unwrap();
        let held = partition.held();
        assert!(held.len() >= 40);
        for number in held {
            partition.complete(number).unwrap();
            assert!(told.lock().completed.contains(&number), "cycle {cycle}: completing goes on");
        }
        memory.set_room(None);
        partition.now.0 += 2_000;
        partition.run().unwrap();
        assert!(!partition.is_short(), "cycle {cycle}: there is room again");
        number += 1;
        partition.send(number).unwrap();
        assert!(told.lock().accepted.contains(&number), "cycle {cycle}: sending goes on");
        judge(&memory.crash_image(0), &told.lock(), &format!("cycle {cycle}"));
    }
}

#[test]
fn receiving_everything_makes_room_on_a_disk_that_stays_full() {
    // Of the smallest, two segments are the reserve and two more are what a drained journal keeps.
    [5, 6, 7, 8, 30].into_iter().for_each(fill_and_drain);
}

fn fill_and_drain(room_segments: u64) {
    let (memory, told) = (Memory::new(), Shared::default());
    memory.set_room(Some(room_segments * u64::from(SEGMENT_BYTES)));
    let mut partition = open(&memory, &told);
    let mut number = 0;
    while !partition.is_short() {
        number += 1;
        partition.send(number).unwrap();
    }
    drain(&mut partition, |_| false);
    partition.rest(200).unwrap();
    partition.now.0 += 2_000;
    partition.run().unwrap();
    assert!(!partition.is_short(), "{} segments of {room_segments} are left", segments(&memory));
    partition.send(number + 1).unwrap();
    assert!(told.lock().accepted.contains(&(number + 1)));
}

#[test]
fn a_drain_makes_room_on_a_full_disk_whenever_the_process_was_killed() {
    // Killed with everything in place, after some of it was received, after all of it was.
    for received in [0, 1, 2] {
        let (memory, told) = (Memory::new(), Shared::default());
        let mut partition = open(&memory, &told);
        memory.set_room(Some(30 * u64::from(SEGMENT_BYTES)));
        let mut number = 0;
        while !partition.is_short() {
            number += 1;
            partition.send(number).unwrap();
        }
        match received {
            0 => {}
            1 => drain(&mut partition, |each| each > 60),
            _ => drain(&mut partition, |_| false),
        }
        drop(partition);
        let image = memory.crash_image(0);
        image.set_room(Some(30 * u64::from(SEGMENT_BYTES)));
        let mut partition = open(&image, &told);
        drain(&mut partition, |_| false);
        partition.rest(200).unwrap();
        partition.now.0 += 2_000;
        partition.run().unwrap();
        assert!(!partition.is_short(), "{received}: {} segments are left", segments(&image));
        partition.send(number + 1).unwrap();
        assert!(told.lock().accepted.contains(&(number + 1)));
    }
}

#[test]
fn without_any_reserve_a_full_disk_makes_everybody_wait_and_nobody_lose() {
    let (memory, told) = (Memory::new(), Shared::default());
    let bare = Options { reserve_segments: 0, ..options() };
    let mut partition = TestPartition::open_with(Arc::new(memory.clone()), told.clone(), NOW, bare).unwrap();
    memory.set_room(Some(u64::from(SEGMENT_BYTES)));
    let mut number = 0;
    while !partition.is_short() {
        number += 1;
        partition.send(number).unwrap();
    }
    assert!(!told.lock().accepted.contains(&number), "what found no room is not accepted");
    memory.set_room(None);
    partition.now.0 += 2_000;
    partition.run().unwrap();
    assert!(told.lock().accepted.contains(&number), "it was stored when there was room");
    judge(&memory.crash_image(0), &told.lock(), "waited");
}

#[test]
fn a_damaged_newest_snapshot_is_set_aside_and_the_older_one_serves() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=200).for_each(|number| partition.send(number).unwrap());
    drop(partition);
    let snapshots = || {
        let mut names = memory.list().unwrap();
        names.retain(|name| name.contains(".snapshot"));
        names
    };
    let newest = snapshots().pop().unwrap();
    memory.damage(&newest, |bytes| bytes[100] ^= 1);
    let before = memory.content(&newest);
    let mut partition = open(&memory, &told);
    let aside = format!("{newest}.damaged");
    assert_eq!(memory.content(&aside), before, "its bytes are kept");
    judge(&memory.crash_image(1), &told.lock(), "older snapshot");
    // It neither counts as one of two nor pushes a good one out.
    (201..=400).for_each(|number| partition.send(number).unwrap());
    drop(partition);
    assert_eq!(snapshots().len(), 3);
    let newest = snapshots().into_iter().rfind(|name| name.ends_with(".snapshot")).unwrap();
    memory.damage(&newest, |bytes| bytes[100] ^= 1);
    drop(open(&memory, &told));
    judge(&memory.crash_image(1), &told.lock(), "older snapshot again");
}

// P5
#[test]
fn where_nothing_lies_behind_the_snapshot_time_goes_on_from_the_snapshot() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=300).for_each(|number| partition.send(number).unwrap());
    drain(&mut partition, |_| false);
    partition.rest(60).unwrap();
    drop(partition);
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    assert_eq!(journal.latest_snapshots().unwrap()[0].position, journal.tail(), "nothing lies behind it");
    let mut last = None;
    let note = &mut |batch: journal::Batch<'_>| {
        last = Some(Time(batch.time));
        Ok(())
    };
    journal.read(journal.first(), note).unwrap();
    assert!(last > Some(NOW));
    assert_eq!(recover(&mut journal, 1).unwrap().last_time, last);
}

#[test]
fn without_a_snapshot_that_is_whole_a_trimmed_journal_is_refused() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=300).for_each(|number| partition.send(number).unwrap());
    drain(&mut partition, |_| false);
    partition.rest(60).unwrap();
    drop(partition);
    for name in memory.list().unwrap().iter().filter(|name| name.ends_with(".snapshot")) {
        memory.damage(name, |bytes| bytes[60] ^= 1);
    }
    let before = contents(&memory);
    for _ in 0..2 {
        let refused = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap_err();
        assert!(refused.contains("every snapshot is damaged") && refused.contains(".snapshot"), "{refused}");
        assert_eq!(contents(&memory), before, "nothing is changed");
    }
    // Mended, it is whole.
    for name in memory.list().unwrap().iter().filter(|name| name.ends_with(".snapshot")) {
        memory.damage(name, |bytes| bytes[60] ^= 1);
    }
    judge(&memory, &told.lock(), "mended");
}

fn contents(memory: &Memory) -> Vec<(String, Option<Vec<u8>>)> {
    memory.list().unwrap().into_iter().map(|name| (name.clone(), memory.content(&name))).collect()
}

#[test]
fn a_start_that_is_refused_changes_nothing() {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = open(&memory, &told);
    (1..=200).for_each(|number| partition.send(number).unwrap());
    drop(partition);
    // The newest snapshot is damaged, so the journal behind the older one is read, and the last batch of it is of a kind
    // that this program does not know.
    let newest = memory.list().unwrap().into_iter().rfind(|name| name.ends_with(".snapshot")).unwrap();
    memory.damage(&newest, |bytes| bytes[100] ^= 1);
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    journal.fence(1, journal.epoch().next()).unwrap();
    let future = Draft { record_count: 1, records: vec![250, 0, 0, 0, 0], ..Draft::default() };
    let at = journal.tail().next();
    assert!(matches!(journal.append(&future, at).unwrap().wait(), Outcome::Committed));
    drop(journal);
    memory.remove("reserve").unwrap();
    memory.create("snapshot.tmp").unwrap();
    let before = contents(&memory);
    for _ in 0..2 {
        let refused = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap_err();
        assert!(refused.contains(&format!("batch {}", at.0)), "{refused}");
        assert_eq!(contents(&memory), before);
    }
}
