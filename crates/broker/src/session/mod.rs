//! Message sessions: messages with the same session id are received in order, by one receiver at a time (S-140 to S-152).
//!
//! Which message belongs to which session, and the state that receivers leave, is durable ([`register`]). Who holds a
//! session is not (`volatile/live.rs`): the lock of a session ends with its link.

mod accept;
#[cfg(test)]
mod cost_tests;
mod end;
pub mod register;
mod renew;
mod sequences;
mod serve;
mod state;

use crate::Broker;
use crate::decision::{LocalContext, LocalDecision};
use crate::ids::{ConnectionId, EntityId, Sequence, Source, SubQueue};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::topic::published::Origin;
use crate::volatile::live::Holder;
use register::Session;
use std::sync::Arc;

/// A session, and the connection that says it holds it.
pub(crate) type Held<'a> = (&'a str, ConnectionId);

impl Broker {
    /// Whether messages of this part of an entity are received in sessions. A dead-letter queue is like any other (S-103).
    pub(crate) fn has_sessions(&self, source: Source) -> bool {
        source.sub == SubQueue::Main
            && self.durable.queue(source.entity).is_some_and(|queue| queue.settings.requires_session)
    }

    /// The session in which a message is received.
    pub(crate) fn session_of(&self, source: Source, sequence: Sequence) -> Option<Arc<str>> {
        if !self.has_sessions(source) {
            return None;
        }
        self.durable.queue(source.entity)?.session_of(sequence).cloned()
    }

    fn session(&self, entity: EntityId, session: &str) -> Option<&Session> {
        self.durable.queue(entity)?.sessions.as_ref()?.get(session)
    }

    /// Says to which session a message belongs that was just stored, where anybody may ask for it.
    pub(crate) fn join(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        session: Option<&Arc<str>>,
        decision: &mut LocalDecision<'_>,
    ) {
        let keeps = self.durable.queue(entity).is_some_and(|queue| queue.keeps_sessions());
        if let Some(session) = session.filter(|_| keeps) {
            let record = Record::InSession { entity, sequence, session: Arc::clone(session) };
            self.write(record, decision);
        }
    }

    /// The session that a record takes a message from.
    pub(crate) fn sessions_left(&self, record: &Record) -> Option<(EntityId, Arc<str>)> {
        let (entity, sequence) = match record {
            Record::Removed { entity, first, .. } => (*entity, *first),
            Record::Deferred { entity, sequence, .. } | Record::DeadLettered { entity, sequence, .. } => {
                (*entity, *sequence)
            }
            Record::Forwarded { source, sequence, .. } => (source.entity, *sequence),
            Record::Published(published) => match published.origin {
                Origin::Forwarded { source, sequence } => (source.entity, sequence),
                Origin::Sent { .. } | Origin::Scheduled(_) => return None,
            },
            _ => return None,
        };
        // An entity without live sessions has no holders.
        self.volatile.sessions(entity)?;
        let session = self.durable.queue(entity)?.session_of(sequence)?;
        Some((entity, Arc::clone(session)))
    }

    /// The holder of a session, if it is on that connection and its time has not run out.
    pub(crate) fn check_held(
        &self,
        source: Source,
        (session, connection): Held<'_>,
        context: LocalContext,
    ) -> Result<Holder, Refusal> {
        let holder = self.volatile.sessions(source.entity).and_then(|sessions| sessions.holder(session));
        holder
            .filter(|holder| holder.link.connection == connection && context.now < holder.until)
            .ok_or(Refusal::SessionLockLost)
    }

    /// Whether the session of a message is held by anybody (S-146).
    pub(crate) fn is_session_held(&self, source: Source, session: &str, context: LocalContext) -> bool {
        let holder = self.volatile.sessions(source.entity).and_then(|sessions| sessions.holder(session));
        holder.is_some_and(|holder| context.now < holder.until)
    }
}
