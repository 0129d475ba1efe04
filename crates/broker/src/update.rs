//! Changing what a queue was told at its creation. Held locks stay as they are; another lock duration counts from the
//! next renewal.

use crate::Broker;
use crate::decision::LocalDecision;
use crate::ids::{EntityId, NamespaceId, SubQueue};
use crate::link::FORWARDING;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::topic::change::Change;
use crate::volatile::Link;

impl Broker {
    pub(crate) fn update_queue(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        asked: &QueueSettings,
        decision: &mut LocalDecision<'_>,
    ) -> Result<EntityId, Refusal> {
        let not_found = || Refusal::EntityNotFound(path.into());
        let entity = self.durable.find(namespace, path).ok_or_else(not_found)?;
        let queue = self.durable.plain_queue(entity).ok_or_else(not_found)?;
        asked.check_update(&queue.settings)?;
        self.check_queue_forwards(namespace, path, asked, Some(&queue.settings))?;
        let settings = Box::new(self.tier_of(namespace).settle(asked, Some(&queue.settings))?);
        let change = Change::QueueUpdated { entity, settings };
        self.write(Record::Managed(Box::new(change)), decision);
        self.redirect(entity, decision);
        Ok(entity)
    }

    /// What follows when the settings of a queue or a subscription were changed.
    pub(crate) fn redirect(&mut self, entity: EntityId, decision: &mut LocalDecision<'_>) {
        let queue = self.durable.queue(entity).expect("it was updated");
        let (may_receive, path) = (queue.settings.status.may_receive(), queue.path.clone());
        let main = queue.settings.forward_to.is_some();
        let dead = queue.settings.forward_dead_letters_to.is_some();
        self.volatile.set_used(entity, decision.now);
        self.volatile.redirect(entity);
        self.arm_idle(entity, decision.now);
        // A receiver would wait for ever; a sender is told at its next send (S-230).
        if !may_receive {
            let is_receiver = |link: &Link| link.role.receives();
            self.drop_links(entity, is_receiver, &Refusal::EntityDisabled(path), decision);
        } else if main || dead {
            // S-172
            let is_beside = |link: &Link| {
                let forwards = match link.source.sub {
                    SubQueue::Main => main,
                    SubQueue::DeadLetter => dead,
                    SubQueue::TransferDeadLetter => false,
                };
                forwards && link.role.receives()
            };
            self.drop_links(entity, is_beside, &Refusal::NotAllowed(FORWARDING), decision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Answer;
    use crate::effect::{Effect, Notice};
    use crate::settings::Status;
    use crate::testing::{World, message};
    use crate::time::Span;

    #[test]
    fn what_is_fixed_at_creation_cannot_be_changed() {
        // S-220, S-260
        let mut world = World::with_queue("q");
        let mut refused = |change: fn(&mut QueueSettings)| {
            let mut settings = QueueSettings::default();
            change(&mut settings);
            world.update("q", settings).err()
        };
        let fixed = |property| Some(Refusal::Unchangeable { property, kind: "Queue" });
        assert_eq!(refused(|s| s.requires_session = true), fixed("RequiresSession"));
        assert_eq!(refused(|s| s.partitioning = true), fixed("EnablePartitioning"));
        assert_eq!(refused(|s| s.requires_duplicate_detection = true), fixed("RequiresDuplicateDetection"));
        assert_eq!(
            fixed("RequiresSession").unwrap().to_string(),
            "The value for the 'RequiresSession' property of an existing Queue can't be changed."
        );
        assert!(matches!(refused(|s| s.lock_duration = Span(1)), Some(Refusal::InvalidSetting { .. })));
        assert_eq!(refused(|s| s.max_delivery_count = 3), None);
        assert_eq!(world.queue("q").settings.max_delivery_count, 3);
    }

    #[test]
    fn everything_else_can_be_changed() {
        // docs/compatibility/broker.md, 20
        let mut world = World::with_queue("q");
        let settings = QueueSettings {
            lock_duration: Span::seconds(5),
            max_size_megabytes: 5_120,
            duplicate_window: Span::seconds(20),
            default_time_to_live: Span::seconds(1),
            dead_letter_on_expiration: true,
            max_delivery_count: 1,
            batched_operations: false,
            auto_delete_on_idle: Span::minutes(5),
            express: true,
            status: Status::ReceiveDisabled,
            user_metadata: Some("x".into()),
            max_message_kilobytes: Some(102_400),
            ..QueueSettings::default()
        };
        assert!(world.update("q", settings.clone()).is_ok());
        assert_eq!(world.queue("q").settings, settings);
        assert!(world.update("q", QueueSettings::default()).is_ok());
        assert_eq!(world.queue("q").settings, QueueSettings::default());
    }

    #[test]
    fn an_update_is_seen_and_dated() {
        // S-237
        let mut world = World::with_queue("q");
        let created = world.local();
        world.pass(Span::seconds(5));
        let settings = QueueSettings { user_metadata: Some("note".into()), ..QueueSettings::default() };
        let Ok(Answer::Queue(queue)) = world.update("q", settings.clone()) else { panic!() };
        assert_eq!((queue.settings, queue.created, queue.updated), (settings, created, world.local()));
    }

    #[test]
    fn a_held_lock_outlives_an_update_and_takes_the_new_duration_at_its_renewal() {
        // S-93: ours are kept
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        let settings = QueueSettings { lock_duration: Span::seconds(5), ..QueueSettings::default() };
        world.update("q", settings).unwrap();
        world.pass(Span::seconds(59));
        assert_eq!(
            world.renew("q", &[token]),
            Ok(Answer::Renewed(vec![world.local().after(Span::seconds(5))]))
        );
        world.pass(Span(4_999));
        world.tick();
        assert!(matches!(world.settle(link, 0, token, Outcome::Complete)[..], [Effect::Settled { .. }]));
    }

    #[test]
    fn a_queue_that_stops_giving_sends_its_receivers_away() {
        // S-230
        let mut world = World::with_queue("q");
        let (sender, receiver) = (world.sender("q"), world.receiver("q", PeekLock, 5));
        let disabled = QueueSettings { status: Status::Disabled, ..QueueSettings::default() };
        world.update("q", disabled).unwrap();
        let refusal = Refusal::EntityDisabled("q".into());
        let gone = Effect::Notice(Notice::Detached { link: receiver, refusal: refusal.clone() });
        assert_eq!(world.take_effects()[0], gone);
        let effects = world.send(sender, 0, &[message(1)]);
        assert_eq!(effects, [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal })]);
        world.update("q", QueueSettings::default()).unwrap();
        assert!(matches!(world.send(sender, 1, &[message(1)])[..], [Effect::Accepted { .. }]));
    }

    #[test]
    fn a_queue_that_begins_to_forward_sends_away_only_whom_it_has_nothing_for() {
        // S-172, S-114: nothing is forwarded from the transfer dead-letter queue
        let mut world = World::with_queue("q");
        world.create("to", QueueSettings::default());
        let mut attach = |path: &str| world.receiver(path, PeekLock, 1);
        let [main, dead] = ["q", "q/$DeadLetterQueue"].map(&mut attach);
        attach("q/$Transfer/$DeadLetterQueue");
        let target = || Some("to".into());
        let settings = QueueSettings {
            forward_to: target(),
            forward_dead_letters_to: target(),
            ..QueueSettings::default()
        };
        world.update("q", settings).unwrap();
        let effects = world.take_effects();
        let detached = effects.iter().filter_map(|effect| match effect {
            Effect::Notice(Notice::Detached { link, .. }) => Some(*link),
            _ => None,
        });
        assert_eq!(detached.collect::<Vec<_>>(), [main, dead]);
    }

    #[test]
    fn what_is_not_there_cannot_be_updated() {
        let refused = World::new().update("q", QueueSettings::default());
        assert_eq!(refused, Err(Refusal::EntityNotFound("q".into())));
    }
}
