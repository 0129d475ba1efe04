//! Locks end by themselves: the message is back, and that delivery counts as failed (S-86).

use crate::Broker;
use crate::decision::LocalDecision;
use crate::ids::LockToken;
use crate::planted::{Bug, is_planted};
use crate::timers::LockTimer;
use crate::volatile::live::ticket_of;

impl Broker {
    pub(crate) fn end_lock(
        &mut self,
        timer: LockTimer,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        if let Some(ticket) = ticket_of(&timer) {
            return self.end_session_lock(timer, ticket, most, decision);
        }
        let (source, sequence) = (timer.source, LockToken(timer.token).sequence());
        self.volatile.unlock(source, sequence);
        if is_planted(Bug::Count) {
            self.volatile.free_now(source, sequence);
            return 1;
        }
        self.give_back(source, sequence, None, timer.at, decision);
        1
    }
}

#[cfg(test)]
mod tests {
    use crate::command::{Outcome, ReceiveMode::PeekLock};
    use crate::testing::{World, deliveries};
    use crate::time::Span;

    #[test]
    fn a_message_whose_lock_ends_is_delivered_again_with_a_higher_count() {
        // S-86, S-94, S-96
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let first = world.receiver("q", PeekLock, 1);
        world.detach(first);
        world.pass(Span(59_999));
        assert_eq!(world.tick(), []);
        world.pass(Span(1));
        world.tick();
        world.commit();
        let second = world.link();
        world.attach_receiver(second, "q", PeekLock);
        let effects = world.credit(second, 1, false);
        assert_eq!(deliveries(&effects), [(second, 1)]);
        assert!(matches!(&effects[0], crate::Effect::Deliver { delivery, .. } if delivery.count == 1));
    }

    #[test]
    fn a_settled_message_has_no_lock_left_to_end() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Complete);
        world.pass(Span::minutes(10));
        let records = world.records.len();
        world.tick();
        assert_eq!(world.records.len(), records);
    }

    #[test]
    fn many_locks_that_end_at_once_are_worked_off_in_slices() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 4_000);
        world.receiver("q", PeekLock, 4_000);
        world.pass(Span::minutes(2));
        let records = world.records.len();
        world.tick();
        assert_eq!(world.records.len() - records, crate::limits::TIMER_SLICE);
        assert!(world.is_due());
    }
}
