//! Whether each line of each head on an HTTP/1.1 connection ends with a carriage return and a line feed (RFC 9112, 2.2). The library
//! takes a line feed alone too; somebody before us may not, and see other requests than we do.
//!
//! The bytes are followed on their way to the library: heads line by line, bodies by their length or their chunks. What must
//! always hold: a head is judged before its request is answered, the ones that come early included, and a head whose body cannot
//! be told from what follows counts as wrong.

use crate::limits::HEAD_LINE_KEPT;
use message::planted::is_planted;
use std::sync::{Mutex, PoisonError};

/// What somebody hears whose request is refused for it.
pub(crate) const WRONG: &str =
    "A line of the head ends without a carriage return, or hides where the body ends.";

/// What follows in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailer,
}

/// The heads of a connection, as far as they were read.
#[derive(Debug, Default)]
struct Lines {
    stage: Stage,
    /// The beginning of the line that is being read, and how long it is so far.
    line: Vec<u8>,
    length: usize,
    is_after_return: bool,
    /// Whether the head that is being read has begun, and how long it says that its body is.
    has_begun: bool,
    body: u64,
    is_chunked: bool,
    /// Heads that were read, and asked about.
    read: u64,
    asked: u64,
    /// The first that is wrong.
    wrong: Option<u64>,
}

impl Lines {
    /// These bytes were read.
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.wrong.is_none() {
            let taken = match self.stage {
                Stage::Body(left) | Stage::Chunk(left) => {
                    let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - taken as u64;
                    self.stage = match (self.stage, left) {
                        (Stage::Body(_), 0) => Stage::Head,
                        (Stage::Body(_), left) => Stage::Body(left),
                        (_, 0) => Stage::ChunkSize,
                        (_, left) => Stage::Chunk(left),
                    };
                    taken
                }
                Stage::Head | Stage::ChunkSize | Stage::Trailer => {
                    let end = memchr::memchr(b'\n', bytes);
                    let part = &bytes[..end.unwrap_or(bytes.len())];
                    match end {
                        // Most lines are read whole.
                        Some(_) if self.length == 0 => self.whole_line(part),
                        Some(_) => {
                            self.add(part);
                            self.end_line();
                        }
                        None => self.add(part),
                    }
                    part.len() + usize::from(end.is_some())
                }
            };
            bytes = &bytes[taken..];
        }
    }

    /// Whether the next request is not to be taken.
    fn is_next_wrong(&mut self) -> bool {
        let nth = self.asked;
        self.asked += 1;
        self.wrong.is_some_and(|wrong| wrong <= nth)
    }

    fn add(&mut self, part: &[u8]) {
        let room = HEAD_LINE_KEPT.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        self.length += part.len();
        if let Some(last) = part.last() {
            self.is_after_return = *last == b'\r';
        }
    }

    fn end_line(&mut self) {
        let has_return = std::mem::take(&mut self.is_after_return);
        let length = std::mem::take(&mut self.length) - usize::from(has_return);
        let line = std::mem::take(&mut self.line);
        self.judge(&line[..line.len().min(length)], length, has_return);
        // The room is used again.
        self.line = line;
        self.line.clear();
    }

    /// The same of a line that is here from its beginning, without its line feed.
    fn whole_line(&mut self, line: &[u8]) {
        let has_return = line.last() == Some(&b'\r');
        let line = &line[..line.len() - usize::from(has_return)];
        self.judge(&line[..line.len().min(HEAD_LINE_KEPT)], line.len(), has_return);
    }

    /// Of a line of this length so much was kept.
    fn judge(&mut self, kept: &[u8], length: usize, has_return: bool) {
        match self.stage {
            Stage::Head => self.end_head_line(kept, length, has_return),
            Stage::ChunkSize => {
                let digits = kept.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
                let size =
                    std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                // What is beyond the kept beginning may be digits, too.
                self.stage = match size.filter(|_| has_return && length == kept.len()) {
                    Some(0) => Stage::Trailer,
                    // What it holds ends with a line's end of its own.
                    Some(size) => Stage::Chunk(size.saturating_add(2)),
                    None => return self.wrong = Some(self.read),
                };
            }
            Stage::Trailer if !has_return => self.wrong = Some(self.read),
            Stage::Trailer if length == 0 => self.stage = Stage::Head,
            Stage::Trailer | Stage::Body(_) | Stage::Chunk(_) => {}
        }
    }

    fn end_head_line(&mut self, kept: &[u8], length: usize, has_return: bool) {
        let is_end = length == 0;
        if is_end && !self.has_begun {
            // The library passes over empty lines in front of a head.
            return;
        }
        let is_judged = !(is_end && is_planted("http_head"));
        if !has_return && is_judged || !is_end && !self.note(kept, length) {
            self.wrong = Some(self.read);
        }
        self.has_begun = !is_end;
        if is_end {
            self.read += 1;
            let body = std::mem::take(&mut self.body);
            self.stage = match std::mem::take(&mut self.is_chunked) {
                true => Stage::ChunkSize,
                false if body > 0 => Stage::Body(body),
                false => Stage::Head,
            };
        }
    }

    /// Notes what a line says of the body. False if that is not to be understood.
    fn note(&mut self, kept: &[u8], length: usize) -> bool {
        if let Some(value) = value_of(kept, b"content-length") {
            match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
                Some(body) if length == kept.len() => self.body = body,
                _ => return false,
            }
        }
        if let Some(value) = value_of(kept, b"transfer-encoding") {
            self.is_chunked |= value.to_ascii_lowercase().ends_with(b"chunked");
            return length == kept.len();
        }
        true
    }
}

/// The value in a line, if its header has this name.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (before, behind) = line.split_at_checked(name.len())?;
    let value = behind.strip_prefix(b":")?;
    before.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// What is known of the heads of a connection: the stream adds what is read, the answer to each request asks.
#[derive(Debug, Default)]
pub(crate) struct LineEnds(Mutex<Lines>);

impl LineEnds {
    /// These bytes were read.
    pub(crate) fn add(&self, read: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).feed(read);
    }

    pub(crate) fn is_next_wrong(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_next_wrong()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which requests are wrong, however the bytes are cut.
    fn wrong(stream: &str, requests: usize) -> Vec<usize> {
        let mut found = None;
        for piece in [1, 7, stream.len()] {
            let mut lines = Lines::default();
            stream.as_bytes().chunks(piece).for_each(|bytes| lines.feed(bytes));
            let now: Vec<usize> = (0..requests).filter(|_| lines.is_next_wrong()).collect();
            let first = found.get_or_insert_with(|| now.clone());
            assert_eq!(*first, now, "in pieces of {piece}");
        }
        found.unwrap_or_default()
    }

    const NONE: [usize; 0] = [];
    const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

    #[test]
    fn a_line_feed_alone_is_found_in_any_head_and_nowhere_else() {
        // RFC 9112, 2.2
        let put = |body: &str| format!("PUT / HTTP/1.1\r\nContent-length: {}\r\n\r\n{body}", body.len());
        let chunked =
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\na\n\r\n0\r\nT: 1\r\n\r\n";
        assert_eq!(wrong(&GET.repeat(3), 3), NONE);
        assert_eq!(wrong(&format!("{}{chunked}{GET}", put("a\nb\n\n")), 3), NONE);
        assert_eq!(wrong("GET / HTTP/1.1\nHost: h\r\n\r\n", 1), [0]);
        assert_eq!(wrong("GET / HTTP/1.1\r\nHost: h\r\n\n", 1), [0]);
        let late = "GET / HTTP/1.1\r\nHost: h\nX: 1\r\n\r\n";
        assert_eq!(wrong(&format!("\r\n{GET}{late}{GET}"), 3), [1, 2], "and all that follow");
        assert_eq!(wrong(&format!("{}{late}", put("\n")), 2), [1]);
        assert_eq!(wrong(&format!("{chunked}{late}"), 2), [1]);
    }

    #[test]
    fn a_body_whose_end_is_hidden_is_not_taken() {
        let padded = |name: &str, value: &str| {
            let gap = " ".repeat(HEAD_LINE_KEPT);
            format!("PUT / HTTP/1.1\r\n{name}:{gap}{value}\r\n\r\n")
        };
        for head in [padded("Content-Length", "5"), padded("transfer-encoding", "chunked")] {
            assert_eq!(wrong(&head, 1), [0], "{head}");
        }
        assert_eq!(wrong("PUT / HTTP/1.1\r\nContent-Length: 5, 6\r\n\r\n", 1), [0]);
        assert_eq!(wrong(&padded("X", "5"), 1), NONE);
        let bad = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert_eq!(wrong(&format!("{bad}{GET}"), 2), [1]);
    }

    #[test]
    fn chunks_and_trailers_hide_no_head() {
        let late = "GET / HTTP/1.1\r\nHost: h\nX: 1\r\n\r\n";
        let zeros = "0".repeat(HEAD_LINE_KEPT);
        for body in [
            format!("{zeros}5\r\nhel\r\n\r\n0\r\n\r\n"),
            "5\nhello\r\n0\r\n\r\n".to_owned(),
            "0\r\nX: a\n\nGET / HTTP/1.1\r\n\r\n".to_owned(),
            "0\r\n\nGET / HTTP/1.1\r\n\r\n".to_owned(),
        ] {
            let stream = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}{late}");
            assert_eq!(wrong(&stream, 2), [1], "{body}");
        }
    }
}
