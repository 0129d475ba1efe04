//! What may stand in the emulator's `Config.json` (H-124): its own properties and no others, so that a typing error is not
//! taken for nothing. What is null is not there.

use broker::Span;
use gateway::iso;
use serde::{Deserialize, Deserializer, de};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Editors are told by it how the file must look.
    #[serde(rename = "$schema")]
    _schema: Option<de::IgnoredAny>,
    #[serde(rename = "UserConfig")]
    pub(super) user_config: UserConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct UserConfig {
    pub(super) namespaces: Vec<NamespaceTable>,
    #[serde(rename = "Logging")]
    _logging: Option<Logging>,
}

/// Where the emulator logs to. We log to standard error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Logging {
    #[serde(rename = "Type")]
    _kind: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct NamespaceTable {
    /// The emulator knows one name alone.
    #[serde(rename = "Name")]
    _name: Option<String>,
    pub(super) queues: Option<Vec<QueueTable>>,
    pub(super) topics: Option<Vec<TopicTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct QueueTable {
    pub(super) name: String,
    pub(super) properties: Option<QueueProperties>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct QueueProperties {
    pub(super) dead_lettering_on_message_expiration: Option<bool>,
    pub(super) default_message_time_to_live: Option<Lasting>,
    pub(super) duplicate_detection_history_time_window: Option<Lasting>,
    pub(super) forward_dead_lettered_messages_to: Option<String>,
    pub(super) forward_to: Option<String>,
    pub(super) lock_duration: Option<Lasting>,
    pub(super) max_delivery_count: Option<u32>,
    pub(super) requires_duplicate_detection: Option<bool>,
    pub(super) requires_session: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct TopicTable {
    pub(super) name: String,
    pub(super) properties: Option<TopicProperties>,
    pub(super) subscriptions: Option<Vec<SubscriptionTable>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct TopicProperties {
    pub(super) default_message_time_to_live: Option<Lasting>,
    pub(super) duplicate_detection_history_time_window: Option<Lasting>,
    pub(super) requires_duplicate_detection: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct SubscriptionTable {
    pub(super) name: String,
    pub(super) properties: Option<SubscriptionProperties>,
    pub(super) rules: Option<Vec<RuleTable>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct SubscriptionProperties {
    pub(super) dead_lettering_on_message_expiration: Option<bool>,
    pub(super) default_message_time_to_live: Option<Lasting>,
    pub(super) forward_dead_lettered_messages_to: Option<String>,
    pub(super) forward_to: Option<String>,
    pub(super) lock_duration: Option<Lasting>,
    pub(super) max_delivery_count: Option<u32>,
    pub(super) requires_session: Option<bool>,
}

/// A duration in ISO 8601.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting(pub(super) Span);

impl<'de> Deserialize<'de> for Lasting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lasting, D::Error> {
        let text = String::deserialize(deserializer)?;
        let what = || format!("`{text}` is not an ISO 8601 duration, such as PT1M");
        iso::duration(&text).map(Lasting).ok_or_else(|| de::Error::custom(what()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct RuleTable {
    pub(super) name: String,
    pub(super) properties: RuleProperties,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct RuleProperties {
    pub(super) filter_type: FilterType,
    pub(super) correlation_filter: Option<CorrelationTable>,
    pub(super) sql_filter: Option<SqlTable>,
    pub(super) action: Option<SqlTable>,
}

#[derive(Debug, Deserialize)]
pub(super) enum FilterType {
    Correlation,
    Sql,
}

/// The last two are the service's, of which there is one value each (H-61).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct SqlTable {
    pub(super) sql_expression: String,
    #[serde(rename = "CompatibilityLevel")]
    _level: Option<u32>,
    #[serde(rename = "RequiresPreprocessing")]
    _preprocessing: Option<bool>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct CorrelationTable {
    pub(super) content_type: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) label: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) reply_to: Option<String>,
    pub(super) reply_to_session_id: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) to: Option<String>,
    pub(super) properties: Option<serde_json::Map<String, serde_json::Value>>,
}
