//! A peer that has proved nothing costs at most 128 KiB (P6), whatever it says and however it comes in.

use crate::server::*;
use crate::{KIBIBYTE, Measured};
use amqp::performative::{Flow, Open, Performative};
use message::Value;
use tokio::io::{AsyncRead, AsyncWrite};

const STRANGER_BYTES: usize = 128 * KIBIBYTE;

/// What all of them leave behind in tables that have grown.
const LEFT_BYTES: usize = 64 * KIBIBYTE;

const CONNECTIONS: usize = 24;

/// What the client's half of TLS has on its way, which is in this process too: the bytes that are being said, and their record.
const CLIENT_BYTES: usize = 8 * KIBIBYTE;

pub type Script = Vec<Vec<u8>>;

/// A sender and seven receivers on `$cbs`, none of which gives credit.
fn eight_links() -> Script {
    let mut all = vec![(0, open()), (0, begin()), (0, sender(0, "$cbs"))];
    all.extend((1..8).map(|handle| (0, receiver(handle, "$cbs"))));
    [vec![greeting("ANONYMOUS", None)], frames(&all)].concat()
}

/// Requests whose answers nobody takes: long ids, ids as long as they may be, unknown operations, wrong keys.
fn untaken_answers() -> Script {
    let text = |length| Value::String("m".repeat(length));
    let token = "SharedAccessSignature sr=sb%3a%2f%2fhost%2forders&sig=bm9uZQ%3d%3d&se=99999999999&skn=root";
    let put = [("operation", "put-token"), ("type", "sastoken"), ("name", "sb://host/orders")];
    let mut script = eight_links();
    for round in 0..200 {
        let (handle, id) = (1 + round % 7, if round % 3 == 0 { 18_000 } else { 500 });
        let request = match round {
            190.. => request(text(500), handle, &put, &token.into()),
            _ => request(text(id), handle, &[("operation", "x")], &Value::Null),
        };
        script.push(transfer(round, (0, 0), &request, false));
    }
    script
}

/// Ids, properties and bodies of thousands of nulls.
fn many_values() -> Script {
    let nulls = || Value::List(vec![Value::Null; 18_000]);
    let mut script = eight_links();
    for handle in 1..8 {
        let requests = [
            request(nulls(), handle, &[], &Value::Null),
            request("id".into(), handle, &[("operation", "put-token")], &nulls()),
        ];
        script.extend(requests.map(|request| transfer(handle, (0, 0), &request, false)));
    }
    script
}

/// As much of everything as a stranger may have: sessions, links with long names, unfinished requests on each, echoes unread,
/// and a frame that does not end. Or no unfinished requests, and a frame that is the longer.
fn everything(has_unfinished: bool) -> Script {
    let open = Open { container_id: "c".repeat(3_000), ..Open::default() };
    let mut script = vec![greeting("ANONYMOUS", None)];
    let mut all = vec![(0, Performative::Open(Box::new(open)))];
    all.extend((0..4).map(|channel| (channel, begin())));
    for handle in 0..8 {
        let Performative::Attach(mut attach) = sender(handle, "$cbs") else { unreachable!("an attach") };
        attach.name = format!("{handle}{}", "n".repeat(3_000));
        all.push((handle as u16 % 4, Performative::Attach(attach)));
    }
    script.extend(frames(&all));
    if has_unfinished {
        script.extend((0..8).map(|handle| transfer(handle, (handle as u16 % 4, handle), &[0; 2_700], true)));
    }
    let Performative::Flow(flow) = credit(0, 1) else { unreachable!("a flow") };
    let echo = (0, Performative::Flow(Flow { echo: true, handle: None, ..flow }));
    script.extend(vec![frames(&[echo]).concat(); 2_000]);
    // The largest that it may send: four KiB beside what is unfinished, or 22.
    let size: u32 = if has_unfinished { 0x1000 } else { 0x5800 };
    let mut frame = [&size.to_be_bytes()[..], &[2, 0, 0, 0]].concat();
    frame.resize(size as usize - 256, 0);
    script.push(frame);
    script
}

/// A head over HTTP that does not end.
fn head() -> Script {
    // In small writes, for what is being written is in this process too.
    let mut script = vec![b"GET /orders HTTP/1.1\r\nHost: h\r\nX: ".to_vec()];
    script.extend(vec![vec![b'x'; KIBIBYTE]; 31]);
    script
}

/// Requests over HTTP of which no answer is read, and a body that nobody asked for.
fn requests() -> Script {
    let request = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "q".repeat(250)).into_bytes();
    let send = b"POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    [vec![request; 500], vec![send, vec![0; 60_000]]].concat()
}

/// All that a stranger says.
pub fn scripts() -> Vec<Script> {
    vec![untaken_answers(), many_values(), everything(true), everything(false), head(), requests()]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Plain,
    WebSocket,
    Tls,
    WebSocketInTls,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Says all of it over a new connection.
async fn said(server: &TestServer, way: Way, script: &Script) -> Greedy<Box<dyn Stream>> {
    let stream: Box<dyn Stream> = match way {
        Way::Plain | Way::WebSocket => Box::new(server.pipe()),
        Way::Tls | Way::WebSocketInTls => Box::new(server.encrypted().await),
    };
    let mut greedy = Greedy::over(stream);
    if let Way::WebSocket | Way::WebSocketInTls = way {
        greedy.say(UPGRADE).await;
        greedy.is_websocket = true;
    }
    greedy.say_all(script).await;
    greedy
}

#[tokio::test]
async fn a_stranger_costs_128_kib_whatever_it_says_and_however_it_comes_in() {
    let mut measured = Measured::start().await;
    let server = TestServer::new(128 << 20).await;
    let amqp = [
        ("answers", untaken_answers()),
        ("values", many_values()),
        ("everything", everything(true)),
        ("a long frame", everything(false)),
    ];
    let http = [("head", head()), ("requests", requests())];
    let mut found = Vec::new();
    // The client's own half of TLS is in this process too: of a connection that says nothing it is as large as the server's.
    let mut idle = vec![server.encrypted().await];
    measured.start_again();
    for _ in 0..CONNECTIONS {
        idle.push(server.encrypted().await);
    }
    let client = measured.held() / CONNECTIONS / 2;
    drop(idle);
    for way in [Way::Plain, Way::WebSocket, Way::Tls, Way::WebSocketInTls] {
        let own = if matches!(way, Way::Plain | Way::WebSocket) { 0 } else { client };
        let http = if matches!(way, Way::Plain | Way::Tls) { &http[..] } else { &[] };
        for (what, script) in amqp.iter().chain(http) {
            drop(said(&server, way, script).await);
            server.settle().await;
            measured.start_again();
            let one = said(&server, way, script).await;
            server.settle().await;
            let peak = measured.peak().saturating_sub(own);
            let mut crowd = vec![one];
            for _ in 1..CONNECTIONS {
                crowd.push(said(&server, way, script).await);
            }
            server.settle().await;
            let each = (measured.held() / CONNECTIONS).saturating_sub(own);
            println!("{way:?} ({own}), {what}: {each} bytes each, {peak} for one at the worst moment");
            drop(crowd);
            server.settle().await;
            found.push((way, *what, each, peak, measured.held()));
        }
    }
    for (way, what, each, peak, left) in found {
        assert!(each <= STRANGER_BYTES, "{way:?}, {what}: {each} bytes each");
        let client = if matches!(way, Way::Plain | Way::WebSocket) { 0 } else { CLIENT_BYTES };
        assert!(peak <= STRANGER_BYTES + client, "{way:?}, {what}: {peak} bytes at the worst moment");
        assert!(left <= LEFT_BYTES, "{way:?}, {what}: {left} bytes are left");
    }
}
