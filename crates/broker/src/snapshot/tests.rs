use super::*;
use crate::command::ReceiveMode::PeekLock;
use crate::command::{Incoming, Intake, Outcome};
use crate::ids::{EntityId, MessageKey, NamespaceId};
use crate::limits::SMALL_OVERLAY_BYTES;
use crate::settings::QueueSettings;
use crate::testing::{World, message};
use crate::time::Span;
use message::overlay::Overlay;

fn written(world: &World) -> Vec<u8> {
    let mut bytes = Vec::new();
    world.broker.snapshot(world.now).write(&mut bytes, &mut |_| {}).unwrap();
    bytes
}

/// Queues of many kinds: full, empty, deleted, with holes, parts, counts, changed properties, messages of every state
/// and locks.
fn world() -> World {
    let mut world = World::with_queue("q");
    world.send_committed("q", 3_000);
    let link = world.receiver("q", PeekLock, 1_100);
    for number in (1..=1_100).step_by(3) {
        let token = world.token(number);
        world.settle(link, number as u32, token, Outcome::Complete);
    }
    let mut overlay = Overlay::default();
    overlay.set("colour", &message::value::Value::from("red")).unwrap();
    let token = world.token(2);
    let abandon = Outcome::Abandon(Some(Box::new(overlay)));
    let _ = world.settle_raw(link, token, &abandon, &World::fronts(&[(BodyId(2), &[])]));
    let mut large = Overlay::default();
    large.set("trace", &message::value::Value::Binary(vec![7; SMALL_OVERLAY_BYTES])).unwrap();
    let token = world.token(9);
    world.settle(link, 0, token, Outcome::DeadLetter(Some(Box::new(large))));
    world.create("empty", QueueSettings { max_delivery_count: 3, ..QueueSettings::default() });
    world.create("gone", QueueSettings::default());
    world.delete("gone");
    world.create("Large", QueueSettings { user_metadata: Some("x".into()), ..QueueSettings::default() });
    let sender = world.sender("large");
    world.part(sender, 500);
    world.send(sender, 0, &[message(100)]);
    let dead = Outcome::DeadLetter(None);
    for (number, outcome) in [(5, Outcome::Defer(None)), (8, dead.clone()), (6, dead)] {
        let token = world.token(number);
        world.settle(link, 0, token, outcome);
    }
    let scheduled = world.local().after(Span::minutes(5));
    let time_to_live = Span::minutes(1);
    world.schedule("q", &[Incoming { scheduled, time_to_live, ..message(7) }]).unwrap();
    world.relocate(&[(BodyId(5), Intake { offset: 0, length: 10 })]);
    world.keep_locks();
    world
}

#[test]
fn what_is_written_is_read() {
    let world = world();
    let restored = Restored::read(&mut &written(&world)[..]).unwrap();
    assert_eq!(restored.time, world.now);
    let (before, after) = (world.broker.durable(), &restored.durable);
    assert_eq!(after.fingerprint(), before.fingerprint());
    assert_eq!((after.next_entity(), after.next_body()), (before.next_entity(), before.next_body()));
    assert_eq!(after.stored_as(BodyId(5)), BodyId(before.next_body().0 - 1));
    assert_eq!(after.queue(EntityId(0)).unwrap().extras, before.queue(EntityId(0)).unwrap().extras);
    assert!(after.find(NamespaceId(0), "LARGE").is_some() && after.find(NamespaceId(0), "gone").is_none());
}

#[test]
fn a_snapshot_keeps_the_state_of_its_moment() {
    let mut world = world();
    let (snapshot, bytes) = (world.broker.snapshot(world.now), written(&world));
    world.send_committed("q", 10);
    world.delete("empty");
    let mut later = Vec::new();
    snapshot.write(&mut later, &mut |_| {}).unwrap();
    assert!(later == bytes);
}

#[test]
fn a_snapshot_cut_anywhere_or_of_a_newer_format_is_refused() {
    let bytes = written(&world());
    for cut in (0..bytes.len()).step_by(7) {
        assert!(Restored::read(&mut &bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut newer = bytes;
    newer[5] = 2;
    assert!(matches!(Restored::read(&mut &newer[..]), Err(Error::Newer(2))));
}

#[test]
fn only_what_is_needed_is_named() {
    let mut world = world();
    let stored = stored_bodies(&world.broker.snapshot(world.now));
    assert!(!stored.contains(&BodyId(1)), "completed");
    assert!(!stored.contains(&BodyId(5)), "relocated");
    assert!(stored.contains(&world.broker.durable().stored_as(BodyId(5))));
    assert!(stored.contains(&BodyId(2)) && stored.contains(&BodyId(3_000)));
    let sender = world.sender("q");
    let part = world.broker.durable().next_body();
    world.part(sender, 10);
    let with_part = stored_bodies(&world.broker.snapshot(world.now));
    assert_eq!(with_part.len(), stored.len() + 1);
    assert!(with_part.contains(&part), "a message that is still arriving needs its parts");
    world.drop_parts(sender);
    assert_eq!(stored_bodies(&world.broker.snapshot(world.now)), stored);
}

#[test]
fn ids_that_were_taken_and_ways_that_were_gone_are_kept() {
    // S-36, S-164
    let mut world = World::with_queue("b");
    let forward_to = Some("b".into());
    world.create(
        "a",
        QueueSettings { requires_duplicate_detection: true, forward_to, ..QueueSettings::default() },
    );
    let link = world.sender("a");
    for id in 1..=600 {
        world.pass(Span(1));
        world.send(link, 0, &[Incoming { id: MessageKey([id, 9]), ..message(1) }]);
    }
    let restored = Restored::read(&mut &written(&world)[..]).unwrap().durable;
    let (before, after) = (world.broker.durable(), &restored);
    assert_eq!(after.fingerprint(), before.fingerprint());
    assert_eq!(after.queue(EntityId(1)).unwrap().history, before.queue(EntityId(1)).unwrap().history);
    assert_eq!(after.queue(EntityId(0)).unwrap().extras, before.queue(EntityId(0)).unwrap().extras);
    assert_eq!(after.queue(EntityId(0)).unwrap().extras.len(), 600);
}

#[test]
fn a_relocated_body_that_nobody_needs_is_forgotten() {
    let mut world = World::with_queue("q");
    world.send_committed("q", 2);
    for body in [1, 2] {
        world.relocate(&[(BodyId(body), Intake { offset: 0, length: 10 })]);
    }
    let link = world.receiver("q", PeekLock, 1);
    let token = world.token(1);
    world.settle(link, 0, token, Outcome::Complete);
    let forgotten = world.broker.snapshot(world.now).write(&mut io::sink(), &mut |_| {}).unwrap();
    assert_eq!(forgotten, [BodyId(1)]);
    let restored = Restored::read(&mut &written(&world)[..]).unwrap();
    assert_eq!(restored.durable.shared().relocated.len(), 1);
    world.broker.forget_relocated(&forgotten);
    assert_eq!(world.broker.durable().fingerprint(), restored.durable.fingerprint());
}

#[test]
fn a_message_takes_few_bytes() {
    let mut world = World::with_queue("q");
    world.send_committed("q", 10_000);
    let bytes = written(&world).len();
    assert!(bytes < 80_000, "{bytes} bytes for 10,000 messages");
}
