//! The places for connections. There are only so many, because each is an open file and some memory, and most of them are
//! kept for peers that have proved who they are.
//!
//! Strangers cannot lock others out: when their places are taken, the oldest stranger of the address that has the most
//! of them is shown out, so that the one that crowds the door pays for it. Nor can a peer with a key lock
//! others out: some places are always kept for newcomers, `/health` among them, some more for peers with Manage and for the root
//! key, and neither a policy nor an address gets all of the others.

use crate::limits::{
    ADDRESS_PLACES, CONNECTION_LEAST_BYTES, KEPT_PLACES, POLICY_PLACES, STRANGER_CONNECTIONS,
};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Addresses that are told apart. An address of version 6 stands for its network of 64 bits, all of which one peer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressGroup(IpAddr);

impl AddressGroup {
    pub fn of(address: IpAddr) -> AddressGroup {
        AddressGroup(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address => address,
        })
    }
}

#[derive(Debug)]
pub struct Places {
    connections: usize,
    strangers: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    next: u64,
    strangers: HashMap<u64, Stranger>,
    /// The numbers rise, so the first of each is its oldest.
    by_group: HashMap<AddressGroup, BTreeSet<u64>>,
    known: HashMap<u64, Known>,
    /// How many there are of each policy, and from each address of those who may not manage.
    by_policy: HashMap<Box<str>, usize>,
    by_address: HashMap<AddressGroup, usize>,
    /// Those who do not have the root key, and those of them who may not manage.
    without_root: usize,
    others: usize,
}

/// What somebody may do, as far as it matters for places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Other,
    Manages,
    /// It has the key of the root policy, which must get in whatever others do.
    Root,
}

/// What a peer has proved.
#[derive(Debug)]
struct Known {
    policy: Box<str>,
    address: AddressGroup,
    standing: Standing,
}

/// Too many connections of its policy or from its address are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all places for connections of this policy, or from this address, are taken")]
pub struct NoPlace;

#[derive(Debug)]
struct Stranger {
    group: AddressGroup,
    /// Ends its connection. There from the moment on when the connection is served.
    end: Option<AbortHandle>,
}

impl Places {
    /// The places of a process that may have this many files open, and whose connections may hold so many bytes. Half of the files
    /// are for connections: the journal has one for each of its segments, and must never find that strangers took them.
    pub fn of_open_files(files: u64, connections_bytes: usize) -> Arc<Places> {
        let files = usize::try_from(files / 2).unwrap_or(usize::MAX);
        let connections = files.min(connections_bytes / CONNECTION_LEAST_BYTES).max(2);
        Places::new(connections, STRANGER_CONNECTIONS.min(connections / 2))
    }

    pub fn new(connections: usize, strangers: usize) -> Arc<Places> {
        Arc::new(Places { connections, strangers, table: Mutex::default() })
    }

    /// A place for a connection that has proved nothing yet; `None` if all are taken by those who have.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let group = AddressGroup::of(address);
        let mut table = self.table();
        if (table.strangers.len() >= self.strangers || table.open >= self.connections) && !table.show_out() {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.open += 1;
        table.strangers.insert(number, Stranger { group, end: None });
        table.by_group.entry(group).or_default().insert(number);
        Some(Place { places: Arc::clone(self), number })
    }

    /// Says how the connection of a place is ended, if it comes to that.
    pub fn served(&self, number: u64, end: AbortHandle) {
        if let Some(stranger) = self.table().strangers.get_mut(&number) {
            stranger.end = Some(end);
        }
    }

    /// Ends the connection of one stranger, if there is any: somebody needs its file more.
    pub fn show_out(&self) -> bool {
        self.table().show_out()
    }

    /// Gives a stranger the place of somebody who has proved to have a key of this policy, unless too many have.
    fn prove(&self, number: u64, policy: &str, standing: Standing) -> Result<(), NoPlace> {
        let mut table = self.table();
        let Some(stranger) = table.strangers.get(&number) else { return Ok(()) };
        let known = Known { policy: policy.into(), address: stranger.group, standing };
        // Each standing leaves what is kept for those above it.
        let kept = (self.connections / KEPT_PLACES).max(1);
        let room = |kept_for: usize| self.connections.saturating_sub(kept_for * kept);
        let of_policy = table.by_policy.get(policy).copied().unwrap_or(0);
        let of_address = table.by_address.get(&known.address).copied().unwrap_or(0);
        let share = |room: usize, percent: usize| (room * percent / 100).max(1);
        let is_full = table.known.len() >= room(1)
            || match standing {
                Standing::Root => false,
                Standing::Manages => {
                    table.without_root >= room(2) || of_policy >= share(room(2), POLICY_PLACES)
                }
                Standing::Other => {
                    table.without_root >= room(2)
                        || table.others >= room(3)
                        || of_policy >= share(room(3), POLICY_PLACES)
                        || of_address >= share(room(3), ADDRESS_PLACES)
                }
            };
        if is_full {
            return Err(NoPlace);
        }
        *table.by_policy.entry(policy.into()).or_default() += 1;
        table.without_root += usize::from(standing != Standing::Root);
        if standing == Standing::Other {
            *table.by_address.entry(known.address).or_default() += 1;
            table.others += 1;
        }
        table.remove(number);
        table.known.insert(number, known);
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A lock that a panic left behind still guards a valid value.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn show_out(&mut self) -> bool {
        let crowded = self.by_group.values().max_by_key(|numbers| numbers.len());
        let is_served = |number: &&u64| self.strangers[number].end.is_some();
        let Some(number) = crowded.and_then(|numbers| numbers.iter().find(is_served)).copied() else {
            return false;
        };
        if let Some(end) = self.remove(number).and_then(|stranger| stranger.end) {
            end.abort();
        }
        true
    }

    /// Somebody who had proved itself is gone.
    fn leave(&mut self, number: u64) {
        let Some(Known { policy, address, standing }) = self.known.remove(&number) else { return };
        lower(&mut self.by_policy, policy);
        self.without_root -= usize::from(standing != Standing::Root);
        if standing == Standing::Other {
            self.others -= 1;
            lower(&mut self.by_address, address);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        if let Some(numbers) = self.by_group.get_mut(&stranger.group) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_group.remove(&stranger.group);
            }
        }
        Some(stranger)
    }
}

/// Counts one less; who has none is forgotten.
fn lower<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let std::collections::hash_map::Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// The place of one connection, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Place {
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its peer is no stranger any more: no newcomer ends its connection.
    pub fn proved(&self, policy: &str, standing: Standing) -> Result<(), NoPlace> {
        self.places.prove(self.number, policy, standing)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.remove(self.number);
        table.leave(self.number);
        table.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    /// A connection that does nothing until it is ended.
    struct Idle(JoinHandle<()>);

    impl Idle {
        fn come(places: &Arc<Places>, address: &str) -> Option<Idle> {
            let place = places.take(address.parse().unwrap())?;
            let number = place.number();
            let task = tokio::spawn(async move {
                let _place = place;
                std::future::pending().await
            });
            places.served(number, task.abort_handle());
            Some(Idle(task))
        }

        async fn is_ended(&mut self) -> bool {
            tokio::task::yield_now().await;
            self.0.is_finished()
        }
    }

    #[tokio::test]
    async fn the_oldest_stranger_of_the_most_crowded_address_makes_room() {
        let places = Places::new(100, 4);
        let mut quiet = Idle::come(&places, "192.0.2.1").unwrap();
        let mut crowd = Vec::new();
        for _ in 0..3 {
            crowd.push(Idle::come(&places, "203.0.113.9").unwrap());
        }
        for round in 0..100 {
            crowd.push(Idle::come(&places, "203.0.113.9").unwrap());
            assert!(crowd[round].is_ended().await, "the oldest of the crowd, {round}");
            assert!(!crowd[round + 1].is_ended().await);
        }
        assert!(!quiet.is_ended().await, "it was there first and is alone");
        let mut other = Idle::come(&places, "198.51.100.7").unwrap();
        tokio::task::yield_now().await;
        assert!(!other.is_ended().await && !quiet.is_ended().await);
        assert!(places.table().strangers.len() <= 4);
    }

    #[tokio::test]
    async fn who_has_proved_itself_is_never_shown_out() {
        let places = Places::new(4, 2);
        let proved: Vec<Place> = (0..3)
            .map(|_| places.take("192.0.2.1".parse().unwrap()).unwrap())
            .inspect(|place| place.proved("root", Standing::Root).unwrap())
            .collect();
        let mut newcomer = Idle::come(&places, "198.51.100.7").unwrap();
        let other = Idle::come(&places, "198.51.100.8").unwrap();
        assert!(newcomer.is_ended().await, "the one place that is kept is theirs");
        assert_eq!(places.table().known.len(), 3);
        drop((proved, other));
        tokio::task::yield_now().await;
    }

    /// Comes and proves itself as often as it is let; says how many places it has.
    fn crowd(places: &Arc<Places>, address: &str, policy: &str, standing: Standing) -> Vec<Place> {
        let mut had = Vec::new();
        for _ in 0..1_000 {
            let Some(place) = places.take(address.parse().unwrap()) else { break };
            match place.proved(policy, standing) {
                Ok(()) => had.push(place),
                Err(NoPlace) => break,
            }
        }
        had
    }

    #[test]
    fn neither_a_policy_nor_an_address_gets_every_place() {
        use Standing::{Manages, Other, Root};
        let places = Places::new(160, 40);
        // Sixteenths are kept: ten for who comes, ten more for who may manage, ten more for the root key.
        let one = crowd(&places, "192.0.2.1", "reader", Other);
        assert_eq!(one.len(), 130 * POLICY_PLACES / 100);
        let two = crowd(&places, "192.0.2.1", "sender", Other);
        assert_eq!(one.len() + two.len(), 130 * ADDRESS_PLACES / 100);
        let three = crowd(&places, "192.0.2.2", "sender", Other);
        assert_eq!(one.len() + two.len() + three.len(), 130);
        assert!(crowd(&places, "192.0.2.3", "third", Other).is_empty());
        let managers = crowd(&places, "192.0.2.3", "ops", Manages);
        assert_eq!(managers.len(), 10);
        let roots = crowd(&places, "192.0.2.3", "root", Root);
        assert_eq!(roots.len(), 10);
        assert!(places.take("192.0.2.4".parse().unwrap()).is_some(), "somebody asks for /health");
        drop((one, managers, roots));
        assert!(!crowd(&places, "192.0.2.3", "third", Other).is_empty());
        drop((two, three));
        let table = places.table();
        assert_eq!((table.others, table.without_root), (0, 0));
        assert_eq!((table.by_policy.len(), table.by_address.len()), (0, 0));
    }

    #[test]
    fn policies_that_manage_the_namespace_leave_places_for_the_root_key_and_for_health() {
        use Standing::{Manages, Root};
        let places = Places::new(160, 40);
        let one = crowd(&places, "192.0.2.1", "ops", Manages);
        assert_eq!(one.len(), 140 * POLICY_PLACES / 100);
        let two = crowd(&places, "192.0.2.1", "dev", Manages);
        assert_eq!(one.len() + two.len(), 140);
        assert!(crowd(&places, "192.0.2.2", "third", Manages).is_empty());
        let roots = crowd(&places, "192.0.2.1", "root", Root);
        assert_eq!(roots.len(), 10, "from the same address too");
        assert!(places.take("192.0.2.1".parse().unwrap()).is_some(), "somebody asks for /health");
    }

    #[tokio::test]
    async fn places_come_back() {
        let places = Places::new(100, 10);
        for _ in 0..1_000 {
            drop(places.take("192.0.2.1".parse().unwrap()).unwrap());
        }
        let table = places.table();
        assert_eq!((table.open, table.strangers.len(), table.by_group.len()), (0, 0, 0));
    }

    #[test]
    fn a_network_of_version_6_is_one_neighbourhood() {
        let of = |address: &str| AddressGroup::of(address.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn few_files_give_few_places_and_many_no_more_than_memory_allows() {
        let places = |files| {
            let places = Places::of_open_files(files, 128 * 1_024 * 1_024);
            (places.connections, places.strangers)
        };
        assert_eq!(places(64), (32, 16));
        assert_eq!(places(1_024), (512, 256));
        assert_eq!(places(1 << 20), (8_192, STRANGER_CONNECTIONS));
    }
}
