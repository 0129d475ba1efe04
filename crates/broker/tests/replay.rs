//! Whatever is asked, in whatever order: the records alone rebuild the state, numbers have no gaps, and a message is
//! handed out only when it is committed.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use message::{Overlay, Value};
use otobus_broker::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What may happen. Links, queues and tokens are named by small numbers, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Create(u8, u64),
    Delete(u8),
    AttachSender(u8, u8),
    AttachReceiver(u8, u8, bool),
    Detach(u8),
    Send { link: u8, lengths: Vec<u32>, is_settled: bool },
    Part(u8, u32),
    DropParts(u8),
    Credit { link: u8, more: u8, drain: bool },
    Settle { link: u8, token: u8, outcome: u8 },
    Commit,
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (link, queue) = (0..6_u8, 0..3_u8);
    prop_oneof![
        2 => (queue.clone(), 5..20_u64).prop_map(|(queue, lock)| Step::Create(queue, lock)),
        1 => queue.clone().prop_map(Step::Delete),
        3 => (link.clone(), queue.clone()).prop_map(|(link, queue)| Step::AttachSender(link, queue)),
        3 => (link.clone(), queue, any::<bool>())
            .prop_map(|(link, queue, locks)| Step::AttachReceiver(link, queue, locks)),
        1 => link.clone().prop_map(Step::Detach),
        8 => (link.clone(), prop::collection::vec(0..400_000_u32, 1..5), any::<bool>())
            .prop_map(|(link, lengths, is_settled)| Step::Send { link, lengths, is_settled }),
        2 => (link.clone(), 0..600_000_u32).prop_map(|(link, length)| Step::Part(link, length)),
        1 => link.clone().prop_map(Step::DropParts),
        6 => (link.clone(), 0..9_u8, prop::bool::weighted(0.2))
            .prop_map(|(link, more, drain)| Step::Credit { link, more, drain }),
        8 => (link, any::<u8>(), 0..4_u8)
            .prop_map(|(link, token, outcome)| Step::Settle { link, token, outcome }),
        6 => Just(Step::Commit),
        2 => (0..9_000_u32).prop_map(Step::Wait),
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
        }
    }

    fn context(&self) -> Context {
        Context { now: self.now, position: self.position }
    }

    fn new_link(&mut self, number: u8) -> LinkId {
        self.made_links += 1;
        let link = LinkId { connection: ConnectionId(1), link: self.made_links };
        if let Some(before) = self.links.insert(number, link) {
            self.command(&Command::Detach { link: before }, &[]);
        }
        link
    }

    fn link(&self, number: u8) -> LinkId {
        self.links.get(&number).copied().unwrap_or_default()
    }

    fn command(&mut self, command: &Command, messages: &[Incoming]) {
        let context = self.context();
        match self.broker.decide(command, messages, &[], context, &mut self.decision) {
            Decided::Done => {}
            Decided::Needs(Needs(bodies)) => {
                let material: Vec<(BodyId, &[u8])> = bodies.into_iter().map(|body| (body, &[][..])).collect();
                let decided = self.broker.decide(command, messages, &material, context, &mut self.decision);
                assert_eq!(decided, Decided::Done, "a command asks once");
            }
        }
        self.take();
    }

    /// Looks at what was decided.
    fn take(&mut self) {
        let decision = std::mem::take(&mut self.decision);
        for record in &decision.records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let read = Record::decode(&mut &bytes[..]).unwrap();
            assert_eq!(&read, record);
            self.replayed.apply(&read, self.now);
            self.check_numbers(record);
        }
        for release in &decision.effects {
            if let Effect::Deliver { link, delivery, mode } = &release.effect {
                assert!(
                    self.recorded[&delivery.body] <= self.committed,
                    "handed out before it was committed"
                );
                assert_eq!(release.is_free, *mode == ReceiveMode::PeekLock);
                *self.delivered.entry(*link).or_default() += 1;
                self.tokens.push(delivery.token);
            }
        }
    }

    /// Body ids and sequence numbers are handed out one after another.
    fn check_numbers(&mut self, record: &Record) {
        match record {
            Record::PartStored { body } => self.take_body(*body),
            Record::Enqueued { entity, sequence, body, .. } => {
                self.take_body(*body);
                let next = self.next.entry(*entity).or_insert(1);
                assert_eq!(sequence.0, *next);
                *next += 1;
            }
            _ => {}
        }
    }

    fn take_body(&mut self, body: BodyId) {
        assert_eq!(body.0, self.next_body);
        self.next_body += 1;
        self.recorded.insert(body, self.position);
    }

    fn step(&mut self, step: &Step) {
        let (request, namespace) = (RequestId::default(), NamespaceId(0));
        let path = |queue: &u8| format!("queue-{queue}").into_boxed_str();
        match step {
            Step::Create(queue, lock) => {
                let (path, lock_duration) = (path(queue), Span::seconds(*lock));
                let usual = QueueSettings::default();
                let settings = Box::new(QueueSettings { lock_duration, max_size_megabytes: 1, ..usual });
                self.command(&Command::CreateQueue { request, namespace, path, settings }, &[]);
            }
            Step::Delete(queue) => {
                self.command(&Command::DeleteEntity { request, namespace, path: path(queue) }, &[]);
            }
            Step::AttachSender(number, queue) => {
                let link = self.new_link(*number);
                self.command(&Command::AttachSender { link, namespace, path: path(queue) }, &[]);
            }
            Step::AttachReceiver(number, queue, locks) => {
                let link = self.new_link(*number);
                let mode = if *locks { ReceiveMode::PeekLock } else { ReceiveMode::ReceiveAndDelete };
                self.command(&Command::AttachReceiver { link, namespace, path: path(queue), mode }, &[]);
            }
            Step::Detach(number) => self.command(&Command::Detach { link: self.link(*number) }, &[]),
            Step::Send { link, lengths, is_settled } => self.send(*link, lengths, *is_settled),
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
        }
    }

    fn send(&mut self, link: u8, lengths: &[u32], is_settled: bool) {
        let body = |length: &u32| Intake { offset: 0, length: *length };
        let messages: Vec<Incoming> =
            lengths.iter().map(|length| Incoming { body: body(length), time_to_live: Span::MAX }).collect();
        let (link, range) = (self.link(link), 0..messages.len() as u32);
        self.command(&Command::Send { link, delivery: 0, is_settled, messages: range }, &messages);
    }

    fn settle(&mut self, link: u8, token: u8, outcome: u8) {
        if self.tokens.is_empty() {
            return;
        }
        let token = self.tokens[usize::from(token) % self.tokens.len()];
        let mut changes = Overlay::default();
        changes.set("attempt", &Value::Ubyte(outcome)).unwrap();
        let outcome = match outcome {
            0 => Outcome::Complete,
            1 => Outcome::Abandon(None),
            2 => Outcome::Abandon(Some(Box::new(changes))),
            _ => Outcome::Release,
        };
        let link = self.link(link);
        self.command(&Command::Settle { link, delivery: 0, token, outcome, wants_answer: true }, &[]);
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
        self.now = self.now.after(Span(u64::from(milliseconds)));
        let context = self.context();
        self.broker.tick(context, &mut self.decision);
        self.take();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    // I4, I12
    #[test]
    fn replaying_the_records_gives_the_state_that_made_them(steps in prop::collection::vec(step(), 1..120)) {
        let mut rig = Rig::new();
        for step in &steps {
            rig.step(step);
            prop_assert_eq!(rig.replayed.fingerprint(), rig.broker.durable().fingerprint(), "after {:?}", step);
        }
        prop_assert_eq!(rig.broker.durable().next_body().0, rig.next_body);
        for (_, queue) in rig.replayed.queues() {
            prop_assert_eq!(queue.active, queue.index.iter().count() as u64);
            prop_assert_eq!(queue.bytes, queue.index.iter().map(|(_, slot)| u64::from(slot.length)).sum::<u64>());
        }
    }
}
