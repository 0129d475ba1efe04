//! Deliveries that we sent and that nobody has settled yet, in the order of their ids.
//!
//! Looking one up is an index in the common case and a binary search otherwise; a disposition costs what is
//! outstanding in its range, whatever the range claims. Settled entries are marked and swept later, so that one
//! delivery which its consumer never settles does not keep the room of the millions sent after it.

use crate::connection::LinkKey;
use crate::keyed::NONE;
use crate::limits::{SWEEP_UNSETTLED_FROM, UNSETTLED_PER_SESSION};
use crate::serial::distance;
use std::collections::VecDeque;

/// Older entries could be mistaken for newer ones (RFC 1982), so they are given up.
const OLDEST: u32 = 1 << 30;

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: u32,
    /// `NONE` once settled.
    link: u32,
    tag: [u8; 16],
}

#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    entries: VecDeque<Entry>,
    live: usize,
}

impl Unsettled {
    /// Entries, those that are settled and not yet swept among them.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.live >= UNSETTLED_PER_SESSION
    }

    /// Adds a delivery with an id above all others. Tags are lock tokens of 16 bytes; others are cut or padded.
    pub(crate) fn push(&mut self, id: u32, link: LinkKey, tag: &[u8]) {
        while let Some(oldest) = self.entries.front()
            && id.wrapping_sub(oldest.id) >= OLDEST
        {
            self.live -= usize::from(oldest.link != NONE);
            self.entries.pop_front();
        }
        let mut kept = [0; 16];
        let length = tag.len().min(16);
        kept[..length].copy_from_slice(&tag[..length]);
        self.entries.push_back(Entry { id, link: link.0, tag: kept });
        self.live += 1;
    }

    /// Calls `each` for what is outstanding from `first` to `last`, and forgets it if asked to.
    pub(crate) fn walk(
        &mut self,
        first: u32,
        last: u32,
        forget: bool,
        mut each: impl FnMut(LinkKey, u32, &[u8; 16]),
    ) {
        let Some(span) = distance(first, last) else { return };
        let start = self.position(first);
        for entry in self.entries.range_mut(start..) {
            match distance(first, entry.id) {
                Some(offset) if offset <= span => {}
                _ => break,
            }
            if entry.link == NONE {
                continue;
            }
            each(LinkKey(entry.link), entry.id, &entry.tag);
            if forget {
                entry.link = NONE;
                self.live -= 1;
            }
        }
        if forget {
            self.sweep();
        }
    }

    /// How many deliveries of a link are outstanding.
    pub(crate) fn count_of(&self, link: LinkKey) -> usize {
        self.entries.iter().filter(|entry| entry.link == link.0).count()
    }

    pub(crate) fn forget_link(&mut self, link: LinkKey) {
        for entry in self.entries.iter_mut().filter(|entry| entry.link == link.0) {
            entry.link = NONE;
            self.live -= 1;
        }
        self.sweep();
    }

    /// The first entry at or after `id`.
    fn position(&self, id: u32) -> usize {
        let Some(front) = self.entries.front() else { return 0 };
        let Some(offset) = distance(front.id, id) else { return 0 };
        match self.entries.get(offset as usize) {
            Some(entry) if entry.id == id => offset as usize,
            _ => self.entries.partition_point(|entry| entry.id.wrapping_sub(front.id) < offset),
        }
    }

    fn sweep(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.link == NONE) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(|entry| entry.link == NONE) {
            self.entries.pop_back();
        }
        if self.entries.len() > SWEEP_UNSETTLED_FROM && self.live < self.entries.len() / 2 {
            self.entries.retain(|entry| entry.link != NONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkKey = LinkKey(3);

    fn ids(unsettled: &mut Unsettled, first: u32, last: u32, forget: bool) -> Vec<u32> {
        let mut seen = Vec::new();
        unsettled.walk(first, last, forget, |_, id, _| seen.push(id));
        seen
    }

    fn with(ids: impl IntoIterator<Item = u32>) -> Unsettled {
        let mut unsettled = Unsettled::default();
        ids.into_iter().for_each(|id| unsettled.push(id, LINK, &[7; 16]));
        unsettled
    }

    #[test]
    fn a_range_finds_what_is_outstanding_in_it() {
        let mut unsettled = with([1, 2, 5, 6, 9]);
        assert_eq!(ids(&mut unsettled, 2, 6, false), [2, 5, 6]);
        assert_eq!(ids(&mut unsettled, 5, 5, true), [5]);
        assert_eq!(ids(&mut unsettled, 0, 100, false), [1, 2, 6, 9]);
        assert_eq!(ids(&mut unsettled, 3, 5, false), []);
        assert_eq!(ids(&mut unsettled, 1, 1, true), [1]);
        assert_eq!(ids(&mut unsettled, 0, 100, true), [2, 6, 9]);
        assert!(unsettled.entries.is_empty() && unsettled.live == 0);
    }

    #[test]
    fn ranges_across_the_wrap_and_inverted_ones_are_told_apart() {
        // P6
        let mut unsettled = with([u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(ids(&mut unsettled, u32::MAX, 0, false), [u32::MAX, 0]);
        assert_eq!(ids(&mut unsettled, 1, u32::MAX, false), []);
        assert_eq!(ids(&mut unsettled, 0, u32::MAX, false), []);
        assert_eq!(ids(&mut unsettled, 0, i32::MAX as u32, false), [0, 1]);
    }

    #[test]
    fn one_delivery_never_settled_does_not_keep_the_room_of_the_rest() {
        let mut unsettled = with([0]);
        for id in 1..100_000 {
            unsettled.push(id, LINK, &[1; 16]);
            assert_eq!(ids(&mut unsettled, id, id, true), [id]);
        }
        let mut unsettled = with(0..1000);
        for id in 1..999 {
            ids(&mut unsettled, id, id, true);
        }
        assert!(unsettled.entries.len() <= SWEEP_UNSETTLED_FROM + 1, "{} entries", unsettled.entries.len());
        assert_eq!(ids(&mut unsettled, 0, 5000, false), [0, 999]);
    }

    #[test]
    fn a_link_takes_its_deliveries_with_it() {
        let mut unsettled = with([1, 2]);
        unsettled.push(3, LinkKey(4), b"short");
        unsettled.forget_link(LINK);
        assert_eq!(unsettled.live, 1);
        let mut seen = Vec::new();
        unsettled.walk(0, 9, false, |link, id, tag| seen.push((link, id, *tag)));
        assert_eq!(seen, [(LinkKey(4), 3, *b"short\0\0\0\0\0\0\0\0\0\0\0")]);
    }

    #[test]
    fn entries_too_old_to_be_told_apart_are_given_up() {
        let mut unsettled = with([0]);
        unsettled.push(OLDEST, LINK, &[]);
        assert_eq!(ids(&mut unsettled, 0, OLDEST, false), [OLDEST]);
        assert_eq!(unsettled.live, 1);
    }
}
