//! A disk that fails at a chosen call, for finding out that every failure is noticed.
//!
//! Calls are counted over the directory and all of its files, so running the same work with the fault at call 1, 2,
//! 3 ... until none fires visits every place where the disk can fail.

use super::{Disk, DiskFile, Lock};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the chosen call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error; nothing happened.
    Eio,
    /// No space left; nothing happened. Calls that need no space succeed.
    Enospc,
    /// A write takes only half of its bytes and says so, which is allowed.
    Short,
    /// A write takes half of its bytes, then reports an error.
    Torn,
    /// A read finds other bytes than were written, and the next two find the right ones. Everything else succeeds.
    Rot,
    /// This call and all after it fail: the machine is off.
    PowerCut,
}

/// One read of so many is rotten.
const ROTTEN: u64 = 3;

/// Another disk with one fault in it.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Disk>,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    fault: Fault,
    at: AtomicU64,
    /// How many calls fail.
    lasting: u64,
    calls: AtomicU64,
}

/// What a call does to the disk below.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Write,
    Grow,
    Read,
    Other,
}

impl Faulty {
    /// Lets the `at`-th call fail; the first is 1.
    pub fn new(inner: Arc<dyn Disk>, fault: Fault, at: u64) -> Faulty {
        Faulty::lasting(inner, fault, at, 1)
    }

    /// Lets so many calls fail, the `at`-th first.
    pub fn lasting(inner: Arc<dyn Disk>, fault: Fault, at: u64, lasting: u64) -> Faulty {
        let plan = Plan { fault, at: AtomicU64::new(at), lasting, calls: AtomicU64::new(0) };
        Faulty { inner, plan: Arc::new(plan) }
    }

    /// Calls so far. Below `at` the fault has not been reached.
    pub fn calls(&self) -> u64 {
        self.plan.calls.load(Ordering::SeqCst)
    }

    /// Lets another call fail, the `nth` from now on; the next is 1.
    pub fn fail_in(&self, nth: u64) {
        self.plan.at.store(self.calls() + nth, Ordering::SeqCst);
    }

    fn wrap(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { inner, plan: self.plan.clone() })
    }
}

impl Plan {
    /// Counts the call. `Ok(true)` means that a write shall take only half, and a read find other bytes.
    fn pass(&self, kind: Kind) -> io::Result<bool> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let at = self.at.load(Ordering::SeqCst);
        let is_over = n.saturating_sub(at) >= self.lasting && self.fault != Fault::PowerCut;
        let is_due = n >= at && !is_over;
        match self.fault {
            _ if !is_due => Ok(false),
            Fault::Enospc if matches!(kind, Kind::Read | Kind::Other) => Ok(false),
            Fault::Rot => Ok(kind == Kind::Read && (n - at).is_multiple_of(ROTTEN)),
            Fault::Enospc => Err(io::ErrorKind::StorageFull.into()),
            Fault::Short => Ok(kind == Kind::Write),
            Fault::Torn if kind == Kind::Write => Ok(true),
            Fault::Eio | Fault::Torn | Fault::PowerCut => Err(io::Error::other("injected fault")),
        }
    }
}

impl Disk for Faulty {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.plan.pass(Kind::Grow)?;
        Ok(self.wrap(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.plan.pass(Kind::Other)?;
        Ok(self.wrap(self.inner.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.plan.pass(Kind::Other)?;
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plan.pass(Kind::Other)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.plan.pass(Kind::Other)?;
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.plan.pass(Kind::Other)?;
        self.inner.sync_dir()
    }

    fn lock(&self, name: &str, holder: &str) -> io::Result<Lock> {
        self.plan.pass(Kind::Other)?;
        self.inner.lock(name, holder)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.plan.pass(Kind::Other)?;
        self.inner.free_bytes()
    }

    fn path(&self, name: &str) -> String {
        self.inner.path(name)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    plan: Arc<Plan>,
}

impl FaultyFile {
    /// Writes the first half of the slices' bytes, at least one.
    fn write_half(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let joined: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.inner.write_at(offset, &[IoSlice::new(&joined[..joined.len().div_ceil(2)])])
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.plan.pass(Kind::Write)? {
            return self.inner.write_at(offset, slices);
        }
        let written = self.write_half(offset, slices)?;
        if self.plan.fault == Fault::Torn {
            Err(io::Error::other("injected torn write"))
        } else {
            Ok(written)
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let is_rotten = self.plan.pass(Kind::Read)?;
        let length = self.inner.read_at(offset, buffer)?;
        if is_rotten && let Some(byte) = buffer[..length].get_mut(length / 2) {
            *byte ^= 0x10;
        }
        Ok(length)
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn sync_data(&self) -> io::Result<()> {
        // Delayed allocation: a full disk may show only here.
        self.plan.pass(Kind::Grow)?;
        self.inner.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.plan.pass(Kind::Other)?;
        self.inner.length()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.plan.pass(Kind::Grow)?;
        self.inner.allocate(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    #[test]
    fn one_read_of_three_is_rotten_and_every_write_is_whole() {
        let memory = Memory::new();
        let disk = Faulty::lasting(Arc::new(memory.clone()), Fault::Rot, 1, 100);
        let file = disk.create("a").unwrap();
        file.write_at(0, &[IoSlice::new(b"abc")]).unwrap();
        let mut read = [0; 3];
        let seen: Vec<bool> = (0..6)
            .map(|_| {
                assert_eq!(file.read_at(0, &mut read).unwrap(), 3);
                read == *b"abc"
            })
            .collect();
        assert_eq!(seen.iter().filter(|is_right| **is_right).count(), 4, "{seen:?}");
    }
}
