//! A client with no opinions: it writes what a test says and reads what the door wrote, frame by frame or write by
//! write.

use amqp::frame::{self, AMQP_HEADER, Kind, SASL_HEADER};
use amqp::performative::{Begin, Detach, Disposition, Flow, Open, Performative, Transfer};
use amqp::sasl::Sasl;
use amqp::{
    AnyTarget, Attach, Error, ReceiverSettleMode, Role, SaslCode, SenderSettleMode, Source, State, Target,
};
use message::Value;
use message::codec::write_descriptor;
use message::sections::{Sections, section};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc::UnboundedReceiver;

/// A frame that does not come within this is not coming.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    to_server: DuplexStream,
    from_server: UnboundedReceiver<Vec<u8>>,
    frames: VecDeque<Frame>,
    /// Transfer id that comes next, for each channel.
    expected: HashMap<u16, u32>,
    pub next_delivery: u32,
    /// Bytes of the largest frame that came.
    pub largest_frame: usize,
    pub patience: Duration,
}

/// One frame of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub channel: u16,
    pub performative: Performative<'static>,
    pub payload: &'static [u8],
}

/// A whole delivery of the server.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub handle: u32,
    pub id: u32,
    pub tag: Vec<u8>,
    pub is_settled: bool,
    pub frames: usize,
    pub message: Vec<u8>,
}

impl Frame {
    /// Whether it is an attach that accepts.
    pub fn accepts(&self) -> bool {
        matches!(&self.performative, Performative::Attach(attach) if attach.target.is_some())
    }
}

impl Client {
    pub fn new(to_server: DuplexStream, from_server: UnboundedReceiver<Vec<u8>>) -> Client {
        let (frames, expected) = (VecDeque::new(), HashMap::new());
        Client {
            to_server,
            from_server,
            frames,
            expected,
            next_delivery: 0,
            largest_frame: 0,
            patience: PATIENCE,
        }
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        self.to_server.write_all(bytes).await.unwrap();
    }

    /// Writes frames on channel 0 in one write.
    pub async fn give(&mut self, performatives: &[Performative<'_>]) {
        let mut bytes = Vec::new();
        performatives.iter().for_each(|each| {
            each.write(&mut bytes, 0, &[]);
        });
        self.raw(&bytes).await;
    }

    /// What the server wrote at once, as it is; nothing when it has hung up.
    pub async fn bytes(&mut self) -> Option<Vec<u8>> {
        tokio::time::timeout(self.patience, self.from_server.recv()).await.expect("the server says nothing")
    }

    /// Logs in, and returns what the server offered.
    pub async fn log_in(&mut self, mechanism: &str, response: Option<&[u8]>) -> Vec<String> {
        let (offered, code) = self.sasl(mechanism, response).await;
        assert_eq!(code, SaslCode::Ok);
        self.raw(&AMQP_HEADER).await;
        assert_eq!(self.bytes().await.unwrap(), AMQP_HEADER);
        offered
    }

    /// Tries to log in.
    pub async fn sasl(
        &mut self,
        mechanism: &str,
        initial_response: Option<&[u8]>,
    ) -> (Vec<String>, SaslCode) {
        self.sasl_at(None, mechanism, initial_response).await
    }

    /// Tries to log in to a host.
    pub async fn sasl_at(
        &mut self,
        hostname: Option<&str>,
        mechanism: &str,
        initial_response: Option<&[u8]>,
    ) -> (Vec<String>, SaslCode) {
        self.raw(&SASL_HEADER).await;
        let bytes = self.bytes().await.unwrap();
        let mut rest = bytes.strip_prefix(&SASL_HEADER).unwrap();
        let frame = frame::split(&mut rest, 512).unwrap().unwrap();
        let Ok(Sasl::Mechanisms(offered)) = Sasl::decode(frame.body, &mut 99) else { panic!("{frame:?}") };
        let mut bytes = Vec::new();
        Sasl::Init { mechanism, initial_response, hostname }.write(&mut bytes);
        self.raw(&bytes).await;
        let bytes = self.bytes().await.unwrap();
        let frame = frame::split(&mut &bytes[..], 512).unwrap().unwrap();
        let Ok(Sasl::Outcome { code, .. }) = Sasl::decode(frame.body, &mut 99) else { panic!("{frame:?}") };
        (offered, code)
    }

    pub async fn open(&mut self, open: Open) -> Open {
        self.give(&[Performative::Open(Box::new(open))]).await;
        match self.next().await.performative {
            Performative::Open(open) => *open,
            other => panic!("{other:?}"),
        }
    }

    pub async fn open_with_defaults(&mut self) {
        let hostname = Some("Bus.Example:5671".into());
        self.open(Open { container_id: "test".into(), hostname, ..Open::default() }).await;
    }

    pub async fn begin(&mut self, channel: u16, incoming_window: u32) {
        let begin = Begin { incoming_window, outgoing_window: 5_000, ..Begin::default() };
        let mut bytes = Vec::new();
        Performative::Begin(Box::new(begin)).write(&mut bytes, channel, &[]);
        self.raw(&bytes).await;
        let answer = self.next().await;
        let Performative::Begin(begin) = answer.performative else { panic!("{answer:?}") };
        assert_eq!((answer.channel, begin.remote_channel), (channel, Some(channel)));
        self.expected.insert(channel, begin.next_outgoing_id);
    }

    /// The frames of one write of the server, which is the next thing that it says.
    pub async fn write(&mut self) -> Vec<Frame> {
        assert_eq!(self.frames, [], "read before");
        match self.bytes().await {
            Some(bytes) => self.split(bytes),
            None => panic!("the server hung up"),
        }
    }

    fn split(&mut self, bytes: Vec<u8>) -> Vec<Frame> {
        let bytes: &'static [u8] = bytes.leak();
        let mut input = bytes;
        let mut frames = Vec::new();
        while let Some(frame) = frame::split(&mut input, u32::MAX).expect("the server writes frames") {
            assert_eq!(frame.kind, Kind::Amqp);
            self.largest_frame = self.largest_frame.max(frame::HEADER_BYTES + frame.body.len());
            if frame.body.is_empty() {
                continue;
            }
            let (performative, payload) = Performative::decode(frame.body, &mut 10_000).unwrap();
            if let Performative::Transfer(_) = performative {
                *self.expected.entry(frame.channel).or_default() += 1;
            }
            frames.push(Frame { channel: frame.channel, performative, payload });
        }
        assert_eq!(input, b"", "whole frames");
        frames
    }

    /// The next frame.
    pub async fn next(&mut self) -> Frame {
        while self.frames.is_empty() {
            let frames = self.write().await;
            self.frames.extend(frames);
        }
        self.frames.pop_front().unwrap()
    }

    /// Attaches on channel 0 and returns the whole of the write that answers.
    pub async fn attach(&mut self, attach: Attach) -> Vec<Frame> {
        self.give(&[Performative::Attach(Box::new(attach))]).await;
        self.write().await
    }

    /// Attaches what is certain to be accepted.
    pub async fn attached(&mut self, attach: Attach) -> Attach {
        let written = self.attach(attach).await;
        match &written[0].performative {
            Performative::Attach(attach) if attach.target.is_some() => (**attach).clone(),
            _ => panic!("{written:?}"),
        }
    }

    /// Attaches what is certain to be refused, and returns why.
    pub async fn refused(&mut self, attach: Attach) -> Error {
        let handle = attach.handle;
        let written = self.attach(attach).await;
        let [Performative::Attach(attach), Performative::Detach(detach)] = &performatives(&written)[..]
        else {
            panic!("{written:?}")
        };
        assert_eq!((&attach.source, &attach.target), (&None, &None));
        assert_eq!((attach.handle, detach.handle, detach.closed), (handle, handle, true));
        detach.error.clone().expect("a refusal says why")
    }

    /// Writes a transfer on channel 0 and returns its delivery id.
    pub async fn transfer(&mut self, transfer: Transfer<'_>, payload: &[u8]) -> u32 {
        let id = self.next_delivery;
        self.next_delivery += 1;
        let tag = id.to_be_bytes();
        let mut bytes = Vec::new();
        let transfer = Transfer { delivery_id: Some(id), delivery_tag: Some(&tag), ..transfer };
        Performative::Transfer(transfer).write(&mut bytes, 0, payload);
        self.raw(&bytes).await;
        id
    }

    /// Sends one message and waits for what becomes of it.
    pub async fn send(&mut self, handle: u32, message: &[u8]) -> State {
        self.send_as(Transfer { handle, ..Transfer::default() }, message).await
    }

    pub async fn send_as(&mut self, transfer: Transfer<'_>, message: &[u8]) -> State {
        let id = self.transfer(transfer, message).await;
        self.outcome(id).await
    }

    /// The disposition of a delivery that this client sent.
    pub async fn outcome(&mut self, id: u32) -> State {
        let frame = self.next().await;
        let Performative::Disposition(disposition) = frame.performative else { panic!("{frame:?}") };
        let Disposition { role, first, last, settled, state, .. } = disposition;
        assert_eq!((role, first, last, settled), (Role::Receiver, id, Some(id), true));
        state.expect("an outcome has a state")
    }

    /// A flow on channel 0: `credit` more messages than the `seen` that came on this link.
    pub async fn credit(&mut self, handle: u32, seen: u32, credit: u32) {
        self.flow(Flow {
            handle: Some(handle),
            delivery_count: Some(seen),
            link_credit: Some(credit),
            ..Flow::default()
        })
        .await;
    }

    /// A flow on channel 0 that tells what this client has seen of the session; the window is 5,000 unless said.
    pub async fn flow(&mut self, flow: Flow<'_>) {
        let incoming_window = if flow.incoming_window == 0 { 5_000 } else { flow.incoming_window };
        let next_incoming_id = self.expected.get(&0).copied();
        self.give(&[Performative::Flow(Flow { next_incoming_id, incoming_window, ..flow })]).await;
    }

    /// The next delivery, of as many frames as it has.
    pub async fn delivery(&mut self) -> Delivery {
        let mut delivery: Option<Delivery> = None;
        loop {
            let frame = self.next().await;
            let Performative::Transfer(transfer) = frame.performative else { panic!("{frame:?}") };
            let delivery = delivery.get_or_insert_with(|| Delivery {
                handle: transfer.handle,
                id: transfer.delivery_id.expect("the first frame has an id"),
                tag: transfer.delivery_tag.expect("and a tag").to_vec(),
                is_settled: transfer.settled == Some(true),
                frames: 0,
                message: Vec::new(),
            });
            delivery.frames += 1;
            delivery.message.extend_from_slice(frame.payload);
            if !transfer.more {
                return delivery.clone();
            }
        }
    }

    /// Says what became of deliveries, without settling them.
    pub async fn dispose(&mut self, first: u32, last: Option<u32>, state: State) {
        let disposition = Disposition {
            last,
            settled: false,
            state: Some(state),
            ..Disposition::new(Role::Receiver, first, first)
        };
        self.give(&[Performative::Disposition(disposition)]).await;
    }

    /// Says what became of one delivery and waits for the server to confirm.
    pub async fn settle(&mut self, id: u32, state: State) -> State {
        self.dispose(id, None, state).await;
        let frame = self.next().await;
        let Performative::Disposition(answer) = frame.performative else { panic!("{frame:?}") };
        assert_eq!((answer.role, answer.first, answer.last), (Role::Sender, id, Some(id)));
        assert!(answer.settled);
        answer.state.expect("an answer has a state")
    }

    /// Attaches and detaches another link and returns every other frame that comes meanwhile. The broker answers in
    /// order, so this is all that it and the door had to say to what was asked before.
    pub async fn said_so_far(&mut self) -> Vec<Frame> {
        const HANDLE: u32 = 255;
        let detach = Performative::Detach(Detach { handle: HANDLE, closed: true, error: None });
        self.give(&[Performative::Attach(Box::new(receiver(HANDLE, crate::server::QUEUE)))]).await;
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            match frame.performative {
                Performative::Attach(attach) if attach.handle == HANDLE => {
                    assert!(attach.source.is_some(), "this client may receive");
                    self.give(std::slice::from_ref(&detach)).await;
                }
                performative if performative == detach => return frames,
                performative => frames.push(Frame { performative, ..frame }),
            }
        }
    }

    /// Asks for an echo and returns every frame that comes before it: what the door alone had to say so far.
    pub async fn said_before_echo(&mut self) -> Vec<Frame> {
        self.flow(Flow { echo: true, ..Flow::default() }).await;
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            if matches!(frame.performative, Performative::Flow(Flow { handle: None, .. })) {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// Drains a link: gives every message that comes before the answer, and the answer.
    pub async fn drain(&mut self, handle: u32, seen: u32, credit: u32) -> (Vec<Delivery>, Flow<'static>) {
        self.flow(Flow {
            handle: Some(handle),
            delivery_count: Some(seen),
            link_credit: Some(credit),
            drain: true,
            ..Flow::default()
        })
        .await;
        let mut deliveries = Vec::new();
        loop {
            let frame = self.next().await;
            if let Performative::Flow(flow) = frame.performative {
                return (deliveries, flow);
            }
            self.frames.push_front(frame);
            deliveries.push(self.delivery().await);
        }
    }

    pub async fn detach(&mut self, handle: u32) -> Detach {
        self.give(&[Performative::Detach(Detach { handle, closed: true, error: None })]).await;
        match self.next().await.performative {
            Performative::Detach(detach) => detach,
            other => panic!("{other:?}"),
        }
    }

    /// Attaches a link that sends to `path`.
    pub async fn sender(&mut self, handle: u32, path: &str) {
        self.attached(sender(handle, path)).await;
    }

    /// Attaches a link that receives from `path` and locks what it gets.
    pub async fn receiver(&mut self, handle: u32, path: &str) {
        self.attached(receiver(handle, path)).await;
    }
}

pub fn performatives(frames: &[Frame]) -> Vec<Performative<'static>> {
    frames.iter().map(|frame| frame.performative.clone()).collect()
}

/// As Python attaches a sender.
pub fn sender(handle: u32, path: &str) -> Attach {
    Attach {
        source: Some(Source { address: Some("sender-link".into()), ..Source::default() }),
        target: Some(AnyTarget::Target(Target { address: Some(path.into()), ..Target::default() })),
        snd_settle_mode: Some(SenderSettleMode::Unsettled),
        rcv_settle_mode: Some(ReceiverSettleMode::Second),
        initial_delivery_count: Some(0),
        ..Attach::new(&format!("to-{path}-{handle}"), handle, Role::Sender)
    }
}

/// As Java attaches a sender whose messages go on to another entity.
pub fn via(handle: u32, path: &str, destination: &str) -> Attach {
    let property = (symbol("com.microsoft:transfer-destination-address"), destination.into());
    Attach { properties: Value::Map(vec![property]), ..sender(handle, path) }
}

/// As most clients attach a receiver that locks.
pub fn receiver(handle: u32, path: &str) -> Attach {
    Attach {
        source: Some(Source { address: Some(path.into()), ..Source::default() }),
        target: Some(AnyTarget::Target(Target {
            address: Some("receiver-link".into()),
            ..Target::default()
        })),
        snd_settle_mode: Some(SenderSettleMode::Unsettled),
        rcv_settle_mode: Some(ReceiverSettleMode::Second),
        ..Attach::new(&format!("from-{path}-{handle}"), handle, Role::Receiver)
    }
}

/// A receiver that asks for a session.
pub fn session_receiver(handle: u32, path: &str, session: Value) -> Attach {
    let mut attach = receiver(handle, path);
    if let Some(source) = &mut attach.source {
        source.filter = Value::Map(vec![(symbol("com.microsoft:session-filter"), session)]);
    }
    attach
}

/// A receiver that takes messages for good.
pub fn taker(handle: u32, path: &str) -> Attach {
    Attach {
        snd_settle_mode: Some(SenderSettleMode::Settled),
        rcv_settle_mode: Some(ReceiverSettleMode::First),
        ..receiver(handle, path)
    }
}

/// One section of a message.
pub fn part(code: u8, value: Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_descriptor(&mut out, code.into());
    value.encode(&mut out);
    out
}

/// A message of one data section and nothing else.
pub fn message(body: &[u8]) -> Vec<u8> {
    part(section::DATA, Value::Binary(body.to_vec()))
}

/// What the one data section of a message holds.
pub fn body(message: &[u8]) -> Vec<u8> {
    let found = message::sections::sections(message).flatten().find(|each| each.code == section::DATA);
    match Value::decode(found.unwrap().span.value(message).unwrap()) {
        Ok(Value::Binary(body)) => body,
        other => panic!("{other:?}"),
    }
}

/// A list section's fields.
pub fn list(message: &[u8], pick: impl Fn(&Sections) -> message::Span) -> Vec<Value> {
    let sections = Sections::scan(message).unwrap();
    match Value::decode(pick(&sections).value(message).expect("the section is there")) {
        Ok(Value::List(fields)) => fields,
        other => panic!("{other:?}"),
    }
}

/// A map section.
pub fn map(message: &[u8], pick: impl Fn(&Sections) -> message::Span) -> Value {
    let sections = Sections::scan(message).unwrap();
    Value::decode(pick(&sections).value(message).expect("the section is there")).unwrap()
}

pub fn symbol(text: &str) -> Value {
    Value::Symbol(text.into())
}
