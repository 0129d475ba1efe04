//! The server's side of a test: an engine with a queue or two, and a door for every client that comes.

use crate::client::Client;
use broker::{Command, NamespaceId, QueueSettings, RequestId};
use bytes::BytesMut;
use engine::Engine;
use otobus_gateway::State;
use otobus_gateway::auth::{Guard, Policy, Right, Rights, Secret, UnixSeconds};
use otobus_gateway::listen::{Doors, Peer};
use otobus_gateway::namespaces::{Namespace, Namespaces};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// May do everything.
pub const ROOT: &str = "root";
/// May only receive.
pub const READER: &str = "reader";
/// May only send.
pub const SENDER: &str = "sender";
/// Of every policy here.
pub const KEY: &str = "a key, of which nothing is decoded";
/// The queue that every server has.
pub const QUEUE: &str = "orders";

/// More than any test writes before the door reads.
const INPUT_BYTES: usize = 16 * 1024 * 1024;

pub struct TestServer {
    pub state: Arc<State>,
    pub disk: Arc<journal::disk::Memory>,
    engine: Option<Engine>,
}

impl TestServer {
    pub async fn new() -> TestServer {
        TestServer::at(UnixSeconds::now).await
    }

    /// A server whose claims run out by this clock.
    pub async fn at(wall: fn() -> UnixSeconds) -> TestServer {
        let disk = Arc::new(journal::disk::Memory::new());
        // Small segments, because every test fills some.
        let options = journal::Options {
            segment_bytes: 4 << 20,
            first_segment_bytes: 1 << 20,
            ..journal::Options::new(7)
        };
        let journal = journal::Local::open(Arc::<journal::disk::Memory>::clone(&disk), options).unwrap();
        let options = engine::Options { tail_cache_bytes: 1 << 20, ..engine::Options::new(2) };
        let engine = Engine::open(Box::new(journal), options, |why| panic!("{why}")).unwrap();
        let namespaces = Namespaces::single(Guard::new(policies(), false));
        let state = Arc::new(State::new(engine.handle().clone(), namespaces).with_wall(wall));
        let server = TestServer { state, disk, engine: Some(engine) };
        server.queue(QUEUE, QueueSettings::default()).await;
        server
    }

    /// Puts other policies in the place of those that the server has.
    pub fn set_policies(&self, policies: Vec<Policy>) {
        self.set_guard(Guard::new(policies, false));
    }

    pub fn set_guard(&self, guard: Guard) {
        let default = self.state.namespaces.of_host("", None);
        let (id, name, created, tier) = (default.id, default.name.clone(), default.created, default.tier);
        // Another namespace, whose policies have the same keys.
        let guard_of_shop = Guard::new(policies(), false);
        let shop = Namespace { id: NamespaceId(1), name: "shop".into(), guard: guard_of_shop, created, tier };
        self.state.namespaces.replace(Namespace { id, name, guard, created, tier }, vec![shop]);
    }

    pub async fn queue(&self, path: &str, settings: QueueSettings) {
        let (path, settings, namespace) = (path.into(), Box::new(settings), NamespaceId(0));
        self.ask(|request| Command::CreateQueue { request, namespace, path, settings }).await;
    }

    pub async fn ask(&self, question: impl FnOnce(RequestId) -> Command) {
        self.state.engine.ask(question).await.unwrap().unwrap();
    }

    /// A client that has said nothing yet.
    pub fn silent(&self) -> Client {
        self.silent_from("192.0.2.1")
    }

    /// The same, from an address of its own.
    pub fn silent_from(&self, address: &str) -> Client {
        let (to_server, input) = tokio::io::duplex(INPUT_BYTES);
        let (output, from_server) = unbounded_channel();
        let peer = Peer::new((address.parse::<std::net::IpAddr>().unwrap(), 4_000).into());
        let state = Arc::clone(&self.state);
        tokio::spawn(state.amqp(Wire { input, output }, BytesMut::new(), peer));
        Client::new(to_server, from_server)
    }

    /// A client that proved by its login that it may do everything, with a session on channel 0.
    pub async fn admitted(&self) -> Client {
        let mut client = self.silent();
        client.log_in("PLAIN", Some(format!("\0{ROOT}\0{KEY}").as_bytes())).await;
        client.open_with_defaults().await;
        client.begin(0, 5_000).await;
        client
    }

    /// A client that has proved nothing, with a session on channel 0.
    pub async fn stranger(&self) -> Client {
        let mut client = self.silent();
        client.log_in("ANONYMOUS", None).await;
        client.open_with_defaults().await;
        client.begin(0, 5_000).await;
        client
    }
}

pub fn policy(name: &str, key: &str, rights: Rights) -> Policy {
    Policy { name: name.into(), primary: Secret::new(key), secondary: None, rights }
}

/// The policies that every server starts with.
pub fn policies() -> Vec<Policy> {
    let only = |right| [right].into_iter().collect();
    vec![
        policy(ROOT, KEY, Rights::ALL),
        policy(READER, KEY, only(Right::Listen)),
        policy(SENDER, KEY, only(Right::Send)),
    ]
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let stopped = engine.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
    }
}

/// The server's end of a connection. What it writes arrives write by write, so that a test can tell one from two.
struct Wire {
    input: DuplexStream,
    output: UnboundedSender<Vec<u8>>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.output.send(bytes.to_vec());
        Poll::Ready(sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
