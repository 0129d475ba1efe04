//! A client with no opinions: it writes what a test says and reads what the server wrote.

use otobus_amqp::frame::{self, AMQP_HEADER, Kind, SASL_HEADER};
use otobus_amqp::performative::{Attach, Begin, Detach, Disposition, Flow, Open, Performative, Transfer};
use otobus_amqp::sasl::Sasl;
use otobus_amqp::{
    AnyTarget, AttachReply, Config, Connection, Error, Event, LinkKey, Role, SaslCode, Sent, Source, Target,
};

pub struct Peer {
    pub server: Connection,
    pub now: u64,
    input: Vec<u8>,
}

/// One frame of the server.
#[derive(Debug, PartialEq)]
pub struct Written {
    pub channel: u16,
    pub performative: Performative<'static>,
    pub payload: &'static [u8],
}

impl Peer {
    /// Nothing was said yet.
    pub fn silent() -> Peer {
        Peer::of(Config::default())
    }

    pub fn of(config: Config) -> Peer {
        Peer { server: Connection::new(config, 0), now: 0, input: Vec::new() }
    }

    /// SASL and open are done, by a stranger.
    pub fn stranger(open: Open) -> Peer {
        let mut peer = Peer::silent();
        peer.raw(&SASL_HEADER);
        peer.sasl(&Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None });
        assert!(matches!(peer.events()[..], [Event::SaslInit { .. }]));
        peer.server.sasl_outcome(SaslCode::Ok);
        peer.raw(&AMQP_HEADER);
        peer.give(0, Performative::Open(Box::new(open)));
        assert!(matches!(peer.events()[..], [Event::Open { .. }]));
        peer.server.output().clear();
        peer
    }

    /// SASL, open, claim and one session on channel 0 are done.
    pub fn ready() -> Peer {
        Peer::with_window(5000)
    }

    pub fn with_window(incoming_window: u32) -> Peer {
        Peer::begun(Open { container_id: "test".into(), ..Open::default() }, incoming_window)
    }

    pub fn begun(open: Open, incoming_window: u32) -> Peer {
        let mut peer = Peer::stranger(open);
        peer.server.authenticated();
        peer.begin(0, incoming_window);
        assert_eq!(peer.events(), []);
        peer.server.output().clear();
        peer
    }

    pub fn begin(&mut self, channel: u16, incoming_window: u32) {
        let begin = Begin { incoming_window, outgoing_window: 5000, ..Begin::default() };
        self.give(channel, Performative::Begin(Box::new(begin)));
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    pub fn sasl(&mut self, sasl: &Sasl<'_>) {
        sasl.write(&mut self.input);
    }

    pub fn give(&mut self, channel: u16, performative: Performative<'_>) {
        performative.write(&mut self.input, channel, &[]);
    }

    pub fn transfer(&mut self, transfer: Transfer<'_>, payload: &[u8]) {
        Performative::Transfer(transfer).write(&mut self.input, 0, payload);
    }

    pub fn flow(&mut self, flow: Flow<'_>) {
        let flow = Flow { incoming_window: 5000, next_incoming_id: Some(1), ..flow };
        self.give(0, Performative::Flow(flow));
    }

    pub fn credit(&mut self, handle: u32, credit: u32) {
        self.flow(Flow {
            handle: Some(handle),
            delivery_count: Some(0),
            link_credit: Some(credit),
            ..Flow::default()
        });
    }

    pub fn disposition(&mut self, disposition: Disposition) {
        self.give(0, Performative::Disposition(disposition));
    }

    pub fn detach(&mut self, handle: u32) {
        self.give(0, Performative::Detach(Detach { handle, closed: true, error: None }));
    }

    /// Lets the server read all that was given.
    pub fn events(&mut self) -> Vec<Event<'static>> {
        let bytes: &'static [u8] = Vec::leak(std::mem::take(&mut self.input));
        let mut input = bytes;
        let mut events = Vec::new();
        while let Some(event) = self.server.next(&mut input, self.now) {
            events.push(event);
        }
        self.input.extend_from_slice(input);
        events
    }

    pub fn event(&mut self) -> Event<'static> {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Takes what the server wrote.
    pub fn written(&mut self) -> Vec<Written> {
        let bytes: &'static [u8] = Vec::leak(std::mem::take(self.server.output()));
        let mut input = bytes;
        let mut written = Vec::new();
        while let Some(frame) = frame::split(&mut input, u32::MAX).expect("the server writes frames") {
            assert_eq!(frame.kind, Kind::Amqp);
            let (performative, payload) =
                Performative::decode(frame.body, &mut 10_000).expect("of performatives");
            written.push(Written { channel: frame.channel, performative, payload });
        }
        assert_eq!(input, b"", "whole frames");
        written
    }

    pub fn performatives(&mut self) -> Vec<Performative<'static>> {
        self.written().into_iter().map(|written| written.performative).collect()
    }

    /// Attaches and returns the undecided link.
    pub fn attach(&mut self, attach: Attach) -> LinkKey {
        self.give(0, Performative::Attach(Box::new(attach)));
        match self.event() {
            Event::Attach { link, .. } => link,
            other => panic!("{other:?}"),
        }
    }

    /// A link that the client sends on, accepted with `credit` and a maximum of `bytes`.
    pub fn sender(&mut self, handle: u32, credit: u32, bytes: u64) -> LinkKey {
        let link = self.attach(sender(handle));
        let reply = AttachReply { max_message_size: Some(bytes), ..AttachReply::default() };
        self.server.accept(link, reply);
        self.server.grant(link, credit);
        self.server.output().clear();
        link
    }

    /// A link that the client receives on, accepted, with `credit`.
    pub fn receiver(&mut self, handle: u32, credit: u32) -> LinkKey {
        let link = self.attach(receiver(handle));
        self.server.accept(link, AttachReply::default());
        self.credit(handle, credit);
        self.events();
        self.server.output().clear();
        link
    }

    /// Sends a message from the server.
    pub fn deliver(&mut self, link: LinkKey, message: &[u8]) -> Sent {
        self.server.send(link, &[7; 16], false, 0, |out| out.extend_from_slice(message))
    }

    /// The connection was closed by the server for `condition`, and the client was told so.
    pub fn assert_closed(&mut self, condition: &str) {
        match self.events().pop() {
            Some(Event::Closed { reason }) => assert_eq!(reason.condition, condition),
            other => panic!("not closed but {other:?}"),
        }
        assert!(self.server.is_closed());
        match self.performatives().pop() {
            Some(Performative::Close(close)) => {
                assert_eq!(close.error.map(|error| error.condition.into_owned()).as_deref(), Some(condition));
            }
            other => panic!("no close but {other:?}"),
        }
        assert_eq!(self.events(), [], "told once");
    }
}

pub fn sender(handle: u32) -> Attach {
    Attach {
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(Target { address: Some("q1".into()), ..Target::default() })),
        initial_delivery_count: Some(0),
        ..Attach::new("to-q1", handle, Role::Sender)
    }
}

pub fn receiver(handle: u32) -> Attach {
    Attach {
        source: Some(Source { address: Some("q1".into()), ..Source::default() }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::new("from-q1", handle, Role::Receiver)
    }
}

pub fn error(condition: &'static str) -> Error {
    Error::new(condition, "because")
}
