//! A Python environment with the pinned packages of tests/sdk/python/requirements.txt.

use std::path::PathBuf;
use std::process::Command;

use super::{is_made, mark_made, version_of};
use crate::check::{Failure, finished};
use crate::root::{root, target};

const OLDEST: (u32, u32) = (3, 11);
const NEEDED: &str = "the SDK tests need Python 3.11 or newer: install `python3` with its `venv` module";
const REQUIREMENTS: &str = "tests/sdk/python/requirements.txt";

pub fn folder() -> PathBuf {
    target().join("sdk/python")
}

/// Makes the environment unless it is there, made from the same requirements.
pub fn prepare() -> Result<(), Failure> {
    if version_of("python3").is_none_or(|version| version < OLDEST) {
        return Err(Failure::new(NEEDED, "python3 --version"));
    }
    let wanted = std::fs::read_to_string(root().join(REQUIREMENTS)).map_err(|error| {
        Failure::new(format!("cannot read {REQUIREMENTS}: {error}"), "ls tests/sdk/python")
    })?;
    let folder = folder();
    if is_made(&folder, &wanted) {
        return Ok(());
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    passed(make)?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        REQUIREMENTS,
    ]);
    passed(install)?;
    mark_made(&folder, &wanted).map_err(|error| Failure::new(error, "ls target/sdk/python"))
}

fn passed(command: Command) -> Result<(), Failure> {
    let run = finished(command);
    if run.success { Ok(()) } else { Err(Failure::new(run.output, run.shown)) }
}
