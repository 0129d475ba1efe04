//! A broker as a process: started on new or existing data, asked for its counters, ended by id.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::root::binary;

use super::QUEUE;

/// What a measurement wants to have declared beside its queue.
const DECLARED: &str = "declared.toml";

const START_DEADLINE: Duration = Duration::from_secs(30);
/// Linux counts a process's CPU time in hundredths of a second, whatever the kernel's own tick is.
const CLOCK_TICK_MS: u64 = 10;

#[derive(Debug)]
pub struct Broker {
    child: Child,
    pub port: u16,
}

impl Broker {
    /// Starts the broker in the folder, under a command such as `taskset -c 0`, and returns once it serves.
    pub fn start(folder: &Path, under: &[&str]) -> Result<Broker, String> {
        Broker::start_program(folder, under, &binary("release"))
    }

    /// The same, of another build.
    pub fn start_program(folder: &Path, under: &[&str], otobus: &Path) -> Result<Broker, String> {
        let ready = folder.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let child = spawn_program(folder, under, "127.0.0.1:0", Some(&ready), otobus)?;
        let mut broker = Broker { child, port: 0 };
        let began = Instant::now();
        while began.elapsed() < START_DEADLINE {
            if let Some(status) = broker.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("the broker ended with {status}; see {}", log_of(folder).display()));
            }
            if let Some(port) = std::fs::read_to_string(&ready).ok().and_then(|text| bus_port(&text)) {
                broker.port = port;
                return Ok(broker);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("the broker was not ready in {} s", START_DEADLINE.as_secs()))
    }

    /// The same, with what this text declares beside the queue.
    pub fn start_with(folder: &Path, under: &[&str], declared: &str) -> Result<Broker, String> {
        std::fs::write(folder.join(DECLARED), declared).map_err(|error| error.to_string())?;
        Broker::start(folder, under)
    }

    /// Starts another broker, which says nothing when it is ready: it is once somebody can connect.
    pub fn start_other(mut command: Command, folder: &Path, address: SocketAddr) -> Result<Broker, String> {
        let child = spawn_logged(&mut command, folder)?;
        let mut broker = Broker { child, port: address.port() };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let status = broker.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                return Err(format!("{command:?} ended with {status}; see {}", log_of(folder).display()));
            }
            if began.elapsed() > START_DEADLINE {
                return Err(format!("{command:?} did not listen in {} s", START_DEADLINE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(broker)
    }

    /// `taskset` becomes the program it starts, so this is the broker's own id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the broker's process and does not wait for it.
pub fn spawn(folder: &Path, under: &[&str], listen: &str, ready: Option<&Path>) -> Result<Child, String> {
    spawn_program(folder, under, listen, ready, &binary("release"))
}

fn spawn_program(
    folder: &Path,
    under: &[&str],
    listen: &str,
    ready: Option<&Path>,
    otobus: &Path,
) -> Result<Child, String> {
    let config = folder.join("otobus.toml");
    let failed = |error: std::io::Error| format!("cannot start the broker in {}: {error}", folder.display());
    let declared = std::fs::read_to_string(folder.join(DECLARED)).unwrap_or_default();
    let queue = format!("[[queue]]\nname = \"{QUEUE}\"\nmax_size_in_megabytes = 81920\n");
    std::fs::write(&config, queue + &declared).map_err(failed)?;
    let mut command = match under.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(otobus);
            command
        }
        None => Command::new(otobus),
    };
    command.arg("--config").arg(config).arg("--data").arg(folder.join("data")).args(["--listen-bus", listen]);
    command.args(["--listen-items", "none"]);
    if let Some(ready) = ready {
        command.arg("--ready-file").arg(ready);
    }
    spawn_logged(&mut command, folder)
}

/// Starts a process in the folder; what it prints goes into a file there.
fn spawn_logged(command: &mut Command, folder: &Path) -> Result<Child, String> {
    let failed = |error: std::io::Error| format!("cannot start the broker in {}: {error}", folder.display());
    let log = std::fs::File::create(log_of(folder)).map_err(failed)?;
    let command = command.current_dir(folder).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log).spawn().map_err(failed)
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("otobus.log")
}

/// Where a broker may listen that must be told: a port that was free a moment ago.
pub fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map_err(|error| format!("no free port: {error}"))
}

/// The first bus port in a ready file: `{"bus": ["127.0.0.1:40001"], …}`.
fn bus_port(text: &str) -> Option<u16> {
    let ready: serde_json::Value = serde_json::from_str(text).ok()?;
    ready["bus"][0].as_str()?.parse::<SocketAddr>().ok().map(|address| address.port())
}

/// CPU time in the unit that Linux counts it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTicks(pub u64);

impl CpuTicks {
    pub fn time(self) -> Duration {
        Duration::from_millis(self.0 * CLOCK_TICK_MS)
    }

    /// User and system time of a process (its id or `self`), with that of its ended children if asked for.
    pub fn of_process(process: &str, with_children: bool) -> Result<CpuTicks, String> {
        let path = format!("/proc/{process}/stat");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        cpu_ticks(&text, with_children).ok_or(format!("{path} has no CPU time"))
    }
}

/// Fields 14 and 15 of `/proc/PID/stat`, and 16 and 17 for ended children. The program's name, field 2, may itself
/// contain spaces and parentheses.
fn cpu_ticks(stat: &str, with_children: bool) -> Option<CpuTicks> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields = after_name.split_whitespace().skip(11).take(if with_children { 4 } else { 2 });
    fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>().map(CpuTicks)
}

/// How many syncs the journal has made, as the broker's metrics tell; none if they do not.
pub fn syncs(port: u16) -> Option<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    sum_of(&text, "otobus_journal_syncs_total")
}

/// The sum of a counter over its label sets, in Prometheus text.
fn sum_of(metrics: &str, name: &str) -> Option<u64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0) + value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_spaces() {
        let stat = "42 (an (odd) name) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 3 20 0 4 0 100 1000 10";
        assert_eq!(cpu_ticks(stat, false), Some(CpuTicks(300)));
        assert_eq!(cpu_ticks(stat, true), Some(CpuTicks(310)));
    }

    #[test]
    fn a_counter_is_summed_over_its_labels_and_not_over_its_neighbours() {
        let text =
            "# TYPE syncs counter\nsyncs{partition=\"0\"} 40\nsyncs{partition=\"1\"} 2\nsyncs_failed 9\n";
        assert_eq!(sum_of(text, "syncs"), Some(42));
        assert_eq!(sum_of("syncs 7\n", "syncs"), Some(7));
        assert_eq!(sum_of("other 7\n", "syncs"), None);
    }

    #[test]
    fn the_port_is_read_from_the_ready_file() {
        assert_eq!(bus_port(r#"{"bus":["127.0.0.1:40001","127.0.0.1:40002"]}"#), Some(40001));
        assert_eq!(bus_port(r#"{"bus":["#), None);
    }
}
