//! Values as filters compare them: the types of AMQP folded into the few that SQL knows, and the promotions between them
//! (S-192, S-196, S-198).

use super::expression::{Arithmetic, Comparison};
use super::rule::{Kind, Typed};
use crate::limits::{FILTER_TEXT_BYTES, SQL_CHARACTERS};
use message::Value;
use message::ticks::{self, TICKS_PER_MS};
use std::borrow::Cow;
use std::cmp::Ordering;

/// One value. What is missing, null or of no comparable type is `Unknown`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar<'a> {
    Unknown,
    Truth(bool),
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
    /// Milliseconds since 1970.
    Instant(i64),
    /// Ticks of 100 nanoseconds, as .NET counts.
    Ticks(i64),
    Id([u8; 16]),
}

/// What cannot be computed (S-200).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("division by zero")]
    ByZero,
    #[error("the result of an operation is out of its range")]
    OutOfRange,
    #[error("a text became longer than {FILTER_TEXT_BYTES} bytes")]
    TooLong,
    #[error("a pattern has more than {SQL_CHARACTERS} characters")]
    LongPattern,
    #[error("LIKE compares texts only")]
    LikeOfNoText,
    #[error("what follows ESCAPE is not one character")]
    BadEscape,
    #[error("a value is neither true nor false where one of them is asked for")]
    NoTruth,
    #[error("the name of a property is not a text")]
    NoName,
    #[error("there is no system property '{0}'")]
    NoSystemProperty(Box<str>),
    #[error("the parameter '@{0}' has no value")]
    NoParameter(Box<str>),
    #[error("the message cannot be read")]
    Unreadable,
    #[error("the system property '{0}' cannot be set")]
    NotWritable(Box<str>),
    #[error("a value is not of the type of '{0}', or too long for it")]
    NotOfType(Box<str>),
    #[error("the rules take more work than one message may cost")]
    TooMuchWork,
    #[error("the changed properties are too large")]
    TooLarge,
}

impl Scalar<'static> {
    pub(super) fn text(text: String) -> Scalar<'static> {
        Scalar::Text(Cow::Owned(text))
    }

    /// The value of a parameter or of a condition (S-193). What cannot be read equals nothing.
    pub(super) fn typed(typed: &Typed) -> Scalar<'static> {
        let text = &*typed.text;
        match typed.kind {
            Kind::String => Some(Scalar::text(text.to_owned())),
            Kind::Int | Kind::Long => text.parse().ok().map(Scalar::Integer),
            Kind::Boolean => Some(Scalar::Truth(matches!(text, "true" | "1"))),
            Kind::Double => text.parse().ok().map(Scalar::Real),
            Kind::DateTime => instant(text).map(Scalar::Instant),
            Kind::Duration => ticks(text).map(Scalar::Ticks),
        }
        .unwrap_or(Scalar::Unknown)
    }
}

impl<'a> Scalar<'a> {
    /// A value of a message.
    pub(super) fn of(value: Value) -> Scalar<'a> {
        match value {
            Value::Boolean(truth) => Scalar::Truth(truth),
            Value::Ubyte(number) => Scalar::Integer(number.into()),
            Value::Ushort(number) => Scalar::Integer(number.into()),
            Value::Uint(number) => Scalar::Integer(number.into()),
            Value::Byte(number) => Scalar::Integer(number.into()),
            Value::Short(number) => Scalar::Integer(number.into()),
            Value::Int(number) => Scalar::Integer(number.into()),
            Value::Long(number) => Scalar::Integer(number),
            Value::Ulong(number) => {
                i64::try_from(number).map_or(Scalar::Real(number as f64), Scalar::Integer)
            }
            Value::Float(bits) => Scalar::Real(f32::from_bits(bits).into()),
            Value::Double(bits) => Scalar::Real(f64::from_bits(bits)),
            Value::Char(code) => {
                char::from_u32(code).map_or(Scalar::Unknown, |c| Scalar::Text(c.to_string().into()))
            }
            Value::Timestamp(ms) => Scalar::Instant(ms),
            Value::Uuid(id) => Scalar::Id(id),
            Value::String(text) | Value::Symbol(text) => Scalar::Text(text.into()),
            Value::Described(described) => match *described {
                (Value::Symbol(name), Value::Long(number)) => match &*name {
                    "com.microsoft:timespan" => Scalar::Ticks(number),
                    "com.microsoft:datetime-offset" => Scalar::Instant(ticks::to_ms(number)),
                    _ => Scalar::Unknown,
                },
                (Value::Symbol(name), Value::String(text)) if name == "com.microsoft:uri" => {
                    Scalar::Text(text.into())
                }
                _ => Scalar::Unknown,
            },
            Value::Null
            | Value::Decimal32(_)
            | Value::Decimal64(_)
            | Value::Decimal128(_)
            | Value::Binary(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Array(_) => Scalar::Unknown,
        }
    }

    /// The value as a property of a message: 64 bits for whole numbers (S-192).
    pub(super) fn to_value(&self) -> Value {
        match self {
            Scalar::Unknown => Value::Null,
            Scalar::Truth(truth) => Value::Boolean(*truth),
            Scalar::Integer(number) => Value::Long(*number),
            Scalar::Real(number) => Value::Double(number.to_bits()),
            Scalar::Text(text) => Value::String(text.clone().into_owned()),
            Scalar::Instant(ms) => Value::Timestamp(*ms),
            Scalar::Ticks(ticks) => Value::Described(Box::new((
                Value::Symbol("com.microsoft:timespan".into()),
                Value::Long(*ticks),
            ))),
            Scalar::Id(id) => Value::Uuid(*id),
        }
    }

    /// The value in words, where a text is asked for.
    pub(super) fn to_text(&self) -> Option<String> {
        match self {
            Scalar::Truth(truth) => Some(truth.to_string()),
            Scalar::Integer(number) => Some(number.to_string()),
            Scalar::Real(number) => Some(number.to_string()),
            Scalar::Text(text) => Some(text.clone().into_owned()),
            Scalar::Id(id) => Some(id_text(id)),
            Scalar::Unknown | Scalar::Instant(_) | Scalar::Ticks(_) => None,
        }
    }

    /// Bytes of a text; nothing else takes long to look at.
    pub(super) fn text_bytes(&self) -> usize {
        if let Scalar::Text(text) = self { text.len() } else { 0 }
    }

    pub(super) fn is_unknown(&self) -> bool {
        *self == Scalar::Unknown
    }

    fn real(&self) -> Option<f64> {
        match self {
            Scalar::Integer(number) => Some(*number as f64),
            Scalar::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// How two values are ordered; `None` if they cannot be compared (S-198).
    pub(super) fn order(&self, other: &Scalar<'_>) -> Option<Ordering> {
        match (self, other) {
            (Scalar::Truth(a), Scalar::Truth(b)) => Some(a.cmp(b)),
            (Scalar::Integer(a), Scalar::Integer(b)) => Some(a.cmp(b)),
            (Scalar::Text(a), Scalar::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Scalar::Instant(a), Scalar::Instant(b)) | (Scalar::Ticks(a), Scalar::Ticks(b)) => Some(a.cmp(b)),
            (Scalar::Id(a), Scalar::Id(b)) => Some(a.cmp(b)),
            (a, b) => a.real()?.partial_cmp(&b.real()?),
        }
    }

    /// Unknown if they cannot be compared.
    pub(super) fn compare(&self, comparison: Comparison, other: &Scalar<'_>) -> Option<bool> {
        let order = self.order(other)?;
        Some(match comparison {
            Comparison::Equal => order.is_eq(),
            Comparison::Different => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::AtMost => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::AtLeast => order.is_ge(),
        })
    }

    pub(super) fn negative(&self) -> Result<Scalar<'static>, Wrong> {
        match self {
            Scalar::Integer(number) => number.checked_neg().map(Scalar::Integer).ok_or(Wrong::OutOfRange),
            Scalar::Real(number) => Ok(Scalar::Real(-number)),
            Scalar::Ticks(ticks) => ticks.checked_neg().map(Scalar::Ticks).ok_or(Wrong::OutOfRange),
            _ => Ok(Scalar::Unknown),
        }
    }

    /// Whole numbers stay whole, with a double everything is double, `+` joins texts (S-198). What cannot be combined is
    /// unknown.
    pub(super) fn combine(&self, operator: Arithmetic, other: &Scalar<'_>) -> Result<Scalar<'static>, Wrong> {
        use Arithmetic::{Minus, Plus};
        use Scalar::{Instant, Integer, Text, Ticks};
        let of_ms = |ticks: &i64| ticks / TICKS_PER_MS;
        match (self, operator, other) {
            (Integer(a), operator, Integer(b)) => whole(*a, operator, *b).map(Integer),
            (Text(a), Plus, Text(b)) => match a.len() + b.len() {
                length if length > FILTER_TEXT_BYTES => Err(Wrong::TooLong),
                _ => Ok(Scalar::text(format!("{a}{b}"))),
            },
            (Instant(a), Plus, Ticks(b)) | (Ticks(b), Plus, Instant(a)) => {
                a.checked_add(of_ms(b)).map(Instant).ok_or(Wrong::OutOfRange)
            }
            (Instant(a), Minus, Ticks(b)) => a.checked_sub(of_ms(b)).map(Instant).ok_or(Wrong::OutOfRange),
            (Instant(a), Minus, Instant(b)) => {
                let span = a.checked_sub(*b).and_then(|ms| ms.checked_mul(TICKS_PER_MS));
                span.map(Ticks).ok_or(Wrong::OutOfRange)
            }
            (Ticks(a), Plus | Minus, Ticks(b)) => whole(*a, operator, *b).map(Ticks),
            (a, operator, b) => match (a.real(), b.real()) {
                (Some(a), Some(b)) => Ok(Scalar::Real(broken(a, operator, b))),
                _ => Ok(Scalar::Unknown),
            },
        }
    }
}

fn whole(a: i64, operator: Arithmetic, b: i64) -> Result<i64, Wrong> {
    let divides = matches!(operator, Arithmetic::Divided | Arithmetic::Modulo);
    if divides && b == 0 {
        return Err(Wrong::ByZero);
    }
    let result = match operator {
        Arithmetic::Plus => a.checked_add(b),
        Arithmetic::Minus => a.checked_sub(b),
        Arithmetic::Times => a.checked_mul(b),
        Arithmetic::Divided => a.checked_div(b),
        Arithmetic::Modulo => a.checked_rem(b),
    };
    result.ok_or(Wrong::OutOfRange)
}

fn broken(a: f64, operator: Arithmetic, b: f64) -> f64 {
    match operator {
        Arithmetic::Plus => a + b,
        Arithmetic::Minus => a - b,
        Arithmetic::Times => a * b,
        Arithmetic::Divided => a / b,
        Arithmetic::Modulo => a % b,
    }
}

/// An id as SDKs write it.
pub(super) fn id_text(id: &[u8; 16]) -> String {
    let hex: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(|part| part.concat()).join("-")
}

/// An ISO 8601 date with a time, perhaps a fraction, perhaps a zone; without one it is UTC. Checked when it came in.
fn instant(text: &str) -> Option<i64> {
    let (front, rest) = text.split_at_checked("0000-00-00T00:00:00".len())?;
    let number = |range: std::ops::Range<usize>| front.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let end = rest.rfind(['Z', '+', '-']).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(end);
    let fraction = fraction.strip_prefix('.').unwrap_or("");
    let thousandths = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
    let zone_minutes = match zone {
        "" | "Z" => 0,
        zone => {
            let minutes = zone.get(1..3)?.parse::<i64>().ok()? * 60 + zone.get(4..6)?.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    // Days from 1970 in the calendar that begins its years in March, so that the leap day is the last.
    let (shifted, from_march) = (year - i64::from(month <= 2), (month + 9) % 12);
    let era_days = 365 * shifted + shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    let days = era_days + (153 * from_march + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute - zone_minutes) * 60 + second) * 1_000 + thousandths)
}

/// An ISO 8601 duration in ticks, perhaps negative. Checked when it came in.
fn ticks(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let mut ticks = 0.0;
    let mut number = String::new();
    let mut is_clock = false;
    for letter in text.chars() {
        let seconds = match letter.to_ascii_uppercase() {
            'P' => continue,
            'T' => {
                is_clock = true;
                continue;
            }
            'W' => 604_800.0,
            'D' => 86_400.0,
            'H' => 3_600.0,
            'M' if is_clock => 60.0,
            'S' => 1.0,
            digit => {
                number.push(if digit == ',' { '.' } else { digit });
                continue;
            }
        };
        ticks += number.parse::<f64>().ok()? * seconds * 1e7;
        number.clear();
    }
    number.is_empty().then_some((sign * ticks) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(kind: Kind, text: &str) -> Scalar<'static> {
        Scalar::typed(&Typed { kind, text: text.into() })
    }

    #[test]
    fn typed_values_are_read() {
        // S-193
        assert_eq!(typed(Kind::Int, "-7"), Scalar::Integer(-7));
        assert_eq!(typed(Kind::Boolean, "1"), Scalar::Truth(true));
        assert_eq!(typed(Kind::Double, "1.5e1"), Scalar::Real(15.0));
        assert_eq!(typed(Kind::DateTime, "1970-01-02T00:00:00.5Z"), Scalar::Instant(86_400_500));
        assert_eq!(typed(Kind::DateTime, "2000-03-01T01:30:00+01:30"), Scalar::Instant(951_868_800_000));
        assert_eq!(typed(Kind::DateTime, "2024-02-29T12:00:00"), Scalar::Instant(1_709_208_000_000));
        assert_eq!(typed(Kind::DateTime, "1969-12-31T23:59:59Z"), Scalar::Instant(-1_000));
        assert_eq!(typed(Kind::Duration, "P1DT1M0.5S"), Scalar::Ticks(864_605_000_000));
        assert_eq!(typed(Kind::Duration, "-PT1S"), Scalar::Ticks(-10_000_000));
    }

    #[test]
    fn numbers_of_all_types_compare_and_nothing_else_with_them() {
        // S-198
        let equal = |a: Value, b: Value| Scalar::of(a).compare(Comparison::Equal, &Scalar::of(b));
        assert_eq!(equal(Value::Int(7), Value::Ulong(7)), Some(true));
        assert_eq!(equal(Value::Ubyte(7), Value::Double(7.0f64.to_bits())), Some(true));
        assert_eq!(equal(Value::Long(7), Value::Float(7.5f32.to_bits())), Some(false));
        assert_eq!(equal(Value::Int(7), "7".into()), None);
        assert_eq!(equal(Value::Boolean(true), Value::Int(1)), None);
        assert_eq!(equal("a".into(), "A".into()), Some(false));
        assert_eq!(equal(Value::Null, Value::Null), None);
        let span =
            Value::Described(Box::new((Value::Symbol("com.microsoft:timespan".into()), Value::Long(5))));
        assert_eq!(Scalar::of(span.clone()).to_value(), span);
        assert_eq!(Scalar::of(Value::Ulong(u64::MAX)), Scalar::Real(u64::MAX as f64));
        // Ticks since the year 1: a millisecond and a half after 1970 began.
        let ticks = Value::Long(621_355_968_000_000_000 + 15_000);
        let offset =
            Value::Described(Box::new((Value::Symbol("com.microsoft:datetime-offset".into()), ticks)));
        assert_eq!(Scalar::of(offset), Scalar::Instant(1));
    }

    #[test]
    fn arithmetic_keeps_whole_numbers_whole_and_says_when_it_cannot() {
        // S-198, S-200
        let (two, seven, half) = (Scalar::Integer(2), Scalar::Integer(7), Scalar::Real(0.5));
        assert_eq!(seven.combine(Arithmetic::Divided, &two), Ok(Scalar::Integer(3)));
        assert_eq!(seven.combine(Arithmetic::Plus, &half), Ok(Scalar::Real(7.5)));
        assert_eq!(seven.combine(Arithmetic::Modulo, &Scalar::Integer(0)), Err(Wrong::ByZero));
        assert_eq!(Scalar::Integer(i64::MAX).combine(Arithmetic::Plus, &two), Err(Wrong::OutOfRange));
        let text = |text: &str| Scalar::text(text.to_owned());
        assert_eq!(text("a").combine(Arithmetic::Plus, &text("b")), Ok(text("ab")));
        assert_eq!(text("a").combine(Arithmetic::Plus, &two), Ok(Scalar::Unknown));
        let long = text(&"x".repeat(FILTER_TEXT_BYTES));
        assert_eq!(long.combine(Arithmetic::Plus, &text("x")), Err(Wrong::TooLong));
        let day = Scalar::Ticks(864_000_000_000);
        assert_eq!(Scalar::Instant(5).combine(Arithmetic::Plus, &day), Ok(Scalar::Instant(86_400_005)));
        assert_eq!(Scalar::Instant(86_400_000).combine(Arithmetic::Minus, &Scalar::Instant(0)), Ok(day));
    }
}
