//! The namespaces of a server and how a client chooses one: by the first label of the host name that it uses, if there is
//! a namespace of that name; otherwise it gets the one called `default`.
//!
//! The list can be replaced while the server runs. Whoever holds a namespace keeps what it was; connections look again
//! when [`Namespaces::changed`] says so.

use crate::auth::Guard;
use broker::{NamespaceId, Time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Namespace {
    pub id: NamespaceId,
    pub name: Box<str>,
    pub guard: Guard,
    pub created: Time,
}

#[derive(Debug)]
pub struct Namespaces {
    list: RwLock<List>,
    changes: watch::Sender<u64>,
    /// How often the list was replaced: for those who look at every read of a socket.
    version: AtomicU64,
}

#[derive(Debug, Clone)]
struct List {
    default: Arc<Namespace>,
    others: Vec<Arc<Namespace>>,
}

impl Namespaces {
    /// One namespace for everybody.
    pub fn single(guard: Guard) -> Namespaces {
        let default = Namespace { id: NamespaceId(0), name: "default".into(), guard, created: Time(0) };
        Namespaces::new(default, Vec::new())
    }

    pub fn new(default: Namespace, others: Vec<Namespace>) -> Namespaces {
        let list = List::new(default, others);
        Namespaces { list: RwLock::new(list), changes: watch::Sender::new(0), version: AtomicU64::new(0) }
    }

    /// Puts other ones in their place and tells everybody.
    pub fn replace(&self, default: Namespace, others: Vec<Namespace>) {
        let list = List::new(default, others);
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
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
            let label = host.split(['.', ':']).next().unwrap_or_default();
            list.others.iter().find(|namespace| namespace.name.eq_ignore_ascii_case(label))
        };
        let found = named(host).or_else(|| server_name.and_then(named));
        Arc::clone(found.unwrap_or(&list.default))
    }

    pub fn of_id(&self, id: NamespaceId) -> Option<Arc<Namespace>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&list.default).chain(&list.others).find(|namespace| namespace.id == id).cloned()
    }
}

impl List {
    fn new(default: Namespace, others: Vec<Namespace>) -> List {
        List { default: Arc::new(default), others: others.into_iter().map(Arc::new).collect() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn namespace(id: u32, name: &str, guard: Guard) -> Namespace {
        Namespace { id: NamespaceId(id), name: name.into(), guard, created: Time(0) }
    }

    fn guard() -> Guard {
        Guard::new(Vec::new(), false)
    }

    #[test]
    fn the_first_label_of_the_host_chooses_if_it_names_a_namespace() {
        let namespaces = Namespaces::new(
            namespace(0, "default", guard()),
            vec![namespace(1, "shop", guard()), namespace(2, "bank", guard())],
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
        let namespaces = Namespaces::new(namespace(0, "default", guard()), Vec::new());
        let changed = namespaces.changed();
        let before = namespaces.of_host("shop", None);
        namespaces.replace(namespace(0, "default", guard()), vec![namespace(7, "shop", guard())]);
        assert!(changed.has_changed().unwrap());
        assert_eq!((before.id.0, namespaces.of_host("shop", None).id.0), (0, 7));
        assert!(namespaces.of_id(NamespaceId(7)).is_some() && namespaces.of_id(NamespaceId(8)).is_none());
    }
}
