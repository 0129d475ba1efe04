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
    println!("{} of {} planted bugs were found", Bug::ALL.len() - missed, Bug::ALL.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
