//! Addresses as each client writes them: a bare path, a path with a leading slash, percent-encoded, or a whole URI
//!

use percent_encoding::percent_decode_str;

/// The node that takes claims.
pub(super) const CBS: &str = "$cbs";

/// The path of an address: what is behind `scheme://authority/`, decoded, without outer slashes.
pub(super) fn path(address: &str) -> String {
    let behind_scheme = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    };
    let decoded = percent_decode_str(behind_scheme).decode_utf8_lossy();
    decoded.trim_matches('/').to_owned()
}

/// What a path means to this door.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node<'a> {
    Cbs,
    /// The management node of an entity.
    Management(&'a str),
    /// A part of an entity: its dead-letter queue or its transfer dead-letter queue.
    SubQueue(&'a str),
    Entity(&'a str),
}

pub(super) fn node(path: &str) -> Node<'_> {
    if path.eq_ignore_ascii_case(CBS) {
        return Node::Cbs;
    }
    if let Some(entity) = without_suffix(path, "/$management") {
        return Node::Management(entity);
    }
    match parent(path) {
        Some(entity) => Node::SubQueue(entity),
        None => Node::Entity(path),
    }
}

/// What a claim is put for: the management node of a path is part of that path.
pub(super) fn claimed(path: &str) -> &str {
    without_suffix(path, "/$management").unwrap_or(path)
}

/// The entity whose rights and existence count for an audience.
pub(super) fn authorizing_entity(path: &str) -> &str {
    let path = claimed(path);
    parent(path).unwrap_or(path)
}

fn parent(path: &str) -> Option<&str> {
    let outer = without_suffix(path, "/$deadletterqueue")?;
    Some(without_suffix(outer, "/$transfer").unwrap_or(outer))
}

fn without_suffix<'a>(path: &'a str, suffix: &str) -> Option<&'a str> {
    let cut = path.len().checked_sub(suffix.len())?;
    let (front, back) = path.split_at_checked(cut)?;
    back.eq_ignore_ascii_case(suffix).then_some(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_s_spelling_names_the_same_queue() {
        //
        for address in ["a/b", "/a/b", "/a%2Fb", "amqps://host:5672/a/b", "sb://host/a/b/", "a/b/"] {
            assert_eq!(path(address), "a/b", "{address}");
        }
        assert_eq!(path("amqps://host"), "");
        assert_eq!(path("sb://host:5672/"), "");
    }

    #[test]
    fn nodes_are_told_apart_whatever_their_case() {
        //
        assert_eq!(node("$CBS"), Node::Cbs);
        assert_eq!(node("q/$Management"), Node::Management("q"));
        assert_eq!(node("q/$DeadLetterQueue"), Node::SubQueue("q"));
        assert_eq!(node("q/$Transfer/$deadletterqueue"), Node::SubQueue("q"));
        assert_eq!(node("t/Subscriptions/s"), Node::Entity("t/Subscriptions/s"));
        assert_eq!(authorizing_entity("q/$DeadLetterQueue/$management"), "q");
    }
}
