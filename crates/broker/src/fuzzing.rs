//! Bodies of the fuzz targets. Not part of the border.

pub use crate::topic::fuzzing::{like, sql};

use crate::Broker;
use crate::record::{Fields, put_number};
use crate::snapshot::{FORMAT, Restored, kind};
use crate::time::Time;

/// Entities that the head of a snapshot may claim here. Each takes a place in memory, those that are gone too, so that a whole
/// snapshot, which has its checksum, is believed about their number.
const ENTITIES: u64 = 4_096;

/// The first byte of an input that is a snapshot as it stands.
const RAW: u8 = 255;

/// Any frames, read as a snapshot. Nothing panics, and what is accepted is written, read and written again to the same.
///
/// The first byte is the number of messages, then come frames: a kind, a length of one byte, and fields.
pub fn snapshot(input: &[u8]) {
    is_accepted(input);
}

fn is_accepted(input: &[u8]) -> bool {
    let Some((&first, rest)) = input.split_first() else { return false };
    let bytes = if first == RAW { rest.to_vec() } else { framed(first, rest) };
    if claimed_entities(&bytes).is_some_and(|claimed| claimed > ENTITIES) {
        return false;
    }
    let Ok(read) = Restored::read(&mut &bytes[..]) else { return false };
    let (time, fingerprint) = (read.time, read.durable.fingerprint());
    let written = write(read);
    let again = Restored::read(&mut &written[..]).expect("what was written is read");
    assert_eq!(again.time, time);
    assert_eq!(again.durable.fingerprint(), fingerprint, "what was read again is something else");
    assert!(write(again) == written, "what was written again is something else");
    true
}

fn write(read: Restored) -> Vec<u8> {
    let Restored { durable, time } = read;
    let broker = Broker::new(durable, 0);
    let mut bytes = Vec::new();
    broker.snapshot(time).write(&mut bytes, &mut |_| {}).expect("memory takes everything");
    bytes
}

fn framed(messages: u8, mut script: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut frame = |kind: u8, fields: &[u8]| {
        bytes.push(kind);
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.extend_from_slice(fields);
    };
    let mut head = Vec::new();
    [FORMAT.into(), 16, 1_000, Time(1_000_000).0 as u64]
        .into_iter()
        .for_each(|number| put_number(&mut head, number));
    frame(kind::HEAD, &head);
    while let [kind, length, rest @ ..] = script {
        let (fields, rest) = rest.split_at(rest.len().min((*length).into()));
        frame(*kind, fields);
        script = rest;
    }
    frame(kind::END, &[messages]);
    bytes
}

fn claimed_entities(bytes: &[u8]) -> Option<u64> {
    let mut head = Fields { kind: kind::HEAD, rest: bytes.get(5..)? };
    head.number().ok()?;
    head.number().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Intake, Outcome};
    use crate::ids::BodyId;
    use crate::manage::Task;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;
    use crate::topic::settings::{SubscriptionSettings, TopicSettings};

    /// A little of everything.
    fn world() -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", 6);
        let link = world.receiver("q", PeekLock, 4);
        let dead = Outcome::DeadLetter(None);
        for (number, outcome) in [(1, Outcome::Complete), (2, Outcome::Defer(None)), (3, dead)] {
            let token = world.token(number);
            world.settle(link, 0, token, outcome);
        }
        let scheduled = world.local().after(Span::minutes(5));
        world.schedule("q", &[Incoming { scheduled, time_to_live: Span::minutes(1), ..message(7) }]).unwrap();
        world.relocate(&[(BodyId(5), Intake { offset: 0, length: 10 })]);
        let settings = TopicSettings::default();
        world.manage(Task::CreateTopic { path: "t".into(), settings, access: Vec::new() }).unwrap();
        let (topic, name, settings) = ("t".into(), "s".into(), SubscriptionSettings::default());
        world.manage(Task::CreateSubscription { topic, name, settings, rule: None }).unwrap();
        world.create("sessions", QueueSettings { requires_session: true, ..QueueSettings::default() });
        world.keep_locks();
        world
    }

    #[test]
    fn a_snapshot_of_a_living_broker_is_accepted() {
        let world = world();
        let mut bytes = vec![RAW];
        world.broker.snapshot(world.now).write(&mut bytes, &mut |_| {}).unwrap();
        assert!(is_accepted(&bytes));
        assert!(is_accepted(&[0]), "an empty one");
        assert!(!is_accepted(&[1]), "one that lacks a message");
    }
}
