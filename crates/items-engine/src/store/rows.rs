//! Entries of the base that were lately asked for, one by one: an entry is found here in a fraction of the time that looking
//! for it in files takes, even where those are in memory.
//!
//! The rows are those of the newest checkpoint. Each checkpoint is a new generation: first the number rises, and from then on
//! views of older checkpoints neither find nor leave anything here; then what the checkpoint has changed is brought up to
//! date; and only then there are views of it.

use crate::limits::{LARGEST_ROW, ROW_BEGINNINGS, ROW_OVERHEAD_BYTES, ROW_SHARDS};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// What the keys of one kind of one container begin with. Nine of ten entries that a checkpoint changes are of kinds that nobody asks
/// for one by one, such as those of the index, and need not be looked for.
type Beginning = [u8; 6];

fn beginning(key: &[u8]) -> Beginning {
    let mut padded = Beginning::default();
    let length = key.len().min(padded.len());
    padded[..length].copy_from_slice(&key[..length]);
    padded
}

#[derive(Debug, Clone, Copy)]
struct Bytewise;

impl Weighter<Bytes, Option<Bytes>> for Bytewise {
    fn weight(&self, key: &Bytes, value: &Option<Bytes>) -> u64 {
        key.len() as u64 + value.as_ref().map_or(0, |value| value.len() as u64) + ROW_OVERHEAD_BYTES
    }
}

#[derive(Debug)]
pub(super) struct Rows {
    shards: Vec<Mutex<Cache<Bytes, Option<Bytes>, Bytewise>>>,
    hash: RandomState,
    generation: AtomicU64,
    /// How the keys begin of all rows that there have been.
    beginnings: RwLock<HashSet<Beginning>>,
}

impl Rows {
    pub(super) fn new(bytes: u64) -> Rows {
        let each = bytes / ROW_SHARDS as u64;
        let shard = || Mutex::new(Cache::with_weighter((each / 1_024) as usize + 1, each, Bytewise));
        Rows {
            shards: (0..ROW_SHARDS).map(|_| shard()).collect(),
            hash: RandomState::new(),
            generation: AtomicU64::new(0),
            beginnings: RwLock::default(),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Cache<Bytes, Option<Bytes>, Bytewise>> {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key);
        let nth = hasher.finish() as usize % ROW_SHARDS;
        self.shards[nth].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key for views of this generation; the inner `None` says that there is none.
    pub(super) fn get(&self, key: &[u8], generation: u64) -> Option<Option<Bytes>> {
        let shard = self.shard(key);
        if self.generation() != generation {
            return None;
        }
        shard.get(key).cloned()
    }

    /// Remembers what a view of this generation has found.
    pub(super) fn put(&self, key: &[u8], value: &Option<Bytes>, generation: u64) {
        if value.as_ref().is_some_and(|value| value.len() > LARGEST_ROW) {
            return;
        }
        // Before the generation is looked at: a checkpoint that begins later knows of it, and a row of one before is not kept.
        self.note(key);
        // Copies: what was read may be a small part of what it holds.
        let value = value.as_ref().map(|value| Bytes::copy_from_slice(value));
        let mut shard = self.shard(key);
        if self.generation() == generation {
            shard.insert(Bytes::copy_from_slice(key), value);
        }
    }

    fn note(&self, key: &[u8]) {
        let beginning = beginning(key);
        let is_known =
            |known: &HashSet<Beginning>| known.len() >= ROW_BEGINNINGS || known.contains(&beginning);
        if !is_known(&self.beginnings.read().unwrap_or_else(PoisonError::into_inner)) {
            self.beginnings.write().unwrap_or_else(PoisonError::into_inner).insert(beginning);
        }
    }

    /// Begins the generation of a checkpoint. All that it has changed is to be told before there are views of it.
    pub(super) fn renew(&self) -> Renewal<'_> {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let beginnings = self.beginnings.read().unwrap_or_else(PoisonError::into_inner).clone();
        Renewal { rows: self, beginnings, last: (Beginning::default(), true), generation }
    }
}

/// A generation of rows that is being brought up to date.
#[derive(Debug)]
pub(super) struct Renewal<'r> {
    rows: &'r Rows,
    beginnings: HashSet<Beginning>,
    /// The last beginning that was looked for, and whether there may be rows of it: keys come in order, and thousands begin alike.
    last: (Beginning, bool),
    pub(super) generation: u64,
}

impl Renewal<'_> {
    /// The checkpoint has this value for a key.
    pub(super) fn changed(&mut self, key: &[u8], value: Option<&Bytes>) {
        let beginning = beginning(key);
        if self.last.0 != beginning {
            let may_have = self.beginnings.len() >= ROW_BEGINNINGS || self.beginnings.contains(&beginning);
            self.last = (beginning, may_have);
        }
        if !self.last.1 {
            return;
        }
        let mut shard = self.rows.shard(key);
        if !shard.contains_key(key) {
            return;
        }
        match value {
            Some(value) if value.len() > LARGEST_ROW => drop(shard.remove(key)),
            value => {
                let value = value.map(|value| Bytes::copy_from_slice(value));
                shard.insert(Bytes::copy_from_slice(key), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn rows_of_one_checkpoint_are_not_shown_to_views_of_another() {
        let rows = Rows::new(1 << 20);
        rows.put(b"a", &value("1"), 0);
        rows.put(b"b", &None, 0);
        assert_eq!(rows.get(b"a", 0), Some(value("1")));
        assert_eq!(rows.get(b"b", 0), Some(None));
        assert_eq!(rows.get(b"c", 0), None);
        let changes = [(&b"a"[..], value("2")), (b"c", value("2"))];
        let mut renewal = rows.renew();
        changes.iter().for_each(|(key, value)| renewal.changed(key, value.as_ref()));
        let next = renewal.generation;
        assert_eq!(rows.get(b"a", 0), None, "that view is of another checkpoint");
        rows.put(b"d", &value("old"), 0);
        assert_eq!(rows.get(b"d", next), None);
        assert_eq!(rows.get(b"a", next), Some(value("2")));
        assert_eq!(rows.get(b"b", next), Some(None), "nothing has changed it");
    }

    #[test]
    fn rows_stay_within_their_budget_and_large_values_stay_out() {
        let rows = Rows::new(1 << 20);
        let body = Some(Bytes::from(vec![7; 1_000]));
        (0..10_000_u32).for_each(|n| rows.put(&n.to_be_bytes(), &body, 0));
        let held: u64 = rows.shards.iter().map(|shard| shard.lock().unwrap().weight()).sum();
        assert!(held <= 1 << 20, "{held}");
        assert!(held > 1 << 19, "{held}");
        rows.put(b"large", &Some(Bytes::from(vec![7; LARGEST_ROW + 1])), 0);
        assert_eq!(rows.get(b"large", 0), None);
    }

    #[test]
    fn rows_are_brought_up_to_date_though_their_keys_begin_in_too_many_ways_to_tell() {
        for count in [ROW_BEGINNINGS - 1, ROW_BEGINNINGS, ROW_BEGINNINGS + 1] {
            let rows = Rows::new(16 << 20);
            let key = |nth: usize| (nth as u32).to_be_bytes();
            (0..count).for_each(|nth| rows.put(&key(nth), &value("1"), 0));
            let mut renewal = rows.renew();
            (0..count).for_each(|nth| renewal.changed(&key(nth), value("2").as_ref()));
            let stale = (0..count).find(|nth| rows.get(&key(*nth), renewal.generation) == Some(value("1")));
            assert_eq!(stale, None, "of {count}");
        }
    }
}
