//! What a query has cost so far, in bytes looked at and bytes held, and who looks at it while it runs.
//!
//! One meter counts for everything that one query, one condition of a patch, or the reading of one query's text does. Whatever takes time in
//! proportion to a text or a list says so before it begins ([`Meter::look`]), and whatever makes or keeps memory ([`Meter::charge`],
//! [`Meter::keep`]). A meter that is used up refuses; nothing that it counted has changed anything.

use super::evaluate::Stop;
use crate::limits;
use crate::refusal::Refusal;
use std::cell::Cell;
use std::fmt;

/// Who has asked, and all others who ask at the same time, seen from a query that runs.
pub trait Watch: Send + Sync {
    /// Refuses to go on: nobody waits for the answer any more, or it takes too long. Looked at after [`limits::WATCH_BYTES`].
    fn goes_on(&self) -> Result<(), Refusal>;

    /// Holds so many bytes more, if all who ask at the same time leave room for them.
    fn hold(&self, bytes: usize) -> Result<(), Refusal>;

    fn give_back(&self, bytes: usize);
}

/// A query that nobody looks at: it has its own limits alone.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn goes_on(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn hold(&self, _: usize) -> Result<(), Refusal> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}
}

/// What is metered, and so what is said when it is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Query,
    Condition,
    Text,
}

pub struct Meter<'w> {
    watch: &'w dyn Watch,
    of: Of,
    /// Bytes looked at, a step counted as [`limits::STEP_BYTES`].
    work: Cell<u64>,
    most_work: u64,
    /// Work at which the item at hand has taken too much.
    item_until: Cell<u64>,
    /// Work at which one of the limits is reached, or the watch is asked.
    stop_at: Cell<u64>,
    /// Values that are made for the row at hand.
    row_bytes: Cell<usize>,
    most_row_bytes: usize,
    /// What outlives the row: groups, rows to be sorted, the page.
    kept_bytes: Cell<usize>,
    most_bytes: usize,
    /// What the watch knows of both.
    told_bytes: Cell<usize>,
}

impl fmt::Debug for Meter<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (work, row, kept) = (self.work.get(), self.row_bytes.get(), self.kept_bytes.get());
        write!(formatter, "Meter {{ of: {:?}, work: {work}, row: {row}, kept: {kept} }}", self.of)
    }
}

impl<'w> Meter<'w> {
    fn new(watch: &'w dyn Watch, of: Of, most_steps: u64, most_row_bytes: usize, most_bytes: usize) -> Self {
        let most_work = most_steps.saturating_mul(limits::STEP_BYTES);
        Meter {
            watch,
            of,
            work: Cell::new(0),
            most_work,
            item_until: Cell::new(most_work),
            stop_at: Cell::new(most_work.min(limits::WATCH_BYTES)),
            row_bytes: Cell::new(0),
            most_row_bytes,
            kept_bytes: Cell::new(0),
            most_bytes,
            told_bytes: Cell::new(0),
        }
    }

    /// For a query.
    pub fn query(watch: &'w dyn Watch) -> Meter<'w> {
        let (row, all) = (limits::QUERY_ROW_BYTES, limits::QUERY_HELD_BYTES);
        Meter::new(watch, Of::Query, limits::QUERY_WHOLE_STEPS, row, all)
    }

    /// For the conditions of a command that have so many steps left.
    pub fn condition(steps: u64) -> Meter<'static> {
        let most = limits::CONDITION_BYTES;
        Meter::new(&Unwatched, Of::Condition, steps, most, most)
    }

    /// For what is computed while a query's text is read.
    pub fn text() -> Meter<'static> {
        let most = limits::QUERY_TEXT_BYTES;
        Meter::new(&Unwatched, Of::Text, limits::QUERY_TEXT_STEPS, most, most)
    }

    /// Another item: its own limit begins anew.
    pub fn begin_item(&self) {
        let most = limits::QUERY_ITEM_STEPS * limits::STEP_BYTES;
        self.item_until.set(self.work.get().saturating_add(most));
        self.row_bytes.set(0);
    }

    /// Bytes are going to be looked at.
    #[inline]
    pub fn look(&self, bytes: usize) -> Result<(), Stop> {
        let work = self.work.get().saturating_add(bytes as u64);
        self.work.set(work);
        if work < self.stop_at.get() { Ok(()) } else { self.look_up(work) }
    }

    #[cold]
    fn look_up(&self, work: u64) -> Result<(), Stop> {
        if work >= self.most_work {
            let steps = self.most_work / limits::STEP_BYTES;
            return Err(Box::new(match self.of {
                Of::Query => Refusal::bad(format!("The query takes more than {steps} steps.")),
                Of::Condition => Refusal::bad(format!(
                    "The condition takes more than the {steps} steps that are left of the {} that the conditions of a request may take: compare less, or shorter values.",
                    limits::CONDITION_STEPS
                )),
                Of::Text => Refusal::bad(format!("The constants of the query take more than {steps} steps.")),
            }));
        }
        if work >= self.item_until.get() {
            let text = format!("One item makes the query take more than {} steps.", limits::QUERY_ITEM_STEPS);
            return Err(Box::new(Refusal::BadRequest(text)));
        }
        self.watch.goes_on()?;
        let next = work.saturating_add(limits::WATCH_BYTES);
        self.stop_at.set(next.min(self.most_work).min(self.item_until.get()));
        Ok(())
    }

    /// Steps taken so far, the bytes looked at among them.
    pub fn steps(&self) -> u64 {
        self.work.get() / limits::STEP_BYTES
    }

    /// Bytes looked at so far, the steps among them.
    pub fn work(&self) -> u64 {
        self.work.get()
    }

    /// Memory for values of the row at hand.
    pub fn charge(&self, bytes: usize) -> Result<(), Stop> {
        let row = self.row_bytes.get().saturating_add(bytes);
        if row > self.most_row_bytes {
            let what = match self.of {
                Of::Query => "One item makes the query hold",
                Of::Condition => "The condition holds",
                Of::Text => "The constants of the query hold",
            };
            return Err(Box::new(Refusal::bad(format!("{what} more than {} bytes.", self.most_row_bytes))));
        }
        self.row_bytes.set(row);
        self.tell()
    }

    pub fn row_bytes(&self) -> usize {
        self.row_bytes.get()
    }

    /// What was made since is gone.
    pub fn free_to(&self, row_bytes: usize) {
        self.row_bytes.set(row_bytes.min(self.row_bytes.get()));
    }

    /// Memory for what outlives the row.
    pub fn keep(&self, bytes: usize) -> Result<(), Stop> {
        self.kept_bytes.set(self.kept_bytes.get().saturating_add(bytes));
        self.tell()
    }

    pub fn let_go(&self, bytes: usize) {
        self.kept_bytes.set(self.kept_bytes.get().saturating_sub(bytes));
        self.tell_less();
    }

    fn held_bytes(&self) -> usize {
        self.row_bytes.get().saturating_add(self.kept_bytes.get())
    }

    fn tell(&self) -> Result<(), Stop> {
        let held = self.held_bytes();
        if held > self.most_bytes {
            let most = self.most_bytes >> 20;
            return Err(Box::new(Refusal::bad(format!(
                "The rows, groups or distinct values of the query take too much memory, more than {most} MiB: ask for fewer, or for less of each."
            ))));
        }
        let told = self.told_bytes.get();
        if held > told {
            let more = held - told;
            let more = more.next_multiple_of(limits::TOLD_PIECE_BYTES);
            self.watch.hold(more)?;
            self.told_bytes.set(told + more);
        }
        Ok(())
    }

    fn tell_less(&self) {
        let (held, told) = (self.held_bytes(), self.told_bytes.get());
        if told > held.saturating_add(4 * limits::TOLD_PIECE_BYTES) {
            let left = held.next_multiple_of(limits::TOLD_PIECE_BYTES);
            self.watch.give_back(told - left);
            self.told_bytes.set(left);
        }
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.watch.give_back(self.told_bytes.get());
    }
}
