//! The public keys of an issuer, a JSON web key set (RFC 7517), and what they prove. `ring` does the arithmetic.

use crate::limits::ISSUER_KEYS;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;

#[derive(Debug, Default)]
pub struct Keys {
    list: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<String>,
    public: Public,
}

#[derive(Debug)]
enum Public {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it is no JSON web key set: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has no key that signatures of tokens can be checked with (RSA, P-256, P-384 or Ed25519)")]
    NoKey,
    #[error("it has more than {ISSUER_KEYS} keys")]
    TooMany,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    kty: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Reads a key set. Keys of kinds that we do not know are left out: an issuer may have them for others.
    pub fn read(json: &[u8]) -> Result<Keys, Error> {
        let set: KeySet = serde_json::from_slice(json)?;
        if set.keys.len() > ISSUER_KEYS {
            return Err(Error::TooMany);
        }
        let list: Vec<Key> = set.keys.into_iter().filter_map(Fields::key).collect();
        if list.is_empty() { Err(Error::NoKey) } else { Ok(Keys { list }) }
    }

    /// Whether a key of this name is known.
    pub(super) fn know(&self, id: Option<&str>) -> bool {
        id.is_none_or(|id| self.list.iter().any(|key| key.id.as_deref() == Some(id)))
    }

    /// Whether a key of this name has signed the text. A token that names no key is tried with each.
    pub(super) fn prove(&self, id: Option<&str>, algorithm: &str, text: &[u8], signature: &[u8]) -> bool {
        self.list
            .iter()
            .filter(|key| id.is_none() || key.id.as_deref() == id)
            .filter(|key| key.algorithm.as_deref().is_none_or(|only| only == algorithm))
            .any(|key| key.public.has_signed(algorithm, text, signature))
    }
}

impl Fields {
    fn key(self) -> Option<Key> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |length: usize| {
            let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
            (x.len() == length && y.len() == length).then(|| [&[4], &x[..], &y[..]].concat())
        };
        let public = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Public::Rsa { modulus: bytes(&self.n)?, exponent: bytes(&self.e)? },
            ("EC", Some("P-256")) => Public::P256(point(32)?),
            ("EC", Some("P-384")) => Public::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(&self.x)?),
            _ => return None,
        };
        Some(Key { id: self.kid, algorithm: self.alg, public })
    }
}

impl Public {
    /// The algorithm must be one of the key's kind: a token cannot choose what its own signature means.
    fn has_signed(&self, algorithm: &str, text: &[u8], signature: &[u8]) -> bool {
        let by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(text, signature).is_ok()
        };
        match self {
            Public::Rsa { modulus, exponent } => rsa(algorithm).is_some_and(|parameters| {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, text, signature).is_ok()
            }),
            Public::P256(point) => algorithm == "ES256" && by(&signature::ECDSA_P256_SHA256_FIXED, point),
            Public::P384(point) => algorithm == "ES384" && by(&signature::ECDSA_P384_SHA384_FIXED, point),
            Public::Ed25519(key) => algorithm == "EdDSA" && by(&signature::ED25519, key),
        }
    }
}

fn rsa(algorithm: &str) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
        "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
        "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}
