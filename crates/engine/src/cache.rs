//! The tail cache: batch buffers that were just written, oldest dropped first. Shared between the partition, which
//! fills it, and the connections, which copy out of it at once; nobody slow can pin any of it. The budget counts the
//! bodies and what is kept about them.

use crate::limits::CACHED_BODY_BYTES;
use broker::BodyId;
use bytes::Bytes;
use journal::BODY_PREFIX_BYTES;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Cache {
    tail: Mutex<Tail>,
}

#[derive(Debug)]
struct Tail {
    runs: VecDeque<Run>,
    held_bytes: usize,
    budget_bytes: usize,
}

/// Bodies, back to back in one buffer.
#[derive(Debug)]
struct Run {
    first: BodyId,
    /// Where each body starts, behind its prefix.
    starts: Vec<u32>,
    bytes: Bytes,
}

/// What is read of a message to send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    pub body: Bytes,
    /// What was changed of its properties, if that is stored.
    pub overlay: Bytes,
}

/// How many of the first messages asked for are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// So many were found.
    Here(usize),
    /// So many are only on disk.
    Absent(usize),
}

impl Cache {
    pub fn new(budget_bytes: usize) -> Cache {
        Cache { tail: Mutex::new(Tail { runs: VecDeque::new(), held_bytes: 0, budget_bytes }) }
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a run of stored bodies, prefixes included. A run with a large body is left out: it would drive out hundreds
    /// of small ones, and costs no more than one read whether it is small or large.
    pub(crate) fn put(&self, first: BodyId, lengths: &[u32], bytes: &Bytes) {
        if lengths.iter().any(|length| *length > CACHED_BODY_BYTES) {
            return;
        }
        let mut starts = Vec::with_capacity(lengths.len());
        let mut at = 0;
        for length in lengths {
            starts.push(at + BODY_PREFIX_BYTES as u32);
            at += BODY_PREFIX_BYTES as u32 + length;
        }
        let run = Run { first, starts, bytes: bytes.clone() };
        let mut tail = self.lock();
        tail.held_bytes += run.held_bytes();
        tail.runs.push_back(run);
        while tail.held_bytes > tail.budget_bytes
            && let Some(run) = tail.runs.pop_front()
        {
            tail.held_bytes -= run.held_bytes();
        }
    }

    /// The bodies of `wanted` that are here, each in its place.
    pub fn get(&self, wanted: impl Iterator<Item = BodyId>, found: &mut Vec<Option<Bytes>>) {
        let tail = self.lock();
        let mut near = 0;
        found.extend(wanted.map(|body| tail.find(body, &mut near)));
    }

    /// As many of the first messages as are here, or, if the first is not, how many are not. Of each its body is wanted, and the
    /// body of what was changed of it, if there is one.
    pub fn front(
        &self,
        wanted: impl Iterator<Item = (BodyId, Option<BodyId>)>,
        found: &mut Vec<StoredMessage>,
    ) -> Front {
        let tail = self.lock();
        let (mut near, mut absent) = (0, 0);
        for (body, overlay) in wanted {
            let overlay = |near| overlay.map_or(Some(Bytes::new()), |overlay| tail.find(overlay, near));
            let here = tail.find(body, &mut near);
            match here.and_then(|body| Some(StoredMessage { body, overlay: overlay(&mut near)? })) {
                Some(_) if absent > 0 => break,
                Some(message) => found.push(message),
                None if !found.is_empty() => break,
                None => absent += 1,
            }
        }
        if absent > 0 { Front::Absent(absent) } else { Front::Here(found.len()) }
    }
}

impl Run {
    fn get(&self, body: BodyId) -> Option<Bytes> {
        let nth = usize::try_from(body.0.checked_sub(self.first.0)?).ok()?;
        let start = *self.starts.get(nth)? as usize;
        let end =
            self.starts.get(nth + 1).map_or(self.bytes.len(), |next| *next as usize - BODY_PREFIX_BYTES);
        Some(self.bytes.slice(start..end))
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<u32>() + size_of::<Run>()
    }
}

impl Tail {
    /// Looks first where the last one was found: a connection that asks for many asks for neighbours.
    fn find(&self, body: BodyId, near: &mut usize) -> Option<Bytes> {
        if let Some(bytes) = self.runs.get(*near).and_then(|run| run.get(body)) {
            return Some(bytes);
        }
        *near = self.runs.partition_point(|run| run.first <= body).checked_sub(1)?;
        self.runs.get(*near)?.get(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bodies: &[&[u8]]) -> (Vec<u32>, Bytes) {
        let mut bytes = Vec::new();
        for body in bodies {
            bytes.extend_from_slice(&journal::body_prefix(body));
            bytes.extend_from_slice(body);
        }
        (bodies.iter().map(|body| body.len() as u32).collect(), bytes.into())
    }

    fn put(cache: &Cache, first: u64, bodies: &[&[u8]]) {
        let (lengths, bytes) = run(bodies);
        cache.put(BodyId(first), &lengths, &bytes);
    }

    fn get(cache: &Cache, body: u64) -> Option<Bytes> {
        let mut found = Vec::new();
        cache.get([BodyId(body)].into_iter(), &mut found);
        found.pop().flatten()
    }

    #[test]
    fn bodies_are_found_by_id_and_the_oldest_run_goes_first() {
        let cache = Cache::new(200);
        put(&cache, 7, &[b"one", b"", b"three"]);
        assert_eq!(get(&cache, 7).unwrap(), b"one"[..]);
        assert_eq!(get(&cache, 8).unwrap(), b""[..]);
        assert_eq!(get(&cache, 9).unwrap(), b"three"[..]);
        assert_eq!((get(&cache, 6), get(&cache, 10)), (None, None));
        put(&cache, 10, &[&[0; 60]]);
        assert_eq!(get(&cache, 7), None);
        assert_eq!(get(&cache, 10).unwrap().len(), 60);
    }

    #[test]
    fn the_front_is_what_is_here_or_what_is_not() {
        let cache = Cache::new(10_000);
        put(&cache, 7, &[b"7", b"8"]);
        put(&cache, 9, &[b"9"]);
        put(&cache, 12, &[b"12"]);
        let front = |wanted: &[(u64, Option<u64>)]| {
            let mut found = Vec::new();
            let wanted = wanted.iter().map(|(body, overlay)| (BodyId(*body), overlay.map(BodyId)));
            let front = cache.front(wanted, &mut found);
            let bytes = |found: StoredMessage| [&found.body[..], &found.overlay[..]].concat();
            (front, found.into_iter().flat_map(bytes).collect::<Vec<_>>())
        };
        let alone = |bodies: &[u64]| front(&bodies.iter().map(|body| (*body, None)).collect::<Vec<_>>());
        assert_eq!(alone(&[7, 8, 9, 10, 12]), (Front::Here(3), b"789".to_vec()));
        assert_eq!(alone(&[9, 7]), (Front::Here(2), b"97".to_vec()));
        assert_eq!(alone(&[5, 11, 12, 5]), (Front::Absent(2), vec![]));
        // A message is here if what was changed of it is here too.
        assert_eq!(front(&[(7, Some(12)), (8, None)]), (Front::Here(2), b"7128".to_vec()));
        assert_eq!(front(&[(7, None), (8, Some(10)), (9, None)]), (Front::Here(1), b"7".to_vec()));
        assert_eq!(front(&[(7, Some(10)), (10, Some(8)), (9, None)]), (Front::Absent(2), vec![]));
    }

    #[test]
    fn the_cache_never_holds_more_than_its_budget() {
        let cache = Cache::new(100_000);
        for n in 0..1_000 {
            put(&cache, n, &[&vec![1; (n as usize * 37) % 5_000]]);
            let tail = cache.lock();
            assert!(tail.held_bytes <= 100_000);
            assert_eq!(tail.held_bytes, tail.runs.iter().map(Run::held_bytes).sum::<usize>());
        }
        assert!(cache.lock().runs.len() > 10);
    }

    #[test]
    fn a_large_body_does_not_drive_out_small_ones() {
        let cache = Cache::new(CACHED_BODY_BYTES as usize * 2);
        put(&cache, 1, &[b"small"]);
        put(&cache, 2, &[&vec![0; CACHED_BODY_BYTES as usize + 1]]);
        assert_eq!((get(&cache, 2), get(&cache, 1).is_some()), (None, true));
        put(&cache, 3, &[&vec![0; CACHED_BODY_BYTES as usize]]);
        assert!(get(&cache, 3).is_some());
    }
}
