//! What lives long in memory, in bytes, about: the index of messages, changed properties, sessions, the ids in which duplicates are
//! looked for, locks, and definitions. All of it together has a limit, and at it nothing that adds to it is taken, while
//! receiving, settling and deleting go on.
//!
//! It is counted anew each time enough has changed, which costs little for each change, and not with each of them.

use crate::Broker;
use crate::durable::{Durable, Queue};
use crate::limits::{
    DEAD_LETTER_COST, DELETED_COST, ENTITY_COST, FULL_STATE_LOOK_RECORDS, HISTORY_ID_COST, LOCK_COST,
    SCHEDULED_COST, STATE_LOOK_RECORDS,
};
use crate::record::Record;
use crate::refusal::Refusal;

/// What is known of it.
#[derive(Debug)]
pub(crate) struct StateBytes {
    pub(crate) limit: usize,
    counted: usize,
    /// Records and copies since then.
    pub(crate) changes: usize,
}

impl StateBytes {
    pub(crate) fn new(limit: usize) -> StateBytes {
        StateBytes { limit, counted: 0, changes: usize::MAX }
    }
}

impl Queue {
    fn state_bytes(&self) -> usize {
        let index: usize = self.indexes().map(|index| index.held_bytes()).sum();
        let sessions = self.sessions.as_ref().map_or(0, |sessions| sessions.held_bytes());
        let settings = self.path.len() * 4 + self.settings.user_metadata.as_deref().map_or(0, str::len);
        ENTITY_COST
            + settings
            + index
            + sessions
            + self.extras.held_bytes()
            + self.history.len() * HISTORY_ID_COST
            + self.counts.scheduled as usize * SCHEDULED_COST
            + self.counts.dead_letter as usize * DEAD_LETTER_COST
    }
}

/// What all definitions and messages take.
fn of_entities(durable: &Durable) -> usize {
    let queues = durable
        .queues()
        .map(|(entity, queue)| queue.state_bytes() + durable.access(entity).len() * ENTITY_COST);
    let rules = durable.topics().subscriptions().flat_map(|(_, subscription)| subscription.rules.values());
    let rules: usize = rules.map(|stored| stored.rule.held_bytes()).sum();
    queues.sum::<usize>() + rules + durable.next_entity().0 as usize * DELETED_COST
}

impl Broker {
    /// The same broker, held to another limit for what lives long in memory.
    #[must_use]
    pub fn with_state_bytes(mut self, limit: usize) -> Broker {
        self.state_bytes = StateBytes::new(limit);
        self
    }

    /// What lives long in memory, as it was counted last.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes.counted
    }

    /// Counts it again, if enough has changed; sooner while nothing is taken because of it.
    pub(crate) fn count_state(&mut self) {
        let StateBytes { limit, counted, changes } = self.state_bytes;
        let enough = if counted < limit { STATE_LOOK_RECORDS } else { FULL_STATE_LOOK_RECORDS };
        if changes >= enough {
            self.state_bytes.counted = of_entities(&self.durable) + self.volatile.held_locks() * LOCK_COST;
            self.state_bytes.changes = 0;
        }
    }

    /// Counts it at once.
    #[cfg(test)]
    pub(crate) fn counted_state(&mut self) -> usize {
        self.state_bytes.changes = usize::MAX;
        self.count_state();
        self.state_bytes()
    }

    /// A record was made.
    pub(crate) fn note_change(&mut self, record: &Record) {
        let changes = &mut self.state_bytes.changes;
        *changes = match record {
            // It may have held everything.
            Record::EntityDeleted { .. } => usize::MAX,
            _ => changes.saturating_add(1),
        };
    }

    /// Whether something may be added to it.
    pub(crate) fn check_state(&self) -> Result<(), Refusal> {
        let (size, limit) = (self.state_bytes.counted, self.state_bytes.limit);
        if size < limit {
            return Ok(());
        }
        let (kind, name) = ("Memory", "[memory] state_megabytes".into());
        Err(Refusal::QueueFull { kind, name, size: size as u64, limit: limit as u64 })
    }
}

#[cfg(test)]
mod tests {
    use crate::Decided;
    use crate::command::ReceiveMode::PeekLock;
    use crate::command::{Incoming, Outcome};
    use crate::effect::{Effect, Notice};
    use crate::ids::{MessageKey, NamespaceId};
    use crate::limits::{ENTITY_COST, STATE_LOOK_RECORDS};
    use crate::manage::Task;
    use crate::refusal::Refusal;
    use crate::settings::QueueSettings;
    use crate::testing::{World, message};
    use crate::topic::rule::{Filter, Rule, Sql};
    use crate::topic::settings::{SubscriptionSettings, TopicSettings};
    use message::{Overlay, Value};

    /// What is counted now.
    fn counted(world: &mut World) -> usize {
        world.broker.counted_state()
    }

    fn is_full(effects: &[Effect]) -> bool {
        matches!(
            effects,
            [Effect::Notice(Notice::Rejected { refusal: Refusal::QueueFull { kind: "Memory", .. }, .. })]
        )
    }

    #[test]
    fn sessions_ids_changes_and_definitions_are_counted_and_given_back() {
        // P7
        let mut world = World::unchecked(crate::Tier::Unlimited);
        let settings = QueueSettings {
            requires_session: true,
            requires_duplicate_detection: true,
            ..QueueSettings::default()
        };
        let empty = counted(&mut world);
        world.create("q", settings);
        let made = counted(&mut world);
        assert!(made >= empty + ENTITY_COST);
        let link = world.sender("q");
        let session = "s".repeat(128);
        for nth in 0..100_u64 {
            let sent = Incoming { id: MessageKey([nth, 1]), ..message(10) };
            world.send_in(link, 0, &[sent], &[&format!("{nth:03}{}", &session[3..])]);
        }
        world.commit();
        let sent = counted(&mut world);
        assert!(sent >= made + 100 * (128 + 80 + 32), "{made}, then {sent}");
        let holder = world.holder("q", &format!("000{}", &session[3..]), 1);
        let mut changes = Overlay::default();
        changes.set("p", &Value::String("x".repeat(900))).unwrap();
        let token = world.take_tokens()[0];
        let defer = Outcome::Defer(Some(Box::new(changes)));
        let stored = World::fronts(&[(crate::BodyId(1), &[])]);
        assert_eq!(world.settle_raw(holder, token, &defer, &stored), Decided::Done);
        assert!(counted(&mut world) >= sent + 900);
        let (path, settings, access) = ("t".into(), TopicSettings::default(), Vec::new());
        world.manage(Task::CreateTopic { path, settings, access }).unwrap();
        let (topic, name, settings) = ("t".into(), "s".into(), SubscriptionSettings::default());
        let expression = format!("a = '{}'", "x".repeat(1_000)).into();
        let filter = Filter::Sql(Sql { expression, parameters: Vec::new() });
        let rule = Some(Rule { name: "r".into(), filter, action: None });
        let before = counted(&mut world);
        world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
        assert!(counted(&mut world) >= before + ENTITY_COST + 1_000);
        world.delete("t");
        world.delete("q");
        let left = counted(&mut world);
        assert!(left <= empty + 100, "{empty}, then {left}");
    }

    #[test]
    fn at_the_limit_nothing_is_added_and_receiving_makes_room() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings::default());
        let link = world.sender("q");
        world.send_committed("q", 2 * STATE_LOOK_RECORDS as u32);
        let limit = counted(&mut world);
        world.broker.state_bytes.limit = limit;
        assert!(is_full(&world.send(link, 0, &[message(1)])));
        let refused = world.try_create("other", QueueSettings::default());
        assert!(matches!(refused, Err(Refusal::QueueFull { .. })), "{refused:?}");
        world.broker.state_bytes.limit = limit + 1;
        assert!(!is_full(&world.send(link, 1, &[message(1)])));
        world.broker.state_bytes.limit = limit;
        let receiver = world.receiver("q", PeekLock, 0);
        world.credit(receiver, 2 * STATE_LOOK_RECORDS as u32, false);
        while world.queue("q").counts.active > 1 {
            for token in world.take_tokens() {
                world.settle(receiver, 0, token, Outcome::Complete);
            }
        }
        assert!(counted(&mut world) < limit);
        assert!(!is_full(&world.send(link, 2, &[message(1)])));
    }

    // W-32: or no start would find what the file declares.
    #[test]
    fn at_the_limit_what_is_there_is_still_there() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings::default());
        let topic =
            || Task::CreateTopic { path: "t".into(), settings: TopicSettings::default(), access: Vec::new() };
        let subscription = || {
            let (topic, name, settings) = ("t".into(), "s".into(), SubscriptionSettings::default());
            Task::CreateSubscription { topic, name, settings, rule: None }
        };
        let rule = || {
            let rule = Rule { name: "$Default".into(), filter: Filter::True, action: None };
            Task::CreateRule { topic: "t".into(), subscription: "s".into(), rule }
        };
        world.manage(topic()).unwrap();
        world.manage(subscription()).unwrap();
        world.broker.state_bytes.limit = counted(&mut world);
        let again = [
            world.try_create("q", QueueSettings::default()).map(drop),
            world.manage(topic()).map(drop),
            world.manage(subscription()).map(drop),
            world.manage(rule()).map(drop),
        ];
        for refused in again {
            assert!(matches!(refused, Err(Refusal::EntityExists(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_queue_that_is_made_and_deleted_again_and_again_leaves_next_to_nothing() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings::default());
        let before = counted(&mut world);
        for _ in 0..1_000 {
            world.create("other", QueueSettings::default());
            world.delete("other");
            world.commit();
        }
        assert!(counted(&mut world) <= before + 1_000 * 64);
        assert_eq!(world.broker.volatile.present_entities(), 1);
    }

    #[test]
    fn what_a_deleted_entity_held_is_free_at_once() {
        let mut world = World::unchecked(crate::Tier::Unlimited);
        world.create("q", QueueSettings::default());
        world.create("other", QueueSettings::default());
        world.send_committed("q", 2 * STATE_LOOK_RECORDS as u32);
        world.broker.state_bytes.limit = counted(&mut world);
        let link = world.sender("other");
        assert!(is_full(&world.send(link, 0, &[message(1)])));
        world.delete("q");
        assert!(!is_full(&world.send(link, 1, &[message(1)])));
    }

    #[test]
    fn copies_wait_until_there_is_memory_for_them() {
        // P7: one message becomes as many as there are subscriptions.
        let mut world = World::unchecked(crate::Tier::Unlimited);
        let (path, settings, access) = ("t".into(), TopicSettings::default(), Vec::new());
        world.manage(Task::CreateTopic { path, settings, access }).unwrap();
        for nth in 0..100 {
            let (topic, name, rule) = ("t".into(), format!("s{nth}").into(), None);
            let settings = SubscriptionSettings::default();
            world.manage(Task::CreateSubscription { topic, name, settings, rule }).unwrap();
        }
        let link = world.sender("t");
        let scheduled = world.local().after(crate::time::Span::seconds(5));
        for nth in 0..2_000 {
            world.send(link, nth, &[Incoming { scheduled, ..message(10) }]);
        }
        world.commit();
        let before = counted(&mut world);
        world.broker.state_bytes.limit = before + 100_000;
        let copies = |world: &World| {
            let durable = &world.broker.durable;
            let topic = durable.find(NamespaceId(0), "t").unwrap();
            let first = durable.topics().find_subscription(topic, "s0").unwrap();
            durable.queue(first).unwrap().counts.active
        };
        for _ in 0..200 {
            world.pass(crate::time::Span::seconds(1));
            world.tick();
            world.commit();
        }
        let most = before + 100_000 + 2 * STATE_LOOK_RECORDS * 64;
        assert!((1..2_000).contains(&copies(&world)) && counted(&mut world) < most);
        world.broker.state_bytes.limit = usize::MAX;
        for _ in 0..200 {
            world.pass(crate::time::Span::seconds(1));
            world.tick();
            world.commit();
        }
        assert_eq!(copies(&world), 2_000);
    }
}
