//! The many ways in which binary JSON writes a string.

use super::{Error, Reader, Width};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::fmt::Write as _;

/// Strings that have a marker of their own (P-87).
const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

impl<'a> Reader<'a> {
    /// The string behind a marker that was read. What a reference leads to is no reference itself.
    pub(super) fn string(&mut self, marker: u8, is_referred_to: bool) -> Result<(), Error> {
        let text = match marker {
            0x20..=0x3F => return self.text.string(SYSTEM_STRINGS[usize::from(marker - 0x20)]),
            0x71 => self.base64(Width::One, true)?,
            0x72 => self.base64(Width::Two, true)?,
            0x73 => self.base64(Width::One, false)?,
            0x74 => self.base64(Width::Two, false)?,
            0x75 => self.guid_in_order(LOWER)?,
            0x76 => self.guid_in_order(UPPER)?,
            0x77 => format!("\"{}\"", self.guid_in_order(LOWER)?),
            0x78 => self.table(LOWER)?,
            0x79 => self.table(UPPER)?,
            0x7A => self.table(DATE_TIME)?,
            0x7B => self.packed(4, true, Width::One)?,
            0x7C => self.packed(5, true, Width::One)?,
            0x7D => self.packed(6, true, Width::One)?,
            0x7E => self.packed(7, false, Width::One)?,
            0x7F => self.packed(7, false, Width::Two)?,
            0x80..=0xBF => return self.plain(usize::from(marker & 0x7F)),
            0xC0 => return self.length(Width::One).and_then(|length| self.plain(length)),
            0xC1 => return self.length(Width::Two).and_then(|length| self.plain(length)),
            0xC2 => return self.length(Width::Four).and_then(|length| self.plain(length)),
            0xC3..=0xC6 if !is_referred_to => return self.reference(usize::from(marker - 0xC2)),
            0xD3 => self.guid()?,
            0xDD => self.bytes(Width::One)?,
            0xDE => self.bytes(Width::Two)?,
            0xDF => self.bytes(Width::Four)?,
            other => return Err(Error::Marker(other)),
        };
        self.text.string(&text)
    }

    fn plain(&mut self, length: usize) -> Result<(), Error> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| Error::NotUtf8)?;
        self.text.string(text)
    }

    /// The place of an earlier string, in so many bytes.
    fn reference(&mut self, width: usize) -> Result<(), Error> {
        let mut place = [0; 4];
        place[..width].copy_from_slice(self.take(width)?);
        let (target, after) = (u32::from_le_bytes(place) as usize, self.at);
        let marker = *self.document.get(target).ok_or(Error::Reference)?;
        let is_string = matches!(marker, 0x20..=0xC2);
        if !is_string || target == 0 {
            return Err(Error::Reference);
        }
        self.at = target + 1;
        self.string(marker, true)?;
        self.at = after;
        Ok(())
    }

    /// Bytes whose base64 form is the string. It may have lacked its padding.
    fn base64(&mut self, width: Width, is_standard: bool) -> Result<String, Error> {
        let (groups, padding) = (self.length(width)?, self.byte()?);
        let is_bare = padding > 2;
        let missing = usize::from(if is_bare { !padding } else { padding });
        let padded = groups * 4;
        if missing > 2 || missing > padded {
            return Err(Error::Length);
        }
        let bytes = self.take((padded - missing) * 3 / 4)?;
        let mut text = if is_standard { STANDARD.encode(bytes) } else { URL_SAFE.encode(bytes) };
        if is_bare {
            text.truncate(padded - missing);
        }
        Ok(text)
    }

    fn bytes(&mut self, width: Width) -> Result<String, Error> {
        let length = self.length(width)?;
        Ok(STANDARD.encode(self.take(length)?))
    }

    /// Digit by digit, the lower half of a byte first.
    fn guid_in_order(&mut self, digits: &[u8; 16]) -> Result<String, Error> {
        let mut text = String::with_capacity(36);
        for (index, byte) in self.array::<16>()?.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.extend([byte & 15, byte >> 4].map(|half| char::from(digits[usize::from(half)])));
        }
        Ok(text)
    }

    /// As .NET lays it out: two numbers of 16 bits behind one of 32, then bytes.
    fn guid(&mut self) -> Result<String, Error> {
        let (first, second, third) = (self.array()?, self.array()?, self.array()?);
        let mut text = format!(
            "{:08x}-{:04x}-{:04x}-",
            u32::from_le_bytes(first),
            u16::from_le_bytes(second),
            u16::from_le_bytes(third)
        );
        for (index, byte) in self.array::<8>()?.into_iter().enumerate() {
            let dash = if index == 2 { "-" } else { "" };
            let _ = write!(text, "{dash}{byte:02x}");
        }
        Ok(text)
    }

    /// Half a byte for each character, the lower half first.
    fn table(&mut self, table: &[u8; 16]) -> Result<String, Error> {
        let length = usize::from(self.byte()?);
        let bytes = self.take(length.div_ceil(2))?;
        let halves = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        Ok(halves.take(length).map(|half| char::from(table[usize::from(half)])).collect())
    }

    /// A few bits for each character, the lowest first, perhaps counted from a character.
    fn packed(&mut self, bits: usize, has_base: bool, width: Width) -> Result<String, Error> {
        let length = self.length(width)?;
        let base = if has_base { self.byte()? } else { 0 };
        let bytes = self.take((length * bits).div_ceil(8))?;
        let character = |index: usize| {
            let (byte, shift) = (index * bits / 8, index * bits % 8);
            let window = u16::from(bytes[byte]) | u16::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8;
            let value = (window >> shift) as u8 & ((1u16 << bits) - 1) as u8;
            value.checked_add(base).filter(u8::is_ascii).map(char::from).ok_or(Error::NotUtf8)
        };
        (0..length).map(character).collect()
    }
}
