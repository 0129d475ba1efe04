//! `cargo xtask storage`: the long versions of the storage tests, and what storing costs: the append rate against a bare
//! loop, memory while a backlog comes and goes, the start after a kill, and what is left after a drain.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cost::broker::Broker;
use crate::cost::{QUEUE, build, scratch};
use crate::load::{Place, receiver, sender};
use crate::root::root;

const CONNECTIONS: usize = 4;
const WINDOW: usize = 250;
const CREDIT: u32 = 500;
const STARTS: usize = 10;

pub fn run(arguments: &[String]) -> Result<(), String> {
    let parts = ["tests", "append", "million", "small", "passed"];
    let chosen: Vec<&str> = match arguments {
        [] => parts.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    if let Some(unknown) = chosen.iter().find(|part| !parts.contains(part)) {
        return Err(format!(
            "there is no part `{unknown}`; usage: cargo xtask storage [{}]",
            parts.join("|")
        ));
    }
    for part in chosen {
        match part {
            "tests" => long_tests()?,
            "append" => append_rate()?,
            "million" => backlog(1_000_000, 1024, 300)?,
            "small" => backlog(10_000_000, 100, 700)?,
            _ => passed(5_000_000)?,
        }
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root()).env("OTOBUS_TESTS", "long");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", arguments.join(" "))),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

fn long_tests() -> Result<(), String> {
    let journal = ["test", "--release", "-p", "otobus-journal", "--test", "damage_long", "--", "--nocapture"];
    let engine = ["test", "--release", "-p", "otobus-engine", "--test", "storage", "--", "--nocapture"];
    cargo(&journal)?;
    cargo(&engine)
}

fn append_rate() -> Result<(), String> {
    let folder = scratch("append")?.to_string_lossy().into_owned();
    let example =
        ["run", "--release", "-q", "-p", "otobus-engine", "--example", "append_rate", "--", &folder];
    cargo(&example)
}

/// Fills a queue, kills the broker, measures the start to the first message, and drains.
fn backlog(count: u64, body_bytes: usize, limit_mib: u64) -> Result<(), String> {
    build()?;
    let folder = scratch("backlog")?;
    let broker = Broker::start(&folder, &[])?;
    let began = Instant::now();
    let stored = fill(&broker, count, body_bytes)?;
    println!("{stored} messages of {body_bytes} bytes stored in {:.1} s", began.elapsed().as_secs_f64());
    let filled_mib = peak_mib(&broker)?;
    drop(broker);
    let began = Instant::now();
    let broker = Broker::start(&folder, &[])?;
    let first = take(&broker, stored)?.duration_since(began);
    println!("first message settled after SIGKILL: {:.0} ms from exec", first.as_secs_f64() * 1000.0);
    println!("drained in {:.1} s", (began.elapsed() - first).as_secs_f64());
    let drained_mib = peak_mib(&broker)?;
    let words = if filled_mib.max(drained_mib) <= limit_mib { "within" } else { "ABOVE" };
    println!(
        "VmHWM while filling {filled_mib} MiB, while draining {drained_mib} MiB, {words} {limit_mib} MiB"
    );
    Ok(())
}

/// Lets messages pass, then compares the start and the size with those of an empty directory.
fn passed(count: u64) -> Result<(), String> {
    build()?;
    let empty = scratch("empty")?;
    let mut on_empty = starts(&empty, true)?;
    let folder = scratch("passed")?;
    let broker = Broker::start(&folder, &[])?;
    let mut stored = 0;
    while stored < count {
        // A backlog of half a million at a time.
        let some = fill(&broker, 500_000.min(count - stored), 1024)?;
        take(&broker, some)?;
        stored += some;
    }
    // Space comes back in quiet moments.
    std::thread::sleep(Duration::from_secs(10));
    drop(broker);
    let mib = size_mib(&folder.join("data"))?;
    let mut on_passed = starts(&folder, false)?;
    on_empty.sort_unstable();
    on_passed.sort_unstable();
    let (empty_ms, passed_ms) = (median_ms(&on_empty), median_ms(&on_passed));
    let words = if mib < 200 { "within" } else { "ABOVE" };
    println!(
        "after {stored} messages of 1 KiB passed and drained: the directory has {mib} MiB, {words} 200 MiB"
    );
    let ratio = passed_ms / empty_ms;
    let words = if ratio <= 1.5 { "within" } else { "ABOVE" };
    println!(
        "start: {passed_ms:.1} ms against {empty_ms:.1} ms with an empty directory (medians of {STARTS}) = {ratio:.2} times, \
         {words} 1.5"
    );
    Ok(())
}

/// Exec to ready, on new data each time or on the data that is there.
fn starts(folder: &Path, is_new: bool) -> Result<Vec<Duration>, String> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        if is_new {
            let _ = std::fs::remove_dir_all(folder.join("data"));
        }
        let began = Instant::now();
        let broker = Broker::start(folder, &[])?;
        times.push(began.elapsed());
        drop(broker);
    }
    Ok(times)
}

fn median_ms(sorted: &[Duration]) -> f64 {
    sorted.get(sorted.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

fn place(broker: &Broker) -> Place {
    Place { address: SocketAddr::from((Ipv4Addr::LOCALHOST, broker.port)), queue: QUEUE.into() }
}

/// Sends at least so many messages; returns how many were accepted.
fn fill(broker: &Broker, count: u64, body_bytes: usize) -> Result<u64, String> {
    let (place, shared) = (place(broker), sender::Shared::default());
    std::thread::scope(|scope| {
        let run = |_| scope.spawn(|| sender::send(&place, WINDOW, body_bytes, &shared));
        let senders: Vec<_> = (0..CONNECTIONS).map(run).collect();
        while shared.accepted.load(Ordering::Relaxed) < count && !senders.iter().any(|s| s.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.is_over.store(true, Ordering::Relaxed);
        for sender in senders {
            let ended = sender.join().map_err(|_| "a sender panicked")?;
            ended.map_err(|error| format!("a sender failed: {error}"))?;
        }
        Ok(shared.accepted.load(Ordering::Relaxed))
    })
}

/// Receives and completes so many messages; returns when the first was.
fn take(broker: &Broker, count: u64) -> Result<Instant, String> {
    let place = place(broker);
    let ready = Barrier::new(CONNECTIONS);
    let shared = receiver::Shared { settled: AtomicU64::new(0), expected: count, ready };
    std::thread::scope(|scope| {
        let run = |_| scope.spawn(|| receiver::receive(&place, CREDIT, &shared));
        let receivers: Vec<_> = (0..CONNECTIONS).map(run).collect();
        while shared.settled.load(Ordering::Relaxed) == 0 && !receivers.iter().any(|r| r.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = Instant::now();
        for receiver in receivers {
            let ended = receiver.join().map_err(|_| "a receiver panicked")?;
            ended.map_err(|error| format!("a receiver failed: {error}"))?;
        }
        Ok(first)
    })
}

/// The most memory that the broker had at any time.
fn peak_mib(broker: &Broker) -> Result<u64, String> {
    let path = format!("/proc/{}/status", broker.pid());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or(format!("{path} has no VmHWM"))? / 1024)
}

fn size_mib(folder: &Path) -> Result<u64, String> {
    fn bytes(folder: &Path) -> std::io::Result<u64> {
        let mut sum = 0;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            sum += if about.is_dir() { bytes(&entry.path())? } else { about.len() };
        }
        Ok(sum)
    }
    bytes(folder)
        .map(|bytes| bytes >> 20)
        .map_err(|error| format!("cannot measure {}: {error}", folder.display()))
}
