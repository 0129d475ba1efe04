//! Dates and durations as the runtime API writes them: RFC 1123 dates, seconds, and time spans such as `1.02:03:04`
//! (H-93). Dates in ISO 8601 are taken too.

use broker::time::{DAY, LONGEST_DAYS, SECOND};
use broker::{LocalTime, Span};
use time::{Date, Month, OffsetDateTime, Weekday};

/// What stands for a life without end: the longest time span of the service, in seconds; in days it is [`LONGEST_DAYS`].
pub(super) const FOR_EVER_SECONDS: f64 = 922_337_203_685.477_5;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date such as `Wed, 02 Jul 2014 01:32:27 GMT`.
pub(super) fn http_date(time: LocalTime) -> String {
    // Times of the broker end with the year 9999, as those of the library do.
    let date =
        OffsetDateTime::from_unix_timestamp(time.0.div_euclid(1_000)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let weekday = match date.weekday() {
        Weekday::Monday => "Mon",
        Weekday::Tuesday => "Tue",
        Weekday::Wednesday => "Wed",
        Weekday::Thursday => "Thu",
        Weekday::Friday => "Fri",
        Weekday::Saturday => "Sat",
        Weekday::Sunday => "Sun",
    };
    let month = MONTHS[usize::from(u8::from(date.month())) - 1];
    let (hour, minute, second) = date.to_hms();
    format!("{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT", date.day(), date.year())
}

/// Reads a date: RFC 1123, or ISO 8601 in UTC.
pub(super) fn date(text: &str) -> Option<LocalTime> {
    rfc_date(text.trim()).or_else(|| iso_date(text.trim()))
}

fn rfc_date(text: &str) -> Option<LocalTime> {
    // The day of the week follows from the date; what it says is not compared.
    let (_, text) = text.split_once(',')?;
    let mut words = text.split_ascii_whitespace();
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let clock = words.next()?;
    if words.next()? != "GMT" || words.next().is_some() {
        return None;
    }
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u8 + 1;
    instant(digits(year)?, month, digits(day)?, clock)
}

fn iso_date(text: &str) -> Option<LocalTime> {
    let text = text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix("+00:00"))?;
    let (date, clock) = text.split_once(['T', 't'])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    instant(digits(year)?, digits(month)?, digits(day)?, clock)
}

/// An instant of a calendar that people use, with a clock that says `hh:mm:ss` and perhaps a fraction.
fn instant(year: i32, month: u8, day: u8, clock: &str) -> Option<LocalTime> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let (hour, minute, second) = (digits(parts.next()?)?, digits(parts.next()?)?, digits(parts.next()?)?);
    if parts.next().is_some() {
        return None;
    }
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let seconds = date.with_hms(hour, minute, second).ok()?.assume_utc().unix_timestamp();
    Some(LocalTime(seconds * 1_000 + i64::try_from(thousandths(fraction)?).ok()?))
}

/// A span such as `00:00:40`, `1.02:03:04` or `0.00:00:00.5`.
pub(super) fn time_span(text: &str) -> Option<Span> {
    let mut parts = text.trim().split(':');
    let (first, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (days, hours) = first.split_once('.').unwrap_or(("0", first));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let within = |text: &str, most: u64| digits::<u64>(text).filter(|number| *number <= most);
    let clock = (within(hours, 23)? * 60 + within(minutes, 59)?) * 60 + within(seconds, 59)?;
    let clock = clock * SECOND + thousandths(fraction)?;
    let days = digits::<u64>(days)?;
    Some(if days >= LONGEST_DAYS { Span::MAX } else { Span(days * DAY + clock) })
}

/// The same, of so many ticks of 100 nanoseconds; written.
pub(super) fn time_span_text(ticks: i64) -> String {
    let sign = if ticks < 0 { "-" } else { "" };
    let ticks = ticks.unsigned_abs();
    let (seconds, fraction) = (ticks / 10_000_000, ticks % 10_000_000);
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let days = if days > 0 { format!("{days}.") } else { String::new() };
    let fraction = if fraction > 0 { format!(".{fraction:07}") } else { String::new() };
    format!("{sign}{days}{:02}:{:02}:{:02}{fraction}", clock / 3_600, clock % 3_600 / 60, clock % 60)
}

/// A span of so many seconds.
pub(super) fn seconds(seconds: f64) -> Option<Span> {
    if !(0.0..).contains(&seconds) {
        return None;
    }
    // Saturates: more than fits is for ever.
    let milliseconds = (seconds * 1_000.0).round() as u64;
    Some(if milliseconds >= LONGEST_DAYS * DAY { Span::MAX } else { Span(milliseconds) })
}

fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_digits { text.parse().ok() } else { None }
}

/// Thousandths of a decimal fraction; finer ones are dropped.
fn thousandths(fraction: &str) -> Option<u64> {
    digits::<u128>(fraction)?;
    format!("{fraction:0<3}")[..3].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // H-93
    #[test]
    fn a_date_is_written_as_the_service_writes_it_and_reads_the_same() {
        let time = LocalTime(1_404_264_747_000);
        assert_eq!(http_date(time), "Wed, 02 Jul 2014 01:32:27 GMT");
        assert_eq!(date(&http_date(time)), Some(time));
        assert_eq!(date("2014-07-02T01:32:27.25Z"), Some(LocalTime(time.0 + 250)));
        assert_eq!(http_date(broker::limits::CALENDAR_END), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        let bad = [
            "",
            "now",
            "Wed, 32 Jul 2014 01:32:27 GMT",
            "Wed, 02 Jul 2014 25:32:27 GMT",
            "Wed, 02 Jul 2014 01:32 GMT",
            "Wed, 02 Jul 2014 01:32:27 CET",
            "Wed, 02 Jul 2014 01:32:27",
            "2014-07-02T01:32:27",
            "2014-13-02T01:32:27Z",
            "2014-07-02 01:32:27Z",
            "99999-07-02T01:32:27Z",
        ];
        for bad in bad {
            assert_eq!(date(bad), None, "{bad}");
        }
    }

    // H-93
    #[test]
    fn a_time_to_live_is_seconds_or_a_time_span() {
        assert_eq!(seconds(10.0), Some(Span(10_000)));
        assert_eq!(seconds(0.25), Some(Span(250)));
        assert_eq!(seconds(FOR_EVER_SECONDS), Some(Span::MAX));
        assert_eq!(seconds(f64::INFINITY), Some(Span::MAX));
        assert_eq!((seconds(-1.0), seconds(f64::NAN)), (None, None));
        assert_eq!(time_span("0.00:00:40"), Some(Span(40_000)));
        assert_eq!(time_span("01:00:00.5"), Some(Span(3_600_500)));
        assert_eq!(time_span("2.03:04:05"), Some(Span(((51 * 60 + 4) * 60 + 5) * 1_000)));
        assert_eq!(time_span("10675199.02:48:05.4775807"), Some(Span::MAX));
        for bad in ["", "40", "00:40", "24:00:00", "-1.00:00:00", "00:00:00:00", "aa:00:00", "PT1S"] {
            assert_eq!(time_span(bad), None, "{bad}");
        }
        assert_eq!(time_span_text(-(86_400 + 3_661) * 10_000_000 - 5), "-1.01:01:01.0000005");
        assert_eq!(time_span_text(0), "00:00:00");
    }
}
