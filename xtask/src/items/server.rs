//! Otobus with items as a process on a core of its own: started, asked for what it uses, ended by id.

use super::client::Connection;
use crate::cost::broker::CpuTicks;
use crate::root::binary;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
    /// From exec until it said that it was ready.
    pub started_in: Duration,
}

impl Server {
    /// Starts on what is in the folder. `cache_megabytes` is what the items may hold in memory.
    pub fn start(folder: &Path, cache_megabytes: u64, core: &str) -> Result<Server, String> {
        Server::start_program(folder, cache_megabytes, &["taskset", "-c", core], &binary("release"))
    }

    /// The same, of another build and under another command, or none.
    pub fn start_program(
        folder: &Path,
        cache_megabytes: u64,
        under: &[&str],
        otobus: &Path,
    ) -> Result<Server, String> {
        let failed = |error: std::io::Error| format!("cannot start otobus in {}: {error}", folder.display());
        let (config, ready, log) =
            (folder.join("otobus.toml"), folder.join("ready.json"), folder.join("otobus.log"));
        std::fs::write(&config, format!("[items]\ncache_megabytes = {cache_megabytes}\n")).map_err(failed)?;
        let _ = std::fs::remove_file(&ready);
        let output = std::fs::File::create(&log).map_err(failed)?;
        let began = Instant::now();
        let mut words = under.iter().map(std::ffi::OsStr::new).chain([otobus.as_os_str()]);
        let child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .arg("--config")
            .arg(config)
            .arg("--data")
            .arg(folder.join("data"))
            .args(["--listen-bus", "127.0.0.1:0", "--listen-items", "127.0.0.1:0", "--test-clock"])
            .arg("--ready-file")
            .arg(&ready)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        let mut server = Server { child, port: 0, started_in: Duration::ZERO };
        while began.elapsed() < START_DEADLINE {
            if let Some(status) = server.child.try_wait().map_err(failed)? {
                return Err(format!("otobus ended with {status}; see {}", log.display()));
            }
            if let Some(port) = std::fs::read_to_string(&ready).ok().and_then(|text| items_port(&text)) {
                (server.port, server.started_in) = (port, began.elapsed());
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("otobus was not ready in {} s", START_DEADLINE.as_secs()))
    }

    pub fn connect(&self) -> Result<Connection, String> {
        Connection::open(self.port).map_err(|error| format!("cannot connect: {error}"))
    }

    pub fn cpu(&self) -> Result<Duration, String> {
        CpuTicks::of_process(&self.child.id().to_string(), false).map(CpuTicks::time)
    }

    /// Memory that belongs to the process alone, in MiB: what it has allocated and not what the system caches for it.
    pub fn held_megabytes(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let kibibytes = text.lines().find_map(|line| {
            line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
        });
        kibibytes.map(|kibibytes| kibibytes / 1024.0).ok_or(format!("{path} tells no memory"))
    }
}

impl Drop for Server {
    /// SIGKILL: every start of the measurements is one after a kill.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first port of the items in a ready file.
fn items_port(text: &str) -> Option<u16> {
    let ready: serde_json::Value = serde_json::from_str(text).ok()?;
    ready["items"][0].as_str()?.parse::<SocketAddr>().ok().map(|address| address.port())
}

/// Bytes of all files under a folder, in MiB.
pub fn megabytes_of(folder: &Path) -> f64 {
    let mut folders: Vec<PathBuf> = vec![folder.into()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    bytes as f64 / 1024.0 / 1024.0
}
