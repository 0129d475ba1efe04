//! Time to live: whether an item is gone (C-1 to C-44).
//!
//! Nothing about expiry is stored with an item but its own `ttl` and when it was written: what the container says now decides (C-27).
//! What had expired under an earlier setting stays gone (C-41), and that takes two times per container: items with an own
//! `ttl` that ended by the first, and items without that were written by the second.

use super::stored::{Stored, Ttl};
use crate::definition::Container;
use crate::definition::container::invalid_ttl;
use crate::json::{self, walk};
use crate::{PartitionKey, Refusal, Time, keys, limits};

/// Whether the item must not be seen at `now`.
pub fn is_gone(container: &Container, item: &Stored, place: &[u8], now: Time) -> bool {
    is_expired(container, item, now) || is_deleted(container, item, place)
}

/// C-29: from the instant at which the time to live has passed.
pub fn is_expired(container: &Container, item: &Stored, now: Time) -> bool {
    let default_ttl = container.settings.default_ttl;
    let gone = &container.gone;
    match item.ttl {
        Ttl::Never => false,
        Ttl::Seconds(_) => {
            let ends = item.own_expiry().unwrap_or(item.written);
            (default_ttl.is_some() && ends <= now) || gone.own_by.is_some_and(|by| ends <= by)
        }
        Ttl::Absent => {
            written_by(default_ttl, now).is_some_and(|by| item.written <= by)
                || gone.written_by.is_some_and(|by| item.written <= by)
        }
    }
}

/// Items without an own time to live that were written by then have expired at `now`.
pub fn written_by(default_ttl: Option<i64>, now: Time) -> Option<Time> {
    default_ttl.filter(|seconds| *seconds > 0).map(|seconds| now.after_ms(-seconds * 1_000))
}

/// Deleted with its partition, and not removed yet.
fn is_deleted(container: &Container, item: &Stored, place: &[u8]) -> bool {
    if container.gone.partitions.is_empty() {
        return false;
    }
    let Some((_, key, _)) = keys::place_parts(place, container.settings.key_paths.len()) else {
        return false;
    };
    container
        .gone
        .partitions
        .iter()
        .any(|(lsn, deleted)| item.version.lsn <= *lsn && begins_with(&key, deleted))
}

pub fn begins_with(key: &PartitionKey, prefix: &PartitionKey) -> bool {
    key.0.len() >= prefix.0.len() && key.0.iter().zip(&prefix.0).all(|(part, wanted)| part == wanted)
}

/// The `ttl` in an item's text. What is none is refused where the container's time to live is on (C-21, C-22). Where it is off a number
/// must still be a time to live, and anything else is a member like any other, which counts as absent later (C-23).
pub fn read(text: Option<&[u8]>, is_on: bool) -> Result<Ttl, Refusal> {
    let Some(text) = text else {
        return Ok(Ttl::Absent);
    };
    let is_number = walk::kind(text) == Some(walk::Kind::Number);
    let seconds = walk::number(text).filter(|_| is_number).and_then(json::Number::as_i64);
    match seconds {
        Some(-1) => Ok(Ttl::Never),
        Some(seconds) if (1..=limits::TTL_SECONDS_MOST).contains(&seconds) => {
            Ok(Ttl::Seconds(i32::try_from(seconds).unwrap_or(i32::MAX)))
        }
        _ if is_on || is_number => Err(invalid_ttl("ttl", text)),
        _ => Ok(Ttl::Absent),
    }
}
