//! The threads around the partition of the items: one that owns it, one that makes checkpoints, one that merges files.

use crate::handle::{Handle, Pending};
use crate::limits::{BLOCK_SHARE, CACHE_BYTES_LEAST, MERGE_NICENESS, ROW_PERCENT, TABLE_SHARE};
use crate::partition::{Clocks, FlushJob, Flusher, OpenError, Partition, Work};
use crate::store::{Failure, Layered, Lsm, Store};
use broker::Time;
use engine::commit::{FULL_RETRY, Inbox, Moment, OwnerThread, Shared};
use engine::{Clock, OwnerClock};
use journal::Journal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The store is in a directory of this name beside the journal's files.
pub const STORE: &str = "store";

/// The number of the partition in its journal's files, so that nobody takes the bus's for it.
pub const PARTITION: u32 = 1_000;

#[derive(Debug, Clone)]
pub struct Options {
    /// Who owns the journal; for the record only on one machine.
    pub owner: u64,
    /// What the items may hold in memory.
    pub cache_bytes: u64,
}

/// The owner's time, shared by the partition and those who read.
#[derive(Debug, Clone)]
pub(crate) struct SharedClock {
    owner: Arc<Mutex<OwnerClock>>,
    started: Instant,
}

impl SharedClock {
    fn resume(last: Option<Time>) -> SharedClock {
        let owner = OwnerClock::resume(last);
        SharedClock { owner: Arc::new(Mutex::new(owner)), started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).now()
    }
}

impl Clocks for SharedClock {
    fn owner(&mut self) -> Time {
        self.now()
    }

    fn moment(&mut self) -> Moment {
        Moment(self.started.elapsed().as_micros() as u64)
    }
}

/// Hands checkpoints to their thread.
#[derive(Debug)]
struct ToThread(mpsc::Sender<FlushJob>);

impl Flusher for ToThread {
    fn start(&mut self, job: FlushJob) {
        // The thread ends after the partition; if it has failed, the partition hears that from it.
        let _ = self.0.send(job);
    }
}

pub(crate) type Items = Shared<Partition<Pending>>;

/// Items being served.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    thread: OwnerThread,
}

impl Engine {
    /// Opens the store beside the journal, brings it up to the journal's end, and starts to serve. `on_failure` is called when it
    /// cannot go on; nothing that was not durable before has been answered, and nothing will be.
    pub fn open(
        journal: Box<dyn Journal>,
        directory: &Path,
        options: &Options,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> Result<Engine, OpenError> {
        let cache_bytes = options.cache_bytes.max(CACHE_BYTES_LEAST);
        let table_bytes = cache_bytes / TABLE_SHARE;
        let base = Lsm::open(&directory.join(STORE), cache_bytes / BLOCK_SHARE)?;
        let store = Arc::new(Layered::over(base, cache_bytes / 100 * ROW_PERCENT)?);
        Engine::start(journal, store, table_bytes, options.owner, on_failure)
    }

    /// The same on any store.
    pub fn start(
        journal: Box<dyn Journal>,
        store: Arc<dyn Store>,
        table_bytes: u64,
        owner: u64,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> Result<Engine, OpenError> {
        let recovered = Partition::<Pending>::open(journal, Arc::clone(&store), table_bytes, owner)?;
        let clock = SharedClock::resume(recovered.last_time);
        let tail = recovered.journal.tail();
        let readers = Arc::clone(recovered.deciding.readers());
        let throttle = Arc::clone(recovered.deciding.throttle());
        let inbox = Arc::new(Inbox::default());
        let (flushes, jobs) = mpsc::channel();
        let partition = Partition::new(recovered, Box::new(clock.clone()), Box::new(ToThread(flushes)));
        let (activity, condition) = (Arc::clone(partition.activity()), Arc::clone(partition.condition()));
        let shared = Arc::new(Items::new(partition, tail, Arc::clone(&inbox)));
        let helpers = Helpers::spawn(jobs, &store, &inbox).map_err(OpenError::Thread)?;
        let handle = Handle::new(Arc::clone(&shared), readers, clock, throttle, activity, condition);
        let closing = handle.clone();
        let work = move || {
            let ended = shared.run().map_err(|why| why.to_string());
            shared.close();
            closing.close();
            helpers.end();
            ended
        };
        let thread = OwnerThread::spawn("otobus-items", work, on_failure).map_err(OpenError::Thread)?;
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

/// The threads that write files of the store.
#[derive(Debug)]
struct Helpers {
    flush: JoinHandle<()>,
    merge: JoinHandle<()>,
    is_ending: Arc<AtomicBool>,
}

impl Helpers {
    fn spawn(
        jobs: mpsc::Receiver<FlushJob>,
        store: &Arc<dyn Store>,
        inbox: &Arc<Inbox<Work<Pending>>>,
    ) -> std::io::Result<Helpers> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let (flushed, merges) = mpsc::channel();
        let flushing = Arc::clone(inbox);
        let flush = std::thread::Builder::new().name("otobus-items-flush".into()).spawn(move || {
            for job in jobs {
                flushing.put(Work::Flushed(job.run()));
                // It may have ended with a failure, which the partition has heard of.
                let _ = flushed.send(());
            }
        })?;
        let store = Arc::clone(store);
        let (ending, merging) = (Arc::clone(&is_ending), Arc::clone(inbox));
        let merge = std::thread::Builder::new().name("otobus-items-merge".into()).spawn(move || {
            // Merging can wait. Where the system does not let it wait, it takes its share.
            let _ = rustix::process::nice(MERGE_NICENESS);
            let tell = |outcome| merging.put(Work::Merged(outcome));
            merge_when_told(&merges, || merge(&*store, &ending), tell, FULL_RETRY);
        })?;
        Ok(Helpers { flush, merge, is_ending })
    }

    /// The partition has ended, and with it what it asks for.
    fn end(self) {
        self.is_ending.store(true, Ordering::Release);
        // A panic there was reported where it happened.
        let _ = self.flush.join();
        let _ = self.merge.join();
    }
}

/// Merges now, for a full disk may have ended the run before with more files than there need be, and whenever a checkpoint was made.
/// What finds no room is tried again: while there are too many files there is no checkpoint after which it would be.
fn merge_when_told(
    told: &mpsc::Receiver<()>,
    mut merge: impl FnMut() -> Result<(), Failure>,
    mut tell: impl FnMut(Result<(), Failure>),
    retry: Duration,
) {
    loop {
        let outcome = merge();
        let is_full = matches!(outcome, Err(Failure::Full(_)));
        tell(outcome);
        let goes_on = match is_full {
            true => told.recv_timeout(retry) != Err(RecvTimeoutError::Disconnected),
            false => told.recv().is_ok(),
        };
        if !goes_on {
            return;
        }
    }
}

fn merge(store: &dyn Store, is_ending: &AtomicBool) -> Result<(), Failure> {
    while !is_ending.load(Ordering::Acquire) && store.tidy()? {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    fn full() -> Result<(), Failure> {
        Err(Failure::Full("no space left".to_owned()))
    }

    #[test]
    fn a_merge_that_finds_no_room_is_tried_again_though_no_checkpoint_is_made() {
        let (checkpoints, told) = mpsc::channel();
        let mut checkpoints = Some(checkpoints);
        let mut outcomes = vec![Ok(()), full(), full()];
        let mut seen = Vec::new();
        let tell = |outcome: Result<(), Failure>| {
            if outcome.is_ok() {
                // The partition ends.
                checkpoints = None;
            }
            seen.push(outcome);
        };
        merge_when_told(&told, || outcomes.pop().expect("no more than these"), tell, AT_ONCE);
        assert_eq!(seen, [full(), full(), Ok(())]);
    }

    #[test]
    fn a_merge_without_room_does_not_outlive_its_partition() {
        let (checkpoints, told) = mpsc::channel();
        drop(checkpoints);
        let mut tries = 0;
        merge_when_told(
            &told,
            || {
                tries += 1;
                full()
            },
            |_| (),
            AT_ONCE,
        );
        assert_eq!(tries, 1);
    }
}
