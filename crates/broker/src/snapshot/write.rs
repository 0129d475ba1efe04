//! Writing a snapshot.

use super::{FORMAT, Named, Snapshot, kind};
use crate::durable::{Counts, Kind, Queue};
use crate::effect::{Extra, Forwarded, StoredOverlay};
use crate::ids::{BodyId, EntityId, IdMap, Sequence};
use crate::limits::BODY_PART_BYTES;
use crate::planted::{Bug, is_planted};
use crate::queue::history::Noted;
use crate::queue::index::{CHUNK, Index, SLOT_NUMBERS};
use crate::record::{self, Field, Record};
use crate::session::register::Sessions;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

impl Snapshot {
    /// Writes everything, and tells `named` of each body that is still needed, perhaps more than once. Returns the moved
    /// bodies that nothing needs any more: the snapshot leaves them out, and the broker may forget them.
    pub fn write(&self, out: &mut dyn io::Write, named: &mut dyn FnMut(Named)) -> io::Result<Vec<BodyId>> {
        let relocated_in_use = BTreeMap::new();
        let mut writer =
            Writer { out, named, relocated: &self.relocated, relocated_in_use, frame: Vec::new() };
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
        let in_use = std::mem::take(&mut writer.relocated_in_use);
        let pairs: Vec<_> = in_use.iter().collect();
        for some in pairs.chunks(CHUNK as usize) {
            writer.frame(kind::RELOCATED, |fields| {
                for (body, copy) in some {
                    fields.number(body.0);
                    fields.number(copy.0);
                }
            })?;
        }
        for some in self.kept_locks.chunks(CHUNK as usize) {
            writer.frame(kind::LOCKS, |fields| some.iter().for_each(|lock| lock.put(fields.frame)))?;
        }
        writer.frame(kind::END, |fields| fields.number(messages))?;
        Ok(self.relocated.keys().filter(|body| !in_use.contains_key(body)).copied().collect())
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
        transfer_dead,
        extras,
        history,
        counts,
        bytes,
        sessions,
        // It is the sum of what the subscriptions have.
        below: _,
        number_offset,
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
        writer.frame(kind::SETTINGS, |fields| settings.put(fields.frame))?;
    } else {
        // Everything else follows from the topic or the subscription, which is written before.
        writer.frame(kind::HELD, |fields| {
            fields.number(entity.0.into());
            fields.number(next.0);
            counts.into_iter().for_each(|number| fields.number(number));
            fields.number(*number_offset);
        })?;
    }
    let mut count = write_slots(writer, kind::SLOTS, index, extras)?
        + write_slots(writer, kind::DEAD_SLOTS, dead, extras)?;
    if let Some(transfer_dead) = transfer_dead {
        count += write_slots(writer, kind::TRANSFER_DEAD_SLOTS, transfer_dead, extras)?;
    }
    for (sequence, extra) in extras.iter() {
        let length = queue.get(*sequence).map_or(0, |slot| slot.length);
        write_extra(writer, *sequence, length, extra)?;
    }
    if let Some(sessions) = sessions {
        write_sessions(writer, sessions)?;
    }
    for chunk in history.chunks() {
        writer.frame(kind::HISTORY, |fields| {
            for Noted { id, time } in chunk {
                fields.number(time.0 as u64);
                id.put(fields.frame);
            }
        })?;
    }
    Ok(count)
}

/// Writes what a message has besides its slot; `length` is that of the whole message.
fn write_extra(writer: &mut Writer<'_>, sequence: Sequence, length: u32, extra: &Extra) -> io::Result<()> {
    let Extra { parts, overlay, stored_overlay, time_to_live, forwarded } = extra;
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
    if let Some(StoredOverlay { body, length }) = stored_overlay {
        writer.frame(kind::STORED_OVERLAY, |fields| {
            fields.number(sequence.0);
            fields.number(body.0);
            if !is_planted(Bug::ChangesLost) {
                fields.name(*body, (*length).into());
            }
            fields.number((*length).into());
        })?;
    }
    if let Some(Forwarded { number, hops }) = forwarded {
        writer.frame(kind::FORWARDED, |fields| {
            fields.number(sequence.0);
            fields.number(number.0);
            fields.number((*hops).into());
        })?;
    }
    Ok(())
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
    relocated: &'a IdMap<BodyId, BodyId>,
    /// Moved bodies that were named.
    relocated_in_use: BTreeMap<BodyId, BodyId>,
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
        let copy = self.relocated.get(&body).copied();
        if let Some(copy) = copy {
            self.relocated_in_use.insert(body, copy);
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
