//! The index of a queue: one slot of 32 bytes for each message, in chunks of 1,024 by sequence number.
//!
//! A chunk is shared by `Arc`: a snapshot clones the list of chunks and writes it out elsewhere, and the queue copies a
//! chunk only when it changes one that a snapshot still holds. A chunk without messages is given up, so memory follows
//! the backlog, not the history.

use crate::ids::{BodyId, Sequence};
use crate::time::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// Slots in one chunk.
pub const CHUNK: u64 = 1_024;

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not here: settled, or never was.
    Gone = 0,
    Active = 1,
}

/// One message. Locks, changed properties and whatever else few messages have are in side maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    pub body: BodyId,
    pub enqueued: Time,
    pub expires: Time,
    pub length: u32,
    /// Failed deliveries in the low 28 bits, [`State`] in the high four.
    count_and_state: u32,
}

/// Numbers in which a snapshot writes a slot.
pub(crate) const SLOT_NUMBERS: usize = 5;

const COUNT_BITS: u32 = 28;
const COUNT_MOST: u32 = (1 << COUNT_BITS) - 1;

impl Slot {
    const GONE: Slot =
        Slot { body: BodyId(0), enqueued: Time(0), expires: Time(0), length: 0, count_and_state: 0 };

    pub fn active(body: BodyId, length: u32, enqueued: Time, expires: Time) -> Slot {
        Slot { body, enqueued, expires, length, count_and_state: (State::Active as u32) << COUNT_BITS }
    }

    /// Everything that a snapshot keeps, as numbers; the body first.
    pub(crate) fn to_numbers(self) -> [u64; SLOT_NUMBERS] {
        let Slot { body, enqueued, expires, length, count_and_state } = self;
        [body.0, enqueued.0 as u64, expires.0 as u64, length.into(), count_and_state.into()]
    }

    /// A slot from what a snapshot has kept; `None` when that is not one that ever was.
    pub(crate) fn from_numbers(numbers: [u64; SLOT_NUMBERS]) -> Option<Slot> {
        let [body, enqueued, expires, length, count_and_state] = numbers;
        let slot = Slot {
            body: BodyId(body),
            enqueued: Time(enqueued as i64),
            expires: Time(expires as i64),
            length: length.try_into().ok()?,
            count_and_state: count_and_state.try_into().ok()?,
        };
        (slot.state() != State::Gone).then_some(slot)
    }

    pub fn state(&self) -> State {
        match self.count_and_state >> COUNT_BITS {
            1 => State::Active,
            _ => State::Gone,
        }
    }

    pub fn count(&self) -> u32 {
        self.count_and_state & COUNT_MOST
    }

    /// One more failed delivery. The count stops at its most rather than run into the state.
    pub fn raise_count(&mut self) {
        if self.count() < COUNT_MOST {
            self.count_and_state += 1;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Chunk {
    /// Slot `i` is sequence `chunk number * CHUNK + i`. Grows to `CHUNK` as messages arrive.
    slots: Vec<Slot>,
    live: u32,
}

/// All messages of one queue, by sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Index {
    /// The chunk number of the first element of `chunks`.
    first_chunk: u64,
    chunks: VecDeque<Option<Arc<Chunk>>>,
}

fn split(sequence: Sequence) -> (u64, usize) {
    (sequence.0 / CHUNK, (sequence.0 % CHUNK) as usize)
}

impl Index {
    /// Adds the newest message. Sequences only rise.
    pub fn push(&mut self, sequence: Sequence, slot: Slot) {
        let (number, at) = split(sequence);
        if self.chunks.is_empty() {
            self.first_chunk = number;
        }
        while self.first_chunk + (self.chunks.len() as u64) <= number {
            self.chunks.push_back(None);
        }
        let place = (number - self.first_chunk) as usize;
        let chunk = Arc::make_mut(self.chunks[place].get_or_insert_with(Arc::default));
        assert!(chunk.slots.len() <= at, "sequence {} is taken", sequence.0);
        chunk.slots.resize(at, Slot::GONE);
        chunk.slots.push(slot);
        chunk.live += 1;
    }

    pub fn get(&self, sequence: Sequence) -> Option<&Slot> {
        let (number, at) = split(sequence);
        let place = number.checked_sub(self.first_chunk)? as usize;
        let slot = self.chunks.get(place)?.as_ref()?.slots.get(at)?;
        (slot.state() != State::Gone).then_some(slot)
    }

    pub fn get_mut(&mut self, sequence: Sequence) -> Option<&mut Slot> {
        let (number, at) = split(sequence);
        let place = number.checked_sub(self.first_chunk)? as usize;
        let chunk = self.chunks.get_mut(place)?.as_mut()?;
        if chunk.slots.get(at)?.state() == State::Gone {
            return None;
        }
        Arc::make_mut(chunk).slots.get_mut(at)
    }

    /// Removes a message and says what it was.
    pub fn remove(&mut self, sequence: Sequence) -> Option<Slot> {
        let slot = std::mem::replace(self.get_mut(sequence)?, Slot::GONE);
        let place = (split(sequence).0 - self.first_chunk) as usize;
        let chunk = self.chunks[place].as_mut().map(Arc::make_mut).expect("the slot was in it");
        chunk.live -= 1;
        if chunk.live == 0 {
            self.chunks[place] = None;
            self.give_up_front();
        }
        Some(slot)
    }

    fn give_up_front(&mut self) {
        while let Some(None) = self.chunks.front() {
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    /// The first message at or after `from`. Chunks that are gone cost one step each.
    pub fn next_from(&self, from: Sequence) -> Option<(Sequence, &Slot)> {
        let (number, at) = split(from);
        let (mut place, mut at) = match number.checked_sub(self.first_chunk) {
            Some(place) => (place as usize, at),
            None => (0, 0),
        };
        while let Some(chunk) = self.chunks.get(place) {
            if let Some(chunk) = chunk
                && let Some(offset) = chunk
                    .slots
                    .get(at..)
                    .and_then(|slots| slots.iter().position(|s| s.state() != State::Gone))
            {
                let sequence = (self.first_chunk + place as u64) * CHUNK + (at + offset) as u64;
                return Some((Sequence(sequence), &chunk.slots[at + offset]));
            }
            (place, at) = (place + 1, 0);
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = (Sequence, &Slot)> {
        let mut next = Sequence(0);
        std::iter::from_fn(move || {
            let (sequence, slot) = self.next_from(next)?;
            next = sequence.next();
            Some((sequence, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(body: u64) -> Slot {
        Slot::active(BodyId(body), 10, Time(1), Time::NEVER)
    }

    fn filled(count: u64) -> Index {
        let mut index = Index::default();
        (1..=count).for_each(|n| index.push(Sequence(n), slot(n)));
        index
    }

    #[test]
    fn a_slot_has_32_bytes() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn messages_are_found_by_number_across_chunks() {
        let index = filled(3 * CHUNK);
        for n in [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            assert_eq!(index.get(Sequence(n)).unwrap().body, BodyId(n));
        }
        assert!(index.get(Sequence(0)).is_none());
        assert!(index.get(Sequence(3 * CHUNK + 1)).is_none());
        assert_eq!(index.iter().count() as u64, 3 * CHUNK);
    }

    #[test]
    fn chunks_without_messages_are_given_up() {
        let mut index = filled(10 * CHUNK);
        (1..=9 * CHUNK).for_each(|n| assert!(index.remove(Sequence(n)).is_some()));
        assert!(index.chunks.len() <= 2);
        assert_eq!(index.next_from(Sequence(1)).unwrap().0, Sequence(9 * CHUNK + 1));
        assert!(index.remove(Sequence(5)).is_none());
    }

    #[test]
    fn a_hole_in_the_middle_is_stepped_over() {
        let mut index = filled(5 * CHUNK);
        (2..=4 * CHUNK).for_each(|n| assert!(index.remove(Sequence(n)).is_some()));
        assert_eq!(index.next_from(Sequence(2)).unwrap().0, Sequence(4 * CHUNK + 1));
    }

    #[test]
    fn a_snapshot_keeps_what_it_saw() {
        let mut index = filled(10);
        let snapshot = index.clone();
        index.get_mut(Sequence(3)).unwrap().raise_count();
        index.remove(Sequence(4));
        assert_eq!(snapshot.get(Sequence(3)).unwrap().count(), 0);
        assert!(snapshot.get(Sequence(4)).is_some());
        assert_eq!(index.get(Sequence(3)).unwrap().count(), 1);
    }

    #[test]
    fn the_count_never_runs_into_the_state() {
        let mut slot = slot(1);
        slot.count_and_state |= COUNT_MOST;
        slot.raise_count();
        assert_eq!((slot.count(), slot.state()), (COUNT_MOST, State::Active));
    }
}
