//! A journal at a distance, in memory: requests and answers travel, and the holder of the [`Wire`] says when each arrives, in
//! what order, or never. What a distributed log does to its writer, without the luck that it takes to see it.
//!
//! What must always hold, and what the log needs for it:
//! - An append that arrives twice is there once: the log knows the batch at its position by its bytes.
//! - An append of an owner that is over is refused whenever it arrives: the log compares epochs.
//! - An append that was resolved as absent never arrives: resolving bars every request that was sent before it.

use crate::draft::Draft;
use crate::error::Error;
use crate::journal::{
    Batch, BodyId, Description, Epoch, Journal, Position, Resolution, Snapshots, Space, Stretch,
};
use crate::local::Scrub;
use crate::memory::{InMemory, Link, Log, Stored};
use crate::place::Place;
use crate::ticket::{Answer, Outcome, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of a request; a later one has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId(pub u64);

/// How the log has answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is part of the journal, by now or before.
    Committed,
    /// Its owner is over.
    Fenced,
    /// Its position was resolved as absent, or taken by another batch.
    Barred,
}

/// Whatever travels between writers and their log. Clones are the same wire.
#[derive(Debug, Clone, Default)]
pub struct Wire {
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Debug, Default)]
struct Traffic {
    last: RequestId,
    requests: BTreeMap<RequestId, Request>,
    /// Requests do not arrive, nor are they answered, as soon as they are sent.
    is_held: bool,
}

/// An append on its way, or its answer on the way back.
#[derive(Debug)]
struct Request {
    log: Log,
    epoch: Epoch,
    stored: Arc<Stored>,
    /// What the log said, once it has arrived.
    arrival: Option<Arrival>,
    /// Gone once the writer was told something.
    answer: Option<(Answer, Arc<Mutex<Told>>)>,
}

/// What the writer knows about its last append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Told {
    #[default]
    Nothing,
    Committed,
    Unknown,
    Fenced,
}

impl Wire {
    /// With `is_held` nothing arrives from now on before somebody says so; otherwise, as at first, everything does at once.
    pub fn hold(&self, is_held: bool) {
        self.lock().is_held = is_held;
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that may still arrive, or whose answer may, oldest first.
    pub fn requests(&self) -> Vec<RequestId> {
        self.lock().requests.keys().copied().collect()
    }

    /// The request arrives at the log. It may do so again, as where a connection repeats it.
    pub fn arrive(&self, id: RequestId) -> Arrival {
        let mut traffic = self.lock();
        let request = traffic.requests.get_mut(&id).expect("the request is on its way");
        let arrival = request.log.accept(request.epoch, id, &request.stored);
        request.arrival.get_or_insert(arrival);
        arrival
    }

    /// The answer of the log, to which the request has come, arrives at the writer.
    pub fn answer(&self, id: RequestId) {
        let mut traffic = self.lock();
        let request = traffic.requests.get_mut(&id).expect("the request is on its way");
        let told = match request.arrival.expect("the log answers what has arrived") {
            Arrival::Committed => Told::Committed,
            Arrival::Fenced => Told::Fenced,
            Arrival::Barred => Told::Unknown,
        };
        let answer = request.answer.take();
        drop(traffic);
        tell(answer, told);
    }

    /// The writer has waited long enough. The request may arrive all the same, and late.
    pub fn give_up(&self, id: RequestId) {
        let answer = self.lock().requests.get_mut(&id).expect("the request is on its way").answer.take();
        tell(answer, Told::Unknown);
    }

    /// Whatever is left of the request never arrives; the writer, if it still waits, learns nothing.
    pub fn lose(&self, id: RequestId) {
        let request = self.lock().requests.remove(&id).expect("the request is on its way");
        tell(request.answer, Told::Unknown);
    }

    fn send(&self, log: &Log, epoch: Epoch, stored: Arc<Stored>, told: Arc<Mutex<Told>>) -> Ticket {
        let (ticket, answer) = Ticket::answered();
        let mut traffic = self.lock();
        traffic.last.0 += 1;
        let id = traffic.last;
        let answer = Some((answer, told));
        traffic.requests.insert(id, Request { log: log.clone(), epoch, stored, arrival: None, answer });
        let is_held = traffic.is_held;
        drop(traffic);
        if !is_held {
            self.arrive(id);
            self.answer(id);
            self.lock().requests.remove(&id);
        }
        ticket
    }

    /// The last request that was sent.
    fn last(&self) -> RequestId {
        self.lock().last
    }
}

/// Outside of the wire's lock: the one that is told may send the next request.
fn tell(answer: Option<(Answer, Arc<Mutex<Told>>)>, told: Told) {
    let Some((answer, known)) = answer else { return };
    *known.lock().unwrap_or_else(PoisonError::into_inner) = told;
    match told {
        Told::Committed => answer.tell(Outcome::Committed),
        Told::Fenced => answer.tell(Outcome::Fenced),
        Told::Unknown | Told::Nothing => answer.tell(Outcome::Unknown),
    }
}

/// A writer at a distance from its log. Everything but appends travels at once.
#[derive(Debug)]
pub struct Distant {
    inner: InMemory,
    wire: Wire,
    last: Option<Sent>,
}

/// The last append.
#[derive(Debug)]
struct Sent {
    /// The tail before it and behind it.
    before: Link,
    behind: Link,
    stored: Arc<Stored>,
    told: Arc<Mutex<Told>>,
}

impl Sent {
    fn told(&self) -> Told {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Distant {
    pub fn open(log: &Log, wire: &Wire) -> Result<Distant, Error> {
        Ok(Distant { inner: log.open()?, wire: wire.clone(), last: None })
    }

    /// The tail as far as the writer can know it: what may not be there is not.
    fn link(&self) -> Link {
        match &self.last {
            Some(sent) if matches!(sent.told(), Told::Unknown | Told::Fenced) => sent.before,
            Some(sent) => sent.behind,
            None => self.inner.link,
        }
    }

    /// The append whose outcome was told to be unknown.
    fn take_unknown(&mut self) -> Option<Sent> {
        self.last.take_if(|sent| sent.told() == Told::Unknown)
    }

    /// Everything that asks about the tail asks about this one.
    fn settle_link(&mut self) {
        assert!(
            self.last.as_ref().is_none_or(|sent| sent.told() != Told::Nothing),
            "an append is in flight: wait for its ticket first"
        );
        self.inner.link = self.link();
        self.last = None;
    }
}

impl Journal for Distant {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn fence(&mut self, owner: u64, epoch: Epoch) -> Result<Position, Error> {
        self.settle_link();
        self.inner.fence(owner, epoch)
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn tail(&self) -> Position {
        self.link().position
    }

    fn first(&self) -> Position {
        self.inner.first()
    }

    fn next_body(&self) -> BodyId {
        self.link().body
    }

    fn append(&mut self, draft: &Draft, at: Position) -> Result<Ticket, Error> {
        if let Some(sent) = self.take_unknown() {
            let (stored, _) = self.inner.encode(draft, at, sent.before)?;
            assert!(
                stored.bytes == sent.stored.bytes,
                "after an unknown outcome only the identical append may follow"
            );
            self.inner.link = sent.before;
        }
        self.settle_link();
        let before = self.inner.link;
        let (stored, behind) = self.inner.encode(draft, at, before)?;
        let (stored, told) = (Arc::new(stored), Arc::default());
        self.last = Some(Sent { before, behind, stored: stored.clone(), told: Arc::clone(&told) });
        Ok(self.wire.send(&self.inner.log, self.inner.epoch, stored, told))
    }

    fn resolve(&mut self, at: Position) -> Result<Resolution, Error> {
        self.inner.log.bar(self.inner.epoch, self.wire.last());
        let resolution = self.inner.resolve(at)?;
        if let Some(sent) = self.take_unknown() {
            self.inner.link = if resolution == Resolution::Committed { sent.behind } else { sent.before };
        }
        Ok(resolution)
    }

    fn read(
        &self,
        from: Position,
        each: &mut dyn FnMut(Batch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match &self.last {
            // What is on its way is read where it was made.
            Some(sent) if self.link() == sent.behind => {
                let link = self.inner.read_up_to(sent.before.position, from, each)?;
                let visit = |batch: Batch<'_>| if batch.position >= from { each(batch) } else { Ok(()) };
                sent.stored.check(link, visit).map(drop)
            }
            _ => self.inner.read_up_to(self.link().position, from, each).map(drop),
        }
    }

    fn place(&self, body: BodyId) -> Option<Place> {
        match &self.last {
            Some(sent) if body >= sent.before.body && body < self.link().body => {
                Some(Place::new(sent.stored.clone(), body))
            }
            _ => self.inner.place_before(self.link().body, body),
        }
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.settle_link();
        self.inner.seal()
    }

    fn trim(&mut self, before: Position) -> Result<(), Error> {
        self.inner.trim(before)
    }

    fn stretches(&self) -> Vec<Stretch> {
        self.inner.stretches_to(self.link())
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

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.inner.snapshots()
    }

    fn space(&self) -> Result<Space, Error> {
        self.inner.space()
    }
}
