//! A server in this process, and peers that take what they can get: they write what a test says, and read nothing unless told to.

use amqp::frame::{AMQP_HEADER, SASL_HEADER};
use amqp::performative::{Begin, Flow, Open, Performative, Transfer};
use amqp::sasl::Sasl;
use amqp::{AnyTarget, Attach, Role, Source, Target};
use broker::{Command, NamespaceId, QueueSettings};
use engine::Engine;
use message::Value;
use message::codec::write_descriptor;
use message::sections::section;
use otobus_gateway::State;
use otobus_gateway::account::Accounts;
use otobus_gateway::auth::{Guard, Policy, Right, Rights, Secret, UnixSeconds, sas};
use otobus_gateway::listen::{Peer, serve};
use otobus_gateway::namespaces::Namespaces;
use otobus_gateway::tls;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_rustls::TlsAcceptor;

pub const KEY: &str = "a key, of which nothing is decoded";
pub const QUEUE: &str = "orders";
pub const SESSION_QUEUE: &str = "sessions";

/// A socket's buffer, small, so that what a peer has written is not in the server's memory.
const PIPE_BYTES: usize = 4 * 1_024;

/// A server that takes nothing for so long has stopped reading.
const PATIENCE: Duration = Duration::from_millis(300);

pub struct TestServer {
    pub state: Arc<State>,
    pub acceptor: TlsAcceptor,
    pub files: tls::Files,
    engine: Option<Engine>,
}

impl TestServer {
    /// With so many bytes for all connections.
    pub async fn new(connections_bytes: usize) -> TestServer {
        TestServer::on(Arc::new(journal::disk::Memory::new()), 1 << 20, connections_bytes).await
    }

    /// The same on a disk, with so many bytes for what was stored last.
    pub async fn on(
        disk: Arc<dyn journal::disk::Disk>,
        tail_cache_bytes: usize,
        connections_bytes: usize,
    ) -> TestServer {
        let options = journal::Options {
            segment_bytes: 4 << 20,
            first_segment_bytes: 4 << 20,
            ..journal::Options::new(7)
        };
        let journal = journal::Local::open(disk, options).unwrap();
        let options = engine::Options { tail_cache_bytes, ..engine::Options::new(2) };
        let engine = Engine::open(Box::new(journal), options, |why| panic!("{why}")).unwrap();
        let policy = |name: &str, rights| Policy {
            name: name.into(),
            primary: Secret::new(KEY),
            secondary: None,
            rights,
        };
        let only = |right| [right].into_iter().collect();
        let policies = vec![
            policy("root", Rights::ALL),
            policy("reader", only(Right::Listen)),
            policy("sender", only(Right::Send)),
        ];
        let namespaces = Namespaces::single(Guard::new(policies, false));
        let mut state = State::new(engine.handle().clone(), namespaces);
        state.accounts = Arc::new(Accounts::new(connections_bytes));
        let folder = std::env::temp_dir().join(format!("otobus-greedy-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = tls::Files::open_or_make(&folder, &[]).unwrap();
        let certificate = tls::Certificate::load(&files).unwrap();
        let acceptor = TlsAcceptor::from(tls::server_config(&certificate).unwrap());
        let server = TestServer { state: Arc::new(state), acceptor, files, engine: Some(engine) };
        for (path, requires_session) in [(QUEUE, false), (SESSION_QUEUE, true)] {
            let (namespace, path) = (NamespaceId(0), path.into());
            let settings = Box::new(QueueSettings { requires_session, ..QueueSettings::default() });
            let create = |request| Command::CreateQueue { request, namespace, path, settings };
            server.state.engine.ask(create).await.unwrap().unwrap();
        }
        // The journal lays its next segment ready beside all this.
        let mut held = 0;
        while held != crate::MEMORY.current_usage() {
            held = crate::MEMORY.current_usage();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        server
    }

    /// The client's end of a connection to the port.
    pub fn pipe(&self) -> tokio::io::DuplexStream {
        let (far, near) = tokio::io::duplex(PIPE_BYTES);
        let peer = Peer::new("192.0.2.1:4000".parse().unwrap());
        tokio::spawn(serve(near, peer, self.acceptor.clone(), Arc::clone(&self.state)));
        far
    }

    /// The same in TLS.
    pub async fn encrypted(&self) -> tokio_rustls::client::TlsStream<tokio::io::DuplexStream> {
        use tokio_rustls::rustls::pki_types::CertificateDer;
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::{ClientConfig, RootCertStore};
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.files.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = "localhost".try_into().unwrap();
        let quietly = |session: &mut rustls::ClientConnection| session.set_buffer_limit(Some(4_096));
        connector.connect_with(name, self.pipe(), quietly).await.unwrap()
    }

    /// A connection that may do what this policy may, with a session on channel 0.
    pub async fn admitted(&self, policy: &str) -> Greedy<tokio::io::DuplexStream> {
        self.admitted_over(policy, false).await
    }

    /// The same, perhaps in a WebSocket.
    pub async fn admitted_over(&self, policy: &str, is_websocket: bool) -> Greedy<tokio::io::DuplexStream> {
        let mut greedy = Greedy::over(self.pipe()).reading();
        if is_websocket {
            greedy.say(UPGRADE).await;
            greedy.is_websocket = true;
        }
        greedy.say(&greeting("PLAIN", Some(format!("\0{policy}\0{KEY}").as_bytes()))).await;
        greedy.say_frames(&[(0, open()), (0, begin())]).await;
        greedy
    }

    /// Waits until the broker has answered everything that was asked before.
    pub async fn settle(&self) {
        for _ in 0..3 {
            let (namespace, path) = (NamespaceId(0), "nothing".into());
            let last = |request| Command::DescribeEntity { request, namespace, path };
            assert!(self.state.engine.ask(last).await.unwrap().is_err());
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let stopped = engine.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
    }
}

pub struct Greedy<S> {
    input: WriteHalf<S>,
    output: Option<ReadHalf<S>>,
    reading: Option<tokio::task::JoinHandle<()>>,
    /// Bytes that were read and forgotten.
    pub read_bytes: Arc<AtomicUsize>,
    next_delivery: u32,
    /// What is said goes into frames of a WebSocket.
    pub is_websocket: bool,
    /// The server hung up, or does not read any more.
    pub is_refused: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Greedy<S> {
    pub fn over(stream: S) -> Greedy<S> {
        let (output, input) = tokio::io::split(stream);
        Greedy {
            input,
            output: Some(output),
            reading: None,
            read_bytes: Arc::default(),
            next_delivery: 0,
            is_websocket: false,
            is_refused: false,
        }
    }

    /// From now on all output is read and forgotten.
    pub fn reading(mut self) -> Greedy<S>
    where
        S: Send + 'static,
    {
        let (mut output, count) = (self.output.take().unwrap(), Arc::clone(&self.read_bytes));
        self.reading = Some(tokio::spawn(async move {
            let mut room = [0; 4_096];
            while let Ok(read @ 1..) = output.read(&mut room).await {
                count.fetch_add(read, Ordering::Relaxed);
            }
        }));
        self
    }

    /// From now on the server's words are left where they are.
    pub fn read_no_more(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.abort();
        }
    }

    /// Writes as much as the server takes.
    pub async fn say(&mut self, bytes: &[u8]) {
        if self.is_refused {
            return;
        }
        let mut frame = Vec::new();
        if self.is_websocket {
            // A mask of nothing, RFC 6455, 5.2.
            frame.extend_from_slice(&[0x82, 0xfe]);
            frame.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            frame.extend_from_slice(&[0; 4]);
        }
        frame.extend_from_slice(bytes);
        let written = tokio::time::timeout(PATIENCE, self.input.write_all(&frame)).await;
        let flushed = tokio::time::timeout(PATIENCE, self.input.flush()).await;
        self.is_refused = !matches!((written, flushed), (Ok(Ok(())), Ok(Ok(()))));
    }

    pub async fn say_all(&mut self, script: &[Vec<u8>]) {
        for bytes in script {
            self.say(bytes).await;
        }
    }

    pub async fn say_frames(&mut self, performatives: &[(u16, Performative<'_>)]) {
        self.say_all(&frames(performatives)).await;
    }

    /// Waits until nothing more is read.
    pub async fn answered(&self) {
        let mut before = usize::MAX;
        while before != self.read_bytes.load(Ordering::Relaxed) {
            before = self.read_bytes.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// One frame of a delivery; the next one on this handle if `more` was said.
    pub async fn transfer(&mut self, channel: u16, handle: u32, payload: &[u8], more: bool) {
        let (id, tag) = (self.next_delivery, self.next_delivery.to_be_bytes());
        self.next_delivery += 1;
        let transfer =
            Transfer { handle, delivery_id: Some(id), delivery_tag: Some(&tag), more, ..Transfer::default() };
        let mut bytes = Vec::new();
        Performative::Transfer(transfer).write(&mut bytes, channel, payload);
        self.say(&bytes).await;
    }
}

impl<S> Drop for Greedy<S> {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

/// The token that a request over HTTP shows.
pub fn token(policy: &str) -> String {
    sas::sign("http%3a%2f%2fh%2f", policy, KEY, UnixSeconds(99_999_999_999))
}

/// Asks for a WebSocket; the answer is not read.
pub const UPGRADE: &[u8] = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub fn frames(performatives: &[(u16, Performative<'_>)]) -> Vec<Vec<u8>> {
    let encoded = |(channel, performative): &(u16, Performative<'_>)| {
        let mut bytes = Vec::new();
        performative.write(&mut bytes, *channel, &[]);
        bytes
    };
    performatives.iter().map(encoded).collect()
}

/// One frame of a delivery.
pub fn transfer(id: u32, (channel, handle): (u16, u32), payload: &[u8], more: bool) -> Vec<u8> {
    let tag = id.to_be_bytes();
    let transfer =
        Transfer { handle, delivery_id: Some(id), delivery_tag: Some(&tag), more, ..Transfer::default() };
    let mut bytes = Vec::new();
    Performative::Transfer(transfer).write(&mut bytes, channel, payload);
    bytes
}

pub fn greeting(mechanism: &str, initial_response: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = SASL_HEADER.to_vec();
    Sasl::Init { mechanism, initial_response, hostname: None }.write(&mut bytes);
    bytes.extend_from_slice(&AMQP_HEADER);
    bytes
}

pub fn open() -> Performative<'static> {
    Performative::Open(Box::new(Open { container_id: "greedy".into(), ..Open::default() }))
}

pub fn begin() -> Performative<'static> {
    Performative::Begin(Box::new(Begin { incoming_window: 1_000_000, ..Begin::default() }))
}

pub fn closed_begin() -> Performative<'static> {
    Performative::Begin(Box::new(Begin { incoming_window: 0, ..Begin::default() }))
}

pub fn sender(handle: u32, address: &str) -> Performative<'static> {
    Performative::Attach(Box::new(Attach {
        target: Some(AnyTarget::Target(Target { address: Some(address.into()), ..Target::default() })),
        source: Some(Source::default()),
        initial_delivery_count: Some(0),
        ..Attach::new(&format!("to-{handle}"), handle, Role::Sender)
    }))
}

pub fn receiver(handle: u32, address: &str) -> Performative<'static> {
    let reply_to = format!("replies-{handle}");
    Performative::Attach(Box::new(Attach {
        source: Some(Source { address: Some(address.into()), ..Source::default() }),
        target: Some(AnyTarget::Target(Target { address: Some(reply_to), ..Target::default() })),
        ..Attach::new(&format!("from-{handle}"), handle, Role::Receiver)
    }))
}

pub fn credit(handle: u32, link_credit: u32) -> Performative<'static> {
    Performative::Flow(Flow {
        handle: Some(handle),
        next_incoming_id: Some(1),
        incoming_window: 1_000_000,
        delivery_count: Some(0),
        link_credit: Some(link_credit),
        ..Flow::default()
    })
}

fn part(out: &mut Vec<u8>, code: u8, value: &Value) {
    write_descriptor(out, code.into());
    value.encode(out);
}

/// A request to a node of the server, to be answered on the receiver with this handle.
pub fn request(message_id: Value, handle: u32, application: &[(&str, &str)], body: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let reply_to = Value::String(format!("replies-{handle}"));
    let fields = vec![message_id, Value::Null, Value::Null, Value::Null, reply_to];
    part(&mut out, section::PROPERTIES, &Value::List(fields));
    let text = |text: &str| Value::String(text.into());
    let entries = application.iter().map(|(name, value)| (text(name), text(value))).collect();
    part(&mut out, section::APPLICATION_PROPERTIES, &Value::Map(entries));
    part(&mut out, section::VALUE, body);
    out
}

pub fn message(bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    part(&mut out, section::DATA, &Value::Binary(vec![7; bytes]));
    out
}
