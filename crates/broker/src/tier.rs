//! Tiers: what the service sells, as profiles of quotas (semantics, sections 20 and 21). Without one nothing is refused
//! for the sake of a price list (S-270); what makes no sense is refused in each of them.

use crate::durable::PARTITIONS;
use crate::limits::*;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::time::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tier {
    Basic,
    Standard,
    Premium,
    /// For those who host themselves: no quotas.
    #[default]
    Unlimited,
}

/// Bytes of the largest message where entities cannot choose (semantics, section 21).
const SMALL_MESSAGE_BYTES: u64 = 256 * 1_024;

/// How long a message lives in the Basic tier, at most and unless it says otherwise (S-57).
const BASIC_TIME_TO_LIVE: Span = Span::minutes(14 * 24 * 60);

/// Sizes of an entity in megabytes, and those that Premium adds (semantics, section 20).
const SIZES: [u64; 5] = [1_024, 2_048, 3_072, 4_096, 5_120];
const PREMIUM_SIZES: [u64; 4] = [10_240, 20_480, 40_960, 81_920];

/// What one topic may have, in every tier (semantics, section 21).
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
            Tier::Basic | Tier::Standard => 10_000,
            Tier::Premium => 1_000,
            Tier::Unlimited => usize::MAX,
        }
    }

    /// Partitioned queues and topics in one namespace.
    pub fn partitioned_entities(self) -> usize {
        match self {
            Tier::Basic | Tier::Standard => 100,
            Tier::Premium | Tier::Unlimited => usize::MAX,
        }
    }

    /// Receivers of one entity at a time (S-98).
    pub fn receivers(self) -> usize {
        if self == Tier::Unlimited { usize::MAX } else { 5_000 }
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
            Tier::Standard => Some(500),
            Tier::Premium | Tier::Unlimited => Some(4_000),
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

    /// The settings that a queue gets when these are asked for, or why it cannot have them. `before` are those that it
    /// has, if it exists.
    pub(crate) fn settle(
        self,
        asked: &QueueSettings,
        before: Option<&QueueSettings>,
    ) -> Result<QueueSettings, Refusal> {
        asked.check()?;
        self.check(asked)?;
        let mut settings = asked.clone();
        if self == Tier::Basic {
            settings.default_time_to_live = BASIC_TIME_TO_LIVE;
        }
        // S-75: what forwards is never idle.
        if settings.forward_to.is_some() {
            settings.auto_delete_on_idle = Span::MAX;
        }
        // Clients send back the size that they were told, which is that of all partitions.
        if before.is_some_and(|before| before.max_size_megabytes == asked.max_size_megabytes) {
            return Ok(settings);
        }
        let is_offered = match self {
            Tier::Basic | Tier::Standard => SIZES.contains(&asked.max_size_megabytes),
            Tier::Premium => [&SIZES[..], &PREMIUM_SIZES].concat().contains(&asked.max_size_megabytes),
            Tier::Unlimited => true,
        };
        if !is_offered {
            let why = format!("{} is no size of the {} tier", asked.max_size_megabytes, self.name());
            return Err(Refusal::InvalidSetting { property: "MaxSizeInMegabytes", why: why.into() });
        }
        if settings.partitioning {
            settings.max_size_megabytes *= self.partitions();
        }
        Ok(settings)
    }

    /// S-261, and sizes of messages that only Premium lets one choose.
    fn check(self, asked: &QueueSettings) -> Result<(), Refusal> {
        let has_own_life =
            !asked.default_time_to_live.is_max() && asked.default_time_to_live != BASIC_TIME_TO_LIVE;
        let not_in_basic = [
            ("RequiresDuplicateDetection", asked.requires_duplicate_detection),
            ("AutoDeleteOnIdle", !asked.auto_delete_on_idle.is_max()),
            ("RequiresSession", asked.requires_session),
            ("DefaultMessageTimeToLive", has_own_life),
            ("DuplicateDetectionHistoryTimeWindow", asked.duplicate_window != DUPLICATE_WINDOW_DEFAULT),
            ("EnableExpress", asked.express),
            ("ForwardTo", asked.forward_to.is_some()),
        ];
        let not_in_small = [("MaxMessageSizeInKilobytes", asked.max_message_kilobytes.is_some())];
        let refused = match self {
            Tier::Basic => [&not_in_basic[..], &not_in_small].concat(),
            Tier::Standard => not_in_small.to_vec(),
            Tier::Premium | Tier::Unlimited => Vec::new(),
        };
        match refused.into_iter().find(|(_, is_asked)| *is_asked) {
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
    use crate::volatile::Touch;

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
    fn what_forwards_is_never_idle() {
        // S-75
        let asked = QueueSettings {
            forward_to: Some("other".into()),
            auto_delete_on_idle: AUTO_DELETE_LEAST,
            ..QueueSettings::default()
        };
        assert!(Tier::Unlimited.settle(&asked, None).unwrap().auto_delete_on_idle.is_max());
    }

    #[test]
    fn each_namespace_is_held_to_its_own_tier() {
        // S-270
        let mut world = World::new();
        let other = match world.manage(Task::NameNamespace { name: "other".into() }) {
            Ok(Answer::Namespace { namespace, .. }) => namespace,
            answer => panic!("{answer:?}"),
        };
        world.broker.volatile.apply(Touch::TierSet { namespace: other, tier: Tier::Basic });
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
