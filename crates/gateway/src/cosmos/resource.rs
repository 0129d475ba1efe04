//! What is addressed, and what shall be done with it.

use super::address::Address;
use super::failure::Failure;
use super::headers::Headers;
use hyper::Method;
use items::{ContainerPath, QueryScope, ScriptKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    Account,
    Databases,
    Database(String),
    Containers(String),
    Container(ContainerPath),
    Items(ContainerPath),
    Item(ContainerPath, String),
    Ranges(ContainerPath),
    Scripts(ContainerPath, ScriptKind),
    Script(ContainerPath, ScriptKind, String),
    Conflicts(ContainerPath),
    Conflict,
    PartitionKeyDelete(ContainerPath),
    Users(String),
    User(String, String),
    Permissions(String, String),
    Permission(String, String, String),
    Offers,
    Offer(String),
    EncryptionKeys(String),
    EncryptionKey(String, String),
    /// `/$otobus/clock`
    Clock,
}

/// What a method and its headers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Read,
    /// Everything in a feed, or what changed in it.
    List,
    Query,
    /// How a query could be taken apart (12.3).
    Plan,
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
    /// Transactional or bulk (section 11).
    Batch,
    Execute,
}

impl Verb {
    /// Whether a read-only key is not enough (P-20).
    pub fn writes(self) -> bool {
        !matches!(self, Verb::Read | Verb::List | Verb::Query | Verb::Plan)
    }
}

impl Resource {
    /// `intended_rid` is `x-ms-cosmos-intended-collection-rid`.
    pub fn of(address: &Address<'_>, intended_rid: Option<&str>) -> Option<Resource> {
        let container = |database: &str, container: &str| ContainerPath {
            intended_rid: intended_rid.map(str::to_owned),
            ..ContainerPath::new(database, container)
        };
        let segments = address.segments();
        let script_kind = |kind: &str| match kind {
            "sprocs" => Some(ScriptKind::Procedure),
            "triggers" => Some(ScriptKind::Trigger),
            "udfs" => Some(ScriptKind::Function),
            _ => None,
        };
        Some(match *segments.as_slice() {
            [] => Resource::Account,
            ["dbs"] => Resource::Databases,
            ["dbs", d] => Resource::Database(d.to_owned()),
            ["dbs", d, "colls"] => Resource::Containers(d.to_owned()),
            ["dbs", d, "colls", c] => Resource::Container(container(d, c)),
            ["dbs", d, "colls", c, "docs"] => Resource::Items(container(d, c)),
            ["dbs", d, "colls", c, "docs", id] => Resource::Item(container(d, c), id.to_owned()),
            ["dbs", d, "colls", c, "pkranges"] => Resource::Ranges(container(d, c)),
            ["dbs", d, "colls", c, "conflicts"] => Resource::Conflicts(container(d, c)),
            ["dbs", _, "colls", _, "conflicts", _] => Resource::Conflict,
            ["dbs", d, "colls", c, "operations", "partitionkeydelete"] => {
                Resource::PartitionKeyDelete(container(d, c))
            }
            ["dbs", d, "colls", c, kind] => Resource::Scripts(container(d, c), script_kind(kind)?),
            ["dbs", d, "colls", c, kind, id] => {
                Resource::Script(container(d, c), script_kind(kind)?, id.to_owned())
            }
            ["dbs", d, "users"] => Resource::Users(d.to_owned()),
            ["dbs", d, "users", u] => Resource::User(d.to_owned(), u.to_owned()),
            ["dbs", d, "users", u, "permissions"] => Resource::Permissions(d.to_owned(), u.to_owned()),
            ["dbs", d, "users", u, "permissions", p] => {
                Resource::Permission(d.to_owned(), u.to_owned(), p.to_owned())
            }
            ["dbs", d, "clientencryptionkeys"] => Resource::EncryptionKeys(d.to_owned()),
            ["dbs", d, "clientencryptionkeys", key] => Resource::EncryptionKey(d.to_owned(), key.to_owned()),
            ["offers"] => Resource::Offers,
            ["offers", offer] => Resource::Offer(offer.to_owned()),
            ["$otobus", "clock"] => Resource::Clock,
            _ => return None,
        })
    }

    /// What the method means here. Decided by the head alone, so that nobody's body is read who may not write.
    pub fn verb(&self, method: &Method, headers: Headers<'_>) -> Result<Verb, Failure> {
        let is_feed = self.is_feed();
        let not_allowed = Err(Failure::method_not_allowed());
        match *method {
            Method::GET if is_feed => Ok(Verb::List),
            Method::GET if !matches!(self, Resource::PartitionKeyDelete(_)) => Ok(Verb::Read),
            Method::POST => match self {
                // P-31: in this order.
                Resource::Items(_) if headers.flag("x-ms-cosmos-is-query-plan-request") => Ok(Verb::Plan),
                Resource::Items(_) if headers.flag("x-ms-cosmos-is-batch-request") => Ok(Verb::Batch),
                Resource::Ranges(_) => not_allowed,
                _ if is_feed && headers.is_query() => Ok(Verb::Query),
                Resource::Offers | Resource::Conflicts(_) => not_allowed,
                _ if is_feed && headers.flag("x-ms-documentdb-is-upsert") => Ok(Verb::Upsert),
                _ if is_feed => Ok(Verb::Create),
                Resource::Script(..) => Ok(Verb::Execute),
                Resource::PartitionKeyDelete(_) => Ok(Verb::Delete),
                Resource::Clock => Ok(Verb::Create),
                _ => not_allowed,
            },
            Method::PUT => match self {
                Resource::Container(_)
                | Resource::Item(..)
                | Resource::Script(..)
                | Resource::User(..)
                | Resource::Permission(..)
                | Resource::EncryptionKey(..)
                | Resource::Offer(_) => Ok(Verb::Replace),
                _ => not_allowed,
            },
            Method::PATCH if matches!(self, Resource::Item(..)) => Ok(Verb::Patch),
            Method::DELETE => match self {
                Resource::Database(_)
                | Resource::Container(_)
                | Resource::Item(..)
                | Resource::Script(..)
                | Resource::User(..)
                | Resource::Permission(..)
                | Resource::Conflict => Ok(Verb::Delete),
                _ => not_allowed,
            },
            _ => not_allowed,
        }
    }

    /// Whether something can be listed here.
    fn is_feed(&self) -> bool {
        match self {
            Resource::Databases
            | Resource::Containers(_)
            | Resource::Items(_)
            | Resource::Ranges(_)
            | Resource::Scripts(..)
            | Resource::Conflicts(_)
            | Resource::Users(_)
            | Resource::Permissions(..)
            | Resource::EncryptionKeys(_)
            | Resource::Offers => true,
            Resource::Account
            | Resource::Database(_)
            | Resource::Container(_)
            | Resource::Item(..)
            | Resource::Script(..)
            | Resource::Conflict
            | Resource::PartitionKeyDelete(_)
            | Resource::User(..)
            | Resource::Permission(..)
            | Resource::Offer(_)
            | Resource::EncryptionKey(..)
            | Resource::Clock => false,
        }
    }

    /// What can be listed and queried here.
    pub fn query_scope(&self) -> Option<QueryScope> {
        Some(match self {
            Resource::Databases => QueryScope::Databases,
            Resource::Containers(database) => QueryScope::Containers { database: database.clone() },
            Resource::Items(container) => QueryScope::Items { container: container.clone() },
            Resource::Scripts(container, kind) => {
                QueryScope::Scripts { container: container.clone(), kind: *kind }
            }
            Resource::Users(database) => QueryScope::Users { database: database.clone() },
            Resource::Permissions(database, user) => {
                QueryScope::Permissions { database: database.clone(), user: user.clone() }
            }
            Resource::EncryptionKeys(database) => QueryScope::EncryptionKeys { database: database.clone() },
            Resource::Offers => QueryScope::Offers,
            _ => return None,
        })
    }

    /// The member of a feed that holds its values (section 5).
    pub fn feed_member(&self) -> &'static str {
        match self {
            Resource::Databases => "Databases",
            Resource::Containers(_) => "DocumentCollections",
            Resource::Ranges(_) => "PartitionKeyRanges",
            Resource::Scripts(_, ScriptKind::Procedure) => "StoredProcedures",
            Resource::Scripts(_, ScriptKind::Trigger) => "Triggers",
            Resource::Scripts(_, ScriptKind::Function) => "UserDefinedFunctions",
            Resource::Conflicts(_) => "Conflicts",
            Resource::Users(_) => "Users",
            Resource::Permissions(..) => "Permissions",
            Resource::EncryptionKeys(_) => "ClientEncryptionKeys",
            Resource::Offers => "Offers",
            _ => "Documents",
        }
    }

    /// Whether answers belong to items, with the headers of items.
    pub fn is_in_container(&self) -> bool {
        !matches!(self, Resource::Container(_) | Resource::Containers(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;
    use hyper::header::{HeaderName, HeaderValue};

    fn verb(method: Method, path: &str, pairs: &[(&'static str, &'static str)]) -> Result<Verb, u16> {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let resource = Resource::of(&Address::read(path).unwrap(), None).ok_or(404u16)?;
        resource.verb(&method, Headers::of(&headers)).map_err(|failure| failure.status)
    }

    // P-31
    #[test]
    fn a_post_to_items_is_told_by_its_headers_in_order() {
        let items = "/dbs/d/colls/c/docs/";
        let (plan, batch) =
            (("x-ms-cosmos-is-query-plan-request", "True"), ("x-ms-cosmos-is-batch-request", "true"));
        let query = ("x-ms-documentdb-isquery", "True");
        let upsert = ("x-ms-documentdb-is-upsert", "true");
        let post = |pairs: &[_]| verb(Method::POST, items, pairs);
        assert_eq!(post(&[plan, query]), Ok(Verb::Plan));
        assert_eq!(post(&[plan, ("content-type", "application/query+json")]), Ok(Verb::Plan));
        assert_eq!(post(&[batch]), Ok(Verb::Batch));
        assert_eq!(post(&[query]), Ok(Verb::Query));
        assert_eq!(post(&[("x-ms-documentdb-query", "True")]), Ok(Verb::Query));
        assert_eq!(post(&[("content-type", "application/query+json")]), Ok(Verb::Query));
        assert_eq!(post(&[upsert]), Ok(Verb::Upsert));
        assert_eq!(post(&[]), Ok(Verb::Create));
    }

    #[test]
    fn every_verb_has_its_place() {
        for (method, path, expected) in [
            (Method::GET, "/", Ok(Verb::Read)),
            (Method::GET, "/dbs", Ok(Verb::List)),
            (Method::GET, "/dbs/d/colls/c/pkranges", Ok(Verb::List)),
            (Method::GET, "/dbs/d/colls/c/docs/i", Ok(Verb::Read)),
            (Method::POST, "/dbs/d/colls/c/docs/i", Err(405)),
            (Method::PATCH, "/dbs/d/colls/c/docs/i", Ok(Verb::Patch)),
            (Method::PATCH, "/dbs/d/colls/c", Err(405)),
            (Method::PUT, "/dbs/d", Err(405)),
            (Method::POST, "/offers", Err(405)),
            (Method::POST, "/dbs/d/colls/c/sprocs/s", Ok(Verb::Execute)),
            (Method::POST, "/dbs/d/colls/c/operations/partitionkeydelete", Ok(Verb::Delete)),
            (Method::GET, "/dbs/d/colls/c/operations/partitionkeydelete", Err(405)),
            (Method::HEAD, "/dbs", Err(405)),
            (Method::DELETE, "/dbs", Err(405)),
            (Method::GET, "/dbs/d/colls/c/attachments", Err(404)),
            (Method::GET, "/nothing", Err(404)),
        ] {
            assert_eq!(verb(method.clone(), path, &[]), expected, "{method} {path}");
        }
    }

    // P-20
    #[test]
    fn what_only_reads_is_told_apart() {
        let reads = [Verb::Read, Verb::List, Verb::Query, Verb::Plan];
        let writes = [
            Verb::Create,
            Verb::Upsert,
            Verb::Replace,
            Verb::Patch,
            Verb::Delete,
            Verb::Batch,
            Verb::Execute,
        ];
        assert!(!reads.into_iter().any(Verb::writes) && writes.into_iter().all(Verb::writes));
    }
}
