//! A table whose keys are never used twice, so that an answer that comes late for a link that is gone cannot reach
//! the one that took its place.
//!
//! A key is a slot number and how often that slot was used before. A slot whose uses are used up is retired.

use std::collections::VecDeque;

const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
const LAST_USE: u32 = u32::MAX >> SLOT_BITS;

/// No entry has this key.
pub(crate) const NONE: u32 = u32::MAX;
/// Nor this one, which marks a place whose entry is gone.
pub(crate) const ENDED: u32 = u32::MAX - 1;

#[derive(Debug)]
pub(crate) struct Keyed<T> {
    slots: Vec<(u32, Option<T>)>,
    /// Oldest first, so that uses spread over the slots.
    free: VecDeque<u16>,
    live: usize,
}

impl<T> Keyed<T> {
    pub(crate) fn new() -> Self {
        Keyed { slots: Vec::new(), free: VecDeque::new(), live: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Adds what `make` makes of its own key; `None` when there are no keys left.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let slot = match self.free.pop_front() {
            Some(slot) => usize::from(slot),
            None if self.slots.len() < SLOTS => {
                self.slots.push((0, None));
                self.slots.len() - 1
            }
            None => return None,
        };
        let (used, entry) = &mut self.slots[slot];
        let key = *used << SLOT_BITS | slot as u32;
        *entry = Some(make(key));
        self.live += 1;
        Some(key)
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        let (used, entry) = self.slots.get(key as usize % SLOTS)?;
        entry.as_ref().filter(|_| *used == key >> SLOT_BITS)
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let (used, entry) = self.slots.get_mut(key as usize % SLOTS)?;
        entry.as_mut().filter(|_| *used == key >> SLOT_BITS)
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        self.get(key)?;
        let slot = key as usize % SLOTS;
        let (used, entry) = &mut self.slots[slot];
        *used += 1;
        // The last use is never given out: its keys in the last slots would be `NONE` and `ENDED`.
        if *used < LAST_USE {
            self.free.push_back(slot as u16);
        }
        self.live -= 1;
        entry.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_entry() {
        let mut table = Keyed::new();
        let first = table.insert(|_| 'a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert(|_| 'b').unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(table.get(NONE), None);
    }

    #[test]
    fn a_full_table_refuses_and_takes_again_after_a_removal() {
        let mut table = Keyed::new();
        let keys: Vec<_> = (0..SLOTS).map(|n| table.insert(|_| n).unwrap()).collect();
        assert_eq!((table.len(), table.insert(|_| 0)), (SLOTS, None));
        table.remove(keys[7]);
        assert!(table.insert(|_| 0).is_some());
    }

    #[test]
    fn a_slot_is_retired_rather_than_reused_under_an_old_key() {
        let mut table = Keyed::new();
        let mut last = None;
        for _ in 0..=LAST_USE {
            let key = table.insert(|_| ()).unwrap();
            assert!(last != Some(key) && key != NONE);
            table.remove(key);
            last = Some(key);
        }
        assert_eq!(last, Some(1), "the second slot takes over");
    }
}
