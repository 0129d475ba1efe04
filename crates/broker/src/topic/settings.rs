//! What topics and subscriptions are told when they are created: settings, defaults, ranges (docs/compatibility/broker.md, 20).

use crate::limits::*;
use crate::refusal::Refusal;
use crate::settings::{self, QueueSettings, Status};
use crate::time::Span;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicSettings {
    pub default_time_to_live: Span,
    pub max_size_megabytes: u64,
    pub requires_duplicate_detection: bool,
    pub duplicate_window: Span,
    pub batched_operations: bool,
    pub filtering_before_publishing: bool,
    pub status: Status,
    pub user_metadata: Option<Box<str>>,
    /// What was said; without it a topic keeps order unless it is partitioned.
    pub support_ordering: Option<bool>,
    pub auto_delete_on_idle: Span,
    pub partitioning: bool,
    pub subscription_partitioning: bool,
    pub express: bool,
    pub max_message_kilobytes: Option<u64>,
}

impl Default for TopicSettings {
    fn default() -> TopicSettings {
        TopicSettings {
            default_time_to_live: Span::MAX,
            max_size_megabytes: MAX_SIZE_MEGABYTES_DEFAULT,
            requires_duplicate_detection: false,
            duplicate_window: DUPLICATE_WINDOW_DEFAULT,
            batched_operations: true,
            filtering_before_publishing: false,
            status: Status::Active,
            user_metadata: None,
            support_ordering: None,
            auto_delete_on_idle: Span::MAX,
            partitioning: false,
            subscription_partitioning: false,
            express: false,
            max_message_kilobytes: None,
        }
    }
}

impl TopicSettings {
    pub fn keeps_order(&self) -> bool {
        self.support_ordering.unwrap_or(!self.partitioning)
    }

    /// What these settings mean for the messages that the topic holds or passes on.
    pub(crate) fn of_messages(&self) -> QueueSettings {
        QueueSettings {
            max_size_megabytes: self.max_size_megabytes,
            requires_duplicate_detection: self.requires_duplicate_detection,
            duplicate_window: self.duplicate_window,
            default_time_to_live: self.default_time_to_live,
            auto_delete_on_idle: self.auto_delete_on_idle,
            partitioning: self.partitioning,
            express: self.express,
            status: self.status,
            max_message_kilobytes: self.max_message_kilobytes,
            ..QueueSettings::default()
        }
    }

    /// Refuses a value outside its documented range.
    pub fn check(&self) -> Result<(), Refusal> {
        settings::check_duplicates(self.requires_duplicate_detection, self.duplicate_window, self.express)?;
        settings::check_time_to_live(self.default_time_to_live)?;
        settings::check_auto_delete(self.auto_delete_on_idle)?;
        settings::check_sizes(self.max_size_megabytes, self.max_message_kilobytes)?;
        settings::check_metadata(self.user_metadata.as_deref())?;
        match self.status {
            Status::Active | Status::Disabled | Status::SendDisabled => Ok(()),
            Status::ReceiveDisabled => Err(bad_status("a topic is not received from")),
        }
    }

    /// S-260.
    pub(crate) fn check_update(&self, before: &TopicSettings) -> Result<(), Refusal> {
        let fixed = [
            (
                "RequiresDuplicateDetection",
                self.requires_duplicate_detection == before.requires_duplicate_detection,
            ),
            ("EnablePartitioning", self.partitioning == before.partitioning),
        ];
        settings::check_fixed("Topic", &fixed)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubscriptionSettings {
    pub lock_duration: Span,
    pub requires_session: bool,
    pub default_time_to_live: Span,
    pub dead_letter_on_expiration: bool,
    pub dead_letter_on_filter_exceptions: bool,
    pub max_delivery_count: u32,
    pub batched_operations: bool,
    pub status: Status,
    pub forward_to: Option<Box<str>>,
    pub user_metadata: Option<Box<str>>,
    pub forward_dead_letters_to: Option<Box<str>>,
    pub auto_delete_on_idle: Span,
}

impl Default for SubscriptionSettings {
    fn default() -> SubscriptionSettings {
        SubscriptionSettings {
            lock_duration: LOCK_DURATION_DEFAULT,
            requires_session: false,
            default_time_to_live: Span::MAX,
            dead_letter_on_expiration: false,
            dead_letter_on_filter_exceptions: true,
            max_delivery_count: MAX_DELIVERY_COUNT_DEFAULT,
            batched_operations: true,
            status: Status::Active,
            forward_to: None,
            user_metadata: None,
            forward_dead_letters_to: None,
            auto_delete_on_idle: Span::MAX,
        }
    }
}

impl SubscriptionSettings {
    /// What these settings mean for the messages of the subscription; `beside` are those of its topic, or its own before.
    pub(crate) fn of_messages(&self, beside: &QueueSettings) -> QueueSettings {
        QueueSettings {
            lock_duration: self.lock_duration,
            requires_session: self.requires_session,
            default_time_to_live: self.default_time_to_live,
            dead_letter_on_expiration: self.dead_letter_on_expiration,
            max_delivery_count: self.max_delivery_count,
            auto_delete_on_idle: self.auto_delete_on_idle,
            partitioning: beside.partitioning,
            forward_to: self.forward_to.clone(),
            forward_dead_letters_to: self.forward_dead_letters_to.clone(),
            status: self.status,
            ..QueueSettings::default()
        }
    }

    /// Refuses a value outside its documented range.
    pub fn check(&self) -> Result<(), Refusal> {
        settings::check_lock_duration(self.lock_duration)?;
        settings::check_time_to_live(self.default_time_to_live)?;
        settings::check_auto_delete(self.auto_delete_on_idle)?;
        settings::check_delivery_count(self.max_delivery_count)?;
        settings::check_metadata(self.user_metadata.as_deref())?;
        match self.status {
            Status::Active | Status::Disabled | Status::ReceiveDisabled => Ok(()),
            Status::SendDisabled => Err(bad_status("a subscription is not sent to")),
        }
    }

    /// S-260.
    pub(crate) fn check_update(&self, before: &SubscriptionSettings) -> Result<(), Refusal> {
        let fixed = [("RequiresSession", self.requires_session == before.requires_session)];
        settings::check_fixed("Subscription", &fixed)
    }
}

fn bad_status(why: &str) -> Refusal {
    Refusal::InvalidSetting { property: "Status", why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_makes_no_sense_is_refused() {
        // S-230
        let topic = |status| TopicSettings { status, ..TopicSettings::default() }.check().is_ok();
        assert!(topic(Status::Active) && topic(Status::Disabled) && topic(Status::SendDisabled));
        assert!(!topic(Status::ReceiveDisabled));
        let subscription =
            |status| SubscriptionSettings { status, ..SubscriptionSettings::default() }.check().is_ok();
        assert!(subscription(Status::ReceiveDisabled) && !subscription(Status::SendDisabled));
    }

    #[test]
    fn what_is_set_for_a_topic_counts_for_its_messages() {
        let set = TopicSettings {
            max_size_megabytes: 2_048,
            requires_duplicate_detection: true,
            duplicate_window: Span::minutes(7),
            default_time_to_live: Span::minutes(3),
            auto_delete_on_idle: Span::minutes(5),
            partitioning: true,
            express: true,
            status: Status::SendDisabled,
            max_message_kilobytes: Some(512),
            ..TopicSettings::default()
        };
        let expected = QueueSettings {
            max_size_megabytes: 2_048,
            requires_duplicate_detection: true,
            duplicate_window: Span::minutes(7),
            default_time_to_live: Span::minutes(3),
            auto_delete_on_idle: Span::minutes(5),
            partitioning: true,
            express: true,
            status: Status::SendDisabled,
            max_message_kilobytes: Some(512),
            ..QueueSettings::default()
        };
        assert_eq!(set.of_messages(), expected);
    }

    #[test]
    fn what_is_set_for_a_subscription_counts_for_its_messages() {
        let (forward_to, forward_dead_letters_to) = (Some("a".into()), Some("b".into()));
        let set = SubscriptionSettings {
            lock_duration: Span::minutes(2),
            requires_session: true,
            default_time_to_live: Span::minutes(3),
            dead_letter_on_expiration: true,
            max_delivery_count: 4,
            status: Status::ReceiveDisabled,
            forward_to,
            forward_dead_letters_to,
            auto_delete_on_idle: Span::minutes(5),
            ..SubscriptionSettings::default()
        };
        let topic = QueueSettings { partitioning: true, max_delivery_count: 9, ..QueueSettings::default() };
        let expected = QueueSettings {
            lock_duration: Span::minutes(2),
            requires_session: true,
            default_time_to_live: Span::minutes(3),
            dead_letter_on_expiration: true,
            max_delivery_count: 4,
            status: Status::ReceiveDisabled,
            forward_to: Some("a".into()),
            forward_dead_letters_to: Some("b".into()),
            auto_delete_on_idle: Span::minutes(5),
            partitioning: true,
            ..QueueSettings::default()
        };
        assert_eq!(set.of_messages(&topic), expected);
    }

    #[test]
    fn express_and_duplicate_detection_exclude_each_other() {
        // S-165
        let both =
            TopicSettings { express: true, requires_duplicate_detection: true, ..TopicSettings::default() };
        assert!(both.check().is_err());
        assert!(TopicSettings { requires_duplicate_detection: false, ..both }.check().is_ok());
    }

    #[test]
    fn a_partitioned_topic_keeps_no_order_unless_told() {
        let partitioned = TopicSettings { partitioning: true, ..TopicSettings::default() };
        assert!(TopicSettings::default().keeps_order() && !partitioned.keeps_order());
        assert!(TopicSettings { support_ordering: Some(true), ..partitioned }.keeps_order());
    }
}
