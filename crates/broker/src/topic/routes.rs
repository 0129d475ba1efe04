//! The rules of a topic, made ready for reading: which subscriptions get a copy of a message, and of which kind.
//!
//! Rebuilt when a rule or a subscription comes, changes or goes; never stored. What must always hold: routes say exactly
//! what the rules say, in the order of subscriptions and of the names of their rules.

use super::Topics;
use super::rule::Filter;
use crate::Broker;
use crate::ids::EntityId;
use crate::volatile::Touch;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Routes {
    rules: Vec<Route>,
    /// Rules that take everything.
    always: Vec<u32>,
}

#[derive(Debug)]
struct Route {
    subscription: EntityId,
}

impl Routes {
    pub(crate) fn of(topics: &Topics, topic: EntityId) -> Routes {
        let mut routes = Routes::default();
        let topic = topics.topic(topic);
        for entity in topic.iter().flat_map(|topic| topic.subscriptions.values()) {
            let rules = topics.subscription(*entity).into_iter().flat_map(|found| found.rules.values());
            for stored in rules {
                let nth = routes.rules.len() as u32;
                if stored.rule.filter == Filter::True {
                    routes.always.push(nth);
                }
                routes.rules.push(Route { subscription: *entity });
            }
        }
        routes
    }

    /// The subscriptions that get a copy.
    pub(crate) fn select(&self, found: &mut Vec<EntityId>) {
        for nth in &self.always {
            let route = &self.rules[*nth as usize];
            if found.last() != Some(&route.subscription) {
                found.push(route.subscription);
            }
        }
    }
}

impl Broker {
    /// The routes of a topic, as its rules are now.
    pub(crate) fn routes(&mut self, topic: EntityId) -> Arc<Routes> {
        if let Some(routes) = self.volatile.routes.get(&topic) {
            return Arc::clone(routes);
        }
        let routes = Arc::new(Routes::of(&self.durable.topics, topic));
        self.volatile.apply(Touch::Routed { topic, routes: Some(Arc::clone(&routes)) });
        routes
    }

    /// The rules of a topic, or of the topic of a subscription, have changed.
    pub(crate) fn reroute(&mut self, entity: EntityId) {
        let above = self.durable.topics.subscription(entity).map(|subscription| subscription.topic);
        self.volatile.apply(Touch::Routed { topic: above.unwrap_or(entity), routes: None });
    }
}
