//! Deleting messages without receiving them, many at a time (S-240). Only what a receiver could get is deleted, so what
//! is locked, deferred or scheduled stays, and nothing that stays is looked at.

use crate::Broker;
use crate::decision::LocalDecision;
use crate::effect::Answer;
use crate::ids::{NamespaceId, Sequence, Source};
use crate::planted::{Bug, is_planted};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::session::Held;
use crate::time::LocalTime;

impl Broker {
    pub(crate) fn delete_messages(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        most: u32,
        before: LocalTime,
        held: Option<Held<'_>>,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let source = self.resolve_for_receive(namespace, path)?;
        let tier = self.tier_of(namespace);
        let limit = tier
            .deleted_messages()
            .ok_or(Refusal::NotInTier { property: "batch delete", tier: tier.name() })?;
        if self.queue_of(source).settings.partitioning {
            return Err(Refusal::NotAllowed("Batch delete is not available for partitioned entities."));
        }
        let entity = source.entity;
        self.volatile.set_accessed(entity, decision.now);
        let most = most.min(limit);
        let mut left = most as usize;
        let mut count = 0;
        while let Some(sequence) = self.next_deleted(source, held, &mut left, decision) {
            // In the order of numbers times only rise: behind this one there is nothing older.
            if self.locked_slot(source, sequence).enqueued >= before && !is_planted(Bug::Purge) {
                break;
            }
            self.volatile.take(source, sequence);
            self.write(Record::Removed { entity, first: sequence, count: 1 }, decision);
            left -= 1;
            count += 1;
        }
        Ok(Answer::MessagesDeleted(count))
    }

    /// The next message that a receiver could get; in a session, its holder, or anybody while there is none.
    fn next_deleted(
        &mut self,
        source: Source,
        held: Option<Held<'_>>,
        left: &mut usize,
        decision: &mut LocalDecision<'_>,
    ) -> Option<Sequence> {
        let context = decision.context();
        let Some((session, _)) = held else { return self.next_free(source, left, decision) };
        let is_others = self.is_session_held(source, session, context)
            && self.check_held(source, held?, context).is_err();
        let may = self.has_sessions(source) && !is_others && *left > 0;
        if may { self.next_in_session(source, session, Sequence(0), decision) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tier;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Outcome};
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;

    fn deleted(world: &mut World, path: &str, most: u32) -> u32 {
        let before = LocalTime::NEVER;
        match world.delete_messages(path, most, before) {
            Ok(Answer::MessagesDeleted(count)) => count,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn as_many_are_deleted_as_asked_for_and_the_number_is_told() {
        // S-240
        let mut world = World::with_queue("q");
        world.send_committed("q", 5);
        assert_eq!(deleted(&mut world, "q", 2), 2);
        assert_eq!(deleted(&mut world, "q", 9), 3);
        assert_eq!(deleted(&mut world, "q", 9), 0);
        assert_eq!((world.queue("q").counts.total(), world.queue("q").bytes), (0, 0));
    }

    #[test]
    fn only_messages_from_before_the_cut_are_deleted() {
        // S-240
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        world.pass(Span::seconds(1));
        let cut = world.local();
        world.send_committed("q", 2);
        assert_eq!(world.delete_messages("q", 9, cut), Ok(Answer::MessagesDeleted(2)));
        assert_eq!(world.delete_messages("q", 9, cut), Ok(Answer::MessagesDeleted(0)));
        let left: Vec<_> = world.receive("q", PeekLock, 9).iter().map(|each| each.number.0).collect();
        assert_eq!(left, [3, 4]);
    }

    #[test]
    fn what_is_locked_deferred_or_scheduled_stays() {
        // S-240
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        let scheduled = Incoming { scheduled: world.local().after(Span::minutes(9)), ..message(1) };
        world.schedule("q", &[scheduled]).unwrap();
        let link = world.receiver("q", PeekLock, 2);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Defer(None));
        world.commit();
        assert_eq!(deleted(&mut world, "q", 9), 1);
        let token = world.token(2);
        world.settle(link, 0, token, Outcome::Abandon(None));
        world.commit();
        assert_eq!(deleted(&mut world, "q", 9), 1);
        let counts = world.queue("q").counts;
        assert_eq!((counts.active, counts.deferred, counts.scheduled), (0, 1, 1));
    }

    #[test]
    fn a_dead_letter_queue_can_be_emptied() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::DeadLetter(None));
        world.commit();
        assert_eq!(deleted(&mut world, "q/$DeadLetterQueue", 9), 1);
        assert_eq!(world.queue("q").counts.total(), 1);
    }

    #[test]
    fn each_tier_has_its_limit() {
        // S-240, S-270
        let limits = [(Tier::Standard, 500), (Tier::Premium, 4_000), (Tier::Unlimited, 4_000)];
        for (tier, limit) in limits {
            let mut world = World::with_tier(tier);
            world.create("q", QueueSettings::default());
            world.send_committed("q", limit + 1);
            assert_eq!(deleted(&mut world, "q", u32::MAX), limit);
        }
        let mut world = World::with_tier(Tier::Basic);
        world.create("q", QueueSettings::default());
        assert!(matches!(world.delete_messages("q", 1, LocalTime::NEVER), Err(Refusal::NotInTier { .. })));
    }

    #[test]
    fn a_partitioned_queue_has_no_batch_delete() {
        // S-240
        let mut world = World::new();
        world.create("q", QueueSettings { partitioning: true, ..QueueSettings::default() });
        assert!(matches!(world.delete_messages("q", 1, LocalTime::NEVER), Err(Refusal::NotAllowed(_))));
    }
}
