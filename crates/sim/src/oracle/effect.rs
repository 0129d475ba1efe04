//! What leaves. An effect may say only what is committed, and only to whom it is due.

use super::expect::Due;
use super::forward::forwards;
use super::ledger::{Present, Queue};
use super::{Fate, Gone, Link, LinkState, Lock, Oracle, Role};
use broker::{
    ConnectionId, Delivery, EntityId, LinkId, LocalTime, LockToken, Notice, Outcome, ReceiveMode, Refusal,
    Sequence, Settled, State, StoredOverlay, SubQueue,
};
use engine::{Outgoing, Sent};
use message::Overlay;
use std::ops::RangeInclusive;
use std::sync::Arc;

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
            Outgoing::Notice(Notice::Rejected { link, delivery, refusal }) => {
                self.rejected(*link, *delivery, refusal)
            }
            Outgoing::Settled { link, first, last, outcome } => {
                (*first..=*last).for_each(|delivery| self.settled(*link, delivery, *outcome));
            }
            Outgoing::Notice(Notice::NotSettled { link, delivery, refusal }) => {
                self.not_settled(*link, *delivery, refusal)
            }
            Outgoing::Notice(Notice::PartTaken { link, length }) => {
                self.trace.add(&[9, u64::from(link.link), u64::from(*length)]);
            }
            Outgoing::Notice(Notice::Declared { link, delivery, transaction }) => {
                self.declared(*link, *delivery, *transaction);
            }
            Outgoing::Notice(Notice::Staged { link, delivery, outcome, .. }) => {
                self.staged(*link, *delivery, *outcome)
            }
            Outgoing::Deliver(sent) => self.delivered(sent),
            Outgoing::Notice(Notice::Drained { link }) => self.drained(*link),
            Outgoing::Notice(Notice::Attached { link, session, .. }) => {
                let may_wait = self.links.get(link).is_some_and(|link| link.wants == Some(None));
                if !may_wait {
                    self.answered(connection, |due| *due == Due::Attach(*link));
                }
                self.accepted_session(*link, session.as_deref());
                match self.links.get_mut(link) {
                    Some(link) if link.state == LinkState::Attaching => link.state = LinkState::Attached,
                    // The client changed its mind meanwhile.
                    Some(_) => {}
                    None => self.fail("a link was attached that nobody wanted"),
                }
            }
            Outgoing::Notice(Notice::Detached { link, refusal }) => self.detached(*link, refusal),
            Outgoing::Answered { request, answer, .. } => self.replied(*request, answer),
        }
        self.trace.add(&[u64::from(connection.0)]);
    }

    fn accepted(&mut self, link: LinkId, delivery: u32) {
        self.trace.add(&[1, u64::from(link.link), u64::from(delivery)]);
        if self.is_coordinator(link) {
            return self.discharged(link, delivery);
        }
        self.answered(link.connection, |due| *due == Due::Send(link, delivery));
        if let Some(rule) = self.must_refuse(link, delivery)
            // What falls out on its way is not looked at so closely.
            && !(rule == "NotAllowed" && self.is_transfer_dead(link, delivery))
        {
            self.fail(format!("delivery {delivery} was accepted against {rule}"));
        }
        self.taken(link, delivery);
    }

    /// A delivery was accepted, alone or with its transaction: that is durable.
    pub(super) fn taken(&mut self, link: LinkId, delivery: u32) {
        let Some(range) = self.deliveries.get(&(link, delivery)).cloned() else { return };
        let mut is_stored = true;
        for number in range {
            self.messages[number].fate = Fate::Accepted;
            let message = &self.messages[number];
            if message.place.is_some() || message.is_published {
                continue;
            }
            self.messages[number].is_dropped = self.may_be_dropped(number);
            if self.messages[number].is_dropped && self.is_at_topic(number) {
                self.coverage.variant("duplicate dropped at a topic");
            }
            if !self.messages[number].is_dropped && self.may_be_unwanted(number) {
                self.count_unwanted(number);
            } else {
                is_stored &= self.messages[number].is_dropped;
            }
        }
        if let Some(sender) = self.links.get(&link).filter(|link| link.destination.is_some())
            && let Some(entity) = self.ledger.find(&sender.queue)
        {
            let since = self.since(entity);
            if let Some(queue) = self.ledger.queues.get_mut(&entity) {
                queue.used = queue.used.max(since);
            }
        }
        if !is_stored {
            self.fail(format!("delivery {delivery} of {link:?} was accepted before it was durable"));
        }
    }

    fn rejected(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) {
        self.trace.add(&[2, u64::from(link.link), u64::from(delivery)]);
        if self.is_coordinator(link) {
            return self.coordinator_refused(link, delivery, refusal);
        }
        let within = self.send_refused_within(link, delivery, refusal);
        self.answered(link.connection, |due| *due == Due::Send(link, delivery));
        let rule = self.must_refuse(link, delivery);
        let is_right = within.unwrap_or_else(|| match refusal {
            Refusal::BatchTooLarge { .. } => rule == Some("BatchTooLarge"),
            Refusal::MessageTooLarge { .. } => rule == Some("MessageTooLarge"),
            Refusal::NotAllowed(_) => rule == Some("NotAllowed"),
            Refusal::EntityNotFound(_) => {
                self.links.get(&link).is_some_and(|link| self.may_lack_destination(link))
            }
            Refusal::EntityDisabled(_) => {
                let path = self.links.get(&link).map(|link| link.queue.clone()).unwrap_or_default();
                self.may_be_full(link) || self.went(&path)
            }
            // The queue on the way looks whether it is full before the destination looks at the messages.
            Refusal::QueueFull { .. } => {
                let is_via = self.links.get(&link).is_some_and(|link| link.destination.is_some());
                (rule.is_none() || is_via && rule == Some("NotAllowed")) && self.may_be_full(link)
            }
            Refusal::NoSpace => self.may_lack_room,
            _ => false,
        });
        let Some(range) = self.deliveries.get(&(link, delivery)).cloned() else { return };
        let messages = &mut self.messages[range];
        let is_stored = messages.iter().any(|message| message.place.is_some() || message.is_published);
        messages.iter_mut().for_each(|message| message.fate = Fate::Refused);
        if is_stored || !is_right {
            self.fail(format!("delivery {delivery} of {link:?} was wrongly refused: {refusal}"));
        }
    }

    fn settled(&mut self, link: LinkId, delivery: u32, outcome: Settled) {
        self.trace.add(&[3, u64::from(link.link), u64::from(delivery)]);
        let Some(token) = self.settlement(link, delivery) else { return };
        let Some(path) = self.links.get(&link).map(|link| link.queue.clone()) else { return };
        self.confirmed(&path, token, outcome);
    }

    /// A receiver was told how its settlement came out: that is durable.
    pub(super) fn confirmed(&mut self, path: &str, token: LockToken, outcome: Settled) {
        let sequence = token.sequence();
        let was_deleted = self
            .ledger
            .deleted
            .values()
            .any(|(turn, queue)| *turn == self.turn && queue.path.eq_ignore_ascii_case(path));
        // The message is found by its number; a queue that was deleted meanwhile took it along.
        let Some(entity) = self.ledger.find(path).filter(|_| !was_deleted) else { return };
        let present = self.ledger.queues.get(&entity).and_then(|queue| queue.present.get(&sequence));
        let is_done = match outcome {
            Settled::Completed => present.is_none(),
            Settled::Deferred => {
                present.is_none_or(|present| present.state == State::Deferred || !present.is_main())
            }
            Settled::DeadLettered => present.is_none_or(|present| present.sub == SubQueue::DeadLetter),
            Settled::Abandoned | Settled::Released => true,
        };
        if !is_done {
            self.fail(format!("{sequence:?} was confirmed as {outcome:?} before it was"));
        }
        if let (Settled::Completed, Some(removed)) = (outcome, self.ledger.removed.get(&(entity, sequence))) {
            self.messages[removed.message].is_confirmed = true;
        }
    }

    fn not_settled(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) {
        self.trace.add(&[4, u64::from(link.link), u64::from(delivery)]);
        let Some(token) = self.settlement(link, delivery) else { return };
        let is_within = self.settle_refused_within(link, delivery, refusal);
        if *refusal == Refusal::Unreadable && !self.may_not_read {
            self.fail(format!("{:?} is called unreadable on a disk that works", token.sequence()));
        }
        let (Refusal::LockLost(_) | Refusal::SessionLockLost) = refusal else { return };
        // A lock that was never used and has not ended is not lost.
        let entity = self.links.get(&link).and_then(|link| self.ledger.find(&link.queue));
        let Some(now) = entity.map(|entity| self.here(entity)) else { return };
        let lock = entity.and_then(|entity| self.locks.get(&(entity, token.sequence())));
        // Within a transaction it is asked for with the commit.
        let (asked, claims) = if is_within { (0, 1) } else { (1, 0) };
        let is_held = lock.filter(|lock| lock.token == token).is_some_and(|lock| {
            !lock.is_hazy
                && now < lock.until
                && lock.returned.is_none()
                && lock.asked.len() <= asked
                && !self.may_be_claimed(lock, claims)
        });
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
        let (path, sub, holds) = (link.queue.clone(), link.sub, link.holds.clone());
        let Some(entity) = self.whose(delivery, &path) else { return };
        if let Some(what) = self.wrong_session(entity, delivery, sent, holds.as_ref(), sub) {
            return self.fail(what);
        }
        self.delivering = Some(sent.link);
        self.given(entity, delivery, sent.mode, sub, State::Active);
        self.delivering = None;
    }

    /// The queue of a message that is shown to somebody.
    pub(super) fn whose(&mut self, delivery: &Delivery, path: &str) -> Option<EntityId> {
        let front = delivery.extra.as_ref().and_then(|extra| extra.parts.first());
        let Some(root) = self.ledger.numbers.get(front.unwrap_or(&delivery.body)).copied() else {
            self.fail(format!("I3: {:?} was shown and not stored", delivery.sequence));
            return None;
        };
        let family = || [root].into_iter().chain(self.messages[root].copies.iter().copied());
        let is_at = |number: &usize, is_it: &dyn Fn(EntityId) -> bool| {
            let message = &self.messages[*number];
            let is_place = |(entity, sequence)| sequence == delivery.sequence && is_it(entity);
            message.place.is_some_and(is_place) && *message.path == *path
        };
        // A queue of that name that is gone may have had another copy under the same number.
        let now = self.ledger.find(path);
        let number = family().find(|number| is_at(number, &|entity| Some(entity) == now));
        let number = number.or_else(|| family().find(|number| is_at(number, &|_| true)));
        let is_elsewhere = number.is_none();
        let message = &mut self.messages[number.unwrap_or(root)];
        message.delivered += 1;
        let is_confirmed = message.is_confirmed;
        if self.is_blurred
            && is_elsewhere
            && let Some(entity) = self.ledger.find(path)
            && self.ledger.moved.get(&(entity, delivery.sequence)) == Some(&root)
        {
            // It waited behind an append for so long that it was forwarded meanwhile.
            self.coverage.fault("delivery outlived by its wait");
            return None;
        }
        let Some((entity, sequence)) = message.place else {
            self.fail(format!("{:?} was shown before it was durable", delivery.sequence));
            return None;
        };
        if is_elsewhere {
            let path = message.path.clone();
            self.fail(format!("{sequence:?} of {path} was shown as {:?}", delivery.sequence));
            return None;
        }
        if is_confirmed {
            self.fail(format!("I2: {sequence:?} was completed and is shown again"));
            return None;
        }
        Some(entity)
    }

    pub(super) fn given(
        &mut self,
        entity: EntityId,
        delivery: &Delivery,
        mode: ReceiveMode,
        sub: SubQueue,
        state: State,
    ) {
        let sequence = delivery.sequence;
        let turn = self.turn;
        let (began, now) = (self.since(entity), self.here(entity));
        let session = self.ledger_session(entity, sequence);
        let shown = self.ledger.changes_of(delivery);
        let queue = match self.ledger.queues.get_mut(&entity) {
            Some(queue) => queue,
            None => match self.ledger.deleted.get_mut(&entity) {
                Some((when, queue)) if *when == turn => queue,
                _ => return self.fail(format!("{sequence:?} of a deleted queue was delivered")),
            },
        };
        queue.used = queue.used.max(began);
        queue.is_touched = true;
        if state == State::Active && queue.did_forward[sub as usize] && forwards(&queue.settings, sub) {
            let path = queue.path.to_lowercase();
            if !self.is_updating(&path) && !self.went(&path) {
                return self
                    .fail(format!("{sequence:?} of {path} was received and is to be forwarded (S-172)"));
            }
        }
        let queue = match self.ledger.queues.get_mut(&entity) {
            Some(queue) => queue,
            None => &mut self.ledger.deleted.get_mut(&entity).expect("it was there a moment ago").1,
        };
        if state == State::Active {
            let newest = newest_of(queue, sub, session.as_ref());
            *newest = sequence.max(*newest);
        }
        let deleted = self.ledger.deleted.get(&entity).map(|(_, queue)| queue);
        let queue = self.ledger.queues.get(&entity).or(deleted).expect("it was there a moment ago");
        let number = queue.number(sequence);
        let removed = self.ledger.removed.get(&(entity, sequence));
        let present = match mode {
            ReceiveMode::PeekLock => queue.present.get(&sequence),
            // A queue that was deleted in the same turn keeps what was not removed before.
            ReceiveMode::ReceiveAndDelete => removed,
        };
        let was_let_go = self.was_let_go(entity, session.as_ref(), removed.map(|removed| &**removed));
        if present.is_none() && removed.is_some() && (self.is_blurred || was_let_go) {
            return self.coverage.fault("delivery outlived by its wait");
        }
        let Some(present) = present else {
            return self.fail(format!("{sequence:?} was delivered and is not there"));
        };
        let is_late = self.is_blurred
            && (delivery.count + 1 == present.count || present.sub != sub || present.state != state);
        if is_late {
            // It waited behind an append for longer than its lock lasted. The token is worth nothing.
            return self.coverage.fault("delivery outlived by its wait");
        }
        let decided = decided_at(queue, delivery, mode, sub, began..=now);
        let Some(decided) = decided else {
            let until = delivery.locked_until;
            return self.fail(format!("{sequence:?} is locked until {until:?} at {now:?}"));
        };
        let wrong = [
            (delivery.number == number, "its number is not that of its partition"),
            (present.sub == sub, "it was delivered from another sub-queue"),
            (present.state == state && delivery.state == state, "its state is another"),
            (!present.is_mortal() || decided < present.expires, "I8: it was delivered after it had expired"),
        ];
        let wrong = wrong.into_iter().find(|(is_right, _)| !is_right).map(|(_, what)| what);
        if let Some(what) = wrong.or_else(|| wrong_delivery(shown.as_ref(), present, delivery)) {
            return self.fail(format!("{sequence:?}: {what}"));
        }
        // A queue that went in this turn has taken its locks along.
        if mode == ReceiveMode::ReceiveAndDelete || self.ledger.deleted.contains_key(&entity) {
            return;
        }
        if self.is_blurred && delivery.locked_until.is_some_and(|until| until <= now) {
            self.coverage.fault("delivery outlived by its wait");
        }
        self.locked(entity, delivery);
    }

    /// A receiver that leaves a session holds none of its messages any more, and may have them deleted at once.
    fn was_let_go(&self, entity: EntityId, session: Option<&Arc<str>>, removed: Option<&Present>) -> bool {
        let is_purged = |removed: &Present| self.messages[removed.message].gone == Some(Gone::Purged);
        let holding = session.and_then(|session| self.holdings.get(&(entity, Arc::clone(session))));
        let has_left = holding.is_some_and(|holding| holding.left == Some(self.turn));
        has_left && removed.is_some_and(is_purged)
    }

    fn locked(&mut self, entity: EntityId, delivery: &Delivery) {
        let sequence = delivery.sequence;
        if !self.tokens.insert(delivery.token.0) {
            return self.fail(format!("the token of {sequence:?} was used before"));
        }
        let Some(until) = delivery.locked_until else { return };
        let session = self.session_lock(entity, sequence);
        let holding = session.as_ref().and_then(|id| self.holdings.get(&(entity, id.clone())));
        // Somebody else may have the session by the time at which its last holder hears of a message.
        let vacated = holding.and_then(|holding| match self.delivering {
            Some(link) if link != holding.link => Some(self.turn),
            _ => holding.left,
        });
        let lock = Lock {
            token: delivery.token,
            until,
            // Time stands still in a batch that waits for the disk, and with it the locks that are given out.
            is_hazy: vacated.is_some() || self.is_blurred && until <= self.here(entity),
            renewals: 0,
            renewed: 0,
            asked: Vec::new(),
            claims: Vec::new(),
            returned: None,
            session,
            vacated,
        };
        let Some(before) = self.locks.insert((entity, sequence), lock) else { return };
        let is_released = before.asked.contains(&Outcome::Release);
        if before.returned.is_none() && !is_released && !before.is_hazy {
            self.fail(format!("I5: {sequence:?} was delivered while it is locked"));
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
        let (before, sub) = (link.state, link.sub);
        let path = link.queue.clone();
        link.state = LinkState::Gone(self.turn);
        // Whatever it had is not certain to be locked any more.
        self.vacate(id, self.turn);
        if before == LinkState::Attached {
            // Its queue is gone, or may not be received from any more.
            let went = |(turn, queue): &(u64, super::ledger::Queue)| {
                *turn == self.turn && queue.path.eq_ignore_ascii_case(&path)
            };
            // S-172, S-230. Nothing is forwarded from where messages are that fell out on their way.
            let is_closed = match refusal {
                Refusal::EntityDisabled(_) => true,
                Refusal::NotAllowed(_) => sub != SubQueue::TransferDeadLetter,
                _ => false,
            };
            let is_disabled = is_closed && self.is_updating(&path);
            let is_over = matches!(refusal, Refusal::SessionLockLost) && self.is_holding_over(id);
            if !is_over && !is_disabled && !self.ledger.deleted.values().any(went) {
                self.fail(format!("{id:?} was detached though its queue is there: {refusal}"));
            }
        } else if let Some(expected) = self.expected.get(&id.connection)
            && expected.iter().any(|each| each.due == Due::Attach(id))
        {
            self.answered(id.connection, |due| *due == Due::Attach(id));
        }
        self.void(id);
    }

    /// A client has read a message whole.
    pub fn read(&mut self, delivery: &Delivery, hash: u64, length: usize) {
        let front = delivery.extra.as_ref().and_then(|extra| extra.parts.first());
        let Some(number) = self.ledger.numbers.get(front.unwrap_or(&delivery.body)).copied() else {
            return;
        };
        let message = &self.messages[number];
        if (hash, length) != (message.hash, message.length as usize) {
            self.fail(format!("I3: message {number} is not what was sent"));
        }
        self.trace.add(&[hash]);
    }

    /// A client has read what was changed of a message.
    pub fn read_changes(&mut self, delivery: &Delivery, stored: &[u8]) {
        let Some(StoredOverlay { body, .. }) = delivery.stored_overlay() else { return };
        if Overlay::decode(stored).ok().as_ref() != self.ledger.overlays.get(&body.0) {
            self.fail(format!("I3: what was changed of {:?} is not what was stored", delivery.sequence));
        }
        self.coverage.variant("stored changes read");
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

/// The newest message that was handed out in this turn, where one of a session counts for that session alone.
fn newest_of<'a>(queue: &'a mut Queue, sub: SubQueue, session: Option<&Arc<str>>) -> &'a mut Sequence {
    match session {
        Some(session) if sub == SubQueue::Main && queue.settings.requires_session => {
            queue.newest_by_session.entry(Arc::clone(session)).or_default()
        }
        _ => &mut queue.newest_in_turn[sub as usize],
    }
}

/// When a delivery was decided, of the times that it may have been: in this turn, or just before an append that it had to
/// wait for. None, if its lock ends when no lock of that queue does.
fn decided_at(
    queue: &Queue,
    delivery: &Delivery,
    mode: ReceiveMode,
    sub: SubQueue,
    turn: RangeInclusive<LocalTime>,
) -> Option<LocalTime> {
    match delivery.locked_until {
        _ if mode == ReceiveMode::ReceiveAndDelete => Some(*turn.start()),
        // It is locked with its session, whose time began before.
        Some(_) if sub == SubQueue::Main && queue.settings.requires_session => Some(*turn.start()),
        Some(until) => {
            let times = queue.durations.iter().map(|duration| LocalTime(until.0 - duration.0 as i64));
            times.filter(|decided| turn.contains(decided)).min()
        }
        None => None,
    }
}

/// What is wrong with a message that shows these changes.
pub(super) fn wrong_delivery(
    changes: Option<&Overlay>,
    present: &Present,
    delivery: &Delivery,
) -> Option<&'static str> {
    if delivery.count != present.count {
        Some("I7: its count is not the number of failed deliveries")
    } else if delivery.enqueued != present.enqueued {
        Some("its enqueued time is not that of its batch")
    } else if delivery.first != present.travelled.first {
        Some("S-36: it shows another first number")
    } else if delivery.length != present.length {
        Some("I3: its length is not what was stored")
    } else if delivery.expires != present.expires {
        Some("I8: it shows another time at which it expires")
    } else if changes != Some(&present.shown()) {
        Some("I3: its changed properties are not those that were set")
    } else {
        None
    }
}
