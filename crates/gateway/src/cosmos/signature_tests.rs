use super::super::keys::{WELL_KNOWN_KEY, sign};
use super::*;
use crate::auth::Secret;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
const THEN: u64 = 1_493_254_272;
const WINDOW: Duration = Duration::from_secs(900);

fn keys() -> Keys {
    let read = Secret::new(STANDARD.encode("read"));
    Keys::new(&[Secret::new(WELL_KNOWN_KEY)], &[read], false).unwrap()
}

fn token(key: &str, text: &str) -> String {
    let token = format!("type=master&ver=1.0&sig={}", sign(key, text).unwrap());
    utf8_percent_encode(&token, NON_ALPHANUMERIC).to_string()
}

fn decided(path: &str, authorization: Option<&str>, date: Option<&str>, now: u64) -> Result<Access, Denied> {
    let address = Address::read(path).unwrap();
    let claim = Claim { method: "GET", address: &address, authorization, date, plain_date: None };
    verify(&claim, &keys(), false, UnixSeconds(now), WINDOW)
}

const ITEM: &str = "/dbs/db1/colls/c1/docs/item1";
const TEXT: &str = "get\ndocs\ndbs/db1/colls/c1/docs/item1\nthu, 27 apr 2017 00:51:12 gmt\n\n";

// P-14, P-15, P-16, P-18
#[test]
fn a_signature_of_the_request_is_accepted() {
    let good = token(WELL_KNOWN_KEY, TEXT);
    assert_eq!(decided(ITEM, Some(&good), Some(DATE), THEN), Ok(Access::All));
    assert_eq!(decided(&format!("{ITEM}/"), Some(&good), Some(DATE), THEN), Ok(Access::All));
    let reader = token(&STANDARD.encode("read"), TEXT);
    assert_eq!(decided(ITEM, Some(&reader), Some(DATE), THEN), Ok(Access::ReadOnly));
    // Not encoded at all, and encoded as JavaScript does.
    let plain = format!("type=master&ver=1.0&sig={}", sign(WELL_KNOWN_KEY, TEXT).unwrap());
    assert_eq!(decided(ITEM, Some(&plain), Some(DATE), THEN), Ok(Access::All));
}

// P-15: without `x-ms-date` the plain date is signed in its own line.
#[test]
fn the_plain_date_counts_where_the_other_is_missing() {
    let text = "get\ndocs\ndbs/db1/colls/c1/docs/item1\n\nthu, 27 apr 2017 00:51:12 gmt\n";
    let address = Address::read(ITEM).unwrap();
    let authorization = token(WELL_KNOWN_KEY, text);
    let claim = Claim {
        method: "GET",
        address: &address,
        authorization: Some(&authorization),
        date: None,
        plain_date: Some(DATE),
    };
    assert_eq!(verify(&claim, &keys(), false, UnixSeconds(THEN), WINDOW), Ok(Access::All));
}

// P-17
#[test]
fn a_signature_of_the_rid_alone_is_accepted() {
    let good = token(WELL_KNOWN_KEY, "get\noffers\nabcd\nthu, 27 apr 2017 00:51:12 gmt\n\n");
    assert_eq!(decided("/offers/AbCd", Some(&good), Some(DATE), THEN), Ok(Access::All));
    let other = token(WELL_KNOWN_KEY, "get\ndocs\nitem1\nthu, 27 apr 2017 00:51:12 gmt\n\n");
    assert!(matches!(decided(ITEM, Some(&other), Some(DATE), THEN), Err(Denied::WrongKey { .. })));
}

// P-19
#[test]
fn the_date_may_be_off_by_the_window_and_no_more() {
    let good = token(WELL_KNOWN_KEY, TEXT);
    let at = |now| decided(ITEM, Some(&good), Some(DATE), now);
    for now in [THEN - 900, THEN, THEN + 900] {
        assert_eq!(at(now), Ok(Access::All));
    }
    for now in [THEN - 901, THEN + 901] {
        assert!(matches!(at(now), Err(Denied::NotNow { .. })), "{now}");
    }
}

#[test]
fn what_is_wrong_is_told_apart() {
    let good = token(WELL_KNOWN_KEY, TEXT);
    assert_eq!(decided(ITEM, None, Some(DATE), THEN), Err(Denied::Missing));
    assert_eq!(decided(ITEM, Some(&good), None, THEN), Err(Denied::NoDate));
    assert!(matches!(decided(ITEM, Some(&good), Some("yesterday"), THEN), Err(Denied::Malformed(_))));
    let denied = decided("/dbs/db1/colls/c1/docs/other", Some(&good), Some(DATE), THEN);
    let Err(Denied::WrongKey { payload }) = denied else { panic!("{denied:?}") };
    assert_eq!(payload, TEXT.replace("item1", "other"));
    for malformed in [
        "",
        "type=master",
        "type=master&ver=1.0&sig=not base64",
        "type=master&ver=2.0&sig=AAAA",
        "type=aad&ver=1.0&sig=ey",
        "type=resource&ver=1&sig=x",
        "%FF",
        "SharedAccessSignature sr=x",
        &"a".repeat(TOKEN_BYTES + 1),
    ] {
        let denied = decided(ITEM, Some(malformed), Some(DATE), THEN);
        assert!(matches!(denied, Err(Denied::Malformed(_))), "{malformed}: {denied:?}");
    }
}

#[test]
fn dates_are_read_and_written() {
    assert_eq!(http_date(DATE), Some(THEN as i64));
    assert_eq!(http_date("thu, 01 jan 1970 00:00:00 gmt"), Some(0));
    assert_eq!(http_date_text(THEN as i64), DATE);
    for seconds in [0, 951_782_399, 951_782_400, 951_868_800, 4_102_444_799, 1_709_164_800] {
        assert_eq!(http_date(&http_date_text(seconds)), Some(seconds), "{seconds}");
    }
    for wrong in [
        "",
        "Thu, 27 Apr 2017 00:51:12 CET",
        "Thu, 27 Avr 2017 00:51:12 GMT",
        "Thu, 00 Apr 2017 00:51:12 GMT",
        "Thu, 27 Apr 2017 24:51:12 GMT",
        "Thursday, 27-Apr-17 00:51:12 GMT",
        "Thu, +7 Apr 2017 00:51:12 GMT",
        "éééééééééééééé1",
    ] {
        assert_eq!(http_date(wrong), None, "{wrong}");
    }
}
