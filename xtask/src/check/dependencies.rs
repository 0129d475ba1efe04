//! Licences, bans and sources of our dependencies, judged by deny.toml.
//!
//! cargo-deny judges the same and more, but building it takes longer than all our own tests, so that a new machine
//! would wait minutes for it. The three checks are therefore made here from `cargo metadata`, and cargo-deny runs in
//! addition where it is installed.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::licence;
use super::step::{self, Failure, Report};
use crate::root::root;

const REPRODUCE: &str = "cargo xtask dependencies";

/// What deny.toml allows.
struct Policy {
    licences: Vec<String>,
    /// Licences allowed for one crate only.
    exceptions: BTreeMap<String, Vec<String>>,
    banned: Vec<String>,
}

pub fn check() -> Result<Report, Failure> {
    let problems = policy().and_then(|policy| Ok(problems(&metadata()?, &policy)));
    match problems {
        Err(error) => return Err(Failure::new(error, REPRODUCE)),
        Ok(problems) if !problems.is_empty() => return Err(Failure::new(problems.join("\n"), REPRODUCE)),
        Ok(_) => {}
    }
    if crate::tools::is_on_path("cargo-deny") {
        step::cargo(&["deny", "--log-level", "error", "check", "licenses", "bans", "sources"])?;
        return Ok(Report { passed: 1, note: "ok, also by cargo-deny".into() });
    }
    Ok(Report { passed: 1, note: String::new() })
}

fn policy() -> Result<Policy, String> {
    let path = root().join("deny.toml");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let table: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let list = |section: &str, key: &str| {
        table.get(section).and_then(|section| section.get(key)).and_then(|value| value.as_array()).cloned()
    };
    let licences = list("licenses", "allow").ok_or("deny.toml: [licenses] has no `allow`")?;
    let banned = list("bans", "deny").ok_or("deny.toml: [bans] has no `deny`")?;
    let exceptions = list("licenses", "exceptions").unwrap_or_default();
    let texts =
        |list: &[toml::Value]| list.iter().filter_map(|text| text.as_str().map(String::from)).collect();
    Ok(Policy {
        licences: texts(&licences),
        exceptions: exceptions
            .iter()
            .filter_map(|entry| {
                Some((entry.get("crate")?.as_str()?.to_string(), texts(entry.get("allow")?.as_array()?)))
            })
            .collect(),
        banned: banned.iter().filter_map(|ban| ban.get("crate")?.as_str().map(String::from)).collect(),
    })
}

fn metadata() -> Result<Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--all-features", "--locked"])
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata printed no JSON: {error}"))
}

/// Everything in the graph that the policy does not allow, one sentence each.
fn problems(metadata: &Value, policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    for package in members(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap_or_default();
        let version = package["version"].as_str().unwrap_or_default();
        match package["source"].as_str() {
            None => {
                problems.extend(wildcards(package).map(|on| format!("{name} asks for any version of {on}")))
            }
            Some(source) if is_public_registry(source) => {
                if policy.banned.iter().any(|banned| banned == name) {
                    problems.push(format!("{name} {version} is banned by deny.toml"));
                }
                problems
                    .extend(licence_problem(package, policy).map(|why| format!("{name} {version}: {why}")));
            }
            Some(source) => {
                problems.push(format!("{name} {version} comes from {source}, not from the registry"))
            }
        }
    }
    problems
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Cargo's default registry; its index is named alike in every mirror of it.
fn is_public_registry(source: &str) -> bool {
    source.starts_with("registry+") && source.ends_with("/crates.io-index")
}

fn licence_problem(package: &Value, policy: &Policy) -> Option<String> {
    let Some(expression) = package["license"].as_str() else {
        return Some("it names no licence".into());
    };
    let name = package["name"].as_str().unwrap_or_default();
    let excepted = policy.exceptions.get(name).into_iter().flatten();
    let allowed: Vec<String> = policy.licences.iter().chain(excepted).cloned().collect();
    match licence::is_allowed(expression, &allowed) {
        Ok(true) => None,
        Ok(false) => Some(format!("its licence {expression} is not allowed by deny.toml")),
        Err(why) => Some(why),
    }
}

/// The dependencies of one of our own crates that accept any version.
fn wildcards(package: &Value) -> impl Iterator<Item = &str> {
    members(&package["dependencies"])
        .filter(|dependency| dependency["path"].is_null() && dependency["req"] == "*")
        .map(|dependency| dependency["name"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry+https://example.org/crates.io-index";

    fn judge(package: &str) -> Vec<String> {
        let policy = Policy {
            licences: vec!["MIT".into()],
            exceptions: BTreeMap::from([("roots".into(), vec!["MPL-2.0".into()])]),
            banned: vec!["openssl-sys".into()],
        };
        let package = package.replace("REGISTRY", REGISTRY);
        let metadata = format!(r#"{{"packages":[{package}]}}"#);
        problems(&serde_json::from_str(&metadata).expect("the test writes JSON"), &policy)
    }

    #[test]
    fn an_allowed_crate_of_the_registry_passes() {
        let package = r#"{"name":"a","version":"1.0.0","source":"REGISTRY","license":"MIT OR GPL-3.0"}"#;
        assert_eq!(judge(package), Vec::<String>::new());
    }

    #[test]
    fn a_licence_that_is_not_allowed_or_missing_is_named() {
        let package = r#"{"name":"a","version":"1.0.0","source":"REGISTRY","license":"GPL-3.0"}"#;
        assert_eq!(judge(package), ["a 1.0.0: its licence GPL-3.0 is not allowed by deny.toml"]);
        let package = r#"{"name":"a","version":"1.0.0","source":"REGISTRY","license":null}"#;
        assert_eq!(judge(package), ["a 1.0.0: it names no licence"]);
    }

    #[test]
    fn an_exception_holds_for_its_crate_and_no_other() {
        let package = r#"{"name":"roots","version":"1.0.0","source":"REGISTRY","license":"MPL-2.0"}"#;
        assert_eq!(judge(package), Vec::<String>::new());
        assert_eq!(judge(&package.replace("roots", "other")).len(), 1);
    }

    #[test]
    fn a_banned_crate_is_named() {
        let package = r#"{"name":"openssl-sys","version":"0.9.0","source":"REGISTRY","license":"MIT"}"#;
        assert_eq!(judge(package), ["openssl-sys 0.9.0 is banned by deny.toml"]);
    }

    #[test]
    fn a_crate_from_git_is_refused() {
        let package =
            r#"{"name":"a","version":"1.0.0","source":"git+https://example.org/a","license":"MIT"}"#;
        assert_eq!(judge(package).len(), 1);
    }

    #[test]
    fn our_own_crates_may_not_ask_for_any_version() {
        let package = r#"{"name":"us","version":"0.1.0","source":null,"license":"MIT","dependencies":[
            {"name":"near","path":"/x/near","req":"*"},{"name":"far","path":null,"req":"*"}]}"#;
        assert_eq!(judge(package), ["us asks for any version of far"]);
    }
}
