//! Every expression of `conformance.txt`, each as the rule of a subscription, against one message: what is selected, what is
//! unknown, what fails and what is refused (S-185 to S-203).

use super::fan_out::tests::{counts, topic};
use super::rule::{Correlation, Filter, Kind, Rule, Sql, Typed};
use super::settings::{SubscriptionSettings, TopicSettings};
use super::subject::tests::encoded;
use crate::manage::Task;
use crate::refusal::Refusal;
use crate::testing::{World, message as any};
use message::Value;

const TABLE: &str = include_str!("conformance.txt");

/// The table may only grow.
const LEAST_ROWS: usize = 400;

fn rows() -> impl Iterator<Item = (char, &'static str)> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let mut characters = line.chars();
        let kind = characters.next().expect("the line is not empty");
        assert!("TFUEX".contains(kind), "{line}");
        (kind, characters.as_str().trim_start())
    })
}

/// The message that all are asked about.
fn message() -> Vec<u8> {
    let span = Value::Described(Box::new((
        Value::Symbol("com.microsoft:timespan".into()),
        Value::Long(600_000_000),
    )));
    encoded(
        &[
            ("MessageId", "m-1"),
            ("Label", "news"),
            ("To", "here"),
            ("ReplyTo", "back"),
            ("CorrelationId", "c-1"),
            ("ContentType", "text/plain"),
            ("SessionId", "s-1"),
            ("ReplyToSessionId", "rs"),
        ],
        &[
            ("color", "blue".into()),
            ("name", "color".into()),
            ("empty", "".into()),
            ("it", "it's".into()),
            ("percent", "100%".into()),
            ("under", "a_b".into()),
            ("größe", "L".into()),
            ("numeric", "12".into()),
            ("a.b", "dotted".into()),
            ("x y", Value::Int(1)),
            ("b]c", "bracket".into()),
            ("q\"r", "quote".into()),
            ("symbol", Value::Symbol("sym".into())),
            ("quantity", Value::Int(12)),
            ("zero", Value::Int(0)),
            ("big", Value::Long(i64::MAX)),
            ("small", Value::Short(-3)),
            ("tiny", Value::Ubyte(200)),
            ("price", Value::Double(2.5_f64.to_bits())),
            ("ratio", Value::Float(0.5_f32.to_bits())),
            ("urgent", Value::Boolean(true)),
            ("calm", Value::Boolean(false)),
            ("nothing", Value::Null),
            ("at", Value::Timestamp(1_000)),
            ("id", Value::Uuid([7; 16])),
            ("letter", Value::Char(0x41)),
            ("binary", Value::Binary(b"x".to_vec())),
            ("span", span),
        ],
    )
}

fn sql(expression: &str) -> Filter {
    Filter::Sql(Sql { expression: expression.into(), parameters: Vec::new() })
}

/// `Label=news color:string=blue`.
fn correlation(text: &str) -> Filter {
    let mut filter = Correlation::default();
    for condition in text.split_whitespace() {
        let (name, value) = condition.split_once('=').expect(condition);
        let value = || Some(Box::from(value));
        match name {
            "Label" => filter.label = value(),
            "MessageId" => filter.message_id = value(),
            "To" => filter.to = value(),
            "ReplyTo" => filter.reply_to = value(),
            "CorrelationId" => filter.correlation_id = value(),
            "ContentType" => filter.content_type = value(),
            "SessionId" => filter.session_id = value(),
            "ReplyToSessionId" => filter.reply_to_session_id = value(),
            typed => {
                let (name, kind) = typed.split_once(':').expect(typed);
                let kind = match kind {
                    "string" => Kind::String,
                    "int" => Kind::Int,
                    "long" => Kind::Long,
                    "boolean" => Kind::Boolean,
                    "double" => Kind::Double,
                    "dateTime" => Kind::DateTime,
                    "duration" => Kind::Duration,
                    other => panic!("{other}"),
                };
                let text = condition.split_once('=').map_or("", |(_, text)| text).into();
                filter.properties.push((name.into(), Typed { kind, text }));
            }
        }
    }
    Filter::Correlation(filter)
}

fn subscribe(world: &mut World, name: &str, filter: Filter) -> Result<(), Refusal> {
    let rule = Some(Rule { name: "r".into(), filter, action: None });
    let settings = SubscriptionSettings::default();
    let task = Task::CreateSubscription { topic: "t".into(), name: name.into(), settings, rule };
    world.manage(task).map(drop)
}

/// What became of the message by this filter: selected, not selected, or failed.
fn told(filter: Filter, opposite: Option<Filter>) -> char {
    let mut world = World::new();
    topic(&mut world, TopicSettings::default());
    if subscribe(&mut world, "it", filter).is_err() {
        return 'X';
    }
    let has_opposite = opposite.is_some_and(|opposite| {
        subscribe(&mut world, "not", opposite).expect("what is a condition has an opposite");
        true
    });
    let link = world.sender("t");
    world.send_bytes(link, &[&message()], any(0));
    while world.is_due() {
        world.tick();
    }
    let selected = counts(&mut world, "it");
    let refused = if has_opposite { counts(&mut world, "not") } else { (1, 0) };
    match (selected, refused) {
        ((1, 0), (0, 0)) => 'T',
        ((1, 0), (1, 0)) if !has_opposite => 'T',
        ((0, 0), (1, 0)) => 'F',
        ((0, 0), (0, 0)) => 'U',
        ((0, 1), (0, 1)) => 'E',
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_expression_of_the_table_selects_what_it_should() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (expected, text) in rows() {
        count += 1;
        let found = match text.strip_prefix('~') {
            Some(conditions) => told(correlation(conditions), None),
            None => told(sql(text), Some(sql(&format!("NOT ({text})")))),
        };
        if found != expected {
            wrong.push(format!("{text}: {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= LEAST_ROWS, "only {count} rows");
}
