//! Values as bytes whose order is the order of the values.
//!
//! A text is written with its zero bytes doubled up (`00` becomes `00 FF`) and ends with `00 00`, so that no text is the beginning
//! of another and "a" stands before "ab". Numbers are eight bytes, big-endian, made so that negative ones come first.

/// Appends `text` without its end: the lower bound of every text that begins so.
pub fn push_open_text(out: &mut Vec<u8>, text: &[u8]) {
    if !text.contains(&0) {
        out.extend_from_slice(text);
        return;
    }
    for &byte in text {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
}

pub fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    push_open_text(out, text);
    out.extend_from_slice(&[0, 0]);
}

/// Takes a text off the front; `None` when there is none.
pub fn take_text(from: &mut &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut rest = *from;
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        if byte != 0 {
            text.push(byte);
            continue;
        }
        let (&next, behind) = rest.split_first()?;
        rest = behind;
        match next {
            0xFF => text.push(0),
            0 => break,
            _ => return None,
        }
    }
    *from = rest;
    Some(text)
}

/// The length of the text in front, with its end.
pub fn text_length(from: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += from.get(at..)?.iter().position(|&byte| byte == 0)? + 1;
        match from.get(at)? {
            0xFF => at += 1,
            0 => return Some(at + 1),
            _ => return None,
        }
    }
}

pub fn ordered_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

pub fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// A signed number as one whose big-endian bytes are in order.
pub fn ordered_i64(number: i64) -> u64 {
    (number as u64) ^ (1 << 63)
}

pub fn from_ordered_i64(bits: u64) -> i64 {
    (bits ^ (1 << 63)) as i64
}

/// The first key behind every key that begins with `prefix`: the upper bound of a scan. All bytes `FF` have none; no prefix of
/// ours is so.
pub fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xFF; prefix.len() + 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn texts_keep_their_order_and_come_back(a in any::<Vec<u8>>(), b in any::<Vec<u8>>(), tail in any::<Vec<u8>>()) {
            let written = |text: &[u8]| { let mut out = Vec::new(); push_text(&mut out, text); out };
            prop_assert_eq!(written(&a).cmp(&written(&b)), a.cmp(&b));
            let mut with_tail = written(&a);
            prop_assert_eq!(text_length(&with_tail), Some(with_tail.len()));
            with_tail.extend_from_slice(&tail);
            let mut rest = &with_tail[..];
            prop_assert_eq!(take_text(&mut rest), Some(a.clone()));
            prop_assert_eq!(rest, &tail[..]);
            let mut open = Vec::new();
            push_open_text(&mut open, &b);
            prop_assert_eq!(open <= written(&a), b <= a, "an open text is the lower bound of what is not below it");
        }

        #[test]
        fn numbers_keep_their_order_and_come_back(a in any::<f64>(), b in any::<f64>(), c in any::<i64>(), d in any::<i64>()) {
            if a < b { prop_assert!(ordered_bits(a) < ordered_bits(b)); }
            prop_assert_eq!(from_ordered_bits(ordered_bits(a)).to_bits(), a.to_bits());
            prop_assert_eq!(ordered_i64(c).cmp(&ordered_i64(d)), c.cmp(&d));
            prop_assert_eq!(from_ordered_i64(ordered_i64(c)), c);
        }

        #[test]
        fn the_end_of_a_prefix_is_behind_everything_that_begins_so(prefix in proptest::collection::vec(any::<u8>(), 1..6), tail in any::<Vec<u8>>()) {
            let mut key = prefix.clone();
            key.extend_from_slice(&tail);
            prop_assume!(prefix.iter().any(|&byte| byte != 0xFF));
            prop_assert!(key < end_of_prefix(&prefix));
        }
    }

    #[test]
    fn a_text_that_does_not_end_is_none() {
        for bytes in [&b""[..], b"a", b"a\0", b"a\0\x01", b"\0\xFF"] {
            assert_eq!(take_text(&mut &bytes[..]), None);
            assert_eq!(text_length(bytes), None);
        }
    }
}
