//! From settings to a running server and back to nothing. All ports are bound before the data directory is touched, and
//! nobody is told `ready` before everything listens; whatever fails on the way leaves nothing behind that runs.

use crate::announce::Announcement;
use crate::data::Data;
use crate::settings::Settings;
use anyhow::{Context, bail};
use broker::{Command, NamespaceId, QueueSettings, Refusal};
use engine::{Engine, Handle};
use gateway::auth::{Guard, Policy};
use gateway::{State, listen, tls};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// How long a stopping server waits for connections to end. What was accepted is durable already; the rest is politeness.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let listeners = bind(&settings.listen_bus).await?;
    let data = Data::open(&settings.data)?;
    let root = data.root_policy()?;
    let certificates = tls::Files::open_or_make(&data.path, &settings.tls_names)?;
    let acceptor = TlsAcceptor::from(certificates.server_config()?);
    let (failed, failure) = oneshot::channel();
    let engine = open_engine(&data.journal(), &settings, failed)?;
    if let Err(error) = create_missing(engine.handle(), &settings.queues).await {
        engine.stop();
        return Err(error);
    }
    let guard = Guard::new(policies(&settings, &root), settings.is_loopback_only());
    let announcement = Announcement {
        bus: listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?,
        data: &data.path,
        ca: &certificates.ca,
        keys: data.keys(),
        root: &root,
        takes_well_known_key: guard.knows_well_known_key(),
    };
    let state = Arc::new(State::new(engine.handle().clone(), guard));
    let places = listen::places();
    let doors: Vec<_> = listeners
        .into_iter()
        .map(|listener| listen::accept(listener, acceptor.clone(), places.clone(), state.clone()))
        .map(tokio::spawn)
        .collect();
    if let Some(path) = &settings.ready_file
        && let Err(error) = announcement.write(path)
    {
        engine.stop();
        return Err(error).with_context(|| format!("cannot write {}", path.display()));
    }
    announcement.print();

    let ended = tokio::select! {
        () = stop.received() => Ok(()),
        why = failure => Err(why.unwrap_or_else(|_| "its thread ended".to_owned())),
    };
    doors.iter().for_each(tokio::task::JoinHandle::abort);
    if let Err(why) = ended {
        bail!(
            "the journal has stopped and nothing more is accepted: {why}; what was accepted is safe, start again"
        );
    }
    state.stop();
    let polite = async {
        if tokio::time::timeout(STOP_GRACE, state.idle()).await.is_err() {
            tracing::info!("some connections did not end in time and are cut");
        }
        tokio::task::spawn_blocking(|| engine.stop()).await
    };
    tokio::select! {
        stopped = polite => stopped.context("the engine did not stop cleanly"),
        () = stop.received() => bail!("stopped at once by a second signal"),
    }
}

async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    if addresses.is_empty() {
        bail!("there is no address to listen on; give one with --listen-bus");
    }
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(listen::bind(*address).await?);
    }
    Ok(listeners)
}

/// Opens the journal and starts the partition on it. `failed` hears when it cannot go on.
fn open_engine(path: &Path, settings: &Settings, failed: oneshot::Sender<String>) -> anyhow::Result<Engine> {
    let disk = journal::disk::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let options = journal::Options {
        durability: settings.durability.into(),
        ..journal::Options::new(getrandom::u64()?)
    };
    let journal = journal::Local::open(Arc::new(disk), options)?;
    let options = engine::Options {
        owner: u64::from(std::process::id()),
        nonce: getrandom::u64()?,
        has_sync_thread: true,
        tail_cache_bytes: settings.tail_cache_bytes,
    };
    let on_failure = |why| {
        // The server may be gone already; then nobody needs to hear it.
        let _ = failed.send(why);
    };
    Ok(Engine::open(Box::new(journal), options, on_failure)?)
}

/// Creates the queues of the configuration that do not exist. Those that do are left as they are: they may hold messages,
/// and their settings may have been changed on purpose.
async fn create_missing(engine: &Handle, queues: &[(Box<str>, QueueSettings)]) -> anyhow::Result<()> {
    for (path, settings) in queues {
        let make = |request| Command::CreateQueue {
            request,
            namespace: NamespaceId::default(),
            path: path.clone(),
            settings: Box::new(settings.clone()),
        };
        match engine.ask(make).await? {
            Ok(_) | Err(Refusal::EntityExists(_)) => {}
            Err(refusal) => bail!("cannot create queue `{path}` of the configuration: {refusal}"),
        }
    }
    Ok(())
}

/// The configured policies, and the root policy unless one of its name is configured.
fn policies(settings: &Settings, root: &Policy) -> Vec<Policy> {
    let is_configured = settings.policies.iter().any(|policy| policy.name == root.name);
    let root = (!is_configured).then(|| root.clone());
    settings.policies.iter().cloned().chain(root).collect()
}

/// Ctrl-C, or SIGTERM.
#[cfg(unix)]
struct StopSignal {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignal {
    fn listen() -> std::io::Result<StopSignal> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(StopSignal {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct StopSignal;

#[cfg(not(unix))]
impl StopSignal {
    fn listen() -> std::io::Result<StopSignal> {
        Ok(StopSignal)
    }

    async fn received(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
