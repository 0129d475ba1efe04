//! What is stored, as a decision or a read sees it: ordered keys and values.
//!
//! The engine's store, its table of what is not in the store yet, and the simulator's are all views. [`Memory`] is the plain one
//! for tests; [`ChangedView`] puts changes over a view, so that the operations of a batch see each other.

use crate::Refusal;
use crate::limits::{LARGEST_SHARED_ENTRY, SHARED_ENTRY_BYTES};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The store could not be read. Nobody can say what it holds, so nothing is decided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store of the items cannot be read: {0}")]
pub struct Unreadable(pub String);

impl From<Unreadable> for Refusal {
    fn from(_: Unreadable) -> Refusal {
        Refusal::Stopped
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

pub type Entry = (Bytes, Bytes);
pub type Entries<'a> = Box<dyn Iterator<Item = Result<Entry, Unreadable>> + 'a>;

pub trait View {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable>;

    /// Entries with `from <= key < to`, lazily.
    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a>;
}

/// What applying records changes in the ordered store, in order; `None` removes. A later entry of the same key wins.
///
/// Keys and values are copied into large pieces of memory that many entries share: an upsert has about ten of them, and a piece of memory for
/// each would cost more than the copy, in time and in space.
#[derive(Debug, Default)]
pub struct Changes {
    pub entries: Vec<(Bytes, Option<Bytes>)>,
    room: BytesMut,
}

impl Changes {
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (self.hold(key.as_ref()), self.hold(value.as_ref()));
        self.entries.push((key, Some(value)));
    }

    pub fn remove(&mut self, key: impl AsRef<[u8]>) {
        let key = self.hold(key.as_ref());
        self.entries.push((key, None));
    }

    fn hold(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if bytes.len() > LARGEST_SHARED_ENTRY {
            return Bytes::copy_from_slice(bytes);
        }
        if self.room.capacity() < bytes.len() {
            self.room = BytesMut::with_capacity(SHARED_ENTRY_BYTES);
        }
        self.room.extend_from_slice(bytes);
        self.room.split().freeze()
    }
}

/// Everything in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    pub entries: BTreeMap<Bytes, Bytes>,
}

impl Memory {
    pub fn take(&mut self, changes: Changes) {
        for (key, value) in changes.entries {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
    }
}

impl View for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        Ok(self.entries.get(key).cloned())
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let range = self.entries.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let owned = |(key, value): (&Bytes, &Bytes)| Ok((key.clone(), value.clone()));
        match direction {
            Direction::Ascending => Box::new(range.map(owned)),
            Direction::Descending => Box::new(range.rev().map(owned)),
        }
    }
}

/// A view with changes over it.
pub struct ChangedView<'v> {
    below: &'v dyn View,
    changed: BTreeMap<Bytes, Option<Bytes>>,
}

impl std::fmt::Debug for ChangedView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangedView").field("changed", &self.changed.len()).finish_non_exhaustive()
    }
}

impl<'v> ChangedView<'v> {
    pub fn new(below: &'v dyn View) -> ChangedView<'v> {
        ChangedView { below, changed: BTreeMap::new() }
    }

    pub fn take(&mut self, changes: &Changes) {
        for (key, value) in &changes.entries {
            self.changed.insert(key.clone(), value.clone());
        }
    }
}

impl View for ChangedView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        match self.changed.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let range = self.changed.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let owned = |(key, value): (&Bytes, &Option<Bytes>)| (key.clone(), value.clone());
        let over: Box<dyn Iterator<Item = (Bytes, Option<Bytes>)> + 'a> = match direction {
            Direction::Ascending => Box::new(range.map(owned)),
            Direction::Descending => Box::new(range.rev().map(owned)),
        };
        Box::new(Merged {
            below: self.below.scan(from, to, direction).peekable(),
            over: over.peekable(),
            direction,
        })
    }
}

/// Two ordered scans as one; where both have a key, the upper one counts.
struct Merged<'a> {
    below: std::iter::Peekable<Entries<'a>>,
    over: std::iter::Peekable<Box<dyn Iterator<Item = (Bytes, Option<Bytes>)> + 'a>>,
    direction: Direction,
}

impl Iterator for Merged<'_> {
    type Item = Result<Entry, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let below = match self.below.peek() {
                Some(Err(_)) => return self.below.next(),
                Some(Ok((key, _))) => Some(key),
                None => None,
            };
            let order = match (below, self.over.peek()) {
                (None, None) => return None,
                (Some(_), None) => return self.below.next(),
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(below), Some((over, _))) => match self.direction {
                    Direction::Ascending => below.cmp(over),
                    Direction::Descending => over.cmp(below),
                },
            };
            if order.is_lt() {
                return self.below.next();
            }
            if order.is_eq() {
                self.below.next();
            }
            if let Some((key, Some(value))) = self.over.next() {
                return Some(Ok((key, value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(entries: Entries<'_>) -> Vec<(Bytes, Bytes)> {
        entries.map(|entry| entry.expect("memory can be read")).collect()
    }

    #[test]
    fn an_overlay_shows_what_it_changes_in_both_directions() {
        let mut memory = Memory::default();
        for key in ["a", "b", "c", "d"] {
            memory.entries.insert(key.into(), "old".into());
        }
        let mut changes = Changes::default();
        changes.remove("b");
        changes.put("c", "new");
        changes.put("ca", "new");
        changes.put("e", "new");
        let mut overlay = ChangedView::new(&memory);
        overlay.take(&changes);
        let mut expected = memory.clone();
        expected.take(changes);
        for direction in [Direction::Ascending, Direction::Descending] {
            for (from, to) in [("a", "z"), ("b", "d"), ("c", "ca"), ("z", "a")] {
                assert_eq!(
                    keys(overlay.scan(from.as_bytes(), to.as_bytes(), direction)),
                    keys(expected.scan(from.as_bytes(), to.as_bytes(), direction)),
                );
            }
        }
        assert_eq!(overlay.get(b"b"), Ok(None));
        assert_eq!(overlay.get(b"c"), Ok(Some("new".into())));
        assert_eq!(overlay.get(b"d"), Ok(Some("old".into())));
    }
}
