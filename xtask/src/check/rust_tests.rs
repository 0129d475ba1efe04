//! Runs the workspace's Rust tests and notes their names as the proofs in docs/compatibility write them: `broker::queue::send::name`.
//!
//! Cargo names a test binary by path only, so the build step first learns which package each binary belongs to.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::Ran;
use super::output::{self, TestResult};
use super::step::{self, Failure, Report};
use crate::root::root;

const TEST: [&str; 5] = ["test", "--workspace", "--profile", "quick", "--no-fail-fast"];

/// The check gives one verdict for one commit; `cargo test` alone draws new cases every time.
const SEED: &str = "20261115";

/// Path of a test binary -> the front part of its tests' names. Filled by `build`.
static BINARIES: OnceLock<BTreeMap<String, String>> = OnceLock::new();

pub fn build() -> Result<Report, Failure> {
    let arguments = ["test", "--workspace", "--profile", "quick", "--no-run"];
    let command = format!("cargo {}", arguments.join(" "));
    let built = Command::new("cargo")
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}"), &command))?;
    if !built.status.success() {
        return Err(Failure::new(step::without_progress(&String::from_utf8_lossy(&built.stderr)), command));
    }
    let binaries: BTreeMap<_, _> =
        String::from_utf8_lossy(&built.stdout).lines().filter_map(test_binary).collect();
    let note = format!("{} test binaries", binaries.len());
    BINARIES.get_or_init(|| binaries);
    Ok(Report { passed: 0, note })
}

/// A message of cargo about a test binary it built: its path and the front part of its tests' names.
fn test_binary(message: &str) -> Option<(String, String)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    if message["profile"]["test"].as_bool() != Some(true) {
        return None;
    }
    let package = package_name(message["package_id"].as_str()?);
    let short = if package == "otobus" { "server" } else { package.trim_start_matches("otobus-") };
    let is_integration_test = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let prefix = if is_integration_test {
        format!("{short}::{}", message["target"]["name"].as_str()?)
    } else {
        short.to_string()
    };
    Some((path.to_string(), prefix))
}

/// The name in a package id: `path+file:///x/crates/message#otobus-message@0.1.0`, or `…/xtask#0.1.0` where the
/// folder has the package's name.
fn package_name(id: &str) -> &str {
    let (place, name) = id.split_once('#').unwrap_or(("", id));
    match name.split_once('@') {
        Some((name, _version)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

pub fn run(ran: &mut Ran) -> Result<Report, Failure> {
    let mut command = Command::new("cargo");
    command.args(TEST).env("PROPTEST_RNG_SEED", SEED);
    let run = step::finished(command);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut prefix = String::new();
    for line in run.output.lines() {
        if let Some(next) = section(line) {
            prefix = next;
        } else if let Some(outcome) = output::rust(line) {
            match outcome.result {
                TestResult::Passed => {
                    passed += 1;
                    ran.insert(format!("{prefix}::{}", outcome.name));
                }
                TestResult::Failed => failed += 1,
                TestResult::Skipped => skipped += 1,
            }
        }
    }
    if run.success {
        Ok(Report { passed, note: noted(passed, skipped) })
    } else {
        Err(Failure { passed, failed: failed.max(1), output: failures_only(&run.output), command: run.shown })
    }
}

pub fn noted(passed: usize, skipped: usize) -> String {
    if skipped == 0 { format!("{passed} tests") } else { format!("{passed} tests, {skipped} skipped") }
}

/// The line with which cargo announces a test binary, as the front part of its tests' names.
fn section(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(library) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{}::doc", library.trim_start_matches("otobus_")));
    }
    let (_, path) = line.strip_prefix("Running ")?.rsplit_once('(')?;
    let path = root().join(path.strip_suffix(')')?);
    BINARIES.get()?.get(path.to_str()?).cloned()
}

/// Leaves out the lines of what went well: they bury what did not.
fn failures_only(output: &str) -> String {
    let is_passed = |line: &str| line.starts_with("test ") && line.ends_with(" ok");
    step::without_progress(output).lines().filter(|line| !is_passed(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_id() {
        assert_eq!(package_name("path+file:///x/crates/message#otobus-message@0.1.0"), "otobus-message");
        assert_eq!(package_name("path+file:///x/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn a_unit_test_binary_is_named_by_its_crate_and_an_integration_test_also_by_its_file() {
        let message = |kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///x/crates/broker#otobus-broker@0.1.0",
                "target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":true}},"executable":"/t/x-1"}}"#
            )
        };
        let unit = test_binary(&message("lib", "otobus_broker"));
        assert_eq!(unit, Some(("/t/x-1".into(), "broker".into())));
        let integration = test_binary(&message("test", "replay"));
        assert_eq!(integration, Some(("/t/x-1".into(), "broker::replay".into())));
    }

    #[test]
    fn a_failure_report_leaves_out_what_went_well() {
        let output = "   Compiling x v1\ntest a ... ok\ntest b ... FAILED\nassertion failed";
        assert_eq!(failures_only(output), "test b ... FAILED\nassertion failed");
    }
}
