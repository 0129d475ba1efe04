//! The test clock: the time of one namespace is moved ahead, past everything that is due on the way.
//!
//! Each namespace has a time of its own, which is the owner's until it is moved and runs with it ever after. An advance
//! visits the instants at which something is due, in order, and decides each at its own time; it takes as many ticks as
//! it needs, and the engine lets nothing else be decided meanwhile. Nothing is handed out on the way: no
//! client lives in the time that passes. What must always hold: the time of a namespace never runs backwards, and
//! replay sees every record at the instant at which it was made.

use crate::Broker;
use crate::command::Command;
use crate::decision::{Context, Decision, LocalContext, LocalDecision};
use crate::effect::{Answer, Effect};
use crate::ids::{EntityId, LinkId, NamespaceId, Number, RequestId, Sequence, Source, SubQueue};
use crate::limits::{ADVANCE_EVENTS, ADVANCE_MOST, CALENDAR_END, TIMER_SLICE};
use crate::manage::Task;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{ClockOffset, LocalTime, Span, Time};
use crate::timers::{Due, EntityTimer};
use crate::topic::change::Change;
use crate::topic::published::Origin;

/// Something that happened because its time came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    pub at: LocalTime,
    /// The path of the entity, or of its dead-letter queue.
    pub entity: Box<str>,
    pub what: Happening,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// Nobody settled the message in time (S-86).
    LockExpired { number: Number, fate: Fate },
    /// S-51.
    MessageExpired { number: Number, fate: Fate },
    /// A scheduled message was enqueued, under a number of its own (S-44).
    MessageActivated { scheduled: Number, number: Number },
    /// Nobody used it for long enough (S-70).
    EntityDeleted,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Returned,
    DeadLettered,
    Dropped,
}

/// Why something is decided at an instant that an advance has come to.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Lock,
    Expiry,
    Other,
}

/// An advance, told when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    pub now: LocalTime,
    /// In the order in which it happened.
    pub events: Vec<Happened>,
    /// How much more happened than is told.
    pub more: u64,
}

/// An advance that has begun.
#[derive(Debug)]
pub struct Advance {
    request: RequestId,
    namespace: NamespaceId,
    until: LocalTime,
    /// The instant that is being visited.
    now: LocalTime,
    /// The owner's time, and which one a record has told last, at which time of the owner. Told again for each batch.
    owner: Time,
    told: Option<(LocalTime, Time)>,
    events: Vec<Happened>,
    more: u64,
    /// What keeps it at the instant that is being visited.
    waits_for: Option<Wait>,
    /// Messages that were read meanwhile for receivers, who are given nothing before the advance has ended.
    checked: Vec<Checked>,
}

/// What an advance waits for before it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Messages of this topic are due and are being read.
    Read(Source),
    /// Messages are due that are not on disk yet, so that nobody can read them.
    Commit,
}

/// Messages of a queue that were read: those that are whole, and those that are damaged.
#[derive(Debug)]
struct Checked {
    source: Source,
    whole: Vec<Sequence>,
    damaged: Vec<Sequence>,
}

impl Broker {
    /// Whether an advance has begun and not ended: [`Broker::tick`] goes on with it, and nothing else may be decided.
    pub fn is_advancing(&self) -> bool {
        self.volatile.advance.is_some()
    }

    /// Whether an advance goes on only when messages were read, or are durable.
    pub fn is_waiting(&self) -> bool {
        self.volatile.advance.as_ref().is_some_and(|advance| advance.waits_for.is_some())
    }

    /// An advance waits for messages of a topic that are being read.
    pub(crate) fn wait_for_read(&mut self, topic: Source) {
        if let Some(advance) = &mut self.volatile.advance {
            advance.waits_for = Some(Wait::Read(topic));
        }
    }

    /// An advance waits until what was decided before it is durable. False if there is none.
    pub(crate) fn wait_for_commit(&mut self) -> bool {
        if let Some(advance) = &mut self.volatile.advance {
            advance.waits_for = Some(Wait::Commit);
        }
        self.is_advancing()
    }

    pub(crate) fn waits_for_commit(&self) -> bool {
        self.volatile.advance.as_ref().is_some_and(|advance| advance.waits_for == Some(Wait::Commit))
    }

    /// Something became durable. An advance that has waited for that looks again.
    pub(crate) fn end_wait_for_commit(&mut self) {
        if let Some(advance) = &mut self.volatile.advance {
            advance.waits_for = advance.waits_for.filter(|wait| *wait != Wait::Commit);
        }
    }

    /// Messages were read. An advance that has waited for them goes on; what others have waited for is nothing to it.
    pub(crate) fn end_wait(&mut self, read: Source) {
        if let Some(advance) = &mut self.volatile.advance {
            advance.waits_for = advance.waits_for.filter(|wait| *wait != Wait::Read(read));
        }
    }

    /// Keeps what was read for receivers until an advance has ended. False if there is none.
    pub(crate) fn keep_checked(&mut self, source: Source, whole: &[Sequence], damaged: &[Sequence]) -> bool {
        let Some(advance) = &mut self.volatile.advance else { return false };
        advance.checked.push(Checked { source, whole: whole.to_vec(), damaged: damaged.to_vec() });
        true
    }

    /// The time at an entity.
    pub(crate) fn context_at(&self, entity: EntityId, context: Context) -> LocalContext {
        context.at(context.now.local(self.volatile.clock_offset_at(entity)))
    }

    /// The time at which a command is decided: that of its namespace.
    pub(crate) fn context_of(&self, command: &Command, context: Context) -> LocalContext {
        if self.volatile.is_time_usual() {
            return context.at(context.now.local(ClockOffset::default()));
        }
        let of_link = |link: &LinkId| {
            self.volatile
                .link(*link)
                .map_or(NamespaceId::default(), |link| self.volatile.presence(link.source.entity).namespace)
        };
        let namespace = match command {
            Command::Within { command, .. } => return self.context_of(command, context),
            Command::AttachCoordinator { namespace, .. } => *namespace,
            Command::Declare { link, .. } | Command::Discharge { link, .. } | Command::Spoil { link, .. } => {
                self.volatile.transactions.namespace_of(*link)
            }
            // Namespaces are dated by the first of them, wherever they are named.
            Command::Manage { task, .. } if matches!(**task, Task::NameNamespace { .. }) => NamespaceId(0),
            Command::AttachSender { namespace, .. }
            | Command::AttachVia { namespace, .. }
            | Command::AttachReceiver { namespace, .. }
            | Command::AcceptSession { namespace, .. }
            | Command::RenewSession { namespace, .. }
            | Command::GetSessionState { namespace, .. }
            | Command::SetSessionState { namespace, .. }
            | Command::ListSessions { namespace, .. }
            | Command::SettleTokens { namespace, .. }
            | Command::RenewLocks { namespace, .. }
            | Command::Schedule { namespace, .. }
            | Command::CancelScheduled { namespace, .. }
            | Command::ReceiveDeferred { namespace, .. }
            | Command::Browse { namespace, .. }
            | Command::DeleteMessages { namespace, .. }
            | Command::CreateQueue { namespace, .. }
            | Command::DeleteEntity { namespace, .. }
            | Command::DescribeEntity { namespace, .. }
            | Command::Manage { namespace, .. }
            | Command::Advance { namespace, .. }
            | Command::ListQueues { namespace, .. } => *namespace,
            Command::Detach { link }
            | Command::Send { link, .. }
            | Command::Part { link, .. }
            | Command::DropParts { link }
            | Command::Credit { link, .. }
            | Command::Settle { link, .. } => of_link(link),
        };
        context.at(context.now.local(self.volatile.clock_offset(namespace)))
    }

    /// Begins to move the time of a namespace. The answer comes when it has arrived.
    pub(crate) fn advance(
        &mut self,
        request: RequestId,
        namespace: NamespaceId,
        by: Span,
        context: Context,
    ) -> Result<(), Refusal> {
        let refuse = |why: &str| Err(Refusal::InvalidSetting { property: "advance", why: why.into() });
        if namespace >= self.durable.next_namespace() {
            return refuse("there is no such namespace");
        }
        if by > ADVANCE_MOST {
            return refuse("time moves by ten years at most");
        }
        let offset = self.volatile.clock_offset(namespace);
        let now = context.now.local(offset);
        let until = now.after(by);
        if until > CALENDAR_END {
            return refuse("time ends with the year 9999");
        }
        assert!(!self.is_advancing(), "nothing is decided while time is moved");
        // Its timers leave the others, so that they can be visited on their own.
        self.volatile.set_offset(namespace, offset);
        self.volatile.advance = Some(Box::new(Advance {
            request,
            namespace,
            until,
            now,
            owner: context.now,
            told: None,
            events: Vec::new(),
            more: 0,
            waits_for: None,
            checked: Vec::new(),
        }));
        Ok(())
    }

    /// Visits the next instants of an advance, a slice of what is due.
    pub(crate) fn go_on_advancing(&mut self, context: Context, decision: &mut Decision) {
        let mut left = TIMER_SLICE;
        while left > 0 && !decision.is_long() {
            let Some(namespace) = self.volatile.advance.as_ref().map(|each| each.namespace) else {
                return;
            };
            let without = context.now.local(self.volatile.clock_offset(namespace));
            let advance = self.volatile.advance.as_mut().expect("it was there");
            advance.owner = context.now;
            // While it lasts time goes on too: it does not lead to where the namespace would have been without it.
            advance.until = advance.until.max(without);
            if advance.waits_for.is_some() {
                return;
            }
            let until = advance.until;
            let Some((at, due)) = self.volatile.take_first(namespace, until) else {
                return self.arrive_at(until, context, decision);
            };
            left -= self.visit(at, due, left, context, decision);
        }
    }

    fn visit(
        &mut self,
        at: LocalTime,
        due: Due,
        most: usize,
        context: Context,
        decision: &mut Decision,
    ) -> usize {
        let advance = self.volatile.advance.as_mut().expect("the caller looked");
        // What was due before the advance began is decided now.
        advance.now = advance.now.max(at);
        let context = context.at(advance.now);
        let (entity, sub) = match &due {
            Due::Lock(timer) => (timer.source.entity, timer.source.sub),
            Due::Entity(entity, _) => (*entity, SubQueue::Main),
        };
        let path = self.path_of(entity, sub);
        let from = decision.seam();
        let cause = match &due {
            Due::Lock(_) => Cause::Lock,
            Due::Entity(_, EntityTimer::Expire) => Cause::Expiry,
            Due::Entity(..) => Cause::Other,
        };
        let count = self.work_off(due, most, &mut decision.at(context));
        for nth in from..decision.records.len() {
            let told = self.tell(&decision.records[nth], entity, cause);
            let advance = self.volatile.advance.as_mut().expect("the caller looked");
            for what in told {
                if advance.events.len() < ADVANCE_EVENTS {
                    advance.events.push(Happened { at: context.now, entity: path.clone(), what });
                } else {
                    advance.more += 1;
                }
            }
        }
        count
    }

    /// The namespace is where it was to be. What became free on the way may be handed out.
    fn arrive_at(&mut self, until: LocalTime, context: Context, decision: &mut Decision) {
        self.tell_time(until, decision);
        let Some(advance) = self.volatile.advance.take() else { return };
        let offset = until.offset_from(context.now);
        self.volatile.set_offset(advance.namespace, offset);
        let advanced = Advanced { now: until, events: advance.events, more: advance.more };
        let answer = Ok(Answer::Advanced(Box::new(advanced)));
        decision.effect(Effect::Answered { request: advance.request, answer });
        for Checked { source, whole, damaged } in advance.checked {
            self.checked(source, &whole, &damaged, context, decision);
        }
    }

    /// While time is moved, a record is preceded by one that says at which instant it was made.
    pub(crate) fn tell_time(&mut self, now: LocalTime, decision: &mut Decision) {
        let Some(advance) = &mut self.volatile.advance else { return };
        let (namespace, owner) = (advance.namespace, advance.owner);
        if advance.told.replace((now, owner)) != Some((now, owner)) {
            let record = Record::Managed(Box::new(Change::ClockMoved { namespace, to: now }));
            self.durable.apply(&record, owner);
            decision.record(record);
        }
    }

    fn path_of(&self, entity: EntityId, sub: SubQueue) -> Box<str> {
        let path = self.durable.queue(entity).map_or("", |queue| &queue.path);
        match sub {
            SubQueue::Main => path.into(),
            SubQueue::DeadLetter => format!("{path}/$deadletterqueue").into(),
            SubQueue::TransferDeadLetter => format!("{path}/$transfer/$deadletterqueue").into(),
        }
    }

    /// What a record means to somebody who moves time. What came of it elsewhere is not told: a message that was activated
    /// may be sent on, and a copy of it be dead-lettered for its own reasons.
    fn tell(&self, record: &Record, visited: EntityId, cause: Cause) -> Vec<Happening> {
        let number = |entity: EntityId, sequence: Sequence| {
            self.durable.queue(entity).map_or(Number(sequence.0), |queue| queue.number(sequence))
        };
        let ended = |entity: EntityId, sequence: Sequence, fate: Fate| {
            let number = number(entity, sequence);
            match cause {
                _ if entity != visited => None,
                Cause::Lock => Some(Happening::LockExpired { number, fate }),
                Cause::Expiry => Some(Happening::MessageExpired { number, fate }),
                Cause::Other => None,
            }
        };
        match record {
            Record::Returned { entity, sequence, .. } => {
                ended(*entity, *sequence, Fate::Returned).into_iter().collect()
            }
            Record::DeadLettered { entity, sequence, .. } => {
                ended(*entity, *sequence, Fate::DeadLettered).into_iter().collect()
            }
            Record::Removed { entity, first, count } => (first.0..first.0 + u64::from(*count))
                .filter_map(|sequence| ended(*entity, Sequence(sequence), Fate::Dropped))
                .collect(),
            Record::Activated { entity, scheduled, sequence, .. } => vec![Happening::MessageActivated {
                scheduled: number(*entity, *scheduled),
                number: number(*entity, *sequence),
            }],
            Record::Published(published) => match published.origin {
                Origin::Scheduled(scheduled) => vec![Happening::MessageActivated {
                    scheduled: number(published.topic, scheduled),
                    number: number(published.topic, published.sequence),
                }],
                Origin::Sent { .. } | Origin::Forwarded { .. } => Vec::new(),
            },
            Record::EntityDeleted { .. } => vec![Happening::EntityDeleted],
            Record::QueueCreated { .. }
            | Record::PartStored { .. }
            | Record::Noted { .. }
            | Record::Skipped { .. }
            | Record::InSession { .. }
            | Record::OverlayStored { .. }
            | Record::SessionStateSet { .. }
            | Record::Forwarded { .. }
            | Record::Enqueued { .. }
            | Record::TransferDeadLettered { .. }
            | Record::Scheduled { .. }
            | Record::Deferred { .. }
            | Record::LocksKept { .. }
            | Record::Managed(_)
            | Record::Relocated { .. } => Vec::new(),
        }
    }

    /// Does what is due, `most` units of work at most, and says how many there were (at least one).
    pub(crate) fn work_off(&mut self, due: Due, most: usize, decision: &mut LocalDecision<'_>) -> usize {
        match due {
            Due::Lock(timer) => self.end_lock(timer, most, decision),
            Due::Entity(entity, EntityTimer::Expire) => self.expire_due(entity, most, decision),
            Due::Entity(entity, EntityTimer::Activate) => self.activate_due(entity, most, decision),
            Due::Entity(entity, EntityTimer::Idle) => self.end_idle(entity, decision),
            Due::Entity(entity, EntityTimer::Forward) => self.retry_forward(entity),
        }
    }
}

#[cfg(test)]
mod ahead_tests;

#[cfg(test)]
mod tests;
