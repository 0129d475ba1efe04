//! Queues, topics, subscriptions and rules: made, shown, changed and deleted, with the answers and errors of the service.

use super::*;

/// What Python's client sends: prefixes for everything.
const PYTHON_QUEUE: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns:ns1="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ns0:content type="application/xml"><ns1:QueueDescription><ns1:LockDuration>PT30S</ns1:LockDuration><ns1:MaxDeliveryCount>3</ns1:MaxDeliveryCount></ns1:QueueDescription></ns0:content></ns0:entry>"#;

// H-10, H-11, H-15
#[tokio::test]
async fn a_queue_is_created_shown_and_deleted() {
    let server = TestServer::default();
    let (status, body) = server.create("/Orders?api-version=2024-05", PYTHON_QUEUE).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<title type=\"text\">Orders</title>"));
    assert!(body.contains("<id>http://mine.example:5300/Orders?api-version=2024-05</id>"));
    assert!(body.contains("<LockDuration>PT30S</LockDuration>"));
    let (status, shown) = server.get("/orders?enrich=false&api-version=2024-05").await;
    // K-29: the id is what was asked for, the rest is the same.
    let created =
        body.replace("/Orders?api-version=2024-05</id>", "/orders?enrich=false&amp;api-version=2024-05</id>");
    assert_eq!((status, &shown), (200, &created));
    let (status, body) = server.request(As::Manager, "DELETE", "/orders", "", "").await;
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(server.get("/orders").await.0, 404);
    assert_eq!(server.request(As::Manager, "DELETE", "/orders", "", "").await.0, 404);
}

// H-12, H-13 and the error table
#[tokio::test]
async fn failures_have_the_status_and_sub_code_of_the_service() {
    let server = TestServer::default();
    assert_eq!(server.create("/q", JAVASCRIPT_QUEUE).await.0, 201);
    let (status, body) = server.create("/Q", JAVASCRIPT_QUEUE).await;
    assert_eq!(status, 409);
    assert!(body.starts_with("<Error><Code>409</Code><Detail>SubCode=40900. Conflict. "), "{body}");
    assert!(
        body.contains(" TrackingId:") && body.contains("_n1, SystemTracker:mine.example:5300:Q, Timestamp:")
    );
    let (status, body) = server.get("/missing").await;
    assert_eq!(status, 404);
    assert!(body.starts_with("<Error><Code>404</Code><Detail>SubCode=40400. Not Found. "), "{body}");
    let (status, body) = server.create("/r", &JAVASCRIPT_QUEUE.replace("PT30S", "PT1H")).await;
    assert_eq!(status, 400);
    assert!(body.contains("SubCode=40000. ") && body.contains("LockDuration"), "{body}");
    assert_eq!(server.create("/r", "<entry").await.0, 400);
    assert_eq!(server.get("/%ff").await.0, 400);
    assert_eq!(server.get("/$nothing").await.0, 404);
    assert_eq!(server.request(As::Manager, "PATCH", "/q", "", "").await.0, 405);
}

// HX-1.2.2, H-12, S-260
#[tokio::test]
async fn a_queue_is_updated_by_who_says_that_it_is_there() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let (status, body) = server.update("/Q", &JAVASCRIPT_QUEUE.replace("PT30S", "PT45S")).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("<LockDuration>PT45S</LockDuration>") && body.contains(">q</title>"), "{body}");
    assert_eq!(server.update("/missing", JAVASCRIPT_QUEUE).await.0, 404);
    let session =
        JAVASCRIPT_QUEUE.replace("</LockDuration>", "</LockDuration><RequiresSession>true</RequiresSession>");
    let (status, body) = server.update("/q", &session).await;
    assert_eq!(status, 400);
    let text =
        "SubCode=40000. The value for the 'RequiresSession' property of an existing Queue can't be changed.";
    assert!(body.contains(text), "{body}");
    // What is not said goes back to its default.
    let (_, body) =
        server.update("/q", &JAVASCRIPT_QUEUE.replace("<LockDuration>PT30S</LockDuration>", "")).await;
    assert!(body.contains("<LockDuration>PT1M</LockDuration>"), "{body}");
}

// HX-1.2.1 to HX-1.2.7, H-16, H-20, H-21
#[tokio::test]
async fn a_topic_with_subscriptions_and_rules_is_managed_whole() {
    let server = TestServer::default();
    let (status, body) = server.create("/News/Local", TOPIC).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("<TopicDescription ") && body.contains("<author><name>default</name></author>"));
    let (status, body) = server.create("/news/local/subscriptions/Mine", SUBSCRIPTION).await;
    assert_eq!(status, 201, "{body}");
    assert!(body.contains("href=\"http://mine.example:5300/News/Local/Subscriptions/Mine\""), "{body}");
    assert!(body.contains(">Mine</title>") && !body.contains("<author>"), "{body}");
    assert_eq!(server.create("/news/local/subscriptions/mine", SUBSCRIPTION).await.0, 409);
    let (status, body) = server.create("/News/Local/Subscriptions/Mine/Rules/R1", RULE).await;
    assert_eq!(status, 201, "{body}");
    let id = "<id>http://mine.example:5300/News/Local/Subscriptions/Mine/Rules/R1</id>";
    assert!(body.contains(id) && body.contains("<Name>R1</Name>"), "{body}");
    let (status, body) =
        server.update("/News/Local/Subscriptions/Mine/Rules/r1", &RULE.replace("a = 1", "b = 2")).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("<SqlExpression>b = 2</SqlExpression>") && body.contains("<Name>R1</Name>"));
    let (_, body) = server.get("/news/local/subscriptions/mine/rules").await;
    assert_eq!(body.matches("<RuleDescription").count(), 2);
    let (_, body) = server.get("/news/local?api-version=2024-05").await;
    assert!(body.contains("<SubscriptionCount>1</SubscriptionCount><SqlFilterCount>2</SqlFilterCount>"));
    let changed = SUBSCRIPTION.replace(">7<", ">8<");
    assert!(
        server.update("/news/local/subscriptions/mine", &changed).await.1.contains(">8</MaxDeliveryCount>")
    );
    assert_eq!(server.get("/News/Local/Subscriptions/").await.1.matches("<entry").count(), 1);
    assert_eq!(server.get("/$Resources/topics").await.1.matches("<entry").count(), 1);
    assert_eq!(server.get("/$Resources/queues").await.1.matches("<entry").count(), 0);
    let rule = "/news/local/subscriptions/mine/rules/$default";
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await, (200, String::new()));
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await.0, 404);
    assert_eq!(server.request(As::Manager, "DELETE", "/news/local", "", "").await, (200, String::new()));
    assert_eq!(server.get("/news/local/subscriptions/mine").await.0, 404);
    // Whatever a subscription is called, its rules are found.
    server.create("/t", TOPIC).await;
    assert_eq!(server.create("/t/subscriptions/messages", SUBSCRIPTION).await.0, 201);
    assert_eq!(server.create("/t/subscriptions/messages/rules/r", RULE).await.0, 201);
    let rule = "/t/subscriptions/messages/rules/r";
    assert_eq!(server.request(As::Manager, "DELETE", rule, "", "").await.0, 200);
    assert_eq!(server.create("/news/local/subscriptions/mine", SUBSCRIPTION).await.0, 404);
}

// K-26
#[tokio::test]
async fn a_value_out_of_its_range_is_told_with_the_range() {
    let server = TestServer::default();
    let text = |range: &str| format!("<Detail>SubCode=40000. The value for {range}.");
    for (property, value, range) in [
        (
            "MaxMessageSizeInKilobytes",
            "102401",
            "'MaxMessageSizeInKilobytes' must be between 1024 and 102400",
        ),
        ("MaxMessageSizeInKilobytes", "0", "'MaxMessageSizeInKilobytes' must be between 1024 and 102400"),
        ("MaxDeliveryCount", "0", "'MaxDeliveryCount' must be between 1 and 2147483647"),
        ("LockDuration", "PT1S", "'LockDuration' must be between PT5S and PT5M"),
        (
            "AutoDeleteOnIdle",
            "PT1M",
            "'AutoDeleteOnIdle' must be between PT5M and P10675199DT2H48M5.4775807S",
        ),
        (
            "DuplicateDetectionHistoryTimeWindow",
            "P8D",
            "'DuplicateDetectionHistoryTimeWindow' must be between PT20S and P7D",
        ),
        (
            "DefaultMessageTimeToLive",
            "PT0.5S",
            "'DefaultMessageTimeToLive' must be between PT1S and P10675199DT2H48M5.4775807S",
        ),
    ] {
        let body = described("Queue", &format!("<{property}>{value}</{property}>"));
        let (status, answer) = server.create("/q", &body).await;
        assert_eq!(status, 400);
        assert!(answer.contains(&text(range)), "{answer}");
    }
    // H-71
    let (_, answer) = server.create("/q", &described("Queue", "<LockDuration>PT6M</LockDuration>")).await;
    assert!(
        answer.contains("The supplied lock time exceeds the allowed maximum of '5' minutes."),
        "{answer}"
    );
    assert!(answer.contains("The value for 'LockDuration' must be between PT5S and PT5M."), "{answer}");
}

// H-4, H-14
#[tokio::test]
async fn any_content_type_is_taken_and_each_answer_has_its_own() {
    let server = TestServer::default();
    let types = [
        "application/atom+xml",
        "application/atom+xml;type=entry;charset=utf-8",
        "application/xml",
        "text/plain",
        "x",
    ];
    for (nth, content_type) in types.into_iter().enumerate() {
        let header = format!("Content-Type: {content_type}\r\nAccept: nothing/at-all\r\n");
        let address = format!("/q{nth}");
        let (status, _) = server.request(As::Manager, "PUT", &address, &header, JAVASCRIPT_QUEUE).await;
        assert_eq!(status, 201, "{content_type}");
    }
    server.create("/t", TOPIC).await;
    let signed = sas::sign("https%3a%2f%2fhost", "manager", "key", UnixSeconds::NEVER);
    let head = format!("Host: mine.example\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n");
    for (address, expected, inside) in [
        ("/q0", "application/atom+xml;type=entry;charset=utf-8", "<QueueDescription "),
        ("/t", "application/atom+xml;type=entry;charset=utf-8", "<TopicDescription "),
        ("/$Resources/queues", "application/atom+xml;type=feed;charset=utf-8", "<feed "),
        ("/missing", "application/xml; charset=utf-8", "<Error>"),
    ] {
        let answer = server.exchange(format!("GET {address} HTTP/1.1\r\n{head}").as_bytes()).await;
        assert!(answer.contains(&format!("content-type: {expected}\r\n")), "{answer}");
        assert!(answer.contains(inside), "{answer}");
    }
}

// S-281, K-25, S-179
#[tokio::test]
async fn a_forward_address_is_read_back_as_it_was_given() {
    let server = TestServer::default();
    server.create("/next", JAVASCRIPT_QUEUE).await;
    for (given, read) in [
        ("http://mine.example:5300/next", "http://mine.example:5300/next"),
        ("SB://Mine.Example/Next", "sb://mine.example/Next"),
        ("next", "next"),
    ] {
        let properties = format!(
            "<LockDuration>PT5S</LockDuration><ForwardTo>{given}</ForwardTo><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"
        );
        let (status, body) = server.create("/first", &described("Queue", &properties)).await;
        assert_eq!(status, 201, "{body}");
        let (_, body) = server.get("/first").await;
        assert!(body.contains(&format!("<ForwardTo>{read}</ForwardTo>")), "{body}");
        // K-23
        assert!(body.contains("<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"), "{body}");
        server.request(As::Manager, "DELETE", "/first", "", "").await;
    }
}

// H-12
#[tokio::test]
async fn only_the_star_matches_what_is_there() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let changed = JAVASCRIPT_QUEUE.replace("PT30S", "PT45S");
    for (tag, status) in
        [("\"1\"", 412), ("W/\"x\"", 412), ("*, \"1\"", 412), ("", 412), ("\"*\"", 200), ("*", 200)]
    {
        let headers = format!("If-Match: {tag}\r\n");
        let (got, body) = server.request(As::Manager, "PUT", "/q", &headers, &changed).await;
        assert_eq!(got, status, "{tag}: {body}");
    }
    assert_eq!(server.request(As::Manager, "DELETE", "/q", "If-Match: \"1\"\r\n", "").await.0, 412);
    assert_eq!(server.request(As::Manager, "DELETE", "/q", "If-Match: *\r\n", "").await.0, 200);
}
