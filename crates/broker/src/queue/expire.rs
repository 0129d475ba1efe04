//! Time to live: a message that has expired is not received any more, from that instant on (S-51), and is dropped or
//! dead-lettered whether somebody listens or not. A lock protects it (S-52): who ends the lock looks at the time.
//!
//! The timer of a queue is the earliest expiry of its chunks (`volatile/expiries.rs`). When it goes off the chunk is looked through, and what is
//! due leaves in one record each, in slices.

use crate::Broker;
use crate::decision::LocalDecision;
use crate::ids::{EntityId, Sequence, Source};
use crate::planted::{Bug, is_planted};
use crate::queue::index::{Reason, State};
use crate::record::Record;
use crate::time::LocalTime;
use message::overlay::Overlay;

impl Broker {
    /// A message that nobody has locked has expired. `is_failure`: a delivery failed with it.
    pub(crate) fn expire(
        &mut self,
        entity: EntityId,
        sequence: Sequence,
        is_failure: bool,
        overlay: Option<Box<Overlay>>,
        decision: &mut LocalDecision<'_>,
    ) {
        let queue = self.durable.queue(entity).expect("its message is there");
        if queue.settings.dead_letter_on_expiration {
            self.dead_letter(entity, sequence, Reason::Expired, is_failure, overlay, decision);
        } else {
            self.write(Record::Removed { entity, first: sequence, count: 1 }, decision);
        }
    }

    /// Works off up to `most` messages of a queue that have expired, says how many, and sets the timer for the next.
    pub(crate) fn expire_due(
        &mut self,
        entity: EntityId,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let mut count = 0;
        while count < most
            && let Some(chunk) = self.volatile.presence(entity).expiries.due(decision.now)
        {
            count += self.expire_chunk(entity, chunk, most - count, decision).max(1);
        }
        self.volatile.arm_expiry(entity);
        count.max(1)
    }

    fn expire_chunk(
        &mut self,
        entity: EntityId,
        chunk: u64,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let source = Source::main(entity);
        let queue = self.durable.queue(entity).expect("timers go with their entity");
        let locks = &self.volatile.ready(source).locks;
        let mut due = std::mem::take(&mut self.scratch);
        let mut next = LocalTime::NEVER;
        for (sequence, slot) in queue.index.chunk(chunk) {
            if slot.state() != State::Active {
                continue;
            }
            if slot.expires > decision.now {
                next = next.min(slot.expires);
            } else if due.len() == most {
                // The rest of the chunk is for the next slice.
                next = decision.now;
                break;
            } else if !locks.contains_key(&sequence) || is_planted(Bug::ExpiryUnderLock) {
                due.push(sequence);
            }
        }
        for sequence in &due {
            self.volatile.withdraw(source, *sequence);
            self.expire(entity, *sequence, false, None, decision);
        }
        // What is due and locked is left to its lock.
        self.volatile.set_expiry(entity, chunk, next);
        let count = due.len();
        due.clear();
        self.scratch = due;
        count
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::{Answer, Effect};
    use crate::ids::Sequence;
    use crate::limits::TIMER_SLICE;
    use crate::record::Record;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries, message};
    use crate::time::{Span, Time};
    use message::overlay::Change;

    const DEAD: &str = "q/$deadletterqueue";

    /// A queue whose messages live ten seconds, with `count` of them.
    fn mortal(dead_letter_on_expiration: bool, count: u32) -> World {
        let mut world = World::new();
        let default_time_to_live = Span::seconds(10);
        world.create(
            "q",
            QueueSettings { default_time_to_live, dead_letter_on_expiration, ..QueueSettings::default() },
        );
        world.send_committed("q", count);
        world
    }

    fn counts(world: &World) -> (u64, u64) {
        let counts = world.queue("q").counts;
        (counts.active, counts.dead_letter)
    }

    #[test]
    fn a_message_expires_at_its_instant_though_nobody_listens() {
        // S-50, S-51, S-59, S-63
        let mut world = mortal(false, 3);
        world.pass(Span(9_999));
        assert_eq!(world.tick(), []);
        assert!(!world.is_due());
        assert_eq!(counts(&world), (3, 0));
        world.pass(Span(1));
        assert!(world.is_due());
        world.tick();
        assert_eq!((counts(&world), world.queue("q").bytes), ((0, 0), 0));
        assert!(matches!(world.records.last(), Some(Record::Removed { first: Sequence(1), count: 3, .. })));
        assert_eq!(world.broker.next_due(), None);
    }

    #[test]
    fn an_expired_message_is_not_handed_out_before_the_timer_is_served() {
        // S-51, S-63
        let mut world = mortal(true, 2);
        world.pass(Span::seconds(10));
        assert_eq!(world.receive("q", PeekLock, 5), []);
        assert_eq!(counts(&world), (0, 2));
    }

    #[test]
    fn an_expired_message_is_dead_lettered_with_the_known_words() {
        // S-59, S-60, S-105
        let mut world = mortal(true, 1);
        world.pass(Span::seconds(10));
        world.tick();
        world.commit();
        assert_eq!(counts(&world), (0, 1));
        let dead = world.receive(DEAD, PeekLock, 1);
        let overlay = dead[0].extra.as_ref().unwrap().overlay.as_ref().unwrap();
        let text = |name| match overlay.application(name) {
            Some(Change::Set(value)) => message::Value::decode(value).unwrap().as_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text("DeadLetterReason"), "TTLExpiredException");
        assert_eq!(text("DeadLetterErrorDescription"), "The message expired and was dead lettered.");
        assert_eq!(dead[0].count, 0);
    }

    #[test]
    fn an_expiry_is_one_record_so_a_crash_finds_the_message_once() {
        // S-61
        let mut world = mortal(true, 1);
        world.pass(Span::seconds(10));
        let before = world.records.len();
        world.tick();
        assert!(matches!(world.records[before..], [Record::DeadLettered { .. }]));
        for cut in before..=world.records.len() {
            let replayed = world.replayed(cut);
            let queue = replayed.queues().next().unwrap().1;
            assert_eq!(queue.index.iter().count() + queue.dead.iter().count(), 1);
            assert_eq!(queue.counts.total(), 1);
        }
    }

    #[test]
    fn a_dead_letter_does_not_expire() {
        // S-64
        let mut world = mortal(true, 1);
        world.pass(Span::seconds(10));
        world.tick();
        world.commit();
        world.pass(Span::minutes(60 * 24 * 365));
        world.tick();
        assert_eq!(world.receive(DEAD, PeekLock, 1).len(), 1);
    }

    #[test]
    fn a_locked_message_does_not_expire_and_can_be_renewed_and_completed() {
        // S-52, S-54
        let mut world = mortal(true, 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.pass(Span::seconds(50));
        world.tick();
        assert_eq!(counts(&world), (1, 0));
        assert!(world.renew("q", &[token]).is_ok());
        world.pass(Span::seconds(50));
        world.tick();
        assert!(matches!(world.settle(link, 0, token, Outcome::Complete)[..], [Effect::Settled { .. }]));
        world.commit();
        assert_eq!(counts(&world), (0, 0));
    }

    #[test]
    fn a_message_that_expired_under_its_lock_goes_when_the_lock_ends() {
        // S-53, S-62
        let mut world = mortal(true, 4);
        let link = world.receiver("q", PeekLock, 4);
        world.pass(Span::seconds(30));
        world.tick();
        let (abandoned, released) = (world.token(1), world.token(2));
        world.settle(link, 0, abandoned, Outcome::Abandon(None));
        assert_eq!(counts(&world), (3, 1));
        world.settle(link, 0, released, Outcome::Release);
        assert_eq!(counts(&world), (2, 2));
        world.pass(Span::seconds(30));
        world.tick();
        world.commit();
        assert_eq!(counts(&world), (0, 4));
        assert_eq!(deliveries(&world.credit(link, 9, false)), []);
        let dead = world.receive(DEAD, PeekLock, 9);
        assert_eq!(dead.iter().map(|each| each.count).collect::<Vec<_>>(), [1, 0, 1, 1]);
    }

    #[test]
    fn without_the_flag_what_expired_under_its_lock_is_dropped_when_the_lock_ends() {
        // S-53
        let mut world = mortal(false, 1);
        let link = world.receiver("q", PeekLock, 1);
        world.pass(Span::seconds(30));
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Abandon(None));
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn the_last_delivery_before_the_expiry_ends_by_count_and_not_by_time() {
        // S-87: what ended first decides, however late the timer is served
        let mut world = World::new();
        let settings = QueueSettings {
            default_time_to_live: Span::seconds(70),
            max_delivery_count: 1,
            ..QueueSettings::default()
        };
        world.create("q", settings);
        world.send_committed("q", 1);
        world.receiver("q", PeekLock, 1);
        world.pass(Span::minutes(5));
        world.tick();
        assert_eq!(counts(&world), (0, 1));
    }

    #[test]
    fn a_message_back_from_a_lock_still_expires_at_its_instant() {
        // S-51, S-53
        let mut world = mortal(true, 2);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Abandon(None));
        world.commit();
        world.pass(Span::seconds(10));
        world.tick();
        assert_eq!(counts(&world), (0, 2));
        assert_eq!(deliveries(&world.credit(link, 9, false)), []);
    }

    #[test]
    fn messages_of_different_lives_expire_each_at_its_own_time() {
        // S-51
        let mut world = World::with_queue("q");
        let link = world.sender("q");
        for (delivery, seconds) in [30, 10, 20].into_iter().enumerate() {
            let time_to_live = Span::seconds(seconds);
            world.send(link, delivery as u32, &[crate::Incoming { time_to_live, ..message(1) }]);
        }
        let start = world.now;
        let mut gone = Vec::new();
        while let Some(due) = world.broker.next_due() {
            world.now = due;
            world.tick();
            gone.push((due.0 - start.0, world.queue("q").counts.active));
        }
        assert_eq!(gone, [(10_000, 2), (20_000, 1), (30_000, 0)]);
    }

    #[test]
    fn what_is_due_at_once_is_worked_off_in_slices() {
        let mut world = mortal(true, 2_500);
        world.pass(Span::seconds(10));
        let mut slices = Vec::new();
        while world.is_due() {
            let before = world.records.len();
            world.tick();
            slices.push(world.records.len() - before);
        }
        assert_eq!(slices, [TIMER_SLICE, TIMER_SLICE, 500]);
        assert_eq!(counts(&world), (0, 2_500));
    }

    #[test]
    fn a_message_that_expires_before_it_is_committed_is_simply_gone() {
        let mut world = mortal(false, 0);
        let (sender, receiver) = (world.sender("q"), world.receiver("q", PeekLock, 5));
        world.send(sender, 0, &[message(1)]);
        world.pass(Span::seconds(10));
        world.tick();
        assert_eq!(deliveries(&world.commit()), []);
        world.send(sender, 1, &[message(1)]);
        assert_eq!(deliveries(&world.commit()), [(receiver, 2)]);
    }

    #[test]
    fn an_expired_deferred_message_stays_until_it_is_asked_for() {
        // S-65
        for flag in [true, false] {
            let mut world = mortal(flag, 1);
            let link = world.receiver("q", PeekLock, 1);
            let token = world.token(1);
            world.settle(link, 0, token, Outcome::Defer(None));
            world.commit();
            world.pass(Span::seconds(100));
            world.tick();
            assert_eq!(world.queue("q").counts.deferred, 1);
            let Ok(Answer::Messages(seen)) = world.browse("q", 0, 9) else { panic!() };
            assert_eq!(seen.len(), 1);
            let refused = world.receive_deferred("q", &[1], PeekLock);
            assert_eq!(refused, Err(crate::Refusal::MessageNotFound(crate::Number(1))));
            assert_eq!((world.queue("q").counts.deferred, counts(&world)), (0, (0, u64::from(flag))));
        }
    }

    #[test]
    fn a_deferred_message_under_lock_is_protected() {
        // S-52, S-65
        let mut world = mortal(true, 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Defer(None));
        assert!(world.receive_deferred("q", &[1], PeekLock).is_ok());
        world.pass(Span::seconds(30));
        world.tick();
        let token = world.token(1);
        assert!(world.settle_tokens("q", &[token], Outcome::Complete).is_ok());
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_time_to_live_beyond_the_calendar_never_ends() {
        // S-57
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        world.now = Time(i64::MAX - 1);
        world.tick();
        assert_eq!(counts(&world), (1, 0));
    }
}
