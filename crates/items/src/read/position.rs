//! Where a page ended: a key of the store, short enough for a continuation (P-52, P-53).

use crate::effective_key::{self, Hashing};
use crate::limits::POSITION_KEY_BYTES;
use crate::{KeyPart, Refusal};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

const WHOLE: u8 = 0;
const CUT: u8 = 1;

/// The position of a key.
pub fn of(key: &[u8]) -> Bytes {
    if key.len() <= POSITION_KEY_BYTES {
        return [&[WHOLE][..], key].concat().into();
    }
    let text = effective_key::upper_hex(key);
    let hash = effective_key::bytes(&[KeyPart::String(text)], Hashing::V2);
    [&[CUT][..], &key[..POSITION_KEY_BYTES], &hash].concat().into()
}

/// The first key that can have this position.
pub fn start(position: &[u8]) -> &[u8] {
    match position.split_first() {
        Some((&CUT, rest)) => &rest[..rest.len().min(POSITION_KEY_BYTES)],
        Some((_, rest)) => rest,
        None => &[],
    }
}

/// Whether several keys may stand at the start of this position: those before its own are to be skipped.
pub fn is_cut(position: &[u8]) -> bool {
    position.first() == Some(&CUT)
}

/// A continuation of a feed: what it belongs to, and a position.
pub fn token(binding: u64, position: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([&binding.to_be_bytes()[..], position].concat())
}

pub fn read_token(token: &str, binding: u64) -> Result<Bytes, Refusal> {
    let bad = || Refusal::bad("Invalid Continuation Token: it is not one that this feed gave.");
    if token.len() > crate::limits::CONTINUATION_BYTES {
        return Err(bad());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    match bytes.split_first_chunk::<8>() {
        Some((of, position)) if u64::from_be_bytes(*of) == binding && !position.is_empty() => {
            Ok(Bytes::copy_from_slice(position))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-52
    #[test]
    fn a_token_is_short_and_bound_to_its_feed() {
        for length in [0, 10, 500, 501, 9_000] {
            let key = vec![7; length];
            let position = of(&key);
            let token = token(5, &position);
            assert!(token.len() < crate::limits::CONTINUATION_BYTES);
            assert_eq!(read_token(&token, 5).unwrap(), position);
            assert!(read_token(&token, 6).is_err());
            assert!(key.starts_with(start(&position)));
            assert_eq!(is_cut(&position), length > 500);
        }
        for bad in ["", "x", "%%", &"A".repeat(2_000)] {
            assert!(read_token(bad, 0).is_err(), "{bad}");
        }
    }
}
