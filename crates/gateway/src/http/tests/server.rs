//! What the server says of itself: its health to anybody, its metrics to this machine.

use super::*;

// H-122
#[tokio::test]
async fn health_needs_no_token_and_tells_the_truth() {
    let server = TestServer::default();
    let (status, body) = server.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!((status, &*body), (200, r#"{"message":"Service is healthy.","status":"healthy"}"#));
    assert_eq!(server.request(As::Nobody, "GET", "/health?api-version=1", "", "").await.0, 200);
    assert_eq!(server.request(As::Nobody, "HEAD", "/health", "", "").await, (200, String::new()));
    server.fake.is_sick.store(true, Ordering::Relaxed);
    assert_eq!(server.request(As::Nobody, "HEAD", "/health", "", "").await, (503, String::new()));
    let (status, body) = server.request(As::Nobody, "GET", "/health", "", "").await;
    assert_eq!(status, 503);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "unhealthy");
    assert_eq!(body["reasons"], serde_json::json!(["the disk has not confirmed a write for 7 seconds"]));
    assert_eq!(body["clockAheadMilliseconds"], 90_000);
    let (status, body) = server.get("/q").await;
    assert_eq!(status, 503);
    assert!(body.contains("SubCode=50004. "), "{body}");
}

#[tokio::test]
async fn metrics_are_for_this_machine() {
    let mut server = TestServer::default();
    let (status, body) = server.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 200);
    assert!(body.contains("\notobus_journal_syncs_total 42\n"), "{body}");
    // A page that has its name lead here, in a browser that says nothing else of it.
    let (status, body) = server.ask_as("evil.example:5300", "GET", "/metrics", "").await;
    assert_eq!(status, 401);
    assert!(!body.contains("otobus_"), "{body}");
    assert_eq!(server.ask_as("localhost:5300", "GET", "/metrics", "").await.0, 200);
    for page in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        let (status, body) = server.request(As::Nobody, "GET", "/metrics", page, "").await;
        assert_eq!(status, 401, "{page}");
        assert!(!body.contains("otobus_"), "{body}");
    }
    server.from = Some("192.0.2.1:1".parse().unwrap());
    let (status, body) = server.request(As::Nobody, "GET", "/metrics", "", "").await;
    assert_eq!(status, 401);
    assert!(!body.contains("otobus_"), "{body}");
}
