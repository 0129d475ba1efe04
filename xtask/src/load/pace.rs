//! Sends and receives at a steady pace, whatever the broker does.
//!
//! Each message has a time at which it is due, and carries that time as its id. A latency counts from there and not from
//! when the message could be sent: a broker that stalls would otherwise be asked less often while it is slow, and its
//! worst moments would be the ones with the fewest samples.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use super::Place;
use super::codec::{ACCEPTED, Reader};
use super::connection::{Connection, DISPOSITION, Role, TRANSFER};
use super::receiver::{accept, grant};
use super::sender::Template;

/// How often a receiver that gets nothing looks whether the other one has taken everything.
const PATIENCE: Duration = Duration::from_millis(100);
/// A broker that owes messages and hands out none for so long has lost them.
const SILENCE: Duration = Duration::from_secs(30);
const CREDIT: u32 = 200;
const PROPERTIES: u8 = 0x73;

/// When which message is due: `rate` a second in all, the senders taking turns.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rate: u64,
    pub senders: u64,
    pub body_bytes: usize,
    /// Latencies count for what is due from here on.
    pub measured_from: Duration,
    pub total: u64,
}

impl Pace {
    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos(number * 1_000_000_000 / self.rate)
    }
}

/// What all connections of a measurement share.
#[derive(Debug)]
pub struct Shared {
    /// Reached by all connections once attached, and by the one who measures.
    pub ready: Barrier,
    began: OnceLock<Instant>,
    pub delivered: AtomicU64,
}

impl Shared {
    pub fn new(connections: usize) -> Shared {
        let ready = Barrier::new(connections + 1);
        Shared { ready, began: OnceLock::new(), delivered: AtomicU64::new(0) }
    }

    /// Waits for all others; returns when the first message is due.
    pub fn begin(&self) -> Instant {
        self.ready.wait();
        *self.began.get_or_init(Instant::now)
    }
}

/// Sends every message of one sender when it is due, and returns once all are accepted.
pub fn send(place: &Place, pace: Pace, sender: u64, shared: &Shared) -> io::Result<Vec<u64>> {
    let opened = Connection::open(place, Role::Sender);
    let began = shared.begin();
    let mut connection = opened?;
    let template = Template::new(pace.body_bytes);
    let (mut next, mut unanswered) = (sender, 0);
    while next < pace.total || unanswered > 0 {
        let now = began.elapsed();
        while next < pace.total && pace.due(next) <= now && connection.credit > 0 && connection.window > 0 {
            template.append_as(&mut connection.out, connection.sent, pace.due(next).as_nanos() as u64);
            connection.sent = connection.sent.wrapping_add(1);
            connection.credit -= 1;
            connection.window -= 1;
            unanswered += 1;
            next += pace.senders;
        }
        connection.flush()?;
        if next < pace.total && pace.due(next) > now {
            connection.fill_if_readable()?;
        } else {
            connection.fill()?;
        }
        unanswered -= accepted(&mut connection)?;
        if next < pace.total {
            std::thread::sleep(pace.due(next).saturating_sub(began.elapsed()));
        }
    }
    Ok(Vec::new())
}

/// How many messages the frames that were read accept.
fn accepted(connection: &mut Connection) -> io::Result<u64> {
    let mut accepted = 0;
    while let Some(mut frame) = connection.next_frame()? {
        if frame.code == DISPOSITION {
            let answer = frame.disposition()?;
            if answer.outcome != Some(ACCEPTED) {
                return Err(io::Error::other(format!("expected `accepted`, got {answer:?}")));
            }
            accepted += u64::from(answer.last - answer.first) + 1;
        }
    }
    Ok(accepted)
}

/// Receives until everything was delivered to somebody, accepting each delivery as the Azure SDKs do; returns nanoseconds
/// from due to delivered, one for each measured message.
pub fn receive(place: &Place, pace: Pace, shared: &Shared) -> io::Result<Vec<u64>> {
    let opened = Connection::open(place, Role::Receiver).and_then(|mut connection| {
        grant(&mut connection, 0, CREDIT);
        connection.flush().map(|()| connection)
    });
    let began = shared.begin();
    let mut connection = opened?;
    connection.set_patience(PATIENCE)?;
    let (mut received, mut granted) = (0, CREDIT);
    let mut latencies = Vec::new();
    let mut last_heard = Instant::now();
    while shared.delivered.load(Ordering::Relaxed) < pace.total {
        match connection.fill() {
            Ok(()) => last_heard = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && last_heard.elapsed() < SILENCE => {
                continue;
            }
            Err(error) => return Err(error),
        }
        let now = began.elapsed();
        let mut answers = std::mem::take(&mut connection.out);
        let mut transfers = 0;
        while let Some(mut frame) = connection.next_frame()? {
            if frame.code != TRANSFER {
                continue;
            }
            frame.fields.skip(1)?;
            let delivery = frame.fields.number()?.ok_or_else(|| io::Error::other("no delivery id"))?;
            let due = due_of(frame.payload).ok_or_else(|| io::Error::other("a message that nobody sent"))?;
            if due >= pace.measured_from {
                latencies.push(now.saturating_sub(due).as_nanos() as u64);
            }
            accept(&mut answers, delivery);
            transfers += 1;
        }
        connection.out = answers;
        connection.next_incoming = connection.next_incoming.wrapping_add(transfers);
        received += transfers;
        if granted - received <= CREDIT / 2 {
            granted = received + CREDIT;
            grant(&mut connection, received, CREDIT);
        }
        connection.flush()?;
        shared.delivered.fetch_add(transfers.into(), Ordering::Relaxed);
    }
    Ok(latencies)
}

/// When a message was due: its id, in decimal nanoseconds.
fn due_of(payload: &[u8]) -> Option<Duration> {
    let mut sections = Reader(payload);
    while sections.code()? != PROPERTIES {
        sections.value().ok()?;
    }
    let (_, mut properties) = sections.list().ok()?;
    let digits = std::str::from_utf8(properties.bytes().ok()?).ok()?;
    digits.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::super::codec::Writer;
    use super::*;

    #[test]
    fn a_message_tells_when_it_was_due() {
        let mut out = Writer::default();
        Template::new(64).append_as(&mut out, 7, 1_234_567_890);
        let mut frame = Reader(&out.0[8..]);
        frame.list().expect("a transfer");
        assert_eq!(due_of(frame.0), Some(Duration::from_nanos(1_234_567_890)));
        assert_eq!(due_of(b"no section"), None);
    }

    #[test]
    fn messages_are_due_evenly_over_a_second() {
        let pace = Pace { rate: 4, senders: 2, body_bytes: 0, measured_from: Duration::ZERO, total: 8 };
        let due: Vec<u128> = (0..5).map(|number| pace.due(number).as_millis()).collect();
        assert_eq!(due, [0, 250, 500, 750, 1000]);
    }
}
