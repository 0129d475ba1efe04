//! Links come and give credit. Going changes memory alone: the locks that a link took stay until they end (S-94).

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{Decision, LocalContext, LocalDecision};
use crate::durable::{Kind, Queue};
use crate::effect::Notice;
use crate::ids::{EntityId, LinkId, NamespaceId, Source, SubQueue};
use crate::refusal::Refusal;
use crate::volatile::{Link, Role};

/// S-172.
pub(crate) const FORWARDING: &str =
    "Messages cannot be received from an entity that forwards them; receive from its destination.";

/// S-140.
const PLAIN_ON_SESSIONS: &str =
    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.";

impl Broker {
    pub(crate) fn attach_sender(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        decision: &mut Decision,
    ) {
        self.attach(link, namespace, path, Role::sender(None), decision);
    }

    pub(crate) fn attach_receiver(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        mode: ReceiveMode,
        decision: &mut Decision,
    ) {
        let role = Role::Receiver { mode, delivered: 0, session: None };
        self.attach(link, namespace, path, role, decision);
    }

    fn attach(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        role: Role,
        decision: &mut Decision,
    ) {
        match self.check_attach(namespace, path, &role) {
            Ok((source, max_message_bytes)) => {
                self.volatile.attach(link, source, role);
                // What chooses a partition is looked at within transactions (S-216).
                let settings = &self.queue_of(source).settings;
                let wants_ids = settings.requires_duplicate_detection || settings.partitioning;
                decision.effect(Notice::Attached { link, max_message_bytes, wants_ids, session: None });
            }
            Err(refusal) => decision.effect(Notice::Detached { link, refusal }),
        }
    }

    pub(crate) fn check_attach(
        &self,
        namespace: NamespaceId,
        path: &str,
        role: &Role,
    ) -> Result<(Source, u64), Refusal> {
        let source = match role {
            Role::Sender { .. } => self.resolve_for_send(namespace, path)?,
            Role::Receiver { .. } | Role::Waiting { .. } => self.resolve_for_receive(namespace, path)?,
        };
        let queue = self.queue_of(source);
        let tier = self.tier_of(queue.namespace);
        if matches!(role, Role::Receiver { .. }) && self.has_sessions(source) {
            return Err(Refusal::NotAllowed(PLAIN_ON_SESSIONS));
        }
        if role.receives() && self.forwards(source) {
            return Err(Refusal::NotAllowed(FORWARDING));
        }
        let limit = tier.receivers();
        if role.receives() && limit != usize::MAX && self.receivers_at(source.entity) >= limit {
            return Err(Refusal::TooManyReceivers { name: queue.path.clone(), limit });
        }
        Ok((source, tier.message_bytes(&queue.settings)))
    }

    /// Who receives from an entity; subscriptions of one topic are counted together (S-98).
    fn receivers_at(&self, entity: EntityId) -> usize {
        let receivers = |entity: EntityId| self.volatile.presence(entity).receivers;
        let topics = self.durable.topics();
        match topics.subscription(entity).and_then(|subscription| topics.topic(subscription.topic)) {
            Some(topic) => topic.subscriptions.values().copied().map(receivers).sum(),
            None => receivers(entity),
        }
    }

    /// Where to send to, if it takes messages now.
    pub(crate) fn resolve_for_send(&self, namespace: NamespaceId, path: &str) -> Result<Source, Refusal> {
        let source = self.resolve_target(namespace, path)?;
        let queue = self.queue_of(source);
        if !queue.settings.status.may_send() {
            return Err(Refusal::EntityDisabled(queue.path.clone()));
        }
        Ok(source)
    }

    /// Where to send to. Nothing is sent to a dead-letter queue (S-101).
    pub(crate) fn resolve_target(&self, namespace: NamespaceId, path: &str) -> Result<Source, Refusal> {
        let source = self.resolve(namespace, path)?;
        if source.sub != SubQueue::Main {
            return Err(Refusal::NotAllowed("Messages cannot be sent to a dead-letter queue."));
        }
        if let Kind::Subscription { .. } = self.queue_of(source).kind {
            return Err(Refusal::NotAllowed(
                "Messages are sent to a topic, not to one of its subscriptions.",
            ));
        }
        Ok(source)
    }

    pub(crate) fn resolve_for_receive(&self, namespace: NamespaceId, path: &str) -> Result<Source, Refusal> {
        let source = self.resolve(namespace, path)?;
        let queue = self.queue_of(source);
        if queue.kind == Kind::Topic && source.sub != SubQueue::TransferDeadLetter {
            return Err(Refusal::NotAllowed(
                "A topic gives no messages; receive from one of its subscriptions.",
            ));
        }
        if !queue.settings.status.may_receive() {
            return Err(Refusal::EntityDisabled(queue.path.clone()));
        }
        Ok(source)
    }

    /// The queue of a source that was found.
    pub(crate) fn queue_of(&self, source: Source) -> &Queue {
        self.durable.queue(source.entity).expect("names and links lead to entities that exist")
    }

    /// A receiver that waited kept its entity from being idle (S-74): that ends now.
    pub(crate) fn detach(&mut self, link: LinkId, context: LocalContext) {
        if self.volatile.credit(link) > 0
            && let Some(Link { source, .. }) = self.volatile.link(link)
        {
            let entity = source.entity;
            self.volatile.set_used(entity, context.now);
        }
        self.volatile.detach(link);
        self.volatile.transactions.detach(link);
    }

    /// Sets what a receiver wants. With `drain`, it gets what there is now and is told when that was all.
    pub(crate) fn credit(&mut self, link: LinkId, limit: u64, drain: bool, decision: &mut LocalDecision<'_>) {
        let Some(Link { source, role: Role::Receiver { delivered, .. } }) = self.volatile.link(link) else {
            return;
        };
        let source = *source;
        let credit = u32::try_from(limit.saturating_sub(*delivered)).unwrap_or(u32::MAX);
        if self.volatile.ready(source).draining.contains(&link) {
            // A drain that still waits for the disk ends here: what it has not brought, the new word on credit will.
            self.volatile.end_drain(source, link);
            decision.free_effect(Notice::Drained { link });
        }
        self.volatile.set_credit(link, credit);
        self.volatile.set_accessed(source.entity, decision.now);
        if drain {
            // The receiver that waits longest is served first, even by a drain (S-97).
            self.volatile.drain(source, link);
            self.hand_out(source, usize::MAX, decision);
            self.end_drains(source, decision);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::{Effect, Notice};
    use crate::refusal::Refusal;
    use crate::settings::{QueueSettings, Status};
    use crate::testing::World;
    use crate::tier::Tier;

    #[test]
    fn a_link_to_nothing_is_refused() {
        let mut world = World::new();
        let link = world.link();
        let effects = world.attach_sender(link, "nowhere");
        assert_eq!(
            effects,
            [Effect::Notice(Notice::Detached { link, refusal: Refusal::EntityNotFound("nowhere".into()) })]
        );
    }

    #[test]
    fn a_path_is_found_whatever_its_case() {
        let mut world = World::with_queue("Orders");
        let link = world.link();
        assert!(matches!(world.attach_sender(link, "oRDERS")[..], [Effect::Notice(Notice::Attached { .. })]));
    }

    #[test]
    fn a_disabled_queue_takes_no_links_of_that_kind() {
        // S-230
        let disabled = |status| QueueSettings { status, ..QueueSettings::default() };
        let mut world = World::new();
        world.create("in", disabled(Status::SendDisabled));
        world.create("out", disabled(Status::ReceiveDisabled));
        let (sender, receiver) = (world.link(), world.link());
        assert!(matches!(
            world.attach_sender(sender, "in")[..],
            [Effect::Notice(Notice::Detached { refusal: Refusal::EntityDisabled(_), .. })]
        ));
        assert!(matches!(
            world.attach_receiver(receiver, "out", PeekLock)[..],
            [Effect::Notice(Notice::Detached { refusal: Refusal::EntityDisabled(_), .. })]
        ));
        let (sender, receiver) = (world.link(), world.link());
        assert!(matches!(world.attach_sender(sender, "out")[..], [Effect::Notice(Notice::Attached { .. })]));
        assert!(matches!(
            world.attach_receiver(receiver, "in", PeekLock)[..],
            [Effect::Notice(Notice::Attached { .. })]
        ));
    }

    #[test]
    fn a_drain_gives_what_there_is_and_says_when_that_was_all() {
        //
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        let link = world.link();
        world.attach_receiver(link, "q", PeekLock);
        let effects = world.credit(link, 10, true);
        let delivered = effects.iter().filter(|e| matches!(e, Effect::Deliver { .. })).count();
        assert_eq!(delivered, 3);
        assert_eq!(effects.last(), Some(&Effect::Notice(Notice::Drained { link })));
        world.send_committed("q", 1);
        assert!(world.take_effects().iter().all(|effect| !matches!(effect, Effect::Deliver { .. })));
    }

    #[test]
    fn a_tier_limits_the_receivers_of_an_entity_and_who_leaves_makes_room() {
        // S-98, S-270
        let mut world = World::with_tier(Tier::Standard);
        world.create("q", QueueSettings::default());
        let first = world.link();
        world.attach_receiver(first, "q", PeekLock);
        for path in std::iter::repeat_n("q", 2_500).chain(std::iter::repeat_n("q/$DeadLetterQueue", 2_499)) {
            let link = world.link();
            assert!(matches!(
                world.attach_receiver(link, path, PeekLock)[..],
                [Effect::Notice(Notice::Attached { .. })]
            ));
        }
        let link = world.link();
        let refusal = Refusal::TooManyReceivers { name: "q".into(), limit: 5_000 };
        assert_eq!(
            world.attach_receiver(link, "q", PeekLock),
            [Effect::Notice(Notice::Detached { link, refusal })]
        );
        assert!(matches!(world.attach_sender(link, "q")[..], [Effect::Notice(Notice::Attached { .. })]));
        world.detach(first);
        let link = world.link();
        assert!(matches!(
            world.attach_receiver(link, "q", PeekLock)[..],
            [Effect::Notice(Notice::Attached { .. })]
        ));
    }

    #[test]
    fn a_link_is_told_the_largest_message_of_its_tier() {
        // S-17
        for (tier, limit) in [(Tier::Standard, 262_144), (Tier::Unlimited, 1_048_576)] {
            let mut world = World::with_tier(tier);
            world.create("q", QueueSettings::default());
            let link = world.link();
            let attached = Effect::Notice(Notice::Attached {
                link,
                max_message_bytes: limit,
                wants_ids: false,
                session: None,
            });
            assert_eq!(world.attach_sender(link, "q"), [attached]);
        }
    }
}
