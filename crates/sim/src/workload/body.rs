//! Messages as clients encode them: an AMQP message whose correlation-id is its number in this run, so that whoever finds
//! its bytes knows which one it is. Its message-id is what its sender knows it by, which may be that of another. Its label
//! and a property called weight are there for rules to look at. One that is in a session says so, and so does one that is
//! for later.

use crate::hash::hash_bytes;
use crate::oracle::NewMessage;
use crate::random::Random;
use crate::rules::Traits;
use broker::{Incoming, LocalTime, MessageKey};
use message::facts::MessageId;

/// Message annotations: when it is to be enqueued, as a timestamp.
const SCHEDULED: [u8; 37] = *b"\x00\x53\x72\xc1\x28\x02\xa3\x1cx-opt-scheduled-enqueue-time\x83";
/// A properties section with six fields, of which the message-id and the correlation-id are unsigned longs of eight bytes,
/// the subject is one letter and the others are null.
const FRONT: [u8; 7] = [0x00, 0x53, 0x73, 0xc0, 0x19, 0x06, 0x80];
/// Where its size and the number of its fields stand.
const SIZE: usize = 4;
const FIELDS: usize = 5;
/// Of one in a session: four more fields that are null, and the group-id, a short string.
const GROUP: [u8; 5] = [0x40, 0x40, 0x40, 0x40, 0xa1];
const SUBJECT: [u8; 4] = [0x40, 0x40, 0xa1, 0x01];
const CORRELATION: [u8; 2] = [0x40, 0x80];
/// Application properties: one that is called weight, and is a small int.
const WEIGHT: [u8; 15] = *b"\x00\x53\x74\xc1\x0b\x02\xa1\x06weight\x54";
/// A timestamp is no message-id, and as long as one: what has none has this in its place.
const NO_ID: u8 = 0x83;
/// A data section with a 32-bit length.
const DATA: [u8; 4] = [0x00, 0x53, 0x75, 0xb0];

/// A message in the parts in which it is sent.
#[derive(Debug)]
pub struct Body {
    pub parts: Vec<Vec<u8>>,
    /// What its sender says of it besides.
    pub facts: Incoming,
    /// Its message-id, or zero.
    pub id: u64,
}

/// What a door tells the broker of a message-id: a digest, or nothing without one.
pub fn digest(id: u64) -> MessageKey {
    MessageKey::of((id != 0).then_some(MessageId::Ulong(id)))
}

impl Body {
    /// Message `number` with `payload` bytes of data, in `parts` parts. `facts` name it by the digest of `id`.
    pub fn new(
        number: usize,
        (id, session): (u64, Option<&str>),
        payload: usize,
        parts: usize,
        facts: Incoming,
        random: &mut Random,
    ) -> Body {
        let traits = Traits::of(number);
        let mut whole = Vec::with_capacity(120 + payload);
        if facts.scheduled != LocalTime::AT_ONCE {
            whole.extend_from_slice(&SCHEDULED);
            whole.extend_from_slice(&facts.scheduled.0.to_be_bytes());
        }
        let front = whole.len();
        whole.extend_from_slice(&FRONT);
        if id == 0 {
            whole[front + FRONT.len() - 1] = NO_ID;
        }
        whole.extend_from_slice(&id.to_be_bytes());
        whole.extend_from_slice(&SUBJECT);
        whole.push(traits.label);
        whole.extend_from_slice(&CORRELATION);
        whole.extend_from_slice(&(number as u64).to_be_bytes());
        if let Some(session) = session {
            whole.extend_from_slice(&GROUP);
            whole.push(session.len() as u8);
            whole.extend_from_slice(session.as_bytes());
            whole[front + SIZE] += (GROUP.len() + 1 + session.len()) as u8;
            whole[front + FIELDS] += GROUP.len() as u8;
        }
        whole.extend_from_slice(&WEIGHT);
        whole.push(traits.weight.unwrap_or_default());
        let front_bytes = whole.len();
        whole.extend_from_slice(&DATA);
        whole.extend_from_slice(&(payload as u32).to_be_bytes());
        let mut noise = random.fork();
        whole.extend((0..payload.div_ceil(8)).flat_map(|_| noise.number().to_le_bytes()));
        whole.truncate(front_bytes + DATA.len() + 4 + payload);
        // The front stays in the first part, and what says that it ends there: doors cut no message before its body.
        let part = whole.len().div_ceil(parts).max(front_bytes + DATA.len());
        let parts = match whole.len() <= part {
            true => vec![whole],
            false => whole.chunks(part).map(<[u8]>::to_vec).collect(),
        };
        Body { parts, facts, id }
    }

    pub fn told(&self) -> NewMessage {
        let parts: Vec<u64> = self.parts.iter().map(|part| hash_bytes(part)).collect();
        let hash = match &parts[..] {
            [whole] => *whole,
            _ => hash_bytes(&self.parts.concat()),
        };
        NewMessage {
            parts,
            hash,
            length: self.parts.iter().map(Vec::len).sum::<usize>() as u32,
            time_to_live: self.facts.time_to_live,
            scheduled: self.facts.scheduled,
            keys_differ: self.facts.keys_differ,
            session: None,
            id: self.id,
            partition: self.facts.partition,
        }
    }
}

/// The number of the message that begins with these bytes, if one does.
pub fn message_number(bytes: &[u8]) -> Option<usize> {
    let bytes = bytes.strip_prefix(&SCHEDULED).map_or(Some(bytes), |rest| rest.get(8..))?;
    let rest = bytes.strip_prefix(&FRONT[..SIZE])?.get(FRONT.len() - SIZE..)?;
    let subject = rest.get(8..)?.strip_prefix(&SUBJECT)?;
    let number = subject.get(1..)?.strip_prefix(&CORRELATION)?.first_chunk()?;
    Some(u64::from_be_bytes(*number) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_message_and_knows_its_number() {
        let facts = Incoming::new(broker::Intake::default());
        let body = Body::new(7, (5, None), 1_000, 3, facts, &mut Random::new(1));
        assert_eq!(body.parts.len(), 3);
        assert_eq!(message_number(&body.parts[0]), Some(7));
        assert_eq!(message_number(&body.parts[1]), None);
        let sections = message::Sections::scan(&body.parts.concat()).unwrap();
        assert!(sections.properties.is_present() && sections.body.is_present());
        assert!(sections.application_properties.is_present());
    }

    #[test]
    fn a_message_says_when_it_is_due_and_what_session_it_is_in() {
        let scheduled = broker::LocalTime(77);
        let facts = Incoming { scheduled, ..Incoming::new(broker::Intake::default()) };
        let body = Body::new(7, (5, Some("red")), 10, 1, facts, &mut Random::new(1));
        assert_eq!(message_number(&body.parts[0]), Some(7));
        let sections = message::Sections::scan(&body.parts[0]).unwrap();
        let facts = message::Facts::read(&body.parts[0], &sections).unwrap();
        assert_eq!((facts.session_id, facts.scheduled_enqueue_time), (Some("red"), Some(77)));
    }
}
