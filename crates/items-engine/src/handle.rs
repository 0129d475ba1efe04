//! What the doors hold.

use items::{Command, Refusal, Reply};

/// A way to ask and to be answered. Cheap to clone; all clones speak to the same engine.
#[derive(Debug, Clone)]
pub struct Handle {}

impl Handle {
    /// Asks one thing. The answer comes when everything it may have seen is durable.
    pub async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        let _ = command;
        Err(Refusal::NotAvailable("This command"))
    }

    /// The time of the items, in milliseconds since 1970: `date` headers and tests.
    pub fn now_ms(&self) -> i64 {
        0
    }
}
