//! The AMQP door: one task for each connection, which owns the protocol's state and talks to the engine in batches.
//!
//! Bytes come in, the sans-I/O machine turns them into events, and one read of the socket becomes one batch of
//! commands. Effects come back through the outbox and leave as one write. The task reads no further while the engine
//! holds as much as it may, and takes no more out of its outbox while the peer does not read.

mod address;
mod buffer;
mod cbs;
mod condition;
mod connection;
mod deliver;
mod intake;
mod link;
mod settle;
mod tracking;

use crate::auth::Guard;
use crate::listen::Peer;
use bytes::BytesMut;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// What every AMQP connection of a server shares.
#[derive(Debug)]
pub struct Door {
    pub engine: engine::Handle,
    pub guard: Arc<Guard>,
    /// Names this server in tracking ids.
    pub node: String,
}

/// Serves one connection until either side ends it.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, first: BytesMut, peer: Peer, door: Arc<Door>) {
    connection::Task::new(stream, first, peer, door).run().await;
}
