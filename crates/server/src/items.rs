//! The items: their journal and store under the data directory, opened beside the bus and stopped with it.

use crate::durability::Durability;
use crate::engines::{journal_options, open_journal};
use anyhow::Context;
use items_engine::{Engine, Options, PARTITION};
use journal::disk::File;
use journal::{Batch, Counts, Error, Inspector, Local, Position};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Opens what is there, or begins it. `on_failure` hears when it cannot go on.
pub fn open(
    path: &Path,
    durability: Durability,
    cache_bytes: u64,
    on_failure: impl FnOnce(String) + Send + 'static,
) -> anyhow::Result<Engine> {
    let options = journal::Options { partition: PARTITION, ..journal_options(durability)? };
    let journal = open_journal(path, options)?;
    let options = Options { owner: u64::from(std::process::id()), cache_bytes };
    Engine::open(Box::new(journal), path, &options, on_failure)
        .with_context(|| format!("cannot open the items in {}", path.display()))
}

/// What is found in a journal of items.
struct Findings<'f>(&'f mut dyn FnMut(Error));

impl Inspector for Findings<'_> {
    fn batch(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        items_engine::inspect(&batch).map_err(|why| Error::Reader(Box::new(why)))
    }

    fn snapshot(&mut self, _: Position, content: &mut dyn Read) -> Result<(), Error> {
        let mut mark = Vec::new();
        let limit = items_engine::MARK.len() as u64 + 1;
        content.take(limit).read_to_end(&mut mark).map_err(|why| Error::Reader(Box::new(why)))?;
        match mark == items_engine::MARK {
            true => Ok(()),
            false => Err(Error::Reader("it is no mark of the items' store".into())),
        }
    }

    fn damage(&mut self, error: Error) {
        (self.0)(error);
    }
}

/// Reads the whole journal of the items, and writes nothing. `None` when there is none.
pub fn verify(path: &Path, damage: &mut dyn FnMut(Error)) -> anyhow::Result<Option<Counts>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let disk = File::look(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Some(Local::verify(Arc::new(disk), PARTITION, &mut Findings(damage))?))
}
