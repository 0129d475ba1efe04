//! Replies on their way to a client. A reply with messages is put together when its link has credit and its bodies are
//! there: from the engine's cache, or read from disk, one such reply at a time for each connection. Until then it is a
//! list of places, so what waits is small; how much may wait is bounded, and a client that asks on and on without taking
//! answers loses the link.

use super::super::condition::SERVER_BUSY;
use super::super::connection::ConnectionTask;
use super::super::deliver::{Unshown, stamp_of};
use super::super::link::{Kind, Link};
use super::arguments::uuid_of_token;
use super::reply::Reply;
use super::{Verb, status};
use crate::limits::{LARGE_REPLIES_BYTES, LARGE_REPLY_BYTES, OUTPUT_BYTES, QUESTION_COST, SMALL_REPLY_BYTES};
use amqp::{LinkKey, SessionKey};
use broker::{BodyId, Delivery, State};
use bytes::Bytes;
use engine::BodyRead;
use journal::Place;
use message::codec::{begin_list, begin_map, code, end_compound, write_binary, write_string, write_uuid};
use message::delivery::{Stamp, encode};
use message::sections::Sections;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the door knows of a link that takes answers.
#[derive(Debug)]
pub(in super::super) struct Replies {
    pub(in super::super) path: String,
    address: Option<String>,
    waiting: VecDeque<UnsentReply>,
    waiting_bytes: usize,
}

/// A reply that its client has not taken.
#[derive(Debug)]
pub(super) enum UnsentReply {
    Encoded(Vec<u8>),
    Messages(Box<Messages>),
}

/// A reply with messages, of which only the places are known.
#[derive(Debug)]
pub(super) struct Messages {
    reply: Reply,
    verb: Verb,
    found: Vec<(Delivery, Vec<Place>)>,
    /// Held while a large one is being read and written.
    large: Option<Large>,
}

/// The replies of one connection that cannot go on by themselves.
#[derive(Debug, Default)]
pub(in super::super) struct PendingReplies {
    /// Links whose first reply waits for room in the output, or for the read of another.
    ready: Vec<LinkKey>,
    /// Links whose client must open its window first.
    blocked: Vec<LinkKey>,
    fetch: Option<Fetch>,
    /// Held until a large reply is written.
    writing: Option<Large>,
    next_tag: u32,
}

/// A reply whose bodies are being read.
#[derive(Debug)]
struct Fetch {
    link: LinkKey,
    messages: Box<Messages>,
    reading: BodyRead,
}

/// Bytes of large replies that all connections are putting together.
#[derive(Debug, Default)]
pub struct LargeReplies {
    held_bytes: AtomicUsize,
}

/// Room for one of them, until it is dropped.
#[derive(Debug)]
pub struct Large {
    total: Arc<LargeReplies>,
    bytes: usize,
}

impl Drop for Large {
    fn drop(&mut self) {
        self.total.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl LargeReplies {
    /// The first always finds room, however large it is.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Large> {
        let before = self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        let large = Large { total: Arc::clone(self), bytes };
        (before == 0 || before + bytes <= LARGE_REPLIES_BYTES).then_some(large)
    }
}

impl PendingReplies {
    pub(in super::super) fn is_fetching(&self) -> bool {
        self.fetch.is_some()
    }

    /// Whether there is something to send as soon as there is room in the output.
    pub(in super::super) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || self.is_fetching()
    }

    /// Returns when the bodies of a reply were read.
    pub(in super::super) async fn fetched(&mut self) {
        match &mut self.fetch {
            Some(fetch) => fetch.reading.done().await,
            None => std::future::pending().await,
        }
    }

    /// Clients have made room, or may have.
    pub(in super::super) fn unblock(&mut self) {
        self.ready.append(&mut self.blocked);
    }

    fn block(&mut self, key: LinkKey) {
        if !self.blocked.contains(&key) {
            self.blocked.push(key);
        }
    }

    /// Bytes of a large reply that is being put together or written, which count for all connections.
    pub(in super::super) fn large_bytes(&self) -> usize {
        self.writing.as_ref().map_or(0, |large| large.bytes)
    }

    fn wake(&mut self, key: LinkKey) {
        if !self.ready.contains(&key) {
            self.ready.push(key);
        }
    }

    fn take_fetched(&mut self) -> Option<(LinkKey, Vec<u8>)> {
        let bodies = self.fetch.as_mut()?.reading.take()?;
        let Fetch { link, mut messages, .. } = self.fetch.take()?;
        let encoded = messages.encoded(&bodies.bodies);
        if let Some(large) = messages.large.take() {
            self.writing = Some(large);
        }
        Some((link, encoded))
    }
}

impl Replies {
    pub(super) fn new(path: String, address: Option<String>) -> Replies {
        Replies { path, address, waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    pub(in super::super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(in super::super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn push(&mut self, waiting: UnsentReply) {
        self.waiting_bytes += waiting.held_bytes();
        self.waiting.push_back(waiting);
    }

    fn push_front(&mut self, waiting: UnsentReply) {
        self.waiting_bytes += waiting.held_bytes();
        self.waiting.push_front(waiting);
    }

    fn pop(&mut self) -> Option<UnsentReply> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_bytes -= waiting.held_bytes();
        Some(waiting)
    }
}

impl UnsentReply {
    fn held_bytes(&self) -> usize {
        match self {
            UnsentReply::Encoded(bytes) => bytes.capacity(),
            UnsentReply::Messages(messages) => {
                QUESTION_COST + messages.found.capacity() * size_of::<(Delivery, [Place; 2])>()
            }
        }
    }
}

impl Messages {
    pub(super) fn new(reply: Reply, verb: Verb, found: Vec<(Delivery, Vec<Place>)>) -> Messages {
        Messages { reply, verb, found, large: None }
    }

    /// What must be read: of a message without its body only the front, and what was changed of it.
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.found.iter().flat_map(|(delivery, places)| {
            let (parts, overlay) = places.split_at(self.pieces_of(delivery, places));
            parts[..self.wanted(parts.len())].iter().chain(overlay)
        })
    }

    fn bodies(&self) -> impl Iterator<Item = BodyId> {
        let omits = self.omits_body();
        self.found.iter().flat_map(move |(delivery, _)| {
            let parts = delivery.extra.iter().flat_map(|extra| extra.parts.iter().copied());
            let wanted = parts.chain([delivery.body]).take(if omits { 1 } else { usize::MAX });
            wanted.chain(delivery.stored_overlay().map(|stored| stored.body))
        })
    }

    /// How many of the places are of the message itself: behind them is that of its changed properties, if these are stored.
    fn pieces_of(&self, delivery: &Delivery, places: &[Place]) -> usize {
        places.len().saturating_sub(usize::from(delivery.stored_overlay().is_some()))
    }

    /// How many of the pieces of a message are read.
    fn wanted(&self, pieces: usize) -> usize {
        if self.omits_body() { pieces.min(1) } else { pieces }
    }

    fn omits_body(&self) -> bool {
        self.verb == Verb::Peek { omits_body: true }
    }

    fn bytes(&self) -> usize {
        self.found.iter().map(|(delivery, _)| delivery.stored_bytes()).sum()
    }

    /// The reply. A message whose body cannot be read is left out: damage stays local.
    fn encoded(&self, bodies: &[Option<Bytes>]) -> Vec<u8> {
        if self.verb == Verb::GetState {
            return self.encoded_state(bodies.first().and_then(Option::as_deref));
        }
        let mut out = Vec::with_capacity(self.bytes() + 1_024 * (1 + self.found.len()));
        self.reply.encode(&mut out, (status::OK, "OK"), None, 1, |out| {
            write_string(out, "messages");
            let open = begin_list(out);
            let (mut count, mut rest) = (0, bodies);
            for (delivery, places) in &self.found {
                let pieces = self.pieces_of(delivery, places);
                let read = self.wanted(pieces) + places.len() - pieces;
                let (read, others) = rest.split_at(read.min(rest.len()));
                rest = others;
                let Some(mut parts) = read.iter().map(Option::as_deref).collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let overlay = delivery.stored_overlay().and_then(|_| parts.pop()).unwrap_or_default();
                count += u32::from(self.write_message(out, delivery, &parts, overlay));
            }
            end_compound(out, open, count);
        });
        out
    }

    /// The state of a session, byte for byte as it was set.
    fn encoded_state(&self, state: Option<&[u8]>) -> Vec<u8> {
        match state {
            Some(state) => self.reply.with("session-state", |out| write_binary(out, state)),
            None => {
                let text = "The state of the session cannot be read; the log of the server says why.";
                let error = amqp::Error::new(amqp::condition::INTERNAL_ERROR, text);
                self.reply.failed(status::INTERNAL_ERROR, &error)
            }
        }
    }

    fn write_message(&self, out: &mut Vec<u8>, delivery: &Delivery, parts: &[&[u8]], overlay: &[u8]) -> bool {
        let start = out.len();
        let token = delivery.locked_until.map(|_| uuid_of_token(delivery.token));
        let open = begin_map(out);
        if let Some(token) = &token {
            write_string(out, "lock-token");
            write_uuid(out, token);
        }
        write_string(out, "message");
        out.extend_from_slice(&[code::BINARY_32, 0, 0, 0, 0]);
        let begun = out.len();
        if let Err(error) = self.write_parts(out, delivery, token, (parts, overlay)) {
            // It was whole when it was taken in, and its checksum is right: this is a bug, and a loud one.
            tracing::error!(%error, sequence = delivery.sequence.0, "a stored message cannot be encoded");
            out.truncate(start);
            return false;
        }
        let length = (out.len() - begun) as u32;
        out[begun - 4..begun].copy_from_slice(&length.to_be_bytes());
        end_compound(out, open, 2 + 2 * u32::from(token.is_some()));
        true
    }

    fn write_parts(
        &self,
        out: &mut Vec<u8>,
        delivery: &Delivery,
        lock_token: Option<[u8; 16]>,
        (parts, overlay): (&[&[u8]], &[u8]),
    ) -> Result<(), Unshown> {
        let Some((first, others)) = parts.split_first() else { return Ok(()) };
        let is_whole = delivery.extra.as_ref().is_none_or(|extra| extra.parts.is_empty());
        let mut sections = if is_whole { Sections::scan(first)? } else { Sections::scan_front(first)? };
        let mut stored = *first;
        if self.omits_body() {
            let end = if is_whole { sections.body.start } else { sections.scanned } as usize;
            if !is_whole || sections.body.is_present() {
                stored = &first[..end];
                sections = Sections::scan(stored)?;
            }
        }
        let state = match delivery.state {
            State::Active | State::Gone => 0,
            State::Deferred => 1,
            State::Scheduled => 2,
        };
        let stamp = Stamp { state: Some(state), lock_token, ..stamp_of(delivery) };
        let changes = delivery.changes(overlay)?;
        encode(out, stored, &sections, &stamp, changes.as_deref())?;
        others.iter().for_each(|part| out.extend_from_slice(part));
        Ok(())
    }
}

impl<S> ConnectionTask<S> {
    /// Where an answer goes: the link that the request names by its address or its name, else the one of the same node
    /// and session.
    pub(super) fn management_replies(
        &self,
        reply_to: Option<&str>,
        session: SessionKey,
        path: &str,
    ) -> Option<LinkKey> {
        let find = |fits: &dyn Fn(&Link, &Replies) -> bool| {
            self.links.iter().find_map(|(key, link)| match &link.kind {
                Kind::ManagementReplies(replies) if fits(link, replies) => Some(LinkKey(*key)),
                _ => None,
            })
        };
        let is_ours = |link: &Link, replies: &Replies| link.session == session && replies.path == path;
        let named = |reply_to: &str| {
            let at = |replies: &Replies| replies.address.as_deref() == Some(reply_to);
            find(&|link, replies| at(replies) && is_ours(link, replies))
                .or_else(|| find(&|_, replies| at(replies)))
                .or_else(|| find(&|link, _| link.name == reply_to))
        };
        reply_to.and_then(named).or_else(|| find(&is_ours))
    }

    /// Sends a reply as soon as its client takes it.
    pub(super) fn reply_with(&mut self, key: LinkKey, waiting: UnsentReply) {
        let Some(Link { kind: Kind::ManagementReplies(replies), .. }) = self.links.get_mut(&key.0) else {
            return;
        };
        self.replies_bytes += waiting.held_bytes();
        replies.push(waiting);
        self.send_management(key);
        self.end_untaken(key);
    }

    /// Sends what can be sent on a link.
    pub(in super::super) fn send_management(&mut self, key: LinkKey) {
        loop {
            let is_full = self.machine.output().len() >= self.output_most;
            let Some(Link { kind: Kind::ManagementReplies(replies), .. }) = self.links.get_mut(&key.0) else {
                return;
            };
            if replies.waiting.is_empty() {
                return;
            }
            if !self.machine.can_send(key) {
                return self.pending_replies.block(key);
            }
            if is_full {
                return self.pending_replies.wake(key);
            }
            let popped = replies.pop();
            self.replies_bytes -= popped.as_ref().map_or(0, UnsentReply::held_bytes);
            let bytes = match popped {
                Some(UnsentReply::Encoded(bytes)) => bytes,
                Some(UnsentReply::Messages(messages)) => match self.gather(key, messages) {
                    Some(bytes) => bytes,
                    None => return,
                },
                None => return,
            };
            let tag = self.pending_replies.next_tag.to_be_bytes();
            self.pending_replies.next_tag = self.pending_replies.next_tag.wrapping_add(1);
            let sent = self.machine.send(key, &tag, true, 0, |out| out.extend_from_slice(&bytes));
            debug_assert!(matches!(sent, amqp::Sent::Delivery(_)), "the link could send: {sent:?}");
        }
    }

    /// The whole reply, if its bodies are at hand. Otherwise they are being read, and it comes back by itself.
    fn gather(&mut self, key: LinkKey, mut messages: Box<Messages>) -> Option<Vec<u8>> {
        let bytes = messages.bytes();
        let has_room = if bytes <= LARGE_REPLY_BYTES {
            // As it is read, as it is encoded, and in the output.
            bytes <= SMALL_REPLY_BYTES || self.has_room_for(3 * bytes)
        } else {
            messages.large = messages.large.take().or_else(|| self.state.large_replies.reserve(bytes));
            messages.large.is_some()
        };
        if !has_room {
            let text = "The server is putting too many large answers together; ask again later.";
            let error = self.origin.error(SERVER_BUSY, text, "");
            return Some(messages.reply.failed(status::BUSY, &error));
        }
        let mut bodies = Vec::new();
        self.engine.handle().cache().get(messages.bodies(), &mut bodies);
        if bodies.iter().all(Option::is_some) {
            return Some(messages.encoded(&bodies));
        }
        if self.pending_replies.is_fetching() {
            if let Some(Link { kind: Kind::ManagementReplies(replies), .. }) = self.links.get_mut(&key.0) {
                let waiting = UnsentReply::Messages(messages);
                self.replies_bytes += waiting.held_bytes();
                replies.push_front(waiting);
                self.pending_replies.wake(key);
            }
            return None;
        }
        let places = messages.places().cloned().collect();
        let reading = self.engine.handle().read(places, bytes, false);
        self.pending_replies.fetch = reading.map(|reading| Fetch { link: key, messages, reading });
        None
    }

    /// Sends on what waited for a read or for room in the output.
    pub(in super::super) fn serve_management(&mut self) {
        if self.machine.output().len() < OUTPUT_BYTES && self.machine.held_frames_bytes() < LARGE_REPLY_BYTES
        {
            self.pending_replies.writing = None;
        }
        if let Some((key, reply)) = self.pending_replies.take_fetched()
            && let Some(Link { kind: Kind::ManagementReplies(replies), .. }) = self.links.get_mut(&key.0)
        {
            let waiting = UnsentReply::Encoded(reply);
            self.replies_bytes += waiting.held_bytes();
            replies.push_front(waiting);
            self.pending_replies.wake(key);
        }
        for key in std::mem::take(&mut self.pending_replies.ready) {
            self.send_management(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_replies_share_a_budget_and_one_always_fits() {
        let total = Arc::new(LargeReplies::default());
        let huge = total.reserve(2 * LARGE_REPLIES_BYTES).expect("the first");
        assert!(total.reserve(1).is_none());
        drop(huge);
        let half = total.reserve(LARGE_REPLIES_BYTES / 2).expect("half");
        assert!(total.reserve(LARGE_REPLIES_BYTES / 2 + 1).is_none());
        assert!(total.reserve(LARGE_REPLIES_BYTES / 2).is_some());
        drop(half);
        assert_eq!(total.held_bytes.load(Ordering::Relaxed), 0);
    }
}
