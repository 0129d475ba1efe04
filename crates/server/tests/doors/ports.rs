//! What every port takes.

use crate::server::{Folder, Line, Server, request, tls};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tokio_rustls::rustls::{ALL_VERSIONS, ProtocolVersion, version};

const SASL_HEADER: &[u8; 8] = b"AMQP\x03\x01\x00\x00";

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n";

fn speaks_amqp(line: &mut dyn Line) {
    line.write_all(SASL_HEADER).unwrap();
    line.flush().unwrap();
    let mut answer = [0; 8];
    line.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, SASL_HEADER);
}

fn speaks_http(line: &mut dyn Line) {
    assert_eq!(request(line, "GET", "/health", "").0, 200);
}

fn speaks_websocket(line: &mut dyn Line) {
    assert_eq!(request(line, "GET", "/$servicebus/websocket", UPGRADE).0, 101);
    // A whole binary frame whose mask changes nothing.
    let frame = [&[0x82, 0x80 | 8, 0, 0, 0, 0][..], SASL_HEADER].concat();
    line.write_all(&frame).unwrap();
    line.flush().unwrap();
    let mut answer = [0; 10];
    line.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], &answer[2..]), (0x82, &SASL_HEADER[..]));
}

//
#[test]
fn every_port_takes_amqp_http_and_websocket_plain_and_in_tls() {
    let folder = Folder::new();
    let server = Server::start(&folder, "127.0.0.1:0,127.0.0.1:0,[::1]:0", None);
    assert_eq!(server.ports.len(), 3);
    for port in &server.ports {
        for speak in [speaks_amqp, speaks_http, speaks_websocket] {
            speak(&mut TcpStream::connect(port).unwrap());
            speak(&mut tls(*port, &folder.ca(), ALL_VERSIONS).unwrap());
        }
    }
}

/// The answer to a greeting of TLS 1.`minor` that knows all that TLS 1.2 needs, up to its first record's content.
fn greeted_with_tls_1(minor: u8, port: SocketAddr) -> Vec<u8> {
    let mut hello = vec![3, minor + 1];
    hello.extend([7; 32]);
    // No session; ECDHE with ECDSA and AES-128, old and new; no compression.
    hello.extend([0, 0, 4, 0xc0, 0x09, 0xc0, 0x2b, 1, 0]);
    // The curve P-256, points as they are, ECDSA with SHA-256.
    let groups = [0, 10, 0, 4, 0, 2, 0, 0x17];
    let points = [0, 11, 0, 2, 1, 0];
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&groups[..], &points, &signatures].concat();
    hello.extend([0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut message = vec![1, 0, 0, hello.len() as u8];
    message.extend(&hello);
    let mut record = vec![0x16, 3, 1, 0, message.len() as u8];
    record.extend(&message);
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(&record).unwrap();
    let mut answer = vec![0; 7];
    stream.read_exact(&mut answer).unwrap();
    answer
}

#[test]
fn tls_1_2_and_1_3_are_spoken_and_1_1_is_refused() {
    let folder = Folder::new();
    let server = Server::start(&folder, "127.0.0.1:0", None);
    for (version, spoken) in
        [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let mut line = tls(server.port(), &folder.ca(), &[version]).unwrap();
        assert_eq!(line.conn.protocol_version(), Some(spoken));
        speaks_http(&mut line);
    }
    assert_eq!(greeted_with_tls_1(2, server.port())[0], 0x16, "a handshake begins");
    for minor in [0, 1] {
        let answer = greeted_with_tls_1(minor, server.port());
        // An alert: fatal, protocol version.
        assert_eq!((answer[0], &answer[5..]), (0x15, &[2, 70][..]), "TLS 1.{minor}");
    }
}

/// How many connections the metrics say that there are, of AMQP, of HTTP and to the items.
fn connections(line: &mut dyn Line) -> [u64; 3] {
    let (status, page) = request(line, "GET", "/metrics", "");
    assert_eq!(status, 200);
    ["amqp", "http", "items"].map(|protocol| {
        let name = format!("otobus_connections{{protocol=\"{protocol}\"}} ");
        let number = page.lines().find_map(|line| line.strip_prefix(&name));
        number.unwrap().parse().unwrap()
    })
}

#[test]
fn a_connection_is_counted_for_as_long_as_it_is_served() {
    let folder = Folder::new();
    let server = Server::start_with_items(&folder);
    let connect = || TcpStream::connect(server.port()).unwrap();
    let mut line = connect();
    assert_eq!(connections(&mut line), [0, 1, 0], "who asks");
    let (mut amqp, mut http, mut websocket) = (connect(), connect(), connect());
    speaks_amqp(&mut amqp);
    speaks_http(&mut http);
    speaks_websocket(&mut websocket);
    let mut items = TcpStream::connect(server.items[0]).unwrap();
    speaks_http(&mut items);
    assert_eq!(connections(&mut line), [2, 2, 1], "a WebSocket carries AMQP");
    drop((amqp, http, websocket, items));
    assert!((0..10_000).any(|_| connections(&mut line) == [0, 1, 0]), "and no longer");
}
