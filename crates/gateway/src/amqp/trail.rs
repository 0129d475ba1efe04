//! What the log says of a connection: at `debug` who comes, what is attached, claimed and settled; at `trace` every frame by
//! its name and size. No frame's fields and no message: some of them are secrets, and the others are not ours to tell.
//!
//! Refusals have their own line, with the tracking id that the client is told (`tracking.rs`).

use super::connection::ConnectionTask;
use amqp::{AnyTarget, Event, Role, State};
use std::net::SocketAddr;

/// A frame's header and its descriptor: what a name takes.
const HEAD_BYTES: usize = 11;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Trail {
    read: Frames,
    written: Frames,
}

impl Trail {
    pub(super) fn read(&mut self, address: SocketAddr, bytes: &[u8]) {
        self.read.each(bytes, |name, channel, size| {
            tracing::trace!(%address, channel, size, frame = name, "frame read");
        });
    }

    pub(super) fn wrote(&mut self, address: SocketAddr, bytes: &[u8]) {
        self.written.each(bytes, |name, channel, size| {
            tracing::trace!(%address, channel, size, frame = name, "frame written");
        });
    }
}

/// Frames of one direction, which come in pieces of any size.
#[derive(Debug, Default)]
struct Frames {
    /// The beginning of a frame whose name is not there yet.
    held: Vec<u8>,
    /// Bytes of the frame that was told and are yet to pass.
    left: usize,
}

impl Frames {
    fn each(&mut self, mut bytes: &[u8], mut tell: impl FnMut(&'static str, u16, usize)) {
        loop {
            let passed = self.left.min(bytes.len());
            self.left -= passed;
            bytes = &bytes[passed..];
            if bytes.is_empty() {
                return;
            }
            let before = self.held.len();
            let wanted = HEAD_BYTES.saturating_sub(before).min(bytes.len());
            self.held.extend_from_slice(&bytes[..wanted]);
            let Some((name, channel, size)) = head(&self.held) else {
                // What is held is less than a head, so all bytes are in it.
                return;
            };
            tell(name, channel, size);
            self.held.clear();
            // Of what was held some bytes were of pieces before.
            self.left = size - before;
        }
    }
}

/// Name, channel and size of the frame that begins here; nothing, if more bytes are needed to tell.
fn head(bytes: &[u8]) -> Option<(&'static str, u16, usize)> {
    let first = bytes.first_chunk::<8>()?;
    if first.starts_with(b"AMQP") {
        return Some(("protocol header", 0, 8));
    }
    // A frame that says that it is shorter than its own header ends the connection.
    let size = (u32::from_be_bytes([first[0], first[1], first[2], first[3]]) as usize).max(8);
    let channel = u16::from_be_bytes([first[6], first[7]]);
    if size == 8 {
        return Some(("empty", channel, size));
    }
    let code = match bytes.get(8..HEAD_BYTES) {
        None if size < HEAD_BYTES => 0,
        None => return None,
        // A header with more in it, or a long descriptor: no client writes them.
        Some(_) if first[4] != 2 => 0,
        Some([0, 0x53, code]) => *code,
        Some(_) => 0,
    };
    let name = match code {
        0x10 => "open",
        0x11 => "begin",
        0x12 => "attach",
        0x13 => "flow",
        0x14 => "transfer",
        0x15 => "disposition",
        0x16 => "detach",
        0x17 => "end",
        0x18 => "close",
        0x40 => "sasl-mechanisms",
        0x41 => "sasl-init",
        0x42 => "sasl-challenge",
        0x43 => "sasl-response",
        0x44 => "sasl-outcome",
        _ => "unknown",
    };
    Some((name, channel, size))
}

fn outcome(state: Option<&State>) -> &'static str {
    match state {
        None => "none",
        Some(State::Accepted) => "accepted",
        Some(State::Rejected(_)) => "rejected",
        Some(State::Released) => "released",
        Some(State::Modified { .. }) => "modified",
        Some(State::Received { .. }) => "received",
        Some(State::Declared { .. }) => "declared",
        Some(State::Transactional { outcome: inner, .. }) => outcome(inner.as_deref()),
    }
}

impl<S> ConnectionTask<S> {
    /// Tells the log what a client does.
    pub(super) fn note(&self, event: &Event<'_>) {
        let address = self.peer.address;
        let path = |link: &amqp::LinkKey| self.links.get(&link.0).map_or("", |link| link.kind.path());
        match event {
            Event::SaslInit { mechanism, .. } => tracing::debug!(%address, mechanism, "login"),
            Event::Open { container_id, hostname, .. } => {
                let host = hostname.as_deref().unwrap_or_default();
                tracing::debug!(%address, host, container = container_id, "connection opened");
            }
            Event::Attach { attach, .. } => {
                let (role, path) = match (&attach.role, &attach.target, &attach.source) {
                    (Role::Sender, Some(AnyTarget::Target(target)), _) => {
                        ("sender", target.address.as_deref())
                    }
                    (Role::Sender, Some(AnyTarget::Coordinator(_)), _) => ("coordinator", None),
                    (Role::Sender, None, _) => ("sender", None),
                    (Role::Receiver, _, source) => {
                        ("receiver", source.as_ref().and_then(|source| source.address.as_deref()))
                    }
                };
                let entity = path.unwrap_or_default();
                tracing::debug!(%address, link = attach.name, role, entity, "attach");
            }
            Event::Detach { link, .. } | Event::Leaving { link } => {
                tracing::debug!(%address, entity = path(link), "detach");
            }
            Event::Disposition { first, last, settled, state, .. } => {
                let outcome = outcome(state.as_ref());
                tracing::debug!(%address, first, last, settled, outcome, "disposition");
            }
            Event::End { links, .. } => tracing::debug!(%address, links = links.len(), "session ended"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channel: u16, body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len() as u32).to_be_bytes();
        [&size[..], &[2, 0], &channel.to_be_bytes(), body].concat()
    }

    #[test]
    fn frames_are_named_whatever_the_pieces_they_come_in() {
        let bytes = [
            b"AMQP\x03\x01\x00\x00".to_vec(),
            frame(0, b"\x00\x53\x41secret"),
            frame(0, b""),
            frame(7, b"\x00\x53\x14\x00\x53\x14 payload that looks like a frame"),
            frame(1, b"\x00"),
            frame(2, b"\x00\x80\x14long"),
            frame(3, b"\x00\x53\x18"),
        ]
        .concat();
        let expected = [
            ("protocol header", 0, 8),
            ("sasl-init", 0, 17),
            ("empty", 0, 8),
            ("transfer", 7, 46),
            ("unknown", 1, 9),
            ("unknown", 2, 15),
            ("close", 3, 11),
        ];
        for piece in 1..bytes.len() {
            let (mut frames, mut told) = (Frames::default(), Vec::new());
            for part in bytes.chunks(piece) {
                frames.each(part, |name, channel, size| told.push((name, channel, size)));
            }
            assert_eq!(told, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn each_frame_of_the_standard_is_told_by_its_name() {
        // AMQP 1.0 part 2, 2.7, and part 5, 5.3.3
        let performatives =
            ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"];
        let sasl = ["sasl-mechanisms", "sasl-init", "sasl-challenge", "sasl-response", "sasl-outcome"];
        for (code, name) in (0x10..).zip(performatives).chain((0x40..).zip(sasl)) {
            assert_eq!(head(&frame(5, &[0, 0x53, code])), Some((name, 5, 11)), "{code:#x}");
        }
        assert_eq!(head(&frame(5, &[0, 0x53, 0x19])), Some(("unknown", 5, 11)));
    }

    #[test]
    fn a_size_that_cannot_be_ends_nothing() {
        let mut count = 0;
        Frames::default().each(&[0; 64], |_, _, _| count += 1);
        assert_eq!(count, 8);
    }
}
