//! Reading all items of a container or a part of it, page by page.

use super::lists::page_items;
use super::{Scene, position};
use crate::definition::Container;
use crate::index::plan;
use crate::item::scope::Scope;
use crate::item::stored::{Numbers, Stored};
use crate::item::transaction::place;
use crate::item::ttl;
use crate::keys::{self, Section};
use crate::order;
use crate::view::{Direction, Unreadable, View};
use crate::{Answer, Budget, ContainerPath, Listing, Page, Refusal, Reply, charge, limits};
use bytes::Bytes;

impl Scene<'_> {
    pub(super) fn read_feed(
        &self,
        path: &ContainerPath,
        scope: &crate::Scope,
        listing: &Listing,
        budget: &mut Budget,
    ) -> Result<Reply, Refusal> {
        let container = self.definitions.owner_container(path)?;
        let settings = &container.settings;
        let numbers = Numbers::read(self.view, container.number)?;
        let now = self.now.max(numbers.written);
        let scope = Scope::of(settings, scope)?;
        let most = page_items(listing.max_items)?;
        let binding = u64::from(container.number);
        let resume = listing.continuation.as_ref();
        let resume = resume.map(|token| position::read_token(token, binding)).transpose()?;
        let feed = Feed { container, view: self.view, scope: &scope };
        let mut is_met = !resume.as_ref().is_some_and(|resume| position::is_cut(resume));
        let mut page = Page { parent_rid: container.rid.to_string(), ..Page::default() };
        let mut bytes = 0;
        let mut steps = 0;
        for entry in feed.entries(&numbers, resume.as_deref())? {
            let Entry { key, place: item_place, value } = entry?;
            let key_position = || position::of(&key[keys::SECTION_BYTES - 1..]);
            if let Some(resume) = resume.as_ref().filter(|_| !is_met) {
                let begins_so = key[keys::SECTION_BYTES - 1..].starts_with(position::start(resume));
                if begins_so && key_position() != *resume {
                    continue;
                }
                is_met = true;
            }
            steps += 1;
            if !budget.step() || page.values.len() == most {
                page.continuation = Some(position::token(binding, &key_position()));
                break;
            }
            if !scope.has(settings, &item_place) {
                continue;
            }
            let item = match value {
                Some(value) => Some(Stored::decode(&value)?),
                None => Stored::read(self.view, container.number, &item_place)?,
            };
            let Some(item) = item.filter(|item| !ttl::is_gone(container, item, &item_place, now)) else {
                continue;
            };
            if bytes + item.text.len() > limits::PAGE_BYTES && !page.values.is_empty() {
                page.continuation = Some(position::token(binding, &key_position()));
                break;
            }
            bytes += item.text.len();
            page.values.push(item.text);
        }
        let charge = charge::page(steps, bytes as u64);
        Ok(Reply { answer: Answer::Page(page), charge, place: Some(place(container, &numbers, None)) })
    }
}

/// What the pages of a feed are read from.
struct Feed<'a> {
    container: &'a Container,
    view: &'a dyn View,
    scope: &'a Scope,
}

/// An entry that leads to an item.
struct Entry {
    /// The page's position.
    key: Bytes,
    place: Bytes,
    /// The item, if it was read already.
    value: Option<Bytes>,
}

type Entries<'a> = Box<dyn Iterator<Item = Result<Entry, Unreadable>> + 'a>;

impl<'a> Feed<'a> {
    /// The items from this position on: in the order in which they were made, as in the service, unless there are too many.
    fn entries(&self, numbers: &Numbers, resume: Option<&[u8]>) -> Result<Entries<'a>, Unreadable> {
        let start =
            resume.map(|resume| [&keys::container(self.container.number), position::start(resume)].concat());
        let goes_on = start.as_ref().map(|start| start.starts_with(&self.section(Section::Rids)));
        let is_few = || {
            let range = self.scope.items(self.container);
            plan::has_more_than(self.view, &[range], limits::MADE_SORTED).map(|has_more| !has_more)
        };
        let most = if *self.scope == Scope::all() { limits::MADE_ITEMS } else { limits::MADE_ITEMS_SCOPED };
        match goes_on {
            Some(false) => Ok(self.by_place(start)),
            _ if is_few()? => self.sorted(start),
            Some(true) => Ok(self.by_number(start)),
            None if numbers.items <= most => Ok(self.by_number(start)),
            None => Ok(self.by_place(start)),
        }
    }

    fn section(&self, section: Section) -> Vec<u8> {
        keys::section(self.container.number, section)
    }

    fn by_place(&self, start: Option<Vec<u8>>) -> Entries<'a> {
        let (from, to) = self.scope.items(self.container);
        let from = start.map_or(from.clone(), |start| start.max(from));
        let entry = |(key, value): (Bytes, Bytes)| Entry {
            place: key.slice(keys::SECTION_BYTES..),
            key,
            value: Some(value),
        };
        Box::new(self.view.scan(&from, &to, Direction::Ascending).map(move |found| found.map(entry)))
    }

    fn by_number(&self, start: Option<Vec<u8>>) -> Entries<'a> {
        let from = self.section(Section::Rids);
        let to = order::end_of_prefix(&from);
        let entry = |(key, place): (Bytes, Bytes)| Entry { key, place, value: None };
        let found = self.view.scan(&start.unwrap_or(from), &to, Direction::Ascending);
        Box::new(found.map(move |found| found.map(entry)))
    }

    /// Few enough to be put in order. Only where they are is held: they are read when their turn comes.
    fn sorted(&self, start: Option<Vec<u8>>) -> Result<Entries<'a>, Unreadable> {
        let (from, to) = self.scope.items(self.container);
        let mut entries = Vec::new();
        for found in self.view.scan(&from, &to, Direction::Ascending) {
            let (key, value) = found?;
            let number = keys::by_rid(self.container.number, Stored::decode(&value)?.number);
            if start.as_ref().is_none_or(|start| number >= *start) {
                let place = key.slice(keys::SECTION_BYTES..);
                entries.push(Entry { key: number.into(), place, value: None });
            }
        }
        entries.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Box::new(entries.into_iter().map(Ok)))
    }
}
