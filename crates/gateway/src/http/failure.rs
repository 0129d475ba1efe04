//! Every answer of the HTTP door that is not a success: its status, its sub-code and its words (http errors, H-70, H-71).

use super::xml::{Writer, XmlError};
use crate::auth::Denied;
use broker::Refusal;
use engine::Stopped;
use hyper::StatusCode;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Denied(#[from] Denied),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Stopped(#[from] Stopped),
    #[error("{0}")]
    Xml(#[from] XmlError),
    /// The request is understood and cannot be right.
    #[error("{0}")]
    Bad(String),
    #[error("The address is too long.")]
    AddressTooLong,
    #[error("The body is longer than {0} bytes.")]
    BodyTooLarge(usize),
    #[error("The body did not arrive in time.")]
    BodyTooSlow,
    #[error("The body did not arrive whole.")]
    BodyBroken,
    /// A message that is too long to be held until its length is known.
    #[error("A message above {0} bytes needs a Content-Length.")]
    LengthRequired(usize),
    /// What the server does not take now it may take later.
    #[error("{0}")]
    Busy(String),
    /// Where messages are sent and received a missing entity is gone (the tables of the runtime API).
    #[error("The messaging entity '{0}' could not be found.")]
    Gone(Box<str>),
    #[error("There is nothing at this address.")]
    NoSuchAddress,
    #[error("This address speaks AMQP over WebSocket alone.")]
    UpgradeRequired,
    #[error(
        "What is there does not match the tag; it has none. Send If-Match: * to change it whatever it is."
    )]
    PreconditionFailed,
    #[error("The method is not allowed here.")]
    MethodNotAllowed,
    /// The answer does not fit the question: a bug, which is ours and not the client's.
    #[error("The server made a mistake.")]
    Internal,
}

impl Failure {
    pub fn status(&self) -> StatusCode {
        match self {
            Failure::Denied(_) => StatusCode::UNAUTHORIZED,
            Failure::Refused(refusal) => status_of_refusal(refusal).0,
            Failure::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Xml(_) | Failure::Bad(_) | Failure::BodyBroken => StatusCode::BAD_REQUEST,
            Failure::AddressTooLong => StatusCode::URI_TOO_LONG,
            Failure::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Failure::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Failure::LengthRequired(_) => StatusCode::LENGTH_REQUIRED,
            Failure::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Gone(_) => StatusCode::GONE,
            Failure::NoSuchAddress => StatusCode::NOT_FOUND,
            Failure::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            Failure::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Failure::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Failure::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What the log says. Nothing that the client sent is repeated there: it may be a key.
    pub fn logged(&self) -> String {
        match self {
            Failure::Bad(_) | Failure::Xml(_) => "the request is wrong".to_owned(),
            Failure::Refused(Refusal::InvalidSetting { property, .. }) => {
                format!("the value of {property} is invalid")
            }
            other => other.to_string(),
        }
    }

    fn sub_code(&self) -> u32 {
        match self {
            Failure::Denied(denied) => denied.sub_code(),
            Failure::Refused(refusal) => status_of_refusal(refusal).1,
            Failure::Stopped(_) | Failure::Busy(_) => 50004,
            // Where the service knows no finer one, a sub-code is its status with two zeros.
            _ => u32::from(self.status().as_u16()) * 100,
        }
    }

    /// The body that the SDKs read: without a namespace, the status once more, and a text with the sub-code in front.
    pub fn body(&self, tracking: &str, host: &str, path: &str, timestamp: &str) -> String {
        let status = self.status();
        // A wrong request is told what is wrong, and nothing before it (S-260, H-71, K-26).
        let reason = match status {
            StatusCode::BAD_REQUEST => String::new(),
            _ => format!("{}. ", status.canonical_reason().unwrap_or_default()),
        };
        let what = self.to_string();
        let stop = if what.ends_with('.') { "" } else { "." };
        let detail = format!(
            "SubCode={}. {reason}{what}{stop} TrackingId:{tracking}, SystemTracker:{host}:{path}, Timestamp:{timestamp}",
            self.sub_code()
        );
        let mut writer = Writer::default();
        writer.start("Error", &[]).leaf("Code", status.as_str()).leaf("Detail", &detail).end();
        writer.finish()
    }
}

/// The only place where a refusal becomes a status and a sub-code. No `_` arm: a new refusal must choose.
fn status_of_refusal(refusal: &Refusal) -> (StatusCode, u32) {
    match refusal {
        Refusal::EntityNotFound(_) => (StatusCode::NOT_FOUND, 40400),
        Refusal::EntityExists(_) | Refusal::SessionCannotBeLocked(_) => (StatusCode::CONFLICT, 40900),
        // S-171: the request is wrong, and its sub-code says what is missing.
        Refusal::ForwardTargetNotFound(_) => (StatusCode::BAD_REQUEST, 40400),
        Refusal::TooManySqlFilters(_) => (StatusCode::FORBIDDEN, 40501),
        Refusal::TooManyCorrelationFilters(_) => (StatusCode::FORBIDDEN, 40502),
        Refusal::TooManySubscriptions(_) => (StatusCode::FORBIDDEN, 40503),
        Refusal::InvalidName { .. }
        | Refusal::Unchangeable { .. }
        | Refusal::InvalidSetting { .. }
        | Refusal::NotInTier { .. }
        | Refusal::TooMany { .. }
        | Refusal::UnknownTransaction
        | Refusal::RolledBack(_)
        | Refusal::BatchTooLarge { .. }
        | Refusal::PropertyTooLarge { .. }
        | Refusal::PropertiesTooLarge { .. } => (StatusCode::BAD_REQUEST, 40000),
        Refusal::TooManyEntities(_)
        | Refusal::TransactionFull(_)
        | Refusal::TooManyTransactions(_)
        | Refusal::TransactionsTooLarge { .. }
        | Refusal::TooManyReceivers { .. }
        | Refusal::QueueFull { .. }
        | Refusal::MessageTooLarge { .. } => (StatusCode::FORBIDDEN, 40300),
        Refusal::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, 50700),
        Refusal::EntityDisabled(_) | Refusal::NotAllowed(_) => (StatusCode::FORBIDDEN, 40301),
        Refusal::LockLost(_) | Refusal::SessionLockLost | Refusal::MessageNotFound(_) => {
            (StatusCode::NOT_FOUND, 40400)
        }
        Refusal::Unreadable => (StatusCode::INTERNAL_SERVER_ERROR, 50000),
        Refusal::NotSupported(_) => (StatusCode::NOT_IMPLEMENTED, 50100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Right;

    // H-70 and the error table
    #[test]
    fn the_body_has_code_and_detail_in_the_shape_that_clients_parse() {
        let body = Failure::Refused(Refusal::EntityExists("orders".into())).body("t_1", "h", "orders", "now");
        assert_eq!(
            body,
            "<Error><Code>409</Code><Detail>SubCode=40900. Conflict. an entity called 'orders' exists \
             already. TrackingId:t_1, SystemTracker:h:orders, Timestamp:now</Detail></Error>"
        );
    }

    // HX-1.9.3
    #[test]
    fn each_failure_has_a_sub_code_that_is_known() {
        let path = || "q".into();
        for (failure, status, sub_code) in [
            (Failure::Bad("it".into()), 400, 40000),
            (Refusal::InvalidSetting { property: "p", why: "no".into() }.into(), 400, 40000),
            (Refusal::Unchangeable { property: "p", kind: "Queue" }.into(), 400, 40000),
            (Refusal::ForwardTargetNotFound(path()).into(), 400, 40400),
            (Denied::MissingToken.into(), 401, 40102),
            (Refusal::QueueFull { kind: "Queue", name: path(), size: 2, limit: 1 }.into(), 403, 40300),
            (Refusal::EntityDisabled(path()).into(), 403, 40301),
            (Refusal::TooManySqlFilters(1).into(), 403, 40501),
            (Refusal::TooManyCorrelationFilters(1).into(), 403, 40502),
            (Refusal::TooManySubscriptions(1).into(), 403, 40503),
            (Refusal::EntityNotFound(path()).into(), 404, 40400),
            (Refusal::EntityExists(path()).into(), 409, 40900),
            (Failure::Gone(path()), 410, 41000),
            (Failure::Internal, 500, 50000),
            (Failure::Busy("later".into()), 503, 50004),
        ] {
            let body = failure.body("", "", "", "");
            let start = format!("<Error><Code>{status}</Code><Detail>SubCode={sub_code}. ");
            assert!(body.starts_with(&start), "{body}");
        }
    }

    // H-70
    #[test]
    fn each_denial_has_its_own_sub_code() {
        for (denied, sub_code) in [
            (
                Denied::MissingClaim(Right::Manage),
                "SubCode=40100. Unauthorized. Unauthorized access. 'Manage' claim(s) are required",
            ),
            (
                Denied::MissingToken,
                "SubCode=40102. Unauthorized. MissingToken: The authorization header was not found.",
            ),
            (
                Denied::InvalidSignature,
                "SubCode=40103. Unauthorized. InvalidSignature: The token has an invalid signature.",
            ),
            (Denied::InvalidAudience, "SubCode=40104. "),
            (Denied::MalformedToken, "SubCode=40105. "),
            (Denied::ExpiredToken, "SubCode=40106. Unauthorized. ExpiredToken: "),
        ] {
            let body = Failure::Denied(denied).body("", "", "", "");
            assert!(body.starts_with(&format!("<Error><Code>401</Code><Detail>{sub_code}")), "{body}");
        }
    }
}
