//! `renew-lock`: another lock duration, on whichever connection the tokens are presented (S-83).

use super::reply::Reply;
use super::{Asking, Failure, Verb};
use broker::{Command, LocalTime};
use message::codec::{begin_array, code, end_compound};

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let command = Command::RenewLocks {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        tokens: asking.arguments.tokens("lock-tokens")?,
    };
    Ok((Verb::Renew, command))
}

/// An array and not a list: Java ignores a list.
pub(super) fn reply(reply: &Reply, until: &[LocalTime]) -> Vec<u8> {
    reply.with("expirations", |out| {
        let open = begin_array(out, code::TIMESTAMP);
        until.iter().for_each(|LocalTime(until)| out.extend_from_slice(&until.to_be_bytes()));
        end_compound(out, open, until.len() as u32);
    })
}
