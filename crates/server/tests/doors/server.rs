//! A server of its own for each test, and clients that say what they are told to say.

use gateway::auth::{ROOT_POLICY, UnixSeconds, sas};
use gateway::cosmos;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

/// The emulator's own, which everybody knows (H-121).
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// A folder of its own for each test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("otobus-doors-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    pub fn ca(&self) -> PathBuf {
        self.0.join("otobus-data/tls/ca.pem")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that runs. Dropping it kills it.
pub struct Server {
    child: Child,
    pub ports: Vec<SocketAddr>,
    pub items: Vec<SocketAddr>,
    log: BufReader<ChildStderr>,
}

impl Server {
    /// Starts on these addresses and waits for `ready`. With `open_files`, the process may have no more files open.
    pub fn start(folder: &Folder, listen: &str, open_files: Option<u32>) -> Server {
        // A port of their own is what the tests of the items ask for.
        Server::start_at(folder, [listen, "none"], open_files)
    }

    /// Starts with a port for the bus and one for the items.
    pub fn start_with_items(folder: &Folder) -> Server {
        Server::start_at(folder, ["127.0.0.1:0"; 2], None)
    }

    fn start_at(folder: &Folder, [bus, items]: [&str; 2], open_files: Option<u32>) -> Server {
        let binary = Path::new(env!("CARGO_BIN_EXE_otobus"));
        let mut command = match open_files {
            None => Command::new(binary),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("ulimit -n {files} && exec \"$0\" \"$@\"")).arg(binary);
                shell
            }
        };
        for variable in ["CONFIG", "DATA", "LISTEN_BUS", "LOG", "READY_FILE"] {
            command.env_remove(format!("OTOBUS_{variable}"));
        }
        command.args(["--listen-bus", bus, "--listen-items", items, "--log", "info"]).current_dir(&folder.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Server { child, ports: Vec::new(), items: Vec::new(), log };
        for line in BufReader::new(server.child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if line == "ready" {
                return server;
            }
            let port = |word: &str| line.strip_prefix(word).map(|port| port.parse::<SocketAddr>().unwrap());
            server.ports.extend(port("bus "));
            server.items.extend(port("items "));
        }
        panic!("it ended before it was ready");
    }

    /// Where a client on this machine finds the first port.
    pub fn port(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[0].port()).into()
    }

    /// How it ended, if it did.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// How many files it has open.
    #[cfg(target_os = "linux")]
    pub fn files(&self) -> u32 {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        u32::try_from(files.count()).unwrap()
    }

    /// Has the configuration read again and waits until it was. Gives what was logged meanwhile.
    pub fn reload(&mut self) -> String {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut log = String::new();
        while !log.contains("the configuration was read again") {
            assert!(self.log.read_line(&mut log).unwrap() > 0, "it ended");
        }
        log
    }

    /// The next line of the log that has this in it.
    pub fn logged(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(what) {
                return line;
            }
            line.clear();
        }
        panic!("it ended without a word of {what}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Something to write to and to read from.
pub trait Line: Read + Write {}

impl<T: Read + Write> Line for T {}

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands with a server that shows a certificate of this CA.
pub fn tls(
    port: SocketAddr,
    ca: &Path,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Tls, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap())?;
    let mut tcp = TcpStream::connect(port).unwrap();
    while client.is_handshaking() {
        if let Err(error) = client.complete_io(&mut tcp) {
            return Err(error.downcast::<rustls::Error>().unwrap());
        }
    }
    Ok(StreamOwned::new(client, tcp))
}

/// The status of a request, and its body. The connection may be used again.
pub fn request(line: &mut dyn Line, method: &str, path: &str, headers: &str) -> (u16, String) {
    request_at("localhost", line, method, path, headers)
}

/// The same, of the namespace that this host leads to.
pub fn request_at(host: &str, line: &mut dyn Line, method: &str, path: &str, headers: &str) -> (u16, String) {
    write!(line, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n").unwrap();
    answer(line)
}

/// The same, of a request that puts a body there.
pub fn put(line: &mut dyn Line, path: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    write!(line, "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
        .unwrap();
    answer(line)
}

fn answer(line: &mut dyn Line) -> (u16, String) {
    line.flush().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        line.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    line.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

/// A header that signs for the whole namespace.
pub fn signed(key: &str) -> String {
    signed_for("localhost", key)
}

/// The same, for the namespace that this host leads to.
pub fn signed_for(host: &str, key: &str) -> String {
    let token = sas::sign(&format!("https%3a%2f%2f{host}"), ROOT_POLICY, key, UnixSeconds::NEVER);
    format!("Authorization: {token}\r\n")
}

/// Headers that sign for a look at the account of the items. Their date is long past.
pub fn signed_for_items(key: &str) -> String {
    let date = "Thu, 01 Jan 1970 00:00:00 GMT";
    let signature = cosmos::sign(key, &format!("get\n\n\n{}\n\n", date.to_lowercase())).unwrap();
    let signature = signature.replace('+', "%2b");
    format!("x-ms-date: {date}\r\nAuthorization: type=master&ver=1.0&sig={signature}\r\n")
}
