//! The index of a queue: one slot of 32 bytes for each message, in chunks by sequence number.
//!
//! A chunk is shared by `Arc`: a snapshot clones the list of chunks and writes it out elsewhere, and the queue copies a
//! chunk only when it changes one that a snapshot still holds. A chunk without messages is given up, so memory follows
//! the backlog, not the history.

use super::chunk::Chunk;
use crate::ids::Sequence;
use crate::time::LocalTime;
use crate::touched::touched;
use std::collections::VecDeque;
use std::sync::Arc;

pub use super::chunk::CHUNK;
pub(crate) use super::slot::SLOT_NUMBERS;
pub use super::slot::{Reason, Slot, State};

#[derive(Debug, Clone)]
struct Numbered {
    /// The sequence number of the chunk's first slot, divided by `CHUNK`.
    number: u64,
    chunk: Arc<Chunk>,
}

/// Messages of one queue, by sequence.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By number, which rises, perhaps with gaps.
    chunks: VecDeque<Numbered>,
}

/// The chunk that a message is in.
pub(crate) fn chunk_of(sequence: Sequence) -> u64 {
    split(sequence).0
}

fn split(sequence: Sequence) -> (u64, usize) {
    (sequence.0 / CHUNK, (sequence.0 % CHUNK) as usize)
}

fn join(number: u64, at: usize) -> Sequence {
    Sequence(number * CHUNK + at as u64)
}

impl Index {
    /// Adds the newest message. Sequences only rise.
    pub fn push(&mut self, sequence: Sequence, slot: Slot) {
        let (number, at) = split(sequence);
        match self.chunks.back() {
            Some(last) if last.number == number => {}
            Some(last) => {
                assert!(last.number < number, "sequence {} is not the newest", sequence.0);
                self.shrink(self.chunks.len() - 1);
                self.chunks.push_back(Numbered { number, chunk: Arc::new(Chunk::dense()) });
            }
            None => self.chunks.push_back(Numbered { number, chunk: Arc::new(Chunk::dense()) }),
        }
        let last = self.chunks.back_mut().expect("it was there or was added");
        Arc::make_mut(&mut last.chunk).put(at, slot);
    }

    /// Adds a message anywhere: to a dead-letter queue, or one that waits for its time.
    pub fn insert(&mut self, sequence: Sequence, slot: Slot) {
        let (number, at) = split(sequence);
        let place = self.place(number).unwrap_or_else(|place| {
            self.chunks.insert(place, Numbered { number, chunk: Arc::new(Chunk::sparse()) });
            place
        });
        Arc::make_mut(&mut self.chunks[place].chunk).put(at, slot);
    }

    pub fn get(&self, sequence: Sequence) -> Option<&Slot> {
        let (number, at) = split(sequence);
        self.chunks[self.place(number).ok()?].chunk.get(at)
    }

    pub fn get_mut(&mut self, sequence: Sequence) -> Option<&mut Slot> {
        let (number, at) = split(sequence);
        let place = self.place(number).ok()?;
        Arc::make_mut(&mut self.chunks[place].chunk).get_mut(at)
    }

    pub fn set_state(&mut self, sequence: Sequence, state: State) {
        let (number, at) = split(sequence);
        let place = self.place(number).expect("only a message that is there changes");
        Arc::make_mut(&mut self.chunks[place].chunk).set_state(at, state);
    }

    /// Removes a message and says what it was.
    pub fn remove(&mut self, sequence: Sequence) -> Option<Slot> {
        let (number, at) = split(sequence);
        let place = self.place(number).ok()?;
        self.chunks[place].chunk.get(at)?;
        let is_last = place + 1 == self.chunks.len();
        let chunk = Arc::make_mut(&mut self.chunks[place].chunk);
        let slot = chunk.take(at)?;
        if chunk.is_empty() {
            self.chunks.remove(place);
        } else if !is_last && chunk.is_shrinkable() {
            chunk.shrink();
        }
        Some(slot)
    }

    fn shrink(&mut self, place: usize) {
        let chunk = &mut self.chunks[place].chunk;
        if chunk.is_shrinkable() {
            Arc::make_mut(chunk).shrink();
        }
    }

    /// Where the chunk is, or where it would be. Without gaps its place is its distance from the first.
    fn place(&self, number: u64) -> Result<usize, usize> {
        let Some(first) = self.chunks.front() else { return Err(0) };
        let Some(distance) = number.checked_sub(first.number) else { return Err(0) };
        let guess = usize::try_from(distance).unwrap_or(usize::MAX).min(self.chunks.len() - 1);
        touched(1);
        if self.chunks[guess].number == number {
            return Ok(guess);
        }
        touched(guess.max(1).ilog2() as usize);
        self.chunks.binary_search_by_key(&number, |chunk| chunk.number)
    }

    /// The first message at or after `from`.
    pub fn next_from(&self, from: Sequence) -> Option<(Sequence, &Slot)> {
        self.first_from(from, |_| true, |slot| slot.state() != State::Gone)
    }

    /// The first active message at or after `from`. Chunks without one cost a step each.
    pub fn next_active_from(&self, from: Sequence) -> Option<(Sequence, &Slot)> {
        self.first_from(from, Chunk::has_active, |slot| slot.state() == State::Active)
    }

    fn first_from(
        &self,
        from: Sequence,
        may_have: impl Fn(&Chunk) -> bool,
        is_wanted: impl Fn(&Slot) -> bool,
    ) -> Option<(Sequence, &Slot)> {
        let (number, at) = split(from);
        let (mut place, mut at) = match self.place(number) {
            Ok(place) => (place, at),
            Err(place) => (place, 0),
        };
        while let Some(Numbered { number, chunk }) = self.chunks.get(place) {
            touched(1);
            if may_have(chunk)
                && let Some((at, slot)) = chunk.first_from(at, &is_wanted)
            {
                return Some((join(*number, at), slot));
            }
            (place, at) = (place + 1, 0);
        }
        None
    }

    /// All messages, in order. Looks for no chunk: a snapshot walks through millions.
    pub fn iter(&self) -> impl Iterator<Item = (Sequence, &Slot)> {
        self.chunks
            .iter()
            .flat_map(|Numbered { number, chunk }| chunk.iter().map(|(at, slot)| (join(*number, at), slot)))
    }

    /// What it takes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunks.iter().map(|numbered| numbered.chunk.held_bytes()).sum()
    }

    /// For each chunk, when the first of its active messages expires.
    pub(crate) fn first_expiries(&self) -> impl Iterator<Item = (u64, LocalTime)> + '_ {
        self.chunks.iter().map(|Numbered { number, chunk }| (*number, chunk.first_expiry()))
    }

    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn has_chunk(&self, number: u64) -> bool {
        self.place(number).is_ok()
    }

    /// The messages of one chunk.
    pub(crate) fn chunk(&self, number: u64) -> impl Iterator<Item = (Sequence, &Slot)> {
        let chunk = self.place(number).ok().map(|place| &self.chunks[place].chunk);
        let mut next = 0;
        std::iter::from_fn(move || {
            let (at, slot) = chunk?.first_from(next, |slot| slot.state() != State::Gone)?;
            next = at + 1;
            Some((join(number, at), slot))
        })
    }
}

impl PartialEq for Index {
    fn eq(&self, other: &Index) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Index {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BodyId;

    fn slot(body: u64) -> Slot {
        Slot::active(BodyId(body), 10, LocalTime(1), LocalTime::NEVER)
    }

    fn filled(count: u64) -> Index {
        let mut index = Index::default();
        (1..=count).for_each(|n| index.push(Sequence(n), slot(n)));
        index
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
    fn one_old_message_does_not_hold_the_room_of_those_that_left() {
        let mut index = filled(1);
        for n in 2..=100 * CHUNK {
            index.push(Sequence(n), slot(n));
            index.remove(Sequence(n));
        }
        assert_eq!(index.chunks.len(), 1);
        assert_eq!(index.get(Sequence(1)).unwrap().body, BodyId(1));
        index.push(Sequence(100 * CHUNK + 1), slot(7));
        assert_eq!(index.get(Sequence(100 * CHUNK + 1)).unwrap().body, BodyId(7));
        assert!(index.get(Sequence(50 * CHUNK)).is_none());
    }

    #[test]
    fn a_hole_in_the_middle_is_stepped_over() {
        let mut index = filled(5 * CHUNK);
        (2..=4 * CHUNK).for_each(|n| assert!(index.remove(Sequence(n)).is_some()));
        assert_eq!(index.next_from(Sequence(2)).unwrap().0, Sequence(4 * CHUNK + 1));
        assert_eq!(index.get(Sequence(5 * CHUNK)).unwrap().body, BodyId(5 * CHUNK));
    }

    #[test]
    fn messages_put_in_out_of_order_come_out_in_order() {
        let mut index = Index::default();
        for n in [5 * CHUNK, 3, 2 * CHUNK + 1, 4] {
            index.insert(Sequence(n), slot(n));
        }
        let order: Vec<_> = index.iter().map(|(sequence, _)| sequence.0).collect();
        assert_eq!(order, [3, 4, 2 * CHUNK + 1, 5 * CHUNK]);
    }

    #[test]
    fn the_next_active_message_is_found_behind_others() {
        let mut index = filled(4 * CHUNK);
        (1..4 * CHUNK).for_each(|n| index.set_state(Sequence(n), State::Deferred));
        assert_eq!(index.next_active_from(Sequence(1)).unwrap().0, Sequence(4 * CHUNK));
        index.set_state(Sequence(4 * CHUNK), State::Deferred);
        assert_eq!(index.next_active_from(Sequence(1)), None);
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
}
