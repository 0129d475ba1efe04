//! Every rule of transactions, one by one.

mod commit;
mod limits;
mod publish;
mod settle;

use super::Charge;
use crate::command::ReceiveMode::{PeekLock, ReceiveAndDelete};
use crate::limits::{
    CONNECTION_TRANSACTIONS, STAGED_BYTES, STAGED_HELD_TOTAL, STAGED_MESSAGE_COST, TRANSACTION_MESSAGES,
    TRANSACTION_SETTLEMENTS,
};
use crate::snapshot::stored_bodies;
use crate::testing::{World, deliveries, message};
use crate::topic::routes::tests::{sql, world_of};
use crate::topic::rule::{Filter, Rule, Sql};
use crate::topic::subject::tests::encoded;
use crate::*;
use message::overlay::Overlay;

const UNKNOWN: Refusal = Refusal::UnknownTransaction;

/// A world in which somebody has a coordinator and sends to `q`.
struct Bench {
    world: World,
    coordinator: LinkId,
    sender: LinkId,
}

impl Bench {
    fn new() -> Bench {
        Bench::in_world(World::with_queue("q"), "q")
    }

    fn in_world(mut world: World, path: &str) -> Bench {
        let coordinator = world.link();
        let effects = attach(&mut world, coordinator);
        assert!(matches!(effects[..], [Effect::Notice(Notice::Attached { .. })]), "{effects:?}");
        let sender = world.sender(path);
        Bench { world, coordinator, sender }
    }

    fn declare(&mut self) -> TransactionId {
        let effects = self.world.command(Command::Declare { link: self.coordinator, delivery: 0 }, &[]);
        match effects[..] {
            [Effect::Notice(Notice::Declared { transaction, .. })] => transaction,
            _ => panic!("{effects:?}"),
        }
    }

    fn within(&mut self, transaction: TransactionId, command: Command, messages: &[Incoming]) -> Vec<Effect> {
        self.world.command(Command::Within { transaction, command: Box::new(command) }, messages)
    }

    fn send(&mut self, transaction: TransactionId, messages: &[Incoming]) -> Result<(), Refusal> {
        let (link, range) = (self.sender, 0..messages.len() as u32);
        let sessions = SessionIds::default();
        let send = Command::Send { link, delivery: 7, is_settled: false, messages: range, sessions };
        match &self.within(transaction, send, messages)[..] {
            [Effect::Notice(Notice::Staged { delivery: 7, outcome: None, transaction: told, .. })] => {
                assert_eq!(*told, transaction);
                Ok(())
            }
            [Effect::Notice(Notice::Rejected { delivery: 7, refusal, .. })] => Err(refusal.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn settle(
        &mut self,
        transaction: TransactionId,
        token: LockToken,
        outcome: Outcome,
    ) -> Result<(), Refusal> {
        let (request, namespace, path) = (self.request(), NamespaceId(0), "q".into());
        let command = Command::SettleTokens { request, namespace, path, tokens: [token].into(), outcome };
        self.ask(transaction, command, &[]).map(|answer| assert_eq!(answer, Answer::Settled))
    }

    fn request(&self) -> RequestId {
        RequestId { connection: self.coordinator.connection, request: 0 }
    }

    fn ask(
        &mut self,
        transaction: TransactionId,
        command: Command,
        messages: &[Incoming],
    ) -> Result<Answer, Refusal> {
        match &self.within(transaction, command, messages)[..] {
            [Effect::Answered { answer, .. }] => answer.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn schedule(&mut self, transaction: TransactionId, messages: &[Incoming]) -> Result<Vec<u64>, Refusal> {
        let (request, namespace, path) = (self.request(), NamespaceId(0), "q".into());
        let (range, sessions) = (0..messages.len() as u32, SessionIds::default());
        let command = Command::Schedule { request, namespace, path, messages: range, sessions };
        match self.ask(transaction, command, messages)? {
            Answer::Scheduled(numbers) => Ok(numbers.into_iter().map(|number| number.0).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn discharge(&mut self, transaction: TransactionId, is_failed: bool) -> Result<(), Refusal> {
        let link = self.coordinator;
        let effects =
            self.world.command(Command::Discharge { link, delivery: 9, transaction, is_failed }, &[]);
        let told = effects.into_iter().find_map(|effect| match effect {
            Effect::Accepted { delivery: 9, link: told } if told == link => Some(Ok(())),
            Effect::Notice(Notice::Rejected { delivery: 9, refusal, .. }) => Some(Err(refusal)),
            _ => None,
        });
        told.expect("a discharge is answered")
    }

    fn commit(&mut self, transaction: TransactionId) -> Result<(), Refusal> {
        self.discharge(transaction, false)
    }

    fn active(&self) -> u64 {
        self.world.queue("q").counts.active
    }

    fn count(&self, sequence: u64) -> u32 {
        self.world.queue("q").index.get(Sequence(sequence)).unwrap().count()
    }

    fn charge(&self) -> Charge {
        let charges = &self.world.broker.volatile.transactions.charges;
        charges.get(&self.coordinator.connection).map(|charges| charges.charge).unwrap_or_default()
    }

    /// Locks the first message of the queue.
    fn lock(&mut self) -> LockToken {
        self.world.send_committed("q", 1);
        self.world.receiver("q", PeekLock, 1);
        self.world.token(1)
    }
}

fn attach(world: &mut World, link: LinkId) -> Vec<Effect> {
    world.command(Command::AttachCoordinator { link, namespace: NamespaceId(0) }, &[])
}

fn rolled_back(ended: &Result<(), Refusal>, why: &str) -> bool {
    matches!(ended, Err(Refusal::RolledBack(text)) if text.contains(why))
}
