//! ARCHITECTURE.md says that every limit is in a `limits.rs`: finds those that are somewhere else.

use std::path::Path;

/// What looks like a limit and is none: sizes of formats, and figures that mean something in their file alone.
const OTHERS: [&str; 22] = [
    "amqp/src/frame.rs HEADER_BYTES",
    "broker/src/tier.rs SMALL_MESSAGE_BYTES",
    "broker/src/topic/steps.rs STEP_BYTES",
    "gateway/src/amqp/trail.rs HEAD_BYTES",
    "gateway/src/http/message/dates.rs FOR_EVER_SECONDS",
    "items-engine/src/deciding.rs LENGTH_BYTES",
    "items-engine/src/deciding.rs OFFSET_BYTES",
    "items/src/definition/show.rs ETAG_BYTES",
    "items/src/effective_key/mod.rs V1_TEXT_BYTES",
    "items/src/item/stored.rs HEADER_BYTES",
    "items/src/keys.rs SECTION_BYTES",
    "items/src/query/functions/dates.rs TICKS_PER_MS",
    "items/src/rid.rs ITEM_CHARACTERS",
    "journal/src/disk/memory.rs SECTOR_BYTES",
    "journal/src/disk/pages.rs PAGE_BYTES",
    "journal/src/draft.rs BODY_PREFIX_BYTES",
    "journal/src/frame.rs FIXED_BYTES",
    "journal/src/local/snapshot.rs HEADER_BYTES",
    "journal/src/local/snapshot.rs TRAILER_BYTES",
    "message/src/intake.rs NEW_PROPERTIES_BYTES",
    "message/src/ticks.rs EPOCH_MS",
    "message/src/ticks.rs TICKS_PER_MS",
];

const ENDS: [&str; 13] = [
    "_BYTES",
    "_MOST",
    "_LEAST",
    "_AFTER",
    "_EVERY",
    "_SECONDS",
    "_CHARACTERS",
    "_TIMEOUT",
    "_CHUNK",
    "_COST",
    "_MS",
    "_SHARE",
    "_PERCENT",
];

/// Files of the product that stand for tests: nobody else runs them.
const TESTS: [&str; 4] = ["tests", "fuzzing", "conformance", "by_hand"];

/// The limits outside of `limits.rs`, in all crates but the simulator.
pub fn misplaced(crates: &Path) -> std::io::Result<Vec<String>> {
    let mut problems = Vec::new();
    for entry in std::fs::read_dir(crates)? {
        let entry = entry?;
        if entry.file_name() != "sim" {
            look(crates, &entry.path().join("src"), &mut problems)?;
        }
    }
    problems.sort();
    Ok(problems)
}

fn look(crates: &Path, folder: &Path, problems: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "limits" || TESTS.iter().any(|tests| stem.ends_with(tests)) {
            continue;
        }
        if path.is_dir() {
            look(crates, &path, problems)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let shown = path.strip_prefix(crates).unwrap_or(&path).display().to_string();
            let text = std::fs::read_to_string(&path)?;
            let names = product(&text).filter_map(limit).map(|name| format!("{shown} {name}"));
            let misplaced = names.filter(|name| !OTHERS.contains(&name.as_str()));
            problems.extend(misplaced.map(|name| format!("crates/{name} is a limit outside of limits.rs")));
        }
    }
    Ok(())
}

/// The lines before the unit tests, which are at the bottom.
fn product(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| !line.starts_with("mod tests {"))
}

/// The name of the limit that a line defines: a number or a length of time, called like one.
fn limit(line: &str) -> Option<&str> {
    // One of a function is indented.
    let line = line.trim_start();
    let visible = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) "));
    let line = visible.or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let (name, rest) = line.strip_prefix("const ")?.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    let is_called_so = ENDS.iter().any(|end| name.ends_with(end)) || name.starts_with("MOST_");
    let is_number = value.starts_with(|first: char| first.is_ascii_digit());
    (kind == "Duration" || (is_called_so && is_number)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_from_other_constants() {
        assert_eq!(limit("pub const FRAME_BYTES: usize = 64 * 1_024;"), Some("FRAME_BYTES"));
        assert_eq!(limit("pub(super) const GRACE: Duration = Duration::from_secs(5);"), Some("GRACE"));
        assert_eq!(limit("const MOST_KEYS: usize = 64;"), Some("MOST_KEYS"));
        assert_eq!(limit("const LOCK: &str = \"lock\";"), None);
        assert_eq!(limit("const VERSION: u8 = 2;"), None);
        assert_eq!(limit("    const FRAME_BYTES: usize = 1;"), Some("FRAME_BYTES"), "of a function");
        assert_eq!(limit("const SCAN_CHUNK: usize = 32;"), Some("SCAN_CHUNK"));
        assert_eq!(limit("const LARGE_BYTES: u32 = limits::CACHED_BODY_BYTES;"), None, "it has a place");
    }

    #[test]
    fn what_tests_count_with_is_no_limit() {
        let text = "const A: u8 = 1;\n#[cfg(test)]\nmod tests {\n    const FRAME_BYTES: usize = 1;\n}\n";
        assert_eq!(product(text).filter_map(limit).count(), 0);
    }
}
