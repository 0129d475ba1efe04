//! What is read, or was and is not published yet, of messages that go on by themselves: those that are forwarded and those
//! whose time has come at a topic (W-36).
//!
//! A source has one slice at a time. All slices together have a total, [`READ_BYTES`]; a source that finds no room waits in line,
//! and is called when there is some. What must always hold: whoever was called, or has what was read, works until it asks again or
//! leaves ([`Volatile::leave_reading`]), so that room that is not used is given to the next; nobody gets a second slice before those
//! in line had theirs; what the disk was asked for is counted until it comes, also when its source has gone meanwhile.

use super::Volatile;
use crate::ids::{EntityId, Source, SubQueue};
use crate::limits::{READ_BYTES, READ_SLICE_BYTES};
use crate::queue::read_request::Fronts;
use crate::time::LocalTime;
use crate::timers::EntityTimer;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Reads {
    /// Those that read, or would.
    sources: BTreeMap<Source, Reading>,
    /// Those that wait, each by its ticket.
    line: BTreeMap<u64, Source>,
    next_ticket: u64,
    /// Of all that are not in line.
    bytes: u64,
    most_bytes: u64,
}

/// How far a source is with its slice.
#[derive(Debug, Clone, Copy)]
enum Reading {
    InLine {
        ticket: u64,
    },
    /// It may ask, and so many bytes are kept for it.
    Called {
        bytes: u64,
    },
    Asked {
        bytes: u64,
    },
    /// It was read and is being published.
    Known {
        bytes: u64,
    },
}

impl Default for Reads {
    fn default() -> Reads {
        let (sources, line) = Default::default();
        Reads { sources, line, next_ticket: 0, bytes: 0, most_bytes: READ_BYTES }
    }
}

impl Reads {
    /// Whether another slice may be read; one always may.
    fn has_room(&self) -> bool {
        self.bytes == 0 || self.bytes + READ_SLICE_BYTES <= self.most_bytes
    }

    fn set(&mut self, source: Source, reading: Reading) {
        self.drop(source);
        self.bytes += reading.bytes();
        if let Reading::InLine { ticket } = reading {
            self.line.insert(ticket, source);
        }
        self.sources.insert(source, reading);
    }

    fn drop(&mut self, source: Source) {
        let before = self.sources.remove(&source);
        self.bytes -= before.map_or(0, Reading::bytes);
        if let Some(Reading::InLine { ticket }) = before {
            self.line.remove(&ticket);
        }
    }

    fn wait(&mut self, source: Source) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.set(source, Reading::InLine { ticket });
    }
}

impl Reading {
    fn bytes(self) -> u64 {
        match self {
            Reading::InLine { .. } => 0,
            Reading::Called { bytes } | Reading::Asked { bytes } | Reading::Known { bytes } => bytes,
        }
    }
}

impl Volatile {
    /// Slices together hold at most so many bytes, or are one.
    pub(crate) fn set_read_bytes(&mut self, most: u64) {
        self.reads.most_bytes = most;
    }

    /// Whether a source, of which nothing is being read, may ask for its next slice now. If not, it is called later.
    pub(crate) fn may_read(&mut self, source: Source) -> bool {
        match self.reads.sources.get(&source) {
            Some(Reading::Called { .. }) => return true,
            Some(Reading::InLine { .. }) => return false,
            // Content is asked for once at a time; what comes for a source that was turned meanwhile is waited for.
            Some(Reading::Asked { .. }) => return false,
            // Others come first.
            Some(Reading::Known { .. }) => self.end_slice(source),
            None => {}
        }
        if self.reads.line.is_empty() && self.reads.has_room() {
            self.reads.set(source, Reading::Called { bytes: READ_SLICE_BYTES });
            return true;
        }
        self.reads.wait(source);
        self.call_readers();
        matches!(self.reads.sources.get(&source), Some(Reading::Called { .. }))
    }

    /// Whether a source was called, or has what was read for it.
    pub(crate) fn has_turn(&self, source: Source) -> bool {
        matches!(self.reads.sources.get(&source), Some(Reading::Called { .. } | Reading::Known { .. }))
    }

    /// A slice of so many bytes is asked for.
    pub(crate) fn begin_read(&mut self, source: Source, bytes: u64) {
        self.begin_check(source);
        self.ready_mut(source).fronts.clear();
        self.reads.set(source, Reading::Asked { bytes });
        self.call_readers();
    }

    /// A slice was read; those messages that could not be have nothing.
    pub(crate) fn end_read(&mut self, source: Source, fronts: Fronts) {
        let ready = self.ready_mut(source);
        ready.is_checking = false;
        ready.fronts = fronts.into_iter().collect();
        if let Some(Reading::Asked { bytes }) = self.reads.sources.get(&source).copied() {
            self.reads.set(source, Reading::Known { bytes });
        }
    }

    /// What was asked for has come, and nobody is there for it.
    pub(crate) fn drop_read(&mut self, source: Source) {
        self.reads.drop(source);
        self.call_readers();
    }

    /// A source does nothing more for now, unless it is in line or is being read: what it has of a slice is dropped, and read
    /// again when it is wanted.
    pub(crate) fn leave_reading(&mut self, source: Source) {
        if let Some(Reading::Called { .. } | Reading::Known { .. }) = self.reads.sources.get(&source) {
            self.end_slice(source);
            self.call_readers();
        }
    }

    /// A source goes, or goes on elsewhere.
    pub(crate) fn forget_reading(&mut self, entity: EntityId) {
        for sub in [SubQueue::Main, SubQueue::DeadLetter] {
            let source = Source { entity, sub };
            if !matches!(self.reads.sources.get(&source), Some(Reading::Asked { .. })) {
                self.reads.drop(source);
            }
        }
    }

    fn end_slice(&mut self, source: Source) {
        self.ready_mut(source).fronts.clear();
        self.reads.drop(source);
    }

    /// Calls those in line for whom there is room.
    pub(crate) fn call_readers(&mut self) {
        while self.reads.has_room()
            && let Some((_, source)) = self.reads.line.pop_first()
        {
            self.reads.set(source, Reading::Called { bytes: READ_SLICE_BYTES });
            match self.routes.contains_key(&source.entity) {
                true => self.arm(source.entity, EntityTimer::Activate, LocalTime::AT_ONCE),
                false => self.stir(source),
            }
        }
    }

    /// Bytes that slices count for, and how many sources wait.
    #[cfg(test)]
    pub(crate) fn reading(&self) -> (u64, usize) {
        (self.reads.bytes, self.reads.line.len())
    }

    /// Bytes of what was read and is not published yet.
    #[cfg(test)]
    pub(crate) fn front_bytes(&self) -> u64 {
        let ready = self.entities.iter().flat_map(|(_, presence)| &presence.sub_queues);
        let fronts = ready.flat_map(|ready| ready.fronts.values().flatten());
        fronts.map(|read| (read.front.len() + read.overlay.len()) as u64).sum()
    }
}
