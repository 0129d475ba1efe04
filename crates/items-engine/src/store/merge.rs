//! Several ordered runs as one; where more than one has a key, the first of them counts.

use super::Run;
use bytes::Bytes;
use items::{Direction, Entry, Unreadable};
use std::cmp::Ordering;

type Item = Result<(Bytes, Option<Bytes>), Unreadable>;

pub(super) struct Merge<'a> {
    /// Newest first, each with its next entry.
    runs: Vec<(Option<Item>, Run<'a>)>,
    direction: Direction,
}

impl<'a> Merge<'a> {
    pub(super) fn new(runs: Vec<Run<'a>>, direction: Direction) -> Merge<'a> {
        let ready = |mut run: Run<'a>| (run.next(), run);
        let runs = runs.into_iter().map(ready).filter(|(next, _)| next.is_some()).collect();
        Merge { runs, direction }
    }

    /// The run that is next; the newest of those with the same key.
    fn first(&self) -> Option<usize> {
        let mut first: Option<(usize, &Bytes)> = None;
        for (nth, (next, _)) in self.runs.iter().enumerate() {
            let key = match next {
                Some(Ok((key, _))) => key,
                // It must be told, whatever comes else.
                Some(Err(_)) => return Some(nth),
                None => continue,
            };
            let is_before = first.is_none_or(|(_, before)| self.order(key, before) == Ordering::Less);
            if is_before {
                first = Some((nth, key));
            }
        }
        first.map(|(nth, _)| nth)
    }

    fn order(&self, one: &Bytes, other: &Bytes) -> Ordering {
        match self.direction {
            Direction::Ascending => one.cmp(other),
            Direction::Descending => other.cmp(one),
        }
    }

    fn take(&mut self, nth: usize) -> Option<Item> {
        let (next, run) = &mut self.runs[nth];
        std::mem::replace(next, run.next())
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Entry, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let first = self.first()?;
            let (key, value) = match self.take(first)? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            for nth in first + 1..self.runs.len() {
                if matches!(&self.runs[nth].0, Some(Ok((other, _))) if *other == key) {
                    self.take(nth);
                }
            }
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
        }
    }
}
