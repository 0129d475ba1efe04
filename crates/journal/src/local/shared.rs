//! What the writer, the thread that syncs and the thread that writes snapshots must all know.

use crate::disk::DiskFile;
use crate::error::Error;
use crate::journal::Position;
use crate::ticket::Outcome;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Debug, Default)]
pub(super) struct Shared {
    in_flight: AtomicBool,
    committed: AtomicU64,
    /// Why the journal has stopped; never taken back.
    stopped: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(committed: Position) -> Shared {
        Shared {
            in_flight: AtomicBool::new(false),
            committed: AtomicU64::new(committed.0),
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

    pub(super) fn assert_idle(&self) {
        assert!(!self.in_flight.load(Ordering::Acquire), "an append is in flight: wait for its ticket first");
    }
}

/// A written batch that is not synced yet.
pub(crate) struct Pending {
    /// The very handle that wrote.
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) segment: Arc<super::Segment>,
    pub(super) shared: Arc<Shared>,
    pub(super) position: Position,
    pub(super) is_relaxed: bool,
}

impl Pending {
    pub(crate) fn wait(self) -> Outcome {
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
}
