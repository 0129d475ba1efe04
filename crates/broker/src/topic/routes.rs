//! The rules of a topic, made ready for reading: which subscriptions get a copy of a message, and of which kind (S-182).
//!
//! Rebuilt when a rule or a subscription comes, changes or goes; never stored. What must always hold: routes say exactly
//! what the rules say, in the order of subscriptions and of the names of their rules. A rule that asks for a value of a
//! property first is found by that value, so that a message costs what its own subscriptions cost, not all of them.

use super::action::{self, Acted};
use super::expression::Statement;
use super::filter::{Key, Ready, Wanted};
use super::scalar::Wrong;
use super::steps::Steps;
use super::subject::{About, Front, Subject};
use super::{Topics, sql};
use crate::Broker;
use crate::ids::EntityId;
use crate::limits::{COPY_BYTES, FAN_OUT_BYTES, MOVE_BYTES};
use crate::work::touched;
use message::overlay::Overlay;
use message::system::SystemProperty;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Routes {
    rules: Vec<Route>,
    /// Rules that take everything.
    always: Vec<u32>,
    /// Rules by the value that a property must have; by the name of a user property in lower case.
    by_user: BTreeMap<Box<str>, BTreeMap<Key, Vec<u32>>>,
    by_system: Vec<(SystemProperty, BTreeMap<Key, Vec<u32>>)>,
    /// Rules that every message must be held against.
    others: Vec<u32>,
    /// How many rules have an action.
    actions: usize,
    has_sessions: bool,
}

#[derive(Debug)]
struct Route {
    subscription: EntityId,
    /// Its copies have more records than one: they are in sessions, or forwarded at once, or dead-lettered.
    moves: bool,
    name: Box<str>,
    filter: Ready,
    action: Option<Vec<Statement>>,
}

impl Route {
    /// What the records of a copy take at the most, if its session id has so many bytes.
    fn bytes(&self, session_bytes: usize) -> usize {
        COPY_BYTES + if self.moves { MOVE_BYTES + session_bytes } else { 0 }
    }
}

/// What a subscription gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) subscription: EntityId,
    pub(super) what: Selection,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The message as it is, for all rules without an action together.
    Plain,
    /// A copy that an action has changed.
    Acted(Box<Acted>),
    /// A filter or an action failed; nothing else comes of the message here (S-200).
    Failed { is_action: bool, why: Wrong },
}

impl Routes {
    pub(crate) fn of(topics: &Topics, topic: EntityId) -> Routes {
        let mut routes = Routes::default();
        let topic = topics.topic(topic);
        for entity in topic.iter().flat_map(|topic| topic.subscriptions.values()) {
            let Some(subscription) = topics.subscription(*entity) else { continue };
            let settings = &subscription.settings;
            routes.has_sessions |= settings.requires_session;
            let moves = settings.requires_session || settings.forward_to.is_some();
            for stored in subscription.rules.values() {
                let rule = &stored.rule;
                // It was checked when it was made; one that cannot be read all the same does nothing.
                let action = rule.action.as_ref().map(|action| sql::action(action).unwrap_or_default());
                routes.add(Route {
                    subscription: *entity,
                    moves,
                    name: rule.name.clone(),
                    filter: Ready::of(&rule.filter),
                    action,
                });
            }
        }
        routes
    }

    fn add(&mut self, route: Route) {
        let nth = self.rules.len() as u32;
        self.actions += usize::from(route.action.is_some());
        match (&route.filter, route.filter.first()) {
            (Ready::Never, _) => {}
            (Ready::Always, _) => self.always.push(nth),
            (_, None) => self.others.push(nth),
            (_, Some(first)) => {
                let keys = match first.property {
                    Wanted::User(name) => self.by_user.entry(name).or_default(),
                    Wanted::System(property) => self.system_keys(property),
                };
                keys.entry(first.key).or_default().push(nth);
            }
        }
        self.rules.push(route);
    }

    fn system_keys(&mut self, property: SystemProperty) -> &mut BTreeMap<Key, Vec<u32>> {
        let at = self.by_system.iter().position(|(known, _)| *known == property).unwrap_or_else(|| {
            self.by_system.push((property, BTreeMap::new()));
            self.by_system.len() - 1
        });
        &mut self.by_system[at].1
    }

    /// Whether a message must be looked at before it is known who gets it.
    pub(super) fn needs_front(&self) -> bool {
        self.actions > 0 || !(self.by_user.is_empty() && self.by_system.is_empty() && self.others.is_empty())
    }

    /// Whether it matters to a subscription that a message has a session (S-108).
    pub(super) fn has_sessions(&self) -> bool {
        self.has_sessions
    }

    /// What the subscriptions get of a message, in their order, and how many steps it took to tell. Without a front only those that take everything do.
    pub(super) fn select(
        &self,
        front: Option<&Front<'_>>,
        overlay: Option<&Overlay>,
        about: About,
        found: &mut Vec<Selected>,
    ) -> usize {
        let steps = Rc::new(Steps::default());
        let subject = front.map(|front| Subject::new(front, overlay, about, &steps));
        let subject = match &subject {
            Some(Ok(subject)) => Some(subject),
            _ => None,
        };
        // What actions make of one message must fit into one append, whatever it costs the last of them.
        let mut acted_bytes = 0;
        for nth in self.candidates(subject) {
            touched(1);
            steps.next_rule();
            let route = &self.rules[nth as usize];
            let subscription = route.subscription;
            let is_new = found.last().is_none_or(|last: &Selected| last.subscription != subscription);
            if !is_new && matches!(found.last(), Some(Selected { what: Selection::Failed { .. }, .. })) {
                continue;
            }
            let is_selected = match (&route.filter, subject) {
                (Ready::Always, _) => Ok(true),
                (filter, Some(subject)) => filter.selects(subject),
                (_, None) => Err(Wrong::Unreadable),
            };
            let what = match (is_selected, &route.action, front) {
                (Ok(false), ..) => continue,
                (Ok(true), None, _) => Selection::Plain,
                (Ok(true), Some(action), Some(front)) => {
                    let seed = [about.seed[0] ^ u64::from(nth) << 40, about.seed[1]];
                    match action::act(action, &route.name, front, overlay, About { seed, ..about }, &steps) {
                        Ok(acted) => {
                            acted_bytes += route.bytes(about.session_bytes) + acted.overlay.encoded_bytes();
                            match acted_bytes > FAN_OUT_BYTES {
                                true => Selection::Failed { is_action: true, why: Wrong::TooLarge },
                                false => Selection::Acted(Box::new(acted)),
                            }
                        }
                        Err(why) => Selection::Failed { is_action: true, why },
                    }
                }
                (Ok(true), Some(_), None) => Selection::Failed { is_action: true, why: Wrong::Unreadable },
                (Err(why), ..) => Selection::Failed { is_action: false, why },
            };
            let of_it = |each: &&Selected| each.subscription == subscription;
            let has_plain = || found.iter().rev().take_while(of_it).any(|each| each.what == Selection::Plain);
            match &what {
                Selection::Plain if has_plain() => continue,
                Selection::Failed { .. } => {
                    while found.pop_if(|each| each.subscription == subscription).is_some() {}
                }
                _ => {}
            }
            found.push(Selected { subscription, what });
        }
        steps.spent()
    }

    /// The rules that may select a message, in their order.
    fn candidates(&self, subject: Option<&Subject<'_>>) -> Vec<u32> {
        let mut nths = self.always.clone();
        nths.extend(&self.others);
        match subject {
            None => {
                // Nobody knows what it holds, so all of them fail.
                let keyed = self.by_user.values().chain(self.by_system.iter().map(|(_, keys)| keys));
                nths.extend(keyed.flat_map(BTreeMap::values).flatten());
            }
            Some(subject) => {
                subject.each_user(|name, scalar| {
                    if let Some(keys) = self.by_user.get(&*name.to_lowercase())
                        && let Some(found) = Key::of(&scalar()).and_then(|key| keys.get(&key))
                    {
                        nths.extend(found);
                    }
                });
                for (property, keys) in &self.by_system {
                    let key = subject.carried(*property).ok().and_then(|scalar| Key::of(&scalar));
                    nths.extend(key.and_then(|key| keys.get(&key)).into_iter().flatten());
                }
            }
        }
        nths.sort_unstable();
        nths.dedup();
        nths
    }
}

impl Broker {
    /// The routes of a topic, as its rules are now.
    pub(crate) fn routes(&mut self, topic: EntityId) -> Arc<Routes> {
        if let Some(routes) = self.volatile.routes(topic) {
            return Arc::clone(routes);
        }
        let routes = Arc::new(Routes::of(self.durable.topics(), topic));
        self.volatile.set_routes(topic, Some(Arc::clone(&routes)));
        routes
    }

    /// The rules of a topic, or of the topic of a subscription, have changed.
    pub(crate) fn reroute(&mut self, entity: EntityId) {
        let above = self.durable.topics().subscription(entity).map(|subscription| subscription.topic);
        self.volatile.set_routes(above.unwrap_or(entity), None);
    }
}

#[cfg(test)]
mod slices;
#[cfg(test)]
pub(crate) mod tests;
