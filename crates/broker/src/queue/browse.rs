//! Looking at messages: nothing is locked and nothing changes (S-130). The answer names the messages; the engine that runs the
//! broker adds their bodies.

use super::receive::delivery;
use crate::Broker;
use crate::decision::LocalContext;
use crate::durable::Queue;
use crate::effect::Answer;
use crate::ids::{NamespaceId, Number, Sequence};
use crate::limits::{BROWSE_BYTES, BROWSE_MESSAGES};
use crate::queue::index::{Index, Slot};
use crate::refusal::Refusal;

impl Broker {
    /// Messages in the order of their numbers, from one on (S-132): active, locked, deferred, scheduled (S-131).
    pub(crate) fn browse(
        &mut self,
        namespace: NamespaceId,
        path: &str,
        from: Number,
        most: u32,
        session: Option<&str>,
        context: LocalContext,
    ) -> Result<Answer, Refusal> {
        let source = self.resolve_for_receive(namespace, path)?;
        let queue = self.queue_of(source);
        let most = (most as usize).min(BROWSE_MESSAGES);
        let mut seen = Vec::new();
        let mut bytes = 0;
        if let Some(index) = queue.index_of(source.sub)
            && let Some(mut next) = first_of(queue, from)
        {
            while seen.len() < most
                && let Some((sequence, slot)) = next_of(queue, index, session, next)
            {
                bytes += u64::from(slot.length) + queue.overlay_bytes(sequence);
                if bytes > BROWSE_BYTES && !seen.is_empty() {
                    break;
                }
                seen.extend(delivery(queue, source, sequence));
                next = sequence.next();
            }
        }
        // S-71
        self.volatile.set_used(source.entity, context.now);
        Ok(Answer::Messages(seen))
    }
}

/// The next message, of all or of one session (S-134).
fn next_of<'q>(
    queue: &'q Queue,
    part: &'q Index,
    session: Option<&str>,
    from: Sequence,
) -> Option<(Sequence, &'q Slot)> {
    let Some(session) = session else { return part.next_from(from) };
    let session = queue.sessions.as_ref()?.get(session)?;
    let (active, aside) = (session.active.next_from(from), session.aside.next_from(from));
    let next = active.into_iter().chain(aside).min()?;
    Some((next, part.get(next)?))
}

/// Where to begin. Clients count from zero or one, which in a partitioned queue is before everything.
fn first_of(queue: &Queue, from: Number) -> Option<Sequence> {
    if from < queue.number(Sequence(0)) { Some(Sequence(0)) } else { queue.sequence(from) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Outcome};
    use crate::queue::index::State;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::time::Span;

    fn seen(world: &mut World, from: u64, most: u32) -> Vec<u64> {
        match world.browse("q", from, most) {
            Ok(Answer::Messages(messages)) => messages.iter().map(|each| each.number.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_of_every_state_are_seen_in_order_and_dead_letters_are_not() {
        // S-8, S-43, S-131, S-132
        let mut world = World::with_queue("q");
        world.send_committed("q", 4);
        let scheduled = Incoming { scheduled: world.local().after(Span::minutes(1)), ..message(1) };
        world.schedule("q", &[scheduled]).unwrap();
        let link = world.receiver("q", PeekLock, 3);
        let (deferred, dead) = (world.token(2), world.token(3));
        world.settle(link, 0, deferred, Outcome::Defer(None));
        world.settle(link, 0, dead, Outcome::DeadLetter(None));
        let Ok(Answer::Messages(messages)) = world.browse("q", 0, 9) else { panic!() };
        let states: Vec<_> = messages.iter().map(|each| (each.number.0, each.state)).collect();
        let expected = [(1, State::Active), (2, State::Deferred), (4, State::Active), (5, State::Scheduled)];
        assert_eq!(states, expected);
    }

    #[test]
    fn looking_changes_nothing_and_shows_no_locks() {
        // S-86, S-130, S-133
        let mut world = World::with_queue("q");
        world.send_committed("q", 2);
        world.receiver("q", PeekLock, 1);
        let before = world.broker.durable().fingerprint();
        let records = world.records.len();
        let Ok(Answer::Messages(messages)) = world.browse("q", 0, 9) else { panic!() };
        assert!(messages.iter().all(|each| each.locked_until.is_none() && each.count == 0));
        assert_eq!((world.broker.durable().fingerprint(), world.records.len()), (before, records));
        assert_eq!(world.receive("q", PeekLock, 9).len(), 1);
    }

    #[test]
    fn a_browser_goes_on_where_it_was() {
        // S-130, S-132
        let mut world = World::with_queue("q");
        world.send_committed("q", 5);
        assert_eq!(seen(&mut world, 1, 2), [1, 2]);
        assert_eq!(seen(&mut world, 3, 2), [3, 4]);
        assert_eq!(seen(&mut world, 5, 2), [5]);
        assert_eq!(seen(&mut world, 6, 2), [0; 0]);
        assert_eq!(seen(&mut world, 1, 0), [0; 0]);
    }

    #[test]
    fn an_answer_is_never_too_long_and_never_too_large() {
        // S-133
        let mut world = World::with_queue("q");
        world.send_committed("q", BROWSE_MESSAGES as u32 + 1);
        assert_eq!(seen(&mut world, 0, u32::MAX).len(), BROWSE_MESSAGES);
        let link = world.sender("q");
        let large = message(BROWSE_BYTES as u32);
        (0..2).for_each(|delivery| drop(world.send(link, delivery, &[large])));
        assert_eq!(seen(&mut world, 1_002, 9), [1_002]);
    }

    #[test]
    fn a_partitioned_queue_is_seen_from_its_first_number_on() {
        // S-32, S-132, S-135, S-221
        let mut world = World::with_queue("other");
        world.create("q", QueueSettings { partitioning: true, ..QueueSettings::default() });
        world.send_committed("q", 3);
        let partition = 1 << 48;
        assert_eq!(seen(&mut world, 0, 9), [partition + 1, partition + 2, partition + 3]);
        assert_eq!(seen(&mut world, 1, 1), [partition + 1]);
        assert_eq!(seen(&mut world, partition + 2, 9), [partition + 2, partition + 3]);
        assert_eq!(seen(&mut world, 2 * partition, 9), [0; 0]);
    }
}
