//! The tail cache: batch buffers that were just written, oldest dropped first. Shared between the partition, which
//! fills it, and the connections, which copy out of it; nobody slow can pin more than one run of it.

use broker::BodyId;
use bytes::Bytes;
use journal::BODY_PREFIX_BYTES;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

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

/// Bodies that lie back to back in one buffer.
#[derive(Debug)]
struct Run {
    first: BodyId,
    /// Where each body starts, behind its prefix.
    starts: Vec<u32>,
    bytes: Bytes,
}

impl Cache {
    pub fn new(budget_bytes: usize) -> Cache {
        Cache { tail: Mutex::new(Tail { runs: VecDeque::new(), held_bytes: 0, budget_bytes }) }
    }

    /// Adds a run of stored bodies, prefixes included.
    pub(crate) fn put(&self, first: BodyId, lengths: &[u32], bytes: &Bytes) {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let mut starts = Vec::with_capacity(lengths.len());
        let mut at = 0;
        for length in lengths {
            starts.push(at + BODY_PREFIX_BYTES as u32);
            at += BODY_PREFIX_BYTES as u32 + length;
        }
        tail.held_bytes += bytes.len();
        tail.runs.push_back(Run { first, starts, bytes: bytes.clone() });
        while tail.held_bytes > tail.budget_bytes
            && let Some(run) = tail.runs.pop_front()
        {
            tail.held_bytes -= run.bytes.len();
        }
    }

    /// The bodies of `wanted` that are here, each in its place.
    pub fn get(&self, wanted: impl Iterator<Item = BodyId>, found: &mut Vec<Option<Bytes>>) {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(wanted.map(|body| tail.find(body)));
    }
}

impl Tail {
    fn find(&self, body: BodyId) -> Option<Bytes> {
        let after = self.runs.partition_point(|run| run.first <= body);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let nth = (body.0 - run.first.0) as usize;
        let start = *run.starts.get(nth)? as usize;
        let end = run.starts.get(nth + 1).map_or(run.bytes.len(), |next| *next as usize - BODY_PREFIX_BYTES);
        Some(run.bytes.slice(start..end))
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

    fn get(cache: &Cache, body: u64) -> Option<Bytes> {
        let mut found = Vec::new();
        cache.get([BodyId(body)].into_iter(), &mut found);
        found.pop().flatten()
    }

    #[test]
    fn bodies_are_found_by_id_and_the_oldest_run_goes_first() {
        let cache = Cache::new(60);
        let (lengths, bytes) = run(&[b"one", b"", b"three"]);
        cache.put(BodyId(7), &lengths, &bytes);
        assert_eq!(get(&cache, 7).unwrap(), b"one"[..]);
        assert_eq!(get(&cache, 8).unwrap(), b""[..]);
        assert_eq!(get(&cache, 9).unwrap(), b"three"[..]);
        assert_eq!((get(&cache, 6), get(&cache, 10)), (None, None));
        let (lengths, bytes) = run(&[&[0; 40]]);
        cache.put(BodyId(10), &lengths, &bytes);
        assert_eq!(get(&cache, 7), None);
        assert_eq!(get(&cache, 10).unwrap().len(), 40);
    }
}
