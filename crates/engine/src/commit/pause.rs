//! Where the threads of connections pause while nothing is gained by reading what clients send: an append is in flight, or
//! more is gathered for the next one. A pausing thread is woken as soon as there is something to write to clients.

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, sleep_for};
use std::time::Duration;

#[derive(Debug, Default)]
struct Pausing {
    /// How often pauses were ended.
    ends: u64,
    threads: usize,
}

/// Pauses of threads, ended all at once.
#[derive(Debug, Default)]
pub struct Pauses {
    pausing: Mutex<Pausing>,
    ended: Condvar,
}

impl Pauses {
    fn lock(&self) -> MutexGuard<'_, Pausing> {
        self.pausing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often pauses were ended until now: to be asked before a thread looks whether it may pause.
    pub fn ends(&self) -> u64 {
        self.lock().ends
    }

    /// Something has happened that pausing threads may want to see. They go on, and so does a thread that was about to pause.
    pub fn end(&self) {
        let mut pausing = self.lock();
        pausing.ends += 1;
        let is_awaited = pausing.threads > 0;
        drop(pausing);
        if is_awaited {
            self.ended.notify_all();
        }
    }

    /// Pauses for so long, unless pauses were ended since there had been so many ends.
    pub fn pause(&self, ends: u64, time: Duration) {
        let mut pausing = self.lock();
        if pausing.ends == ends {
            pausing.threads += 1;
            pausing = sleep_for(&self.pausing, &self.ended, pausing, time, |pausing| pausing.ends == ends);
            pausing.threads -= 1;
        }
    }
}
