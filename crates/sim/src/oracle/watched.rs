//! A journal that tells the oracle what is written and what became of it. In some lives it is far away: then an answer may
//! get lost, or a request, or somebody else has taken it over.

use crate::faults::LogPlan;
use crate::hash::hash_bytes;
use crate::oracle::Shared;
use crate::workload::message_number;
use broker::Record;
use broker::limits::SMALL_OVERLAY_BYTES;
use journal::{
    BODY_PREFIX_BYTES, Batch, BodyId, Description, Draft, Epoch, Error, Journal, Local, Outcome, Place,
    Position, Resolution, Scrub, Snapshots, Space, Stretch, Ticket,
};
use message::Overlay;
use std::sync::Arc;

#[derive(Debug)]
pub struct Watched {
    inner: Local,
    shared: Arc<Shared>,
    plan: LogPlan,
    appends: u64,
    /// The append of which nobody knows what became, and the hash of its records.
    unknown: Option<(Position, u64)>,
}

impl Watched {
    pub fn new(inner: Local, shared: Arc<Shared>, plan: LogPlan) -> Watched {
        Watched { inner, shared, plan, appends: 0, unknown: None }
    }

    /// Writes it, and has the oracle hear what became of it; the writer hears of it only if it is answered.
    fn write(&mut self, draft: &Draft, at: Position, is_answered: bool) -> Result<Ticket, Error> {
        let is_repeated = self.unknown.take().is_some();
        let ticket = match self.inner.append(draft, at) {
            // The writer has done with it, and it may be found on the disk or not.
            Err(error) if is_repeated => return Err(error),
            Err(error @ Error::Full { .. }) => {
                self.shared.lock().withdrawn();
                return Err(error);
            }
            Err(error) => {
                self.shared.lock().append_failed();
                return Err(error);
            }
            Ok(ticket) => ticket,
        };
        let shared = self.shared.clone();
        Ok(Ticket::new(move || {
            let outcome = ticket.wait();
            match &outcome {
                Outcome::Committed => shared.lock().committed(at.0),
                _ => shared.lock().coverage.fault("failed sync"),
            }
            if is_answered || !matches!(outcome, Outcome::Committed) { outcome } else { Outcome::Unknown }
        }))
    }
}

/// One append, as the oracle sees it.
#[derive(Debug)]
pub struct Appended {
    pub position: u64,
    pub time: i64,
    pub records: Vec<Record>,
    /// A hash of the records.
    pub hash: u64,
    pub first_body: u64,
    /// The bodies in the order of their ids: the hash of each, and the number of the message that it begins, if it does.
    pub bodies: Vec<(u64, Option<usize>)>,
    /// Those of them that are changed properties, by their ids.
    pub overlays: Vec<(u64, Overlay)>,
    /// The write was reported as failed, and may be found on the disk all the same.
    pub has_failed: bool,
}

impl Appended {
    fn read(draft: &Draft, at: Position, first_body: BodyId) -> Result<Appended, String> {
        let mut rest = &draft.records[..];
        // A record has a byte at least.
        let mut records = Vec::with_capacity(rest.len().min(draft.record_count as usize));
        while !rest.is_empty() {
            records.push(Record::decode(&mut rest).map_err(|why| format!("a record cannot be read: {why}"))?);
        }
        if records.len() != draft.record_count as usize {
            return Err(format!("{} records are announced as {}", records.len(), draft.record_count));
        }
        let joined;
        let stored: &[u8] = match &draft.pieces[..] {
            [piece] => piece,
            pieces => {
                joined = pieces.concat();
                &joined
            }
        };
        let (mut bodies, mut overlays) = (Vec::with_capacity(draft.body_lengths.len()), Vec::new());
        let mut at_byte = 0;
        for length in &draft.body_lengths {
            let start = at_byte + BODY_PREFIX_BYTES;
            at_byte = start + *length as usize;
            let body = &stored[start..at_byte];
            if body.len() > SMALL_OVERLAY_BYTES
                && let Ok(overlay) = Overlay::decode(body)
            {
                overlays.push((first_body.0 + bodies.len() as u64, overlay));
            }
            bodies.push((hash_bytes(body), message_number(body)));
        }
        Ok(Appended {
            position: at.0,
            time: draft.time,
            records,
            hash: hash_bytes(&draft.records),
            first_body: first_body.0,
            bodies,
            overlays,
            has_failed: false,
        })
    }
}

impl Journal for Watched {
    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        if let Some((unknown, hash)) = self.unknown {
            if (unknown, hash) != (at, hash_bytes(&draft.records)) {
                self.shared.lock().fail(format!("batch {} was unknown, and another was written", unknown.0));
            }
            return self.write(draft, at, true);
        }
        self.appends += 1;
        let appended = Appended::read(draft, at, self.inner.next_body());
        // Noted before it is tried: a write that fails may still be found on the disk later.
        self.shared.lock().appended(appended);
        if self.plan.fenced_at == Some(self.appends) {
            let mut oracle = self.shared.lock();
            oracle.coverage.fault("fenced off");
            oracle.is_fenced = true;
            return Ok(Ticket::new(|| Outcome::Fenced));
        }
        let is_unknown = self.plan.unknown_in > 0 && self.appends.is_multiple_of(self.plan.unknown_in);
        if !is_unknown {
            return self.write(draft, at, true);
        }
        if self.appends.is_multiple_of(2) {
            self.shared.lock().coverage.fault("answer lost");
            return self.write(draft, at, false);
        }
        self.shared.lock().coverage.fault("request lost");
        self.unknown = Some((at, hash_bytes(&draft.records)));
        Ok(Ticket::new(|| Outcome::Unknown))
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error> {
        self.inner.fence(owner, epoch)
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn tail(&self) -> Position {
        self.inner.tail()
    }

    fn first(&self) -> Position {
        self.inner.first()
    }

    fn next_body(&self) -> BodyId {
        self.inner.next_body()
    }

    fn resolve(&mut self, at: Position) -> Result<Resolution, Error> {
        let is_there = self.inner.tail() == at;
        Ok(if is_there { Resolution::Committed } else { Resolution::Absent })
    }

    fn read(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.inner.read(from, each)
    }

    fn place(&self, body: BodyId) -> Option<Place> {
        self.inner.place(body)
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.inner.seal()
    }

    fn trim(&mut self, before: Position) -> Result<(), Error> {
        let first = self.inner.first();
        self.inner.trim(before)?;
        if self.inner.first() > first {
            self.shared.lock().coverage.fault("space given back");
        }
        Ok(())
    }

    fn stretches(&self) -> Vec<Stretch> {
        self.inner.stretches()
    }

    fn scrub(&self, after: Position) -> Option<Scrub> {
        self.inner.scrub(after)
    }

    fn has_reserve(&self) -> bool {
        self.inner.has_reserve()
    }

    fn refill_reserve(&mut self) -> Result<bool, Error> {
        self.inner.refill_reserve()
    }

    fn lacking_bytes(&self) -> u64 {
        self.inner.lacking_bytes()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.shared.lock().coverage.fault("snapshot taken");
        self.inner.snapshots()
    }

    fn space(&self) -> Result<Space, Error> {
        self.inner.space()
    }
}
