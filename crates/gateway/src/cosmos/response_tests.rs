use super::*;
use http_body_util::BodyExt;
use items::ContainerPath;
use serde_json::{Value, json};
use std::sync::LazyLock;

fn asked(resource: &Resource) -> Asked<'_> {
    Asked {
        resource,
        activity: HeaderValue::from_static("a"),
        wants_no_content: false,
        wants_quota: false,
        wants_statistics: false,
        wants_metrics: false,
        batch_reads: Vec::new(),
    }
}

fn place() -> Option<ContainerFacts> {
    Some(ContainerFacts {
        database: "d é".into(),
        container: "c".into(),
        container_rid: "Jic9ANWdO-E=".into(),
        lsn: 57,
        item_lsn: Some(56),
        item_count: 2,
        item_bytes: 3_000,
    })
}

fn items() -> &'static Resource {
    static ITEMS: LazyLock<Resource> = LazyLock::new(|| Resource::Items(ContainerPath::new("d", "c")));
    &ITEMS
}

fn document() -> Document {
    Document { body: Bytes::from_static(b"{\"id\":\"1\"}"), etag: "\"e\"".into() }
}

async fn read(response: Response<Payload>) -> (u16, HeaderMap, String) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn shown(answer: Answer, asked: Asked<'_>) -> (u16, HeaderMap, String) {
    read(Usual::default().reply(Reply { answer, charge: 571, place: place() }, asked)).await
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("missing")
}

#[tokio::test]
async fn a_form_that_is_filled_in_says_what_headers_entered_one_by_one_say() {
    let usual = Usual::default();
    for (lsn, charge, name, etag) in
        [(57, 571, "d é%/", "\"e\""), (0, 100, "", ""), (u64::MAX, 5, "\r\nx: y", "a\nb")]
    {
        let place = ContainerFacts { lsn, database: name.into(), ..place().unwrap() };
        let document = Document { etag: etag.to_owned(), ..document() };
        let reply = Reply { answer: Answer::Found(document), charge, place: Some(place) };
        let headers = |mut response: Response<Payload>| {
            took(&mut response, Duration::from_micros(1_005));
            let mut headers = std::mem::take(response.headers_mut());
            assert!(headers.remove(TRANSPORT).is_some());
            (response.status(), headers)
        };
        let item = Resource::Item(ContainerPath::new("d", "c"), "i".into());
        let filled = headers(usual.reply(reply.clone(), asked(&item)));
        assert_eq!(filled, headers(usual.any(reply, asked(&item))), "{name:?}");
        assert_eq!(filled.1.get(DURATION).unwrap(), "1.005");
    }
}

#[test]
fn numbers_are_written_as_everybody_writes_them() {
    for number in [0, 9, 10, 1_005, u64::MAX] {
        let mut text = Vec::new();
        push_decimal(&mut text, number);
        assert_eq!(text, number.to_string().as_bytes());
    }
}

// Section 17, P-25, P-47, P-78, P-82, P-83
#[tokio::test]
async fn a_written_item_comes_with_every_header_of_items() {
    let (status, headers, body) = shown(Answer::Created(document()), asked(items())).await;
    assert_eq!((status, body.as_str()), (201, "{\"id\":\"1\"}"));
    for (name, value) in [
        ("etag", "\"e\""),
        ("x-ms-activity-id", "a"),
        ("x-ms-request-charge", "5.71"),
        ("x-ms-session-token", "0:-1#57"),
        ("lsn", "57"),
        ("x-ms-item-lsn", "56"),
        ("x-ms-alt-content-path", "dbs/d %C3%A9/colls/c"),
        ("x-ms-content-path", "Jic9ANWdO-E="),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ("x-ms-version", "2020-07-15"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(text(&headers, name), value, "{name}");
    }
    for name in [
        "server",
        "x-ms-gatewayversion",
        "x-ms-serviceversion",
        "x-ms-transport-request-id",
        "x-ms-last-state-change-utc",
    ] {
        assert!(headers.contains_key(name), "{name}");
    }
}

// P-78
#[test]
fn a_charge_is_a_decimal_number_of_hundredths() {
    let told = |charge| {
        let activity = HeaderValue::from_static("a");
        let answer = Usual::default().answer(StatusCode::OK, activity, charge, Bytes::new());
        text(answer.headers(), "x-ms-request-charge").to_owned()
    };
    for (charge, shown) in [(0, "0"), (7, "0.07"), (100, "1"), (507, "5.07"), (510, "5.10"), (1_200, "12")] {
        assert_eq!(told(charge), shown);
    }
}

// P-32
#[tokio::test]
async fn whoever_wants_no_content_gets_status_and_headers() {
    let asked = Asked { wants_no_content: true, ..asked(items()) };
    let (status, headers, body) = shown(Answer::Created(document()), asked).await;
    assert_eq!((status, body.as_str(), text(&headers, "etag")), (201, "", "\"e\""));
}

// P-83: two segments are how the Python client knows a container.
#[tokio::test]
async fn a_container_names_its_database_as_owner() {
    let resource = Resource::Container(ContainerPath::new("d", "c"));
    let asked = Asked { wants_quota: true, ..asked(&resource) };
    let (_, headers, _) = shown(Answer::Found(document()), asked).await;
    assert_eq!(text(&headers, "x-ms-alt-content-path"), "dbs/d %C3%A9");
    let usage = text(&headers, "x-ms-resource-usage");
    assert!(usage.contains("documentsCount=2;") && usage.contains("documentsSize=3;"), "{usage}");
    assert_eq!(text(&headers, "x-ms-documentdb-collection-index-transformation-progress"), "100");
}

// P-24, P-51
#[tokio::test]
async fn a_page_is_counted_and_continued() {
    let page = Page {
        parent_rid: "r".into(),
        values: vec![Bytes::from_static(b"1"), Bytes::from_static(b"[2]")],
        continuation: Some("next".into()),
        metrics: Some(Metrics { retrieved_items: 9, ..Metrics::default() }),
    };
    let asked = Asked { wants_metrics: true, ..asked(items()) };
    let (status, headers, body) = shown(Answer::Page(page), asked).await;
    assert_eq!((status, body.as_str()), (200, r#"{"_rid":"r","Documents":[1,[2]],"_count":2}"#));
    assert_eq!((text(&headers, "x-ms-item-count"), text(&headers, "x-ms-continuation")), ("2", "next"));
    let metrics = text(&headers, "x-ms-documentdb-query-metrics");
    assert!(metrics.contains("retrievedDocumentCount=9;"));
    assert!(metrics.split(';').all(|entry| entry.contains('=')));
}

// P-70
#[tokio::test]
async fn changes_have_an_etag_whether_there_are_any_or_not() {
    let empty = Answer::Changes { page: Page::default(), etag: "\"7\"".into() };
    let (status, headers, body) = shown(empty, asked(items())).await;
    assert_eq!((status, body.as_str(), text(&headers, "etag")), (304, "", "\"7\""));
    let page = Page { values: vec![Bytes::from_static(b"{}")], ..Page::default() };
    let (status, headers, _) = shown(Answer::Changes { page, etag: "\"8\"".into() }, asked(items())).await;
    assert_eq!((status, text(&headers, "etag")), (200, "\"8\""));
    assert!(!headers.contains_key("x-ms-continuation"));
}

// P-57, P-58, P-61
#[tokio::test]
async fn a_batch_is_answered_one_by_one() {
    let result = |status, document| OperationResult {
        status,
        sub_status: 0,
        charge: 105,
        document,
        retry_after_ms: None,
        message: None,
    };
    let both = vec![result(201, Some(document())), result(200, Some(document()))];
    let (status, _, body) = shown(Answer::Operations(both.clone()), asked(items())).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let entry =
        json!({"statusCode": 201, "requestCharge": 1.05, "eTag": "\"e\"", "resourceBody": {"id": "1"}});
    assert_eq!((status, &body[0]), (200, &entry));
    let minimal = Asked { wants_no_content: true, batch_reads: vec![false, true], ..asked(items()) };
    let (_, _, body) = shown(Answer::Operations(both), minimal).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(body[0].get("resourceBody").is_none() && body[1].get("resourceBody").is_some());
    let failed =
        Answer::Operations(vec![result(424, None), OperationResult { sub_status: 7, ..result(409, None) }]);
    let (status, _, body) = shown(failed, asked(items())).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body[1]["subStatusCode"]), (207, &json!(7)));
}

#[tokio::test]
async fn a_failure_tells_its_sub_status_and_when_to_come_again() {
    let failure = Failure { retry_after_ms: Some(70), ..Failure::new(429, 3200, "slow down") };
    let response = Usual::default().failure(&failure, HeaderValue::from_static("a"), "/");
    let (status, headers, body) = read(response).await;
    assert_eq!(
        (status, text(&headers, "x-ms-substatus"), text(&headers, "x-ms-retry-after-ms")),
        (429, "3200", "70")
    );
    assert!(serde_json::from_str::<Value>(&body).is_ok());
}

// CX-5.2.6
#[tokio::test]
async fn a_container_tells_what_its_range_holds_to_whoever_asks() {
    let resource = Resource::Container(ContainerPath::new("d", "c"));
    let (_, _, plain) = shown(Answer::Found(document()), asked(&resource)).await;
    assert_eq!(plain, "{\"id\":\"1\"}");
    let asking = Asked { wants_statistics: true, ..asked(&resource) };
    let (_, _, body) = shown(Answer::Found(document()), asking).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["statistics"],
        json!([{ "id": "0", "sizeInKB": 3, "documentCount": 2, "partitionKeys": [] }])
    );
}
