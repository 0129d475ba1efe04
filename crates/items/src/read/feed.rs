//! Reading all items of a container or a part of it, page by page.

use super::lists::page_items;
use super::{Scene, position};
use crate::item::scope::Scope;
use crate::item::stored::{Numbers, Stored};
use crate::item::transaction::place;
use crate::item::ttl;
use crate::keys;
use crate::view::Direction;
use crate::{Answer, Budget, ContainerPath, Listing, Page, Refusal, Reply, charge, limits};

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
        let (mut from, to) = scope.items(container);
        let mut skips = None;
        if let Some(token) = &listing.continuation {
            let resume = position::read_token(token, binding)?;
            from = from.max(keys::item(container.number, position::start(&resume)));
            skips = position::is_cut(&resume).then_some(resume);
        }
        let mut page = Page { parent_rid: container.rid.to_string(), ..Page::default() };
        let mut bytes = 0;
        let mut steps = 0;
        for entry in self.view.scan(&from, &to, Direction::Ascending) {
            let (key, value) = entry?;
            let item_place = &key[keys::SECTION_BYTES..];
            if let Some(resume) = &skips {
                let is_behind = !item_place.starts_with(position::start(resume));
                if !is_behind && position::of(item_place) != *resume {
                    continue;
                }
                skips = None;
            }
            steps += 1;
            let item = Stored::decode(&value)?;
            let is_full = page.values.len() == most
                || (bytes + item.text.len() > limits::PAGE_BYTES && !page.values.is_empty());
            if is_full || !budget.step() {
                page.continuation = Some(position::token(binding, &position::of(item_place)));
                break;
            }
            if !scope.has(settings, item_place) || ttl::is_gone(container, &item, item_place, now) {
                continue;
            }
            bytes += item.text.len();
            page.values.push(item.text);
        }
        let charge = charge::page(steps, bytes as u64);
        Ok(Reply { answer: Answer::Page(page), charge, place: Some(place(container, &numbers, None)) })
    }
}
