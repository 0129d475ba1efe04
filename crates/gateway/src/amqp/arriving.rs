//! A delivery of which some frames came. Once it is longer than a part, its beginning is passed on, so that a large
//! message is never whole in memory; sooner, when all connections together hold too much of unfinished messages.

use super::intake::may_be_normalised;
use crate::limits::{BATCH_BYTES, HURRIED_PART_BYTES, UNFINISHED_TOTAL_BYTES};
use broker::Incoming;
use broker::limits::BODY_PART_BYTES;
use engine::Batch;
use message::batch::BATCH_FORMAT;
use message::facts::{Facts, FactsError, Field};
use message::intake::append_stored;
use message::normal::{front_bytes, normalised};
use message::pieces::Rest;
use message::sections::Sections;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of unfinished messages that all connections hold.
#[derive(Debug, Default)]
pub struct Unfinished {
    held_bytes: AtomicUsize,
}

impl Unfinished {
    fn is_too_much(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) > UNFINISHED_TOTAL_BYTES
    }
}

/// Why a delivery is refused by the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error("The batch has more than {BATCH_BYTES} bytes; send it as several.")]
    BatchTooLarge,
    #[error("The server holds too many unfinished batches; send this one again later.")]
    Busy,
}

#[derive(Debug)]
pub(crate) struct Arriving {
    /// What came and was not passed on.
    bytes: Vec<u8>,
    beginning: Beginning,
    /// All that came of this delivery.
    arrived_bytes: u64,
    /// Passed on, and not yet in the journal.
    unstored_bytes: usize,
    unfinished: Arc<Unfinished>,
    /// What the total knows of.
    counted_bytes: usize,
}

/// What became of a delivery's beginning.
#[derive(Debug, Default)]
enum Beginning {
    #[default]
    Held,
    PassedOn(Box<PassedOn>),
    /// It was no good; what follows does not matter.
    Refused(Unfit),
}

#[derive(Debug)]
struct PassedOn {
    rest: Rest,
    incoming: Incoming,
    session: Option<Box<str>>,
}

/// What a delivery turned out to be when its last frame came.
pub(crate) enum Arrived {
    /// All of it.
    Whole(Vec<u8>),
    /// The last part of a message that is added to the batch; the others were passed on.
    InParts,
    Unfit(Unfit),
}

impl Arriving {
    pub(crate) fn new(unfinished: Arc<Unfinished>) -> Arriving {
        Arriving {
            bytes: Vec::new(),
            beginning: Beginning::Held,
            arrived_bytes: 0,
            unstored_bytes: 0,
            unfinished,
            counted_bytes: 0,
        }
    }

    /// What is held of it: what was not passed on, and what was and is not stored.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.unstored_bytes
    }

    /// Adds a frame. `pass_on` is called with each part that is laid out in the batch.
    pub(crate) fn add(
        &mut self,
        payload: &[u8],
        format: u32,
        batch: &mut Batch,
        mut pass_on: impl FnMut(&mut Batch, broker::Intake),
    ) {
        self.arrived_bytes += payload.len() as u64;
        if matches!(self.beginning, Beginning::Refused(_)) {
            return;
        }
        self.bytes.extend_from_slice(payload);
        self.count();
        if format == BATCH_FORMAT {
            if self.bytes.len() > BATCH_BYTES {
                self.refuse(Unfit::BatchTooLarge);
            } else if self.bytes.len() > HURRIED_PART_BYTES && self.unfinished.is_too_much() {
                self.refuse(Unfit::Busy);
            }
            return;
        }
        // More than a part, so that the last one is never empty.
        while self.bytes.len() > self.part_bytes() {
            match self.lay_out_part(batch) {
                Ok(body) => {
                    self.unstored_bytes += body.length as usize;
                    pass_on(batch, body);
                }
                Err(why) => return self.refuse(why.into()),
            }
        }
    }

    fn part_bytes(&self) -> usize {
        if self.unfinished.is_too_much() { HURRIED_PART_BYTES } else { BODY_PART_BYTES as usize }
    }

    /// Moves the next part into the batch. The first holds the whole front of the message.
    fn lay_out_part(&mut self, batch: &mut Batch) -> Result<broker::Intake, FactsError> {
        let count = self.part_bytes().min(self.bytes.len() - 1);
        let part = &self.bytes[..count];
        let body = match &mut self.beginning {
            Beginning::PassedOn(passed) => {
                passed.rest.take(part).map_err(malformed)?;
                batch.body(|out| out.extend_from_slice(part))
            }
            _ => {
                let normal;
                let (part, front) = match scan_whole_front(part) {
                    Err(why) if may_be_normalised(&why) => {
                        normal = with_normal_front(part).map_err(malformed)?;
                        (&normal[..], scan_whole_front(&normal)?)
                    }
                    front => (part, front?),
                };
                let facts = Facts::read(part, &front)?;
                let mut rest = Rest::after(&front);
                rest.take(&part[front.scanned as usize..]).map_err(malformed)?;
                let mut incoming = super::intake::incoming(&facts, true);
                let body =
                    batch.body(|out| append_stored(out, part, &front, super::intake::fresh_message_id));
                incoming.added_bytes = body.length - part.len() as u32;
                let session = facts.session_id.map(Box::from);
                let passed = PassedOn { rest, incoming, session };
                self.beginning = Beginning::PassedOn(Box::new(passed));
                body
            }
        };
        self.bytes.drain(..count);
        self.count();
        Ok(body)
    }

    /// The last frame was added.
    pub(crate) fn end(&mut self, batch: &mut Batch) -> Arrived {
        let bytes = std::mem::take(&mut self.bytes);
        self.arrived_bytes = 0;
        self.count();
        match std::mem::take(&mut self.beginning) {
            Beginning::Held => Arrived::Whole(bytes),
            Beginning::Refused(why) => Arrived::Unfit(why),
            Beginning::PassedOn(passed) => {
                let PassedOn { mut rest, incoming, session } = *passed;
                let sound = rest.take(&bytes).map_err(malformed).and_then(|()| rest.end());
                match sound {
                    Ok(()) => {
                        batch.arrival(incoming, |out| out.extend_from_slice(&bytes));
                        session.iter().for_each(|session| batch.session(session));
                        Arrived::InParts
                    }
                    Err(why) => Arrived::Unfit(why.into()),
                }
            }
        }
    }

    /// Forgets what came.
    pub(super) fn clear(&mut self) {
        (self.bytes, self.beginning, self.arrived_bytes) = (Vec::new(), Beginning::Held, 0);
        self.count();
    }

    fn refuse(&mut self, why: Unfit) {
        (self.bytes, self.beginning) = (Vec::new(), Beginning::Refused(why));
        self.count();
    }

    /// Bytes of this delivery that came and are not held any more.
    pub(super) fn passed_on_bytes(&self) -> u64 {
        self.arrived_bytes - self.bytes.len() as u64
    }

    /// A part is in the journal.
    pub(crate) fn part_taken(&mut self, bytes: usize) {
        self.unstored_bytes -= bytes;
    }

    pub(crate) fn unstored_bytes(&self) -> usize {
        self.unstored_bytes
    }

    fn count(&mut self) {
        let total = &self.unfinished.held_bytes;
        total.fetch_add(self.bytes.len(), Ordering::Relaxed);
        total.fetch_sub(self.counted_bytes, Ordering::Relaxed);
        self.counted_bytes = self.bytes.len();
    }
}

/// Finds the sections in front of the body, and checks them. Every part is longer than a front may be (S-18): one that does
/// not end in it is not waited for, for nobody knows how long it is.
fn scan_whole_front(part: &[u8]) -> Result<Sections, FactsError> {
    let front = Sections::scan_front(part).map_err(|reason| match reason {
        message::Malformed::Truncated => FactsError::PropertiesTooLarge { bytes: part.len() as u32 },
        reason => malformed(reason),
    })?;
    Facts::read(part, &front).map(|_| front)
}

/// The first part of a message, with what comes before its body in the form in which it is stored (K-1, K-3). Its length is
/// the same.
fn with_normal_front(part: &[u8]) -> Result<Vec<u8>, message::Malformed> {
    let (front, body) = part.split_at(front_bytes(part));
    let mut normal = normalised(front)?;
    normal.extend_from_slice(body);
    Ok(normal)
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.clear();
    }
}

pub(super) fn malformed(reason: message::Malformed) -> FactsError {
    FactsError::Malformed { field: Field::Body, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::Value;
    use message::codec::{write_binary, write_descriptor};

    const PART: usize = BODY_PART_BYTES as usize;

    fn message(body: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, 0x75);
        let bytes: Vec<u8> = (0..body).map(|n| n as u8).collect();
        write_binary(&mut out, &bytes);
        out
    }

    /// Adds `message` in frames; gives the parts, and the most bytes that were held at once.
    fn arrive(
        arriving: &mut Arriving,
        batch: &mut Batch,
        message: &[u8],
        format: u32,
    ) -> (Vec<Vec<u8>>, usize) {
        let (mut parts, mut most) = (Vec::new(), 0);
        for frame in message.chunks(60_000) {
            arriving.add(frame, format, batch, |batch, body| {
                let start = body.offset as usize + journal::BODY_PREFIX_BYTES;
                parts.push(batch.bodies[start..start + body.length as usize].to_vec());
                *batch = Batch::default();
            });
            most = most.max(arriving.bytes.len());
        }
        (parts, most)
    }

    #[test]
    fn a_large_message_is_passed_on_in_parts_and_arrives_byte_for_byte() {
        let message = message(3 * PART + 1_000);
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        let (parts, most) = arrive(&mut arriving, &mut batch, &message, 0);
        assert!(most < PART + 60_000, "{most}");
        assert_eq!(parts.len(), 3);
        assert_eq!(arriving.passed_on_bytes(), 3 * PART as u64);
        assert!(matches!(arriving.end(&mut batch), Arrived::InParts));
        let stored = [parts.concat(), batch.bodies[journal::BODY_PREFIX_BYTES..].to_vec()].concat();
        assert!(stored.ends_with(&message), "nothing but the message-id is added, in front");
        assert_eq!(stored.len() - message.len(), Sections::scan(&stored).unwrap().properties.range().len());
        assert_eq!(arriving.unfinished.held_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_message_of_exactly_one_part_stays_whole() {
        let message = message(PART - 8);
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        assert_eq!(message.len(), PART);
        assert_eq!(arrive(&mut arriving, &mut batch, &message, 0).0.len(), 0);
        assert!(matches!(arriving.end(&mut batch), Arrived::Whole(whole) if whole == message));
    }

    #[test]
    fn what_is_wrong_far_behind_or_missing_is_found_at_the_end() {
        let message = message(2 * PART);
        let extra = [&message[..], b"junk"].concat();
        for broken in [&message[..message.len() - 1], &extra] {
            let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
            arrive(&mut arriving, &mut batch, broken, 0);
            assert!(matches!(arriving.end(&mut batch), Arrived::Unfit(Unfit::Facts(_))));
            assert!(batch.messages.is_empty());
        }
    }

    #[test]
    fn a_front_that_does_not_end_is_refused_and_no_longer_held() {
        // S-18
        let mut message = Vec::new();
        write_descriptor(&mut message, 0x71);
        message.extend_from_slice(&[0xd1, 0, 0x20, 0, 0, 0, 0, 0, 2]);
        message.resize(2 * PART, 0xa1);
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        let (parts, most) = arrive(&mut arriving, &mut batch, &message, 0);
        assert!(parts.is_empty() && most < PART + 60_000);
        assert!(matches!(arriving.end(&mut batch), Arrived::Unfit(_)));
        // However little there is of it when memory is short.
        let unfinished = Arc::new(Unfinished::default());
        unfinished.held_bytes.store(UNFINISHED_TOTAL_BYTES, Ordering::Relaxed);
        let (mut arriving, mut batch) = (Arriving::new(unfinished), Batch::default());
        let (parts, most) = arrive(&mut arriving, &mut batch, &message, 0);
        assert!(parts.is_empty() && most < HURRIED_PART_BYTES + 60_000, "{most}");
        let Arrived::Unfit(why) = arriving.end(&mut batch) else { panic!() };
        assert_eq!(why, FactsError::PropertiesTooLarge { bytes: HURRIED_PART_BYTES as u32 }.into());
    }

    // K-1
    #[test]
    fn the_sections_of_a_large_message_come_in_any_order_and_are_stored_in_the_usual_one() {
        let section = |code: u64, value: Value| {
            let mut out = Vec::new();
            write_descriptor(&mut out, code);
            value.encode(&mut out);
            out
        };
        let properties = section(0x73, Value::List(vec!["an id".into()]));
        let annotations = section(0x72, Value::Map(vec![(Value::Symbol("x-own".into()), Value::Int(1))]));
        let body = message(2 * PART);
        let sent = [&properties[..], &annotations, &body].concat();
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        let (parts, _) = arrive(&mut arriving, &mut batch, &sent, 0);
        assert!(matches!(arriving.end(&mut batch), Arrived::InParts));
        let stored = [parts.concat(), batch.bodies[journal::BODY_PREFIX_BYTES..].to_vec()].concat();
        assert_eq!(stored, [&annotations[..], &properties, &body].concat());
        // What is wrong and cannot be put in order is refused as it is.
        let twice = [&properties[..], &properties, &body].concat();
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        assert!(arrive(&mut arriving, &mut batch, &twice, 0).0.is_empty());
        assert!(matches!(arriving.end(&mut batch), Arrived::Unfit(Unfit::Facts(_))));
    }

    #[test]
    fn a_batch_is_held_to_the_limit_and_no_further() {
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        arrive(&mut arriving, &mut batch, &vec![0; BATCH_BYTES], BATCH_FORMAT);
        assert!(matches!(arriving.end(&mut batch), Arrived::Whole(_)));
        arrive(&mut arriving, &mut batch, &vec![0; BATCH_BYTES + 1], BATCH_FORMAT);
        assert!(matches!(arriving.end(&mut batch), Arrived::Unfit(Unfit::BatchTooLarge)));
    }

    #[test]
    fn when_all_hold_too_much_parts_are_small_and_batches_refused() {
        let unfinished = Arc::new(Unfinished::default());
        unfinished.held_bytes.store(UNFINISHED_TOTAL_BYTES, Ordering::Relaxed);
        let (mut arriving, mut batch) = (Arriving::new(unfinished.clone()), Batch::default());
        let message = message(2 * PART);
        let (parts, most) = arrive(&mut arriving, &mut batch, &message, 0);
        assert!(most <= HURRIED_PART_BYTES + 60_000 && parts.len() > 8, "{most} {}", parts.len());
        assert!(matches!(arriving.end(&mut batch), Arrived::InParts));
        arrive(&mut arriving, &mut batch, &vec![0; 2 * HURRIED_PART_BYTES], BATCH_FORMAT);
        assert!(matches!(arriving.end(&mut batch), Arrived::Unfit(Unfit::Busy)));
        arrive(&mut arriving, &mut batch, &vec![0; HURRIED_PART_BYTES], BATCH_FORMAT);
        assert!(matches!(arriving.end(&mut batch), Arrived::Whole(_)), "a small batch is taken");
        drop(arriving);
        assert_eq!(unfinished.held_bytes.load(Ordering::Relaxed), UNFINISHED_TOTAL_BYTES);
    }

    // P7: the total that all connections share.
    #[test]
    fn every_end_of_a_delivery_gives_back_what_the_total_counted() {
        type End = fn(Arriving, &mut Batch);
        let ends: [(&str, End); 4] = [
            ("its last frame", |mut arriving, batch| {
                drop(arriving.end(batch));
                std::mem::forget(arriving);
            }),
            ("an abort", |mut arriving, _| {
                arriving.clear();
                std::mem::forget(arriving);
            }),
            ("a refusal", |mut arriving, _| {
                arriving.refuse(Unfit::Busy);
                std::mem::forget(arriving);
            }),
            ("the loss of its link", |arriving, _| drop(arriving)),
        ];
        for message in [message(1_000), message(PART + 1_000)] {
            for (what, end) in ends {
                let unfinished = Arc::new(Unfinished::default());
                let (mut arriving, mut batch) = (Arriving::new(unfinished.clone()), Batch::default());
                arrive(&mut arriving, &mut batch, &message, 0);
                assert!(unfinished.held_bytes.load(Ordering::Relaxed) > 0, "{what}");
                end(arriving, &mut batch);
                assert_eq!(unfinished.held_bytes.load(Ordering::Relaxed), 0, "{what}");
            }
        }
    }
}
