//! Sends by way of another entity (S-114): they are in their destination as if they had been sent there, or, while that
//! takes no messages, in the transfer dead-letter queue of the entity on the way. Never in both, never in none.

use super::commit::Stored;
use super::ledger::Present;
use super::{Link, Oracle};
use broker::queue::index::Reason;
use broker::{LinkId, LocalTime, SubQueue};

impl Oracle {
    /// A message falls out on its way: only because its destination is there and takes nothing.
    pub(super) fn transfer_dead_letter(
        &mut self,
        stored: &Stored<'_>,
        reason: Reason,
        time: LocalTime,
    ) -> Option<usize> {
        let Stored { entity, sequence, length, .. } = *stored;
        let number = self.sent(stored)?;
        let message = &self.messages[number];
        let destination = self.links.get(&message.link).and_then(|link| link.destination.clone());
        let target = destination.as_ref().and_then(|path| self.ledger.find(path));
        let target = target.and_then(|entity| self.ledger.queues.get(&entity));
        let is_closed = target.is_some_and(|target| !target.settings.status.may_send());
        let way = self.links.get(&message.link).map(|link| link.queue.clone()).unwrap_or_default();
        let (turn, position) = (self.turn, self.ledger.position + 1);
        let Some(queue) = self.ledger.queues.get_mut(&entity) else {
            self.fail("a message fell out on its way through a queue that does not exist");
            return None;
        };
        let wrong = [
            (destination.is_some(), "it was not sent by way of another queue"),
            (queue.path.eq_ignore_ascii_case(&way), "it fell out of a queue that was not on its way"),
            (queue.settings.status.may_send(), "S-230: the queue on its way is disabled"),
            (is_closed, "it fell out though its destination is open, or gone"),
            (reason == Reason::DestinationDisabled, "it fell out for another reason"),
            (queue.next == sequence, "I4: its number leaves a gap or is taken"),
            (queue.last_enqueued <= time, "its enqueued time runs backwards"),
        ];
        (queue.next, queue.last_enqueued) = (sequence.next(), time);
        (queue.used, queue.is_touched) = (time, true);
        let arrived = Present::arrived(number, length, turn, position, time);
        queue.insert(sequence, Present { sub: SubQueue::TransferDeadLetter, reason, ..arrived });
        let message = &mut self.messages[number];
        (message.place, message.path) = (Some((entity, sequence)), way);
        message.first = message.place;
        for (_, what) in wrong.into_iter().filter(|(is_right, _)| !is_right) {
            self.fail(format!("message {number} as {sequence:?}: {what}"));
        }
        Some(number)
    }

    /// Whether all messages of a delivery are where those are that fell out.
    pub(super) fn is_transfer_dead(&self, link: LinkId, delivery: u32) -> bool {
        self.of_delivery(link, delivery).iter().all(|message| {
            message.place.is_some_and(|(entity, sequence)| {
                let queues = &self.ledger.queues;
                let queue = queues.get(&entity).or(self.ledger.deleted.get(&entity).map(|(_, queue)| queue));
                let present = queue.and_then(|queue| queue.present.get(&sequence));
                let present = present.or(self.ledger.removed.get(&(entity, sequence)));
                present.is_some_and(|present| present.sub == SubQueue::TransferDeadLetter)
            })
        })
    }

    /// Whether the destination of a link may have been missing in this turn.
    pub(super) fn may_lack_destination(&self, link: &Link) -> bool {
        let Some(path) = &link.destination else { return false };
        let found = self.ledger.find(path).and_then(|entity| self.ledger.queues.get(&entity));
        found.is_none_or(|queue| queue.made == self.turn) || self.went(path)
    }
}
