//! Entities by name: create, describe, list, delete.

use crate::Broker;
use crate::decision::{Context, Decision};
use crate::durable::Queue;
use crate::effect::{Answer, Effect, QueueDescription};
use crate::ids::{EntityId, NamespaceId};
use crate::limits::{ENTITIES_PER_NAMESPACE, LIST_PAGE, PATH_CHARACTERS};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::topic::subscription::split_path;
use crate::volatile::Touch;

impl Broker {
    pub(crate) fn create_queue(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        context: Context,
        decision: &mut Decision,
    ) -> Result<Answer, Refusal> {
        self.check_new_path(namespace, path)?;
        settings.check()?;
        let entity = self.durable.next_entity();
        let settings = Box::new(settings.clone());
        self.write(
            Record::QueueCreated { entity, namespace, path: path.into(), settings },
            context,
            decision,
        );
        self.volatile.apply(Touch::EntityCreated { entity });
        self.describe(entity)
    }

    /// Whether a queue or a topic may have this path.
    pub(crate) fn check_new_path(&self, namespace: NamespaceId, path: &str) -> Result<(), Refusal> {
        check_path(path)?;
        if let Some(taken) = self.durable.find(namespace, path) {
            let queue = self.durable.queue(taken).map(|queue| &queue.path);
            let spelled = queue.or_else(|| self.durable.topics.topic(taken).map(|topic| &topic.path));
            return Err(Refusal::EntityExists(spelled.map_or(path, |spelled| spelled).into()));
        }
        if self.entities_of(namespace).count() >= ENTITIES_PER_NAMESPACE {
            return Err(Refusal::TooManyEntities(ENTITIES_PER_NAMESPACE));
        }
        Ok(())
    }

    pub(crate) fn delete_entity(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        context: Context,
        decision: &mut Decision,
    ) -> Result<Answer, Refusal> {
        let entity =
            self.durable.find(namespace, path).ok_or_else(|| Refusal::EntityNotFound(path.into()))?;
        self.write(Record::EntityDeleted { entity }, context, decision);
        let mut links: Vec<_> =
            self.volatile.links.iter().filter(|(_, link)| link.entity == entity).map(|(id, _)| *id).collect();
        links.sort_unstable();
        for link in links {
            self.volatile.apply(Touch::Detached { link });
            decision.effect(Effect::Detached { link, refusal: Refusal::EntityNotFound(path.into()) });
        }
        self.volatile.apply(Touch::EntityDeleted { entity });
        Ok(Answer::Deleted)
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

    fn describe(&self, entity: EntityId) -> Result<Answer, Refusal> {
        if let Some(queue) = self.durable.queue(entity) {
            return Ok(Answer::Queue(Box::new(self.description(entity, queue))));
        }
        let topic = self.describe_topic(entity).expect("names lead to queues and topics that exist");
        Ok(Answer::Topic(Box::new(topic)))
    }

    /// By name, so that pages do not shift (H-27).
    pub(crate) fn list_queues(&self, namespace: NamespaceId, skip: usize, top: usize) -> Answer {
        let queues = self.entities_of(namespace).filter(|entity| self.durable.queue(*entity).is_some());
        let page = queues.skip(skip).take(top.min(LIST_PAGE));
        Answer::Queues(
            page.filter_map(|entity| Some(self.description(entity, self.durable.queue(entity)?))).collect(),
        )
    }

    pub(crate) fn entities_of(&self, namespace: NamespaceId) -> impl Iterator<Item = EntityId> + '_ {
        let from = (namespace, Box::from(""));
        let names = self.durable.names.range(from..);
        names.take_while(move |((of, _), _)| *of == namespace).map(|(_, entity)| *entity)
    }

    fn description(&self, entity: EntityId, queue: &Queue) -> QueueDescription {
        QueueDescription {
            path: queue.path.clone(),
            settings: queue.settings.clone(),
            access: self.durable.access(entity).to_vec(),
            created: queue.created,
            updated: queue.updated,
            accessed: self.volatile.accessed.get(&entity).copied(),
            active_messages: queue.active,
            bytes: queue.bytes,
        }
    }
}

/// S-250, S-252.
fn check_path(path: &str) -> Result<(), Refusal> {
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
    use crate::testing::{World, message};

    #[test]
    fn names_are_checked() {
        // S-250, S-252
        let long = "x".repeat(PATH_CHARACTERS);
        for good in ["q", "a/b/c", "A-1_2.3", "ünïcode", &long] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        let longer = "x".repeat(PATH_CHARACTERS + 1);
        for bad in ["", "/q", "q/", "a//b", "a b", "q?", "q@x", "$cbs", "t/Subscriptions/s", "-q", &longer] {
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
        let gone = |link| Effect::Detached { link, refusal: Refusal::EntityNotFound("q".into()) };
        assert_eq!(effects[..2], [gone(sender), gone(receiver)]);
        world.create("q", QueueSettings::default());
        assert_eq!(world.queue("q").next.0, 1);
        assert_eq!(world.queue("q").active, 0);
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
}
