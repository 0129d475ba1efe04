//! `schedule-message`: messages for later, answered with their numbers (S-40).

use super::super::intake::add_message;
use super::reply::Reply;
use super::{Asking, Failure, Verb};
use broker::limits::BATCH_MESSAGES;
use broker::{Command, Number};
use message::Value;
use message::codec::{begin_array, code, end_compound};

pub(super) fn command(asking: Asking<'_>) -> Result<(Verb, Command), Failure> {
    let entries = match asking.arguments.get("messages") {
        Some(Value::List(entries)) if !entries.is_empty() => entries,
        _ => return Err(Failure::Argument("messages")),
    };
    if entries.len() > BATCH_MESSAGES {
        return Err(Failure::Range("messages"));
    }
    let first = asking.batch.messages.len();
    for entry in entries {
        // What else an entry has, an id or a session, its message has too.
        let Some(Value::Binary(message)) = entry.get("message") else {
            return Err(Failure::Argument("message"));
        };
        add_message(asking.batch, message, true).map_err(Failure::Message)?;
    }
    let command = Command::Schedule {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        messages: first as u32..asking.batch.messages.len() as u32,
        sessions: asking.batch.take_sessions(first),
    };
    Ok((Verb::Schedule, command))
}

/// An array of longs: Go and Java take nothing else.
pub(super) fn reply(reply: &Reply, numbers: &[Number]) -> Vec<u8> {
    reply.with("sequence-numbers", |out| {
        let open = begin_array(out, code::LONG);
        numbers.iter().for_each(|number| out.extend_from_slice(&number.0.to_be_bytes()));
        end_compound(out, open, numbers.len() as u32);
    })
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;
    use broker::{NamespaceId, RequestId};
    use engine::Batch;

    #[test]
    fn as_many_messages_are_scheduled_at_once_as_a_batch_may_have_and_at_least_one() {
        // S-16, A-7.4.1: how many there are is looked at before what they are.
        let refused = |count: usize| {
            let messages = ("messages".into(), Value::List(vec![Value::Null; count]));
            let (body, mut batch) = (Value::Map(vec![messages]), Batch::default());
            let asking = Asking {
                request: RequestId::default(),
                namespace: NamespaceId(0),
                path: "orders",
                session: None,
                arguments: Arguments(&body),
                batch: &mut batch,
            };
            command(asking).err()
        };
        assert_eq!(refused(0), Some(Failure::Argument("messages")));
        assert_eq!(refused(BATCH_MESSAGES), Some(Failure::Argument("message")));
        for more in [BATCH_MESSAGES + 1, 2 * BATCH_MESSAGES] {
            assert_eq!(refused(more), Some(Failure::Range("messages")));
        }
    }
}
