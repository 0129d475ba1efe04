//! Messages coming in: frames become deliveries, deliveries become messages laid out as they will lie on disk.

use super::connection::Task;
use super::link::{Kind, Link, SENDER_CREDIT};
use crate::limits::BATCH_BYTES;
use amqp::{LinkKey, State};
use broker::limits::BODY_PART_BYTES;
use broker::{Command, Incoming, Intake, Span, Time};
use engine::Batch;
use message::facts::{Facts, FactsError, Field};
use message::intake::append_stored;
use message::sections::Sections;

/// The message format of a batch: an envelope whose data sections are messages (client notes 4.3).
const BATCH_FORMAT: u32 = 0x8001_3700;

/// Bodies handed over at once at the most: with what one delivery may add, far below the largest append.
const SUBMIT_BYTES: usize = 1_024 * 1_024;

/// One frame of a delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) delivery_id: u32,
    pub(super) format: u32,
    pub(super) settled: bool,
    pub(super) payload: &'a [u8],
    pub(super) first: bool,
    pub(super) more: bool,
    pub(super) aborted: bool,
}

impl<S> Task<S> {
    pub(super) fn transfer(&mut self, key: LinkKey, frame: Frame<'_>) {
        let Some(link) = self.links.get_mut(&key.0) else { return };
        let (Kind::CbsRequests { partial } | Kind::Sender { partial, .. }) = &mut link.kind else { return };
        if frame.aborted {
            return *partial = Vec::new();
        }
        if frame.first && !frame.more {
            return self.delivery(key, frame, frame.payload);
        }
        if frame.first {
            partial.clear();
        }
        partial.extend_from_slice(frame.payload);
        if !frame.more {
            let whole = std::mem::take(partial);
            self.delivery(key, frame, &whole);
        }
    }

    fn delivery(&mut self, key: LinkKey, frame: Frame<'_>, payload: &[u8]) {
        let Some(link) = self.links.get(&key.0) else { return };
        if self.machine.credit_left(key) < SENDER_CREDIT / 2 {
            let credit = match link.kind {
                Kind::CbsRequests { .. } => super::link::REQUEST_CREDIT,
                _ => SENDER_CREDIT,
            };
            if self.machine.credit_left(key) < credit / 2 {
                self.machine.grant(key, credit);
            }
        }
        if let Kind::CbsRequests { .. } = link.kind {
            if !frame.settled {
                self.machine.settle_incoming(key, frame.delivery_id, frame.delivery_id, &State::Accepted);
            }
            return self.put_token(key, payload);
        }
        if frame.format == BATCH_FORMAT && payload.len() > BATCH_BYTES {
            return self.too_large(key, frame.delivery_id, frame.settled);
        }
        let (first, bytes) = (self.batch.messages.len(), self.batch.bodies.len());
        let added = match frame.format {
            BATCH_FORMAT => self.add_batch(payload).map(|()| first),
            // Its parts have been handed over, and everything before them: it stands alone.
            _ if payload.len() > BODY_PART_BYTES as usize => self.add_large(key, payload).map(|()| 0),
            _ => add_message(&mut self.batch, payload).map(|()| first),
        };
        match added {
            Ok(first) => {
                let link = self.engine.link(key.0);
                self.batch.send(link, frame.delivery_id, frame.settled, first);
                if self.batch.bodies.len() >= SUBMIT_BYTES {
                    self.submit();
                }
            }
            Err(why) => {
                self.batch.messages.truncate(first);
                self.batch.bodies.truncate(bytes);
                self.reject(key, frame, &why);
            }
        }
    }

    fn reject(&mut self, key: LinkKey, frame: Frame<'_>, why: &FactsError) {
        let Some(Link { kind, .. }) = self.links.get(&key.0) else { return };
        if !frame.settled {
            let error = self.origin.bad_message(why, kind.path());
            let id = frame.delivery_id;
            self.machine.settle_incoming(key, id, id, &State::rejected(error));
        }
    }

    /// Every message of a batch, or none (S-16). The envelope itself is dropped.
    fn add_batch(&mut self, envelope: &[u8]) -> Result<(), FactsError> {
        let mut count = 0;
        for message in message::batch::messages(envelope) {
            let message = message.map_err(malformed)?;
            add_message(&mut self.batch, message)?;
            count += 1;
        }
        // A batch of nothing is not a message: clients never send one.
        if count == 0 { Err(malformed(message::Malformed::MissingField)) } else { Ok(()) }
    }

    /// A message too large for one body: parts, then the last one as the message.
    fn add_large(&mut self, key: LinkKey, payload: &[u8]) -> Result<(), FactsError> {
        let sections = Sections::scan(payload).map_err(malformed)?;
        let facts = Facts::read(payload, &sections)?;
        let mut stored = Vec::new();
        append_stored(&mut stored, payload, &sections, fresh_message_id);
        let incoming = incoming(&facts);
        let link = self.engine.link(key.0);
        self.submit();
        let mut parts = stored.chunks(BODY_PART_BYTES as usize).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                self.batch.arrival(incoming, |out| out.extend_from_slice(part));
            } else {
                let body = self.batch.body(|out| out.extend_from_slice(part));
                self.batch.commands.push(Command::Part { link, body });
                // Each part is an append of its own, so that none grows with the message.
                self.submit();
            }
        }
        Ok(())
    }

    /// A delivery was larger than its link allows.
    pub(super) fn too_large(&mut self, key: LinkKey, delivery_id: u32, settled: bool) {
        let Some(Link { kind, .. }) = self.links.get_mut(&key.0) else { return };
        if let Kind::CbsRequests { partial } | Kind::Sender { partial, .. } = kind {
            *partial = Vec::new();
        }
        if !settled {
            let text = "The received message is larger than the link allows.";
            let error = self.origin.error(amqp::condition::MESSAGE_SIZE_EXCEEDED, text, kind.path());
            self.machine.settle_incoming(key, delivery_id, delivery_id, &State::rejected(error));
        }
    }
}

fn add_message(batch: &mut Batch, bytes: &[u8]) -> Result<(), FactsError> {
    let sections = Sections::scan(bytes).map_err(malformed)?;
    let facts = Facts::read(bytes, &sections)?;
    batch.arrival(incoming(&facts), |out| append_stored(out, bytes, &sections, fresh_message_id));
    Ok(())
}

/// What the broker wants to know of a message.
fn incoming(facts: &Facts<'_>) -> Incoming {
    let differ = facts.session_id.zip(facts.partition_key).is_some_and(|(session, key)| session != key);
    Incoming {
        time_to_live: facts.ttl.map_or(Span::MAX, Span),
        scheduled: facts.scheduled_enqueue_time.map_or(Incoming::AT_ONCE, Time),
        has_session: facts.session_id.is_some(),
        keys_differ: differ,
        ..Incoming::new(Intake::default())
    }
}

fn malformed(reason: message::Malformed) -> FactsError {
    FactsError::Malformed { field: Field::Properties, reason }
}

/// 32 hex digits for a message whose sender gave it no id (client notes 5.4).
fn fresh_message_id() -> [u8; 32] {
    let mut id = [0; 32];
    uuid::Uuid::new_v4().simple().encode_lower(&mut id);
    id
}
