//! The receivers that wait for messages of a queue, in the order in which the credit came (S-97). What a change costs
//! does not depend on how many wait: thousands of receivers may give and take back credit all the time.

use crate::ids::{IdMap, LinkId};
use crate::touched::touched;
use std::collections::{BTreeMap, VecDeque};

/// A line of credit. A link has as many places in it as it gave credit while others came behind it.
#[derive(Debug, Default)]
pub struct Line {
    /// By number, which rises with each new place.
    places: BTreeMap<u64, (LinkId, u32)>,
    links: IdMap<LinkId, Standing>,
    next: u64,
    total: u64,
}

/// What one link has in the line.
#[derive(Debug, Default)]
struct Standing {
    credit: u32,
    /// Its places, the oldest first.
    places: VecDeque<u64>,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The credit of everybody together.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn credit(&self, link: LinkId) -> u32 {
        touched(1);
        self.links.get(&link).map_or(0, |standing| standing.credit)
    }

    /// The receiver that is served next.
    pub fn front(&self) -> Option<LinkId> {
        self.places.first_key_value().map(|(_, (link, _))| *link)
    }

    /// Uses one unit of the credit at the head of the line and says whose it was.
    pub fn serve(&mut self) -> LinkId {
        touched(1);
        let mut first = self.places.first_entry().expect("only who waits is served");
        let (link, credit) = first.get_mut();
        let link = *link;
        *credit -= 1;
        let is_used_up = *credit == 0;
        if is_used_up {
            first.remove();
        }
        self.total -= 1;
        let standing = self.links.get_mut(&link).expect("who has a place has a standing");
        standing.credit -= 1;
        if is_used_up {
            standing.places.pop_front();
        }
        if standing.places.is_empty() {
            self.links.remove(&link);
        }
        link
    }

    /// The link waits for `credit` messages in all, instead of what it waited for. Says whether that is more.
    pub fn set(&mut self, link: LinkId, credit: u32) -> bool {
        let held = self.credit(link);
        if credit > held {
            self.add(link, credit - held);
        } else if credit < held {
            self.cut(link, held - credit);
        }
        credit > held
    }

    /// The link waits no more.
    pub fn remove(&mut self, link: LinkId) {
        self.set(link, 0);
    }

    fn add(&mut self, link: LinkId, more: u32) {
        touched(1);
        let standing = self.links.entry(link).or_default();
        standing.credit += more;
        self.total += u64::from(more);
        match self.places.last_entry() {
            Some(mut last) if last.get().0 == link => last.get_mut().1 += more,
            _ => {
                standing.places.push_back(self.next);
                self.places.insert(self.next, (link, more));
                self.next += 1;
            }
        }
    }

    /// The newest credit goes first, so that the place in the line is kept.
    fn cut(&mut self, link: LinkId, mut surplus: u32) {
        let Some(standing) = self.links.get_mut(&link) else { return };
        standing.credit -= surplus;
        self.total -= u64::from(surplus);
        while surplus > 0 {
            touched(1);
            let newest = standing.places.back().expect("its places hold its credit");
            let (_, credit) = self.places.get_mut(newest).expect("a place that a link has is there");
            if *credit > surplus {
                *credit -= surplus;
                return;
            }
            surplus -= *credit;
            self.places.remove(newest);
            standing.places.pop_back();
        }
        if standing.places.is_empty() {
            self.links.remove(&link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnectionId;
    use crate::touched::take_touched;

    fn link(number: u32) -> LinkId {
        LinkId { connection: ConnectionId(1), link: number }
    }

    /// Everybody in the order in which they would be served.
    fn served(mut line: Line) -> Vec<u32> {
        let mut served = Vec::new();
        while !line.is_empty() {
            let first = line.front();
            served.push(line.serve().link);
            assert_eq!(first, served.last().map(|number| link(*number)));
        }
        assert_eq!((line.total(), line.links.len()), (0, 0));
        served
    }

    #[test]
    fn credit_is_served_in_the_order_in_which_it_came() {
        // S-97
        let mut line = Line::default();
        for (number, credit) in [(0, 1), (1, 2), (0, 3), (0, 4)] {
            assert!(line.set(link(number), credit));
        }
        assert_eq!((line.credit(link(0)), line.total()), (4, 6));
        assert_eq!(served(line), [0, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn taking_credit_back_keeps_the_place_in_the_line() {
        let mut line = Line::default();
        for (number, credit) in [(0, 2), (1, 1), (0, 5)] {
            line.set(link(number), credit);
        }
        assert!(!line.set(link(0), 1));
        assert_eq!((line.credit(link(0)), line.total()), (1, 2));
        assert!(line.set(link(0), 2));
        assert_eq!(served(line), [0, 1, 0]);
    }

    #[test]
    fn who_is_removed_leaves_nothing_behind() {
        let mut line = Line::default();
        for round in 1..100 {
            line.set(link(0), round);
            line.set(link(1), round);
        }
        line.remove(link(0));
        line.remove(link(2));
        assert_eq!((line.credit(link(0)), line.total(), line.places.len()), (0, 99, 99));
        assert_eq!(served(line), [1; 99]);
    }

    #[test]
    fn a_change_costs_the_same_with_ten_links_and_with_a_hundred_thousand() {
        let cost = |links: u32| {
            let mut line = Line::default();
            for number in 0..links {
                line.set(link(number), 2);
            }
            take_touched();
            line.set(link(links / 2), 3);
            line.set(link(links / 2), 1);
            line.set(link(links / 3), 0);
            line.remove(link(links / 4));
            line.serve();
            take_touched()
        };
        assert_eq!(cost(10), cost(100_000));
    }
}
