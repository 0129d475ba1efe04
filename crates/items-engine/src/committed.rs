//! What readers see: the newest state that the journal has made durable.
//!
//! A reader holds a [`Published`] state: definitions and store of one moment, which stay as they are. Taking it costs one short
//! lock; it never waits for a decision or for the disk.

use crate::planted::{Bug, is_planted};
use crate::store::Frozen;
use broker::Time;
use items::query::Watch;
use items::{Account, Answer, Budget, Command, Refusal, Reply, View};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A committed state.
#[derive(Debug, Clone)]
pub struct Published {
    pub view: Arc<dyn Frozen>,
    pub account: Account,
    /// How far the items' time is ahead of the owner's, in milliseconds.
    pub offset_ms: i64,
    /// The owner's time that the journal holds: no restart goes behind it.
    pub noted: Time,
    /// Before this time of the items nothing that is stored has expired.
    pub hidden_from: items::Time,
}

#[derive(Debug)]
pub struct Committed {
    newest: Mutex<Published>,
}

impl Committed {
    pub fn new(published: Published) -> Committed {
        Committed { newest: Mutex::new(published) }
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on readers see this.
    pub(crate) fn publish(&self, published: Published) {
        let before = std::mem::replace(&mut *self.lock(), published);
        // Perhaps the last one who looks at it: freed outside of the lock.
        drop(before);
    }

    /// The newest committed state.
    pub fn newest(&self) -> Published {
        self.lock().clone()
    }

    /// Whether throughput is provisioned anywhere.
    pub(crate) fn has_offers(&self) -> bool {
        self.lock().account.has_offers()
    }

    pub(crate) fn offset_ms(&self) -> i64 {
        self.lock().offset_ms
    }
}

/// What was read, if it may be told.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all of them are answers, and a box for each costs more"
)]
pub enum ReadOutcome {
    Done(Result<Reply, Refusal>),
    /// It rests on something having expired by now, which the journal does not know yet: a restart, with a clock that was set back,
    /// could bring an item back, and so could what was decided before and is not committed (C-41, C-42). Once the journal holds
    /// the owner's time, [`Published::read_noted`] reads what may be told.
    After,
}

impl Published {
    /// The items' time when the owner's is `owner`: never before anything that is on record (C-42).
    pub fn local_now(&self, owner: Time) -> items::Time {
        items::Time(owner.0).after_ms(self.offset_ms).max(self.account.time())
    }

    /// Whether something that is stored may have expired by `owner` and not by what the journal knows.
    pub fn hides_something(&self, owner: Time) -> bool {
        let now = self.local_now(owner);
        now > self.local_now(self.noted) && now >= self.hidden_from && !is_planted(Bug::TimeForgotten)
    }

    pub(crate) fn read_at(&self, command: &Command, now: items::Time, steps: u64) -> Result<Reply, Refusal> {
        let view: &dyn View = &*self.view;
        self.account.read(command, view, now, &mut Budget { steps })
    }

    /// As [`Published::read_at`], for somebody who may go before it ends.
    pub(crate) fn read_watched(
        &self,
        command: &Command,
        now: items::Time,
        steps: u64,
        watch: &dyn Watch,
    ) -> Result<Reply, Refusal> {
        let view: &dyn View = &*self.view;
        self.account.read_watched(command, view, now, &mut Budget { steps }, watch)
    }

    /// The latest time of the items that the journal knows.
    pub(crate) fn noted_now(&self) -> items::Time {
        self.local_now(self.noted)
    }

    /// Reads at the owner's time `owner`.
    pub fn read(&self, command: &Command, owner: Time, steps: u64) -> ReadOutcome {
        let result = self.read_at(command, self.local_now(owner), steps);
        let is_told = match &result {
            _ if !self.hides_something(owner) => true,
            // It is there, so nothing was hidden.
            Ok(reply) if matches!(reply.answer, Answer::Found(_) | Answer::NotModified { .. }) => true,
            Ok(_) => false,
            Err(refusal) => self.read_at(command, self.local_now(self.noted), steps).as_ref() == Err(refusal),
        };
        if is_told { ReadOutcome::Done(result) } else { ReadOutcome::After }
    }

    /// Reads at the latest time that the journal knows. Everything decided before that time is in this state, and everything later is
    /// decided by somebody who knows what had expired.
    pub fn read_noted(&self, command: &Command, steps: u64) -> Result<Reply, Refusal> {
        self.read_at(command, self.noted_now(), steps)
    }
}
