//! Links that a client has detached without closing them while it has unsettled messages of theirs: what it says of these is
//! heard for a short while, and only then is its detach answered and the link forgotten. What is left then stays locked until
//! its lock ends (S-94).
//!
//! Such a link gets no more messages, and gives way at once to one that takes its handle, its name or its place.

use super::connection::ConnectionTask;
use super::large::Progress;
use crate::limits::LEAVING_GRACE;
use amqp::LinkKey;
use broker::Command;
use tokio::time::Instant;

impl<S> ConnectionTask<S> {
    pub(super) fn begin_leaving(&mut self, key: LinkKey) {
        let until = Instant::now() + LEAVING_GRACE;
        let Some(receiver) = self.receiver(key) else { return self.machine.end_leaving(key) };
        let unsent = std::mem::take(&mut receiver.waiting).len();
        (receiver.leaving_until, receiver.is_draining) = (Some(until), false);
        receiver.progress = Progress::default();
        self.waiting_deliveries -= unsent;
        self.leaving.insert((until, key));
        // The broker deals it nothing more, and a message of it may have kept others of its session waiting.
        let link = self.engine.link(key.0);
        self.batch.commands.push(Command::Credit { link, limit: 0, drain: false });
        self.service.unblock();
    }

    /// Ends the links that are leaving and have waited for long enough, or of which nothing is unsettled any more.
    pub(super) fn end_leavings(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_over = |(until, key): &&(Instant, LinkKey)| *until <= now || self.machine.has_settled(*key);
        let over: Vec<LinkKey> = self.leaving.iter().filter(is_over).map(|(_, key)| *key).collect();
        over.into_iter().for_each(|key| self.end_leaving(key));
    }

    /// Ends the links that are leaving and have this name, for their client attaches it again, and the one whose place
    /// was taken.
    pub(super) fn make_way(&mut self, name: &str, replaced: Option<LinkKey>) {
        let has_name = |key: &LinkKey| self.links.get(&key.0).is_some_and(|link| link.name == name);
        let named: Vec<LinkKey> = self.leaving.iter().map(|(_, key)| *key).filter(has_name).collect();
        named.into_iter().chain(replaced).for_each(|key| self.end_leaving(key));
    }

    fn end_leaving(&mut self, key: LinkKey) {
        self.machine.end_leaving(key);
        self.forget(key);
    }
}
