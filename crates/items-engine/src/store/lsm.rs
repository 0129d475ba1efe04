//! The base on disk: a log-structured merge tree (docs/design/0009-items-store.md).
//!
//! The tree's own log and tables in memory are not used: a checkpoint is a sorted run that is written to a file, synced, and
//! entered into the tree's list of files in one step.

use super::{Base, Failure, Run};
use crate::limits::{FILE_BYTES, MERGE_FILES, OPEN_FILES};
use bytes::Bytes;
use items::{Direction, Unreadable};
use lsm_tree::compaction::Leveled;
use lsm_tree::config::PinningPolicy;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, IterGuardImpl, SequenceNumberCounter,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often each moment of the tree is being looked at.
type Pins = Mutex<BTreeMap<u64, usize>>;

pub struct Lsm {
    tree: AnyTree,
    next: SequenceNumberCounter,
    merging: Leveled,
    pins: Arc<Pins>,
}

impl fmt::Debug for Lsm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lsm").field("pins", &self.pins).finish_non_exhaustive()
    }
}

/// The tree at a moment; it keeps the files of that moment.
#[derive(Debug)]
pub struct LsmPin {
    at: u64,
    pins: Arc<Pins>,
}

impl Drop for LsmPin {
    fn drop(&mut self) {
        let mut pins = lock(&self.pins);
        if let Some(count) = pins.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.at);
            }
        }
    }
}

fn lock(pins: &Pins) -> MutexGuard<'_, BTreeMap<u64, usize>> {
    pins.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lsm {
    /// Opens the tree in `directory`, or makes it. `cache_bytes` is what it may keep of its files in memory.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Lsm, Failure> {
        let next = SequenceNumberCounter::default();
        let tree = Config::new(directory, next.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES))))
            // Some 30 bytes for a kilobyte on disk: of the new files, which are few, they stay in memory; of all others they are read in
            // pieces and kept like everything else, as long as there is room.
            .filter_block_pinning_policy(PinningPolicy::new([true, false]))
            .filter_block_partitioning_policy(PinningPolicy::new([false, true]))
            .index_block_pinning_policy(PinningPolicy::new([true, false]))
            .index_block_partitioning_policy(PinningPolicy::new([false, true]))
            .open()
            .map_err(failure)?;
        next.set(tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1));
        let merging = Leveled::default().with_l0_threshold(MERGE_FILES).with_table_target_size(FILE_BYTES);
        Ok(Lsm { tree, next, merging, pins: Arc::default() })
    }

    /// The oldest moment that is, or will be, looked at.
    fn oldest(&self) -> u64 {
        let now = self.next.get();
        lock(&self.pins).keys().next().copied().unwrap_or(now).min(now)
    }
}

fn failure(error: lsm_tree::Error) -> Failure {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    match &error {
        lsm_tree::Error::Io(cause) if matches!(cause.kind(), StorageFull | QuotaExceeded) => {
            Failure::Full(cause.to_string())
        }
        _ => Failure::Failed(error.to_string()),
    }
}

fn unreadable(error: lsm_tree::Error) -> Unreadable {
    Unreadable(error.to_string())
}

impl Base for Lsm {
    type Pin = LsmPin;

    fn pin(&self) -> LsmPin {
        let mut pins = lock(&self.pins);
        let at = self.next.get();
        *pins.entry(at).or_default() += 1;
        LsmPin { at, pins: Arc::clone(&self.pins) }
    }

    fn get(&self, pin: &LsmPin, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        Ok(self.tree.get(key, pin.at).map_err(unreadable)?.map(Bytes::from))
    }

    fn scan<'a>(&'a self, pin: &LsmPin, from: &[u8], to: &[u8], direction: Direction) -> Run<'a> {
        let entry = |guard: IterGuardImpl| {
            let (key, value) = guard.into_inner().map_err(unreadable)?;
            Ok((Bytes::from(key), Some(Bytes::from(value))))
        };
        let range = self.tree.range(from..to, pin.at, None);
        match direction {
            Direction::Ascending => Box::new(range.map(entry)),
            Direction::Descending => Box::new(range.rev().map(entry)),
        }
    }

    fn take(&self, changes: &mut dyn Iterator<Item = (Bytes, Option<Bytes>)>) -> Result<(), Failure> {
        let mut run = self.tree.ingestion().map_err(failure)?;
        for (key, value) in changes {
            match value {
                Some(value) => run.write(key, value).map_err(failure)?,
                None => run.write_tombstone(key).map_err(failure)?,
            }
        }
        run.finish().map_err(failure)
    }

    fn tidy(&self) -> Result<bool, Failure> {
        let before = self.tree.current_version().id();
        self.tree.compact(Arc::new(self.merging.clone()), self.oldest()).map_err(failure)?;
        Ok(self.tree.current_version().id() != before)
    }

    fn overlapping_files(&self) -> usize {
        self.tree.l0_run_count()
    }

    fn disk_bytes(&self) -> u64 {
        self.tree.disk_space()
    }
}
