//! `cargo xtask cost --pace`: what a message costs where users live, far below saturation.
//!
//! Two senders and two receivers at a steady pace; ours, another build of ours and a peer are measured in turns in one
//! run, so that whatever the machine does to one it does to all.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::broker::{Broker, free_address};
use super::figures::Figures;
use super::quiet::{Usage, is_quiet};
use super::{BROKER_CORE, CLIENT_CORE, QUEUE, disturbed, scratch, worker};
use crate::root::{binary, target};

const RATES: [&str; 4] = ["1000", "5000", "20000", "50000"];

/// The best peer that we know. Its queues under `/durable/` answer a send once it is synced, as ours do; its other kinds
/// live in memory. It answers a receiver's `accepted` without waiting for the disk, unlike us.
const PEER: &str = "ramqp-brokerd";
const PEER_QUEUE: &str = "/durable/cost";
const PEER_INSTALL: &str =
    "cargo install --root target/ramqp --features store-redb ramqp-broker --version ^0.9";

pub struct Plan {
    pub seconds: String,
    pub rounds: u32,
    /// Another build of ours, the one before a change for instance.
    pub against: Option<PathBuf>,
}

#[derive(Debug)]
enum Contender {
    Ours { name: &'static str, program: PathBuf },
    Peer(PathBuf),
}

impl Contender {
    fn name(&self) -> &str {
        match self {
            Contender::Ours { name, .. } => name,
            Contender::Peer(_) => PEER,
        }
    }

    fn queue(&self) -> &'static str {
        match self {
            Contender::Ours { .. } => QUEUE,
            Contender::Peer(_) => PEER_QUEUE,
        }
    }

    fn start(&self, folder: &Path) -> Result<Broker, String> {
        match self {
            Contender::Ours { program, .. } => {
                Broker::start_program(folder, &["taskset", "-c", BROKER_CORE], program)
            }
            Contender::Peer(program) => {
                let address = free_address()?;
                let mut command = Command::new("taskset");
                command.args(["-c", BROKER_CORE]).arg(program).args(["--listen", &address.to_string()]);
                // At its default level it logs each connection; a line for each message would be unfair.
                command.arg("--data-dir").arg(folder.join("data")).env("RUST_LOG", "warn");
                Broker::start_other(command, folder, address)
            }
        }
    }
}

pub fn run(plan: &Plan) -> Result<(), String> {
    let contenders = contenders(plan.against.as_deref())?;
    println!();
    println!("{:<36}{}", "2 senders, 2 receivers, steady pace", Figures::HEAD);
    println!("latency: from when a message was due until it was delivered");
    let mut measured: Vec<Round> = Vec::new();
    for rate in RATES {
        for _ in 0..plan.rounds {
            measured.push(measure_in_turns(&contenders, rate, &plan.seconds)?);
        }
        if plan.rounds > 1 || contenders.len() > 1 {
            print_summary(&contenders, rate, &measured);
        }
        measured.clear();
    }
    Ok(())
}

fn contenders(against: Option<&Path>) -> Result<Vec<Contender>, String> {
    let mut contenders = vec![Contender::Ours { name: "otobus", program: binary("release") }];
    if let Some(program) = against {
        let program = std::path::absolute(program).map_err(|error| error.to_string())?;
        contenders.push(Contender::Ours { name: "against", program });
    }
    match peer() {
        Some(program) => contenders.push(Contender::Peer(program)),
        None => println!("without {PEER}, which is not installed: {PEER_INSTALL}"),
    }
    Ok(contenders)
}

fn peer() -> Option<PathBuf> {
    let under_target = target().join("ramqp/bin").join(PEER);
    if under_target.exists() {
        return Some(under_target);
    }
    crate::tools::is_on_path(PEER).then(|| PEER.into())
}

/// The figures of each contender; none for a peer that did not get through.
type Round = Vec<Option<Figures>>;

fn measure_in_turns(contenders: &[Contender], rate: &str, seconds: &str) -> Result<Round, String> {
    let each = contenders.iter().map(|contender| match (measure(contender, rate, seconds), contender) {
        (Err(error), Contender::Peer(_)) => {
            println!("{:<36}{error}", format!("{rate}/s, {PEER}"));
            Ok(None)
        }
        (measured, _) => measured.map(Some),
    });
    each.collect()
}

fn measure(contender: &Contender, rate: &str, seconds: &str) -> Result<Figures, String> {
    let folder = scratch("pace")?;
    let broker = contender.start(&folder)?;
    let (port, pid) = (broker.port.to_string(), broker.pid().to_string());
    let before = Usage::read(Some(broker.pid()))?;
    let figures =
        Figures::read(&worker(CLIENT_CORE, &["pace", &port, contender.queue(), &pid, rate, seconds])?)?;
    let foreign = before.foreign_cores(&Usage::read(Some(broker.pid()))?);
    let words = if is_quiet(foreign) { String::new() } else { disturbed(foreign) };
    println!("{:<36}{figures}  {words}", format!("{rate}/s, {}", contender.name()));
    drop(broker);
    std::fs::remove_dir_all(&folder)
        .map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    Ok(figures)
}

/// The medians of all rounds, and ours relative to each other's.
fn print_summary(contenders: &[Contender], rate: &str, rounds: &[Round]) {
    let of = |which: usize, figure: fn(&Figures) -> f64| {
        median(rounds.iter().filter_map(|round| round[which].as_ref()).map(figure).collect())
    };
    for (which, contender) in contenders.iter().enumerate().skip(1) {
        let ratio = |name: &str, figure: fn(&Figures) -> f64| {
            let (ours, theirs) = (of(0, figure), of(which, figure));
            format!("{name} {ours:.1} / {theirs:.1} = {:.2}", ours / theirs)
        };
        let ratios = [
            ratio("CPU", Figures::cpu_per_million),
            ratio("p50", |figures| figures.p50_us),
            ratio("p99", |figures| figures.p99_us),
        ];
        println!("{:<36}{}", format!("{rate}/s, otobus to {}", contender.name()), ratios.join(", "));
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_round_does_not_move_the_median() {
        assert_eq!(median(vec![1.0, 900.0, 1.2]), 1.2);
    }
}
