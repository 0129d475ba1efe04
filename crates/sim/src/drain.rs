//! The end of a run: on a disk that works and with all the time that is needed, everything that is left is received
//! (also from dead-letter queues, by number, and after its schedule) and completed. The oracle looks whether it was all.

use crate::machine::{Alive, Machine};
use crate::oracle::forward::forwards;
use crate::oracle::ledger::{Kind, Present, Queue, SUB_QUEUES, path_of};
use crate::oracle::{Oracle, OracleMailbox, Question, Role};
use crate::workload::{Workload, namespace_of};
use crate::{PARTITIONS, Run};
use broker::topic::settings::SubscriptionSettings;
use broker::{
    Command, ConnectionId, LinkId, Outcome, QueueSettings, ReceiveMode, RequestId, State, SubQueue, Task,
};
use engine::{Batch, Outgoing, Work};
use std::sync::Arc;

const DRAINING: ConnectionId = ConnectionId(u32::MAX);

/// Links that accept sessions are numbered from here, beyond those of queues.
const SESSION_LINKS: u32 = 1 << 20;

/// Longer than any message is scheduled ahead.
const SCHEDULE_MS: i64 = 2_000_000;

impl Run<'_> {
    pub(crate) fn drain(&mut self) {
        self.end();
        for nth in 0..PARTITIONS {
            self.machines[nth].start_last();
            self.drain_one(nth);
        }
    }

    fn drain_one(&mut self, nth: usize) {
        let machine = &mut self.machines[nth];
        let shared = machine.shared.clone();
        let mailbox = Arc::new(OracleMailbox { connection: DRAINING, shared: shared.clone() });
        shared.lock().connected(DRAINING);
        machine.put(Work::Connect { connection: DRAINING, mailbox });
        let batch = attach_where(machine, |queue, sub| !forwards(&queue.settings, sub));
        machine.put(Work::Batch(batch));
        // Owner time may run at half the pace of the world's.
        for elapsed in [0, SCHEDULE_MS, SCHEDULE_MS] {
            self.machines[nth].clock.pass(elapsed);
            self.machines[nth].put(Work::Batch(accept_everywhere(&mut shared.lock())));
            if elapsed > 0 {
                self.machines[nth].put(Work::Batch(ask_for_deferred(&mut shared.lock())));
            }
            self.drain_now(nth);
        }
        self.drain_sources(nth);
        self.machines[nth].shared.lock().end();
    }

    /// Receives what has no way out of a queue that forwards: what it sets aside, and what its destination cannot take.
    fn drain_sources(&mut self, nth: usize) {
        let machine = &mut self.machines[nth];
        let (batch, sources) = stop_forwarding(&mut machine.shared.lock());
        if batch.is_empty() {
            return;
        }
        machine.put(Work::Batch(batch));
        let is_source = |queue: &Queue, sub| sources.contains(&(queue.path.clone(), sub));
        machine.put(Work::Batch(attach_where(machine, is_source)));
        self.drain_now(nth);
        let shared = self.machines[nth].shared.clone();
        self.machines[nth].put(Work::Batch(ask_for_deferred(&mut shared.lock())));
        self.drain_now(nth);
    }

    /// Receives and completes until nothing more comes.
    fn drain_now(&mut self, nth: usize) {
        let machine = &mut self.machines[nth];
        let shared = machine.shared.clone();
        while shared.lock().violation.is_none() && machine.run(false, true) == Alive::Yes {
            let mut batch = Batch::default();
            for outgoing in shared.take() {
                let mut oracle = shared.lock();
                match outgoing {
                    Outgoing::Deliver(sent) => {
                        let (link, token) = (sent.link, sent.delivery.token);
                        let delivery = oracle.next_drained();
                        self.workload.take(nth, &sent, || false, &mut oracle);
                        oracle.settle(link, delivery, token, &Outcome::Complete, true);
                        let (outcome, wants_answer) = (Outcome::Complete, true);
                        batch.commands.push(Command::Settle { link, delivery, token, outcome, wants_answer });
                    }
                    Outgoing::Answered { answer: Ok(broker::Answer::Messages(messages)), .. } => {
                        for delivery in messages {
                            let Some(path) = oracle.path_of(&delivery) else { continue };
                            let request = next_request(&mut oracle);
                            let (tokens, outcome) = (vec![delivery.token], Outcome::Complete);
                            oracle.ask(
                                request,
                                Question::Settle(path.clone(), tokens.clone(), outcome.clone()),
                            );
                            let namespace = namespace_of(&path);
                            let (path, tokens) = (path.into(), tokens.into());
                            let command = Command::SettleTokens { request, namespace, path, tokens, outcome };
                            batch.commands.push(command);
                        }
                    }
                    _ => {}
                }
            }
            if batch.is_empty() {
                break;
            }
            machine.put(Work::Batch(batch));
        }
    }
}

fn next_request(oracle: &mut Oracle) -> RequestId {
    RequestId { connection: DRAINING, request: oracle.next_drained() }
}

/// Nobody forwards any more. Says which queues did, and whether their messages or their dead letters.
fn stop_forwarding(oracle: &mut Oracle) -> (Batch, Vec<(String, SubQueue)>) {
    let (mut batch, mut sources) = (Batch::default(), Vec::new());
    let queues = oracle.ledger.queues.values();
    let queues = queues.map(|queue| {
        let subscription = if let Kind::Subscription(below) = &queue.kind { Some(below) } else { None };
        let subscription = subscription.map(|below| (below.name.clone(), below.settings.clone()));
        (queue.path.clone(), queue.settings.clone(), subscription)
    });
    for (path, settings, subscription) in queues.collect::<Vec<_>>() {
        let forwarding = SUB_QUEUES.into_iter().filter(|sub| forwards(&settings, *sub));
        let before = sources.len();
        sources.extend(forwarding.map(|sub| (path.clone(), sub)));
        if sources.len() == before {
            continue;
        }
        let request = next_request(oracle);
        if let Some((name, settings)) = subscription {
            let settings =
                SubscriptionSettings { forward_to: None, forward_dead_letters_to: None, ..settings };
            oracle.ask(request, Question::Resubscribe(path.to_lowercase(), Box::new(settings.clone())));
            let topic = path.split("/Subscriptions/").next().unwrap_or_default().into();
            let task = Box::new(Task::UpdateSubscription { topic, name: name.into(), settings });
            batch.commands.push(Command::Manage { request, namespace: namespace_of(&path), task });
            continue;
        }
        let settings = QueueSettings { forward_to: None, forward_dead_letters_to: None, ..settings };
        oracle.ask(request, Question::Update(path.to_lowercase(), Box::new(settings.clone())));
        let namespace = namespace_of(&path);
        let task = Box::new(Task::UpdateQueue { path: path.into(), settings, access: Vec::new() });
        batch.commands.push(Command::Manage { request, namespace, task });
    }
    (batch, sources)
}

/// Attaches receivers to all sub-queues that are wanted.
fn attach_where(machine: &Machine, is_wanted: impl Fn(&Queue, SubQueue) -> bool) -> Batch {
    let mut batch = Batch::default();
    let mut oracle = machine.shared.lock();
    let mut paths = Vec::new();
    for queue in oracle.ledger.queues.values().filter(|queue| queue.may_receive()) {
        let subs = SUB_QUEUES.into_iter().filter(|sub| is_wanted(queue, *sub));
        // Nobody receives from a topic but what fell out there on its way.
        let is_topic = matches!(queue.kind, Kind::Topic(_));
        let subs = subs.filter(|sub| !is_topic || *sub == SubQueue::TransferDeadLetter);
        // Sessions are accepted one by one.
        let subs = subs.filter(|sub| *sub != SubQueue::Main || !queue.settings.requires_session);
        paths.extend(subs.map(|sub| path_of(&queue.path, sub)));
    }
    for path in paths {
        let link = LinkId { connection: DRAINING, link: oracle.next_drained() };
        let mode = ReceiveMode::PeekLock;
        oracle.attach(link, &path, Role::Receiver(mode));
        oracle.credit(link, u64::MAX, false);
        let namespace = namespace_of(&path);
        batch.commands.push(Command::AttachReceiver { link, namespace, path: path.into(), mode });
        batch.commands.push(Command::Credit { link, limit: u64::MAX, drain: false });
    }
    batch
}

/// Accepts every session of every queue that has any; their locks have ended since the last time.
fn accept_everywhere(oracle: &mut Oracle) -> Batch {
    let mut batch = Batch::default();
    let open = oracle.ledger.queues.values().filter(|queue| queue.may_receive());
    let open = open.filter(|queue| queue.settings.requires_session);
    let paths: Vec<String> = open.map(|queue| queue.path.clone()).collect();
    for path in paths {
        for session in Workload::session_ids() {
            let link = LinkId { connection: DRAINING, link: SESSION_LINKS + oracle.next_drained() };
            let (mode, namespace) = (ReceiveMode::PeekLock, namespace_of(&path));
            oracle.attach_for(link, &path, Role::Receiver(mode), Some(Some(session.clone())));
            oracle.credit(link, u64::MAX, false);
            let (path, session) = (path.clone().into(), Some((&*session).into()));
            batch.commands.push(Command::AcceptSession { link, namespace, path, mode, session });
            batch.commands.push(Command::Credit { link, limit: u64::MAX, drain: false });
        }
    }
    batch
}

/// Asks for each message that is set aside, alone, so that one that has expired hinders no other.
fn ask_for_deferred(oracle: &mut Oracle) -> Batch {
    let mut wanted = Vec::new();
    for queue in oracle.ledger.queues.values().filter(|queue| queue.may_receive()) {
        let is_asked_for =
            |present: &Present| present.state == State::Deferred && !forwards(&queue.settings, present.sub);
        for (sequence, present) in queue.present.iter().filter(|(_, present)| is_asked_for(present)) {
            let path = path_of(&queue.path, present.sub).to_lowercase();
            let session = present.session.clone().filter(|_| present.is_main());
            wanted.push((path, queue.number(*sequence), session));
        }
    }
    let mut batch = Batch::default();
    for (path, number, session) in wanted {
        let request = next_request(oracle);
        let mode = ReceiveMode::PeekLock;
        oracle.ask(request, Question::Deferred(path.clone(), vec![number], mode));
        let namespace = namespace_of(&path);
        let (path, numbers) = (path.into(), vec![number].into());
        batch.commands.push(Command::ReceiveDeferred {
            request,
            namespace,
            path,
            numbers,
            mode,
            session: session.map(|session| (&*session).into()),
        });
    }
    batch
}
