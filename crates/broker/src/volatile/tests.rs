use super::*;
use crate::command::ReceiveMode;
use crate::ids::{ConnectionId, LockToken, Position, SubQueue};
use crate::limits::IDLE_TIMERS;
use crate::testing::{World, message};

const SOURCE: Source = Source { entity: EntityId(0), sub: SubQueue::Main };

fn link(number: u32) -> LinkId {
    LinkId { connection: ConnectionId(1), link: number }
}

fn with_receivers(count: u32) -> Volatile {
    let mut volatile = Volatile::default();
    let (entity, namespace) = (EntityId(0), NamespaceId(0));
    volatile.create_entity(entity, namespace, LocalTime(0));
    for number in 0..count {
        let role = Role::Receiver { mode: ReceiveMode::PeekLock, delivered: 0, session: None };
        volatile.attach(link(number), SOURCE, role);
    }
    volatile
}

#[test]
fn only_what_is_durable_then_becomes_free() {
    let mut world = World::with_queue("q");
    let receiver = world.receiver("q", ReceiveMode::PeekLock, 1);
    let sender = world.sender("q");
    world.commit();
    let before = world.position();
    world.commit();
    world.send(sender, 0, &[message(10)]);
    let at = world.position();
    assert!(!world.broker.is_awaited(before), "it is not durable then");
    assert!(world.broker.is_awaited(at) && world.broker.is_awaited(Position(at.0 + 1)));
    world.detach(receiver);
    assert!(!world.broker.is_awaited(at), "nobody waits");
}

#[test]
fn timers_of_settled_locks_do_not_pile_up() {
    let mut volatile = with_receivers(0);
    for number in 1..=100_000 {
        let token = LockToken::new(number, Sequence(number));
        volatile.add_lock(SOURCE, Lock { token, until: LocalTime(60_000) });
        volatile.unlock(SOURCE, Sequence(number));
    }
    assert!(volatile.timers.of(NamespaceId(0)).lock_count() <= 2 * IDLE_TIMERS);
    assert_eq!(volatile.take_due(Time(i64::MAX)), None);
}
