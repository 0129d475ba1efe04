//! Sessions: messages are put into a few of them, receivers accept one or any, and the holder of one keeps a state.

use super::topic::is_topic;
use super::{Actor, SESSIONS, Workload, namespace_of};
use crate::hash::hash_bytes;
use crate::oracle::{Oracle, Question, Role};
use broker::{Command, ReceiveMode};
use engine::Batch;
use std::sync::Arc;

/// Few enough that they meet. The empty one is one too.
const IDS: [&str; 4] = ["red", "green", "blue", ""];

impl Workload {
    /// Every session that a message may be in.
    pub fn session_ids() -> impl Iterator<Item = Arc<str>> {
        IDS.into_iter().map(Arc::from)
    }

    fn some_session(&mut self) -> Arc<str> {
        (*self.random.pick(&IDS)).into()
    }

    /// The session of a message to that queue. Some forget it, and at a topic many have none: only some of its subscriptions
    /// ask for it.
    pub(super) fn session_for(&mut self, path: &str) -> Option<Arc<str>> {
        let has_one = if path.eq_ignore_ascii_case(SESSIONS) {
            !self.random.once_in(40)
        } else {
            is_topic(path) && !self.random.once_in(3)
        };
        has_one.then(|| self.some_session())
    }

    /// Accepts a session of a queue, which may have none.
    pub(super) fn accept(
        &mut self,
        who: Actor,
        path: &str,
        mode: ReceiveMode,
        batch: &mut Batch,
        oracle: &mut Oracle,
    ) {
        let session = if self.random.once_in(2) { Some(self.some_session()) } else { None };
        let link = self.clients[who.at].link(path, Role::Receiver(mode), who.nth);
        if let Some(link) = self.clients[who.at].links.last_mut() {
            link.is_waiting = true;
        }
        oracle.attach_for(link, path, Role::Receiver(mode), Some(session.clone()));
        let (namespace, path, session) = (namespace_of(path), path.into(), session.map(|id| (&*id).into()));
        batch.commands.push(Command::AcceptSession { link, namespace, path, mode, session });
    }

    /// A session that a client holds, or thinks so; now and then another.
    pub(super) fn held_session(&mut self, who: Actor) -> Arc<str> {
        let links = self.clients[who.at].links.iter();
        let held: Vec<_> = links.filter_map(|link| link.session.clone()).collect();
        match held.is_empty() || self.random.once_in(8) {
            true => self.some_session(),
            false => self.random.pick(&held).clone(),
        }
    }

    /// What the holder of a session asks for, and a list of all.
    pub(super) fn ask_session(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let path = match self.random.below(20) {
            0 => self.path(who.nth),
            1..7 => self.subscription_with_sessions(who.nth),
            _ if who.nth == 0 => SESSIONS.to_owned(),
            _ => self.subscription_with_sessions(who.nth),
        };
        let folded = path.to_lowercase();
        let session = self.held_session(who);
        let id: Box<str> = (&*session).into();
        let request = self.request(who, &path);
        let namespace = namespace_of(&path);
        match self.random.below(10) {
            0..4 => {
                oracle.ask(request, Question::RenewSession(folded, session));
                let path = path.into();
                batch.commands.push(Command::RenewSession { request, namespace, path, session: id });
            }
            4..6 => {
                oracle.ask(request, Question::GetState(folded, session));
                let path = path.into();
                batch.commands.push(Command::GetSessionState { request, namespace, path, session: id });
            }
            6..9 => {
                let bytes: Option<Vec<u8>> = (!self.random.once_in(3)).then(|| {
                    let length = self.random.below(300);
                    (0..length).map(|_| self.random.number() as u8).collect()
                });
                let told = bytes.as_ref().map(|bytes| (hash_bytes(bytes), bytes.len() as u32));
                oracle.ask(request, Question::SetState(folded, session, told));
                let state = bytes.map(|bytes| batch.body(|out| out.extend_from_slice(&bytes)));
                let (path, session) = (path.into(), id);
                batch.commands.push(Command::SetSessionState { request, namespace, path, session, state });
            }
            _ => {
                oracle.ask(request, Question::Sessions(folded));
                let (path, since) = (path.into(), None);
                let (skip, top) = (self.random.below(3) as usize, self.random.between(1, 5) as usize);
                batch.commands.push(Command::ListSessions { request, namespace, path, since, skip, top });
            }
        }
    }
}
