//! `cargo xtask crash`: the broker is killed with SIGKILL at random instants while clients send, receive and complete, and
//! is started again on the same data. In the end everything is received, and what the clients were told must be true:
//! nothing accepted is lost, nothing completed and confirmed came back, and numbers have no gaps. With `--items` clients write
//! items instead.

mod client;
mod items;
mod ledger;

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::Shared;

use crate::cost::broker::Broker;
use crate::cost::{build, scratch};
use crate::root::{binary, root};

const SENDERS: usize = 4;
const RECEIVERS: usize = 3;
/// How long a life lasts at least and at most, from being ready to being killed.
const LIFE_MS: std::ops::Range<u64> = 20..600;
/// Everything should be received in this time once nobody sends and nobody is killed.
const DRAIN: Duration = Duration::from_secs(120);

/// Writes of items that are enough: each client waits for each of them.
const ITEMS_ACCEPTED: u64 = 20_000;

struct Plan {
    kills: u64,
    accepted: u64,
    seed: u64,
    profile: &'static str,
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    let usage = "usage: cargo xtask crash [--kills N] [--accepted N] [--seed N] [--quick] [--items]";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let mut plan = Plan { kills: 200, accepted: 1_000_000, seed: now, profile: "release" };
    let mut is_items = false;
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let mut number = || rest.next().and_then(|text| text.parse().ok()).ok_or(usage);
        match flag.as_str() {
            "--kills" => plan.kills = number()?,
            "--accepted" => plan.accepted = number()?,
            "--seed" => plan.seed = number()?,
            "--quick" => plan.profile = "quick",
            "--items" => is_items = true,
            _ => return Err(usage.into()),
        }
    }
    match plan.profile {
        "release" => build()?,
        profile => build_with(profile)?,
    }
    let outcome = match is_items {
        true => items::kill_again_and_again(&Plan { accepted: plan.accepted.min(ITEMS_ACCEPTED), ..plan })?,
        false => kill_again_and_again(&plan)?,
    };
    println!("{outcome}");
    Ok(())
}

/// The short version, for the check; says in one line what it did.
pub fn run_short() -> Result<String, String> {
    let bus = kill_again_and_again(&Plan { kills: 8, accepted: 20_000, seed: 1, profile: "quick" })?;
    let items = items::kill_again_and_again(&Plan { kills: 8, accepted: 500, seed: 1, profile: "quick" })?;
    Ok(format!("{bus}; {items}"))
}

fn build_with(profile: &str) -> Result<(), String> {
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--package", "otobus", "--profile", profile])
        .current_dir(root())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("the build failed".into()),
    }
}

fn kill_again_and_again(plan: &Plan) -> Result<String, String> {
    let folder = scratch("crash")?;
    let shared = Shared::default();
    let outcome = std::thread::scope(|scope| {
        let shared = &shared;
        (0..SENDERS).for_each(|sender| drop(scope.spawn(move || client::send(shared, sender))));
        (0..RECEIVERS).for_each(|_| drop(scope.spawn(move || client::receive(shared))));
        let outcome = lives(plan, &folder, shared);
        shared.is_sent.store(true, Ordering::Relaxed);
        shared.is_over.store(true, Ordering::Relaxed);
        shared.port.store(0, Ordering::Release);
        outcome
    });
    let slowest = outcome?;
    let ledger = shared.ledger();
    let violations = ledger.judge();
    if !violations.is_empty() {
        let shown: Vec<_> = violations.iter().take(20).map(String::as_str).collect();
        return Err(format!(
            "{} broken promises (seed {}):\n{}",
            violations.len(),
            plan.seed,
            shown.join("\n")
        ));
    }
    let verified =
        Command::new(binary(plan.profile)).arg("verify").arg("--data").arg(folder.join("data")).output();
    let verified = verified.map_err(|error| format!("cannot run otobus verify: {error}"))?;
    if !verified.status.success() {
        return Err(format!("otobus verify found damage:\n{}", String::from_utf8_lossy(&verified.stdout)));
    }
    Ok(format!(
        "{} kills, {} accepted, {} completed, {} delivered again, nothing lost, nothing returned, no gaps; slowest start {} ms",
        plan.kills,
        ledger.accepted,
        ledger.completed,
        ledger.redelivered,
        slowest.as_millis()
    ))
}

/// Life after life; then everything is received. Returns the slowest start.
fn lives(plan: &Plan, folder: &std::path::Path, shared: &Shared) -> Result<Duration, String> {
    let mut state = plan.seed | 1;
    let mut draw = move |range: &std::ops::Range<u64>| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        range.start + state % (range.end - range.start)
    };
    let (mut killed, mut slowest) = (0, Duration::ZERO);
    loop {
        let began = Instant::now();
        let broker = Broker::start_program(folder, &[], &binary(plan.profile))?;
        slowest = slowest.max(began.elapsed());
        shared.port.store(broker.port, Ordering::Release);
        if killed >= plan.kills && shared.ledger().accepted >= plan.accepted {
            drain(shared)?;
            return Ok(slowest);
        }
        std::thread::sleep(Duration::from_millis(draw(&LIFE_MS)));
        shared.port.store(0, Ordering::Release);
        // SIGKILL.
        drop(broker);
        killed += 1;
        if shared.ledger().is_broken() {
            return Ok(slowest);
        }
        if killed % 20 == 0 {
            println!("{killed} kills, {} accepted", shared.ledger().accepted);
        }
    }
}

/// Waits until all that was accepted is completed and nothing more comes.
fn drain(shared: &Shared) -> Result<(), String> {
    shared.is_sent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let mut before = u64::MAX;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let ledger = shared.ledger();
        let missing = ledger.missing();
        if missing == 0 && ledger.completed == before || ledger.is_broken() {
            return Ok(());
        }
        before = ledger.completed;
        if began.elapsed() > DRAIN {
            // What is missing is told with everything else that is wrong.
            return Ok(());
        }
    }
}
