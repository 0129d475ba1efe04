//! What both HTTP doors ask of the head of a request.

use hyper::Version;
use hyper::header::HOST;
use hyper::http::request::Parts;

/// What is told who names none, or two.
pub(crate) const HOST_ONCE: &str = "The request must name its host once.";

/// Whether a request names its host once (RFC 9112, 3.2): of two, one would be checked and the other perhaps believed. In HTTP/2
/// it stands in the address, and before HTTP/1.1 it may be left out.
pub(crate) fn names_host_once(head: &Parts) -> bool {
    match head.headers.get_all(HOST).iter().count() {
        1 => true,
        0 => head.version != Version::HTTP_11,
        _ => false,
    }
}

/// The host as the client named it, if that can stand in an address; it is repeated in answers.
pub(crate) fn named_host(head: &Parts) -> Option<&str> {
    let named = head.uri.authority().map(|authority| authority.as_str());
    let named = named.or_else(|| head.headers.get(HOST).and_then(|host| host.to_str().ok()));
    let is_host = |text: &&str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    named.filter(is_host)
}
