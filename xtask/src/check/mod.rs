//! `cargo xtask check`: the steps in their order, cheap ones first, stopping at the first that fails.
//!
//! What always holds: the last line printed is `N passed, N failed`, and a failure names the command that
//! reproduces it. A test counts once; a step without tests of its own (format, lints) counts as one.

pub mod advisories;
mod compatibility;
mod dependencies;
mod licence;
mod output;
mod rust_tests;
mod sdk_tests;
mod step;

use std::collections::BTreeSet;
use std::process::ExitCode;

pub use compatibility::renew as renew_compatibility;
pub use step::{Failure, finished};
use step::{Report, Step};

/// Names of all tests that ran and passed so far, as the proofs in docs/compatibility write them.
type Ran = BTreeSet<String>;

pub fn run() -> ExitCode {
    let steps: &[Step] = &[
        Step { name: "format", run: |_| step::cargo(&["fmt", "--all", "--check"]) },
        Step {
            name: "lints",
            run: |_| step::cargo(&["clippy", "--workspace", "--all-targets", "--profile", "quick"]),
        },
        Step { name: "dependencies", run: |_| dependencies::check() },
        Step { name: "build tests", run: |_| rust_tests::build() },
        Step { name: "unit and property tests", run: rust_tests::run },
        Step { name: "docs", run: |_| docs() },
        Step { name: "simulation", run: |_| simulation(&["--seeds", SIMULATED_SEEDS]) },
        Step { name: "simulation of items", run: |_| simulation(&["--items", "--seeds", SIMULATED_ITEMS]) },
        Step {
            name: "simulation of transactions",
            run: |_| simulation(&["--transactions", "--seeds", SIMULATED_TRANSACTIONS]),
        },
        Step { name: "planted bugs", run: |_| planted() },
        Step { name: "build otobus", run: |_| sdk_tests::build() },
        Step { name: "kill -9 under load", run: |_| killed() },
        Step { name: "python packages", run: |_| sdk_tests::prepare_python() },
        Step { name: "javascript packages", run: |_| sdk_tests::prepare_javascript() },
        Step { name: "crashes (strace)", run: sdk_tests::crash },
        Step { name: "python SDK", run: sdk_tests::python },
        Step { name: "javascript SDK", run: sdk_tests::javascript },
        Step { name: "rust SDK", run: sdk_tests::rust },
        Step { name: "compatibility pages", run: compatibility::check },
    ];
    run_steps(steps)
}

/// Only the tests that run the built broker.
pub fn run_black_box() -> ExitCode {
    let steps: &[Step] = &[
        Step { name: "build otobus", run: |_| sdk_tests::build() },
        Step { name: "python packages", run: |_| sdk_tests::prepare_python() },
        Step { name: "javascript packages", run: |_| sdk_tests::prepare_javascript() },
        Step { name: "crashes (strace)", run: sdk_tests::crash },
        Step { name: "python SDK", run: sdk_tests::python },
        Step { name: "javascript SDK", run: sdk_tests::javascript },
        Step { name: "rust SDK", run: sdk_tests::rust },
    ];
    run_steps(steps)
}

/// Only what deny.toml says about dependencies.
pub fn run_dependencies() -> ExitCode {
    run_steps(&[Step { name: "dependencies", run: |_| dependencies::check() }])
}

fn run_steps(steps: &[Step]) -> ExitCode {
    let mut ran = Ran::new();
    let mut passed = 0;
    for (index, step) in steps.iter().enumerate() {
        match step::announced(index + 1, steps.len(), step, &mut ran) {
            Ok(report) => passed += report.passed,
            Err(failure) => {
                println!("\n{}\n\nto reproduce: {}", failure.output.trim_end(), failure.command);
                println!("{} passed, {} failed", passed + failure.passed, failure.failed);
                return ExitCode::FAILURE;
            }
        }
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
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--profile", "quick"];
    step::command("cargo", &arguments, &[("RUSTDOCFLAGS", "-D warnings")])
}

/// How many seeds every check simulates; longer searches are `cargo run -p otobus-sim`.
const SIMULATED_SEEDS: &str = "200";

/// The same for items. Each of them takes about twice as long.
const SIMULATED_ITEMS: &str = "100";

/// The same for transactions alone.
const SIMULATED_TRANSACTIONS: &str = "50";

const SIMULATOR: [&str; 6] = ["run", "--package", "otobus-sim", "--profile", "quick", "--quiet"];

fn simulation(flags: &[&str]) -> Result<Report, Failure> {
    step::cargo(&[&SIMULATOR[..], &["--"], flags].concat())
}

/// A simulator that finds nothing must be one that would find something.
fn planted() -> Result<Report, Failure> {
    step::cargo(&[&SIMULATOR[..], &["--features", "planted", "--", "--planted"]].concat())
}
