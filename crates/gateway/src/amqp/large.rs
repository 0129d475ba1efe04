//! Large messages going out, part by part: a part is read when the client's window is open and there is room in the
//! output, and what the window does not take is forgotten and read again. So a large message costs the memory of one
//! part however slow its receiver is.

use super::connection::ConnectionTask;
use super::deliver::{Unshown, encode_stamped};
use super::settle::{sent_tag, tag_of};
use amqp::LinkKey;
use broker::{Command, ReceiveMode};
use bytes::Bytes;
use engine::{Sent, StoredMessage};
use journal::Place;
use message::sections::Sections;

/// How much of a large message is out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Progress {
    /// The delivery has begun.
    pub(super) is_begun: bool,
    /// Parts that are out.
    parts: usize,
    /// Bytes of the next part, as the receiver gets it, that are out.
    bytes: usize,
}

impl Progress {
    /// Where the part is that goes out next, and with the first one what was changed of the message, if that is stored.
    pub(super) fn next_places<'a>(&self, sent: &'a Sent) -> impl Iterator<Item = &'a Place> + use<'a> {
        let overlay = sent.overlay.as_deref().filter(|_| self.parts == 0);
        [sent.parts.get(self.parts).unwrap_or(&sent.place)].into_iter().chain(overlay)
    }
}

impl<S> ConnectionTask<S> {
    /// Sends as much of the next part of a link's first message as the client takes.
    pub(super) fn send_part(&mut self, key: LinkKey, found: Option<StoredMessage>) {
        let Some(receiver) = self.receiver(key) else { return };
        let mut progress = receiver.progress;
        let Some(sent) = receiver.waiting.pop_front() else { return };
        let is_last = progress.parts == sent.parts.len();
        let part = found.and_then(|found| as_received(&sent, found, progress.parts, is_last));
        let Some(part) = part else { return self.give_up(key, progress.is_begun) };

        if !progress.is_begun {
            let is_settled = sent.mode == ReceiveMode::ReceiveAndDelete;
            let locked = tag_of(sent.delivery.token);
            match self.machine.begin_stream(key, sent_tag(&locked, is_settled), is_settled, 0) {
                amqp::Sent::Delivery(_) => progress.is_begun = true,
                amqp::Sent::NoCredit | amqp::Sent::NoWindow => {}
                amqp::Sent::NotAttached => return self.waiting_deliveries -= 1,
            }
        }
        if progress.is_begun {
            let Some(taken) = self.machine.stream(key, &part[progress.bytes..], is_last) else {
                return self.waiting_deliveries -= 1;
            };
            progress.bytes += taken;
        }
        let is_blocked = progress.bytes < part.len();
        let is_done = is_last && !is_blocked;
        if is_done {
            progress = Progress::default();
            // Other links of the session had to wait for this message.
            self.service.unblock();
        } else if !is_blocked {
            progress = Progress { parts: progress.parts + 1, bytes: 0, ..progress };
        }
        let Some(receiver) = self.receiver(key) else { return };
        receiver.progress = progress;
        if !is_done {
            receiver.waiting.push_front(sent);
        }
        self.end_turn(key, u64::from(is_done), is_blocked);
    }

    /// The next part cannot be read. A message that has not begun is passed over; one that has cannot be taken back
    /// but with its link.
    fn give_up(&mut self, key: LinkKey, is_begun: bool) {
        if !is_begun {
            return self.end_turn(key, 1, false);
        }
        self.waiting_deliveries -= 1;
        let Some(link) = self.remove(key) else { return };
        let text = "A stored message cannot be read.";
        let error = self.origin.error("amqp:internal-error", text, link.kind.path());
        self.machine.detach(key, Some(&error));
        self.batch.commands.push(Command::Detach { link: self.engine.link(key.0) });
    }
}

/// The part as the receiver gets it: the first one has the broker's header and annotations, the others are as they were
/// sent.
fn as_received(sent: &Sent, found: StoredMessage, part: usize, is_last: bool) -> Option<Bytes> {
    if part > 0 {
        return Some(found.body);
    }
    let body = &found.body;
    let sections = if is_last { Sections::scan(body) } else { Sections::scan_front(body) };
    let mut out = Vec::new();
    let sections = sections.map_err(Unshown::from);
    let encoded = sections.and_then(|sections| encode_stamped(&mut out, sent, &found, &sections));
    match encoded {
        Ok(()) => Some(out.into()),
        Err(error) => {
            // It was whole when it was taken in, and its checksum is right: this is a bug, and a loud one.
            let sequence = sent.delivery.sequence.0;
            tracing::error!(%error, sequence, "a stored message cannot be encoded");
            None
        }
    }
}
