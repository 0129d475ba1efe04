//! Up to 1,024 slots whose numbers follow each other. A chunk that is full enough is an array; one that has few
//! messages left, or never had many, is a sorted list, so that one old message does not hold the room of a thousand.

use super::slot::{Slot, State};
use crate::time::LocalTime;
use crate::touched::touched;

/// Slots in one chunk.
pub const CHUNK: u64 = 1_024;

/// A full chunk with fewer messages than this becomes a list, and a list with four times as many an array: far
/// enough apart that no chunk goes back and forth.
const SPARSE_BELOW: usize = CHUNK as usize / 16;
const DENSE_ABOVE: usize = SPARSE_BELOW * 4;

#[derive(Debug, Clone)]
enum Slots {
    /// Slot `i` is the chunk's `i`-th number. Grows to `CHUNK` as messages arrive.
    Dense(Vec<Slot>),
    /// By offset, which rises.
    Sparse(Vec<(u16, Slot)>),
}

#[derive(Debug, Clone)]
pub(super) struct Chunk {
    slots: Slots,
    live: u32,
    active: u32,
}

impl Chunk {
    pub(super) fn dense() -> Chunk {
        Chunk { slots: Slots::Dense(Vec::new()), live: 0, active: 0 }
    }

    pub(super) fn sparse() -> Chunk {
        Chunk { slots: Slots::Sparse(Vec::new()), ..Chunk::dense() }
    }

    /// What it takes in memory, with its place in the index.
    pub(super) fn held_bytes(&self) -> usize {
        let slots = match &self.slots {
            Slots::Dense(slots) => slots.capacity() * size_of::<Slot>(),
            Slots::Sparse(slots) => slots.capacity() * size_of::<(u16, Slot)>(),
        };
        slots + 2 * size_of::<Chunk>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(super) fn has_active(&self) -> bool {
        self.active > 0
    }

    pub(super) fn get(&self, at: usize) -> Option<&Slot> {
        touched(1);
        let slot = match &self.slots {
            Slots::Dense(slots) => slots.get(at)?,
            Slots::Sparse(slots) => &slots[place(slots, at).ok()?].1,
        };
        (slot.state() != State::Gone).then_some(slot)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Slot> {
        touched(1);
        let slot = match &mut self.slots {
            Slots::Dense(slots) => slots.get_mut(at)?,
            Slots::Sparse(slots) => {
                let place = place(slots, at).ok()?;
                &mut slots[place].1
            }
        };
        (slot.state() != State::Gone).then_some(slot)
    }

    /// Puts a message where there is none.
    pub(super) fn put(&mut self, at: usize, slot: Slot) {
        touched(1);
        self.live += 1;
        self.active += u32::from(slot.state() == State::Active);
        match &mut self.slots {
            Slots::Dense(slots) => {
                if slots.len() <= at {
                    slots.resize(at, Slot::GONE);
                    slots.push(slot);
                } else {
                    assert_eq!(slots[at].state(), State::Gone, "the number is taken");
                    slots[at] = slot;
                }
            }
            Slots::Sparse(slots) => {
                let place = place(slots, at).expect_err("the number is free");
                slots.insert(place, (at as u16, slot));
                if slots.len() > DENSE_ABOVE {
                    self.spread();
                }
            }
        }
    }

    pub(super) fn take(&mut self, at: usize) -> Option<Slot> {
        let slot = *self.get(at)?;
        match &mut self.slots {
            Slots::Dense(slots) => slots[at] = Slot::GONE,
            Slots::Sparse(slots) => drop(slots.remove(place(slots, at).ok()?)),
        }
        self.live -= 1;
        self.active -= u32::from(slot.state() == State::Active);
        Some(slot)
    }

    pub(super) fn set_state(&mut self, at: usize, state: State) {
        let slot = self.get_mut(at).expect("only a message that is there changes");
        let before = slot.state();
        slot.set_state(state);
        self.active -= u32::from(before == State::Active);
        self.active += u32::from(state == State::Active);
    }

    /// The first message at or after `at` for which `is_wanted`.
    pub(super) fn first_from(&self, at: usize, is_wanted: impl Fn(&Slot) -> bool) -> Option<(usize, &Slot)> {
        let found = match &self.slots {
            Slots::Dense(slots) => {
                let rest = slots.get(at..)?;
                let offset = rest.iter().position(is_wanted);
                touched(offset.map_or(rest.len(), |offset| offset + 1));
                (at + offset?, &rest[offset?])
            }
            Slots::Sparse(slots) => {
                let rest = &slots[place(slots, at).unwrap_or_else(|place| place)..];
                let offset = rest.iter().position(|(_, slot)| is_wanted(slot));
                touched(offset.map_or(rest.len(), |offset| offset + 1));
                (rest[offset?].0.into(), &rest[offset?].1)
            }
        };
        Some(found)
    }

    /// All messages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let (dense, sparse) = match &self.slots {
            Slots::Dense(slots) => (slots.as_slice(), [].as_slice()),
            Slots::Sparse(slots) => ([].as_slice(), slots.as_slice()),
        };
        let listed = sparse.iter().map(|(at, slot)| ((*at).into(), slot));
        dense.iter().enumerate().chain(listed).filter(|(_, slot)| slot.state() != State::Gone)
    }

    /// When the first of its active messages expires.
    pub(super) fn first_expiry(&self) -> LocalTime {
        let expiry = |slot: &Slot| (slot.state() == State::Active).then_some(slot.expires);
        let first = match &self.slots {
            Slots::Dense(slots) => slots.iter().filter_map(expiry).min(),
            Slots::Sparse(slots) => slots.iter().filter_map(|(_, slot)| expiry(slot)).min(),
        };
        first.unwrap_or(LocalTime::NEVER)
    }

    /// Makes a list of an array with few messages left. Not for the newest chunk, which still grows.
    pub(super) fn shrink(&mut self) {
        if let Slots::Dense(slots) = &self.slots
            && (self.live as usize) < SPARSE_BELOW
        {
            let live = slots.iter().enumerate().filter(|(_, slot)| slot.state() != State::Gone);
            self.slots = Slots::Sparse(live.map(|(at, slot)| (at as u16, *slot)).collect());
        }
    }

    pub(super) fn is_shrinkable(&self) -> bool {
        matches!(self.slots, Slots::Dense(_)) && (self.live as usize) < SPARSE_BELOW
    }

    fn spread(&mut self) {
        if let Slots::Sparse(slots) = &self.slots {
            let mut dense = vec![Slot::GONE; slots.last().map_or(0, |(at, _)| usize::from(*at) + 1)];
            slots.iter().for_each(|(at, slot)| dense[usize::from(*at)] = *slot);
            self.slots = Slots::Dense(dense);
        }
    }
}

fn place(slots: &[(u16, Slot)], at: usize) -> Result<usize, usize> {
    slots.binary_search_by_key(&at, |(at, _)| usize::from(*at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BodyId;

    fn slot(body: usize) -> Slot {
        Slot::active(BodyId(body as u64), 10, LocalTime(1), LocalTime::NEVER)
    }

    fn bodies(chunk: &Chunk) -> Vec<u64> {
        (0..CHUNK as usize).filter_map(|at| Some(chunk.get(at)?.body.0)).collect()
    }

    #[test]
    fn a_chunk_with_few_messages_left_holds_little_and_still_finds_them() {
        let mut chunk = Chunk::dense();
        (0..1_024).for_each(|at| chunk.put(at, slot(at)));
        (0..1_024).filter(|at| at % 20 != 0).for_each(|at| assert!(chunk.take(at).is_some()));
        assert!(chunk.is_shrinkable());
        chunk.shrink();
        assert!(matches!(&chunk.slots, Slots::Sparse(slots) if slots.len() == 52));
        assert_eq!(bodies(&chunk), (0..1_024).step_by(20).collect::<Vec<_>>());
        assert_eq!(chunk.first_from(21, |_| true).unwrap().0, 40);
        assert!(chunk.take(21).is_none());
        (0..1_024).step_by(20).for_each(|at| assert!(chunk.has_active() && chunk.take(at).is_some()));
        assert!(!chunk.has_active());
    }

    #[test]
    fn what_is_looked_at_is_counted() {
        for mut chunk in [Chunk::dense(), Chunk::sparse()] {
            (0..10).for_each(|at| chunk.put(at, slot(at)));
            crate::touched::take_touched();
            assert!(chunk.first_from(2, |slot| slot.body.0 == 6).is_some());
            assert_eq!(crate::touched::take_touched(), 5);
        }
    }

    #[test]
    fn messages_may_come_in_any_order_and_many_of_them_make_an_array() {
        let mut chunk = Chunk::sparse();
        (500..600).rev().for_each(|at| chunk.put(at, slot(at)));
        assert!(matches!(chunk.slots, Slots::Sparse(_)));
        (0..500).rev().for_each(|at| chunk.put(at, slot(at)));
        assert!(matches!(chunk.slots, Slots::Dense(_)));
        assert_eq!(bodies(&chunk), (0..600).collect::<Vec<_>>());
    }
}
