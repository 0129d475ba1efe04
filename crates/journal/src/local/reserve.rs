//! Room on the disk that is held for the day when there is none left.
//!
//! It is a file that nobody writes to. When a segment or a snapshot finds the disk full, the file is removed and the
//! work is tried again; whoever runs the journal sees that the reserve is gone, stops storing what it can refuse, and
//! asks for it back from time to time.

use super::names;
use crate::disk::Disk;
use crate::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Reserve {
    disk: Arc<dyn Disk>,
    bytes: u64,
    /// What must be free beside the reserve before it is taken back, so that it is not given up again at once.
    margin_bytes: u64,
    is_held: AtomicBool,
}

impl Reserve {
    /// Finds the reserve of an earlier life.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        bytes: u64,
        margin_bytes: u64,
        exists: bool,
    ) -> Result<Reserve, Error> {
        let reserve = Reserve { disk, bytes, margin_bytes, is_held: AtomicBool::new(bytes == 0) };
        if bytes > 0 && exists {
            // Of another size after a change of settings.
            let file = reserve.disk.open(names::RESERVE).map_err(|error| reserve.failed("open", error))?;
            let length = file.length().map_err(|error| reserve.failed("open", error))?;
            reserve.is_held.store(length == bytes, Ordering::Release);
        }
        Ok(reserve)
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
        Reserve { disk, bytes: 0, margin_bytes: 0, is_held: AtomicBool::new(true) }
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    pub(super) fn held_bytes(&self) -> u64 {
        if self.is_held() { self.bytes } else { 0 }
    }

    /// Gives the room up. Returns whether there was any to give.
    pub(super) fn release(&self) -> bool {
        let was_held = self.bytes > 0 && self.is_held.swap(false, Ordering::AcqRel);
        was_held && self.remove(names::RESERVE).is_ok()
    }

    /// Takes the room back if it is there. Returns whether it is held.
    pub(super) fn refill(&self) -> Result<bool, Error> {
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
