//! Decimal numbers of application properties, in the form in which receivers know them.
//!
//! The service reads the properties of each message and writes them again, and its writer, which is that of the .NET client,
//! leaves out two bits of the exponent: what IEEE 754 begins with `30 38` begins with `0c 38`. Its reader takes both forms.
//! Python's writer writes the first form, and its reader fails on anything but the second.

use crate::codec::code;
use crate::entries::optional_entries;

/// What stands for an exponent of zero (IEEE 754-2008, 3.5.2).
const BIAS: u32 = 6176;

/// The .NET client's decimals have at most so many places behind the point, and a significand of 96 bits.
const PLACES: u32 = 28;
const SIGNIFICANDS: u128 = 1 << 96;

/// Where the exponent begins, below the sign, and the significand, below the exponent.
const SIGN_BIT: u32 = 127;
const EXPONENT_BIT: u32 = 113;

/// The sign, and what two bits above the exponent say of a number that is none, or larger than its form holds.
const SIGN: u128 = 1 << SIGN_BIT;
const SPECIAL: u128 = 0b11 << (SIGN_BIT - 2);

/// The encoded value as the service writes it again, if it is a decimal of 128 bits that .NET can hold and writes otherwise.
/// Any other value stays as it is, what .NET wrote among them: read by the standard it has thousands of places.
pub(crate) fn rewritten(value: &[u8]) -> Option<[u8; 17]> {
    let [code::DECIMAL128, sent @ ..] = value else { return None };
    let sent = u128::from_be_bytes(sent.try_into().ok()?);
    if sent & SPECIAL == SPECIAL {
        return None;
    }
    let exponent = ((sent & !SIGN) >> EXPONENT_BIT) as u32;
    let sent_significand = sent & ((1 << EXPONENT_BIT) - 1);
    let (places, significand) = match exponent.checked_sub(BIAS) {
        None => (BIAS - exponent, sent_significand),
        // .NET has no exponents above zero: it multiplies.
        Some(tens) => (0, sent_significand.checked_mul(10_u128.checked_pow(tens)?)?),
    };
    if places > PLACES || significand >= SIGNIFICANDS {
        return None;
    }
    let exponent = BIAS - places;
    let sign = if sent & SIGN == 0 { 0 } else { 0x80 };
    let mut written = [code::DECIMAL128; 17];
    written[1..].copy_from_slice(&significand.to_be_bytes());
    written[1] = sign | (exponent >> 9) as u8;
    written[2] = ((exponent & 0x7f) << 1) as u8;
    Some(written)
}

/// Whether a map of properties has values that are written otherwise than they were sent. Most maps have no byte that a decimal
/// begins with, and are not walked.
pub(crate) fn are_rewritten(map: Option<&[u8]>) -> bool {
    map.is_some_and(|map| map.contains(&code::DECIMAL128))
        && optional_entries(map).is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| rewritten(entry.value).is_some()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decimal as IEEE 754 has it.
    fn ieee(is_negative: bool, significand: u128, exponent: i32) -> [u8; 17] {
        let biased = (BIAS as i32 + exponent) as u128;
        let bits = (u128::from(is_negative) << SIGN_BIT) | (biased << EXPONENT_BIT) | significand;
        let mut value = [code::DECIMAL128; 17];
        value[1..].copy_from_slice(&bits.to_be_bytes());
        value
    }

    /// As .NET writes a decimal, from the four words that it has of it.
    fn dotnet(is_negative: bool, significand: u128, places: u32) -> [u8; 17] {
        let exponent = 6176 - places;
        let mut value = [0; 17];
        value[0] = 0x94;
        value[1] = if is_negative { 0x80 } else { 0 } | (exponent >> 9) as u8;
        value[2] = ((exponent & 0x7F) << 1) as u8;
        value[5..].copy_from_slice(&significand.to_be_bytes()[4..]);
        value
    }

    #[test]
    fn the_decimal_that_python_writes_is_given_as_dotnet_writes_it() {
        // 1.2345
        let mut sent = [0; 17];
        sent[..3].copy_from_slice(&[0x94, 0x30, 0x38]);
        sent[15..].copy_from_slice(&[0x30, 0x39]);
        assert_eq!(sent, ieee(false, 12_345, -4));
        let mut given = sent;
        given[1] = 0x0c;
        assert_eq!(rewritten(&sent), Some(given));
        assert_eq!(rewritten(&given), None, "what .NET wrote stays");
    }

    #[test]
    fn whatever_dotnet_can_hold_is_rewritten_and_nothing_else() {
        //
        let largest = SIGNIFICANDS - 1;
        for is_negative in [false, true] {
            for places in 0..=PLACES {
                for significand in [0, 1, largest] {
                    let sent = ieee(is_negative, significand, -(places as i32));
                    let given = dotnet(is_negative, significand, places);
                    assert_eq!(rewritten(&sent), Some(given), "{significand} {places}");
                    assert_eq!(rewritten(&given), None, "{significand} {places}");
                }
            }
            assert_eq!(rewritten(&ieee(is_negative, 7, 5)), Some(dotnet(is_negative, 700_000, 0)));
            assert_eq!(
                rewritten(&ieee(is_negative, 7, 28)),
                Some(dotnet(is_negative, 7 * 10_u128.pow(28), 0))
            );
            let too_much =
                [(largest, 1), (8, 28), (1, 29), (1, 6_000), (largest + 1, 0), (1, -29), (1, -256)];
            for (significand, exponent) in too_much {
                assert_eq!(rewritten(&ieee(is_negative, significand, exponent)), None, "{exponent}");
            }
        }
        // Infinity, and no number.
        for first in [0x78, 0xf8, 0x7c, 0x60] {
            let mut special = ieee(false, 0, 0);
            special[1] = first;
            assert_eq!(rewritten(&special), None, "{first:#x}");
        }
        assert_eq!(rewritten(&[code::DECIMAL64, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(rewritten(&[]), None);
    }
}
