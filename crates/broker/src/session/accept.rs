//! Accepting a session: its lock is exclusive, on all its messages, present and future (S-142). A named one is given or
//! refused at once (S-143); one for any session waits until one is free (S-144).

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{LocalContext, LocalDecision};
use crate::effect::{AcceptedSession, Effect, Notice};
use crate::ids::{LinkId, NamespaceId, Sequence, Source};
use crate::limits::{SESSION_END_DELAY, SESSION_ID_CHARACTERS};
use crate::refusal::Refusal;
use crate::time::Span;
use crate::volatile::Role;
use crate::volatile::live::Holder;
use std::sync::Arc;

/// S-140.
const ON_PLAIN: &str = "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.";

impl Broker {
    pub(crate) fn accept_session(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        mode: ReceiveMode,
        session: Option<&str>,
        decision: &mut LocalDecision<'_>,
    ) {
        let context = decision.context();
        let source = match self.check_accept(namespace, path, mode, session) {
            Ok(source) => source,
            Err(refusal) => return decision.effect(Notice::Detached { link, refusal }),
        };
        self.volatile.set_accessed(source.entity, context.now);
        let Some(session) = session else {
            return self.volatile.attach(link, source, Role::Waiting { mode });
        };
        if self.is_session_held(source, session, context) {
            let refusal = Refusal::SessionCannotBeLocked(session.into());
            return decision.effect(Notice::Detached { link, refusal });
        }
        let session: Arc<str> = session.into();
        self.lose_late(source, &session, decision);
        let role = Role::Receiver { mode, delivered: 0, session: Some(Arc::clone(&session)) };
        self.volatile.attach(link, source, role);
        let attached = self.give(source, session, link, context);
        decision.effect(attached);
    }

    fn check_accept(
        &self,
        namespace: NamespaceId,
        path: &str,
        mode: ReceiveMode,
        session: Option<&str>,
    ) -> Result<Source, Refusal> {
        let (source, _) = self.check_attach(namespace, path, &Role::Waiting { mode })?;
        if !self.has_sessions(source) {
            return Err(Refusal::NotAllowed(ON_PLAIN));
        }
        if session.is_some_and(|session| session.chars().count() > SESSION_ID_CHARACTERS) {
            let why = format!("it has more than {SESSION_ID_CHARACTERS} characters").into();
            return Err(Refusal::InvalidSetting { property: "SessionId", why });
        }
        Ok(source)
    }

    /// Gives a free session to a link.
    fn give(&mut self, source: Source, session: Arc<str>, link: LinkId, context: LocalContext) -> Effect {
        let queue = self.queue_of(source);
        let max_message_bytes = self.tier_of(queue.namespace).message_bytes(&queue.settings);
        let until = context.now.after(queue.settings.lock_duration);
        let ticket = self.volatile.fresh_nonce();
        let delay = self.end_delay(link);
        let holder = Holder { link, until, delay, credit: 0, ticket };
        self.volatile.accept_session(source.entity, &session, holder);
        let session = Some(Box::new(AcceptedSession { id: session, until }));
        Effect::Notice(Notice::Attached { link, max_message_bytes, wants_ids: false, session })
    }

    /// How long after the end of its lock the link of a session is told. One that deletes what it receives has nothing locked
    /// that others wait for.
    fn end_delay(&self, link: LinkId) -> Span {
        use ReceiveMode::ReceiveAndDelete;
        match self.volatile.link(link).map(|link| &link.role) {
            Some(
                Role::Waiting { mode: ReceiveAndDelete } | Role::Receiver { mode: ReceiveAndDelete, .. },
            ) => SESSION_END_DELAY,
            _ => Span(0),
        }
    }

    /// Gives free sessions to the links that wait for one, as long as something is `left` of the slice.
    pub(super) fn give_out(&mut self, source: Source, left: &mut usize, decision: &mut LocalDecision<'_>) {
        let context = decision.context();
        while *left > 0
            && let Some(sessions) = self.volatile.sessions(source.entity)
            && let Some(link) = sessions.waiting.front()
            && let Some(session) = sessions.first_open().cloned()
        {
            *left -= 1;
            // What has expired makes no session worth having (S-51).
            if self.next_in_session(source, &session, Sequence(0), decision).is_some() {
                let attached = self.give(source, session, link, context);
                decision.free_effect(attached);
            } else {
                self.refresh(source, &session);
            }
        }
    }

    /// Finds out what is free first of a session, if nobody holds it.
    pub(super) fn refresh(&mut self, source: Source, session: &Arc<str>) {
        let is_held =
            self.volatile.sessions(source.entity).is_some_and(|sessions| sessions.get(session).is_some());
        let first = if is_held { None } else { self.first_free(source, session, Sequence(0)) };
        let before = self.volatile.sessions(source.entity).and_then(|sessions| sessions.key(session));
        if before != first {
            self.volatile.key_session(source.entity, session, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries, message};
    use crate::time::{LocalTime, Span};

    fn with_sessions(sessions: &[&str]) -> World {
        let mut world = World::new();
        world.create("q", QueueSettings { requires_session: true, ..QueueSettings::default() });
        world.send_sessions("q", sessions);
        world
    }

    fn accepted(effects: &[Effect]) -> Vec<(LinkId, &str, LocalTime)> {
        let accepted = |effect: &'_ Effect| match effect {
            Effect::Notice(Notice::Attached { link, session: Some(_), .. }) => Some(*link),
            _ => None,
        };
        let ids = effects.iter().filter_map(|effect| match effect {
            Effect::Notice(Notice::Attached { session: Some(session), .. }) => {
                Some((&*session.id, session.until))
            }
            _ => None,
        });
        effects.iter().filter_map(accepted).zip(ids).map(|(link, (id, until))| (link, id, until)).collect()
    }

    fn refused(effects: &[Effect]) -> &Refusal {
        match effects {
            [Effect::Notice(Notice::Detached { refusal, .. })] => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_accepts_a_session_gets_its_messages_in_order_and_no_others() {
        // S-142, S-145, S-152
        let mut world = with_sessions(&["a", "b", "a", "b", "a"]);
        let link = world.link();
        let until = world.local().after(Span::minutes(1));
        assert_eq!(accepted(&world.accept(link, "q", Some("a"))), [(link, "a", until)]);
        assert_eq!(deliveries(&world.credit(link, 9, false)), [(link, 1), (link, 3), (link, 5)]);
        let session = world.queue("q").session_of(Sequence(4)).cloned();
        assert_eq!(session.as_deref(), Some("b"));
    }

    #[test]
    fn messages_that_come_later_go_to_the_holder() {
        // S-142
        let mut world = with_sessions(&[]);
        let link = world.holder("q", "a", 9);
        let sender = world.sender("q");
        world.send_in(sender, 0, &[message(1); 3], &["b", "a", "a"]);
        assert_eq!(deliveries(&world.take_effects()), [], "not before they are committed");
        assert_eq!(deliveries(&world.commit()), [(link, 2), (link, 3)]);
    }

    #[test]
    fn a_session_that_is_held_is_refused_until_it_is_let_go() {
        // S-142, S-143, S-147
        let mut world = with_sessions(&["a"]);
        let (first, second) = (world.holder("q", "a", 1), world.link());
        let effects = world.accept(second, "q", Some("a"));
        assert_eq!(refused(&effects), &Refusal::SessionCannotBeLocked("a".into()));
        world.detach(first);
        let third = world.link();
        assert_eq!(accepted(&world.accept(third, "q", Some("a"))).len(), 1);
        let effects = world.credit(third, 1, false);
        assert_eq!(deliveries(&effects), [(third, 1)]);
        // S-148
        assert!(matches!(&effects[..], [Effect::Deliver { delivery, .. }] if delivery.count == 0));
    }

    #[test]
    fn a_session_without_messages_can_be_accepted_by_its_name_and_so_can_the_empty_one() {
        // S-143, S-151
        let mut world = with_sessions(&[]);
        for session in ["reply-to-me", ""] {
            let link = world.link();
            assert_eq!(accepted(&world.accept(link, "q", Some(session))).len(), 1);
            world.credit(link, 1, false);
            let sender = world.sender("q");
            world.send_in(sender, 0, &[message(1)], &[session]);
            assert_eq!(deliveries(&world.commit()).len(), 1);
        }
    }

    #[test]
    fn whoever_takes_any_session_gets_the_one_with_the_oldest_message() {
        // S-144
        let mut world = with_sessions(&["a", "b", "c", "a"]);
        let (one, two, three, four) = (world.link(), world.link(), world.link(), world.link());
        assert_eq!(accepted(&world.accept(one, "q", None))[0].1, "a");
        assert_eq!(accepted(&world.accept(two, "q", None))[0].1, "b");
        world.detach(one);
        assert_eq!(accepted(&world.accept(three, "q", None))[0].1, "a");
        assert_eq!(accepted(&world.accept(four, "q", None))[0].1, "c");
    }

    #[test]
    fn whoever_waits_gets_a_session_as_soon_as_one_is_free_in_the_order_in_which_they_came() {
        // S-144
        let mut world = with_sessions(&[]);
        let links: Vec<_> = (0..3).map(|_| world.link()).collect();
        links.iter().for_each(|link| assert_eq!(world.accept(*link, "q", None), []));
        let sender = world.sender("q");
        world.send_in(sender, 0, &[message(1); 3], &["a", "a", "b"]);
        assert_eq!(accepted(&world.take_effects()), []);
        let effects = world.commit();
        let given: Vec<_> =
            accepted(&effects).iter().map(|(link, id, _)| (*link, (*id).to_owned())).collect();
        assert_eq!(given, [(links[0], "a".into()), (links[1], "b".into())]);
        world.detach(links[0]);
        let effects = world.take_effects();
        assert!(accepted(&effects).iter().any(|(link, id, _)| (*link, *id) == (links[2], "a")));
    }

    #[test]
    fn whoever_has_left_is_given_nothing() {
        // S-284
        let mut world = with_sessions(&[]);
        let (gone, there) = (world.link(), world.link());
        world.accept(gone, "q", None);
        world.detach(gone);
        world.send_sessions("q", &["a"]);
        assert_eq!(accepted(&world.accept(there, "q", None))[0].1, "a");
    }

    #[test]
    fn a_session_whose_messages_are_all_gone_is_not_given_out() {
        // S-51, S-144
        let mut world = World::new();
        let default_time_to_live = Span::seconds(10);
        let settings =
            QueueSettings { requires_session: true, default_time_to_live, ..QueueSettings::default() };
        world.create("q", settings);
        world.send_sessions("q", &["a", "a"]);
        world.pass(Span::seconds(10));
        let link = world.link();
        assert_eq!(world.accept(link, "q", None), []);
        assert_eq!(world.queue("q").counts.active, 0);
    }

    #[test]
    fn receivers_and_entities_must_agree_on_sessions() {
        // S-103, S-140
        let mut world = with_sessions(&["a"]);
        world.create("plain", QueueSettings::default());
        let link = world.link();
        let refusal = Refusal::NotAllowed(
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        );
        assert_eq!(refused(&world.attach_receiver(link, "q", PeekLock)), &refusal);
        for (path, session) in [("plain", Some("a")), ("plain", None), ("q/$DeadLetterQueue", None)] {
            let link = world.link();
            assert_eq!(refused(&world.accept(link, path, session)), &Refusal::NotAllowed(ON_PLAIN));
        }
        let link = world.link();
        let effects = world.attach_receiver(link, "q/$DeadLetterQueue", PeekLock);
        assert!(matches!(effects[..], [Effect::Notice(Notice::Attached { .. })]));
    }

    #[test]
    fn a_session_id_has_128_characters_at_most() {
        // S-6
        let mut world = with_sessions(&[]);
        let (fits, too_long) = ("ü".repeat(128), "ü".repeat(129));
        let (one, two) = (world.link(), world.link());
        assert_eq!(accepted(&world.accept(one, "q", Some(&fits))).len(), 1);
        assert!(matches!(
            refused(&world.accept(two, "q", Some(&too_long))),
            Refusal::InvalidSetting { property: "SessionId", .. }
        ));
    }

    #[test]
    fn whoever_waits_is_told_when_the_entity_goes_or_is_disabled() {
        // S-230
        let mut world = with_sessions(&[]);
        let link = world.link();
        world.accept(link, "q", None);
        let effects = world.delete("q");
        assert!(effects.contains(&Effect::Notice(Notice::Detached {
            link,
            refusal: Refusal::EntityNotFound("q".into())
        })));
    }

    #[test]
    fn after_a_restart_sessions_are_free_and_their_messages_there() {
        // S-93, S-142
        let mut world = with_sessions(&["a", "b", "a"]);
        world.holder("q", "a", 9);
        world.restart();
        let link = world.link();
        assert_eq!(accepted(&world.accept(link, "q", None))[0].1, "a");
        assert_eq!(deliveries(&world.credit(link, 9, false)), [(link, 1), (link, 3)]);
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Complete);
        assert_eq!(world.queue("q").counts.active, 2);
    }
}
