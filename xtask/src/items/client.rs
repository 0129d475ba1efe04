//! A connection to the items' door: HTTP/1.1 in plain text, one request at a time, every request signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The key that every client of the official emulator knows; it counts on loopback.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
pub const DATABASE: &str = "d";
/// Nothing that is measured takes as long as this.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is asked: a method, the resource's type and link as they are signed, and the path.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    pub kind: &'a str,
    pub link: &'a str,
    pub path: &'a str,
    /// Whole lines, each with its end.
    pub headers: &'a str,
    pub body: &'a [u8],
}

#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    key: Hmac<Sha256>,
    date: (u64, String),
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of the answer's head; 0 while it is not whole.
    head: usize,
    /// Bytes of the whole answer, when its head is there.
    whole: usize,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What came back: the head and the body stay in the connection until the next request.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub status: u16,
    pub head: &'a str,
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The answer, if it is a success.
    pub fn accepted(self) -> io::Result<Answer<'a>> {
        match self.status {
            200..300 => Ok(self),
            status => Err(io::Error::other(format!("{status}: {}", String::from_utf8_lossy(self.body)))),
        }
    }
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let key = STANDARD.decode(KEY).map_err(io::Error::other)?;
        let key = Hmac::new_from_slice(&key).map_err(io::Error::other)?;
        let (date, out, input) = Default::default();
        Ok(Connection { stream, key, date, out, input, head: 0, whole: 0 })
    }

    pub fn ask(&mut self, request: Request<'_>) -> io::Result<Answer<'_>> {
        self.send(request)?;
        while !self.receive()? {}
        self.answer()
    }

    /// Sends a request. Its answer is to be received before the next one is sent.
    fn send(&mut self, request: Request<'_>) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.date.0 != now {
            self.date = (now, http_date(now));
        }
        let Request { method, kind, link, path, headers, body } = request;
        let date = &self.date.1;
        let mut mac = self.key.clone();
        let (verb, lower) = (method.to_ascii_lowercase(), date.to_ascii_lowercase());
        [&verb, "\n", kind, "\n", link, "\n", &lower, "\n\n"]
            .iter()
            .for_each(|part| mac.update(part.as_bytes()));
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        self.out.clear();
        write!(
            self.out,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nx-ms-version: 2020-07-15\r\n\
             authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        )?;
        self.out.extend_from_slice(body);
        self.stream.write_all(&self.out)?;
        self.input.clear();
        self.head = 0;
        Ok(())
    }

    /// Reads what has come of an answer, or waits for it; says whether the answer is whole.
    pub fn receive(&mut self) -> io::Result<bool> {
        let searched = self.input.len().saturating_sub(3);
        self.read_more()?;
        if self.head == 0 {
            let found = self.input[searched..].windows(4).position(|four| four == b"\r\n\r\n");
            let Some(at) = found else { return Ok(false) };
            self.head = searched + at + 4;
            let length = self.answer()?.header("content-length").and_then(|value| value.parse().ok());
            self.whole = self.head + length.unwrap_or(0);
        }
        Ok(self.input.len() >= self.whole)
    }

    /// The answer, when it is whole.
    pub fn answer(&self) -> io::Result<Answer<'_>> {
        let head = std::str::from_utf8(&self.input[..self.head]).map_err(io::Error::other)?;
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {head:?}")))?;
        Ok(Answer { status, head, body: &self.input[self.head..] })
    }

    fn read_more(&mut self) -> io::Result<()> {
        let before = self.input.len();
        self.input.resize(before + 16 * 1024, 0);
        let read = self.stream.read(&mut self.input[before..]);
        self.input.truncate(before + *read.as_ref().unwrap_or(&0));
        if read? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    pub fn create_database(&mut self) -> io::Result<()> {
        let body = format!(r#"{{"id":"{DATABASE}"}}"#);
        let request = Request {
            method: "POST",
            kind: "dbs",
            link: "",
            path: "/dbs",
            headers: "",
            body: body.as_bytes(),
        };
        self.ask(request)?.accepted().map(drop)
    }

    pub fn create_container(&mut self, definition: &str) -> io::Result<()> {
        let (link, path) = (format!("dbs/{DATABASE}"), format!("/dbs/{DATABASE}/colls"));
        let body = definition.as_bytes();
        let request = Request { method: "POST", kind: "colls", link: &link, path: &path, headers: "", body };
        self.ask(request)?.accepted().map(drop)
    }

    pub fn send_upsert(&mut self, container: &str, key: &str, body: &[u8]) -> io::Result<()> {
        let link = format!("dbs/{DATABASE}/colls/{container}");
        let path = format!("/{link}/docs");
        let headers = format!(
            "x-ms-documentdb-partitionkey: [\"{key}\"]\r\nx-ms-documentdb-is-upsert: True\r\ncontent-type: application/json\r\n"
        );
        let request =
            Request { method: "POST", kind: "docs", link: &link, path: &path, headers: &headers, body };
        self.send(request)
    }

    pub fn read(&mut self, container: &str, key: &str, id: &str) -> io::Result<()> {
        self.send_read(container, key, id)?;
        while !self.receive()? {}
        self.answer()?.accepted().map(drop)
    }

    pub fn send_read(&mut self, container: &str, key: &str, id: &str) -> io::Result<()> {
        let link = format!("dbs/{DATABASE}/colls/{container}/docs/{id}");
        let path = format!("/{link}");
        let headers = format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n");
        let request =
            Request { method: "GET", kind: "docs", link: &link, path: &path, headers: &headers, body: b"" };
        self.send(request)
    }

    /// Runs a query to its end; says how many rows it had, and on how many pages.
    pub fn query(&mut self, container: &str, text: &str) -> io::Result<(u64, u64)> {
        let link = format!("dbs/{DATABASE}/colls/{container}");
        let path = format!("/{link}/docs");
        let body = serde_json::json!({ "query": text, "parameters": [] }).to_string();
        let (mut rows, mut pages, mut continuation) = (0, 0, String::new());
        loop {
            let headers = format!(
                "x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\nx-ms-max-item-count: -1\r\n\
                 x-ms-documentdb-query-enablecrosspartition: True\r\n{continuation}"
            );
            let body = body.as_bytes();
            let request =
                Request { method: "POST", kind: "docs", link: &link, path: &path, headers: &headers, body };
            let answer = self.ask(request)?.accepted()?;
            rows += answer.header("x-ms-item-count").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            pages += 1;
            match answer.header("x-ms-continuation") {
                Some(next) => continuation = format!("x-ms-continuation: {next}\r\n"),
                None => return Ok((rows, pages)),
            }
        }
    }

    /// How many items a container holds, as its quota headers tell: with those that have expired and are not removed yet.
    pub fn stored(&mut self, container: &str) -> io::Result<String> {
        let link = format!("dbs/{DATABASE}/colls/{container}");
        let path = format!("/{link}");
        let headers = "x-ms-documentdb-populatequotainfo: True\r\n";
        let request = Request { method: "GET", kind: "colls", link: &link, path: &path, headers, body: b"" };
        let answer = self.ask(request)?.accepted()?;
        let usage = answer.header("x-ms-resource-usage").unwrap_or_default();
        let count = usage.split(';').find_map(|part| part.strip_prefix("documentsCount="));
        count.map(str::to_owned).ok_or_else(|| io::Error::other("the container does not tell its count"))
    }

    /// Moves the items' time.
    pub fn advance(&mut self, by: &str) -> io::Result<()> {
        let body = format!(r#"{{"advance":"{by}"}}"#);
        let request = Request {
            method: "POST",
            kind: "$otobus",
            link: "$otobus/clock",
            path: "/$otobus/clock",
            headers: "",
            body: body.as_bytes(),
        };
        self.ask(request)?.accepted().map(drop)
    }
}

/// `Thu, 01 Jan 1970 00:00:00 GMT`.
fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = DAYS[(day % 7) as usize];
    // Years that begin in March, so that the leap day is the last of its year.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    let month = MONTHS[month as usize];
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {of_month:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_writes_them() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_493_254_272), "Thu, 27 Apr 2017 00:51:12 GMT");
        assert_eq!(http_date(1_767_225_599), "Wed, 31 Dec 2025 23:59:59 GMT");
    }
}
