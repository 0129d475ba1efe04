//! Which tokens and keys open what, and how long wrong ones wait.

use super::*;

/// A queue with one rule of its own.
fn guarded(rule: &str) -> String {
    let inner = format!(
        "</LockDuration><AuthorizationRules><AuthorizationRule>{rule}</AuthorizationRule></AuthorizationRules>"
    );
    JAVASCRIPT_QUEUE.replace("</LockDuration>", &inner)
}

const OWNER: &str = "<Rights><AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights><KeyName>owner</KeyName>";

// H-102, HX-1.8.2, HX-1.8.3
#[tokio::test]
async fn a_rule_of_a_queue_opens_that_queue_alone() {
    let server = TestServer::default();
    let own = format!("{OWNER}<PrimaryKey>first</PrimaryKey><SecondaryKey>second</SecondaryKey>");
    let (status, body) = server.create("/q", &guarded(&own)).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<KeyName>owner</KeyName><PrimaryKey>first</PrimaryKey>"), "{body}");
    server.create("/q2", JAVASCRIPT_QUEUE).await;
    let with = |key: &str| {
        let token = sas::sign("https%3a%2f%2fhost", "owner", key, UnixSeconds::NEVER);
        format!("Authorization: {token}\r\n")
    };
    for key in ["first", "second"] {
        assert_eq!(server.request(As::Nobody, "GET", "/q", &with(key), "").await.0, 200);
        assert_eq!(server.request(As::Nobody, "GET", "/q2", &with(key), "").await.0, 401);
        assert_eq!(server.request(As::Nobody, "GET", "/$Resources/queues", &with(key), "").await.0, 401);
    }
    // Rotated: the first key is another, the second is kept because it is not given.
    let rotated = format!("{OWNER}<PrimaryKey>third</PrimaryKey>");
    assert_eq!(server.update("/q", &guarded(&rotated)).await.0, 200);
    for (key, status) in [("first", 401), ("second", 200), ("third", 200)] {
        assert_eq!(server.request(As::Nobody, "GET", "/q", &with(key), "").await.0, status, "{key}");
    }
    assert_eq!(server.update("/q", JAVASCRIPT_QUEUE).await.0, 200);
    assert_eq!(server.request(As::Nobody, "GET", "/q", &with("third"), "").await.0, 401);
    assert_eq!(server.update("/q", &guarded("<KeyName>x</KeyName>")).await.0, 400);
}

// H-102
#[tokio::test]
async fn a_rule_of_the_entity_around_opens_what_lies_below() {
    let server = TestServer::default();
    let rule = |key: &str| {
        guarded(&format!("{OWNER}<PrimaryKey>{key}</PrimaryKey><SecondaryKey>{key}</SecondaryKey>"))
    };
    server.create("/a", &rule("outer")).await;
    server.create("/a/b", &rule("inner")).await;
    let with = |key: &str| {
        let token = sas::sign("https%3a%2f%2fhost", "owner", key, UnixSeconds::NEVER);
        format!("Authorization: {token}\r\n")
    };
    for (key, address, status) in
        [("outer", "/a", 200), ("outer", "/a/b", 200), ("inner", "/a/b", 200), ("inner", "/a", 401)]
    {
        assert_eq!(server.raw("GET", address, &with(key)).await.0, status, "{key} at {address}");
    }
}

// H-80, S-171, S-178
#[tokio::test]
async fn who_forwards_must_manage_the_target() {
    let server = TestServer::default();
    server.create("/target", JAVASCRIPT_QUEUE).await;
    let own = format!("{OWNER}<PrimaryKey>first</PrimaryKey>");
    server.create("/q", &guarded(&own)).await;
    let forward =
        |body: &str| body.replace("</LockDuration>", "</LockDuration><ForwardTo>sb://h/target</ForwardTo>");
    let body = forward(&guarded(&own));
    let owner = sas::sign("https%3a%2f%2fhost%2fq", "owner", "first", UnixSeconds::NEVER);
    let manager = sas::sign("host%3a1", "manager", "key", UnixSeconds::NEVER);
    let headers = format!("If-Match: *\r\nAuthorization: {owner}\r\n");
    let (status, text) = server.request(As::Nobody, "PUT", "/q", &headers, &body).await;
    assert_eq!(status, 401, "{text}");
    let both = format!("{headers}ServiceBusSupplementaryAuthorization: {manager}\r\n");
    let (status, text) = server.request(As::Nobody, "PUT", "/q", &both, &body).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("<ForwardTo>sb://h/target</ForwardTo>"));
    let (status, text) =
        server.create("/r", &forward(JAVASCRIPT_QUEUE).replace("h/target", "h/nowhere")).await;
    assert_eq!(status, 400);
    assert!(text.contains("SubCode=40400. The auto forwarding destination entity does not exist"));
}

// H-70, H-103
#[tokio::test]
async fn only_who_may_manage_may_change_and_look() {
    let server = TestServer::default();
    let (status, body) = server.request(As::Reader, "PUT", "/q", "", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40100. ") && body.contains("Manage"), "{body}");
    assert_eq!(server.request(As::Reader, "DELETE", "/q", "", "").await.0, 401);
    assert_eq!(server.request(As::Reader, "GET", "/$Resources/queues", "", "").await.0, 401);
    for (method, address) in
        [("PUT", "/q"), ("GET", "/q"), ("DELETE", "/q"), ("GET", "/$Resources/queues"), ("PUT", "/")]
    {
        let (status, body) = server.request(As::Nobody, method, address, "", "").await;
        assert_eq!(status, 401, "{method} {address}");
        assert!(body.contains("SubCode=40102. Unauthorized. MissingToken: "), "{body}");
    }
    let stranger = "Authorization: Bearer eyJ.a.b\r\n";
    assert_eq!(server.request(As::Nobody, "GET", "/q", stranger, "").await.0, 401);
}

// H-102
#[tokio::test]
async fn a_token_for_one_queue_is_worth_nothing_for_another() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let token =
        sas::sign("https%3a%2f%2fhost%2fq%3fapi-version%3d2021-05", "manager", "key", UnixSeconds::NEVER);
    let header = format!("Authorization: {token}\r\n");
    assert_eq!(server.request(As::Nobody, "GET", "/Q", &header, "").await.0, 200);
    let (status, body) = server.request(As::Nobody, "GET", "/q2", &header, "").await;
    assert_eq!(status, 401);
    assert!(body.contains("SubCode=40104. "), "{body}");
}

// A door that is knocked on for long opens late to wrong keys, and at once to the right one.
#[tokio::test(start_paused = true)]
async fn wrong_keys_wait_and_the_right_one_does_not() {
    let mut server = TestServer::default();
    let wrong = sas::sign("https%3a%2f%2fhost", "manager", "yek", UnixSeconds::NEVER);
    let wrong = format!("Authorization: {wrong}\r\n");
    for _ in 0..FREE_FAILURES {
        let start = Instant::now();
        assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
        assert_eq!(start.elapsed(), std::time::Duration::ZERO);
    }
    for _ in 0..20 {
        server.raw("GET", "/q", &wrong).await;
    }
    let start = Instant::now();
    assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
    assert_eq!(start.elapsed().as_secs(), FAILURE_DELAY_MOST.as_secs());
    let start = Instant::now();
    assert_eq!(server.get("/$Resources/queues").await.0, 200);
    server.from = Some("192.0.2.1:1".parse().unwrap());
    assert_eq!(server.raw("GET", "/q", &wrong).await.0, 401);
    assert_eq!(start.elapsed(), std::time::Duration::ZERO, "the right key, and another address");
}
