//! `cargo xtask check`: stages in their order, cheap ones first, stopping at the first that fails. The steps of a stage run side
//! by side.
//!
//! What always holds: the last line printed is `N passed, N failed`, and a failure names the command that
//! reproduces it. A test counts once; a step without tests of its own (format, lints) counts as one.

pub mod advisories;
mod compatibility;
mod dependencies;
mod documents;
mod licence;
mod limits;
mod output;
mod rust_tests;
mod sdk_tests;
mod step;

use crate::root::built;
use std::collections::BTreeSet;
use std::process::ExitCode;

pub use compatibility::renew as renew_compatibility;
pub use step::{Failure, finished};
use step::{Report, Step};

/// What tests and the broker under test are built with: quick to build, every assertion on.
const PROFILE: &str = "quick";

/// Names of all tests that ran and passed so far, as the proofs in docs/compatibility write them.
type Ran = BTreeSet<String>;

pub fn run() -> ExitCode {
    run_stages(&[
        &[
            Step { name: "format", run: |_| step::cargo(&["fmt", "--all", "--check"]) },
            Step { name: "documents", run: |_| documents::check() },
        ],
        // Packages come from the network while the compiler is busy.
        &[
            Step {
                name: "lints",
                run: |_| step::cargo(&["clippy", "--workspace", "--all-targets", "--profile", "quick"]),
            },
            Step { name: "dependencies", run: |_| dependencies::check() },
            Step { name: "python packages", run: |_| sdk_tests::prepare_python() },
            Step { name: "javascript packages", run: |_| sdk_tests::prepare_javascript() },
        ],
        // The tests of a package with programs are built with these: `otobus` and `otobus-sim` need no build of their own. They
        // differ from `cargo build`'s in features of libraries alone (tokio's `test-util`, hyper's client).
        &[
            Step { name: "build", run: |_| rust_tests::build() },
            Step { name: "build rust SDK tests", run: |_| sdk_tests::build_rust() },
        ],
        &[Step { name: "unit and property tests", run: rust_tests::run }],
        // SDK tests wait for locks and deadlines most of the time; what has no deadlines keeps the processors busy meanwhile.
        // Each server has a folder and ports of its own.
        &[
            Step { name: "python SDK", run: sdk_tests::python },
            Step { name: "javascript SDK", run: sdk_tests::javascript },
            Step { name: "rust SDK", run: sdk_tests::rust },
            Step { name: "simulations", run: |_| simulations() },
            Step { name: "docs", run: |_| docs() },
        ],
        &[
            Step { name: "planted bugs", run: |_| planted() },
            Step { name: "crashes (strace)", run: sdk_tests::crash },
        ],
        // By itself: it counts what is accepted until it kills.
        &[Step { name: "kill -9 under load", run: |_| killed() }],
        &[Step { name: "compatibility pages", run: compatibility::check }],
    ])
}

/// Only the tests that run the built broker.
pub fn run_black_box() -> ExitCode {
    run_stages(&[
        &[
            Step { name: "build otobus", run: |_| sdk_tests::build() },
            Step { name: "build rust SDK tests", run: |_| sdk_tests::build_rust() },
            Step { name: "python packages", run: |_| sdk_tests::prepare_python() },
            Step { name: "javascript packages", run: |_| sdk_tests::prepare_javascript() },
        ],
        &[
            Step { name: "crashes (strace)", run: sdk_tests::crash },
            Step { name: "python SDK", run: sdk_tests::python },
            Step { name: "javascript SDK", run: sdk_tests::javascript },
            Step { name: "rust SDK", run: sdk_tests::rust },
        ],
    ])
}

/// Only what deny.toml says about dependencies.
pub fn run_dependencies() -> ExitCode {
    run_stages(&[&[Step { name: "dependencies", run: |_| dependencies::check() }]])
}

/// Only what the documents say of the repository.
pub fn run_documents() -> ExitCode {
    run_stages(&[&[Step { name: "documents", run: |_| documents::check() }]])
}

/// Runs stage after stage, the steps of each side by side, until one fails; the other steps of its stage still end.
fn run_stages(stages: &[&[Step]]) -> ExitCode {
    let count = stages.iter().map(|stage| stage.len()).sum();
    let (mut ran, mut passed, mut first) = (Ran::new(), 0, 1);
    for stage in stages {
        let before = &ran;
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = |(index, step)| {
                scope.spawn(move || {
                    let mut ran = before.clone();
                    let outcome = step::announced(first + index, count, stage.len() == 1, step, &mut ran);
                    (ran, outcome)
                })
            };
            let threads: Vec<_> = stage.iter().enumerate().map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("a step fails by its result")).collect()
        });
        let mut failures = Vec::new();
        for (more, outcome) in outcomes {
            ran.extend(more);
            match outcome {
                Ok(report) => passed += report.passed,
                Err(failure) => failures.push(failure),
            }
        }
        if !failures.is_empty() {
            for failure in &failures {
                println!("\n{}\n\nto reproduce: {}", failure.output.trim_end(), failure.command);
            }
            passed += failures.iter().map(|failure| failure.passed).sum::<usize>();
            println!(
                "{passed} passed, {} failed",
                failures.iter().map(|failure| failure.failed).sum::<usize>()
            );
            return ExitCode::FAILURE;
        }
        first += stage.len();
    }
    println!("{passed} passed, 0 failed");
    ExitCode::SUCCESS
}

/// The short version of `cargo xtask crash`.
fn killed() -> Result<Report, Failure> {
    if !cfg!(unix) {
        return Ok(Report { passed: 0, note: "only where processes can be killed".into() });
    }
    let outcome = crate::crash::run_short().map_err(|why| Failure::new(why, "cargo xtask crash --quick"))?;
    Ok(Report { passed: 1, note: outcome })
}

fn docs() -> Result<Report, Failure> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--profile", PROFILE];
    behind_others("cargo", &arguments, &[("RUSTDOCFLAGS", "-D warnings")])
}

/// How many seeds every check simulates; longer searches are `cargo run -p otobus-sim`.
const SIMULATED_SEEDS: &str = "200";

/// The same for items, of which each takes about twice as long.
const SIMULATED_ITEMS: &str = "100";

/// The same for transactions alone.
const SIMULATED_TRANSACTIONS: &str = "50";

/// One after the other: each keeps all processors busy.
fn simulations() -> Result<Report, Failure> {
    let each: [&[&str]; 3] = [
        &["--seeds", SIMULATED_SEEDS],
        &["--items", "--seeds", SIMULATED_ITEMS],
        &["--transactions", "--seeds", SIMULATED_TRANSACTIONS],
    ];
    let mut passed = 0;
    for flags in each {
        passed += simulation(flags).map_err(|failure| Failure { passed, ..failure })?.passed;
    }
    // The next stage's, in the place of this one: there the processors are needed to run it.
    let more = ["build", "--package", "otobus-sim", "--profile", PROFILE, "--features", "planted"];
    let build = behind_others("cargo", &more, &[]).map_err(|failure| Failure { passed, ..failure })?;
    Ok(Report { passed: passed + build.passed, note: "messages, items, transactions".into() })
}

fn simulation(flags: &[&str]) -> Result<Report, Failure> {
    behind_others(&built(PROFILE, "otobus-sim").to_string_lossy(), flags, &[])
}

/// Tests beside it have deadlines in real time, and this has none: it takes the processors that they leave.
fn behind_others(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Report, Failure> {
    match cfg!(unix) {
        true => step::command("nice", &[&["-n", "19", program][..], arguments].concat(), variables),
        false => step::command(program, arguments, variables),
    }
}

/// A simulator that finds nothing must be one that would find something. The simulations have built it.
fn planted() -> Result<Report, Failure> {
    simulation(&["--planted"])
}
