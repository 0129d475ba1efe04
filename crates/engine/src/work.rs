//! One piece of work for a bus partition.

use crate::batch::Batch;
use crate::mailbox::Mailbox;
use crate::snapshots::Snapshotted;
use broker::{BodyId, Command, ConnectionId, Fronts, Material, Sequence, Source};
use std::sync::Arc;
use std::sync::mpsc;

#[derive(Debug)]
pub enum Work {
    Connect {
        connection: ConnectionId,
        mailbox: Arc<dyn Mailbox>,
    },
    /// The connection is gone, and its links with it.
    Disconnect {
        connection: ConnectionId,
    },
    Batch(Batch),
    /// A command that had to know something of what is stored comes again, and knows it.
    Again {
        waiting: WaitingCommand,
        material: Material,
    },
    /// What a command must know cannot be read.
    Unreadable {
        waiting: WaitingCommand,
        why: String,
    },
    /// Messages were read that are to be removed, published or forwarded.
    MessagesRead(MessagesRead),
    /// Bodies were read that are to be copied; those that are left did not fit.
    Copied {
        copies: Vec<(BodyId, Vec<u8>)>,
        unread: Vec<(BodyId, BodyId)>,
        failure: Option<Uncopied>,
    },
    /// Somebody reads what is stored again and wants the next piece of it.
    Scrub {
        after: journal::Position,
        reply: mpsc::Sender<Option<journal::Scrub>>,
    },
    /// A snapshot was written.
    Snapshotted(Box<Snapshotted>),
    /// A snapshot found no room.
    SnapshotPutOff(String),
    /// Another thread of the partition has found that it cannot go on.
    Failed(String),
    /// Finish what was begun, seal the journal, end.
    Stop,
}

/// A command that waits for the disk. It is one of its connection's undecided ones meanwhile, and its bytes are in the budget.
#[derive(Debug)]
pub struct WaitingCommand {
    pub(crate) command: Command,
    /// What it is charged until it is decided: itself, what it asks to be read, and what it will know of it.
    pub(crate) held_bytes: usize,
}

/// A body that could not be read when it was to be copied.
#[derive(Debug)]
pub struct Uncopied {
    /// Under which it is stored.
    pub(crate) stored: BodyId,
    pub(crate) why: String,
    /// It may be read some other time, and is among those that were not read.
    pub(crate) is_passing: bool,
}

/// What was found of messages that were read because the broker asked for them.
#[derive(Debug)]
pub struct MessagesRead {
    pub(crate) source: Source,
    pub(crate) whole: Vec<Sequence>,
    pub(crate) damaged: Vec<Sequence>,
    /// What is wrong with those, with file and offset.
    pub(crate) damage: Vec<String>,
    /// What they hold, where that was asked for; nothing of those that cannot be read.
    pub(crate) content: Option<Fronts>,
}

impl MessagesRead {
    pub(crate) fn new(source: Source) -> MessagesRead {
        MessagesRead { source, whole: Vec::new(), damaged: Vec::new(), damage: Vec::new(), content: None }
    }
}
