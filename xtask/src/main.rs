//! The project's workbench: `cargo xtask check` runs all that must pass, `cargo xtask cost` measures the hot path.
//!
//! Everything it needs beyond Rust, Python and Node it makes under `target/`. It never changes the source tree, except where a command says so.

mod check;
mod cost;
mod crash;
mod fuzz;
mod items;
mod load;
mod mutants;
mod root;
mod sim;
mod storage;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check         everything that must pass: format, lints, tests, docs, simulation, compatibility, dependencies, SDKs
  compatibility writes the counts of docs/compatibility into COMPATIBILITY.md
  sdk           only the black-box tests, against a broker built with the quick profile
  dependencies  only licences, bans and sources of our dependencies
  documents     only whether links, named files, the table of crates and the places of limits are as documents say
  advisories    known weaknesses of our dependencies (needs cargo-deny and its database)
  cost          sends and receives durable messages: rate, CPU, latency (needs two cores and taskset); --pace, --topics, --against PATH
  crash         kills the broker again and again under load and checks what its clients were told
  fuzz          runs fuzz targets and writes fuzz/LEDGER.md (needs a nightly toolchain): TARGET..., --seconds N, --together, --planted, --minimise
  items         speed of the items beside PostgreSQL 15, filters, removal, start, memory: --quick, --only PART
  mutants       changes a crate in 150 to 300 small ways and runs its tests on each: [broker|gateway|entrance|message|amqp|server], --seed S, --part K/N, --again
  sim           runs seeds on fake time and a failing disk: --items, --seeds N, --seed S, --twice, --strict, --planted
  storage       power cuts, failing disks and damage at length; append rate, memory, restarts and space
  start         from exec to the first accepted message, on new and on existing data";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "check" => return check::run(),
        "compatibility" => check::renew_compatibility(),
        "sdk" => return check::run_black_box(),
        "dependencies" => return check::run_dependencies(),
        "documents" => return check::run_documents(),
        "advisories" => check::advisories::run(),
        "cost" => cost::run(rest),
        "fuzz" => fuzz::run(rest),
        "items" => items::run(rest),
        "mutants" => mutants::run(rest),
        "sim" => sim::run(rest),
        "start" => cost::start::run(),
        "crash" => crash::run(rest),
        "storage" => storage::run(rest),
        // What `cost` starts on a core of its own; see cost/worker.rs.
        "worker" => cost::worker::run(rest),
        "items-worker" => items::worker::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        unknown => Err(format!("there is no command `{unknown}`\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
