use super::*;
use crate::command::Incoming;
use crate::command::ReceiveMode::PeekLock;
use crate::settings::QueueSettings;
use crate::testing::{World, deliveries, message};

const HOUR: Span = Span::minutes(60);

fn lock_expired(number: u64, fate: Fate) -> Happening {
    Happening::LockExpired { number: Number(number), fate }
}

fn expired(number: u64, fate: Fate) -> Happening {
    Happening::MessageExpired { number: Number(number), fate }
}

/// What happened, in seconds since `start`.
fn told(advanced: &Advanced, start: LocalTime) -> Vec<(i64, &str, Happening)> {
    let seconds = |at: LocalTime| (at.0 - start.0) / 1_000;
    advanced.events.iter().map(|event| (seconds(event.at), &*event.entity, event.what)).collect()
}

fn time_in(world: &mut World, namespace: u32) -> LocalTime {
    let (request, namespace) = (RequestId::default(), NamespaceId(namespace));
    let task = Box::new(Task::TellTime);
    match &world.command(Command::Manage { request, namespace, task }, &[])[..] {
        [Effect::Answered { answer: Ok(Answer::Time(time)), .. }] => *time,
        other => panic!("{other:?}"),
    }
}

/// Locks, expiries of both kinds, a schedule and an idle queue, over an hour.
fn busy() -> World {
    let mut world = World::with_queue("jobs");
    let settings = QueueSettings {
        default_time_to_live: Span::minutes(10),
        dead_letter_on_expiration: true,
        ..QueueSettings::default()
    };
    world.create("mortal", settings.clone());
    world.create("dropping", QueueSettings { dead_letter_on_expiration: false, ..settings });
    let settings = QueueSettings { auto_delete_on_idle: Span::minutes(30), ..QueueSettings::default() };
    world.create("idle", settings);
    world.send_committed("jobs", 2);
    let scheduled = Incoming { scheduled: world.local().after(Span::minutes(20)), ..message(10) };
    world.schedule("jobs", &[scheduled]).unwrap();
    world.send_committed("mortal", 1);
    world.send_committed("dropping", 2);
    world.receive("jobs", PeekLock, 1);
    world
}

#[test]
fn due_instants_are_visited_in_order_and_each_at_its_own_time() {
    let mut world = busy();
    let start = world.local();
    // Real time passes between the ticks, and the instants do not move with it.
    let advanced = world.advance(0, HOUR, Span(7)).unwrap();
    let activated = Happening::MessageActivated { scheduled: Number(3), number: Number(4) };
    assert_eq!(
        told(&advanced, start),
        [
            (60, "jobs", lock_expired(1, Fate::Returned)),
            (600, "mortal", expired(1, Fate::DeadLettered)),
            (600, "dropping", expired(1, Fate::Dropped)),
            (600, "dropping", expired(2, Fate::Dropped)),
            (1_200, "jobs", activated),
            (1_800, "idle", Happening::EntityDeleted),
        ]
    );
    assert_eq!((advanced.more, advanced.now), (0, start.after(HOUR)));
    assert!(advanced.events.iter().all(|event| (event.at.0 - start.0) % 1_000 == 0), "to the millisecond");
    assert_eq!(time_in(&mut world, 0), start.after(HOUR));
    let slot = *world.queue("jobs").index.get(Sequence(4)).unwrap();
    assert_eq!(slot.enqueued, start.after(Span::minutes(20)));
    world.restart();
    assert_eq!(time_in(&mut world, 0), start.after(HOUR), "time does not go back with a restart");
}

#[test]
fn the_clock_of_one_namespace_moves_no_other() {
    let mut world = World::new();
    for (name, namespace) in [("one", 1), ("two", 2)] {
        world.manage(Task::NameNamespace { name: name.into() }).unwrap();
        let (request, namespace) = (RequestId::default(), NamespaceId(namespace));
        let settings = QueueSettings { default_time_to_live: Span::minutes(5), ..QueueSettings::default() };
        let (path, settings) = ("q".into(), Box::new(settings));
        world.command(Command::CreateQueue { request, namespace, path, settings }, &[]);
        let link = world.link();
        world.command(Command::AttachSender { link, namespace, path: "q".into() }, &[]);
        world.send(link, 0, &[message(10)]);
        world.commit();
    }
    let start = world.local();
    let advanced = world.advance(1, Span::minutes(4), Span(1)).unwrap();
    assert_eq!(told(&advanced, start), []);
    let after = world.now;
    assert_eq!(time_in(&mut world, 2), after.local(ClockOffset::default()));
    assert_eq!(time_in(&mut world, 1), start.after(Span::minutes(4)));
    // The minute that is left passes by itself, and in the other namespace it is only the first.
    world.pass(Span(59_999));
    assert!(!world.is_due());
    world.pass(Span(1));
    assert!(world.is_due());
    world.tick();
    let left = |world: &World| {
        world.broker.durable.queues().map(|(_, queue)| queue.counts.total()).collect::<Vec<_>>()
    };
    assert_eq!(left(&world), [0, 1]);
    world.pass(Span((start.after(Span::minutes(5)).0 - world.now.0) as u64));
    world.tick();
    assert_eq!(left(&world), [0, 0]);
}

#[test]
fn nothing_is_handed_out_while_time_moves() {
    let mut world = World::with_queue("jobs");
    world.send_committed("jobs", 1);
    let first = world.receiver("jobs", PeekLock, 1);
    let waiting = world.receiver("jobs", PeekLock, 1);
    let start = world.local();
    let advanced = world.advance(0, HOUR, Span(1)).unwrap();
    // The lock ends once: nobody gets the message in the fifty-nine minutes after it.
    assert_eq!(told(&advanced, start), [(60, "jobs", lock_expired(1, Fate::Returned))]);
    let effects = world.take_effects();
    assert_eq!(deliveries(&effects), [(waiting, 1)]);
    let until = effects.iter().find_map(|effect| match effect {
        Effect::Deliver { delivery, .. } => delivery.locked_until,
        _ => None,
    });
    assert_eq!(until, Some(time_in(&mut world, 0).after(Span::minutes(1))));
    world.detach(first);
}

#[test]
fn a_lock_that_outlives_its_message_decides_with_the_message() {
    let mut world = World::new();
    let settings = QueueSettings {
        default_time_to_live: Span::seconds(30),
        dead_letter_on_expiration: true,
        max_delivery_count: 1,
        ..QueueSettings::default()
    };
    world.create("q", settings);
    world.send_committed("q", 2);
    world.receiver("q", PeekLock, 2);
    let start = world.local();
    let advanced = world.advance(0, HOUR, Span(1)).unwrap();
    let ended = |number| (60, "q", lock_expired(number, Fate::DeadLettered));
    assert_eq!(told(&advanced, start), [ended(1), ended(2)]);
    // A lock in the dead-letter queue is told by its own path.
    world.receive("q/$DeadLetterQueue", PeekLock, 1);
    let start = time_in(&mut world, 0);
    let advanced = world.advance(0, HOUR, Span(1)).unwrap();
    assert_eq!(told(&advanced, start), [(60, "q/$deadletterqueue", lock_expired(1, Fate::Returned))]);
}

#[test]
fn what_is_due_at_one_instant_is_told_in_the_order_of_its_messages() {
    let mut world = World::new();
    world.create("q", QueueSettings { max_delivery_count: 1, ..QueueSettings::default() });
    world.send_committed("q", 20);
    world.receiver("q", PeekLock, 20);
    let start = world.local();
    let advanced = world.advance(0, HOUR, Span(1)).unwrap();
    let ended = |number| (60, "q", lock_expired(number, Fate::DeadLettered));
    assert_eq!(told(&advanced, start), (1..=20).map(ended).collect::<Vec<_>>());
}

#[test]
fn what_happens_beyond_the_limit_is_counted_and_done() {
    let mut world = World::new();
    let settings = QueueSettings { default_time_to_live: Span::minutes(1), ..QueueSettings::default() };
    world.create("q", settings);
    let count = (ADVANCE_EVENTS + TIMER_SLICE) as u32 + 1;
    world.send_committed("q", count);
    let start = world.local();
    let advanced = world.advance(0, HOUR, Span(1)).unwrap();
    assert_eq!((advanced.events.len(), advanced.more), (ADVANCE_EVENTS, TIMER_SLICE as u64 + 1));
    assert!(advanced.events.iter().all(|event| event.at == start.after(Span::minutes(1))));
    assert_eq!(world.queue("q").counts.total(), 0);
}

#[test]
fn a_move_too_far_is_refused_and_moves_nothing() {
    let mut world = World::with_queue("q");
    let start = world.local();
    for (namespace, by) in [(0, Span(ADVANCE_MOST.0 + 1)), (0, Span::MAX), (1, HOUR)] {
        assert!(matches!(world.advance(namespace, by, Span(0)), Err(Refusal::InvalidSetting { .. })));
    }
    assert_eq!(time_in(&mut world, 0), start);
    assert!(world.advance(0, ADVANCE_MOST, Span(0)).is_ok());
    world.now = Time(CALENDAR_END.0 - ADVANCE_MOST.0 as i64 - 10);
    assert!(world.advance(0, Span(11), Span(0)).is_err(), "behind the year 9999");
    assert!(world.advance(0, Span(10), Span(0)).is_ok());
}

#[test]
fn time_moved_twice_goes_on_from_where_it_was() {
    let mut world = busy();
    let start = world.local();
    let first = world.advance(0, Span::minutes(15), Span(3)).unwrap();
    world.restart();
    let second = world.advance(0, Span::minutes(45), Span(3)).unwrap();
    assert_eq!((first.events.len(), second.now), (4, start.after(HOUR)));
    // After a restart nobody knows since when the queue was idle.
    let idle = Span::minutes(45);
    assert_eq!(second.events.last().map(|event| event.at), Some(start.after(idle)));
}
