//! Sessions: one holder at a time, its messages to nobody else, in order, and states that are what was set last.

use super::ledger::Queue;
use super::{Holding, LinkState, Lock, Oracle, Question};
use broker::{
    AcceptedSession, BodyId, Delivery, EntityId, LinkId, LocalTime, Refusal, RequestId, Sequence, State,
    SubQueue,
};
use engine::Sent;
use std::sync::Arc;

impl Lock {
    /// Whether its message was free again before that turn.
    pub(super) fn is_free_before(&self, turn: u64) -> bool {
        self.returned.or(self.vacated).is_some_and(|free| free < turn)
    }
}

impl Oracle {
    /// A message that was just stored is in the session with which it was sent.
    pub(super) fn join(&mut self, entity: EntityId, sequence: Sequence, session: &Arc<str>) {
        let queue = self.ledger.queues.get_mut(&entity);
        let Some(present) = queue.and_then(|queue| queue.present.get_mut(&sequence)) else {
            return self.fail(format!("{sequence:?} is in a session and not there"));
        };
        let is_first = present.session.replace(session.clone()).is_none();
        self.joining.remove(&(entity, sequence));
        if !is_first || self.messages[present.message].session.as_ref() != Some(session) {
            self.fail(format!("{sequence:?} is in session {session}, for which it was not sent"));
        }
    }

    pub(super) fn set_state(&mut self, entity: EntityId, session: &Arc<str>, state: Option<(BodyId, u32)>) {
        let hash = state.map(|(body, length)| (self.ledger.bodies.get(&body.0).copied(), length));
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            return self.fail("a state was set in a queue that does not exist");
        };
        let path = queue.path.to_lowercase();
        let before = match state {
            Some(state) => queue.states.insert(session.clone(), state),
            None => queue.states.remove(session),
        };
        queue.bytes += state.map_or(0, |(_, length)| u64::from(length));
        queue.bytes -= before.map_or(0, |(_, length)| u64::from(length));
        queue.states_in_turn.insert(session.clone());
        let is_it = |question: &Question| match question {
            Question::SetState(of, who, asked) => {
                *of == path && who == session && asked.map(|(hash, length)| (Some(hash), length)) == hash
            }
            _ => false,
        };
        if !self.asked.iter().any(is_it) {
            self.fail(format!("the state of {session} was set and nobody asked"));
        }
    }

    /// The session of a message that is there, or was.
    pub(super) fn ledger_session(&self, entity: EntityId, sequence: Sequence) -> Option<Arc<str>> {
        let queue =
            self.ledger.queues.get(&entity).or(self.ledger.deleted.get(&entity).map(|(_, queue)| queue));
        let present = queue.and_then(|queue| queue.present.get(&sequence));
        present.or(self.ledger.removed.get(&(entity, sequence)))?.session.clone()
    }

    /// The session with which a message is locked, if it is.
    pub(super) fn session_lock(&self, entity: EntityId, sequence: Sequence) -> Option<Arc<str>> {
        let queue = self.ledger.queues.get(&entity).filter(|queue| queue.settings.requires_session)?;
        queue.present.get(&sequence).filter(|present| present.is_main())?.session.clone()
    }

    /// A link was attached, with a session if it wanted one.
    pub(super) fn accepted_session(&mut self, id: LinkId, session: Option<&AcceptedSession>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_wanted = match (&link.wants, session) {
            (None, None) | (Some(None), Some(_)) => true,
            (Some(Some(wanted)), Some(session)) => **wanted == *session.id,
            (None, Some(_)) | (Some(_), None) => false,
        };
        link.holds = session.map(|session| session.id.clone());
        let path = link.queue.clone();
        let left = if let LinkState::Gone(turn) = link.state { Some(turn) } else { None };
        if !is_wanted {
            return self.fail(format!("{id:?} got {session:?}, which it did not want"));
        }
        let Some(session) = session else { return };
        let Some(entity) = self.ledger.find(&path) else { return };
        let key = (entity, session.id.clone());
        let (began, now) = (self.since(entity), self.here(entity));
        // One that has left meanwhile, or whose time ran out while the news waited for the disk, may hear of it after the
        // next one did.
        let has_next = self.holdings.get(&key).is_some_and(|other| other.left.is_none());
        let is_over = self.is_blurred && session.until <= now;
        if has_next && (left.is_some() || is_over) {
            return;
        }
        let is_free = self
            .holdings
            .get(&key)
            .is_none_or(|before| before.left.is_some() || before.until <= now || before.link == id);
        let durations = self.ledger.queues[&entity].durations.clone();
        let is_timed =
            durations.iter().any(|span| (began.after(*span)..=now.after(*span)).contains(&session.until));
        let former = self.holdings.get(&key).map(|before| (before.link.connection, self.turn));
        let (until, since) = (session.until, self.turn);
        self.holdings.insert(key, Holding { link: id, until, renewals: 0, since, left, former });
        if !is_free && !self.is_updating(&path) && !self.went(&path) {
            self.fail(format!("I5: session {} has two holders", session.id));
        } else if !is_timed && !self.is_blurred && !self.went(&path) {
            self.fail(format!("session {} is held until {:?}", session.id, session.until));
        }
    }

    /// A link is gone, or will be in that turn: nothing of its session is certain to be locked any more.
    pub(super) fn vacate(&mut self, link: LinkId, turn: u64) {
        let mut left = Vec::new();
        for (key, holding) in self.holdings.iter_mut().filter(|(_, holding)| holding.link == link) {
            holding.left.get_or_insert(turn);
            left.push(key.clone());
        }
        for ((entity, session), now) in left.into_iter().zip(std::iter::repeat(turn)) {
            for ((of, _), lock) in &mut self.locks {
                if *of == entity && lock.session.as_ref() == Some(&session) {
                    lock.is_hazy = true;
                    lock.vacated.get_or_insert(now);
                }
            }
        }
    }

    /// The holder of a session of what nobody may receive from any more loses its link. Who got one in this turn may have got
    /// it afterwards.
    pub(super) fn end_sessions(&mut self, entity: EntityId) {
        if self.ledger.queues.get(&entity).is_none_or(|queue| queue.may_receive()) {
            return;
        }
        let turn = self.turn;
        let held = self.holdings.iter().filter(|((of, _), held)| *of == entity && held.since < turn);
        let links: Vec<_> = held.map(|(_, holding)| holding.link).collect();
        links.into_iter().for_each(|link| self.vacate(link, turn));
    }

    /// Whether the time of a session's holder has run out.
    pub(super) fn is_holding_over(&self, link: LinkId) -> bool {
        // The link that has it now was looked at when it got it.
        let mut held = self.holdings.iter().filter(|(_, holding)| holding.link == link);
        held.next().is_none_or(|((entity, _), holding)| holding.until <= self.here(*entity))
    }

    /// What is wrong with the session of a message that was delivered.
    pub(super) fn wrong_session(
        &self,
        entity: EntityId,
        delivery: &Delivery,
        sent: &Sent,
        holds: Option<&Arc<str>>,
        sub: SubQueue,
    ) -> Option<String> {
        let queue = self.ledger.queues.get(&entity)?;
        let sequence = delivery.sequence;
        if !queue.settings.requires_session || sub != SubQueue::Main {
            return holds.map(|holds| format!("{sequence:?} came in session {holds}, of a queue without"));
        }
        let own = self.ledger_session(entity, sequence);
        if own.is_none() || own.as_ref() != holds {
            return Some(format!("{sequence:?} of session {own:?} came to the holder of {holds:?}"));
        }
        let holding = self.holdings.get(&(entity, own?)).filter(|holding| holding.link == sent.link)?;
        let is_timed = delivery.locked_until.is_none_or(|until| until == holding.until);
        (!is_timed).then(|| format!("{sequence:?} is not locked as long as its session, {:?}", holding.until))
    }

    /// Within a session messages are handed out oldest first (S-145).
    pub(super) fn passed_over_in_session(&self, entity: EntityId, queue: &Queue) -> Option<String> {
        for (session, newest) in &queue.newest_by_session {
            let older = queue.present.range(..*newest).find(|(sequence, present)| {
                present.state == State::Active
                    && present.is_main()
                    && present.session.as_ref() == Some(session)
                    && match self.locks.get(&(entity, **sequence)) {
                        Some(lock) => lock.is_free_before(self.turn),
                        None => present.stored < self.turn,
                    }
            });
            if let Some((older, _)) = older {
                return Some(format!(
                    "{older:?} of session {session} was free and passed over by {newest:?}"
                ));
            }
        }
        None
    }

    /// The holder of a session asks for more time.
    pub(super) fn renewing(&mut self, entity: EntityId, session: &Arc<str>) {
        if let Some(holding) = self.holdings.get_mut(&(entity, session.clone())) {
            holding.renewals += 1;
        }
        for lock in self.locks_of(entity, session) {
            lock.renewals += 1;
        }
    }

    fn locks_of<'a>(
        &'a mut self,
        entity: EntityId,
        session: &'a Arc<str>,
    ) -> impl Iterator<Item = &'a mut Lock> {
        let locks = self.locks.iter_mut();
        let theirs =
            locks.filter(move |((of, _), lock)| *of == entity && lock.session.as_ref() == Some(session));
        theirs.map(|(_, lock)| lock)
    }

    pub(super) fn session_renewed(
        &mut self,
        request: RequestId,
        path: &str,
        session: &Arc<str>,
        until: LocalTime,
    ) {
        let Some(entity) = self.ledger.find(path).filter(|_| !self.went(path)) else { return };
        let durations = self.ledger.queues[&entity].durations.clone();
        let (began, now, turn) = (self.since(entity), self.here(entity), self.turn);
        let is_timed = durations.iter().any(|span| (began.after(*span)..=now.after(*span)).contains(&until));
        let Some(holding) = self.holdings.get_mut(&(entity, session.clone())) else {
            return self.fail(format!("session {session} was renewed and nobody holds it"));
        };
        // One that has left meanwhile may hear of its renewal after the next one heard that it holds the session.
        let is_former = holding.former == Some((request.connection, turn));
        if is_former && is_timed && holding.link.connection != request.connection {
            return;
        }
        let is_held = holding.link.connection == request.connection
            && (began < holding.until || holding.renewals > 1)
            && holding.left.is_none_or(|left| left >= turn);
        (holding.until, holding.renewals) = (until, holding.renewals.saturating_sub(1));
        for lock in self.locks_of(entity, session) {
            (lock.until, lock.renewals) = (until, lock.renewals.saturating_sub(1));
        }
        if !is_timed || !is_held {
            self.fail(format!("session {session} was renewed until {until:?}, held: {is_held}"));
        }
    }

    pub(super) fn session_not_renewed(
        &mut self,
        request: RequestId,
        path: &str,
        session: &Arc<str>,
        refusal: &Refusal,
    ) {
        let Some(entity) = self.ledger.find(path) else { return };
        let now = self.here(entity);
        for lock in self.locks_of(entity, session) {
            lock.renewals = lock.renewals.saturating_sub(1);
        }
        let Some(holding) = self.holdings.get_mut(&(entity, session.clone())) else { return };
        holding.renewals = holding.renewals.saturating_sub(1);
        let is_held =
            holding.link.connection == request.connection && now < holding.until && holding.left.is_none();
        if is_held && matches!(refusal, Refusal::SessionLockLost) && !self.went(path) {
            self.fail(format!("session {session} is called lost and is held"));
        }
    }

    /// A state is what was set last, or what was set in this turn.
    pub(super) fn state_told(&mut self, path: &str, session: &Arc<str>, state: Option<&Delivery>) {
        let Some(entity) = self.ledger.find(path).filter(|_| !self.went(path)) else { return };
        let queue = &self.ledger.queues[&entity];
        let told = state.map(|state| (state.body, state.length));
        let is_right = told == queue.states.get(session).copied() || queue.states_in_turn.contains(session);
        if !is_right && !self.is_blurred {
            self.fail(format!("the state of {session} is told as {told:?}"));
        }
    }

    /// A client has read a state.
    pub fn read_state(&mut self, state: &Delivery, hash: u64, length: usize) {
        if self.ledger.bodies.get(&state.body.0) != Some(&hash) || state.length as usize != length {
            self.fail("I3: the state of a session is not what was set");
        }
    }

    /// Sessions that are listed have something.
    pub(super) fn sessions_told(&mut self, path: &str, sessions: &[Arc<str>]) {
        let Some(entity) = self.ledger.find(path).filter(|_| !self.went(path)) else { return };
        if self.is_blurred {
            return;
        }
        let (queue, removed) = (&self.ledger.queues[&entity], &self.ledger.removed);
        let mut all = sessions.to_vec();
        all.sort();
        all.dedup();
        let is_known = |session: &&Arc<str>| {
            let is_its = |own: &Option<Arc<str>>| own.as_ref() == Some(*session);
            queue.states.contains_key(*session)
                || queue.states_in_turn.contains(*session)
                || queue.present.values().any(|present| is_its(&present.session))
                || removed.iter().any(|((of, _), present)| *of == entity && is_its(&present.session))
        };
        if all.len() != sessions.len() || !sessions.iter().all(|session| is_known(&session)) {
            self.fail(format!("{path} is told to have the sessions {sessions:?}"));
        }
    }
}
