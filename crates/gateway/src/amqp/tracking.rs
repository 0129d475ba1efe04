//! The tail of every error text, by which a client's log and ours can be laid side by side (S-11).

use crate::iso;
use std::time::{SystemTime, UNIX_EPOCH};

/// `text` with its tracking data.
pub(super) fn tracked(text: &str, node: &str, entity: &str) -> String {
    let tracking = format!("{}_{node}", uuid::Uuid::new_v4());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let timestamp = iso::date_in_seconds(now);
    let timestamp = timestamp.trim_end_matches('Z');
    tracing::info!(tracking, entity, why = text, "refused");
    format!("{text} TrackingId:{tracking}, SystemTracker:{entity}, Timestamp:{timestamp}")
}
