//! Handing out within sessions: to the holder alone, in the order of numbers (S-145), as far as its credit goes.

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{Decision, LocalDecision};
use crate::effect::{Delivery, Effect};
use crate::ids::{LockToken, Sequence, Source};
use crate::planted::{Bug, is_planted};
use crate::queue::read_request::ReadRequest;
use crate::record::Record;
use crate::volatile::{Link, Role};
use std::sync::Arc;

impl Broker {
    /// Hands out what is free in the sessions of an entity, and sessions to the links that wait for one; `most` units of work at
    /// most. Says how many there were (at least one).
    pub(crate) fn hand_out_sessions(
        &mut self,
        source: Source,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let mut left = most;
        self.expire_loose(source, &mut left, decision);
        while left > 0
            && let Some(session) = self.volatile.take_changed(source.entity)
        {
            left -= 1;
            self.refresh(source, &session);
            self.serve(source, &session, &mut left, decision);
            if left == 0 {
                self.volatile.mark_changed(source.entity, session);
            }
        }
        self.give_out(source, &mut left, decision);
        if left == 0 {
            self.volatile.stir(source);
        }
        (most - left).max(1)
    }

    /// A lock protects a message that has expired (S-52): what it protected goes when its holder has left (S-53).
    fn expire_loose(&mut self, source: Source, left: &mut usize, decision: &mut LocalDecision<'_>) {
        while *left > 0
            && let Some(sequence) = self.volatile.take_loose(source.entity)
        {
            *left -= 1;
            let slot = self.queue_of(source).index.get(sequence);
            let is_expired = slot.is_some_and(|slot| slot.is_expired(decision.now));
            if is_expired && !self.volatile.ready(source).locks.contains_key(&sequence) {
                self.expire(source.entity, sequence, false, None, decision);
            }
        }
    }

    /// Hands out messages of one session to its holder.
    fn serve(
        &mut self,
        source: Source,
        session: &Arc<str>,
        left: &mut usize,
        decision: &mut LocalDecision<'_>,
    ) {
        let before = *left;
        while *left > 0
            && let Some(live) =
                self.volatile.sessions(source.entity).and_then(|sessions| sessions.get(session))
            && live.is_whole()
            && let Some(holder) = live.holder
            && holder.credit > 0
            && decision.now < holder.until
        {
            let returned = live.returned.first().copied().unwrap_or(live.cursor);
            let is_late =
                is_planted(Bug::SessionOrder) && self.first_free(source, session, live.cursor).is_some();
            let from = if is_late { live.cursor } else { returned.min(live.cursor) };
            let Some(sequence) = self.next_in_session(source, session, from, decision) else {
                break;
            };
            let Some(Link { role: Role::Receiver { mode, .. }, .. }) = self.volatile.link(holder.link) else {
                unreachable!("who holds a session receives");
            };
            let mode = *mode;
            if mode == ReceiveMode::ReceiveAndDelete
                && !self.volatile.ready(source).vouched.contains(&sequence)
            {
                self.ask_to_check_session(source, session, holder.credit, decision);
                break;
            }
            *left -= 1;
            let mut delivery = self.take_in_session(source, session, sequence, true);
            self.volatile.serve_session(source.entity, session);
            let link = holder.link;
            match mode {
                ReceiveMode::PeekLock => {
                    delivery.locked_until = Some(holder.until);
                    decision.free_effect(Effect::Deliver { link, mode, delivery });
                }
                // The removal must be durable before the message leaves, or a crash would deliver it again (S-80).
                ReceiveMode::ReceiveAndDelete => {
                    self.untake(source, sequence);
                    let removed = Record::Removed { entity: source.entity, first: sequence, count: 1 };
                    self.write(removed, decision);
                    decision.effect(Effect::Deliver { link, mode, delivery });
                }
            }
        }
        if *left < before {
            self.volatile.set_accessed(source.entity, decision.now);
        }
    }

    /// The first message of a session, from a number on, that is committed and not locked.
    pub(super) fn first_free(&self, source: Source, session: &str, from: Sequence) -> Option<Sequence> {
        let active = &self.session(source.entity, session)?.active;
        let ready = self.volatile.ready(source);
        let mut from = from;
        loop {
            let sequence = active.next_from(from).filter(|sequence| *sequence <= ready.committed)?;
            if !ready.locks.contains_key(&sequence) {
                return Some(sequence);
            }
            from = sequence.next();
        }
    }

    /// As [`Broker::first_free`], after what has expired went where it belongs (S-51).
    pub(crate) fn next_in_session(
        &mut self,
        source: Source,
        session: &str,
        from: Sequence,
        decision: &mut LocalDecision<'_>,
    ) -> Option<Sequence> {
        loop {
            let sequence = self.first_free(source, session, from)?;
            if !self.locked_slot(source, sequence).is_expired(decision.now) {
                return Some(sequence);
            }
            self.expire(source.entity, sequence, false, None, decision);
        }
    }

    /// Locks a message for the holder of its session. `is_in_order`: it comes in its turn, and not by its number.
    pub(crate) fn take_in_session(
        &mut self,
        source: Source,
        session: &Arc<str>,
        sequence: Sequence,
        is_in_order: bool,
    ) -> Delivery {
        let token = LockToken::new(self.volatile.fresh_nonce(), sequence);
        let delivery = crate::queue::delivery_of(self.queue_of(source), source, sequence);
        let delivery = Delivery { token, ..delivery.expect("what is free is there") };
        self.volatile.take_in_session(source.entity, session, token, is_in_order);
        delivery
    }

    /// A message is not locked any more, in whatever way that was decided.
    pub(crate) fn untake(&mut self, source: Source, sequence: Sequence) {
        self.volatile.unlock(source, sequence);
        if let Some(session) = self.session_of(source, sequence) {
            self.volatile.untake_in_session(source.entity, &session, sequence);
        }
    }

    /// Asks for the messages that come next in a session, unless some of another are being read.
    fn ask_to_check_session(
        &mut self,
        source: Source,
        session: &Arc<str>,
        credit: u32,
        decision: &mut Decision,
    ) {
        self.volatile.session_is_asked_for(source.entity, session);
        if self.volatile.ready(source).is_checking {
            return;
        }
        let mut from = Sequence(0);
        let next = std::iter::from_fn(|| {
            let sequence = self.first_free(source, session, from)?;
            from = sequence.next();
            Some(sequence)
        });
        let request = ReadRequest::of(self.queue_of(source), source, next, credit as usize, false);
        decision.read_requests.push(request);
        self.volatile.begin_check(source);
    }
}

#[cfg(test)]
mod tests;
