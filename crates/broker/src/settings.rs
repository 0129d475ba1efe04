//! What an entity is told when it is created: its settings, their defaults and their ranges (docs/compatibility/broker.md, 20).

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
        check_lock_duration(self.lock_duration)?;
        check_duplicates(self.requires_duplicate_detection, self.duplicate_window, self.express)?;
        check_time_to_live(self.default_time_to_live)?;
        check_auto_delete(self.auto_delete_on_idle)?;
        check_delivery_count(self.max_delivery_count)?;
        check_sizes(self.max_size_megabytes, self.max_message_kilobytes)?;
        check_metadata(self.user_metadata.as_deref())
    }

    /// S-260.
    pub(crate) fn check_update(&self, before: &QueueSettings) -> Result<(), Refusal> {
        let fixed = [
            (
                "RequiresDuplicateDetection",
                self.requires_duplicate_detection == before.requires_duplicate_detection,
            ),
            ("RequiresSession", self.requires_session == before.requires_session),
            ("EnablePartitioning", self.partitioning == before.partitioning),
        ];
        check_fixed("Queue", &fixed)
    }
}

/// Refuses an update that changes what is fixed; each property says whether it is as before (S-260).
pub(crate) fn check_fixed(kind: &'static str, is_kept: &[(&'static str, bool)]) -> Result<(), Refusal> {
    match is_kept.iter().find(|(_, is_kept)| !is_kept) {
        Some((property, _)) => Err(Refusal::Unchangeable { property, kind }),
        None => Ok(()),
    }
}

fn invalid(property: &'static str, why: impl Into<Box<str>>) -> Result<(), Refusal> {
    Err(Refusal::InvalidSetting { property, why: why.into() })
}

fn within(property: &'static str, value: Span, least: Span, most: Span) -> Result<(), Refusal> {
    if value >= least && value <= most {
        return Ok(());
    }
    invalid(property, range(property, least, most))
}

/// K-26.
fn range(property: &str, least: impl std::fmt::Display, most: impl std::fmt::Display) -> String {
    format!("The value for '{property}' must be between {least} and {most}.")
}

pub(crate) fn check_lock_duration(value: Span) -> Result<(), Refusal> {
    if value > LOCK_DURATION_MOST {
        // H-71
        let why = "The supplied lock time exceeds the allowed maximum of '5' minutes.";
        let range = range("LockDuration", LOCK_DURATION_LEAST, LOCK_DURATION_MOST);
        return invalid("LockDuration", format!("{why} {range}"));
    }
    within("LockDuration", value, LOCK_DURATION_LEAST, LOCK_DURATION_MOST)
}

/// S-161, S-165.
pub(crate) fn check_duplicates(detects: bool, window: Span, is_express: bool) -> Result<(), Refusal> {
    if detects && is_express {
        return invalid("EnableExpress", "it cannot be combined with RequiresDuplicateDetection");
    }
    within("DuplicateDetectionHistoryTimeWindow", window, DUPLICATE_WINDOW_LEAST, DUPLICATE_WINDOW_MOST)
}

pub(crate) fn check_time_to_live(value: Span) -> Result<(), Refusal> {
    within("DefaultMessageTimeToLive", value, TIME_TO_LIVE_LEAST, Span::MAX)
}

pub(crate) fn check_auto_delete(value: Span) -> Result<(), Refusal> {
    within("AutoDeleteOnIdle", value, AUTO_DELETE_LEAST, Span::MAX)
}

pub(crate) fn check_delivery_count(count: u32) -> Result<(), Refusal> {
    if (1..=MAX_DELIVERY_COUNT_MOST).contains(&count) {
        return Ok(());
    }
    invalid("MaxDeliveryCount", range("MaxDeliveryCount", 1, MAX_DELIVERY_COUNT_MOST))
}

/// Whether an entity may have this size. The sizes that the service offers are checked where administrators ask
/// ([`crate::tier::Tier::check_offered_size`]).
pub(crate) fn check_sizes(megabytes: u64, message_kilobytes: Option<u64>) -> Result<(), Refusal> {
    if megabytes == 0 {
        return invalid("MaxSizeInMegabytes", "0 holds nothing");
    }
    match message_kilobytes {
        Some(kilobytes) if !(MESSAGE_KILOBYTES_LEAST..=MESSAGE_KILOBYTES_MOST).contains(&kilobytes) => {
            let property = "MaxMessageSizeInKilobytes";
            invalid(property, range(property, MESSAGE_KILOBYTES_LEAST, MESSAGE_KILOBYTES_MOST))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_metadata(text: Option<&str>) -> Result<(), Refusal> {
    if text.is_some_and(|text| text.chars().count() > USER_METADATA_CHARACTERS) {
        return invalid("UserMetadata", format!("it is longer than {USER_METADATA_CHARACTERS} characters"));
    }
    Ok(())
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
        assert_eq!(refused(|s| s.max_size_megabytes = 0), Some("MaxSizeInMegabytes"));
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
