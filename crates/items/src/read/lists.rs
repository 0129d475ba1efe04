//! Lists of definitions, in the order in which they were made.

use super::Scene;
use crate::account::plain;
use crate::definition::show;
use crate::keys::Kind;
use crate::{Answer, Listing, Page, QueryScope, Refusal, Reply, limits, rid};
use bytes::Bytes;

/// Definitions with their numbers, and the rid of what they belong to.
pub(super) struct Listed {
    pub parent_rid: String,
    pub documents: Vec<(u32, Bytes)>,
}

impl Scene<'_> {
    pub(super) fn listed(&self, of: &QueryScope) -> Result<Listed, Refusal> {
        let definitions = self.definitions;
        let documents_of = |kind: Kind, parent: u32| {
            let all = definitions.documents_of(kind, parent);
            all.map(|document| (document.number, show::document(definitions, document).body)).collect()
        };
        Ok(match of {
            QueryScope::Databases => Listed {
                parent_rid: String::new(),
                documents: definitions
                    .databases
                    .values()
                    .map(|d| (d.number, show::database(d).body))
                    .collect(),
            },
            QueryScope::Offers => Listed {
                parent_rid: String::new(),
                documents: definitions
                    .offers_told()
                    .iter()
                    .map(|o| (o.number, show::offer(definitions, o).body))
                    .collect(),
            },
            QueryScope::Containers { database } => {
                let database = definitions.owner_database(database)?.number;
                let containers = definitions.containers_of(database);
                Listed {
                    parent_rid: rid::database(database),
                    documents: containers.map(|c| (c.number, show::container(c).body)).collect(),
                }
            }
            QueryScope::Scripts { container, kind } => {
                let container = definitions.owner_container(container)?;
                Listed {
                    parent_rid: container.rid.to_string(),
                    documents: documents_of((*kind).into(), container.number),
                }
            }
            QueryScope::Users { database } => {
                let database = definitions.owner_database(database)?.number;
                Listed { parent_rid: rid::database(database), documents: documents_of(Kind::User, database) }
            }
            QueryScope::EncryptionKeys { database } => {
                let database = definitions.owner_database(database)?.number;
                Listed {
                    parent_rid: rid::database(database),
                    documents: documents_of(Kind::EncryptionKey, database),
                }
            }
            QueryScope::Permissions { database, user } => {
                let database = definitions.owner_database(database)?.number;
                let user = definitions.document(Kind::User, database, user).ok_or(Refusal::OwnerNotFound)?;
                Listed {
                    parent_rid: show::document_rid(definitions, user),
                    documents: documents_of(Kind::Permission, user.number),
                }
            }
            QueryScope::Items { .. } => return Err(Refusal::NotAvailable("Listing items without a feed")),
        })
    }

    pub(super) fn list(&self, of: &QueryScope, listing: &Listing) -> Result<Reply, Refusal> {
        let Listed { parent_rid, documents } = self.listed(of)?;
        let after = match &listing.continuation {
            None => 0,
            Some(token) => token.parse::<u32>().map_err(|_| {
                Refusal::bad("Invalid Continuation Token: it is not one that this list gave.")
            })?,
        };
        let most = page_items(listing.max_items)?;
        let mut page = Page { parent_rid, ..Page::default() };
        let mut bytes = 0;
        let mut last = after;
        for (number, body) in documents.into_iter().filter(|(number, _)| *number > after) {
            if page.values.len() == most
                || (bytes + body.len() > limits::PAGE_BYTES && !page.values.is_empty())
            {
                page.continuation = Some(last.to_string());
                break;
            }
            bytes += body.len();
            last = number;
            page.values.push(body);
        }
        Ok(plain(Answer::Page(page)))
    }
}

/// P-51
pub(super) fn page_items(asked: Option<i64>) -> Result<usize, Refusal> {
    match asked {
        None => Ok(limits::PAGE_ITEMS),
        Some(-1) => Ok(limits::PAGE_ITEMS_MOST),
        Some(count) if count >= 1 => {
            Ok(usize::try_from(count).unwrap_or(usize::MAX).min(limits::PAGE_ITEMS_MOST))
        }
        Some(count) => {
            Err(Refusal::bad(format!("A page of {count} items is invalid: it is -1 or at least 1.")))
        }
    }
}
