//! Subscriptions of a topic: create, update, describe, list, delete.

use super::change::Change;
use super::rule::{Filter, Rule};
use super::settings::SubscriptionSettings;
use super::{SUBSCRIPTIONS, Subscription};
use crate::Broker;
use crate::decision::LocalDecision;
use crate::durable::{Applying, Counts, Kind, Queue, fold};
use crate::effect::Answer;
use crate::ids::{EntityId, NamespaceId};
use crate::limits::{LIST_PAGE, NAME_CHARACTERS};
use crate::manage::forward_address;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::LocalTime;
use std::collections::BTreeMap;

/// The rule of a subscription that is given none (S-181).
pub const DEFAULT_RULE: &str = "$Default";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionDescription {
    pub topic: Box<str>,
    pub name: Box<str>,
    pub settings: SubscriptionSettings,
    pub created: LocalTime,
    pub updated: LocalTime,
    /// `None` when nothing was ever received.
    pub accessed: Option<LocalTime>,
    pub counts: Counts,
    pub bytes: u64,
}

/// Splits `topic/Subscriptions/name`.
pub fn split_path(path: &str) -> Option<(&str, &str)> {
    let (front, name) = path.rsplit_once('/')?;
    let (topic, segment) = front.rsplit_once('/')?;
    segment.eq_ignore_ascii_case(SUBSCRIPTIONS).then_some((topic, name))
}

/// Whether a subscription can have this name (S-251, S-252).
pub fn check_name(name: &str) -> Result<(), Refusal> {
    if name.starts_with('$') {
        return Err(Refusal::InvalidName { name: name.into(), why: RESERVED });
    }
    check_rule_name(name)
}

const RESERVED: &str = "names that begin with $ are reserved";

/// Whether a rule can have this name (S-251). Clients name rules after types, so there is more to it than letters.
pub(super) fn check_rule_name(name: &str) -> Result<(), Refusal> {
    let refuse = |why| Err(Refusal::InvalidName { name: name.into(), why });
    if name.is_empty() {
        return refuse("it is empty");
    }
    if name.chars().count() > NAME_CHARACTERS {
        return refuse("it is longer than 50 characters");
    }
    let is_wrong = |c: char| matches!(c, '/' | '\\' | '@' | '?' | '#' | '*');
    if name.contains(is_wrong) {
        return refuse("it contains a character that is not allowed: / \\ @ ? # *");
    }
    // What nobody sees could make two names look like one.
    let is_unseen = |c: char| {
        let is_mark = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        c.is_control() || is_mark || (c.is_whitespace() && c != ' ')
    };
    if name.contains(is_unseen) || name.starts_with(' ') || name.ends_with(' ') {
        return refuse("it contains a control character, or a space at its start or end");
    }
    if name.chars().all(|c| c == '.') {
        return refuse("it has nothing but periods");
    }
    if name.starts_with('$') && !name.eq_ignore_ascii_case(DEFAULT_RULE) {
        return refuse(RESERVED);
    }
    Ok(())
}

/// What a subscription gets that asks for this.
fn settle(settings: &SubscriptionSettings) -> SubscriptionSettings {
    let told = |target: &Option<Box<str>>| target.as_deref().map(forward_address);
    let (forward_to, letters) = (told(&settings.forward_to), told(&settings.forward_dead_letters_to));
    SubscriptionSettings { forward_to, forward_dead_letters_to: letters, ..settings.clone() }
}

impl Broker {
    pub(crate) fn create_subscription(
        &mut self,
        namespace: NamespaceId,
        topic: &str,
        name: &str,
        settings: &SubscriptionSettings,
        rule: Option<&Rule>,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let topic_id = self.find_topic(namespace, topic)?;
        check_name(name)?;
        if let Some(taken) = self.durable.topics().find_subscription(topic_id, name) {
            let spelled = self.durable.topics().subscription(taken).map_or(name, |taken| &taken.name);
            return Err(Refusal::EntityExists(spelled.into()));
        }
        self.check_state()?;
        self.check_subscription(namespace, topic, name, settings, None)?;
        let default = Rule { name: DEFAULT_RULE.into(), filter: Filter::True, action: None };
        let rule = rule.unwrap_or(&default);
        rule.check()?;
        self.check_filter_room(topic_id, None, &rule.filter)?;
        let holds = self.durable.topics().topic(topic_id).map_or(0, |topic| topic.subscriptions.len());
        let limit = self.topic_limits.subscriptions;
        if holds >= limit {
            return Err(Refusal::TooManySubscriptions(limit));
        }
        let entity = self.durable.next_entity();
        let change = Change::SubscriptionCreated {
            entity,
            topic: topic_id,
            name: name.into(),
            settings: Box::new(settle(settings)),
        };
        self.write(Record::Managed(Box::new(change)), decision);
        self.volatile.create_entity(entity, namespace, decision.now);
        self.volatile.set_used(topic_id, decision.now);
        self.arm_idle(entity, decision.now);
        let change = Change::RulePut { subscription: entity, rule: Box::new(rule.clone()) };
        self.write(Record::Managed(Box::new(change)), decision);
        self.reroute_subscription(entity);
        self.reroute_rule(entity, &rule.name);
        self.describe_subscription(entity)
    }

    pub(crate) fn update_subscription(
        &mut self,
        namespace: NamespaceId,
        topic: &str,
        name: &str,
        settings: &SubscriptionSettings,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let (entity, before) = self.find_subscription(namespace, topic, name)?;
        settings.check_update(&before.settings)?;
        self.check_subscription(namespace, topic, name, settings, Some(&before.settings))?;
        let change = Change::SubscriptionUpdated { entity, settings: Box::new(settle(settings)) };
        self.write(Record::Managed(Box::new(change)), decision);
        self.redirect(entity, decision);
        self.reroute_subscription(entity);
        self.describe_subscription(entity)
    }

    fn check_subscription(
        &self,
        namespace: NamespaceId,
        topic: &str,
        name: &str,
        settings: &SubscriptionSettings,
        before: Option<&SubscriptionSettings>,
    ) -> Result<(), Refusal> {
        settings.check()?;
        let own = format!("{topic}/{SUBSCRIPTIONS}/{name}");
        let targets = |settings: &SubscriptionSettings| {
            [&settings.forward_to, &settings.forward_dead_letters_to].map(Option::clone)
        };
        self.check_forwards(namespace, &own, targets(settings), before.map(targets))
    }

    pub(crate) fn delete_subscription(
        &mut self,
        namespace: NamespaceId,
        topic: &str,
        name: &str,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let (entity, _) = self.find_subscription(namespace, topic, name)?;
        let path = self.durable.queue(entity).map(|queue| queue.path.clone()).unwrap_or_default();
        let topic = self.find_topic(namespace, topic)?;
        self.volatile.set_used(topic, decision.now);
        self.remove_entity(entity, &path, decision);
        Ok(Answer::Deleted)
    }

    pub(crate) fn find_subscription(
        &self,
        namespace: NamespaceId,
        topic: &str,
        name: &str,
    ) -> Result<(EntityId, &Subscription), Refusal> {
        let topic_id = self.find_topic(namespace, topic)?;
        let topics = self.durable.topics();
        topics
            .find_subscription(topic_id, name)
            .and_then(|entity| Some((entity, topics.subscription(entity)?)))
            .ok_or_else(|| Refusal::EntityNotFound(format!("{topic}/{SUBSCRIPTIONS}/{name}").into()))
    }

    pub(crate) fn describe_subscription(&self, entity: EntityId) -> Result<Answer, Refusal> {
        let description = self.subscription_description(entity).expect("the caller has found it");
        Ok(Answer::Subscription(Box::new(description)))
    }

    fn subscription_description(&self, entity: EntityId) -> Option<SubscriptionDescription> {
        let topics = self.durable.topics();
        let (subscription, queue) = (topics.subscription(entity)?, self.durable.queue(entity)?);
        Some(SubscriptionDescription {
            topic: self.durable.queue(subscription.topic)?.path.clone(),
            name: subscription.name.clone(),
            settings: subscription.settings.clone(),
            created: queue.created,
            updated: queue.updated,
            accessed: self.volatile.presence(entity).accessed,
            counts: queue.counts,
            bytes: queue.own_bytes(),
        })
    }

    pub(crate) fn list_subscriptions(
        &self,
        namespace: NamespaceId,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Answer, Refusal> {
        let entity = self.find_topic(namespace, topic)?;
        let topic = self.durable.topics().topic(entity).expect("found above");
        let page = topic.subscriptions.values().skip(skip).take(top.min(LIST_PAGE));
        let page = page.filter_map(|entity| self.subscription_description(*entity));
        Ok(Answer::Subscriptions(page.collect()))
    }
}

impl Applying<'_> {
    pub(crate) fn subscription_created(
        &mut self,
        entity: EntityId,
        topic: EntityId,
        name: &str,
        settings: &SubscriptionSettings,
    ) {
        let above = self.queue(topic).expect("a subscription has its topic");
        let path = format!("{}/{SUBSCRIPTIONS}/{name}", above.path).into();
        let kind = Kind::Subscription { topic };
        let of_messages = settings.of_messages(&above.settings);
        let queue = Queue::empty(kind, entity, above.namespace, path, of_messages, self.time);
        self.put_entity(entity, queue);
        let subscription =
            Subscription { topic, name: name.into(), settings: settings.clone(), rules: BTreeMap::new() };
        let topics = self.topics_mut();
        let above = topics.topics.get_mut(&topic).expect("a subscription has its topic");
        let taken = above.subscriptions.insert(fold(name), entity);
        assert!(taken.is_none(), "subscription '{name}' was created twice");
        topics.subscriptions.insert(entity, subscription);
    }

    pub(crate) fn subscription_updated(&mut self, entity: EntityId, settings: &SubscriptionSettings) {
        let time = self.time;
        let queue = self.queue_mut(entity);
        (queue.settings, queue.updated) = (settings.of_messages(&queue.settings), time);
        self.topics_mut().subscription_mut(entity).settings = settings.clone();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::settings::TopicSettings;
    use super::*;
    use crate::manage::Task;
    use crate::testing::World;

    pub(in super::super) fn create(topic: &str, name: &str) -> Task {
        create_with(topic, name, SubscriptionSettings::default())
    }

    fn create_with(topic: &str, name: &str, settings: SubscriptionSettings) -> Task {
        Task::CreateSubscription { topic: topic.into(), name: name.into(), settings, rule: None }
    }

    pub(in super::super) fn world() -> World {
        let mut world = World::new();
        let settings = TopicSettings::default();
        world.manage(Task::CreateTopic { path: "t".into(), settings, access: Vec::new() }).unwrap();
        world
    }

    #[test]
    fn names_are_checked() {
        // S-251
        let mut world = world();
        let long = "x".repeat(NAME_CHARACTERS);
        for good in ["s", "a b", "S-1_2.3", &long] {
            assert!(world.manage(create("t", good)).is_ok(), "{good}");
        }
        let longer = "x".repeat(NAME_CHARACTERS + 1);
        let unseen =
            ["a\n", "\u{0}", "a\u{7f}", "a\u{85}b", "a\u{2028}b", "a\u{202e}b", "a\u{200b}", " a", "a "];
        let reserved = [".", "..", "...", "$management", "$DeadLetterQueue", "$Default", "$"];
        for bad in
            ["", "a/b", "a\\b", "a?", "a#", "a@b", "a*", &longer].into_iter().chain(unseen).chain(reserved)
        {
            let refused = world.manage(create("t", bad));
            assert!(matches!(refused, Err(Refusal::InvalidName { .. })), "{bad}");
        }
        assert_eq!(world.manage(create("t", "S")), Err(Refusal::EntityExists("s".into())));
        assert_eq!(world.manage(create("u", "s")), Err(Refusal::EntityNotFound("u".into())));
    }

    #[test]
    fn a_new_subscription_has_the_default_rule() {
        // S-181
        let mut world = world();
        world.manage(create("t", "s")).unwrap();
        let list = Task::ListRules { topic: "t".into(), subscription: "s".into(), skip: 0, top: 10 };
        let Ok(Answer::Rules(rules)) = world.manage(list) else { panic!("listed") };
        assert_eq!(rules.len(), 1);
        assert_eq!((&*rules[0].rule.name, &rules[0].rule.filter), (DEFAULT_RULE, &Filter::True));
    }

    #[test]
    fn an_update_keeps_name_rules_and_what_is_fixed() {
        // H-12, S-260
        let mut world = world();
        world.manage(create("t", "Sub")).unwrap();
        let update = |settings| Task::UpdateSubscription { topic: "t".into(), name: "sub".into(), settings };
        let changed = SubscriptionSettings { max_delivery_count: 3, ..SubscriptionSettings::default() };
        let Ok(Answer::Subscription(now)) = world.manage(update(changed.clone())) else { panic!("updated") };
        assert_eq!((&*now.name, now.settings), ("Sub", changed.clone()));
        let refused = world.manage(update(SubscriptionSettings { requires_session: true, ..changed }));
        assert_eq!(refused, Err(Refusal::Unchangeable { property: "RequiresSession", kind: "Subscription" }));
        world.check_whole_replay();
    }

    #[test]
    fn subscriptions_are_listed_by_name_and_deleted_alone() {
        // H-27
        let mut world = world();
        for name in ["c", "A", "b"] {
            world.manage(create("t", name)).unwrap();
        }
        let names = |world: &mut World, skip, top| match world.manage(Task::ListSubscriptions {
            topic: "t".into(),
            skip,
            top,
        }) {
            Ok(Answer::Subscriptions(list)) => {
                list.into_iter().map(|each| each.name.to_string()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(names(&mut world, 0, 10), ["A", "b", "c"]);
        assert_eq!(names(&mut world, 1, 1), ["b"]);
        let delete = Task::DeleteSubscription { topic: "t".into(), name: "B".into() };
        assert_eq!(world.manage(delete.clone()), Ok(Answer::Deleted));
        assert!(matches!(world.manage(delete), Err(Refusal::EntityNotFound(_))));
        assert_eq!(names(&mut world, 0, 10), ["A", "c"]);
        world.check_whole_replay();
    }

    #[test]
    fn a_forward_target_must_exist_and_be_another() {
        // S-171, S-179
        let mut world = world();
        world.create("q", crate::QueueSettings::default());
        let forward = |to: &str| SubscriptionSettings {
            forward_to: Some(to.into()),
            ..SubscriptionSettings::default()
        };
        assert!(world.manage(create_with("t", "a", forward("sb://host:1/Q"))).is_ok());
        let refused = world.manage(create_with("t", "b", forward("nowhere")));
        assert_eq!(refused, Err(Refusal::ForwardTargetNotFound("nowhere".into())));
    }

    #[test]
    fn a_path_to_a_subscription_is_told_from_others() {
        assert_eq!(split_path("a/b/SUBSCRIPTIONS/s"), Some(("a/b", "s")));
        assert_eq!(split_path("a/b"), None);
        assert_eq!(split_path("a/b/c"), None);
    }
}
