//! `otobus verify`: reads everything in a data directory and says what is damaged. It refuses nothing and changes nothing;
//! whatever is damaged stays as it is, for a person to restore.

use crate::data::Data;
use anyhow::{Context, bail};
use broker::Record;
use broker::snapshot::Restored;
use journal::disk::File;
use journal::{Batch, Error, Inspector, Local, Position};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Damaged places that are told one by one; a disk that is worse is not worth reading about.
const SHOWN: usize = 1_000;

#[derive(Default)]
struct Findings {
    damaged: usize,
}

impl Inspector for Findings {
    fn batch(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        let mut rest = batch.records;
        let mut found = 0;
        while !rest.is_empty() {
            Record::decode(&mut rest).map_err(|why| Error::Reader(Box::new(why)))?;
            found += 1;
        }
        match found == batch.record_count {
            true => Ok(()),
            false => Err(Error::Reader(
                format!("it announces {} records and holds {found}", batch.record_count).into(),
            )),
        }
    }

    fn snapshot(&mut self, _: Position, content: &mut dyn Read) -> Result<(), Error> {
        Restored::read(content).map(drop).map_err(|why| Error::Reader(Box::new(why)))
    }

    fn damage(&mut self, error: Error) {
        self.damaged += 1;
        if self.damaged <= SHOWN {
            println!("damaged: {error}");
        }
    }
}

/// Fails when anything is damaged.
pub fn verify(path: &Path) -> anyhow::Result<()> {
    if !path.is_dir() {
        bail!("there is no data directory {}; name one with --data", path.display());
    }
    let data = Data::open(path)?;
    let journal = data.journal();
    if !journal.is_dir() {
        println!("{}: nothing was ever stored", data.path.display());
        return Ok(());
    }
    let disk = File::open(&journal).with_context(|| format!("cannot open {}", journal.display()))?;
    let mut findings = Findings::default();
    let counts = Local::verify(Arc::new(disk), 0, &mut findings)?;
    println!(
        "{}: {} segments, {} batches, {} bodies of {} bytes, {} snapshots",
        data.path.display(),
        counts.segments,
        counts.batches,
        counts.bodies,
        counts.body_bytes,
        counts.snapshots
    );
    match findings.damaged {
        0 => {
            println!("everything is as it was written");
            Ok(())
        }
        damaged => bail!("{damaged} damaged places; nothing was changed, restore the files from a copy"),
    }
}
