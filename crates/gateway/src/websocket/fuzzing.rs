//! The body of the fuzz target: frames and requests of any kind.

use super::{WebSocket, is_request, read_upgrade};
use crate::fuzzing::{Pieces, run};
use crate::limits::WEBSOCKET_FRAME_BYTES;
use crate::names::Names;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Pieces in which bytes arrive, over and over.
const CUTS: [&[usize]; 4] = [&[1], &[3, 7, 1], &[64], &[2, 100_000]];

/// The first byte chooses: a request for an upgrade, or how frames are cut.
///
/// Frames mean what a reader of whole frames finds in them, however they are cut; every ping is answered as long as
/// answers are taken, and what is written can be read. No request is accepted that lacks what RFC 6455 asks for.
pub fn websocket(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    if first & 0x80 != 0 {
        upgrade(rest);
        return;
    }
    let expected = read_whole(rest);
    let cut = CUTS[usize::from(first) % CUTS.len()];
    let mut socket = WebSocket::new(Pieces::new(rest, cut), BytesMut::new());
    let mut out = Vec::new();
    let ended = run(socket.read_to_end(&mut out));
    assert_eq!(out, expected.bytes, "cut, the frames hold something else");
    assert_eq!(ended.is_err(), expected.is_broken, "{ended:?}");
    if !expected.is_broken {
        run(socket.flush()).expect("the peer takes everything");
        assert_eq!(socket.stream.heard, expected.answers, "cut, the frames are answered otherwise");
    }
    written_is_read(rest);
}

/// What a whole run of frames says.
#[derive(Default)]
struct Expected {
    bytes: Vec<u8>,
    answers: Vec<u8>,
    is_broken: bool,
}

fn read_whole(mut input: &[u8]) -> Expected {
    let mut expected = Expected::default();
    while let [first, second, rest @ ..] = input {
        let mut rest = rest;
        let mut number = |bytes: usize| {
            let (length, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            Some(length.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
        };
        let (opcode, is_control) = (first & 15, first & 8 != 0);
        let length = match second & 127 {
            126 => number(2),
            127 => number(8),
            length => Some(length.into()),
        };
        expected.is_broken = first & 0x70 != 0 || second & 0x80 == 0;
        let Some(length) = length.filter(|_| !expected.is_broken) else { return expected };
        expected.is_broken =
            ![0, 2, 8, 9, 10].contains(&opcode) || is_control && (length > 125 || first & 0x80 == 0);
        let Some((mask, payload)) = rest.split_first_chunk::<4>().filter(|_| !expected.is_broken) else {
            return expected;
        };
        let is_whole = length <= payload.len() as u64;
        let (payload, behind) = if is_whole { payload.split_at(length as usize) } else { (payload, &[][..]) };
        let payload: Vec<u8> =
            payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        match opcode {
            0 | 2 => expected.bytes.extend(payload),
            _ if !is_whole => return expected,
            8 => {
                let code = &payload[..payload.len().min(2)];
                expected.answers.extend([0x88, code.len() as u8].iter().chain(code));
                return expected;
            }
            9 => expected.answers.extend([0x8a, payload.len() as u8].into_iter().chain(payload)),
            _ => {}
        }
        input = behind;
    }
    expected
}

/// A server does not mask what it says.
fn written_is_read(bytes: &[u8]) {
    let bytes = bytes.repeat(1 + bytes.first().map_or(0, |first| usize::from(*first)));
    let mut socket = WebSocket::new(Pieces::new(&[], &[1]), BytesMut::new());
    run(socket.write_all(&bytes)).expect("the peer takes everything");
    let (mut heard, mut read) = (&socket.stream.heard[..], Vec::new());
    while let [0x82, length, rest @ ..] = heard {
        let (length, rest) = match (length, rest) {
            (126, [high, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            (127, long) => {
                let (length, rest) = long.split_first_chunk::<8>().expect("a length");
                (u64::from_be_bytes(*length) as usize, rest)
            }
            (length, rest) => (usize::from(*length), rest),
        };
        assert!(length <= WEBSOCKET_FRAME_BYTES, "a frame of {length} bytes");
        let (payload, rest) = rest.split_at(length);
        read.extend_from_slice(payload);
        heard = rest;
    }
    assert!(heard.is_empty() && read == bytes, "what was written is something else");
}

fn upgrade(bytes: &[u8]) {
    let mut told = None;
    for end in 0..bytes.len().min(64) {
        let now = is_request(&bytes[..end]);
        assert!(told.is_none() || told == now, "with more bytes it is something else");
        told = now;
    }
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return };
    let Ok(upgrade) = read_upgrade(&bytes[..end + 4], &Names::default()) else { return };
    let head = std::str::from_utf8(&bytes[..end]).expect("it is text").to_ascii_lowercase();
    assert!(!head.replace("\r\n", "").contains(['\r', '\n']), "lines that somebody else sees otherwise");
    let mut lines = head.split("\r\n");
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    assert!(
        path.starts_with("/$servicebus/websocket") || path.starts_with("/%24servicebus/websocket"),
        "{path}"
    );
    let values = |name: &str| -> Vec<&str> {
        let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(known, _)| *known == name).map(|(_, value)| value.trim()).collect()
    };
    assert_eq!(values("host").len(), 1, "of two hosts one would be believed");
    for (name, wanted) in
        [("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-version", "13")]
    {
        assert!(values(name).iter().any(|value| value.contains(wanted)), "{name}");
    }
    for name in ["sec-websocket-key", "sec-websocket-version"] {
        assert_eq!(values(name).len(), 1, "of two one is answered: {name}");
    }
    assert_eq!(upgrade.accept.len(), 28, "a digest of 20 bytes");
    assert!(upgrade.protocol.is_some() || values("sec-websocket-protocol").is_empty());
}
