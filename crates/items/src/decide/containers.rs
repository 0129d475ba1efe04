//! Containers: create, replace, delete (5.2).

use super::{Scene, taken};
use crate::account::Decided;
use crate::definition::container::{self, Settings};
use crate::definition::{Container, Gone, IndexState, offer, show};
use crate::item::stored::Numbers;
use crate::item::transaction::{place, same_etag};
use crate::json::Value;
use crate::record::Event;
use crate::{Answer, ContainerPath, Refusal, Throughput, charge, limits};
use bytes::Bytes;

impl Scene<'_> {
    pub fn create_container(
        &self,
        database: &str,
        body: &[u8],
        throughput: Option<Throughput>,
    ) -> Result<Decided, Refusal> {
        let database = self.definitions.owner_database(database)?;
        let (definition, settings) = container::read(body, None)?;
        throughput.map_or(Ok(()), offer::check)?;
        if self.definitions.container_names.contains_key(&(database.number, settings.name.clone())) {
            return Err(taken("container", &settings.name));
        }
        if self.definitions.containers_of(database.number).count() >= limits::CONTAINERS {
            return Err(Refusal::bad(format!(
                "The database has {} containers, the most it may have.",
                limits::CONTAINERS
            )));
        }
        let number = self.definitions.next;
        let stamp = self.definitions.next_stamp(self.now);
        let definition = Bytes::from(definition.to_text());
        self.check_room(2 * definition.len() + limits::DEFINITION_COST)?;
        let made = Container::new(
            database,
            number,
            stamp,
            definition.clone(),
            IndexState::default(),
            Gone::default(),
        )
        .ok_or_else(|| Refusal::bad("The definition of the container is malformed."))?;
        let offer = throughput.map(|throughput| (number + 1, throughput));
        let event =
            Event::ContainerCreated { database: database.number, container: number, definition, offer };
        let mut decided = self.decided(vec![event], Answer::Created(show::container(&made)));
        decided.reply.charge = charge::DEFINE;
        decided.reply.place = Some(place(&made, &Numbers::default(), None));
        Ok(decided)
    }

    pub fn replace_container(
        &self,
        path: &ContainerPath,
        body: &[u8],
        if_match: Option<&str>,
    ) -> Result<Decided, Refusal> {
        let before = self.definitions.container(path)?;
        if if_match.is_some_and(|etag| etag != "*" && !same_etag(etag, &before.stamp.etag())) {
            return Err(Refusal::PreconditionFailed("The container was changed since it was read."));
        }
        let (definition, _): (Value, Settings) = container::read(body, Some(&before.definition))?;
        let definition = Bytes::from(definition.to_text());
        self.check_room(2 * definition.len().saturating_sub(before.definition.len()))?;
        let event = Event::ContainerReplaced { container: before.number, definition: definition.clone() };
        let mut after = Container::clone(before);
        after.stamp = self.definitions.next_stamp(self.now);
        after.definition = definition;
        let mut decided = self.decided(vec![event], Answer::Found(show::container(&after)));
        decided.reply.charge = charge::DEFINE;
        decided.reply.place = Some(place(before, &Numbers::read(self.view, before.number)?, None));
        Ok(decided)
    }

    pub fn delete_container(&self, path: &ContainerPath) -> Result<Decided, Refusal> {
        let container = self.definitions.container(path)?.number;
        Ok(self.decided(vec![Event::ContainerDeleted { container }], Answer::Deleted))
    }
}
