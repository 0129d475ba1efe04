//! A disk that lets somebody look after each call that changes it.

use journal::disk::{Disk, DiskFile, Lock, Memory};
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

pub struct Watching {
    memory: Memory,
    watch: Watch,
}

#[derive(Clone)]
struct Watch(Arc<dyn Fn(&Memory) + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}

impl Watching {
    pub fn new(memory: Memory, watch: impl Fn(&Memory) + Send + Sync + 'static) -> Watching {
        Watching { memory, watch: Watch(Arc::new(watch)) }
    }

    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(Watched { inner, memory: self.memory.clone(), watch: self.watch.clone() })
    }

    fn seen<T>(&self, result: io::Result<T>) -> io::Result<T> {
        (self.watch.0)(&self.memory);
        result
    }
}

impl Disk for Watching {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.seen(self.memory.create(name))?;
        Ok(self.file(inner))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.memory.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.memory.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.seen(self.memory.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.seen(self.memory.remove(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.seen(self.memory.sync_dir())
    }

    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        self.memory.lock(name, holder)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.memory.free_bytes()
    }

    fn path(&self, name: &str) -> String {
        self.memory.path(name)
    }
}

#[derive(Debug)]
struct Watched {
    inner: Arc<dyn DiskFile>,
    memory: Memory,
    watch: Watch,
}

impl Watched {
    fn seen<T>(&self, result: io::Result<T>) -> io::Result<T> {
        (self.watch.0)(&self.memory);
        result
    }
}

impl DiskFile for Watched {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.seen(self.inner.write_at(offset, slices))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.seen(self.inner.sync_data())
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.seen(self.inner.allocate(bytes))
    }
}
