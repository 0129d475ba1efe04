//! `receive-by-sequence-number`: deferred messages by their numbers, all of them or none (S-121).

use super::{Asking, Failure, Verb};
use broker::{Command, ReceiveMode};

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let arguments = asking.arguments;
    // `receiver-settle-mode`: first takes the message for good, second locks it.
    let mode = match arguments.integer("receiver-settle-mode")? {
        0 => ReceiveMode::ReceiveAndDelete,
        1 => ReceiveMode::PeekLock,
        _ => return Err(Failure::Range("receiver-settle-mode")),
    };
    let command = Command::ReceiveDeferred {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        numbers: arguments.numbers("sequence-numbers")?,
        mode,
        session: asking.session.clone(),
    };
    Ok((Verb::Receive, command))
}
