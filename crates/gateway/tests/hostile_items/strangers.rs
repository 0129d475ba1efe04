//! Requests that are wrong before anybody is trusted: heads, lengths, chunks, hosts, signatures.

const ITEMS: &str = "/dbs/d/colls/c/docs";

fn head(first_line: &str, headers: &str) -> String {
    format!("{first_line}\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n")
}

fn get(headers: &str) -> String {
    head(&format!("GET {ITEMS}/1 HTTP/1.1"), headers)
}

fn post(headers: &str, body: &str) -> String {
    head(&format!("POST {ITEMS} HTTP/1.1"), headers) + body
}

pub fn requests() -> Vec<Vec<u8>> {
    [heads(), lengths(), signatures()].concat().into_iter().map(String::into_bytes).collect()
}

fn heads() -> Vec<String> {
    let mut heads = vec![
        head("GET  / HTTP/1.1", ""),
        head("GET / HTTP/9.9", ""),
        head("GET /", ""),
        head("GET /\0 HTTP/1.1", ""),
        head("GET /%00 HTTP/1.1", ""),
        head("GET /dbs/%ff%fe HTTP/1.1", ""),
        head("GET /dbs/%zz HTTP/1.1", ""),
        head("GET /../../etc/passwd HTTP/1.1", ""),
        head("GET /dbs/%2e%2e/%2e%2e HTTP/1.1", ""),
        head("GET //evil.example/dbs HTTP/1.1", ""),
        head("GET http://evil.example/dbs HTTP/1.1", ""),
        head("OPTIONS * HTTP/1.1", ""),
        head("CONNECT evil.example:443 HTTP/1.1", ""),
        head("TRACE / HTTP/1.1", ""),
        head("PRIX / HTTP/1.1", ""),
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        get("Bad Name: x\r\n"),
        get(": x\r\n"),
        get("X: a\r\n b\r\n"),
        get("X: a\0b\r\n"),
        get("X: a\rb\r\n"),
        "\r\n\r\n\r\n".repeat(1_000),
        "\0".repeat(10_000),
        "G".repeat(100_000),
    ];
    heads.push(get(&format!("X: {}\r\n", "a".repeat(100_000))));
    heads.push(get(&"X: x\r\n".repeat(10_000)));
    heads.push(head(&format!("GET /{} HTTP/1.1", "a".repeat(100_000)), ""));
    heads.push(head(&format!("GET /{} HTTP/1.1", "dbs/".repeat(5_000)), ""));
    heads.push(head(&format!("GET /dbs?{} HTTP/1.1", "a=b&".repeat(5_000)), ""));
    heads.push(head(&format!("GET /dbs/{} HTTP/1.1", "%41".repeat(9_000)), ""));
    // Many requests at once, none of which waits for its answer.
    heads.push(format!("GET {ITEMS}/1 HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(2_000));
    // Somebody who never comes to the end.
    heads.push(format!("GET {ITEMS}/1 HTTP/1.1\r\nHost: localhost\r\nX: "));
    heads
}

fn lengths() -> Vec<String> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    vec![
        post("Content-Length: -1\r\n", ""),
        post("Content-Length: 99999999999999999999\r\n", ""),
        post("Content-Length: 9223372036854775807\r\n", "{}"),
        post("Content-Length: 5\r\nContent-Length: 6\r\n", "{}"),
        post("Content-Length: 5, 6\r\n", "{}"),
        post("Content-Length: 0x10\r\n", "{}"),
        post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", ""),
        post("Transfer-Encoding: chunked, identity\r\n", ""),
        post("Transfer-Encoding : chunked\r\n", ""),
        post(chunked, "fffffffffffffffff\r\n"),
        post(chunked, "-1\r\n"),
        post(chunked, "zz\r\n"),
        post(chunked, &format!("1;{}\r\n", "x".repeat(100_000))),
        post(chunked, &"1\r\n{\r\n".repeat(50_000)),
        post(chunked, &format!("0\r\n{}\r\n", "T: t\r\n".repeat(10_000))),
        post("Content-Length: 2000000\r\n", &" ".repeat(2_000_000)),
        post("Content-Length: 1000\r\nExpect: 100-continue\r\n", ""),
        post("Content-Length: 1000\r\nContent-Encoding: gzip\r\n", "\u{1f}\u{8b}"),
    ]
}

fn signatures() -> Vec<String> {
    let dated = |authorization: &str| {
        get(&format!("x-ms-date: {}\r\nauthorization: {authorization}\r\n", super::DATE))
    };
    let mut requests: Vec<String> = [
        "",
        " ",
        "type",
        "type=master",
        "type=master&ver=1.0",
        "type=master&ver=1.0&sig=",
        "type=master&ver=1.0&sig=AAAA",
        "type=master&ver=1.0&sig=%",
        "type=master&ver=1.0&sig=%ff%ff",
        "type=master&ver=9.9&sig=AAAA",
        "type=resource&ver=1.0&sig=AAAA",
        "type=aad&ver=1.0&sig=eyJhbGciOiJub25lIn0.e30.",
        "type%3Dmaster%26ver%3D1.0%26sig%3D%00",
        "type=master&type=master&ver=1.0&sig=AAAA&sig=BBBB",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "SharedAccessSignature sr=a&sig=b&se=1&skn=c",
        "Basic dXNlcjpwYXNz",
    ]
    .into_iter()
    .map(dated)
    .collect();
    requests.push(dated(&"%".repeat(20_000)));
    requests.push(dated(&format!("type=master&ver=1.0&sig={}", "A".repeat(30_000))));
    requests.push(get("authorization: type=master&ver=1.0&sig=AAAA\r\n"));
    for date in ["", "now", "Thu, 99 Abc 9999 99:99:99 GMT", "9".repeat(10_000).as_str()] {
        requests.push(get(&format!("x-ms-date: {date}\r\nauthorization: type=master&ver=1.0&sig=AAAA\r\n")));
    }
    requests
}
