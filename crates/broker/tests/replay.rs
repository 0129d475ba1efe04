//! Whatever is asked, in whatever order: the records alone rebuild the state, numbers have no gaps, and a message is
//! handed out only when it is committed.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use message::{Overlay, Value};
use otobus_broker::durable::Kind;
use otobus_broker::limits::SMALL_OVERLAY_BYTES;
use otobus_broker::topic::published::Origin;
use otobus_broker::topic::rule::{Filter, Rule, Sql};
use otobus_broker::topic::settings::{SubscriptionSettings, TopicSettings};
use otobus_broker::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// As long as any queue here locks its messages.
const LONGEST_LOCK: Span = Span::minutes(1);

/// The queue that requires sessions.
const SESSIONS: u8 = 2;

/// The topic, the subscription that selects, and the one that takes everything.
const TOPIC: u8 = 3;
const SELECTING: u8 = 4;
const ALL: u8 = 5;

/// A queue that is there from the beginning and takes no messages.
const CLOSED: u8 = 6;

/// What may happen. Links, queues and tokens are named by small numbers, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Create(u8, u64, u8),
    Update(u8, u64, u8),
    Delete(u8),
    AttachSender(u8, u8),
    AttachVia { link: u8, queue: u8, destination: u8 },
    AttachLost(u8, u8),
    AttachReceiver { link: u8, queue: u8, is_dead: bool, locks: bool },
    Detach(u8),
    Send { link: u8, lengths: Vec<u32>, is_settled: bool, life: u32, later: u32 },
    Schedule { queue: u8, later: u32 },
    Cancel { queue: u8, number: u64 },
    ReceiveDeferred { queue: u8, is_dead: bool, number: u64, locks: bool },
    Browse { queue: u8, is_dead: bool, from: u64 },
    Purge { queue: u8, is_dead: bool, most: u32 },
    SettleToken { queue: u8, is_dead: bool, token: u8, outcome: u8 },
    Renew { queue: u8, token: u8 },
    Accept { link: u8, queue: u8, session: Option<u8>, locks: bool },
    RenewSession { queue: u8, session: u8 },
    SetState { queue: u8, session: u8, length: Option<u32> },
    GetState { queue: u8, session: u8 },
    Part(u8, u32),
    DropParts(u8),
    Credit { link: u8, more: u8, drain: bool },
    Settle { link: u8, token: u8, outcome: u8 },
    Commit,
    Wait(u32),
    Advance(u32),
    Restart { is_planned: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let (link, queue, is_dead) = (0..6_u8, 0..6_u8, prop::bool::weighted(0.3));
    let (life, later) = (0..60_000_u32, 0..60_000_u32);
    prop_oneof![
        2 => (queue.clone(), 5..20_u64, any::<u8>())
            .prop_map(|(queue, lock, flags)| Step::Create(queue, lock, flags)),
        1 => (queue.clone(), 5..20_u64, any::<u8>())
            .prop_map(|(queue, lock, flags)| Step::Update(queue, lock, flags)),
        1 => queue.clone().prop_map(Step::Delete),
        3 => (link.clone(), queue.clone()).prop_map(|(link, queue)| Step::AttachSender(link, queue)),
        5 => (link.clone(), queue.clone(), prop_oneof![Just(CLOSED), queue.clone()])
            .prop_map(|(link, queue, destination)| Step::AttachVia { link, queue, destination }),
        2 => (link.clone(), queue.clone()).prop_map(|(link, queue)| Step::AttachLost(link, queue)),
        3 => (link.clone(), queue.clone(), is_dead, any::<bool>())
            .prop_map(|(link, queue, is_dead, locks)| Step::AttachReceiver { link, queue, is_dead, locks }),
        2 => (queue.clone(), 0..30_000_u32).prop_map(|(queue, later)| Step::Schedule { queue, later }),
        1 => (queue.clone(), 0..30_u64).prop_map(|(queue, number)| Step::Cancel { queue, number }),
        3 => (queue.clone(), is_dead, 0..30_u64, any::<bool>()).prop_map(
            |(queue, is_dead, number, locks)| Step::ReceiveDeferred { queue, is_dead, number, locks }
        ),
        1 => (queue.clone(), is_dead, 0..30_u64)
            .prop_map(|(queue, is_dead, from)| Step::Browse { queue, is_dead, from }),
        1 => (queue.clone(), is_dead, 0..5_u32)
            .prop_map(|(queue, is_dead, most)| Step::Purge { queue, is_dead, most }),
        4 => (queue.clone(), is_dead, any::<u8>(), 0..7_u8).prop_map(
            |(queue, is_dead, token, outcome)| Step::SettleToken { queue, is_dead, token, outcome }
        ),
        1 => (queue.clone(), any::<u8>()).prop_map(|(queue, token)| Step::Renew { queue, token }),
        4 => (link.clone(), prop::option::weighted(0.5, 0..3_u8), prop::bool::weighted(0.8)).prop_map(
            |(link, session, locks)| Step::Accept { link, queue: SESSIONS, session, locks }
        ),
        1 => (queue.clone(), 0..3_u8).prop_map(|(queue, session)| Step::RenewSession { queue, session }),
        1 => (0..3_u8, prop::option::of(0..300_000_u32))
            .prop_map(|(session, length)| Step::SetState { queue: SESSIONS, session, length }),
        1 => (queue, 0..3_u8).prop_map(|(queue, session)| Step::GetState { queue, session }),
        1 => link.clone().prop_map(Step::Detach),
        8 => (link.clone(), prop::collection::vec(0..400_000_u32, 1..5), any::<bool>(), life, later).prop_map(
            |(link, lengths, is_settled, life, later)| Step::Send { link, lengths, is_settled, life, later }
        ),
        2 => (link.clone(), 0..600_000_u32).prop_map(|(link, length)| Step::Part(link, length)),
        1 => link.clone().prop_map(Step::DropParts),
        6 => (link.clone(), 0..9_u8, prop::bool::weighted(0.2))
            .prop_map(|(link, more, drain)| Step::Credit { link, more, drain }),
        8 => (link, any::<u8>(), 0..7_u8)
            .prop_map(|(link, token, outcome)| Step::Settle { link, token, outcome }),
        6 => Just(Step::Commit),
        2 => (0..9_000_u32).prop_map(Step::Wait),
        1 => (0..90_000_u32).prop_map(Step::Advance),
        1 => any::<bool>().prop_map(|is_planned| Step::Restart { is_planned }),
    ]
}

/// A broker, and everything that is known of it from outside.
struct Rig {
    broker: Broker,
    decision: Decision,
    now: Time,
    position: Position,
    committed: Position,
    /// Rebuilt from the records alone, each after having been written and read.
    replayed: Durable,
    /// The link that a small number stands for now.
    links: BTreeMap<u8, LinkId>,
    made_links: u32,
    delivered: BTreeMap<LinkId, u64>,
    tokens: Vec<LockToken>,
    next_body: u64,
    next: BTreeMap<EntityId, u64>,
    /// The position at which each body was recorded.
    recorded: BTreeMap<BodyId, Position>,
    /// Who holds which session of the queue that requires them.
    holders: BTreeMap<Box<str>, LinkId>,
    /// What a receiver was to receive from, and whether that is a dead-letter queue.
    sources: BTreeMap<LinkId, (u8, bool)>,
    /// Every record as it was written, and its time.
    journal: Vec<(Vec<u8>, Time)>,
    /// Bodies that the broker has made.
    made: BTreeMap<BodyId, Vec<u8>>,
}

fn settings(queue: u8, lock: u64, flags: u8) -> QueueSettings {
    let usual = QueueSettings::default();
    QueueSettings {
        lock_duration: Span::seconds(lock),
        max_size_megabytes: 1,
        requires_session: queue == SESSIONS,
        dead_letter_on_expiration: flags & 1 != 0,
        max_delivery_count: if flags & 2 != 0 { 2 } else { 10 },
        default_time_to_live: if flags & 4 != 0 { Span::seconds(20) } else { Span::MAX },
        auto_delete_on_idle: if flags & 0x38 == 0x38 { Span::minutes(5) } else { Span::MAX },
        status: if flags & 0xc0 == 0xc0 { Status::SendDisabled } else { Status::Active },
        ..usual
    }
}

/// Where messages are sent and received: queues, then a topic and its subscriptions.
fn path_of(queue: u8) -> String {
    match queue {
        TOPIC => "topic".to_owned(),
        SELECTING | ALL => format!("topic/Subscriptions/{queue}"),
        queue => format!("queue-{queue}"),
    }
}

/// What creates an entity, or changes one that is there.
fn making(queue: u8, lock: u64, flags: u8, is_new: bool) -> Task {
    let QueueSettings {
        lock_duration,
        dead_letter_on_expiration,
        max_delivery_count,
        default_time_to_live,
        auto_delete_on_idle,
        ..
    } = settings(queue, lock, flags);
    let (path, access) = (path_of(queue).into(), Vec::new());
    if queue == TOPIC {
        let settings =
            TopicSettings { default_time_to_live, auto_delete_on_idle, ..TopicSettings::default() };
        return match is_new {
            true => Task::CreateTopic { path, settings, access },
            false => Task::UpdateTopic { path, settings, access },
        };
    }
    if queue < TOPIC {
        return Task::UpdateQueue { path, settings: settings(queue, lock, flags), access };
    }
    let settings = SubscriptionSettings {
        lock_duration,
        dead_letter_on_expiration,
        max_delivery_count,
        default_time_to_live,
        auto_delete_on_idle,
        dead_letter_on_filter_exceptions: flags & 8 != 0,
        ..SubscriptionSettings::default()
    };
    let (topic, name) = ("topic".into(), queue.to_string().into());
    // What is sent has no bytes here, so that its filter fails; what is read has no properties.
    let sql = Sql { expression: "missing IS NULL".into(), parameters: Vec::new() };
    let action = (flags & 16 != 0).then(|| Sql { expression: "SET a = 1".into(), parameters: Vec::new() });
    let filter = if queue == ALL { Filter::True } else { Filter::Sql(sql) };
    let rule = Some(Rule { name: "rule".into(), filter, action });
    match is_new {
        true => Task::CreateSubscription { topic, name, settings, rule },
        false => Task::UpdateSubscription { topic, name, settings },
    }
}

fn outcome_of(outcome: u8) -> Outcome {
    let mut changes = Overlay::default();
    changes.set("attempt", &Value::Ubyte(outcome)).unwrap();
    if outcome.is_multiple_of(2) {
        changes.set("trace", &Value::Binary(vec![outcome; SMALL_OVERLAY_BYTES])).unwrap();
    }
    let changes = Some(Box::new(changes));
    match outcome {
        0 => Outcome::Complete,
        1 => Outcome::Abandon(None),
        2 => Outcome::Abandon(changes),
        3 => Outcome::Release,
        4 => Outcome::Defer(changes),
        5 => Outcome::DeadLetter(changes),
        _ => Outcome::DeadLetter(None),
    }
}

fn session_of(number: &u8) -> Box<str> {
    format!("session-{number}").into()
}

/// Messages of one delivery are in three sessions in turn.
fn sessions(count: usize) -> SessionIds {
    SessionIds::new(count, (0..count).map(|at| (at, session_of(&(at as u8 % 3)).into())))
}

/// Asked by the connection that has the links.
fn held() -> RequestId {
    RequestId { connection: ConnectionId(1), request: 0 }
}

impl Rig {
    fn new() -> Rig {
        Rig {
            broker: Broker::new(Durable::new(), 77),
            decision: Decision::default(),
            now: Time(1_000),
            position: Position(1),
            committed: Position(0),
            replayed: Durable::new(),
            links: BTreeMap::new(),
            made_links: 0,
            delivered: BTreeMap::new(),
            tokens: Vec::new(),
            next_body: 1,
            next: BTreeMap::new(),
            recorded: BTreeMap::new(),
            holders: BTreeMap::new(),
            sources: BTreeMap::new(),
            journal: Vec::new(),
            made: BTreeMap::new(),
        }
    }

    fn close(&mut self) {
        let settings = Box::new(QueueSettings { status: Status::SendDisabled, ..QueueSettings::default() });
        let (request, namespace, path) = (RequestId::default(), NamespaceId(0), path_of(CLOSED).into());
        self.command(&Command::CreateQueue { request, namespace, path, settings }, &[]);
    }

    fn context(&self) -> Context {
        Context { now: self.now, position: self.position }
    }

    fn new_link(&mut self, number: u8) -> LinkId {
        self.made_links += 1;
        let link = LinkId { connection: ConnectionId(1), link: self.made_links };
        if let Some(before) = self.links.insert(number, link) {
            self.holders.retain(|_, holder| *holder != before);
            self.command(&Command::Detach { link: before }, &[]);
        }
        link
    }

    fn link(&self, number: u8) -> LinkId {
        self.links.get(&number).copied().unwrap_or_default()
    }

    fn command(&mut self, command: &Command, messages: &[Incoming]) {
        let context = self.context();
        let arrivals = Arrivals::of(messages);
        match self.broker.decide(command, arrivals, Material::NONE, context, &mut self.decision) {
            Decided::Done => {}
            Decided::Needs(Needs(needs)) => {
                let material: Material =
                    needs.iter().map(|need| need.found(&self.stored(need.body))).collect();
                let decided = self.broker.decide(
                    command,
                    Arrivals::of(messages),
                    &material,
                    context,
                    &mut self.decision,
                );
                assert_eq!(decided, Decided::Done, "a command asks once");
            }
        }
        self.take();
    }

    /// What the broker has made; what has arrived has no bytes here.
    fn stored(&self, body: BodyId) -> Vec<u8> {
        self.made.get(&body).cloned().unwrap_or_default()
    }

    /// Looks at what was decided.
    fn take(&mut self) {
        while let Some(request) = self.decision.read_requests.pop() {
            if request.wants_content {
                let read = |(sequence, bodies): &(Sequence, Vec<BodyId>)| {
                    let bytes = bodies.iter().map(|body| self.stored(*body).into());
                    (*sequence, (sequence.0 % 3 != 0).then(|| Read::of(bytes)))
                };
                let fronts = request.messages.iter().map(read).collect();
                let context = self.context();
                self.broker.contents_read(request.source, fronts, context, &mut self.decision);
                continue;
            }
            // Every third message cannot be read for now.
            let sequences = request.messages.iter().map(|(sequence, _)| *sequence);
            let (damaged, whole): (Vec<_>, Vec<_>) = sequences.partition(|sequence| sequence.0 % 3 == 0);
            let context = self.context();
            self.broker.checked(request.source, &whole, &damaged, context, &mut self.decision);
        }
        let decision = std::mem::take(&mut self.decision);
        for (nth, body) in decision.bodies.iter().enumerate() {
            if let Body::Made(Intake { offset, length }) = body {
                let bytes = decision.made[*offset as usize..][..*length as usize].to_vec();
                self.made.insert(BodyId(self.next_body + nth as u64), bytes);
            }
        }
        for record in &decision.records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let read = Record::decode(&mut &bytes[..]).unwrap();
            assert_eq!(&read, record);
            self.replayed.apply(&read, self.now);
            self.journal.push((bytes, self.now));
            self.check_numbers(record);
        }
        for release in &decision.effects {
            if let Effect::Answered { answer: Ok(Answer::Messages(messages)), .. } = &release.effect {
                self.tokens.extend(messages.iter().map(|message| message.token));
            }
            self.check_holders(&release.effect);
            if let Effect::Deliver { link, delivery, mode } = &release.effect {
                assert!(
                    self.recorded[&delivery.body] <= self.committed,
                    "handed out before it was committed"
                );
                if let Some(stored) = delivery.stored_overlay() {
                    assert!(self.recorded[&stored.body] <= self.committed, "and so are its changes");
                    let changes = delivery.changes(&self.made[&stored.body]).unwrap();
                    assert!(changes.unwrap().encoded_bytes() > SMALL_OVERLAY_BYTES);
                }
                assert_eq!(release.is_free, *mode == ReceiveMode::PeekLock);
                // S-82, in the time of the namespace, however far that was moved.
                let locks = self.local()..=self.local().after(LONGEST_LOCK);
                assert!(delivery.locked_until.is_none_or(|until| locks.contains(&until)), "{delivery:?}");
                *self.delivered.entry(*link).or_default() += 1;
                self.tokens.push(delivery.token);
            }
        }
    }

    /// A session has one holder at a time, and its messages go to nobody else.
    fn check_holders(&mut self, effect: &Effect) {
        match effect {
            Effect::Notice(Notice::Attached { link, session: Some(session), .. }) => {
                let before = self.holders.insert((&*session.id).into(), *link);
                assert_eq!(before, None, "session {} has a holder", session.id);
            }
            Effect::Notice(Notice::Detached { link, .. }) => self.holders.retain(|_, holder| holder != link),
            Effect::Deliver { link, .. } => {
                let holds = self.holders.values().any(|holder| holder == link);
                let source = self.sources.get(link).copied();
                assert_eq!(holds, source == Some((SESSIONS, false)), "{source:?}");
            }
            _ => {}
        }
    }

    /// Body ids and sequence numbers are handed out one after another.
    fn check_numbers(&mut self, record: &Record) {
        match record {
            Record::PartStored { body } | Record::OverlayStored { body, .. } => self.take_body(*body),
            Record::SessionStateSet { state: Some((body, _)), .. } => self.take_body(*body),
            Record::Enqueued { entity, sequence, body, .. }
            | Record::TransferDeadLettered { entity, sequence, body, .. }
            | Record::Scheduled { entity, sequence, body, .. } => {
                self.take_body(*body);
                self.take_number(*entity, *sequence);
            }
            Record::Activated { entity, sequence, .. } | Record::Skipped { entity, sequence } => {
                self.take_number(*entity, *sequence);
            }
            Record::Published(published) => {
                if let Origin::Sent { body, .. } = published.origin {
                    self.take_body(body);
                }
                self.take_number(published.topic, published.sequence);
                for copy in &published.copies {
                    *self.next.entry(copy.subscription).or_insert(1) += 1;
                }
            }
            _ => {}
        }
    }

    fn take_number(&mut self, entity: EntityId, sequence: Sequence) {
        let next = self.next.entry(entity).or_insert(1);
        assert_eq!(sequence.0, *next);
        *next += 1;
    }

    fn take_body(&mut self, body: BodyId) {
        assert_eq!(body.0, self.next_body);
        self.next_body += 1;
        self.recorded.insert(body, self.position);
    }

    fn step(&mut self, step: &Step) {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let path = |queue: &u8| path_of(*queue).into_boxed_str();
        let part = |queue: &u8, is_dead: &bool| {
            let suffix = if *is_dead { "/$DeadLetterQueue" } else { "" };
            format!("{}{suffix}", path_of(*queue)).into_boxed_str()
        };
        let mode = |locks: &bool| if *locks { ReceiveMode::PeekLock } else { ReceiveMode::ReceiveAndDelete };
        match step {
            Step::Create(queue, lock, flags) if *queue >= TOPIC => {
                let task = Box::new(making(*queue, *lock, *flags, true));
                self.command(&Command::Manage { request, namespace, task }, &[]);
            }
            Step::Create(queue, lock, flags) => {
                let (path, settings) = (path(queue), Box::new(settings(*queue, *lock, *flags)));
                self.command(&Command::CreateQueue { request, namespace, path, settings }, &[]);
            }
            Step::Update(queue, lock, flags) => {
                let task = Box::new(making(*queue, *lock, *flags, false));
                self.command(&Command::Manage { request, namespace, task }, &[]);
            }
            Step::Schedule { queue, later } => {
                let scheduled = self.local().after(Span(u64::from(*later)));
                let message = Incoming { scheduled, ..Incoming::new(Intake { offset: 0, length: 9 }) };
                let path = path(queue);
                let sessions = sessions(1);
                self.command(
                    &Command::Schedule { request, namespace, path, messages: 0..1, sessions },
                    &[message],
                );
            }
            Step::Cancel { queue, number } => {
                let (path, numbers) = (path(queue), [Number(*number)].into());
                self.command(&Command::CancelScheduled { request, namespace, path, numbers }, &[]);
            }
            Step::ReceiveDeferred { queue, is_dead, number, locks } => {
                let (path, numbers) = (part(queue, is_dead), [Number(*number)].into());
                let mode = mode(locks);
                let session = (*queue == SESSIONS).then(|| session_of(&(*number as u8 % 3)));
                self.command(
                    &Command::ReceiveDeferred { request, namespace, path, numbers, mode, session },
                    &[],
                );
            }
            Step::Browse { queue, is_dead, from } => {
                let (path, from) = (part(queue, is_dead), Number(*from));
                let session = (from.0 % 2 == 0).then(|| session_of(&0));
                self.command(&Command::Browse { request, namespace, path, from, most: 9, session }, &[]);
            }
            Step::Purge { queue, is_dead, most } => {
                let (path, most, before) = (part(queue, is_dead), *most, LocalTime::NEVER);
                let session = (most % 2 == 0).then(|| session_of(&0));
                self.command(
                    &Command::DeleteMessages { request, namespace, path, most, before, session },
                    &[],
                );
            }
            Step::SettleToken { queue, is_dead, token, outcome } => {
                let Some(token) = self.token(*token) else { return };
                let (path, tokens, outcome) = (part(queue, is_dead), [token].into(), outcome_of(*outcome));
                self.command(&Command::SettleTokens { request, namespace, path, tokens, outcome }, &[]);
            }
            Step::Renew { queue, token } => {
                let Some(token) = self.token(*token) else { return };
                let (path, tokens) = (path(queue), [token].into());
                self.command(&Command::RenewLocks { request, namespace, path, tokens }, &[]);
            }
            Step::Accept { link, queue, session, locks } => {
                let (path, mode) = (path(queue), mode(locks));
                let (link, session) = (self.new_link(*link), session.as_ref().map(session_of));
                self.sources.insert(link, (*queue, false));
                self.command(&Command::AcceptSession { link, namespace, path, mode, session }, &[]);
            }
            Step::RenewSession { queue, session } => {
                let (request, path, session) = (held(), path(queue), session_of(session));
                self.command(&Command::RenewSession { request, namespace, path, session }, &[]);
            }
            Step::SetState { queue, session, length } => {
                let (request, path, session) = (held(), path(queue), session_of(session));
                let state = length.map(|length| Intake { offset: 0, length });
                self.command(&Command::SetSessionState { request, namespace, path, session, state }, &[]);
            }
            Step::GetState { queue, session } => {
                let (request, path, session) = (held(), path(queue), session_of(session));
                self.command(&Command::GetSessionState { request, namespace, path, session }, &[]);
                let list = Command::ListSessions {
                    request,
                    namespace,
                    path: "queue-2".into(),
                    since: None,
                    skip: 0,
                    top: 9,
                };
                self.command(&list, &[]);
            }
            Step::Restart { is_planned } => self.restart(*is_planned),
            Step::Delete(queue) if *queue > TOPIC => {
                let (topic, name) = ("topic".into(), queue.to_string().into());
                let task = Box::new(Task::DeleteSubscription { topic, name });
                self.command(&Command::Manage { request, namespace, task }, &[]);
            }
            Step::Delete(queue) => {
                self.command(&Command::DeleteEntity { request, namespace, path: path(queue) }, &[]);
            }
            Step::AttachSender(number, queue) => {
                let link = self.new_link(*number);
                self.command(&Command::AttachSender { link, namespace, path: path(queue) }, &[]);
            }
            Step::AttachVia { link, queue, destination } => {
                let (link, path, destination) = (self.new_link(*link), path(queue), path(destination));
                self.command(&Command::AttachVia { link, namespace, path, destination }, &[]);
            }
            Step::AttachLost(link, queue) => {
                let path = format!("{}/$Transfer/$DeadLetterQueue", path_of(*queue)).into();
                let (queue, link, mode) = (*queue, self.new_link(*link), ReceiveMode::PeekLock);
                self.sources.insert(link, (queue, true));
                self.command(&Command::AttachReceiver { link, namespace, path, mode }, &[]);
            }
            Step::AttachReceiver { link, queue, is_dead, locks } => {
                let (path, mode) = (part(queue, is_dead), mode(locks));
                let (queue, is_dead, link) = (*queue, *is_dead, self.new_link(*link));
                self.sources.insert(link, (queue, is_dead));
                self.command(&Command::AttachReceiver { link, namespace, path, mode }, &[]);
            }
            Step::Detach(number) => {
                let link = self.link(*number);
                self.holders.retain(|_, holder| *holder != link);
                self.command(&Command::Detach { link }, &[]);
            }
            Step::Send { link, lengths, is_settled, life, later } => {
                self.send(*link, lengths, *is_settled, *life, *later);
            }
            Step::Part(link, length) => {
                let body = Intake { offset: 0, length: *length };
                self.command(&Command::Part { link: self.link(*link), body }, &[]);
            }
            Step::DropParts(link) => self.command(&Command::DropParts { link: self.link(*link) }, &[]),
            Step::Credit { link, more, drain } => {
                let link = self.link(*link);
                let limit = self.delivered.get(&link).copied().unwrap_or(0) + u64::from(*more);
                self.command(&Command::Credit { link, limit, drain: *drain }, &[]);
            }
            Step::Settle { link, token, outcome } => self.settle(*link, *token, *outcome),
            Step::Commit => self.commit(),
            Step::Wait(milliseconds) => self.wait(*milliseconds),
            Step::Advance(milliseconds) => self.advance(*milliseconds),
        }
    }

    /// Half of the messages live for ever, and half are for now.
    fn send(&mut self, link: u8, lengths: &[u32], is_settled: bool, life: u32, later: u32) {
        let usual = Incoming::new(Intake::default());
        let time_to_live = if life < 30_000 { Span(u64::from(life)) } else { usual.time_to_live };
        let scheduled =
            if later < 30_000 { self.local().after(Span(u64::from(later))) } else { usual.scheduled };
        let message = |length: &u32| Incoming {
            body: Intake { offset: 0, length: *length },
            time_to_live,
            scheduled,
            ..usual
        };
        let messages: Vec<Incoming> = lengths.iter().map(message).collect();
        let (link, range, sessions) = (self.link(link), 0..messages.len() as u32, sessions(messages.len()));
        self.command(&Command::Send { link, delivery: 0, is_settled, messages: range, sessions }, &messages);
    }

    fn token(&self, token: u8) -> Option<LockToken> {
        let count = self.tokens.len();
        // The newest ones: the others are settled long since.
        (count > 0).then(|| self.tokens[count - 1 - usize::from(token) % count.min(8)])
    }

    fn settle(&mut self, link: u8, token: u8, outcome: u8) {
        let Some(token) = self.token(token) else { return };
        let (link, outcome) = (self.link(link), outcome_of(outcome));
        self.command(&Command::Settle { link, delivery: 0, token, outcome, wants_answer: true }, &[]);
    }

    /// Everything is committed; then the process ends and another begins, with the locks if that was planned. Locks that
    /// an earlier planned stop has left stay in force until something is recorded.
    fn restart(&mut self, is_planned: bool) {
        self.commit();
        let left = self.replayed.kept_locks().to_vec();
        let kept = if is_planned { self.broker.locks(self.now) } else { left.clone() };
        let held = kept.iter().filter(|lock| self.local() < lock.until).count();
        let mut bytes = Vec::new();
        if kept != left {
            let record = Record::LocksKept { locks: kept.into() };
            self.replayed.apply(&record, self.now);
            record.encode(&mut bytes);
        }
        let durable = std::mem::take(&mut self.replayed);
        let copy = self.copy(&bytes);
        assert_eq!(copy.fingerprint(), durable.fingerprint());
        self.broker = Broker::new(durable, self.key());
        self.replayed = copy;
        assert_eq!(self.broker.locks(self.now).len(), held);
        self.links.clear();
        self.holders.clear();
        self.journal.push((bytes, self.now));
    }

    fn key(&mut self) -> u128 {
        self.made_links += 1;
        u128::from(self.made_links) << 32
    }

    /// Another state from all records so far, and `last`.
    fn copy(&self, last: &[u8]) -> Durable {
        let mut durable = Durable::new();
        let last = (last.to_vec(), self.now);
        for (records, time) in self.journal.iter().chain([&last]) {
            let mut rest = &records[..];
            while !rest.is_empty() {
                durable.apply(&Record::decode(&mut rest).unwrap(), *time);
            }
        }
        durable
    }

    /// The time of the one namespace.
    fn local(&self) -> LocalTime {
        self.now.local(
            self.replayed.clock_offsets().next().map_or_else(ClockOffset::default, |(_, offset)| offset),
        )
    }

    fn commit(&mut self) {
        self.committed = self.position;
        self.position.0 += 1;
        let context = self.context();
        self.broker.committed(self.committed, context, &mut self.decision);
        self.take();
    }

    fn wait(&mut self, milliseconds: u32) {
        // All records of one batch have one time.
        self.commit();
        self.now.0 += i64::from(milliseconds);
        let context = self.context();
        self.broker.tick(context, &mut self.decision);
        self.take();
    }
}

impl Rig {
    /// Moves the time of the one namespace, in as many ticks and batches as it takes, while the owner's goes on.
    fn advance(&mut self, milliseconds: u32) {
        self.commit();
        let (request, by) = (RequestId::default(), Span(u64::from(milliseconds)));
        self.command(&Command::Advance { request, namespace: NamespaceId(0), by }, &[]);
        while self.broker.is_advancing() {
            self.wait(3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    // I4, I12
    #[test]
    fn replaying_the_records_gives_the_state_that_made_them(steps in prop::collection::vec(step(), 1..120)) {
        let mut rig = Rig::new();
        rig.close();
        for step in &steps {
            rig.step(step);
            prop_assert_eq!(rig.replayed.fingerprint(), rig.broker.durable().fingerprint(), "after {:?}", step);
        }
        prop_assert_eq!(rig.broker.durable().next_body().0, rig.next_body);
        for (entity, queue) in rig.replayed.queues() {
            let below = rig.replayed.queues().filter(|(_, other)| other.kind == Kind::Subscription { topic: entity });
            prop_assert_eq!(queue.below, below.map(|(_, other)| other.bytes).sum::<u64>());
            let held = queue.counts.scheduled + queue.counts.transfer_dead_letter;
            prop_assert!(queue.kind != Kind::Topic || queue.counts.total() == held);
            let main: Vec<_> = queue.index.iter().collect();
            let of = |state| main.iter().filter(|(_, slot)| slot.state() == state).count() as u64;
            let dead_letter = queue.dead.iter().count() as u64;
            let transfer_dead = queue.transfer_dead.as_ref().map_or(0, |transfer_dead| transfer_dead.iter().count() as u64);
            let (active, deferred) = (of(State::Active), of(State::Deferred));
            let scheduled = of(State::Scheduled);
            let counts = Counts { active, deferred, scheduled, dead_letter, transfer_dead_letter: transfer_dead };
            prop_assert_eq!(queue.counts, counts);
            let all = queue.indexes().flat_map(|index| index.iter());
            let states = queue.sessions.iter().flat_map(|sessions| sessions.iter());
            let states: u64 = states.filter_map(|(_, session)| Some(u64::from(session.state?.length))).sum();
            prop_assert_eq!(queue.bytes, states + all.map(|(_, slot)| u64::from(slot.length)).sum::<u64>());
            for (sequence, slot) in queue.index.iter().filter(|_| queue.settings.requires_session) {
                let session = queue.session_of(sequence).expect("every message has its session");
                let session = queue.sessions.as_ref().unwrap().get(session).unwrap();
                let is_active = session.active.next_from(sequence) == Some(sequence);
                let is_aside = session.aside.next_from(sequence) == Some(sequence);
                prop_assert_eq!((is_active, is_aside), (slot.state() == State::Active, slot.state() != State::Active));
            }
            let mut numbers: Vec<_> = queue.indexes().flat_map(|index| index.iter()).map(|(number, _)| number).collect();
            numbers.sort_unstable();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "a message is in two places");
            let is_known = |sequence| queue.get(sequence).is_some();
            prop_assert!(queue.extras.keys().all(|sequence| is_known(*sequence)), "an extra without message");
        }
    }
}
