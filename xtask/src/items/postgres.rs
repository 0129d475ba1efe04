//! PostgreSQL 15 as Debian packages it, on data of its own: the same load, driven by its own `pgbench` in prepared mode.

use super::item;
use crate::cost::broker::{CpuTicks, free_address};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const START_DEADLINE: Duration = Duration::from_secs(30);
/// As much as the items have for their cache.
const SHARED_BUFFERS: &str = "shared_buffers=256MB";

/// Whether it is installed; what to do, if it is not.
pub fn is_there() -> Result<(), &'static str> {
    match Path::new(PROGRAMS).join("pgbench").exists() {
        true => Ok(()),
        false => Err("PostgreSQL 15 is missing, so there is no ratio: apt-get install -y postgresql-15"),
    }
}

#[derive(Debug)]
pub struct Postgres {
    child: Child,
    port: u16,
    folder: PathBuf,
}

/// What `pgbench` saw, and what the server used for it.
#[derive(Debug)]
pub struct Measured {
    pub operations: f64,
    pub per_second: f64,
    pub cpu: Duration,
}

impl Postgres {
    /// Makes a new data directory with a table of so many items, and serves it on a core.
    pub fn start(folder: &Path, core: &str, items: u64) -> Result<Postgres, String> {
        let data = folder.join("postgres");
        std::fs::create_dir_all(&data).map_err(|error| error.to_string())?;
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&data))?;
        }
        let initdb = ["-A", "trust", "-U", "postgres", "--no-sync", "-D"];
        run(unprivileged(&[]).arg(program("initdb")).args(initdb).arg(&data))?;
        let port = free_address()?.port();
        let log = std::fs::File::create(folder.join("postgres.log")).map_err(|error| error.to_string())?;
        let child = unprivileged(&["taskset", "-c", core])
            .arg(program("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
            .args(["-c", SHARED_BUFFERS, "-c", "synchronous_commit=on", "-c", "fsync=on"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start PostgreSQL: {error}"))?;
        let mut postgres = Postgres { child, port, folder: folder.into() };
        let began = Instant::now();
        while run(postgres.client("pg_isready").arg("-q")).is_err() {
            let ended = postgres.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || began.elapsed() > START_DEADLINE {
                return Err(format!("PostgreSQL does not serve; see {}/postgres.log", folder.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let body = item::body(1, 1);
        postgres.sql(&format!(
            "CREATE TABLE items (id bigint PRIMARY KEY, body jsonb NOT NULL); \
             INSERT INTO items SELECT nth, '{body}' FROM generate_series(0, {}) nth;",
            items - 1
        ))?;
        postgres.sql("VACUUM ANALYZE items")?;
        postgres.sql("CHECKPOINT")?;
        Ok(postgres)
    }

    /// Upserts of random items, each its own transaction.
    pub fn upserts(
        &self,
        core: &str,
        connections: u64,
        items: u64,
        seconds: u64,
    ) -> Result<Measured, String> {
        let script = format!(
            "\\set id random(0, {})\nINSERT INTO items (id, body) VALUES (:id, :body) \
             ON CONFLICT (id) DO UPDATE SET body = excluded.body;\n",
            items - 1
        );
        self.bench(core, &script, connections, seconds)
    }

    pub fn reads(&self, core: &str, connections: u64, items: u64, seconds: u64) -> Result<Measured, String> {
        let script = format!("\\set id random(0, {})\nSELECT body FROM items WHERE id = :id;\n", items - 1);
        self.bench(core, &script, connections, seconds)
    }

    fn bench(&self, core: &str, script: &str, connections: u64, seconds: u64) -> Result<Measured, String> {
        let file = self.folder.join("pgbench.sql");
        std::fs::write(&file, script).map_err(|error| error.to_string())?;
        let before = self.cpu()?;
        let output = Command::new("taskset")
            .args(["-c", core])
            .arg(program("pgbench"))
            .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string(), "-n", "-M", "prepared"])
            .args(["-c", &connections.to_string(), "-j", "1", "-T", &seconds.to_string(), "-f"])
            .arg(&file)
            .arg("-D")
            .arg(format!("body={}", item::body(2, 2)))
            .arg("postgres")
            .output()
            .map_err(|error| format!("cannot run pgbench: {error}"))?;
        if !output.status.success() {
            return Err(format!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches([':', ' ', '=']).split([' ', '/']).next()?.parse::<f64>().ok()
        };
        let missing = || format!("pgbench printed something else:\n{text}");
        Ok(Measured {
            operations: figure("number of transactions actually processed").ok_or_else(missing)?,
            per_second: figure("tps").ok_or_else(missing)?,
            cpu: self.cpu()? - before,
        })
    }

    /// CPU time of the server with all its processes: those that ended, which it has waited for, and those that live.
    fn cpu(&self) -> Result<Duration, String> {
        let postmaster = self.child.id().to_string();
        let mut ticks = CpuTicks::of_process(&postmaster, true)?.0;
        let path = format!("/proc/{postmaster}/task/{postmaster}/children");
        let children =
            std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        for child in children.split_whitespace() {
            // One that ended meanwhile was waited for.
            ticks += CpuTicks::of_process(child, false).map_or(0, |ticks| ticks.0);
        }
        Ok(CpuTicks(ticks).time())
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        command
    }

    fn sql(&self, text: &str) -> Result<(), String> {
        run(self.client("psql").args(["-q", "-d", "postgres", "-c", text]))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends all its processes at once; what it leaves is thrown away.
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join(name)
}

/// PostgreSQL refuses to run as root.
fn unprivileged(before: &[&str]) -> Command {
    let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
    let words: Vec<&str> =
        if is_root() { user.iter().chain(before).copied().collect() } else { before.to_vec() };
    let words = if words.is_empty() { vec!["env"] } else { words };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir("/");
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
