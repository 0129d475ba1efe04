//! A stream whose first bytes were read already, to find out what the peer speaks. They come first, then the rest.

use crate::stream::through::writes_through;
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

#[derive(Debug)]
pub struct Prefixed<S> {
    first: BytesMut,
    stream: S,
}

impl<S> Prefixed<S> {
    pub fn new(first: BytesMut, stream: S) -> Prefixed<S> {
        Prefixed { first, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

writes_through!(Prefixed);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_first_bytes_come_first_and_once() {
        let (mut far, near) = tokio::io::duplex(64);
        far.write_all(b"cdef").await.unwrap();
        drop(far);
        let mut stream = Prefixed::new(BytesMut::from(&b"ab"[..]), near);
        let mut one = [0; 1];
        stream.read_exact(&mut one).await.unwrap();
        assert_eq!(&one, b"a");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bcdef");
    }
}
