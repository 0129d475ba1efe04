use super::*;
use hyper::header::{HeaderName, HeaderValue};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn key(text: &str) -> Result<Option<PartitionKey>, Failure> {
    Headers::of(&headers(&[("x-ms-documentdb-partitionkey", text)])).partition_key()
}

// P-38, P-39, P-5
#[test]
fn a_partition_key_is_read_from_its_header() {
    let parts = |text: &str| key(text).unwrap().unwrap().0;
    assert_eq!(parts(r#"["x"]"#), [KeyPart::from("x")]);
    assert_eq!(parts(r#"[ "x" ]"#), [KeyPart::from("x")]);
    assert_eq!(parts(r#"["\u00fc\"\\"]"#), [KeyPart::from("ü\"\\")]);
    assert_eq!(parts(r#"["ü"]"#), [KeyPart::from("ü")]);
    assert_eq!(parts("[1.5]"), [KeyPart::Number(1.5)]);
    assert_eq!(parts("[true]"), [KeyPart::Bool(true)]);
    assert_eq!(parts("[null]"), [KeyPart::Null]);
    assert_eq!(parts("[{}]"), [KeyPart::Undefined]);
    assert_eq!(parts("[]"), []);
    assert_eq!(parts(r#"["x","y",3]"#), [KeyPart::from("x"), KeyPart::from("y"), KeyPart::Number(3.0)]);
    // Two texts do not pass for one.
    assert_eq!(parts(r#"["x","y"]"#).len(), 2);
    assert_eq!(Headers::of(&headers(&[])).partition_key(), Ok(None));
    for wrong in ["x", "", "[", r#"{"a":1}"#, "[[1]]", r#"[{"a":1}]"#, "[1e999]", &"[".repeat(9_000)] {
        assert_eq!(key(wrong).unwrap_err().status, 400, "{wrong}");
    }
}

// P-4, P-31, P-32
#[test]
fn words_count_in_any_case() {
    assert!(Headers::of(&headers(&[("x-ms-documentdb-isquery", "True")])).is_query());
    assert!(Headers::of(&headers(&[("x-ms-documentdb-query", "TRUE")])).is_query());
    assert!(Headers::of(&headers(&[("content-type", "application/query+json; charset=utf-8")])).is_query());
    assert!(!Headers::of(&headers(&[("content-type", "application/json")])).is_query());
    assert!(Headers::of(&headers(&[("prefer", "respond-async, return=minimal")])).wants_no_content());
    assert!(
        Headers::of(&headers(&[("x-ms-cosmos-populate-content-response-on-write", "False")]))
            .wants_no_content()
    );
    assert!(!Headers::of(&headers(&[("prefer", "return=representation")])).wants_no_content());
}

// P-41, P-46, P-71
#[test]
fn a_scope_is_a_key_a_range_or_everything() {
    let scope = |pairs: &[(&'static str, &str)]| Headers::of(&headers(pairs)).scope();
    assert_eq!(scope(&[]), Ok(Scope::All));
    assert_eq!(scope(&[("x-ms-documentdb-partitionkeyrangeid", "0")]), Ok(Scope::All));
    assert_eq!(scope(&[("x-ms-documentdb-partitionkeyrangeid", "Jic9ANWdO-E=,0")]), Ok(Scope::All));
    assert_eq!(scope(&[("x-ms-documentdb-partitionkeyrangeid", "1")]).unwrap_err().sub_status, 1002);
    assert_eq!(scope(&[("x-ms-start-epk", ""), ("x-ms-end-epk", "FF")]), Ok(Scope::All));
    let range = scope(&[("x-ms-start-epk", "05c1"), ("x-ms-end-epk", "05c1ff")]);
    assert_eq!(range, Ok(Scope::Range(KeyRange { start: "05C1".into(), end: "05C1FF".into() })));
    assert_eq!(scope(&[("x-ms-start-epk", "no")]).unwrap_err().status, 400);
    let both = scope(&[("x-ms-documentdb-partitionkey", "[1]"), ("x-ms-start-epk", "05")]);
    assert_eq!(both, Ok(Scope::Key(PartitionKey(vec![KeyPart::Number(1.0)]))));
}

// CX-12.1
#[test]
fn a_query_names_a_partition_or_says_that_it_may_ask_all() {
    let scope = |pairs: &[(&'static str, &str)]| Headers::of(&headers(pairs)).query_scope().unwrap();
    let leave = "x-ms-documentdb-query-enablecrosspartition";
    assert_eq!(scope(&[]), Scope::WithoutLeave);
    assert_eq!(scope(&[(leave, "False")]), Scope::WithoutLeave);
    assert_eq!(scope(&[("x-ms-documentdb-partitionkey", "[]")]), Scope::WithoutLeave);
    assert_eq!(scope(&[(leave, "True")]), Scope::All);
    assert_eq!(scope(&[("x-ms-documentdb-partitionkeyrangeid", "0")]), Scope::All);
    assert_eq!(scope(&[("x-ms-start-epk", ""), ("x-ms-end-epk", "FF")]), Scope::All);
    assert!(matches!(scope(&[("x-ms-documentdb-partitionkey", "[\"x\"]")]), Scope::Key(_)));
}

// P-82, P-84
#[test]
fn a_session_token_tells_the_newest_transaction() {
    let session = |text| Headers::of(&headers(&[("x-ms-session-token", text)])).session();
    assert_eq!(session("0:-1#57"), Some(57));
    assert_eq!(session("0:0#57#1=99"), Some(57));
    assert_eq!(session("0:-1#5,1:-1#7"), Some(7));
    for odd in ["57", "0:", "0:-1#", "0:-1#x", ":#", "0:-1#99999999999999999999"] {
        assert_eq!(session(odd), None, "{odd}");
    }
}

// P-51, P-77
#[test]
fn numbers_are_read_or_refused() {
    let listing = |text| Headers::of(&headers(&[("x-ms-max-item-count", text)])).max_items();
    assert_eq!(listing("-1"), Ok(Some(-1)));
    assert_eq!(listing("10"), Ok(Some(10)));
    for wrong in ["0", "-2", "ten", "1.5"] {
        assert_eq!(listing(wrong).unwrap_err().status, 400, "{wrong}");
    }
    let throughput = |name, text| Headers::of(&headers(&[(name, text)])).throughput();
    assert_eq!(throughput("x-ms-offer-throughput", "400"), Ok(Some(Throughput::Fixed(400))));
    let autoscale = r#"{"maxThroughput":4000,"autoUpgradePolicy":null}"#;
    let name = "x-ms-cosmos-offer-autopilot-settings";
    let expected = Throughput::Autoscale { most: 4_000, increment_percent: 0 };
    assert_eq!(throughput(name, autoscale), Ok(Some(expected)));
    assert!(throughput("x-ms-offer-throughput", "-1").is_err());
    assert!(throughput(name, "{}").is_err() && throughput(name, "[").is_err());
}

// P-69, P-73
#[test]
fn a_change_feed_begins_where_the_headers_say() {
    let feed = |pairs: &[(&'static str, &str)]| Headers::of(&headers(pairs)).change_feed();
    let latest = ("a-im", "Incremental feed");
    assert_eq!(feed(&[]), Ok(None));
    let expected = |start| Ok(Some((ChangeFeedMode::LatestVersion, start)));
    assert_eq!(feed(&[latest]), expected(ChangeFeedStart::Beginning));
    assert_eq!(feed(&[latest, ("if-none-match", "*")]), expected(ChangeFeedStart::Now));
    let after = ChangeFeedStart::After("\"12\"".into());
    assert_eq!(feed(&[latest, ("if-none-match", "\"12\"")]), expected(after));
    let since = ("if-modified-since", "Thu, 27 Apr 2017 00:51:12 GMT");
    assert_eq!(feed(&[latest, since]), expected(ChangeFeedStart::Time(1_493_254_272)));
    assert_eq!(feed(&[latest, ("if-modified-since", "now")]).unwrap_err().status, 400);
    let all = feed(&[("a-im", "Full-Fidelity Feed"), ("if-none-match", "*")]);
    assert_eq!(all, Ok(Some((ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::Now))));
    assert_eq!(feed(&[("a-im", "gzip")]).unwrap_err().status, 400);
}

// P-85
#[test]
fn a_stronger_consistency_than_the_accounts_is_refused() {
    let check = |level| Headers::of(&headers(&[("x-ms-consistency-level", level)])).check_consistency();
    for level in ["Session", "Eventual", "ConsistentPrefix"] {
        assert!(check(level).is_ok());
    }
    assert!(check("Strong").is_err() && check("BoundedStaleness").is_err());
}
