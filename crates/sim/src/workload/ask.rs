//! Questions about entities and messages: queues come, change, go and are looked at; locks are renewed, messages
//! scheduled, cancelled, received by their numbers, browsed and deleted.

use super::topic::requires_session;
use super::{Actor, NAMESPACE, PATHS, SESSIONS, Workload, namespace_of};
use crate::PARTITIONS;
use crate::machine::Machine;
use crate::oracle::ledger::split;
use crate::oracle::{Oracle, Question};
use crate::random::Random;
use broker::limits::{BROWSE_BYTES, REQUEST_MESSAGES};
use broker::{
    Command, LinkId, LocalTime, LockToken, Number, Outcome, QueueSettings, ReceiveMode, RequestId, Sequence,
    Span, Status, Task, Tier,
};
use engine::{Batch, Work};

/// A few more than a namespace of the smaller tiers may have partitioned queues, and receivers on one queue.
const TOO_MANY_QUEUES: u32 = 106;
const TOO_MANY_RECEIVERS: u32 = 5_006;

impl Workload {
    pub(super) fn request(&mut self, who: Actor, path: &str) -> RequestId {
        let client = &mut self.clients[who.at];
        client.requests += 1;
        client.asked.insert(client.requests, path.to_lowercase());
        RequestId { connection: client.id, request: client.requests }
    }

    pub(super) fn ask(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        if self.random.once_in(5) {
            return self.ask_topic(who, batch, oracle);
        }
        match self.random.below(100) {
            0..12 => self.create(who, batch, oracle),
            12..20 => self.update(who, batch, oracle),
            20..22 => {
                let path = self.path(who.nth);
                self.delete(who, path, batch, oracle);
            }
            22..27 => {
                let path = if self.random.once_in(5) { "nowhere".into() } else { self.path(who.nth) };
                let request = self.request(who, &path);
                oracle.ask(request, Question::Describe(path.to_lowercase(), None));
                let namespace = namespace_of(&path);
                let command = Command::DescribeEntity { request, namespace, path: path.into() };
                batch.commands.push(command);
            }
            27..30 => {
                let request = self.request(who, "");
                oracle.ask(request, Question::List);
                let (skip, top) = (self.random.below(3) as usize, self.random.below(5) as usize);
                batch.commands.push(Command::ListQueues { request, namespace: NAMESPACE, skip, top });
            }
            30..45 => self.renew(who, batch, oracle),
            45..53 => self.settle_tokens(who, batch, oracle),
            53..60 => self.schedule(who, batch, oracle),
            60..63 => self.ask_session(who, batch, oracle),
            63..70 => self.cancel(who, batch, oracle),
            70..85 => self.receive_deferred(who, batch, oracle),
            85..92 => {
                let path = self.sub_path(who.nth);
                self.browse(who, path, None, batch, oracle);
            }
            92..97 => self.delete_messages(who, batch, oracle),
            _ => self.ask_session(who, batch, oracle),
        }
    }

    pub(super) fn delete(&mut self, who: Actor, path: String, batch: &mut Batch, oracle: &mut Oracle) {
        let request = self.request(who, &path);
        oracle.ask(request, Question::Delete(path.to_lowercase()));
        let namespace = namespace_of(&path);
        batch.commands.push(Command::DeleteEntity { request, namespace, path: path.into() });
    }

    /// A queue, a subscription or one of their dead-letter queues.
    fn sub_path(&mut self, nth: usize) -> String {
        match self.random.below(8) {
            0 | 1 => self.inbox(nth) + "/$deadletterqueue",
            2 => self.outbox(nth) + "/$transfer/$deadletterqueue",
            _ => self.inbox(nth),
        }
    }

    fn create(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let mut settings = QueueSettings::default();
        let path = match self.random.below(20) {
            0 => "not/".to_owned(),
            1 => {
                settings.lock_duration = Span::seconds(4);
                self.path(who.nth)
            }
            2 => {
                settings.status = *self.random.pick(&[Status::SendDisabled, Status::ReceiveDisabled]);
                "disabled".to_owned()
            }
            _ => self.path(who.nth),
        };
        if settings == QueueSettings::default() {
            settings = self.usual(&path);
        }
        self.created(who, &path, settings, batch, oracle);
    }

    fn usual(&mut self, path: &str) -> QueueSettings {
        let usual = QueueSettings::default();
        let is_small = path.eq_ignore_ascii_case("tiny") && self.tier == Tier::Unlimited;
        let is_basic = self.tier == Tier::Basic;
        QueueSettings {
            lock_duration: Span::seconds(self.random.between(5, 30)),
            max_size_megabytes: if is_small { 1 } else { usual.max_size_megabytes },
            max_delivery_count: *self.random.pick(&[1, 2, 3, 3, 10]),
            dead_letter_on_expiration: self.random.once_in(2),
            default_time_to_live: match self.random.below(3) {
                0 if !is_basic => Span::seconds(self.random.between(1, 120)),
                _ => usual.default_time_to_live,
            },
            auto_delete_on_idle: match self.random.below(4) {
                0 if !is_basic => Span::seconds(self.random.between(300, 400)),
                _ => usual.auto_delete_on_idle,
            },
            partitioning: self.random.once_in(6),
            requires_session: path.eq_ignore_ascii_case(SESSIONS),
            ..self.unusual(path, usual)
        }
    }

    pub(super) fn create_usual(&mut self, who: Actor, path: &str, batch: &mut Batch, oracle: &mut Oracle) {
        let settings = self.usual(path);
        self.created(who, path, settings, batch, oracle);
    }

    fn created(
        &mut self,
        who: Actor,
        path: &str,
        settings: QueueSettings,
        batch: &mut Batch,
        oracle: &mut Oracle,
    ) {
        let request = self.request(who, path);
        oracle.ask(request, Question::Create(path.to_lowercase()));
        let settings = Box::new(settings);
        batch.commands.push(Command::CreateQueue {
            request,
            namespace: namespace_of(path),
            path: path.into(),
            settings,
        });
    }

    /// Other settings for a queue; what is fixed at creation is sometimes forgotten (S-260).
    fn update(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let path = self.path(who.nth);
        let mut settings = self.usual(&path);
        if let Some(queue) = oracle.ledger.find(&path).and_then(|entity| oracle.ledger.queues.get(&entity))
            && !self.random.once_in(6)
        {
            settings.partitioning = queue.settings.partitioning;
            settings.requires_duplicate_detection = queue.settings.requires_duplicate_detection;
            settings.max_size_megabytes = queue.settings.max_size_megabytes;
        }
        if self.random.once_in(8) {
            settings.status = *self.random.pick(&[Status::SendDisabled, Status::ReceiveDisabled]);
        }
        // The Basic tier has its own time to live, which it then also tells.
        if self.tier == Tier::Basic {
            settings.default_time_to_live = Span::minutes(14 * 24 * 60);
        }
        let request = self.request(who, &path);
        oracle.ask(request, Question::Update(path.to_lowercase(), Box::new(settings.clone())));
        let namespace = namespace_of(&path);
        let task = Box::new(Task::UpdateQueue { path: path.into(), settings, access: Vec::new() });
        batch.commands.push(Command::Manage { request, namespace, task });
    }

    /// Some tokens of one queue; they are kept for later use.
    fn tokens(&mut self, who: Actor) -> Option<(String, Vec<LockToken>)> {
        let held = &self.held[who.nth];
        let count = held.len() as u64;
        let first = if count > 0 { self.random.below(count) as usize } else { return None };
        let path = held[first].path.clone();
        if self.is_within && namespace_of(&path) != NAMESPACE {
            return None;
        }
        let most = *self.random.pick(&[1, 1, 3]);
        let same = held[first..].iter().filter(|other| other.path == path);
        let tokens = same.take(most).map(|other| other.token).collect();
        Some((path, tokens))
    }

    pub(super) fn renew(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some((path, mut tokens)) = self.tokens(who) else { return };
        if self.random.once_in(150) {
            tokens = vec![tokens[0]; REQUEST_MESSAGES + 1];
        }
        let request = self.request(who, &path);
        oracle.ask(request, Question::Renew(path.clone(), tokens.clone()));
        let (namespace, path, tokens) = (namespace_of(&path), path.into(), tokens.into());
        batch.commands.push(Command::RenewLocks { request, namespace, path, tokens });
    }

    pub(super) fn settle_tokens(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some((path, tokens)) = self.tokens(who) else { return };
        let outcome = self.outcome();
        if !self.random.once_in(6) {
            self.held[who.nth].retain(|held| {
                let is_used = tokens.contains(&held.token);
                if is_used && matches!(outcome, Outcome::Defer(_)) {
                    self.deferred[who.nth].push((held.path.clone(), held.number));
                }
                !is_used
            });
        }
        let request = self.request(who, &path);
        oracle.ask(request, Question::Settle(path.clone(), tokens.clone(), outcome.clone()));
        let (namespace, path, tokens) = (namespace_of(&path), path.into(), tokens.into());
        batch.commands.push(Command::SettleTokens { request, namespace, path, tokens, outcome });
    }

    fn numbers(random: &mut Random, from: &mut Vec<(String, Number)>) -> Option<(String, Vec<Number>)> {
        let count = from.len() as u64;
        let first = if count > 0 { random.below(count) as usize } else { return None };
        // Most are used once; some again.
        let (path, number) = if random.once_in(5) { from[first].clone() } else { from.swap_remove(first) };
        let mut numbers = vec![number];
        if random.once_in(3) {
            numbers
                .extend(from.iter().filter(|(other, _)| *other == path).map(|(_, number)| *number).take(1));
        }
        if random.once_in(15) {
            numbers.push(Number(number.0 + 1));
        }
        Some((path, numbers))
    }

    fn cancel(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some((path, numbers)) = Workload::numbers(&mut self.random, &mut self.scheduled[who.nth]) else {
            return;
        };
        let request = self.request(who, &path);
        oracle.ask(request, Question::Cancel(path.clone(), numbers.clone()));
        let (namespace, path, numbers) = (namespace_of(&path), path.into(), numbers.into());
        batch.commands.push(Command::CancelScheduled { request, namespace, path, numbers });
    }

    fn receive_deferred(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some((path, numbers)) = Workload::numbers(&mut self.random, &mut self.deferred[who.nth]) else {
            return;
        };
        let mode = match self.random.below(5) {
            0 => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let request = self.request(who, &path);
        oracle.ask(request, Question::Deferred(path.clone(), numbers.clone(), mode));
        // Only the holder of a session is given what was set aside in it (S-125).
        let has_sessions = path.contains(SESSIONS) || requires_session(&path);
        let is_session = self.random.once_in(20) != has_sessions && !path.contains('$');
        let session = is_session.then(|| (&*self.held_session(who)).into());
        let namespace = namespace_of(&path);
        let (path, numbers) = (path.into(), numbers.into());
        batch.commands.push(Command::ReceiveDeferred { request, namespace, path, numbers, mode, session });
    }

    fn delete_messages(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let path = self.sub_path(who.nth);
        let most = *self.random.pick(&[1, 5, 5_000]);
        let ago = self.random.below(20_000) as i64;
        let before = if self.random.once_in(2) {
            LocalTime(oracle.local_at(&path).0.saturating_sub(ago))
        } else {
            LocalTime::NEVER
        };
        let request = self.request(who, &path);
        oracle.ask(request, Question::Purge(path.to_lowercase(), most, before));
        let (namespace, session) = (namespace_of(&path), None);
        let path = path.into();
        batch.commands.push(Command::DeleteMessages { request, namespace, path, most, before, session });
    }

    fn browse(
        &mut self,
        who: Actor,
        path: String,
        exact: Option<(Number, u32, Vec<Sequence>)>,
        batch: &mut Batch,
        oracle: &mut Oracle,
    ) {
        let (from, most, exact) = match exact {
            Some((from, most, exact)) => (from, most, Some(exact)),
            None => (Number(self.random.below(50)), self.random.below(30) as u32, None),
        };
        let request = self.request(who, &path);
        oracle.ask(request, Question::Browse(path.to_lowercase(), from, most, exact));
        let (namespace, session) = (namespace_of(&path), None);
        let path = path.into();
        batch.commands.push(Command::Browse { request, namespace, path, from, most, session });
    }

    /// What must be seen from the first message on.
    fn visible(path: &str, oracle: &Oracle) -> Option<(Number, u32, Vec<Sequence>)> {
        let entity = oracle.ledger.find(&path.to_lowercase())?;
        let queue = oracle.ledger.queues.get(&entity).filter(|queue| queue.may_receive())?;
        let sub = split(path).1;
        let (mut bytes, most) = (0, 20);
        let there = queue.present.iter().filter(|(_, present)| present.sub == sub);
        let seen = there.take(most).take_while(|(_, present)| {
            let is_first = bytes == 0;
            bytes += u64::from(present.length);
            is_first || bytes <= BROWSE_BYTES
        });
        Some((Number(0), most as u32, seen.map(|(sequence, _)| *sequence).collect()))
    }

    /// A question that has the partition to itself, so that the right answer is known before.
    pub fn describe_alone(&mut self, random: Random, machines: &[Machine; PARTITIONS]) {
        self.random = random;
        let nth = self.random.below(PARTITIONS as u64) as usize;
        if self.clients.is_empty() || machines[nth].stalled > 0 {
            return;
        }
        let who = Actor { at: self.random.below(self.clients.len() as u64) as usize, nth };
        let mut oracle = machines[nth].shared.lock();
        if !oracle.is_at_rest() {
            return;
        }
        let mut batch = Batch::default();
        if self.random.once_in(2) {
            let path = self.sub_path(nth);
            let exact = Workload::visible(&path, &oracle);
            self.browse(who, path, exact, &mut batch, &mut oracle);
            oracle.tell(|| format!("said alone: {:?}", batch.commands));
            return self.say(nth, batch);
        }
        let path = match self.random.below(6) {
            0 => self.topic(nth),
            1 => self.subscription(nth),
            _ => self.path(nth),
        };
        let figures = oracle.figures(&path.to_lowercase());
        let request = self.request(who, &path);
        oracle.ask(request, Question::Describe(path.to_lowercase(), figures));
        let namespace = namespace_of(&path);
        batch.commands.push(Command::DescribeEntity { request, namespace, path: path.into() });
        oracle.tell(|| format!("said alone: {:?}", batch.commands));
        self.say(nth, batch);
    }

    /// More queues, or more receivers, than a tier allows.
    pub(super) fn crowd(&mut self, who: Actor, oracle: &mut Oracle) {
        let mut batch = Batch::default();
        if !self.random.once_in(4) && self.tier != Tier::Premium {
            for number in 0..TOO_MANY_QUEUES {
                let settings = QueueSettings { partitioning: true, ..QueueSettings::default() };
                self.created(who, &format!("crowd-{number}"), settings, &mut batch, oracle);
            }
        } else {
            let path = PATHS[who.nth][0];
            for _ in 0..TOO_MANY_RECEIVERS {
                let role = crate::oracle::Role::Receiver(ReceiveMode::PeekLock);
                let client = &mut self.clients[who.at];
                client.made_links += 1;
                let link = LinkId { connection: client.id, link: client.made_links };
                oracle.attach(link, path, role);
                let mode = ReceiveMode::PeekLock;
                let command = Command::AttachReceiver { link, namespace: NAMESPACE, path: path.into(), mode };
                batch.commands.push(command);
            }
        }
        // They do not count: they would be all that a run does.
        self.said[who.nth].push_back(Work::Batch(batch));
    }
}
