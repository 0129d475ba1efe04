//! Which changes could be made, told by cargo-mutants, and which of them are.

use super::{Subject, target, tree};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const VERSION: &str = "27.1.0";

/// A piece of a file: from a line and a column up to a line and a column, both counted from one, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: (usize, usize),
    pub(super) end: (usize, usize),
}

impl Span {
    fn read(value: &Value) -> Option<Span> {
        let place = |at: &str| {
            let number =
                |name: &str| value[at][name].as_u64().and_then(|number| usize::try_from(number).ok());
            Some((number("line")?, number("column")?))
        };
        Some(Span { start: place("start")?, end: place("end")? })
    }
}

/// A change: what stands at `span` becomes `replacement`.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    pub(super) name: String,
    pub(super) file: String,
    /// The function that it changes; a constant has none.
    pub(super) function: Option<Span>,
    pub(super) span: Span,
    pub(super) replacement: String,
}

impl Mutant {
    fn read(value: &Value) -> Option<Mutant> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Mutant {
            name: text("name")?,
            file: text("file")?,
            function: Span::read(&value["function"]["span"]),
            span: Span::read(&value["span"])?,
            replacement: text("replacement")?,
        })
    }
}

/// cargo-mutants, installed under `target/` if it is not there yet.
fn tool() -> Result<PathBuf, String> {
    let folder = target().join("tools");
    let tool = folder.join("bin/cargo-mutants");
    if !tool.exists() {
        let mut install = Command::new("cargo");
        install.args(["install", "cargo-mutants", "--locked", "--version", VERSION, "--root"]).arg(&folder);
        let status = install.status().map_err(|error| format!("cannot run {install:?}: {error}"))?;
        if !status.success() {
            return Err(format!("{install:?} has failed"));
        }
    }
    Ok(tool)
}

/// Every change that could be made.
pub(super) fn list(subject: &Subject) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new(tool()?);
    command.current_dir(tree::original()).args(["mutants", "--list", "--json", "--package", subject.package]);
    for file in subject.files {
        command.args(["--file", file]);
    }
    for file in subject.not_mutated {
        command.args(["--exclude", file]);
    }
    let output = command.output().map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let listed: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo-mutants says: {error}"))?;
    let mut mutants = Vec::new();
    for mutant in listed.as_array().into_iter().flatten() {
        let mutant = Mutant::read(mutant).ok_or("cargo-mutants lists something unknown")?;
        if !tree::is_planted(&mutant)? {
            mutants.push(mutant);
        }
    }
    Ok(mutants)
}

/// The same changes for the same seed, and nearly the same when lines have moved.
pub(super) fn choose(mut mutants: Vec<Mutant>, seed: u64, count: usize) -> Vec<Mutant> {
    mutants.sort_by_cached_key(|mutant| (hash(seed, without_place(&mutant.name)), mutant.name.clone()));
    mutants.truncate(count);
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    mutants
}

/// `file:12:34: what` without the numbers, which change with every line above.
pub(super) fn without_place(name: &str) -> &str {
    name.splitn(4, ':').nth(3).unwrap_or(name)
}

/// FNV-1a: the same on every machine.
fn hash(seed: u64, text: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_depends_on_the_seed_and_not_on_line_numbers() {
        let nowhere = Span { start: (1, 1), end: (1, 1) };
        let mutants = |line: usize| -> Vec<Mutant> {
            let name = |n| format!("src/a.rs:{}:5: replace f{n} with ()", line + n);
            let mutant = |name| Mutant {
                name,
                file: "src/a.rs".into(),
                function: None,
                span: nowhere,
                replacement: "()".into(),
            };
            (0..100).map(name).map(mutant).collect()
        };
        let what = |chosen: &[Mutant]| {
            let mut names: Vec<_> =
                chosen.iter().map(|mutant| without_place(&mutant.name).to_owned()).collect();
            names.sort();
            names
        };
        let chosen = what(&choose(mutants(1), 1, 10));
        assert_eq!(chosen.len(), 10);
        assert_eq!(chosen, what(&choose(mutants(500), 1, 10)));
        assert_ne!(chosen, what(&choose(mutants(1), 2, 10)));
    }
}
