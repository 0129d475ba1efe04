//! Reading a snapshot, none of which is believed before it was looked at.

use super::{Error, FORMAT, Restored, kind};
use crate::durable::{Counts, Durable, Kind, Queue, Restoring};
use crate::effect::{Extra, Forwarded, StoredOverlay};
use crate::ids::{BodyId, EntityId, IdMap, NamespaceId, Number, Sequence};
use crate::limits::SNAPSHOT_FRAME_BYTES;
use crate::queue::history::Noted;
use crate::queue::index::{SLOT_NUMBERS, Slot};
use crate::record::{self, Field, Fields, KeptLock, Record};
use crate::session::register::SessionState;
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span, Time};
use message::overlay::Overlay;
use message::planted::is_planted;
use std::io;
use std::sync::Arc;

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
        let mut reading = Reading::new(Restoring::new(entities, next_body));
        loop {
            let mut fields = reader.next()?;
            if fields.kind == kind::END {
                let durable = reading.end(&mut fields)?;
                return Ok(Restored { durable, time });
            }
            reading.frame(&mut fields)?;
            fields.finish()?;
        }
    }
}

/// A snapshot of which some frames were read.
struct Reading {
    restoring: Restoring,
    /// The queue that the next frames belong to, until another begins.
    queue: Option<(EntityId, Queue)>,
    /// The newest message of each of its indexes.
    newest: [Sequence; 3],
    messages: u64,
    relocated: IdMap<BodyId, BodyId>,
    kept_locks: Vec<KeptLock>,
}

impl Reading {
    fn new(restoring: Restoring) -> Reading {
        let (relocated, kept_locks) = (IdMap::default(), Vec::new());
        Reading { restoring, queue: None, newest: Default::default(), messages: 0, relocated, kept_locks }
    }

    fn frame(&mut self, fields: &mut Fields<'_>) -> Result<(), Error> {
        match fields.kind {
            kind::QUEUE => {
                self.end_queue()?;
                self.queue = Some(read_queue(fields)?);
            }
            kind::HELD => {
                self.end_queue()?;
                self.queue = Some(read_held(fields, &self.restoring)?);
            }
            kind::MANAGED => {
                self.end_queue()?;
                let time = LocalTime(fields.number()? as i64);
                let Record::Managed(change) = Record::decode(&mut fields.rest)? else {
                    return Err(Error::Wrong("a record is none of a change"));
                };
                self.restoring.change(&change, time).map_err(Error::Wrong)?;
            }
            kind::LOCKS => self.kept_locks.extend(<Box<[KeptLock]>>::get(fields)?),
            kind::RELOCATED => {
                while !fields.rest.is_empty() {
                    self.relocated.insert(BodyId(fields.number()?), BodyId(fields.number()?));
                }
            }
            kind::SETTINGS
            | kind::SLOTS
            | kind::DEAD_SLOTS
            | kind::TRANSFER_DEAD_SLOTS
            | kind::EXTRA
            | kind::STORED_OVERLAY
            | kind::FORWARDED
            | kind::HISTORY
            | kind::MEMBERS
            | kind::SESSION_STATE => self.frame_of_queue(fields)?,
            unknown => return Err(Error::UnknownKind(unknown)),
        }
        Ok(())
    }

    fn frame_of_queue(&mut self, fields: &mut Fields<'_>) -> Result<(), Error> {
        let queue = self.queue.as_mut().map(|(_, queue)| queue);
        let queue = queue.ok_or(Error::Wrong("a frame belongs to no queue"))?;
        let newest = &mut self.newest;
        match fields.kind {
            kind::SETTINGS if queue.kind != Kind::Queue => {
                return Err(Error::Wrong("a topic or a subscription has the settings of a queue"));
            }
            kind::SETTINGS => queue.settings = Field::get(fields)?,
            kind::SLOTS => {
                let add = |sequence, slot| queue.index.push(sequence, slot);
                self.messages += read_slots(fields, queue.next, &mut newest[0], add)?;
            }
            kind::DEAD_SLOTS => {
                let add = |sequence, slot| queue.dead.insert(sequence, slot);
                self.messages += read_slots(fields, queue.next, &mut newest[1], add)?;
            }
            kind::TRANSFER_DEAD_SLOTS => {
                let transfer_dead = queue.transfer_dead.get_or_insert_default();
                let add = |sequence, slot| transfer_dead.push(sequence, slot);
                let count = read_slots(fields, queue.next, &mut newest[2], add)?;
                queue.counts.transfer_dead_letter += count;
                self.messages += count;
            }
            kind::HISTORY => {
                while !fields.rest.is_empty() {
                    let time = LocalTime(fields.number()? as i64);
                    queue.history.push(Noted { id: Field::get(fields)?, time });
                }
            }
            kind::EXTRA => read_extra(fields, queue)?,
            kind::STORED_OVERLAY => read_stored_overlay(fields, queue)?,
            kind::FORWARDED => read_forwarded(fields, queue)?,
            kind::MEMBERS => read_members(fields, queue)?,
            kind::SESSION_STATE => {
                let session = Field::get(fields)?;
                let (body, length) = (BodyId(fields.number()?), fields.small()?);
                let changed = LocalTime(fields.number()? as i64);
                let state = Some(SessionState { body, length, changed });
                queue.sessions.get_or_insert_default().set_state(&session, state);
            }
            other => unreachable!("frame {other} is none of a queue"),
        }
        Ok(())
    }

    /// All frames of a queue were read.
    fn end_queue(&mut self) -> Result<(), Error> {
        self.newest = Default::default();
        let Some((entity, queue)) = self.queue.take() else { return Ok(()) };
        self.restoring.put(entity, queue).map_err(Error::Wrong)
    }

    fn end(mut self, fields: &mut Fields<'_>) -> Result<Durable, Error> {
        if fields.number()? != self.messages {
            return Err(Error::Wrong("messages are missing"));
        }
        fields.finish()?;
        self.end_queue()?;
        self.restoring.finish(self.relocated, self.kept_locks).map_err(Error::Wrong)
    }
}

fn read_queue(fields: &mut Fields<'_>) -> Result<(EntityId, Queue), Error> {
    let entity = EntityId(fields.small()?);
    let (namespace, path) = (NamespaceId(fields.small()?), Field::get(fields)?);
    let created = LocalTime(fields.number()? as i64);
    let mut queue = Queue::empty(Kind::Queue, entity, namespace, path, QueueSettings::default(), created);
    queue.updated = LocalTime(fields.number()? as i64);
    read_counts(fields, &mut queue)?;
    Ok((entity, queue))
}

/// The messages of a topic or a subscription that was read before.
fn read_held(fields: &mut Fields<'_>, restoring: &Restoring) -> Result<(EntityId, Queue), Error> {
    let entity = EntityId(fields.small()?);
    let mut queue = restoring.held(entity).map_err(Error::Wrong)?;
    read_counts(fields, &mut queue)?;
    queue.number_offset = fields.number()?;
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
    if count == 0 {
        return Err(Error::Wrong("messages are told of, and there are none"));
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
        _ => Some(<Option<Box<Overlay>>>::get(fields)?.map_or_else(Default::default, |overlay| *overlay)),
    };
    queue.extras.insert(sequence, Arc::new(Extra { parts, overlay, time_to_live, ..Extra::default() }));
    Ok(())
}

fn read_stored_overlay(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    let sequence = Sequence(fields.number()?);
    let stored = StoredOverlay { body: BodyId(fields.number()?), length: fields.small()? };
    if queue.extras.get(&sequence).is_none_or(|extra| extra.overlay.is_some()) {
        return Err(Error::Wrong("changed properties belong to no message, or come twice"));
    }
    queue.extras.edit(sequence, |extra| extra.stored_overlay = Some(stored));
    Ok(())
}

fn read_forwarded(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    let sequence = Sequence(fields.number()?);
    let number = Number(fields.number()?);
    let hops = u8::try_from(fields.number()?).map_err(|_| Error::Wrong("a way is too long"))?;
    if !queue.extras.contains_key(&sequence) {
        return Err(Error::Wrong("nothing was forwarded"));
    }
    queue.extras.edit(sequence, |extra| extra.forwarded = Some(Forwarded { number, hops }));
    Ok(())
}

fn read_members(fields: &mut Fields<'_>, queue: &mut Queue) -> Result<(), Error> {
    let (mut sequence, mut known) = (0u64, Vec::<Arc<str>>::new());
    while !fields.rest.is_empty() {
        let step = fields.number()?;
        sequence = sequence.checked_add(step).ok_or(Error::Wrong("numbers do not rise"))?;
        let place = fields.number()? as usize;
        if place == known.len() {
            known.push(Field::get(fields)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

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
        let queue = &mut World::with_queue("q").queue("q").clone();
        // Message 1 has nine parts, in four bytes.
        let refused = read_extra(&mut Fields { kind: 0, rest: &[1, 9, 1, 2, 3, 4] }, queue);
        assert!(matches!(refused, Err(Error::Wrong("a message has more parts than bytes"))));
    }
}
