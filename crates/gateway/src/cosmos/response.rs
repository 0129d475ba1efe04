//! From an answer to what a client sees: status, headers (section 17), body.

use super::failure::Failure;
use super::form::{Facts, Form};
use super::headers::RANGE;
use super::holding::Payload;
use super::resource::Resource;
use crate::auth::UnixSeconds;
use crate::limits::DURATION_TEXT_BYTES;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{CONTENT_LOCATION, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, SERVER};
use hyper::{Response, StatusCode};
use items::answer::Metrics;
use items::{Answer, ContainerFacts, Document, OperationResult, Page, Reply};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const ACTIVITY: HeaderName = HeaderName::from_static("x-ms-activity-id");
pub(super) const CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
pub(super) const DURATION: HeaderName = HeaderName::from_static("x-ms-request-duration-ms");
const SUB_STATUS: HeaderName = HeaderName::from_static("x-ms-substatus");
const RETRY_AFTER: HeaderName = HeaderName::from_static("x-ms-retry-after-ms");
pub(super) const SESSION: HeaderName = HeaderName::from_static("x-ms-session-token");
pub(super) const LSN: HeaderName = HeaderName::from_static("lsn");
pub(super) const ITEM_LSN: HeaderName = HeaderName::from_static("x-ms-item-lsn");
pub(super) const COMMITTED_LSN: HeaderName = HeaderName::from_static("x-ms-global-committed-lsn");
pub(super) const ALT_PATH: HeaderName = HeaderName::from_static("x-ms-alt-content-path");
pub(super) const PATH: HeaderName = HeaderName::from_static("x-ms-content-path");
pub(super) const RANGE_ID: HeaderName = HeaderName::from_static("x-ms-documentdb-partitionkeyrangeid");
const ITEM_COUNT: HeaderName = HeaderName::from_static("x-ms-item-count");
const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation");
const QUOTA: HeaderName = HeaderName::from_static("x-ms-resource-quota");
const USAGE: HeaderName = HeaderName::from_static("x-ms-resource-usage");
pub(super) const TRANSPORT: HeaderName = HeaderName::from_static("x-ms-transport-request-id");
const INDEXED: HeaderName =
    HeaderName::from_static("x-ms-documentdb-collection-index-transformation-progress");
const METRICS: HeaderName = HeaderName::from_static("x-ms-documentdb-query-metrics");
pub const INDEX_METRICS: HeaderName = HeaderName::from_static("x-ms-cosmos-index-utilization");
const STATE_CHANGE: HeaderName = HeaderName::from_static("x-ms-last-state-change-utc");
const PENDING: HeaderName = HeaderName::from_static("x-ms-offer-replace-pending");

/// Headers that an answer has beside those that every one has, at most.
const HEADERS_USUAL: usize = 20;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What may not stand in a header as it is, and the sign that begins an escape.
const UNSAFE: &AsciiSet = &CONTROLS.add(b'%');

/// A request, as far as its answer shows it.
#[derive(Debug)]
pub struct Asked<'a> {
    pub resource: &'a Resource,
    pub activity: HeaderValue,
    pub wants_no_content: bool,
    /// Whether a container's answer shall tell its quota (5.2).
    pub wants_quota: bool,
    /// Whether a container shall tell what its partition key ranges hold (5.2).
    pub wants_statistics: bool,
    pub wants_metrics: bool,
    /// Which operations of a batch read: they show what they read even if the client wants no content.
    pub batch_reads: Vec<bool>,
}

/// Headers that every answer has, made once.
#[derive(Debug)]
pub struct Usual {
    headers: HeaderMap,
    /// Those of an answer that shows an item.
    item: Form,
    answers: AtomicU64,
}

impl Default for Usual {
    fn default() -> Usual {
        let fixed = [
            ("x-ms-version", "2020-07-15"),
            ("x-ms-gatewayversion", "2.0.0"),
            ("x-ms-serviceversion", concat!("version=otobus-", env!("CARGO_PKG_VERSION"))),
            ("x-ms-schemaversion", "1.19"),
            ("x-ms-number-of-read-regions", "0"),
        ];
        let mut headers: HeaderMap = fixed
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let started = super::signature::http_date_text(UnixSeconds::now().0 as i64);
        if let Ok(started) = HeaderValue::from_str(&started) {
            headers.insert(STATE_CHANGE, started);
        }
        headers.insert(SERVER, HeaderValue::from_static(concat!("otobus/", env!("CARGO_PKG_VERSION"))));
        Usual { item: Form::new(&headers), headers, answers: AtomicU64::new(1) }
    }
}

impl Usual {
    /// An answer with what every one has. `charge` is in hundredths of a request unit.
    pub fn answer(
        &self,
        status: StatusCode,
        activity: HeaderValue,
        charge: u64,
        body: Bytes,
    ) -> Response<Payload> {
        let is_empty = body.is_empty();
        let mut response = Response::new(Payload::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.clone_from(&self.headers);
        headers.reserve(HEADERS_USUAL);
        headers.insert(ACTIVITY, activity);
        headers.insert(CHARGE, charged(charge));
        headers.insert(TRANSPORT, self.number().into());
        if !is_empty {
            headers.insert(CONTENT_TYPE, JSON);
        }
        response
    }

    /// Each answer has a number of its own.
    fn number(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    /// An answer that shows an item and tells nothing but what all of them tell: nearly every one. `None`: it is another.
    fn item(&self, reply: &Reply, asked: &Asked<'_>) -> Option<Response<Payload>> {
        let (status, document) = match &reply.answer {
            Answer::Created(document) => (StatusCode::CREATED, document),
            Answer::Found(document) => (StatusCode::OK, document),
            _ => return None,
        };
        let is_item = matches!(asked.resource, Resource::Items(_) | Resource::Item(..));
        if !is_item || asked.wants_no_content || asked.wants_quota || document.body.is_empty() {
            return None;
        }
        let place = reply.place.as_ref()?;
        let facts = Facts {
            activity: asked.activity.clone(),
            etag: &document.etag,
            charge: reply.charge,
            transport: self.number(),
            item_lsn: place.item_lsn?,
            place,
        };
        let mut response = Response::new(Payload::new(document.body.clone()));
        *response.status_mut() = status;
        *response.headers_mut() = self.item.filled(facts)?;
        Some(response)
    }

    pub fn failure(&self, failure: &Failure, activity: HeaderValue, path: &str) -> Response<Payload> {
        let body = failure.body(activity.to_str().unwrap_or_default(), path);
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = self.answer(status, activity, 100, body.into());
        response.headers_mut().insert(SUB_STATUS, failure.sub_status.into());
        if let Some(after) = failure.retry_after_ms {
            response.headers_mut().insert(RETRY_AFTER, after.into());
        }
        response
    }

    pub fn reply(&self, reply: Reply, asked: Asked<'_>) -> Response<Payload> {
        self.item(&reply, &asked).unwrap_or_else(|| self.any(reply, asked))
    }

    /// Any answer, header by header.
    fn any(&self, reply: Reply, asked: Asked<'_>) -> Response<Payload> {
        let Shown { status, mut body, etag, item_count, continuation, metrics } = shown(reply.answer, &asked);
        if let (true, Some(place), Resource::Container(_)) =
            (asked.wants_statistics && !body.is_empty(), &reply.place, asked.resource)
        {
            body = with_statistics(&body, place);
        }
        let mut response = self.answer(status, asked.activity.clone(), reply.charge, body);
        let headers = response.headers_mut();
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_maybe_shared(Bytes::from(etag)).ok()) {
            headers.insert(ETAG, etag);
        }
        if let Some(count) = item_count {
            headers.insert(ITEM_COUNT, count.into());
        }
        if let Some(text) =
            continuation.and_then(|text| HeaderValue::from_maybe_shared(Bytes::from(text)).ok())
        {
            headers.insert(CONTINUATION, text);
        }
        if let Some(metrics) = metrics.filter(|_| asked.wants_metrics) {
            headers.insert(METRICS, told_metrics(metrics));
        }
        if let Some(place) = &reply.place {
            put_place(headers, place, &asked);
        }
        if let Resource::Offer(_) = asked.resource {
            headers.insert(PENDING, HeaderValue::from_static("false"));
        }
        response
    }
}

/// A container's document with what its one range holds.
fn with_statistics(document: &Bytes, place: &ContainerFacts) -> Bytes {
    let mut body = BytesMut::with_capacity(document.len() + 128);
    body.put_slice(document.strip_suffix(b"}").unwrap_or(document));
    let kilobytes = place.item_bytes.div_ceil(1_024);
    let _ = write!(
        body,
        ",\"statistics\":[{{\"id\":\"{RANGE}\",\"sizeInKB\":{kilobytes},\"documentCount\":{},\"partitionKeys\":[]}}]}}",
        place.item_count
    );
    body.freeze()
}

/// Where an answer comes from: clients with several regions read off it which one it was (section 17).
pub fn located(response: &mut Response<Payload>, mut endpoint: String, path: &str) {
    if !endpoint.ends_with('/') {
        endpoint.push('/');
    }
    endpoint.push_str(path.trim_start_matches('/'));
    if let Ok(location) = HeaderValue::from_maybe_shared(Bytes::from(endpoint)) {
        response.headers_mut().insert(CONTENT_LOCATION, location);
    }
}

/// How long a request took, as it is told with the answer.
pub fn took(response: &mut Response<Payload>, duration: Duration) {
    let micros = duration.as_micros() as u64;
    let mut text = Vec::with_capacity(DURATION_TEXT_BYTES);
    push_decimal(&mut text, micros / 1_000);
    let thousandths = micros % 1_000;
    text.extend_from_slice(&[b'.', digit(thousandths / 100), digit(thousandths / 10), digit(thousandths)]);
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
        response.headers_mut().insert(DURATION, value);
    }
}

/// The last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

/// Formatting takes ten times as long, and every answer tells half a dozen numbers.
pub(super) fn push_decimal(text: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let (mut start, mut rest) = (digits.len(), number);
    while rest > 0 || start == digits.len() {
        start -= 1;
        digits[start] = digit(rest);
        rest /= 10;
    }
    text.extend_from_slice(&digits[start..]);
}

/// Hundredths as a decimal number: `1`, `5.71` (P-78).
pub(super) fn push_charge(text: &mut Vec<u8>, hundredths: u64) {
    push_decimal(text, hundredths / 100);
    let rest = hundredths % 100;
    if rest > 0 {
        text.extend_from_slice(&[b'.', digit(rest / 10), digit(rest)]);
    }
}

fn charged(hundredths: u64) -> HeaderValue {
    let mut text = Vec::new();
    push_charge(&mut text, hundredths);
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static("1"))
}

/// P-82
pub(super) fn push_session(text: &mut Vec<u8>, lsn: u64) {
    text.extend_from_slice(RANGE.as_bytes());
    text.extend_from_slice(b":-1#");
    push_decimal(text, lsn);
}

/// The path of a database, or of a container in it, as it may stand in a header (P-83).
pub(super) fn push_path(text: &mut Vec<u8>, database: &str, container: Option<&str>) {
    text.extend_from_slice(b"dbs/");
    text.extend_from_slice(safe(database).as_bytes());
    if let Some(container) = container {
        text.extend_from_slice(b"/colls/");
        text.extend_from_slice(safe(container).as_bytes());
    }
}

/// An answer without the headers around it.
struct Shown {
    status: StatusCode,
    body: Bytes,
    etag: Option<String>,
    item_count: Option<usize>,
    continuation: Option<String>,
    metrics: Option<Metrics>,
}

impl Shown {
    fn new(status: StatusCode, body: Bytes) -> Shown {
        Shown { status, body, etag: None, item_count: None, continuation: None, metrics: None }
    }

    fn page(page: Page, member: &str) -> Shown {
        Shown {
            item_count: Some(page.values.len()),
            metrics: page.metrics,
            body: feed(&page.parent_rid, member, &page.values),
            continuation: page.continuation,
            ..Shown::new(StatusCode::OK, Bytes::new())
        }
    }
}

fn shown(answer: Answer, asked: &Asked<'_>) -> Shown {
    let document = |status, Document { body, etag }: Document| {
        let body = if asked.wants_no_content { Bytes::new() } else { body };
        Shown { etag: Some(etag), ..Shown::new(status, body) }
    };
    let member = asked.resource.feed_member();
    match answer {
        Answer::Created(created) => document(StatusCode::CREATED, created),
        Answer::Found(found) => document(StatusCode::OK, found),
        Answer::NotModified { etag } => {
            Shown { etag: Some(etag), ..Shown::new(StatusCode::NOT_MODIFIED, Bytes::new()) }
        }
        Answer::Deleted => Shown::new(StatusCode::NO_CONTENT, Bytes::new()),
        Answer::Done => Shown::new(StatusCode::OK, Bytes::new()),
        Answer::Page(page) => Shown::page(page, member),
        // P-70: the etag is there on both, and there is no continuation.
        Answer::Changes { page, etag } if page.values.is_empty() => Shown {
            etag: Some(etag),
            item_count: Some(0),
            ..Shown::new(StatusCode::NOT_MODIFIED, Bytes::new())
        },
        Answer::Changes { page, etag } => {
            Shown { etag: Some(etag), continuation: None, ..Shown::page(page, member) }
        }
        Answer::Operations(results) => {
            let is_success = results.iter().all(|result| result.status < 400);
            let status = if is_success { StatusCode::OK } else { StatusCode::MULTI_STATUS };
            Shown::new(status, operations(&results, asked))
        }
        Answer::Explanation(json) => Shown::new(StatusCode::OK, json),
        Answer::Advanced { now_ms } => {
            let now = crate::iso::date_in_milliseconds(now_ms);
            Shown::new(StatusCode::OK, format!("{{\"now\":\"{now}\"}}").into())
        }
    }
}

/// P-24
pub fn feed(parent_rid: &str, member: &str, values: &[Bytes]) -> Bytes {
    let length: usize = values.iter().map(|value| value.len() + 1).sum();
    let mut body = BytesMut::with_capacity(length + parent_rid.len() + member.len() + 48);
    body.put_slice(b"{\"_rid\":\"");
    body.put_slice(parent_rid.as_bytes());
    body.put_slice(b"\",\"");
    body.put_slice(member.as_bytes());
    body.put_slice(b"\":[");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(value);
    }
    let _ = write!(body, "],\"_count\":{}}}", values.len());
    body.freeze()
}

/// One entry for each operation of a batch, in order (P-57, P-61).
fn operations(results: &[OperationResult], asked: &Asked<'_>) -> Bytes {
    let mut body = BytesMut::with_capacity(64 * results.len() + 2);
    body.put_u8(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        let _ = write!(body, "{{\"statusCode\":{}", result.status);
        if result.sub_status != 0 {
            let _ = write!(body, ",\"subStatusCode\":{}", result.sub_status);
        }
        let _ = write!(body, ",\"requestCharge\":{}.{:02}", result.charge / 100, result.charge % 100);
        if let Some(Document { body: item, etag }) = &result.document {
            let _ = write!(body, ",\"eTag\":{}", serde_json::Value::from(etag.as_str()));
            if !asked.wants_no_content || asked.batch_reads.get(index) == Some(&true) {
                body.put_slice(b",\"resourceBody\":");
                body.put_slice(item);
            }
        }
        if let Some(after) = result.retry_after_ms {
            let _ = write!(body, ",\"retryAfterMilliseconds\":{after}");
        }
        if let Some(message) = &result.message {
            let _ = write!(body, ",\"message\":{}", serde_json::Value::from(message.as_str()));
        }
        body.put_u8(b'}');
    }
    body.put_u8(b']');
    body.freeze()
}

/// A name as it may stand in a header; most may as they are.
fn safe(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, UNSAFE).into()
}

/// P-47, P-82, P-83
fn put_place(headers: &mut HeaderMap, place: &ContainerFacts, asked: &Asked<'_>) {
    let shared = |text: String| HeaderValue::from_maybe_shared(Bytes::from(text)).ok();
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut text = Vec::new();
        write(&mut text);
        HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
    };
    let mut put = |name: HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    };
    put(SESSION, written(&|text| push_session(text, place.lsn)));
    put(LSN, Some(place.lsn.into()));
    put(COMMITTED_LSN, Some(place.lsn.into()));
    put(ITEM_LSN, place.item_lsn.map(Into::into));
    let container = asked.resource.is_in_container().then_some(&*place.container);
    put(ALT_PATH, written(&|text| push_path(text, &place.database, container)));
    if container.is_some() {
        put(PATH, HeaderValue::from_str(&place.container_rid).ok());
        put(RANGE_ID, Some(HeaderValue::from_static(RANGE)));
    }
    if asked.wants_quota {
        let kilobytes = place.item_bytes.div_ceil(1_024);
        let count = place.item_count;
        let usage = format!(
            "documentSize=0;documentsSize={kilobytes};documentsCount={count};collectionSize={kilobytes};"
        );
        put(USAGE, shared(usage));
        let quota = "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;";
        put(QUOTA, Some(HeaderValue::from_static(quota)));
        put(INDEXED, Some(HeaderValue::from_static("100")));
    }
}

/// 12.2: every entry has its equals sign.
fn told_metrics(metrics: Metrics) -> HeaderValue {
    let text = format!(
        "totalExecutionTimeInMs=0.00;queryCompileTimeInMs=0.00;queryLogicalPlanBuildTimeInMs=0.00;\
         queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=0.00;\
         indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;\
         userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={};retrievedDocumentSize={};outputDocumentCount={};\
         outputDocumentSize={};writeOutputTimeInMs=0.00;indexUtilizationRatio={:.2}",
        metrics.retrieved_items,
        metrics.retrieved_bytes,
        metrics.returned_items,
        metrics.returned_bytes,
        if metrics.used_index { 1.0 } else { 0.0 },
    );
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
