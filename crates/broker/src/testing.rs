//! A broker with the engine's part played by hand: positions, commits, and a clock that moves when told.

use crate::*;

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) now: Time,
    pub(crate) records: Vec<Record>,
    /// The time of each record's batch.
    times: Vec<Time>,
    /// Whether the records are kept and checked; not where there are millions of them.
    pub(crate) is_checked: bool,
    pub(crate) last_release_is_free: bool,
    /// The most that was done at once, in steps.
    pub(crate) longest_slice: usize,
    /// Messages that the disk does not give back.
    pub(crate) unreadable: std::collections::BTreeSet<Sequence>,
    /// Whether the disk takes its time: what is to be read is kept for later.
    pub(crate) is_reading_held: bool,
    held_reads: Vec<ReadRequest>,
    /// What was stored, where a test has said what it is or the broker has made it.
    pub(crate) bodies: std::collections::BTreeMap<BodyId, Vec<u8>>,
    /// What is being sent.
    arriving: Vec<u8>,
    position: Position,
    effects: Vec<Effect>,
    links: u32,
}

pub(crate) fn message(length: u32) -> Incoming {
    Incoming::new(Intake { offset: 0, length })
}

/// Which link was given which number.
pub(crate) fn deliveries(effects: &[Effect]) -> Vec<(LinkId, u64)> {
    let delivery = |effect: &Effect| match effect {
        Effect::Deliver { link, delivery, .. } => Some((*link, delivery.sequence.0)),
        _ => None,
    };
    effects.iter().filter_map(delivery).collect()
}

impl World {
    pub(crate) fn new() -> World {
        World::with_tier(Tier::default())
    }

    pub(crate) fn unchecked(tier: Tier) -> World {
        let mut world = World::with_tier(tier);
        world.is_checked = false;
        world
    }

    pub(crate) fn with_tier(tier: Tier) -> World {
        World {
            broker: Broker::new(Durable::new(), 1).with_tier(tier),
            now: Time(1_000_000),
            records: Vec::new(),
            times: Vec::new(),
            is_checked: true,
            last_release_is_free: false,
            longest_slice: 0,
            unreadable: Default::default(),
            is_reading_held: false,
            held_reads: Vec::new(),
            bodies: Default::default(),
            arriving: Vec::new(),
            position: Position(1),
            effects: Vec::new(),
            links: 0,
        }
    }

    pub(crate) fn with_queue(path: &str) -> World {
        let mut world = World::new();
        world.create(path, QueueSettings::default());
        world
    }

    pub(crate) fn run(&mut self, act: impl FnOnce(&mut Broker, Context, &mut Decision)) -> Vec<Effect> {
        let mut decision = Decision::default();
        let context = Context { now: self.now, position: self.position };
        let before = self.broker.steps_spent(&decision);
        let first_body = self.broker.durable.next_body();
        act(&mut self.broker, context, &mut decision);
        self.note_bodies(first_body, &decision);
        self.longest_slice = self.longest_slice.max(self.broker.steps_spent(&decision) - before);
        match self.is_reading_held {
            true => self.held_reads.append(&mut decision.read_requests),
            false => decision.read_requests.append(&mut self.held_reads),
        }
        while let Some(request) = decision.read_requests.pop() {
            if request.wants_content {
                let fronts = self.content(&request);
                self.broker.contents_read(request.source, fronts, context, &mut decision);
                self.note_bodies(first_body, &decision);
                continue;
            }
            let sequences = request.messages.iter().map(|(sequence, _)| *sequence);
            let (damaged, whole): (Vec<_>, Vec<_>) =
                sequences.partition(|each| self.unreadable.contains(each));
            self.broker.checked(request.source, &whole, &damaged, context, &mut decision);
        }
        if self.is_checked {
            self.check_codec(&decision.records);
            self.times.resize(self.times.len() + decision.records.len(), self.now);
            self.records.append(&mut decision.records);
        }
        let effects: Vec<_> = decision
            .effects
            .into_iter()
            .map(|release| {
                self.last_release_is_free = release.is_free;
                release.effect
            })
            .collect();
        self.effects.extend(effects.iter().cloned());
        effects
    }

    /// What a decision stores, from a body on.
    fn note_bodies(&mut self, first: BodyId, decision: &Decision) {
        for (nth, body) in decision.bodies.iter().enumerate() {
            let (from, Intake { offset, length }) = match body {
                Body::Arrived(intake) => (&self.arriving, *intake),
                Body::Made(intake) => (&decision.made, *intake),
            };
            let range = offset as usize..(offset + length) as usize;
            if let Some(bytes) = from.get(range) {
                self.bodies.insert(BodyId(first.0 + nth as u64), bytes.to_vec());
            }
        }
    }

    /// Every record that is made can be written and read.
    fn check_codec(&self, records: &[Record]) {
        let mut total = 0;
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&mut &bytes[..]).as_ref(), Ok(record));
            total += bytes.len();
        }
        // A decision is one append, of 16 MiB at the most, together with what was decided before.
        assert!(total < 8 * 1_024 * 1_024, "{total} bytes of records in one decision");
    }

    /// The state after the first `count` records, replayed.
    pub(crate) fn replayed(&self, count: usize) -> Durable {
        let mut durable = Durable::new();
        for (record, time) in self.records.iter().zip(&self.times).take(count) {
            durable.apply(record, *time);
        }
        durable
    }

    /// A record that the next start will find.
    pub(crate) fn found(&mut self, record: Record) {
        self.broker.durable.apply(&record, self.now);
        self.records.push(record);
        self.times.push(self.now);
    }

    /// Stops as a crash would, after everything was committed, and starts again from the records.
    pub(crate) fn restart(&mut self) {
        let durable = self.replayed(self.records.len());
        assert_eq!(durable.fingerprint(), self.broker.durable.fingerprint());
        self.broker = Broker::new(durable, 2).with_tier(self.broker.tier);
        self.effects.clear();
    }

    /// Writes what a planned stop writes last.
    pub(crate) fn keep_locks(&mut self) {
        self.run(|broker, context, decision| broker.keep_locks(context, decision));
    }

    pub(crate) fn pass(&mut self, span: Span) {
        self.now.0 += span.0 as i64;
    }

    /// The time of the first namespace.
    pub(crate) fn local(&self) -> LocalTime {
        self.now.local(self.broker.volatile.clock_offset(NamespaceId(0)))
    }

    fn ask(&mut self, command: Command, messages: &[Incoming]) -> Result<Answer, Refusal> {
        let effects = self.command(command, messages);
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answered { answer, .. } => Some(answer),
            _ => None,
        });
        answer.expect("every question is answered")
    }

    pub(crate) fn update(&mut self, path: &str, settings: QueueSettings) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let task = Box::new(Task::UpdateQueue { path: path.into(), settings, access: Vec::new() });
        self.ask(Command::Manage { request, namespace, task }, &[])
    }

    pub(crate) fn describe(&mut self, path: &str) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        self.ask(Command::DescribeEntity { request, namespace, path: path.into() }, &[])
    }

    pub(crate) fn renew(&mut self, path: &str, tokens: &[LockToken]) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let (path, tokens) = (path.into(), tokens.into());
        self.ask(Command::RenewLocks { request, namespace, path, tokens }, &[])
    }

    pub(crate) fn settle_tokens(
        &mut self,
        path: &str,
        tokens: &[LockToken],
        outcome: Outcome,
    ) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let (path, tokens) = (path.into(), tokens.into());
        self.ask(Command::SettleTokens { request, namespace, path, tokens, outcome }, &[])
    }

    pub(crate) fn schedule(&mut self, path: &str, messages: &[Incoming]) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let range = 0..messages.len() as u32;
        let (path, sessions) = (path.into(), SessionIds::default());
        let command = Command::Schedule { request, namespace, path, messages: range, sessions };
        self.ask(command, messages)
    }

    pub(crate) fn cancel(&mut self, path: &str, numbers: &[u64]) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let numbers = numbers.iter().copied().map(Number).collect();
        self.ask(Command::CancelScheduled { request, namespace, path: path.into(), numbers }, &[])
    }

    pub(crate) fn receive_deferred(
        &mut self,
        path: &str,
        numbers: &[u64],
        mode: ReceiveMode,
    ) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let numbers = numbers.iter().copied().map(Number).collect();
        let (path, session) = (path.into(), None);
        self.ask(Command::ReceiveDeferred { request, namespace, path, numbers, mode, session }, &[])
    }

    pub(crate) fn browse(&mut self, path: &str, from: u64, most: u32) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let (path, from) = (path.into(), Number(from));
        self.ask(Command::Browse { request, namespace, path, from, most, session: None }, &[])
    }

    pub(crate) fn delete_messages(
        &mut self,
        path: &str,
        most: u32,
        before: LocalTime,
    ) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let (path, session) = (path.into(), None);
        self.ask(Command::DeleteMessages { request, namespace, path, most, before, session }, &[])
    }

    /// Receives what there is, up to `most`, and leaves.
    pub(crate) fn receive(&mut self, path: &str, mode: ReceiveMode, most: u32) -> Vec<Delivery> {
        let link = self.link();
        self.attach_receiver(link, path, mode);
        let effects = self.credit(link, most, true);
        self.detach(link);
        let delivery = |effect| match effect {
            Effect::Deliver { delivery, .. } => Some(delivery),
            _ => None,
        };
        effects.into_iter().filter_map(delivery).collect()
    }

    /// The tokens of everything that was delivered and not yet looked at.
    pub(crate) fn take_tokens(&mut self) -> Vec<LockToken> {
        let token = |effect| match effect {
            Effect::Deliver { delivery, .. } => Some(delivery.token),
            _ => None,
        };
        self.take_effects().into_iter().filter_map(token).collect()
    }

    /// Moves the time of a namespace, with `pause` of the owner's time between two ticks, and commits.
    pub(crate) fn advance(
        &mut self,
        namespace: u32,
        by: Span,
        pause: Span,
    ) -> Result<clock::Advanced, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(namespace));
        let mut effects = self.command(Command::Advance { request, namespace, by }, &[]);
        while self.broker.is_advancing() {
            assert_eq!(effects, [], "nothing leaves on the way");
            self.pass(pause);
            effects.append(&mut self.commit());
            effects.append(&mut self.tick());
        }
        self.commit();
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answered { answer, .. } => Some(answer),
            _ => None,
        });
        match answer.expect("every question is answered")? {
            Answer::Advanced(advanced) => Ok(*advanced),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn command(&mut self, command: Command, messages: &[Incoming]) -> Vec<Effect> {
        self.command_with(command, Arrivals::of(messages))
    }

    pub(crate) fn command_with(&mut self, command: Command, arrivals: Arrivals<'_>) -> Vec<Effect> {
        let is_damaged = !self.unreadable.is_empty();
        let is_check = |needs: &[Need]| needs.iter().all(|need| need.what == What::IsReadable);
        let mut needed = None;
        let effects = self.run(|broker, context, decision| {
            match broker.decide(&command, arrivals, Material::NONE, context, decision) {
                Decided::Done => {}
                Decided::Needs(Needs(needs)) if is_damaged && is_check(&needs) => {
                    broker.refuse_unreadable(&command, decision);
                }
                Decided::Needs(needs) => needed = Some(needs),
            }
        });
        let Some(needs) = needed else { return effects };
        let material = self.looked_up(&needs);
        self.run(|broker, context, decision| {
            let decided = broker.decide(&command, arrivals, &material, context, decision);
            assert_eq!(decided, Decided::Done, "a command asks once");
        })
    }

    /// What a command is told that asks how long the properties of messages are, of which this was stored.
    pub(crate) fn fronts(stored: &[(BodyId, &[u8])]) -> Material {
        let found =
            |(body, bytes): &(BodyId, &[u8])| Need { body: *body, what: What::PropertiesBytes }.found(bytes);
        stored.iter().map(found).collect()
    }

    /// What a command wants to know.
    pub(crate) fn looked_up(&self, needs: &Needs) -> Material {
        needs.0.iter().map(|need| need.found(&self.stored(need.body))).collect()
    }

    /// What was stored, as far as it is known.
    pub(crate) fn stored(&self, body: BodyId) -> Vec<u8> {
        self.bodies.get(&body).cloned().unwrap_or_default()
    }

    /// What a delivery shows as changed properties.
    pub(crate) fn changes(&self, delivery: &Delivery) -> message::Overlay {
        let stored = delivery.stored_overlay().map(|stored| self.stored(stored.body)).unwrap_or_default();
        delivery.changes(&stored).unwrap().map(std::borrow::Cow::into_owned).unwrap_or_default()
    }

    /// Sends messages whose bytes matter. `facts` says what else is known of them.
    pub(crate) fn send_bytes(&mut self, link: LinkId, bodies: &[&[u8]], facts: Incoming) -> Vec<Effect> {
        self.put_bytes(bodies, facts, |messages, sessions| Command::Send {
            link,
            delivery: 0,
            is_settled: false,
            messages,
            sessions,
        })
    }

    /// Does with messages what `command` says.
    pub(crate) fn put_bytes(
        &mut self,
        bodies: &[&[u8]],
        facts: Incoming,
        command: impl FnOnce(std::ops::Range<u32>, SessionIds) -> Command,
    ) -> Vec<Effect> {
        let (mut buffer, mut messages) = (Vec::new(), Vec::new());
        for body in bodies {
            let intake = Intake { offset: buffer.len() as u32, length: body.len() as u32 };
            buffer.extend_from_slice(body);
            messages.push(Incoming { body: intake, ..facts });
        }
        self.arriving.clone_from(&buffer);
        let arrivals = Arrivals { messages: &messages, bodies: &buffer, prefix_bytes: 0 };
        let session = |body: &&[u8]| topic::subject::Front::of(body)?.session(None);
        let ids = bodies.iter().map(session).enumerate();
        let sessions = SessionIds::new(bodies.len(), ids.filter_map(|(at, id)| Some((at, id?))));
        let effects = self.command_with(command(0..messages.len() as u32, sessions), arrivals);
        self.arriving.clear();
        effects
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Where what is decided now will be written.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn commit(&mut self) -> Vec<Effect> {
        let position = self.position;
        self.position.0 += 1;
        self.run(|broker, context, decision| broker.committed(position, context, decision))
    }

    pub(crate) fn tick(&mut self) -> Vec<Effect> {
        self.run(|broker, context, decision| broker.tick(context, decision))
    }

    /// What the disk has of messages whose content is wanted.
    fn content(&self, request: &ReadRequest) -> Fronts {
        let read = |(sequence, bodies): &(Sequence, Vec<BodyId>)| {
            let is_whole = !self.unreadable.contains(sequence);
            let read = bodies.iter().map(|body| self.stored(*body).into());
            (*sequence, is_whole.then(|| Read::of(read)))
        };
        request.messages.iter().map(read).collect()
    }

    /// What the disk is asked for and has not answered.
    pub(crate) fn asked(&self) -> &[ReadRequest] {
        &self.held_reads
    }

    /// The disk, which answers nothing by itself, answers the first of what it was asked. The answer is whose messages they are.
    pub(crate) fn tick_read(&mut self) -> Source {
        let request = self.held_reads.remove(0);
        let fronts = self.content(&request);
        self.run(|broker, context, decision| broker.contents_read(request.source, fronts, context, decision));
        request.source
    }

    /// The disk answers what it was asked.
    pub(crate) fn tick_reads(&mut self) -> Vec<Effect> {
        self.run(|_, _, _| {})
    }

    pub(crate) fn is_due(&self) -> bool {
        self.broker.next_due().is_some_and(|due| due <= self.now)
    }

    pub(crate) fn try_create(&mut self, path: &str, settings: QueueSettings) -> Result<Answer, Refusal> {
        let request = RequestId::default();
        let (path, settings) = (path.into(), Box::new(settings));
        let effects =
            self.command(Command::CreateQueue { request, namespace: NamespaceId(0), path, settings }, &[]);
        match effects.into_iter().next() {
            Some(Effect::Answered { answer, .. }) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn manage(&mut self, task: Task) -> Result<Answer, Refusal> {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let effects = self.command(Command::Manage { request, namespace, task: Box::new(task) }, &[]);
        self.commit();
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answered { answer, .. } => Some(answer),
            _ => None,
        });
        answer.expect("every question is answered")
    }

    /// Replaying everything that was recorded gives the same state, and so does a snapshot.
    pub(crate) fn check_whole_replay(&self) {
        let replayed = self.replayed(self.records.len());
        assert_eq!(replayed.fingerprint(), self.broker.durable.fingerprint(), "replay differs");
        let mut bytes = Vec::new();
        self.broker.snapshot(self.now).write(&mut bytes, &mut |_| {}).unwrap();
        let restored = snapshot::Restored::read(&mut &bytes[..]).unwrap();
        assert_eq!(restored.durable.fingerprint(), self.broker.durable.fingerprint(), "the snapshot differs");
    }

    pub(crate) fn create(&mut self, path: &str, settings: QueueSettings) {
        self.try_create(path, settings).unwrap();
        self.commit();
    }

    pub(crate) fn delete(&mut self, path: &str) -> Vec<Effect> {
        let request = RequestId::default();
        self.command(Command::DeleteEntity { request, namespace: NamespaceId(0), path: path.into() }, &[])
    }

    pub(crate) fn link(&mut self) -> LinkId {
        self.links += 1;
        LinkId { connection: ConnectionId(1), link: self.links }
    }

    pub(crate) fn attach_sender(&mut self, link: LinkId, path: &str) -> Vec<Effect> {
        self.command(Command::AttachSender { link, namespace: NamespaceId(0), path: path.into() }, &[])
    }

    pub(crate) fn attach_receiver(&mut self, link: LinkId, path: &str, mode: ReceiveMode) -> Vec<Effect> {
        let (namespace, path) = (NamespaceId(0), path.into());
        self.command(Command::AttachReceiver { link, namespace, path, mode }, &[])
    }

    pub(crate) fn sender(&mut self, path: &str) -> LinkId {
        let link = self.link();
        self.attach_sender(link, path);
        self.take_effects();
        link
    }

    pub(crate) fn receiver(&mut self, path: &str, mode: ReceiveMode, credit: u32) -> LinkId {
        let link = self.link();
        self.attach_receiver(link, path, mode);
        self.credit(link, credit, false);
        self.take_effects();
        link
    }

    pub(crate) fn detach(&mut self, link: LinkId) {
        self.command(Command::Detach { link }, &[]);
    }

    pub(crate) fn credit(&mut self, link: LinkId, credit: u32, drain: bool) -> Vec<Effect> {
        let delivered = match &self.broker.volatile.link(link).expect("attached").role {
            volatile::Role::Receiver { delivered, .. } => *delivered,
            other => panic!("{other:?}"),
        };
        self.command(Command::Credit { link, limit: delivered + u64::from(credit), drain }, &[])
    }

    pub(crate) fn send(&mut self, link: LinkId, delivery: u32, messages: &[Incoming]) -> Vec<Effect> {
        let range = 0..messages.len() as u32;
        let sessions = SessionIds::default();
        self.command(Command::Send { link, delivery, is_settled: false, messages: range, sessions }, messages)
    }

    pub(crate) fn send_settled(&mut self, link: LinkId, delivery: u32, messages: &[Incoming]) -> Vec<Effect> {
        let range = 0..messages.len() as u32;
        let sessions = SessionIds::default();
        self.command(Command::Send { link, delivery, is_settled: true, messages: range, sessions }, messages)
    }

    /// Sends messages of which the first ones have these session ids.
    pub(crate) fn send_in(
        &mut self,
        link: LinkId,
        delivery: u32,
        messages: &[Incoming],
        sessions: &[&str],
    ) -> Vec<Effect> {
        let ids = sessions.iter().enumerate().map(|(at, session)| (at, (*session).into()));
        let sessions = SessionIds::new(messages.len(), ids);
        let range = 0..messages.len() as u32;
        self.command(Command::Send { link, delivery, is_settled: false, messages: range, sessions }, messages)
    }

    /// Sends a small message to each of these sessions, in this order, and commits them.
    pub(crate) fn send_sessions(&mut self, path: &str, sessions: &[&str]) {
        let link = self.sender(path);
        for session in sessions {
            self.send_in(link, 0, &[message(10)], &[session]);
        }
        self.detach(link);
        self.take_effects();
        self.commit();
    }

    /// Accepts a session, or whichever is free.
    pub(crate) fn accept(&mut self, link: LinkId, path: &str, session: Option<&str>) -> Vec<Effect> {
        self.accept_for(link, path, ReceiveMode::PeekLock, session)
    }

    pub(crate) fn accept_for(
        &mut self,
        link: LinkId,
        path: &str,
        mode: ReceiveMode,
        session: Option<&str>,
    ) -> Vec<Effect> {
        let (namespace, path, session) = (NamespaceId(0), path.into(), session.map(Into::into));
        self.command(Command::AcceptSession { link, namespace, path, mode, session }, &[])
    }

    /// A link that holds a session and gives credit.
    pub(crate) fn holder(&mut self, path: &str, session: &str, credit: u32) -> LinkId {
        let link = self.link();
        self.accept(link, path, Some(session));
        self.credit(link, credit, false);
        link
    }

    /// Asks with the connection of [`World::link`], whose sessions these are.
    pub(crate) fn ask_held(
        &mut self,
        question: impl FnOnce(RequestId, NamespaceId) -> Command,
    ) -> Result<Answer, Refusal> {
        let request = RequestId { connection: ConnectionId(1), request: 0 };
        self.ask(question(request, NamespaceId(0)), &[])
    }

    /// Sends `count` small messages and commits them.
    pub(crate) fn send_committed(&mut self, path: &str, count: u32) {
        let link = self.sender(path);
        (0..count).for_each(|delivery| drop(self.send(link, delivery, &[message(10)])));
        self.detach(link);
        self.take_effects();
        self.commit();
    }

    pub(crate) fn part(&mut self, link: LinkId, length: u32) -> Vec<Effect> {
        self.command(Command::Part { link, body: Intake { offset: 0, length } }, &[])
    }

    pub(crate) fn relocate(&mut self, bodies: &[(BodyId, Intake)]) {
        self.run(|broker, _, decision| broker.relocate(bodies, decision));
    }

    pub(crate) fn drop_parts(&mut self, link: LinkId) {
        self.command(Command::DropParts { link }, &[]);
    }

    /// The token that currently locks a message of the first queue.
    pub(crate) fn token(&self, sequence: u64) -> LockToken {
        self.broker.volatile.ready(Source::default()).locks[&Sequence(sequence)].token
    }

    pub(crate) fn dead_token(&self, sequence: u64) -> LockToken {
        self.broker.volatile.ready(Source::dead_letter(EntityId(0))).locks[&Sequence(sequence)].token
    }

    pub(crate) fn settle(
        &mut self,
        link: LinkId,
        delivery: u32,
        token: LockToken,
        outcome: Outcome,
    ) -> Vec<Effect> {
        self.command(Command::Settle { link, delivery, token, outcome, wants_answer: true }, &[])
    }

    pub(crate) fn settle_raw(
        &mut self,
        link: LinkId,
        token: LockToken,
        outcome: &Outcome,
        material: &Material,
    ) -> Decided {
        self.take_effects();
        let outcome = outcome.clone();
        let command = Command::Settle { link, delivery: 0, token, outcome, wants_answer: true };
        let mut decided = Decided::Done;
        self.run(|broker, context, decision| {
            decided = broker.decide(&command, Arrivals::default(), material, context, decision);
        });
        decided
    }

    pub(crate) fn queue(&self, path: &str) -> &durable::Queue {
        let entity = self.broker.durable.find(NamespaceId(0), path).expect("the queue exists");
        self.broker.durable.queue(entity).expect("names lead to entities")
    }
}

/// Whatever a test did, replaying its records gives the state that it ended with, and so does a snapshot.
impl Drop for World {
    fn drop(&mut self) {
        if self.is_checked && !std::thread::panicking() {
            self.check_whole_replay();
        }
    }
}
