//! The order of changes: both classes of items as one scan by transaction.

use crate::Time;
use crate::definition::Container;
use crate::item::apply::change_parts;
use crate::item::stored::Numbers;
use crate::keys::{self, Class, Version};
use crate::view::{Direction, Entries, Unreadable, View};
use bytes::Bytes;
use std::iter::Peekable;

/// An item in the order of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub version: Version,
    pub written: Time,
    pub place: Bytes,
}

/// Changes from a version on, upwards or downwards.
pub struct Changes<'a> {
    classes: [Peekable<Entries<'a>>; 2],
    direction: Direction,
}

impl std::fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl<'a> Changes<'a> {
    /// Those with `from <= version < to`.
    pub fn between(
        view: &'a dyn View,
        container: u32,
        from: Version,
        to: Option<Version>,
        direction: Direction,
    ) -> Changes<'a> {
        let to = to.unwrap_or(Version { lsn: u64::MAX, index: u16::MAX });
        let scan = |class| {
            let (from, to) = (keys::change(container, class, from), keys::change(container, class, to));
            view.scan(&from, &to, direction).peekable()
        };
        Changes { classes: [scan(Class::Default), scan(Class::Own)], direction }
    }
}

impl Iterator for Changes<'_> {
    type Item = Result<Change, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut heads = [None, None];
        for (head, class) in heads.iter_mut().zip(&mut self.classes) {
            match class.peek() {
                Some(Err(_)) => {
                    return class.next().map(|entry| entry.and_then(|entry| change(&entry.0, &entry.1)));
                }
                Some(Ok((key, _))) => *head = keys::change_version(key),
                None => {}
            }
        }
        let first = match (heads[0], heads[1]) {
            (None, None) => return None,
            (Some(_), None) => 0,
            (None, Some(_)) => 1,
            (Some(left), Some(right)) => {
                usize::from(if self.direction == Direction::Ascending { left > right } else { left < right })
            }
        };
        self.classes[first].next().map(|entry| entry.and_then(|(key, value)| change(&key, &value)))
    }
}

fn change(key: &[u8], value: &Bytes) -> Result<Change, Unreadable> {
    let version = keys::change_version(key)
        .ok_or_else(|| Unreadable("an entry of the order of changes is malformed".to_owned()))?;
    let (written, place) = change_parts(value)?;
    Ok(Change { version, written, place })
}

/// The first version that was written in this second or later. Times rise with versions, so it is found by halving.
pub fn since(view: &dyn View, container: &Container, second: i64) -> Result<Version, Unreadable> {
    let (mut low, mut high) = (0, Numbers::read(view, container.number)?.lsn + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let from = Version { lsn: middle, index: 0 };
        let mut from_there = Changes::between(view, container.number, from, None, Direction::Ascending);
        match from_there.next().transpose()? {
            Some(change) if change.written.seconds() < second => low = change.version.lsn + 1,
            _ => high = middle,
        }
    }
    Ok(Version { lsn: low, index: 0 })
}
