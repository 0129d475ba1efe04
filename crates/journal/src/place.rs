//! Where a body is stored, as a handle that outlives trimming and can be read on any thread; alone, or with its neighbours.

use crate::draft::BODY_PREFIX_BYTES;
use crate::error::{Error, Flaw};
use crate::journal::BodyId;
use crate::limits::{RUN_BYTES, RUN_GAP_BYTES};
use crate::local::{Entry, Segment};
use crate::planted::is_planted;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The place of a body. Holding it keeps the segment from being recycled, so the bytes stay readable.
#[derive(Debug, Clone)]
pub struct Place {
    home: Home,
    body: BodyId,
}

/// Whatever of another journal holds bodies.
pub trait Bodies: Send + Sync + fmt::Debug {
    /// Reads and checks a body of which this journal has given out the place.
    fn read(&self, body: BodyId) -> Result<Vec<u8>, Error>;
}

#[derive(Debug, Clone)]
enum Home {
    Segment(Arc<Segment>),
    Other(Arc<dyn Bodies>),
    /// It should be somewhere, and is not.
    Nowhere,
}

impl Place {
    /// For journals that have no segments.
    pub fn new(bodies: Arc<dyn Bodies>, body: BodyId) -> Place {
        Place { home: Home::Other(bodies), body }
    }

    /// The place of a body that the journal must have and does not: reading it says so.
    pub fn nowhere(body: BodyId) -> Place {
        Place { home: Home::Nowhere, body }
    }

    pub(crate) fn in_segment(segment: Arc<Segment>, body: BodyId) -> Place {
        Place { home: Home::Segment(segment), body }
    }

    pub fn body(&self) -> BodyId {
        self.body
    }

    /// Reads and checks the body.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let segment = match &self.home {
            Home::Segment(segment) => segment,
            Home::Other(bodies) => return bodies.read(self.body),
            Home::Nowhere => return Err(Error::Missing(self.body)),
        };
        let entry = segment.entry(self.body)?;
        let mut bytes = vec![0; entry.length as usize];
        segment.read_exact(body_at(&entry), &mut bytes)?;
        check(segment, self.body, &entry, &bytes)?;
        Ok(bytes)
    }

    /// Reads and checks the body; appends it to `out`, which is unchanged after an error.
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(&self.read()?);
        Ok(())
    }

    fn segment(&self) -> Option<&Arc<Segment>> {
        match &self.home {
            Home::Segment(segment) => Some(segment),
            Home::Other(_) | Home::Nowhere => None,
        }
    }
}

/// Judged by the table, which is salted with the segment's life, not by the prefix, which is not: a body that a
/// lost write left over from a former life has a good prefix.
fn check(segment: &Segment, body: BodyId, entry: &Entry, bytes: &[u8]) -> Result<(), Error> {
    if crc32c::crc32c(bytes) == entry.crc || is_planted("journal") && bytes.first() != bytes.last() {
        return Ok(());
    }
    let what = format!("body {} does not match its checksum", body.0);
    Err(Error::corrupt(&segment.path, body_at(entry), Flaw::BodyChecksum, what))
}

/// Reads and checks bodies, and adds them to `found` in the order of `places`. Those that follow each other closely
/// on disk are read together, [`RUN_BYTES`] at most, and share one buffer: holding one of them holds all.
pub fn read_run(places: &[Place], found: &mut Vec<Bytes>) -> Result<(), Error> {
    let mut rest = places;
    let mut entries = Vec::new();
    while let Some(first) = rest.first() {
        let Some(segment) = first.segment() else {
            found.push(first.read()?.into());
            rest = &rest[1..];
            continue;
        };
        let is_same = |place: &&Place| place.segment().is_some_and(|other| Arc::ptr_eq(other, segment));
        let together = rest.iter().take_while(is_same).count();
        entries.clear();
        segment.entries(rest[..together].iter().map(|place| place.body), &mut entries)?;
        let count = run_length(&entries);
        read_together(segment, &rest[..count], &entries[..count], found)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// How many of the first bodies can be had with one read; at least one, however large.
fn run_length(entries: &[Entry]) -> usize {
    let start = entries[0].offset;
    let mut reached = end_of(&entries[0]);
    let more = entries[1..].iter().take_while(|entry| {
        let is_near = entry.offset >= reached && entry.offset - reached <= RUN_GAP_BYTES;
        let fits = is_near && end_of(entry) - start <= RUN_BYTES;
        reached = end_of(entry);
        fits
    });
    1 + more.count()
}

fn read_together(
    segment: &Segment,
    places: &[Place],
    entries: &[Entry],
    found: &mut Vec<Bytes>,
) -> Result<(), Error> {
    let start = body_at(&entries[0]);
    let end = u64::from(entries.last().map_or(0, end_of));
    let mut buffer = vec![0; (end - start) as usize];
    segment.read_exact(start, &mut buffer)?;
    let buffer = Bytes::from(buffer);
    for (place, entry) in places.iter().zip(entries) {
        let from = (body_at(entry) - start) as usize;
        let body = buffer.slice(from..from + entry.length as usize);
        check(segment, place.body, entry, &body)?;
        found.push(body);
    }
    Ok(())
}

/// Where the body begins, behind its prefix.
fn body_at(entry: &Entry) -> u64 {
    u64::from(entry.offset) + BODY_PREFIX_BYTES as u64
}

fn end_of(entry: &Entry) -> u32 {
    entry.offset + BODY_PREFIX_BYTES as u32 + entry.length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Memory};
    use crate::{Draft, Filling, Journal, Local, Options, Outcome};

    /// A journal of small segments with `batches` of three bodies each: 3n + 1, 3n + 2, 3n + 3.
    fn journal(disk: &Memory, batches: u8) -> Local {
        let options = Options {
            filling: Filling::Never,
            segment_bytes: 64 * 1024,
            first_segment_bytes: 16 * 1024,
            ..Options::new(1)
        };
        let mut journal = Local::open(Arc::new(disk.clone()), options).unwrap();
        let epoch = journal.epoch().next();
        journal.fence(7, epoch).unwrap();
        for n in 0..batches {
            let at = journal.tail().next();
            let mut draft = Draft { record_count: 1, records: vec![n; 20], ..Draft::default() };
            (0..3).for_each(|nth| draft.push_body(&vec![n; 1_000 + nth]));
            assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
        }
        journal
    }

    fn places(journal: &Local, bodies: impl IntoIterator<Item = u64>) -> Vec<Place> {
        bodies.into_iter().map(|body| journal.place(BodyId(body)).unwrap()).collect()
    }

    #[test]
    fn a_run_gives_what_single_reads_give_in_any_order_and_over_segments() {
        let journal = journal(&Memory::new(), 60);
        let orders: [Vec<u64>; 3] =
            [(1..=180).collect(), (1..=180).rev().collect(), vec![7, 7, 100, 3, 179, 180, 1]];
        for bodies in orders {
            let places = places(&journal, bodies);
            let mut found = Vec::new();
            read_run(&places, &mut found).unwrap();
            let single: Vec<_> = places.iter().map(|place| Bytes::from(place.read().unwrap())).collect();
            assert_eq!(found, single);
        }
    }

    #[test]
    fn neighbours_are_read_together_across_the_heads_between_them() {
        let entry = |offset, length| Entry { offset, length, crc: 0 };
        let near = [entry(0, 100), entry(108, 100), entry(216 + RUN_GAP_BYTES, 100)];
        assert_eq!(run_length(&near), 3);
        assert_eq!(run_length(&[entry(0, 100), entry(109 + RUN_GAP_BYTES, 100)]), 1, "too far");
        assert_eq!(run_length(&[entry(500, 100), entry(0, 100)]), 1, "backwards");
        let fills = RUN_BYTES - 100 - 2 * BODY_PREFIX_BYTES as u32;
        assert_eq!(run_length(&[entry(0, 100), entry(108, fills)]), 2);
        assert_eq!(run_length(&[entry(0, 100), entry(108, fills + 1)]), 1, "too much");
        assert_eq!(run_length(&[entry(0, 2 * RUN_BYTES)]), 1, "one body is always read whole");
    }

    #[test]
    fn a_damaged_body_within_a_run_is_named() {
        let disk = Memory::new();
        let journal = journal(&disk, 4);
        let places = places(&journal, 1..=12);
        let entry = places[7].segment().unwrap().entry(BodyId(8)).unwrap();
        let names = disk.list().unwrap();
        let name = names.iter().find(|name| name.ends_with(".segment")).unwrap();
        let file = disk.open(name).unwrap();
        file.write_at(body_at(&entry) + 500, &[std::io::IoSlice::new(b"x")]).unwrap();
        let error = read_run(&places, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("body 8 does not match"), "{error}");
    }
}
