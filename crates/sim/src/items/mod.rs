//! The items on fake time and a failing disk, from one seed.
//!
//! One client at a time asks, in an order drawn from the seed; the `model` knows what each answer must be, because it does the
//! same with a map and no disk. The process is killed, its disk fails, somebody sets its clock: whatever was answered must be
//! there afterwards, and of what was not answered the first part and nothing else; what has expired never comes back.

mod ask;
mod feeds;
mod model;
mod reads;
mod state;
mod world;

use crate::random::Random;
use ask::{Ask, Settings};
use model::Model;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Life, World};

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Report {
    pub commands: u64,
    pub crashes: u64,
    pub faults: u64,
    pub checkpoints: u64,
    pub expired: u64,
    pub queries: u64,
    /// Changes that the feed of all versions and deletes has told, and those among them that tell of an expiry.
    pub changes: u64,
    pub expiries: u64,
    /// A hash of everything that was heard.
    pub trace: u64,
    /// The first promise that was not kept.
    pub violation: Option<String>,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        self.commands += other.commands;
        self.crashes += other.crashes;
        self.faults += other.faults;
        self.checkpoints += other.checkpoints;
        self.expired += other.expired;
        self.queries += other.queries;
        self.changes += other.changes;
        self.expiries += other.expiries;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { commands, crashes, faults, checkpoints, expired, queries, changes, expiries, .. } = self;
        write!(
            f,
            "{commands} commands, {crashes} crashes, {faults} failing disks, {checkpoints} checkpoints, {expired} \
             reads of what has expired, {queries} queries, {changes} changes in the feed with {expiries} expiries"
        )
    }
}

/// How long, and how often, a client waits for the last answers.
const WAIT_MS: u64 = 1_000;
const MOST_WAITS: u32 = 200;

/// Runs one seed until its client has given so many commands. With `is_telling` it prints everything that happens.
pub fn run(seed: u64, commands: u64, is_telling: bool) -> Report {
    let mut run = Run::new(seed, commands, is_telling);
    let ended = catch_unwind(AssertUnwindSafe(|| run.go()));
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        run.report.violation.get_or_insert(format!("panic: {text}"));
    }
    run.report.checkpoints = run.world.checkpoints;
    run.report.faults = run.world.struck;
    run.report.changes = run.model.feeds.told;
    run.report.expiries = run.model.feeds.told_expired;
    run.report
}

struct Run {
    random: Random,
    commands: u64,
    is_telling: bool,
    /// Ids of each partition.
    ids: u64,
    world: World,
    model: Model,
    report: Report,
}

/// What a client does next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ask,
    Read,
    Query,
    Feed,
    Pass,
    /// The partition's thread does what it can, while the disk may be slow.
    Work,
    Settle,
    Stall,
    Clock,
    Kill,
    Stop,
}

impl Step {
    fn draw(random: &mut Random) -> Step {
        match random.below(200) {
            0..100 => Step::Ask,
            100..134 => Step::Read,
            134..140 => Step::Query,
            140..146 => Step::Feed,
            146..162 => Step::Pass,
            162..176 => Step::Work,
            176..186 => Step::Settle,
            186..194 => Step::Stall,
            194..196 => Step::Clock,
            196..199 => Step::Kill,
            _ => Step::Stop,
        }
    }
}

impl Run {
    fn new(seed: u64, commands: u64, is_telling: bool) -> Run {
        let mut random = Random::new(seed ^ 0x6974_656d_7321);
        let world = World::new(random.fork());
        let ids = ask::draw_ids(&mut random);
        let (model, report) = (Model::default(), Report::default());
        Run { random, commands, is_telling, ids, world, model, report }
    }

    fn is_fine(&self) -> bool {
        self.report.violation.is_none()
    }

    fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.is_telling {
            println!("violation: {what}");
        }
        self.report.violation.get_or_insert(what);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_telling {
            println!("{}", what());
        }
    }

    fn go(&mut self) {
        self.world.start_healthy();
        for ask in [Ask::Database, Ask::Container(Settings::default())] {
            self.ask(&ask);
        }
        self.settle();
        self.read_feeds();
        while self.report.commands < self.commands && self.is_fine() {
            let step = Step::draw(&mut self.random);
            self.take(step);
        }
        self.end();
        self.check_everything();
    }

    /// Everybody is answered in the end: a full disk has room again after a while.
    fn end(&mut self) {
        self.settle();
        for _ in 0..MOST_WAITS {
            if !self.is_fine() || !self.model.is_waiting() {
                return;
            }
            self.world.pass(WAIT_MS);
            self.settle();
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask => {
                let ask = Ask::draw(&mut self.random, &self.model, self.ids);
                self.ask(&ask);
            }
            Step::Read => self.read_some(),
            Step::Query => self.query(),
            Step::Feed => self.read_feeds(),
            Step::Pass => {
                let passed = *self.random.pick(&[1, 7, 300, 999, 1_000, 1_001, 2_500, 7_000]);
                self.tell(|| format!("{passed} ms pass"));
                self.world.pass(passed);
                if self.random.once_in(2) {
                    self.settle();
                }
            }
            Step::Work => {
                self.world.run();
                self.hear();
            }
            Step::Settle => self.settle(),
            Step::Stall => self.world.stalled = !self.world.stalled,
            Step::Clock => {
                self.tell(|| "somebody sets the clock".into());
                self.world.set_clock();
            }
            Step::Kill => self.crash(),
            Step::Stop => {
                self.world.stalled = false;
                self.world.stop();
                self.hear();
                self.crash();
            }
        }
        self.look_after_life();
    }

    /// Asks for something that writes.
    fn ask(&mut self, ask: &Ask) {
        self.report.commands += 1;
        let Some(now) = self.world.now() else { return self.crash() };
        let has_room = !self.world.is_short();
        let number = self.model.ask(ask, now, has_room);
        self.tell(|| format!("{now:?} ask {number}: {ask:?}"));
        let mark = self.world.hand_over(number, ask.command());
        self.model.was_decided(mark);
        self.hear();
    }

    /// Lets everything finish that can: the disk answers, checkpoints are made, what has expired is removed.
    fn settle(&mut self) {
        self.world.stalled = false;
        self.world.run();
        self.hear();
        self.look_after_life();
    }

    /// Takes the answers that have left the server.
    fn hear(&mut self) {
        for (number, answer) in self.world.answers() {
            let what = ask::Heard::of(&answer);
            let mut hasher = std::hash::DefaultHasher::new();
            (self.report.trace, number, format!("{what:?}")).hash(&mut hasher);
            self.report.trace = hasher.finish();
            self.tell(|| format!("answer {number}: {what:?}"));
            if let Err(wrong) = self.model.answered(number, what) {
                self.fail(wrong);
            }
        }
    }

    fn look_after_life(&mut self) {
        match self.world.life() {
            Life::Goes => {}
            Life::Ended => self.crash(),
            Life::Wrong(why) => self.fail(why),
        }
    }

    fn crash(&mut self) {
        self.hear();
        self.tell(|| "crash".into());
        self.report.crashes += 1;
        self.world.crash();
        self.begin_life();
    }

    fn begin_life(&mut self) {
        if let Err(why) = self.world.start() {
            return self.fail(why);
        }
        let (Some(now), Some(mark)) = (self.world.now(), self.world.mark()) else {
            return self.fail("the container is gone");
        };
        let found = self.world.everything(now, self.ids);
        self.tell(|| format!("{now:?} found {mark:?} {found:?}"));
        if let Err(wrong) = self.model.recovered(&found, &mark, now) {
            self.fail(wrong);
        }
        self.check_entries();
    }

    fn check_entries(&mut self) {
        if let Some(Err(wrong)) = self.world.check_entries() {
            self.fail(wrong);
        }
    }

    fn check_everything(&mut self) {
        self.check_entries();
        self.read_feeds();
        if let Some(now) = self.world.now() {
            let found = self.world.everything(now, self.ids);
            if let Err(wrong) = self.model.settled(&found, now) {
                self.fail(wrong);
            }
        }
    }
}
