//! Topics with their subscriptions and rules, as entities: created, changed, described, listed, deleted.
//!
//! What must hold: a topic's path is unique among queues and topics (S-250), a subscription's name within its topic, a
//! rule's within its subscription, all without regard to case; deleting a topic takes everything below it along
//! (H-16). The messages of a topic and of a subscription live like those of a queue; publishing is in `fan_out.rs`.

mod action;
pub mod change;

use crate::Broker;
use crate::access::AccessRule;
use crate::decision::LocalDecision;
use crate::durable::{Applying, Counts, Kind, Queue, fold};
use crate::effect::Answer;
use crate::ids::{EntityId, NamespaceId};
use crate::limits::LIST_PAGE;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::LocalTime;
use change::Change;
use rule::StoredRule;
use settings::{SubscriptionSettings, TopicSettings};
use std::collections::BTreeMap;

impl Applying<'_> {
    pub(crate) fn topic_created(
        &mut self,
        entity: EntityId,
        namespace: NamespaceId,
        path: &str,
        settings: &TopicSettings,
    ) {
        self.name_entity(entity, namespace, path);
        let topic = Topic { settings: settings.clone(), subscriptions: BTreeMap::new() };
        self.topics_mut().topics.insert(entity, topic);
        let settings = settings.of_messages();
        let queue = Queue::empty(Kind::Topic, entity, namespace, path.into(), settings, self.time);
        self.put_entity(entity, queue);
    }

    pub(crate) fn topic_updated(&mut self, entity: EntityId, settings: &TopicSettings) {
        let time = self.time;
        let queue = self.queue_mut(entity);
        (queue.settings, queue.updated) = (settings.of_messages(), time);
        let topic = self.topics_mut().topics.get_mut(&entity).expect("only what exists is updated");
        topic.settings = settings.clone();
    }
}

#[cfg(test)]
mod conformance;
mod eval;
mod expression;
pub(crate) mod fan_out;
mod filter;
pub(crate) mod fuzzing;
mod like;
pub mod published;
pub(crate) mod read;
pub mod routes;
pub mod rule;
mod scalar;
pub mod settings;
pub mod sql;
mod steps;
pub(crate) mod subject;
pub mod subscription;
mod tokens;

/// The segment between a topic and its subscription, as answers spell it (H-21).
pub const SUBSCRIPTIONS: &str = "Subscriptions";

/// What a topic has besides a path, dates and messages, which it has as any entity has them ([`Queue`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topic {
    pub settings: TopicSettings,
    /// By case-folded name.
    pub subscriptions: BTreeMap<Box<str>, EntityId>,
}

/// What a subscription has besides dates and messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subscription {
    pub topic: EntityId,
    pub name: Box<str>,
    pub settings: SubscriptionSettings,
    /// By case-folded name.
    pub rules: BTreeMap<Box<str>, StoredRule>,
}

/// Every topic and subscription of a partition; part of the durable state.
#[derive(Debug, Clone, Default, Hash)]
pub struct Topics {
    topics: BTreeMap<EntityId, Topic>,
    subscriptions: BTreeMap<EntityId, Subscription>,
}

impl Topics {
    pub fn topic(&self, entity: EntityId) -> Option<&Topic> {
        self.topics.get(&entity)
    }

    pub fn subscription(&self, entity: EntityId) -> Option<&Subscription> {
        self.subscriptions.get(&entity)
    }

    pub fn find_subscription(&self, topic: EntityId, name: &str) -> Option<EntityId> {
        self.topics.get(&topic)?.subscriptions.get(&fold(name)).copied()
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (EntityId, &Topic)> {
        self.topics.iter().map(|(entity, topic)| (*entity, topic))
    }

    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (EntityId, &Subscription)> {
        self.subscriptions.iter().map(|(entity, subscription)| (*entity, subscription))
    }

    /// Whether a change is about what is there.
    pub(crate) fn fits(&self, change: &Change) -> bool {
        match change {
            Change::TopicUpdated { entity, .. } => self.topics.contains_key(entity),
            Change::SubscriptionCreated { topic, name, .. } => {
                self.topics.contains_key(topic) && self.find_subscription(*topic, name).is_none()
            }
            Change::SubscriptionUpdated { entity, .. } | Change::RulePut { subscription: entity, .. } => {
                self.subscriptions.contains_key(entity)
            }
            _ => false,
        }
    }

    /// Removes a topic with everything below it, or a subscription. Gives the topic, whose name is free again.
    pub(crate) fn remove(&mut self, entity: EntityId) -> Option<Topic> {
        if let Some(subscription) = self.subscriptions.remove(&entity) {
            if let Some(topic) = self.topics.get_mut(&subscription.topic) {
                topic.subscriptions.remove(&fold(&subscription.name));
            }
            return None;
        }
        let topic = self.topics.remove(&entity)?;
        for subscription in topic.subscriptions.values() {
            self.subscriptions.remove(subscription);
        }
        Some(topic)
    }

    pub(super) fn subscription_mut(&mut self, entity: EntityId) -> &mut Subscription {
        self.subscriptions.get_mut(&entity).expect("a record names only subscriptions that exist")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    pub path: Box<str>,
    pub settings: TopicSettings,
    /// What the topic may choose, or its tier has chosen (K-21).
    pub max_message_kilobytes: u64,
    pub access: Vec<AccessRule>,
    pub created: LocalTime,
    pub updated: LocalTime,
    /// `None` when nothing was ever sent.
    pub accessed: Option<LocalTime>,
    pub subscriptions: u32,
    pub sql_filters: u32,
    pub correlation_filters: u32,
    /// Only scheduled messages are the topic's own (S-234).
    pub counts: Counts,
    /// With those of its subscriptions (S-235).
    pub bytes: u64,
}

impl Broker {
    pub(crate) fn create_topic(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        settings: &TopicSettings,
        decision: &mut LocalDecision<'_>,
    ) -> Result<EntityId, Refusal> {
        self.check_new_path(namespace, path)?;
        let tier = self.tier_of(namespace);
        tier.check_offered_size(settings.max_size_megabytes)?;
        let settings = Box::new(tier.settle_topic(settings, None)?);
        self.check_room(namespace, settings.partitioning)?;
        let entity = self.durable.next_entity();
        let change = Change::TopicCreated { entity, namespace, path: path.into(), settings };
        self.write(Record::Managed(Box::new(change)), decision);
        self.volatile.create_entity(entity, namespace, decision.now);
        self.volatile.set_routes(entity, routes::Routes::default());
        self.arm_idle(entity, decision.now);
        Ok(entity)
    }

    pub(crate) fn update_topic(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        settings: &TopicSettings,
        decision: &mut LocalDecision<'_>,
    ) -> Result<EntityId, Refusal> {
        let entity = self.find_topic(namespace, path)?;
        let topic = self.durable.topics().topic(entity).expect("found above");
        settings.check_update(&topic.settings)?;
        let tier = self.tier_of(namespace);
        if settings.max_size_megabytes != topic.settings.max_size_megabytes {
            tier.check_offered_size(settings.max_size_megabytes)?;
        }
        let settings = Box::new(tier.settle_topic(settings, Some(&topic.settings))?);
        let change = Change::TopicUpdated { entity, settings };
        self.write(Record::Managed(Box::new(change)), decision);
        self.volatile.set_used(entity, decision.now);
        self.arm_idle(entity, decision.now);
        Ok(entity)
    }

    pub(crate) fn find_topic(&self, namespace: NamespaceId, path: &str) -> Result<EntityId, Refusal> {
        let found = self.durable.find(namespace, path);
        found
            .filter(|entity| self.durable.topics().topic(*entity).is_some())
            .ok_or_else(|| Refusal::EntityNotFound(path.into()))
    }

    pub(crate) fn describe_topic(&self, entity: EntityId) -> Option<TopicDescription> {
        let topics = self.durable.topics();
        let (topic, queue) = (topics.topic(entity)?, self.durable.queue(entity)?);
        let (sql_filters, correlation_filters) = self.volatile.routes(entity)?.filters();
        Some(TopicDescription {
            path: queue.path.clone(),
            settings: topic.settings.clone(),
            max_message_kilobytes: self
                .tier_of(queue.namespace)
                .message_kilobytes(topic.settings.max_message_kilobytes),
            access: self.durable.access(entity).to_vec(),
            created: queue.created,
            updated: queue.updated,
            accessed: self.volatile.presence(entity).accessed,
            subscriptions: topic.subscriptions.len() as u32,
            sql_filters: sql_filters as u32,
            correlation_filters: correlation_filters as u32,
            counts: queue.counts,
            bytes: queue.held_bytes(),
        })
    }

    /// By name, so that pages do not shift (H-27).
    pub(crate) fn list_topics(&self, namespace: NamespaceId, skip: usize, top: usize) -> Answer {
        let topics = self
            .durable
            .entities_of(namespace)
            .filter(|entity| self.durable.topics().topic(*entity).is_some());
        let page = topics.skip(skip).take(top.min(LIST_PAGE));
        Answer::Topics(page.filter_map(|entity| self.describe_topic(entity)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::Task;
    use crate::settings::QueueSettings;
    use crate::testing::World;
    use crate::tier::Tier;
    use crate::time::Span;

    fn create(path: &str, settings: TopicSettings) -> Task {
        Task::CreateTopic { path: path.into(), settings, access: Vec::new() }
    }

    fn update(path: &str, settings: TopicSettings) -> Task {
        Task::UpdateTopic { path: path.into(), settings, access: Vec::new() }
    }

    #[test]
    fn a_name_is_taken_by_a_queue_or_a_topic_whatever_its_case() {
        // S-250
        let mut world = World::with_queue("Orders");
        let taken = |name: &str| Err(Refusal::EntityExists(name.into()));
        assert_eq!(world.manage(create("ORDERS", TopicSettings::default())), taken("Orders"));
        world.manage(create("News", TopicSettings::default())).unwrap();
        assert_eq!(world.manage(create("news", TopicSettings::default())), taken("News"));
        assert_eq!(world.try_create("NEWS", QueueSettings::default()), taken("News"));
    }

    #[test]
    fn an_update_replaces_everything_but_what_is_fixed() {
        // H-12, S-260
        let mut world = World::new();
        let first = TopicSettings { user_metadata: Some("a".into()), ..TopicSettings::default() };
        world.manage(create("t", first)).unwrap();
        world.now = crate::Time(2_000_000);
        let second = TopicSettings { duplicate_window: Span::minutes(1), ..TopicSettings::default() };
        let Ok(Answer::Topic(topic)) = world.manage(update("T", second.clone())) else { panic!("updated") };
        assert_eq!((topic.settings, topic.updated), (second, LocalTime(2_000_000)));
        assert!(topic.created < topic.updated);
        for (property, settings) in [
            (
                "RequiresDuplicateDetection",
                TopicSettings { requires_duplicate_detection: true, ..TopicSettings::default() },
            ),
            ("EnablePartitioning", TopicSettings { partitioning: true, ..TopicSettings::default() }),
        ] {
            let refused = world.manage(update("t", settings));
            assert_eq!(refused, Err(Refusal::Unchangeable { property, kind: "Topic" }));
        }
        assert!(matches!(
            world.manage(update("u", TopicSettings::default())),
            Err(Refusal::EntityNotFound(_))
        ));
    }

    #[test]
    fn a_topic_is_no_queue_and_a_queue_no_topic() {
        let mut world = World::with_queue("q");
        world.manage(create("t", TopicSettings::default())).unwrap();
        let refused = world.manage(update("q", TopicSettings::default()));
        assert_eq!(refused, Err(Refusal::EntityNotFound("q".into())));
        let settings = QueueSettings::default();
        let refused = world.manage(Task::UpdateQueue { path: "t".into(), settings, access: Vec::new() });
        assert_eq!(refused, Err(Refusal::EntityNotFound("t".into())));
        let Ok(Answer::Topics(topics)) = world.manage(Task::ListTopics { skip: 0, top: 10 }) else {
            panic!("listed")
        };
        assert_eq!(topics.iter().map(|topic| &*topic.path).collect::<Vec<_>>(), ["t"]);
        match world.broker.list_queues(NamespaceId(0), 0, 10) {
            Answer::Queues(queues) => {
                assert_eq!(queues.iter().map(|queue| &*queue.path).collect::<Vec<_>>(), ["q"]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_deleted_topic_takes_subscriptions_and_rules_along() {
        // H-16
        let mut world = World::new();
        world.manage(create("t", TopicSettings::default())).unwrap();
        world.manage(subscription::tests::create("t", "s")).unwrap();
        world.delete("t");
        world.manage(create("t", TopicSettings::default())).unwrap();
        let Ok(Answer::Topic(topic)) = world.manage(Task::Describe { path: "t".into() }) else {
            panic!("described")
        };
        assert_eq!((topic.subscriptions, topic.sql_filters), (0, 0));
        world.check_whole_replay();
    }

    #[test]
    fn topics_and_queues_share_the_limit_of_the_namespace() {
        let mut world = World::unchecked(Tier::Standard);
        for number in 0..Tier::Standard.entities() as u32 {
            let (entity, path) = (EntityId(number), format!("t{number}").into());
            let change =
                Change::TopicCreated { entity, namespace: NamespaceId(0), path, settings: Box::default() };
            world.broker.durable.apply(&Record::Managed(Box::new(change)), crate::Time(0));
        }
        let refused = world.try_create("q", QueueSettings::default());
        assert_eq!(refused, Err(Refusal::TooManyEntities(10_000)));
    }
}
