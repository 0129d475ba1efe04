//! Publishing: a message at a topic becomes copies in the subscriptions whose rules select it (S-180), each with a number
//! and a life of its own, all of them with the same body.
//!
//! The topic itself keeps nothing but what is scheduled. A message that nobody selects is accepted and gone; it has used a
//! number all the same. Rules look at what comes before a message's body: of one that was just sent it is at hand, of
//! one that is scheduled or forwarded it is read first (`read.rs`).

use super::published::{Copied, Origin, Published};
use super::routes::{Routes, Selected, Selection};
use super::scalar::Wrong;
use super::subject::{About, Front, session_text};
use crate::Broker;
use crate::command::{Arrivals, Incoming};
use crate::decision::{LocalContext, LocalDecision};
use crate::ids::{EntityId, Number, Sequence, Source};
use crate::limits::{RESULT_STEPS, SLICE_BYTES};
use crate::planted::{Bug, is_planted};
use crate::queue::index::Reason;
use crate::queue::overlay::{Kept, is_small};
use crate::queue::read_request::Read;
use crate::queue::send::Parts;
use crate::record::Record;
use crate::time::{LocalTime, Span};
use message::overlay::{Change, Overlay};
use message::system::SystemProperty;
use std::borrow::Cow;
use std::sync::Arc;

/// A message that is about to be published.
struct Arriving<'a> {
    topic: EntityId,
    front: Option<Front<'a>>,
    /// What has changed since it was stored.
    overlay: Option<&'a Overlay>,
    /// Whether that is stored, for every copy that has no changes of its own.
    is_stored: bool,
    session: Option<Arc<str>>,
    length: u32,
    /// When it expires by its own account and by the topic's.
    expires: LocalTime,
}

/// A copy, and why it goes to the dead-letter queue if it does.
struct Planned {
    copied: Copied,
    /// What an action has changed, if it is not small.
    stored: Option<Box<Overlay>>,
    session: Option<Arc<str>>,
    dead: Option<(Reason, Option<Kept>)>,
}

impl Broker {
    /// Publishes a message that was just sent.
    pub(crate) fn publish_sent(
        &mut self,
        topic: EntityId,
        message: &Incoming,
        session: Option<&Arc<str>>,
        parts: Parts,
        arrivals: Arrivals<'_>,
        decision: &mut LocalDecision<'_>,
    ) {
        let routes = self.routes(topic);
        let length = message.body.length + parts.bytes as u32;
        let stored = parts.front.as_deref().unwrap_or_else(|| arrivals.body(message.body));
        let arriving = Arriving {
            topic,
            front: routes.needs_front().then(|| Front::of(stored)).flatten(),
            overlay: None,
            is_stored: false,
            session: session.cloned(),
            length,
            expires: self.expiry(topic, message.time_to_live, decision.now),
        };
        let copies = self.copies(&routes, &arriving, decision);
        if copies.is_empty() {
            let sequence = self.next_number(topic);
            return self.write(Record::Skipped { entity: topic, sequence }, decision);
        }
        let body = self.place_body(message, parts.stored, decision);
        let origin = Origin::Sent { body, length, parts: parts.bodies };
        self.hand_on(topic, origin, copies, decision);
    }

    /// Publishes a message whose time has come (S-49), and says how many copies it became. `stored` is what was read of it,
    /// if that was necessary.
    pub(crate) fn publish_scheduled(
        &mut self,
        topic: EntityId,
        scheduled: Sequence,
        read: Option<&Read>,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let queue = self.durable.queue(topic).expect("the caller looked");
        let length = queue.index.get(scheduled).expect("it is scheduled").length;
        let extra = queue.extras.get(&scheduled);
        let own = extra.and_then(|extra| extra.time_to_live).unwrap_or(Span::MAX);
        // What another entity forwarded for later may have been changed there. What cannot be understood no rule can be held against.
        let changed = match (extra, read) {
            (Some(extra), Some(read)) => extra.changes(&read.overlay),
            _ => Ok(None),
        };
        let front = read.filter(|_| changed.is_ok()).and_then(|read| Front::of(&read.front));
        let changed = changed.unwrap_or_default().map(Cow::into_owned);
        let arriving = Arriving {
            topic,
            front,
            overlay: changed.as_ref(),
            is_stored: queue.stored_overlay(scheduled).is_some(),
            session: queue.session_of(scheduled).cloned(),
            length,
            expires: self.expiry(topic, own, decision.now),
        };
        let routes = self.routes(topic);
        let copies = self.copies(&routes, &arriving, decision);
        let count = copies.len();
        self.hand_on(topic, Origin::Scheduled(scheduled), copies, decision);
        count
    }

    /// Publishes a message that another entity forwards, and says how many copies it became. With it comes when it expires
    /// at the latest, and all that is changed of it if that changes on the way; `changed` is what was changed before.
    pub(crate) fn publish_forwarded(
        &mut self,
        topic: EntityId,
        (source, sequence): (Source, Sequence),
        (expires, along): (LocalTime, Option<Overlay>),
        changed: Option<&Overlay>,
        stored: Option<&[u8]>,
        decision: &mut LocalDecision<'_>,
    ) -> usize {
        let queue = self.queue_of(source);
        let slot = queue.index_of(source.sub).and_then(|index| index.get(sequence)).expect("it is free");
        let (front, length) = (stored.and_then(Front::of), slot.length);
        let kept = queue.session_of(sequence).cloned();
        let overlay = along.as_ref().or(changed);
        let is_stored = match &along {
            Some(along) => !is_small(along.encoded_bytes()),
            None => queue.stored_overlay(sequence).is_some(),
        };
        let arriving = Arriving {
            topic,
            front,
            overlay,
            is_stored,
            session: kept.or_else(|| front.and_then(|front| front.session(overlay))),
            length,
            expires: self.expiry(topic, Span::MAX, decision.now).min(expires),
        };
        let routes = self.routes(topic);
        let mut copies = self.copies(&routes, &arriving, decision);
        // What a dead letter takes along, every copy has; an action has seen it already.
        match along.map(Kept::whole) {
            Some(Kept::InRecord(along)) => {
                for planned in copies.iter_mut().filter(|planned| planned.stored.is_none()) {
                    planned.copied.overlay.get_or_insert_with(|| along.clone());
                }
            }
            // All of them share it.
            Some(Kept::Stored(along)) if !copies.is_empty() => {
                self.store_overlay(source.entity, sequence, &along, decision);
            }
            _ => {}
        }
        let count = copies.len();
        self.hand_on(topic, Origin::Forwarded { source, sequence }, copies, decision);
        count
    }

    /// Whether a message must be read before it can be published at a topic.
    pub(crate) fn wants_front(&mut self, topic: EntityId) -> bool {
        let routes = self.routes(topic);
        routes.needs_front() || routes.has_sessions()
    }

    /// Whether a message that is sent to a topic is stored as if it had been scheduled, and published in a slice of its own: the
    /// command that brings it has taken long, or others wait so already, which it must not overtake.
    pub(crate) fn puts_off_publishing(&self, topic: EntityId, decision: &LocalDecision<'_>) -> bool {
        let first = self.volatile.presence(topic).schedule.first();
        decision.command_weight() >= self.publish_steps
            || first.is_some_and(|(due, _)| *due == LocalTime::AT_ONCE)
    }

    fn next_number(&self, topic: EntityId) -> Sequence {
        self.durable.queue(topic).expect("the caller looked").next
    }

    /// What the subscriptions get of a message.
    fn copies(
        &mut self,
        routes: &Routes,
        arriving: &Arriving<'_>,
        decision: &mut LocalDecision<'_>,
    ) -> Vec<Planned> {
        let context = decision.context();
        let topic = self.durable.queue(arriving.topic).expect("the caller looked");
        let mut about = About {
            now: context.now,
            expires: arriving.expires,
            number: topic.number(topic.next),
            length: arriving.length,
            session_bytes: arriving.session.as_ref().map_or(0, |session| session.len()),
            seed: [0, 0],
        };
        if routes.needs_front() {
            about.seed = [self.volatile.fresh_nonce(), self.volatile.fresh_nonce()];
        }
        let mut found = Vec::new();
        let steps = routes.select(arriving.front.as_ref(), arriving.overlay, about, &mut found);
        let steps = steps + found.len() * RESULT_STEPS;
        self.steps += steps;
        // Work ends a slice as records do.
        decision.weight += steps;
        if is_planted(Bug::Unheard) && found.len() > 2 {
            found.pop();
        }
        let mut word_bytes = 0;
        let copy = |selected| self.copy(selected, arriving, &mut word_bytes, context);
        found.into_iter().filter_map(copy).collect()
    }

    /// `None` if a rule failed and nobody wants to know (S-200).
    fn copy(
        &self,
        selected: Selected,
        arriving: &Arriving<'_>,
        word_bytes: &mut usize,
        context: LocalContext,
    ) -> Option<Planned> {
        let subscription = selected.subscription;
        let settings = &self.durable.topics().subscription(subscription)?.settings;
        let (mut expires, mut session) = (arriving.expires, arriving.session.clone());
        let (mut overlay, mut stored, mut dead) = (None, None, None);
        match selected.what {
            Selection::Plain => {}
            Selection::Acted(acted) => {
                if let Some(own) = acted.time_to_live {
                    expires = self.expiry(arriving.topic, own, context.now);
                }
                match acted.overlay.system(SystemProperty::SessionId) {
                    Some(Change::Set(value)) => session = session_text(value),
                    Some(Change::Removed) => session = None,
                    None => {}
                }
                match Kept::whole(acted.overlay) {
                    Kept::InRecord(small) => overlay = Some(small),
                    Kept::Stored(large) => stored = Some(large),
                }
            }
            Selection::Failed { .. }
                if !settings.dead_letter_on_filter_exceptions || is_planted(Bug::FilterErrorLost) =>
            {
                return None;
            }
            Selection::Failed { is_action, why } => {
                let words = failure(is_action, &why);
                // What clients have changed may leave no room for the words. It is theirs; the words are only ours.
                let is_room = arriving.overlay.is_none_or(|changed| changed.clone().merge(&words).is_ok());
                let kept = is_room.then(|| Kept::change(arriving.overlay, arriving.is_stored, &words));
                // Nor do they for more copies of what is stored than an append holds.
                let kept = kept.filter(|kept| match kept {
                    Kept::InRecord(_) => true,
                    Kept::Stored(whole) => {
                        *word_bytes += whole.encoded_bytes();
                        *word_bytes <= SLICE_BYTES
                    }
                });
                dead = Some((Reason::Client, kept));
            }
        }
        if settings.requires_session && session.is_none() && dead.is_none() {
            dead = Some((Reason::SessionMissing, None));
        }
        // S-58
        let expires = self.expiry(subscription, Span::MAX, context.now).min(expires);
        let copied = Copied { subscription, expires, overlay };
        Some(Planned { copied, stored, session, dead })
    }

    fn hand_on(
        &mut self,
        topic: EntityId,
        origin: Origin,
        planned: Vec<Planned>,
        decision: &mut LocalDecision<'_>,
    ) {
        let (mut copies, mut arrived) =
            (Vec::with_capacity(planned.len()), Vec::with_capacity(planned.len()));
        let mut before: Option<(EntityId, Sequence)> = None;
        for Planned { copied, stored, session, dead } in planned {
            let subscription = copied.subscription;
            let sequence = match before {
                Some((other, sequence)) if other == subscription => sequence.next(),
                _ => self.next_number(subscription),
            };
            before = Some((subscription, sequence));
            copies.push(copied);
            arrived.push((subscription, sequence, stored, session, dead));
        }
        self.state_bytes.changes = self.state_bytes.changes.saturating_add(copies.len());
        let sequence = self.next_number(topic);
        let published = Published { topic, sequence, origin, copies: copies.into() };
        self.write(Record::Published(Box::new(published)), decision);
        for (subscription, sequence, stored, session, dead) in arrived {
            if let Some(overlay) = stored {
                self.store_overlay(subscription, sequence, &overlay, decision);
            }
            self.join(subscription, sequence, session.as_ref(), decision);
            match dead {
                None => self.arrive(subscription, sequence, decision),
                Some((reason, kept)) => {
                    let overlay =
                        kept.and_then(|kept| self.write_kept(subscription, sequence, kept, decision));
                    self.dead_letter(subscription, sequence, reason, false, overlay, decision);
                }
            }
        }
    }
}

/// The words for a rule that failed (S-107, S-110).
fn failure(is_action: bool, why: &Wrong) -> Overlay {
    let (reason, description) = match (why, is_action) {
        (Wrong::TooLarge, _) => {
            ("HeaderSizeExceeded", "The size quota for this stream has been exceeded.".to_owned())
        }
        (why, true) => ("RuleActionException", format!("The action of a rule failed: {why}.")),
        (why, false) => ("FilterException", format!("The filter of a rule failed: {why}.")),
    };
    let mut overlay = Overlay::default();
    let words = overlay.set_dead_letter(Some(reason), Some(&description));
    words.expect("the words of a failure are far below the limit");
    overlay
}

impl Default for About {
    fn default() -> About {
        About {
            now: LocalTime(0),
            expires: LocalTime::NEVER,
            number: Number(0),
            length: 0,
            session_bytes: 0,
            seed: [0, 0],
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
