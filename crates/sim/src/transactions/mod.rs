//! Transactions on fake time and a disk that loses power, from one seed.
//!
//! A few connections send, receive and settle, within transactions and beside them. The `model` knows what every queue must
//! hold after each answer, because it does the same with maps and no disk. The power goes between two commands and in the
//! middle of one: afterwards the queues hold what they held before that command or what they hold after it, and nothing in
//! between.

mod model;
mod world;

use crate::random::Random;
use broker::Outcome;
use model::{Ended, Model, PLACES, QUEUES};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Heard, World};

/// Connections at once, and messages in a queue above which nobody sends.
const CONNECTIONS: usize = 3;
const MANY: usize = 60;

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Report {
    pub commands: u64,
    pub crashes: u64,
    pub commits: u64,
    pub refused_commits: u64,
    pub roll_backs: u64,
    /// The first promise that was not kept.
    pub violation: Option<String>,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        self.commands += other.commands;
        self.crashes += other.crashes;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.roll_backs += other.roll_backs;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { commands, crashes, commits, refused_commits, roll_backs, .. } = self;
        write!(
            f,
            "{commands} commands, {crashes} crashes, {commits} commits, {refused_commits} refused, {roll_backs} roll-backs"
        )
    }
}

/// Runs one seed until so many commands were given.
pub fn run(seed: u64, commands: u64) -> Report {
    let mut run = Run::new(seed);
    let ended = catch_unwind(AssertUnwindSafe(|| run.go(commands)));
    let mut report = std::mem::take(&mut run.report);
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        report.violation = Some(text.to_owned());
    }
    report
}

struct Run {
    random: Random,
    world: World,
    model: Model,
    report: Report,
    next_message: u32,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed ^ 0x7478_6e73);
        let world = World::new(random.fork());
        Run { random, world, model: Model::default(), report: Report::default(), next_message: 1 }
    }

    fn go(&mut self, commands: u64) {
        self.begin();
        while self.report.commands < commands {
            self.pass();
            let before = self.model.clone();
            // Now and then the power goes while a command is being written.
            let is_cut = self.random.once_in(40);
            if is_cut {
                self.world.cut_soon();
            }
            self.act();
            self.report.commands += 1;
            match self.world.take_image() {
                Some(image) => self.restart(image, &[&before]),
                None if is_cut || self.random.once_in(60) => {
                    let image = self.world.image();
                    self.restart(image, &[]);
                }
                None if self.random.once_in(10) => self.compare(&[]),
                None => {}
            }
        }
        self.compare(&[]);
    }

    fn begin(&mut self) {
        for _ in 0..CONNECTIONS {
            let connection = self.world.connect();
            self.model.connected(connection);
        }
    }

    /// A new process on what the disk kept. The state is the one of now, or one of `others`.
    fn restart(&mut self, image: journal::disk::Memory, others: &[&Model]) {
        self.report.crashes += 1;
        self.world.restart(image);
        self.compare(others);
        self.model.restarted();
        self.begin();
    }

    /// Every queue holds what it should, and every message is what was sent.
    fn compare(&mut self, others: &[&Model]) {
        let found: Vec<_> = PLACES.iter().map(|path| self.world.browse(path)).collect();
        if found == self.model.places {
            return;
        }
        match others.iter().find(|other| found == other.places) {
            Some(other) => self.model.places = other.places.clone(),
            None => panic!("the queues hold {found:?} and should hold {:?}", self.model.places),
        }
    }

    fn pass(&mut self) {
        let span = match self.random.below(60) {
            0 => 121_000,
            1 => 61_000,
            _ => self.random.below(900),
        };
        self.world.pass(span as i64);
        self.model.pass(self.world.now());
        if self.random.once_in(6) {
            self.world.rest();
            self.model.pass(self.world.now());
        }
    }

    fn act(&mut self) {
        let connection = self.random.below(CONNECTIONS as u64) as usize;
        let queue = self.random.below(QUEUES as u64) as usize;
        match self.random.below(100) {
            0..12 => self.send(connection, queue),
            12..32 => self.receive(connection, queue),
            32..42 => self.declare(connection),
            42..62 => self.send_within(connection, queue),
            62..76 => self.settle_within(connection, queue),
            76..82 => self.settle(connection, queue),
            82..94 => self.discharge(connection),
            94..96 => self.spoil(connection, queue),
            96..98 => self.lose_coordinator(connection),
            _ => self.lose_connection(connection),
        }
    }

    fn fresh(&mut self, count: u64) -> Vec<u32> {
        let first = self.next_message;
        self.next_message += count as u32;
        (first..self.next_message).collect()
    }

    fn send(&mut self, connection: usize, queue: usize) {
        if self.model.places[queue].len() > MANY {
            return;
        }
        let messages = self.fresh(1);
        assert_eq!(self.world.send(connection, queue, None, &messages), Heard::Accepted);
        self.model.send(queue, &messages);
    }

    fn receive(&mut self, connection: usize, queue: usize) {
        for (message, token, until) in self.world.receive(connection, queue) {
            self.model.locked(queue, message, token, until);
        }
    }

    fn declare(&mut self, connection: usize) {
        if self.model.open(connection).len() > 4 {
            return;
        }
        let transaction = self.world.declare(connection);
        self.model.declared(connection, transaction);
    }

    fn a_transaction(&mut self, connection: usize) -> Option<broker::TransactionId> {
        let open = self.model.open(connection);
        (!open.is_empty()).then(|| *self.random.pick(&open))
    }

    fn send_within(&mut self, connection: usize, queue: usize) {
        let Some(transaction) = self.a_transaction(connection) else { return };
        if self.model.places[queue].len() > MANY {
            return;
        }
        let count = self.random.between(1, 3);
        let messages = self.fresh(count);
        let heard = self.world.send(connection, queue, Some(transaction), &messages);
        let expected = self.model.send_within(transaction, queue, &messages, self.world.now());
        assert_eq!(heard, expected, "a send within a transaction");
    }

    fn spoil(&mut self, connection: usize, queue: usize) {
        let Some(transaction) = self.a_transaction(connection) else { return };
        let heard = self.world.send_too_much(connection, queue, transaction);
        assert!(matches!(heard, Heard::Refused(_)), "{heard:?}");
        self.model.spoil(transaction);
    }

    fn outcome(&mut self) -> Outcome {
        match self.random.below(8) {
            0..4 => Outcome::Complete,
            4 | 5 => Outcome::Abandon(None),
            6 => Outcome::Defer(None),
            _ => Outcome::DeadLetter(None),
        }
    }

    fn settle_within(&mut self, connection: usize, queue: usize) {
        let Some(transaction) = self.a_transaction(connection) else { return };
        let held = self.model.held(queue);
        if held.is_empty() {
            return;
        }
        let ((message, token), outcome) = (*self.random.pick(&held), self.outcome());
        let heard = self.world.settle(connection, queue, Some(transaction), token, outcome.clone());
        let now = self.world.now();
        let expected = self.model.settle_within(transaction, queue, message, token, outcome, now);
        assert_eq!(heard, expected, "a settlement within a transaction");
    }

    fn settle(&mut self, connection: usize, queue: usize) {
        let held = self.model.held(queue);
        if held.is_empty() {
            return;
        }
        let ((message, token), outcome) = (*self.random.pick(&held), self.outcome());
        let heard = self.world.settle(connection, queue, None, token, outcome.clone());
        let expected = self.model.settle(queue, message, token, &outcome, self.world.now());
        assert_eq!(heard, expected, "a settlement beside transactions");
    }

    fn discharge(&mut self, connection: usize) {
        let Some(transaction) = self.a_transaction(connection) else { return };
        let is_failed = self.random.once_in(3);
        let heard = self.world.discharge(connection, transaction, is_failed);
        let (expected, ended) = self.model.discharge(transaction, is_failed, self.world.now());
        assert_eq!(heard, expected, "a discharge");
        match ended {
            Ended::Committed => self.report.commits += 1,
            Ended::Refused => self.report.refused_commits += 1,
            Ended::RolledBack => self.report.roll_backs += 1,
        }
    }

    fn lose_coordinator(&mut self, connection: usize) {
        self.world.lose_coordinator(connection);
        self.model.connected(connection);
    }

    fn lose_connection(&mut self, connection: usize) {
        self.world.reconnect(connection);
        self.model.connected(connection);
    }
}
