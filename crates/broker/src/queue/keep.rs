//! Locks outlive a planned restart: on a clean stop they become the last record of the journal. They are valid only
//! while nothing was recorded after them, or a crash later on would bring back locks that ended long ago.

use crate::Broker;
use crate::decision::{Context, Decision};
use crate::ids::Source;
use crate::record::{KeptLock, Record};
use crate::time::Time;

impl Broker {
    /// Records the locks that are held, as a planned stop does last of all, unless the last record says the same. A
    /// broker that is made from a state whose last record this is has the locks again ([`Broker::new`]).
    pub fn keep_locks(&mut self, context: Context, decision: &mut Decision) {
        let locks = self.locks(context.now);
        if self.durable.kept_locks() != locks {
            self.write_undated(Record::LocksKept { locks: locks.into() }, decision);
        }
    }

    /// The locks that are held, in order.
    pub fn locks(&self, now: Time) -> Vec<KeptLock> {
        let held = self
            .volatile
            .locks()
            // A message of a session is locked with it, and the session's lock ends with its link.
            .filter(|(source, lock)| {
                !lock.until.is_never() && now.local(self.volatile.clock_offset_at(source.entity)) < lock.until
            });
        let mut locks: Vec<_> =
            held.map(|(source, lock)| KeptLock { source, token: lock.token, until: lock.until }).collect();
        locks.sort_unstable_by_key(|lock: &KeptLock| -> (Source, u128) { (lock.source, lock.token.0) });
        locks
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Answer;
    use crate::ids::Sequence;
    use crate::refusal::Refusal;
    use crate::testing::World;
    use crate::time::Span;

    fn locked() -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", 4);
        let link = world.receiver("q", PeekLock, 4);
        for sequence in [1, 4] {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::Release);
        }
        world
    }

    #[test]
    fn a_planned_restart_keeps_locks_and_hands_out_the_rest() {
        // S-93: ours are kept
        let mut world = locked();
        let (two, three) = (world.token(2), world.token(3));
        world.keep_locks();
        world.restart();
        let free: Vec<_> = world.receive("q", PeekLock, 9).iter().map(|each| each.number.0).collect();
        assert_eq!(free, [1, 4]);
        assert_eq!(world.settle_tokens("q", &[two], Outcome::Complete), Ok(Answer::Settled));
        world.pass(Span::minutes(1));
        world.tick();
        world.commit();
        assert_eq!(
            world.settle_tokens("q", &[three], Outcome::Complete),
            Err(Refusal::LockLost(Sequence(3)))
        );
        assert_eq!(world.queue("q").index.get(Sequence(3)).unwrap().count(), 1);
        let again: Vec<_> = world.receive("q", PeekLock, 9).iter().map(|each| each.number.0).collect();
        assert_eq!(again, [1, 3, 4]);
    }

    #[test]
    fn a_crash_loses_locks_and_no_messages() {
        // S-93
        let mut world = locked();
        let two = world.token(2);
        world.restart();
        assert_eq!(world.settle_tokens("q", &[two], Outcome::Complete), Err(Refusal::LockLost(Sequence(2))));
        assert_eq!(world.receive("q", PeekLock, 9).len(), 4);
    }

    #[test]
    fn what_was_free_before_a_planned_restart_comes_before_what_is_free_later() {
        // S-85: 2 and 3 were locked, and 1 and 4 are free
        let mut world = locked();
        world.keep_locks();
        world.restart();
        world.pass(Span::minutes(1));
        world.tick();
        world.commit();
        let order: Vec<_> = world.receive("q", PeekLock, 9).iter().map(|each| each.number.0).collect();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    #[test]
    fn kept_locks_are_void_as_soon_as_anything_is_recorded_after_them() {
        let mut world = locked();
        let two = world.token(2);
        world.keep_locks();
        world.restart();
        world.send_committed("q", 1);
        world.restart();
        assert_eq!(world.settle_tokens("q", &[two], Outcome::Complete), Err(Refusal::LockLost(Sequence(2))));
    }

    #[test]
    fn locks_on_dead_letters_and_deferred_messages_are_kept_too() {
        let mut world = locked();
        let (two, three) = (world.token(2), world.token(3));
        world.settle_tokens("q", &[two], Outcome::DeadLetter(None)).unwrap();
        world.settle_tokens("q", &[three], Outcome::Defer(None)).unwrap();
        world.commit();
        let dead = world.receive("q/$DeadLetterQueue", PeekLock, 1)[0].token;
        world.receive_deferred("q", &[3], PeekLock).unwrap();
        let deferred = world.token(3);
        world.keep_locks();
        world.restart();
        assert_eq!(world.receive("q/$DeadLetterQueue", PeekLock, 1), []);
        assert!(world.settle_tokens("q/$DeadLetterQueue", &[dead], Outcome::Complete).is_ok());
        assert!(world.settle_tokens("q", &[deferred], Outcome::Complete).is_ok());
    }

    #[test]
    fn without_locks_there_is_nothing_to_keep() {
        let mut world = locked();
        world.pass(Span::minutes(1));
        assert_eq!(world.broker.locks(world.now), []);
    }
}
