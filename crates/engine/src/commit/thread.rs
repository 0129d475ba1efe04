//! The thread that owns a partition: how it begins, and how it is waited for.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that runs until its partition is closed or cannot go on.
#[derive(Debug)]
pub struct OwnerThread(JoinHandle<Result<(), String>>);

impl OwnerThread {
    /// Starts `work`, which ends with the reason if it cannot go on; `on_failure` is told it on the same thread.
    pub fn spawn(
        name: &str,
        work: impl FnOnce() -> Result<(), String> + Send + 'static,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<OwnerThread> {
        let thread = Builder::new().name(name.into()).spawn(move || {
            let ended = work();
            if let Err(why) = &ended {
                on_failure(why.clone());
            }
            ended
        })?;
        Ok(OwnerThread(thread))
    }

    /// Waits for the end. Says why, if the work could not be finished.
    pub fn join(self) -> Result<(), String> {
        match self.0.join() {
            Ok(ended) => ended,
            // A bug on the partition's thread. It has been reported where it happened, and nothing may be served.
            Err(_) => std::process::abort(),
        }
    }
}
