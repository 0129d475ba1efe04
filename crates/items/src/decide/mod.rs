//! Deciding commands that write. One file for each kind of resource; items are in `item`.

mod batch;
mod containers;
mod databases;
mod documents;
mod items;
mod offers;
mod partition;

use crate::account::{Decided, plain};
use crate::definition::Definitions;
use crate::json::{self, Object, Value};
use crate::record::{Event, Record};
use crate::{Answer, Command, Refusal, Time, View, limits};

pub fn command(
    definitions: &Definitions,
    command: &Command,
    view: &dyn View,
    now: Time,
) -> Result<Decided, Refusal> {
    let scene = Scene { definitions, view, now };
    match command {
        Command::CreateDatabase { body, throughput } => scene.create_database(body, *throughput),
        Command::DeleteDatabase { database } => scene.delete_database(database),
        Command::CreateContainer { database, body, throughput } => {
            scene.create_container(database, body, *throughput)
        }
        Command::ReplaceContainer { container, body, if_match } => {
            scene.replace_container(container, body, if_match.as_deref())
        }
        Command::DeleteContainer { container } => scene.delete_container(container),
        Command::CreateItem(write) => scene.create_item(write),
        Command::UpsertItem(write) => scene.upsert_item(write),
        Command::ReplaceItem { id, write } => scene.replace_item(id, write),
        Command::DeleteItem { item, condition } => scene.delete_item(item, condition),
        Command::PatchItem { item, body, condition } => scene.patch_item(item, body, condition),
        Command::Batch { container, partition_key, body } => scene.batch(container, partition_key, body),
        Command::Bulk { container, body, continue_on_error } => {
            scene.bulk(container, body, *continue_on_error)
        }
        Command::DeletePartition { container, partition_key } => {
            scene.delete_partition(container, partition_key)
        }
        Command::CreateScript { .. }
        | Command::ReplaceScript { .. }
        | Command::DeleteScript { .. }
        | Command::CreateUser { .. }
        | Command::ReplaceUser { .. }
        | Command::DeleteUser { .. }
        | Command::CreatePermission { .. }
        | Command::ReplacePermission { .. }
        | Command::DeletePermission { .. }
        | Command::CreateEncryptionKey { .. }
        | Command::ReplaceEncryptionKey { .. }
        | Command::DeleteEncryptionKey { .. } => scene.document(command),
        Command::ReplaceOffer { offer, body } => scene.replace_offer(offer, body),
        Command::Advance { by_ms } => scene.advance(*by_ms),
        Command::ReadDatabase { .. }
        | Command::ReadContainer { .. }
        | Command::ReadItem { .. }
        | Command::ReadFeed { .. }
        | Command::ChangeFeed { .. }
        | Command::ReadScript { .. }
        | Command::ReadUser { .. }
        | Command::ReadPermission { .. }
        | Command::ReadEncryptionKey { .. }
        | Command::ReadOffer { .. }
        | Command::List { .. }
        | Command::Query(_)
        | Command::Explain(_)
        | Command::ReadRanges { .. } => Err(Refusal::NotAvailable("Deciding what is only read")),
    }
}

/// What a decision sees.
#[derive(Clone, Copy)]
struct Scene<'a> {
    definitions: &'a Definitions,
    view: &'a dyn View,
    now: Time,
}

impl Scene<'_> {
    fn decided(&self, events: Vec<Event>, answer: Answer) -> Decided {
        let records = events.into_iter().map(|event| Record { at: self.now, event }).collect();
        Decided { records, reply: plain(answer) }
    }

    /// Moves the time ahead, for tests.
    fn advance(&self, by_ms: u64) -> Result<Decided, Refusal> {
        let by = i64::try_from(by_ms).ok().filter(|by| *by <= limits::ADVANCE_MS_MOST);
        let by = by.ok_or_else(|| Refusal::bad("The time cannot be moved so far."))?;
        let to = self.now.after_ms(by);
        let records = vec![Record { at: to, event: Event::TimeMoved }];
        Ok(Decided { records, reply: plain(Answer::Advanced { now_ms: to.0 }) })
    }
}

/// The body of a small document: an object of bounded size.
fn object(body: &[u8]) -> Result<Object, Refusal> {
    if body.len() > limits::DEFINITION_BYTES {
        return Err(Refusal::TooLarge { bytes: body.len(), limit: limits::DEFINITION_BYTES });
    }
    match json::parse(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::bad("The request's body is not a JSON object.")),
        Err(error) => Err(Refusal::bad(format!("The request's body is invalid: {error}."))),
    }
}

fn taken(what: &str, name: &str) -> Refusal {
    Refusal::Conflict(format!("Resource with specified id or name already exists: the {what} '{name}'."))
}
