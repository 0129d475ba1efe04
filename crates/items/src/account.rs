//! The account: every definition, in memory, and the four ways in: decide, apply, read, purge.
//!
//! Cheap to clone: readers hold a clone from the moment of their view. What changes with every write (the number of
//! transactions, items and bytes of a container) is in the view, not here.

use crate::record::Record;
use crate::view::{Changes, Unreadable, View};
use crate::{Command, Refusal, Reply, Time};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Account {
    definitions: Arc<()>,
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

/// What the background removal has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Purge {
    /// Apply these; there may be more.
    Slice(Vec<Record>),
    /// Nothing is due. Look again then, or after the next write when there is no such time.
    Idle { next: Option<Time> },
}

impl Account {
    /// From what is stored.
    pub fn load(view: &dyn View) -> Result<Account, Unreadable> {
        let _ = view;
        Ok(Account::default())
    }

    /// Decides a command that writes (`Command::is_write`): refuses whole, or says what happens. `view` shows everything that was
    /// applied; `now` never runs backwards.
    pub fn decide(&self, command: &Command, view: &dyn View, now: Time) -> Result<Decided, Refusal> {
        let _ = (command, view, now);
        Err(Refusal::NotAvailable("This command"))
    }

    /// The only way in which anything changes, live and in replay. `view` shows everything that was applied before; the caller
    /// puts `changes` into it before it applies or decides anything else. Fails only where the view does: the process stops then.
    pub fn apply(
        &mut self,
        record: &Record,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let _ = (record, view, changes, Arc::get_mut(&mut self.definitions));
        Ok(())
    }

    /// Reads, feeds, queries, lists: on a view of what is committed, with the account of the same moment.
    pub fn read(
        &self,
        command: &Command,
        view: &dyn View,
        now: Time,
        budget: &mut Budget,
    ) -> Result<Reply, Refusal> {
        let _ = (command, view, now, budget);
        Err(Refusal::NotAvailable("This command"))
    }

    /// A slice of what has expired or was deleted and is still stored, at most about `most` items.
    pub fn purge(&self, view: &dyn View, now: Time, most: usize) -> Result<Purge, Unreadable> {
        let _ = (view, now, most);
        Ok(Purge::Idle { next: None })
    }

    /// The latest time that is on record: `now` must not be before it (C-42).
    pub fn time(&self) -> Time {
        Time::default()
    }
}
