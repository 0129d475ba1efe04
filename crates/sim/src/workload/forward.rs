//! Queues that do not keep what they are sent: they forward it, or drop what they know already. Chains and rings come
//! about by themselves.

use super::{PATHS, Workload};
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
        let detects = if is_one_of(ONCE) { !self.random.once_in(5) } else { self.random.once_in(20) };
        let forward_to = forwards.then(|| self.target(path));
        let forward_dead_letters_to = self.random.once_in(10).then(|| self.target(path));
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

    /// Where a queue forwards to: mostly a queue of its partition, as a path or as an address (S-179).
    fn target(&mut self, path: &str) -> Box<str> {
        let paths = PATHS.iter().find(|paths| paths.iter().any(|each| each.eq_ignore_ascii_case(path)));
        let paths = paths.unwrap_or(&PATHS[0]);
        match self.random.below(20) {
            0 => "nowhere".into(),
            1 => "disabled".into(),
            2..5 => format!("sb://host/{}", self.random.pick(paths).to_uppercase()).into(),
            _ => (*self.random.pick(paths)).into(),
        }
    }
}
