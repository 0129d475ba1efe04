//! One connection to the items: HTTP/1.1 or, when it begins with the preface, HTTP/2 (K-40).
//!
//! Over TLS a client chooses HTTP/2 by ALPN and then sends the same preface, so the first bytes tell in both cases.

use super::{Ask, Door};
use crate::head_timer::HeadTimer;
use crate::limits::*;
use crate::listen::Peer;
use crate::stream::line_ends::LineEnds;
use crate::stream::prefixed::Prefixed;
use crate::stream::through::{Overheard, writes_through};
use bytes::BytesMut;
use hyper::Method;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::task::yield_now;
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
    let stream = Prefixed::new(first, stream);
    let ended = match is_http2 {
        true => serve_http2(stream, Arc::new(peer), door, stopping).await,
        false => serve_http1(stream, &peer, &door, stopping).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "HTTP connection failed");
    }
}

async fn serve_http1<S, A: Ask>(
    stream: S,
    peer: &Peer,
    door: &Door<A>,
    mut stopping: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let line_ends = LineEnds::default();
    let service = service_fn(|request| {
        let is_wrong = line_ends.is_next_wrong();
        let is_read = request.method() == Method::GET;
        async move {
            let answer = door.answer(request, peer, is_wrong).await;
            if is_read {
                answer_together().await;
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let io = TokioIo::new(Overheard::new(stream, |read: &[u8]| line_ends.add(read)));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(HeadTimer::default())
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

/// Lets the connections whose requests are there already be answered before this answer is written. What writing costs is mostly to wake
/// the client: written one behind the other, answers to one client wake it once, and not each time it has worked off the one before.
/// Writes need no such thing: the answers to those that were synced together come together.
async fn answer_together() {
    yield_now().await;
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
        self.0.open.fetch_sub(1, Ordering::Release);
    }
}

/// Before a request of an HTTP/2 peer is authorized, its requests are read in small pieces and one at a time: whatever it sends, its
/// connection holds little (P6). HTTP/1.1 is so by itself.
#[derive(Debug)]
struct Gate<S> {
    stream: S,
    peer: Arc<Peer>,
    work: Arc<Work>,
    /// A piece was read; what it holds is to be looked at before the next.
    is_read: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.is_proved() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        // The answer to a request wakes the connection, to be sent.
        if self.work.open.load(Ordering::Acquire) > 0 && self.peer.wake_when_proved(cx.waker()) {
            return Poll::Pending;
        }
        if self.work.begun.load(Ordering::Relaxed) > HTTP2_STRANGER_REQUESTS && !self.peer.is_proved() {
            // As if the peer had ended.
            return Poll::Ready(Ok(()));
        }
        // The library reads for as long as something comes, and only then begins to answer.
        if std::mem::take(&mut self.is_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = buffer.remaining().min(HTTP2_STRANGER_READ);
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
        let count = piece.filled().len();
        buffer.advance(count);
        self.is_read = true;
        Poll::Ready(Ok(()))
    }
}

writes_through!(Gate);

async fn serve_http2<S, A: Ask>(
    stream: S,
    peer: Arc<Peer>,
    door: Arc<Door<A>>,
    mut stopping: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let work: Arc<Work> = Arc::default();
    let io = TokioIo::new(Gate { stream, peer: Arc::clone(&peer), work: Arc::clone(&work), is_read: false });
    let service = service_fn({
        let work = Arc::clone(&work);
        move |request| {
            let (counted, door, peer) = (Counted::new(&work), Arc::clone(&door), Arc::clone(&peer));
            async move {
                let _counted = counted;
                Ok::<_, Infallible>(door.answer(request, &peer, false).await)
            }
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(HTTP2_HEAD_BYTES)
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
