//! The places for connections. There are only so many, because each is an open file and some memory, and most of them are
//! kept for peers that have proved who they are.
//!
//! Strangers cannot lock others out: when their places are taken, the oldest stranger of the address that has the most
//! of them is shown out, so that whoever crowds the door pays for it.

use crate::limits::UNPROVEN_CONNECTIONS;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Addresses that are told apart. Whoever has one address of version 6 has the whole network of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Neighbourhood(IpAddr);

impl Neighbourhood {
    pub fn of(address: IpAddr) -> Neighbourhood {
        Neighbourhood(match address.to_canonical() {
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
    by_neighbourhood: HashMap<Neighbourhood, BTreeSet<u64>>,
}

#[derive(Debug)]
struct Stranger {
    neighbourhood: Neighbourhood,
    /// Ends its connection. There from the moment on when the connection is served.
    end: Option<AbortHandle>,
}

impl Places {
    /// The places of a process that may have this many files open. Half of them are for connections: the journal has one
    /// for each of its segments, and must never find that strangers took them.
    pub fn of_open_files(files: u64) -> Arc<Places> {
        let connections = usize::try_from(files / 2).unwrap_or(usize::MAX).max(2);
        Places::new(connections, UNPROVEN_CONNECTIONS.min(connections / 2))
    }

    pub fn new(connections: usize, strangers: usize) -> Arc<Places> {
        Arc::new(Places { connections, strangers, table: Mutex::default() })
    }

    /// A place for a connection that has proved nothing yet; `None` if all are taken by those who have.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let neighbourhood = Neighbourhood::of(address);
        let mut table = self.table();
        if (table.strangers.len() >= self.strangers || table.open >= self.connections) && !table.show_out() {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.open += 1;
        table.strangers.insert(number, Stranger { neighbourhood, end: None });
        table.by_neighbourhood.entry(neighbourhood).or_default().insert(number);
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

    fn table(&self) -> MutexGuard<'_, Table> {
        // A lock that a panic left behind still guards a valid value.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn show_out(&mut self) -> bool {
        let crowded = self.by_neighbourhood.values().max_by_key(|numbers| numbers.len());
        let is_served = |number: &&u64| self.strangers[number].end.is_some();
        let Some(number) = crowded.and_then(|numbers| numbers.iter().find(is_served)).copied() else {
            return false;
        };
        if let Some(end) = self.remove(number).and_then(|stranger| stranger.end) {
            end.abort();
        }
        true
    }

    fn remove(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        if let Some(numbers) = self.by_neighbourhood.get_mut(&stranger.neighbourhood) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_neighbourhood.remove(&stranger.neighbourhood);
            }
        }
        Some(stranger)
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

    /// Whoever has it is no stranger any more: nobody else's coming ends its connection.
    pub fn proved(&self) {
        self.places.table().remove(self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.remove(self.number);
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
        let places = Places::new(3, 2);
        let proved: Vec<Place> = (0..3)
            .map(|_| places.take("192.0.2.1".parse().unwrap()).unwrap())
            .inspect(Place::proved)
            .collect();
        assert!(Idle::come(&places, "198.51.100.7").is_none(), "no room and nobody to show out");
        drop(proved);
        assert!(Idle::come(&places, "198.51.100.7").is_some());
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn places_come_back() {
        let places = Places::new(100, 10);
        for _ in 0..1_000 {
            drop(places.take("192.0.2.1".parse().unwrap()).unwrap());
        }
        let table = places.table();
        assert_eq!((table.open, table.strangers.len(), table.by_neighbourhood.len()), (0, 0, 0));
    }

    #[test]
    fn a_network_of_version_6_is_one_neighbourhood() {
        let of = |address: &str| Neighbourhood::of(address.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn few_files_give_few_places_and_many_no_more_than_memory_allows() {
        let places = |files| {
            let places = Places::of_open_files(files);
            (places.connections, places.strangers)
        };
        assert_eq!(places(64), (32, 16));
        assert_eq!(places(1_024), (512, 256));
        assert_eq!(places(1 << 20), (1 << 19, UNPROVEN_CONNECTIONS));
    }
}
