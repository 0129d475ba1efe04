//! A view that remembers what it was asked for: applying a decision looks at the same few entries that deciding has looked at.

use crate::limits::REMEMBERED_ENTRIES;
use bytes::Bytes;
use items::{Direction, Entries, Unreadable, View};
use std::cell::RefCell;

type Seen = (Box<[u8]>, Option<Bytes>);

/// Nothing may be written below it for as long as it lives.
pub(crate) struct Remembering<'v> {
    below: &'v dyn View,
    seen: RefCell<Vec<Seen>>,
}

impl<'v> Remembering<'v> {
    pub(crate) fn over(below: &'v dyn View) -> Remembering<'v> {
        Remembering { below, seen: RefCell::new(Vec::with_capacity(REMEMBERED_ENTRIES)) }
    }
}

impl View for Remembering<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        let mut seen = self.seen.borrow_mut();
        if let Some((_, value)) = seen.iter().find(|(known, _)| **known == *key) {
            return Ok(value.clone());
        }
        let value = self.below.get(key)?;
        if seen.len() < REMEMBERED_ENTRIES {
            seen.push((key.into(), value.clone()));
        }
        Ok(value)
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        self.below.scan(from, to, direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Counts how often it is asked.
    #[derive(Default)]
    struct Counting(Cell<u32>);

    impl View for Counting {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
            self.0.set(self.0.get() + 1);
            Ok((key != b"absent").then(|| Bytes::copy_from_slice(key)))
        }

        fn scan<'a>(&'a self, _: &[u8], _: &[u8], _: Direction) -> Entries<'a> {
            Box::new(std::iter::empty())
        }
    }

    #[test]
    fn what_was_asked_for_is_not_looked_for_again() {
        let below = Counting::default();
        let view = Remembering::over(&below);
        for _ in 0..3 {
            assert_eq!(view.get(b"a").unwrap().as_deref(), Some(&b"a"[..]));
            assert_eq!(view.get(b"absent").unwrap(), None);
        }
        assert_eq!(below.0.get(), 2);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let below = Counting::default();
        let view = Remembering::over(&below);
        let keys: Vec<Vec<u8>> = (0..=REMEMBERED_ENTRIES as u8).map(|nth| vec![nth]).collect();
        for _ in 0..2 {
            keys.iter().for_each(|key| assert_eq!(view.get(key).unwrap().as_deref(), Some(&key[..])));
        }
        assert_eq!(below.0.get(), REMEMBERED_ENTRIES as u32 + 2, "the last one is looked for twice");
    }
}
