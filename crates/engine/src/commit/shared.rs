//! The threads around a commit machine, as thin as they can be: one that owns the partition, and those of connections.
//!
//! The owner's thread takes what waits in the inbox, has it decided, writes, waits for the disk without holding the
//! partition, releases what waited, and begins again. With nothing to do it sleeps until work is put into the inbox. It is the only one that
//! writes and the only one that waits for the disk.
//!
//! A connection's thread puts its work into the inbox and decides it itself if nobody holds the partition: that takes
//! microseconds, and waking a thread takes twenty and more. It calls the owner if there is something to write.
//!
//! Why nobody is left asleep: work is put into the inbox before the partition is tried, and the thread that held it meanwhile looks into
//! the inbox after it has let it go. The owner looks there, and whether it was called, under the lock under which it falls
//! asleep. Why nothing is reordered: work is taken from the inbox only by the thread that holds the partition.

use super::decider::{Decider, Due, Releasable};
use super::inbox::Inbox;
use super::limits::MOST_FOR_OTHERS;
use super::machine::{Commit, DiskState, Next, Stop};
use super::moment::Moment;
use super::pause::Pauses;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};
use broker::planted::{Bug, is_planted};
use journal::{Error, Outcome, Position, Resolution, Ticket};
use std::sync::{Arc, OnceLock};

/// A partition and the inbox in front of it.
#[derive(Debug)]
pub struct Shared<D: Decider> {
    /// Empty when it has ended, so that its journal is closed.
    held: Mutex<Option<Held<D>>>,
    inbox: Arc<Inbox<D::Work>>,
    /// The owner wants the partition. Others stay out, for the disk has nothing to do until it has it.
    is_owner_waiting: AtomicBool,
    /// A thread of connections has nothing left to decide, and the machine has not heard of it.
    is_rest_told: AtomicBool,
    pauses: Arc<Pauses>,
    /// Those of another partition, whose connections are served by the same threads.
    others: OnceLock<Arc<Pauses>>,
}

#[derive(Debug)]
struct Held<D: Decider> {
    decider: D,
    commit: Commit,
    taken: Vec<D::Work>,
}

/// An append that was written and is not known to be durable, with what waits for it. What waits can be had only by waiting
/// for the disk.
#[derive(Debug)]
pub struct Append<W> {
    position: Position,
    ticket: Ticket,
    waiting: W,
}

/// An append of which the disk has said something.
#[derive(Debug)]
pub struct AppendOutcome<W> {
    position: Position,
    outcome: Outcome,
    waiting: W,
}

impl<W> Append<W> {
    /// Waits for the disk.
    pub fn wait(self) -> AppendOutcome<W> {
        AppendOutcome { position: self.position, outcome: self.ticket.wait(), waiting: self.waiting }
    }

    pub fn position(&self) -> Position {
        self.position
    }
}

/// What the owner's thread does next.
#[derive(Debug)]
pub enum AfterTurn<W> {
    /// Waits for this append, and comes back with the answer.
    Sync(Append<W>),
    /// Sleeps until work is put into the inbox.
    Sleep { until: Option<Moment>, now: Moment },
    /// It was told to end, and everything is durable.
    Ended,
    /// It cannot go on.
    Stopped(Stop),
}

impl<D: Decider> Shared<D> {
    pub fn new(decider: D, tail: Position, inbox: Arc<Inbox<D::Work>>) -> Shared<D> {
        let held = Held { decider, commit: Commit::new(tail), taken: Vec::new() };
        let (is_owner_waiting, is_rest_told) = (AtomicBool::new(false), AtomicBool::new(false));
        let (pauses, others) = Default::default();
        Shared { held: Mutex::new(Some(held)), inbox, is_owner_waiting, is_rest_told, pauses, others }
    }

    /// Where threads of connections pause for this partition.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.pauses
    }

    /// Ends these pauses too, from now on, when there is something to write to clients.
    pub fn end_also(&self, pauses: Arc<Pauses>) {
        // There is one other partition: the first word stands.
        let _ = self.others.set(pauses);
    }

    pub fn inbox(&self) -> &Arc<Inbox<D::Work>> {
        &self.inbox
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held<D>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the partition. For tests and for health.
    pub fn look<R>(&self, look: impl FnOnce(&mut D, &Commit) -> R) -> Option<R> {
        self.lock().as_mut().map(|held| look(&mut held.decider, &held.commit))
    }

    /// Until when more is gathered, if that is what the owner sleeps for. For those who play its thread.
    pub fn gathers_until(&self) -> Option<Moment> {
        let mut guard = self.lock();
        let held = guard.as_mut()?;
        let now = held.decider.moment();
        match held.commit.next(now) {
            Next::Wait(moment) if !held.commit.is_full() => Some(moment),
            _ => None,
        }
    }

    /// The partition is given up: its journal is closed, and nothing is taken any more.
    pub fn close(&self) {
        drop(self.lock().take());
        self.inbox.close();
    }

    /// Brings work, on the thread of a connection.
    pub fn hand_over(&self, work: D::Work) {
        let on_panic = AbortOnPanic;
        self.inbox.leave(work);
        self.decide_here();
        std::mem::forget(on_panic);
    }

    /// Decides what waits in the inbox, unless somebody else is about to.
    pub fn decide_here(&self) {
        let mut left = MOST_FOR_OTHERS;
        while left > 0 && !self.inbox.is_empty() {
            // The owner looks into the inbox when it holds the partition, and every connection after it has given it back.
            if self.is_owner_waiting.load(Ordering::SeqCst) {
                return;
            }
            let Ok(mut guard) = self.held.try_lock() else { return };
            let Some(held) = &mut *guard else { return };
            if held.commit.is_stopped() {
                return;
            }
            held.decide(&self.inbox, &mut left);
            let due = held.due();
            drop(guard);
            match due {
                Due::Now => self.inbox.call(),
                Due::At(moment) => self.inbox.call_by(moment),
                Due::Never => {}
            }
        }
        if !self.inbox.is_empty() {
            self.inbox.call();
        }
    }

    /// A thread of connections has decided all that it has read and is about to wait for more: what was decided is not kept waiting.
    /// Once a thread has told this, an append waits until one does, or for a few syncs' time.
    pub fn rest(&self) {
        self.is_rest_told.store(true, Ordering::SeqCst);
        // The owner looks at it when it holds the partition.
        if self.is_owner_waiting.load(Ordering::SeqCst) {
            return;
        }
        // Whoever holds it may have looked already; the owner looks again.
        let Ok(mut guard) = self.held.try_lock() else { return self.inbox.call() };
        let Some(held) = &mut *guard else { return };
        if self.is_rest_told.swap(false, Ordering::SeqCst) {
            held.commit.rested();
        }
        let now = held.decider.moment();
        let is_due = held.commit.next(now) == Next::Write;
        drop(guard);
        if is_due {
            self.inbox.call();
        }
        // Somebody found the partition held.
        self.decide_here();
    }

    /// A thread of connections has decided all that it has read and is about to wait for more. Pauses it, as long as nothing is
    /// gained by reading, and has what was gathered written.
    pub fn pause(&self) {
        let ends = self.pauses.ends();
        let Some((now, until)) = self.may_pause() else { return };
        if !self.inbox.is_empty() {
            // Somebody found the partition held.
            return self.decide_here();
        }
        if let Some(until) = until {
            self.pauses.pause(ends, until.since(now));
        }
    }

    /// What [`Shared::pause`] does but for the pause itself: what time it is, and until when a thread may pause. Nothing, if
    /// another thread holds the partition.
    pub fn may_pause(&self) -> Option<(Moment, Option<Moment>)> {
        if self.is_owner_waiting.load(Ordering::SeqCst) {
            return None;
        }
        let mut guard = self.held.try_lock().ok()?;
        let held = guard.as_mut()?;
        let now = held.decider.moment();
        let until = held.commit.may_pause_until(now);
        let is_due = held.commit.next(now) == Next::Write;
        drop(guard);
        if is_due {
            self.inbox.call();
        }
        Some((now, until))
    }

    /// One turn of the owner's thread. `answered` is the append that it has waited for.
    pub fn turn(&self, answered: Option<AppendOutcome<D::Unreleased>>) -> AfterTurn<D::Unreleased> {
        self.is_owner_waiting.store(true, Ordering::SeqCst);
        // Before the partition is entered: what waits leaves first, so nothing decided later can leave before it.
        let is_answer = answered.is_some();
        let answered = answered.map(AppendOutcome::let_go);
        let mut guard = self.lock();
        self.is_owner_waiting.store(false, Ordering::SeqCst);
        // Before the inbox is looked at: what the thread has left there is decided now.
        let is_rest_told = self.is_rest_told.swap(false, Ordering::SeqCst);
        let held = guard.as_mut().expect("it is given up by its own thread");
        let after = held.turn(answered, &self.inbox, is_rest_told);
        drop(guard);
        // Once, when all that an append releases is there to be written to clients. What was only written has nothing for them.
        if is_answer || !matches!(after, AfterTurn::Sync(_)) {
            self.pauses.end();
            self.others.get().into_iter().for_each(|others| others.end());
        }
        after
    }

    /// Runs the partition until it ends, on a thread of its own.
    pub fn run(&self) -> Result<(), Stop> {
        let on_panic = AbortOnPanic;
        let mut answered = None;
        let ended = loop {
            match self.turn(answered.take()) {
                AfterTurn::Sync(append) => answered = Some(append.wait()),
                AfterTurn::Sleep { until, now } => self.inbox.sleep(until, now),
                AfterTurn::Ended => break Ok(()),
                AfterTurn::Stopped(why) => break Err(why),
            }
        };
        std::mem::forget(on_panic);
        ended
    }
}

/// A panic in a decision is a bug: the process stops rather than carry on wrong, whichever thread it is on.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        // A test has more to say than that it has ended.
        if std::thread::panicking() && !cfg!(test) {
            std::process::abort();
        }
    }
}

/// What the disk has said, after what waited for it has left.
enum DiskSaid<W> {
    Committed,
    Unknown { position: Position, waiting: W },
    Stop(Stop),
}

impl<W: Releasable> AppendOutcome<W> {
    /// Lets go what waited, if it may go.
    fn let_go(self) -> DiskSaid<W> {
        match self.outcome {
            Outcome::Committed => {
                self.waiting.release();
                DiskSaid::Committed
            }
            Outcome::Unknown => DiskSaid::Unknown { position: self.position, waiting: self.waiting },
            Outcome::Fenced if is_planted(Bug::FenceIgnored) => {
                self.waiting.release();
                DiskSaid::Committed
            }
            Outcome::Fenced => DiskSaid::Stop(Stop::Fenced),
            Outcome::Failed(_) if is_planted(Bug::ReleaseBeforeSync) => {
                self.waiting.release();
                DiskSaid::Stop(Stop::Failed("a planted bug".into()))
            }
            Outcome::Failed(error) => DiskSaid::Stop(Stop::Failed(error.to_string())),
        }
    }
}

impl<D: Decider> Held<D> {
    /// Decides what is in the inbox, at most so much.
    fn decide(&mut self, inbox: &Inbox<D::Work>, left: &mut usize) {
        inbox.take(&mut self.taken);
        let count = self.taken.len();
        self.taken.drain(..).for_each(|work| self.decider.accept(work));
        self.decider.decide(*left, &self.commit);
        self.note();
        *left = left.saturating_sub(count.max(1));
    }

    /// Tells the machine what was decided.
    fn note(&mut self) {
        let now = self.decider.moment();
        self.commit.decided(self.decider.drafted(), now);
    }

    /// When the owner is to look.
    fn due(&mut self) -> Due {
        let now = self.decider.moment();
        let to_write = match self.commit.next(now) {
            Next::Write | Next::Stop => Due::Now,
            Next::Wait(moment) => Due::At(moment),
            Next::Rest => Due::Never,
        };
        to_write.or(self.decider.due(&self.commit))
    }

    fn turn(
        &mut self,
        answered: Option<DiskSaid<D::Unreleased>>,
        inbox: &Inbox<D::Work>,
        is_rest_told: bool,
    ) -> AfterTurn<D::Unreleased> {
        if let Some(answered) = answered
            && let Some(after) = self.take_in(answered)
        {
            return after;
        }
        if let Some(stopped) = self.stopped() {
            return stopped;
        }
        inbox.take_awake(&mut self.taken);
        self.taken.drain(..).for_each(|work| self.decider.accept(work));
        self.decider.decide(usize::MAX, &self.commit);
        if let Err(error) = self.decider.tend(&self.commit) {
            self.commit.stop(Stop::Failed(error.to_string()));
        } else if self.decider.has_ended() {
            self.commit.stop(Stop::Ended);
        }
        self.note();
        if is_rest_told {
            self.commit.rested();
        }
        if let Some(append) = self.write() {
            return AfterTurn::Sync(append);
        }
        self.stopped().unwrap_or_else(|| self.sleep())
    }

    fn stopped(&self) -> Option<AfterTurn<D::Unreleased>> {
        match self.commit.disk() {
            DiskState::Stopped(Stop::Ended) => Some(AfterTurn::Ended),
            DiskState::Stopped(why) => Some(AfterTurn::Stopped(why.clone())),
            _ => None,
        }
    }

    /// What others decide while the owner sleeps, and nobody waits for, is written in time without a call.
    fn sleep(&mut self) -> AfterTurn<D::Unreleased> {
        let now = self.decider.moment();
        let look = self.commit.look_at(now).map_or(Due::Never, Due::At);
        let until = match self.due().or(look) {
            Due::Now => Some(now),
            Due::At(moment) => Some(moment),
            Due::Never => None,
        };
        AfterTurn::Sleep { until, now }
    }

    /// Takes in what the disk has said. What the thread does first, if there is something to be done about it.
    fn take_in(&mut self, answered: DiskSaid<D::Unreleased>) -> Option<AfterTurn<D::Unreleased>> {
        match answered {
            DiskSaid::Committed => {
                let now = self.decider.moment();
                let position = self.commit.synced(now);
                self.decider.committed(position);
                None
            }
            DiskSaid::Unknown { position, waiting } => {
                self.commit.unknown();
                Some(self.resolve(position, waiting))
            }
            DiskSaid::Stop(why) => {
                self.commit.stop(why.clone());
                Some(AfterTurn::Stopped(why))
            }
        }
    }

    /// Finds out what became of an append, and writes it again if nothing did. Nothing else may be written before.
    fn resolve(&mut self, position: Position, mut waiting: D::Unreleased) -> AfterTurn<D::Unreleased> {
        let why = match self.decider.resolve(position, &mut waiting) {
            // The answer is the same as if it had come at once.
            Ok(Resolution::Committed) if !is_planted(Bug::DoubleWrite) => {
                return AfterTurn::Sync(Append {
                    position,
                    ticket: Ticket::new(|| Outcome::Committed),
                    waiting,
                });
            }
            Ok(Resolution::Absent | Resolution::Committed) => {
                match self.decider.repeat(position, &mut waiting) {
                    Ok(ticket) => {
                        let now = self.decider.moment();
                        self.commit.repeated(now);
                        return AfterTurn::Sync(Append { position, ticket, waiting });
                    }
                    Err(error) => Stop::Failed(error.to_string()),
                }
            }
            Ok(Resolution::Foreign) => Stop::Fenced,
            Err(error) => Stop::Failed(error.to_string()),
        };
        self.commit.stop(why.clone());
        AfterTurn::Stopped(why)
    }

    /// Writes what was decided, if it is time to and there is room.
    fn write(&mut self) -> Option<Append<D::Unreleased>> {
        let now = self.decider.moment();
        if self.commit.next(now) != Next::Write {
            return None;
        }
        match self.decider.append(self.commit.next_position()) {
            Ok((ticket, waiting)) => {
                let position = self.commit.written(now);
                Some(Append { position, ticket, waiting })
            }
            Err(Error::Full { .. }) => {
                self.commit.full(now);
                None
            }
            Err(error) => {
                self.commit.stop(Stop::Failed(error.to_string()));
                None
            }
        }
    }
}
