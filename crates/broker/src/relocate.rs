//! Bodies that are copied forward in the journal.

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
    pub fn forget_relocated(&mut self, bodies: &[BodyId]) {
        self.durable.forget_relocated(bodies);
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Intake;
    use crate::ids::BodyId;
    use crate::testing::World;

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
        world.broker.forget_relocated(&[BodyId(2)]);
        assert_eq!(world.broker.durable().stored_as(BodyId(2)), BodyId(2));
    }
}
