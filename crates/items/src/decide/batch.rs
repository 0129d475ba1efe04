//! Transactional batches and bulk requests (section 11), and patches, which they share.

use super::Scene;
use super::items::decided;
use crate::account::Decided;
use crate::item::body::{self, Body};
use crate::item::patch::Patch;
use crate::item::transaction::{Done, Transaction, failed};
use crate::json::{self, walk};
use crate::{
    Answer, BatchOperation, ContainerPath, ItemPath, OperationKind, OperationResult, PartitionKey,
    Precondition, Refusal, Reply, limits, partition_key,
};
use bytes::Bytes;

impl Scene<'_> {
    pub fn patch_item(
        &self,
        item: &ItemPath,
        body: &[u8],
        condition: &Precondition,
    ) -> Result<Decided, Refusal> {
        let mut transaction = self.transaction(&item.container, false)?;
        let patch = Patch::read(body)?;
        let place = transaction.place_of(item)?;
        let done = apply_patch(&mut transaction, &place, &patch, condition)?;
        Ok(decided(transaction, done))
    }

    /// All operations or none, in one logical partition (P-57).
    pub fn batch(&self, path: &ContainerPath, key: &PartitionKey, body: &Bytes) -> Result<Decided, Refusal> {
        let mut transaction = self.transaction(path, true)?;
        let key = body::whole_key(&transaction.container().settings, key)?;
        let operations = operations(body)?;
        let mut results = Vec::with_capacity(operations.len());
        let mut failure = None;
        for (index, operation) in operations.iter().enumerate() {
            match run(&mut transaction, &key, operation) {
                Ok(done) => results.push(done.result()),
                Err(Refusal::Stopped) => return Err(Refusal::Stopped),
                Err(refusal) => {
                    failure = Some((index, failed(&refusal)));
                    break;
                }
            }
        }
        if let Some((at, failure)) = failure {
            // P-58: the one that failed says why, and nothing has happened.
            let others = failed(&Refusal::FailedDependency);
            results = vec![others; operations.len()];
            results[at] = failure;
            let fresh = self.transaction(path, true)?;
            return Ok(finish(fresh, results));
        }
        transaction.end();
        Ok(finish(transaction, results))
    }

    /// Each operation stands for itself and names its key (P-60).
    pub fn bulk(
        &self,
        path: &ContainerPath,
        body: &Bytes,
        continue_on_error: bool,
    ) -> Result<Decided, Refusal> {
        let mut transaction = self.transaction(path, true)?;
        let operations = operations(body)?;
        let mut results = Vec::with_capacity(operations.len());
        let mut has_failed = false;
        for operation in &operations {
            if has_failed && !continue_on_error {
                results.push(failed(&Refusal::FailedDependency));
                continue;
            }
            match run_alone(&mut transaction, operation) {
                Ok(done) => results.push(done.result()),
                Err(Refusal::Stopped) => return Err(Refusal::Stopped),
                Err(refusal) => {
                    has_failed = true;
                    results.push(failed(&refusal));
                }
            }
            transaction.end();
        }
        Ok(finish(transaction, results))
    }
}

fn finish(transaction: Transaction<'_>, results: Vec<OperationResult>) -> Decided {
    let place = transaction.place(None);
    let charge = results.iter().map(|result| result.charge).sum();
    let reply = Reply { answer: Answer::Operations(results), charge, place: Some(place) };
    Decided { records: transaction.into_records(), reply }
}

fn apply_patch(
    transaction: &mut Transaction<'_>,
    place: &Bytes,
    patch: &Patch,
    condition: &Precondition,
) -> Result<Done, Refusal> {
    let item = transaction.live(place)?;
    transaction.check(condition, &item)?;
    // P-55
    if let Some(condition) = &patch.condition {
        let now = transaction.now();
        if !condition.holds(&item.text, now, &mut transaction.condition_steps)? {
            return Err(Refusal::PreconditionFailed("The condition of the patch does not hold."));
        }
    }
    let settings = &transaction.container().settings;
    let text = patch.apply(settings, &item.own_text())?;
    let body = Body::read(settings, None, &text)?;
    if body.place != *place {
        return Err(Refusal::bad("A patch cannot change the id or the partition key."));
    }
    transaction.patched(body)
}

fn run_alone(transaction: &mut Transaction<'_>, operation: &BatchOperation) -> Result<Done, Refusal> {
    let settings = &transaction.container().settings;
    let key = match (&operation.partition_key, &operation.body) {
        (Some(key), _) => body::whole_key(settings, key)?,
        (None, Some(text)) if operation.kind != OperationKind::Patch => body::key_of(settings, text)?,
        (None, _) => return Err(Refusal::bad("An operation of a bulk request has no partition key.")),
    };
    run(transaction, &key, operation)
}

fn run(
    transaction: &mut Transaction<'_>,
    key: &PartitionKey,
    operation: &BatchOperation,
) -> Result<Done, Refusal> {
    let settings = &transaction.container().settings;
    let text = || operation.body.as_ref().ok_or_else(|| Refusal::bad("The operation has no resourceBody."));
    let body = || Body::read(settings, Some(key), text()?);
    let id = || operation.id.as_deref().ok_or_else(|| Refusal::bad("The operation has no id."));
    let place = || Ok::<_, Refusal>(Bytes::from(body::place(settings, key, id()?)));
    let condition = &operation.condition;
    match operation.kind {
        OperationKind::Create => transaction.create(body()?, condition),
        OperationKind::Upsert => transaction.upsert(body()?, condition),
        OperationKind::Replace => {
            let body = body()?;
            let id = operation.id.clone().unwrap_or_else(|| body.id.clone());
            transaction.replace(&id, body, condition)
        }
        OperationKind::Read => transaction.read(&place()?, condition.if_none_match.as_deref()),
        OperationKind::Delete => transaction.delete(place()?, condition),
        OperationKind::Patch => {
            let patch = Patch::read(text()?)?;
            apply_patch(transaction, &place()?, &patch, condition)
        }
    }
}

/// Reads the body of a batch (P-59).
fn operations(body: &Bytes) -> Result<Vec<BatchOperation>, Refusal> {
    if body.len() > limits::BATCH_BYTES {
        return Err(Refusal::TooLarge { bytes: body.len(), limit: limits::BATCH_BYTES });
    }
    let bad = |error: json::Error| Refusal::bad(format!("The batch is invalid: {error}."));
    let text = json::without_duplicates(body).map_err(bad)?;
    let elements =
        walk::Elements::of(&text).map_err(|_| Refusal::bad("The batch is not an array of operations."))?;
    let mut operations = Vec::new();
    for element in elements {
        if operations.len() == limits::BATCH_OPERATIONS {
            return Err(Refusal::bad("Batch request has more operations than what is supported."));
        }
        operations.push(operation(element.map_err(bad)?)?);
    }
    if operations.is_empty() {
        return Err(Refusal::bad("Batch request has no operations."));
    }
    Ok(operations)
}

fn operation(text: &[u8]) -> Result<BatchOperation, Refusal> {
    let member =
        |name: &str| walk::member(text, name).filter(|value| walk::kind(value) != Some(walk::Kind::Null));
    let string = |name: &str| member(name).and_then(walk::string).map(|text| text.into_owned());
    let kind = match string("operationType").unwrap_or_default().to_ascii_lowercase().as_str() {
        "create" => OperationKind::Create,
        "upsert" => OperationKind::Upsert,
        "read" => OperationKind::Read,
        "replace" => OperationKind::Replace,
        "delete" => OperationKind::Delete,
        "patch" => OperationKind::Patch,
        other => return Err(Refusal::bad(format!("The operation type '{other}' is not known."))),
    };
    let partition_key = match member("partitionKey") {
        None => None,
        // Clients send the text of the array as a string (P-60).
        Some(value) => Some(match walk::string(value) {
            Some(text) => partition_key::read(text.as_bytes())?,
            None => partition_key::read(value)?,
        }),
    };
    Ok(BatchOperation {
        kind,
        id: string("id"),
        body: member("resourceBody").map(Bytes::copy_from_slice),
        condition: Precondition { if_match: string("ifMatch"), if_none_match: string("ifNoneMatch") },
        partition_key,
    })
}
