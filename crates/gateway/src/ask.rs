//! How a door asks the broker a question that has one answer.

use crate::metrics::Totals;
use broker::{Answer, Command, Refusal, RequestId};
use engine::{Handle, Problem, Stopped};
use std::time::Instant;

/// What answers commands that carry a request id.
pub trait Ask: Send + Sync {
    /// Asks and waits. The answer is durable when it arrives.
    fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Stopped>> + Send;

    /// Where messages are sent and received.
    fn engine(&self) -> &Handle;

    /// What keeps what is sent now from being stored; nothing, in good health.
    fn problems(&self) -> Vec<Problem>;

    /// How far the server's time is ahead of its machine's clock, in milliseconds, if that is much.
    fn large_gap_ms(&self) -> Option<i64>;

    /// What was done since the start.
    fn totals(&self) -> Totals;
}

impl Ask for Handle {
    async fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        Handle::ask(self, make).await
    }

    fn engine(&self) -> &Handle {
        self
    }

    fn problems(&self) -> Vec<Problem> {
        self.health().problems(Instant::now())
    }

    fn large_gap_ms(&self) -> Option<i64> {
        self.health().large_gap_ms()
    }

    fn totals(&self) -> Totals {
        Totals { damages: self.health().damages(), ..self.counters().into() }
    }
}
