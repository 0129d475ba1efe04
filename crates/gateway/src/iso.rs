//! Durations and dates as the bus writes them (H-28, H-29): `PT1M`, `2026-01-31T12:00:00.0000000Z`.

use broker::Span;
use broker::time::{DAY, HOUR, LONGEST_DAYS, MINUTE, SECOND};
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of this machine, in milliseconds since 1970. No namespace goes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallTime(pub i64);

impl WallTime {
    pub fn now() -> WallTime {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Reads an ISO 8601 duration. Weeks, days, hours, minutes and seconds, the last with a fraction; no years and no months,
/// whose length depends on when they begin. Anything below a millisecond is dropped.
pub fn duration(text: &str) -> Option<Span> {
    let rest = text.trim().strip_prefix(['P', 'p'])?;
    let (days, clock) = match rest.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((days, clock)) => (days, clock),
        None => (rest, ""),
    };
    if days.is_empty() && clock.is_empty() {
        return None;
    }
    let days = sum(days, &[('W', 7 * DAY), ('D', DAY)])?;
    let clock = sum(clock, &[('H', HOUR), ('M', MINUTE), ('S', SECOND)])?;
    let total = days.saturating_add(clock);
    // Clients read the longest duration, round it and send it back a little shorter.
    Some(if total >= LONGEST_DAYS * DAY { Span::MAX } else { Span(total) })
}

/// Adds up numbers with their units, which must come in the given order, each once at most.
fn sum(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut total: u64 = 0;
    let mut units = units.iter();
    while !text.is_empty() {
        let end = text.find(|letter: char| letter.is_ascii_alphabetic())?;
        let unit = text[end..].chars().next()?.to_ascii_uppercase();
        let (_, unit_milliseconds) = units.find(|(letter, _)| *letter == unit)?;
        total = total.saturating_add(milliseconds(&text[..end], *unit_milliseconds)?);
        text = &text[end + 1..];
    }
    Some(total)
}

/// A decimal number of units in milliseconds.
fn milliseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    // A number with more digits than fit is longer than for ever, not malformed.
    let whole = whole.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(unit);
    let mut part = 0;
    let mut place = unit;
    for digit in fraction.bytes() {
        part += place * u64::from(digit - b'0') / 10;
        place /= 10;
    }
    Some(whole.saturating_add(part))
}

/// Writes a duration with days, hours, minutes and seconds only.
pub fn duration_text(span: Span) -> String {
    span.to_string()
}

/// A date with seven digits of a second, as in descriptions. Like all of these it is given as milliseconds since 1970,
/// in whichever time.
pub fn date(milliseconds: i64) -> String {
    let thousandths = milliseconds.rem_euclid(1_000);
    format!("{}.{thousandths:03}0000Z", date_and_time(milliseconds))
}

/// A date in milliseconds, as every language reads it.
pub fn date_in_milliseconds(milliseconds: i64) -> String {
    format!("{}.{:03}Z", date_and_time(milliseconds), milliseconds.rem_euclid(1_000))
}

/// A date in whole seconds, as in envelopes.
pub fn date_in_seconds(milliseconds: i64) -> String {
    format!("{}Z", date_and_time(milliseconds))
}

/// What stands for an instant that never was.
pub const NO_DATE: &str = "0001-01-01T00:00:00Z";

/// Whether a text is a date with a time, with or without a fraction and a zone.
pub fn is_date(text: &str) -> bool {
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                _ => byte == wanted,
            })
    };
    let Some((front, rest)) = text.split_at_checked("0000-00-00T00:00:00".len()) else { return false };
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("0", rest),
    };
    let in_range = |range: std::ops::Range<usize>, most: u32| {
        front.get(range).and_then(|part| part.parse::<u32>().ok()).is_some_and(|part| part <= most)
    };
    shape(front, "0000-00-00T00:00:00")
        && in_range(5..7, 12)
        && in_range(8..10, 31)
        && in_range(11..13, 24)
        && in_range(14..16, 59)
        && in_range(17..19, 60)
        && !fraction.is_empty()
        && (zone.is_empty() || zone == "Z" || shape(zone, "+00:00") || shape(zone, "-00:00"))
}

fn date_and_time(milliseconds: i64) -> String {
    let seconds = milliseconds.div_euclid(1_000);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3_600,
        second % 3_600 / 60,
        second % 60
    )
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year and months have a regular pattern.
fn civil(days_since_1970: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468; // from 0000-03-01
    const DAYS_IN_400_YEARS: i64 = 146_097;
    let days = days_since_1970 + DAYS_TO_1970;
    let era = days.div_euclid(DAYS_IN_400_YEARS);
    let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: &str = "P10675199DT2H48M5.4775807S";

    // H-28
    #[test]
    fn durations_are_read_as_clients_write_them() {
        for (text, milliseconds) in [
            ("PT1M", 60_000),
            ("PT60S", 60_000),
            ("pt5s", 5_000),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("P1DT2H3M4.5S", 93_784_500),
            ("PT0.25S", 250),
            ("PT0,25S", 250),
            ("PT1.5H", 5_400_000),
            ("PT0S", 0),
            ("PT0.0000001S", 0),
        ] {
            assert_eq!(duration(text), Some(Span(milliseconds)), "{text}");
        }
    }

    // H-28
    #[test]
    fn what_is_nearly_the_longest_duration_is_for_ever() {
        for text in [
            LONGEST,
            "P10675199DT2H48M5.477S",
            "P10675199DT2H48M5.477539S",
            "P10675199D",
            "P99999999999999999999999D",
        ] {
            assert_eq!(duration(text), Some(Span::MAX), "{text}");
        }
        assert_eq!(duration("P10675198D"), Some(Span(10_675_198 * DAY)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "P", "PT", "1M", "P1Y", "P1M", "PT1", "PTS", "PT1S1M", "PT1M1M", "P-1D", "PT.5S", "PT1.S5",
            "P1DT", "PT1ä",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_written_duration_reads_the_same() {
        for (milliseconds, text) in [
            (0, "PT0S"),
            (60_000, "PT1M"),
            (300_000, "PT5M"),
            (86_400_000, "P1D"),
            (93_784_500, "P1DT2H3M4.5S"),
            (250, "PT0.25S"),
            (1_010, "PT1.01S"),
        ] {
            assert_eq!(duration_text(Span(milliseconds)), text);
            assert_eq!(duration(text), Some(Span(milliseconds)));
        }
        assert_eq!(duration_text(Span::MAX), LONGEST);
    }

    #[test]
    fn a_date_is_told_from_what_is_none() {
        for date in ["2020-07-05T11:12:13Z", "2020-07-05T11:12:13", "2020-07-05T11:12:13.1234567+02:00"] {
            assert!(is_date(date), "{date}");
        }
        for other in
            ["", "2020-07-05", "2020-13-05T11:12:13Z", "2020-07-05T11:12:13.Z", "2020-07-05T11:12:13x"]
        {
            assert!(!is_date(other), "{other}");
        }
    }

    // H-29
    #[test]
    fn dates_are_written_with_the_digits_clients_expect() {
        assert_eq!(date(0), "1970-01-01T00:00:00.0000000Z");
        assert_eq!(date(1_709_210_096_789), "2024-02-29T12:34:56.7890000Z");
        assert_eq!(date_in_milliseconds(1_709_210_096_009), "2024-02-29T12:34:56.009Z");
        assert_eq!(date_in_seconds(1_709_210_096_789), "2024-02-29T12:34:56Z");
        assert_eq!(date_in_seconds(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(date_in_seconds(4_107_542_399_000), "2100-02-28T23:59:59Z");
        assert_eq!(date_in_seconds(-1), "1969-12-31T23:59:59Z");
    }
}
