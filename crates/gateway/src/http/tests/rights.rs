//! Who may do what at the HTTP door: every operation against every kind of claim. The matches below have no rest, so an
//! operation that is added does not build, or does not pass, until it has its row.

use super::*;
use crate::limits::CLOCK_SKEW_SECONDS;

/// Every operation: method, address, and the least right that it takes; `None` where nobody is asked.
const ROWS: &[(&str, &str, Option<Right>)] = &[
    ("GET", "/", None),
    ("HEAD", "/", None),
    ("GET", "/health", None),
    ("HEAD", "/health", None),
    ("GET", "/metrics", None),
    ("HEAD", "/metrics", None),
    ("GET", "/$servicebus/websocket?x", None),
    ("GET", "/$Resources/queues", Some(Right::Manage)),
    ("GET", "/$Resources/topics", Some(Right::Manage)),
    ("GET", "/$namespaceinfo", Some(Right::Manage)),
    ("GET", "/q", Some(Right::Manage)),
    ("PUT", "/q", Some(Right::Manage)),
    ("DELETE", "/q", Some(Right::Manage)),
    ("GET", "/t/subscriptions", Some(Right::Manage)),
    ("GET", "/t/subscriptions/s", Some(Right::Manage)),
    ("PUT", "/t/subscriptions/s", Some(Right::Manage)),
    ("DELETE", "/t/subscriptions/s", Some(Right::Manage)),
    ("GET", "/t/subscriptions/s/rules", Some(Right::Listen)),
    ("GET", "/t/subscriptions/s/rules/r", Some(Right::Listen)),
    ("PUT", "/t/subscriptions/s/rules/r", Some(Right::Manage)),
    ("DELETE", "/t/subscriptions/s/rules/r", Some(Right::Manage)),
    ("POST", "/q/messages", Some(Right::Send)),
    ("POST", "/q/messages/head?timeout=0", Some(Right::Listen)),
    ("DELETE", "/q/messages/head?timeout=0", Some(Right::Listen)),
    ("POST", "/q/$DeadLetterQueue/messages/head?timeout=0", Some(Right::Listen)),
    ("DELETE", "/t/subscriptions/s/messages/head?timeout=0", Some(Right::Listen)),
    ("PUT", LOCKED, Some(Right::Listen)),
    ("DELETE", LOCKED, Some(Right::Listen)),
    ("POST", LOCKED, Some(Right::Listen)),
    ("DELETE", "/q/messages/id/lock", Some(Right::Listen)),
    ("DELETE", "/t/subscriptions/s/messages/1/lock", Some(Right::Listen)),
    ("GET", "/$otobus/clock", Some(Right::Manage)),
    ("POST", "/$otobus/clock", Some(Right::Manage)),
    ("GET", "/$otobus/token", None),
    ("GET", "/$nothing", Some(Right::Manage)),
];

/// A message that is locked, by its number and a token of that number.
const LOCKED: &str = "/q/messages/1/00000000-0000-0000-0000-000000000001";

const ROUTES: usize = 18;

/// A number for each route, none left out.
fn number(route: &Route) -> usize {
    match route {
        Route::Health => 0,
        Route::Metrics => 1,
        Route::Queues(_) => 2,
        Route::Topics(_) => 3,
        Route::NamespaceInfo => 4,
        Route::WebSocket => 5,
        Route::Subscriptions { .. } => 6,
        Route::Subscription { .. } => 7,
        Route::Rules { .. } => 8,
        Route::Rule { .. } => 9,
        Route::Send { .. } => 10,
        Route::Receive { .. } => 13,
        Route::Locked { .. } => 15,
        Route::Entity => 11,
        Route::Nothing => 12,
        Route::Clock => 14,
        Route::Root => 16,
        Route::Token { .. } => 17,
    }
}

/// For each command or task the operation by which it comes in at this door, as method and address; `None` for what
/// does not come in here. Each variant must be named, or this does not build.
macro_rules! operations {
    ($list:ident, $check:ident, $kind:ident: $($variant:ident => $operation:expr,)*) => {
        const $list: &[(&str, Option<(&str, &str)>)] = &[$((stringify!($variant), $operation)),*];

        fn $check(asked: &$kind) {
            match asked { $($kind::$variant { .. } => {})* }
        }
    };
}

operations! { COMMANDS, has_operation, Command:
    AttachSender => Some(("POST", "/q/messages")),
    // A link to one entity for another is the affair of AMQP.
    AttachVia => None,
    AttachReceiver => Some(("POST", "/q/messages/head?timeout=0")),
    // There are no sessions over HTTP (H-91).
    AcceptSession => None,
    RenewSession => None,
    GetSessionState => None,
    SetSessionState => None,
    ListSessions => None,
    // There are no transactions over HTTP.
    AttachCoordinator => None,
    Declare => None,
    Discharge => None,
    Spoil => None,
    Within => None,
    // By links that were attached.
    Detach => None,
    Send => None,
    Part => None,
    DropParts => None,
    Credit => None,
    Settle => None,
    SettleTokens => Some(("DELETE", LOCKED)),
    RenewLocks => Some(("POST", LOCKED)),
    // To find the id of a message that is to be settled.
    Browse => Some(("DELETE", "/q/messages/id/lock")),
    // These are the affair of AMQP's management node.
    Schedule => None,
    CancelScheduled => None,
    ReceiveDeferred => None,
    DeleteMessages => None,
    // The server itself makes queues so, from its configuration.
    CreateQueue => None,
    DeleteEntity => Some(("DELETE", "/q")),
    // Asked for claims.
    DescribeEntity => None,
    // By its tasks, below.
    Manage => None,
    ListQueues => Some(("GET", "/$Resources/queues")),
    Advance => Some(("POST", "/$otobus/clock")),
}

operations! { TASKS, has_task_operation, Task:
    CreateQueue => Some(("PUT", "/q")),
    UpdateQueue => Some(("PUT", "/q")),
    CreateTopic => Some(("PUT", "/q")),
    UpdateTopic => Some(("PUT", "/q")),
    Describe => Some(("GET", "/q")),
    ListTopics => Some(("GET", "/$Resources/topics")),
    CreateSubscription => Some(("PUT", "/t/subscriptions/s")),
    UpdateSubscription => Some(("PUT", "/t/subscriptions/s")),
    DescribeSubscription => Some(("GET", "/t/subscriptions/s")),
    DeleteSubscription => Some(("DELETE", "/t/subscriptions/s")),
    ListSubscriptions => Some(("GET", "/t/subscriptions")),
    CreateRule => Some(("PUT", "/t/subscriptions/s/rules/r")),
    UpdateRule => Some(("PUT", "/t/subscriptions/s/rules/r")),
    DescribeRule => Some(("GET", "/t/subscriptions/s/rules/r")),
    DeleteRule => Some(("DELETE", "/t/subscriptions/s/rules/r")),
    ListRules => Some(("GET", "/t/subscriptions/s/rules")),
    Access => None,
    NameNamespace => None,
    ListNamespaces => None,
    SetTier => None,
    TellTime => Some(("GET", "/$otobus/clock")),
}

/// A policy that has been there.
const REMOVED: &str = "removed policy";

/// What a request shows, and the rights that this gives.
fn claims() -> Vec<(&'static str, String, &'static [Right])> {
    let (all, never) = ("https%3a%2f%2fhost", UnixSeconds::NEVER);
    let signed = |resource: &str, name: &str, key: &str, expires| {
        format!("Authorization: {}\r\n", sas::sign(resource, name, key, expires))
    };
    let expired = UnixSeconds(UnixSeconds::now().0 - CLOCK_SKEW_SECONDS);
    vec![
        ("Manage", signed(all, "manager", "key", never), &[Right::Manage, Right::Send, Right::Listen]),
        ("Send", signed(all, "sender", "key", never), &[Right::Send]),
        ("Listen", signed(all, "reader", "key", never), &[Right::Listen]),
        ("none", String::new(), &[]),
        ("expired", signed(all, "manager", "key", expired), &[]),
        ("wrong scope", signed("https%3a%2f%2fhost%2fother", "manager", "key", never), &[]),
        // The same policy with the same key is there too.
        ("another namespace", signed("https%3a%2f%2fshop.example", "manager", "key", never), &[]),
        ("a namespace that is gone", signed("https%3a%2f%2fold.example", "manager", "key", never), &[]),
        ("wrong key", signed(all, "manager", "yek", never), &[]),
        (REMOVED, signed(all, "leaving", "key", never), &[]),
        ("no token", "Authorization: Basic a2V5\r\n".into(), &[]),
    ]
}

// H-70, H-99, H-102, H-103
#[tokio::test]
async fn every_operation_takes_its_right_and_no_less() {
    for (method, address, needed) in ROWS {
        for (claim, header, rights) in claims() {
            // A new server for each, so that nothing depends on what was done before.
            let server = TestServer::default();
            if claim == REMOVED {
                let (before, body) = server.raw("GET", "/$namespaceinfo", &header).await;
                assert_eq!(before, 200, "it opens while it is there: {body}");
                server.remove_policy();
            }
            let (status, body) = server.raw(method, address, &header).await;
            let is_refused = status == 401;
            let may = match needed {
                Some(needed) => rights.contains(needed),
                // With a token, the page of health is a queue's.
                None if header.is_empty() || address.starts_with("/$") || *address == "/" => true,
                None => rights.contains(&Right::Manage),
            };
            assert_eq!(is_refused, !may, "{method} {address} with {claim}: {status} {body}");
        }
    }
}

#[test]
fn every_route_has_its_row() {
    let mut rows = [0; ROUTES];
    let mut operations: Vec<(usize, Method)> = Vec::new();
    for (method, address, needed) in ROWS {
        let method: Method = method.parse().unwrap();
        let route = Address::read(&method, &address.parse().unwrap(), false).unwrap().route;
        rows[number(&route)] += 1;
        let needs = match route.needs(&method) {
            Needs::Right(right) => Some(right),
            Needs::Nothing | Needs::Loopback => None,
        };
        assert_eq!(needs, *needed, "{method} {address}");
        let is_nothing = route == Route::Nothing;
        assert!(is_nothing || route.methods().contains(&method), "{method} is not allowed at {address}");
        operations.push((number(&route), method));
    }
    assert!(rows.iter().all(|count| *count > 0), "{rows:?}");
    // Whatever can be done at a route has a row, and the door takes no method that the route does not list.
    for (method, address, _) in ROWS {
        let route = Address::read(&method.parse().unwrap(), &address.parse().unwrap(), false).unwrap().route;
        for method in route.methods() {
            assert!(operations.contains(&(number(&route), method.clone())), "{method} {address} has no row");
        }
    }
}

#[tokio::test]
async fn a_method_without_a_row_is_not_allowed_to_anybody() {
    let methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
    for (_, address, _) in ROWS {
        for method in methods {
            if ROWS.iter().any(|row| (row.0, row.1) == (method, *address)) {
                continue;
            }
            let parsed: Method = method.parse().unwrap();
            let route = Address::read(&parsed, &address.parse().unwrap(), true).unwrap().route;
            // Another method may lead to another route, which has a row of its own.
            if route.methods().contains(&parsed) {
                continue;
            }
            let (status, _) = TestServer::default().request(As::Manager, method, address, "", "").await;
            assert!([404, 405, 426].contains(&status), "{method} {address}: {status}");
        }
    }
}

#[test]
fn every_command_and_task_comes_in_by_an_operation_with_a_row_or_not_at_all() {
    // The matches behind these make a variant without a line an error of the compiler.
    let _: fn(&Command) = has_operation;
    let _: fn(&Task) = has_task_operation;
    for (name, operation) in COMMANDS.iter().chain(TASKS) {
        let Some(operation) = operation else { continue };
        let row = ROWS.iter().find(|(method, address, _)| (*method, *address) == *operation);
        assert!(row.is_some_and(|(_, _, needed)| needed.is_some()), "{name} needs no right at {operation:?}");
    }
}

/// A command or task of each kind that comes in at this door.
fn examples() -> Vec<Command> {
    let (request, namespace) = (RequestId::default(), broker::NamespaceId(0));
    let path = || Box::<str>::from("q");
    let (topic, subscription) = (|| Box::<str>::from("t"), || Box::<str>::from("s"));
    let queue = broker::QueueSettings::default;
    let topic_settings = broker::topic::settings::TopicSettings::default;
    let settings = broker::topic::settings::SubscriptionSettings::default;
    let name = || Box::<str>::from("r");
    let rule = || broker::topic::rule::Rule {
        name: name(),
        filter: broker::topic::rule::Filter::True,
        action: None,
    };
    let (skip, top, access) = (0, 0, Vec::new);
    let tasks = [
        Task::CreateQueue { path: path(), settings: queue(), access: access() },
        Task::UpdateQueue { path: path(), settings: queue(), access: access() },
        Task::CreateTopic { path: path(), settings: topic_settings(), access: access() },
        Task::UpdateTopic { path: path(), settings: topic_settings(), access: access() },
        Task::Describe { path: path() },
        Task::ListTopics { skip, top },
        Task::CreateSubscription { topic: topic(), name: subscription(), settings: settings(), rule: None },
        Task::UpdateSubscription { topic: topic(), name: subscription(), settings: settings() },
        Task::DescribeSubscription { topic: topic(), name: subscription() },
        Task::DeleteSubscription { topic: topic(), name: subscription() },
        Task::ListSubscriptions { topic: topic(), skip, top },
        Task::CreateRule { topic: topic(), subscription: subscription(), rule: rule() },
        Task::UpdateRule { topic: topic(), subscription: subscription(), rule: rule() },
        Task::DescribeRule { topic: topic(), subscription: subscription(), name: name() },
        Task::DeleteRule { topic: topic(), subscription: subscription(), name: name() },
        Task::ListRules { topic: topic(), subscription: subscription(), skip, top },
        Task::TellTime,
    ];
    let (link, mode) = (broker::LinkId::default(), broker::ReceiveMode::PeekLock);
    let (tokens, outcome) = (Box::default, broker::Outcome::Complete);
    let from = broker::Number(1);
    let commands = [
        Command::AttachSender { link, namespace, path: path() },
        Command::AttachReceiver { link, namespace, path: path(), mode },
        Command::SettleTokens { request, namespace, path: path(), tokens: tokens(), outcome },
        Command::RenewLocks { request, namespace, path: path(), tokens: tokens() },
        Command::Browse { request, namespace, path: path(), from, most: 1, session: None },
        Command::DeleteEntity { request, namespace, path: path() },
        Command::ListQueues { request, namespace, skip, top },
        Command::Advance { request, namespace, by: broker::Span::minutes(1) },
    ];
    let managed = |task| Command::Manage { request, namespace, task: Box::new(task) };
    commands.into_iter().chain(tasks.into_iter().map(managed)).collect()
}

/// What a command or its task is called.
fn kind(command: &Command) -> (String, bool) {
    let (text, is_task) = match command {
        Command::Manage { task, .. } => (format!("{task:?}"), true),
        other => (format!("{other:?}"), false),
    };
    (text.split([' ', '{']).next().unwrap_or_default().to_owned(), is_task)
}

// What a route takes and what the command takes that comes of it are decided in two places; neither may ask for less.
#[test]
fn a_command_takes_the_right_that_its_route_takes() {
    let examples = examples();
    for (list, is_task) in [(COMMANDS, false), (TASKS, true)] {
        for (name, operation) in list {
            let Some((method, address)) = operation else { continue };
            let example = examples.iter().find(|each| kind(each) == ((*name).to_owned(), is_task));
            let command = example.unwrap_or_else(|| panic!("{name} has no example"));
            let method: Method = method.parse().unwrap();
            let address = Address::read(&method, &address.parse().unwrap(), true).unwrap();
            let Needs::Right(right) = address.route.needs(&method) else { panic!("{address:?}") };
            // Messages have addresses below their entity, and who signed no more than such an address may use it (H-101).
            let path = address.path.split("/messages").next().unwrap_or_default();
            assert_eq!(Demand::of(command), Demand::Right(right, path.into()), "{command:?}");
        }
    }
}

// A-2.4, H-99: a role is on an entity, and each address of its messages is that entity's.
#[tokio::test]
async fn a_role_on_an_entity_counts_at_every_address_of_it_and_at_no_other() {
    let server = TestServer::default();
    let development = Development::new().unwrap();
    let mut issuer = development.issuer();
    issuer.roles[0].entity = Some("q".into());
    server.trust(issuer);
    let answer = development.answer("https://servicebus.azure.net", UnixSeconds::now()).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", answer["access_token"].as_str().unwrap());
    let mut own = 0;
    for (method, address, right) in ROWS {
        let Some(_) = right else { continue };
        let is_own = *address == "/q" || address.starts_with("/q/");
        let (status, body) = server.raw(method, address, &bearer).await;
        assert_eq!(status != 401, is_own, "{method} {address}: {status} {body}");
        let other = address.replacen("/q", "/q2", 1);
        assert!(!is_own || server.raw(method, &other, &bearer).await.0 == 401, "{method} {other}");
        own += usize::from(is_own);
    }
    assert!(own >= 10);
}
