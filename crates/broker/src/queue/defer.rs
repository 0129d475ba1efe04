//! Deferral: a message set aside by its receiver (S-120), received again only by its number (S-121).

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{Hindrance, LocalContext, LocalDecision, Material, Need, Needs};
use crate::durable::Applying;
use crate::effect::{Answer, Delivery};
use crate::ids::{BodyId, EntityId, NamespaceId, Number, Sequence, Source, SubQueue};
use crate::limits::{REQUEST_BODIES, REQUEST_DELIVERED_BYTES, REQUEST_MESSAGES};
use crate::link::FORWARDING;
use crate::queue::index::{Reason, State};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::session::Held;
use crate::time::LocalTime;
use message::overlay::Overlay;
use std::collections::BTreeSet;
use std::sync::Arc;

const SESSION_MISSING: &str =
    "A deferred message of a session is received by the holder of the session, which the request must name.";

impl Broker {
    /// Sets a message aside. That counts as a delivery (S-86), and the last one that a message has ends in the
    /// dead-letter queue (S-126).
    pub(crate) fn defer(
        &mut self,
        source: Source,
        sequence: Sequence,
        overlay: Option<Box<Overlay>>,
        decision: &mut LocalDecision<'_>,
    ) {
        let (entity, count) = (source.entity, self.locked_slot(source, sequence).count());
        let most = self.queue_of(source).settings.max_delivery_count;
        if source.sub == SubQueue::Main && count + 1 >= most {
            let reason = Reason::MaxDeliveryCount;
            return self.dead_letter(entity, sequence, reason, true, overlay, decision);
        }
        self.write(Record::Deferred { entity, sequence, overlay }, decision);
    }

    /// All of the messages, or none. One that has expired goes at this moment (S-65).
    pub(crate) fn receive_deferred(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        numbers: &[Number],
        mode: ReceiveMode,
        held: Option<Held<'_>>,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Hindrance> {
        let context = decision.context();
        let source = self.resolve_for_receive(namespace, path)?;
        if self.forwards(source) {
            return Err(Refusal::NotAllowed(FORWARDING).into());
        }
        let (count, limit) = (numbers.len(), REQUEST_MESSAGES);
        if count > limit {
            return Err(Refusal::TooMany { what: "sequence numbers", count, limit }.into());
        }
        // S-125
        let session: Option<(Arc<str>, LocalTime)> = match (self.has_sessions(source), held) {
            (true, Some(held)) => Some((held.0.into(), self.check_held(source, held, context)?.until)),
            (true, None) => return Err(Refusal::NotAllowed(SESSION_MISSING).into()),
            (false, _) => None,
        };
        self.volatile.set_accessed(source.entity, context.now);
        let (mut found, mut met) = (Vec::with_capacity(count), BTreeSet::new());
        let mut missing = None;
        for number in numbers {
            let found_number = self.find_deferred(source, *number).filter(|sequence| {
                let own = self.session_of(source, *sequence);
                own.as_deref() == session.as_ref().map(|(session, _)| &**session)
            });
            match found_number {
                Some(sequence) if self.is_past(source, sequence, context) => {
                    self.expire(source.entity, sequence, false, None, decision);
                    missing = missing.or(Some(*number));
                }
                Some(sequence) if met.insert(sequence) => found.push(sequence),
                _ => missing = missing.or(Some(*number)),
            }
        }
        if let Some(number) = missing {
            return Err(Refusal::MessageNotFound(number).into());
        }
        self.check_delivered(source, &found)?;
        let bodies = self.bodies_of(source, &found)?;
        if mode == ReceiveMode::ReceiveAndDelete {
            check_read(bodies, decision.material)?;
        }
        let mut deliveries = Vec::with_capacity(count);
        for sequence in found {
            match &session {
                Some((session, until)) if mode == ReceiveMode::PeekLock => {
                    let delivery = self.take_in_session(source, session, sequence, false);
                    deliveries.push(Delivery { locked_until: Some(*until), ..delivery });
                }
                _ => deliveries.push(self.take(source, sequence, mode, context)),
            }
            if mode == ReceiveMode::ReceiveAndDelete {
                let removed = Record::Removed { entity: source.entity, first: sequence, count: 1 };
                self.write(removed, decision);
            }
        }
        Ok(Answer::Messages(deliveries))
    }

    /// Whether one answer may have all of these messages.
    fn check_delivered(&self, source: Source, sequences: &[Sequence]) -> Result<(), Refusal> {
        let queue = self.queue_of(source);
        let bytes_of = |sequence: &Sequence| {
            u64::from(self.locked_slot(source, *sequence).length) + queue.overlay_bytes(*sequence)
        };
        let (bytes, limit) = (sequences.iter().map(bytes_of).sum::<u64>(), REQUEST_DELIVERED_BYTES);
        if sequences.len() <= 1 || bytes <= limit {
            return Ok(());
        }
        Err(Refusal::TooMany { what: "bytes of messages", count: bytes as usize, limit: limit as usize })
    }

    /// All bodies of messages, if one request may have so many.
    fn bodies_of(&self, source: Source, sequences: &[Sequence]) -> Result<Vec<BodyId>, Refusal> {
        let queue = self.queue_of(source);
        let mut bodies = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            bodies.extend(queue.bodies(*sequence, &self.locked_slot(source, *sequence)));
        }
        let (count, limit) = (bodies.len(), REQUEST_BODIES);
        if count > limit {
            Err(Refusal::TooMany { what: "parts of messages", count, limit })
        } else {
            Ok(bodies)
        }
    }

    /// A deferred message of this number that nobody has locked (S-122).
    fn find_deferred(&self, source: Source, number: Number) -> Option<Sequence> {
        let queue = self.queue_of(source);
        let sequence = queue.sequence(number)?;
        let slot = queue.index_of(source.sub)?.get(sequence)?;
        let is_locked = self.volatile.ready(source).locks.contains_key(&sequence);
        (slot.state() == State::Deferred && !is_locked).then_some(sequence)
    }

    fn is_past(&self, source: Source, sequence: Sequence, context: LocalContext) -> bool {
        source.sub == SubQueue::Main && self.locked_slot(source, sequence).expires <= context.now
    }
}

/// What is removed before it leaves must be known to be readable, all of it at once: a message that was changed meanwhile has a body
/// that was not asked about, and what was found out before is forgotten.
fn check_read(bodies: Vec<BodyId>, material: &Material) -> Result<(), Hindrance> {
    if bodies.iter().all(|body| material.is_readable(*body)) {
        return Ok(());
    }
    Err(Hindrance::Needs(Needs(bodies.into_iter().map(Need::is_readable).collect())))
}

impl Applying<'_> {
    pub(crate) fn deferred(&mut self, entity: EntityId, sequence: Sequence, overlay: Option<&Overlay>) {
        let queue = self.queue_mut(entity);
        queue.raise_count(sequence);
        queue.defer(sequence);
        self.change_properties(entity, sequence, overlay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::command::{Arrivals, Command};
    use crate::decision::Decided;
    use crate::effect::{Effect, Settled};
    use crate::ids::RequestId;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries};
    use crate::time::Span;

    /// A queue with `count` messages, all deferred.
    fn deferred(count: u32) -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", count);
        let link = world.receiver("q", PeekLock, count);
        for sequence in 1..=u64::from(count) {
            let token = world.token(sequence);
            let effects = world.settle(link, 0, token, Outcome::Defer(None));
            assert_eq!(effects, [Effect::Settled { link, delivery: 0, outcome: Settled::Deferred }]);
        }
        world.detach(link);
        world.commit();
        world.take_effects();
        world
    }

    fn not_found(number: u64) -> Result<Answer, Refusal> {
        Err(Refusal::MessageNotFound(Number(number)))
    }

    fn messages(answer: Result<Answer, Refusal>) -> Vec<crate::Delivery> {
        match answer {
            Ok(Answer::Messages(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_deferred_message_is_not_delivered_in_order() {
        // S-91, S-120, S-124
        let mut world = deferred(1);
        assert_eq!(world.receive("q", PeekLock, 9), []);
        let counts = world.queue("q").counts;
        assert_eq!((counts.active, counts.deferred, counts.total()), (0, 1, 1));
        assert!(world.queue("q").bytes > 0);
    }

    #[test]
    fn deferred_messages_are_received_by_their_numbers_under_new_locks() {
        // S-121, S-126
        let mut world = deferred(3);
        let taken = messages(world.receive_deferred("q", &[3, 1], PeekLock));
        assert_eq!(taken.iter().map(|each| each.number.0).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(taken[0].state, State::Deferred);
        assert_eq!(taken[0].count, 1);
        assert_eq!(taken[0].locked_until, Some(world.local().after(Span::minutes(1))));
        assert_ne!(taken[0].token, taken[1].token);
        assert_eq!(
            world.settle_tokens("q", &[taken[0].token, taken[1].token], Outcome::Complete),
            Ok(Answer::Settled)
        );
        assert_eq!(world.queue("q").counts.total(), 1);
    }

    #[test]
    fn deferred_messages_can_be_received_for_good() {
        // S-121
        let mut world = deferred(2);
        let taken = messages(world.receive_deferred("q", &[1, 2], ReceiveAndDelete));
        assert!(taken.iter().all(|each| each.locked_until.is_none()));
        assert!(!world.last_release_is_free);
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_number_that_is_unknown_not_deferred_locked_or_named_twice_is_not_found_and_nothing_is_taken() {
        // S-122
        let mut world = deferred(2);
        world.send_committed("q", 1);
        assert_eq!(world.receive_deferred("q", &[1, 77], PeekLock), not_found(77));
        assert_eq!(world.receive_deferred("q", &[1, 3], PeekLock), not_found(3));
        assert_eq!(world.receive_deferred("q", &[1, 1], PeekLock), not_found(1));
        assert!(world.receive_deferred("q", &[1], PeekLock).is_ok());
        assert_eq!(world.receive_deferred("q", &[2, 1], PeekLock), not_found(1));
        assert!(world.receive_deferred("q", &[2], PeekLock).is_ok());
    }

    #[test]
    fn an_abandoned_deferred_message_stays_deferred_and_counts() {
        // S-86, S-123, S-126
        let mut world = deferred(1);
        let token = messages(world.receive_deferred("q", &[1], PeekLock))[0].token;
        assert!(world.settle_tokens("q", &[token], Outcome::Abandon(None)).is_ok());
        world.commit();
        assert_eq!(world.receive("q", PeekLock, 9), []);
        let again = messages(world.receive_deferred("q", &[1], PeekLock));
        assert_eq!(again[0].count, 2);
        assert!(world.settle_tokens("q", &[again[0].token], Outcome::Defer(None)).is_ok());
        assert_eq!(messages(world.receive_deferred("q", &[1], PeekLock))[0].count, 3);
    }

    #[test]
    fn a_released_deferred_message_stays_deferred_and_does_not_count() {
        let mut world = deferred(1);
        let token = messages(world.receive_deferred("q", &[1], PeekLock))[0].token;
        assert!(world.settle_tokens("q", &[token], Outcome::Release).is_ok());
        assert_eq!(world.receive("q", PeekLock, 9), []);
        assert_eq!(messages(world.receive_deferred("q", &[1], PeekLock))[0].count, 1);
    }

    #[test]
    fn a_lock_on_a_deferred_message_that_ends_leaves_it_deferred_and_counts() {
        // S-127
        let mut world = deferred(1);
        assert!(world.receive_deferred("q", &[1], PeekLock).is_ok());
        world.pass(Span::minutes(1));
        world.tick();
        assert_eq!(deliveries(&world.commit()), []);
        assert_eq!(world.queue("q").counts.deferred, 1);
        assert_eq!(messages(world.receive_deferred("q", &[1], PeekLock))[0].count, 2);
    }

    #[test]
    fn a_deferred_message_can_be_dead_lettered() {
        // S-123
        let mut world = deferred(1);
        let token = messages(world.receive_deferred("q", &[1], PeekLock))[0].token;
        assert!(world.settle_tokens("q", &[token], Outcome::DeadLetter(None)).is_ok());
        world.commit();
        assert_eq!(world.receive("q/$DeadLetterQueue", PeekLock, 1)[0].number, Number(1));
        let counts = world.queue("q").counts;
        assert_eq!((counts.deferred, counts.dead_letter), (0, 1));
    }

    #[test]
    fn the_last_delivery_cannot_be_deferred() {
        // S-126
        let mut world = World::new();
        world.create("q", QueueSettings { max_delivery_count: 1, ..QueueSettings::default() });
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Defer(None));
        world.commit();
        let dead = world.receive("q/$DeadLetterQueue", PeekLock, 1);
        assert_eq!((dead[0].number, dead[0].count), (Number(1), 1));
    }

    #[test]
    fn what_was_changed_meanwhile_has_everything_looked_at_again() {
        let mut world = deferred(2);
        fn ask(world: &mut World, material: &Material) -> Decided {
            let command = Command::ReceiveDeferred {
                request: RequestId::default(),
                namespace: NamespaceId(0),
                path: "q".into(),
                numbers: [Number(1), Number(2)].into(),
                mode: ReceiveAndDelete,
                session: None,
            };
            let mut decided = Decided::Done;
            world.run(|broker, context, decision| {
                decided = broker.decide(&command, Arrivals::default(), material, context, decision);
            });
            decided
        }
        let wanted =
            |bodies: &[u64]| Needs(bodies.iter().map(|body| Need::is_readable(BodyId(*body))).collect());
        assert_eq!(ask(&mut world, Material::NONE), Decided::Needs(wanted(&[1, 2])));
        let before = world.looked_up(&wanted(&[1, 2]));
        // Somebody else changes the first while it is read.
        let token = messages(world.receive_deferred("q", &[1], PeekLock))[0].token;
        let mut changes = Overlay::default();
        changes.set("p", &message::Value::Binary(vec![7; 2_000])).unwrap();
        world.settle_tokens("q", &[token], Outcome::Abandon(Some(Box::new(changes)))).unwrap();
        let again = wanted(&[1, 3, 2]);
        assert_eq!(ask(&mut world, &before), Decided::Needs(again.clone()), "or it would ask for ever");
        let found = world.looked_up(&again);
        assert_eq!(ask(&mut world, &found), Decided::Done);
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_request_has_so_many_parts_of_messages_looked_at_and_no_more() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings { max_message_kilobytes: Some(102_400), ..QueueSettings::default() });
        let (half, sender) = (REQUEST_BODIES / 2, world.sender("q"));
        // One part of each comes with its end.
        for parts in [half - 1, half - 1, 0] {
            (0..parts).for_each(|_| drop(world.part(sender, 10)));
            world.send(sender, 0, &[crate::testing::message(10)]);
        }
        world.commit();
        let link = world.receiver("q", PeekLock, 3);
        for sequence in 1..=3 {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::Defer(None));
        }
        let (count, limit) = (REQUEST_BODIES + 1, REQUEST_BODIES);
        let refused = Err(Refusal::TooMany { what: "parts of messages", count, limit });
        assert_eq!(world.receive_deferred("q", &[1, 2, 3], ReceiveAndDelete), refused);
        assert_eq!(messages(world.receive_deferred("q", &[1, 2], ReceiveAndDelete)).len(), 2);
    }

    // W-38
    #[test]
    fn a_request_takes_as_many_bytes_of_messages_as_it_may_or_one_message() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings { max_message_kilobytes: Some(102_400), ..QueueSettings::default() });
        let (half, sender) = (REQUEST_DELIVERED_BYTES as u32 / 2, world.sender("q"));
        for bytes in [half, half, 1, half * 3] {
            world.send(sender, 0, &[crate::testing::message(bytes)]);
        }
        world.commit();
        let link = world.receiver("q", PeekLock, 4);
        for sequence in 1..=4 {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::Defer(None));
        }
        let (count, limit) = (REQUEST_DELIVERED_BYTES as usize + 1, REQUEST_DELIVERED_BYTES as usize);
        let refused = Err(Refusal::TooMany { what: "bytes of messages", count, limit });
        assert_eq!(world.receive_deferred("q", &[1, 2, 3], PeekLock), refused);
        assert_eq!(messages(world.receive_deferred("q", &[1, 2], PeekLock)).len(), 2, "nothing was locked");
        assert_eq!(messages(world.receive_deferred("q", &[4], PeekLock)).len(), 1);
    }

    #[test]
    fn a_request_names_as_many_numbers_as_it_may_and_no_more() {
        let mut world = deferred(0);
        let numbers: Vec<_> = (1..=REQUEST_MESSAGES as u64 + 1).collect();
        let refused = world.receive_deferred("q", &numbers, PeekLock);
        assert!(matches!(refused, Err(Refusal::TooMany { count: 4_501, limit: 4_500, .. })));
        assert_eq!(world.receive_deferred("q", &numbers[1..], PeekLock), not_found(2));
    }
}
