//! The threads around the partition of the items: one that owns it, one that makes checkpoints, one that merges files.

use crate::handle::{Handle, Pending};
use crate::limits::{BLOCK_SHARE, CACHE_BYTES_LEAST, ROW_SHARE, TABLE_SHARE};
use crate::partition::{Clocks, FlushJob, Flusher, OpenError, Partition, Work};
use crate::store::{Failure, Layered, Lsm, Store};
use engine::commit::{Inbox, Moment, OwnerThread, Shared};
use engine::{Clock, OwnerClock};
use items::Time;
use journal::Journal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

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
        let owner = OwnerClock::resume(last.map(|last| broker::Time(last.0)));
        SharedClock { owner: Arc::new(Mutex::new(owner)), started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.owner.lock().unwrap_or_else(PoisonError::into_inner).now().0)
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
        let store = Arc::new(Layered::over(base, cache_bytes / ROW_SHARE)?);
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
            for () in merges {
                merging.put(Work::Merged(merge(&*store, &ending)));
            }
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

/// How far merging stands back behind everything else.
const MERGE_NICENESS: i32 = 10;

fn merge(store: &dyn Store, is_ending: &AtomicBool) -> Result<(), Failure> {
    while !is_ending.load(Ordering::Acquire) && store.tidy()? {}
    Ok(())
}
