//! The whole system on fake time and a fake disk, from one seed.
//!
//! A run is a seed: which clients do what ([`workload`]), what fails and when ([`faults`]), and in what order. The
//! [`oracle`] knows what everybody was told and checks every promise as it goes and after a last full drain. The same
//! seed gives the same run, which is shown by the hash of everything that came out.

pub mod coverage;
pub mod faults;
pub mod hash;
pub mod oracle;
pub mod random;
pub mod workload;
mod world;

use broker::{Command, ConnectionId, LinkId, NamespaceId, Outcome, ReceiveMode};
use coverage::Coverage;
use engine::{Batch, Item, Outgoing};
use faults::{DiskPlan, End, draw_end};
use oracle::{Door, Role, Shared};
use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use workload::Workload;
use world::{Alive, World};

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Report {
    pub commands: u64,
    pub crashes: u64,
    pub coverage: Coverage,
    pub trace: u64,
    /// The first promise that was not kept.
    pub violation: Option<String>,
}

/// Runs one seed until its clients have given `commands` commands, then drains every queue. With `is_telling` it
/// prints everything that happens.
pub fn run(seed: u64, commands: u64, is_telling: bool) -> Report {
    let shared = Arc::new(Shared::default());
    shared.lock().is_telling = is_telling;
    let mut run = Run::new(seed, shared.clone());
    let ended = catch_unwind(AssertUnwindSafe(|| run.go(commands)));
    let mut oracle = shared.lock();
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        oracle.fail(format!("panic: {text}"));
    }
    Report {
        commands: run.workload.commands,
        crashes: run.world.crashes,
        coverage: std::mem::take(&mut oracle.coverage),
        trace: oracle.trace.hash(),
        violation: oracle.violation.take(),
    }
}

struct Run {
    random: Random,
    shared: Arc<Shared>,
    world: World,
    workload: Workload,
}

impl Run {
    fn new(seed: u64, shared: Arc<Shared>) -> Run {
        let mut random = Random::new(seed);
        let world = World::new(random.fork(), shared.clone());
        let workload = Workload::new(random.fork());
        Run { random, shared, world, workload }
    }

    fn is_fine(&self) -> bool {
        self.shared.lock().violation.is_none()
    }

    fn go(&mut self, commands: u64) {
        self.begin();
        while self.workload.commands < commands && self.is_fine() {
            self.pass_time();
            let items = self.workload.step(&self.shared);
            if self.world.run(items) == Alive::No {
                self.deliver();
                self.crash();
                continue;
            }
            self.deliver();
            if self.random.once_in(20) && self.world.rest() == Alive::No {
                self.crash();
            }
            if let Some(end) = draw_end(&mut self.random) {
                self.end(end);
            }
        }
        if self.is_fine() {
            self.drain();
        }
    }

    fn begin(&mut self) {
        let plan = DiskPlan::draw(&mut self.random);
        self.world.start(plan);
    }

    fn pass_time(&mut self) {
        let milliseconds = match self.random.below(20) {
            0 => self.random.between(1_000, 20_000),
            1..4 => self.random.between(50, 2_000),
            _ => self.random.below(20),
        };
        self.world.clock.pass(milliseconds as i64);
        if self.random.once_in(50) {
            self.world.clock.step(&mut self.random);
            self.shared.lock().coverage.fault("clock step");
        }
    }

    fn deliver(&mut self) {
        let outgoing = self.shared.take();
        let world = &self.world;
        self.workload.receive(outgoing, || world.has_struck(), &mut self.shared.lock());
    }

    fn end(&mut self, end: End) {
        match end {
            End::Kill => {
                self.shared.lock().coverage.fault("kill");
                self.crash();
            }
            End::CleanStop => {
                if self.world.run(vec![Item::Stop]) == Alive::No {
                    self.shared.lock().coverage.fault("clean stop");
                    self.deliver();
                }
                self.crash();
            }
        }
    }

    fn crash(&mut self) {
        let image = faults::draw_image(&mut self.random);
        self.world.end(image);
        self.workload.disconnect_all();
        self.begin();
    }

    /// Receives and completes all that is left, on a disk that works, and looks whether it was all.
    fn drain(&mut self) {
        let image = faults::draw_image(&mut self.random);
        self.world.end(image);
        self.world.start(DiskPlan::HEALTHY);
        let connection = ConnectionId(u32::MAX);
        let mailbox = Arc::new(Door { connection, shared: self.shared.clone() });
        self.shared.lock().connected(connection);
        let mut items = vec![Item::Connect { connection, mailbox }];
        items.push(Item::Batch(self.attach_everywhere(connection)));
        let mut deliveries = 0;
        while self.is_fine() && self.world.run(std::mem::take(&mut items)) == Alive::Yes {
            let mut batch = Batch::default();
            for outgoing in self.shared.take() {
                let Outgoing::Deliver(sent) = outgoing else { continue };
                deliveries += 1;
                let (link, delivery, token) = (sent.link, deliveries, sent.delivery.token);
                let mut oracle = self.shared.lock();
                self.workload.take(&sent, || false, &mut oracle);
                oracle.settle(link, delivery, token, &Outcome::Complete, true);
                batch.commands.push(Command::Settle {
                    link,
                    delivery,
                    token,
                    outcome: Outcome::Complete,
                    wants_answer: true,
                });
            }
            if batch.is_empty() {
                break;
            }
            items.push(Item::Batch(batch));
        }
        self.shared.lock().end();
    }

    fn attach_everywhere(&mut self, connection: ConnectionId) -> Batch {
        let mut batch = Batch::default();
        let mut oracle = self.shared.lock();
        let paths: Vec<String> = oracle
            .ledger
            .queues
            .values()
            .filter(|queue| queue.may_receive())
            .map(|queue| queue.path.clone())
            .collect();
        for (path, number) in paths.into_iter().zip(1..) {
            let link = LinkId { connection, link: number };
            let mode = ReceiveMode::PeekLock;
            oracle.attach(link, &path, Role::Receiver(mode));
            oracle.credit(link, u64::MAX, false);
            let namespace = NamespaceId(0);
            batch.commands.push(Command::AttachReceiver { link, namespace, path: path.into(), mode });
            batch.commands.push(Command::Credit { link, limit: u64::MAX, drain: false });
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_run_and_no_other() {
        let report = run(7, 300, false);
        assert_eq!(report.violation, None);
        assert!(report.commands >= 300);
        assert_eq!(run(7, 300, false).trace, report.trace);
        assert_ne!(run(8, 300, false).trace, report.trace);
    }
}
