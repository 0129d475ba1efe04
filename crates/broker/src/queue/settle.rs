//! Settling: what a receiver decides about a message it has locked. The token is what counts: it may be used on the link
//! that brought the message or without any (S-94).
//!
//! The receiver hears that it is settled only when the record is durable, so a crash before that delivers the message
//! again: at least once, never lost (S-88).

use crate::Broker;
use crate::command::Outcome;
use crate::decision::{Decided, Hindrance, LocalContext, LocalDecision, Material, Need, Needs, What};
use crate::durable::Applying;
use crate::effect::{Answer, Effect, Notice, Settled};
use crate::ids::{EntityId, LinkId, LockToken, NamespaceId, Sequence, Source, SubQueue};
use crate::limits::{PROPERTIES_BYTES, REQUEST_CHANGE_BYTES, REQUEST_MESSAGES};
use crate::planted::{Bug, is_planted};
use crate::queue::index::{Reason, State};
use crate::queue::overlay::is_small;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::LocalTime;
use message::overlay::{Overlay, OverlayError};
use std::borrow::Cow;

impl Broker {
    pub(crate) fn settle(
        &mut self,
        link: LinkId,
        delivery: u32,
        token: LockToken,
        outcome: &Outcome,
        wants_answer: bool,
        decision: &mut LocalDecision<'_>,
    ) -> Decided {
        let context = decision.context();
        let Some(source) = self.volatile.link(link).map(|link| link.source) else { return Decided::Done };
        match self.check_settle(source, token, outcome, decision.material, context) {
            Ok(()) => {
                let outcome = self.settle_locked(source, token.sequence(), outcome, decision);
                if wants_answer {
                    decision.effect(Effect::Settled { link, delivery, outcome });
                }
                self.volatile.set_used(source.entity, context.now);
                Decided::Done
            }
            Err(hindrance) => match hindrance.refusal() {
                Ok(refusal) => {
                    if wants_answer {
                        decision.effect(Notice::NotSettled { link, delivery, refusal });
                    }
                    Decided::Done
                }
                Err(undecided) => undecided,
            },
        }
    }

    pub(crate) fn settle_tokens(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        tokens: &[LockToken],
        outcome: &Outcome,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Hindrance> {
        let context = decision.context();
        let source = self.resolve(namespace, path)?;
        check_tokens(tokens)?;
        self.check_changes(source, tokens, outcome)?;
        let mut needed = Vec::new();
        for token in tokens {
            match self.check_settle(source, *token, outcome, decision.material, context) {
                Err(Hindrance::Needs(Needs(bodies))) => needed.extend(bodies),
                other => other?,
            }
        }
        if !needed.is_empty() {
            return Err(Hindrance::Needs(Needs(needed)));
        }
        for token in tokens {
            self.settle_locked(source, token.sequence(), outcome, decision);
        }
        self.volatile.set_used(source.entity, context.now);
        Ok(Answer::Settled)
    }

    pub(crate) fn check_settle(
        &self,
        source: Source,
        token: LockToken,
        outcome: &Outcome,
        material: &Material,
        context: LocalContext,
    ) -> Result<(), Hindrance> {
        let sequence = token.sequence();
        self.check_lock(source, token, context)?;
        if self.volatile.transactions.claims(token, context.now) {
            // The first settlement counts: the commit of a transaction is to find its message.
            return Err(Refusal::LockLost(sequence).into());
        }
        match outcome {
            Outcome::DeadLetter(_) if source.sub != SubQueue::Main => {
                // S-102
                Err(Refusal::NotAllowed("A message cannot be dead-lettered out of a dead-letter queue.")
                    .into())
            }
            Outcome::Complete
            | Outcome::Release
            | Outcome::Abandon(None)
            | Outcome::Defer(None)
            | Outcome::DeadLetter(None) => Ok(()),
            Outcome::Abandon(Some(overlay))
            | Outcome::Defer(Some(overlay))
            | Outcome::DeadLetter(Some(overlay)) => self.check_overlay(source, sequence, overlay, material),
        }
    }

    /// What is changed is recorded for each message, with what was stored before, and all of a request is one append.
    pub(crate) fn check_changes(
        &self,
        source: Source,
        tokens: &[LockToken],
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        let Some(changes) = outcome.changes() else { return Ok(()) };
        let queue = self.queue_of(source);
        let stored: u64 = tokens.iter().map(|token| queue.overlay_bytes(token.sequence())).sum();
        let size = tokens.len() * changes.encoded_bytes() + stored as usize;
        let limit = REQUEST_CHANGE_BYTES;
        if size > limit { Err(Refusal::PropertiesTooLarge { size, limit }) } else { Ok(()) }
    }

    /// A token is worth something as long as its message is locked, and in a session as long as the session is (S-146).
    pub(crate) fn check_lock(
        &self,
        source: Source,
        token: LockToken,
        context: LocalContext,
    ) -> Result<(), Refusal> {
        let sequence = token.sequence();
        let is_locked = self.volatile.lock(source, token, context.now).is_some();
        if !self.has_sessions(source) {
            return if is_locked { Ok(()) } else { Err(Refusal::LockLost(sequence)) };
        }
        let session = self.session_of(source, sequence);
        let is_held = session.is_some_and(|session| self.is_session_held(source, &session, context));
        if is_locked && is_held { Ok(()) } else { Err(Refusal::SessionLockLost) }
    }

    /// Changed properties must fit the limit together with those that are stored (S-18), so those must be read.
    fn check_overlay(
        &self,
        source: Source,
        sequence: Sequence,
        change: &Overlay,
        material: &Material,
    ) -> Result<(), Hindrance> {
        let queue = self.queue_of(source);
        let slot = queue
            .index_of(source.sub)
            .and_then(|index| index.get(sequence))
            .expect("what is locked is there");
        // The properties stand at the front of a message, in its first part.
        let (front, overlay) = (queue.first_body(sequence, slot), queue.stored_overlay(sequence));
        let stored = overlay.map_or(Some(&[][..]), |overlay| material.content(overlay.body));
        let (Some(sent_bytes), Some(stored)) = (material.properties_bytes(front), stored) else {
            let front = Need { body: front, what: What::PropertiesBytes };
            let overlay = overlay.map(|it| Need { body: it.body, what: What::Content(it.length) });
            return Err(Hindrance::Needs(Needs([front].into_iter().chain(overlay).collect())));
        };
        let extra = queue.extras.get(&sequence);
        let before =
            extra.map_or(Ok(None), |extra| extra.changes(stored)).map_err(|_| Refusal::Unreadable)?;
        let mut overlay = before.map(Cow::into_owned).unwrap_or_default();
        // What takes the place of an earlier change counts, and that does not.
        let size = sent_bytes
            + match overlay.merge(change) {
                Ok(()) => overlay.encoded_bytes(),
                Err(OverlayError::TooLarge(bytes)) => bytes,
                Err(other) => unreachable!("changes that were taken are only too large together: {other}"),
            };
        if size > PROPERTIES_BYTES {
            return Err(Refusal::PropertiesTooLarge { size, limit: PROPERTIES_BYTES }.into());
        }
        if !is_small(overlay.encoded_bytes()) {
            self.check_room_for_changes(source.entity)?;
        }
        Ok(())
    }

    pub(crate) fn settle_locked(
        &mut self,
        source: Source,
        sequence: Sequence,
        outcome: &Outcome,
        decision: &mut LocalDecision<'_>,
    ) -> Settled {
        let outcome = match outcome.changes() {
            None => outcome.clone(),
            Some(change) => {
                let kept = self.keep_change(source, sequence, change, decision.material);
                outcome.with(self.write_kept(source.entity, sequence, kept, decision))
            }
        };
        self.settle_as_recorded(source, sequence, outcome, decision)
    }

    /// Settles with changes as records have them.
    pub(crate) fn settle_as_recorded(
        &mut self,
        source: Source,
        sequence: Sequence,
        outcome: Outcome,
        decision: &mut LocalDecision<'_>,
    ) -> Settled {
        let entity = source.entity;
        self.untake(source, sequence);
        match outcome {
            Outcome::Complete => {
                self.write(Record::Removed { entity, first: sequence, count: 1 }, decision);
                Settled::Completed
            }
            Outcome::Abandon(overlay) => {
                self.give_back(source, sequence, overlay, decision.now, decision);
                Settled::Abandoned
            }
            Outcome::Release => {
                self.release(source, sequence, decision);
                Settled::Released
            }
            Outcome::Defer(overlay) => {
                self.defer(source, sequence, overlay, decision);
                Settled::Deferred
            }
            Outcome::DeadLetter(overlay) => {
                self.dead_letter(entity, sequence, Reason::Client, false, overlay, decision);
                Settled::DeadLettered
            }
        }
    }

    /// Handed back unread: free at once, for nothing has happened (S-86). If its time has come meanwhile, it goes.
    fn release(&mut self, source: Source, sequence: Sequence, decision: &mut LocalDecision<'_>) {
        let slot = self.locked_slot(source, sequence);
        if source.sub == SubQueue::Main && slot.is_expired(decision.now) {
            self.expire(source.entity, sequence, false, None, decision);
        } else if slot.state() == State::Active {
            match self.session_of(source, sequence) {
                Some(session) => {
                    self.volatile.free_in_session(source.entity, session, sequence);
                }
                None => self.volatile.free_now(source, sequence),
            }
        }
    }

    /// A delivery failed, at the time `ended`: the message is free again once that is durable, its count one higher
    /// (S-86), unless it has expired (S-53) or was delivered as often as it may be (S-87). A deferred message stays so
    /// (S-123, S-127).
    pub(crate) fn give_back(
        &mut self,
        source: Source,
        sequence: Sequence,
        overlay: Option<Box<Overlay>>,
        ended: LocalTime,
        decision: &mut LocalDecision<'_>,
    ) {
        let entity = source.entity;
        let slot = self.locked_slot(source, sequence);
        if source.sub == SubQueue::Main {
            let most = self.queue_of(source).settings.max_delivery_count;
            let is_last = slot.count() + 1 >= most + u32::from(is_planted(Bug::DeadLetter));
            if slot.is_expired(ended) || !is_last && slot.is_expired(decision.now) {
                return self.expire(entity, sequence, true, overlay, decision);
            }
            if is_last {
                let reason = Reason::MaxDeliveryCount;
                return self.dead_letter(entity, sequence, reason, true, overlay, decision);
            }
        }
        self.write(Record::Returned { entity, sequence, overlay }, decision);
        if slot.state() == State::Active {
            let position = decision.position;
            match self.session_of(source, sequence) {
                Some(session) => {
                    self.volatile.return_to_session(entity, session, sequence, position);
                }
                None => self.volatile.await_return(source, sequence, position),
            }
        }
    }

    pub(crate) fn locked_slot(&self, source: Source, sequence: Sequence) -> crate::queue::index::Slot {
        let index = self.queue_of(source).index_of(source.sub);
        *index.and_then(|index| index.get(sequence)).expect("what was locked is there")
    }
}

/// As many as one request may name, and none of them twice: the second would find nothing to settle.
pub(crate) fn check_tokens(tokens: &[LockToken]) -> Result<(), Refusal> {
    let (count, limit) = (tokens.len(), REQUEST_MESSAGES);
    if count > limit {
        return Err(Refusal::TooMany { what: "lock tokens", count, limit });
    }
    let mut sorted: Vec<_> = tokens.iter().map(|token| token.0).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(Refusal::LockLost(LockToken(twice[0]).sequence())),
        None => Ok(()),
    }
}

impl Applying<'_> {
    pub(crate) fn removed(&mut self, entity: EntityId, first: Sequence, count: u32) {
        let queue = self.queue_mut(entity);
        let before = queue.own_bytes();
        for number in first.0..first.0 + u64::from(count) {
            queue.remove(Sequence(number));
            queue.extras.remove(&Sequence(number));
        }
        if is_planted(Bug::Numbering) && queue.counts.total() == 0 {
            queue.next = first;
        }
        self.tell_topic(entity, before);
    }

    pub(crate) fn returned(&mut self, entity: EntityId, sequence: Sequence, overlay: Option<&Overlay>) {
        let queue = self.queue_mut(entity);
        queue.raise_count(sequence);
        self.change_properties(entity, sequence, overlay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::testing::{World, deliveries};
    use crate::time::Span;
    use message::sections::section;

    fn locked() -> (World, LinkId, LockToken) {
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        (world, link, token)
    }

    #[test]
    fn a_request_names_so_many_tokens_and_none_of_them_twice() {
        let mut tokens: Vec<_> = (0..REQUEST_MESSAGES as u128).map(LockToken).collect();
        assert_eq!(check_tokens(&tokens), Ok(()));
        tokens[7] = tokens[8];
        assert_eq!(check_tokens(&tokens), Err(Refusal::LockLost(tokens[8].sequence())));
        tokens.push(LockToken(u128::MAX));
        assert!(
            matches!(check_tokens(&tokens), Err(Refusal::TooMany { count, limit, .. }) if count == limit + 1)
        );
    }

    #[test]
    fn a_request_changes_no_more_than_an_append_holds() {
        // S-18
        let mut world = World::with_queue("q");
        let mut overlay = Overlay::default();
        overlay.set("trace", &message::Value::Binary(vec![0; 30_000])).unwrap();
        let size = overlay.encoded_bytes();
        let most = REQUEST_CHANGE_BYTES / size;
        let abandon = Outcome::Abandon(Some(Box::new(overlay)));
        let tokens: Vec<_> = (0..=most as u128).map(LockToken).collect();
        let refusal = Refusal::PropertiesTooLarge { size: (most + 1) * size, limit: REQUEST_CHANGE_BYTES };
        assert_eq!(world.settle_tokens("q", &tokens, abandon.clone()), Err(refusal));
        assert_eq!(world.settle_tokens("q", &tokens[1..], abandon), Err(Refusal::LockLost(Sequence(1))));
    }

    #[test]
    fn a_completed_message_is_removed_and_its_lock_is_worth_nothing() {
        // S-88, S-92
        let (mut world, link, token) = locked();
        let effects = world.settle(link, 7, token, Outcome::Complete);
        assert_eq!(effects, [Effect::Settled { link, delivery: 7, outcome: Settled::Completed }]);
        assert!(!world.last_release_is_free);
        assert_eq!((world.queue("q").counts.active, world.queue("q").bytes), (0, 0));
        let refusal = Refusal::LockLost(Sequence(1));
        let again = world.settle(link, 7, token, Outcome::Complete);
        assert_eq!(again, [Effect::Notice(Notice::NotSettled { link, delivery: 7, refusal })]);
    }

    #[test]
    fn a_lock_that_ends_at_noon_is_lost_at_noon() {
        // S-92
        let (mut world, link, token) = locked();
        world.pass(Span(59_999));
        assert!(world.broker.volatile.lock(Source::default(), token, world.local()).is_some());
        world.pass(Span(1));
        assert!(matches!(
            world.settle(link, 0, token, Outcome::Complete)[..],
            [Effect::Notice(Notice::NotSettled { refusal: Refusal::LockLost(Sequence(1)), .. })]
        ));
    }

    #[test]
    fn abandon_raises_the_count_and_release_does_not() {
        // S-86
        let (mut world, link, token) = locked();
        world.settle(link, 0, token, Outcome::Release);
        world.credit(link, 1, false);
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 0);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Abandon(None));
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 1);
    }

    #[test]
    fn an_abandoned_message_is_free_only_when_that_is_durable() {
        // S-89
        let (mut world, link, token) = locked();
        world.settle(link, 0, token, Outcome::Abandon(None));
        assert_eq!(deliveries(&world.credit(link, 1, false)), []);
        assert_eq!(deliveries(&world.commit()), [(link, 1)]);
    }

    #[test]
    fn a_token_of_an_earlier_delivery_is_worth_nothing() {
        let (mut world, link, old) = locked();
        world.settle(link, 0, old, Outcome::Release);
        world.credit(link, 1, false);
        assert_ne!(world.token(1), old);
        assert!(matches!(
            world.settle(link, 0, old, Outcome::Complete)[..],
            [Effect::Notice(Notice::NotSettled { refusal: Refusal::LockLost(_), .. })]
        ));
    }

    #[test]
    fn changing_properties_needs_the_stored_ones() {
        // S-18, S-89
        let (mut world, link, token) = locked();
        let mut overlay = Overlay::default();
        overlay.set("attempt", &message::Value::Int(1)).unwrap();
        let abandon = Outcome::Abandon(Some(Box::new(overlay)));
        assert_eq!(
            world.settle_raw(link, token, &abandon, Material::NONE),
            Decided::Needs(Needs(vec![Need { body: crate::BodyId(1), what: What::PropertiesBytes }]))
        );
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 0);
        let stored = World::fronts(&[(crate::BodyId(1), &[])]);
        assert_eq!(world.settle_raw(link, token, &abandon, &stored), Decided::Done);
        let extra = world.queue("q").extras[&Sequence(1)].clone();
        assert!(extra.overlay.as_ref().unwrap().application("attempt").is_some());
    }

    #[test]
    fn properties_that_grow_beyond_the_limit_are_refused_and_the_lock_stays() {
        // S-18, S-107
        let (mut world, link, token) = locked();
        let mut overlay = Overlay::default();
        for name in ["one", "two"] {
            overlay.set(name, &message::Value::Binary(vec![0; 30_000])).unwrap();
        }
        let abandon = Outcome::Abandon(Some(Box::new(overlay)));
        let mut properties = vec![0x00, 0x53, section::APPLICATION_PROPERTIES];
        let many =
            (0..100).map(|n| (message::Value::String(format!("{n}")), message::Value::Binary(vec![0; 100])));
        message::Value::Map(many.collect()).encode(&mut properties);
        let stored = World::fronts(&[(crate::BodyId(1), &properties)]);
        assert_eq!(world.settle_raw(link, token, &abandon, &stored), Decided::Done);
        assert!(matches!(
            world.take_effects()[..],
            [Effect::Notice(Notice::NotSettled { refusal: Refusal::PropertiesTooLarge { .. }, .. })]
        ));
        assert_eq!(world.token(1), token);
    }
}
