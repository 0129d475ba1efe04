//! Accepts connections and finds out what they speak. Every bus port takes everything: TLS or plain, and inside it AMQP
//! or HTTP (and inside that AMQP over WebSocket), told by the first bytes, so that one connection string works whatever port rules a client has.
//!
//! Until a peer has proved who it is, its connection has a stranger's place, which it may lose, and each wait has an end.

use crate::limits::*;
use crate::places::{NoPlace, Place, Places, Standing};
use crate::stream::encrypted::Encrypted;
use crate::stream::prefixed::Prefixed;
use bytes::BytesMut;
use rustls::ServerConnection;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    pub is_encrypted: bool,
    /// A web page speaks, perhaps without its user's knowledge: it gets nothing for being on this machine.
    pub is_page: bool,
    /// The host that the peer named when it greeted in TLS.
    pub server_name: Option<Box<str>>,
    /// Kept for as long as the connection lives.
    place: Option<Place>,
    proof: Proof,
}

/// Whether a peer has shown a valid claim, and who waits for that.
#[derive(Debug, Default)]
struct Proof {
    is_shown: Arc<AtomicBool>,
    reader: Mutex<Option<Waker>>,
}

impl Peer {
    pub fn new(address: SocketAddr) -> Peer {
        Peer {
            address,
            is_encrypted: false,
            is_page: false,
            server_name: None,
            place: None,
            proof: Proof::default(),
        }
    }

    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback() && !self.is_page
    }

    /// The peer has shown a valid claim and no longer counts as a stranger, unless too many have claims of that policy.
    pub fn proved(&self, policy: &str, standing: Standing) -> Result<(), NoPlace> {
        if self.is_proved() {
            return Ok(());
        }
        if let Some(place) = &self.place {
            place.proved(policy, standing)?;
        }
        self.proof.is_shown.store(true, Ordering::Release);
        let reader = self.proof.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Whether it has.
    pub fn is_proved(&self) -> bool {
        self.proof.is_shown.load(Ordering::Acquire)
    }

    /// Has a task woken when the peer has shown a valid claim; false, if that is so already.
    pub fn wake_when_proved(&self, reader: &Waker) -> bool {
        let mut held = self.proof.reader.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(reader.clone());
        // Looked at under the lock: if it is shown later, the task is found there.
        !self.is_proved()
    }
}

/// Where connections go once it is known what they speak.
pub trait Doors: Send + Sync + 'static {
    /// Whether the door for HTTP also takes a connection that begins with the preface of HTTP/2.
    const SPEAKS_HTTP2: bool = false;

    /// Serves AMQP. `first` was read already and comes before what the stream gives.
    fn amqp<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        first: BytesMut,
        peer: Peer,
    ) -> impl Future<Output = ()> + Send;

    /// Serves HTTP, in the same way.
    fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        first: BytesMut,
        peer: Peer,
    ) -> impl Future<Output = ()> + Send;
}

/// What the first bytes of a connection say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Tls,
    Amqp,
    Http,
    Unknown,
    /// Too few bytes to tell.
    Unfinished,
}

/// Methods that begin a request. Others exist; nobody sends them to a bus.
const HTTP_METHODS: [&[u8]; 7] = [b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH "];

/// What a connection of HTTP/2 begins with.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn speech(first: &[u8], speaks_http2: bool) -> Speech {
    // The first byte of a TLS record that holds a handshake.
    const TLS_HANDSHAKE: u8 = 0x16;
    let begins = |expected: &[u8]| first.iter().zip(expected).all(|(byte, expected)| byte == expected);
    let is_whole = |expected: &[u8]| first.len() >= expected.len() && begins(expected);
    if speaks_http2 && begins(HTTP2_PREFACE) && !first.is_empty() {
        // "P" may still become a POST; either way there is more to come.
        return if is_whole(HTTP2_PREFACE) { Speech::Http } else { Speech::Unfinished };
    }
    if first.first() == Some(&TLS_HANDSHAKE) {
        Speech::Tls
    } else if is_whole(b"AMQP") {
        Speech::Amqp
    } else if HTTP_METHODS.into_iter().any(is_whole) {
        Speech::Http
    } else if begins(b"AMQP") || HTTP_METHODS.into_iter().any(begins) {
        Speech::Unfinished
    } else {
        Speech::Unknown
    }
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0} is in use by another process; stop that one or choose another port with --listen-bus")]
    InUse(SocketAddr),
    #[error("may not listen on {0}; ports below 1024 need a privilege, others do not")]
    NotPermitted(SocketAddr),
    #[error("{0} is not an address of this machine; choose one that is with --listen-bus")]
    NotOurs(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Other { address: SocketAddr, source: io::Error },
}

/// Opens a port.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::PermissionDenied => BindError::NotPermitted(address),
        io::ErrorKind::AddrNotAvailable => BindError::NotOurs(address),
        _ => BindError::Other { address, source },
    })
}

/// Accepts connections until the future is dropped. Connections live on their own and outlive it.
pub async fn accept(listener: TcpListener, tls: TlsAcceptor, places: Arc<Places>, doors: Arc<impl Doors>) {
    let mut is_failing = false;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // A peer that is gone already is its own affair.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // A lack of handles or memory is ours, and passes: a stranger's serve others better. It is said once.
                let has_room = places.show_out();
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, has_room, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        is_failing = false;
        let Some(place) = places.take(address.ip()) else {
            tracing::warn!(%address, "all places for connections are taken; closing the newest");
            continue;
        };
        // Answers are written whole; waiting for more to send only costs time.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%address, %error, "cannot set TCP_NODELAY");
        }
        let number = place.number();
        let peer = Peer { place: Some(place), ..Peer::new(address) };
        let served = tokio::spawn(serve(stream, peer, tls.clone(), doors.clone()));
        places.served(number, served.abort_handle());
    }
}

/// Serves one connection: finds out what it speaks, in TLS or without, and hands it to the door for that.
pub async fn serve<S, D: Doors>(mut stream: S, mut peer: Peer, tls: TlsAcceptor, doors: Arc<D>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let Some((speech, first)) = listen_to(&mut stream, D::SPEAKS_HTTP2).await else { return };
    if speech != Speech::Tls {
        return hand_over(speech, stream, first, peer, doors).await;
    }
    // A stranger that does not read makes us hold little.
    let limit = |session: &mut ServerConnection| session.set_buffer_limit(Some(STRANGER_TLS_BYTES));
    let handshake = tls.accept_with(Prefixed::new(first, stream), limit);
    let stream = match timeout(TLS_HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
    };
    peer.is_encrypted = true;
    peer.server_name = stream.get_ref().1.server_name().map(Into::into);
    let mut stream = Encrypted { stream, known: Some(Arc::clone(&peer.proof.is_shown)) };
    let Some((speech, first)) = listen_to(&mut stream, D::SPEAKS_HTTP2).await else { return };
    hand_over(speech, stream, first, peer, doors).await;
}

async fn hand_over<S>(speech: Speech, stream: S, first: BytesMut, peer: Peer, doors: Arc<impl Doors>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    match speech {
        Speech::Amqp | Speech::Http => {
            tracing::debug!(%address, ?speech, is_encrypted = peer.is_encrypted, "connection accepted");
            match speech {
                Speech::Amqp => doors.amqp(stream, first, peer).await,
                _ => doors.http(stream, first, peer).await,
            }
            tracing::debug!(%address, "connection ended");
        }
        // TLS within TLS is as unknown as anything else.
        Speech::Tls | Speech::Unknown | Speech::Unfinished => {
            tracing::debug!(address = %peer.address, "closing a connection that speaks neither AMQP nor HTTP");
        }
    }
}

/// Reads until it is clear what the peer speaks. `None` when it left, failed or took too long.
async fn listen_to<S: AsyncRead + Unpin>(stream: &mut S, speaks_http2: bool) -> Option<(Speech, BytesMut)> {
    // Room for an AMQP client's first frames, so that they are read in one go.
    let mut first = BytesMut::with_capacity(FIRST_READ_BYTES);
    let told = timeout(FIRST_BYTES_TIMEOUT, async {
        loop {
            match stream.read_buf(&mut first).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => match speech(&first, speaks_http2) {
                    Speech::Unfinished => continue,
                    speech => return Some(speech),
                },
            }
        }
    });
    let speech = told.await.ok().flatten()?;
    Some((speech, first))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    /// With a certificate of its own.
    pub(crate) fn acceptor() -> TlsAcceptor {
        let folder = crate::tls::tests::Folder::new();
        let files = crate::tls::Files::open_or_make(&folder.0, &[]).unwrap();
        let certificate = crate::tls::Certificate::load(&files).unwrap();
        TlsAcceptor::from(crate::tls::server_config(&certificate).unwrap())
    }

    #[test]
    fn who_waits_for_a_claim_is_woken_by_the_first_and_not_asked_to_wait_again() {
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let peer = Peer::new("192.0.2.1:4000".parse().expect("an address"));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(peer.wake_when_proved(&waker));
        assert!(!woken.0.load(Ordering::Relaxed));
        peer.proved("policy", Standing::Other).expect("there is no table of places");
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(!peer.wake_when_proved(&waker));
    }

    #[test]
    fn each_protocol_is_known_by_its_first_bytes() {
        assert_eq!(speech(&[0x16, 3, 1], false), Speech::Tls);
        assert_eq!(speech(b"AMQP\x03\x01\x00\x00", false), Speech::Amqp);
        assert_eq!(speech(b"AMQP", false), Speech::Amqp);
        assert_eq!(speech(b"GET / HTTP/1.1", false), Speech::Http);
        assert_eq!(speech(b"DELETE ", false), Speech::Http);
        for unfinished in [&b""[..], b"A", b"AMQ", b"G", b"P", b"DELET"] {
            assert_eq!(speech(unfinished, false), Speech::Unfinished);
        }
        for unknown in [&b"AMQX"[..], b"B", b"GETX", b"get ", b"SSH-2.0", b"\x00", b"PRI * HTTP/2.0"] {
            assert_eq!(speech(unknown, false), Speech::Unknown);
        }
    }

    // K-40
    #[test]
    fn the_preface_of_http2_is_known_where_it_is_spoken() {
        for unfinished in [&b"P"[..], b"PRI * HTTP/2.0\r\n"] {
            assert_eq!(speech(unfinished, true), Speech::Unfinished);
        }
        assert_eq!(speech(HTTP2_PREFACE, true), Speech::Http);
        assert_eq!(speech(b"POST / HTTP/1.1", true), Speech::Http);
        assert_eq!(speech(b"PRIX", true), Speech::Unknown);
        assert_eq!(speech(&[0x16, 3, 1], true), Speech::Tls);
    }

    #[tokio::test]
    async fn bytes_that_dribble_in_are_all_handed_over() {
        let (mut far, mut near) = tokio::io::duplex(2);
        let writer = tokio::spawn(async move { far.write_all(b"AMQP").await });
        let (speech, first) = listen_to(&mut near, false).await.unwrap();
        assert_eq!(speech, Speech::Amqp);
        assert_eq!(&first[..], b"AMQP");
        writer.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_is_not_waited_for() {
        let (_far, mut near) = tokio::io::duplex(2);
        assert_eq!(listen_to(&mut near, false).await, None);
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let holder = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = holder.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        assert!(matches!(error, BindError::InUse(named) if named == address), "{error}");
    }

    /// Notes what arrives at which door.
    #[derive(Debug)]
    struct Notes(tokio::sync::mpsc::UnboundedSender<(&'static str, bool, BytesMut)>);

    impl Doors for Notes {
        async fn amqp<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
            self: Arc<Self>,
            _: S,
            first: BytesMut,
            peer: Peer,
        ) {
            let _ = self.0.send(("amqp", peer.is_encrypted, first));
        }

        async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
            self: Arc<Self>,
            _: S,
            first: BytesMut,
            peer: Peer,
        ) {
            let _ = self.0.send(("http", peer.is_encrypted, first));
        }
    }

    #[tokio::test]
    async fn one_port_takes_amqp_and_http_plain_and_in_tls() {
        let folder = crate::tls::tests::Folder::new();
        let files = crate::tls::Files::open_or_make(&folder.0, &[]).unwrap();
        let certificate = crate::tls::Certificate::load(&files).unwrap();
        let acceptor = TlsAcceptor::from(crate::tls::server_config(&certificate).unwrap());
        let connector = tokio_rustls::TlsConnector::from(crate::tls::tests::client_config(&files));
        let (notes, mut noted) = tokio::sync::mpsc::unbounded_channel();
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(accept(
            listener,
            acceptor,
            Places::of_open_files(1_024, CONNECTIONS_BYTES),
            Arc::new(Notes(notes)),
        ));
        for (door, first) in [("amqp", &b"AMQP\x03\x01\x00\x00"[..]), ("http", b"GET /health HTTP/1.1\r\n")] {
            let mut plain = TcpStream::connect(address).await.unwrap();
            plain.write_all(first).await.unwrap();
            assert_eq!(noted.recv().await.unwrap(), (door, false, BytesMut::from(first)));
            let tcp = TcpStream::connect(address).await.unwrap();
            let mut tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
            tls.write_all(first).await.unwrap();
            assert_eq!(noted.recv().await.unwrap(), (door, true, BytesMut::from(first)));
        }
        let mut strange = TcpStream::connect(address).await.unwrap();
        strange.write_all(b"SSH-2.0-x\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = strange.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
        server.abort();
    }

    #[tokio::test]
    async fn a_stranger_keeps_its_place_until_it_proves_itself() {
        let places = Places::new(2, 1);
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { place: places.take(address.ip()), ..Peer::new(address) };
        places.served(0, tokio::spawn(std::future::pending::<()>()).abort_handle());
        peer.proved("root", Standing::Root).unwrap();
        assert!(!places.show_out(), "it is nobody's stranger");
    }

    #[tokio::test]
    async fn a_thousand_idle_strangers_lock_nobody_out() {
        let folder = crate::tls::tests::Folder::new();
        let files = crate::tls::Files::open_or_make(&folder.0, &[]).unwrap();
        let certificate = crate::tls::Certificate::load(&files).unwrap();
        let acceptor = TlsAcceptor::from(crate::tls::server_config(&certificate).unwrap());
        let (notes, mut noted) = tokio::sync::mpsc::unbounded_channel();
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        // As many as a process that may open 256 files has: the proportions are what counts.
        let places = Places::of_open_files(256, CONNECTIONS_BYTES);
        let server = tokio::spawn(accept(listener, acceptor, places, Arc::new(Notes(notes))));
        let mut strangers = Vec::new();
        for _ in 0..200 {
            strangers.push(TcpStream::connect(address).await.unwrap());
        }
        let mut honest = TcpStream::connect(address).await.unwrap();
        honest.write_all(b"AMQP").await.unwrap();
        assert_eq!(noted.recv().await.unwrap().0, "amqp");
        let mut rest = [0; 1];
        assert_eq!(strangers[0].read(&mut rest).await.unwrap_or(0), 0, "the oldest was shown out");
        server.abort();
    }

    #[test]
    fn a_loopback_address_mapped_to_version_6_is_loopback() {
        assert!(Peer::new("[::ffff:127.0.0.1]:1".parse().unwrap()).is_loopback());
        assert!(Peer::new("[::1]:1".parse().unwrap()).is_loopback());
        assert!(!Peer::new("10.0.0.1:1".parse().unwrap()).is_loopback());
    }
}
