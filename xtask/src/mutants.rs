//! `cargo xtask mutants`: small changes are made to the broker, one at a time, and its own tests must notice them.
//!
//! Which changes is drawn from a seed: those whose names hash lowest are taken, so that the choice stays nearly the
//! same while the code changes. The tests that take long run only for what the others have not noticed.

use crate::root::{root, target};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = "27.1.0";
const PACKAGE: &str = "otobus-broker";

/// Changes that are made, and how many in a hundred must be noticed.
const COUNT: usize = 200;
const CAUGHT_PERCENT: usize = 90;

/// Tests that take longer have been made to hang: some take seconds, all of them a minute.
const QUICK_SECONDS: &str = "60";
const WHOLE_SECONDS: &str = "600";

/// Tests with a million messages, or with every byte of a snapshot.
const SLOW: [&str; 2] = ["::cost::", "snapshot::tests::a_snapshot_cut_anywhere"];

/// Not the product: worlds for tests, and bugs for the simulator.
const NOT_MUTATED: [&str; 2] = ["crates/broker/src/testing.rs", "crates/broker/src/planted.rs"];

pub fn run(arguments: &[String]) -> Result<(), String> {
    let seed = match arguments {
        [] => 1,
        [flag, seed] if flag == "--seed" => seed.parse().map_err(|_| format!("`{seed}` is no seed"))?,
        _ => return Err("usage: cargo xtask mutants [--seed S]".into()),
    };
    let tool = tool()?;
    let chosen = choose(list(&tool)?, seed, COUNT);
    println!("{} changes of {PACKAGE}, chosen by seed {seed}", chosen.len());
    let skipped: Vec<&str> = SLOW.iter().flat_map(|slow| ["--skip", slow]).collect();
    let few = [&["--cargo-arg=--lib", "--timeout", QUICK_SECONDS, "--", "--"], &skipped[..]].concat();
    let quick = try_out(&tool, &chosen, "quick", &few)?;
    let whole = match quick.missed.is_empty() {
        true => Outcomes::default(),
        false => try_out(&tool, &quick.missed, "whole", &["--timeout", WHOLE_SECONDS])?,
    };
    let caught = quick.caught + whole.caught;
    let judged = caught + whole.missed.len();
    whole.missed.iter().for_each(|name| println!("not noticed: {name}"));
    println!("{caught} of {judged} changes were noticed; {} do not compile", quick.unviable);
    match 100 * caught >= CAUGHT_PERCENT * judged {
        true => Ok(()),
        false => Err(format!("fewer than {CAUGHT_PERCENT} % were noticed")),
    }
}

/// cargo-mutants, installed under `target/` if it is not there yet.
fn tool() -> Result<PathBuf, String> {
    let folder = target().join("tools");
    let tool = folder.join("bin/cargo-mutants");
    if !tool.exists() {
        let mut install = Command::new("cargo");
        install.args(["install", "cargo-mutants", "--locked", "--version", VERSION, "--root"]).arg(&folder);
        run_to_end(&mut install)?;
    }
    Ok(tool)
}

fn run_to_end(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} has failed")) }
}

/// Every change that could be made, by name.
fn list(tool: &Path) -> Result<Vec<String>, String> {
    let mut command = Command::new(tool);
    command.current_dir(root()).args(["mutants", "--list", "--json", "--package", PACKAGE]);
    for file in NOT_MUTATED {
        command.args(["--exclude", file]);
    }
    let output = command.output().map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let listed: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo-mutants says: {error}"))?;
    let names = listed.as_array().into_iter().flatten().filter_map(|each| each["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The same changes for the same seed, and nearly the same when lines have moved.
fn choose(mut names: Vec<String>, seed: u64, count: usize) -> Vec<String> {
    names.sort_by_cached_key(|name| (hash(seed, without_place(name)), name.clone()));
    names.truncate(count);
    names.sort();
    names
}

/// `file:12:34: what` without the numbers, which change with every line above.
fn without_place(name: &str) -> &str {
    name.splitn(4, ':').nth(3).unwrap_or(name)
}

/// FNV-1a: the same on every machine.
fn hash(seed: u64, text: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[derive(Debug, Default)]
struct Outcomes {
    caught: usize,
    unviable: usize,
    missed: Vec<String>,
}

/// Makes the changes one after the other, in a copy of the source tree, and runs the tests on each.
fn try_out(tool: &Path, names: &[String], pass: &str, tests: &[&str]) -> Result<Outcomes, String> {
    let folder = target().join("mutants").join(pass);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let config = folder.join("config.toml");
    std::fs::write(&config, chosen_config(names)).map_err(|error| format!("cannot write: {error}"))?;
    let mut command = Command::new(tool);
    command.current_dir(root()).args(["mutants", "--package", PACKAGE, "--config"]).arg(&config);
    command.arg("--output").arg(&folder);
    command.args(["--baseline", "skip", "--no-shuffle", "--colors", "never"]);
    // Optimising costs more than it saves, and nobody reads a debugger's tables.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "1");
    let status = command.args(tests).status().map_err(|error| format!("cannot run: {error}"))?;
    // It also fails when something was missed, which is told by its lists.
    let told = |file: &str| -> Result<Vec<String>, String> {
        let path = folder.join("mutants.out").join(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cargo-mutants ended with {status}; {}: {error}", path.display()))?;
        // Fields left out of a struct are tried whatever was chosen.
        Ok(text.lines().filter(|line| names.iter().any(|name| name == line)).map(str::to_owned).collect())
    };
    let caught = told("caught.txt")?.len() + told("timeout.txt")?.len();
    let (unviable, missed) = (told("unviable.txt")?.len(), told("missed.txt")?);
    match caught + unviable + missed.len() {
        tried if tried == names.len() => Ok(Outcomes { caught, unviable, missed }),
        tried => Err(format!("{tried} of {} changes were tried", names.len())),
    }
}

/// A configuration by which exactly these are made.
fn chosen_config(names: &[String]) -> String {
    let mut config = String::from("examine_re = [\n");
    for name in names {
        let escaped: String = name.chars().flat_map(escape).collect();
        let _ = writeln!(config, "  '''^{escaped}$''',");
    }
    config + "]\n"
}

fn escape(letter: char) -> impl Iterator<Item = char> {
    let is_special = r"\.+*?()|[]{}^$#&-~".contains(letter);
    is_special.then_some('\\').into_iter().chain([letter])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_depends_on_the_seed_and_not_on_line_numbers() {
        let names = |line: usize| -> Vec<String> {
            (0..100).map(|n| format!("src/a.rs:{}:5: replace f{n} with ()", line + n)).collect()
        };
        let what =
            |chosen: &[String]| chosen.iter().map(|name| without_place(name).to_owned()).collect::<Vec<_>>();
        let chosen = choose(names(1), 1, 10);
        assert_eq!(chosen.len(), 10);
        let mut moved = what(&choose(names(500), 1, 10));
        let mut first = what(&chosen);
        first.sort();
        moved.sort();
        assert_eq!(first, moved);
        assert_ne!(chosen, choose(names(1), 2, 10));
    }

    #[test]
    fn a_name_is_matched_letter_by_letter() {
        let config = chosen_config(&["a.rs:1:2: replace <A as B<'c>>::d -> x[0] with !y && z_1".to_owned()]);
        assert!(config.contains(r"'''^a\.rs:1:2: replace <A as B<'c>>::d \-> x\[0\] with !y \&\& z_1$'''"));
    }
}
