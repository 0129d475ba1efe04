//! What every connection works with, and how all of them are asked to end.

use crate::account::Accounts;
use crate::auth::{Development, Failures, UnixSeconds};
use crate::listen::{Doors, Peer};
use crate::metrics::Meters;
use crate::names::Names;
use crate::namespaces::Namespaces;
use crate::{amqp, http, websocket};
use bytes::BytesMut;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

#[derive(Debug)]
pub struct State {
    pub engine: engine::Handle,
    /// Moved with the time of the default namespace; none in tests of the bus alone.
    pub items: Option<items_engine::Handle>,
    pub namespaces: Namespaces,
    /// By which programs on this machine call the server.
    pub names: Names,
    /// Names this run of the server in tracking ids.
    pub node: String,
    /// What all connections hold.
    pub accounts: Arc<Accounts>,
    /// What all connections hold of unfinished messages.
    pub unfinished: Arc<amqp::Unfinished>,
    /// What all connections hold of large answers.
    pub large_replies: Arc<amqp::LargeReplies>,
    pub meters: Arc<Meters>,
    pub failures: Failures,
    /// The wall clock that claims run out by.
    wall: fn() -> UnixSeconds,
    /// Whether clients with the right Manage may move the time of their namespace.
    pub has_test_clock: bool,
    /// Gives tokens to programs on this machine, if it was asked for.
    pub development: Option<Arc<Development>>,
    /// Becomes true when the server stops. Each connection that is served holds a receiver.
    stopping: watch::Sender<bool>,
}

impl State {
    pub fn new(engine: engine::Handle, namespaces: Namespaces) -> State {
        let node = format!("{:08x}", uuid::Uuid::new_v4().as_fields().0);
        State {
            engine,
            items: None,
            namespaces,
            names: Names::default(),
            node,
            accounts: Arc::default(),
            unfinished: Arc::default(),
            large_replies: Arc::default(),
            meters: Arc::default(),
            failures: Failures::default(),
            wall: UnixSeconds::now,
            has_test_clock: false,
            development: None,
            stopping: watch::Sender::new(false),
        }
    }

    /// The same, with another wall clock: for tests, which do not wait for a token to run out.
    #[must_use]
    pub fn with_wall(self, wall: fn() -> UnixSeconds) -> State {
        State { wall, ..self }
    }

    pub fn now(&self) -> UnixSeconds {
        (self.wall)()
    }

    /// Asks every connection to finish what it does and end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Ends when the server is asked to stop.
    pub async fn stopping(&self) {
        // The sender lives as long as `self`.
        let _ = self.stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    /// Ends when no connection is being served.
    pub async fn idle(&self) {
        self.stopping.closed().await;
    }
}

impl Doors for State {
    async fn amqp<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        first: BytesMut,
        peer: Peer,
    ) {
        let _served = self.stopping.subscribe();
        let _counted = Meters::open(&self.meters.amqp_connections);
        amqp::serve(stream, first, Arc::clone(&self), peer).await;
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        mut stream: S,
        mut first: BytesMut,
        mut peer: Peer,
    ) {
        match websocket::is_asked_for(&mut stream, &mut first).await {
            Err(_) => return,
            Ok(false) => {}
            Ok(true) => match websocket::accept(stream, first, &self.names).await {
                Ok(Some((stream, is_page))) => {
                    peer.is_page = is_page;
                    return self.amqp(stream, BytesMut::new(), peer).await;
                }
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "an upgrade to WebSocket failed"),
            },
        }
        let _served = self.stopping.subscribe();
        let _counted = Meters::open(&self.meters.http_connections);
        let door = http::Door {
            ask: &self.engine,
            items: self.items.as_ref(),
            namespaces: &self.namespaces,
            names: &self.names,
            meters: &self.meters,
            failures: &self.failures,
            unfinished: &self.unfinished,
            accounts: &self.accounts,
            node: &self.node,
            has_test_clock: self.has_test_clock,
            development: self.development.as_deref(),
        };
        http::serve(stream, first, peer, door, self.stopping()).await;
    }
}
