//! A partition without threads: the test plays its own thread, the connections and the disk.

use super::*;
use crate::by_hand::HandClock;
use crate::commit::{AfterTurn, Append, Shared};
use crate::mailbox::Outbox;
use crate::recovery::recover;

pub(super) const NOW: Time = Time(1_000_000);

/// Turns that one input may cause.
const MOST_TURNS: usize = 10_000;

/// Where the partition's own thread stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pause {
    Asleep(Option<Moment>),
    InFlight,
    Ended,
    Stopped(Stop),
}

pub(super) struct Bench {
    pub(super) partition: Shared<Partition>,
    pub(super) inbox: Arc<Inbox<Work>>,
    pub(super) budget: Arc<Budget>,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: HandClock,
    /// Appends are left in flight until the test says that they are durable.
    pub(super) is_held: bool,
    append: Option<Append<Unreleased>>,
}

pub(super) fn journal(disk: Arc<dyn Disk>) -> Local {
    Local::open(disk, Options { filling: Filling::Never, reserve_segments: 0, ..Options::new(7) }).unwrap()
}

impl Bench {
    pub(super) fn alone(disk: Arc<dyn Disk>) -> Bench {
        Bench::on(Box::new(journal(disk)))
    }

    pub(super) fn on(journal: Box<dyn Journal>) -> Bench {
        Bench::reading(journal, |_| Workers::default())
    }

    /// With threads that read for it. They leave in the inbox what they have read.
    pub(super) fn reading(
        mut journal: Box<dyn Journal>,
        workers: impl FnOnce(Arc<Inbox<Work>>) -> Workers,
    ) -> Bench {
        let durable = recover(&mut *journal, 1).unwrap().durable;
        let clock = HandClock::default();
        clock.set(NOW);
        let mut environment = Environment::default();
        let (inbox, (budget, _, counters)) = (environment.inbox.clone(), environment.shared());
        environment.workers = workers(inbox.clone());
        let tail = journal.tail();
        let partition =
            Partition::new(Broker::new(durable, 5), journal, Box::new(clock.clone()), environment);
        let partition = Shared::new(partition, tail, inbox.clone());
        Bench { partition, inbox, budget, counters, clock, is_held: false, append: None }
    }

    /// A partition with a queue called `q`.
    pub(super) fn with_queue() -> Bench {
        let mut bench = Bench::alone(Arc::new(Memory::new()));
        bench.create_queue();
        bench
    }

    pub(super) fn create_queue(&mut self) {
        let outbox = self.connect(0);
        let settings = Box::new(QueueSettings { max_size_megabytes: 1_024, ..QueueSettings::default() });
        let request = RequestId { connection: ConnectionId(0), request: 1 };
        let create = Command::CreateQueue { request, namespace: NamespaceId(0), path: "q".into(), settings };
        self.give(vec![create]);
        assert_eq!(told(&outbox), ["created"]);
    }

    pub(super) fn connect(&mut self, connection: u32) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::default());
        self.accept(Work::Connect { connection: ConnectionId(connection), mailbox: outbox.clone() });
        outbox
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Partition) -> R) -> R {
        self.partition.look(|partition, _| look(partition)).expect("it has not ended")
    }

    /// Leaves work in the inbox.
    pub(super) fn accept(&mut self, work: Work) {
        if let Work::Batch(batch) = &work {
            self.budget.hold(batch.held_bytes());
        }
        self.inbox.leave(work);
    }

    pub(super) fn give(&mut self, commands: Vec<Command>) -> Pause {
        self.accept(Work::Batch(Batch { commands, ..Batch::default() }));
        self.turn()
    }

    /// Sends one message of some bytes.
    pub(super) fn send(&mut self, link: LinkId, delivery: u32, bytes: usize) -> Pause {
        self.accept(Work::Batch(sending(link, delivery, bytes)));
        self.turn()
    }

    /// What happens until nothing does: the partition's thread has its turns, or, while it waits for the disk, the one that has
    /// brought something decides it.
    pub(super) fn turn(&mut self) -> Pause {
        if self.append.is_some() {
            self.partition.decide_here();
            return Pause::InFlight;
        }
        self.run(None)
    }

    fn run(&mut self, mut answered: Option<crate::commit::AppendOutcome<Unreleased>>) -> Pause {
        for _ in 0..MOST_TURNS {
            match self.partition.turn(answered.take()) {
                AfterTurn::Sync(append) if self.is_held => {
                    self.append = Some(append);
                    return Pause::InFlight;
                }
                AfterTurn::Sync(append) => answered = Some(append.wait()),
                AfterTurn::Sleep { until, now } => match self.partition.gathers_until() {
                    Some(moment) => self.clock.pass_until(moment),
                    None if self.inbox.is_empty() && until.is_none_or(|until| until > now) => {
                        return Pause::Asleep(until);
                    }
                    None => {}
                },
                AfterTurn::Ended => return Pause::Ended,
                AfterTurn::Stopped(why) => return Pause::Stopped(why),
            }
        }
        panic!("the partition never rests");
    }

    /// Both clocks go on.
    pub(super) fn pass(&mut self, time: Duration) {
        let now = self.clock.now();
        self.clock.set(Time(now.0 + time.as_millis() as i64));
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.append.is_some()
    }

    /// Starts an append that is not finished: a send by a connection of its own.
    pub(super) fn leave_in_flight(&mut self) -> Arc<Outbox> {
        let outbox = self.connect(90);
        self.give(vec![attach_sender(link(90))]);
        self.is_held = true;
        assert_eq!(self.send(link(90), 0, 10), Pause::InFlight);
        assert_eq!(told(&outbox), ["attached"]);
        outbox
    }

    /// The disk is done with the append in flight.
    pub(super) fn finish_sync(&mut self) -> Pause {
        let append = self.append.take().expect("an append is in flight");
        self.run(Some(append.wait()))
    }

    /// All of what was given is back, whatever became of it.
    pub(super) fn assert_accounts_are_zero(&self) {
        assert_eq!((self.budget.held_bytes(), self.look(|partition| partition.held_effects())), (0, 0));
    }
}
