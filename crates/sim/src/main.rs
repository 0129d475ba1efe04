//! `cargo run -p otobus-sim -- --seeds 200`: runs seeds, those that failed once first, and says what they reached.
//! A seed that fails is printed with the command that runs it again.

use clap::Parser;
use otobus_sim::coverage::Coverage;
use otobus_sim::{Report, run};
use std::process::ExitCode;

/// Seeds that have failed once; the bugs they found are gone, and shall stay so.
const FAILED_ONCE: &str = include_str!("../seeds.txt");

#[derive(Debug, Parser)]
#[command(about = "Runs the broker on fake time and a failing disk, from seeds")]
struct Flags {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed, alone unless `--seeds` says otherwise.
    #[arg(long)]
    seed: Option<u64>,
    /// Commands that the clients of one seed give.
    #[arg(long, default_value_t = 1_000)]
    commands: u64,
    /// Runs every seed twice and compares.
    #[arg(long)]
    twice: bool,
    /// Prints everything that happens.
    #[arg(long)]
    tell: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let seeds = plan(&flags);
    let (mut commands, mut crashes, mut violations) = (0, 0, 0);
    let mut coverage = Coverage::default();
    // Panics are violations like others and reported with their seed.
    std::panic::set_hook(Box::new(|_| {}));
    for (seed, most) in &seeds {
        let mut report = run(*seed, *most, flags.tell);
        if flags.twice {
            compare(&mut report, &run(*seed, *most, flags.tell));
        }
        commands += report.commands;
        crashes += report.crashes;
        coverage.add(&report.coverage);
        if let Some(violation) = report.violation {
            violations += 1;
            println!("seed {seed}: {violation}");
            println!("    cargo run --profile quick -p otobus-sim -- --seed {seed} --commands {most}");
        }
    }
    print!("{coverage}");
    println!("{} seeds, {commands} commands, {crashes} crashes, {violations} violations", seeds.len());
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds to run, each with its commands.
fn plan(flags: &Flags) -> Vec<(u64, u64)> {
    let mut seeds = Vec::new();
    if flags.seed.is_none() {
        seeds.extend(FAILED_ONCE.lines().filter_map(failed_once));
    }
    let first = flags.seed.unwrap_or(1);
    seeds.extend((first..first + flags.seeds).map(|seed| (seed, flags.commands)));
    seeds
}

/// A line of seeds.txt: a seed, its commands, and why it is there. Or a comment.
fn failed_once(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (seed, commands) = (words.next()?, words.next()?);
    if seed.starts_with('#') {
        return None;
    }
    let number = |word: &str| word.parse().expect("seeds.txt has a seed and its commands in each line");
    Some((number(seed), number(commands)))
}

fn compare(report: &mut Report, again: &Report) {
    if report.trace != again.trace && report.violation.is_none() {
        report.violation = Some(format!("two runs differ: {:x} and {:x}", report.trace, again.trace));
    }
}
