//! `cargo xtask sim --planted`: plants bugs, one after the other, and runs seeds until each is found.

use broker::planted::{Bug, plant};
use otobus_sim::plan::Plan;
use otobus_sim::run;
use std::process::ExitCode;

/// Seeds within which each bug must be found.
const SEEDS: u64 = 1_000;

pub fn look(commands: u64, only_items: bool) -> ExitCode {
    let mut searches = Vec::new();
    if !only_items {
        let violation = |seed| run(&Plan::new(seed, commands), false).violation;
        for bug in Bug::ALL {
            plant(Some(bug));
            searches.push(search(format!("{bug:?}"), violation));
        }
        // Those of transactions also where there is nothing but transactions.
        for bug in Bug::TRANSACTIONS {
            plant(Some(bug));
            let violation = |seed| otobus_sim::transactions::run(seed, commands).violation;
            searches.push(search(format!("transactions, {bug:?}"), violation));
        }
        plant(None);
        message::planted::plant_state(true);
        searches.push(search("MessageState".into(), violation));
        message::planted::plant_state(false);
    }
    for bug in items_engine::planted::Bug::ALL {
        items_engine::planted::plant(Some(bug));
        searches.push(search(format!("items, {bug:?}"), |seed| {
            otobus_sim::items::run(seed, commands, false).violation
        }));
    }
    items_engine::planted::plant(None);
    let found = searches.iter().filter(|found| **found).count();
    println!("{found} of {} planted bugs were found", searches.len());
    if found == searches.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds until one finds what is planted.
fn search(bug: String, violation: impl Fn(u64) -> Option<String>) -> bool {
    match (1..=SEEDS).find_map(|seed| Some((seed, violation(seed)?))) {
        Some((seed, violation)) => println!("{bug}: found by seed {seed}: {violation}"),
        None => {
            println!("{bug}: not found by {SEEDS} seeds");
            return false;
        }
    }
    true
}
