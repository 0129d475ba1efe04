//! Everything one may ask of the broker.
//!
//! Commands arrive in batches, one for each read of a socket. The bodies of the messages are back to back in the
//! batch's own buffer, and a command only says where ([`Intake`]): the broker decides about messages without ever
//! touching their bytes.

use crate::ids::{
    ConnectionId, LinkId, LockToken, MessageKey, NamespaceId, Number, RequestId, TransactionId,
};
use crate::manage::Task;
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span};
use message::overlay::Overlay;
use std::ops::Range;
use std::sync::Arc;

/// Where a body is in the buffer of the batch that brought it, as it will be written to disk (its prefix included).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Intake {
    pub offset: u32,
    /// Bytes of the body itself, without the prefix.
    pub length: u32,
}

/// What the broker needs to know of a message that arrives. Read once, by the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming {
    pub body: Intake,
    /// Of all of its bytes, those that its sender did not send: an id of our making. They count for no limit of the
    /// sender's, or what fills a batch to the last byte would be refused (S-17).
    pub added_bytes: u32,
    /// The sender's own time to live (S-50); `Span::MAX` when there is none (S-57).
    pub time_to_live: Span,
    /// When to enqueue it; [`LocalTime::AT_ONCE`] unless the sender says otherwise (S-40).
    pub scheduled: LocalTime,
    /// It has a session id and a partition key, and they are not the same (S-7).
    pub keys_differ: bool,
    /// A digest of its message-id, where somebody may ask for it (S-160).
    pub id: MessageKey,
    /// A digest of its partition key, or of its session id, which is one; zero if it has neither (S-162).
    pub partition: u64,
}

impl Incoming {
    /// A message that is enqueued at once and lives for ever.
    pub fn new(body: Intake) -> Incoming {
        Incoming {
            body,
            added_bytes: 0,
            time_to_live: Span::MAX,
            scheduled: LocalTime::AT_ONCE,
            keys_differ: false,
            id: MessageKey::NONE,
            partition: 0,
        }
    }
}

/// The session ids of the messages of one delivery, in their order (S-20). Nothing on the heap where none has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionIds(Option<Box<[Option<Arc<str>>]>>);

impl SessionIds {
    /// The session ids of `count` messages; each given id has the index of its message.
    pub fn new(count: usize, ids: impl IntoIterator<Item = (usize, Arc<str>)>) -> SessionIds {
        let mut all = Vec::new();
        for (at, id) in ids {
            all.resize(count, None);
            all[at] = Some(id);
        }
        SessionIds((!all.is_empty()).then(|| all.into()))
    }

    pub fn get(&self, at: usize) -> Option<&Arc<str>> {
        self.0.as_ref()?.get(at)?.as_ref()
    }

    /// Whether each of `count` messages has one.
    pub fn has_all(&self, count: usize) -> bool {
        (0..count).all(|at| self.get(at).is_some())
    }
}

/// What a batch of commands brings along: messages, and the buffer with their bodies. The broker looks into it
/// only where the rules of a topic ask for properties.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrivals<'a> {
    pub messages: &'a [Incoming],
    pub bodies: &'a [u8],
    /// Bytes in front of each body that are not part of it.
    pub prefix_bytes: usize,
}

impl<'a> Arrivals<'a> {
    /// Messages of whose bodies nothing is known.
    pub fn of(messages: &'a [Incoming]) -> Arrivals<'a> {
        Arrivals { messages, ..Arrivals::default() }
    }

    /// Those of one delivery.
    pub(crate) fn range(self, range: &Range<u32>) -> Arrivals<'a> {
        Arrivals { messages: &self.messages[range.start as usize..range.end as usize], ..self }
    }

    /// The bytes of a body; none, if the buffer does not have them.
    pub(crate) fn body(self, body: Intake) -> &'a [u8] {
        let start = body.offset as usize + self.prefix_bytes;
        self.bodies.get(start..start + body.length as usize).unwrap_or_default()
    }
}

/// How a receiver takes messages (S-80, S-81).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveMode {
    PeekLock,
    ReceiveAndDelete,
}

/// What a receiver has decided about a locked message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done with: the message is removed (S-88).
    Complete,
    /// Back to the queue, one delivery used up, properties perhaps changed (S-89).
    Abandon(Option<Box<Overlay>>),
    /// Handed back unread: as if it had never been delivered (S-86).
    Release,
    /// Set aside (S-120).
    Defer(Option<Box<Overlay>>),
    /// To the dead-letter queue (S-90).
    DeadLetter(Option<Box<Overlay>>),
}

impl Outcome {
    /// Properties that it changes.
    pub fn changes(&self) -> Option<&Overlay> {
        match self {
            Outcome::Complete | Outcome::Release => None,
            Outcome::Abandon(changes) | Outcome::Defer(changes) | Outcome::DeadLetter(changes) => {
                changes.as_deref()
            }
        }
    }

    /// What the changes take in memory.
    pub fn held_bytes(&self) -> usize {
        self.changes().map_or(0, Overlay::held_bytes)
    }

    /// The same with other changes.
    pub(crate) fn with(&self, changes: Option<Box<Overlay>>) -> Outcome {
        match self {
            Outcome::Complete => Outcome::Complete,
            Outcome::Release => Outcome::Release,
            Outcome::Abandon(_) => Outcome::Abandon(changes),
            Outcome::Defer(_) => Outcome::Defer(changes),
            Outcome::DeadLetter(_) => Outcome::DeadLetter(changes),
        }
    }
}

/// A command. The hot ones ([`Command::Send`], [`Command::Settle`], [`Command::Credit`]) own nothing on the heap.
#[derive(Debug, Clone)]
pub enum Command {
    /// Attaches a link that sends to `path`.
    AttachSender {
        link: LinkId,
        namespace: NamespaceId,
        path: Box<str>,
    },
    /// Attaches a link that sends to `destination` by way of `path` (S-114).
    AttachVia {
        link: LinkId,
        namespace: NamespaceId,
        path: Box<str>,
        destination: Box<str>,
    },
    /// Attaches a link that receives from `path`. It gets nothing before it gives credit.
    AttachReceiver {
        link: LinkId,
        namespace: NamespaceId,
        path: Box<str>,
        mode: ReceiveMode,
    },
    /// Attaches a link that receives from a session of `path`: from this one, or from whichever is free, and then it waits
    /// until one is (S-143, S-144).
    AcceptSession {
        link: LinkId,
        namespace: NamespaceId,
        path: Box<str>,
        mode: ReceiveMode,
        session: Option<Box<str>>,
    },
    /// Attaches a link on which transactions are declared and discharged.
    AttachCoordinator {
        link: LinkId,
        namespace: NamespaceId,
    },
    /// Begins a transaction; `link` is a coordinator's.
    Declare {
        link: LinkId,
        delivery: u32,
    },
    /// Ends a transaction: everything that was done in it happens now, or, with `is_failed`, nothing of it ever does.
    Discharge {
        link: LinkId,
        delivery: u32,
        transaction: TransactionId,
        is_failed: bool,
    },
    /// Something of a transaction could not be understood; it cannot be committed any more (S-218). Nobody is told: who sent
    /// it was.
    Spoil {
        link: LinkId,
        transaction: TransactionId,
    },
    /// A send, a settlement, a schedule or a renewal that is part of a transaction (S-210).
    Within {
        transaction: TransactionId,
        command: Box<Command>,
    },
    /// The link is gone. Its message locks stay until they expire (S-94); what a coordinator has not discharged is rolled back
    /// (S-213).
    Detach {
        link: LinkId,
    },
    /// One delivery with one message or a whole batch: `messages` are indexes into the batch's messages (S-16).
    Send {
        link: LinkId,
        delivery: u32,
        is_settled: bool,
        messages: Range<u32>,
        sessions: SessionIds,
    },
    /// A part of a large body, in order, before the `Send` that ends it.
    Part {
        link: LinkId,
        body: Intake,
    },
    /// The delivery whose parts came so far was aborted.
    DropParts {
        link: LinkId,
    },
    /// The receiver takes messages until `limit` were delivered on this link since it was attached: a total and not a
    /// difference, so that what is on its way meanwhile cannot be counted twice. With `drain` it wants what there is
    /// and no waiting.
    Credit {
        link: LinkId,
        limit: u64,
        drain: bool,
    },
    /// Settles what `token` has locked. Without `wants_answer` nobody is told how it went.
    Settle {
        link: LinkId,
        delivery: u32,
        token: LockToken,
        outcome: Outcome,
        wants_answer: bool,
    },
    /// Settles what the tokens have locked, all of it or nothing, whichever link presents them (S-94).
    SettleTokens {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        tokens: Box<[LockToken]>,
        outcome: Outcome,
    },
    /// Renews the locks of these tokens, all of them or none, whichever connection presents them (S-83).
    RenewLocks {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        tokens: Box<[LockToken]>,
    },
    /// Sends messages for later and answers with their numbers (S-40). `messages` as in [`Command::Send`].
    Schedule {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        messages: Range<u32>,
        sessions: SessionIds,
    },
    /// Deletes scheduled messages, all of these or none (S-42).
    CancelScheduled {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        numbers: Box<[Number]>,
    },
    /// Receives deferred messages by their numbers, all of these or none (S-121).
    ReceiveDeferred {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        numbers: Box<[Number]>,
        mode: ReceiveMode,
        /// The session that they are in; the asking connection must hold it (S-125).
        session: Option<Box<str>>,
    },
    /// Looks at messages without touching them, from a number on (S-130).
    Browse {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        from: Number,
        most: u32,
        /// Only messages of this session (S-134).
        session: Option<Box<str>>,
    },
    /// Deletes up to `most` messages that were enqueued before a time, without receiving them (S-240).
    DeleteMessages {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        most: u32,
        before: LocalTime,
        /// Only messages of this session.
        session: Option<Box<str>>,
    },
    /// Another lock duration for a session, for its holder (S-142).
    RenewSession {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        session: Box<str>,
    },
    /// The state of a session, for its holder (S-149).
    GetSessionState {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        session: Box<str>,
    },
    /// Sets the state of a session, or clears it.
    SetSessionState {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        session: Box<str>,
        state: Option<Intake>,
    },
    /// Lists sessions that have messages or a state, or whose state has changed `since` (S-150).
    ListSessions {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        since: Option<LocalTime>,
        skip: usize,
        top: usize,
    },
    CreateQueue {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
        settings: Box<QueueSettings>,
    },
    DeleteEntity {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
    },
    DescribeEntity {
        request: RequestId,
        namespace: NamespaceId,
        path: Box<str>,
    },
    /// Everything else that an administrator may ask.
    Manage {
        request: RequestId,
        namespace: NamespaceId,
        task: Box<Task>,
    },
    /// Moves the time of a namespace, past everything that is due on the way. The engine ticks the broker until
    /// [`crate::Broker::is_advancing`] says no more, and asks nothing else meanwhile.
    Advance {
        request: RequestId,
        namespace: NamespaceId,
        by: Span,
    },
    /// Lists queues by name, from the `skip`-th on, `top` at most.
    ListQueues {
        request: RequestId,
        namespace: NamespaceId,
        skip: usize,
        top: usize,
    },
}

impl Command {
    /// What it holds besides itself, where that may be much and a decision may have to wait for the disk.
    pub fn held_bytes(&self) -> usize {
        match self {
            Command::Within { command, .. } => size_of::<Command>() + command.held_bytes(),
            Command::Settle { outcome, .. } => outcome.held_bytes(),
            Command::SettleTokens { tokens, outcome, .. } => size_of_val(&**tokens) + outcome.held_bytes(),
            Command::RenewLocks { tokens, .. } => size_of_val(&**tokens),
            Command::CancelScheduled { numbers, .. } | Command::ReceiveDeferred { numbers, .. } => {
                size_of_val(&**numbers)
            }
            _ => 0,
        }
    }

    /// Whose it is.
    pub fn connection(&self) -> ConnectionId {
        match self {
            Command::Within { command, .. } => command.connection(),
            Command::AttachSender { link, .. }
            | Command::AttachVia { link, .. }
            | Command::AttachReceiver { link, .. }
            | Command::AcceptSession { link, .. }
            | Command::AttachCoordinator { link, .. }
            | Command::Declare { link, .. }
            | Command::Discharge { link, .. }
            | Command::Spoil { link, .. }
            | Command::Detach { link }
            | Command::Send { link, .. }
            | Command::Part { link, .. }
            | Command::DropParts { link }
            | Command::Credit { link, .. }
            | Command::Settle { link, .. } => link.connection,
            Command::SettleTokens { request, .. }
            | Command::RenewLocks { request, .. }
            | Command::Schedule { request, .. }
            | Command::CancelScheduled { request, .. }
            | Command::ReceiveDeferred { request, .. }
            | Command::Browse { request, .. }
            | Command::DeleteMessages { request, .. }
            | Command::RenewSession { request, .. }
            | Command::GetSessionState { request, .. }
            | Command::SetSessionState { request, .. }
            | Command::ListSessions { request, .. }
            | Command::CreateQueue { request, .. }
            | Command::DeleteEntity { request, .. }
            | Command::DescribeEntity { request, .. }
            | Command::Manage { request, .. }
            | Command::Advance { request, .. }
            | Command::ListQueues { request, .. } => request.connection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_begins_behind_its_prefix_and_one_that_is_not_there_is_empty() {
        let arrivals = Arrivals { bodies: b"..ab..cdef", prefix_bytes: 2, ..Arrivals::default() };
        assert_eq!(arrivals.body(Intake { offset: 0, length: 2 }), b"ab");
        assert_eq!(arrivals.body(Intake { offset: 4, length: 4 }), b"cdef");
        assert_eq!(arrivals.body(Intake { offset: 4, length: 5 }), b"");
    }
}
