//! What an entity is told when it is created: its settings, their defaults and their ranges (semantics, section 20).

use crate::limits::*;
use crate::refusal::Refusal;
use crate::time::Span;

/// What an entity may do (S-230).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Status {
    #[default]
    Active,
    Disabled,
    SendDisabled,
    ReceiveDisabled,
}

impl Status {
    pub fn may_send(self) -> bool {
        matches!(self, Status::Active | Status::ReceiveDisabled)
    }

    pub fn may_receive(self) -> bool {
        matches!(self, Status::Active | Status::SendDisabled)
    }
}

/// Settings of a queue. `Span::MAX` is "for ever" where a duration may be so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueSettings {
    pub lock_duration: Span,
    pub max_size_megabytes: u64,
    pub requires_duplicate_detection: bool,
    pub duplicate_window: Span,
    pub requires_session: bool,
    pub default_time_to_live: Span,
    pub dead_letter_on_expiration: bool,
    pub max_delivery_count: u32,
    pub batched_operations: bool,
    pub auto_delete_on_idle: Span,
    pub partitioning: bool,
    pub express: bool,
    pub forward_to: Option<Box<str>>,
    pub forward_dead_letters_to: Option<Box<str>>,
    pub status: Status,
    pub user_metadata: Option<Box<str>>,
    pub max_message_kilobytes: Option<u64>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            lock_duration: LOCK_DURATION_DEFAULT,
            max_size_megabytes: MAX_SIZE_MEGABYTES_DEFAULT,
            requires_duplicate_detection: false,
            duplicate_window: DUPLICATE_WINDOW_DEFAULT,
            requires_session: false,
            default_time_to_live: Span::MAX,
            dead_letter_on_expiration: false,
            max_delivery_count: MAX_DELIVERY_COUNT_DEFAULT,
            batched_operations: true,
            auto_delete_on_idle: Span::MAX,
            partitioning: false,
            express: false,
            forward_to: None,
            forward_dead_letters_to: None,
            status: Status::Active,
            user_metadata: None,
            max_message_kilobytes: None,
        }
    }
}

impl QueueSettings {
    /// The largest message this queue takes, in bytes.
    pub fn max_message_bytes(&self) -> u64 {
        self.max_message_kilobytes.unwrap_or(MESSAGE_KILOBYTES_DEFAULT) * 1_024
    }

    pub fn max_size_bytes(&self) -> u64 {
        self.max_size_megabytes.saturating_mul(1_024 * 1_024)
    }

    /// Refuses a value outside its documented range.
    pub fn check(&self) -> Result<(), Refusal> {
        let within = |property, value: Span, least: Span, most: Span| {
            if value >= least && value <= most {
                return Ok(());
            }
            let why = format!("{} ms is not between {} and {} ms", value.0, least.0, most.0);
            Err(Refusal::InvalidSetting { property, why: why.into() })
        };
        within("LockDuration", self.lock_duration, LOCK_DURATION_LEAST, LOCK_DURATION_MOST)?;
        within(
            "DuplicateDetectionHistoryTimeWindow",
            self.duplicate_window,
            DUPLICATE_WINDOW_LEAST,
            DUPLICATE_WINDOW_MOST,
        )?;
        within("DefaultMessageTimeToLive", self.default_time_to_live, TIME_TO_LIVE_LEAST, Span::MAX)?;
        within("AutoDeleteOnIdle", self.auto_delete_on_idle, AUTO_DELETE_LEAST, Span::MAX)?;
        if !(1..=MAX_DELIVERY_COUNT_MOST).contains(&self.max_delivery_count) {
            return Err(Refusal::InvalidSetting {
                property: "MaxDeliveryCount",
                why: format!("{} is not between 1 and {MAX_DELIVERY_COUNT_MOST}", self.max_delivery_count)
                    .into(),
            });
        }
        if self.express && self.requires_duplicate_detection {
            return Err(Refusal::InvalidSetting {
                property: "EnableExpress",
                why: "an express entity cannot detect duplicates".into(),
            });
        }
        if self.max_size_megabytes == 0 {
            return Err(Refusal::InvalidSetting {
                property: "MaxSizeInMegabytes",
                why: "0 holds nothing".into(),
            });
        }
        if let Some(kilobytes) = self.max_message_kilobytes
            && !(MESSAGE_KILOBYTES_LEAST..=MESSAGE_KILOBYTES_MOST).contains(&kilobytes)
        {
            return Err(Refusal::InvalidSetting {
                property: "MaxMessageSizeInKilobytes",
                why: format!(
                    "{kilobytes} is not between {MESSAGE_KILOBYTES_LEAST} and {MESSAGE_KILOBYTES_MOST}"
                )
                .into(),
            });
        }
        if self.user_metadata.as_ref().is_some_and(|text| text.chars().count() > USER_METADATA_CHARACTERS) {
            return Err(Refusal::InvalidSetting {
                property: "UserMetadata",
                why: format!("it is longer than {USER_METADATA_CHARACTERS} characters").into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut QueueSettings)) -> Option<&'static str> {
        let mut settings = QueueSettings::default();
        change(&mut settings);
        match settings.check() {
            Ok(()) => None,
            Err(Refusal::InvalidSetting { property, .. }) => Some(property),
            Err(other) => panic!("refused with {other}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_service() {
        // S-57, semantics section 20
        let settings = QueueSettings::default();
        assert_eq!(settings.lock_duration, Span::minutes(1));
        assert_eq!(settings.max_size_megabytes, 1_024);
        assert_eq!(settings.duplicate_window, Span::minutes(10));
        assert_eq!(settings.max_delivery_count, 10);
        assert!(settings.default_time_to_live.is_max() && settings.auto_delete_on_idle.is_max());
        assert!(!settings.requires_duplicate_detection && !settings.requires_session && !settings.express);
        assert!(!settings.dead_letter_on_expiration && !settings.partitioning && settings.batched_operations);
        assert_eq!((settings.status, settings.max_message_bytes()), (Status::Active, 1_048_576));
    }

    #[test]
    fn each_range_holds_at_its_ends_and_not_one_past() {
        // S-66, S-70, S-161, S-237
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|s| s.lock_duration = LOCK_DURATION_LEAST), None);
        assert_eq!(refused(|s| s.lock_duration = Span(LOCK_DURATION_LEAST.0 - 1)), Some("LockDuration"));
        assert_eq!(refused(|s| s.lock_duration = LOCK_DURATION_MOST), None);
        assert_eq!(refused(|s| s.lock_duration = Span(LOCK_DURATION_MOST.0 + 1)), Some("LockDuration"));
        assert_eq!(refused(|s| s.auto_delete_on_idle = AUTO_DELETE_LEAST), None);
        assert_eq!(
            refused(|s| s.auto_delete_on_idle = Span(AUTO_DELETE_LEAST.0 - 1)),
            Some("AutoDeleteOnIdle")
        );
        assert_eq!(refused(|s| s.default_time_to_live = Span(999)), Some("DefaultMessageTimeToLive"));
        assert_eq!(refused(|s| s.default_time_to_live = Span(1_000)), None);
        assert_eq!(refused(|s| s.max_delivery_count = 0), Some("MaxDeliveryCount"));
        assert_eq!(refused(|s| s.max_delivery_count = 1), None);
        assert_eq!(refused(|s| s.max_delivery_count = i32::MAX as u32), None);
        assert_eq!(refused(|s| s.max_delivery_count = i32::MAX as u32 + 1), Some("MaxDeliveryCount"));
        let window = "DuplicateDetectionHistoryTimeWindow";
        assert_eq!(refused(|s| s.duplicate_window = Span::seconds(20)), None);
        assert_eq!(refused(|s| s.duplicate_window = Span(19_999)), Some(window));
        assert_eq!(refused(|s| s.duplicate_window = Span::minutes(7 * 24 * 60)), None);
        assert_eq!(refused(|s| s.duplicate_window = Span(7 * 24 * 3_600_000 + 1)), Some(window));
        assert_eq!(refused(|s| s.max_message_kilobytes = Some(102_400)), None);
        assert_eq!(refused(|s| s.max_message_kilobytes = Some(1_024)), None);
        assert_eq!(refused(|s| s.max_message_kilobytes = Some(1_023)), Some("MaxMessageSizeInKilobytes"));
        assert_eq!(refused(|s| s.user_metadata = Some("x".repeat(1_024).into())), None);
        assert_eq!(refused(|s| s.max_message_kilobytes = Some(102_401)), Some("MaxMessageSizeInKilobytes"));
        assert_eq!(refused(|s| s.user_metadata = Some("x".repeat(1_025).into())), Some("UserMetadata"));
    }

    #[test]
    fn an_express_entity_cannot_detect_duplicates() {
        // S-165
        assert_eq!(refused(|s| s.express = true), None);
        let both = |s: &mut QueueSettings| (s.express, s.requires_duplicate_detection) = (true, true);
        assert_eq!(refused(both), Some("EnableExpress"));
    }
}
