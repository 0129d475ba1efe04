//! `[[topic]]`, `[[topic.subscription]]` and `[[topic.subscription.rule]]` in the configuration file.

use crate::config::{Complaint, complaint};
use crate::correlation::correlation_of;
use crate::definition::{Subscription, Topic};
use crate::queue_table::{declared, span, status, text};
use broker::Refusal;
use broker::topic::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::topic::subscription::check_name;
use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicTable {
    pub name: Spanned<String>,
    max_size_in_megabytes: Option<u64>,
    requires_duplicate_detection: Option<bool>,
    duplicate_detection_history_time_window: Option<Spanned<String>>,
    default_message_time_to_live: Option<Spanned<String>>,
    enable_batched_operations: Option<bool>,
    status: Option<Spanned<String>>,
    user_metadata: Option<String>,
    support_ordering: Option<bool>,
    auto_delete_on_idle: Option<Spanned<String>>,
    enable_partitioning: Option<bool>,
    enable_express: Option<bool>,
    max_message_size_in_kilobytes: Option<u64>,
    #[serde(default)]
    subscription: Vec<SubscriptionTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionTable {
    name: Spanned<String>,
    lock_duration: Option<Spanned<String>>,
    requires_session: Option<bool>,
    default_message_time_to_live: Option<Spanned<String>>,
    dead_lettering_on_message_expiration: Option<bool>,
    dead_lettering_on_filter_evaluation_exceptions: Option<bool>,
    max_delivery_count: Option<u32>,
    enable_batched_operations: Option<bool>,
    status: Option<Spanned<String>>,
    forward_to: Option<Spanned<String>>,
    user_metadata: Option<String>,
    forward_dead_lettered_messages_to: Option<Spanned<String>>,
    auto_delete_on_idle: Option<Spanned<String>>,
    #[serde(default)]
    rule: Vec<RuleTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    name: Spanned<String>,
    sql: Option<Spanned<String>>,
    correlation: Option<CorrelationTable>,
    action: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorrelationTable {
    correlation_id: Option<String>,
    message_id: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    label: Option<String>,
    session_id: Option<String>,
    reply_to_session_id: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    properties: toml::map::Map<String, toml::Value>,
}

impl TopicTable {
    /// The topic with everything below it, checked as far as that needs no broker.
    pub fn read(&self) -> Result<Topic, Complaint> {
        let usual = TopicSettings::default();
        let settings = TopicSettings {
            default_time_to_live: span(&self.default_message_time_to_live, usual.default_time_to_live)?,
            max_size_megabytes: self.max_size_in_megabytes.unwrap_or(usual.max_size_megabytes),
            requires_duplicate_detection: self.requires_duplicate_detection.unwrap_or(false),
            duplicate_window: span(&self.duplicate_detection_history_time_window, usual.duplicate_window)?,
            batched_operations: self.enable_batched_operations.unwrap_or(usual.batched_operations),
            filtering_before_publishing: usual.filtering_before_publishing,
            status: self.status.as_ref().map_or(Ok(usual.status), status)?,
            user_metadata: self.user_metadata.as_deref().map(Into::into),
            support_ordering: self.support_ordering,
            auto_delete_on_idle: span(&self.auto_delete_on_idle, usual.auto_delete_on_idle)?,
            partitioning: self.enable_partitioning.unwrap_or(usual.partitioning),
            subscription_partitioning: usual.subscription_partitioning,
            express: self.enable_express.unwrap_or(usual.express),
            max_message_kilobytes: self.max_message_size_in_kilobytes,
        };
        let name = self.name.get_ref();
        let refused = |refusal: Refusal| complaint(&self.name, format!("topic `{name}`: {refusal}"));
        broker::check_path(name).map_err(refused)?;
        settings.check().map_err(refused)?;
        let mut subscriptions: Vec<Subscription> = Vec::new();
        for table in &self.subscription {
            let subscription = table.read()?;
            if subscriptions.iter().any(|other| other.name.to_lowercase() == subscription.name.to_lowercase())
            {
                let what = format!("subscription `{}` is declared twice", subscription.name);
                return Err(complaint(&table.name, what));
            }
            subscriptions.push(subscription);
        }
        let declared = declared(&self.name, [&None, &None]);
        Ok(Topic { path: name.as_str().into(), settings, subscriptions, declared })
    }
}

impl SubscriptionTable {
    fn read(&self) -> Result<Subscription, Complaint> {
        let usual = SubscriptionSettings::default();
        let settings = SubscriptionSettings {
            lock_duration: span(&self.lock_duration, usual.lock_duration)?,
            requires_session: self.requires_session.unwrap_or(usual.requires_session),
            default_time_to_live: span(&self.default_message_time_to_live, usual.default_time_to_live)?,
            dead_letter_on_expiration: self.dead_lettering_on_message_expiration.unwrap_or(false),
            dead_letter_on_filter_exceptions: self
                .dead_lettering_on_filter_evaluation_exceptions
                .unwrap_or(usual.dead_letter_on_filter_exceptions),
            max_delivery_count: self.max_delivery_count.unwrap_or(usual.max_delivery_count),
            batched_operations: self.enable_batched_operations.unwrap_or(usual.batched_operations),
            status: self.status.as_ref().map_or(Ok(usual.status), status)?,
            forward_to: text(&self.forward_to),
            user_metadata: self.user_metadata.as_deref().map(Into::into),
            forward_dead_letters_to: text(&self.forward_dead_lettered_messages_to),
            auto_delete_on_idle: span(&self.auto_delete_on_idle, usual.auto_delete_on_idle)?,
        };
        let name = self.name.get_ref();
        let refused = |refusal: Refusal| complaint(&self.name, format!("subscription `{name}`: {refusal}"));
        check_name(name).map_err(refused)?;
        settings.check().map_err(refused)?;
        let mut rules: Vec<Rule> = Vec::new();
        for table in &self.rule {
            let rule = table.read()?;
            if rules.iter().any(|other| other.name.to_lowercase() == rule.name.to_lowercase()) {
                return Err(complaint(&table.name, format!("rule `{}` is declared twice", rule.name)));
            }
            rules.push(rule);
        }
        let forwards = [&self.forward_to, &self.forward_dead_lettered_messages_to];
        let declared = declared(&self.name, forwards);
        Ok(Subscription { name: name.as_str().into(), settings, rules, declared })
    }
}

impl RuleTable {
    fn read(&self) -> Result<Rule, Complaint> {
        let text = |text: &str| Sql { expression: text.into(), parameters: Vec::new() };
        let filter = match (&self.sql, &self.correlation) {
            (Some(sql), None) => Filter::Sql(text(sql.get_ref())),
            (None, Some(correlation)) => Filter::Correlation(correlation.read(&self.name)?),
            (None, None) => Filter::True,
            (Some(sql), Some(_)) => {
                return Err(complaint(sql, "a rule has either `sql` or `correlation`, not both"));
            }
        };
        let name = self.name.get_ref().as_str();
        let rule = Rule { name: name.into(), filter, action: self.action.as_deref().map(text) };
        let refused = |refusal: Refusal| complaint(&self.name, format!("rule `{name}`: {refusal}"));
        rule.check().map_err(refused)?;
        Ok(rule)
    }
}

impl CorrelationTable {
    fn read(&self, rule: &Spanned<String>) -> Result<Correlation, Complaint> {
        let value = |(key, value): (&String, &toml::Value)| {
            let (kind, text) = match value {
                toml::Value::String(text) => (Kind::String, text.clone()),
                toml::Value::Integer(number) => (Kind::Long, number.to_string()),
                toml::Value::Float(number) => (Kind::Double, number.to_string()),
                toml::Value::Boolean(truth) => (Kind::Boolean, truth.to_string()),
                toml::Value::Datetime(date) => (Kind::DateTime, date.to_string()),
                toml::Value::Array(_) | toml::Value::Table(_) => {
                    let what = format!("the property `{key}` of rule `{}` is not one value", rule.get_ref());
                    return Err(complaint(rule, what));
                }
            };
            Ok((key.as_str().into(), Typed { kind, text: text.into() }))
        };
        let properties = self.properties.iter().map(value).collect::<Result<_, _>>()?;
        Ok(correlation_of!(self, properties))
    }
}
