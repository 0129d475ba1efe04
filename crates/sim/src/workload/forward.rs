//! Queues that do not keep what they are sent: they forward it, or drop what they know already. Chains and rings come
//! about by themselves.

use super::topic::TOPICS;
use super::{NAMESPACE, PATHS, SESSIONS, Workload, namespace_of};
use broker::{QueueSettings, Span, Tier};

/// Queues that mostly forward, and that mostly look for duplicates.
const RELAYS: [&str; 2] = ["relay", "bounce"];
const ONCE: [&str; 2] = ["once", "single"];

impl Workload {
    /// Settings of a queue that few have.
    pub(super) fn unusual(&mut self, path: &str, usual: QueueSettings) -> QueueSettings {
        if self.tier == Tier::Basic && !self.random.once_in(50) {
            return usual;
        }
        let is_one_of = |paths: [&str; 2]| paths.iter().any(|each| each.eq_ignore_ascii_case(path));
        let forwards = match is_one_of(RELAYS) {
            true => !self.random.once_in(4),
            false => self.random.once_in(25),
        };
        // What has no session cannot go to one, and what has one leaves it: that is for other tests.
        let has_targets = !path.eq_ignore_ascii_case(SESSIONS) && namespace_of(path) == NAMESPACE;
        let forwards = forwards && has_targets;
        let detects = if is_one_of(ONCE) { !self.random.once_in(5) } else { self.random.once_in(20) };
        // A relay may also go to a topic, and so may dead letters, where those of subscriptions stay.
        let forward_to = forwards.then(|| self.target(path, is_one_of(RELAYS)));
        let letters = self.random.once_in(10) && has_targets;
        let goes_to_topics = PATHS[1].iter().any(|each| each.eq_ignore_ascii_case(path));
        let forward_dead_letters_to = letters.then(|| self.target(path, goes_to_topics));
        QueueSettings {
            requires_duplicate_detection: detects,
            duplicate_window: match self.random.below(8) {
                0 => usual.duplicate_window,
                // One that is too short (S-161), now and then.
                1 if self.random.once_in(40) => Span::seconds(19),
                _ => Span::seconds(self.random.between(20, 120)),
            },
            forward_to,
            forward_dead_letters_to,
            ..usual
        }
    }

    /// Where an entity forwards to: mostly a queue of its partition, as a path or as an address (S-179).
    pub(super) fn target(&mut self, path: &str, may_be_topic: bool) -> Box<str> {
        let is_there = |paths: &[&str]| paths.iter().any(|each| each.eq_ignore_ascii_case(path));
        let nth = usize::from(is_there(PATHS[1]) || is_there(TOPICS[1]));
        let paths = match may_be_topic && self.random.once_in(3) {
            true => TOPICS[nth],
            false => PATHS[nth],
        };
        let paths: Vec<&str> = paths
            .iter()
            .copied()
            .filter(|path| *path != SESSIONS && namespace_of(path) == NAMESPACE)
            .collect();
        let paths = &paths[..];
        match self.random.below(20) {
            0 => "nowhere".into(),
            1 => "disabled".into(),
            2..5 => format!("sb://host/{}", self.random.pick(paths).to_uppercase()).into(),
            _ => (*self.random.pick(paths)).into(),
        }
    }
}
