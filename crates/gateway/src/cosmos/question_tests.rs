use super::super::address::Address;
use super::*;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use items::{ChangeFeedMode, ChangeFeedStart, KeyPart, Listing, Precondition, Scope, Throughput};

fn asked(
    method: Method,
    path: &str,
    pairs: &[(&'static str, &str)],
    body: &[u8],
) -> Result<Question, Failure> {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    let headers: HeaderMap = pairs.iter().map(pair).collect();
    let headers = Headers::of(&headers);
    let intended = headers.text("x-ms-cosmos-intended-collection-rid");
    let resource = Resource::of(&Address::read(path).unwrap(), intended).unwrap();
    let verb = resource.verb(&method, headers)?;
    question(&resource, verb, headers, Bytes::copy_from_slice(body))
}

fn command(method: Method, path: &str, pairs: &[(&'static str, &str)], body: &[u8]) -> Command {
    match asked(method, path, pairs, body) {
        Ok(Question::Ask(command)) => command,
        other => panic!("{other:?}"),
    }
}

const ITEMS: &str = "/dbs/d%20b/colls/c/docs";
const ITEM: &str = "/dbs/d%20b/colls/c/docs/i%2F1";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"x\"]");

fn container() -> ContainerPath {
    ContainerPath::new("d b", "c")
}

#[test]
fn an_item_is_written_with_what_the_headers_say() {
    let pairs = [KEY, ("if-match", "\"e\""), ("x-ms-cosmos-intended-collection-rid", "rid")];
    let Command::CreateItem(write) = command(Method::POST, ITEMS, &pairs, b"{}") else { panic!() };
    assert_eq!(write.container, ContainerPath { intended_rid: Some("rid".into()), ..container() });
    assert_eq!(write.partition_key, Some(PartitionKey(vec![KeyPart::from("x")])));
    assert_eq!(write.condition, Precondition { if_match: Some("\"e\"".into()), if_none_match: None });
    let upsert = command(Method::POST, ITEMS, &[("x-ms-documentdb-is-upsert", "True")], b"{}");
    assert!(matches!(upsert, Command::UpsertItem(write) if write.partition_key.is_none()));
    let replace = command(Method::PUT, ITEM, &[KEY], b"{}");
    assert!(matches!(replace, Command::ReplaceItem { id, .. } if id == "i/1"));
}

// P-38
#[test]
fn a_client_of_before_partition_keys_gets_a_container_without_one() {
    let made = |version: &str, body: &[u8]| {
        let command = command(Method::POST, "/dbs/d/colls", &[("x-ms-version", version)], body);
        let Command::CreateContainer { body, .. } = command else { panic!() };
        String::from_utf8(body.to_vec()).unwrap()
    };
    let plain = r#"{"id":"c"}"#;
    assert!(
        made("2018-06-18", plain.as_bytes())
            .contains(r#""partitionKey":{"kind":"Hash","paths":["/_partitionKey"],"systemKey":true}"#)
    );
    assert_eq!(made("2018-12-31", plain.as_bytes()), plain);
    assert_eq!(made("2020-07-15", plain.as_bytes()), plain);
    let with_key = made("2018-06-18", br#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
    assert!(with_key.contains(r#"{"paths":["/pk"]}"#), "{with_key}");
    assert_eq!(made("2018-06-18", b"[]"), "[]", "what is wrong is for the items to refuse");
}

// P-33
#[test]
fn a_point_operation_needs_its_partition_key() {
    for method in [Method::GET, Method::DELETE, Method::PATCH] {
        assert_eq!(asked(method.clone(), ITEM, &[], b"").unwrap_err().status, 400, "{method}");
        assert!(asked(method, ITEM, &[KEY], b"").is_ok());
    }
    let delete = "/dbs/d/colls/c/operations/partitionkeydelete";
    assert_eq!(asked(Method::POST, delete, &[], b"").unwrap_err().status, 400);
    assert!(matches!(command(Method::POST, delete, &[KEY], b""), Command::DeletePartition { .. }));
}

// P-86
#[test]
fn a_binary_body_becomes_text_and_a_broken_one_is_refused() {
    let binary = [0x80, 0xE9, 0x2C, 0x81, b'a'];
    let Command::CreateItem(write) = command(Method::POST, ITEMS, &[], &binary) else { panic!() };
    assert_eq!(write.body, br#"{"id":"a"}"#[..]);
    assert_eq!(asked(Method::POST, ITEMS, &[], &[0x80, 0xFF]).unwrap_err().status, 400);
}

// 12.1
#[test]
fn a_query_is_read_with_its_parameters_as_they_are() {
    let body = br#"{"query":"SELECT * FROM c WHERE c.a=@a","parameters":[{"name":"@a","value":{"x":[1.0]}},{"name":"@b"}]}"#;
    let pairs =
        [("x-ms-documentdb-isquery", "true"), ("x-ms-max-item-count", "7"), ("x-ms-continuation", "t"), KEY];
    let Command::Query(query) = command(Method::POST, ITEMS, &pairs, body) else { panic!() };
    assert_eq!(query.text, "SELECT * FROM c WHERE c.a=@a");
    let expected: Vec<(String, Bytes)> = vec![
        ("@a".into(), Bytes::from_static(br#"{"x":[1.0]}"#)),
        ("@b".into(), Bytes::from_static(b"null")),
    ];
    assert_eq!(query.parameters, expected);
    assert_eq!(query.listing, Listing { max_items: Some(7), continuation: Some("t".into()) });
    assert_eq!(query.scope, Scope::Key(PartitionKey(vec![KeyPart::from("x")])));
    for wrong in ["", "SELECT 1", "{}", r#"{"query":1}"#, r#"{"query":"x","parameters":[{"value":1}]}"#] {
        let failure = asked(Method::POST, ITEMS, &pairs, wrong.as_bytes()).unwrap_err();
        assert_eq!(failure.status, 400, "{wrong}");
    }
    let null = command(Method::POST, "/offers", &pairs[..1], br#"{"query":"SELECT 1","parameters":null}"#);
    assert!(matches!(null, Command::Query(query) if query.of == QueryScope::Offers));
}

// P-57, P-60
#[test]
fn a_batch_is_atomic_when_it_says_so() {
    let request = ("x-ms-cosmos-is-batch-request", "True");
    let atomic = ("x-ms-cosmos-batch-atomic", "true");
    assert!(matches!(command(Method::POST, ITEMS, &[request, atomic, KEY], b"[]"), Command::Batch { .. }));
    assert_eq!(asked(Method::POST, ITEMS, &[request, atomic], b"[]").unwrap_err().status, 400);
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    let goes_on = ("x-ms-cosmos-batch-continue-on-error", "true");
    let bulk = command(Method::POST, ITEMS, &[request, range, goes_on], b"[]");
    assert!(matches!(bulk, Command::Bulk { continue_on_error: true, .. }));
    let gone = ("x-ms-documentdb-partitionkeyrangeid", "9");
    assert_eq!(asked(Method::POST, ITEMS, &[request, gone], b"[]").unwrap_err().sub_status, 1002);
}

// P-69
#[test]
fn a_feed_with_an_instance_manipulation_is_one_of_changes() {
    let feed = command(Method::GET, ITEMS, &[("a-im", "Incremental Feed"), ("if-none-match", "*")], b"");
    let expected = Command::ChangeFeed {
        container: container(),
        scope: Scope::All,
        mode: ChangeFeedMode::LatestVersion,
        start: ChangeFeedStart::Now,
        max_items: None,
    };
    assert_eq!(feed, expected);
    assert!(matches!(command(Method::GET, ITEMS, &[], b""), Command::ReadFeed { .. }));
}

// P-77
#[test]
fn throughput_comes_with_what_is_made() {
    let made = command(Method::POST, "/dbs", &[("x-ms-offer-throughput", "500")], b"{}");
    assert!(matches!(made, Command::CreateDatabase { throughput: Some(Throughput::Fixed(500)), .. }));
    let made = command(Method::POST, "/dbs/d/colls", &[], b"{}");
    assert!(matches!(made, Command::CreateContainer { throughput: None, .. }));
}

// Section 19
#[test]
fn scripts_are_kept_and_not_run() {
    let run = asked(Method::POST, "/dbs/d/colls/c/sprocs/s", &[], b"[]").unwrap_err();
    assert!(run.status == 400 && run.message.contains("not run"));
    let triggered = [("x-ms-documentdb-pre-trigger-include", "t"), KEY];
    assert_eq!(asked(Method::POST, ITEMS, &triggered, b"{}").unwrap_err().status, 400);
    assert!(matches!(command(Method::POST, "/dbs/d/colls/c/udfs", &[], b"{}"), Command::CreateScript { .. }));
    let conflicts = asked(Method::GET, "/dbs/d/colls/c/conflicts", &[], b"");
    assert!(matches!(conflicts, Ok(Question::Nothing { .. })));
    assert_eq!(asked(Method::GET, "/dbs/d/colls/c/conflicts/x", &[], b"").unwrap_err().status, 404);
    // CX-12.1: an empty feed, too, is asked for all partitions by who says so.
    let query = ("x-ms-documentdb-isquery", "True");
    let conflicts = |pairs: &[(&'static str, &'static str)]| {
        asked(Method::POST, "/dbs/d/colls/c/conflicts", pairs, br#"{"query":"SELECT 1"}"#)
    };
    assert_eq!(conflicts(&[query]).unwrap_err().status, 400);
    assert!(matches!(conflicts(&[query, KEY]), Ok(Question::Nothing { .. })));
}

// P-63
#[test]
fn a_plan_is_the_doors_own() {
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    assert_eq!(asked(Method::POST, ITEMS, &[plan], br#"{"query":"SELECT 1"}"#), Ok(Question::Plan));
    assert_eq!(asked(Method::POST, ITEMS, &[plan], b"{").unwrap_err().status, 400);
}
