//! Writing a snapshot beside the partition: what it is made of, what it finds out, and how it comes back.

use crate::inbox::Item;
use crate::survey::{Plan, Survey};
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
    /// The living in front of `plan.clean_before`, by the id that messages know and the id under which they lie.
    pub(crate) to_copy: Vec<(BodyId, BodyId)>,
    /// Moved bodies that nobody needs any more.
    pub(crate) forgotten: Vec<BodyId>,
}

impl SnapshotJob {
    pub(crate) fn run(self) -> Item {
        match self.write() {
            Ok(done) => Item::Snapshotted(Box::new(done)),
            // Nothing is lost: the one before is still there, and the next one is tried later.
            Err(error @ journal::Error::Full { .. }) => Item::SnapshotPutOff(error.to_string()),
            Err(error) => Item::Failed(error.to_string()),
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
        let to_copy = plan.clean_before.map_or_else(Vec::new, |stretch| self.alive_before(stretch));
        Ok(Snapshotted { at: self.at, bytes, plan, to_copy, forgotten })
    }

    fn alive_before(&self, stretch: Stretch) -> Vec<(BodyId, BodyId)> {
        let mut alive = Vec::new();
        let collected = self.snapshot.write(&mut io::sink(), &mut |named| {
            if named.stored.0 < stretch.first_body.0 {
                alive.push((named.stored, named.body));
            }
        });
        collected.expect("a sink takes everything");
        // In the order in which they lie, and each once, however many messages share it.
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
