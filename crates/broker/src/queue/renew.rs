//! Renewing locks: a receiver that presents the token has the message for another lock duration, from now on and as often as
//! it likes (S-83). A lock that is lost cannot be renewed.

use super::settle::check_tokens;
use crate::Broker;
use crate::decision::LocalContext;
use crate::effect::Answer;
use crate::ids::{LockToken, NamespaceId};
use crate::planted::{Bug, is_planted};
use crate::refusal::Refusal;
use crate::volatile::Lock;

const IN_SESSION: &str =
    "A message of a session is locked with its session; renew the lock of the session instead.";

impl Broker {
    /// All locks, or none.
    pub(crate) fn renew_locks(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        tokens: &[LockToken],
        context: LocalContext,
    ) -> Result<Answer, Refusal> {
        let source = self.resolve(namespace, path)?;
        check_tokens(tokens)?;
        if self.has_sessions(source) {
            return Err(Refusal::NotAllowed(IN_SESSION));
        }
        if let Some(lost) =
            tokens.iter().find(|token| self.volatile.lock(source, **token, context.now).is_none())
        {
            return Err(Refusal::LockLost(lost.sequence()));
        }
        let until = context.now.after(self.queue_of(source).settings.lock_duration);
        for token in tokens.iter().filter(|_| !is_planted(Bug::Renewal)) {
            self.volatile.renew_lock(source, Lock { token: *token, until });
        }
        self.volatile.set_used(source.entity, context.now);
        Ok(Answer::Renewed(vec![until; tokens.len()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Effect;
    use crate::ids::Sequence;
    use crate::testing::World;
    use crate::time::Span;

    fn locked(count: u32) -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", count);
        world.receiver("q", PeekLock, count);
        world
    }

    #[test]
    fn a_renewed_lock_lasts_from_the_renewal_on() {
        // S-83
        let mut world = locked(1);
        let token = world.token(1);
        for _ in 0..20 {
            world.pass(Span(59_999));
            world.tick();
            let until = world.local().after(Span::minutes(1));
            assert_eq!(world.renew("q", &[token]), Ok(Answer::Renewed(vec![until])));
        }
        world.pass(Span(59_999));
        world.tick();
        assert!(world.settle_tokens("q", &[token], Outcome::Complete).is_ok());
    }

    #[test]
    fn a_renewed_lock_ends_at_its_new_time() {
        // S-83, S-86
        let mut world = locked(1);
        let token = world.token(1);
        world.pass(Span::seconds(30));
        world.renew("q", &[token]).unwrap();
        world.pass(Span::seconds(60));
        world.tick();
        assert_eq!(world.queue("q").index.get(Sequence(1)).unwrap().count(), 1);
    }

    #[test]
    fn the_holder_of_the_token_renews_and_settles_without_the_link_that_brought_it() {
        // S-83, S-94
        let mut world = World::with_queue("q");
        world.send_committed("q", 1);
        let link = world.receiver("q", PeekLock, 1);
        let token = world.token(1);
        world.detach(link);
        world.pass(Span::seconds(30));
        assert!(world.renew("Q", &[token]).is_ok());
        let other = world.receiver("q", PeekLock, 0);
        let effects = world.settle(other, 5, token, Outcome::Complete);
        assert!(matches!(effects[..], [Effect::Settled { delivery: 5, .. }]));
    }

    #[test]
    fn a_lost_lock_is_not_renewed_and_nothing_with_it() {
        // S-83, S-92
        let mut world = locked(2);
        let (one, two) = (world.token(1), world.token(2));
        world.pass(Span::seconds(30));
        world.settle_tokens("q", &[two], Outcome::Complete).unwrap();
        assert_eq!(world.renew("q", &[one, two]), Err(Refusal::LockLost(Sequence(2))));
        assert_eq!(world.renew("q", &[one, one]), Err(Refusal::LockLost(Sequence(1))));
        world.pass(Span::seconds(30));
        assert_eq!(world.renew("q", &[one]), Err(Refusal::LockLost(Sequence(1))));
    }

    #[test]
    fn a_token_is_worth_something_only_where_its_message_is() {
        let mut world = locked(1);
        let token = world.token(1);
        assert_eq!(world.renew("q/$DeadLetterQueue", &[token]), Err(Refusal::LockLost(Sequence(1))));
        assert!(matches!(world.renew("none", &[token]), Err(Refusal::EntityNotFound(_))));
    }

    #[test]
    fn tokens_are_settled_all_or_none() {
        // S-92
        let mut world = locked(3);
        let tokens = [world.token(1), world.token(2), world.token(3)];
        world.settle_tokens("q", &tokens[2..], Outcome::Complete).unwrap();
        let refused = world.settle_tokens("q", &tokens, Outcome::Complete);
        assert_eq!(refused, Err(Refusal::LockLost(Sequence(3))));
        assert_eq!(world.queue("q").counts.active, 2);
        assert_eq!(world.settle_tokens("q", &tokens[..2], Outcome::Complete), Ok(Answer::Settled));
        assert!(!world.last_release_is_free);
        assert_eq!(world.queue("q").counts.active, 0);
    }
}
