//! Where the background removal goes on.
//!
//! It looks for the first entry of a range, removes it, and looks again. In a store that remembers removals for a while each
//! look would pass everything that was removed before; so the first entry that was found is remembered, and the next look begins
//! there. Whatever is written before it is the first entry then.

use crate::limits::SKIPPED_RANGES;
use bytes::Bytes;
use items::{Changes, Direction, Entries, Unreadable, View};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The first entry of ranges, by where they begin: what is between is empty.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    firsts: RefCell<BTreeMap<Bytes, Bytes>>,
}

impl Skips {
    /// Entries were written: one of them may be the first of a range now.
    pub(crate) fn written(&self, changes: &Changes) {
        let mut firsts = self.firsts.borrow_mut();
        if firsts.is_empty() {
            return;
        }
        for (key, value) in &changes.entries {
            if value.is_none() {
                continue;
            }
            let before = firsts.range_mut(..=key.clone()).filter(|(_, first)| key < *first);
            // Copies: an entry is a small part of what it holds.
            before.for_each(|(_, first)| *first = Bytes::copy_from_slice(key));
        }
    }

    fn begin(&self, from: &[u8]) -> Option<Bytes> {
        self.firsts.borrow().get(from).cloned()
    }

    fn found(&self, from: Bytes, first: Bytes) {
        let mut firsts = self.firsts.borrow_mut();
        if firsts.len() >= SKIPPED_RANGES {
            firsts.clear();
        }
        firsts.insert(from, first);
    }
}

/// A view in which scans that were made before begin where something is.
#[derive(Debug)]
pub(crate) struct Skipping<'a, V: View + ?Sized> {
    pub(crate) view: &'a V,
    pub(crate) skips: &'a Skips,
}

impl<V: View + ?Sized> View for Skipping<'_, V> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        self.view.get(key)
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        if direction == Direction::Descending {
            return self.view.scan(from, to, direction);
        }
        let begin = self.skips.begin(from);
        let start = begin.as_deref().unwrap_or(from);
        let entries = self.view.scan(start, to, direction);
        let (from, end) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let mut is_first = true;
        let mut entries = entries;
        Box::new(std::iter::from_fn(move || {
            let entry = entries.next();
            if std::mem::take(&mut is_first) {
                match &entry {
                    Some(Ok((key, _))) => self.skips.found(from.clone(), Bytes::copy_from_slice(key)),
                    None if from < end => self.skips.found(from.clone(), end.clone()),
                    _ => {}
                }
            }
            entry
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use items::Memory;

    fn first(memory: &Memory, skips: &Skips) -> Option<Bytes> {
        let view = Skipping { view: memory, skips };
        let first = view.scan(b"b", b"y", Direction::Ascending).next();
        first.map(|entry| entry.unwrap().0)
    }

    fn take(memory: &mut Memory, skips: &Skips, key: &str, value: Option<&str>) {
        let mut changes = Changes::default();
        let key = Bytes::copy_from_slice(key.as_bytes());
        changes.entries.push((key, value.map(|value| Bytes::copy_from_slice(value.as_bytes()))));
        skips.written(&changes);
        memory.take(changes);
    }

    #[test]
    fn a_scan_begins_where_the_last_one_found_something_unless_something_came_before() {
        let (mut memory, skips) = (Memory::default(), Skips::default());
        for key in ["a", "c", "e", "g", "z"] {
            take(&mut memory, &skips, key, Some("1"));
        }
        assert_eq!(first(&memory, &skips).as_deref(), Some(&b"c"[..]));
        take(&mut memory, &skips, "c", None);
        assert_eq!(first(&memory, &skips).as_deref(), Some(&b"e"[..]));
        assert_eq!(skips.begin(b"b").as_deref(), Some(&b"e"[..]));
        take(&mut memory, &skips, "a", Some("2"));
        assert_eq!(skips.begin(b"b").as_deref(), Some(&b"e"[..]), "it is before the range");
        take(&mut memory, &skips, "d", Some("2"));
        assert_eq!(first(&memory, &skips).as_deref(), Some(&b"d"[..]));
        for key in ["d", "e", "g"] {
            take(&mut memory, &skips, key, None);
        }
        assert_eq!(first(&memory, &skips), None);
        assert_eq!(skips.begin(b"b").as_deref(), Some(&b"y"[..]));
        take(&mut memory, &skips, "x", Some("3"));
        assert_eq!(first(&memory, &skips).as_deref(), Some(&b"x"[..]));
    }
}
