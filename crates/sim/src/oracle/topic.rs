//! Topics, subscriptions and rules as the oracle knows them: what was created, changed and removed was asked for, once, and
//! within the limits; what is told of them is what there is.

use super::ledger::{Kind, Queue};
use super::{Oracle, Question};
use crate::rules::{Choice, Meaning, TraitSet};
use broker::topic::TopicDescription;
use broker::topic::change::Change;
use broker::topic::rule::{Filter, Rule, RuleDescription};
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::topic::subscription::SubscriptionDescription;
use broker::{Counts, EntityId, LocalTime, QueueSettings, Refusal, Time, TopicLimits};
use std::collections::BTreeMap;

/// Small, so that clients reach them.
pub const LIMITS: TopicLimits = TopicLimits { subscriptions: 3, sql_filters: 5, correlation_filters: 3 };

/// What is known of a topic besides its messages.
#[derive(Debug)]
pub struct Topic {
    pub settings: TopicSettings,
    /// By folded name.
    pub subscriptions: BTreeMap<String, EntityId>,
    /// The most subscriptions, SQL filters and correlation filters that it had at once in this turn.
    most: [usize; 3],
    /// For each message of this turn that nobody wanted: what that message may have been.
    pub unwanted: Vec<TraitSet>,
    /// Messages of this turn that were accepted, are nowhere, and so must be among them.
    pub missing: usize,
}

/// What is known of a subscription besides its messages.
#[derive(Debug)]
pub struct Subscription {
    pub topic: EntityId,
    pub name: String,
    pub settings: SubscriptionSettings,
    /// By folded name.
    pub rules: BTreeMap<String, (Rule, Meaning)>,
}

/// What an entity must be told to hold: its messages, and of a topic its subscriptions and their filters.
pub type Figures = (Counts, u64, [usize; 3]);

impl Topic {
    fn new(settings: &TopicSettings) -> Topic {
        let settings = settings.clone();
        Topic { settings, subscriptions: BTreeMap::new(), most: [0; 3], unwanted: Vec::new(), missing: 0 }
    }

    pub fn end_turn(&mut self) {
        self.most = [0; 3];
        self.unwanted.clear();
        self.missing = 0;
    }
}

/// What the settings of a topic mean for what is scheduled there.
fn of_topic(settings: &TopicSettings) -> QueueSettings {
    QueueSettings {
        max_size_megabytes: settings.max_size_megabytes,
        default_time_to_live: settings.default_time_to_live,
        auto_delete_on_idle: settings.auto_delete_on_idle,
        partitioning: settings.partitioning,
        requires_duplicate_detection: settings.requires_duplicate_detection,
        duplicate_window: settings.duplicate_window,
        status: settings.status,
        ..QueueSettings::default()
    }
}

/// What the settings of a subscription mean for its messages, which are numbered as those of its topic.
fn of_subscription(settings: &SubscriptionSettings, partitioning: bool) -> QueueSettings {
    QueueSettings {
        lock_duration: settings.lock_duration,
        requires_session: settings.requires_session,
        default_time_to_live: settings.default_time_to_live,
        dead_letter_on_expiration: settings.dead_letter_on_expiration,
        max_delivery_count: settings.max_delivery_count,
        auto_delete_on_idle: settings.auto_delete_on_idle,
        forward_to: settings.forward_to.clone(),
        forward_dead_letters_to: settings.forward_dead_letters_to.clone(),
        status: settings.status,
        partitioning,
        ..QueueSettings::default()
    }
}

/// Whether a topic has the settings that were asked for. Its size is that of all its partitions (K-22).
fn is_granted(asked: &TopicSettings, settings: &TopicSettings) -> bool {
    *settings == TopicSettings { max_size_megabytes: settings.max_size_megabytes, ..asked.clone() }
}

fn is_correlation(choice: Choice) -> bool {
    matches!(choice.filter(), Filter::Correlation(_))
}

impl Oracle {
    pub(super) fn changed(&mut self, change: &Change, time: LocalTime, owner: Time) {
        if let Change::ClockMoved { namespace, to } = change {
            return self.clock_moved(*namespace, *to, owner);
        }
        self.changes += 1;
        match change {
            Change::QueueUpdated { entity, settings } => self.update(*entity, settings, time),
            Change::TopicCreated { entity, namespace, path, settings } => {
                let is_it = |question: &Question| match question {
                    Question::CreateTopic(of, asked) => {
                        of.eq_ignore_ascii_case(path) && is_granted(asked, settings)
                    }
                    _ => false,
                };
                self.must_be_asked(is_it, || format!("topic {path} was created"));
                let mut queue = Queue::new(*namespace, path, &of_topic(settings), *entity, self.turn, time);
                queue.kind = Kind::Topic(Box::new(Topic::new(settings)));
                self.waiting.clear();
                self.ledger.names.insert(path.to_lowercase(), *entity);
                self.ledger.queues.insert(*entity, queue);
            }
            Change::TopicUpdated { entity, settings } => self.update_topic(*entity, settings, time),
            Change::SubscriptionCreated { entity, topic, name, settings } => {
                self.subscribe(*entity, *topic, name, settings, time);
            }
            Change::SubscriptionUpdated { entity, settings } => {
                self.update_subscription(*entity, settings, time);
            }
            Change::RulePut { subscription, rule } => self.put_rule(*subscription, rule, time),
            Change::RuleRemoved { subscription, name } => self.remove_rule(*subscription, name),
            Change::NamespaceNamed { name, .. } => {
                let is_it = |question: &Question| matches!(question, Question::NameNamespace(asked) if **asked == **name);
                self.must_be_asked(is_it, || format!("namespace {name} was named"));
            }
            other => self.fail(format!("{other:?} was recorded and nobody asked")),
        }
    }

    fn must_be_asked(&mut self, is_it: impl Fn(&Question) -> bool, what: impl FnOnce() -> String) {
        if !self.asked.iter().any(is_it) {
            self.fail(format!("{} and nobody asked", what()));
        }
    }

    fn update_topic(&mut self, entity: EntityId, settings: &TopicSettings, time: LocalTime) {
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a topic was updated that does not exist");
        };
        queue.history.update(queue.settings.duplicate_window, settings.duplicate_window, time);
        queue.settings = of_topic(settings);
        (queue.used, queue.is_touched) = (time, true);
        let path = queue.path.clone();
        if let Kind::Topic(topic) = &mut queue.kind {
            topic.settings = settings.clone();
        }
        self.waiting.clear();
        let is_it = |question: &Question| match question {
            Question::UpdateTopic(of, asked) => of.eq_ignore_ascii_case(&path) && is_granted(asked, settings),
            _ => false,
        };
        self.must_be_asked(is_it, || format!("topic {path} was updated"));
    }

    fn subscribe(
        &mut self,
        entity: EntityId,
        topic: EntityId,
        name: &str,
        settings: &SubscriptionSettings,
        time: LocalTime,
    ) {
        let Some(above) = self.ledger.queues.get_mut(&topic) else {
            return self.fail("a subscription was created at a topic that does not exist");
        };
        let path = format!("{}/Subscriptions/{name}", above.path);
        (above.used, above.is_touched) = (time, true);
        let (partitioning, namespace) = (above.settings.partitioning, above.namespace);
        let Kind::Topic(model) = &mut above.kind else {
            return self.fail(format!("{path} is not at a topic"));
        };
        let is_new = model.subscriptions.insert(name.to_lowercase(), entity).is_none();
        let mut queue =
            Queue::new(namespace, &path, &of_subscription(settings, partitioning), entity, self.turn, time);
        // Numbers are those of the partition of the topic.
        queue.partition = topic.0 % 16;
        queue.kind = Kind::Subscription(Box::new(Subscription {
            topic,
            name: name.to_owned(),
            settings: settings.clone(),
            rules: BTreeMap::new(),
        }));
        self.check_targets(&path, &queue.settings, None);
        self.ledger.names.insert(path.to_lowercase(), entity);
        self.ledger.queues.insert(entity, queue);
        let is_it = |question: &Question| match question {
            Question::Subscribe(of, asked, _) => of.eq_ignore_ascii_case(&path) && **asked == *settings,
            _ => false,
        };
        self.must_be_asked(is_it, || format!("{path} was created"));
        if !is_new {
            self.fail(format!("{path} was created twice"));
        }
        self.count_filters(topic);
    }

    fn update_subscription(&mut self, entity: EntityId, settings: &SubscriptionSettings, time: LocalTime) {
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a subscription was updated that does not exist");
        };
        let own = of_subscription(settings, queue.settings.partitioning);
        let before = std::mem::replace(&mut queue.settings, own.clone());
        queue.durations.push(settings.lock_duration);
        (queue.used, queue.is_touched) = (time, true);
        let path = queue.path.clone();
        if let Kind::Subscription(model) = &mut queue.kind {
            model.settings = settings.clone();
        }
        self.check_targets(&path, &own, Some(&before));
        if before.requires_session != own.requires_session {
            self.fail(format!("S-260: {path} was updated in what is fixed at creation"));
        }
        self.end_sessions(entity);
        self.waiting.clear();
        let is_it = |question: &Question| match question {
            Question::Resubscribe(of, asked) => of.eq_ignore_ascii_case(&path) && **asked == *settings,
            _ => false,
        };
        self.must_be_asked(is_it, || format!("{path} was updated"));
    }

    /// A rule is there from now on, in the words in which it was asked for (S-189).
    fn put_rule(&mut self, entity: EntityId, rule: &Rule, time: LocalTime) {
        let Some((path, topic)) = self.ledger.queues.get_mut(&entity).and_then(|queue| {
            (queue.used, queue.is_touched) = (time, true);
            let Kind::Subscription(model) = &queue.kind else { return None };
            Some((queue.path.clone(), model.topic))
        }) else {
            return self.fail("a rule was given to a subscription that does not exist");
        };
        let says = |name: &str, meaning: &Meaning| {
            *rule == Rule { name: rule.name.clone(), ..meaning.rule(name) }
                && name.eq_ignore_ascii_case(&rule.name)
        };
        let meant = self.asked.iter().rev().find_map(|question| match question {
            Question::Subscribe(of, _, None)
                if of.eq_ignore_ascii_case(&path) && says("$Default", &Meaning::DEFAULT) =>
            {
                Some(Meaning::DEFAULT)
            }
            Question::Subscribe(of, _, Some((name, meaning))) | Question::PutRule(of, name, meaning)
                if of.eq_ignore_ascii_case(&path) && says(name, meaning) =>
            {
                Some(meaning.clone())
            }
            _ => None,
        });
        let Some(meaning) = meant else {
            return self.fail(format!("rule {} was given to {path} and nobody asked", rule.name));
        };
        if let Some(Kind::Subscription(model)) =
            self.ledger.queues.get_mut(&entity).map(|queue| &mut queue.kind)
        {
            model.rules.insert(rule.name.to_lowercase(), (rule.clone(), meaning));
        }
        self.count_filters(topic);
    }

    fn remove_rule(&mut self, entity: EntityId, name: &str) {
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a rule was taken from a subscription that does not exist");
        };
        queue.is_touched = true;
        let path = queue.path.clone();
        let Kind::Subscription(model) = &mut queue.kind else { return };
        if model.rules.remove(&name.to_lowercase()).is_none() {
            return self.fail(format!("{path} lost a rule that it did not have: {name}"));
        }
        let is_it = |question: &Question| match question {
            Question::DropRule(of, asked) => {
                of.eq_ignore_ascii_case(&path) && asked.eq_ignore_ascii_case(name)
            }
            _ => false,
        };
        self.must_be_asked(is_it, || format!("{path} lost its rule {name}"));
    }

    /// How many subscriptions, SQL filters and correlation filters a topic has.
    fn filters(&self, topic: EntityId) -> [usize; 3] {
        let mut counted = [0; 3];
        let Some(Kind::Topic(model)) = self.ledger.queues.get(&topic).map(|queue| &queue.kind) else {
            return counted;
        };
        counted[0] = model.subscriptions.len();
        for entity in model.subscriptions.values() {
            let Some(Kind::Subscription(below)) = self.ledger.queues.get(entity).map(|queue| &queue.kind)
            else {
                continue;
            };
            for (_, meaning) in below.rules.values() {
                counted[if is_correlation(meaning.choice) { 2 } else { 1 }] += 1;
            }
        }
        counted
    }

    /// A topic has more than before; not more than it may have.
    fn count_filters(&mut self, topic: EntityId) {
        let counted = self.filters(topic);
        let limits = [LIMITS.subscriptions, LIMITS.sql_filters, LIMITS.correlation_filters];
        if let Some(Kind::Topic(model)) = self.ledger.queues.get_mut(&topic).map(|queue| &mut queue.kind) {
            (0..3).for_each(|nth| model.most[nth] = model.most[nth].max(counted[nth]));
        }
        if counted.iter().zip(limits).any(|(count, limit)| *count > limit) {
            self.fail(format!("a topic has {counted:?} subscriptions and filters"));
        }
    }

    /// Whether it was right to refuse for having too many. `path` is that of the topic or of a subscription.
    pub(super) fn refused_as_too_many(&mut self, path: &str, refusal: &Refusal) {
        let nth = match refusal {
            Refusal::TooManySubscriptions(_) => 0,
            Refusal::TooManySqlFilters(_) => 1,
            Refusal::TooManyCorrelationFilters(_) => 2,
            _ => return,
        };
        let topic = path.split("/subscriptions/").next().unwrap_or_default();
        let Some(entity) = self.ledger.find(topic).filter(|_| !self.went(topic)) else { return };
        let now = self.filters(entity)[nth];
        let limit = [LIMITS.subscriptions, LIMITS.sql_filters, LIMITS.correlation_filters][nth];
        let most = match self.ledger.queues.get(&entity).map(|queue| &queue.kind) {
            Some(Kind::Topic(model)) => model.most[nth].max(now),
            _ => return,
        };
        // What was taken away in this turn was there before.
        if most < limit && !self.has_shrunk(topic) {
            self.fail(format!("{path} was refused as too many with {most} of {limit}: {refusal}"));
        }
    }

    /// Whether somebody asked in this turn for a rule or a subscription of a topic to go or to change.
    fn has_shrunk(&self, topic: &str) -> bool {
        let gone = self.ledger.deleted.values().any(|(turn, queue)| {
            *turn == self.turn && queue.path.to_lowercase().starts_with(&format!("{topic}/"))
        });
        gone || self.asked.iter().any(|question| match question {
            Question::DropRule(path, _) | Question::PutRule(path, ..) | Question::Unsubscribe(path) => {
                path.starts_with(topic)
            }
            _ => false,
        })
    }

    /// What an entity holds, and must be told to hold when nobody else asks.
    pub fn figures(&self, path: &str) -> Option<Figures> {
        let entity = self.ledger.find(path)?;
        let queue = &self.ledger.queues[&entity];
        Some((queue.counts, queue.bytes + self.ledger.below(queue), self.filters(entity)))
    }

    pub(super) fn topic_told(&mut self, path: &str, told: &TopicDescription, figures: Option<&Figures>) {
        let numbers = [told.subscriptions, told.sql_filters, told.correlation_filters];
        let said = (told.counts, told.bytes, numbers.map(|number| number as usize));
        if figures.is_some_and(|figures| *figures != said) {
            return self.fail(format!("{path} is told to hold {said:?} and holds {figures:?}"));
        }
        let known = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        let differs = match known.map(|queue| &queue.kind) {
            Some(Kind::Topic(topic)) => topic.settings != told.settings,
            _ => true,
        };
        if differs && self.is_settled() {
            self.fail(format!("{path} is told to be {told:?}"));
        }
    }

    pub(super) fn subscription_told(
        &mut self,
        path: &str,
        told: &SubscriptionDescription,
        figures: Option<&Figures>,
    ) {
        let said = (told.counts, told.bytes, [0; 3]);
        if figures.is_some_and(|figures| *figures != said) {
            return self.fail(format!("{path} is told to hold {said:?} and holds {figures:?}"));
        }
        let known = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        let differs = match known.map(|queue| &queue.kind) {
            Some(Kind::Subscription(model)) => model.settings != told.settings || model.name != *told.name,
            _ => true,
        };
        if differs && self.is_settled() {
            self.fail(format!("{path} is told to be {told:?}"));
        }
    }

    /// Whether entities and rules have been as they are for the whole turn.
    fn is_settled(&self) -> bool {
        self.changes == 0
    }

    pub(super) fn topics_told(&mut self, skip: usize, top: usize, told: &[TopicDescription]) {
        let topics = self.ledger.names.iter().filter(|(_, entity)| {
            self.ledger.queues.get(entity).is_some_and(|queue| matches!(queue.kind, Kind::Topic(_)))
        });
        let mut paths: Vec<_> = topics.map(|(path, _)| path.clone()).collect();
        paths.sort();
        let page = paths.into_iter().skip(skip).take(top);
        let differs = !page.eq(told.iter().map(|topic| topic.path.to_lowercase()));
        if differs && self.is_settled() {
            self.fail(format!("the topics are told to be {told:?}"));
        }
    }

    pub(super) fn subscriptions_told(
        &mut self,
        path: &str,
        (skip, top): (usize, usize),
        told: &[SubscriptionDescription],
    ) {
        let known = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        let Some(Kind::Topic(topic)) = known.map(|queue| &queue.kind) else {
            return if self.is_settled() {
                self.fail(format!("{path} is no topic"))
            };
        };
        let page = topic.subscriptions.keys().skip(skip).take(top).cloned();
        let differs = !page.eq(told.iter().map(|each| each.name.to_lowercase()));
        if differs && self.is_settled() {
            self.fail(format!("the subscriptions of {path} are told to be {told:?}"));
        }
    }

    /// Rules are told as they were given: all of a page, or one by its name.
    pub(super) fn rules_told<'a>(
        &mut self,
        path: &str,
        (skip, top): (usize, usize),
        name: Option<&str>,
        told: impl Iterator<Item = &'a RuleDescription>,
    ) {
        let known = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        let Some(Kind::Subscription(model)) = known.map(|queue| &queue.kind) else {
            return if self.is_settled() {
                self.fail(format!("{path} is no subscription"))
            };
        };
        let is_meant = |folded: &str| name.is_none_or(|name| name.eq_ignore_ascii_case(folded));
        let rules = model.rules.iter().filter(|(folded, _)| is_meant(folded));
        let differs = !rules.skip(skip).take(top).map(|(_, (rule, _))| rule).eq(told.map(|told| &told.rule));
        if differs && self.is_settled() {
            self.fail(format!("the rules of {path} are told to be others than they are"));
        }
    }
}
