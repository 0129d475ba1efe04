//! One message out, piece by piece: for messages that shall never be whole in memory.
//!
//! Nothing is kept here: what the client's window does not take stays with the caller. Until the last piece is
//! written the session carries no other delivery, for JavaScript cannot tell two apart.

use super::answer::find;
use super::send::{continuation, refusal, write_transfer};
use super::{Connection, LinkKey, Sent, recount};
use crate::frame::{self, HEADER_BYTES, Kind};
use crate::limits::TAG_BYTES;
use crate::session::Streaming;
use message::codec::code;

impl Connection {
    /// Begins a message that [`Connection::stream`] will write. The delivery counts from now on.
    pub fn begin_stream(&mut self, link: LinkKey, tag: &[u8], settled: bool, format: u32) -> Sent {
        assert!(tag.len() <= TAG_BYTES, "a delivery tag of {} bytes", tag.len());
        let Some((link, session)) = find(&mut self.links, &mut self.sessions, link) else {
            return Sent::NotAttached;
        };
        if let Some(refusal) = refusal(link, session, self.weight, settled) {
            return refusal;
        }
        let id = session.next_delivery_id;
        session.next_delivery_id = id.wrapping_add(1);
        link.count_delivery();
        if !settled && !link.is_untracked {
            session.unsettled.push(id, link.key, tag);
        }
        recount(&mut self.weight, session);
        session.streaming = Some(Streaming {
            link: link.key,
            id,
            format,
            settled,
            tag: Some(tag.to_vec()),
            owes_drained: false,
        });
        Sent::Delivery(id)
    }

    /// Whether [`Connection::stream`] would write anything.
    pub fn can_stream(&self, link: LinkKey) -> bool {
        let session = self.links.get(link.0).and_then(|link| self.sessions.get(link.session));
        session.is_some_and(|session| {
            session.is_open() && session.streaming.as_ref().is_some_and(|streaming| streaming.link == link)
        })
    }

    /// Writes the next piece of the message, as much of it as the client's window takes, and says how much that was.
    /// The message ends when all of its last piece was taken. `None`: nothing is being written on this link.
    pub fn stream(&mut self, key: LinkKey, piece: &[u8], is_last: bool) -> Option<usize> {
        let (link, session) = find(&mut self.links, &mut self.sessions, key)?;
        let mut streaming = session.streaming.take_if(|streaming| streaming.link == key)?;
        let (out, max) = (&mut self.out.bytes, self.out.max_frame_bytes as usize);
        let next = continuation(session.channel, link.handle, streaming.settled);
        let mut taken = 0;
        let mut is_ended = false;
        while session.is_open() && !is_ended && (taken < piece.len() || is_last) {
            let begun = out.len();
            let start = frame::begin(out, Kind::Amqp, session.channel);
            let more_at = match streaming.tag.take() {
                Some(tag) => {
                    let Streaming { id, format, settled, .. } = streaming;
                    write_transfer(out, link.handle, id, &tag, format, settled)
                }
                None => {
                    out.extend_from_slice(&next.bytes[HEADER_BYTES..]);
                    begun + next.more_at
                }
            };
            let room = max - (out.len() - begun);
            let count = room.min(piece.len() - taken);
            out.extend_from_slice(&piece[taken..taken + count]);
            taken += count;
            is_ended = is_last && taken == piece.len();
            if !is_ended {
                out[more_at] = code::TRUE;
            }
            frame::end(out, start);
            session.advance(1);
        }
        self.out.last_written = self.out.now;
        match (is_ended, streaming.owes_drained) {
            (false, _) => session.streaming = Some(streaming),
            (true, true) => self.drained(key),
            (true, false) => {}
        }
        Some(taken)
    }
}
