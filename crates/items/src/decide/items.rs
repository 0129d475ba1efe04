//! Items: the point operations. Their rules are in `item::transaction`.

use super::Scene;
use crate::account::Decided;
use crate::item::body::Body;
use crate::item::transaction::{Done, Transaction};
use crate::{ItemPath, ItemWrite, Precondition, Refusal, Reply};

impl<'a> Scene<'a> {
    pub(super) fn transaction(
        &self,
        path: &crate::ContainerPath,
        is_batch: bool,
    ) -> Result<Transaction<'a>, Refusal> {
        let container = self.definitions.owner_container(path)?;
        Transaction::new(container, self.view, self.now, is_batch)
    }

    fn write(
        &self,
        write: &ItemWrite,
        operation: impl FnOnce(&mut Transaction<'_>, Body) -> Result<Done, Refusal>,
    ) -> Result<Decided, Refusal> {
        let mut transaction = self.transaction(&write.container, false)?;
        let settings = &transaction.container().settings;
        let body = Body::read(settings, write.partition_key.as_ref(), &write.body)?;
        let done = operation(&mut transaction, body)?;
        Ok(decided(transaction, done))
    }

    pub fn create_item(&self, write: &ItemWrite) -> Result<Decided, Refusal> {
        self.write(write, |transaction, body| transaction.create(body, &write.condition))
    }

    pub fn upsert_item(&self, write: &ItemWrite) -> Result<Decided, Refusal> {
        self.write(write, |transaction, body| transaction.upsert(body, &write.condition))
    }

    pub fn replace_item(&self, id: &str, write: &ItemWrite) -> Result<Decided, Refusal> {
        self.write(write, |transaction, body| transaction.replace(id, body, &write.condition))
    }

    pub fn delete_item(&self, item: &ItemPath, condition: &Precondition) -> Result<Decided, Refusal> {
        let mut transaction = self.transaction(&item.container, false)?;
        let place = transaction.place_of(item)?;
        let done = transaction.delete(place, condition)?;
        Ok(decided(transaction, done))
    }
}

pub(super) fn decided(mut transaction: Transaction<'_>, done: Done) -> Decided {
    transaction.end();
    let place = transaction.place(Some(done.item.version.lsn));
    let reply = Reply { answer: done.answer(), charge: done.charge, place: Some(place) };
    Decided { records: transaction.into_records(), reply }
}
