//! Builds the changes and runs the tests on each.

use super::choice::Mutant;
use super::{Subject, Wanted, tree};
use crate::root::target;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tests in one program.
#[derive(Debug)]
pub(super) struct Suite {
    /// `lib` or `bin` for those within the package, or the name of a file or folder in `tests/`.
    pub(super) name: &'static str,
    pub(super) skipped: &'static [&'static str],
    /// Tests that take longer have been made to hang.
    pub(super) limit: Duration,
}

/// Tests may take this many times what they take without a change, in all and from one that ends to the next: else one
/// of them has been made to hang.
const SLOWER_BY: u32 = 6;
/// ... and at least this, for the machine may be busy.
const SHORTEST_LIMIT: Duration = Duration::from_secs(20);
const SHORTEST_SILENCE: Duration = Duration::from_secs(10);

/// Changes that are tried at once: many tests wait more than they compute.
const AT_ONCE: usize = 2;

/// How long tests may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    in_all: Duration,
    /// Without a word from any test.
    silent: Duration,
}

/// How a run of tests went.
#[derive(Debug)]
struct Run {
    end: End,
    longest_silence: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    /// The test that failed first; none, if the whole program broke off.
    Failed(Option<String>),
    Late,
}

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

pub(super) fn judge(subject: &Subject, chosen: Vec<Mutant>, wanted: &Wanted) -> Result<Judged, String> {
    let mut judged = Judged::default();
    let (mut switched, mut alone): (Numbered, Numbered) = Default::default();
    for (number, mutant) in (1..).zip(chosen.clone()) {
        match tree::is_switchable(&mutant, &chosen)? {
            true => switched.push((number, mutant)),
            false => alone.push((number, mutant)),
        }
    }
    // All are built whatever is wanted, so that the next run finds them built.
    let programs = build_switched(subject, &mut switched, &mut judged)?;
    switched.retain(|(number, mutant)| wanted.holds(*number, mutant));
    alone.retain(|(number, mutant)| wanted.holds(*number, mutant));
    for suite in subject.suites {
        let before = switched.len();
        switched = missed_by(suite, &programs, switched)?;
        println!("{}: {} of {before} changes were noticed", suite.name, before - switched.len());
        judged.noticed += before - switched.len();
        // A run that is ended early may go on from here.
        wanted.remember(switched.iter().chain(&alone).map(|(_, mutant)| mutant))?;
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
        tree::switch(subject, switched)?;
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
            "bin" => command.arg("--bins"),
            name => command.args(["--test", name]),
        };
    }
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let (mut programs, mut faults) = (Programs::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let said: Value = serde_json::from_str(line).map_err(|error| format!("cargo says: {error}"))?;
        // Not the program that tests of a program start: it has no tests.
        let tests = said["executable"].as_str().filter(|_| said["profile"]["test"] == true);
        if let Some(program) = tests {
            let kind = said["target"]["kind"][0].as_str().filter(|kind| *kind != "test");
            let name = kind.or(said["target"]["name"].as_str()).unwrap_or_default();
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
    let limit = Patience { in_all: suite.limit, silent: suite.limit };
    let unchanged = run(suite, programs, 0, limit, Some(&reached))?;
    if unchanged.end != End::Passed {
        return Err(format!("the tests `{}` fail without any change", suite.name));
    }
    println!("{}: without a change in {} s", suite.name, start.elapsed().as_secs());
    let patience = Patience {
        in_all: suite.limit.min((SLOWER_BY * start.elapsed()).max(SHORTEST_LIMIT)),
        silent: (SLOWER_BY * unchanged.longest_silence).max(SHORTEST_SILENCE),
    };
    let (waiting, missed) = (Mutex::new(mutants.into_iter()), Mutex::new(Vec::new()));
    let try_next = || -> Result<(), String> {
        // The lock is held only while the next one is taken.
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((number, mutant)) = next() {
            let name = &mutant.name;
            if !reached.join(number.to_string()).exists() {
                println!("{number}: {name}: never reached by `{}`", suite.name);
            } else {
                match run(suite, programs, number, patience, None)?.end {
                    End::Passed => println!("{number}: {name}: not noticed by `{}`", suite.name),
                    End::Failed(test) => {
                        let test = test.unwrap_or_else(|| "the end of the program".into());
                        println!("{number}: {name}: noticed by `{}`: {test}", suite.name);
                        continue;
                    }
                    End::Late => {
                        println!("{number}: {name}: noticed by `{}`: it hangs", suite.name);
                        continue;
                    }
                }
            }
            missed.lock().unwrap_or_else(PoisonError::into_inner).push((number, mutant));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(try_next)).collect();
        tries.into_iter().try_for_each(|each| each.join().map_err(|_| "a try has panicked".to_owned())?)
    })?;
    let mut missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    missed.sort_by_key(|(number, _)| *number);
    Ok(missed)
}

fn judge_alone(subject: &Subject, mutant: Mutant, judged: &mut Judged) -> Result<(), String> {
    tree::change(subject, &mutant)?;
    let Built::Programs(programs) = build(subject)? else {
        judged.unviable.push(mutant);
        return Ok(());
    };
    for suite in subject.suites {
        let limit = Patience { in_all: suite.limit, silent: suite.limit };
        if run(suite, &programs, 0, limit, None)?.end != End::Passed {
            judged.noticed += 1;
            return Ok(());
        }
    }
    judged.missed.push(mutant);
    Ok(())
}

/// Runs tests with a change in force, until they have ended, one has failed or the time is over.
fn run(
    suite: &Suite,
    programs: &Programs,
    number: usize,
    patience: Patience,
    reached: Option<&Path>,
) -> Result<Run, String> {
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
    within(patience, &log, command.stdout(output).stderr(again))
}

fn within(patience: Patience, log: &Path, command: &mut Command) -> Result<Run, String> {
    // A group of its own, with the servers that tests start.
    let mut child =
        command.process_group(0).spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let start = Instant::now();
    let (mut said_bytes, mut said_at, mut longest_silence) = (0, start, Duration::ZERO);
    loop {
        let ended = child.try_wait().map_err(|error| format!("cannot wait: {error}"))?;
        let said = std::fs::read(log).unwrap_or_default();
        longest_silence = longest_silence.max(said_at.elapsed());
        if said.len() > said_bytes {
            (said_bytes, said_at) = (said.len(), Instant::now());
        }
        let failed = first_failed(&said);
        if let Some(status) = ended {
            let end = if status.success() { End::Passed } else { End::Failed(failed) };
            return Ok(Run { end, longest_silence });
        }
        let is_late = start.elapsed() > patience.in_all || said_at.elapsed() > patience.silent;
        if is_late || failed.is_some() {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            let _ = child.wait();
            let end = if failed.is_some() { End::Failed(failed) } else { End::Late };
            return Ok(Run { end, longest_silence });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The test that has failed first, by what the tests have said so far.
fn first_failed(said: &[u8]) -> Option<String> {
    String::from_utf8_lossy(said)
        .lines()
        .find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn run_of(script: &str, silent: Duration) -> End {
        let log = std::env::temp_dir().join(format!("mutants-{}-{}", std::process::id(), silent.as_millis()));
        let output = File::create(&log).expect("a folder for such files");
        let patience = Patience { in_all: Duration::from_secs(60), silent };
        let run = within(patience, &log, Command::new("sh").args(["-c", script]).stdout(output));
        let _ = std::fs::remove_file(&log);
        run.expect("there is a shell").end
    }

    #[test]
    fn a_run_ends_with_the_first_test_that_fails_or_when_nothing_is_said_for_too_long() {
        let long = Duration::from_secs(50);
        let failing = "echo 'test a ... ok'; echo 'test b::c ... FAILED'; exec sleep 50";
        assert_eq!(run_of(failing, long), End::Failed(Some("b::c".into())));
        assert_eq!(run_of("echo 'test a ... ok'; exit 1", long - Duration::from_secs(1)), End::Failed(None));
        assert_eq!(run_of("echo 'test a ... ok'; exec sleep 50", Duration::from_millis(200)), End::Late);
        assert_eq!(run_of("echo 'test a ... ok'", long - Duration::from_secs(2)), End::Passed);
    }
}
