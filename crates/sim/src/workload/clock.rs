//! Those who move time: mostly by a little, sometimes past everything that is due, and now and then by more than is allowed.

use super::{Actor, NAMESPACE, Workload};
use crate::oracle::{Oracle, Question};
use broker::limits::ADVANCE_MOST;
use broker::{Command, NamespaceId, Span, Task};
use engine::Batch;

/// What the second namespace is called.
const SECOND_NAME: &str = "second";

impl Workload {
    /// There is a second namespace from now on, if there was none.
    pub(super) fn name_second(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let request = self.request(who, "");
        oracle.ask(request, Question::NameNamespace(SECOND_NAME));
        let task = Box::new(Task::NameNamespace { name: SECOND_NAME.into() });
        batch.commands.push(Command::Manage { request, namespace: NAMESPACE, task });
    }

    /// Moves the time of a namespace, or asks for it.
    pub(super) fn ask_clock(&mut self, who: Actor, batch: &mut Batch, oracle: &mut Oracle) {
        let namespace = NamespaceId(self.random.below(2) as u32);
        if self.random.once_in(4) {
            let request = self.request(who, "");
            oracle.ask(request, Question::TellTime(namespace));
            let task = Box::new(Task::TellTime);
            return batch.commands.push(Command::Manage { request, namespace, task });
        }
        if namespace != NAMESPACE {
            self.name_second(who, batch, oracle);
        }
        let by = match self.random.below(12) {
            0 => Span(0),
            1..4 => Span(self.random.between(1, 100)),
            4..8 => Span(self.random.between(100, 40_000)),
            8..10 => Span::seconds(self.random.between(40, 600)),
            10 if self.random.once_in(8) => Span(ADVANCE_MOST.0 + 1),
            _ => Span::minutes(self.random.between(10, 300)),
        };
        let request = self.request(who, "");
        oracle.ask(request, Question::Advance(namespace, by));
        batch.commands.push(Command::Advance { request, namespace, by });
    }
}
