//! From a request whose sender may make it to the command that it asks for.

use super::failure::Failure;
use super::headers::Headers;
use super::resource::{Resource, Verb};
use bytes::Bytes;
use items::limits::{ITEM_BYTES, QUERY_BYTES};
use items::{
    Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Query, QueryScope, Scope, binary_json,
};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// What is to be done for a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// To be asked, and its answer shown.
    Ask(Command),
    /// Partition key ranges (section 8), unless they are still these.
    Ranges {
        container: ContainerPath,
        if_none_match: Option<String>,
    },
    /// A feed that is always empty, in a container that must be there.
    Nothing {
        container: ContainerPath,
    },
    /// The plan that lets every query through (P-63).
    Plan,
    Account,
}

/// A query as it is sent (12.1).
#[derive(Deserialize)]
struct QueryBody<'a> {
    query: String,
    #[serde(borrow, default)]
    parameters: Option<Vec<Parameter<'a>>>,
}

#[derive(Deserialize)]
struct Parameter<'a> {
    name: String,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

/// `body` is the request's body, whole.
pub fn question(
    resource: &Resource,
    verb: Verb,
    headers: Headers<'_>,
    body: Bytes,
) -> Result<Question, Failure> {
    let command = match (resource, verb) {
        (Resource::Account, _) => return Ok(Question::Account),
        (Resource::Ranges(container), _) => {
            let (container, if_none_match) = (container.clone(), headers.owned("if-none-match"));
            return Ok(Question::Ranges { container, if_none_match });
        }
        (Resource::Conflicts(_), Verb::Query) if headers.query_scope()? == Scope::WithoutLeave => {
            return Err(Failure::bad(items::NEEDS_LEAVE));
        }
        (Resource::Conflicts(container), _) => {
            return Ok(Question::Nothing { container: container.clone() });
        }
        (Resource::Conflict, _) => return Err(Failure::not_found()),
        (_, Verb::Plan) => {
            // So that a wrong body is not taken for a plan that works.
            query_body(&body)?;
            return Ok(Question::Plan);
        }
        (_, Verb::Query) => Command::Query(query(resource, headers, &body)?),
        (Resource::Items(container), Verb::List) => items_feed(container, headers)?,
        (_, Verb::List) => {
            let of = resource.query_scope().ok_or_else(Failure::method_not_allowed)?;
            Command::List { of, listing: headers.listing()? }
        }
        (Resource::Items(..) | Resource::Item(..) | Resource::PartitionKeyDelete(_), _) => {
            item_command(resource, verb, headers, body)?
        }
        _ => definition_command(resource, verb, headers, body)?,
    };
    Ok(Question::Ask(command))
}

fn items_feed(container: &ContainerPath, headers: Headers<'_>) -> Result<Command, Failure> {
    let (container, scope) = (container.clone(), headers.scope()?);
    Ok(match headers.change_feed()? {
        Some((mode, start)) => {
            Command::ChangeFeed { container, scope, mode, start, max_items: headers.max_items()? }
        }
        None => {
            let (listing, session) = (headers.listing()?, headers.session());
            Command::ReadFeed { container, scope, listing, session }
        }
    })
}

fn item_command(
    resource: &Resource,
    verb: Verb,
    headers: Headers<'_>,
    body: Bytes,
) -> Result<Command, Failure> {
    if verb.writes()
        && ["x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"]
            .iter()
            .any(|name| headers.text(name).is_some())
    {
        return Err(Failure::bad(
            "Triggers are kept but not run in this version; remove them from the request.",
        ));
    }
    let write = |container: &ContainerPath, body: Bytes| -> Result<ItemWrite, Failure> {
        Ok(ItemWrite {
            container: container.clone(),
            partition_key: headers.partition_key()?,
            body: as_text(body)?,
            condition: headers.precondition(),
        })
    };
    let item = |container: &ContainerPath, id: &str| -> Result<ItemPath, Failure> {
        Ok(ItemPath { container: container.clone(), partition_key: needed_key(headers)?, id: id.to_owned() })
    };
    Ok(match (resource, verb) {
        (Resource::Items(container), Verb::Create) => Command::CreateItem(write(container, body)?),
        (Resource::Items(container), Verb::Upsert) => Command::UpsertItem(write(container, body)?),
        (Resource::Items(container), Verb::Batch) => batch(container, headers, body)?,
        (Resource::Item(container, id), Verb::Replace) => {
            Command::ReplaceItem { id: id.clone(), write: write(container, body)? }
        }
        (Resource::Item(container, id), Verb::Read) => Command::ReadItem {
            item: item(container, id)?,
            if_none_match: headers.owned("if-none-match"),
            session: headers.session(),
        },
        (Resource::Item(container, id), Verb::Delete) => {
            Command::DeleteItem { item: item(container, id)?, condition: headers.precondition() }
        }
        (Resource::Item(container, id), Verb::Patch) => {
            Command::PatchItem { item: item(container, id)?, body, condition: headers.precondition() }
        }
        (Resource::PartitionKeyDelete(container), Verb::Delete) => {
            Command::DeletePartition { container: container.clone(), partition_key: needed_key(headers)? }
        }
        _ => return Err(Failure::method_not_allowed()),
    })
}

/// P-57, P-60
fn batch(container: &ContainerPath, headers: Headers<'_>, body: Bytes) -> Result<Command, Failure> {
    let container = container.clone();
    if headers.flag("x-ms-cosmos-batch-atomic") {
        return Ok(Command::Batch { container, partition_key: needed_key(headers)?, body });
    }
    // The operations name their keys; what is checked here is the range.
    headers.scope()?;
    let continue_on_error = headers.flag("x-ms-cosmos-batch-continue-on-error");
    Ok(Command::Bulk { container, body, continue_on_error })
}

fn definition_command(
    resource: &Resource,
    verb: Verb,
    headers: Headers<'_>,
    body: Bytes,
) -> Result<Command, Failure> {
    let is_upsert = verb == Verb::Upsert;
    Ok(match (resource.clone(), verb) {
        (Resource::Databases, Verb::Create) => {
            Command::CreateDatabase { body, throughput: headers.throughput()? }
        }
        (Resource::Database(database), Verb::Read) => Command::ReadDatabase { database },
        (Resource::Database(database), Verb::Delete) => Command::DeleteDatabase { database },
        (Resource::Containers(database), Verb::Create) => {
            let body = if headers.knows_partition_keys() { body } else { with_partition_key(body) };
            Command::CreateContainer { database, body, throughput: headers.throughput()? }
        }
        (Resource::Container(container), Verb::Read) => {
            Command::ReadContainer { container, if_none_match: headers.owned("if-none-match") }
        }
        (Resource::Container(container), Verb::Replace) => {
            Command::ReplaceContainer { container, body, if_match: headers.owned("if-match") }
        }
        (Resource::Container(container), Verb::Delete) => Command::DeleteContainer { container },
        (Resource::Scripts(container, kind), Verb::Create) => Command::CreateScript { container, kind, body },
        (Resource::Script(container, kind, id), Verb::Read) => Command::ReadScript { container, kind, id },
        (Resource::Script(container, kind, id), Verb::Replace) => {
            Command::ReplaceScript { container, kind, id, body }
        }
        (Resource::Script(container, kind, id), Verb::Delete) => {
            Command::DeleteScript { container, kind, id }
        }
        (Resource::Script(..), Verb::Execute) => {
            return Err(Failure::bad(
                "Stored procedures are kept but not run in this version: there is no JavaScript engine.",
            ));
        }
        (Resource::Users(database), Verb::Create | Verb::Upsert) => {
            Command::CreateUser { database, body, is_upsert }
        }
        (Resource::User(database, user), Verb::Read) => Command::ReadUser { database, user },
        (Resource::User(database, user), Verb::Replace) => Command::ReplaceUser { database, user, body },
        (Resource::User(database, user), Verb::Delete) => Command::DeleteUser { database, user },
        (Resource::Permissions(database, user), Verb::Create | Verb::Upsert) => {
            Command::CreatePermission { database, user, body, is_upsert }
        }
        (Resource::Permission(database, user, permission), Verb::Read) => {
            Command::ReadPermission { database, user, permission }
        }
        (Resource::Permission(database, user, permission), Verb::Replace) => {
            Command::ReplacePermission { database, user, permission, body }
        }
        (Resource::Permission(database, user, permission), Verb::Delete) => {
            Command::DeletePermission { database, user, permission }
        }
        (Resource::EncryptionKeys(database), Verb::Create) => Command::CreateEncryptionKey { database, body },
        (Resource::EncryptionKey(database, key), Verb::Read) => Command::ReadEncryptionKey { database, key },
        (Resource::EncryptionKey(database, key), Verb::Replace) => {
            Command::ReplaceEncryptionKey { database, key, body }
        }
        (Resource::Offer(offer), Verb::Read) => Command::ReadOffer { offer },
        (Resource::Offer(offer), Verb::Replace) => Command::ReplaceOffer { offer, body },
        _ => return Err(Failure::method_not_allowed()),
    })
}

/// The definition of a container from a client that knows no partition keys: all its items are in the partition without a key, and
/// newer clients are told so (P-38).
fn with_partition_key(body: Bytes) -> Bytes {
    let Ok(mut definition) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&body)
    else {
        return body;
    };
    definition
        .entry("partitionKey")
        .or_insert_with(|| json!({ "paths": ["/_partitionKey"], "kind": "Hash", "systemKey": true }));
    serde_json::Value::Object(definition).to_string().into()
}

/// The query of a request.
pub fn query(resource: &Resource, headers: Headers<'_>, body: &[u8]) -> Result<Query, Failure> {
    let of = resource.query_scope().ok_or_else(Failure::method_not_allowed)?;
    let body = query_body(body)?;
    let scope = match of {
        QueryScope::Items { .. } => headers.query_scope()?,
        _ => Default::default(),
    };
    let null = || Bytes::from_static(b"null");
    let parameter = |parameter: Parameter<'_>| {
        let value = parameter.value.map_or_else(null, |value| Bytes::copy_from_slice(value.get().as_bytes()));
        (parameter.name, value)
    };
    Ok(Query {
        of,
        scope,
        text: body.query,
        parameters: body.parameters.unwrap_or_default().into_iter().map(parameter).collect(),
        listing: headers.listing()?,
        session: headers.session(),
    })
}

fn query_body(body: &[u8]) -> Result<QueryBody<'_>, Failure> {
    let read: QueryBody<'_> = serde_json::from_slice(body)
        .map_err(|_| Failure::bad("The body is not a query: {\"query\":\"...\",\"parameters\":[...]}."))?;
    if read.query.len() > QUERY_BYTES {
        return Err(Failure::body_too_large());
    }
    Ok(read)
}

/// P-33
fn needed_key(headers: Headers<'_>) -> Result<PartitionKey, Failure> {
    headers.partition_key()?.ok_or_else(|| {
        Failure::bad(
            "PartitionKey value must be supplied for this operation: send x-ms-documentdb-partitionkey.",
        )
    })
}

/// Binary JSON becomes text (P-86).
fn as_text(body: Bytes) -> Result<Bytes, Failure> {
    if !binary_json::is_binary(&body) {
        return Ok(body);
    }
    match binary_json::to_text(&body, ITEM_BYTES) {
        Ok(text) => Ok(text.into()),
        Err(binary_json::Error::TooLong) => Err(Failure::body_too_large()),
        Err(error) => Err(Failure::bad(format!("The body cannot be read: {error}."))),
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
