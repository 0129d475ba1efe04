//! What must hold of a disk after the process or the power went away, whatever it kept.

use crate::house::{Told, body, options};
use broker::{NamespaceId, Sequence};
use journal::disk::Memory;
use journal::{Journal, Local};
use otobus_engine::recover;
use std::collections::BTreeSet;
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
    let mut numbers = BTreeSet::new();
    // A message that was abandoned too often is in the dead-letter queue.
    for (sequence, slot) in queue.index.iter().chain(queue.dead.iter()) {
        assert!(Sequence(0) < sequence && sequence < queue.next, "{context}: a number was never given");
        assert!(numbers.insert(sequence), "{context}: a number was given twice");
        bytes += u64::from(slot.length);
        let place = journal.place(journal::BodyId(durable.stored_as(slot.body).0));
        let place = place.unwrap_or_else(|| panic!("{context}: the body of {sequence:?} is not there"));
        let stored = place.read().unwrap_or_else(|error| panic!("{context}: {error}"));
        let number = u32::from_le_bytes(*stored.first_chunk().unwrap());
        assert!(stored == body(number), "{context}: message {number} was altered");
        assert!(present.insert(number), "{context}: message {number} is there twice");
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
    // Numbers without gaps: each stored message took exactly one, and an unanswered send at most one more.
    let stored = told.accepted.len() as u64;
    let most = (told.tried.len() - told.refused.len()) as u64;
    assert!((stored..=most).contains(&(queue.next.0 - 1)), "{context}: numbers have gaps");
}
