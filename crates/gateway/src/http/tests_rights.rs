//! Who may do what at the HTTP door: every operation against every kind of claim. The matches below have no rest, so an
//! operation that is added does not build, or does not pass, until it has its row.

use super::tests::House;
use super::*;
use crate::auth::Right;
use crate::limits::CLOCK_SKEW_SECONDS;

/// Every operation: method, address, and the least right that it takes; `None` where nobody is asked.
const ROWS: &[(&str, &str, Option<Right>)] = &[
    ("GET", "/health", None),
    ("GET", "/metrics", None),
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
    ("POST", "/t/subscriptions/s/messages", Some(Right::Send)),
    ("POST", "/q/messages/head?timeout=0", Some(Right::Listen)),
    ("DELETE", "/q/messages/head?timeout=0", Some(Right::Listen)),
    ("PUT", "/q/messages/head", Some(Right::Listen)),
    ("POST", "/q/$DeadLetterQueue/messages/head?timeout=0", Some(Right::Listen)),
    ("DELETE", "/t/subscriptions/s/messages/head?timeout=0", Some(Right::Listen)),
    ("PUT", LOCKED, Some(Right::Listen)),
    ("DELETE", LOCKED, Some(Right::Listen)),
    ("POST", LOCKED, Some(Right::Listen)),
    ("PATCH", LOCKED, Some(Right::Listen)),
    ("DELETE", "/q/messages/id/lock", Some(Right::Listen)),
    ("DELETE", "/t/subscriptions/s/messages/1/lock", Some(Right::Listen)),
    ("GET", "/$otobus/clock", Some(Right::Manage)),
    ("POST", "/$otobus/clock", Some(Right::Manage)),
    ("GET", "/$nothing", Some(Right::Manage)),
];

/// A message that is locked, by its number and a token of that number.
const LOCKED: &str = "/q/messages/1/00000000-0000-0000-0000-000000000001";

const ROUTES: usize = 16;

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
    AttachReceiver => Some(("POST", "/q/messages/head?timeout=0")),
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
        ("wrong key", signed(all, "manager", "yek", never), &[]),
        ("removed policy", signed(all, "gone", "key", never), &[]),
        ("no token", "Authorization: Basic a2V5\r\n".into(), &[]),
    ]
}

// H-70, H-99, H-102, H-103
#[tokio::test]
async fn every_operation_takes_its_right_and_no_less() {
    for (method, address, needed) in ROWS {
        for (claim, header, rights) in claims() {
            // A new house for each, so that nothing depends on what was done before.
            let (status, body) = House::default().raw(method, address, &header).await;
            let is_refused = status == 401;
            let may = match needed {
                Some(needed) => rights.contains(needed),
                // With a token, the page of health is a queue's.
                None if header.is_empty() || address.starts_with("/$") => true,
                None => rights.contains(&Right::Manage),
            };
            assert_eq!(is_refused, !may, "{method} {address} with {claim}: {status} {body}");
        }
    }
}

#[test]
fn every_route_has_its_row() {
    let mut rows = [0; ROUTES];
    for (method, address, needed) in ROWS {
        let method: Method = method.parse().unwrap();
        let route = Address::read(&method, &address.parse().unwrap(), false).unwrap().route;
        rows[number(&route)] += 1;
        let needs = match route.needs(&method) {
            Needs::Right(right) => Some(right),
            Needs::Nothing | Needs::Loopback => None,
        };
        assert_eq!(needs, *needed, "{method} {address}");
    }
    assert!(rows.iter().all(|count| *count > 0), "{rows:?}");
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

// What a route takes and what the command takes that comes of it are decided in two places; neither may ask for less.
#[test]
fn a_command_takes_the_right_that_its_route_takes() {
    let request = RequestId::default();
    let namespace = broker::NamespaceId(0);
    let (path, topic, name): (Box<str>, Box<str>, Box<str>) = ("q".into(), "t".into(), "s".into());
    let manage = |task| Command::Manage { request, namespace, task: Box::new(task) };
    let asked = [
        (Command::DeleteEntity { request, namespace, path: path.clone() }, ("DELETE", "/q")),
        (Command::ListQueues { request, namespace, skip: 0, top: 0 }, ("GET", "/$Resources/queues")),
        (manage(Task::Describe { path: path.clone() }), ("GET", "/q")),
        (manage(Task::ListTopics { skip: 0, top: 0 }), ("GET", "/$Resources/topics")),
        (
            manage(Task::DescribeSubscription { topic: topic.clone(), name: name.clone() }),
            ("GET", "/t/subscriptions/s"),
        ),
        (
            manage(Task::DeleteSubscription { topic: topic.clone(), name: name.clone() }),
            ("DELETE", "/t/subscriptions/s"),
        ),
        (
            manage(Task::ListSubscriptions { topic: topic.clone(), skip: 0, top: 0 }),
            ("GET", "/t/subscriptions"),
        ),
        (
            manage(Task::DescribeRule { topic: topic.clone(), subscription: name.clone(), name: "r".into() }),
            ("GET", "/t/subscriptions/s/rules/r"),
        ),
        (
            manage(Task::DeleteRule { topic: topic.clone(), subscription: name.clone(), name: "r".into() }),
            ("DELETE", "/t/subscriptions/s/rules/r"),
        ),
        (
            manage(Task::ListRules { topic: topic.clone(), subscription: name.clone(), skip: 0, top: 0 }),
            ("GET", "/t/subscriptions/s/rules"),
        ),
    ];
    let (path, none): (Box<str>, Box<[_]>) = ("q".into(), [].into());
    let link = broker::LinkId::default();
    let (mode, outcome) = (broker::ReceiveMode::PeekLock, broker::Outcome::Complete);
    let number = broker::Number(1);
    // An address of messages lies below their entity: whoever has signed no more than the address may use it (H-101).
    let messages = [
        (Command::AttachSender { link, namespace, path: path.clone() }, ("POST", "/q/messages")),
        (
            Command::AttachReceiver { link, namespace, path: path.clone(), mode },
            ("POST", "/q/messages/head?timeout=0"),
        ),
        (
            Command::SettleTokens { request, namespace, path: path.clone(), tokens: none.clone(), outcome },
            ("DELETE", LOCKED),
        ),
        (Command::RenewLocks { request, namespace, path: path.clone(), tokens: none }, ("POST", LOCKED)),
        (
            Command::Browse { request, namespace, path: path.clone(), from: number, most: 1 },
            ("DELETE", "/q/messages/id/lock"),
        ),
    ];
    for (command, (method, address)) in &messages {
        let method: Method = method.parse().unwrap();
        let address = Address::read(&method, &address.parse().unwrap(), true).unwrap();
        let Needs::Right(right) = address.route.needs(&method) else { panic!("{address:?}") };
        assert_eq!(Demand::of(command), Demand::Right(right, "q".into()), "{command:?}");
        assert!(address.path.starts_with("q/messages"), "{}", address.path);
    }
    for (command, (method, address)) in &asked {
        let method: Method = method.parse().unwrap();
        let address = Address::read(&method, &address.parse().unwrap(), true).unwrap();
        let Needs::Right(right) = address.route.needs(&method) else { panic!("{address:?}") };
        assert_eq!(Demand::of(command), Demand::Right(right, address.path.into()), "{command:?}");
    }
}
