use super::*;
use crate::auth::{Policy, Right};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const ISSUER: &str = "https://login.example/tenant/v2.0";
const AUDIENCE: &str = "https://servicebus.azure.net";

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer's key, with its public half as a key set.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Signer(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).unwrap())
    }

    fn keys(&self, id: &str) -> Keys {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let key =
            json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": encoded(x), "y": encoded(y)});
        let other = json!({"kty": "oct", "k": "AAAA"});
        Keys::read(json!({"keys": [other, key]}).to_string().as_bytes()).unwrap()
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let (header, claims) = (header.to_string(), claims.to_string());
        let signed = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encoded(signature.as_ref()))
    }
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "k1"})
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW.0 + 600, "roles": ["sender", "order-reader"]})
}

/// The same with one claim changed, or left out.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn role(name: &str, right: Right, entity: Option<&str>) -> Role {
    Role { name: name.into(), rights: [right].into_iter().collect(), entity: entity.map(Into::into) }
}

fn guard(signer: &Signer) -> Guard {
    let roles = vec![
        role("sender", Right::Send, None),
        role("order-reader", Right::Listen, Some("orders")),
        role("boss", Right::Manage, None),
    ];
    let claims = vec!["roles".into(), "scp".into()];
    let issuer = Issuer::new(ISSUER, vec![AUDIENCE.into()], claims, roles);
    issuer.set_keys(signer.keys("k1"));
    Guard::new(Vec::<Policy>::new(), false).with_issuers(vec![Arc::new(issuer)])
}

#[test]
fn roles_are_worth_what_is_configured_where_it_is_configured() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let token = signer.token(&header(), &claims());
    let orders = guard.bearer(&token, "Orders/$DeadLetterQueue", NOW).unwrap();
    assert!(orders.allows("orders/$deadletterqueue", Right::Listen, NOW));
    assert!(orders.allows("orders/$deadletterqueue", Right::Send, NOW));
    assert!(!orders.allows("orders/$deadletterqueue", Right::Manage, NOW));
    assert!(!orders.allows("invoices", Right::Listen, NOW), "what counts for one entity counts there alone");
    // A queue below the path of an entity is another entity, its subscriptions are its own.
    let below = guard.bearer(&token, "orders/late", NOW).unwrap();
    assert!(
        below.allows("orders/late", Right::Send, NOW) && !below.allows("orders/late", Right::Listen, NOW)
    );
    let subscription = guard.bearer(&token, "orders/Subscriptions/s", NOW).unwrap();
    assert!(subscription.allows("orders/subscriptions/S", Right::Listen, NOW));
    let whole = guard.bearer(&token, "orders", NOW).unwrap();
    assert!(whole.allows("orders/$deadletterqueue", Right::Listen, NOW));
    assert!(!whole.allows("orders/late", Right::Listen, NOW));
    let invoices = guard.bearer(&token, "invoices", NOW).unwrap();
    assert!(
        invoices.allows("invoices", Right::Send, NOW) && !invoices.allows("invoices", Right::Listen, NOW)
    );
    // By a scope, as delegated tokens have it, and for a manager everywhere.
    let scoped =
        signer.token(&header(), &json!({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW.0 + 1, "scp": "a boss"}));
    let boss = guard.bearer(&scoped, "anything", NOW).unwrap();
    assert!(boss.allows("something/else", Right::Manage, NOW));
    let nobody = signer.token(&header(), &with("roles", json!(["bos", "sende"])));
    assert_eq!(guard.bearer(&nobody, "orders", NOW), Err(Denied::InvalidAudience));
}

#[test]
fn a_token_counts_within_its_time_and_the_difference_between_two_clocks() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let at =
        |claims: &Value, now| guard.bearer(&signer.token(&header(), claims), "q", UnixSeconds(now)).map(drop);
    let last = NOW.0 + 600 + CLOCK_SKEW_SECONDS - 1;
    assert_eq!(at(&claims(), last), Ok(()));
    assert_eq!(at(&claims(), last + 1), Err(Denied::ExpiredToken));
    let begins = with("nbf", json!(NOW.0));
    assert_eq!(at(&begins, NOW.0 - CLOCK_SKEW_SECONDS), Ok(()));
    assert_eq!(at(&begins, NOW.0 - CLOCK_SKEW_SECONDS - 1), Err(Denied::ExpiredToken));
    assert_eq!(at(&with("nbf", json!("soon")), NOW.0), Err(Denied::ExpiredToken));
    assert_eq!(at(&with("exp", json!(NOW.0 as f64 + 600.5)), NOW.0), Ok(()));
    assert_eq!(at(&with("exp", json!("tomorrow")), NOW.0), Err(Denied::MalformedToken));
    assert_eq!(at(&with("exp", Value::Null), NOW.0), Err(Denied::MalformedToken));
}

#[test]
fn audiences_are_compared_whole_but_for_a_slash_at_the_end() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let with_audience =
        |audience: Value| guard.bearer(&signer.token(&header(), &with("aud", audience)), "q", NOW).map(drop);
    assert_eq!(with_audience(json!("https://servicebus.azure.net/")), Ok(()));
    assert_eq!(with_audience(json!(["other", AUDIENCE])), Ok(()));
    for wrong in [
        json!("https://servicebus.azure.net.evil"),
        json!("https://storage.azure.com"),
        json!(7),
        Value::Null,
    ] {
        assert_eq!(with_audience(wrong), Err(Denied::InvalidAudience));
    }
}

#[test]
fn a_token_is_refused_whose_signature_is_not_the_issuers() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let refused = |token: &str| guard.bearer(token, "q", NOW).unwrap_err();
    assert_eq!(refused(&Signer::new().token(&header(), &claims())), Denied::InvalidSignature);
    let good = signer.token(&header(), &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (head, _) = signed.split_once('.').unwrap();
    let forged = encoded(with("roles", json!(["boss"])).to_string().as_bytes());
    assert_eq!(refused(&format!("{head}.{forged}.{signature}")), Denied::InvalidSignature);
    assert_eq!(refused(&format!("{signed}.")), Denied::InvalidSignature);
    // A token cannot choose what its signature means.
    for algorithm in ["none", "HS256", "RS256", "ES384", "EdDSA", ""] {
        let header = json!({"alg": algorithm, "kid": "k1"});
        assert_eq!(refused(&signer.token(&header, &claims())), Denied::InvalidSignature, "{algorithm}");
    }
    let other_key = json!({"alg": "ES256", "kid": "k2"});
    assert_eq!(refused(&signer.token(&other_key, &claims())), Denied::InvalidSignature);
    assert_eq!(
        refused(&signer.token(&header(), &with("iss", json!("https://evil")))),
        Denied::InvalidSignature
    );
    assert!(
        guard.bearer(&signer.token(&json!({"alg": "ES256"}), &claims()), "q", NOW).is_ok(),
        "each key is tried"
    );
}

#[test]
fn what_is_no_token_is_malformed() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let critical = signer.token(&json!({"alg": "ES256", "kid": "k1", "crit": ["b64"]}), &claims());
    let without_issuer = signer.token(&header(), &with("iss", Value::Null));
    let long = signer.token(&header(), &with("filling", json!("x".repeat(crate::limits::TOKEN_BYTES))));
    for text in ["", "a.b", "..", "e30.e30.", "!.!.!", "W10.W10.AA", &critical, &without_issuer, &long] {
        assert_eq!(guard.bearer(text, "q", NOW), Err(Denied::MalformedToken), "{text:.40}");
    }
    let nobody = Guard::new(Vec::new(), false);
    assert_eq!(nobody.bearer(&signer.token(&header(), &claims()), "q", NOW), Err(Denied::UnsupportedToken));
}

#[tokio::test]
async fn a_key_that_nobody_knows_is_asked_for() {
    let signer = Signer::new();
    let guard = guard(&signer);
    let issuer = Arc::clone(&guard.issuers[0]);
    let next = Signer::new();
    let token = next.token(&json!({"alg": "ES256", "kid": "k2"}), &claims());
    assert_eq!(guard.bearer(&token, "q", NOW), Err(Denied::InvalidSignature));
    issuer.unknown_key().await;
    issuer.set_keys(next.keys("k2"));
    assert!(guard.bearer(&token, "q", NOW).is_ok());
}

#[test]
fn a_key_set_needs_a_key_that_can_be_used() {
    for set in [
        "",
        "{}",
        r#"{"keys":[]}"#,
        r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#,
        r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#,
    ] {
        assert!(Keys::read(set.as_bytes()).is_err(), "{set}");
    }
}

#[test]
fn the_development_issuer_gives_tokens_that_are_good_for_everything() {
    let development = Development::new().unwrap();
    let guard = Guard::new(Vec::new(), true).with_issuers(vec![Arc::new(development.issuer())]);
    let answer: Value = serde_json::from_str(&development.answer(AUDIENCE, NOW).unwrap()).unwrap();
    let grant = guard.bearer(answer["access_token"].as_str().unwrap(), "", NOW).unwrap();
    assert!(grant.allows("anything", Right::Manage, NOW));
    let other: Value =
        serde_json::from_str(&development.answer("https://storage.azure.com", NOW).unwrap()).unwrap();
    let other = other["access_token"].as_str().unwrap();
    assert_eq!(guard.bearer(other, "", NOW), Err(Denied::InvalidAudience));
    let next = Development::new().unwrap();
    let elsewhere = Guard::new(Vec::new(), true).with_issuers(vec![Arc::new(next.issuer())]);
    assert_eq!(
        elsewhere.bearer(answer["access_token"].as_str().unwrap(), "", NOW),
        Err(Denied::InvalidSignature),
        "a key lives as long as its process"
    );
}
