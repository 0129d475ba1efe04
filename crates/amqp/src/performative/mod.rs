//! The nine performatives (AMQP 1.0 part 2, 2.7) and the error they carry.
//!
//! [`hot`] has those of every message (transfer, disposition, flow): plain structs over slices of the frame, no
//! allocation. [`cold`] has the rest, owned. Both directions are read and written here, so clients use it too.

pub mod cold;
pub mod hot;

pub use cold::{Attach, Begin, Close, Detach, End, Error, Open};
pub use hot::{Disposition, Flow, Transfer};

use crate::fields::descriptor;
use crate::frame::{self, Kind};
use message::{Malformed, Reader};

pub(crate) const OPEN: u64 = 0x10;
pub(crate) const BEGIN: u64 = 0x11;
pub(crate) const ATTACH: u64 = 0x12;
pub(crate) const FLOW: u64 = 0x13;
pub(crate) const TRANSFER: u64 = 0x14;
pub(crate) const DISPOSITION: u64 = 0x15;
pub(crate) const DETACH: u64 = 0x16;
pub(crate) const END: u64 = 0x17;
pub(crate) const CLOSE: u64 = 0x18;
pub(crate) const ERROR: u64 = 0x1d;

const NAMES: [(&str, u64); 9] = [
    ("amqp:open:list", OPEN),
    ("amqp:begin:list", BEGIN),
    ("amqp:attach:list", ATTACH),
    ("amqp:flow:list", FLOW),
    ("amqp:transfer:list", TRANSFER),
    ("amqp:disposition:list", DISPOSITION),
    ("amqp:detach:list", DETACH),
    ("amqp:end:list", END),
    ("amqp:close:list", CLOSE),
];

/// Which end of a link a frame speaks for. On the wire a boolean: true is the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

impl Role {
    pub fn opposite(self) -> Role {
        match self {
            Role::Sender => Role::Receiver,
            Role::Receiver => Role::Sender,
        }
    }

    pub(crate) fn is_receiver(self) -> bool {
        self == Role::Receiver
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Role, Malformed> {
        Ok(if reader.boolean()? { Role::Receiver } else { Role::Sender })
    }
}

/// Whether the sender settles its deliveries as it sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderSettleMode {
    Unsettled = 0,
    Settled = 1,
    Mixed = 2,
}

impl SenderSettleMode {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.ubyte()? {
            0 => Ok(SenderSettleMode::Unsettled),
            1 => Ok(SenderSettleMode::Settled),
            2 => Ok(SenderSettleMode::Mixed),
            found => Err(Malformed::Unexpected { expected: "a snd-settle-mode of 0 to 2", found }),
        }
    }
}

/// Whether the receiver settles first or waits for the sender to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverSettleMode {
    First = 0,
    Second = 1,
}

impl ReceiverSettleMode {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.ubyte()? {
            0 => Ok(ReceiverSettleMode::First),
            1 => Ok(ReceiverSettleMode::Second),
            found => Err(Malformed::Unexpected { expected: "an rcv-settle-mode of 0 or 1", found }),
        }
    }
}

/// Any performative, as read from a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Performative<'a> {
    Open(Box<Open>),
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow<'a>),
    Transfer(Transfer<'a>),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
}

impl<'a> Performative<'a> {
    /// Reads the performative at the front of a frame's body; what follows it is the payload of a transfer.
    ///
    /// `nodes` is the budget of the frame: how many values of any type may be built from it.
    pub fn decode(body: &'a [u8], nodes: &mut u32) -> Result<(Performative<'a>, &'a [u8]), Malformed> {
        let mut reader = Reader::new(body);
        let performative = match descriptor(&mut reader, &NAMES)? {
            TRANSFER => Performative::Transfer(Transfer::read(&mut reader, nodes)?),
            DISPOSITION => Performative::Disposition(Disposition::read(&mut reader, nodes)?),
            FLOW => Performative::Flow(Flow::read(&mut reader, nodes)?),
            OPEN => Performative::Open(Box::new(Open::read(&mut reader, nodes)?)),
            BEGIN => Performative::Begin(Box::new(Begin::read(&mut reader, nodes)?)),
            ATTACH => Performative::Attach(Box::new(Attach::read(&mut reader, nodes)?)),
            DETACH => Performative::Detach(Detach::read(&mut reader, nodes)?),
            END => Performative::End(End::read(&mut reader, nodes)?),
            CLOSE => Performative::Close(Close::read(&mut reader, nodes)?),
            _ => return Err(Malformed::BadDescriptor),
        };
        Ok((performative, reader.rest()))
    }

    /// Whether a frame's body begins with a transfer, a disposition or a flow.
    pub(crate) fn is_hot(body: &[u8]) -> bool {
        let kind = descriptor(&mut Reader::new(body), &NAMES);
        matches!(kind, Ok(TRANSFER | DISPOSITION | FLOW))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Performative::Open(open) => open.encode(out),
            Performative::Begin(begin) => begin.encode(out),
            Performative::Attach(attach) => attach.encode(out),
            Performative::Flow(flow) => flow.encode(out),
            Performative::Transfer(transfer) => transfer.encode(out),
            Performative::Disposition(disposition) => disposition.encode(out),
            Performative::Detach(detach) => detach.encode(out),
            Performative::End(end) => end.encode(out),
            Performative::Close(close) => close.encode(out),
        }
    }

    /// Writes a whole frame with `payload` behind the performative, and returns its size.
    pub fn write(&self, out: &mut Vec<u8>, channel: u16, payload: &[u8]) -> u32 {
        let start = frame::begin(out, Kind::Amqp, channel);
        self.encode(out);
        out.extend_from_slice(payload);
        frame::end(out, start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_of(performative: &Performative<'_>) -> u32 {
        let mut bytes = Vec::new();
        performative.encode(&mut bytes);
        assert_eq!(bytes[..2], [0x00, 0x53], "the descriptor is a smallulong");
        let mut reader = Reader::new(&bytes);
        reader.descriptor().unwrap();
        assert_ne!(reader.peek(), Ok(0x45), "never the empty list form");
        reader.list().unwrap().count
    }

    #[test]
    fn every_performative_is_written_with_all_its_fields() {
        //
        let error = Error::new("amqp:not-found", "gone");
        let counts = [
            (Performative::Open(Box::default()), 10),
            (Performative::Begin(Box::default()), 8),
            (Performative::Attach(Box::new(Attach::new("n", 0, Role::Sender))), 14),
            (Performative::Flow(Flow::default()), 11),
            (Performative::Transfer(Transfer::default()), 11),
            (Performative::Disposition(Disposition::new(Role::Sender, 1, 1)), 6),
            (Performative::Detach(Detach { handle: 0, closed: true, error: None }), 3),
            (Performative::End(End { error: None }), 1),
            (Performative::Close(Close { error: Some(error.clone()) }), 1),
        ];
        for (performative, count) in counts {
            assert_eq!(count_of(&performative), count, "{performative:?}");
        }
        let mut bytes = Vec::new();
        error.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        reader.descriptor().unwrap();
        assert_eq!(reader.list().unwrap().count, 3);
    }

    #[test]
    fn what_lies_behind_a_performative_is_its_payload() {
        let transfer = Transfer { handle: 3, delivery_id: Some(7), ..Transfer::default() };
        let mut out = Vec::new();
        Performative::Transfer(transfer.clone()).write(&mut out, 5, b"payload");
        let frame = frame::split(&mut &out[..], 512).unwrap().unwrap();
        let (read, payload) = Performative::decode(frame.body, &mut 9).unwrap();
        assert_eq!((read, payload), (Performative::Transfer(transfer), &b"payload"[..]));
    }

    #[test]
    fn hostile_bodies_are_refused_at_their_own_price() {
        let refused = |body: &[u8]| Performative::decode(body, &mut 100).unwrap_err();
        // P6: a list that claims a billion fields.
        let claim = [0x00, 0x53, 0x10, 0xd0, 0, 0, 0, 4, 0x3f, 0xff, 0xff, 0xff];
        assert_eq!(refused(&claim), Malformed::CountExceedsBytes(0x3fff_ffff));
        // P6: a descriptor that is itself described.
        assert_eq!(refused(&[0x00, 0x00, 0x53, 0x10, 0x45]), Malformed::BadDescriptor);
        // P6: a string of two gigabytes.
        let long = [0x00, 0x53, 0x10, 0xc0, 6, 1, 0xb1, 0x7f, 0xff, 0xff, 0xfe];
        assert_eq!(refused(&long), Malformed::Truncated);
        assert_eq!(refused(&[]), Malformed::Truncated);
        assert_eq!(refused(&[0x00, 0x53, 0x70, 0x45]), Malformed::BadDescriptor);
    }
}
