//! Rules of a subscription: `add-rule`, `remove-rule` and `enumerate-rules` (A-7.7). What comes as maps goes back
//! as described lists, because that is how clients read them.

use super::reply::Reply;
use super::{Asking, Failure, Verb, status};
use crate::iso;
use broker::topic::rule::{Correlation, Filter, Kind, Rule, RuleDescription, Sql, Typed};
use broker::topic::subscription::split_path;
use broker::{Command, Refusal, Span, Task};
use message::Value;
use message::ticks::TICKS_PER_MS;

/// Descriptors of what is listed. Their numbers have two widths, and that is no mistake.
const RULE_DESCRIPTION: u64 = 0x0000_0137_0000_0004;
const EMPTY_ACTION: u64 = 0x0000_0137_0000_0005;
const SQL_ACTION: u64 = 0x0000_0137_0000_0006;
const SQL_FILTER: u64 = 0x0000_0013_7000_0006;
const TRUE_FILTER: u64 = 0x0000_0013_7000_0007;
const FALSE_FILTER: u64 = 0x0000_0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0000_0013_7000_0009;

/// What every SQL filter and action says of itself.
const COMPATIBILITY_LEVEL: i32 = 20;

pub(super) fn add(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let name = asking.arguments.text("rule-name").ok_or(Failure::Argument("rule-name"))?;
    let description = asking.arguments.get("rule-description");
    let description = description.filter(|value| matches!(value, Value::Map(_)));
    let description = description.ok_or(Failure::Argument("rule-description"))?;
    let sql = |expression| Sql { expression, parameters: Vec::new() };
    let given = |name: &str| description.get(name).filter(|value| !value.is_null());
    let filter = match (given("sql-filter"), given("correlation-filter")) {
        (Some(filter), _) => match text(filter, "expression", "sql-filter")? {
            // True and false filters arrive so.
            Some(text) if &*text == "1=1" => Filter::True,
            Some(text) if &*text == "1=0" => Filter::False,
            Some(text) => Filter::Sql(sql(text)),
            None => return Err(Failure::Argument("sql-filter")),
        },
        (None, Some(filter)) => Filter::Correlation(correlation(filter)?),
        (None, None) => Filter::True,
    };
    let action = match given("sql-rule-action") {
        Some(action) => text(action, "expression", "sql-rule-action")?.map(sql),
        None => None,
    };
    let rule = Rule { name: name.into(), filter, action };
    manage(asking, |topic, subscription| Task::CreateRule { topic, subscription, rule })
}

pub(super) fn remove(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let name = asking.arguments.text("rule-name").ok_or(Failure::Argument("rule-name"))?.into();
    manage(asking, |topic, subscription| Task::DeleteRule { topic, subscription, name })
}

pub(super) fn list(asking: &Asking<'_>) -> Result<(Verb, Command), Failure> {
    let number = |name| usize::try_from(asking.arguments.integer(name)?).map_err(|_| Failure::Range(name));
    let (skip, top) = (number("skip")?, number("top")?);
    manage(asking, |topic, subscription| Task::ListRules { topic, subscription, skip, top })
}

fn manage(
    asking: &Asking<'_>,
    task: impl FnOnce(Box<str>, Box<str>) -> Task,
) -> Result<(Verb, Command), Failure> {
    let Some((topic, subscription)) = split_path(asking.path) else {
        return Err(Failure::Refused(Refusal::NotAllowed("Only subscriptions have rules.")));
    };
    let task = Box::new(task(topic.into(), subscription.into()));
    Ok((Verb::Rules, Command::Manage { request: asking.request, namespace: asking.namespace, task }))
}

/// A text in a map, if it is there. What is something else is not passed over: a filter would select more than was asked for.
fn text(map: &Value, name: &str, argument: &'static str) -> Result<Option<Box<str>>, Failure> {
    if !matches!(map, Value::Map(_)) {
        return Err(Failure::Argument(argument));
    }
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(|text| Some(text.into())).ok_or(Failure::Argument(argument)),
    }
}

fn correlation(filter: &Value) -> Result<Correlation, Failure> {
    let text = |name: &str| text(filter, name, "correlation-filter");
    let properties = match filter.get("properties") {
        Some(Value::Map(entries)) => {
            let typed = entries.iter().map(|(name, value)| Some((name.as_str()?.into(), typed(value)?)));
            typed.collect::<Option<Vec<_>>>().ok_or(Failure::Argument("correlation-filter"))?
        }
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err(Failure::Argument("correlation-filter")),
    };
    Ok(Correlation {
        correlation_id: text("correlation-id")?,
        message_id: text("message-id")?,
        to: text("to")?,
        reply_to: text("reply-to")?,
        label: text("label")?,
        session_id: text("session-id")?,
        reply_to_session_id: text("reply-to-session-id")?,
        content_type: text("content-type")?,
        properties,
    })
}

/// A value as rules keep it; `None` if no filter compares such.
fn typed(value: &Value) -> Option<Typed> {
    let (kind, text) = match value {
        Value::String(text) | Value::Symbol(text) => (Kind::String, text.clone()),
        Value::Boolean(truth) => (Kind::Boolean, truth.to_string()),
        Value::Float(bits) => (Kind::Double, f64::from(f32::from_bits(*bits)).to_string()),
        Value::Double(bits) => (Kind::Double, f64::from_bits(*bits).to_string()),
        Value::Timestamp(ms) => (Kind::DateTime, iso::date(*ms)),
        Value::Described(described) => match &**described {
            (Value::Symbol(name), Value::Long(ticks)) if name == "com.microsoft:timespan" => {
                let sign = if *ticks < 0 { "-" } else { "" };
                let span = iso::duration_text(Span(ticks.unsigned_abs() / TICKS_PER_MS as u64));
                (Kind::Duration, format!("{sign}{span}"))
            }
            _ => return None,
        },
        Value::Long(number) => (Kind::Long, number.to_string()),
        value => {
            let number = value.as_integer()?;
            let kind = if i32::try_from(number).is_ok() { Kind::Int } else { Kind::Long };
            (kind, number.to_string())
        }
    };
    Some(Typed { kind, text: text.into() })
}

/// All rules that were asked for; none is its own status.
pub(super) fn listed(reply: &Reply, rules: &[RuleDescription]) -> Vec<u8> {
    if rules.is_empty() {
        let mut out = Vec::new();
        reply.encode(&mut out, (status::NOTHING, "There are no rules."), None, 0, |_| {});
        return out;
    }
    let entry = |rule: &RuleDescription| Value::Map(vec![("rule-description".into(), described_rule(rule))]);
    reply.with("rules", |out| Value::List(rules.iter().map(entry).collect()).encode(out))
}

fn described(code: u64, fields: Vec<Value>) -> Value {
    Value::Described(Box::new((Value::Ulong(code), Value::List(fields))))
}

fn described_rule(description: &RuleDescription) -> Value {
    let rule = &description.rule;
    let sql = |sql: &Sql| vec![(&*sql.expression).into(), Value::Int(COMPATIBILITY_LEVEL)];
    let filter = match &rule.filter {
        Filter::True => described(TRUE_FILTER, Vec::new()),
        Filter::False => described(FALSE_FILTER, Vec::new()),
        Filter::Sql(text) => described(SQL_FILTER, sql(text)),
        Filter::Correlation(correlation) => {
            let system = correlation.system().into_iter();
            let system = system.map(|value| value.as_deref().map_or(Value::Null, Value::from));
            let entry = |(name, value): &(Box<str>, Typed)| (Value::from(&**name), value.to_value());
            // Never null: clients look into it.
            let properties = Value::Map(correlation.properties.iter().map(entry).collect());
            described(CORRELATION_FILTER, system.chain([properties]).collect())
        }
    };
    let action = match &rule.action {
        Some(action) => described(SQL_ACTION, sql(action)),
        None => described(EMPTY_ACTION, Vec::new()),
    };
    let created = Value::Timestamp(description.created.0);
    described(RULE_DESCRIPTION, vec![filter, action, (&*rule.name).into(), created])
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::sections::Sections;

    fn every_value() -> Vec<(Box<str>, Value)> {
        let span = (Value::Symbol("com.microsoft:timespan".into()), Value::Long(-600_000_000));
        vec![
            ("s".into(), "x".into()),
            ("i".into(), Value::Int(-7)),
            ("l".into(), Value::Long(1 << 40)),
            ("b".into(), Value::Boolean(true)),
            ("d".into(), Value::Double(0.5f64.to_bits())),
            ("t".into(), Value::Timestamp(1_500)),
            ("p".into(), Value::Described(Box::new(span))),
        ]
    }

    #[test]
    fn values_keep_the_type_they_were_created_with() {
        // A-7.7.5
        for (name, value) in every_value() {
            assert_eq!(typed(&value).unwrap().to_value(), value, "{name}");
        }
        assert_eq!(typed(&Value::Uint(7)).unwrap().to_value(), Value::Int(7));
        assert_eq!(typed(&Value::Null), None);
    }

    #[test]
    fn what_is_no_text_where_one_is_asked_for_is_refused_and_not_passed_over() {
        // A-7.7.1
        let map = |name: &str, value| Value::Map(vec![(name.into(), value)]);
        let wrong = Err(Failure::Argument("correlation-filter"));
        assert_eq!(correlation(&map("label", Value::Int(7))), wrong);
        assert_eq!(correlation(&Value::List(vec![])), wrong);
        let label = correlation(&map("label", "x".into())).unwrap().label;
        assert_eq!(
            (label.as_deref(), correlation(&map("label", Value::Null)).unwrap().label),
            (Some("x"), None)
        );
        let expression = |value| text(&value, "expression", "sql-rule-action");
        assert_eq!(expression(map("expression", Value::Null)), Ok(None));
        assert_eq!(expression(map("expression", Value::Int(1))), Err(Failure::Argument("sql-rule-action")));
        assert_eq!(expression("SET a = 1".into()), Err(Failure::Argument("sql-rule-action")));
    }

    #[test]
    fn rules_are_described_lists_without_nulls_where_clients_look() {
        // A-7.7.3, A-7.7.4
        let reply = Reply { correlation: Value::Ulong(1), tracking: None };
        let description = RuleDescription {
            topic: "t".into(),
            subscription: "s".into(),
            rule: Rule {
                name: "r".into(),
                filter: Filter::Correlation(Correlation {
                    label: Some("x".into()),
                    ..Correlation::default()
                }),
                action: None,
            },
            created: broker::LocalTime(5),
        };
        let bytes = listed(&reply, &[description]);
        let sections = Sections::scan(&bytes).unwrap();
        let body = Value::decode(sections.body.value(&bytes).unwrap()).unwrap();
        let Some(Value::List(rules)) = body.get("rules") else { panic!("{body:?}") };
        let Some(Value::Described(rule)) = rules[0].get("rule-description") else { panic!("{rules:?}") };
        let mut fields = vec![Value::Null; 9];
        (fields[4], fields[8]) = ("x".into(), Value::Map(Vec::new()));
        let expected = vec![
            described(CORRELATION_FILTER, fields),
            described(EMPTY_ACTION, Vec::new()),
            "r".into(),
            Value::Timestamp(5),
        ];
        assert_eq!(**rule, (Value::Ulong(1_335_734_829_060), Value::List(expected)));
        let none = listed(&reply, &[]);
        let sections = Sections::scan(&none).unwrap();
        let told = Value::decode(sections.application_properties.value(&none).unwrap()).unwrap();
        assert_eq!(told.get("statusCode"), Some(&Value::Int(204)));
    }
}
