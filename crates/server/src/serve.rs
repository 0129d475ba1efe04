//! From settings to a running server and back to nothing. All ports are bound before the data directory is touched, and
//! nobody is told `ready` before everything listens; whatever fails on the way leaves nothing behind that runs.

use crate::announce::Announcement;
use crate::data::Data;
use crate::definition::{self, Definition, Untaken};
use crate::durability::Durability;
use crate::flags::Flags;
use crate::issuer_keys;
use crate::item_definition;
use crate::item_table::AccountKeys;
use crate::items;
use crate::settings::Settings;
use anyhow::{Context, bail};
use broker::{LocalTime, NamespaceId};
use engine::{Engine, Handle};
use gateway::account::Memory;
use gateway::auth::{Development, Guard, Policy};
use gateway::names::Names;
use gateway::namespaces::{Namespace, Namespaces};
use gateway::places::Places;
use gateway::{State, listen, tls};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// How long a stopping server waits for connections to end. What was accepted is durable already; the rest is politeness.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Serves until somebody stops it. `open_files` is how many files this process may have open, its connections among them. The
/// engine is put into `bus`, for the threads that serve connections.
pub async fn serve(
    mut settings: Settings,
    flags: Flags,
    open_files: u64,
    bus: &OnceLock<engine::Handle>,
) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let mut reload = ReloadSignal::listen()?;
    if settings.listen_bus.is_empty() {
        bail!("there is no address to listen on; give one with --listen-bus");
    }
    let listeners = bind(&settings.listen_bus).await?;
    let item_listeners = bind(&settings.listen_items)
        .await
        .context("the items cannot be served; --listen-items says where")?;
    if settings.has_development_issuer && !settings.is_loopback_only() {
        bail!(
            "the development issuer gives everybody every right: it needs a server that listens on loopback alone"
        );
    }
    let data = Data::open(&settings.data)?;
    data.check_journal()?;
    let made = if data.is_new() { settings.add_first_entities() } else { Vec::new() };
    if !item_listeners.is_empty() {
        data.check_items()?;
    }
    let opened = tokio::task::spawn_blocking({
        let (path, durability) = (data.journal(), settings.durability);
        move || open_journal(&path, durability)
    });
    let Some(journal) = unless_stopped(&mut stop, opened).await? else { return Ok(()) };
    // Behind the journal: keys without a journal mean that it was lost.
    let root = data.root_policy()?;
    let certificates = match &settings.certificate {
        Some((certificate, key)) => tls::Files::given(certificate, key),
        None => tls::Files::open_or_make(&data.path, &settings.tls_names)?,
    };
    warn_of_names(&settings, &certificates)?;
    let certificate = tls::Certificate::load(&certificates)?;
    let acceptor = TlsAcceptor::from(tls::server_config(&certificate)?);
    let (failed, failure) = oneshot::channel();
    let memory = (settings.tail_cache_bytes, settings.state_bytes);
    let opened = tokio::task::spawn_blocking(move || open_engine(journal, memory, failed));
    let Some(engine) = unless_stopped(&mut stop, opened).await? else { return Ok(()) };
    bus.get_or_init(|| engine.handle().clone());
    let (items_failed, items_failure) = oneshot::channel();
    let has_items = !item_listeners.is_empty();
    let opened = tokio::task::spawn_blocking({
        let (path, durability, cache_bytes) = (data.items(), settings.durability, settings.items_cache_bytes);
        move || has_items.then(|| items::open(&path, durability, cache_bytes, items_failed)).transpose()
    });
    let items = match unless_stopped(&mut stop, opened).await {
        Ok(Some(items)) => items,
        other => {
            end(engine);
            return other.map(drop);
        }
    };
    // As the bus's: behind the journal.
    let account_keys = match has_items {
        true => settings.items.keys.or(&data.account_keys()?),
        false => AccountKeys::default(),
    };
    let is_loopback_only = settings.is_loopback_only();
    let development = match settings.has_development_issuer {
        true => Some(Arc::new(Development::new().ok().context("there is no randomness for a key")?)),
        false => None,
    };
    let opener = NamespaceOpener {
        engine: engine.handle().clone(),
        root: root.clone(),
        is_loopback_only,
        development: development.clone(),
    };
    let (default, others, known) = match opener.open_all(&settings.namespaces).await {
        Ok(namespaces) => namespaces,
        Err(error) => {
            end_items(items);
            end(engine);
            return Err(error);
        }
    };
    let items_handle = items.as_ref().map(|items| items.handle().clone());
    if let Some(handle) = &items_handle {
        // The same threads serve both: what the items have to answer does not wait for the bus.
        handle.end_also(Arc::clone(engine.handle().pauses()));
        let untaken =
            item_definition::apply(handle, &settings.items.databases, settings.config_file.as_deref()).await;
        if !untaken.is_empty() {
            end_items(items);
            end(engine);
            bail!("{}", untaken.join("; "));
        }
    }
    // A policy of this name in the file takes the place of the one made at the first start.
    let mut policies = settings.namespaces.iter().take(1).flat_map(|default| &default.policies);
    let configured = policies.find(|policy| policy.name == root.name);
    let announcement = Announcement {
        bus: listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?,
        items: item_listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?,
        items_key: account_keys.primary.as_ref(),
        items_keys: match &settings.items.keys.primary {
            Some(_) => settings.config_file.clone().unwrap_or_default(),
            None => data.account_keys_file(),
        },
        data: &data.path,
        ca: &certificates.ca,
        keys: match &configured {
            Some(_) => settings.config_file.clone().unwrap_or_default(),
            None => data.keys(),
        },
        root: configured.unwrap_or(&root),
        takes_well_known_key: default.guard.knows_well_known_key(),
        made,
    };
    let mut state = State::new(engine.handle().clone(), Namespaces::new(default, others, &known));
    state.has_test_clock = settings.has_test_clock;
    state.development = development;
    state.memory = Arc::new(Memory::new(settings.connections_bytes));
    state.names = Names::new(&settings.tls_names);
    state.items = items_handle.clone();
    let state = Arc::new(state);
    if settings.has_test_clock {
        tracing::warn!("whoever manages a namespace may move its time: the test clock is on");
    }
    let places = Places::of_open_files(open_files, settings.connections_bytes);
    let doors: Vec<_> = listeners
        .into_iter()
        .map(|listener| listen::accept(listener, acceptor.clone(), places.clone(), state.clone()))
        .map(tokio::spawn)
        .collect();
    let items_door =
        items_handle.map(|handle| items_door(handle, &account_keys, &settings)).transpose()?.map(Arc::new);
    let items_acceptor = TlsAcceptor::from(tls::server_config_with_http2(&certificate)?);
    let item_doors: Vec<_> = item_listeners
        .into_iter()
        .zip(std::iter::repeat_with(|| items_door.clone()))
        .filter_map(|(listener, door)| {
            Some(listen::accept(listener, items_acceptor.clone(), places.clone(), door?))
        })
        .map(tokio::spawn)
        .collect();
    if let Some(path) = &settings.ready_file
        && let Err(error) = announcement.write(path)
    {
        end_items(items);
        end(engine);
        return Err(error).with_context(|| format!("cannot write {}", path.display()));
    }
    announcement.print();

    let (mut failure, mut items_failure) = (failure, items_failure);
    let ended = loop {
        tokio::select! {
            () = stop.received() => break Ok(()),
            why = &mut failure => break Err(why.unwrap_or_else(|_| "its thread ended".to_owned())),
            why = &mut items_failure, if items.is_some() => {
                break Err(why.unwrap_or_else(|_| "the thread of the items ended".to_owned()));
            }
            () = reload.received() => {
                let mut untaken = opener.reload(&settings, &flags, &state, &certificates, &certificate).await;
                if let Some(door) = &items_door {
                    untaken.extend(reload_items(door, &state, &settings, &flags, &data).await);
                }
                // What runs goes on with what it has.
                untaken.iter().for_each(|what| tracing::error!("not taken: {what}"));
                match untaken.len() {
                    0 => tracing::info!("the configuration was read again"),
                    count => tracing::error!(count, "the configuration was read again in part"),
                }
            }
        }
    };
    doors.iter().chain(&item_doors).for_each(tokio::task::JoinHandle::abort);
    if let Err(why) = ended {
        return Err(journal_stopped(&why));
    }
    end_politely(&state, items_door.as_deref(), engine, items, &mut stop).await
}

/// Lets connections end, for a while, and then the engines; a second signal ends it all at once.
async fn end_politely(
    state: &State,
    items_door: Option<&ItemsDoor>,
    engine: Engine,
    items: Option<items_engine::Engine>,
    stop: &mut StopSignal,
) -> anyhow::Result<()> {
    state.stop();
    if let Some(door) = items_door {
        door.stop();
    }
    let idle = async {
        state.idle().await;
        if let Some(door) = items_door {
            door.idle().await;
        }
    };
    let polite = async {
        if tokio::time::timeout(STOP_GRACE, idle).await.is_err() {
            tracing::info!("some connections did not end in time and are cut");
        }
        tokio::task::spawn_blocking(|| {
            let items = items.map_or(Ok(()), items_engine::Engine::stop);
            engine.stop().and(items)
        })
        .await
    };
    tokio::select! {
        stopped = polite => stopped.context("the engine did not stop cleanly")?.map_err(|why| journal_stopped(&why)),
        () = stop.received() => bail!("stopped at once by a second signal"),
    }
}

fn journal_stopped(why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the journal has stopped and nothing more is accepted: {why}; what was accepted is safe, start again"
    )
}

/// Ends the engine on the way out of a start that failed for another reason.
fn end(engine: Engine) {
    if let Err(why) = engine.stop() {
        tracing::error!("{:#}", journal_stopped(&why));
    }
}

/// The same for the items.
fn end_items(items: Option<items_engine::Engine>) {
    if let Some(Err(why)) = items.map(items_engine::Engine::stop) {
        tracing::error!("{:#}", journal_stopped(&why));
    }
}

/// Waits for a step of the start that may take long. Whoever wants the server to stop meanwhile is not kept waiting: `None`.
/// The step goes on until the process ends, which is no worse for the journal than to be killed.
async fn unless_stopped<T>(
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

/// Certificates are made once and kept: a name that was added later is in none of them, and whoever added it must know.
fn warn_of_names(settings: &Settings, files: &tls::Files) -> anyhow::Result<()> {
    if settings.certificate.is_none() {
        for name in files.missing_names(&settings.tls_names)? {
            let folder = files.certificate.parent().unwrap_or(Path::new("tls")).display();
            tracing::warn!(
                name,
                "the certificate was made before `[tls] names` had this name and does not have it; remove {folder} \
                 to have a new CA and certificate made at the next start, and give the new ca.pem to the clients"
            );
        }
    }
    Ok(())
}

async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(listen::bind(*address).await?);
    }
    Ok(listeners)
}

/// Opens the journal, or begins one.
fn open_journal(path: &Path, durability: Durability) -> anyhow::Result<journal::Local> {
    let disk = journal::disk::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let options =
        journal::Options { durability: durability.into(), ..journal::Options::new(getrandom::u64()?) };
    let journal = journal::Local::open(Arc::new(disk), options)?;
    if let Some(cut) = journal.cut() {
        tracing::warn!("{cut}");
    }
    Ok(journal)
}

/// Starts the partition on its journal. `failed` hears when it cannot go on.
fn open_engine(
    journal: journal::Local,
    (tail_cache_bytes, state_bytes): (usize, usize),
    failed: oneshot::Sender<String>,
) -> anyhow::Result<Engine> {
    let options = engine::Options {
        owner: u64::from(std::process::id()),
        nonce: u128::from(getrandom::u64()?) << 64 | u128::from(getrandom::u64()?),
        tail_cache_bytes,
        state_bytes,
    };
    let on_failure = |why| {
        // The server may be gone already; then nobody needs to hear it.
        let _ = failed.send(why);
    };
    Ok(Engine::open(Box::new(journal), options, on_failure)?)
}

type ItemsDoor = gateway::cosmos::Door<items_engine::Handle>;

fn items_door(
    items: items_engine::Handle,
    keys: &AccountKeys,
    settings: &Settings,
) -> anyhow::Result<ItemsDoor> {
    let keys = keys.checked(settings.is_loopback_only())?;
    let usual = gateway::cosmos::Settings::default();
    let door = gateway::cosmos::Settings {
        account: settings.items.account.clone().unwrap_or(usual.account),
        endpoint: settings.items.endpoint.clone(),
        skew: settings.items.clock_skew.unwrap_or(usual.skew),
        has_test_clock: settings.has_test_clock,
    };
    Ok(ItemsDoor::new(items, keys, Names::new(&settings.tls_names), door))
}

/// Reads the configuration of the items again: keys, and what is declared.
async fn reload_items(
    door: &ItemsDoor,
    state: &State,
    started: &Settings,
    flags: &Flags,
    data: &Data,
) -> Vec<String> {
    // What cannot be read was said for the bus already.
    let Ok(settings) = Settings::gather(flags.clone()) else { return Vec::new() };
    let mut untaken = Vec::new();
    let keys = data
        .account_keys()
        .and_then(|made| Ok(settings.items.keys.or(&made).checked(started.is_loopback_only())?));
    match keys {
        Ok(keys) => door.replace_keys(keys),
        Err(why) => untaken.push(format!("the keys of the items: {why:#}")),
    }
    if let Some(items) = &state.items {
        untaken.extend(
            item_definition::apply(items, &settings.items.databases, settings.config_file.as_deref()).await,
        );
    }
    untaken
}

/// Makes namespaces from definitions, at the start and again at each reload.
struct NamespaceOpener {
    engine: Handle,
    root: Policy,
    is_loopback_only: bool,
    development: Option<Arc<Development>>,
}

/// Namespaces as far as they could be made, in the order of their definitions, and what could not.
struct Opened {
    namespaces: Vec<Namespace>,
    untaken: Vec<Untaken>,
}

impl Opened {
    /// The one called `default`, which is the first, and the others.
    fn split(self) -> Option<(Namespace, Vec<Namespace>)> {
        let mut namespaces = self.namespaces.into_iter();
        Some((namespaces.next()?, namespaces.collect()))
    }
}

impl NamespaceOpener {
    /// Opens all namespaces at a start: the one called `default`, the others, and the names that were ever given.
    async fn open_all(
        &self,
        definitions: &[Definition],
    ) -> anyhow::Result<(Namespace, Vec<Namespace>, Vec<Box<str>>)> {
        let mut opened = self.open(definitions, |_| None).await;
        let (changes, missing): (Vec<_>, Vec<_>) =
            std::mem::take(&mut opened.untaken).into_iter().partition(|untaken| untaken.is_there);
        // Without what is missing clients cannot work. What is only as it was keeps nobody from it.
        if !missing.is_empty() {
            bail!("{}", missing.into_iter().map(|untaken| untaken.what).collect::<Vec<_>>().join("; "));
        }
        changes.iter().for_each(|untaken| tracing::error!("not taken: {}", untaken.what));
        let (default, others) = opened.split().context("there is no namespace")?;
        Ok((default, others, definition::known_namespaces(&self.engine).await?))
    }

    /// `before` knows the number of a namespace that is served, and since when there is one: it goes on being served,
    /// whatever becomes of its definition.
    async fn open(
        &self,
        definitions: &[Definition],
        before: impl Fn(&str) -> Option<(NamespaceId, LocalTime)>,
    ) -> Opened {
        let mut opened = Opened { namespaces: Vec::with_capacity(definitions.len()), untaken: Vec::new() };
        for definition in definitions {
            let applied = definition::apply(&self.engine, definition).await;
            opened.untaken.extend(applied.untaken);
            if let Some((id, created)) = applied.namespace.or_else(|| before(&definition.name)) {
                let mut issuers: Vec<_> =
                    self.development.iter().map(|development| Arc::new(development.issuer())).collect();
                for issuer in &definition.issuers {
                    match issuer_keys::open(issuer) {
                        Ok(issuer) => issuers.push(issuer),
                        Err(error) => {
                            opened.untaken.push(Untaken { what: format!("{error:#}"), is_there: false });
                        }
                    }
                }
                let guard = Guard::new(policies(definition, &self.root), self.is_loopback_only);
                let guard = guard.with_issuers(issuers);
                let (name, tier) = (definition.name.clone(), definition.tier);
                opened.namespaces.push(Namespace { id, name, guard, created, tier });
            }
        }
        opened
    }

    /// Reads the configuration again: definitions are applied, policies and certificates take the place of the old ones.
    /// Messages, connections and ports stay as they are. Each thing is taken or not for itself; says which were not.
    async fn reload(
        &self,
        started: &Settings,
        flags: &Flags,
        state: &State,
        files: &tls::Files,
        certificate: &tls::Certificate,
    ) -> Vec<String> {
        let mut untaken = Vec::new();
        if let Err(error) = certificate.reload(files) {
            untaken.push(format!("the certificate: {error}"));
        }
        let settings = match Settings::gather(flags.clone()) {
            Ok(settings) => settings,
            Err(error) => {
                untaken.push(error.to_string());
                return untaken;
            }
        };
        let later = started.changed_for_later(&settings);
        if !later.is_empty() {
            let later = later.join(", ");
            tracing::warn!("changed, and counting from the next start only: {later}");
        }
        if let Err(error) = warn_of_names(&settings, files) {
            untaken.push(format!("the names of the certificate: {error:#}"));
        }
        let before = |name: &str| state.namespaces.named(name).map(|known| (known.id, known.created));
        let mut opened = self.open(&settings.namespaces, before).await;
        untaken.extend(std::mem::take(&mut opened.untaken).into_iter().map(|untaken| untaken.what));
        if let Some((default, others)) = opened.split() {
            state.namespaces.replace(default, others);
        }
        untaken
    }
}

/// The configured policies, and the root policy unless one of its name is configured.
fn policies(definition: &Definition, root: &Policy) -> Vec<Policy> {
    let is_configured = definition.policies.iter().any(|policy| policy.name == root.name);
    let root = (!is_configured).then(|| root.clone());
    definition.policies.iter().cloned().chain(root).collect()
}

/// SIGHUP; elsewhere there is none.
struct ReloadSignal {
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    fn listen() -> std::io::Result<ReloadSignal> {
        Ok(ReloadSignal {
            #[cfg(unix)]
            hang_up: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if self.hang_up.recv().await.is_some() {
            return;
        }
        std::future::pending().await
    }
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
