//! What an address means (H-3, H-10). Fixed segments are compared without regard to case, a trailing slash means nothing,
//! and a slash inside a name may arrive as itself or as `%2F`.

use super::failure::Failure;
use crate::auth::Right;
use crate::limits::{
    FEED_ENTRIES, HTTP_PATH_BYTES, HTTP_QUERY_BYTES, HTTP_QUERY_PAIRS, RECEIVE_WAIT, RECEIVE_WAIT_MOST,
};
use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;
use std::str::FromStr;
use std::time::Duration;

/// The newest version of the API we know; what a request without one gets (H-2).
const LATEST_API_VERSION: &str = "2024-05";

/// Every version that clients have ever sent, oldest first (K-28).
const API_VERSIONS: [&str; 16] = [
    "2011-06",
    "2012-03",
    "2012-08",
    "2013-07",
    "2013-08",
    "2013-10",
    "2014-01",
    "2014-05",
    "2014-09",
    "2015-01",
    "2015-08",
    "2016-07",
    "2017-04",
    "2017-05",
    "2021-05",
    LATEST_API_VERSION,
];

/// The part of a list that is asked for (H-27).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    pub skip: usize,
    pub top: usize,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Health,
    Metrics,
    Queues(Paging),
    Topics(Paging),
    NamespaceInfo,
    WebSocket,
    /// The namespace itself (K-27).
    Root,
    /// The test clock, where there is one.
    Clock,
    Subscriptions {
        topic: String,
        paging: Paging,
    },
    Subscription {
        topic: String,
        name: String,
    },
    Rules {
        topic: String,
        subscription: String,
        paging: Paging,
    },
    Rule {
        topic: String,
        subscription: String,
        name: String,
    },
    /// Sending to an entity, one message or a batch.
    Send {
        entity: String,
    },
    /// The next message of an entity, for which the client waits so many seconds.
    Receive {
        entity: String,
        wait: Duration,
    },
    /// A message that the client has locked, by its id or number and its lock token.
    Locked {
        entity: String,
        message: String,
        token: String,
    },
    /// A token of the development issuer, for a resource.
    Token {
        resource: Option<String>,
    },
    /// A queue or a topic.
    Entity,
    Nothing,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// Nothing from this machine; from elsewhere there is no way.
    Loopback,
    Right(Right),
}

impl Route {
    /// The one list of what each route needs. Descriptions show keys, so reading them takes Manage; rules are also the
    /// affair of receivers.
    pub fn needs(&self, method: &Method) -> Needs {
        match self {
            Route::Health | Route::WebSocket | Route::Root => Needs::Nothing,
            Route::Metrics | Route::Token { .. } => Needs::Loopback,
            Route::Rules { .. } | Route::Rule { .. } if method == Method::GET => Needs::Right(Right::Listen),
            // H-99
            Route::Send { .. } => Needs::Right(Right::Send),
            Route::Receive { .. } | Route::Locked { .. } => Needs::Right(Right::Listen),
            Route::Queues(_)
            | Route::Topics(_)
            | Route::NamespaceInfo
            | Route::Clock
            | Route::Subscriptions { .. }
            | Route::Subscription { .. }
            | Route::Rules { .. }
            | Route::Rule { .. }
            | Route::Entity
            | Route::Nothing => Needs::Right(Right::Manage),
        }
    }

    /// The one list of what can be done at each route; everything else is not allowed there.
    pub fn methods(&self) -> &'static [Method] {
        match self {
            Route::Health | Route::Metrics | Route::Root => &[Method::GET, Method::HEAD],
            Route::Queues(_)
            | Route::Topics(_)
            | Route::NamespaceInfo
            | Route::WebSocket
            | Route::Token { .. }
            | Route::Subscriptions { .. }
            | Route::Rules { .. } => &[Method::GET],
            Route::Entity | Route::Subscription { .. } | Route::Rule { .. } => {
                &[Method::GET, Method::PUT, Method::DELETE]
            }
            Route::Clock => &[Method::GET, Method::POST],
            Route::Send { .. } => &[Method::POST],
            Route::Receive { .. } => &[Method::POST, Method::DELETE],
            Route::Locked { .. } => &[Method::PUT, Method::POST, Method::DELETE],
            Route::Nothing => &[],
        }
    }
}

/// An address, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub route: Route,
    /// The decoded path without slashes at its ends: what a claim must cover.
    pub path: String,
    /// The version whose behaviour the request gets.
    pub api_version: &'static str,
    /// The version that the request names, as it came.
    pub named_version: Option<String>,
}

impl Address {
    /// The entity whose messages are asked for, or what else is asked for.
    pub fn entity(&self) -> &str {
        match &self.route {
            Route::Send { entity } | Route::Receive { entity, .. } | Route::Locked { entity, .. } => entity,
            _ => &self.path,
        }
    }

    /// `has_authorization` tells a look at the health of the server from a question about a queue called `health`.
    pub fn read(method: &Method, uri: &Uri, has_authorization: bool) -> Result<Address, Failure> {
        let query = uri.query().unwrap_or_default();
        if uri.path().len() > HTTP_PATH_BYTES || query.len() > HTTP_QUERY_BYTES {
            return Err(Failure::AddressTooLong);
        }
        let path = percent_decode_str(uri.path())
            .decode_utf8()
            .map_err(|_| Failure::Bad("The address is not UTF-8.".to_owned()))?;
        let path = path.trim_matches('/').to_owned();
        let query = Query::read(query);
        let route = route(method, uri.path(), &path, &query, has_authorization)?;
        let api_version = match route {
            // Requests for health and metrics name no version of the API, and messages are the same in all of them (K-28).
            Route::Health
            | Route::Metrics
            | Route::Root
            | Route::Token { .. }
            | Route::Send { .. }
            | Route::Receive { .. }
            | Route::Locked { .. } => LATEST_API_VERSION,
            _ => api_version(&query)?,
        };
        let named_version = query.value("api-version").map(str::to_owned);
        Ok(Address { route, path, api_version, named_version })
    }
}

/// `raw` is the path as it came.
fn route(
    method: &Method,
    raw: &str,
    path: &str,
    query: &Query,
    has_authorization: bool,
) -> Result<Route, Failure> {
    let lower = path.to_ascii_lowercase();
    let segments: Vec<&str> = lower.split('/').collect();
    let is_look = method == Method::GET || method == Method::HEAD;
    Ok(match segments[..] {
        [""] if is_look => Route::Root,
        [""] => Route::Nothing,
        ["health"] if is_look && !has_authorization => Route::Health,
        ["metrics"] if is_look && !has_authorization => Route::Metrics,
        ["$resources", "queues"] => Route::Queues(query.paging()?),
        ["$resources", "topics"] => Route::Topics(query.paging()?),
        ["$namespaceinfo"] => Route::NamespaceInfo,
        ["$servicebus", "websocket"] => Route::WebSocket,
        ["$otobus", "clock"] => Route::Clock,
        ["$otobus", "token"] => Route::Token { resource: query.value("resource").map(str::to_owned) },
        [first, ..] if first.starts_with('$') => Route::Nothing,
        // Before messages: a subscription may have that name.
        [_, ref rest @ ..] if rest.contains(&"subscriptions") => below_topic(method, raw, path, query)?,
        _ => messages(method, raw, query)?.unwrap_or(Route::Entity),
    })
}

/// Addresses of messages. Their segments are told apart before they are decoded: a message id may have a slash.
fn messages(method: &Method, path: &str, query: &Query) -> Result<Option<Route>, Failure> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let decoded = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
    let is = |segment: &str, fixed: &str| decoded(segment).eq_ignore_ascii_case(fixed);
    let entity = |segments: &[&str]| decoded(&segments.join("/"));
    Ok(Some(match segments[..] {
        [_, .., last] if is(last, "messages") && method == Method::POST => {
            Route::Send { entity: entity(&segments[..segments.len() - 1]) }
        }
        _ if method == Method::GET => return Ok(None),
        [_, .., messages, head] if is(messages, "messages") && is(head, "head") => {
            Route::Receive { entity: entity(&segments[..segments.len() - 2]), wait: query.wait()? }
        }
        [_, .., messages, message, token] if is(messages, "messages") => Route::Locked {
            entity: entity(&segments[..segments.len() - 3]),
            message: decoded(message),
            token: decoded(token),
        },
        _ => return Ok(None),
    }))
}

/// Names keep the case in which they came.
fn below_topic(method: &Method, raw: &str, path: &str, query: &Query) -> Result<Route, Failure> {
    let segments: Vec<&str> = path.split('/').collect();
    let is = |segment: &str, fixed: &str| segment.eq_ignore_ascii_case(fixed);
    let Some(at) = segments.iter().skip(1).position(|segment| is(segment, "subscriptions")) else {
        return Ok(Route::Nothing);
    };
    let topic = segments[..=at].join("/");
    Ok(match segments[at + 2..] {
        [] => Route::Subscriptions { topic, paging: query.paging()? },
        [name] => Route::Subscription { topic, name: name.to_owned() },
        [subscription, rules] if is(rules, "rules") => {
            Route::Rules { topic, subscription: subscription.to_owned(), paging: query.paging()? }
        }
        [subscription, rules, name] if is(rules, "rules") => {
            Route::Rule { topic, subscription: subscription.to_owned(), name: name.to_owned() }
        }
        // Nothing is sent to a subscription.
        _ => match messages(method, raw, query)? {
            None | Some(Route::Send { .. }) => Route::Nothing,
            Some(messages) => messages,
        },
    })
}

/// The version whose behaviour a request gets: the one it names, or of one that is not known the newest that is older; what
/// a newer client adds it can do without (K-28).
fn api_version(query: &Query) -> Result<&'static str, Failure> {
    let Some(named) = query.value("api-version") else { return Ok(LATEST_API_VERSION) };
    let is_well_formed = named.len() == 7
        && named
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    if !is_well_formed {
        return Err(Failure::Bad("The api-version is not supported.".to_owned()));
    }
    let known = API_VERSIONS.iter().rfind(|known| **known <= named);
    Ok(known.unwrap_or(&API_VERSIONS[0]))
}

/// The part of an address behind the question mark. Names are compared without regard to case; the first of two counts.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Query {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name).to_ascii_lowercase(), decoded(value))
        };
        Query(text.split('&').take(HTTP_QUERY_PAIRS).map(pair).collect())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn paging(&self) -> Result<Paging, Failure> {
        let skip = self.number("$skip")?.unwrap_or(0);
        let top = self.number("$top")?.unwrap_or(FEED_ENTRIES).min(FEED_ENTRIES);
        Ok(Paging { skip, top })
    }

    /// How long a client waits for a message: longer than it may wait means as long as it may.
    fn wait(&self) -> Result<Duration, Failure> {
        let wait = self.number("timeout")?.map_or(RECEIVE_WAIT, |seconds: u64| Duration::from_secs(seconds));
        Ok(wait.min(RECEIVE_WAIT_MOST))
    }

    fn number<N: FromStr>(&self, name: &str) -> Result<Option<N>, Failure> {
        let Some(text) = self.value(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Failure::Bad(format!("The value of {name} is not a number.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, address: &str) -> Result<Address, Failure> {
        Address::read(&method, &address.parse().unwrap(), true)
    }

    fn routed(method: Method, address: &str) -> Route {
        read(method, address).unwrap().route
    }

    // H-10
    #[test]
    fn names_with_a_slash_come_raw_or_encoded_and_keep_their_case() {
        for address in ["/Q%2FOne?api-version=2024-05", "/Q/One?api-version=2021-05", "/Q/One/", "/Q%2fOne"] {
            let address = read(Method::GET, address).unwrap();
            assert_eq!((address.route, &*address.path), (Route::Entity, "Q/One"));
        }
    }

    // H-3, H-10, H-27
    #[test]
    fn lists_take_their_page_from_the_query_in_any_spelling() {
        let page = |skip, top| Route::Queues(Paging { skip, top });
        assert_eq!(routed(Method::GET, "/$Resources/Queues"), page(0, 100));
        assert_eq!(routed(Method::GET, "/$Resources/queues/?$skip=5&$top=7&enrich=false"), page(5, 7));
        assert_eq!(routed(Method::GET, "/%24Resources/queues?&%24top=10&%24skip=2"), page(2, 10));
        assert_eq!(routed(Method::GET, "/$resources/queues?$top=1000"), page(0, FEED_ENTRIES));
        assert!(read(Method::GET, "/$resources/queues?$top=x").is_err());
        assert!(read(Method::GET, "/$resources/queues?$top=-1").is_err());
    }

    // H-10
    #[test]
    fn each_address_leads_to_its_route() {
        let whole = Paging { skip: 0, top: FEED_ENTRIES };
        let topic = || "a/T".to_owned();
        let (name, subscription) = ("R".to_owned(), "S".to_owned());
        assert_eq!(routed(Method::GET, "/$Resources/topics"), Route::Topics(whole));
        assert_eq!(routed(Method::GET, "/$namespaceinfo"), Route::NamespaceInfo);
        assert_eq!(routed(Method::GET, "/$servicebus/websocket/"), Route::WebSocket);
        for list in ["/a/T/Subscriptions/", "/a/T/subscriptions", "/a%2FT/SUBSCRIPTIONS?api-version=2021-05"]
        {
            assert_eq!(
                routed(Method::GET, list),
                Route::Subscriptions { topic: topic(), paging: whole },
                "{list}"
            );
        }
        assert_eq!(
            routed(Method::PUT, "/a/T/subscriptions/S"),
            Route::Subscription { topic: topic(), name: "S".into() }
        );
        assert_eq!(
            routed(Method::GET, "/a/T/subscriptions/S/Rules/?$top=5"),
            Route::Rules {
                topic: topic(),
                subscription: subscription.clone(),
                paging: Paging { skip: 0, top: 5 }
            }
        );
        assert_eq!(
            routed(Method::PUT, "/a/T/subscriptions/S/rules/R"),
            Route::Rule { topic: topic(), subscription, name }
        );
        assert_eq!(routed(Method::GET, "/t/subscriptions/s/other/x"), Route::Nothing);
        assert_eq!(routed(Method::GET, "/subscriptions"), Route::Entity);
        assert_eq!(routed(Method::GET, "/$other"), Route::Nothing);
        assert_eq!(routed(Method::GET, "/"), Route::Root);
        assert_eq!(routed(Method::PUT, "/"), Route::Nothing);
    }

    // H-90, HX-2.3
    #[test]
    fn messages_have_addresses_below_their_entity() {
        let entity = |entity: &str| entity.to_owned();
        assert_eq!(routed(Method::POST, "/Q%2fOne/Messages/"), Route::Send { entity: entity("Q/One") });
        let head = |entity: &str, seconds| Route::Receive {
            entity: entity.to_owned(),
            wait: Duration::from_secs(seconds),
        };
        assert_eq!(routed(Method::POST, "/q/messages/head"), head("q", 60));
        assert_eq!(routed(Method::DELETE, "/q/messages/HEAD?timeout=7"), head("q", 7));
        assert_eq!(routed(Method::DELETE, "/q/messages/head?timeout=999999"), head("q", 300));
        assert_eq!(
            routed(Method::POST, "/t/Subscriptions/S/$DeadLetterQueue/messages/head?timeout=0"),
            head("t/Subscriptions/S/$DeadLetterQueue", 0)
        );
        for bad in ["-1", "1.5", "x", ""] {
            assert!(read(Method::POST, &format!("/q/messages/head?timeout={bad}")).is_err(), "{bad}");
        }
        let locked = |message: &str| Route::Locked {
            entity: entity("q"),
            message: message.to_owned(),
            token: "lock".to_owned(),
        };
        assert_eq!(routed(Method::DELETE, "/q/messages/1/lock"), locked("1"));
        assert_eq!(routed(Method::PUT, "/q/messages/a%2Fb%20c/lock"), locked("a/b c"));
        assert_eq!(routed(Method::POST, "/q/messages/messages/lock"), locked("messages"));
        assert_eq!(routed(Method::POST, "/messages"), Route::Entity);
        assert_eq!(routed(Method::PUT, "/q/messages"), Route::Entity);
        assert_eq!(routed(Method::GET, "/q/messages/head"), Route::Entity);
        assert_eq!(routed(Method::POST, "/$q/messages"), Route::Nothing);
    }

    // H-10
    #[test]
    fn a_subscription_may_be_called_as_a_part_of_an_address() {
        for name in ["messages", "Rules", "subscriptions"] {
            let (topic, subscription) = ("t".to_owned(), name.to_owned());
            for method in [Method::GET, Method::PUT, Method::DELETE] {
                assert_eq!(
                    routed(method.clone(), &format!("/t/subscriptions/{name}")),
                    Route::Subscription { topic: topic.clone(), name: name.to_owned() }
                );
                let rule = Route::Rule {
                    topic: topic.clone(),
                    subscription: subscription.clone(),
                    name: "messages".to_owned(),
                };
                assert_eq!(routed(method, &format!("/t/subscriptions/{name}/rules/messages")), rule);
            }
            for path in
                [format!("t/subscriptions/{name}"), format!("t/subscriptions/{name}/$DeadLetterQueue")]
            {
                let head = Route::Receive { entity: path.clone(), wait: RECEIVE_WAIT };
                assert_eq!(routed(Method::POST, &format!("/{path}/messages/head")), head);
                assert!(matches!(
                    routed(Method::PUT, &format!("/{path}/messages/1/lock")),
                    Route::Locked { entity, .. } if entity == path
                ));
            }
            assert_eq!(routed(Method::POST, &format!("/t/subscriptions/{name}/messages")), Route::Nothing);
        }
    }

    #[test]
    fn an_address_at_its_limit_is_read_and_one_past_it_is_not() {
        let path = |length: usize| format!("/{}", "a".repeat(length - 1));
        assert!(read(Method::GET, &path(HTTP_PATH_BYTES)).is_ok());
        assert!(matches!(read(Method::GET, &path(HTTP_PATH_BYTES + 1)), Err(Failure::AddressTooLong)));
        let query = |length: usize| format!("/q?{}", "a".repeat(length));
        assert!(read(Method::GET, &query(HTTP_QUERY_BYTES)).is_ok());
        assert!(matches!(read(Method::GET, &query(HTTP_QUERY_BYTES + 1)), Err(Failure::AddressTooLong)));
        let last = |before: usize| format!("/q?{}api-version=none", "a&".repeat(before));
        assert!(read(Method::GET, &last(HTTP_QUERY_PAIRS - 1)).is_err());
        assert!(read(Method::GET, &last(HTTP_QUERY_PAIRS)).is_ok(), "what comes later is not looked at");
    }

    // H-122
    #[test]
    fn health_is_for_those_who_do_not_sign() {
        let health = |has_authorization| {
            Address::read(&Method::GET, &"/health".parse().unwrap(), has_authorization).unwrap().route
        };
        assert_eq!(health(false), Route::Health);
        assert_eq!(health(true), Route::Entity);
        for (method, address) in [(Method::HEAD, "/health"), (Method::GET, "/Health/?api-version=1")] {
            let read = Address::read(&method, &address.parse().unwrap(), false);
            assert_eq!(read.unwrap().route, Route::Health, "{method} {address}");
        }
    }

    // H-2, K-28
    #[test]
    fn old_new_unknown_and_missing_versions_are_taken() {
        let version =
            |query: &str| read(Method::GET, &format!("/q{query}")).map(|address| address.api_version);
        for known in API_VERSIONS {
            assert_eq!(version(&format!("?api-version={known}")).unwrap(), known);
        }
        for (unknown, older) in [("2030-01", "2024-05"), ("2016-09", "2016-07"), ("1999-01", "2011-06")] {
            assert_eq!(version(&format!("?api-version={unknown}")).unwrap(), older);
        }
        assert_eq!(version("").unwrap(), "2024-05");
        for bad in ["latest", "2024-05x", "2024_05", ""] {
            assert!(version(&format!("?api-version={bad}")).is_err(), "{bad}");
        }
    }

    // K-28
    #[test]
    fn messages_are_the_same_in_every_version() {
        for address in ["/q/messages", "/q/messages/head", "/q/messages/1/lock"] {
            assert!(read(Method::POST, &format!("{address}?api-version=nonsense")).is_ok(), "{address}");
        }
    }
}
