//! The two engines, the bus's and the items', each on a journal of its own: opened before anything is served, stopped together.

use crate::data::Data;
use crate::durability::Durability;
use crate::items;
use crate::settings::Settings;
use crate::signals::{StopSignal, unless_stopped};
use anyhow::Context;
use journal::Local;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// What the threads that serve connections turn to when nothing is left to do for these, once it is there.
#[derive(Debug, Default)]
pub struct Served {
    bus: OnceLock<engine::Handle>,
    items: OnceLock<items_engine::Handle>,
}

impl Served {
    pub fn set(&self, engines: &Engines) {
        self.bus.get_or_init(|| engines.bus.handle().clone());
        if let Some(items) = &engines.items {
            self.items.get_or_init(|| items.handle().clone());
        }
    }

    /// Called by a thread before it waits for what clients send.
    pub fn rest(&self) {
        // The items first: it is the bus that may make the thread pause.
        self.items.get().into_iter().for_each(items_engine::Handle::rest);
        self.bus.get().into_iter().for_each(engine::Handle::pause);
    }
}

/// What runs behind the doors.
#[derive(Debug)]
pub struct Engines {
    pub bus: engine::Engine,
    /// None if the items have no address.
    pub items: Option<items_engine::Engine>,
    bus_failure: oneshot::Receiver<String>,
    items_failure: oneshot::Receiver<String>,
}

impl Engines {
    /// Starts the bus on its journal, and the items if they have an address. `None` if the server is told to stop meanwhile.
    pub async fn open(
        journal: Local,
        data: &Data,
        settings: &Settings,
        stop: &mut StopSignal,
    ) -> anyhow::Result<Option<Engines>> {
        let (failed, bus_failure) = oneshot::channel();
        let options = bus_options(settings)?;
        let opened = spawn_blocking(move || {
            Ok(engine::Engine::open(Box::new(journal), options, |why| tell(failed, why))?)
        });
        let Some(bus) = unless_stopped(stop, opened).await? else { return Ok(None) };
        let (failed, items_failure) = oneshot::channel();
        if settings.listen_items.is_empty() {
            return Ok(Some(Engines { bus, items: None, bus_failure, items_failure }));
        }
        let opened = spawn_blocking({
            let (path, durability, cache_bytes) =
                (data.items(), settings.durability, settings.items_cache_bytes);
            move || items::open(&path, durability, cache_bytes, |why| tell(failed, why))
        });
        match unless_stopped(stop, opened).await {
            Ok(Some(items)) => Ok(Some(Engines { bus, items: Some(items), bus_failure, items_failure })),
            other => {
                Engines { bus, items: None, bus_failure, items_failure }.end();
                other.map(|_| None)
            }
        }
    }

    /// Returns when one of them cannot go on, and says why.
    pub async fn failed(&mut self) -> String {
        tokio::select! {
            why = &mut self.bus_failure => why.unwrap_or_else(|_| "its thread ended".to_owned()),
            why = &mut self.items_failure, if self.items.is_some() => {
                why.unwrap_or_else(|_| "the thread of the items ended".to_owned())
            }
        }
    }

    /// Finishes what was begun and closes the journals.
    pub fn stop(self) -> anyhow::Result<()> {
        let items = self.items.map_or(Ok(()), items_engine::Engine::stop);
        self.bus.stop().and(items).map_err(|why| stopped(&why))
    }

    /// Ends them on the way out of a start that failed for another reason.
    pub fn end(self) {
        if let Err(why) = self.stop() {
            tracing::error!("{why:#}");
        }
    }
}

/// What is said of a journal that takes nothing more.
pub fn stopped(why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the journal has stopped and nothing more is accepted: {why}; what was accepted is safe, start again"
    )
}

fn tell(failed: oneshot::Sender<String>, why: String) {
    // The server may be gone already; then nobody needs to hear it.
    let _ = failed.send(why);
}

/// Opens the bus's journal, or begins one.
pub async fn open_bus_journal(
    data: &Data,
    settings: &Settings,
    stop: &mut StopSignal,
) -> anyhow::Result<Option<Local>> {
    let (path, options) = (data.journal(), journal_options(settings.durability)?);
    unless_stopped(stop, spawn_blocking(move || open_journal(&path, options))).await
}

pub fn journal_options(durability: Durability) -> anyhow::Result<journal::Options> {
    Ok(journal::Options { durability: durability.into(), ..journal::Options::new(getrandom::u64()?) })
}

pub fn open_journal(path: &Path, options: journal::Options) -> anyhow::Result<Local> {
    let disk = journal::disk::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let journal = Local::open(Arc::new(disk), options)?;
    if let Some(cut) = journal.cut() {
        tracing::warn!("{cut}");
    }
    Ok(journal)
}

fn bus_options(settings: &Settings) -> anyhow::Result<engine::Options> {
    Ok(engine::Options {
        owner: u64::from(std::process::id()),
        nonce: u128::from(getrandom::u64()?) << 64 | u128::from(getrandom::u64()?),
        tail_cache_bytes: settings.tail_cache_bytes,
        state_bytes: settings.state_bytes,
    })
}
