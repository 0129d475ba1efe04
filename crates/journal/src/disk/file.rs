//! The real disk: a directory of the operating system.

use super::pages::are_pages;
use super::{Disk, DiskFile, Guard, Lock};
use crate::limits::LOCK_NOTE_BYTES;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is stored is for its owner alone, whatever the process was told to grant to others.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Opens files of ours, never what a link leads to: somebody else may have put it there.
pub fn plain() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// A directory.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Nothing is made, changed or removed.
    is_read_only: bool,
    /// Kept open for syncing names.
    directory: fs::File,
}

impl File {
    /// Opens the directory, making it and its parents if needed.
    pub fn open(path: &Path) -> io::Result<File> {
        make_directory(path)?;
        File::new(path, false)
    }

    /// Opens a directory that is there, to look at it: every call that would change anything is refused, and the rights to
    /// read are enough. Several may look at once, while nobody writes.
    pub fn look(path: &Path) -> io::Result<File> {
        File::new(path, true)
    }

    fn new(path: &Path, is_read_only: bool) -> io::Result<File> {
        Ok(File { path: path.to_owned(), is_read_only, directory: fs::File::open(path)? })
    }

    fn must_be_writable(&self) -> io::Result<()> {
        match self.is_read_only {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(()),
        }
    }
}

/// Makes a directory for its owner alone, with all that lead to it, each durable in its parent: without that a power failure
/// could take all of it.
pub fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_directory(parent)?;
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::File::open(parent)?.sync_all()
}

impl Disk for File {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.must_be_writable()?;
        let file = plain().read(true).write(true).create(true).truncate(true).open(self.path.join(name))?;
        Ok(Arc::new(Open::new(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = plain().read(true).write(!self.is_read_only).open(self.path.join(name))?;
        Ok(Arc::new(Open::new(file)))
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
        self.must_be_writable()?;
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.must_be_writable()?;
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    /// The lock is on the directory itself: a file could be removed and made again, and two would hold it.
    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        let directory = fs::File::open(&self.path)?;
        let locked = match self.is_read_only {
            true => directory.try_lock_shared(),
            false => directory.try_lock(),
        };
        match locked {
            Ok(()) => {
                if !self.is_read_only {
                    let mut file =
                        plain().write(true).create(true).truncate(true).open(self.path.join(name))?;
                    file.write_all(holder.as_bytes())?;
                }
                Ok(Lock::Held(Box::new(HeldLock { directory })))
            }
            Err(TryLockError::WouldBlock) => {
                let mut noted = String::new();
                // Somebody else's text: only for the message, and only so much of it. A process that only looks leaves none.
                if let Ok(file) = plain().read(true).open(self.path.join(name)) {
                    file.take(LOCK_NOTE_BYTES).read_to_string(&mut noted)?;
                }
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

/// The lock is the open directory; the end of the process gives it back too.
#[derive(Debug)]
struct HeldLock {
    directory: fs::File,
}

impl Guard for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Closing it is not enough: a process that is being started has a copy until it runs its own program. Should this
        // fail, closing does it a moment later.
        let _ = self.directory.unlock();
    }
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    /// The same file past the system's cache, while somebody writes so.
    direct: Mutex<Option<Arc<fs::File>>>,
    /// The file system does not do that, or wants more than whole pages.
    is_refused: AtomicBool,
}

impl Open {
    fn new(file: fs::File) -> Open {
        Open { file, direct: Mutex::default(), is_refused: AtomicBool::new(false) }
    }

    /// The file past the system's cache.
    fn direct(&self) -> Option<Arc<fs::File>> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let mut direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if direct.is_none() {
            *direct = reopen_direct(&self.file).ok().map(Arc::new);
            self.is_refused.store(direct.is_none(), Ordering::Relaxed);
        }
        direct.clone()
    }

    /// The same, if these are pages for it.
    fn direct_for(&self, offset: u64, bytes: &[u8]) -> Option<Arc<fs::File>> {
        if are_pages(offset, bytes) { self.direct() } else { None }
    }

    /// Whether a file system that opened the file so does not write so after all.
    fn is_refusal(&self, error: &io::Error) -> bool {
        let is_refusal = error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error());
        self.is_refused.fetch_or(is_refusal, Ordering::Relaxed);
        is_refusal
    }
}

/// Opens the file once more, whatever its name is by now.
#[cfg(target_os = "linux")]
fn reopen_direct(file: &fs::File) -> io::Result<fs::File> {
    use std::os::fd::AsRawFd;
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().write(true).custom_flags(direct).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn reopen_direct(_: &fs::File) -> io::Result<fs::File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// An old system, or a file system, may not know how to write through.
#[cfg(target_os = "linux")]
fn or_write_and_sync(
    file: &dyn DiskFile,
    tried: rustix::io::Result<usize>,
    offset: u64,
    bytes: &[u8],
) -> io::Result<usize> {
    use rustix::io::Errno;
    match tried {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let count = file.write_direct(offset, bytes)?;
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

    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        match self.direct_for(offset, bytes).map(|direct| direct.write_at(bytes, offset)) {
            Some(Err(error)) if self.is_refusal(&error) => {}
            Some(written) => return written,
            None => {}
        }
        self.write_at(offset, &[IoSlice::new(bytes)])
    }

    fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    #[cfg(target_os = "linux")]
    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        use rustix::io::{ReadWriteFlags, pwritev2};
        let direct = self.direct_for(offset, bytes);
        let file = direct.as_deref().unwrap_or(&self.file);
        let tried = pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC);
        or_write_and_sync(self, tried, offset, bytes)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn end_writing(&self) {
        *self.direct.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
    use crate::fuzzing::Scratch;
    use rustix::io::Errno;

    #[test]
    fn a_lock_that_is_given_back_is_free_though_a_child_has_a_copy_of_it() {
        let folder = Scratch::new("copy");
        let directory = fs::File::open(folder.path()).unwrap();
        directory.try_lock().unwrap();
        let _copy = directory.try_clone().unwrap();
        let held = HeldLock { directory };
        let disk = File::open(folder.path()).unwrap();
        assert!(matches!(disk.lock("lock", "one").unwrap(), Lock::Busy(_)));
        drop(held);
        assert!(matches!(disk.lock("lock", "one").unwrap(), Lock::Held(_)));
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone_and_no_link_is_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = Scratch::new("modes");
        let disk = File::open(&folder.path().join("below")).unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        drop(disk.create("a").unwrap());
        drop(disk.lock("lock", "one").unwrap());
        assert_eq!([mode("below"), mode("below/a"), mode("below/lock")], [0o700, 0o600, 0o600]);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        for name in ["link", "lock"] {
            let _ = disk.remove(name);
            symlink(&elsewhere, folder.path().join("below").join(name)).unwrap();
        }
        assert!(
            disk.create("link").is_err() && disk.open("link").is_err() && disk.lock("lock", "two").is_err()
        );
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "kept");
    }

    #[test]
    fn removing_the_file_of_the_lock_makes_no_second_holder() {
        let folder = Scratch::new("lock");
        let first = File::open(folder.path()).unwrap();
        let Lock::Held(_guard) = first.lock("lock", "process 1").unwrap() else { panic!("it is free") };
        first.remove("lock").unwrap();
        for other in [File::open(folder.path()).unwrap(), File::look(folder.path()).unwrap()] {
            assert!(matches!(other.lock("lock", "process 2").unwrap(), Lock::Busy(_)));
        }
    }

    #[test]
    fn whoever_only_looks_changes_nothing_and_keeps_writers_away() {
        let folder = Scratch::new("look");
        let disk = File::open(folder.path()).unwrap();
        disk.create("a").unwrap().write_at(0, &[IoSlice::new(b"kept")]).unwrap();
        let look = File::look(folder.path()).unwrap();
        let file = look.open("a").unwrap();
        assert!(file.write_at(0, &[IoSlice::new(b"lost")]).is_err());
        assert!(look.create("b").is_err() && look.rename("a", "b").is_err() && look.remove("a").is_err());
        let another = File::look(folder.path()).unwrap();
        let Lock::Held(guard) = look.lock("lock", "one").unwrap() else { panic!("it is free") };
        let Lock::Held(other) = another.lock("lock", "two").unwrap() else { panic!("two may look") };
        assert!(matches!(disk.lock("lock", "a writer").unwrap(), Lock::Busy(_)));
        drop((guard, other));
        assert_eq!(disk.list().unwrap(), ["a"], "no lock is left");
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"kept");
        assert!(File::look(&folder.path().join("missing")).is_err());
        assert!(!folder.path().join("missing").exists());
    }

    #[test]
    fn where_nothing_is_written_through_it_is_written_and_synced() {
        let zeros = b"zeros";
        for missing in [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL] {
            let disk = Memory::new();
            let file = disk.create("a").unwrap();
            disk.sync_dir().unwrap();
            assert_eq!(or_write_and_sync(&*file, Err(missing), 3, zeros).unwrap(), 5);
            assert_eq!(disk.crash_image(0).content("a").unwrap(), b"\0\0\0zeros", "{missing:?}");
        }
        let file = Memory::new().create("a").unwrap();
        assert_eq!(or_write_and_sync(&*file, Ok(2), 0, zeros).unwrap(), 2);
        assert!(or_write_and_sync(&*file, Err(Errno::IO), 0, zeros).is_err(), "a failure is one");
        assert_eq!(file.length().unwrap(), 0, "nothing is written twice");
    }
}
