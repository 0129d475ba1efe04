//! The end of a run: on a disk that works, everything that is left is received and completed, and the oracle looks
//! whether it was all.

use crate::faults::DiskPlan;
use crate::machine::{Alive, Machine};
use crate::oracle::{Door, Role};
use crate::{PARTITIONS, Run};
use broker::{Command, ConnectionId, LinkId, NamespaceId, Outcome, ReceiveMode};
use engine::{Batch, Item, Outgoing};
use std::sync::Arc;

const DRAINING: ConnectionId = ConnectionId(u32::MAX);

impl Run<'_> {
    pub(crate) fn drain(&mut self) {
        self.end();
        for nth in 0..PARTITIONS {
            self.machines[nth].start(DiskPlan::HEALTHY);
            self.drain_one(nth);
        }
    }

    fn drain_one(&mut self, nth: usize) {
        let machine = &mut self.machines[nth];
        let shared = machine.shared.clone();
        let mailbox = Arc::new(Door { connection: DRAINING, shared: shared.clone() });
        shared.lock().connected(DRAINING);
        machine.put(Item::Connect { connection: DRAINING, mailbox });
        machine.put(Item::Batch(attach_everywhere(machine)));
        let mut deliveries = 0;
        while shared.lock().violation.is_none() && machine.run(false, true) == Alive::Yes {
            let mut batch = Batch::default();
            for outgoing in shared.take() {
                let Outgoing::Deliver(sent) = outgoing else { continue };
                deliveries += 1;
                let (link, delivery, token) = (sent.link, deliveries, sent.delivery.token);
                let mut oracle = shared.lock();
                self.workload.take(nth, &sent, || false, &mut oracle);
                oracle.settle(link, delivery, token, &Outcome::Complete, true);
                let outcome = Outcome::Complete;
                batch.commands.push(Command::Settle { link, delivery, token, outcome, wants_answer: true });
            }
            if batch.is_empty() {
                break;
            }
            machine.put(Item::Batch(batch));
        }
        shared.lock().end();
    }
}

fn attach_everywhere(machine: &Machine) -> Batch {
    let mut batch = Batch::default();
    let mut oracle = machine.shared.lock();
    let open = oracle.ledger.queues.values().filter(|queue| queue.may_receive());
    let paths: Vec<String> = open.map(|queue| queue.path.clone()).collect();
    for (path, number) in paths.into_iter().zip(1..) {
        let link = LinkId { connection: DRAINING, link: number };
        let mode = ReceiveMode::PeekLock;
        oracle.attach(link, &path, Role::Receiver(mode));
        oracle.credit(link, u64::MAX, false);
        let namespace = NamespaceId(0);
        batch.commands.push(Command::AttachReceiver { link, namespace, path: path.into(), mode });
        batch.commands.push(Command::Credit { link, limit: u64::MAX, drain: false });
    }
    batch
}
