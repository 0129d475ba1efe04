//! Tiers: what the service sells, as profiles of quotas (docs/compatibility/broker.md, 20 and 21). Without one nothing is refused
//! for the sake of a price list (S-270); what makes no sense is refused in each of them.

use crate::durable::PARTITIONS;
use crate::limits::*;
use crate::manage::forward_address;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::time::Span;
use crate::topic::settings::TopicSettings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tier {
    Basic,
    Standard,
    Premium,
    /// No quotas: there is nobody who sells them.
    #[default]
    Unlimited,
}

/// Bytes of the largest message where entities cannot choose (docs/compatibility/broker.md, 21).
const SMALL_MESSAGE_BYTES: u64 = 256 * 1_024;

/// How long a message lives in the Basic tier, at most and unless it says otherwise (S-57).
const BASIC_TIME_TO_LIVE: Span = Span::minutes(14 * 24 * 60);

/// What one topic may have, in every tier (docs/compatibility/broker.md, 21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicLimits {
    pub subscriptions: usize,
    /// Over all of its subscriptions.
    pub sql_filters: usize,
    pub correlation_filters: usize,
}

impl Default for TopicLimits {
    fn default() -> TopicLimits {
        TopicLimits {
            subscriptions: SUBSCRIPTIONS_PER_TOPIC,
            sql_filters: SQL_FILTERS_PER_TOPIC,
            correlation_filters: CORRELATION_FILTERS_PER_TOPIC,
        }
    }
}

impl std::str::FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Tier, String> {
        match text.to_ascii_lowercase().as_str() {
            "basic" => Ok(Tier::Basic),
            "standard" => Ok(Tier::Standard),
            "premium" => Ok(Tier::Premium),
            "unlimited" => Ok(Tier::Unlimited),
            _ => Err(format!("`{text}` is not a tier; use basic, standard, premium or unlimited")),
        }
    }
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Tier::Basic => "Basic",
            Tier::Standard => "Standard",
            Tier::Premium => "Premium",
            Tier::Unlimited => "Unlimited",
        }
    }

    /// Queues and topics in one namespace.
    pub fn entities(self) -> usize {
        match self {
            Tier::Basic | Tier::Standard => SHARED_ENTITIES,
            Tier::Premium => PREMIUM_ENTITIES,
            Tier::Unlimited => usize::MAX,
        }
    }

    /// Partitioned queues and topics in one namespace.
    pub fn partitioned_entities(self) -> usize {
        match self {
            Tier::Basic | Tier::Standard => PARTITIONED_ENTITIES,
            Tier::Premium | Tier::Unlimited => usize::MAX,
        }
    }

    /// Receivers of one entity at a time (S-98).
    pub fn receivers(self) -> usize {
        if self == Tier::Unlimited { usize::MAX } else { RECEIVERS }
    }

    /// Messages in one batch (S-16). Held in every tier: a batch is one append of the journal.
    pub fn batch_messages(self) -> usize {
        BATCH_MESSAGES
    }

    /// Whether there are transactions (S-217).
    pub(crate) fn check_transactions(self) -> Result<(), Refusal> {
        match self {
            Tier::Basic => Err(Refusal::NotInTier { property: "Transactions", tier: self.name() }),
            Tier::Standard | Tier::Premium | Tier::Unlimited => Ok(()),
        }
    }

    /// Messages that one request may delete; `None` where there is no such request (S-240).
    pub fn deleted_messages(self) -> Option<u32> {
        match self {
            Tier::Basic => None,
            Tier::Standard => Some(STANDARD_DELETED_MESSAGES),
            Tier::Premium | Tier::Unlimited => Some(PREMIUM_DELETED_MESSAGES),
        }
    }

    /// Bytes of the largest message of a queue (S-17).
    pub fn message_bytes(self, settings: &QueueSettings) -> u64 {
        match self {
            Tier::Basic | Tier::Standard => SMALL_MESSAGE_BYTES,
            Tier::Premium | Tier::Unlimited => settings.max_message_bytes(),
        }
    }

    /// Bytes at which a queue is full (S-19). Without a tier the size that every queue has by default is no limit; one
    /// that was chosen is.
    pub fn queue_bytes(self, settings: &QueueSettings) -> u64 {
        if self == Tier::Unlimited && settings.max_size_megabytes == MAX_SIZE_MEGABYTES_DEFAULT {
            u64::MAX
        } else {
            settings.max_size_bytes()
        }
    }

    /// How long a message lives at most and unless it says otherwise (S-55 to S-57).
    pub fn time_to_live(self, settings: &QueueSettings) -> Span {
        match self {
            Tier::Basic => settings.default_time_to_live.min(BASIC_TIME_TO_LIVE),
            _ => settings.default_time_to_live,
        }
    }

    /// Partitions of a partitioned entity: it reports the size of all of them together (S-220).
    fn partitions(self) -> u64 {
        match self {
            Tier::Basic | Tier::Standard => PARTITIONS.into(),
            Tier::Premium | Tier::Unlimited => 1,
        }
    }

    /// Kilobytes of the largest message where entities cannot choose.
    fn own_message_kilobytes(self) -> Option<u64> {
        match self {
            Tier::Basic | Tier::Standard => Some(SMALL_MESSAGE_BYTES / 1_024),
            Tier::Premium | Tier::Unlimited => None,
        }
    }

    /// Kilobytes of the largest message, as clients are told: where entities cannot choose, the tier's own (K-21).
    pub(crate) fn message_kilobytes(self, chosen: Option<u64>) -> u64 {
        self.own_message_kilobytes().or(chosen).unwrap_or(MESSAGE_KILOBYTES_DEFAULT)
    }

    /// What an entity has that is to be updated if the client sends back what it was told, else what was asked for.
    fn kept_kilobytes(self, asked: Option<u64>, before: Option<Option<u64>>) -> Option<u64> {
        match before {
            Some(before) if asked.is_some() && asked == self.own_message_kilobytes() => before,
            _ => asked,
        }
    }

    /// The settings that a queue gets when these are asked for, or why it cannot have them. `before` are those that it
    /// has, if it exists: whatever was read can be sent back (K-21).
    pub(crate) fn settle(
        self,
        asked: &QueueSettings,
        before: Option<&QueueSettings>,
    ) -> Result<QueueSettings, Refusal> {
        let mut settings = asked.clone();
        let kept = before.map(|before| before.max_message_kilobytes);
        settings.max_message_kilobytes = self.kept_kilobytes(asked.max_message_kilobytes, kept);
        settings.check()?;
        self.check(&settings, before)?;
        if self == Tier::Basic {
            settings.default_time_to_live = BASIC_TIME_TO_LIVE;
        }
        for target in [&mut settings.forward_to, &mut settings.forward_dead_letters_to].into_iter().flatten()
        {
            *target = forward_address(target);
        }
        let size = before.map(|before| before.max_size_megabytes);
        settings.max_size_megabytes = self.settle_size(asked.max_size_megabytes, asked.partitioning, size)?;
        Ok(settings)
    }

    /// The same for a topic.
    pub(crate) fn settle_topic(
        self,
        asked: &TopicSettings,
        before: Option<&TopicSettings>,
    ) -> Result<TopicSettings, Refusal> {
        let mut settings = asked.clone();
        let kept = before.map(|before| before.max_message_kilobytes);
        settings.max_message_kilobytes = self.kept_kilobytes(asked.max_message_kilobytes, kept);
        settings.check()?;
        self.check_kilobytes(settings.max_message_kilobytes, kept)?;
        let size = before.map(|before| before.max_size_megabytes);
        settings.max_size_megabytes = self.settle_size(asked.max_size_megabytes, asked.partitioning, size)?;
        Ok(settings)
    }

    /// The size of an entity that asks for one: a partitioned one has that of all its partitions (S-220, K-22). Clients send
    /// back what they were told.
    fn settle_size(self, asked: u64, is_partitioned: bool, before: Option<u64>) -> Result<u64, Refusal> {
        if before == Some(asked) {
            return Ok(asked);
        }
        if self != Tier::Unlimited {
            self.check_offered_size(asked)?;
        }
        Ok(if is_partitioned { asked * self.partitions() } else { asked })
    }

    /// Sizes of an entity among which administrators choose, in megabytes.
    fn sizes(self) -> &'static [u64] {
        match self {
            Tier::Basic | Tier::Standard => &COMMON_SIZE_MEGABYTES,
            Tier::Premium | Tier::Unlimited => &MAX_SIZE_MEGABYTES,
        }
    }

    /// H-71. What is listed is what can be had.
    pub(crate) fn check_offered_size(self, megabytes: u64) -> Result<(), Refusal> {
        if self.sizes().contains(&megabytes) {
            return Ok(());
        }
        let sizes: Vec<String> = self.sizes().iter().map(u64::to_string).collect();
        let why = format!(
            "The specified value {megabytes} is invalid. The property 'MaxSizeInMegabytes', must be one of the following values: {}.",
            sizes.join(";")
        );
        Err(Refusal::InvalidSetting { property: "MaxSizeInMegabytes", why: why.into() })
    }

    /// Sizes of messages are chosen in Premium alone.
    fn check_kilobytes(self, asked: Option<u64>, before: Option<Option<u64>>) -> Result<(), Refusal> {
        if asked.is_some() && self.own_message_kilobytes().is_some() && before != Some(asked) {
            return Err(Refusal::NotInTier { property: "MaxMessageSizeInKilobytes", tier: self.name() });
        }
        Ok(())
    }

    /// S-261. What an entity has from another tier it may keep.
    fn check(self, asked: &QueueSettings, before: Option<&QueueSettings>) -> Result<(), Refusal> {
        self.check_kilobytes(asked.max_message_kilobytes, before.map(|before| before.max_message_kilobytes))?;
        if self != Tier::Basic {
            return Ok(());
        }
        let life = asked.default_time_to_live;
        let is_other = |is_same: fn(&QueueSettings, &QueueSettings) -> bool| {
            before.is_none_or(|before| !is_same(asked, before))
        };
        let not_in_basic = [
            (
                "RequiresDuplicateDetection",
                asked.requires_duplicate_detection
                    && is_other(|a, b| a.requires_duplicate_detection == b.requires_duplicate_detection),
            ),
            (
                "AutoDeleteOnIdle",
                !asked.auto_delete_on_idle.is_max()
                    && is_other(|a, b| a.auto_delete_on_idle == b.auto_delete_on_idle),
            ),
            (
                "RequiresSession",
                asked.requires_session && is_other(|a, b| a.requires_session == b.requires_session),
            ),
            (
                "DefaultMessageTimeToLive",
                !life.is_max()
                    && life != BASIC_TIME_TO_LIVE
                    && is_other(|a, b| a.default_time_to_live == b.default_time_to_live),
            ),
            (
                "DuplicateDetectionHistoryTimeWindow",
                asked.duplicate_window != DUPLICATE_WINDOW_DEFAULT
                    && is_other(|a, b| a.duplicate_window == b.duplicate_window),
            ),
            ("EnableExpress", asked.express && is_other(|a, b| a.express == b.express)),
            ("ForwardTo", asked.forward_to.is_some() && is_other(|a, b| a.forward_to == b.forward_to)),
        ];
        match not_in_basic.into_iter().find(|(_, is_asked)| *is_asked) {
            Some((property, _)) => Err(Refusal::NotInTier { property, tier: self.name() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Answer;
    use crate::ids::NamespaceId;
    use crate::manage::Task;
    use crate::testing::World;

    const ALL: [Tier; 4] = [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited];

    fn refused_in(change: impl Fn(&mut QueueSettings)) -> Vec<&'static str> {
        let mut asked = QueueSettings::default();
        change(&mut asked);
        ALL.into_iter().filter(|tier| tier.settle(&asked, None).is_err()).map(Tier::name).collect()
    }

    #[test]
    fn the_basic_tier_refuses_what_it_does_not_have_and_no_other_does() {
        // S-261, S-270
        assert_eq!(refused_in(|_| {}), [""; 0]);
        let only_basic = ["Basic"];
        assert_eq!(refused_in(|s| s.requires_duplicate_detection = true), only_basic);
        assert_eq!(refused_in(|s| s.auto_delete_on_idle = AUTO_DELETE_LEAST), only_basic);
        assert_eq!(refused_in(|s| s.requires_session = true), only_basic);
        assert_eq!(refused_in(|s| s.default_time_to_live = Span::minutes(1)), only_basic);
        assert_eq!(refused_in(|s| s.duplicate_window = DUPLICATE_WINDOW_LEAST), only_basic);
        assert_eq!(refused_in(|s| s.express = true), only_basic);
        assert_eq!(refused_in(|s| s.forward_to = Some("other".into())), only_basic);
    }

    #[test]
    fn sizes_are_those_of_the_tier() {
        // S-270: nonsense is refused in each
        assert_eq!(refused_in(|s| s.max_size_megabytes = 5_120), [""; 0]);
        assert_eq!(refused_in(|s| s.max_size_megabytes = 81_920), ["Basic", "Standard"]);
        assert_eq!(refused_in(|s| s.max_size_megabytes = 5), ["Basic", "Standard", "Premium"]);
        assert_eq!(refused_in(|s| s.max_size_megabytes = 0), ["Basic", "Standard", "Premium", "Unlimited"]);
        assert_eq!(refused_in(|s| s.max_message_kilobytes = Some(2_048)), ["Basic", "Standard"]);
        assert_eq!(refused_in(|s| s.lock_duration = Span(1)).len(), 4);
    }

    // H-71
    #[test]
    fn every_size_that_a_refusal_lists_can_be_had_and_no_other() {
        let listed = |refused: Result<(), Refusal>| -> Vec<u64> {
            let text = refused.expect_err("no size").to_string();
            let (_, sizes) = text.split_once("one of the following values: ").expect("the service's words");
            sizes.trim_end_matches('.').split(';').map(|size| size.parse().expect("a size")).collect()
        };
        for (tier, largest) in ALL.into_iter().zip([5_120, 5_120, 81_920, 81_920]) {
            let sizes = listed(tier.check_offered_size(1_025));
            assert_eq!(sizes.last(), Some(&largest), "{}", tier.name());
            for size in MAX_SIZE_MEGABYTES {
                let asked = QueueSettings { max_size_megabytes: size, ..QueueSettings::default() };
                let topic = TopicSettings { max_size_megabytes: size, ..TopicSettings::default() };
                let is_listed = sizes.contains(&size);
                assert_eq!(tier.check_offered_size(size).is_ok(), is_listed);
                assert_eq!(tier.settle(&asked, None).is_ok(), is_listed || tier == Tier::Unlimited);
                assert_eq!(tier.settle_topic(&topic, None).is_ok(), is_listed || tier == Tier::Unlimited);
            }
        }
    }

    // H-71
    #[test]
    fn administrators_are_told_the_sizes_of_their_tier_wherever_they_ask() {
        let mut world = World::new();
        world.manage(Task::SetTier { tier: Tier::Standard }).unwrap();
        let queue = |size| QueueSettings { max_size_megabytes: size, ..QueueSettings::default() };
        let topic = |size| TopicSettings { max_size_megabytes: size, ..TopicSettings::default() };
        let (path, access) = (|name: &str| Box::<str>::from(name), Vec::new);
        world
            .manage(Task::CreateQueue { path: path("q"), settings: queue(1_024), access: access() })
            .unwrap();
        world
            .manage(Task::CreateTopic { path: path("t"), settings: topic(1_024), access: access() })
            .unwrap();
        for wrong in [1_025, 10_240] {
            for task in [
                Task::CreateQueue { path: path("other"), settings: queue(wrong), access: access() },
                Task::UpdateQueue { path: path("q"), settings: queue(wrong), access: access() },
                Task::CreateTopic { path: path("other"), settings: topic(wrong), access: access() },
                Task::UpdateTopic { path: path("t"), settings: topic(wrong), access: access() },
            ] {
                let told = world.manage(task.clone()).expect_err("no size of this tier").to_string();
                let expected = "values: 1024;2048;3072;4096;5120.";
                assert!(told.ends_with(expected), "{task:?}: {told}");
            }
        }
    }

    #[test]
    fn a_partitioned_queue_has_the_size_of_all_its_partitions() {
        // S-220
        let asked = QueueSettings { partitioning: true, ..QueueSettings::default() };
        let settings = Tier::Standard.settle(&asked, None).unwrap();
        assert_eq!(settings.max_size_megabytes, 16_384);
        assert_eq!(Tier::Standard.settle(&settings, Some(&settings)).unwrap().max_size_megabytes, 16_384);
        let smaller = QueueSettings { max_size_megabytes: 2_048, ..settings.clone() };
        assert_eq!(Tier::Standard.settle(&smaller, Some(&settings)).unwrap().max_size_megabytes, 32_768);
        assert_eq!(Tier::Unlimited.settle(&asked, None).unwrap().max_size_megabytes, 1_024);
    }

    #[test]
    fn a_message_lives_fourteen_days_in_the_basic_tier() {
        // S-57
        let settings = Tier::Basic.settle(&QueueSettings::default(), None).unwrap();
        assert_eq!(settings.default_time_to_live, Span::minutes(14 * 24 * 60));
        assert_eq!(Tier::Basic.time_to_live(&QueueSettings::default()), BASIC_TIME_TO_LIVE);
        assert!(Tier::Standard.time_to_live(&QueueSettings::default()).is_max());
    }

    #[test]
    fn a_partitioned_topic_has_the_size_of_all_its_partitions() {
        // K-22
        let asked = TopicSettings { partitioning: true, ..TopicSettings::default() };
        let settings = Tier::Standard.settle_topic(&asked, None).unwrap();
        assert_eq!(settings.max_size_megabytes, 16_384);
        assert_eq!(Tier::Standard.settle_topic(&settings, Some(&settings)).unwrap(), settings);
        let smaller = TopicSettings { max_size_megabytes: 2_048, ..settings.clone() };
        assert_eq!(
            Tier::Standard.settle_topic(&smaller, Some(&settings)).unwrap().max_size_megabytes,
            32_768
        );
        assert_eq!(Tier::Unlimited.settle_topic(&asked, None).unwrap().max_size_megabytes, 1_024);
    }

    #[test]
    fn the_size_of_messages_is_told_by_the_tier_and_may_be_sent_back_and_not_chosen() {
        // K-21
        for tier in [Tier::Basic, Tier::Standard] {
            let told = tier.message_kilobytes(None);
            assert_eq!((told, tier.message_kilobytes(Some(2_048))), (256, 256));
            let queue =
                |kilobytes| QueueSettings { max_message_kilobytes: kilobytes, ..QueueSettings::default() };
            let topic =
                |kilobytes| TopicSettings { max_message_kilobytes: kilobytes, ..TopicSettings::default() };
            for before in [None, Some(2_048)] {
                let kept = tier.settle(&queue(Some(told)), Some(&queue(before))).unwrap();
                assert_eq!(kept.max_message_kilobytes, before);
                let kept = tier.settle_topic(&topic(Some(told)), Some(&topic(before))).unwrap();
                assert_eq!(kept.max_message_kilobytes, before);
            }
            assert!(tier.settle(&queue(Some(told)), None).is_err());
            assert!(tier.settle_topic(&topic(Some(told)), None).is_err());
            for other in [1_024, 2_048] {
                assert!(tier.settle(&queue(Some(other)), Some(&queue(None))).is_err());
                assert!(tier.settle_topic(&topic(Some(other)), Some(&topic(None))).is_err());
            }
        }
        assert_eq!(Tier::Premium.message_kilobytes(None), 1_024);
        assert_eq!(Tier::Unlimited.message_kilobytes(Some(2_048)), 2_048);
    }

    #[test]
    fn what_a_queue_has_from_another_tier_it_may_keep() {
        // K-21
        let before = QueueSettings {
            requires_duplicate_detection: true,
            auto_delete_on_idle: AUTO_DELETE_LEAST,
            requires_session: true,
            default_time_to_live: Span::minutes(1),
            duplicate_window: DUPLICATE_WINDOW_LEAST,
            forward_to: Some("other".into()),
            max_message_kilobytes: Some(2_048),
            max_size_megabytes: 81_920,
            ..QueueSettings::default()
        };
        assert!(Tier::Basic.settle(&before, None).is_err());
        let kept = Tier::Basic.settle(&before, Some(&before)).unwrap();
        let own = QueueSettings { default_time_to_live: BASIC_TIME_TO_LIVE, ..before.clone() };
        assert_eq!(kept, own);
        let other = QueueSettings { duplicate_window: DUPLICATE_WINDOW_MOST, ..before.clone() };
        let property = "DuplicateDetectionHistoryTimeWindow";
        assert_eq!(
            Tier::Basic.settle(&other, Some(&before)),
            Err(Refusal::NotInTier { property, tier: "Basic" })
        );
    }

    #[test]
    fn each_namespace_is_held_to_its_own_tier() {
        // S-270
        let mut world = World::new();
        let other = match world.manage(Task::NameNamespace { name: "other".into() }) {
            Ok(Answer::Namespace { namespace, .. }) => namespace,
            answer => panic!("{answer:?}"),
        };
        world.broker.volatile.set_tier(other, Tier::Basic);
        assert_eq!(world.broker.tier_of(other), Tier::Basic);
        assert_eq!(world.broker.tier_of(NamespaceId(0)), Tier::Unlimited);
        world.manage(Task::SetTier { tier: Tier::Standard }).unwrap();
        assert_eq!(
            (world.broker.tier_of(NamespaceId(0)), world.broker.tier_of(other)),
            (Tier::Standard, Tier::Basic)
        );
        let large = QueueSettings { max_message_kilobytes: Some(2_048), ..QueueSettings::default() };
        assert!(matches!(
            world.try_create("q", large),
            Err(Refusal::NotInTier { .. } | Refusal::InvalidSetting { .. })
        ));
    }

    #[test]
    fn tiers_are_known_by_their_names() {
        for tier in [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited] {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert!("gold".parse::<Tier>().is_err());
    }
}
