//! Reading a snapshot, none of which is believed before it was looked at.

use super::{Error, FORMAT, Restored, kind};
use crate::durable::{Counts, Kind, Queue, Restoring};
use crate::effect::{Extra, Forwarded};
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
        let mut restoring = Restoring::new(entities, next_body);
        let mut moved = IdMap::default();
        let mut queue: Option<(EntityId, Queue)> = None;
        let mut kept_locks = Vec::new();
        let (mut messages, mut newest) = (0, [Sequence(0); 3]);
        loop {
            let mut fields = reader.next()?;
            let none_before = Error::Wrong("a frame belongs to no queue");
            match fields.kind {
                kind::QUEUE => {
                    put(&mut restoring, queue.take())?;
                    queue = Some(read_queue(&mut fields)?);
                    newest = [Sequence(0); 3];
                }
                kind::HELD => {
                    put(&mut restoring, queue.take())?;
                    queue = Some(read_held(&mut fields, &restoring)?);
                    newest = [Sequence(0); 3];
                }
                kind::SETTINGS => {
                    let queue = &mut queue.as_mut().ok_or(none_before)?.1;
                    if queue.kind != Kind::Queue {
                        return Err(Error::Wrong("a topic or a subscription has the settings of a queue"));
                    }
                    queue.settings = Field::get(&mut fields)?;
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
                kind::TRANSFER_DEAD_SLOTS => {
                    let queue = &mut queue.as_mut().ok_or(none_before)?.1;
                    let transfer_dead = queue.transfer_dead.get_or_insert_default();
                    let add = |sequence, slot| transfer_dead.push(sequence, slot);
                    let count = read_slots(&mut fields, queue.next, &mut newest[2], add)?;
                    queue.counts.transfer_dead_letter += count;
                    messages += count;
                }
                kind::HISTORY => {
                    let history = &mut queue.as_mut().ok_or(none_before)?.1.history;
                    while !fields.rest.is_empty() {
                        let time = LocalTime(fields.number()? as i64);
                        history.push(Noted { id: Field::get(&mut fields)?, time });
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
                    let session = Field::get(&mut fields)?;
                    let (body, length) = (BodyId(fields.number()?), fields.small()?);
                    let changed = LocalTime(fields.number()? as i64);
                    let state = Some(SessionState { body, length, changed });
                    sessions.get_or_insert_default().set_state(&session, state);
                }
                kind::LOCKS => kept_locks.extend(<Box<[KeptLock]>>::get(&mut fields)?),
                kind::EXTRA => read_extra(&mut fields, &mut queue.as_mut().ok_or(none_before)?.1)?,
                kind::MANAGED => {
                    put(&mut restoring, queue.take())?;
                    let time = LocalTime(fields.number()? as i64);
                    let Record::Managed(change) = Record::decode(&mut fields.rest)? else {
                        return Err(Error::Wrong("a record is none of a change"));
                    };
                    restoring.change(&change, time).map_err(Error::Wrong)?;
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
        put(&mut restoring, queue.take())?;
        let durable = restoring.finish(moved, kept_locks).map_err(Error::Wrong)?;
        Ok(Restored { durable, time })
    }
}

fn put(restoring: &mut Restoring, queue: Option<(EntityId, Queue)>) -> Result<(), Error> {
    let Some((entity, queue)) = queue else { return Ok(()) };
    restoring.put(entity, queue).map_err(Error::Wrong)
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
    queue.extras.insert(sequence, Arc::new(Extra { parts, overlay, time_to_live, forwarded: None }));
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
