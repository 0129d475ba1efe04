//! A broker with the engine's part played by hand: positions, commits, and a clock that moves when told.

use crate::*;

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) now: Time,
    pub(crate) records: Vec<Record>,
    pub(crate) last_release_is_free: bool,
    position: Position,
    effects: Vec<Effect>,
    links: u32,
}

pub(crate) fn message(length: u32) -> Incoming {
    Incoming { body: Intake { offset: 0, length }, time_to_live: Span::MAX }
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
        World {
            broker: Broker::new(Durable::new(), 1),
            now: Time(1_000_000),
            records: Vec::new(),
            last_release_is_free: false,
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

    fn run(&mut self, act: impl FnOnce(&mut Broker, Context, &mut Decision)) -> Vec<Effect> {
        let mut decision = Decision::default();
        let context = Context { now: self.now, position: self.position };
        act(&mut self.broker, context, &mut decision);
        self.check_replay(&decision.records);
        self.records.append(&mut decision.records);
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

    /// Every record that is made can be written and read.
    fn check_replay(&self, records: &[Record]) {
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&mut &bytes[..]).as_ref(), Ok(record));
        }
    }

    fn command(&mut self, command: Command, messages: &[Incoming]) -> Vec<Effect> {
        self.run(|broker, context, decision| {
            assert_eq!(broker.decide(&command, messages, &[], context, decision), Decided::Done);
        })
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn commit(&mut self) -> Vec<Effect> {
        let position = self.position;
        self.position.0 += 1;
        self.run(|broker, context, decision| broker.committed(position, context, decision))
    }

    pub(crate) fn tick(&mut self) -> Vec<Effect> {
        self.run(|broker, context, decision| broker.tick(context, decision))
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
        self.command(Command::Send { link, delivery, is_settled: false, messages: range }, messages)
    }

    pub(crate) fn send_settled(&mut self, link: LinkId, delivery: u32, messages: &[Incoming]) -> Vec<Effect> {
        let range = 0..messages.len() as u32;
        self.command(Command::Send { link, delivery, is_settled: true, messages: range }, messages)
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

    pub(crate) fn drop_parts(&mut self, link: LinkId) {
        self.command(Command::DropParts { link }, &[]);
    }

    /// The token that currently locks a message of the first queue.
    pub(crate) fn token(&self, sequence: u64) -> LockToken {
        self.broker.volatile.ready(EntityId(0)).locks[&Sequence(sequence)].token
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
        material: Material<'_>,
    ) -> Decided {
        self.take_effects();
        let outcome = outcome.clone();
        let command = Command::Settle { link, delivery: 0, token, outcome, wants_answer: true };
        let mut decided = Decided::Done;
        self.run(|broker, context, decision| {
            decided = broker.decide(&command, &[], material, context, decision);
        });
        decided
    }

    pub(crate) fn queue(&self, path: &str) -> &durable::Queue {
        let entity = self.broker.durable.find(NamespaceId(0), path).expect("the queue exists");
        self.broker.durable.queue(entity).expect("names lead to entities")
    }
}
