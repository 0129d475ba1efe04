//! How header names are spelled. Case means nothing to HTTP and everything to AMQP, where a header is a property (H-95,
//! K-30); the library knows names in lower case alone, so what it reads and writes is looked at on the way.
//!
//! Only the spelling is taken from here, and only of names that the library has found: bytes that are not a head, such as
//! the rest of a body that nobody wanted, do no harm. The same holds for an answer: the letters of known names change their
//! case and nothing else does. A client that sends a request before it has the answer to the one before may find its names
//! in lower case, there as here.

use crate::limits::{HTTP_HEAD_BYTES, USUAL_HEAD_BYTES};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What was read while no request was being answered: the newest bytes, as many as a head may have.
#[derive(Debug, Clone, Default)]
pub(super) struct Heads(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    is_answering: bool,
    /// Whether something was written after the last flush: of an answer before.
    is_writing: bool,
    answer: Option<Respelling>,
}

/// The names of an answer, of which one goes with a response as an extension.
#[derive(Debug, Clone, Default)]
pub(super) struct Spelled(pub Vec<String>);

/// An answer whose head is on its way out.
#[derive(Debug)]
struct Respelling {
    names: Spelled,
    /// What has left of it, in the letters of the library.
    written: Vec<u8>,
}

impl Respelling {
    /// The bytes that are to leave in place of these, as many of them.
    fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut head = [&self.written, bytes].concat();
        let (start, end) = self.bounds(&head);
        let mut names: Vec<&str> = self.names.0.iter().map(String::as_str).collect();
        for line in head[start..end].split_mut(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = &mut line[..colon];
            // Of two names that differ in their letters' case alone, each is used once.
            let known = names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name));
            if let Some(known) = known {
                name.copy_from_slice(names.remove(known).as_bytes());
            }
        }
        head.split_off(self.written.len())
    }

    /// Where the head of the answer begins and ends, as far as it is there. What says only that a body may come stands before
    /// it.
    fn bounds(&self, head: &[u8]) -> (usize, usize) {
        let after = |from: usize| {
            let end = head[from..].windows(4).position(|four| four == b"\r\n\r\n");
            end.map_or(head.len(), |end| from + end + 4)
        };
        let start = if head.starts_with(b"HTTP/1.1 1") { after(0) } else { 0 };
        (start, after(start))
    }

    /// Whether the head has left once these bytes have.
    fn leaves(&mut self, bytes: &[u8]) -> bool {
        self.written.extend_from_slice(bytes);
        let (start, end) = self.bounds(&self.written);
        start < end && self.written[..end].ends_with(b"\r\n\r\n")
    }
}

impl Heads {
    /// A head was read: gives its spelling. What is read from now on is no head.
    pub(super) fn take(&self) -> Spelling {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_answering = true;
        Spelling::of_head(&std::mem::take(&mut seen.bytes))
    }

    /// The request is answered, by a head that has such names, and the next one may come.
    pub(super) fn expect(&self, names: Option<Spelled>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_answering = false;
        let is_writing = seen.is_writing;
        let names = names.filter(|_| !is_writing);
        seen.answer = names.map(|names| Respelling { names, written: Vec::new() });
    }

    /// These bytes were read.
    pub(super) fn add(&self, read: &[u8]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_answering {
            return;
        }
        let read = &read[read.len().saturating_sub(HTTP_HEAD_BYTES)..];
        let surplus = (seen.bytes.len() + read.len()).saturating_sub(HTTP_HEAD_BYTES);
        seen.bytes.drain(..surplus);
        // Made larger once and no further: a stranger's bytes are counted.
        let length = seen.bytes.len() + read.len();
        let room = if length <= USUAL_HEAD_BYTES { USUAL_HEAD_BYTES } else { HTTP_HEAD_BYTES };
        let more = room - seen.bytes.len();
        seen.bytes.reserve_exact(more);
        seen.bytes.extend_from_slice(read);
    }
}

/// The names of one head, as they came.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    names: Vec<String>,
}

impl Spelling {
    pub(super) fn of_head(bytes: &[u8]) -> Spelling {
        let name = |line: &[u8]| {
            let end = line.iter().position(|byte| *byte == b':')?;
            Some(std::str::from_utf8(&line[..end]).ok()?.to_owned())
        };
        let is_blank = |line: &&[u8]| line.trim_ascii().is_empty();
        // In front of it there may be empty lines, or the rest of a body that nobody wanted.
        let start = bytes.split(|byte| *byte == b'\n').position(is_request_line);
        let lines = || bytes.split(|byte| *byte == b'\n').skip(start.unwrap_or(0)).skip_while(is_blank);
        let length = lines().take_while(|line| !is_blank(line)).count();
        Spelling { names: lines().take(length).filter_map(name).collect() }
    }

    /// The spelling of a name in lower case. Of two the first counts.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> &'a str {
        self.names.iter().find(|spelled| spelled.eq_ignore_ascii_case(name)).map_or(name, |spelled| spelled)
    }
}

/// The library takes no other.
fn is_request_line(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")
}

/// A stream that spells the names of an answer on its way out.
#[derive(Debug)]
pub(super) struct Respelled<S> {
    stream: S,
    heads: Heads,
}

impl<S> Respelled<S> {
    pub(super) fn new(stream: S, heads: Heads) -> Respelled<S> {
        Respelled { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Respelled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Respelled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let heads = self.heads.clone();
        let mut seen = heads.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_writing = true;
        let Some(answer) = &mut seen.answer else {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        };
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &answer.of(bytes)))?;
        if answer.leaves(&bytes[..written]) {
            seen.answer = None;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_respelled = {
            let mut seen = self.heads.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.is_writing = true;
            seen.answer.is_some()
        };
        match slices.iter().find(|slice| !slice.is_empty()) {
            Some(head) if is_respelled => self.poll_write(cx, head),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.heads.0.lock().unwrap_or_else(PoisonError::into_inner).is_writing = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

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
        heads.expect(None);
        heads.add(b"Thr");
        heads.add(b"ee: 3\n");
        let spelling = heads.take();
        assert_eq!((spelling.of("two"), spelling.of("three")), ("two", "Three"));
        assert_eq!(heads.0.lock().unwrap().bytes.capacity(), 0);
    }

    /// What arrives of these pieces, each of which is taken in two bites.
    async fn arrives(names: &[&str], pieces: &[&str]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let heads = Heads::default();
        heads.expect(Some(Spelled(names.iter().map(ToString::to_string).collect())));
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut near = Respelled::new(near, heads);
        for piece in pieces {
            near.write_all(piece.as_bytes()).await.unwrap();
        }
        drop(near);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        text
    }

    // K-30
    #[tokio::test]
    async fn the_names_of_an_answer_are_spelled_as_they_were_sent_and_its_body_is_as_it_is() {
        let names = ["OrderId", "A", "a", "absent"];
        let head = "HTTP/1.1 200 OK\r\norderid: 7\r\na: orderid\r\na: 2\r\nother: 1\r\n\r\n";
        let spelled = "HTTP/1.1 200 OK\r\nOrderId: 7\r\nA: orderid\r\na: 2\r\nother: 1\r\n\r\n";
        let body = "orderid: 8\r\n\r\nHTTP/1.1 200\r\norderid: 9\r\n\r\n";
        assert_eq!(arrives(&names, &[head, body]).await, format!("{spelled}{body}"));
        let whole = format!("{head}{body}");
        assert_eq!(arrives(&names, &[&whole]).await, format!("{spelled}{body}"));
        let (one, two) = head.split_at("HTTP/1.1 200 OK\r\norderid: 7\r\n".len());
        assert_eq!(arrives(&names, &[one, two, body]).await, format!("{spelled}{body}"));
        let before = "HTTP/1.1 100 Continue\r\n\r\n";
        let whole = format!("{before}{head}");
        assert_eq!(arrives(&names, &[&whole, body]).await, format!("{before}{spelled}{body}"));
        assert_eq!(arrives(&names, &[before, head, body]).await, format!("{before}{spelled}{body}"));
    }

    #[test]
    fn an_answer_behind_one_that_is_still_leaving_keeps_its_letters() {
        let heads = Heads::default();
        heads.0.lock().unwrap().is_writing = true;
        heads.expect(Some(Spelled(vec!["A".into()])));
        assert!(heads.0.lock().unwrap().answer.is_none());
    }
}
