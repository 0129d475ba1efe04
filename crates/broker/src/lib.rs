//! What a broker decides. Pure: no I/O, no clock, no randomness, no threads.
//!
//! A [`Command`] is checked against the state and refused whole, or taken step by step: each step is a [`Record`]
//! (durable) or a [`Touch`] (memory only), applied at once so that the next step sees it, and [`Effect`]s that whoever
//! runs the broker releases when the records are durable. Replaying the records gives the durable state again.

pub mod access;
pub mod command;
pub mod decision;
pub mod durable;
pub mod effect;
pub mod ids;
pub mod limits;
mod link;
pub mod manage;
mod namespace;
pub mod queue;
pub mod record;
pub mod refusal;
mod relocate;
pub mod settings;
pub mod snapshot;
#[cfg(test)]
mod testing;
pub mod time;
pub mod topic;
pub mod volatile;

pub use access::AccessRule;
pub use command::{Command, Incoming, Intake, Outcome, ReceiveMode};
pub use decision::{Context, Decided, Decision, Material, Needs, Release};
pub use durable::Durable;
pub use effect::{Answer, Delivery, Effect, Extra, QueueDescription, Settled};
pub use ids::{
    BodyId, ConnectionId, EntityId, LinkId, LockToken, NamespaceId, Position, RequestId, Sequence,
};
pub use manage::Task;
pub use record::Record;
pub use refusal::Refusal;
pub use settings::{QueueSettings, Status};
pub use snapshot::Snapshot;
pub use time::{Span, Time};
pub use volatile::{Touch, Volatile};

use limits::{DISPATCH_SLICE, TIMER_SLICE};

/// One partition's worth of entities and everything that happens in them.
#[derive(Debug)]
pub struct Broker {
    pub(crate) durable: Durable,
    pub(crate) volatile: Volatile,
}

impl Broker {
    /// A broker over a state that replay has built. `nonce` seeds the lock tokens and must be fresh for each run.
    pub fn new(durable: Durable, nonce: u64) -> Broker {
        let volatile = Volatile::rebuilt(&durable, nonce);
        Broker { durable, volatile }
    }

    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Decides one command. `messages` are those of its batch; `material` is what an earlier answer asked for.
    pub fn decide(
        &mut self,
        command: &Command,
        messages: &[Incoming],
        material: Material<'_>,
        context: Context,
        decision: &mut Decision,
    ) -> Decided {
        match command {
            Command::Send { link, delivery, is_settled, messages: range } => {
                let messages = &messages[range.start as usize..range.end as usize];
                self.send(*link, *delivery, *is_settled, messages, context, decision);
            }
            Command::Settle { link, delivery, token, outcome, wants_answer } => {
                return self.settle(
                    *link,
                    *delivery,
                    *token,
                    outcome,
                    *wants_answer,
                    material,
                    context,
                    decision,
                );
            }
            Command::Credit { link, limit, drain } => self.credit(*link, *limit, *drain, context, decision),
            Command::Part { link, body } => self.store_part(*link, *body, context, decision),
            Command::DropParts { link } => self.volatile.apply(Touch::PartsDropped { link: *link }),
            Command::AttachSender { link, namespace, path } => {
                self.attach_sender(*link, *namespace, path, decision);
            }
            Command::AttachReceiver { link, namespace, path, mode } => {
                self.attach_receiver(*link, *namespace, path, *mode, decision);
            }
            Command::Detach { link } => self.volatile.apply(Touch::Detached { link: *link }),
            Command::CreateQueue { request, namespace, path, settings } => {
                let answer = self.create_queue(*namespace, path, settings, context, decision);
                decision.effect(Effect::Answered { request: *request, answer });
            }
            Command::DeleteEntity { request, namespace, path } => {
                let answer = self.delete_entity(*namespace, path, context, decision);
                decision.effect(Effect::Answered { request: *request, answer });
            }
            Command::DescribeEntity { request, namespace, path } => {
                let answer = self.describe_entity(*namespace, path);
                decision.effect(Effect::Answered { request: *request, answer });
            }
            Command::Manage { request, namespace, task } => {
                let answer = self.manage(*namespace, task, context, decision);
                decision.effect(Effect::Answered { request: *request, answer });
            }
            Command::ListQueues { request, namespace, skip, top } => {
                let answer = Ok(self.list_queues(*namespace, *skip, *top));
                decision.effect(Effect::Answered { request: *request, answer });
            }
        }
        self.dispatch(context, decision);
        Decided::Done
    }

    /// Everything up to `position` is durable: what it brought may be handed out.
    pub fn committed(&mut self, position: Position, context: Context, decision: &mut Decision) {
        self.volatile.apply(Touch::Committed { position });
        self.dispatch(context, decision);
    }

    /// When [`Broker::tick`] next has something to do. `None`: not before something else happens.
    pub fn next_due(&self) -> Option<Time> {
        if self.volatile.stirred.is_empty() { self.volatile.next_due() } else { Some(Time(i64::MIN)) }
    }

    /// Works off what is due, a slice of it; [`Broker::next_due`] says whether more is.
    pub fn tick(&mut self, context: Context, decision: &mut Decision) {
        for _ in 0..TIMER_SLICE {
            match self.volatile.take_due(context.now) {
                Some((entity, lock)) => self.expire_lock(entity, lock, context, decision),
                None => break,
            }
        }
        self.dispatch(context, decision);
    }

    /// Hands out what may be handed out, a slice of it.
    fn dispatch(&mut self, context: Context, decision: &mut Decision) {
        let mut left = DISPATCH_SLICE;
        while left > 0
            && let Some(entity) = self.volatile.next_stirred()
        {
            left -= self.hand_out(entity, left, context, decision);
        }
    }

    /// Takes a record: into memory now, to the journal by way of the decision.
    pub(crate) fn write(&mut self, record: Record, context: Context, decision: &mut Decision) {
        self.durable.apply(&record, context.now);
        decision.record(record);
    }
}
