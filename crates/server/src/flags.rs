//! The command line. A flag wins over its variable, which wins over the configuration file, which wins over the default.

use crate::durability::Durability;
use crate::log::LogFormat;
use clap::{Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "otobus",
    version,
    about = "A self-hosted Azure Service Bus",
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Verb>,
    #[command(flatten)]
    pub serve: Flags,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Runs the server; what `otobus` without a command does
    Serve(Flags),
    /// Checks every byte that is stored and says what is damaged; the server must be stopped
    Verify(VerifyFlags),
}

#[derive(Debug, Clone, clap::Args)]
pub struct VerifyFlags {
    /// Directory to check
    #[arg(long, env = "OTOBUS_DATA", value_name = "DIRECTORY", default_value = crate::settings::DATA_DIRECTORY)]
    pub data: PathBuf,
}

impl Cli {
    pub fn into_verb(self) -> Verb {
        self.command.unwrap_or(Verb::Serve(self.serve))
    }
}

/// Where to listen; nowhere when it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub Vec<SocketAddr>);

fn addresses_or_none(text: &str) -> Result<Addresses, std::net::AddrParseError> {
    if text == "none" {
        return Ok(Addresses(Vec::new()));
    }
    text.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Addresses)
}

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// Configuration file; without it ./otobus.toml is read if it is there
    #[arg(long, env = "OTOBUS_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of everything that lasts [default: ./otobus-data]
    #[arg(long, env = "OTOBUS_DATA", value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// Addresses of the bus, each with a port, separated by commas; port 0 takes any that is free
    #[arg(long, env = "OTOBUS_LISTEN_BUS", value_name = "ADDRESSES", value_delimiter = ',')]
    pub listen_bus: Option<Vec<SocketAddr>>,
    /// Addresses of the items in the same way, or `none` [default: 127.0.0.1:8081]
    #[arg(long, env = "OTOBUS_LISTEN_ITEMS", value_name = "ADDRESSES|none", value_parser = addresses_or_none)]
    pub listen_items: Option<Addresses>,
    /// How much is logged on stderr: off, error, warn, info, debug or trace [default: warn]
    #[arg(long, env = "OTOBUS_LOG", value_name = "LEVEL")]
    pub log: Option<tracing::level_filters::LevelFilter>,
    /// How it is logged: lines of key=value, or JSON [default: text]
    #[arg(long, env = "OTOBUS_LOG_FORMAT", value_name = "text|json")]
    pub log_format: Option<LogFormat>,
    /// What accepted means: fsync survives power failure, os only the end of the process [default: fsync]
    #[arg(long, env = "OTOBUS_DURABILITY", value_name = "fsync|os")]
    pub durability: Option<Durability>,
    /// Quotas of the service that are held to: basic, standard, premium or unlimited [default: unlimited]
    #[arg(long, env = "OTOBUS_TIER", value_name = "TIER")]
    pub tier: Option<broker::Tier>,
    /// Lets clients with the right Manage move the time of their namespace (POST /$otobus/clock); for tests alone [default: false]
    #[arg(
        long,
        env = "OTOBUS_TEST_CLOCK",
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub test_clock: Option<bool>,
    /// Gives every program on this machine that asks /$otobus/token a bearer token for everything [default: false]
    #[arg(
        long,
        env = "OTOBUS_DEVELOPMENT_ISSUER",
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub development_issuer: Option<bool>,
    /// File to write once everything listens: JSON with the addresses, the data directory and the CA file
    #[arg(long, env = "OTOBUS_READY_FILE", value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}
