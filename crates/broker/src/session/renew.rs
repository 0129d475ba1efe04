//! The holder of a session renews its lock (S-142). The lock of a message outside of sessions is renewed in `queue/renew.rs`.

use crate::Broker;
use crate::decision::LocalContext;
use crate::effect::Answer;
use crate::ids::{ConnectionId, NamespaceId};
use crate::refusal::Refusal;

impl Broker {
    pub(crate) fn renew_session(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        session: &str,
        connection: ConnectionId,
        context: LocalContext,
    ) -> Result<Answer, Refusal> {
        let source = self.find_held(namespace, path, (session, connection), context)?;
        let until = context.now.after(self.queue_of(source).settings.lock_duration);
        self.volatile.renew_session(source.entity, session, until);
        Ok(Answer::SessionRenewed(until))
    }
}
