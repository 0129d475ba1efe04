//! The AMQP door. Its border with the listener; what lies behind it closes the connection.

use crate::State;
use crate::listen::Peer;
use bytes::BytesMut;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Serves one connection. `first` was read already and comes before what the stream gives.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    first: BytesMut,
    state: Arc<State>,
    peer: Peer,
) {
    tracing::warn!(address = %peer.address, "AMQP is not served yet");
    drop((stream, first, state));
}
