//! The body of the fuzz target: what strangers show to be let in.

use super::bearer::{Issuer, Keys, Role};
use super::sas::{self, Shown};
use super::{Guard, Policy, Right, Rights, Secret, UnixSeconds};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::Arc;

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const AUDIENCE: &str = "https://servicebus.azure.net";

/// Public keys whose private halves were thrown away.
const KEYS: &str = r#"{"keys":[
    {"kty":"EC","crv":"P-256","kid":"k1","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","crv":"Ed25519","kid":"k2","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// By its first byte an input is a key set, a token as it stands, a bearer token in three lines that are to be encoded, or a
/// token to be signed for an address and then spoilt: where, how, and the address.
///
/// Nobody has the keys, so that nothing is let in but what is signed here; and whatever is changed in that, it is refused or
/// worth the same.
pub fn sas_token(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    match first % 4 {
        0 => drop(Keys::read(rest)),
        1 => stranger(&String::from_utf8_lossy(rest)),
        2 => {
            let text = String::from_utf8_lossy(rest);
            let mut lines = text.splitn(3, '\n');
            let mut line = || URL_SAFE_NO_PAD.encode(lines.next().unwrap_or_default());
            stranger(&format!("Bearer {}.{}.{}", line(), line(), line()));
        }
        _ => spoilt(rest),
    }
}

fn guard() -> Guard {
    let policy = |name: &str, key: &str, rights: Rights| Policy {
        name: name.into(),
        primary: Secret::new(key),
        secondary: Some(Secret::new("bm9ib2R5IGtub3dzIHRoaXMgZWl0aGVy")),
        rights,
    };
    let send: Rights = [Right::Send].into_iter().collect();
    let policies =
        vec![policy("root", "bm9ib2R5IGtub3dzIHRoaXMga2V5", Rights::ALL), policy("send", "c2VuZA==", send)];
    let role = Role { name: "boss".into(), rights: Rights::ALL, entity: None };
    let issuer = Issuer::new("me", vec![AUDIENCE.into()], vec!["roles".into()], vec![role]);
    issuer.set_keys(Keys::read(KEYS.as_bytes()).expect("a key set"));
    Guard::new(policies, true).with_issuers(vec![Arc::new(issuer)])
}

fn stranger(text: &str) {
    let guard = guard();
    let (name, key) = text.split_once('\n').unwrap_or_default();
    assert!(guard.plain(name, key.as_bytes(), false).is_err(), "{name} was let in");
    // In its header or put on `$cbs`: the same.
    for text in [text, text.trim()] {
        assert!(guard.signature(text, false, NOW).is_err(), "{text} was let in");
        assert!(guard.bearer(text, "q", NOW).is_err(), "{text} was let in");
    }
    let denied = match sas::in_header(text) {
        Ok(Shown::Signature(text)) => guard.signature(text, false, NOW),
        Ok(Shown::Bearer(text)) => guard.bearer(text, "q", NOW),
        Err(denied) => Err(denied),
    };
    assert!(denied.is_err(), "{text} was let in");
}

fn spoilt(bytes: &[u8]) {
    let [high, low, change, rest @ ..] = bytes else { return };
    let Ok(address) = std::str::from_utf8(rest) else { return };
    let guard = guard();
    let sound = sas::sign(address, "send", "c2VuZA==", UnixSeconds(NOW.0 + 60));
    let Ok(granted) = guard.signature(&sound, false, NOW) else { return };
    assert!(!granted.rights.include(Right::Listen) && granted.rights.include(Right::Send));
    assert!(guard.signature(&sound, false, UnixSeconds(NOW.0 + 1_000_000)).is_err(), "it never ends");
    let mut bytes = sound.into_bytes();
    let at = usize::from(u16::from_be_bytes([*high, *low])) % bytes.len();
    bytes[at] ^= change;
    let Ok(text) = String::from_utf8(bytes) else { return };
    if let Ok(other) = guard.signature(&text, false, NOW) {
        assert_eq!(other, granted, "{text} was let in");
    }
}
