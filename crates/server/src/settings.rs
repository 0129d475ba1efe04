//! Everything the server is told, from flags, variables, file and defaults, in one place.

use crate::config::{Config, Error};
use crate::definition::Definition;
use crate::durability::Durability;
use crate::emulator;
use crate::flags::Flags;
use crate::item_table::ItemsConfig;
use crate::log::LogFormat;
use broker::{QueueSettings, Tier};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;

const CONFIG_FILE: &str = "otobus.toml";
pub const DATA_DIRECTORY: &str = "otobus-data";

/// Plain AMQP, AMQP in TLS and HTTP, by custom; each takes all of them. On loopback, because tokens travel in clear on a
/// plain connection.
const BUS_PORTS: [u16; 3] = [5672, 5671, 5300];

/// Where clients of the emulator look for items (P-21).
const ITEMS_PORT: u16 = 8081;

#[derive(Debug)]
pub struct Settings {
    /// Where all this was read, besides flags and variables.
    pub config_file: Option<PathBuf>,
    pub data: PathBuf,
    pub log: LevelFilter,
    pub log_format: LogFormat,
    pub durability: Durability,
    pub has_test_clock: bool,
    pub has_development_issuer: bool,
    pub listen_bus: Vec<SocketAddr>,
    /// Without an address there are no items.
    pub listen_items: Vec<SocketAddr>,
    pub items: ItemsConfig,
    pub ready_file: Option<PathBuf>,
    pub tls_names: Vec<String>,
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The first is the one called `default`.
    pub namespaces: Vec<Definition>,
    pub tail_cache_bytes: usize,
    /// What all connections may hold.
    pub connections_bytes: usize,
    /// What may live long in memory.
    pub state_bytes: usize,
    pub items_cache_bytes: u64,
}

impl Settings {
    pub fn gather(flags: Flags) -> Result<Settings, Error> {
        let usual = || Some(PathBuf::from(CONFIG_FILE)).filter(|path| path.exists());
        let config_file = flags.config.clone().or_else(usual);
        let config = config_file.as_deref().map_or(Ok(Config::default()), Config::read)?;
        Ok(Settings { config_file, ..Settings::merge(flags, config) })
    }

    fn merge(flags: Flags, config: Config) -> Settings {
        let mut namespaces = config.namespaces;
        if let Some(tier) = flags.tier {
            namespaces.iter_mut().for_each(|namespace| namespace.tier = tier);
        }
        let usual_ports = || BUS_PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).to_vec();
        Settings {
            config_file: None,
            data: flags.data.or(config.data).unwrap_or_else(|| DATA_DIRECTORY.into()),
            log: flags.log.or(config.log).unwrap_or(LevelFilter::WARN),
            log_format: flags.log_format.or(config.log_format).unwrap_or_default(),
            durability: flags.durability.or(config.durability).unwrap_or_default(),
            has_test_clock: flags.test_clock.or(config.test_clock).unwrap_or(false),
            has_development_issuer: flags.development_issuer.or(config.development_issuer).unwrap_or(false),
            listen_bus: flags.listen_bus.or(config.listen_bus).unwrap_or_else(usual_ports),
            listen_items: flags
                .listen_items
                .map(|addresses| addresses.0)
                .or(config.listen_items)
                .unwrap_or_else(|| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, ITEMS_PORT))]),
            items: config.items,
            ready_file: flags.ready_file,
            tls_names: config.tls_names,
            certificate: config.certificate,
            namespaces,
            tail_cache_bytes: config.tail_cache_bytes.unwrap_or(engine::limits::TAIL_CACHE_BYTES),
            connections_bytes: config.connections_bytes.unwrap_or(gateway::limits::CONNECTIONS_BYTES),
            state_bytes: config.state_bytes.unwrap_or(broker::limits::STATE_BYTES),
            items_cache_bytes: config.items_cache_bytes.unwrap_or(items_engine::limits::CACHE_BYTES),
        }
    }

    /// Adds what a server begins with whose owner has not said what it shall have. Returns the names.
    pub fn add_first_entities(&mut self) -> Vec<Box<str>> {
        let Some(default) = self.namespaces.first_mut().filter(|_| self.config_file.is_none()) else {
            return Vec::new();
        };
        let mut first = emulator::first_start();
        if default.tier == Tier::Basic {
            first.topics.clear();
            first.queues.iter_mut().for_each(|queue| queue.settings = QueueSettings::default());
        }
        default.queues.extend(first.queues);
        default.topics.extend(first.topics);
        let queues = default.queues.iter().map(|queue| queue.path.clone());
        queues.chain(default.topics.iter().map(|topic| topic.path.clone())).collect()
    }

    /// What a reload finds changed and cannot change: it takes effect at the next start.
    pub fn changed_for_later(&self, now: &Settings) -> Vec<&'static str> {
        [
            ("data", self.data != now.data),
            ("log", self.log != now.log),
            ("log_format", self.log_format != now.log_format),
            ("durability", self.durability != now.durability),
            ("test_clock", self.has_test_clock != now.has_test_clock),
            ("development_issuer", self.has_development_issuer != now.has_development_issuer),
            ("[listen]", (&self.listen_bus, &self.listen_items) != (&now.listen_bus, &now.listen_items)),
            ("[tls]", (&self.tls_names, &self.certificate) != (&now.tls_names, &now.certificate)),
            (
                "[memory]",
                (self.tail_cache_bytes, self.connections_bytes, self.state_bytes)
                    != (now.tail_cache_bytes, now.connections_bytes, now.state_bytes),
            ),
            (
                "[items]",
                self.items_cache_bytes != now.items_cache_bytes
                    || self.items.is_changed_for_later(&now.items),
            ),
        ]
        .into_iter()
        .filter_map(|(name, is_changed)| is_changed.then_some(name))
        .collect()
    }

    /// Whether nobody but this machine can reach the server.
    pub fn is_loopback_only(&self) -> bool {
        self.listen_bus
            .iter()
            .chain(&self.listen_items)
            .all(|address| address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config() -> Config {
        Config {
            data: Some("from-file".into()),
            durability: Some(Durability::Os),
            test_clock: Some(true),
            development_issuer: Some(true),
            listen_bus: Some(vec!["0.0.0.0:1".parse().unwrap()]),
            ..Config::default()
        }
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let usual = Settings::merge(Flags::default(), Config::default());
        assert_eq!(usual.data, Path::new("otobus-data"));
        assert_eq!(usual.listen_bus.iter().map(SocketAddr::port).collect::<Vec<_>>(), BUS_PORTS);
        let from_file = Settings::merge(Flags::default(), config());
        assert_eq!(from_file.data, Path::new("from-file"));
        assert_eq!((usual.durability, from_file.durability), (Durability::Fsync, Durability::Os));
        assert_eq!((usual.has_test_clock, from_file.has_test_clock), (false, true));
        assert_eq!((usual.has_development_issuer, from_file.has_development_issuer), (false, true));
        let data = Some("from-flag".into());
        let flags = Flags { data, test_clock: Some(false), ..Flags::default() };
        let from_flag = Settings::merge(flags, config());
        assert_eq!(from_flag.data, Path::new("from-flag"));
        assert_eq!(from_flag.listen_bus, from_file.listen_bus);
        let tiers = |flags| {
            Settings::merge(flags, config()).namespaces.iter().map(|each| each.tier).collect::<Vec<_>>()
        };
        assert_eq!(tiers(Flags::default()), [Tier::Unlimited]);
        assert_eq!(tiers(Flags { tier: Some(Tier::Basic), ..Flags::default() }), [Tier::Basic]);
        assert!(!from_flag.has_test_clock);
    }

    #[test]
    fn a_tier_from_a_flag_counts_for_every_namespace() {
        let named = |name, tier| Definition { tier, ..Definition::named(name) };
        let namespaces = vec![named("default", Tier::Premium), named("shop", Tier::Standard)];
        let file = Config { namespaces, ..config() };
        let flags = Flags { tier: Some(Tier::Basic), ..Flags::default() };
        let merged = Settings::merge(flags, file);
        let tiers: Vec<_> = merged.namespaces.iter().map(|each| (&*each.name, each.tier)).collect();
        assert_eq!(tiers, [("default", Tier::Basic), ("shop", Tier::Basic)]);
    }

    #[test]
    fn every_flag_wins_over_what_the_file_says_of_the_same_thing() {
        let address = |port: u16| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
        let file = Config {
            log: Some(LevelFilter::DEBUG),
            log_format: Some(LogFormat::Json),
            listen_items: Some(address(2)),
            ..config()
        };
        let flags = Flags {
            config: None,
            data: Some("from-flag".into()),
            listen_bus: Some(address(3)),
            listen_items: Some(crate::flags::Addresses(address(4))),
            log: Some(LevelFilter::ERROR),
            log_format: Some(LogFormat::Text),
            durability: Some(Durability::Fsync),
            tier: None,
            test_clock: Some(false),
            development_issuer: Some(false),
            ready_file: None,
        };
        let merged = Settings::merge(flags, file);
        assert_eq!(merged.data, Path::new("from-flag"));
        assert_eq!((merged.listen_bus, merged.listen_items), (address(3), address(4)));
        assert_eq!((merged.log, merged.log_format), (LevelFilter::ERROR, LogFormat::Text));
        assert_eq!(merged.durability, Durability::Fsync);
        assert!(!merged.has_test_clock && !merged.has_development_issuer);
    }

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let usual = || Settings::merge(Flags::default(), Config::default());
        assert_eq!(usual().changed_for_later(&usual()), [""; 0]);
        let namespaces = vec![Definition::named("other")];
        assert_eq!(usual().changed_for_later(&Settings { namespaces, ..usual() }), [""; 0]);
        let other = Settings {
            log: LevelFilter::TRACE,
            log_format: LogFormat::Json,
            tls_names: vec!["bus.example".to_owned()],
            tail_cache_bytes: 0,
            connections_bytes: 0,
            state_bytes: 0,
            items_cache_bytes: 0,
            ..Settings::merge(Flags::default(), config())
        };
        let files = ["[listen]", "[tls]", "[memory]", "[items]"];
        let all =
            [&["data", "log", "log_format", "durability", "test_clock", "development_issuer"][..], &files]
                .concat();
        assert_eq!(usual().changed_for_later(&other), all);
    }

    #[test]
    fn of_what_is_named_together_each_change_is_enough() {
        let usual = || Settings::merge(Flags::default(), Config::default());
        let address = vec!["127.0.0.1:1".parse().expect("an address")];
        let files = Some(("server.pem".into(), "server.key".into()));
        let items = |changed: ItemsConfig| Settings { items: changed, ..usual() };
        let changes = [
            ("[listen]", Settings { listen_bus: address.clone(), ..usual() }),
            ("[listen]", Settings { listen_items: address, ..usual() }),
            ("[tls]", Settings { tls_names: vec!["bus.example".to_owned()], ..usual() }),
            ("[tls]", Settings { certificate: files, ..usual() }),
            ("[memory]", Settings { tail_cache_bytes: 0, ..usual() }),
            ("[memory]", Settings { connections_bytes: 0, ..usual() }),
            ("[memory]", Settings { state_bytes: 0, ..usual() }),
            ("[items]", Settings { items_cache_bytes: 0, ..usual() }),
            ("[items]", items(ItemsConfig { account: Some("other".into()), ..ItemsConfig::default() })),
            (
                "[items]",
                items(ItemsConfig { endpoint: Some("https://other/".into()), ..ItemsConfig::default() }),
            ),
            (
                "[items]",
                items(ItemsConfig { clock_skew: Some(Default::default()), ..ItemsConfig::default() }),
            ),
        ];
        for (name, changed) in changes {
            assert_eq!(usual().changed_for_later(&changed), [name], "{changed:?}");
        }
    }

    #[test]
    fn one_address_that_others_reach_is_enough_to_be_reachable() {
        assert!(Settings::merge(Flags::default(), Config::default()).is_loopback_only());
        assert!(!Settings::merge(Flags::default(), config()).is_loopback_only());
        let other = || Some(vec!["127.0.0.1:1".parse().unwrap(), "192.0.2.1:2".parse().unwrap()]);
        for config in [
            Config { listen_bus: other(), ..Config::default() },
            Config { listen_items: other(), ..Config::default() },
        ] {
            assert!(!Settings::merge(Flags::default(), config).is_loopback_only());
        }
    }
}
