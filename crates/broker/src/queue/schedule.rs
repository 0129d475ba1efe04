//! Messages for later. A scheduled message has a number of its own while it waits (S-44); when its time comes it is
//! enqueued as if it had just been sent, under a new number, once and for all (S-45).

use super::send::Parts;
use crate::Broker;
use crate::command::{Arrivals, Incoming, SessionIds};
use crate::decision::{LocalContext, LocalDecision};
use crate::durable::{Applying, Kind};
use crate::effect::{Answer, Extra};
use crate::ids::{BodyId, EntityId, NamespaceId, Number, Sequence, Source};
use crate::limits::{REQUEST_MESSAGES, STATE_RETRY};
use crate::planted::{Bug, is_planted};
use crate::queue::index::{Slot, State};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{LocalTime, Span};
use crate::timers::EntityTimer;
use crate::topic::read::Known;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Broker {
    /// Sends messages and answers with their numbers, also of those whose time is past (S-46).
    pub(crate) fn schedule(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        arrivals: Arrivals<'_>,
        sessions: &SessionIds,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let context = decision.context();
        let entity = self.resolve_for_send(namespace, path)?.entity;
        let messages = arrivals.messages;
        self.check_send(entity, messages, sessions, 0)?;
        self.volatile.set_accessed(entity, context.now);
        let mut numbers = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let sequence = if self.is_duplicate(entity, message, context) {
                self.skip(entity, decision)
            } else {
                let session = sessions.get(at);
                self.store(entity, message, session, Parts::default(), arrivals, decision)
            };
            numbers.push(self.durable.queue(entity).expect("checked before").number(sequence));
        }
        Ok(Answer::Scheduled(numbers))
    }

    /// Uses up a number for a message that is dropped: the scheduler is told one all the same (S-48).
    pub(crate) fn skip(&mut self, entity: EntityId, decision: &mut LocalDecision<'_>) -> Sequence {
        let sequence = self.durable.queue(entity).expect("checked before").next;
        self.write(Record::Skipped { entity, sequence }, decision);
        sequence
    }

    pub(super) fn store_scheduled(
        &mut self,
        entity: EntityId,
        message: &Incoming,
        due: LocalTime,
        parts: Parts,
        decision: &mut LocalDecision<'_>,
    ) {
        let context = decision.context();
        let sequence = self.durable.queue(entity).expect("checked before").next;
        self.write_scheduled(entity, sequence, (message, due), parts, decision);
        self.await_activation(entity, sequence, due, context);
    }

    /// Stores a message for later under a number that was told before.
    pub(crate) fn store_reserved(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        message: &Incoming,
        session: Option<&Arc<str>>,
        parts: Parts,
        decision: &mut LocalDecision<'_>,
    ) {
        self.note(entity, message, decision);
        self.write_scheduled(entity, sequence, (message, message.scheduled), parts, decision);
        self.join(entity, sequence, session, decision);
        if self.is_topic(entity) {
            // Those behind it may be on disk before it.
            let source = Source::main(entity);
            self.volatile.await_writing(source, sequence, decision.position);
        }
        self.volatile.schedule(entity, message.scheduled, sequence);
        self.arm_schedule(entity);
    }

    fn write_scheduled(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        (message, due): (&Incoming, LocalTime),
        Parts { bodies: parts, bytes: part_bytes, stored, .. }: Parts,
        decision: &mut LocalDecision<'_>,
    ) {
        let record = Record::Scheduled {
            entity,
            sequence,
            body: self.place_body(message, stored, decision),
            length: message.body.length + part_bytes as u32,
            due,
            time_to_live: message.time_to_live,
            parts,
        };
        self.write(record, decision);
    }

    /// A message that was just stored waits for its time.
    pub(super) fn await_activation(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        due: LocalTime,
        context: LocalContext,
    ) {
        self.volatile.schedule(entity, due, sequence);
        if self.is_topic(entity) {
            // It may have to be read before it is published, and can be only when it is on disk.
            self.volatile.await_arrival(entity, sequence, context.position);
        }
        self.arm_schedule(entity);
    }

    /// Sets the timer of an entity to when its next message is due. A topic that has something of [`READ_BYTES`](crate::limits::READ_BYTES)
    /// has its turn in any case, to give it back.
    pub(crate) fn arm_schedule(&mut self, entity: EntityId) {
        let first = self.volatile.presence(entity).schedule.first();
        let at = match self.volatile.has_turn(Source::main(entity)) && self.is_topic(entity) {
            true => LocalTime::AT_ONCE,
            false => first.map_or(LocalTime::NEVER, |(due, _)| *due),
        };
        self.volatile.arm(entity, EntityTimer::Activate, at);
    }

    /// Deletes messages that wait, all of these or none. One that waits no more cannot be cancelled (S-42).
    pub(crate) fn cancel_scheduled(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        numbers: &[Number],
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let entity = self.resolve_for_send(namespace, path)?.entity;
        let (count, limit) = (numbers.len(), REQUEST_MESSAGES);
        if count > limit {
            return Err(Refusal::TooMany { what: "sequence numbers", count, limit });
        }
        let queue = self.durable.queue(entity).expect("it was found");
        let mut scheduled = BTreeSet::new();
        for number in numbers {
            let found = queue.sequence(*number).and_then(|sequence| {
                let slot = queue.index.get(sequence).filter(|slot| slot.state() == State::Scheduled);
                slot.map(|slot| (sequence, slot.expires))
            });
            if !found.is_some_and(|found| scheduled.insert(found)) {
                return Err(Refusal::MessageNotFound(*number));
            }
        }
        for (first, due) in scheduled {
            self.write(Record::Removed { entity, first, count: 1 }, decision);
            let due = self.awaited_at(entity, first, due);
            self.volatile.unschedule(entity, due, first);
        }
        self.volatile.set_used(entity, decision.now);
        self.arm_schedule(entity);
        Ok(Answer::Cancelled)
    }

    /// When a message is tried next that was due then: it may have been put off, because it could not be read.
    fn awaited_at(&self, entity: EntityId, sequence: Sequence, due: LocalTime) -> LocalTime {
        let schedule = &self.volatile.presence(entity).schedule;
        if schedule.contains(&(due, sequence)) {
            return due;
        }
        let put_off = schedule.iter().find(|(_, other)| *other == sequence);
        put_off.map_or(due, |(at, _)| *at)
    }

    /// Enqueues up to `most` messages whose time has come, in the order in which they were due, and says how many.
    pub(crate) fn activate_due(
        &mut self,
        entity: EntityId,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let context = decision.context();
        let mut count = 0;
        while count < most
            && (count == 0 || !decision.is_long())
            && let Some((due, scheduled)) = self.volatile.presence(entity).schedule.first().copied()
            && (due <= context.now
                || is_planted(Bug::Activation) && due <= context.now.after(Span::seconds(1)))
        {
            if self.is_topic(entity) {
                // Its copies take memory for each subscription: it waits until there is some.
                if self.check_state().is_err() {
                    self.volatile.leave_reading(Source::main(entity));
                    self.volatile.arm(entity, EntityTimer::Activate, context.now.after(STATE_RETRY));
                    return count.max(1);
                }
                match self.front_of(entity, Source::main(entity), scheduled) {
                    // The schedule goes on when they were read.
                    Known::Unread => {
                        self.ask_for_due(entity, decision);
                        return count.max(1);
                    }
                    Known::Damaged => {
                        self.volatile.unschedule(entity, due, scheduled);
                        self.postpone(entity, scheduled, context);
                        count += 1;
                    }
                    Known::NotNeeded => {
                        self.volatile.unschedule(entity, due, scheduled);
                        count += 1 + self.publish_scheduled(entity, scheduled, None, decision);
                    }
                    Known::Read(front) => {
                        self.volatile.unschedule(entity, due, scheduled);
                        count += 1 + self.publish_scheduled(entity, scheduled, Some(&front), decision);
                    }
                }
                continue;
            }
            self.volatile.unschedule(entity, due, scheduled);
            self.activate(entity, scheduled, decision);
            count += 1;
        }
        // As when it forwards: who does not go on by itself holds nothing that was read.
        let next = self.volatile.presence(entity).schedule.first();
        if next.is_none_or(|(due, _)| *due > context.now) && self.is_topic(entity) {
            self.volatile.leave_reading(Source::main(entity));
        }
        self.arm_schedule(entity);
        self.volatile.set_used(entity, context.now);
        count.clamp(1, most)
    }

    pub(crate) fn is_topic(&self, entity: EntityId) -> bool {
        self.durable.queue(entity).is_some_and(|queue| queue.kind == Kind::Topic)
    }

    fn activate(&mut self, entity: EntityId, scheduled: Sequence, decision: &mut LocalDecision<'_>) {
        let queue = self.durable.queue(entity).expect("the caller looked");
        let own = queue.extras.get(&scheduled).and_then(|extra| extra.time_to_live).unwrap_or(Span::MAX);
        let sequence = queue.next;
        let expires = self.expiry(entity, own, decision.now);
        self.write(Record::Activated { entity, scheduled, sequence, expires }, decision);
        self.arrive(entity, sequence, decision);
    }
}

impl Applying<'_> {
    pub(crate) fn scheduled(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        slot: Slot,
        time_to_live: Span,
        parts: Option<&[BodyId]>,
    ) {
        self.name_body(slot.body);
        let queue = self.queue_mut(entity);
        queue.put_scheduled(sequence, slot);
        queue.add_extra(sequence, parts, time_to_live);
    }

    pub(crate) fn activated(
        &mut self,
        entity: EntityId,
        scheduled: Sequence,
        sequence: Sequence,
        expires: LocalTime,
    ) {
        let time = self.time;
        let queue = self.queue_mut(entity);
        let session = queue.session_of(scheduled).cloned();
        let slot = queue.remove(scheduled);
        let slot = Slot::active(slot.body, slot.length, time, expires);
        queue.push(sequence, slot.after_schedule(true));
        if let Some(session) = session {
            queue.join(sequence, &session);
        }
        if let Some(mut extra) = queue.extras.remove(&scheduled) {
            Arc::make_mut(&mut extra).time_to_live = None;
            if *extra != Extra::default() {
                queue.extras.insert(sequence, extra);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Effect;
    use crate::ids::LinkId;
    use crate::limits::TIMER_SLICE;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries, message};

    fn later(world: &World, seconds: u64) -> Incoming {
        Incoming { scheduled: world.local().after(Span::seconds(seconds)), ..message(10) }
    }

    fn numbers(answer: Result<Answer, Refusal>) -> Vec<u64> {
        match answer {
            Ok(Answer::Scheduled(numbers)) => numbers.into_iter().map(|number| number.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn arrive(world: &mut World) -> Vec<(LinkId, u64)> {
        world.tick();
        deliveries(&world.commit())
    }

    #[test]
    fn a_message_can_be_scheduled_by_a_send_or_by_asking_for_it() {
        // S-40
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let message = later(&world, 60);
        assert_eq!(world.send(link, 3, &[message]), [Effect::Accepted { link, delivery: 3 }]);
        assert_eq!(numbers(world.schedule("q", &[message, message])), [2, 3]);
        assert!(!world.last_release_is_free);
        assert_eq!((world.queue("q").counts.scheduled, world.queue("q").counts.active), (3, 0));
    }

    #[test]
    fn a_scheduled_message_arrives_at_its_time_and_not_before() {
        // S-41, S-47
        let mut world = World::with_queue("q");
        let message = later(&world, 60);
        world.schedule("q", &[message]).unwrap();
        world.commit();
        let receiver = world.receiver("q", PeekLock, 9);
        world.pass(Span(59_999));
        assert_eq!(arrive(&mut world), []);
        world.pass(Span(1));
        assert_eq!(arrive(&mut world), [(receiver, 2)]);
    }

    #[test]
    fn a_message_knows_whether_it_has_waited_for_its_time_also_where_it_is_forwarded_to() {
        // K-8
        let mut world = World::with_queue("q");
        world.create("hop", QueueSettings { forward_to: Some("q".into()), ..QueueSettings::default() });
        for path in ["q", "hop"] {
            let (link, over) = (world.sender(path), Incoming { scheduled: world.local(), ..message(1) });
            let ahead = later(&world, 60);
            world.send(link, 0, &[over, ahead]);
        }
        world.commit();
        world.pass(Span::seconds(60));
        world.tick();
        world.commit();
        world.restart();
        let received = world.receive("q", PeekLock, 9);
        let waited: Vec<bool> = received.iter().map(|delivery| delivery.was_scheduled).collect();
        assert_eq!(waited, [false, false, true, true]);
    }

    #[test]
    fn ten_scheduled_messages_have_the_first_ten_numbers_and_arrive_under_the_next_ten() {
        // S-44
        let mut world = World::with_queue("q");
        let messages = [later(&world, 60); 10];
        assert_eq!(numbers(world.schedule("q", &messages)), (1..=10).collect::<Vec<_>>());
        world.receiver("q", PeekLock, 99);
        world.pass(Span::seconds(60));
        let arrived: Vec<_> = arrive(&mut world).into_iter().map(|(_, number)| number).collect();
        assert_eq!(arrived, (11..=20).collect::<Vec<_>>());
    }

    #[test]
    fn a_message_is_enqueued_and_begins_to_live_when_its_time_comes() {
        // S-44, S-45, S-50
        let mut world = World::with_queue("q");
        let own = Incoming { time_to_live: Span::seconds(10), ..later(&world, 60) };
        world.schedule("q", &[own]).unwrap();
        world.pass(Span::seconds(60));
        world.tick();
        world.commit();
        let taken = world.receive("q", PeekLock, 1);
        assert_eq!(
            (taken[0].enqueued, taken[0].expires),
            (world.local(), world.local().after(Span::seconds(10)))
        );
        assert!(taken[0].extra.is_none());
        assert_eq!(world.queue("q").counts.total(), 1);
        world.pass(Span::minutes(60));
        world.tick();
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn the_queue_is_the_ceiling_of_a_life_that_begins_later() {
        // S-56
        let mut world = World::new();
        world.create(
            "q",
            QueueSettings { default_time_to_live: Span::seconds(5), ..QueueSettings::default() },
        );
        let message = later(&world, 60);
        world.schedule("q", &[message]).unwrap();
        world.pass(Span::seconds(60));
        world.tick();
        let now = world.local();
        assert_eq!(world.queue("q").index.iter().next().unwrap().1.expires, now.after(Span::seconds(5)));
    }

    #[test]
    fn a_time_that_is_not_ahead_means_at_once() {
        // S-46
        let mut world = World::with_queue("q");
        let receiver = world.receiver("q", PeekLock, 9);
        let now = Incoming { scheduled: world.local(), ..message(1) };
        let past = Incoming { scheduled: LocalTime(0), ..message(1) };
        assert_eq!(numbers(world.schedule("q", &[now, past])), [1, 2]);
        assert_eq!(deliveries(&world.commit()), [(receiver, 1), (receiver, 2)]);
    }

    #[test]
    fn messages_arrive_in_the_order_in_which_they_are_due() {
        let mut world = World::with_queue("q");
        let messages = [later(&world, 30), later(&world, 10), later(&world, 20), later(&world, 10)];
        world.schedule("q", &messages).unwrap();
        world.commit();
        world.pass(Span::minutes(1));
        world.tick();
        let bodies: Vec<_> = world.queue("q").index.iter().map(|(_, slot)| slot.body.0).collect();
        assert_eq!(bodies, [2, 4, 3, 1]);
    }

    #[test]
    fn a_scheduled_message_can_be_cancelled_until_it_arrives() {
        // S-42
        let mut world = World::with_queue("q");
        let messages = [later(&world, 60), later(&world, 60), later(&world, 1)];
        world.schedule("q", &messages).unwrap();
        let not_found = |number| Err(Refusal::MessageNotFound(Number(number)));
        assert_eq!(world.cancel("q", &[1, 9]), not_found(9));
        assert_eq!(world.cancel("q", &[1, 1]), not_found(1));
        assert_eq!(world.cancel("q", &[1]), Ok(Answer::Cancelled));
        assert_eq!(world.cancel("q", &[1]), not_found(1));
        world.pass(Span::seconds(1));
        world.tick();
        assert_eq!(world.cancel("q", &[3]), not_found(3));
        assert_eq!(world.cancel("q", &[4]), not_found(4));
        let counts = world.queue("q").counts;
        assert_eq!((counts.scheduled, counts.active, world.queue("q").bytes), (1, 1, 20));
        world.pass(Span::minutes(60));
        world.tick();
        assert_eq!(world.queue("q").counts.active, 2);
    }

    #[test]
    fn a_scheduled_message_is_not_received_by_its_number() {
        // S-122
        let mut world = World::with_queue("q");
        let message = later(&world, 60);
        world.schedule("q", &[message]).unwrap();
        let refused = world.receive_deferred("q", &[1], PeekLock);
        assert_eq!(refused, Err(Refusal::MessageNotFound(Number(1))));
    }

    #[test]
    fn a_large_scheduled_message_keeps_its_parts() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.part(link, 500);
        let own = Incoming { time_to_live: Span::seconds(10), ..later(&world, 60) };
        world.send(link, 0, &[own]);
        world.pass(Span::seconds(60));
        world.tick();
        world.commit();
        let taken = world.receive("q", PeekLock, 1);
        assert_eq!((taken[0].length, taken[0].body.0), (510, 2));
        assert_eq!(taken[0].extra.as_ref().unwrap().parts, [crate::BodyId(1)]);
        let token = taken[0].token;
        assert!(world.settle_tokens("q", &[token], Outcome::Complete).is_ok());
        assert!(world.queue("q").extras.is_empty());
    }

    #[test]
    fn many_messages_that_are_due_at_once_are_worked_off_in_slices() {
        let mut world = World::with_queue("q");
        let messages = vec![later(&world, 60); 2_500];
        world.schedule("q", &messages).unwrap();
        world.pass(Span::seconds(60));
        let mut slices = Vec::new();
        while world.is_due() {
            let before = world.records.len();
            world.tick();
            slices.push(world.records.len() - before);
        }
        assert_eq!(slices, [TIMER_SLICE, TIMER_SLICE, 500]);
    }

    #[test]
    fn a_schedule_is_refused_as_a_send_would_be() {
        // S-17
        let mut world = World::with_queue("q");
        let mut large = later(&world, 60);
        large.body.length = 2 * 1_024 * 1_024;
        let small = later(&world, 60);
        assert!(matches!(world.schedule("q", &[small, large]), Err(Refusal::MessageTooLarge { .. })));
        assert!(matches!(world.schedule("none", &[small]), Err(Refusal::EntityNotFound(_))));
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn the_schedule_survives_a_restart() {
        let mut world = World::with_queue("q");
        let message = later(&world, 60);
        world.schedule("q", &[message]).unwrap();
        world.restart();
        world.pass(Span::seconds(60));
        assert!(world.is_due());
        world.tick();
        assert_eq!(world.queue("q").counts.active, 1);
    }
}
