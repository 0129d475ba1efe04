//! Evaluating: an expression and a message give a value, a truth, or an error (S-195 to S-200). What is unknown stays
//! unknown until something decides without it.

use super::expression::{Comparison, Expression, Like, Property};
use super::like::Pattern;
use super::scalar::{Scalar, Wrong};
use super::subject::Subject;
use crate::limits::SQL_CHARACTERS;

/// Whether a filter selects a message: only if it is true (S-197). Of conditions that must all hold, nothing is asked
/// behind the first that does not.
pub(super) fn selects(filter: &Expression, subject: &Subject<'_>) -> Result<bool, Wrong> {
    let conditions = match filter {
        Expression::And(conditions) => &conditions[..],
        other => std::slice::from_ref(other),
    };
    for condition in conditions {
        if truth(condition, subject)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `None` is unknown.
fn truth(expression: &Expression, subject: &Subject<'_>) -> Result<Option<bool>, Wrong> {
    subject.steps.spend(1)?;
    match expression {
        Expression::Comparison(comparison, sides) => {
            let [left, right] = &**sides;
            compared(*comparison, &value(left, subject)?, &value(right, subject)?, subject)
        }
        Expression::Not(inner) => Ok(truth(inner, subject)?.map(|truth| !truth)),
        Expression::And(chain) => decided_by(false, chain, subject),
        Expression::Or(chain) => decided_by(true, chain, subject),
        Expression::IsNull(inner) => Ok(Some(value(inner, subject)?.is_unknown())),
        Expression::Exists(Property::User(name)) => Ok(Some(subject.user(name)?.is_some())),
        Expression::Exists(Property::System(system)) => Ok(Some(!subject.system(system)?.is_unknown())),
        Expression::In(left, list) => is_in(&value(left, subject)?, list, subject),
        Expression::Like(like) => is_like(like, subject),
        other => match value(other, subject)? {
            Scalar::Truth(truth) => Ok(Some(truth)),
            Scalar::Unknown => Ok(None),
            _ => Err(Wrong::NoTruth),
        },
    }
}

fn compared(
    comparison: Comparison,
    left: &Scalar<'_>,
    right: &Scalar<'_>,
    subject: &Subject<'_>,
) -> Result<Option<bool>, Wrong> {
    subject.steps.spend_text(left.text_bytes().min(right.text_bytes()))?;
    Ok(left.compare(comparison, right))
}

/// A chain in which one `decisive` truth decides; without one the unknown does.
fn decided_by(decisive: bool, chain: &[Expression], subject: &Subject<'_>) -> Result<Option<bool>, Wrong> {
    let mut result = Some(!decisive);
    for part in chain {
        match truth(part, subject)? {
            Some(truth) if truth == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

/// S-196: unknown on the left is unknown; on the right it is only not equal.
fn is_in(left: &Scalar<'_>, list: &[Expression], subject: &Subject<'_>) -> Result<Option<bool>, Wrong> {
    if left.is_unknown() {
        return Ok(None);
    }
    for element in list {
        if compared(Comparison::Equal, left, &value(element, subject)?, subject)? == Some(true) {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

/// S-194, S-196, S-200.
fn is_like(like: &Like, subject: &Subject<'_>) -> Result<Option<bool>, Wrong> {
    let (left, pattern) = (value(&like.value, subject)?, value(&like.pattern, subject)?);
    let escape = like.escape.as_ref().map(|escape| value(escape, subject)).transpose()?;
    if left.is_unknown() || pattern.is_unknown() || escape.as_ref().is_some_and(Scalar::is_unknown) {
        return Ok(None);
    }
    let (Scalar::Text(left), Scalar::Text(pattern)) = (left, pattern) else {
        return Err(Wrong::LikeOfNoText);
    };
    if pattern.chars().nth(SQL_CHARACTERS).is_some() {
        return Err(Wrong::LongPattern);
    }
    let escape = match escape {
        None => None,
        Some(Scalar::Text(text)) if text.chars().count() == 1 => text.chars().next(),
        Some(_) => return Err(Wrong::BadEscape),
    };
    subject.steps.spend(pattern.len())?;
    let (is_match, steps) = Pattern::new(&pattern, escape).matches(&left);
    subject.steps.spend(steps)?;
    Ok(Some(is_match))
}

// Recursion is bounded by the length of a text (SQL_CHARACTERS), of which each level takes a character.
pub(super) fn value<'a>(expression: &Expression, subject: &Subject<'a>) -> Result<Scalar<'a>, Wrong> {
    subject.steps.spend(1)?;
    Ok(match expression {
        Expression::Constant(constant) => {
            subject.steps.spend_text(constant.text_bytes())?;
            constant.clone()
        }
        Expression::Property(Property::User(name)) => subject.user(name)?.unwrap_or(Scalar::Unknown),
        Expression::Property(Property::System(system)) => subject.system(system)?,
        Expression::PropertyNamed(name) => match value(name, subject)? {
            Scalar::Text(name) => subject.user(&name)?.unwrap_or(Scalar::Unknown),
            Scalar::Unknown => Scalar::Unknown,
            _ => return Err(Wrong::NoName),
        },
        Expression::Unset(name) => return Err(Wrong::NoParameter(name.clone())),
        Expression::NewId => Scalar::Id(subject.fresh_id()),
        Expression::Negative(inner) => value(inner, subject)?.negative()?,
        Expression::Arithmetic(operator, sides) => {
            let [left, right] = &**sides;
            let (left, right) = (value(left, subject)?, value(right, subject)?);
            subject.steps.spend_text(left.text_bytes() + right.text_bytes())?;
            left.combine(*operator, &right)?
        }
        predicate => truth(predicate, subject)?.map_or(Scalar::Unknown, Scalar::Truth),
    })
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Kind, Sql, Typed};
    use super::super::sql;
    use super::super::subject::tests::{about, encoded};
    use super::super::subject::{Front, Subject};
    use super::*;
    use message::Value;
    use std::rc::Rc;

    fn message() -> Vec<u8> {
        encoded(
            &[("MessageId", "m-1"), ("Label", "news")],
            &[
                ("color", "blue".into()),
                ("quantity", Value::Int(12)),
                ("price", Value::Double(2.5f64.to_bits())),
                ("urgent", Value::Boolean(true)),
                ("nothing", Value::Null),
                ("NServiceBus.EnclosedMessageTypes", "A; My.Event; B".into()),
                ("numeric", "12".into()),
                ("id", Value::Uuid([7; 16])),
            ],
        )
    }

    fn try_select(text: &str, parameters: Vec<(Box<str>, Typed)>) -> Result<bool, Wrong> {
        let bytes = message();
        let front = Front::of(&bytes).unwrap();
        let subject = Subject::new(&front, None, about(), &Rc::default()).unwrap();
        let filter = sql::filter(&Sql { expression: text.into(), parameters }).expect(text);
        selects(&filter, &subject)
    }

    fn select(text: &str) -> bool {
        try_select(text, Vec::new()).expect(text)
    }

    #[test]
    fn properties_of_both_scopes_are_compared() {
        // S-187, S-190, S-198, S-202, S-203
        for text in [
            "color = 'blue' AND quantity > 10",
            "COLOR = 'blue'",
            "user.Color <> 'red'",
            "sys.Label = 'news' AND sys.messageid = 'm-1'",
            "[NServiceBus.EnclosedMessageTypes] LIKE '%My.Event%'",
            "quantity = 12.0 AND price >= 2.5 AND price < 3",
            "urgent AND urgent = TRUE",
            "p('col' + 'or') = 'blue' AND property('quantity') = 12",
            "sys.DeliveryCount = 0 AND sys.SequenceNumber = 7 AND sys.Size = 100",
            "id IS NOT NULL AND id = id",
            "1=1",
        ] {
            assert!(select(text), "{text}");
        }
        for text in ["color = 'Blue'", "quantity < 12", "sys.Label = 'old'", "NOT urgent", "1 = 0"] {
            assert!(!select(text), "{text}");
        }
    }

    #[test]
    fn a_text_is_no_number() {
        // S-198
        assert!(!select("numeric > 10") && !select("numeric < 20") && !select("NOT numeric = 12"));
        assert!(select("numeric = '12'"));
    }

    #[test]
    fn what_is_missing_is_unknown_and_never_true() {
        // S-195, S-196, S-197
        for text in [
            "missing = 1",
            "missing <> 1",
            "NOT missing = 1",
            "missing LIKE '%'",
            "missing NOT LIKE 'x'",
            "missing IN ('a')",
            "missing NOT IN ('a')",
            "missing + 1 = 1",
            "nothing = NULL",
            "missing = 1 AND color = 'blue'",
            "color LIKE missing",
        ] {
            assert!(!select(text), "{text}");
        }
        for text in [
            "missing IS NULL AND nothing IS NULL AND NULL IS NULL",
            "color IS NOT NULL",
            "EXISTS(nothing) AND NOT EXISTS(missing) AND exists(sys.Label) AND NOT EXISTS(sys.To)",
            "missing = 1 OR color = 'blue'",
            "NOT (missing = 1 AND color = 'red')",
            "color NOT IN ('red', missing)",
            "(missing = 1) IS NULL",
        ] {
            assert!(select(text), "{text}");
        }
    }

    #[test]
    fn in_and_like_select() {
        // S-194, S-196
        for text in [
            "color IN ('red', 'blue')",
            "quantity IN (1, 6 * 2)",
            "color NOT IN ('red')",
            "color LIKE 'b_u%' AND color NOT LIKE 'B%'",
            "color LIKE 'b!lue' ESCAPE '!'",
        ] {
            assert!(select(text), "{text}");
        }
    }

    #[test]
    fn operators_bind_as_they_should() {
        // S-199
        for text in [
            "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9",
            "-2 - -3 = 1 AND - - 2 = 2 AND -quantity = -12",
            "NOT 1 = 2 AND 1 = 1",
            "1 = 2 AND 1 = 2 OR 1 = 1",
            "7 / 2 = 3 AND 7.0 / 2 = 3.5 AND 7 % 4 = 3",
            "1 = 1 OR 1 = 1 AND 1 = 2",
        ] {
            assert!(select(text), "{text}");
        }
    }

    #[test]
    fn parameters_have_the_values_that_came_with_the_rule() {
        // S-193
        let parameter = |name: &str, kind, text: &str| (name.into(), Typed { kind, text: text.into() });
        let all = vec![
            parameter("@color", Kind::String, "blue"),
            parameter("least", Kind::Int, "10"),
            parameter("@when", Kind::DateTime, "1970-01-01T00:00:01Z"),
            parameter("@urgent", Kind::Boolean, "true"),
        ];
        let text =
            "color = @color AND quantity > @LEAST AND sys.EnqueuedTimeUtc = @when AND urgent = @urgent";
        assert_eq!(try_select(text, all), Ok(true));
        assert_eq!(try_select("color = @color", Vec::new()), Err(Wrong::NoParameter("color".into())));
    }

    #[test]
    fn the_number_without_an_opposite_is_out_of_range() {
        // S-193, S-200
        let least = Typed { kind: Kind::Long, text: i64::MIN.to_string().into() };
        let parameters = vec![(Box::from("least"), least)];
        assert_eq!(try_select("-@least > 0", parameters.clone()), Err(Wrong::OutOfRange));
        assert_eq!(try_select("@least < 0", parameters), Ok(true));
    }

    #[test]
    fn a_pattern_is_no_longer_than_a_filter_may_be() {
        // S-194, S-200: a parameter, or a property of the message, may be longer.
        let pattern = |length: usize| {
            let text = "%".repeat(length).into();
            try_select("color LIKE @p", vec![("p".into(), Typed { kind: Kind::String, text })])
        };
        assert_eq!(pattern(SQL_CHARACTERS), Ok(true));
        assert_eq!(pattern(SQL_CHARACTERS + 1), Err(Wrong::LongPattern));
    }

    #[test]
    fn what_cannot_be_evaluated_says_why() {
        // S-195, S-200
        let wrong = |text: &str| try_select(text, Vec::new()).expect_err(text);
        assert_eq!(wrong("quantity / 0 = 1"), Wrong::ByZero);
        assert_eq!(wrong("quantity LIKE '1%'"), Wrong::LikeOfNoText);
        assert_eq!(wrong("color LIKE 'b' ESCAPE 'xx'"), Wrong::BadEscape);
        assert_eq!(wrong("sys.Foo = 1"), Wrong::NoSystemProperty("Foo".into()));
        assert_eq!(wrong("color"), Wrong::NoTruth);
        assert_eq!(wrong("quantity * 9223372036854775807 > 0"), Wrong::OutOfRange);
        assert_eq!(wrong("p(1) = 1"), Wrong::NoName);
        // What is decided before is not asked.
        assert!(!select("color = 'red' AND quantity / 0 = 1"));
        assert!(!select("missing = 'red' AND quantity / 0 = 1"));
    }

    #[test]
    fn an_id_is_new_each_time() {
        // S-192
        assert!(select("newid() <> newid()"));
    }
}
