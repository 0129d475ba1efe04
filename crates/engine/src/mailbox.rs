//! Where effects go: a connection's outbox, or the asker of a question. The partition's thread fills it when an
//! append is durable; the connection empties it, and is woken once per commit however much it gets.

use crate::limits::UNDECIDED_COMMANDS;
use broker::{Answer, Delivery, LinkId, Notice, ReceiveMode, Refusal, RequestId, Settled};
use journal::Place;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// A message for a receiver, with the places of its body pinned so that they stay readable until it is sent.
#[derive(Debug)]
pub struct Sent {
    pub link: LinkId,
    pub mode: ReceiveMode,
    pub delivery: Delivery,
    pub place: Place,
    /// The parts of a large message before `place`, in order.
    pub parts: Vec<Place>,
    /// Where its changed properties lie, if they are stored. Few messages have any.
    pub overlay: Option<Box<Place>>,
}

/// An effect on its way out. Dispositions speak of ranges, so runs of deliveries that came out alike are one; and what shows a
/// message has where its bytes are stored, which the broker does not know. Notices leave as they are.
#[derive(Debug)]
pub enum Outgoing {
    Accepted {
        link: LinkId,
        first: u32,
        last: u32,
    },
    Settled {
        link: LinkId,
        first: u32,
        last: u32,
        outcome: Settled,
    },
    Deliver(Sent),
    /// `places` are where the messages of an answer are stored, for each of them all its parts in order, and then what was changed of its
    /// properties, if that is stored.
    Answered {
        request: RequestId,
        answer: Result<Answer, Refusal>,
        places: Vec<Vec<Place>>,
    },
    Notice(Notice),
}

/// Adds a delivery that was accepted, to the run before it where it continues one.
pub(crate) fn accepted(out: &mut Vec<Outgoing>, link: LinkId, delivery: u32) {
    match out.last_mut() {
        Some(Outgoing::Accepted { link: l, last, .. }) if *l == link && last.wrapping_add(1) == delivery => {
            *last = delivery;
        }
        _ => out.push(Outgoing::Accepted { link, first: delivery, last: delivery }),
    }
}

/// Adds a delivery that was settled, to the run before it where it continues one.
pub(crate) fn settled(out: &mut Vec<Outgoing>, link: LinkId, delivery: u32, outcome: Settled) {
    match out.last_mut() {
        Some(Outgoing::Settled { link: l, last, outcome: o, .. })
            if (*l, *o) == (link, outcome) && last.wrapping_add(1) == delivery =>
        {
            *last = delivery;
        }
        _ => out.push(Outgoing::Settled { link, first: delivery, last: delivery, outcome }),
    }
}

/// Takes what a commit released.
pub trait Mailbox: Send + Sync + Debug {
    fn put(&self, outgoing: Vec<Outgoing>);

    /// So many commands of the connection were decided.
    fn decided(&self, commands: usize);
}

/// What waits for one connection. What it holds is small: bodies stay where they are until the connection can send
/// them, and how many there can be is bounded by the credit that the connection passes on.
#[derive(Debug, Default)]
pub struct Outbox {
    outgoing: Mutex<Vec<Outgoing>>,
    arrived: Notify,
    /// Commands that were handed over and are not decided.
    undecided: AtomicUsize,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Outgoing>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Effects that wait.
    pub fn waiting(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn handed_over(&self, commands: usize) {
        self.undecided.fetch_add(commands, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn undecided(&self) -> usize {
        self.undecided.load(Ordering::Relaxed)
    }

    /// Whether so much of this connection waits to be decided that it must wait itself: others come behind it.
    pub fn is_behind(&self) -> bool {
        self.undecided.load(Ordering::Relaxed) >= UNDECIDED_COMMANDS
    }

    /// Takes everything that waits. Nothing is copied if `into` is empty, and the outbox keeps no room for what it had.
    pub fn take(&self, into: &mut Vec<Outgoing>) {
        let mut taken = std::mem::take(&mut *self.lock());
        if into.is_empty() {
            *into = taken;
        } else {
            into.append(&mut taken);
        }
    }

    /// Returns when something may wait, or when the connection is no longer behind.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl Mailbox for Outbox {
    fn put(&self, mut outgoing: Vec<Outgoing>) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            *waiting = outgoing;
        } else {
            waiting.append(&mut outgoing);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    fn decided(&self, commands: usize) {
        let before = self.undecided.fetch_sub(commands, Ordering::Relaxed);
        if before >= UNDECIDED_COMMANDS && before - commands < UNDECIDED_COMMANDS {
            self.arrived.notify_one();
        }
    }
}

type Reply = oneshot::Sender<Result<Answer, Refusal>>;

/// Questions that come without a connection, from HTTP and from the server itself.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    waiting: Mutex<(u32, HashMap<u32, Reply>)>,
}

impl Asks {
    pub(crate) fn open(&self, reply: Reply) -> RequestId {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.0 = waiting.0.wrapping_add(1);
        let request = waiting.0;
        waiting.1.insert(request, reply);
        RequestId { connection: ASKING, request }
    }

    /// Nobody will be answered any more.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).1.clear();
    }
}

/// The connection id of questions without a connection.
pub(crate) const ASKING: broker::ConnectionId = broker::ConnectionId(0);

impl Mailbox for Asks {
    fn put(&self, outgoing: Vec<Outgoing>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for each in outgoing {
            if let Outgoing::Answered { request, answer, .. } = each
                && let Some(reply) = waiting.1.remove(&request.request)
            {
                // The asker may have lost interest; that is their affair.
                let _ = reply.send(answer);
            }
        }
    }

    /// Each asker waits for its own answer, so there are no more questions than askers.
    fn decided(&self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_is_behind_until_enough_of_it_is_decided() {
        let outbox = Outbox::default();
        outbox.handed_over(UNDECIDED_COMMANDS - 1);
        assert!(!outbox.is_behind());
        outbox.handed_over(10);
        assert!(outbox.is_behind());
        outbox.decided(9);
        assert!(outbox.is_behind());
        // The waiting task is woken when it is over.
        tokio::join!(biased; outbox.arrived(), async { outbox.decided(1) });
        assert!(!outbox.is_behind());
    }

    #[test]
    fn contiguous_outcomes_of_a_link_are_one_range() {
        let link = |n| LinkId { connection: broker::ConnectionId(1), link: n };
        let mut out = Vec::new();
        for (n, delivery) in [(1, 4), (1, 5), (2, 6), (2, 8)] {
            accepted(&mut out, link(n), delivery);
        }
        let ranges: Vec<_> = out
            .iter()
            .map(|each| match each {
                Outgoing::Accepted { link, first, last } => (link.link, *first, *last),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ranges, [(1, 4, 5), (2, 6, 6), (2, 8, 8)]);
    }

    // a client takes another outcome than the one it asked for for a failure.
    #[test]
    fn settlements_are_one_range_as_long_as_they_follow_each_other_and_came_out_alike() {
        use Settled::{Abandoned, Completed};
        let link = |n| LinkId { connection: broker::ConnectionId(1), link: n };
        let mut out = Vec::new();
        for (n, delivery, outcome) in [
            (1, 4, Completed),
            (1, 5, Completed),
            (1, 6, Abandoned),
            (1, 7, Abandoned),
            (1, 9, Abandoned),
            (2, 10, Abandoned),
        ] {
            settled(&mut out, link(n), delivery, outcome);
        }
        let ranges: Vec<_> = out
            .iter()
            .map(|each| match each {
                Outgoing::Settled { link, first, last, outcome } => (link.link, *first, *last, *outcome),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            ranges,
            [(1, 4, 5, Completed), (1, 6, 7, Abandoned), (1, 9, 9, Abandoned), (2, 10, 10, Abandoned)]
        );
    }
}
