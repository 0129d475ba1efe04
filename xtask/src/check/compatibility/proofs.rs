//! The proofs beside a page: a rule's id on a line of its own, and below it, indented, the tests that prove it.

use super::page::is_rule_id;
use std::collections::BTreeMap;

/// The tests of each rule.
pub type Proofs<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Reads the file `name`. Says what is wrong with it, each with its line.
pub fn read<'a>(name: &str, text: &'a str) -> Result<Proofs<'a>, Vec<String>> {
    let mut proofs = Proofs::new();
    let mut problems = Vec::new();
    let mut rule = None;
    for (number, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", number + 1);
        match (line.strip_prefix("  "), rule) {
            _ if line.trim().is_empty() => {}
            (Some(test), Some(rule)) => proofs.entry(rule).or_default().push(test.trim()),
            (Some(_), None) => problems.push(format!("{at}: a test stands before the first rule")),
            (None, _) if !is_rule_id(line) => problems.push(format!("{at}: `{line}` is no rule's id")),
            (None, _) => {
                if proofs.insert(line, Vec::new()).is_some() {
                    problems.push(format!("{at}: {line} stands here twice"));
                }
                rule = Some(line);
            }
        }
    }
    if problems.is_empty() { Ok(proofs) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_belong_to_the_rule_above_them() {
        let proofs =
            read("p", "S-1\n  broker::a\n  tests/x.mjs::a key is refused\n\nS-2\n  broker::b\n").unwrap();
        assert_eq!(proofs["S-1"], ["broker::a", "tests/x.mjs::a key is refused"]);
        assert_eq!(proofs["S-2"], ["broker::b"]);
    }

    #[test]
    fn what_is_neither_a_rule_nor_a_test_of_one_is_told_with_its_line() {
        assert_eq!(read("p", "  broker::a\n").unwrap_err(), ["p:1: a test stands before the first rule"]);
        assert_eq!(read("p", "S-1\nbroker::a\n").unwrap_err(), ["p:2: `broker::a` is no rule's id"]);
        assert_eq!(read("p", "S-1\n  a\nS-1\n").unwrap_err(), ["p:3: S-1 stands here twice"]);
    }
}
