//! Links: who sends and who receives, what credit they have, and parts of large messages that are still arriving.

use super::Volatile;
use crate::command::ReceiveMode;
use crate::ids::{BodyId, EntityId, LinkId, Source};
use crate::queue::send::Parts;
use std::sync::Arc;

#[derive(Debug)]
pub struct Link {
    pub source: Source,
    pub role: Role,
}

#[derive(Debug)]
pub enum Role {
    /// Parts of a large message that is still arriving.
    Sender {
        parts: Vec<BodyId>,
        part_bytes: u64,
        /// What comes before the body of such a message, if it is for a topic.
        front: Option<Box<[u8]>>,
        /// Where its messages go, if that is not the entity that it is attached to (S-114).
        destination: Option<Arc<str>>,
    },
    Receiver {
        mode: ReceiveMode,
        /// Messages handed out on this link since it was attached.
        delivered: u64,
        /// The session that it holds, where it must hold one.
        session: Option<Arc<str>>,
    },
    /// Will be a receiver once a session is free.
    Waiting { mode: ReceiveMode },
}

impl Role {
    pub(crate) fn sender(destination: Option<Arc<str>>) -> Role {
        Role::Sender { parts: Vec::new(), part_bytes: 0, front: None, destination }
    }

    /// Whether it receives, now or when there is a session for it.
    pub fn receives(&self) -> bool {
        matches!(self, Role::Receiver { .. } | Role::Waiting { .. })
    }
}

/// Stand in for the bytes of a message of which a part was refused, because the disk is full or the entity.
pub(crate) const PART_REFUSED: u64 = u64::MAX;
pub(crate) const PART_BEYOND_QUOTA: u64 = u64::MAX - 1;

impl Volatile {
    pub fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(&link)
    }

    /// The links of an entity, in their order.
    pub(crate) fn links_of(&self, entity: EntityId, is_meant: impl Fn(&Link) -> bool) -> Vec<LinkId> {
        let meant = self.links.iter().filter(|(_, link)| link.source.entity == entity && is_meant(link));
        let mut meant: Vec<_> = meant.map(|(id, _)| *id).collect();
        meant.sort_unstable();
        meant
    }

    pub(crate) fn attach(&mut self, link: LinkId, source: Source, role: Role) {
        self.presence_mut(source.entity).receivers += usize::from(role.receives());
        if matches!(role, Role::Waiting { .. }) {
            self.sessions_mut(source.entity).waiting.set(link, 1);
            self.stir(source);
        }
        let before = self.links.insert(link, Link { source, role });
        assert!(before.is_none(), "link {link:?} was attached twice");
    }

    pub(crate) fn detach(&mut self, link: LinkId) {
        self.drop_parts(link);
        let Some(Link { source, role }) = self.links.remove(&link) else { return };
        self.presence_mut(source.entity).receivers -= usize::from(role.receives());
        match role {
            Role::Receiver { session: Some(session), .. } => self.vacate(source.entity, &session, link),
            Role::Waiting { .. } => self.sessions_mut(source.entity).waiting.remove(link),
            Role::Receiver { session: None, .. } | Role::Sender { .. } => {}
        }
        let ready = self.ready_mut(source);
        ready.waiting.remove(link);
        ready.draining.retain(|draining| *draining != link);
    }

    /// The link waits for `credit` messages in all, instead of what it waited for.
    pub(crate) fn set_credit(&mut self, link: LinkId, credit: u32) {
        let Some(Link { source, role }) = self.links.get(&link) else { return };
        let source = *source;
        if let Role::Receiver { session: Some(session), .. } = role {
            let session = Arc::clone(session);
            return self.credit_session(source.entity, &session, link, credit);
        }
        if self.ready_mut(source).waiting.set(link, credit) {
            self.stir(source);
        }
    }

    /// The credit that a link has left with the broker.
    pub fn credit(&self, link: LinkId) -> u32 {
        let Some(Link { source, role }) = self.links.get(&link) else { return 0 };
        match role {
            Role::Receiver { session: Some(session), .. } => {
                let holder = self.sessions(source.entity).and_then(|sessions| sessions.holder(session));
                holder.map_or(0, |holder| holder.credit)
            }
            // A receiver that waits for a session keeps its entity from being idle, as one that waits for messages does.
            Role::Waiting { .. } => 1,
            _ => self.ready(*source).waiting.credit(link),
        }
    }

    /// One unit of the credit at the head of the line is used.
    pub(crate) fn serve(&mut self, source: Source) {
        let link = self.ready_mut(source).waiting.serve();
        self.count_delivery(link);
    }

    pub(super) fn count_delivery(&mut self, link: LinkId) {
        if let Some(Link { role: Role::Receiver { delivered, .. }, .. }) = self.links.get_mut(&link) {
            *delivered += 1;
        }
    }

    /// A link is to be told when it has got everything.
    pub(crate) fn drain(&mut self, source: Source, link: LinkId) {
        self.ready_mut(source).draining.push(link);
    }

    pub(crate) fn end_drain(&mut self, source: Source, link: LinkId) {
        self.ready_mut(source).draining.retain(|each| *each != link);
    }

    /// A part of a message was stored; `front` is what comes before the body of one to a topic.
    pub(crate) fn store_part(&mut self, link: LinkId, body: BodyId, length: u64, front: Option<Box<[u8]>>) {
        let Some(Link { role: Role::Sender { parts, part_bytes, front: kept, .. }, .. }) =
            self.links.get_mut(&link)
        else {
            return;
        };
        parts.push(body);
        *kept = front.or(kept.take());
        let bytes = *part_bytes + length;
        self.set_part_bytes(link, bytes);
    }

    /// What is stored of messages to an entity that are not whole, on any link.
    pub(crate) fn arriving_bytes(&self, entity: EntityId) -> u64 {
        self.presence(entity).arriving_bytes
    }

    fn set_part_bytes(&mut self, link: LinkId, bytes: u64) {
        let Some(Link { source, role: Role::Sender { part_bytes, .. } }) = self.links.get_mut(&link) else {
            return;
        };
        let stored = |bytes| if bytes >= PART_BEYOND_QUOTA { 0 } else { bytes };
        let (entity, before) = (source.entity, std::mem::replace(part_bytes, bytes));
        let arriving = &mut self.presence_mut(entity).arriving_bytes;
        *arriving = *arriving + stored(bytes) - stored(before);
    }

    /// Takes what was stored of a message that is whole now.
    pub(crate) fn take_parts(&mut self, link: LinkId) -> Parts {
        match self.links.get_mut(&link) {
            Some(Link { role: Role::Sender { parts, part_bytes, front, .. }, .. }) if !parts.is_empty() => {
                let (bodies, bytes) = (Some(std::mem::take(parts).into()), *part_bytes);
                let taken = Parts { bodies, bytes, front: front.take(), stored: None };
                self.set_part_bytes(link, 0);
                taken
            }
            _ => Parts::default(),
        }
    }

    pub(crate) fn drop_parts(&mut self, link: LinkId) {
        if let Some(Link { role: Role::Sender { parts, front, .. }, .. }) = self.links.get_mut(&link) {
            parts.clear();
            *front = None;
            self.set_part_bytes(link, 0);
        }
    }

    /// A part found no room, which `stand_in` says why; the message that it belongs to cannot be stored any more.
    pub(crate) fn refuse_parts(&mut self, link: LinkId, stand_in: u64) {
        if let Some(Link { role: Role::Sender { parts, .. }, .. }) = self.links.get_mut(&link) {
            parts.clear();
            self.set_part_bytes(link, stand_in);
        }
    }
}
