//! What an administrator may ask: everything that is not about messages. One command carries one task.
//!
//! A task is refused whole or done whole: settings, forward targets and authorization rules are checked before the
//! first record is made.

use crate::Broker;
use crate::access::{self, AccessRule};
use crate::decision::LocalDecision;
use crate::effect::Answer;
use crate::ids::NamespaceId;
use crate::limits::{NAME_CHARACTERS, NAMESPACES};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::tier::Tier;
use crate::topic::change::Change;
use crate::topic::rule::Rule;
use crate::topic::settings::{SubscriptionSettings, TopicSettings};

#[derive(Debug, Clone)]
pub enum Task {
    CreateQueue {
        path: Box<str>,
        settings: QueueSettings,
        access: Vec<AccessRule>,
    },
    UpdateQueue {
        path: Box<str>,
        settings: QueueSettings,
        access: Vec<AccessRule>,
    },
    CreateTopic {
        path: Box<str>,
        settings: TopicSettings,
        access: Vec<AccessRule>,
    },
    UpdateTopic {
        path: Box<str>,
        settings: TopicSettings,
        access: Vec<AccessRule>,
    },
    /// A queue, a topic or a subscription, whichever is at this path.
    Describe {
        path: Box<str>,
    },
    ListTopics {
        skip: usize,
        top: usize,
    },
    CreateSubscription {
        topic: Box<str>,
        name: Box<str>,
        settings: SubscriptionSettings,
        /// Instead of the one that takes everything (H-50).
        rule: Option<Rule>,
    },
    UpdateSubscription {
        topic: Box<str>,
        name: Box<str>,
        settings: SubscriptionSettings,
    },
    DescribeSubscription {
        topic: Box<str>,
        name: Box<str>,
    },
    DeleteSubscription {
        topic: Box<str>,
        name: Box<str>,
    },
    ListSubscriptions {
        topic: Box<str>,
        skip: usize,
        top: usize,
    },
    CreateRule {
        topic: Box<str>,
        subscription: Box<str>,
        rule: Rule,
    },
    UpdateRule {
        topic: Box<str>,
        subscription: Box<str>,
        rule: Rule,
    },
    DescribeRule {
        topic: Box<str>,
        subscription: Box<str>,
        name: Box<str>,
    },
    DeleteRule {
        topic: Box<str>,
        subscription: Box<str>,
        name: Box<str>,
    },
    ListRules {
        topic: Box<str>,
        subscription: Box<str>,
        skip: usize,
        top: usize,
    },
    /// The authorization rules that count at a path.
    Access {
        path: Box<str>,
    },
    /// Holds the namespace to the quotas of a tier, from now on and until the process ends: a tier is configuration.
    SetTier {
        tier: Tier,
    },
    /// The number of a namespace, given to it for good when it is asked for the first time.
    NameNamespace {
        name: Box<str>,
    },
    /// The names that were ever given to namespaces.
    ListNamespaces,
    /// What time it is in the namespace.
    TellTime,
}

/// Whether a namespace can have this name.
pub fn check_namespace(name: &str) -> Result<(), Refusal> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > NAME_CHARACTERS || !name.chars().all(is_fit) {
        let why = "a namespace's name has 1 to 50 letters, digits and hyphens";
        return Err(Refusal::InvalidName { name: name.into(), why });
    }
    Ok(())
}

impl Broker {
    pub(crate) fn manage(
        &mut self,
        namespace: NamespaceId,
        task: &Task,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        match task {
            Task::CreateQueue { path, settings, access } => {
                access::check(access)?;
                self.tier_of(namespace).check_offered_size(settings.max_size_megabytes)?;
                self.create_queue(namespace, path, settings, decision)?;
                self.with_access(namespace, path, access, decision)
            }
            Task::UpdateQueue { path, settings, access } => {
                access::check(access)?;
                self.check_changed_size(namespace, path, settings.max_size_megabytes)?;
                self.update_queue(namespace, path, settings, decision)?;
                self.with_access(namespace, path, access, decision)
            }
            Task::CreateTopic { path, settings, access } => {
                access::check(access)?;
                self.create_topic(namespace, path, settings, decision)?;
                self.with_access(namespace, path, access, decision)
            }
            Task::UpdateTopic { path, settings, access } => {
                access::check(access)?;
                self.update_topic(namespace, path, settings, decision)?;
                self.with_access(namespace, path, access, decision)
            }
            Task::Describe { path } => self.describe_entity(namespace, path),
            Task::ListTopics { skip, top } => Ok(self.list_topics(namespace, *skip, *top)),
            Task::CreateSubscription { topic, name, settings, rule } => {
                self.create_subscription(namespace, topic, name, settings, rule.as_ref(), decision)
            }
            Task::UpdateSubscription { topic, name, settings } => {
                self.update_subscription(namespace, topic, name, settings, decision)
            }
            Task::DescribeSubscription { topic, name } => {
                let (entity, _) = self.find_subscription(namespace, topic, name)?;
                self.describe_subscription(entity)
            }
            Task::DeleteSubscription { topic, name } => {
                self.delete_subscription(namespace, topic, name, decision)
            }
            Task::ListSubscriptions { topic, skip, top } => {
                self.list_subscriptions(namespace, topic, *skip, *top)
            }
            Task::CreateRule { topic, subscription, rule } => {
                self.put_rule(namespace, topic, subscription, rule, false, decision)
            }
            Task::UpdateRule { topic, subscription, rule } => {
                self.put_rule(namespace, topic, subscription, rule, true, decision)
            }
            Task::DescribeRule { topic, subscription, name } => {
                self.describe_rule(namespace, topic, subscription, name)
            }
            Task::DeleteRule { topic, subscription, name } => {
                self.delete_rule(namespace, topic, subscription, name, decision)
            }
            Task::ListRules { topic, subscription, skip, top } => {
                self.list_rules(namespace, topic, subscription, *skip, *top)
            }
            Task::Access { path } => Ok(Answer::Access(self.access_at(namespace, path))),
            Task::SetTier { tier } => {
                self.volatile.set_tier(namespace, *tier);
                Ok(Answer::Time(decision.now))
            }
            Task::NameNamespace { name } => self.name_namespace(name, decision),
            Task::ListNamespaces => Ok(Answer::Namespaces(self.durable.namespace_names())),
            Task::TellTime => Ok(Answer::Time(decision.now)),
        }
    }

    fn with_access(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        access: &[AccessRule],
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let entity = self.durable.find(namespace, path).expect("it was created or found just now");
        self.set_access(entity, access, decision);
        self.describe_entity(namespace, path)
    }

    /// What a queue has it may keep, also when it is the size of all its partitions (S-220).
    fn check_changed_size(&self, namespace: NamespaceId, path: &str, megabytes: u64) -> Result<(), Refusal> {
        let queue = self.durable.find(namespace, path).and_then(|entity| self.durable.queue(entity));
        match queue {
            Some(queue) if queue.settings.max_size_megabytes == megabytes => Ok(()),
            _ => self.tier_of(namespace).check_offered_size(megabytes),
        }
    }

    pub(crate) fn check_queue_forwards(
        &self,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        before: Option<&QueueSettings>,
    ) -> Result<(), Refusal> {
        let targets = |settings: &QueueSettings| {
            [&settings.forward_to, &settings.forward_dead_letters_to].map(Option::clone)
        };
        self.check_forwards(namespace, path, targets(settings), before.map(targets))
    }

    /// S-171: where messages are forwarded to must exist. `own` is the path of the source, `before` are the targets that it has,
    /// if it is updated. It may keep them, whatever became of them (K-21), and forward to itself: the hop limit ends the
    /// journey (K-24).
    pub(crate) fn check_forwards(
        &self,
        namespace: NamespaceId,
        own: &str,
        targets: [Option<Box<str>>; 2],
        before: Option<[Option<Box<str>>; 2]>,
    ) -> Result<(), Refusal> {
        let is_update = before.is_some();
        let properties = ["ForwardTo", "ForwardDeadLetteredMessagesTo"];
        for ((property, target), before) in
            properties.into_iter().zip(targets).zip(before.unwrap_or_default())
        {
            let Some(target) = target else { continue };
            let path = forward_path(&target);
            if before.is_some_and(|before| forward_path(&before) == path) {
                continue;
            }
            if path.to_lowercase() == own.to_lowercase() && !is_update {
                let why = "an entity cannot forward to itself".into();
                return Err(Refusal::InvalidSetting { property, why });
            }
            if self.durable.find(namespace, path).is_none() {
                return Err(Refusal::ForwardTargetNotFound(path.into()));
            }
        }
        Ok(())
    }

    fn name_namespace(&mut self, name: &str, decision: &mut LocalDecision<'_>) -> Result<Answer, Refusal> {
        check_namespace(name)?;
        let named = self.durable.namespace_named(name);
        let namespace = named.unwrap_or(self.durable.next_namespace());
        if namespace.0 as usize >= NAMESPACES {
            return Err(Refusal::NotAllowed("the server holds as many namespaces as it may"));
        }
        // The one called `default` was always there; it counts from when it is asked for.
        let known = named.and_then(|namespace| self.durable.namespace(namespace)?.created);
        if known.is_none() {
            let change = Change::NamespaceNamed { namespace, name: name.into() };
            self.write(Record::Managed(Box::new(change)), decision);
        }
        Ok(Answer::Namespace { namespace, created: known.unwrap_or(decision.now) })
    }
}

/// The path in a forward target, which may be an absolute address of any scheme (S-179).
pub fn forward_path(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => target,
    };
    path.trim_matches('/')
}

/// A forward target as it is told: of an absolute address the scheme and the host in lower case, the path as it came (K-25).
pub(crate) fn forward_address(target: &str) -> Box<str> {
    let Some((scheme, rest)) = target.split_once("://") else { return target.into() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{}://{}{path}", scheme.to_lowercase(), host.to_lowercase()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Status;
    use crate::testing::World;
    use crate::time::{Span, Time};

    fn update(path: &str, settings: QueueSettings) -> Task {
        Task::UpdateQueue { path: path.into(), settings, access: Vec::new() }
    }

    #[test]
    fn an_update_changes_settings_and_leaves_messages() {
        // H-12
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        world.now = Time(5_000_000);
        let settings = QueueSettings { max_delivery_count: 3, ..QueueSettings::default() };
        let Ok(Answer::Queue(queue)) = world.manage(update("Q", settings.clone())) else { panic!("updated") };
        assert_eq!((&*queue.path, &queue.settings, queue.updated), ("q", &settings, world.local()));
        assert!(queue.created < queue.updated);
        assert_eq!(world.queue("q").counts.active, 2);
        let missing = world.manage(update("r", settings));
        assert_eq!(missing, Err(Refusal::EntityNotFound("r".into())));
        world.check_whole_replay();
    }

    #[test]
    fn what_is_fixed_cannot_change_and_a_bad_value_changes_nothing() {
        // S-260
        let mut world = World::with_queue("q");
        let usual = QueueSettings::default;
        for (property, settings) in [
            ("RequiresSession", QueueSettings { requires_session: true, ..usual() }),
            ("RequiresDuplicateDetection", QueueSettings { requires_duplicate_detection: true, ..usual() }),
            ("EnablePartitioning", QueueSettings { partitioning: true, ..usual() }),
        ] {
            let refused = world.manage(update("q", settings));
            assert_eq!(refused, Err(Refusal::Unchangeable { property, kind: "Queue" }));
        }
        let bad = QueueSettings { lock_duration: Span(1), status: Status::Disabled, ..usual() };
        assert!(matches!(world.manage(update("q", bad)), Err(Refusal::InvalidSetting { .. })));
        assert_eq!(world.queue("q").settings, usual());
    }

    #[test]
    fn an_odd_size_may_stay_and_not_come() {
        let mut world = World::new();
        let sized = |megabytes| QueueSettings { max_size_megabytes: megabytes, ..QueueSettings::default() };
        world.create("q", sized(7));
        assert!(world.manage(update("q", sized(7))).is_ok());
        assert!(matches!(world.manage(update("q", sized(8))), Err(Refusal::InvalidSetting { .. })));
        assert!(world.manage(update("q", sized(2_048))).is_ok());
    }

    #[test]
    fn a_forward_target_must_exist_and_be_another() {
        // S-171, S-179
        let mut world = World::with_queue("q");
        let forward = |to: &str| QueueSettings { forward_to: Some(to.into()), ..QueueSettings::default() };
        let create = |path: &str, settings| Task::CreateQueue { path: path.into(), settings, access: vec![] };
        assert!(world.manage(create("a", forward("https://host:5300/Q"))).is_ok());
        assert_eq!(
            world.manage(create("b", forward("sb://host/x/y"))),
            Err(Refusal::ForwardTargetNotFound("x/y".into()))
        );
        let itself = world.manage(create("c", forward("sb://host/C")));
        assert!(matches!(itself, Err(Refusal::InvalidSetting { property: "ForwardTo", .. })));
        let failed = QueueSettings { forward_dead_letters_to: Some("n".into()), ..QueueSettings::default() };
        assert_eq!(world.manage(update("q", failed)), Err(Refusal::ForwardTargetNotFound("n".into())));
    }

    #[test]
    fn a_target_that_is_gone_may_stay_and_no_other_may_come() {
        // K-21
        let mut world = World::with_queue("q");
        world
            .manage(Task::CreateTopic {
                path: "t".into(),
                settings: TopicSettings::default(),
                access: vec![],
            })
            .unwrap();
        let subscribe = |forward_to: &str| SubscriptionSettings {
            forward_to: Some(forward_to.into()),
            ..SubscriptionSettings::default()
        };
        let (topic, name): (Box<str>, Box<str>) = ("t".into(), "s".into());
        world.create("x", QueueSettings::default());
        let settings = QueueSettings {
            forward_to: Some("sb://host/x".into()),
            forward_dead_letters_to: Some("x".into()),
            ..QueueSettings::default()
        };
        world.manage(update("q", settings.clone())).unwrap();
        let (of, called) = (topic.clone(), name.clone());
        let task = Task::CreateSubscription { topic: of, name: called, settings: subscribe("x"), rule: None };
        world.manage(task).unwrap();
        world.delete("x");
        assert!(world.manage(update("q", settings.clone())).is_ok());
        let other = QueueSettings { forward_to: Some("y".into()), ..settings };
        assert_eq!(world.manage(update("q", other)), Err(Refusal::ForwardTargetNotFound("y".into())));
        let mut resubscribe = |to: &str| {
            let (topic, name) = (topic.clone(), name.clone());
            world.manage(Task::UpdateSubscription { topic, name, settings: subscribe(to) })
        };
        assert!(resubscribe("x").is_ok());
        assert_eq!(resubscribe("y"), Err(Refusal::ForwardTargetNotFound("y".into())));
    }

    #[test]
    fn an_address_is_told_with_scheme_and_host_in_lower_case() {
        // K-25
        for (given, told) in [
            ("SB://Host.Example:5671/Some/Queue", "sb://host.example:5671/Some/Queue"),
            ("HTTPS://HOST", "https://host"),
            ("Some/Queue", "Some/Queue"),
        ] {
            assert_eq!(&*forward_address(given), told);
        }
        let mut world = World::with_queue("Q");
        let forward = QueueSettings { forward_to: Some("SB://Host/Q".into()), ..QueueSettings::default() };
        world.create("a", forward);
        assert_eq!(world.queue("a").settings.forward_to.as_deref(), Some("sb://host/Q"));
    }

    #[test]
    fn a_namespace_keeps_its_number() {
        let mut world = World::new();
        let name = |name: &str| Task::NameNamespace { name: name.into() };
        let named = |namespace, created| Ok(Answer::Namespace { namespace: NamespaceId(namespace), created });
        let start = world.local();
        assert_eq!(world.manage(name("default")), named(0, start));
        world.pass(Span(1));
        assert_eq!(world.manage(name("shop")), named(1, start.after(Span(1))));
        world.pass(Span(1));
        assert_eq!(world.manage(name("SHOP")), named(1, start.after(Span(1))));
        // HX-1.2.8: the time of its creation is kept, also where time was moved.
        let moved = world.advance(0, Span::minutes(1), Span(1)).unwrap().now;
        assert_eq!(world.manage(name("bank")), named(2, moved));
        world.restart();
        assert_eq!(world.manage(name("Default")), named(0, start));
        assert_eq!(world.manage(name("bank")), named(2, moved));
        let all = ["default", "shop", "bank"].map(Into::into).to_vec();
        assert_eq!(world.manage(Task::ListNamespaces), Ok(Answer::Namespaces(all)));
        for bad in ["", "a.b", "a/b"] {
            assert!(matches!(world.manage(name(bad)), Err(Refusal::InvalidName { .. })), "{bad}");
        }
        world.check_whole_replay();
    }
}
