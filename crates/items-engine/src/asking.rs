//! Queries that run, and who waits for them.
//!
//! A query looks now and then whether somebody still waits for its answer, and whether it has taken too long. What all of them hold is one
//! account: a query that finds no room in it is told to come back.

use crate::limits::{QUERIES_BYTES, QUERY_RETRY_MS, QUERY_TIME};
use items::Refusal;
use items::query::Watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Bytes that all queries hold.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    held_bytes: AtomicUsize,
}

/// One query, as it sees who asked it.
#[derive(Debug)]
pub(crate) struct Asking {
    is_left: Arc<AtomicBool>,
    until: Instant,
    all: Arc<Queries>,
}

/// Who waits for a query. Dropped, it goes without an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    is_left: Arc<AtomicBool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Asking {
    /// A query that begins now, and who waits for it.
    pub fn begin(all: &Arc<Queries>) -> (Asking, Waiting) {
        let is_left = Arc::new(AtomicBool::new(false));
        let waiting = Waiting { is_left: Arc::clone(&is_left) };
        (Asking { is_left, until: Instant::now() + QUERY_TIME, all: Arc::clone(all) }, waiting)
    }
}

impl Watch for Asking {
    fn goes_on(&self) -> Result<(), Refusal> {
        if self.is_left.load(Ordering::Relaxed) {
            return Err(Refusal::bad("Nobody waits for the answer."));
        }
        if Instant::now() >= self.until {
            return Err(Refusal::bad(format!(
                "The query takes more than {} seconds: name fewer items, or paths that are indexed.",
                QUERY_TIME.as_secs()
            )));
        }
        Ok(())
    }

    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let before = self.all.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= QUERIES_BYTES {
            return Ok(());
        }
        self.give_back(bytes);
        Err(Refusal::TooManyRequests { retry_after_ms: QUERY_RETRY_MS })
    }

    fn give_back(&self, bytes: usize) {
        self.all.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_ends_when_nobody_waits_and_what_all_hold_is_one_account() {
        // W-41, W-40
        let all = Arc::new(Queries::default());
        let (first, waiting) = Asking::begin(&all);
        let (second, _other) = Asking::begin(&all);
        first.hold(QUERIES_BYTES - 10).unwrap();
        second.hold(10).unwrap();
        assert_eq!(second.hold(1), Err(Refusal::TooManyRequests { retry_after_ms: QUERY_RETRY_MS }));
        first.give_back(QUERIES_BYTES - 10);
        second.hold(1).unwrap();
        assert_eq!(first.goes_on(), Ok(()));
        drop(waiting);
        assert!(first.goes_on().is_err() && second.goes_on().is_ok());
    }

    #[test]
    fn a_query_ends_when_its_time_is_over() {
        // W-41
        let (mut asking, _waiting) = Asking::begin(&Arc::default());
        assert_eq!(asking.goes_on(), Ok(()));
        asking.until -= QUERY_TIME;
        assert!(asking.goes_on().unwrap_err().to_string().contains("60 seconds"));
    }
}
