//! What is read for a partition beside it, and how it comes back.

use crate::work::{MessagesRead, Uncopied, WaitingCommand, Work};
use broker::{BodyId, Found, Material, Need, Read, Sequence, Source};
use journal::{Place, read_run};

/// A command that must know something of stored bodies. One body is in memory at a time, and of each is kept what was asked for.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) waiting: WaitingCommand,
    pub(crate) places: Vec<(Need, Place)>,
    /// What needs no reading.
    pub(crate) found: Vec<(BodyId, Found)>,
}

impl ReadJob {
    fn run(self) -> Work {
        let ReadJob { waiting, places, found } = self;
        let read = places.into_iter().map(|(need, place)| place.read().map(|bytes| need.found(&bytes)));
        match found.into_iter().map(Ok).chain(read).collect::<Result<Material, _>>() {
            Ok(material) => Work::Again { waiting, material },
            // Nothing was changed, so nothing else need suffer.
            Err(error) => Work::Unreadable { waiting, why: error.to_string() },
        }
    }
}

/// Messages that are to be read before they are removed, published or forwarded.
#[derive(Debug)]
pub(crate) struct MessagesJob {
    pub(crate) source: Source,
    /// Each with the places of all its bodies.
    pub(crate) messages: Vec<(Sequence, Vec<Place>)>,
    /// What they hold is wanted, not only whether they can be read.
    pub(crate) wants_content: bool,
}

impl MessagesJob {
    fn run(self) -> Work {
        let mut checked = MessagesRead::new(self.source);
        if self.wants_content {
            let mut read = |(sequence, places): (Sequence, Vec<Place>)| {
                let read = places.iter().map(|place| place.read().map(Vec::into_boxed_slice));
                let read: Result<Vec<_>, _> = read.collect();
                let read = read.inspect_err(|error| checked.damage.push(error.to_string()));
                (sequence, read.ok().map(Read::of))
            };
            let content = self.messages.into_iter().map(&mut read).collect();
            checked.content = Some(content);
            return Work::MessagesRead(checked);
        }
        // Small neighbours with one read; a message of many parts, or one in a run that has damage, alone.
        let is_small = self.messages.iter().all(|(_, places)| places.len() == 1);
        let run: Vec<Place> = match is_small {
            true => self.messages.iter().flat_map(|(_, places)| places.iter().cloned()).collect(),
            false => Vec::new(),
        };
        if is_small && read_run(&run, &mut Vec::new()).is_ok() {
            checked.whole.extend(self.messages.iter().map(|(sequence, _)| *sequence));
            return Work::MessagesRead(checked);
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
        Work::MessagesRead(checked)
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
    fn run(self) -> Work {
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
        Work::Copied { copies, unread, failure }
    }
}

/// Something to read, in the order of asking.
#[derive(Debug)]
pub(crate) enum ReadWork {
    Needs(ReadJob),
    Messages(MessagesJob),
    Copies(CopyJob),
}

impl ReadWork {
    pub(crate) fn run(self) -> Work {
        match self {
            ReadWork::Needs(job) => job.run(),
            ReadWork::Messages(job) => job.run(),
            ReadWork::Copies(job) => job.run(),
        }
    }
}
