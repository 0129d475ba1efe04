//! `fuzz/LEDGER.md`: the last run of each target, and how soon it found the bug that was planted for it.

use super::log::Log;
use crate::root::root;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The targets that the ledger has a line for whatever was run, each with what it is about and the bug that is planted for it.
const LISTED: [(&str, &str, &str); 13] = [
    ("value", "AMQP values", "a long from 128 to 255 is written in one byte, which has a sign"),
    ("frame", "AMQP performatives", "the last of a disposition is not written if it is from 128 to 255"),
    (
        "connection",
        "an AMQP connection, cut anywhere",
        "a frame with a longer header is taken before it is whole",
    ),
    (
        "message",
        "sections of a message, batches, overlays",
        "a life of more than 24 days is taken for a negative one",
    ),
    ("sql", "SQL filters and actions", "a quotation mark that is doubled in a text stays doubled"),
    ("like", "LIKE", "the beginning and the end of a value may share characters"),
    ("http_head", "heads of HTTP requests", "the line that ends a head may end without a carriage return"),
    ("atom_xml", "Atom entries", "a text without `<` is not escaped"),
    ("broker_properties", "`BrokerProperties`", "the character for deleting is not escaped"),
    (
        "sas_token",
        "shared access signatures, bearer tokens, key sets",
        "of a signature the first byte is compared",
    ),
    ("websocket", "WebSocket requests and frames", "a close with one byte is read as if it had two"),
    (
        "journal",
        "segments and snapshots of the journal",
        "the checksum of a body whose ends differ is not looked at",
    ),
    ("snapshot", "the state in a snapshot", "a message may be in a session twice"),
];

const HEAD: &str = "# What fuzzing has done

The last run of each target, written by `cargo xtask fuzz` (README.md says how). *Edges* and *features* are what libFuzzer
calls `cov` and `ft`: edges that were passed, and the same told apart by how often. *Processor* is what the run had of one; the
rest of its time it waited for others. *Commit* is what the source tree stood on.

";

const PLANTED_HEAD: &str = "
## Planted bugs

Each target is built once more with a bug in the code under test that its seeds do not show (`cargo xtask fuzz --planted`), and
must find it by itself.

| target | the bug | executions until it was found |
|---|---|---|
";

pub(super) fn is_listed(name: &str) -> bool {
    LISTED.iter().any(|(listed, ..)| *listed == name)
}

/// Writes the ledger anew: lines of runs whose logs are there, and the others as they were.
pub(super) fn write(folder: &Path) -> Result<(), String> {
    let path = root().join("fuzz/LEDGER.md");
    let before = fs::read_to_string(&path).unwrap_or_default();
    let (runs, planted) = before.split_once("## Planted bugs").unwrap_or((&before, ""));
    let (runs, planted) = (rows(runs), rows(planted));
    let mut text = HEAD.to_owned();
    text += "| target | what is read | date | commit | seconds | processor | executions | edges | features | inputs | crashes |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for (name, what, _) in LISTED {
        match Log::read(&folder.join("logs").join(format!("{name}.log"))) {
            Ok(log) if !log.date.is_empty() => {
                let Log { date, commit, seconds, executions, edges, features, inputs, crashes, .. } = &log;
                let processor = match log.processor_seconds {
                    0 => "unknown".to_owned(),
                    seconds => format!("{seconds} s"),
                };
                let _ = writeln!(
                    text,
                    "| {name} | {what} | {date} | {commit} | {seconds} | {processor} | {} | {edges} | {features} | {inputs} | {crashes} |",
                    thousands(*executions)
                );
            }
            _ => {
                text += &runs
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| format!("| {name} | {what} | not run |||||||||\n"))
            }
        }
    }
    text += PLANTED_HEAD;
    for (name, _, bug) in LISTED {
        match Log::read(&folder.join("planted-logs").join(format!("{name}.log"))) {
            Ok(log) if !log.date.is_empty() => {
                let found = match log.crashes > 0 && log.executions > log.seeds {
                    true => thousands(log.executions),
                    false => format!("not found by {}", thousands(log.executions)),
                };
                let _ = writeln!(text, "| {name} | {bug} | {found} |");
            }
            _ => {
                text +=
                    &planted.get(name).cloned().unwrap_or_else(|| format!("| {name} | {bug} | not run |\n"))
            }
        }
    }
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The lines of a table by their first cell.
fn rows(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    lines.filter_map(|line| Some((line.split('|').nth(1)?.trim().to_owned(), format!("{line}\n")))).collect()
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.len();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (places - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_written_anew_stays() {
        let table = "| target | a |\n|---|---|\n| value | 1 |\ntext\n| frame | 2 |\n";
        assert_eq!(rows(table)["frame"], "| frame | 2 |\n");
        assert_eq!(rows(table)["value"], "| value | 1 |\n");
    }

    #[test]
    fn large_numbers_can_be_read() {
        assert_eq!([7, 999, 1_000, 1_234_567].map(thousands), ["7", "999", "1,000", "1,234,567"]);
    }
}
