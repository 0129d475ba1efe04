//! What a stranger's request goes through before anything is asked, for fuzz targets: nothing here may panic, and no bytes are a
//! signature that nobody made.

use super::address::Address;
use super::headers::Headers;
use super::keys::Keys;
use super::resource::Resource;
use super::signature::{Claim, http_date, http_date_text, verify};
use crate::auth::{Secret, UnixSeconds};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use std::time::Duration;

/// Lines: a method, a path, an authorization, a date, then headers as `name: value`.
pub fn head(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let (method, path) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let (authorization, date) = (lines.next(), lines.next());
    if let Some(seconds) = date.and_then(http_date) {
        assert_eq!(http_date(&http_date_text(seconds)), Some(seconds));
    }
    let Ok(address) = Address::read(path) else { return };
    // Nobody has this key, so nobody has made a signature with it.
    let keys = Keys::new(&[Secret::new("bm9ib2R5IGtub3dzIHRoaXMga2V5")], &[], false).expect("it is base64");
    let claim = Claim { method, address: &address, authorization, date, plain_date: date };
    let verified = verify(&claim, &keys, true, UnixSeconds(0), Duration::MAX);
    assert!(verified.is_err(), "{claim:?} was let in");
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.trim().as_bytes()).ok()?))
    };
    let headers: HeaderMap = lines.filter_map(header).collect();
    let headers = Headers::of(&headers);
    let (_, _, _) = (headers.scope(), headers.change_feed(), headers.listing());
    let (_, _, _) = (headers.session(), headers.throughput(), headers.partition_key());
    if let (Some(resource), Ok(method)) =
        (Resource::of(&address, None), Method::from_bytes(method.as_bytes()))
    {
        let _ = resource.verb(&method, headers);
    }
}
