//! Sends durable messages of one size, at most a window of them unanswered, and times each to its `accepted`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::Place;
use super::codec::{ACCEPTED, Writer};
use super::connection::{Connection, DISPOSITION, Role, TRANSFER};

/// What all senders of a measurement share.
#[derive(Debug, Default)]
pub struct Shared {
    pub accepted: AtomicU64,
    /// While set, latencies are kept.
    pub is_measuring: AtomicBool,
    /// Once set, senders wait for what is in flight and end.
    pub is_over: AtomicBool,
}

/// Sends until the measurement is over; returns nanoseconds from send to `accepted`, one for each measured message.
pub fn send(place: &Place, window: usize, body_bytes: usize, shared: &Shared) -> io::Result<Vec<u64>> {
    let mut connection = Connection::open(place, Role::Sender)?;
    let template = Template::new(body_bytes);
    let mut in_flight: VecDeque<Instant> = VecDeque::with_capacity(window);
    let mut latencies = Vec::new();
    let mut oldest: u32 = 0;
    loop {
        let is_over = shared.is_over.load(Ordering::Relaxed);
        if is_over && in_flight.is_empty() {
            return Ok(latencies);
        }
        let now = Instant::now();
        while !is_over && in_flight.len() < window && connection.credit > 0 && connection.window > 0 {
            template.append(&mut connection.out, connection.sent);
            connection.sent = connection.sent.wrapping_add(1);
            connection.credit -= 1;
            connection.window -= 1;
            in_flight.push_back(now);
        }
        connection.flush()?;
        connection.fill()?;
        let now = Instant::now();
        let is_measuring = shared.is_measuring.load(Ordering::Relaxed);
        let mut accepted = 0;
        while let Some(mut frame) = connection.next_frame()? {
            if frame.code != DISPOSITION {
                continue;
            }
            let answer = frame.disposition()?;
            if answer.outcome != Some(ACCEPTED) || !answer.is_settled || answer.first != oldest {
                return Err(io::Error::other(format!(
                    "expected `accepted` for delivery {oldest}, got {answer:?}"
                )));
            }
            for _ in answer.first..=answer.last {
                let sent = in_flight.pop_front().ok_or_else(|| io::Error::other("an answer to nothing"))?;
                if is_measuring {
                    latencies.push(now.duration_since(sent).as_nanos() as u64);
                }
            }
            accepted += u64::from(answer.last - answer.first) + 1;
            oldest = answer.last.wrapping_add(1);
        }
        shared.accepted.fetch_add(accepted, Ordering::Relaxed);
    }
}

/// Sends one message on a new connection and returns once it is accepted.
pub fn send_one(place: &Place) -> io::Result<()> {
    let mut connection = Connection::open(place, Role::Sender)?;
    Template::new(64).append(&mut connection.out, 0);
    connection.flush()?;
    loop {
        connection.fill()?;
        while let Some(mut frame) = connection.next_frame()? {
            if frame.code == DISPOSITION {
                return match frame.disposition()?.outcome {
                    Some(ACCEPTED) => Ok(()),
                    outcome => Err(io::Error::other(format!("the message was not accepted: {outcome:?}"))),
                };
            }
        }
    }
}

/// A whole transfer frame, encoded once; each send copies it and writes its own number into three places.
#[derive(Debug)]
pub struct Template {
    frame: Vec<u8>,
    delivery_id: usize,
    delivery_tag: usize,
    message_id: usize,
}

pub const MESSAGE_ID_DIGITS: usize = 16;

impl Template {
    pub fn new(body_bytes: usize) -> Template {
        let mut writer = Writer::default();
        let (mut delivery_id, mut delivery_tag, mut message_id) = (0, 0, 0);
        writer.frame(0, |w| {
            w.list(TRANSFER, |w| {
                w.uint(0);
                w.uint(0);
                delivery_id = w.0.len() - 4;
                w.binary(&[0; 4]);
                delivery_tag = w.0.len() - 4;
                w.uint(0);
                w.boolean(false);
                w.boolean(false);
                6
            });
            w.list(0x70, |w| {
                w.boolean(true);
                1
            });
            w.list(0x73, |w| {
                w.string(&"0".repeat(MESSAGE_ID_DIGITS));
                1
            });
            message_id = w.0.len() - MESSAGE_ID_DIGITS;
            w.0.extend([0x00, 0x53, 0x75]);
            w.binary(&noise(body_bytes));
        });
        Template { frame: writer.0, delivery_id, delivery_tag, message_id }
    }

    fn append(&self, out: &mut Writer, number: u32) {
        self.append_as(out, number, number.into());
    }

    /// The delivery `number`, whose message is called `name`.
    pub fn append_as(&self, out: &mut Writer, number: u32, name: u64) {
        let start = out.0.len();
        out.0.extend_from_slice(&self.frame);
        let frame = &mut out.0[start..];
        frame[self.delivery_id..][..4].copy_from_slice(&number.to_be_bytes());
        frame[self.delivery_tag..][..4].copy_from_slice(&number.to_be_bytes());
        let mut rest = name;
        for digit in frame[self.message_id..][..MESSAGE_ID_DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// Bytes that no file system or compressor can make smaller.
fn noise(count: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::codec::Reader;
    use super::*;

    #[test]
    fn each_message_carries_its_own_number() {
        let template = Template::new(1024);
        let mut out = Writer::default();
        template.append(&mut out, 0);
        template.append(&mut out, 1_234_567);
        let second = &out.0[template.frame.len()..];
        assert_eq!(second.len(), template.frame.len());
        assert_eq!(u32::from_be_bytes(*second.first_chunk().expect("a size")) as usize, second.len());
        let (code, mut fields) = Reader(&second[8..]).list().expect("a transfer");
        assert_eq!(code, TRANSFER);
        fields.skip(1).expect("the handle");
        assert_eq!(fields.number().expect("the delivery id"), Some(1_234_567));
        assert!(second.windows(16).any(|bytes| bytes == b"0000000001234567"));
    }
}
