//! Clients that live through the deaths of the broker: whenever it is gone they connect again and go on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ledger::{Ledger, name};
use crate::cost::QUEUE;
use crate::load::Place;
use crate::load::codec::ACCEPTED;
use crate::load::connection::{Connection, DISPOSITION, Role, TRANSFER};
use crate::load::receiver::{accept_all, grant};
use crate::load::sender::{MESSAGE_ID_DIGITS, Template};

const WINDOW: usize = 100;
const CREDIT: u32 = 1_000;
/// Messages that wait for receivers, beyond which senders rest: what is left in the end is received in seconds.
const BACKLOG: u64 = 100_000;
const BODY_BYTES: usize = 200;
/// The rest before the next attempt to reach a broker that is not there.
const RETRY: Duration = Duration::from_millis(3);
/// How often a client that hears nothing looks whether it is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// What all clients share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Where the broker is; 0 while it is not.
    pub port: AtomicU16,
    pub ledger: Mutex<Ledger>,
    /// Senders end.
    pub is_sent: AtomicBool,
    /// Receivers end.
    pub is_over: AtomicBool,
}

impl Shared {
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, role: Role) -> Option<Connection> {
        let port = self.port.load(Ordering::Acquire);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let place = Place { address, queue: QUEUE.into() };
        let connection = if port == 0 { None } else { Connection::open(&place, role).ok() };
        if connection.is_none() {
            std::thread::sleep(RETRY);
        }
        connection
    }
}

/// Sends until told otherwise, under one name, whatever happens to the broker.
pub fn send(shared: &Shared, sender: usize) {
    let template = Template::new(BODY_BYTES);
    let mut next = 0;
    while !shared.is_sent.load(Ordering::Relaxed) {
        if let Some(connection) = shared.connect(Role::Sender) {
            // The broker was killed: what has no answer has none for ever.
            let ended = send_on(connection, shared, sender, &template, &mut next);
            if let Err(error) = ended
                && error.kind() == io::ErrorKind::Other
            {
                shared.ledger().fail(format!("sender {sender} gave up: {error}"));
                return;
            }
        }
    }
}

fn send_on(
    mut connection: Connection,
    shared: &Shared,
    sender: usize,
    template: &Template,
    next: &mut usize,
) -> io::Result<()> {
    let first = *next;
    let mut answered = first;
    loop {
        let is_over = shared.is_sent.load(Ordering::Relaxed);
        if is_over && answered == *next {
            return Ok(());
        }
        let room =
            (WINDOW - (*next - answered)).min(connection.credit as usize).min(connection.window as usize);
        let mut ledger = shared.ledger();
        let is_ahead = ledger.accepted.saturating_sub(ledger.asked) > BACKLOG;
        let count = if is_over || is_ahead { 0 } else { room };
        ledger.sending(sender, *next, count);
        drop(ledger);
        if is_ahead && answered == *next {
            std::thread::sleep(RETRY);
            continue;
        }
        for _ in 0..count {
            template.append_as(&mut connection.out, connection.sent, name(sender, *next));
            connection.sent = connection.sent.wrapping_add(1);
            connection.credit -= 1;
            connection.window -= 1;
            *next += 1;
        }
        connection.flush()?;
        connection.fill()?;
        while let Some(mut frame) = connection.next_frame()? {
            if frame.code != DISPOSITION {
                continue;
            }
            let answer = frame.disposition()?;
            if answer.outcome != Some(ACCEPTED) {
                return Err(io::Error::other("a message was refused"));
            }
            let mut ledger = shared.ledger();
            for delivery in answer.first..=answer.last {
                ledger.accepted(sender, first + delivery as usize);
            }
            answered = first + answer.last as usize + 1;
        }
    }
}

/// Receives and completes until told otherwise.
pub fn receive(shared: &Shared) {
    while !shared.is_over.load(Ordering::Relaxed) {
        if let Some(connection) = shared.connect(Role::Receiver) {
            let ended = receive_on(connection, shared);
            // A broker that was killed says nothing; whatever else is odd is its fault.
            if let Err(error) = ended
                && error.kind() == io::ErrorKind::Other
            {
                shared.ledger().fail(format!("a receiver gave up: {error}"));
                return;
            }
        }
    }
}

fn receive_on(mut connection: Connection, shared: &Shared) -> io::Result<()> {
    connection.set_patience(PATIENCE)?;
    // What was delivered on this connection, by delivery id, which counts from whatever the broker likes.
    let mut delivered: Vec<u64> = Vec::new();
    let mut base = None;
    let mut unasked = Vec::new();
    let mut granted = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        let received = delivered.len() as u32;
        if granted - received <= CREDIT / 2 {
            granted = received + CREDIT;
            grant(&mut connection, received, CREDIT);
        }
        if !unasked.is_empty() {
            let mut ledger = shared.ledger();
            unasked.drain(..).for_each(|message| ledger.completing(message));
        }
        connection.flush()?;
        match connection.fill() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            other => other?,
        }
        let mut answers = std::mem::take(&mut connection.out);
        let mut ledger = shared.ledger();
        let mut transfers = 0;
        while let Some(mut frame) = connection.next_frame()? {
            match frame.code {
                TRANSFER => {
                    transfers += 1;
                    frame.fields.skip(1)?;
                    let delivery =
                        frame.fields.number()?.ok_or_else(|| io::Error::other("no delivery id"))?;
                    let (message, sequence) =
                        read_message(frame.payload).ok_or_else(|| io::Error::other("an odd message"))?;
                    let base = *base.get_or_insert(delivery);
                    if delivery.wrapping_sub(base) as usize != delivered.len() {
                        return Err(io::Error::other("deliveries are not in order"));
                    }
                    delivered.push(message);
                    ledger.delivered(message, sequence);
                    unasked.push(message);
                }
                DISPOSITION => {
                    let answer = frame.disposition()?;
                    if answer.outcome == Some(ACCEPTED) && answer.is_settled {
                        let base = base.unwrap_or(0);
                        for delivery in answer.first..=answer.last {
                            if let Some(message) = delivered.get(delivery.wrapping_sub(base) as usize) {
                                ledger.completed(*message);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        drop(ledger);
        if let (Some(base), true) = (base, transfers > 0) {
            let end = base.wrapping_add(delivered.len() as u32);
            accept_all(&mut answers, end.wrapping_sub(transfers), end.wrapping_sub(1));
        }
        connection.next_incoming = connection.next_incoming.wrapping_add(transfers);
        connection.out = answers;
    }
    Ok(())
}

/// A message's name and its number in the queue.
fn read_message(payload: &[u8]) -> Option<(u64, u64)> {
    const ANNOTATION: &[u8] = b"x-opt-sequence-number";
    let at = payload.windows(ANNOTATION.len()).position(|bytes| bytes == ANNOTATION)? + ANNOTATION.len();
    let sequence = match payload.get(at)? {
        0x81 => u64::from_be_bytes(*payload.get(at + 1..)?.first_chunk()?),
        0x55 => u64::from(*payload.get(at + 1)?),
        _ => return None,
    };
    let is_digits = |bytes: &&[u8]| bytes.iter().all(u8::is_ascii_digit);
    let digits = payload[at..].windows(MESSAGE_ID_DIGITS).find(is_digits)?;
    let name = digits.iter().fold(0, |name, digit| name * 10 + u64::from(digit - b'0'));
    Some((name, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_annotation_and_its_id() {
        let mut payload = b"..x-opt-sequence-number".to_vec();
        payload.extend([0x81, 0, 0, 0, 0, 0, 0, 1, 2, 0x00, 0x53, 0x73]);
        payload.extend(b"\xb1\0\0\0\x100002000000000017body");
        assert_eq!(read_message(&payload), Some((name(1, 17), 258)));
    }
}
