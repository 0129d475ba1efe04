//! The partition keeps its journal short and notices a full disk: snapshots are handed to another thread, what is dead
//! is given back, what is alive among the dead is copied forward, a step at a time between batches.

use crate::inbox::Uncopied;
use crate::limits::{FULL_RETRY_MS, UPKEEP_RETRY_MS};
use crate::partition::Partition;
use crate::runner::CopyJob;
use crate::snapshots::SnapshotJob;
use broker::{BodyId, Intake, Time};
use bytes::Bytes;
use journal::{BODY_PREFIX_BYTES, Position, body_prefix};

impl Partition {
    /// One step of upkeep, if one is due.
    pub(crate) fn tend(&mut self, now: Time) -> Result<(), String> {
        self.upkeep.conclude_cleaning(self.committed());
        self.tend_room(now)?;
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
                return self.tend_quietly(now);
            }
        }
        self.upkeep.next_step = Time(now.0 + self.upkeep.pace.pause_ms);
        Ok(())
    }

    /// Gives up the oldest stretch if it may go.
    fn trim_one(&mut self) -> Result<(), String> {
        let before = self.upkeep.trim_before();
        let oldest = self.journal.first();
        let next = self.journal.stretches().get(1).map(|stretch| stretch.first);
        if let Some(next) = next.filter(|next| *next <= before) {
            self.journal.trim(next).map_err(|error| error.to_string())?;
        }
        self.upkeep.may_trim = self.journal.first() > oldest;
        Ok(())
    }

    /// Has a slice of the living read, on another thread if there is one.
    fn copy(&mut self, slice: Vec<(BodyId, BodyId)>) {
        let place = |(body, stored): (BodyId, BodyId)| {
            // What is not there any more was dead.
            Some((body, stored, self.journal.place(journal::BodyId(stored.0))?))
        };
        let bodies = slice.into_iter().filter_map(place).collect();
        let job = CopyJob { bodies, most_bytes: self.upkeep.pace.slice_bytes };
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
            self.moving.entry(*body).or_insert(stored);
        }
        let context = self.context(now);
        self.broker.relocate(&bodies, &mut self.decision);
        // Without any copy there is nothing to wait for: what was to be copied is gone already.
        let at = if bodies.is_empty() { self.committed() } else { Position(context.position.0) };
        self.upkeep.copied(at, unread);
        self.take_decision(&Bytes::from(stored));
        if let Some(failure) = failure {
            self.leave_in_place(&failure, now);
        }
    }

    /// A body cannot be copied. It stays, with the stretch in which it lies and what comes behind; what lies before is given
    /// up as ever.
    fn leave_in_place(&mut self, failure: &Uncopied, now: Time) {
        self.condition.report_damage(&failure.why);
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
    fn tend_quietly(&mut self, now: Time) -> Result<(), String> {
        if !std::mem::take(&mut self.is_quiet) || !self.is_at_rest() {
            return Ok(());
        }
        let held = self.broker.durable().queues().map(|(_, queue)| queue.bytes).sum();
        if self.upkeep.is_worth_it(held, &self.journal.stretches()) {
            self.upkeep.want();
            self.context(now);
            self.append(now)?;
        }
        Ok(())
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
            sparse_percent: self.upkeep.pace.sparse_percent,
        }
    }

    /// A last snapshot at a clean stop, if it is cheap.
    pub(crate) fn snapshot_at_stop(&mut self) -> Result<(), String> {
        let tail = self.journal.tail();
        if !self.upkeep.wants_last(tail) {
            return Ok(());
        }
        let job = self.snapshot_job(tail, self.broker.snapshot(self.last_time));
        match job.run() {
            crate::Item::Failed(why) => Err(why),
            _ => Ok(()),
        }
    }

    /// Without its reserve the journal takes no more messages, until it has it back.
    fn tend_room(&mut self, now: Time) -> Result<(), String> {
        let has_reserve = self.journal.has_reserve();
        if has_reserve && self.full_until.is_none() {
            return Ok(());
        }
        let retry = *self.full_until.get_or_insert(Time(now.0 + FULL_RETRY_MS));
        let has_room = if now >= retry {
            self.full_until = Some(Time(now.0 + FULL_RETRY_MS));
            !self.is_stuck && self.journal.refill_reserve().map_err(|error| error.to_string())?
        } else {
            false
        };
        if has_room {
            self.full_until = None;
        }
        self.upkeep.set_short(!has_room);
        self.broker.set_room(has_room);
        match has_room {
            true => self.condition.set_roomy(),
            false => self.condition.set_full(self.journal.lacking_bytes()),
        }
        Ok(())
    }
}
