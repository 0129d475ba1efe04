//! Writing a snapshot beside the partition: what it is made of, what it finds out, and how it comes back.

use crate::survey::{Plan, Survey};
use crate::work::Work;
use broker::{BodyId, Snapshot};
use journal::{Position, Snapshots, Stretch};
use std::io;
use std::sync::Arc;

/// A snapshot that is to be written.
#[derive(Debug)]
pub(crate) struct SnapshotJob {
    /// The last batch that it contains, which is committed.
    pub(crate) at: Position,
    pub(crate) snapshot: Snapshot,
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    pub(crate) sparse_percent: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Snapshotted {
    pub(crate) at: Position,
    pub(crate) bytes: u64,
    pub(crate) plan: Plan,
    /// Live bodies in front of `plan.relocate_before`, by the id that messages know and the id under which they are stored.
    pub(crate) to_relocate: Vec<(BodyId, BodyId)>,
    /// Moved bodies that nobody needs any more.
    pub(crate) forgotten: Vec<BodyId>,
}

impl SnapshotJob {
    pub(crate) fn run(self) -> Work {
        match self.write() {
            Ok(done) => Work::Snapshotted(Box::new(done)),
            // Nothing is lost: the one before is still there, and the next one is tried later.
            Err(error @ journal::Error::Full { .. }) => Work::SnapshotPutOff(error.to_string()),
            Err(error) => Work::Failed(error.to_string()),
        }
    }

    fn write(&self) -> Result<Snapshotted, journal::Error> {
        let (mut bytes, mut forgotten) = (0, Vec::new());
        let mut survey = Survey::new(self.stretches.clone());
        self.snapshots.put(self.at, &mut |out| {
            // A full disk lets it begin again.
            survey = Survey::new(self.stretches.clone());
            let mut out = Counted { out, bytes: 0 };
            forgotten = self.snapshot.write(&mut out, &mut |named| survey.count(named))?;
            bytes = out.bytes;
            Ok(())
        })?;
        let plan = survey.plan(self.at, self.sparse_percent);
        drop(survey);
        let to_relocate = plan.relocate_before.map_or_else(Vec::new, |stretch| self.alive_before(stretch));
        Ok(Snapshotted { at: self.at, bytes, plan, to_relocate, forgotten })
    }

    fn alive_before(&self, stretch: Stretch) -> Vec<(BodyId, BodyId)> {
        let mut alive = Vec::new();
        let collected = self.snapshot.write(&mut io::sink(), &mut |named| {
            if named.stored.0 < stretch.first_body.0 {
                alive.push((named.stored, named.body));
            }
        });
        collected.expect("a sink takes everything");
        // In the order in which they are stored, and each once, however many messages share it.
        alive.sort_unstable();
        alive.dedup();
        alive.into_iter().map(|(stored, body)| (body, stored)).collect()
    }
}

struct Counted<'a> {
    out: &'a mut dyn io::Write,
    bytes: u64,
}

impl io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, ByHand, Outbox, UpkeepSettings, Work, recover};
    use broker::{Command, ConnectionId, LinkId, NamespaceId, RequestId, Span, Time};
    use journal::disk::Memory;
    use journal::{Error, Filling, Journal, Local, Options, ReadSnapshot, SnapshotInfo, WriteSnapshot};

    /// Has everything written so many times, as a disk does that is full at first and then gives up its reserve.
    #[derive(Debug)]
    struct Again(u32);

    impl Snapshots for Again {
        fn put(&self, _: Position, write: WriteSnapshot<'_>) -> Result<(), Error> {
            (0..self.0).for_each(|_| write(&mut io::sink()).unwrap());
            Ok(())
        }

        fn latest(&self) -> Result<Vec<SnapshotInfo>, Error> {
            Ok(Vec::new())
        }

        fn read(&self, _: Position, _: ReadSnapshot<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn remove(&self, _: Position) -> Result<(), Error> {
            Ok(())
        }

        fn set_aside(&self, _: Position) -> Result<(), Error> {
            Ok(())
        }
    }

    /// What a snapshot of one message finds when it is written so many times.
    fn surveyed(times: u32) -> Snapshotted {
        let options = Options { filling: Filling::Never, ..Options::new(7) };
        let mut journal = Local::open(Arc::new(Memory::new()), options).unwrap();
        let recovered = recover(&mut journal, 1).unwrap();
        let stretches = journal.stretches();
        let mut partition = ByHand::new(recovered, Box::new(journal), UpkeepSettings::default());
        let (connection, namespace, path) = (ConnectionId(1), NamespaceId(0), Box::<str>::from("q"));
        let (link, request) = (LinkId { connection, link: 1 }, RequestId { connection, request: 1 });
        let mut batch = Batch::default();
        let settings = Box::default();
        batch.commands.push(Command::CreateQueue { request, namespace, path: path.clone(), settings });
        batch.commands.push(Command::AttachSender { link, namespace, path });
        batch.message(Span::MAX, |out| out.extend_from_slice(&[7; 1_000]));
        batch.send(link, 0, false, 0);
        partition.put(Work::Connect { connection, mailbox: Arc::new(Outbox::default()) });
        partition.put(Work::Batch(batch));
        partition.run(Time(1_000_000)).unwrap();
        let snapshot = partition.look(|partition| partition.broker().snapshot(Time(1_000_000)));
        let snapshots = Arc::new(Again(times));
        SnapshotJob { at: Position(1), snapshot, stretches, snapshots, sparse_percent: 25 }.write().unwrap()
    }

    #[test]
    fn what_is_alive_is_counted_once_though_the_snapshot_was_begun_again() {
        let (once, twice) = (surveyed(1), surveyed(2));
        assert!(once.plan.alive_bytes >= 1_000);
        assert_eq!(twice.plan.alive_bytes, once.plan.alive_bytes);
        assert_eq!((twice.bytes, twice.to_relocate), (once.bytes, once.to_relocate));
    }
}
