//! Background removal: what has expired or was deleted and is still stored, in slices (C-14, C-15, C-39).
//!
//! Nobody sees what is removed here: expired items are gone from the first instant (C-16). Removing frees space and unique keys,
//! and tells the feed of all versions and deletes (C-34, C-43).

use crate::account::Purge;
use crate::definition::{Container, Definitions};
use crate::effective_key;
use crate::item::apply::change_parts;
use crate::item::event;
use crate::item::stored::{Numbers, Stored};
use crate::item::ttl;
use crate::keys::{self, Class, Section, Version};
use crate::record::{Event, Record, Why, Write};
use crate::view::{Direction, Unreadable, View};
use crate::{Time, charge, limits, order};
use bytes::Bytes;

pub fn slice(
    definitions: &Definitions,
    view: &dyn View,
    now: Time,
    most: usize,
    may_spend: &dyn Fn(u32) -> Option<u64>,
) -> Result<Purge, Unreadable> {
    let mut slice = Slice {
        view,
        now,
        left: most.max(1),
        records: Vec::new(),
        spent: Vec::new(),
        next: None,
        is_behind: false,
    };
    for container in definitions.containers.values() {
        slice.items(container, may_spend(container.number))?;
        slice.events(container)?;
        slice.index(container)?;
    }
    for &container in &definitions.dropped {
        slice.other_record(Event::ContainerSwept { container, most: limits::SWEEP_KEYS });
    }
    Ok(if slice.records.is_empty() {
        Purge::Idle { next: slice.next, is_behind: slice.is_behind }
    } else {
        Purge::Slice { records: slice.records, spent: slice.spent }
    })
}

struct Slice<'a> {
    view: &'a dyn View,
    now: Time,
    /// Items that may still be taken.
    left: usize,
    records: Vec<Record>,
    /// Request units by container.
    spent: Vec<(u32, u64)>,
    next: Option<Time>,
    /// Something is due and cannot be paid for.
    is_behind: bool,
}

impl Slice<'_> {
    fn look_again(&mut self, at: Time) {
        let at = at.max(self.now.after_ms(1));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn other_record(&mut self, event: Event) {
        if self.left > 0 {
            self.left -= 1;
            self.records.push(Record { at: self.now, event });
        }
    }

    fn items(&mut self, container: &Container, may_spend: Option<u64>) -> Result<(), Unreadable> {
        let numbers = Numbers::read(self.view, container.number)?;
        let now = self.now.max(numbers.written);
        let affordable = may_spend
            .map_or(usize::MAX, |units| usize::try_from(units / charge::PURGE).unwrap_or(usize::MAX));
        let room = self.left.min(affordable).min(limits::PURGE_WRITES);
        let mut found = Found { writes: Vec::new(), room, has_more: false, next: None };
        found.own(self.view, container, now)?;
        found.by_default(self.view, container, now)?;
        let mut purged = Vec::new();
        for (lsn, key) in &container.gone.partitions {
            if found.partition(self.view, container, *lsn, key)? {
                purged.push(Event::PartitionPurged { container: container.number, lsn: *lsn });
            }
        }
        if found.has_more && affordable < self.left.min(limits::PURGE_WRITES) {
            // C-15: it waits for the request units of the next second.
            self.look_again(self.now.after_ms(1_000));
            self.is_behind = true;
        }
        if let Some(next) = found.next {
            self.look_again(next);
        }
        if !found.writes.is_empty() {
            self.left = self.left.saturating_sub(found.writes.len());
            self.spent.push((container.number, found.writes.len() as u64 * charge::PURGE));
            let event = Event::ItemsWritten {
                container: container.number,
                lsn: numbers.lsn + 1,
                writes: found.writes,
            };
            self.records.push(Record { at: now, event });
        } else {
            // Only when nothing of it was left before this slice: the mark hides what the slice would still find.
            purged.into_iter().for_each(|event| self.other_record(event));
        }
        Ok(())
    }

    fn events(&mut self, container: &Container) -> Result<(), Unreadable> {
        let section = keys::section(container.number, Section::Events);
        let kept_from = container.settings.retention_ms.map(|retention| self.now.after_ms(-retention));
        let mut forgotten = None;
        let end = order::end_of_prefix(&section);
        for entry in self.view.scan(&section, &end, Direction::Ascending).take(limits::PURGE_EVENTS) {
            let (key, value) = entry?;
            let event = event::Event::decode(value)?;
            if let (Some(kept_from), Some(retention)) = (kept_from, container.settings.retention_ms)
                && event.at > kept_from
            {
                self.look_again(event.at.after_ms(retention));
                break;
            }
            forgotten = keys::event_version(&key).map(|version| version.lsn);
        }
        if let Some(lsn) = forgotten {
            self.other_record(Event::EventsForgotten { container: container.number, lsn });
        }
        Ok(())
    }

    fn index(&mut self, container: &Container) -> Result<(), Unreadable> {
        if container.index.swept < container.index.generation {
            self.other_record(Event::IndexSwept { container: container.number, most: limits::SWEEP_KEYS });
        }
        let Some(built_to) = &container.index.built_to else {
            return Ok(());
        };
        let mut from = keys::item(container.number, built_to);
        if !built_to.is_empty() {
            from.push(0);
        }
        let end = order::end_of_prefix(&keys::section(container.number, Section::Items));
        let last = self.view.scan(&from, &end, Direction::Ascending).take(limits::INDEX_BUILD_ITEMS);
        let mut to = None;
        let mut count = 0;
        for entry in last {
            to = Some(entry?.0.slice(keys::SECTION_BYTES..));
            count += 1;
        }
        let to = to.filter(|_| count == limits::INDEX_BUILD_ITEMS);
        self.other_record(Event::IndexBuilt { container: container.number, to });
        Ok(())
    }
}

/// What a container has for this slice.
struct Found {
    writes: Vec<Write>,
    room: usize,
    has_more: bool,
    next: Option<Time>,
}

impl Found {
    fn is_full(&mut self) -> bool {
        self.has_more |= self.writes.len() >= self.room;
        self.has_more
    }

    fn look_again(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn remove(&mut self, place: Bytes, why: Why) {
        self.writes.push(Write::Remove { place, why });
    }

    /// Items with a time to live of their own, in the order in which they end.
    fn own(&mut self, view: &dyn View, container: &Container, now: Time) -> Result<(), Unreadable> {
        let is_on = container.settings.default_ttl.is_some();
        let due = container.gone.own_by.max(is_on.then_some(now));
        if due.is_none() {
            return Ok(());
        }
        let section = keys::section(container.number, Section::Expiry);
        let end = order::end_of_prefix(&section);
        for entry in view.scan(&section, &end, Direction::Ascending) {
            let (key, _) = entry?;
            let Some((ends, place)) = keys::expiry_parts(&key) else { continue };
            if Some(ends) > due {
                if is_on {
                    self.look_again(ends);
                }
                break;
            }
            if self.is_full() {
                break;
            }
            self.remove(Bytes::copy_from_slice(place), Why::Expired);
        }
        Ok(())
    }

    /// Items without one, in the order in which they were written.
    fn by_default(&mut self, view: &dyn View, container: &Container, now: Time) -> Result<(), Unreadable> {
        let default_ttl = container.settings.default_ttl;
        let by = ttl::written_by(default_ttl, now).max(container.gone.written_by);
        if by.is_none() {
            return Ok(());
        }
        let from = keys::change(container.number, Class::Default, Version::default());
        let to = keys::change(container.number, Class::Own, Version::default());
        for entry in view.scan(&from, &to, Direction::Ascending) {
            let (written, place) = change_parts(&entry?.1)?;
            if Some(written) > by {
                if let Some(seconds) = default_ttl.filter(|seconds| *seconds > 0) {
                    self.look_again(written.after_ms(seconds * 1_000));
                }
                break;
            }
            if self.is_full() {
                break;
            }
            self.remove(place, Why::Expired);
        }
        Ok(())
    }

    /// Items of a partition that was deleted; true when none is left.
    fn partition(
        &mut self,
        view: &dyn View,
        container: &Container,
        lsn: u64,
        key: &crate::PartitionKey,
    ) -> Result<bool, Unreadable> {
        let settings = &container.settings;
        let (from, to) = effective_key::range(&key.0, settings.hashing);
        let bound = |effective: &[u8]| {
            let mut place = keys::section(container.number, Section::Items);
            order::push_open_text(&mut place, effective);
            place
        };
        for entry in view.scan(&bound(&from), &bound(&to), Direction::Ascending) {
            let (item_key, value) = entry?;
            let place = item_key.slice(keys::SECTION_BYTES..);
            let Some((_, own, _)) = keys::place_parts(&place, settings.key_paths.len()) else { continue };
            if !ttl::begins_with(&own, key) || Stored::decode(&value)?.version.lsn > lsn {
                continue;
            }
            if self.is_full() {
                return Ok(false);
            }
            // An item that has expired as well was taken above.
            let is_taken = self
                .writes
                .iter()
                .any(|write| matches!(write, Write::Remove { place: taken, .. } if *taken == place));
            if !is_taken {
                self.remove(place, Why::Deleted);
            }
        }
        Ok(self.writes.is_empty())
    }
}
