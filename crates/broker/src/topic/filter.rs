//! Filters made ready: parsed once, and known by the first property that they ask for, so that a message is held against
//! the few rules that may want it (S-185, S-201).

use super::eval::selects;
use super::expression::{Comparison, Expression, Property, System};
use super::rule::{Correlation, Filter};
use super::scalar::{Scalar, Wrong};
use super::sql;
use super::subject::Subject;
use message::system::SystemProperty;

#[derive(Debug)]
pub(super) enum ReadyFilter {
    Always,
    Never,
    Sql(Expression),
    /// All of these must be equal.
    Correlation(Vec<(Property, Scalar<'static>)>),
}

/// What a filter asks for first, if that is a property to be equal to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct First {
    pub(super) property: Wanted,
    pub(super) key: Key,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// By its name in lower case.
    User(Box<str>),
    System(SystemProperty),
}

/// A value that is found by being equal. Numbers are so only where an integer and a double cannot be mistaken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Text(Box<str>),
    Number(i64),
    Truth(bool),
}

/// Up to here every integer is a double too.
const EXACT: i64 = 1 << 53;

impl Key {
    pub(super) fn of(scalar: &Scalar<'_>) -> Option<Key> {
        match scalar {
            Scalar::Text(text) => Some(Key::Text((**text).into())),
            Scalar::Integer(number) => Some(Key::Number(*number)),
            Scalar::Real(number) => {
                let whole = *number as i64;
                (whole as f64 == *number && whole.unsigned_abs() <= EXACT as u64)
                    .then_some(Key::Number(whole))
            }
            Scalar::Truth(truth) => Some(Key::Truth(*truth)),
            Scalar::Unknown | Scalar::Instant(_) | Scalar::Ticks(_) | Scalar::Id(_) => None,
        }
    }

    fn is_exact(&self) -> bool {
        !matches!(self, Key::Number(number) if number.unsigned_abs() > EXACT as u64)
    }
}

impl ReadyFilter {
    /// A rule was checked when it was made; one that cannot be read all the same selects nothing.
    pub(super) fn of(filter: &Filter) -> ReadyFilter {
        match filter {
            Filter::True => ReadyFilter::Always,
            Filter::False => ReadyFilter::Never,
            Filter::Sql(sql) => sql::filter(sql).map_or(ReadyFilter::Never, ReadyFilter::Sql),
            Filter::Correlation(correlation) => ReadyFilter::Correlation(conditions(correlation)),
        }
    }

    pub(super) fn selects(&self, subject: &Subject<'_>) -> Result<bool, Wrong> {
        match self {
            ReadyFilter::Always => Ok(true),
            ReadyFilter::Never => Ok(false),
            ReadyFilter::Sql(expression) => selects(expression, subject),
            ReadyFilter::Correlation(conditions) => {
                for (property, wanted) in conditions {
                    let found = match property {
                        Property::User(name) => subject.user(name)?.unwrap_or(Scalar::Unknown),
                        Property::System(system) => subject.system(system)?,
                    };
                    subject.steps.spend(1)?;
                    subject.steps.spend_text(found.text_bytes().min(wanted.text_bytes()))?;
                    if found.compare(Comparison::Equal, wanted) != Some(true) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// A message that has another value there is not selected, and nothing else of the filter is asked.
    pub(super) fn first(&self) -> Option<First> {
        match self {
            ReadyFilter::Always | ReadyFilter::Never => None,
            ReadyFilter::Correlation(conditions) => {
                conditions.iter().find_map(|(property, wanted)| first(property, wanted))
            }
            ReadyFilter::Sql(Expression::And(chain)) => chain.first().and_then(first_of),
            ReadyFilter::Sql(expression) => first_of(expression),
        }
    }
}

fn first_of(condition: &Expression) -> Option<First> {
    let Expression::Comparison(Comparison::Equal, sides) = condition else { return None };
    match &**sides {
        [Expression::Property(property), Expression::Constant(constant)]
        | [Expression::Constant(constant), Expression::Property(property)] => first(property, constant),
        _ => None,
    }
}

fn first(property: &Property, wanted: &Scalar<'_>) -> Option<First> {
    let key = Key::of(wanted).filter(Key::is_exact)?;
    let property = match property {
        Property::User(name) => Wanted::User(name.to_lowercase().into()),
        Property::System(System::Carried(property)) => Wanted::System(*property),
        Property::System(_) => return None,
    };
    Some(First { property, key })
}

fn conditions(correlation: &Correlation) -> Vec<(Property, Scalar<'static>)> {
    const SYSTEM: [SystemProperty; 8] = [
        SystemProperty::CorrelationId,
        SystemProperty::MessageId,
        SystemProperty::To,
        SystemProperty::ReplyTo,
        SystemProperty::Label,
        SystemProperty::SessionId,
        SystemProperty::ReplyToSessionId,
        SystemProperty::ContentType,
    ];
    let system = SYSTEM.into_iter().zip(correlation.system()).filter_map(|(property, wanted)| {
        let wanted = Scalar::text(wanted.as_deref()?.to_owned());
        Some((Property::System(System::Carried(property)), wanted))
    });
    let user = correlation.properties.iter();
    let user = user.map(|(name, wanted)| (Property::User(name.clone()), Scalar::typed(wanted)));
    system.chain(user).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Kind, Sql, Typed};
    use super::super::subject::Front;
    use super::super::subject::tests::{about, encoded};
    use super::*;
    use message::Value;
    use std::rc::Rc;

    fn selected(correlation: Correlation) -> bool {
        let bytes = encoded(
            &[("MessageId", "m"), ("Label", "news"), ("ContentType", "text/plain")],
            &[
                ("color", "blue".into()),
                ("n", Value::Long(7)),
                ("is.event", Value::Boolean(true)),
                ("at", Value::Timestamp(1_000)),
            ],
        );
        let front = Front::of(&bytes).unwrap();
        let subject = Subject::new(&front, None, about(), &Rc::default()).unwrap();
        ReadyFilter::of(&Filter::Correlation(correlation)).selects(&subject).unwrap()
    }

    fn typed(name: &str, kind: Kind, text: &str) -> (Box<str>, Typed) {
        (name.into(), Typed { kind, text: text.into() })
    }

    #[test]
    fn all_conditions_of_a_correlation_must_hold() {
        // S-185, S-202
        let with = |properties| Correlation { properties, ..Correlation::default() };
        let label = |label: &str| Correlation { label: Some(label.into()), ..Correlation::default() };
        assert!(selected(label("news")) && !selected(label("News")) && !selected(label("")));
        let system = Correlation {
            message_id: Some("m".into()),
            content_type: Some("text/plain".into()),
            ..label("news")
        };
        assert!(selected(system.clone()));
        assert!(!selected(Correlation { to: Some("x".into()), ..system }));
        for (properties, expected) in [
            (vec![typed("color", Kind::String, "blue")], true),
            (vec![typed("n", Kind::Int, "7"), typed("is.event", Kind::Boolean, "true")], true),
            (vec![typed("n", Kind::Long, "7"), typed("color", Kind::String, "red")], false),
            (vec![typed("n", Kind::Double, "7")], true),
            (vec![typed("n", Kind::String, "7")], false),
            (vec![typed("at", Kind::DateTime, "1970-01-01T00:00:01Z")], true),
            (vec![typed("missing", Kind::String, "")], false),
        ] {
            assert_eq!(selected(with(properties.clone())), expected, "{properties:?}");
        }
    }

    #[test]
    fn doubles_beyond_what_is_exact_are_not_found_by_their_value() {
        for number in [i64::MIN as f64, i64::MAX as f64, f64::NAN, f64::INFINITY, 0.5, 2e16] {
            assert_eq!(Key::of(&Scalar::Real(number)), None, "{number}");
        }
        assert_eq!(Key::of(&Scalar::Real(-7.0)), Some(Key::Number(-7)));
    }

    #[test]
    fn a_filter_is_known_by_what_it_asks_for_first() {
        let first = |text: &str| {
            let sql = Sql { expression: text.into(), parameters: Vec::new() };
            ReadyFilter::of(&Filter::Sql(sql)).first().map(|first| (first.property, first.key))
        };
        let user = |name: &str, key| Some((Wanted::User(name.into()), key));
        assert_eq!(first("Color = 'blue'"), user("color", Key::Text("blue".into())));
        assert_eq!(first("7 = n AND x LIKE 'y'"), user("n", Key::Number(7)));
        assert_eq!(first("n = 7.0"), user("n", Key::Number(7)));
        assert_eq!(
            first("sys.Label = 'x' AND a = 1"),
            Some((Wanted::System(SystemProperty::Label), Key::Text("x".into())))
        );
        for text in [
            "a = 1 OR b = 2",
            "a <> 1",
            "a = b",
            "a LIKE 'x' AND b = 1",
            "a = 9007199254740993",
            "sys.Size = 1",
        ] {
            assert_eq!(first(text), None, "{text}");
        }
    }
}
