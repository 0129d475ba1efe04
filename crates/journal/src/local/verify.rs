//! Checking a whole directory that nobody uses: every file that is ours, each on its own and all together. Nothing is
//! changed, nothing is refused: whatever is wrong is told, and the rest is looked at all the same.

use super::check::{Check, Counts};
use super::extent::ExtentFile;
use super::handles::Handles;
use super::open::take_lock;
use super::reserve::Reserve;
use super::segment::{Edge, Segment};
use super::shared::Shared;
use super::snapshot::SnapshotFiles;
use super::{Local, names};
use crate::disk::Disk;
use crate::error::{Error, Flaw};
use crate::journal::{Batch, Position, Snapshots};
use std::io;
use std::sync::Arc;

/// What a verification does with what is found.
pub trait Inspector {
    /// A batch, in order; what cannot be read in it is damage.
    fn batch(&mut self, batch: Batch<'_>) -> Result<(), Error>;
    /// The content of a snapshot, whose checksum is right.
    fn snapshot(&mut self, at: Position, content: &mut dyn io::Read) -> Result<(), Error>;
    fn damage(&mut self, error: Error);
}

impl Local {
    /// Looks at everything. An error is one of the disk, or a directory that is in use.
    pub fn verify(
        disk: Arc<dyn Disk>,
        partition: u32,
        inspector: &mut dyn Inspector,
    ) -> Result<Counts, Error> {
        let _lock = take_lock(&*disk)?;
        let listed = disk.list().map_err(|error| Error::io("list", &disk.path(""), error))?;
        let mut counts = Counts::default();
        let newest = verify_snapshots(&disk, partition, &listed, &mut counts, inspector)?;
        let mut ordinals: Vec<u64> = listed.iter().filter_map(|name| names::parse_segment(name)).collect();
        ordinals.sort_unstable();
        match ExtentFile::open(disk.clone(), partition, &listed) {
            Ok(extent) => extent.missing(&ordinals).into_iter().for_each(|error| inspector.damage(error)),
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => inspector.damage(error),
        }
        let handles = Handles::new(disk.clone());
        let mut segments: Vec<Segment> = Vec::new();
        for &ordinal in &ordinals {
            let name = names::segment(ordinal);
            let path = disk.path(&name);
            match Segment::open(path.clone(), handles.closed(name)) {
                Ok(segment) if segment.header.ordinal != ordinal => {
                    let what = format!("this is segment {}; the file was renamed", segment.header.ordinal);
                    inspector.damage(Error::corrupt(&path, 16, Flaw::SegmentRenamed, what));
                }
                Ok(segment) if segment.header.partition != partition => {
                    let (found, expected) = (segment.header.partition, partition);
                    inspector.damage(Error::WrongPartition { file: path, found, expected });
                }
                Ok(segment) => segments.push(segment),
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error) => inspector.damage(error),
            }
        }
        check_ends(&*disk, &segments, newest, inspector);
        let mut tail = None;
        for (n, segment) in segments.iter().enumerate() {
            let next = segments.get(n + 1);
            if let Some(next) = next {
                tell_missing(&*disk, &ordinals, segment.header.ordinal, next.header.ordinal, inspector);
            }
            let end = next
                .filter(|next| next.header.ordinal == segment.header.ordinal + 1)
                .map(|next| next.header.first);
            tail = Some((segment, check_segment(segment, end, &mut counts, inspector)?));
        }
        if let (Some((segment, edge)), Some(newest)) = (tail, newest)
            && edge.position < newest
        {
            let what = format!("the journal ends at batch {}, a snapshot at {}", edge.position.0, newest.0);
            inspector.damage(Error::corrupt(&segment.path, 0, Flaw::SnapshotAhead, what));
        }
        Ok(counts)
    }
}

/// Tells of files that are missing between two segments, a run of them at a time: a file of a strange name may be any number
/// away. One that is there and damaged, as `ordinals` says, was told already.
fn tell_missing(disk: &dyn Disk, ordinals: &[u64], before: u64, behind: u64, inspector: &mut dyn Inspector) {
    let there = ordinals.iter().copied().filter(|ordinal| (before + 1..=behind).contains(ordinal));
    let mut next = before + 1;
    for ordinal in there {
        if next < ordinal {
            let what = match ordinal - next {
                1 => "the file is missing between two segments".to_owned(),
                more => format!("{more} files from this one on are missing between two segments"),
            };
            inspector.damage(Error::corrupt(&disk.path(&names::segment(next)), 0, Flaw::SegmentGap, what));
        }
        next = ordinal + 1;
    }
}

fn check_segment(
    segment: &Segment,
    end: Option<Edge>,
    counts: &mut Counts,
    inspector: &mut dyn Inspector,
) -> Result<Edge, Error> {
    // Both closures need the inspector, one at a time.
    let inspector = std::cell::RefCell::new(inspector);
    let mut unreadable = Vec::new();
    let edge = {
        let batch = &mut |batch: Batch<'_>| {
            if let Err(error) = inspector.borrow_mut().batch(batch) {
                unreadable.push(Error::corrupt(
                    &segment.path,
                    0,
                    Flaw::Content,
                    format!("batch {}: {error}", batch.position.0),
                ));
            }
            Ok(())
        };
        let damage = &mut |error| inspector.borrow_mut().damage(error);
        Check { counts, batch, damage, pause: &mut |_| {} }.segment(segment, end)?
    };
    let inspector = inspector.into_inner();
    unreadable.into_iter().for_each(|error| inspector.damage(error));
    Ok(edge)
}

/// The journal must begin where a snapshot ends, or at its beginning.
fn check_ends(
    disk: &dyn Disk,
    segments: &[Segment],
    newest: Option<Position>,
    inspector: &mut dyn Inspector,
) {
    let newest = newest.unwrap_or_default();
    let first = segments.first().map(|segment| segment.header.first.position);
    if first.is_some_and(|before| before > newest) || first.is_none() && newest.0 > 0 {
        let ordinal = segments.first().map_or(1, |segment| segment.header.ordinal.saturating_sub(1));
        let what = format!("the file is missing, and no whole snapshot contains batch {}", newest.0 + 1);
        inspector.damage(Error::corrupt(&disk.path(&names::segment(ordinal)), 0, Flaw::SegmentNeeded, what));
    }
}

/// Returns the newest snapshot that is whole.
fn verify_snapshots(
    disk: &Arc<dyn Disk>,
    partition: u32,
    listed: &[String],
    counts: &mut Counts,
    inspector: &mut dyn Inspector,
) -> Result<Option<Position>, Error> {
    let shared = Arc::new(Shared::new(Position(0)));
    let reserve = Arc::new(Reserve::none(disk.clone()));
    let files = SnapshotFiles::open(disk.clone(), partition, shared, reserve, listed);
    let mut newest = None;
    for info in files.latest()? {
        let at = info.position;
        counts.snapshots += 1;
        let mut refused = None;
        let read = files.read(at, &mut |content| {
            refused = inspector.snapshot(at, content).err();
            Ok(())
        });
        match (read, refused) {
            (Ok(()), None) => newest = newest.max(Some(at)),
            (Err(error @ Error::Io { .. }), _) => return Err(error),
            (Err(error), _) => inspector.damage(error),
            (Ok(()), Some(error)) => {
                let path = disk.path(&names::snapshot(at));
                inspector.damage(Error::corrupt(&path, 0, Flaw::Content, error.to_string()));
            }
        }
    }
    Ok(newest)
}
