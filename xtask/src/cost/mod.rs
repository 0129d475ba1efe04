//! `cargo xtask cost`: what a durable message of 1 KiB costs, sent and received.
//!
//! The broker (release build) runs on one core, the load client on another, so that the client's work is never
//! counted as the broker's. Each measurement runs in a process of its own, because a process can be given a core
//! from outside without a line of unsafe code.

pub mod broker;
mod figures;
pub use figures::percentile_us;
mod pace;
pub mod quiet;
mod raw;
pub mod start;
mod topics;
pub mod worker;

pub use pace::median;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use broker::Broker;
use figures::Figures;
use quiet::{Usage, is_quiet};
use serde_json::Value;

use crate::root::{root, target};

const BROKER_CORE: &str = "0";
const CLIENT_CORE: &str = "1";
pub const QUEUE: &str = "cost";
/// Seconds of sending that are measured, unless told otherwise.
const SECONDS: &str = "5";
const CREDIT: &str = "200";

struct Scenario {
    name: &'static str,
    connections: &'static str,
    window: &'static str,
    /// The most CPU seconds of the broker that a million sends may take.
    cpu_limit: Option<f64>,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "1 connection, window 100", connections: "1", window: "100", cpu_limit: Some(6.0) },
    Scenario { name: "4 connections, window 250", connections: "4", window: "250", cpu_limit: Some(5.0) },
    Scenario { name: "1 connection, window 1", connections: "1", window: "1", cpu_limit: None },
];

/// How much slower than the machine itself a single send may be: p50 against one round trip and one sync.
const RATIO_LIMIT: f64 = 1.6;

const USAGE: &str = "\
usage: cargo xtask cost [--seconds N] [--pace] [--topics] [--against PATH] [--rounds N]

  --seconds   how long each measurement takes (5)
  --pace      only the steady pace
  --topics    only publishing, beside sends to a queue
  --against   another build of otobus, measured at a steady pace in turns with this one
  --rounds    how many turns the steady pace takes (1); medians are compared";

pub fn run(arguments: &[String]) -> Result<(), String> {
    let Asked { plan, is_only_pace, is_only_topics } = asked(arguments)?;
    if !crate::tools::is_on_path("taskset") || std::thread::available_parallelism().map_or(1, usize::from) < 2
    {
        return Err("the measurement needs two cores and `taskset` (package util-linux)".into());
    }
    build()?;
    if is_only_topics {
        return topics::run(&plan.seconds, plan.rounds);
    }
    if !is_only_pace {
        println!("{:<36}{}", "1 KiB, durable", Figures::HEAD);
        for scenario in &SCENARIOS {
            measure(scenario, &plan.seconds)?;
        }
    }
    pace::run(&plan)
}

struct Asked {
    plan: pace::Plan,
    is_only_pace: bool,
    is_only_topics: bool,
}

fn asked(arguments: &[String]) -> Result<Asked, String> {
    let plan = pace::Plan { seconds: SECONDS.into(), rounds: 1, against: None };
    let mut asked = Asked { plan, is_only_pace: false, is_only_topics: false };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("`{flag}` needs a value\n\n{USAGE}"));
        match flag.as_str() {
            "--pace" => asked.is_only_pace = true,
            "--topics" => asked.is_only_topics = true,
            "--seconds" => asked.plan.seconds = value()?.clone(),
            "--rounds" => {
                asked.plan.rounds = value()?.parse().map_err(|error| format!("--rounds: {error}"))?;
            }
            "--against" => asked.plan.against = Some(value()?.into()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(asked)
}

/// Builds the broker and the load client for speed.
pub fn build() -> Result<(), String> {
    println!("building (release) ...");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--package", "otobus", "--package", "xtask"])
        .current_dir(root())
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("the build failed".into()) }
}

/// Sends, then receives all that was accepted, on a broker with new data.
fn measure(scenario: &Scenario, seconds: &str) -> Result<(), String> {
    let folder = scratch("cost")?;
    let is_window_one = scenario.window == "1";
    let mut floor = if is_window_one { vec![Floor::measure(&folder)?] } else { Vec::new() };
    let broker = Broker::start(&folder, &["taskset", "-c", BROKER_CORE])?;
    let (port, pid) = (broker.port.to_string(), broker.pid().to_string());

    let before = Usage::read(Some(broker.pid()))?;
    let send = ["send", &port, QUEUE, &pid, scenario.connections, scenario.window, seconds];
    let sent = worker(CLIENT_CORE, &send)?;
    let foreign = before.foreign_cores(&Usage::read(Some(broker.pid()))?);
    let figures = Figures::read(&sent)?;
    let limit = scenario.cpu_limit.map(|limit| verdict(figures.cpu_per_million(), limit, "CPU s/M", foreign));
    let words = limit.or((!is_quiet(foreign)).then(|| disturbed(foreign))).unwrap_or_default();
    println!("{:<36}{figures}  {words}", format!("send, {}", scenario.name));

    let accepted = sent["accepted"].as_u64().ok_or("the sender counted nothing")?.to_string();
    let before = Usage::read(Some(broker.pid()))?;
    let receive = ["receive", &port, QUEUE, &pid, scenario.connections, CREDIT, &accepted];
    let received = Figures::read(&worker(CLIENT_CORE, &receive)?)?;
    let foreign_receiving = before.foreign_cores(&Usage::read(Some(broker.pid()))?);
    let words = if is_quiet(foreign_receiving) { String::new() } else { disturbed(foreign_receiving) };
    println!(
        "{:<36}{received}  {words}",
        format!("receive, {}, credit {CREDIT}", plural(scenario.connections))
    );

    drop(broker);
    if is_window_one {
        floor.push(Floor::measure(&folder)?);
        print_floor(&floor, figures.p50_us, foreign);
    }
    std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

fn plural(connections: &str) -> String {
    if connections == "1" { "1 connection".into() } else { format!("{connections} connections") }
}

/// Whether a limit is kept; a disturbed measurement proves neither.
fn verdict(measured: f64, limit: f64, unit: &str, foreign_cores: f64) -> String {
    if !is_quiet(foreign_cores) {
        return disturbed(foreign_cores);
    }
    let words = if measured <= limit { "within" } else { "ABOVE" };
    format!("{words} {limit} {unit}")
}

fn disturbed(foreign_cores: f64) -> String {
    format!("DISTURBED, no verdict: others used {foreign_cores:.2} cores")
}

/// What the machine itself takes for what one send needs at least: a round trip and a sync.
struct Floor {
    round_trip_us: f64,
    sync_us: f64,
    foreign_cores: f64,
}

impl Floor {
    fn measure(folder: &std::path::Path) -> Result<Floor, String> {
        let before = Usage::read(None)?;
        let round_trip_us = raw::round_trip(BROKER_CORE, CLIENT_CORE)?;
        let file = folder.join("raw-sync");
        let sync = worker(BROKER_CORE, &["sync", &file.to_string_lossy()])?;
        let sync_us = sync["p50_us"].as_f64().ok_or("the sync was not measured")?;
        Ok(Floor { round_trip_us, sync_us, foreign_cores: before.foreign_cores(&Usage::read(None)?) })
    }

    fn us(&self) -> f64 {
        self.round_trip_us + self.sync_us
    }
}

/// The floor was measured before and after the sends. The lower one counts: noise only ever raises it, and a raised
/// floor would let a slow broker pass.
fn print_floor(floor: &[Floor], send_p50_us: f64, foreign_cores: f64) {
    println!();
    for (when, floor) in ["before", "after"].iter().zip(floor) {
        let Floor { round_trip_us, sync_us, foreign_cores } = floor;
        println!(
            "raw, {when}: loopback round trip of 64 B p50 {round_trip_us:.1} us, fdatasync of 4 KiB preallocated p50 \
             {sync_us:.1} us, others used {foreign_cores:.2} cores"
        );
    }
    let lowest = floor.iter().map(Floor::us).fold(f64::INFINITY, f64::min);
    let noisiest = floor.iter().map(|floor| floor.foreign_cores).fold(foreign_cores, f64::max);
    let ratio = send_p50_us / lowest;
    let words = verdict(ratio, RATIO_LIMIT, "times", noisiest);
    println!("window 1 p50 {send_p50_us:.1} us = {ratio:.2} x (round trip + sync); {words}");
}

fn worker(core: &str, arguments: &[&str]) -> Result<Value, String> {
    measured(core, "worker", arguments)
}

/// Runs one of our own commands on a core and returns what it measured.
pub fn measured(core: &str, command: &str, arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new("taskset")
        .args(["-c", core])
        .arg(target().join("release/xtask"))
        .arg(command)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run taskset: {error}"))?;
    if !output.status.success() {
        return Err(format!("the measurement `{}` failed", arguments.join(" ")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the measurement printed no JSON: {error}"))
}

/// An empty folder under `target/`: on the disk that the project is on, unlike many systems' `/tmp`.
pub fn scratch(name: &str) -> Result<PathBuf, String> {
    let folder = target().join("scratch").join(name);
    let made = match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(&folder),
    };
    made.map(|()| folder.clone()).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}
