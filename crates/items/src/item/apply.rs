//! What a transaction changes in the store: items, the order of changes, expiry, unique keys, index entries, events.

use super::event::Event;
use super::stored::{Numbers, Stored, Ttl};
use super::unique;
use crate::definition::Container;
use crate::keys::{self, Version};
use crate::record::{Why, Write};
use crate::view::{ChangedView, Changes, Unreadable, View};
use crate::{Time, index};
use bytes::Bytes;

/// Takes a transaction in. `view` shows everything before it.
pub fn transaction(
    container: &Container,
    at: Time,
    lsn: u64,
    writes: &[Write],
    view: &dyn View,
    changes: &mut Changes,
) -> Result<(), Unreadable> {
    let mut numbers = Numbers::read(view, container.number)?;
    numbers.lsn = lsn;
    numbers.written = numbers.written.max(at);
    if let [write] = writes {
        one(container, Version { lsn, index: 0 }, at, write, &mut numbers, view, changes)?;
    } else {
        // Later writes of a batch see earlier ones.
        let (mut overlay, mut own) = (ChangedView::new(view), Changes::default());
        for (index, write) in writes.iter().enumerate() {
            let version = Version { lsn, index: index as u16 };
            one(container, version, at, write, &mut numbers, &overlay, &mut own)?;
            overlay.take(&own);
            changes.entries.append(&mut own.entries);
        }
    }
    numbers.put(container.number, changes);
    Ok(())
}

/// Takes one write in.
pub fn one(
    container: &Container,
    version: Version,
    at: Time,
    write: &Write,
    numbers: &mut Numbers,
    view: &dyn View,
    changes: &mut Changes,
) -> Result<(), Unreadable> {
    match write {
        Write::Put { place, number, ttl, body } => {
            let old = Stored::read(view, container.number, place)?;
            let new = Stored::new(container, *number, version, at, Ttl::of(*ttl), body);
            changes.put(keys::item(container.number, place), new.encoded());
            numbers.made = numbers.made.max(*number);
            numbers.items += u64::from(old.is_none());
            numbers.bytes += new.text.len() as u64;
            exchange(container, place, old.as_ref(), Some(&new), view, numbers, changes)?;
            event(container, old.as_ref(), Some(&new), Why::Deleted, version, at, place, changes);
        }
        Write::Remove { place, why } => {
            let Some(old) = Stored::read(view, container.number, place)? else {
                return Ok(());
            };
            changes.remove(keys::item(container.number, place));
            numbers.items = numbers.items.saturating_sub(1);
            exchange(container, place, Some(&old), None, view, numbers, changes)?;
            event(container, Some(&old), None, *why, version, at, place, changes);
        }
    }
    Ok(())
}

/// Replaces everything that stands beside an item and follows from it.
fn exchange(
    container: &Container,
    place: &Bytes,
    old: Option<&Stored>,
    new: Option<&Stored>,
    view: &dyn View,
    numbers: &mut Numbers,
    changes: &mut Changes,
) -> Result<(), Unreadable> {
    let (old_number, new_number) = (old.map(|old| old.number), new.map(|new| new.number));
    if old_number != new_number {
        if let Some(number) = old_number {
            changes.remove(keys::by_rid(container.number, number));
        }
        if let Some(number) = new_number {
            changes.put(keys::by_rid(container.number, number), place);
        }
    }
    if let Some(old) = old {
        numbers.bytes = numbers.bytes.saturating_sub(old.text.len() as u64);
        changes.remove(keys::change(container.number, old.class(), old.version));
        if let Some(ends) = old.own_expiry() {
            changes.remove(keys::expiry(container.number, ends, place));
        }
    }
    if let Some(new) = new {
        changes
            .put(keys::change(container.number, new.class(), new.version), change_value(new.written, place));
        if let Some(ends) = new.own_expiry() {
            changes.put(keys::expiry(container.number, ends, place), Bytes::new());
        }
    }
    let entries = |item: Option<&Stored>| match item {
        Some(item) => unique::entries(container.number, &container.settings, place, &item.text),
        None => Vec::new(),
    };
    if !container.settings.unique_keys.is_empty() {
        let (held, wanted) = (entries(old), entries(new));
        for key in held {
            // Another item may have taken the values of one that had expired.
            if !wanted.contains(&key) && view.get(&key)?.as_ref() == Some(place) {
                changes.remove(key);
            }
        }
        for key in wanted {
            changes.put(key, place.clone());
        }
    }
    index::exchange(container, place, old, new, changes);
    Ok(())
}

/// The value of an entry in the order of changes: when the item was written, and its place.
pub fn change_value(written: Time, place: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(8 + place.len());
    value.extend_from_slice(&written.0.to_be_bytes());
    value.extend_from_slice(place);
    value
}

pub fn change_parts(value: &Bytes) -> Result<(Time, Bytes), Unreadable> {
    let written: &[u8; 8] = value
        .first_chunk()
        .ok_or_else(|| Unreadable("an entry of the order of changes is malformed".to_owned()))?;
    Ok((Time(i64::from_be_bytes(*written)), value.slice(8..)))
}

#[expect(clippy::too_many_arguments, reason = "they are the parts of one event")]
fn event(
    container: &Container,
    old: Option<&Stored>,
    new: Option<&Stored>,
    why: Why,
    version: Version,
    at: Time,
    place: &Bytes,
    changes: &mut Changes,
) {
    if container.settings.retention_ms.is_some() {
        let event = Event::of(old, new, why, at, place);
        changes.put(keys::event(container.number, version), event.encode());
    }
}
