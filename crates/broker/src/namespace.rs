//! Entities by name: create, describe, list, delete.

use crate::Broker;
use crate::decision::{Decision, LocalDecision};
use crate::durable::Queue;
use crate::effect::{Answer, Notice, QueueDescription};
use crate::ids::{EntityId, NamespaceId, Source, SubQueue};
use crate::limits::{LIST_PAGE, PATH_CHARACTERS};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::time::LocalTime;
use crate::timers::EntityTimer;
use crate::topic::subscription::split_path;
use crate::volatile::Link;

impl Broker {
    pub(crate) fn create_queue(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_new_path(namespace, path)?;
        self.check_queue_forwards(namespace, path, settings, None)?;
        let settings = Box::new(self.tier_of(namespace).settle(settings, None)?);
        self.check_room(namespace, settings.partitioning)?;
        let entity = self.durable.next_entity();
        self.write(Record::QueueCreated { entity, namespace, path: path.into(), settings }, decision);
        self.volatile.create_entity(entity, namespace, decision.now);
        self.arm_idle(entity, decision.now);
        self.describe(entity)
    }

    /// docs/compatibility/broker.md, 21.
    pub(crate) fn check_room(&self, namespace: NamespaceId, is_partitioned: bool) -> Result<(), Refusal> {
        let limit = self.tier_of(namespace).partitioned_entities();
        if is_partitioned && limit != usize::MAX {
            let has_partitions = |entity: &EntityId| {
                self.durable.queue(*entity).is_some_and(|queue| queue.settings.partitioning)
            };
            if self.durable.entities_of(namespace).filter(has_partitions).count() >= limit {
                return Err(Refusal::TooManyEntities(limit));
            }
        }
        Ok(())
    }

    /// Whether a queue or a topic may have this path.
    pub(crate) fn check_new_path(&self, namespace: NamespaceId, path: &str) -> Result<(), Refusal> {
        check_path(path)?;
        if let Some(taken) = self.durable.find(namespace, path) {
            let spelled = self.durable.queue(taken).map(|queue| &queue.path);
            return Err(Refusal::EntityExists(spelled.map_or(path, |spelled| spelled).into()));
        }
        // What is there stays there, and a start that declares it again finds it, however full memory is.
        self.check_state()?;
        let limit = self.tier_of(namespace).entities();
        if limit != usize::MAX && self.durable.entities_of(namespace).count() >= limit {
            return Err(Refusal::TooManyEntities(limit));
        }
        Ok(())
    }

    /// The end of an entity's idleness, counted from `since` (S-70). While it forwards it is never idle (S-75, K-23).
    pub(crate) fn arm_idle(&mut self, entity: EntityId, since: LocalTime) {
        let settings = &self.durable.queue(entity).expect("the caller looked").settings;
        let at = match settings.forward_to {
            Some(_) => LocalTime::NEVER,
            None => since.after(settings.auto_delete_on_idle),
        };
        self.volatile.arm(entity, EntityTimer::Idle, at);
    }

    pub(crate) fn delete_entity(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let entity =
            self.durable.find(namespace, path).ok_or_else(|| Refusal::EntityNotFound(path.into()))?;
        self.remove_entity(entity, path, decision);
        Ok(Answer::Deleted)
    }

    /// The entity goes, with its messages and its links.
    pub(crate) fn remove_entity(&mut self, entity: EntityId, path: &str, decision: &mut LocalDecision<'_>) {
        let topic = self.durable.topics().topic(entity);
        let below: Vec<_> = topic.iter().flat_map(|topic| topic.subscriptions.values().copied()).collect();
        self.unroute(entity);
        self.write(Record::EntityDeleted { entity }, decision);
        for entity in below.into_iter().chain([entity]) {
            self.drop_links(entity, |_| true, &Refusal::EntityNotFound(path.into()), decision);
            self.volatile.delete_entity(entity);
        }
        self.volatile.call_readers();
    }

    /// Detaches links of an entity, in their order, and tells them why.
    pub(crate) fn drop_links(
        &mut self,
        entity: EntityId,
        is_meant: impl Fn(&Link) -> bool,
        refusal: &Refusal,
        decision: &mut Decision,
    ) {
        for link in self.volatile.links_of(entity, is_meant) {
            self.volatile.detach(link);
            decision.effect(Notice::Detached { link, refusal: refusal.clone() });
        }
    }

    /// What a path of a queue, a topic, a subscription or one of its parts leads to (S-100).
    pub(crate) fn resolve(&self, namespace: NamespaceId, path: &str) -> Result<Source, Refusal> {
        let (name, sub) = split_sub_queue(path);
        let subscription = || {
            let (topic, name) = split_path(name)?;
            self.find_subscription(namespace, topic, name).ok().map(|(entity, _)| entity)
        };
        let entity = self.durable.find(namespace, name).or_else(subscription);
        let entity = entity.ok_or_else(|| Refusal::EntityNotFound(path.into()))?;
        Ok(Source { entity, sub })
    }

    pub(crate) fn describe_entity(&self, namespace: NamespaceId, path: &str) -> Result<Answer, Refusal> {
        match self.durable.find(namespace, path) {
            Some(entity) => self.describe(entity),
            None => {
                let not_found = || Refusal::EntityNotFound(path.into());
                let (topic, name) = split_path(path).ok_or_else(not_found)?;
                let (entity, _) = self.find_subscription(namespace, topic, name).map_err(|_| not_found())?;
                self.describe_subscription(entity)
            }
        }
    }

    pub(crate) fn describe(&self, entity: EntityId) -> Result<Answer, Refusal> {
        if let Some(queue) = self.durable.plain_queue(entity) {
            return Ok(Answer::Queue(Box::new(self.description(entity, queue))));
        }
        let topic = self.describe_topic(entity).expect("names lead to queues and topics that exist");
        Ok(Answer::Topic(Box::new(topic)))
    }

    /// By name, so that pages do not shift (H-27).
    pub(crate) fn list_queues(&self, namespace: NamespaceId, skip: usize, top: usize) -> Answer {
        let queues =
            self.durable.entities_of(namespace).filter(|entity| self.durable.plain_queue(*entity).is_some());
        let page = queues.skip(skip).take(top.min(LIST_PAGE));
        Answer::Queues(
            page.filter_map(|entity| Some(self.description(entity, self.durable.queue(entity)?))).collect(),
        )
    }

    fn description(&self, entity: EntityId, queue: &Queue) -> QueueDescription {
        QueueDescription {
            path: queue.path.clone(),
            settings: queue.settings.clone(),
            max_message_kilobytes: self
                .tier_of(queue.namespace)
                .message_kilobytes(queue.settings.max_message_kilobytes),
            access: self.durable.access(entity).to_vec(),
            created: queue.created,
            updated: queue.updated,
            accessed: self.volatile.presence(entity).accessed,
            counts: queue.counts,
            bytes: queue.own_bytes(),
        }
    }
}

/// The entity and the part of it that a path names. The segments of parts are known in any case (S-100).
fn split_sub_queue(path: &str) -> (&str, SubQueue) {
    match without_suffix(path, "/$deadletterqueue") {
        Some(outer) => match without_suffix(outer, "/$transfer") {
            Some(entity) => (entity, SubQueue::TransferDeadLetter),
            None => (outer, SubQueue::DeadLetter),
        },
        None => (path, SubQueue::Main),
    }
}

fn without_suffix<'a>(path: &'a str, suffix: &str) -> Option<&'a str> {
    let (front, back) = path.split_at_checked(path.len().checked_sub(suffix.len())?)?;
    back.eq_ignore_ascii_case(suffix).then_some(front)
}

/// Whether a queue or a topic can have this path (S-250, S-252).
pub fn check_path(path: &str) -> Result<(), Refusal> {
    let refuse = |why| Err(Refusal::InvalidName { name: path.into(), why });
    let is_outer = |c: char| c.is_alphanumeric();
    let is_inner = |c: char| is_outer(c) || matches!(c, '.' | '-' | '_' | '/');
    if path.is_empty() {
        return refuse("it is empty");
    }
    if path.chars().count() > PATH_CHARACTERS {
        return refuse("it is longer than 260 characters");
    }
    if !path.starts_with(is_outer) || !path.ends_with(is_outer) {
        return refuse("it must start and end with a letter or a digit");
    }
    if !path.chars().all(is_inner) {
        return refuse(
            "entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores (_)",
        );
    }
    if path.split('/').any(str::is_empty) {
        return refuse("a segment between slashes is empty");
    }
    if path.split('/').any(|segment| segment.chars().all(|c| c == '.')) {
        return refuse("a segment has nothing but periods");
    }
    let is_reserved = |segment: &str| {
        ["subscriptions", "rules", "messages"].iter().any(|r| segment.eq_ignore_ascii_case(r))
    };
    if path.split('/').any(is_reserved) {
        return refuse("a segment is reserved");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Outcome};
    use crate::durable::Counts;
    use crate::effect::Effect;
    use crate::testing::{World, message};
    use crate::tier::Tier;
    use crate::time::Span;

    #[test]
    fn a_queue_that_would_forward_to_itself_or_to_nothing_is_not_created() {
        // S-171
        let mut world = World::with_queue("q");
        let to = |target: &str| QueueSettings { forward_to: Some(target.into()), ..QueueSettings::default() };
        let letters_to = |target: &str| QueueSettings {
            forward_dead_letters_to: Some(target.into()),
            ..QueueSettings::default()
        };
        let missing = |target: &str| Err(Refusal::ForwardTargetNotFound(target.into()));
        assert_eq!(world.try_create("a", to("sb://host/nothing")), missing("nothing"));
        assert_eq!(world.try_create("a", letters_to("nothing")), missing("nothing"));
        assert!(world.try_create("a", to("A")).is_err() && world.try_create("a", letters_to("a")).is_err());
        assert_eq!(world.describe("a"), Err(Refusal::EntityNotFound("a".into())));
        assert!(world.try_create("a", to("Q")).is_ok());
    }

    #[test]
    fn names_are_checked() {
        // S-250, S-252
        let long = "x".repeat(PATH_CHARACTERS);
        for good in ["q", "a/b/c", "A-1_2.3", "ünïcode", &long] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        let longer = "x".repeat(PATH_CHARACTERS + 1);
        for bad in [
            "",
            "/q",
            "q/",
            "a//b",
            "a/../b",
            "a/./b",
            "a/.../b",
            "a b",
            "q?",
            "q@x",
            "$cbs",
            "t/Subscriptions/s",
            "-q",
            &longer,
        ] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_taken_whatever_its_case() {
        // S-250
        let mut world = World::with_queue("Orders");
        let refused = world.try_create("oRDERS", QueueSettings::default());
        assert_eq!(refused, Err(Refusal::EntityExists("Orders".into())));
    }

    #[test]
    fn a_deleted_queue_takes_its_messages_and_links_with_it() {
        let mut world = World::with_queue("q");
        let sender = world.sender("q");
        world.send(sender, 0, &[message(5)]);
        world.commit();
        let receiver = world.receiver("q", PeekLock, 1);
        let effects = world.delete("q");
        let gone =
            |link| Effect::Notice(Notice::Detached { link, refusal: Refusal::EntityNotFound("q".into()) });
        assert_eq!(effects[..2], [gone(sender), gone(receiver)]);
        world.create("q", QueueSettings::default());
        assert_eq!(world.queue("q").next.0, 1);
        assert_eq!(world.queue("q").counts.active, 0);
        world.now = crate::Time(i64::MAX - 1);
        assert_eq!(world.tick(), []);
    }

    #[test]
    fn a_listing_is_sorted_and_paged() {
        // H-27
        let mut world = World::new();
        for name in ["c", "a", "B"] {
            world.create(name, QueueSettings::default());
        }
        let page = |skip, top| match world.broker.list_queues(NamespaceId(0), skip, top) {
            Answer::Queues(queues) => {
                queues.into_iter().map(|queue| queue.path.to_string()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(page(0, 100), ["a", "B", "c"]);
        assert_eq!(page(1, 1), ["B"]);
        assert_eq!(page(3, 1), Vec::<String>::new());
    }

    #[test]
    fn counters_and_size_follow_every_message() {
        // S-124, S-233, S-235
        let mut world = World::with_queue("q");
        world.send_committed("q", 5);
        let scheduled = Incoming { scheduled: world.local().after(Span::minutes(1)), ..message(7) };
        world.schedule("q", &[scheduled]).unwrap();
        let link = world.receiver("q", PeekLock, 3);
        let tokens: Vec<_> = (1..=3).map(|sequence| world.token(sequence)).collect();
        world.settle(link, 0, tokens[0], Outcome::Defer(None));
        world.settle(link, 0, tokens[1], Outcome::DeadLetter(None));
        let described = |world: &mut World| match world.describe("q") {
            Ok(Answer::Queue(queue)) => (queue.counts, queue.bytes),
            other => panic!("{other:?}"),
        };
        // One of the three active ones is locked.
        let counts = Counts { active: 3, deferred: 1, scheduled: 1, dead_letter: 1, transfer_dead_letter: 0 };
        assert_eq!(described(&mut world), (counts, 57));
        assert_eq!(counts.total(), 6);
        world.settle(link, 0, tokens[2], Outcome::Complete);
        assert_eq!(described(&mut world), (Counts { active: 2, ..counts }, 47));
        world.pass(Span::minutes(1));
        world.tick();
        assert_eq!(described(&mut world), (Counts { active: 3, scheduled: 0, ..counts }, 47));
    }

    #[test]
    fn sends_and_receives_are_dated_and_looking_is_not() {
        // S-237
        let mut world = World::with_queue("q");
        let accessed = |world: &mut World| match world.describe("q") {
            Ok(Answer::Queue(queue)) => queue.accessed,
            other => panic!("{other:?}"),
        };
        world.browse("q", 0, 1).unwrap();
        assert_eq!(accessed(&mut world), None);
        world.send_committed("q", 1);
        let sent = world.local();
        world.pass(Span::seconds(1));
        world.browse("q", 0, 1).unwrap();
        assert_eq!(accessed(&mut world), Some(sent));
        world.receive("q", PeekLock, 1);
        assert_eq!(accessed(&mut world), Some(world.local()));
    }

    #[test]
    fn a_tier_limits_the_entities_of_a_namespace() {
        // S-270
        let mut world = World::with_tier(Tier::Standard);
        let partitioned = QueueSettings { partitioning: true, ..QueueSettings::default() };
        for number in 0..100 {
            world.create(&format!("p{number}"), partitioned.clone());
        }
        assert_eq!(world.try_create("p", partitioned), Err(Refusal::TooManyEntities(100)));
        let mut world = World::with_tier(Tier::Premium);
        for number in 0..1_000 {
            world.create(&format!("q{number}"), QueueSettings::default());
        }
        let refused = world.try_create("q", QueueSettings::default());
        assert_eq!(refused, Err(Refusal::TooManyEntities(1_000)));
        world.delete("q7");
        assert!(world.try_create("q", QueueSettings::default()).is_ok());
    }
}
