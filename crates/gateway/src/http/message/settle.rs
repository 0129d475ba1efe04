//! Settling: complete, unlock and renew a message by its lock token (HX-2.5 to HX-2.7), which counts on every connection (S-94).
//!
//! The token finds the lock. What stands before it in the address, the sequence number or the message id, must be the
//! message's: a client that takes the one for the other is told.

use super::super::Door;
use super::super::failure::Failure;
use super::body::Payload;
use super::receive::first_part;
use super::{Line, MessageRequest, broker_properties, empty, refused};
use crate::amqp::token_of_uuid;
use crate::ask::Ask;
use broker::{
    Answer, Command, Delivery, LockToken, NamespaceId, Number, Outcome, ReceiveMode, Refusal, Sequence,
};
use engine::{Outgoing, Sent, StoredMessage};
use hyper::{Method, Response, StatusCode};
use message::sections::Sections;
use message::{SystemProperty, View};

impl<A: Ask> Door<'_, A> {
    pub(super) async fn locked(
        &self,
        asked: &MessageRequest<'_>,
        entity: &str,
        message: &str,
        token: &str,
    ) -> Result<Response<Payload>, Failure> {
        let outcome = match asked.head.method {
            Method::DELETE => Some(Outcome::Complete),
            Method::PUT => Some(Outcome::Abandon(None)),
            Method::POST => None,
            _ => return Err(Failure::MethodNotAllowed),
        };
        // What is no token has locked nothing.
        let token = uuid::Uuid::parse_str(token).map_err(|_| Refusal::LockLost(Sequence(0)))?;
        let token = token_of_uuid(token.as_bytes());
        let namespace = asked.namespace.id;
        if !is_number_of(message, token.sequence())
            && self.message_id(namespace, entity, token.sequence()).await?.as_deref() != Some(message)
        {
            return Err(Refusal::LockLost(token.sequence()).into());
        }
        let (path, tokens): (Box<str>, Box<[LockToken]>) = (entity.into(), [token].into());
        let question = |request| match outcome {
            Some(outcome) => Command::SettleTokens { request, namespace, path, tokens, outcome },
            None => Command::RenewLocks { request, namespace, path, tokens },
        };
        match self.ask.ask(question).await?.map_err(refused)? {
            Answer::Settled | Answer::Renewed(_) => Ok(empty(StatusCode::OK)),
            _ => Err(Failure::Internal),
        }
    }

    /// The id of a message, read from where it is stored; `None` if there is no such message.
    async fn message_id(
        &self,
        namespace: NamespaceId,
        entity: &str,
        sequence: Sequence,
    ) -> Result<Option<String>, Failure> {
        let mut line = Line::open(self.ask.engine())?;
        let mut from = Number(sequence.0);
        let found = loop {
            match look_at(&mut line, namespace, entity, from).await? {
                None => return Ok(None),
                Some(sent) if sent.delivery.sequence == sequence => break sent,
                // The numbers of a partitioned entity have its partition in front, which any message of it tells.
                Some(sent) => {
                    let there =
                        Number(sent.delivery.number.0 & !Number::COUNTER | sequence.0 & Number::COUNTER);
                    if there <= from {
                        return Ok(None);
                    }
                    from = there;
                }
            }
        };
        let read = first_part(self.ask.engine(), &found).await.ok_or(Refusal::Unreadable)?;
        id_of(&read, &found.delivery).ok_or(Failure::Internal)
    }
}

/// Whether a text is the sequence number of a message. Partitions are not compared: the token has none.
fn is_number_of(text: &str, sequence: Sequence) -> bool {
    text.parse().is_ok_and(|number: u64| number & Number::COUNTER == sequence.0 & Number::COUNTER)
}

/// The first message from a number on, as a browser sees it.
async fn look_at(
    line: &mut Line,
    namespace: NamespaceId,
    entity: &str,
    from: Number,
) -> Result<Option<Sent>, Failure> {
    let request = line.connection.request(0);
    line.ask(vec![Command::Browse { request, namespace, path: entity.into(), from, most: 1, session: None }]);
    let Outgoing::Answered { answer, places, .. } = line.next().await else { return Err(Failure::Internal) };
    let Answer::Messages(messages) = answer.map_err(refused)? else { return Err(Failure::Internal) };
    let Some((delivery, mut parts)) = messages.into_iter().zip(places).next() else { return Ok(None) };
    let overlay = delivery.stored_overlay().and_then(|_| parts.pop()).map(Box::new);
    let place = parts.pop().ok_or(Refusal::Unreadable)?;
    Ok(Some(Sent { link: line.link(), mode: ReceiveMode::PeekLock, delivery, place, parts, overlay }))
}

/// The text of a stored message's id; `None` if the message is not what it was.
fn id_of(read: &StoredMessage, delivery: &Delivery) -> Option<Option<String>> {
    let stored = &read.body;
    let sections = Sections::scan(stored).or_else(|_| Sections::scan_front(stored)).ok()?;
    let changes = delivery.changes(&read.overlay).ok()?;
    let view = View { stored, sections: &sections, overlay: changes.as_deref() };
    let id = view.system(SystemProperty::MessageId).ok()?;
    Some(id.and_then(|id| broker_properties::id_text(&id.value().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_with_and_without_its_partition() {
        assert!(is_number_of("7", Sequence(7)));
        assert!(is_number_of(&(5 << 48 | 7_u64).to_string(), Sequence(7)));
        assert!(!is_number_of("8", Sequence(7)));
        assert!(!is_number_of("seven", Sequence(7)));
        assert!(!is_number_of("", Sequence(7)));
    }
}
