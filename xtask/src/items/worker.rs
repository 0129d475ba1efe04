//! The load, in a process that was given its core: so many connections, each with one request at a time. The result is one line
//! of JSON.

use super::client::Connection;
use super::item::{body, id, key, mixed};
use crate::cost::percentile_us;
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Connections that read at a steady pace.
const PACED: u64 = 8;

pub fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("`{word}`: {error}"));
    let measured = match words[..] {
        ["fill", port, container, connections, from, to] => {
            let next = AtomicU64::new(number(from)?);
            let to = number(to)?;
            let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < to);
            each(number(port)?, number(connections)?, |connection, _| {
                let Some(number) = take() else { return Ok(false) };
                connection.upsert(container, &key(number), body(number, 0).as_bytes()).map(|()| true)
            })?
        }
        ["upsert", port, container, connections, items, seconds] => {
            let items = number(items)?;
            for_seconds(number(port)?, number(connections)?, number(seconds)?, |connection, round| {
                let number = mixed(round) % items;
                connection.upsert(container, &key(number), body(number, round).as_bytes())
            })?
        }
        ["read", port, container, connections, items, seconds] => {
            let items = number(items)?;
            for_seconds(number(port)?, number(connections)?, number(seconds)?, |connection, round| {
                let number = mixed(round) % items;
                connection.read(container, &key(number), &id(number))
            })?
        }
        ["pace", port, container, items, rate, seconds] => {
            pace(number(port)?, container, number(items)?, number(rate)?, number(seconds)?)?
        }
        _ => {
            return Err("`items-worker` is what `cargo xtask items` starts; it is of no use by itself".into());
        }
    };
    println!("{measured}");
    Ok(())
}

/// Runs `act` on so many connections for so long, each time with another number.
fn for_seconds(
    port: u64,
    connections: u64,
    seconds: u64,
    act: impl Fn(&mut Connection, u64) -> io::Result<()> + Sync,
) -> Result<serde_json::Value, String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(seconds));
            is_over.store(true, Ordering::Relaxed);
        });
        each(port, connections, |connection, number| {
            if is_over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            act(connection, number).map(|()| true)
        })
    })
}

/// Runs `act` on so many connections until it says that there is no more to do.
fn each(
    port: u64,
    connections: u64,
    act: impl Fn(&mut Connection, u64) -> io::Result<bool> + Sync,
) -> Result<serde_json::Value, String> {
    let began = Instant::now();
    let outcomes: Vec<io::Result<Vec<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|nth| {
                let act = &act;
                scope.spawn(move || {
                    let (mut connection, mut times) = (Connection::open(port as u16)?, Vec::new());
                    loop {
                        let asked = Instant::now();
                        if !act(&mut connection, (nth << 40) | times.len() as u64)? {
                            return Ok(times);
                        }
                        times.push(asked.elapsed().as_nanos() as u64);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("panic"))))
            .collect()
    });
    figures(began, outcomes)
}

/// Reads at a steady pace. The time of each counts from when it was due, so that no stop is left out.
fn pace(
    port: u64,
    container: &str,
    items: u64,
    rate: u64,
    seconds: u64,
) -> Result<serde_json::Value, String> {
    let (began, every) = (Instant::now(), Duration::from_nanos(1_000_000_000 * PACED / rate));
    let outcomes: Vec<io::Result<Vec<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PACED)
            .map(|nth| {
                scope.spawn(move || {
                    let (mut connection, mut times) = (Connection::open(port as u16)?, Vec::new());
                    let mut due = began + every * nth as u32 / PACED as u32;
                    while due.duration_since(began) < Duration::from_secs(seconds) {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        let number = mixed((nth << 40) | times.len() as u64) % items;
                        connection.read(container, &key(number), &id(number))?;
                        times.push(due.elapsed().as_nanos() as u64);
                        due += every;
                    }
                    Ok(times)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("panic"))))
            .collect()
    });
    figures(began, outcomes)
}

fn figures(began: Instant, outcomes: Vec<io::Result<Vec<u64>>>) -> Result<serde_json::Value, String> {
    let seconds = began.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for outcome in outcomes {
        times.extend(outcome.map_err(|error| format!("a connection failed: {error}"))?);
    }
    times.sort_unstable();
    Ok(json!({
        "operations": times.len(),
        "seconds": seconds,
        "p50_us": percentile_us(&times, 50),
        "p99_us": percentile_us(&times, 99),
    }))
}
