//! Which messages are free to be handed out, and which will be once they are committed.

use super::{Lock, Volatile};
use crate::credit_line::Line;
use crate::ids::{EntityId, IdMap, LinkId, Position, Sequence, Source};
use crate::queue::read_request::Read;
use crate::touched::touched;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The hand-out side of a queue.
#[derive(Debug, Default)]
pub struct Ready {
    /// Everything below was handed out at least once, or is gone, or is not received in order.
    pub cursor: Sequence,
    /// Messages up to here are committed.
    pub committed: Sequence,
    /// Handed out before, and free again: these go first, being older (S-85). In a dead-letter queue, which does not
    /// fill in the order of its numbers, everything that is free.
    pub returned: BTreeSet<Sequence>,
    pub locks: IdMap<Sequence, Lock>,
    /// The receivers that wait for messages, in the order in which the credit came (S-97).
    pub waiting: Line,
    /// Dead letters that were to be forwarded and have come too far. Nobody receives them while the others are forwarded.
    pub(super) resting: BTreeSet<Sequence>,
    /// Messages that are known to be readable, and may be removed before they leave.
    pub vouched: BTreeSet<Sequence>,
    /// Some are being read to find out, or for what the rules of a topic ask for.
    pub is_checking: bool,
    /// Of those up to [`Ready::committed`], the ones that are not: they took numbers that were told before.
    pub unwritten: BTreeSet<Sequence>,
    /// What was read of messages that are about to be published; nothing of those that cannot be read.
    pub(super) fronts: BTreeMap<Sequence, Option<Read>>,
    /// The receivers that get what there is and are then told that this was all.
    pub draining: Vec<LinkId>,
    pub(super) is_stirred: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Awaiting {
    position: Position,
    source: Source,
    what: Freed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// New messages up to here.
    Arrived(Sequence),
    Returned(Sequence),
    /// One that has a number among earlier ones.
    Written(Sequence),
    /// A new message of a session.
    Joined(Arc<str>, Sequence),
    /// One of a session, back from its receiver.
    Rejoined(Arc<str>, Sequence),
}

impl Volatile {
    /// A new message will be free once `position` is committed.
    pub(crate) fn await_arrival(&mut self, entity: EntityId, sequence: Sequence, position: Position) {
        let source = Source::main(entity);
        match self.awaiting.back_mut() {
            Some(Awaiting { position: p, source: s, what: Freed::Arrived(last) })
                if *p == position && *s == source =>
            {
                *last = sequence;
            }
            _ => self.await_commit(source, position, Freed::Arrived(sequence)),
        }
    }

    /// A message that waits for its time under an earlier number can be read once `position` is committed.
    pub(crate) fn await_writing(&mut self, source: Source, sequence: Sequence, position: Position) {
        self.ready_mut(source).unwritten.insert(sequence);
        self.await_commit(source, position, Freed::Written(sequence));
    }

    /// A message out of its order will be free once `position` is committed.
    pub(crate) fn await_return(&mut self, source: Source, sequence: Sequence, position: Position) {
        self.await_commit(source, position, Freed::Returned(sequence));
    }

    pub(super) fn await_commit(&mut self, source: Source, position: Position, what: Freed) {
        self.awaiting.push_back(Awaiting { position, source, what });
    }

    /// Everything up to `position` is committed.
    pub(crate) fn commit(&mut self, position: Position) {
        while let Some(awaiting) = self.awaiting.pop_front_if(|awaiting| awaiting.position <= position) {
            let ready = self.ready_mut(awaiting.source);
            match awaiting.what {
                Freed::Arrived(last) => ready.committed = ready.committed.max(last),
                Freed::Returned(sequence) => {
                    ready.returned.insert(sequence);
                }
                Freed::Written(sequence) => {
                    ready.unwritten.remove(&sequence);
                    ready.committed = ready.committed.max(sequence);
                }
                Freed::Joined(session, sequence) => {
                    ready.committed = ready.committed.max(sequence);
                    self.rejoin(awaiting.source.entity, session, sequence, true);
                }
                Freed::Rejoined(session, sequence) => {
                    self.rejoin(awaiting.source.entity, session, sequence, false);
                }
            }
            self.stir(awaiting.source);
        }
    }

    /// The queues in which something becomes free with `position`, and whether that is new there.
    pub(crate) fn freed_by(&self, position: Position) -> impl Iterator<Item = (Source, bool)> {
        let is_freed = move |awaiting: &&Awaiting| awaiting.position <= position;
        let freed = self.awaiting.iter().take_while(is_freed);
        freed.map(|awaiting| (awaiting.source, matches!(awaiting.what, Freed::Arrived(_))))
    }

    /// A message that was unlocked without a record (handed back unread) is free at once.
    pub(crate) fn free_now(&mut self, source: Source, sequence: Sequence) {
        self.ready_mut(source).returned.insert(sequence);
        self.stir(source);
    }

    /// The next free message is no longer free: somebody takes it.
    pub(crate) fn take(&mut self, source: Source, sequence: Sequence) {
        touched(1);
        let ready = self.ready_mut(source);
        ready.vouched.remove(&sequence);
        if !ready.returned.remove(&sequence) {
            ready.cursor = ready.cursor.max(sequence.next());
        }
    }

    /// A message is no longer free, in whatever order it would have come.
    pub(crate) fn withdraw(&mut self, source: Source, sequence: Sequence) {
        touched(1);
        self.ready_mut(source).returned.remove(&sequence);
    }

    /// Nothing below `to` is to be handed out in order.
    pub(crate) fn pass(&mut self, source: Source, to: Sequence) {
        let ready = self.ready_mut(source);
        ready.cursor = ready.cursor.max(to);
    }

    /// Messages are being read that can be removed only afterwards.
    pub(crate) fn begin_check(&mut self, source: Source) {
        self.ready_mut(source).is_checking = true;
    }

    /// They were read; `whole` are those that could be.
    pub(crate) fn end_check(&mut self, source: Source, whole: BTreeSet<Sequence>) {
        let ready = self.ready_mut(source);
        ready.is_checking = false;
        ready.vouched = whole;
    }

    /// What was read of a message, if it was; taken, for it is needed once.
    pub(crate) fn take_front(&mut self, source: Source, sequence: Sequence) -> Option<Option<Read>> {
        self.ready_mut(source).fronts.remove(&sequence)
    }

    /// A free message is not to be forwarded.
    pub(crate) fn rest(&mut self, source: Source, sequence: Sequence) {
        let ready = self.ready_mut(source);
        ready.returned.remove(&sequence);
        ready.resting.insert(sequence);
    }

    /// Whether an entity forwards, and where, may have changed.
    pub(crate) fn redirect(&mut self, entity: EntityId) {
        for source in [Source::main(entity), Source::dead_letter(entity)] {
            let ready = self.ready_mut(source);
            ready.returned.append(&mut ready.resting);
            ready.fronts.clear();
            self.stir(source);
        }
        self.forget_reading(entity);
        self.call_readers();
    }

    pub(crate) fn stir(&mut self, source: Source) {
        let ready = self.ready_mut(source);
        if !ready.is_stirred {
            ready.is_stirred = true;
            self.stirred.push_back(source);
        }
    }

    /// Whether a queue has its turn again without being stirred.
    pub(crate) fn is_stirred(&self, source: Source) -> bool {
        self.ready(source).is_stirred
    }

    /// The next queue that may have something to hand out.
    pub(crate) fn next_stirred(&mut self) -> Option<Source> {
        let source = self.stirred.pop_front()?;
        self.ready_mut(source).is_stirred = false;
        Some(source)
    }

    /// Whether a queue may have something to hand out.
    pub(crate) fn has_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }
}
