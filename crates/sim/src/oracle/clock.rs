//! What time it is in each namespace. The oracle counts for itself: a namespace is ahead of the owner by what its advances have
//! added, from the record that says so on. While an advance is under way only bounds are known for what leaves; what is recorded
//! is dated to the millisecond.

use super::ledger::{Queue, path_of};
use super::{Oracle, Question};
use broker::clock::{Advanced, Fate, Happened, Happening};
use broker::queue::index::Reason;
use broker::topic::change::Change;
use broker::topic::published::{Origin, Published};
use broker::{ClockOffset, EntityId, LocalTime, NamespaceId, Number, Record, Sequence, Span, SubQueue, Time};

/// The clock of one namespace.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    /// How far it is ahead, by what is committed.
    offset: ClockOffset,
    /// The same when this turn began.
    before: ClockOffset,
    /// How far somebody has asked in this turn to move it.
    asked: Span,
    /// Where the last advance of this turn has ended, by its answer.
    arrived: Option<LocalTime>,
}

/// An instant that an advance has come to.
#[derive(Debug)]
pub struct Visit {
    namespace: NamespaceId,
    at: LocalTime,
    events: Vec<Event>,
}

/// Something that happened there, as its record tells.
#[derive(Debug)]
struct Event {
    path: String,
    /// Whether a lock ended, if that can be known.
    is_lock: Option<bool>,
    what: Ended,
}

#[derive(Debug, Clone, Copy)]
enum Ended {
    Message(Number, Fate),
    /// Under which number it was scheduled, and which it has now.
    Activated(Number, Number),
    Deleted,
}

/// The clocks of all namespaces, by number.
#[derive(Debug, Default)]
pub struct Clocks(Vec<Clock>);

impl Clocks {
    fn of(&self, namespace: NamespaceId) -> Clock {
        self.0.get(namespace.0 as usize).copied().unwrap_or_default()
    }

    fn of_mut(&mut self, namespace: NamespaceId) -> &mut Clock {
        let at = namespace.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Clock::default());
        }
        &mut self.0[at]
    }

    /// The time of a namespace in a batch of the owner's time `time`, behind all that is committed.
    pub fn at(&self, namespace: NamespaceId, time: Time) -> LocalTime {
        time.local(self.of(namespace).offset)
    }

    /// The earliest that it may have been when something was decided in a turn that began at `began`.
    pub fn earliest(&self, namespace: NamespaceId, began: Time) -> LocalTime {
        began.local(self.of(namespace).before)
    }

    /// The latest that it may be by now, moves that are under way included.
    pub fn latest(&self, namespace: NamespaceId, now: Time) -> LocalTime {
        let clock = self.of(namespace);
        now.local(clock.offset).max(now.local(clock.before).after(clock.asked))
    }

    /// Somebody asks to move it.
    pub fn asked(&mut self, namespace: NamespaceId, by: Span) {
        self.of_mut(namespace).asked.0 += by.0;
    }

    /// An advance has come to `to`, by a committed record.
    fn moved(&mut self, namespace: NamespaceId, to: LocalTime, owner: Time) {
        self.of_mut(namespace).offset = to.offset_from(owner);
    }

    /// No advance is under way.
    pub fn settle(&mut self) {
        self.0.iter_mut().for_each(|clock| clock.asked = Span(0));
    }

    pub fn end_turn(&mut self) {
        self.settle();
        self.0.iter_mut().for_each(|clock| (clock.before, clock.arrived) = (clock.offset, None));
    }
}

impl Oracle {
    /// A queue, also one that is gone.
    fn ever(&self, entity: EntityId) -> Option<&Queue> {
        self.ledger.queues.get(&entity).or(self.ledger.deleted.get(&entity).map(|(_, queue)| queue))
    }

    fn namespace_of(&self, entity: EntityId) -> NamespaceId {
        self.ever(entity).map_or(NamespaceId(0), |queue| queue.namespace)
    }

    /// The time at an entity now, or a little later than that.
    pub(super) fn here(&self, entity: EntityId) -> LocalTime {
        self.clocks.latest(self.namespace_of(entity), self.now)
    }

    /// The time at an entity when this turn began.
    pub(super) fn since(&self, entity: EntityId) -> LocalTime {
        self.clocks.earliest(self.namespace_of(entity), self.began)
    }

    /// The time at an entity in a batch of that time.
    pub(super) fn local(&self, entity: EntityId, time: Time) -> LocalTime {
        self.clocks.at(self.namespace_of(entity), time)
    }

    /// The time at which a record was made, as its namespace counts.
    pub(super) fn dated(&self, record: &Record, time: Time) -> LocalTime {
        match record {
            Record::QueueCreated { namespace, .. } => self.clocks.at(*namespace, time),
            Record::Managed(change) => match &**change {
                Change::TopicCreated { namespace, .. } => self.clocks.at(*namespace, time),
                Change::SubscriptionCreated { topic: entity, .. }
                | Change::QueueUpdated { entity, .. }
                | Change::TopicUpdated { entity, .. }
                | Change::SubscriptionUpdated { entity, .. }
                | Change::RulePut { subscription: entity, .. }
                | Change::RuleRemoved { subscription: entity, .. }
                | Change::AccessChanged { entity, .. } => self.local(*entity, time),
                Change::NamespaceNamed { .. } | Change::ClockMoved { .. } => {
                    self.clocks.at(NamespaceId(0), time)
                }
            },
            Record::EntityDeleted { entity }
            | Record::Enqueued { entity, .. }
            | Record::Scheduled { entity, .. }
            | Record::Activated { entity, .. }
            | Record::Removed { entity, .. }
            | Record::Returned { entity, .. }
            | Record::Deferred { entity, .. }
            | Record::DeadLettered { entity, .. }
            | Record::TransferDeadLettered { entity, .. }
            | Record::Noted { entity, .. }
            | Record::Skipped { entity, .. }
            | Record::InSession { entity, .. }
            | Record::OverlayStored { entity, .. }
            | Record::SessionStateSet { entity, .. } => self.local(*entity, time),
            Record::Forwarded { source, .. } => self.local(source.entity, time),
            Record::Published(published) => self.local(published.topic, time),
            Record::PartStored { .. } | Record::LocksKept { .. } | Record::Relocated { .. } => {
                self.clocks.at(NamespaceId(0), time)
            }
        }
    }

    /// The time where a path leads, for clients who count with it.
    pub fn local_at(&self, path: &str) -> LocalTime {
        self.clocks.at(crate::workload::namespace_of(path), self.now)
    }

    /// A record says that the time of a namespace was moved: because somebody asked, ahead, and no further.
    pub(super) fn clock_moved(&mut self, namespace: NamespaceId, to: LocalTime, owner: Time) {
        let is_asked = |question: &Question| matches!(question, Question::Advance(of, _) if *of == namespace);
        if !self.asked.iter().any(is_asked) {
            self.fail(format!("the time of {namespace:?} was moved and nobody asked"));
        }
        let bounds = self.clocks.earliest(namespace, self.began)..=self.clocks.latest(namespace, self.now);
        let last = self.visits.iter().rev().find(|visit| visit.namespace == namespace).map(|last| last.at);
        if !bounds.contains(&to) || last.is_some_and(|last| to < last) {
            self.fail(format!("P5: the time of {namespace:?} was moved to {to:?}, out of {bounds:?}"));
        }
        if last != Some(to) {
            self.visits.push(Visit { namespace, at: to, events: Vec::new() });
        }
        self.clocks.moved(namespace, to, owner);
        // A lock may have begun and ended within this turn, so that what leaves is older news.
        self.is_blurred = true;
        self.coverage.fault("time moved");
    }

    /// Notes what a record means to somebody who moves time, if it was made at an instant that an advance has come to.
    pub(super) fn note_visit(&mut self, record: &Record, dated: LocalTime) {
        if self.visits.is_empty() {
            return;
        }
        let Some((entity, events)) = self.events(record) else { return };
        let namespace = self.namespace_of(entity);
        if let Some(visit) = self.visits.last_mut()
            && (visit.namespace, visit.at) == (namespace, dated)
        {
            visit.events.extend(events);
        }
    }

    /// What a record means to somebody who moves time, before it is taken into the model.
    fn events(&self, record: &Record) -> Option<(EntityId, Vec<Event>)> {
        let one = |entity: EntityId, sequence: Sequence, is_lock: Option<bool>, fate: Fate| {
            let queue = self.ledger.queues.get(&entity)?;
            let sub = queue.present.get(&sequence).map_or(SubQueue::Main, |present| present.sub);
            let number = queue.number(sequence);
            Some(Event { path: path_of(&queue.path, sub), is_lock, what: Ended::Message(number, fate) })
        };
        let activated = |entity: EntityId, scheduled: Sequence, sequence: Sequence| {
            let queue = self.ledger.queues.get(&entity)?;
            let what = Ended::Activated(queue.number(scheduled), queue.number(sequence));
            Some(Event { path: queue.path.clone(), is_lock: None, what })
        };
        let (entity, events) = match record {
            Record::Returned { entity, sequence, .. } => {
                (*entity, vec![one(*entity, *sequence, Some(true), Fate::Returned)?])
            }
            // Others fall out on the way from one entity to another, and nobody is told.
            Record::DeadLettered { reason, is_failure: false, .. } if *reason != Reason::Expired => {
                return None;
            }
            Record::DeadLettered { entity, sequence, is_failure, .. } => {
                (*entity, vec![one(*entity, *sequence, Some(*is_failure), Fate::DeadLettered)?])
            }
            Record::Removed { entity, first, count } => {
                let all = first.0..first.0 + u64::from(*count);
                let dropped = |number| one(*entity, Sequence(number), None, Fate::Dropped);
                (*entity, all.filter_map(dropped).collect())
            }
            Record::Activated { entity, scheduled, sequence, .. } => {
                (*entity, vec![activated(*entity, *scheduled, *sequence)?])
            }
            Record::Published(published) => match published.origin {
                Origin::Scheduled(scheduled) => {
                    let Published { topic, sequence, .. } = **published;
                    (topic, vec![activated(topic, scheduled, sequence)?])
                }
                Origin::Sent { .. } | Origin::Forwarded { .. } => return None,
            },
            Record::EntityDeleted { entity } => {
                let path = self.ledger.queues.get(entity)?.path.clone();
                (*entity, vec![Event { path, is_lock: None, what: Ended::Deleted }])
            }
            _ => return None,
        };
        Some((entity, events))
    }

    /// What time it is, was told.
    pub(super) fn time_told(&mut self, namespace: NamespaceId, time: LocalTime) {
        let bounds = self.clocks.earliest(namespace, self.began)..=self.clocks.latest(namespace, self.now);
        if !bounds.contains(&time) {
            self.fail(format!("the time of {namespace:?} is told as {time:?}, out of {bounds:?}"));
        }
    }

    /// An advance has ended: where it was to, and everything that happened on the way was told, in its order.
    pub(super) fn advanced(&mut self, namespace: NamespaceId, by: Span, told: &Advanced) {
        let start = self.clocks.earliest(namespace, self.began);
        let visits = self.visits.iter().filter(|visit| visit.namespace == namespace && visit.at <= told.now);
        let is_there = told.now >= start.after(by) && visits.clone().any(|visit| visit.at == told.now);
        if !is_there || told.now > self.clocks.latest(namespace, self.now) {
            return self.fail(format!("{namespace:?} was moved by {by:?} to {:?}", told.now));
        }
        // Several may be decided in one append. Those who asked are answered in any order, and what an advance before this one
        // has told is not told again.
        let is_move = |question: &&Question| matches!(question, Question::Advance(of, _) if *of == namespace);
        let is_one_of_several = self.asked.iter().filter(is_move).count() > 1;
        let arrived = self.clocks.of(namespace).arrived.filter(|arrived| *arrived < told.now);
        // What others did before it began, or after it ended, may have the same date. And what is activated may push others
        // out of where it goes to, which is not told.
        let ends = [arrived.unwrap_or(start), told.now];
        let is_of_others =
            |at: LocalTime| ends.contains(&at) || (is_one_of_several && at.after(by) <= told.now);
        let all = visits.flat_map(|visit| {
            let is_activation = |event: &Event| matches!(event.what, Ended::Activated(..));
            let may_be_untold = is_of_others(visit.at) || visit.events.iter().any(is_activation);
            visit.events.iter().map(move |event| {
                let may_be_untold = may_be_untold && (is_of_others(visit.at) || !is_activation(event));
                (visit.at, event, may_be_untold)
            })
        });
        let mut expected = all.filter(|(at, ..)| *at >= ends[0]).peekable();
        for happened in &told.events {
            let is_it =
                |(at, event, _): &(LocalTime, &Event, bool)| *at == happened.at && event.is_told_as(happened);
            while expected.next_if(|each| !is_it(each) && each.2).is_some() {}
            if expected.next_if(is_it).is_none() {
                let what = expected.next().map(|(at, event, _)| format!("{event:?} at {at:?}"));
                return self.fail(format!("an advance told {happened:?}, not {what:?}"));
            }
        }
        let rest = expected.filter(|(.., may_be_untold)| !may_be_untold).count() as u64;
        if rest > told.more {
            return self.fail(format!("an advance did not tell {rest} things, and said {}", told.more));
        }
        let arrived = self.clocks.of(namespace).arrived.max(Some(told.now));
        self.clocks.of_mut(namespace).arrived = arrived;
        if !told.events.is_empty() {
            self.coverage.fault("time moved past something");
        }
    }
}

impl Event {
    fn is_told_as(&self, happened: &Happened) -> bool {
        let is_what = match (self.what, happened.what) {
            (Ended::Message(number, fate), Happening::LockExpired { number: told, fate: end }) => {
                (number, fate) == (told, end) && self.is_lock != Some(false)
            }
            (Ended::Message(number, fate), Happening::MessageExpired { number: told, fate: end }) => {
                (number, fate) == (told, end) && self.is_lock != Some(true)
            }
            (
                Ended::Activated(scheduled, number),
                Happening::MessageActivated { scheduled: was, number: is },
            ) => (scheduled, number) == (was, is),
            (Ended::Deleted, Happening::EntityDeleted) => true,
            _ => false,
        };
        is_what && self.path.eq_ignore_ascii_case(&happened.entity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: NamespaceId = NamespaceId(0);
    const SECOND: NamespaceId = NamespaceId(1);

    #[test]
    fn a_move_under_way_is_between_two_bounds_and_moves_no_other_namespace() {
        let mut clocks = Clocks::default();
        clocks.asked(SECOND, Span(100));
        assert_eq!(clocks.earliest(SECOND, Time(5)), LocalTime(5));
        assert_eq!(clocks.latest(SECOND, Time(7)), LocalTime(107));
        assert_eq!(clocks.latest(FIRST, Time(7)), LocalTime(7));
        clocks.moved(SECOND, LocalTime(60), Time(6));
        assert_eq!(clocks.at(SECOND, Time(7)), LocalTime(61));
        assert_eq!(clocks.latest(SECOND, Time(7)), LocalTime(107));
        clocks.end_turn();
        assert_eq!(clocks.earliest(SECOND, Time(7)), LocalTime(61));
        assert_eq!(clocks.latest(SECOND, Time(7)), LocalTime(61));
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle { now: Time(1_000), began: Time(1_000), ..Oracle::default() };
        oracle.asked.push(Question::Advance(SECOND, Span(100)));
        oracle.clocks.asked(SECOND, Span(100));
        oracle
    }

    fn deleted(at: i64) -> Happened {
        Happened { at: LocalTime(at), entity: "q".into(), what: Happening::EntityDeleted }
    }

    #[test]
    fn a_move_must_be_asked_for_and_go_ahead_and_no_further() {
        let violated = |namespace, to| {
            let mut oracle = oracle();
            oracle.clock_moved(namespace, LocalTime(to), Time(1_000));
            oracle.violation.is_some()
        };
        assert!(!violated(SECOND, 1_000) && !violated(SECOND, 1_100));
        assert!(violated(FIRST, 1_050) && violated(SECOND, 999) && violated(SECOND, 1_101));
    }

    #[test]
    fn of_two_moves_the_later_may_be_answered_first() {
        let told = |first: Vec<Happened>, second: Vec<Happened>| {
            let mut oracle = oracle();
            oracle.asked.push(Question::Advance(SECOND, Span(60)));
            oracle.clocks.asked(SECOND, Span(60));
            for at in [1_020, 1_100, 1_140, 1_160] {
                oracle.clock_moved(SECOND, LocalTime(at), Time(1_000));
                let event = Event { path: "Q".to_owned(), is_lock: None, what: Ended::Deleted };
                oracle.visits.last_mut().unwrap().events.push(event);
            }
            let answer = |now, events| Advanced { now: LocalTime(now), events, more: 0 };
            oracle.advanced(SECOND, Span(60), &answer(1_160, second));
            oracle.advanced(SECOND, Span(100), &answer(1_100, first));
            oracle.violation.is_none()
        };
        let [first, second, third] = [1_020, 1_140, 1_160].map(deleted);
        assert!(told(vec![first.clone()], vec![second.clone(), third.clone()]));
        assert!(!told(vec![first], vec![third.clone()]), "one of the second is missing");
        assert!(!told(vec![], vec![second, third]), "one of the first is missing");
    }

    #[test]
    fn the_answer_to_a_move_tells_what_was_recorded_in_its_order() {
        let told = |now: i64, events: Vec<Happened>| {
            let mut oracle = oracle();
            for at in [1_020, 1_040, 1_100] {
                oracle.clock_moved(SECOND, LocalTime(at), Time(1_000));
                let event = Event { path: "Q".to_owned(), is_lock: None, what: Ended::Deleted };
                oracle.visits.last_mut().unwrap().events.push(event);
            }
            oracle.advanced(SECOND, Span(100), &Advanced { now: LocalTime(now), events, more: 0 });
            oracle.violation.is_none()
        };
        let [first, second, last] = [1_020, 1_040, 1_100].map(deleted);
        assert!(told(1_100, vec![first.clone(), second.clone(), last.clone()]));
        // What has the date of the end may have been done by somebody else.
        assert!(told(1_100, vec![first.clone(), second.clone()]));
        assert!(!told(1_100, vec![first.clone(), last.clone()]), "one is missing");
        assert!(!told(1_100, vec![second.clone(), first.clone(), last.clone()]), "another order");
        assert!(!told(1_100, vec![first.clone(), second.clone(), deleted(1_099)]), "another time");
        assert!(!told(1_099, vec![first, second]), "it was not moved so far");
    }
}
