//! Entries of the base that were lately asked for, one by one: an entry is found here in a fraction of the time that looking
//! for it in files takes, even where those are in memory.
//!
//! The rows are those of the newest checkpoint. Each checkpoint is a new generation: first the number rises, and from then on
//! views of older checkpoints neither find nor leave anything here; then what the checkpoint has changed is brought up to
//! date; and only then there are views of it.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::hash::{BuildHasher, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many can be looked at without waiting for each other.
const SHARDS: usize = 16;

/// What an entry takes beside its bytes, about.
const ROW_BYTES: u64 = 160;

/// Larger values are read from the base each time: one of them would push a hundred others out.
const LARGEST_VALUE: usize = 64 * 1_024;

#[derive(Debug, Clone, Copy)]
struct Bytewise;

impl Weighter<Bytes, Option<Bytes>> for Bytewise {
    fn weight(&self, key: &Bytes, value: &Option<Bytes>) -> u64 {
        key.len() as u64 + value.as_ref().map_or(0, |value| value.len() as u64) + ROW_BYTES
    }
}

#[derive(Debug)]
pub(super) struct Rows {
    shards: Vec<Mutex<Cache<Bytes, Option<Bytes>, Bytewise>>>,
    hash: RandomState,
    generation: AtomicU64,
}

impl Rows {
    pub(super) fn new(bytes: u64) -> Rows {
        let each = bytes / SHARDS as u64;
        let shard = || Mutex::new(Cache::with_weighter((each / 1_024) as usize + 1, each, Bytewise));
        Rows {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hash: RandomState::new(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Cache<Bytes, Option<Bytes>, Bytewise>> {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key);
        let nth = hasher.finish() as usize % SHARDS;
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
        if value.as_ref().is_some_and(|value| value.len() > LARGEST_VALUE) {
            return;
        }
        // Copies: what was read may be a small part of what it holds.
        let value = value.as_ref().map(|value| Bytes::copy_from_slice(value));
        let mut shard = self.shard(key);
        if self.generation() == generation {
            shard.insert(Bytes::copy_from_slice(key), value);
        }
    }

    /// Begins the generation of a checkpoint that has changed these entries.
    pub(super) fn renew(&self, changes: impl Iterator<Item = (Bytes, Option<Bytes>)>) -> u64 {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        for (key, value) in changes {
            let mut shard = self.shard(&key);
            if shard.contains_key(&key) {
                match value {
                    Some(value) if value.len() > LARGEST_VALUE => drop(shard.remove(&key)),
                    value => {
                        let value = value.map(|value| Bytes::copy_from_slice(&value));
                        shard.insert(Bytes::copy_from_slice(&key), value);
                    }
                }
            }
        }
        generation
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
        let changes = [(Bytes::from_static(b"a"), value("2")), (Bytes::from_static(b"c"), value("2"))];
        let next = rows.renew(changes.into_iter());
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
        rows.put(b"large", &Some(Bytes::from(vec![7; LARGEST_VALUE + 1])), 0);
        assert_eq!(rows.get(b"large", 0), None);
    }
}
