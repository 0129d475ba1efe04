//! Which message belongs to which session, and what sessions have besides messages: the durable half.
//!
//! A queue without sessions has none of this. The messages of a session are in order, those that can be received apart
//! from those that are set aside or wait for their time. Everything is shared with a snapshot in pieces (chunks of numbers,
//! buckets of sessions), so that the first change after it copies a piece and not the whole.
//!
//! What must always hold: a message has a session here as long as it is in the queue or in its dead-letter queue, and a
//! session is here exactly as long as it has messages in the queue, or a state.

use super::sequences::Sequences;
use crate::ids::{BodyId, Sequence};
use crate::limits::{MEMBER_COST, SESSION_COST};
use crate::queue::index::CHUNK;
use crate::time::LocalTime;
use crate::touched::touched;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Pieces in which sessions are kept, by a hash of their ids. A client that finds ids of the same hash makes us copy more.
const BUCKETS: usize = 256;

#[derive(Debug, Clone, Default)]
pub struct Sessions {
    /// By the number of their chunk; in each by number.
    members: BTreeMap<u64, Arc<Vec<Member>>>,
    /// Empty until there is a session.
    buckets: Vec<Arc<Bucket>>,
    /// What all of it takes in memory, about.
    held_bytes: usize,
}

#[derive(Debug, Clone)]
struct Member {
    at: u16,
    session: Arc<str>,
}

#[derive(Debug, Clone, Default)]
struct Bucket {
    sessions: BTreeMap<Arc<str>, Session>,
    /// How many of them a listing shows.
    listed: usize,
    /// Those with a state, by when it was set.
    by_change: BTreeSet<(LocalTime, Arc<str>)>,
}

#[derive(Debug, Clone, Default)]
pub struct Session {
    /// Messages that can be received, or are locked.
    pub active: Sequences,
    /// Messages that are deferred or scheduled.
    pub aside: Sequences,
    pub state: Option<SessionState>,
}

/// The state that the session's receivers have left (S-149): a body of its own in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionState {
    pub body: BodyId,
    pub length: u32,
    pub changed: LocalTime,
}

/// What a message is to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    Active,
    Aside,
    /// In the dead-letter queue, which knows no sessions (S-103).
    Dead,
}

impl Session {
    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.aside.is_empty() && self.state.is_none()
    }

    fn is_listed(&self) -> bool {
        !self.active.is_empty() || self.state.is_some()
    }

    /// When its state was set.
    fn changed(&self) -> Option<LocalTime> {
        self.state.map(|state| state.changed)
    }
}

fn split(sequence: Sequence) -> (u64, u16) {
    (sequence.0 / CHUNK, (sequence.0 % CHUNK) as u16)
}

impl Sessions {
    /// What it takes in memory, about.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The session of a message.
    pub fn of(&self, sequence: Sequence) -> Option<&Arc<str>> {
        touched(1);
        let (chunk, at) = split(sequence);
        let members = self.members.get(&chunk)?;
        let place = members.binary_search_by_key(&at, |member| member.at).ok()?;
        Some(&members[place].session)
    }

    pub fn get(&self, session: &str) -> Option<&Session> {
        touched(1);
        self.buckets.get(bucket_of(session))?.sessions.get(session)
    }

    /// A message joins its session.
    pub(crate) fn join(&mut self, sequence: Sequence, session: &Arc<str>, membership: Membership) {
        touched(1);
        let id = match membership {
            Membership::Active => self.change(session, |session| session.active.insert(sequence)),
            Membership::Aside => self.change(session, |session| session.aside.insert(sequence)),
            Membership::Dead => Arc::clone(session),
        };
        let (chunk, at) = split(sequence);
        let members = Arc::make_mut(self.members.entry(chunk).or_default());
        let place = members.binary_search_by_key(&at, |member| member.at);
        members.insert(place.expect_err("a message joins once"), Member { at, session: id });
        self.held_bytes += MEMBER_COST;
    }

    /// A message leaves for good. Says what session it had, if any.
    pub(crate) fn leave(&mut self, sequence: Sequence) -> Option<Arc<str>> {
        let (chunk, at) = split(sequence);
        let members = self.members.get_mut(&chunk)?;
        let place = members.binary_search_by_key(&at, |member| member.at).ok()?;
        let Member { session, .. } = Arc::make_mut(members).remove(place);
        if members.is_empty() {
            self.members.remove(&chunk);
        }
        self.held_bytes -= MEMBER_COST;
        self.take_out(sequence, &session);
        Some(session)
    }

    /// A message is received no more in its turn.
    pub(crate) fn set_aside(&mut self, sequence: Sequence) {
        let Some(session) = self.of(sequence).cloned() else { return };
        self.change(&session, |session| {
            if session.active.remove(sequence) {
                session.aside.insert(sequence);
            }
        });
    }

    /// A message is in the dead-letter queue now.
    pub(crate) fn mark_dead(&mut self, sequence: Sequence) {
        if let Some(session) = self.of(sequence).cloned() {
            self.take_out(sequence, &session);
        }
    }

    /// Sets or clears a state, and says what was there before.
    pub(crate) fn set_state(
        &mut self,
        session: &Arc<str>,
        state: Option<SessionState>,
    ) -> Option<SessionState> {
        let before = self.get(session).and_then(|session| session.state);
        if before.is_some() || state.is_some() {
            self.change(session, |session| session.state = state);
        }
        before
    }

    fn take_out(&mut self, sequence: Sequence, session: &Arc<str>) {
        if self.get(session).is_some() {
            self.change(session, |session| {
                let _ = session.active.remove(sequence) || session.aside.remove(sequence);
            });
        }
    }

    /// Changes a session, which may be new or go with it. Gives the one copy of its id that is kept.
    fn change(&mut self, id: &Arc<str>, change: impl FnOnce(&mut Session)) -> Arc<str> {
        if self.buckets.is_empty() {
            self.buckets = vec![Arc::default(); BUCKETS];
        }
        let bucket = Arc::make_mut(&mut self.buckets[bucket_of(id)]);
        let kept = match bucket.sessions.get_key_value(id) {
            Some((kept, _)) => Arc::clone(kept),
            None => {
                self.held_bytes += SESSION_COST + id.len();
                Arc::clone(id)
            }
        };
        let session = bucket.sessions.entry(Arc::clone(&kept)).or_default();
        let (was_listed, before) = (session.is_listed(), session.changed());
        change(session);
        bucket.listed = bucket.listed + usize::from(session.is_listed()) - usize::from(was_listed);
        let after = session.changed();
        if before != after {
            before.map(|time| bucket.by_change.remove(&(time, Arc::clone(&kept))));
            after.map(|time| bucket.by_change.insert((time, Arc::clone(&kept))));
        }
        if session.is_empty() {
            bucket.sessions.remove(&kept);
            self.held_bytes -= SESSION_COST + kept.len();
        }
        kept
    }

    /// Sessions that have something, each with what it has, in an order that does not change.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Session)> {
        self.buckets.iter().flat_map(|bucket| &bucket.sessions)
    }

    /// Sessions with messages or a state, from the `skip`-th on (S-150). Buckets before it are passed over whole.
    pub fn page(&self, mut skip: usize, top: usize) -> Vec<Arc<str>> {
        let mut page = Vec::new();
        for bucket in &self.buckets {
            touched(1);
            if skip >= bucket.listed {
                skip -= bucket.listed;
                continue;
            }
            let listed = bucket.sessions.iter().filter(|(_, session)| session.is_listed());
            for (id, _) in listed.skip(std::mem::take(&mut skip)) {
                touched(1);
                if page.len() == top {
                    return page;
                }
                page.push(Arc::clone(id));
            }
        }
        page
    }

    /// Sessions whose state was set after `since`, from the `skip`-th of them on (S-150). Others are not looked at.
    pub fn page_since(&self, since: LocalTime, skip: usize, top: usize) -> Vec<Arc<str>> {
        let from = (LocalTime(since.0.saturating_add(1)), Arc::from(""));
        let newer = self.buckets.iter().flat_map(|bucket| {
            touched(1);
            bucket.by_change.range(from.clone()..)
        });
        let newer = newer.inspect(|_| touched(1));
        newer.skip(skip).take(top).map(|(_, id)| Arc::clone(id)).collect()
    }

    /// Every message that has a session, by number.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Sequence, &Arc<str>)> {
        self.members.iter().flat_map(|(chunk, members)| {
            members.iter().map(move |each| (Sequence(chunk * CHUNK + u64::from(each.at)), &each.session))
        })
    }
}

impl Hash for Sessions {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.members().for_each(|member| member.hash(hasher));
        for (id, session) in self.iter() {
            (id, session.state).hash(hasher);
            session.active.iter().for_each(|sequence| sequence.hash(hasher));
            u64::MAX.hash(hasher);
            session.aside.iter().for_each(|sequence| sequence.hash(hasher));
        }
    }
}

/// FNV-1a: the same on every machine and in every run, so that a listing does not shift.
fn bucket_of(session: &str) -> usize {
    let hash = session
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash >> 32) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Arc<str> {
        format!("s{number}").into()
    }

    fn active(sessions: &Sessions, session: &str) -> Vec<u64> {
        let session = sessions.get(session);
        session.map_or(vec![], |session| session.active.iter().map(|sequence| sequence.0).collect())
    }

    #[test]
    fn a_message_is_in_its_session_until_it_leaves_and_a_session_until_it_has_nothing() {
        // S-141
        let mut sessions = Sessions::default();
        for n in 1..=2_000 {
            sessions.join(Sequence(n), &id(n % 3), Membership::Active);
        }
        assert_eq!(sessions.of(Sequence(1_025)), Some(&id(2)));
        assert_eq!(active(&sessions, "s0")[..3], [3, 6, 9]);
        sessions.set_aside(Sequence(3));
        sessions.mark_dead(Sequence(6));
        assert_eq!(active(&sessions, "s0")[0], 9);
        assert_eq!(sessions.of(Sequence(6)), Some(&id(0)), "it may still be forwarded");
        for n in 1..=2_000 {
            assert_eq!(sessions.leave(Sequence(n)), Some(id(n % 3)));
        }
        assert_eq!((sessions.iter().count(), sessions.members().count()), (0, 0));
        assert_eq!(sessions.leave(Sequence(1)), None);
    }

    #[test]
    fn a_state_keeps_its_session_and_null_lets_it_go() {
        // S-149
        let mut sessions = Sessions::default();
        let state = SessionState { body: BodyId(7), length: 3, changed: LocalTime(1) };
        assert_eq!(sessions.set_state(&id(1), Some(state)), None);
        assert_eq!(sessions.page(0, 9), [id(1)]);
        assert_eq!(sessions.set_state(&id(1), None), Some(state));
        assert_eq!(sessions.iter().count(), 0);
        assert_eq!(sessions.set_state(&id(2), None), None);
        assert_eq!(sessions.iter().count(), 0, "clearing makes no session");
    }

    #[test]
    fn who_asks_since_a_time_looks_at_what_changed_since_and_at_nothing_else() {
        // S-150
        let mut sessions = Sessions::default();
        let state = |changed| Some(SessionState { body: BodyId(7), length: 3, changed: LocalTime(changed) });
        for n in 1..=20_000 {
            sessions.join(Sequence(n), &id(n), Membership::Active);
            sessions.set_state(&id(n), state(n as i64));
        }
        sessions.set_state(&id(5), state(30_000));
        sessions.set_state(&id(19_999), None);
        crate::touched::take_touched();
        let mut newer = sessions.page_since(LocalTime(19_990), 0, 100);
        assert!(crate::touched::take_touched() <= BUCKETS + 10, "of 20,000 sessions those that are newer");
        newer.sort();
        let expected: Vec<_> = (19_991..=20_000).filter(|n| *n != 19_999).map(id).collect();
        let mut expected: Vec<_> = expected.into_iter().chain([id(5)]).collect();
        expected.sort();
        assert_eq!(newer, expected);
        let pages = [0, 4, 8, 12].map(|skip| sessions.page_since(LocalTime(19_990), skip, 4));
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2, 0]);
        let mut paged = pages.concat();
        paged.sort();
        assert_eq!(paged, expected, "pages have every session once");
        assert_eq!(sessions.page_since(LocalTime(30_000), 0, 100), [], "after, not at");
        assert_eq!(sessions.page_since(LocalTime(i64::MAX), 0, 100), []);
    }

    #[test]
    fn pages_have_every_session_once() {
        // S-150
        let mut sessions = Sessions::default();
        (1..=1_000).for_each(|n| sessions.join(Sequence(n), &id(n), Membership::Active));
        sessions.join(Sequence(1_001), &id(1_001), Membership::Aside);
        let (mut all, mut skip) = (Vec::new(), 0);
        loop {
            let page = sessions.page(skip, 100);
            skip += page.len();
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        all.sort();
        all.dedup();
        assert_eq!((all.len(), skip), (1_000, 1_000), "what is set aside alone is not listed");
    }

    #[test]
    fn a_copy_is_not_changed_with_the_original() {
        let mut sessions = Sessions::default();
        sessions.join(Sequence(1), &id(1), Membership::Active);
        let copy = sessions.clone();
        sessions.leave(Sequence(1));
        assert_eq!(active(&copy, "s1"), [1]);
        assert_eq!(copy.of(Sequence(1)), Some(&id(1)));
    }
}
