//! A copy of the source tree in which many changes are present at once, each behind a switch.
//!
//! A function of which something is changed becomes `if mutant(3) { its body, changed } else { its body }`: which
//! change is in force is told by the environment, so one build serves them all. What cannot be switched (a constant,
//! a function that returns a type without a name, a function in a function) is built alone.

use super::Subject;
use super::choice::{Mutant, Span};
use crate::root::{root, target};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which change is in force.
pub(super) const CHOSEN: &str = "OTOBUS_MUTANT";
/// A folder that gets a file for each change whose code was reached.
pub(super) const REACHED: &str = "OTOBUS_MUTANTS_REACHED";

/// The switch, added to the crate that is changed. Files tell what was reached, for tests start processes and threads.
const SWITCH: &str = r#"
#[doc(hidden)]
pub fn __mutant(number: usize) -> bool {
    use std::sync::{LazyLock, Mutex};
    static CHOSEN: LazyLock<usize> =
        LazyLock::new(|| std::env::var("OTOBUS_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0));
    static FOLDER: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("OTOBUS_MUTANTS_REACHED").ok());
    static REACHED: Mutex<std::collections::BTreeSet<usize>> = Mutex::new(std::collections::BTreeSet::new());
    if let Some(folder) = &*FOLDER {
        let mut reached = REACHED.lock().unwrap();
        // A server that may open no more files does so later.
        if !reached.contains(&number) && std::fs::write(format!("{folder}/{number}"), "").is_ok() {
            reached.insert(number);
        }
    }
    number == *CHOSEN
}
"#;

/// Stands after each change, on a line of its own.
const END: &str = "// the change ends";

/// Where the changes are built.
pub(super) fn folder() -> PathBuf {
    target().join("mutants/tree")
}

/// What the repository held when the run began: a run takes long, and work goes on meanwhile.
pub(super) fn original() -> PathBuf {
    target().join("mutants/original")
}

/// Remembers what the repository holds now.
pub(super) fn take() -> Result<(), String> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]);
    command.args([
        "Cargo.toml",
        "Cargo.lock",
        "crates",
        "xtask",
        "docs",
        "fuzz/bodies",
        "fuzz/corpus",
        "console",
        "tests",
    ]);
    let output = command.output().map_err(|error| format!("cannot run git: {error}"))?;
    let listed = String::from_utf8(output.stdout).map_err(|error| format!("git says: {error}"))?;
    copy(&root(), &original(), listed.split_terminator('\0').map(PathBuf::from))
}

/// Brings the original back. What has not changed keeps its time, so that it is not built again.
fn restore() -> Result<(), String> {
    let mut files = Vec::new();
    walk(&original(), &mut files)?;
    let names = files.iter().filter_map(|file| file.strip_prefix(original()).ok().map(Path::to_owned));
    copy(&original(), &folder(), names)
}

fn copy(from: &Path, to: &Path, files: impl Iterator<Item = PathBuf>) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    for file in files {
        // A file that git lists may have been removed.
        if let Ok(content) = std::fs::read(from.join(&file)) {
            write(&to.join(&file), &content)?;
            kept.insert(to.join(&file));
        }
    }
    remove_others(&to.join("crates"), &kept)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if path.is_dir() { walk(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        match path.is_dir() {
            true => remove_others(&path, kept)?,
            false if kept.contains(&path) => {}
            false => std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?,
        }
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let parent = path.parent().expect("a file is in a folder");
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, content));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(original().join(file)).map_err(|error| format!("{file}: {error}"))
}

/// Whether a change is on a line that plants a bug for the fuzzer, which the product never reaches.
pub(super) fn is_planted(mutant: &Mutant) -> Result<bool, String> {
    let text = read(&mutant.file)?;
    Ok(text.lines().nth(mutant.span.start.0 - 1).is_some_and(|line| line.contains("is_planted(")))
}

/// Whether a change can stand behind a switch, given the others.
pub(super) fn is_switchable(mutant: &Mutant, others: &[Mutant]) -> Result<bool, String> {
    let Some(function) = mutant.function else {
        return Ok(false);
    };
    let text = read(&mutant.file)?;
    let (start, end) = (offset(&text, function.start), offset(&text, function.end));
    let Some(body) = body(&text, start, end) else {
        return Ok(false);
    };
    let returned = text[start..body].rsplit("->").next().unwrap_or_default();
    let has_no_name = text[start..body].contains("->") && returned.contains("impl ");
    let is_around =
        |other: &Span| *other != function && other.start <= function.start && function.end <= other.end;
    let is_within = others
        .iter()
        .filter(|other| other.file == mutant.file)
        .any(|other| other.function.as_ref().is_some_and(is_around));
    Ok(!has_no_name && !is_within)
}

/// Writes the package with these changes behind their switches, by their numbers.
pub(super) fn switch(subject: &Subject, mutants: &[(usize, Mutant)]) -> Result<(), String> {
    restore()?;
    let home = Path::new(subject.home);
    let top = home.join(subject.top);
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    let manifest = home.join("Cargo.toml");
    // A body that is not used to the end is no reason to refuse a change.
    let without_lints = read(&manifest.to_string_lossy())?.replace("[lints]\nworkspace = true\n", "");
    files.insert(manifest, without_lints);
    for file in mutants.iter().map(|(_, mutant)| &mutant.file).collect::<BTreeSet<_>>() {
        let here: Vec<_> = mutants.iter().filter(|(_, mutant)| mutant.file == *file).collect();
        files.insert(file.into(), switched(&read(file)?, &here));
    }
    let text = match files.remove(&top) {
        Some(text) => text,
        None => read(&top.to_string_lossy())?,
    };
    files.insert(top, text + SWITCH);
    files.iter().try_for_each(|(file, text)| write(&folder().join(file), text.as_bytes()))
}

/// Writes the package with one change, for good.
pub(super) fn change(subject: &Subject, mutant: &Mutant) -> Result<(), String> {
    switch(subject, &[])?;
    let text = read(&mutant.file)?;
    let (start, end) = (offset(&text, mutant.span.start), offset(&text, mutant.span.end));
    let changed = [&text[..start], &mutant.replacement, &text[end..]].concat();
    write(&folder().join(&mutant.file), changed.as_bytes())
}

fn switched(text: &str, mutants: &[&(usize, Mutant)]) -> String {
    let mut functions: BTreeMap<usize, Vec<&(usize, Mutant)>> = BTreeMap::new();
    for each in mutants {
        let function = each.1.function.expect("what is switched is in a function");
        functions.entry(offset(text, function.start)).or_default().push(each);
    }
    let mut out = text.to_owned();
    for (start, within) in functions.into_iter().rev() {
        let end = offset(text, within[0].1.function.expect("it has one").end);
        let body = body(text, start, end).expect("what is switched has a body");
        let mut branches = String::from("{\n");
        for (number, mutant) in within {
            let (from, to) = (offset(text, mutant.span.start), offset(text, mutant.span.end));
            let changed = [&text[body..from], &mutant.replacement, &text[to..end]].concat();
            let _ = write!(branches, "if crate::__mutant({number}) {changed}\n{END}\nelse ");
        }
        // A constant function cannot ask which change is in force.
        let signature = text[start..body].replace("const fn", "fn");
        out.replace_range(start..end, &format!("{signature}{branches}{}\n}}", &text[body..end]));
    }
    out
}

/// The lines on which each change stands in a file of the copy.
pub(super) fn lines(file: &Path) -> Result<Vec<(usize, RangeInclusive<usize>)>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut found = Vec::new();
    let mut begun = None;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some((_, rest)) = content.split_once("if crate::__mutant(") {
            let number = rest.split_once(')').and_then(|(number, _)| number.parse::<usize>().ok());
            begun = number.map(|number| (number, line));
        }
        if content == END {
            found.extend(begun.take().map(|(number, first)| (number, first..=line)));
        }
    }
    Ok(found)
}

/// Where a line and a column, both from one, are in the text.
fn offset(text: &str, (line, column): (usize, usize)) -> usize {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within: usize = text[start..].chars().take(column - 1).map(char::len_utf8).sum();
    start + within
}

/// Where the body of a function begins: at the first brace outside of comments, texts, brackets and parentheses.
fn body(text: &str, start: usize, end: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    while at < end {
        let rest = &text[at..end];
        let letter = rest.chars().next()?;
        if rest.starts_with("//") {
            at += rest.find('\n')?;
            continue;
        }
        match letter {
            '"' => at += 1 + rest[1..].find('"')?,
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.checked_sub(1)?,
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
        at += letter.len_utf8();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "/// Adds {one}.\nconst fn add(a: [u8; 1]) -> u8 {\n    a[0] + 1\n}\n\nfn other() {}\n";

    fn mutant(span: Span, replacement: &str) -> Mutant {
        let function = Some(Span { start: (1, 1), end: (4, 2) });
        let (name, file) = (String::new(), String::new());
        Mutant { name, file, function, span, replacement: replacement.into() }
    }

    #[test]
    fn each_change_of_a_function_stands_behind_its_switch_and_the_rest_is_as_it_was() {
        let minus = (3, mutant(Span { start: (3, 10), end: (3, 11) }, "-"));
        let zero = (7, mutant(Span { start: (3, 5), end: (3, 13) }, "0"));
        let expected = "/// Adds {one}.\nfn add(a: [u8; 1]) -> u8 {\n\
                        if crate::__mutant(3) {\n    a[0] - 1\n}\n// the change ends\nelse \
                        if crate::__mutant(7) {\n    0\n}\n// the change ends\nelse \
                        {\n    a[0] + 1\n}\n}\n\nfn other() {}\n";
        assert_eq!(switched(TEXT, &[&minus, &zero]), expected);
    }

    #[test]
    fn a_body_begins_after_what_only_looks_like_one() {
        let text = "#[doc = \"{\"] // {\nfn f(a: [u8; { 1 }]) -> u8 { a }";
        assert_eq!(body(text, 0, text.len()).map(|at| &text[at..]), Some("{ a }"));
        assert_eq!(body("fn f();", 0, 7), None);
    }
}
