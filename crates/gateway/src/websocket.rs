//! AMQP over WebSocket, for clients whose way out is HTTP alone: the upgrade, and a stream of bytes inside frames.
//!
//! Frames are opened and made as bytes pass through, so that a frame's length, which its sender chooses, costs nothing:
//! what is held is a header, one small control frame and one frame on its way out.

pub(crate) mod fuzzing;

use crate::limits::{FIRST_BYTES_TIMEOUT, HTTP_HEAD_BYTES, WEBSOCKET_FRAME_BYTES, WEBSOCKET_READ_BYTES};
use crate::names::Names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BytesMut};
use message::planted::is_planted;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// Where clients ask for it, in any case; the dollar sign may be escaped.
const PATHS: [&str; 2] = ["GET /$servicebus/websocket", "GET /%24servicebus/websocket"];

/// What they want to speak, in the order of our preference.
const PROTOCOLS: [&str; 2] = ["AMQPWSB10", "amqp"];

/// RFC 6455, 1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether the first bytes of a connection ask for a WebSocket. `None`: too few to tell.
pub fn is_request(first: &[u8]) -> Option<bool> {
    let matches = |path: &str| {
        let length = first.len().min(path.len());
        first[..length].eq_ignore_ascii_case(&path.as_bytes()[..length])
    };
    match PATHS.into_iter().find(|path| matches(path)) {
        None => Some(false),
        Some(path) if first.len() >= path.len() => Some(true),
        Some(_) => None,
    }
}

/// Reads until it is clear whether a WebSocket is asked for.
pub async fn is_asked_for<S: AsyncRead + Unpin>(stream: &mut S, first: &mut BytesMut) -> io::Result<bool> {
    let told = async {
        loop {
            if let Some(is_request) = is_request(first) {
                return Ok(is_request);
            }
            if stream.read_buf(first).await? == 0 {
                return Ok(false);
            }
        }
    };
    timeout(FIRST_BYTES_TIMEOUT, told).await.unwrap_or(Ok(false))
}

/// What the request for an upgrade says.
#[derive(Debug, PartialEq, Eq)]
struct Upgrade {
    accept: String,
    protocol: Option<&'static str>,
    is_from_page: bool,
}

/// Why there is no upgrade: the status and its reason.
type Refused = &'static str;

/// Answers the upgrade. `None` when it was refused; the peer has been told. Also says whether a web page has asked, which
/// its user may know nothing of.
pub async fn accept<S>(
    mut stream: S,
    mut first: BytesMut,
    names: &Names,
) -> io::Result<Option<(WebSocket<S>, bool)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let end = match timeout(FIRST_BYTES_TIMEOUT, end_of_head(&mut stream, &mut first)).await {
        Ok(end) => end?,
        Err(_) => return Ok(None),
    };
    let upgrade = match end {
        Some(end) => read_upgrade(&first.split_to(end), names),
        None => Err("431 Request Header Fields Too Large"),
    };
    match upgrade {
        Ok(upgrade) => {
            let protocol = upgrade
                .protocol
                .map_or(String::new(), |protocol| format!("Sec-WebSocket-Protocol: {protocol}\r\n"));
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n{protocol}\r\n",
                upgrade.accept
            );
            stream.write_all(answer.as_bytes()).await?;
            Ok(Some((WebSocket::new(stream, first), upgrade.is_from_page)))
        }
        Err(status) => {
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            Ok(None)
        }
    }
}

/// Reads to the end of the headers; `None` if that does not come soon enough.
async fn end_of_head<S: AsyncRead + Unpin>(stream: &mut S, head: &mut BytesMut) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        if head.len() >= HTTP_HEAD_BYTES {
            return Ok(None);
        }
        if stream.read_buf(head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn read_upgrade(head: &[u8], names: &Names) -> Result<Upgrade, Refused> {
    const BAD: Refused = "400 Bad Request";
    let head = std::str::from_utf8(head).map_err(|_| BAD)?;
    // RFC 9112, 2.2: somebody before us may see other lines.
    if head.split("\r\n").any(|line| line.contains(['\r', '\n'])) {
        return Err(BAD);
    }
    let mut lines = head.split("\r\n");
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    if !PATHS.iter().any(|known| known[4..].eq_ignore_ascii_case(path)) {
        return Err("404 Not Found");
    }
    let headers: Vec<(&str, &str)> = lines
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once(':').map(|(name, value)| (name, value.trim())).ok_or(BAD))
        .collect::<Result<_, _>>()?;
    // A header may stand several times; its values are one list.
    let values = |name: &'static str| {
        let named = headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.flat_map(|(_, value)| value.split(',')).map(str::trim)
    };
    let has = |name: &'static str, wanted: &str| values(name).any(|value| value.eq_ignore_ascii_case(wanted));
    // RFC 9112, 3.2
    if values("host").count() != 1 {
        return Err(BAD);
    }
    if !has("upgrade", "websocket") || !has("connection", "upgrade") {
        return Err("426 Upgrade Required");
    }
    if !has("sec-websocket-version", "13") {
        return Err("426 Upgrade Required\r\nSec-WebSocket-Version: 13");
    }
    // RFC 6455, 11.3.1 and 11.3.5: of two, one would be answered and the other perhaps meant.
    let only = |name: &'static str| match (values(name).next(), values(name).nth(1)) {
        (Some(value), None) => Ok(value),
        _ => Err(BAD),
    };
    only("sec-websocket-version")?;
    let key = only("sec-websocket-key")?;
    if STANDARD.decode(key).map_or(0, |key| key.len()) != 16 {
        return Err(BAD);
    }
    let protocol = PROTOCOLS.into_iter().find(|known| has("sec-websocket-protocol", known));
    if protocol.is_none() && values("sec-websocket-protocol").next().is_some() {
        return Err(BAD);
    }
    // As at the HTTP door: browsers say whose page it is, and a page has no name but its own.
    let host = values("host").next().unwrap_or_default();
    let foreign = values("origin").find(|origin| !is_own(origin, host));
    let is_from_page = foreign.is_some() || !names.include(host);
    if is_from_page {
        tracing::info!(
            host,
            origin = foreign,
            "a WebSocket may come from a web page: being on this machine counts for nothing, the well-known key neither"
        );
    }
    Ok(Upgrade { accept: accept_key(key), protocol, is_from_page })
}

/// Whether a page of this very server would have such an origin; some clients that are no pages write one (K-32).
fn is_own(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn accept_key(key: &str) -> String {
    let digest = ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{ACCEPT_SUFFIX}").as_bytes(),
    );
    STANDARD.encode(digest)
}

/// RFC 6455, 5.2.
mod opcode {
    pub(super) const CONTINUATION: u8 = 0;
    pub(super) const BINARY: u8 = 2;
    pub(super) const CLOSE: u8 = 8;
    pub(super) const PING: u8 = 9;
    pub(super) const PONG: u8 = 10;
}

/// The bytes inside the frames of a WebSocket.
#[derive(Debug)]
pub struct WebSocket<S> {
    stream: S,
    /// Read and not yet understood.
    input: BytesMut,
    frame: Option<Frame>,
    /// Frames on their way out.
    output: BytesMut,
    is_closed: bool,
}

/// The frame that is being read.
#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    left: u64,
    mask: [u8; 4],
    /// Where in the mask the next byte is.
    at: usize,
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<S> WebSocket<S> {
    fn new(stream: S, input: BytesMut) -> WebSocket<S> {
        WebSocket { stream, input, frame: None, output: BytesMut::new(), is_closed: false }
    }

    /// Reads a header from the input, if it is whole.
    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let [first, second, rest @ ..] = &self.input[..] else { return Ok(None) };
        let (is_last, opcode, is_masked) = (first & 0x80 != 0, first & 0x0f, second & 0x80 != 0);
        if first & 0x70 != 0 {
            return Err(broken("a WebSocket frame uses an extension that was not agreed on"));
        }
        // RFC 6455, 5.1: a client masks everything.
        if !is_masked {
            return Err(broken("a WebSocket frame is not masked"));
        }
        let is_control = opcode & 8 != 0;
        let (left, used) = match second & 0x7f {
            126 => match rest.first_chunk::<2>() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk::<8>() {
                Some(length) => (u64::from_be_bytes(*length), 8),
                None => return Ok(None),
            },
            length => (u64::from(length), 0),
        };
        if is_control && (left > 125 || !is_last) {
            return Err(broken("a WebSocket control frame is too long or in pieces"));
        }
        if !matches!(
            opcode,
            opcode::CONTINUATION | opcode::BINARY | opcode::CLOSE | opcode::PING | opcode::PONG
        ) {
            return Err(broken("a WebSocket frame is neither binary nor control"));
        }
        let Some(mask) = rest[used..].first_chunk::<4>() else { return Ok(None) };
        let frame = Frame { opcode, left, mask: *mask, at: 0 };
        self.input.advance(2 + used + 4);
        Ok(Some(frame))
    }

    /// Answers a control frame that is whole in the input.
    fn control(&mut self, mut frame: Frame) {
        let mut payload = self.input.split_to(frame.left as usize);
        frame.unmask(&mut payload);
        match frame.opcode {
            // Of many pings the answers to the first ones do: a peer that reads nothing makes us hold no more.
            opcode::PING if self.output.len() < WEBSOCKET_FRAME_BYTES => {
                self.put(opcode::PONG, &payload);
            }
            opcode::CLOSE => {
                self.is_closed = true;
                let code =
                    if is_planted("websocket") && !payload.is_empty() { 2 } else { payload.len().min(2) };
                self.put(opcode::CLOSE, &payload[..code]);
            }
            _ => {}
        }
    }

    fn put(&mut self, opcode: u8, payload: &[u8]) {
        self.output.extend_from_slice(&[0x80 | opcode]);
        match payload.len() {
            length @ 0..=125 => self.output.extend_from_slice(&[length as u8]),
            length @ 126..=0xffff => {
                self.output.extend_from_slice(&[126]);
                self.output.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                self.output.extend_from_slice(&[127]);
                self.output.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        self.output.extend_from_slice(payload);
    }
}

impl Frame {
    fn unmask(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut() {
            *byte ^= self.mask[self.at & 3];
            self.at += 1;
        }
        self.left -= bytes.len() as u64;
    }

    fn is_control(&self) -> bool {
        self.opcode & 8 != 0
    }
}

impl<S: AsyncWrite + Unpin> WebSocket<S> {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.output))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.output.advance(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.is_closed {
                let _ = this.drain(context)?;
                return Poll::Ready(Ok(()));
            }
            if this.frame.is_none() {
                this.frame = this.next_frame()?;
            }
            match &mut this.frame {
                Some(frame) if frame.is_control() => {
                    let frame = *frame;
                    if this.input.len() as u64 >= frame.left {
                        this.frame = None;
                        this.control(frame);
                        // The answer goes out with the next write at the latest.
                        let _ = this.drain(context)?;
                        continue;
                    }
                }
                Some(frame) if frame.left == 0 => {
                    this.frame = None;
                    continue;
                }
                Some(frame) if !this.input.is_empty() => {
                    let wanted = (this.input.len() as u64).min(frame.left) as usize;
                    let count = wanted.min(buffer.remaining());
                    let mut bytes = this.input.split_to(count);
                    frame.unmask(&mut bytes);
                    buffer.put_slice(&bytes);
                    return Poll::Ready(Ok(()));
                }
                _ => {}
            }
            let mut room = [0; WEBSOCKET_READ_BYTES];
            let mut room = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.input.extend_from_slice(room.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.drain(context))?;
        let count = bytes.len().min(WEBSOCKET_FRAME_BYTES);
        self.put(opcode::BINARY, &bytes[..count]);
        let _ = self.drain(context)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closed {
            self.is_closed = true;
            // 1000: the purpose is fulfilled.
            self.put(opcode::CLOSE, &1_000_u16.to_be_bytes());
        }
        ready!(self.drain(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "GET /$servicebus/websocket/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: WebSocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n";

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..=125 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Everything that comes out of a WebSocket that is fed `input` in pieces of `size`, and what it answers.
    async fn read(input: &[u8], size: usize) -> (io::Result<Vec<u8>>, Vec<u8>) {
        let (mut far, near) = tokio::io::duplex(size);
        let input = input.to_vec();
        let feed = tokio::spawn(async move {
            let _ = far.write_all(&input).await;
            let _ = far.shutdown().await;
            let mut answer = Vec::new();
            let _ = far.read_to_end(&mut answer).await;
            answer
        });
        let mut socket = WebSocket::new(near, BytesMut::new());
        let mut out = Vec::new();
        let ended = socket.read_to_end(&mut out).await.map(|_| out);
        let _ = socket.flush().await;
        drop(socket);
        (ended, feed.await.unwrap())
    }

    #[test]
    fn a_request_is_known_by_its_path() {
        assert_eq!(is_request(b"GET /$servicebus/websocket HTTP/1.1"), Some(true));
        assert_eq!(is_request(b"GET /%24ServiceBus/WebSocket/"), Some(true));
        assert_eq!(is_request(b"GET /$serv"), None);
        assert_eq!(is_request(b"GET /$Resources/queues"), Some(false));
        assert_eq!(is_request(b"PUT /q"), Some(false));
    }

    // The example of RFC 6455, 1.3.
    #[test]
    fn an_upgrade_is_answered_with_the_digest_of_its_key() {
        let read = |head: &str| read_upgrade(head.as_bytes(), &Names::default());
        let upgrade = read(HEAD).unwrap();
        assert_eq!(upgrade.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!((upgrade.protocol, upgrade.is_from_page), (Some("AMQPWSB10"), false));
        let amqp = HEAD.replace("AMQPWSB10", "mqtt, amqp").replace("Host: ", "Origin: http://x\r\nHost: ");
        let upgrade = read(&amqp).unwrap();
        assert_eq!((upgrade.protocol, upgrade.is_from_page), (Some("amqp"), true));
        let rebound = HEAD.replace("localhost", "evil.example");
        assert!(read(&rebound).unwrap().is_from_page, "a page may have its name lead here");
    }

    // K-32
    #[test]
    fn an_origin_that_is_the_servers_own_address_is_no_page() {
        let is_from_page = |host: &str, origin: &str| {
            let head = HEAD.replace("Host: localhost", &format!("Origin: {origin}\r\nHost: {host}"));
            read_upgrade(head.as_bytes(), &Names::default()).unwrap().is_from_page
        };
        assert!(!is_from_page("localhost:5671", "https://LocalHost:5671"));
        assert!(!is_from_page("127.0.0.1:5672", "http://127.0.0.1:5672"));
        assert!(is_from_page("localhost:5671", "https://localhost:3000"), "another server's page");
        assert!(is_from_page("localhost:5671", "https://localhost"));
        assert!(is_from_page("evil.example:5671", "https://evil.example:5671"));
        assert!(is_from_page("localhost:5671", "null"));
    }

    #[test]
    fn a_request_that_is_no_upgrade_is_refused_with_its_status() {
        for (wrong, right, status) in [
            ("Upgrade: WebSocket", "Upgrade: h2c", "426"),
            ("keep-alive, Upgrade", "close", "426"),
            ("Version: 13", "Version: 8", "426"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", "400"),
            ("Sec-WebSocket-Protocol", "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\nX", "400"),
            ("Sec-WebSocket-Protocol", "Sec-WebSocket-Version: 13\r\nX", "400"),
            ("AMQPWSB10", "mqtt", "400"),
            ("websocket/ ", "websockets ", "404"),
            ("Host: localhost", "Host", "400"),
            ("Host: localhost", "Hoster: localhost", "400"),
            ("Host: localhost", "Host: localhost\r\nHost: localhost", "400"),
        ] {
            let head = HEAD.replace(wrong, right);
            let refused = read_upgrade(head.as_bytes(), &Names::default()).unwrap_err();
            assert!(refused.starts_with(status), "{right}: {refused}");
        }
    }

    #[tokio::test]
    async fn bytes_pass_through_frames_of_any_cut() {
        let long = vec![7; 70_000];
        let mut input = masked(0x02, b"ab");
        input.extend(masked(0x80, b"cd"));
        input.extend(masked(0x89, b"ping"));
        input.extend(masked(0x82, b""));
        long.chunks(60_000).for_each(|chunk| input.extend(masked(0x82, chunk)));
        let expected = [&b"abcd"[..], &long].concat();
        for size in [1, 7, 100_000] {
            let (out, answer) = read(&input, size).await;
            assert_eq!(out.unwrap(), expected, "pieces of {size}");
            assert_eq!(answer, b"\x8a\x04ping");
        }
    }

    #[tokio::test]
    async fn a_close_is_answered_and_ends_the_stream() {
        let mut input = masked(0x88, &[0x03, 0xe8, b'x']);
        input.extend(masked(0x82, b"late"));
        let (out, answer) = read(&input, 1_000).await;
        assert_eq!((out.unwrap(), &*answer), (Vec::new(), &b"\x88\x02\x03\xe8"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_and_a_close_are_answered_though_nothing_else_is_written() {
        // RFC 6455, 5.5.1 and 5.5.2: as soon as is practical. Who only receives writes nothing for minutes.
        for (first, payload, expected) in
            [(0x89, &b"ping"[..], &b"\x8a\x04ping"[..]), (0x88, b"", b"\x88\x00")]
        {
            let (mut far, near) = tokio::io::duplex(1_000);
            let mut socket = WebSocket::new(near, BytesMut::new());
            far.write_all(&masked(first, payload)).await.unwrap();
            let mut answer = vec![0; expected.len()];
            let answered = async {
                tokio::join!(timeout(FIRST_BYTES_TIMEOUT, far.read_exact(&mut answer)), async {
                    let _ = timeout(FIRST_BYTES_TIMEOUT, socket.read_u8()).await;
                })
            };
            let (answered, ()) = answered.await;
            assert!(matches!(answered, Ok(Ok(_))), "{expected:?}");
            assert_eq!(answer, expected);
        }
    }

    #[tokio::test]
    async fn what_breaks_the_rules_ends_the_connection() {
        for bad in [
            b"\x82\x02ab".to_vec(),
            masked(0xc2, b"a"),
            masked(0x81, b"text"),
            masked(0x09, b"a"),
            masked(0x89, &[0; 126]),
            masked(0x83, b"a"),
        ] {
            assert!(read(&bad, 1_000).await.0.is_err(), "{bad:?}");
        }
        // A length of 2^63 is a claim and costs nothing.
        let huge = b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00hi";
        assert_eq!(read(huge, 1_000).await.0.unwrap(), b"hi");
    }

    #[tokio::test]
    async fn what_is_written_is_framed() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let mut socket = WebSocket::new(near, BytesMut::new());
        socket.write_all(b"abc").await.unwrap();
        socket.write_all(&[1; 300]).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut out = Vec::new();
        drop(socket);
        far.read_to_end(&mut out).await.unwrap();
        assert!(out.starts_with(b"\x82\x03abc\x82\x7e\x01\x2c\x01\x01"));
        assert!(out.ends_with(b"\x88\x02\x03\xe8"));
    }
}
