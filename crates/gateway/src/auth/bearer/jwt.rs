//! The text of a JSON web token (RFC 7519, 7515): read, nothing proved yet.

use crate::auth::Denied;
use crate::limits::TOKEN_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Jwt<'a> {
    pub(super) header: Header,
    pub(super) claims: TokenBody,
    /// Header and claims as written: what was signed.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
    /// What a verifier must understand. We understand nothing of the kind.
    crit: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenBody {
    pub(super) iss: String,
    #[serde(default)]
    aud: Value,
    pub(super) exp: Value,
    #[serde(default)]
    nbf: Value,
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

impl<'a> Jwt<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Jwt<'a>, Denied> {
        let malformed = |why: &str| Denied::MalformedToken.because(why);
        if text.len() > TOKEN_BYTES {
            return Err(malformed("it is too long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(|| malformed("it has no three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| malformed("it has no three parts"))?;
        let bytes =
            |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("a part is not base64url"));
        let header: Header =
            serde_json::from_slice(&bytes(header)?).map_err(|_| malformed("its header cannot be read"))?;
        if header.crit.is_some() {
            return Err(malformed("`crit` asks for what is not known here"));
        }
        let claims = serde_json::from_slice(&bytes(claims)?)
            .map_err(|_| malformed("`iss` or `exp` is missing, or its claims cannot be read"))?;
        Ok(Jwt { header, claims, signed, signature: bytes(signature)? })
    }
}

impl TokenBody {
    pub(super) fn is_for(&self, audiences: &[Box<str>]) -> bool {
        // Azure's own come with and without a slash at the end.
        let plain = |text: &str| text.trim_end_matches('/').to_owned();
        texts(&self.aud).any(|given| audiences.iter().any(|audience| plain(audience) == plain(given)))
    }

    /// Whole seconds since 1970; some issuers write fractions.
    pub(super) fn expires(&self) -> Option<u64> {
        seconds(&self.exp)
    }

    /// The first second at which it counts. A time that cannot be read is never.
    pub(super) fn begins(&self) -> u64 {
        if self.nbf.is_null() { 0 } else { seconds(&self.nbf).unwrap_or(u64::MAX) }
    }

    /// Whether one of the named claims holds the value: alone, in a list, or between spaces as scopes are written.
    pub(super) fn have(&self, claims: &[Box<str>], value: &str) -> bool {
        let mut held = claims.iter().filter_map(|name| self.others.get(&**name));
        held.any(|claim| texts(claim).any(|text| text == value || text.split(' ').any(|word| word == value)))
    }
}

fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Value::as_str)
}
