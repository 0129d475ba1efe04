//! What the black-box tests run with, made under `target/`: a Python environment, Node packages, strace.

pub mod javascript;
pub mod python;
pub mod strace;

use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program of this name would be found.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The version a program prints, as (major, minor); none if it is missing or prints something else.
fn version_of(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

/// The first `N.N` in a text such as `Python 3.11.7` or `v20.20.2`.
fn version_in(text: &str) -> Option<(u32, u32)> {
    let number = text.trim().trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether a folder was made from exactly this description; see `mark_made`.
fn is_made(folder: &Path, description: &str) -> bool {
    std::fs::read_to_string(folder.join(MARK)).is_ok_and(|made_from| made_from == description)
}

/// Notes what a folder was made from, last of all, so that an interrupted installation is made again.
fn mark_made(folder: &Path, description: &str) -> Result<(), String> {
    std::fs::write(folder.join(MARK), description).map_err(|error| format!("cannot write {MARK}: {error}"))
}

const MARK: &str = "made-from.txt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_print() {
        assert_eq!(version_in("Python 3.11.7\n"), Some((3, 11)));
        assert_eq!(version_in("v20.20.2\n"), Some((20, 20)));
        assert_eq!(version_in("no version"), None);
    }
}
