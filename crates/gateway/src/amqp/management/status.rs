//! The only place where a refusal becomes a status of a reply. No catch-all: a new refusal must choose. Clients read the
//! condition first and the number where they know no better (A-7.1).

use broker::Refusal;

pub(super) const OK: i32 = 200;
pub(super) const NOTHING: i32 = 204;
pub(super) const BAD_REQUEST: i32 = 400;
pub(super) const UNAUTHORIZED: i32 = 401;
const FORBIDDEN: i32 = 403;
const NOT_FOUND: i32 = 404;
const CONFLICT: i32 = 409;
const GONE: i32 = 410;
pub(super) const INTERNAL_ERROR: i32 = 500;
pub(super) const NOT_IMPLEMENTED: i32 = 501;
pub(super) const BUSY: i32 = 503;

pub(super) fn of_refusal(refusal: &Refusal) -> i32 {
    match refusal {
        Refusal::EntityNotFound(_) | Refusal::MessageNotFound(_) => NOT_FOUND,
        Refusal::EntityExists(_) | Refusal::SessionCannotBeLocked(_) => CONFLICT,
        Refusal::LockLost(_) | Refusal::SessionLockLost => GONE,
        Refusal::InvalidName { .. }
        | Refusal::InvalidSetting { .. }
        | Refusal::Unchangeable { .. }
        | Refusal::ForwardTargetNotFound(_)
        | Refusal::EntityDisabled(_)
        | Refusal::NotAllowed(_)
        | Refusal::NotInTier { .. }
        | Refusal::PropertyTooLarge { .. }
        | Refusal::PropertiesTooLarge { .. }
        | Refusal::UnknownTransaction
        | Refusal::RolledBack(_)
        | Refusal::TooMany { .. } => BAD_REQUEST,
        Refusal::MessageTooLarge { .. }
        | Refusal::BatchTooLarge { .. }
        | Refusal::QueueFull { .. }
        | Refusal::NoSpace
        | Refusal::TransactionFull(_)
        | Refusal::TooManyTransactions(_)
        | Refusal::TransactionsTooLarge { .. }
        | Refusal::TooManyEntities(_)
        | Refusal::TooManyReceivers { .. }
        | Refusal::TooManySubscriptions(_)
        | Refusal::TooManySqlFilters(_)
        | Refusal::TooManyCorrelationFilters(_) => FORBIDDEN,
        Refusal::NotSupported(_) => NOT_IMPLEMENTED,
        Refusal::Unreadable => INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::{Number, Sequence};

    #[test]
    fn each_refusal_has_the_status_that_clients_act_on() {
        // A-7.1.5
        let statuses = [
            (Refusal::MessageNotFound(Number(1)), 404),
            (Refusal::EntityNotFound("q".into()), 404),
            (Refusal::LockLost(Sequence(1)), 410),
            (Refusal::SessionLockLost, 410),
            (Refusal::EntityDisabled("q".into()), 400),
            (Refusal::NotAllowed("no"), 400),
            (Refusal::QueueFull { kind: "Queue", name: "q".into(), size: 2, limit: 1 }, 403),
            (Refusal::MessageTooLarge { size: 2, limit: 1 }, 403),
            (Refusal::EntityExists("r".into()), 409),
            (Refusal::InvalidSetting { property: "p", why: "no".into() }, 400),
            (Refusal::UnknownTransaction, 400),
            (Refusal::NotSupported("it"), 501),
            (Refusal::Unreadable, 500),
        ];
        for (refusal, status) in statuses {
            assert_eq!(of_refusal(&refusal), status, "{refusal}");
        }
    }
}
