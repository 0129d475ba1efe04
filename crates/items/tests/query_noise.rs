//! Any text as a query: refused or read, never a panic, never for long.

mod common;

use common::{List, NOW};
use otobus_items::limits;
use otobus_items::query::{PageRequest, prepare, prepare_condition};
use proptest::prelude::*;

fn run(text: &str) {
    let items = List::new(vec![r#"{"id":"a","n":1,"l":[1,"x",{"y":null}]}"#.to_owned()]);
    if let Ok(query) = prepare(text, &[]) {
        let _ = query.wants();
        let _ =
            query.run(&mut items.source(None), PageRequest { max_items: 3, ..PageRequest::default() }, NOW);
    }
    let _ = prepare_condition(text);
}

/// Words that queries are made of, in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "SELECT",
        "VALUE",
        "*",
        "FROM",
        "c",
        "c.l",
        "x",
        "IN",
        "JOIN",
        "WHERE",
        "ORDER",
        "BY",
        "GROUP",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "\"a\":",
        "1",
        "-",
        "'s'",
        "=",
        "<",
        "AND",
        "OR",
        "NOT",
        "LIKE",
        "BETWEEN",
        "?",
        ":",
        "??",
        "||",
        "COUNT(1)",
        "EXISTS(",
        "ARRAY(",
        ",",
        "TOP",
        "OFFSET",
        "LIMIT",
        "DISTINCT",
        "undefined",
        "@p",
        "UPPER(",
        "DESC",
        "AS",
        ".",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        run(&text);
        run(&format!("SELECT VALUE {text}"));
    }

    #[test]
    fn no_order_of_words_panics(text in words()) {
        run(&text);
        run(&format!("SELECT VALUE {text} FROM c"));
    }
}

#[test]
fn depth_and_size_are_bounded_at_their_limits() {
    let brackets = |levels: usize| format!("SELECT VALUE {}1{}", "(".repeat(levels), ")".repeat(levels));
    assert!(prepare(&brackets(limits::QUERY_DEPTH - 1), &[]).is_ok());
    for open in ["(", "[", "-", "NOT ", "UPPER(", "(SELECT VALUE ", "c.a[", "1+(", "{\"a\":", "1 ?? ("] {
        assert!(prepare(&format!("SELECT VALUE {}", open.repeat(20_000)), &[]).is_err(), "{open}");
    }
    for chain in ["1", "1 + 1", "'a' || 'a'", "c.a.a"] {
        let link = chain.get(1..).unwrap_or_default();
        run(&format!("SELECT VALUE {}{} FROM c", &chain[..1], link.repeat(20_000)));
    }
    let list = |entries: usize| format!("SELECT VALUE 1 IN ({})", vec!["1"; entries].join(","));
    assert!(prepare(&list(limits::QUERY_IN_LIST), &[]).is_ok());
    assert!(prepare(&list(limits::QUERY_IN_LIST + 1), &[]).is_err());
    let joins = |count: usize| format!("SELECT VALUE 1 FROM c {}", "JOIN x IN c.l ".repeat(count));
    assert!(prepare(&joins(limits::QUERY_JOINS), &[]).is_ok());
    assert!(prepare(&joins(limits::QUERY_JOINS + 1), &[]).is_err());
    assert!(prepare(&format!("SELECT 1 --{}", "x".repeat(limits::QUERY_BYTES)), &[]).is_err());
    run(&format!("SELECT VALUE {}true", "true AND ".repeat(20_000)));
}

#[test]
fn one_item_cannot_take_for_ever_or_all_memory() {
    let list = vec!["1"; 200].join(",");
    let items = List::new(vec![format!("{{\"l\":[{list}],\"s\":\"{}\"}}", "a".repeat(100_000))]);
    for text in [
        "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l JOIN e IN c.l WHERE false",
        "SELECT VALUE LENGTH(REPLACE(c.s, 'a', c.s)) FROM c",
    ] {
        let query = prepare(text, &[]).unwrap();
        let page = PageRequest { max_items: 3, ..PageRequest::default() };
        assert!(query.run(&mut items.source(None), page, NOW).is_err(), "{text}");
    }
}
