//! Receivers: credit, drains, and settlements of every kind, right and wrong.

use super::client::Held;
use super::{Actor, NAMESPACE, Workload, namespace_of};
use crate::oracle::{Oracle, Role};
use broker::limits::SMALL_OVERLAY_BYTES;
use broker::{Command, LinkId, LockToken, Outcome};
use engine::Batch;
use message::{Overlay, Value};

/// Bytes of a large property: two of them fit a message, three do not.
const LARGE: usize = 30_000;

impl Workload {
    pub(super) fn credit(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        if self.random.once_in(20)
            && let Some(gone) = self.clients[who.at].gone.last().copied()
        {
            oracle.credit(gone, 5, true);
            return batch.commands.push(Command::Credit { link: gone, limit: 5, drain: true });
        }
        let Some(nth) = self.pick_link(who, |role| matches!(role, Role::Receiver(_))) else { return };
        let link = &self.clients[who.at].links[nth];
        if link.is_waiting {
            return;
        }
        let (id, delivered) = (link.id, link.delivered);
        let most = *self.random.pick(&[0, 1, 5, 20, 100]);
        let limit = delivered + self.random.between(0, most);
        let drain = self.random.once_in(6);
        oracle.credit(id, limit, drain);
        batch.commands.push(Command::Credit { link: id, limit, drain });
    }

    pub(super) fn settle(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let tokens = &mut self.held[who.nth];
        if tokens.is_empty() {
            return;
        }
        let nth = self.random.below(tokens.len() as u64) as usize;
        if self.is_within && namespace_of(&tokens[nth].path) != NAMESPACE {
            return;
        }
        // Most settle once and forget the token.
        let held = if self.random.once_in(12) { tokens[nth].clone() } else { tokens.swap_remove(nth) };
        let Some((link, delivery)) = self.settling_link(who, &held) else { return };
        let token = match self.random.below(25) {
            0 => LockToken(held.token.0 ^ (1 << 77)),
            1 => LockToken(held.token.0 + 1),
            _ => held.token,
        };
        if token != held.token {
            oracle.coverage.fault("forged token");
        }
        let outcome = self.outcome();
        if matches!(outcome, Outcome::Defer(_)) {
            self.deferred[who.nth].push((held.path.clone(), held.number));
        }
        let wants_answer = !self.random.once_in(5);
        oracle.settle(link, delivery, token, &outcome, wants_answer);
        batch.commands.push(Command::Settle { link, delivery, token, outcome, wants_answer });
    }

    /// A token may be used on any link to the queue (S-94).
    fn settling_link(&mut self, who: Actor, held: &Held) -> Option<(LinkId, u32)> {
        let links = &mut self.clients[who.at].links;
        let fitting = |link: &&mut super::client::ClientLink| link.path.eq_ignore_ascii_case(&held.path);
        let link = links.iter_mut().filter(fitting).last()?;
        link.next_delivery += 1;
        Some((link.id, link.next_delivery))
    }

    pub(super) fn outcome(&mut self) -> Outcome {
        match self.random.below(100) {
            0..50 => Outcome::Complete,
            50..57 => Outcome::Abandon(None),
            57..72 => Outcome::Abandon(Some(Box::new(self.changes()))),
            72..82 => Outcome::Release,
            82..88 => Outcome::Defer(None),
            88..91 => Outcome::Defer(Some(Box::new(self.changes()))),
            91..96 => Outcome::DeadLetter(None),
            _ => Outcome::DeadLetter(Some(Box::new(self.changes()))),
        }
    }

    /// Changed properties; now and then so large that a second change does not fit.
    fn changes(&mut self) -> Overlay {
        let mut overlay = Overlay::default();
        let names = ["attempt", "reason", "trace"];
        let name = *self.random.pick(&names);
        let set = match self.random.below(10) {
            0 => overlay.remove(name),
            1..9 if self.is_wordy => {
                let mut large = names.iter().filter(|other| **other != name);
                large.try_for_each(|name| overlay.set(name, &Value::Binary(vec![7; LARGE])))
            }
            // More than is held in memory.
            1..4 => overlay.set(name, &Value::Binary(vec![self.random.number() as u8; SMALL_OVERLAY_BYTES])),
            _ => overlay.set(name, &Value::Long(self.random.number() as i64)),
        };
        set.expect("two properties of 30 KB fit");
        overlay
    }
}
