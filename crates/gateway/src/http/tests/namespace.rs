//! A namespace tells of itself, and knows nothing of the others.

use super::*;

// K-20
#[tokio::test]
async fn the_namespace_tells_its_tier() {
    use broker::Tier;
    let premium = "<MessagingSKU>Premium</MessagingSKU><MessagingUnits>1</MessagingUnits><ModifiedTime>";
    for (tier, told) in [
        (Tier::Basic, "<MessagingSKU>Basic</MessagingSKU><ModifiedTime>"),
        (Tier::Standard, "<MessagingSKU>Standard</MessagingSKU><ModifiedTime>"),
        (Tier::Premium, premium),
        (Tier::Unlimited, premium),
    ] {
        let server = TestServer::default();
        let own = Namespace { tier, ..namespace(0, "default", guard(&[])) };
        server.fake.namespaces.replace(own, vec![]);
        let (status, body) = server.get("/$namespaceinfo").await;
        assert!(status == 200 && body.contains(told), "{body}");
    }
}

// HX-1.8.1
#[tokio::test]
async fn the_namespace_tells_of_itself() {
    let server = TestServer::default();
    let (status, body) = server.get("/$namespaceinfo").await;
    assert_eq!(status, 200);
    for part in ["<Name>default</Name>", "<MessagingSKU>Premium</MessagingSKU>", "<NamespaceType>Messaging<"]
    {
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn each_namespace_has_its_own_entities() {
    let server = TestServer::default();
    server.create("/q", JAVASCRIPT_QUEUE).await;
    let signed = sas::sign("https%3a%2f%2fshop.example", "manager", "key", UnixSeconds::NEVER);
    let ask = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n"
        )
    };
    assert!(server.exchange(ask("/q").as_bytes()).await.starts_with("HTTP/1.1 404 "));
    assert!(server.exchange(ask("/$namespaceinfo").as_bytes()).await.contains("<Name>shop</Name>"));
}

// H-102
#[tokio::test]
async fn a_token_for_one_namespace_is_worth_nothing_in_another() {
    let server = TestServer::default();
    let ask = |host: &str, signed: &str| {
        let signed = sas::sign(&format!("https%3a%2f%2f{signed}"), "manager", "key", UnixSeconds::NEVER);
        format!(
            "GET /$namespaceinfo HTTP/1.1\r\nHost: {host}\r\nAuthorization: {signed}\r\nConnection: close\r\n\r\n"
        )
    };
    // Both namespaces have this policy with this key.
    for (host, signed, is_taken) in [
        ("shop.example", "shop.example", true),
        ("mine.example", "other.example", true),
        ("mine.example", "shop.example", false),
        ("shop.example", "mine.example", false),
        ("shop.example", "default", false),
        ("old.example", "old.example", false),
        ("old.example", "mine.example", false),
        ("mine.example", "old.example", false),
    ] {
        let answer = server.exchange(ask(host, signed).as_bytes()).await;
        match is_taken {
            true => assert!(answer.starts_with("HTTP/1.1 200 "), "{signed} at {host}: {answer}"),
            false => assert!(answer.contains("SubCode=40104. "), "{signed} at {host}: {answer}"),
        }
    }
}
