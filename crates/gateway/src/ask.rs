//! How a door asks the broker a question that has one answer.

use broker::{Answer, Command, Refusal, RequestId};

/// The server is stopping and no longer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopped;

/// Whoever answers commands that carry a request id.
pub trait Ask: Send + Sync {
    /// Asks and waits. The answer is durable when it arrives.
    fn ask(
        &self,
        make: impl FnOnce(RequestId) -> Command + Send,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Stopped>> + Send;

    /// Whether what is sent now would be stored.
    fn is_healthy(&self) -> bool;
}
