//! The claims of one connection, found by what they cover: to look up what allows something on a path takes as many steps as
//! the path has segments, however many claims there are.

use super::{Denied, Grant, Right, Scope, UnixSeconds};
use crate::limits::CLAIM_COST;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Claims {
    by_scope: HashMap<Box<str>, Grant>,
}

impl Claims {
    pub fn len(&self) -> usize {
        self.by_scope.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_scope.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.by_scope.values()
    }

    /// What they are counted as, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.by_scope.len() * CLAIM_COST
    }

    /// Takes a claim in, and gives the one of the same scope that it replaces whole, also where it allows less.
    pub fn put(&mut self, grant: Grant) -> Option<Grant> {
        self.by_scope.insert(grant.scope.as_str().into(), grant)
    }

    /// Keeps what `judge` says; it may change what a claim allows.
    pub fn retain(&mut self, mut judge: impl FnMut(&mut Grant) -> bool) {
        self.by_scope.retain(|_, grant| judge(grant));
        self.by_scope.shrink_to(2 * self.by_scope.len());
    }

    /// Whether one of them gives a right on a path. The claim that says most about a refusal wins.
    pub fn check(&self, path: &str, right: Right, now: UnixSeconds) -> Result<(), Denied> {
        if self.is_empty() {
            return Err(Denied::MissingToken);
        }
        let mut denied = Denied::InvalidAudience;
        let asked = Scope::of_path(path);
        for scope in asked.upward() {
            let Some(grant) = self.by_scope.get(scope).filter(|grant| grant.reaches(&asked)) else {
                continue;
            };
            match grant.allowing(right, now) {
                Ok(()) => return Ok(()),
                Err(why) if denied == Denied::InvalidAudience => denied = why,
                Err(_) => {}
            }
        }
        Err(denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Proof, Rights};

    fn grant(path: &str, rights: &[Right]) -> Grant {
        let rights: Rights = rights.iter().copied().collect();
        Grant { scope: Scope::of_path(path), rights, expires: UnixSeconds(1_000), proof: Proof::default() }
    }

    #[test]
    fn a_claim_by_a_role_counts_on_its_entity_and_not_on_one_below() {
        let holder = crate::auth::Holder::Issuer("issuer".into());
        let proof = Proof { holder, ..Proof::default() };
        let mut claims = Claims::default();
        claims.put(Grant { proof, ..grant("orders", &[Right::Listen]) });
        for part in ["orders", "orders/$DeadLetterQueue", "orders/$management", "orders/Subscriptions/s"] {
            assert_eq!(claims.check(part, Right::Listen, UnixSeconds(0)), Ok(()), "{part}");
        }
        for other in ["orders/late", "orders/late/$deadletterqueue", "orders2", ""] {
            let refused = claims.check(other, Right::Listen, UnixSeconds(0));
            assert_eq!(refused, Err(Denied::InvalidAudience), "{other}");
        }
    }

    #[test]
    fn a_claim_is_found_by_what_it_covers() {
        let mut claims = Claims::default();
        let check = |claims: &Claims, path| claims.check(path, Right::Listen, UnixSeconds(0));
        assert_eq!(check(&claims, "q"), Err(Denied::MissingToken));
        claims.put(grant("Orders", &[Right::Listen]));
        claims.put(grant("other/below", &[Right::Send]));
        assert_eq!(check(&claims, "orders/$DeadLetterQueue"), Ok(()));
        assert_eq!(check(&claims, "orders2"), Err(Denied::InvalidAudience));
        assert_eq!(check(&claims, "other"), Err(Denied::InvalidAudience));
        assert_eq!(check(&claims, "other/below/x"), Err(Denied::MissingClaim(Right::Listen)));
        claims.put(grant("", &[Right::Listen]));
        assert_eq!(check(&claims, "other/below/x"), Ok(()));
        assert_eq!(claims.put(grant("ORDERS", &[])).unwrap().rights, [Right::Listen].into_iter().collect());
        assert_eq!(claims.len(), 3);
    }

    #[test]
    fn a_look_up_takes_as_many_steps_as_the_path_has_segments() {
        let of = |path: &str| Scope::of_path(path).upward().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of("a/b/c"), ["a/b/c", "a/b", "a", ""]);
        assert_eq!(of(""), [""]);
    }
}
