//! The threads: one that decides and writes, one that syncs while there is more to decide, one that reads what a
//! decision needs. A hand-over between threads costs more than a small sync, so an idle partition syncs by itself; and more
//! than a decision, so whoever brings work while the disk is busy decides it on the spot.

use crate::cache::Cache;
use crate::clock::{Clock, OwnerClock};
use crate::handle::Handle;
use crate::inbox::{Checked, Inbox, Item, Uncopied};
use crate::limits::{LARGE_GAP_MS, SEAL_AFTER_MS};
use crate::mailbox::{ASKING, Asks, Mailbox, Outgoing};
use crate::partition::{Counters, Partition, Turn};
use crate::recovery::{self, recover};
use crate::scrub;
use crate::snapshots::SnapshotJob;
use crate::upkeep::Pace;
use broker::{BodyId, Broker, Command, Sequence, Source, Time};
use journal::{Journal, Outcome, Place, Ticket, read_run};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// An append that was written and waits for the disk, with everything that waits for it.
#[derive(Debug)]
pub(crate) struct SyncJob {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: Waiting,
}

impl SyncJob {
    /// Waits for the disk. What waited may go then.
    pub(crate) fn wait(self) -> Result<Waiting, String> {
        match self.ticket.wait() {
            Outcome::Committed => Ok(self.waiting),
            Outcome::Failed(error) => Err(error.to_string()),
            Outcome::Fenced => Err("another process has taken the journal over".into()),
            Outcome::Unknown => Err("nobody can say whether an append was kept".into()),
        }
    }

    /// Waits for the disk, has `follow` let go what waited and write what was decided meanwhile, and tells the partition. What
    /// was written is returned.
    fn run(
        self,
        inbox: &Inbox,
        follow: impl FnOnce(Waiting) -> Result<Option<Next>, String>,
    ) -> Option<SyncJob> {
        match self.wait().and_then(follow) {
            // Waking a thread takes as long as writing a hundred messages, and more news are sure to come. Only work that others
            // have left to us at the door must not wait for them.
            Ok(Some(Next { job, is_awaited: false })) if !inbox.has_work() => {
                inbox.put_quietly(Item::Committed);
                Some(job)
            }
            Ok(next) => {
                inbox.put(Item::Committed);
                next.map(|next| next.job)
            }
            Err(why) => {
                inbox.put(Item::Failed(why));
                None
            }
        }
    }
}

/// What was written behind an append that is durable.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) job: SyncJob,
    /// Somebody gets something because of the append before.
    pub(crate) is_awaited: bool,
}

/// Effects that wait for an append, and the bytes that are held until then.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) releases: Vec<(Arc<dyn Mailbox>, Vec<Outgoing>)>,
    pub(crate) held_bytes: usize,
}

impl Waiting {
    pub(crate) fn go(self, inbox: &Inbox) {
        for (mailbox, outgoing) in self.releases {
            mailbox.put(outgoing);
        }
        inbox.release(self.held_bytes);
    }
}

/// A command that needs stored bodies.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) command: Command,
    pub(crate) places: Vec<(BodyId, Place)>,
    /// It is enough to know that they can be read: nothing of them is kept.
    pub(crate) is_check: bool,
}

impl ReadJob {
    fn run(self) -> Item {
        let mut material = Vec::with_capacity(self.places.len());
        for (body, place) in self.places {
            match place.read() {
                Ok(bytes) => material.push((body, if self.is_check { Vec::new() } else { bytes })),
                // Nothing was changed, so nothing else need suffer.
                Err(error) => return Item::Unreadable { command: self.command, why: error.to_string() },
            }
        }
        Item::Again { command: self.command, material }
    }
}

/// Messages that are to be removed before they leave.
#[derive(Debug)]
pub(crate) struct CheckJob {
    pub(crate) source: Source,
    /// Each with the places of all its bodies.
    pub(crate) messages: Vec<(Sequence, Vec<Place>)>,
    /// What they hold is wanted, not only whether they can be read.
    pub(crate) wants_content: bool,
}

impl CheckJob {
    fn run(self) -> Item {
        let mut checked = Checked::new(self.source);
        if self.wants_content {
            let mut read = |(sequence, places): (Sequence, Vec<Place>)| {
                let read = places[0].read().inspect_err(|error| checked.damage.push(error.to_string()));
                (sequence, read.ok().map(Vec::into_boxed_slice))
            };
            let content = self.messages.into_iter().map(&mut read).collect();
            checked.content = Some(content);
            return Item::Checked(checked);
        }
        // Small neighbours with one read; a message of many parts, or one in a run that has damage, alone.
        let is_small = self.messages.iter().all(|(_, places)| places.len() == 1);
        let run: Vec<Place> = match is_small {
            true => self.messages.iter().flat_map(|(_, places)| places.iter().cloned()).collect(),
            false => Vec::new(),
        };
        if is_small && read_run(&run, &mut Vec::new()).is_ok() {
            checked.whole.extend(self.messages.iter().map(|(sequence, _)| *sequence));
            return Item::Checked(checked);
        }
        for (sequence, places) in self.messages {
            match places.iter().try_for_each(|place| place.read().map(drop)) {
                Ok(()) => checked.whole.push(sequence),
                Err(error) => {
                    checked.damaged.push(sequence);
                    checked.damage.push(error.to_string());
                }
            }
        }
        Item::Checked(checked)
    }
}

/// Bodies that are to be copied.
#[derive(Debug)]
pub(crate) struct CopyJob {
    /// The id that messages know, the id under which it lies, and where that is.
    pub(crate) bodies: Vec<(BodyId, BodyId, Place)>,
    pub(crate) most_bytes: usize,
}

impl CopyJob {
    fn run(self) -> Item {
        let mut copies = Vec::with_capacity(self.bodies.len());
        let (mut bytes, mut unread, mut failure) = (0, Vec::new(), None);
        for (body, stored, place) in self.bodies {
            if bytes >= self.most_bytes || failure.is_some() {
                unread.push((body, stored));
                continue;
            }
            match place.read() {
                Ok(copy) => {
                    bytes += copy.len();
                    copies.push((body, copy));
                }
                // Nothing was changed: the original stays, and nothing else need suffer.
                Err(error) => {
                    let is_passing = error.is_passing();
                    failure = Some(Uncopied { stored, why: error.to_string(), is_passing });
                    unread.push((body, stored));
                }
            }
        }
        Item::Copied { copies, unread, failure }
    }
}

/// Something to read, in the order of asking.
#[derive(Debug)]
pub(crate) enum Reading {
    Needs(ReadJob),
    Doubts(CheckJob),
    Copies(CopyJob),
}

impl Reading {
    fn run(self) -> Item {
        match self {
            Reading::Needs(job) => job.run(),
            Reading::Doubts(job) => job.run(),
            Reading::Copies(job) => job.run(),
        }
    }
}

/// Helpers of a partition. Without them it does everything by itself, which is what the simulator wants.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) sync: Option<SyncThread>,
    pub(crate) read: Option<Worker<Reading>>,
    pub(crate) snapshot: Option<Worker<SnapshotJob>>,
}

/// A thread that does one job after another. It has ended when this is dropped: none of its work goes on in a directory that
/// somebody else may own by then.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    jobs: Option<mpsc::Sender<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    fn spawn(name: &str, work: impl Fn(T) + Send + 'static) -> std::io::Result<Worker<T>> {
        let (sender, jobs) = mpsc::channel::<T>();
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || jobs.iter().for_each(work))?;
        Ok(Worker { jobs: Some(sender), thread: Some(thread) })
    }

    fn start(&self, job: T) {
        let jobs = self.jobs.as_ref().expect("open until it is dropped");
        assert!(jobs.send(job).is_ok(), "a worker lives as long as the partition");
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Workers {
    pub(crate) fn read(&self, job: ReadJob, inbox: &Inbox) {
        self.start(Reading::Needs(job), inbox);
    }

    pub(crate) fn check(&self, job: CheckJob, inbox: &Inbox) {
        self.start(Reading::Doubts(job), inbox);
    }

    pub(crate) fn copy(&self, job: CopyJob, inbox: &Inbox) {
        self.start(Reading::Copies(job), inbox);
    }

    fn start(&self, reading: Reading, inbox: &Inbox) {
        match &self.read {
            Some(reader) => reader.start(reading),
            None => inbox.put(reading.run()),
        }
    }

    pub(crate) fn snapshot(&self, job: SnapshotJob, inbox: &Inbox) {
        match &self.snapshot {
            Some(writer) => writer.start(job),
            None => inbox.put(job.run()),
        }
    }
}

/// A place for one job, and a thread that waits for it.
#[derive(Debug)]
pub(crate) struct SyncThread {
    slot: Arc<SyncSlot>,
}

#[derive(Debug, Default)]
struct SyncSlot {
    job: Mutex<Option<SyncJob>>,
    arrived: Condvar,
}

impl SyncSlot {
    fn wait(&self) -> SyncJob {
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match job.take() {
                Some(job) => return job,
                None => job = self.arrived.wait(job).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl SyncThread {
    fn new() -> SyncThread {
        SyncThread { slot: Arc::default() }
    }

    /// Starts the thread, which waits for jobs for as long as the process lives.
    fn spawn(&self, house: &Arc<House>, inbox: Arc<Inbox>) -> std::io::Result<()> {
        let (slot, house) = (Arc::clone(&self.slot), Arc::clone(house));
        std::thread::Builder::new().name("otobus-sync".into()).spawn(move || {
            let follow = |waiting| house.follow(waiting, &inbox);
            loop {
                let mut next = Some(slot.wait());
                while let Some(job) = next {
                    next = job.run(&inbox, follow);
                }
            }
        })?;
        Ok(())
    }

    fn again(&self) -> SyncThread {
        SyncThread { slot: Arc::clone(&self.slot) }
    }

    pub(crate) fn start(&self, job: SyncJob) {
        let before = self.slot.job.lock().unwrap_or_else(PoisonError::into_inner).replace(job);
        assert!(before.is_none(), "one append is in flight at most");
        self.slot.arrived.notify_one();
    }
}

/// Instead of the thread: whoever turns the partition finishes its syncs when it wants to. A stalled disk is one that
/// is not finished for a while.
#[derive(Debug)]
pub struct HandSync {
    slot: Arc<SyncSlot>,
}

impl HandSync {
    pub(crate) fn pair() -> (SyncThread, HandSync) {
        let slot = Arc::<SyncSlot>::default();
        (SyncThread { slot: Arc::clone(&slot) }, HandSync { slot })
    }

    fn take(&self) -> Option<SyncJob> {
        self.slot.job.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether an append waits for the disk.
    pub fn is_waiting(&self) -> bool {
        self.slot.job.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The disk is done: lets go what waited for it and tells the partition.
    pub fn finish(&self, inbox: &Inbox) {
        if let Some(job) = self.take() {
            job.run(inbox, |waiting| {
                waiting.go(inbox);
                Ok(None)
            });
        }
    }

    /// The disk is done, and what was decided meanwhile is written before anybody hears of it. Returns whether there was
    /// something.
    pub fn finish_and_follow(&self, inbox: &Inbox, partition: &mut Partition, now: Time) -> bool {
        let follow = |waiting: Waiting| {
            waiting.go(inbox);
            partition.follow(now)
        };
        let next = self.take().and_then(|job| job.run(inbox, follow));
        let has_followed = next.is_some();
        *self.slot.job.lock().unwrap_or_else(PoisonError::into_inner) = next;
        has_followed
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Who owns the journal; for the record only on one machine.
    pub owner: u64,
    /// Key of the lock tokens; must be random and secret.
    pub nonce: u128,
    /// Whether a busy partition may hand its syncs to a thread of their own.
    pub has_sync_thread: bool,
    /// Budget of the tail cache; [`crate::limits::TAIL_CACHE_BYTES`] unless somebody asked for another.
    pub tail_cache_bytes: usize,
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
    thread: JoinHandle<Result<(), String>>,
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
        let clock = OwnerClock::resume(recovered.last_time);
        if clock.gap() > LARGE_GAP_MS {
            tracing::warn!(
                ahead_ms = clock.gap(),
                "the last run ended at a time that this machine's clock has not reached; time goes on from there"
            );
        }
        let inbox = Arc::new(Inbox::default());
        let cache = Arc::new(Cache::new(options.tail_cache_bytes));
        let counters = Arc::new(Counters::default());
        let asks = Arc::new(Asks::default());
        let sync = options.has_sync_thread.then(SyncThread::new);
        let own = Arc::clone(&inbox);
        let read = Worker::spawn("otobus-read", move |job: Reading| own.put(job.run()));
        let own = Arc::clone(&inbox);
        let snapshot = Worker::spawn("otobus-snapshot", move |job: SnapshotJob| own.put(job.run()));
        let read = Some(read.map_err(OpenError::Thread)?);
        let snapshot = Some(snapshot.map_err(OpenError::Thread)?);
        let workers = Workers { sync, read, snapshot };
        for (namespace, lead) in recovered.durable.leads() {
            tracing::warn!(
                namespace = namespace.0,
                ahead_ms = lead,
                "the test clock has moved this namespace"
            );
        }
        let snapshots = journal.snapshots();
        let broker = Broker::new(recovered.durable, options.nonce);
        let partition =
            Partition::new(broker, journal, cache.clone(), inbox.clone(), workers, counters.clone()).tended(
                Pace::default(),
                &recovered.snapshots,
                recovered.last_time,
            );
        let condition = partition.condition().clone();
        condition.set_ahead(clock.gap());
        let scrub = scrub::spawn(&inbox, snapshots, condition.clone()).map_err(OpenError::Thread)?;
        inbox.put(Item::Connect { connection: ASKING, mailbox: asks.clone() });
        let slot = partition.workers.sync.as_ref().map(SyncThread::again);
        let house = Arc::new(House::new(Resident { partition, clock, planned: None }));
        if let Some(sync) = slot {
            sync.spawn(&house, Arc::clone(&inbox)).map_err(OpenError::Thread)?;
        }
        let own = Arc::clone(&inbox);
        let handle = Handle::new(Arc::clone(&house), inbox, asks, cache, counters, condition);
        let closing = handle.clone();
        let abandoned = Arc::clone(&house);
        let thread = std::thread::Builder::new()
            .name("otobus-partition".into())
            .spawn(move || {
                let ended = run(&house, &own);
                house.leave();
                drop(scrub);
                closing.close();
                if let Err(why) = &ended {
                    on_failure(why.clone());
                }
                ended
            })
            .map_err(|error| {
                abandoned.leave();
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
        match self.thread.join() {
            Ok(ended) => ended,
            // A bug on the partition's thread. It has been reported where it happened, and nothing may be served.
            Err(_) => std::process::abort(),
        }
    }
}

/// Where a partition lives while threads run it: one decides; the one that syncs comes in to have the next append written,
/// and whoever has work for it while the disk is busy.
#[derive(Debug)]
pub(crate) struct House {
    resident: Mutex<Option<Resident>>,
    /// The thread that syncs is on its way in, and the disk has nothing to do until it is.
    is_disk_waiting: AtomicBool,
}

#[derive(Debug)]
struct Resident {
    partition: Partition,
    clock: OwnerClock,
    /// When the partition's thread will look again if nobody calls it.
    planned: Option<Time>,
}

impl House {
    fn new(resident: Resident) -> House {
        House { resident: Mutex::new(Some(resident)), is_disk_waiting: AtomicBool::new(false) }
    }

    fn enter(&self) -> MutexGuard<'_, Option<Resident>> {
        self.resident.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition has ended: its journal is closed.
    fn leave(&self) {
        drop(self.enter().take());
    }

    /// Lets go what waited for an append, and has the next one written.
    fn follow(&self, waiting: Waiting, inbox: &Inbox) -> Result<Option<Next>, String> {
        let guard = AbortOnPanic;
        // Whoever is let go may be here again before we are in, and again, faster than a thread that sleeps at the door can
        // wake up.
        self.is_disk_waiting.store(true, Ordering::SeqCst);
        waiting.go(inbox);
        let mut resident = self.enter();
        self.is_disk_waiting.store(false, Ordering::SeqCst);
        let next = match &mut *resident {
            Some(resident) => {
                let now = resident.clock.now();
                resident.partition.follow(now)
            }
            None => Ok(None),
        };
        std::mem::forget(guard);
        next
    }

    /// Decides what waits while the disk is busy, or after it was. Says whether nobody need be woken for it.
    pub(crate) fn decide_meanwhile(&self, inbox: &Inbox) -> bool {
        if self.is_disk_waiting.load(Ordering::SeqCst) {
            // It may want the core that we are on.
            std::thread::yield_now();
            if self.is_disk_waiting.load(Ordering::SeqCst) {
                // It looks into the inbox when it comes out.
                return true;
            }
        }
        let Ok(mut resident) = self.resident.try_lock() else { return false };
        let Some(Resident { partition, clock, planned }) = &mut *resident else { return true };
        let mut items = Vec::new();
        if !partition.is_in_rush() {
            return false;
        }
        if !inbox.take_instead(&mut items) {
            return true;
        }
        let guard = AbortOnPanic;
        let now = clock.now();
        let turn = partition.accept(&mut items, now).and_then(|()| partition.decide_meanwhile(now));
        let is_done = match turn {
            Ok(Turn::OnArrival) => true,
            Ok(Turn::At(due)) => planned.is_some_and(|planned| planned <= due),
            Ok(Turn::Now | Turn::Stopped) => false,
            Err(why) => {
                inbox.put(Item::Failed(why));
                true
            }
        };
        std::mem::forget(guard);
        is_done
    }
}

fn run(house: &House, inbox: &Inbox) -> Result<(), String> {
    let guard = AbortOnPanic;
    let (mut items, mut patience, mut written) = (Vec::new(), Patience::default(), None);
    loop {
        let is_called = inbox.take(&mut items, patience.least());
        let mut resident = house.enter();
        let Resident { partition, clock, planned } = resident.as_mut().expect("it lives until this returns");
        // Others may have had something written meanwhile, without a word.
        let is_quiet = items.is_empty() && !is_called && written == Some(partition.next_position());
        if is_quiet && patience.is_for_seal() {
            partition.seal()?;
        }
        let now = clock.now();
        partition.accept(&mut items, now)?;
        let turn = partition.turn(now)?;
        if turn == Turn::Stopped {
            break;
        }
        *planned = if let Turn::At(due) = turn { Some(due) } else { None };
        patience = Patience {
            until_due: match turn {
                Turn::At(due) => Some(Duration::from_millis((due.0 - clock.now().0).max(0) as u64)),
                Turn::Now => Some(Duration::ZERO),
                Turn::OnArrival | Turn::Stopped => None,
            },
            until_seal: (!partition.is_sealed()).then_some(Duration::from_millis(SEAL_AFTER_MS)),
        };
        written = Some(partition.next_position());
    }
    std::mem::forget(guard);
    Ok(())
}

/// How long to wait for work.
#[derive(Debug, Default, Clone, Copy)]
struct Patience {
    until_due: Option<Duration>,
    until_seal: Option<Duration>,
}

impl Patience {
    fn least(self) -> Option<Duration> {
        match (self.until_due, self.until_seal) {
            (Some(due), Some(seal)) => Some(due.min(seal)),
            (either, other) => either.or(other),
        }
    }

    /// Nothing is due before the journal may be sealed.
    fn is_for_seal(self) -> bool {
        self.until_seal.is_some() && self.least() == self.until_seal
    }
}

/// A panic on the partition's thread is a bug in a decision: the process stops rather than carry on wrong.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::mailbox::Outbox;
    use broker::{ConnectionId, LinkId, NamespaceId, RequestId};
    use journal::disk::Memory;
    use journal::{Filling, Local};

    fn item(command: Command) -> Item {
        Item::Batch(Batch { commands: vec![command], ..Batch::default() })
    }

    fn attach(link: u32) -> Item {
        let link = LinkId { connection: ConnectionId(1), link };
        item(Command::AttachSender { link, namespace: NamespaceId(0), path: "nowhere".into() })
    }

    fn create() -> Item {
        let request = RequestId { connection: ConnectionId(1), request: 1 };
        let settings = Box::default();
        item(Command::CreateQueue { request, namespace: NamespaceId(0), path: "q".into(), settings })
    }

    /// Somebody creates a queue, which is not decided yet.
    fn moved_in() -> (Arc<House>, Arc<Inbox>, HandSync, Arc<Outbox>) {
        let options = journal::Options { filling: Filling::Never, ..journal::Options::new(7) };
        let mut journal = Local::open(Arc::new(Memory::new()), options).unwrap();
        let durable = recover(&mut journal, 1).unwrap().durable;
        let inbox = Arc::<Inbox>::default();
        let (mut partition, by_hand) =
            Partition::by_hand(Broker::new(durable, 5), Box::new(journal), inbox.clone());
        let outbox = Arc::new(Outbox::default());
        let mut items =
            vec![Item::Connect { connection: ConnectionId(1), mailbox: outbox.clone() }, create()];
        partition.accept(&mut items, Time(1)).unwrap();
        let house = House::new(Resident { partition, clock: OwnerClock::resume(None), planned: None });
        (Arc::new(house), inbox, by_hand, outbox)
    }

    #[test]
    fn while_the_disk_is_busy_nobody_is_woken_for_what_can_be_decided_at_once() {
        let (house, inbox, by_hand, outbox) = moved_in();
        let heard = || {
            let mut taken = Vec::new();
            outbox.take(&mut taken);
            taken.len()
        };

        inbox.pretend_sleep();
        assert!(inbox.leave(attach(1)), "it sleeps");
        assert!(!house.decide_meanwhile(&inbox), "nothing is in flight");
        assert_eq!(heard(), 0);
        // The partition finds more to do after this, and so hands its append over.
        inbox.put(attach(2));
        house.enter().as_mut().unwrap().partition.turn(Time(1)).unwrap();
        assert!(by_hand.is_waiting());
        inbox.pretend_sleep();
        let held = house.enter();
        assert!(inbox.leave(attach(3)) && !house.decide_meanwhile(&inbox), "somebody is there");
        drop(held);
        assert!(!inbox.is_empty());
        assert!(house.decide_meanwhile(&inbox));
        assert!(inbox.is_empty() && inbox.is_asleep(), "all is decided, and nobody was woken");
        house.is_disk_waiting.store(true, Ordering::SeqCst);
        assert!(inbox.leave(attach(5)) && house.decide_meanwhile(&inbox));
        assert!(!inbox.is_empty(), "the thread that syncs goes first, and sees to it then");
        house.is_disk_waiting.store(false, Ordering::SeqCst);
        inbox.call();
        let is_asleep = inbox.leave(attach(4));
        assert!(!is_asleep && house.decide_meanwhile(&inbox), "whoever is awake sees to it");
        assert!(!inbox.is_empty(), "and nobody goes before it");
        inbox.pretend_sleep();
        by_hand.finish(&inbox);
        assert!(!inbox.is_asleep(), "the news are for the partition");
        assert_eq!(heard(), 1, "the queue; what was decided since waits behind it");
        house.leave();
        assert!(house.decide_meanwhile(&inbox), "nobody is there to be woken");
    }

    /// Somebody who has the next batch ready when the last one is accepted.
    #[derive(Debug)]
    struct Eager {
        house: Arc<House>,
        inbox: Arc<Inbox>,
    }

    impl Mailbox for Eager {
        fn put(&self, _: Vec<Outgoing>) {
            assert!(self.inbox.leave(attach(2)) && self.house.decide_meanwhile(&self.inbox));
            assert!(self.inbox.has_work(), "the next append goes first");
        }
    }

    #[test]
    fn whoever_is_let_go_does_not_overtake_the_thread_that_writes_the_next_append() {
        let (house, inbox, by_hand, _) = moved_in();
        inbox.put(attach(1));
        house.enter().as_mut().unwrap().partition.turn(Time(1)).unwrap();
        assert!(by_hand.is_waiting());
        inbox.pretend_sleep();
        let eager = Eager { house: house.clone(), inbox: inbox.clone() };
        let waiting = Waiting { releases: vec![(Arc::new(eager), Vec::new())], held_bytes: 0 };
        assert!(house.follow(waiting, &inbox).unwrap().is_none());
        assert!(!house.is_disk_waiting.load(Ordering::SeqCst) && inbox.has_work());
    }

    #[test]
    fn whoever_is_called_looks_though_nothing_has_arrived() {
        let inbox = Arc::<Inbox>::default();
        let other = inbox.clone();
        let sleeper = std::thread::spawn(move || {
            let mut items = Vec::new();
            other.take(&mut items, None);
            items.len()
        });
        while !sleeper.is_finished() {
            inbox.call();
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), 0);
        // A call is for whoever sleeps then, and for nobody later.
        inbox.call();
        inbox.put(Item::Stop);
        let mut items = Vec::new();
        inbox.take(&mut items, None);
        assert_eq!(items.len(), 1);
    }
}
