//! The measurements themselves, each in a process that was given its core. The result is one line of JSON.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::broker::{CpuTicks, syncs};
use super::figures::{Figures, percentile_us};
use super::raw;
use crate::load::pace::{self, Pace};
use crate::load::{Place, receiver, sender};

const BODY_BYTES: usize = 1024;
/// Sends before the measured ones: connections open, files grow, caches fill.
const WARM_UP: Duration = Duration::from_secs(1);
/// Connections that send at a steady pace; as many receive.
const PACED_SENDERS: u64 = 2;

pub fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let measured = match words[..] {
        ["send", port, queue, pid, connections, window, seconds] => {
            let window = number(window)? as usize;
            send(
                &Target::new(port, queue, pid)?,
                number(connections)?,
                window,
                Duration::from_secs(number(seconds)?),
            )?
        }
        ["receive", port, queue, pid, connections, credit, expected] => receive(
            &Target::new(port, queue, pid)?,
            number(connections)?,
            number(credit)? as u32,
            number(expected)?,
        )?,
        ["pace", port, queue, pid, rate, seconds] => {
            pace(&Target::new(port, queue, pid)?, number(rate)?, Duration::from_secs(number(seconds)?))?
        }
        ["sync", file] => timed(raw::sync_times(file.as_ref())),
        ["ping", port] => timed(raw::ping_times(number(port)? as u16)),
        ["echo"] => return raw::echo().map_err(|error| error.to_string()),
        _ => return Err("`worker` is what `cargo xtask cost` starts; it is of no use by itself".into()),
    };
    println!("{measured}");
    Ok(())
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|error| format!("`{word}`: {error}"))
}

fn timed(times: std::io::Result<Vec<u64>>) -> Value {
    match times {
        Ok(mut times) => {
            times.sort_unstable();
            json!({ "p50_us": percentile_us(&times, 50) })
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// The broker under load.
struct Target {
    place: Place,
    port: u16,
    pid: u32,
}

/// What the broker has used up at an instant.
struct Sample {
    at: Instant,
    cpu: Duration,
    syncs: Option<u64>,
}

impl Target {
    fn new(port: &str, queue: &str, pid: &str) -> Result<Target, String> {
        let port = number(port)? as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Target { place: Place { address, queue: queue.into() }, port, pid: number(pid)? as u32 })
    }

    fn cpu(&self) -> Result<Duration, String> {
        CpuTicks::of_process(&self.pid.to_string(), false).map(CpuTicks::time)
    }

    fn reading(&self) -> Result<Sample, String> {
        let syncs = syncs(self.port);
        Ok(Sample { at: Instant::now(), cpu: self.cpu()?, syncs })
    }

    /// What was used since `before`, for so many messages.
    fn figures(&self, messages: u64, before: &Sample) -> Result<Figures, String> {
        let (elapsed, cpu) = (before.at.elapsed(), self.cpu()? - before.cpu);
        let syncs = syncs(self.port).zip(before.syncs).map(|(after, before)| after - before);
        Ok(Figures::new(messages, elapsed, cpu, syncs))
    }
}

fn send(target: &Target, connections: u64, window: usize, measured: Duration) -> Result<Value, String> {
    let shared = sender::Shared::default();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| sender::send(&target.place, window, BODY_BYTES, &shared)))
            .collect();
        std::thread::sleep(WARM_UP);
        let before = target.reading();
        let first = shared.accepted.load(Ordering::Relaxed);
        shared.is_measuring.store(true, Ordering::Relaxed);
        std::thread::sleep(measured);
        shared.is_measuring.store(false, Ordering::Relaxed);
        let messages = shared.accepted.load(Ordering::Relaxed) - first;
        let figures = before.and_then(|before| target.figures(messages, &before));
        shared.is_over.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for sender in senders {
            latencies.extend(joined(sender)?);
        }
        let figures = figures?.with_latencies(latencies);
        let mut value = figures.to_json();
        value["accepted"] = shared.accepted.load(Ordering::Relaxed).into();
        Ok(value)
    })
}

fn receive(target: &Target, connections: u64, credit: u32, expected: u64) -> Result<Value, String> {
    let ready = Barrier::new(connections as usize + 1);
    let shared = receiver::Shared { settled: AtomicU64::new(0), expected, ready };
    std::thread::scope(|scope| {
        let receivers: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| receiver::receive(&target.place, credit, &shared)))
            .collect();
        let before = target.reading();
        shared.ready.wait();
        let mut latencies = Vec::new();
        for receiver in receivers {
            latencies.extend(joined(receiver)?);
        }
        let settled = shared.settled.load(Ordering::Relaxed);
        if settled != expected {
            return Err(format!("{expected} messages were accepted and {settled} received"));
        }
        Ok(target.figures(settled, &before?)?.with_latencies(latencies).to_json())
    })
}

/// Senders and as many receivers at a steady pace.
fn pace(target: &Target, rate: u64, measured: Duration) -> Result<Value, String> {
    let total = rate * (WARM_UP + measured).as_secs();
    let pace = Pace { rate, senders: PACED_SENDERS, body_bytes: BODY_BYTES, measured_from: WARM_UP, total };
    let shared = pace::Shared::new(2 * PACED_SENDERS as usize);
    std::thread::scope(|scope| {
        let shared = &shared;
        let senders: Vec<_> = (0..PACED_SENDERS)
            .map(|sender| scope.spawn(move || pace::send(&target.place, pace, sender, shared)))
            .collect();
        let receivers: Vec<_> = (0..PACED_SENDERS)
            .map(|_| scope.spawn(move || pace::receive(&target.place, pace, shared)))
            .collect();
        let began = shared.begin();
        std::thread::sleep(WARM_UP.saturating_sub(began.elapsed()));
        let before = target.reading();
        let first = shared.delivered.load(Ordering::Relaxed);
        std::thread::sleep((WARM_UP + measured).saturating_sub(began.elapsed()));
        let messages = shared.delivered.load(Ordering::Relaxed) - first;
        let figures = before.and_then(|before| target.figures(messages, &before));
        let mut latencies = Vec::new();
        for connection in senders.into_iter().chain(receivers) {
            latencies.extend(joined(connection)?);
        }
        Ok(figures?.with_latencies(latencies).to_json())
    })
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, std::io::Result<Vec<u64>>>) -> Result<Vec<u64>, String> {
    match thread.join() {
        Ok(outcome) => outcome.map_err(|error| format!("a connection failed: {error}")),
        Err(_) => Err("a connection's thread panicked".into()),
    }
}
