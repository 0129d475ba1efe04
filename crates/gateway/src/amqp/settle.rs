//! Settlement by clients that receive: their dispositions become commands, the broker's answers dispositions.

use super::connection::ConnectionTask;
use super::transaction::{transaction_of, within};
use crate::limits::{DISPOSITION_CHANGE_BYTES, TOLD_NAME_CHARACTERS};
use amqp::{Attach, LinkKey, SenderSettleMode, SessionKey, State};
use broker::{Command, LockToken, Outcome, ReceiveMode, Refusal, Settled, TransactionId};
use message::Value;
use message::limits::{OVERLAY_BYTES, PROPERTY_BYTES};
use message::overlay::{Overlay, OverlayError};

/// A client that asks for settled deliveries takes messages for good; every other one locks them (A-5.1).
pub(super) fn mode_of(attach: &Attach) -> ReceiveMode {
    match attach.snd_settle_mode {
        Some(SenderSettleMode::Settled) => ReceiveMode::ReceiveAndDelete,
        _ => ReceiveMode::PeekLock,
    }
}

/// The delivery tag that stands for a lock token: its sixteen bytes, which clients read as a GUID.
pub(super) fn tag_of(token: LockToken) -> [u8; 16] {
    token.0.to_be_bytes()
}

/// The tag that a delivery goes out with, `locked` if it has a lock. One that is settled has an empty tag, for every client
/// takes sixteen bytes for a lock token (A-5.2); not a null one, for Go wants a tag on each delivery (A-11.43).
pub(super) fn sent_tag(locked: &[u8; 16], is_settled: bool) -> &[u8] {
    if is_settled { &[] } else { locked }
}

fn token_of(tag: &[u8; 16]) -> LockToken {
    LockToken(u128::from_be_bytes(*tag))
}

const NO_OUTCOME: &str = "A settlement within a transaction needs an outcome.";

impl<S> ConnectionTask<S> {
    pub(super) fn disposition(
        &mut self,
        session: SessionKey,
        first: u32,
        last: u32,
        settled: bool,
        state: Option<State>,
    ) {
        let (transaction, state) = match state {
            Some(State::Transactional { txn_id, outcome: Some(outcome) }) => {
                (Some(transaction_of(&txn_id)), Some(*outcome))
            }
            // Refused below.
            Some(State::Transactional { txn_id, outcome: None }) => {
                (Some(transaction_of(&txn_id)), Some(State::Transactional { txn_id, outcome: None }))
            }
            state => (None, state),
        };
        let outcome = match state.map(outcome_of) {
            Some(Ok(Some(outcome))) => outcome,
            // Nothing decided yet.
            None | Some(Ok(None)) => return,
            Some(Err(refusal)) => {
                return self.refuse_disposition((session, first, last), settled, transaction, &refusal);
            }
        };
        let change_bytes = outcome.held_bytes();
        if change_bytes > 0 {
            let mut count: usize = 0;
            self.machine.outstanding(session, first, last, false, |_, _, _| count += 1);
            let size = change_bytes.saturating_mul(count);
            if size > DISPOSITION_CHANGE_BYTES {
                let refusal = Refusal::PropertiesTooLarge { size, limit: DISPOSITION_CHANGE_BYTES };
                return self.refuse_disposition((session, first, last), settled, transaction, &refusal);
            }
            self.batch.extra_bytes += size;
        }
        let (batch, engine) = (&mut self.batch, &self.engine);
        self.machine.outstanding(session, first, last, settled, |link, delivery, tag| {
            let settle = Command::Settle {
                link: engine.link(link.0),
                delivery,
                token: token_of(tag),
                outcome: outcome.clone(),
                wants_answer: !settled,
            };
            batch.commands.push(within(transaction, settle));
        });
    }

    fn refuse_disposition(
        &mut self,
        (session, first, last): (SessionKey, u32, u32),
        settled: bool,
        transaction: Option<TransactionId>,
        refusal: &Refusal,
    ) {
        let mut refused = Vec::new();
        self.machine.outstanding(session, first, last, settled, |link, delivery, _| {
            refused.push((link, delivery));
        });
        if !settled {
            return refused
                .into_iter()
                .for_each(|(link, delivery)| self.not_settled(link, delivery, refusal));
        }
        // A receiver that wants no answer is told by the commit (S-218).
        if let Some((transaction, (link, _))) = transaction.zip(refused.first()) {
            self.batch.commands.push(Command::Spoil { link: self.engine.link(link.0), transaction });
        }
    }

    /// The answer repeats the outcome that was asked for: clients take any other for a failure (A-5.6).
    pub(super) fn settled(&mut self, key: LinkKey, first: u32, last: u32, outcome: Settled) {
        self.machine.settle_outgoing(key, first, last, &state_of(outcome));
    }

    pub(super) fn not_settled(&mut self, key: LinkKey, delivery: u32, refusal: &Refusal) {
        let path = self.links.get(&key.0).map_or("", |link| link.kind.path());
        let error = self.origin.refusal(refusal, path);
        self.machine.settle_outgoing(key, delivery, delivery, &State::rejected(error));
    }
}

pub(super) fn state_of(outcome: Settled) -> State {
    let modified = |undeliverable_here| State::Modified {
        delivery_failed: false,
        undeliverable_here,
        message_annotations: Value::Null,
    };
    match outcome {
        Settled::Completed => State::Accepted,
        Settled::Abandoned => modified(false),
        Settled::Released => State::Released,
        Settled::Deferred => modified(true),
        // Without an error: with one it would be a refusal.
        Settled::DeadLettered => State::Rejected(None),
    }
}

/// What a client's state asks for (A-5.6); nothing, if it is not an outcome.
fn outcome_of(state: State) -> Result<Option<Outcome>, Refusal> {
    Ok(Some(match state {
        State::Accepted => Outcome::Complete,
        State::Released => Outcome::Release,
        State::Modified { undeliverable_here, message_annotations, .. } => {
            let overlay = overlay_of(&message_annotations)?;
            if undeliverable_here { Outcome::Defer(overlay) } else { Outcome::Abandon(overlay) }
        }
        State::Rejected(error) => {
            Outcome::DeadLetter(error.map(|error| overlay_of(&error.info)).transpose()?.flatten())
        }
        State::Transactional { .. } => return Err(Refusal::NotAllowed(NO_OUTCOME)),
        State::Received { .. } | State::Declared { .. } => return Ok(None),
    }))
}

/// Properties to change, from a map; null values remove, except where clients write null for "not given".
pub(super) fn overlay_of(changes: &Value) -> Result<Option<Box<Overlay>>, Refusal> {
    let Value::Map(entries) = changes else { return Ok(None) };
    let mut overlay = Overlay::default();
    for (name, value) in entries {
        let Some(name) = name.as_str() else {
            return Err(Refusal::NotAllowed("The name of a property to change must be text."));
        };
        let is_not_given = value.is_null() && name.starts_with("DeadLetter");
        if !is_not_given {
            change(&mut overlay, name, value)?;
        }
    }
    Ok((!overlay.is_empty()).then(|| Box::new(overlay)))
}

/// Sets or removes one property. What does not fit is told by its own name and size (S-18).
pub(super) fn change(overlay: &mut Overlay, name: &str, value: &Value) -> Result<(), Refusal> {
    overlay.set(name, value).map_err(|error| match error {
        OverlayError::PropertyTooLarge(size) => {
            // The name may be what is too long.
            let name: String = name.chars().take(TOLD_NAME_CHARACTERS).collect();
            Refusal::PropertyTooLarge { name: name.into(), size, limit: PROPERTY_BYTES as usize }
        }
        OverlayError::TooLarge(size) => Refusal::PropertiesTooLarge { size, limit: OVERLAY_BYTES },
        other => unreachable!("a property of the application is only ever too large: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client is told that dead-letters with this reason.
    fn refused(reason: &str) -> Option<String> {
        let info = Value::Map(vec![(Value::Symbol("DeadLetterReason".into()), reason.into())]);
        let error = amqp::Error { info, ..amqp::Error::new("com.microsoft:dead-letter", String::new()) };
        outcome_of(State::rejected(error)).err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_reason_may_be_as_long_as_a_property_and_one_that_is_longer_is_told_by_its_own_size() {
        // S-18, S-90: the name and the five bytes in front of a long text count.
        let longest = PROPERTY_BYTES as usize - "DeadLetterReason".len() - 5;
        assert_eq!(refused(&"r".repeat(longest)), None);
        assert_eq!(
            refused(&"r".repeat(longest + 1)).as_deref(),
            Some(
                "the property 'DeadLetterReason' has 32769 bytes with its name; the limit of one property is 32768"
            )
        );
    }

    #[test]
    fn changes_that_are_too_large_together_are_told_by_their_size_together() {
        // S-18
        let long = Value::from("p".repeat(30_000).as_str());
        let names = ["a", "b", "c"].map(|name| (Value::from(name), long.clone()));
        // A version, and for each its kind, two lengths of two bytes, a name and the value.
        let size = 1 + 3 * (1 + 2 + 1 + 2 + 5 + 30_000);
        let refused = Refusal::PropertiesTooLarge { size, limit: OVERLAY_BYTES };
        assert_eq!(overlay_of(&Value::Map(names.to_vec())), Err(refused));
    }

    #[test]
    fn of_a_name_that_is_too_long_only_the_beginning_is_told() {
        let long = Value::from("n".repeat(PROPERTY_BYTES as usize + 1).as_str());
        let refused = overlay_of(&Value::Map(vec![(long, Value::Null)]));
        let Err(Refusal::PropertyTooLarge { name, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(name.len(), TOLD_NAME_CHARACTERS);
    }

    #[test]
    fn a_token_travels_as_a_tag_of_sixteen_bytes() {
        // A-5.2
        let token = LockToken::new(0x0123_4567_89ab_cdef, broker::Sequence(77));
        assert_eq!(token_of(&tag_of(token)), token);
    }

    #[test]
    fn states_mean_what_the_clients_mean_by_them() {
        // A-5.6
        let modified = |undeliverable_here| State::Modified {
            delivery_failed: true,
            undeliverable_here,
            message_annotations: Value::Map(vec![(Value::Symbol("n".into()), Value::Int(1))]),
        };
        assert_eq!(outcome_of(State::Accepted), Ok(Some(Outcome::Complete)));
        assert_eq!(outcome_of(State::Released), Ok(Some(Outcome::Release)));
        assert!(matches!(outcome_of(modified(false)), Ok(Some(Outcome::Abandon(Some(_))))));
        assert!(matches!(outcome_of(modified(true)), Ok(Some(Outcome::Defer(Some(_))))));
        assert_eq!(outcome_of(State::Rejected(None)), Ok(Some(Outcome::DeadLetter(None))));
    }
}
