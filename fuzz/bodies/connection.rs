//! Any bytes, sent to a server in pieces of any length, and what the server says, read by its peer.
//!
//! How the bytes are cut changes nothing: the same events come and the same bytes leave. Everything that leaves is frames that
//! can be read and are no longer than was agreed. No link gets more deliveries than its client asked for, nothing is heard of a
//! link that is gone, and a stranger costs at most 128 KiB.
//!
//! The first byte chooses how the bytes are cut and whether the peer has a claim; by its highest bit a handshake is put in
//! front, so that the bytes are the frames of a session.

use otobus_amqp::frame::{self, AMQP_HEADER, Kind, SASL_HEADER};
use otobus_amqp::limits::{FRAME_NODES, OUTGOING_FRAME_BYTES};
use otobus_amqp::performative::{Begin, Open, Performative};
use otobus_amqp::sasl::Sasl;
use otobus_amqp::{AttachReply, Config, Connection, Error, Event, LinkKey, SaslCode, Sent, State};
use std::collections::HashMap;

/// What a stranger may make a connection hold.
const STRANGER_BYTES: usize = 128 * 1024;

/// The largest frame that the client of a handshake in front takes: messages of the door below do not fit one.
const SMALL_FRAME: u32 = 512;

const HAS_CLAIM: u8 = 1;
const HAS_HANDSHAKE: u8 = 0x80;

/// Pieces in which bytes arrive, over and over.
const CUTS: [&[usize]; 4] = [&[1], &[3, 7, 1], &[64], &[8, 500]];

pub fn run(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else { return };
    let mut bytes = if flags & HAS_HANDSHAKE != 0 { handshake() } else { Vec::new() };
    bytes.extend_from_slice(rest);

    let mut whole = Door::new(flags);
    let mut events = Vec::new();
    let mut input = &bytes[..];
    whole.take(&mut input, |event| events.push(event.clone()));

    let mut cut = Door::new(flags);
    let mut unread = Vec::new();
    let mut expected = events.iter();
    let sizes = CUTS[usize::from(flags >> 1) % CUTS.len()].iter().cycle();
    let mut left = &bytes[..];
    for size in sizes {
        let (piece, rest) = left.split_at(left.len().min(*size));
        unread.extend_from_slice(piece);
        left = rest;
        let mut input = &unread[..];
        cut.take(&mut input, |event| {
            assert_eq!(Some(event), expected.next(), "cut, the bytes mean something else")
        });
        let taken = unread.len() - input.len();
        unread.drain(..taken);
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(expected.next(), None, "cut, the bytes mean less");
    assert!(whole.said == cut.said, "cut, the bytes are answered otherwise");
    let limit = if flags & HAS_HANDSHAKE != 0 { SMALL_FRAME } else { OUTGOING_FRAME_BYTES };
    read_output(&whole.said, limit);
}

/// A conversation up to the first session.
fn handshake() -> Vec<u8> {
    let mut bytes = AMQP_HEADER.to_vec();
    let open = Open { container_id: "peer".into(), max_frame_size: SMALL_FRAME, ..Open::default() };
    Performative::Open(Box::new(open)).write(&mut bytes, 0, &[]);
    let begin = Begin { incoming_window: 5, ..Begin::default() };
    Performative::Begin(Box::new(begin)).write(&mut bytes, 0, &[]);
    bytes
}

/// Every answer is frames, each within what was agreed, that the peer can read.
fn read_output(mut said: &[u8], limit: u32) {
    while !said.is_empty() {
        if let Some(rest) = said.strip_prefix(&AMQP_HEADER).or_else(|| said.strip_prefix(&SASL_HEADER)) {
            said = rest;
            continue;
        }
        let frame = frame::split(&mut said, limit).expect("a frame of ours is sound").expect("it is whole");
        let mut nodes = FRAME_NODES;
        match frame.kind {
            Kind::Sasl => drop(Sasl::decode(frame.body, &mut nodes).expect("ours can be read")),
            Kind::Amqp if frame.body.is_empty() => {}
            Kind::Amqp => drop(Performative::decode(frame.body, &mut nodes).expect("ours can be read")),
        }
    }
}

/// A door that answers everything it is asked, each time in the same way.
struct Door {
    connection: Connection,
    is_stranger: bool,
    said: Vec<u8>,
    /// What each link may still be sent.
    credit: HashMap<LinkKey, u32>,
    streaming: Option<LinkKey>,
}

impl Door {
    fn new(flags: u8) -> Door {
        let mut connection = Connection::new(Config::default(), 0);
        let is_stranger = flags & HAS_CLAIM == 0;
        if !is_stranger {
            connection.authenticated();
        }
        Door { connection, is_stranger, said: Vec::new(), credit: HashMap::new(), streaming: None }
    }

    fn take<'a>(&mut self, input: &mut &'a [u8], mut seen: impl FnMut(&Event<'a>)) {
        loop {
            let event = self.connection.next(input, 0);
            if let Some(event) = &event {
                seen(event);
                self.answer(event);
            }
            if self.is_stranger {
                let held = self.connection.held_bytes();
                assert!(held <= STRANGER_BYTES, "a stranger makes us hold {held} bytes");
            }
            let was_choked = self.connection.is_choked();
            self.said.append(self.connection.output());
            if event.is_none() && !was_choked {
                return;
            }
        }
    }

    fn answer(&mut self, event: &Event<'_>) {
        let connection = &mut self.connection;
        match event {
            Event::SaslInit { mechanism, .. } => {
                connection.sasl_outcome(if *mechanism == "PLAIN" { SaslCode::Auth } else { SaslCode::Ok });
            }
            Event::Attach { link, attach, replaced, .. } => {
                replaced
                    .iter()
                    .for_each(|link| assert!(connection.session_of(*link).is_none(), "it is there"));
                assert!(self.credit.insert(*link, 0).is_none(), "a link is attached twice");
                match attach.name.len() % 5 {
                    0 => connection.refuse(*link, &Error::new("amqp:not-found", "no")),
                    1 => {}
                    kind => {
                        let max_message_size = Some(if kind == 2 { 100 } else { 100_000 });
                        connection.accept(*link, AttachReply { max_message_size, ..AttachReply::default() });
                        connection.grant(*link, 10);
                    }
                }
            }
            Event::Flow { link, credit, drain, .. } => {
                *self.credit.get_mut(link).expect("a flow of a link that is there") = *credit;
                self.send(*link);
                if *drain {
                    self.connection.drained(*link);
                    self.credit.insert(*link, 0);
                }
            }
            Event::Window { .. } => self.stream(),
            Event::Unheard { .. } => {}
            Event::Transfer { link, delivery_id, more, settled, payload, aborted, .. } => {
                assert!(self.credit.contains_key(link), "a transfer of a link that is gone");
                assert!(!aborted || payload.is_empty());
                match payload.first() {
                    Some(b'd') => connection.detach(*link, Some(&Error::new("amqp:not-allowed", "no"))),
                    Some(b'e') => {
                        if let Some(session) = connection.session_of(*link) {
                            connection.end(session, None);
                        }
                    }
                    Some(b'p') => connection.passed_on(*link, payload.len() as u64),
                    Some(b'c') => connection.close(None),
                    _ => {}
                }
                if !more && !settled && !aborted {
                    connection.settle_incoming(*link, *delivery_id, *delivery_id, &State::Accepted);
                }
            }
            Event::TooLarge { link, .. } => {
                assert!(self.credit.contains_key(link), "too much of a link that is gone");
            }
            Event::Disposition { session, first, last, settled, .. } => {
                let mut found = Vec::new();
                connection
                    .outstanding(*session, *first, *last, *settled, |link, id, _| found.push((link, id)));
                for (link, id) in found.into_iter().filter(|_| !settled) {
                    connection.settle_outgoing(link, id, id, &State::Accepted);
                }
            }
            // One half of them stays until another link or the end of its session takes its place.
            Event::Leaving { link } if link.0 % 2 == 0 => {
                connection.end_leaving(*link);
                self.forget(*link);
            }
            Event::Leaving { link } => assert!(!connection.can_send(*link) && !connection.has_settled(*link)),
            Event::Detach { link, .. } => self.forget(*link),
            Event::End { links, .. } => links.iter().for_each(|link| self.forget(*link)),
            Event::Open { .. } | Event::Close { .. } | Event::Closed { .. } => {}
        }
    }

    /// Two small messages, one that needs several frames, and one piece by piece.
    fn send(&mut self, link: LinkKey) {
        for length in [7, 7, 1_200] {
            let sent = self
                .connection
                .send(link, &[1; 16], length == 7, 0, |out| out.resize(out.len() + length, b'm'));
            self.count(link, sent);
        }
        let sent = self.connection.begin_stream(link, &[2; 16], false, 0);
        if self.count(link, sent) {
            self.streaming = Some(link);
        }
        self.stream();
    }

    fn stream(&mut self) {
        if let Some(link) = self.streaming
            && self.connection.stream(link, &[b's'; 700], true) != Some(0)
        {
            self.streaming = None;
        }
    }

    fn count(&mut self, link: LinkKey, sent: Sent) -> bool {
        let is_sent = matches!(sent, Sent::Delivery(_));
        if is_sent {
            let credit = self.credit.get_mut(&link).expect("a link that is there");
            *credit = credit.checked_sub(1).expect("no more than the client asked for");
        }
        is_sent
    }

    fn forget(&mut self, link: LinkKey) {
        self.credit.remove(&link);
        self.streaming.take_if(|streaming| *streaming == link);
    }
}
