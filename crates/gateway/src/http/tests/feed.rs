//! Lists come in pages, by the links that they give (H-27).

use super::*;

// H-27
#[tokio::test]
async fn a_list_comes_in_pages_with_a_link_to_the_next() {
    let server = TestServer::default();
    for name in ["c", "a", "b"] {
        server.create(&format!("/{name}"), JAVASCRIPT_QUEUE).await;
    }
    let titles = |body: &str| -> Vec<String> {
        body.split("<title type=\"text\">")
            .skip(2)
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect()
    };
    let (status, body) = server.get("/$Resources/Queues?$skip=0&$top=2").await;
    assert_eq!((status, titles(&body)), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert!(body.contains("rel=\"next\""));
    let (_, body) = server.get("/$Resources/queues?%24skip=2&%24top=2").await;
    assert_eq!(titles(&body), ["c"]);
    assert!(!body.contains("rel=\"next\""));
    let (status, body) = server.get("/$Resources/queues?$skip=100").await;
    assert_eq!((status, titles(&body).len()), (200, 0));
    let (status, body) = server.get("/$Resources/queues?$top=0").await;
    assert_eq!((status, titles(&body).len()), (200, 0));
    assert!(!body.contains("rel=\"next\""), "whoever follows it would follow it for ever");
    assert!(body.starts_with("<feed "));
}

// H-27
#[tokio::test]
async fn a_full_page_links_to_the_next_only_if_there_is_one() {
    let server = TestServer::default();
    for number in 0..FEED_ENTRIES {
        server.create(&format!("/q{number:03}"), JAVASCRIPT_QUEUE).await;
    }
    assert!(!server.get("/$Resources/queues").await.1.contains("rel=\"next\""));
    server.create("/q999", JAVASCRIPT_QUEUE).await;
    let (_, body) = server.get("/$Resources/queues").await;
    assert!(body.contains("rel=\"next\"") && body.contains("$skip=100&amp;$top=100"));
    assert!(!body.contains("q999"));
}

// H-27: every feed is read in pages, by the links that it gives.
#[tokio::test]
async fn each_feed_leads_through_all_its_pages() {
    let server = TestServer::default();
    let rule = |name: &str| RULE.replace("<Name>other</Name>", &format!("<Name>{name}</Name>"));
    for name in ["a", "b", "c"] {
        assert_eq!(server.create(&format!("/{name}"), JAVASCRIPT_QUEUE).await.0, 201);
        assert_eq!(server.create(&format!("/t{name}"), &described("Topic", "")).await.0, 201);
        assert_eq!(server.create(&format!("/ta/subscriptions/{name}"), SUBSCRIPTION).await.0, 201);
        let address = format!("/ta/subscriptions/a/rules/{name}");
        assert_eq!(server.create(&address, &rule(name)).await.0, 201);
    }
    let feeds = [
        ("/$Resources/queues", 3),
        ("/$Resources/topics", 3),
        ("/ta/subscriptions", 3),
        // With the one that every subscription begins with.
        ("/ta/subscriptions/a/rules", 4),
    ];
    for (feed, count) in feeds {
        let mut entries = Vec::new();
        let mut next = Some(format!("{feed}?$skip=0&$top=1"));
        while let Some(address) = next {
            let (status, body) = server.get(&address).await;
            assert_eq!(status, 200, "{address}");
            let titles = body.split("<title type=\"text\">").skip(2);
            let before = entries.len();
            entries.extend(titles.map(|rest| rest.split('<').next().unwrap().to_owned()));
            assert_eq!(entries.len(), before + 1, "{address}: {body}");
            assert!(entries.len() <= count, "{feed} leads in a circle: {entries:?}");
            next = body.split("rel=\"next\" href=\"").nth(1).map(|rest| {
                let address = rest.split('"').next().unwrap().replace("&amp;", "&");
                let path = address.split_once("://").unwrap().1.split_once('/').unwrap().1;
                format!("/{path}")
            });
        }
        assert_eq!(entries.len(), count, "{feed}: {entries:?}");
        entries.dedup();
        assert_eq!(entries.len(), count, "{feed}: {entries:?}");
    }
}
