//! What must hold of a disk after the process or the power went away, whatever it kept.

use crate::owner::{Told, body, options};
use broker::{NamespaceId, Sequence};
use journal::disk::Memory;
use journal::{Journal, Local};
use otobus_engine::recover;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn judge(image: &Memory, told: &Told, context: &str) {
    let mut journal =
        Local::open(Arc::new(image.clone()), options()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let recovered = recover(&mut journal, 9).unwrap_or_else(|error| panic!("{context}: {error}"));
    let durable = &recovered.durable;
    let mut present = BTreeSet::new();
    let Some(entity) = durable.find(NamespaceId(0), "q") else {
        assert!(told.accepted.is_empty(), "{context}: the queue is gone");
        return;
    };
    let queue = durable.queue(entity).unwrap();
    let mut bytes = 0;
    let mut sequences = told.sequences.clone();
    // A message that was abandoned too often is in the dead-letter queue.
    for (sequence, slot) in queue.indexes().flat_map(|index| index.iter()) {
        assert!(Sequence(0) < sequence && sequence < queue.next, "{context}: a number was never given");
        bytes += u64::from(slot.length);
        let place = journal.place(journal::BodyId(durable.stored_as(slot.body).0));
        let place = place.unwrap_or_else(|| panic!("{context}: the body of {sequence:?} is not there"));
        let stored = place.read().unwrap_or_else(|error| panic!("{context}: {error}"));
        let number = u32::from_le_bytes(*stored.first_chunk().unwrap());
        assert!(stored == body(number), "{context}: message {number} was altered");
        assert!(present.insert(number), "{context}: message {number} is there twice");
        let before = sequences.insert(number, sequence.0);
        assert!(before.is_none_or(|before| before == sequence.0), "{context}: {number} has another number");
    }
    assert_eq!((present.len() as u64, bytes), (queue.counts.total(), queue.bytes), "{context}: counters");
    for number in &told.accepted {
        let may_be_gone = told.completing.contains(number);
        assert!(may_be_gone || present.contains(number), "{context}: accepted message {number} is lost");
    }
    for number in &present {
        assert!(told.tried.contains(number), "{context}: nobody sent message {number}");
        assert!(!told.refused.contains(number), "{context}: refused message {number} is there");
        assert!(!told.completed.contains(number), "{context}: completed message {number} came back");
    }
    check_numbers(told, &sequences, queue.next.0, context);
}

/// Numbers without gaps, in the order of sending: each message that was stored has taken the next one, and nothing else has
/// taken any. Messages are sent one after another, so this leaves no choice but for sends that were never answered: each of
/// those has taken one or none.
fn check_numbers(told: &Told, sequences: &BTreeMap<u32, u64>, next: u64, context: &str) {
    let (mut least, mut most) = (0, 0);
    for number in &told.tried {
        let is_accepted = told.accepted.contains(number);
        if told.refused.contains(number) {
            assert!(!sequences.contains_key(number), "{context}: refused message {number} has a number");
            continue;
        }
        match sequences.get(number) {
            // Known to be stored: it has the next number, and what is known about the ones before is exact from here on.
            Some(sequence) => {
                assert!(
                    (least + 1..=most + 1).contains(sequence),
                    "{context}: {number} is number {sequence}"
                );
                (least, most) = (*sequence, *sequence);
            }
            None => (least, most) = (least + u64::from(is_accepted), most + 1),
        }
    }
    assert!((least + 1..=most + 1).contains(&next), "{context}: the next number is {next}");
}
