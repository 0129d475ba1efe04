//! Transfer, disposition and flow: the frames of every message. Read by hand into plain structs over slices of the
//! frame, without allocation (only states that carry maps own them).

use super::{DISPOSITION, FLOW, ReceiverSettleMode, Role, TRANSFER};
use crate::fields::{Fields, write_composite, write_encoded, write_optional};
use crate::state::State;
use message::codec::{write_binary, write_boolean, write_ubyte, write_uint};
use message::planted::is_planted;
use message::{Malformed, Reader};

/// 2.7.4. Updates a session's windows and, with a handle, a link's credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow<'a> {
    pub next_incoming_id: Option<u32>,
    pub incoming_window: u32,
    pub next_outgoing_id: u32,
    pub outgoing_window: u32,
    pub handle: Option<u32>,
    pub delivery_count: Option<u32>,
    pub link_credit: Option<u32>,
    pub available: Option<u32>,
    pub drain: bool,
    pub echo: bool,
    /// A map, as it is encoded.
    pub properties: Option<&'a [u8]>,
}

impl<'a> Flow<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, nodes: &mut u32) -> Result<Flow<'a>, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let flow = Flow {
            next_incoming_id: fields.next(Reader::uint)?,
            incoming_window: fields.required(Reader::uint)?,
            next_outgoing_id: fields.required(Reader::uint)?,
            outgoing_window: fields.required(Reader::uint)?,
            handle: fields.next(Reader::uint)?,
            delivery_count: fields.next(Reader::uint)?,
            link_credit: fields.next(Reader::uint)?,
            available: fields.next(Reader::uint)?,
            drain: fields.flag()?,
            echo: fields.flag()?,
            properties: fields.encoded()?,
        };
        fields.finish()?;
        Ok(flow)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, FLOW, 11, |out| {
            write_optional(out, self.next_incoming_id, write_uint);
            write_uint(out, self.incoming_window);
            write_uint(out, self.next_outgoing_id);
            write_uint(out, self.outgoing_window);
            write_optional(out, self.handle, write_uint);
            write_optional(out, self.delivery_count, write_uint);
            write_optional(out, self.link_credit, write_uint);
            write_optional(out, self.available, write_uint);
            write_boolean(out, self.drain);
            write_boolean(out, self.echo);
            write_encoded(out, self.properties);
        });
    }
}

/// 2.7.5. One frame of a delivery; the payload follows it in the frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfer<'a> {
    pub handle: u32,
    pub delivery_id: Option<u32>,
    pub delivery_tag: Option<&'a [u8]>,
    pub message_format: Option<u32>,
    pub settled: Option<bool>,
    pub more: bool,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    pub state: Option<State>,
    pub resume: bool,
    pub aborted: bool,
    pub batchable: bool,
}

impl<'a> Transfer<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, nodes: &mut u32) -> Result<Transfer<'a>, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let transfer = Transfer {
            handle: fields.required(Reader::uint)?,
            delivery_id: fields.next(Reader::uint)?,
            delivery_tag: fields.next(Reader::binary)?,
            message_format: fields.next(Reader::uint)?,
            settled: fields.next(Reader::boolean)?,
            more: fields.flag()?,
            rcv_settle_mode: fields.next(ReceiverSettleMode::read)?,
            state: fields.composite(State::read)?,
            resume: fields.flag()?,
            aborted: fields.flag()?,
            batchable: fields.flag()?,
        };
        fields.finish()?;
        Ok(transfer)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_composite(out, TRANSFER, 11, |out| {
            write_uint(out, self.handle);
            write_optional(out, self.delivery_id, write_uint);
            write_optional(out, self.delivery_tag, write_binary);
            write_optional(out, self.message_format, write_uint);
            write_optional(out, self.settled, write_boolean);
            write_boolean(out, self.more);
            write_optional(out, self.rcv_settle_mode, |out, mode| write_ubyte(out, mode as u8));
            write_optional(out, self.state.as_ref(), |out, state| state.encode(out));
            write_boolean(out, self.resume);
            write_boolean(out, self.aborted);
            write_boolean(out, self.batchable);
        });
    }
}

/// 2.7.6. What became of a range of deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disposition {
    pub role: Role,
    pub first: u32,
    /// Absent when the range is one delivery.
    pub last: Option<u32>,
    pub settled: bool,
    pub state: Option<State>,
    pub batchable: bool,
}

impl Disposition {
    pub fn new(role: Role, first: u32, last: u32) -> Disposition {
        Disposition { role, first, last: Some(last), settled: true, state: None, batchable: false }
    }

    pub(super) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<Disposition, Malformed> {
        let mut fields = Fields::open(reader, nodes)?;
        let disposition = Disposition {
            role: fields.required(Role::read)?,
            first: fields.required(Reader::uint)?,
            last: fields.next(Reader::uint)?,
            settled: fields.flag()?,
            state: fields.composite(State::read)?,
            batchable: fields.flag()?,
        };
        fields.finish()?;
        Ok(disposition)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let Disposition { role, first, last, settled, ref state, batchable } = *self;
        write_disposition(out, role, first, last, settled, state.as_ref(), batchable);
    }
}

/// Writes a disposition around a borrowed state, so that answering a delivery builds nothing.
pub(crate) fn write_disposition(
    out: &mut Vec<u8>,
    role: Role,
    first: u32,
    last: Option<u32>,
    settled: bool,
    state: Option<&State>,
    batchable: bool,
) {
    write_composite(out, DISPOSITION, 6, |out| {
        write_boolean(out, role.is_receiver());
        write_uint(out, first);
        let is_lost = |last: &u32| (128..256).contains(last) && is_planted("frame");
        write_optional(out, last.filter(|last| !is_lost(last)), write_uint);
        write_boolean(out, settled);
        write_optional(out, state, |out, state| state.encode(out));
        write_boolean(out, batchable);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_in_the_two_byte_form_are_read() {
        // disposition with role and settled as 0x56 0x01.
        let body = [0xc0, 8, 4, 0x56, 0x01, 0x52, 9, 0x40, 0x56, 0x01];
        let read = Disposition::read(&mut Reader::new(&body), &mut 9).unwrap();
        assert_eq!(read, Disposition { last: None, ..Disposition::new(Role::Receiver, 9, 9) });
    }

    #[test]
    fn flow_properties_are_kept_as_they_are_encoded() {
        let map = [0xc1, 1, 0];
        let flow = Flow { handle: Some(1), properties: Some(&map), ..Flow::default() };
        let mut bytes = Vec::new();
        flow.encode(&mut bytes);
        assert_eq!(Flow::read(&mut Reader::new(&bytes[3..]), &mut 9), Ok(flow));
    }

    #[test]
    fn a_transfer_without_a_handle_is_refused() {
        assert_eq!(Transfer::read(&mut Reader::new(&[0x45]), &mut 9), Err(Malformed::MissingField));
    }
}
