//! Deleting everything of a partition key.

use super::Scene;
use crate::account::Decided;
use crate::item::body;
use crate::item::stored::{Numbers, Stored};
use crate::item::transaction::place;
use crate::item::ttl;
use crate::keys::{self, Section};
use crate::record::{Event, Record, Why, Write};
use crate::view::Direction;
use crate::{Answer, ContainerPath, PartitionKey, Refusal, Reply, charge, effective_key, limits, order};

impl Scene<'_> {
    /// Few items are removed at once. Many are hidden at once, by one record, and removed by the purge.
    pub fn delete_partition(&self, path: &ContainerPath, key: &PartitionKey) -> Result<Decided, Refusal> {
        let container = self.definitions.owner_container(path)?;
        let settings = &container.settings;
        let key = body::key_or_prefix(settings, key)?;
        let mut numbers = Numbers::read(self.view, container.number)?;
        let now = self.now.max(numbers.written);
        let (from, to) = effective_key::range(&key.0, settings.hashing);
        let bound = |effective: &[u8]| {
            let mut place = keys::section(container.number, Section::Items);
            order::push_open_text(&mut place, effective);
            place
        };
        let mut writes = Vec::new();
        let mut has_more = false;
        for entry in self.view.scan(&bound(&from), &bound(&to), Direction::Ascending) {
            let (item_key, value) = entry?;
            let place = item_key.slice(keys::SECTION_BYTES..);
            let Some((_, own, _)) = keys::place_parts(&place, settings.key_paths.len()) else { continue };
            if !ttl::begins_with(&own, &key) || ttl::is_gone(container, &Stored::decode(&value)?, &place, now)
            {
                continue;
            }
            if writes.len() == limits::PARTITION_DELETE_ITEMS {
                has_more = true;
                break;
            }
            writes.push(Write::Remove { place, why: Why::Deleted });
        }
        let lsn = numbers.lsn + 1;
        let count = writes.len() as u64;
        let event = if has_more {
            if container.gone.partitions.len() >= limits::DELETED_PARTITIONS {
                return Err(Refusal::TooManyRequests { retry_after_ms: 1_000 });
            }
            Some(Event::PartitionDeleted { container: container.number, lsn, key })
        } else if writes.is_empty() {
            None
        } else {
            Some(Event::ItemsWritten { container: container.number, lsn, writes })
        };
        numbers.lsn += u64::from(event.is_some());
        let records = event.map(|event| Record { at: now, event }).into_iter().collect();
        let reply = Reply {
            answer: Answer::Done,
            charge: charge::PLAIN + count * charge::change(1_024),
            place: Some(place(container, &numbers, None)),
        };
        Ok(Decided { records, reply })
    }
}
