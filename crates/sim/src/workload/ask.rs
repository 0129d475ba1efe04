//! Questions about entities: queues come, go and are looked at.

use super::{Actor, PATHS, Workload};
use crate::PARTITIONS;
use crate::machine::Machine;
use crate::oracle::{Oracle, Question};
use crate::random::Random;
use broker::{Command, NamespaceId, QueueSettings, RequestId, Span, Status};
use engine::Batch;

const NAMESPACE: NamespaceId = NamespaceId(0);

impl Workload {
    fn request(&mut self, who: Actor) -> RequestId {
        let client = &mut self.clients[who.at];
        client.requests += 1;
        RequestId { connection: client.id, request: client.requests }
    }

    pub(super) fn ask(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let request = self.request(who);
        let (command, question) = match self.random.below(20) {
            0..9 => self.create(who, request),
            9 => {
                let path = self.path(who.nth);
                let question = Question::Delete(path.clone());
                (Command::DeleteEntity { request, namespace: NAMESPACE, path: path.into() }, question)
            }
            10..16 => {
                let path = if self.random.once_in(5) { "nowhere".into() } else { self.path(who.nth) };
                let question = Question::Describe(path.clone(), None);
                (Command::DescribeEntity { request, namespace: NAMESPACE, path: path.into() }, question)
            }
            _ => {
                let (skip, top) = (self.random.below(3) as usize, self.random.below(5) as usize);
                (Command::ListQueues { request, namespace: NAMESPACE, skip, top }, Question::List)
            }
        };
        oracle.ask(request, question);
        batch.commands.push(command);
    }

    fn create(&mut self, who: Actor, request: RequestId) -> (Command, Question) {
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
            3 => {
                settings.requires_session = true;
                "sessions".to_owned()
            }
            _ => self.path(who.nth),
        };
        if settings == QueueSettings::default() {
            settings = self.usual(&path);
        }
        created(request, path, settings)
    }

    fn usual(&mut self, path: &str) -> QueueSettings {
        let usual = QueueSettings::default();
        let is_small = path.eq_ignore_ascii_case("tiny");
        QueueSettings {
            lock_duration: Span::seconds(self.random.between(5, 30)),
            max_size_megabytes: if is_small { 1 } else { usual.max_size_megabytes },
            ..usual
        }
    }

    pub(super) fn create_usual(&mut self, who: Actor, path: &str, batch: &mut Batch, oracle: &mut Oracle) {
        let (request, settings) = (self.request(who), self.usual(path));
        let (command, question) = created(request, path.to_owned(), settings);
        oracle.ask(request, question);
        batch.commands.push(command);
    }

    /// A question that has the partition to itself, so that the right answer is known before.
    pub fn describe_alone(&mut self, random: Random, machines: &[Machine; PARTITIONS]) {
        self.random = random;
        let nth = self.random.below(PARTITIONS as u64) as usize;
        if self.clients.is_empty() || machines[nth].stalled > 0 {
            return;
        }
        let who = Actor { at: self.random.below(self.clients.len() as u64) as usize, nth };
        let path = *self.random.pick(PATHS[nth]);
        let mut oracle = machines[nth].shared.lock();
        let counters = oracle.ledger.find(path).map(|entity| {
            let queue = &oracle.ledger.queues[&entity];
            (queue.present.len() as u64, queue.bytes)
        });
        let request = self.request(who);
        oracle.ask(request, Question::Describe(path.to_owned(), counters));
        let command = Command::DescribeEntity { request, namespace: NAMESPACE, path: path.into() };
        self.say(nth, Batch { commands: vec![command], ..Batch::default() });
    }
}

fn created(request: RequestId, path: String, settings: QueueSettings) -> (Command, Question) {
    let question = Question::Create(path.clone());
    let settings = Box::new(settings);
    (Command::CreateQueue { request, namespace: NAMESPACE, path: path.into(), settings }, question)
}
