//! The binary: it gathers what it is told, opens everything, serves, and ends. It decides nothing.
//!
//! Whatever keeps it from serving is one sentence on standard error that names the thing and the way out.

mod announce;
mod config;
mod data;
mod definition;
mod emulator;
mod flags;
mod queue_table;
mod serve;
mod settings;
mod topic_table;

use clap::Parser;
use std::process::ExitCode;

/// As clap's own, for a wrong flag: what was asked for cannot be right.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let flags = flags::Cli::parse().into_flags();
    let settings = match settings::Settings::gather(flags.clone()) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("otobus: {error}");
            return ExitCode::from(WRONG_USE);
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(settings.log).init();
    match run(settings, flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("otobus: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: settings::Settings, flags: flags::Flags) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
    let ended = runtime.block_on(serve::serve(settings, flags));
    // Connections that would not end have nothing left to say.
    runtime.shutdown_background();
    ended
}
