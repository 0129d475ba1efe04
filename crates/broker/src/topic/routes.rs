//! The rules of a topic, made ready for reading: which subscriptions get a copy of a message, and of which kind (S-182).
//!
//! Made when the broker starts and changed with each rule and each subscription that comes, changes or goes; never stored. What
//! must always hold: routes say exactly what the rules say, in the order of subscriptions and of the names of their rules. A
//! rule that asks for a value of a property first is found by that value, so that a message costs what its own subscriptions
//! cost, not all of them.

use super::action::{self, Acted};
use super::expression::Statement;
use super::filter::{First, Key, ReadyFilter, Wanted};
use super::rule::{Filter, Rule};
use super::scalar::Wrong;
use super::steps::Steps;
use super::subject::{About, Front, Subject};
use super::{Subscription, Topics, sql};
use crate::Broker;
use crate::durable::fold;
use crate::ids::EntityId;
use crate::limits::{COPY_BYTES, FAN_OUT_BYTES, MOVE_BYTES};
use crate::touched::touched;
use message::overlay::Overlay;
use message::system::SystemProperty;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Routes {
    /// Each rule stays where it is; one that is gone leaves a place for another.
    rules: Vec<Option<Route>>,
    free: Vec<u32>,
    by_place: BTreeMap<Place, u32>,
    /// Rules that take everything. This list and the others are in the order of places.
    always: Vec<u32>,
    /// Rules by the value that a property must have; by the name of a user property in lower case.
    by_user: BTreeMap<Box<str>, BTreeMap<Key, Vec<u32>>>,
    by_system: Vec<(SystemProperty, BTreeMap<Key, Vec<u32>>)>,
    /// Rules that every message must be held against.
    others: Vec<u32>,
    /// How many rules have an action, and how many a correlation filter.
    actions: usize,
    correlations: usize,
    /// Subscriptions that require sessions.
    sessions: BTreeSet<EntityId>,
}

/// The order of rules: by the case-folded name of the subscription, then by that of the rule.
type Place = (Box<str>, Box<str>);

#[derive(Debug)]
struct Route {
    subscription: EntityId,
    place: Place,
    /// Its copies have more records than one: they are in sessions, or forwarded at once, or dead-lettered.
    moves: bool,
    name: Box<str>,
    is_correlation: bool,
    filter: ReadyFilter,
    action: Option<Vec<Statement>>,
}

/// The list in which a rule is.
enum List {
    Always,
    Others,
    ByUser(Box<str>, Key),
    BySystem(SystemProperty, Key),
}

impl List {
    /// None has a rule that takes nothing.
    fn of(filter: &ReadyFilter) -> Option<List> {
        match (filter, filter.first()) {
            (ReadyFilter::Never, _) => None,
            (ReadyFilter::Always, _) => Some(List::Always),
            (_, None) => Some(List::Others),
            (_, Some(First { property: Wanted::User(name), key })) => Some(List::ByUser(name, key)),
            (_, Some(First { property: Wanted::System(property), key })) => {
                Some(List::BySystem(property, key))
            }
        }
    }
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
        for entity in topics.topic(topic).iter().flat_map(|topic| topic.subscriptions.values()) {
            let Some(subscription) = topics.subscription(*entity) else { continue };
            routes.settle(*entity, subscription);
            subscription.rules.values().for_each(|stored| routes.put(*entity, subscription, &stored.rule));
        }
        routes
    }

    /// A subscription has come, or has changed.
    fn settle(&mut self, entity: EntityId, subscription: &Subscription) {
        if subscription.settings.requires_session {
            self.sessions.insert(entity);
        }
        for at in self.rules_of(subscription) {
            self.route_mut(at).moves = subscription.moves();
        }
    }

    /// A subscription goes, with its rules.
    fn drop_subscription(&mut self, entity: EntityId, subscription: &Subscription) {
        self.sessions.remove(&entity);
        for at in self.rules_of(subscription) {
            let place = self.route(at).place.clone();
            self.drop_rule(&place);
        }
    }

    fn rules_of(&self, subscription: &Subscription) -> Vec<u32> {
        let name = fold(&subscription.name);
        let places = self.by_place.range((name.clone(), Box::default())..);
        places.take_while(|((of, _), _)| *of == name).map(|(_, at)| *at).collect()
    }

    /// A rule has come, or takes the place of another of its name.
    fn put(&mut self, entity: EntityId, subscription: &Subscription, rule: &Rule) {
        let place = (fold(&subscription.name), fold(&rule.name));
        self.drop_rule(&place);
        self.add(Route {
            subscription: entity,
            place,
            moves: subscription.moves(),
            name: rule.name.clone(),
            is_correlation: matches!(rule.filter, Filter::Correlation(_)),
            filter: ReadyFilter::of(&rule.filter),
            // It was checked when it was made; one that cannot be read all the same does nothing.
            action: rule.action.as_ref().map(|action| sql::action(action).unwrap_or_default()),
        });
    }

    fn add(&mut self, route: Route) {
        touched(1);
        self.actions += usize::from(route.action.is_some());
        self.correlations += usize::from(route.is_correlation);
        let (list, place) = (List::of(&route.filter), route.place.clone());
        let at = self.free.pop().unwrap_or_else(|| {
            self.rules.push(None);
            self.rules.len() as u32 - 1
        });
        self.rules[at as usize] = Some(route);
        if let Some(list) = list {
            let nth = self.list(&list).partition_point(|other| self.route(*other).place < place);
            self.list_mut(list).insert(nth, at);
        }
        self.by_place.insert(place, at);
    }

    fn drop_rule(&mut self, place: &Place) {
        let Some(at) = self.by_place.remove(place) else { return };
        let list = List::of(&self.route(at).filter);
        if let Some(list) = list {
            let nth = self.list(&list).partition_point(|other| self.route(*other).place < *place);
            self.drop_listed(list, nth);
        }
        let gone = self.rules[at as usize].take().expect("it has a place");
        self.actions -= usize::from(gone.action.is_some());
        self.correlations -= usize::from(gone.is_correlation);
        self.free.push(at);
    }

    fn route(&self, at: u32) -> &Route {
        self.rules[at as usize].as_ref().expect("lists have no rules that are gone")
    }

    fn route_mut(&mut self, at: u32) -> &mut Route {
        self.rules[at as usize].as_mut().expect("lists have no rules that are gone")
    }

    fn list(&self, list: &List) -> &[u32] {
        let listed = match list {
            List::Always => Some(&self.always),
            List::Others => Some(&self.others),
            List::ByUser(name, key) => self.by_user.get(name).and_then(|keys| keys.get(key)),
            List::BySystem(property, key) => {
                let keys = self.by_system.iter().find(|(known, _)| known == property);
                keys.and_then(|(_, keys)| keys.get(key))
            }
        };
        listed.map_or(&[], Vec::as_slice)
    }

    fn list_mut(&mut self, list: List) -> &mut Vec<u32> {
        match list {
            List::Always => &mut self.always,
            List::Others => &mut self.others,
            List::ByUser(name, key) => self.by_user.entry(name).or_default().entry(key).or_default(),
            List::BySystem(property, key) => self.system_keys(property).entry(key).or_default(),
        }
    }

    /// Takes the `nth` rule off a list. A property that no rule asks for any more is not looked at any more.
    fn drop_listed(&mut self, list: List, nth: usize) {
        match list {
            List::Always | List::Others => {
                self.list_mut(list).remove(nth);
            }
            List::ByUser(name, key) => {
                let keys = self.by_user.get_mut(&name).expect("the rule is listed");
                drop_keyed(keys, &key, nth);
                if keys.is_empty() {
                    self.by_user.remove(&name);
                }
            }
            List::BySystem(property, key) => {
                drop_keyed(self.system_keys(property), &key, nth);
                self.by_system.retain(|(_, keys)| !keys.is_empty());
            }
        }
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

    /// How many rules have a SQL filter and how many a correlation filter (S-234). The true and false filters are SQL filters
    /// (S-184).
    pub(super) fn filters(&self) -> (usize, usize) {
        (self.by_place.len() - self.correlations, self.correlations)
    }

    /// Whether it matters to a subscription that a message has a session (S-108).
    pub(super) fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
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
            let route = self.route(nth);
            let subscription = route.subscription;
            let is_new = found.last().is_none_or(|last: &Selected| last.subscription != subscription);
            if !is_new && matches!(found.last(), Some(Selected { what: Selection::Failed { .. }, .. })) {
                continue;
            }
            let is_selected = match (&route.filter, subject) {
                (ReadyFilter::Always, _) => Ok(true),
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
        // One list is in order; of several each is, which is the quick case of this sort.
        if nths.len() > self.always.len() {
            nths.sort_by(|one, other| self.route(*one).place.cmp(&self.route(*other).place));
            nths.dedup();
        }
        nths
    }
}

fn drop_keyed(keys: &mut BTreeMap<Key, Vec<u32>>, key: &Key, nth: usize) {
    let listed = keys.get_mut(key).expect("the rule is listed");
    listed.remove(nth);
    if listed.is_empty() {
        keys.remove(key);
    }
}

impl Subscription {
    /// Whether a copy for it has more records than one.
    fn moves(&self) -> bool {
        self.settings.requires_session || self.settings.forward_to.is_some()
    }
}

impl Broker {
    /// The routes of a topic, as its rules are now.
    pub(crate) fn routes(&mut self, topic: EntityId) -> Arc<Routes> {
        Arc::clone(self.volatile.routes(topic).expect("a topic has routes from its beginning"))
    }

    /// A subscription has come, or has changed.
    pub(crate) fn reroute_subscription(&mut self, entity: EntityId) {
        let subscription = self.durable.topics().subscription(entity).expect("it is there");
        self.volatile.routes_mut(subscription.topic).settle(entity, subscription);
    }

    /// A rule of a subscription has come, has changed, or is gone.
    pub(crate) fn reroute_rule(&mut self, entity: EntityId, name: &str) {
        let subscription = self.durable.topics().subscription(entity).expect("it is there");
        let routes = self.volatile.routes_mut(subscription.topic);
        match subscription.rules.get(&fold(name)) {
            Some(stored) => routes.put(entity, subscription, &stored.rule),
            None => routes.drop_rule(&(fold(&subscription.name), fold(name))),
        }
    }

    /// A topic or a subscription, or what is neither, is about to go.
    pub(crate) fn unroute(&mut self, entity: EntityId) {
        match self.durable.topics().subscription(entity) {
            Some(subscription) => {
                self.volatile.routes_mut(subscription.topic).drop_subscription(entity, subscription);
            }
            None => self.volatile.drop_routes(entity),
        }
    }
}

#[cfg(test)]
mod slices_tests;
#[cfg(test)]
pub(crate) mod tests;
