//! `cancel-scheduled-message`: deletes messages that still wait for their time, all of them or none (S-42).

use super::{Asking, Failure, Verb};
use broker::Command;

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let command = Command::CancelScheduled {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        numbers: asking.arguments.numbers("sequence-numbers")?,
    };
    Ok((Verb::Cancel, command))
}
