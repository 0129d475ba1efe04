//! The end of a session's lock by itself: its holder loses the link, and each message that it had is back with a higher
//! count (S-148). A link that goes by its own will ends it at once and counts nothing ([`crate::Volatile`]).

use crate::Broker;
use crate::decision::LocalDecision;
use crate::effect::Notice;
use crate::ids::Source;
use crate::refusal::Refusal;
use crate::timers::LockTimer;
use std::sync::Arc;

impl Broker {
    /// Works off a timer that speaks of a session, `most` messages at most, and says how many there were.
    pub(crate) fn end_session_lock(
        &mut self,
        timer: LockTimer,
        ticket: u64,
        most: usize,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let source = timer.source;
        let sessions = self.volatile.sessions(source.entity);
        let Some(session) = sessions.and_then(|sessions| sessions.timed(ticket, timer.at)).cloned() else {
            return 1;
        };
        let holder = self.volatile.sessions(source.entity).and_then(|sessions| sessions.holder(&session));
        if holder.is_some_and(|holder| holder.ticket == ticket) {
            self.lose_held(source, &session, decision);
        }
        let mut count = 0;
        loop {
            let sessions = self.volatile.sessions(source.entity);
            let lost =
                sessions.and_then(|sessions| sessions.get(&session)).and_then(|live| live.first_lost());
            let Some(sequence) = lost else {
                self.volatile.forget_ticket(source.entity, ticket);
                break;
            };
            if count == most {
                // The rest is for the next slice.
                self.volatile.time(timer);
                break;
            }
            self.untake(source, sequence);
            self.give_back(source, sequence, None, timer.at, decision);
            count += 1;
        }
        count.max(1)
    }

    /// The time of a session's holder ran out, though no timer has said so yet.
    pub(super) fn lose_late(&mut self, source: Source, session: &Arc<str>, decision: &mut LocalDecision<'_>) {
        let holder = self.volatile.sessions(source.entity).and_then(|sessions| sessions.holder(session));
        if holder.is_some() {
            self.lose_held(source, session, decision);
        }
    }

    fn lose_held(&mut self, source: Source, session: &Arc<str>, decision: &mut LocalDecision<'_>) {
        let holder = self.volatile.sessions(source.entity).and_then(|sessions| sessions.holder(session));
        if let Some(holder) = holder {
            // A waiting receiver kept the entity from being idle until now (S-74).
            if holder.credit > 0 {
                self.volatile.set_used(source.entity, decision.now);
            }
            self.volatile.lose_session(source.entity, session);
            self.volatile.detach(holder.link);
            let refusal = Refusal::SessionLockLost;
            decision.effect(Notice::Detached { link: holder.link, refusal });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Outcome, ReceiveMode};
    use crate::effect::{Answer, Effect};
    use crate::ids::{LinkId, Sequence};
    use crate::limits::{SESSION_END_DELAY, TIMER_SLICE};
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries};
    use crate::time::Span;

    fn with_sessions(sent: &[&str]) -> World {
        let mut world = World::new();
        world.create("q", QueueSettings { requires_session: true, ..QueueSettings::default() });
        world.send_sessions("q", sent);
        world
    }

    fn renew(world: &mut World, session: &str) -> Result<Answer, Refusal> {
        let (path, session) = ("q".into(), session.into());
        world.ask_held(|request, namespace| Command::RenewSession { request, namespace, path, session })
    }

    fn counts(world: &World) -> Vec<u32> {
        world.queue("q").index.iter().map(|(_, slot)| slot.count()).collect()
    }

    #[test]
    fn a_lock_that_runs_out_ends_the_link_and_counts_for_what_was_delivered() {
        // S-92, S-146, S-148
        let mut world = with_sessions(&["a"; 3]);
        let link = world.holder("q", "a", 2);
        let token = world.token(1);
        world.pass(Span(59_999));
        assert_eq!(world.tick(), []);
        world.pass(Span(1));
        assert_eq!(
            world.tick(),
            [Effect::Notice(Notice::Detached { link, refusal: Refusal::SessionLockLost })]
        );
        assert_eq!(counts(&world), [1, 1, 0]);
        let late = world.settle_tokens("q", &[token], Outcome::Complete);
        assert_eq!(late, Err(Refusal::SessionLockLost));
        world.commit();
        world.take_effects();
        let link = world.holder("q", "a", 9);
        assert_eq!(deliveries(&world.take_effects()), [(link, 1), (link, 2), (link, 3)]);
    }

    #[test]
    fn a_receiver_that_deletes_is_told_a_little_after_the_end_and_gets_nothing_meanwhile() {
        // S-142, S-147
        let mut world = with_sessions(&["a"]);
        let link = world.link();
        world.accept_for(link, "q", ReceiveMode::ReceiveAndDelete, Some("a"));
        world.pass(Span::minutes(1));
        assert_eq!(renew(&mut world, "a"), Err(Refusal::SessionLockLost), "the lock is over");
        assert_eq!(deliveries(&world.credit(link, 9, false)), []);
        world.pass(Span(SESSION_END_DELAY.0 - 1));
        assert_eq!(world.tick(), []);
        world.pass(Span(1));
        assert_eq!(
            world.tick(),
            [Effect::Notice(Notice::Detached { link, refusal: Refusal::SessionLockLost })]
        );
        // Somebody else need not wait for that.
        world.accept_for(link, "q", ReceiveMode::ReceiveAndDelete, Some("a"));
        world.pass(Span::minutes(1));
        let next = world.link();
        let effects = world.accept(next, "q", Some("a"));
        assert_eq!(effects[0], Effect::Notice(Notice::Detached { link, refusal: Refusal::SessionLockLost }));
        assert!(
            matches!(&effects[1], Effect::Notice(Notice::Attached { link, .. }) if *link == next),
            "{effects:?}"
        );
    }

    #[test]
    fn whoever_leaves_holds_no_lock_any_more() {
        // S-147
        let mut world = with_sessions(&["a"; 3]);
        let link = world.holder("q", "a", 2);
        assert_eq!(world.broker.volatile.held_locks(), 3, "the session and what was delivered of it");
        world.detach(link);
        assert_eq!(world.broker.volatile.held_locks(), 0);
    }

    #[test]
    fn a_settlement_is_refused_from_the_instant_on_at_which_the_lock_ends() {
        // S-92, S-146
        let mut world = with_sessions(&["a"]);
        let link = world.holder("q", "a", 2);
        let token = world.token(1);
        world.pass(Span::minutes(1));
        let effects = world.settle(link, 7, token, Outcome::Complete);
        assert_eq!(
            effects[0],
            Effect::Notice(Notice::NotSettled { link, delivery: 7, refusal: Refusal::SessionLockLost })
        );
        assert_eq!(renew(&mut world, "a"), Err(Refusal::SessionLockLost));
    }

    #[test]
    fn a_link_that_leaves_counts_nothing_and_its_session_is_free_at_once() {
        // S-147, S-148
        let mut world = with_sessions(&["a"; 2]);
        let link = world.holder("q", "a", 2);
        let records = world.records.len();
        world.detach(link);
        assert_eq!(world.records.len(), records);
        let link = world.holder("q", "a", 2);
        assert_eq!(deliveries(&world.take_effects())[2..], [(link, 1), (link, 2)]);
        assert_eq!(counts(&world), [0, 0]);
    }

    #[test]
    fn a_renewed_lock_lasts_from_the_renewal_on_for_the_holder_alone() {
        // S-83, S-142
        let mut world = with_sessions(&["a"]);
        let link = world.holder("q", "a", 1);
        for _ in 0..5 {
            world.pass(Span::seconds(45));
            world.tick();
            let until = world.local().after(Span::minutes(1));
            assert_eq!(renew(&mut world, "a"), Ok(Answer::SessionRenewed(until)));
        }
        assert_eq!(renew(&mut world, "b"), Err(Refusal::SessionLockLost));
        let token = world.token(1);
        assert!(matches!(world.settle(link, 0, token, Outcome::Complete)[..], [Effect::Settled { .. }]));
        world.detach(link);
        assert_eq!(renew(&mut world, "a"), Err(Refusal::SessionLockLost));
    }

    #[test]
    fn a_lock_of_a_message_is_that_of_its_session() {
        // S-146
        let mut world = with_sessions(&["a"]);
        let link = world.holder("q", "a", 1);
        let token = world.token(1);
        world.pass(Span::seconds(45));
        renew(&mut world, "a").unwrap();
        world.pass(Span::seconds(45));
        world.tick();
        assert!(matches!(world.settle(link, 0, token, Outcome::Complete)[..], [Effect::Settled { .. }]));
        assert!(matches!(world.renew("q", &[token]), Err(Refusal::NotAllowed(_))));
    }

    #[test]
    fn a_late_timer_does_not_keep_a_session_from_the_next_receiver() {
        // S-142, S-143
        let mut world = with_sessions(&["a"; 2]);
        let late = world.holder("q", "a", 9);
        world.pass(Span::minutes(1));
        let link = world.link();
        let effects = world.accept(link, "q", Some("a"));
        assert_eq!(
            effects[0],
            Effect::Notice(Notice::Detached { link: late, refusal: Refusal::SessionLockLost })
        );
        assert!(matches!(effects[1], Effect::Notice(Notice::Attached { session: Some(_), .. })));
        assert_eq!(deliveries(&world.credit(link, 9, false)), [], "what was lost is on its way back");
        world.tick();
        assert_eq!(deliveries(&world.commit()), [(link, 1), (link, 2)]);
        assert_eq!(counts(&world), [1, 1]);
    }

    #[test]
    fn many_messages_are_given_back_in_slices_and_none_is_handed_out_before_the_last() {
        let count = TIMER_SLICE * 2 + 10;
        let mut world = with_sessions(&vec!["a"; count]);
        world.holder("q", "a", count as u32);
        world.take_effects();
        world.pass(Span::minutes(1));
        world.tick();
        assert!(world.is_due());
        let link = world.holder("q", "a", 1);
        world.commit();
        assert_eq!(deliveries(&world.take_effects()), []);
        while world.is_due() {
            world.tick();
        }
        world.commit();
        assert_eq!(deliveries(&world.take_effects()), [(link, 1)]);
        assert!(counts(&world).iter().all(|count| *count == 1));
    }

    #[test]
    fn an_abandoned_message_comes_first_though_its_holder_left_before_that_was_durable() {
        // S-145
        let mut world = with_sessions(&["a"; 2]);
        let first = world.holder("q", "a", 1);
        let token = world.token(1);
        world.settle(first, 0, token, Outcome::Abandon(None));
        world.detach(first);
        let waiting: LinkId = world.link();
        assert_eq!(world.accept(waiting, "q", None), [], "not before it is back");
        let effects = world.commit();
        assert!(matches!(&effects[..], [Effect::Notice(Notice::Attached { link, .. })] if *link == waiting));
        assert_eq!(deliveries(&world.credit(waiting, 9, false)), [(waiting, 1), (waiting, 2)]);
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 1);
    }

    #[test]
    fn a_planned_stop_keeps_no_lock_of_a_session() {
        // S-93, S-147
        let mut world = with_sessions(&["a"]);
        world.holder("q", "a", 1);
        world.keep_locks();
        world.restart();
        let link = world.holder("q", "a", 1);
        assert_eq!(deliveries(&world.take_effects()), [(link, 1)]);
    }
}
