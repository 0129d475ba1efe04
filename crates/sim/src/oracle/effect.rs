//! What leaves. An effect may say only what is committed, and only to whom it is due.

use super::expect::{Due, Question};
use super::ledger::Present;
use super::{Fate, Link, LinkState, Lock, Oracle, Role, asker};
use broker::{
    Answer, ConnectionId, Delivery, LinkId, LockToken, Outcome, ReceiveMode, Refusal, RequestId, Settled,
};
use engine::{Outgoing, Sent};

impl Oracle {
    pub(super) fn left(&mut self, connection: ConnectionId, outgoing: &Outgoing) {
        if self.is_dead {
            return self.fail("an effect left after the end of the process");
        }
        self.coverage.effect(outgoing);
        self.tell(|| told(outgoing));
        match outgoing {
            Outgoing::Accepted { link, first, last } => {
                (*first..=*last).for_each(|delivery| self.accepted(*link, delivery));
            }
            Outgoing::Rejected { link, delivery, refusal } => self.rejected(*link, *delivery, refusal),
            Outgoing::Settled { link, first, last, outcome } => {
                (*first..=*last).for_each(|delivery| self.settled(*link, delivery, *outcome));
            }
            Outgoing::NotSettled { link, delivery, refusal } => self.not_settled(*link, *delivery, refusal),
            Outgoing::PartTaken { link, length } => {
                self.trace.add(&[9, u64::from(link.link), u64::from(*length)]);
            }
            Outgoing::Deliver(sent) => self.delivered(sent),
            Outgoing::Drained { link } => self.drained(*link),
            Outgoing::Attached { link, .. } => {
                self.answered(connection, |due| *due == Due::Attach(*link));
                match self.links.get_mut(link) {
                    Some(link) if link.state == LinkState::Attaching => link.state = LinkState::Attached,
                    // The client changed its mind meanwhile.
                    Some(_) => {}
                    None => self.fail("a link was attached that nobody wanted"),
                }
            }
            Outgoing::Detached { link, refusal } => self.detached(*link, refusal),
            Outgoing::Answered { request, answer } => self.replied(*request, answer),
        }
        self.trace.add(&[u64::from(connection.0)]);
    }

    fn accepted(&mut self, link: LinkId, delivery: u32) {
        self.trace.add(&[1, u64::from(link.link), u64::from(delivery)]);
        self.answered(link.connection, |due| *due == Due::Send(link, delivery));
        if let Some(rule) = self.must_refuse(link, delivery) {
            self.fail(format!("delivery {delivery} was accepted against {rule}"));
        }
        let Some(range) = self.deliveries.get(&(link, delivery)).cloned() else { return };
        let messages = &mut self.messages[range];
        let is_stored = messages.iter().all(|message| message.place.is_some());
        messages.iter_mut().for_each(|message| message.fate = Fate::Accepted);
        if !is_stored {
            self.fail(format!("delivery {delivery} of {link:?} was accepted before it was durable"));
        }
    }

    fn rejected(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) {
        self.trace.add(&[2, u64::from(link.link), u64::from(delivery)]);
        self.answered(link.connection, |due| *due == Due::Send(link, delivery));
        let rule = self.must_refuse(link, delivery);
        let is_right = match refusal {
            Refusal::BatchTooLarge { .. } => rule == Some("BatchTooLarge"),
            Refusal::MessageTooLarge { .. } => rule == Some("MessageTooLarge"),
            Refusal::QueueFull { .. } => rule.is_none() && self.may_be_full(link),
            _ => false,
        };
        let Some(range) = self.deliveries.get(&(link, delivery)).cloned() else { return };
        let messages = &mut self.messages[range];
        let is_stored = messages.iter().any(|message| message.place.is_some());
        messages.iter_mut().for_each(|message| message.fate = Fate::Refused);
        if is_stored || !is_right {
            self.fail(format!("delivery {delivery} of {link:?} was wrongly refused: {refusal}"));
        }
    }

    fn settled(&mut self, link: LinkId, delivery: u32, outcome: Settled) {
        self.trace.add(&[3, u64::from(link.link), u64::from(delivery)]);
        let Some(token) = self.settlement(link, delivery) else { return };
        let Some(path) = self.links.get(&link).map(|link| link.path.clone()) else { return };
        if outcome != Settled::Completed {
            return;
        }
        // The message is found by its number; a queue that was deleted meanwhile took it along.
        let Some(entity) = self.ledger.find(&path) else { return };
        match self.ledger.removed.get(&(entity, token.sequence())) {
            Some(present) => self.messages[present.message].is_confirmed = true,
            None if self
                .ledger
                .deleted
                .values()
                .any(|(turn, queue)| *turn == self.turn && queue.path.to_lowercase() == path) => {}
            None => self.fail(format!("{:?} was confirmed before it was removed", token.sequence())),
        }
    }

    fn not_settled(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) {
        self.trace.add(&[4, u64::from(link.link), u64::from(delivery)]);
        let Some(token) = self.settlement(link, delivery) else { return };
        let Refusal::LockLost(_) = refusal else { return };
        // A lock that was never used and has not ended is not lost.
        let now = self.now;
        let lock = self.lock_of(link, token);
        let is_held =
            lock.is_some_and(|lock| now < lock.until && lock.returned.is_none() && lock.asked.len() < 2);
        if is_held {
            self.fail(format!("the lock on {:?} is called lost and is not", token.sequence()));
        }
    }

    /// The token that an answer to a settlement is about.
    fn settlement(&mut self, link: LinkId, delivery: u32) -> Option<LockToken> {
        let is_it = |due: &Due| matches!(due, Due::Settle(l, d, _) if (*l, *d) == (link, delivery));
        match self.answered(link.connection, is_it)? {
            Due::Settle(_, _, token) => Some(token),
            _ => None,
        }
    }

    fn delivered(&mut self, sent: &Sent) {
        let delivery = &sent.delivery;
        self.trace.add(&[5, u64::from(sent.link.link), delivery.sequence.0, u64::from(delivery.count)]);
        let Some(link) = self.links.get_mut(&sent.link) else {
            return self.fail("a message was delivered to a link that never was");
        };
        link.delivered += 1;
        if let Some(what) = wrong_link(link, sent, self.turn) {
            return self.fail(format!("{:?}: {what}", delivery.sequence));
        }
        let path = link.path.clone();
        let front = delivery.extra.as_ref().and_then(|extra| extra.parts.first());
        let Some(number) = self.ledger.numbers.get(front.unwrap_or(&delivery.body)).copied() else {
            return self.fail(format!("I3: {:?} was delivered and not stored", delivery.sequence));
        };
        let message = &mut self.messages[number];
        message.delivered += 1;
        let is_confirmed = message.is_confirmed;
        let Some((entity, sequence)) = message.place else {
            return self.fail(format!("{:?} was delivered before it was durable", delivery.sequence));
        };
        if (sequence, &message.path) != (delivery.sequence, &path) {
            return self.fail(format!("{:?} was delivered as {:?}", sequence, delivery.sequence));
        }
        if is_confirmed {
            return self.fail(format!("I2: {sequence:?} was completed and is delivered again"));
        }
        self.given(entity, sent);
    }

    fn given(&mut self, entity: broker::EntityId, sent: &Sent) {
        let (delivery, sequence) = (&sent.delivery, sent.delivery.sequence);
        let turn = self.turn;
        let queue = match self.ledger.queues.get_mut(&entity) {
            Some(queue) => queue,
            None => match self.ledger.deleted.get_mut(&entity) {
                Some((when, queue)) if *when == turn => queue,
                _ => return self.fail(format!("{sequence:?} of a deleted queue was delivered")),
            },
        };
        // Decided in this turn, or just before an append that it had to wait for.
        let least = self.began.after(queue.settings.lock_duration);
        let most = self.now.after(queue.settings.lock_duration);
        queue.newest_in_turn = queue.newest_in_turn.max(sequence);
        let removed = self.ledger.removed.get(&(entity, sequence));
        let present = match sent.mode {
            ReceiveMode::PeekLock => queue.present.get(&sequence),
            // A queue that was deleted in the same turn keeps what was not removed before.
            ReceiveMode::ReceiveAndDelete => removed,
        };
        let Some(present) = present else {
            return self.fail(format!("{sequence:?} was delivered and is not there"));
        };
        if self.is_blurred && delivery.count + 1 == present.count {
            // It waited behind an append for longer than its lock lasted. The token is worth nothing.
            return self.coverage.fault("delivery outlived by its wait");
        }
        if let Some(what) = wrong_delivery(present, sent) {
            return self.fail(format!("{sequence:?}: {what}"));
        }
        // A queue that went in this turn has taken its locks along.
        if sent.mode == ReceiveMode::ReceiveAndDelete || self.ledger.deleted.contains_key(&entity) {
            return;
        }
        let Some(until) = delivery.locked_until.filter(|until| (least..=most).contains(until)) else {
            let until = delivery.locked_until;
            return self.fail(format!("{sequence:?} is locked until {until:?}, not {least:?} to {most:?}"));
        };
        if !self.tokens.insert(delivery.token.0) {
            return self.fail(format!("the token of {sequence:?} was used before"));
        }
        let lock =
            Lock { token: delivery.token, until, count: delivery.count, asked: Vec::new(), returned: None };
        let Some(before) = self.locks.insert((entity, sequence), lock) else { return };
        let is_released = before.asked.contains(&Outcome::Release);
        if before.returned.is_none() && !is_released {
            self.fail(format!("I5: {sequence:?} was delivered while it is locked"));
        } else if delivery.count != before.count + u32::from(before.returned.is_some()) {
            let counts = (before.count, delivery.count);
            self.fail(format!("I7: the count of {sequence:?} went from {} to {}", counts.0, counts.1));
        }
    }

    fn drained(&mut self, link: LinkId) {
        self.trace.add(&[6, u64::from(link.link)]);
        self.answered(link.connection, |due| *due == Due::Drain(link));
        if let Some(link) = self.links.get_mut(&link)
            && let Some(at) = link.grants.iter().position(|(_, is_drain)| *is_drain)
        {
            link.grants.drain(..=at);
        }
    }

    fn detached(&mut self, id: LinkId, refusal: &Refusal) {
        self.trace.add(&[7, u64::from(id.link)]);
        let Some(link) = self.links.get_mut(&id) else {
            return self.fail("a link was detached that never was");
        };
        let before = link.state;
        let path = link.path.clone();
        link.state = LinkState::Gone(self.turn);
        if before == LinkState::Attached {
            // Its queue is gone.
            let went = |(turn, queue): &(u64, super::ledger::Queue)| {
                *turn == self.turn && queue.path.to_lowercase() == path
            };
            if !self.ledger.deleted.values().any(went) {
                self.fail(format!("{id:?} was detached though its queue is there: {refusal}"));
            }
        } else if let Some(expected) = self.expected.get(&id.connection)
            && expected.iter().any(|each| each.due == Due::Attach(id))
        {
            self.answered(id.connection, |due| *due == Due::Attach(id));
        }
        self.void(id);
    }

    fn replied(&mut self, request: RequestId, answer: &Result<Answer, Refusal>) {
        self.trace.add(&[8, u64::from(request.request), u64::from(answer.is_ok())]);
        self.answered(request.connection, |due| *due == Due::Question(request.request));
        let Some(question) = self.questions.remove(&asker(request)) else { return };
        let changed = |path: &str| {
            let folded = path.to_lowercase();
            self.ledger
                .deleted
                .values()
                .any(|(turn, q)| *turn == self.turn && q.path.to_lowercase() == folded)
        };
        match (&question, answer) {
            (Question::Create(path), Ok(Answer::Queue(_))) => {
                if self.ledger.find(path).is_none() && !changed(path) {
                    self.fail(format!("{path} was created and is not there"));
                }
            }
            (Question::Delete(path), Ok(Answer::Deleted)) => {
                if !changed(path) {
                    self.fail(format!("{path} was deleted and is there"));
                }
            }
            (Question::Describe(path, Some(expected)), Ok(Answer::Queue(queue))) => {
                if (queue.active_messages, queue.bytes) != *expected {
                    let told = (queue.active_messages, queue.bytes);
                    self.fail(format!("{path} is told to hold {told:?} and holds {expected:?}"));
                }
            }
            (Question::Describe(..), Ok(Answer::Queue(_))) | (Question::List, Ok(Answer::Queues(_))) => {}
            (_, Err(_)) => {}
            _ => self.fail(format!("{question:?} got the answer to another question")),
        }
    }

    /// A client has read a message whole.
    pub fn read(&mut self, sent: &Sent, hash: u64, length: usize) {
        let front = sent.delivery.extra.as_ref().and_then(|extra| extra.parts.first());
        let Some(number) = self.ledger.numbers.get(front.unwrap_or(&sent.delivery.body)).copied() else {
            return;
        };
        let message = &self.messages[number];
        if (hash, length) != (message.hash, message.length as usize) {
            self.fail(format!("I3: message {number} is not what was sent"));
        }
        self.trace.add(&[hash]);
    }
}

/// An effect in few words.
fn told(outgoing: &Outgoing) -> String {
    let Outgoing::Deliver(sent) = outgoing else { return format!("{outgoing:?}") };
    let Delivery { sequence, token, count, locked_until, .. } = &sent.delivery;
    format!("Deliver {:?} to {:?}: {token:?}, count {count}, until {locked_until:?}", sequence, sent.link)
}

fn wrong_link(link: &Link, sent: &Sent, turn: u64) -> Option<&'static str> {
    let allowed = link.grants.iter().map(|(limit, _)| *limit).max().unwrap_or(0);
    match link.state {
        LinkState::Attaching => Some("delivered before its link was attached"),
        LinkState::Gone(since) if since < turn => Some("delivered to a link that is gone"),
        LinkState::Attached | LinkState::Gone(_) if link.delivered > allowed => {
            Some("delivered without credit")
        }
        _ if link.role != Role::Receiver(sent.mode) => Some("delivered in another mode than was asked"),
        _ => None,
    }
}

fn wrong_delivery(present: &Present, sent: &Sent) -> Option<&'static str> {
    let delivery = &sent.delivery;
    let overlay = delivery.extra.as_ref().and_then(|extra| extra.overlay.as_ref());
    if delivery.count != present.count {
        Some("I7: its count is not the number of failed deliveries")
    } else if delivery.enqueued != present.enqueued {
        Some("its enqueued time is not that of its batch")
    } else if delivery.length != present.length {
        Some("I3: its length is not what was stored")
    } else if overlay.is_some_and(|overlay| *overlay != present.overlay)
        || overlay.is_none() && !present.overlay.is_empty()
    {
        Some("I3: its changed properties are not those that were set")
    } else {
        None
    }
}
