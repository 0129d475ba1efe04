//! Readers of the change feed who go on where they were, whatever becomes of the process: what they are told must be complete
//! and in order.

use super::ask::Key;
use super::state::State;
use items::Time;
use items::json::{self, Value};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Created,
    Replaced,
    Deleted,
    /// The time to live has passed.
    Expired,
}

/// A change of an item, as the feed of all versions and deletes tells it. A removal names the number that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub kind: ChangeKind,
    pub number: u64,
}

impl Change {
    /// As the feed of all versions and deletes shows it: with the number that was there before.
    pub fn read(text: &[u8]) -> Option<(Change, Option<u64>)> {
        let event = json::parse(text).ok()?;
        let metadata = event.get("metadata")?;
        let is_expired = matches!(metadata.get("timeToLiveExpired"), Some(Value::Bool(true)));
        let kind = match metadata.get("operationType")?.as_str()? {
            "create" => ChangeKind::Created,
            "replace" => ChangeKind::Replaced,
            "delete" if is_expired => ChangeKind::Expired,
            "delete" => ChangeKind::Deleted,
            _ => return None,
        };
        let number = |of: &str| u64::try_from(event.get(of)?.get("n")?.as_number()?.as_i64()?).ok();
        let (id, partition) = match kind {
            ChangeKind::Created | ChangeKind::Replaced => {
                (event.get("current")?.get("id")?, event.get("current")?.get("pk")?)
            }
            ChangeKind::Deleted | ChangeKind::Expired => {
                (metadata.get("id")?, metadata.get("partitionKey")?.get("pk")?)
            }
        };
        let key = Key {
            partition: partition.as_str()?.strip_prefix('p')?.parse().ok()?,
            id: id.as_str()?.strip_prefix('i')?.parse().ok()?,
        };
        let (before, after) = (number("previous"), number("current"));
        Some((Change { key, kind, number: after.or(before)? }, before))
    }
}

/// Two readers, and what they were told so far.
#[derive(Debug, Default)]
pub struct Feeds {
    /// Where the reader of all versions goes on; without one it begins anew.
    pub all_versions: Option<String>,
    /// What it must be told next, but for expiries, which come whenever the removal has time.
    expected: VecDeque<Change>,
    /// What is stored as far as it knows.
    stored: BTreeMap<Key, u64>,
    /// It has begun in the middle: something may end that it never heard of.
    is_incomplete: bool,
    /// Where the reader of latest versions goes on.
    pub latest: Option<String>,
    /// The last write that it may have been told of.
    latest_order: u64,
    /// What was told of.
    pub told: u64,
    pub told_expired: u64,
}

impl Feeds {
    /// These have happened, and are durable.
    pub fn expect(&mut self, changes: Vec<Change>) {
        self.expected.extend(changes);
    }

    /// The reader of all versions begins with whatever happens from now on.
    pub fn begin(&mut self, state: &State, now: Time, continuation: String) {
        self.is_incomplete = self.all_versions.is_none() && self.told > 0;
        self.all_versions = Some(continuation);
        self.expected.clear();
        self.stored = state.shown(now.0);
    }

    /// What the reader of all versions was told.
    pub fn all_versions(
        &mut self,
        state: &State,
        now: Time,
        changes: &[(Change, Option<u64>)],
    ) -> Result<(), String> {
        for (change, before) in changes {
            self.told += 1;
            match change.kind {
                ChangeKind::Expired => self.expired(state, now, change)?,
                _ => self.changed(change, *before)?,
            }
        }
        match self.expected.front() {
            None => Ok(()),
            Some(change) => Err(format!("the feed of all versions ends before {change:?}")),
        }
    }

    fn changed(&mut self, change: &Change, before: Option<u64>) -> Result<(), String> {
        let expected = self.expected.pop_front();
        if expected != Some(*change) {
            return Err(format!("the feed of all versions tells {change:?}, not {expected:?}"));
        }
        let stored = match change.kind {
            ChangeKind::Deleted => self.stored.remove(&change.key),
            _ => self.stored.insert(change.key, change.number),
        };
        match stored == before {
            true => Ok(()),
            false => {
                Err(format!("the feed of all versions tells {change:?} of {before:?}, not of {stored:?}"))
            }
        }
    }

    fn expired(&mut self, state: &State, now: Time, change: &Change) -> Result<(), String> {
        self.told_expired += 1;
        let stored = self.stored.remove(&change.key);
        if stored != Some(change.number) && (stored.is_some() || !self.is_incomplete) {
            return Err(format!("the feed of all versions tells {change:?}, but {stored:?} was there"));
        }
        match state.alive(&change.key, now.0) {
            Some(item) if item.content.number == change.number => {
                Err(format!("the feed of all versions tells {change:?}, which is still there"))
            }
            _ => Ok(()),
        }
    }

    /// When everything that has expired was removed, nothing is left of it in the feed either.
    pub fn is_complete(&self, state: &State, now: Time) -> Result<(), String> {
        match self.stored == state.shown(now.0) {
            true => Ok(()),
            false => Err(format!(
                "C-34: at {now:?} the feed of all versions has told of {:?}, but there is {:?}",
                self.stored,
                state.shown(now.0)
            )),
        }
    }

    /// What the reader of latest versions must be told: every item that was written since, once, in the order of the last writes.
    pub fn latest(&mut self, state: &State, now: Time) -> Vec<u64> {
        let after = std::mem::replace(&mut self.latest_order, state.order);
        latest_after(state, now, |order, _| order > after)
    }
}

/// Items that are there, in the order of their last writes, if order and time of that are wanted.
pub fn latest_after(state: &State, now: Time, is_wanted: impl Fn(u64, i64) -> bool) -> Vec<u64> {
    let mut alive: Vec<_> = state
        .all_alive(now.0)
        .filter(|(_, item)| is_wanted(item.order, item.written))
        .map(|(_, item)| (item.order, item.content.number))
        .collect();
    alive.sort_unstable();
    alive.into_iter().map(|(_, number)| number).collect()
}
