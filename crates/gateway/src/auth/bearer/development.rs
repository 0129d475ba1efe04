//! An issuer in the binary, for development: its key lives as long as the process, everybody on this machine gets a token
//! from it, and the token is good for everything. Off unless asked for, and only where nobody else can reach the server.

use super::{Issuer, Keys, Role};
use crate::auth::{Rights, UnixSeconds};
use crate::limits::DEVELOPMENT_TOKEN_SECONDS;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

const NAME: &str = "otobus:development";
const KEY_ID: &str = "development";
const ROLE: &str = "developer";
/// What the SDKs of Service Bus ask for.
pub(super) const AUDIENCE: &str = "https://servicebus.azure.net";

#[derive(Debug)]
pub struct Development {
    key: EcdsaKeyPair,
}

impl Development {
    /// With a new key. Fails only where the system has no randomness.
    pub fn new() -> Result<Development, ring::error::Unspecified> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random)
            .map_err(|_| ring::error::Unspecified)?;
        Ok(Development { key })
    }

    /// As a namespace knows it.
    pub fn issuer(&self) -> Issuer {
        let role = Role { name: ROLE.into(), rights: Rights::ALL, entity: None };
        let issuer = Issuer::new(NAME, vec![AUDIENCE.into()], vec!["roles".into()], vec![role]);
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        let key = json!({"kty": "EC", "crv": "P-256", "kid": KEY_ID, "x": encoded(x), "y": encoded(y)});
        let set = json!({ "keys": [key] }).to_string();
        issuer.set_keys(Keys::read(set.as_bytes()).expect("a key set of ours can be read"));
        issuer
    }

    /// A token for a resource, as an identity endpoint answers with it.
    pub fn answer(&self, resource: &str, now: UnixSeconds) -> Option<String> {
        let expires = now.0 + DEVELOPMENT_TOKEN_SECONDS;
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": KEY_ID});
        let claims = json!({"iss": NAME, "aud": resource, "iat": now.0, "nbf": now.0, "exp": expires, "roles": [ROLE]});
        let signed =
            format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
        let token = format!("{signed}.{}", encoded(signature.as_ref()));
        // Managed identities read `expires_on`, others `expires_in`.
        let answer = json!({
            "access_token": token, "token_type": "Bearer", "resource": resource,
            "expires_on": expires.to_string(), "expires_in": DEVELOPMENT_TOKEN_SECONDS,
        });
        Some(answer.to_string())
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
