//! Settling: what a receiver decides about a message it has locked. Whoever presents the token may settle (S-94).
//!
//! The receiver hears that it is settled only when the record is durable, so a crash before that delivers the message
//! again: at least once, never lost (S-88).

use crate::Broker;
use crate::command::Outcome;
use crate::decision::{Context, Decided, Decision, Material, Needs};
use crate::effect::{Effect, Settled};
use crate::ids::{EntityId, LinkId, LockToken, Sequence};
use crate::limits::PROPERTIES_BYTES;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::volatile::Touch;
use message::overlay::Overlay;
use message::sections::{section, sections};

/// Why a settlement is not made now.
enum Hindrance {
    Refused(Refusal),
    Needs(Needs),
}

impl From<Refusal> for Hindrance {
    fn from(refusal: Refusal) -> Hindrance {
        Hindrance::Refused(refusal)
    }
}

impl Broker {
    #[expect(clippy::too_many_arguments, reason = "one command's fields")]
    pub(crate) fn settle(
        &mut self,
        link: LinkId,
        delivery: u32,
        token: LockToken,
        outcome: &Outcome,
        wants_answer: bool,
        material: Material<'_>,
        context: Context,
        decision: &mut Decision,
    ) -> Decided {
        let Some(entity) = self.volatile.link(link).map(|link| link.entity) else { return Decided::Done };
        match self.check_settle(entity, token, outcome, material, context) {
            Ok(()) => {
                let outcome = self.settle_locked(entity, token.sequence(), outcome, context, decision);
                if wants_answer {
                    decision.effect(Effect::Settled { link, delivery, outcome });
                }
                self.dispatch(context, decision);
                Decided::Done
            }
            Err(Hindrance::Needs(needs)) => Decided::Needs(needs),
            Err(Hindrance::Refused(refusal)) => {
                if wants_answer {
                    decision.effect(Effect::NotSettled { link, delivery, refusal });
                }
                Decided::Done
            }
        }
    }

    fn check_settle(
        &self,
        entity: EntityId,
        token: LockToken,
        outcome: &Outcome,
        material: Material<'_>,
        context: Context,
    ) -> Result<(), Hindrance> {
        let sequence = token.sequence();
        if self.volatile.lock(entity, token, context.now).is_none() {
            return Err(Refusal::LockLost(sequence).into());
        }
        match outcome {
            Outcome::Complete | Outcome::Release | Outcome::Abandon(None) => Ok(()),
            Outcome::Abandon(Some(overlay)) => self.check_overlay(entity, sequence, overlay, material),
            Outcome::Defer(_) => Err(Refusal::NotSupported("deferring a message").into()),
            Outcome::DeadLetter(_) => Err(Refusal::NotSupported("dead-lettering a message").into()),
        }
    }

    /// Changed properties must fit the limit together with those that are stored (S-18), so those must be read.
    fn check_overlay(
        &self,
        entity: EntityId,
        sequence: Sequence,
        change: &Overlay,
        material: Material<'_>,
    ) -> Result<(), Hindrance> {
        let queue = self.durable.queue(entity).expect("a link's entity exists as long as the link");
        let slot = queue.index.get(sequence).expect("what is locked is there");
        let extra = queue.extras.get(&sequence);
        // The properties stand at the front of a message, in its first part.
        let front = extra.and_then(|extra| extra.parts.first()).copied().unwrap_or(slot.body);
        let Some((_, stored)) = material.iter().find(|(body, _)| *body == front) else {
            return Err(Hindrance::Needs(Needs(vec![front])));
        };
        let mut overlay = extra.and_then(|extra| extra.overlay.clone()).unwrap_or_default();
        let size = properties_bytes(stored) + overlay.encoded_bytes() + change.encoded_bytes();
        if size > PROPERTIES_BYTES || overlay.merge(change).is_err() {
            return Err(Refusal::PropertiesTooLarge { size, limit: PROPERTIES_BYTES }.into());
        }
        Ok(())
    }

    fn settle_locked(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        outcome: &Outcome,
        context: Context,
        decision: &mut Decision,
    ) -> Settled {
        self.volatile.apply(Touch::Unlocked { entity, sequence });
        match outcome {
            Outcome::Complete => {
                self.write(Record::Removed { entity, first: sequence, count: 1 }, context, decision);
                Settled::Completed
            }
            Outcome::Abandon(overlay) => {
                self.give_back(entity, sequence, overlay.clone(), context, decision);
                Settled::Abandoned
            }
            Outcome::Release => {
                self.volatile.free_now(entity, sequence);
                Settled::Released
            }
            Outcome::Defer(_) | Outcome::DeadLetter(_) => unreachable!("refused by the check"),
        }
    }

    /// A delivery failed: the message is free again once that is durable, its count one higher (S-86).
    pub(crate) fn give_back(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        overlay: Option<Box<Overlay>>,
        context: Context,
        decision: &mut Decision,
    ) {
        self.write(Record::Returned { entity, sequence, overlay }, context, decision);
        self.volatile.apply(Touch::Returned { entity, sequence, position: context.position });
    }
}

/// Bytes of the sections before the body. What follows may be cut off: a large message is stored in parts.
fn properties_bytes(stored: &[u8]) -> usize {
    let sections = sections(stored).map_while(Result::ok);
    sections.take_while(|each| each.code < section::DATA).map(|each| each.span.range().len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::testing::{World, deliveries};
    use crate::time::Span;

    fn locked() -> (World, LinkId, LockToken) {
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        (world, link, token)
    }

    #[test]
    fn a_completed_message_is_removed_and_its_lock_is_worth_nothing() {
        // S-88, S-92
        let (mut world, link, token) = locked();
        let effects = world.settle(link, 7, token, Outcome::Complete);
        assert_eq!(effects, [Effect::Settled { link, delivery: 7, outcome: Settled::Completed }]);
        assert!(!world.last_release_is_free);
        assert_eq!((world.queue("q").active, world.queue("q").bytes), (0, 0));
        let refusal = Refusal::LockLost(Sequence(1));
        let again = world.settle(link, 7, token, Outcome::Complete);
        assert_eq!(again, [Effect::NotSettled { link, delivery: 7, refusal }]);
    }

    #[test]
    fn a_lock_that_ends_at_noon_is_lost_at_noon() {
        // S-92
        let (mut world, link, token) = locked();
        world.now = world.now.after(Span(59_999));
        assert!(world.broker.volatile.lock(EntityId(0), token, world.now).is_some());
        world.now = world.now.after(Span(1));
        assert!(matches!(
            world.settle(link, 0, token, Outcome::Complete)[..],
            [Effect::NotSettled { refusal: Refusal::LockLost(Sequence(1)), .. }]
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
            [Effect::NotSettled { refusal: Refusal::LockLost(_), .. }]
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
            world.settle_raw(link, token, &abandon, &[]),
            Decided::Needs(Needs(vec![crate::BodyId(1)]))
        );
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 0);
        let stored = [(crate::BodyId(1), &[][..])];
        assert_eq!(world.settle_raw(link, token, &abandon, &stored), Decided::Done);
        let extra = world.queue("q").extras[&Sequence(1)].clone();
        assert!(extra.overlay.as_ref().unwrap().application("attempt").is_some());
    }

    #[test]
    fn properties_that_grow_beyond_the_limit_are_refused_and_the_lock_stays() {
        // S-18
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
        let stored = [(crate::BodyId(1), &properties[..])];
        assert_eq!(world.settle_raw(link, token, &abandon, &stored), Decided::Done);
        assert!(matches!(
            world.take_effects()[..],
            [Effect::NotSettled { refusal: Refusal::PropertiesTooLarge { .. }, .. }]
        ));
        assert_eq!(world.token(1), token);
    }
}
