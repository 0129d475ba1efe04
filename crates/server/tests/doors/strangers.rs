//! Strangers, and those who come with the key that everybody knows.

use crate::server::{Folder, Server, WELL_KNOWN_KEY, request, request_at, signed};
use std::net::TcpStream;

// H-121
#[test]
fn the_well_known_key_opens_only_a_server_that_listens_on_loopback_alone() {
    for (listen, status) in [("127.0.0.1:0", 200), ("127.0.0.1:0,[::1]:0", 200), ("0.0.0.0:0", 401)] {
        let folder = Folder::new();
        folder.write("otobus.toml", "[tls]\nnames = [\"bus.example\"]\n[[queue]]\nname = \"orders\"\n");
        let server = Server::start(&folder, listen, None);
        let mut line = TcpStream::connect(server.port()).unwrap();
        assert_eq!(request(&mut line, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0, status, "{listen}");
        // A web page that has its name lead here is not from here.
        let page = format!("{}Origin: http://evil.example\r\n", signed(WELL_KNOWN_KEY));
        assert_eq!(request(&mut line, "GET", "/orders", &page).0, 401, "{listen}");
        // Nor is one whose browser does not say so: it has no name but its own.
        for (host, status) in [("evil.example", 401), ("bus.example", status), ("127.0.0.1", status)] {
            let asked = request_at(host, &mut line, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0;
            assert_eq!(asked, status, "{host} at {listen}");
        }
    }
}

/// Opens far more connections than the server may, and asks on one from before and one from after.
fn crowd(folder: &Folder, open_files: u32) -> Server {
    let mut server = Server::start(folder, "127.0.0.1:0", Some(open_files));
    let mut proved = TcpStream::connect(server.port()).unwrap();
    assert_eq!(request(&mut proved, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0, 200);
    let strangers: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(server.port()).unwrap()).collect();
    let mut honest = TcpStream::connect(server.port()).unwrap();
    assert_eq!(request(&mut honest, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0, 200);
    assert_eq!(request(&mut proved, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0, 200);
    drop(strangers);
    assert_eq!(request(&mut proved, "GET", "/health", "").0, 200);
    assert_eq!(server.status(), None, "it runs");
    server
}

#[test]
fn more_connections_than_places_lock_nobody_out() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"orders\"\n");
    crowd(&folder, 200);
}

#[cfg(target_os = "linux")]
#[test]
fn more_connections_than_files_neither_stop_the_server_nor_lock_others_out() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"orders\"\n");
    let files = Server::start(&folder, "127.0.0.1:0", None).files();
    // Six files for connections, where the server counts on half of all.
    let mut server = crowd(&folder, files + 6);
    assert!(server.logged("cannot accept connections").contains("level=warn"));
}
