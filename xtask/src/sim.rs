//! Runs the simulator, built for speed. Whatever follows is its own business; only bugs that are to be planted must be
//! built in first.

use std::process::Command;

pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(crate::root::root()).args(["run", "--quiet", "--release", "--package", "otobus-sim"]);
    if arguments.iter().any(|argument| argument == "--planted") {
        cargo.args(["--features", "planted"]);
    }
    let status =
        cargo.arg("--").args(arguments).status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("the simulation has failed".into()) }
}
