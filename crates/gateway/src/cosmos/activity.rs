//! The activity id of a request: the client's own, or one of ours.

use super::response::ACTIVITY;
use crate::limits::ACTIVITY_ID_BYTES;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids that nobody else gives: random ones, counted on, because asking the system for randomness costs more than a request.
#[derive(Debug)]
pub struct Activities {
    base: u128,
    next: AtomicU64,
}

impl Default for Activities {
    fn default() -> Activities {
        Activities { base: uuid::Uuid::new_v4().as_u128(), next: AtomicU64::new(0) }
    }
}

impl Activities {
    pub fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(ACTIVITY);
        let is_id = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            !bytes.is_empty()
                && bytes.len() <= ACTIVITY_ID_BYTES
                && bytes.iter().all(|byte| byte.is_ascii_graphic())
        };
        match given.filter(is_id) {
            Some(id) => id.clone(),
            None => {
                let number = u128::from(self.next.fetch_add(1, Ordering::Relaxed));
                let mut text = uuid::Uuid::encode_buffer();
                let id = uuid::Uuid::from_u128(self.base ^ number).hyphenated().encode_lower(&mut text);
                HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("none"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_repeated_or_made() {
        let activities = Activities::default();
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ms-activity-id", HeaderValue::from_str(text).unwrap());
            activities.of(&headers)
        };
        assert_eq!(with("abc-1"), "abc-1");
        let made = [with(""), with(&"a".repeat(65)), with("a b"), activities.of(&HeaderMap::new())];
        assert!(made.iter().all(|id| id.len() == 36), "{made:?}");
        assert!((1..made.len()).all(|index| !made[..index].contains(&made[index])));
    }
}
