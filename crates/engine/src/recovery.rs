//! From the journal back to the state that wrote it: the newest snapshot that is whole, and every batch behind it.
//!
//! A damaged snapshot is set aside loudly and the older one takes its place: the journal still holds everything behind
//! that one. Damage in the journal itself is refused. Nothing is changed before all of it was read: a start that is
//! refused leaves everything as it was.

use broker::snapshot::{self, Restored};
use broker::{Durable, Record, Time, record::Unreadable};
use journal::{Batch, Epoch, Journal, Position, SnapshotInfo};

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
    #[error("the snapshot at batch {position} was written by another version: {why}")]
    Snapshot { position: u64, why: snapshot::Error },
    #[error("every snapshot is damaged, and the journal begins only at batch {first}: {why}")]
    NoSnapshot { first: u64, why: journal::Error },
}

/// What was found, and the time of the last batch.
#[derive(Debug)]
pub struct Recovered {
    pub durable: Durable,
    pub last_time: Option<Time>,
    /// Those that are there and not known to be damaged, newest first.
    pub snapshots: Vec<SnapshotInfo>,
}

/// Reads the state and takes the journal over: from now on this process is its one writer.
pub fn recover(journal: &mut dyn Journal, owner: u64) -> Result<Recovered, Error> {
    let (restored, snapshots, damaged) = restore(journal)?;
    let from = snapshots.first().map_or(Position(1), |newest| newest.position.next());
    let (mut durable, mut last_time) = match restored {
        Some(Restored { durable, time }) => (durable, Some(time)),
        None => (Durable::new(), None),
    };
    replay_from(journal, from, &mut durable, &mut last_time)?;
    let read_to = journal.tail();
    let tail = journal.fence(owner, Epoch(journal.epoch().0 + 1))?;
    if tail > read_to {
        // Another owner wrote until it was fenced off.
        replay_from(journal, read_to.next(), &mut durable, &mut last_time)?;
    }
    for position in damaged {
        journal.snapshots().set_aside(position)?;
    }
    Ok(Recovered { durable, last_time, snapshots })
}

/// Applies every batch from `from` on.
fn replay_from(
    journal: &dyn Journal,
    from: Position,
    durable: &mut Durable,
    last_time: &mut Option<Time>,
) -> Result<(), Error> {
    let mut unreadable = None;
    let replayed = journal.read(from, &mut |batch| {
        *last_time = Some(Time(batch.time));
        replay(durable, batch).map_err(|error| {
            unreadable = Some(error);
            journal::Error::Reader("a batch cannot be replayed".into())
        })
    });
    replayed.map_err(|error| unreadable.take().unwrap_or(Error::Journal(error)))?;
    let (records, held) = (durable.next_body().0, journal.next_body().0);
    match records == held {
        true => Ok(()),
        false => Err(Error::BodyCount { records: records - 1, journal: held - 1 }),
    }
}

/// What was restored, the snapshots that are left, and where the damaged ones are.
type Restoration = (Option<Restored>, Vec<SnapshotInfo>, Vec<Position>);

/// The newest snapshot that can be read, and what became of the others.
fn restore(journal: &dyn Journal) -> Result<Restoration, Error> {
    let mut snapshots = journal.latest_snapshots()?;
    let (mut damage, mut damaged) = (None, Vec::new());
    while let Some(newest) = snapshots.first() {
        let position = newest.position;
        match read(journal, position)? {
            Ok(restored) => return Ok((Some(restored), snapshots, damaged)),
            Err(error) => {
                tracing::error!("{error}; the older snapshot and the journal behind it are used instead");
                damaged.push(position);
                damage = Some(error);
                snapshots.remove(0);
            }
        }
    }
    match damage {
        Some(why) if journal.first() > Position(1) => {
            Err(Error::NoSnapshot { first: journal.first().0, why })
        }
        _ => Ok((None, snapshots, damaged)),
    }
}

/// Reads one snapshot; the inner error is damage.
fn read(journal: &dyn Journal, position: Position) -> Result<Result<Restored, journal::Error>, Error> {
    let mut restored = None;
    let outcome = journal.read_snapshot(position, &mut |input| {
        restored = Some(Restored::read(input));
        Ok(())
    });
    match (outcome, restored) {
        (Err(damage @ journal::Error::Corrupt { .. }), _) => Ok(Err(damage)),
        (Err(error), _) => Err(Error::Journal(error)),
        (Ok(()), Some(Ok(restored))) => Ok(Ok(restored)),
        // Its checksum is right, so this is what was written.
        (Ok(()), Some(Err(why))) => Err(Error::Snapshot { position: position.0, why }),
        (Ok(()), None) => unreachable!("a snapshot that was read was handed out"),
    }
}

fn replay(durable: &mut Durable, batch: Batch<'_>) -> Result<(), Error> {
    let position = batch.position.0;
    let mut rest = batch.records;
    let mut found = 0;
    while !rest.is_empty() {
        let record = Record::decode(&mut rest).map_err(|why| Error::Record { position, why })?;
        durable.apply(&record, Time(batch.time));
        found += 1;
    }
    if found != batch.record_count {
        return Err(Error::RecordCount { position, announced: batch.record_count, found });
    }
    Ok(())
}
