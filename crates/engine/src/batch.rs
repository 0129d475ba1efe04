//! What a connection hands over at once: commands, the messages they send, and the bodies of those messages, laid out
//! as they will lie on disk.

use broker::{Command, Incoming, Intake, LinkId, Span};
use journal::{BODY_PREFIX_BYTES, body_prefix};

#[derive(Debug, Default)]
pub struct Batch {
    pub commands: Vec<Command>,
    pub messages: Vec<Incoming>,
    /// Bodies back to back, each behind its prefix.
    pub bodies: Vec<u8>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Bytes that this batch makes the partition hold.
    pub fn held_bytes(&self) -> usize {
        self.bodies.len() + self.commands.len() * size_of::<Command>()
    }

    /// Lays out a body that `write` appends to the buffer.
    pub fn body(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Intake {
        let offset = self.bodies.len();
        self.bodies.extend_from_slice(&[0; BODY_PREFIX_BYTES]);
        write(&mut self.bodies);
        let start = offset + BODY_PREFIX_BYTES;
        let prefix = body_prefix(&self.bodies[start..]);
        self.bodies[offset..start].copy_from_slice(&prefix);
        Intake { offset: offset as u32, length: (self.bodies.len() - start) as u32 }
    }

    /// Adds a message that is to be enqueued at once to the delivery that the next [`Batch::send`] ends.
    pub fn message(&mut self, time_to_live: Span, write: impl FnOnce(&mut Vec<u8>)) {
        self.arrival(Incoming { time_to_live, ..Incoming::new(Intake::default()) }, write);
    }

    /// Adds a message of which more is known than its time to live. Where its body lies is filled in.
    pub fn arrival(&mut self, facts: Incoming, write: impl FnOnce(&mut Vec<u8>)) {
        let body = self.body(write);
        self.messages.push(Incoming { body, ..facts });
    }

    /// Ends a delivery: every message added since the index `first`.
    pub fn send(&mut self, link: LinkId, delivery: u32, is_settled: bool, first: usize) {
        let messages = first as u32..self.messages.len() as u32;
        self.commands.push(Command::Send { link, delivery, is_settled, messages });
    }
}
