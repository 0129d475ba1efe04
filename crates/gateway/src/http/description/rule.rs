//! A rule as XML (http, section 1.7). Texts and typed values pass through unchanged (S-189).

use super::super::failure::Failure;
use super::super::xml::{Element, SCHEMA, SCHEMA_INSTANCE, SERVICE_BUS, Writer};
use crate::iso;
use broker::topic::rule::{Correlation, Filter, Kind, Rule, RuleDescription, Sql, Typed};

/// What every SQL filter and action says of itself.
const COMPATIBILITY_LEVEL: &str = "20";

/// Reads a `RuleDescription`, or what stands for one under another name. `name` is what it is called if it does not say.
pub fn read(description: &Element, name: &str) -> Result<Rule, Failure> {
    let child = |name: &str| description.child(SERVICE_BUS, name);
    let name =
        child("Name").map(|element| element.text.trim()).filter(|text| !text.is_empty()).unwrap_or(name);
    // H-64
    let filter = child("Filter").map_or(Ok(Filter::True), read_filter)?;
    let action = child("Action").map_or(Ok(None), read_action)?;
    Ok(Rule { name: name.into(), filter, action })
}

/// H-60, H-61.
fn read_filter(filter: &Element) -> Result<Filter, Failure> {
    match filter.kind.as_deref() {
        Some("SqlFilter") => Ok(Filter::Sql(read_sql(filter)?)),
        Some("TrueFilter") => Ok(Filter::True),
        Some("FalseFilter") => Ok(Filter::False),
        Some("CorrelationFilter") => Ok(Filter::Correlation(read_correlation(filter)?)),
        other => Err(super::invalid("Filter", other.unwrap_or_default(), "a type of filter")),
    }
}

fn read_action(action: &Element) -> Result<Option<Sql>, Failure> {
    match action.kind.as_deref() {
        Some("SqlRuleAction") => Ok(Some(read_sql(action)?)),
        Some("EmptyRuleAction") | None => Ok(None),
        Some(other) => Err(super::invalid("Action", other, "a type of action")),
    }
}

fn read_sql(element: &Element) -> Result<Sql, Failure> {
    let expression = element.child(SERVICE_BUS, "SqlExpression").map_or("", |child| &child.text);
    let parameters = element.child(SERVICE_BUS, "Parameters").map_or(Ok(Vec::new()), read_values)?;
    Ok(Sql { expression: expression.into(), parameters })
}

/// H-62: in any order; an empty text is a value.
fn read_correlation(filter: &Element) -> Result<Correlation, Failure> {
    let text = |name: &str| filter.child(SERVICE_BUS, name).map(|child| child.text.as_str().into());
    Ok(Correlation {
        correlation_id: text("CorrelationId"),
        message_id: text("MessageId"),
        to: text("To"),
        reply_to: text("ReplyTo"),
        label: text("Label"),
        session_id: text("SessionId"),
        reply_to_session_id: text("ReplyToSessionId"),
        content_type: text("ContentType"),
        properties: filter.child(SERVICE_BUS, "Properties").map_or(Ok(Vec::new()), read_values)?,
    })
}

fn read_values(values: &Element) -> Result<Vec<(Box<str>, Typed)>, Failure> {
    let pairs = values.children.iter().filter(|child| child.is(SERVICE_BUS, "KeyValueOfstringanyType"));
    pairs
        .map(|pair| {
            let key = pair.child(SERVICE_BUS, "Key").map(|key| key.text.as_str());
            let value = pair.child(SERVICE_BUS, "Value");
            let (Some(key), Some(value)) = (key, value) else {
                return Err(Failure::Bad("A property of a filter has no key or no value.".to_owned()));
            };
            Ok((key.into(), read_value(key, value)?))
        })
        .collect()
}

/// H-63: the type under any prefix; without one a value is a string.
fn read_value(key: &str, value: &Element) -> Result<Typed, Failure> {
    let name = value.kind.as_deref().unwrap_or("string");
    let kinds =
        [Kind::String, Kind::Int, Kind::Long, Kind::Boolean, Kind::Double, Kind::DateTime, Kind::Duration];
    let kind = kinds.into_iter().find(|kind| kind_text(*kind) == name);
    let kind = kind.ok_or_else(|| super::invalid(key, name, "a type of value that a filter can compare"))?;
    let text = if kind == Kind::String { &*value.text } else { value.text.trim() };
    let is_right = match kind {
        Kind::String => true,
        Kind::Int => text.parse::<i32>().is_ok(),
        Kind::Long => text.parse::<i64>().is_ok(),
        Kind::Boolean => ["true", "false", "1", "0"].contains(&text),
        Kind::Double => text.parse::<f64>().is_ok(),
        Kind::DateTime => iso::is_date(text),
        Kind::Duration => iso::duration(text.strip_prefix('-').unwrap_or(text)).is_some(),
    };
    if is_right { Ok(Typed { kind, text: text.into() }) } else { Err(super::invalid(key, text, name)) }
}

fn kind_text(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Int => "int",
        Kind::Long => "long",
        Kind::Boolean => "boolean",
        Kind::Double => "double",
        Kind::DateTime => "dateTime",
        Kind::Duration => "duration",
    }
}

/// Writes a `RuleDescription`.
pub fn write(description: &RuleDescription, writer: &mut Writer) {
    let rule = &description.rule;
    writer.start("RuleDescription", &[("xmlns", SERVICE_BUS), ("xmlns:i", SCHEMA_INSTANCE)]);
    match &rule.filter {
        Filter::True => write_sql("Filter", "TrueFilter", "1=1", &[], writer),
        Filter::False => write_sql("Filter", "FalseFilter", "1=0", &[], writer),
        Filter::Sql(sql) => write_sql("Filter", "SqlFilter", &sql.expression, &sql.parameters, writer),
        Filter::Correlation(correlation) => write_correlation(correlation, writer),
    }
    match &rule.action {
        Some(sql) => write_sql("Action", "SqlRuleAction", &sql.expression, &sql.parameters, writer),
        // H-25
        None => {
            writer.empty("Action", &[("i:type", "EmptyRuleAction")]);
        }
    }
    writer.leaf("CreatedAt", &iso::date(description.created.0)).leaf("Name", &rule.name).end();
}

fn write_sql(
    name: &'static str,
    kind: &str,
    expression: &str,
    parameters: &[(Box<str>, Typed)],
    writer: &mut Writer,
) {
    writer
        .start(name, &[("i:type", kind)])
        .leaf("SqlExpression", expression)
        .leaf("CompatibilityLevel", COMPATIBILITY_LEVEL);
    // H-61: one client cannot read an element without entries.
    if !parameters.is_empty() {
        write_values("Parameters", parameters, writer);
    }
    writer.end();
}

fn write_correlation(correlation: &Correlation, writer: &mut Writer) {
    const NAMES: [&str; 8] = [
        "CorrelationId",
        "MessageId",
        "To",
        "ReplyTo",
        "Label",
        "SessionId",
        "ReplyToSessionId",
        "ContentType",
    ];
    writer.start("Filter", &[("i:type", "CorrelationFilter")]);
    for (name, value) in NAMES.into_iter().zip(correlation.system()) {
        super::optional(writer, name, value.as_deref());
    }
    if correlation.properties.is_empty() {
        writer.empty("Properties", &[]);
    } else {
        write_values("Properties", &correlation.properties, writer);
    }
    writer.end();
}

/// H-22, H-23: the prefix of the type has four characters and is bound on the element itself.
fn write_values(name: &'static str, values: &[(Box<str>, Typed)], writer: &mut Writer) {
    writer.start(name, &[]);
    for (key, value) in values {
        let kind = format!("d6p1:{}", kind_text(value.kind));
        writer
            .start("KeyValueOfstringanyType", &[])
            .leaf("Key", key)
            .leaf_with("Value", &[("i:type", &kind), ("xmlns:d6p1", SCHEMA)], &value.text)
            .end();
    }
    writer.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::xml;
    use super::*;
    use broker::LocalTime;

    fn written(rule: &Rule) -> String {
        let description = RuleDescription {
            topic: "t".into(),
            subscription: "s".into(),
            rule: rule.clone(),
            created: LocalTime(0),
        };
        let mut writer = Writer::default();
        write(&description, &mut writer);
        writer.finish()
    }

    fn read_text(inner: &str) -> Result<Rule, Failure> {
        let body = format!(
            "<RuleDescription xmlns=\"{SERVICE_BUS}\" xmlns:i=\"{SCHEMA_INSTANCE}\">{inner}</RuleDescription>"
        );
        read(&xml::read(body.as_bytes()).unwrap(), "given")
    }

    fn typed(kind: Kind, text: &str) -> Typed {
        Typed { kind, text: text.into() }
    }

    fn values() -> Vec<(Box<str>, Typed)> {
        vec![
            ("s".into(), typed(Kind::String, " a <b> ")),
            ("i".into(), typed(Kind::Int, "-5")),
            ("l".into(), typed(Kind::Long, "9223372036854775807")),
            ("b".into(), typed(Kind::Boolean, "true")),
            ("d".into(), typed(Kind::Double, "1.50")),
            ("t".into(), typed(Kind::DateTime, "2020-07-05T11:12:13.1Z")),
            ("u".into(), typed(Kind::Duration, "P1DT2H3M")),
        ]
    }

    // H-60, H-62, H-63, S-189
    #[test]
    fn every_rule_survives_writing_and_reading() {
        let sql = Sql { expression: "  a = @a ".into(), parameters: values() };
        let correlation = Correlation {
            correlation_id: Some("c".into()),
            label: Some("".into()),
            content_type: Some("x/y".into()),
            properties: values(),
            ..Correlation::default()
        };
        let every = Correlation {
            message_id: Some("m".into()),
            to: Some("t".into()),
            reply_to: Some("r".into()),
            session_id: Some("s".into()),
            reply_to_session_id: Some("rs".into()),
            ..Correlation::default()
        };
        for filter in [
            Filter::True,
            Filter::False,
            Filter::Sql(sql.clone()),
            Filter::Correlation(correlation),
            Filter::Correlation(every),
        ] {
            for action in [None, Some(sql.clone())] {
                let rule = Rule { name: "r".into(), filter: filter.clone(), action };
                assert_eq!(read(&xml::read(written(&rule).as_bytes()).unwrap(), "x").unwrap(), rule);
            }
        }
    }

    // HX-1.7.1, H-22, H-23, H-25, H-61
    #[test]
    fn rules_are_written_as_the_service_writes_them() {
        let plain = Rule { name: "r".into(), filter: Filter::True, action: None };
        let text = written(&plain);
        assert!(
            text.ends_with(
                "xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"><Filter i:type=\"TrueFilter\">\
                 <SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>\
                 <Action i:type=\"EmptyRuleAction\"/><CreatedAt>1970-01-01T00:00:00.0000000Z</CreatedAt>\
                 <Name>r</Name></RuleDescription>"
            ),
            "{text}"
        );
        let correlation =
            Correlation { properties: vec![("k".into(), typed(Kind::Int, "1"))], ..Correlation::default() };
        let text = written(&Rule { filter: Filter::Correlation(correlation), ..plain });
        assert!(
            text.contains(
                "<KeyValueOfstringanyType><Key>k</Key><Value i:type=\"d6p1:int\" \
                 xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\">1</Value></KeyValueOfstringanyType>"
            ),
            "{text}"
        );
    }

    // H-61, H-64
    #[test]
    fn what_is_missing_has_its_default_and_extras_are_ignored() {
        let rule = read_text("").unwrap();
        assert_eq!(rule, Rule { name: "given".into(), filter: Filter::True, action: None });
        let text = "<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression>\
            <CompatibilityLevel>20</CompatibilityLevel><RequiresPreprocessing>true</RequiresPreprocessing></Filter>";
        assert_eq!(read_text(text).unwrap().filter, Filter::True);
    }

    #[test]
    fn wrong_types_and_values_are_refused() {
        let value = |kind: &str, text: &str| {
            format!(
                "<Filter i:type=\"CorrelationFilter\"><Properties><KeyValueOfstringanyType><Key>k</Key>\
                 <Value i:type=\"x:{kind}\">{text}</Value></KeyValueOfstringanyType></Properties></Filter>"
            )
        };
        for bad in [
            value("int", "2147483648"),
            value("long", "x"),
            value("boolean", "yes"),
            value("double", ""),
            value("dateTime", "soon"),
            value("duration", "1 day"),
            value("guid", "x"),
            "<Filter i:type=\"OtherFilter\"/>".to_owned(),
            "<Filter/>".to_owned(),
            "<Action i:type=\"OtherAction\"/>".to_owned(),
        ] {
            assert!(matches!(read_text(&bad), Err(Failure::Bad(_))), "{bad}");
        }
    }
}
