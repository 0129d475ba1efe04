//! `cargo xtask sim --seeds 200`: runs seeds, those that failed once first, and says what they reached. A seed that
//! fails is printed with the command that runs it again and with the smallest plan that still fails.

#[cfg(feature = "planted")]
mod planted;

use clap::Parser;
use otobus_sim::coverage::{Coverage, LEAST};
use otobus_sim::plan::Plan;
use otobus_sim::{Report, run};
use std::process::ExitCode;

/// A search is one thread that allocates all the time, for as long as somebody lets it, so that a quicker allocator is
/// worth having here. The product keeps the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs that go into making a failing plan small.
const SHRINKING_TRIES: u32 = 3_000;

/// Failing seeds whose plans are made small; one is what a person looks at.
const SHRUNK_SEEDS: u64 = 1;

/// Seeds after which everything must have been reached, and after which it must have been reached often.
const CHECKED_SEARCH: u64 = 200;
const LONG_SEARCH: u64 = 10_000;

/// What each seed must at least have done: commands, unless it is told to give fewer, and crashes.
const LEAST_COMMANDS: u64 = 2_000;
const LEAST_CRASHES: u64 = 1;

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
    #[arg(long, default_value_t = 2_000)]
    commands: u64,
    /// Runs every seed twice and compares.
    #[arg(long)]
    twice: bool,
    /// Prints everything that happens.
    #[arg(long)]
    tell: bool,
    /// Fails also if something was hardly reached, as a long search does anyway.
    #[arg(long)]
    strict: bool,
    /// Runs items instead of the bus.
    #[arg(long)]
    items: bool,
    /// Runs transactions instead of the rest of the bus.
    #[arg(long)]
    transactions: bool,
    /// Plants bugs and looks whether they are found (needs the feature of that name).
    #[arg(long)]
    planted: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    // Panics are violations like others and reported with their seed.
    std::panic::set_hook(Box::new(|_| {}));
    if flags.planted {
        return look_for_planted(&flags);
    }
    if flags.items {
        return if run_items(&flags, flags.seeds) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if flags.transactions {
        return if run_transactions(&flags) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let plans = plans(&flags);
    let (mut commands, mut crashes, mut violations) = (0, 0, 0);
    let mut coverage = Coverage::default();
    let before = cpu_seconds();
    let mut fewest = u64::MAX;
    for plan in &plans {
        let mut report = run(plan, flags.tell);
        if flags.twice {
            compare(&mut report, &run(plan, false));
        }
        commands += report.commands;
        crashes += report.crashes;
        fewest = fewest.min(report.crashes);
        if report.commands < plan.commands.min(LEAST_COMMANDS) || report.crashes < LEAST_CRASHES {
            let what = format!("only {} commands and {} crashes", report.commands, report.crashes);
            report.violation.get_or_insert(what);
        }
        coverage.add(&report.coverage);
        if let Some(violation) = &report.violation {
            violations += 1;
            println!("seed {}: {violation}", plan.seed);
            println!("    cargo xtask sim --seed {} --commands {}", plan.seed, plan.commands);
            if violations <= SHRUNK_SEEDS && !flags.tell && !flags.twice {
                show_smallest(plan, &report);
            }
        }
    }
    let seconds = cpu_seconds() - before;
    print!("{coverage}");
    println!(
        "{} seeds, {commands} commands, {crashes} crashes (at least {fewest} in each), {violations} violations; \
         {:.0} commands per CPU second",
        plans.len(),
        commands as f64 / seconds
    );
    let least = match flags.seeds {
        _ if flags.strict => LEAST,
        LONG_SEARCH.. => LEAST,
        CHECKED_SEARCH.. => 1,
        _ => 0,
    };
    let rare = coverage.rare(least);
    for (kind, name, count) in &rare {
        println!("{kind:?} {name} was reached {count} times; at least {least} are wanted");
    }
    if violations == 0 && rare.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds of items, and says whether every promise was kept.
fn run_items(flags: &Flags, seeds: u64) -> bool {
    let first = flags.seed.unwrap_or(1);
    let before = cpu_seconds();
    let (mut sum, mut violations) = (otobus_sim::items::Report::default(), 0);
    for seed in first..first + seeds {
        let mut report = otobus_sim::items::run(seed, flags.commands, flags.tell);
        if flags.twice && otobus_sim::items::run(seed, flags.commands, false).trace != report.trace {
            report.violation.get_or_insert("two runs differ".into());
        }
        sum.add(&report);
        if let Some(violation) = report.violation {
            violations += 1;
            println!("items, seed {seed}: {violation}");
            println!("    cargo xtask sim --items --seed {seed} --commands {} --tell", flags.commands);
        }
    }
    println!(
        "items: {seeds} seeds, {sum}, {violations} violations; {:.0} commands per CPU second",
        sum.commands as f64 / (cpu_seconds() - before)
    );
    violations == 0
}

/// Runs seeds of transactions, and says whether every promise was kept.
fn run_transactions(flags: &Flags) -> bool {
    let first = flags.seed.unwrap_or(1);
    let before = cpu_seconds();
    let (mut sum, mut violations) = (otobus_sim::transactions::Report::default(), 0);
    for seed in first..first + flags.seeds {
        let report = otobus_sim::transactions::run(seed, flags.commands);
        sum.add(&report);
        if let Some(violation) = report.violation {
            violations += 1;
            println!("transactions, seed {seed}: {violation}");
            println!("    cargo xtask sim --transactions --seed {seed} --commands {}", flags.commands);
        }
    }
    println!(
        "transactions: {} seeds, {sum}, {violations} violations; {:.0} commands per CPU second",
        flags.seeds,
        sum.commands as f64 / (cpu_seconds() - before)
    );
    violations == 0
}

#[cfg(feature = "planted")]
fn look_for_planted(flags: &Flags) -> ExitCode {
    planted::look(flags.commands, flags.items)
}

#[cfg(not(feature = "planted"))]
fn look_for_planted(_: &Flags) -> ExitCode {
    println!("no bugs are planted in this build; run `cargo xtask sim --planted`");
    ExitCode::FAILURE
}

/// The seeds to run, each with its commands.
fn plans(flags: &Flags) -> Vec<Plan> {
    let mut plans = if flags.seed.is_none() { Plan::failed_once() } else { Vec::new() };
    let first = flags.seed.unwrap_or(1);
    plans.extend((first..first + flags.seeds).map(|seed| Plan::new(seed, flags.commands)));
    plans
}

fn compare(report: &mut Report, again: &Report) {
    if report.trace != again.trace && report.violation.is_none() {
        report.violation = Some(format!("two runs differ: {:x} and {:x}", report.trace, again.trace));
    }
}

/// Leaves out of a failing plan what it can do without, and tells the rest.
fn show_smallest(plan: &Plan, report: &Report) {
    let mut plan = plan.clone();
    plan.end = plan.end.min(report.steps + 1);
    let plan = plan.shrunk(SHRINKING_TRIES, |plan| run(plan, false).violation.is_some());
    println!("the smallest plan that fails has {} steps:", plan.steps());
    let report = run(&plan, true);
    println!("=> {}", report.violation.unwrap_or_default());
}

/// CPU time of this process so far, all of it spent by one thread.
fn cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let user: f64 = fields.next()?.parse().ok()?;
        let system: f64 = fields.next()?.parse().ok()?;
        Some(user + system)
    });
    // The kernel tells hundredths of a second to everybody, whatever it counts in.
    ticks.unwrap_or(0.0) / 100.0
}
