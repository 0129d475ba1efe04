//! The black-box tests: the official SDKs and a hand-written client against the built broker.

use std::process::Command;

use super::output::{self, Outcome, TestResult};
use super::rust_tests::noted;
use super::step::{self, Failure, Report};
use super::{PROFILE, Ran};
use crate::root::{binary, root, target};
use crate::tools::{javascript, python, strace};

/// Tests that run at once: with more of them the processors are what they wait for, and deadlines pass.
const PYTHON_WORKERS: &str = "4";

pub fn build() -> Result<Report, Failure> {
    step::cargo(&["build", "--package", "otobus", "--profile", PROFILE])?;
    Ok(Report { passed: 0, note: String::new() })
}

pub fn prepare_python() -> Result<Report, Failure> {
    python::prepare()?;
    Ok(Report { passed: 0, note: String::new() })
}

pub fn prepare_javascript() -> Result<Report, Failure> {
    javascript::prepare()?;
    Ok(Report { passed: 0, note: String::new() })
}

pub fn crash(ran: &mut Ran) -> Result<Report, Failure> {
    if !cfg!(target_os = "linux") {
        return Ok(Report { passed: 0, note: "only on Linux".into() });
    }
    let strace = strace::prepare().map_err(|missing| Failure::new(missing, "strace --version"))?;
    let mut command = pytest("tests/crash");
    command.env("OTOBUS_STRACE", &strace.program);
    strace.set_libraries(&mut command);
    tally(command, output::python, |name| name, ran)
}

/// Side by side, because the tests wait for locks and deadlines most of the time; each server has a folder and ports of its own.
pub fn python(ran: &mut Ran) -> Result<Report, Failure> {
    let mut command = pytest("tests/sdk/python");
    command.args(["tests/load", "-n", PYTHON_WORKERS, "--dist", "worksteal"]);
    tally(command, output::python, |name| name, ran)
}

fn pytest(folder: &str) -> Command {
    let mut command = Command::new(python::folder().join("bin/python"));
    command.args(["-m", "pytest", "-v", "--color=no", "--rootdir=.", "-p", "no:cacheprovider", folder]);
    // Every broker's journal takes 64 MiB at once; without this the disk would hold those of three whole runs.
    command.args(["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]);
    command.env("OTOBUS_BIN", binary(PROFILE)).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs file after file, because Node does not say which file a test is from.
pub fn javascript(ran: &mut Ran) -> Result<Report, Failure> {
    let files = javascript::test_files().map_err(|error| {
        Failure::new(format!("cannot list {}: {error}", javascript::SOURCE), "ls tests/sdk")
    })?;
    let mut passed = 0;
    for file in files {
        let mut command = Command::new("node");
        command.args(["--test", "--test-reporter=tap", &file]).current_dir(javascript::folder());
        command.env("OTOBUS_BIN", binary(PROFILE));
        let named = |name: String| format!("{}/{file}::{name}", javascript::SOURCE);
        match tally(command, output::javascript, named, ran) {
            Ok(report) => passed += report.passed,
            Err(failure) => return Err(Failure { passed: passed + failure.passed, ..failure }),
        }
    }
    Ok(Report { passed, note: noted(passed, 0) })
}

const RUST_SOURCE: &str = "tests/sdk/rust";

/// Builds them beside the product: they share nothing with it.
pub fn build_rust() -> Result<Report, Failure> {
    let manifest = root().join(RUST_SOURCE).join("Cargo.toml").to_string_lossy().into_owned();
    let folder = target().join("sdk/rust").to_string_lossy().into_owned();
    let arguments = ["test", "--quiet", "--locked", "--no-run", "--manifest-path", &manifest];
    step::command("cargo", &arguments, &[("CARGO_TARGET_DIR", folder.as_str())])?;
    Ok(Report { passed: 0, note: String::new() })
}

/// The clients that are written in Rust: the official SDK of the items, and two of the bus. They have a lock file and a target
/// folder of their own, and stay out of the product's workspace.
pub fn rust(ran: &mut Ran) -> Result<Report, Failure> {
    let mut passed = 0;
    for file in ["items", "bus"] {
        let mut command = Command::new("cargo");
        command.args(["test", "--quiet", "--locked", "--test", file, "--manifest-path"]);
        command.arg(root().join(RUST_SOURCE).join("Cargo.toml")).args(["--", "--format=pretty"]);
        command.env("CARGO_TARGET_DIR", target().join("sdk/rust")).env("OTOBUS_BIN", binary(PROFILE));
        // The server's certificate is its own; the SDK takes that from an emulator.
        command.env("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED", "true");
        let named = |name: String| format!("{RUST_SOURCE}/tests/{file}.rs::{name}");
        match tally(command, output::rust, named, ran) {
            Ok(report) => passed += report.passed,
            Err(failure) => return Err(Failure { passed: passed + failure.passed, ..failure }),
        }
    }
    Ok(Report { passed, note: noted(passed, 0) })
}

/// Runs a test runner, counts what it says, and notes the tests that passed.
fn tally(
    command: Command,
    read: fn(&str) -> Option<Outcome>,
    named: impl Fn(String) -> String,
    ran: &mut Ran,
) -> Result<Report, Failure> {
    let run = step::finished(command);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for outcome in run.output.lines().filter_map(read) {
        match outcome.result {
            TestResult::Passed => {
                passed += 1;
                ran.insert(named(outcome.name));
            }
            TestResult::Failed => failed += 1,
            TestResult::Skipped => skipped += 1,
        }
    }
    if run.success && passed > 0 {
        return Ok(Report { passed, note: noted(passed, skipped) });
    }
    Err(Failure { passed, failed: failed.max(1), output: run.output, command: run.shown })
}
