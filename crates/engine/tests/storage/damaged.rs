//! A body that the disk does not give back: a receiver that needs it is refused, the message stays, and everybody else goes on.

use crate::judge::judge;
use crate::owner::{Shared, TestPartition, body, options};
use broker::{Refusal, Time};
use journal::disk::{Disk, Fault, Faulty, Memory};
use message::overlay::Overlay;
use std::sync::Arc;

const NOW: Time = Time(1_000_000);

/// A disk with twenty messages, and their fate so far.
fn stored() -> (Memory, Shared) {
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    (1..=20).for_each(|number| partition.send(number).unwrap());
    partition.stop().unwrap();
    drop(partition);
    (memory, told)
}

/// Flips a bit in the middle of a message's body, or flips it back. Returns the file and where the body begins.
fn flip(memory: &Memory, number: u32) -> (String, u64) {
    let wanted = body(number);
    for name in memory.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")) {
        let content = memory.content(&name).unwrap();
        let front = &wanted[..wanted.len() / 2];
        if let Some(at) = content.windows(front.len()).position(|bytes| bytes == front) {
            memory.damage(&name, |bytes| bytes[at + front.len()] ^= 0x40);
            return (name, at as u64);
        }
    }
    panic!("message {number} is nowhere");
}

fn names(damage: Option<String>, (file, offset): &(String, u64)) -> bool {
    damage.is_some_and(|damage| damage.contains(file) && damage.contains(&format!("at byte {offset}")))
}

#[test]
fn a_damaged_message_is_not_lost_by_receiving_and_deleting() {
    // P2, P4
    let (memory, told) = stored();
    let place = flip(&memory, 7);
    let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    partition.take(100).unwrap();
    let others: Vec<u32> = (1..=20).filter(|number| *number != 7).collect();
    assert_eq!(told.lock().taken, others, "those behind it are not held up");
    assert!(names(partition.damage(), &place), "{:?} is not {place:?}", partition.damage());
    drop(partition);
    flip(&memory, 7);
    judge(&memory.crash_image(0), &told.lock(), "it is still there");
    let mut again = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    again.take(100).unwrap();
    assert_eq!(told.lock().taken.last(), Some(&7), "once it can be read it is delivered");
    assert_eq!(again.damage(), None);
}

#[test]
fn a_damaged_message_is_tried_again_when_time_has_passed() {
    let (memory, told) = stored();
    flip(&memory, 7);
    let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    partition.take(100).unwrap();
    flip(&memory, 7);
    partition.now.0 += 5 * 60_000;
    partition.run().unwrap();
    assert_eq!(told.lock().taken.last(), Some(&7));
}

/// Takes away the segment that holds the first messages, and every trace of it.
fn lose_oldest_segment(memory: &Memory) {
    let mut names = memory.list().unwrap();
    names.retain(|name| name.ends_with(".segment"));
    assert!(names.len() > 1, "something is left");
    memory.remove(&names[0]).unwrap();
    memory.remove("extent").unwrap();
}

#[test]
fn messages_whose_segment_is_gone_are_damage_and_the_others_are_served() {
    // P4
    let (memory, told) = (Memory::new(), Shared::default());
    let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    (1..=200).for_each(|number| partition.send(number).unwrap());
    partition.stop().unwrap();
    drop(partition);
    lose_oldest_segment(&memory);
    for takes in [true, false] {
        let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
        if takes {
            partition.take(500).unwrap();
            let taken = told.lock().taken.clone();
            assert!(taken.contains(&200) && !taken.contains(&1), "{taken:?}");
        } else {
            partition.skips_unreadable = true;
            partition.receive(500).unwrap();
            assert!(!partition.held().contains(&1));
        }
        if takes {
            let damage = partition.damage().unwrap();
            assert!(damage.contains("body 1 is missing"), "{damage}");
        }
    }
}

fn change() -> Overlay {
    let mut overlay = Overlay::default();
    overlay.set("seen", &message::value::Value::Int(1)).unwrap();
    overlay
}

#[test]
fn a_settlement_that_needs_a_damaged_body_is_refused_and_nothing_else() {
    let (memory, told) = stored();
    let mut partition = TestPartition::open(Arc::new(memory.clone()), told.clone(), NOW).unwrap();
    partition.receive(10).unwrap();
    let place = flip(&memory, 7);
    partition.abandon_with(7, change()).unwrap();
    assert_eq!(partition.refusals(), [Refusal::Unreadable]);
    assert!(names(partition.damage(), &place), "{:?} is not {place:?}", partition.damage());
    // The lock is still held, and what needs no look at the body is possible.
    partition.abandon_with(8, change()).unwrap();
    partition.complete(7).unwrap();
    assert_eq!(partition.refusals(), []);
    assert!(told.lock().completed.contains(&7));
    partition.send(21).unwrap();
    assert!(told.lock().accepted.contains(&21));
}

#[test]
fn a_read_that_fails_is_refused_and_the_partition_goes_on() {
    let (memory, told) = stored();
    let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::Eio, u64::MAX));
    let mut partition = TestPartition::open_with(disk.clone(), told.clone(), NOW, options()).unwrap();
    partition.receive(10).unwrap();
    disk.fail_in(1);
    partition.abandon_with(7, change()).unwrap();
    assert_eq!(partition.refusals(), [Refusal::Unreadable]);
    partition.abandon_with(7, change()).unwrap();
    assert_eq!(partition.refusals(), []);
    partition.send(21).unwrap();
    assert!(told.lock().accepted.contains(&21));
}
