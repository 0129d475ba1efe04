//! What the holder of a session does besides receiving and renewing: it keeps a state of its own making (S-149). And what anybody
//! may do who listens: list the sessions (S-150).

use crate::Broker;
use crate::command::Intake;
use crate::decision::{LocalContext, LocalDecision};
use crate::durable::Applying;
use crate::effect::{Answer, Delivery};
use crate::ids::{BodyId, ConnectionId, EntityId, LockToken, NamespaceId, Number, Sequence, Source};
use crate::limits::SESSIONS_PAGE;
use crate::queue::index::State;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::session::Held;
use crate::session::register::{SessionState, Sessions};
use crate::time::LocalTime;
use std::sync::Arc;

/// What is told of an entity that has none.
const NO_SESSIONS: &str = "The entity does not require sessions.";

impl Broker {
    pub(crate) fn session_state(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        session: &str,
        connection: ConnectionId,
        context: LocalContext,
    ) -> Result<Answer, Refusal> {
        let source = self.find_held(namespace, path, (session, connection), context)?;
        let state = self.session(source.entity, session).and_then(|session| session.state);
        Ok(Answer::SessionState(state.map(|state| Box::new(shown(state)))))
    }

    pub(crate) fn set_session_state(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        held: Held<'_>,
        state: Option<Intake>,
        decision: &mut LocalDecision<'_>,
    ) -> Result<Answer, Refusal> {
        let context = decision.context();
        let source = self.find_held(namespace, path, held, context)?;
        let (entity, queue) = (source.entity, self.queue_of(source));
        if let Some(state) = state {
            let tier = self.tier_of(queue.namespace);
            let (size, limit) = (u64::from(state.length), tier.message_bytes(&queue.settings));
            if size > limit {
                return Err(Refusal::MessageTooLarge { size, limit });
            }
            if self.volatile.is_short() {
                return Err(Refusal::NoSpace);
            }
            self.check_quota(entity)?;
        }
        let stored = state.map(|state| (self.durable.next_body(), state.length));
        let record = Record::SessionStateSet { entity, session: held.0.into(), state: stored };
        self.write(record, decision);
        if let Some(state) = state {
            decision.body(state);
        }
        Ok(Answer::SessionStateSet)
    }

    /// Sessions with messages or a state, by pages. Those whose state has changed since a time are few, and looked for among
    /// all.
    pub(crate) fn list_sessions(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        since: Option<LocalTime>,
        skip: usize,
        top: usize,
        context: LocalContext,
    ) -> Result<Answer, Refusal> {
        let source = self.resolve_sessions(namespace, path)?;
        self.volatile.set_used(source.entity, context.now);
        let top = top.min(SESSIONS_PAGE);
        let list = |sessions: &Sessions| match since {
            None => sessions.page(skip, top),
            Some(since) => sessions.page_since(since, skip, top),
        };
        let sessions = self.queue_of(source).sessions.as_deref();
        Ok(Answer::Sessions(sessions.map(list).unwrap_or_default()))
    }

    /// The entity whose session the asker holds; that it asks is use of it (S-71).
    pub(super) fn find_held(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        held: Held<'_>,
        context: LocalContext,
    ) -> Result<Source, Refusal> {
        let source = self.resolve_sessions(namespace, path)?;
        self.check_held(source, held, context)?;
        self.volatile.set_used(source.entity, context.now);
        Ok(source)
    }

    fn resolve_sessions(&self, namespace: NamespaceId, path: &str) -> Result<Source, Refusal> {
        let source = self.resolve_for_receive(namespace, path)?;
        if self.has_sessions(source) { Ok(source) } else { Err(Refusal::NotAllowed(NO_SESSIONS)) }
    }
}

/// A state on its way to a client that asked for it: a body, and nothing that only messages have.
fn shown(state: SessionState) -> Delivery {
    Delivery {
        token: LockToken(0),
        sequence: Sequence(0),
        number: Number(0),
        first: None,
        state: State::Active,
        was_scheduled: false,
        body: state.body,
        length: state.length,
        count: 0,
        enqueued: state.changed,
        expires: LocalTime::NEVER,
        locked_until: None,
        extra: None,
    }
}

impl Applying<'_> {
    pub(crate) fn session_state_set(
        &mut self,
        entity: EntityId,
        session: &Arc<str>,
        state: Option<(BodyId, u32)>,
    ) {
        if let Some((body, _)) = state {
            self.take_body(body);
        }
        let changed = self.time;
        let state = state.map(|(body, length)| SessionState { body, length, changed });
        let queue = self.queue_mut(entity);
        let before = queue.own_bytes();
        queue.set_session_state(session, state);
        self.tell_topic(entity, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::command::Outcome;
    use crate::ids::BodyId;
    use crate::limits::SESSION_ID_CHARACTERS;
    use crate::settings::QueueSettings;
    use crate::testing::World;
    use crate::time::Span;
    use std::sync::Arc;

    fn with_sessions(sent: &[&str]) -> World {
        let mut world = World::new();
        let settings =
            QueueSettings { requires_session: true, max_size_megabytes: 1, ..QueueSettings::default() };
        world.create("q", settings);
        world.send_sessions("q", sent);
        world
    }

    fn set(world: &mut World, session: &str, length: Option<u32>) -> Result<Answer, Refusal> {
        let state = length.map(|length| Intake { offset: 0, length });
        let (path, session) = ("q".into(), session.into());
        let set = |request, namespace| Command::SetSessionState { request, namespace, path, session, state };
        world.ask_held(set)
    }

    fn get(world: &mut World, session: &str) -> Result<Option<(BodyId, u32)>, Refusal> {
        let (path, session) = ("q".into(), session.into());
        let get = |request, namespace| Command::GetSessionState { request, namespace, path, session };
        match world.ask_held(get)? {
            Answer::SessionState(state) => Ok(state.map(|state| (state.body, state.length))),
            other => panic!("{other:?}"),
        }
    }

    fn list(world: &mut World, since: Option<LocalTime>, skip: usize, top: usize) -> Vec<Arc<str>> {
        let path = "q".into();
        let list = |request, namespace| Command::ListSessions { request, namespace, path, since, skip, top };
        match world.ask_held(list) {
            Ok(Answer::Sessions(sessions)) => sessions,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_state_is_what_was_set_last_and_null_clears_it() {
        // S-149
        let mut world = with_sessions(&["a"]);
        world.holder("q", "a", 0);
        assert_eq!(get(&mut world, "a"), Ok(None));
        set(&mut world, "a", Some(100)).unwrap();
        assert_eq!(get(&mut world, "a"), Ok(Some((BodyId(2), 100))));
        set(&mut world, "a", Some(50)).unwrap();
        assert_eq!(get(&mut world, "a"), Ok(Some((BodyId(3), 50))));
        assert_eq!(world.queue("q").bytes, 10 + 50);
        set(&mut world, "a", None).unwrap();
        assert_eq!(get(&mut world, "a"), Ok(None));
        assert_eq!(world.queue("q").bytes, 10);
    }

    #[test]
    fn a_state_outlives_its_messages_its_holder_and_the_process() {
        // S-149
        let mut world = with_sessions(&["a"]);
        let link = world.holder("q", "a", 1);
        set(&mut world, "a", Some(7)).unwrap();
        let token = world.token(1);
        world.settle(link, 0, token, Outcome::Complete);
        world.detach(link);
        world.restart();
        world.holder("q", "a", 0);
        assert_eq!(get(&mut world, "a"), Ok(Some((BodyId(2), 7))));
        assert_eq!(list(&mut world, None, 0, 9), ["a".into()]);
    }

    #[test]
    fn only_the_holder_sees_and_sets_a_state() {
        //
        let mut world = with_sessions(&["a"]);
        assert_eq!(get(&mut world, "a"), Err(Refusal::SessionLockLost));
        assert_eq!(set(&mut world, "a", Some(1)), Err(Refusal::SessionLockLost));
        world.holder("q", "b", 0);
        assert_eq!(set(&mut world, "a", None), Err(Refusal::SessionLockLost));
        world.pass(Span::minutes(1));
        assert_eq!(get(&mut world, "b"), Err(Refusal::SessionLockLost));
    }

    #[test]
    fn a_state_is_as_large_as_a_message_may_be_and_counts_in_the_quota() {
        // S-149
        let mut world = with_sessions(&[]);
        world.holder("q", "a", 0);
        let refused = set(&mut world, "a", Some(1_048_577));
        assert_eq!(refused, Err(Refusal::MessageTooLarge { size: 1_048_577, limit: 1_048_576 }));
        assert_eq!(set(&mut world, "a", Some(1_048_576)), Ok(Answer::SessionStateSet));
        assert!(matches!(set(&mut world, "a", Some(1)), Err(Refusal::QueueFull { .. })));
        assert_eq!(set(&mut world, "a", None), Ok(Answer::SessionStateSet), "which makes room");
    }

    #[test]
    fn sessions_are_listed_by_pages_or_by_the_change_of_their_state() {
        // S-150
        let mut world = with_sessions(&["a", "b", "c", "a"]);
        let (mut all, mut next) = (list(&mut world, None, 0, 2), list(&mut world, None, 2, 2));
        assert_eq!((all.len(), next.len()), (2, 1));
        all.append(&mut next);
        all.sort();
        assert_eq!(all, ["a".into(), "b".into(), "c".into()]);
        assert_eq!(list(&mut world, Some(LocalTime(0)), 0, 9), []);
        world.holder("q", "d", 0);
        set(&mut world, "d", Some(1)).unwrap();
        let before = LocalTime(world.local().0 - 1);
        assert_eq!(list(&mut world, Some(before), 0, 9), ["d".into()]);
        let now = world.local();
        assert_eq!(list(&mut world, Some(now), 0, 9), []);
        assert_eq!(list(&mut world, None, 0, 9).len(), 4);
    }

    #[test]
    fn an_entity_without_sessions_has_none_to_ask_for() {
        let mut world = World::with_queue("q");
        assert_eq!(set(&mut world, "a", None), Err(Refusal::NotAllowed(NO_SESSIONS)));
        assert_eq!(
            get(&mut world, &"x".repeat(SESSION_ID_CHARACTERS)),
            Err(Refusal::NotAllowed(NO_SESSIONS))
        );
    }
}
