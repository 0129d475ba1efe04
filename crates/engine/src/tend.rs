//! The partition keeps its journal small and notices a full disk: snapshots are handed to another thread, what is dead
//! is given back, what is alive among the dead is copied forward, a step at a time between batches.

use crate::commit::Commit;
use crate::ids::ForJournal;
use crate::limits::{FULL_RETRY_MS, UPKEEP_RETRY_MS};
use crate::partition::Partition;
use crate::runner::CopyJob;
use crate::snapshots::SnapshotJob;
use crate::work::Uncopied;
use broker::{BodyId, Intake, Time};
use bytes::Bytes;
use journal::{BODY_PREFIX_BYTES, Error, Position, body_prefix};

impl Partition {
    /// When there is something to do for the journal.
    pub(crate) fn upkeep_due(&self) -> Option<Time> {
        self.upkeep.due().or(self.is_quiet.then_some(self.upkeep.next_step))
    }

    /// One step of upkeep, if one is due.
    pub(crate) fn tend_journal(&mut self, commit: &Commit, now: Time) -> Result<(), Error> {
        self.upkeep.conclude_relocation(commit.durable());
        self.tend_reserve(commit, now)?;
        if now < self.upkeep.next_step {
            return Ok(());
        }
        if self.upkeep.may_trim {
            self.trim_one()?;
        } else {
            let slice = self.upkeep.next_slice();
            if !slice.is_empty() {
                self.copy(slice);
            } else {
                self.tend_quietly(commit, now);
                return Ok(());
            }
        }
        self.upkeep.next_step = Time(now.0 + self.upkeep.settings.pause_ms);
        Ok(())
    }

    /// Gives up the oldest stretch if it may go.
    fn trim_one(&mut self) -> Result<(), Error> {
        let before = self.upkeep.trim_before();
        let oldest = self.journal.first();
        let next = self.journal.stretches().get(1).map(|stretch| stretch.first);
        if let Some(next) = next.filter(|next| *next <= before) {
            self.journal.trim(next)?;
        }
        self.upkeep.may_trim = self.journal.first() > oldest;
        Ok(())
    }

    /// Has a slice of the live bodies read, on another thread if there is one.
    fn copy(&mut self, slice: Vec<(BodyId, BodyId)>) {
        let place = |(body, stored): (BodyId, BodyId)| {
            // What is not there any more was dead.
            Some((body, stored, self.journal.place(stored.for_journal())?))
        };
        let bodies = slice.into_iter().filter_map(place).collect();
        let job = CopyJob { bodies, most_bytes: self.upkeep.settings.slice_bytes };
        self.workers.copy(job, &self.inbox);
    }

    /// Stores copies of bodies, as part of the next batch.
    pub(crate) fn copied(
        &mut self,
        copies: Vec<(BodyId, Vec<u8>)>,
        unread: Vec<(BodyId, BodyId)>,
        failure: Option<Uncopied>,
        now: Time,
    ) {
        let mut stored = Vec::new();
        let mut bodies = Vec::with_capacity(copies.len());
        for (body, bytes) in copies {
            bodies.push((body, Intake { offset: stored.len() as u32, length: bytes.len() as u32 }));
            stored.reserve(BODY_PREFIX_BYTES + bytes.len());
            stored.extend_from_slice(&body_prefix(&bytes));
            stored.extend_from_slice(&bytes);
        }
        for (body, _) in &bodies {
            let stored = self.broker.durable().stored_as(*body);
            self.relocating().entry(*body).or_insert(stored);
        }
        let context = self.context(now);
        self.broker.relocate(&bodies, &mut self.decision);
        // Without any copy there is nothing to wait for: what was to be copied is gone already.
        let at = if bodies.is_empty() { Position(0) } else { context.position.for_journal() };
        self.upkeep.copied(at, unread);
        self.take_decision(&Bytes::from(stored));
        if let Some(failure) = failure {
            self.leave_in_place(&failure, now);
        }
    }

    /// A body cannot be copied. It stays, with its stretch and what comes behind; what comes before is given
    /// up as ever.
    fn leave_in_place(&mut self, failure: &Uncopied, now: Time) {
        self.health.report_damage(&failure.why);
        if failure.is_passing {
            self.upkeep.next_step = Time(now.0 + UPKEEP_RETRY_MS);
            return;
        }
        let stretches = self.journal.stretches();
        let behind = stretches.partition_point(|stretch| stretch.first_body.0 <= failure.stored.0);
        if let Some(stretch) = behind.checked_sub(1).map(|nth| stretches[nth]) {
            self.upkeep.keep(failure.stored, stretch);
        }
    }

    /// In a quiet moment, a snapshot that gives back space. It needs a batch of its own, be it empty: two snapshots at
    /// one position would be one, and nothing is trimmed without two.
    fn tend_quietly(&mut self, commit: &Commit, now: Time) {
        let is_still = !commit.is_in_flight() && self.is_idle();
        if !std::mem::take(&mut self.is_quiet) || !is_still {
            return;
        }
        let held = self.broker.durable().queues().map(|(_, queue)| queue.own_bytes()).sum();
        if self.upkeep.is_worth_it(held, &self.journal.stretches()) {
            self.upkeep.want();
            self.want_append(now);
        }
    }

    /// Shares the state for a snapshot if one is due. Everything decided so far is in the batch that was just written.
    pub(crate) fn share_state(&mut self, at: Position, time: Time) {
        if self.upkeep.wants_snapshot() {
            self.upkeep.take(at, self.broker.snapshot(time));
        }
    }

    /// Has the snapshot written whose batch is now committed.
    pub(crate) fn start_snapshot(&mut self, committed: Position) {
        if let Some((at, snapshot)) = self.upkeep.committed(committed) {
            let job = self.snapshot_job(at, snapshot);
            self.workers.snapshot(job, &self.inbox);
        }
    }

    fn snapshot_job(&self, at: Position, snapshot: broker::Snapshot) -> SnapshotJob {
        SnapshotJob {
            at,
            snapshot,
            stretches: self.journal.stretches(),
            snapshots: self.journal.snapshots(),
            sparse_percent: self.upkeep.settings.sparse_percent,
        }
    }

    /// A last snapshot at a clean stop, if it is cheap.
    pub(crate) fn snapshot_at_stop(&mut self) -> Result<(), Error> {
        let tail = self.journal.tail();
        if !self.upkeep.wants_last(tail) {
            return Ok(());
        }
        let job = self.snapshot_job(tail, self.broker.snapshot(self.last_time));
        match job.run() {
            crate::Work::Failed(why) => Err(Error::Stopped { why }),
            _ => Ok(()),
        }
    }

    /// Without its reserve the journal takes no more messages, until it has it back.
    fn tend_reserve(&mut self, commit: &Commit, now: Time) -> Result<(), Error> {
        let next = Time(now.0 + FULL_RETRY_MS);
        if let Some(is_short) = self.reserve.tend(&mut *self.journal, commit.is_full(), now, next)? {
            self.upkeep.set_short(is_short);
            self.broker.set_short(is_short);
            self.health.set_short(is_short.then(|| self.journal.lacking_bytes()));
        }
        Ok(())
    }
}
