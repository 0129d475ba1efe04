//! Which right each command takes: the one list, for every door.
//!
//! The matches have no rest. A command or a task that is added does not build until somebody has decided who may ask for
//! it, and the tests of the doors go through the same list.

use super::{Claims, Denied, Grant, Right, UnixSeconds};
use broker::{Command, Task};
use std::borrow::Cow;

/// What a command takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand<'a> {
    /// This right on this path.
    Right(Right, Cow<'a, str>),
    /// To send to both of these paths (S-114).
    SendVia([Cow<'a, str>; 2]),
    /// A link that is attached: its right was asked for then, and the link ends when the right does.
    Link,
    /// Nothing: what is done by it is judged by itself.
    Nothing,
    /// Nothing, because no peer can ask for it: the server does, to find out what a peer may do.
    Server,
}

/// Lists are asked for at addresses of their own (H-10), so a claim for one entity does not show the others.
const QUEUES: &str = "$Resources/queues";
const TOPICS: &str = "$Resources/topics";
/// The time of the whole namespace.
const CLOCK: &str = "$otobus/clock";

impl<'a> Demand<'a> {
    pub fn of(command: &'a Command) -> Demand<'a> {
        let on = |right, path: &'a str| Demand::Right(right, path.into());
        match command {
            Command::AttachSender { path, .. }
            | Command::Schedule { path, .. }
            | Command::CancelScheduled { path, .. } => on(Right::Send, path),
            Command::AttachVia { path, destination, .. } => {
                Demand::SendVia([(&**path).into(), (&**destination).into()])
            }
            Command::AttachReceiver { path, .. }
            | Command::AcceptSession { path, .. }
            | Command::RenewSession { path, .. }
            | Command::GetSessionState { path, .. }
            | Command::SetSessionState { path, .. }
            | Command::ListSessions { path, .. }
            | Command::SettleTokens { path, .. }
            | Command::RenewLocks { path, .. }
            | Command::ReceiveDeferred { path, .. }
            | Command::Browse { path, .. }
            | Command::DeleteMessages { path, .. } => on(Right::Listen, path),
            Command::Send { .. }
            | Command::Part { .. }
            | Command::DropParts { .. }
            | Command::Credit { .. }
            | Command::Settle { .. }
            | Command::Declare { .. }
            | Command::Discharge { .. }
            | Command::Spoil { .. }
            | Command::Detach { .. } => Demand::Link,
            Command::AttachCoordinator { .. } => Demand::Nothing,
            Command::Within { command, .. } => Demand::of(command),
            Command::CreateQueue { path, .. } | Command::DeleteEntity { path, .. } => on(Right::Manage, path),
            Command::ListQueues { .. } => on(Right::Manage, QUEUES),
            Command::Advance { .. } => on(Right::Manage, CLOCK),
            // Whether an entity exists is asked for a claim that covers it.
            Command::DescribeEntity { .. } => Demand::Server,
            Command::Manage { task, .. } => Demand::of_task(task),
        }
    }

    /// The path is the one of the task's own address, because a client may sign no more than that (H-101). Descriptions
    /// show keys, so reading them takes Manage; rules are also the affair of receivers.
    fn of_task(task: &'a Task) -> Demand<'a> {
        let on = |right, path: &'a str| Demand::Right(right, path.into());
        let below = |right, path: String| Demand::Right(right, path.into());
        let rule = |right, topic: &str, subscription: &str, name: &str| {
            below(right, format!("{topic}/subscriptions/{subscription}/rules/{name}"))
        };
        match task {
            Task::CreateQueue { path, .. }
            | Task::UpdateQueue { path, .. }
            | Task::CreateTopic { path, .. }
            | Task::UpdateTopic { path, .. }
            | Task::Describe { path } => on(Right::Manage, path),
            Task::ListTopics { .. } => on(Right::Manage, TOPICS),
            Task::CreateSubscription { topic, name, .. }
            | Task::UpdateSubscription { topic, name, .. }
            | Task::DescribeSubscription { topic, name }
            | Task::DeleteSubscription { topic, name } => {
                below(Right::Manage, format!("{topic}/subscriptions/{name}"))
            }
            Task::ListSubscriptions { topic, .. } => below(Right::Manage, format!("{topic}/subscriptions")),
            Task::CreateRule { topic, subscription, rule: new }
            | Task::UpdateRule { topic, subscription, rule: new } => {
                rule(Right::Manage, topic, subscription, &new.name)
            }
            Task::DeleteRule { topic, subscription, name } => rule(Right::Manage, topic, subscription, name),
            Task::DescribeRule { topic, subscription, name } => {
                rule(Right::Listen, topic, subscription, name)
            }
            Task::ListRules { topic, subscription, .. } => {
                below(Right::Listen, format!("{topic}/subscriptions/{subscription}/rules"))
            }
            Task::TellTime => on(Right::Manage, CLOCK),
            // The rules of an entity are asked for to judge a claim.
            Task::Access { .. }
            | Task::SetTier { .. }
            | Task::NameNamespace { .. }
            | Task::ListNamespaces => Demand::Server,
        }
    }

    /// Whether these claims allow what is demanded: one of them on each path.
    pub fn check(&self, claims: &Claims, now: UnixSeconds) -> Result<(), Denied> {
        self.check_each(|path, right| claims.check(path, right, now))
    }

    /// Whether this one claim does.
    pub fn check_one(&self, grant: &Grant, now: UnixSeconds) -> Result<(), Denied> {
        self.check_each(|path, right| grant.check(path, right, now))
    }

    fn check_each(&self, check: impl Fn(&str, Right) -> Result<(), Denied>) -> Result<(), Denied> {
        match self {
            Demand::Right(right, path) => check(path, *right),
            Demand::SendVia(paths) => paths.iter().try_for_each(|path| check(path, Right::Send)),
            Demand::Link | Demand::Nothing | Demand::Server => Ok(()),
        }
    }
}
