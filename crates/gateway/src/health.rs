//! How the server is, as both HTTP doors tell it (H-122).

use hyper::StatusCode;
use serde_json::{Value, json};

/// `reasons` keep what is sent now from being stored.
pub(crate) fn health(reasons: &[String]) -> (StatusCode, Value) {
    match reasons.is_empty() {
        true => (StatusCode::OK, json!({ "status": "healthy", "message": "Service is healthy." })),
        false => {
            let message = "Service not available. Please try after some time.";
            let body = json!({ "status": "unhealthy", "message": message, "reasons": reasons });
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}
