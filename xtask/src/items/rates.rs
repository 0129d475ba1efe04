//! Durable upserts and point reads, in turns with PostgreSQL's.

use super::postgres::{self, Postgres};
use super::server::Server;
use super::{CLIENT_CORE, Plan, SERVER_CORE, item, load, median, number, scratch, verdict};
use crate::cost::quiet::{Usage, is_quiet};
use std::time::Duration;

const CONNECTIONS: u64 = 32;
const CACHE_MEGABYTES: u64 = 256;
const UPSERT_GOAL: f64 = 3.0;
const READ_GOAL: f64 = 2.0;
/// What is written before anything is measured.
const WARM_UP_SECONDS: u64 = 1;

/// One measured rate.
#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: f64,
    cpu_us: f64,
    foreign_cores: f64,
}

pub fn run(plan: &Plan) -> Result<(), String> {
    let folder = scratch("items")?;
    let server = Server::start(&folder, CACHE_MEGABYTES, SERVER_CORE)?;
    let mut connection = server.connect()?;
    let failed = |error: std::io::Error| error.to_string();
    connection.create_database().map_err(failed)?;
    connection.create_container(&item::container_by_default("indexed")).map_err(failed)?;
    connection.create_container(&item::container_with_key_alone("plain")).map_err(failed)?;
    let (port, few) = (server.port.to_string(), plan.few.to_string());
    for container in ["indexed", "plain"] {
        load(&["fill", &port, container, "32", "0", &few])?;
    }
    let postgres = match postgres::is_there() {
        Ok(()) => Some(Postgres::start(&folder, SERVER_CORE, plan.few)?),
        Err(missing) => {
            println!("{missing}");
            None
        }
    };
    let ours = |what: &str, container: &str| {
        our_rate(&server, &[what, &port, container, &CONNECTIONS.to_string(), &few], plan.seconds)
    };
    let theirs = |is_upsert: bool| match &postgres {
        Some(postgres) => their_rate(postgres, is_upsert, plan).map(Some),
        None => Ok(None),
    };
    println!("{CONNECTIONS} connections, items of 1 KiB, the server on one core; medians of {}", plan.rounds);
    println!("{:<44}{:>9} {:>9}", "", "1/s", "CPU us");
    for (what, container, is_upsert, goal) in [
        ("upsert", "indexed", true, UPSERT_GOAL),
        ("upsert", "plain", true, UPSERT_GOAL),
        ("read", "indexed", false, READ_GOAL),
    ] {
        load(&[what, &port, container, "32", &few, &WARM_UP_SECONDS.to_string()])?;
        let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            our_rates.push(ours(what, container)?);
            their_rates.extend(theirs(is_upsert)?);
        }
        report(what, container, goal, &our_rates, &their_rates);
    }
    drop((server, postgres));
    std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

fn our_rate(server: &Server, words: &[&str], seconds: u64) -> Result<Rate, String> {
    let (before, cpu) = (Usage::read(None)?, server.cpu()?);
    let seconds = seconds.to_string();
    let measured = load(&[words, &[seconds.as_str()]].concat())?;
    let cpu = server.cpu()? - cpu;
    Rate::new(number(&measured, "operations")?, number(&measured, "seconds")?, cpu, &before)
}

fn their_rate(postgres: &Postgres, is_upsert: bool, plan: &Plan) -> Result<Rate, String> {
    let before = Usage::read(None)?;
    let measured = match is_upsert {
        true => postgres.upserts(CLIENT_CORE, CONNECTIONS, plan.few, plan.seconds)?,
        false => postgres.reads(CLIENT_CORE, CONNECTIONS, plan.few, plan.seconds)?,
    };
    Rate::new(measured.operations, measured.operations / measured.per_second, measured.cpu, &before)
}

impl Rate {
    /// From what was done in so many seconds, and what the server used for it.
    fn new(operations: f64, seconds: f64, server: Duration, before: &Usage) -> Result<Rate, String> {
        // The server is no process of ours that was waited for.
        let foreign = before.foreign_cores(&Usage::read(None)?) - server.as_secs_f64() / seconds;
        Ok(Rate {
            per_second: operations / seconds,
            cpu_us: server.as_secs_f64() * 1e6 / operations,
            foreign_cores: foreign.max(0.0),
        })
    }

    fn middle(rates: &[Rate]) -> Rate {
        let of = |pick: fn(&Rate) -> f64| median(rates.iter().map(pick).collect());
        Rate {
            per_second: of(|rate| rate.per_second),
            cpu_us: of(|rate| rate.cpu_us),
            foreign_cores: of(|rate| rate.foreign_cores),
        }
    }

    fn print(&self, name: &str) {
        let others = match is_quiet(self.foreign_cores) {
            true => String::new(),
            false => format!("  (others used {:.2} cores)", self.foreign_cores),
        };
        println!("{name:<44}{:>9.0} {:>9.1}{others}", self.per_second, self.cpu_us);
    }
}

fn report(what: &str, container: &str, goal: f64, our_rates: &[Rate], their_rates: &[Rate]) {
    let indexed = if container == "plain" { "key alone" } else { "every member indexed" };
    let ours = Rate::middle(our_rates);
    ours.print(&format!("otobus, {what}, {indexed}"));
    if their_rates.is_empty() {
        return;
    }
    let theirs = Rate::middle(their_rates);
    theirs.print(&format!("PostgreSQL 15, {what}, key alone"));
    let (ratio, cpu) = (ours.per_second / theirs.per_second, ours.cpu_us / theirs.cpu_us);
    let is_met = ratio >= goal && cpu <= 1.0;
    let goal = verdict(is_met, &format!("at least {goal} times, no more CPU"));
    println!("  {ratio:.2} times as many, {cpu:.2} times the CPU each; {goal}");
}
