//! What is read for a partition beside it, and how it comes back.

use crate::item::{Checked, Item, Uncopied};
use broker::{BodyId, Command, Read, Sequence, Source};
use journal::{Place, read_run};

/// A command that needs stored bodies.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) command: Command,
    pub(crate) places: Vec<(BodyId, Place)>,
    /// Those that are in memory, because they are not written yet.
    pub(crate) unwritten: Vec<BodyId>,
    /// It is enough to know that they can be read: nothing of them is kept.
    pub(crate) is_check: bool,
}

impl ReadJob {
    fn run(self) -> Item {
        let mut material = Vec::with_capacity(self.places.len() + self.unwritten.len());
        material.extend(self.unwritten.into_iter().map(|body| (body, Vec::new())));
        for (body, place) in self.places {
            match place.read() {
                Ok(bytes) => material.push((body, if self.is_check { Vec::new() } else { bytes })),
                // Nothing was changed, so nothing else need suffer.
                Err(error) => return Item::Unreadable { command: self.command, why: error.to_string() },
            }
        }
        Item::Again { command: self.command, material }
    }
}

/// Messages that are to be removed before they leave.
#[derive(Debug)]
pub(crate) struct CheckJob {
    pub(crate) source: Source,
    /// Each with the places of all its bodies.
    pub(crate) messages: Vec<(Sequence, Vec<Place>)>,
    /// What they hold is wanted, not only whether they can be read.
    pub(crate) wants_content: bool,
}

impl CheckJob {
    fn run(self) -> Item {
        let mut checked = Checked::new(self.source);
        if self.wants_content {
            let mut read = |(sequence, places): (Sequence, Vec<Place>)| {
                let read = places.iter().map(|place| place.read().map(Vec::into_boxed_slice));
                let read: Result<Vec<_>, _> = read.collect();
                let read = read.inspect_err(|error| checked.damage.push(error.to_string()));
                (sequence, read.ok().map(Read::of))
            };
            let content = self.messages.into_iter().map(&mut read).collect();
            checked.content = Some(content);
            return Item::Checked(checked);
        }
        // Small neighbours with one read; a message of many parts, or one in a run that has damage, alone.
        let is_small = self.messages.iter().all(|(_, places)| places.len() == 1);
        let run: Vec<Place> = match is_small {
            true => self.messages.iter().flat_map(|(_, places)| places.iter().cloned()).collect(),
            false => Vec::new(),
        };
        if is_small && read_run(&run, &mut Vec::new()).is_ok() {
            checked.whole.extend(self.messages.iter().map(|(sequence, _)| *sequence));
            return Item::Checked(checked);
        }
        for (sequence, places) in self.messages {
            match places.iter().try_for_each(|place| place.read().map(drop)) {
                Ok(()) => checked.whole.push(sequence),
                Err(error) => {
                    checked.damaged.push(sequence);
                    checked.damage.push(error.to_string());
                }
            }
        }
        Item::Checked(checked)
    }
}

/// Bodies that are to be copied.
#[derive(Debug)]
pub(crate) struct CopyJob {
    /// The id that messages know, the id under which it is stored, and where that is.
    pub(crate) bodies: Vec<(BodyId, BodyId, Place)>,
    pub(crate) most_bytes: usize,
}

impl CopyJob {
    fn run(self) -> Item {
        let mut copies = Vec::with_capacity(self.bodies.len());
        let (mut bytes, mut unread, mut failure) = (0, Vec::new(), None);
        for (body, stored, place) in self.bodies {
            if bytes >= self.most_bytes || failure.is_some() {
                unread.push((body, stored));
                continue;
            }
            match place.read() {
                Ok(copy) => {
                    bytes += copy.len();
                    copies.push((body, copy));
                }
                // Nothing was changed: the original stays, and nothing else need suffer.
                Err(error) => {
                    let is_passing = error.is_passing();
                    failure = Some(Uncopied { stored, why: error.to_string(), is_passing });
                    unread.push((body, stored));
                }
            }
        }
        Item::Copied { copies, unread, failure }
    }
}

/// Something to read, in the order of asking.
#[derive(Debug)]
pub(crate) enum ReadWork {
    Needs(ReadJob),
    Doubts(CheckJob),
    Copies(CopyJob),
}

impl ReadWork {
    pub(crate) fn run(self) -> Item {
        match self {
            ReadWork::Needs(job) => job.run(),
            ReadWork::Doubts(job) => job.run(),
            ReadWork::Copies(job) => job.run(),
        }
    }
}
