//! What SIGHUP changes while connections go on.

use crate::house::{Folder, Server, request, signed, tls};
use gateway::tls::Files;
use std::net::TcpStream;
use tokio_rustls::rustls::ALL_VERSIONS;

#[test]
fn a_new_certificate_is_shown_to_the_next_and_disturbs_nobody() {
    let (folder, other) = (Folder::new(), Folder::new());
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut before = tls(server.port(), &folder.ca(), ALL_VERSIONS).unwrap();
    assert_eq!(request(&mut before, "GET", "/health", "").0, 200);

    let fresh = Files::open_or_make(&other.0, &[]).unwrap();
    assert!(tls(server.port(), &fresh.ca, ALL_VERSIONS).is_err(), "nobody knows it yet");
    let folder_of_server = folder.0.join("otobus-data/tls");
    std::fs::copy(&fresh.certificate, folder_of_server.join("server.pem")).unwrap();
    std::fs::copy(&fresh.key, folder_of_server.join("server.key")).unwrap();
    assert!(server.reload().contains("was read again"));

    assert!(tls(server.port(), &fresh.ca, ALL_VERSIONS).is_ok());
    assert!(tls(server.port(), &folder.ca(), ALL_VERSIONS).is_err(), "the old one is shown no more");
    assert_eq!(request(&mut before, "GET", "/health", "").0, 200, "who was there stays");

    folder.write("otobus-data/tls/server.key", "no key");
    assert!(server.reload().contains("was not taken"));
    assert!(tls(server.port(), &fresh.ca, ALL_VERSIONS).is_ok(), "a broken one changes nothing");
}

const POLICY: &str =
    "[[policy]]\nname = \"RootManageSharedAccessKey\"\nrights = [\"Manage\", \"Send\", \"Listen\"]\n";

#[test]
fn a_changed_key_counts_from_the_reload_on_and_what_is_no_longer_named_stays() {
    let folder = Folder::new();
    folder.write("otobus.toml", &format!("{POLICY}key = \"first\"\n[[queue]]\nname = \"orders\"\n"));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut line = TcpStream::connect(server.port()).unwrap();
    assert_eq!(request(&mut line, "GET", "/orders", &signed("first")).0, 200);
    assert_eq!(request(&mut line, "GET", "/more", &signed("first")).0, 404);
    folder.write("otobus.toml", &format!("{POLICY}key = \"second\"\n[[queue]]\nname = \"more\"\n"));
    assert!(server.reload().contains("was read again"));
    assert_eq!(request(&mut line, "GET", "/orders", &signed("first")).0, 401);
    for queue in ["/orders", "/more"] {
        assert_eq!(request(&mut line, "GET", queue, &signed("second")).0, 200, "{queue}");
    }
    folder.write("otobus.toml", "[[queue]]\nname = \"\"\n");
    assert!(server.reload().contains("was not taken"));
    assert_eq!(request(&mut line, "GET", "/orders", &signed("second")).0, 200);
}
