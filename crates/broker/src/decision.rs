//! What a decision produces: records to be made durable, the bodies they name, and effects to release afterwards.
//! The buffers are reused from command to command, so deciding about a message allocates nothing.

use crate::command::Intake;
use crate::effect::{Answer, Effect};
use crate::ids::{BodyId, Position};
use crate::limits::SLICE_BYTES;
use crate::queue::read_request::ReadRequest;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{LocalTime, Time};
use message::sections::{section, sections};
use std::ops::{Deref, DerefMut};

/// When and where a decision takes place, as the engine knows it: in the owner's time.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    pub now: Time,
    /// The batch that the records of this decision will be part of.
    pub position: Position,
}

/// The same in one namespace, in its own time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalContext {
    pub(crate) now: LocalTime,
    pub(crate) position: Position,
}

/// A decision that is being made in one namespace: all that a verb needs besides what it was asked. Records and effects go
/// through it to the [`Decision`] of the engine.
#[derive(Debug)]
pub(crate) struct LocalDecision<'a> {
    pub(crate) now: LocalTime,
    pub(crate) position: Position,
    /// What an earlier answer asked for.
    pub(crate) material: &'a Material,
    decision: &'a mut Decision,
}

impl<'a> LocalDecision<'a> {
    pub(crate) fn having(self, material: &'a Material) -> LocalDecision<'a> {
        LocalDecision { material, ..self }
    }

    pub(crate) fn context(&self) -> LocalContext {
        LocalContext { now: self.now, position: self.position }
    }

    pub(crate) fn record(&mut self, record: Record) {
        self.decision.record(record);
    }

    pub(crate) fn effect(&mut self, effect: impl Into<Effect>) {
        self.decision.effect(effect);
    }

    pub(crate) fn free_effect(&mut self, effect: impl Into<Effect>) {
        self.decision.free_effect(effect);
    }
}

impl Deref for LocalDecision<'_> {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        self.decision
    }
}

impl DerefMut for LocalDecision<'_> {
    fn deref_mut(&mut self) -> &mut Decision {
        self.decision
    }
}

impl Context {
    pub(crate) fn at(self, now: LocalTime) -> LocalContext {
        LocalContext { now, position: self.position }
    }
}

/// An effect and the condition on which it may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// It rests on committed facts alone and need not wait for what was decided since.
    pub is_free: bool,
    pub effect: Effect,
}

/// A body to store, and where its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// In the buffer of the batch that brought it.
    Arrived(Intake),
    /// In [`Decision::made`].
    Made(Intake),
}

#[derive(Debug, Default)]
pub struct Decision {
    pub records: Vec<Record>,
    /// Bodies to store, in the order of their ids.
    pub bodies: Vec<Body>,
    /// What those are made of that did not arrive.
    pub made: Vec<u8>,
    pub effects: Vec<Release>,
    /// Messages to be read before they can be removed; the engine takes them.
    pub read_requests: Vec<ReadRequest>,
    /// Bytes of records, and steps of publishing, each counted as one. The engine decides in slices, and ends one above
    /// [`SLICE_BYTES`].
    pub weight: usize,
    /// What it was when the command that is being decided began.
    begun: usize,
    /// Records before this one stay as they are: they were looked at.
    seam: usize,
}

impl Decision {
    /// This decision, at the time of a namespace.
    pub(crate) fn at(&mut self, context: LocalContext) -> LocalDecision<'_> {
        let LocalContext { now, position } = context;
        LocalDecision { now, position, material: Material::NONE, decision: self }
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.bodies.clear();
        // Few commands make any, and what those have made may be much.
        self.made = Vec::new();
        self.effects.clear();
        self.read_requests.clear();
        self.weight = 0;
        self.begun = 0;
        self.seam = 0;
    }

    /// What is recorded from now on is told apart from what was before. Returns where it begins.
    pub(crate) fn seam(&mut self) -> usize {
        self.seam = self.records.len();
        self.seam
    }

    /// Another command is decided.
    pub(crate) fn begin(&mut self) {
        self.begun = self.weight;
    }

    /// What the command that is being decided has come to so far.
    pub(crate) fn command_weight(&self) -> usize {
        self.weight - self.begun
    }

    /// Whether so much is recorded that what is left waits for the next decision: all of one is one append.
    pub(crate) fn is_long(&self) -> bool {
        self.weight >= SLICE_BYTES
    }

    /// Adds a record that has been applied. Removals that continue each other become one.
    pub(crate) fn record(&mut self, record: Record) {
        self.weight += record.weight();
        let is_seam = self.seam == self.records.len();
        if let (
            Record::Removed { entity, first, count },
            Some(Record::Removed { entity: e, first: f, count: c }),
        ) = (&record, self.records.last_mut())
            && e == entity
            && f.0 + u64::from(*c) == first.0
            && !is_seam
        {
            *c += count;
            return;
        }
        self.records.push(record);
    }

    /// Adds a body that has arrived.
    pub(crate) fn body(&mut self, body: Intake) {
        self.bodies.push(Body::Arrived(body));
    }

    /// Adds a body that did not arrive: `write` makes it. Returns how long it is.
    pub(crate) fn make_body(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let offset = self.made.len();
        write(&mut self.made);
        let length = self.made.len() - offset;
        self.bodies.push(Body::Made(Intake { offset: offset as u32, length: length as u32 }));
        self.weight += length;
        length as u32
    }

    /// Adds an effect that waits for everything decided so far.
    pub(crate) fn effect(&mut self, effect: impl Into<Effect>) {
        self.effects.push(Release { is_free: false, effect: effect.into() });
    }

    /// Adds an effect that rests on what is committed already.
    pub(crate) fn free_effect(&mut self, effect: impl Into<Effect>) {
        self.effects.push(Release { is_free: true, effect: effect.into() });
    }
}

/// What a decision must know of what is stored before it can be made. The engine finds it out and asks again with the
/// [`Material`]; the command is then decided afresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs(pub Vec<Need>);

/// What must be known of one stored body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    pub body: BodyId,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// That it can be read.
    IsReadable,
    /// How long the sections before the body of a message are.
    PropertiesBytes,
    /// All of it, which is so long: changed properties.
    Content(u32),
}

impl Need {
    /// What the answer holds.
    pub fn found_bytes(&self) -> usize {
        let content = if let What::Content(length) = self.what { length as usize } else { 0 };
        size_of::<(BodyId, Found)>() + content
    }

    pub fn is_readable(body: BodyId) -> Need {
        Need { body, what: What::IsReadable }
    }

    /// What is to be known of the body, when it was read. The rest of it is not held for the decision: a command may ask about
    /// thousands of messages.
    pub fn found(self, bytes: &[u8]) -> (BodyId, Found) {
        let found = match self.what {
            What::IsReadable => Found::Readable,
            What::PropertiesBytes => Found::PropertiesBytes(properties_bytes(bytes)),
            What::Content(_) => Found::Content(bytes.into()),
        };
        (self.body, found)
    }
}

/// What a [`Need`] asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Readable,
    PropertiesBytes(usize),
    Content(Box<[u8]>),
}

/// Bytes of the sections before the body. What follows may be cut off: a large message is stored in parts.
fn properties_bytes(stored: &[u8]) -> usize {
    let sections = sections(stored).map_while(Result::ok);
    sections.take_while(|each| each.code < section::DATA).map(|each| each.span.range().len()).sum()
}

/// Why a decision is not made now.
pub(crate) enum Hindrance {
    Refused(Refusal),
    Needs(Needs),
}

impl Hindrance {
    /// The refusal; or, as an error, that something is to be read before anything is decided.
    pub(crate) fn refusal(self) -> Result<Refusal, Decided> {
        match self {
            Hindrance::Refused(refusal) => Ok(refusal),
            Hindrance::Needs(needs) => Err(Decided::Needs(needs)),
        }
    }
}

/// What is told to who asked; or, as an error, that something is to be read before anything is decided.
pub(crate) fn told(answer: Result<Answer, Hindrance>) -> Result<Result<Answer, Refusal>, Decided> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(hindrance) => hindrance.refusal().map(Err),
    }
}

impl From<Refusal> for Hindrance {
    fn from(refusal: Refusal) -> Hindrance {
        Hindrance::Refused(refusal)
    }
}

/// What was found out for one command, in the order of the bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material(Vec<(BodyId, Found)>);

impl Material {
    /// Nothing was asked for yet.
    pub const NONE: &'static Material = &Material(Vec::new());

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, body: BodyId) -> Option<&Found> {
        self.0.binary_search_by_key(&body, |(body, _)| *body).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn is_readable(&self, body: BodyId) -> bool {
        self.get(body).is_some()
    }

    pub(crate) fn properties_bytes(&self, body: BodyId) -> Option<usize> {
        match self.get(body)? {
            Found::PropertiesBytes(bytes) => Some(*bytes),
            Found::Readable | Found::Content(_) => None,
        }
    }

    pub(crate) fn content(&self, body: BodyId) -> Option<&[u8]> {
        match self.get(body)? {
            Found::Content(bytes) => Some(bytes),
            Found::Readable | Found::PropertiesBytes(_) => None,
        }
    }
}

impl FromIterator<(BodyId, Found)> for Material {
    fn from_iter<T: IntoIterator<Item = (BodyId, Found)>>(found: T) -> Material {
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(body, _)| *body);
        Material(found)
    }
}

/// Whether a decision was made.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Decided {
    Done,
    Needs(Needs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::Value;
    use message::codec::write_descriptor;

    #[test]
    fn of_what_is_read_a_decision_holds_what_it_asked_for() {
        // P7
        let mut stored = Vec::new();
        write_descriptor(&mut stored, section::APPLICATION_PROPERTIES.into());
        Value::Map(vec![("a".into(), Value::Binary(vec![7; 1_000]))]).encode(&mut stored);
        let front = stored.len();
        write_descriptor(&mut stored, section::DATA.into());
        Value::Binary(vec![7; 200_000]).encode(&mut stored);
        let need = |body, what| Need { body: BodyId(body), what };
        let needs = [
            need(9, What::PropertiesBytes),
            need(2, What::Content(stored.len() as u32)),
            need(5, What::IsReadable),
        ];
        let material: Material = needs.iter().map(|need| need.found(&stored)).collect();
        assert_eq!(material.properties_bytes(BodyId(9)), Some(front));
        assert_eq!(material.content(BodyId(2)), Some(&stored[..]));
        assert!([2, 5, 9].iter().all(|body| material.is_readable(BodyId(*body))));
        assert_eq!((material.content(BodyId(5)), material.properties_bytes(BodyId(2))), (None, None));
        assert!(!material.is_readable(BodyId(3)));
        let told: Vec<_> = needs.iter().map(|need| need.found_bytes()).collect();
        let own = size_of::<(BodyId, Found)>();
        assert_eq!(told, [own, own + stored.len(), own]);
    }
}
