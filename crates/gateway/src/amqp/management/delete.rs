//! `batch-delete-messages`: deletes messages from before a time without receiving them (S-240).

use super::reply::Reply;
use super::{Asking, Failure, Verb};
use broker::{Command, LocalTime};
use message::Value;
use message::codec::write_int;

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let arguments = asking.arguments;
    let before = match arguments.get("enqueued-time-utc") {
        Some(Value::Timestamp(before)) => LocalTime(*before),
        _ => return Err(Failure::Argument("enqueued-time-utc")),
    };
    let command = Command::DeleteMessages {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        most: arguments.count("message-count")?,
        before,
        session: asking.session.clone(),
    };
    Ok((Verb::Delete, command))
}

pub(super) fn reply(reply: &Reply, count: u32) -> Vec<u8> {
    reply.with("message-count", |out| write_int(out, i32::try_from(count).unwrap_or(i32::MAX)))
}
