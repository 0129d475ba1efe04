//! The same for items: `cargo xtask crash --items`. Clients write items over HTTP while the process is killed again and again.
//!
//! Each client has items of its own and one request at a time, so it always knows what may be stored: the last thing that was
//! accepted, or the one request that was never answered. After every start it reads all of its items.

use super::{LIFE_MS, Plan};
use crate::cost::scratch;
use crate::items::client::{Connection, DATABASE, Request};
use crate::items::server::Server;
use crate::root::binary;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WRITERS: usize = 6;
const ITEMS: usize = 20;
const CONTAINER: &str = "c";
/// What some items have to live, in seconds.
const TTL: u64 = 1;
/// The server writes between the request and its answer, and its clock may be adjusted: nothing is said about this long
/// before and after the end of an item.
const SLACK: Duration = Duration::from_millis(300);
const RETRY: Duration = Duration::from_millis(3);
const CACHE_MEGABYTES: u64 = 16;
/// Beside the numbers, so that checkpoints and files come about.
const PADDING: usize = 600;
/// All writers have looked at everything after this time.
const LAST_LOOK: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Shared {
    /// Where the server is; 0 while it is not.
    port: AtomicU16,
    /// Counts the starts.
    life: AtomicU64,
    accepted: AtomicU64,
    unanswered: AtomicU64,
    checked: AtomicU64,
    expired: AtomicU64,
    is_written: AtomicBool,
    /// Writers that have read everything for the last time.
    ended: AtomicU64,
    broken: Mutex<Vec<String>>,
}

impl Shared {
    fn fail(&self, what: String) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn is_broken(&self) -> bool {
        !self.broken.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What may be stored under an id: an item with this number, which ends between two instants if it ends, or nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Written {
    number: u64,
    ends: Option<(Instant, Instant)>,
}

/// What a client knows of one of its items.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    accepted: Option<Written>,
    /// A request that was never answered: what it would have left.
    unanswered: Option<Option<Written>>,
}

impl Known {
    /// Whether finding this now agrees with what was told.
    fn allows(&self, found: Option<u64>, before: Instant, after: Instant) -> bool {
        let fits = |state: Option<Written>| match (state, found) {
            (None, found) => found.is_none(),
            (Some(written), Some(number)) => {
                written.number == number && written.ends.is_none_or(|(_, latest)| before < latest)
            }
            (Some(written), None) => written.ends.is_some_and(|(earliest, _)| after >= earliest),
        };
        fits(self.accepted) || self.unanswered.is_some_and(fits)
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    name: String,
    known: [Known; ITEMS],
    next: u64,
    random: u64,
    /// The last start after which everything was read.
    looked: u64,
}

impl Writer<'_> {
    fn draw(&mut self, below: u64) -> u64 {
        self.random = crate::items::item::mixed(self.random);
        self.random % below
    }

    /// Writes until told otherwise, and reads everything whenever the server is there again.
    fn go(&mut self) {
        loop {
            let is_over = self.shared.is_written.load(Ordering::Acquire);
            let life = self.shared.life.load(Ordering::Acquire);
            if is_over && self.looked == life || self.shared.is_broken() {
                self.shared.ended.fetch_add(1, Ordering::Release);
                return;
            }
            let port = self.shared.port.load(Ordering::Acquire);
            let connection = if port == 0 { None } else { Connection::open(port).ok() };
            let Some(mut connection) = connection else {
                std::thread::sleep(RETRY);
                continue;
            };
            let ended = self.look(&mut connection).and_then(|()| {
                self.looked = life;
                self.write(&mut connection)
            });
            // A server that was killed says nothing; whatever else is odd is its fault.
            if let Err(error) = ended
                && error.kind() == io::ErrorKind::Other
            {
                self.shared.fail(format!("{} gave up: {error}", self.name));
            }
        }
    }

    fn look(&mut self, connection: &mut Connection) -> io::Result<()> {
        for nth in 0..ITEMS {
            let before = Instant::now();
            let found = read(connection, &self.name, nth)?;
            let known = &mut self.known[nth];
            if !known.allows(found, before, Instant::now()) {
                self.shared.fail(format!("{} item {nth}: {found:?} is read, but {known:?}", self.name));
                return Ok(());
            }
            let was = [known.accepted, known.unanswered.flatten()].into_iter().flatten();
            let is_expired = found.is_none() && was.clone().any(|written| written.ends.is_some());
            self.shared.expired.fetch_add(u64::from(is_expired), Ordering::Relaxed);
            self.shared.checked.fetch_add(1, Ordering::Relaxed);
            // What was found is true from now on: what has ended stays away.
            let accepted = was.clone().find(|written| Some(written.number) == found);
            *known = Known { accepted, unanswered: None };
        }
        Ok(())
    }

    fn write(&mut self, connection: &mut Connection) -> io::Result<()> {
        while !self.shared.is_written.load(Ordering::Acquire) {
            let nth = self.draw(ITEMS as u64) as usize;
            let wants_ttl = self.draw(6) == 0;
            let is_delete = self.draw(8) == 0;
            self.next += 1;
            let began = Instant::now();
            let ends = |until: Instant| {
                let ttl = Duration::from_secs(TTL);
                wants_ttl.then(|| (began + ttl - SLACK, until + ttl + SLACK))
            };
            // Without an answer nobody knows when it was written, if at all: at the latest when the server was killed.
            let tried = (!is_delete).then(|| Written { number: self.next, ends: ends(began + LAST_LOOK) });
            self.known[nth].unanswered = Some(tried);
            let status = match is_delete {
                true => delete(connection, &self.name, nth),
                false => upsert(connection, &self.name, nth, self.next, wants_ttl),
            };
            if status.is_err() {
                self.shared.unanswered.fetch_add(1, Ordering::Relaxed);
            }
            let status = status?;
            let answered = Instant::now();
            match status {
                200 | 201 | 204 | 404 => {}
                status => return Err(io::Error::other(format!("a write is answered {status}"))),
            }
            if status == 404 && self.known[nth].accepted.is_some_and(|written| written.ends.is_none()) {
                self.shared.fail(format!("{} item {nth} is not found by a delete", self.name));
            }
            let accepted = (!is_delete).then(|| Written { number: self.next, ends: ends(answered) });
            self.known[nth] = Known { accepted, unanswered: None };
            self.shared.accepted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn link(writer: &str, nth: usize) -> String {
    format!("dbs/{DATABASE}/colls/{CONTAINER}/docs/{writer}-{nth}")
}

fn key_header(writer: &str) -> String {
    format!("x-ms-documentdb-partitionkey: [\"{writer}\"]\r\n")
}

fn upsert(
    connection: &mut Connection,
    writer: &str,
    nth: usize,
    number: u64,
    has_ttl: bool,
) -> io::Result<u16> {
    let ttl = if has_ttl { format!(",\"ttl\":{TTL}") } else { String::new() };
    let padding = "x".repeat(PADDING);
    let body = format!(r#"{{"id":"{writer}-{nth}","pk":"{writer}","n":{number},"text":"{padding}"{ttl}}}"#);
    let link = format!("dbs/{DATABASE}/colls/{CONTAINER}");
    let path = format!("/{link}/docs");
    let headers = format!(
        "{}x-ms-documentdb-is-upsert: True\r\ncontent-type: application/json\r\n",
        key_header(writer)
    );
    let body = body.as_bytes();
    let request = Request { method: "POST", kind: "docs", link: &link, path: &path, headers: &headers, body };
    Ok(connection.ask(request)?.status)
}

fn delete(connection: &mut Connection, writer: &str, nth: usize) -> io::Result<u16> {
    let link = link(writer, nth);
    let (path, headers) = (format!("/{link}"), key_header(writer));
    let request =
        Request { method: "DELETE", kind: "docs", link: &link, path: &path, headers: &headers, body: b"" };
    Ok(connection.ask(request)?.status)
}

/// The number of an item, if it is there.
fn read(connection: &mut Connection, writer: &str, nth: usize) -> io::Result<Option<u64>> {
    let link = link(writer, nth);
    let (path, headers) = (format!("/{link}"), key_header(writer));
    let request =
        Request { method: "GET", kind: "docs", link: &link, path: &path, headers: &headers, body: b"" };
    let answer = connection.ask(request)?;
    match answer.status {
        404 => Ok(None),
        200 => {
            let body: serde_json::Value = serde_json::from_slice(answer.body).map_err(io::Error::other)?;
            body["n"].as_u64().map(Some).ok_or_else(|| io::Error::other("an item without its number"))
        }
        status => Err(io::Error::other(format!("a read is answered {status}"))),
    }
}

pub fn kill_again_and_again(plan: &Plan) -> Result<String, String> {
    let folder = scratch("crash-items")?;
    let shared = Shared::default();
    let lives = std::thread::scope(|scope| {
        let shared = &shared;
        for nth in 0..WRITERS {
            let random = plan.seed ^ nth as u64;
            let name = format!("w{nth}");
            let known = [Known::default(); ITEMS];
            let mut writer = Writer { shared, name, known, next: 0, random, looked: 0 };
            scope.spawn(move || writer.go());
        }
        let lives = lives(plan, &folder, shared);
        if lives.is_err() {
            shared.fail("the server cannot be started".into());
        }
        lives
    });
    let (slowest, found) = lives?;
    let broken = shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
    if !broken.is_empty() {
        let shown: Vec<_> = broken.iter().take(20).map(String::as_str).collect();
        return Err(format!("{} broken promises (seed {}):\n{}", broken.len(), plan.seed, shown.join("\n")));
    }
    let verified =
        Command::new(binary(plan.profile)).arg("verify").arg("--data").arg(folder.join("data")).output();
    let verified = verified.map_err(|error| format!("cannot run otobus verify: {error}"))?;
    if !verified.status.success() {
        return Err(format!("otobus verify found damage:\n{}", String::from_utf8_lossy(&verified.stdout)));
    }
    Ok(format!(
        "items: {} kills, {} accepted, {} never answered, {} read after starts, {} of them expired, {found} there in the end; \
         nothing lost, nothing returned; slowest start {} ms",
        plan.kills,
        shared.accepted.load(Ordering::Relaxed),
        shared.unanswered.load(Ordering::Relaxed),
        shared.checked.load(Ordering::Relaxed),
        shared.expired.load(Ordering::Relaxed),
        slowest.as_millis()
    ))
}

/// Life after life, and a last look at everything. Returns the slowest start and how many items there are.
fn lives(plan: &Plan, folder: &std::path::Path, shared: &Shared) -> Result<(Duration, u64), String> {
    let mut random = plan.seed;
    let (mut killed, mut slowest) = (0, Duration::ZERO);
    loop {
        let server = Server::start_program(folder, CACHE_MEGABYTES, &[], &binary(plan.profile))?;
        slowest = slowest.max(server.started_in);
        if killed == 0 {
            prepare(&mut server.connect()?)
                .map_err(|error| format!("cannot create the container: {error}"))?;
        }
        shared.life.fetch_add(1, Ordering::AcqRel);
        shared.port.store(server.port, Ordering::Release);
        if killed >= plan.kills && shared.accepted.load(Ordering::Relaxed) >= plan.accepted {
            return last_look(&server, shared).map(|found| (slowest, found));
        }
        random = crate::items::item::mixed(random);
        std::thread::sleep(Duration::from_millis(LIFE_MS.start + random % (LIFE_MS.end - LIFE_MS.start)));
        shared.port.store(0, Ordering::Release);
        // SIGKILL.
        drop(server);
        killed += 1;
        if shared.is_broken() {
            return Ok((slowest, 0));
        }
        if killed % 20 == 0 {
            println!("{killed} kills, {} accepted", shared.accepted.load(Ordering::Relaxed));
        }
    }
}

fn prepare(connection: &mut Connection) -> io::Result<()> {
    connection.create_database()?;
    connection.create_container(&format!(
        r#"{{"id":"{CONTAINER}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"defaultTtl":-1}}"#
    ))
}

/// Everybody reads everything once more; then an index, a feed of all items and the clients must agree on how many there are.
fn last_look(server: &Server, shared: &Shared) -> Result<u64, String> {
    shared.is_written.store(true, Ordering::Release);
    let began = Instant::now();
    while shared.ended.load(Ordering::Acquire) < WRITERS as u64 {
        if began.elapsed() > LAST_LOOK {
            shared.fail("a client does not come to its end".into());
            return Ok(0);
        }
        std::thread::sleep(RETRY);
    }
    // Until everything has ended that ends.
    std::thread::sleep(Duration::from_secs(TTL) + 2 * SLACK);
    let failed = |error: io::Error| format!("the last look failed: {error}");
    let mut connection = server.connect()?;
    let mut found = 0;
    for writer in 0..WRITERS {
        for nth in 0..ITEMS {
            found += u64::from(read(&mut connection, &format!("w{writer}"), nth).map_err(failed)?.is_some());
        }
    }
    let queries =
        ["SELECT c.id FROM c WHERE c.n >= 0", "SELECT c.id FROM c", "SELECT c.id FROM c ORDER BY c.n"];
    for query in queries {
        let (rows, _) = connection.query(CONTAINER, query).map_err(failed)?;
        if rows != found {
            shared.fail(format!("{query} finds {rows} of {found} items"));
        }
    }
    Ok(found)
}
