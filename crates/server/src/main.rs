//! The binary: it gathers what it is told, opens everything, serves, and ends. It decides nothing.
//!
//! Whatever keeps it from serving is one sentence on standard error that names the thing and the way out.

mod announce;
mod config;
mod correlation;
mod data;
mod definition;
mod durability;
mod emulator;
mod engines;
mod flags;
mod issuer_keys;
mod issuer_table;
mod item_definition;
mod item_table;
mod items;
mod json_lines;
mod limits;
mod log;
mod namespaces;
mod queue_table;
mod serve;
mod settings;
mod signals;
mod topic_table;
mod verify;

use clap::Parser;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Arc;

/// Gives freed memory back to the system, on a thread of its own.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// As clap's own, for a wrong flag: what was asked for cannot be right.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    // Every file is made for its owner alone, whatever was set before.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let flags = match flags::Cli::parse().into_verb() {
        flags::Verb::Serve(flags) => flags,
        flags::Verb::Verify(flags) => return ended(verify::verify(&flags.data)),
    };
    let settings = match settings::Settings::gather(flags.clone()) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("otobus: {}", log::escaped(error.to_string()));
            return ExitCode::from(WRONG_USE);
        }
    };
    log::start(settings.log, settings.log_format);
    ended(run(settings, flags))
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("otobus: {}", log::escaped(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(settings: settings::Settings, flags: flags::Flags) -> anyhow::Result<()> {
    let open_files = allow_open_files();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let served = Arc::<engines::Served>::default();
    let resting = Arc::clone(&served);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .on_thread_start(wake_in_time)
        .on_thread_park(move || resting.rest())
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve::serve(settings, flags, open_files, &served));
    // Connections that would not end have nothing left to say.
    runtime.shutdown_background();
    ended
}

/// The kernel may let a thread sleep for 50 microseconds longer than it asked for, which is much of a pause.
fn wake_in_time() {
    const SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("it is not zero");
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(SLACK_NS)) {
        tracing::debug!(%error, "threads wake up a little late");
    }
}

/// Each connection is an open file, and the journal has some more; the usual soft limit of 1,024 is a courtesy to
/// programs from another age. The hard limit is the one that somebody meant. Says how many files may be open now.
fn allow_open_files() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the number of files that may be open");
    }
    // No number means no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
