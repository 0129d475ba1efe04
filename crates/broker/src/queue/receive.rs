//! Receiving: messages whose records are committed go to whoever waits, oldest message to oldest credit.

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{Context, Decision};
use crate::durable::Queue;
use crate::effect::{Delivery, Effect};
use crate::ids::{EntityId, LockToken, Sequence};
use crate::record::Record;
use crate::volatile::{Link, Lock, Ready, Role, Touch};

impl Broker {
    /// Hands out up to `most` messages of a queue and says how many it were (at least one unit of work is counted).
    pub(crate) fn hand_out(
        &mut self,
        entity: EntityId,
        most: usize,
        context: Context,
        decision: &mut Decision,
    ) -> usize {
        let mut count = 0;
        while let Some(queue) = self.durable.queue(entity)
            && let ready = self.volatile.ready(entity)
            && let Some((link, _)) = ready.waiting.front().copied()
            && let Some(sequence) = next_free(queue, ready)
        {
            if count == most {
                self.volatile.stir_again(entity);
                break;
            }
            let Some(Link { role: Role::Receiver { mode, .. }, .. }) = self.volatile.link(link) else {
                unreachable!("only receivers wait, and who detaches waits no more");
            };
            let mode = *mode;
            self.volatile.apply(Touch::Taken { entity, sequence });
            self.volatile.apply(Touch::Served { entity });
            let delivery = self.delivery(entity, sequence, mode, context);
            let effect = Effect::Deliver { link, mode, delivery };
            match mode {
                // The lock is memory, the message is committed: nothing to wait for, and the lock's time runs from
                // the moment the message leaves (S-82).
                ReceiveMode::PeekLock => decision.free_effect(effect),
                // The removal must be durable before the message leaves, or a crash would deliver it again (S-80).
                ReceiveMode::ReceiveAndDelete => {
                    self.write(Record::Removed { entity, first: sequence, count: 1 }, context, decision);
                    decision.effect(effect);
                }
            }
            count += 1;
        }
        count.max(1)
    }

    fn delivery(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        mode: ReceiveMode,
        context: Context,
    ) -> Delivery {
        let token = LockToken::new(self.volatile.fresh_nonce(), sequence);
        let queue = self.durable.queue(entity).expect("the caller looked");
        let slot = queue.index.get(sequence).expect("what is free is there");
        let until = context.now.after(queue.settings.lock_duration);
        let delivery = Delivery {
            token,
            sequence,
            body: slot.body,
            length: slot.length,
            count: slot.count(),
            enqueued: slot.enqueued,
            expires: slot.expires,
            locked_until: (mode == ReceiveMode::PeekLock).then_some(until),
            extra: queue.extras.get(&sequence).cloned(),
        };
        if mode == ReceiveMode::PeekLock {
            self.volatile.apply(Touch::Locked { entity, lock: Lock { token, until } });
        }
        delivery
    }
}

/// The oldest message that is committed, not locked and not gone (S-99). Those handed out before are older than the
/// cursor, so they come first (S-85).
fn next_free(queue: &Queue, ready: &Ready) -> Option<Sequence> {
    if let Some(returned) = ready.returned.first() {
        return Some(*returned);
    }
    let (sequence, _) = queue.index.next_from(ready.cursor)?;
    (sequence <= ready.committed).then_some(sequence)
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::effect::Effect;
    use crate::record::Record;
    use crate::testing::{World, deliveries, message};
    use crate::time::Span;

    #[test]
    fn a_message_is_handed_out_only_when_it_is_committed() {
        let mut world = World::with_queue("q");
        let (sender, receiver) = (world.sender("q"), world.receiver("q", PeekLock, 10));
        world.send(sender, 0, &[message(1)]);
        assert_eq!(deliveries(&world.take_effects()), []);
        let effects = world.commit();
        assert_eq!(deliveries(&effects), [(receiver, 1)]);
    }

    #[test]
    fn the_lock_runs_from_the_moment_the_message_leaves() {
        // S-82
        let mut world = World::with_queue("q");
        let (sender, _receiver) = (world.sender("q"), world.receiver("q", PeekLock, 10));
        world.send(sender, 0, &[message(1)]);
        world.now = world.now.after(Span::seconds(30));
        let effects = world.commit();
        let Effect::Deliver { delivery, .. } = &effects[0] else { panic!("{effects:?}") };
        assert_eq!(delivery.locked_until, Some(world.now.after(Span::minutes(1))));
    }

    #[test]
    fn competing_receivers_get_different_messages() {
        // S-81, S-84
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        let (one, two) = (world.link(), world.link());
        world.attach_receiver(one, "q", PeekLock);
        world.attach_receiver(two, "q", PeekLock);
        assert_eq!(deliveries(&world.credit(one, 1, false)), [(one, 1)]);
        assert_eq!(deliveries(&world.credit(two, 5, false)), [(two, 2)]);
    }

    #[test]
    fn an_abandoned_message_comes_back_before_newer_ones() {
        // S-85
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        let link = world.receiver("q", PeekLock, 2);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Abandon(None));
        world.commit();
        assert_eq!(deliveries(&world.credit(link, 2, false)), [(link, 1), (link, 3)]);
    }

    #[test]
    fn receive_and_delete_leaves_after_its_removal_is_recorded() {
        // S-80
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.link();
        world.attach_receiver(link, "q", ReceiveAndDelete);
        let records = world.records.len();
        let effects = world.credit(link, 1, false);
        assert!(
            matches!(&effects[..], [Effect::Deliver { delivery, .. }] if delivery.locked_until.is_none())
        );
        assert!(matches!(world.records[records..], [Record::Removed { count: 1, .. }]));
        assert!(!world.last_release_is_free);
        assert_eq!(world.queue("q").active, 0);
    }

    #[test]
    fn a_large_backlog_is_handed_out_in_slices() {
        let mut world = World::with_queue("q");
        world.send_committed("q", 10_000);
        let link = world.link();
        world.attach_receiver(link, "q", PeekLock);
        let first = deliveries(&world.credit(link, 10_000, false)).len();
        assert_eq!(first, crate::limits::DISPATCH_SLICE);
        let mut all = first;
        while world.is_due() {
            all += deliveries(&world.tick()).len();
        }
        assert_eq!(all, 10_000);
    }
}
