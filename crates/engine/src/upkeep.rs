//! When a snapshot is due, what may be given up, and what is to be copied before: the bookkeeping of a partition that
//! keeps its journal small. It decides; `tend.rs` acts.
//!
//! What must hold: a stretch is given up only when nothing alive is in it that was not copied by a batch that is
//! committed, and when the older of two snapshots contains all of its records.

use crate::limits::{
    DIED_SHARE, RECLAIM_BYTES, RELOCATE_SLICE_BODIES, RELOCATE_SLICE_BYTES, SHORT_SNAPSHOTS,
    SNAPSHOT_EVERY_BYTES, SNAPSHOT_GROWTH, SPARSE_PERCENT, STOP_SNAPSHOT_BYTES, UPKEEP_PAUSE_MS,
};
use crate::snapshots::Snapshotted;
use broker::{BodyId, Snapshot, Time};
use journal::{Position, SnapshotInfo, Stretch};
use std::collections::{BTreeMap, VecDeque};

/// The numbers of upkeep; smaller ones make a simulated minute eventful.
#[derive(Debug, Clone, Copy)]
pub struct UpkeepSettings {
    pub snapshot_every_bytes: u64,
    pub reclaim_bytes: u64,
    pub sparse_percent: u64,
    pub slice_bytes: usize,
    pub pause_ms: i64,
}

impl Default for UpkeepSettings {
    fn default() -> UpkeepSettings {
        UpkeepSettings {
            snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
            reclaim_bytes: RECLAIM_BYTES,
            sparse_percent: SPARSE_PERCENT,
            slice_bytes: RELOCATE_SLICE_BYTES,
            pause_ms: UPKEEP_PAUSE_MS,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Upkeep {
    pub(crate) settings: UpkeepSettings,
    /// Bytes appended since the newest snapshot was taken.
    since_bytes: u64,
    newest: Option<SnapshotInfo>,
    /// The one that is used if the newest turns out damaged.
    fallback: Option<Position>,
    /// Taken, and waiting for its batch to be committed.
    taken: Option<(Position, Snapshot)>,
    is_writing: bool,
    /// Taken whether or not enough was written since the last one.
    is_wanted: bool,
    /// The reserve is gone: only snapshots, and what they let go, make room.
    is_short: bool,
    /// Nothing alive is stored before this batch.
    dead_before: Position,
    /// Trimming may free something.
    pub(crate) may_trim: bool,
    relocation: Option<Relocation>,
    /// Bodies that are damaged and cannot be copied, by where they are: the stretch of the first is the last that is relocated.
    kept: BTreeMap<BodyId, Stretch>,
    /// Bytes of bodies alive at the newest snapshot, and stored since. `None` before the first snapshot of this run: what
    /// has died since the last one of the run before is not known.
    alive_bytes: Option<u64>,
    /// What messages shared at the newest snapshot: of what they hold together, so much is there only once.
    shared_bytes: u64,
    stored_bytes: u64,
    pub(crate) next_step: Time,
}

/// Live bodies in front of a stretch, on their way forward.
#[derive(Debug)]
struct Relocation {
    before: Position,
    /// The id that messages know, and the id under which the bytes are stored.
    left: VecDeque<(BodyId, BodyId)>,
    is_reading: bool,
    /// The batch of the last copies.
    copied_at: Position,
}

impl Relocation {
    /// Whether every copy is part of a batch up to `committed`.
    fn is_done(&self, committed: Position) -> bool {
        self.left.is_empty() && !self.is_reading && self.copied_at <= committed
    }
}

impl Upkeep {
    /// `snapshots` are the ones that were found, newest first.
    pub(crate) fn new(settings: UpkeepSettings, snapshots: &[SnapshotInfo], stretches: &[Stretch]) -> Upkeep {
        let newest = snapshots.first().copied();
        let behind = newest.map_or(Position(0), |newest| newest.position);
        Upkeep {
            settings,
            since_bytes: stretches.iter().filter(|s| s.first > behind).map(|s| s.bytes).sum(),
            newest,
            fallback: snapshots.get(1).map(|older| older.position),
            taken: None,
            is_writing: false,
            is_wanted: false,
            is_short: false,
            dead_before: Position(0),
            may_trim: false,
            relocation: None,
            kept: BTreeMap::new(),
            alive_bytes: None,
            shared_bytes: 0,
            stored_bytes: 0,
            next_step: Time::AT_ONCE,
        }
    }

    fn newest_bytes(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.bytes)
    }

    pub(crate) fn appended(&mut self, bytes: usize, body_bytes: usize) {
        self.since_bytes += bytes as u64;
        self.stored_bytes += body_bytes as u64;
    }

    /// Whether the state should be shared for a snapshot right now, its records having just been written.
    pub(crate) fn wants_snapshot(&self) -> bool {
        let every = self.settings.snapshot_every_bytes.max(SNAPSHOT_GROWTH * self.newest_bytes());
        let every = if self.is_short { every / SHORT_SNAPSHOTS } else { every };
        !self.is_writing && self.taken.is_none() && (self.is_wanted || self.since_bytes >= every)
    }

    pub(crate) fn take(&mut self, at: Position, snapshot: Snapshot) {
        self.taken = Some((at, snapshot));
        self.is_wanted = false;
        self.since_bytes = 0;
    }

    /// The snapshot that was taken, once its batch is committed.
    pub(crate) fn committed(&mut self, at: Position) -> Option<(Position, Snapshot)> {
        self.conclude_relocation(at);
        let taken = self.taken.take_if(|(taken, _)| *taken <= at);
        self.is_writing |= taken.is_some();
        taken
    }

    /// Notices that everything was copied, and that all batches up to `committed` are durable.
    pub(crate) fn conclude_relocation(&mut self, committed: Position) {
        if let Some(relocation) = self.relocation.take_if(|relocation| relocation.is_done(committed)) {
            self.dead_before = self.dead_before.max(relocation.before);
            self.may_trim = true;
        }
    }

    pub(crate) fn snapshotted(&mut self, done: Snapshotted) {
        self.is_writing = false;
        self.fallback = self.newest.map(|newest| newest.position).or(self.fallback);
        self.newest = Some(SnapshotInfo { position: done.at, bytes: done.bytes });
        self.dead_before = self.dead_before.max(done.plan.dead_before);
        self.may_trim = true;
        self.alive_bytes = Some(done.plan.alive_bytes);
        self.shared_bytes = done.plan.shared_bytes;
        self.stored_bytes = 0;
        // The newer list is the better one: some of those that were to be copied may have died. What is being read
        // right now is copied in any case.
        let is_reading = self.relocation.as_ref().is_some_and(|relocation| relocation.is_reading);
        if !is_reading {
            let (stretch, to_relocate) = self.without_kept(done.plan.relocate_before, done.to_relocate);
            let stretch = stretch.filter(|stretch| stretch.first > self.dead_before);
            self.relocation = stretch.map(|stretch| Relocation {
                before: stretch.first,
                left: to_relocate.into(),
                is_reading: false,
                copied_at: Position(0),
            });
        }
    }

    /// What can be relocated of what should be: no more than comes before the first stretch with a body that cannot be copied.
    fn without_kept(
        &mut self,
        stretch: Option<Stretch>,
        mut to_relocate: Vec<(BodyId, BodyId)>,
    ) -> (Option<Stretch>, Vec<(BodyId, BodyId)>) {
        let Some(stretch) = stretch else { return (None, to_relocate) };
        let is_before = |stored: &BodyId| stored.0 < stretch.first_body.0;
        let is_alive =
            |stored: &BodyId| to_relocate.binary_search_by_key(stored, |(_, stored)| *stored).is_ok();
        // One that would have to be copied if it were alive, and is not asked for, is dead.
        self.kept.retain(|stored, _| !is_before(stored) || is_alive(stored));
        match self.kept.first_key_value() {
            Some((stored, kept)) if is_before(stored) => {
                to_relocate.retain(|(_, stored)| stored.0 < kept.first_body.0);
                (Some(*kept), to_relocate)
            }
            _ => (Some(stretch), to_relocate),
        }
    }

    /// It did not come about, for want of room.
    pub(crate) fn put_off(&mut self) {
        self.is_writing = false;
    }

    /// Batches before this one may go.
    pub(crate) fn trim_before(&self) -> Position {
        self.fallback.map_or(Position(0), |fallback| self.dead_before.min(fallback.next()))
    }

    /// Some of the live bodies that are to be copied next.
    pub(crate) fn next_slice(&mut self) -> Vec<(BodyId, BodyId)> {
        match &mut self.relocation {
            Some(relocation) if !relocation.is_reading && !relocation.left.is_empty() => {
                relocation.is_reading = true;
                let count = relocation.left.len().min(RELOCATE_SLICE_BODIES);
                relocation.left.drain(..count).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A slice was read: its copies are part of the batches up to `at`, and `unread` did not fit.
    pub(crate) fn copied(&mut self, at: Position, unread: Vec<(BodyId, BodyId)>) {
        if let Some(relocation) = &mut self.relocation {
            relocation.is_reading = false;
            relocation.copied_at = relocation.copied_at.max(at);
            unread.into_iter().rev().for_each(|body| relocation.left.push_front(body));
        }
    }

    /// A body in `stretch` is damaged and cannot be copied: relocating ends before it.
    pub(crate) fn keep(&mut self, stored: BodyId, stretch: Stretch) {
        self.kept.insert(stored, stretch);
        if let Some(relocation) = &mut self.relocation {
            relocation.left.clear();
            relocation.before = relocation.before.min(stretch.first);
        }
    }

    /// When there is something to do again.
    pub(crate) fn due(&self) -> Option<Time> {
        let has_slice = self
            .relocation
            .as_ref()
            .is_some_and(|relocation| !relocation.is_reading && !relocation.left.is_empty());
        (self.may_trim || has_slice).then_some(self.next_step)
    }

    /// Whether a snapshot in a quiet moment would give back space that is worth it, messages holding `held_bytes` now:
    /// because the journal is larger than live bodies explain and some have died since the last one, or because much
    /// waits only for the older snapshot to be newer.
    pub(crate) fn is_worth_it(&self, held_bytes: u64, stretches: &[Stretch]) -> bool {
        let alive_bytes = held_bytes.saturating_sub(self.shared_bytes);
        if self.is_writing || self.taken.is_some() || self.relocation.is_some() {
            return false;
        }
        let least = self.settings.reclaim_bytes.max(self.newest_bytes());
        let died = self.alive_bytes.map(|before| (before + self.stored_bytes).saturating_sub(alive_bytes));
        let closed: u64 = stretches.iter().rev().skip(1).map(|stretch| stretch.bytes).sum();
        let excess = closed.saturating_sub(alive_bytes * 100 / self.settings.sparse_percent);
        let newest = self.newest.map_or(Position(0), |newest| newest.position);
        let before = self.dead_before.min(newest.next());
        let waiting = stretches.windows(2).filter(|pair| pair[1].first <= before).map(|pair| pair[0].bytes);
        died.is_none_or(|died| died >= least / DIED_SHARE) && excess >= least || waiting.sum::<u64>() >= least
    }

    /// Whether the reserve is gone. What is left of it is for settlements and for the snapshots that give back what they
    /// settle, so these must not come too late.
    pub(crate) fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether to write one more snapshot before the end: it saves the next start some reading and takes no time.
    pub(crate) fn wants_last(&self, tail: Position) -> bool {
        let is_small = self.newest_bytes() <= STOP_SNAPSHOT_BYTES;
        let is_newer = self.newest.is_none_or(|newest| newest.position < tail);
        !self.is_writing && is_newer && is_small && self.since_bytes >= STOP_SNAPSHOT_BYTES / 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::Plan;

    fn stretch(n: u64) -> Stretch {
        Stretch { first: Position(n * 10 + 1), first_body: journal::BodyId(n * 10 + 1), bytes: 1_000 }
    }

    fn snapshotted(at: u64, dead_before: u64, to_relocate: &[u64]) -> Snapshotted {
        let relocate_before = (!to_relocate.is_empty()).then_some(stretch(2));
        let plan =
            Plan { dead_before: Position(dead_before), relocate_before, alive_bytes: 100, shared_bytes: 0 };
        let to_relocate = to_relocate.iter().map(|body| (BodyId(*body), BodyId(*body))).collect();
        Snapshotted { at: Position(at), bytes: 10, plan, to_relocate, forgotten: Vec::new() }
    }

    fn upkeep() -> Upkeep {
        let mut upkeep = Upkeep::new(UpkeepSettings::default(), &[], &[stretch(0)]);
        upkeep.snapshotted(snapshotted(35, 1, &[]));
        upkeep.snapshotted(snapshotted(38, 1, &[3, 4, 12]));
        upkeep
    }

    #[test]
    fn after_one_that_was_put_off_the_next_snapshot_is_taken_and_while_short_sooner() {
        let mut upkeep = upkeep();
        let every = upkeep.settings.snapshot_every_bytes as usize;
        upkeep.appended(every, 0);
        assert!(upkeep.wants_snapshot());
        upkeep.take(Position(50), broker::Broker::new(broker::Durable::default(), 1).snapshot(Time(1)));
        assert!(upkeep.committed(Position(50)).is_some());
        upkeep.appended(every, 0);
        assert!(!upkeep.wants_snapshot(), "one is being written");
        upkeep.put_off();
        assert!(upkeep.wants_snapshot());
        upkeep.take(Position(60), broker::Broker::new(broker::Durable::default(), 1).snapshot(Time(1)));
        assert!(upkeep.committed(Position(60)).is_some());
        upkeep.put_off();
        upkeep.appended(every / SHORT_SNAPSHOTS as usize, 0);
        assert!(!upkeep.wants_snapshot());
        upkeep.set_short(true);
        assert!(upkeep.wants_snapshot());
    }

    #[test]
    fn what_was_copied_is_given_up_only_when_the_copies_are_committed() {
        let mut upkeep = upkeep();
        assert_eq!(upkeep.next_slice().len(), 3);
        assert!(upkeep.next_slice().is_empty(), "one slice at a time");
        upkeep.conclude_relocation(Position(100));
        assert_eq!(upkeep.trim_before(), Position(1), "nothing was copied yet");
        upkeep.copied(Position(40), vec![(BodyId(12), BodyId(12))]);
        upkeep.conclude_relocation(Position(40));
        assert_eq!(upkeep.trim_before(), Position(1), "one is left");
        assert_eq!(upkeep.next_slice(), [(BodyId(12), BodyId(12))]);
        upkeep.conclude_relocation(Position(40));
        assert_eq!(upkeep.trim_before(), Position(1), "the last one is being read");
        upkeep.copied(Position(41), Vec::new());
        upkeep.conclude_relocation(Position(40));
        assert_eq!(upkeep.trim_before(), Position(1), "the last copy is not durable");
        upkeep.conclude_relocation(Position(41));
        assert_eq!(upkeep.trim_before(), Position(21));
    }

    #[test]
    fn nothing_behind_the_older_of_two_snapshots_is_given_up() {
        let mut upkeep = Upkeep::new(UpkeepSettings::default(), &[], &[stretch(0)]);
        upkeep.snapshotted(snapshotted(15, 31, &[]));
        assert_eq!(upkeep.trim_before(), Position(0), "there is only one");
        upkeep.snapshotted(snapshotted(50, 31, &[]));
        assert_eq!(upkeep.trim_before(), Position(16));
        upkeep.snapshotted(snapshotted(60, 31, &[]));
        assert_eq!(upkeep.trim_before(), Position(31));
    }

    #[test]
    fn damage_where_something_was_to_be_copied_keeps_its_stretch_and_nothing_before_it() {
        let mut upkeep = upkeep();
        assert_eq!(upkeep.next_slice().len(), 3);
        // Body 12 is in the second stretch and cannot be read.
        upkeep.copied(Position(40), vec![(BodyId(12), BodyId(12))]);
        upkeep.keep(BodyId(12), stretch(1));
        upkeep.conclude_relocation(Position(40));
        assert_eq!(upkeep.trim_before(), Position(11), "the first stretch goes");
        // While it is alive nothing is copied in vain, and nothing there is given up.
        upkeep.snapshotted(snapshotted(60, 1, &[12, 15]));
        assert!(upkeep.next_slice().is_empty());
        upkeep.conclude_relocation(Position(100));
        assert_eq!(upkeep.trim_before(), Position(11));
        // It has died: the others there are copied.
        upkeep.snapshotted(snapshotted(70, 1, &[15]));
        assert_eq!(upkeep.next_slice(), [(BodyId(15), BodyId(15))]);
        upkeep.copied(Position(71), Vec::new());
        upkeep.conclude_relocation(Position(71));
        assert_eq!(upkeep.trim_before(), Position(21));
    }

    #[test]
    fn a_snapshot_waits_for_the_batch_with_which_it_was_taken() {
        let mut upkeep = upkeep();
        let broker = broker::Broker::new(broker::Durable::default(), 1);
        upkeep.take(Position(41), broker.snapshot(Time(0)));
        assert!(upkeep.committed(Position(40)).is_none(), "the batch before it");
        assert!(!upkeep.wants_snapshot(), "one at a time");
        assert!(upkeep.committed(Position(41)).is_some());
    }

    #[test]
    fn a_large_snapshot_is_written_less_often() {
        let newest = SnapshotInfo { position: Position(1), bytes: SNAPSHOT_EVERY_BYTES };
        let mut upkeep = Upkeep::new(UpkeepSettings::default(), &[newest], &[]);
        let growth = (SNAPSHOT_GROWTH * SNAPSHOT_EVERY_BYTES) as usize;
        upkeep.appended(growth - 1, 0);
        assert!(!upkeep.wants_snapshot());
        upkeep.appended(1, 0);
        assert!(upkeep.wants_snapshot());
    }
}
