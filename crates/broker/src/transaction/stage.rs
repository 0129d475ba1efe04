//! Operations within a transaction: each is checked as it would be outside and kept for the commit. A settlement that fails
//! is told at once and leaves the transaction as it was, unless nobody wants to be told; a send that fails spoils it (S-218),
//! for not every client looks at what became of it.

use super::{Charge, Delivery, Operation, Phase, Way};
use crate::Broker;
use crate::command::{Arrivals, Command, Incoming, Outcome, SessionIds};
use crate::decision::{Decided, Decision, Hindrance, LocalContext, LocalDecision, Needs, told};
use crate::durable::Kind;
use crate::effect::{Answer, Effect, Notice, Settled, StoredOverlay};
use crate::ids::{ConnectionId, EntityId, LinkId, LockToken, MessageKey, NamespaceId, Source, TransactionId};
use crate::limits::{
    STAGED_BYTES, STAGED_HELD_BYTES, STAGED_HELD_TOTAL, STAGED_MESSAGE_COST, STAGED_SETTLEMENT_COST,
    TRANSACTION_MESSAGES, TRANSACTION_SETTLEMENTS, TRANSACTION_TIME,
};
use crate::planted::{Bug, is_planted};
use crate::queue::overlay::Kept;
use crate::queue::send::Parts;
use crate::queue::settle::check_tokens;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::topic::subject::Front;
use crate::volatile::{Link, Role};
use message::overlay::Overlay;

/// S-213.
pub(super) const TOO_LATE: &str = "it took longer than two minutes.";

/// S-216.
const PARTITIONS: &str = "All messages that are sent to a partitioned entity in one transaction need one and the same partition key.";

/// Messages that came together, and where they go.
struct Sent<'a> {
    way: Way,
    part_bytes: u64,
    arrivals: Arrivals<'a>,
    sessions: &'a SessionIds,
}

impl Broker {
    /// Takes a command that is part of a transaction.
    pub(crate) fn stage(
        &mut self,
        transaction: TransactionId,
        command: &Command,
        arrivals: Arrivals<'_>,
        decision: &mut LocalDecision<'_>,
    ) -> Decided {
        let context = decision.context();
        // It was asked for before, and what it needs was read meanwhile.
        let is_again = !decision.material.is_empty();
        let decided = match command {
            Command::Send { link, delivery, is_settled, messages, sessions } => {
                let arrivals = arrivals.range(messages);
                let answer = (!*is_settled).then_some(*delivery);
                self.stage_send(transaction, *link, answer, arrivals, sessions, decision);
                Decided::Done
            }
            Command::Settle { link, delivery, token, outcome, wants_answer } => {
                let within = (transaction, link.connection, is_again);
                let answer = wants_answer.then_some(*delivery);
                self.stage_settle(within, *link, *token, outcome, answer, decision)
            }
            Command::SettleTokens { request, namespace, path, tokens, outcome } => {
                let within = (transaction, request.connection, is_again);
                let staged = self
                    .resolve(*namespace, path)
                    .map_err(Hindrance::from)
                    .and_then(|source| self.stage_settlements(within, source, tokens, outcome, decision));
                match told(staged.map(|()| Answer::Settled)) {
                    Ok(answer) => answered(*request, answer, decision),
                    Err(undecided) => undecided,
                }
            }
            Command::Schedule { request, namespace, path, messages, sessions } => {
                let within = (transaction, request.connection, is_again);
                let arrivals = arrivals.range(messages);
                let answer = self.stage_schedule(within, *namespace, path, arrivals, sessions, decision);
                answered(*request, answer, decision)
            }
            Command::RenewLocks { request, namespace, path, tokens } => {
                // A renewal is answered with when the lock now ends, so it cannot be taken back: it happens at once.
                let answer = self
                    .use_transaction(transaction, request.connection, is_again, context)
                    .and_then(|()| self.renew_locks(*namespace, path, tokens, context));
                answered(*request, answer, decision)
            }
            other => unreachable!("{other:?} is part of no transaction"),
        };
        match (is_again, &decided) {
            (false, Decided::Needs(_)) => {
                self.volatile.transactions.begin_read(transaction);
            }
            (true, Decided::Done) => {
                self.volatile.transactions.end_read(transaction);
                self.resume_discharge(transaction, decision);
            }
            _ => {}
        }
        decided
    }

    /// Settles a delivery of a link; `answer` is its number, if its receiver wants one.
    fn stage_settle(
        &mut self,
        within: (TransactionId, ConnectionId, bool),
        link: LinkId,
        token: LockToken,
        outcome: &Outcome,
        answer: Option<u32>,
        decision: &mut LocalDecision<'_>,
    ) -> Decided {
        let transaction = within.0;
        let Some(source) = self.volatile.link(link).map(|link| link.source) else {
            // Nobody can be told that this one failed.
            self.spoil(link, transaction);
            return Decided::Done;
        };
        let staged = self.stage_settlements(within, source, &[token], outcome, decision);
        let refusal = match staged.map_err(Hindrance::refusal) {
            Ok(()) => None,
            Err(Ok(refusal)) => Some(refusal),
            Err(Err(undecided)) => return undecided,
        };
        match (refusal, answer) {
            (None, Some(delivery)) => {
                let outcome = Some(Settled::of(outcome));
                decision.effect(Notice::Staged { link, delivery, transaction, outcome });
            }
            (Some(refusal), Some(delivery)) => {
                decision.effect(Notice::NotSettled { link, delivery, refusal });
            }
            (None | Some(Refusal::UnknownTransaction | Refusal::RolledBack(_)), None) => {}
            // Who wants no answer is told by the commit, which would otherwise pass for all of it (S-218).
            (Some(refusal), None) => self.roll_back(transaction, &refusal.to_string()),
        }
        Decided::Done
    }

    /// Whether an operation of that connection may join a transaction. The first one sets its end.
    fn use_transaction(
        &mut self,
        transaction: TransactionId,
        connection: ConnectionId,
        is_again: bool,
        context: LocalContext,
    ) -> Result<(), Refusal> {
        let found = self.volatile.transactions.of(transaction, connection);
        // Behind its discharge a transaction takes nothing more.
        let found = found.filter(|found| found.awaiting.is_none() || is_again);
        match found.map(|found| &found.phase) {
            None => Err(Refusal::UnknownTransaction),
            Some(Phase::RolledBack(why)) => Err(Refusal::RolledBack(why.clone())),
            Some(Phase::Open(operations)) if operations.is_overdue(context.now) => {
                self.roll_back(transaction, TOO_LATE);
                Err(Refusal::RolledBack(TOO_LATE.into()))
            }
            Some(Phase::Open(_)) => {
                let deadline = context.now.after(TRANSACTION_TIME);
                self.volatile.transactions.set_deadline(transaction, deadline);
                Ok(())
            }
        }
    }

    fn stage_send(
        &mut self,
        transaction: TransactionId,
        link: LinkId,
        answer: Option<u32>,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) {
        // A link that is gone, or was refused, has nobody left to answer: the commit tells it (S-218).
        let Some(Link { source, role: Role::Sender { part_bytes, destination, .. } }) =
            self.volatile.link(link)
        else {
            return self.spoil(link, transaction);
        };
        let way = match destination {
            None => Way::To(source.entity),
            Some(destination) => Way::Via(source.entity, destination.clone()),
        };
        let sent = Sent { way, part_bytes: *part_bytes, arrivals, sessions };
        if is_planted(Bug::VisibleEarly) && matches!(sent.way, Way::To(_)) {
            let (entity, part_bytes) = (source.entity, *part_bytes);
            let _ = self.send_to(entity, link, part_bytes, arrivals, sessions, decision);
        } else if let Err(refusal) = self.stage_messages(transaction, link, &sent, decision) {
            self.volatile.drop_parts(link);
            if let Some(delivery) = answer {
                decision.effect(Notice::Rejected { link, delivery, refusal });
            }
            return;
        }
        if let Some(delivery) = answer {
            decision.effect(Notice::Staged { link, delivery, transaction, outcome: None });
        }
    }

    fn stage_messages(
        &mut self,
        transaction: TransactionId,
        link: LinkId,
        sent: &Sent<'_>,
        decision: &mut LocalDecision<'_>,
    ) -> Result<(), Refusal> {
        let context = decision.context();
        self.use_transaction(transaction, link.connection, false, context)?;
        let checked = self.check_messages(transaction, link.connection, Some(link), sent);
        let charge = checked.inspect_err(|refusal| self.roll_back(transaction, &refusal.to_string()))?;
        let (mut parts, may_publish) = (Vec::new(), self.may_publish(&sent.way));
        for message in sent.arrivals.messages {
            let mut of_link = self.volatile.take_parts(link);
            if may_publish && of_link.front.is_none() {
                of_link.front = front_of(sent.arrivals, message);
            }
            parts.push(self.store_ahead(message, of_link, decision));
        }
        let delivery = Delivery {
            way: sent.way.clone(),
            messages: sent.arrivals.messages.to_vec(),
            sessions: sent.sessions.clone(),
            parts,
            numbers: None,
        };
        self.volatile.transactions.add(transaction, Operation::Send(delivery), charge);
        Ok(())
    }

    /// Whether messages may be sent as they are and join the transaction, and what they cost.
    fn check_messages(
        &mut self,
        transaction: TransactionId,
        connection: ConnectionId,
        link: Option<LinkId>,
        sent: &Sent<'_>,
    ) -> Result<Charge, Refusal> {
        let count = sent.arrivals.messages.len();
        let operations = self.volatile.transactions.operations_mut(transaction).expect("it is open");
        if operations.messages + count > TRANSACTION_MESSAGES {
            return Err(Refusal::TransactionFull(TRANSACTION_MESSAGES));
        }
        self.check_way(&sent.way, sent.arrivals.messages, sent.sessions, sent.part_bytes)?;
        if let Way::To(entity) = sent.way {
            self.check_partition(transaction, entity, sent.arrivals.messages)?;
        }
        let own: u64 = sent.arrivals.messages.iter().map(|message| u64::from(message.body.length)).sum();
        let mut charge = Charge { stored: own + sent.part_bytes, held: 0 };
        if self.may_publish(&sent.way) {
            charge.held = match link.and_then(|link| self.volatile.link(link)).map(|link| &link.role) {
                Some(Role::Sender { front: Some(front), .. }) => front.len() as u64,
                _ => {
                    let front =
                        |message| front_of(sent.arrivals, message).map_or(0, |front| front.len() as u64);
                    sent.arrivals.messages.iter().map(front).sum()
                }
            };
        }
        charge.held += STAGED_MESSAGE_COST * count as u64;
        self.check_charge(connection, charge)?;
        Ok(charge)
    }

    /// Whether an entity, or two, take these messages now.
    pub(super) fn check_way(
        &self,
        way: &Way,
        messages: &[Incoming],
        sessions: &SessionIds,
        part_bytes: u64,
    ) -> Result<(), Refusal> {
        match way {
            Way::To(entity) => self.check_send(*entity, messages, sessions, part_bytes),
            Way::Via(via, destination) => {
                self.check_arrivals(*via, messages, part_bytes)?;
                self.check_quota(*via)?;
                let namespace = self.queue_of(Source::main(*via)).namespace;
                let target = self.resolve_target(namespace, destination)?.entity;
                if !self.queue_of(Source::main(target)).settings.status.may_send() {
                    return Ok(());
                }
                self.check_send(target, messages, sessions, part_bytes)
            }
        }
    }

    /// Messages in a partitioned entity need a key, and all of a transaction the same (S-216).
    fn check_partition(
        &mut self,
        transaction: TransactionId,
        entity: EntityId,
        messages: &[Incoming],
    ) -> Result<(), Refusal> {
        let settings = &self.durable.queue(entity).expect("it was looked at").settings;
        if !settings.partitioning {
            return Ok(());
        }
        let counts_ids = settings.requires_duplicate_detection;
        let operations = self.volatile.transactions.operations_mut(transaction).expect("it is open");
        for message in messages {
            let key = match message.partition {
                0 if counts_ids && message.id != MessageKey::NONE => message.id.0[0] | 1,
                key => key,
            };
            let known = operations.partitions.iter().find(|(known, _)| *known == entity).map(|(_, key)| *key);
            if key == 0 || known.is_some_and(|known| known != key) {
                return Err(Refusal::NotAllowed(PARTITIONS));
            }
            if known.is_none() {
                operations.partitions.push((entity, key));
            }
        }
        Ok(())
    }

    fn check_charge(&self, connection: ConnectionId, more: Charge) -> Result<(), Refusal> {
        let charges = self.volatile.transactions.charges.get(&connection);
        let mut sum = charges.map(|charges| charges.charge).unwrap_or_default();
        sum.add(more);
        let all = self.volatile.transactions.held + more.held;
        for (size, limit) in
            [(sum.stored, STAGED_BYTES), (sum.held, STAGED_HELD_BYTES), (all, STAGED_HELD_TOTAL)]
        {
            if size > limit {
                return Err(Refusal::TransactionsTooLarge { size, limit });
            }
        }
        Ok(())
    }

    /// Whether rules may have to look at the messages by the time of the commit.
    fn may_publish(&self, way: &Way) -> bool {
        match way {
            Way::To(entity) => self.durable.queue(*entity).is_some_and(|queue| queue.kind == Kind::Topic),
            Way::Via(..) => true,
        }
    }

    /// Stores the body of a message that no record names yet.
    fn store_ahead(&mut self, message: &Incoming, parts: Parts, decision: &mut LocalDecision<'_>) -> Parts {
        let body = self.durable.next_body();
        self.write(Record::PartStored { body }, decision);
        decision.body(message.body);
        Parts { stored: Some(body), ..parts }
    }

    fn stage_settlements(
        &mut self,
        (transaction, connection, is_again): (TransactionId, ConnectionId, bool),
        source: Source,
        tokens: &[LockToken],
        outcome: &Outcome,
        decision: &mut LocalDecision<'_>,
    ) -> Result<(), Hindrance> {
        let (context, material) = (decision.context(), decision.material);
        self.use_transaction(transaction, connection, is_again, context)?;
        check_tokens(tokens)?;
        let operations = self.volatile.transactions.operations_mut(transaction).expect("it is open");
        let (count, limit) = (operations.settlements + tokens.len(), TRANSACTION_SETTLEMENTS);
        if count > limit {
            return Err(Refusal::TooMany { what: "settlements in one transaction", count, limit }.into());
        }
        self.check_changes(source, tokens, outcome)?;
        let mut needed = Vec::new();
        for token in tokens {
            match self.check_settle(source, *token, outcome, material, context) {
                Err(Hindrance::Needs(Needs(bodies))) => needed.extend(bodies),
                other => other?,
            }
        }
        if !needed.is_empty() {
            return Err(Hindrance::Needs(Needs(needed)));
        }
        let keep = |token: &LockToken| {
            let change = outcome.changes()?;
            Some(self.keep_change(source, token.sequence(), change, material))
        };
        let kept: Vec<_> = tokens.iter().map(keep).collect();
        let mut sum = Charge::default();
        kept.iter().for_each(|kept| sum.add(charge_of(kept.as_ref())));
        self.check_charge(connection, sum)?;
        for (token, kept) in tokens.iter().zip(kept) {
            let charge = charge_of(kept.as_ref());
            let (outcome, stored) = match kept {
                None => (outcome.clone(), None),
                Some(Kept::InRecord(changes)) => (outcome.with(Some(changes)), None),
                Some(Kept::Stored(overlay)) => {
                    (outcome.with(None), Some(self.store_overlay_ahead(&overlay, decision)))
                }
            };
            let operation = Operation::Settle { source, token: *token, outcome, stored };
            self.volatile.transactions.add(transaction, operation, charge);
        }
        self.volatile.set_used(source.entity, context.now);
        Ok(())
    }

    /// Stores changed properties that no record names yet.
    fn store_overlay_ahead(&mut self, overlay: &Overlay, decision: &mut LocalDecision<'_>) -> StoredOverlay {
        let body = self.durable.next_body();
        self.write(Record::PartStored { body }, decision);
        let length = decision.make_body(|out| overlay.encode(out));
        StoredOverlay { body, length }
    }

    /// Scheduling is answered with numbers, so they are used up now, whatever becomes of the transaction; the messages take them
    /// with the commit.
    fn stage_schedule(
        &mut self,
        (transaction, connection, is_again): (TransactionId, ConnectionId, bool),
        namespace: NamespaceId,
        path: &str,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let context = decision.context();
        self.use_transaction(transaction, connection, is_again, context)?;
        let checked = self.resolve_for_send(namespace, path).and_then(|Source { entity, .. }| {
            let sent = Sent { way: Way::To(entity), part_bytes: 0, arrivals, sessions };
            Ok((entity, self.check_messages(transaction, connection, None, &sent)?))
        });
        let (entity, charge) = checked.inspect_err(|refusal| {
            self.roll_back(transaction, &refusal.to_string());
        })?;
        let way = Way::To(entity);
        let (mut parts, mut numbers, may_publish) = (Vec::new(), Vec::new(), self.may_publish(&way));
        for message in arrivals.messages {
            let front = may_publish.then(|| front_of(arrivals, message)).flatten();
            parts.push(self.store_ahead(message, Parts { front, ..Parts::default() }, decision));
            numbers.push(self.skip(entity, decision));
        }
        self.volatile.set_accessed(entity, context.now);
        let queue = self.durable.queue(entity).expect("checked before");
        let told = numbers.iter().map(|sequence| queue.number(*sequence)).collect();
        let delivery = Delivery {
            way,
            messages: arrivals.messages.to_vec(),
            sessions: sessions.clone(),
            parts,
            numbers: Some(numbers),
        };
        self.volatile.transactions.add(transaction, Operation::Send(delivery), charge);
        Ok(Answer::Scheduled(told))
    }

    /// What the door could not understand was part of this transaction.
    pub(crate) fn spoil(&mut self, link: LinkId, transaction: TransactionId) {
        if self.volatile.transactions.of(transaction, link.connection).is_some() {
            self.roll_back(transaction, "a message or a request of it was refused.");
        }
    }

    pub(super) fn roll_back(&mut self, transaction: TransactionId, why: &str) {
        let why = why.into();
        self.volatile.transactions.roll_back(transaction, why);
    }
}

/// What a settlement costs with changes that are kept so.
fn charge_of(kept: Option<&Kept>) -> Charge {
    let (stored, held) = match kept {
        None => (0, 0),
        Some(Kept::InRecord(changes)) => (0, changes.held_bytes() as u64),
        Some(Kept::Stored(overlay)) => (overlay.encoded_bytes() as u64, 0),
    };
    Charge { stored, held: STAGED_SETTLEMENT_COST + held }
}

fn answered(
    request: crate::ids::RequestId,
    answer: Result<Answer, Refusal>,
    decision: &mut Decision,
) -> Decided {
    decision.effect(Effect::Answered { request, answer });
    Decided::Done
}

/// What comes before a message's body.
fn front_of(arrivals: Arrivals<'_>, message: &Incoming) -> Option<Box<[u8]>> {
    let stored = arrivals.body(message.body);
    // A message without a body is all front.
    let bytes = Front::bytes(stored).unwrap_or(stored.len());
    stored.get(..bytes).map(Box::from)
}
