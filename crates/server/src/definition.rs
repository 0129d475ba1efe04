//! What shall exist: namespaces with their policies, queues, topics, subscriptions and rules, as files declare them.
//!
//! One rule, at a start and at a reload: what a file declares is as the file says, what is missing is created and what
//! differs is changed. What it does not declare is left alone, nothing is ever deleted, and messages are not touched.

use crate::issuer_table::IssuerDefinition;
use anyhow::bail;
use broker::manage::forward_path;
use broker::topic::rule::Rule;
use broker::topic::settings::{SubscriptionSettings, TopicSettings};
use broker::{Answer, Command, LocalTime, NamespaceId, QueueSettings, Refusal, Task, Tier};
use engine::Handle;
use gateway::auth::Policy;
use std::path::{Path, PathBuf};

/// The namespace that every server has.
pub const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, Clone)]
pub struct Definition {
    pub name: Box<str>,
    /// The quotas that it is held to.
    pub tier: Tier,
    pub policies: Vec<Policy>,
    /// Those whose bearer tokens count.
    pub issuers: Vec<IssuerDefinition>,
    pub queues: Vec<Queue>,
    pub topics: Vec<Topic>,
    /// The file that says so, if one does.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub path: Box<str>,
    pub settings: QueueSettings,
    pub declared: Declared,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub path: Box<str>,
    pub settings: TopicSettings,
    pub subscriptions: Vec<Subscription>,
    pub declared: Declared,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub name: Box<str>,
    pub settings: SubscriptionSettings,
    /// None of them: the rule that takes everything.
    pub rules: Vec<Rule>,
    pub declared: Declared,
}

/// The lines of a file that declare something, for what only the broker can complain of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    pub at: usize,
    pub forward_to: Option<usize>,
    pub forward_dead_letters_to: Option<usize>,
}

impl Declared {
    /// The line that a refusal is about. `targets` are where the thing forwards its messages and its dead letters to.
    fn line(&self, refusal: &Refusal, targets: [Option<&str>; 2]) -> usize {
        let is_target = |target: Option<&str>, path: &str| target.map(forward_path) == Some(path);
        let line = match refusal {
            Refusal::InvalidSetting { property: "ForwardTo", .. } => self.forward_to,
            Refusal::InvalidSetting { property: "ForwardDeadLetteredMessagesTo", .. } => {
                self.forward_dead_letters_to
            }
            Refusal::ForwardTargetNotFound(path) if is_target(targets[0], path) => self.forward_to,
            Refusal::ForwardTargetNotFound(_) => self.forward_dead_letters_to,
            _ => None,
        };
        line.unwrap_or(self.at)
    }

    /// The same, each line told by another number before.
    pub fn map(&mut self, line: impl Fn(usize) -> usize) {
        self.at = line(self.at);
        self.forward_to = self.forward_to.map(&line);
        self.forward_dead_letters_to = self.forward_dead_letters_to.map(line);
    }
}

impl Definition {
    pub fn named(name: &str) -> Definition {
        let tier = Tier::default();
        let (policies, issuers, queues, topics) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Definition { name: name.into(), tier, policies, issuers, queues, topics, file: None }
    }

    /// Where each thing in it is declared.
    pub fn places(&mut self) -> impl Iterator<Item = &mut Declared> {
        let queues = self.queues.iter_mut().map(|queue| &mut queue.declared);
        let topics = self.topics.iter_mut().flat_map(|topic| {
            let subscriptions = topic.subscriptions.iter_mut().map(|each| &mut each.declared);
            std::iter::once(&mut topic.declared).chain(subscriptions)
        });
        queues.chain(topics)
    }
}

/// A namespace as far as it could be made.
#[derive(Debug)]
pub struct Applied {
    /// Its number and since when it is there; none if it could not be named.
    pub namespace: Option<(NamespaceId, LocalTime)>,
    pub not_taken: Vec<NotTaken>,
}

/// What could not be taken, by its name and with the reason.
#[derive(Debug)]
pub struct NotTaken {
    pub what: String,
    /// It is there, only not as the file says.
    pub is_there: bool,
}

/// Makes the namespace and what it shall have. What is refused keeps nothing else from being taken.
pub async fn apply(engine: &Handle, definition: &Definition) -> Applied {
    let name = definition.name.clone();
    let (namespace, created) = match ask(engine, NamespaceId(0), Task::NameNamespace { name }).await {
        Ok(Answer::Namespace { namespace, created }) => (namespace, created),
        Ok(other) => return Applied::nothing(definition, &format!("the broker answered {other:?}")),
        Err(why) => return Applied::nothing(definition, &why.to_string()),
    };
    let mut not_taken = Vec::new();
    let tier = definition.tier;
    if let Err(why) = ask(engine, namespace, Task::SetTier { tier }).await {
        let what = format!("the tier of namespace `{}` cannot be set: {why}", definition.name);
        not_taken.push(NotTaken { what, is_there: false });
    }
    let site = Site { engine, namespace, file: definition.file.as_deref() };
    let mut has_subscription = true;
    for step in steps(definition) {
        let is_rule = step.is_rule;
        if is_rule && !has_subscription {
            continue;
        }
        let taken = site.take(step).await;
        has_subscription = if is_rule { has_subscription } else { taken.is_ok() };
        not_taken.extend(taken.err());
    }
    Applied { namespace: Some((namespace, created)), not_taken }
}

impl Applied {
    fn nothing(definition: &Definition, why: &str) -> Applied {
        let what = format!("namespace `{}` cannot be created: {why}", definition.name);
        Applied { namespace: None, not_taken: vec![NotTaken { what, is_there: false }] }
    }
}

/// The names that namespaces ever had, those that are no longer declared among them.
pub async fn known_namespaces(engine: &Handle) -> anyhow::Result<Vec<Box<str>>> {
    match ask(engine, NamespaceId(0), Task::ListNamespaces).await? {
        Answer::Namespaces(names) => Ok(names),
        other => bail!("the broker answered {other:?} for the names of namespaces"),
    }
}

/// A task, the one to take its place if its object exists, and what to call it.
struct Step {
    what: String,
    create: Task,
    update: Task,
    /// A rule belongs to the subscription of the step before it.
    is_rule: bool,
    declared: Declared,
}

impl Step {
    /// Where it forwards messages and dead letters to.
    fn targets(&self) -> [Option<&str>; 2] {
        match &self.create {
            Task::CreateQueue { settings, .. } => {
                [settings.forward_to.as_deref(), settings.forward_dead_letters_to.as_deref()]
            }
            Task::CreateSubscription { settings, .. } => {
                [settings.forward_to.as_deref(), settings.forward_dead_letters_to.as_deref()]
            }
            _ => [None, None],
        }
    }
}

/// What forwards comes after what it may forward to: everything is made without forwarding first.
fn steps(definition: &Definition) -> Vec<Step> {
    let mut steps = Vec::new();
    let queue = |Queue { path, settings, declared }: &Queue| Step {
        what: format!("queue `{path}`"),
        create: Task::CreateQueue { path: path.clone(), settings: settings.clone(), access: Vec::new() },
        update: Task::UpdateQueue { path: path.clone(), settings: settings.clone(), access: Vec::new() },
        is_rule: false,
        declared: declared.clone(),
    };
    let forwards = |queue: &Queue| {
        queue.settings.forward_to.is_some() || queue.settings.forward_dead_letters_to.is_some()
    };
    steps.extend(definition.queues.iter().filter(|queue| !forwards(queue)).map(queue));
    for topic in &definition.topics {
        let (path, settings) = (&topic.path, &topic.settings);
        steps.push(Step {
            what: format!("topic `{path}`"),
            create: Task::CreateTopic { path: path.clone(), settings: settings.clone(), access: Vec::new() },
            update: Task::UpdateTopic { path: path.clone(), settings: settings.clone(), access: Vec::new() },
            is_rule: false,
            declared: topic.declared.clone(),
        });
    }
    // A queue that forwards to another that forwards: as often as it takes, the one that is forwarded to first.
    let mut waiting: Vec<_> = definition.queues.iter().filter(|queue| forwards(queue)).collect();
    while !waiting.is_empty() {
        let names: Vec<String> = waiting.iter().map(|queue| queue.path.to_lowercase()).collect();
        let is_free = |queue: &&Queue| {
            [&queue.settings.forward_to, &queue.settings.forward_dead_letters_to]
                .into_iter()
                .flatten()
                .all(|target| !names.contains(&forward_path(target).to_lowercase()))
        };
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_free);
        // A circle: in the order of the file, and the broker says what is missing.
        let (ready, rest) = if ready.is_empty() { (rest, Vec::new()) } else { (ready, rest) };
        steps.extend(ready.into_iter().map(queue));
        waiting = rest;
    }
    for topic in &definition.topics {
        for subscription in &topic.subscriptions {
            steps.extend(subscription_steps(&topic.path, subscription));
        }
    }
    steps
}

fn subscription_steps(topic: &str, subscription: &Subscription) -> Vec<Step> {
    let (name, settings) = (&subscription.name, &subscription.settings);
    let what = format!("subscription `{topic}/{name}`");
    let mut rules = subscription.rules.iter();
    let rule = rules.next().cloned();
    let create = Task::CreateSubscription {
        topic: topic.into(),
        name: name.clone(),
        settings: settings.clone(),
        rule: rule.clone(),
    };
    let update =
        Task::UpdateSubscription { topic: topic.into(), name: name.clone(), settings: settings.clone() };
    let declared = subscription.declared.clone();
    let mut steps = vec![Step { what, create, update, is_rule: false, declared: declared.clone() }];
    for rule in rule.iter().chain(rules) {
        let (topic, subscription, rule) = (Box::<str>::from(topic), name.clone(), rule.clone());
        steps.push(Step {
            what: format!("rule `{}` of subscription `{topic}/{name}`", rule.name),
            create: Task::CreateRule {
                topic: topic.clone(),
                subscription: subscription.clone(),
                rule: rule.clone(),
            },
            update: Task::UpdateRule { topic, subscription, rule },
            is_rule: true,
            declared: declared.clone(),
        });
    }
    steps
}

struct Site<'a> {
    engine: &'a Handle,
    namespace: NamespaceId,
    file: Option<&'a Path>,
}

impl Site<'_> {
    async fn take(&self, mut step: Step) -> Result<(), NotTaken> {
        let targets = step.targets().map(|target| target.map(Box::<str>::from));
        let (declared, what) = (step.declared, step.what);
        // As a line of a file that cannot be read is named.
        let place = |why: &Failed| match (self.file, why) {
            (Some(file), Failed::Refused(refusal)) => {
                let line = declared.line(refusal, targets.each_ref().map(|target| target.as_deref()));
                format!("{} line {line}: ", file.display())
            }
            _ => String::new(),
        };
        match self.ask(step.create).await {
            Ok(_) => return Ok(()),
            Err(Failed::Refused(Refusal::EntityExists(_))) => {}
            Err(why) => {
                let what = format!("{}{what} cannot be created: {why}", place(&why));
                return Err(NotTaken { what, is_there: false });
            }
        }
        if self.is_as_said(&mut step.update).await {
            return Ok(());
        }
        let changed = self.ask(step.update).await;
        changed.map(drop).map_err(|why| NotTaken {
            what: format!("{}{what} cannot be changed to this: {why}", place(&why)),
            is_there: true,
        })
    }

    /// Whether a change would change nothing; then none is written. Authorization rules, of which a file says nothing, are
    /// put into the change as they are, so that they stay.
    async fn is_as_said(&self, update: &mut Task) -> bool {
        let task = match &*update {
            Task::UpdateQueue { path, .. } | Task::UpdateTopic { path, .. } => {
                Task::Describe { path: path.clone() }
            }
            Task::UpdateSubscription { topic, name, .. } => {
                Task::DescribeSubscription { topic: topic.clone(), name: name.clone() }
            }
            Task::UpdateRule { topic, subscription, rule } => Task::DescribeRule {
                topic: topic.clone(),
                subscription: subscription.clone(),
                name: rule.name.clone(),
            },
            _ => return false,
        };
        match (self.ask(task).await, update) {
            (Ok(Answer::Queue(queue)), Task::UpdateQueue { settings, access, .. }) => {
                *access = queue.access;
                queue.settings == *settings
            }
            (Ok(Answer::Topic(topic)), Task::UpdateTopic { settings, access, .. }) => {
                *access = topic.access;
                topic.settings == *settings
            }
            (Ok(Answer::Subscription(found)), Task::UpdateSubscription { settings, .. }) => {
                found.settings == *settings
            }
            // The name keeps the spelling of its creation (S-189).
            (Ok(Answer::Rule(found)), Task::UpdateRule { rule, .. }) => {
                (&found.rule.filter, &found.rule.action) == (&rule.filter, &rule.action)
            }
            _ => false,
        }
    }

    async fn ask(&self, task: Task) -> Result<Answer, Failed> {
        ask(self.engine, self.namespace, task).await
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Refused(Refusal),
    #[error("{0}")]
    Stopped(#[from] engine::Stopped),
}

async fn ask(engine: &Handle, namespace: NamespaceId, task: Task) -> Result<Answer, Failed> {
    let task = Box::new(task);
    let answered = engine.ask(|request| Command::Manage { request, namespace, task }).await?;
    answered.map_err(Failed::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_the_line_of_what_it_names() {
        let declared = Declared { at: 1, forward_to: Some(2), forward_dead_letters_to: Some(3) };
        let targets = [Some("a"), Some("b")];
        let missing = |path: &str| Refusal::ForwardTargetNotFound(path.into());
        for (refusal, line) in [(missing("a"), 2), (missing("b"), 3), (Refusal::NoSpace, 1)] {
            assert_eq!(declared.line(&refusal, targets), line, "{refusal}");
        }
        let nowhere = Declared { forward_to: None, forward_dead_letters_to: None, ..declared };
        assert_eq!(nowhere.line(&missing("b"), targets), 1);
    }

    #[test]
    fn queues_and_subscriptions_know_where_they_forward_to() {
        let forwards = |to: &str| (Some(Box::from(to)), Some(Box::from(format!("{to}-dead"))));
        let mut definition = Definition::named(DEFAULT_NAMESPACE);
        let (forward_to, forward_dead_letters_to) = forwards("of-queue");
        definition.queues.push(Queue {
            path: "q".into(),
            settings: QueueSettings { forward_to, forward_dead_letters_to, ..QueueSettings::default() },
            declared: Declared::default(),
        });
        let (forward_to, forward_dead_letters_to) = forwards("of-subscription");
        let settings =
            SubscriptionSettings { forward_to, forward_dead_letters_to, ..SubscriptionSettings::default() };
        let (rules, declared) = (Vec::new(), Declared::default());
        let subscriptions =
            vec![Subscription { name: "s".into(), settings, rules, declared: declared.clone() }];
        let settings = TopicSettings::default();
        definition.topics.push(Topic { path: "t".into(), settings, subscriptions, declared });
        let steps = steps(&definition);
        let targets: Vec<_> =
            steps.iter().map(Step::targets).filter(|targets| targets[0].is_some()).collect();
        let expected = ["of-queue", "of-subscription"];
        assert_eq!(targets.iter().map(|targets| targets[0].unwrap()).collect::<Vec<_>>(), expected);
        assert!(targets.iter().all(|targets| targets[1].unwrap() == format!("{}-dead", targets[0].unwrap())));
    }
}
