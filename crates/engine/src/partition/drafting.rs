//! What was decided and is not written: records and bodies of the next append, and what must be counted until it is durable.

use crate::cache::Cache;
use crate::commit::DraftSize;
use crate::ids::ForBroker;
use crate::limits::APPEND_BYTES;
use broker::ids::IdMap;
use broker::{Body, BodyId, Intake, Record, Time};
use bytes::Bytes;
use journal::{BODY_PREFIX_BYTES, Draft, body_prefix};

#[derive(Debug)]
pub(super) struct Drafting {
    pub(super) draft: Draft,
    /// What was written last, for as long as it may have to be written again.
    pub(super) written: Draft,
    /// Bytes handed over whose records are in the draft.
    pub(super) held_bytes: usize,
    body_bytes: usize,
    /// The id of the first body in the draft.
    first_body: BodyId,
    /// An append is wanted though nothing need be recorded.
    pub(super) is_wanted: bool,
    /// Where bodies are stored whose copies are in the draft: the copies have no place before it is written.
    pub(super) relocating: IdMap<BodyId, BodyId>,
    /// The same for those that were written last: a journal that is far away may have to be asked whether it has them.
    relocated_before: IdMap<BodyId, BodyId>,
}

impl Drafting {
    /// Goes on behind the bodies that a journal has.
    pub(super) fn new(next_body: journal::BodyId) -> Drafting {
        Drafting {
            draft: Draft::default(),
            written: Draft::default(),
            held_bytes: 0,
            body_bytes: 0,
            first_body: next_body.for_broker(),
            is_wanted: false,
            relocating: IdMap::default(),
            relocated_before: IdMap::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.draft.record_count == 0 && !self.is_wanted
    }

    /// What does not fit waits for the next append: the journal takes only so much at once.
    pub(super) fn is_full(&self) -> bool {
        self.body_bytes + self.draft.records.len() >= APPEND_BYTES
    }

    pub(super) fn drafted(&self, is_awaited: bool) -> Option<DraftSize> {
        let is_awaited = is_awaited || self.is_wanted;
        let records = self.draft.record_count;
        (!self.is_empty()).then(|| DraftSize { records, is_awaited, is_full: self.is_full() })
    }

    /// All records of one batch have one time, which replay reads from the batch: that of its first record.
    pub(super) fn time(&mut self, is_first: bool, now: Time) -> Time {
        if is_first && self.draft.record_count == 0 {
            self.draft.time = now.0;
        }
        Time(self.draft.time)
    }

    pub(super) fn take_records(&mut self, records: &[Record]) {
        records.iter().for_each(|record| record.encode(&mut self.draft.records));
        self.draft.record_count += records.len() as u32;
    }

    /// Adds stored bodies: neighbours in the buffer stay one piece. What the broker has made itself is laid out here.
    pub(super) fn take_bodies(&mut self, stored: &[Body], made: &[u8], bodies: &Bytes, cache: &Cache) {
        // A buffer of which little is stored would be held whole by the cache for that little.
        let arrived = |body: &Body| match body {
            Body::Arrived(intake) => BODY_PREFIX_BYTES + intake.length as usize,
            Body::Made(_) => 0,
        };
        let stored_bytes: usize = stored.iter().map(arrived).sum();
        let is_mostly_refused = 2 * stored_bytes < bodies.len();
        let mut rest = stored;
        while let Some(first) = rest.first() {
            let (run, piece) = match first {
                Body::Arrived(first) => {
                    let start = first.offset as usize;
                    let mut end = start;
                    let is_next = |body: &&Body| match body {
                        Body::Arrived(intake) if intake.offset as usize == end => {
                            end += BODY_PREFIX_BYTES + intake.length as usize;
                            true
                        }
                        _ => false,
                    };
                    let run = rest.iter().take_while(is_next).count();
                    let piece = match is_mostly_refused {
                        true => Bytes::copy_from_slice(&bodies[start..end]),
                        false => bodies.slice(start..end),
                    };
                    (run, piece)
                }
                Body::Made(_) => laid_out(rest, made),
            };
            let from = self.draft.body_lengths.len();
            let first_id = BodyId(self.first_body.0 + from as u64);
            let length = |body: &Body| match body {
                Body::Arrived(intake) | Body::Made(intake) => intake.length,
            };
            self.draft.body_lengths.extend(rest[..run].iter().map(length));
            cache.put(first_id, &self.draft.body_lengths[from..], &piece);
            self.body_bytes += piece.len();
            self.draft.pieces.push(piece);
            rest = &rest[run..];
        }
    }

    /// The draft was written. Returns the bytes that are held until it is durable.
    pub(super) fn written(&mut self) -> usize {
        self.first_body.0 += self.draft.body_lengths.len() as u64;
        std::mem::swap(&mut self.draft, &mut self.written);
        self.draft.clear();
        std::mem::swap(&mut self.relocating, &mut self.relocated_before);
        self.relocating.clear();
        self.body_bytes = 0;
        self.is_wanted = false;
        std::mem::take(&mut self.held_bytes)
    }

    /// Where a body is stored that was copied, until the copy is durable.
    pub(super) fn original(&self, body: BodyId) -> Option<BodyId> {
        self.relocating.get(&body).or_else(|| self.relocated_before.get(&body)).copied()
    }

    /// What was written last is durable and need not be kept.
    pub(super) fn committed(&mut self) {
        self.written.clear();
        self.relocated_before.clear();
    }
}

/// The bodies at the front of `rest` that the broker has made: how many, and as they will lie on disk.
fn laid_out(rest: &[Body], made: &[u8]) -> (usize, Bytes) {
    let (mut run, mut piece) = (0, Vec::new());
    for body in rest {
        let Body::Made(Intake { offset, length }) = body else { break };
        let bytes = &made[*offset as usize..][..*length as usize];
        piece.extend_from_slice(&body_prefix(bytes));
        piece.extend_from_slice(bytes);
        run += 1;
    }
    (run, piece.into())
}
