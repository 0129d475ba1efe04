//! Answers to questions: what they say is committed, and is what was asked.

use super::effect::wrong_delivery;
use super::expect::{Due, Question};
use super::ledger::split;
use super::{Fate, Oracle, asker};
use broker::{
    Answer, Delivery, EntityId, LinkId, LocalTime, LockToken, NamespaceId, Number, Outcome, QueueSettings,
    ReceiveMode, Refusal, RequestId, Sequence, Settled, State,
};

impl Oracle {
    pub(super) fn replied(&mut self, request: RequestId, answer: &Result<Answer, Refusal>) {
        self.trace.add(&[8, u64::from(request.request), u64::from(answer.is_ok())]);
        self.answered(request.connection, |due| *due == Due::Question(request.request));
        let Some((order, question)) = self.questions.remove(&asker(request)) else { return };
        let entity = question.path().and_then(|path| self.ledger.find(path));
        if let Some(entity) = entity.filter(|_| answer.is_ok() && question.uses()) {
            let since = self.since(entity);
            if let Some(queue) = self.ledger.queues.get_mut(&entity) {
                queue.used = queue.used.max(since);
            }
        }
        self.heard_by_question(request, &question, answer.as_ref().map(drop));
        let is_known = self.replied_of_queues(&question, answer)
            || self.replied_of_topics(&question, answer)
            || self.replied_of_messages((entity, order), &question, answer)
            || self.replied_of_sessions(request, &question, answer)
            || self.replied_of_namespaces(&question, answer);
        match answer {
            _ if is_known => {}
            Err(Refusal::Unreadable) if !self.may_not_read => {
                self.fail(format!("{question:?} is called unreadable on a disk that works"));
            }
            Err(_) => {}
            Ok(_) => self.fail(format!("{question:?} got the answer to another question")),
        }
    }

    /// Queues, and what every entity has. Each of these looks at an answer if it knows it, and says whether it does.
    fn replied_of_queues(&mut self, question: &Question, answer: &Result<Answer, Refusal>) -> bool {
        match (question, answer) {
            (Question::Create(path), Ok(Answer::Queue(_))) => {
                if self.ledger.find(path).is_none() && !self.went(path) {
                    self.fail(format!("{path} was created and is not there"));
                }
            }
            (Question::Update(path, settings), Ok(Answer::Queue(queue))) => {
                if !is_granted(settings, &queue.settings) {
                    self.fail(format!("{path} was updated and has other settings"));
                }
            }
            (
                Question::Create(path)
                | Question::Update(path, _)
                | Question::Subscribe(path, ..)
                | Question::Resubscribe(path, _),
                Err(Refusal::ForwardTargetNotFound(target)),
            ) => {
                if !self.may_lack_target(target) {
                    self.fail(format!("{path} cannot forward to {target}, which is there"));
                }
            }
            (Question::Delete(path), Ok(Answer::Deleted)) => {
                if !self.went(path) {
                    self.fail(format!("{path} was deleted and is there"));
                }
            }
            (Question::Describe(path, Some(expected)), Ok(Answer::Queue(queue))) => {
                let told = (queue.counts, queue.bytes, [0; 3]);
                if told != *expected {
                    self.fail(format!("{path} is told to hold {told:?} and holds {expected:?}"));
                }
            }
            (Question::Describe(..), Ok(Answer::Queue(_))) | (Question::List, Ok(Answer::Queues(_))) => {}
            _ => return false,
        }
        true
    }

    /// Topics, subscriptions and rules.
    fn replied_of_topics(&mut self, question: &Question, answer: &Result<Answer, Refusal>) -> bool {
        match (question, answer) {
            (Question::CreateTopic(path, _) | Question::UpdateTopic(path, _), Ok(Answer::Topic(topic))) => {
                self.topic_told(path, topic, None);
            }
            (Question::Describe(path, figures), Ok(Answer::Topic(topic))) => {
                self.topic_told(path, topic, figures.as_ref());
            }
            (
                Question::Subscribe(path, ..) | Question::Resubscribe(path, _),
                Ok(Answer::Subscription(told)),
            ) => self.subscription_told(path, told, None),
            (Question::Describe(path, figures), Ok(Answer::Subscription(told))) => {
                self.subscription_told(path, told, figures.as_ref());
            }
            (Question::Unsubscribe(path), Ok(Answer::Deleted)) => {
                if !self.went(path) {
                    self.fail(format!("{path} was deleted and is there"));
                }
            }
            (Question::PutRule(path, name, _) | Question::Rule(path, name), Ok(Answer::Rule(rule))) => {
                self.rules_told(path, (0, 1), Some(name), [&**rule].into_iter());
            }
            (Question::DropRule(..), Ok(Answer::Deleted)) => {}
            (Question::Rules(path, skip, top), Ok(Answer::Rules(rules))) => {
                self.rules_told(path, (*skip, *top), None, rules.iter());
            }
            (Question::Subscriptions(path, skip, top), Ok(Answer::Subscriptions(told))) => {
                self.subscriptions_told(path, (*skip, *top), told);
            }
            (Question::Topics(skip, top), Ok(Answer::Topics(told))) => self.topics_told(*skip, *top, told),
            (
                Question::Subscribe(path, ..) | Question::PutRule(path, ..),
                Err(
                    refusal @ (Refusal::TooManySubscriptions(_)
                    | Refusal::TooManySqlFilters(_)
                    | Refusal::TooManyCorrelationFilters(_)),
                ),
            ) => self.refused_as_too_many(path, refusal),
            _ => return false,
        }
        true
    }

    /// Messages of an entity, to a question that was the `order`th.
    fn replied_of_messages(
        &mut self,
        (entity, order): (Option<EntityId>, u64),
        question: &Question,
        answer: &Result<Answer, Refusal>,
    ) -> bool {
        match (question, answer) {
            (Question::Settle(path, tokens, outcome), Ok(Answer::Settled)) => {
                let outcome = settled(outcome);
                tokens.iter().for_each(|token| self.confirmed(&split(path).0, *token, outcome));
            }
            (Question::Renew(path, tokens), Ok(Answer::Renewed(times))) => {
                self.renewed(path, tokens, times, order)
            }
            (Question::Renew(path, tokens), Err(refusal)) => self.not_renewed(path, tokens, refusal),
            (Question::Schedule(path, link, delivery), Ok(Answer::Scheduled(numbers))) => {
                self.scheduled(path, *link, *delivery, numbers);
            }
            (Question::SettleWithin(..), Ok(Answer::Settled)) => {}
            (Question::ScheduleWithin(path, link, delivery), Ok(Answer::Scheduled(numbers))) => {
                self.told_reserved(path, *link, *delivery, numbers);
            }
            (Question::Schedule(_, link, delivery) | Question::ScheduleWithin(_, link, delivery), Err(_)) => {
                let range = self.deliveries[&(*link, *delivery)].clone();
                if self.messages[range].iter().any(|message| message.place.is_some() || message.is_published)
                {
                    self.fail("a schedule was refused and its messages are stored");
                }
            }
            (Question::Cancel(path, numbers), Ok(Answer::Cancelled)) => {
                let is_there = entity.is_some_and(|entity| {
                    let queue = &self.ledger.queues[&entity];
                    if numbers.iter().any(|number| queue.history.is_skipped(*number)) {
                        return true;
                    }
                    queue.present.keys().any(|sequence| numbers.contains(&queue.number(*sequence)))
                });
                if is_there && !self.went(path) {
                    self.fail(format!("a message of {path} was cancelled and is there"));
                }
            }
            (Question::Deferred(path, numbers, mode), Ok(Answer::Messages(messages))) => {
                self.received(path, numbers, *mode, messages);
            }
            (Question::Browse(path, from, most, exact), Ok(Answer::Messages(messages))) => {
                self.browsed(path, *from, *most, exact.as_deref(), messages);
            }
            (Question::Purge(path, most, _), Ok(Answer::MessagesDeleted(count))) => {
                let removed = entity.map(|entity| self.ledger.queues[&entity].removed_in_turn);
                if count > most || removed.is_some_and(|removed| removed < *count) && !self.went(path) {
                    self.fail(format!(
                        "{count} messages of {path} were deleted of {most}, {removed:?} are gone"
                    ));
                }
            }
            _ => return false,
        }
        true
    }

    /// Sessions.
    fn replied_of_sessions(
        &mut self,
        request: RequestId,
        question: &Question,
        answer: &Result<Answer, Refusal>,
    ) -> bool {
        match (question, answer) {
            (Question::RenewSession(path, session), Ok(Answer::SessionRenewed(until))) => {
                self.session_renewed(request, path, session, *until);
            }
            (Question::RenewSession(path, session), Err(refusal)) => {
                self.session_not_renewed(request, path, session, refusal);
            }
            (Question::GetState(path, session), Ok(Answer::SessionState(state))) => {
                self.state_told(path, session, state.as_deref());
            }
            (Question::SetState(..), Ok(Answer::SessionStateSet)) => {}
            (Question::Sessions(path), Ok(Answer::Sessions(sessions))) => self.sessions_told(path, sessions),
            _ => return false,
        }
        true
    }

    /// Namespaces and their time.
    fn replied_of_namespaces(&mut self, question: &Question, answer: &Result<Answer, Refusal>) -> bool {
        match (question, answer) {
            (Question::NameNamespace(_), Ok(Answer::Namespace { namespace, .. })) => {
                if *namespace != NamespaceId(1) {
                    self.fail(format!("the second namespace is {namespace:?}"));
                }
            }
            (Question::TellTime(namespace), Ok(Answer::Time(time))) => self.time_told(*namespace, *time),
            (Question::Advance(namespace, by), Ok(Answer::Advanced(advanced))) => {
                self.advanced(*namespace, *by, advanced);
            }
            _ => return false,
        }
        true
    }

    /// Whether a queue of that path was deleted in this turn.
    pub(super) fn went(&self, path: &str) -> bool {
        if self.ledger.last_deletion != self.turn {
            return false;
        }
        let (path, turn) = (split(path).0, self.turn);
        self.ledger
            .deleted
            .values()
            .any(|(when, queue)| *when == turn && queue.path.eq_ignore_ascii_case(&path))
    }

    /// Only a lock that is held is renewed, and for a lock duration from now (S-83). Of two renewals the one that was
    /// asked for later counts, whichever is heard of first.
    fn renewed(&mut self, path: &str, tokens: &[LockToken], times: &[LocalTime], order: u64) {
        let Some(entity) = self.ledger.find(path).filter(|_| !self.went(path)) else { return };
        let durations = self.ledger.queues[&entity].durations.clone();
        let (began, now) = (self.since(entity), self.here(entity));
        for (token, until) in tokens.iter().zip(times) {
            let is_timed = durations
                .iter()
                .any(|duration| (began.after(*duration)..=now.after(*duration)).contains(until));
            let is_held = match self.lock_at(entity, *token) {
                Some(lock) => {
                    let was_held = (began < lock.until || lock.renewals > 1)
                        && lock.returned.is_none_or(|turn| turn == self.turn);
                    if let Some(lock) = self.lock_at(entity, *token) {
                        lock.renewals = lock.renewals.saturating_sub(1);
                        if lock.renewed < order {
                            (lock.until, lock.renewed) = (*until, order);
                        }
                    }
                    was_held
                }
                // It was settled meanwhile.
                None => self.is_blurred || self.tokens.contains(&token.0),
            };
            if !is_timed || !is_held {
                let what = format!("the lock on {:?} was renewed until {until:?}", token.sequence());
                return self.fail(if is_held { what } else { format!("{what} and was lost") });
            }
        }
        if tokens.len() != times.len() {
            self.fail("another number of locks was renewed");
        }
    }

    fn not_renewed(&mut self, path: &str, tokens: &[LockToken], refusal: &Refusal) {
        let Some(entity) = self.ledger.find(path) else { return };
        let now = self.here(entity);
        let mut are_held = true;
        for token in tokens {
            let lock = self.lock_at(entity, *token);
            are_held &= lock.is_some_and(|lock| {
                lock.renewals = lock.renewals.saturating_sub(1);
                now < lock.until && lock.returned.is_none() && lock.asked.is_empty()
            });
        }
        let is_once = tokens.iter().all(|token| tokens.iter().filter(|other| *other == token).count() == 1);
        if are_held
            && is_once
            && !self.went(path)
            && matches!(refusal, Refusal::LockLost(_))
            && !tokens.is_empty()
        {
            self.fail(format!("locks are called lost and are not: {tokens:?}"));
        }
    }

    fn scheduled(&mut self, path: &str, link: LinkId, delivery: u32, numbers: &[Number]) {
        let range = self.deliveries[&(link, delivery)].clone();
        if range.len() != numbers.len() {
            return self.fail("another number of messages was scheduled");
        }
        for (number, message) in numbers.iter().zip(range) {
            self.messages[message].fate = Fate::Accepted;
            let Some((entity, sequence)) = self.messages[message].first else {
                self.told_skipped(path, message, *number);
                continue;
            };
            let Some(queue) = self.ledger.queues.get(&entity) else { continue };
            if queue.number(sequence) != *number {
                return self.fail(format!("message {message} was scheduled as {number:?}, not {sequence:?}"));
            }
        }
    }

    /// Messages received by their numbers (S-121).
    fn received(&mut self, path: &str, numbers: &[Number], mode: ReceiveMode, messages: &[Delivery]) {
        let (queue, sub) = split(path);
        if messages.len() != numbers.len() {
            return self.fail(format!("{} messages were received of {}", messages.len(), numbers.len()));
        }
        for (number, delivery) in numbers.iter().zip(messages) {
            if delivery.number != *number {
                return self.fail(format!("{:?} was received for {number:?}", delivery.number));
            }
            let Some(entity) = self.whose(delivery, &queue) else { return };
            self.given(entity, delivery, mode, sub, State::Deferred);
        }
    }

    /// Messages that were looked at: there, in order, and locked by nobody who looks (S-130 to S-133).
    fn browsed(
        &mut self,
        path: &str,
        from: Number,
        most: u32,
        exact: Option<&[Sequence]>,
        messages: &[Delivery],
    ) {
        let (queue, sub) = split(path);
        let seen: Vec<Sequence> = messages.iter().map(|delivery| delivery.sequence).collect();
        let is_sorted = seen.is_sorted() && messages.iter().all(|delivery| delivery.number >= from);
        if !is_sorted || seen.len() > most as usize || exact.is_some_and(|exact| exact != seen) {
            return self.fail(format!("{path} was seen as {seen:?}, not {exact:?}"));
        }
        for delivery in messages {
            if delivery.token != LockToken(0) || delivery.locked_until.is_some() {
                return self.fail(format!("{:?} is locked by looking at it", delivery.sequence));
            }
            if exact.is_none() {
                continue;
            }
            let Some(entity) = self.whose(delivery, &queue) else { return };
            let Some(queue) = self.ledger.queues.get(&entity) else { return };
            let Some(present) = queue.present.get(&delivery.sequence) else { return };
            let is_right = present.sub == sub && present.state == delivery.state;
            let changes = self.ledger.changes_of(delivery);
            if let Some(what) = wrong_delivery(changes.as_ref(), present, delivery)
                .or((!is_right).then_some("its state is another"))
            {
                return self.fail(format!("{:?} as seen: {what}", delivery.sequence));
            }
        }
    }
}

/// Whether a queue has the settings that were asked for. Its size is that of all its partitions (S-220).
pub(super) fn is_granted(asked: &QueueSettings, settings: &QueueSettings) -> bool {
    let max_size_megabytes = settings.max_size_megabytes;
    *settings == QueueSettings { max_size_megabytes, ..asked.clone() }
}

fn settled(outcome: &Outcome) -> Settled {
    match outcome {
        Outcome::Complete => Settled::Completed,
        Outcome::Abandon(_) => Settled::Abandoned,
        Outcome::Release => Settled::Released,
        Outcome::Defer(_) => Settled::Deferred,
        Outcome::DeadLetter(_) => Settled::DeadLettered,
    }
}
