//! The only place where a refusal becomes a wire condition. No catch-all: a new refusal must choose.

use super::arriving::Unfit;
use super::tracking::tracked;
use crate::auth::Denied;
use amqp::Error;
use broker::Refusal;
use message::facts::FactsError;

/// Conditions beyond those of the protocol itself.
const NOT_FOUND: &str = "amqp:not-found";
const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
/// The one that asks a client to try again a little later (S-12).
pub(super) const SERVER_BUSY: &str = "com.microsoft:server-busy";
/// Nothing came within the time for it; clients ask again.
pub(super) const TIMED_OUT: &str = "com.microsoft:timeout";
pub(super) const ARGUMENT: &str = "com.microsoft:argument-error";
const ARGUMENT_OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";

fn amqp_condition(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::EntityNotFound(_) => NOT_FOUND,
        Refusal::EntityExists(_) => "com.microsoft:entity-already-exists",
        Refusal::InvalidName { .. }
        | Refusal::InvalidSetting { .. }
        | Refusal::Unchangeable { .. }
        | Refusal::ForwardTargetNotFound(_) => ARGUMENT,
        Refusal::EntityDisabled(_) => "com.microsoft:entity-disabled",
        Refusal::NotAllowed(_) | Refusal::NotInTier { .. } => "amqp:not-allowed",
        Refusal::MessageTooLarge { .. } | Refusal::BatchTooLarge { .. } => "amqp:link:message-size-exceeded",
        Refusal::PropertyTooLarge { .. } | Refusal::PropertiesTooLarge { .. } | Refusal::TooMany { .. } => {
            ARGUMENT_OUT_OF_RANGE
        }
        Refusal::QueueFull { .. }
        | Refusal::NoSpace
        | Refusal::TransactionFull(_)
        | Refusal::TooManyTransactions(_)
        | Refusal::TransactionsTooLarge { .. }
        | Refusal::TooManyEntities(_)
        | Refusal::TooManyReceivers { .. }
        | Refusal::TooManySubscriptions(_)
        | Refusal::TooManySqlFilters(_)
        | Refusal::TooManyCorrelationFilters(_) => "amqp:resource-limit-exceeded",
        Refusal::LockLost(_) => "com.microsoft:message-lock-lost",
        Refusal::SessionLockLost => "com.microsoft:session-lock-lost",
        Refusal::SessionCannotBeLocked(_) => "com.microsoft:session-cannot-be-locked",
        Refusal::MessageNotFound(_) => "com.microsoft:message-not-found",
        Refusal::Unreadable => "amqp:internal-error",
        Refusal::UnknownTransaction => "amqp:transaction:unknown-id",
        Refusal::RolledBack(_) => "amqp:transaction:rollback",
        Refusal::NotSupported(_) => NOT_IMPLEMENTED,
    }
}

/// Where errors of one connection come from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) node: String,
    /// The host name by which the client knows this server.
    pub(super) host: String,
}

impl Origin {
    pub(super) fn error(&self, condition: &'static str, text: &str, entity: &str) -> Error {
        Error::new(condition, self.tracked(text, entity))
    }

    /// A text by which the log can be asked for it.
    pub(super) fn tracked(&self, text: &str, entity: &str) -> String {
        tracked(text, &self.node, &format!("{}:{entity}", self.host))
    }

    pub(super) fn refusal(&self, refusal: &Refusal, entity: &str) -> Error {
        let text = match refusal {
            // JavaScript and Java tell "gone" from "unreachable" by this sentence.
            Refusal::EntityNotFound(path) => self.not_found(path),
            // K-7: only rules are made over AMQP.
            Refusal::EntityExists(rule) => {
                format!("The messaging entity 'sb://{}/{entity}/Rules/{rule}' already exists.", self.host)
            }
            other => other.to_string(),
        };
        self.error(amqp_condition(refusal), &text, entity)
    }

    pub(super) fn not_found(&self, path: &str) -> String {
        format!("The messaging entity 'sb://{}/{path}' could not be found.", self.host)
    }

    pub(super) fn denied(&self, denied: Denied, entity: &str) -> Error {
        self.error(UNAUTHORIZED, &denied.to_string(), entity)
    }

    pub(super) fn not_implemented(&self, what: &str, entity: &str) -> Error {
        self.error(NOT_IMPLEMENTED, &format!("{what} is not supported by this version."), entity)
    }

    /// What is wrong with a delivery that was sent.
    pub(super) fn unfit(&self, why: &Unfit, entity: &str) -> Error {
        let condition = match why {
            Unfit::Facts(error) => return self.bad_message(error, entity),
            Unfit::BatchTooLarge => amqp::condition::MESSAGE_SIZE_EXCEEDED,
            Unfit::Busy => SERVER_BUSY,
        };
        self.error(condition, &why.to_string(), entity)
    }

    /// What is wrong with a message that was sent.
    pub(super) fn bad_message(&self, error: &FactsError, entity: &str) -> Error {
        let condition = match error {
            FactsError::Malformed { .. } | FactsError::Repeated(_) => amqp::condition::DECODE_ERROR,
            FactsError::WrongType { .. } => ARGUMENT,
            FactsError::TooLong { .. }
            | FactsError::PropertyTooLarge { .. }
            | FactsError::PropertiesTooLarge { .. } => ARGUMENT_OUT_OF_RANGE,
        };
        self.error(condition, &error.to_string(), entity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { node: "n1".into(), host: "localhost".into() }
    }

    #[test]
    fn a_missing_entity_is_told_in_the_words_that_clients_match() {
        //
        let error = origin().refusal(&Refusal::EntityNotFound("q".into()), "q");
        assert_eq!(error.condition, NOT_FOUND);
        let text = error.description.unwrap();
        assert!(text.starts_with("The messaging entity 'sb://localhost/q' could not be found."), "{text}");
    }

    #[test]
    fn a_rule_that_exists_is_told_with_its_path() {
        // K-7
        let refusal = Refusal::EntityExists("first".into());
        let text = origin().refusal(&refusal, "t/Subscriptions/s").description.unwrap();
        let expected = "The messaging entity 'sb://localhost/t/Subscriptions/s/Rules/first' already exists.";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn each_refusal_has_the_condition_that_clients_act_on() {
        //
        let conditions = [
            (Refusal::EntityNotFound("q".into()), "amqp:not-found"),
            (Refusal::EntityDisabled("q".into()), "com.microsoft:entity-disabled"),
            (Refusal::NotAllowed("no"), "amqp:not-allowed"),
            (Refusal::MessageTooLarge { size: 2, limit: 1 }, "amqp:link:message-size-exceeded"),
            (
                Refusal::QueueFull { kind: "Queue", name: "q".into(), size: 2, limit: 1 },
                "amqp:resource-limit-exceeded",
            ),
            (Refusal::LockLost(broker::Sequence(1)), "com.microsoft:message-lock-lost"),
            (Refusal::SessionLockLost, "com.microsoft:session-lock-lost"),
            (Refusal::SessionCannotBeLocked("s".into()), "com.microsoft:session-cannot-be-locked"),
        ];
        for (refusal, condition) in conditions {
            assert_eq!(origin().refusal(&refusal, "q").condition, condition);
        }
    }

    /// One of each but for what the disk has lost.
    fn every_refusal() -> Vec<Refusal> {
        vec![
            Refusal::EntityNotFound("q".into()),
            Refusal::EntityExists("q".into()),
            Refusal::InvalidName { name: "q".into(), why: "no" },
            Refusal::InvalidSetting { property: "p", why: "no".into() },
            Refusal::Unchangeable { property: "p", kind: "Queue" },
            Refusal::NotInTier { property: "p", tier: "basic" },
            Refusal::ForwardTargetNotFound("q".into()),
            Refusal::TooManySubscriptions(1),
            Refusal::TooManySqlFilters(1),
            Refusal::TooManyCorrelationFilters(1),
            Refusal::TooManyEntities(1),
            Refusal::TooManyReceivers { name: "q".into(), limit: 1 },
            Refusal::TooMany { what: "tokens", count: 2, limit: 1 },
            Refusal::EntityDisabled("q".into()),
            Refusal::NotAllowed("no"),
            Refusal::MessageTooLarge { size: 2, limit: 1 },
            Refusal::BatchTooLarge { count: 2, limit: 1 },
            Refusal::PropertyTooLarge { name: "p".into(), size: 2, limit: 1 },
            Refusal::PropertiesTooLarge { size: 2, limit: 1 },
            Refusal::QueueFull { kind: "Queue", name: "q".into(), size: 2, limit: 1 },
            Refusal::NoSpace,
            Refusal::LockLost(broker::Sequence(1)),
            Refusal::SessionLockLost,
            Refusal::SessionCannotBeLocked("s".into()),
            Refusal::MessageNotFound(broker::Number(1)),
            Refusal::UnknownTransaction,
            Refusal::RolledBack("no".into()),
            Refusal::TransactionFull(1),
            Refusal::TooManyTransactions(1),
            Refusal::TransactionsTooLarge { size: 2, limit: 1 },
            Refusal::NotSupported("it"),
        ]
    }

    // SX-22.1: clients know no others. Those of transactions are the standard's own.
    #[test]
    fn no_condition_is_outside_the_known_table() {
        const KNOWN: [&str; 30] = [
            "amqp:not-found",
            "amqp:unauthorized-access",
            "amqp:not-allowed",
            "amqp:not-implemented",
            "amqp:internal-error",
            "amqp:resource-limit-exceeded",
            "amqp:resource-deleted",
            "amqp:decode-error",
            "amqp:invalid-field",
            "amqp:illegal-state",
            "amqp:precondition-failed",
            "amqp:frame-size-too-small",
            "amqp:connection:forced",
            "amqp:connection:framing-error",
            "amqp:session:handle-in-use",
            "amqp:session:unattached-handle",
            "amqp:link:message-size-exceeded",
            "amqp:link:detach-forced",
            "amqp:transaction:unknown-id",
            "amqp:transaction:rollback",
            "com.microsoft:timeout",
            "com.microsoft:server-busy",
            "com.microsoft:argument-error",
            "com.microsoft:argument-out-of-range",
            "com.microsoft:entity-disabled",
            "com.microsoft:entity-already-exists",
            "com.microsoft:message-lock-lost",
            "com.microsoft:session-lock-lost",
            "com.microsoft:session-cannot-be-locked",
            "com.microsoft:message-not-found",
        ];
        let told = every_refusal().into_iter().chain([Refusal::Unreadable]);
        let mut conditions: Vec<_> =
            told.map(|refusal| origin().refusal(&refusal, "q").condition.to_string()).collect();
        conditions.extend([TIMED_OUT, ARGUMENT, SERVER_BUSY].map(str::to_owned));
        conditions.push(origin().not_implemented("it", "q").condition.to_string());
        conditions.push(origin().denied(Denied::ExpiredToken, "q").condition.to_string());
        for unfit in [Unfit::Busy, Unfit::BatchTooLarge] {
            conditions.push(origin().unfit(&unfit, "q").condition.to_string());
        }
        use amqp::condition::*;
        conditions.extend(
            [
                DECODE_ERROR,
                FRAME_SIZE_TOO_SMALL,
                ILLEGAL_STATE,
                INTERNAL_ERROR,
                INVALID_FIELD,
                NOT_ALLOWED,
                RESOURCE_LIMIT_EXCEEDED,
                CONNECTION_FORCED,
                FRAMING_ERROR,
                HANDLE_IN_USE,
                UNATTACHED_HANDLE,
                MESSAGE_SIZE_EXCEEDED,
            ]
            .map(str::to_owned),
        );
        for condition in conditions {
            assert!(KNOWN.contains(&&*condition), "{condition}");
        }
    }

    #[test]
    fn only_what_may_succeed_later_is_told_with_a_condition_that_clients_retry() {
        // S-12: the same send after a refusal of the broker is refused again, until somebody changes something.
        let is_retried = |condition: &str| {
            ["com.microsoft:server-busy", "com.microsoft:timeout", "amqp:internal-error"].contains(&condition)
        };
        for refusal in every_refusal() {
            assert!(!is_retried(&origin().refusal(&refusal, "q").condition), "{refusal}");
        }
        assert!(is_retried(&origin().unfit(&Unfit::Busy, "q").condition));
        assert!(!is_retried(&origin().unfit(&Unfit::BatchTooLarge, "q").condition));
    }

    #[test]
    fn every_text_ends_with_tracking_data() {
        // S-11
        let text = origin().refusal(&Refusal::LockLost(broker::Sequence(1)), "q").description.unwrap();
        let (_, tail) = text.split_once(" TrackingId:").unwrap();
        assert!(tail.contains("_n1, SystemTracker:localhost:q, Timestamp:20"), "{text}");
    }
}
