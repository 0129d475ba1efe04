//! `cargo xtask start`: how long from exec until a client has its first message accepted.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{QUEUE, broker, build, scratch};
use crate::load::{Place, sender};

const STARTS: usize = 20;
/// How often the client tries to connect.
const POLL: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(30);
const NEW_LIMIT_MS: f64 = 100.0;
const EXISTING_LIMIT_MS: f64 = 50.0;

pub fn run() -> Result<(), String> {
    build()?;
    let on_new = (0..STARTS).map(|_| exec_to_accepted(&scratch("start")?)).collect::<Result<Vec<_>, _>>()?;
    report("new data directory", on_new, NEW_LIMIT_MS);
    let folder = scratch("start")?;
    exec_to_accepted(&folder)?;
    let on_existing = (0..STARTS).map(|_| exec_to_accepted(&folder)).collect::<Result<Vec<_>, _>>()?;
    report("existing data directory, after SIGKILL", on_existing, EXISTING_LIMIT_MS);
    std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

/// Starts a broker, has one message accepted, kills it.
fn exec_to_accepted(folder: &Path) -> Result<Duration, String> {
    // The client must know the port before the broker runs.
    let address = broker::free_address()?;
    let place = Place { address, queue: QUEUE.into() };
    let began = Instant::now();
    let mut child = broker::spawn(folder, &[], &address.to_string(), None)?;
    let outcome = loop {
        match sender::send_one(&place) {
            Ok(()) => break Ok(began.elapsed()),
            Err(error)
                if error.kind() == std::io::ErrorKind::ConnectionRefused && began.elapsed() < DEADLINE =>
            {
                std::thread::sleep(POLL);
            }
            Err(error) => {
                break Err(format!(
                    "the first send failed: {error}; see {}",
                    folder.join("otobus.log").display()
                ));
            }
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

fn report(what: &str, mut times: Vec<Duration>, limit_ms: f64) {
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let (median, slowest) = (ms(times.get(times.len() / 2)), ms(times.last()));
    let words = if median <= limit_ms { "within" } else { "ABOVE" };
    println!(
        "exec to accepted, {what}: median of {STARTS} {median:.1} ms, slowest {slowest:.1} ms, {words} {limit_ms} ms"
    );
}
