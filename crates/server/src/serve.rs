//! From settings to a running server and back to nothing. All ports are bound before the data directory is touched, and
//! nobody is told `ready` before everything listens; whatever fails on the way leaves nothing behind that runs.

use crate::announce::Announcement;
use crate::data::Data;
use crate::engines::{self, Engines, Served};
use crate::flags::Flags;
use crate::item_definition;
use crate::item_table::AccountKeys;
use crate::limits::STOP_GRACE;
use crate::namespaces::NamespaceOpener;
use crate::settings::Settings;
use crate::signals::{ReloadSignal, StopSignal};
use anyhow::{Context, bail};
use gateway::account::Accounts;
use gateway::auth::{Development, Policy};
use gateway::names::Names;
use gateway::namespaces::Namespaces;
use gateway::places::Places;
use gateway::{State, listen, tls};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Serves until somebody stops it. `open_files` is how many files this process may have open, its connections among them. The
/// engines are put into `served`, for the threads that serve connections.
pub async fn serve(
    mut settings: Settings,
    flags: Flags,
    open_files: u64,
    served: &Served,
) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let reload = ReloadSignal::listen()?;
    check_addresses(&settings)?;
    let listeners = Listeners::bind(&settings).await?;
    let data = Data::open(&settings.data)?;
    data.check_journal()?;
    let made = if data.begin_first_start()? { settings.add_first_entities() } else { Vec::new() };
    if !settings.listen_items.is_empty() {
        data.check_items()?;
    }
    let Some(journal) = engines::open_bus_journal(&data, &settings, &mut stop).await? else { return Ok(()) };
    // Behind the journal: keys without a journal mean that it was lost.
    let root = data.root_policy()?;
    let certificate = ServerCertificate::open(&settings, &data)?;
    let Some(mut engines) = Engines::open(journal, &data, &settings, &mut stop).await? else { return Ok(()) };
    served.set(&engines);
    let start = Start { settings, flags, data, root, certificate, made, open_files };
    let server = match start.serve(listeners, &engines).await {
        Ok(server) => server,
        Err(error) => {
            engines.end();
            return Err(error);
        }
    };
    let ended = server.run(&mut engines, reload, &mut stop).await;
    server.accepting.iter().for_each(JoinHandle::abort);
    match ended {
        Ok(()) => server.end(engines, &mut stop).await,
        Err(why) => Err(engines::stopped(&why)),
    }
}

fn check_addresses(settings: &Settings) -> anyhow::Result<()> {
    if settings.listen_bus.is_empty() {
        bail!("there is no address to listen on; give one with --listen-bus");
    }
    if settings.has_development_issuer && !settings.is_loopback_only() {
        bail!(
            "the development issuer gives everybody every right: it needs a server that listens on loopback alone"
        );
    }
    Ok(())
}

/// The bound ports.
struct Listeners {
    bus: Vec<TcpListener>,
    items: Vec<TcpListener>,
}

impl Listeners {
    async fn bind(settings: &Settings) -> anyhow::Result<Listeners> {
        let bus = bind(&settings.listen_bus).await?;
        let items = bind(&settings.listen_items)
            .await
            .context("the items cannot be served; --listen-items says where")?;
        Ok(Listeners { bus, items })
    }
}

async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(listen::bind(*address).await?);
    }
    Ok(listeners)
}

/// The certificate that clients see, and the files that it comes from.
struct ServerCertificate {
    files: tls::Files,
    shown: Arc<tls::Certificate>,
}

impl ServerCertificate {
    fn open(settings: &Settings, data: &Data) -> anyhow::Result<ServerCertificate> {
        let files = match &settings.certificate {
            Some((certificate, key)) => tls::Files::given(certificate, key),
            None => tls::Files::open_or_make(&data.path, &settings.tls_names)?,
        };
        warn_of_names(settings, &files)?;
        let shown = tls::Certificate::load(&files)?;
        Ok(ServerCertificate { files, shown })
    }
}

/// Certificates are made once and kept: a name that was added later is in none of them, which must be said.
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

/// What a server is started with, once its data is open.
struct Start {
    settings: Settings,
    flags: Flags,
    data: Data,
    root: Policy,
    certificate: ServerCertificate,
    /// Entities that this start makes because nobody has said which there shall be.
    made: Vec<Box<str>>,
    open_files: u64,
}

impl Start {
    /// Makes what was declared, opens the doors, and says that the server is ready.
    async fn serve(self, listeners: Listeners, engines: &Engines) -> anyhow::Result<Server> {
        let settings = &self.settings;
        let items = engines.items.as_ref().map(items_engine::Engine::handle);
        // As the bus's: behind the journal.
        let account_keys = match items {
            Some(_) => settings.items.keys.or(&self.data.account_keys()?),
            None => AccountKeys::default(),
        };
        let opener = self.opener(engines)?;
        let (default, others, known) = opener.open_all(&settings.namespaces).await?;
        if let Some(items) = items {
            // The same threads serve both: what the items have to answer does not wait for the bus.
            items.end_also(Arc::clone(engines.bus.handle().pauses()));
            let not_taken = declare_items(items, settings).await;
            if !not_taken.is_empty() {
                bail!("{}", not_taken.join("; "));
            }
        }
        self.data.end_first_start()?;
        let takes_well_known_key = default.guard.knows_well_known_key();
        let announcement = self.announcement(&listeners, &account_keys, takes_well_known_key)?;
        let state = self.state(engines, &opener, Namespaces::new(default, others, &known));
        let items_door = items.map(|items| items_door(items.clone(), &account_keys, settings)).transpose()?;
        let items_door = items_door.map(|mut door| {
            door.meters = Arc::clone(&state.meters);
            Arc::new(door)
        });
        let accepting = self.accept(listeners, &state, items_door.as_ref())?;
        if let Some(path) = &settings.ready_file {
            announcement.write(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        announcement.print();
        let Start { settings, flags, data, certificate, .. } = self;
        Ok(Server { settings, flags, data, certificate, opener, state, items_door, accepting })
    }

    fn opener(&self, engines: &Engines) -> anyhow::Result<NamespaceOpener> {
        let development = match self.settings.has_development_issuer {
            true => Some(Arc::new(Development::new().ok().context("there is no randomness for a key")?)),
            false => None,
        };
        Ok(NamespaceOpener {
            engine: engines.bus.handle().clone(),
            root: self.root.clone(),
            is_loopback_only: self.settings.is_loopback_only(),
            development,
        })
    }

    fn announcement<'a>(
        &'a self,
        listeners: &Listeners,
        account_keys: &'a AccountKeys,
        takes_well_known_key: bool,
    ) -> anyhow::Result<Announcement<'a>> {
        let settings = &self.settings;
        let config_file = || settings.config_file.clone().unwrap_or_default();
        // A policy of this name in the file takes the place of the one made at the first start.
        let mut policies = settings.namespaces.iter().take(1).flat_map(|default| &default.policies);
        let configured = policies.find(|policy| policy.name == self.root.name);
        Ok(Announcement {
            bus: listeners.bus.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?,
            items: listeners.items.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?,
            items_key: account_keys.primary.as_ref(),
            items_keys: match &settings.items.keys.primary {
                Some(_) => config_file(),
                None => self.data.account_keys_file(),
            },
            data: &self.data.path,
            ca: &self.certificate.files.ca,
            keys: match &configured {
                Some(_) => config_file(),
                None => self.data.keys(),
            },
            root: configured.unwrap_or(&self.root),
            takes_well_known_key,
            made: self.made.clone(),
        })
    }

    /// What the connections to the bus share.
    fn state(&self, engines: &Engines, opener: &NamespaceOpener, namespaces: Namespaces) -> Arc<State> {
        let settings = &self.settings;
        let mut state = State::new(engines.bus.handle().clone(), namespaces);
        state.has_test_clock = settings.has_test_clock;
        state.development = opener.development.clone();
        state.accounts = Arc::new(Accounts::new(settings.connections_bytes));
        state.names = Names::new(&settings.tls_names);
        state.items = engines.items.as_ref().map(|items| items.handle().clone());
        if settings.has_test_clock {
            tracing::warn!("the test clock is on: every client with the right Manage may move the time");
        }
        Arc::new(state)
    }

    /// Takes connections on every port from now on.
    fn accept(
        &self,
        listeners: Listeners,
        state: &Arc<State>,
        items_door: Option<&Arc<ItemsDoor>>,
    ) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let certificate = &self.certificate.shown;
        let places = Places::of_open_files(self.open_files, self.settings.connections_bytes);
        let mut accepting = Vec::new();
        let acceptor = TlsAcceptor::from(tls::server_config(certificate)?);
        for listener in listeners.bus {
            let accept = listen::accept(listener, acceptor.clone(), places.clone(), state.clone());
            accepting.push(tokio::spawn(accept));
        }
        if let Some(door) = items_door {
            let acceptor = TlsAcceptor::from(tls::server_config_with_http2(certificate)?);
            for listener in listeners.items {
                let accept = listen::accept(listener, acceptor.clone(), places.clone(), Arc::clone(door));
                accepting.push(tokio::spawn(accept));
            }
        }
        Ok(accepting)
    }
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

/// Makes the databases and containers that are declared. Says which were not made.
async fn declare_items(items: &items_engine::Handle, settings: &Settings) -> Vec<String> {
    item_definition::apply(items, &settings.items.databases, settings.config_file.as_deref()).await
}

/// A server that is ready.
struct Server {
    /// As they were at the start. A reload reads them again and takes over only some.
    settings: Settings,
    flags: Flags,
    data: Data,
    certificate: ServerCertificate,
    opener: NamespaceOpener,
    state: Arc<State>,
    items_door: Option<Arc<ItemsDoor>>,
    /// One task for each port.
    accepting: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves until it is told to stop, or until an engine cannot go on: then says why.
    async fn run(
        &self,
        engines: &mut Engines,
        mut reload: ReloadSignal,
        stop: &mut StopSignal,
    ) -> Result<(), String> {
        loop {
            tokio::select! {
                () = stop.received() => return Ok(()),
                why = engines.failed() => return Err(why),
                () = reload.received() => {
                    let not_taken = self.reload().await;
                    // What runs goes on with what it has.
                    not_taken.iter().for_each(|what| tracing::error!("not taken: {what}"));
                    match not_taken.len() {
                        0 => tracing::info!("the configuration was read again"),
                        count => tracing::error!(count, "the configuration was read again in part"),
                    }
                }
            }
        }
    }

    /// Reads the configuration again: definitions are applied, policies, keys and certificates take the place of the old ones.
    /// Messages, connections and ports stay as they are. Each thing is taken or not for itself; says which were not.
    async fn reload(&self) -> Vec<String> {
        let mut not_taken = Vec::new();
        if let Err(error) = self.certificate.shown.reload(&self.certificate.files) {
            not_taken.push(format!("the certificate: {error}"));
        }
        let settings = match Settings::gather(self.flags.clone()) {
            Ok(settings) => settings,
            Err(error) => {
                not_taken.push(error.to_string());
                return not_taken;
            }
        };
        let later = self.settings.changed_for_later(&settings);
        if !later.is_empty() {
            let later = later.join(", ");
            tracing::warn!("changed, and counting from the next start only: {later}");
        }
        if let Err(error) = warn_of_names(&settings, &self.certificate.files) {
            not_taken.push(format!("the names of the certificate: {error:#}"));
        }
        not_taken.extend(self.opener.reload(&settings.namespaces, &self.state.namespaces).await);
        if let (Some(door), Some(items)) = (&self.items_door, &self.state.items) {
            match self.account_keys(&settings) {
                Ok(keys) => door.replace_keys(keys),
                Err(why) => not_taken.push(format!("the keys of the items: {why:#}")),
            }
            not_taken.extend(declare_items(items, &settings).await);
        }
        not_taken
    }

    fn account_keys(&self, settings: &Settings) -> anyhow::Result<gateway::cosmos::Keys> {
        let keys = settings.items.keys.or(&self.data.account_keys()?);
        Ok(keys.checked(self.settings.is_loopback_only())?)
    }

    /// Lets connections end, for a while, and then the engines; a second signal ends it all at once.
    async fn end(&self, engines: Engines, stop: &mut StopSignal) -> anyhow::Result<()> {
        self.state.stop();
        if let Some(door) = &self.items_door {
            door.stop();
        }
        let idle = async {
            self.state.idle().await;
            if let Some(door) = &self.items_door {
                door.idle().await;
            }
        };
        let polite = async {
            if tokio::time::timeout(STOP_GRACE, idle).await.is_err() {
                tracing::info!("some connections did not end in time and are cut");
            }
            tokio::task::spawn_blocking(|| engines.stop()).await
        };
        tokio::select! {
            stopped = polite => stopped.context("the engine did not stop cleanly")?,
            () = stop.received() => bail!("stopped at once by a second signal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_development_issuer_is_for_servers_that_nobody_else_reaches() {
        let checked = |development_issuer, address: &str| {
            let listen_bus = Some(vec![address.parse().unwrap()]);
            let flags =
                Flags { development_issuer: Some(development_issuer), listen_bus, ..Flags::default() };
            check_addresses(&Settings::gather(flags).unwrap()).is_ok()
        };
        assert!(checked(true, "127.0.0.1:1") && checked(true, "[::1]:1"));
        assert!(!checked(true, "0.0.0.0:1") && !checked(true, "192.0.2.1:1"));
        assert!(checked(false, "127.0.0.1:1") && checked(false, "0.0.0.0:1"));
    }
}
