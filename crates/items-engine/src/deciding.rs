//! The deciding half of the partition, without journal, threads or clock: commands in, records out, and the store moved on.
//!
//! What must always hold: the store shows to deciding whatever was decided, in order, and to readers only what
//! [`Deciding::committed`] has been told of; every answer that may rest on a batch leaves after that batch is durable.

use crate::committed::{Committed, Published};
use crate::limits::{CHECKPOINT_JOURNAL_BYTES, OVERLAPPING_FILES, TABLE_OVERRUN};
use crate::planted::{Bug, is_planted};
use crate::remembering::Remembering;
use crate::skips::{Skipping, Skips};
use crate::store::{Store, keys};
use broker::Time;
use bytes::Bytes;
use items::throttle::Throttle;
use items::{Account, Command, Decided, Purge, Record, Refusal, Reply};
use items::{Changes, Unreadable, View};
use journal::{Batch, Draft, Position};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes in front of a batch's records: how far the items are ahead of the owner's time behind it, in milliseconds.
const OFFSET_BYTES: usize = 8;

/// Bytes in front of each record in a batch: its length, little-endian.
const LENGTH_BYTES: usize = 4;

#[derive(Debug)]
pub struct Deciding {
    account: Account,
    store: Arc<dyn Store>,
    committed: Arc<Committed>,
    changes: Changes,
    /// How far the items' time is ahead of the owner's, in milliseconds.
    offset_ms: i64,
    /// The owner's time that the draft or the journal holds: no restart goes behind it.
    noted: Time,
    checkpoint: Checkpoint,
    /// Bytes of recent changes that are worth a checkpoint.
    table_bytes: u64,
    /// Bytes of the journal since the last checkpoint.
    journal_bytes: u64,
    /// The journal is without its reserve: what makes no room is refused.
    is_short: bool,
    purge: PurgePlan,
    skips: Skips,
    /// What provisioned throughput has been spent, by requests and by the removal.
    throttle: Arc<Mutex<Throttle>>,
}

/// The state behind a batch, to be shown to readers when that is durable.
#[derive(Debug)]
pub struct Publication {
    state: Published,
    committed: Arc<Committed>,
}

impl Publication {
    pub fn publish(self) {
        self.committed.publish(self.state);
    }
}

/// Where the checkpoint is that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checkpoint {
    None,
    /// Closed behind this batch, which is not durable yet.
    Closed(Position),
    /// Another thread flushes it.
    Flushing,
}

/// When the background removal looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgePlan {
    Now,
    At(items::Time),
    /// Then too, but something that has expired is still stored.
    BehindUntil(items::Time),
    /// After the next write.
    Later,
}

/// The journal holds something that this program did not write so.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("batch {position}: {why}")]
    Record { position: u64, why: items::record::Error },
    #[error("batch {position} announces {announced} records and holds {found}")]
    RecordCount { position: u64, announced: u32, found: u32 },
    #[error("batch {position} is cut short")]
    Short { position: u64 },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl Deciding {
    /// From a store that holds everything up to its checkpoint. `table_bytes` of recent changes are worth a new one.
    pub fn open(store: Arc<dyn Store>, table_bytes: u64) -> Result<Deciding, Unreadable> {
        let account = Account::load(&*store)?;
        let (noted, offset_ms) = stored_time(&*store)?.unwrap_or_default();
        let offset_ms = if is_planted(Bug::OffsetForgotten) { 0 } else { offset_ms };
        let (view, hidden_from) = (store.freeze(), items::Time::AT_ONCE);
        let state = Published { view, account: account.clone(), offset_ms, noted, hidden_from };
        let committed = Arc::new(Committed::new(state));
        Ok(Deciding {
            account,
            store,
            committed,
            changes: Changes::default(),
            offset_ms,
            noted,
            checkpoint: Checkpoint::None,
            table_bytes,
            journal_bytes: 0,
            is_short: false,
            purge: PurgePlan::Now,
            skips: Skips::default(),
            throttle: Arc::default(),
        })
    }

    /// What requests spend is told here.
    pub fn throttle(&self) -> &Arc<Mutex<Throttle>> {
        &self.throttle
    }

    /// The owner's time of the newest checkpoint.
    pub(crate) fn stored_owner_time(&self) -> Result<Option<Time>, Unreadable> {
        Ok(stored_time(&*self.store)?.map(|(owner, _)| owner))
    }

    /// Applies a batch of the journal at the start.
    pub(crate) fn replay(&mut self, batch: &Batch<'_>) -> Result<(), ReplayError> {
        self.journal_bytes += batch.records.len() as u64;
        self.noted = self.noted.max(Time(batch.time));
        let store = Arc::clone(&self.store);
        self.offset_ms = each_record(batch, |record| Ok(self.apply(&record, &*store)?))?;
        Ok(())
    }

    /// Everything so far is durable: the start is over.
    pub(crate) fn replayed(&mut self) {
        self.publication().publish();
    }

    /// Where readers find what is committed.
    pub fn readers(&self) -> &Arc<Committed> {
        &self.committed
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The items' time when the owner's is `owner`: never before anything that is on record (C-42).
    pub fn local_now(&self, owner: Time) -> items::Time {
        items::Time(owner.0).after_ms(self.offset_ms).max(self.account.time())
    }

    /// Decides a command and adds its records to `draft`. An error of the store is final.
    pub fn decide(
        &mut self,
        command: &Command,
        owner: Time,
        draft: &mut Draft,
    ) -> Result<Result<Reply, Refusal>, Unreadable> {
        if self.is_short && !frees_room(command) {
            return Ok(Err(Refusal::NoSpace));
        }
        let now = self.local_now(owner);
        let store = Arc::clone(&self.store);
        let view = Remembering::over(&*store);
        let decided = self.account.decide(command, &view, now);
        if !matches!(&decided, Ok(Decided { records, .. }) if !records.is_empty())
            && now > self.local_now(self.noted)
        {
            // What is told may rest on something having expired, and that must be so after a restart too (C-42).
            let before = self.account.decide(command, &view, self.local_now(self.noted));
            if before != decided && !is_planted(Bug::TimeForgotten) {
                self.note(owner, draft);
            }
        }
        let decided = match decided {
            Ok(decided) => decided,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Command::Advance { by_ms } = command {
            self.offset_ms = self.offset_ms.saturating_add_unsigned(*by_ms);
        }
        if let [record] = &decided.records[..] {
            self.record(record, &view, owner, draft)?;
        } else {
            // Each sees what the one before has changed.
            decided.records.iter().try_for_each(|record| self.record(record, &*store, owner, draft))?;
        }
        if !decided.records.is_empty() {
            self.purge = PurgePlan::Now;
        }
        Ok(Ok(decided.reply))
    }

    /// Has the next append carry the owner's time, so that no restart goes behind it.
    pub fn note(&mut self, owner: Time, draft: &mut Draft) {
        if draft.records.is_empty() {
            draft.records.extend_from_slice(&[0; OFFSET_BYTES]);
        }
        self.noted = self.noted.max(owner);
        draft.time = self.noted.0;
    }

    /// Removes a slice of what has expired, about `most` items. Says whether it removed something.
    pub fn purge(&mut self, owner: Time, most: usize, draft: &mut Draft) -> Result<bool, Unreadable> {
        let now = self.local_now(owner);
        if !self.purge_is_due(owner) {
            return Ok(false);
        }
        let view = Skipping { view: &*self.store, skips: &self.skips };
        let throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        let may_spend = |container| throttle.left(&self.account, container, now);
        let slice = self.account.purge(&view, now, most, &may_spend)?;
        drop(throttle);
        match slice {
            Purge::Slice { records, spent } => {
                let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
                for (container, charge) in spent {
                    throttle.spend_on_purge(&self.account, container, charge, now);
                }
                drop(throttle);
                let store = Arc::clone(&self.store);
                records.iter().try_for_each(|record| self.record(record, &*store, owner, draft))?;
                Ok(!records.is_empty())
            }
            Purge::Idle { next, is_behind } => {
                let plan = if is_behind { PurgePlan::BehindUntil } else { PurgePlan::At };
                self.purge = next.map_or(PurgePlan::Later, plan);
                Ok(false)
            }
        }
    }

    pub fn purge_is_due(&self, owner: Time) -> bool {
        match self.purge {
            PurgePlan::Now => true,
            PurgePlan::At(due) | PurgePlan::BehindUntil(due) => due <= self.local_now(owner),
            PurgePlan::Later => false,
        }
    }

    /// When the removal has to look again, in the owner's time.
    pub fn purge_due(&self) -> Option<Time> {
        match self.purge {
            PurgePlan::Now => Some(Time::AT_ONCE),
            PurgePlan::At(due) | PurgePlan::BehindUntil(due) => Some(Time(due.after_ms(-self.offset_ms).0)),
            PurgePlan::Later => None,
        }
    }

    fn record(
        &mut self,
        record: &Record,
        view: &dyn View,
        owner: Time,
        draft: &mut Draft,
    ) -> Result<(), Unreadable> {
        self.note(owner, draft);
        let start = draft.records.len();
        draft.records.extend_from_slice(&[0; LENGTH_BYTES]);
        record.encode(&mut draft.records);
        let length = (draft.records.len() - start - LENGTH_BYTES) as u32;
        draft.records[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        draft.record_count += 1;
        self.apply(record, view)
    }

    /// `view` shows everything before the record.
    fn apply(&mut self, record: &Record, view: &dyn View) -> Result<(), Unreadable> {
        self.account.apply(record, view, &mut self.changes)?;
        if !self.changes.entries.is_empty() {
            self.skips.written(&self.changes);
            self.store.write(&mut self.changes);
        }
        Ok(())
    }

    /// Finishes a draft that is about to be written.
    pub fn finish_draft(&self, draft: &mut Draft) {
        draft.records[..OFFSET_BYTES].copy_from_slice(&self.offset_ms.to_le_bytes());
    }

    /// Everything decided so far was written as the batch at `position`. What is returned is to be published when that is durable,
    /// and before anybody is answered.
    pub fn written(&mut self, position: Position, bytes: usize) -> Publication {
        self.journal_bytes += bytes as u64;
        if self.wants_checkpoint() {
            let mut time = Changes::default();
            let value = [self.noted.0.to_be_bytes(), self.offset_ms.to_be_bytes()].concat();
            time.put(keys::TIME, value);
            self.store.write(&mut time);
            self.store.close_table(position);
            self.checkpoint = Checkpoint::Closed(position);
            self.journal_bytes = 0;
            if is_planted(Bug::FlushedTooEarly) {
                // Whatever goes wrong is tried again as ever.
                let _ = self.store.flush();
                self.checkpoint = Checkpoint::None;
            }
        }
        if is_planted(Bug::ShownTooEarly) {
            self.publication().publish();
        }
        self.publication()
    }

    fn publication(&self) -> Publication {
        let (view, account) = (self.store.freeze(), self.account.clone());
        let hidden_from = match self.purge {
            PurgePlan::Now | PurgePlan::BehindUntil(_) => items::Time::AT_ONCE,
            PurgePlan::At(due) => due,
            PurgePlan::Later => items::Time::NEVER,
        };
        let state = Published { view, account, offset_ms: self.offset_ms, noted: self.noted, hidden_from };
        Publication { state, committed: Arc::clone(&self.committed) }
    }

    fn wants_checkpoint(&self) -> bool {
        let is_worth_it =
            self.journal_bytes >= CHECKPOINT_JOURNAL_BYTES || self.store.open_bytes() >= self.table_bytes;
        is_worth_it
            && self.checkpoint == Checkpoint::None
            && self.store.overlapping_files() < OVERLAPPING_FILES
    }

    /// The batch at `position` is durable, and all before it. Says whether a checkpoint is to be flushed now.
    #[must_use]
    pub fn committed(&mut self, position: Position) -> bool {
        let is_due = matches!(self.checkpoint, Checkpoint::Closed(closed) if closed <= position);
        let is_due = is_due && !is_planted(Bug::FlushedTooEarly);
        if is_due {
            self.checkpoint = Checkpoint::Flushing;
        }
        is_due
    }

    /// The checkpoint is durable: the next one may begin.
    pub fn flushed(&mut self) {
        assert_eq!(self.checkpoint, Checkpoint::Flushing, "a checkpoint was flushed that nobody began");
        self.checkpoint = Checkpoint::None;
    }

    /// Whether recent changes are so many that the store must catch up first.
    pub fn is_overrun(&self) -> bool {
        let cannot_close =
            self.checkpoint != Checkpoint::None || self.store.overlapping_files() >= OVERLAPPING_FILES;
        self.store.recent_bytes() >= TABLE_OVERRUN * self.table_bytes && cannot_close
    }

    /// Whether another thread is flushing a checkpoint.
    pub fn is_flushing(&self) -> bool {
        self.checkpoint == Checkpoint::Flushing
    }

    /// Everything decided is durable: readers may as well see the store as it is now, which lets go of older files and tables.
    pub fn rest(&self) {
        self.publication().publish();
    }

    /// Whether what makes no room is refused, for the journal is without its reserve.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    pub fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    pub fn account(&self) -> &Account {
        &self.account
    }
}

/// Whether a command is taken while the journal is short: what it removes makes room.
fn frees_room(command: &Command) -> bool {
    matches!(
        command,
        Command::DeleteItem { .. }
            | Command::DeletePartition { .. }
            | Command::DeleteContainer { .. }
            | Command::DeleteDatabase { .. }
            | Command::DeleteScript { .. }
            | Command::DeleteUser { .. }
            | Command::DeletePermission { .. }
    )
}

/// The bytes of the next record.
fn take_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
    let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(record)
}

/// The owner's time, and how far the items were ahead of it, when the store's checkpoint was made.
fn stored_time(store: &dyn Store) -> Result<Option<(Time, i64)>, Unreadable> {
    let Some(value) = store.get(keys::TIME)? else { return Ok(None) };
    let malformed = || Unreadable("its time is malformed".into());
    let (owner, rest) = value.split_first_chunk::<8>().ok_or_else(malformed)?;
    let offset = rest.try_into().map_err(|_| malformed())?;
    Ok(Some((Time(i64::from_be_bytes(*owner)), i64::from_be_bytes(offset))))
}

/// Looks at a batch of the journal as a start would, and changes nothing: to verify it.
pub fn inspect(batch: &Batch<'_>) -> Result<(), ReplayError> {
    each_record(batch, |_| Ok(())).map(drop)
}

/// Hands out the records of a batch, all of them or an error. Returns how far the items are ahead behind it.
fn each_record(
    batch: &Batch<'_>,
    mut each: impl FnMut(Record) -> Result<(), ReplayError>,
) -> Result<i64, ReplayError> {
    let position = batch.position.0;
    let (offset, mut rest) =
        batch.records.split_first_chunk::<OFFSET_BYTES>().ok_or(ReplayError::Short { position })?;
    let mut found = 0;
    while !rest.is_empty() {
        let record = take_record(&mut rest).ok_or(ReplayError::Short { position })?;
        let record = Record::decode(&Bytes::copy_from_slice(record));
        each(record.map_err(|why| ReplayError::Record { position, why })?)?;
        found += 1;
    }
    match found == batch.record_count {
        true => Ok(i64::from_le_bytes(*offset)),
        false => Err(ReplayError::RecordCount { position, announced: batch.record_count, found }),
    }
}
