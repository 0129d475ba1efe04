//! Provisioned throughput, where the operator wants it kept (P-80): a budget of request units for each offer and second.
//!
//! What is spent is not durable: after a restart every budget is full. The caller holds it and asks before a command and tells
//! after it; the time comes in as an argument.

use crate::definition::{Container, offer};
use crate::{Account, Command, Refusal, Time};
use std::collections::HashMap;

/// What each offer has spent, in hundredths of a request unit.
#[derive(Debug, Clone, Default)]
pub struct Throttle {
    budgets: HashMap<u32, Budget>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Budget {
    /// The second that `spent` belongs to.
    second: i64,
    spent: u64,
}

impl Budget {
    /// What is spent as of this second: each second that passed has paid for its own.
    fn at(self, second: i64, each: u64) -> Budget {
        let passed = u64::try_from(second.saturating_sub(self.second)).unwrap_or(0);
        Budget {
            second: self.second.max(second),
            spent: self.spent.saturating_sub(each.saturating_mul(passed)),
        }
    }
}

impl Throttle {
    /// Whether a command may run now. What it will cost is known only afterwards, so it may run while anything is left.
    pub fn admit(&mut self, account: &Account, command: &Command, now: Time) -> Result<(), Refusal> {
        let Some((offer, each)) = offer_of(account, command) else { return Ok(()) };
        let budget = self.budgets.entry(offer).or_default();
        *budget = budget.at(now.seconds(), each);
        if budget.spent < each {
            return Ok(());
        }
        // Debts of more than a second are waited for to their end.
        let seconds = budget.spent / each;
        let until = (budget.second + i64::try_from(seconds).unwrap_or(i64::MAX / 2_000)) * 1_000;
        let retry_after_ms = u64::try_from(until - now.0).unwrap_or(0).max(1);
        Err(Refusal::TooManyRequests { retry_after_ms })
    }

    /// Tells what a command was charged.
    pub fn spend(&mut self, account: &Account, command: &Command, charge: u64, now: Time) {
        if let Some((offer, each)) = offer_of(account, command) {
            self.add(offer, each, charge, now);
        }
    }

    /// What a container's purge may spend now: what requests left over in this second (C-14). `None`: it has no offer.
    pub fn left(&self, account: &Account, container: u32, now: Time) -> Option<u64> {
        let container = account.definitions.containers.get(&container)?;
        let (offer, each) = offer_for(account, container)?;
        let budget = self.budgets.get(&offer).copied().unwrap_or_default();
        Some(each.saturating_sub(budget.at(now.seconds(), each).spent))
    }

    /// Tells what a purge has spent.
    pub fn spend_on_purge(&mut self, account: &Account, container: u32, charge: u64, now: Time) {
        if let Some(container) = account.definitions.containers.get(&container)
            && let Some((offer, each)) = offer_for(account, container)
        {
            self.add(offer, each, charge, now);
        }
    }

    fn add(&mut self, offer: u32, each: u64, charge: u64, now: Time) {
        let budget = self.budgets.entry(offer).or_default();
        *budget = budget.at(now.seconds(), each);
        budget.spent = budget.spent.saturating_add(charge);
    }
}

fn offer_of(account: &Account, command: &Command) -> Option<(u32, u64)> {
    let container = account.definitions.owner_container(command.items_of()?).ok()?;
    offer_for(account, container)
}

/// The offer that a container draws on, and its hundredths of request units per second.
fn offer_for(account: &Account, container: &Container) -> Option<(u32, u64)> {
    let offer = account.definitions.offer_for(container)?;
    Some((offer.number, u64::from(offer::units(offer.throughput)) * 100))
}
