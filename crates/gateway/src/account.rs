//! What is held on behalf of peers, in bytes: of each connection, of all connections of a policy, and of all together.
//!
//! A connection says after each step what it holds ([`Account::hold`]), and asks before it takes in what only its peer can
//! make it give back ([`Account::has_room`]): requests and messages that are not whole, answers that are not taken, links. What
//! finds no room is refused. What goes away by itself is not refused, but nothing more is read while there is no room.
//!
//! A little is there for everybody, so that a modest peer is served while others take all they can. It is counted too: when
//! many have taken it, only the least is left for each.

use crate::limits::{
    CONNECTION_BYTES, CONNECTION_FREE_BYTES, CONNECTION_LEAST_BYTES, CONNECTIONS_BYTES, POLICY_SHARE,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What all connections hold.
#[derive(Debug)]
pub struct Accounts {
    most_bytes: usize,
    /// Bytes held beyond `CONNECTION_FREE_BYTES`, of all connections.
    pooled_bytes: AtomicUsize,
    /// Bytes held between `CONNECTION_LEAST_BYTES` and `CONNECTION_FREE_BYTES`, of all connections.
    own_bytes: AtomicUsize,
    policies: Mutex<HashMap<Box<str>, Arc<Policy>>>,
}

/// What the connections of one policy hold.
#[derive(Debug, Default)]
struct Policy {
    pooled_bytes: AtomicUsize,
}

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts::new(CONNECTIONS_BYTES)
    }
}

impl Accounts {
    pub fn new(most_bytes: usize) -> Accounts {
        Accounts {
            most_bytes,
            pooled_bytes: AtomicUsize::new(0),
            own_bytes: AtomicUsize::new(0),
            policies: Mutex::default(),
        }
    }

    /// What is held beyond what is always there.
    pub fn pooled_bytes(&self) -> usize {
        self.pooled_bytes.load(Ordering::Relaxed)
    }

    fn policy(&self, name: &str) -> Arc<Policy> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of whom nobody is there any more are forgotten when another comes.
        policies.retain(|_, policy| Arc::strong_count(policy) > 1);
        Arc::clone(policies.entry(name.into()).or_default())
    }
}

/// Others have taken what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("The server holds as much as it may for the connections of this policy, or of all; try again later.")]
pub struct NoRoom;

/// What one connection holds. Given back when it is dropped.
#[derive(Debug)]
pub struct Account {
    accounts: Arc<Accounts>,
    policy: Option<Arc<Policy>>,
    bytes: usize,
}

impl Account {
    pub fn new(accounts: Arc<Accounts>) -> Account {
        Account { accounts, policy: None, bytes: 0 }
    }

    /// The account of a request by a holder of this policy.
    pub fn of(accounts: &Arc<Accounts>, policy: &str) -> Account {
        let mut account = Account::new(Arc::clone(accounts));
        account.join(policy);
        account
    }

    /// Holds so much from now on, if there is room for it.
    pub fn take(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > self.bytes && !self.has_room(bytes - self.bytes) {
            return Err(NoRoom);
        }
        self.hold(bytes);
        Ok(())
    }

    /// Whose it is. The first policy that a connection proves counts for as long as it lives.
    pub fn join(&mut self, policy: &str) {
        if self.policy.is_none() {
            let policy = self.accounts.policy(policy);
            policy.pooled_bytes.fetch_add(pooled(self.bytes), Ordering::Relaxed);
            self.policy = Some(policy);
        }
    }

    /// So much is held now.
    pub fn hold(&mut self, bytes: usize) {
        let (before, now) = (pooled(self.bytes), pooled(bytes));
        let (own_before, own_now) = (own(self.bytes), own(bytes));
        self.bytes = bytes;
        if own_before != own_now {
            self.accounts.own_bytes.fetch_add(own_now.wrapping_sub(own_before), Ordering::Relaxed);
        }
        if before == now {
            return;
        }
        let policy = self.policy.as_deref().map(|policy| &policy.pooled_bytes);
        for total in [Some(&self.accounts.pooled_bytes), policy].into_iter().flatten() {
            // Wraps around where less is held than before.
            total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Whether so many bytes more may be held.
    pub fn has_room(&self, more_bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(more_bytes);
        let fits = |total: &AtomicUsize, more_bytes: usize, most: usize| {
            total.load(Ordering::Relaxed).saturating_add(more_bytes) <= most
        };
        let more_own = own(bytes).saturating_sub(own(self.bytes));
        if more_own > 0 && !fits(&self.accounts.own_bytes, more_own, self.accounts.most_bytes) {
            return false;
        }
        if bytes <= CONNECTION_FREE_BYTES {
            return true;
        }
        bytes <= CONNECTION_BYTES
            && fits(&self.accounts.pooled_bytes, more_bytes, self.accounts.most_bytes)
            && self.policy.as_ref().is_none_or(|policy| {
                fits(&policy.pooled_bytes, more_bytes, self.accounts.most_bytes / POLICY_SHARE)
            })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.hold(0);
    }
}

fn pooled(bytes: usize) -> usize {
    bytes.saturating_sub(CONNECTION_FREE_BYTES)
}

fn own(bytes: usize) -> usize {
    bytes.min(CONNECTION_FREE_BYTES).saturating_sub(CONNECTION_LEAST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: usize = 1_024 * 1_024;

    #[test]
    fn what_is_held_is_counted_once_and_given_back() {
        let all = Arc::new(Accounts::new(8 * MEBIBYTE));
        let mut account = Account::new(Arc::clone(&all));
        account.hold(CONNECTION_FREE_BYTES);
        assert_eq!(all.pooled_bytes(), 0, "a little is always there");
        account.hold(CONNECTION_FREE_BYTES + 100);
        account.join("a");
        account.hold(CONNECTION_FREE_BYTES + 70);
        assert_eq!(all.pooled_bytes(), 70);
        assert_eq!(all.policy("a").pooled_bytes.load(Ordering::Relaxed), 70);
        drop(account);
        assert_eq!(all.pooled_bytes(), 0);
        all.policy("b");
        assert_eq!(all.policies.lock().unwrap().len(), 1, "a policy without connections is forgotten");
    }

    #[test]
    fn one_policy_leaves_the_other_half_and_everybody_has_a_little() {
        let all = Arc::new(Accounts::new(8 * MEBIBYTE));
        let account = |policy: &str| {
            let mut account = Account::new(Arc::clone(&all));
            account.join(policy);
            account
        };
        let mut greedy: Vec<Account> = Vec::new();
        for _ in 0..100 {
            let mut one = account("greedy");
            while one.has_room(MEBIBYTE) {
                one.hold(one.bytes() + MEBIBYTE);
            }
            greedy.push(one);
        }
        assert!(all.pooled_bytes() <= 4 * MEBIBYTE, "{}", all.pooled_bytes());
        let modest = account("greedy");
        assert!(modest.has_room(CONNECTION_FREE_BYTES) && !modest.has_room(MEBIBYTE));
        assert!(account("other").has_room(2 * MEBIBYTE));
        drop(greedy);
        assert!(modest.has_room(MEBIBYTE));
    }

    /// What each account holds beyond what is always there, added up by hand.
    fn model(accounts: &[(Account, Option<usize>)], policy: Option<usize>) -> usize {
        let counts = |(_, of): &&(Account, Option<usize>)| policy.is_none() || *of == policy;
        accounts.iter().filter(counts).map(|(account, _)| pooled(account.bytes())).sum()
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_taken_and_given_back_the_totals_are_what_the_accounts_hold(
            deeds in proptest::collection::vec((0_usize..12, 0_usize..5, 0_usize..4 * MEBIBYTE), 1..200),
        ) {
            let most = 8 * MEBIBYTE;
            let all = Arc::new(Accounts::new(most));
            let mut accounts: Vec<(Account, Option<usize>)> = Vec::new();
            for (nth, deed, bytes) in deeds {
                let count = accounts.len();
                match deed {
                    0 => accounts.push((Account::new(Arc::clone(&all)), None)),
                    1 => accounts.push((Account::of(&all, &format!("{}", nth % 3)), Some(nth % 3))),
                    2 if count > 0 => drop(accounts.swap_remove(nth % count)),
                    3 if count > 0 => {
                        let (account, of) = &mut accounts[nth % count];
                        account.join(&format!("{}", nth % 3));
                        of.get_or_insert(nth % 3);
                    }
                    4 if count > 0 => {
                        let before = accounts[nth % count].0.bytes();
                        let taken = accounts[nth % count].0.take(bytes);
                        let now = accounts[nth % count].0.bytes();
                        assert_eq!(now, if taken.is_ok() { bytes } else { before });
                        // A peer that wants little gets it, and giving back is never refused.
                        assert!(taken.is_ok() || bytes > CONNECTION_LEAST_BYTES && bytes > before);
                    }
                    _ => {}
                }
                assert_eq!(all.pooled_bytes(), model(&accounts, None));
                assert!(all.pooled_bytes() <= most);
                for policy in 0..3 {
                    let held = all.policy(&format!("{policy}")).pooled_bytes.load(Ordering::Relaxed);
                    assert_eq!(held, model(&accounts, Some(policy)));
                }
            }
            drop(accounts);
            assert_eq!(all.pooled_bytes(), 0);
        }
    }

    #[test]
    fn what_is_there_for_each_has_a_total_too_and_the_least_is_always_there() {
        let all = Arc::new(Accounts::new(8 * MEBIBYTE));
        let mut many = Vec::new();
        for _ in 0..1_000 {
            let mut account = Account::of(&all, "p");
            let most = [CONNECTION_FREE_BYTES, CONNECTION_LEAST_BYTES];
            let taken = most.into_iter().find(|bytes| account.take(*bytes).is_ok());
            assert!(taken.is_some(), "the least is always there");
            many.push(account);
        }
        let held: usize = many.iter().map(Account::bytes).sum();
        assert!(held <= 8 * MEBIBYTE + 1_000 * CONNECTION_LEAST_BYTES, "{held}");
        assert!(held > 8 * MEBIBYTE, "{held}");
        assert_eq!(all.pooled_bytes(), 0);
        drop(many);
        assert_eq!(all.own_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_connection_has_a_limit_of_its_own() {
        let account = Account::new(Arc::new(Accounts::new(usize::MAX)));
        assert!(account.has_room(CONNECTION_BYTES) && !account.has_room(CONNECTION_BYTES + 1));
    }
}
