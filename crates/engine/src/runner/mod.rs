//! A running partition: its threads, and how they begin and end.
//!
//! One thread owns the partition: it decides what others did not, writes and waits for the disk
//! ([`crate::commit::Shared::run`]). One reads what a decision needs, one writes snapshots, one reads everything again
//! once a day. All of them have ended, or have nothing left to touch, when [`Engine::stop`] returns.

mod jobs;
mod workers;

pub(crate) use jobs::{CopyJob, MessagesJob, ReadJob, ReadWork};
pub(crate) use workers::{Worker, Workers};

use crate::cache::Cache;
use crate::clock::OwnerClock;
use crate::commit::{Inbox, OwnerThread, Shared};
use crate::handle::Handle;
use crate::limits::LARGE_GAP_MS;
use crate::mailbox::{ASKING, Asks};
use crate::partition::{Environment, Partition};
use crate::recovery::{self, Recovered, recover};
use crate::scrub;
use crate::snapshots::SnapshotJob;
use crate::upkeep::UpkeepSettings;
use crate::work::Work;
use broker::Broker;
use journal::Journal;
use std::sync::Arc;

/// A partition and the inbox in front of it.
pub type SharedPartition = Shared<Partition>;

#[derive(Debug, Clone)]
pub struct Options {
    /// Who owns the journal; for the record only on one machine.
    pub owner: u64,
    /// Key of the lock tokens; must be random and secret.
    pub nonce: u128,
    /// Budget of the tail cache; [`crate::limits::TAIL_CACHE_BYTES`] unless somebody asked for another.
    pub tail_cache_bytes: usize,
    /// What may live long in memory, in all ([`broker::limits::STATE_BYTES`]).
    pub state_bytes: usize,
}

impl Options {
    /// The budgets that hold unless somebody asked for others.
    pub fn new(nonce: u128) -> Options {
        Options {
            owner: 1,
            nonce,
            tail_cache_bytes: crate::limits::TAIL_CACHE_BYTES,
            state_bytes: broker::limits::STATE_BYTES,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Recovery(#[from] recovery::Error),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// A running partition.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    thread: OwnerThread,
}

impl Engine {
    /// Recovers the state from the journal and starts to serve. `on_failure` is called from the partition's thread
    /// when it cannot go on; nothing that was not durable before has been answered, and nothing will be.
    pub fn open(
        mut journal: Box<dyn Journal>,
        options: Options,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> Result<Engine, OpenError> {
        let recovered = recover(&mut *journal, options.owner)?;
        let clock = resume(&recovered);
        let gap = clock.gap();
        let (tail, snapshots) = (journal.tail(), journal.snapshots());
        let inbox = Arc::<Inbox<Work>>::default();
        let environment = Environment {
            inbox: inbox.clone(),
            cache: Arc::new(Cache::new(options.tail_cache_bytes)),
            workers: workers(&inbox).map_err(OpenError::Thread)?,
            ..Environment::default()
        };
        let asks = Arc::new(Asks::default());
        let shared = environment.shared();
        let broker = Broker::new(recovered.durable, options.nonce).with_state_bytes(options.state_bytes);
        let partition = Partition::new(broker, journal, Box::new(clock), environment).tended(
            UpkeepSettings::default(),
            &recovered.snapshots,
            recovered.last_time,
        );
        let health = partition.health().clone();
        health.set_ahead(gap);
        let scrub = scrub::spawn(&inbox, snapshots, health.clone()).map_err(OpenError::Thread)?;
        inbox.leave(Work::Connect { connection: ASKING, mailbox: asks.clone() });
        let partition = Arc::new(Shared::new(partition, tail, inbox));
        let handle = Handle::new(partition.clone(), asks, health, shared);
        let (closing, abandoned) = (handle.clone(), partition.clone());
        let work = move || {
            let ended = partition.run().map_err(|why| why.to_string());
            partition.close();
            drop(scrub);
            closing.close();
            ended
        };
        let thread = OwnerThread::spawn("otobus-partition", work, on_failure).map_err(|error| {
            abandoned.close();
            OpenError::Thread(error)
        })?;
        Ok(Engine { handle, thread })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Finishes what was begun and closes the journal. Says why, if it could not be finished; `on_failure` was told too.
    pub fn stop(self) -> Result<(), String> {
        self.handle.stop();
        self.thread.join()
    }
}

/// Time goes on where the last run has left it, which is told if it is far from what the machine's clock says.
fn resume(recovered: &Recovered) -> OwnerClock {
    let clock = OwnerClock::resume(recovered.last_time);
    if clock.gap() > LARGE_GAP_MS {
        tracing::warn!(
            ahead_ms = clock.gap(),
            "the last run ended at a time that this machine's clock has not reached; time goes on from there"
        );
    }
    for (namespace, offset) in recovered.durable.clock_offsets() {
        tracing::warn!(
            namespace = namespace.0,
            ahead_ms = offset.0,
            "the test clock has moved this namespace"
        );
    }
    clock
}

fn workers(inbox: &Arc<Inbox<Work>>) -> std::io::Result<Workers> {
    let own = Arc::clone(inbox);
    let read = Worker::spawn("otobus-read", move |job: ReadWork| own.put(job.run()))?;
    let own = Arc::clone(inbox);
    let snapshot = Worker::spawn("otobus-snapshot", move |job: SnapshotJob| own.put(job.run()))?;
    Ok(Workers { read: Some(read), snapshot: Some(snapshot) })
}
