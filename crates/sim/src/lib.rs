//! The whole system on fake time and a fake disk, from one seed.
//!
//! A run is a [`plan`]: which clients do what ([`workload`]), what fails and when ([`faults`]), and in what order. Two
//! partitions share it, each with a journal of its own. The [`oracle`] knows what everybody was told and checks every
//! promise as it goes and after a last full drain. The same plan gives the same run, which is shown by the hash of
//! everything that came out.

pub mod coverage;
mod drain;
pub mod faults;
pub mod hash;
pub mod items;
mod machine;
pub mod oracle;
pub mod plan;
pub mod random;
pub mod rules;
pub mod transactions;
pub mod workload;

use coverage::Coverage;
use engine::Work;
use faults::DiskPlan;
use machine::{Alive, Machine};
use oracle::Shared;
use plan::{Plan, Step};
use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use workload::Workload;

/// Partitions of one process.
pub const PARTITIONS: usize = 2;

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Report {
    pub commands: u64,
    pub crashes: u64,
    pub coverage: Coverage,
    pub trace: u64,
    /// The first promise that was not kept.
    pub violation: Option<String>,
    /// The step in which the run ended.
    pub steps: u64,
}

/// Runs a plan until its clients have given their commands, then drains every queue. With `is_telling` it prints
/// everything that happens.
pub fn run(plan: &Plan, is_telling: bool) -> Report {
    let shared: [Arc<Shared>; PARTITIONS] = std::array::from_fn(|_| Arc::default());
    let mut run = Run::new(plan, &shared, is_telling);
    let ended = catch_unwind(AssertUnwindSafe(|| run.go()));
    let mut report = Report {
        commands: run.workload.commands,
        crashes: run.crashes,
        steps: run.step,
        ..Report::default()
    };
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        report.violation = Some(format!("panic: {text}"));
    }
    for each in &shared {
        let mut oracle = each.lock();
        report.coverage.add(&oracle.coverage);
        report.trace = report.trace.rotate_left(1) ^ oracle.trace.hash();
        report.violation = report.violation.or(oracle.violation.take());
    }
    report
}

struct Run<'a> {
    plan: &'a Plan,
    is_telling: bool,
    step: u64,
    crashes: u64,
    machines: [Machine; PARTITIONS],
    workload: Workload,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, shared: &[Arc<Shared>; PARTITIONS], is_telling: bool) -> Run<'a> {
        let mut random = Random::new(plan.seed);
        let workload = Workload::new(random.fork());
        let tier = workload.tier;
        let machines = std::array::from_fn(|nth| {
            shared[nth].lock().begin(nth, tier, is_telling);
            Machine::new(random.fork(), tier, shared[nth].clone())
        });
        Run { plan, is_telling, step: 0, crashes: 0, machines, workload }
    }

    fn is_fine(&self) -> bool {
        self.machines.iter().all(|machine| machine.shared.lock().violation.is_none())
    }

    fn go(&mut self) {
        self.begin();
        while self.step < self.plan.end && self.workload.commands < self.plan.commands && self.is_fine() {
            if self.plan.has(self.step) {
                let mut random = self.plan.random(self.step);
                let step = Step::draw(&mut random);
                if self.is_telling && !matches!(step, Step::Act | Step::Go) {
                    println!("step {}: {step:?}", self.step);
                }
                self.take(step, random);
            }
            self.step += 1;
        }
        if self.is_fine() {
            self.drain();
        }
    }

    fn take(&mut self, step: Step, mut random: Random) {
        match step {
            Step::Act => self.workload.act(random, &self.machines),
            Step::Connect => self.workload.connect(&self.machines),
            Step::Disconnect => self.workload.disconnect(random, &self.machines),
            Step::Go => {
                let elapsed = random.below(20);
                self.pass(elapsed);
                self.hand_over(random.once_in(3));
            }
            Step::Quiet => {
                let elapsed = match random.below(20) {
                    0 => random.between(60_000, 600_000),
                    1..8 => random.between(1_000, 20_000),
                    _ => random.between(50, 2_000),
                };
                self.hand_over(random.once_in(3));
                self.pass(elapsed);
                self.hand_over(random.once_in(3));
            }
            Step::Alone => {
                self.hand_over(false);
                self.workload.describe_alone(random, &self.machines);
                self.hand_over(false);
            }
            Step::Rest => {
                self.hand_over(false);
                if self.machines.iter_mut().any(|machine| machine.rest() == Alive::No) {
                    self.crash();
                }
            }
            Step::Clock => {
                let step = random.number();
                self.machines.iter_mut().for_each(|machine| machine.clock.step(&mut Random::new(step)));
                self.machines[0].shared.lock().coverage.fault("clock step");
            }
            Step::Stall => {
                self.hand_over(false);
                let nth = random.below(PARTITIONS as u64) as usize;
                self.machines[nth].stalled = random.between(1, 12);
            }
            Step::Kill => {
                // Sometimes with what was said on its way, sometimes in peace.
                if random.once_in(2) {
                    self.hand_over(true);
                }
                self.machines[0].shared.lock().coverage.fault("kill");
                self.crash();
            }
            Step::CleanStop => self.stop(),
        }
    }

    fn pass(&mut self, elapsed: u64) {
        self.machines.iter_mut().for_each(|machine| machine.clock.pass(elapsed as i64));
    }

    /// What the clients have said reaches the server, as far as it reads, and its answers reach them.
    fn hand_over(&mut self, is_busy: bool) {
        let mut alive = Alive::Yes;
        for nth in 0..PARTITIONS {
            self.machines[nth].wake();
            let is_all = self.workload.hand_over(nth, &self.machines[nth]);
            if self.machines[nth].run(is_busy, is_all) == Alive::No {
                alive = Alive::No;
            }
            self.deliver(nth);
        }
        if alive == Alive::No {
            self.crash();
        }
    }

    fn deliver(&mut self, nth: usize) {
        let machine = &self.machines[nth];
        let outgoing = machine.shared.take();
        self.workload.receive(nth, outgoing, || machine.has_struck(), &mut machine.shared.lock());
    }

    fn stop(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.stalled = 0);
        let mut is_clean = true;
        for nth in 0..PARTITIONS {
            let is_all = self.workload.hand_over(nth, &self.machines[nth]);
            self.machines[nth].put(Work::Stop);
            is_clean &=
                self.machines[nth].run(false, is_all) == Alive::No && !self.machines[nth].has_struck();
            self.deliver(nth);
        }
        if is_clean {
            self.machines[0].shared.lock().coverage.fault("clean stop");
        }
        self.crash();
    }

    fn begin(&mut self) {
        let mut random = self.plan.disk_random(self.step);
        for machine in &mut self.machines {
            let drawn = DiskPlan::draw(&mut random);
            machine.start(if self.plan.has_disk(self.step) { drawn } else { DiskPlan::HEALTHY });
        }
    }

    fn end(&mut self) {
        let mut random = self.plan.disk_random(self.step).fork();
        self.crashes += 1;
        for machine in &mut self.machines {
            machine.end(faults::draw_image(&mut random));
        }
        self.workload.disconnect_all();
    }

    fn crash(&mut self) {
        self.end();
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_run_and_no_other() {
        let report = run(&Plan::new(7, 300), false);
        assert_eq!(report.violation, None);
        assert!(report.commands >= 300);
        assert_eq!(run(&Plan::new(7, 300), false).trace, report.trace);
        assert_ne!(run(&Plan::new(8, 300), false).trace, report.trace);
    }
}
