//! What a person needs next, printed once: addresses, files, connection strings, and last the line `ready`.
//!
//! Each line is a word and a value, so that scripts can read it too. The key is shown on a terminal alone: what goes into
//! a file or a collector of logs stays there for longer than a key should.

use gateway::auth::{Policy, ROOT_POLICY, Secret};
use gateway::cosmos::WELL_KNOWN_KEY;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Announcement<'a> {
    pub bus: Vec<SocketAddr>,
    pub items: Vec<SocketAddr>,
    /// The primary key of the items.
    pub items_key: Option<&'a Secret>,
    pub items_keys: PathBuf,
    pub data: &'a Path,
    pub ca: &'a Path,
    pub keys: PathBuf,
    pub root: &'a Policy,
    /// Whether clients of the emulator are let in with the key they know.
    pub takes_well_known_key: bool,
    /// What this start has made because nobody had said what there shall be.
    pub made: Vec<Box<str>>,
}

impl Announcement<'_> {
    /// Prints to standard output. If it is closed, nobody wants to know.
    pub fn print(&self) {
        let mut out = io::stdout().lock();
        let text = self.text(out.is_terminal());
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn text(&self, shows_key: bool) -> String {
        let mut text = format!("otobus {}\n", env!("CARGO_PKG_VERSION"));
        for address in &self.bus {
            let _ = writeln!(text, "bus {address}");
        }
        for address in &self.items {
            let _ = writeln!(text, "items {address}");
        }
        let _ = writeln!(text, "data {}", self.data.display());
        let _ = writeln!(text, "ca {}", self.ca.display());
        if self.takes_well_known_key {
            let well_known = format!("SharedAccessKeyName={ROOT_POLICY};SharedAccessKey=SAS_KEY_VALUE");
            let endpoint = self.endpoint(5672);
            let _ =
                writeln!(text, "emulator Endpoint=sb://{endpoint};{well_known};UseDevelopmentEmulator=true;");
            let endpoint = self.administration_endpoint();
            let _ = writeln!(
                text,
                "administer Endpoint=sb://{endpoint};{well_known};UseDevelopmentEmulator=true;"
            );
        }
        if let Some(endpoint) = self.items_endpoint() {
            if self.takes_well_known_key {
                let _ =
                    writeln!(text, "items-emulator AccountEndpoint={endpoint};AccountKey={WELL_KNOWN_KEY};");
            }
            let hint = format!("<see {}>", self.items_keys.display());
            let key = self.items_key.filter(|_| shows_key).map_or(hint.as_str(), Secret::expose);
            let _ = writeln!(text, "items-connect AccountEndpoint={endpoint};AccountKey={key};");
        }
        let hint = format!("<see {}>", self.keys.display());
        let key = if shows_key { self.root.primary.expose() } else { &hint };
        let endpoint = self.endpoint(5671);
        let _ = writeln!(
            text,
            "connect Endpoint=sb://{endpoint}/;SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={key}"
        );
        if !self.bus.iter().any(|address| address.port() == 443) {
            text.push_str(
                "note clients that leave the port out of an address want 443: docs/guide/connecting.md\n",
            );
        }
        if !self.made.is_empty() {
            let _ = writeln!(text, "made {}", self.made.join(" "));
        }
        text.push_str("ready\n");
        text
    }

    /// The host and port for clients that administer. They take the port from the string, and TLS from nobody.
    fn administration_endpoint(&self) -> String {
        let usual = self.bus.iter().find(|address| address.port() == 5300).or(self.bus.first());
        usual
            .map_or_else(|| "localhost".to_owned(), |address| format!("{}:{}", host(address), address.port()))
    }

    /// The host to put into a connection string, with a port unless clients find it by themselves.
    fn endpoint(&self, usual_port: u16) -> String {
        let usual = self.bus.iter().find(|address| address.port() == usual_port);
        let Some(address) = usual.or(self.bus.first()) else { return "localhost".to_owned() };
        let host = host(address);
        if usual.is_some() { host } else { format!("{host}:{}", address.port()) }
    }

    /// Where clients find the items.
    fn items_endpoint(&self) -> Option<String> {
        let address = self.items.first()?;
        Some(format!("https://{}:{}/", host(address), address.port()))
    }

    /// Writes the same, without keys, as JSON. The file appears whole.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let ready = serde_json::json!({
            "bus": self.bus,
            "items": self.items,
            "data": self.data,
            "ca": self.ca,
            "process": std::process::id(),
        });
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, format!("{ready}\n"))?;
        std::fs::rename(&unfinished, path)
    }
}

/// How a client on this machine or another calls an address.
fn host(address: &SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    match ip {
        _ if ip.is_loopback() || ip.is_unspecified() => "localhost".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::auth::{Rights, Secret};

    fn text(bus: &[&str], takes_well_known_key: bool, shows_key: bool) -> String {
        let root = Policy {
            name: ROOT_POLICY.into(),
            primary: Secret::new("hush"),
            secondary: None,
            rights: Rights::ALL,
        };
        Announcement {
            bus: bus.iter().map(|address| address.parse().unwrap()).collect(),
            items: vec!["127.0.0.1:8081".parse().unwrap()],
            items_key: Some(&root.primary),
            items_keys: "/d/items-keys.toml".into(),
            data: Path::new("/d"),
            ca: Path::new("/d/tls/ca.pem"),
            keys: "/d/keys.toml".into(),
            root: &root,
            takes_well_known_key,
            made: vec!["queue.1".into(), "topic.1".into()],
        }
        .text(shows_key)
    }

    #[test]
    fn the_usual_ports_need_not_be_named() {
        let text = text(&["127.0.0.1:5672", "127.0.0.1:5671"], true, true);
        let expected = concat!(
            "otobus ",
            env!("CARGO_PKG_VERSION"),
            "\nbus 127.0.0.1:5672\nbus 127.0.0.1:5671\nitems 127.0.0.1:8081\ndata /d\nca /d/tls/ca.pem\n\
             emulator Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;\n\
             administer Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;\n\
             items-emulator AccountEndpoint=https://localhost:8081/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;\n\
             items-connect AccountEndpoint=https://localhost:8081/;AccountKey=hush;\n\
             connect Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=hush\n\
             note clients that leave the port out of an address want 443: docs/guide/connecting.md\nmade queue.1 topic.1\nready\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn other_ports_and_hosts_are_named() {
        assert!(text(&["127.0.0.1:40123"], true, true).contains("\nemulator Endpoint=sb://localhost:40123;"));
        let public = text(&["10.1.2.3:5671"], false, true);
        assert!(public.contains("\nconnect Endpoint=sb://10.1.2.3/;") && !public.contains("emulator"));
        assert!(text(&["[2001:db8::1]:443"], false, true).contains("sb://[2001:db8::1]:443/"));
    }

    #[test]
    fn the_key_goes_to_a_terminal_alone() {
        let text = text(&["127.0.0.1:5671"], false, false);
        assert!(!text.contains("hush") && text.contains("<see /d/keys.toml>"), "{text}");
    }
}
