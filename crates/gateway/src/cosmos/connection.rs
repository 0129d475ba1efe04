//! One connection to the items: HTTP/1.1 or, when it begins with the preface, HTTP/2 (K-40).
//!
//! Over TLS a client chooses HTTP/2 by ALPN and then sends the same preface, so the first bytes tell in both cases.

use super::{Ask, Door};
use crate::limits::*;
use crate::listen::Peer;
use crate::prefixed::Prefixed;
use bytes::BytesMut;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::interval;

/// What HTTP/2 begins with; no method of HTTP/1.1 does.
const HTTP2_BEGINS: &[u8] = b"PRI ";

/// Serves one connection until the peer leaves or the server stops; a request that is being answered is answered.
pub async fn serve<S, A>(
    stream: S,
    first: BytesMut,
    peer: Peer,
    door: Arc<Door<A>>,
    stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Ask,
{
    let address = peer.address;
    let is_http2 = first.starts_with(HTTP2_BEGINS);
    let io = TokioIo::new(Prefixed::new(first, stream));
    let ended = match is_http2 {
        true => serve_http2(io, Arc::new(peer), door, stopping).await,
        false => serve_http1(io, &peer, &door, stopping).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "HTTP connection failed");
    }
}

async fn serve_http1<S, A: Ask>(
    io: TokioIo<Prefixed<S>>,
    peer: &Peer,
    door: &Door<A>,
    mut stopping: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| async { Ok::<_, Infallible>(door.answer(request, peer).await) });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEAD_TIMEOUT)
        .max_buf_size(HTTP_HEAD_BYTES)
        .max_headers(HTTP_HEADERS)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Ends when the server is asked to stop.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the door; without it the connection may as well end.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// Requests of a connection that are being answered, and how many there were.
#[derive(Debug, Default)]
struct Work {
    open: AtomicUsize,
    begun: AtomicUsize,
}

struct Counted(Arc<Work>);

impl Counted {
    fn new(work: &Arc<Work>) -> Counted {
        work.open.fetch_add(1, Ordering::Relaxed);
        work.begun.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(work))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve_http2<S, A: Ask>(
    io: TokioIo<Prefixed<S>>,
    peer: Arc<Peer>,
    door: Arc<Door<A>>,
    mut stopping: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let work: Arc<Work> = Arc::default();
    let service = service_fn({
        let work = Arc::clone(&work);
        move |request| {
            let (counted, door, peer) = (Counted::new(&work), Arc::clone(&door), Arc::clone(&peer));
            async move {
                let _counted = counted;
                Ok::<_, Infallible>(door.answer(request, &peer).await)
            }
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(HTTP_HEAD_BYTES as u32)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_send_buf_size(HTTP2_SEND_BYTES)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    // HTTP/2 has no time-out of its own for a peer that asks nothing.
    let mut look = interval(HTTP_HEAD_TIMEOUT);
    look.tick().await;
    let mut seen = 0;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stopped(&mut stopping) => {
                connection.as_mut().graceful_shutdown();
                return connection.await;
            }
            _ = look.tick() => {
                let begun = work.begun.load(Ordering::Relaxed);
                if begun == seen && work.open.load(Ordering::Relaxed) == 0 {
                    connection.as_mut().graceful_shutdown();
                    return tokio::time::timeout(LAST_OUTPUT_TIMEOUT, connection).await.unwrap_or(Ok(()));
                }
                seen = begun;
            }
        }
    }
}
