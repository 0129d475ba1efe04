//! How a stored message becomes the one a receiver gets: header and annotations are the broker's, the bare message
//! is the sender's, byte for byte, unless somebody changed a property since or it has decimals (`decimal.rs`).
//!
//! A delivered message always has a header (the Java client fails without one), never two annotations of a broker's
//! name, never a null where a client expects text, and every descriptor in its short form (A-1.7, A-5.3,
//! 5.4). Usual case: header and annotations written, the rest one copy.

use crate::codec::{
    Malformed, begin_map, code, end_compound, write_descriptor, write_int, write_long, write_null,
    write_small_list, write_string, write_symbol, write_timestamp, write_uint, write_uuid,
};
use crate::decimal;
use crate::entries::optional_entries;
use crate::facts::annotation;
use crate::fields::{Header, Properties, header, property};
use crate::limits::STAMP_BYTES;
use crate::overlay::{Change, Overlay};
use crate::planted::is_state_lost;
use crate::sections::{Sections, section, sections};
use crate::system::{Home, SystemProperty};
use std::ops::Range;

/// What the broker says about one delivery. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp<'a> {
    /// Earlier deliveries that failed: 0 the first time.
    pub delivery_count: u32,
    /// Effective time to live in milliseconds; `None` if the message lives for ever.
    pub ttl: Option<u64>,
    /// When it expires: enqueued time plus `ttl`.
    pub expires: Option<i64>,
    pub sequence: i64,
    pub enqueued: i64,
    pub locked_until: Option<i64>,
    /// The number at the first point of submission, if the message was forwarded or copied (S-36).
    pub enqueued_sequence: Option<i64>,
    /// 0 active, 1 deferred, 2 scheduled (S-8).
    pub state: Option<i32>,
    /// Overrides the one of the overlay.
    pub dead_letter_source: Option<&'a str>,
    /// RFC order; written as a delivery annotation (K-2).
    pub lock_token: Option<[u8; 16]>,
    /// A delivery on a link has delivery annotations even if they are empty (K-2); a message that is shown has not.
    pub is_delivered: bool,
    /// It has waited for its time; a delivery says so (K-8).
    pub was_scheduled: bool,
    pub partition_id: Option<i16>,
}

/// The message state of what was or is scheduled (S-8).
const SCHEDULED_STATE: i32 = 2;

/// The delivery annotation that names the lock.
const LOCK_TOKEN: &str = "x-opt-lock-token";

/// The last millisecond of the year 9999. The .NET client cannot hold a later time.
const LAST_INSTANT: i64 = 253_402_300_799_999;

/// Appends the message as a receiver gets it. `stored` was accepted by [`crate::Facts::read`]; if it is malformed
/// all the same, nothing is appended.
pub fn encode(
    out: &mut Vec<u8>,
    stored: &[u8],
    sections: &Sections,
    stamp: &Stamp<'_>,
    overlay: Option<&Overlay>,
) -> Result<(), Malformed> {
    let start = out.len();
    out.reserve(stored.len() + STAMP_BYTES);
    let message =
        Delivery { stored, sections, stamp, overlay: overlay.filter(|overlay| !overlay.is_empty()) };
    message.write(out).inspect_err(|_| out.truncate(start))
}

struct Delivery<'a> {
    stored: &'a [u8],
    sections: &'a Sections,
    stamp: &'a Stamp<'a>,
    overlay: Option<&'a Overlay>,
}

impl<'a> Delivery<'a> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        self.write_header(out)?;
        self.write_delivery_annotations(out)?;
        let is_scheduled = self.write_message_annotations(out)?;
        self.write_bare(out, is_scheduled)
    }

    fn write_header(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let sent = Header::split(self.sections.header.value(self.stored))?;
        write_descriptor(out, section::HEADER.into());
        write_small_list(out, header::COUNT as u8, |out| {
            out.extend_from_slice(sent.raw(header::DURABLE));
            out.extend_from_slice(sent.raw(header::PRIORITY));
            match self.stamp.ttl {
                // Longer lives are told by the pair of times in the properties (S-68).
                Some(ttl) => write_uint(out, u32::try_from(ttl).unwrap_or(u32::MAX)),
                None => write_null(out),
            }
            out.extend_from_slice(sent.raw(header::FIRST_ACQUIRER));
            write_uint(out, self.stamp.delivery_count);
        });
        Ok(())
    }

    /// The sender's, merged with the lock token, which is ours alone (K-2, K-10).
    fn write_delivery_annotations(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let sent = self.sections.delivery_annotations.value(self.stored);
        if sent.is_none() && self.stamp.lock_token.is_none() && !self.stamp.is_delivered {
            return Ok(());
        }
        write_descriptor(out, section::DELIVERY_ANNOTATIONS.into());
        let open = begin_map(out);
        let mut count = 0;
        for entry in optional_entries(sent)? {
            let entry = entry?;
            if entry.name != Some(LOCK_TOKEN) {
                out.extend_from_slice(entry.key);
                out.extend_from_slice(entry.value);
                count += 1;
            }
        }
        if let Some(token) = &self.stamp.lock_token {
            write_symbol(out, LOCK_TOKEN);
            write_uuid(out, token);
            count += 1;
        }
        end_compound(out, open, 2 * count);
        Ok(())
    }

    /// Writes the sender's annotations, then ours. Says whether the sender scheduled the message.
    fn write_message_annotations(&self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut is_scheduled = false;
        write_descriptor(out, section::MESSAGE_ANNOTATIONS.into());
        let open = begin_map(out);
        let mut count = 0;
        for entry in optional_entries(self.sections.message_annotations.value(self.stored))? {
            let entry = entry?;
            if let Some(name) = entry.name {
                is_scheduled |= name == annotation::SCHEDULED_ENQUEUE_TIME && !entry.is_null();
                if is_brokers(name)
                    || self.is_changed_annotation(name)
                    || (entry.is_null() && is_senders(name))
                {
                    continue;
                }
            }
            match entry.name {
                Some(name) if !entry.has_symbol_key() && name.is_ascii() => write_symbol(out, name),
                _ => out.extend_from_slice(entry.key),
            }
            out.extend_from_slice(entry.value);
            count += 1;
        }
        count += self.write_changed_annotations(out);
        count += self.write_stamp(out);
        end_compound(out, open, 2 * count);
        Ok(is_scheduled)
    }

    fn is_changed_annotation(&self, name: &str) -> bool {
        let is_here = |(property, _): (SystemProperty, Change<'_>)| match property.home() {
            Home::Annotation(home) => home == name,
            Home::Field(_) => false,
        };
        self.overlay.is_some_and(|overlay| overlay.systems().any(is_here))
    }

    fn write_changed_annotations(&self, out: &mut Vec<u8>) -> u32 {
        let mut count = 0;
        for (property, change) in self.overlay.iter().flat_map(|overlay| overlay.systems()) {
            let is_overridden =
                property == SystemProperty::DeadLetterSource && self.stamp.dead_letter_source.is_some();
            if let (Home::Annotation(name), Change::Set(value), false) =
                (property.home(), change, is_overridden)
            {
                write_symbol(out, name);
                out.extend_from_slice(value);
                count += 1;
            }
        }
        count
    }

    /// The broker's annotations, in the exact types that clients assert.
    fn write_stamp(&self, out: &mut Vec<u8>) -> u32 {
        let stamp = self.stamp;
        // K-8: clients show a message that was scheduled as such although it is active.
        let was_scheduled = stamp.is_delivered && stamp.was_scheduled && !is_state_lost();
        let was_scheduled = was_scheduled.then_some(SCHEDULED_STATE);
        let mut count = 2;
        write_symbol(out, "x-opt-enqueued-time");
        write_timestamp(out, stamp.enqueued);
        write_symbol(out, "x-opt-sequence-number");
        write_long(out, stamp.sequence);
        if let Some(until) = stamp.locked_until {
            write_symbol(out, "x-opt-locked-until");
            write_timestamp(out, until);
            count += 1;
        }
        if let Some(sequence) = stamp.enqueued_sequence {
            write_symbol(out, "x-opt-enqueue-sequence-number");
            write_long(out, sequence);
            count += 1;
        }
        if let Some(state) = stamp.state.or(was_scheduled) {
            write_symbol(out, "x-opt-message-state");
            write_int(out, state);
            count += 1;
        }
        if let Some(source) = stamp.dead_letter_source {
            write_symbol(out, "x-opt-deadletter-source");
            write_string(out, source);
            count += 1;
        }
        if let Some(partition) = stamp.partition_id {
            write_symbol(out, "x-opt-partition-id");
            out.push(code::SHORT);
            out.extend_from_slice(&partition.to_be_bytes());
            count += 1;
        }
        count
    }

    fn write_bare(&self, out: &mut Vec<u8>, is_scheduled: bool) -> Result<(), Malformed> {
        let stored_properties = self.sections.properties.value(self.stored);
        let lifetime = match (stored_properties, self.stamp.ttl) {
            (Some(list), Some(ttl)) => self.new_lifetime(list, ttl, is_scheduled)?,
            _ => Lifetime::default(),
        };
        let changes_properties = lifetime != Lifetime::default() || self.changes_fields();
        let changes_application = self.overlay.is_some_and(|overlay| overlay.applications().next().is_some())
            || decimal::are_rewritten(self.sections.application_properties.value(self.stored));

        let mut from = self.sections.bare as usize;
        if changes_properties {
            self.write_properties(out, &lifetime)?;
            from = from.max(self.sections.properties.end as usize);
        }
        if changes_application {
            self.copy(out, from..(self.sections.properties.end as usize).max(from))?;
            self.write_application_properties(out)?;
            from = from.max(self.sections.properties.end as usize);
            from = from.max(self.sections.application_properties.end as usize);
        }
        self.copy(out, from..self.stored.len())
    }

    /// Copies whole sections; those whose descriptors not every client reads get the short one. What was not scanned,
    /// the body of a message that comes in pieces, stays as it is.
    fn copy(&self, out: &mut Vec<u8>, range: Range<usize>) -> Result<(), Malformed> {
        if self.sections.is_plain {
            out.extend_from_slice(&self.stored[range]);
            return Ok(());
        }
        let scanned = range.end.min(self.sections.scanned as usize).max(range.start);
        let (whole, unseen) = self.stored[range.clone()].split_at(scanned - range.start);
        for section in sections(whole) {
            let section = section?;
            write_descriptor(out, section.code.into());
            out.extend_from_slice(section.span.value(whole).unwrap_or_default());
        }
        out.extend_from_slice(unseen);
        Ok(())
    }

    fn changes_fields(&self) -> bool {
        let mut changes = self.overlay.iter().flat_map(|overlay| overlay.systems());
        changes.any(|(property, _)| matches!(property.home(), Home::Field(_)))
    }

    /// Clients show `absolute-expiry-time - creation-time` as the time to live whenever both are there, so the
    /// difference must be the effective one (S-68). Times that still tell the truth are the sender's and stay. If the
    /// message was delayed they count from its enqueued time.
    fn new_lifetime(&self, properties: &[u8], ttl: u64, is_scheduled: bool) -> Result<Lifetime, Malformed> {
        let fields = Properties::split(Some(properties))?;
        let stamp = self.stamp;
        let expires =
            stamp.expires.unwrap_or_else(|| stamp.enqueued.saturating_add_unsigned(ttl)).min(LAST_INSTANT);
        let is_delayed = is_scheduled || stamp.enqueued_sequence.is_some();
        match fields.lifetime()? {
            Some((sent, until)) => {
                let tells_ttl = until >= sent && until.abs_diff(sent) == ttl;
                let is_true = tells_ttl && (!is_delayed || until == expires);
                Ok(if is_true {
                    Lifetime::default()
                } else {
                    Lifetime { created: Some(stamp.enqueued), expires: Some(expires) }
                })
            }
            // Ignored on input, authoritative on output (S-3).
            None if !fields.is_null(property::ABSOLUTE_EXPIRY_TIME) => {
                Ok(Lifetime { created: None, expires: Some(expires) })
            }
            None => Ok(Lifetime::default()),
        }
    }

    fn write_properties(&self, out: &mut Vec<u8>, lifetime: &Lifetime) -> Result<(), Malformed> {
        let fields = Properties::split(self.sections.properties.value(self.stored))?;
        let created = lifetime.created.map(timestamp);
        let expires = lifetime.expires.map(timestamp);
        let mut replaced: [(usize, &[u8]); property::COUNT] = [(0, fields.raw(0)); property::COUNT];
        let mut count = 0;
        let mut replace = |index, value| {
            replaced[count] = (index, value);
            count += 1;
        };
        if let Some(created) = &created {
            replace(property::CREATION_TIME, created);
        }
        if let Some(expires) = &expires {
            replace(property::ABSOLUTE_EXPIRY_TIME, expires);
        }
        for (property, change) in self.overlay.iter().flat_map(|overlay| overlay.systems()) {
            if let Home::Field(index) = property.home() {
                replace(index, if let Change::Set(value) = change { value } else { &[code::NULL] });
            }
        }
        fields.write_with(out, &replaced[..count]);
        Ok(())
    }

    fn write_application_properties(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let changes = || self.overlay.iter().flat_map(|overlay| overlay.applications());
        let stored = self.sections.application_properties.value(self.stored);
        let has_new = changes().any(|(_, change)| matches!(change, Change::Set(_)));
        if stored.is_none() && !has_new {
            return Ok(());
        }
        write_descriptor(out, section::APPLICATION_PROPERTIES.into());
        let open = begin_map(out);
        let mut count = 0;
        for entry in optional_entries(stored)? {
            let entry = entry?;
            let change = entry.name.zip(self.overlay).and_then(|(name, overlay)| overlay.application(name));
            if change.is_some() {
                continue;
            }
            out.extend_from_slice(entry.key);
            write_property(out, entry.value);
            count += 1;
        }
        for (name, change) in changes() {
            if let Change::Set(value) = change {
                write_string(out, name);
                write_property(out, value);
                count += 1;
            }
        }
        end_compound(out, open, 2 * count);
        Ok(())
    }
}

fn write_property(out: &mut Vec<u8>, value: &[u8]) {
    match decimal::rewritten(value) {
        Some(rewritten) => out.extend_from_slice(&rewritten),
        None => out.extend_from_slice(value),
    }
}

/// The times to write instead of the sender's.
#[derive(Debug, PartialEq, Eq, Default)]
struct Lifetime {
    created: Option<i64>,
    expires: Option<i64>,
}

fn timestamp(milliseconds: i64) -> [u8; 9] {
    let mut encoded = [code::TIMESTAMP; 9];
    encoded[1..].copy_from_slice(&milliseconds.to_be_bytes());
    encoded
}

/// Annotation names that only the broker writes; what a sender puts there is ignored (S-3).
fn is_brokers(name: &str) -> bool {
    name.strip_prefix("x-opt-").is_some_and(|rest| {
        matches!(
            rest,
            "enqueued-time"
                | "sequence-number"
                | "locked-until"
                | "enqueue-sequence-number"
                | "message-state"
                | "deadletter-source"
                | "partition-id"
                | "offset"
                | "lock-token"
        )
    })
}

/// Annotations of which clients assert the type: a null is left out.
fn is_senders(name: &str) -> bool {
    matches!(
        name,
        annotation::SCHEDULED_ENQUEUE_TIME | annotation::PARTITION_KEY | annotation::VIA_PARTITION_KEY
    )
}

#[cfg(test)]
mod tests;
