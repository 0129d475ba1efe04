//! How header names were spelled. Case means nothing to HTTP and everything to AMQP, where a header is a property (H-95);
//! the library knows names in lower case alone, so what it reads is looked at on the way.
//!
//! Only the spelling is taken from here, and only of names that the library has found: bytes that are not a head, such as
//! the rest of a body that nobody wanted, do no harm. A client that sends a request before it has the answer to the one
//! before may find its names in lower case.

use crate::limits::HTTP_HEAD_BYTES;
use crate::through::writes_through;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// What was read while no request was being answered: the newest bytes, as many as a head may have.
#[derive(Debug, Clone, Default)]
pub(super) struct Heads(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    is_answering: bool,
}

impl Heads {
    /// A head was read: gives its spelling. What is read from now on is no head.
    pub(super) fn take(&self) -> Spelling {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_answering = true;
        Spelling::of_head(&std::mem::take(&mut seen.bytes))
    }

    /// The request is answered, and the next head may come.
    pub(super) fn expect(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_answering = false;
    }

    fn add(&self, read: &[u8]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_answering {
            return;
        }
        let read = &read[read.len().saturating_sub(HTTP_HEAD_BYTES)..];
        let surplus = (seen.bytes.len() + read.len()).saturating_sub(HTTP_HEAD_BYTES);
        seen.bytes.drain(..surplus);
        seen.bytes.extend_from_slice(read);
    }
}

/// The names of one head, as they came.
#[derive(Debug, Default)]
pub(super) struct Spelling(Vec<String>);

impl Spelling {
    pub(super) fn of_head(bytes: &[u8]) -> Spelling {
        let name = |line: &[u8]| {
            let end = line.iter().position(|byte| *byte == b':')?;
            Some(std::str::from_utf8(&line[..end]).ok()?.to_owned())
        };
        let lines = bytes.split(|byte| *byte == b'\n').skip_while(|line| line.trim_ascii().is_empty());
        Spelling(lines.take_while(|line| !line.trim_ascii().is_empty()).filter_map(name).collect())
    }

    /// The spelling of a name in lower case. Of two the first counts.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|spelled| spelled.eq_ignore_ascii_case(name)).map_or(name, |spelled| spelled)
    }
}

/// A stream whose reads are looked at.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    heads: Heads,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, heads: Heads) -> Watched<S> {
        Watched { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.heads.add(&buffer.filled()[before..]);
        }
        read
    }
}

writes_through!(Watched);

#[cfg(test)]
mod tests {
    use super::*;

    // H-95
    #[test]
    fn names_are_spelled_as_they_came_and_others_stay() {
        let head = b"POST /Q:x HTTP/1.1\r\nHost: a\r\norderId: 7\r\nX-TRACE:y\r\n\r\nHOST: z";
        let spelling = Spelling::of_head(head);
        assert_eq!(spelling.of("orderid"), "orderId");
        assert_eq!(spelling.of("x-trace"), "X-TRACE");
        assert_eq!((spelling.of("missing"), spelling.of("host")), ("missing", "Host"));
    }

    #[test]
    fn the_newest_bytes_between_answers_are_kept_and_no_others() {
        let heads = Heads::default();
        heads.add(&vec![b'x'; 3 * HTTP_HEAD_BYTES]);
        heads.add(b"\nOne: 1\n");
        assert_eq!(heads.0.lock().unwrap().bytes.len(), HTTP_HEAD_BYTES);
        assert_eq!(heads.take().of("one"), "One");
        heads.add(b"\nTwo: 2\n");
        heads.expect();
        heads.add(b"Thr");
        heads.add(b"ee: 3\n");
        let spelling = heads.take();
        assert_eq!((spelling.of("two"), spelling.of("three")), ("two", "Three"));
        assert_eq!(heads.0.lock().unwrap().bytes.capacity(), 0);
    }
}
