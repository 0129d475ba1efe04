//! One message out: the transfer is written, the caller writes the message straight behind it, and only a message
//! that does not fit the peer's frame is cut, in place.

use super::answer::find;
use super::{Connection, LinkKey, Sent, recount};
use crate::fields::write_composite;
use crate::frame::{self, HEADER_BYTES, Kind};
use crate::limits::{FREE_REPLIES, HELD_FRAMES_BYTES, TAG_BYTES, UNSETTLED_PER_CONNECTION};
use crate::link::Link;
use crate::performative::{Role, TRANSFER, Transfer};
use crate::session::{Session, Weight};
use message::codec::{code, write_binary, write_boolean, write_uint};

impl Connection {
    /// Whether [`Connection::send`] would write a message on this link.
    pub fn can_send(&self, link: LinkKey) -> bool {
        let Some(link) = self.links.get(link.0) else { return false };
        let Some(session) = self.sessions.get(link.session) else { return false };
        refusal(link, session, self.weight, false).is_none()
    }

    /// Sends one message, which `write` puts into the output. `write` is not called unless the message goes out.
    pub fn send(
        &mut self,
        link: LinkKey,
        tag: &[u8],
        settled: bool,
        format: u32,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Sent {
        assert!(tag.len() <= TAG_BYTES, "a delivery tag of {} bytes", tag.len());
        let Some((link, session)) = find(&mut self.links, &mut self.sessions, link) else {
            return Sent::NotAttached;
        };
        if let Some(refusal) = refusal(link, session, self.weight, settled) {
            return refusal;
        }
        let id = session.next_delivery_id;
        let out = &mut self.out.bytes;
        let max = self.out.max_frame_bytes as usize;

        let begun = out.len();
        let start = frame::begin(out, Kind::Amqp, session.channel);
        let more_at = write_transfer(out, link.handle, id, tag, format, settled);
        let payload_at = out.len();
        write(out);
        let frames = if out.len() - begun <= max {
            frame::end(out, start);
            1
        } else {
            out[more_at] = code::TRUE;
            let next = continuation(session.channel, link.handle, settled);
            cut(out, begun, payload_at, max, &next)
        };
        session.count_outgoing(out, begun, frames, max, link.key);

        session.next_delivery_id = id.wrapping_add(1);
        link.count_delivery();
        if !settled && !link.is_untracked {
            session.unsettled.push(id, link.key, tag);
        }
        recount(&mut self.weight, session);
        self.out.last_written = self.out.now;
        Sent::Delivery(id)
    }
}

pub(super) fn refusal(link: &Link, session: &Session, weight: Weight, settled: bool) -> Option<Sent> {
    if !link.is_attached() || link.role != Role::Sender {
        return Some(Sent::NotAttached);
    }
    if link.credit == 0 && !(link.is_untracked && link.delivery_count >= FREE_REPLIES) {
        return Some(Sent::NoCredit);
    }
    let remembers = !settled && !link.is_untracked;
    let is_full = session.unsettled.is_full() || weight.unsettled >= UNSETTLED_PER_CONNECTION;
    if !session.has_room() || weight.held_bytes >= HELD_FRAMES_BYTES || (remembers && is_full) {
        return Some(Sent::NoWindow);
    }
    None
}

/// Writes the first transfer of a delivery and returns where its `more` flag is, in case there will be a second. Go
/// needs id, tag and format on the first frame.
pub(super) fn write_transfer(
    out: &mut Vec<u8>,
    handle: u32,
    id: u32,
    tag: &[u8],
    format: u32,
    settled: bool,
) -> usize {
    let mut more_at = 0;
    write_composite(out, TRANSFER, 11, |out| {
        write_uint(out, handle);
        write_uint(out, id);
        write_binary(out, tag);
        write_uint(out, format);
        write_boolean(out, settled);
        more_at = out.len();
        write_boolean(out, false);
        // rcv-settle-mode, state; resume, aborted, batchable.
        out.extend_from_slice(&[code::NULL, code::NULL, code::FALSE, code::FALSE, code::FALSE]);
    });
    more_at
}

/// A later frame of a delivery without its payload: header and transfer, `more` not set.
pub(super) struct Continuation {
    pub(super) bytes: Vec<u8>,
    pub(super) more_at: usize,
}

pub(super) fn continuation(channel: u16, handle: u32, settled: bool) -> Continuation {
    let encode = |more| {
        let mut bytes = Vec::new();
        let start = frame::begin(&mut bytes, Kind::Amqp, channel);
        Transfer { handle, settled: Some(settled), more, ..Transfer::default() }.encode(&mut bytes);
        frame::end(&mut bytes, start);
        bytes
    };
    let (last, other) = (encode(false), encode(true));
    let more_at = last.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(HEADER_BYTES);
    Continuation { bytes: last, more_at }
}

/// Cuts the message that reaches from `payload_at` to the end of `out` into frames of `max` bytes, by moving its parts
/// apart from the last to the first. Returns the number of frames.
fn cut(out: &mut Vec<u8>, begun: usize, payload_at: usize, max: usize, next: &Continuation) -> usize {
    let head = next.bytes.len();
    let part = max - head;
    // What does not fit the first frame, which has the longer transfer.
    let beyond = begun + max;
    let end = out.len();
    debug_assert!(payload_at < beyond && beyond < end);
    let later = (end - beyond).div_ceil(part);
    out.resize(end + later * head, 0);
    for index in (0..later).rev() {
        let from = beyond + index * part;
        let length = part.min(end - from);
        let at = begun + (index + 1) * max;
        out.copy_within(from..from + length, at + head);
        out[at..at + head].copy_from_slice(&next.bytes);
        out[at..at + 4].copy_from_slice(&((head + length) as u32).to_be_bytes());
        if index + 1 < later {
            out[at + next.more_at] = code::TRUE;
        }
    }
    out[begun..begun + 4].copy_from_slice(&(max as u32).to_be_bytes());
    later + 1
}
