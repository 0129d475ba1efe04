//! Receive-and-delete forgets a message before it leaves, so what the disk has of it is read first: a message whose body
//! is damaged stays.
//!
//! Messages that are next in line for such a receiver are asked for a slice at a time. The engine reads them
//! and says which are whole ([`Broker::checked`]); only those are removed and handed out. The others are locked for
//! nobody: they come up again when that lock ends, like any delivery that failed.

use crate::Broker;
use crate::command::Command;
use crate::decision::{Context, Decision, LocalContext};
use crate::durable::Queue;
use crate::effect::{Effect, Notice};
use crate::ids::{BodyId, LockToken, Sequence, Source};
use crate::limits::{CHECK_BYTES, CHECK_MESSAGES};
use crate::queue::index::State;
use crate::refusal::Refusal;
use crate::volatile::Lock;

/// What was read of messages; nothing of those that cannot be read.
pub type Fronts = Vec<(Sequence, Option<Read>)>;

/// What was read of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// The body that it begins with.
    pub front: Box<[u8]>,
    /// Changed properties, if they lie in a body of their own.
    pub overlay: Box<[u8]>,
}

impl Read {
    /// Of the bodies that a [`ReadRequest`] which wants content names for a message, in their order.
    pub fn of(bodies: impl IntoIterator<Item = Box<[u8]>>) -> Read {
        let mut bodies = bodies.into_iter();
        Read { front: bodies.next().unwrap_or_default(), overlay: bodies.next().unwrap_or_default() }
    }
}

/// Messages of one queue that are to be read before they may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    pub source: Source,
    /// Each with all of its bodies.
    pub messages: Vec<(Sequence, Vec<BodyId>)>,
    /// They are to be published or forwarded: each has the body that it begins with and that of its changed properties, if it has
    /// one, and what these hold is wanted ([`Broker::contents_read`]).
    pub wants_content: bool,
}

impl ReadRequest {
    /// The first messages of those that come next, `most` at the most, and no more than are read at once.
    pub(crate) fn of(
        queue: &Queue,
        source: Source,
        next: impl Iterator<Item = Sequence>,
        most: usize,
        wants_content: bool,
    ) -> ReadRequest {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for sequence in next {
            let slot = queue.index_of(source.sub).and_then(|index| index.get(sequence));
            let Some(slot) = slot.filter(|slot| slot.state() == State::Active) else { continue };
            messages.push(match wants_content {
                true => (sequence, queue.wanted_bodies(sequence, slot)),
                false => (sequence, queue.bodies(sequence, slot).collect()),
            });
            bytes += u64::from(slot.length) + queue.overlay_bytes(sequence);
            if messages.len() >= most.min(CHECK_MESSAGES) || bytes >= CHECK_BYTES {
                break;
            }
        }
        ReadRequest { source, messages, wants_content }
    }
}

impl Broker {
    /// Asks for the messages that come next at a queue, unless some are being read already.
    pub(crate) fn ask_to_check(&mut self, source: Source, decision: &mut Decision) {
        let wanted = self.volatile.ready(source).waiting.total();
        self.ask_to_read(source, usize::try_from(wanted).unwrap_or(usize::MAX), false, decision);
    }

    /// Asks for the next messages, `most` at the most. What they hold is asked for in its turn.
    pub(crate) fn ask_to_read(
        &mut self,
        source: Source,
        most: usize,
        wants_content: bool,
        decision: &mut Decision,
    ) {
        if self.volatile.ready(source).is_checking || wants_content && !self.volatile.may_read(source) {
            return;
        }
        let (queue, ready) = (self.queue_of(source), self.volatile.ready(source));
        let Some(index) = queue.index_of(source.sub) else { return };
        let is_free = |sequence: &Sequence| !ready.locks.contains_key(sequence);
        let mut from = ready.cursor;
        let in_order = std::iter::from_fn(|| {
            let (sequence, _) = index.next_active_from(from).filter(|(next, _)| *next <= ready.committed)?;
            from = sequence.next();
            Some(sequence)
        });
        let next = ready.returned.iter().copied().chain(in_order).filter(is_free);
        let request = ReadRequest::of(queue, source, next, most, wants_content);
        if wants_content {
            let wanted = |(sequence, _): &(Sequence, _)| {
                index.get(*sequence).map(|slot| queue.wanted_bytes(*sequence, slot))
            };
            let bytes = request.messages.iter().filter_map(wanted).sum();
            self.volatile.begin_read(source, bytes);
        } else {
            self.volatile.begin_check(source);
        }
        decision.read_requests.push(request);
    }

    /// The messages of a [`ReadRequest`] were read: those that are `whole` may go, those that are `damaged` stay.
    pub fn checked(
        &mut self,
        source: Source,
        whole: &[Sequence],
        damaged: &[Sequence],
        context: Context,
        decision: &mut Decision,
    ) {
        if self.durable.queue(source.entity).is_none() || self.keep_checked(source, whole, damaged) {
            return;
        }
        self.volatile.end_check(source, whole.iter().copied().collect());
        if self.has_sessions(source) {
            self.volatile.end_session_check(source.entity);
        }
        let local = self.context_at(source.entity, context);
        for sequence in damaged {
            self.withhold(source, *sequence, local);
        }
        let most = if self.volatile.ready(source).draining.is_empty() { 0 } else { usize::MAX };
        if most > 0 {
            self.hand_out(source, most, &mut decision.at(local));
            self.end_drains(source, decision);
        } else {
            self.volatile.stir(source);
        }
        self.dispatch(context, decision);
    }

    /// Locks a message for nobody.
    pub(crate) fn withhold(&mut self, source: Source, sequence: Sequence, context: LocalContext) {
        let queue = self.queue_of(source);
        let slot = queue.index_of(source.sub).and_then(|index| index.get(sequence));
        let is_free = slot.is_some_and(|slot| slot.state() == State::Active)
            && !self.volatile.ready(source).locks.contains_key(&sequence);
        if is_free {
            let until = context.now.after(queue.settings.lock_duration);
            let token = LockToken::new(self.volatile.fresh_nonce(), sequence);
            if self.has_sessions(source) {
                return self.volatile.add_lock(source, Lock { token, until });
            }
            let before = self.in_order_before(source, sequence);
            self.volatile.withhold(source, Lock { token, until }, before);
        }
    }

    /// The messages that are handed out in order before this one: no more than were read with it.
    fn in_order_before(&self, source: Source, end: Sequence) -> Vec<Sequence> {
        let index = self.queue_of(source).index_of(source.sub);
        let mut from = self.volatile.ready(source).cursor;
        let in_order = std::iter::from_fn(|| {
            let (sequence, _) = index?.next_active_from(from).filter(|(next, _)| *next < end)?;
            from = sequence.next();
            Some(sequence)
        });
        in_order.collect()
    }

    /// Tells the receivers that drain that there is no more, unless messages are still being read for them.
    pub(crate) fn end_drains(&mut self, source: Source, decision: &mut Decision) {
        if self.volatile.ready(source).is_checking {
            return;
        }
        for link in self.volatile.ready(source).draining.clone() {
            self.volatile.set_credit(link, 0);
            self.volatile.end_drain(source, link);
            decision.free_effect(Notice::Drained { link });
        }
    }

    /// Refuses a command for which a stored body was needed that cannot be read. Nothing else changes.
    pub fn refuse_unreadable(&mut self, command: &Command, decision: &mut Decision) {
        let refusal = Refusal::Unreadable;
        match command {
            Command::Within { transaction, command } => {
                self.refuse_unreadable(command, decision);
                self.operation_failed(*transaction, decision);
            }
            Command::Settle { link, delivery, wants_answer, .. } => {
                if *wants_answer {
                    decision.effect(Notice::NotSettled { link: *link, delivery: *delivery, refusal });
                }
            }
            Command::SettleTokens { request, .. } | Command::ReceiveDeferred { request, .. } => {
                decision.effect(Effect::Answered { request: *request, answer: Err(refusal) });
            }
            other => unreachable!("nothing stored is needed for {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Outcome;
    use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
    use crate::effect::{Effect, Notice};
    use crate::ids::Sequence;
    use crate::limits::CHECK_MESSAGES;
    use crate::record::Record;
    use crate::refusal::Refusal;
    use crate::testing::{World, deliveries};
    use crate::time::Span;

    /// Three messages, of which the second cannot be read.
    fn damaged() -> World {
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        world.unreadable.insert(Sequence(2));
        world
    }

    #[test]
    fn a_damaged_message_stays_and_those_behind_it_go() {
        let mut world = damaged();
        let link = world.link();
        world.attach_receiver(link, "q", ReceiveAndDelete);
        let records = world.records.len();
        let taken = deliveries(&world.credit(link, 10, false));
        assert_eq!(taken, [(link, 1), (link, 3)]);
        let removed = |record: &Record| matches!(record, Record::Removed { first: Sequence(2), .. });
        assert!(!world.records[records..].iter().any(removed));
        assert_eq!(world.queue("q").counts.active, 1, "it is still there");
    }

    #[test]
    fn a_damaged_message_comes_up_again_and_is_delivered_once_it_can_be_read() {
        let mut world = damaged();
        let link = world.link();
        world.attach_receiver(link, "q", ReceiveAndDelete);
        world.credit(link, 10, false);
        world.unreadable.clear();
        world.pass(Span::minutes(1));
        world.tick();
        assert_eq!(deliveries(&world.commit()), [(link, 2)]);
        assert_eq!(world.queue("q").counts.active, 0);
    }

    #[test]
    fn a_damaged_message_that_was_returned_stays_too() {
        let mut world = damaged();
        let link = world.receiver("q", PeekLock, 2);
        for sequence in [1, 2] {
            let token = world.token(sequence);
            world.settle(link, 0, token, Outcome::Abandon(None));
        }
        world.detach(link);
        world.commit();
        let taken: Vec<_> =
            world.receive("q", ReceiveAndDelete, 9).iter().map(|each| each.sequence.0).collect();
        assert_eq!(taken, [1, 3]);
        assert_eq!(world.queue("q").counts.active, 1);
    }

    #[test]
    fn a_drain_waits_until_everything_was_read() {
        let mut world = World::with_queue("q");
        let count = CHECK_MESSAGES as u32 * 2 + 5;
        world.send_committed("q", count);
        let link = world.link();
        world.attach_receiver(link, "q", ReceiveAndDelete);
        let effects = world.credit(link, count, true);
        assert_eq!(deliveries(&effects).len(), count as usize);
        assert_eq!(effects.last(), Some(&Effect::Notice(Notice::Drained { link })));
        assert_eq!(
            effects.iter().filter(|effect| matches!(effect, Effect::Notice(Notice::Drained { .. }))).count(),
            1
        );
    }

    #[test]
    fn a_deferred_message_that_is_damaged_is_refused_and_stays() {
        let mut world = damaged();
        let link = world.receiver("q", PeekLock, 2);
        let token = world.token(2);
        world.settle(link, 0, token, Outcome::Defer(None));
        world.detach(link);
        world.commit();
        assert_eq!(world.receive_deferred("q", &[2], ReceiveAndDelete), Err(Refusal::Unreadable));
        world.unreadable.clear();
        assert!(world.receive_deferred("q", &[2], ReceiveAndDelete).is_ok());
    }
}
