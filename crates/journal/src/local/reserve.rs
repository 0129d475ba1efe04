//! Room on the disk that is held for the day when there is none left.
//!
//! It is a file that nobody writes to. When a segment or a snapshot finds the disk full, the file is removed and the
//! work is tried again; the engine sees that the reserve is gone, stops storing what it can refuse, and
//! asks for it back from time to time.

use super::names;
use crate::disk::Disk;
use crate::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Reserve {
    disk: Arc<dyn Disk>,
    bytes: u64,
    /// What must be free beside the reserve before it is taken back, so that it is not given up again at once.
    margin_bytes: u64,
    /// Written under the lock only; read without it.
    is_held: AtomicBool,
    /// One thread at a time gives it up or takes it back: were it taken back between the note that it is gone and its
    /// removal, it would be gone and count as held.
    changing: Mutex<()>,
}

impl Reserve {
    /// Finds the reserve of an earlier life.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        bytes: u64,
        margin_bytes: u64,
        exists: bool,
    ) -> Result<Reserve, Error> {
        let reserve = Reserve::new(disk, bytes, margin_bytes);
        if bytes > 0 && exists {
            // Of another size after a change of settings.
            let file = reserve.disk.open(names::RESERVE).map_err(|error| reserve.failed("open", error))?;
            let length = file.length().map_err(|error| reserve.failed("open", error))?;
            reserve.is_held.store(length == bytes, Ordering::Release);
        }
        Ok(reserve)
    }

    fn new(disk: Arc<dyn Disk>, bytes: u64, margin_bytes: u64) -> Reserve {
        Reserve { disk, bytes, margin_bytes, is_held: AtomicBool::new(bytes == 0), changing: Mutex::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a reserve if there is none, or gives up one that is not wanted any more. A full disk is no error: then there is
    /// none.
    pub(super) fn move_in(&self, exists: bool) -> Result<(), Error> {
        if self.bytes == 0 && exists {
            self.remove(names::RESERVE).map_err(|error| self.failed("remove", error))?;
        }
        self.refill().map(drop)
    }

    /// No reserve, and no need of one.
    pub(super) fn none(disk: Arc<dyn Disk>) -> Reserve {
        Reserve::new(disk, 0, 0)
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    pub(super) fn held_bytes(&self) -> u64 {
        if self.is_held() { self.bytes } else { 0 }
    }

    /// Gives the room up. Returns whether there was any to give.
    pub(super) fn release(&self) -> bool {
        let _changing = self.lock();
        let was_held = self.bytes > 0 && self.is_held.swap(false, Ordering::AcqRel);
        was_held && self.remove(names::RESERVE).is_ok()
    }

    /// Takes the room back if it is there. Returns whether it is held.
    pub(super) fn refill(&self) -> Result<bool, Error> {
        let _changing = self.lock();
        if self.is_held() {
            return Ok(true);
        }
        if self.lacking_bytes()? > 0 {
            return Ok(false);
        }
        match self.take() {
            Ok(()) => {
                self.is_held.store(true, Ordering::Release);
                Ok(true)
            }
            Err(error) => {
                // Whatever is left of it is removed at the next open if it cannot be now.
                let _ = self.remove(names::RESERVE_UNFINISHED);
                if is_full(&error) || lacks_handles(&error) {
                    Ok(false)
                } else {
                    Err(self.failed("make", error))
                }
            }
        }
    }

    /// How much more must be free before it can be taken back.
    pub(super) fn lacking_bytes(&self) -> Result<u64, Error> {
        let free = self.disk.free_bytes().map_err(|error| self.failed("ask for the room for", error))?;
        let needed = self.bytes.saturating_add(self.margin_bytes);
        Ok(if self.is_held() { 0 } else { needed.saturating_sub(free) })
    }

    /// Not synced: a reserve that a power failure takes is taken again at the next start.
    fn take(&self) -> io::Result<()> {
        self.disk.create(names::RESERVE_UNFINISHED)?.allocate(self.bytes)?;
        self.disk.rename(names::RESERVE_UNFINISHED, names::RESERVE)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn failed(&self, action: &'static str, error: io::Error) -> Error {
        Error::io(action, &self.disk.path(names::RESERVE), error)
    }
}

/// Whether a call failed because the process, or the machine, has as many files open as it may.
pub(super) fn lacks_handles(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

/// Whether a call failed for want of room, and may succeed later.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Call, Memory, Watched};
    use std::sync::Weak;

    /// A reserve of 1,000 bytes, and how often its file was touched while nobody had the lock.
    fn watched(memory: &Memory) -> (Arc<Reserve>, Arc<Mutex<u32>>) {
        let unlocked: Arc<Mutex<u32>> = Arc::default();
        let counted = unlocked.clone();
        let reserve = Arc::new_cyclic(|reserve: &Weak<Reserve>| {
            let reserve = reserve.clone();
            let watch = move |call: Call<'_>| {
                if call.is_change() {
                    let is_free =
                        reserve.upgrade().is_some_and(|reserve| reserve.changing.try_lock().is_ok());
                    *counted.lock().unwrap() += u32::from(is_free);
                }
                Ok(())
            };
            Reserve::new(Arc::new(Watched::new(Arc::new(memory.clone()), Arc::new(watch))), 1_000, 10)
        });
        (reserve, unlocked)
    }

    #[test]
    fn giving_up_and_taking_back_never_overlap_and_what_is_held_is_there() {
        for order in ["RGRG", "GRGG", "RRGGR", "GGRR"] {
            let memory = Memory::new();
            let (reserve, unlocked) = watched(&memory);
            for step in order.chars() {
                let was_held = reserve.is_held();
                match step {
                    'R' => assert!(reserve.refill().unwrap()),
                    _ => assert_eq!(reserve.release(), was_held, "{order}"),
                }
                assert_eq!(reserve.is_held(), memory.content(names::RESERVE).is_some(), "{order}");
            }
            assert_eq!(*unlocked.lock().unwrap(), 0, "{order}: the file is touched under the lock only");
        }
    }

    #[test]
    fn two_threads_that_give_up_and_take_back_leave_what_they_say() {
        let memory = Memory::new();
        let (reserve, _) = watched(&memory);
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| reserve.release());
                scope.spawn(|| reserve.refill().unwrap());
            });
            assert_eq!(reserve.is_held(), memory.content(names::RESERVE).is_some());
        }
    }

    #[test]
    fn a_reserve_that_cannot_be_taken_whole_is_not_held_and_leaves_nothing() {
        for refused in ["create", "allocate", "rename"] {
            let memory = Memory::new();
            let watch = move |call: Call<'_>| match (refused, call) {
                ("create", Call::Create(_))
                | ("allocate", Call::Allocate(_))
                | ("rename", Call::Rename(..)) => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(()),
            };
            let disk = Watched::new(Arc::new(memory.clone()), Arc::new(watch));
            let reserve = Reserve::new(Arc::new(disk), 1_000, 10);
            assert!(!reserve.refill().unwrap() && !reserve.is_held(), "{refused}");
            assert_eq!(memory.list().unwrap().len(), 0, "{refused}");
        }
    }
}
