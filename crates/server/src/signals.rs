//! What a running server is told from outside: to stop, or to read its configuration again.

use anyhow::Context;

/// Waits for a step of the start that may take long, or until the server shall stop: then `None`. The step goes on until the
/// process ends, which is no worse for the journal than to be killed.
pub async fn unless_stopped<T>(
    stop: &mut StopSignal,
    step: tokio::task::JoinHandle<anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    tokio::select! {
        done = step => done.context("the start was interrupted")?.map(Some),
        () = stop.received() => {
            tracing::warn!("told to stop before it was ready");
            Ok(None)
        }
    }
}

/// SIGHUP; elsewhere there is none.
pub struct ReloadSignal {
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    pub fn listen() -> std::io::Result<ReloadSignal> {
        Ok(ReloadSignal {
            #[cfg(unix)]
            hang_up: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    pub async fn received(&mut self) {
        #[cfg(unix)]
        if self.hang_up.recv().await.is_some() {
            return;
        }
        std::future::pending().await
    }
}

/// Ctrl-C, or SIGTERM.
#[cfg(unix)]
pub struct StopSignal {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignal {
    pub fn listen() -> std::io::Result<StopSignal> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(StopSignal {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub struct StopSignal;

#[cfg(not(unix))]
impl StopSignal {
    pub fn listen() -> std::io::Result<StopSignal> {
        Ok(StopSignal)
    }

    pub async fn received(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
