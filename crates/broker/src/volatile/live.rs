//! Which link holds which session, which wait for one, and what of a held session was handed out: the volatile half.
//!
//! Only a session that is held, or whose messages are still on their way back, is live; what is free in all others
//! follows from the durable half. Sessions that could be handed out are in the order of their oldest messages, so the next
//! one is found without looking at any other.
//!
//! What must always hold: a session has one holder at most, and while messages of it are on their way back nothing of it is
//! handed out, or the order within it would be lost (S-145).

use super::{Freed, Lock, Role, Volatile};
use crate::credit_line::Line;
use crate::ids::{EntityId, IdMap, LinkId, LockToken, Position, Sequence, Source};
use crate::time::{LocalTime, Span};
use crate::timers::LockTimer;
use crate::touched::touched;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The sessions of one entity that requires them.
#[derive(Debug, Default)]
pub struct LiveSessions {
    by_id: BTreeMap<Arc<str>, LiveSession>,
    /// Sessions that are not live and have free messages, by the first of those, and the other way round.
    open: BTreeMap<Sequence, Arc<str>>,
    keys: BTreeMap<Arc<str>, Sequence>,
    /// The links that wait for whatever session is free, in the order in which they came.
    pub(crate) waiting: Line,
    /// Sessions of which something has changed.
    changed: VecDeque<Arc<str>>,
    /// Sessions whose messages the engine is asked for, before they can be removed.
    asked_for: Vec<Arc<str>>,
    /// Messages that were locked by who has left. They may have expired meanwhile.
    loose: VecDeque<Sequence>,
    /// The sessions that timers speak of.
    tickets: IdMap<u64, Arc<str>>,
}

#[derive(Debug, Default)]
pub struct LiveSession {
    pub holder: Option<Holder>,
    /// Everything below was handed out to the holder.
    pub cursor: Sequence,
    /// Handed out before, and free again.
    pub returned: BTreeSet<Sequence>,
    /// Locked by the holder.
    taken: BTreeSet<Sequence>,
    /// Locked by a holder whose time ran out; they are given back in slices.
    lost: BTreeSet<Sequence>,
    /// The ticket of the holder who lost them.
    lost_ticket: u64,
    /// Given back, which is not committed yet.
    returning: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub link: LinkId,
    pub until: LocalTime,
    /// How long after that its link is told.
    pub delay: Span,
    pub credit: u32,
    /// By which its timer knows it.
    pub ticket: u64,
}

impl Holder {
    /// When its link is told that the lock has ended. From `until` on the lock is good for nothing.
    fn told_at(&self) -> LocalTime {
        self.until.after(self.delay)
    }
}

impl LiveSession {
    /// Whether messages of it may be handed out.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.returning == 0
    }

    fn is_done_with(&self) -> bool {
        self.holder.is_none() && self.is_whole()
    }

    /// What is to be given back first.
    pub fn first_lost(&self) -> Option<Sequence> {
        self.lost.first().copied()
    }
}

impl LiveSessions {
    /// What a start finds: every session is free whose first message is given.
    pub(crate) fn opened(open: impl Iterator<Item = (Arc<str>, Sequence)>) -> LiveSessions {
        let mut sessions = LiveSessions::default();
        for (session, first) in open {
            sessions.open.insert(first, Arc::clone(&session));
            sessions.keys.insert(session, first);
        }
        sessions
    }

    pub fn get(&self, session: &str) -> Option<&LiveSession> {
        touched(1);
        self.by_id.get(session)
    }

    pub fn holder(&self, session: &str) -> Option<Holder> {
        self.get(session)?.holder
    }

    /// The session with the oldest free message of those that nobody holds.
    pub fn first_open(&self) -> Option<&Arc<str>> {
        touched(1);
        self.open.first_key_value().map(|(_, session)| session)
    }

    pub(crate) fn key(&self, session: &str) -> Option<Sequence> {
        self.keys.get(session).copied()
    }

    /// The session that a timer speaks of, if it still does.
    pub(crate) fn timed(&self, ticket: u64, at: LocalTime) -> Option<&Arc<str>> {
        let session = self.tickets.get(&ticket)?;
        let live = self.by_id.get(session)?;
        let is_held = live.holder.is_some_and(|holder| holder.ticket == ticket && holder.told_at() == at);
        (is_held || live.lost_ticket == ticket && !live.lost.is_empty()).then_some(session)
    }

    /// Whether somebody waits for a session, or for messages of one.
    pub(crate) fn has_waiting_receiver(&self) -> bool {
        let awaits = |live: &LiveSession| live.holder.is_some_and(|holder| holder.credit > 0);
        !self.waiting.is_empty() || self.by_id.values().any(awaits)
    }

    pub(crate) fn held(&self) -> usize {
        self.by_id.values().filter(|live| live.holder.is_some()).count()
    }

    fn key_as(&mut self, session: &Arc<str>, first: Option<Sequence>) {
        let before = self.keys.get(session).copied();
        if before == first {
            return;
        }
        touched(1);
        if let Some(before) = before {
            self.open.remove(&before);
            self.keys.remove(session);
        }
        if let Some(first) = first {
            self.open.insert(first, Arc::clone(session));
            self.keys.insert(Arc::clone(session), first);
        }
    }

    /// Forgets a session that is not live any more.
    fn close(&mut self, session: &Arc<str>) {
        if self.by_id.get(session).is_some_and(LiveSession::is_done_with) {
            self.by_id.remove(session);
        }
        self.changed.push_back(Arc::clone(session));
    }
}

/// The token by which a timer names the holder of a session: no message has the number zero.
fn timer_token(ticket: u64) -> u128 {
    LockToken::new(ticket, Sequence(0)).0
}

/// The ticket in such a token.
pub(crate) fn ticket_of(timer: &LockTimer) -> Option<u64> {
    let token = LockToken(timer.token);
    (token.sequence() == Sequence(0)).then_some((token.0 >> 64) as u64)
}

impl Volatile {
    pub(crate) fn sessions(&self, entity: EntityId) -> Option<&LiveSessions> {
        self.presence(entity).sessions.as_deref()
    }

    pub(super) fn sessions_mut(&mut self, entity: EntityId) -> &mut LiveSessions {
        self.presence_mut(entity).sessions.get_or_insert_default()
    }

    /// A message will be free once `position` is committed.
    pub(crate) fn join_session(
        &mut self,
        entity: EntityId,
        session: Arc<str>,
        sequence: Sequence,
        position: Position,
    ) {
        touched(1);
        // There is an entry from the first message on, or the commit would find none.
        self.sessions_mut(entity);
        self.await_commit(Source::main(entity), position, Freed::Joined(session, sequence));
    }

    /// A message will be free again once `position` is committed.
    pub(crate) fn return_to_session(
        &mut self,
        entity: EntityId,
        session: Arc<str>,
        sequence: Sequence,
        position: Position,
    ) {
        touched(1);
        let sessions = self.sessions_mut(entity);
        sessions.by_id.entry(Arc::clone(&session)).or_default().returning += 1;
        sessions.key_as(&session, None);
        self.await_commit(Source::main(entity), position, Freed::Rejoined(session, sequence));
    }

    pub(crate) fn renew_session(&mut self, entity: EntityId, session: &str, until: LocalTime) {
        touched(1);
        let live = self.sessions_mut(entity).by_id.get_mut(session);
        let holder = live.and_then(|live| live.holder.as_mut());
        let holder = holder.expect("only a session that is held is renewed");
        holder.until = until;
        let (at, token) = (holder.told_at(), timer_token(holder.ticket));
        self.time(LockTimer { at, source: Source::main(entity), token });
    }

    /// The time of the holder ran out. What it had locked is to be given back.
    pub(crate) fn lose_session(&mut self, entity: EntityId, session: &Arc<str>) {
        touched(1);
        let live = self.sessions_mut(entity).by_id.get_mut(session);
        let live = live.expect("only a session that is held is lost");
        if let Some(holder) = live.holder.take() {
            live.lost.append(&mut live.taken);
            live.lost_ticket = holder.ticket;
            self.held_locks -= 1;
        }
        self.sessions_mut(entity).close(session);
        self.stir(Source::main(entity));
    }

    /// A message is locked for as long as its session is.
    pub(crate) fn take_in_session(
        &mut self,
        entity: EntityId,
        session: &str,
        token: LockToken,
        is_in_order: bool,
    ) {
        touched(1);
        let sequence = token.sequence();
        let ready = self.ready_mut(Source::main(entity));
        let before = ready.locks.insert(sequence, Lock { token, until: LocalTime::NEVER });
        assert!(before.is_none(), "message {} was locked twice", sequence.0);
        ready.vouched.remove(&sequence);
        self.held_locks += 1;
        let live = self.sessions_mut(entity).by_id.get_mut(session);
        let live = live.expect("only what is held is handed out");
        live.taken.insert(sequence);
        if is_in_order {
            // What comes before it was not free any more.
            live.returned = live.returned.split_off(&sequence.next());
            live.cursor = live.cursor.max(sequence.next());
        }
    }

    /// One unit of the holder's credit is used.
    pub(crate) fn serve_session(&mut self, entity: EntityId, session: &str) {
        touched(1);
        let live = self.sessions_mut(entity).by_id.get_mut(session);
        let holder = live.and_then(|live| live.holder.as_mut()).expect("it was served");
        holder.credit -= 1;
        let link = holder.link;
        self.count_delivery(link);
    }

    /// A message is not locked any more.
    pub(crate) fn untake_in_session(&mut self, entity: EntityId, session: &Arc<str>, sequence: Sequence) {
        touched(1);
        let sessions = self.sessions_mut(entity);
        if let Some(live) = sessions.by_id.get_mut(session) {
            let _ = live.taken.remove(&sequence) || live.lost.remove(&sequence);
            if live.is_done_with() {
                sessions.close(session);
            }
        }
    }

    /// A message is free again, for nothing has happened.
    pub(crate) fn free_in_session(&mut self, entity: EntityId, session: Arc<str>, sequence: Sequence) {
        self.sessions_mut(entity).give_back(&session, sequence);
        self.mark_changed(entity, session);
    }

    /// Something may have changed for a session.
    pub(crate) fn mark_changed(&mut self, entity: EntityId, session: Arc<str>) {
        touched(1);
        self.sessions_mut(entity).changed.push_back(session);
        self.stir(Source::main(entity));
    }

    pub(crate) fn take_changed(&mut self, entity: EntityId) -> Option<Arc<str>> {
        self.sessions_mut(entity).changed.pop_front()
    }

    pub(crate) fn take_loose(&mut self, entity: EntityId) -> Option<Sequence> {
        self.sessions_mut(entity).loose.pop_front()
    }

    /// What is free first of a session that nobody holds.
    pub(crate) fn key_session(&mut self, entity: EntityId, session: &Arc<str>, first: Option<Sequence>) {
        touched(1);
        self.sessions_mut(entity).key_as(session, first);
    }

    /// The engine is asked for messages of it.
    pub(crate) fn session_is_asked_for(&mut self, entity: EntityId, session: &Arc<str>) {
        touched(1);
        self.sessions_mut(entity).asked_for.push(Arc::clone(session));
    }

    /// They were read.
    pub(crate) fn end_session_check(&mut self, entity: EntityId) {
        touched(1);
        let LiveSessions { asked_for, changed, .. } = self.sessions_mut(entity);
        changed.extend(asked_for.drain(..));
    }

    /// A session has a holder.
    pub(crate) fn accept_session(&mut self, entity: EntityId, session: &Arc<str>, holder: Holder) {
        touched(1);
        let sessions = self.sessions_mut(entity);
        sessions.waiting.remove(holder.link);
        sessions.key_as(session, None);
        sessions.tickets.insert(holder.ticket, Arc::clone(session));
        let live = sessions.by_id.entry(Arc::clone(session)).or_default();
        assert!(live.holder.is_none(), "a session has one holder");
        live.holder = Some(holder);
        (live.cursor, live.returned) = (Sequence(0), BTreeSet::new());
        if let Some(link) = self.links.get_mut(&holder.link)
            && let Role::Waiting { mode } = link.role
        {
            link.role = Role::Receiver { mode, delivered: 0, session: Some(Arc::clone(session)) };
        }
        self.held_locks += 1;
        let (source, token) = (Source::main(entity), timer_token(holder.ticket));
        self.time(LockTimer { at: holder.told_at(), source, token });
    }

    /// A link that holds a session is gone: so is its lock, at once, and what it had locked is as if it had never been
    /// delivered (S-147, S-148).
    pub(super) fn vacate(&mut self, entity: EntityId, session: &Arc<str>, link: LinkId) {
        let Some(live) = self.sessions_mut(entity).by_id.get_mut(session) else { return };
        let Some(holder) = live.holder.take_if(|holder| holder.link == link) else { return };
        let taken = std::mem::take(&mut live.taken);
        self.held_locks -= 1 + taken.len();
        let source = Source::main(entity);
        for sequence in &taken {
            self.ready_mut(source).locks.remove(sequence);
        }
        let sessions = self.sessions_mut(entity);
        sessions.loose.extend(taken);
        sessions.tickets.remove(&holder.ticket);
        sessions.close(session);
        self.stir(source);
    }

    /// What a commit has brought for a session.
    pub(super) fn rejoin(&mut self, entity: EntityId, session: Arc<str>, sequence: Sequence, is_new: bool) {
        let Some(sessions) = self.presence_mut(entity).sessions.as_deref_mut() else { return };
        if !is_new {
            if let Some(live) = sessions.by_id.get_mut(&session) {
                live.returning -= 1;
            }
            sessions.give_back(&session, sequence);
        }
        sessions.close(&session);
    }

    pub(super) fn credit_session(&mut self, entity: EntityId, session: &Arc<str>, link: LinkId, credit: u32) {
        let sessions = self.sessions_mut(entity);
        if let Some(holder) = sessions.by_id.get_mut(session).and_then(|live| live.holder.as_mut())
            && holder.link == link
        {
            let is_more = credit > holder.credit;
            holder.credit = credit;
            if is_more {
                sessions.changed.push_back(Arc::clone(session));
                self.stir(Source::main(entity));
            }
        }
    }

    /// Forgets a ticket of which nothing is left to be given back.
    pub(crate) fn forget_ticket(&mut self, entity: EntityId, ticket: u64) {
        self.sessions_mut(entity).tickets.remove(&ticket);
    }
}

impl LiveSessions {
    /// A message is before the place up to which its holder has come, and free.
    fn give_back(&mut self, session: &Arc<str>, sequence: Sequence) {
        if let Some(live) = self.by_id.get_mut(session)
            && live.holder.is_some()
            && sequence < live.cursor
        {
            live.returned.insert(sequence);
        }
    }
}
