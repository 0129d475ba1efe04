//! A queue as XML.

use super::super::failure::Failure;
use super::super::xml::{Element, SCHEMA_INSTANCE, SERVICE_BUS, Writer};
use super::access::{self, Keys};
use super::{Counts, count, duration, number, optional, status, status_text, truth, truth_text};
use crate::iso;
use broker::{AccessRule, QueueDescription, QueueSettings};

/// Reads a `QueueDescription`.
pub fn read(description: &Element, keys: &mut Keys<'_>) -> Result<(QueueSettings, Vec<AccessRule>), Failure> {
    let (mut settings, mut access) = (QueueSettings::default(), Vec::new());
    for (property, value) in super::properties(description) {
        if &*property.name == "AuthorizationRules" {
            access = access::read(property, keys)?;
        } else {
            read_property(&mut settings, property, value)?;
        }
    }
    Ok((settings, access))
}

fn read_property(settings: &mut QueueSettings, property: &Element, value: &str) -> Result<(), Failure> {
    let name = &*property.name;
    match name {
        "LockDuration" => settings.lock_duration = duration(name, value)?,
        "MaxSizeInMegabytes" => settings.max_size_megabytes = number(name, value)?,
        "RequiresDuplicateDetection" => settings.requires_duplicate_detection = truth(name, value)?,
        "RequiresSession" => settings.requires_session = truth(name, value)?,
        "DefaultMessageTimeToLive" => settings.default_time_to_live = duration(name, value)?,
        "DeadLetteringOnMessageExpiration" => settings.dead_letter_on_expiration = truth(name, value)?,
        "DuplicateDetectionHistoryTimeWindow" => settings.duplicate_window = duration(name, value)?,
        "MaxDeliveryCount" => settings.max_delivery_count = number(name, value)?,
        "EnableBatchedOperations" => settings.batched_operations = truth(name, value)?,
        "Status" => settings.status = status(value)?,
        "ForwardTo" => settings.forward_to = Some(value.into()),
        "UserMetadata" => settings.user_metadata = Some(property.text.as_str().into()),
        "AutoDeleteOnIdle" => settings.auto_delete_on_idle = duration(name, value)?,
        "EnablePartitioning" => settings.partitioning = truth(name, value)?,
        "ForwardDeadLetteredMessagesTo" => settings.forward_dead_letters_to = Some(value.into()),
        "EnableExpress" => settings.express = truth(name, value)?,
        "MaxMessageSizeInKilobytes" => settings.max_message_kilobytes = Some(number(name, value)?),
        _ => {}
    }
    Ok(())
}

/// Writes a `QueueDescription` in the service's order (http, section 1.4).
pub fn write(queue: &QueueDescription, api_version: &str, writer: &mut Writer) {
    let settings = &queue.settings;
    let counts = Counts::from(queue.counts);
    writer
        .start("QueueDescription", &[("xmlns", SERVICE_BUS), ("xmlns:i", SCHEMA_INSTANCE)])
        .leaf("LockDuration", &iso::duration_text(settings.lock_duration))
        .leaf("MaxSizeInMegabytes", &settings.max_size_megabytes.to_string())
        .leaf("RequiresDuplicateDetection", truth_text(settings.requires_duplicate_detection))
        .leaf("RequiresSession", truth_text(settings.requires_session))
        .leaf("DefaultMessageTimeToLive", &iso::duration_text(settings.default_time_to_live))
        .leaf("DeadLetteringOnMessageExpiration", truth_text(settings.dead_letter_on_expiration))
        .leaf("DuplicateDetectionHistoryTimeWindow", &iso::duration_text(settings.duplicate_window))
        .leaf("MaxDeliveryCount", &settings.max_delivery_count.to_string())
        .leaf("EnableBatchedOperations", truth_text(settings.batched_operations))
        .leaf("SizeInBytes", &queue.bytes.to_string())
        .leaf("MessageCount", &count(queue.counts.total()))
        .leaf("IsAnonymousAccessible", "false");
    access::write(&queue.access, writer);
    writer.leaf("Status", status_text(settings.status));
    optional(writer, "ForwardTo", settings.forward_to.as_deref());
    optional(writer, "UserMetadata", settings.user_metadata.as_deref());
    writer
        .leaf("CreatedAt", &iso::date(queue.created.0))
        .leaf("UpdatedAt", &iso::date(queue.updated.0))
        .leaf("AccessedAt", &queue.accessed.map_or(iso::NO_DATE.to_owned(), |time| iso::date(time.0)))
        .leaf("SupportOrdering", truth_text(!settings.partitioning));
    counts.write(writer);
    writer
        .leaf("AutoDeleteOnIdle", &iso::duration_text(settings.auto_delete_on_idle))
        .leaf("EnablePartitioning", truth_text(settings.partitioning))
        .leaf("EntityAvailabilityStatus", "Available");
    optional(writer, "ForwardDeadLetteredMessagesTo", settings.forward_dead_letters_to.as_deref());
    writer.leaf("EnableExpress", truth_text(settings.express));
    // H-2: earlier versions do not know it.
    if api_version >= "2021-05" {
        writer.leaf("MaxMessageSizeInKilobytes", &queue.max_message_kilobytes.to_string());
    }
    writer.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::xml;
    use super::*;
    use broker::limits::MESSAGE_KILOBYTES_DEFAULT;
    use broker::{LocalTime, Span, Status};

    fn read(properties: &str) -> Result<QueueSettings, Failure> {
        let body = format!("<QueueDescription xmlns=\"{SERVICE_BUS}\">{properties}</QueueDescription>");
        super::read(&xml::read(body.as_bytes()).unwrap(), &mut access::tests::keys()).map(|read| read.0)
    }

    fn every_setting() -> QueueSettings {
        QueueSettings {
            lock_duration: Span::seconds(30),
            max_size_megabytes: 2_048,
            requires_duplicate_detection: true,
            duplicate_window: Span::minutes(5),
            requires_session: true,
            default_time_to_live: Span::minutes(60),
            dead_letter_on_expiration: true,
            max_delivery_count: 3,
            batched_operations: false,
            auto_delete_on_idle: Span::minutes(10),
            partitioning: true,
            express: true,
            forward_to: Some("sb://host/next".into()),
            forward_dead_letters_to: Some("failed".into()),
            status: Status::SendDisabled,
            user_metadata: Some("a <b> & c".into()),
            max_message_kilobytes: Some(2_048),
        }
    }

    fn described(settings: QueueSettings) -> QueueDescription {
        let (created, updated) = (LocalTime(1_709_210_096_789), LocalTime(1_709_210_097_000));
        let path = "orders".into();
        QueueDescription {
            path,
            max_message_kilobytes: settings.max_message_kilobytes.unwrap_or(MESSAGE_KILOBYTES_DEFAULT),
            settings,
            access: Vec::new(),
            created,
            updated,
            accessed: None,
            counts: broker::Counts {
                active: 4,
                dead_letter: 1,
                scheduled: 2,
                deferred: 0,
                transfer_dead_letter: 3,
            },
            bytes: 1_234,
        }
    }

    fn written(queue: &QueueDescription, api_version: &str) -> String {
        let mut writer = Writer::default();
        write(queue, api_version, &mut writer);
        writer.finish()
    }

    // H-40, H-31: what is written, counts and dates included, is a request that says the same.
    #[test]
    fn every_setting_survives_writing_and_reading() {
        for settings in [every_setting(), QueueSettings::default()] {
            let text = written(&described(settings.clone()), "2021-05");
            let mut read =
                super::read(&xml::read(text.as_bytes()).unwrap(), &mut access::tests::keys()).unwrap().0;
            if settings.max_message_kilobytes.is_none() {
                assert_eq!(read.max_message_kilobytes.take(), Some(MESSAGE_KILOBYTES_DEFAULT));
            }
            assert_eq!(read, settings);
        }
    }

    // H-40
    #[test]
    fn the_order_of_elements_does_not_matter() {
        let text = "<EnableExpress>true</EnableExpress><LockDuration>PT30S</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount>";
        let settings = read(text).unwrap();
        assert!(settings.express);
        assert_eq!((settings.lock_duration, settings.max_delivery_count), (Span::seconds(30), 3));
    }

    // H-12, H-30, H-31
    #[test]
    fn absent_empty_unknown_and_foreign_elements_change_nothing() {
        for text in [
            "",
            "<LockDuration/><Status></Status><ForwardTo> </ForwardTo><AuthorizationRules/>",
            "<Unknown>1</Unknown><MessageCount>5</MessageCount><CreatedAt>2020-01-01T00:00:00Z</CreatedAt>",
            "<x:LockDuration xmlns:x=\"urn:other\">PT5S</x:LockDuration>",
        ] {
            assert_eq!(read(text).unwrap(), QueueSettings::default(), "{text}");
        }
    }

    // H-28, H-29
    #[test]
    fn values_are_read_in_the_spellings_clients_use() {
        let text = "<RequiresSession>True</RequiresSession><DefaultMessageTimeToLive>P10675199DT2H48M5.477539S</DefaultMessageTimeToLive>";
        let settings = read(text).unwrap();
        assert!(settings.requires_session);
        assert_eq!(settings.default_time_to_live, Span::MAX);
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named() {
        for (text, name) in [
            ("<LockDuration>soon</LockDuration>", "LockDuration"),
            ("<MaxDeliveryCount>-1</MaxDeliveryCount>", "MaxDeliveryCount"),
            ("<RequiresSession>yes</RequiresSession>", "RequiresSession"),
            ("<Status>Sleeping</Status>", "Status"),
        ] {
            let failure = read(text).unwrap_err();
            assert!(matches!(&failure, Failure::Bad(text) if text.contains(name)), "{failure}");
        }
    }

    // The service's order, H-24, H-26, H-29
    #[test]
    fn a_queue_is_written_as_the_service_writes_it() {
        let expected = "<QueueDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
            xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">\
            <LockDuration>PT1M</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>\
            <RequiresDuplicateDetection>false</RequiresDuplicateDetection><RequiresSession>false</RequiresSession>\
            <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
            <DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>\
            <DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>\
            <MaxDeliveryCount>10</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations>\
            <SizeInBytes>1234</SizeInBytes><MessageCount>10</MessageCount>\
            <IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules/><Status>Active</Status>\
            <CreatedAt>2024-02-29T12:34:56.7890000Z</CreatedAt><UpdatedAt>2024-02-29T12:34:57.0000000Z</UpdatedAt>\
            <AccessedAt>0001-01-01T00:00:00Z</AccessedAt><SupportOrdering>true</SupportOrdering>\
            <CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\">\
            <d2p1:ActiveMessageCount>4</d2p1:ActiveMessageCount>\
            <d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount>\
            <d2p1:ScheduledMessageCount>2</d2p1:ScheduledMessageCount>\
            <d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>\
            <d2p1:TransferDeadLetterMessageCount>3</d2p1:TransferDeadLetterMessageCount></CountDetails>\
            <AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>\
            <EnablePartitioning>false</EnablePartitioning>\
            <EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>\
            <MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes></QueueDescription>";
        assert_eq!(written(&described(QueueSettings::default()), "2021-05"), expected);
    }

    // H-2
    #[test]
    fn an_old_version_does_not_hear_of_the_largest_message() {
        assert!(!written(&described(every_setting()), "2017-04").contains("MaxMessageSizeInKilobytes"));
    }
}
