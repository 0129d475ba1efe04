//! Pages of queries: whatever their size, following continuations gives every row once, in the same order (P-52, P-53).

mod common;

use bytes::Bytes;
use common::{List, NOW};
use otobus_items::limits;
use otobus_items::query::{PageRequest, prepare};

/// The items and the queries without parameters and errors of the conformance table.
fn table() -> (List, Vec<&'static str>) {
    let text = include_str!("query/queries.txt");
    let items = text.lines().filter_map(|line| line.strip_prefix("# {")).map(|item| format!("{{{item}"));
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains(" ;; "));
    let queries =
        lines.filter_map(|line| line.rsplit_once(" => ")).filter(|(_, rows)| !rows.starts_with("error"));
    (List::new(items.collect()), queries.map(|(query, _)| query).collect())
}

#[test]
fn pages_of_any_size_give_the_same_rows() {
    let (items, queries) = table();
    assert!(queries.len() > 80);
    for text in queries {
        let query = prepare(text, &[]).unwrap();
        let whole = items.pages(&query, 1_000).unwrap();
        for size in 1..4 {
            assert_eq!(items.pages(&query, size).unwrap(), whole, "{text} in pages of {size}");
        }
    }
}

#[test]
fn a_page_goes_on_behind_an_item_that_is_gone() {
    // P-53.
    let (items, _) = table();
    for text in ["SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.id"] {
        let query = prepare(text, &[]).unwrap();
        let page = PageRequest { max_items: 2, binding: 7, ..PageRequest::default() };
        let first = query.run(&mut items.source(None), page, NOW).unwrap();
        let resume = query.resume(&first.continuation.unwrap(), 7).unwrap();
        let fewer = items.without(1);
        let page = PageRequest { max_items: 9, resume: Some(resume.clone()), binding: 7, is_ordered: false };
        let second = query.run(&mut fewer.source(resume.start()), page, NOW).unwrap();
        assert_eq!(second.values, [&b"\"c\""[..], b"\"d\"", b"\"e\""].map(Bytes::from_static), "{text}");
    }
}

#[test]
fn sort_keys_longer_than_a_token_still_page() {
    let long = |tail: char| format!("{}{tail}", "k".repeat(5_000));
    let items = ['c', 'a', 'b', 'a', 'd'].into_iter().enumerate();
    let items =
        List::new(items.map(|(id, tail)| format!("{{\"id\":{id},\"k\":\"{}\"}}", long(tail))).collect());
    let query = prepare("SELECT VALUE c.id FROM c ORDER BY c.k", &[]).unwrap();
    assert_eq!(items.pages(&query, 1).unwrap(), ["1", "3", "2", "0", "4"].map(Bytes::from));
    let page = PageRequest { max_items: 1, ..PageRequest::default() };
    let token = query.run(&mut items.source(None), page, NOW).unwrap().continuation.unwrap();
    assert!(token.len() < limits::CONTINUATION_BYTES, "{}", token.len());
}

#[test]
fn a_token_of_another_query_or_container_is_refused() {
    // P-52.
    let (items, _) = table();
    let query = prepare("SELECT * FROM c", &[]).unwrap();
    let page = PageRequest { max_items: 1, binding: 7, ..PageRequest::default() };
    let token = query.run(&mut items.source(None), page, NOW).unwrap().continuation.unwrap();
    assert!(query.resume(&token, 7).is_ok());
    assert!(query.resume(&token, 8).is_err());
    assert!(prepare("SELECT * FROM d", &[]).unwrap().resume(&token, 7).is_err());
    let one =
        |value: &'static str| prepare("SELECT * FROM c", &[("@p".to_owned(), Bytes::from(value))]).unwrap();
    assert_ne!(one("1").fingerprint(), one("2").fingerprint());
    for garbage in ["", "x", "AAAA", "%%%"] {
        assert!(query.resume(garbage, 7).is_err(), "{garbage}");
    }
}
