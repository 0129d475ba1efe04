//! Everything that may leave the broker. An effect is released only when the records that justify it are durable. The
//! times in it are those of its namespace.

use crate::access::{Access, AccessRule};
use crate::clock::Advanced;
use crate::command::ReceiveMode;
use crate::durable::Counts;
use crate::ids::{
    BodyId, ConnectionId, LinkId, LockToken, NamespaceId, Number, RequestId, Sequence, TransactionId,
};
use crate::queue::index::State;
use crate::refusal::Refusal;
use crate::settings::QueueSettings;
use crate::time::{LocalTime, Span};
use crate::topic::TopicDescription;
use crate::topic::rule::RuleDescription;
use crate::topic::subscription::SubscriptionDescription;
use message::overlay::{Overlay, OverlayError};
use std::borrow::Cow;
use std::sync::Arc;

/// A message on its way to a client. The body comes from the journal; everything the broker adds is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Zero when the message is only looked at.
    pub token: LockToken,
    pub sequence: Sequence,
    /// The sequence number to show.
    pub number: Number,
    /// S-8.
    pub state: State,
    /// Whether it has waited for its time (K-8).
    pub was_scheduled: bool,
    pub body: BodyId,
    /// Bytes of the whole message as stored.
    pub length: u32,
    /// Earlier deliveries that failed (S-87).
    pub count: u32,
    pub enqueued: LocalTime,
    /// When it expires; when a scheduled message is due.
    pub expires: LocalTime,
    /// `None` where nothing is locked: in receive-and-delete and in browsing (S-133).
    pub locked_until: Option<LocalTime>,
    /// The number that it had where it was sent, if that was another entity (S-36).
    pub first: Option<Number>,
    pub extra: Option<Arc<Extra>>,
}

/// What few messages have, kept out of the slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Extra {
    /// Bodies that come before the last one of a message stored in parts, in order.
    pub parts: Vec<BodyId>,
    /// Properties changed since the message was sent, where they are small. In a delivery from a dead-letter queue also the words
    /// of the broker, over which what is stored wins.
    pub overlay: Option<Overlay>,
    /// Properties changed since the message was sent, where they are not small.
    pub stored_overlay: Option<StoredOverlay>,
    /// The sender's own time to live, of a message that waits for its time: it counts from then (S-44).
    pub time_to_live: Option<Span>,
    /// Where it was sent, if that was another entity.
    pub forwarded: Option<Forwarded>,
}

/// Changed properties that lie in a body of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredOverlay {
    pub body: BodyId,
    pub length: u32,
}

impl Extra {
    /// Properties changed since the message was sent. `stored` is what was read of the body in which they lie, if they do.
    pub fn changes(&self, stored: &[u8]) -> Result<Option<Cow<'_, Overlay>>, OverlayError> {
        if self.stored_overlay.is_none() {
            return Ok(self.overlay.as_ref().map(Cow::Borrowed));
        }
        let changes = Overlay::decode(stored)?;
        Ok(Some(Cow::Owned(match &self.overlay {
            Some(words) => over(words.clone(), &changes),
            None => changes,
        })))
    }
}

/// Changed properties laid over the words of the broker. Where they would be too large together, what clients have set is theirs;
/// the words are only ours.
pub(crate) fn over(words: Overlay, changes: &Overlay) -> Overlay {
    let mut merged = words;
    if merged.merge(changes).is_ok() { merged } else { changes.clone() }
}

impl Delivery {
    /// The body in which its changed properties lie, if they do.
    pub fn stored_overlay(&self) -> Option<StoredOverlay> {
        self.extra.as_ref()?.stored_overlay
    }

    /// [`Extra::changes`], if there are any.
    pub fn changes(&self, stored: &[u8]) -> Result<Option<Cow<'_, Overlay>>, OverlayError> {
        self.extra.as_ref().map_or(Ok(None), |extra| extra.changes(stored))
    }

    /// Everything that is read of the disk to show it.
    pub fn stored_bytes(&self) -> usize {
        self.length as usize + self.stored_overlay().map_or(0, |stored| stored.length as usize)
    }
}

/// The way of a message that was forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Forwarded {
    /// The number that it had first (S-36).
    pub number: Number,
    pub hops: u8,
}

/// How a settlement came out, in the terms of the request, so that the answer can repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Completed,
    Abandoned,
    Released,
    Deferred,
    DeadLettered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDescription {
    pub path: Box<str>,
    pub settings: QueueSettings,
    /// What the queue may choose, or its tier has chosen (K-21).
    pub max_message_kilobytes: u64,
    pub access: Vec<AccessRule>,
    pub created: LocalTime,
    pub updated: LocalTime,
    /// `None` when nothing was ever sent or received.
    pub accessed: Option<LocalTime>,
    pub counts: Counts,
    pub bytes: u64,
}

/// The answer to a question that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Queue(Box<QueueDescription>),
    Queues(Vec<QueueDescription>),
    Topic(Box<TopicDescription>),
    Topics(Vec<TopicDescription>),
    Subscription(Box<SubscriptionDescription>),
    Subscriptions(Vec<SubscriptionDescription>),
    Rule(Box<RuleDescription>),
    Rules(Vec<RuleDescription>),
    /// The authorization rules that count at a path: of the nearest entity first.
    Access(Vec<Access>),
    Namespace {
        namespace: NamespaceId,
        created: LocalTime,
    },
    /// The names of all namespaces that ever were.
    Namespaces(Vec<Box<str>>),
    /// The time of the namespace.
    Time(LocalTime),
    /// The time of the namespace was moved.
    Advanced(Box<Advanced>),
    Deleted,
    /// All that was named is settled.
    Settled,
    /// Until when each lock now lasts, in the order of the request (S-83).
    Renewed(Vec<LocalTime>),
    /// The numbers of scheduled messages, in the order of the request (S-40).
    Scheduled(Vec<Number>),
    Cancelled,
    /// Messages received by their numbers, or looked at. The engine adds the bodies.
    Messages(Vec<Delivery>),
    /// How many messages were deleted without being received (S-240).
    MessagesDeleted(u32),
    /// Until when a session is now locked.
    SessionRenewed(LocalTime),
    /// The state of a session: a body of that length. The engine adds it.
    SessionState(Option<Box<Delivery>>),
    SessionStateSet,
    /// Ids of sessions (S-150).
    Sessions(Vec<Arc<str>>),
}

impl Answer {
    /// How many things it lists, each of which was looked at.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Answer::Queues(list) => list.len(),
            Answer::Topics(list) => list.len(),
            Answer::Subscriptions(list) => list.len(),
            Answer::Rules(list) => list.len(),
            Answer::Messages(list) => list.len(),
            Answer::Sessions(list) => list.len(),
            Answer::Renewed(list) => list.len(),
            _ => 1,
        }
    }
}

/// A session and until when it is locked (S-142).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedSession {
    pub id: Arc<str>,
    pub until: LocalTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Accepted { link: LinkId, delivery: u32 },
    Deliver { link: LinkId, mode: ReceiveMode, delivery: Delivery },
    Settled { link: LinkId, delivery: u32, outcome: Settled },
    Answered { request: RequestId, answer: Result<Answer, Refusal> },
    Notice(Notice),
}

/// What a link is told as it is here: the engine joins nothing to it and adds no bytes, as it does for the other effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Attached {
        link: LinkId,
        max_message_bytes: u64,
        /// The sender must say by which ids messages are known (S-160).
        wants_ids: bool,
        /// The session that a receiver holds now.
        session: Option<Box<AcceptedSession>>,
    },
    /// The attach is refused, or the link's entity is gone.
    Detached {
        link: LinkId,
        refusal: Refusal,
    },
    Rejected {
        link: LinkId,
        delivery: u32,
        refusal: Refusal,
    },
    /// A part of a large message is out of the sender's hands: stored, or not worth storing.
    PartTaken {
        link: LinkId,
        length: u32,
    },
    /// All credit that was not used is void; the receiver is told so.
    Drained {
        link: LinkId,
    },
    NotSettled {
        link: LinkId,
        delivery: u32,
        refusal: Refusal,
    },
    /// A transaction has begun.
    Declared {
        link: LinkId,
        delivery: u32,
        transaction: TransactionId,
    },
    /// A send, or a settlement with its outcome, will be done when its transaction is committed.
    Staged {
        link: LinkId,
        delivery: u32,
        transaction: TransactionId,
        outcome: Option<Settled>,
    },
}

impl Notice {
    pub fn link(&self) -> LinkId {
        match self {
            Notice::Attached { link, .. }
            | Notice::Detached { link, .. }
            | Notice::Rejected { link, .. }
            | Notice::PartTaken { link, .. }
            | Notice::Drained { link }
            | Notice::NotSettled { link, .. }
            | Notice::Declared { link, .. }
            | Notice::Staged { link, .. } => *link,
        }
    }
}

impl From<Notice> for Effect {
    fn from(notice: Notice) -> Effect {
        Effect::Notice(notice)
    }
}

impl Effect {
    /// Whom it goes to.
    pub fn connection(&self) -> ConnectionId {
        match self {
            Effect::Accepted { link, .. } | Effect::Deliver { link, .. } | Effect::Settled { link, .. } => {
                link.connection
            }
            Effect::Answered { request, .. } => request.connection,
            Effect::Notice(notice) => notice.link().connection,
        }
    }
}
