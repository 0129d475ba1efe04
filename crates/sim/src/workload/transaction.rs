//! Transactions: clients declare them on links of their own, and what they do otherwise they also do within one: sending to
//! queues and topics, by way of others, settling, renewing, scheduling. Most are committed, some rolled back, some forgotten
//! until their time is over, and some ids are used again when nothing is left of them.

use super::{Actor, NAMESPACE, Workload};
use crate::oracle::{Oracle, Role};
use broker::limits::{CONNECTION_TRANSACTIONS, TRANSACTION_MESSAGES};
use broker::{Command, Incoming, Intake, LinkId, TransactionId};
use engine::{Batch, Work};

/// Transactions that a client uses at once, and those that it remembers when they are over.
const OPEN: usize = 3;
const REMEMBERED: usize = 4;

impl Workload {
    /// Does something with transactions.
    pub(super) fn transact(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let Some(place) = self.pick_link(who, |role| *role == Role::Coordinator) else {
            return self.attach_coordinator(who, batch, oracle);
        };
        let coordinator = self.clients[who.at].links[place].id;
        let open = self.clients[who.at].transactions.iter();
        let open: Vec<_> = open.filter(|each| each.nth == who.nth).map(|each| each.id).collect();
        match self.random.below(100) {
            0..14 if open.len() < OPEN => return self.declare(coordinator, who, batch, oracle),
            14..16 => {
                let stale = self.clients[who.at].ended.iter();
                let stale: Vec<_> = stale.filter(|each| each.nth == who.nth).map(|each| each.id).collect();
                if stale.is_empty() {
                    return;
                }
                let id = *self.random.pick(&stale);
                return match self.random.once_in(3) {
                    true => self.discharge(coordinator, id, who, batch, oracle),
                    false => self.operate(id, who, batch, oracle),
                };
            }
            _ if open.is_empty() => return self.declare(coordinator, who, batch, oracle),
            _ => {}
        }
        let id = *self.random.pick(&open);
        match self.random.below(100) {
            0..18 => self.discharge(coordinator, id, who, batch, oracle),
            18..20 if self.random.once_in(3) => {
                self.clients[who.at].links.remove(place);
                self.clients[who.at].gone.push(coordinator);
                self.clients[who.at].transactions.retain(|each| each.nth != who.nth);
                oracle.detach(coordinator);
                batch.commands.push(Command::Detach { link: coordinator });
            }
            20 => self.overfill(id, who, batch, oracle),
            _ => self.operate(id, who, batch, oracle),
        }
    }

    fn attach_coordinator(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let link = self.clients[who.at].link("", Role::Coordinator, who.nth);
        oracle.attach(link, "", Role::Coordinator);
        batch.commands.push(Command::AttachCoordinator { link, namespace: NAMESPACE });
        self.declare(link, who, batch, oracle);
        if std::mem::take(&mut self.declares_too_many) {
            self.too_many = Some(link);
        }
    }

    fn coordinating(&mut self, coordinator: LinkId, who: Actor) -> u32 {
        let links = self.clients[who.at].links.iter_mut();
        let link = links.into_iter().find(|link| link.id == coordinator).expect("it was picked");
        link.next_delivery += 1;
        link.next_delivery
    }

    fn declare(&mut self, link: LinkId, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let delivery = self.coordinating(link, who);
        oracle.declare(link, delivery);
        batch.commands.push(Command::Declare { link, delivery });
    }

    /// One more than a connection may have.
    pub(super) fn declare_too_many(&mut self, who: Actor, oracle: &mut Oracle) {
        let Some(link) = self.too_many.take() else { return };
        if !self.clients[who.at].links.iter().any(|each| each.id == link) {
            return;
        }
        let mut batch = Batch::default();
        (0..=CONNECTION_TRANSACTIONS).for_each(|_| self.declare(link, who, &mut batch, oracle));
        // They do not count: they would be all that a run does.
        self.said[who.nth].push_back(Work::Batch(batch));
    }

    /// A client hears the id of its transaction.
    pub(super) fn declared(&mut self, nth: usize, link: LinkId, id: TransactionId) {
        if let Some(client) = self.client(link)
            && client.transactions.len() < 2 * OPEN
            && client.links.iter().any(|each| each.id == link)
        {
            client.transactions.push(super::client::Declared { nth, id });
        }
    }

    fn discharge(
        &mut self,
        link: LinkId,
        transaction: TransactionId,
        who: Actor,
        batch: &mut Batch,
        oracle: &mut Oracle,
    ) {
        let delivery = self.coordinating(link, who);
        let is_failed = self.random.once_in(4);
        let client = &mut self.clients[who.at];
        client.transactions.retain(|each| (each.nth, each.id) != (who.nth, transaction));
        client.ended.push(super::client::Declared { nth: who.nth, id: transaction });
        if client.ended.len() > REMEMBERED {
            client.ended.remove(0);
        }
        oracle.discharge(link, delivery, transaction, is_failed);
        batch.commands.push(Command::Discharge { link, delivery, transaction, is_failed });
    }

    /// Does one of the usual things, as part of a transaction.
    fn operate(&mut self, id: TransactionId, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let before = batch.commands.len();
        self.is_within = true;
        oracle.within(Some(id));
        match self.random.below(100) {
            0..35 => self.send(who, batch, oracle),
            35..75 => self.settle(who, batch, oracle),
            75..84 => self.settle_tokens(who, batch, oracle),
            84..94 => self.schedule(who, batch, oracle),
            _ => self.renew(who, batch, oracle),
        }
        oracle.within(None);
        self.is_within = false;
        put_within(id, &mut batch.commands[before..]);
    }

    /// More messages than a transaction may have. They are refused before anybody looks at their bytes.
    fn overfill(&mut self, id: TransactionId, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let before = batch.commands.len();
        self.is_within = true;
        oracle.within(Some(id));
        if let Some(nth) = self.pick_link(who, |role| *role == Role::Sender)
            && self.clients[who.at].links[nth].unfinished.is_none()
        {
            self.send_blank(who, nth, TRANSACTION_MESSAGES + 1, batch, oracle);
        }
        oracle.within(None);
        self.is_within = false;
        put_within(id, &mut batch.commands[before..]);
    }

    /// Messages of which nothing matters but how many they are.
    pub(super) fn send_blank(
        &mut self,
        who: Actor,
        nth: usize,
        count: usize,
        batch: &mut Batch,
        oracle: &mut Oracle,
    ) {
        let first = batch.messages.len();
        let incoming = Incoming::new(Intake::default());
        batch.messages.extend(std::iter::repeat_n(incoming, count));
        let (link, delivery) = self.next_delivery(who, nth, false);
        batch.send(link, delivery, false, first);
        let told = (0..count).map(|_| crate::oracle::NewMessage::blank(0));
        oracle.send(link, delivery, false, told.collect());
    }
}

/// What was said last is part of a transaction. The parts of a large message are not; the delivery that ends it is.
fn put_within(transaction: TransactionId, commands: &mut [Command]) {
    for each in commands {
        let is_operation = matches!(
            each,
            Command::Send { .. }
                | Command::Settle { .. }
                | Command::SettleTokens { .. }
                | Command::Schedule { .. }
                | Command::RenewLocks { .. }
        );
        if is_operation {
            let nothing = Command::DropParts { link: LinkId::default() };
            let command = Box::new(std::mem::replace(each, nothing));
            *each = Command::Within { transaction, command };
        }
    }
}
