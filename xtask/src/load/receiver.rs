//! Drains a queue under peek-lock, settling as the Azure SDKs do: an unsettled `accepted` for each delivery, done
//! when the broker answers it as settled.

use std::collections::VecDeque;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Place;
use super::codec::{ACCEPTED, Writer};
use super::connection::{Connection, DISPOSITION, FLOW, Role, SESSION_WINDOW, TRANSFER};

/// How often a receiver that gets nothing looks whether the others have taken everything.
const PATIENCE: Duration = Duration::from_millis(100);
/// A queue that should hold messages and hands out none for so long has lost them.
const SILENCE: Duration = Duration::from_secs(30);

/// What all receivers of a measurement share.
#[derive(Debug)]
pub struct Shared {
    pub settled: AtomicU64,
    /// How many messages there are to take.
    pub expected: u64,
    /// Reached by all receivers once attached, and by the one who measures.
    pub ready: Barrier,
}

/// Receives until all messages are settled; returns nanoseconds from `accepted` to settled, one for each message.
pub fn receive(place: &Place, credit: u32, shared: &Shared) -> io::Result<Vec<u64>> {
    let opened = Connection::open(place, Role::Receiver);
    shared.ready.wait();
    let mut connection = opened?;
    connection.set_patience(PATIENCE)?;
    let mut receiver =
        Receiver { received: 0, granted: 0, in_flight: VecDeque::new(), latencies: Vec::new() };
    let mut last_heard = Instant::now();
    while shared.settled.load(Ordering::Relaxed) < shared.expected {
        receiver.grant(&mut connection, credit);
        connection.flush()?;
        match connection.fill() {
            Ok(()) => last_heard = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && last_heard.elapsed() < SILENCE => {
                continue;
            }
            Err(error) => return Err(error),
        }
        let settled = receiver.take(&mut connection)?;
        shared.settled.fetch_add(settled, Ordering::Relaxed);
    }
    Ok(receiver.latencies)
}

struct Receiver {
    received: u32,
    /// The delivery-count up to which the broker may deliver.
    granted: u32,
    in_flight: VecDeque<(u32, Instant)>,
    latencies: Vec<u64>,
}

impl Receiver {
    /// Tops the credit up once half of it is used.
    fn grant(&mut self, connection: &mut Connection, credit: u32) {
        if self.granted.wrapping_sub(self.received) > credit / 2 {
            return;
        }
        self.granted = self.received.wrapping_add(credit);
        grant(connection, self.received, credit);
    }

    /// Takes all frames that were read, queues an `accepted` for each delivery, and returns how many were settled.
    fn take(&mut self, connection: &mut Connection) -> io::Result<u64> {
        let now = Instant::now();
        let mut settled = 0;
        let mut answers = Writer(std::mem::take(&mut connection.out.0));
        let mut transfers = 0;
        while let Some(mut frame) = connection.next_frame()? {
            match frame.code {
                TRANSFER => {
                    transfers += 1;
                    frame.fields.skip(1)?;
                    if let Some(delivery) = frame.fields.number()? {
                        self.received = self.received.wrapping_add(1);
                        accept(&mut answers, delivery);
                        self.in_flight.push_back((delivery, now));
                    }
                }
                DISPOSITION => {
                    let answer = frame.disposition()?;
                    if answer.outcome != Some(ACCEPTED) || !answer.is_settled {
                        return Err(io::Error::other(format!("expected settled `accepted`, got {answer:?}")));
                    }
                    settled += self.settle(answer.first, answer.last, now)?;
                }
                _ => {}
            }
        }
        connection.next_incoming = connection.next_incoming.wrapping_add(transfers);
        connection.out = answers;
        Ok(settled)
    }

    fn settle(&mut self, first: u32, last: u32, now: Instant) -> io::Result<u64> {
        for delivery in first..=last {
            match self.in_flight.pop_front() {
                Some((expected, since)) if expected == delivery => {
                    self.latencies.push(now.duration_since(since).as_nanos() as u64);
                }
                other => {
                    return Err(io::Error::other(format!("settled {delivery} while {other:?} was next")));
                }
            }
        }
        Ok(u64::from(last - first) + 1)
    }
}

/// Lets the broker deliver `credit` messages beyond the `received` ones.
pub fn grant(connection: &mut Connection, received: u32, credit: u32) {
    let next_incoming = connection.next_incoming;
    connection.out.frame(0, |w| {
        w.list(FLOW, |w| {
            w.uint(next_incoming);
            w.uint(SESSION_WINDOW);
            w.uint(0);
            w.uint(SESSION_WINDOW);
            w.uint(0);
            w.uint(received);
            w.uint(credit);
            7
        });
    });
}

pub fn accept(out: &mut Writer, delivery: u32) {
    accept_all(out, delivery, delivery);
}

/// Accepts a run of deliveries.
pub fn accept_all(out: &mut Writer, first: u32, last: u32) {
    out.frame(0, |w| {
        w.list(DISPOSITION, |w| {
            w.boolean(true);
            w.uint(first);
            if last == first {
                w.null()
            } else {
                w.uint(last)
            };
            w.boolean(false);
            w.list(ACCEPTED, |_| 0);
            5
        });
    });
}
