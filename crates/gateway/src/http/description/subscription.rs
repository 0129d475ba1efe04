//! A subscription as XML (http, section 1.6).

use super::super::failure::Failure;
use super::super::xml::{Element, SCHEMA_INSTANCE, SERVICE_BUS, Writer};
use super::{Counts, count, duration, number, optional, rule, status, status_text, truth, truth_text};
use crate::iso;
use broker::topic::rule::Rule;
use broker::topic::settings::SubscriptionSettings;
use broker::topic::subscription::{DEFAULT_RULE, SubscriptionDescription};

/// Reads a `SubscriptionDescription`, with the rule that it may bring along (H-50).
pub fn read(description: &Element) -> Result<(SubscriptionSettings, Option<Rule>), Failure> {
    let (mut settings, mut default_rule) = (SubscriptionSettings::default(), None);
    for (property, value) in super::properties(description) {
        let name = &*property.name;
        match name {
            "LockDuration" => settings.lock_duration = duration(name, value)?,
            "RequiresSession" => settings.requires_session = truth(name, value)?,
            "DefaultMessageTimeToLive" => settings.default_time_to_live = duration(name, value)?,
            "DeadLetteringOnMessageExpiration" => settings.dead_letter_on_expiration = truth(name, value)?,
            "DeadLetteringOnFilterEvaluationExceptions" => {
                settings.dead_letter_on_filter_exceptions = truth(name, value)?;
            }
            "DefaultRuleDescription" => default_rule = Some(rule::read(property, DEFAULT_RULE)?),
            "MaxDeliveryCount" => settings.max_delivery_count = number(name, value)?,
            "EnableBatchedOperations" => settings.batched_operations = truth(name, value)?,
            "Status" => settings.status = status(value)?,
            "ForwardTo" => settings.forward_to = Some(value.into()),
            "UserMetadata" => settings.user_metadata = Some(property.text.as_str().into()),
            "ForwardDeadLetteredMessagesTo" => settings.forward_dead_letters_to = Some(value.into()),
            "AutoDeleteOnIdle" => settings.auto_delete_on_idle = duration(name, value)?,
            _ => {}
        }
    }
    Ok((settings, default_rule))
}

/// Writes a `SubscriptionDescription` in the service's order.
pub fn write(subscription: &SubscriptionDescription, writer: &mut Writer) {
    let settings = &subscription.settings;
    let counts = Counts::from(subscription.counts);
    writer
        .start("SubscriptionDescription", &[("xmlns", SERVICE_BUS), ("xmlns:i", SCHEMA_INSTANCE)])
        .leaf("LockDuration", &iso::duration_text(settings.lock_duration))
        .leaf("RequiresSession", truth_text(settings.requires_session))
        .leaf("DefaultMessageTimeToLive", &iso::duration_text(settings.default_time_to_live))
        .leaf("DeadLetteringOnMessageExpiration", truth_text(settings.dead_letter_on_expiration))
        .leaf(
            "DeadLetteringOnFilterEvaluationExceptions",
            truth_text(settings.dead_letter_on_filter_exceptions),
        )
        .leaf("MessageCount", &count(counts.sum()))
        .leaf("MaxDeliveryCount", &settings.max_delivery_count.to_string())
        .leaf("EnableBatchedOperations", truth_text(settings.batched_operations))
        .leaf("Status", status_text(settings.status));
    optional(writer, "ForwardTo", settings.forward_to.as_deref());
    writer
        .leaf("CreatedAt", &iso::date(subscription.created.0))
        .leaf("UpdatedAt", &iso::date(subscription.updated.0))
        .leaf("AccessedAt", &subscription.accessed.map_or(iso::NO_DATE.to_owned(), |time| iso::date(time.0)));
    counts.write(writer);
    optional(writer, "UserMetadata", settings.user_metadata.as_deref());
    optional(writer, "ForwardDeadLetteredMessagesTo", settings.forward_dead_letters_to.as_deref());
    writer
        .leaf("AutoDeleteOnIdle", &iso::duration_text(settings.auto_delete_on_idle))
        .leaf("EntityAvailabilityStatus", "Available")
        .end();
}

#[cfg(test)]
mod tests {
    use super::super::super::xml;
    use super::*;
    use broker::topic::rule::Filter;
    use broker::{LocalTime, Span, Status};

    fn written(settings: SubscriptionSettings) -> String {
        let subscription = SubscriptionDescription {
            topic: "t".into(),
            name: "s".into(),
            settings,
            created: LocalTime(0),
            updated: LocalTime(0),
            accessed: None,
            counts: broker::Counts {
                active: 4,
                dead_letter: 1,
                deferred: 2,
                scheduled: 0,
                transfer_dead_letter: 0,
            },
            bytes: 5,
        };
        let mut writer = Writer::default();
        write(&subscription, &mut writer);
        writer.finish()
    }

    fn every_setting() -> SubscriptionSettings {
        SubscriptionSettings {
            lock_duration: Span::seconds(30),
            requires_session: true,
            default_time_to_live: Span::minutes(60),
            dead_letter_on_expiration: true,
            dead_letter_on_filter_exceptions: false,
            max_delivery_count: 3,
            batched_operations: false,
            status: Status::ReceiveDisabled,
            forward_to: Some("sb://host/next".into()),
            user_metadata: Some("a <b> & c".into()),
            forward_dead_letters_to: Some("failed".into()),
            auto_delete_on_idle: Span::minutes(10),
        }
    }

    // H-31, H-40
    #[test]
    fn every_setting_survives_writing_and_reading() {
        let text = written(every_setting());
        assert_eq!(read(&xml::read(text.as_bytes()).unwrap()).unwrap(), (every_setting(), None));
    }

    // HX-1.6.1
    #[test]
    fn a_subscription_is_written_in_the_order_of_the_service() {
        let root = xml::read(written(every_setting()).as_bytes()).unwrap();
        let names: Vec<&str> = root.children.iter().map(|child| &*child.name).collect();
        assert_eq!(
            names.join(" "),
            "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration \
             DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations \
             Status ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails UserMetadata \
             ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus"
        );
    }

    // H-50
    #[test]
    fn a_rule_may_come_along() {
        let body = format!(
            "<SubscriptionDescription xmlns=\"{SERVICE_BUS}\" xmlns:i=\"{SCHEMA_INSTANCE}\">\
             <DefaultRuleDescription><Filter i:type=\"FalseFilter\"/><Name>mine</Name></DefaultRuleDescription>\
             </SubscriptionDescription>"
        );
        let (_, rule) = read(&xml::read(body.as_bytes()).unwrap()).unwrap();
        let rule = rule.unwrap();
        assert_eq!((&*rule.name, rule.filter), ("mine", Filter::False));
    }
}
