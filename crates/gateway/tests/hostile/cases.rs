//! A hundred requests that mean harm, for the test that looks at the answers and the one that looks at the memory.

const SERVICE_BUS: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

fn head(first_line: &str, headers: &str) -> String {
    format!("{first_line}\r\nHost: h\r\n{headers}Connection: close\r\n\r\n")
}

/// Bodies that are no description, in an honest request of somebody who may manage.
pub fn bodies() -> Vec<String> {
    const ATOM_ENTRY: &str = "<entry xmlns=\"http://www.w3.org/2005/Atom\">";
    let queue = |inner: &str| {
        format!(
            "{ATOM_ENTRY}<content type=\"application/xml\"><QueueDescription xmlns=\"{}\">{inner}</QueueDescription></content></entry>",
            SERVICE_BUS
        )
    };
    let mut bodies: Vec<String> = [
        "",
        " ",
        "<",
        "<entry",
        "<entry>",
        "</entry>",
        "<entry/>",
        "<entry/><entry/>",
        "entry",
        "\u{0}",
        "<\u{0}/>",
        "<entry>&#0;</entry>",
        "<entry>&#xFFFFFFFFFF;</entry>",
        "<entry>&#xD800;</entry>",
        "<entry>&lol;</entry>",
        "<entry>&lol</entry>",
        "<entry a=b/>",
        "<entry a='1' a='2'/>",
        "<entry xmlns:a='urn:a' xmlns:b='urn:a' a:x='1' b:x='2'><b/>",
        "<a:entry/>",
        "<entry xmlns:xml='urn:x'/>",
        "<!DOCTYPE entry><entry/>",
        "<!DOCTYPE entry SYSTEM 'file:///etc/passwd'><entry/>",
        "<!DOCTYPE entry SYSTEM 'http://127.0.0.1/'><entry/>",
        "<!DOCTYPE lolz [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;'>]><entry>&b;</entry>",
        "<!DOCTYPE r [<!ENTITY % x SYSTEM 'http://127.0.0.1/x'>%x;]><entry/>",
        "<?xml version='1.0' encoding='UTF-16'?><entry/>",
        "<?xml version='1.1'?><entry>&#1;</entry>",
        "<![CDATA[<entry/>]]>",
        "<entry><![CDATA[</entry>",
        "<entry><!-- </entry>",
        "<entry><!-- -- --></entry",
        "<entry><?pi</entry>",
        "{\"UserConfig\":{}}",
        "PK\u{3}\u{4}",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    bodies.push("<a>".repeat(100_000));
    bodies.push(format!("{}{}", "<a>".repeat(33), "</a>".repeat(33)));
    bodies.push(format!("<entry>{}</entry>", "<a/>".repeat(200_000)));
    bodies.push(format!("<entry {}/>", (0..50_000).map(|n| format!("a{n}='' ")).collect::<String>()));
    bodies.push(format!("<{}/>", "a".repeat(900_000)));
    bodies.push(format!("<entry xmlns='{}'/>", "u".repeat(900_000)));
    for inner in [
        "<LockDuration>P99999999999999999999D</LockDuration>",
        "<LockDuration>PT-5S</LockDuration>",
        "<LockDuration>1e9</LockDuration>",
        "<LockDuration>PT0S</LockDuration>",
        "<MaxDeliveryCount>4294967296</MaxDeliveryCount>",
        "<MaxDeliveryCount>-1</MaxDeliveryCount>",
        "<MaxDeliveryCount>0x10</MaxDeliveryCount>",
        "<MaxSizeInMegabytes>18446744073709551615</MaxSizeInMegabytes>",
        "<MaxSizeInMegabytes>0</MaxSizeInMegabytes>",
        "<MaxMessageSizeInKilobytes>18446744073709551615</MaxMessageSizeInKilobytes>",
        "<RequiresSession>maybe</RequiresSession>",
        "<Status>Deleting</Status>",
        "<ForwardTo>http://169.254.169.254/latest</ForwardTo>",
        "<ForwardTo>file:///etc/passwd</ForwardTo>",
        "<ForwardTo>q</ForwardTo>",
        "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>",
        "<AuthorizationRules><AuthorizationRule><KeyName>a b</KeyName><Rights><AccessRights>Listen</AccessRights></Rights></AuthorizationRule></AuthorizationRules>",
        "<AuthorizationRules><AuthorizationRule><KeyName>a</KeyName><Rights><AccessRights>Root</AccessRights></Rights></AuthorizationRule></AuthorizationRules>",
    ] {
        bodies.push(queue(inner));
    }
    bodies.push(queue(&format!("<UserMetadata>{}</UserMetadata>", "x".repeat(500_000))));
    bodies
}

/// Requests that are wrong before their body matters.
pub fn requests() -> Vec<Vec<u8>> {
    let mut requests: Vec<String> = vec![
        head("GET  /q HTTP/1.1", ""),
        head("GET /q HTTP/9.9", ""),
        head("GET /q", ""),
        head("GET /q\0 HTTP/1.1", ""),
        head("GET /%00 HTTP/1.1", ""),
        head("GET /%ff%fe HTTP/1.1", ""),
        head("GET /../../etc/passwd HTTP/1.1", ""),
        head("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", ""),
        head("GET //evil.example/q HTTP/1.1", ""),
        head("GET http://evil.example/q HTTP/1.1", ""),
        head("GET /q?$skip=-1 HTTP/1.1", ""),
        head("GET /$Resources/queues?$top=99999999999999999999 HTTP/1.1", ""),
        head("GET /q?api-version=%00 HTTP/1.1", ""),
        head("OPTIONS * HTTP/1.1", ""),
        head("PATCH /q HTTP/1.1", ""),
        head("PUT /q HTTP/1.1", "Content-Length: -1\r\n"),
        head("PUT /q HTTP/1.1", "Content-Length: 99999999999999999999\r\n"),
        head("PUT /q HTTP/1.1", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        head("PUT /q HTTP/1.1", "Content-Length: 5, 6\r\n"),
        head("PUT /q HTTP/1.1", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n")
            + "0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        head("PUT /q HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        head("PUT /q HTTP/1.1", "Transfer-Encoding: chunked, identity\r\n"),
        head("PUT /q HTTP/1.1", "Transfer-Encoding : chunked\r\n"),
        head("PUT /q HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "fffffffffffffffff\r\n",
        head("PUT /q HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "-1\r\n",
        head("GET /q HTTP/1.1", "Bad Name: x\r\n"),
        head("GET /q HTTP/1.1", ": x\r\n"),
        head("GET /q HTTP/1.1", "X: a\r\n b\r\n"),
        head("GET /q HTTP/1.1", "X: a\0b\r\n"),
        head("GET /q HTTP/1.1", "Authorization: \r\n"),
        head("GET /q HTTP/1.1", "Authorization: SharedAccessSignature\r\n"),
        head("GET /q HTTP/1.1", "Authorization: SharedAccessSignature sr=&sig=&se=&skn=\r\n"),
        head("GET /q HTTP/1.1", "Authorization: SharedAccessSignature sr=a&sr=b&sig=c&se=1&skn=d\r\n"),
        head("GET /q HTTP/1.1", "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.\r\n"),
        head("GET /$servicebus/websocket HTTP/1.1", "Upgrade: websocket\r\n"),
    ];
    requests.push(head("GET /q HTTP/1.1", &format!("Authorization: {}\r\n", "a".repeat(30_000))));
    requests.push(head("GET /q HTTP/1.1", &format!("X: {}\r\n", "a".repeat(100_000))));
    requests.push(head("GET /q HTTP/1.1", &"X: x\r\n".repeat(10_000)));
    requests.push(head(&format!("GET /{} HTTP/1.1", "a".repeat(100_000)), ""));
    requests.push(head(&format!("GET /{} HTTP/1.1", "a/".repeat(5_000)), ""));
    requests.push(head(&format!("GET /q?{} HTTP/1.1", "a=b&".repeat(5_000)), ""));
    requests.into_iter().map(String::into_bytes).collect()
}
