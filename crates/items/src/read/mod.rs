//! Reading: definitions, items, feeds, queries. On a view of what is committed; nothing is changed.

mod change_feed;
pub mod changes;
mod feed;
mod items;
mod lists;
pub mod position;
mod query;

pub use query::NEEDS_LEAVE;

use crate::account::plain;
use crate::definition::{Definitions, show};
use crate::item::stored::Numbers;
use crate::item::transaction::{place, same_etag};
use crate::keys::Kind;
use crate::query::Watch;
use crate::{Answer, Budget, Command, ContainerPath, Refusal, Reply, Time, View, charge};

pub fn command(
    definitions: &Definitions,
    command: &Command,
    view: &dyn View,
    now: Time,
    budget: &mut Budget,
    watch: &dyn Watch,
) -> Result<Reply, Refusal> {
    let scene = Scene { definitions, view, now, watch };
    match command {
        Command::ReadDatabase { database } => {
            let found = definitions.database(database).ok_or(Refusal::NotFound)?;
            Ok(plain(Answer::Found(show::database(found))))
        }
        Command::ReadContainer { container, if_none_match } => {
            scene.read_container(container, if_none_match.as_deref())
        }
        Command::ReadItem { item, if_none_match, .. } => scene.read_item(item, if_none_match.as_deref()),
        Command::ReadScript { container, kind, id } => {
            let parent = definitions.owner_container(container)?.number;
            scene.read_document((*kind).into(), parent, id)
        }
        Command::ReadUser { database, user } => {
            scene.read_document(Kind::User, definitions.owner_database(database)?.number, user)
        }
        Command::ReadPermission { database, user, permission } => {
            let database = definitions.owner_database(database)?.number;
            let user = definitions.document(Kind::User, database, user).ok_or(Refusal::OwnerNotFound)?;
            scene.read_document(Kind::Permission, user.number, permission)
        }
        Command::ReadEncryptionKey { database, key } => {
            scene.read_document(Kind::EncryptionKey, definitions.owner_database(database)?.number, key)
        }
        Command::ReadOffer { offer } => {
            let offer = definitions.offer(offer)?;
            Ok(plain(Answer::Found(show::offer(definitions, &offer))))
        }
        Command::ReadRanges { container } => {
            let container = definitions.owner_container(container)?;
            let numbers = Numbers::read(view, container.number)?;
            let mut reply = plain(Answer::Found(show::range(container, numbers.lsn)));
            reply.place = Some(place(container, &numbers, None));
            Ok(reply)
        }
        Command::List { of, listing } => scene.list(of, listing),
        Command::ReadFeed { container, scope, listing, .. } => {
            scene.read_feed(container, scope, listing, budget)
        }
        Command::ChangeFeed { container, scope, mode, start, max_items } => {
            scene.change_feed(container, scope, *mode, start, *max_items, budget)
        }
        Command::Query(query) => scene.query(query),
        Command::Explain(query) => scene.explain(query),
        _ => Err(Refusal::NotAvailable("Reading what is decided")),
    }
}

/// What a read sees.
#[derive(Clone, Copy)]
struct Scene<'a> {
    definitions: &'a Definitions,
    view: &'a dyn View,
    now: Time,
    watch: &'a dyn Watch,
}

impl Scene<'_> {
    fn read_container(&self, path: &ContainerPath, if_none_match: Option<&str>) -> Result<Reply, Refusal> {
        let container = self.definitions.container(path)?;
        let numbers = Numbers::read(self.view, container.number)?;
        let shown = show::container(container);
        let is_same = if_none_match.is_some_and(|etag| same_etag(etag, &shown.etag));
        let answer = if is_same { Answer::NotModified { etag: shown.etag } } else { Answer::Found(shown) };
        Ok(Reply { answer, charge: charge::PLAIN, place: Some(place(container, &numbers, None)) })
    }

    fn read_document(&self, kind: Kind, parent: u32, segment: &str) -> Result<Reply, Refusal> {
        let document = self.definitions.document(kind, parent, segment).ok_or(Refusal::NotFound)?;
        Ok(plain(Answer::Found(show::document(self.definitions, document))))
    }
}
