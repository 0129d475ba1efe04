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
    ("POST", "/q/messages/head", Some(Right::Listen)),
    ("DELETE", "/q/messages/head", Some(Right::Listen)),
    ("PUT", "/q/messages/1/lock", Some(Right::Listen)),
    ("DELETE", "/q/messages/1/lock", Some(Right::Listen)),
    ("POST", "/q/messages/1/lock", Some(Right::Listen)),
    ("GET", "/$nothing", Some(Right::Manage)),
];

const ROUTES: usize = 13;

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
        Route::Send | Route::Receive => 10,
        Route::Entity => 11,
        Route::Nothing => 12,
    }
}

/// The operation by which a task comes in, as method and address; `None` for what only the server itself asks.
fn door_of(task: &Task) -> Option<(&'static str, &'static str)> {
    match task {
        Task::CreateQueue { .. }
        | Task::UpdateQueue { .. }
        | Task::CreateTopic { .. }
        | Task::UpdateTopic { .. } => Some(("PUT", "/q")),
        Task::Describe { .. } => Some(("GET", "/q")),
        Task::ListTopics { .. } => Some(("GET", "/$Resources/topics")),
        Task::CreateSubscription { .. } | Task::UpdateSubscription { .. } => {
            Some(("PUT", "/t/subscriptions/s"))
        }
        Task::DescribeSubscription { .. } => Some(("GET", "/t/subscriptions/s")),
        Task::DeleteSubscription { .. } => Some(("DELETE", "/t/subscriptions/s")),
        Task::ListSubscriptions { .. } => Some(("GET", "/t/subscriptions")),
        Task::CreateRule { .. } | Task::UpdateRule { .. } => Some(("PUT", "/t/subscriptions/s/rules/r")),
        Task::DescribeRule { .. } => Some(("GET", "/t/subscriptions/s/rules/r")),
        Task::DeleteRule { .. } => Some(("DELETE", "/t/subscriptions/s/rules/r")),
        Task::ListRules { .. } => Some(("GET", "/t/subscriptions/s/rules")),
        Task::Access { .. } | Task::SetTier { .. } | Task::NameNamespace { .. } => None,
    }
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
fn every_task_comes_in_by_an_operation_with_a_row() {
    let tasks = [
        Task::Describe { path: "".into() },
        Task::ListTopics { skip: 0, top: 0 },
        Task::DescribeSubscription { topic: "".into(), name: "".into() },
        Task::DeleteSubscription { topic: "".into(), name: "".into() },
        Task::ListSubscriptions { topic: "".into(), skip: 0, top: 0 },
        Task::DescribeRule { topic: "".into(), subscription: "".into(), name: "".into() },
        Task::DeleteRule { topic: "".into(), subscription: "".into(), name: "".into() },
        Task::ListRules { topic: "".into(), subscription: "".into(), skip: 0, top: 0 },
    ];
    for task in &tasks {
        let (method, address) = door_of(task).unwrap();
        assert!(ROWS.iter().any(|(m, a, _)| (*m, *a) == (method, address)), "{task:?}");
    }
}
