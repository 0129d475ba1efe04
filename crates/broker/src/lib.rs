//! What a broker decides. Pure: no I/O, no clock, no randomness, no threads.
//!
//! A [`Command`] is checked against the state and refused whole, or taken step by step: each step is a [`Record`]
//! (durable) or a change of [`Volatile`] (memory only), made at once so that the next step sees it, and [`Effect`]s that
//! the engine releases when the records are durable. Replaying the records gives the durable state again.

pub mod access;
pub mod clock;
pub mod command;
mod credit_line;
pub mod decision;
pub mod durable;
pub mod effect;
pub mod extras;
#[doc(hidden)]
pub mod fuzzing;
pub mod ids;
pub mod limits;
mod link;
pub mod manage;
mod namespace;
mod nonce;
pub mod planted;
pub mod queue;
pub mod record;
pub mod refusal;
mod relocate;
pub mod session;
pub mod settings;
mod short;
pub mod snapshot;
mod state_bytes;
#[cfg(test)]
mod testing;
pub mod tier;
pub mod time;
pub mod timers;
pub mod topic;
mod touched;
mod transaction;
mod update;
pub mod volatile;

use decision::{LocalDecision, told};
use limits::{DISPATCH_SLICE, TIMER_SLICE};
use planted::{Bug, is_planted};
use timers::Due;

pub use access::AccessRule;
pub use command::{Arrivals, Command, Incoming, Intake, Outcome, ReceiveMode, SessionIds};
pub use decision::{Body, Context, Decided, Decision, Found, Material, Need, Needs, Release, What};
pub use durable::{Counts, Durable};
pub use effect::{
    AcceptedSession, Answer, Delivery, Effect, Extra, Forwarded, Notice, QueueDescription, Settled,
    StoredOverlay,
};
pub use ids::{
    BodyId, ConnectionId, EntityId, LinkId, LockToken, MessageKey, NamespaceId, Number, Position, RequestId,
    Sequence, Source, SubQueue, TransactionId,
};
pub use manage::Task;
pub use namespace::check_path;
pub use queue::index::State;
pub use queue::read_request::{Fronts, Read, ReadRequest};
pub use record::{KeptLock, Record};
pub use refusal::Refusal;
pub use settings::{QueueSettings, Status};
pub use snapshot::Snapshot;
pub use tier::{Tier, TopicLimits};
pub use time::{ClockOffset, LocalTime, Span, Time};
pub use transaction::Staged;
pub use volatile::Volatile;

/// One partition's worth of entities and everything that happens in them.
#[derive(Debug)]
pub struct Broker {
    pub(crate) durable: Durable,
    pub(crate) volatile: Volatile,
    pub(crate) tier: Tier,
    pub(crate) topic_limits: TopicLimits,
    /// Reused where numbers are gathered before they are gone through.
    pub(crate) scratch: Vec<Sequence>,
    /// What rules have cost since the start, in steps.
    pub(crate) steps: usize,
    /// What lives long in memory.
    pub(crate) state_bytes: state_bytes::StateBytes,
    /// What a command may cost before its messages are published later ([`limits::PUBLISH_STEPS`]).
    pub(crate) publish_steps: usize,
}

impl Broker {
    /// A broker over a state that replay has built. `key` makes the lock tokens: it must be
    /// fresh for each run, and secret.
    pub fn new(durable: Durable, key: u128) -> Broker {
        let volatile = Volatile::rebuilt(&durable, key);
        let (tier, topic_limits) = (Tier::default(), TopicLimits::default());
        let publish_steps = limits::PUBLISH_STEPS;
        let state_bytes = state_bytes::StateBytes::new(limits::STATE_BYTES);
        let scratch = Vec::new();
        Broker { durable, volatile, tier, topic_limits, scratch, steps: 0, state_bytes, publish_steps }
    }

    /// The same broker, which puts off publishing after so many steps of a command.
    #[must_use]
    pub fn with_publish_steps(mut self, steps: usize) -> Broker {
        self.publish_steps = steps;
        self
    }

    /// The same broker, which reads less at a time of what is published next.
    #[must_use]
    pub fn with_read_bytes(mut self, most: u64) -> Broker {
        self.volatile.set_read_bytes(most);
        self
    }

    /// The same broker, held to the quotas of a tier.
    #[must_use]
    pub fn with_tier(mut self, tier: Tier) -> Broker {
        self.tier = tier;
        self
    }

    /// The same broker, whose topics are held to other limits.
    #[must_use]
    pub fn with_topic_limits(mut self, limits: TopicLimits) -> Broker {
        self.topic_limits = limits;
        self
    }

    /// What a namespace is held to: its own tier, or that of the broker.
    pub(crate) fn tier_of(&self, namespace: NamespaceId) -> Tier {
        self.volatile.tier(namespace).unwrap_or(self.tier)
    }

    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// What all work has cost since the start, in steps, with what has been decided so far and is in `decision`. From before a
    /// call until after it this grows by what the call has cost: no more than [`limits::SLICE_STEPS`].
    pub fn steps_spent(&self, decision: &Decision) -> usize {
        let Decision { records, bodies, effects, read_requests, .. } = decision;
        let results = records.len() + bodies.len() + effects.len() + read_requests.len();
        self.steps + results * limits::RESULT_STEPS
    }

    /// What open transactions keep.
    pub fn staged(&self) -> Staged {
        self.volatile.transactions.staged()
    }

    /// Decides one command, at the time of its namespace. `arrivals` are those of its batch; `material` is what an earlier answer asked for.
    pub fn decide(
        &mut self,
        command: &Command,
        arrivals: Arrivals<'_>,
        material: &Material,
        context: Context,
        decision: &mut Decision,
    ) -> Decided {
        let local = self.context_of(command, context);
        decision.begin();
        self.count_state();
        let deciding = &mut decision.at(local).having(material);
        match command {
            Command::Send { link, delivery, is_settled, messages: range, sessions } => {
                let arrivals = arrivals.range(range);
                self.send(*link, *delivery, *is_settled, arrivals, sessions, deciding);
            }
            Command::Settle { link, delivery, token, outcome, wants_answer } => {
                match self.settle(*link, *delivery, *token, outcome, *wants_answer, deciding) {
                    Decided::Done => {}
                    hindered => return hindered,
                }
            }
            Command::Credit { link, limit, drain } => self.credit(*link, *limit, *drain, deciding),
            Command::Part { link, body } => self.store_part(*link, *body, arrivals, deciding),
            Command::DropParts { link } => self.volatile.drop_parts(*link),
            Command::AttachSender { link, namespace, path } => {
                self.attach_sender(*link, *namespace, path, decision);
            }
            Command::AttachVia { link, namespace, path, destination } => {
                self.attach_via(*link, *namespace, path, destination, decision);
            }
            Command::AttachReceiver { link, namespace, path, mode } => {
                self.attach_receiver(*link, *namespace, path, *mode, decision);
            }
            Command::AcceptSession { link, namespace, path, mode, session } => {
                self.accept_session(*link, *namespace, path, *mode, session.as_deref(), deciding);
            }
            Command::Detach { link } => self.detach(*link, local),
            Command::AttachCoordinator { link, namespace } => {
                self.attach_coordinator(*link, *namespace, decision);
            }
            Command::Declare { link, delivery } => self.declare(*link, *delivery, decision),
            Command::Discharge { link, delivery, transaction, is_failed } => {
                self.discharge(*link, *delivery, *transaction, *is_failed, deciding);
            }
            Command::Spoil { link, transaction } => self.spoil(*link, *transaction),
            Command::Within { transaction, command } => {
                match self.stage(*transaction, command, arrivals, deciding) {
                    Decided::Done => {}
                    hindered => return hindered,
                }
            }
            question => return self.answer(question, arrivals, material, context, decision),
        }
        let is_doubled = is_planted(Bug::ClockLead) && matches!(command, Command::Settle { .. });
        let context = if is_doubled { Context { now: Time(local.now.0), ..context } } else { context };
        self.dispatch(context, decision);
        Decided::Done
    }

    /// Decides a command that asks for an answer.
    fn answer(
        &mut self,
        command: &Command,
        arrivals: Arrivals<'_>,
        material: &Material,
        context: Context,
        decision: &mut Decision,
    ) -> Decided {
        let local = self.context_of(command, context);
        let decision = &mut decision.at(local).having(material);
        let (request, answer) = match command {
            Command::SettleTokens { request, namespace, path, tokens, outcome } => {
                match told(self.settle_tokens(*namespace, path, tokens, outcome, decision)) {
                    Ok(answer) => (request, answer),
                    Err(undecided) => return undecided,
                }
            }
            Command::RenewLocks { request, namespace, path, tokens } => {
                (request, self.renew_locks(*namespace, path, tokens, local))
            }
            Command::Schedule { request, namespace, path, messages: range, sessions } => {
                let arrivals = arrivals.range(range);
                (request, self.schedule(*namespace, path, arrivals, sessions, decision))
            }
            Command::CancelScheduled { request, namespace, path, numbers } => {
                (request, self.cancel_scheduled(*namespace, path, numbers, decision))
            }
            Command::ReceiveDeferred { request, namespace, path, numbers, mode, session } => {
                let held = session.as_deref().map(|session| (session, request.connection));
                match told(self.receive_deferred(*namespace, path, numbers, *mode, held, decision)) {
                    Ok(answer) => (request, answer),
                    Err(undecided) => return undecided,
                }
            }
            Command::Browse { request, namespace, path, from, most, session } => {
                (request, self.browse(*namespace, path, *from, *most, session.as_deref(), local))
            }
            Command::DeleteMessages { request, namespace, path, most, before, session } => {
                let held = session.as_deref().map(|session| (session, request.connection));
                (request, self.delete_messages(*namespace, path, *most, *before, held, decision))
            }
            Command::RenewSession { request, namespace, path, session } => {
                (request, self.renew_session(*namespace, path, session, request.connection, local))
            }
            Command::GetSessionState { request, namespace, path, session } => {
                (request, self.session_state(*namespace, path, session, request.connection, local))
            }
            Command::SetSessionState { request, namespace, path, session, state } => {
                let held = (&**session, request.connection);
                (request, self.set_session_state(*namespace, path, held, *state, decision))
            }
            Command::ListSessions { request, namespace, path, since, skip, top } => {
                (request, self.list_sessions(*namespace, path, *since, *skip, *top, local))
            }
            Command::CreateQueue { request, namespace, path, settings } => {
                (request, self.create_queue(*namespace, path, settings, decision))
            }
            Command::DeleteEntity { request, namespace, path } => {
                (request, self.delete_entity(*namespace, path, decision))
            }
            Command::DescribeEntity { request, namespace, path } => {
                (request, self.describe_entity(*namespace, path))
            }
            Command::Manage { request, namespace, task } => {
                (request, self.manage(*namespace, task, decision))
            }
            Command::Advance { request, namespace, by } => {
                match self.advance(*request, *namespace, *by, context) {
                    Ok(()) => return Decided::Done,
                    Err(refusal) => (request, Err(refusal)),
                }
            }
            Command::ListQueues { request, namespace, skip, top } => {
                (request, Ok(self.list_queues(*namespace, *skip, *top)))
            }
            Command::Send { .. }
            | Command::Settle { .. }
            | Command::Credit { .. }
            | Command::Part { .. }
            | Command::DropParts { .. }
            | Command::AttachSender { .. }
            | Command::AttachVia { .. }
            | Command::AttachReceiver { .. }
            | Command::AcceptSession { .. }
            | Command::AttachCoordinator { .. }
            | Command::Declare { .. }
            | Command::Discharge { .. }
            | Command::Spoil { .. }
            | Command::Within { .. }
            | Command::Detach { .. } => unreachable!("a link asks no questions"),
        };
        self.steps += answer.as_ref().map_or(0, Answer::entries) * limits::RESULT_STEPS;
        decision.effect(Effect::Answered { request: *request, answer });
        self.dispatch(context, decision);
        Decided::Done
    }

    /// Everything up to `position` is durable: what it brought may be handed out.
    pub fn committed(&mut self, position: Position, context: Context, decision: &mut Decision) {
        self.volatile.commit(position);
        self.end_wait_for_commit();
        self.dispatch(context, decision);
    }

    /// Whether somebody gets something, or something is sent on, when everything up to `position` is durable. If not, the
    /// news can wait.
    pub fn is_awaited(&self, position: Position) -> bool {
        self.waits_for_commit()
            || self.volatile.freed_by(position).any(|(source, is_arrival)| {
                let ready = self.volatile.ready(source);
                let is_unattended = ready.waiting.is_empty() && ready.draining.is_empty();
                !is_arrival || !is_unattended || self.forwards(source)
            })
    }

    /// When [`Broker::tick`] next has something to do, in the owner's time. `None`: not before something else happens.
    pub fn next_due(&self) -> Option<Time> {
        if self.is_waiting() {
            return None;
        }
        let is_at_once = self.is_advancing() || self.volatile.has_stirred();
        if is_at_once { Some(Time::AT_ONCE) } else { self.volatile.next_due() }
    }

    /// Works off what is due, a slice of it; [`Broker::next_due`] says whether more is.
    pub fn tick(&mut self, context: Context, decision: &mut Decision) {
        if self.is_advancing() {
            self.go_on_advancing(context, decision);
            return self.dispatch(context, decision);
        }
        self.end_overdue(context);
        self.count_state();
        let mut left = TIMER_SLICE;
        while left > 0
            && !decision.is_long()
            && let Some(due) = self.volatile.take_due(context.now)
        {
            let entity = match &due {
                Due::Lock(timer) => timer.source.entity,
                Due::Entity(entity, _) => *entity,
            };
            left -= self.work_off(due, left, &mut decision.at(self.context_at(entity, context)));
        }
        self.dispatch(context, decision);
    }

    /// Hands out what may be handed out, a slice of it, each queue at the time of its namespace.
    fn dispatch(&mut self, context: Context, decision: &mut Decision) {
        let mut left = if self.is_advancing() { 0 } else { DISPATCH_SLICE };
        while left > 0
            && !decision.is_long()
            && let Some(source) = self.volatile.next_stirred()
        {
            left -= self.hand_out(source, left, &mut decision.at(self.context_at(source.entity, context)));
        }
    }

    /// Takes a record: into memory now, to the journal by way of the decision.
    pub(crate) fn write(&mut self, record: Record, decision: &mut LocalDecision<'_>) {
        if self.is_advancing() {
            self.tell_time(decision.now, decision);
        }
        self.note_change(&record);
        let left = self.sessions_left(&record);
        self.durable.apply_local(&record, decision.now);
        decision.record(record);
        if let Some((entity, session)) = left {
            self.volatile.mark_changed(entity, session);
        }
    }

    /// Takes a record that has no date, and so belongs to no namespace.
    pub(crate) fn write_undated(&mut self, record: Record, decision: &mut Decision) {
        assert_eq!(self.durable.namespace_of_record(&record), None, "what has a date is told at its time");
        self.durable.apply_local(&record, LocalTime::default());
        decision.record(record);
    }
}
