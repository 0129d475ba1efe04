//! What is refused while the journal is short: without its reserve, so that nothing is left for a full disk.

use crate::Broker;

impl Broker {
    /// While the journal is short messages are refused; whatever makes room or needs none goes on.
    pub fn set_short(&mut self, is_short: bool) {
        self.volatile.set_short(is_short);
    }
}

#[cfg(test)]
mod tests {
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::{Effect, Notice};
    use crate::refusal::Refusal;
    use crate::testing::{World, deliveries, message};

    #[test]
    fn without_room_sends_are_refused_and_receiving_goes_on() {
        // S-19
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let sender = world.sender("q");
        world.broker.set_short(true);
        let refused = world.send(sender, 0, &[message(1)]);
        assert_eq!(
            refused,
            [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal: Refusal::NoSpace })]
        );
        let receiver = world.link();
        world.attach_receiver(receiver, "q", PeekLock);
        assert_eq!(deliveries(&world.credit(receiver, 1, false)), [(receiver, 1)]);
        world.broker.set_short(false);
        assert!(matches!(world.send(sender, 1, &[message(1)])[..], [Effect::Accepted { .. }]));
    }

    #[test]
    fn a_large_message_that_lost_a_part_for_want_of_room_is_refused_even_when_room_came_back() {
        let mut world = World::with_queue("q");
        let sender = world.sender("q");
        world.part(sender, 500);
        world.broker.set_short(true);
        world.part(sender, 500);
        world.broker.set_short(false);
        world.part(sender, 500);
        let refused = world.send(sender, 0, &[message(100)]);
        assert_eq!(
            refused,
            [Effect::Notice(Notice::Rejected { link: sender, delivery: 0, refusal: Refusal::NoSpace })]
        );
        assert!(matches!(world.send(sender, 1, &[message(100)])[..], [Effect::Accepted { .. }]));
        assert_eq!(world.queue("q").bytes, 100);
    }
}
