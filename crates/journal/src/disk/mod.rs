//! What the journal needs of a disk: one flat directory of files, written at offsets, synced on demand.
//!
//! [`File`] is the real one; [`Memory`] knows what was synced and makes crash images; [`Faulty`] lets any call of another
//! disk fail, and [`Watched`] lets a test ask, delay, refuse or change each. A content is durable after `sync_data`, a name after `sync_dir`;
//! nothing here syncs on its own. Sectors of 512 bytes are assumed to be written whole or not at all.

mod faulty;
mod file;
mod memory;
mod pages;
mod watched;

pub use faulty::{Fault, Faulty};
pub use file::{File, make_directory, plain};
pub use memory::{Memory, SECTOR_BYTES};
pub use pages::{PAGE_BYTES, Pages};
pub use watched::{Call, Watch, Watched};

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// One directory.
pub trait Disk: Send + Sync + Debug {
    /// Makes a file; replaces one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn list(&self) -> io::Result<Vec<String>>;
    /// Replaces a file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the name; files that are open stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Takes the exclusive lock on `name` and notes `holder` in it for a second process.
    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock>;
    fn free_bytes(&self) -> io::Result<u64>;
    /// The name as a person would find it.
    fn path(&self, name: &str) -> String;
}

/// One open file. Callers write and sync from different threads.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes slices at an offset; returns how many bytes were taken, which may be fewer.
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Reads at an offset; returns how many bytes were there, 0 at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes content and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Writes past the system's cache, which costs half as much, what begins and ends with a page in the file and in memory
    /// ([`Pages`]). Anything else, and where the system cannot, it writes as ever. It is readable at once, and durable after
    /// `sync_data`.
    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.write_at(offset, &[IoSlice::new(bytes)])
    }
    /// Whether [`DiskFile::write_direct`] waits for the disk, and not only for the system's cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// Writes like [`DiskFile::write_direct`], and returns when what was taken is durable.
    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let count = self.write_direct(offset, bytes)?;
        self.sync_data()?;
        Ok(count)
    }
    fn length(&self) -> io::Result<u64>;
    /// Makes the file `bytes` long with room reserved, reading as zeros where nothing was written. Never shrinks.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Gives back what only writing needs: it will hardly be written any more.
    fn end_writing(&self) {}
    /// Lets the system forget its copy of what is synced. A hint: what was written stays readable.
    fn forget_cached(&self) {}
}

/// Answer to a request for the lock.
#[derive(Debug)]
pub enum Lock {
    /// Held until dropped.
    Held(Box<dyn Guard>),
    /// Somebody else has it; the text that they noted.
    Busy(String),
}

/// Gives the lock back when dropped.
pub trait Guard: Send + Sync + Debug {}

/// Writes all of the bytes, however often the disk takes only a part.
pub(crate) fn write_all(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    write_each(offset, bytes, |offset, bytes| file.write_at(offset, &[IoSlice::new(bytes)]))
}

/// The same past the system's cache.
pub(crate) fn write_all_direct(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    write_each(offset, bytes, |offset, bytes| file.write_direct(offset, bytes))
}

fn write_each(
    mut offset: u64,
    mut bytes: &[u8],
    write: impl Fn(u64, &[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                offset += count as u64;
                bytes = &bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills the buffer as far as the file reaches; returns how much.
pub(crate) fn read_full(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(offset + filled as u64, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same for every disk: what the journal relies on.
    fn behaves(disk: &dyn Disk) {
        let file = disk.create("a").unwrap();
        file.allocate(10_000).unwrap();
        assert_eq!(file.length().unwrap(), 10_000);
        let expected: Vec<u8> = (0..600u32).flat_map(|n| vec![n as u8; (n % 7) as usize]).collect();
        write_all(&*file, 100, &expected).unwrap();
        let mut back = vec![0; expected.len()];
        assert_eq!(read_full(&*file, 100, &mut back).unwrap(), back.len());
        assert_eq!(back, expected);
        assert_eq!(read_full(&*file, 9_990, &mut [0; 100]).unwrap(), 10);
        let mut pages = Pages::new(2 * PAGE_BYTES);
        pages.push(&vec![9; 2 * PAGE_BYTES]);
        write_all_direct(&*file, 0, pages.bytes()).unwrap();
        assert_eq!(read_full(&*file, 0, &mut back).unwrap(), back.len());
        assert!(back.iter().all(|byte| *byte == 9), "what is on the disk is what is read");
        write_all_direct(&*file, 100, &expected).unwrap();
        write_all_direct(&*file, PAGE_BYTES as u64, &pages.bytes()[PAGE_BYTES..]).unwrap();
        assert_eq!(read_full(&*file, 100, &mut back).unwrap(), back.len());
        assert_eq!(back, expected, "what is no whole page is written too");
        file.allocate(50).unwrap();
        assert_eq!(file.length().unwrap(), 10_000, "allocating less shrinks nothing");
        file.sync_data().unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        assert!(disk.open("a").is_err());
        let open = disk.open("b").unwrap();
        disk.remove("b").unwrap();
        assert_eq!(read_full(&*open, 100, &mut back).unwrap(), back.len(), "an open file outlives its name");
        let Lock::Held(guard) = disk.lock("lock", "process 1").unwrap() else { panic!("free lock is busy") };
        let Lock::Busy(holder) = disk.lock("lock", "process 2").unwrap() else { panic!("lock held twice") };
        assert_eq!(holder, "process 1");
        drop(guard);
        assert!(matches!(disk.lock("lock", "process 3").unwrap(), Lock::Held(_)));
        assert!(disk.free_bytes().unwrap() > 0);
    }

    #[test]
    fn the_disk_in_memory_behaves() {
        behaves(&Memory::new());
    }

    #[test]
    fn the_disk_of_files_behaves() {
        let folder = crate::fuzzing::Scratch::new("disk");
        behaves(&File::open(folder.path()).unwrap());
    }

    #[test]
    fn a_faulty_disk_without_a_fault_behaves() {
        behaves(&Faulty::new(Arc::new(Memory::new()), Fault::Eio, u64::MAX));
    }

    #[test]
    fn short_writes_are_continued() {
        for call in 1..10 {
            behaves(&Faulty::new(Arc::new(Memory::new()), Fault::Short, call));
        }
    }
}
