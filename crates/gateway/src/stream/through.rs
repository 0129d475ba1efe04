//! Streams around another one, called `stream`, that look at what is read and at nothing else: what is written goes through as
//! it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

macro_rules! writes_through {
    ($wrapper:ident $(, $more:ident)?) => {
        impl<S: tokio::io::AsyncWrite + Unpin $(, $more: Unpin)?> tokio::io::AsyncWrite for $wrapper<S $(, $more)?> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(cx)
            }
        }
    };
}

pub(crate) use writes_through;

/// A stream that shows `look` all that is read, piece by piece.
pub(crate) struct Overheard<S, F> {
    stream: S,
    look: F,
}

impl<S, F: FnMut(&[u8])> Overheard<S, F> {
    pub(crate) fn new(stream: S, look: F) -> Overheard<S, F> {
        Overheard { stream, look }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&[u8]) + Unpin> AsyncRead for Overheard<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            (self.look)(&buffer.filled()[before..]);
        }
        read
    }
}

writes_through!(Overheard, F);
