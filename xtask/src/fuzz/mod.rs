//! `cargo xtask fuzz`: runs fuzz targets for some time each and writes the ledger from what they told.
//!
//! The targets are built here, with the counters that libFuzzer reads and every assertion on, and without a sanitizer: the
//! product has no unsafe code, memory is bounded by the fuzzer's own limits, and each target gets ten times as far. With
//! `--planted` each is built with a bug that it must find.

mod ledger;
mod log;

use crate::root::{root, target};
use log::Log;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const USAGE: &str =
    "usage: cargo xtask fuzz [TARGET...] [--seconds N] [--together] [--planted] [--minimise] [--ledger]";

/// How long each target runs unless told, and how long a planted bug is looked for.
const SECONDS: u64 = 60;
const PLANTED_SECONDS: u64 = 300;

/// What one input may make a target hold, take at once, and last.
const LIMITS: [&str; 3] = ["-rss_limit_mb=512", "-malloc_limit_mb=64", "-timeout=25"];

/// The variable that names the target whose bug is planted (`crates/message/src/planted.rs`).
const PLANTED: &str = "OTOBUS_FUZZ_PLANTED";

/// Counters on every edge, tables of comparisons, and nothing folded away that would be two edges.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1";

/// What is kept of a target's inputs in the repository, at the most.
const KEPT_FILES: usize = 48;
const KEPT_BYTES: u64 = 64 * 1024;
const KEPT_FILE_BYTES: u64 = 4 * 1024;

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Order {
    targets: Vec<String>,
    seconds: Option<u64>,
    is_planted: bool,
    is_minimising: bool,
    is_ledger: bool,
    /// All targets run side by side and share the processors, rather than one after the other.
    is_together: bool,
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    let order = Order::read(arguments)?;
    if order.is_ledger {
        return ledger::write(&folder());
    }
    let bin = build(&order)?;
    if order.is_together && !order.is_planted && !order.is_minimising {
        let failed = search_together(&bin, &order.targets, order.seconds.unwrap_or(SECONDS))?;
        ledger::write(&folder())?;
        return if failed.is_empty() { Ok(()) } else { Err(crashed(&failed)) };
    }
    let mut failed = Vec::new();
    for name in &order.targets {
        let is_fine = if order.is_minimising {
            minimise(&bin, name)?;
            true
        } else if order.is_planted {
            look_for_planted(&bin, name, order.seconds.unwrap_or(PLANTED_SECONDS))?
        } else {
            search(&bin, name, order.seconds.unwrap_or(SECONDS))?
        };
        if !is_fine {
            failed.push(name.as_str());
        }
    }
    ledger::write(&folder())?;
    match (failed.is_empty(), order.is_planted) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("planted bugs were not found by: {}", failed.join(", "))),
        (false, false) => Err(crashed(&failed)),
    }
}

fn crashed(failed: &[&str]) -> String {
    format!("crashes of {}: see {}", failed.join(", "), folder().display())
}

/// Runs all of them at once. Those that crashed.
fn search_together<'n>(bin: &Path, names: &'n [String], seconds: u64) -> Result<Vec<&'n str>, String> {
    std::thread::scope(|scope| {
        let searches: Vec<_> =
            names.iter().map(|name| (name, scope.spawn(|| search(bin, name, seconds)))).collect();
        let mut failed = Vec::new();
        for (name, search) in searches {
            let is_fine = search.join().map_err(|_| format!("the thread of {name} panicked"))??;
            if !is_fine {
                failed.push(name.as_str());
            }
        }
        Ok(failed)
    })
}

impl Order {
    fn read(arguments: &[String]) -> Result<Order, String> {
        let mut order = Order::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    order.seconds = Some(seconds.ok_or(USAGE)?);
                }
                "--planted" => order.is_planted = true,
                "--minimise" => order.is_minimising = true,
                "--ledger" => order.is_ledger = true,
                "--together" => order.is_together = true,
                flag if flag.starts_with('-') => return Err(USAGE.into()),
                name => order.targets.push(name.to_owned()),
            }
        }
        let known = targets()?;
        if let Some(unknown) = order.targets.iter().find(|name| !known.contains(name)) {
            return Err(format!("there is no target `{unknown}`; there are {}", known.join(", ")));
        }
        if order.targets.is_empty() {
            let has_bug = |name: &String| !order.is_planted || ledger::is_listed(name);
            order.targets = known.into_iter().filter(has_bug).collect();
        }
        Ok(order)
    }
}

/// The names of all targets.
fn targets() -> Result<Vec<String>, String> {
    let mut names: Vec<String> = files(&root().join("fuzz/targets"))?
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Where everything is that a run makes.
fn folder() -> PathBuf {
    target().join("fuzz")
}

/// Builds the targets and puts the programs aside, for the next build may be another one.
fn build(order: &Order) -> Result<PathBuf, String> {
    let told = output(Command::new("rustc").args(["+nightly", "--version", "--verbose"]))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root().join("fuzz")).args(["+nightly", "build", "--release", "--target", host]);
    cargo.arg("--target-dir").arg(folder()).env("RUSTFLAGS", FLAGS);
    if order.is_planted {
        cargo.args(["--features", "planted"]);
    }
    for name in &order.targets {
        cargo.args(["--bin", name]);
    }
    to_end(&mut cargo)?;
    let bin = folder().join(if order.is_planted { "planted" } else { "bin" });
    for name in &order.targets {
        make(&bin)?;
        let built = folder().join(host).join("release").join(name);
        fs::copy(&built, bin.join(name)).map_err(|error| format!("{}: {error}", built.display()))?;
    }
    Ok(bin)
}

/// Runs a target for some time. Whether nothing was found.
fn search(bin: &Path, name: &str, seconds: u64) -> Result<bool, String> {
    let (work, seeds) = (folder().join("work").join(name), root().join("fuzz/corpus").join(name));
    make(&work)?;
    let log = start(bin, name, seconds, &[&work, &seeds], "logs", false)?;
    println!("{name}: {}", log.told());
    Ok(log.crashes == 0)
}

/// Runs a target from the seeds that people have made until it finds the bug that is planted for it. Whether it does, and not
/// by a seed.
fn look_for_planted(bin: &Path, name: &str, seconds: u64) -> Result<bool, String> {
    let work = folder().join("planted-work").join(name);
    let _ = fs::remove_dir_all(&work);
    make(&work)?;
    for seed in files(&root().join("fuzz/corpus").join(name))?.iter().filter(|path| !is_digest(path)) {
        let copy = work.join(seed.file_name().unwrap_or_default());
        fs::copy(seed, copy).map_err(|error| format!("{}: {error}", seed.display()))?;
    }
    let log = start(bin, name, seconds, &[&work], "planted-logs", true)?;
    let is_found = log.crashes > 0 && log.executions > log.seeds;
    println!(
        "{name}: planted bug {} after {} executions",
        if is_found { "found" } else { "not found" },
        log.executions
    );
    Ok(is_found)
}

fn start(
    bin: &Path,
    name: &str,
    seconds: u64,
    inputs: &[&Path],
    logs: &str,
    is_planted: bool,
) -> Result<Log, String> {
    let logs = folder().join(logs);
    let found = logs.join(format!("{name}-found"));
    make(&found)?;
    let path = logs.join(format!("{name}.log"));
    let told = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(bin.join(name)).args(inputs).args(LIMITS);
    command.args(["-print_final_stats=1", &format!("-max_total_time={seconds}")]);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    if is_planted {
        command.arg("-seed=1").env(PLANTED, name);
    }
    command.stdout(Stdio::null()).stderr(told);
    let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let mut processor = 0;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        processor = log::processor_seconds(child.id()).unwrap_or(processor);
        std::thread::sleep(LOOK);
    }
    log::sign(&path, &today()?, &commit()?, seconds, processor)?;
    Log::read(&path)
}

fn today() -> Result<String, String> {
    output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

fn commit() -> Result<String, String> {
    output(Command::new("git").current_dir(root()).args(["rev-parse", "--short", "HEAD"]))
}

/// Takes what covers most with least out of all that was found, and puts it beside the seeds.
fn minimise(bin: &Path, name: &str) -> Result<(), String> {
    let (work, kept) = (folder().join("work").join(name), folder().join("kept").join(name));
    let _ = fs::remove_dir_all(&kept);
    make(&kept)?;
    let seeds = root().join("fuzz/corpus").join(name);
    let mut command = Command::new("nice");
    // Edges alone: how often each was passed would keep hundreds.
    command.args(["-n", "19"]).arg(bin.join(name)).args(["-set_cover_merge=1", "-use_counters=0"]);
    command.arg(&kept).arg(&seeds).arg(&work).stdout(Stdio::null()).stderr(Stdio::null());
    to_end(&mut command)?;
    let named: Vec<PathBuf> = files(&seeds)?.into_iter().filter(|path| !is_digest(path)).collect();
    for path in files(&seeds)?.iter().filter(|path| is_digest(path)) {
        fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let size = |path: &PathBuf| fs::metadata(path).map_or(u64::MAX, |known| known.len());
    let mut found: Vec<PathBuf> = files(&kept)?.into_iter().filter(|path| is_digest(path)).collect();
    // Long ones pass most edges.
    found.sort_by_key(|path| std::cmp::Reverse(size(path)));
    let mut room = KEPT_BYTES.saturating_sub(named.iter().map(size).sum());
    let mut places = KEPT_FILES.saturating_sub(named.len());
    for path in found {
        let (bytes, Some(name)) = (size(&path), path.file_name()) else { continue };
        if places > 0 && bytes <= room.min(KEPT_FILE_BYTES) {
            fs::copy(&path, seeds.join(name)).map_err(|error| format!("{}: {error}", path.display()))?;
            (room, places) = (room - bytes, places - 1);
        }
    }
    println!("{name}: {} inputs in the repository", files(&seeds)?.len());
    Ok(())
}

/// Whether libFuzzer has named a file; what people keep has a name that says why.
fn is_digest(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect())
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn to_end(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} has failed")) }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
