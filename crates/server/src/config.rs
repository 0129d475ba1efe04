//! `otobus.toml`: read strictly, every complaint with the file and the line. Values are checked here; nothing is opened.

use crate::definition::{DEFAULT_NAMESPACE, Definition};
use crate::durability::Durability;
use crate::emulator;
use crate::issuer_table::{IssuerDefinition, IssuerTable};
use crate::item_table::{DatabaseTable, ItemsConfig, ItemsTable};
use crate::limits::{
    ITEMS_CACHE_MEGABYTES_LEAST, ITEMS_CACHE_MEGABYTES_MOST, MEMORY_MEGABYTES_LEAST,
    TAIL_CACHE_MEGABYTES_MOST,
};
use crate::log::LogFormat;
use crate::queue_table::QueueTable;
use crate::topic_table::TopicTable;
use broker::Tier;
use gateway::auth::{Policy, Right, Rights, Secret};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use tracing::level_filters::LevelFilter;

/// What the file says; what it does not say is `None` or empty.
#[derive(Debug)]
pub struct Config {
    pub data: Option<PathBuf>,
    pub log: Option<LevelFilter>,
    pub log_format: Option<LogFormat>,
    pub durability: Option<Durability>,
    pub test_clock: Option<bool>,
    pub development_issuer: Option<bool>,
    pub listen_bus: Option<Vec<SocketAddr>>,
    pub listen_items: Option<Vec<SocketAddr>>,
    pub items: ItemsConfig,
    pub tls_names: Vec<String>,
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The first is the one called `default`.
    pub namespaces: Vec<Definition>,
    pub tail_cache_bytes: Option<usize>,
    pub connections_bytes: Option<usize>,
    pub state_bytes: Option<usize>,
    pub items_cache_bytes: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {source}; name another file with --config", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} line {line}: {what}", path.display())]
    Line { path: PathBuf, line: usize, what: String },
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    data: Option<PathBuf>,
    log: Option<Spanned<String>>,
    log_format: Option<Spanned<String>>,
    durability: Option<Spanned<String>>,
    tier: Option<Spanned<String>>,
    test_clock: Option<bool>,
    development_issuer: Option<bool>,
    listen: Listen,
    tls: Tls,
    memory: Memory,
    items: ItemsTable,
    database: Vec<DatabaseTable>,
    policy: Vec<Spanned<PolicyTable>>,
    issuer: Vec<IssuerTable>,
    queue: Vec<QueueTable>,
    topic: Vec<TopicTable>,
    namespace: Vec<NamespaceTable>,
}

/// `[[namespace]]`, with the same tables below it that the default namespace has at the top.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceTable {
    name: Spanned<String>,
    /// Without it, that of the default namespace.
    tier: Option<Spanned<String>>,
    #[serde(default)]
    policy: Vec<Spanned<PolicyTable>>,
    #[serde(default)]
    issuer: Vec<IssuerTable>,
    #[serde(default)]
    queue: Vec<QueueTable>,
    #[serde(default)]
    topic: Vec<TopicTable>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Listen {
    bus: Option<Vec<Spanned<String>>>,
    items: Option<Vec<Spanned<String>>>,
    console: Option<Spanned<toml::Value>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Tls {
    names: Vec<String>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Memory {
    tail_cache_megabytes: Option<Spanned<usize>>,
    connections_megabytes: Option<Spanned<usize>>,
    state_megabytes: Option<Spanned<usize>>,
}

/// `[[policy]]` as it stands there. Whatever is in it may be a key in the wrong place, so it is read by hand and nothing
/// of it is repeated, neither in a complaint nor for debugging.
#[derive(Deserialize)]
#[serde(transparent)]
struct PolicyTable(BTreeMap<Spanned<String>, Spanned<toml::Value>>);

impl std::fmt::Debug for PolicyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyTable(…)")
    }
}

/// What a file's reader complains of, without the values that it repeats: they may be keys, and the line says where.
pub fn without_values(error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    for kind in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) =
            message.strip_prefix(kind).and_then(|rest| rest.rsplit_once(", expected "))
        {
            let found = found.split(['"', '`']).next().unwrap_or_default().trim_end();
            return format!("{kind}{found}, expected {expected}");
        }
    }
    message
}

/// A complaint about a stretch of the file.
#[derive(Debug)]
pub struct Complaint {
    pub at: Range<usize>,
    pub what: String,
}

pub fn complaint<T>(about: &Spanned<T>, what: impl Into<String>) -> Complaint {
    Complaint { at: about.span(), what: what.into() }
}

impl Config {
    /// Reads `otobus.toml`, or the emulator's file if its name ends in `.json`.
    pub fn read(path: &Path) -> Result<Config, Error> {
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            let definition = Definition { file: Some(path.to_owned()), ..emulator::read(path)? };
            return Ok(Config { namespaces: vec![definition], ..Config::default() });
        }
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        let mut config = Config::parse(&text).map_err(|Complaint { at, what }| Error::Line {
            path: path.to_owned(),
            line: line(&text, at.start),
            what,
        })?;
        config.namespaces.iter_mut().for_each(|namespace| namespace.file = Some(path.to_owned()));
        Ok(config)
    }

    fn parse(text: &str) -> Result<Config, Complaint> {
        let file: File = toml::from_str(text)
            .map_err(|error| Complaint { at: error.span().unwrap_or(0..0), what: without_values(&error) })?;
        if let Some(value) = &file.listen.console {
            return Err(complaint(value, "listen.console is not available in this version; remove it"));
        }
        let log = file.log.as_ref().map(level).transpose()?;
        let durability = file.durability.as_ref().map(parsed).transpose()?;
        let log_format = file.log_format.as_ref().map(parsed).transpose()?;
        let listen_bus = file.listen.bus.as_deref().map(addresses).transpose()?;
        let listen_items = file.listen.items.as_deref().map(addresses).transpose()?;
        for (index, table) in file.database.iter().enumerate() {
            let name = table.name();
            if file.database[..index].iter().any(|other| other.name().get_ref() == name.get_ref()) {
                return Err(complaint(name, format!("database `{}` is declared twice", name.get_ref())));
            }
        }
        let mut items = file.items.read(&file.database)?;
        for database in &mut items.databases {
            database.line = line(text, database.line);
            database.containers.iter_mut().for_each(|container| container.line = line(text, container.line));
        }
        let certificate = match (&file.tls.certificate, &file.tls.key) {
            (Some(certificate), Some(key)) => Some((certificate.get_ref().clone(), key.get_ref().clone())),
            (Some(certificate), None) => return Err(complaint(certificate, "tls.key is missing")),
            (None, Some(key)) => return Err(complaint(key, "tls.certificate is missing")),
            (None, None) => None,
        };
        let default = definition(DEFAULT_NAMESPACE, &file.policy, &file.queue, &file.topic)?;
        let issuers = issuers(&file.issuer)?;
        let mut namespaces = vec![Definition { tier: tier(file.tier.as_ref())?, issuers, ..default }];
        for table in &file.namespace {
            let name = table.name.get_ref();
            if namespaces.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
                return Err(complaint(&table.name, format!("namespace `{name}` is declared twice")));
            }
            broker::manage::check_namespace(name)
                .map_err(|refusal| complaint(&table.name, refusal.to_string()))?;
            let own = definition(name, &table.policy, &table.queue, &table.topic)?;
            let tier = tier(table.tier.as_ref().or(file.tier.as_ref()))?;
            namespaces.push(Definition { tier, issuers: self::issuers(&table.issuer)?, ..own });
        }
        for place in namespaces.iter_mut().flat_map(Definition::places) {
            place.map(|offset| line(text, offset));
        }
        let tail_cache_bytes = file.memory.tail_cache_megabytes.as_ref().map(cache_bytes).transpose()?;
        let connections_bytes = file.memory.connections_megabytes.as_ref().map(memory_bytes).transpose()?;
        let state_bytes = file.memory.state_megabytes.as_ref().map(memory_bytes).transpose()?;
        let items_cache_bytes = file.items.cache_megabytes.as_ref().map(items_cache_bytes).transpose()?;
        Ok(Config {
            data: file.data,
            log,
            log_format,
            durability,
            test_clock: file.test_clock,
            development_issuer: file.development_issuer,
            listen_bus,
            listen_items,
            items,
            tls_names: file.tls.names,
            tail_cache_bytes,
            connections_bytes,
            state_bytes,
            items_cache_bytes,
            certificate,
            namespaces,
        })
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data: None,
            log: None,
            log_format: None,
            durability: None,
            test_clock: None,
            development_issuer: None,
            listen_bus: None,
            listen_items: None,
            items: ItemsConfig::default(),
            tail_cache_bytes: None,
            connections_bytes: None,
            state_bytes: None,
            items_cache_bytes: None,
            tls_names: Vec::new(),
            certificate: None,
            namespaces: vec![Definition::named(DEFAULT_NAMESPACE)],
        }
    }
}

/// The line in which a byte stands.
fn line(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or(text).matches('\n').count() + 1
}

fn definition(
    name: &str,
    policy_tables: &[Spanned<PolicyTable>],
    queue_tables: &[QueueTable],
    topic_tables: &[TopicTable],
) -> Result<Definition, Complaint> {
    let mut definition = Definition::named(name);
    for table in policy_tables {
        let policy = policy(table)?;
        if definition.policies.iter().any(|other| other.name == policy.name) {
            return Err(complaint(table, "a policy of this name is declared already"));
        }
        definition.policies.push(policy);
    }
    let mut paths: Vec<String> = Vec::new();
    let mut take = |kind: &str, name: &Spanned<String>| {
        let path = name.get_ref().to_lowercase();
        if paths.contains(&path) {
            return Err(complaint(name, format!("{kind} `{}` is declared twice", name.get_ref())));
        }
        paths.push(path);
        Ok(())
    };
    for table in queue_tables {
        take("queue", &table.name)?;
        definition.queues.push(table.read()?);
    }
    for table in topic_tables {
        take("topic", &table.name)?;
        definition.topics.push(table.read()?);
    }
    Ok(definition)
}

fn issuers(tables: &[IssuerTable]) -> Result<Vec<IssuerDefinition>, Complaint> {
    for (index, table) in tables.iter().enumerate() {
        if tables[..index].iter().any(|other| other.name.get_ref() == table.name.get_ref()) {
            return Err(complaint(&table.name, "an issuer of this name is declared already"));
        }
    }
    tables.iter().map(IssuerTable::read).collect()
}

fn tier(text: Option<&Spanned<String>>) -> Result<Tier, Complaint> {
    text.map_or(Ok(Tier::default()), parsed)
}

/// A word that is one of a few.
fn parsed<T: FromStr<Err = String>>(text: &Spanned<String>) -> Result<T, Complaint> {
    text.get_ref().parse().map_err(|why| complaint(text, why))
}

fn level(text: &Spanned<String>) -> Result<LevelFilter, Complaint> {
    let what = || format!("`{}` is not a level; use off, error, warn, info, debug or trace", text.get_ref());
    text.get_ref().parse().map_err(|_| complaint(text, what()))
}

fn cache_bytes(megabytes: &Spanned<usize>) -> Result<usize, Complaint> {
    let (asked, most) = (*megabytes.get_ref(), TAIL_CACHE_MEGABYTES_MOST);
    match asked <= most {
        true => Ok(asked * 1_024 * 1_024),
        false => Err(complaint(megabytes, format!("a tail cache of {asked} megabytes is above {most}"))),
    }
}

/// What connections may hold, or what may live long: enough to work at all, and no typing error.
fn memory_bytes(megabytes: &Spanned<usize>) -> Result<usize, Complaint> {
    let (asked, least, most) = (*megabytes.get_ref(), MEMORY_MEGABYTES_LEAST, TAIL_CACHE_MEGABYTES_MOST);
    match (least..=most).contains(&asked) {
        true => Ok(asked * 1_024 * 1_024),
        false => {
            let what = format!("memory of {asked} megabytes is not between {least} and {most}");
            Err(complaint(megabytes, what))
        }
    }
}

/// What the items may hold in memory: enough to work at all, and no typing error.
fn items_cache_bytes(megabytes: &Spanned<u64>) -> Result<u64, Complaint> {
    let (asked, least, most) =
        (*megabytes.get_ref(), ITEMS_CACHE_MEGABYTES_LEAST, ITEMS_CACHE_MEGABYTES_MOST);
    match (least..=most).contains(&asked) {
        true => Ok(asked * 1_024 * 1_024),
        false => {
            let what = format!("a cache of {asked} megabytes is not between {least} and {most}");
            Err(complaint(megabytes, what))
        }
    }
}

fn addresses(texts: &[Spanned<String>]) -> Result<Vec<SocketAddr>, Complaint> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for text in texts {
        let what =
            || format!("`{}` is not an IP address with a port, such as 127.0.0.1:5672", text.get_ref());
        let address: SocketAddr = text.get_ref().parse().map_err(|_| complaint(text, what()))?;
        if address.port() != 0 && addresses.contains(&address) {
            return Err(complaint(text, format!("{address} is listed twice")));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

fn policy(table: &Spanned<PolicyTable>) -> Result<Policy, Complaint> {
    let PolicyTable(fields) = table.get_ref();
    for name in fields.keys() {
        if !["name", "key", "secondary_key", "rights"].contains(&name.get_ref().as_str()) {
            return Err(complaint(name, "a policy has `name`, `key`, `secondary_key` and `rights` alone"));
        }
    }
    let field = |wanted: &str| {
        fields
            .iter()
            .find_map(|(name, value)| (name.get_ref() == wanted).then_some((wanted.to_owned(), value)))
    };
    let needed =
        |wanted: &str| field(wanted).ok_or_else(|| complaint(table, format!("a policy needs `{wanted}`")));
    let text = |(name, value): (String, &Spanned<toml::Value>)| match value.get_ref() {
        toml::Value::String(text) if !text.is_empty() => Ok(text.clone()),
        toml::Value::String(_) => Err(complaint(value, format!("the {name} of a policy must not be empty"))),
        _ => Err(complaint(value, format!("the {name} of a policy must be a text in quotes"))),
    };
    Ok(Policy {
        name: text(needed("name")?)?.into(),
        primary: Secret::new(text(needed("key")?)?),
        secondary: field("secondary_key").map(text).transpose()?.map(Secret::new),
        rights: rights(needed("rights")?.1)?,
    })
}

pub(crate) fn rights(value: &Spanned<toml::Value>) -> Result<Rights, Complaint> {
    let right = |value: &toml::Value| match value.as_str()?.to_ascii_lowercase().as_str() {
        "listen" => Some(Right::Listen),
        "send" => Some(Right::Send),
        "manage" => Some(Right::Manage),
        _ => None,
    };
    let list = value.get_ref().as_array();
    let rights = list.and_then(|list| list.iter().map(right).collect::<Option<Rights>>());
    rights.ok_or_else(|| complaint(value, "rights are a list of Listen, Send and Manage"))
}

#[cfg(test)]
mod tests;
