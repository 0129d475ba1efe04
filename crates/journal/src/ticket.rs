//! The second half of an append: its outcome, which is known later.
//!
//! There are two kinds of ticket. Of a local disk the outcome comes about by waiting: the thread that waits writes and syncs, on
//! whichever thread has time for it. Of a journal elsewhere it arrives by itself, told by the holder of the [`Answer`]; then
//! nobody has to wait, and [`Ticket::then`] is enough.

use crate::error::Error;
use crate::local::Pending;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

/// An append whose outcome is not known yet. It must be known before the next append.
#[must_use = "an append is durable only after its ticket was waited for"]
pub struct Ticket {
    kind: TicketKind,
}

enum TicketKind {
    /// The hot path: no allocation.
    Local(Pending),
    /// Waiting brings it about.
    Other(Box<dyn FnOnce() -> Outcome + Send>),
    /// It arrives by itself.
    Answered(Arc<Mailbox>),
}

impl Ticket {
    /// For implementations whose outcome comes about by waiting.
    pub fn new(wait: impl FnOnce() -> Outcome + Send + 'static) -> Ticket {
        Ticket { kind: TicketKind::Other(Box::new(wait)) }
    }

    /// For implementations whose outcome is told by somebody else, on whichever thread, at whatever time.
    pub fn answered() -> (Ticket, Answer) {
        let mailbox = Arc::new(Mailbox::default());
        (Ticket { kind: TicketKind::Answered(mailbox.clone()) }, Answer { mailbox })
    }

    pub(crate) fn local(pending: Pending) -> Ticket {
        Ticket { kind: TicketKind::Local(pending) }
    }

    /// Whether the outcome arrives by itself. Otherwise somebody has to wait for it, or it never comes.
    pub fn arrives_by_itself(&self) -> bool {
        matches!(self.kind, TicketKind::Answered(_))
    }

    /// Blocks until the outcome is known.
    pub fn wait(self) -> Outcome {
        match self.kind {
            TicketKind::Local(pending) => pending.wait(),
            TicketKind::Other(wait) => wait(),
            TicketKind::Answered(mailbox) => mailbox.wait(),
        }
    }

    /// The outcome if it has arrived by itself; the ticket if it has not.
    pub fn try_wait(self) -> Result<Outcome, Ticket> {
        if let TicketKind::Answered(mailbox) = &self.kind
            && let Some(outcome) = mailbox.take()
        {
            return Ok(outcome);
        }
        Err(self)
    }

    /// Has `told` called with the outcome: where that arrives by itself at once or later, on the thread that tells it; otherwise after
    /// waiting here.
    pub fn then(self, told: impl FnOnce(Outcome) + Send + 'static) {
        match self.kind {
            TicketKind::Answered(mailbox) => mailbox.set_listener(Box::new(told)),
            _ => told(self.wait()),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

/// The other end of a ticket. If nobody tells anything, because the connection broke or the process that asked is gone, the
/// outcome is `Unknown`.
pub struct Answer {
    mailbox: Arc<Mailbox>,
}

impl Answer {
    pub fn tell(self, outcome: Outcome) {
        self.mailbox.put(outcome);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.mailbox.put(Outcome::Unknown);
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// Where an outcome waits until somebody asks for it. The first that is put there is the one.
#[derive(Default)]
struct Mailbox {
    state: Mutex<Mail>,
    arrived: Condvar,
}

#[derive(Default)]
enum Mail {
    #[default]
    None,
    /// Somebody wants to be told.
    Wanted(Box<dyn FnOnce(Outcome) + Send>),
    Arrived(Outcome),
    Taken,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, outcome: Outcome) {
        let mut mail = self.lock();
        match std::mem::replace(&mut *mail, Mail::Taken) {
            Mail::None => {
                *mail = Mail::Arrived(outcome);
                self.arrived.notify_all();
            }
            Mail::Wanted(told) => {
                // The one that is told may well append the next one.
                drop(mail);
                told(outcome);
            }
            before => *mail = before,
        }
    }

    fn take(&self) -> Option<Outcome> {
        let mut mail = self.lock();
        match std::mem::replace(&mut *mail, Mail::Taken) {
            Mail::Arrived(outcome) => Some(outcome),
            before => {
                *mail = before;
                None
            }
        }
    }

    fn wait(&self) -> Outcome {
        let mut mail = self.lock();
        loop {
            match std::mem::replace(&mut *mail, Mail::Taken) {
                Mail::Arrived(outcome) => return outcome,
                before => *mail = before,
            }
            mail = self.arrived.wait(mail).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set_listener(&self, told: Box<dyn FnOnce(Outcome) + Send>) {
        let mut mail = self.lock();
        match std::mem::replace(&mut *mail, Mail::Taken) {
            Mail::Arrived(outcome) => {
                drop(mail);
                told(outcome);
            }
            _ => *mail = Mail::Wanted(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_answer_is_told_once_whoever_asks_first() {
        let (ticket, answer) = Ticket::answered();
        assert!(ticket.arrives_by_itself());
        let ticket = ticket.try_wait().expect_err("nobody has answered");
        answer.tell(Outcome::Committed);
        assert!(matches!(ticket.try_wait(), Ok(Outcome::Committed)));

        let (ticket, answer) = Ticket::answered();
        let waiting = std::thread::spawn(move || ticket.wait());
        answer.tell(Outcome::Fenced);
        assert!(matches!(waiting.join().unwrap(), Outcome::Fenced));
    }

    #[test]
    fn whoever_wants_to_be_told_is_told_before_or_after() {
        for is_answered_first in [true, false] {
            let (ticket, answer) = Ticket::answered();
            let (told, outcomes) = mpsc::channel();
            let listen = move |ticket: Ticket| ticket.then(move |outcome| told.send(outcome).unwrap());
            if is_answered_first {
                answer.tell(Outcome::Committed);
                listen(ticket);
            } else {
                listen(ticket);
                assert!(outcomes.try_recv().is_err(), "nothing is known yet");
                answer.tell(Outcome::Committed);
            }
            assert!(matches!(outcomes.try_recv(), Ok(Outcome::Committed)), "{is_answered_first}");
            assert!(outcomes.try_recv().is_err(), "and once");
        }
    }

    #[test]
    fn an_answer_that_is_never_told_leaves_the_outcome_unknown() {
        let (ticket, answer) = Ticket::answered();
        drop(answer);
        assert!(matches!(ticket.wait(), Outcome::Unknown));
    }

    #[test]
    fn where_waiting_brings_the_outcome_about_it_does_not_arrive_by_itself() {
        let ticket = Ticket::new(|| Outcome::Committed);
        assert!(!ticket.arrives_by_itself());
        let ticket = ticket.try_wait().expect_err("somebody has to wait");
        let (told, outcomes) = mpsc::channel();
        ticket.then(move |outcome| told.send(outcome).unwrap());
        assert!(matches!(outcomes.try_recv(), Ok(Outcome::Committed)));
    }
}
