//! Builds the changes and runs the tests on each.

use super::choice::Mutant;
use super::{Part, Subject, tree};
use crate::root::target;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Tests in one program.
#[derive(Debug)]
pub(super) struct Suite {
    /// `lib`, or the name of a file or folder in `tests/`.
    pub(super) name: &'static str,
    pub(super) skipped: &'static [&'static str],
    /// Tests that take longer have been made to hang.
    pub(super) limit: Duration,
}

/// A test that hangs is known after this many times what all tests take without a change, if that is sooner.
const SLOWER_BY: u32 = 6;
/// ... but not sooner than this, for the machine may be busy.
const SHORTEST_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) noticed: usize,
    pub(super) missed: Vec<Mutant>,
    pub(super) unviable: Vec<Mutant>,
}

/// The changes by their numbers, which the switch knows.
type Numbered = Vec<(usize, Mutant)>;
/// Where the tests are, by the name of their suite.
type Programs = BTreeMap<String, PathBuf>;

pub(super) fn judge(subject: &Subject, chosen: Vec<Mutant>, part: Part) -> Result<Judged, String> {
    let mut judged = Judged::default();
    let (mut switched, mut alone): (Numbered, Numbered) = Default::default();
    for (number, mutant) in (1..).zip(chosen.clone()) {
        match tree::is_switchable(&mutant, &chosen)? {
            true => switched.push((number, mutant)),
            false => alone.push((number, mutant)),
        }
    }
    // All are built whatever the part, so that the next part finds them built.
    let programs = build_switched(subject, &mut switched, &mut judged)?;
    switched.retain(|(number, _)| part.holds(*number));
    alone.retain(|(number, _)| part.holds(*number));
    for suite in subject.suites {
        let before = switched.len();
        switched = missed_by(suite, &programs, switched)?;
        println!("{}: {} of {before} changes were noticed", suite.name, before - switched.len());
        judged.noticed += before - switched.len();
    }
    judged.missed.extend(switched.into_iter().map(|(_, mutant)| mutant));
    println!("{} changes are built alone", alone.len());
    for (_, mutant) in alone {
        judge_alone(subject, mutant, &mut judged)?;
    }
    Ok(judged)
}

/// Builds the tests with all changes, without those that do not compile.
fn build_switched(
    subject: &Subject,
    switched: &mut Numbered,
    judged: &mut Judged,
) -> Result<Programs, String> {
    loop {
        tree::switch(subject.package, switched)?;
        let faults = match build(subject)? {
            Built::Programs(programs) => return Ok(programs),
            Built::Faults(faults) => faults,
        };
        let mut refused = BTreeSet::new();
        for (file, line) in &faults {
            let lines = tree::lines(&tree::folder().join(file))?;
            refused.extend(
                lines.into_iter().filter(|(_, lines)| lines.contains(line)).map(|(number, _)| number),
            );
        }
        if refused.is_empty() {
            return Err(format!("the copy does not compile, and no change is at fault: {faults:?}"));
        }
        let kept = |(number, _): &(usize, Mutant)| !refused.contains(number);
        let (kept, refused): (Numbered, Numbered) = std::mem::take(switched).into_iter().partition(kept);
        *switched = kept;
        judged.unviable.extend(refused.into_iter().map(|(_, mutant)| mutant));
    }
}

enum Built {
    Programs(Programs),
    /// Files and lines that do not compile.
    Faults(Vec<(String, usize)>),
}

/// Builds the tests of the copy, in a target folder of its own: packages have the same names there as here, and cargo takes the one
/// for the other.
fn build(subject: &Subject) -> Result<Built, String> {
    let mut command = Command::new("cargo");
    command.current_dir(tree::folder()).env("CARGO_TARGET_DIR", target().join("mutants/target"));
    command.args(["test", "--quiet", "--no-run", "--profile", "quick", "--message-format", "json"]);
    command.args(["--package", subject.package]);
    for suite in subject.suites {
        match suite.name {
            "lib" => command.arg("--lib"),
            name => command.args(["--test", name]),
        };
    }
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let (mut programs, mut faults) = (Programs::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let said: Value = serde_json::from_str(line).map_err(|error| format!("cargo says: {error}"))?;
        if let Some(program) = said["executable"].as_str() {
            let is_library = said["target"]["kind"][0] == "lib";
            let name = if is_library { "lib" } else { said["target"]["name"].as_str().unwrap_or_default() };
            programs.insert(name.to_owned(), program.into());
        }
        if said["message"]["level"] == "error" {
            let spans = said["message"]["spans"].as_array().into_iter().flatten();
            let place = |span: &Value| {
                Some((
                    span["file_name"].as_str()?.to_owned(),
                    usize::try_from(span["line_start"].as_u64()?).ok()?,
                ))
            };
            faults.extend(spans.filter(|span| span["is_primary"] == true).filter_map(place));
        }
    }
    match (output.status.success(), faults.is_empty()) {
        (true, _) => Ok(Built::Programs(programs)),
        (false, false) => Ok(Built::Faults(faults)),
        (false, true) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Runs a suite for each change that it reaches at all, and returns what it has not noticed.
fn missed_by(suite: &Suite, programs: &Programs, mutants: Numbered) -> Result<Numbered, String> {
    let reached = target().join("mutants/reached");
    let _ = std::fs::remove_dir_all(&reached);
    std::fs::create_dir_all(&reached).map_err(|error| format!("{}: {error}", reached.display()))?;
    let start = Instant::now();
    if !passes(suite, programs, 0, suite.limit, Some(&reached))? {
        return Err(format!("the tests `{}` fail without any change", suite.name));
    }
    let limit = suite.limit.min((SLOWER_BY * start.elapsed()).max(SHORTEST_LIMIT));
    println!("{}: without a change in {} s", suite.name, start.elapsed().as_secs());
    let mut missed = Vec::new();
    for (number, mutant) in mutants {
        let is_reached = reached.join(number.to_string()).exists();
        if !is_reached || passes(suite, programs, number, limit, None)? {
            println!(
                "{}: not noticed by `{}`, {} it",
                mutant.name,
                suite.name,
                if is_reached { "which reaches" } else { "which never reaches" }
            );
            missed.push((number, mutant));
        }
    }
    Ok(missed)
}

fn judge_alone(subject: &Subject, mutant: Mutant, judged: &mut Judged) -> Result<(), String> {
    tree::change(subject.package, &mutant)?;
    let Built::Programs(programs) = build(subject)? else {
        judged.unviable.push(mutant);
        return Ok(());
    };
    for suite in subject.suites {
        if !passes(suite, &programs, 0, suite.limit, None)? {
            judged.noticed += 1;
            return Ok(());
        }
    }
    judged.missed.push(mutant);
    Ok(())
}

/// Whether every test passes, in time, with a change in force.
fn passes(
    suite: &Suite,
    programs: &Programs,
    number: usize,
    limit: Duration,
    reached: Option<&Path>,
) -> Result<bool, String> {
    let program = programs.get(suite.name).ok_or_else(|| format!("there are no tests `{}`", suite.name))?;
    let log = target().join("mutants").join(format!("{}-{number}.log", suite.name));
    let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let again = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = Command::new(program);
    command.current_dir(tree::folder()).env(tree::CHOSEN, number.to_string());
    if let Some(folder) = reached {
        command.env(tree::REACHED, folder);
    }
    command.args(suite.skipped.iter().flat_map(|slow| ["--skip", slow]));
    let status = within(limit, &log, command.stdout(output).stderr(again))?;
    Ok(status.is_some_and(|status| status.success()))
}

/// Runs tests to their end, or kills them when the first has failed or the time is over.
fn within(limit: Duration, log: &Path, command: &mut Command) -> Result<Option<ExitStatus>, String> {
    let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let start = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|error| format!("cannot wait: {error}"))?;
        if ended.is_some() {
            return Ok(ended);
        }
        let has_failed = std::fs::read(log).is_ok_and(|said| has_failed(&said));
        if has_failed || start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a test has failed, by what the tests have said so far.
fn has_failed(said: &[u8]) -> bool {
    String::from_utf8_lossy(said)
        .lines()
        .any(|line| line.starts_with("test ") && line.ends_with(" ... FAILED"))
}
