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
        }
        Err(Denied::InvalidSignature)
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
            return Err(Denied::UnsupportedToken);
        }
        let token = Jwt::parse(text.trim())?;
        let issuer = self.issuers.iter().find(|issuer| *issuer.name == *token.claims.iss);
        let issuer = issuer.ok_or(Denied::InvalidSignature)?;
        issuer.verify(&token)?;
        let expires = UnixSeconds(token.claims.expires().ok_or(Denied::MalformedToken)?);
        if !token.claims.is_for(&issuer.audiences) {
            return Err(Denied::InvalidAudience);
        }
        if token.claims.begins() > now.0.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err(Denied::ExpiredToken);
        }
        let asked = Scope::of_path(path);
        let rights = issuer.rights(&token, |scope| scope.covers(&asked));
        if rights == Rights::default() {
            return Err(Denied::InvalidAudience);
        }
        // What it is worth everywhere may be used everywhere; what a narrower role adds counts here alone.
        let everywhere = issuer.rights(&token, |scope| *scope == Scope::default());
        let scope = if everywhere == rights { Scope::default() } else { asked };
        let proof = Proof { holder: Holder::Issuer(issuer.name.clone()), ..Proof::default() };
        let grant = Grant { scope, rights, expires, proof };
        if grant.is_expired(now) { Err(Denied::ExpiredToken) } else { Ok(grant) }
    }
}
