//! What is committed, as the oracle keeps it: a plain model of each queue beside a replayed [`Durable`], so that the
//! broker's own state can be held against both.

use super::clock::Clocks;
use super::duplicate::History;
use super::forward::{Travelled, forwards};
use super::topic::{Subscription, Topic};
use crate::rules::Traits;
use broker::ids::{IdHasher, IdMap};
use broker::limits::SMALL_OVERLAY_BYTES;
use broker::queue::index::Reason;
use broker::{
    BodyId, Counts, Delivery, Durable, EntityId, KeptLock, LocalTime, NamespaceId, Number, QueueSettings,
    Sequence, Span, State, StoredOverlay, SubQueue, Time,
};
use message::Overlay;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// The sub-queues of an entity from which messages are received.
pub const SUB_QUEUES: [SubQueue; 3] = [SubQueue::Main, SubQueue::DeadLetter, SubQueue::TransferDeadLetter];

/// How the paths of dead-letter queues end, folded.
const DEAD_LETTERS: &str = "/$deadletterqueue";
const TRANSFER_DEAD_LETTERS: &str = "/$transfer/$deadletterqueue";

/// A message in a sub-queue of an entity.
#[derive(Debug)]
pub struct Present {
    /// Index into the oracle's messages.
    pub message: usize,
    pub length: u32,
    pub count: u32,
    /// The turn in which it came to where it is.
    pub stored: u64,
    /// The append with which it came.
    pub position: u64,
    pub enqueued: LocalTime,
    /// When it expires; when it is due while it is scheduled.
    pub expires: LocalTime,
    pub state: State,
    pub sub: SubQueue,
    pub reason: Reason,
    pub overlay: Overlay,
    /// The session that it is in.
    pub session: Option<Arc<str>>,
    pub travelled: Travelled,
    /// What rules see of it.
    pub traits: Traits,
}

impl Present {
    /// A message that has just come, as its sender made it; free, and living for ever.
    pub fn arrived(message: usize, length: u32, stored: u64, position: u64, enqueued: LocalTime) -> Present {
        Present {
            message,
            length,
            count: 0,
            stored,
            position,
            enqueued,
            expires: LocalTime::NEVER,
            state: State::Active,
            sub: SubQueue::Main,
            reason: Reason::Client,
            overlay: Overlay::default(),
            session: None,
            travelled: Travelled::default(),
            traits: Traits::of(message),
        }
    }

    /// What a receiver must be shown as changed properties: with the words of the reason (S-60, S-87).
    pub fn shown(&self) -> Overlay {
        let (reason, description) = match self.reason {
            Reason::Client => return self.overlay.clone(),
            Reason::Expired => {
                ("TTLExpiredException", "The message expired and was dead lettered.".to_owned())
            }
            Reason::MaxDeliveryCount => (
                "MaxDeliveryCountExceeded",
                format!("Message could not be consumed after {} delivery attempts.", self.count),
            ),
            Reason::MaxTransferHops => (
                "MaxTransferHopCountExceeded",
                "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to 4."
                    .to_owned(),
            ),
            Reason::NotForwarded => (
                "ForwardingFailed",
                "The entity that the message was to be forwarded to is full, disabled or gone.".to_owned(),
            ),
            Reason::DestinationDisabled => (
                "DestinationDisabled",
                "The entity that the message was sent to by way of this one takes no messages.".to_owned(),
            ),
            Reason::SessionMissing => (
                "Session id is null.",
                "Session enabled entity doesn't allow a message whose session identifier is null.".to_owned(),
            ),
        };
        let mut shown = Overlay::default();
        let is_set = shown.set_dead_letter(Some(reason), Some(&description)).is_ok();
        if is_set && shown.merge(&self.overlay).is_ok() { shown } else { self.overlay.clone() }
    }

    /// What it takes of the disk: changed properties count where they are not small.
    pub fn bytes(&self) -> u64 {
        let overlay = Some(&self.overlay).filter(|overlay| is_large(overlay));
        u64::from(self.length) + overlay.map_or(0, |overlay| overlay.encoded_bytes() as u64)
    }

    /// Whether it is in none of the dead-letter queues.
    pub fn is_main(&self) -> bool {
        self.sub == SubQueue::Main
    }

    /// Whether it ends by itself at a time (S-51, S-64, S-65).
    pub fn is_mortal(&self) -> bool {
        self.state == State::Active && self.is_main()
    }
}

/// What holds messages.
#[derive(Debug)]
pub enum Kind {
    Queue,
    Topic(Box<Topic>),
    Subscription(Box<Subscription>),
}

/// Messages by a time of theirs, the earliest first.
pub type Times = BTreeSet<(LocalTime, Sequence)>;

/// A queue, or what a topic or a subscription holds, which lives by the same rules.
#[derive(Debug)]
pub struct Queue {
    pub kind: Kind,
    pub namespace: NamespaceId,
    pub path: String,
    /// The partition in the numbers of its messages, if it is partitioned.
    pub partition: u32,
    pub settings: QueueSettings,
    pub next: Sequence,
    pub last_enqueued: LocalTime,
    /// In boxes, since they are many, large, and move when one between them goes.
    pub present: BTreeMap<Sequence, Box<Present>>,
    pub bytes: u64,
    pub counts: Counts,
    /// Messages that end by themselves, by the time at which they do.
    pub expiries: Times,
    pub schedule: Times,
    /// The newest message that was handed out in this turn, from each of its sub-queues.
    pub newest_in_turn: [Sequence; 3],
    /// The same for each session.
    pub newest_by_session: BTreeMap<Arc<str>, Sequence>,
    /// States of sessions: the body that each has, and its length.
    pub states: BTreeMap<Arc<str>, (BodyId, u32)>,
    /// Sessions whose state was set in this turn.
    pub states_in_turn: BTreeSet<Arc<str>>,
    /// Lock durations that hold in this turn, updates that were asked for included.
    pub durations: Vec<Span>,
    /// Messages that left for good in this turn.
    pub removed_in_turn: u32,
    /// It was certainly used then.
    pub used: LocalTime,
    /// It was perhaps used then, and not later.
    pub touched: LocalTime,
    pub is_touched: bool,
    /// The turn in which it was made.
    pub made: u64,
    /// Which of its sub-queues forwarded when this turn began.
    pub did_forward: [bool; 3],
    /// The ids that it has taken.
    pub history: History,
}

impl Queue {
    pub fn new(
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        entity: EntityId,
        turn: u64,
        time: LocalTime,
    ) -> Queue {
        Queue {
            kind: Kind::Queue,
            namespace,
            partition: entity.0 % 16,
            path: path.to_owned(),
            settings: settings.clone(),
            next: Sequence(1),
            last_enqueued: time,
            present: BTreeMap::new(),
            bytes: 0,
            counts: Counts::default(),
            expiries: BTreeSet::new(),
            schedule: BTreeSet::new(),
            newest_in_turn: [Sequence(0); 3],
            newest_by_session: BTreeMap::new(),
            states: BTreeMap::new(),
            states_in_turn: BTreeSet::new(),
            durations: vec![settings.lock_duration],
            removed_in_turn: 0,
            used: time,
            touched: time,
            is_touched: true,
            made: turn,
            did_forward: [false; 3],
            history: History::new(settings),
        }
    }

    pub fn insert(&mut self, sequence: Sequence, present: Present) {
        *count(&mut self.counts, &present) += 1;
        self.bytes += present.bytes();
        if let Some(times) = times(&mut self.schedule, &mut self.expiries, &present) {
            times.insert((present.expires, sequence));
        }
        self.present.insert(sequence, Box::new(present));
    }

    pub fn remove(&mut self, sequence: Sequence) -> Option<Box<Present>> {
        let present = self.present.remove(&sequence)?;
        *count(&mut self.counts, &present) -= 1;
        self.bytes -= present.bytes();
        if let Some(times) = times(&mut self.schedule, &mut self.expiries, &present) {
            times.remove(&(present.expires, sequence));
        }
        Some(present)
    }

    /// Changes what has become of a message.
    pub fn change(&mut self, sequence: Sequence, change: impl FnOnce(&mut Present)) {
        let Some(present) = self.present.get_mut(&sequence) else { return };
        *count(&mut self.counts, present) -= 1;
        self.bytes -= present.bytes();
        if let Some(times) = times(&mut self.schedule, &mut self.expiries, present) {
            times.remove(&(present.expires, sequence));
        }
        change(present);
        *count(&mut self.counts, present) += 1;
        self.bytes += present.bytes();
        if let Some(times) = times(&mut self.schedule, &mut self.expiries, present) {
            times.insert((present.expires, sequence));
        }
    }

    /// Whether it remembers the sessions of its messages: somebody may ask for them, here or where they go on to.
    pub fn keeps_sessions(&self) -> bool {
        let QueueSettings { requires_session, forward_to, forward_dead_letters_to, .. } = &self.settings;
        let is_asked = *requires_session || matches!(self.kind, Kind::Topic(_));
        is_asked || forward_to.is_some() || forward_dead_letters_to.is_some()
    }

    /// Whether anybody can receive from it.
    pub fn may_receive(&self) -> bool {
        self.settings.status.may_receive()
    }

    /// The number by which clients know a message: with the partition in its top 16 bits, if there is one (S-32).
    pub fn number(&self, sequence: Sequence) -> Number {
        match self.settings.partitioning {
            true => Number(u64::from(self.partition) << 48 | sequence.0),
            false => Number(sequence.0),
        }
    }

    fn end_turn(&mut self, now: LocalTime) {
        self.newest_in_turn = [Sequence(0); 3];
        self.newest_by_session.clear();
        self.states_in_turn.clear();
        self.removed_in_turn = 0;
        if self.durations.len() > 1 {
            self.durations = vec![self.settings.lock_duration];
        }
        self.did_forward = SUB_QUEUES.map(|sub| forwards(&self.settings, sub));
        self.history.end_turn(self.settings.duplicate_window);
        if let Kind::Topic(topic) = &mut self.kind {
            topic.end_turn();
        }
        if std::mem::take(&mut self.is_touched) {
            self.touched = now;
        }
    }
}

/// Where a message is counted.
fn count<'a>(counts: &'a mut Counts, present: &Present) -> &'a mut u64 {
    match (present.sub, present.state) {
        (SubQueue::DeadLetter, _) => &mut counts.dead_letter,
        (SubQueue::TransferDeadLetter, _) => &mut counts.transfer_dead_letter,
        (SubQueue::Main, State::Active) => &mut counts.active,
        (SubQueue::Main, State::Deferred) => &mut counts.deferred,
        (SubQueue::Main, State::Scheduled) => &mut counts.scheduled,
        (SubQueue::Main, State::Gone) => unreachable!("what is gone is not in the model"),
    }
}

/// Where a message is noted by its time, if it has one.
fn times<'a>(schedule: &'a mut Times, expiries: &'a mut Times, present: &Present) -> Option<&'a mut Times> {
    match present.state {
        State::Scheduled => Some(schedule),
        _ if present.is_mortal() && !present.expires.is_never() => Some(expiries),
        _ => None,
    }
}

#[derive(Debug)]
pub struct Ledger {
    pub position: u64,
    pub replayed: Durable,
    pub queues: BTreeMap<EntityId, Queue>,
    /// Queues, topics and subscriptions by their folded path.
    pub names: HashMap<String, EntityId, BuildHasherDefault<IdHasher>>,
    /// Queues that are gone: how their messages were locked, and the turn in which they went.
    pub deleted: BTreeMap<EntityId, (u64, Queue)>,
    /// The turn in which one went last.
    pub last_deletion: u64,
    /// The hash of each stored body.
    pub bodies: IdMap<u64, u64>,
    /// Those that are changed properties of a message.
    pub overlays: IdMap<u64, Overlay>,
    /// The number of the message that begins with a body.
    pub numbers: IdMap<BodyId, usize>,
    /// Messages that were removed.
    pub removed: IdMap<(EntityId, Sequence), Box<Present>>,
    /// Messages that were forwarded, by where they were.
    pub moved: IdMap<(EntityId, Sequence), usize>,
    /// Locks that a planned stop has left, while that is the last record.
    pub kept: Vec<KeptLock>,
}

/// Whether changed properties are in a body of their own.
pub fn is_large(overlay: &Overlay) -> bool {
    overlay.encoded_bytes() > SMALL_OVERLAY_BYTES
}

impl Ledger {
    /// What a delivery shows as changed properties, if it is what was stored.
    pub fn changes_of(&self, delivery: &Delivery) -> Option<Overlay> {
        let mut stored = Vec::new();
        if let Some(StoredOverlay { body, length }) = delivery.stored_overlay() {
            self.overlays.get(&body.0)?.encode(&mut stored);
            if stored.len() != length as usize {
                return None;
            }
        }
        Some(delivery.changes(&stored).ok()?.map(Cow::into_owned).unwrap_or_default())
    }
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            position: 0,
            replayed: Durable::new(),
            queues: BTreeMap::new(),
            names: HashMap::default(),
            deleted: BTreeMap::new(),
            last_deletion: 0,
            bodies: IdMap::default(),
            overlays: IdMap::default(),
            numbers: IdMap::default(),
            removed: IdMap::default(),
            moved: IdMap::default(),
            kept: Vec::new(),
        }
    }
}

/// The path of the queue, folded, and the sub-queue that is meant.
pub fn split(path: &str) -> (String, SubQueue) {
    let mut path = path.to_lowercase();
    let (length, sub) = match path.strip_suffix(TRANSFER_DEAD_LETTERS) {
        Some(queue) => (queue.len(), SubQueue::TransferDeadLetter),
        None => match path.strip_suffix(DEAD_LETTERS) {
            Some(queue) => (queue.len(), SubQueue::DeadLetter),
            None => (path.len(), SubQueue::Main),
        },
    };
    path.truncate(length);
    (path, sub)
}

/// The path of a sub-queue.
pub fn path_of(queue: &str, sub: SubQueue) -> String {
    match sub {
        SubQueue::Main => queue.to_owned(),
        SubQueue::DeadLetter => format!("{queue}/$DeadLetterQueue"),
        SubQueue::TransferDeadLetter => format!("{queue}/$Transfer/$DeadLetterQueue"),
    }
}

impl Ledger {
    /// The queue that a path means, also by its dead-letter queue.
    pub fn find(&self, path: &str) -> Option<EntityId> {
        let sub = || path.strip_suffix(TRANSFER_DEAD_LETTERS).or_else(|| path.strip_suffix(DEAD_LETTERS));
        let found = self.names.get(path).or_else(|| self.names.get(sub()?)).copied();
        let is_folded = || !path.contains(char::is_uppercase);
        found.or_else(|| if is_folded() { None } else { self.find(&path.to_lowercase()) })
    }

    pub fn end_turn(&mut self, now: Time, clocks: &Clocks) {
        self.queues.values_mut().for_each(|queue| queue.end_turn(clocks.at(queue.namespace, now)));
    }

    /// What the subscriptions of a topic hold; of anything else, nothing (S-235).
    pub fn below(&self, queue: &Queue) -> u64 {
        let Kind::Topic(topic) = &queue.kind else { return 0 };
        topic.subscriptions.values().filter_map(|entity| Some(self.queues.get(entity)?.bytes)).sum()
    }

    /// A topic with its subscriptions; of anything else, that alone.
    pub fn family<'a>(&'a self, queue: &'a Queue) -> impl Iterator<Item = &'a Queue> {
        let below = if let Kind::Topic(topic) = &queue.kind { Some(&topic.subscriptions) } else { None };
        let below = below.into_iter().flat_map(|below| below.values());
        below.filter_map(|entity| self.queues.get(entity)).chain([queue])
    }

    /// Holds a broker's counters against the model (S-233).
    pub fn compare(&self, live: &Durable) -> Result<(), String> {
        let mut models = self.queues.iter();
        for (entity, queue) in live.queues() {
            // Both are in the order of their ids.
            let Some((_, model)) = models.next().filter(|(expected, _)| **expected == entity) else {
                return Err(format!("queue {} should not exist, or another should", queue.path));
            };
            let (told, expected) = (
                (queue.counts, queue.own_bytes(), queue.next, queue.below),
                (model.counts, model.bytes, model.next, self.below(model)),
            );
            if told != expected {
                return Err(format!("queue {} counts {told:?}, {expected:?} expected", queue.path));
            }
        }
        models.next().map_or(Ok(()), |(_, model)| Err(format!("queue {} should exist", model.path)))
    }
}
