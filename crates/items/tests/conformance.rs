//! The conformance table of the query language: `tests/query/*.txt`, one line each.
//!
//! P-66, CX-13.1 to CX-13.9.

mod common;

use common::{List, NOW};
use otobus_items::Refusal;
use otobus_items::json::{self, Value};
use otobus_items::query::{PageRequest, prepare};

/// What a line asks and expects.
struct Line<'a> {
    number: usize,
    query: String,
    parameters: Vec<(String, bytes::Bytes)>,
    expected: &'a str,
}

/// Items of the heading, and the lines.
fn table(text: &str, of_expression: bool) -> (List, Vec<Line<'_>>) {
    let items = text.lines().filter_map(|line| line.strip_prefix("# {")).map(|item| format!("{{{item}"));
    let items = List::new(items.collect());
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|(number, line)| {
        let (asked, expected) =
            line.rsplit_once(" => ").unwrap_or_else(|| panic!("line {}: {line}", number + 1));
        let (query, parameters) = asked.split_once(" ;; ").unwrap_or((asked, "{}"));
        let query = if of_expression { format!("SELECT VALUE {query} \nFROM c") } else { query.to_owned() };
        let parameters = json::members(parameters.as_bytes()).expect("parameters are an object");
        let parameters = parameters
            .into_iter()
            .map(|(name, value)| (name.into_owned(), bytes::Bytes::copy_from_slice(value)));
        let expected = expected.strip_suffix(" (unsure)").unwrap_or(expected);
        Line { number: number + 1, query, parameters: parameters.collect(), expected }
    });
    (items, lines.collect())
}

fn answer(items: &List, line: &Line<'_>) -> Result<Vec<Value>, Refusal> {
    let query = prepare(&line.query, &line.parameters)?;
    let page = PageRequest { max_items: 1_000, ..PageRequest::default() };
    let rows = query.run(&mut items.source(None), page, NOW)?;
    assert_eq!(rows.continuation, None, "{}", line.query);
    Ok(rows.values.iter().map(|row| json::parse(row).expect("rows are JSON")).collect())
}

/// Equal, numbers up to the last digits of a double.
fn is_close(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.as_f64(), right.as_f64());
            left == right || (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_close(left, right))
        }
        _ => json::equal(left, right),
    }
}

/// Why the line fails, if it does.
fn fault(items: &List, line: &Line<'_>, of_expression: bool) -> Option<String> {
    let answer = answer(items, line);
    let expected = match line.expected.strip_prefix("error ") {
        Some(code) => {
            let is_refused = matches!(&answer, Err(Refusal::Query { errors }) if errors.contains(code));
            return (!is_refused).then(|| format!("{answer:?}"));
        }
        None if line.expected == "undefined" => Value::Array(Vec::new()),
        None => {
            let value =
                json::parse(line.expected.as_bytes()).unwrap_or_else(|_| panic!("line {}", line.number));
            if of_expression { Value::Array(vec![value]) } else { value }
        }
    };
    match answer {
        Ok(rows) if is_close(&Value::Array(rows.clone()), &expected) => None,
        Ok(rows) => Some(String::from_utf8_lossy(&Value::Array(rows).to_text()).into_owned()),
        Err(refusal) => Some(refusal.to_string()),
    }
}

fn check(text: &str, of_expression: bool) -> usize {
    let (items, lines) = table(text, of_expression);
    let faults: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let fault = fault(&items, line, of_expression)?;
            Some(format!("line {}: {} => {} but is {fault}", line.number, line.query, line.expected))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    lines.len()
}

#[test]
fn expressions_have_the_documented_values() {
    assert!(check(include_str!("query/expressions.txt"), true) >= 400);
}

#[test]
fn queries_have_the_documented_rows() {
    assert!(check(include_str!("query/queries.txt"), false) >= 100);
}
