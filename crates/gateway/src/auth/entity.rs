//! Claims by the authorization rules of an entity (H-102). They count on that entity and below, whatever was signed.

use super::{Denied, Grant, Guard, Holder, Policy, Proof, Right, Rights, Scope, Secret, UnixSeconds};
use broker::AccessRule;
use broker::access::Access;

impl Guard {
    /// Verifies a shared access signature by the rules of entities of the namespace, the nearest first (H-102).
    pub fn entity_signature(
        &self,
        text: &str,
        holders: &[Access],
        now: UnixSeconds,
    ) -> Result<Grant, Denied> {
        // Where there are no rules, as much is computed as where there are some.
        let mut denied = match holders {
            [] => return self.signature_by(text, "", &[], now),
            _ => Denied::InvalidSignature,
        };
        for Access { entity, rules } in holders {
            match self.signature_by(text, entity, rules, now) {
                Err(Denied::InvalidSignature) => {}
                Err(why) => denied = why,
                Ok(grant) => return Ok(grant),
            }
        }
        Err(denied)
    }

    fn signature_by(
        &self,
        text: &str,
        entity: &str,
        rules: &[AccessRule],
        now: UnixSeconds,
    ) -> Result<Grant, Denied> {
        let grant = guard(rules).at(self.hosts().clone()).signature(text, false, now)?;
        let own = Scope::of_path(entity);
        let scope = match (own.covers(&grant.scope), grant.scope.covers(&own)) {
            (true, _) => grant.scope,
            (false, true) => own,
            (false, false) => {
                return Err(
                    Denied::InvalidAudience.because("the entity whose rule has signed it is another one")
                );
            }
        };
        let proof = Proof { holder: Holder::Entity(entity.into()), ..grant.proof };
        Ok(Grant { scope, proof, ..grant })
    }
}

/// The rights that a proof gives by these rules: none if its rule is gone or has other keys.
pub fn entity_rights(proof: &Proof, rules: &[AccessRule]) -> Option<Rights> {
    guard(rules).rights_of(proof, false)
}

fn guard(rules: &[AccessRule]) -> Guard {
    let policy = |rule: &AccessRule| {
        let given = [(rule.listen, Right::Listen), (rule.send, Right::Send), (rule.manage, Right::Manage)];
        Policy {
            name: rule.name.clone(),
            primary: Secret::new(rule.primary.expose()),
            secondary: Some(Secret::new(rule.secondary.expose())),
            rights: given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, right)| right).collect(),
        }
    };
    Guard::of_entity(rules.iter().map(policy).collect())
}

#[cfg(test)]
mod tests {
    use super::super::guard::Hosts;
    use super::super::sas;
    use super::*;
    use broker::LocalTime;
    use broker::access::Key;

    const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

    fn rules(primary: &str) -> Vec<AccessRule> {
        vec![AccessRule {
            name: "reader".into(),
            primary: Key::chosen(primary),
            secondary: Key::chosen("second"),
            listen: true,
            send: false,
            manage: false,
            created: LocalTime(0),
            modified: LocalTime(0),
        }]
    }

    /// The default namespace, beside one called `shop`.
    fn guard() -> Guard {
        Guard::new(Vec::new(), false).at(Hosts::of_default(["shop".into()].into()))
    }

    fn signed(resource: &str, key: &str) -> Result<Grant, Denied> {
        let text = sas::sign(resource, "reader", key, UnixSeconds::NEVER);
        let holders = [Access { entity: "orders".into(), rules: rules("first") }];
        guard().entity_signature(&text, &holders, NOW)
    }

    // H-102
    #[test]
    fn a_rule_of_an_entity_counts_there_and_nowhere_else() {
        for key in ["first", "second"] {
            let grant = signed("sb%3a%2f%2fhost", key).unwrap();
            assert!(grant.allows("Orders/$deadletterqueue", Right::Listen, NOW));
            assert!(!grant.allows("orders", Right::Send, NOW));
            assert!(!grant.allows("invoices", Right::Listen, NOW));
            assert!(!grant.allows("", Right::Listen, NOW));
        }
        let narrow = signed("sb%3a%2f%2fhost%2forders%2f%24deadletterqueue", "first").unwrap();
        assert!(!narrow.allows("orders", Right::Listen, NOW));
        assert_eq!(signed("sb%3a%2f%2fhost%2finvoices", "first"), Err(Denied::InvalidAudience));
        assert_eq!(signed("sb%3a%2f%2fshop%2forders", "first"), Err(Denied::InvalidAudience));
        assert_eq!(signed("sb%3a%2f%2fhost%2forders", "third"), Err(Denied::InvalidSignature));
    }

    // H-102
    #[test]
    fn rules_of_the_entities_around_count_too_and_each_where_it_stands() {
        let holder = |entity: &str, key| Access { entity: entity.into(), rules: rules(key) };
        let holders = [holder("a/b", "inner"), holder("a", "outer")];
        let signed = |resource: &str, key| {
            let text = sas::sign(resource, "reader", key, UnixSeconds::NEVER);
            guard().entity_signature(&text, &holders, NOW)
        };
        let inner = signed("sb%3a%2f%2fhost", "inner").unwrap();
        assert!(inner.allows("a/b", Right::Listen, NOW) && !inner.allows("a", Right::Listen, NOW));
        let outer = signed("sb%3a%2f%2fhost%2fa%2fb", "outer").unwrap();
        assert!(outer.allows("a/b/c", Right::Listen, NOW));
        assert_eq!(outer.proof.holder, Holder::Entity("a".into()));
        assert!(signed("sb%3a%2f%2fhost", "outer").unwrap().allows("a", Right::Listen, NOW));
        assert_eq!(signed("sb%3a%2f%2fhost", "third"), Err(Denied::InvalidSignature));
        assert_eq!(signed("sb%3a%2f%2fhost%2fc", "outer"), Err(Denied::InvalidAudience));
        let nobody = guard().entity_signature("SharedAccessSignature x=y", &[], NOW);
        assert_eq!(nobody, Err(Denied::MalformedToken));
    }

    #[test]
    fn a_rotated_key_proves_nothing_any_more() {
        let proof = signed("sb%3a%2f%2fhost%2forders", "first").unwrap().proof;
        assert!(entity_rights(&proof, &rules("first")).is_some());
        assert_eq!(entity_rights(&proof, &rules("other")), None);
        assert_eq!(entity_rights(&proof, &[]), None);
    }
}
