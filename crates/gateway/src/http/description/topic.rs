//! A topic as XML (http, section 1.5).

use super::super::failure::Failure;
use super::super::xml::{Element, SCHEMA_INSTANCE, SERVICE_BUS, Writer};
use super::access::{self, Keys};
use super::{Counts, duration, number, optional, status, status_text, truth, truth_text};
use crate::iso;
use broker::AccessRule;
use broker::topic::TopicDescription;
use broker::topic::settings::TopicSettings;

/// Reads a `TopicDescription`.
pub fn read(description: &Element, keys: &mut Keys<'_>) -> Result<(TopicSettings, Vec<AccessRule>), Failure> {
    let (mut settings, mut access) = (TopicSettings::default(), Vec::new());
    for (property, value) in super::properties(description) {
        let name = &*property.name;
        match name {
            "DefaultMessageTimeToLive" => settings.default_time_to_live = duration(name, value)?,
            "MaxSizeInMegabytes" => settings.max_size_megabytes = number(name, value)?,
            "RequiresDuplicateDetection" => settings.requires_duplicate_detection = truth(name, value)?,
            "DuplicateDetectionHistoryTimeWindow" => settings.duplicate_window = duration(name, value)?,
            "EnableBatchedOperations" => settings.batched_operations = truth(name, value)?,
            "FilteringMessagesBeforePublishing" => settings.filtering_before_publishing = truth(name, value)?,
            "AuthorizationRules" => access = access::read(property, keys)?,
            "Status" => settings.status = status(value)?,
            "UserMetadata" => settings.user_metadata = Some(property.text.as_str().into()),
            "SupportOrdering" => settings.support_ordering = Some(truth(name, value)?),
            "AutoDeleteOnIdle" => settings.auto_delete_on_idle = duration(name, value)?,
            "EnablePartitioning" => settings.partitioning = truth(name, value)?,
            "EnableSubscriptionPartitioning" => settings.subscription_partitioning = truth(name, value)?,
            "EnableExpress" => settings.express = truth(name, value)?,
            "MaxMessageSizeInKilobytes" => settings.max_message_kilobytes = Some(number(name, value)?),
            _ => {}
        }
    }
    Ok((settings, access))
}

/// Writes a `TopicDescription` in the service's order.
pub fn write(topic: &TopicDescription, api_version: &str, writer: &mut Writer) {
    let settings = &topic.settings;
    writer
        .start("TopicDescription", &[("xmlns", SERVICE_BUS), ("xmlns:i", SCHEMA_INSTANCE)])
        .leaf("DefaultMessageTimeToLive", &iso::duration_text(settings.default_time_to_live))
        .leaf("MaxSizeInMegabytes", &settings.max_size_megabytes.to_string())
        .leaf("RequiresDuplicateDetection", truth_text(settings.requires_duplicate_detection))
        .leaf("DuplicateDetectionHistoryTimeWindow", &iso::duration_text(settings.duplicate_window))
        .leaf("EnableBatchedOperations", truth_text(settings.batched_operations))
        .leaf("SizeInBytes", &topic.bytes.to_string())
        .leaf("FilteringMessagesBeforePublishing", truth_text(settings.filtering_before_publishing))
        .leaf("IsAnonymousAccessible", "false");
    access::write(&topic.access, writer);
    writer.leaf("Status", status_text(settings.status));
    optional(writer, "UserMetadata", settings.user_metadata.as_deref());
    writer
        .leaf("CreatedAt", &iso::date(topic.created.0))
        .leaf("UpdatedAt", &iso::date(topic.updated.0))
        .leaf("AccessedAt", &topic.accessed.map_or(iso::NO_DATE.to_owned(), |time| iso::date(time.0)))
        .leaf("SupportOrdering", truth_text(settings.keeps_order()));
    Counts::from(topic.counts).write(writer);
    writer.leaf("SubscriptionCount", &topic.subscriptions.to_string());
    // H-2: clients of earlier versions would send what they do not know back to us.
    if api_version >= "2024-05" {
        writer
            .leaf("SqlFilterCount", &topic.sql_filters.to_string())
            .leaf("CorrelationFilterCount", &topic.correlation_filters.to_string());
    }
    writer
        .leaf("AutoDeleteOnIdle", &iso::duration_text(settings.auto_delete_on_idle))
        .leaf("EnablePartitioning", truth_text(settings.partitioning))
        .leaf("EntityAvailabilityStatus", "Available")
        .leaf("EnableSubscriptionPartitioning", truth_text(settings.subscription_partitioning))
        .leaf("EnableExpress", truth_text(settings.express));
    if api_version >= "2021-05" {
        writer.leaf("MaxMessageSizeInKilobytes", &topic.max_message_kilobytes.to_string());
    }
    writer.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::xml;
    use super::*;
    use broker::{LocalTime, Span, Status};

    fn described(settings: TopicSettings) -> TopicDescription {
        TopicDescription {
            path: "t".into(),
            max_message_kilobytes: settings.max_message_kilobytes.unwrap_or(1_024),
            settings,
            access: Vec::new(),
            created: LocalTime(0),
            updated: LocalTime(0),
            accessed: None,
            subscriptions: 2,
            sql_filters: 3,
            correlation_filters: 4,
            counts: broker::Counts { scheduled: 6, ..broker::Counts::default() },
            bytes: 5,
        }
    }

    fn written(settings: &TopicSettings, api_version: &str) -> String {
        let mut writer = Writer::default();
        write(&described(settings.clone()), api_version, &mut writer);
        writer.finish()
    }

    // H-31, H-40
    #[test]
    fn every_setting_survives_writing_and_reading() {
        let settings = TopicSettings {
            default_time_to_live: Span::minutes(60),
            max_size_megabytes: 2_048,
            requires_duplicate_detection: true,
            duplicate_window: Span::minutes(5),
            batched_operations: false,
            filtering_before_publishing: true,
            status: Status::SendDisabled,
            user_metadata: Some("a <b> & c".into()),
            support_ordering: Some(true),
            auto_delete_on_idle: Span::minutes(10),
            partitioning: true,
            subscription_partitioning: true,
            express: true,
            max_message_kilobytes: Some(2_048),
        };
        let text = written(&settings, "2024-05");
        let root = xml::read(text.as_bytes()).unwrap();
        assert_eq!(read(&root, &mut access::tests::keys()).unwrap(), (settings, Vec::new()));
    }

    // HX-1.8.2
    #[test]
    fn the_rules_of_a_topic_survive_writing_and_reading() {
        let rule = access::tests::reader();
        let topic = TopicDescription { access: vec![rule.clone()], ..described(TopicSettings::default()) };
        let mut writer = Writer::default();
        write(&topic, "2021-05", &mut writer);
        let root = xml::read(writer.finish().as_bytes()).unwrap();
        assert_eq!(read(&root, &mut access::tests::keys()).unwrap().1, [rule]);
    }

    // HX-1.5.1, H-24, H-26
    #[test]
    fn a_topic_is_written_in_the_order_of_the_service() {
        let root = xml::read(written(&TopicSettings::default(), "2024-05").as_bytes()).unwrap();
        let names: Vec<&str> = root.children.iter().map(|child| &*child.name).collect();
        assert_eq!(
            names.join(" "),
            "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection \
             DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes \
             FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt \
             UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount \
             CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus \
             EnableSubscriptionPartitioning EnableExpress MaxMessageSizeInKilobytes"
        );
    }

    // H-2
    #[test]
    fn an_earlier_version_hears_of_no_filter_counts() {
        let text = written(&TopicSettings::default(), "2021-05");
        assert!(!text.contains("FilterCount") && text.contains("MaxMessageSizeInKilobytes"));
        assert!(!written(&TopicSettings::default(), "2017-04").contains("MaxMessageSizeInKilobytes"));
    }
}
