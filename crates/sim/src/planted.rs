//! `cargo xtask sim --planted`: plants bugs, one after the other, and runs seeds until each is found.

use broker::planted::{Bug, plant};
use otobus_sim::plan::Plan;
use otobus_sim::run;
use std::process::ExitCode;

/// Seeds within which each bug must be found.
const SEEDS: u64 = 1_000;

pub fn look(commands: u64) -> ExitCode {
    let mut missed = 0;
    for bug in Bug::ALL {
        plant(Some(bug));
        let found =
            (1..=SEEDS).find_map(|seed| Some((seed, run(&Plan::new(seed, commands), false).violation?)));
        match found {
            Some((seed, violation)) => println!("{bug:?}: found by seed {seed}: {violation}"),
            None => {
                missed += 1;
                println!("{bug:?}: not found by {SEEDS} seeds");
            }
        }
    }
    plant(None);
    missed += look_in_items(commands);
    let all = Bug::ALL.len() + items_engine::planted::Bug::ALL.len();
    println!("{} of {all} planted bugs were found", all - missed);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same for the items. Returns how many were not found.
fn look_in_items(commands: u64) -> usize {
    use items_engine::planted::{Bug, plant};
    let mut missed = 0;
    for bug in Bug::ALL {
        plant(Some(bug));
        let found = (1..=SEEDS)
            .find_map(|seed| Some((seed, otobus_sim::items::run(seed, commands, false).violation?)));
        match found {
            Some((seed, violation)) => println!("items, {bug:?}: found by seed {seed}: {violation}"),
            None => {
                missed += 1;
                println!("items, {bug:?}: not found by {SEEDS} seeds");
            }
        }
    }
    plant(None);
    missed
}
