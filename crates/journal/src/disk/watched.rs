//! A disk that somebody watches: asked before each call, and told after it. Everything else is the disk below, so that a
//! test that wants one call to be slow, refused, counted or changed says only that.

use super::{Disk, DiskFile, Lock};
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// What is asked of the disk below; names are those under which files were made or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<'a> {
    Create(&'a str),
    Open(&'a str),
    List,
    Rename(&'a str, &'a str),
    Remove(&'a str),
    SyncDir,
    Lock,
    FreeBytes,
    Write { name: &'a str, offset: u64, bytes: usize },
    Read { name: &'a str, offset: u64, bytes: usize },
    Sync(&'a str),
    Length(&'a str),
    Allocate(&'a str),
}

impl Call<'_> {
    /// Whether it may leave the disk other than it was.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Call::Open(_) | Call::List | Call::Lock | Call::FreeBytes | Call::Read { .. } | Call::Length(_)
        )
    }
}

/// What a watcher is told.
pub trait Watch: Send + Sync {
    /// Before the call reaches the disk, which it does not after an error. It may take its time.
    fn before(&self, call: Call<'_>) -> io::Result<()> {
        let _ = call;
        Ok(())
    }

    /// After the disk has done it.
    fn after(&self, call: Call<'_>) {
        let _ = call;
    }

    /// What was read at an offset, to be changed; returns how much of it there is.
    fn change_read(&self, name: &str, offset: u64, found: &mut [u8]) -> usize {
        let _ = (name, offset);
        found.len()
    }

    /// How long a file is, to be changed.
    fn change_length(&self, name: &str, length: u64) -> u64 {
        let _ = name;
        length
    }
}

/// A closure that is asked before each call.
impl<F: Fn(Call<'_>) -> io::Result<()> + Send + Sync> Watch for F {
    fn before(&self, call: Call<'_>) -> io::Result<()> {
        self(call)
    }
}

/// Another disk, watched.
pub struct Watched {
    inner: Arc<dyn Disk>,
    watch: Arc<dyn Watch>,
}

impl Watched {
    pub fn new(inner: Arc<dyn Disk>, watch: Arc<dyn Watch>) -> Watched {
        Watched { inner, watch }
    }

    fn call<T>(&self, call: Call<'_>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        watched(&*self.watch, call, make)
    }

    fn file(&self, name: &str, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { name: name.to_owned(), inner, watch: self.watch.clone() })
    }
}

fn watched<T>(watch: &dyn Watch, call: Call<'_>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    watch.before(call)?;
    let made = make()?;
    watch.after(call);
    Ok(made)
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Disk for Watched {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.call(Call::Create(name), || self.inner.create(name))?;
        Ok(self.file(name, inner))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.call(Call::Open(name), || self.inner.open(name))?;
        Ok(self.file(name, inner))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.call(Call::List, || self.inner.list())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(Call::Rename(from, to), || self.inner.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(Call::Remove(name), || self.inner.remove(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.call(Call::SyncDir, || self.inner.sync_dir())
    }

    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        self.call(Call::Lock, || self.inner.lock(name, holder))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.call(Call::FreeBytes, || self.inner.free_bytes())
    }

    fn path(&self, name: &str) -> String {
        self.inner.path(name)
    }
}

struct WatchedFile {
    /// What it was called when it was opened.
    name: String,
    inner: Arc<dyn DiskFile>,
    watch: Arc<dyn Watch>,
}

impl WatchedFile {
    fn call<T>(&self, call: Call<'_>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        watched(&*self.watch, call, make)
    }
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedFile({})", self.name)
    }
}

impl DiskFile for WatchedFile {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let call = Call::Write { name: &self.name, offset, bytes };
        self.call(call, || self.inner.write_at(offset, slices))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let call = Call::Read { name: &self.name, offset, bytes: buffer.len() };
        let count = self.call(call, || self.inner.read_at(offset, buffer))?;
        Ok(self.watch.change_read(&self.name, offset, &mut buffer[..count]))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(Call::Sync(&self.name), || self.inner.sync_data())
    }

    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let call = Call::Write { name: &self.name, offset, bytes: bytes.len() };
        self.call(call, || self.inner.write_direct(offset, bytes))
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn length(&self) -> io::Result<u64> {
        let length = self.call(Call::Length(&self.name), || self.inner.length())?;
        Ok(self.watch.change_length(&self.name, length))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.call(Call::Allocate(&self.name), || self.inner.allocate(bytes))
    }

    fn end_writing(&self) {
        self.inner.end_writing();
    }

    fn forget_cached(&self) {
        self.inner.forget_cached();
    }
}
