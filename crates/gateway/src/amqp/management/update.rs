//! `update-disposition`: settles what the tokens have locked, on whichever connection they are presented (S-94, S-123).

use super::super::settle::{change, overlay_of};
use super::{Asking, Failure, Verb};
use broker::{Command, Outcome};
use message::overlay::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Overlay};

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
    let reason = given("deadletter-reason").map(|text| (DEAD_LETTER_REASON, text));
    let description = given("deadletter-description").map(|text| (DEAD_LETTER_ERROR_DESCRIPTION, text));
    let mut overlay = changes;
    for (name, text) in [reason, description].into_iter().flatten() {
        change(overlay.get_or_insert_default(), name, &text.into()).map_err(Failure::Refused)?;
    }
    Ok(overlay)
}
