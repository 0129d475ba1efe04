//! `peek-message`: looks at messages from a number on, without their locks and without changing anything (S-130).

use super::{Asking, Failure, Verb};
use broker::{Command, Number};
use message::Value;

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let arguments = asking.arguments;
    let from = arguments.integer("from-sequence-number")?;
    let omits_body = arguments.get("omit-message-body") == Some(&Value::Boolean(true));
    let command = Command::Browse {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        // Some clients begin below the first number.
        from: Number(from.max(0) as u64),
        most: arguments.count("message-count")?,
        session: asking.session.clone(),
    };
    Ok((Verb::Peek { omits_body }, command))
}
