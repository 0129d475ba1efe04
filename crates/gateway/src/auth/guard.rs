//! The policies of the server and the two ways to prove one's right to them: a signed token, or a name with its key.
//!
//! Every attempt computes as much as any other: a name that no policy has is checked against keys that nobody knows.

use super::grant::first_label;
use super::sas::Token;
use super::{Denied, Grant, Holder, Issuer, Policy, Proof, Rights, Scope, Secret, UnixSeconds};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The key that users of the official emulator paste (H-121). Everybody knows it.
const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// The policy every namespace starts with (H-104).
pub const ROOT_POLICY: &str = "RootManageSharedAccessKey";

#[derive(Debug)]
pub struct Guard {
    policies: Vec<Policy>,
    /// What a name without a policy is checked against.
    decoy: Policy,
    /// The policy behind the well-known key, if the server listens where only this machine can reach it.
    well_known: Option<Policy>,
    hosts: Hosts,
    /// What its policies are called: the log says by which of them a key was looked for.
    called: &'static str,
    /// Those whose bearer tokens count.
    pub(super) issuers: Vec<Arc<Issuer>>,
}

/// The host names that lead to a namespace. A token counts where its host leads: namespaces may share a key, and what was
/// signed for one of them must be worth nothing in the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// The name of the namespace; none for the one that everything else leads to.
    own: Option<Box<str>>,
    /// The names of all namespaces but that one, also of those that are no longer served.
    names: Arc<[Box<str>]>,
    is_closed: bool,
}

impl Hosts {
    pub(crate) fn of_default(names: Arc<[Box<str>]>) -> Hosts {
        Hosts { own: None, names, is_closed: false }
    }

    pub(crate) fn of_named(own: &str, names: Arc<[Box<str>]>) -> Hosts {
        Hosts { own: Some(own.into()), names, is_closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn lead_here(&self, host: &str) -> bool {
        let label = first_label(host);
        let named = self.names.iter().find(|name| name.eq_ignore_ascii_case(label));
        match (&self.own, named) {
            (None, None) => true,
            (Some(own), Some(named)) => own.eq_ignore_ascii_case(named),
            _ => false,
        }
    }
}

impl Guard {
    /// `listens_on_loopback_only` is a promise of the caller: only then is the well-known key good for anything.
    pub fn new(policies: Vec<Policy>, listens_on_loopback_only: bool) -> Guard {
        let unknown = || Secret::new(uuid::Uuid::new_v4().to_string());
        let decoy = Policy {
            name: "".into(),
            primary: unknown(),
            secondary: Some(unknown()),
            rights: Rights::default(),
        };
        let well_known = listens_on_loopback_only.then(|| Policy {
            name: ROOT_POLICY.into(),
            primary: Secret::new(WELL_KNOWN_KEY),
            secondary: None,
            rights: Rights::ALL,
        });
        Guard { policies, decoy, well_known, hosts: Hosts::default(), called: "policy", issuers: Vec::new() }
    }

    /// The rules of an entity, which are asked when the policies of the namespace have said no.
    pub(super) fn of_entity(rules: Vec<Policy>) -> Guard {
        Guard { called: "rule of an entity", ..Guard::new(rules, false) }
    }

    /// Lets nobody in: of a namespace that is no longer served.
    pub(crate) fn closed() -> Guard {
        let hosts = Hosts { is_closed: true, ..Hosts::default() };
        Guard { hosts, ..Guard::new(Vec::new(), false) }
    }

    /// The same, for tokens whose host leads to it.
    pub(crate) fn at(self, hosts: Hosts) -> Guard {
        Guard { hosts, ..self }
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Whether the well-known key opens the door to peers on this machine.
    pub fn knows_well_known_key(&self) -> bool {
        self.well_known.is_some()
    }

    /// Verifies a shared access signature as put on `$cbs` or sent in a header (without `Bearer`).
    pub fn signature(&self, text: &str, peer_is_loopback: bool, now: UnixSeconds) -> Result<Grant, Denied> {
        let token = Token::parse(text)?;
        if self.hosts.is_closed {
            return Err(Denied::InvalidAudience.because("the namespace is no longer served"));
        }
        let named = |policy: &Policy| {
            *policy.name == *token.key_name || *policy.name == *token.key_name_twice_decoded
        };
        let (rights, proof) = self
            .rights_by(named, peer_is_loopback, |key| token.is_signed_with(key))
            .or_else(|| self.rights_by(named, peer_is_loopback, |key| token.is_signed_with_reencoded(key)))
            .ok_or_else(|| self.not_proved(named, peer_is_loopback))?;
        let resource = token.resource()?;
        let (host, scope) = Scope::of_address(&resource).map_err(|denied| {
            denied.because("what is signed is not the address of a namespace or an entity")
        })?;
        if !self.hosts.lead_here(host) {
            return Err(Denied::InvalidAudience.because("the signed address leads to another namespace"));
        }
        let grant = Grant { scope, rights, expires: token.expires, proof };
        grant.unless_expired(now)
    }

    /// A key did not prove to be one of a policy. Which of the two was wrong is for the log alone.
    fn not_proved(&self, is_named: impl Fn(&Policy) -> bool, peer_is_loopback: bool) -> Denied {
        let known = self.policies.iter().find(|policy| is_named(policy));
        let is_well_known = self.well_known.as_ref().is_some_and(is_named);
        match known {
            Some(policy) => Denied::InvalidSignature
                .because(format_args!("it fits no key of the {} `{}`", self.called, policy.name)),
            None if is_well_known && !peer_is_loopback => {
                Denied::InvalidSignature.because("the well-known key counts on this machine alone")
            }
            None => Denied::InvalidSignature
                .because(format_args!("no {} here has the name that is given", self.called)),
        }
    }

    /// Verifies SASL PLAIN: a policy's name and its key give the policy's rights for as long as the connection lives.
    pub fn plain(&self, name: &str, key: &[u8], peer_is_loopback: bool) -> Result<Grant, Denied> {
        // Digests have one length, so comparing them tells nothing about the key's.
        let given = Sha256::digest(key);
        let (rights, proof) = self
            .rights_by(
                |policy| *policy.name == *name,
                peer_is_loopback,
                |key| Sha256::digest(key.as_bytes()).ct_eq(&given),
            )
            .ok_or_else(|| self.not_proved(|policy| *policy.name == *name, peer_is_loopback))?;
        Ok(Grant { scope: Scope::default(), rights, expires: UnixSeconds::NEVER, proof })
    }

    /// The rights of the policy whose key passes `is_proof`, and the proof. Three keys are always tried, so the time tells nothing.
    fn rights_by(
        &self,
        is_named: impl Fn(&Policy) -> bool,
        peer_is_loopback: bool,
        is_proof: impl Fn(&str) -> Choice,
    ) -> Option<(Rights, Proof)> {
        let policy = self.policies.iter().find(|policy| is_named(policy)).unwrap_or(&self.decoy);
        let secondary = policy.secondary.as_ref().unwrap_or(&policy.primary);
        let well_known = self.well_known.as_ref().filter(|policy| peer_is_loopback && is_named(policy));
        let is_primary = bool::from(is_proof(policy.primary.expose()));
        let is_secondary = bool::from(is_proof(secondary.expose()));
        let is_well_known = bool::from(is_proof(well_known.unwrap_or(&self.decoy).primary.expose()));
        let proved = |policy: &Policy, key: &Secret| {
            let (policy_name, key) = (policy.name.clone(), digest(key));
            (policy.rights, Proof { holder: Holder::Namespace, policy: policy_name, key })
        };
        match well_known {
            _ if is_primary => Some(proved(policy, &policy.primary)),
            _ if is_secondary => Some(proved(policy, secondary)),
            Some(well_known) if is_well_known => Some(proved(well_known, &well_known.primary)),
            _ => None,
        }
    }

    /// The rights that a proof gives now: none if its policy is gone or has other keys.
    pub fn rights_of(&self, proof: &Proof, peer_is_loopback: bool) -> Option<Rights> {
        let well_known = self.well_known.iter().filter(|_| peer_is_loopback);
        let mut policies = self.policies.iter().chain(well_known);
        let has_key = |policy: &Policy| {
            [Some(&policy.primary), policy.secondary.as_ref()]
                .into_iter()
                .flatten()
                .any(|key| digest(key).ct_eq(&proof.key).into())
        };
        policies.find(|policy| policy.name == proof.policy && has_key(policy)).map(|policy| policy.rights)
    }
}

fn digest(key: &Secret) -> [u8; 32] {
    Sha256::digest(key.expose().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::super::{Right, sas};
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
    const LATER: UnixSeconds = UnixSeconds(NOW.0 + 3_600);

    fn guard(is_loopback_only: bool) -> Guard {
        let reader = Policy {
            name: "reader".into(),
            primary: Secret::new("first"),
            secondary: Some(Secret::new("second")),
            rights: [Right::Listen].into_iter().collect(),
        };
        let spaced = Policy { name: "my policy".into(), ..reader.clone() };
        Guard::new(vec![reader, spaced], is_loopback_only)
    }

    fn signed(name: &str, key: &str) -> Result<Grant, Denied> {
        guard(true).signature(&sas::sign("sb%3a%2f%2fhost%2fQ", name, key, LATER), true, NOW)
    }

    #[test]
    fn both_keys_of_a_policy_give_its_rights_on_the_signed_path() {
        for key in ["first", "second"] {
            let grant = signed("reader", key).unwrap();
            assert!(grant.allows("q/$deadletterqueue", Right::Listen, NOW));
            assert!(!grant.allows("q", Right::Send, NOW));
            assert!(!grant.allows("p", Right::Listen, NOW));
        }
        assert!(signed("my%20policy", "first").is_ok());
        assert!(signed("my%2520policy", "first").is_ok());
    }

    #[test]
    fn a_wrong_key_and_an_unknown_name_are_told_apart_by_nobody() {
        assert_eq!(signed("reader", "third"), Err(Denied::InvalidSignature));
        assert_eq!(signed("nobody", "first"), Err(Denied::InvalidSignature));
        assert_eq!(signed("", ""), Err(Denied::InvalidSignature));
    }

    // H-103
    #[test]
    fn an_expired_token_is_refused_once_the_skew_is_over() {
        let text = sas::sign("sb%3a%2f%2fhost", "reader", "first", NOW);
        let at = |seconds| guard(false).signature(&text, true, UnixSeconds(NOW.0 + seconds));
        assert!(at(299).is_ok());
        assert_eq!(at(300), Err(Denied::ExpiredToken));
    }

    // H-121
    #[test]
    fn the_well_known_key_is_good_from_this_machine_to_a_server_for_this_machine_only() {
        let text = sas::sign("sb%3a%2f%2flocalhost%2fq", ROOT_POLICY, WELL_KNOWN_KEY, LATER);
        assert!(guard(true).signature(&text, true, NOW).unwrap().allows("q", Right::Manage, NOW));
        assert!(guard(true).plain(ROOT_POLICY, WELL_KNOWN_KEY.as_bytes(), true).is_ok());
        assert_eq!(guard(true).signature(&text, false, NOW), Err(Denied::InvalidSignature));
        assert_eq!(guard(false).signature(&text, true, NOW), Err(Denied::InvalidSignature));
        assert_eq!(
            guard(false).plain(ROOT_POLICY, WELL_KNOWN_KEY.as_bytes(), true),
            Err(Denied::InvalidSignature)
        );
        let other_name = sas::sign("sb%3a%2f%2flocalhost%2fq", "reader", WELL_KNOWN_KEY, LATER);
        assert_eq!(guard(true).signature(&other_name, true, NOW), Err(Denied::InvalidSignature));
    }

    //
    #[test]
    fn plain_takes_a_policys_name_and_either_key() {
        let plain = |name, key: &str| guard(false).plain(name, key.as_bytes(), false);
        assert!(plain("reader", "second").unwrap().allows("any/queue", Right::Listen, NOW));
        assert_eq!(plain("reader", "firs"), Err(Denied::InvalidSignature));
        assert_eq!(plain("reader", ""), Err(Denied::InvalidSignature));
        assert_eq!(plain("nobody", "first"), Err(Denied::InvalidSignature));
    }

    #[test]
    fn a_token_without_an_address_is_for_nothing() {
        let text = sas::sign("orders", "reader", "first", LATER);
        assert_eq!(guard(false).signature(&text, false, NOW), Err(Denied::InvalidAudience));
    }

    // H-102
    #[test]
    fn a_token_counts_where_its_host_leads_and_nowhere_else() {
        let names: Arc<[Box<str>]> = ["shop", "bank"].map(Into::into).into();
        let shop = || Hosts::of_named("shop", names.clone());
        let default = || Hosts::of_default(names.clone());
        for (hosts, host, is_taken) in [
            (shop(), "shop", true),
            (shop(), "Shop.servicebus.windows.net", true),
            (shop(), "shop.localhost%3a5671", true),
            (shop(), "bank.localhost", false),
            (shop(), "localhost", false),
            (shop(), "default", false),
            (default(), "localhost", true),
            (default(), "any.other.host", true),
            (default(), "shop", false),
            (default(), "BANK.example", false),
            (Guard::closed().hosts, "shop", false),
        ] {
            let text = sas::sign(&format!("sb%3a%2f%2f{host}%2fq"), "reader", "first", LATER);
            let signed = guard(false).at(hosts.clone()).signature(&text, false, NOW).map(drop);
            let expected = if is_taken { Ok(()) } else { Err(Denied::InvalidAudience) };
            assert_eq!(signed, expected, "{host} at {hosts:?}");
        }
        // A client without a key is not told which namespaces there are.
        let text = sas::sign("sb%3a%2f%2fbank%2fq", "reader", "third", LATER);
        assert_eq!(guard(false).at(shop()).signature(&text, false, NOW), Err(Denied::InvalidSignature));
    }

    // A7
    #[test]
    fn a_proof_holds_while_the_policy_has_the_key() {
        let proof = signed("reader", "second").unwrap().proof;
        assert!(guard(true).rights_of(&proof, true).is_some_and(|rights| rights.include(Right::Listen)));
        let changed = |secondary, rights| {
            let name = "reader".into();
            Guard::new(vec![Policy { name, primary: Secret::new("first"), secondary, rights }], false)
        };
        assert_eq!(changed(None, Rights::ALL).rights_of(&proof, true), None);
        let more = changed(Some(Secret::new("second")), Rights::ALL);
        assert_eq!(more.rights_of(&proof, true), Some(Rights::ALL));
        assert_eq!(Guard::new(Vec::new(), false).rights_of(&proof, true), None);
    }
}
