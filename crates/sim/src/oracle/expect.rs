//! What clients submit, and the answers that are due for it: one for each, in the order in which they were asked.
//!
//! A command on a link that is not attached is not answered. A settlement that changes properties may have to read
//! the disk first and is then answered late, and so may a drain, for what is received and deleted is read before; nothing
//! else may be overtaken.

use super::ledger::{Ledger, Queue, split};
use super::topic::Figures;
use super::{Fate, Link, LinkState, Lock, Message, Oracle, Role, asker};
use crate::rules::Meaning;
use crate::workload::SESSIONS;
use broker::limits::BATCH_MESSAGES;
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::{
    ConnectionId, EntityId, LinkId, LocalTime, LockToken, NamespaceId, Number, Outcome, QueueSettings,
    ReceiveMode, RequestId, Sequence, Span, SubQueue, Tier,
};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    Attach(LinkId),
    Send(LinkId, u32),
    Settle(LinkId, u32, LockToken),
    Drain(LinkId),
    Declare(LinkId, u32),
    Discharge(LinkId, u32),
    Question(u32),
}

#[derive(Debug)]
pub(super) struct Expected {
    pub(super) due: Due,
    /// Nobody answers: the link was gone when the command came.
    is_void: bool,
    may_be_late: bool,
}

impl Due {
    fn link(&self) -> Option<LinkId> {
        match self {
            Due::Attach(link)
            | Due::Send(link, _)
            | Due::Settle(link, ..)
            | Due::Drain(link)
            | Due::Declare(link, _)
            | Due::Discharge(link, _) => Some(*link),
            Due::Question(_) => None,
        }
    }
}

/// A message about to be sent.
#[derive(Debug)]
pub struct NewMessage {
    pub parts: Vec<u64>,
    pub hash: u64,
    pub length: u32,
    pub time_to_live: Span,
    /// When it is to be enqueued; earlier than any time, if at once.
    pub scheduled: LocalTime,
    /// Its keys contradict each other (S-7).
    pub keys_differ: bool,
    pub session: Option<Arc<str>>,
    /// By which its sender knows it; zero without one (S-160).
    pub id: u64,
    /// Its partition key; zero without one (S-162).
    pub partition: u64,
}

impl NewMessage {
    /// A message of which nothing but its length matters.
    pub fn blank(length: u32) -> NewMessage {
        let (time_to_live, scheduled) = (Span::MAX, LocalTime::AT_ONCE);
        NewMessage {
            parts: Vec::new(),
            hash: 0,
            length,
            time_to_live,
            scheduled,
            keys_differ: false,
            id: 0,
            partition: 0,
            session: None,
        }
    }
}

/// What was asked about entities and their messages. Paths are folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    Create(String),
    Update(String, Box<QueueSettings>),
    Delete(String),
    /// With the figures that the answer must show, if the asker knows them.
    Describe(String, Option<Figures>),
    List,
    Settle(String, Vec<LockToken>, Outcome),
    /// The same, and scheduling, within a transaction.
    SettleWithin(String, Vec<LockToken>, Outcome),
    ScheduleWithin(String, LinkId, u32),
    Renew(String, Vec<LockToken>),
    /// The link and delivery under which its messages are known.
    Schedule(String, LinkId, u32),
    Cancel(String, Vec<Number>),
    Deferred(String, Vec<Number>, ReceiveMode),
    /// From a number on, so many; and what must be seen, if the asker knows it.
    Browse(String, Number, u32, Option<Vec<Sequence>>),
    Purge(String, u32, LocalTime),
    RenewSession(String, Arc<str>),
    GetState(String, Arc<str>),
    /// With the hash of the state and its length, unless it is to be cleared.
    SetState(String, Arc<str>, Option<(u64, u32)>),
    Sessions(String),
    CreateTopic(String, Box<TopicSettings>),
    UpdateTopic(String, Box<TopicSettings>),
    /// The path of a subscription, with the name and the meaning of its first rule.
    Subscribe(String, Box<SubscriptionSettings>, Option<(String, Meaning)>),
    Resubscribe(String, Box<SubscriptionSettings>),
    Unsubscribe(String),
    PutRule(String, String, Meaning),
    DropRule(String, String),
    Rule(String, String),
    /// All rules of a subscription, from one on, so many; and likewise subscriptions and topics.
    Rules(String, usize, usize),
    Subscriptions(String, usize, usize),
    Topics(usize, usize),
    NameNamespace(&'static str),
    TellTime(NamespaceId),
    /// Moves the time of a namespace.
    Advance(NamespaceId, Span),
}

impl Question {
    /// The queue it is about.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Question::Create(path)
            | Question::Update(path, _)
            | Question::Delete(path)
            | Question::Describe(path, _)
            | Question::Settle(path, ..)
            | Question::SettleWithin(path, ..)
            | Question::Renew(path, _)
            | Question::Schedule(path, ..)
            | Question::ScheduleWithin(path, ..)
            | Question::Cancel(path, _)
            | Question::Deferred(path, ..)
            | Question::Browse(path, ..)
            | Question::RenewSession(path, _)
            | Question::GetState(path, _)
            | Question::SetState(path, ..)
            | Question::Sessions(path)
            | Question::CreateTopic(path, _)
            | Question::UpdateTopic(path, _)
            | Question::Subscribe(path, ..)
            | Question::Resubscribe(path, _)
            | Question::Unsubscribe(path)
            | Question::PutRule(path, ..)
            | Question::DropRule(path, _)
            | Question::Rule(path, _)
            | Question::Rules(path, ..)
            | Question::Subscriptions(path, ..)
            | Question::Purge(path, ..) => Some(path),
            Question::List
            | Question::Topics(..)
            | Question::NameNamespace(_)
            | Question::TellTime(_)
            | Question::Advance(..) => None,
        }
    }

    /// Whether this counts as use of the queue unless it is refused (S-71).
    pub(super) fn uses(&self) -> bool {
        !matches!(
            self,
            Question::Create(_)
                | Question::CreateTopic(..)
                | Question::Describe(..)
                | Question::DropRule(..)
                | Question::Rule(..)
                | Question::Rules(..)
                | Question::Subscriptions(..)
        )
    }

    fn is_about(&self, entity: EntityId, sub: SubQueue, ledger: &Ledger) -> bool {
        self.path().is_some_and(|path| ledger.find(path) == Some(entity) && split(path).1 == sub)
    }

    /// Whether it names a message by its number.
    pub(super) fn names(&self, entity: EntityId, sub: SubQueue, number: Number, ledger: &Ledger) -> bool {
        match self {
            Question::Cancel(_, numbers) | Question::Deferred(_, numbers, _) => {
                numbers.contains(&number) && self.is_about(entity, sub, ledger)
            }
            _ => false,
        }
    }

    /// Whether it deletes messages of that age.
    pub(super) fn deletes(
        &self,
        entity: EntityId,
        sub: SubQueue,
        enqueued: LocalTime,
        ledger: &Ledger,
    ) -> bool {
        matches!(self, Question::Purge(_, _, before) if enqueued < *before)
            && self.is_about(entity, sub, ledger)
    }
}

impl Oracle {
    pub fn connected(&mut self, connection: ConnectionId) {
        self.expected.insert(connection, VecDeque::new());
    }

    pub fn disconnected(&mut self, connection: ConnectionId) {
        self.forget(connection);
        let turn = self.coming();
        let mut untold = Vec::new();
        for question in
            self.questions.range((connection, 0)..=(connection, u32::MAX)).map(|(_, asked)| &asked.1)
        {
            if let Question::Deferred(path, ..) = question {
                untold.extend(self.ledger.find(path));
            }
        }
        for (_, link) in self.links.range_mut(links_of(connection)) {
            link.state = LinkState::Gone(turn);
            if let Role::Receiver(_) = link.role {
                untold.extend(self.ledger.find(&link.queue));
            }
        }
        untold.into_iter().for_each(|entity| self.add_untold_locks(entity));
        let held: Vec<LinkId> = self.links.range(links_of(connection)).map(|(id, _)| *id).collect();
        held.into_iter().for_each(|link| self.vacate(link, turn));
        self.connection_left(connection, turn);
    }

    /// Nobody is there to be answered: the sender does not know what became of it.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        for expected in self.expected.remove(&connection).into_iter().flatten() {
            if let Due::Send(link, delivery) = expected.due {
                let range = self.deliveries[&(link, delivery)].clone();
                self.messages[range].iter_mut().for_each(|message| message.fate = Fate::Unknown);
            }
        }
    }

    pub(super) fn expect(&mut self, connection: ConnectionId, due: Due, may_be_late: bool) {
        let is_void = due.link().is_some_and(|link| !self.is_here(link));
        if is_void {
            self.coverage.fault("peer on a link that is gone");
        }
        if let Some(expected) = self.expected.get_mut(&connection) {
            expected.push_back(Expected { due, is_void, may_be_late });
        }
    }

    /// Attached, or about to be.
    fn is_here(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| !matches!(link.state, LinkState::Gone(_)))
    }

    pub fn attach(&mut self, id: LinkId, path: &str, role: Role) {
        self.attach_for(id, path, role, None);
    }

    /// Attaches a sender whose messages go on to another entity (S-114).
    pub fn attach_via(&mut self, id: LinkId, path: &str, destination: &str) {
        self.attach(id, path, Role::Sender);
        if let Some(link) = self.links.get_mut(&id) {
            link.destination = Some(destination.to_lowercase().into());
        }
    }

    /// Attaches a link that wants a session, if it does: that one, or whichever is free.
    pub fn attach_for(&mut self, id: LinkId, path: &str, role: Role, wants: Option<Option<Arc<str>>>) {
        let state = LinkState::Attaching;
        let (queue, sub) = split(path);
        let path = path.to_lowercase().into();
        let link = Link {
            path,
            destination: None,
            queue: queue.into(),
            sub,
            role,
            state,
            was_waiting: false,
            delivered: 0,
            grants: VecDeque::new(),
            wants,
            holds: None,
        };
        // A receiver that takes any session may wait for ever.
        let may_wait = link.wants == Some(None);
        self.links.insert(id, link);
        if !may_wait {
            self.expect(id.connection, Due::Attach(id), false);
        }
    }

    pub fn detach(&mut self, link: LinkId) {
        let turn = self.coming();
        self.vacate(link, turn);
        self.coordinator_left(link, turn);
        if let Some(link) = self.links.get_mut(&link) {
            link.state = LinkState::Gone(turn);
        }
    }

    /// A delivery of messages; the first of them gets the number that is returned by [`Oracle::next_message`].
    pub fn send(&mut self, link: LinkId, delivery: u32, is_settled: bool, messages: Vec<NewMessage>) {
        let path = self.destination_of(link);
        let is_void = !self.is_here(link);
        let first = self.messages.len();
        self.deliveries.insert((link, delivery), first..first + messages.len());
        for (number, told) in (first..).zip(messages) {
            self.messages.push(Message::new(number, link, delivery, path.clone(), told));
        }
        self.expect_send(link, delivery, is_settled, is_void);
    }

    /// Where the messages of a link go. One that is on their way is used by them.
    fn destination_of(&mut self, link: LinkId) -> Arc<str> {
        let Some(sender) = self.links.get(&link) else { return Arc::default() };
        let path = sender.destination.as_ref().unwrap_or(&sender.path).clone();
        if sender.destination.is_some() {
            self.touch_link(link);
        }
        path
    }

    /// Takes a number for a message that will be sent later.
    pub fn reserve(&mut self) -> usize {
        let number = self.messages.len();
        self.messages.push(Message::new(number, LinkId::default(), 0, Arc::default(), NewMessage::blank(0)));
        number
    }

    /// A delivery of the one message that a number was taken for.
    pub fn send_reserved(&mut self, link: LinkId, delivery: u32, number: usize, told: NewMessage) {
        let path = self.destination_of(link);
        self.deliveries.insert((link, delivery), number..number + 1);
        self.messages[number] = Message::new(number, link, delivery, path, told);
        self.expect_send(link, delivery, false, !self.is_here(link));
    }

    /// Messages that are sent by a question. They are known by a link that does not exist.
    pub fn send_by_question(&mut self, request: RequestId, path: &str, messages: Vec<NewMessage>) {
        let link = LinkId { connection: request.connection, link: u32::MAX };
        let first = self.messages.len();
        self.deliveries.insert((link, request.request), first..first + messages.len());
        let folded: Arc<str> = path.to_lowercase().into();
        for (number, told) in (first..).zip(messages) {
            self.messages.push(Message::new(number, link, request.request, folded.clone(), told));
        }
        self.ask(request, Question::Schedule(path.to_lowercase(), link, request.request));
    }

    fn expect_send(&mut self, link: LinkId, delivery: u32, is_settled: bool, is_void: bool) {
        let is_within = self.is_within();
        if is_within {
            self.send_within(link, delivery);
        }
        if !is_settled {
            self.expect(link.connection, Due::Send(link, delivery), false);
        } else if !is_void && !is_within {
            self.settled_sends.push((link, delivery));
        }
        if !is_settled && !is_void {
            let range = self.deliveries[&(link, delivery)].clone();
            self.messages[range].iter_mut().for_each(|message| message.fate = Fate::Waiting);
        }
    }

    pub fn next_message(&self) -> usize {
        self.messages.len()
    }

    pub fn credit(&mut self, link: LinkId, limit: u64, drain: bool) {
        self.touch_link(link);
        if let Some(link) = self.links.get_mut(&link) {
            link.grants.push_back((limit, drain));
        }
        if drain {
            self.expect(link.connection, Due::Drain(link), true);
        }
    }

    pub fn settle(
        &mut self,
        link: LinkId,
        delivery: u32,
        token: LockToken,
        outcome: &Outcome,
        wants_answer: bool,
    ) {
        self.touch_link(link);
        if self.is_within() {
            self.settle_within(link, delivery, token, outcome);
        } else if self.is_here(link)
            && let Some(lock) = self.lock_of(link, token)
        {
            lock.asked.push(outcome.clone());
        }
        if wants_answer {
            let may_be_late = is_changing(outcome);
            self.expect(link.connection, Due::Settle(link, delivery, token), may_be_late);
        }
    }

    fn touch_link(&mut self, link: LinkId) {
        if let Some(link) = self.links.get(&link)
            && let Some(entity) = self.ledger.find(&link.queue)
            && let Some(queue) = self.ledger.queues.get_mut(&entity)
        {
            queue.is_touched = true;
        }
    }

    pub fn ask(&mut self, request: RequestId, question: Question) {
        let question = match question {
            Question::Settle(path, tokens, outcome) if self.is_within() => {
                Question::SettleWithin(path, tokens, outcome)
            }
            Question::Schedule(path, link, delivery) if self.is_within() => {
                Question::ScheduleWithin(path, link, delivery)
            }
            other => other,
        };
        if self.is_within() {
            self.ask_within(request, &question);
        }
        let entity = question.path().and_then(|path| self.ledger.find(path));
        if let Some(queue) = entity.and_then(|entity| self.ledger.queues.get_mut(&entity)) {
            queue.is_touched = true;
            match &question {
                Question::Update(_, settings) => queue.durations.push(settings.lock_duration),
                Question::Resubscribe(_, settings) => queue.durations.push(settings.lock_duration),
                _ => {}
            }
        }
        let mut may_be_late = false;
        match &question {
            // A change of what a topic has is a use of the topic.
            Question::Subscribe(path, ..) | Question::Unsubscribe(path) => {
                let topic = path.split("/subscriptions/").next().and_then(|topic| self.ledger.find(topic));
                if let Some(topic) = topic.and_then(|topic| self.ledger.queues.get_mut(&topic)) {
                    topic.is_touched = true;
                }
            }
            Question::Advance(namespace, by) => self.clocks.asked(*namespace, *by),
            Question::Create(path) => drop(self.creations.insert(path.to_lowercase())),
            // What is removed before it leaves is read first.
            Question::Deferred(_, _, mode) => may_be_late = *mode == ReceiveMode::ReceiveAndDelete,
            Question::SettleWithin(_, _, outcome) => may_be_late = is_changing(outcome),
            Question::Settle(_, tokens, outcome) => {
                may_be_late = is_changing(outcome);
                for token in tokens {
                    if let Some(lock) = entity.and_then(|entity| self.lock_at(entity, *token)) {
                        lock.asked.push(outcome.clone());
                    }
                }
            }
            Question::Renew(_, tokens) => {
                for token in tokens {
                    if let Some(lock) = entity.and_then(|entity| self.lock_at(entity, *token)) {
                        lock.renewals += 1;
                    }
                }
            }
            Question::RenewSession(_, session) => {
                if let Some(entity) = entity {
                    self.renewing(entity, session);
                }
            }
            _ => {}
        }
        self.asked.push(question.clone());
        self.questions_asked += 1;
        self.questions.insert(asker(request), (self.questions_asked, question));
        self.expect(request.connection, Due::Question(request.request), may_be_late);
    }

    /// An answer came: nothing that had to come before it is missing.
    pub(super) fn answered(&mut self, connection: ConnectionId, due: impl Fn(&Due) -> bool) -> Option<Due> {
        let expected = self.expected.get_mut(&connection)?;
        let Some(at) = expected.iter().position(|each| due(&each.due)) else {
            self.fail("an answer came that nobody waits for, or twice");
            return None;
        };
        let answered = expected.remove(at)?;
        let overtaken = expected.iter().take(at).find(|each| !each.is_void && !each.may_be_late);
        if let Some(overtaken) = overtaken {
            let what = format!("{:?} was answered before {:?}", answered.due, overtaken.due);
            self.fail(what);
        }
        Some(answered.due)
    }

    /// A link that was refused or taken away is not answered any more.
    pub(super) fn void(&mut self, link: LinkId) {
        let Some(expected) = self.expected.get_mut(&link.connection) else { return };
        for each in expected.iter_mut().filter(|each| each.due.link() == Some(link)) {
            each.is_void = true;
            if let Due::Send(link, delivery) = each.due {
                let range = self.deliveries[&(link, delivery)].clone();
                self.messages[range].iter_mut().for_each(|message| message.fate = Fate::Unknown);
            }
        }
    }

    pub(super) fn end_expectations(&mut self) {
        let mut missing = None;
        let links = &self.links;
        let is_gone = |due: &Due| {
            let state = due.link().and_then(|link| links.get(&link)).map(|link| link.state);
            matches!(state, Some(LinkState::Gone(_)))
        };
        for expected in self.expected.values_mut().filter(|expected| !expected.is_empty()) {
            // A late answer may find its link gone.
            expected.retain(|each| !(each.is_void || each.may_be_late && is_gone(&each.due)));
            missing = missing.or_else(|| expected.pop_front());
        }
        if let Some(missing) = missing {
            self.fail(format!("{:?} was not answered", missing.due));
        }
        self.end_links();
    }

    fn end_links(&mut self) {
        let (mut connection, mut is_connected) = (None, false);
        for (id, link) in &mut self.links {
            if connection != Some(id.connection) {
                connection = Some(id.connection);
                is_connected = self.expected.contains_key(&id.connection);
            }
            if !is_connected {
                continue;
            }
            // Everything was decided, so only the last word on credit counts, unless it was a drain.
            if link.grants.len() > 1 {
                link.grants.drain(..link.grants.len() - 1);
            }
            let is_given = |(limit, is_drain): &(u64, bool)| !is_drain && *limit > link.delivered;
            link.was_waiting = link.state == LinkState::Attached && link.grants.back().is_some_and(is_given);
        }
    }

    /// Nobody is told about a settled send, but it is stored all the same, unless a rule forbids it.
    pub(super) fn end_settled_sends(&mut self) {
        for (link, delivery) in std::mem::take(&mut self.settled_sends) {
            let is_attached = self.links.get(&link).is_some_and(|link| link.state == LinkState::Attached);
            let mut numbers = self.deliveries.get(&(link, delivery)).cloned().unwrap_or_default();
            let is_lost = numbers.any(|number| {
                let message = &self.messages[number];
                let is_stored = message.place.is_some() || message.is_published;
                !is_stored && !self.may_be_dropped(number) && !self.may_be_unwanted(number)
            });
            let may_lack = self.links.get(&link).is_some_and(|link| self.may_lack_destination(link));
            let may_refuse = self.must_refuse(link, delivery).is_some() || self.may_be_full(link) || may_lack;
            if is_lost && is_attached && !may_refuse {
                self.fail(format!("settled send {delivery} of {link:?} was not stored"));
            }
        }
    }

    /// The lock that a token names on the queue of a link.
    pub(super) fn lock_of(&mut self, link: LinkId, token: LockToken) -> Option<&mut Lock> {
        let entity = self.ledger.find(&self.links.get(&link)?.queue)?;
        self.lock_at(entity, token)
    }

    pub(super) fn lock_at(&mut self, entity: EntityId, token: LockToken) -> Option<&mut Lock> {
        self.locks.get_mut(&(entity, token.sequence())).filter(|lock| lock.token == token)
    }

    /// Whether somebody has waited for messages of a queue since before this turn (S-74).
    pub(super) fn is_awaited(&self, path: &str) -> bool {
        self.links.values().any(|link| {
            *link.queue == *path
                && link.state == LinkState::Attached
                && link.was_waiting
                // A drain in this turn has left it none.
                && !link.grants.is_empty()
                && link.grants.iter().all(|(limit, is_drain)| !is_drain && *limit > link.delivered)
        })
    }

    /// Whether somebody receives without locks from this sub-queue, or did in this turn.
    pub(super) fn has_taker(&self, entity: EntityId, sub: SubQueue) -> bool {
        let Some(queue) = self.ledger.queues.get(&entity) else { return false };
        self.links.values().any(|link| {
            link.role == Role::Receiver(ReceiveMode::ReceiveAndDelete)
                && link.sub == sub
                && link.queue.eq_ignore_ascii_case(&queue.path)
                && match link.state {
                    LinkState::Gone(turn) => turn >= self.turn,
                    LinkState::Attaching | LinkState::Attached => true,
                }
        })
    }

    /// Whether somebody asks for other settings of a queue.
    pub(super) fn is_updating(&self, path: &str) -> bool {
        self.asked.iter().any(|question| match question {
            Question::Update(of, _) | Question::UpdateTopic(of, _) | Question::Resubscribe(of, _) => {
                of.as_str() == path
            }
            _ => false,
        })
    }

    pub(super) fn of_delivery(&self, link: LinkId, delivery: u32) -> &[Message] {
        self.deliveries.get(&(link, delivery)).map_or(&[], |range| &self.messages[range.clone()])
    }

    /// Whether the link's queue takes only messages of sessions, and one has none (S-20).
    fn lacks_session(&self, link: LinkId, messages: &[Message]) -> bool {
        let sender = self.links.get(&link);
        let path = sender.map(|link| link.destination.as_ref().unwrap_or(&link.path));
        path.is_some_and(|path| **path == *SESSIONS)
            && messages.iter().any(|message| message.session.is_none())
    }

    /// Bytes of the largest message that is taken (S-17).
    fn largest_message(&self) -> u64 {
        match self.tier {
            Tier::Basic | Tier::Standard => 256 * 1_024,
            Tier::Premium | Tier::Unlimited => 1_024 * 1_024,
        }
    }

    /// The rule by which a delivery must be refused, if there is one.
    pub(super) fn must_refuse(&self, link: LinkId, delivery: u32) -> Option<&'static str> {
        let messages = self.of_delivery(link, delivery);
        let bytes: u64 = messages.iter().map(|message| u64::from(message.length)).sum();
        if messages.len() > BATCH_MESSAGES {
            Some("BatchTooLarge")
        } else if bytes > self.largest_message() {
            Some("MessageTooLarge")
        } else if messages.iter().any(|message| message.keys_differ) || self.lacks_session(link, messages) {
            Some("NotAllowed")
        } else {
            None
        }
    }

    /// Whether a path is that of a queue that may be full or closed, or become so.
    pub(super) fn may_refuse_path(&self, path: &str) -> bool {
        let queue = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        let may_refuse =
            |queue: &Queue| queue.settings.max_size_megabytes == 1 || !queue.settings.status.may_send();
        queue.is_none_or(may_refuse) || self.is_updating(path)
    }

    /// Whether the link's queue is one of those that fill up in a run.
    pub(super) fn may_be_full(&self, link: LinkId) -> bool {
        let Some(link) = self.links.get(&link).filter(|_| !self.may_lack_room) else { return true };
        link.destination.iter().chain([&link.path]).any(|path| self.may_refuse_path(path))
    }
}

pub(super) fn links_of(connection: ConnectionId) -> RangeInclusive<LinkId> {
    LinkId { connection, link: 0 }..=LinkId { connection, link: u32::MAX }
}

/// Changed properties must be held against those that are stored, which takes a look at the disk.
pub(super) fn is_changing(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Abandon(Some(_)) | Outcome::Defer(Some(_)) | Outcome::DeadLetter(Some(_)))
}
