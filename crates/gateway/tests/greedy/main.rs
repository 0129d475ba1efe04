//! What greedy peers cost, counted by the allocator: strangers in each transport, and holders of each right who let the server
//! hold what only they can make it give back. Every test has the process to itself, for the allocator counts all of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod known;
mod server;
mod stored;
mod storm;
mod strangers;

use peak_alloc::PeakAlloc;
use tokio::sync::{Mutex, MutexGuard};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

static ALONE: Mutex<()> = Mutex::const_new(());

const KIBIBYTE: usize = 1_024;
const MEBIBYTE: usize = 1_024 * 1_024;

/// The process, for one test, and what it held at its start.
struct Measured {
    _alone: MutexGuard<'static, ()>,
    before: usize,
}

impl Measured {
    async fn start() -> Measured {
        let _alone = ALONE.lock().await;
        Measured { _alone, before: 0 }
    }

    /// What is held now is no part of it.
    fn start_again(&mut self) {
        self.before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
    }

    fn held(&self) -> usize {
        MEMORY.current_usage().saturating_sub(self.before)
    }

    fn peak(&self) -> usize {
        MEMORY.peak_usage().saturating_sub(self.before)
    }
}
