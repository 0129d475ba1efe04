//! Sending: a delivery with one message or a batch is checked whole, then each message takes the next number.
//!
//! A message whose time is yet to come is scheduled instead (S-40). "Accepted" leaves only when the records are durable
//! (S-10), and a refused delivery leaves nothing behind (S-16).

use crate::Broker;
use crate::command::{Arrivals, Incoming, Intake, SessionIds};
use crate::decision::{Decision, LocalDecision};
use crate::durable::{Applying, Kind};
use crate::effect::{Effect, Notice};
use crate::ids::{BodyId, EntityId, LinkId, Sequence, Source};
use crate::limits::ADDED_BYTES;
use crate::queue::index::Slot;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{LocalTime, Span};
use crate::topic::subject::Front;
use crate::volatile::{Link, PART_BEYOND_QUOTA, PART_REFUSED, Role};
use std::sync::Arc;

impl Broker {
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        delivery: u32,
        is_settled: bool,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) {
        // A link that is gone, or was refused, has nobody left to answer.
        let Some(Link { source, role: Role::Sender { part_bytes, destination, .. } }) =
            self.volatile.link(link)
        else {
            return;
        };
        let (entity, part_bytes) = (source.entity, *part_bytes);
        let sent = match destination.clone() {
            None => self.send_to(entity, link, part_bytes, arrivals, sessions, decision),
            Some(destination) => {
                let way = (entity, &*destination);
                self.send_via(way, link, part_bytes, arrivals, sessions, decision)
            }
        };
        match sent {
            Ok(()) if is_settled => {}
            Ok(()) => decision.effect(Effect::Accepted { link, delivery }),
            Err(refusal) => {
                self.volatile.drop_parts(link);
                // S-14: nobody is told how a pre-settled send came out.
                if !is_settled {
                    decision.effect(Notice::Rejected { link, delivery, refusal });
                }
            }
        }
    }

    /// Stores what came on a link, all of it or nothing (S-16).
    pub(crate) fn send_to(
        &mut self,
        entity: EntityId,
        link: LinkId,
        part_bytes: u64,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) -> Result<(), Refusal> {
        let context = decision.context();
        self.check_send(entity, arrivals.messages, sessions, part_bytes)?;
        for (at, message) in arrivals.messages.iter().enumerate() {
            let parts = self.volatile.take_parts(link);
            // A duplicate is accepted and dropped (S-160); its parts, if it came in any, are garbage.
            if self.is_duplicate(entity, message, context) {
                continue;
            }
            self.store(entity, message, sessions.get(at), parts, arrivals, decision);
        }
        self.volatile.set_accessed(entity, context.now);
        Ok(())
    }

    pub(crate) fn check_send(
        &self,
        entity: EntityId,
        messages: &[Incoming],
        sessions: &SessionIds,
        part_bytes: u64,
    ) -> Result<(), Refusal> {
        self.check_arrivals(entity, messages, part_bytes)?;
        let queue = self.durable.queue(entity).expect("it was looked at");
        if queue.settings.requires_session && !sessions.has_all(messages.len()) {
            // S-20
            return Err(Refusal::NotAllowed(SESSION_MISSING));
        }
        if messages.iter().any(|message| message.keys_differ) {
            // S-7
            return Err(Refusal::NotAllowed(
                "The session id and the partition key of a message must be equal.",
            ));
        }
        self.check_quota(entity)
    }

    /// Whether an entity takes messages now, so many and of that size.
    pub(crate) fn check_arrivals(
        &self,
        entity: EntityId,
        messages: &[Incoming],
        part_bytes: u64,
    ) -> Result<(), Refusal> {
        let queue = self.durable.queue(entity).expect("a link's entity exists as long as the link");
        let tier = self.tier_of(queue.namespace);
        if !queue.settings.status.may_send() {
            return Err(Refusal::EntityDisabled(queue.path.clone()));
        }
        if self.volatile.is_short() || part_bytes == PART_REFUSED {
            return Err(Refusal::NoSpace);
        }
        if part_bytes == PART_BEYOND_QUOTA {
            let size = queue.held_bytes() + self.volatile.arriving_bytes(entity);
            return Err(self.full(entity, size, self.size_quota(entity)));
        }
        let limit = tier.batch_messages();
        if messages.len() > limit {
            return Err(Refusal::BatchTooLarge { count: messages.len(), limit });
        }
        let stored = part_bytes + messages.iter().map(|message| u64::from(message.body.length)).sum::<u64>();
        let added = messages.iter().map(|message| u64::from(message.added_bytes)).sum::<u64>();
        let size = stored.saturating_sub(added);
        let limit = tier.message_bytes(&queue.settings);
        if size > limit {
            return Err(Refusal::MessageTooLarge { size, limit });
        }
        Ok(())
    }

    /// Whether an entity has room within its own limit (S-19), and the server within its.
    pub(crate) fn check_quota(&self, entity: EntityId) -> Result<(), Refusal> {
        self.check_state()?;
        self.check_size_quota(entity)
    }

    /// Whether an entity may store more messages.
    pub(crate) fn check_size_quota(&self, entity: EntityId) -> Result<(), Refusal> {
        self.check_held_size(entity, 1)
    }

    /// Whether an entity holds less than so many times its size quota.
    pub(crate) fn check_held_size(&self, entity: EntityId, times: u64) -> Result<(), Refusal> {
        let size = self.queue_of(Source::main(entity)).held_bytes();
        let limit = self.size_quota(entity).saturating_mul(times);
        if size < limit { Ok(()) } else { Err(self.full(entity, size, limit)) }
    }

    /// Whether an entity has room for one more part of an unfinished message, of which `own_bytes` are stored. Those of others count: nobody
    /// knows whether they will ever be whole, and the disk has them.
    fn check_arriving(&self, entity: EntityId, own_bytes: u64) -> Result<(), Refusal> {
        let others = self.volatile.arriving_bytes(entity).saturating_sub(own_bytes);
        let (size, limit) =
            (self.queue_of(Source::main(entity)).held_bytes() + others, self.size_quota(entity));
        if others == 0 || size < limit { Ok(()) } else { Err(self.full(entity, size, limit)) }
    }

    fn size_quota(&self, entity: EntityId) -> u64 {
        let queue = self.queue_of(Source::main(entity));
        self.tier_of(queue.namespace).queue_bytes(&queue.settings)
    }

    fn full(&self, entity: EntityId, size: u64, limit: u64) -> Refusal {
        let queue = self.queue_of(Source::main(entity));
        Refusal::QueueFull { kind: queue.kind.name(), name: queue.path.clone(), size, limit }
    }

    /// Gives a message its number, now or for later (S-46), and says which.
    pub(crate) fn store(
        &mut self,
        entity: EntityId,
        message: &Incoming,
        session: Option<&Arc<str>>,
        parts: Parts,
        arrivals: Arrivals<'_>,
        decision: &mut LocalDecision<'_>,
    ) -> Sequence {
        self.note(entity, message, decision);
        let queue = self.durable.queue(entity).expect("checked before");
        let (sequence, is_topic) = (queue.next, queue.kind == Kind::Topic);
        let is_later = message.scheduled > decision.now;
        if is_later || is_topic && self.puts_off_publishing(entity, decision) {
            let due = if is_later { message.scheduled } else { LocalTime::AT_ONCE };
            self.store_scheduled(entity, message, due, parts, decision);
            self.join(entity, sequence, session, decision);
        } else if is_topic {
            self.publish_sent(entity, message, session, parts, arrivals, decision);
        } else {
            self.enqueue(entity, message, session, parts, decision);
        }
        sequence
    }

    fn enqueue(
        &mut self,
        entity: EntityId,
        message: &Incoming,
        session: Option<&Arc<str>>,
        Parts { bodies: parts, bytes: part_bytes, stored, .. }: Parts,
        decision: &mut LocalDecision<'_>,
    ) {
        let queue = self.durable.queue(entity).expect("checked before");
        let sequence = queue.next;
        let record = Record::Enqueued {
            entity,
            sequence,
            body: self.place_body(message, stored, decision),
            length: message.body.length + part_bytes as u32,
            expires: self.expiry(entity, message.time_to_live, decision.now),
            parts,
        };
        self.write(record, decision);
        self.join(entity, sequence, session, decision);
        self.arrive(entity, sequence, decision);
    }

    /// Where the body of a message is: it was stored before, or is stored now, under the next number.
    pub(crate) fn place_body(
        &self,
        message: &Incoming,
        stored: Option<BodyId>,
        decision: &mut Decision,
    ) -> BodyId {
        stored.unwrap_or_else(|| {
            decision.body(message.body);
            self.durable.next_body()
        })
    }

    /// A message is in the queue: it goes on to where the queue forwards, or will be free once it is committed, and may be
    /// the next to expire.
    pub(crate) fn arrive(&mut self, entity: EntityId, sequence: Sequence, decision: &mut LocalDecision<'_>) {
        if self.forward_arrival(entity, sequence, decision) {
            return;
        }
        let position = decision.position;
        match self.session_of(Source::main(entity), sequence) {
            Some(session) => {
                self.volatile.join_session(entity, session, sequence, position);
            }
            None => self.volatile.await_arrival(entity, sequence, position),
        }
        let index = &self.durable.queue(entity).expect("it has a message").index;
        let expires = index.get(sequence).map_or(LocalTime::NEVER, |slot| slot.expires);
        if !expires.is_never() {
            self.volatile.add_expiry(entity, sequence, expires, index);
        }
    }

    /// When a message expires: its own time to live, with the queue's as default and ceiling (S-50, S-55, S-56).
    pub(crate) fn expiry(&self, entity: EntityId, own: Span, now: LocalTime) -> LocalTime {
        let queue = self.durable.queue(entity).expect("the caller looked");
        now.after(own.min(self.tier_of(queue.namespace).time_to_live(&queue.settings)))
    }

    /// Stores a part of a large message. For the entity's size it counts beside the parts of others alone until the message is whole, and
    /// what exceeds the limit is not stored: the send that ends the message will be refused.
    pub(crate) fn store_part(
        &mut self,
        link: LinkId,
        body: Intake,
        arrivals: Arrivals<'_>,
        decision: &mut LocalDecision<'_>,
    ) {
        let Some(Link { source, role: Role::Sender { part_bytes, destination, .. } }) =
            self.volatile.link(link)
        else {
            return;
        };
        let queue = self.queue_of(*source);
        if self.volatile.is_short() || *part_bytes == PART_REFUSED {
            self.volatile.refuse_parts(link, PART_REFUSED);
        } else if *part_bytes == PART_BEYOND_QUOTA || self.check_arriving(source.entity, *part_bytes).is_err()
        {
            self.volatile.refuse_parts(link, PART_BEYOND_QUOTA);
        } else if *part_bytes <= self.tier_of(queue.namespace).message_bytes(&queue.settings) + ADDED_BYTES {
            let id = self.durable.next_body();
            // The rules of a topic look at what comes before the body, which is in the first part (S-18).
            // Of a destination that may still be another entity when the message is whole, nothing is known yet.
            let may_publish = queue.kind == Kind::Topic || destination.is_some();
            let is_front = may_publish && *part_bytes == 0;
            let front =
                is_front.then(|| arrivals.body(body)).and_then(|part| part.get(..Front::bytes(part)?));
            let front = front.map(Box::from);
            self.write(Record::PartStored { body: id }, decision);
            decision.body(body);
            self.volatile.store_part(link, id, body.length.into(), front);
        }
        decision.effect(Notice::PartTaken { link, length: body.length });
    }
}

/// S-20.
const SESSION_MISSING: &str = "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support enabled can only receive messages that have the SessionId set to a valid value.";

/// Bodies that come before the last one of a large message.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) bodies: Option<Box<[BodyId]>>,
    pub(crate) bytes: u64,
    /// What comes before its body, if it goes to a topic.
    pub(crate) front: Option<Box<[u8]>>,
    /// The last one, if it was stored before.
    pub(crate) stored: Option<BodyId>,
}

impl Applying<'_> {
    pub(crate) fn enqueued(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        slot: Slot,
        parts: Option<&[BodyId]>,
    ) {
        self.name_body(slot.body);
        let queue = self.queue_mut(entity);
        queue.push(sequence, slot);
        if parts.is_some() {
            queue.add_extra(sequence, parts, Span::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BATCH_MESSAGES;
    use crate::settings::{QueueSettings, Status};
    use crate::testing::{World, message};
    use crate::tier::Tier;

    #[test]
    fn numbers_start_at_one_and_have_no_gaps() {
        // S-31, S-37
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.send(link, 0, &[message(10)]);
        world.send(link, 1, &[message(10); 3]);
        let numbers: Vec<_> = world.queue("q").index.iter().map(|(sequence, _)| sequence.0).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn a_batch_with_one_message_too_many_leaves_nothing_behind() {
        // S-16
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let effects = world.send(link, 0, &vec![message(1); BATCH_MESSAGES + 1]);
        assert!(matches!(
            effects[..],
            [Effect::Notice(Notice::Rejected {
                refusal: Refusal::BatchTooLarge { count: 4_501, limit: 4_500 },
                ..
            })]
        ));
        assert_eq!(world.queue("q").next.0, 1);
        world.send(link, 1, &vec![message(1); BATCH_MESSAGES]);
        assert_eq!(world.queue("q").counts.active, 4_500);
    }

    #[test]
    fn the_largest_message_is_taken_and_one_byte_more_is_not() {
        // S-17
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        assert!(matches!(world.send(link, 0, &[message(1_048_576)])[..], [Effect::Accepted { .. }]));
        assert!(matches!(
            world.send(link, 1, &[message(1_048_577)])[..],
            [Effect::Notice(Notice::Rejected { refusal: Refusal::MessageTooLarge { .. }, .. })]
        ));
    }

    #[test]
    fn a_full_queue_refuses_with_its_figures() {
        // S-19
        let mut world = World::new();
        world.create("q", QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() });
        let link = world.sender("q");
        world.send(link, 0, &[message(1_048_576)]);
        let refusal =
            Refusal::QueueFull { kind: "Queue", name: "q".into(), size: 1_048_576, limit: 1_048_576 };
        assert_eq!(
            world.send(link, 1, &[message(1)]),
            [Effect::Notice(Notice::Rejected { link, delivery: 1, refusal })]
        );
    }

    #[test]
    fn a_settled_send_is_never_answered() {
        // S-14
        let mut world = World::new();
        world.create("q", QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() });
        let link = world.sender("q");
        assert_eq!(world.send_settled(link, 0, &[message(1_048_576)]), []);
        assert_eq!(world.queue("q").counts.active, 1);
        assert_eq!(world.send_settled(link, 1, &[message(1)]), []);
        assert_eq!(world.queue("q").counts.active, 1);
    }

    #[test]
    fn the_queue_is_default_and_ceiling_of_the_time_to_live() {
        // S-55, S-56
        let mut world = World::new();
        let settings = QueueSettings { default_time_to_live: Span::seconds(10), ..QueueSettings::default() };
        world.create("q", settings);
        let link = world.sender("q");
        let mut own = message(1);
        for (number, time_to_live) in [Span::MAX, Span::seconds(3), Span::seconds(99)].into_iter().enumerate()
        {
            own.time_to_live = time_to_live;
            world.send(link, number as u32, &[own]);
        }
        let now = world.local();
        let expiries: Vec<_> =
            world.queue("q").index.iter().map(|(_, slot)| slot.expires.0 - now.0).collect();
        assert_eq!(expiries, [10_000, 3_000, 10_000]);
    }

    #[test]
    fn a_large_message_is_one_message_of_several_bodies() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        assert_eq!(world.part(link, 500), [Effect::Notice(Notice::PartTaken { link, length: 500 })]);
        world.part(link, 400);
        assert_eq!(world.queue("q").counts.active, 0);
        world.send(link, 0, &[message(100)]);
        let queue = world.queue("q");
        let (sequence, slot) = queue.index.iter().next().unwrap();
        assert_eq!((slot.length, slot.body.0), (1_000, 3));
        assert_eq!(queue.extras[&sequence].parts, [crate::BodyId(1), crate::BodyId(2)]);
    }

    #[test]
    fn parts_of_an_aborted_message_are_forgotten() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.part(link, 500);
        world.drop_parts(link);
        world.send(link, 0, &[message(100)]);
        let queue = world.queue("q");
        assert_eq!(queue.index.iter().next().unwrap().1.length, 100);
        assert!(queue.extras.is_empty());
    }

    // S-19, W-37
    #[test]
    fn parts_of_others_that_are_not_whole_count_for_the_size_of_the_entity() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        let settings = QueueSettings {
            max_message_kilobytes: Some(102_400),
            max_size_megabytes: 1,
            ..QueueSettings::default()
        };
        world.create("q", settings);
        let (first, second) = (world.sender("q"), world.sender("q"));
        let arriving = |world: &World| world.broker.volatile.arriving_bytes(Source::default().entity);
        (0..3).for_each(|_| drop(world.part(first, 600_000)));
        assert_eq!(
            arriving(&world),
            1_800_000,
            "a message that comes alone may exceed it, as a small one may"
        );
        world.part(second, 600_000);
        world.part(second, 600_000);
        assert_eq!(arriving(&world), 1_800_000, "nothing of the other is stored");
        let full = |effects: &[Effect]| {
            matches!(effects, [Effect::Notice(Notice::Rejected { refusal: Refusal::QueueFull { .. }, .. })])
        };
        let refused = world.send(second, 0, &[message(1)]);
        assert!(full(&refused), "{refused:?}");
        // However the first ends, nothing of it counts any more, and the second is taken.
        let third = world.sender("q");
        let ends: [&dyn Fn(&mut World); 2] = [&|world| world.drop_parts(first), &|world| world.detach(third)];
        for (delivery, end) in ends.into_iter().enumerate() {
            end(&mut world);
            assert_eq!(arriving(&world), 0);
            world.part(second, 300_000);
            assert_eq!(arriving(&world), 300_000);
            assert!(!full(&world.send(second, delivery as u32, &[message(1)])));
            assert_eq!(arriving(&world), 0);
            world.part(third, 2_000_000);
        }
    }

    #[test]
    fn accepted_waits_for_the_record_and_the_message_has_its_number() {
        // S-10
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let effects = world.send(link, 7, &[message(10)]);
        assert_eq!(effects, [Effect::Accepted { link, delivery: 7 }]);
        assert!(!world.last_release_is_free);
        assert!(matches!(world.records.last(), Some(Record::Enqueued { sequence: Sequence(1), .. })));
    }

    #[test]
    fn who_is_attached_is_refused_while_the_queue_is_disabled_and_its_messages_stay() {
        // S-230
        for status in [Status::Disabled, Status::SendDisabled] {
            let mut world = World::with_queue("q");
            let link = world.sender("q");
            world.send(link, 0, &[message(1)]);
            world.update("q", QueueSettings { status, ..QueueSettings::default() }).unwrap();
            let refusal = Refusal::EntityDisabled("q".into());
            assert_eq!(
                world.send(link, 1, &[message(1)]),
                [Effect::Notice(Notice::Rejected { link, delivery: 1, refusal })]
            );
            world.update("q", QueueSettings::default()).unwrap();
            assert_eq!(world.send(link, 2, &[message(1)]), [Effect::Accepted { link, delivery: 2 }]);
            assert_eq!(world.queue("q").counts.active, 2);
        }
    }

    #[test]
    fn a_session_queue_refuses_what_has_no_session_in_the_known_words() {
        // S-20
        let mut world = World::new();
        world.create("q", QueueSettings { requires_session: true, ..QueueSettings::default() });
        let link = world.sender("q");
        let effects = world.send_in(link, 0, &[message(1); 2], &["a"]);
        let [Effect::Notice(Notice::Rejected { refusal: Refusal::NotAllowed(text), .. })] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert!(text.starts_with("The SessionId was not set on a message, and it cannot be sent"), "{text}");
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn numbers_follow_arrival_and_times_never_run_backwards() {
        // S-30, S-31, S-34, S-35
        let mut world = World::with_queue("q");
        let (one, two) = (world.sender("q"), world.sender("q"));
        for (delivery, link) in [one, two, two, one].into_iter().enumerate() {
            world.send(link, delivery as u32, &[message(delivery as u32)]);
            world.commit();
            world.pass(Span(delivery as u64 % 2));
        }
        let stored: Vec<_> = world.queue("q").index.iter().map(|(n, slot)| (n.0, slot.length)).collect();
        assert_eq!(stored, [(1, 0), (2, 1), (3, 2), (4, 3)]);
        assert!(world.queue("q").index.iter().is_sorted_by_key(|(_, slot)| slot.enqueued));
        let received = world.receive("q", crate::ReceiveMode::PeekLock, 9);
        assert_eq!(received.iter().map(|each| each.number.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(received[0].enqueued, LocalTime(1_000_000));
    }

    #[test]
    fn a_message_whose_session_and_partition_key_differ_is_refused_with_its_batch() {
        // S-7, S-16
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let odd = Incoming { keys_differ: true, ..message(1) };
        let effects = world.send(link, 0, &[message(1), odd]);
        assert!(matches!(
            effects[..],
            [Effect::Notice(Notice::Rejected { refusal: Refusal::NotAllowed(_), .. })]
        ));
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_session_id_is_nothing_to_a_queue_without_sessions() {
        // S-21
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let effects = world.send_in(link, 0, &[message(1)], &["a"]);
        assert!(matches!(effects[..], [Effect::Accepted { .. }]));
        assert!(world.queue("q").sessions.is_none(), "and costs nothing");
    }

    #[test]
    fn a_tier_has_its_own_largest_message() {
        // S-17
        let limits = [(Tier::Basic, 262_144), (Tier::Standard, 262_144), (Tier::Premium, 1_048_576)];
        for (tier, limit) in limits {
            let mut world = World::with_tier(tier);
            world.create("q", QueueSettings::default());
            let link = world.sender("q");
            assert!(matches!(world.send(link, 0, &[message(limit)])[..], [Effect::Accepted { .. }]));
            let refusal = Refusal::MessageTooLarge { size: u64::from(limit) + 1, limit: limit.into() };
            let effects = world.send(link, 1, &[message(limit + 1)]);
            assert_eq!(effects, [Effect::Notice(Notice::Rejected { link, delivery: 1, refusal })]);
        }
    }

    #[test]
    fn a_queue_may_choose_a_larger_message() {
        // S-17
        let mut world = World::new();
        world.create("q", QueueSettings { max_message_kilobytes: Some(2_048), ..QueueSettings::default() });
        let link = world.sender("q");
        assert!(matches!(world.send(link, 0, &[message(2_097_152)])[..], [Effect::Accepted { .. }]));
        assert!(matches!(
            world.send(link, 1, &[message(2_097_153)])[..],
            [Effect::Notice(Notice::Rejected { .. })]
        ));
    }

    #[test]
    fn what_the_sender_did_not_send_counts_for_no_limit_of_its_own() {
        // S-17
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let added = Incoming { added_bytes: 46, ..message(262_144 + 46) };
        assert!(matches!(world.send(link, 0, &[added; 4])[..], [Effect::Accepted { .. }]));
        let beyond = Incoming { added_bytes: 45, ..added };
        let effects = world.send(link, 1, &[added, added, added, beyond]);
        let refusal = Refusal::MessageTooLarge { size: 1_048_577, limit: 1_048_576 };
        assert_eq!(effects, [Effect::Notice(Notice::Rejected { link, delivery: 1, refusal })]);
    }

    #[test]
    fn without_a_tier_the_size_that_nobody_chose_is_no_limit() {
        // S-19, S-270
        let full = |tier| {
            let mut world = World::with_tier(tier);
            world.create("q", QueueSettings::default());
            let entity = world.broker.durable.find(crate::NamespaceId(0), "q").unwrap();
            world.is_checked = false;
            world.broker.durable.by_hand(entity).bytes = 1 << 30;
            let link = world.sender("q");
            let effects = world.send(link, 0, &[message(1)]);
            matches!(
                effects[..],
                [Effect::Notice(Notice::Rejected { refusal: Refusal::QueueFull { .. }, .. })]
            )
        };
        assert!(full(Tier::Standard) && full(Tier::Premium));
        assert!(!full(Tier::Unlimited));
    }
}
