//! Dates and times: ISO 8601 in UTC with seven fractional digits, ticks of 100 ns since year 1, timestamps in ms since 1970.

use super::Function as F;
use super::Function;
use crate::query::value::Val;

const TICKS_PER_MS: i64 = 10_000;
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
/// Ticks of 1970-01-01.
const EPOCH_TICKS: i64 = 621_355_968_000_000_000;
/// Ticks of the year 10000: nothing is written that late.
const END_TICKS: i64 = 3_155_378_976_000_000_000;

pub fn call<'a>(function: Function, arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let ticks_of = |at: usize| arguments.get(at).and_then(Val::as_text).and_then(parse);
    let result = match function {
        F::DateTimeAdd => add(arguments).map(written),
        F::DateTimeBin => bin(arguments).map(written),
        F::DateTimeDiff => difference(arguments).map(Val::integer),
        F::DateTimeFromParts => from_parts(arguments).map(written),
        F::DateTimePart => part(arguments).map(Val::integer),
        F::DateTimeToTicks => ticks_of(0).map(Val::integer),
        F::DateTimeToTimestamp => {
            ticks_of(0).map(|ticks| Val::integer((ticks - EPOCH_TICKS).div_euclid(TICKS_PER_MS)))
        }
        F::TicksToDateTime => {
            arguments[0].as_integer().filter(|ticks| (0..END_TICKS).contains(ticks)).map(written)
        }
        F::TimestampToDateTime => arguments[0]
            .as_integer()
            .and_then(|ms| ms.checked_mul(TICKS_PER_MS)?.checked_add(EPOCH_TICKS))
            .filter(|ticks| (0..END_TICKS).contains(ticks))
            .map(written),
        _ => return None,
    };
    Some(result.unwrap_or(Val::Undefined))
}

fn written<'a>(ticks: i64) -> Val<'a> {
    Val::text(format(ticks))
}

pub fn ticks_of_ms(ms: i64) -> i64 {
    ms.saturating_mul(TICKS_PER_MS).saturating_add(EPOCH_TICKS)
}

/// `2020-07-03T00:00:00.0000000Z`.
pub fn format(ticks: i64) -> String {
    let (day, time) = (ticks.div_euclid(TICKS_PER_DAY), ticks.rem_euclid(TICKS_PER_DAY));
    let (year, month, day) = date_of(day);
    let seconds = time / TICKS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = time % TICKS_PER_SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
}

/// Reads a date and time; the time, its fraction and the `Z` may be missing.
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, digits: usize| -> Option<i64> {
        let digits = bytes.get(from..from + digits)?;
        digits.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    let sign = |at: usize, wanted: u8| (bytes.get(at) == Some(&wanted)).then_some(());
    sign(4, b'-')?;
    sign(7, b'-')?;
    let date = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    if bytes.len() == 10 {
        return ticks(date, (0, 0, 0), 0);
    }
    sign(10, b'T')?;
    sign(13, b':')?;
    sign(16, b':')?;
    let time = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let rest = text.get(19..)?;
    let rest = rest.strip_suffix('Z').unwrap_or(rest);
    let fraction = match rest.strip_prefix('.') {
        Some(digits)
            if (1..=7).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            digits.parse::<i64>().ok()? * 10_i64.pow(7 - digits.len() as u32)
        }
        None if rest.is_empty() => 0,
        _ => return None,
    };
    ticks(date, time, fraction)
}

fn ticks(date: (i64, i64, i64), time: (i64, i64, i64), fraction: i64) -> Option<i64> {
    let (year, month, day) = date;
    let (hour, minute, second) = time;
    let is_valid = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second)
        && (0..TICKS_PER_SECOND).contains(&fraction);
    is_valid.then(|| {
        days_before(year, month, day) * TICKS_PER_DAY
            + (hour * 3_600 + minute * 60 + second) * TICKS_PER_SECOND
            + fraction
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 0001-01-01. Years are counted from March, so that the leap day is the last one.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 0000-03-01 is 306 days before 0001-01-01.
    era * 146_097 + day_of_era - 306
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 306;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Year,
    Month,
    /// Of fixed length, in ticks; below a tick it is negative: so many of them make a tick.
    Ticks(i64),
    Nanosecond,
}

/// The unit of a date part's name.
fn unit(value: &Val<'_>) -> Option<Unit> {
    Some(match value.as_text()?.to_ascii_lowercase().as_str() {
        "year" | "yyyy" | "yy" => Unit::Year,
        "month" | "mm" | "m" => Unit::Month,
        "day" | "dd" | "d" => Unit::Ticks(TICKS_PER_DAY),
        "hour" | "hh" => Unit::Ticks(3_600 * TICKS_PER_SECOND),
        "minute" | "mi" | "n" => Unit::Ticks(60 * TICKS_PER_SECOND),
        "second" | "ss" | "s" => Unit::Ticks(TICKS_PER_SECOND),
        "millisecond" | "ms" => Unit::Ticks(TICKS_PER_MS),
        "microsecond" | "mcs" => Unit::Ticks(10),
        "nanosecond" | "ns" => Unit::Nanosecond,
        _ => return None,
    })
}

fn add(arguments: &[Val<'_>]) -> Option<i64> {
    let (unit, count) = (unit(&arguments[0])?, arguments[1].as_integer()?);
    let at = parse(arguments[2].as_text()?)?;
    let moved = match unit {
        Unit::Ticks(length) => at.checked_add(count.checked_mul(length)?)?,
        Unit::Nanosecond => at.checked_add(count.div_euclid(100))?,
        Unit::Year => add_months(at, count.checked_mul(12)?)?,
        Unit::Month => add_months(at, count)?,
    };
    (0..END_TICKS).contains(&moved).then_some(moved)
}

/// A day that the month lacks becomes its last one.
fn add_months(at: i64, months: i64) -> Option<i64> {
    let (year, month, day) = date_of(at.div_euclid(TICKS_PER_DAY));
    let all = (year * 12 + month - 1).checked_add(months)?;
    let (year, month) = (all.div_euclid(12), all.rem_euclid(12) + 1);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let day = day.min(days_in(year, month));
    Some(days_before(year, month, day) * TICKS_PER_DAY + at.rem_euclid(TICKS_PER_DAY))
}

/// Down to a multiple of the bin, counted from 1970 or another origin.
fn bin(arguments: &[Val<'_>]) -> Option<i64> {
    let at = parse(arguments[0].as_text()?)?;
    let unit = unit(&arguments[1])?;
    let size = match arguments.get(2) {
        Some(size) => size.as_integer().filter(|size| *size > 0)?,
        None => 1,
    };
    let origin = match arguments.get(3) {
        Some(origin) => parse(origin.as_text()?)?,
        None => EPOCH_TICKS,
    };
    let length = match unit {
        Unit::Ticks(length) => length.checked_mul(size)?,
        Unit::Nanosecond => (size / 100).max(1),
        Unit::Year | Unit::Month => {
            let month_of = |ticks: i64| {
                let (year, month, _) = date_of(ticks.div_euclid(TICKS_PER_DAY));
                year * 12 + month - 1
            };
            let size = if unit == Unit::Year { size.checked_mul(12)? } else { size };
            let months = (month_of(at) - month_of(origin)).div_euclid(size).checked_mul(size)?;
            return add_months(origin, months).filter(|ticks| *ticks >= 0);
        }
    };
    let binned = origin.checked_add((at - origin).div_euclid(length).checked_mul(length)?)?;
    (binned >= 0).then_some(binned)
}

/// How many boundaries of the unit are between.
fn difference(arguments: &[Val<'_>]) -> Option<i64> {
    let unit = unit(&arguments[0])?;
    let (from, to) = (parse(arguments[1].as_text()?)?, parse(arguments[2].as_text()?)?);
    let place = |ticks: i64| match unit {
        Unit::Ticks(length) => Some(ticks.div_euclid(length)),
        Unit::Nanosecond => ticks.checked_mul(100),
        Unit::Year => Some(date_of(ticks.div_euclid(TICKS_PER_DAY)).0),
        Unit::Month => {
            let (year, month, _) = date_of(ticks.div_euclid(TICKS_PER_DAY));
            Some(year * 12 + month)
        }
    };
    match unit {
        Unit::Nanosecond => (to - from).checked_mul(100),
        _ => Some(place(to)? - place(from)?),
    }
}

fn from_parts(arguments: &[Val<'_>]) -> Option<i64> {
    let part = |at: usize| match arguments.get(at) {
        Some(value) => value.as_integer(),
        None => Some(0),
    };
    ticks((part(0)?, part(1)?, part(2)?), (part(3)?, part(4)?, part(5)?), part(6)?)
}

fn part(arguments: &[Val<'_>]) -> Option<i64> {
    let unit = unit(&arguments[0])?;
    let at = parse(arguments[1].as_text()?)?;
    let (year, month, day) = date_of(at.div_euclid(TICKS_PER_DAY));
    let seconds = at.rem_euclid(TICKS_PER_DAY) / TICKS_PER_SECOND;
    let fraction = at.rem_euclid(TICKS_PER_SECOND);
    Some(match unit {
        Unit::Year => year,
        Unit::Month => month,
        Unit::Ticks(TICKS_PER_DAY) => day,
        Unit::Ticks(length) if length == 3_600 * TICKS_PER_SECOND => seconds / 3_600,
        Unit::Ticks(length) if length == 60 * TICKS_PER_SECOND => seconds / 60 % 60,
        Unit::Ticks(TICKS_PER_SECOND) => seconds % 60,
        Unit::Ticks(TICKS_PER_MS) => fraction / TICKS_PER_MS,
        Unit::Ticks(_) => fraction / 10,
        Unit::Nanosecond => fraction * 100,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_reads_back() {
        let days = END_TICKS / TICKS_PER_DAY;
        for day in (0..days).step_by(13).chain([days - 1]) {
            let at = day * TICKS_PER_DAY + 12_345;
            assert_eq!(parse(&format(at)), Some(at), "{}", format(at));
        }
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(EPOCH_TICKS));
        assert_eq!(parse("0001-01-01"), Some(0));
        for text in [
            "2021-02-29",
            "2021-13-01",
            "2021-1-1",
            "2021-01-01T25:00:00Z",
            "2021-01-01T00:00:00.Z",
            "x",
            "2021-01-01x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
