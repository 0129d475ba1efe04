//! `update-disposition`: settles what the tokens have locked, on whichever connection they are presented (S-94, S-123).

use super::super::settle::overlay_of;
use super::{Asking, Failure, Verb};
use broker::{Command, Outcome, Refusal};
use message::overlay::Overlay;

pub(super) fn command(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let command = Command::SettleTokens {
        request: asking.request,
        namespace: asking.namespace,
        path: asking.path.into(),
        tokens: asking.arguments.tokens("lock-tokens")?,
        outcome: outcome(asking)?,
    };
    Ok((Verb::Update, command))
}

fn outcome(asking: &Asking<'_>) -> Result<Outcome, Failure> {
    let changes = || {
        let changes = asking.arguments.get("properties-to-modify");
        changes.map_or(Ok(None), overlay_of).map_err(Failure::Refused)
    };
    Ok(match asking.arguments.text("disposition-status") {
        Some("completed") => Outcome::Complete,
        Some("abandoned") => Outcome::Abandon(changes()?),
        // The clients' spelling; the right one is taken too.
        Some("defered" | "deferred") => Outcome::Defer(changes()?),
        Some("suspended") => Outcome::DeadLetter(with_reason(asking, changes()?)?),
        Some("released") => Outcome::Release,
        _ => return Err(Failure::Argument("disposition-status")),
    })
}

/// Adds why the message is dead-lettered. Python and Go write what is not given as an empty text.
fn with_reason(asking: &Asking<'_>, changes: Option<Box<Overlay>>) -> Result<Option<Box<Overlay>>, Failure> {
    let given = |name| asking.arguments.text(name).filter(|text| !text.is_empty());
    let (reason, description) = (given("deadletter-reason"), given("deadletter-description"));
    if reason.is_none() && description.is_none() {
        return Ok(changes);
    }
    let mut overlay = changes.unwrap_or_default();
    overlay.set_dead_letter(reason, description).map_err(|_| {
        let size = reason.map_or(0, str::len) + description.map_or(0, str::len);
        Failure::Refused(Refusal::PropertiesTooLarge { size, limit: broker::limits::PROPERTIES_BYTES })
    })?;
    Ok(Some(overlay))
}
