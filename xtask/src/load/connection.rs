//! One connection with one session and one link: login, attach, frames in and out.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use super::codec::{Fields, Reader, Writer, malformed};
use super::{KEY, POLICY, Place};

const OPEN: u8 = 0x10;
const BEGIN: u8 = 0x11;
const ATTACH: u8 = 0x12;
pub const FLOW: u8 = 0x13;
pub const TRANSFER: u8 = 0x14;
pub const DISPOSITION: u8 = 0x15;
const DETACH: u8 = 0x16;
const CLOSE: u8 = 0x18;
const SASL_MECHANISMS: u8 = 0x40;
const SASL_INIT: u8 = 0x41;
const SASL_OUTCOME: u8 = 0x44;
const SOURCE: u8 = 0x28;
const TARGET: u8 = 0x29;

/// Room for a whole window of messages, so that one read takes what one sync released.
const BUFFER_BYTES: usize = 1 << 20;
/// Our session's windows: never the limit of a measurement.
pub const SESSION_WINDOW: u32 = i32::MAX as u32;
/// No broker is silent this long while messages are in flight.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    pub out: Writer,
    input: Vec<u8>,
    unread: Range<usize>,
    /// Deliveries the broker will still take on this link, and transfers in this session.
    pub credit: u32,
    pub window: u32,
    /// Transfers sent by us in this session; on one link also its delivery-count.
    pub sent: u32,
    /// The broker's number for its next transfer, as we must repeat it in each flow.
    pub next_incoming: u32,
}

impl Connection {
    /// Connects, logs in and attaches one link.
    pub fn open(place: &Place, role: Role) -> io::Result<Connection> {
        let stream = TcpStream::connect(place.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut connection = Connection {
            stream,
            out: Writer(Vec::with_capacity(BUFFER_BYTES)),
            input: vec![0; BUFFER_BYTES],
            unread: 0..0,
            credit: 0,
            window: 0,
            sent: 0,
            next_incoming: 0,
        };
        connection.log_in()?;
        connection.attach(&place.queue, role)?;
        Ok(connection)
    }

    fn log_in(&mut self) -> io::Result<()> {
        self.exchange_header(3)?;
        self.wait_for(SASL_MECHANISMS)?;
        let response = format!("\0{POLICY}\0{KEY}");
        self.out.frame(1, |w| {
            w.list(SASL_INIT, |w| {
                w.symbol("PLAIN");
                w.binary(response.as_bytes());
                w.string("localhost");
                3
            });
        });
        self.flush()?;
        self.wait_for(SASL_OUTCOME)?;
        self.exchange_header(0)
    }

    fn attach(&mut self, queue: &str, role: Role) -> io::Result<()> {
        self.out.frame(0, |w| {
            w.list(OPEN, |w| {
                w.string("otobus-load");
                w.string("localhost");
                2
            });
        });
        self.out.frame(0, |w| {
            w.list(BEGIN, |w| {
                w.null();
                w.uint(0);
                w.uint(SESSION_WINDOW);
                w.uint(SESSION_WINDOW);
                4
            });
        });
        let terminus = |w: &mut Writer, code: u8, address: &str| {
            w.list(code, |w| {
                w.string(address);
                1
            });
        };
        self.out.frame(0, |w| {
            w.list(ATTACH, |w| {
                w.string("load");
                w.uint(0);
                w.boolean(role == Role::Receiver);
                // Peek-lock as the SDKs ask for it: unsettled, and a receiver settles in two steps.
                w.ubyte(0);
                w.ubyte(u8::from(role == Role::Receiver));
                terminus(w, SOURCE, if role == Role::Receiver { queue } else { "load" });
                terminus(w, TARGET, if role == Role::Sender { queue } else { "load" });
                w.null();
                w.null();
                if role == Role::Sender {
                    w.uint(0)
                } else {
                    w.null()
                }
                10
            });
        });
        self.flush()?;
        self.wait_for(ATTACH)?;
        while role == Role::Sender && (self.credit == 0 || self.window == 0) {
            self.wait_for(FLOW)?;
        }
        Ok(())
    }

    fn exchange_header(&mut self, protocol: u8) -> io::Result<()> {
        let header = [b'A', b'M', b'Q', b'P', protocol, 1, 0, 0];
        self.stream.write_all(&header)?;
        while self.unread.len() < header.len() {
            self.fill()?;
        }
        if self.input[self.unread.clone()][..header.len()] != header {
            return Err(malformed("another protocol header"));
        }
        self.unread.start += header.len();
        Ok(())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out.0)?;
        self.out.0.clear();
        Ok(())
    }

    /// How long a read may wait before it ends with `WouldBlock`.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// One read from the socket, waiting for bytes.
    pub fn fill(&mut self) -> io::Result<()> {
        if self.unread.end == self.input.len() || self.unread.is_empty() {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let count = self.stream.read(&mut self.input[self.unread.end..])?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed the connection"));
        }
        self.unread.end += count;
        Ok(())
    }

    /// One read from the socket if there is something to read.
    pub fn fill_if_readable(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let filled = self.fill();
        self.stream.set_nonblocking(false)?;
        match filled {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            filled => filled,
        }
    }

    /// The next whole frame that was read, if there is one; flows, and frames that end the link, are dealt with here.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        loop {
            let Some(bytes) = self.take_frame()? else { return Ok(None) };
            if bytes.is_empty() {
                continue;
            }
            let (code, fields) = Reader(&self.input[bytes.clone()]).list()?;
            match code {
                BEGIN => self.note_begin(bytes.clone())?,
                FLOW => self.note_flow(bytes.clone())?,
                SASL_OUTCOME => expect_success(fields)?,
                DETACH..=CLOSE => {
                    return Err(io::Error::other(format!("the broker refused: {}", fields.text())));
                }
                _ => {}
            }
            let mut reader = Reader(&self.input[bytes]);
            let (code, fields) = reader.list()?;
            return Ok(Some(Frame { code, fields, payload: reader.0 }));
        }
    }

    /// Where the body of the next whole frame is; empty for a frame that only says that the peer lives.
    fn take_frame(&mut self) -> io::Result<Option<Range<usize>>> {
        let bytes = &self.input[self.unread.clone()];
        let Some(size) = bytes.first_chunk::<4>().map(|size| u32::from_be_bytes(*size) as usize) else {
            return Ok(None);
        };
        if !(8..=self.input.len()).contains(&size) {
            return Err(malformed("a frame of a size we cannot hold"));
        }
        if bytes.len() < size {
            return Ok(None);
        }
        let body = usize::from(bytes[4]) * 4;
        let start = self.unread.start;
        self.unread.start += size;
        Ok(Some(start + body.min(size)..start + size))
    }

    fn note_begin(&mut self, bytes: Range<usize>) -> io::Result<()> {
        let (_, mut fields) = Reader(&self.input[bytes]).list()?;
        fields.skip(1)?;
        self.next_incoming = fields.number()?.unwrap_or(0);
        self.window = fields.number()?.unwrap_or(0);
        Ok(())
    }

    /// AMQP 1.0 part 2, 2.5.6 and 2.6.7: what is left of a window or of credit when the peer has seen less than we sent.
    fn note_flow(&mut self, bytes: Range<usize>) -> io::Result<()> {
        let (_, mut fields) = Reader(&self.input[bytes]).list()?;
        let seen = fields.number()?.unwrap_or(0);
        let window = fields.number()?.unwrap_or(0);
        self.window = window.saturating_sub(self.sent.wrapping_sub(seen));
        fields.skip(2)?;
        if fields.number()?.is_some() {
            let counted = fields.number()?.unwrap_or(0);
            let credit = fields.number()?.unwrap_or(0);
            self.credit = credit.saturating_sub(self.sent.wrapping_sub(counted));
        }
        Ok(())
    }

    fn wait_for(&mut self, code: u8) -> io::Result<()> {
        loop {
            while let Some(frame) = self.next_frame()? {
                if frame.code == code {
                    return Ok(());
                }
            }
            self.fill()?;
        }
    }
}

/// A performative the broker sent.
#[derive(Debug)]
pub struct Frame<'a> {
    pub code: u8,
    pub fields: Fields<'a>,
    /// What follows the performative: of a transfer, the message.
    pub payload: &'a [u8],
}

/// A disposition: the deliveries it is about and their outcome.
#[derive(Debug)]
pub struct Disposition {
    pub first: u32,
    pub last: u32,
    pub is_settled: bool,
    pub outcome: Option<u8>,
}

impl Frame<'_> {
    pub fn disposition(&mut self) -> io::Result<Disposition> {
        self.fields.skip(1)?;
        let first = self.fields.number()?.ok_or_else(|| malformed("a disposition about nothing"))?;
        let last = self.fields.number()?.unwrap_or(first);
        Ok(Disposition { first, last, is_settled: self.fields.boolean()?, outcome: self.fields.described()? })
    }
}

fn expect_success(mut outcome: Fields<'_>) -> io::Result<()> {
    match outcome.number()? {
        Some(0) => Ok(()),
        _ => Err(io::Error::other(format!("the broker refused the login of {POLICY}"))),
    }
}
