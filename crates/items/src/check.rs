//! Whether everything that stands beside the items agrees with them: for the simulator, tests and repair.

use crate::definition::Container;
use crate::item::apply::change_value;
use crate::item::stored::{Numbers, Stored};
use crate::item::{ttl, unique};
use crate::keys::{self, Section, Version};
use crate::view::{Direction, Unreadable, View};
use crate::{Account, Time, index, order};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What does not agree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("container {container}: {what}")]
    Wrong { container: u32, what: String },
    #[error("the definitions in memory are not those in the store")]
    Definitions,
}

/// Goes through everything. Long: for tests and repair, never while serving.
pub fn check(account: &Account, view: &dyn View, now: Time) -> Result<(), Fault> {
    let loaded = Account::load(view)?;
    if format!("{:?}", sorted(&loaded)) != format!("{:?}", sorted(account)) {
        return Err(Fault::Definitions);
    }
    let now = now.max(account.time());
    account.definitions.containers.values().try_for_each(|container| check_container(container, view, now))
}

/// Everything in the definitions that has an order.
fn sorted(account: &Account) -> impl std::fmt::Debug + '_ {
    let all = &account.definitions;
    let numbers = (all.next, all.changes, all.time);
    (numbers, &all.databases, &all.containers, &all.documents, &all.offers, &all.dropped)
}

fn check_container(container: &Container, view: &dyn View, now: Time) -> Result<(), Fault> {
    let wrong = |what: String| Fault::Wrong { container: container.number, what };
    let mut expected = Expected::default();
    let items = keys::section(container.number, Section::Items);
    for entry in view.scan(&items, &order::end_of_prefix(&items), Direction::Ascending) {
        let (key, value) = entry?;
        let place = key.slice(keys::SECTION_BYTES..);
        let item = Stored::decode(&value)?;
        if keys::place_parts(&place, container.settings.key_paths.len()).is_none() {
            return Err(wrong(format!("the place {place:02x?} is malformed")));
        }
        expected.add(container, place, &item, now);
    }
    let numbers = Numbers::read(view, container.number)?;
    if (numbers.items, numbers.bytes) != (expected.items, expected.bytes) {
        return Err(wrong(format!("{numbers:?}, but {} items of {} bytes", expected.items, expected.bytes)));
    }
    if numbers.lsn < expected.newest.lsn || numbers.made < expected.made {
        return Err(wrong(format!(
            "{numbers:?}, but an item has {:?} and one {}",
            expected.newest, expected.made
        )));
    }
    expected.order().map_err(wrong)?;
    for section in [Section::Changes, Section::Expiry, Section::Rids] {
        compare(&section_entries(container, section, view)?, &expected.entries, section).map_err(wrong)?;
    }
    check_unique(container, &expected, view)?;
    check_index(container, &expected, view)
}

#[derive(Default)]
struct Expected {
    items: u64,
    bytes: u64,
    made: u64,
    newest: Version,
    /// Entries of the order of changes, of expiry and of rids.
    entries: BTreeMap<Bytes, Bytes>,
    /// Unique keys: the items that have the values, and whether each still counts.
    unique: BTreeMap<Bytes, Vec<(Bytes, bool)>>,
    /// Index entries, and whether they must be there.
    index: BTreeMap<Bytes, bool>,
    times: BTreeMap<Version, Time>,
}

impl Expected {
    fn add(&mut self, container: &Container, place: Bytes, item: &Stored, now: Time) {
        self.items += 1;
        self.bytes += item.text.len() as u64;
        self.made = self.made.max(item.number);
        self.newest = self.newest.max(item.version);
        self.times.insert(item.version, item.written);
        let number = container.number;
        self.entries.insert(
            keys::change(number, item.class(), item.version).into(),
            change_value(item.written, &place).into(),
        );
        self.entries.insert(keys::by_rid(number, item.number).into(), place.clone());
        if let Some(ends) = item.own_expiry() {
            self.entries.insert(keys::expiry(number, ends, &place).into(), Bytes::new());
        }
        let is_live = !ttl::is_gone(container, item, &place, now);
        for key in unique::entries(number, &container.settings, &place, &item.text) {
            self.unique.entry(key.into()).or_default().push((place.clone(), is_live));
        }
        let must = container.index.built_to.as_ref().is_none_or(|to| place <= *to);
        for key in index::entries(container, &place, &item.text) {
            self.index.insert(key.into(), must);
        }
    }

    /// Later transactions are not earlier in time: the purge and the feed from a time rely on it.
    fn order(&self) -> Result<(), String> {
        let mut last = Time(i64::MIN);
        for (version, &written) in &self.times {
            if written < last {
                return Err(format!("{version:?} was written at {written:?}, one before it at {last:?}"));
            }
            last = written;
        }
        Ok(())
    }
}

fn section_entries(
    container: &Container,
    section: Section,
    view: &dyn View,
) -> Result<BTreeMap<Bytes, Bytes>, Unreadable> {
    let from = keys::section(container.number, section);
    view.scan(&from, &order::end_of_prefix(&from), Direction::Ascending).collect()
}

fn compare(
    found: &BTreeMap<Bytes, Bytes>,
    expected: &BTreeMap<Bytes, Bytes>,
    section: Section,
) -> Result<(), String> {
    let of_section = |key: &Bytes| key.get(keys::SECTION_BYTES - 1) == Some(&(section as u8));
    for (key, value) in expected.iter().filter(|(key, _)| of_section(key)) {
        if found.get(key) != Some(value) {
            return Err(format!("the entry {key:02x?} of {section:?} is missing or wrong"));
        }
    }
    match found.keys().find(|key| !expected.contains_key(*key)) {
        Some(key) => Err(format!("the entry {key:02x?} of {section:?} belongs to no item")),
        None => Ok(()),
    }
}

/// At most one item that counts has the values of an entry, and the entry names it. An entry of items that are gone may be taken.
fn check_unique(container: &Container, expected: &Expected, view: &dyn View) -> Result<(), Fault> {
    let wrong = |what: String| Fault::Wrong { container: container.number, what };
    let found = section_entries(container, Section::Unique, view)?;
    for (key, places) in &expected.unique {
        let live: Vec<&Bytes> =
            places.iter().filter(|(_, is_live)| *is_live).map(|(place, _)| place).collect();
        if live.len() > 1 || live.first().is_some_and(|place| found.get(key) != Some(*place)) {
            return Err(wrong(format!("the unique key {key:02x?} is not held by its one item")));
        }
    }
    let belongs = |key: &Bytes, holder: &Bytes| {
        expected.unique.get(key).is_some_and(|places| places.iter().any(|(place, _)| place == holder))
    };
    match found.iter().find(|(key, holder)| !belongs(key, holder)) {
        Some((key, _)) => Err(wrong(format!("the unique key {key:02x?} belongs to no item"))),
        None => Ok(()),
    }
}

fn check_index(container: &Container, expected: &Expected, view: &dyn View) -> Result<(), Fault> {
    let wrong = |what: String| Fault::Wrong { container: container.number, what };
    let found = section_entries(container, Section::Index, view)?;
    for (key, must) in &expected.index {
        if *must && !found.contains_key(key) {
            return Err(wrong(format!("the index entry {key:02x?} is missing")));
        }
    }
    for key in found.keys() {
        let generation = key.get(keys::SECTION_BYTES..).and_then(|rest| rest.first_chunk::<2>());
        let generation = generation.map(|bytes| u16::from_be_bytes(*bytes)).unwrap_or_default();
        let is_left_over = (container.index.swept..container.index.generation).contains(&generation);
        if !is_left_over && !expected.index.contains_key(key) {
            return Err(wrong(format!("the index entry {key:02x?} belongs to no item")));
        }
    }
    Ok(())
}
