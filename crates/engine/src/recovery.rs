//! From the journal back to the state that wrote it.

use broker::{Durable, Record, Time, record::Unreadable};
use journal::{Epoch, Journal, Position};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("batch {position}: {why}")]
    Record { position: u64, why: Unreadable },
    #[error("batch {position} announces {announced} records and holds {found}")]
    RecordCount { position: u64, announced: u32, found: u32 },
    #[error("the records speak of {records} bodies, the journal holds {journal}")]
    BodyCount { records: u64, journal: u64 },
}

/// What replay has built, and the time of the last batch.
#[derive(Debug)]
pub struct Recovered {
    pub durable: Durable,
    pub last_time: Option<Time>,
}

/// Replays the journal and takes it over: from now on this process is its one writer.
pub fn recover(journal: &mut dyn Journal, owner: u64) -> Result<Recovered, Error> {
    let epoch = Epoch(journal.epoch().0 + 1);
    journal.fence(owner, epoch)?;
    let mut durable = Durable::new();
    let mut last_time = None;
    let mut unreadable = None;
    journal
        .read(Position(1), &mut |batch| {
            let position = batch.position.0;
            let mut rest = batch.records;
            let mut found = 0;
            while !rest.is_empty() {
                match Record::decode(&mut rest) {
                    Ok(record) => durable.apply(&record, Time(batch.time)),
                    Err(why) => {
                        unreadable = Some(Error::Record { position, why });
                        return Err(journal::Error::Reader("a record cannot be read".into()));
                    }
                }
                found += 1;
            }
            if found != batch.record_count {
                unreadable = Some(Error::RecordCount { position, announced: batch.record_count, found });
                return Err(journal::Error::Reader("records are missing".into()));
            }
            last_time = Some(Time(batch.time));
            Ok(())
        })
        .map_err(|error| unreadable.take().unwrap_or(Error::Journal(error)))?;
    let (records, held) = (durable.next_body().0, journal.next_body().0);
    if records != held {
        return Err(Error::BodyCount { records: records - 1, journal: held - 1 });
    }
    Ok(Recovered { durable, last_time })
}
