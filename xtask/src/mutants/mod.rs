//! `cargo xtask mutants`: small changes are made to a crate or to a part of it, and its own tests must notice them.
//!
//! Which changes is drawn from a seed: those whose names hash lowest are taken, so that the choice stays nearly the
//! same while the code changes. All of them are built at once (see tree.rs), so that a change costs one run of the
//! tests and no build. The tests that take long run only for what the others have not noticed.

mod choice;
mod tests;
mod tree;

use crate::root::target;
use choice::{Mutant, choose, list, without_place};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tests::Suite;

/// What is changed, and what has to notice it.
#[derive(Debug)]
struct Subject {
    name: &'static str,
    package: &'static str,
    /// The folder of the package, and the file in it that every other one can name as `crate`.
    home: &'static str,
    top: &'static str,
    /// Where changes are made, and where not: worlds for tests, and bugs for the simulator, are not the product.
    files: &'static [&'static str],
    not_mutated: &'static [&'static str],
    /// Changes that are made.
    count: usize,
    /// How many in a hundred must be noticed.
    noticed_percent: usize,
    /// Tests that every change meets, and tests for what those have not noticed.
    suites: &'static [Suite],
}

const BROKER: Subject = Subject {
    name: "broker",
    package: "otobus-broker",
    home: "crates/broker",
    top: "src/lib.rs",
    files: &["crates/broker/src/**"],
    not_mutated: &["crates/broker/src/testing.rs", "crates/broker/src/planted.rs"],
    count: 200,
    noticed_percent: 90,
    suites: &[
        // Not the tests with a million messages, or with every byte of a snapshot.
        Suite {
            name: "lib",
            skipped: &["::cost_tests::", "snapshot::tests::a_snapshot_cut_anywhere"],
            limit: Duration::from_secs(60),
        },
        Suite { name: "replay", skipped: &[], limit: Duration::from_secs(600) },
        Suite { name: "lib", skipped: &[], limit: Duration::from_secs(600) },
    ],
};

const GATEWAY: Subject = Subject {
    name: "gateway",
    package: "otobus-gateway",
    home: "crates/gateway",
    top: "src/lib.rs",
    files: &["crates/gateway/src/amqp/**", "crates/gateway/src/http/**"],
    not_mutated: &["crates/gateway/src/http/tests/**", "crates/gateway/src/**/fuzzing.rs"],
    count: 200,
    noticed_percent: 85,
    suites: &[
        Suite { name: "lib", skipped: &[], limit: Duration::from_secs(120) },
        Suite { name: "amqp_door", skipped: &[], limit: Duration::from_secs(240) },
        // What strangers and greedy peers may hold, and when they are turned away.
        Suite { name: "hostile", skipped: &[], limit: Duration::from_secs(240) },
        Suite { name: "slow_peers", skipped: &[], limit: Duration::from_secs(240) },
        Suite { name: "greedy", skipped: &[], limit: Duration::from_secs(600) },
    ],
};

const MESSAGE: Subject = Subject {
    name: "message",
    package: "otobus-message",
    home: "crates/message",
    top: "src/lib.rs",
    files: &["crates/message/src/**"],
    // A limit is a decision: tests hold the code to it, and not the number to another.
    not_mutated: &[
        "crates/message/src/planted.rs",
        "crates/message/src/limits.rs",
        "crates/message/src/**/tests.rs",
    ],
    count: 300,
    noticed_percent: 90,
    // Not the million values: what they tell the oracle tells of fewer in less time.
    suites: &[
        Suite { name: "lib", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "oracle", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "corpus", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "properties", skipped: &[], limit: Duration::from_secs(120) },
    ],
};

const AMQP: Subject = Subject {
    name: "amqp",
    package: "otobus-amqp",
    home: "crates/amqp",
    top: "src/lib.rs",
    files: &["crates/amqp/src/**"],
    not_mutated: &["crates/amqp/src/limits.rs"],
    count: 300,
    noticed_percent: 90,
    suites: &[
        Suite { name: "lib", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "conversation", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "codec", skipped: &[], limit: Duration::from_secs(120) },
    ],
};

/// What the doors share: who may come in, the sockets, and what is known of places and accounts.
const ENTRANCE: Subject = Subject {
    name: "entrance",
    package: "otobus-gateway",
    home: "crates/gateway",
    top: "src/lib.rs",
    files: &["crates/gateway/src/**"],
    not_mutated: &[
        "crates/gateway/src/amqp/**",
        "crates/gateway/src/http/**",
        "crates/gateway/src/cosmos/**",
        "crates/gateway/src/limits.rs",
        "crates/gateway/src/**/tests.rs",
        "crates/gateway/src/**/fuzzing.rs",
    ],
    count: 150,
    noticed_percent: 85,
    suites: GATEWAY.suites,
};

const SERVER: Subject = Subject {
    name: "server",
    package: "otobus",
    home: "crates/server",
    top: "src/main.rs",
    files: &["crates/server/src/**"],
    not_mutated: &["crates/server/src/limits.rs", "crates/server/src/**/tests.rs"],
    count: 150,
    noticed_percent: 85,
    suites: &[
        Suite { name: "bin", skipped: &[], limit: Duration::from_secs(60) },
        Suite { name: "verify", skipped: &[], limit: Duration::from_secs(120) },
        Suite { name: "doors", skipped: &[], limit: Duration::from_secs(240) },
        Suite { name: "start_and_stop", skipped: &[], limit: Duration::from_secs(240) },
    ],
};

const SUBJECTS: [&Subject; 6] = [&BROKER, &GATEWAY, &ENTRANCE, &MESSAGE, &AMQP, &SERVER];
const USAGE: &str = "usage: cargo xtask mutants [broker|gateway|entrance|message|amqp|server] [--seed S] [--part K/N] [--again]";

/// What the command line asks for.
#[derive(Debug, Clone, Copy)]
struct Question {
    subject: &'static Subject,
    seed: u64,
    part: Part,
    /// Only those that the last run with this seed has not noticed.
    is_again: bool,
}

/// Which of the chosen changes are judged, and where those are remembered that nobody notices.
#[derive(Debug)]
struct Wanted {
    part: Part,
    /// Names without their places, which move.
    again: Option<BTreeSet<String>>,
    missed: PathBuf,
}

impl Wanted {
    fn of(question: &Question) -> Result<Wanted, String> {
        let name = format!("mutants/missed-{}-{}.txt", question.subject.name, question.seed);
        let missed = target().join(name);
        let read = || -> Result<BTreeSet<String>, String> {
            let text = std::fs::read_to_string(&missed).map_err(|error| {
                format!("nothing is known of an earlier run: {}: {error}", missed.display())
            })?;
            Ok(text.lines().map(|name| without_place(name).to_owned()).collect())
        };
        let again = question.is_again.then(read).transpose()?;
        Ok(Wanted { part: question.part, again, missed })
    }

    fn holds(&self, number: usize, mutant: &Mutant) -> bool {
        let is_again = |names: &BTreeSet<String>| names.contains(without_place(&mutant.name));
        self.part.holds(number) && self.again.as_ref().is_none_or(is_again)
    }

    fn remember<'a>(&self, missed: impl Iterator<Item = &'a Mutant>) -> Result<(), String> {
        let names: String = missed.map(|mutant| format!("{}\n", mutant.name)).collect();
        std::fs::write(&self.missed, names).map_err(|error| format!("{}: {error}", self.missed.display()))
    }
}

/// The `number`th of `of` parts of the changes, from one: judged alone, so that a run may be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    number: usize,
    of: usize,
}

impl Part {
    fn read(given: &str) -> Option<Part> {
        let (number, of) = given.split_once('/')?;
        let part = Part { number: number.parse().ok()?, of: of.parse().ok()? };
        (1..=part.of).contains(&part.number).then_some(part)
    }

    /// Every `of`th change is of one part, counted from one.
    fn holds(self, change: usize) -> bool {
        change % self.of == self.number % self.of
    }
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    let question = read(arguments)?;
    let wanted = Wanted::of(&question)?;
    let Question { subject, seed, part, is_again } = question;
    tree::take()?;
    let chosen = choose(list(subject)?, seed, subject.count);
    println!("{} changes of {}, chosen by seed {seed}", chosen.len(), subject.package);
    let judged = tests::judge(subject, chosen, &wanted)?;
    wanted.remember(judged.missed.iter())?;
    judged.unviable.iter().for_each(|mutant| println!("does not compile: {}", mutant.name));
    judged.missed.iter().for_each(|mutant| println!("not noticed: {}", mutant.name));
    let viable = judged.noticed + judged.missed.len();
    println!("{} of {viable} changes were noticed; {} do not compile", judged.noticed, judged.unviable.len());
    match part.of > 1 || is_again || 100 * judged.noticed >= subject.noticed_percent * viable {
        true => Ok(()),
        false => Err(format!("fewer than {} % were noticed", subject.noticed_percent)),
    }
}

fn read(arguments: &[String]) -> Result<Question, String> {
    let mut question =
        Question { subject: &BROKER, seed: 1, part: Part { number: 1, of: 1 }, is_again: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seed" => {
                let given = rest.next().ok_or(USAGE)?;
                question.seed = given.parse().map_err(|_| format!("`{given}` is no seed"))?;
            }
            "--part" => question.part = rest.next().and_then(|given| Part::read(given)).ok_or(USAGE)?,
            "--again" => question.is_again = true,
            name => {
                question.subject = SUBJECTS.into_iter().find(|subject| subject.name == name).ok_or(USAGE)?;
            }
        }
    }
    Ok(question)
}

#[cfg(test)]
mod part_tests {
    use super::*;

    #[test]
    fn every_change_is_of_exactly_one_part() {
        for change in 1..=20 {
            let parts = (1..=3).filter(|number| Part { number: *number, of: 3 }.holds(change));
            assert_eq!(parts.count(), 1, "{change}");
        }
        assert!((1..=20).all(|change| Part { number: 1, of: 1 }.holds(change)));
    }

    #[test]
    fn a_part_beyond_the_last_is_refused() {
        assert_eq!(Part::read("3/3"), Some(Part { number: 3, of: 3 }));
        for wrong in ["4/3", "0/3", "1", "1/0", "a/b"] {
            assert_eq!(Part::read(wrong), None, "{wrong}");
        }
    }
}
