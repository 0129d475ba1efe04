//! The management node of an entity, `<entity>/$management`: requests on one link, answers on another.
//!
//! A request becomes one command of the broker, and the broker's answer one reply. Every request that can be read is
//! answered, what is unknown or wrong at once; nothing is ever answered by silence or by a detach. Rights are those of the
//! matching operation on a link and are looked at for each request, because claims come and go while links stay.

mod arguments;
mod cancel;
mod delete;
mod peek;
mod receive;
mod renew;
mod replies;
mod reply;
mod rules;
mod schedule;
mod session;
mod status;
mod update;

pub(crate) use arguments::{token_of_uuid, uuid_of_token};
pub use replies::LargeReplies;
pub(super) use replies::{PendingReplies, Replies};

use super::cbs::{LONG_ID, Question, read_request};
use super::connection::ConnectionTask;
use super::link::{Kind, Link};
use super::transaction::within;
use crate::auth::{Demand, Right};
use crate::limits::{
    ANSWERED_MESSAGE_COST, MANAGEMENT_REQUEST_BYTES, REQUEST_CREDIT, RULES_ANSWER_BYTES, SESSION_ID_COST,
    TRACKING_BYTES,
};
use amqp::{Attach, AttachReply, LinkKey, Role};
use arguments::{Arguments, Failure};
use broker::limits::{BROWSE_MESSAGES, SESSIONS_PAGE};
use broker::{Answer, Command, NamespaceId, Refusal, RequestId, TransactionId};
use engine::Batch;
use journal::Place;
use message::Value;
use replies::UnsentReply;
use reply::Reply;

/// What the door knows of a link that brings requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// The entity, without the node's own suffix.
    pub(super) path: String,
    /// What came of an unfinished request.
    pub(super) partial: Vec<u8>,
    /// What the request that is arriving is part of.
    pub(super) transaction: Option<TransactionId>,
}

/// A request that waits for the broker.
#[derive(Debug)]
pub(super) struct Asked {
    link: LinkKey,
    reply: Reply,
    path: Box<str>,
    verb: Verb,
    /// What the broker's answer may hold.
    answer_bytes: usize,
}

impl Asked {
    pub(super) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }
}

/// What the answer to a command may hold before its bytes are read.
fn answer_bytes(command: &Command) -> usize {
    let message = ANSWERED_MESSAGE_COST;
    match command {
        Command::Within { command, .. } => answer_bytes(command),
        Command::Browse { most, .. } => (*most as usize).min(BROWSE_MESSAGES) * message,
        Command::ReceiveDeferred { numbers, .. } => numbers.len() * message,
        Command::ListSessions { top, .. } => (*top).min(SESSIONS_PAGE) * SESSION_ID_COST,
        Command::Manage { task, .. } if matches!(**task, broker::Task::ListRules { .. }) => {
            RULES_ANSWER_BYTES
        }
        _ => 0,
    }
}

/// What was asked, as far as the reply depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Peek {
        omits_body: bool,
    },
    Schedule,
    Cancel,
    Renew,
    Receive,
    Update,
    Delete,
    Rules,
    /// Something about a session whose reply says it all.
    Session,
    GetState,
    ListSessions {
        skip: usize,
    },
}

/// What a verb needs to become a command.
struct Asking<'a> {
    request: RequestId,
    namespace: NamespaceId,
    path: &'a str,
    /// The session that is named, or whose holder asks.
    session: Option<Box<str>>,
    arguments: Arguments<'a>,
    batch: &'a mut Batch,
}

const NOT_JOINED: &str = "This operation cannot be part of a transaction.";

/// A request as a part of a transaction, if it came as one (S-210). What only looks or receives takes no part; what would
/// change something is not done beside it.
fn joined(transaction: Option<TransactionId>, command: Command) -> Result<Command, Failure> {
    Ok(match &command {
        Command::Schedule { .. } | Command::SettleTokens { .. } | Command::RenewLocks { .. } => {
            within(transaction, command)
        }
        Command::CancelScheduled { .. }
        | Command::SetSessionState { .. }
        | Command::DeleteMessages { .. }
        | Command::Manage { .. }
            if transaction.is_some() =>
        {
            return Err(Failure::Refused(Refusal::NotAllowed(NOT_JOINED)));
        }
        _ => command,
    })
}

impl<S> ConnectionTask<S> {
    /// A node is open to every client with some right on its entity; each request is looked at again.
    pub(super) fn attach_management(
        &mut self,
        key: LinkKey,
        path: &str,
        attach: &Attach,
    ) -> Result<Kind, amqp::Error> {
        let may = |right| self.check_demand(&Demand::Right(right, path.into()));
        may(Right::Listen)
            .or_else(|_| may(Right::Send))
            .map_err(|denied| self.origin.denied(denied, path))?;
        let reply = AttachReply { untracked: true, ..AttachReply::default() };
        let path = path.to_owned();
        match attach.role {
            Role::Sender => {
                let max_message_size = Some(MANAGEMENT_REQUEST_BYTES);
                self.machine.accept(key, AttachReply { max_message_size, ..reply });
                self.machine.grant(key, REQUEST_CREDIT);
                Ok(Kind::ManagementRequests(Box::new(Requests {
                    path,
                    partial: Vec::new(),
                    transaction: None,
                })))
            }
            Role::Receiver => {
                self.machine.accept(key, reply);
                let address = attach.target.as_ref().and_then(|target| target.address()).map(str::to_owned);
                Ok(Kind::ManagementReplies(Box::new(Replies::new(path, address))))
            }
        }
    }

    /// A whole request has come on a link.
    pub(super) fn manage(&mut self, key: LinkKey, payload: &[u8]) {
        let transaction = self.take_transaction(key);
        let Some(mut request) = read_request(payload, message::limits::VALUE_NODES) else {
            return tracing::debug!("a request to a management node cannot be read");
        };
        let Some(Link { session, kind: Kind::ManagementRequests(requests), .. }) = self.links.get(&key.0)
        else {
            return;
        };
        let (session, path) = (*session, Box::<str>::from(&*requests.path));
        let Some(link) = self.management_replies(request.reply_to.as_deref(), session, &path) else {
            return tracing::debug!("a request to a management node names no link to answer on");
        };
        let correlation = ConnectionTask::<S>::correlation(&mut request);
        let tracking = request.application.get("com.microsoft:tracking-id").and_then(Value::as_str);
        let tracking = tracking.filter(|text| text.len() <= TRACKING_BYTES).map(Box::from);
        let correlation = match correlation {
            Ok(correlation) => correlation,
            Err(none) => {
                let reply = Reply { correlation: none, tracking };
                let error = self.origin.error(super::condition::ARGUMENT, LONG_ID, &path);
                return self
                    .reply_with(link, UnsentReply::Encoded(reply.failed(status::BAD_REQUEST, &error)));
            }
        };
        let reply = Reply { correlation, tracking };
        let operation = request.application.get("operation").and_then(Value::as_str).unwrap_or("");
        let arguments = Arguments(&request.body);
        let (messages, bytes) = (self.batch.messages.len(), self.batch.bodies.len());
        let asks = request.application.get("associated-link-name").and_then(Value::as_str);
        let session = arguments.text("session-id").map(Box::from);
        let session = session.or_else(|| asks.and_then(|name| self.session_of_link(name, &path)));
        let asked = self.operation(operation, &path, session, arguments);
        match asked.and_then(|(verb, command)| Ok((verb, joined(transaction, command)?))) {
            Ok((verb, command)) => {
                let answer_bytes = answer_bytes(&command);
                let asked = Asked { link, reply, path, verb, answer_bytes };
                self.question(Question::Management(Box::new(asked)));
                self.batch.extra_bytes += command.held_bytes();
                self.batch.commands.push(command);
            }
            Err(failure) => {
                self.batch.truncate(messages, bytes);
                // A message that was to be scheduled may not be one.
                if let Some(transaction) = transaction {
                    let link = self.engine.link(key.0);
                    self.batch.commands.push(Command::Spoil { link, transaction });
                }
                let error = failure.error(&self.origin, &path);
                self.reply_with(link, UnsentReply::Encoded(reply.failed(failure.status(), &error)));
            }
        }
    }

    fn operation(
        &mut self,
        operation: &str,
        path: &str,
        session: Option<Box<str>>,
        arguments: Arguments<'_>,
    ) -> Result<(Verb, Command), Failure> {
        let request = self.engine.request(self.next_question);
        let (namespace, batch) = (self.namespace.id, &mut self.batch);
        let asking = Asking { request, namespace, path, session, arguments, batch };
        let (verb, command) = match operation.strip_prefix("com.microsoft:") {
            Some("peek-message") => peek::command(&asking),
            Some("schedule-message") => schedule::command(asking),
            Some("cancel-scheduled-message") => cancel::command(&asking),
            Some("renew-lock") => renew::command(&asking),
            Some("receive-by-sequence-number") => receive::command(&asking),
            Some("update-disposition") => update::command(&asking),
            Some("batch-delete-messages") => delete::command(&asking),
            Some("add-rule") => rules::add(&asking),
            Some("remove-rule") => rules::remove(&asking),
            Some("enumerate-rules") => rules::list(&asking),
            Some("renew-session-lock") => session::renew(&asking),
            Some("get-session-state") => session::get_state(&asking),
            Some("set-session-state") => session::set_state(asking),
            Some("get-message-sessions") => session::list(&asking),
            _ => Err(Failure::Unknown(operation.into())),
        }?;
        self.check_demand(&Demand::of(&command)).map_err(Failure::Denied)?;
        Ok((verb, command))
    }

    /// The broker has answered.
    pub(super) fn managed(&mut self, asked: Asked, answer: Result<Answer, Refusal>, places: Vec<Vec<Place>>) {
        let Asked { link, reply, path, verb, .. } = asked;
        let waiting = match answer {
            Ok(Answer::Messages(messages)) if messages.is_empty() => UnsentReply::Encoded(reply.empty()),
            Ok(Answer::Messages(messages)) => {
                let found = messages.into_iter().zip(places).collect();
                UnsentReply::Messages(Box::new(replies::Messages::new(reply, verb, found)))
            }
            Ok(Answer::Scheduled(numbers)) => UnsentReply::Encoded(schedule::reply(&reply, &numbers)),
            Ok(Answer::Renewed(until)) => UnsentReply::Encoded(renew::reply(&reply, &until)),
            Ok(Answer::SessionState(None)) => UnsentReply::Encoded(session::no_state(&reply)),
            Ok(Answer::SessionState(Some(state))) => {
                let found = vec![*state].into_iter().zip(places).collect();
                UnsentReply::Messages(Box::new(replies::Messages::new(reply, verb, found)))
            }
            Ok(Answer::SessionRenewed(until)) => UnsentReply::Encoded(session::renewed(&reply, until)),
            Ok(Answer::Sessions(sessions)) => UnsentReply::Encoded(session::listed(&reply, verb, &sessions)),
            Ok(Answer::Rules(rules)) => UnsentReply::Encoded(rules::listed(&reply, &rules)),
            Ok(Answer::MessagesDeleted(0)) => UnsentReply::Encoded(reply.empty()),
            Ok(Answer::MessagesDeleted(count)) => UnsentReply::Encoded(delete::reply(&reply, count)),
            Ok(_) => UnsentReply::Encoded(reply.done()),
            Err(refusal) => {
                let error = self.origin.refusal(&refusal, &path);
                UnsentReply::Encoded(reply.failed(status::of_refusal(&refusal), &error))
            }
        };
        self.reply_with(link, waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_may_hold_is_counted_with_its_question() {
        // W-34
        let browse = |most| Command::Browse {
            request: RequestId::default(),
            namespace: NamespaceId(0),
            path: "q".into(),
            from: broker::Number(0),
            most,
            session: None,
        };
        assert!(ANSWERED_MESSAGE_COST >= size_of::<(broker::Delivery, [Place; 2])>());
        assert_eq!(answer_bytes(&browse(u32::MAX)), BROWSE_MESSAGES * ANSWERED_MESSAGE_COST);
        assert_eq!(answer_bytes(&browse(u32::MAX)), answer_bytes(&browse(1_000)));
        assert!(answer_bytes(&browse(1_000)) < crate::limits::QUESTIONS_BYTES, "one may always be asked");
        let (transaction, command) = (TransactionId(1), Box::new(browse(7)));
        assert_eq!(answer_bytes(&Command::Within { transaction, command }), answer_bytes(&browse(7)));
        let held = |answer_bytes| {
            let reply = Reply { correlation: Value::Null, tracking: None };
            let (link, path, verb) = (LinkKey(0), "q".into(), Verb::Schedule);
            Question::Management(Box::new(Asked { link, reply, path, verb, answer_bytes })).held_bytes()
        };
        assert_eq!(held(answer_bytes(&browse(7))) - held(0), 7 * ANSWERED_MESSAGE_COST);
    }
}
