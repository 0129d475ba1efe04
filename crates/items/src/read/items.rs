//! Reading one item.

use super::Scene;
use crate::item::transaction::Transaction;
use crate::{ItemPath, Refusal, Reply};

impl Scene<'_> {
    pub(super) fn read_item(&self, item: &ItemPath, if_none_match: Option<&str>) -> Result<Reply, Refusal> {
        let container = self.definitions.owner_container(&item.container)?;
        let transaction = Transaction::new(container, self.view, self.now, false)?;
        let place = transaction.place_of(item)?;
        let done = transaction.read(&place, if_none_match)?;
        let place = transaction.place(Some(done.item.version.lsn));
        Ok(Reply { answer: done.answer(), charge: done.charge, place: Some(place) })
    }
}
