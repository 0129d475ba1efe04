//! A server as a process, clients of the official SDK, and the test clock of the items' own port.

pub mod cut;

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The key that every client of the official emulator knows.
pub const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const START_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Otobus {
    child: Child,
    folder: PathBuf,
    /// Of the items.
    port: u16,
    pub bus_port: u16,
}

/// The policy and the key that the bus has for every client of the official emulator.
pub const POLICY: &str = "RootManageSharedAccessKey";
pub const BUS_KEY: &str = "SAS_KEY_VALUE";

impl Otobus {
    /// Starts a server with items and a clock that can be moved, on new data.
    pub fn start() -> Otobus {
        Otobus::start_with("")
    }

    /// The same, with entities that a configuration declares.
    pub fn start_with(configuration: &str) -> Otobus {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("otobus-sdk-rust-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("otobus.toml"), configuration).expect("a configuration");
        let (child, port, bus_port) = serve(&folder);
        Otobus { child, folder, port, bus_port }
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, then a new process on the same data.
    pub fn restart(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("a process");
        (self.child, self.port, self.bus_port) = serve(&self.folder);
    }

    /// A client as a user makes it. The SDK does not check the certificate of an emulator where it is told so by environment.
    pub async fn client(&self, scheme: &str, key: &str) -> azure_data_cosmos::Result<CosmosClient> {
        let endpoint: AccountEndpoint =
            format!("{scheme}://localhost:{}/", self.port).parse().expect("an address");
        let account = AccountReference::with_authentication_key(endpoint, Secret::from(key.to_owned()));
        CosmosClient::builder().build(account, RoutingStrategy::ProximityTo("Local".into())).await
    }

    /// Moves the items' time.
    pub fn advance(&self, by: &str) {
        let date = http_date();
        let text = format!("post\n$otobus\n$otobus/clock\n{}\n\n", date.to_lowercase());
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(KEY).expect("a key")).expect("a key");
        mac.update(text.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let body = format!("{{\"advance\":\"{by}\"}}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        write!(
            stream,
            "POST /$otobus/clock HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-ms-date: {date}\r\n\
             authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Otobus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A process that serves from the folder, and its ports of items and bus.
fn serve(folder: &Path) -> (Child, u16, u16) {
    let ready = folder.join("ready.json");
    let _ = std::fs::remove_file(&ready);
    let log = std::fs::File::create(folder.join("log")).expect("a log");
    let mut child = Command::new(std::env::var("OTOBUS_BIN").expect("OTOBUS_BIN names the server"))
        .arg("--config")
        .arg(folder.join("otobus.toml"))
        .arg("--data")
        .arg(folder.join("data"))
        .args([
            "--listen-bus",
            "127.0.0.1:0",
            "--listen-items",
            "127.0.0.1:0",
            "--test-clock",
            "--ready-file",
        ])
        .arg(&ready)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("a server");
    let began = Instant::now();
    loop {
        let told = std::fs::read(&ready).ok();
        let told: Option<serde_json::Value> = told.and_then(|text| serde_json::from_slice(&text).ok());
        let port_of = |door: &str| told.as_ref()?[door][0].as_str()?.rsplit(':').next()?.parse().ok();
        if let (Some(items), Some(bus)) = (port_of("items"), port_of("bus")) {
            return (child, items, bus);
        }
        assert!(child.try_wait().expect("a process").is_none(), "the server ended");
        assert!(began.elapsed() < START_DEADLINE, "the server is not ready");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `Thu, 01 Jan 1970 00:00:00 GMT`, as the system's `date` writes it.
fn http_date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let output = Command::new("date")
        .args(["-u", "-d", &format!("@{now}"), "+%a, %d %b %Y %H:%M:%S GMT"])
        .env("LC_ALL", "C")
        .output()
        .expect("date");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
