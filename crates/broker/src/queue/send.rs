//! Sending: a delivery with one message or a batch is checked whole, then each message takes the next number.
//!
//! "Accepted" leaves only when the records are durable (S-10), and a refused delivery leaves nothing behind (S-16).

use crate::Broker;
use crate::command::{Incoming, Intake};
use crate::decision::{Context, Decision};
use crate::durable::Queue;
use crate::effect::Effect;
use crate::ids::{EntityId, LinkId};
use crate::limits::BATCH_MESSAGES;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{Span, Time};
use crate::volatile::{Link, Role, Touch};

impl Broker {
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        delivery: u32,
        is_settled: bool,
        messages: &[Incoming],
        context: Context,
        decision: &mut Decision,
    ) {
        // A link that is gone, or was refused, has nobody left to answer.
        let Some(Link { entity, role: Role::Sender { part_bytes, .. } }) = self.volatile.link(link) else {
            return;
        };
        let (entity, part_bytes) = (*entity, *part_bytes);
        match self.check_send(entity, messages, part_bytes) {
            Ok(()) => {
                messages.iter().for_each(|message| self.enqueue(link, entity, message, context, decision));
                self.volatile.apply(Touch::Accessed { entity, time: context.now });
                if !is_settled {
                    decision.effect(Effect::Accepted { link, delivery });
                }
            }
            Err(refusal) => {
                self.volatile.apply(Touch::PartsDropped { link });
                // S-14: nobody is told how a pre-settled send came out.
                if !is_settled {
                    decision.effect(Effect::Rejected { link, delivery, refusal });
                }
            }
        }
    }

    fn check_send(&self, entity: EntityId, messages: &[Incoming], part_bytes: u64) -> Result<(), Refusal> {
        let queue = self.durable.queue(entity).expect("a link's entity exists as long as the link");
        if !queue.settings.status.may_send() {
            return Err(Refusal::EntityDisabled(queue.path.clone()));
        }
        if messages.len() > BATCH_MESSAGES {
            return Err(Refusal::BatchTooLarge { count: messages.len(), limit: BATCH_MESSAGES });
        }
        let size = part_bytes + messages.iter().map(|message| u64::from(message.body.length)).sum::<u64>();
        let limit = queue.settings.max_message_bytes();
        if size > limit {
            return Err(Refusal::MessageTooLarge { size, limit });
        }
        if queue.bytes >= queue.settings.max_size_bytes() {
            let (name, size, limit) = (queue.path.clone(), queue.bytes, queue.settings.max_size_bytes());
            return Err(Refusal::QueueFull { name, size, limit });
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        link: LinkId,
        entity: EntityId,
        message: &Incoming,
        context: Context,
        decision: &mut Decision,
    ) {
        let (parts, part_bytes) = self.take_parts(link);
        let queue = self.durable.queue(entity).expect("checked before");
        let sequence = queue.next;
        let record = Record::Enqueued {
            entity,
            sequence,
            body: self.durable.next_body,
            length: message.body.length + part_bytes as u32,
            expires: expiry(queue, message.time_to_live, context.now),
            parts,
        };
        self.write(record, context, decision);
        decision.bodies.push(message.body);
        self.volatile.apply(Touch::Arrived { entity, sequence, position: context.position });
    }

    fn take_parts(&mut self, link: LinkId) -> (Option<Box<[crate::BodyId]>>, u64) {
        match self.volatile.links.get_mut(&link) {
            Some(Link { role: Role::Sender { parts, part_bytes }, .. }) if !parts.is_empty() => {
                (Some(std::mem::take(parts).into()), std::mem::take(part_bytes))
            }
            _ => (None, 0),
        }
    }

    /// Stores a part of a large message. It counts for nothing until the message is whole, and what exceeds the
    /// limit is not stored: the send that ends the message will be refused.
    pub(crate) fn store_part(
        &mut self,
        link: LinkId,
        body: Intake,
        context: Context,
        decision: &mut Decision,
    ) {
        let Some(Link { entity, role: Role::Sender { part_bytes, .. } }) = self.volatile.link(link) else {
            return;
        };
        let queue = self.durable.queue(*entity).expect("a link's entity exists as long as the link");
        if *part_bytes <= queue.settings.max_message_bytes() {
            let id = self.durable.next_body;
            self.write(Record::PartStored { body: id }, context, decision);
            decision.bodies.push(body);
            self.volatile.apply(Touch::PartStored { link, body: id, length: body.length.into() });
        }
        decision.effect(Effect::PartTaken { link, length: body.length });
    }
}

/// When a message expires: its own time to live, with the queue's as default and ceiling (S-50, S-55, S-56).
fn expiry(queue: &Queue, own: Span, now: Time) -> Time {
    now.after(own.min(queue.settings.default_time_to_live))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};

    #[test]
    fn numbers_start_at_one_and_have_no_gaps() {
        // S-31, S-37
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.send(link, 0, &[message(10)]);
        world.send(link, 1, &[message(10); 3]);
        let numbers: Vec<_> = world.queue("q").index.iter().map(|(sequence, _)| sequence.0).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn a_batch_with_one_message_too_many_leaves_nothing_behind() {
        // S-16
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        let effects = world.send(link, 0, &vec![message(1); BATCH_MESSAGES + 1]);
        assert!(matches!(
            effects[..],
            [Effect::Rejected { refusal: Refusal::BatchTooLarge { count: 4_501, limit: 4_500 }, .. }]
        ));
        assert_eq!(world.queue("q").next.0, 1);
        world.send(link, 1, &vec![message(1); BATCH_MESSAGES]);
        assert_eq!(world.queue("q").active, 4_500);
    }

    #[test]
    fn the_largest_message_is_taken_and_one_byte_more_is_not() {
        // S-17
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        assert!(matches!(world.send(link, 0, &[message(1_048_576)])[..], [Effect::Accepted { .. }]));
        assert!(matches!(
            world.send(link, 1, &[message(1_048_577)])[..],
            [Effect::Rejected { refusal: Refusal::MessageTooLarge { .. }, .. }]
        ));
    }

    #[test]
    fn a_full_queue_refuses_with_its_figures() {
        // S-19
        let mut world = World::new();
        world.create("q", QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() });
        let link = world.sender("q");
        world.send(link, 0, &[message(1_048_576)]);
        let refusal = Refusal::QueueFull { name: "q".into(), size: 1_048_576, limit: 1_048_576 };
        assert_eq!(world.send(link, 1, &[message(1)]), [Effect::Rejected { link, delivery: 1, refusal }]);
    }

    #[test]
    fn a_settled_send_is_never_answered() {
        // S-14
        let mut world = World::new();
        world.create("q", QueueSettings { max_size_megabytes: 1, ..QueueSettings::default() });
        let link = world.sender("q");
        assert_eq!(world.send_settled(link, 0, &[message(1_048_576)]), []);
        assert_eq!(world.queue("q").active, 1);
        assert_eq!(world.send_settled(link, 1, &[message(1)]), []);
        assert_eq!(world.queue("q").active, 1);
    }

    #[test]
    fn the_queue_is_default_and_ceiling_of_the_time_to_live() {
        // S-55, S-56
        let mut world = World::new();
        let settings = QueueSettings { default_time_to_live: Span::seconds(10), ..QueueSettings::default() };
        world.create("q", settings);
        let link = world.sender("q");
        let mut own = message(1);
        for (number, time_to_live) in [Span::MAX, Span::seconds(3), Span::seconds(99)].into_iter().enumerate()
        {
            own.time_to_live = time_to_live;
            world.send(link, number as u32, &[own]);
        }
        let now = world.now;
        let expiries: Vec<_> =
            world.queue("q").index.iter().map(|(_, slot)| slot.expires.0 - now.0).collect();
        assert_eq!(expiries, [10_000, 3_000, 10_000]);
    }

    #[test]
    fn a_large_message_is_one_message_of_several_bodies() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        assert_eq!(world.part(link, 500), [Effect::PartTaken { link, length: 500 }]);
        world.part(link, 400);
        assert_eq!(world.queue("q").active, 0);
        world.send(link, 0, &[message(100)]);
        let queue = world.queue("q");
        let (sequence, slot) = queue.index.iter().next().unwrap();
        assert_eq!((slot.length, slot.body.0), (1_000, 3));
        assert_eq!(queue.extras[&sequence].parts, [crate::BodyId(1), crate::BodyId(2)]);
    }

    #[test]
    fn parts_of_an_aborted_message_are_forgotten() {
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        world.part(link, 500);
        world.drop_parts(link);
        world.send(link, 0, &[message(100)]);
        let queue = world.queue("q");
        assert_eq!(queue.index.iter().next().unwrap().1.length, 100);
        assert!(queue.extras.is_empty());
    }
}
