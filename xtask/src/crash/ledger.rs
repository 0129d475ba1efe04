//! What the clients know, and whether it can be: the log against which a broker is judged that was killed again and again.

use std::collections::BTreeMap;

/// What became of a message, as its sender and its receivers were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    #[default]
    Unsent,
    /// Sent, no answer.
    Tried,
    Accepted,
    /// A receiver was told that it is settled. It must never be seen again.
    Completed,
}

#[derive(Debug, Default, Clone, Copy)]
struct Message {
    fate: Fate,
    /// 0 before it was delivered.
    sequence: u64,
    /// A receiver has asked to complete it: without an answer it may be gone or not.
    is_asked: bool,
}

impl Message {
    fn must_be_there(&self) -> bool {
        self.fate == Fate::Accepted && !self.is_asked
    }
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// By sender and by the sender's own number.
    messages: Vec<Vec<Message>>,
    /// Which message each number of the queue belongs to.
    sequences: BTreeMap<u64, u64>,
    pub accepted: u64,
    pub completed: u64,
    /// Messages that some receiver has asked to complete, answered or not.
    pub asked: u64,
    pub redelivered: u64,
    violations: Vec<String>,
}

/// A message's name: its sender and the sender's number.
const SENDER_SHIFT: u64 = 1_000_000_000_000;

pub fn name(sender: usize, number: usize) -> u64 {
    (sender as u64 + 1) * SENDER_SHIFT + number as u64
}

impl Ledger {
    fn message(&mut self, name: u64) -> Option<&mut Message> {
        let (sender, number) = (name / SENDER_SHIFT, name % SENDER_SHIFT);
        self.messages.get_mut(sender.checked_sub(1)? as usize)?.get_mut(number as usize)
    }

    pub fn fail(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Notes that a sender is about to send `count` messages from `first` on.
    pub fn sending(&mut self, sender: usize, first: usize, count: usize) {
        if self.messages.len() <= sender {
            self.messages.resize_with(sender + 1, Vec::new);
        }
        let messages = &mut self.messages[sender];
        assert_eq!(messages.len(), first, "numbers rise by one");
        messages.resize(first + count, Message { fate: Fate::Tried, ..Message::default() });
    }

    pub fn accepted(&mut self, sender: usize, number: usize) {
        self.accepted += 1;
        match &mut self.messages[sender][number].fate {
            // A fast receiver may have been told first.
            Fate::Completed => {}
            fate => *fate = Fate::Accepted,
        }
    }

    pub fn delivered(&mut self, name: u64, sequence: u64) {
        let Some(message) = self.message(name) else {
            return self.fail(format!("message {name} was delivered and nobody sent it"));
        };
        let (fate, before) = (message.fate, message.sequence);
        message.sequence = sequence;
        self.redelivered += u64::from(before != 0);
        if fate == Fate::Completed {
            self.fail(format!("message {name} was completed and confirmed, and came back as {sequence}"));
        }
        if before != 0 && before != sequence {
            self.fail(format!("message {name} was number {before} and is now {sequence}"));
        }
        if let Some(other) = self.sequences.insert(sequence, name).filter(|other| *other != name) {
            self.fail(format!("number {sequence} was given to message {other} and to {name}"));
        }
    }

    /// A receiver is about to ask that the message be completed.
    pub fn completing(&mut self, name: u64) {
        let was_asked = self.message(name).map(|message| std::mem::replace(&mut message.is_asked, true));
        self.asked += u64::from(was_asked == Some(false));
    }

    pub fn completed(&mut self, name: u64) {
        self.completed += 1;
        if let Some(message) = self.message(name) {
            message.fate = Fate::Completed;
        }
    }

    pub fn is_broken(&self) -> bool {
        !self.violations.is_empty()
    }

    /// How many accepted messages must still come.
    pub fn missing(&self) -> usize {
        self.messages.iter().flatten().filter(|message| message.must_be_there()).count()
    }

    /// After everything was received: all that is wrong.
    pub fn judge(&self) -> Vec<String> {
        let mut violations = self.violations.clone();
        for (sender, messages) in self.messages.iter().enumerate() {
            for (number, _) in messages.iter().enumerate().filter(|(_, m)| m.must_be_there()) {
                violations.push(format!("message {} was accepted and is lost", name(sender, number)));
            }
        }
        let mut expected = 1;
        for sequence in self.sequences.keys() {
            if *sequence != expected {
                violations.push(format!("number {expected} is missing: the next is {sequence}"));
            }
            expected = sequence + 1;
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.sending(0, 0, 3);
        ledger.accepted(0, 0);
        ledger.accepted(0, 1);
        ledger.delivered(name(0, 0), 1);
        ledger.completed(name(0, 0));
        ledger
    }

    #[test]
    fn a_run_without_loss_is_fine_and_an_unanswered_send_may_be_anything() {
        let mut ledger = ledger();
        assert_eq!(ledger.missing(), 1);
        ledger.delivered(name(0, 1), 2);
        ledger.delivered(name(0, 1), 2);
        ledger.completing(name(0, 1));
        assert_eq!((ledger.missing(), ledger.redelivered, ledger.judge()), (0, 1, vec![]));
    }

    #[test]
    fn each_broken_promise_is_seen() {
        let mut lost = ledger();
        lost.sequences.insert(2, name(0, 2));
        assert!(lost.judge()[0].contains("accepted and is lost"));
        let mut returned = ledger();
        returned.delivered(name(0, 0), 1);
        assert!(returned.judge()[0].contains("came back"));
        let mut gap = ledger();
        gap.delivered(name(0, 1), 3);
        gap.completed(name(0, 1));
        assert!(gap.judge()[0].contains("number 2 is missing"));
        let mut twice = ledger();
        twice.delivered(name(0, 1), 1);
        assert!(twice.judge()[0].contains("was given to"));
        let mut invented = ledger();
        invented.delivered(name(4, 0), 2);
        assert!(invented.judge()[0].contains("nobody sent it"));
    }
}
