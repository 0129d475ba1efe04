//! What a verified peer may do: some rights, on a path and everything below it, until an instant.
//!
//! Paths are compared by whole segments and without regard to letters' case (H-102): a grant for `orders` covers
//! `orders/$deadletterqueue` and not `orders2`.

use super::guard::ROOT_POLICY;
use super::{Denied, Right, Rights, UnixSeconds};
use crate::limits::CLOCK_SKEW_SECONDS;
use crate::places::Standing;
use percent_encoding::percent_decode_str;

const MANAGEMENT: &str = "$management";

/// A path as lower-case segments, with one slash between two. Empty means the whole namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    path: Box<str>,
}

impl Scope {
    /// Reads a path such as `orders/$management`. The management node belongs to its entity, so that a claim for either
    /// is a claim for both.
    pub fn of_path(path: &str) -> Scope {
        let path = path.split_once('?').map_or(path, |(path, _query)| path);
        let mut joined = String::with_capacity(path.len());
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            if !joined.is_empty() {
                joined.push('/');
            }
            joined.push_str(&segment.to_lowercase());
        }
        let of_node = match joined.rsplit_once('/') {
            Some((entity, MANAGEMENT)) => Some(entity.len()),
            None if joined == MANAGEMENT => Some(0),
            _ => None,
        };
        if let Some(length) = of_node {
            joined.truncate(length);
        }
        Scope { path: joined.into() }
    }

    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// This path, and every one that it is below, up to the whole namespace.
    pub fn upward(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(&*self.path), |path| match path.rsplit_once('/') {
            Some((above, _)) => Some(above),
            None => (!path.is_empty()).then_some(""),
        })
    }

    /// Reads the decoded resource of a token, an address of any scheme (H-102): its host and what it covers there.
    ///
    /// Without a scheme, `orders` could be a host or a path. We take such a text for a host only when it cannot well be
    /// anything else: read as a host it would cover the whole namespace, which its signer may not have meant.
    pub fn of_address(address: &str) -> Result<(&str, Scope), Denied> {
        let (after_scheme, has_scheme) = match address.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (rest, true),
            Some(_) => return Err(Denied::InvalidAudience),
            None => (address, false),
        };
        let (host, path) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
        if !is_plain_host(host) || !(has_scheme || is_surely_a_host(host)) {
            return Err(Denied::InvalidAudience);
        }
        // Some clients sign the address of a whole request (H-101).
        let path = path.split_once('?').map_or(path, |(path, _query)| path);
        // The signer may have meant an encoded slash as part of a name.
        let lower = path.to_ascii_lowercase();
        if ["%2f", "%5c", "%25"].iter().any(|hidden| lower.contains(hidden)) {
            return Err(Denied::InvalidAudience);
        }
        // The path of an address is itself percent-encoded by some clients.
        let path = percent_decode_str(path).decode_utf8().map_err(|_| Denied::InvalidAudience)?;
        let scope = Scope::of_path(&path);
        // What names something must not come to mean the whole namespace, nor anything that its signer may have read otherwise.
        let is_lost = scope.path.is_empty() && path.contains(|c| c != '/');
        if is_lost || path.contains(|c: char| matches!(c, '\\' | '#' | '?' | ';' | ':') || c.is_control()) {
            return Err(Denied::InvalidAudience);
        }
        Ok((host, scope))
    }

    pub fn covers(&self, other: &Scope) -> bool {
        match other.path.strip_prefix(&*self.path) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }

    /// Whether the other is of the entity at this path: itself, one of its queues of dead letters, or a subscription. A
    /// queue `orders/late` is an entity beside `orders`, as it is a resource of its own where roles are given in Azure.
    pub(super) fn is_entity_of(&self, other: &Scope) -> bool {
        match other.path.strip_prefix(&*self.path) {
            Some(rest) => {
                let is_own = ["/$", "/subscriptions/"].into_iter().any(|part| rest.starts_with(part));
                self.path.is_empty() || rest.is_empty() || is_own
            }
            None => false,
        }
    }
}

/// The part of a host's name by which it chooses a namespace.
pub(crate) fn first_label(host: &str) -> &str {
    host.split(['.', ':']).next().unwrap_or_default()
}

/// Whether a text is the name or address of a host, perhaps with a port, and nothing that hides a path or a query.
fn is_plain_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            return address.parse::<std::net::Ipv6Addr>().is_ok()
                && rest.strip_prefix(':').map_or(rest.is_empty(), |port| port.parse::<u16>().is_ok());
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && name.chars().all(is_inner) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Whether a text has the form of a scheme; which one it is does not matter (K-6).
fn is_scheme(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_inner)
}

fn is_surely_a_host(text: &str) -> bool {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let lower = text.to_ascii_lowercase();
    has_port
        || lower == "localhost"
        || lower.ends_with(".servicebus.windows.net")
        || lower.parse::<std::net::IpAddr>().is_ok()
}

/// How a right was proved: by a key of a policy. It holds for as long as that policy has that key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    pub holder: Holder,
    pub(super) policy: Box<str>,
    /// Tells keys apart without being one.
    pub(super) key: [u8; 32],
}

/// Whose policy it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Holder {
    #[default]
    Namespace,
    /// The entity at this path.
    Entity(Box<str>),
    /// No policy: an issuer of this name has signed it.
    Issuer(Box<str>),
}

/// What a peer has proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub scope: Scope,
    pub rights: Rights,
    pub expires: UnixSeconds,
    pub proof: Proof,
}

impl Grant {
    /// Says whether `right` may be used on `path` at this instant.
    pub fn check(&self, path: &str, right: Right, now: UnixSeconds) -> Result<(), Denied> {
        if self.is_expired(now) {
            return Err(Denied::ExpiredToken);
        }
        if !self.reaches(&Scope::of_path(path)) {
            return Err(Denied::InvalidAudience);
        }
        self.allowing(right, now)
    }

    /// Whether roles of an issuer gave it.
    pub(crate) fn is_by_role(&self) -> bool {
        matches!(self.proof.holder, Holder::Issuer(_))
    }

    /// Whether it counts on a path: below what was signed, or on the entity for which a role counts and its parts.
    pub(crate) fn reaches(&self, other: &Scope) -> bool {
        match &self.proof.holder {
            Holder::Namespace | Holder::Entity(_) => self.scope.covers(other),
            Holder::Issuer(_) => self.scope.is_entity_of(other),
        }
    }

    /// The same on a path that is known to be covered.
    pub(super) fn allowing(&self, right: Right, now: UnixSeconds) -> Result<(), Denied> {
        if self.is_expired(now) {
            return Err(Denied::ExpiredToken);
        }
        if self.rights.include(right) { Ok(()) } else { Err(Denied::MissingClaim(right)) }
    }

    /// Whose policy it was proved by: the entity, if it is one of an entity, and the name.
    pub fn policy(&self) -> String {
        match &self.proof.holder {
            Holder::Namespace => format!("/{}", self.proof.policy),
            Holder::Entity(path) => format!("{path}/{}", self.proof.policy),
            Holder::Issuer(name) => format!("//{name}"),
        }
    }

    /// Whether its holder manages the namespace. Clients ask for each entity alone, so the policy counts and not the scope of the
    /// claim; who manages one entity by a rule of its own is one of many.
    pub fn standing(&self) -> Standing {
        let is_whole = match &self.proof.holder {
            Holder::Namespace if &*self.proof.policy == ROOT_POLICY => return Standing::Root,
            Holder::Namespace => true,
            Holder::Entity(_) => false,
            Holder::Issuer(_) => self.scope.covers(&Scope::of_path("")),
        };
        if is_whole && self.rights.include(Right::Manage) { Standing::Manages } else { Standing::Other }
    }

    pub fn allows(&self, path: &str, right: Right, now: UnixSeconds) -> bool {
        self.check(path, right, now).is_ok()
    }

    /// Itself, unless it has run out.
    pub(super) fn unless_expired(self, now: UnixSeconds) -> Result<Grant, Denied> {
        if self.is_expired(now) {
            let seconds = now.0.saturating_sub(self.expires.0);
            return Err(Denied::ExpiredToken.because(format_args!("it ended {seconds} s ago by this clock")));
        }
        Ok(self)
    }

    /// Whether the claim has run out, the difference between two machines' clocks allowed for.
    pub fn is_expired(&self, now: UnixSeconds) -> bool {
        now.0 >= self.expires.0.saturating_add(CLOCK_SKEW_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(address: &str, path: &str) -> bool {
        Scope::of_address(address).unwrap().1.covers(&Scope::of_path(path))
    }

    // H-102
    #[test]
    fn a_scope_covers_itself_and_what_lies_below_by_whole_segments() {
        assert!(covers("sb://host/orders", "orders"));
        assert!(covers("sb://host/orders", "Orders/$DeadLetterQueue"));
        assert!(covers("https://host/orders/", "orders"));
        assert!(!covers("sb://host/orders", "orders2"));
        assert!(!covers("sb://host/orders/a", "orders"));
        assert!(!covers("sb://host/orders", ""));
        assert!(covers("sb://host", "anything/at/all"));
        assert!(covers("sb://host/", "$resources/queues"));
    }

    // H-102, A-2.3, K-6
    #[test]
    fn scheme_port_query_and_escapes_do_not_matter() {
        for scheme in ["http", "https", "sb", "amqp", "amqps", "SB", "CheeseBurger", "x-a+b.1"] {
            let address = format!("{scheme}://Any.Host:5300/q/one?api-version=2021-05");
            assert!(covers(&address, "Q/One"));
            assert_eq!(Scope::of_address(&address).unwrap().0, "Any.Host:5300");
        }
        assert!(covers("amqps://host/q/%C3%B6ne", "q/öne"));
        assert!(covers("localhost:5300", "q"));
        assert!(covers("mine.servicebus.windows.net/q", "q"));
        assert!(covers("sb://host/q/$management", "q"));
        assert!(covers("sb://host/q", "q/$management"));
    }

    #[test]
    fn a_resource_that_is_not_plainly_a_path_grants_nothing() {
        let hidden = [
            "sb://host%2Fq",
            "sb://host\\q",
            "sb://host#/q",
            "sb://host?/q",
            "sb://host;/q",
            "sb://host:q",
            "sb://host:5671:1",
            "sb://user@host/q",
            "sb://[::1/q",
            "sb://host/$management",
            "sb://host/$Management?x",
            "sb://host/q#x",
            "sb://host/q;x",
            "sb://host/q\\x",
            "sb://host/q:1",
            "sb://host/q%3fx",
            "sb://host/q%0a",
            "sb://host/%5c",
            "sb://host/q%2Fone",
            "sb://host/q%2fone",
            "sb://host/%2fq",
            "sb://host/q%252fone",
        ];
        for address in hidden {
            assert_eq!(Scope::of_address(address), Err(Denied::InvalidAudience), "{address}");
        }
        for plain in ["sb://host:5671/q", "sb://[::1]:5671/q", "sb://[::1]/q", "sb://my_host.local/q?x=1"] {
            assert!(covers(plain, "q") && !covers(plain, "p"), "{plain}");
        }
    }

    #[test]
    fn a_bare_word_is_not_taken_for_a_host() {
        assert_eq!(Scope::of_address("orders"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address("orders.v1"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address("sb:///orders"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address("1a://host/orders"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address("a b://host/orders"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address("://host/orders"), Err(Denied::InvalidAudience));
        assert_eq!(Scope::of_address(""), Err(Denied::InvalidAudience));
    }

    #[test]
    fn a_grant_ends_when_its_time_and_the_skew_are_over() {
        let grant = Grant {
            scope: Scope::of_path("q"),
            rights: Rights::ALL,
            expires: UnixSeconds(1_000),
            proof: Proof::default(),
        };
        let last = UnixSeconds(1_000 + CLOCK_SKEW_SECONDS - 1);
        assert!(grant.allows("q", Right::Send, last));
        let over = UnixSeconds(last.0 + 1);
        assert_eq!(grant.check("q", Right::Send, over), Err(Denied::ExpiredToken));
        let endless = Grant { expires: UnixSeconds::NEVER, ..grant };
        assert!(endless.allows("q", Right::Send, over));
    }

    #[test]
    fn who_manages_one_entity_by_its_own_rule_does_not_manage_the_namespace() {
        let grant = |holder, path: &str, rights| Grant {
            scope: Scope::of_path(path),
            rights,
            expires: UnixSeconds::NEVER,
            proof: Proof { holder, ..Proof::default() },
        };
        let all = Rights::ALL;
        use Standing::{Manages, Other, Root};
        assert_eq!(grant(Holder::Namespace, "orders", all).standing(), Manages);
        let listens = [Right::Listen].into_iter().collect();
        assert_eq!(grant(Holder::Namespace, "", listens).standing(), Other);
        assert_eq!(grant(Holder::Entity("orders".into()), "orders", all).standing(), Other);
        assert_eq!(grant(Holder::Issuer("i".into()), "", all).standing(), Manages);
        assert_eq!(grant(Holder::Issuer("i".into()), "orders", all).standing(), Other);
        let mut root = grant(Holder::Namespace, "orders", all);
        root.proof.policy = ROOT_POLICY.into();
        assert_eq!(root.standing(), Root);
        root.proof.holder = Holder::Entity("orders".into());
        assert_eq!(root.standing(), Other, "a rule of an entity may have any name");
    }

    #[test]
    fn a_grant_says_what_is_missing() {
        let rights = [Right::Listen].into_iter().collect();
        let (expires, proof) = (UnixSeconds::NEVER, Proof::default());
        let grant = Grant { scope: Scope::of_path("q"), rights, expires, proof };
        let now = UnixSeconds(0);
        assert_eq!(grant.check("q", Right::Listen, now), Ok(()));
        assert_eq!(grant.check("q", Right::Send, now), Err(Denied::MissingClaim(Right::Send)));
        assert_eq!(grant.check("p", Right::Listen, now), Err(Denied::InvalidAudience));
    }
}
