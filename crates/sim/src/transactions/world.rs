//! A partition on a disk in memory, and connections that wait for each answer.

use super::model::PLACES;
use crate::random::Random;
use broker::{
    Answer, Command, ConnectionId, LinkId, LockToken, NamespaceId, Notice, Number, Outcome, QueueSettings,
    ReceiveMode, Refusal, RequestId, Span, Time, TransactionId,
};
use engine::{Batch, ByHand, Outbox, Outgoing, UpkeepSettings, Work, recover};
use journal::disk::{Call, Disk, Memory, Watch, Watched};
use journal::{Filling, Local, Options};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How long a message is locked.
const LOCK_MS: i64 = 300_000;

const SEGMENT_BYTES: u32 = 24 * 1024;
const UPKEEP: UpkeepSettings = UpkeepSettings {
    snapshot_every_bytes: 16 * 1024,
    reclaim_bytes: 24 * 1024,
    sparse_percent: 40,
    slice_bytes: 2 * 1024,
    pause_ms: 10,
};

/// Links of a connection: to each queue, from each queue, and the coordinator's.
const COORDINATOR: u32 = 9;

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Accepted,
    Settled,
    Staged,
    Refused(&'static str),
}

/// The power goes at one of the next changes of the disk: what is left then.
#[derive(Debug, Default)]
struct Cut {
    after: Option<u64>,
    seed: u64,
    image: Option<Memory>,
}

struct PowerCut {
    memory: Memory,
    cut: Arc<Mutex<Cut>>,
}

impl Watch for PowerCut {
    fn after(&self, call: Call<'_>) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if call.is_change()
            && let Some(left) = cut.after
        {
            cut.after = left.checked_sub(1);
            if left == 0 {
                cut.image = Some(self.memory.crash_image(cut.seed));
            }
        }
    }
}

#[derive(Debug)]
pub struct World {
    random: Random,
    now: Time,
    memory: Memory,
    cut: Arc<Mutex<Cut>>,
    partition: ByHand,
    connections: Vec<Peer>,
    next: u32,
}

#[derive(Debug)]
struct Peer {
    id: ConnectionId,
    outbox: Arc<Outbox>,
    coordinator: u32,
    credit: [u64; 2],
    deliveries: u32,
}

fn open(memory: &Memory, cut: &Arc<Mutex<Cut>>) -> ByHand {
    let watch = PowerCut { memory: memory.clone(), cut: cut.clone() };
    let disk: Arc<dyn Disk> = Arc::new(Watched::new(Arc::new(memory.clone()), Arc::new(watch)));
    let options = Options {
        filling: Filling::Never,
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        ..Options::new(11)
    };
    let mut journal = Local::open(disk, options).expect("what was written opens");
    let recovered = recover(&mut journal, 1).expect("and can be replayed");
    ByHand::new(recovered, Box::new(journal), UPKEEP)
}

/// The bytes of a message: its number, then as many bytes as follow from it.
fn body(message: u32) -> Vec<u8> {
    let mut body = vec![message as u8; 4 + (message as usize * 797) % 1_500];
    body[..4].copy_from_slice(&message.to_le_bytes());
    body
}

fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::RolledBack(_) => "RolledBack",
        Refusal::LockLost(_) => "LockLost",
        Refusal::UnknownTransaction => "UnknownTransaction",
        Refusal::MessageTooLarge { .. } => "MessageTooLarge",
        _ => "another",
    }
}

impl World {
    pub fn new(random: Random) -> World {
        let (memory, cut) = (Memory::new(), Arc::default());
        let partition = open(&memory, &cut);
        let now = Time(1_000_000);
        let mut world = World { random, now, memory, cut, partition, connections: Vec::new(), next: 1 };
        let connection = world.connect();
        for path in &PLACES[..2] {
            let settings = QueueSettings {
                lock_duration: Span(LOCK_MS as u64),
                max_delivery_count: 1_000,
                ..QueueSettings::default()
            };
            let request = world.request(connection);
            let (path, settings) = ((*path).into(), Box::new(settings));
            world.give(vec![Command::CreateQueue { request, namespace: NamespaceId(0), path, settings }]);
        }
        world.connections.clear();
        world
    }

    pub fn now(&self) -> i64 {
        self.now.0
    }

    pub fn pass(&mut self, span: i64) {
        self.now.0 += span;
        self.run();
    }

    /// A silence: the journal seals, writes snapshots, copies what is alive and gives space back.
    pub fn rest(&mut self) {
        for _ in 0..8 {
            self.now.0 += 20;
            self.partition.rest(self.now).expect("the disk is fine");
        }
    }

    fn run(&mut self) {
        self.partition.run(self.now).expect("the disk is fine");
    }

    fn give(&mut self, commands: Vec<Command>) {
        self.put(Batch { commands, ..Batch::default() });
    }

    fn put(&mut self, batch: Batch) {
        self.partition.put(Work::Batch(batch));
        self.run();
    }

    fn request(&self, connection: usize) -> RequestId {
        RequestId { connection: self.connections[connection].id, request: 1 }
    }

    fn link(&self, connection: usize, link: u32) -> LinkId {
        LinkId { connection: self.connections[connection].id, link }
    }

    /// Adds a connection with all its links, and returns its place.
    pub fn connect(&mut self) -> usize {
        let peer = Peer {
            id: ConnectionId(self.next),
            outbox: Arc::default(),
            coordinator: COORDINATOR,
            credit: [0, 0],
            deliveries: 0,
        };
        self.next += 1;
        self.partition.put(Work::Connect { connection: peer.id, mailbox: peer.outbox.clone() });
        self.connections.push(peer);
        let at = self.connections.len() - 1;
        self.attach(at);
        at
    }

    fn attach(&mut self, connection: usize) {
        let namespace = NamespaceId(0);
        let mut commands =
            vec![Command::AttachCoordinator { link: self.link(connection, COORDINATOR), namespace }];
        for (nth, path) in PLACES[..2].iter().enumerate() {
            let (sender, receiver) = (1 + nth as u32, 3 + nth as u32);
            let (path, mode) = (Box::<str>::from(*path), ReceiveMode::PeekLock);
            let link = self.link(connection, sender);
            commands.push(Command::AttachSender { link, namespace, path: path.clone() });
            let link = self.link(connection, receiver);
            commands.push(Command::AttachReceiver { link, namespace, path, mode });
        }
        self.give(commands);
        self.hear(connection);
    }

    /// The connection is lost, and another comes in its place.
    pub fn reconnect(&mut self, connection: usize) {
        let id = self.connections[connection].id;
        self.partition.put(Work::Disconnect { connection: id });
        self.run();
        let peer = &mut self.connections[connection];
        (peer.id, peer.outbox, peer.coordinator) = (ConnectionId(self.next), Arc::default(), COORDINATOR);
        (peer.credit, peer.deliveries) = ([0, 0], 0);
        self.next += 1;
        let (connection_id, mailbox) = (peer.id, peer.outbox.clone());
        self.partition.put(Work::Connect { connection: connection_id, mailbox });
        self.attach(connection);
    }

    pub fn lose_coordinator(&mut self, connection: usize) {
        let link = self.link(connection, self.connections[connection].coordinator);
        self.connections[connection].coordinator += 1;
        let next = self.link(connection, self.connections[connection].coordinator);
        let namespace = NamespaceId(0);
        self.give(vec![Command::Detach { link }, Command::AttachCoordinator { link: next, namespace }]);
        self.hear(connection);
    }

    fn hear(&mut self, connection: usize) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        self.connections[connection].outbox.take(&mut outgoing);
        outgoing
    }

    /// The one answer to what was just asked.
    fn answer(&mut self, connection: usize) -> Heard {
        let heard = self.hear(connection);
        match &heard[..] {
            [Outgoing::Accepted { .. }] => Heard::Accepted,
            [Outgoing::Settled { .. }] => Heard::Settled,
            [Outgoing::Notice(Notice::Staged { .. })] => Heard::Staged,
            [Outgoing::Notice(Notice::Rejected { refusal, .. } | Notice::NotSettled { refusal, .. })] => {
                Heard::Refused(name(refusal))
            }
            _ => panic!("{heard:?} is no answer"),
        }
    }

    fn delivery(&mut self, connection: usize) -> u32 {
        self.connections[connection].deliveries += 1;
        self.connections[connection].deliveries
    }

    fn within(transaction: Option<TransactionId>, command: Command) -> Command {
        match transaction {
            None => command,
            Some(transaction) => Command::Within { transaction, command: Box::new(command) },
        }
    }

    pub fn send(
        &mut self,
        connection: usize,
        queue: usize,
        transaction: Option<TransactionId>,
        messages: &[u32],
    ) -> Heard {
        let bodies: Vec<_> = messages.iter().map(|message| body(*message)).collect();
        self.send_bodies(connection, queue, transaction, &bodies)
    }

    pub fn send_too_much(&mut self, connection: usize, queue: usize, transaction: TransactionId) -> Heard {
        self.send_bodies(connection, queue, Some(transaction), &[vec![0; 1_048_577]])
    }

    fn send_bodies(
        &mut self,
        connection: usize,
        queue: usize,
        transaction: Option<TransactionId>,
        bodies: &[Vec<u8>],
    ) -> Heard {
        let (link, delivery) = (self.link(connection, 1 + queue as u32), self.delivery(connection));
        let mut batch = Batch::default();
        bodies.iter().for_each(|body| batch.message(Span::MAX, |out| out.extend_from_slice(body)));
        batch.send(link, delivery, false, 0);
        batch.commands =
            batch.commands.drain(..).map(|command| World::within(transaction, command)).collect();
        self.put(batch);
        self.answer(connection)
    }

    /// Takes one more message, if there is one, and says how long it is locked.
    pub fn receive(&mut self, connection: usize, queue: usize) -> Vec<(u32, LockToken, i64)> {
        let link = self.link(connection, 3 + queue as u32);
        let limit = self.connections[connection].credit[queue] + 1;
        self.give(vec![Command::Credit { link, limit, drain: true }]);
        let mut delivered = Vec::new();
        for outgoing in self.hear(connection) {
            if let Outgoing::Deliver(sent) = outgoing {
                self.connections[connection].credit[queue] += 1;
                let bytes = sent.place.read().expect("a message can be read");
                let message = u32::from_le_bytes(*bytes.first_chunk().expect("it has a number"));
                assert!(bytes == body(message), "message {message} was altered");
                let until = sent.delivery.locked_until.expect("it is locked").0;
                delivered.push((message, sent.delivery.token, until));
            }
        }
        delivered
    }

    pub fn settle(
        &mut self,
        connection: usize,
        queue: usize,
        transaction: Option<TransactionId>,
        token: LockToken,
        outcome: Outcome,
    ) -> Heard {
        let (link, delivery) = (self.link(connection, 3 + queue as u32), self.delivery(connection));
        let settle = Command::Settle { link, delivery, token, outcome, wants_answer: true };
        self.give(vec![World::within(transaction, settle)]);
        self.answer(connection)
    }

    pub fn declare(&mut self, connection: usize) -> TransactionId {
        let link = self.link(connection, self.connections[connection].coordinator);
        let delivery = self.delivery(connection);
        self.give(vec![Command::Declare { link, delivery }]);
        match &self.hear(connection)[..] {
            [Outgoing::Notice(Notice::Declared { transaction, .. })] => *transaction,
            other => panic!("{other:?}"),
        }
    }

    pub fn discharge(&mut self, connection: usize, transaction: TransactionId, is_failed: bool) -> Heard {
        let link = self.link(connection, self.connections[connection].coordinator);
        let delivery = self.delivery(connection);
        self.give(vec![Command::Discharge { link, delivery, transaction, is_failed }]);
        self.answer(connection)
    }

    /// Looks at everything in a queue.
    pub fn browse(&mut self, path: &str) -> BTreeMap<u32, u32> {
        if self.connections.is_empty() {
            self.connect();
        }
        let (mut found, mut from) = (BTreeMap::new(), Number(0));
        loop {
            let (request, namespace) = (self.request(0), NamespaceId(0));
            let browse =
                Command::Browse { request, namespace, path: path.into(), from, most: 1_000, session: None };
            self.give(vec![browse]);
            let heard = self.hear(0);
            let answers = heard.into_iter().filter_map(|outgoing| match outgoing {
                Outgoing::Answered { answer: Ok(Answer::Messages(messages)), places, .. } => {
                    Some((messages, places))
                }
                _ => None,
            });
            let Some((messages, places)) = answers.last().filter(|(messages, _)| !messages.is_empty()) else {
                return found;
            };
            for (message, places) in messages.iter().zip(&places) {
                let bytes = places.last().expect("it has a place").read().expect("a message can be read");
                let number = u32::from_le_bytes(*bytes.first_chunk().expect("it has a number"));
                assert!(bytes == body(number), "message {number} was altered");
                assert_eq!(found.insert(number, message.count), None, "message {number} is there twice");
                from = Number(message.number.0 + 1);
            }
        }
    }

    /// The power goes at one of the next changes.
    pub fn cut_soon(&mut self) {
        let (after, seed) = (Some(self.random.below(3)), self.random.below(8));
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        *cut = Cut { after, seed, image: None };
    }

    /// What was left when the power went, if it did.
    pub fn take_image(&mut self) -> Option<Memory> {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.after = None;
        cut.image.take()
    }

    /// What is left if it goes now.
    pub fn image(&mut self) -> Memory {
        let seed = self.random.below(8);
        self.memory.crash_image(seed)
    }

    pub fn restart(&mut self, image: Memory) {
        self.connections.clear();
        self.memory = image;
        self.cut = Arc::default();
        self.partition = open(&self.memory, &self.cut);
        self.now.0 += 1;
        self.run();
    }
}
