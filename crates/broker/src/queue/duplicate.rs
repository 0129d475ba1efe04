//! Duplicate detection: a message whose id was taken within the window is accepted and dropped (S-160). Only the id is
//! compared; in a partitioned queue with the partition key (S-162). The window of an id begins with the first message
//! that has it and is not prolonged (S-164).

use crate::Broker;
use crate::command::Incoming;
use crate::decision::{LocalContext, LocalDecision};
use crate::durable::Applying;
use crate::ids::{EntityId, MessageKey};
use crate::limits::DUPLICATE_WINDOW_DEFAULT;
use crate::planted::{Bug, is_planted};
use crate::record::Record;
use crate::touched::touched;

impl Broker {
    /// What the queue knows a message by, if it looks for duplicates and the message has an id.
    fn key_of(&self, entity: EntityId, id: MessageKey, partition: u64) -> Option<MessageKey> {
        let settings = &self.durable.queue(entity).expect("checked before").settings;
        if !settings.requires_duplicate_detection || id == MessageKey::NONE {
            return None;
        }
        let has_partitions = settings.partitioning && !is_planted(Bug::PartitionKey);
        Some(if has_partitions { id.within(partition) } else { id })
    }

    pub(crate) fn is_duplicate(&self, entity: EntityId, message: &Incoming, context: LocalContext) -> bool {
        let key = self.key_of(entity, message.id, message.partition);
        key.is_some_and(|key| self.is_known(entity, key, context))
    }

    fn is_known(&self, entity: EntityId, key: MessageKey, context: LocalContext) -> bool {
        touched(1);
        let window = self.durable.queue(entity).expect("checked before").settings.duplicate_window;
        let window = if is_planted(Bug::DuplicateWindow) { DUPLICATE_WINDOW_DEFAULT } else { window };
        let seen = self.volatile.presence(entity).seen.get(&key);
        seen.is_some_and(|time| context.now < time.after(window))
    }

    /// Remembers the id of a message that is being stored, in the same append.
    pub(super) fn note(&mut self, entity: EntityId, message: &Incoming, decision: &mut LocalDecision<'_>) {
        if let Some(key) = self.key_of(entity, message.id, message.partition) {
            self.remember(entity, key, decision);
        }
    }

    /// Whether an entity takes a message of this id and partition that comes from another (S-177): if it was there before, it
    /// does not; if not, it remembers it.
    pub(super) fn admits(
        &mut self,
        entity: EntityId,
        (id, partition): (MessageKey, u64),
        decision: &mut LocalDecision<'_>,
    ) -> bool {
        let context = decision.context();
        let Some(key) = self.key_of(entity, id, partition) else { return true };
        let is_new = !self.is_known(entity, key, context);
        if is_new {
            self.remember(entity, key, decision);
        }
        is_new
    }

    fn remember(&mut self, entity: EntityId, id: MessageKey, decision: &mut LocalDecision<'_>) {
        let queue = self.durable.queue(entity).expect("checked before");
        for chunk in queue.history.past(decision.now, queue.settings.duplicate_window) {
            touched(1);
            for noted in chunk {
                self.volatile.forget(entity, noted.id, noted.time);
            }
        }
        self.write(Record::Noted { entity, id }, decision);
        self.volatile.note(entity, id, decision.now);
    }
}

impl Applying<'_> {
    pub(crate) fn noted(&mut self, entity: EntityId, id: MessageKey) {
        let time = self.time;
        let queue = self.queue_mut(entity);
        queue.history.note(id, time, queue.settings.duplicate_window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::ReceiveAndDelete;
    use crate::effect::{Answer, Effect};
    use crate::ids::Number;
    use crate::refusal::Refusal;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;

    fn detecting() -> World {
        let mut world = World::new();
        world.create("q", QueueSettings { requires_duplicate_detection: true, ..QueueSettings::default() });
        world
    }

    fn named(id: u64) -> Incoming {
        Incoming { id: MessageKey([id, 7]), ..message(10) }
    }

    fn later(world: &World, id: u64) -> Incoming {
        Incoming { scheduled: world.local().after(Span::seconds(60)), ..named(id) }
    }

    fn numbers(world: &World) -> Vec<u64> {
        world.queue("q").index.iter().map(|(sequence, _)| sequence.0).collect()
    }

    #[test]
    fn a_message_of_a_known_id_is_accepted_and_dropped_and_uses_no_number() {
        // S-37, S-160
        let mut world = detecting();
        let link = world.sender("q");
        for (delivery, id) in [1, 1, 2, 1].into_iter().enumerate() {
            let delivery = delivery as u32;
            let other = Incoming { body: crate::Intake { offset: 0, length: 10 + delivery }, ..named(id) };
            assert_eq!(world.send(link, delivery, &[other]), [Effect::Accepted { link, delivery }]);
            assert!(!world.last_release_is_free, "the first of its id must be durable");
        }
        assert_eq!(numbers(&world), [1, 2]);
        assert_eq!((world.queue("q").bytes, world.queue("q").next.0), (22, 3));
    }

    #[test]
    fn an_id_is_known_for_the_window_from_its_first_message_on() {
        // S-161, S-164: a dropped duplicate does not prolong it.
        let mut world = detecting();
        let link = world.sender("q");
        world.send(link, 0, &[named(1)]);
        world.pass(Span(599_999));
        world.send(link, 1, &[named(1)]);
        assert_eq!(numbers(&world), [1]);
        world.pass(Span(1));
        world.send(link, 2, &[named(1)]);
        assert_eq!(numbers(&world), [1, 2]);
        world.pass(Span(599_999));
        world.send(link, 3, &[named(1)]);
        assert_eq!(numbers(&world), [1, 2]);
    }

    #[test]
    fn another_window_counts_at_once() {
        // S-161
        let mut world = detecting();
        let link = world.sender("q");
        world.send(link, 0, &[named(1)]);
        world.pass(Span::seconds(30));
        let window = |seconds| QueueSettings {
            requires_duplicate_detection: true,
            duplicate_window: Span::seconds(seconds),
            ..QueueSettings::default()
        };
        world.update("q", window(31)).unwrap();
        world.send(link, 1, &[named(1)]);
        assert_eq!(numbers(&world), [1]);
        world.update("q", window(30)).unwrap();
        world.send(link, 2, &[named(1)]);
        assert_eq!(numbers(&world), [1, 2]);
    }

    #[test]
    fn a_batch_drops_what_it_repeats_and_keeps_the_rest() {
        // S-16, S-160
        let mut world = detecting();
        let link = world.sender("q");
        let effects = world.send(link, 0, &[named(1), named(1), named(2), message(1), message(1)]);
        assert_eq!(effects, [Effect::Accepted { link, delivery: 0 }]);
        assert_eq!(numbers(&world), [1, 2, 3, 4], "messages without an id are never duplicates");
    }

    #[test]
    fn the_history_outlives_the_message_and_the_process() {
        // S-164
        let mut world = detecting();
        let link = world.sender("q");
        world.send(link, 0, &[named(1)]);
        world.commit();
        assert_eq!(world.receive("q", ReceiveAndDelete, 1).len(), 1);
        world.send(link, 1, &[named(1)]);
        world.restart();
        let link = world.sender("q");
        world.send(link, 2, &[named(1)]);
        assert_eq!(world.queue("q").counts.total(), 0);
        world.pass(Span::minutes(10));
        world.send(link, 3, &[named(1)]);
        assert_eq!(world.queue("q").counts.total(), 1);
    }

    #[test]
    fn scheduled_and_plain_messages_know_each_other() {
        // S-48
        let mut world = detecting();
        let link = world.sender("q");
        let scheduled = later(&world, 1);
        world.send(link, 0, &[scheduled]);
        world.send(link, 1, &[named(1), named(2)]);
        let counts = world.queue("q").counts;
        assert_eq!((counts.scheduled, counts.active), (1, 1));
        let scheduled = later(&world, 2);
        world.send(link, 2, &[scheduled]);
        assert_eq!(world.queue("q").counts.scheduled, 1);
        world.pass(Span::seconds(60));
        world.tick();
        assert_eq!(world.queue("q").counts.active, 2, "what was scheduled arrives, known as it is");
    }

    #[test]
    fn a_dropped_schedule_is_answered_with_a_number_that_nothing_has() {
        // S-37, S-48
        let mut world = detecting();
        let messages = [later(&world, 1), later(&world, 1), later(&world, 2)];
        let numbers = [1, 2, 3].map(Number).to_vec();
        assert_eq!(world.schedule("q", &messages), Ok(Answer::Scheduled(numbers)));
        assert_eq!(world.queue("q").counts.scheduled, 2);
        assert_eq!(world.cancel("q", &[2]), Err(Refusal::MessageNotFound(Number(2))));
        assert_eq!(world.cancel("q", &[1, 3]), Ok(Answer::Cancelled));
        world.restart();
        let link = world.sender("q");
        world.send(link, 0, &[named(4)]);
        assert_eq!(self::numbers(&world), [4]);
    }

    #[test]
    fn a_partitioned_queue_compares_the_partition_key_too() {
        // S-162
        let mut world = World::new();
        world.create(
            "q",
            QueueSettings {
                requires_duplicate_detection: true,
                partitioning: true,
                ..QueueSettings::default()
            },
        );
        let link = world.sender("q");
        for (delivery, partition) in [0, 5, 6, 5].into_iter().enumerate() {
            world.send(link, delivery as u32, &[Incoming { partition, ..named(1) }]);
        }
        assert_eq!(world.queue("q").counts.active, 3);
        let mut world = detecting();
        let link = world.sender("q");
        for partition in [0, 5, 6] {
            world.send(link, 0, &[Incoming { partition, ..named(1) }]);
        }
        assert_eq!(world.queue("q").counts.active, 1, "elsewhere the id alone counts (S-160)");
    }

    #[test]
    fn a_queue_without_detection_takes_everything() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.send(link, 0, &[named(1), named(1)]);
        assert_eq!(world.queue("q").counts.active, 2);
        assert!(world.queue("q").history.iter().next().is_none());
    }

    #[test]
    fn what_is_past_is_forgotten_in_memory_too() {
        let mut world = detecting();
        let link = world.sender("q");
        let count = 3 * crate::limits::HISTORY_CHUNK as u64;
        for first in (0..count).step_by(1_000) {
            let some: Vec<_> = (first..count.min(first + 1_000)).map(named).collect();
            world.send(link, 0, &some);
        }
        world.pass(Span::minutes(10));
        (0..3).for_each(|id| drop(world.send(link, 0, &[named(count + id)])));
        let entity = world.broker.durable.find(crate::NamespaceId(0), "q").unwrap();
        assert_eq!(world.broker.volatile.presence(entity).seen.len(), 3);
        assert_eq!(world.queue("q").history.iter().count(), 3);
    }
}
