//! Reading bodies back for connections, off their threads: a run of neighbours costs one read of the disk.
//!
//! What is read before there is room to send it counts against one budget for all connections; what is needed now is
//! always read, for its size is bounded by the connection that has made room for it.

use crate::health::Health;
use crate::limits::READ_AHEAD_BYTES;
use bytes::Bytes;
use journal::{Place, read_run};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::task::JoinHandle;

/// What is left of the budget, shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    held_bytes: AtomicUsize,
}

/// Bytes taken from the budget until dropped.
#[derive(Debug)]
struct Reserved {
    ahead: Arc<Ahead>,
    bytes: usize,
}

impl Ahead {
    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        let before = self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        let reserved = Reserved { ahead: Arc::clone(self), bytes };
        (before + bytes <= READ_AHEAD_BYTES).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.ahead.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bodies that were read, each in the place of the one that was asked for; `None` for one that is damaged. Dropping this
/// gives the budget back.
#[derive(Debug)]
pub struct Bodies {
    pub bodies: Vec<Option<Bytes>>,
    _reserved: Option<Reserved>,
}

/// A read that is under way.
#[derive(Debug)]
pub struct BodyRead {
    job: Option<JoinHandle<Bodies>>,
    done: Option<Bodies>,
}

impl BodyRead {
    /// Starts to read `places`, which hold `bytes`. When it is not needed yet (`is_ahead`), only within the budget. What
    /// cannot be read is reported to `health`.
    pub(crate) fn start(
        ahead: &Arc<Ahead>,
        health: &Arc<Health>,
        places: Vec<Place>,
        bytes: usize,
        is_ahead: bool,
    ) -> Option<BodyRead> {
        let reserved = match is_ahead {
            true => Some(ahead.reserve(bytes)?),
            false => None,
        };
        let health = Arc::clone(health);
        let job = tokio::task::spawn_blocking(move || Bodies {
            bodies: read(&places, &health),
            _reserved: reserved,
        });
        Some(BodyRead { job: Some(job), done: None })
    }

    /// Returns when the bodies are there to be taken.
    pub async fn done(&mut self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }

    /// The bodies, if they have been read.
    pub fn take(&mut self) -> Option<Bodies> {
        let _ = self.poll(&mut Context::from_waker(Waker::noop()));
        self.done.take()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(job) = &mut self.job {
            let done = std::task::ready!(Pin::new(job).poll(context));
            self.job = None;
            // A job ends without a result only when the runtime stops.
            self.done = Some(done.unwrap_or(Bodies { bodies: Vec::new(), _reserved: None }));
        }
        Poll::Ready(())
    }
}

/// Reads all of them together, or, when something is wrong with the run, each alone: damage stays local.
fn read(places: &[Place], health: &Health) -> Vec<Option<Bytes>> {
    let mut found = Vec::with_capacity(places.len());
    match read_run(places, &mut found) {
        Ok(()) => found.into_iter().map(Some).collect(),
        Err(_) => places.iter().map(|place| read_alone(place, health)).collect(),
    }
}

fn read_alone(place: &Place, health: &Health) -> Option<Bytes> {
    match place.read() {
        Ok(body) => Some(body.into()),
        Err(error) => {
            health.report_damage(&format!("body {} cannot be read: {error}", place.body().0));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_comes_back_and_the_budget_is_a_limit() {
        let ahead = Arc::new(Ahead::default());
        let most = ahead.reserve(READ_AHEAD_BYTES).expect("the whole budget");
        assert!(ahead.reserve(1).is_none());
        drop(most);
        let half = ahead.reserve(READ_AHEAD_BYTES / 2).expect("half of it");
        assert!(ahead.reserve(READ_AHEAD_BYTES).is_none());
        assert!(ahead.reserve(READ_AHEAD_BYTES / 2).is_some());
        drop(half);
        assert_eq!(ahead.held_bytes.load(Ordering::Relaxed), 0);
    }
}
