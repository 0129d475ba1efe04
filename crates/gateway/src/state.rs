//! What every connection works with, and how all of them are asked to end.

use crate::auth::Guard;
use crate::listen::{Doors, Peer};
use crate::metrics::Meters;
use crate::{amqp, http};
use bytes::BytesMut;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

#[derive(Debug)]
pub struct State {
    pub engine: engine::Handle,
    pub guard: Guard,
    /// Names this run of the server in tracking ids.
    pub node: String,
    /// What all connections hold of unfinished messages.
    pub unfinished: Arc<amqp::Unfinished>,
    pub meters: Meters,
    /// Becomes true when the server stops. Each connection that is served holds a receiver.
    stopping: watch::Sender<bool>,
}

impl State {
    pub fn new(engine: engine::Handle, guard: Guard) -> State {
        let node = format!("{:08x}", uuid::Uuid::new_v4().as_fields().0);
        let (unfinished, meters) = (Arc::default(), Meters::default());
        State { engine, guard, node, unfinished, meters, stopping: watch::Sender::new(false) }
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
        stream: S,
        first: BytesMut,
        peer: Peer,
    ) {
        let _served = self.stopping.subscribe();
        let _counted = Meters::open(&self.meters.http_connections);
        let door = http::Door { ask: &self.engine, guard: &self.guard, meters: &self.meters };
        http::serve(stream, first, peer, door, self.stopping()).await;
    }
}
