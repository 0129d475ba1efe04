//! The test clock: the time of one namespace is moved ahead, past everything that is due on the way.
//!
//! Each namespace has a time of its own, which is the owner's until it is moved and runs with it ever after. A move
//! visits the instants at which something is due, in order, and decides each at its own time; it takes as many ticks as
//! it needs, and whoever runs the broker lets nothing else be decided meanwhile. Nothing is handed out on the way: no
//! client lives in the time that passes. What must always hold: the time of a namespace never runs backwards, and
//! replay sees every record at the instant at which it was made.

use crate::Broker;
use crate::command::Command;
use crate::decision::{Context, Deciding, Decision, LocalContext};
use crate::effect::{Answer, Effect};
use crate::ids::{EntityId, LinkId, NamespaceId, Number, RequestId, Sequence, Source, SubQueue};
use crate::limits::{ADVANCE_EVENTS, ADVANCE_MOST, CALENDAR_END, TIMER_SLICE};
use crate::manage::Task;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::{ClockOffset, LocalTime, Span, Time};
use crate::timers::{Chore, Due};
use crate::topic::change::Change;
use crate::topic::published::Origin;

/// Something that happened because its time came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    pub at: LocalTime,
    /// The path of the entity, or of its dead-letter queue.
    pub entity: Box<str>,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Nobody settled the message in time (S-86).
    LockExpired { number: Number, fate: Fate },
    /// S-51.
    MessageExpired { number: Number, fate: Fate },
    /// A scheduled message was enqueued, under a number of its own (S-44).
    MessageActivated { scheduled: Number, number: Number },
    /// Nobody used it for long enough (S-70).
    EntityDeleted,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Returned,
    DeadLettered,
    Dropped,
}

/// Why something is decided at an instant that a move has come to.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Lock,
    Expiry,
    Other,
}

/// A move, told when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    pub now: LocalTime,
    /// In the order in which it happened.
    pub events: Vec<Happened>,
    /// How much more happened than is told.
    pub more: u64,
}

/// A move that has begun.
#[derive(Debug)]
pub struct ClockMove {
    request: RequestId,
    namespace: NamespaceId,
    until: LocalTime,
    /// The instant that is being visited.
    now: LocalTime,
    /// The owner's time, and which one a record has told last, at which time of the owner. Told again for each batch.
    owner: Time,
    told: Option<(LocalTime, Time)>,
    events: Vec<Happened>,
    more: u64,
    /// What keeps it at the instant that is being visited.
    waits_for: Option<Wait>,
    /// Messages that were read meanwhile for receivers, who are given nothing before the move has ended.
    checked: Vec<Checked>,
}

/// What a move waits for before it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Messages of this topic are due and are being read.
    Read(Source),
    /// Messages are due that are not on disk yet, so that nobody can read them.
    Commit,
}

/// Messages of a queue that were read: those that are whole, and those that are damaged.
#[derive(Debug)]
struct Checked {
    source: Source,
    whole: Vec<Sequence>,
    damaged: Vec<Sequence>,
}

impl Broker {
    /// Whether a move has begun and not ended: [`Broker::tick`] goes on with it, and nothing else may be decided.
    pub fn is_moving(&self) -> bool {
        self.volatile.clock_move.is_some()
    }

    /// Whether a move goes on only when messages were read, or are durable.
    pub fn is_waiting(&self) -> bool {
        self.volatile.clock_move.as_ref().is_some_and(|clock_move| clock_move.waits_for.is_some())
    }

    /// A move waits for messages of a topic that are being read.
    pub(crate) fn wait_for_read(&mut self, topic: Source) {
        if let Some(clock_move) = &mut self.volatile.clock_move {
            clock_move.waits_for = Some(Wait::Read(topic));
        }
    }

    /// A move waits until what was decided before it is durable. False if there is none.
    pub(crate) fn wait_for_commit(&mut self) -> bool {
        if let Some(clock_move) = &mut self.volatile.clock_move {
            clock_move.waits_for = Some(Wait::Commit);
        }
        self.is_moving()
    }

    pub(crate) fn waits_for_commit(&self) -> bool {
        self.volatile.clock_move.as_ref().is_some_and(|clock_move| clock_move.waits_for == Some(Wait::Commit))
    }

    /// Something became durable. A move that has waited for that looks again.
    pub(crate) fn end_wait_for_commit(&mut self) {
        if let Some(clock_move) = &mut self.volatile.clock_move {
            clock_move.waits_for = clock_move.waits_for.filter(|wait| *wait != Wait::Commit);
        }
    }

    /// Messages were read. A move that has waited for them goes on; what others have waited for is nothing to it.
    pub(crate) fn end_wait(&mut self, read: Source) {
        if let Some(clock_move) = &mut self.volatile.clock_move {
            clock_move.waits_for = clock_move.waits_for.filter(|wait| *wait != Wait::Read(read));
        }
    }

    /// Keeps what was read for receivers until a move has ended. False if there is none.
    pub(crate) fn keep_checked(&mut self, source: Source, whole: &[Sequence], damaged: &[Sequence]) -> bool {
        let Some(clock_move) = &mut self.volatile.clock_move else { return false };
        clock_move.checked.push(Checked { source, whole: whole.to_vec(), damaged: damaged.to_vec() });
        true
    }

    /// The time at an entity.
    pub(crate) fn context_at(&self, entity: EntityId, context: Context) -> LocalContext {
        context.at(context.now.local(self.volatile.clock_offset_at(entity)))
    }

    /// The time at which a command is decided: that of its namespace.
    pub(crate) fn context_of(&self, command: &Command, context: Context) -> LocalContext {
        if self.volatile.is_time_usual() {
            return context.at(context.now.local(ClockOffset::default()));
        }
        let of_link = |link: &LinkId| {
            self.volatile
                .link(*link)
                .map_or(NamespaceId::default(), |link| self.volatile.presence(link.source.entity).namespace)
        };
        let namespace = match command {
            Command::Within { command, .. } => return self.context_of(command, context),
            Command::AttachCoordinator { namespace, .. } => *namespace,
            Command::Declare { link, .. } | Command::Discharge { link, .. } | Command::Spoil { link, .. } => {
                self.volatile.transactions.namespace_of(*link)
            }
            // Namespaces are dated by the first of them, whoever names them.
            Command::Manage { task, .. } if matches!(**task, Task::NameNamespace { .. }) => NamespaceId(0),
            Command::AttachSender { namespace, .. }
            | Command::AttachVia { namespace, .. }
            | Command::AttachReceiver { namespace, .. }
            | Command::AcceptSession { namespace, .. }
            | Command::RenewSession { namespace, .. }
            | Command::GetSessionState { namespace, .. }
            | Command::SetSessionState { namespace, .. }
            | Command::ListSessions { namespace, .. }
            | Command::SettleTokens { namespace, .. }
            | Command::RenewLocks { namespace, .. }
            | Command::Schedule { namespace, .. }
            | Command::CancelScheduled { namespace, .. }
            | Command::ReceiveDeferred { namespace, .. }
            | Command::Browse { namespace, .. }
            | Command::DeleteMessages { namespace, .. }
            | Command::CreateQueue { namespace, .. }
            | Command::DeleteEntity { namespace, .. }
            | Command::DescribeEntity { namespace, .. }
            | Command::Manage { namespace, .. }
            | Command::Advance { namespace, .. }
            | Command::ListQueues { namespace, .. } => *namespace,
            Command::Detach { link }
            | Command::Send { link, .. }
            | Command::Part { link, .. }
            | Command::DropParts { link }
            | Command::Credit { link, .. }
            | Command::Settle { link, .. } => of_link(link),
        };
        context.at(context.now.local(self.volatile.clock_offset(namespace)))
    }

    /// Begins to move the time of a namespace. The answer comes when it has arrived.
    pub(crate) fn advance(
        &mut self,
        request: RequestId,
        namespace: NamespaceId,
        by: Span,
        context: Context,
    ) -> Result<(), Refusal> {
        let refuse = |why: &str| Err(Refusal::InvalidSetting { property: "advance", why: why.into() });
        if namespace >= self.durable.next_namespace() {
            return refuse("there is no such namespace");
        }
        if by > ADVANCE_MOST {
            return refuse("time moves by ten years at most");
        }
        let offset = self.volatile.clock_offset(namespace);
        let now = context.now.local(offset);
        let until = now.after(by);
        if until > CALENDAR_END {
            return refuse("time ends with the year 9999");
        }
        assert!(!self.is_moving(), "nothing is decided while time is moved");
        // Its timers leave the others, so that they can be visited on their own.
        self.volatile.set_offset(namespace, offset);
        self.volatile.clock_move = Some(Box::new(ClockMove {
            request,
            namespace,
            until,
            now,
            owner: context.now,
            told: None,
            events: Vec::new(),
            more: 0,
            waits_for: None,
            checked: Vec::new(),
        }));
        Ok(())
    }

    /// Visits the next instants of a move, a slice of what is due.
    pub(crate) fn move_on(&mut self, context: Context, decision: &mut Decision) {
        let mut left = TIMER_SLICE;
        while left > 0 && !decision.is_long() {
            let Some(namespace) = self.volatile.clock_move.as_ref().map(|each| each.namespace) else {
                return;
            };
            let without = context.now.local(self.volatile.clock_offset(namespace));
            let clock_move = self.volatile.clock_move.as_mut().expect("it was there");
            clock_move.owner = context.now;
            // While it lasts time goes on too: it does not lead to where the namespace would have been without it.
            clock_move.until = clock_move.until.max(without);
            if clock_move.waits_for.is_some() {
                return;
            }
            let until = clock_move.until;
            let Some((at, due)) = self.volatile.take_first(namespace, until) else {
                return self.arrive_at(until, context, decision);
            };
            left -= self.visit(at, due, left, context, decision);
        }
    }

    fn visit(
        &mut self,
        at: LocalTime,
        due: Due,
        most: usize,
        context: Context,
        decision: &mut Decision,
    ) -> usize {
        let clock_move = self.volatile.clock_move.as_mut().expect("the caller looked");
        // What was due before the move began is decided now.
        clock_move.now = clock_move.now.max(at);
        let context = context.at(clock_move.now);
        let (entity, sub) = match &due {
            Due::Lock(timer) => (timer.source.entity, timer.source.sub),
            Due::Chore(entity, _) => (*entity, SubQueue::Main),
        };
        let path = self.path_of(entity, sub);
        let from = decision.seam();
        let cause = match &due {
            Due::Lock(_) => Cause::Lock,
            Due::Chore(_, Chore::Expire) => Cause::Expiry,
            Due::Chore(..) => Cause::Other,
        };
        let count = self.work_off(due, most, &mut decision.at(context));
        for nth in from..decision.records.len() {
            let told = self.tell(&decision.records[nth], entity, cause);
            let clock_move = self.volatile.clock_move.as_mut().expect("the caller looked");
            for what in told {
                if clock_move.events.len() < ADVANCE_EVENTS {
                    clock_move.events.push(Happened { at: context.now, entity: path.clone(), what });
                } else {
                    clock_move.more += 1;
                }
            }
        }
        count
    }

    /// The namespace is where it was to be. What became free on the way may be handed out.
    fn arrive_at(&mut self, until: LocalTime, context: Context, decision: &mut Decision) {
        self.tell_time(until, decision);
        let Some(clock_move) = self.volatile.clock_move.take() else { return };
        let offset = until.offset_from(context.now);
        self.volatile.set_offset(clock_move.namespace, offset);
        let advanced = Advanced { now: until, events: clock_move.events, more: clock_move.more };
        let answer = Ok(Answer::Advanced(Box::new(advanced)));
        decision.effect(Effect::Answered { request: clock_move.request, answer });
        for Checked { source, whole, damaged } in clock_move.checked {
            self.checked(source, &whole, &damaged, context, decision);
        }
    }

    /// While time is moved, a record is preceded by one that says at which instant it was made.
    pub(crate) fn tell_time(&mut self, now: LocalTime, decision: &mut Decision) {
        let Some(clock_move) = &mut self.volatile.clock_move else { return };
        let (namespace, owner) = (clock_move.namespace, clock_move.owner);
        if clock_move.told.replace((now, owner)) != Some((now, owner)) {
            let record = Record::Managed(Box::new(Change::ClockMoved { namespace, to: now }));
            self.durable.apply(&record, owner);
            decision.record(record);
        }
    }

    fn path_of(&self, entity: EntityId, sub: SubQueue) -> Box<str> {
        let path = self.durable.queue(entity).map_or("", |queue| &queue.path);
        match sub {
            SubQueue::Main => path.into(),
            SubQueue::DeadLetter => format!("{path}/$deadletterqueue").into(),
            SubQueue::TransferDeadLetter => format!("{path}/$transfer/$deadletterqueue").into(),
        }
    }

    /// What a record means to somebody who moves time. What came of it elsewhere is not told: a message that was activated
    /// may be sent on, and a copy of it be dead-lettered for its own reasons.
    fn tell(&self, record: &Record, visited: EntityId, cause: Cause) -> Vec<What> {
        let number = |entity: EntityId, sequence: Sequence| {
            self.durable.queue(entity).map_or(Number(sequence.0), |queue| queue.number(sequence))
        };
        let ended = |entity: EntityId, sequence: Sequence, fate: Fate| {
            let number = number(entity, sequence);
            match cause {
                _ if entity != visited => None,
                Cause::Lock => Some(What::LockExpired { number, fate }),
                Cause::Expiry => Some(What::MessageExpired { number, fate }),
                Cause::Other => None,
            }
        };
        match record {
            Record::Returned { entity, sequence, .. } => {
                ended(*entity, *sequence, Fate::Returned).into_iter().collect()
            }
            Record::DeadLettered { entity, sequence, .. } => {
                ended(*entity, *sequence, Fate::DeadLettered).into_iter().collect()
            }
            Record::Removed { entity, first, count } => (first.0..first.0 + u64::from(*count))
                .filter_map(|sequence| ended(*entity, Sequence(sequence), Fate::Dropped))
                .collect(),
            Record::Activated { entity, scheduled, sequence, .. } => vec![What::MessageActivated {
                scheduled: number(*entity, *scheduled),
                number: number(*entity, *sequence),
            }],
            Record::Published(published) => match published.origin {
                Origin::Scheduled(scheduled) => vec![What::MessageActivated {
                    scheduled: number(published.topic, scheduled),
                    number: number(published.topic, published.sequence),
                }],
                Origin::Sent { .. } | Origin::Forwarded { .. } => Vec::new(),
            },
            Record::EntityDeleted { .. } => vec![What::EntityDeleted],
            Record::QueueCreated { .. }
            | Record::PartStored { .. }
            | Record::Noted { .. }
            | Record::Skipped { .. }
            | Record::InSession { .. }
            | Record::SessionStateSet { .. }
            | Record::Forwarded { .. }
            | Record::Enqueued { .. }
            | Record::TransferDeadLettered { .. }
            | Record::Scheduled { .. }
            | Record::Deferred { .. }
            | Record::LocksKept { .. }
            | Record::Managed(_)
            | Record::Relocated { .. } => Vec::new(),
        }
    }

    /// Does what is due, `most` units of work at most, and says how many there were (at least one).
    pub(crate) fn work_off(&mut self, due: Due, most: usize, decision: &mut Deciding<'_>) -> usize {
        match due {
            Due::Lock(timer) => self.expire_lock(timer, most, decision),
            Due::Chore(entity, Chore::Expire) => self.expire_due(entity, most, decision),
            Due::Chore(entity, Chore::Activate) => self.activate_due(entity, most, decision),
            Due::Chore(entity, Chore::Idle) => self.end_idle(entity, decision),
            Due::Chore(entity, Chore::Forward) => self.retry_forward(entity),
        }
    }
}

#[cfg(test)]
mod ahead;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Incoming;
    use crate::command::ReceiveMode::PeekLock;
    use crate::settings::QueueSettings;
    use crate::testing::{World, deliveries, message};

    const HOUR: Span = Span::minutes(60);

    fn lock_expired(number: u64, fate: Fate) -> What {
        What::LockExpired { number: Number(number), fate }
    }

    fn expired(number: u64, fate: Fate) -> What {
        What::MessageExpired { number: Number(number), fate }
    }

    /// What happened, in seconds since `start`.
    fn told(advanced: &Advanced, start: LocalTime) -> Vec<(i64, &str, What)> {
        let seconds = |at: LocalTime| (at.0 - start.0) / 1_000;
        advanced.events.iter().map(|event| (seconds(event.at), &*event.entity, event.what)).collect()
    }

    fn time_in(world: &mut World, namespace: u32) -> LocalTime {
        let (request, namespace) = (RequestId::default(), NamespaceId(namespace));
        let task = Box::new(Task::TellTime);
        match &world.command(Command::Manage { request, namespace, task }, &[])[..] {
            [Effect::Answered { answer: Ok(Answer::Time(time)), .. }] => *time,
            other => panic!("{other:?}"),
        }
    }

    /// Locks, expiries of both kinds, a schedule and an idle queue, over an hour.
    fn busy() -> World {
        let mut world = World::with_queue("jobs");
        let settings = QueueSettings {
            default_time_to_live: Span::minutes(10),
            dead_letter_on_expiration: true,
            ..QueueSettings::default()
        };
        world.create("mortal", settings.clone());
        world.create("dropping", QueueSettings { dead_letter_on_expiration: false, ..settings });
        let settings = QueueSettings { auto_delete_on_idle: Span::minutes(30), ..QueueSettings::default() };
        world.create("idle", settings);
        world.send_committed("jobs", 2);
        let scheduled = Incoming { scheduled: world.local().after(Span::minutes(20)), ..message(10) };
        world.schedule("jobs", &[scheduled]).unwrap();
        world.send_committed("mortal", 1);
        world.send_committed("dropping", 2);
        world.receive("jobs", PeekLock, 1);
        world
    }

    #[test]
    fn due_instants_are_visited_in_order_and_each_at_its_own_time() {
        let mut world = busy();
        let start = world.local();
        // Real time passes between the ticks, and the instants do not move with it.
        let advanced = world.advance(0, HOUR, Span(7)).unwrap();
        let activated = What::MessageActivated { scheduled: Number(3), number: Number(4) };
        assert_eq!(
            told(&advanced, start),
            [
                (60, "jobs", lock_expired(1, Fate::Returned)),
                (600, "mortal", expired(1, Fate::DeadLettered)),
                (600, "dropping", expired(1, Fate::Dropped)),
                (600, "dropping", expired(2, Fate::Dropped)),
                (1_200, "jobs", activated),
                (1_800, "idle", What::EntityDeleted),
            ]
        );
        assert_eq!((advanced.more, advanced.now), (0, start.after(HOUR)));
        assert!(
            advanced.events.iter().all(|event| (event.at.0 - start.0) % 1_000 == 0),
            "to the millisecond"
        );
        assert_eq!(time_in(&mut world, 0), start.after(HOUR));
        let slot = *world.queue("jobs").index.get(Sequence(4)).unwrap();
        assert_eq!(slot.enqueued, start.after(Span::minutes(20)));
        world.restart();
        assert_eq!(time_in(&mut world, 0), start.after(HOUR), "time does not go back with a restart");
    }

    #[test]
    fn the_clock_of_one_namespace_moves_no_other() {
        let mut world = World::new();
        for (name, namespace) in [("one", 1), ("two", 2)] {
            world.manage(Task::NameNamespace { name: name.into() }).unwrap();
            let (request, namespace) = (RequestId::default(), NamespaceId(namespace));
            let settings =
                QueueSettings { default_time_to_live: Span::minutes(5), ..QueueSettings::default() };
            let (path, settings) = ("q".into(), Box::new(settings));
            world.command(Command::CreateQueue { request, namespace, path, settings }, &[]);
            let link = world.link();
            world.command(Command::AttachSender { link, namespace, path: "q".into() }, &[]);
            world.send(link, 0, &[message(10)]);
            world.commit();
        }
        let start = world.local();
        let advanced = world.advance(1, Span::minutes(4), Span(1)).unwrap();
        assert_eq!(told(&advanced, start), []);
        let after = world.now;
        assert_eq!(time_in(&mut world, 2), after.local(ClockOffset::default()));
        assert_eq!(time_in(&mut world, 1), start.after(Span::minutes(4)));
        // The minute that is left passes by itself, and in the other namespace it is only the first.
        world.pass(Span(59_999));
        assert!(!world.is_due());
        world.pass(Span(1));
        assert!(world.is_due());
        world.tick();
        let left = |world: &World| {
            world.broker.durable.queues().map(|(_, queue)| queue.counts.total()).collect::<Vec<_>>()
        };
        assert_eq!(left(&world), [0, 1]);
        world.pass(Span((start.after(Span::minutes(5)).0 - world.now.0) as u64));
        world.tick();
        assert_eq!(left(&world), [0, 0]);
    }

    #[test]
    fn nothing_is_handed_out_while_time_moves() {
        let mut world = World::with_queue("jobs");
        world.send_committed("jobs", 1);
        let first = world.receiver("jobs", PeekLock, 1);
        let waiting = world.receiver("jobs", PeekLock, 1);
        let start = world.local();
        let advanced = world.advance(0, HOUR, Span(1)).unwrap();
        // The lock ends once: nobody gets the message in the fifty-nine minutes after it.
        assert_eq!(told(&advanced, start), [(60, "jobs", lock_expired(1, Fate::Returned))]);
        let effects = world.take_effects();
        assert_eq!(deliveries(&effects), [(waiting, 1)]);
        let until = effects.iter().find_map(|effect| match effect {
            Effect::Deliver { delivery, .. } => delivery.locked_until,
            _ => None,
        });
        assert_eq!(until, Some(time_in(&mut world, 0).after(Span::minutes(1))));
        world.detach(first);
    }

    #[test]
    fn a_lock_that_outlives_its_message_decides_with_the_message() {
        let mut world = World::new();
        let settings = QueueSettings {
            default_time_to_live: Span::seconds(30),
            dead_letter_on_expiration: true,
            max_delivery_count: 1,
            ..QueueSettings::default()
        };
        world.create("q", settings);
        world.send_committed("q", 2);
        world.receiver("q", PeekLock, 2);
        let start = world.local();
        let advanced = world.advance(0, HOUR, Span(1)).unwrap();
        let ended = |number| (60, "q", lock_expired(number, Fate::DeadLettered));
        assert_eq!(told(&advanced, start), [ended(1), ended(2)]);
        // A lock in the dead-letter queue is told by its own path.
        world.receive("q/$DeadLetterQueue", PeekLock, 1);
        let start = time_in(&mut world, 0);
        let advanced = world.advance(0, HOUR, Span(1)).unwrap();
        assert_eq!(told(&advanced, start), [(60, "q/$deadletterqueue", lock_expired(1, Fate::Returned))]);
    }

    #[test]
    fn what_is_due_at_one_instant_is_told_in_the_order_of_its_messages() {
        let mut world = World::new();
        world.create("q", QueueSettings { max_delivery_count: 1, ..QueueSettings::default() });
        world.send_committed("q", 20);
        world.receiver("q", PeekLock, 20);
        let start = world.local();
        let advanced = world.advance(0, HOUR, Span(1)).unwrap();
        let ended = |number| (60, "q", lock_expired(number, Fate::DeadLettered));
        assert_eq!(told(&advanced, start), (1..=20).map(ended).collect::<Vec<_>>());
    }

    #[test]
    fn what_happens_beyond_the_limit_is_counted_and_done() {
        let mut world = World::new();
        let settings = QueueSettings { default_time_to_live: Span::minutes(1), ..QueueSettings::default() };
        world.create("q", settings);
        let count = (ADVANCE_EVENTS + TIMER_SLICE) as u32 + 1;
        world.send_committed("q", count);
        let start = world.local();
        let advanced = world.advance(0, HOUR, Span(1)).unwrap();
        assert_eq!((advanced.events.len(), advanced.more), (ADVANCE_EVENTS, TIMER_SLICE as u64 + 1));
        assert!(advanced.events.iter().all(|event| event.at == start.after(Span::minutes(1))));
        assert_eq!(world.queue("q").counts.total(), 0);
    }

    #[test]
    fn a_move_too_far_is_refused_and_moves_nothing() {
        let mut world = World::with_queue("q");
        let start = world.local();
        for (namespace, by) in [(0, Span(ADVANCE_MOST.0 + 1)), (0, Span::MAX), (1, HOUR)] {
            assert!(matches!(world.advance(namespace, by, Span(0)), Err(Refusal::InvalidSetting { .. })));
        }
        assert_eq!(time_in(&mut world, 0), start);
        assert!(world.advance(0, ADVANCE_MOST, Span(0)).is_ok());
        world.now = Time(CALENDAR_END.0 - ADVANCE_MOST.0 as i64 - 10);
        assert!(world.advance(0, Span(11), Span(0)).is_err(), "behind the year 9999");
        assert!(world.advance(0, Span(10), Span(0)).is_ok());
    }

    #[test]
    fn time_moved_twice_goes_on_from_where_it_was() {
        let mut world = busy();
        let start = world.local();
        let first = world.advance(0, Span::minutes(15), Span(3)).unwrap();
        world.restart();
        let second = world.advance(0, Span::minutes(45), Span(3)).unwrap();
        assert_eq!((first.events.len(), second.now), (4, start.after(HOUR)));
        // After a restart nobody knows since when the queue was idle.
        let idle = Span::minutes(45);
        assert_eq!(second.events.last().map(|event| event.at), Some(start.after(idle)));
    }
}
