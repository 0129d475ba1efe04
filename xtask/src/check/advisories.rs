//! `cargo xtask advisories`: asks cargo-deny whether our dependencies have known weaknesses.
//!
//! It is no part of the check: its answer depends on the day and on a database that must be reached.

use std::process::Command;

use super::step;

/// What cargo-deny and git say when the database is out of reach, as opposed to an advisory that applies.
const UNREACHABLE: [&str; 5] = [
    "failed to fetch advisory database",
    "failed to load advisory database",
    "Could not resolve",
    "failed to connect",
    "unable to access",
];

pub fn run() -> Result<(), String> {
    if !crate::tools::is_on_path("cargo-deny") {
        return Err("cargo-deny is not installed: run `cargo install --locked cargo-deny`".into());
    }
    let mut command = Command::new("cargo");
    command.args(["deny", "check", "advisories"]);
    let run = step::finished(command);
    if run.success {
        println!("no advisory applies to our dependencies");
        return Ok(());
    }
    if UNREACHABLE.iter().any(|words| run.output.contains(words)) {
        let said = run.output.trim_end();
        return Err(format!("{said}\n\nthe advisory database cannot be reached, so nothing was checked"));
    }
    Err(run.output)
}
