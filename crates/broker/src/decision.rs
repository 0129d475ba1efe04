//! What a decision produces: records to be made durable, the bodies they name, and effects to release afterwards.
//! The buffers are reused from command to command, so deciding about a message allocates nothing.

use crate::command::Intake;
use crate::effect::Effect;
use crate::ids::{BodyId, Position};
use crate::limits::SLICE_BYTES;
use crate::queue::doubt::Doubt;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{LocalTime, Time};
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
pub(crate) struct Deciding<'a> {
    pub(crate) now: LocalTime,
    pub(crate) position: Position,
    /// What an earlier answer asked for.
    pub(crate) material: Material<'a>,
    decision: &'a mut Decision,
}

impl<'a> Deciding<'a> {
    pub(crate) fn having(self, material: Material<'a>) -> Deciding<'a> {
        Deciding { material, ..self }
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

impl Deref for Deciding<'_> {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        self.decision
    }
}

impl DerefMut for Deciding<'_> {
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
    pub doubts: Vec<Doubt>,
    /// About how many bytes the records take, and how many steps publishing took. The engine decides in slices, and ends one above
    /// [`SLICE_BYTES`].
    pub weight: usize,
    /// What it was when the command that is being decided began.
    begun: usize,
    /// Records before this one stay as they are: they were looked at.
    seam: usize,
}

impl Decision {
    /// This decision, at the time of a namespace.
    pub(crate) fn at(&mut self, context: LocalContext) -> Deciding<'_> {
        let LocalContext { now, position } = context;
        Deciding { now, position, material: &[], decision: self }
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.bodies.clear();
        // Few commands make any, and what those have made may be much.
        self.made = Vec::new();
        self.effects.clear();
        self.doubts.clear();
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

/// What a decision must see before it can be made: stored bodies. The engine reads them and asks again
/// with the [`Material`]; the command is then decided afresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs(pub Vec<BodyId>);

/// Why a decision is not made now.
pub(crate) enum Hindrance {
    Refused(Refusal),
    Needs(Needs),
    Check(Needs),
}

impl From<Refusal> for Hindrance {
    fn from(refusal: Refusal) -> Hindrance {
        Hindrance::Refused(refusal)
    }
}

/// Stored bodies, read for one command.
pub type Material<'a> = &'a [(BodyId, &'a [u8])];

/// Whether a decision was made.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Decided {
    Done,
    Needs(Needs),
    /// As [`Decided::Needs`], but it is enough to know that they can be read: the material may be without content.
    Check(Needs),
}
