//! `otobus verify`: reads everything in a data directory and says what is damaged. It writes nothing, not even a lock;
//! whatever is damaged stays as it is, for a person to restore.

use crate::data::Data;
use crate::items;
use crate::limits::SHOWN_DAMAGES;
use anyhow::{Context, bail};
use broker::Record;
use broker::snapshot::Restored;
use journal::disk::File;
use journal::{Batch, Error, Inspector, Local, Position};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

#[derive(Default)]
struct Findings {
    damaged: usize,
    /// Files that are not damaged and that this program cannot judge.
    newer: usize,
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
        let (kind, count) = match error {
            Error::NewerFormat { .. } => ("newer", &mut self.newer),
            _ => ("damaged", &mut self.damaged),
        };
        *count += 1;
        if *count <= SHOWN_DAMAGES {
            println!("{kind}: {error}");
        }
    }
}

impl Findings {
    /// What was too much to be told one by one.
    fn untold(&self) -> Vec<String> {
        let kinds = [("damaged places", self.damaged), ("newer files", self.newer)];
        let untold = kinds.into_iter().filter(|(_, count)| *count > SHOWN_DAMAGES);
        untold.map(|(kind, count)| format!("and {} more {kind}", count - SHOWN_DAMAGES)).collect()
    }

    fn conclude(&self) -> anyhow::Result<()> {
        self.untold().iter().for_each(|line| println!("{line}"));
        match (self.damaged, self.newer) {
            (0, 0) => {
                println!("everything is as it was written");
                Ok(())
            }
            (0, newer) => bail!("{newer} files were written by a newer program; verify them with that one"),
            (damaged, _) => {
                bail!("{damaged} damaged places; nothing was changed, restore the files from a copy")
            }
        }
    }
}

/// Fails when anything is damaged.
pub fn verify(path: &Path) -> anyhow::Result<()> {
    let data = Data::look(path)?;
    data.check_journal()?;
    let journal = data.journal();
    let disk = File::look(&journal).with_context(|| format!("cannot open {}", journal.display()))?;
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
    if let Some(counts) = items::verify(&data.items(), &mut |error| findings.damage(error))? {
        println!(
            "{}: {} segments, {} batches, {} checkpoints",
            data.items().display(),
            counts.segments,
            counts.batches,
            counts.snapshots
        );
    }
    findings.conclude()
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Flaw;

    #[test]
    fn a_newer_file_is_not_called_damaged() {
        let newer = || Error::NewerFormat { file: "a".into(), found: 2, known: 1 };
        let damaged =
            || Error::Corrupt { file: "b".into(), offset: 7, flaw: Flaw::FrameChecksum, what: "torn".into() };
        let conclude = |errors: Vec<Error>| {
            let mut findings = Findings::default();
            errors.into_iter().for_each(|error| findings.damage(error));
            findings.conclude().err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(conclude(vec![]), "");
        assert!(conclude(vec![newer(), newer()]).starts_with("2 files were written by a newer program"));
        assert!(conclude(vec![damaged(), newer()]).starts_with("1 damaged places"));
    }

    #[test]
    fn what_is_not_told_one_by_one_is_counted() {
        let untold = |damaged| Findings { damaged, newer: 0 }.untold();
        assert_eq!(untold(SHOWN_DAMAGES), Vec::<String>::new());
        assert_eq!(untold(SHOWN_DAMAGES + 3), ["and 3 more damaged places"]);
    }
}
