//! Checks the compatibility pages: each row says what it may say, each claim has a test that ran and passed, and
//! COMPATIBILITY.md counts what the pages say. The promises of SECURITY.md are checked in the same way.
//!
//! A page is docs/compatibility/NAME.md, its proofs are in NAME-proofs.txt beside it.

mod overview;
mod page;
mod proofs;

use super::Ran;
use super::step::{Failure, Report};
use crate::root::root;
use std::collections::BTreeSet;

const OVERVIEW: &str = "COMPATIBILITY.md";
const FOLDER: &str = "docs/compatibility";
const REPRODUCE: &str = "cargo xtask check (its last step reads docs/compatibility)";
/// The pages, in the order in which the overview lists them.
const AREAS: [&str; 5] = ["broker", "http", "amqp", "corrections", "items"];

/// What SECURITY.md promises is held to the same, and counted nowhere: it is about us and not about the service.
const PROMISES: &str = "SECURITY";

/// A page with its proofs.
#[derive(Debug)]
pub struct Area {
    name: &'static str,
    title: String,
    page: String,
    proofs: String,
}

impl Area {
    fn new(name: &'static str, page: String, proofs: String) -> Area {
        let title = page.lines().next().unwrap_or_default().trim_start_matches('#').trim().to_owned();
        Area { name, title, page, proofs }
    }

    fn read(name: &'static str) -> Result<Area, String> {
        let file = |end: &str| format!("{FOLDER}/{name}{end}");
        Ok(Area::new(name, read(&file(".md"))?, read(&file("-proofs.txt"))?))
    }

    fn read_promises() -> Result<Area, String> {
        let file = |end: &str| format!("{PROMISES}{end}");
        Ok(Area::new(PROMISES, read(&file(".md"))?, read(&format!("docs/{}", file("-proofs.txt")))?))
    }

    fn rows(&self) -> Vec<page::Row<'_>> {
        page::rows(&self.page)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    yes: usize,
    differs: usize,
    no: usize,
    not_yet: usize,
}

pub fn check(ran: &mut Ran) -> Result<Report, Failure> {
    let all = || -> Result<Counts, Vec<String>> {
        let areas = AREAS.map(Area::read).into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| vec![e])?;
        let counts = judge(&areas, ran)?;
        judge(&[Area::read_promises().map_err(|error| vec![error])?], ran)?;
        let text = read_overview().map_err(|error| vec![error])?;
        if overview::renew(&text, &areas) != Some(text) {
            return Err(vec![format!(
                "{OVERVIEW} does not say what the pages say: cargo xtask compatibility"
            )]);
        }
        Ok(counts)
    };
    let Counts { yes, differs, no, not_yet } =
        all().map_err(|problems| Failure::new(problems.join("\n"), REPRODUCE))?;
    Ok(Report { passed: 1, note: format!("{yes} yes, {differs} differ, {no} no, {not_yet} not yet") })
}

/// Writes the generated part of the overview.
pub fn renew() -> Result<(), String> {
    let areas = AREAS.map(Area::read).into_iter().collect::<Result<Vec<_>, _>>()?;
    let text = read_overview()?;
    let renewed = overview::renew(&text, &areas)
        .ok_or_else(|| format!("{OVERVIEW} lacks `{}` or `{}`", overview::BEGIN, overview::END))?;
    std::fs::write(root().join(OVERVIEW), renewed)
        .map_err(|error| format!("cannot write {OVERVIEW}: {error}"))
}

fn read_overview() -> Result<String, String> {
    read(OVERVIEW)
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(file)).map_err(|error| format!("cannot read {file}: {error}"))
}

fn judge(areas: &[Area], ran: &Ran) -> Result<Counts, Vec<String>> {
    let mut counts = Counts::default();
    let mut ids = BTreeSet::new();
    let mut problems = Vec::new();
    for area in areas {
        let (page, file) = (format!("{}.md", area.name), format!("{}-proofs.txt", area.name));
        let mut proofs = match proofs::read(&file, &area.proofs) {
            Ok(proofs) => proofs,
            Err(found) => {
                problems.extend(found);
                continue;
            }
        };
        for row in area.rows() {
            let at = format!("{page}:{}: {}", row.line, row.id);
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
            let tests = proofs.remove(row.id).unwrap_or_default();
            let is_claim = matches!(row.state, "yes" | "differs");
            if is_claim && tests.is_empty() {
                problems.push(format!("{at} says `{}` and {file} names no test", row.state));
            }
            for test in tests.iter().filter(|test| !ran.contains(**test)) {
                problems.push(format!("{file}: {}: `{test}` is no test that ran and passed", row.id));
            }
        }
        problems.extend(proofs.keys().map(|id| format!("{file}: {id} has no row in {page}")));
    }
    if ids.is_empty() {
        problems.push(format!("{FOLDER} has no row that starts with a rule's id"));
    }
    if problems.is_empty() { Ok(counts) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(page: &str, proofs: &str) -> Result<Counts, Vec<String>> {
        let ran = ["broker::queue::sends", "tests/sdk/javascript/x.test.mjs::a key is refused"];
        let ran = Ran::from(ran.map(str::to_owned));
        judge(&[Area::new("broker", page.into(), proofs.into())], &ran)
    }

    fn problems(page: &str, proofs: &str) -> Vec<String> {
        judged(page, proofs).err().unwrap_or_default()
    }

    #[test]
    fn a_sound_page_is_counted() {
        let page = "\
| id | rule | state | note |
|---|---|---|---|
| S-1 | sends | yes | |
| H-2a | lists \\| reads | not yet | later |
| A-2.2 | tokens | differs | why |
| C-3 | never | no | |
";
        let proofs = "S-1\n  broker::queue::sends\n  tests/sdk/javascript/x.test.mjs::a key is refused\n\
                      A-2.2\n  broker::queue::sends\n";
        assert_eq!(judged(page, proofs), Ok(Counts { yes: 1, differs: 1, no: 1, not_yet: 1 }));
    }

    #[test]
    fn a_claim_without_a_test_is_refused() {
        assert_eq!(
            problems("| S-1 | sends | yes | |", ""),
            ["broker.md:1: S-1 says `yes` and broker-proofs.txt names no test"]
        );
        assert_eq!(problems("| S-1 | sends | differs | |", "S-1\n").len(), 1);
    }

    #[test]
    fn a_test_that_did_not_run_is_refused_whatever_the_row_says() {
        assert_eq!(problems("| S-1 | sends | yes | |", "S-1\n  broker::queue::gone\n").len(), 1);
        assert_eq!(problems("| S-1 | sends | not yet | |", "S-1\n  broker::queue::gone\n").len(), 1);
    }

    #[test]
    fn an_unknown_state_is_refused() {
        assert_eq!(problems("| S-1 | sends | maybe | |", "S-1\n  broker::queue::sends\n").len(), 1);
    }

    #[test]
    fn an_id_has_one_row_and_proofs_have_theirs() {
        let row = "| S-1 | sends | no | |\n";
        assert_eq!(problems(&row.repeat(2), ""), ["broker.md:2: S-1 has more than one row"]);
        assert_eq!(
            problems(row, "S-2\n  broker::queue::sends\n"),
            ["broker-proofs.txt: S-2 has no row in broker.md"]
        );
    }

    #[test]
    fn a_page_without_rows_is_refused() {
        assert_eq!(problems("| id | rule |\n|---|---|\n", "").len(), 1);
    }
}
