//! Links come and give credit. Going is a [`Touch`] alone: the locks that a link took stay until they end (S-94).

use crate::Broker;
use crate::command::ReceiveMode;
use crate::decision::{Context, Decision};
use crate::durable::Queue;
use crate::effect::Effect;
use crate::ids::{EntityId, LinkId, NamespaceId};
use crate::refusal::Refusal;
use crate::volatile::{Link, Role, Touch};

impl Broker {
    pub(crate) fn attach_sender(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        decision: &mut Decision,
    ) {
        let role = Role::Sender { parts: Vec::new(), part_bytes: 0 };
        self.attach(link, namespace, path, role, |queue| queue.settings.status.may_send(), decision);
    }

    pub(crate) fn attach_receiver(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        mode: ReceiveMode,
        decision: &mut Decision,
    ) {
        let role = Role::Receiver { mode, delivered: 0 };
        self.attach(link, namespace, path, role, |queue| queue.settings.status.may_receive(), decision);
    }

    fn attach(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        path: &str,
        role: Role,
        is_allowed: impl FnOnce(&Queue) -> bool,
        decision: &mut Decision,
    ) {
        match self.check_attach(namespace, path, is_allowed) {
            Ok((entity, max_message_bytes)) => {
                self.volatile.apply(Touch::Attached { link, entity, role });
                decision.effect(Effect::Attached { link, max_message_bytes });
            }
            Err(refusal) => decision.effect(Effect::Detached { link, refusal }),
        }
    }

    fn check_attach(
        &self,
        namespace: NamespaceId,
        path: &str,
        is_allowed: impl FnOnce(&Queue) -> bool,
    ) -> Result<(EntityId, u64), Refusal> {
        if self.is_topic_or_subscription(namespace, path) {
            return Err(Refusal::NotSupported("sending to a topic or receiving from a subscription"));
        }
        let not_found = || Refusal::EntityNotFound(path.into());
        let entity = self.durable.find(namespace, path).ok_or_else(not_found)?;
        let queue = self.durable.queue(entity).ok_or_else(not_found)?;
        if queue.settings.requires_session {
            return Err(Refusal::NotSupported("an entity that requires sessions"));
        }
        if !is_allowed(queue) {
            return Err(Refusal::EntityDisabled(queue.path.clone()));
        }
        Ok((entity, queue.settings.max_message_bytes()))
    }

    /// Sets what a receiver wants. With `drain`, it gets what there is now and is told when that was all.
    pub(crate) fn credit(
        &mut self,
        link: LinkId,
        limit: u64,
        drain: bool,
        context: Context,
        decision: &mut Decision,
    ) {
        let Some(Link { entity, role: Role::Receiver { delivered, .. } }) = self.volatile.link(link) else {
            return;
        };
        let entity = *entity;
        let credit = u32::try_from(limit.saturating_sub(*delivered)).unwrap_or(u32::MAX);
        self.volatile.apply(Touch::Credited { link, credit });
        self.volatile.apply(Touch::Accessed { entity, time: context.now });
        if drain {
            // Whoever waits longer is served first, even by a drain (S-97).
            self.hand_out(entity, usize::MAX, context, decision);
            self.volatile.apply(Touch::Credited { link, credit: 0 });
            decision.free_effect(Effect::Drained { link });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Effect;
    use crate::refusal::Refusal;
    use crate::settings::{QueueSettings, Status};
    use crate::testing::World;

    #[test]
    fn a_link_to_nothing_is_refused() {
        let mut world = World::new();
        let link = world.link();
        let effects = world.attach_sender(link, "nowhere");
        assert_eq!(effects, [Effect::Detached { link, refusal: Refusal::EntityNotFound("nowhere".into()) }]);
    }

    #[test]
    fn a_path_is_found_whatever_its_case() {
        let mut world = World::with_queue("Orders");
        let link = world.link();
        assert!(matches!(world.attach_sender(link, "oRDERS")[..], [Effect::Attached { .. }]));
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
            [Effect::Detached { refusal: Refusal::EntityDisabled(_), .. }]
        ));
        assert!(matches!(
            world.attach_receiver(receiver, "out", PeekLock)[..],
            [Effect::Detached { refusal: Refusal::EntityDisabled(_), .. }]
        ));
        let (sender, receiver) = (world.link(), world.link());
        assert!(matches!(world.attach_sender(sender, "out")[..], [Effect::Attached { .. }]));
        assert!(matches!(world.attach_receiver(receiver, "in", PeekLock)[..], [Effect::Attached { .. }]));
    }

    #[test]
    fn a_drain_gives_what_there_is_and_says_when_that_was_all() {
        // AMQP 5.5
        let mut world = World::with_queue("q");
        world.send_committed("q", 3);
        let link = world.link();
        world.attach_receiver(link, "q", PeekLock);
        let effects = world.credit(link, 10, true);
        let delivered = effects.iter().filter(|e| matches!(e, Effect::Deliver { .. })).count();
        assert_eq!(delivered, 3);
        assert_eq!(effects.last(), Some(&Effect::Drained { link }));
        world.send_committed("q", 1);
        assert!(world.take_effects().iter().all(|effect| !matches!(effect, Effect::Deliver { .. })));
    }
}
