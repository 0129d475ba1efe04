//! The change feed: latest versions, or all versions and deletes (section 14).

use super::Scene;
use super::changes::{self, Changes};
use super::lists::page_items;
use crate::definition::{Container, show};
use crate::item::event::Event;
use crate::item::scope::Scope;
use crate::item::stored::{Numbers, Stored};
use crate::item::transaction::place;
use crate::item::ttl;
use crate::keys::{self, Section, Version};
use crate::view::Direction;
use crate::{
    Answer, Budget, ChangeFeedMode, ChangeFeedStart, ContainerPath, Page, Refusal, Reply, Time, charge,
    limits, order,
};
use bytes::Bytes;

impl Scene<'_> {
    pub(super) fn change_feed(
        &self,
        path: &ContainerPath,
        scope: &crate::Scope,
        mode: ChangeFeedMode,
        start: &ChangeFeedStart,
        max_items: Option<i64>,
        budget: &mut Budget,
    ) -> Result<Reply, Refusal> {
        let container = self.definitions.owner_container(path)?;
        let numbers = Numbers::read(self.view, container.number)?;
        let scope = Scope::of(&container.settings, scope)?;
        let mut feed = Feed {
            container,
            scope,
            now: self.now.max(numbers.written),
            most: page_items(max_items)?,
            page: Page { parent_rid: container.rid.to_string(), ..Page::default() },
            bytes: 0,
            steps: 0,
            // Until the page is full, what comes next is behind everything there is.
            seen: numbers.lsn,
        };
        match mode {
            ChangeFeedMode::LatestVersion => {
                let after = self.start(container, &numbers, start)?;
                feed.latest(self.view, after, budget)?;
            }
            ChangeFeedMode::AllVersionsAndDeletes => {
                let after = all_versions_start(container, &numbers, start)?;
                feed.all_versions(self.view, after, budget)?;
            }
        }
        let charge = charge::page(feed.steps, feed.bytes as u64);
        let etag = format!("\"{}\"", feed.seen);
        let answer = Answer::Changes { page: feed.page, etag };
        Ok(Reply { answer, charge, place: Some(place(container, &numbers, None)) })
    }

    /// The transaction behind which the feed begins (P-69).
    fn start(
        &self,
        container: &Container,
        numbers: &Numbers,
        start: &ChangeFeedStart,
    ) -> Result<u64, Refusal> {
        Ok(match start {
            ChangeFeedStart::Beginning => 0,
            ChangeFeedStart::Now => numbers.lsn,
            ChangeFeedStart::Time(second) => {
                changes::since(self.view, container, *second)?.lsn.saturating_sub(1)
            }
            ChangeFeedStart::After(etag) => read_etag(etag)?.min(numbers.lsn),
        })
    }
}

fn read_etag(etag: &str) -> Result<u64, Refusal> {
    let bare = etag.trim_matches('"');
    bare.parse()
        .map_err(|_| Refusal::bad("Invalid Continuation Token: it is not one that the change feed gave."))
}

/// P-73
fn all_versions_start(
    container: &Container,
    numbers: &Numbers,
    start: &ChangeFeedStart,
) -> Result<u64, Refusal> {
    if container.settings.retention_ms.is_none() {
        return Err(Refusal::bad(
            "The change feed mode All Versions and Deletes must be enabled on the container: give it a changeFeedPolicy with a retentionDuration.",
        ));
    }
    match start {
        ChangeFeedStart::Now => Ok(numbers.lsn),
        ChangeFeedStart::After(etag) => {
            let after = read_etag(etag)?.min(numbers.lsn);
            if after < numbers.forgotten {
                return Err(Refusal::bad(
                    "The continuation of the change feed is too old. You must read the change feed from within the retention period.",
                ));
            }
            Ok(after)
        }
        ChangeFeedStart::Beginning | ChangeFeedStart::Time(_) => Err(Refusal::bad(
            "The change feed mode All Versions and Deletes begins now or at a continuation. You must read the change feed from within the retention period.",
        )),
    }
}

struct Feed<'a> {
    container: &'a Container,
    scope: Scope,
    now: Time,
    most: usize,
    page: Page,
    bytes: usize,
    steps: u64,
    /// The last transaction that the page is past.
    seen: u64,
}

impl Feed<'_> {
    /// Whether the page ends before this transaction. A transaction is never divided, so that a continuation is one number.
    fn ends_before(&mut self, lsn: u64, last: u64, budget: &mut Budget) -> bool {
        self.steps += 1;
        let is_out = !budget.step();
        let is_full = self.page.values.len() >= self.most || self.bytes >= limits::PAGE_BYTES || is_out;
        if is_full && lsn > last {
            self.seen = last;
            return true;
        }
        false
    }

    fn add(&mut self, text: Bytes) {
        self.bytes += text.len();
        self.page.values.push(text);
    }

    /// P-72
    fn latest(&mut self, view: &dyn crate::View, after: u64, budget: &mut Budget) -> Result<(), Refusal> {
        let container = self.container;
        let from = Version { lsn: after + 1, index: 0 };
        let mut last = after;
        for change in Changes::between(view, container.number, from, None, Direction::Ascending) {
            let change = change?;
            if self.ends_before(change.version.lsn, last, budget) {
                return Ok(());
            }
            last = change.version.lsn;
            if !self.scope.has(&container.settings, &change.place) {
                continue;
            }
            let Some(item) = Stored::read(view, container.number, &change.place)? else { continue };
            if !ttl::is_gone(container, &item, &change.place, self.now) {
                self.add(show::with_members(&item.text, &format!("\"_lsn\":{}", change.version.lsn)));
            }
        }
        Ok(())
    }

    fn all_versions(
        &mut self,
        view: &dyn crate::View,
        after: u64,
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        let container = self.container;
        let from = keys::event(container.number, Version { lsn: after + 1, index: 0 });
        let to = order::end_of_prefix(&keys::section(container.number, Section::Events));
        let mut last = after;
        for entry in view.scan(&from, &to, Direction::Ascending) {
            let (key, value) = entry?;
            let Some(version) = keys::event_version(&key) else { continue };
            if self.ends_before(version.lsn, last, budget) {
                return Ok(());
            }
            last = version.lsn;
            let event = Event::decode(value)?;
            if self.scope.has(&container.settings, &event.place) {
                self.add(event.show(container, version));
            }
        }
        Ok(())
    }
}
