//! Entities that delete themselves when nobody uses them (S-70). Used means: sent to, received from, settled, updated,
//! browsed (S-71); a topic also through its subscriptions (S-72), which are not used by what they are sent (S-73). A receiver that waits and a message that is scheduled keep an entity; stored messages do not (S-74).
//!
//! There is one timer for each such entity. It is not moved with each use: when it goes off, it is set again for the
//! time that the latest use allows.

use crate::Broker;
use crate::decision::LocalDecision;
use crate::ids::EntityId;
use crate::planted::{Bug, is_planted};

impl Broker {
    /// Deletes an entity that was idle for as long as it may be; otherwise looks again when it could be.
    pub(crate) fn end_idle(&mut self, entity: EntityId, decision: &mut LocalDecision<'_>) -> usize {
        let queue = self.durable.queue(entity).expect("timers go with their entity");
        let is_scheduled = queue.counts.scheduled > 0 && !is_planted(Bug::IdleDeletion);
        let topic = self.durable.topics().topic(entity);
        let below = || topic.iter().flat_map(|topic| topic.subscriptions.values().copied());
        let is_awaited = self.volatile.has_waiting_receiver(entity)
            || below().any(|entity| self.volatile.has_waiting_receiver(entity));
        // K-23
        let is_kept = is_scheduled || is_awaited || queue.settings.forward_to.is_some();
        // After a start nobody knows since when it is idle: it begins again.
        let used_below = below().filter_map(|entity| self.volatile.presence(entity).used).max();
        let own = self.volatile.presence(entity).used;
        let used = own.max(used_below);
        let since = if is_kept { decision.now } else { used.unwrap_or(decision.now) };
        if since.after(queue.settings.auto_delete_on_idle) <= decision.now {
            let path = queue.path.clone();
            self.remove_entity(entity, &path, decision);
        } else {
            // A subscription may go, and what is known through it with it.
            if own.is_none() {
                self.volatile.set_used(entity, since);
            }
            self.arm_idle(entity, since);
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::{Answer, Effect, Notice};
    use crate::ids::NamespaceId;
    use crate::manage::Task;
    use crate::record::Record;
    use crate::refusal::Refusal;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;
    use crate::topic::settings::{SubscriptionSettings, TopicSettings};
    use crate::{Incoming, LocalTime};

    const IDLE: Span = Span::minutes(5);

    fn settings() -> QueueSettings {
        QueueSettings { auto_delete_on_idle: IDLE, ..QueueSettings::default() }
    }

    fn temporary() -> World {
        let mut world = World::new();
        world.create("q", settings());
        world
    }

    #[test]
    fn an_entity_that_forwards_keeps_its_time_and_is_not_idle_until_it_stops() {
        // S-75, K-23
        let mut world = temporary();
        world.create("next", QueueSettings::default());
        let forwarding = QueueSettings { forward_to: Some("next".into()), ..settings() };
        let Ok(Answer::Queue(queue)) = world.update("q", forwarding) else { panic!("updated") };
        assert_eq!(queue.settings.auto_delete_on_idle, IDLE);
        let lives_for = |world: &mut World, span| {
            world.pass(span);
            while world.is_due() {
                world.tick();
            }
            exists(world)
        };
        assert!(lives_for(&mut world, Span::minutes(600)));
        world.restart();
        assert!(lives_for(&mut world, Span::minutes(600)));
        world.update("q", settings()).unwrap();
        assert!(lives_for(&mut world, Span(IDLE.0 - 1)));
        assert!(!lives_for(&mut world, Span(1)));
    }

    fn exists(world: &World) -> bool {
        world.broker.durable.find(NamespaceId(0), "q").is_some()
    }

    /// Lets time pass up to the last moment of the queue, then through it. `use_it` happens before.
    fn lives_on_after(mut world: World, use_it: impl FnOnce(&mut World)) {
        world.pass(Span(IDLE.0 - 1));
        world.tick();
        use_it(&mut world);
        world.pass(Span(IDLE.0 - 1));
        world.tick();
        assert!(exists(&world), "it was used");
        world.pass(Span(1));
        world.tick();
        assert!(!exists(&world), "it was idle since");
    }

    #[test]
    fn an_idle_queue_deletes_itself_with_its_messages() {
        // S-70, S-74
        let mut world = temporary();
        world.send_committed("q", 3);
        let sender = world.sender("q");
        world.pass(Span(IDLE.0 - 1));
        world.tick();
        assert!(exists(&world));
        world.pass(Span(1));
        let effects = world.tick();
        assert!(!exists(&world));
        let refusal = Refusal::EntityNotFound("q".into());
        assert_eq!(effects, [Effect::Notice(Notice::Detached { link: sender, refusal })]);
        assert!(matches!(world.records.last(), Some(Record::EntityDeleted { .. })));
        assert_eq!(world.broker.next_due(), None);
    }

    #[test]
    fn every_use_begins_the_time_anew() {
        // S-71
        lives_on_after(temporary(), |world| world.send_committed("q", 1));
        lives_on_after(temporary(), |world| {
            world.browse("q", 0, 1).unwrap();
        });
        lives_on_after(temporary(), |world| {
            world.update("q", settings()).unwrap();
        });
        lives_on_after(temporary(), |world| {
            world.receive("q", PeekLock, 1);
        });
        lives_on_after(temporary(), |world| {
            world.delete_messages("q", 1, LocalTime::NEVER).unwrap();
        });
        lives_on_after(temporary(), |world| {
            world.browse("q/$DeadLetterQueue", 0, 1).unwrap();
        });
    }

    #[test]
    fn who_works_with_a_message_uses_its_queue() {
        // S-71
        let taken = || {
            let mut world = temporary();
            world.create("other", QueueSettings::default());
            let lock_duration = Span::minutes(5);
            world.update("q", QueueSettings { lock_duration, ..settings() }).unwrap();
            world.send_committed("q", 1);
            assert_eq!(world.receive("q", PeekLock, 1).len(), 1);
            world
        };
        lives_on_after(taken(), |world| {
            let token = world.token(1);
            world.renew("q", &[token]).unwrap();
        });
        lives_on_after(taken(), |world| {
            let token = world.token(1);
            world.settle_tokens("q", &[token], Outcome::Complete).unwrap();
        });
    }

    #[test]
    fn describing_a_queue_is_not_using_it() {
        // S-71
        let mut world = temporary();
        world.pass(Span(IDLE.0 - 1));
        world.describe("q").unwrap();
        world.pass(Span(1));
        world.tick();
        assert!(!exists(&world));
    }

    #[test]
    fn a_receiver_that_waits_keeps_the_queue_until_it_leaves() {
        // S-74
        let mut world = temporary();
        let link = world.receiver("q", PeekLock, 1);
        world.pass(Span::minutes(60));
        world.tick();
        assert!(exists(&world));
        lives_on_after(world, |world| world.detach(link));
    }

    #[test]
    fn a_receiver_without_credit_does_not_keep_the_queue() {
        // S-74
        let mut world = temporary();
        let link = world.link();
        world.attach_receiver(link, "q", PeekLock);
        world.pass(IDLE);
        world.tick();
        assert!(!exists(&world));
    }

    #[test]
    fn a_scheduled_message_keeps_the_queue_until_it_arrives_or_is_cancelled() {
        // S-71, S-74
        let scheduled = |minutes| {
            let mut world = temporary();
            let scheduled = world.local().after(Span::minutes(minutes));
            world.schedule("q", &[Incoming { scheduled, ..message(1) }]).unwrap();
            world.pass(Span::minutes(60));
            world.tick();
            assert!(exists(&world));
            world
        };
        lives_on_after(scheduled(9_999), |world| {
            assert_eq!(world.cancel("q", &[1]), Ok(Answer::Cancelled));
        });
        let mut world = scheduled(61);
        world.pass(Span::minutes(1));
        world.tick();
        world.pass(Span(IDLE.0 - 1));
        world.tick();
        assert!(exists(&world));
        world.pass(Span(1));
        world.tick();
        assert!(!exists(&world));
    }

    #[test]
    fn a_queue_without_the_setting_stays() {
        // S-70
        let mut world = World::with_queue("q");
        world.now = crate::Time(i64::MAX - 1);
        world.tick();
        assert!(exists(&world));
    }

    #[test]
    fn a_restart_begins_the_time_anew() {
        let mut world = temporary();
        world.pass(Span::minutes(60));
        world.restart();
        world.tick();
        assert!(exists(&world));
        world.pass(Span(IDLE.0 - 1));
        world.tick();
        assert!(exists(&world));
        world.pass(Span(1));
        world.tick();
        assert!(!exists(&world));
    }

    #[test]
    fn a_topic_remembers_after_a_restart_a_use_of_a_subscription_that_has_gone() {
        // S-72
        let mut world = World::new();
        let topic = TopicSettings { auto_delete_on_idle: Span(IDLE.0 + 60_000), ..Default::default() };
        world.manage(Task::CreateTopic { path: "q".into(), settings: topic, access: vec![] }).unwrap();
        let settings = SubscriptionSettings { auto_delete_on_idle: IDLE, ..Default::default() };
        let (topic, name) = (Box::<str>::from("q"), Box::<str>::from("s"));
        let (again, same) = (topic.clone(), name.clone());
        let created = Task::CreateSubscription { topic, name, settings: settings.clone(), rule: None };
        world.manage(created).unwrap();
        world.restart();
        world.manage(Task::UpdateSubscription { topic: again, name: same, settings }).unwrap();
        world.tick();
        world.pass(Span(IDLE.0 + 59_999));
        world.tick();
        assert!(exists(&world));
        world.pass(Span(1));
        world.tick();
        assert!(!exists(&world));
    }

    #[test]
    fn an_update_sets_the_time_and_takes_it_away() {
        // S-70
        let mut world = temporary();
        world.update("q", QueueSettings::default()).unwrap();
        world.pass(Span::minutes(60));
        world.tick();
        assert!(exists(&world));
        world.update("q", settings()).unwrap();
        world.pass(IDLE);
        world.tick();
        assert!(!exists(&world));
    }
}
