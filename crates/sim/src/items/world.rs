//! One partition of items on a disk in memory, with a clock of its own, turned by hand without threads.

use super::ask::{self, Key};
use super::feeds::Change;
use super::model::Mark;
use crate::faults::{DiskPlan, WorldClock, draw_image};
use crate::random::Random;
use bytes::Bytes;
use engine::commit::{AfterTurn, Append, Inbox, Moment, Shared};
use items::{
    Answer, ChangeFeedMode, ChangeFeedStart, Command, Listing, Page, Query, QueryScope, Scope, Time,
};
use items_engine::{
    Asker, Clocks, FlushJob, Flusher, Layered, Memory as MemoryStore, MemoryDisk, Partition, ReadOutcome,
    ReplyOrRefusal, Store, Unreleased, Work,
};
use journal::disk::{Fault, Faulty, Memory};
use journal::{Filling, Local, Options};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Small, so that a run fills several segments and makes several checkpoints.
const SEGMENT_BYTES: u32 = 64 * 1_024;
const TABLE_BYTES: u64 = 24 * 1_024;

/// Rows of the store that are kept in memory: few, so that some are found there and some are not.
const ROW_BYTES: u64 = 128 * 1_024;

/// Turns that one input may cause. Far above what any needs: a partition that always wants another turn hangs.
const MOST_TURNS: u32 = 2_000;

/// How far time is moved to the moment that the partition waits for: to gather, to write what nobody waits for, to seal.
const PATIENCE_MICROS: u64 = 100_000;

/// Steps of a page: everything fits.
const STEPS: u64 = 100_000;

/// Somebody who waits, by number.
#[derive(Debug)]
struct Client {
    number: u64,
    answers: Arc<Mutex<Vec<(u64, ReplyOrRefusal)>>>,
}

impl Asker for Client {
    fn answer(self, answer: ReplyOrRefusal) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((self.number, answer));
    }
}

#[derive(Debug, Default)]
struct Times {
    world: WorldClock,
    micros: u64,
}

#[derive(Debug, Clone, Default)]
struct SimClocks(Arc<Mutex<Times>>);

impl SimClocks {
    fn with<R>(&self, look: impl FnOnce(&mut Times) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clocks for SimClocks {
    fn owner(&mut self) -> broker::Time {
        self.with(|times| times.world.now())
    }

    fn moment(&mut self) -> Moment {
        self.with(|times| Moment(times.micros))
    }
}

/// A checkpoint that waits until the world lets it go on.
#[derive(Debug, Clone, Default)]
struct Slot(Arc<Mutex<Option<FlushJob>>>);

impl Slot {
    fn take(&self) -> Option<FlushJob> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Flusher for Slot {
    fn start(&mut self, job: FlushJob) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(job);
        assert!(before.is_none(), "one checkpoint at a time");
    }
}

type Items = Shared<Partition<Client>>;

/// How the process is.
#[derive(Debug)]
pub enum Life {
    Goes,
    /// It has stopped, for a reason that the world has given it.
    Ended,
    Wrong(String),
}

pub struct World {
    random: Random,
    clocks: SimClocks,
    memory: Memory,
    disk: Arc<Faulty>,
    plan: DiskPlan,
    store: MemoryDisk,
    items: Option<Arc<Items>>,
    at_disk: Option<Append<Unreleased<Client>>>,
    flush: Slot,
    answers: Arc<Mutex<Vec<(u64, ReplyOrRefusal)>>>,
    /// The disk does not answer.
    pub stalled: bool,
    stop: Option<Result<(), String>>,
    pub checkpoints: u64,
    /// Lives in which the disk has failed.
    pub struck: u64,
}

impl World {
    pub fn new(random: Random) -> World {
        let memory = Memory::new();
        let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::Eio, u64::MAX));
        World {
            random,
            clocks: SimClocks::default(),
            memory,
            disk,
            plan: DiskPlan::HEALTHY,
            store: MemoryDisk::default(),
            items: None,
            at_disk: None,
            flush: Slot::default(),
            answers: Arc::default(),
            stalled: false,
            stop: None,
            checkpoints: 0,
            struck: 0,
        }
    }

    fn has_struck(&self) -> bool {
        self.disk.calls() >= self.plan.at
    }

    pub fn start_healthy(&mut self) {
        self.begin(DiskPlan::HEALTHY).expect("a healthy disk");
    }

    /// Begins a life on whatever disk is drawn. A disk that fails while it is opened is opened again, healthy.
    pub fn start(&mut self) -> Result<(), String> {
        if self.items.is_some() {
            // The first life goes on, with a disk that may fail from now on.
            return Ok(());
        }
        let plan = DiskPlan::draw(&mut self.random);
        // The store has checksums of its own; what it reads is not this disk's affair.
        let plan = if plan.fault == Fault::Rot { DiskPlan::HEALTHY } else { plan };
        match self.begin(plan) {
            Ok(()) => Ok(()),
            Err(_) if self.has_struck() && plan.fault != Fault::Short => {
                self.struck += 1;
                self.memory = self.memory.crash_image(draw_image(&mut self.random));
                self.begin(DiskPlan::HEALTHY).map_err(|why| format!("a healthy disk cannot be opened: {why}"))
            }
            Err(why) => Err(format!("a healthy disk cannot be opened: {why}")),
        }
    }

    fn begin(&mut self, plan: DiskPlan) -> Result<(), String> {
        self.plan = plan;
        self.disk =
            Arc::new(Faulty::lasting(Arc::new(self.memory.clone()), plan.fault, plan.at, plan.lasting));
        let options = Options {
            filling: Filling::Never,
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            ..Options::new(self.random.number())
        };
        let journal = Local::open(self.disk.clone(), options).map_err(|error| error.to_string())?;
        let base = MemoryStore::open(&self.store);
        let store: Arc<dyn Store> =
            Arc::new(Layered::over(base, ROW_BYTES).map_err(|error| error.to_string())?);
        let recovered = Partition::<Client>::open(Box::new(journal), store, TABLE_BYTES, 1)
            .map_err(|error| error.to_string())?;
        self.clocks.with(|times| times.world.resume(recovered.last_time));
        let tail = recovered.journal.tail();
        self.flush = Slot::default();
        let partition =
            Partition::new(recovered, Box::new(self.clocks.clone()), Box::new(self.flush.clone()));
        self.items = Some(Arc::new(Items::new(partition, tail, Arc::new(Inbox::default()))));
        self.stop = None;
        Ok(())
    }

    /// The items' time as the next decision has it.
    pub fn now(&mut self) -> Option<Time> {
        let owner = self.clocks.owner();
        self.items.as_ref()?.look(|partition, _| partition.deciding().local_now(owner))
    }

    /// Whether the journal is without its reserve.
    pub fn is_short(&self) -> bool {
        let look =
            |partition: &mut Partition<Client>, _: &engine::commit::Commit| partition.deciding().is_short();
        self.items.as_ref().and_then(|items| items.look(look)).unwrap_or(false)
    }

    pub fn pass(&mut self, milliseconds: u64) {
        self.clocks.with(|times| {
            times.world.pass(milliseconds as i64);
            times.micros += milliseconds * 1_000;
        });
    }

    pub fn set_clock(&mut self) {
        let random = &mut self.random;
        self.clocks.with(|times| times.world.step(random));
    }

    /// A client asks; it is decided at once, as on a connection's thread, unless the store must catch up first. Says how far
    /// what was decided has come, or nothing if the partition has stopped before.
    pub fn hand_over(&mut self, number: u64, command: Command) -> Option<Mark> {
        let items = self.items.clone()?;
        let asker = Client { number, answers: Arc::clone(&self.answers) };
        items.hand_over(Work::Ask { command, asker });
        // Its thread has nothing left to decide, or goes on with what others have sent.
        if number.is_multiple_of(4) {
            items.rest();
        }
        // Nothing is decided later than it was asked: the model would not know when.
        let undecided = || items.look(|partition, _| partition.undecided()).unwrap_or(0);
        let mut turns = 0;
        while undecided() > 0 && self.stop.is_none() && turns < MOST_TURNS {
            self.flush();
            self.turn(true);
            turns += 1;
        }
        if undecided() > 0 && self.stop.is_none() {
            self.stop = Some(Err("a command is never decided".into()));
        }
        if undecided() > 0 || !items.inbox().is_empty() {
            None
        } else {
            Some(self.mark().unwrap_or_default())
        }
    }

    /// How far what was decided has come.
    pub fn mark(&self) -> Option<Mark> {
        let command = Command::ReadContainer { container: ask::container(), if_none_match: None };
        let look = |partition: &mut Partition<Client>, _: &engine::commit::Commit| {
            let deciding = partition.deciding();
            let mut budget = items::Budget { steps: STEPS };
            let reply =
                deciding.account().read(&command, &**deciding.store(), Time::AT_ONCE, &mut budget).ok()?;
            match reply.answer {
                Answer::Found(document) => Some(Mark { lsn: reply.place?.lsn, tag: document.etag }),
                other => panic!("the definition of the container is {other:?}"),
            }
        };
        self.items.as_ref()?.look(look)?
    }

    pub fn answers(&mut self) -> Vec<(u64, ReplyOrRefusal)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the checkpoint that waits go on.
    fn flush(&mut self) {
        let (Some(job), Some(items)) = (self.flush.take(), &self.items) else { return };
        let outcome = job.run();
        self.checkpoints += u64::from(outcome.is_ok());
        items.inbox().put(Work::Flushed(outcome));
    }

    /// One turn of the partition's thread. Says whether it wants another one soon.
    fn turn(&mut self, finishes_sync: bool) -> bool {
        let Some(items) = self.items.clone() else { return false };
        let answered = match self.at_disk.take() {
            Some(append) if finishes_sync => Some(append.wait()),
            Some(append) => {
                self.at_disk = Some(append);
                return false;
            }
            None => None,
        };
        match items.turn(answered) {
            AfterTurn::Sync(append) => {
                self.at_disk = Some(append);
                true
            }
            AfterTurn::Sleep { until: Some(until), now } if until.0 <= now.0 + PATIENCE_MICROS => {
                // Both clocks: what it waits for may be due by either.
                self.clocks.with(|times| {
                    let waited = until.0.saturating_sub(times.micros);
                    times.micros += waited;
                    times.world.pass(waited.div_ceil(1_000) as i64);
                });
                true
            }
            AfterTurn::Sleep { .. } => !items.inbox().is_empty(),
            AfterTurn::Ended => {
                self.stop = Some(Ok(()));
                false
            }
            AfterTurn::Stopped(why) => {
                let is_fair = self.has_struck() && self.plan.fault != Fault::Short;
                self.stop =
                    Some(if is_fair { Ok(()) } else { Err(format!("it stopped on a healthy disk: {why}")) });
                false
            }
        }
    }

    /// Turns the partition until it wants to wait.
    pub fn run(&mut self) {
        for _ in 0..MOST_TURNS {
            if self.random.once_in(2) {
                self.flush();
            }
            if self.stop.is_some() || !self.turn(!self.stalled) {
                let is_flushing = self.flush.0.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                if self.stop.is_some() || self.stalled || !is_flushing {
                    return;
                }
            }
        }
        self.stop = Some(Err("the partition never rests".into()));
    }

    pub fn stop(&mut self) {
        if let Some(items) = &self.items {
            items.inbox().put(Work::Stop);
        }
        self.run();
    }

    pub fn life(&self) -> Life {
        match &self.stop {
            None if self.items.is_some() => Life::Goes,
            None | Some(Ok(())) => Life::Ended,
            Some(Err(why)) => Life::Wrong(why.clone()),
        }
    }

    /// The process is gone, and the disk has kept what it has kept.
    pub fn crash(&mut self) {
        self.struck += u64::from(self.has_struck());
        self.at_disk = None;
        if self.random.once_in(3) {
            // A checkpoint that was under way may just have been finished.
            self.flush();
        }
        self.flush = Slot::default();
        self.items = None;
        self.stalled = false;
        self.memory = self.memory.crash_image(draw_image(&mut self.random));
    }

    /// Reads what is committed, as a door would: what may rest on something having expired is read when the journal knows the time.
    fn ask(&mut self, command: &Command) -> Option<(Time, ReplyOrRefusal)> {
        let items = self.items.clone()?;
        let newest = |items: &Items| items.look(|partition, _| partition.deciding().readers().newest());
        let state = newest(&items)?;
        let owner = self.clocks.owner();
        let is_of_one = matches!(command, Command::ReadItem { .. });
        if (is_of_one || !state.hides_something(owner))
            && let ReadOutcome::Done(answer) = state.read(command, owner, STEPS)
        {
            return Some((state.local_now(owner), answer));
        }
        self.note(&items)?;
        let state = newest(&items)?;
        Some((state.local_now(state.noted), state.read_noted(command, STEPS)))
    }

    /// Has the journal know the time. Nothing, if that cannot be: the disk does not answer, or is full, or the process has ended.
    fn note(&mut self, items: &Items) -> Option<()> {
        let told = Arc::<Mutex<Vec<(u64, ReplyOrRefusal)>>>::default();
        let is_told = || !told.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        items.hand_over(Work::Note { asker: Client { number: 0, answers: Arc::clone(&told) } });
        let mut turns = 0;
        while !is_told() && !self.stalled && self.stop.is_none() && turns < MOST_TURNS {
            self.flush();
            self.turn(true);
            turns += 1;
        }
        is_told().then_some(())
    }

    /// The number of an item, if it is there. Nothing, if nobody is told.
    pub fn read(&mut self, key: &Key) -> Option<(Time, Option<u64>)> {
        let command = Command::ReadItem { item: key.path(), if_none_match: None, session: None };
        let (now, answer) = self.ask(&command)?;
        match answer {
            Ok(reply) => match reply.answer {
                Answer::Found(document) => Some((now, ask::number_in(&document.body))),
                other => panic!("a read is answered {other:?}"),
            },
            Err(refusal) if ask::status(&refusal) == 404 => Some((now, None)),
            Err(refusal) => panic!("a read is refused: {refusal}"),
        }
    }

    /// Every item, straight from the newest committed state.
    pub fn everything(&mut self, now: Time, ids: u64) -> BTreeMap<Key, u64> {
        let Some(items) = &self.items else { return BTreeMap::new() };
        let look = |partition: &mut Partition<Client>, _: &engine::commit::Commit| {
            let newest = partition.deciding().readers().newest();
            let mut found = BTreeMap::new();
            for key in Key::all(ids) {
                let command = Command::ReadItem { item: key.path(), if_none_match: None, session: None };
                let mut budget = items::Budget { steps: STEPS };
                if let Ok(reply) = newest.account.read(&command, &*newest.view, now, &mut budget)
                    && let Answer::Found(document) = reply.answer
                    && let Some(number) = ask::number_in(&document.body)
                {
                    found.insert(key, number);
                }
            }
            found
        };
        items.look(look).unwrap_or_default()
    }

    /// What the change feed tells from there to its end, page by page; a status if it is refused.
    fn change_feed(&mut self, mode: ChangeFeedMode, mut start: ChangeFeedStart) -> Option<Result<Told, u16>> {
        let mut told: Option<Told> = None;
        loop {
            let command = Command::ChangeFeed {
                container: ask::container(),
                scope: Scope::All,
                mode,
                start,
                max_items: Some(3),
            };
            let (now, answer) = self.ask(&command)?;
            let (page, etag) = match answer.map(|reply| reply.answer) {
                Ok(Answer::Changes { page, etag }) => (page, etag),
                Ok(other) => panic!("the change feed is answered {other:?}"),
                Err(refusal) => return Some(Err(ask::status(&refusal))),
            };
            let is_over = page.values.is_empty();
            let told = told.get_or_insert_with(|| Told { first: now, ..Told::default() });
            told.last = now;
            told.values.extend(page.values);
            told.continuation.clone_from(&etag);
            if is_over {
                return Some(Ok(std::mem::take(told)));
            }
            start = ChangeFeedStart::After(etag);
        }
    }

    pub fn latest_versions(&mut self, start: ChangeFeedStart) -> Option<Told> {
        let told = self.change_feed(ChangeFeedMode::LatestVersion, start)?;
        Some(told.unwrap_or_else(|status| panic!("the change feed is refused with {status}")))
    }

    /// The changes behind a continuation; a status if they are refused.
    pub fn all_versions(&mut self, start: ChangeFeedStart) -> Option<Result<(Told, ToldChanges), u16>> {
        let told = match self.change_feed(ChangeFeedMode::AllVersionsAndDeletes, start)? {
            Ok(told) => told,
            Err(status) => return Some(Err(status)),
        };
        let read = |text: &Bytes| {
            Change::read(text).unwrap_or_else(|| panic!("a change is {}", String::from_utf8_lossy(text)))
        };
        let changes = told.values.iter().map(read).collect();
        Some(Ok((told, changes)))
    }

    /// All rows of a query, in small pages.
    pub fn query(&mut self, text: &str, scope: &Scope, max_items: i64) -> Option<Told> {
        let mut told = Told::default();
        let mut continuation = None;
        loop {
            let command = Command::Query(Query {
                of: QueryScope::Items { container: ask::container() },
                scope: scope.clone(),
                text: text.to_owned(),
                parameters: Vec::new(),
                listing: Listing { max_items: Some(max_items), continuation },
                session: None,
            });
            let (now, answer) = self.ask(&command)?;
            let page: Page = match answer.map(|reply| reply.answer) {
                Ok(Answer::Page(page)) => page,
                other => panic!("the query {text} is answered {other:?}"),
            };
            told.first = if told.last == Time::default() { now } else { told.first };
            told.last = now;
            told.values.extend(page.values);
            continuation = page.continuation;
            if continuation.is_none() {
                return Some(told);
            }
        }
    }

    /// Whether indexes, counts and orders agree with the items.
    pub fn check_entries(&mut self) -> Option<Result<(), String>> {
        let now = self.now()?;
        let look = |partition: &mut Partition<Client>, _: &engine::commit::Commit| {
            let newest = partition.deciding().readers().newest();
            items::check::check(&newest.account, &*newest.view, now).map_err(|fault| fault.to_string())
        };
        self.items.as_ref()?.look(look)
    }

    /// Whether everything that has expired is removed.
    pub fn is_purged(&mut self) -> bool {
        let owner = self.clocks.owner();
        let look = |partition: &mut Partition<Client>, _: &engine::commit::Commit| {
            !partition.deciding().purge_is_due(owner) && !partition.deciding().is_short()
        };
        self.items.as_ref().and_then(|items| items.look(look)).unwrap_or(false)
    }
}

/// Changes, with the numbers that were there before.
pub type ToldChanges = Vec<(Change, Option<u64>)>;

/// What somebody was told in several pages, which may have been read at different times.
#[derive(Debug, Default)]
pub struct Told {
    pub first: Time,
    pub last: Time,
    pub values: Vec<Bytes>,
    /// The continuation of the change feed.
    pub continuation: String,
}
