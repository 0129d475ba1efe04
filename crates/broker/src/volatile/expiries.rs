//! When the messages of an entity expire: for each chunk of its index, the first instant at which that is worth a look. This
//! is the timer of the entity. It is no durable state: what is due and locked is passed over, and locks are volatile.

use crate::ids::Sequence;
use crate::limits::IDLE_TIMERS;
use crate::queue::index::{Index, chunk_of};
use crate::time::LocalTime;
use crate::touched::touched;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Expiries {
    /// By chunk; those in which nothing expires are not here.
    first: BTreeMap<u64, LocalTime>,
    in_order: BTreeSet<(LocalTime, u64)>,
}

impl Expiries {
    pub(super) fn of(index: &Index) -> Expiries {
        let mut expiries = Expiries::default();
        index.first_expiries().for_each(|(chunk, at)| expiries.set(chunk, at));
        expiries
    }

    /// A message that is there, in `index`, expires then.
    pub(super) fn add(&mut self, sequence: Sequence, at: LocalTime, index: &Index) {
        let chunk = chunk_of(sequence);
        let before = match self.first.last_key_value() {
            // Most messages are in the newest chunk and live longer than its first.
            Some((newest, first)) if *newest == chunk => Some(first),
            _ => self.first.get(&chunk),
        };
        if before.is_none_or(|first| at < *first) {
            self.set(chunk, at);
            // Chunks that are gone stay here until they outnumber the others; then all of them go at once.
            if self.first.len() > 2 * index.chunk_count() + IDLE_TIMERS {
                self.first.retain(|chunk, _| index.has_chunk(*chunk));
                self.in_order = self.first.iter().map(|(chunk, at)| (*at, *chunk)).collect();
            }
        }
    }

    /// Says when a chunk is next worth a look.
    pub(crate) fn set(&mut self, chunk: u64, at: LocalTime) {
        touched(1);
        let before = if at.is_never() { self.first.remove(&chunk) } else { self.first.insert(chunk, at) };
        if let Some(before) = before {
            self.in_order.remove(&(before, chunk));
        }
        if !at.is_never() {
            self.in_order.insert((at, chunk));
        }
    }

    /// When the first message expires, or earlier.
    pub(crate) fn earliest(&self) -> LocalTime {
        self.in_order.first().map_or(LocalTime::NEVER, |(at, _)| *at)
    }

    /// A chunk in which messages may have expired by `now`. It may be gone meanwhile.
    pub(crate) fn due(&self, now: LocalTime) -> Option<u64> {
        self.in_order.first().filter(|(at, _)| *at <= now).map(|(_, chunk)| *chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BodyId;
    use crate::queue::index::{CHUNK, Slot};

    fn put(index: &mut Index, expiries: &mut Expiries, number: u64, expires: i64) {
        index.push(Sequence(number), Slot::active(BodyId(number), 10, LocalTime(1), LocalTime(expires)));
        expiries.add(Sequence(number), LocalTime(expires), index);
    }

    #[test]
    fn each_chunk_has_one_timer_that_of_its_first() {
        let (mut index, mut expiries) = (Index::default(), Expiries::default());
        (1..=10 * CHUNK).for_each(|n| put(&mut index, &mut expiries, n, n as i64));
        assert_eq!((expiries.in_order.len(), expiries.earliest()), (11, LocalTime(1)));
        assert_eq!((expiries.due(LocalTime(0)), expiries.due(LocalTime(1))), (None, Some(0)));
        let rebuilt = Expiries::of(&index);
        assert_eq!((&rebuilt.first, &rebuilt.in_order), (&expiries.first, &expiries.in_order));
        expiries.set(0, LocalTime::NEVER);
        assert_eq!(expiries.earliest(), LocalTime(CHUNK as i64));
    }

    #[test]
    fn a_message_that_expires_before_those_that_came_first_sets_the_timer() {
        let (mut index, mut expiries) = (Index::default(), Expiries::default());
        put(&mut index, &mut expiries, 1, 500);
        put(&mut index, &mut expiries, 2, 400);
        put(&mut index, &mut expiries, 3, 450);
        assert_eq!((expiries.earliest(), expiries.in_order.len()), (LocalTime(400), 1));
    }

    #[test]
    fn timers_of_chunks_that_are_gone_do_not_pile_up() {
        let (mut index, mut expiries) = (Index::default(), Expiries::default());
        for n in (1..=10_000 * CHUNK).step_by(CHUNK as usize) {
            put(&mut index, &mut expiries, n, n as i64);
            index.remove(Sequence(n));
        }
        assert!(expiries.first.len() <= IDLE_TIMERS + 3, "{}", expiries.first.len());
        assert_eq!(expiries.first.len(), expiries.in_order.len());
    }
}
