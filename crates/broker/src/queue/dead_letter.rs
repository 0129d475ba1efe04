//! The dead-letter queue: a part of the same entity, under the same numbers (S-104). A message moves in one record, so
//! it is never in both and never in none (S-61). There it lives until somebody receives it: no time to live (S-64), no
//! count of deliveries (S-115), no way further (S-102).

use crate::Broker;
use crate::decision::LocalDecision;
use crate::durable::Applying;
use crate::effect::{Extra, over};
use crate::ids::{EntityId, Sequence, Source};
use crate::limits::TRANSFER_HOPS;
use crate::queue::index::{Reason, Slot};
use crate::record::Record;
use message::overlay::Overlay;
use std::sync::Arc;

impl Broker {
    /// Moves a message that nobody has locked. `is_failure`: a delivery failed with it.
    pub(crate) fn dead_letter(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        reason: Reason,
        is_failure: bool,
        overlay: Option<Box<Overlay>>,
        decision: &mut LocalDecision<'_>,
    ) {
        let record = Record::DeadLettered { entity, sequence, reason, is_failure, overlay };
        self.write(record, decision);
        let source = Source::dead_letter(entity);
        self.volatile.await_return(source, sequence, decision.position);
    }
}

/// What a message has besides its slot, with the words of the reason for which the broker dead-lettered it (S-60, S-87).
/// Properties that a client has changed since win.
pub(super) fn with_reason(slot: &Slot, extra: Option<&Arc<Extra>>) -> Option<Arc<Extra>> {
    let Some(words) = words_of(slot) else { return extra.cloned() };
    let mut extra = extra.map_or_else(Extra::default, |extra| (**extra).clone());
    // Changes that are stored are laid over the words by whoever reads them.
    extra.overlay = Some(match &extra.overlay {
        Some(changes) => over(words, changes),
        None => words,
    });
    Some(Arc::new(extra))
}

/// The words of the reason for which the broker dead-lettered a message, if it did.
pub(super) fn words_of(slot: &Slot) -> Option<Overlay> {
    let (reason, description) = match slot.reason() {
        Reason::Client => return None,
        Reason::Expired => ("TTLExpiredException", "The message expired and was dead lettered.".to_owned()),
        Reason::MaxDeliveryCount => (
            "MaxDeliveryCountExceeded",
            format!("Message could not be consumed after {} delivery attempts.", slot.count()),
        ),
        Reason::MaxTransferHops => (
            "MaxTransferHopCountExceeded",
            format!(
                "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to {TRANSFER_HOPS}."
            ),
        ),
        Reason::SessionMissing => (
            "Session id is null.",
            "Session enabled entity doesn't allow a message whose session identifier is null.".to_owned(),
        ),
        Reason::DestinationDisabled => (
            "DestinationDisabled",
            "The entity that the message was sent to by way of this one takes no messages.".to_owned(),
        ),
        Reason::NotForwarded => (
            "ForwardingFailed",
            "The entity that the message was to be forwarded to is full, disabled or gone.".to_owned(),
        ),
    };
    let mut overlay = Overlay::default();
    overlay
        .set_dead_letter(Some(reason), Some(&description))
        .expect("the words of a reason are far below the limit");
    Some(overlay)
}

impl Applying<'_> {
    pub(crate) fn dead_lettered(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        reason: Reason,
        is_failure: bool,
        overlay: Option<&Overlay>,
    ) {
        let queue = self.queue_mut(entity);
        if is_failure {
            queue.raise_count(sequence);
        }
        queue.dead_letter(sequence, reason);
        self.change_properties(entity, sequence, overlay);
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::effect::{Answer, Delivery, Effect, Notice, Settled};
    use crate::ids::{Number, Sequence};
    use crate::refusal::Refusal;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries};
    use crate::time::Span;
    use message::overlay::{Change, Overlay};

    const DEAD: &str = "q/$DeadLetterQueue";

    /// A queue that delivers each message twice, and `count` of them.
    fn twice(count: u32) -> World {
        let mut world = World::new();
        world.create("q", QueueSettings { max_delivery_count: 2, ..QueueSettings::default() });
        world.send_committed("q", count);
        world
    }

    pub(crate) fn property(delivery: &Delivery, name: &str) -> Option<String> {
        match delivery.extra.as_ref()?.overlay.as_ref()?.application(name)? {
            Change::Set(value) => message::Value::decode(value).unwrap().as_str().map(str::to_owned),
            Change::Removed => None,
        }
    }

    #[test]
    fn a_message_is_delivered_as_often_as_it_may_be_and_then_dead_lettered() {
        // S-87, S-106
        let mut world = twice(1);
        let link = world.receiver("q", PeekLock, 10);
        for _ in 0..2 {
            let token = world.token(1);
            world.settle(link, 0, token, Outcome::Abandon(None));
            world.commit();
        }
        let counts = world.queue("q").counts;
        assert_eq!((counts.active, counts.dead_letter, counts.total()), (0, 1, 1));
        let dead = world.receive(DEAD, PeekLock, 1);
        assert_eq!((dead[0].number, dead[0].count), (Number(1), 2));
        assert_eq!(property(&dead[0], "DeadLetterReason").unwrap(), "MaxDeliveryCountExceeded");
        assert_eq!(
            property(&dead[0], "DeadLetterErrorDescription").unwrap(),
            "Message could not be consumed after 2 delivery attempts."
        );
    }

    #[test]
    fn a_lock_that_runs_out_counts_as_a_delivery_that_failed() {
        // S-86, S-87
        let mut world = twice(1);
        world.receiver("q", PeekLock, 10);
        for _ in 0..2 {
            world.pass(Span::minutes(1));
            world.tick();
            world.commit();
        }
        assert_eq!(world.queue("q").counts.dead_letter, 1);
    }

    #[test]
    fn a_client_dead_letters_with_its_own_words_and_the_count_stays() {
        // S-86, S-90, S-111
        let mut world = twice(1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        let mut overlay = Overlay::default();
        overlay.set_dead_letter(Some("no good"), Some("because")).unwrap();
        overlay.set("attempt", &message::Value::from("first")).unwrap();
        let outcome = Outcome::DeadLetter(Some(Box::new(overlay)));
        let material = World::fronts(&[(crate::BodyId(1), &[])]);
        assert_eq!(world.settle_raw(link, token, &outcome, &material), crate::Decided::Done);
        let settled = Effect::Settled { link, delivery: 0, outcome: Settled::DeadLettered };
        assert_eq!(world.take_effects(), [settled]);
        world.commit();
        let dead = world.receive(DEAD, PeekLock, 1);
        assert_eq!(dead[0].count, 0);
        assert_eq!(property(&dead[0], "DeadLetterReason").unwrap(), "no good");
        assert_eq!(property(&dead[0], "DeadLetterErrorDescription").unwrap(), "because");
        assert_eq!(property(&dead[0], "attempt").unwrap(), "first");
    }

    #[test]
    fn a_dead_letter_queue_hands_out_by_number_what_entered_in_any_order() {
        // S-100, S-104
        let mut world = twice(3);
        let link = world.receiver("q", PeekLock, 3);
        for sequence in [3, 1, 2] {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::DeadLetter(None));
        }
        world.commit();
        let numbers: Vec<_> =
            world.receive("Q/$deadLETTERqueue", PeekLock, 9).iter().map(|d| d.number.0).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn a_dead_letter_keeps_its_number_its_body_and_its_enqueued_time() {
        // S-104
        let mut world = twice(2);
        let before = world.receive("q", PeekLock, 2);
        world.pass(Span::seconds(20));
        world.settle_tokens("q", &[before[1].token], Outcome::DeadLetter(None)).unwrap();
        world.commit();
        let after = world.receive(DEAD, PeekLock, 1);
        let what = |delivery: &Delivery| (delivery.number, delivery.body, delivery.enqueued);
        assert_eq!(what(&after[0]), what(&before[1]));
    }

    #[test]
    fn a_dead_letter_is_handed_out_only_when_its_move_is_durable() {
        // S-61
        let mut world = twice(1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::DeadLetter(None));
        let reader = world.receiver(DEAD, PeekLock, 1);
        assert_eq!(deliveries(&world.take_effects()), []);
        assert_eq!(deliveries(&world.commit()), [(reader, 1)]);
    }

    #[test]
    fn the_count_stands_still_in_a_dead_letter_queue() {
        // S-102, S-115
        let mut world = twice(1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::DeadLetter(None));
        world.commit();
        let reader = world.receiver(DEAD, PeekLock, 9);
        for _ in 0..5 {
            let token = world.dead_token(1);
            world.settle(reader, 0, token, Outcome::Abandon(None));
            world.commit();
            world.pass(Span::minutes(1));
            world.tick();
            world.commit();
        }
        assert_eq!(world.queue("q").dead.get(Sequence(1)).unwrap().count(), 0);
        assert_eq!(world.queue("q").counts.dead_letter, 1);
    }

    #[test]
    fn nothing_leaves_a_dead_letter_queue_for_a_dead_letter_queue() {
        // S-102
        let mut world = twice(1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::DeadLetter(None));
        world.commit();
        let reader = world.receiver(DEAD, PeekLock, 1);
        let token = world.dead_token(1);
        let effects = world.settle(reader, 0, token, Outcome::DeadLetter(None));
        assert!(matches!(
            effects[..],
            [Effect::Notice(Notice::NotSettled { refusal: Refusal::NotAllowed(_), .. })]
        ));
        assert_eq!(world.dead_token(1), token);
        assert!(matches!(world.settle(reader, 0, token, Outcome::Complete)[..], [Effect::Settled { .. }]));
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_dead_letter_can_be_received_deleted_deferred_and_browsed() {
        // S-102
        let mut world = twice(3);
        let link = world.receiver("q", PeekLock, 3);
        for sequence in 1..=3 {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::DeadLetter(None));
        }
        world.commit();
        assert_eq!(world.receive(DEAD, ReceiveAndDelete, 1)[0].number, Number(1));
        let reader = world.receiver(DEAD, PeekLock, 1);
        let token = world.dead_token(2);
        world.settle(reader, 0, token, Outcome::Defer(None));
        world.commit();
        assert_eq!(world.queue("q").counts.dead_letter, 2);
        let Ok(Answer::Messages(seen)) = world.browse(DEAD, 0, 9) else { panic!() };
        assert_eq!(seen.iter().map(|each| each.number.0).collect::<Vec<_>>(), [2, 3]);
        let Ok(Answer::Messages(taken)) = world.receive_deferred(DEAD, &[2], PeekLock) else { panic!() };
        assert_eq!((taken[0].number, taken[0].count), (Number(2), 0));
    }

    #[test]
    fn nobody_sends_to_a_dead_letter_queue() {
        // S-101
        let mut world = twice(0);
        for path in [DEAD, "q/$Transfer/$DeadLetterQueue"] {
            let link = world.link();
            let effects = world.attach_sender(link, path);
            assert!(matches!(
                effects[..],
                [Effect::Notice(Notice::Detached { refusal: Refusal::NotAllowed(_), .. })]
            ));
        }
    }

    #[test]
    fn a_dead_letter_queue_is_not_managed_alone() {
        // S-100
        let mut world = twice(0);
        assert_eq!(world.describe(DEAD), Err(Refusal::EntityNotFound(DEAD.into())));
        assert!(world.try_create(DEAD, QueueSettings::default()).is_err());
        world.delete("q");
        let link = world.link();
        let effects = world.attach_receiver(link, DEAD, PeekLock);
        assert!(matches!(
            effects[..],
            [Effect::Notice(Notice::Detached { refusal: Refusal::EntityNotFound(_), .. })]
        ));
    }

    #[test]
    fn the_transfer_dead_letter_queue_is_there_and_empty() {
        // S-114
        let mut world = twice(1);
        assert_eq!(world.receive("q/$Transfer/$DeadLetterQueue", PeekLock, 1), []);
        assert_eq!(world.browse("q/$transfer/$deadletterqueue", 0, 9), Ok(Answer::Messages(vec![])));
    }

    #[test]
    fn dead_letters_count_in_the_size_of_their_queue() {
        // S-113
        let mut world = twice(1);
        let bytes = world.queue("q").bytes;
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::DeadLetter(None));
        assert_eq!(world.queue("q").bytes, bytes);
    }
}
