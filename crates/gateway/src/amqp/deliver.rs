//! Effects going out. Deliveries are encoded only as fast as the peer takes them: their bodies stay in the engine's
//! cache or on disk until there is room in the output, and a link whose window is closed holds up nobody else.

use super::connection::Task;
use super::link::{Kind, Link};
use super::settle::tag_of;
use amqp::{LinkKey, State};
use broker::{ReceiveMode, Time};
use bytes::Bytes;
use engine::{Outgoing, Sent};
use journal::Place;
use message::delivery::{Stamp, encode};
use message::sections::Sections;

/// Encoded bytes that may wait for a peer to take them, and bodies fetched at once to become such.
pub(super) const OUTPUT_BYTES: usize = 256 * 1_024;

impl<S> Task<S> {
    /// Turns effects into frames until none are left or the output is full.
    pub(super) async fn release(&mut self) {
        self.engine.outbox().take(&mut self.taken);
        self.pending.extend(self.taken.drain(..));
        while self.machine.output().len() < OUTPUT_BYTES {
            match self.pending.pop_front() {
                None => break,
                Some(Outgoing::Deliver(sent)) => {
                    let run = self.take_run(sent);
                    let bodies = fetch(&self.engine, &run).await;
                    for (sent, body) in run.into_iter().zip(bodies) {
                        self.deliver(sent, body);
                    }
                }
                Some(other) => self.answer(other),
            }
        }
        self.renew_served();
    }

    /// What was sent may have made room for more credit.
    fn renew_served(&mut self) {
        for key in std::mem::take(&mut self.served) {
            self.renew_credit(key);
        }
    }

    /// Deliveries that stand together at the front, as many as may be in memory at once.
    fn take_run(&mut self, first: Sent) -> Vec<Sent> {
        let mut bytes = first.delivery.length as usize;
        let mut run = vec![first];
        while let Some(Outgoing::Deliver(next)) = self.pending.front() {
            bytes += next.delivery.length as usize;
            if bytes > OUTPUT_BYTES {
                break;
            }
            let Some(Outgoing::Deliver(next)) = self.pending.pop_front() else {
                unreachable!("it is in front")
            };
            run.push(next);
        }
        run
    }

    fn answer(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Accepted { link, first, last } => {
                self.machine.settle_incoming(LinkKey(link.link), first, last, &State::Accepted);
            }
            Outgoing::Rejected { link, delivery, refusal } => {
                let path = self.links.get(&link.link).map_or("", |link| link.kind.path());
                let error = self.origin.refusal(&refusal, path);
                let state = State::rejected(error);
                self.machine.settle_incoming(LinkKey(link.link), delivery, delivery, &state);
            }
            Outgoing::Settled { link, first, last, outcome } => {
                self.settled(LinkKey(link.link), first, last, outcome);
            }
            Outgoing::NotSettled { link, delivery, refusal } => {
                self.not_settled(LinkKey(link.link), delivery, &refusal);
            }
            Outgoing::Drained { link } => self.drained(LinkKey(link.link)),
            Outgoing::Attached { link, max_message_bytes } => {
                self.attached(LinkKey(link.link), max_message_bytes);
            }
            Outgoing::Detached { link, refusal } => self.detached(LinkKey(link.link), &refusal),
            Outgoing::Answered { request, answer, .. } => self.answered(request.request, &answer),
            Outgoing::Deliver(_) => unreachable!("taken as a run"),
        }
    }

    /// A drain ends when the last message that it brought is out.
    fn drained(&mut self, key: LinkKey) {
        let Some(Link { kind: Kind::Receiver { held, is_draining, .. }, .. }) = self.links.get_mut(&key.0)
        else {
            return;
        };
        if held.is_empty() {
            self.machine.drained(key);
        } else {
            *is_draining = true;
        }
    }

    fn deliver(&mut self, sent: Sent, body: Option<Bytes>) {
        let key = LinkKey(sent.link.link);
        // A link that is gone takes nothing: the lock ends by itself.
        let Some(Link { kind: Kind::Receiver { held, .. }, .. }) = self.links.get_mut(&key.0) else { return };
        if !held.is_empty() {
            return held.push_back(sent);
        }
        let Some(body) = body else { return };
        if !self.send_message(key, &sent, &body)
            && let Some(Link { kind: Kind::Receiver { held, .. }, .. }) = self.links.get_mut(&key.0)
        {
            held.push_back(sent);
        }
    }

    /// Sends one message if the client's window and credit allow.
    fn send_message(&mut self, key: LinkKey, sent: &Sent, body: &[u8]) -> bool {
        let delivery = &sent.delivery;
        let expires = (!delivery.expires.is_never()).then_some(delivery.expires.0);
        let stamp = Stamp {
            delivery_count: delivery.count,
            ttl: expires.map(|expires| (expires - delivery.enqueued.0).max(0) as u64),
            expires,
            sequence: delivery.number.0 as i64,
            enqueued: delivery.enqueued.0,
            locked_until: delivery.locked_until.map(|Time(until)| until),
            ..Stamp::default()
        };
        let overlay = delivery.extra.as_ref().and_then(|extra| extra.overlay.as_ref());
        let is_settled = sent.mode == ReceiveMode::ReceiveAndDelete;
        let result = self.machine.send(key, &tag_of(delivery.token), is_settled, 0, |out| {
            let encoded =
                Sections::scan(body).and_then(|sections| encode(out, body, &sections, &stamp, overlay));
            if let Err(error) = encoded {
                // It was whole when it was taken in, and its checksum is right: this is a bug, and a loud one.
                tracing::error!(%error, sequence = delivery.sequence.0, "a stored message cannot be encoded");
            }
        });
        match result {
            amqp::Sent::Delivery(_) => {
                if let Some(Link { kind: Kind::Receiver { sent, .. }, .. }) = self.links.get_mut(&key.0) {
                    *sent += 1;
                }
                if self.served.last() != Some(&key) {
                    self.served.push(key);
                }
                true
            }
            amqp::Sent::NoCredit | amqp::Sent::NoWindow => false,
            amqp::Sent::NotAttached => true,
        }
    }

    /// The client has made room: what its links held back goes first.
    pub(super) async fn release_held(&mut self) {
        let mut keys: Vec<u32> =
            self.links.iter().filter(|(_, link)| link.holds()).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        for key in keys.into_iter().map(LinkKey) {
            while self.machine.output().len() < OUTPUT_BYTES && self.machine.can_send(key) {
                let Some(sent) = self.links.get_mut(&key.0).and_then(Link::next_held) else { break };
                let body = fetch(&self.engine, std::slice::from_ref(&sent)).await.pop().flatten();
                if let Some(body) = body {
                    self.send_message(key, &sent, &body);
                }
            }
            if let Some(Link { kind: Kind::Receiver { held, is_draining, .. }, .. }) =
                self.links.get_mut(&key.0)
                && held.is_empty()
                && std::mem::take(is_draining)
            {
                self.machine.drained(key);
            }
        }
        self.renew_served();
    }
}

impl Link {
    pub(super) fn holds(&self) -> bool {
        matches!(&self.kind, Kind::Receiver { held, .. } if !held.is_empty())
    }

    fn next_held(&mut self) -> Option<Sent> {
        match &mut self.kind {
            Kind::Receiver { held, .. } => held.pop_front(),
            _ => None,
        }
    }
}

/// The bodies of a run: from the cache, or from disk on a thread that may wait.
async fn fetch(engine: &engine::Connection, run: &[Sent]) -> Vec<Option<Bytes>> {
    let mut bodies = Vec::with_capacity(run.len());
    engine.handle().cache().get(run.iter().map(|sent| sent.delivery.body), &mut bodies);
    let missing: Vec<(usize, Vec<Place>)> = run
        .iter()
        .zip(&bodies)
        .enumerate()
        .filter(|(_, (sent, body))| body.is_none() || !sent.parts.is_empty())
        .map(|(at, (sent, _))| (at, sent.parts.iter().chain([&sent.place]).cloned().collect()))
        .collect();
    if missing.is_empty() {
        return bodies;
    }
    let read = tokio::task::spawn_blocking(move || missing.into_iter().map(read_whole).collect::<Vec<_>>());
    for (at, body) in read.await.unwrap_or_default() {
        bodies[at] = body;
    }
    bodies
}

fn read_whole((at, places): (usize, Vec<Place>)) -> (usize, Option<Bytes>) {
    let mut whole = Vec::new();
    for place in &places {
        if let Err(error) = place.read_into(&mut whole) {
            tracing::error!(%error, body = place.body().0, "a stored body cannot be read");
            return (at, None);
        }
    }
    (at, Some(whole.into()))
}
