//! The namespaces of a server and how a client chooses one: by the first label of the host name that it uses, if there is
//! a namespace of that name; otherwise it gets the one called `default`.
//!
//! A name that was a namespace's once leads to nothing: a client that still uses it must not end up in another namespace.
//!
//! The list can be replaced while the server runs. A namespace that somebody holds stays what it was; connections look again
//! when [`Namespaces::changed`] says so.

use crate::auth::{Guard, Hosts, first_label};
use broker::{LocalTime, NamespaceId, Tier};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Namespace {
    pub id: NamespaceId,
    pub name: Box<str>,
    pub guard: Guard,
    pub created: LocalTime,
    pub tier: Tier,
}

#[derive(Debug)]
pub struct Namespaces {
    list: RwLock<List>,
    changes: watch::Sender<u64>,
    /// How often the list was replaced: connections compare it at every read of a socket.
    version: AtomicU64,
}

#[derive(Debug, Clone)]
struct List {
    default: Arc<Namespace>,
    others: Vec<Arc<Namespace>>,
    /// Those that were served once: nobody gets in there.
    closed: Vec<Arc<Namespace>>,
}

/// The number of every namespace that is no longer served; nothing is there.
const CLOSED: NamespaceId = NamespaceId(u32::MAX);

impl Namespaces {
    /// One namespace for everybody.
    pub fn single(guard: Guard) -> Namespaces {
        let (id, name, created) = (NamespaceId(0), "default".into(), LocalTime(0));
        let default = Namespace { id, name, guard, created, tier: Tier::default() };
        Namespaces::new(default, Vec::new(), &[])
    }

    /// `known` are the names that namespaces ever had.
    pub fn new(default: Namespace, others: Vec<Namespace>, known: &[Box<str>]) -> Namespaces {
        let list = List::new(default, others, known);
        Namespaces { list: RwLock::new(list), changes: watch::Sender::new(0), version: AtomicU64::new(0) }
    }

    /// Puts other ones in their place and tells everybody.
    pub fn replace(&self, default: Namespace, others: Vec<Namespace>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<_> = list.others.iter().chain(&list.closed).map(|known| known.name.clone()).collect();
        *list = List::new(default, others, &names);
        drop(list);
        self.version.fetch_add(1, Ordering::Release);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Another number after each replacement.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Tells of each replacement from now on.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The namespace for a host as the client names it, with or without a port, else for the name in its TLS greeting.
    pub fn of_host(&self, host: &str, server_name: Option<&str>) -> Arc<Namespace> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let named = |host: &str| {
            let mut known = list.others.iter().chain(&list.closed);
            known.find(|namespace| namespace.name.eq_ignore_ascii_case(first_label(host)))
        };
        let found = named(host).or_else(|| server_name.and_then(named));
        Arc::clone(found.unwrap_or(&list.default))
    }

    /// The namespace of this name, if it is served.
    pub fn named(&self, name: &str) -> Option<Arc<Namespace>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut served = std::iter::once(&list.default).chain(&list.others);
        served.find(|namespace| namespace.name.eq_ignore_ascii_case(name)).cloned()
    }

    pub fn of_id(&self, id: NamespaceId) -> Option<Arc<Namespace>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&list.default).chain(&list.others).find(|namespace| namespace.id == id).cloned()
    }
}

impl List {
    /// `known` are names that were served before.
    fn new(default: Namespace, others: Vec<Namespace>, known: &[Box<str>]) -> List {
        let is_served = |name: &str| {
            std::iter::once(&default).chain(&others).any(|served| served.name.eq_ignore_ascii_case(name))
        };
        let gone: Vec<_> = known.iter().filter(|name| !is_served(name)).cloned().collect();
        let names: Arc<[Box<str>]> =
            others.iter().map(|other| other.name.clone()).chain(gone.clone()).collect();
        let guarded = |namespace: Namespace, hosts| {
            Arc::new(Namespace { guard: namespace.guard.at(hosts), ..namespace })
        };
        let named = |namespace: Namespace| {
            let hosts = Hosts::of_named(&namespace.name, names.clone());
            guarded(namespace, hosts)
        };
        let closed = |name| {
            let (guard, created, tier) = (Guard::closed(), LocalTime(0), Tier::default());
            Arc::new(Namespace { id: CLOSED, name, guard, created, tier })
        };
        List {
            others: others.into_iter().map(named).collect(),
            default: guarded(default, Hosts::of_default(names.clone())),
            closed: gone.into_iter().map(closed).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn namespace(id: u32, name: &str, guard: Guard) -> Namespace {
        let (created, tier) = (LocalTime(0), Tier::default());
        Namespace { id: NamespaceId(id), name: name.into(), guard, created, tier }
    }

    fn guard() -> Guard {
        Guard::new(Vec::new(), false)
    }

    #[test]
    fn the_first_label_of_the_host_chooses_if_it_names_a_namespace() {
        let namespaces = Namespaces::new(
            namespace(0, "default", guard()),
            vec![namespace(1, "shop", guard()), namespace(2, "bank", guard())],
            &["default", "SHOP"].map(Into::into),
        );
        let of = |host: &str, server_name| namespaces.of_host(host, server_name).id.0;
        for host in ["shop", "Shop.servicebus.windows.net", "shop:5671", "shop.localhost:5300"] {
            assert_eq!(of(host, None), 1, "{host}");
        }
        for host in ["", "localhost", "127.0.0.1", "shopping.example", "x.shop.example"] {
            assert_eq!(of(host, None), 0, "{host}");
        }
        assert_eq!(of("localhost", Some("bank.example")), 2);
        assert_eq!(of("shop.example", Some("bank.example")), 1);
    }

    #[test]
    fn a_replacement_is_seen_by_those_who_look_again() {
        let namespaces = Namespaces::new(namespace(0, "default", guard()), Vec::new(), &["old".into()]);
        let changed = namespaces.changed();
        let before = namespaces.of_host("shop", None);
        namespaces.replace(namespace(0, "default", guard()), vec![namespace(7, "shop", guard())]);
        assert!(changed.has_changed().unwrap());
        assert_eq!((before.id.0, namespaces.of_host("shop", None).id.0), (0, 7));
        assert!(namespaces.of_id(NamespaceId(7)).is_some() && namespaces.of_id(NamespaceId(8)).is_none());
    }

    #[test]
    fn the_name_of_a_namespace_that_is_gone_leads_to_no_other() {
        let namespaces = Namespaces::new(
            namespace(0, "default", guard()),
            Vec::new(),
            &["default", "old"].map(Into::into),
        );
        let is_closed = |host| namespaces.of_host(host, None).id == CLOSED;
        assert!(is_closed("old.example") && !is_closed("shop") && !is_closed("default") && !is_closed("h"));
        namespaces.replace(namespace(0, "default", guard()), vec![namespace(7, "shop", guard())]);
        assert!(is_closed("old.example") && !is_closed("shop"));
        namespaces.replace(namespace(0, "default", guard()), vec![namespace(3, "old", guard())]);
        assert!(is_closed("Shop:5671") && !is_closed("old"));
        assert!(namespaces.of_id(CLOSED).is_none(), "a connection that is inside has to leave");
        assert_eq!(namespaces.of_host("", Some("shop.example")).id, CLOSED);
    }
}
