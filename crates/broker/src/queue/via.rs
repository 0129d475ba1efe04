//! Sending by way of an entity: a sender is attached to one entity, and its messages are stored in another, its destination,
//! with the same decision that accepts them (S-114).
//!
//! The destination is known by its name, so that it may go and come back while the link stays. Everything that holds for
//! a message sent to it directly holds here: duplicates, sessions, schedules, rules. One thing is different: while it takes
//! no messages, they are accepted and kept in the transfer dead-letter queue of the entity on the way.

use super::index::Reason;
use super::send::Parts;
use crate::Broker;
use crate::command::{Arrivals, Incoming, SessionIds};
use crate::decision::{Decision, LocalDecision};
use crate::durable::Applying;
use crate::effect::Notice;
use crate::ids::{BodyId, EntityId, LinkId, NamespaceId, Sequence, Source};
use crate::planted::{Bug, is_planted};
use crate::queue::index::Slot;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::Span;
use crate::volatile::Role;

impl Broker {
    /// Attaches a sender whose messages go on to `destination`, which may be disabled, but must be there.
    pub(crate) fn attach_via(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        destination: &str,
        decision: &mut Decision,
    ) {
        let role = Role::sender(Some(destination.into()));
        let checked = self.check_attach(namespace, path, &role).and_then(|(source, limit)| {
            let target = self.queue_of(self.resolve_target(namespace, destination)?);
            Ok((source, limit.min(self.tier_of(namespace).message_bytes(&target.settings))))
        });
        match checked {
            Ok((source, max_message_bytes)) => {
                self.volatile.attach(link, source, role);
                // Whatever the destination looks for by the time that a message comes, its id will be known.
                let wants_ids = true;
                decision.effect(Notice::Attached { link, max_message_bytes, wants_ids, session: None });
            }
            Err(refusal) => decision.effect(Notice::Detached { link, refusal }),
        }
    }

    /// Stores what came on a link in its destination, or where that takes nothing, on the way.
    pub(super) fn send_via(
        &mut self,
        (via, destination): (EntityId, &str),
        link: LinkId,
        part_bytes: u64,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) -> Result<(), Refusal> {
        self.check_arrivals(via, arrivals.messages, part_bytes)?;
        self.check_quota(via)?;
        let namespace = self.queue_of(Source::main(via)).namespace;
        let target = self.resolve_target(namespace, destination)?.entity;
        if self.queue_of(Source::main(target)).settings.status.may_send() {
            self.send_to(target, link, part_bytes, arrivals, sessions, decision)?;
        } else if !is_planted(Bug::LostOnItsWay) {
            self.transfer_dead_letter(via, link, arrivals, decision);
        }
        self.volatile.set_accessed(via, decision.now);
        Ok(())
    }

    /// Puts messages into the transfer dead-letter queue, where they wait for somebody to receive them.
    fn transfer_dead_letter(
        &mut self,
        entity: EntityId,
        link: LinkId,
        arrivals: Arrivals<'_>,
        decision: &mut LocalDecision<'_>,
    ) {
        for message in arrivals.messages {
            let parts = self.volatile.take_parts(link);
            self.transfer_dead_letter_message(entity, message, parts, decision);
        }
    }

    pub(crate) fn transfer_dead_letter_message(
        &mut self,
        entity: EntityId,
        message: &Incoming,
        parts: Parts,
        decision: &mut LocalDecision<'_>,
    ) {
        let source = Source::transfer_dead_letter(entity);
        let sequence = self.queue_of(source).next;
        let record = Record::TransferDeadLettered {
            entity,
            sequence,
            body: self.place_body(message, parts.stored, decision),
            length: message.body.length + parts.bytes as u32,
            reason: Reason::DestinationDisabled,
            parts: parts.bodies,
        };
        self.write(record, decision);
        self.volatile.await_return(source, sequence, decision.position);
    }
}

impl Applying<'_> {
    pub(crate) fn transfer_dead_lettered(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        slot: Slot,
        parts: Option<&[BodyId]>,
    ) {
        self.name_body(slot.body);
        let queue = self.queue_mut(entity);
        queue.transfer_dead_letter(sequence, slot);
        queue.add_extra(sequence, parts, Span::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::command::{Command, Incoming, Outcome};
    use crate::effect::{Answer, Effect};
    use crate::ids::{MessageKey, Number, Sequence};
    use crate::manage::Task;
    use crate::settings::{QueueSettings, Status};
    use crate::snapshot::stored_bodies;
    use crate::testing::{World, deliveries, message};
    use crate::time::{LocalTime, Span};
    use crate::topic::settings::{SubscriptionSettings, TopicSettings};

    const LOST: &str = "v/$Transfer/$DeadLetterQueue";

    fn attach(world: &mut World, path: &str, destination: &str) -> (LinkId, Vec<Effect>) {
        let (link, namespace) = (world.link(), NamespaceId(0));
        let (path, destination) = (path.into(), destination.into());
        (link, world.command(Command::AttachVia { link, namespace, path, destination }, &[]))
    }

    fn disabled() -> QueueSettings {
        QueueSettings { status: Status::SendDisabled, ..QueueSettings::default() }
    }

    /// A sender to `d` by way of `v`.
    fn sending(destination: QueueSettings) -> (World, LinkId) {
        let mut world = World::with_queue("v");
        world.create("d", destination);
        let (link, effects) = attach(&mut world, "V", "D");
        assert!(matches!(effects[..], [Effect::Notice(Notice::Attached { wants_ids: true, .. })]));
        (world, link)
    }

    /// The same, after the destination was disabled and messages of these lengths were sent.
    fn transfer_dead(lengths: &[u32]) -> World {
        let (mut world, link) = sending(disabled());
        for (delivery, length) in (0..).zip(lengths) {
            let accepted = world.send(link, delivery, &[message(*length)]);
            assert_eq!(accepted, [Effect::Accepted { link, delivery }]);
        }
        world.commit();
        world
    }

    fn active(world: &World, path: &str) -> u64 {
        world.queue(path).counts.active
    }

    fn numbers(answer: Result<Answer, Refusal>) -> Vec<u64> {
        let Ok(Answer::Messages(seen)) = answer else { panic!("{answer:?}") };
        seen.iter().map(|each| each.number.0).collect()
    }

    #[test]
    fn a_message_is_in_its_destination_as_soon_as_it_is_accepted() {
        // S-114
        let (mut world, link) = sending(QueueSettings::default());
        world.part(link, 500);
        assert_eq!(world.send(link, 7, &[message(10)]), [Effect::Accepted { link, delivery: 7 }]);
        assert!(!world.last_release_is_free);
        world.send(link, 8, &[message(1), message(2)]);
        assert_eq!((active(&world, "d"), world.queue("v").counts.total()), (3, 0));
        assert_eq!(world.queue("v").next, Sequence(1), "it takes no number on the way");
        world.commit();
        let lengths: Vec<_> = world.queue("d").index.iter().map(|(_, slot)| slot.length).collect();
        assert_eq!((lengths, world.receive("d", PeekLock, 9).len()), (vec![510, 1, 2], 3));
    }

    #[test]
    fn both_ends_must_be_there_and_be_sent_to() {
        // S-114, S-101
        let mut world = World::with_queue("v");
        world.create("d", disabled());
        let mut refused = |path, destination| match &attach(&mut world, path, destination).1[..] {
            [Effect::Notice(Notice::Attached { .. })] => None,
            [Effect::Notice(Notice::Detached { refusal, .. })] => Some(refusal.clone()),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("v", "nowhere"), Some(Refusal::EntityNotFound("nowhere".into())));
        assert_eq!(refused("nowhere", "v"), Some(Refusal::EntityNotFound("nowhere".into())));
        assert_eq!(refused("d", "v"), Some(Refusal::EntityDisabled("d".into())));
        assert!(matches!(refused("v", "d/$DeadLetterQueue"), Some(Refusal::NotAllowed(_))));
        assert_eq!(refused("v", "d"), None);
    }

    #[test]
    fn a_link_is_told_the_smaller_of_two_limits_and_a_send_is_held_against_both() {
        // S-17, S-114
        let large = || QueueSettings { max_message_kilobytes: Some(2_048), ..QueueSettings::default() };
        for (path, destination) in [("large", "small"), ("small", "large")] {
            let mut world = World::with_queue("small");
            world.create("large", large());
            let (link, effects) = attach(&mut world, path, destination);
            assert!(matches!(
                effects[..],
                [Effect::Notice(Notice::Attached { max_message_bytes: 1_048_576, .. })]
            ));
            let refusal = Refusal::MessageTooLarge { size: 1_048_577, limit: 1_048_576 };
            let effects = world.send(link, 0, &[message(1_048_577)]);
            assert_eq!(effects, [Effect::Notice(Notice::Rejected { link, delivery: 0, refusal })]);
        }
    }

    #[test]
    fn a_destination_that_was_deleted_is_not_found_until_it_is_back() {
        // S-114
        let (mut world, link) = sending(QueueSettings::default());
        world.delete("d");
        world.take_effects();
        let refusal = Refusal::EntityNotFound("D".into());
        assert_eq!(
            world.send(link, 0, &[message(1)]),
            [Effect::Notice(Notice::Rejected { link, delivery: 0, refusal })],
            "and the link stays"
        );
        assert_eq!(world.queue("v").counts.total(), 0);
        let detects = QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() };
        world.create("d", detects);
        let same = Incoming { id: MessageKey([1, 2]), ..message(1) };
        assert_eq!(world.send(link, 1, &[same, same]), [Effect::Accepted { link, delivery: 1 }]);
        assert_eq!(active(&world, "d"), 1);
    }

    #[test]
    fn a_full_queue_at_either_end_refuses_and_keeps_nothing() {
        // S-19, S-114
        let small = || QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() };
        for full in ["v", "d"] {
            let mut world = World::new();
            world.create("v", small());
            world.create("d", small());
            let filler = world.sender(full);
            world.send(filler, 0, &[message(1_048_576)]);
            let (link, _) = attach(&mut world, "v", "d");
            let refusal =
                Refusal::QueueFull { kind: "Queue", name: full.into(), size: 1_048_576, limit: 1_048_576 };
            assert_eq!(
                world.send(link, 0, &[message(1)]),
                [Effect::Notice(Notice::Rejected { link, delivery: 0, refusal })]
            );
            let total = |path| world.queue(path).counts.total();
            assert_eq!((total("v") + total("d"), world.queue(full).counts.active), (1, 1));
        }
    }

    #[test]
    fn whoever_is_attached_is_refused_while_the_entity_on_the_way_is_disabled() {
        // S-230, S-114
        let (mut world, link) = sending(QueueSettings::default());
        world.update("v", disabled()).unwrap();
        let refusal = Refusal::EntityDisabled("v".into());
        assert_eq!(
            world.send(link, 0, &[message(1)]),
            [Effect::Notice(Notice::Rejected { link, delivery: 0, refusal })]
        );
        assert_eq!(active(&world, "d"), 0);
    }

    #[test]
    fn sessions_and_schedules_are_the_destination_s() {
        // S-20, S-40, S-114
        let (mut world, link) = sending(QueueSettings { requires_session: true, ..QueueSettings::default() });
        let refused = world.send(link, 0, &[message(1)]);
        assert!(matches!(
            refused[..],
            [Effect::Notice(Notice::Rejected { refusal: Refusal::NotAllowed(_), .. })]
        ));
        let later = Incoming { scheduled: world.local().after(Span::minutes(1)), ..message(1) };
        world.send_in(link, 1, &[later, message(1)], &["s", "s"]);
        let counts = world.queue("d").counts;
        assert_eq!((counts.scheduled, counts.active), (1, 1));
        assert!(world.queue("d").session_of(Sequence(2)).is_some());
        // A queue with sessions on the way asks for none.
        world.create("strict", QueueSettings { requires_session: true, ..QueueSettings::default() });
        let (link, _) = attach(&mut world, "strict", "v");
        assert_eq!(world.send(link, 0, &[message(1)]), [Effect::Accepted { link, delivery: 0 }]);
    }

    #[test]
    fn a_destination_that_forwards_forwards() {
        // S-170, S-114
        let mut world = World::with_queue("v");
        world.create("end", QueueSettings::default());
        world.create("d", QueueSettings { forward_to: Some("end".into()), ..QueueSettings::default() });
        let (link, _) = attach(&mut world, "v", "d");
        world.send(link, 0, &[message(1)]);
        assert_eq!((active(&world, "d"), active(&world, "end")), (0, 1));
    }

    #[test]
    fn a_message_for_a_disabled_destination_is_accepted_and_lies_in_the_transfer_dead_letter_queue() {
        // S-114, S-233
        for status in [Status::Disabled, Status::SendDisabled] {
            let (mut world, link) = sending(QueueSettings::default());
            world.update("d", QueueSettings { status, ..QueueSettings::default() }).unwrap();
            let reader = world.receiver(LOST, PeekLock, 1);
            world.take_effects();
            let effects = world.send(link, 0, &[message(10)]);
            assert_eq!(effects, [Effect::Accepted { link, delivery: 0 }]);
            let counts = world.queue("v").counts;
            assert_eq!((counts.transfer_dead_letter, counts.total(), world.queue("v").bytes), (1, 1, 10));
            assert_eq!(world.queue("d").counts.total(), 0);
            let effects = world.commit();
            assert_eq!(deliveries(&effects), [(reader, 1)], "only when it is durable");
            let [Effect::Deliver { delivery, .. }] = &effects[..] else { panic!("{effects:?}") };
            let overlay = delivery.extra.as_ref().and_then(|extra| extra.overlay.as_ref()).unwrap();
            for word in ["DeadLetterReason", "DeadLetterErrorDescription"] {
                assert!(overlay.application(word).is_some(), "{word}");
            }
            assert_eq!(world.receive("v/$DeadLetterQueue", PeekLock, 1), []);
            assert_eq!(world.receive("v", PeekLock, 1), []);
        }
    }

    #[test]
    fn what_is_in_the_transfer_dead_letter_queue_is_received_deferred_browsed_and_purged() {
        // S-114, S-102
        let mut world = transfer_dead(&[1; 5]);
        assert_eq!(world.receive(LOST, ReceiveAndDelete, 1)[0].number, Number(1));
        let taken = world.receive(LOST, PeekLock, 2);
        world.settle_tokens(LOST, &[taken[0].token], Outcome::Complete).unwrap();
        world.settle_tokens(LOST, &[taken[1].token], Outcome::Defer(None)).unwrap();
        assert_eq!(numbers(world.browse(LOST, 0, 9)), [3, 4, 5]);
        assert_eq!(numbers(world.receive_deferred(LOST, &[3], ReceiveAndDelete)), [3]);
        world.commit();
        assert_eq!(world.delete_messages(LOST, 9, LocalTime::NEVER), Ok(Answer::MessagesDeleted(2)));
        assert_eq!((world.queue("v").counts.total(), world.queue("v").bytes), (0, 0));
        assert!(world.queue("v").transfer_dead.is_none(), "and costs nothing any more");
    }

    #[test]
    fn the_count_stands_still_there_and_nothing_leaves_by_itself() {
        // S-102, S-115, S-64
        let mortal = Incoming { time_to_live: Span::seconds(1), ..message(1) };
        let (mut world, link) = sending(disabled());
        world.send(link, 0, &[mortal]);
        world.commit();
        for _ in 0..20 {
            let token = world.receive(LOST, PeekLock, 1)[0].token;
            let refused = world.settle_tokens(LOST, &[token], Outcome::DeadLetter(None));
            assert!(matches!(refused, Err(Refusal::NotAllowed(_))));
            world.settle_tokens(LOST, &[token], Outcome::Abandon(None)).unwrap();
            world.commit();
            world.receive(LOST, PeekLock, 1);
            world.pass(Span::minutes(2));
            world.tick();
            world.commit();
        }
        assert_eq!(world.receive(LOST, PeekLock, 1)[0].count, 0);
    }

    #[test]
    fn it_outlives_a_crash_and_its_bodies_are_named_by_snapshots() {
        // S-114
        let (mut world, link) = sending(disabled());
        world.part(link, 500);
        world.send(link, 0, &[message(10)]);
        world.send(link, 1, &[message(10)]);
        world.commit();
        let bodies: Vec<_> = (1..=3).map(crate::BodyId).collect();
        let needed = stored_bodies(&world.broker.snapshot(world.now));
        assert!(bodies.iter().all(|body| needed.contains(body)), "{needed:?}");
        world.check_whole_replay();
        let first = world.receive(LOST, PeekLock, 1)[0].token;
        world.keep_locks();
        world.restart();
        assert_eq!(world.receive(LOST, PeekLock, 9).len(), 1, "a planned stop keeps locks");
        world.settle_tokens(LOST, &[first], Outcome::Abandon(None)).unwrap();
        world.restart();
        let again = world.receive(LOST, PeekLock, 9);
        assert_eq!(again.iter().map(|each| each.number.0).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn topics_are_at_either_end() {
        // S-114, S-180
        let mut world = World::with_queue("v");
        let settings = TopicSettings::default();
        let (path, access) = (Box::<str>::from("t"), Vec::new());
        world.manage(Task::CreateTopic { path, settings, access }).unwrap();
        let (topic, name) = ("t".into(), "s".into());
        let settings = SubscriptionSettings::default();
        world.manage(Task::CreateSubscription { topic, name, settings, rule: None }).unwrap();
        let (link, _) = attach(&mut world, "v", "t");
        world.part(link, 500);
        assert_eq!(world.send(link, 0, &[message(10)]), [Effect::Accepted { link, delivery: 0 }]);
        world.commit();
        assert_eq!(world.receive("t/Subscriptions/s", PeekLock, 9).len(), 1);
        world.update("v", disabled()).unwrap();
        let (link, _) = attach(&mut world, "t", "v");
        world.send(link, 0, &[message(10)]);
        world.commit();
        let lost = "t/$Transfer/$DeadLetterQueue";
        let taken = world.receive(lost, PeekLock, 9);
        assert_eq!(taken.len(), 1);
        world.settle_tokens(lost, &[taken[0].token], Outcome::Complete).unwrap();
        assert_eq!(world.queue("t").counts.total(), 0);
    }
}
