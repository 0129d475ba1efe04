//! The load, in a process that was given its core: so many connections, each with one request at a time. The result is one line
//! of JSON.

use super::client::Connection;
use super::item::{body, id, key, mixed};
use crate::cost::percentile_us;
use rustix::event::epoll;
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
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
                connection.send_upsert(container, &key(number), body(number, 0).as_bytes()).map(|()| true)
            })?
        }
        ["upsert", port, container, connections, items, seconds] => {
            let items = number(items)?;
            for_seconds(number(port)?, number(connections)?, number(seconds)?, |connection, round| {
                let number = mixed(round) % items;
                connection.send_upsert(container, &key(number), body(number, round).as_bytes())
            })?
        }
        ["read", port, container, connections, items, seconds] => {
            let items = number(items)?;
            for_seconds(number(port)?, number(connections)?, number(seconds)?, |connection, round| {
                let number = mixed(round) % items;
                connection.send_read(container, &key(number), &id(number))
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

/// Runs `act` on so many connections for so long, each time with another number. It sends a request.
fn for_seconds(
    port: u64,
    connections: u64,
    seconds: u64,
    act: impl Fn(&mut Connection, u64) -> io::Result<()>,
) -> Result<serde_json::Value, String> {
    let end = Instant::now() + Duration::from_secs(seconds);
    each(port, connections, |connection, number| match Instant::now() < end {
        true => act(connection, number).map(|()| true),
        false => Ok(false),
    })
}

/// Runs `act` on so many connections until it says that there is no more to do. One thread serves them all, as that of `pgbench` does: a
/// thread for each would have the server wake one for every answer, and pay for it.
fn each(
    port: u64,
    connections: u64,
    act: impl Fn(&mut Connection, u64) -> io::Result<bool>,
) -> Result<serde_json::Value, String> {
    let began = Instant::now();
    figures(began, vec![each_in_turn(port as u16, connections, act)])
}

fn each_in_turn(
    port: u16,
    count: u64,
    act: impl Fn(&mut Connection, u64) -> io::Result<bool>,
) -> io::Result<Vec<u64>> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (mut connections, mut times) = (Vec::new(), Vec::new());
    let mut open = 0;
    for nth in 0..count {
        let mut connection = Connection::open(port)?;
        epoll::add(&ready, &connection, epoll::EventData::new_u64(nth), epoll::EventFlags::IN)?;
        let asked = Instant::now();
        open += u64::from(act(&mut connection, nth << 40)?);
        connections.push((connection, asked, 0));
    }
    let mut events = Vec::with_capacity(connections.len());
    while open > 0 {
        events.clear();
        match epoll::wait(&ready, rustix::buffer::spare_capacity(&mut events), None) {
            // A process that was stopped and goes on.
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        for event in &events {
            let nth = event.data.u64();
            let (connection, asked, done) = &mut connections[nth as usize];
            if !connection.receive()? {
                continue;
            }
            connection.answer()?.accepted()?;
            times.push(asked.elapsed().as_nanos() as u64);
            (*asked, *done) = (Instant::now(), *done + 1);
            open -= u64::from(!act(connection, (nth << 40) | *done)?);
        }
    }
    Ok(times)
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
