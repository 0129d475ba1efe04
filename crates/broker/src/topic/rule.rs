//! Rules of a subscription as data: a filter, perhaps an action, and a name. Texts are kept as they came (S-189).

use super::SUBSCRIPTIONS;
use super::change::Change;
use super::scalar::Scalar;
use super::sql;
use super::subscription::check_rule_name;
use crate::Broker;
use crate::decision::LocalDecision;
use crate::durable::{Applying, fold};
use crate::effect::Answer;
use crate::ids::{EntityId, NamespaceId};
use crate::limits::*;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::LocalTime;
use message::Value;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    pub name: Box<str>,
    pub filter: Filter,
    pub action: Option<Sql>,
}

/// S-184, S-185.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Filter {
    True,
    False,
    Sql(Sql),
    Correlation(Correlation),
}

/// A text with the values of its `@name`s (S-193).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sql {
    pub expression: Box<str>,
    pub parameters: Vec<(Box<str>, Typed)>,
}

/// What must be equal; `None` is not asked for, an empty text is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Correlation {
    pub correlation_id: Option<Box<str>>,
    pub message_id: Option<Box<str>>,
    pub to: Option<Box<str>>,
    pub reply_to: Option<Box<str>>,
    pub label: Option<Box<str>>,
    pub session_id: Option<Box<str>>,
    pub reply_to_session_id: Option<Box<str>>,
    pub content_type: Option<Box<str>>,
    pub properties: Vec<(Box<str>, Typed)>,
}

/// A value as it was written, with its type. Checked when it came in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Typed {
    pub kind: Kind,
    pub text: Box<str>,
}

impl Typed {
    /// The value in its AMQP type.
    pub fn to_value(&self) -> Value {
        match (self.kind, Scalar::typed(self)) {
            (Kind::Int, Scalar::Integer(number)) => {
                i32::try_from(number).map_or(Value::Long(number), Value::Int)
            }
            (_, scalar) => scalar.to_value(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    String,
    Int,
    Long,
    Boolean,
    Double,
    DateTime,
    Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredRule {
    pub rule: Rule,
    pub created: LocalTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDescription {
    pub topic: Box<str>,
    pub subscription: Box<str>,
    pub rule: Rule,
    pub created: LocalTime,
}

impl Correlation {
    /// The system properties in the order in which they are written (H-62).
    pub fn system(&self) -> [&Option<Box<str>>; 8] {
        [
            &self.correlation_id,
            &self.message_id,
            &self.to,
            &self.reply_to,
            &self.label,
            &self.session_id,
            &self.reply_to_session_id,
            &self.content_type,
        ]
    }

    fn is_empty(&self) -> bool {
        self.system().iter().all(|value| value.is_none()) && self.properties.is_empty()
    }
}

impl Rule {
    pub fn check(&self) -> Result<(), Refusal> {
        check_rule_name(&self.name)?;
        let check_text = |property, sql: &Sql, check: fn(&Sql) -> Result<(), sql::Mistake>| {
            let length = sql.expression.chars().count();
            if length > SQL_CHARACTERS || sql.expression.trim().is_empty() {
                let why = format!("its {length} characters are not between 1 and {SQL_CHARACTERS}");
                return Err(Refusal::InvalidSetting { property, why: why.into() });
            }
            // S-201
            check(sql)
                .map_err(|mistake| Refusal::InvalidSetting { property, why: mistake.to_string().into() })?;
            check_values(property, &sql.parameters, 0)
        };
        match &self.filter {
            Filter::Sql(sql) => check_text("SqlFilter", sql, sql::check_filter)?,
            Filter::Correlation(correlation) if correlation.is_empty() => {
                let why = "it asks for nothing; give at least one condition".into();
                return Err(Refusal::InvalidSetting { property: "CorrelationFilter", why });
            }
            Filter::Correlation(correlation) => {
                let system = correlation.system().into_iter().flatten().map(|text| text.len()).sum();
                check_values("CorrelationFilter", &correlation.properties, system)?;
            }
            Filter::True | Filter::False => {}
        }
        self.action.as_ref().map_or(Ok(()), |action| check_text("SqlRuleAction", action, sql::check_action))
    }
}

/// `others` are the bytes of what the filter has besides.
fn check_values(property: &'static str, values: &[(Box<str>, Typed)], others: usize) -> Result<(), Refusal> {
    if values.len() > FILTER_VALUES {
        let why = format!("it has {} values; the limit is {FILTER_VALUES}", values.len()).into();
        return Err(Refusal::InvalidSetting { property, why });
    }
    let bytes = others + values.iter().map(|(name, value)| name.len() + value.text.len()).sum::<usize>();
    if bytes > FILTER_BYTES {
        let why = format!("its names and values have {bytes} bytes; the limit is {FILTER_BYTES}").into();
        return Err(Refusal::InvalidSetting { property, why });
    }
    Ok(())
}

impl Rule {
    /// What it takes in memory, about, ready for use too.
    pub(crate) fn held_bytes(&self) -> usize {
        let typed = |values: &[(Box<str>, Typed)]| -> usize {
            values.iter().map(|(name, value)| VALUE_COST + name.len() + value.text.len()).sum()
        };
        let sql = |sql: &Sql| TEXT_FACTOR * sql.expression.len() + typed(&sql.parameters);
        let filter = match &self.filter {
            Filter::True | Filter::False => 0,
            Filter::Sql(text) => sql(text),
            Filter::Correlation(correlation) => {
                let Correlation { correlation_id, message_id, to, reply_to, label, .. } = correlation;
                let Correlation { session_id, reply_to_session_id, content_type, properties, .. } =
                    correlation;
                let texts = [
                    correlation_id,
                    message_id,
                    to,
                    reply_to,
                    label,
                    session_id,
                    reply_to_session_id,
                    content_type,
                ];
                let texts: usize = texts.into_iter().flatten().map(|text| VALUE_COST + text.len()).sum();
                2 * (texts + typed(properties))
            }
        };
        RULE_COST + 2 * self.name.len() + filter + self.action.as_ref().map_or(0, sql)
    }
}

/// By its whole path: its name alone would say that there is no such queue or topic.
fn rule_not_found(topic: &str, subscription: &str, rule: &str) -> Refusal {
    Refusal::EntityNotFound(format!("{topic}/{SUBSCRIPTIONS}/{subscription}/Rules/{rule}").into())
}

impl Broker {
    pub(crate) fn put_rule(
        &mut self,
        namespace: NamespaceId,
        topic: &str,
        subscription: &str,
        rule: &Rule,
        is_update: bool,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let (entity, found) = self.find_subscription(namespace, topic, subscription)?;
        let (topic_id, before) = (found.topic, found.rules.get(&fold(&rule.name)));
        match (before, is_update) {
            (Some(stored), false) => return Err(Refusal::EntityExists(stored.rule.name.clone())),
            (None, true) => return Err(rule_not_found(topic, subscription, &rule.name)),
            _ => {}
        }
        rule.check()?;
        self.check_state()?;
        self.check_filter_room(topic_id, before.map(|stored| &stored.rule.filter), &rule.filter)?;
        // The spelling of the name is that of its creation (S-189).
        let name = before.map_or(&rule.name, |stored| &stored.rule.name).clone();
        let rule = Rule { name: name.clone(), ..rule.clone() };
        let change = Change::RulePut { subscription: entity, rule: Box::new(rule) };
        self.write(Record::Managed(Box::new(change)), decision);
        self.volatile.set_used(entity, decision.now);
        self.reroute_rule(entity, &name);
        self.describe_rule(namespace, topic, subscription, &name)
    }

    /// Whether a topic may have a filter more (docs/compatibility/broker.md, 21); `before` is the one that it replaces.
    pub(super) fn check_filter_room(
        &self,
        topic: EntityId,
        before: Option<&Filter>,
        filter: &Filter,
    ) -> Result<(), Refusal> {
        let is_correlation = |filter: &Filter| matches!(filter, Filter::Correlation(_));
        if before.is_some_and(|before| is_correlation(before) == is_correlation(filter)) {
            return Ok(());
        }
        let (sql, correlation) = self.volatile.routes(topic).expect("the caller has found it").filters();
        let limits = self.topic_limits;
        if is_correlation(filter) && correlation >= limits.correlation_filters {
            return Err(Refusal::TooManyCorrelationFilters(limits.correlation_filters));
        }
        if !is_correlation(filter) && sql >= limits.sql_filters {
            return Err(Refusal::TooManySqlFilters(limits.sql_filters));
        }
        Ok(())
    }

    pub(crate) fn delete_rule(
        &mut self,
        namespace: NamespaceId,
        topic: &str,
        subscription: &str,
        name: &str,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let (entity, found) = self.find_subscription(namespace, topic, subscription)?;
        if !found.rules.contains_key(&fold(name)) {
            return Err(rule_not_found(topic, subscription, name));
        }
        let change = Change::RuleRemoved { subscription: entity, name: name.into() };
        self.write(Record::Managed(Box::new(change)), decision);
        self.reroute_rule(entity, name);
        Ok(Answer::Deleted)
    }

    pub(crate) fn describe_rule(
        &self,
        namespace: NamespaceId,
        topic: &str,
        subscription: &str,
        name: &str,
    ) -> Result<Answer, Refusal> {
        let (_, found) = self.find_subscription(namespace, topic, subscription)?;
        let stored = found.rules.get(&fold(name));
        let stored = stored.ok_or_else(|| rule_not_found(topic, subscription, name))?;
        Ok(Answer::Rule(Box::new(self.rule_description(found, stored))))
    }

    pub(crate) fn list_rules(
        &self,
        namespace: NamespaceId,
        topic: &str,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Answer, Refusal> {
        let (_, found) = self.find_subscription(namespace, topic, subscription)?;
        let page = found.rules.values().skip(skip).take(top.min(LIST_PAGE));
        Ok(Answer::Rules(page.map(|stored| self.rule_description(found, stored)).collect()))
    }

    fn rule_description(&self, subscription: &super::Subscription, stored: &StoredRule) -> RuleDescription {
        let topic = self.durable.queue(subscription.topic);
        RuleDescription {
            topic: topic.map(|topic| topic.path.clone()).unwrap_or_default(),
            subscription: subscription.name.clone(),
            rule: stored.rule.clone(),
            created: stored.created,
        }
    }
}

impl Applying<'_> {
    pub(crate) fn rule_put(&mut self, subscription: EntityId, rule: &Rule) {
        let time = self.time;
        let rules = &mut self.topics_mut().subscription_mut(subscription).rules;
        let key = fold(&rule.name);
        let created = rules.get(&key).map_or(time, |before| before.created);
        rules.insert(key, StoredRule { rule: rule.clone(), created });
    }

    pub(crate) fn rule_removed(&mut self, subscription: EntityId, name: &str) {
        let removed = self.topics_mut().subscription_mut(subscription).rules.remove(&fold(name));
        assert!(removed.is_some(), "only a rule that is there is removed");
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscription::tests::{create, world};
    use super::*;
    use crate::manage::Task;
    use crate::testing::World;

    fn sql(expression: &str) -> Filter {
        Filter::Sql(Sql { expression: expression.into(), parameters: Vec::new() })
    }

    fn rule(name: &str, filter: Filter) -> Rule {
        Rule { name: name.into(), filter, action: None }
    }

    fn put(is_update: bool, rule: Rule) -> Task {
        let (topic, subscription) = ("t".into(), "s".into());
        if is_update {
            Task::UpdateRule { topic, subscription, rule }
        } else {
            Task::CreateRule { topic, subscription, rule }
        }
    }

    fn with_subscription() -> World {
        let mut world = world();
        world.manage(create("t", "s")).unwrap();
        world
    }

    #[test]
    fn names_are_checked() {
        // S-251
        for good in ["$Default", "$default", "My.Type+Inner`1[A]", "a b", "r"] {
            assert_eq!(rule(good, Filter::True).check(), Ok(()), "{good}");
        }
        for bad in ["", "..", "$management", "$Default2", "a/b", "a\u{1}", "\u{202e}a"] {
            let refused = rule(bad, Filter::True).check();
            assert!(matches!(refused, Err(Refusal::InvalidName { .. })), "{bad}");
        }
    }

    #[test]
    fn a_rule_comes_back_as_it_was_put_under_any_case_of_its_name() {
        // S-188, S-189
        let mut world = with_subscription();
        let filter = sql("  user.[a.b] = 'x'  ");
        let action = Some(Sql { expression: "SET x = 1;".into(), parameters: Vec::new() });
        let first = Rule { action, ..rule("My Rule", filter) };
        world.manage(put(false, first.clone())).unwrap();
        let get = |name: &str| Task::DescribeRule {
            topic: "T".into(),
            subscription: "S".into(),
            name: name.into(),
        };
        let Ok(Answer::Rule(found)) = world.manage(get("my rule")) else { panic!("described") };
        assert_eq!(found.rule, first);
        assert_eq!(
            world.manage(put(false, rule("MY RULE", Filter::True))),
            Err(Refusal::EntityExists("My Rule".into()))
        );
        world.now.0 += 1_000;
        let Ok(Answer::Rule(now)) = world.manage(put(true, rule("MY RULE", Filter::False))) else {
            panic!("updated")
        };
        assert_eq!((now.rule, now.created), (rule("My Rule", Filter::False), found.created));
        world.check_whole_replay();
    }

    // S-188, A-9.3
    #[test]
    fn a_rule_that_is_missing_is_told_by_its_whole_path() {
        let mut world = with_subscription();
        let (topic, subscription, name) = ("t".into(), "s".into(), "x".into());
        let delete = Task::DeleteRule { topic, subscription, name };
        let (topic, subscription, name) = ("t".into(), "s".into(), "x".into());
        let get = Task::DescribeRule { topic, subscription, name };
        for task in [put(true, rule("x", Filter::True)), delete, get] {
            let told = Refusal::EntityNotFound("t/Subscriptions/s/Rules/x".into());
            assert_eq!(world.manage(task), Err(told));
        }
    }

    #[test]
    fn a_topic_has_room_for_so_many_sql_filters_and_then_for_others() {
        // docs/compatibility/broker.md, 21; the rule that every subscription begins with is one of them.
        let mut world = with_subscription();
        for number in 1..SQL_FILTERS_PER_TOPIC {
            world.manage(put(false, rule(&format!("r{number}"), sql("1=1")))).unwrap();
        }
        let full = Err(Refusal::TooManySqlFilters(SQL_FILTERS_PER_TOPIC));
        assert_eq!(world.manage(put(false, rule("one-more", sql("1=1")))), full);
        let correlation =
            Filter::Correlation(Correlation { message_id: Some("x".into()), ..Correlation::default() });
        assert!(world.manage(put(false, rule("other", correlation))).is_ok());
        assert!(world.manage(put(true, rule("r7", sql("2=2")))).is_ok());
        assert_eq!(world.manage(put(true, rule("other", sql("1=1")))), full);
    }

    #[test]
    fn a_topic_has_room_for_so_many_correlation_filters_and_so_many_subscriptions() {
        // docs/compatibility/broker.md, 21
        let correlation =
            || Filter::Correlation(Correlation { message_id: Some("x".into()), ..Correlation::default() });
        let mut world = world();
        world.is_checked = false;
        let named = |name: String, filter| {
            let (rule, settings) = (Some(rule("r", filter)), Default::default());
            Task::CreateSubscription { topic: "t".into(), name: name.into(), settings, rule }
        };
        for number in 0..SUBSCRIPTIONS_PER_TOPIC {
            world.manage(named(format!("s{number}"), correlation())).unwrap();
        }
        let full = Err(Refusal::TooManySubscriptions(SUBSCRIPTIONS_PER_TOPIC));
        assert_eq!(world.manage(named("one-more".into(), correlation())), full);
        for number in SUBSCRIPTIONS_PER_TOPIC..CORRELATION_FILTERS_PER_TOPIC {
            let (topic, subscription) = ("t".into(), "s0".into());
            let rule = rule(&format!("r{number}"), correlation());
            world.manage(Task::CreateRule { topic, subscription, rule }).unwrap();
        }
        let put = |filter| {
            let (topic, subscription) = ("t".into(), "s1".into());
            Task::CreateRule { topic, subscription, rule: rule("one-more", filter) }
        };
        let full = Err(Refusal::TooManyCorrelationFilters(CORRELATION_FILTERS_PER_TOPIC));
        assert_eq!(world.manage(put(correlation())), full);
        assert!(world.manage(put(sql("1=1"))).is_ok());
    }

    #[test]
    fn texts_and_conditions_have_limits() {
        // S-185, S-201, S-251
        let mut world = with_subscription();
        let long = "x".repeat(SQL_CHARACTERS);
        world.manage(put(false, rule("long", sql(&long)))).unwrap();
        let many = (0..=FILTER_VALUES)
            .map(|number| {
                (number.to_string().into(), Typed { kind: Kind::Int, text: number.to_string().into() })
            })
            .collect();
        for filter in [
            sql(&format!("{long}x")),
            sql(" "),
            Filter::Correlation(Correlation::default()),
            Filter::Correlation(Correlation { properties: many, ..Correlation::default() }),
            Filter::Correlation(Correlation {
                label: Some("x".repeat(FILTER_BYTES / 2).into()),
                properties: vec![(
                    "p".into(),
                    Typed { kind: Kind::String, text: "x".repeat(FILTER_BYTES / 2).into() },
                )],
                ..Correlation::default()
            }),
        ] {
            let refused = world.manage(put(false, rule("r", filter)));
            assert!(matches!(refused, Err(Refusal::InvalidSetting { .. })), "{refused:?}");
        }
        let named = world.manage(put(false, rule("a/b", Filter::True)));
        assert!(matches!(named, Err(Refusal::InvalidName { .. })));
    }

    #[test]
    fn filters_are_counted_by_kind_and_a_removed_rule_counts_no_more() {
        // S-184, S-234
        let mut world = with_subscription();
        let correlation = Correlation { label: Some("x".into()), ..Correlation::default() };
        world.manage(put(false, rule("c", Filter::Correlation(correlation)))).unwrap();
        world.manage(put(false, rule("q", sql("a = 1")))).unwrap();
        let counts = |world: &mut World| match world.manage(Task::Describe { path: "t".into() }) {
            Ok(Answer::Topic(topic)) => (topic.subscriptions, topic.sql_filters, topic.correlation_filters),
            other => panic!("{other:?}"),
        };
        assert_eq!(counts(&mut world), (1, 2, 1));
        let delete =
            |name: &str| Task::DeleteRule { topic: "t".into(), subscription: "s".into(), name: name.into() };
        assert_eq!(world.manage(delete("$DEFAULT")), Ok(Answer::Deleted));
        assert!(matches!(world.manage(delete("$Default")), Err(Refusal::EntityNotFound(_))));
        assert_eq!(counts(&mut world), (1, 1, 1));
        world.check_whole_replay();
    }
}
