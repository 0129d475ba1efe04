//! The account: every definition, in memory, and the four ways in: decide, apply, read, purge.
//!
//! Cheap to clone: readers hold a clone from the moment of their view. What changes with every write (the number of
//! transactions, items and bytes of a container) is in the view, not here.

use crate::definition::Definitions;
use crate::query::{Unwatched, Watch};
use crate::record::{Event, Record};
use crate::view::{Changes, Unreadable, View};
use crate::{Answer, Command, Refusal, Reply, Time, charge, decide, purge, read};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Account {
    pub(crate) definitions: Arc<Definitions>,
}

/// What a command that writes comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// To be applied in this order, each before anything else is decided; empty when nothing changes.
    pub records: Vec<Record>,
    /// Leaves when the records are durable.
    pub reply: Reply,
}

/// How much a read may do before it ends its page (P-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Items and index entries looked at.
    pub steps: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { steps: crate::limits::PAGE_STEPS }
    }
}

impl Budget {
    /// Counts a step; false when there are none left.
    pub fn step(&mut self) -> bool {
        let is_left = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        is_left
    }
}

/// What the background removal has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Purge {
    /// Apply these, in order; there may be more to do at once. `spent` are request units by container, in hundredths.
    Slice { records: Vec<Record>, spent: Vec<(u32, u64)> },
    /// Nothing may be done now. Look again then, or after the next write when there is no such time. `is_behind`: something has
    /// expired and is still stored, because its container has no request units left for it.
    Idle { next: Option<Time>, is_behind: bool },
}

impl Account {
    /// From what is stored.
    pub fn load(view: &dyn View) -> Result<Account, Unreadable> {
        Ok(Account { definitions: Arc::new(Definitions::load(view)?) })
    }

    /// Decides a command that writes (`Command::is_write`): refuses whole, or says what happens. `view` shows everything that was
    /// applied; `now` never runs backwards.
    pub fn decide(&self, command: &Command, view: &dyn View, now: Time) -> Result<Decided, Refusal> {
        decide::command(&self.definitions, command, view, now.max(self.time()))
    }

    /// The only way in which anything changes, live and in replay. `view` shows everything that was applied before; the caller
    /// puts `changes` into it before it applies or decides anything else. Fails only where the view does: the process stops then.
    pub fn apply(
        &mut self,
        record: &Record,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        if let Event::ItemsWritten { container, lsn, writes } = &record.event {
            // The hottest line: definitions stay as they are. The container may be gone in a replay only if it was never there.
            return match self.definitions.containers.get(container) {
                Some(container) => {
                    crate::item::apply::transaction(container, record.at, *lsn, writes, view, changes)
                }
                None => Ok(()),
            };
        }
        Arc::make_mut(&mut self.definitions).apply(record, view, changes)
    }

    /// Reads, feeds, queries, lists: on a view of what is committed, with the account of the same moment.
    pub fn read(
        &self,
        command: &Command,
        view: &dyn View,
        now: Time,
        budget: &mut Budget,
    ) -> Result<Reply, Refusal> {
        self.read_watched(command, view, now, budget, &Unwatched)
    }

    /// The same for somebody who may go before it ends, beside others.
    pub fn read_watched(
        &self,
        command: &Command,
        view: &dyn View,
        now: Time,
        budget: &mut Budget,
        watch: &dyn Watch,
    ) -> Result<Reply, Refusal> {
        read::command(&self.definitions, command, view, now.max(self.time()), budget, watch)
    }

    /// A slice of what has expired or was deleted and is still stored, at most about `most` items. `may_spend` says for a container
    /// how many request units (in hundredths) are left over for it (C-14); `None`: as many as it takes.
    pub fn purge(
        &self,
        view: &dyn View,
        now: Time,
        most: usize,
        may_spend: &dyn Fn(u32) -> Option<u64>,
    ) -> Result<Purge, Unreadable> {
        purge::slice(&self.definitions, view, now.max(self.time()), most, may_spend)
    }

    /// Whether throughput is provisioned anywhere.
    pub fn has_offers(&self) -> bool {
        !self.definitions.offers.is_empty()
    }

    /// The latest time that is on record: `now` must not be before it (C-42).
    pub fn time(&self) -> Time {
        self.definitions.time
    }
}

/// An answer about definitions.
pub(crate) fn plain(answer: Answer) -> Reply {
    Reply { answer, charge: charge::PLAIN, place: None }
}
