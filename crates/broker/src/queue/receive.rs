//! Receiving: messages whose records are committed go to the receivers that wait, oldest message to oldest credit.

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{LocalContext, LocalDecision};
use crate::durable::Queue;
use crate::effect::{Delivery, Effect};
use crate::ids::{LockToken, Sequence, Source, SubQueue};
use crate::queue::index::{Slot, State};
use crate::record::Record;
use crate::time::LocalTime;
use crate::volatile::{Link, Lock, Role};

impl Broker {
    /// Hands out messages of a queue, `most` units of work at most, and says how many there were (at least one).
    pub(crate) fn hand_out(
        &mut self,
        source: Source,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let context = decision.context();
        if self.forwards(source) {
            return self.forward_free(source, most, decision);
        }
        if self.has_sessions(source) {
            return self.hand_out_sessions(source, most, decision);
        }
        let mut left = most;
        while let Some(link) = self.volatile.ready(source).waiting.front()
            && let Some(sequence) = self.next_free(source, &mut left, decision)
        {
            let Some(Link { role: Role::Receiver { mode, .. }, .. }) = self.volatile.link(link) else {
                unreachable!("only receivers wait, and who detaches waits no more");
            };
            let mode = *mode;
            if mode == ReceiveMode::ReceiveAndDelete
                && !self.volatile.ready(source).vouched.contains(&sequence)
            {
                self.ask_to_check(source, decision);
                break;
            }
            self.volatile.take(source, sequence);
            self.volatile.serve(source);
            let delivery = self.take(source, sequence, mode, context);
            let effect = Effect::Deliver { link, mode, delivery };
            match mode {
                // The lock is memory, the message is committed: nothing to wait for, and the lock's time runs from
                // the moment the message leaves (S-82).
                ReceiveMode::PeekLock => decision.free_effect(effect),
                // The removal must be durable before the message leaves, or a crash would deliver it again (S-80).
                ReceiveMode::ReceiveAndDelete => {
                    let removed = Record::Removed { entity: source.entity, first: sequence, count: 1 };
                    self.write(removed, decision);
                    decision.effect(effect);
                }
            }
            left -= 1;
        }
        if left == 0 {
            self.volatile.stir(source);
        }
        if left < most {
            self.volatile.set_accessed(source.entity, context.now);
        }
        (most - left).max(1)
    }

    /// The oldest message that may be handed out (S-99), if it is found with what is `left` of the slice. What is met on
    /// the way and has expired goes where it belongs (S-51), which costs a unit of work.
    pub(crate) fn next_free(
        &mut self,
        source: Source,
        left: &mut usize,
        decision: &mut LocalDecision<'_>,
    ) -> Option<Sequence> {
        while *left > 0 {
            let (sequence, is_expired) = match self.next_in_order(source)? {
                (sequence, Some(slot)) => (sequence, is_due(source, &slot, decision.now)),
                (sequence, None) => {
                    self.volatile.withdraw(source, sequence);
                    *left -= 1;
                    continue;
                }
            };
            if !is_expired {
                return Some(sequence);
            }
            self.volatile.take(source, sequence);
            self.expire(source.entity, sequence, false, None, decision);
            *left -= 1;
        }
        None
    }

    /// The next message that is committed and not locked. Those handed out before are older than the cursor, so they
    /// come first (S-85); they may have gone since, and then have no slot.
    fn next_in_order(&mut self, source: Source) -> Option<(Sequence, Option<Slot>)> {
        let queue = self.durable.queue(source.entity)?;
        if queue.settings.requires_session && source.sub == SubQueue::Main {
            return self.next_outside_sessions(source);
        }
        let index = queue.index_of(source.sub)?;
        let ready = self.volatile.ready(source);
        if let Some(returned) = ready.returned.first() {
            let slot = index.get(*returned).filter(|slot| slot.state() == State::Active);
            return Some((*returned, slot.copied()));
        }
        let passed = match index.next_active_from(ready.cursor) {
            Some((sequence, slot)) if sequence <= ready.committed => return Some((sequence, Some(*slot))),
            Some((sequence, _)) => sequence,
            None => ready.committed.next(),
        };
        // What was looked through in vain is not looked through again.
        self.volatile.pass(source, passed);
        None
    }

    /// The next message of an entity with sessions for something that takes them without: a destination, or nobody. What is locked
    /// is passed over, one by one.
    fn next_outside_sessions(&self, source: Source) -> Option<(Sequence, Option<Slot>)> {
        let (index, ready) = (&self.queue_of(source).index, self.volatile.ready(source));
        let mut from = Sequence(0);
        loop {
            let (sequence, slot) =
                index.next_active_from(from).filter(|(next, _)| *next <= ready.committed)?;
            if !ready.locks.contains_key(&sequence) {
                return Some((sequence, Some(*slot)));
            }
            from = sequence.next();
        }
    }

    /// Takes a message for a receiver and locks it, unless it is to be removed.
    pub(crate) fn take(
        &mut self,
        source: Source,
        sequence: Sequence,
        mode: ReceiveMode,
        context: LocalContext,
    ) -> Delivery {
        let token = LockToken::new(self.volatile.fresh_nonce(), sequence);
        let queue = self.queue_of(source);
        let until = context.now.after(queue.settings.lock_duration);
        let mut delivery = delivery(queue, source, sequence).expect("what is free is there");
        delivery.token = token;
        if mode == ReceiveMode::PeekLock {
            delivery.locked_until = Some(until);
            self.volatile.add_lock(source, Lock { token, until });
        }
        delivery
    }
}

/// Whether a message that nobody has locked is due to go. A dead-letter queue knows no time to live (S-64).
fn is_due(source: Source, slot: &Slot, now: LocalTime) -> bool {
    source.sub == crate::SubQueue::Main && slot.is_expired(now)
}

/// A message as it is shown, locked by nobody.
pub(crate) fn delivery(queue: &Queue, source: Source, sequence: Sequence) -> Option<Delivery> {
    let slot = queue.index_of(source.sub)?.get(sequence)?;
    Some(Delivery {
        token: LockToken(0),
        sequence,
        number: queue.number(sequence),
        state: slot.state(),
        was_scheduled: slot.was_scheduled(),
        body: slot.body,
        length: slot.length,
        count: slot.count(),
        enqueued: slot.enqueued,
        expires: slot.expires,
        locked_until: None,
        first: queue.first_number(sequence),
        extra: super::dead_letter::with_reason(slot, queue.extras.get(&sequence)),
    })
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::effect::{Delivery, Effect};
    use crate::record::Record;
    use crate::settings::QueueSettings;
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
        world.pass(Span::seconds(30));
        let effects = world.commit();
        let Effect::Deliver { delivery, .. } = &effects[0] else { panic!("{effects:?}") };
        assert_eq!(delivery.locked_until, Some(world.local().after(Span::minutes(1))));
    }

    #[test]
    fn competing_receivers_get_different_messages() {
        // S-81, S-84, S-222
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        let (one, two) = (world.link(), world.link());
        world.attach_receiver(one, "q", PeekLock);
        world.attach_receiver(two, "q", PeekLock);
        assert_eq!(deliveries(&world.credit(one, 1, false)), [(one, 1)]);
        assert_eq!(deliveries(&world.credit(two, 5, false)), [(two, 2)]);
    }

    #[test]
    fn a_message_is_hidden_for_the_lock_duration_of_its_queue() {
        // S-81
        let mut world = World::new();
        let lock_duration = Span::seconds(17);
        world.create("q", QueueSettings { lock_duration, ..QueueSettings::default() });
        world.send_committed("q", 1);
        let taken = world.receive("q", PeekLock, 1);
        assert_eq!(taken[0].locked_until, Some(world.local().after(lock_duration)));
        world.pass(Span(16_999));
        world.tick();
        world.commit();
        assert_eq!(world.receive("q", PeekLock, 1), []);
        world.pass(Span(1));
        world.tick();
        world.commit();
        assert_eq!(world.receive("q", PeekLock, 1).len(), 1);
    }

    #[test]
    fn a_message_that_is_delivered_again_is_the_same_message() {
        // S-96
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let first = world.receive("q", PeekLock, 1);
        world.pass(Span::minutes(1));
        world.tick();
        world.commit();
        let second = world.receive("q", PeekLock, 1);
        let what = |delivery: &Delivery| (delivery.number, delivery.body, delivery.enqueued, delivery.length);
        assert_eq!(what(&second[0]), what(&first[0]));
        assert_ne!(second[0].token, first[0].token);
    }

    #[test]
    fn who_gave_credit_first_is_served_first_and_gets_no_more_than_that() {
        // S-97, S-222
        let mut world = World::with_queue("q");
        let links: Vec<_> = (0..3).map(|_| world.link()).collect();
        links.iter().for_each(|link| drop(world.attach_receiver(*link, "q", PeekLock)));
        world.credit(links[2], 1, false);
        world.credit(links[0], 2, false);
        world.credit(links[1], 1, false);
        let sender = world.sender("q");
        world.send(sender, 0, &[message(1); 9]);
        let given = deliveries(&world.commit());
        assert_eq!(given, [(links[2], 1), (links[0], 2), (links[0], 3), (links[1], 4)]);
    }

    #[test]
    fn an_abandoned_message_comes_back_before_newer_ones() {
        // S-85, S-99
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
        assert_eq!(world.queue("q").counts.active, 0);
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
