//! One AMQP session: its windows, its numbering and its handles (AMQP 1.0 part 2, 2.5).
//!
//! Delivery ids are contiguous over all links of the session and transfer ids count frames. A delivery of several
//! frames is never interleaved with another on the same session: JavaScript cannot tell them apart.

use crate::connection::{LinkKey, SessionKey};
use crate::keyed::NONE;
use crate::limits::{INCOMING_WINDOW, OUTGOING_WINDOW};
use crate::performative::{Begin, Flow};
use crate::serial::remaining;
use crate::unsettled::Unsettled;

/// First delivery id and first transfer id. Not zero, which dynamic languages mistake for absent.
pub(crate) const FIRST_ID: u32 = 1;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    /// The client's channel; we answer on the same number, which it keeps busy exactly as long.
    pub(crate) channel: u16,
    /// We wrote our end and wait for the client's; whatever else comes is ignored.
    pub(crate) is_ending: bool,
    pub(crate) next_delivery_id: u32,
    pub(crate) unsettled: Unsettled,
    pub(crate) held: Held,
    /// The delivery that is being written piece by piece.
    pub(crate) streaming: Option<Streaming>,
    next_incoming_id: u32,
    incoming_window: u32,
    next_outgoing_id: u32,
    remote_window: u32,
    /// Link keys by handle.
    handles: Vec<u32>,
    /// What the connection knows of [`Session::weight`].
    pub(crate) counted: Weight,
}

/// What a session holds for its client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of frames that wait for the window.
    pub(crate) held_bytes: usize,
    pub(crate) unsettled: usize,
}

/// Frames of one delivery that did not fit the client's incoming window.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) link: Option<LinkKey>,
    bytes: Vec<u8>,
    /// How many of those were written.
    written: usize,
    /// All frames have this size but the last, which may be shorter.
    frame_bytes: usize,
    /// The link was drained meanwhile; saying so waits for these frames.
    pub(crate) owes_drained: bool,
}

/// A delivery of which the first frames may be written and the last is not.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) link: LinkKey,
    pub(crate) id: u32,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    /// What the first frame must say; `None` once it is written.
    pub(crate) tag: Option<Vec<u8>>,
    /// The link was drained meanwhile; saying so waits for the last frame.
    pub(crate) owes_drained: bool,
}

impl Session {
    pub(crate) fn new(key: SessionKey, channel: u16, begin: &Begin) -> Session {
        Session {
            key,
            channel,
            is_ending: false,
            next_delivery_id: FIRST_ID,
            unsettled: Unsettled::default(),
            held: Held::default(),
            streaming: None,
            next_incoming_id: begin.next_outgoing_id,
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: FIRST_ID,
            remote_window: begin.incoming_window,
            handles: Vec::new(),
            counted: Weight::default(),
        }
    }

    /// Our begin, in answer to the client's.
    pub(crate) fn begin(&self, handle_max: u32) -> Begin {
        Begin {
            remote_channel: Some(self.channel),
            next_outgoing_id: self.next_outgoing_id,
            incoming_window: self.incoming_window,
            outgoing_window: OUTGOING_WINDOW,
            handle_max,
            ..Begin::default()
        }
    }

    /// A flow with every session field; JavaScript computes with all of them unchecked.
    pub(crate) fn flow(&self) -> Flow<'static> {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }

    /// Counts a transfer frame of the client. True when the window is half used and was renewed: a flow is due.
    ///
    /// A client that overruns the window is not punished: its frames are handed on one by one and cost no memory.
    pub(crate) fn count_incoming(&mut self) -> bool {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        self.incoming_window = self.incoming_window.saturating_sub(1);
        let is_due = self.incoming_window <= INCOMING_WINDOW / 2;
        if is_due {
            self.incoming_window = INCOMING_WINDOW;
        }
        is_due
    }

    /// Takes the client's windows from a flow (2.5.6).
    pub(crate) fn take_flow(&mut self, flow: &Flow<'_>) {
        let seen = flow.next_incoming_id.unwrap_or(FIRST_ID);
        self.remote_window = remaining(seen, flow.incoming_window, self.next_outgoing_id);
    }

    /// Whether a new delivery may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.is_open() && self.streaming.is_none()
    }

    /// Whether a frame may be written.
    pub(crate) fn is_open(&self) -> bool {
        self.remote_window > 0 && self.held.bytes.is_empty()
    }

    /// Counts `frames` that were written to `out` from `begun` on, the last of which ends `out`. Those beyond the
    /// client's window are taken back and held until it opens.
    pub(crate) fn count_outgoing(
        &mut self,
        out: &mut Vec<u8>,
        begun: usize,
        frames: usize,
        frame_bytes: usize,
        link: LinkKey,
    ) {
        let written = frames.min(self.remote_window as usize);
        if written < frames {
            let cut = begun + written * frame_bytes;
            let bytes = out.split_off(cut);
            self.held = Held { link: Some(link), bytes, written: 0, frame_bytes, owes_drained: false };
        }
        self.advance(written);
    }

    /// Writes as many held frames as the window now allows. After the last, returns the link that was drained
    /// meanwhile.
    pub(crate) fn release_held(&mut self, out: &mut Vec<u8>) -> Option<LinkKey> {
        if self.held.bytes.is_empty() {
            return None;
        }
        let unwritten = &self.held.bytes[self.held.written..];
        let frames = unwritten.len().div_ceil(self.held.frame_bytes);
        let written = frames.min(self.remote_window as usize);
        let cut = (written * self.held.frame_bytes).min(unwritten.len());
        out.extend_from_slice(&unwritten[..cut]);
        // Not moved to the front: a client may open its window frame by frame.
        self.held.written += cut;
        self.advance(written);
        if self.held.written < self.held.bytes.len() {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        held.link.filter(|_| held.owes_drained)
    }

    /// Drops what belongs to a link that is gone.
    pub(crate) fn forget_link(&mut self, link: LinkKey) {
        self.unsettled.forget_link(link);
        self.forget_frames(link);
    }

    /// Drops what would still be written of a link's deliveries.
    pub(crate) fn forget_frames(&mut self, link: LinkKey) {
        if self.held.link == Some(link) {
            self.held = Held::default();
        }
        self.streaming.take_if(|streaming| streaming.link == link);
    }

    /// Counts frames that were written.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(frames as u32);
        self.remote_window -= frames as u32;
    }

    pub(crate) fn weight(&self) -> Weight {
        Weight { held_bytes: self.held.bytes.capacity(), unsettled: self.unsettled.len() }
    }

    pub(crate) fn link_at(&self, handle: u32) -> Option<LinkKey> {
        let key = *self.handles.get(handle as usize)?;
        (key != NONE).then_some(LinkKey(key))
    }

    /// `handle` has been checked against the maximum, so the table stays small.
    pub(crate) fn set_handle(&mut self, handle: u32, link: Option<LinkKey>) {
        let index = handle as usize;
        if index >= self.handles.len() {
            self.handles.resize(index + 1, NONE);
        }
        self.handles[index] = link.map_or(NONE, |link| link.0);
    }

    pub(crate) fn forget_handles(&mut self) {
        self.handles.clear();
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = LinkKey> {
        self.handles.iter().filter(|key| **key != NONE).map(|key| LinkKey(*key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(window: u32) -> Session {
        let begin = Begin { next_outgoing_id: 9, incoming_window: window, ..Begin::default() };
        Session::new(SessionKey(0), 5, &begin)
    }

    #[test]
    fn the_incoming_window_is_renewed_at_half() {
        //
        let mut session = session(1);
        let due = (0..INCOMING_WINDOW / 2).filter(|_| session.count_incoming()).count();
        assert_eq!(due, 1);
        assert_eq!(session.flow().next_incoming_id, Some(9 + INCOMING_WINDOW / 2));
        assert_eq!(session.flow().incoming_window, INCOMING_WINDOW);
    }

    #[test]
    fn frames_beyond_the_window_wait_for_it() {
        let mut session = session(2);
        let mut out = b"..aabbccd".to_vec();
        session.count_outgoing(&mut out, 2, 4, 2, LinkKey(1));
        assert_eq!(out, b"..aabb");
        assert!(!session.has_room());
        assert_eq!(session.flow().next_outgoing_id, FIRST_ID + 2);

        let opened =
            |incoming_window, seen| Flow { next_incoming_id: Some(seen), incoming_window, ..Flow::default() };
        session.take_flow(&opened(1, FIRST_ID + 2));
        session.release_held(&mut out);
        assert_eq!(out, b"..aabbcc");
        session.take_flow(&opened(5, FIRST_ID + 2));
        session.release_held(&mut out);
        assert_eq!(out, b"..aabbccd");
        assert!(session.has_room());
        assert_eq!(session.remote_window, 3, "five from the third, of which two were sent");
    }

    #[test]
    fn a_flow_that_has_seen_nothing_counts_from_the_first_id() {
        let mut session = session(10);
        session.advance(4);
        session.take_flow(&Flow { incoming_window: 10, ..Flow::default() });
        assert_eq!(session.remote_window, 6);
    }
}
