//! A disk in memory that knows what was synced, for tests and simulation.
//!
//! What a power failure leaves is up to the disk: everything synced, and of the rest any sectors it likes. A crash
//! image is one such outcome, chosen by a seed. Names come back as some prefix of the changes since `sync_dir`, as
//! on a journaling file system; contents come back in any mixture of sectors.

use super::{Disk, DiskFile, Guard, Lock};
use crate::hash::mix;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A directory in memory. Clones are the same directory.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

type Names = BTreeMap<String, Arc<Content>>;

#[derive(Debug, Default)]
struct State {
    names: Names,
    synced_names: Names,
    /// Changes of names since the last `sync_dir`, oldest first.
    renaming: Vec<Change>,
    /// Writing counts as slow, see [`DiskFile::is_direct`].
    is_direct: bool,
    /// What all files together may hold; none is the default.
    room_bytes: Option<u64>,
    locks: Arc<Mutex<BTreeMap<String, String>>>,
}

#[derive(Debug, Clone)]
enum Change {
    Put(String, Arc<Content>),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Mutex<Versions>,
    /// The directory, which knows how much room there is.
    disk: Weak<Mutex<State>>,
}

/// Whole files, which a crash image shares with the disk that it was taken of until one of them is written to.
#[derive(Debug, Default)]
struct Versions {
    live: Arc<Vec<u8>>,
    synced: Arc<Vec<u8>>,
    /// Ranges written since the last sync, oldest first.
    dirty: Vec<(usize, usize)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere is already a failed test; the bytes are still the bytes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub fn new() -> Memory {
        Memory::default()
    }

    /// A disk on which a write past the cache is to be waited for.
    pub fn direct() -> Memory {
        let memory = Memory::default();
        locked(&memory.state).is_direct = true;
        memory
    }

    /// What a power failure at this instant could leave. Seed 0 keeps only what was synced, seed 1 keeps everything;
    /// others keep a mixture.
    pub fn crash_image(&self, seed: u64) -> Memory {
        let state = locked(&self.state);
        let changes = match seed {
            0 => 0,
            1 => state.renaming.len(),
            _ => mix(&[seed, 1]) as usize % (state.renaming.len() + 1),
        };
        let mut names = state.synced_names.clone();
        for change in &state.renaming[..changes] {
            apply(&mut names, change.clone());
        }
        let image = Memory::default();
        let mut made = locked(&image.state);
        made.is_direct = state.is_direct;
        for (ordinal, (name, content)) in names.into_iter().enumerate() {
            let bytes = locked(&content.bytes).crashed(seed, ordinal as u64);
            let versions = Versions { live: bytes.clone(), synced: bytes, dirty: Vec::new() };
            let disk = Arc::downgrade(&image.state);
            let content = Arc::new(Content { bytes: Mutex::new(versions), disk });
            made.names.insert(name.clone(), content.clone());
            made.synced_names.insert(name, content);
        }
        drop(made);
        image
    }

    /// Makes the disk as small as `bytes`, or as large as it likes.
    pub fn set_room(&self, bytes: Option<u64>) {
        locked(&self.state).room_bytes = bytes;
    }

    /// Changes the bytes of a file in place and durably, as a failing disk or a curious hand would.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let content = locked(&self.state).names.get(name).expect("the damaged file exists").clone();
        let mut versions = locked(&content.bytes);
        change(Arc::make_mut(&mut versions.live));
        versions.synced = versions.live.clone();
        versions.dirty.clear();
    }

    /// What a failed sync does to the memory of many systems: what was written reads back and counts as clean, though the
    /// disk has none of it, and the next sync succeeds without writing it.
    pub fn forget_unsynced(&self) {
        for content in locked(&self.state).names.values() {
            locked(&content.bytes).dirty.clear();
        }
    }

    /// The bytes of a file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let content = locked(&self.state).names.get(name)?.clone();
        let bytes = locked(&content.bytes).live.clone();
        Some(Arc::unwrap_or_clone(bytes))
    }
}

fn apply(names: &mut Names, change: Change) {
    match change {
        Change::Put(name, content) => {
            names.insert(name, content);
        }
        Change::Rename(from, to) => {
            if let Some(content) = names.remove(&from) {
                names.insert(to, content);
            }
        }
        Change::Remove(name) => {
            names.remove(&name);
        }
    }
}

impl Versions {
    fn crashed(&self, seed: u64, ordinal: u64) -> Arc<Vec<u8>> {
        let mut image = self.synced.clone();
        if seed == 0 || self.dirty.is_empty() && image.len() == self.live.len() {
            return image;
        }
        let bytes = Arc::make_mut(&mut image);
        let keeps_length = seed == 1 || mix(&[seed, ordinal, 2]).is_multiple_of(2);
        if keeps_length || self.live.len() < bytes.len() {
            bytes.resize(self.live.len(), 0);
        }
        // A prefix of the sectors, a random half of them, or nearly all: each finds other mistakes.
        let style = mix(&[seed, ordinal, 3]) % 3;
        let sectors = self.dirty_sectors();
        let prefix = mix(&[seed, ordinal, 4]) as usize % (sectors.len() + 1);
        for (n, &sector) in sectors.iter().enumerate() {
            let draw = mix(&[seed, ordinal, 5, sector as u64]);
            let is_kept = match (seed, style) {
                (1, _) => true,
                (_, 0) => n < prefix,
                (_, 1) => draw.is_multiple_of(2),
                _ => !draw.is_multiple_of(16),
            };
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(bytes.len());
            if is_kept && start < end {
                bytes[start..end].copy_from_slice(&self.live[start..end]);
            }
        }
        image
    }

    /// In the order in which they were first written.
    fn dirty_sectors(&self) -> Vec<usize> {
        let mut seen = std::collections::BTreeSet::new();
        let ranges = self.dirty.iter();
        let all = ranges.flat_map(|&(start, end)| start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        all.filter(|&sector| seen.insert(sector)).collect()
    }
}

impl Memory {
    fn change(&self, change: Change) {
        let mut state = locked(&self.state);
        apply(&mut state.names, change.clone());
        state.renaming.push(change);
    }

    fn must_exist(&self, name: &str) -> io::Result<Arc<Content>> {
        let state = locked(&self.state);
        state.names.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for Memory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let content = Arc::new(Content { disk: Arc::downgrade(&self.state), ..Content::default() });
        self.change(Change::Put(name.to_owned(), content.clone()));
        Ok(content)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.must_exist(name)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(locked(&self.state).names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.must_exist(from)?;
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.must_exist(name)?;
        self.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let state = &mut *locked(&self.state);
        state.synced_names = state.names.clone();
        state.renaming.clear();
        Ok(())
    }

    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        let locks = locked(&self.state).locks.clone();
        let mut held = locked(&locks);
        if let Some(holder) = held.get(name) {
            return Ok(Lock::Busy(holder.clone()));
        }
        held.insert(name.to_owned(), holder.to_owned());
        let guard = HeldLock { locks: locks.clone(), name: name.to_owned() };
        Ok(Lock::Held(Box::new(guard)))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(locked(&self.state).free_bytes())
    }

    fn path(&self, name: &str) -> String {
        format!("memory/{name}")
    }
}

#[derive(Debug)]
struct HeldLock {
    locks: Arc<Mutex<BTreeMap<String, String>>>,
    name: String,
}

impl Guard for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        locked(&self.locks).remove(&self.name);
    }
}

impl State {
    fn free_bytes(&self) -> u64 {
        let Some(room) = self.room_bytes else { return 1 << 40 };
        let used: u64 = self.names.values().map(|file| locked(&file.bytes).live.len() as u64).sum();
        room.saturating_sub(used)
    }
}

impl Content {
    /// Refuses to grow beyond the disk.
    fn check_room(&self, length: u64) -> io::Result<()> {
        let growth = length.saturating_sub(locked(&self.bytes).live.len() as u64);
        if growth == 0 {
            return Ok(());
        }
        match self.disk.upgrade() {
            Some(disk) if growth > locked(&disk).free_bytes() => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl DiskFile for Content {
    fn is_direct(&self) -> bool {
        self.disk.upgrade().is_some_and(|disk| locked(&disk).is_direct)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check_room(offset + slices.iter().map(|slice| slice.len() as u64).sum::<u64>())?;
        let versions = &mut *locked(&self.bytes);
        let live = Arc::make_mut(&mut versions.live);
        let start = usize::try_from(offset).expect("a file in memory is small");
        let mut end = start;
        for slice in slices {
            if live.len() < end {
                live.resize(end, 0);
            }
            let (within, beyond) = slice.split_at(slice.len().min(live.len() - end));
            live[end..end + within.len()].copy_from_slice(within);
            live.extend_from_slice(beyond);
            end += slice.len();
        }
        versions.dirty.push((start, end));
        Ok(end - start)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let versions = locked(&self.bytes);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(versions.live.len());
        let count = buffer.len().min(versions.live.len() - start);
        buffer[..count].copy_from_slice(&versions.live[start..start + count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let versions = &mut *locked(&self.bytes);
        if versions.dirty.is_empty() && versions.synced.len() == versions.live.len() {
            return Ok(());
        }
        let synced = Arc::make_mut(&mut versions.synced);
        synced.resize(versions.live.len(), 0);
        for (start, end) in versions.dirty.drain(..) {
            synced[start..end].copy_from_slice(&versions.live[start..end]);
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(locked(&self.bytes).live.len() as u64)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.check_room(bytes)?;
        let mut versions = locked(&self.bytes);
        let bytes = usize::try_from(bytes).expect("a file in memory is small");
        if versions.live.len() < bytes {
            Arc::make_mut(&mut versions.live).resize(bytes, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &dyn DiskFile, offset: u64, bytes: &[u8]) {
        file.write_at(offset, &[IoSlice::new(bytes)]).unwrap();
    }

    #[test]
    fn only_synced_bytes_are_sure_to_survive() {
        let disk = Memory::new();
        let file = disk.create("a").unwrap();
        write(&*file, 0, &[1; 1024]);
        file.sync_data().unwrap();
        disk.sync_dir().unwrap();
        write(&*file, 0, &[2; 2048]);
        assert_eq!(disk.crash_image(0).content("a").unwrap(), [1; 1024]);
        assert_eq!(disk.crash_image(1).content("a").unwrap(), [2; 2048]);
        let images: Vec<Vec<u8>> = (2..50).map(|seed| disk.crash_image(seed).content("a").unwrap()).collect();
        assert!(images.iter().any(|image| image[..1024].contains(&1) && image[..1024].contains(&2)));
        for sector in images.iter().flat_map(|image| image.chunks(SECTOR_BYTES)) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
        }
    }

    #[test]
    fn a_name_is_sure_to_survive_only_when_the_directory_was_synced() {
        let disk = Memory::new();
        write(&*disk.create("a").unwrap(), 0, b"x");
        assert_eq!(disk.crash_image(0).list().unwrap().len(), 0);
        disk.sync_dir().unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!(disk.crash_image(0).list().unwrap(), ["a"]);
        assert_eq!(disk.crash_image(1).list().unwrap(), ["b"]);
    }
}
