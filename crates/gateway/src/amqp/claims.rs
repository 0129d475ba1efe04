//! The claims of a connection after they were accepted: they run out, their policies change or go, and open links end
//! with them.

use super::address;
use super::cbs::Question;
use super::connection::ConnectionTask;
use super::link::Kind;
use crate::auth::{self, Demand, Grant, Holder, Right};
use crate::limits::CLAIM_REVIEW;
use amqp::LinkKey;
use broker::Command;
use broker::access::Access;
use std::sync::Arc;
use tokio::time::Instant;

impl Kind {
    /// What a link takes for as long as it lives.
    fn demand(&self) -> Demand<'_> {
        match self {
            Kind::Sender(sender) => match &sender.destination {
                None => Demand::Right(Right::Send, sender.path.as_str().into()),
                Some(destination) => {
                    Demand::SendVia([sender.path.as_str().into(), address::path(destination).into()])
                }
            },
            Kind::Receiver(receiver) => Demand::Right(Right::Listen, receiver.path.as_str().into()),
            // Each request to a management node is looked at by itself.
            Kind::Coordinator { .. }
            | Kind::CbsRequests { .. }
            | Kind::CbsReplies { .. }
            | Kind::ManagementRequests(_)
            | Kind::ManagementReplies(_) => Demand::Link,
        }
    }
}

impl<S> ConnectionTask<S> {
    /// Takes a claim in. A newer one of the same scope replaces the older whole, also where it allows less.
    pub(super) fn admit(&mut self, grant: Grant) {
        tracing::debug!(address = %self.peer.address, scope = ?grant.scope, "claim accepted");
        let placed = self.peer.proved(&grant.policy(), grant.standing());
        self.account.join(&grant.policy());
        let rights = grant.rights;
        let replaced = self.claims.put(grant);
        if let Err(full) = placed {
            return self.part(&full.to_string());
        }
        self.has_claim = true;
        self.machine.authenticated();
        self.review_at.get_or_insert_with(|| Instant::now() + CLAIM_REVIEW);
        // Only what the older one allowed can be lost.
        if replaced.is_some_and(|old| !rights.include_all(old.rights)) {
            self.check_links();
        }
    }

    /// Looks at every claim again, some time after the last look.
    pub(super) fn review(&mut self) {
        let now = self.state.now();
        self.version = self.state.namespaces.version();
        let namespace = self.state.namespaces.of_id(self.namespace.id);
        match &namespace {
            // Tokens that come later are judged by the keys of now.
            Some(namespace) => self.namespace = Arc::clone(namespace),
            None if !self.has_parted => self.part("The namespace is no longer served here."),
            None => {}
        }
        let is_loopback = self.peer.is_loopback();
        let mut is_less = false;
        self.claims.retain(|grant| {
            let rights = match grant.proof.holder {
                Holder::Namespace => namespace
                    .as_ref()
                    .and_then(|namespace| namespace.guard.rights_of(&grant.proof, is_loopback)),
                Holder::Issuer(ref name) => namespace
                    .as_ref()
                    .filter(|namespace| namespace.guard.knows_issuer(name))
                    .map(|_| grant.rights),
                // The broker knows; it is asked below.
                Holder::Entity(_) => Some(grant.rights),
            };
            let before = std::mem::replace(&mut grant.rights, rights.unwrap_or_default());
            let is_kept = rights.is_some() && !grant.is_expired(now);
            is_less |= !is_kept || !grant.rights.include_all(before);
            is_kept
        });
        let mut entities: Vec<Box<str>> = self
            .claims
            .iter()
            .filter_map(|grant| match &grant.proof.holder {
                Holder::Entity(entity) => Some(entity.clone()),
                Holder::Namespace | Holder::Issuer(_) => None,
            })
            .collect();
        entities.sort_unstable();
        entities.dedup();
        for path in entities {
            let task = Box::new(broker::Task::Access { path: path.clone() });
            let request = self.question(Question::Review { entity: path });
            self.batch.commands.push(Command::Manage { request, namespace: self.namespace.id, task });
        }
        self.review_at = (!self.claims.is_empty()).then(|| Instant::now() + CLAIM_REVIEW);
        if is_less {
            self.check_links();
        }
    }

    /// The broker has said which rules an entity has now.
    pub(super) fn reviewed(&mut self, entity: &str, holders: &[Access]) {
        let own = holders.iter().find(|holder| holder.entity.eq_ignore_ascii_case(entity));
        let rules = own.map_or(&[][..], |own| &own.rules);
        let mut is_less = false;
        self.claims.retain(|grant| match &grant.proof.holder {
            Holder::Entity(holder) if **holder == *entity => {
                let rights = auth::entity_rights(&grant.proof, rules);
                let before = std::mem::replace(&mut grant.rights, rights.unwrap_or_default());
                is_less |= !grant.rights.include_all(before);
                rights.is_some()
            }
            _ => true,
        });
        if is_less {
            self.check_links();
        }
    }

    /// Ends the links that no claim allows any more.
    fn check_links(&mut self) {
        let denied: Vec<_> = self
            .links
            .iter()
            .filter_map(|(key, link)| {
                let why = self.check_demand(&link.kind.demand()).err()?;
                Some((LinkKey(*key), self.origin.denied(why, link.kind.path())))
            })
            .collect();
        for (key, error) in denied {
            self.forget(key);
            self.machine.refuse(key, &error);
            self.machine.detach(key, Some(&error));
        }
    }
}
