//! The AMQP door: one task for each connection, which owns the protocol's state and talks to the engine in batches.
//!
//! Bytes come in, the sans-I/O machine turns them into events, and one read of the socket becomes one batch of
//! commands. Effects come back through the outbox and leave as one write. The task reads no further while the engine
//! holds as much as it may, and takes no more out of its outbox while the peer does not read.

mod address;
mod arriving;
mod buffer;
mod cbs;
mod claims;
mod condition;
mod connection;
mod deliver;
mod intake;
mod large;
mod leaving;
mod link;
mod management;
mod release;
mod session;
mod settle;
mod tracking;
mod trail;
mod transaction;

pub use arriving::Unfinished;
pub(crate) use arriving::{Arrived, Arriving, Unfit};
pub(crate) use deliver::Unshown;
pub(crate) use intake::add_message;
pub use management::LargeReplies;
pub(crate) use management::{token_of_uuid, uuid_of_token};

use crate::State;
use crate::listen::Peer;
use bytes::BytesMut;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Serves one connection until either side ends it. `first` was read already and comes before what the stream gives.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    first: BytesMut,
    state: Arc<State>,
    peer: Peer,
) {
    connection::ConnectionTask::new(stream, first, peer, state).run().await;
}
