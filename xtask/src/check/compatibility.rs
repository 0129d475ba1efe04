//! Checks COMPATIBILITY.md: each row says what it may say, and each claim names a test that ran and passed.
//!
//! A row is `| S-10 | the rule | yes | broker::queue::send::name<br>tests/sdk/python/test_x.py::test_y | note |`.
//! Rows are told from other tables by their first cell: letters, a hyphen, a number and perhaps a letter.

use std::collections::BTreeSet;

use super::Ran;
use super::step::{Failure, Report};
use crate::root::root;

const FILE: &str = "COMPATIBILITY.md";
const REPRODUCE: &str = "cargo xtask check (its last step reads COMPATIBILITY.md)";

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    yes: usize,
    differs: usize,
    no: usize,
    not_yet: usize,
}

pub fn check(ran: &mut Ran) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(root().join(FILE))
        .map_err(|error| Failure::new(format!("cannot read {FILE}: {error}"), REPRODUCE))?;
    match judge(&text, ran) {
        Ok(counts) => {
            let Counts { yes, differs, no, not_yet } = counts;
            Ok(Report { passed: 1, note: format!("{yes} yes, {differs} differ, {no} no, {not_yet} not yet") })
        }
        Err(problems) => Err(Failure::new(problems.join("\n"), REPRODUCE)),
    }
}

fn judge(text: &str, ran: &Ran) -> Result<Counts, Vec<String>> {
    let mut counts = Counts::default();
    let mut ids = BTreeSet::new();
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(row) = Row::read(line) else { continue };
        let at = format!("{FILE}:{}: {}", number + 1, row.id);
        if !ids.insert(row.id) {
            problems.push(format!("{at} has more than one row"));
        }
        match row.state {
            "yes" => counts.yes += 1,
            "differs" => counts.differs += 1,
            "no" => counts.no += 1,
            "not yet" => counts.not_yet += 1,
            other => problems.push(format!("{at}: `{other}` is none of yes, differs, no, not yet")),
        }
        let is_claim = matches!(row.state, "yes" | "differs");
        if is_claim && row.tests.is_empty() {
            problems.push(format!("{at} says `{}` and names no test", row.state));
        }
        for test in row.tests.iter().filter(|test| !ran.contains(**test)) {
            problems.push(format!("{at} names `{test}`, which is no test that ran and passed"));
        }
    }
    if ids.is_empty() {
        problems.push(format!("{FILE} has no row that starts with a rule's id"));
    }
    if problems.is_empty() { Ok(counts) } else { Err(problems) }
}

struct Row<'a> {
    id: &'a str,
    state: &'a str,
    tests: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Row<'a>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells = split_cells(inner);
        let id = cells.first().copied().filter(|id| is_rule_id(id))?;
        let cell = |index: usize| cells.get(index).copied().unwrap_or_default();
        let name = |test: &'a str| test.trim().trim_matches('`');
        let tests = cell(3).split("<br>").map(name).filter(|test| !test.is_empty()).collect();
        Some(Row { id, state: cell(2), tests })
    }
}

/// Cells of a table's row; a bar that belongs to the text is written `\|`.
fn split_cells(inner: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (index, character) in inner.char_indices() {
        if character == '|' && !is_escaped {
            cells.push(inner[start..index].trim());
            start = index + 1;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    cells.push(inner[start..].trim());
    cells
}

/// `S-10`, `A-2.2`, `H-21a`: capital letters, a hyphen, a number, perhaps with dots and a small letter.
fn is_rule_id(cell: &str) -> bool {
    let Some((letters, number)) = cell.split_once('-') else { return false };
    !letters.is_empty()
        && letters.chars().all(|c| c.is_ascii_uppercase())
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '.' || c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let ran = [
            "broker::queue::sends".to_string(),
            "tests/sdk/javascript/x.test.mjs::a key is refused".to_string(),
        ];
        judge(text, &Ran::from(ran)).err().unwrap_or_default()
    }

    #[test]
    fn a_sound_table_is_counted() {
        let text = "\
| id | rule | state | tests | note |
|---|---|---|---|---|
| S-1 | sends | yes | broker::queue::sends<br>`tests/sdk/javascript/x.test.mjs::a key is refused` | |
| H-2a | lists \\| reads | not yet | | later |
| A-2.2 | tokens | differs | broker::queue::sends | why |
| C-3 | never | no | | |
";
        let counts = judge(
            text,
            &Ran::from([
                "broker::queue::sends".into(),
                "tests/sdk/javascript/x.test.mjs::a key is refused".into(),
            ]),
        );
        assert_eq!(counts, Ok(Counts { yes: 1, differs: 1, no: 1, not_yet: 1 }));
    }

    #[test]
    fn a_claim_without_a_test_is_refused() {
        assert_eq!(
            problems("| S-1 | sends | yes | | |"),
            ["COMPATIBILITY.md:1: S-1 says `yes` and names no test"]
        );
        assert_eq!(problems("| S-1 | sends | differs | | |").len(), 1);
    }

    #[test]
    fn a_test_that_did_not_run_is_refused_whatever_the_row_says() {
        assert_eq!(problems("| S-1 | sends | yes | broker::queue::gone | |").len(), 1);
        assert_eq!(problems("| S-1 | sends | not yet | broker::queue::gone | |").len(), 1);
    }

    #[test]
    fn an_unknown_state_is_refused() {
        assert_eq!(problems("| S-1 | sends | maybe | broker::queue::sends | |").len(), 1);
    }

    #[test]
    fn an_id_has_one_row() {
        let row = "| S-1 | sends | no | | |\n";
        assert_eq!(problems(&row.repeat(2)), ["COMPATIBILITY.md:2: S-1 has more than one row"]);
    }

    #[test]
    fn a_file_without_rows_is_refused() {
        assert_eq!(problems("| id | rule |\n|---|---|\n").len(), 1);
    }
}
