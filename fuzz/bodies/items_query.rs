//! Any bytes, read as a query, and as the condition of a patch.
//!
//! Nothing panics, and what is read runs within its bounds.

use bytes::Bytes;
use otobus_items::query::{Candidate, PageRequest, Source, prepare, prepare_condition};
use otobus_items::{Refusal, Time};

const ITEM: &[u8] = br#"{"id":"a","n":1,"s":"text","l":[1,"x",{"y":null}],"o":{"p":{"q":true}}}"#;

struct Items(u8);

impl Source for Items {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal> {
        self.0 += 1;
        let place = Bytes::copy_from_slice(&[self.0]);
        let candidate = Candidate { position: place.clone(), place, body: Bytes::from_static(ITEM) };
        Ok((self.0 <= 3).then_some(candidate))
    }
}

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(query) = prepare(text, &[]) {
        let _ = query.wants();
        let page = PageRequest { max_items: 2, ..PageRequest::default() };
        if let Ok(rows) = query.run(&mut Items(0), page, Time(0)) {
            assert!(rows.values.len() <= 2);
            if let Some(token) = rows.continuation {
                query.resume(&token, 0).expect("its own continuation");
            }
        }
    }
    if let Ok(condition) = prepare_condition(text) {
        let mut steps = otobus_items::limits::CONDITION_STEPS;
        let _ = condition.holds(ITEM, Time(0), &mut steps);
    }
}
