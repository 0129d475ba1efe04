//! Bodies of the fuzz targets. Not part of the border.

pub use crate::auth::fuzzing::sas_token;
pub use crate::http::fuzzing::{atom_xml, broker_properties, http_head};
pub use crate::websocket::fuzzing::websocket;

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// After so many looks nothing more comes: libraries let others go first now and then, but not as often.
const POLLS: usize = 64;

/// A peer that has said everything beforehand. Its bytes come in pieces of the given lengths, over and over. Then it leaves,
/// or stays and says no more.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    said: &'a [u8],
    lengths: &'a [usize],
    nth: usize,
    stays: bool,
    pub(crate) heard: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(said: &'a [u8], lengths: &'a [usize]) -> Pieces<'a> {
        Pieces { said, lengths, nth: 0, stays: false, heard: Vec::new() }
    }

    pub(crate) fn staying(self) -> Pieces<'a> {
        Pieces { stays: true, ..self }
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.stays && self.said.is_empty() {
            return Poll::Pending;
        }
        let length = self.lengths[self.nth % self.lengths.len()];
        self.nth += 1;
        let (piece, rest) = self.said.split_at(self.said.len().min(length).min(buffer.remaining()));
        buffer.put_slice(piece);
        self.said = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.heard.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs what never waits.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    run_until_it_waits(future).expect("it waits for somebody")
}

/// Runs as far as it goes.
pub(crate) fn run_until_it_waits<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}
