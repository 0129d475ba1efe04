//! One client connection, server side: bytes in, events out; answers in, bytes out.
//!
//! The machine writes what the protocol alone decides (headers, open, begin, end, detach, close, window flows,
//! heartbeats); the door decides the rest. Any violation closes the connection with the condition the specification
//! names. Time comes in as milliseconds of a clock that never runs backwards. See [`receive`] and [`arrive`] for what comes
//! in, [`answer`], [`send`] and [`stream`] for what goes out.

mod answer;
mod arrive;
mod event;
mod output;
mod receive;
mod send;
mod stream;

pub use event::{AttachReply, Config, Event, LinkKey, Sent, SessionKey};

use crate::condition::{CONNECTION_FORCED, FRAME_SIZE_TOO_SMALL, FRAMING_ERROR};
use crate::frame::{self, AMQP_HEADER, Kind, SASL_HEADER};
use crate::keyed::Keyed;
use crate::limits::{
    CLOSING_MS, LINK_COST, LINKS_PER_SESSION, MIN_FRAME_BYTES, MIN_IDLE_TIME_OUT_MS, SESSION_COST, SESSIONS,
    SILENT_PERIODS, UNREAD_OUTPUT_BYTES, UNREAD_OUTPUT_BYTES_BEFORE_CLAIM, UNSETTLED_COST,
};
use crate::link::Link;
use crate::performative::{Close, Error, Open};
use crate::sasl::{Sasl, SaslCode};
use crate::session::{Session, Weight};
use output::Output;
use std::collections::BTreeSet;

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing came yet; a SASL header must, or an AMQP header of somebody who stays anonymous (K-5).
    SaslHeader,
    /// The mechanisms were written; an init must come.
    SaslInit,
    /// The door decides.
    SaslDecision,
    /// SASL went well; an AMQP header must come.
    AmqpHeader,
    /// Our header was written; an open must come.
    Opening,
    Active,
    /// We wrote our close and wait for the client's.
    Closing,
    Closed,
}

#[derive(Debug)]
pub struct Connection {
    config: Config,
    phase: Phase,
    has_claim: bool,
    out: Output,
    sessions: Keyed<Session>,
    /// Session keys by channel.
    channels: Vec<u32>,
    links: Keyed<Link>,
    /// Links that the client has detached and whose deliveries it may still settle.
    leaving: BTreeSet<LinkKey>,
    /// Bytes of deliveries that are still arriving, over all links.
    arriving_bytes: u64,
    /// What the sessions hold, over all of them.
    weight: Weight,
    /// What the attaches of all links took.
    attaches_bytes: usize,
    last_received: u64,
    closing_since: u64,
    peer_idle_time_out: Option<u32>,
    /// Events that come from the same frame as one already given.
    opened_window: Option<SessionKey>,
    /// Why we closed, until the door was told.
    parting: Option<Error>,
}

/// What a step through the input led to.
enum Step<'a> {
    Event(Event<'a>),
    Onward,
    /// More bytes, or an answer of the door, are needed.
    Starved,
}

impl Connection {
    pub fn new(config: Config, now: u64) -> Connection {
        let config = Config {
            max_frame_size: config.max_frame_size.max(MIN_FRAME_BYTES),
            channel_max: config.channel_max.min(SESSIONS - 1),
            handle_max: config.handle_max.min(LINKS_PER_SESSION - 1),
            ..config
        };
        Connection {
            config,
            phase: Phase::SaslHeader,
            has_claim: false,
            out: Output::new(now),
            sessions: Keyed::new(),
            channels: Vec::new(),
            links: Keyed::new(),
            leaving: BTreeSet::new(),
            arriving_bytes: 0,
            weight: Weight::default(),
            attaches_bytes: 0,
            last_received: now,
            closing_since: now,
            peer_idle_time_out: None,
            opened_window: None,
            parting: None,
        }
    }

    /// Takes complete frames from the front of `input` until one makes an event; the rest stays in `input`.
    ///
    /// `None`: everything complete was taken and more bytes are needed, the door has yet to call
    /// [`Connection::sasl_outcome`], or the output must be drained first ([`Connection::is_choked`]). After a violation the
    /// closing frames are in the output, [`Event::Closed`] is given once, and [`Connection::is_closed`] holds.
    pub fn next<'a>(&mut self, input: &mut &'a [u8], now: u64) -> Option<Event<'a>> {
        self.out.now = now;
        loop {
            if self.out.is_overfull {
                let limit = self.out.max_frame_bytes;
                self.fail(Error::new(FRAME_SIZE_TOO_SMALL, format!("an answer does not fit {limit} bytes")));
            }
            if let Some(reason) = self.parting.take() {
                return Some(Event::Closed { reason });
            }
            if self.phase == Phase::Closed {
                *input = &[];
                return None;
            }
            if let Some(session) = self.opened_window.take() {
                return Some(Event::Window { session });
            }
            if self.is_choked() {
                return None;
            }
            match self.step(input) {
                Ok(Step::Event(event)) => return Some(event),
                Ok(Step::Onward) => {}
                Ok(Step::Starved) => return None,
                Err(violation) => self.fail(violation),
            }
        }
    }

    /// Whether so much output waits for the peer that nothing more is taken from it. Draining the output ends it.
    pub fn is_choked(&self) -> bool {
        let most = if self.has_claim { UNREAD_OUTPUT_BYTES } else { UNREAD_OUTPUT_BYTES_BEFORE_CLAIM };
        self.out.bytes.len() >= most
    }

    /// What this connection makes us hold, in bytes: what was read and is not whole, twice, for vectors grow by doubling; what
    /// waits to be written; sessions, links, and deliveries that are not settled.
    pub fn held_bytes(&self) -> usize {
        self.out.bytes.capacity()
            + self.weight.held_bytes
            + self.weight.unsettled * UNSETTLED_COST
            + 2 * self.arriving_bytes as usize
            + self.sessions.len() * SESSION_COST
            + self.links.len() * LINK_COST
            + self.attaches_bytes
    }

    /// Bytes of deliveries that have not ended, as far as they are held.
    pub fn arriving_bytes(&self) -> u64 {
        self.arriving_bytes
    }

    /// Bytes of frames that wait for the windows of their sessions.
    pub fn held_frames_bytes(&self) -> usize {
        self.weight.held_bytes
    }

    /// Bytes to write, in order; the caller drains them.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out.bytes
    }

    /// Whether the connection is over and only the output is left to write.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// A claim was accepted: lifts the limits for strangers.
    pub fn authenticated(&mut self) {
        self.has_claim = true;
    }

    /// Answers [`Event::SaslInit`]. Any code but `Ok` ends the connection.
    pub fn sasl_outcome(&mut self, code: SaslCode) {
        if self.phase != Phase::SaslDecision {
            return;
        }
        Sasl::Outcome { code, additional_data: None }.write(&mut self.out.bytes);
        self.phase = if code == SaslCode::Ok { Phase::AmqpHeader } else { Phase::Closed };
    }

    /// Writes an empty frame when half the peer's idle time-out has passed without output, and gives up a peer that
    /// was silent for two of ours or does not answer our close: [`Event::Closed`] is then next.
    pub fn heartbeat(&mut self, now: u64) {
        self.out.now = now;
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        if self.silence_deadline().is_some_and(|deadline| now >= deadline) {
            let reason = format!("nothing was heard for {} ms", now - self.last_received);
            self.fail(Error::new(CONNECTION_FORCED, reason));
        } else if self.heartbeat_deadline().is_some_and(|deadline| now >= deadline) {
            self.out.raw(&frame::EMPTY);
        }
    }

    /// When [`Connection::heartbeat`] must be called next.
    pub fn next_deadline(&self) -> Option<u64> {
        match (self.heartbeat_deadline(), self.silence_deadline()) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        }
    }

    /// Closes the connection from our side. [`Event::Close`] follows when the client has answered, or
    /// [`Event::Closed`] when it has not.
    pub fn close(&mut self, error: Option<&Error>) {
        match self.phase {
            Phase::Active => {
                let close = Close { error: error.cloned() };
                self.out.frame(0, |out| close.encode(out));
                self.phase = Phase::Closing;
                self.closing_since = self.out.now;
            }
            Phase::Closing | Phase::Closed => {}
            _ => {
                let reason = error.cloned().unwrap_or_else(|| Error::new(CONNECTION_FORCED, "closed"));
                self.fail(reason);
            }
        }
    }

    fn heartbeat_deadline(&self) -> Option<u64> {
        let peer = self.peer_idle_time_out?;
        (self.phase == Phase::Active).then_some(self.out.last_written + u64::from(peer / 2))
    }

    fn silence_deadline(&self) -> Option<u64> {
        let period = u64::from(self.config.idle_time_out);
        match self.phase {
            Phase::Closed => None,
            Phase::Closing => Some(self.closing_since + CLOSING_MS),
            _ => (period > 0).then_some(self.last_received + SILENT_PERIODS * period),
        }
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Error> {
        match self.phase {
            Phase::SaslHeader => self.take_header(input, &[SASL_HEADER, AMQP_HEADER]),
            Phase::SaslInit => self.take_sasl_init(input),
            Phase::AmqpHeader => self.take_header(input, &[AMQP_HEADER]),
            Phase::SaslDecision | Phase::Closed => Ok(Step::Starved),
            Phase::Opening | Phase::Active | Phase::Closing => self.take_frame(input),
        }
    }

    fn take_header<'a>(&mut self, input: &mut &'a [u8], expected: &[[u8; 8]]) -> Result<Step<'a>, Error> {
        let Some((header, rest)) = input.split_first_chunk::<8>() else {
            // A stranger who speaks another protocol may never send eight bytes.
            let is_prefix = expected.iter().any(|header| header.starts_with(input));
            return if is_prefix { Ok(Step::Starved) } else { Err(unknown_protocol()) };
        };
        if !expected.contains(header) {
            return Err(unknown_protocol());
        }
        *input = rest;
        self.last_received = self.out.now;
        self.out.raw(header);
        if *header == SASL_HEADER {
            let names = self.config.mechanisms.iter().map(|name| (*name).to_owned()).collect();
            Sasl::Mechanisms(names).write(&mut self.out.bytes);
            self.phase = Phase::SaslInit;
        } else {
            self.phase = Phase::Opening;
        }
        Ok(Step::Onward)
    }

    fn take_sasl_init<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Error> {
        let Some(frame) = frame::split(input, MIN_FRAME_BYTES).map_err(broken)? else {
            return Ok(Step::Starved);
        };
        self.last_received = self.out.now;
        if frame.kind != Kind::Sasl {
            return Err(Error::new(FRAMING_ERROR, "an AMQP frame came before the SASL exchange ended"));
        }
        let mut nodes = 0;
        match Sasl::decode(frame.body, &mut nodes).map_err(malformed)? {
            Sasl::Init { mechanism, initial_response, hostname } => {
                self.phase = Phase::SaslDecision;
                Ok(Step::Event(Event::SaslInit { mechanism, initial_response, hostname }))
            }
            _ => Err(Error::new(FRAMING_ERROR, "a SASL frame other than init came first")),
        }
    }

    /// Ends the connection for `reason`, with as much ceremony as its phase allows.
    fn fail(&mut self, reason: Error) {
        self.out.is_overfull = false;
        match self.phase {
            // AMQP 1.0 part 2, 2.2: the answer to an unknown header is the one that would have been right.
            Phase::SaslHeader => self.out.raw(&SASL_HEADER),
            Phase::AmqpHeader => self.out.raw(&AMQP_HEADER),
            Phase::SaslInit | Phase::SaslDecision | Phase::Closing | Phase::Closed => {}
            Phase::Opening => {
                self.write_open();
                self.write_parting(&reason);
            }
            Phase::Active => self.write_parting(&reason),
        }
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.parting = Some(reason);
        }
    }

    fn write_parting(&mut self, reason: &Error) {
        let close = Close { error: Some(reason.clone()) };
        self.out.frame(0, |out| close.encode(out));
        self.out.is_overfull = false;
    }

    fn write_open(&mut self) {
        let Config { ref container_id, max_frame_size, channel_max, idle_time_out, ref properties, .. } =
            self.config;
        let open = Open {
            container_id: container_id.clone(),
            max_frame_size,
            channel_max,
            idle_time_out: (idle_time_out > 0).then_some(idle_time_out),
            properties: properties.clone(),
            ..Open::default()
        };
        self.out.frame(0, |out| open.encode(out));
    }

    fn take_peer_idle_time_out(&mut self, idle_time_out: Option<u32>) {
        let asked = idle_time_out.filter(|period| *period > 0);
        self.peer_idle_time_out = asked.map(|period| period.max(MIN_IDLE_TIME_OUT_MS));
    }
}

/// Counts what a session holds now.
fn recount(total: &mut Weight, session: &mut Session) {
    let now = session.weight();
    total.held_bytes = total.held_bytes - session.counted.held_bytes + now.held_bytes;
    total.unsettled = total.unsettled - session.counted.unsettled + now.unsettled;
    session.counted = now;
}

fn unknown_protocol() -> Error {
    Error::new(FRAMING_ERROR, "the protocol header is not the one expected")
}

fn broken(reason: frame::Broken) -> Error {
    Error::new(FRAMING_ERROR, reason.to_string())
}

fn malformed(reason: message::Malformed) -> Error {
    Error::new(crate::condition::DECODE_ERROR, reason.to_string())
}
