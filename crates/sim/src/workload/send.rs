//! Senders: single messages, batches, large ones in parts, and some that must be refused.

use super::client::Unfinished;
use super::{Actor, Body, Workload, digest, namespace_of};
use crate::oracle::{NewMessage, Oracle, Role};
use broker::limits::{BATCH_MESSAGES, MESSAGE_KILOBYTES_DEFAULT};
use broker::{Command, Incoming, Intake, LinkId, LocalTime, MessageKey, Span};
use engine::Batch;

/// What a sender of a heavy run puts into one message: five of them fill the small queue.
const HEAVY_BYTES: u64 = 220_000;

impl Workload {
    pub(super) fn send(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some(nth) = self.pick_link(who, |role| *role == Role::Sender) else { return };
        if self.clients[who.at].links[nth].unfinished.is_some() {
            return self.go_on(who, nth, batch, oracle);
        }
        match self.random.below(100) {
            0..15 => self.begin_large(who, nth, batch, oracle),
            15..30 => {
                let count = self.random.between(2, 6) as usize;
                self.send_whole(who, nth, count, batch, oracle);
            }
            30 if self.random.once_in(30) => self.send_too_many(who, nth, batch, oracle),
            31 => self.send_too_large(who, nth, batch, oracle),
            _ => self.send_whole(who, nth, 1, batch, oracle),
        }
    }

    pub(super) fn next_delivery(&mut self, who: Actor, nth: usize, is_settled: bool) -> (LinkId, u32) {
        let client = &mut self.clients[who.at];
        let link = &mut client.links[nth];
        link.next_delivery += 1;
        if !is_settled {
            client.unanswered.push((link.id, link.next_delivery));
        }
        (link.id, link.next_delivery)
    }

    fn payload(&mut self, path: &str) -> usize {
        if self.is_heavy && path.eq_ignore_ascii_case("tiny") {
            return self.random.between(HEAVY_BYTES / 2, HEAVY_BYTES) as usize;
        }
        let most = *self.random.pick(&[0, 20, 100, 100, 300, 300, 300, 2_000]);
        self.random.between(0, most) as usize
    }

    /// What a sender says of a message: how long it lives, and when it begins to. In a session that chooses its partition.
    fn facts(&mut self, now: LocalTime, id: u64, session: Option<&str>) -> Incoming {
        let time_to_live = match self.random.below(8) {
            0 => Span(self.random.between(1, 3_000)),
            1 => Span::seconds(self.random.between(1, 100)),
            2 => Span::minutes(self.random.between(1, 60)),
            _ => Span::MAX,
        };
        let scheduled = match self.random.below(12) {
            0 => now.after(Span(self.random.between(1, 60_000))),
            1 if self.random.once_in(4) => LocalTime(now.0.saturating_sub(5_000)),
            _ => LocalTime::AT_ONCE,
        };
        let keys_differ = self.random.once_in(200);
        let partition = match session {
            Some(session) => MessageKey::partition(Some(session)),
            None => self.partition(),
        };
        let usual = Incoming::new(Intake::default());
        Incoming { time_to_live, scheduled, keys_differ, id: digest(id), partition, ..usual }
    }

    /// Messages for later, all in one question.
    pub(super) fn schedule(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let path = match self.random.once_in(10) {
            true => "nowhere".to_owned(),
            false if self.is_within => self.first_outbox(who.nth),
            false => self.outbox(who.nth),
        };
        let request = self.request(who, &path);
        let first = batch.messages.len() as u32;
        let mut told = Vec::new();
        for n in 0..self.random.between(1, 4) as usize {
            let payload = self.random.below(200) as usize;
            let number = oracle.next_message() + n;
            let id = self.id(&path, number);
            let session = self.session_for(&path);
            let mut facts = self.facts(oracle.local_at(&path), id, session.as_deref());
            if !self.random.once_in(6) {
                // Some wait for longer than a queue may be idle.
                let most = *self.random.pick(&[10_000, 90_000, 90_000, 1_500_000]);
                facts.scheduled = oracle.local_at(&path).after(Span(self.random.between(1, most)));
            }
            let body = Body::new(number, (id, session.as_deref()), payload, 1, facts, &mut self.random);
            told.push(NewMessage { session: session.clone(), ..body.told() });
            batch.arrival(facts, |out| out.extend_from_slice(&body.parts[0]));
            session.iter().for_each(|session| batch.session(session));
        }
        let messages = first..batch.messages.len() as u32;
        oracle.send_by_question(request, &path, told);
        let sessions = batch.take_sessions(first as usize);
        let (namespace, path) = (namespace_of(&path), path.into());
        batch.commands.push(Command::Schedule { request, namespace, path, messages, sessions });
    }

    fn send_whole(&mut self, who: Actor, nth: usize, count: usize, batch: &mut Batch, oracle: &mut Oracle) {
        let path = self.clients[who.at].links[nth].path.clone();
        let first = batch.messages.len();
        let mut told = Vec::new();
        for n in 0..count {
            let payload = if count > 1 { self.random.below(300) as usize } else { self.payload(&path) };
            let number = oracle.next_message() + n;
            let id = self.id(&path, number);
            let session = self.session_for(&path);
            let facts = self.facts(oracle.local_at(&path), id, session.as_deref());
            let body = Body::new(number, (id, session.as_deref()), payload, 1, facts, &mut self.random);
            told.push(NewMessage { session: session.clone(), ..body.told() });
            batch.arrival(facts, |out| out.extend_from_slice(&body.parts[0]));
            session.iter().for_each(|session| batch.session(session));
        }
        let is_settled = self.random.once_in(8);
        let (link, delivery) = self.next_delivery(who, nth, is_settled);
        batch.send(link, delivery, is_settled, first);
        oracle.send(link, delivery, is_settled, told);
    }

    /// One message more than a batch may have. They are refused before anybody looks at their bytes.
    fn send_too_many(&mut self, who: Actor, nth: usize, batch: &mut Batch, oracle: &mut Oracle) {
        self.send_blank(who, nth, BATCH_MESSAGES + 1, batch, oracle);
    }

    fn send_too_large(&mut self, who: Actor, nth: usize, batch: &mut Batch, oracle: &mut Oracle) {
        let first = batch.messages.len();
        let length = (MESSAGE_KILOBYTES_DEFAULT * 1_024 + 1) as u32;
        let body = Intake { offset: 0, length };
        batch.messages.push(Incoming::new(body));
        let is_settled = self.random.once_in(4);
        let (link, delivery) = self.next_delivery(who, nth, is_settled);
        batch.send(link, delivery, is_settled, first);
        oracle.send(link, delivery, is_settled, vec![NewMessage::blank(length)]);
    }

    /// Begins a message in parts.
    fn begin_large(&mut self, who: Actor, nth: usize, batch: &mut Batch, oracle: &mut Oracle) {
        let parts = self.random.between(2, 5) as usize;
        let payload = self.random.between(100, 2_000) as usize;
        // It may take several turns; others take their numbers meanwhile.
        let number = oracle.reserve();
        let path = self.clients[who.at].links[nth].path.clone();
        let id = self.id(&path, number);
        let session = self.session_for(&path);
        let facts = self.facts(oracle.local_at(&path), id, session.as_deref());
        let mut body = Body::new(number, (id, session.as_deref()), payload, parts, facts, &mut self.random);
        body.parts.reverse();
        self.clients[who.at].links[nth].unfinished =
            Some(Unfinished { number, id, facts, session, sent: Vec::new(), rest: body.parts });
        self.go_on(who, nth, batch, oracle);
    }

    /// Sends some more of a large message; perhaps all, perhaps gives it up.
    fn go_on(&mut self, who: Actor, nth: usize, batch: &mut Batch, oracle: &mut Oracle) {
        let steps = self.random.between(1, 5);
        let gives_up = self.random.once_in(12);
        let link = &mut self.clients[who.at].links[nth];
        let Some(mut unfinished) = link.unfinished.take() else { return };
        let id = link.id;
        if gives_up && !unfinished.sent.is_empty() {
            return batch.commands.push(Command::DropParts { link: id });
        }
        for _ in 0..steps {
            let Some(part) = unfinished.rest.pop() else { break };
            if unfinished.rest.is_empty() {
                unfinished.sent.push(part);
                return self.finish(who, nth, unfinished, batch, oracle);
            }
            let body = batch.body(|out| out.extend_from_slice(&part));
            batch.commands.push(Command::Part { link: id, body });
            unfinished.sent.push(part);
        }
        self.clients[who.at].links[nth].unfinished = Some(unfinished);
    }

    fn finish(&mut self, who: Actor, nth: usize, all: Unfinished, batch: &mut Batch, oracle: &mut Oracle) {
        let first = batch.messages.len();
        let body = Body { parts: all.sent, facts: all.facts, id: all.id };
        let last = body.parts.last().cloned().unwrap_or_default();
        batch.arrival(all.facts, |out| out.extend_from_slice(&last));
        all.session.iter().for_each(|session| batch.session(session));
        let (link, delivery) = self.next_delivery(who, nth, false);
        batch.send(link, delivery, false, first);
        let told = NewMessage { session: all.session, ..body.told() };
        oracle.send_reserved(link, delivery, all.number, told);
    }
}
