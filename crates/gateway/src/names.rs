//! The names by which programs on this machine call the server.
//!
//! A web page can make its own name lead to this machine and then ask as if it came from here. It cannot choose another
//! name than its own, so a page gains something by being here only if it calls the server by one of these.

use crate::head::named_host;
use hyper::header::{HeaderName, ORIGIN};
use hyper::http::request::Parts;
use std::net::IpAddr;

/// What browsers say of who makes them ask.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Names that nobody can make lead to this machine but its owner.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Those of the configuration, in lower case. The first label may be a star.
    configured: Vec<Box<str>>,
}

impl Names {
    pub fn new(configured: &[String]) -> Names {
        Names { configured: configured.iter().map(|name| name.to_lowercase().into()).collect() }
    }

    /// Whether a host as it stands in a header, with or without a port, is one of the names.
    pub fn include(&self, host: &str) -> bool {
        let name = without_port(host);
        // Nearly everybody, and found without a copy.
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        if let Ok(address) = name.parse::<IpAddr>() {
            return address.to_canonical().is_loopback() || self.is_configured(name);
        }
        name == "localhost"
            || is_below(name, "localhost")
            || is_below(name, "servicebus.windows.net")
            || self.is_configured(name)
    }

    /// Whether a web page may have made the request: it gets nothing for being here. Browsers add these headers and let no
    /// page remove them; an old one that does not is known by the name that it was made to take for ours.
    pub(crate) fn is_asked_by_page(&self, head: &Parts) -> bool {
        let is_told = head.headers.contains_key(ORIGIN) || head.headers.contains_key(FETCH_SITE);
        is_told || !named_host(head).is_some_and(|host| self.include(host))
    }

    fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|known| match known.strip_prefix("*.") {
            Some(domain) => name.split_once('.').is_some_and(|(_, rest)| rest == domain),
            None => **known == *name,
        })
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_here_for_sure_are_known_with_or_without_a_port() {
        let names =
            Names::new(&["Bus.example".to_owned(), "*.wild.example".to_owned(), "10.1.2.3".to_owned()]);
        for host in [
            "localhost",
            "LocalHost:5300",
            "localhost.",
            "shop.localhost:5671",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:5300",
            "[::ffff:127.0.0.1]",
            "mine.servicebus.windows.net",
            "bus.example:443",
            "any.wild.example",
            "10.1.2.3:5672",
        ] {
            assert!(names.include(host), "{host}");
        }
    }

    #[test]
    fn names_that_anybody_may_have_are_not() {
        let names = Names::new(&["bus.example".to_owned(), "*.wild.example".to_owned()]);
        for host in [
            "",
            "evil.example",
            "evil.example:5300",
            "localhost.evil.example",
            "notlocalhost",
            ".localhost",
            "127.0.0.1.evil.example",
            "servicebus.windows.net.evil.example",
            "evilservicebus.windows.net",
            "a.bus.example",
            "wild.example",
            "a.b.wild.example",
            "10.1.2.3",
            "0.0.0.0",
            "[fe80::1]",
            "user@localhost.evil.example",
        ] {
            assert!(!names.include(host), "{host}");
        }
    }
}
