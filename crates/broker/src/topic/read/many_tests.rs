//! Many sources of messages that are read before they are published: what is read for all of them has a total (W-36).

use super::tests::{forwarding_to, only_red};
use crate::command::Command;
use crate::command::ReceiveMode::PeekLock;
use crate::command::{Incoming, Outcome};
use crate::effect::Effect;
use crate::ids::{EntityId, NamespaceId, Number, RequestId, Source};
use crate::limits::{FORWARD_RETRY, READ_BYTES};
use crate::manage::Task;
use crate::settings::{QueueSettings, Status};
use crate::testing::{World, message};
use crate::time::Span;
use crate::topic::fan_out::tests::counts;
use crate::topic::settings::TopicSettings;
use crate::topic::subject::tests::encoded;

/// Sources that want more together than may be read.
const MANY: usize = 3 * READ_BYTES as usize / (1024 * 1024);

/// Messages of a source: one slice, and a second one.
const EACH: usize = 12;

/// A red message of a hundred kilobytes.
fn large() -> Vec<u8> {
    let (mut bytes, data) = (encoded(&[], &[("color", "red".into())]), 100_000_u32);
    bytes.extend([0x00, 0x53, 0x75, 0xb0]);
    bytes.extend(data.to_be_bytes());
    bytes.resize(bytes.len() + data as usize, 7);
    bytes
}

fn send_large(world: &mut World, path: &str, facts: Incoming) {
    let (link, body) = (world.sender(path), large());
    for _ in 0..2 {
        let told = world.send_bytes(link, &[&body[..]; EACH / 2], facts);
        assert_eq!(told, [Effect::Accepted { link, delivery: 0 }]);
    }
    world.detach(link);
}

/// `q0` and so on, which forward to `t` and have messages of a megabyte, and a disk that answers nothing by itself.
fn crowd(world: &mut World) {
    world.is_reading_held = true;
    for nth in 0..MANY {
        forwarding_to(world, &format!("q{nth}"), "t");
        send_large(world, &format!("q{nth}"), message(0));
    }
    world.commit();
}

fn crowded() -> World {
    let mut world = only_red();
    crowd(&mut world);
    world
}

/// Bytes of what is being read or was.
fn held(world: &World) -> u64 {
    let messages = world.asked().iter().flat_map(|request| &request.messages);
    let asked = messages.flat_map(|(_, bodies)| bodies).map(|body| world.stored(*body).len());
    asked.sum::<usize>() as u64 + world.broker.volatile.front_bytes()
}

/// Everything that can be done without the disk.
fn work(world: &mut World) {
    for _ in 0..10_000 {
        world.commit();
        if !world.is_due() {
            return;
        }
        world.tick();
    }
    panic!("it never rests");
}

/// The disk answers one question after the other, as long as there are any. The answer is who asked.
fn answer_all(world: &mut World) -> Vec<EntityId> {
    let mut turns = Vec::new();
    work(world);
    while !world.asked().is_empty() {
        assert!(held(world) <= READ_BYTES, "{} bytes", held(world));
        turns.push(world.tick_read().entity);
        work(world);
    }
    assert_eq!(held(world), 0, "nothing is held");
    assert_eq!(world.broker.volatile.reading(), (0, 0), "and nobody counts for anything or waits");
    turns
}

fn entity(world: &World, path: &str) -> EntityId {
    world.broker.durable.find(NamespaceId(0), path).unwrap()
}

#[test]
fn what_is_read_for_all_who_forward_has_a_total_and_each_has_its_turn() {
    // P7, S-177, W-36
    let mut world = crowded();
    assert!(held(&world) > READ_BYTES / 2, "the disk has enough to do");
    let turns = answer_all(&mut world);
    let sources: Vec<_> = (0..MANY).map(|nth| entity(&world, &format!("q{nth}"))).collect();
    assert_eq!(turns[..MANY], sources, "first come, first served, and nobody twice before all others");
    assert_eq!(turns.len(), 2 * MANY, "each slice is read once");
    assert_eq!(counts(&mut world, "red"), ((MANY * EACH) as u64, 0));
}

#[test]
fn a_source_that_goes_leaves_its_turn_to_the_others() {
    // W-36
    let mut world = crowded();
    let asked = entity(&world, "q0");
    assert_eq!(world.asked()[0].source, Source::main(asked));
    let plain = QueueSettings::default;
    // Deleted or turned away while they are read, and while they are in line.
    world.delete("q0");
    world.update("q1", plain()).unwrap();
    world.delete(&format!("q{}", MANY - 3));
    world.update(&format!("q{}", MANY - 2), plain()).unwrap();
    let turns = answer_all(&mut world);
    assert_eq!(turns[..2], [asked, entity(&world, "q1")], "what was asked for comes, and is dropped");
    assert_eq!(counts(&mut world, "red"), (((MANY - 4) * EACH) as u64, 0));
    assert_eq!(world.queue("q1").counts.active, EACH as u64);
    // And what is turned again goes on.
    forwarding(&mut world, "q1");
    answer_all(&mut world);
    assert_eq!(counts(&mut world, "red"), (((MANY - 3) * EACH) as u64, 0));
}

fn forwarding(world: &mut World, path: &str) {
    let settings = QueueSettings { forward_to: Some("t".into()), ..QueueSettings::default() };
    world.update(path, settings).unwrap();
}

#[test]
fn sources_whose_destination_is_closed_hold_nothing_meanwhile() {
    // S-112, W-36
    let mut world = only_red();
    let letters = || QueueSettings { forward_dead_letters_to: Some("t".into()), ..QueueSettings::default() };
    world.is_reading_held = true;
    for nth in 0..MANY {
        let path = format!("d{nth}");
        world.create(&path, letters());
        send_large(&mut world, &path, message(0));
        world.commit();
        let taken = world.receive(&path, PeekLock, EACH as u32);
        let tokens: Vec<_> = taken.iter().map(|each| each.token).collect();
        world.settle_tokens(&path, &tokens, Outcome::DeadLetter(None)).unwrap();
        assert_eq!(world.queue(&path).counts.dead_letter, EACH as u64);
    }
    work(&mut world);
    assert!(held(&world) > READ_BYTES / 2);
    let status = |world: &mut World, status| {
        let settings = TopicSettings { status, ..TopicSettings::default() };
        world.manage(Task::UpdateTopic { path: "t".into(), settings, access: vec![] }).unwrap();
    };
    status(&mut world, Status::SendDisabled);
    answer_all(&mut world);
    assert_eq!(counts(&mut world, "red"), (0, 0));
    status(&mut world, Status::Active);
    world.pass(FORWARD_RETRY);
    answer_all(&mut world);
    assert_eq!(counts(&mut world, "red"), ((MANY * EACH) as u64, 0), "they are read again");
}

/// Topics `s0` and so on, each with a rule and messages that are due in a minute.
fn with_schedules(world: &mut World, count: usize) {
    for nth in 0..count {
        let (path, settings) = (format!("s{nth}"), TopicSettings::default());
        world.manage(Task::CreateTopic { path: path.as_str().into(), settings, access: vec![] }).unwrap();
        let settings = crate::topic::settings::SubscriptionSettings {
            forward_to: Some("end".into()),
            ..Default::default()
        };
        let filter = crate::topic::routes::tests::sql("color = 'red'");
        let rule = Some(crate::topic::rule::Rule { name: "r".into(), filter, action: None });
        let (topic, name) = (path.as_str().into(), "red".into());
        world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
        let scheduled = world.local().after(Span::minutes(1));
        send_large(world, &path, Incoming { scheduled, ..message(0) });
    }
    world.commit();
}

#[test]
fn what_is_read_for_all_topics_whose_messages_are_due_has_the_same_total() {
    // S-49, P7, W-36
    let mut world = World::with_queue("end");
    with_schedules(&mut world, MANY);
    world.is_reading_held = true;
    world.pass(Span::minutes(1));
    work(&mut world);
    assert!(held(&world) > READ_BYTES / 2);
    // One has nothing left to publish when it was read, one goes while it is read, and one has nothing left to read in line.
    let first = world.tick_read();
    assert_eq!(first, Source::main(entity(&world, "s0")));
    cancel(&mut world, "s0");
    world.delete("s1");
    cancel(&mut world, &format!("s{}", MANY - 2));
    answer_all(&mut world);
    assert_eq!(world.queue("end").counts.active, ((MANY - 3) * EACH) as u64);
}

fn cancel(world: &mut World, topic: &str) {
    let numbers: Box<[Number]> = (1..=EACH as u64).map(Number).collect();
    let (request, namespace, path) = (RequestId::default(), NamespaceId(0), topic.into());
    let told = world.command(Command::CancelScheduled { request, namespace, path, numbers }, &[]);
    assert!(matches!(told[..], [Effect::Answered { answer: Ok(_), .. }]), "{told:?}");
}

#[test]
fn a_moved_clock_does_not_wait_for_what_is_read_for_others() {
    // S-49, with the test clock: nothing is forwarded while it is moved.
    let mut world = only_red();
    world.create("end", QueueSettings::default());
    with_schedules(&mut world, 1);
    crowd(&mut world);
    let (request, namespace, by) = (RequestId::default(), NamespaceId(0), Span::minutes(10));
    world.command(Command::Advance { request, namespace, by }, &[]);
    while world.broker.is_advancing() {
        world.tick();
        world.commit();
        if world.broker.is_waiting() {
            assert!(!world.asked().is_empty(), "it waits for the disk, and for nobody else");
            world.tick_read();
        }
    }
    answer_all(&mut world);
    assert_eq!(world.queue("end").counts.active, EACH as u64);
    assert_eq!(counts(&mut world, "red"), ((MANY * EACH) as u64, 0));
}
