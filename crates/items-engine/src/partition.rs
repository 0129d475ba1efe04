//! The partition of the items: one journal, and what is decided for it, run by the engine's commit machine.
//!
//! Requests are decided in the order in which they came, gathered into one append, and answered when that is durable. Readers
//! are shown an append before those are answered who asked for it, so everybody reads what they have written.

use crate::activity::{Activity, PurgeRest};
use crate::condition::Condition;
use crate::deciding::{Deciding, Publication, ReplayError};
use crate::limits::{APPEND_BYTES, SEAL_AFTER};
use crate::planted::{Bug, is_planted};
use crate::store::{Failure, Store};
use broker::Time;
use engine::commit::{Commit, Decider, DraftSize, Due, FULL_RETRY, Moment, Releasable};
use engine::reserve::Reserve;
use items::Unreadable;
use items::{Answer, Command, Refusal, Reply};
use journal::{Draft, Epoch, Error, Journal, Position, Resolution, Ticket};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// What somebody who asked gets.
pub type ReplyOrRefusal = Result<Reply, Refusal>;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error(transparent)]
    Store(#[from] crate::store::Failure),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(
        "the store of the items holds batch {store}, the journal ends at {journal}: they do not belong together; \
         restore both from the same copy"
    )]
    Strange { store: u64, journal: u64 },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Who asked.
pub trait Asker: Send + Debug {
    fn answer(self, answer: ReplyOrRefusal);
}

/// One piece of work.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all of them are commands, and a box for each costs more"
)]
pub enum Work<A> {
    Ask {
        command: Command,
        asker: A,
    },
    /// Somebody wants to read as of now, and may when the journal holds the owner's time: answered with that.
    Note {
        asker: A,
    },
    /// The store's checkpoint is durable and marked in the journal, or there was no room for it.
    Flushed(Result<(), Failure>),
    /// Files were merged, or could not be.
    Merged(Result<(), Failure>),
    /// Finish what was begun, and end.
    Stop,
}

/// What is to be decided.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all of them are commands, and a box for each costs more"
)]
enum Asked {
    Command(Command),
    Note,
}

/// What waits for an append: readers are shown what it holds, and then those are answered who asked for it.
#[derive(Debug)]
pub struct Unreleased<A> {
    publication: Publication,
    answers: Vec<(A, ReplyOrRefusal)>,
}

impl<A: Asker> Releasable for Unreleased<A> {
    fn release(self) {
        self.publication.publish();
        self.answers.into_iter().for_each(|(asker, answer)| asker.answer(answer));
    }
}

/// A checkpoint that is to be made durable, on any thread.
#[derive(Debug)]
pub struct FlushJob {
    store: Arc<dyn Store>,
    marks: Arc<dyn journal::Snapshots>,
}

impl FlushJob {
    /// Flushes the store and marks the checkpoint, so that the journal may give up what comes before it.
    pub fn run(&self) -> Result<(), Failure> {
        self.store.flush()?;
        let mut write = |out: &mut dyn std::io::Write| out.write_all(MARK);
        match self.marks.put(self.store.durable(), &mut write) {
            Ok(()) => Ok(()),
            // The journal keeps more than it must; the next mark will do.
            Err(journal::Error::Full { .. }) => Ok(()),
            Err(error) => Err(Failure::Failed(error.to_string())),
        }
    }
}

/// The two clocks of a partition: the owner's time, and one that only ever rises.
pub trait Clocks: Send + Debug {
    fn owner(&mut self) -> Time;
    fn moment(&mut self) -> Moment;
}

/// Where checkpoints go.
pub trait Flusher: Send + Debug {
    fn start(&mut self, job: FlushJob);
}

#[derive(Debug)]
pub struct Partition<A> {
    deciding: Deciding,
    journal: Box<dyn Journal>,
    clocks: Box<dyn Clocks>,
    flusher: Box<dyn Flusher>,
    activity: Arc<Activity>,
    condition: Arc<Condition>,
    waiting: VecDeque<(Asked, A)>,
    draft: Draft,
    /// The append before, should it have to be written again.
    last: Draft,
    /// Answers that leave when the draft is durable, or what is at the disk if the draft is empty.
    gated: Vec<(A, ReplyOrRefusal)>,
    is_stopping: bool,
    is_sealed: bool,
    /// What was decided finds no room.
    is_full: bool,
    reserve: Reserve<Moment>,
    /// A checkpoint was flushed since the journal was last trimmed.
    may_trim: bool,
    /// A flush found no room and is tried again then.
    flush_again: Option<Moment>,
    purge_rest: PurgeRest,
    /// The store could not be read: nothing more is decided.
    failure: Option<String>,
}

impl<A: Asker> Partition<A> {
    /// Takes the journal over and brings the store up to its end. Returns the owner's time of the last batch too.
    pub fn open(
        mut journal: Box<dyn Journal>,
        store: Arc<dyn Store>,
        table_bytes: u64,
        owner: u64,
    ) -> Result<Recovered, OpenError> {
        let from = store.durable();
        if from > journal.tail() {
            return Err(OpenError::Strange { store: from.0, journal: journal.tail().0 });
        }
        let mut deciding = Deciding::open(store, table_bytes)?;
        let mut last_time = deciding.stored_owner_time()?;
        let from = if is_planted(Bug::BatchLeftOut) && from.0 > 0 { from.next() } else { from };
        if from < journal.tail() {
            replay(&*journal, from.next(), &mut deciding, &mut last_time)?;
        }
        let read_to = journal.tail();
        let epoch = Epoch(journal.epoch().0 + 1);
        if journal.fence(owner, epoch)? > read_to {
            // Another owner wrote until it was fenced off.
            replay(&*journal, read_to.next(), &mut deciding, &mut last_time)?;
        }
        deciding.replayed();
        Ok(Recovered { deciding, journal, last_time })
    }

    pub fn new(recovered: Recovered, clocks: Box<dyn Clocks>, flusher: Box<dyn Flusher>) -> Partition<A> {
        Partition {
            deciding: recovered.deciding,
            journal: recovered.journal,
            clocks,
            flusher,
            activity: Arc::default(),
            condition: Arc::default(),
            waiting: VecDeque::new(),
            draft: Draft::default(),
            last: Draft::default(),
            gated: Vec::new(),
            is_stopping: false,
            is_sealed: false,
            is_full: false,
            reserve: Reserve::default(),
            may_trim: true,
            flush_again: None,
            purge_rest: PurgeRest::default(),
            failure: None,
        }
    }

    pub fn deciding(&self) -> &Deciding {
        &self.deciding
    }

    /// What was asked and not decided.
    pub fn undecided(&self) -> usize {
        self.waiting.len()
    }

    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub fn condition(&self) -> &Arc<Condition> {
        &self.condition
    }

    /// Whether more may be decided into this append, and the store can take it.
    fn may_decide(&self) -> bool {
        self.failure.is_none() && !self.is_draft_full() && !self.deciding.is_overrun()
    }

    fn is_draft_full(&self) -> bool {
        self.draft.records.len() >= APPEND_BYTES
    }

    /// Nothing is undurable that these answers have seen.
    fn let_go(&mut self) {
        self.gated.drain(..).for_each(|(asker, answer)| asker.answer(answer));
    }

    fn flush(&mut self) {
        let store = Arc::clone(self.deciding.store());
        self.flusher.start(FlushJob { store, marks: self.journal.snapshots() });
    }

    fn flushed(&mut self, outcome: Result<(), Failure>) {
        match outcome {
            Ok(()) => {
                self.deciding.flushed();
                self.may_trim = true;
            }
            Err(Failure::Full(why)) => {
                tracing::error!("{why}; it is tried again");
                self.flush_again = Some(self.clocks.moment() + FULL_RETRY);
            }
            Err(Failure::Failed(why)) => self.failure = Some(why),
        }
    }

    /// Gives up what comes before the checkpoints, if there was one.
    fn trim(&mut self) -> Result<(), Error> {
        match std::mem::take(&mut self.may_trim) {
            true => self.journal.trim(self.deciding.store().durable().next()),
            false => Ok(()),
        }
    }

    /// Without its reserve the journal takes only what makes room, until it has it back.
    fn tend_reserve(&mut self, now: Moment, commit: &Commit) -> Result<(), Error> {
        let next = now + FULL_RETRY;
        if let Some(is_short) = self.reserve.tend(&mut *self.journal, commit.is_full(), now, next)? {
            self.deciding.set_short(is_short);
            self.condition.set_short(is_short);
        }
        Ok(())
    }

    /// Whether nobody would be kept waiting by the background removal.
    fn may_purge(&self, commit: &Commit) -> bool {
        let is_idle = self.waiting.is_empty() && self.gated.is_empty() && !commit.is_in_flight();
        is_idle && self.may_decide() && !self.is_stopping
    }

    /// Removes a slice of what has expired, if it is due and nobody is kept waiting by it.
    fn tend_purge(&mut self, now: Moment, commit: &Commit) -> Result<(), Error> {
        let owner = self.clocks.owner();
        if !self.may_purge(commit)
            || !self.deciding.purge_is_due(owner)
            || now < self.purge_rest.may_begin(now, &self.activity)
        {
            return Ok(());
        }
        self.deciding
            .purge(owner, self.purge_rest.slice(&self.activity), &mut self.draft)
            .map_err(|why| stopped(&why))?;
        let after = self.clocks.moment();
        self.purge_rest.ended(now, after, &self.activity);
        Ok(())
    }

    /// When the removal wants to go on, if nobody is kept waiting by it then.
    fn purge_due(&mut self, now: Moment, commit: &Commit) -> Due {
        let Some(due) = self.deciding.purge_due() else { return Due::Never };
        let owner = self.clocks.owner();
        if due > owner {
            return Due::At(now + Duration::from_millis((due.0 - owner.0) as u64));
        }
        match self.may_purge(commit) {
            true => Due::At(self.purge_rest.may_begin(now, &self.activity)),
            // The one that is served first comes back here.
            false => Due::Never,
        }
    }

    /// When what the journal holds is called complete: after it was quiet for a while.
    fn seal_due(&self, now: Moment, commit: &Commit) -> Due {
        match self.is_sealed || !commit.is_at_rest() || !self.draft.records.is_empty() {
            true => Due::Never,
            false if self.is_stopping => Due::At(now),
            false => Due::At(commit.last_synced() + SEAL_AFTER),
        }
    }

    /// Nothing has happened for a while: what the journal holds is complete, and readers need no older version.
    fn tend_seal(&mut self, now: Moment, commit: &Commit) -> Result<(), Error> {
        if !matches!(self.seal_due(now, commit), Due::At(due) if due <= now) {
            return Ok(());
        }
        self.deciding.rest();
        self.is_sealed = true;
        match self.journal.seal() {
            // Without a seal nothing is lost: damage at the tail may pass for an interrupted write, as before.
            Ok(()) | Err(Error::Full { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The journal holds this time of the items.
fn noted(now: items::Time) -> Reply {
    Reply { answer: Answer::Advanced { now_ms: now.0 }, charge: 0, place: None }
}

fn stopped(why: &dyn std::fmt::Display) -> Error {
    Error::Stopped { why: why.to_string() }
}

impl<A: Asker> Decider for Partition<A> {
    type Work = Work<A>;
    type Unreleased = Unreleased<A>;

    fn moment(&mut self) -> Moment {
        self.clocks.moment()
    }

    fn accept(&mut self, work: Work<A>) {
        match work {
            Work::Ask { command, asker } => self.waiting.push_back((Asked::Command(command), asker)),
            Work::Note { asker } => self.waiting.push_back((Asked::Note, asker)),
            Work::Flushed(outcome) => self.flushed(outcome),
            // What waited for fewer files is looked at again.
            Work::Merged(Ok(())) => {}
            // More files than there need be, until there is room.
            Work::Merged(Err(Failure::Full(why))) => tracing::error!("{why}"),
            Work::Merged(Err(Failure::Failed(why))) => self.failure = Some(why),
            Work::Stop => self.is_stopping = true,
        }
    }

    fn decide(&mut self, most: usize, commit: &Commit) {
        let owner = if self.waiting.is_empty() { Time(0) } else { self.clocks.owner() };
        for _ in 0..most {
            if !self.may_decide() {
                break;
            }
            let Some((asked, asker)) = self.waiting.pop_front() else { break };
            let answer = match asked {
                Asked::Command(command) => self.deciding.decide(&command, owner, &mut self.draft),
                Asked::Note => {
                    self.deciding.note(owner, &mut self.draft);
                    Ok(Ok(noted(self.deciding.local_now(owner))))
                }
            };
            match answer {
                Ok(answer) => self.gated.push((asker, answer)),
                Err(why) => {
                    self.failure = Some(why.to_string());
                    break;
                }
            }
        }
        if self.draft.records.is_empty() && commit.is_at_rest() {
            self.let_go();
        }
    }

    fn drafted(&self) -> Option<DraftSize> {
        (!self.draft.records.is_empty()).then(|| DraftSize {
            records: self.draft.record_count,
            is_awaited: !self.gated.is_empty(),
            is_full: self.is_draft_full(),
        })
    }

    fn append(&mut self, at: Position) -> Result<(Ticket, Unreleased<A>), Error> {
        self.deciding.finish_draft(&mut self.draft);
        let ticket = self.journal.append(&self.draft, at)?;
        let bytes = self.journal.batch_bytes(&self.draft);
        self.activity.appended(bytes);
        let publication = self.deciding.written(at, bytes);
        self.is_sealed = false;
        std::mem::swap(&mut self.draft, &mut self.last);
        self.draft.clear();
        self.condition.sync_began();
        Ok((ticket, Unreleased { publication, answers: std::mem::take(&mut self.gated) }))
    }

    fn resolve(&mut self, at: Position, _: &mut Unreleased<A>) -> Result<Resolution, Error> {
        self.journal.resolve(at)
    }

    fn repeat(&mut self, at: Position, _: &mut Unreleased<A>) -> Result<Ticket, Error> {
        self.journal.append(&self.last, at)
    }

    fn committed(&mut self, at: Position) {
        self.condition.sync_ended();
        if self.draft.records.is_empty() {
            self.let_go();
        }
        if self.deciding.committed(at) {
            self.flush();
        }
    }

    fn due(&mut self, commit: &Commit) -> Due {
        if self.failure.is_some() || (!self.waiting.is_empty() && self.may_decide()) {
            return Due::Now;
        }
        let now = self.clocks.moment();
        let later = [self.reserve.due(), self.flush_again].into_iter().flatten().map(Due::At);
        later.fold(self.purge_due(now, commit).or(self.seal_due(now, commit)), Due::or)
    }

    fn tend(&mut self, commit: &Commit) -> Result<(), Error> {
        if let Some(why) = &self.failure {
            return Err(stopped(why));
        }
        let now = self.clocks.moment();
        self.is_full = commit.is_full();
        self.tend_reserve(now, commit)?;
        self.trim()?;
        if self.flush_again.is_some_and(|again| again <= now) {
            self.flush_again = None;
            self.flush();
        }
        self.tend_purge(now, commit)?;
        self.tend_seal(now, commit)
    }

    fn has_ended(&self) -> bool {
        // A checkpoint that finds no room is not waited for, nor are those who wait for it: the journal has what it would hold.
        let is_stuck = self.flush_again.is_some();
        let is_decided = self.waiting.is_empty() || (is_stuck && self.deciding.is_overrun());
        let is_done = is_decided && self.draft.records.is_empty() && self.is_sealed;
        // What found no room was told to nobody, and is not waited for.
        self.is_stopping && (is_done || self.is_full) && (is_stuck || !self.deciding.is_flushing())
    }
}

/// A partition that is ready to be run.
#[derive(Debug)]
pub struct Recovered {
    pub deciding: Deciding,
    pub journal: Box<dyn Journal>,
    /// The owner's time of the last batch.
    pub last_time: Option<Time>,
}

/// Applies every batch from `from` on.
fn replay(
    journal: &dyn Journal,
    from: Position,
    deciding: &mut Deciding,
    last_time: &mut Option<Time>,
) -> Result<(), OpenError> {
    let mut unreadable = None;
    let replayed = journal.read(from, &mut |batch| {
        *last_time = Some(Time(batch.time));
        deciding.replay(&batch).map_err(|error| {
            unreadable = Some(error);
            journal::Error::Reader("a batch cannot be replayed".into())
        })
    });
    replayed.map_err(|error| unreadable.take().map_or(OpenError::Journal(error), OpenError::Replay))
}

/// The content of the journal's mark of a checkpoint: nothing but a word for a person who looks at the file.
pub const MARK: &[u8] = b"the store of the items holds everything up to here";

#[cfg(test)]
mod tests;
