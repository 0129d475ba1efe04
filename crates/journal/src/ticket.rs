//! The second half of an append: waiting until its outcome is known, on whichever thread has time for it.

use crate::error::Error;
use crate::local::Pending;
use std::fmt;

/// What became of an append.
#[derive(Debug)]
pub enum Outcome {
    /// It survives what the journal's durability says, at its position, with everything before it.
    Committed,
    /// A higher epoch has taken over; this writer is over.
    Fenced,
    /// Nobody can say yet: [`crate::Journal::resolve`], or repeat the identical append at the same position.
    Unknown,
    /// Final: nobody knows what the disk kept, and the journal refuses every further call.
    Failed(Error),
}

/// An append whose outcome is not known yet. It must be waited for before the next append.
#[must_use = "an append is durable only after its ticket was waited for"]
pub struct Ticket {
    kind: TicketKind,
}

enum TicketKind {
    /// The hot path: no allocation.
    Local(Pending),
    Other(Box<dyn FnOnce() -> Outcome + Send>),
}

impl Ticket {
    /// For implementations outside of this crate.
    pub fn new(wait: impl FnOnce() -> Outcome + Send + 'static) -> Ticket {
        Ticket { kind: TicketKind::Other(Box::new(wait)) }
    }

    pub(crate) fn local(pending: Pending) -> Ticket {
        Ticket { kind: TicketKind::Local(pending) }
    }

    /// Blocks until the outcome is known.
    pub fn wait(self) -> Outcome {
        match self.kind {
            TicketKind::Local(pending) => pending.wait(),
            TicketKind::Other(wait) => wait(),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}
