//! The JavaScript tests with their packages, as the lock file pins them.
//!
//! The tests are copied next to the packages, because Node looks for packages beside the file that asks for them
//! and the source tree stays as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{is_made, mark_made, version_of};
use crate::check::{Failure, finished};
use crate::root::{root, target};

const OLDEST: (u32, u32) = (20, 0);
const NEEDED: &str = "the SDK tests need Node 20 or newer with npm: install `nodejs` and `npm`";
pub const SOURCE: &str = "tests/sdk/javascript";

pub fn folder() -> PathBuf {
    target().join("sdk/javascript")
}

/// Copies the tests and installs their packages unless they are there, made from the same lock file.
pub fn prepare() -> Result<(), Failure> {
    if version_of("node").is_none_or(|version| version < OLDEST) || version_of("npm").is_none() {
        return Err(Failure::new(NEEDED, "node --version && npm --version"));
    }
    let copied =
        copy_sources().map_err(|error| Failure::new(format!("cannot copy {SOURCE}: {error}"), "df target"));
    let lock = copied?;
    let folder = folder();
    if is_made(&folder, &lock) {
        return Ok(());
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
    let run = finished(install);
    if !run.success {
        return Err(Failure::new(run.output, run.shown));
    }
    mark_made(&folder, &lock).map_err(|error| Failure::new(error, "ls target/sdk/javascript"))
}

/// The test files, by name.
pub fn test_files() -> std::io::Result<Vec<String>> {
    let mut files = names(&root().join(SOURCE))?;
    files.retain(|name| name.ends_with(".test.mjs"));
    Ok(files)
}

/// Copies every source file and removes copies whose source is gone; returns the lock file's text.
fn copy_sources() -> std::io::Result<String> {
    let (from, to) = (root().join(SOURCE), folder());
    std::fs::create_dir_all(&to)?;
    let sources = names(&from)?;
    for stale in names(&to)?.iter().filter(|name| name.ends_with(".mjs") && !sources.contains(name)) {
        std::fs::remove_file(to.join(stale))?;
    }
    for name in &sources {
        std::fs::copy(from.join(name), to.join(name))?;
    }
    std::fs::read_to_string(from.join("package-lock.json"))
}

/// Names of the files in a folder, sorted, without the folders in it.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
