//! What filters and actions may cost the thread that decides, in counted steps: a step is a look at a node of an expression, at
//! a property, or at a few bytes of a text. Steps are counted and not timed, so that every machine decides alike.
//!
//! A rule that takes more than its share, or a message whose rules together do, is a filter that failed (S-200).

use super::scalar::Wrong;
use crate::limits::{MESSAGE_STEPS, RULE_STEPS};
use std::cell::Cell;

/// Bytes of a text that are looked at in one step, where a whole text is gone through.
pub(super) const STEP_BYTES: usize = 8;

/// Names that are passed over in one step, where one is looked for among others.
pub(super) const STEP_NAMES: usize = 4;

/// What is left for one message, and of that for the rule that is asked now.
#[derive(Debug)]
pub(super) struct Steps {
    message: Cell<usize>,
    rule: Cell<usize>,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { message: Cell::new(MESSAGE_STEPS), rule: Cell::new(RULE_STEPS) }
    }
}

impl Steps {
    /// Another rule is asked.
    pub(super) fn next_rule(&self) {
        self.rule.set(RULE_STEPS.min(self.message.get()));
    }

    pub(super) fn spend(&self, steps: usize) -> Result<(), Wrong> {
        let (rule, message) = (self.rule.get(), self.message.get());
        self.message.set(message.saturating_sub(steps));
        self.rule.set(rule.saturating_sub(steps));
        if steps > rule.min(message) { Err(Wrong::TooMuchWork) } else { Ok(()) }
    }

    /// A text of so many bytes is gone through.
    pub(super) fn spend_text(&self, bytes: usize) -> Result<(), Wrong> {
        self.spend(bytes / STEP_BYTES)
    }

    /// What was spent on the message.
    pub(super) fn spent(&self) -> usize {
        MESSAGE_STEPS - self.message.get()
    }
}
