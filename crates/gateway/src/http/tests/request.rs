//! Requests as HTTP: hosts, lengths, heads and bodies at their limits.

use super::*;

#[tokio::test]
async fn a_body_at_its_limit_is_read_and_one_past_it_is_not() {
    let server = TestServer::default();
    let padded = |length: usize| format!("{JAVASCRIPT_QUEUE}{}", " ".repeat(length - JAVASCRIPT_QUEUE.len()));
    assert_eq!(server.create("/q", &padded(HTTP_BODY_BYTES)).await.0, 201);
    assert_eq!(server.create("/r", &padded(HTTP_BODY_BYTES + 1)).await.0, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_announced_too_long_is_not_waited_for() {
    let server = TestServer::default();
    let token = sas::sign("https%3a%2f%2fhost", "manager", "key", UnixSeconds::NEVER);
    for (length, status) in [(HTTP_BODY_BYTES + 1, "413"), (HTTP_BODY_BYTES, "408")] {
        let request = format!(
            "PUT /q HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let answer = server.exchange(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    }
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let server = TestServer::default();
    for (head, status) in [
        ("GET /health HTTP/1.1\r\n", 400),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
        ("GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n", 400),
        ("GET /health HTTP/1.0\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: a\r\n", 200),
    ] {
        let answer = server.exchange(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.split(' ').nth(1), Some(&*status.to_string()), "{head}: {answer}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = TestServer::default();
    let long = format!("X: {}\r\n", "x".repeat(2 * HTTP_HEAD_BYTES));
    let (status, _) = server.request(As::Manager, "GET", "/q", &long, "").await;
    assert_eq!(status, 431);
    let many = "X: x\r\n".repeat(HTTP_HEADERS);
    assert_eq!(server.request(As::Manager, "GET", "/q", &many, "").await.0, 431);
}

#[tokio::test]
async fn two_lengths_are_not_believed() {
    let server = TestServer::default();
    let smuggled = "Content-Length: 5\r\n";
    let (status, _) = server.request(As::Manager, "PUT", "/q", smuggled, JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 400);
}

// An answer repeats the host that the client named only if it is one.
#[tokio::test]
async fn a_host_that_is_none_is_not_repeated() {
    let server = TestServer::default();
    let request = b"GET /q HTTP/1.1\r\nHost: <script>\r\nConnection: close\r\n\r\n";
    let answer = server.exchange(request).await;
    assert!(answer.contains("SystemTracker:localhost:q") && !answer.contains("script"), "{answer}");
}

// HX-1.9.3
#[tokio::test]
async fn what_can_only_be_read_is_neither_written_nor_deleted() {
    let server = TestServer::default();
    server.create("/t", TOPIC).await;
    let subscription = TOPIC.replace("TopicDescription", "SubscriptionDescription");
    assert_eq!(server.create("/t/subscriptions/s", &subscription).await.0, 201);
    for path in [
        "/$Resources/queues",
        "/$Resources/topics",
        "/$namespaceinfo",
        "/t/subscriptions",
        "/t/subscriptions/s/rules",
    ] {
        for method in ["PUT", "POST", "DELETE"] {
            let (status, body) = server.request(As::Manager, method, path, "", "").await;
            assert_eq!(status, 405, "{method} {path}: {body}");
        }
        assert_eq!(server.get(path).await.0, 200, "{path}");
    }
}
