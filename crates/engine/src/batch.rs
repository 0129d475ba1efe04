//! What a connection hands over at once: commands, the messages they send, and the bodies of those messages, laid out
//! as they will be on disk.

use crate::limits::COMMAND_EFFECT_BYTES;
use broker::{Command, Incoming, Intake, LinkId, SessionIds, Span};
use journal::{BODY_PREFIX_BYTES, body_prefix};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Batch {
    pub commands: Vec<Command>,
    pub messages: Vec<Incoming>,
    /// The session ids of those that have one, by their index, until their delivery ends.
    pub sessions: Vec<(u32, Arc<str>)>,
    /// Bodies back to back, each behind its prefix.
    pub bodies: Vec<u8>,
    /// What the commands hold besides themselves, where that may be much.
    pub extra_bytes: usize,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Bytes that this batch makes the partition hold, room that is not used included.
    pub fn held_bytes(&self) -> usize {
        self.bodies.capacity()
            + self.commands.capacity() * (size_of::<Command>() + COMMAND_EFFECT_BYTES)
            + self.messages.capacity() * size_of::<Incoming>()
            + self.extra_bytes
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

    /// Adds a message of which more is known than its time to live. The place of its body is filled in.
    pub fn arrival(&mut self, facts: Incoming, write: impl FnOnce(&mut Vec<u8>)) {
        let body = self.body(write);
        self.messages.push(Incoming { body, ..facts });
    }

    /// Says in which session the message is that was added last. Messages of one session that follow each other share it.
    pub fn session(&mut self, id: &str) {
        let at = self.messages.len() as u32 - 1;
        let id = match self.sessions.last() {
            Some((_, last)) if **last == *id => Arc::clone(last),
            _ => id.into(),
        };
        self.sessions.push((at, id));
    }

    /// The session ids of every message added since the index `first`.
    pub fn take_sessions(&mut self, first: usize) -> SessionIds {
        if self.sessions.is_empty() {
            return SessionIds::default();
        }
        let ids = self.sessions.drain(..).filter(|(at, _)| *at as usize >= first);
        SessionIds::new(self.messages.len() - first, ids.map(|(at, id)| (at as usize - first, id)))
    }

    /// Forgets what was added behind so many messages and so many bytes of bodies.
    pub fn truncate(&mut self, messages: usize, bytes: usize) {
        self.messages.truncate(messages);
        self.bodies.truncate(bytes);
        self.sessions.retain(|(at, _)| (*at as usize) < messages);
    }

    /// Ends a delivery: every message added since the index `first`.
    pub fn send(&mut self, link: LinkId, delivery: u32, is_settled: bool, first: usize) {
        let messages = first as u32..self.messages.len() as u32;
        let sessions = self.take_sessions(first);
        self.commands.push(Command::Send { link, delivery, is_settled, messages, sessions });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_not_used_counts_too() {
        let mut batch = Batch::default();
        batch.bodies.reserve(256 * 1_024);
        batch.commands.reserve(1_000);
        batch.extra_bytes = 7;
        assert!(batch.held_bytes() >= 256 * 1_024 + 1_000 * size_of::<Command>() + 7);
    }

    #[test]
    fn a_delivery_takes_the_sessions_of_its_own_messages_along() {
        let mut batch = Batch::default();
        let add = |batch: &mut Batch, session: Option<&str>| {
            batch.message(Span::MAX, |_| {});
            session.into_iter().for_each(|session| batch.session(session));
        };
        add(&mut batch, None);
        batch.send(LinkId::default(), 0, false, 0);
        for session in [Some("a"), None, Some("a"), Some("b")] {
            add(&mut batch, session);
        }
        batch.truncate(4, batch.bodies.len());
        batch.send(LinkId::default(), 1, false, 1);
        let sessions: Vec<_> = batch
            .commands
            .iter()
            .map(|command| match command {
                Command::Send { sessions, .. } => sessions.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sessions[0], SessionIds::default());
        assert_eq!(sessions[1], SessionIds::new(3, [(0, "a".into()), (2, "a".into())]));
        assert!(Arc::ptr_eq(sessions[1].get(0).unwrap(), sessions[1].get(2).unwrap()));
    }
}
