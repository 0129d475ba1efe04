//! Messages coming in: frames become deliveries, deliveries become messages laid out as they will be on disk.

use super::arriving::{Arrived, Unfit, malformed};
use super::connection::ConnectionTask;
use super::link::{Kind, Link};
use super::transaction::within;
use crate::limits::{REQUEST_CREDIT, SENDER_CREDIT, SUBMIT_BYTES};
use amqp::{LinkKey, State};
use broker::{Command, Incoming, Intake, LocalTime, MessageKey, Span};
use engine::Batch;
use message::Malformed;
use message::batch::BATCH_FORMAT;
use message::facts::{Facts, FactsError};
use message::intake::append_stored;
use message::normal::normalised;
use message::sections::{BodyKind, Sections, section};

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

impl<S> ConnectionTask<S> {
    pub(super) fn transfer(&mut self, key: LinkKey, frame: Frame<'_>) {
        if frame.aborted {
            return self.drop_arriving(key);
        }
        if frame.first && !frame.more {
            return self.delivery(key, frame, frame.payload);
        }
        // The machine has counted this frame already. When all connections together hold too much of unfinished messages, these
        // are passed on in smaller parts (`arriving.rs`); what finds no room at all is not held.
        if frame.more && !self.has_room_for(0) {
            let error = self.too_much("unfinished messages");
            return self.end_greedy(key, &error);
        }
        let Some(link) = self.links.get_mut(&key.0) else { return };
        if let Kind::Sender(_) = link.kind {
            return self.frame(key, frame);
        }
        let may_be_stranger = !matches!(link.kind, Kind::ManagementRequests(_));
        let Some(partial) = link.kind.partial_mut() else { return };
        if may_be_stranger {
            // No more than came: a stranger's bytes are counted, and what a vector takes ahead would double them. Requests of
            // others may be a hundred times as long: each of their frames would copy all that came before.
            partial.reserve_exact(frame.payload.len());
        }
        partial.extend_from_slice(frame.payload);
        if !frame.more {
            let whole = std::mem::take(partial);
            self.delivery(key, frame, &whole);
        }
    }

    /// One frame of several. Parts of a large message leave at once, each as an append of its own, so that none grows
    /// with the message.
    fn frame(&mut self, key: LinkKey, frame: Frame<'_>) {
        let Some(Link { kind: Kind::Sender(sender), .. }) = self.links.get_mut(&key.0) else { return };
        let (link, engine) = (self.engine.link(key.0), &self.engine);
        let unstored = &mut self.unstored_bytes;
        sender.arriving.add(frame.payload, frame.format, &mut self.batch, |batch, body| {
            batch.commands.push(Command::Part { link, body });
            engine.submit(std::mem::take(batch));
            *unstored += body.length as usize;
        });
        if frame.more {
            return self.machine.passed_on(key, sender.arriving.passed_on_bytes());
        }
        let first = self.batch.messages.len();
        match sender.arriving.end(&mut self.batch) {
            Arrived::Whole(bytes) => self.delivery(key, frame, &bytes),
            Arrived::InParts => {
                self.renew_sender_credit(key, SENDER_CREDIT);
                self.send(key, frame, first);
            }
            Arrived::Unfit(why) => {
                self.renew_sender_credit(key, SENDER_CREDIT);
                self.batch.commands.push(Command::DropParts { link });
                self.reject(key, frame, &why);
            }
        }
    }

    /// The delivery that is arriving on a link will not end, or is not wanted.
    fn drop_arriving(&mut self, key: LinkKey) {
        let Some(Link { kind, .. }) = self.links.get_mut(&key.0) else { return };
        if let Some(partial) = kind.partial_mut() {
            *partial = Vec::new();
        }
        match kind {
            Kind::ManagementRequests(requests) => requests.transaction = None,
            Kind::Sender(sender) => {
                sender.arriving.clear();
                sender.transaction = None;
                self.batch.commands.push(Command::DropParts { link: self.engine.link(key.0) });
            }
            _ => {}
        }
    }

    fn renew_sender_credit(&mut self, key: LinkKey, credit: u32) {
        if self.machine.credit_left(key) < credit / 2 {
            self.machine.grant(key, credit);
        }
    }

    /// A request is taken at once, whatever its answer will be.
    fn take_request(&mut self, key: LinkKey, frame: Frame<'_>) {
        self.renew_sender_credit(key, REQUEST_CREDIT);
        if !frame.settled {
            self.machine.settle_incoming(key, frame.delivery_id, frame.delivery_id, &State::Accepted);
        }
    }

    fn delivery(&mut self, key: LinkKey, frame: Frame<'_>, payload: &[u8]) {
        let Some(link) = self.links.get(&key.0) else { return };
        match link.kind {
            Kind::CbsRequests { .. } => {
                self.take_request(key, frame);
                return self.put_token(key, payload);
            }
            Kind::ManagementRequests(_) => {
                self.take_request(key, frame);
                return self.manage(key, payload);
            }
            Kind::Coordinator { .. } => {
                self.renew_sender_credit(key, REQUEST_CREDIT);
                return self.coordinate(key, frame, payload);
            }
            Kind::Sender(_) => self.renew_sender_credit(key, SENDER_CREDIT),
            Kind::CbsReplies { .. } | Kind::ManagementReplies(_) | Kind::Receiver(_) => return,
        }
        let wants_ids = self.wants_ids(key);
        let first = self.batch.messages.len();
        let bytes = self.batch.bodies.len();
        let added = match frame.format {
            BATCH_FORMAT => self.add_batch(payload, wants_ids),
            _ => add_message(&mut self.batch, payload, wants_ids),
        };
        match added {
            Ok(()) => {
                self.send(key, frame, first);
                if self.batch.bodies.len() >= SUBMIT_BYTES {
                    self.submit();
                }
            }
            Err(why) => {
                self.batch.truncate(first, bytes);
                self.reject(key, frame, &why.into());
            }
        }
    }

    /// Ends a delivery: every message added since the index `first`.
    fn send(&mut self, key: LinkKey, frame: Frame<'_>, first: usize) {
        self.batch.send(self.engine.link(key.0), frame.delivery_id, frame.settled, first);
        if let Some(transaction) = self.take_transaction(key)
            && let Some(command) = self.batch.commands.pop()
        {
            self.batch.commands.push(within(Some(transaction), command));
        }
    }

    fn reject(&mut self, key: LinkKey, frame: Frame<'_>, why: &Unfit) {
        self.spoil(key);
        let Some(Link { kind, .. }) = self.links.get(&key.0) else { return };
        if !frame.settled {
            let error = self.origin.unfit(why, kind.path());
            let id = frame.delivery_id;
            self.machine.settle_incoming(key, id, id, &State::rejected(error));
        }
    }

    /// Every message of a batch, or none (S-16). The envelope itself is dropped.
    fn add_batch(&mut self, envelope: &[u8], wants_ids: bool) -> Result<(), FactsError> {
        let mut count = 0;
        for message in message::batch::messages(envelope) {
            let message = message.map_err(malformed)?;
            add_message(&mut self.batch, message, wants_ids)?;
            count += 1;
        }
        // A batch of nothing is not a message: clients never send one.
        if count == 0 { Err(malformed(Malformed::MissingField)) } else { Ok(()) }
    }

    fn wants_ids(&self, key: LinkKey) -> bool {
        match self.links.get(&key.0) {
            Some(Link { kind: Kind::Sender(sender), .. }) => sender.wants_ids,
            _ => true,
        }
    }

    /// A delivery was larger than its link allows.
    pub(super) fn too_large(&mut self, key: LinkKey, delivery_id: u32, settled: bool) {
        self.spoil(key);
        self.drop_arriving(key);
        let Some(Link { kind, .. }) = self.links.get(&key.0) else { return };
        if !settled {
            let text = "The received message is larger than the link allows.";
            let error = self.origin.error(amqp::condition::MESSAGE_SIZE_EXCEEDED, text, kind.path());
            self.machine.settle_incoming(key, delivery_id, delivery_id, &State::rejected(error));
        }
    }
}

pub(crate) fn add_message(batch: &mut Batch, bytes: &[u8], wants_ids: bool) -> Result<(), FactsError> {
    match add_normal(batch, bytes, wants_ids) {
        Err(why) if may_be_normalised(&why) => {
            let normal = normalised(bytes).map_err(malformed)?;
            add_normal(batch, &normal, wants_ids)
        }
        added => added,
    }
}

/// Whether a message may only be written in a client's own way (K-1, K-3).
pub(super) fn may_be_normalised(why: &FactsError) -> bool {
    matches!(
        why,
        FactsError::Malformed { reason: Malformed::SectionOutOfPlace(_), .. } | FactsError::WrongType { .. }
    )
}

fn add_normal(batch: &mut Batch, bytes: &[u8], wants_ids: bool) -> Result<(), FactsError> {
    let sections = &Sections::scan(bytes).map_err(malformed)?;
    let facts = Facts::read(bytes, sections)?;
    check_depth(bytes, sections)?;
    batch.arrival(incoming(&facts, wants_ids), |out| append_stored(out, bytes, sections, fresh_message_id));
    facts.session_id.iter().for_each(|session| batch.session(session));
    if let Some(message) = batch.messages.last_mut() {
        message.added_bytes = message.body.length - bytes.len() as u32;
    }
    Ok(())
}

/// A body of values that nest too deep is an attack on its receiver. Bodies of bytes, which most are, have nothing to look at.
fn check_depth(bytes: &[u8], sections: &Sections) -> Result<(), FactsError> {
    if sections.body_kind == BodyKind::Data || !sections.body.is_present() {
        return Ok(());
    }
    let is_too_deep = message::sections::sections(bytes)
        .flatten()
        .filter(|each| matches!(each.code, section::VALUE | section::SEQUENCE))
        .any(|each| each.span.value(bytes).is_some_and(message::check::is_too_deep));
    if is_too_deep { Err(malformed(Malformed::TooDeep)) } else { Ok(()) }
}

/// What the broker wants to know of a message.
pub(super) fn incoming(facts: &Facts<'_>, wants_ids: bool) -> Incoming {
    let (id, partition) = if wants_ids {
        (MessageKey::of(facts.message_id), MessageKey::partition(facts.session_id.or(facts.partition_key)))
    } else {
        Default::default()
    };
    // K-4: the empty session is not compared.
    let session = facts.session_id.filter(|session| !session.is_empty());
    let differ = session.zip(facts.partition_key).is_some_and(|(session, key)| session != key);
    Incoming {
        time_to_live: facts.ttl.map_or(Span::MAX, Span),
        scheduled: facts.scheduled_enqueue_time.map_or(LocalTime::AT_ONCE, LocalTime),
        keys_differ: differ,
        id,
        partition,
        ..Incoming::new(Intake::default())
    }
}

/// 32 hex digits for a message whose sender gave it no id.
pub(super) fn fresh_message_id() -> [u8; 32] {
    let mut id = [0; 32];
    uuid::Uuid::new_v4().simple().encode_lower(&mut id);
    id
}
