//! What clients do: a few connections with links that come and go, sending, receiving and settling as they please.
//!
//! Clients need not behave: they use tokens that are not theirs, links that are gone and queues that never were. They
//! do keep to what the doors guarantee: ids are never reused, and a message's bytes are there.

mod ask;
mod body;
mod client;
mod clock;
mod duplicate;
mod forward;
mod receive;
mod send;
mod session;
mod topic;
mod transaction;

pub use body::{Body, digest, message_number};

use crate::PARTITIONS;
use crate::hash::hash_bytes;
use crate::machine::Machine;
use crate::oracle::{Oracle, OracleMailbox, Role};
use crate::random::Random;
use broker::{Answer, Command, ConnectionId, LinkId, NamespaceId, Notice, Number, ReceiveMode, Tier};
use client::{Client, Held};
use engine::{Batch, Outgoing, Sent, Work};
use journal::Place;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The queue that requires sessions.
pub const SESSIONS: &str = "sessions";

/// Where most queues are, and all topics.
const NAMESPACE: NamespaceId = NamespaceId(0);

/// Queues of a second namespace have paths that begin so. Its time goes its own way, and nothing leads from one namespace to
/// the other.
const SECOND: &str = "second/";

/// The namespace of a path.
pub fn namespace_of(path: &str) -> NamespaceId {
    let is_second = path.get(..SECOND.len()).is_some_and(|start| start.eq_ignore_ascii_case(SECOND));
    NamespaceId(u32::from(is_second))
}

/// Clients at once. Enough that they compete, few enough that they meet.
const CLIENTS: usize = 4;
const LINKS: usize = 8;

/// Queues that may exist in each partition, besides one that is `disabled`. `tiny` is small and fills up, `relay` and `bounce` mostly forward, and
/// `once` and `single` mostly look for duplicates.
const PATHS: [&[&str]; PARTITIONS] = [
    &["orders", "Invoices/eu", "tiny", "once", "relay", SESSIONS, SESSIONS, "second/jobs"],
    &["remote", "far/away", "single", "bounce", "second/mail"],
];

#[derive(Debug)]
pub struct Workload {
    random: Random,
    clients: Vec<Client>,
    /// Locks that were handed out, on every link; some are used again long after.
    held: [Vec<Held>; PARTITIONS],
    /// Numbers of messages that were set aside or scheduled, with the path of their queue.
    deferred: [Vec<(String, Number)>; PARTITIONS],
    scheduled: [Vec<(String, Number)>; PARTITIONS],
    /// Ids that messages to a queue had, some of them long ago.
    ids: BTreeMap<String, Vec<u64>>,
    /// What was said and has not reached the server yet.
    said: [VecDeque<Work>; PARTITIONS],
    connections: u32,
    /// Whether this run sends large messages, and whether receivers have much to say about theirs. Both cost more time
    /// than anything else.
    is_heavy: bool,
    is_wordy: bool,
    has_begun: [bool; PARTITIONS],
    pub commands: u64,
    pub tier: Tier,
    /// Whether this run reaches for what only many can reach.
    is_crowded: bool,
    /// Whether a client of this run will declare more transactions than it may.
    declares_too_many: bool,
    /// The link on which it is about to.
    too_many: Option<LinkId>,
    /// What is said now is part of a transaction.
    is_within: bool,
}

/// Who does something, and in which partition.
#[derive(Debug, Clone, Copy)]
struct Actor {
    at: usize,
    nth: usize,
}

impl Workload {
    pub fn new(mut random: Random) -> Workload {
        let (is_heavy, is_wordy) = (random.once_in(40), random.once_in(8));
        let tier = *random.pick(&[
            Tier::Unlimited,
            Tier::Unlimited,
            Tier::Unlimited,
            Tier::Premium,
            Tier::Standard,
            Tier::Basic,
        ]);
        let is_crowded = random.once_in(40) && tier != Tier::Unlimited;
        let declares_too_many = random.once_in(30) && tier != Tier::Basic;
        Workload {
            random,
            clients: Vec::new(),
            held: Default::default(),
            deferred: Default::default(),
            scheduled: Default::default(),
            ids: BTreeMap::new(),
            said: Default::default(),
            connections: 0,
            is_heavy,
            is_wordy,
            has_begun: [false; PARTITIONS],
            commands: 0,
            tier,
            is_crowded,
            declares_too_many,
            too_many: None,
            is_within: false,
        }
    }

    /// Everybody is gone, with the process, and so is what they were about to say.
    pub fn disconnect_all(&mut self) {
        self.clients.clear();
        self.said.iter_mut().for_each(VecDeque::clear);
        // Some remember their tokens and try them again.
        self.held.iter_mut().for_each(|held| held.truncate(3));
    }

    pub fn connect(&mut self, machines: &[Machine; PARTITIONS]) {
        if self.clients.len() >= CLIENTS {
            return;
        }
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.clients.push(Client::new(connection));
        for (nth, machine) in machines.iter().enumerate() {
            machine.shared.lock().connected(connection);
            let mailbox = Arc::new(OracleMailbox { connection, shared: machine.shared.clone() });
            self.said[nth].push_back(Work::Connect { connection, mailbox });
        }
    }

    /// A client vanishes without a word.
    pub fn disconnect(&mut self, mut random: Random, machines: &[Machine; PARTITIONS]) {
        if self.clients.is_empty() {
            return;
        }
        let client = self.clients.remove(random.below(self.clients.len() as u64) as usize);
        for (nth, machine) in machines.iter().enumerate() {
            let mut oracle = machine.shared.lock();
            oracle.disconnected(client.id);
            oracle.coverage.fault("peer vanished");
            self.said[nth].push_back(Work::Disconnect { connection: client.id });
        }
    }

    /// Some client does something, which reaches the server with the next hand-over.
    pub fn act(&mut self, random: Random, machines: &[Machine; PARTITIONS]) {
        self.random = random;
        if self.clients.is_empty() {
            self.connect(machines);
        }
        let at = self.random.below(self.clients.len() as u64) as usize;
        let nth = usize::from(self.random.once_in(3));
        let who = Actor { at, nth };
        let mut oracle = machines[nth].shared.lock();
        if !std::mem::replace(&mut self.has_begun[nth], true) {
            // The first who comes makes the queues.
            let mut batch = Batch::default();
            self.name_second(who, &mut batch, &mut oracle);
            PATHS[nth].iter().for_each(|path| self.create_usual(who, path, &mut batch, &mut oracle));
            self.make_topics(who, &mut batch, &mut oracle);
            self.say(nth, batch);
            if self.is_crowded {
                self.crowd(who, &mut oracle);
            }
        }
        let mut batch = Batch::default();
        // A client that moves time says nothing else with it.
        let is_clock = self.random.once_in(90);
        if is_clock {
            self.ask_clock(who, &mut batch, &mut oracle);
        } else {
            for _ in 0..*self.random.pick(&[1, 1, 2, 3, 5]) {
                self.act_once(who, &mut batch, &mut oracle);
            }
        }
        oracle.tell(|| format!("said: {:?}", batch.commands));
        self.say(nth, batch);
        self.declare_too_many(who, &mut oracle);
    }

    fn say(&mut self, nth: usize, batch: Batch) {
        if !batch.is_empty() {
            self.commands += batch.commands.len() as u64;
            self.said[nth].push_back(Work::Batch(batch));
        }
    }

    /// What was said reaches the server; one whose disk does not answer only until it stops reading. Says whether
    /// that was all.
    pub fn hand_over(&mut self, nth: usize, machine: &Machine) -> bool {
        while machine.stalled == 0 || machine.has_room() {
            let Some(work) = self.said[nth].pop_front() else { return true };
            machine.put(work);
        }
        machine.shared.lock().coverage.fault("back-pressure");
        self.said[nth].is_empty()
    }

    fn act_once(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        if self.random.once_in(5) && (self.tier != Tier::Basic || self.random.once_in(40)) {
            return self.transact(who, batch, oracle);
        }
        match self.random.below(100) {
            0..9 => self.attach(who, batch, oracle),
            9..12 => self.detach(who, batch, oracle),
            12..40 => self.send(who, batch, oracle),
            40..60 => self.credit(who, batch, oracle),
            60..84 => self.settle(who, batch, oracle),
            _ => self.ask(who, batch, oracle),
        }
    }

    fn attach(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        if self.clients[who.at].links.len() >= LINKS {
            return;
        }
        let role = match self.random.below(8) {
            0..3 => Role::Sender,
            3..7 => Role::Receiver(ReceiveMode::PeekLock),
            _ => Role::Receiver(ReceiveMode::ReceiveAndDelete),
        };
        if role == Role::Sender && self.random.once_in(5) {
            return self.attach_via(who, batch, oracle);
        }
        let path = match self.random.below(20) {
            0 => "nowhere".to_owned(),
            1 => "disabled".to_owned(),
            2..5 => self.inbox(who.nth) + "/$DeadLetterQueue",
            5 => self.outbox(who.nth) + "/$Transfer/$DeadLetterQueue",
            _ if role == Role::Sender => self.outbox(who.nth),
            _ => self.inbox(who.nth),
        };
        let is_session = path.eq_ignore_ascii_case(SESSIONS) || topic::requires_session(&path);
        if let Role::Receiver(mode) = role
            && (is_session != self.random.once_in(20))
        {
            return self.accept(who, &path, mode, batch, oracle);
        }
        let link = self.clients[who.at].link(&path, role, who.nth);
        oracle.attach(link, &path, role);
        let namespace = namespace_of(&path);
        let path = path.into();
        batch.commands.push(match role {
            Role::Sender => Command::AttachSender { link, namespace, path },
            Role::Receiver(mode) => Command::AttachReceiver { link, namespace, path, mode },
            Role::Coordinator => Command::AttachCoordinator { link, namespace },
        });
    }

    /// A sender to one entity by way of another (S-114). Some destinations are closed, and some are nowhere.
    fn attach_via(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let path = self.first_outbox(who.nth);
        let destination = match self.random.below(10) {
            0 => "nowhere".to_owned(),
            1..4 => "disabled".to_owned(),
            _ => self.first_outbox(who.nth),
        };
        let link = self.clients[who.at].link(&path, Role::Sender, who.nth);
        if let Some(link) = self.clients[who.at].links.last_mut() {
            link.path.clone_from(&destination);
        }
        oracle.attach_via(link, &path, &destination);
        let (namespace, path, destination) = (NAMESPACE, path.into(), destination.into());
        batch.commands.push(Command::AttachVia { link, namespace, path, destination });
    }

    fn detach(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some(place) = self.pick_link(who, |_| true) else { return };
        let gone = self.clients[who.at].links.remove(place);
        self.clients[who.at].gone.push(gone.id);
        oracle.detach(gone.id);
        batch.commands.push(Command::Detach { link: gone.id });
    }

    /// A queue's path, in some spelling.
    fn path(&mut self, nth: usize) -> String {
        let path = *self.random.pick(PATHS[nth]);
        if self.random.once_in(10) { path.to_uppercase() } else { path.to_owned() }
    }

    /// Some link of a client in one role.
    fn pick_link(&mut self, who: Actor, is_it: impl Fn(&Role) -> bool) -> Option<usize> {
        let links = &self.clients[who.at].links;
        // Nothing of the second namespace is part of a transaction.
        let is_open = |path: &str| !self.is_within || namespace_of(path) == NAMESPACE;
        let fits = |place: &usize| {
            let link = &links[*place];
            link.nth == who.nth && is_it(&link.role) && is_open(&link.path)
        };
        let count = (0..links.len()).filter(fits).count() as u64;
        let chosen = if count > 0 { self.random.below(count) } else { return None };
        (0..links.len()).filter(fits).nth(chosen as usize)
    }

    /// Effects reach the clients. `may_fail` says whether a body may be unreadable by now.
    pub fn receive(
        &mut self,
        nth: usize,
        outgoing: Vec<Outgoing>,
        may_fail: impl Fn() -> bool,
        oracle: &mut Oracle,
    ) {
        for each in outgoing {
            match each {
                Outgoing::Deliver(sent) => self.take(nth, &sent, &may_fail, oracle),
                Outgoing::Notice(Notice::Detached { link, .. }) => {
                    if let Some(client) = self.client(link) {
                        client.links.retain(|other| other.id != link);
                        client.unanswered.retain(|(other, _)| *other != link);
                    }
                }
                Outgoing::Notice(Notice::Attached { link, session: Some(session), .. }) => {
                    let links = self.client(link).map(|client| &mut client.links);
                    if let Some(link) = links.and_then(|links| links.iter_mut().find(|each| each.id == link))
                    {
                        (link.is_waiting, link.session) = (false, Some(session.id.clone()));
                    }
                }
                Outgoing::Accepted { link, first, last } => {
                    (first..=last).for_each(|delivery| self.answered(link, delivery, oracle));
                }
                Outgoing::Notice(
                    Notice::Rejected { link, delivery, .. } | Notice::Staged { link, delivery, .. },
                ) => {
                    self.answered(link, delivery, oracle);
                }
                Outgoing::Notice(Notice::Declared { link, transaction, .. }) => {
                    self.declared(nth, link, transaction)
                }
                Outgoing::Answered { answer: Ok(answer), places, request } => {
                    let path = self
                        .client_of(request.connection)
                        .and_then(|client| client.asked.remove(&request.request));
                    self.told(nth, path, answer, &places, &may_fail, oracle);
                }
                _ => {}
            }
        }
    }

    fn client(&mut self, link: LinkId) -> Option<&mut Client> {
        self.client_of(link.connection)
    }

    fn client_of(&mut self, connection: ConnectionId) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.id == connection)
    }

    /// A question was answered: numbers are remembered, messages are read.
    fn told(
        &mut self,
        nth: usize,
        path: Option<String>,
        answer: Answer,
        places: &[Vec<Place>],
        may_fail: impl Fn() -> bool,
        oracle: &mut Oracle,
    ) {
        let Some(path) = path else { return };
        match answer {
            Answer::Scheduled(numbers) => {
                self.scheduled[nth].extend(numbers.into_iter().map(|number| (path.clone(), number)));
            }
            Answer::SessionState(Some(state)) => {
                let mut whole = Vec::new();
                match places.iter().flatten().try_for_each(|place| place.read_into(&mut whole)) {
                    Ok(()) => oracle.read_state(&state, hash_bytes(&whole), whole.len()),
                    Err(error) if !may_fail() => {
                        oracle.fail(format!("I1: a stored state cannot be read: {error}"));
                    }
                    Err(_) => {}
                }
            }
            Answer::Messages(messages) => {
                for (delivery, places) in messages.iter().zip(places) {
                    let (mut whole, mut overlay) = (Vec::new(), Vec::new());
                    let overlays = usize::from(delivery.stored_overlay().is_some());
                    let (parts, overlays) = places.split_at(places.len().saturating_sub(overlays));
                    let read = parts.iter().try_for_each(|place| place.read_into(&mut whole));
                    let read =
                        read.and_then(|()| overlays.iter().try_for_each(|each| each.read_into(&mut overlay)));
                    match read {
                        Ok(()) => {
                            oracle.read(delivery, hash_bytes(&whole), whole.len());
                            oracle.read_changes(delivery, &overlay);
                        }
                        Err(error) if !may_fail() => {
                            oracle.fail(format!("I1: a stored body cannot be read: {error}"));
                        }
                        Err(_) => continue,
                    }
                    if delivery.locked_until.is_some() {
                        let (token, number) = (delivery.token, delivery.number);
                        self.held[nth].push(Held { path: path.to_lowercase(), token, number });
                    }
                }
            }
            _ => {}
        }
    }

    /// A send was answered. Those to another partition may be answered before earlier ones (S-13).
    fn answered(&mut self, link: LinkId, delivery: u32, oracle: &mut Oracle) {
        let Some(client) = self.client(link) else { return };
        let Some(at) = client.unanswered.iter().position(|each| *each == (link, delivery)) else { return };
        client.unanswered.remove(at);
        if at > 0 {
            oracle.coverage.fault("completion out of order");
        }
    }

    /// A message reaches its receiver, who reads it.
    pub fn take(&mut self, nth: usize, sent: &Sent, may_fail: impl Fn() -> bool, oracle: &mut Oracle) {
        let (mut whole, mut overlay) = (Vec::new(), Vec::new());
        let read = sent.parts.iter().chain([&sent.place]).try_for_each(|place| place.read_into(&mut whole));
        let mut changes = sent.overlay.iter();
        match read.and_then(|()| changes.try_for_each(|place| place.read_into(&mut overlay))) {
            Ok(()) => {
                oracle.read(&sent.delivery, hash_bytes(&whole), whole.len());
                oracle.read_changes(&sent.delivery, &overlay);
                oracle.shown(&sent.delivery, &whole, &overlay);
            }
            Err(error) if !may_fail() => oracle.fail(format!("I1: a stored body cannot be read: {error}")),
            Err(_) => return,
        }
        let client = self.clients.iter_mut().find(|client| client.id == sent.link.connection);
        let link = client.and_then(|client| client.links.iter_mut().find(|link| link.id == sent.link));
        let Some(link) = link else { return };
        link.delivered += 1;
        if sent.mode == ReceiveMode::PeekLock {
            let (token, number) = (sent.delivery.token, sent.delivery.number);
            self.held[nth].push(Held { path: link.path.to_lowercase(), token, number });
        }
    }
}
