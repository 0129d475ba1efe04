//! A partition turned by hand on a disk in memory, with one queue, one sender and one receiver, and a note of what the
//! outside was told.

use broker::{
    Command, ConnectionId, LinkId, LockToken, NamespaceId, Notice, Outcome, QueueSettings, ReceiveMode,
    Refusal, RequestId, Span, Time,
};
use journal::disk::Disk;
use journal::{Filling, Local, Options};
use message::overlay::Overlay;
use otobus_engine::{Batch, ByHand, Outbox, Outgoing, UpkeepSettings, Work, recover};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const SEGMENT_BYTES: u32 = 24 * 1024;

pub fn options() -> Options {
    Options {
        filling: Filling::Never,
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        ..Options::new(11)
    }
}

pub const UPKEEP: UpkeepSettings = UpkeepSettings {
    snapshot_every_bytes: 16 * 1024,
    reclaim_bytes: 24 * 1024,
    sparse_percent: 40,
    slice_bytes: 2 * 1024,
    pause_ms: 10,
};

/// What the outside knows. Messages have numbers of their own.
#[derive(Debug, Default)]
pub struct Told {
    pub tried: BTreeSet<u32>,
    pub accepted: BTreeSet<u32>,
    pub refused: BTreeSet<u32>,
    /// Asked to be completed, and told that they are.
    pub completing: BTreeSet<u32>,
    pub completed: BTreeSet<u32>,
    /// Delivered for good, in this order.
    pub taken: Vec<u32>,
    /// The sequence number under which each was delivered.
    pub sequences: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Told>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a message: its number, then as many bytes as follow from it.
pub fn body(number: u32) -> Vec<u8> {
    let length = 4 + (number as usize * 797) % 1500;
    let mut body = vec![number as u8; length];
    body[..4].copy_from_slice(&number.to_le_bytes());
    body
}

#[derive(Debug)]
pub struct TestPartition {
    pub told: Shared,
    pub now: Time,
    partition: ByHand,
    outbox: Arc<Outbox>,
    /// Held by the receiver.
    locked: BTreeMap<u32, LockToken>,
    deliveries: BTreeMap<u32, u32>,
    next_delivery: u32,
    credit: u64,
    outcomes: Vec<Refusal>,
    /// What was shown as changed of the messages that came, where that is stored.
    pub changes: BTreeMap<u32, Overlay>,
    /// A message that cannot be read is passed over, as a connection does.
    pub skips_unreadable: bool,
}

const SENDER: LinkId = LinkId { connection: ConnectionId(1), link: 1 };
const RECEIVER: LinkId = LinkId { connection: ConnectionId(1), link: 2 };
/// Receives and deletes.
const TAKER: LinkId = LinkId { connection: ConnectionId(1), link: 3 };

impl TestPartition {
    /// Opens the disk as a starting process would. Errors are those of a failing disk.
    pub fn open(disk: Arc<dyn Disk>, told: Shared, now: Time) -> Result<TestPartition, String> {
        TestPartition::open_with(disk, told, now, options())
    }

    pub fn open_with(
        disk: Arc<dyn Disk>,
        told: Shared,
        now: Time,
        options: Options,
    ) -> Result<TestPartition, String> {
        let mut journal = Local::open(disk, options).map_err(|error| error.to_string())?;
        let recovered = recover(&mut journal, 1).map_err(|error| error.to_string())?;
        let partition = ByHand::new(recovered, Box::new(journal), UPKEEP);
        let outbox = Arc::new(Outbox::default());
        let (locked, deliveries) = (BTreeMap::new(), BTreeMap::new());
        let (next_delivery, credit, outcomes) = (0, 0, Vec::new());
        let mut partition = TestPartition {
            told,
            now,
            partition,
            outbox,
            locked,
            deliveries,
            next_delivery,
            credit,
            outcomes,
            changes: BTreeMap::new(),
            skips_unreadable: false,
        };
        partition
            .partition
            .put(Work::Connect { connection: ConnectionId(1), mailbox: partition.outbox.clone() });
        let (namespace, path) = (NamespaceId(0), Box::<str>::from("q"));
        let settings =
            Box::new(QueueSettings { lock_duration: Span::minutes(5), ..QueueSettings::default() });
        let request = RequestId { connection: ConnectionId(1), request: 1 };
        let mode = ReceiveMode::PeekLock;
        partition.give(vec![
            Command::CreateQueue { request, namespace, path: path.clone(), settings },
            Command::AttachSender { link: SENDER, namespace, path: path.clone() },
            Command::AttachReceiver { link: RECEIVER, namespace, path: path.clone(), mode },
            Command::AttachReceiver { link: TAKER, namespace, path, mode: ReceiveMode::ReceiveAndDelete },
        ])?;
        Ok(partition)
    }

    fn give(&mut self, commands: Vec<Command>) -> Result<(), String> {
        self.partition.put(Work::Batch(Batch { commands, ..Batch::default() }));
        self.run()
    }

    /// Turns until nothing is left to do at this time.
    pub fn run(&mut self) -> Result<(), String> {
        let ended = self.partition.run(self.now).map_err(|why| why.to_string());
        self.hear()?;
        ended.map(drop)
    }

    /// Lets time pass without anything else happening: seals, cleans up, gives space back.
    pub fn rest(&mut self, steps: u32) -> Result<(), String> {
        for _ in 0..steps {
            self.now.0 += 20;
            let ended = self.partition.rest(self.now).map_err(|why| why.to_string());
            self.hear()?;
            ended?;
        }
        Ok(())
    }

    pub fn send(&mut self, number: u32) -> Result<(), String> {
        self.told.lock().tried.insert(number);
        let mut batch = Batch::default();
        batch.message(Span::MAX, |out| out.extend_from_slice(&body(number)));
        batch.send(SENDER, number, false, 0);
        self.partition.put(Work::Batch(batch));
        self.run()
    }

    /// Takes `count` more messages; those that come are held.
    pub fn receive(&mut self, count: u64) -> Result<(), String> {
        self.credit += count;
        self.give(vec![Command::Credit { link: RECEIVER, limit: self.credit, drain: false }])
    }

    /// Takes `count` messages for good.
    pub fn take(&mut self, count: u64) -> Result<(), String> {
        self.give(vec![Command::Credit { link: TAKER, limit: count, drain: false }])
    }

    pub fn complete(&mut self, number: u32) -> Result<(), String> {
        let Some(token) = self.locked.remove(&number) else { return Ok(()) };
        self.told.lock().completing.insert(number);
        self.settle(number, token, Outcome::Complete)
    }

    pub fn abandon(&mut self, number: u32) -> Result<(), String> {
        let Some(token) = self.locked.remove(&number) else { return Ok(()) };
        self.settle(number, token, Outcome::Abandon(None))
    }

    /// Hands a message back with a changed property, for which the stored ones must be looked at. It stays held.
    pub fn abandon_with(&mut self, number: u32, overlay: Overlay) -> Result<(), String> {
        let token = self.locked[&number];
        self.settle(number, token, Outcome::Abandon(Some(Box::new(overlay))))
    }

    fn settle(&mut self, number: u32, token: LockToken, outcome: Outcome) -> Result<(), String> {
        self.next_delivery += 1;
        let delivery = self.next_delivery;
        self.deliveries.insert(delivery, number);
        self.give(vec![Command::Settle { link: RECEIVER, delivery, token, outcome, wants_answer: true }])
    }

    pub fn held(&self) -> Vec<u32> {
        self.locked.keys().copied().collect()
    }

    pub fn refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.outcomes)
    }

    /// What is known to be damaged.
    pub fn damage(&self) -> Option<String> {
        self.partition.look(|partition| partition.health().damage())
    }

    pub fn is_short(&self) -> bool {
        self.partition.look(|partition| partition.health().is_short())
    }

    pub fn stop(&mut self) -> Result<(), String> {
        self.partition.put(Work::Stop);
        self.run()
    }

    /// Notes what was said.
    fn hear(&mut self) -> Result<(), String> {
        let mut outgoing = Vec::new();
        self.outbox.take(&mut outgoing);
        let mut told = self.told.lock();
        for each in outgoing {
            match each {
                Outgoing::Accepted { first, last, .. } => told.accepted.extend(first..=last),
                Outgoing::Notice(Notice::Rejected { delivery, refusal, .. }) => {
                    told.refused.insert(delivery);
                    self.outcomes.push(refusal);
                }
                Outgoing::Settled { first, last, .. } => {
                    let Told { completing, completed, .. } = &mut *told;
                    let numbers = (first..=last).filter_map(|delivery| self.deliveries.get(&delivery));
                    completed.extend(numbers.filter(|number| completing.contains(number)));
                }
                Outgoing::Notice(Notice::NotSettled { refusal, .. }) => self.outcomes.push(refusal),
                Outgoing::Deliver(sent) => {
                    let bytes = match sent.place.read() {
                        Err(_) if self.skips_unreadable => continue,
                        other => other.map_err(|error| error.to_string())?,
                    };
                    let number = u32::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert!(bytes == body(number), "message {number} was altered");
                    if let Some(place) = &sent.overlay {
                        let stored = place.read().map_err(|error| error.to_string())?;
                        let changes = sent.delivery.changes(&stored).unwrap().unwrap();
                        self.changes.insert(number, changes.into_owned());
                    }
                    assert!(!told.completed.contains(&number), "message {number} came back");
                    let sequence = sent.delivery.sequence.0;
                    let before = *told.sequences.entry(number).or_insert(sequence);
                    assert_eq!(before, sequence, "message {number} has another number than before");
                    if sent.mode == ReceiveMode::PeekLock {
                        self.locked.insert(number, sent.delivery.token);
                        continue;
                    }
                    told.taken.push(number);
                    told.completing.insert(number);
                    told.completed.insert(number);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A run of `operations`, each drawn from the seed: sends, receives, completes, abandons and rests.
pub fn work(partition: &mut TestPartition, operations: u32, first: u32, seed: u64) -> Result<(), String> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut number = first;
    for _ in 0..operations {
        partition.now.0 += draw(15) as i64;
        match draw(10) {
            0..4 => {
                partition.send(number)?;
                number += 1;
            }
            4 | 5 => partition.receive(1 + draw(3))?,
            6..9 => {
                let held = partition.held();
                if let Some(chosen) = held.get(draw(held.len().max(1) as u64) as usize) {
                    // One in eight stays for long, so that what is alive is scattered among the dead.
                    if chosen % 8 == 0 { partition.abandon(*chosen)? } else { partition.complete(*chosen)? }
                }
            }
            _ => partition.rest(1)?,
        }
    }
    Ok(())
}
