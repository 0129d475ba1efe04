//! How a door asks the broker a question that has one answer.

use crate::metrics::Work;
use broker::{Answer, Command, Refusal, RequestId};
use engine::{Handle, Stopped};

/// Whoever answers commands that carry a request id.
pub trait Ask: Send + Sync {
    /// Asks and waits. The answer is durable when it arrives.
    fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Stopped>> + Send;

    /// Whether what is sent now would be stored.
    fn is_healthy(&self) -> bool;

    /// What was done since the start.
    fn work(&self) -> Work;
}

impl Ask for Handle {
    async fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        Handle::ask(self, make).await
    }

    fn is_healthy(&self) -> bool {
        !self.is_closed() && !self.condition().is_full() && self.condition().damage().is_none()
    }

    fn work(&self) -> Work {
        Work { damages: self.condition().damages(), ..self.counters().into() }
    }
}
