//! Recent changes in memory, each with the version under which it was written.

use super::key::{Key, Ordered, Probe};
use crate::limits::{ENTRY_OVERHEAD_BYTES, SCAN_CHUNK};
use bytes::Bytes;
use items::Direction;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

type Value = Option<Bytes>;

/// Takes entries in order.
pub(super) type Visit<'v> = &'v mut dyn FnMut(&mut dyn Iterator<Item = (Bytes, Value)>);

/// The values of a key. Mostly there is one.
#[derive(Debug)]
struct Slot {
    version: u64,
    value: Value,
    /// Oldest first. A box, because almost no entry has any.
    #[expect(clippy::box_collection, reason = "a third of the size")]
    older: Option<Box<Vec<(u64, Value)>>>,
}

impl Slot {
    /// What a view of all below `at` shows; the outer `None` if the table says nothing about it.
    fn at(&self, at: u64) -> Option<&Value> {
        if self.version < at {
            return Some(&self.value);
        }
        let older = self.older.as_ref()?;
        older.iter().rev().find(|(version, _)| *version < at).map(|(_, value)| value)
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: RwLock<BTreeMap<Key, Slot>>,
    bytes: AtomicU64,
}

impl Table {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, Slot>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, changes: &mut Vec<(Bytes, Value)>, version: u64) {
        let mut added = 0;
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in changes.drain(..) {
            let length = |value: &Value| value.as_ref().map_or(0, |value| value.len() as u64);
            added += length(&value) + ENTRY_OVERHEAD_BYTES;
            match entries.entry(key.into()) {
                Entry::Occupied(mut entry) => {
                    let slot = entry.get_mut();
                    let before = std::mem::replace(&mut slot.value, value);
                    // Written twice at once: nobody can have seen the first.
                    if slot.version != version {
                        slot.older.get_or_insert_default().push((slot.version, before));
                        slot.version = version;
                    }
                }
                Entry::Vacant(entry) => {
                    added += entry.key().bytes.len() as u64;
                    entry.insert(Slot { version, value, older: None });
                }
            }
        }
        drop(entries);
        self.bytes.fetch_add(added, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, key: &[u8], at: u64) -> Option<Value> {
        let probe: &dyn Ordered = &Probe::new(key);
        self.read().get(probe).and_then(|slot| slot.at(at)).cloned()
    }

    /// The next entries between the bounds.
    fn chunk(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at: u64,
    ) -> Vec<(Bytes, Value)> {
        let entries = self.read();
        let (from, to) = (range.0.map(Probe::new), range.1.map(Probe::new));
        let from = from.as_ref().map(|probe| probe as &dyn Ordered);
        let to = to.as_ref().map(|probe| probe as &dyn Ordered);
        let range = entries.range::<dyn Ordered, _>((from, to));
        let shown = |(key, slot): (&Key, &Slot)| Some((key.bytes.clone(), slot.at(at)?.clone()));
        match direction {
            Direction::Ascending => range.filter_map(shown).take(SCAN_CHUNK).collect(),
            Direction::Descending => range.rev().filter_map(shown).take(SCAN_CHUNK).collect(),
        }
    }

    /// Entries with `from <= key < to` as a view of all below `at` shows them, those that are removed among them.
    pub(super) fn scan<'t>(
        &'t self,
        from: &[u8],
        to: &[u8],
        direction: Direction,
        at: u64,
    ) -> impl Iterator<Item = (Bytes, Value)> + use<'t> {
        let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let mut chunk: std::vec::IntoIter<(Bytes, Value)> = Vec::new().into_iter();
        let mut last: Option<Bytes> = None;
        let mut is_done = false;
        std::iter::from_fn(move || {
            if let Some(entry) = chunk.next() {
                return Some(entry);
            }
            if is_done {
                return None;
            }
            let range = match (&last, direction) {
                (Some(last), Direction::Ascending) => (Bound::Excluded(&last[..]), Bound::Excluded(&to[..])),
                (Some(last), Direction::Descending) => {
                    (Bound::Included(&from[..]), Bound::Excluded(&last[..]))
                }
                (None, _) => (Bound::Included(&from[..]), Bound::Excluded(&to[..])),
            };
            let next = self.chunk(range, direction, at);
            is_done = next.len() < SCAN_CHUNK;
            last = next.last().map(|(key, _)| key.clone());
            chunk = next.into_iter();
            chunk.next()
        })
    }

    /// Everything as it is now, in order. For a table that nobody writes to any more.
    pub(super) fn each(&self, visit: Visit<'_>) {
        let entries = self.read();
        visit(&mut entries.iter().map(|(key, slot)| (key.bytes.clone(), slot.value.clone())));
    }

    /// The same, in place.
    pub(super) fn look(&self, mut look: impl FnMut(&[u8], Option<&Bytes>)) {
        self.read().iter().for_each(|(key, slot)| look(&key.bytes, slot.value.as_ref()));
    }
}
