//! What senders name their messages: mostly by an id of its own, sometimes by one that was there before, sometimes not at
//! all.

use super::Workload;

/// Ids that are remembered for each queue: few enough that one comes again within a window, many enough that some come
/// again long after it.
const REMEMBERED: usize = 20;

impl Workload {
    /// The id of the message of that number, zero for none.
    pub(super) fn id(&mut self, path: &str, number: usize) -> u64 {
        let path = path.to_lowercase();
        let own = number as u64 + 1;
        let ids = self.ids.entry(path).or_default();
        match self.random.below(12) {
            0 => 0,
            1..4 if !ids.is_empty() => *self.random.pick(ids),
            _ if ids.len() < REMEMBERED => {
                ids.push(own);
                own
            }
            _ => {
                *self.random.pick_mut(ids) = own;
                own
            }
        }
    }

    /// A partition key, if any (S-162).
    pub(super) fn partition(&mut self) -> u64 {
        if self.random.once_in(4) { self.random.between(1, 2) } else { 0 }
    }
}
