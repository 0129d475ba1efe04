//! A list of items as a source of queries.
#![allow(dead_code, reason = "each test uses its part")]

use bytes::Bytes;
use otobus_items::query::{Candidate, PageRequest, Prepared, Source};
use otobus_items::{Refusal, Time};

/// 2020-07-08T17:05:12.345Z.
pub const NOW: Time = Time(1_594_227_912_345);

pub struct List {
    candidates: Vec<Candidate>,
}

impl List {
    /// Positions are the places in the list, as text.
    pub fn new(items: Vec<String>) -> List {
        let candidate = |(place, item): (usize, String)| Candidate {
            position: Bytes::from(format!("{place:06}")),
            place: Bytes::from(format!("{place:06}")),
            body: Bytes::from(item),
        };
        List { candidates: items.into_iter().enumerate().map(candidate).collect() }
    }

    pub fn without(&self, place: usize) -> List {
        let mut candidates = self.candidates.clone();
        candidates.remove(place);
        List { candidates }
    }

    pub fn source<'l>(&'l self, start: Option<&Bytes>) -> ListSource<'l> {
        let from =
            start.map_or(0, |start| self.candidates.partition_point(|candidate| candidate.position < *start));
        ListSource { rest: &self.candidates[from..] }
    }

    /// All rows, page after page.
    pub fn pages(&self, query: &Prepared, max_items: usize) -> Result<Vec<Bytes>, Refusal> {
        let mut rows = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let resume = continuation.as_deref().map(|token| query.resume(token, 7)).transpose()?;
            let mut source = self.source(resume.as_ref().and_then(|resume| resume.start()));
            let page = PageRequest { max_items, resume: resume.clone(), binding: 7, is_ordered: false };
            let page = query.run(&mut source, page, NOW)?;
            assert!(page.values.len() <= max_items);
            rows.extend(page.values);
            match page.continuation {
                Some(token) => continuation = Some(token),
                None => return Ok(rows),
            }
        }
    }
}

pub struct ListSource<'l> {
    rest: &'l [Candidate],
}

impl Source for ListSource<'_> {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal> {
        let Some((first, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        Ok(Some(first.clone()))
    }
}
