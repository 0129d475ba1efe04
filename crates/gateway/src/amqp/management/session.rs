//! The operations on sessions: renewing the lock, reading and writing the state, listing.

use super::reply::Reply;
use super::{Asking, Failure, Verb, status};
use broker::limits::CALENDAR_END;
use broker::{Command, LocalTime};
use message::Value;
use message::codec::{begin_array, code, end_compound, write_int, write_null, write_string, write_timestamp};
use std::sync::Arc;

/// What clients look for where there are no sessions to list.
const SESSION_NOT_FOUND: &str = "com.microsoft:session-not-found";

fn named(asking: &Asking<'_>) -> Result<Box<str>, Failure> {
    asking.session.clone().ok_or(Failure::Argument("session-id"))
}

pub(super) fn renew(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let (request, namespace, path) = (asking.request, asking.namespace, asking.path.into());
    let command = Command::RenewSession { request, namespace, path, session: named(asking)? };
    Ok((Verb::Session, command))
}

pub(super) fn get_state(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let (request, namespace, path) = (asking.request, asking.namespace, asking.path.into());
    let command = Command::GetSessionState { request, namespace, path, session: named(asking)? };
    Ok((Verb::GetState, command))
}

pub(super) fn set_state(asking: Asking<'_>) -> Result<(Verb, Command), Failure> {
    let session = named(&asking)?;
    let state = match asking.arguments.get("session-state") {
        None => None,
        Some(Value::Binary(state)) => Some(asking.batch.body(|out| out.extend_from_slice(state))),
        Some(_) => return Err(Failure::Argument("session-state")),
    };
    let (request, namespace, path) = (asking.request, asking.namespace, asking.path.into());
    Ok((Verb::Session, Command::SetSessionState { request, namespace, path, session, state }))
}

/// A time beyond the calendar asks for all that have messages or a state, any other for those whose state is newer.
pub(super) fn list(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let arguments = asking.arguments;
    let since = match arguments.get("last-updated-time") {
        Some(Value::Timestamp(since)) if *since <= CALENDAR_END.0 => Some(LocalTime(*since)),
        Some(Value::Timestamp(_)) | None => None,
        Some(_) => return Err(Failure::Argument("last-updated-time")),
    };
    let skip = usize::try_from(arguments.integer("skip")?).map_err(|_| Failure::Range("skip"))?;
    let top = arguments.count("top")? as usize;
    let (request, namespace, path) = (asking.request, asking.namespace, asking.path.into());
    Ok((Verb::ListSessions { skip }, Command::ListSessions { request, namespace, path, since, skip, top }))
}

pub(super) fn renewed(reply: &Reply, LocalTime(until): LocalTime) -> Vec<u8> {
    reply.with("expiration", |out| write_timestamp(out, until))
}

/// The key is there though there is no state.
pub(super) fn no_state(reply: &Reply) -> Vec<u8> {
    reply.with("session-state", write_null)
}

pub(super) fn listed(reply: &Reply, verb: Verb, sessions: &[Arc<str>]) -> Vec<u8> {
    let mut out = Vec::new();
    if sessions.is_empty() {
        let text = "There are no more sessions.";
        reply.encode(&mut out, (status::NOTHING, text), Some(SESSION_NOT_FOUND), 0, |_| {});
        return out;
    }
    let skip = if let Verb::ListSessions { skip } = verb { skip } else { 0 };
    reply.encode(&mut out, (status::OK, "OK"), None, 2, |out| {
        write_string(out, "skip");
        write_int(out, i32::try_from(skip + sessions.len()).unwrap_or(i32::MAX));
        write_string(out, "sessions-ids");
        let open = begin_array(out, code::STRING_32);
        for session in sessions {
            out.extend_from_slice(&(session.len() as u32).to_be_bytes());
            out.extend_from_slice(session.as_bytes());
        }
        end_compound(out, open, sessions.len() as u32);
    });
    out
}
