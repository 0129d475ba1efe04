//! `[items]`, `[[database]]` and `[[database.container]]` in the configuration file.

use crate::config::{Complaint, complaint};
use gateway::auth::Secret;
use gateway::cosmos::Keys;
use gateway::iso;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use toml::Spanned;

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ItemsTable {
    pub cache_megabytes: Option<Spanned<u64>>,
    account: Option<Spanned<String>>,
    endpoint: Option<Spanned<String>>,
    clock_skew: Option<Spanned<String>>,
    primary_key: Option<Spanned<Hidden>>,
    secondary_key: Option<Spanned<Hidden>>,
    primary_read_only_key: Option<Spanned<Hidden>>,
    secondary_read_only_key: Option<Spanned<Hidden>>,
}

/// A key as it stands in the file. Nothing of it is repeated, neither in a complaint nor for debugging.
#[derive(Deserialize)]
#[serde(transparent)]
struct Hidden(toml::Value);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(…)")
    }
}

/// What the file says of the items.
#[derive(Debug, Clone, Default)]
pub struct ItemsConfig {
    pub account: Option<String>,
    pub endpoint: Option<String>,
    pub clock_skew: Option<Duration>,
    /// In the place of those that were made at the first start, each for itself.
    pub keys: AccountKeys,
    pub databases: Vec<Database>,
}

impl ItemsConfig {
    /// What a reload does not change: everything but the keys and what is declared.
    pub fn is_changed_for_later(&self, now: &ItemsConfig) -> bool {
        (&self.account, &self.endpoint, self.clock_skew) != (&now.account, &now.endpoint, now.clock_skew)
    }
}

/// The four keys of the account (P-20), as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct AccountKeys {
    pub primary: Option<Secret>,
    pub secondary: Option<Secret>,
    pub primary_read_only: Option<Secret>,
    pub secondary_read_only: Option<Secret>,
}

impl AccountKeys {
    /// These, and where one is missing the other's.
    pub fn or(&self, others: &AccountKeys) -> AccountKeys {
        let pick = |own: &Option<Secret>, other: &Option<Secret>| own.clone().or_else(|| other.clone());
        AccountKeys {
            primary: pick(&self.primary, &others.primary),
            secondary: pick(&self.secondary, &others.secondary),
            primary_read_only: pick(&self.primary_read_only, &others.primary_read_only),
            secondary_read_only: pick(&self.secondary_read_only, &others.secondary_read_only),
        }
    }

    /// As the door checks them.
    pub fn checked(&self, takes_well_known_key: bool) -> Result<Keys, gateway::cosmos::NotBase64> {
        let all: Vec<_> = self.primary.iter().chain(&self.secondary).cloned().collect();
        let read: Vec<_> = self.primary_read_only.iter().chain(&self.secondary_read_only).cloned().collect();
        Keys::new(&all, &read, takes_well_known_key)
    }
}

/// A database that shall be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub name: String,
    pub throughput: Option<u32>,
    pub containers: Vec<Container>,
    /// The line of the file.
    pub line: usize,
}

/// A container that shall be there, with the document that makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub throughput: Option<u32>,
    pub document: String,
    pub line: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseTable {
    name: Spanned<String>,
    throughput: Option<u32>,
    #[serde(default)]
    container: Vec<ContainerTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerTable {
    name: Spanned<String>,
    /// A path, or up to three for a hierarchical key.
    partition_key: Spanned<toml::Value>,
    throughput: Option<u32>,
    default_ttl: Option<i64>,
    /// Lists of paths.
    unique_keys: Option<Vec<Vec<String>>>,
    /// As in the container's document.
    indexing_policy: Option<toml::Table>,
}

impl ItemsTable {
    pub fn read(&self, databases: &[DatabaseTable]) -> Result<ItemsConfig, Complaint> {
        let account = match &self.account {
            Some(name) if name.get_ref().is_empty() || name.get_ref() == "localhost" => {
                return Err(complaint(
                    name,
                    "an account has a name, and `localhost` makes JavaScript clients slow",
                ));
            }
            account => account.as_ref().map(|name| name.get_ref().clone()),
        };
        let endpoint = match &self.endpoint {
            Some(address)
                if !["http://", "https://"].iter().any(|scheme| address.get_ref().starts_with(scheme)) =>
            {
                return Err(complaint(
                    address,
                    "items.endpoint is an address such as https://db.example:8081/",
                ));
            }
            endpoint => endpoint.as_ref().map(|address| address.get_ref().clone()),
        };
        let clock_skew = match &self.clock_skew {
            None => None,
            Some(text) => {
                let what = || format!("`{}` is not an ISO 8601 duration, such as PT15M", text.get_ref());
                let span = iso::duration(text.get_ref()).ok_or_else(|| complaint(text, what()))?;
                Some(Duration::from_millis(span.0))
            }
        };
        let keys = AccountKeys {
            primary: key(&self.primary_key)?,
            secondary: key(&self.secondary_key)?,
            primary_read_only: key(&self.primary_read_only_key)?,
            secondary_read_only: key(&self.secondary_read_only_key)?,
        };
        let databases = databases.iter().map(DatabaseTable::read).collect::<Result<_, _>>()?;
        Ok(ItemsConfig { account, endpoint, clock_skew, keys, databases })
    }
}

fn key(value: &Option<Spanned<Hidden>>) -> Result<Option<Secret>, Complaint> {
    let Some(value) = value else { return Ok(None) };
    let wrong = || {
        complaint(value, "a key of the items is base64 in quotes, such as `openssl rand -base64 64` prints")
    };
    let toml::Value::String(text) = &value.get_ref().0 else { return Err(wrong()) };
    let secret = Secret::new(text.clone());
    Keys::new(std::slice::from_ref(&secret), &[], false).map_err(|_| wrong())?;
    Ok(Some(secret))
}

impl DatabaseTable {
    fn read(&self) -> Result<Database, Complaint> {
        let mut containers: Vec<Container> = Vec::new();
        for table in &self.container {
            let container = table.read()?;
            if containers.iter().any(|other| other.name == container.name) {
                return Err(complaint(
                    &table.name,
                    format!("container `{}` is declared twice", container.name),
                ));
            }
            containers.push(container);
        }
        let (name, line) = (self.name.get_ref().clone(), self.name.span().start);
        Ok(Database { name, throughput: self.throughput, containers, line })
    }

    pub fn name(&self) -> &Spanned<String> {
        &self.name
    }
}

impl ContainerTable {
    fn read(&self) -> Result<Container, Complaint> {
        let wrong = || {
            complaint(
                &self.partition_key,
                "a partition key is a path such as \"/user\", or a list of up to three",
            )
        };
        let paths: Vec<Value> = match self.partition_key.get_ref() {
            toml::Value::String(path) => vec![path.as_str().into()],
            toml::Value::Array(paths) => {
                let paths: Option<_> = paths.iter().map(|path| path.as_str().map(Value::from)).collect();
                paths.ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        };
        if paths.is_empty() || paths.len() > items::limits::KEY_PATHS {
            return Err(wrong());
        }
        let kind = if paths.len() > 1 { "MultiHash" } else { "Hash" };
        let mut document = Map::new();
        document.insert("id".into(), self.name.get_ref().as_str().into());
        document.insert("partitionKey".into(), json!({ "paths": paths, "kind": kind, "version": 2 }));
        if let Some(ttl) = self.default_ttl {
            document.insert("defaultTtl".into(), ttl.into());
        }
        if let Some(keys) = &self.unique_keys {
            let keys: Vec<_> = keys.iter().map(|paths| json!({ "paths": paths })).collect();
            document.insert("uniqueKeyPolicy".into(), json!({ "uniqueKeys": keys }));
        }
        if let Some(policy) = &self.indexing_policy {
            let policy = serde_json::to_value(policy).map_err(|_| wrong())?;
            document.insert("indexingPolicy".into(), policy);
        }
        Ok(Container {
            name: self.name.get_ref().clone(),
            throughput: self.throughput,
            document: Value::Object(document).to_string(),
            line: self.name.span().start,
        })
    }
}
