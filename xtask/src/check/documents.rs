//! Checks what the documents say of the repository: links lead to files, files that ARCHITECTURE.md names exist, its table of
//! crates says of each what its manifest says, and limits are where it says.

use super::limits;
use super::step::{Failure, Report};
use crate::root::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MAP: &str = "ARCHITECTURE.md";
const REPRODUCE: &str = "cargo xtask documents";
/// What the table writes for a crate that knows no other.
const NOBODY: &str = "nobody";

pub fn check() -> Result<Report, Failure> {
    let problems = problems(&root()).unwrap_or_else(|error| vec![error.to_string()]);
    match problems.is_empty() {
        true => Ok(Report { passed: 1, note: String::new() }),
        false => Err(Failure::new(problems.join("\n"), REPRODUCE)),
    }
}

fn problems(root: &Path) -> std::io::Result<Vec<String>> {
    let mut problems = Vec::new();
    for page in pages(root)? {
        let text = std::fs::read_to_string(&page)?;
        let folder = page.parent().unwrap_or(root);
        let shown = page.strip_prefix(root).unwrap_or(&page).display();
        let dead = links(&text).into_iter().filter(|link| !folder.join(link).exists());
        problems.extend(dead.map(|link| format!("{shown} links to {link}, which does not exist")));
    }
    let map = std::fs::read_to_string(root.join(MAP))?;
    let missing =
        missing_files(&map, |path| root.join("crates").join(path).exists() || root.join(path).exists());
    problems.extend(missing.into_iter().map(|path| format!("{MAP} names {path}, which does not exist")));
    for folder in crates(root)? {
        let manifest = std::fs::read_to_string(root.join("crates").join(&folder).join("Cargo.toml"))?;
        problems.extend(wrong_arrows(&map, &folder, &known_crates(&manifest, &crates(root)?)));
    }
    problems.extend(limits::misplaced(&root.join("crates"))?);
    Ok(problems)
}

/// Every page of the repository, but for what others wrote.
fn pages(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            pages.extend(self::pages(&path)?);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// The relative links of a page, without the places within a page.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next());
    let files = targets.map(|target| target.split('#').next().unwrap_or_default().trim());
    files
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// The files and folders that a page names in backticks and that do not exist. A name alone is one of the folder that was named
/// last, or a file that several crates have.
fn missing_files(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut missing = Vec::new();
    let mut folder = "";
    for word in text.split('`').skip(1).step_by(2) {
        let is_name = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
        let is_folder = word.ends_with('/');
        if !is_name || !(word.ends_with(".rs") || word.contains('/') && is_folder) {
            continue;
        }
        match word.trim_end_matches('/').rsplit_once('/') {
            Some((parent, _)) => {
                folder = if is_folder { word.trim_end_matches('/') } else { parent };
                if !exists(word) {
                    missing.push(word.to_owned());
                }
            }
            None if exists(&format!("{folder}/{word}")) || word == "limits.rs" => {}
            None => missing.push(format!("{word} (in {folder})")),
        }
    }
    missing
}

/// The folders under `crates`.
fn crates(root: &Path) -> std::io::Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(root.join("crates"))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Which crates of ours a manifest names for what is built into the product.
fn known_crates(manifest: &str, crates: &BTreeSet<String>) -> BTreeSet<String> {
    let is_ours = |line: &&str| !line.trim_start().starts_with('#');
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('[')).filter(is_ours);
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| crates.contains(*name)).map(str::to_owned).collect()
}

/// How the row of a crate differs from its manifest.
fn wrong_arrows(map: &str, folder: &str, known: &BTreeSet<String>) -> Option<String> {
    let begin = format!("| `crates/{folder}` |");
    let Some(row) = map.lines().find(|line| line.starts_with(&begin)) else {
        return Some(format!("{MAP} has no row for crates/{folder}"));
    };
    let told = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default().trim();
    let told: BTreeSet<String> = match told {
        NOBODY => BTreeSet::new(),
        told => told.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let list = |names: &BTreeSet<String>| Vec::from_iter(names.iter().map(String::as_str)).join(", ");
    (told != *known)
        .then(|| format!("{MAP} says that {folder} knows {}; its manifest says {}", list(&told), list(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_the_documents_say_of_the_repository_is_true() {
        assert_eq!(problems(&root()).unwrap(), [] as [String; 0]);
    }

    #[test]
    fn a_changed_arrow_is_found_on_either_side() {
        let all = set(&["amqp", "broker", "message"]);
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nmessage.workspace = true\n# amqp\nthiserror = \"2\"\n\n[dev-dependencies]\nbroker.workspace = true\n";
        let known = known_crates(manifest, &all);
        assert_eq!(known, set(&["message"]));
        let row =
            |knows: &str| format!("| crate | holds | may know |\n| `crates/amqp` | frames | {knows} |\n");
        assert_eq!(wrong_arrows(&row("message"), "amqp", &known), None);
        assert!(wrong_arrows(&row("message, broker"), "amqp", &known).is_some());
        assert!(wrong_arrows(&row(NOBODY), "amqp", &known).is_some());
        assert!(wrong_arrows(&row("message"), "amqp", &set(&[])).is_some());
        assert!(wrong_arrows("", "amqp", &known).is_some(), "there is no row");
    }

    #[test]
    fn links_are_taken_without_hosts_and_without_places_in_a_page() {
        let text = "[a](b.md#c) [d](https://e.example/f) [g](#h) [i](../j) [k](mailto:l@m.example)";
        assert_eq!(links(text), ["b.md", "../j"]);
    }

    #[test]
    fn a_file_that_is_gone_is_missed_with_its_folder_or_after_it() {
        let exists =
            |path: &str| ["amqp/src/frame.rs", "amqp/src/link.rs", "amqp/src/performative/"].contains(&path);
        assert_eq!(
            missing_files("`amqp/src/frame.rs`, `link.rs`, `amqp/src/performative/`, `a.b`", exists),
            [] as [String; 0]
        );
        assert_eq!(missing_files("`amqp/src/gone.rs`", exists), ["amqp/src/gone.rs"]);
        assert_eq!(missing_files("`amqp/src/frame.rs`, `gone.rs`", exists), ["gone.rs (in amqp/src)"]);
    }
}
