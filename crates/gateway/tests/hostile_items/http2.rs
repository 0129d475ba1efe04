//! HTTP/2 connections of strangers that do what the protocol allows too often, or what it does not allow.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A literal header without a place in the table.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "longer lengths take more than a byte");
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
    block
}

/// `GET /dbs` by the static table: `:method GET`, `:scheme http`, and two literals.
fn request() -> Vec<u8> {
    [vec![0x82, 0x86], header(":path", "/dbs"), header(":authority", "localhost")].concat()
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames.concat()].concat()
}

/// Streams of clients have odd numbers.
fn stream(nth: u32) -> u32 {
    2 * nth + 1
}

pub fn connections() -> Vec<Vec<u8>> {
    let opened = |nth| frame(HEADERS, END_HEADERS | END_STREAM, stream(nth), &request());
    let unended = |nth| frame(HEADERS, END_HEADERS, stream(nth), &request());
    let reset = |nth| frame(RESET, 0, stream(nth), &8_u32.to_be_bytes());
    let begun = frame(HEADERS, 0, 1, &request());
    let padded = header("x", &"a".repeat(120));
    vec![
        // Requests that are taken back as soon as they are made.
        connection(&(0..2_000).flat_map(|nth| [opened(nth), reset(nth)]).collect::<Vec<_>>()),
        connection(&(0..2_000).flat_map(|nth| [unended(nth), reset(nth)]).collect::<Vec<_>>()),
        // A head that never ends.
        connection(&[vec![begun.clone()], vec![frame(CONTINUATION, 0, 1, &padded); 20_000]].concat()),
        connection(&[vec![begun.clone()], vec![frame(CONTINUATION, 0, 1, &[]); 50_000]].concat()),
        // Many headers that take a byte each, in many requests; signed with a wrong key, so that the answers are late.
        connection(
            &(0..64).map(|nth| frame(HEADERS, END_HEADERS, stream(nth), &swarm())).collect::<Vec<_>>(),
        ),
        connection(
            &(0..64)
                .flat_map(|nth| [frame(HEADERS, END_HEADERS, stream(nth), &swarm()), body(nth)])
                .collect::<Vec<_>>(),
        ),
        // More streams than may be open, none of them ended.
        connection(&(0..5_000).map(unended).collect::<Vec<_>>()),
        connection(&(0..5_000).map(opened).collect::<Vec<_>>()),
        // Things that want an answer.
        connection(&vec![frame(PING, 0, 0, &[0; 8]); 20_000]),
        connection(&vec![frame(SETTINGS, 0, 0, &[]); 20_000]),
        connection(&vec![frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]); 20_000]),
        // Settings that nobody means well with.
        connection(&[frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])]),
        connection(&[frame(SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff]), opened(0)]),
        connection(&[frame(SETTINGS, 0, 0, &[0, 5, 0xff, 0xff, 0xff, 0xff])]),
        connection(&[frame(SETTINGS, 0, 0, &[1, 2, 3])]),
        // An answer that may not be sent.
        connection(&[frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), opened(0)]),
        // Windows beyond all bounds, and of nothing.
        connection(&vec![frame(WINDOW, 0, 0, &0x7fff_ffff_u32.to_be_bytes()); 3]),
        connection(&[frame(WINDOW, 0, 0, &[0; 4])]),
        connection(&vec![frame(WINDOW, 0, 99, &1_u32.to_be_bytes()); 1_000]),
        // Bodies: of no request, longer than the window, of empty pieces.
        connection(&[frame(DATA, 0, 1, b"x")]),
        connection(&[vec![unended(0)], vec![frame(DATA, 0, 1, &[0; 16_000]); 100]].concat()),
        connection(&[vec![unended(0)], vec![frame(DATA, 0, 1, &[]); 50_000]].concat()),
        // What only servers send, what nobody knows, what is out of order.
        connection(&[frame(PUSH, END_HEADERS, 1, &[0; 8])]),
        connection(&vec![frame(0xee, 0xff, 7, &[0; 100]); 2_000]),
        connection(&[frame(HEADERS, END_HEADERS, 2, &request())]),
        connection(&[frame(HEADERS, END_HEADERS, 0, &request())]),
        connection(&[frame(CONTINUATION, END_HEADERS, 1, &request())]),
        connection(&[opened(5), opened(3)]),
        connection(&[frame(GO_AWAY, 0, 0, &[0; 8]), opened(0)]),
        connection(&vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 255]); 20_000]),
        // Heads that cannot be unpacked: a place that is not in the table, a number without end, a string that is too long, a table that grows.
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0xff, 0xff, 0x7f])]),
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 1_000])]),
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0, 0x7f, 0xff, 0xff, 0xff, 0x7f])]),
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x3f, 0xff, 0xff, 0xff, 0x7f])]),
        connection(&bomb()),
        // Requests that are none.
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &header("X", "y"))]),
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &header(":nothing", "y"))]),
        connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &[request(), request()].concat())]),
        connection(&[frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &[request(), header("connection", "close")].concat(),
        )]),
        // Frames longer than may be, and cut short.
        [PREFACE, &[0xff, 0xff, 0xff, HEADERS, 4, 0, 0, 0, 1][..], &[0; 100_000]].concat(),
        [PREFACE, &frame(SETTINGS, 0, 0, &[])[..5]].concat(),
        PREFACE[..10].to_vec(),
        [PREFACE, b"GET / HTTP/1.1\r\n\r\n"].concat(),
    ]
}

/// A request with a signature of a wrong key, and as many short headers as fit.
fn swarm() -> Vec<u8> {
    let mut block = request();
    block.extend(header("x-ms-date", super::DATE));
    block.extend(header("authorization", "type%3Dmaster%26ver%3D1.0%26sig%3DAAAA"));
    // `accept-charset` without a value, of the static table.
    block.extend([0x80 | 15; 330]);
    block
}

fn body(nth: u32) -> Vec<u8> {
    frame(DATA, 0, stream(nth), &[0; 4_000])
}

/// A long header that is put into the table once and then named a thousand times in each request.
fn bomb() -> Vec<Vec<u8>> {
    let mut first = request();
    first.push(0x40);
    first.extend_from_slice(&[1, b'x', 0x7f, 0xa1, 0x1e]);
    first.extend_from_slice(&vec![b'a'; 127 + 0x21 + (0x1e << 7)]);
    first.truncate(16_000);
    let again = [request(), vec![0xbe; 10_000]].concat();
    let mut frames = vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, &first)];
    frames.extend((1..50).map(|nth| frame(HEADERS, END_HEADERS | END_STREAM, stream(nth), &again)));
    frames
}
