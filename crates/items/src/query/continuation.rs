//! Continuations: where a page ended, as header-safe text (P-52).
//!
//! A token names a position, never an offset (P-53): the last candidate that was consumed, or the last sort key and what breaks
//! its ties. It carries the fingerprint of its query and container, so that another query's token is refused. Layout, then base64:
//!
//! ```text
//! 1 version | 8 fingerprint | 1 flags | 8 rows given | 8 rows skipped | 8 rows of the last candidate
//! 2 length, position | 2 length, key
//! ```

use crate::limits;
use crate::refusal::Refusal;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

const VERSION: u8 = 2;
const IS_ORDERED: u8 = 1;
const IS_SORTED: u8 = 2;
const IS_CUT: u8 = 4;
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Token {
    /// The source was in the order of ORDER BY.
    pub is_ordered: bool,
    /// `key` is the last full key; otherwise `position` is the last candidate.
    pub is_sorted: bool,
    /// `key` is only the beginning of the sort key; `position` breaks ties.
    pub is_cut: bool,
    /// Rows that all pages so far have given: TOP and LIMIT count them.
    pub given: u64,
    /// Rows that OFFSET has passed over.
    pub skipped: u64,
    /// Rows of the last candidate that are used up; all of them when it is the largest number.
    pub within: u64,
    pub position: Bytes,
    pub key: Vec<u8>,
}

/// Mixes a query's fingerprint with what it was asked of.
fn bound(fingerprint: u64, binding: u64) -> u64 {
    fingerprint ^ binding.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Token {
    pub fn encode(&self, fingerprint: u64, binding: u64) -> String {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&bound(fingerprint, binding).to_be_bytes());
        bytes.push(
            flag(self.is_ordered, IS_ORDERED) | flag(self.is_sorted, IS_SORTED) | flag(self.is_cut, IS_CUT),
        );
        for number in [self.given, self.skipped, self.within] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for part in [&self.position[..], &self.key] {
            // Positions are keys of the store, far below this.
            bytes.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend_from_slice(&part[..part.len().min(usize::from(u16::MAX))]);
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub fn decode(text: &str, fingerprint: u64, binding: u64) -> Result<Token, Refusal> {
        let refused =
            || Refusal::bad("Invalid Continuation Token: it is malformed, or belongs to another query.");
        if text.len() > 2 * limits::KEY_BYTES {
            return Err(refused());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused())?;
        let mut rest = &bytes[..];
        let mut take = |count: usize| -> Result<&[u8], Refusal> {
            let (taken, behind) = rest.split_at_checked(count).ok_or_else(refused)?;
            rest = behind;
            Ok(taken)
        };
        if take(1)? != [VERSION] || take(8)? != bound(fingerprint, binding).to_be_bytes() {
            return Err(refused());
        }
        let flags = take(1)?[0];
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let (given, skipped, within) = (number(take(8)?), number(take(8)?), number(take(8)?));
        let length = number(take(2)?) as usize;
        let position = Bytes::copy_from_slice(take(length)?);
        let length = number(take(2)?) as usize;
        let key = take(length)?.to_vec();
        if !rest.is_empty() || flags & !(IS_ORDERED | IS_SORTED | IS_CUT) != 0 {
            return Err(refused());
        }
        Ok(Token {
            is_ordered: flags & IS_ORDERED != 0,
            is_sorted: flags & IS_SORTED != 0,
            is_cut: flags & IS_CUT != 0,
            given,
            skipped,
            within,
            position,
            key,
        })
    }
}

/// FNV-1a: the same on every machine and in every version, which tokens need.
#[derive(Debug, Clone, Copy)]
pub struct Hash(u128);

impl Hash {
    pub fn new() -> Hash {
        Hash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub fn part(mut self, bytes: &[u8]) -> Hash {
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_be_bytes()) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
        self
    }

    pub fn wide(self) -> u128 {
        self.0
    }

    pub fn narrow(self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }
}

/// Bytes that name a value or place in few bytes: long ones are a beginning and a hash. Their order is total, and for short ones the
/// order of the bytes.
pub fn short(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() <= limits::TOKEN_NAME_BYTES {
        return bytes.to_vec();
    }
    [&bytes[..limits::TOKEN_NAME_BYTES], &Hash::new().part(bytes).wide().to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_only_for_its_query_and_container() {
        // P-52.
        let token = Token {
            is_ordered: true,
            is_sorted: true,
            is_cut: true,
            given: 7,
            skipped: u64::MAX,
            within: 3,
            position: Bytes::from_static(b"place"),
            key: vec![0, 255],
        };
        let text = token.encode(1, 2);
        assert!(text.is_ascii() && !text.contains(['+', '/', '=', ' ']));
        assert_eq!(Token::decode(&text, 1, 2), Ok(token));
        assert!(Token::decode(&text, 2, 2).is_err());
        assert!(Token::decode(&text, 1, 3).is_err());
        for length in 0..text.len() {
            assert!(Token::decode(&text[..length], 1, 2).is_err());
        }
        assert!(Token::decode(&format!("{text}AAAA"), 1, 2).is_err());
        assert!(Token::decode("\u{e9}", 1, 2).is_err());
    }
}
