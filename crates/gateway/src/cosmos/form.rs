//! The headers of an answer that shows an item: a form, filled in.
//!
//! Such an answer has two dozen headers. Entering each into a map, with memory of its own for its value, takes longer than finding
//! the item. So the map is made once, and each answer gets a copy of it with its own values in their places; what these say stands in one
//! piece of memory.

use super::headers::RANGE;
use super::response::{
    ACTIVITY, ALT_PATH, CHARGE, COMMITTED_LSN, DURATION, ITEM_LSN, JSON, LSN, PATH, RANGE_ID, SESSION,
    TRANSPORT, push_charge, push_decimal, push_path, push_session,
};
use crate::limits;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};
use items::ContainerFacts;

const COUNT: usize = 11;

/// What is filled in. The duration is known when the answer is there.
const BLANKS: [HeaderName; COUNT] =
    [ACTIVITY, ETAG, CHARGE, TRANSPORT, SESSION, LSN, COMMITTED_LSN, ITEM_LSN, ALT_PATH, PATH, DURATION];

const EMPTY: HeaderValue = HeaderValue::from_static("");

#[derive(Debug)]
pub(super) struct Form {
    headers: HeaderMap,
    /// For each header, in the order in which the map has them: which blank it is.
    blanks: Vec<Option<usize>>,
}

/// What an answer about an item says.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub activity: HeaderValue,
    pub etag: &'a str,
    pub charge: u64,
    /// The number of the answer.
    pub transport: u64,
    pub item_lsn: u64,
    pub place: &'a ContainerFacts,
}

impl Form {
    /// `usual` are the headers that every answer has.
    pub(super) fn new(usual: &HeaderMap) -> Form {
        let mut headers = usual.clone();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(RANGE_ID, HeaderValue::from_static(RANGE));
        for name in BLANKS {
            headers.insert(name, EMPTY);
        }
        let blanks = headers.keys().map(|name| BLANKS.iter().position(|blank| blank == name)).collect();
        Form { headers, blanks }
    }

    /// `None` if something cannot stand in a header.
    pub(super) fn filled(&self, facts: Facts<'_>) -> Option<HeaderMap> {
        let mut values = values(facts)?;
        let mut headers = self.headers.clone();
        for (value, blank) in headers.values_mut().zip(&self.blanks) {
            if let Some(nth) = blank {
                *value = std::mem::replace(&mut values[*nth], EMPTY);
            }
        }
        Some(headers)
    }
}

/// In the order of the blanks.
fn values(facts: Facts<'_>) -> Option<[HeaderValue; COUNT]> {
    let place = facts.place;
    let mut text = Vec::with_capacity(limits::ANSWER_TEXT_BYTES);
    let mut put = |write: &dyn Fn(&mut Vec<u8>)| {
        let start = text.len();
        write(&mut text);
        start..text.len()
    };
    let etag = put(&|text| text.extend_from_slice(facts.etag.as_bytes()));
    let charge = put(&|text| push_charge(text, facts.charge));
    let transport = put(&|text| push_decimal(text, facts.transport));
    let session = put(&|text| push_session(text, place.lsn));
    let lsn = put(&|text| push_decimal(text, place.lsn));
    let item_lsn = put(&|text| push_decimal(text, facts.item_lsn));
    let alternative = put(&|text| push_path(text, &place.database, Some(&place.container)));
    let path = put(&|text| text.extend_from_slice(place.container_rid.as_bytes()));
    let text = Bytes::from(text);
    let value = |range| HeaderValue::from_maybe_shared(text.slice(range)).ok();
    let lsn = value(lsn)?;
    Some([
        facts.activity,
        value(etag)?,
        value(charge)?,
        value(transport)?,
        value(session)?,
        lsn.clone(),
        lsn,
        value(item_lsn)?,
        value(alternative)?,
        value(path)?,
        EMPTY,
    ])
}
