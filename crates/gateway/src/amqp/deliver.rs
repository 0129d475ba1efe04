//! Messages going out. Each link has a queue of messages that wait; bodies are fetched when there is room for them in the output,
//! from the engine's cache or from disk, a run of neighbours at once, and the next run is read while the last one is
//! written to the socket.
//!
//! Links take turns, and one whose client has no room holds up nobody. At any time a connection holds one output and
//! one run or part that was read, whatever credit its client gives. Large messages are in [`super::large`].

use super::connection::ConnectionTask;
use super::link::{Kind, Link};
use super::management::uuid_of_token;
use super::session::Wanted;
use super::settle::{sent_tag, tag_of};
use crate::limits::{OUTPUT_BYTES, WAITING_KEPT, WHOLE_MESSAGE_BYTES};
use amqp::LinkKey;
use broker::{Delivery, LocalTime, ReceiveMode, State};
use bytes::Bytes;
use engine::{Bodies, BodyRead, Front, Sent, StoredMessage};
use journal::Place;
use journal::limits::RUN_BYTES;
use message::delivery::{Stamp, encode};
use message::overlay::OverlayError;
use message::sections::Sections;
use std::collections::VecDeque;
use tokio::time::Instant;

/// What the door knows of a link that the client receives on.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) path: String,
    /// The session that it asks for, or has.
    pub(super) session: Option<Wanted>,
    /// Messages dealt with on this link.
    pub(super) sent: u64,
    /// Up to where the broker may deliver.
    pub(super) limit: u64,
    /// Messages to be sent, oldest first.
    pub(super) waiting: VecDeque<Sent>,
    /// How far the first of them is, if it is large.
    pub(super) progress: super::large::Progress,
    /// A drain waits for those.
    pub(super) is_draining: bool,
    /// One of the lists of [`Service`] has this link.
    pub(super) is_listed: bool,
    /// The client has detached it: it gets nothing more, and is forgotten at this time.
    pub(super) leaving_until: Option<Instant>,
}

/// Whose turn it is. A link with waiting messages is in one of the lists.
#[derive(Debug, Default)]
pub(super) struct Service {
    turns: VecDeque<LinkKey>,
    /// Their clients must make room first.
    blocked: Vec<LinkKey>,
    /// They need something from disk, and the one read at a time is another's.
    parked: Vec<LinkKey>,
    fetch: Option<Fetch>,
    /// Links that were sent messages since their credit was last looked at.
    served: Vec<LinkKey>,
    found: Vec<StoredMessage>,
}

/// The first waiting messages of a link, or the next part of its first, being read.
#[derive(Debug)]
struct Fetch {
    link: LinkKey,
    reading: BodyRead,
}

impl Service {
    /// Returns when something was read from disk.
    pub(super) async fn fetched(&mut self) {
        match &mut self.fetch {
            Some(fetch) => fetch.reading.done().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.fetch.is_some()
    }

    /// Whether there is something to send as soon as there is room in the output.
    pub(super) fn is_busy(&self) -> bool {
        !self.turns.is_empty() || self.is_fetching()
    }

    /// Clients have made room, or may have.
    pub(super) fn unblock(&mut self) {
        self.turns.extend(self.blocked.drain(..));
    }

    fn take_fetched(&mut self) -> Option<(LinkKey, Bodies)> {
        let fetch = self.fetch.as_mut()?;
        let (link, bodies) = (fetch.link, fetch.reading.take()?);
        self.fetch = None;
        self.turns.extend(self.parked.drain(..));
        Some((link, bodies))
    }
}

impl<S> ConnectionTask<S> {
    pub(super) fn receiver(&mut self, key: LinkKey) -> Option<&mut Receiver> {
        match &mut self.links.get_mut(&key.0)?.kind {
            Kind::Receiver(receiver) => Some(receiver),
            _ => None,
        }
    }

    /// Takes a message of the broker. For a link that is gone or leaving there is nothing to do: the lock ends by itself.
    pub(super) fn queue(&mut self, sent: Sent) {
        let key = LinkKey(sent.link.link);
        let Some(receiver) = self.receiver(key).filter(|receiver| receiver.leaving_until.is_none()) else {
            return;
        };
        receiver.waiting.push_back(sent);
        self.waiting_deliveries += 1;
        let Some(receiver) = self.receiver(key) else { return };
        if !std::mem::replace(&mut receiver.is_listed, true) {
            self.service.turns.push_back(key);
        }
    }

    /// A drain ends when the last message that it brought is out.
    pub(super) fn drained(&mut self, key: LinkKey) {
        let Some(receiver) = self.receiver(key) else { return };
        if receiver.waiting.is_empty() {
            self.machine.drained(key);
        } else {
            receiver.is_draining = true;
        }
    }

    /// Sends what can be sent, and reads ahead what can be sent next.
    pub(super) fn serve(&mut self) {
        loop {
            let is_full = self.machine.output().len() >= self.output_most;
            if !is_full && let Some((key, bodies)) = self.service.take_fetched() {
                self.send_fetched(key, bodies);
                continue;
            }
            if is_full && self.service.is_fetching() {
                break;
            }
            let Some(key) = self.service.turns.pop_front() else { break };
            if !self.serve_link(key, is_full) {
                self.service.turns.push_front(key);
                break;
            }
        }
        // What was sent may have made room for more credit.
        let mut served = std::mem::take(&mut self.service.served);
        served.drain(..).for_each(|key| self.renew_credit(key));
        self.service.served = served;
    }

    /// Gives a link its turn. False: it must wait for room in the output.
    fn serve_link(&mut self, key: LinkKey, is_full: bool) -> bool {
        let is_fetching = self.service.is_fetching();
        let Some(Link { kind: Kind::Receiver(receiver), .. }) = self.links.get_mut(&key.0) else {
            return true;
        };
        let Some(first) = receiver.waiting.front() else {
            receiver.is_listed = false;
            return true;
        };
        let has_room = match receiver.progress.is_begun {
            true => self.machine.can_stream(key),
            false => self.machine.can_send(key),
        };
        if !has_room {
            self.service.blocked.push(key);
            return true;
        }
        if is_large(first) {
            let places = receiver.progress.next_places(first).cloned().collect();
            return self.read(key, places, broker::limits::BODY_PART_BYTES as usize, is_full);
        }
        // With a full output all that matters is whether there is something to read ahead.
        let is_short = self.output_most < OUTPUT_BYTES;
        let most = if (is_full && !is_fetching) || is_short { 1 } else { usize::MAX };
        let mut found = std::mem::take(&mut self.service.found);
        let overlay = |sent: &Sent| sent.delivery.stored_overlay().map(|stored| stored.body);
        let run = run_of(&receiver.waiting).take(most).map(|sent| (sent.delivery.body, overlay(sent)));
        let front = self.engine.handle().cache().front(run, &mut found);
        let is_served = match front {
            Front::Here(_) if is_full => false,
            Front::Here(_) => {
                self.send_run(key, found.drain(..).map(Some));
                true
            }
            Front::Absent(count) => {
                let count = if most == 1 && !is_short { usize::MAX } else { count };
                let run = run_of(&receiver.waiting).take(count);
                let bytes = run.clone().map(|sent| sent.delivery.stored_bytes()).sum();
                // Neighbours are read together, and bodies are neighbours of bodies.
                let overlays = run.clone().filter_map(|sent| sent.overlay.as_deref());
                let places = run.map(|sent| &sent.place).chain(overlays).cloned().collect();
                self.read(key, places, bytes, is_full)
            }
        };
        found.clear();
        self.service.found = found;
        is_served
    }

    /// Has something read for a link, now or when the read under way has ended.
    fn read(&mut self, link: LinkKey, places: Vec<Place>, bytes: usize, is_ahead: bool) -> bool {
        if self.service.is_fetching() {
            self.service.parked.push(link);
            return true;
        }
        let reading = self.engine.handle().read(places, bytes, is_ahead);
        self.service.fetch = reading.map(|reading| Fetch { link, reading });
        self.service.is_fetching()
    }

    fn send_fetched(&mut self, key: LinkKey, bodies: Bodies) {
        let Some(receiver) = self.receiver(key) else { return };
        match receiver.waiting.front() {
            Some(first) if is_large(first) => {
                let has_overlay = receiver.progress.next_places(first).nth(1).is_some();
                let mut bodies = bodies.bodies.into_iter();
                let body = bodies.next().flatten();
                let overlay = if has_overlay { bodies.next().flatten() } else { Some(Bytes::new()) };
                self.send_part(key, body.zip(overlay).map(|(body, overlay)| StoredMessage { body, overlay }));
            }
            _ => {
                let found = paired(&receiver.waiting, bodies.bodies);
                self.send_run(key, found.into_iter());
            }
        }
    }

    /// Sends the first waiting messages of a link, whose bodies these are; one without a body is passed over.
    fn send_run(&mut self, key: LinkKey, messages: impl Iterator<Item = Option<StoredMessage>>) {
        let Some(receiver) = self.receiver(key) else { return };
        let mut waiting = std::mem::take(&mut receiver.waiting);
        let (mut count, mut is_blocked) = (0, false);
        for found in messages {
            let Some(sent) = waiting.front() else { break };
            if let Some(found) = found
                && !self.send_message(key, sent, &found)
            {
                is_blocked = true;
                break;
            }
            waiting.pop_front();
            count += 1;
        }
        if let Some(receiver) = self.receiver(key) {
            receiver.waiting = waiting;
        }
        self.end_turn(key, count, is_blocked);
    }

    /// After a turn in which `count` messages were dealt with.
    pub(super) fn end_turn(&mut self, key: LinkKey, count: u64, is_blocked: bool) {
        self.waiting_deliveries -= count as usize;
        let Some(receiver) = self.receiver(key) else { return };
        receiver.sent += count;
        let is_empty = receiver.waiting.is_empty();
        if is_empty {
            receiver.waiting.shrink_to(WAITING_KEPT);
        }
        receiver.is_listed = !is_empty;
        let is_drained = is_empty && std::mem::take(&mut receiver.is_draining);
        match (is_empty, is_blocked) {
            (true, _) => {}
            (false, true) => self.service.blocked.push(key),
            (false, false) => self.service.turns.push_back(key),
        }
        if count > 0 {
            self.service.served.push(key);
        }
        if is_drained {
            self.machine.drained(key);
        }
    }

    /// Sends one message if the client's window and credit allow.
    fn send_message(&mut self, key: LinkKey, sent: &Sent, found: &StoredMessage) -> bool {
        let is_settled = sent.mode == ReceiveMode::ReceiveAndDelete;
        let locked = tag_of(sent.delivery.token);
        let result = self.machine.send(key, sent_tag(&locked, is_settled), is_settled, 0, |out| {
            let sections = Sections::scan(&found.body).map_err(Unshown::from);
            let encoded = sections.and_then(|sections| encode_stamped(out, sent, found, &sections));
            if let Err(error) = encoded {
                // It was whole when it was taken in, and its checksum is right: this is a bug, and a loud one.
                let sequence = sent.delivery.sequence.0;
                tracing::error!(%error, sequence, "a stored message cannot be encoded");
            }
        });
        match result {
            amqp::Sent::Delivery(_) | amqp::Sent::NotAttached => true,
            amqp::Sent::NoCredit | amqp::Sent::NoWindow => false,
        }
    }
}

/// Whether a message is sent part by part.
fn is_large(sent: &Sent) -> bool {
    sent.delivery.length > WHOLE_MESSAGE_BYTES
}

/// The messages at the front that are sent together.
fn run_of(waiting: &VecDeque<Sent>) -> impl Iterator<Item = &Sent> + Clone {
    let mut bytes = 0;
    waiting.iter().take_while(move |sent| {
        bytes += sent.delivery.stored_bytes();
        bytes <= RUN_BYTES as usize && !is_large(sent)
    })
}

/// What was read of the first messages: their bodies, and then what was changed of those of which that is stored.
fn paired(waiting: &VecDeque<Sent>, read: Vec<Option<Bytes>>) -> Vec<Option<StoredMessage>> {
    let mut left = read.len();
    let is_read = |sent: &&Sent| match left.checked_sub(1 + usize::from(sent.overlay.is_some())) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let count = waiting.iter().take_while(is_read).count();
    let mut bodies = read;
    let mut overlays = bodies.split_off(count).into_iter();
    let pair = |(body, sent): (Option<Bytes>, &Sent)| {
        let overlay = if sent.overlay.is_some() { overlays.next()? } else { Some(Bytes::new()) };
        body.zip(overlay).map(|(body, overlay)| StoredMessage { body, overlay })
    };
    bodies.into_iter().zip(waiting).map(pair).collect()
}

/// Why a stored message cannot be shown: it was whole when it was taken in, and its checksum is right, so this is a bug.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unshown {
    #[error(transparent)]
    Message(#[from] message::Malformed),
    #[error("its changed properties: {0}")]
    Changes(#[from] OverlayError),
}

/// Writes a message, or the first part of one, as its receiver gets it.
pub(super) fn encode_stamped(
    out: &mut Vec<u8>,
    sent: &Sent,
    found: &StoredMessage,
    sections: &Sections,
) -> Result<(), Unshown> {
    let changes = sent.delivery.changes(&found.overlay)?;
    let is_locked = sent.mode == ReceiveMode::PeekLock;
    let lock_token = is_locked.then(|| uuid_of_token(sent.delivery.token));
    let stamp = Stamp { lock_token, is_delivered: true, ..stamp_of(&sent.delivery) };
    encode(out, &found.body, sections, &stamp, changes.as_deref())?;
    Ok(())
}

/// What the broker says about a message.
pub(super) fn stamp_of(delivery: &Delivery) -> Stamp<'_> {
    let (ttl, expires) = match delivery.state {
        // Its life has not begun, and what stands for its end is when it is due (S-44).
        State::Scheduled => {
            (delivery.extra.as_ref().and_then(|extra| extra.time_to_live).map(|span| span.0), None)
        }
        State::Active | State::Deferred | State::Gone => {
            let expires = (!delivery.expires.is_never()).then_some(delivery.expires.0);
            (expires.map(|expires| (expires - delivery.enqueued.0).max(0) as u64), expires)
        }
    };
    Stamp {
        delivery_count: delivery.count,
        ttl,
        expires,
        sequence: delivery.number.0 as i64,
        enqueued: delivery.enqueued.0,
        locked_until: delivery.locked_until.map(|LocalTime(until)| until),
        enqueued_sequence: delivery.first.map(|number| number.0 as i64),
        was_scheduled: delivery.was_scheduled,
        ..Stamp::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::idle_task;
    use super::*;
    use crate::http::tests::engine_in_memory;
    use amqp::SessionKey;

    #[test]
    fn a_receiver_that_goes_lets_those_go_on_that_had_to_wait_for_its_message() {
        // While a large message is under way no other begins on its session: without it, nobody's client says more.
        let engine = engine_in_memory();
        let mut task = idle_task(&engine);
        let kind = Kind::Receiver(Box::default());
        task.links.insert(0, Link { session: SessionKey(0), name: String::new(), kind });
        task.receivers = 1;
        task.service.blocked.push(LinkKey(1));
        assert!(!task.service.is_busy());
        assert!(task.remove(LinkKey(0)).is_some());
        assert!(task.service.is_busy());
        drop(task);
        engine.stop().expect("nothing is under way");
    }
}
