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
use crate::decision::{Deciding, LocalContext};
use crate::ids::{EntityId, Number, Sequence, Source};
use crate::limits::RESULT_STEPS;
use crate::planted::{Bug, is_planted};
use crate::queue::index::Reason;
use crate::queue::send::Parts;
use crate::record::Record;
use crate::time::{LocalTime, Span};
use message::overlay::{Change, Overlay};
use message::system::SystemProperty;
use std::sync::Arc;

/// A message that is about to be published.
struct Arriving<'a> {
    topic: EntityId,
    front: Option<Front<'a>>,
    /// What has changed since it was stored.
    overlay: Option<&'a Overlay>,
    session: Option<Arc<str>>,
    length: u32,
    /// When it expires by its own account and by the topic's.
    expires: LocalTime,
}

/// A copy, and why it goes to the dead-letter queue if it does.
struct Planned {
    copied: Copied,
    session: Option<Arc<str>>,
    dead: Option<(Reason, Option<Box<Overlay>>)>,
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
        decision: &mut Deciding<'_>,
    ) {
        let routes = self.routes(topic);
        let length = message.body.length + parts.bytes as u32;
        let stored = parts.front.as_deref().unwrap_or_else(|| arrivals.body(message.body));
        let arriving = Arriving {
            topic,
            front: routes.needs_front().then(|| Front::of(stored)).flatten(),
            overlay: None,
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
        stored: Option<&[u8]>,
        decision: &mut Deciding<'_>,
    ) -> usize {
        let queue = self.durable.queue(topic).expect("the caller looked");
        let length = queue.index.get(scheduled).expect("it is scheduled").length;
        let extra = queue.extras.get(&scheduled);
        let own = extra.and_then(|extra| extra.time_to_live).unwrap_or(Span::MAX);
        let front = stored.and_then(Front::of);
        // What another entity forwarded for later may have been changed there.
        let changed = extra.and_then(|extra| extra.overlay.clone());
        let arriving = Arriving {
            topic,
            front,
            overlay: changed.as_ref(),
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
    /// at the latest, and what changes with it.
    pub(crate) fn publish_forwarded(
        &mut self,
        topic: EntityId,
        (source, sequence): (Source, Sequence),
        (expires, overlay): (LocalTime, Option<Box<Overlay>>),
        stored: Option<&[u8]>,
        decision: &mut Deciding<'_>,
    ) -> usize {
        let queue = self.queue_of(source);
        let slot = queue.index_of(source.sub).and_then(|index| index.get(sequence)).expect("it is free");
        let (front, length) = (stored.and_then(Front::of), slot.length);
        let kept = queue.session_of(sequence).cloned();
        let own = queue.extras.get(&sequence).and_then(|extra| extra.overlay.clone());
        let changed = overlay.map(|overlay| *overlay).or(own);
        let arriving = Arriving {
            topic,
            front,
            overlay: changed.as_ref(),
            session: kept.or_else(|| front.and_then(|front| front.session(changed.as_ref()))),
            length,
            expires: self.expiry(topic, Span::MAX, decision.now).min(expires),
        };
        let routes = self.routes(topic);
        let mut copies = self.copies(&routes, &arriving, decision);
        // What a dead letter takes along, every copy has; an action has seen it already.
        if source.sub != crate::SubQueue::Main {
            for planned in &mut copies {
                planned.copied.overlay.get_or_insert_with(|| Box::new(changed.clone().unwrap_or_default()));
            }
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
    pub(crate) fn puts_off_publishing(&self, topic: EntityId, decision: &Deciding<'_>) -> bool {
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
        decision: &mut Deciding<'_>,
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
        let mut changes_held = None;
        let copy = |selected| self.copy(selected, arriving, &mut changes_held, context);
        found.into_iter().filter_map(copy).collect()
    }

    /// `None` if a rule failed and nobody wants to know (S-200).
    fn copy(
        &self,
        selected: Selected,
        arriving: &Arriving<'_>,
        changes_held: &mut Option<usize>,
        context: LocalContext,
    ) -> Option<Planned> {
        let subscription = selected.subscription;
        let settings = &self.durable.topics().subscription(subscription)?.settings;
        let (mut expires, mut session) = (arriving.expires, arriving.session.clone());
        let (mut overlay, mut dead) = (None, None);
        let (mut has_room, mut what) = (true, selected.what);
        if let Selection::Acted(acted) = &what {
            let bytes = acted.overlay.encoded_bytes();
            has_room = self.check_changes_held(subscription, bytes, changes_held).is_ok();
        }
        if !has_room {
            what = Selection::Failed { is_action: true, why: Wrong::TooLarge };
        }
        match what {
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
                overlay = Some(Box::new(acted.overlay));
            }
            // What only found no room here is kept, whatever the subscription does with failures.
            Selection::Failed { .. }
                if has_room
                    && (!settings.dead_letter_on_filter_exceptions || is_planted(Bug::FilterErrorLost)) =>
            {
                return None;
            }
            Selection::Failed { is_action, why } => {
                let words = failure(is_action, &why);
                // What clients have changed may leave no room for the words. It is theirs; the words are only ours.
                let is_room = arriving.overlay.is_none_or(|changed| changed.clone().merge(&words).is_ok());
                dead = Some((Reason::Client, is_room.then(|| Box::new(words))));
            }
        }
        if settings.requires_session && session.is_none() && dead.is_none() {
            dead = Some((Reason::SessionMissing, None));
        }
        // S-58
        let expires = self.expiry(subscription, Span::MAX, context.now).min(expires);
        let copied = Copied { subscription, expires, overlay };
        Some(Planned { copied, session, dead })
    }

    fn hand_on(
        &mut self,
        topic: EntityId,
        origin: Origin,
        planned: Vec<Planned>,
        decision: &mut Deciding<'_>,
    ) {
        let (mut copies, mut arrived) =
            (Vec::with_capacity(planned.len()), Vec::with_capacity(planned.len()));
        let mut before: Option<(EntityId, Sequence)> = None;
        for Planned { copied, session, dead } in planned {
            let subscription = copied.subscription;
            let sequence = match before {
                Some((other, sequence)) if other == subscription => sequence.next(),
                _ => self.next_number(subscription),
            };
            before = Some((subscription, sequence));
            copies.push(copied);
            arrived.push((subscription, sequence, session, dead));
        }
        self.state_bytes.changes = self.state_bytes.changes.saturating_add(copies.len());
        let sequence = self.next_number(topic);
        let published = Published { topic, sequence, origin, copies: copies.into() };
        self.write(Record::Published(Box::new(published)), decision);
        for (subscription, sequence, session, dead) in arrived {
            self.join(subscription, sequence, session.as_ref(), decision);
            match dead {
                None => self.arrive(subscription, sequence, decision),
                Some((reason, overlay)) => {
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
