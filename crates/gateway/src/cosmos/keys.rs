//! The account's keys, and what a signature made with one of them allows (P-14 to P-22).
//!
//! Each key is kept as the state of its HMAC, so that a check costs the hash of the text and nothing for the key. Signatures are
//! compared in constant time.

use crate::auth::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key that every client of the emulator knows (P-21).
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// What the holder of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    All,
}

/// The text of a key is not base64 (P-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of the items is base64, such as `openssl rand -base64 64` prints")]
pub struct NotBase64;

#[derive(Clone)]
struct Key {
    state: Hmac<Sha256>,
    access: Access,
}

impl Key {
    fn new(key: &Secret, access: Access) -> Result<Key, NotBase64> {
        let bytes = STANDARD.decode(key.expose()).map_err(|_| NotBase64)?;
        // Whatever is empty would be a key that everybody has.
        let state = Some(bytes).filter(|bytes| !bytes.is_empty()).ok_or(NotBase64)?;
        Ok(Key { state: Hmac::new_from_slice(&state).map_err(|_| NotBase64)?, access })
    }

    fn has_signed(&self, text: &[&[u8]], signature: &[u8]) -> bool {
        let mut state = self.state.clone();
        text.iter().for_each(|part| state.update(part));
        state.verify_slice(signature).is_ok()
    }
}

/// All keys of the account (P-20), and perhaps the well-known one.
pub struct Keys {
    keys: Vec<Key>,
    well_known: Option<Key>,
    /// Which of them made the last signature that counted, the well-known one behind the others: mostly the next is its too.
    usual: AtomicUsize,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    /// `takes_well_known_key` is a promise of the caller: nobody but this machine reaches the server.
    pub fn new(all: &[Secret], read_only: &[Secret], takes_well_known_key: bool) -> Result<Keys, NotBase64> {
        let all = all.iter().map(|key| Key::new(key, Access::All));
        let read_only = read_only.iter().map(|key| Key::new(key, Access::ReadOnly));
        let well_known =
            takes_well_known_key.then(|| Key::new(&Secret::new(WELL_KNOWN_KEY), Access::All)).transpose()?;
        let keys = all.chain(read_only).collect::<Result<_, _>>()?;
        Ok(Keys { keys, well_known, usual: AtomicUsize::new(0) })
    }

    /// What the signature of this text, given in parts, allows. `None`: no key made it.
    pub fn access(&self, text: &[&[u8]], signature: &[u8], peer_is_here: bool) -> Option<Access> {
        let well_known = self.well_known.iter().filter(|_| peer_is_here);
        let keys = self.keys.iter().chain(well_known);
        let usual = self.usual.load(Ordering::Relaxed);
        let usual_first = keys.clone().enumerate().skip(usual).take(1).chain(keys.enumerate());
        let mut tried = usual_first.filter(|(_, key)| key.has_signed(text, signature));
        let (nth, key) = tried.next()?;
        if nth != usual {
            self.usual.store(nth, Ordering::Relaxed);
        }
        Some(key.access)
    }
}

/// The signature of a text, for tests and clients of our own.
pub fn sign(key: &str, text: &str) -> Result<String, NotBase64> {
    let mut state = Key::new(&Secret::new(key), Access::All)?.state;
    state.update(text.as_bytes());
    Ok(STANDARD.encode(state.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "get\ndocs\ndbs/db1/colls/c1/docs/item1\nthu, 27 apr 2017 00:51:12 gmt\n\n";

    fn keys(takes_well_known_key: bool) -> Keys {
        let [all, read] = [b"first", b"other"].map(|key| Secret::new(STANDARD.encode(key)));
        Keys::new(&[all], &[read], takes_well_known_key).unwrap()
    }

    fn access(keys: &Keys, key: &str, is_here: bool) -> Option<Access> {
        let signature = STANDARD.decode(sign(key, TEXT).unwrap()).unwrap();
        keys.access(&[TEXT.as_bytes()], &signature, is_here)
    }

    // P-15, P-22
    #[test]
    fn the_known_signature_of_the_well_known_key_comes_out() {
        assert_eq!(sign(WELL_KNOWN_KEY, TEXT).unwrap(), "CmMB/bwn5rvm6LxgeIXWi9Qibua+Qu7Z5fR9mAc62cw=");
    }

    // P-20
    #[test]
    fn each_key_gives_what_it_is_for() {
        let keys = keys(false);
        assert_eq!(access(&keys, &STANDARD.encode("first"), false), Some(Access::All));
        assert_eq!(access(&keys, &STANDARD.encode("other"), false), Some(Access::ReadOnly));
        assert_eq!(access(&keys, &STANDARD.encode("third"), true), None);
        assert_eq!(keys.access(&[TEXT.as_bytes()], b"", true), None);
    }

    // P-20
    #[test]
    fn the_key_of_the_last_request_is_tried_first_and_changes_nothing_else() {
        let keys = keys(true);
        for (key, is_here, expected) in [
            (WELL_KNOWN_KEY, true, Some(Access::All)),
            (WELL_KNOWN_KEY, false, None),
            ("b3RoZXI=", false, Some(Access::ReadOnly)),
            ("b3RoZXI=", true, Some(Access::ReadOnly)),
            ("Zmlyc3Q=", false, Some(Access::All)),
        ] {
            assert_eq!(access(&keys, key, is_here), expected, "{key} {is_here}");
        }
    }

    // P-21
    #[test]
    fn the_well_known_key_counts_from_this_machine_where_it_is_taken() {
        assert_eq!(access(&keys(true), WELL_KNOWN_KEY, true), Some(Access::All));
        assert_eq!(access(&keys(true), WELL_KNOWN_KEY, false), None);
        assert_eq!(access(&keys(false), WELL_KNOWN_KEY, true), None);
    }

    #[test]
    fn a_key_that_is_no_base64_or_empty_is_none() {
        for key in ["", "not base64!", "===="] {
            assert!(Keys::new(&[Secret::new(key)], &[], false).is_err(), "{key}");
        }
    }
}
