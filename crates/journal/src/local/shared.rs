//! What the thread that appends, the one that makes spare segments and the one that writes snapshots must all know.

use super::reserve::{Reserve, is_full};
use super::tail_pages::Layout;
use crate::disk::{DiskFile, Guard, Pages};
use crate::error::Error;
use crate::journal::Position;
use crate::ticket::Outcome;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Shared {
    in_flight: AtomicBool,
    committed: AtomicU64,
    /// The buffers of the batch that was written last, for the next one.
    pages: Mutex<Option<Pages>>,
    /// Why the journal has stopped; never taken back.
    stopped: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(committed: Position) -> Shared {
        Shared {
            in_flight: AtomicBool::new(false),
            committed: AtomicU64::new(committed.0),
            pages: Mutex::default(),
            stopped: OnceLock::new(),
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        match self.stopped.get() {
            Some(why) => Err(Error::Stopped { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Stops the journal because of `error`, which is returned for the caller.
    pub(super) fn stop(&self, error: Error) -> Error {
        // The first reason stays: later ones follow from it.
        let _ = self.stopped.set(error.to_string());
        error
    }

    pub(super) fn committed(&self) -> Position {
        Position(self.committed.load(Ordering::Acquire))
    }

    pub(super) fn set_committed(&self, position: Position) {
        self.committed.store(position.0, Ordering::Release);
    }

    pub(super) fn take_pages(&self) -> Option<Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn begin(&self) {
        assert!(
            !self.in_flight.swap(true, Ordering::AcqRel),
            "an append is in flight: wait for its ticket first"
        );
    }

    /// Ends an append that wrote nothing.
    pub(super) fn abandon(&self) {
        self.in_flight.store(false, Ordering::Release);
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn assert_idle(&self) {
        assert!(!self.is_in_flight(), "an append is in flight: wait for its ticket first");
    }
}

/// A batch that is not synced yet, nor written where that takes its time.
pub(crate) struct Pending {
    /// The very handle that wrote.
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) unwritten: Option<Arc<Layout>>,
    pub(super) segment: Arc<super::Segment>,
    pub(super) shared: Arc<Shared>,
    pub(super) reserve: Arc<Reserve>,
    /// Nobody else may write there before this is written.
    pub(super) _lock: Arc<dyn Guard>,
    pub(super) position: Position,
    pub(super) is_relaxed: bool,
}

impl Pending {
    pub(crate) fn wait(mut self) -> Outcome {
        if let Some(unwritten) = self.unwritten.take()
            && let Err(error) = self.write(unwritten)
        {
            return Outcome::Failed(self.shared.stop(Error::io("write", &self.segment.path, error)));
        }
        let synced = if self.is_relaxed { Ok(()) } else { self.file.sync_data() };
        match synced {
            Ok(()) => {
                // Another write to this disk may have failed meanwhile; then its word is worth nothing.
                if let Err(stopped) = self.shared.check() {
                    return Outcome::Failed(stopped);
                }
                self.shared.set_committed(self.position);
                self.shared.in_flight.store(false, Ordering::Release);
                Outcome::Committed
            }
            // Never tried again: the system may have dropped the pages and would report success.
            Err(error) => Outcome::Failed(self.shared.stop(Error::io("sync", &self.segment.path, error))),
        }
    }

    fn write(&self, unwritten: Arc<Layout>) -> io::Result<()> {
        let mut written = unwritten.write_direct(&*self.file);
        // A file system that copies on write may be full though the room was reserved.
        if written.as_ref().is_err_and(is_full) && self.reserve.release() {
            written = unwritten.write_direct(&*self.file);
        }
        written?;
        self.segment.set_unwritten(None);
        // A thread that reads it just now keeps it: then the next batch takes new ones.
        if let Some(layout) = Arc::into_inner(unwritten) {
            *self.shared.pages.lock().unwrap_or_else(PoisonError::into_inner) = Some(layout.into_pages());
        }
        Ok(())
    }
}
