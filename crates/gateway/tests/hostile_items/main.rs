//! What ill-meaning peers cost at the door of the items, counted by the allocator: each of more than a hundred cases stays under a bound
//! while it is served, nothing of it is left behind, and an honest request beside it is answered right. One test alone, for the
//! allocator counts the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod http2;
mod owners;
mod strangers;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use items::{Command, InMemory, Refusal, Reply};
use otobus_gateway::auth::{Secret, UnixSeconds};
use otobus_gateway::cosmos::{Ask, Door, Keys, Settings, sign};
use otobus_gateway::limits::ITEMS_BODY_BYTES;
use otobus_gateway::listen::{Doors, Peer};
use otobus_gateway::names::Names;
use peak_alloc::PeakAlloc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What a connection may cost before a signature is accepted (P6).
const STRANGER_BYTES: usize = 128 * 1_024;

/// What a request of somebody with a key may cost: its body as it came and joined, read, and what is made of it.
const OWNER_BYTES: usize = 6 * ITEMS_BODY_BYTES;

/// What all cases together may leave behind: tables that have grown and keep their size.
const LEFT_BYTES: usize = 64 * 1_024;

/// A pipe as small as a socket's buffer may be, so that the case itself is not in the server's memory.
const PIPE_BYTES: usize = 4 * 1_024;

const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
const ITEM: &str = "dbs/d/colls/c/docs/1";

/// An account in memory behind the door.
#[derive(Debug, Clone, Default)]
struct Items(Arc<Mutex<InMemory>>);

impl Ask for Items {
    async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        let mut items = self.0.lock().unwrap();
        let answer = items.ask(&command);
        // What was ever recorded is for other tests.
        items.records.clear();
        answer
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A request of somebody who has the key. `kind` and `link` are what is signed.
pub fn signed(method: &str, kind: &str, link: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let text = format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), DATE.to_lowercase());
    let signature = sign(&STANDARD.encode("key"), &text).unwrap();
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let length = match headers.to_lowercase().contains("transfer-encoding") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-ms-date: {DATE}\r\n\
         authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\n{length}{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn honest() -> Vec<u8> {
    signed("GET", "docs", ITEM, &format!("/{ITEM}"), "x-ms-documentdb-partitionkey: [\"k\"]\r\n", b"")
}

/// Serves one connection that sends `request`, and gives what it was answered.
async fn exchange(door: &Arc<Door<Items>>, request: &[u8]) -> Vec<u8> {
    let (far, near) = tokio::io::duplex(PIPE_BYTES);
    let (mut answers, mut far) = tokio::io::split(far);
    let peer = Peer::new("192.0.2.1:4000".parse().unwrap());
    let begins = BytesMut::from(&request[..request.len().min(4)]);
    let rest = &request[begins.len()..];
    let served = Arc::clone(door).http(near, begins, peer);
    let mut answer = Vec::new();
    let client = async {
        let mut room = [0; 1_024];
        let mut written = 0;
        // Reads while it writes: a refusal may come before the end of the request.
        loop {
            tokio::select! {
                sent = far.write(&rest[written..]), if written < rest.len() => match sent {
                    Ok(count) => written += count,
                    Err(_) => written = rest.len(),
                },
                read = answers.read(&mut room) => match read {
                    Ok(0) | Err(_) => break,
                    // The beginning tells what came of it.
                    Ok(count) if answer.len() < room.len() => answer.extend_from_slice(&room[..count]),
                    Ok(_) => {}
                },
            }
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(served, client) } => {}
        // A request that is not whole waits for its rest; its cost is known by then.
        () = tokio::time::sleep(Duration::from_secs(300)) => {}
    }
    answer
}

/// What an exchange holds at its worst moment beyond what was held before, and its answer.
async fn cost(door: &Arc<Door<Items>>, request: &[u8]) -> (usize, Vec<u8>) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let answer = exchange(door, request).await;
    (MEMORY.peak_usage().saturating_sub(before), answer)
}

fn is_refused(answer: &[u8]) -> bool {
    answer.is_empty() || answer.starts_with(b"HTTP/1.1 4") || answer.starts_with(b"HTTP/1.0 4")
}

async fn door() -> Arc<Door<Items>> {
    let keys = Keys::new(&[Secret::new(STANDARD.encode("key"))], &[], false).unwrap();
    let settings = Settings { skew: Duration::from_secs(UnixSeconds::now().0), ..Settings::default() };
    let door = Arc::new(Door::new(Items::default(), keys, Names::default(), settings));
    let definition = br#"{"id":"c","partitionKey":{"paths":["/k"],"version":2},"defaultTtl":-1}"#;
    let (container, item) = ("dbs/d/colls/c", br#"{"id":"1","k":"k","n":1}"#);
    for request in [
        signed("POST", "dbs", "", "/dbs", "", br#"{"id":"d"}"#),
        signed("POST", "colls", "dbs/d", "/dbs/d/colls", "", definition),
        signed("POST", "docs", container, &format!("/{container}/docs"), "", item),
    ] {
        let answer = exchange(&door, &request).await;
        assert!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    }
    door
}

#[tokio::test]
async fn more_than_a_hundred_hostile_peers_cost_little_and_leave_nothing_behind() {
    tokio::time::pause();
    let door = door().await;
    let strangers = strangers::requests();
    let http2 = http2::connections();
    let owners = owners::requests();
    // The first of each kind makes what is made once.
    for case in strangers.iter().take(3).chain(http2.iter().take(3)).chain(owners.iter().take(3)) {
        exchange(&door, case).await;
    }
    exchange(&door, &honest()).await;
    let at_start = MEMORY.current_usage();
    let cases = strangers.iter().map(|case| (case, STRANGER_BYTES, true));
    let cases = cases.chain(http2.iter().map(|case| (case, STRANGER_BYTES, false)));
    let cases = cases.chain(owners.iter().map(|case| (case, OWNER_BYTES, true)));
    let (mut count, mut complaints) = (0, Vec::new());
    for (case, bound, is_http1) in cases {
        let shown = String::from_utf8_lossy(&case[..case.len().min(400)]).into_owned();
        let mut complain = |what: String| complaints.push(format!("{what} for {shown}"));
        let before = MEMORY.current_usage();
        let (cost, answer) = cost(&door, case).await;
        if cost > bound {
            complain(format!("{cost} bytes"));
        }
        if is_http1 && !is_refused(&answer) {
            complain(format!("{:?}", String::from_utf8_lossy(&answer)));
        }
        drop(answer);
        let answer = exchange(&door, &honest()).await;
        if !answer.starts_with(b"HTTP/1.1 200") {
            complain(format!("afterwards {:?}", String::from_utf8_lossy(&answer)));
        }
        drop(answer);
        let left = MEMORY.current_usage().saturating_sub(before);
        if left > LEFT_BYTES {
            complain(format!("{left} bytes left"));
        }
        count += 1;
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    let left = MEMORY.current_usage().saturating_sub(at_start);
    assert!(left <= LEFT_BYTES, "{left} bytes are left after all");
    assert!(count >= 100, "{count}");
}
