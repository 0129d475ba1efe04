//! The `authorization` header: `type=master&ver=1.0&sig=...`, percent-encoded (P-14, P-15, P-19).

use super::address::Address;
use super::keys::{Access, Keys};
use super::percent;
use crate::auth::UnixSeconds;
use crate::limits::TOKEN_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

/// How a request proves that its sender has a key.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// As HTTP writes it, in capitals.
    pub method: &'a str,
    pub address: &'a Address<'a>,
    pub authorization: Option<&'a str>,
    /// `x-ms-date`.
    pub date: Option<&'a str>,
    /// `date`, which counts where the other is missing.
    pub plain_date: Option<&'a str>,
}

/// Why a claim was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// 401: no header.
    Missing,
    /// 401: a header that cannot be read.
    Malformed(&'static str),
    /// 401: neither date.
    NoDate,
    /// 401: no key of the account made this signature of `payload`.
    WrongKey { payload: String },
    /// 403: made too long ago, or for later; seconds since 1970.
    NotNow { date: i64, now: i64, window: Duration },
    /// 403: a read-only key, and a request that writes.
    ReadOnly,
}

/// Verifies a claim.
pub fn verify(
    claim: &Claim<'_>,
    keys: &Keys,
    peer_is_here: bool,
    now: UnixSeconds,
    window: Duration,
) -> Result<Access, Denied> {
    let authorization = claim.authorization.ok_or(Denied::Missing)?;
    let signature = signature(authorization)?;
    let date = claim.date.or(claim.plain_date).ok_or(Denied::NoDate)?;
    let seconds = http_date(date).ok_or(Denied::Malformed("its date is not of the form of RFC 1123"))?;
    let (kind, link) = claim.address.signed();
    let (method, date) = (claim.method.to_ascii_lowercase(), date.to_ascii_lowercase());
    // The lower one of the two lines for dates is for the plain one, and used only without the other.
    let dates = if claim.date.is_some() { [&date, "\n", "", "\n"] } else { ["", "\n", &date, "\n"] };
    let by_name = payload(&method, &kind, link, dates);
    let is_signed = |payload: &[&str; 10]| keys.access(&payload.map(str::as_bytes), &signature, peer_is_here);
    let access = is_signed(&by_name).or_else(|| {
        let rid = claim.address.signed_by_rid()?;
        is_signed(&payload(&method, &kind, &rid, dates))
    });
    let access = access.ok_or_else(|| Denied::WrongKey { payload: by_name.concat() })?;
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    if seconds.abs_diff(now) > window.as_secs() {
        return Err(Denied::NotNow { date: seconds, now, window });
    }
    Ok(access)
}

/// What is signed, in pieces: it is hashed, and put together only to be told.
fn payload<'t>(method: &'t str, kind: &'t str, link: &'t str, dates: [&'t str; 4]) -> [&'t str; 10] {
    let [first, second, third, fourth] = dates;
    [method, "\n", kind, "\n", link, "\n", first, second, third, fourth]
}

/// The bytes of the signature in the header.
fn signature(authorization: &str) -> Result<Vec<u8>, Denied> {
    if authorization.len() > TOKEN_BYTES {
        return Err(Denied::Malformed("it is too long"));
    }
    let decoded = percent::decoded(authorization);
    let decoded = std::str::from_utf8(&decoded).map_err(|_| Denied::Malformed("it is not UTF-8"))?;
    let (mut kind, mut version, mut signature) = (None, None, None);
    // The signature has equals signs of its own.
    for (name, value) in decoded.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "type" => kind = Some(value),
            "ver" => version = Some(value),
            "sig" => signature = Some(value),
            _ => {}
        }
    }
    match (kind, version, signature) {
        (Some("master"), Some("1.0"), Some(signature)) => {
            STANDARD.decode(signature).map_err(|_| Denied::Malformed("its signature is not base64"))
        }
        (Some("aad" | "resource" | "sas"), ..) => {
            Err(Denied::Malformed("only signatures of type master are available in this version"))
        }
        _ => Err(Denied::Malformed("it is not of the form type=master&ver=1.0&sig=...")),
    }
}

const DAY: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Seconds since 1970 of a date as HTTP writes it: `Thu, 27 Apr 2017 00:51:12 GMT`, in any case. The name of the day is not
/// looked at.
pub fn http_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let well_placed = bytes.len() == 29
        && [(3, b','), (4, b' '), (7, b' '), (11, b' '), (16, b' '), (19, b':'), (22, b':'), (25, b' ')]
            .iter()
            .all(|(at, expected)| bytes[*at] == *expected)
        && bytes[26..].eq_ignore_ascii_case(b"gmt");
    if !well_placed {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = bytes.get(range)?;
        digits
            .iter()
            .try_fold(0i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let month = bytes.get(8..11)?;
    let month = MONTHS.iter().position(|name| month.eq_ignore_ascii_case(name.as_bytes()))?;
    let (day, year) = (number(5..7)?, number(12..16)?);
    let (hour, minute, second) = (number(17..19)?, number(20..22)?, number(23..25)?);
    let is_sound = (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    is_sound.then(|| days_before(year, month as i64 + 1, day) * DAY + hour * 3_600 + minute * 60 + second)
}

/// The date of these seconds since 1970 as HTTP writes it.
pub fn http_date_text(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    // The inverse of `days_before`: years begin in March, so that the odd day is the last one.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut name = MONTHS[(month - 1) as usize].to_owned();
    name[..1].make_ascii_uppercase();
    let weekday = WEEK[days.rem_euclid(7) as usize];
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {name} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Days from 1970 to this one.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
