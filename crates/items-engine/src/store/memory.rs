//! A base in memory, for the simulator: what it has taken outlives it.

use super::{Base, Failure, Run};
use bytes::Bytes;
use items::{Direction, Unreadable};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

type Entries = Arc<BTreeMap<Bytes, Bytes>>;

/// What a crash leaves.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    entries: Arc<Mutex<Entries>>,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl MemoryDisk {
    /// The next checkpoint or step of tidying up fails like this and changes nothing; the one behind it does not.
    pub fn fail_next(&self, failure: Failure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    fn call(&self) -> Result<(), Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

#[derive(Debug, Default)]
pub struct Memory {
    disk: MemoryDisk,
}

impl Memory {
    pub fn open(disk: &MemoryDisk) -> Memory {
        Memory { disk: disk.clone() }
    }
}

impl Base for Memory {
    type Pin = Entries;

    fn pin(&self) -> Entries {
        Arc::clone(&self.disk.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&self, pin: &Entries, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        Ok(pin.get(key).cloned())
    }

    fn scan<'a>(&'a self, pin: &Entries, from: &[u8], to: &[u8], direction: Direction) -> Run<'a> {
        let pin = Arc::clone(pin);
        let (mut from, mut to) = (Bound::Included(from.to_vec()), Bound::Excluded(to.to_vec()));
        Box::new(std::iter::from_fn(move || {
            let bound = |bound: &Bound<Vec<u8>>| bound.as_ref().map(|key| Bytes::copy_from_slice(key));
            let mut range = pin.range::<Bytes, _>((bound(&from), bound(&to)));
            let (key, value) = match direction {
                Direction::Ascending => range.next()?,
                Direction::Descending => range.next_back()?,
            };
            match direction {
                Direction::Ascending => from = Bound::Excluded(key.to_vec()),
                Direction::Descending => to = Bound::Excluded(key.to_vec()),
            }
            Some(Ok((key.clone(), Some(value.clone()))))
        }))
    }

    fn take(&self, changes: &mut dyn Iterator<Item = (Bytes, Option<Bytes>)>) -> Result<(), Failure> {
        self.disk.call()?;
        let mut entries = (*self.pin()).clone();
        for (key, value) in changes {
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(&key),
            };
        }
        *self.disk.entries.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries);
        Ok(())
    }

    fn tidy(&self) -> Result<bool, Failure> {
        self.disk.call()?;
        Ok(false)
    }

    fn overlapping_files(&self) -> usize {
        0
    }

    fn disk_bytes(&self) -> u64 {
        self.pin().iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}
