//! Filters beside the scan, removal beside reads, start after SIGKILL, and memory: with a million items.

use super::client::Connection;
use super::server::{Server, megabytes_of};
use super::{Plan, SERVER_CORE, disturbed, item, load, median, number, scratch, verdict};
use crate::cost::quiet::Usage;
use std::path::Path;
use std::time::{Duration, Instant};

/// A tenth of what a million items take.
const CACHE_MEGABYTES: u64 = 100;
const FILTER_GOAL: f64 = 100.0;
const START_GOAL: Duration = Duration::from_secs(1);
const STARTS: usize = 5;
const REMOVAL_GOAL: f64 = 2.0;
const WINDOWS: usize = 5;
/// Reads a second beside the removal.
const READ_RATE: u64 = 2_000;
const LIFE_SECONDS: u64 = 100_000;
/// Items that are read beside the removal.
const READ_ITEMS: u64 = 100_000;
const REMOVAL_DEADLINE: Duration = Duration::from_secs(600);

pub fn run(plan: &Plan) -> Result<(), String> {
    let folder = scratch("items-million")?;
    let before = Usage::read(None)?;
    let mut server = Server::start(&folder, CACHE_MEGABYTES, SERVER_CORE)?;
    let empty = server.held_megabytes()?;
    let mut connection = server.connect()?;
    let failed = |error: std::io::Error| error.to_string();
    connection.create_database().map_err(failed)?;
    connection.create_container(&item::container("kept", None)).map_err(failed)?;
    connection.create_container(&item::container("ends", Some(LIFE_SECONDS))).map_err(failed)?;
    let (many, read) = (plan.many, READ_ITEMS.min(plan.many));
    let port = server.port.to_string();
    let (filled, most_filling) =
        with_memory(&server, || load(&["fill", &port, "ends", "32", "0", &many.to_string()]))?;
    load(&["fill", &port, "kept", "32", "0", &read.to_string()])?;
    println!(
        "{many} items of 1 KiB written in {:.1} s, {:.0} MiB of files{}",
        number(&filled, "seconds")?,
        megabytes_of(&folder.join("data")),
        disturbed(&before)?
    );
    if let Some(calm) = &plan.calm {
        println!("waiting for {}", calm.display());
        while !calm.exists() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let ((), most_filtering) = with_memory(&server, || filters(&server))?;
    let most_reading =
        with_memory(&server, || load(&["read", &port, "ends", "32", &many.to_string(), "5"]))?.1;
    let most = [most_filling, most_filtering, most_reading].into_iter().fold(0.0, f64::max) - empty;
    let goal = verdict(most <= CACHE_MEGABYTES as f64, &format!("at most {CACHE_MEGABYTES} MiB"));
    println!(
        "memory beyond {empty:.0} MiB of an empty server: {:.0} MiB while writing, {:.0} MiB in filters and scans, {:.0} MiB in \
         reads over all; {goal}",
        most_filling - empty,
        most_filtering - empty,
        most_reading - empty
    );
    server = starts(server, &folder)?;
    removal(&server, read, plan.seconds)?;
    drop(server);
    std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

/// Runs `act` and says how much memory the server held meanwhile at most, in MiB.
fn with_memory<T>(server: &Server, act: impl FnOnce() -> Result<T, String>) -> Result<(T, f64), String> {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most: f64 = 0.0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(server.held_megabytes().unwrap_or(0.0));
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let outcome = act();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let most = watch.join().map_err(|_| "the watch over memory panicked")?;
        Ok((outcome?, most))
    })
}

/// An equality and a range by the index, and the same rows by a scan.
fn filters(server: &Server) -> Result<(), String> {
    // A new one: the server ends connections that ask nothing for a minute.
    let mut connection = server.connect()?;
    for (what, indexed, scanned) in [
        ("equality", "c.indexed = 4711", "c.scanned = 4711"),
        ("range", "c.indexed >= 4711 AND c.indexed < 4721", "c.scanned >= 4711 AND c.scanned < 4721"),
    ] {
        let before = Usage::read(None)?;
        let mut run = |filter: &str| -> Result<(Duration, u64, u64), String> {
            let text = format!("SELECT VALUE c.id FROM c WHERE {filter}");
            let began = Instant::now();
            let (rows, pages) = connection.query("ends", &text).map_err(|error| error.to_string())?;
            Ok((began.elapsed(), rows, pages))
        };
        let (_, scanned_rows, pages) = run(scanned)?;
        let scans = (0..3).map(|_| run(scanned)).collect::<Result<Vec<_>, _>>()?;
        let scan_ms = median(scans.iter().map(|(time, _, _)| time.as_secs_f64() * 1e3).collect());
        run(indexed)?;
        let found = (0..21).map(|_| run(indexed)).collect::<Result<Vec<_>, _>>()?;
        let index_ms = median(found.iter().map(|(time, _, _)| time.as_secs_f64() * 1e3).collect());
        if found.iter().any(|(_, rows, _)| *rows != scanned_rows) {
            return Err(format!("the {what} filter has other rows by the index than by the scan"));
        }
        let ratio = scan_ms / index_ms;
        let goal = verdict(ratio >= FILTER_GOAL, &format!("at least {FILTER_GOAL} times"));
        println!(
            "{what} filter, {scanned_rows} rows: index {index_ms:.2} ms, scan {scan_ms:.0} ms ({pages} pages), {ratio:.0} times; \
             {goal}{}",
            disturbed(&before)?
        );
    }
    Ok(())
}

/// Kills and starts the server; how long from exec to the first answer.
fn starts(mut server: Server, folder: &Path) -> Result<Server, String> {
    let mut times = Vec::new();
    for nth in 0..STARTS as u64 {
        // Something that is in the journal only.
        let port = server.port.to_string();
        load(&["upsert", &port, "kept", "32", "1000", "1"])?;
        drop(server);
        let began = Instant::now();
        server = Server::start(folder, CACHE_MEGABYTES, SERVER_CORE)?;
        let read = server.connect()?.read("ends", &item::key(nth), &item::id(nth));
        read.map_err(|error| format!("the first read failed: {error}"))?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let goal = verdict(slowest < START_GOAL.as_secs_f64() * 1e3, "under 1 s");
    println!(
        "exec to the first answer after SIGKILL under writes: median of {STARTS} {:.0} ms, slowest {slowest:.0} ms; {goal}",
        median(times)
    );
    Ok(server)
}

/// Reads at a steady pace, first alone and then beside the removal of everything in the other container.
fn removal(server: &Server, items: u64, seconds: u64) -> Result<(), String> {
    let before = Usage::read(None)?;
    let (port, items, rate) = (server.port.to_string(), items.to_string(), READ_RATE.to_string());
    let seconds = seconds.to_string();
    let window = || -> Result<f64, String> {
        number(&load(&["pace", &port, "kept", &items, &rate, &seconds])?, "p99_us")
    };
    load(&["read", &port, "kept", "32", &items, "3"])?;
    let quiet = (0..WINDOWS).map(|_| window()).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    server.connect()?.advance(&format!("PT{}S", LIFE_SECONDS + 1)).map_err(|error| error.to_string())?;
    let removing = (0..WINDOWS).map(|_| window()).collect::<Result<Vec<_>, _>>()?;
    let mut connection = server.connect()?;
    let left = expired_left(&mut connection)?;
    let (alone, beside) = (median(quiet.clone()), median(removing.clone()));
    let goal = verdict(beside <= REMOVAL_GOAL * alone, &format!("at most {REMOVAL_GOAL} times"));
    println!(
        "p99 of {rate} reads a second: {alone:.0} us alone, {beside:.0} us beside the removal of what has expired, {:.2} times; \
         {goal}{}",
        beside / alone,
        disturbed(&before)?
    );
    println!("  alone {quiet:.0?}, beside {removing:.0?}; left then: {left}");
    while expired_left(&mut connection)? != "0" {
        if began.elapsed() > REMOVAL_DEADLINE {
            return Err("the removal does not end".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("  all removed {:.1} s after they had expired", began.elapsed().as_secs_f64());
    Ok(())
}

/// How many items the store still holds, expired or not, as the container's quota headers tell.
fn expired_left(connection: &mut Connection) -> Result<String, String> {
    connection.stored("ends").map_err(|error| error.to_string())
}
