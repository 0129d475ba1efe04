use crate::command::Outcome;
use crate::command::ReceiveMode::PeekLock;
use crate::durable::{Durable, Queue};
use crate::effect::Answer;
use crate::ids::{EntityId, NamespaceId, Number, Sequence};
use crate::settings::QueueSettings;
use crate::testing::World;
use std::collections::BTreeSet;

impl Durable {
    /// For states that would take too long to reach. No record says so: replay does not lead there.
    pub(crate) fn by_hand(&mut self, entity: EntityId) -> &mut Queue {
        self.queue_mut(entity)
    }
}

fn partitioned() -> World {
    let mut world = World::new();
    (0..5).for_each(|n| world.create(&format!("other{n}"), QueueSettings::default()));
    world.create("q", QueueSettings { partitioning: true, ..QueueSettings::default() });
    world
}

fn numbers(world: &mut World, path: &str) -> Vec<u64> {
    world.receive(path, PeekLock, 9).iter().map(|each| each.number.0).collect()
}

#[test]
fn a_partitioned_queue_numbers_within_its_partition() {
    // S-32, S-221
    let mut world = partitioned();
    world.send_committed("q", 2);
    assert_eq!(numbers(&mut world, "q"), [5 << 48 | 1, 5 << 48 | 2]);
    world.send_committed("other0", 2);
    assert_eq!(numbers(&mut world, "other0"), [1, 2]);
}

#[test]
fn an_exhausted_range_starts_again_at_zero_and_messages_are_still_found() {
    // S-33
    let mut world = partitioned();
    let entity = world.broker.durable.find(NamespaceId(0), "q").unwrap();
    world.is_checked = false;
    world.broker.durable.by_hand(entity).next = Sequence((1 << 48) - 1);
    world.send_committed("q", 3);
    let received = world.receive("q", PeekLock, 9);
    let numbers: Vec<_> = received.iter().map(|each| each.number.0).collect();
    assert_eq!(numbers, [5 << 48 | 0xffff_ffff_ffff, 5 << 48, 5 << 48 | 1]);
    for delivery in &received {
        world.settle_tokens("q", &[delivery.token], Outcome::Defer(None)).unwrap();
    }
    let Ok(Answer::Messages(again)) = world.receive_deferred("q", &numbers, PeekLock) else { panic!() };
    assert_eq!(
        again.iter().map(|each| each.sequence).collect::<Vec<_>>(),
        received.iter().map(|each| each.sequence).collect::<Vec<_>>()
    );
    let queue = world.queue("q");
    assert_eq!(queue.sequence(Number(4 << 48 | 1)), None);
    assert_eq!(queue.sequence(Number(5 << 48 | 2)), Some(Sequence(2)));
}

#[test]
fn two_states_that_differ_have_different_fingerprints() {
    let state = |act: &dyn Fn(&mut World, crate::LinkId)| {
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        act(&mut world, link);
        world.broker.durable.fingerprint()
    };
    let settled = |outcome: Outcome| {
        state(&move |world, link| {
            let token = world.token(1);
            world.settle(link, 0, token, outcome.clone());
        })
    };
    let states = [
        state(&|_, _| {}),
        settled(Outcome::Complete),
        settled(Outcome::Abandon(None)),
        settled(Outcome::Defer(None)),
        settled(Outcome::DeadLetter(None)),
        state(&|world, _| world.keep_locks()),
        state(&|world, _| {
            drop(world.update("q", QueueSettings { express: true, ..QueueSettings::default() }))
        }),
    ];
    let different: BTreeSet<_> = states.into_iter().collect();
    assert_eq!(different.len(), states.len());
}
