//! `cargo xtask items`: what the items cost and how fast they are, beside PostgreSQL 15 on the same machine in the same run.
//!
//! The server (release build) has one core, the client has the other. Every figure is told with its goal; where others used the
//! machine meanwhile, there is no verdict.

pub mod client;
pub mod item;
mod million;
mod postgres;
mod rates;
pub mod server;
pub mod worker;

use crate::cost::quiet::{Usage, is_quiet};
use crate::cost::{build, median, scratch};
use serde_json::Value;

const SERVER_CORE: &str = "0";
const CLIENT_CORE: &str = "1";

const USAGE: &str = "\
usage: cargo xtask items [--quick] [--only rates|million] [--items N] [--seconds N] [--rounds N] [--unbuilt] [--calm FILE]

  --quick     a tenth of the data and short measurements: for a look, not for a verdict
  --only      rates: upserts and reads beside PostgreSQL; million: filters, removal, start, memory
  --items     items of the second part (1,000,000)
  --seconds   how long each rate is measured (5)
  --rounds    how many times the rates are measured, in turns with PostgreSQL (3); medians are compared
  --unbuilt   takes the release build that is there
  --calm      when the items of the second part are written, waits for this file: the machine may be busy until then";

#[derive(Debug, Clone)]
struct Plan {
    /// Items that rates are measured on.
    few: u64,
    /// Items that filters, removal, start and memory are measured on.
    many: u64,
    seconds: u64,
    rounds: usize,
    only: Option<String>,
    is_built: bool,
    /// A person who calms the machine makes this file when it is calm.
    calm: Option<std::path::PathBuf>,
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    let plan = asked(arguments)?;
    if !crate::tools::is_on_path("taskset") || std::thread::available_parallelism().map_or(1, usize::from) < 2
    {
        return Err("the measurement needs two cores and `taskset` (package util-linux)".into());
    }
    if !plan.is_built {
        build()?;
    }
    if plan.only.as_deref().is_none_or(|only| only == "rates") {
        rates::run(&plan)?;
    }
    if plan.only.as_deref().is_none_or(|only| only == "million") {
        million::run(&plan)?;
    }
    Ok(())
}

fn asked(arguments: &[String]) -> Result<Plan, String> {
    let (few, many, seconds, rounds) = (100_000, 1_000_000, 5, 3);
    let mut plan = Plan { few, many, seconds, rounds, only: None, is_built: false, calm: None };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("`{flag}` needs a value\n\n{USAGE}"));
        let number = |text: &String| text.parse::<u64>().map_err(|error| format!("{flag}: {error}"));
        match flag.as_str() {
            "--quick" => (plan.few, plan.many, plan.seconds, plan.rounds) = (10_000, 100_000, 2, 1),
            "--only" => plan.only = Some(value()?.clone()),
            "--items" => plan.many = number(value()?)?,
            "--seconds" => plan.seconds = number(value()?)?,
            "--rounds" => plan.rounds = number(value()?)? as usize,
            "--unbuilt" => plan.is_built = true,
            "--calm" => plan.calm = Some(value()?.into()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(plan)
}

/// Runs a load on the client's core and returns what it measured.
fn load(arguments: &[&str]) -> Result<Value, String> {
    crate::cost::measured(CLIENT_CORE, "items-worker", arguments)
}

fn number(value: &Value, name: &str) -> Result<f64, String> {
    value[name].as_f64().ok_or(format!("the load lacks `{name}`: {value}"))
}

/// Whether a goal is met.
fn verdict(is_met: bool, goal: &str) -> String {
    if is_met { format!("met: {goal}") } else { format!("MISSED: {goal}") }
}

/// A word about others on this machine since `before`, if they disturbed.
fn disturbed(before: &Usage) -> Result<String, String> {
    let foreign = before.foreign_cores(&Usage::read(None)?);
    Ok(if is_quiet(foreign) { String::new() } else { format!("  (others used {foreign:.2} cores)") })
}
