//! Requests of somebody who has the key and means harm: bodies, partition keys, continuations, queries, batches.

use super::{ITEM, signed};

const CONTAINER: &str = "dbs/d/colls/c";
const KEY: &str = "x-ms-documentdb-partitionkey: [\"k\"]\r\n";
const QUERY: &str = "x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\nx-ms-documentdb-query-enablecrosspartition: True\r\n";

fn create(headers: &str, body: &[u8]) -> Vec<u8> {
    signed("POST", "docs", CONTAINER, &format!("/{CONTAINER}/docs"), headers, body)
}

fn query(headers: &str, text: &str) -> Vec<u8> {
    let body = serde_json::json!({ "query": text, "parameters": [] }).to_string();
    create(&format!("{QUERY}{headers}"), body.as_bytes())
}

pub fn requests() -> Vec<Vec<u8>> {
    [bodies(), keys(), feeds(), queries(), patches(), batches(), definitions(), chunks()].concat()
}

fn bodies() -> Vec<Vec<u8>> {
    let item = |member: &str| create(KEY, format!(r#"{{"id":"2","k":"k",{member}}}"#).as_bytes());
    let mut requests: Vec<Vec<u8>> = [
        &b""[..],
        b" ",
        b"{",
        b"[]",
        b"null",
        b"\"id\"",
        b"{\"id\":\"2\",\"k\":\"k\"} x",
        b"{\"id\":\"2\",\"k\":\"k\",}",
        b"{\"id\":\"2\" \"k\":\"k\"}",
        b"{\"id\":2,\"k\":\"k\"}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":\"\xff\"}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":\"\x01\"}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":\"\\q\"}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":\"\\u12\"}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":01}",
        b"{\"id\":\"2\",\"k\":\"k\",\"x\":NaN}",
        b"{\"id\":\"2\",\"k\":{}}",
        b"{\"id\":\"2/3\",\"k\":\"k\"}",
        b"\x80",
        b"\x80\xff\xff\xff\xff",
        b"\x80\xee\xff\xff\xff\x7f",
    ]
    .into_iter()
    .map(|body| create(KEY, body))
    .collect();
    requests.push(item(r#""x":1e400"#));
    requests.push(item(&format!("\"x\":{}", "9".repeat(400_000))));
    requests.push(item(&format!("\"x\":1e{}", "9".repeat(400_000))));
    requests.push(item(&format!("\"x\":{}{}", "[".repeat(500_000), "]".repeat(500_000))));
    requests.push(item(&format!("\"x\":{}1{}", "{\"a\":".repeat(129), "}".repeat(129))));
    requests.push(item(&format!("\"x\":{}", "[".repeat(1_000_000))));
    requests.push(item("\"ttl\":null"));
    requests.push(item("\"ttl\":99999999999999999999"));
    requests.push(create(KEY, &[&[0x80][..], &[0xe2; 200_000]].concat()));
    requests.push(create(KEY, format!(r#"{{"id":"{}","k":"k"}}"#, "i".repeat(1_000_000)).as_bytes()));
    requests.push(create(KEY, format!(r#"{{"id":"2","k":"{}"}}"#, "k".repeat(1_000_000)).as_bytes()));
    requests
}

fn keys() -> Vec<Vec<u8>> {
    let values = [
        "",
        "[",
        "null",
        "{}",
        "[[]]",
        "[{\"a\":1}]",
        "[1e999]",
        "[\"k\",\"k\"]",
        "[\"\\ud800\"",
        "k",
        "[\"k\"] x",
        "[,]",
    ];
    let mut headers: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
    headers.push(format!("[{}]", "[".repeat(10_000)));
    headers.push(format!("[{}]", vec!["1"; 5_000].join(",")));
    headers.push(format!("[\"{}\"]", "k".repeat(20_000)));
    let read = |value: &String| {
        let headers = format!("x-ms-documentdb-partitionkey: {value}\r\n");
        signed("GET", "docs", ITEM, &format!("/{ITEM}"), &headers, b"")
    };
    headers.iter().map(read).collect()
}

fn feeds() -> Vec<Vec<u8>> {
    let feed = |headers: &str| signed("GET", "docs", CONTAINER, &format!("/{CONTAINER}/docs"), headers, b"");
    let mut requests: Vec<Vec<u8>> = [
        "x-ms-continuation: x\r\n",
        "x-ms-continuation: AAAA\r\n",
        "x-ms-continuation: {\"token\":null}\r\n",
        "x-ms-continuation: ////////////////\r\n",
        "x-ms-max-item-count: 0\r\n",
        "x-ms-max-item-count: -2\r\n",
        "x-ms-max-item-count: 99999999999999999999\r\n",
        "x-ms-documentdb-partitionkeyrangeid: 7\r\n",
        "x-ms-start-epk: zz\r\n",
        "a-im: Everything\r\n",
        "a-im: Incremental Feed\r\nif-none-match: \"x\"\r\n",
        "a-im: Incremental Feed\r\nif-modified-since: yesterday\r\n",
    ]
    .into_iter()
    .map(feed)
    .collect();
    requests.push(feed(&format!("x-ms-continuation: {}\r\n", "A".repeat(30_000))));
    requests.push(feed(&format!("x-ms-start-epk: {}\r\n", "A".repeat(30_000))));
    requests
}

fn queries() -> Vec<Vec<u8>> {
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("SELECT VALUE {}{inner}{} FROM c", open.repeat(times), close.repeat(times))
    };
    let texts = [
        String::new(),
        "SELECT".to_owned(),
        "SELECT * FROM c WHERE".to_owned(),
        "DROP TABLE c".to_owned(),
        "SELECT * FROM c; SELECT * FROM c".to_owned(),
        "SELECT @missing FROM c".to_owned(),
        "SELECT * FROM c WHERE c.x = 'unended".to_owned(),
        "SELECT * FROM c /* unended".to_owned(),
        "SELECT VALUE NOSUCHFUNCTION(c) FROM c".to_owned(),
        "SELECT TOP 99999999999999999999 * FROM c".to_owned(),
        "SELECT * FROM c OFFSET -1 LIMIT 1".to_owned(),
        nested("(", "1", ")", 100_000),
        nested("[", "1", "]", 100_000),
        nested("NOT ", "true", "", 100_000),
        nested("-", "1", "", 100_000),
        nested("ABS(", "1", ")", 50_000),
        nested("(SELECT VALUE ", "1", ")", 20_000),
        format!("SELECT VALUE {} FROM c", "1+".repeat(200_000)),
        format!("SELECT * FROM c WHERE c{}", ".a".repeat(300_000)),
        format!("SELECT * FROM c {}", "JOIN x IN c.x ".repeat(20_000)),
        format!("SELECT * FROM c WHERE c.x IN ({})", vec!["1"; 300_000].join(",")),
        format!("SELECT * FROM c WHERE c.x = '{}'", "x".repeat(600_000)),
    ];
    let mut requests: Vec<Vec<u8>> = texts.iter().map(|text| query("", text)).collect();
    for continuation in ["x", "AAAA", "AQAAAAAAAAAA", "////", "%00", "eyJ0b2tlbiI6MX0="] {
        let headers = format!("x-ms-continuation: {continuation}\r\n");
        requests.push(query(&headers, "SELECT * FROM c ORDER BY c.n"));
    }
    for body in [
        &b""[..],
        b"{}",
        b"[]",
        b"{\"query\":1}",
        b"{\"query\":\"SELECT 1\",\"parameters\":[{}]}",
        b"{\"query\"",
    ] {
        requests.push(create(QUERY, body));
    }
    requests
}

fn patches() -> Vec<Vec<u8>> {
    let patch = |body: &str| signed("PATCH", "docs", ITEM, &format!("/{ITEM}"), KEY, body.as_bytes());
    let operation = |path: &str| format!(r#"{{"operations":[{{"op":"set","path":"{path}","value":1}}]}}"#);
    vec![
        patch(""),
        patch("{}"),
        patch(r#"{"operations":{}}"#),
        patch(r#"{"operations":[{"op":"nothing","path":"/a"}]}"#),
        patch(r#"{"operations":[{"op":"incr","path":"/id","value":1}]}"#),
        patch(r#"{"operations":[{"op":"move","path":"/a","from":"/a/b"}]}"#),
        patch(r#"{"condition":"from c where (((","operations":[{"op":"set","path":"/a","value":1}]}"#),
        patch(&operation("no/slash")),
        patch(&operation("/~7")),
        patch(&operation("/_ts")),
        patch(&operation(&"/a".repeat(100_000))),
        patch(&operation("/arr/99999999999999999999")),
    ]
}

fn batches() -> Vec<Vec<u8>> {
    let batch = |body: &str| {
        let headers =
            format!("{KEY}x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n");
        create(&headers, body.as_bytes())
    };
    let many = vec![r#"{"operationType":"Read","id":"1"}"#; 30_000].join(",");
    vec![
        batch(""),
        batch("{}"),
        batch("[]"),
        batch("[1,2,3]"),
        batch(&"[".repeat(1_000_000)),
        batch(&format!("[{many}]")),
        create("x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n", b"[]"),
    ]
}

fn definitions() -> Vec<Vec<u8>> {
    let container = |body: &str| signed("POST", "colls", "dbs/d", "/dbs/d/colls", "", body.as_bytes());
    let paths = |path: &str| format!(r#"{{"id":"x","partitionKey":{{"paths":["{path}"]}}}}"#);
    let unique: Vec<String> = (0..50_000).map(|nth| format!(r#"{{"paths":["/u{nth}"]}}"#)).collect();
    vec![
        container("{}"),
        container(r#"{"id":"x"}"#),
        container(r#"{"id":"x","partitionKey":[]}"#),
        container(&paths("")),
        container(&paths("no")),
        container(&paths(&"/a".repeat(50_000))),
        container(&format!(
            r#"{{"id":"x","partitionKey":{{"paths":["/a"]}},"uniqueKeyPolicy":{{"uniqueKeys":[{}]}}}}"#,
            unique.join(",")
        )),
        container(&format!(r#"{{"id":"{}","partitionKey":{{"paths":["/a"]}}}}"#, "n".repeat(1_000))),
        signed("POST", "dbs", "", "/dbs", "x-ms-offer-throughput: -5\r\n", br#"{"id":"y"}"#),
        signed("POST", "dbs", "", "/dbs", "x-ms-cosmos-offer-autopilot-settings: [[[\r\n", br#"{"id":"y"}"#),
    ]
}

/// Bodies that come in chunks and do not end well, and one that is longer than may be.
fn chunks() -> Vec<Vec<u8>> {
    let chunked = |body: &[u8]| create(&format!("{KEY}Transfer-Encoding: chunked\r\n"), body);
    vec![
        chunked(b"zz\r\n"),
        chunked(b"5\r\n{\"id\"\r\n"),
        chunked(&b"1\r\n \r\n".repeat(300_000)),
        chunked(&[&b"400000\r\n"[..], &vec![b' '; 0x40_0000], b"\r\n0\r\n\r\n"].concat()),
        create(KEY, &vec![b' '; 3 * 1_024 * 1_024]),
        create(KEY, &vec![b' '; 12 * 1_024 * 1_024]),
    ]
}
