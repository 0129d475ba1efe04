//! The durable state as bytes: written beside the partition, read at the next start. Drawn in docs/format/snapshot.md.
//!
//! A snapshot is taken by sharing, so it costs the partition next to nothing; queues and chunks of messages are copied
//! when they change while it is being written. It is a run of frames, each a kind, a length and fields: a reader that
//! knows more fields takes missing ones as their defaults, a reader that knows fewer refuses.
//!
//! What must always hold: a body is alive exactly as long as a snapshot would name it. Everything that can lead to a
//! body is therefore written through `body` below, which tells whoever counts what is still needed on disk.

use crate::Broker;
use crate::durable::{Counts, Durable, Kind, Queue, fold};
use crate::effect::{Extra, Forwarded};
use crate::ids::{BodyId, EntityId, IdMap, MessageKey, NamespaceId, Number, Sequence};
use crate::limits::{BODY_PART_BYTES, SNAPSHOT_FRAME_BYTES};
use crate::queue::history::Noted;
use crate::queue::index::{CHUNK, Index, SLOT_NUMBERS, Slot};
use crate::record::{self, Fields, KeptLock, Record};
use crate::session::register::{SessionState, Sessions};
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span, Time};
use crate::topic::change::Change;
use message::planted::is_planted;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

/// The version of the layout. Newer ones are refused.
pub const FORMAT: u32 = 1;

pub(crate) mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const QUEUE: u8 = 2;
    /// Of the queue before it, like the next ones but `MANAGED`.
    pub(crate) const SETTINGS: u8 = 3;
    pub(crate) const SLOTS: u8 = 4;
    pub(crate) const EXTRA: u8 = 5;
    /// A topic, a subscription, a rule, a policy or the name of a namespace: a time and the record of a change.
    pub(crate) const MANAGED: u8 = 6;
    /// Of its dead-letter queue.
    pub(crate) const DEAD_SLOTS: u8 = 7;
    /// Message ids that it has taken, in order.
    pub(crate) const HISTORY: u8 = 8;
    /// Of the extra before it.
    pub(crate) const FORWARDED: u8 = 9;
    /// Messages of the queue and the sessions that they are in.
    pub(crate) const MEMBERS: u8 = 10;
    /// The state of a session.
    pub(crate) const SESSION_STATE: u8 = 11;
    /// Of its transfer dead-letter queue.
    pub(crate) const STRANDED_SLOTS: u8 = 12;
    /// The messages of a topic or a subscription that came before, as those of a queue; the next ones belong to it.
    pub(crate) const HELD: u8 = 20;
    pub(crate) const LOCKS: u8 = 99;
    pub(crate) const MOVED: u8 = 100;
    pub(crate) const END: u8 = 255;
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the snapshot has format {0}, this program knows {FORMAT}; use a newer program")]
    Newer(u32),
    #[error("frame of kind {0} is not known: the snapshot was written by a newer version")]
    UnknownKind(u8),
    #[error(transparent)]
    Field(#[from] record::Unreadable),
    #[error("the snapshot contradicts itself: {0}")]
    Wrong(&'static str),
}

/// A body that something still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The id that messages know.
    pub body: BodyId,
    /// The id under which the bytes lie.
    pub stored: BodyId,
    /// About how many bytes: a message in parts is taken to have equal ones.
    pub bytes: u64,
}

/// The durable state at one position, shared with the broker that goes on.
#[derive(Debug)]
pub struct Snapshot {
    entities: Vec<Option<Arc<Queue>>>,
    managed: Vec<(LocalTime, Change)>,
    next_body: BodyId,
    moved: Arc<IdMap<BodyId, BodyId>>,
    kept_locks: Arc<[KeptLock]>,
    /// Parts that no record names yet. Not written, but needed as long as their message may still be completed.
    pinned: Vec<BodyId>,
    /// Of the last batch that it contains.
    time: Time,
}

/// What is read back.
#[derive(Debug)]
pub struct Restored {
    pub durable: Durable,
    pub time: Time,
}

impl Broker {
    /// The state as it is now, whose newest batch has the time `time`.
    pub fn snapshot(&self, time: Time) -> Snapshot {
        Snapshot {
            entities: self.durable.entities.clone(),
            managed: self.durable.managed(),
            next_body: self.durable.next_body,
            moved: self.durable.moved.clone(),
            kept_locks: self.durable.kept_locks.clone(),
            pinned: self.volatile.pinned_bodies(),
            time,
        }
    }
}

impl Snapshot {
    /// Writes everything, and tells `named` of each body that is still needed, perhaps more than once. Returns the moved
    /// bodies that nothing needs any more: the snapshot leaves them out, and the broker may forget them.
    pub fn write(&self, out: &mut dyn io::Write, named: &mut dyn FnMut(Named)) -> io::Result<Vec<BodyId>> {
        let moved_in_use = BTreeMap::new();
        let mut writer = Writer { out, named, moved: &self.moved, moved_in_use, frame: Vec::new() };
        writer.frame(kind::HEAD, |fields| {
            fields.number(FORMAT.into());
            fields.number(self.entities.len() as u64);
            fields.number(self.next_body.0);
            fields.number(self.time.0 as u64);
        })?;
        let mut messages = 0;
        let entities = || {
            let known = self.entities.iter().enumerate();
            known.filter_map(|(entity, queue)| Some((EntityId(entity as u32), queue.as_ref()?)))
        };
        for (entity, queue) in entities().filter(|(_, queue)| queue.kind == Kind::Queue) {
            messages += write_queue(&mut writer, entity, queue)?;
        }
        for (time, change) in &self.managed {
            writer.frame(kind::MANAGED, |fields| {
                fields.number(time.0 as u64);
                Record::Managed(Box::new(change.clone())).encode(fields.frame);
            })?;
        }
        for (entity, queue) in entities().filter(|(_, queue)| queue.kind != Kind::Queue) {
            messages += write_queue(&mut writer, entity, queue)?;
        }
        for part in &self.pinned {
            writer.name(*part, BODY_PART_BYTES.into());
        }
        let in_use = std::mem::take(&mut writer.moved_in_use);
        let pairs: Vec<_> = in_use.iter().collect();
        for some in pairs.chunks(CHUNK as usize) {
            writer.frame(kind::MOVED, |fields| {
                for (body, copy) in some {
                    fields.number(body.0);
                    fields.number(copy.0);
                }
            })?;
        }
        for some in self.kept_locks.chunks(CHUNK as usize) {
            writer.frame(kind::LOCKS, |fields| record::put_locks(fields.frame, some))?;
        }
        writer.frame(kind::END, |fields| fields.number(messages))?;
        Ok(self.moved.keys().filter(|body| !in_use.contains_key(body)).copied().collect())
    }
}

/// Writes a queue and returns how many messages it holds. No `..` here: a new field must be written, or say why not.
fn write_queue(writer: &mut Writer<'_>, entity: EntityId, queue: &Queue) -> io::Result<u64> {
    let Queue {
        kind,
        namespace,
        path,
        settings,
        created,
        updated,
        // It follows from the id.
        partition: _,
        next,
        index,
        dead,
        stranded,
        extras,
        history,
        counts,
        bytes,
        sessions,
        // It is the sum of what the subscriptions have.
        below: _,
        lead,
    } = queue;
    // Of the transfer dead-letter queue the slots are counted as they are read.
    let Counts { active, deferred, scheduled, dead_letter, transfer_dead_letter: _ } = *counts;
    let counts = [active, deferred, scheduled, dead_letter, *bytes];
    if *kind == Kind::Queue {
        writer.frame(kind::QUEUE, |fields| {
            fields.number(entity.0.into());
            fields.number(namespace.0.into());
            fields.text(path);
            fields.number(created.0 as u64);
            fields.number(updated.0 as u64);
            fields.number(next.0);
            counts.into_iter().for_each(|number| fields.number(number));
        })?;
        writer.frame(kind::SETTINGS, |fields| record::put_settings(fields.frame, settings))?;
    } else {
        // Everything else follows from the topic or the subscription, which is written before.
        writer.frame(kind::HELD, |fields| {
            fields.number(entity.0.into());
            fields.number(next.0);
            counts.into_iter().for_each(|number| fields.number(number));
            fields.number(*lead);
        })?;
    }
    let mut count = write_slots(writer, kind::SLOTS, index, extras)?
        + write_slots(writer, kind::DEAD_SLOTS, dead, extras)?;
    if let Some(stranded) = stranded {
        count += write_slots(writer, kind::STRANDED_SLOTS, stranded, extras)?;
    }
    for (sequence, extra) in extras.iter() {
        let Extra { parts, overlay, time_to_live, forwarded } = &**extra;
        let length = queue.get(*sequence).map_or(0, |slot| slot.length);
        writer.frame(kind::EXTRA, |fields| {
            fields.number(sequence.0);
            fields.number(parts.len() as u64);
            let bytes = u64::from(length) / (parts.len() as u64 + 1);
            parts.iter().for_each(|part| fields.body(*part, bytes));
            // Zero is none; nobody lives for ever on his own account.
            fields.number(time_to_live.map_or(0, |span| span.0 + 1));
            fields.number(u64::from(overlay.is_some()));
            if let Some(overlay) = overlay {
                overlay.encode(fields.frame);
            }
        })?;
        if let Some(Forwarded { number, hops }) = forwarded {
            writer.frame(kind::FORWARDED, |fields| {
                fields.number(sequence.0);
                fields.number(number.0);
                fields.number((*hops).into());
            })?;
        }
    }
    if let Some(sessions) = sessions {
        write_sessions(writer, sessions)?;
    }
    for chunk in history.chunks() {
        writer.frame(kind::HISTORY, |fields| {
            for Noted { id, time } in chunk {
                fields.number(time.0 as u64);
                id.0.iter().for_each(|half| record::put_u64(fields.frame, *half));
            }
        })?;
    }
    Ok(count)
}

/// In each frame a session is written out where it first comes up, and named by its place in the frame from then on.
fn write_sessions(writer: &mut Writer<'_>, sessions: &Sessions) -> io::Result<()> {
    let mut members = sessions.members().peekable();
    while members.peek().is_some() {
        writer.frame(kind::MEMBERS, |fields| {
            let (mut before, mut known) = (0, BTreeMap::new());
            for (sequence, session) in members.by_ref().take(CHUNK as usize) {
                fields.number(sequence.0 - before);
                before = sequence.0;
                let next = known.len() as u64;
                let place = *known.entry(session).or_insert(next);
                fields.number(place);
                if place == next {
                    fields.text(session);
                }
            }
        })?;
    }
    for (session, state) in sessions.iter().filter_map(|(id, session)| Some((id, session.state?))) {
        writer.frame(kind::SESSION_STATE, |fields| {
            fields.text(session);
            fields.body(state.body, state.length.into());
            fields.number(state.length.into());
            fields.number(state.changed.0 as u64);
        })?;
    }
    Ok(())
}

fn read_members(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    let (mut sequence, mut known) = (0u64, Vec::<Arc<str>>::new());
    while !fields.rest.is_empty() {
        let step = fields.number()?;
        sequence = sequence.checked_add(step).ok_or(Error::Wrong("numbers do not rise"))?;
        let place = fields.number()? as usize;
        if place == known.len() {
            known.push(fields.text()?.into());
        }
        let session = known.get(place).ok_or(Error::Wrong("a session is not known"))?;
        let message = Sequence(sequence);
        let is_taken = queue.session_of(message).is_some() && !is_planted("snapshot");
        if queue.get(message).is_none() || is_taken {
            return Err(Error::Wrong("a session has a message that is not there"));
        }
        queue.join(message, session);
    }
    Ok(())
}

/// Writes the messages of one part of a queue and returns how many there are.
fn write_slots(
    writer: &mut Writer<'_>,
    kind: u8,
    part: &Index,
    extras: &IdMap<Sequence, Arc<Extra>>,
) -> io::Result<u64> {
    let mut messages = part.iter().peekable();
    let mut count = 0;
    while messages.peek().is_some() {
        writer.frame(kind, |fields| {
            let mut before = (Sequence(0), [0; SLOT_NUMBERS]);
            for (sequence, slot) in messages.by_ref().take(CHUNK as usize) {
                count += 1;
                fields.number(sequence.0 - before.0.0);
                let numbers = slot.to_numbers();
                let deltas = numbers.iter().zip(before.1).map(|(number, before)| number.wrapping_sub(before));
                deltas.for_each(|delta| fields.difference(delta as i64));
                let parts = extras.get(&sequence).map_or(0, |extra| extra.parts.len() as u64);
                fields.name(slot.body, u64::from(slot.length) / (parts + 1));
                before = (sequence, numbers);
            }
        })?;
    }
    Ok(count)
}

struct Writer<'a> {
    out: &'a mut dyn io::Write,
    named: &'a mut dyn FnMut(Named),
    moved: &'a IdMap<BodyId, BodyId>,
    /// Moved bodies that were named.
    moved_in_use: BTreeMap<BodyId, BodyId>,
    frame: Vec<u8>,
}

/// The fields of one frame.
struct Writing<'w> {
    frame: &'w mut Vec<u8>,
    names: &'w mut Vec<(BodyId, u64)>,
}

impl Writer<'_> {
    fn frame(&mut self, kind: u8, write: impl FnOnce(&mut Writing<'_>)) -> io::Result<()> {
        let (mut frame, mut names) = (std::mem::take(&mut self.frame), Vec::new());
        frame.clear();
        write(&mut Writing { frame: &mut frame, names: &mut names });
        self.out.write_all(&[kind])?;
        self.out.write_all(&(frame.len() as u32).to_le_bytes())?;
        self.out.write_all(&frame)?;
        self.frame = frame;
        names.into_iter().for_each(|(body, bytes)| self.name(body, bytes));
        Ok(())
    }

    fn name(&mut self, body: BodyId, bytes: u64) {
        let copy = self.moved.get(&body).copied();
        if let Some(copy) = copy {
            self.moved_in_use.insert(body, copy);
        }
        (self.named)(Named { body, stored: copy.unwrap_or(body), bytes });
    }
}

impl Writing<'_> {
    fn number(&mut self, number: u64) {
        record::put_number(self.frame, number);
    }

    fn difference(&mut self, difference: i64) {
        record::put_difference(self.frame, difference);
    }

    fn text(&mut self, text: &str) {
        record::put_text(self.frame, text);
    }

    fn body(&mut self, body: BodyId, bytes: u64) {
        self.number(body.0);
        self.name(body, bytes);
    }

    fn name(&mut self, body: BodyId, bytes: u64) {
        self.names.push((body, bytes));
    }
}

impl Fields<'_> {
    fn small(&mut self) -> Result<u32, record::Unreadable> {
        self.number()?.try_into().map_err(|_| record::Unreadable::BadField("a number is too large"))
    }
}

impl Restored {
    /// Reads a snapshot whole.
    pub fn read(input: &mut dyn io::Read) -> Result<Restored, Error> {
        let mut reader = Reader { input, frame: Vec::new() };
        let mut head = reader.next()?;
        if head.kind != kind::HEAD {
            return Err(Error::Wrong("it does not begin like one"));
        }
        let format = head.small()?;
        if format != FORMAT {
            return Err(Error::Newer(format));
        }
        let entities = head.small()?;
        let next_body = BodyId(head.number()?);
        let time = Time(head.number()? as i64);
        head.finish()?;
        let mut durable = Durable { next_body, ..Durable::new() };
        let mut moved = IdMap::default();
        let mut queue: Option<(EntityId, Queue)> = None;
        let mut kept_locks = Vec::new();
        let (mut messages, mut newest) = (0, [Sequence(0); 3]);
        loop {
            let mut fields = reader.next()?;
            let none_before = Error::Wrong("a frame belongs to no queue");
            match fields.kind {
                kind::QUEUE => {
                    durable.put(queue.take(), entities)?;
                    queue = Some(read_queue(&mut fields)?);
                    newest = [Sequence(0); 3];
                }
                kind::HELD => {
                    durable.put(queue.take(), entities)?;
                    queue = Some(read_held(&mut fields, &durable)?);
                    newest = [Sequence(0); 3];
                }
                kind::SETTINGS => {
                    let queue = &mut queue.as_mut().ok_or(none_before)?.1;
                    if queue.kind != Kind::Queue {
                        return Err(Error::Wrong("a topic or a subscription has the settings of a queue"));
                    }
                    queue.settings = fields.settings()?;
                }
                kind::SLOTS => {
                    let Queue { index, next, .. } = &mut queue.as_mut().ok_or(none_before)?.1;
                    let add = |sequence, slot| index.push(sequence, slot);
                    messages += read_slots(&mut fields, *next, &mut newest[0], add)?;
                }
                kind::DEAD_SLOTS => {
                    let Queue { dead, next, .. } = &mut queue.as_mut().ok_or(none_before)?.1;
                    let add = |sequence, slot| dead.insert(sequence, slot);
                    messages += read_slots(&mut fields, *next, &mut newest[1], add)?;
                }
                kind::STRANDED_SLOTS => {
                    let queue = &mut queue.as_mut().ok_or(none_before)?.1;
                    let stranded = queue.stranded.get_or_insert_default();
                    let add = |sequence, slot| stranded.push(sequence, slot);
                    let count = read_slots(&mut fields, queue.next, &mut newest[2], add)?;
                    queue.counts.transfer_dead_letter += count;
                    messages += count;
                }
                kind::HISTORY => {
                    let history = &mut queue.as_mut().ok_or(none_before)?.1.history;
                    while !fields.rest.is_empty() {
                        let time = LocalTime(fields.number()? as i64);
                        history.push(Noted { id: MessageKey([fields.u64()?, fields.u64()?]), time });
                    }
                }
                kind::FORWARDED => {
                    let extras = &mut queue.as_mut().ok_or(none_before)?.1.extras;
                    let sequence = Sequence(fields.number()?);
                    let number = Number(fields.number()?);
                    let hops =
                        u8::try_from(fields.number()?).map_err(|_| Error::Wrong("a way is too long"))?;
                    if !extras.contains_key(&sequence) {
                        return Err(Error::Wrong("nothing was forwarded"));
                    }
                    extras.edit(sequence, |extra| extra.forwarded = Some(Forwarded { number, hops }));
                }
                kind::MEMBERS => read_members(&mut fields, &mut queue.as_mut().ok_or(none_before)?.1)?,
                kind::SESSION_STATE => {
                    let sessions = &mut queue.as_mut().ok_or(none_before)?.1.sessions;
                    let session = fields.text()?.into();
                    let (body, length) = (BodyId(fields.number()?), fields.small()?);
                    let changed = LocalTime(fields.number()? as i64);
                    let state = Some(SessionState { body, length, changed });
                    sessions.get_or_insert_default().set_state(&session, state);
                }
                kind::LOCKS => kept_locks.extend(fields.locks()?),
                kind::EXTRA => read_extra(&mut fields, &mut queue.as_mut().ok_or(none_before)?.1)?,
                kind::MANAGED => {
                    durable.put(queue.take(), entities)?;
                    let time = LocalTime(fields.number()? as i64);
                    let is_taken = match Record::decode(&mut fields.rest)? {
                        Record::Managed(change) if is_counted(&change, entities) => {
                            durable.restore(&change, time)
                        }
                        _ => false,
                    };
                    if !is_taken {
                        return Err(Error::Wrong("a topic or what belongs to it makes no sense"));
                    }
                }
                kind::MOVED => {
                    while !fields.rest.is_empty() {
                        moved.insert(BodyId(fields.number()?), BodyId(fields.number()?));
                    }
                }
                kind::END => {
                    if fields.number()? != messages {
                        return Err(Error::Wrong("messages are missing"));
                    }
                    fields.finish()?;
                    break;
                }
                unknown => return Err(Error::UnknownKind(unknown)),
            }
            fields.finish()?;
        }
        durable.put(queue.take(), entities)?;
        durable.entities.resize(entities as usize, None);
        let held: Vec<_> = durable.queues().map(|(_, queue)| (queue.kind, queue.bytes)).collect();
        for (kind, bytes) in held {
            if let Kind::Subscription { topic } = kind {
                let below = &mut durable.queue_mut(topic).below;
                *below = below.checked_add(bytes).ok_or(Error::Wrong("messages are larger than any disk"))?;
            }
        }
        check_locks(&durable, &kept_locks)?;
        durable.moved = Arc::new(moved);
        durable.kept_locks = kept_locks.into();
        Ok(Restored { durable, time })
    }
}

impl Durable {
    fn put(&mut self, queue: Option<(EntityId, Queue)>, entities: u32) -> Result<(), Error> {
        let Some((entity, queue)) = queue else { return Ok(()) };
        if queue.kind != Kind::Queue {
            self.put_entity(entity, queue);
            return Ok(());
        }
        if entity.0 >= entities || (entity.0 as usize) < self.entities.len() {
            return Err(Error::Wrong("queues are not in order"));
        }
        let taken = self.names.insert((queue.namespace, fold(&queue.path)), entity);
        if taken.is_some() {
            return Err(Error::Wrong("a name is taken twice"));
        }
        self.entities.resize(entity.0 as usize, None);
        self.entities.push(Some(Arc::new(queue)));
        Ok(())
    }
}

/// Whether what a change creates is among the entities that the head has counted.
fn is_counted(change: &Change, entities: u32) -> bool {
    match change {
        Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } => {
            entity.0 < entities
        }
        _ => true,
    }
}

/// A message is locked once, where it is.
fn check_locks(durable: &Durable, locks: &[KeptLock]) -> Result<(), Error> {
    let mut known = HashSet::new();
    for KeptLock { source, token, .. } in locks {
        if durable.queue(source.entity).is_none() || !known.insert((*source, token.sequence())) {
            return Err(Error::Wrong("a lock is of no message, or comes twice"));
        }
    }
    Ok(())
}

fn read_queue(fields: &mut Fields<'_>) -> Result<(EntityId, Queue), Error> {
    let entity = EntityId(fields.small()?);
    let (namespace, path) = (NamespaceId(fields.small()?), fields.text()?);
    let created = LocalTime(fields.number()? as i64);
    let mut queue = Queue::empty(Kind::Queue, entity, namespace, path, QueueSettings::default(), created);
    queue.updated = LocalTime(fields.number()? as i64);
    read_counts(fields, &mut queue)?;
    Ok((entity, queue))
}

/// The messages of a topic or a subscription that was read before.
fn read_held(fields: &mut Fields<'_>, durable: &Durable) -> Result<(EntityId, Queue), Error> {
    let entity = EntityId(fields.small()?);
    let held = durable.queue(entity).filter(|queue| queue.kind != Kind::Queue);
    let mut queue = held.cloned().ok_or(Error::Wrong("messages belong to no topic or subscription"))?;
    if queue.parts().any(|part| part.iter().next().is_some()) {
        return Err(Error::Wrong("the messages of a topic or a subscription come twice"));
    }
    read_counts(fields, &mut queue)?;
    queue.lead = fields.number()?;
    Ok((entity, queue))
}

fn read_counts(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    queue.next = Sequence(fields.number()?);
    if queue.next == Sequence(0) {
        return Err(Error::Wrong("the first number of a queue is 1"));
    }
    queue.counts = Counts {
        active: fields.number()?,
        deferred: fields.number()?,
        scheduled: fields.number()?,
        dead_letter: fields.number()?,
        transfer_dead_letter: 0,
    };
    queue.bytes = fields.number()?;
    Ok(())
}

fn read_slots(
    fields: &mut Fields<'_>,
    next: Sequence,
    newest: &mut Sequence,
    mut add: impl FnMut(Sequence, Slot),
) -> Result<u64, Error> {
    let mut before = (Sequence(0), [0u64; SLOT_NUMBERS]);
    let mut count = 0;
    while !fields.rest.is_empty() {
        let step = fields.number()?;
        let sequence = before.0.0.checked_add(step).filter(|number| (newest.0 + 1..next.0).contains(number));
        let sequence = Sequence(sequence.ok_or(Error::Wrong("numbers do not rise, or were not given yet"))?);
        *newest = sequence;
        let mut numbers = before.1;
        for number in &mut numbers {
            *number = number.wrapping_add(fields.difference()? as u64);
        }
        let slot = Slot::from_numbers(numbers).ok_or(Error::Wrong("a message is none"))?;
        add(sequence, slot);
        count += 1;
        before = (sequence, numbers);
    }
    Ok(count)
}

fn read_extra(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    let sequence = Sequence(fields.number()?);
    let count = fields.number()?;
    if count > fields.rest.len() as u64 {
        return Err(Error::Wrong("a message has more parts than bytes"));
    }
    let parts = (0..count).map(|_| fields.number().map(BodyId)).collect::<Result<_, _>>()?;
    let time_to_live = fields.number()?.checked_sub(1).map(Span);
    let overlay = match fields.number()? {
        0 => None,
        _ => Some(fields.overlay()?.map_or_else(Default::default, |overlay| *overlay)),
    };
    queue.extras.insert(sequence, Arc::new(Extra { parts, overlay, time_to_live, forwarded: None }));
    Ok(())
}

struct Reader<'a> {
    input: &'a mut dyn io::Read,
    frame: Vec<u8>,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<Fields<'_>, Error> {
        let mut head = [0; 5];
        self.input.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > SNAPSHOT_FRAME_BYTES {
            return Err(Error::Wrong("a frame is longer than any that was written"));
        }
        self.frame.resize(length, 0);
        self.input.read_exact(&mut self.frame)?;
        Ok(Fields { kind, rest: &self.frame })
    }
}

/// What a snapshot names, each body once, by the id under which it lies.
pub fn stored_bodies(snapshot: &Snapshot) -> HashSet<BodyId> {
    let mut stored = HashSet::new();
    let written = snapshot.write(&mut io::sink(), &mut |named| {
        stored.insert(named.stored);
    });
    written.expect("a sink takes everything");
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Intake, Outcome};
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use message::overlay::Overlay;

    fn written(world: &World) -> Vec<u8> {
        let mut bytes = Vec::new();
        world.broker.snapshot(world.now).write(&mut bytes, &mut |_| {}).unwrap();
        bytes
    }

    /// Queues of many kinds: full, empty, deleted, with holes, parts, counts, changed properties, messages of every state
    /// and locks.
    fn world() -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", 3_000);
        let link = world.receiver("q", PeekLock, 1_100);
        for number in (1..=1_100).step_by(3) {
            let token = world.token(number);
            world.settle(link, number as u32, token, Outcome::Complete);
        }
        let mut overlay = Overlay::default();
        overlay.set("colour", &message::value::Value::from("red")).unwrap();
        let token = world.token(2);
        let abandon = Outcome::Abandon(Some(Box::new(overlay)));
        let _ = world.settle_raw(link, token, &abandon, &[(BodyId(2), &[])]);
        world.create("empty", QueueSettings { max_delivery_count: 3, ..QueueSettings::default() });
        world.create("gone", QueueSettings::default());
        world.delete("gone");
        world.create("Large", QueueSettings { user_metadata: Some("x".into()), ..QueueSettings::default() });
        let sender = world.sender("large");
        world.part(sender, 500);
        world.send(sender, 0, &[message(100)]);
        let dead = Outcome::DeadLetter(None);
        for (number, outcome) in [(5, Outcome::Defer(None)), (8, dead.clone()), (6, dead)] {
            let token = world.token(number);
            world.settle(link, 0, token, outcome);
        }
        let scheduled = world.local().after(Span::minutes(5));
        let time_to_live = Span::minutes(1);
        world.schedule("q", &[Incoming { scheduled, time_to_live, ..message(7) }]).unwrap();
        world.relocate(&[(BodyId(5), Intake { offset: 0, length: 10 })]);
        world.keep_locks();
        world
    }

    #[test]
    fn a_frame_or_a_count_that_claims_too_much_is_refused_before_it_is_believed() {
        let read = |length: usize| {
            let mut head = vec![1];
            head.extend_from_slice(&(length as u32).to_le_bytes());
            let mut input = io::Read::chain(&head[..], io::repeat(0));
            Reader { input: &mut input, frame: Vec::new() }.next().map(|fields| fields.rest.len())
        };
        assert!(matches!(read(SNAPSHOT_FRAME_BYTES), Ok(SNAPSHOT_FRAME_BYTES)));
        assert!(matches!(read(SNAPSHOT_FRAME_BYTES + 1), Err(Error::Wrong(_))));
        let mut world = World::with_queue("q");
        let queue = Arc::make_mut(world.broker.durable.entities[0].as_mut().unwrap());
        // Message 1 has nine parts, in four bytes.
        let refused = read_extra(&mut Fields { kind: 0, rest: &[1, 9, 1, 2, 3, 4] }, queue);
        assert!(matches!(refused, Err(Error::Wrong("a message has more parts than bytes"))));
    }

    #[test]
    fn what_is_written_is_read() {
        let world = world();
        let restored = Restored::read(&mut &written(&world)[..]).unwrap();
        assert_eq!(restored.time, world.now);
        let (before, after) = (world.broker.durable(), &restored.durable);
        assert_eq!(after.fingerprint(), before.fingerprint());
        assert_eq!((after.next_entity(), after.next_body()), (before.next_entity(), before.next_body()));
        assert_eq!(after.stored_as(BodyId(5)), BodyId(before.next_body().0 - 1));
        assert_eq!(after.queue(EntityId(0)).unwrap().extras, before.queue(EntityId(0)).unwrap().extras);
        assert!(
            after.find(NamespaceId(0), "LARGE").is_some() && after.find(NamespaceId(0), "gone").is_none()
        );
    }

    #[test]
    fn a_snapshot_keeps_the_state_of_its_moment() {
        let mut world = world();
        let (snapshot, bytes) = (world.broker.snapshot(world.now), written(&world));
        world.send_committed("q", 10);
        world.delete("empty");
        let mut later = Vec::new();
        snapshot.write(&mut later, &mut |_| {}).unwrap();
        assert!(later == bytes);
    }

    #[test]
    fn a_snapshot_cut_anywhere_or_of_a_newer_format_is_refused() {
        let bytes = written(&world());
        for cut in (0..bytes.len()).step_by(7) {
            assert!(Restored::read(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut newer = bytes;
        newer[5] = 2;
        assert!(matches!(Restored::read(&mut &newer[..]), Err(Error::Newer(2))));
    }

    #[test]
    fn only_what_is_needed_is_named() {
        let mut world = world();
        let stored = stored_bodies(&world.broker.snapshot(world.now));
        assert!(!stored.contains(&BodyId(1)), "completed");
        assert!(!stored.contains(&BodyId(5)), "moved");
        assert!(stored.contains(&world.broker.durable().stored_as(BodyId(5))));
        assert!(stored.contains(&BodyId(2)) && stored.contains(&BodyId(3_000)));
        let sender = world.sender("q");
        let part = world.broker.durable().next_body();
        world.part(sender, 10);
        let with_part = stored_bodies(&world.broker.snapshot(world.now));
        assert_eq!(with_part.len(), stored.len() + 1);
        assert!(with_part.contains(&part), "a message that is still arriving needs its parts");
        world.drop_parts(sender);
        assert_eq!(stored_bodies(&world.broker.snapshot(world.now)), stored);
    }

    #[test]
    fn ids_that_were_taken_and_ways_that_were_gone_are_kept() {
        // S-36, S-164
        let mut world = World::with_queue("b");
        let forward_to = Some("b".into());
        world.create(
            "a",
            QueueSettings { requires_duplicate_detection: true, forward_to, ..QueueSettings::default() },
        );
        let link = world.sender("a");
        for id in 1..=600 {
            world.pass(Span(1));
            world.send(link, 0, &[Incoming { id: MessageKey([id, 9]), ..message(1) }]);
        }
        let restored = Restored::read(&mut &written(&world)[..]).unwrap().durable;
        let (before, after) = (world.broker.durable(), &restored);
        assert_eq!(after.fingerprint(), before.fingerprint());
        assert_eq!(after.queue(EntityId(1)).unwrap().history, before.queue(EntityId(1)).unwrap().history);
        assert_eq!(after.queue(EntityId(0)).unwrap().extras, before.queue(EntityId(0)).unwrap().extras);
        assert_eq!(after.queue(EntityId(0)).unwrap().extras.len(), 600);
    }

    #[test]
    fn a_moved_body_that_nobody_needs_is_forgotten() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        for body in [1, 2] {
            world.relocate(&[(BodyId(body), Intake { offset: 0, length: 10 })]);
        }
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Complete);
        let forgotten = world.broker.snapshot(world.now).write(&mut io::sink(), &mut |_| {}).unwrap();
        assert_eq!(forgotten, [BodyId(1)]);
        let restored = Restored::read(&mut &written(&world)[..]).unwrap();
        assert_eq!(restored.durable.moved.len(), 1);
        world.broker.forget_moved(&forgotten);
        assert_eq!(world.broker.durable().fingerprint(), restored.durable.fingerprint());
    }

    #[test]
    fn a_message_takes_few_bytes() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 10_000);
        let bytes = written(&world).len();
        assert!(bytes < 80_000, "{bytes} bytes for 10,000 messages");
    }
}
