//! The real disk: a directory of the operating system.

use super::{Disk, DiskFile, Guard, Lock};
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Kept open for syncing names.
    directory: fs::File,
}

impl File {
    /// Opens the directory, making it and its parents if needed.
    pub fn open(path: &Path) -> io::Result<File> {
        make_directory(path)?;
        Ok(File { path: path.to_owned(), directory: fs::File::open(path)? })
    }
}

/// Makes the directory durable in its parent: without that a power failure could take all of it.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_directory(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::File::open(parent)?.sync_all()
}

impl Disk for File {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(Open { file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(Open { file }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        let path = self.path.join(name);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.write_all(holder.as_bytes())?;
                Ok(Lock::Held(Box::new(HeldLock { _file: file })))
            }
            Err(TryLockError::WouldBlock) => {
                let mut noted = String::new();
                // Somebody else's text: only for the message, and only so much of it.
                file.take(200).read_to_string(&mut noted)?;
                Ok(Lock::Busy(noted))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::fstatvfs(&self.directory)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// The lock is the open file; closing it, or the end of the process, gives it back.
#[derive(Debug)]
struct HeldLock {
    _file: fs::File,
}

impl Guard for HeldLock {}

#[derive(Debug)]
struct Open {
    file: fs::File,
}

/// An old system, or a file system, may not know how to write through.
#[cfg(target_os = "linux")]
fn or_write_and_sync(
    file: &dyn DiskFile,
    tried: rustix::io::Result<usize>,
    offset: u64,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    use rustix::io::Errno;
    match tried {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let count = file.write_at(offset, slices)?;
            file.sync_data()?;
            Ok(count)
        }
        other => Ok(other?),
    }
}

impl DiskFile for Open {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.file, slices, offset)?)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn write_through(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        use rustix::io::{ReadWriteFlags, pwritev2};
        let tried = pwritev2(&self.file, slices, offset, ReadWriteFlags::DSYNC);
        or_write_and_sync(self, tried, offset, slices)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn forget_cached(&self) {
        // Nothing depends on it, so nobody cares whether the system listens.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if self.length()? >= bytes {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            // A file system without reservation: the length alone, and a full disk shows at the write.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.file.set_len(bytes),
            other => Ok(other?),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::disk::Memory;
    use rustix::io::Errno;

    #[test]
    fn where_nothing_is_written_through_it_is_written_and_synced() {
        let slices = [IoSlice::new(b"zeros")];
        for missing in [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL] {
            let disk = Memory::new();
            let file = disk.create("a").unwrap();
            disk.sync_dir().unwrap();
            assert_eq!(or_write_and_sync(&*file, Err(missing), 3, &slices).unwrap(), 5);
            assert_eq!(disk.crash_image(0).content("a").unwrap(), b"\0\0\0zeros", "{missing:?}");
        }
        let file = Memory::new().create("a").unwrap();
        assert_eq!(or_write_and_sync(&*file, Ok(2), 0, &slices).unwrap(), 2);
        assert!(or_write_and_sync(&*file, Err(Errno::IO), 0, &slices).is_err(), "a failure is one");
        assert_eq!(file.length().unwrap(), 0, "nothing is written twice");
    }
}
