//! What storing asks of the broker beside messages: bodies that are copied forward, and what to do without room.

use crate::Broker;
use crate::command::Intake;
use crate::decision::Decision;
use crate::ids::BodyId;
use crate::record::Record;

impl Broker {
    /// Records that bodies are stored somewhere else from now on. A body that died meanwhile may be among them: its copy is
    /// garbage like itself, and nobody will ask for either.
    pub fn relocate(&mut self, bodies: &[(BodyId, Intake)], decision: &mut Decision) {
        for (body, copy) in bodies {
            assert!(*body < self.durable.next_body(), "only what was stored is moved");
            let record = Record::Relocated { body: *body, copy: self.durable.next_body() };
            self.write_undated(record, decision);
            decision.body(*copy);
        }
    }

    /// Forgets where bodies are stored that no snapshot names any more.
    pub fn forget_moved(&mut self, bodies: &[BodyId]) {
        self.durable.forget_moved(bodies);
    }

    /// Without room messages are refused; whatever makes room or needs none goes on.
    pub fn set_room(&mut self, has_room: bool) {
        self.volatile.set_full(!has_room);
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Intake;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::{Effect, Notice};
    use crate::ids::BodyId;
    use crate::refusal::Refusal;
    use crate::testing::{World, deliveries, message};

    #[test]
    fn without_room_sends_are_refused_and_receiving_goes_on() {
        // S-19
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let sender = world.sender("q");
        world.broker.set_room(false);
        let refused = world.send(sender, 0, &[message(1)]);
        assert_eq!(
            refused,
            [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal: Refusal::NoSpace })]
        );
        let receiver = world.link();
        world.attach_receiver(receiver, "q", PeekLock);
        assert_eq!(deliveries(&world.credit(receiver, 1, false)), [(receiver, 1)]);
        world.broker.set_room(true);
        assert!(matches!(world.send(sender, 1, &[message(1)])[..], [Effect::Accepted { .. }]));
    }

    #[test]
    fn a_large_message_that_lost_a_part_for_want_of_room_is_refused_even_when_room_came_back() {
        let mut world = World::with_queue("q");
        let sender = world.sender("q");
        world.part(sender, 500);
        world.broker.set_room(false);
        world.part(sender, 500);
        world.broker.set_room(true);
        world.part(sender, 500);
        let refused = world.send(sender, 0, &[message(100)]);
        assert_eq!(
            refused,
            [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal: Refusal::NoSpace })]
        );
        assert!(matches!(world.send(sender, 1, &[message(100)])[..], [Effect::Accepted { .. }]));
        assert_eq!(world.queue("q").bytes, 100);
    }

    #[test]
    fn a_moved_body_is_found_under_its_newest_copy() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        assert_eq!(world.broker.durable().stored_as(BodyId(2)), BodyId(2));
        for copy in [4, 5] {
            world.relocate(&[(BodyId(2), Intake { offset: 0, length: 10 })]);
            assert_eq!(world.broker.durable().stored_as(BodyId(2)), BodyId(copy));
        }
        // What is forgotten too early is not found, and replay would find it.
        world.is_checked = false;
        world.broker.forget_moved(&[BodyId(2)]);
        assert_eq!(world.broker.durable().stored_as(BodyId(2)), BodyId(2));
    }
}
