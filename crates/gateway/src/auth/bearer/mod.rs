//! Bearer tokens: JSON web tokens of issuers that the configuration names. What a token's roles or scopes are worth is
//! configured too; a token says who somebody is, and never by itself what they may do.

mod development;
mod jwt;
mod keys;
#[cfg(test)]
mod tests;

pub use development::Development;
pub use keys::{Error as KeysError, Keys};

use super::{Denied, Grant, Guard, Holder, Proof, Rights, Scope, UnixSeconds};
use crate::limits::CLOCK_SKEW_SECONDS;
use jwt::Jwt;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Notify;

/// One whose tokens count in a namespace.
#[derive(Debug)]
pub struct Issuer {
    /// As tokens name it: `iss`.
    pub name: Box<str>,
    /// A token must be for one of these: `aud`.
    pub audiences: Vec<Box<str>>,
    /// The claims in which roles are looked for.
    pub claims: Vec<Box<str>>,
    pub roles: Vec<Role>,
    keys: RwLock<Arc<Keys>>,
    unknown_key: Notify,
}

/// What a value of a token's roles or scopes is worth.
#[derive(Debug, Clone)]
pub struct Role {
    pub name: Box<str>,
    pub rights: Rights,
    /// The entity that it counts for; without one, the namespace.
    pub entity: Option<Box<str>>,
}

impl Issuer {
    pub fn new(name: &str, audiences: Vec<Box<str>>, claims: Vec<Box<str>>, roles: Vec<Role>) -> Issuer {
        let (keys, unknown_key) = (RwLock::default(), Notify::new());
        Issuer { name: name.into(), audiences, claims, roles, keys, unknown_key }
    }

    /// Puts other keys in the place of those before.
    pub fn set_keys(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Returns once a token has named a key that is not known: the issuer may have a new one.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    fn verify(&self, token: &Jwt<'_>) -> Result<(), Denied> {
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let id = token.header.kid.as_deref();
        if keys.prove(id, &token.header.alg, token.signed.as_bytes(), &token.signature) {
            return Ok(());
        }
        if !keys.know(id) {
            self.unknown_key.notify_one();
            let why = format_args!("the issuer `{}` has no key of the name that it gives", self.name);
            return Err(Denied::InvalidSignature.because(why));
        }
        let why =
            format_args!("no key of the issuer `{}` has signed it by the algorithm that it names", self.name);
        Err(Denied::InvalidSignature.because(why))
    }

    /// The rights that a token gives on a path by roles whose scope passes.
    fn rights(&self, token: &Jwt<'_>, is_meant: impl Fn(&Scope) -> bool) -> Rights {
        let roles = self.roles.iter().filter(|role| {
            let scope = role.entity.as_deref().map_or_else(Scope::default, Scope::of_path);
            is_meant(&scope) && token.claims.have(&self.claims, &role.name)
        });
        roles.fold(Rights::default(), |sum, role| sum.with(role.rights))
    }
}

impl Guard {
    /// The same, where tokens of these issuers count too.
    pub fn with_issuers(mut self, issuers: Vec<Arc<Issuer>>) -> Guard {
        self.issuers = issuers;
        self
    }

    pub(crate) fn knows_issuer(&self, name: &str) -> bool {
        self.issuers.iter().any(|issuer| *issuer.name == *name)
    }

    /// Verifies a bearer token and says what it is worth on a path.
    pub fn bearer(&self, text: &str, path: &str, now: UnixSeconds) -> Result<Grant, Denied> {
        if self.issuers.is_empty() || self.hosts().is_closed() {
            return Err(Denied::UnsupportedToken.because("the namespace has no issuer of bearer tokens"));
        }
        let token = Jwt::parse(text.trim())?;
        let issuer = self.issuers.iter().find(|issuer| *issuer.name == *token.claims.iss);
        let issuer =
            issuer.ok_or_else(|| Denied::InvalidSignature.because("no issuer here has the name in `iss`"))?;
        issuer.verify(&token)?;
        let expires = UnixSeconds(
            token.claims.expires().ok_or_else(|| Denied::MalformedToken.because("`exp` is no time"))?,
        );
        if !token.claims.is_for(&issuer.audiences) {
            let why = format_args!("`aud` is none of {:?}", issuer.audiences);
            return Err(Denied::InvalidAudience.because(why));
        }
        if token.claims.begins() > now.0.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err(Denied::ExpiredToken.because("by this clock the time in `nbf` is to come"));
        }
        let asked = Scope::of_path(path);
        let rights = issuer.rights(&token, |scope| scope.is_entity_of(&asked));
        if rights == Rights::default() {
            let why = format_args!("no role of the issuer `{}` that it holds counts there", issuer.name);
            return Err(Denied::InvalidAudience.because(why));
        }
        // What it is worth everywhere may be used everywhere; what a narrower role adds counts here alone.
        let everywhere = issuer.rights(&token, |scope| *scope == Scope::default());
        let scope = if everywhere == rights { Scope::default() } else { asked };
        let proof = Proof { holder: Holder::Issuer(issuer.name.clone()), ..Proof::default() };
        let grant = Grant { scope, rights, expires, proof };
        grant.unless_expired(now)
    }
}
