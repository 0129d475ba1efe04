//! Expressions as text again, with every parenthesis.

use super::{Expression, Statement};
use crate::topic::expression::{Arithmetic, Comparison, Property, System};
use crate::topic::scalar::Scalar;

pub(super) fn statements(statements: &[Statement]) -> String {
    let written = |statement: &Statement| match statement {
        Statement::Set(of, value) => format!("SET {} = {}", property(of), expression(value)),
        Statement::Remove(of) => format!("REMOVE {}", property(of)),
    };
    statements.iter().map(written).collect::<Vec<_>>().join("; ")
}

pub(super) fn expression(of: &Expression) -> String {
    let within = |of: &Expression| format!("({})", expression(of));
    let list = |of: &[Expression], between: &str| of.iter().map(within).collect::<Vec<_>>().join(between);
    match of {
        Expression::Constant(constant) => scalar(constant),
        Expression::Property(of) => property(of),
        Expression::PropertyNamed(name) => format!("p({})", expression(name)),
        Expression::Unset(name) => format!("@{name}"),
        Expression::NewId => "newid()".to_owned(),
        Expression::Negative(inner) => format!("-{}", within(inner)),
        Expression::Arithmetic(operator, sides) => {
            let operator = match operator {
                Arithmetic::Plus => "+",
                Arithmetic::Minus => "-",
                Arithmetic::Times => "*",
                Arithmetic::Divided => "/",
                Arithmetic::Modulo => "%",
            };
            list(&**sides, operator)
        }
        Expression::Comparison(comparison, sides) => {
            let comparison = match comparison {
                Comparison::Equal => "=",
                Comparison::Different => "<>",
                Comparison::Less => "<",
                Comparison::AtMost => "<=",
                Comparison::Greater => ">",
                Comparison::AtLeast => ">=",
            };
            list(&**sides, comparison)
        }
        Expression::Not(inner) => format!("NOT {}", within(inner)),
        Expression::And(chain) => list(chain, " AND "),
        Expression::Or(chain) => list(chain, " OR "),
        Expression::IsNull(inner) => format!("{} IS NULL", within(inner)),
        Expression::Exists(of) => format!("EXISTS({})", property(of)),
        Expression::In(left, elements) => format!("{} IN ({})", within(left), list(elements, ", ")),
        Expression::Like(like) => {
            let escape = like.escape.as_ref().map(|escape| format!(" ESCAPE {}", within(escape)));
            format!("{} LIKE {}{}", within(&like.value), within(&like.pattern), escape.unwrap_or_default())
        }
    }
}

fn property(of: &Property) -> String {
    let delimited = |name: &str| format!("[{}]", name.replace(']', "]]"));
    match of {
        Property::User(name) => delimited(name),
        Property::System(system) => format!(
            "sys.{}",
            delimited(match system {
                System::Carried(property) => property.name(),
                System::TimeToLive => "TimeToLive",
                System::EnqueuedTime => "EnqueuedTimeUtc",
                System::ExpiresAt => "ExpiresAtUtc",
                System::SequenceNumber => "SequenceNumber",
                System::Size => "Size",
                System::DeliveryCount => "DeliveryCount",
                System::Absent(name) | System::Unknown(name) => name,
            })
        ),
    }
}

fn scalar(of: &Scalar<'_>) -> String {
    match of {
        Scalar::Unknown => "NULL".to_owned(),
        Scalar::Truth(truth) => truth.to_string(),
        Scalar::Integer(number) => number.to_string(),
        Scalar::Real(number) => format!("{number:?}"),
        Scalar::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Scalar::Instant(_) | Scalar::Ticks(_) | Scalar::Id(_) => unreachable!("only parameters are such"),
    }
}
