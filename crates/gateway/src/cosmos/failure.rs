//! Everything that is not a success, as clients are told (section 18).

use super::signature::{Denied, http_date_text};
use crate::limits::SHOWN_PATH_CHARACTERS;
use items::Refusal;
use serde_json::json;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: u16,
    pub sub_status: u32,
    /// JSON for an error of a query, else a sentence.
    pub message: String,
    pub is_json: bool,
    pub retry_after_ms: Option<u64>,
}

impl Failure {
    pub fn new(status: u16, sub_status: u32, message: impl Into<String>) -> Failure {
        Failure { status, sub_status, message: message.into(), is_json: false, retry_after_ms: None }
    }

    pub fn bad(message: impl Into<String>) -> Failure {
        Failure::new(400, 0, message)
    }

    pub fn not_found() -> Failure {
        Refusal::NotFound.into()
    }

    pub fn method_not_allowed() -> Failure {
        Failure::new(405, 0, "The requested verb is not supported on this resource.")
    }

    pub fn body_too_large() -> Failure {
        Failure::new(413, 0, "Request size is too large")
    }

    pub fn body_too_slow() -> Failure {
        Failure::new(408, 0, "The body of the request took too long to arrive.")
    }

    pub fn body_broken() -> Failure {
        Failure::bad("The body of the request broke off.")
    }

    pub fn code(&self) -> &'static str {
        match self.status {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            408 => "RequestTimeout",
            409 => "Conflict",
            410 => "Gone",
            412 => "PreconditionFailed",
            413 => "RequestEntityTooLarge",
            424 => "FailedDependency",
            // Clients look for this number, not for a word (P-80).
            429 => "429",
            503 => "ServiceUnavailable",
            507 => "InsufficientStorage",
            _ => "InternalServerError",
        }
    }

    /// The body. What a client sent is quoted in escaped form only.
    pub fn body(&self, activity: &str, path: &str) -> String {
        let message = match self.is_json {
            true => self.message.clone(),
            false => json!({ "Errors": [self.message] }).to_string(),
        };
        let shown = path.char_indices().nth(SHOWN_PATH_CHARACTERS).map_or(path, |(end, _)| &path[..end]);
        let details =
            format!("ActivityId: {activity}, Request URI: {shown}, RequestStats: none, SDK: otobus");
        json!({ "code": self.code(), "message": format!("Message: {message}\r\n{details}") }).to_string()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let (status, sub_status) = refusal.status();
        let retry_after_ms = match &refusal {
            Refusal::TooManyRequests { retry_after_ms } => Some(*retry_after_ms),
            _ => None,
        };
        let is_json = matches!(refusal, Refusal::Query { .. });
        Failure { status, sub_status, message: refusal.to_string(), is_json, retry_after_ms }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Failure {
        match denied {
            Denied::Missing => Failure::new(
                401,
                0,
                "Required Header authorization is missing. Ensure a valid Authorization token is passed.",
            ),
            Denied::Malformed(why) => {
                Failure::new(401, 0, format!("The authorization header cannot be used: {why}."))
            }
            Denied::NoDate => Failure::new(
                401,
                0,
                "Authorization token mandates Date header. Send x-ms-date, or date, in the form of RFC 1123.",
            ),
            Denied::WrongKey { payload } => {
                let payload = payload.replace('\n', "\\n");
                let message = format!(
                    "The input authorization token can't serve the request. The wrong key is being used or the expected payload \
                     is not built as per the protocol. Server used the following payload to sign: '{payload}'"
                );
                Failure::new(401, 0, message)
            }
            Denied::NotNow { date, now, window } => {
                let until = date.saturating_add(i64::try_from(window.as_secs()).unwrap_or(i64::MAX));
                let message = format!(
                    "The authorization token is not valid at the current time. Please create another token and retry (token start \
                     time: {}, token expiry time: {}, current server time: {}).",
                    http_date_text(date),
                    http_date_text(until),
                    http_date_text(now)
                );
                Failure::new(403, 0, message)
            }
            Denied::ReadOnly => {
                Failure::new(403, 0, "The key of this request is read-only and may not write.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    // Section 18
    #[test]
    fn a_body_is_json_with_code_and_message_whatever_it_quotes() {
        let failure = Failure::bad("`\"\r\n\u{0}é` is no name");
        let body: serde_json::Value = serde_json::from_str(&failure.body("a-b", "/dbs/\"x\"")).unwrap();
        assert_eq!(body["code"], "BadRequest");
        let message = body["message"].as_str().unwrap();
        assert!(
            message.starts_with(
                "Message: {\"Errors\":[\"`\\\"\\r\\n\\u0000é` is no name\"]}\r\nActivityId: a-b, "
            )
        );
    }

    // Q-18
    #[test]
    fn the_places_of_errors_in_a_query_stand_in_the_message_as_they_are() {
        let errors = r#"{"errors":[{"severity":"Error"}]}"#.to_owned();
        let body = Failure::from(Refusal::Query { errors: errors.clone() }).body("", "");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(body["message"].as_str().unwrap().contains(&errors));
    }

    // P-19
    #[test]
    fn an_old_signature_is_told_its_times() {
        let denied = Denied::NotNow { date: 1_493_254_272, now: 0, window: Duration::from_secs(900) };
        let failure = Failure::from(denied);
        assert_eq!((failure.status, failure.code()), (403, "Forbidden"));
        for part in [
            "token start time: Thu, 27 Apr 2017 00:51:12 GMT",
            "token expiry time: Thu, 27 Apr 2017 01:06:12 GMT",
        ] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }

    // P-80
    #[test]
    fn whoever_asks_too_much_is_told_when_to_come_again() {
        let failure = Failure::from(Refusal::TooManyRequests { retry_after_ms: 70 });
        assert_eq!((failure.status, failure.sub_status, failure.retry_after_ms), (429, 3200, Some(70)));
    }
}
