//! What the door remembers of each link, and how an attach becomes a question to the broker.

use super::address::{self, Node};
use super::arriving::Arriving;
use super::connection::ConnectionTask;
use super::deliver::Receiver;
use super::management::{Replies, Requests};
use super::session::{Unwanted, Wanted};
use super::settle::mode_of;
use crate::auth::{Demand, Denied};
use crate::limits::{
    BATCH_BYTES, CONNECTION_DELIVERIES_AHEAD, DELIVERIES_AHEAD, GREEDY_LINKS, LOW_MEMORY_DELIVERIES_AHEAD,
    REQUEST_CREDIT, SENDER_CREDIT,
};
use amqp::{AnyTarget, Attach, AttachReply, LinkKey, Role, SessionKey};
use broker::{AcceptedSession, Command, Refusal, TransactionId};
use message::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The largest batch that a sender may put into one delivery, besides the limit of its entity.
const BATCH_SIZE_PROPERTY: &str = "com.microsoft:max-message-batch-size";

/// Where the messages of a link go on to.
const DESTINATION_PROPERTY: &str = "com.microsoft:transfer-destination-address";

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionKey,
    pub(super) name: String,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Requests to a node of ours. What came of an unfinished one.
    CbsRequests {
        partial: Vec<u8>,
    },
    /// Answers of a node of ours, to `address`.
    CbsReplies {
        address: Option<String>,
        waiting: VecDeque<Vec<u8>>,
    },
    ManagementRequests(Box<Requests>),
    ManagementReplies(Box<Replies>),
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
    /// Declares and discharges transactions. What came of an unfinished request.
    Coordinator {
        partial: Vec<u8>,
    },
}

impl Kind {
    /// What came of a request that is put together here.
    pub(super) fn partial_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Kind::CbsRequests { partial } | Kind::Coordinator { partial } => Some(partial),
            Kind::ManagementRequests(requests) => Some(&mut requests.partial),
            Kind::Sender(_) | Kind::CbsReplies { .. } | Kind::ManagementReplies(_) | Kind::Receiver(_) => {
                None
            }
        }
    }
}

/// What the door knows of a link that the client sends on.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) path: String,
    /// The address that its messages go on to, if they do, as the client wrote it.
    pub(super) destination: Option<Box<str>>,
    /// Whether the broker looks for duplicates. Until it has said so, it may.
    pub(super) wants_ids: bool,
    pub(super) arriving: Arriving,
    /// What the delivery that is arriving is part of.
    pub(super) transaction: Option<TransactionId>,
}

impl Kind {
    pub(super) fn path(&self) -> &str {
        match self {
            Kind::CbsRequests { .. } | Kind::CbsReplies { .. } => address::CBS,
            Kind::ManagementRequests(requests) => &requests.path,
            Kind::ManagementReplies(replies) => &replies.path,
            Kind::Sender(sender) => &sender.path,
            Kind::Receiver(receiver) => &receiver.path,
            Kind::Coordinator { .. } => "",
        }
    }
}

impl<S> ConnectionTask<S> {
    pub(super) fn attach(&mut self, key: LinkKey, session: SessionKey, attach: &Attach) {
        if !self.has_room_for(0) {
            let error = self.too_much("links");
            return self.end_greedy(key, &error);
        }
        let address = match (&attach.role, &attach.target, &attach.source) {
            (Role::Sender, Some(AnyTarget::Coordinator(_)), _) => {
                let (name, kind) = (attach.name.clone(), self.attach_coordinator(key));
                self.links.insert(key.0, Link { session, name, kind });
                return;
            }
            (Role::Sender, Some(AnyTarget::Target(target)), _) => target.address.as_deref(),
            (Role::Receiver, _, Some(source)) => source.address.as_deref(),
            _ => None,
        };
        let path = address::path(address.unwrap_or(""));
        let kind = match address::node(&path) {
            Node::Cbs => self.attach_cbs(key, attach),
            Node::Management(entity) => self.attach_management(key, entity, attach),
            Node::SubQueue(_) | Node::Entity(_) => self.attach_entity(key, &path, attach),
        };
        match kind {
            Ok(kind) => {
                self.receivers += u64::from(matches!(kind, Kind::Receiver(_)));
                let name = attach.name.clone();
                self.links.insert(key.0, Link { session, name, kind });
            }
            Err(error) => self.machine.refuse(key, &error),
        }
    }

    fn attach_cbs(&mut self, key: LinkKey, attach: &Attach) -> Result<Kind, amqp::Error> {
        let reply = AttachReply { untracked: true, ..AttachReply::default() };
        match attach.role {
            Role::Sender => {
                let max_message_size = Some(crate::limits::CBS_REQUEST_BYTES);
                self.machine.accept(key, AttachReply { max_message_size, ..reply });
                self.machine.grant(key, REQUEST_CREDIT);
                Ok(Kind::CbsRequests { partial: Vec::new() })
            }
            Role::Receiver => {
                self.machine.accept(key, reply);
                let address = attach.target.as_ref().and_then(|target| target.address()).map(str::to_owned);
                Ok(Kind::CbsReplies { address, waiting: VecDeque::new() })
            }
        }
    }

    fn attach_entity(&mut self, key: LinkKey, path: &str, attach: &Attach) -> Result<Kind, amqp::Error> {
        let (link, namespace) = (self.engine.link(key.0), self.namespace.id);
        let mode = mode_of(attach);
        let (command, kind) = match attach.role {
            Role::Sender => {
                let arriving = Arriving::new(Arc::clone(&self.state.unfinished));
                let destination = self.destination_of(attach, path)?;
                let path = Box::<str>::from(path);
                let command = match &destination {
                    None => Command::AttachSender { link, namespace, path: path.clone() },
                    Some(address) => {
                        let destination = address::path(address).into();
                        Command::AttachVia { link, namespace, path: path.clone(), destination }
                    }
                };
                let sender =
                    Sender { path: path.into(), destination, wants_ids: true, arriving, transaction: None };
                (command, Kind::Sender(Box::new(sender)))
            }
            Role::Receiver => {
                let session = Wanted::of(attach).map_err(|why| self.unwanted(why, path))?;
                let command = match &session {
                    None => Command::AttachReceiver { link, namespace, path: path.into(), mode },
                    Some(Wanted { id, .. }) => {
                        let (path, session) = (path.into(), id.clone());
                        Command::AcceptSession { link, namespace, path, mode, session }
                    }
                };
                let receiver = Receiver { path: path.into(), session, ..Receiver::default() };
                (command, Kind::Receiver(Box::new(receiver)))
            }
        };
        self.check_demand(&Demand::of(&command)).map_err(|denied| self.origin.denied(denied, path))?;
        if matches!(command, Command::AcceptSession { session: None, .. }) {
            self.await_session(key, attach);
        }
        self.batch.commands.push(command);
        Ok(kind)
    }

    /// What a client is told that has the server hold more than it may.
    pub(super) fn too_much(&self, what: &str) -> amqp::Error {
        let text = format!("The server holds too much for this client or for all to hold more {what}.");
        self.origin.error(amqp::condition::RESOURCE_LIMIT_EXCEEDED, &text, "")
    }

    /// Ends a link whose client has the server hold more than it may.
    pub(super) fn end_greedy(&mut self, key: LinkKey, error: &amqp::Error) {
        self.forget(key);
        self.machine.refuse(key, error);
        self.machine.detach(key, Some(error));
        self.greedy_links += 1;
        if self.greedy_links > GREEDY_LINKS && !self.has_parted {
            self.part("The connection has the server hold more than it may, again and again.");
        }
    }

    /// Where the messages of a sender go on to, if it says so.
    fn destination_of(&self, attach: &Attach, path: &str) -> Result<Option<Box<str>>, amqp::Error> {
        match attach.properties.get(DESTINATION_PROPERTY) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(address)) => Ok(Some(Box::from(&**address))),
            Some(_) => {
                let text = "The address of a transfer's destination must be a text.";
                Err(self.origin.error(super::condition::ARGUMENT, text, path))
            }
        }
    }

    fn unwanted(&self, why: Unwanted, path: &str) -> amqp::Error {
        match why {
            Unwanted::NotImplemented => self.origin.not_implemented("A session that is not exclusive", path),
            Unwanted::WrongType => self.origin.error(
                super::condition::ARGUMENT,
                "The session filter must be a text or null.",
                path,
            ),
        }
    }

    /// Whether a claim of this connection allows what is demanded.
    pub(super) fn check_demand(&self, demand: &Demand<'_>) -> Result<(), Denied> {
        demand.check(&self.claims, self.state.now())
    }

    /// The broker has taken the link: the reply and the first credit go out in one write.
    pub(super) fn attached(
        &mut self,
        key: LinkKey,
        max_message_bytes: u64,
        wants_ids: bool,
        session: Option<Box<AcceptedSession>>,
    ) {
        let Some(link) = self.links.get_mut(&key.0) else { return };
        match &mut link.kind {
            Kind::Sender(sender) => {
                sender.wants_ids = wants_ids;
                let size = Value::Ulong(max_message_bytes.min(BATCH_BYTES as u64));
                let mut properties = vec![(Value::Symbol(BATCH_SIZE_PROPERTY.into()), size)];
                if let Some(destination) = &sender.destination {
                    let address = Value::String(destination.as_ref().into());
                    properties.push((Value::Symbol(DESTINATION_PROPERTY.into()), address));
                }
                let properties = Value::Map(properties);
                let max_message_size = Some(max_message_bytes);
                self.machine
                    .accept(key, AttachReply { max_message_size, properties, ..AttachReply::default() });
                self.machine.grant(key, SENDER_CREDIT);
            }
            Kind::Receiver(_) => self.receiver_attached(key, session),
            Kind::Coordinator { .. } => self.coordinator_attached(key),
            Kind::CbsRequests { .. }
            | Kind::CbsReplies { .. }
            | Kind::ManagementRequests(_)
            | Kind::ManagementReplies(_) => {}
        }
    }

    /// The broker has refused the link, or its entity is gone.
    pub(super) fn detached(&mut self, key: LinkKey, refusal: &Refusal) {
        let Some(link) = self.remove(key) else { return };
        let error = self.origin.refusal(refusal, link.kind.path());
        // Whichever of the two fits the state of the link; the other does nothing.
        self.machine.refuse(key, &error);
        self.machine.detach(key, Some(&error));
    }

    /// The client is done with a link.
    pub(super) fn forget(&mut self, key: LinkKey) {
        if let Some(Link { kind: Kind::Sender(_) | Kind::Receiver(_) | Kind::Coordinator { .. }, .. }) =
            self.remove(key)
        {
            self.batch.commands.push(Command::Detach { link: self.engine.link(key.0) });
        }
    }

    /// Forgets a link and all that is held for it.
    pub(super) fn remove(&mut self, key: LinkKey) -> Option<Link> {
        let link = self.links.remove(&key.0)?;
        match &link.kind {
            // Nobody will be told of its parts any more.
            Kind::Sender(sender) => self.unstored_bytes -= sender.arriving.unstored_bytes(),
            // A message of it may have kept others of its session waiting.
            Kind::Receiver(receiver) => {
                self.waiting_deliveries -= receiver.waiting.len();
                self.receivers -= 1;
                if let Some(until) = receiver.leaving_until {
                    self.leaving.remove(&(until, key));
                }
                self.stop_waiting(key);
                self.service.unblock();
            }
            Kind::CbsReplies { waiting, .. } => {
                self.replies_bytes -= waiting.iter().map(Vec::len).sum::<usize>();
            }
            Kind::ManagementReplies(replies) => self.replies_bytes -= replies.waiting_bytes(),
            Kind::Coordinator { .. } | Kind::CbsRequests { .. } | Kind::ManagementRequests(_) => {}
        }
        Some(link)
    }

    /// The client wants more, or less, or what there is now.
    pub(super) fn flow(&mut self, key: LinkKey, drain: bool) {
        match self.links.get(&key.0).map(|link| &link.kind) {
            Some(Kind::CbsReplies { .. }) => self.send_replies(key),
            Some(Kind::ManagementReplies(_)) => self.send_management(key),
            _ => return self.pass_credit(key, drain),
        }
        if drain {
            self.machine.drained(key);
        }
    }
    /// Tells the broker how far it may deliver: what the client wants, clipped to what may be on its way.
    pub(super) fn pass_credit(&mut self, key: LinkKey, drain: bool) {
        let most = self.deliveries_ahead();
        let ahead = u64::from(self.machine.credit_left(key)).min(most);
        let Some(receiver) = self.receiver(key) else { return };
        receiver.limit = receiver.sent + ahead;
        let limit = receiver.limit;
        let link = self.engine.link(key.0);
        self.batch.commands.push(Command::Credit { link, limit, drain });
    }

    /// After sending: once half of what may be on its way has gone out, the broker may deliver on.
    pub(super) fn renew_credit(&mut self, key: LinkKey) {
        let most = self.deliveries_ahead();
        let Some(receiver) = self.receiver(key) else { return };
        let ahead = receiver.limit.saturating_sub(receiver.sent);
        if ahead <= most / 2 && u64::from(self.machine.credit_left(key)) > ahead {
            self.pass_credit(key, false);
        }
    }

    /// Messages that may be on their way to each link: its share of what may be on its way to all.
    fn deliveries_ahead(&mut self) -> u64 {
        let most =
            if self.has_room_for(0) { CONNECTION_DELIVERIES_AHEAD } else { LOW_MEMORY_DELIVERIES_AHEAD };
        (most / self.receivers.max(1)).clamp(1, DELIVERIES_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::idle_task;
    use super::*;
    use crate::http::tests::engine_in_memory;
    use message::codec::{write_binary, write_descriptor};
    use message::sections::section;
    use tokio::time::Instant;

    /// A delivery of which a part was handed over to be stored, and has not ended.
    fn unfinished<S>(task: &mut ConnectionTask<S>) -> Kind {
        let mut arriving = Arriving::new(Arc::clone(&task.state.unfinished));
        let mut front = Vec::new();
        write_descriptor(&mut front, section::DATA.into());
        write_binary(&mut front, &vec![0; 2 * broker::limits::BODY_PART_BYTES as usize]);
        arriving.add(&front, 0, &mut task.batch, |_, _| {});
        task.unstored_bytes += arriving.unstored_bytes();
        let (path, destination, transaction) = (String::new(), None, None);
        Kind::Sender(Box::new(Sender { path, destination, wants_ids: true, arriving, transaction }))
    }

    /// A receiver that waits for a session.
    fn waiting<S>(task: &mut ConnectionTask<S>, key: LinkKey) -> Kind {
        task.receivers += 1;
        task.session_waits.insert((Instant::now(), key));
        Kind::Receiver(Box::default())
    }

    /// A link with an answer that its client has not taken.
    fn untaken<S>(task: &mut ConnectionTask<S>) -> Kind {
        let waiting = VecDeque::from([vec![0; 100]]);
        task.replies_bytes += 100;
        Kind::CbsReplies { address: None, waiting }
    }

    #[test]
    fn what_is_held_for_a_link_is_given_back_when_it_goes_and_that_of_others_is_not() {
        // P7: a link may go at any time, while its parts are not stored, its answers not taken, its session not there.
        let engine = engine_in_memory();
        let mut task = idle_task(&engine);
        let held = |task: &ConnectionTask<_>| {
            [task.unstored_bytes, task.replies_bytes, task.receivers as usize, task.session_waits.len()]
        };
        let mut before = vec![held(&task)];
        let keys = [0, 1, 2, 3, 4, 5].map(LinkKey);
        for key in keys {
            let kind = match key.0 % 3 {
                0 => unfinished(&mut task),
                1 => untaken(&mut task),
                _ => waiting(&mut task, key),
            };
            task.links.insert(key.0, Link { session: SessionKey(0), name: String::new(), kind });
            assert_ne!(before.last(), Some(&held(&task)), "it is counted");
            before.push(held(&task));
        }
        before.pop();
        for key in keys.into_iter().rev() {
            assert!(task.remove(key).is_some());
            assert_eq!(Some(held(&task)), before.pop(), "{key:?}");
        }
        drop(task);
        engine.stop().expect("nothing is under way");
    }
}
